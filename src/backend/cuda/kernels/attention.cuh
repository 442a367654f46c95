// What all kernels of attention are told. Letters: T steps, D size, N heads, M key heads.
#ifndef GD_ATTENTION_CUH
#define GD_ATTENTION_CUH

struct gd_attention {      // op_attention.c has the same
  int64_t heads;           // to work on: key heads in attention_grad_keys, else query heads
  int64_t first_head;      // query heads before these, counted for dropout alone
  int64_t weights;         // of one sample: N T T
  int group;               // query heads that share a key head
  int steps, size;         // T, D
  int chunk;               // heads whose tiles share L2, see place_of; attention_short: at once
  int causal;
  float scale, exponent;   // exponent: scale log2(e), never 0
  float kept_scale;        // of what is not dropped
  uint32_t threshold;      // 16 bits below it drop their element
  uint32_t stream;
};

#endif
