/*
 * Fused attention by own kernels: every precision, head size and mask, dropout included.
 * attention_cudnn.c decides between them and cuDNN.
 */
#ifndef GD_BACKEND_CUDA_ATTENTION_ATTENTION_H
#define GD_BACKEND_CUDA_ATTENTION_ATTENTION_H

#include "backend/cuda/kernels/attention_args.cuh"
#include "backend/cuda/runtime/cuda_int.h"

/* `tunes`, the same at all stages: several tilings are timed and the fastest is kept. */
enum gd_status gd_cuda_own_attention(const struct gd_cuda_call *call, bool tunes) GD_MUST_USE;
enum gd_status gd_cuda_own_attention_grad(const struct gd_cuda_call *call, bool tunes) GD_MUST_USE;

/*
 * Short sequences of fp32 in TF32, one CTA per head (kernels/attention_short.cu): whether it takes
 * this op, and the op. GPUDAYS_ATTENTION_SHORT=0 rules it out, as does GPUDAYS_TF32_EMULATED=0
 * unless GPUDAYS_ATTENTION_SHORT=1 demands it.
 */
bool gd_cuda_short_attention_takes(const struct gd_cuda_call *call);
enum gd_status gd_cuda_short_attention(const struct gd_cuda_call *call) GD_MUST_USE;
enum gd_status gd_cuda_short_attention_grad(const struct gd_cuda_call *call) GD_MUST_USE;

#endif
