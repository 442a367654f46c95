// What all kernels of attention are told besides their tensors, which stay parameters of their own:
// read from a struct, the same code takes other registers. Letters: T steps, D size, N heads, M key
// heads.
#ifndef GD_ATTENTION_ARGS_CUH
#define GD_ATTENTION_ARGS_CUH
#include "args.cuh"

struct gd_attention {
  int64_t heads;         // to work on: key heads in attention_grad_keys, else query heads
  int64_t first_head;    // query heads before these, counted for dropout alone
  int64_t weights;       // of one sample: N T T
  int32_t group;         // query heads that share a key head
  int32_t steps, size;   // T, D
  int32_t chunk;         // heads whose tiles share L2, see place_of; attention_short: at once
  int32_t causal;
  float scale, exponent; // exponent: scale log2(e), never 0
  float kept_scale;      // of what is not dropped
  uint32_t threshold;    // 16 bits below it drop their element
  uint32_t stream;
};
GD_ARGS_SIZE(struct gd_attention, 64);

#endif
