/*
 * Sums over rows for every op that has them (gradients of weights and biases, means): the second of
 * two stages, where the first left one row of fp32 sums per group of rows in the workspace. Groups
 * follow from shapes alone, never from the device, so the same inputs give the same bits.
 * They are in op_rows.c.
 */
#ifndef GD_BACKEND_CUDA_POINTWISE_COLUMNS_H
#define GD_BACKEND_CUDA_POINTWISE_COLUMNS_H

#include "backend/cuda/runtime/cuda_int.h"
#include "base/sizes.h"
#include "ir/shape.h"

/* A matrix to be summed over its rows, and where the sums go. */
struct gd_cuda_sums {
  void *x; /* read: [rows, columns], rows `stride` elements apart */
  enum gd_dtype dtype;
  int64_t rows, columns, stride;
  void *out;
  enum gd_dtype out_dtype;
  bool adds; /* to what out holds */
};

/* Sums all rows in one launch: for matrices of few rows. */
enum gd_status gd_cuda_sum_columns(const struct gd_cuda_call *call,
                                   struct gd_cuda_sums sums) GD_MUST_USE;

/* Addresses of a call's tensors, which a launch wants to be pointed to. */
struct gd_cuda_data {
  void *in[8], *out[GD_MAX_OUTPUTS], *work;
};

static inline struct gd_cuda_data gd_cuda_data_of(const struct gd_kernel_args *args) {
  struct gd_cuda_data data = {.work = args->workspace};
  for (uint32_t i = 0; i < args->n_in && i < 8; i++)
    data.in[i] = args->in[i].data;
  for (uint32_t i = 0; i < args->n_out; i++)
    data.out[i] = args->out[i].data;
  return data;
}

/* May data be moved so many bytes at a time? */
static inline bool gd_cuda_aligned(const void *data, int64_t bytes) {
  return (uintptr_t)data % (uintptr_t)bytes == 0;
}

/* May all tensors of a call? */
static inline bool gd_cuda_all_aligned(const struct gd_kernel_args *args, int64_t bytes) {
  for (uint32_t i = 0; i < args->n_in; i++)
    if (!gd_cuda_aligned(args->in[i].data, bytes))
      return false;
  for (uint32_t i = 0; i < args->n_out; i++)
    if (!gd_cuda_aligned(args->out[i].data, bytes))
      return false;
  return true;
}

/* The power of two that is not below n; 1 for 0. */
static inline int64_t gd_cuda_power(int64_t n) {
  int64_t power = 1;
  while (power < n)
    power *= 2;
  return power;
}

#endif
