/*
 * Fused attention by own kernels: every precision, head size and mask, dropout included. cudnn.c
 * decides between them and cuDNN.
 */
#ifndef GD_BACKEND_CUDA_ATTENTION_H
#define GD_BACKEND_CUDA_ATTENTION_H

#include "backend/cuda/cuda_int.h"

/* `tunes`, the same at all stages: time several tiles and keep the best. */
enum gd_status gd_cuda_own_attention(const struct gd_cuda_call *call, bool tunes) GD_MUST_USE;
enum gd_status gd_cuda_own_attention_grad(const struct gd_cuda_call *call, bool tunes) GD_MUST_USE;
void gd_cuda_own_attention_free(struct gd_cuda *cuda);

#endif
