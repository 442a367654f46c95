/*
 * Fused attention by own kernels: every precision, head size and mask, dropout included. cudnn.c
 * decides between them and cuDNN.
 */
#ifndef GD_BACKEND_CUDA_ATTENTION_H
#define GD_BACKEND_CUDA_ATTENTION_H

#include "backend/cuda/cuda_int.h"

/* What kernels are told, as kernels/attention.cuh has it. */
struct gd_attention {
  int64_t heads, first_head, weights;
  int32_t group, steps, size, chunk, causal;
  float scale, exponent, kept_scale;
  uint32_t threshold, stream;
};

/* `tunes`, the same at all stages: time several tiles and keep the best. */
enum gd_status gd_cuda_own_attention(const struct gd_cuda_call *call, bool tunes) GD_MUST_USE;
enum gd_status gd_cuda_own_attention_grad(const struct gd_cuda_call *call, bool tunes) GD_MUST_USE;
void gd_cuda_own_attention_free(struct gd_cuda *cuda);

/*
 * Short sequences of fp32 in TF32, a block a head (kernels/attention_short.cu): whether it takes
 * this op, and the op. For people who tune: with GPUDAYS_HALVES=0 it takes none.
 */
bool gd_cuda_short_attention_takes(const struct gd_cuda_call *call);
enum gd_status gd_cuda_short_attention(const struct gd_cuda_call *call) GD_MUST_USE;
enum gd_status gd_cuda_short_attention_grad(const struct gd_cuda_call *call) GD_MUST_USE;

#endif
