/*
 * Cases for test_cuda_ops.c and test_cuda_kernels.c: attention by each of its tilings, wherever a
 * device holds it, which no small case takes by itself (op_attention.c). Tilings depend on the kind
 * of MMAs, the head size and whether there is dropout; whatever else may go wrong does so with
 * the first of them too, and is among the cases of tests/op.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "gpu/cuda_cases.h"

/* The gradient by the one kernel: one block of keys and several, the last of them with rows to
   spare; columns to spare; T for both ways to draw what is kept. */
static void cases_attention_whole(void) {
  static const struct attention_shape shapes[] = {
      {1, 1, 1, 113, 64}, {1, 1, 1, 240, 64}, {2, 1, 1, 137, 64}, {1, 2, 2, 72, 56}};
  for (int64_t s = 0; s < COUNT(shapes); s++)
    for (int mode = 0; mode < 4; mode++) {
      check_attention_of(GD_OP_attention_grad, &shapes[s], (uint64_t)s, GD_DTYPE_BF16, mode);
      check_attention_of(GD_OP_attention_grad, &shapes[s], (uint64_t)s, GD_DTYPE_F16, mode);
    }
}

/* The shapes have the rows of op_attention.c's table: heads of up to 64, 128 and 256. Keys are
   shared, as attention_short.cu would take the first of them. Causal or not, as that moves the
   bounds of loops over tiles; fp32 with dropout alone, which does not change its tilings. */
static void cases_attention_tiling(void) {
  static const struct attention_shape shapes[] = {
      {1, 2, 1, 137, 64}, {1, 1, 1, 73, 128}, {1, 1, 1, 41, 256}};
  for (int64_t s = 0; s < COUNT(shapes); s++)
    for (int pass = 0; pass < (shapes[s].size <= 128 ? 2 : 1); pass++) /* gradients as of 128 */
      for (int mode = 0; mode < 4; mode++) {
        enum gd_op_kind kind = pass ? GD_OP_attention_grad : GD_OP_attention;
        check_attention_of(kind, &shapes[s], (uint64_t)s, GD_DTYPE_BF16, mode);
        if (mode & 2) {
          check_attention_of(kind, &shapes[s], (uint64_t)s, GD_DTYPE_F32, mode);
          check_attention_of(kind, &shapes[s], (uint64_t)s, GD_DTYPE_F32, mode | 4);
        }
      }
}

void cases_attention_tiles(void) {
  static const char *const tiles[] = {"1", "2", "3", "4", "5", "6"}; /* there are seven at most */
  setenv("GPUDAYS_ATTENTION_TILE", "w", 1);
  cases_attention_whole();
  for (int i = 0; i < COUNT(tiles); i++) {
    setenv("GPUDAYS_ATTENTION_TILE", tiles[i], 1);
    cases_attention_tiling();
  }
  unsetenv("GPUDAYS_ATTENTION_TILE");
}
