/*
 * Cases for test_cuda_ops.c and test_cuda_kernels.c: attention over short sequences of fp32 in TF32
 * by the kernel for them (op_attention_short.c), demanded and ruled out. Which of the two ran is
 * asked of the backend: the tiled kernels would pass the same comparison.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "gpu/cuda_cases.h"

enum { CAUSAL = 1, TF32 = 4 }; /* modes of check_attention_of */

/* One tile and several, the last with rows to spare; the most that the forward pass and the
   gradient hold on every GPU; all head sizes. */
static const struct attention_shape shapes[] = {
    {1, 2, 2, 5, 16}, {2, 1, 1, 16, 32}, {1, 3, 3, 50, 64}, {1, 2, 2, 96, 16}, {1, 1, 1, 97, 32}};

static void check_short(const char *how, const char *emulated, bool runs) {
  setenv("GPUDAYS_ATTENTION_SHORT", how, 1);
  setenv("GPUDAYS_TF32_EMULATED", emulated, 1);
  for (int64_t s = 0; s < COUNT(shapes); s++)
    for (int i = 0; i < 4; i++) {
      int64_t before = cuda_ops_short_attentions();
      check_attention_of(i & 2 ? GD_OP_attention_grad : GD_OP_attention, &shapes[s], (uint64_t)s,
                         GD_DTYPE_F32, TF32 | (i & CAUSAL));
      op_cases.checked++;
      if (!cuda_ops.collects && (cuda_ops_short_attentions() > before) != runs) {
        print_error("GPUDAYS_ATTENTION_SHORT=%s, T %lld: the kernel for short sequences %s\n", how,
                    (long long)shapes[s].steps, runs ? "does not run" : "runs");
        op_cases.failed++;
      }
    }
  unsetenv("GPUDAYS_ATTENTION_SHORT");
  unsetenv("GPUDAYS_TF32_EMULATED");
}

void cases_attention_short(void) {
  check_short("1", "0", true);
  check_short("0", "1", false);
}
