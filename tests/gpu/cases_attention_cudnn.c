/*
 * Cases for test_cuda_ops.c: attention by cuDNN (cudnn.c), which otherwise runs only where a plan
 * was bound and it won. Head sizes of models and odd ones, heads that share keys, masked or not,
 * one block of keys and many; then with a workspace that holds a part of the batch. Without cuDNN,
 * and where it does not take a case, these are the own kernels once more.
 */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>

#include "gpu/cuda_cases.h"

static int64_t cudnn_slices_of(enum gd_op_kind kind, const struct attention_shape *shape,
                               enum gd_dtype dtype, int mode) {
  int64_t before = cuda_ops_cudnn_slices();
  check_attention_of(kind, shape, 7, dtype, mode);
  return cuda_ops_cudnn_slices() - before;
}

static void expect_cudnn(bool ran, const char *what) {
  op_cases.checked++;
  if (!ran && cuda_ops_cudnn_slices() >= 0 && !cuda_ops.collects && !getenv("GD_TEST_BRIEF")) {
    print_error("cuDNN %s\n", what);
    op_cases.failed++;
  }
}

static void cases_cudnn_whole(void) {
  static const struct attention_shape shapes[] = {
      {2, 3, 3, 128, 64}, {1, 4, 2, 137, 64},  {3, 2, 2, 200, 128}, {2, 2, 1, 65, 80},
      {1, 1, 1, 700, 64}, {1, 2, 1, 130, 256}, {1, 2, 2, 40, 8},    {2, 1, 1, 2, 16}};
  for (int64_t s = 0; s < COUNT(shapes); s++)
    for (int causal = 0; causal < 2; causal++)
      for (int pass = 0; pass < 2; pass++) {
        enum gd_op_kind kind = pass ? GD_OP_attention_grad : GD_OP_attention;
        int64_t ran = cudnn_slices_of(kind, &shapes[s], GD_DTYPE_BF16, causal);
        ran += cudnn_slices_of(kind, &shapes[s], GD_DTYPE_F16, causal | 8);
        if (shapes[s].size == 64 || shapes[s].size == 80 || shapes[s].size == 128)
          expect_cudnn(ran > 0, "does not take heads of 64, 80 or 128");
      }
}

/* What plans of cuDNN want for themselves is not known: some of the workspaces make slices. */
static void cases_cudnn_slices(void) {
  static const struct attention_shape shape = {5, 2, 1, 260, 64};
  int64_t entry_bytes = 4 * shape.heads * shape.steps * (shape.size + 1) + 512;
  for (int mode = 0; mode < 2; mode++) {
    int64_t whole = cudnn_slices_of(GD_OP_attention_grad, &shape, GD_DTYPE_BF16, mode), most = 0;
    for (int64_t count = 3; count < 10; count += 2) {
      cuda_ops_limit(0, count * entry_bytes / 2);
      int64_t sliced = cudnn_slices_of(GD_OP_attention_grad, &shape, GD_DTYPE_BF16, mode);
      cuda_ops_limit(0, 0);
      most = sliced > most ? sliced : most;
    }
    expect_cudnn(most > whole, "takes all of the batch at a time, whatever the workspace");
  }
}

void cases_attention_cudnn(void) {
  setenv("GPUDAYS_CUDNN", "1", 1);
  cuda_ops.varies = true;
  cases_cudnn_whole();
  cases_cudnn_slices();
  cuda_ops.varies = false;
  unsetenv("GPUDAYS_CUDNN");
}
