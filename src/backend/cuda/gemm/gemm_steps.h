/*
 * Steps of a program (multi_tensor.h) that can be computed as one GEMM or one group of GEMMs: what
 * gemm_group.c and gemm_epilogue.c look for. Whether that is faster, they find out afterwards.
 */
#ifndef GD_BACKEND_CUDA_GEMM_GEMM_STEPS_H
#define GD_BACKEND_CUDA_GEMM_GEMM_STEPS_H

#include "backend/cuda/gemm/cuda_gemm.h"
#include "backend/cuda/runtime/multi_tensor.h"

/* Which of the steps, from the first one on, are GEMMs that gd_cuda_multi_gemm would group;
   n < 2: there are none. */
struct gd_cuda_group {
  int n;
  uint32_t at[3];
};
void gd_cuda_group_find(const struct gd_cuda_step *steps, uint32_t n_steps,
                        struct gd_cuda_group *group);

/* The first two steps as one GEMM. */
struct gd_cuda_fused_gemm {
  struct gd_cuda_gemm alone; /* the first */
  struct gd_cuda_gemm fused; /* with the second in its epilogue */
  /* Of the second: what is left to do, the sum over the rows of D, columns of the library; data is
     NULL where there is no such output. */
  struct gd_view sums;
  bool sums_add;
};
/* False: they are no such steps, or the result lies over what the GEMM reads. */
bool gd_cuda_fused_gemm_find(const struct gd_cuda_step *steps, uint32_t n_steps,
                             struct gd_cuda_fused_gemm *found);

#endif
