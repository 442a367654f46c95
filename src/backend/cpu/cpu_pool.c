/*
 * Mean over positions and its gradient: x[B,S,C] -> y[B,C]. Letters: B images, S positions, C
 * columns.
 *
 * Forward, one thread owns some columns of one image and adds their positions up in fp32, in order.
 * Backward, one thread owns a range of the B S rows.
 */
#include <string.h>

#include "backend/cpu/cpu_int.h"

/* Bytes: x once; the sums stay in L1. */
void gd_cpu_pool(const struct gd_kernel_args *args) {
  enum { BLOCK = 512 };
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *x = &args->in[0], *y = &args->out[0];
  int64_t positions = x->dims[1], columns = x->dims[2];
  int64_t blocks = (columns + BLOCK - 1) / BLOCK, tasks = x->dims[0] * blocks;
  int threads = gd_cpu_threads(args, 4 * x->elements);
#pragma omp parallel for num_threads(threads)
  for (int64_t task = 0; task < tasks; task++) {
    float sums[BLOCK] = {0};
    int64_t b = task / blocks, at = task % blocks * BLOCK;
    int64_t width = columns - at < BLOCK ? columns - at : BLOCK;
    rows->sum_rows(x->dtype, sums, gd_cpu_at(x, b * positions * columns + at), positions, columns,
                   width);
    rows->scale(y->dtype, gd_cpu_at(y, b * columns + at), GD_DTYPE_F32, sums,
                1.0f / (float)positions, width);
  }
}

/* Bytes: dx once. The first row of an image in a range is computed, the others are copies of it. */
void gd_cpu_pool_grad(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *dy = &args->in[0], *dx = &args->out[0];
  int64_t positions = dx->dims[1], columns = dx->dims[2], count = dx->dims[0] * positions;
  size_t row_bytes = (size_t)(columns * gd_dtype_bytes(dx->dtype));
  int threads = gd_cpu_threads(args, 4 * dx->elements);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(count, 1, part, threads);
    for (int64_t r = range.begin; r < range.end; r++) {
      void *row = gd_cpu_at(dx, r * columns);
      int64_t first = r / positions * positions;
      first = first > range.begin ? first : range.begin;
      if (r > first)
        memcpy(row, gd_cpu_at(dx, first * columns), row_bytes);
      else
        rows->scale(dx->dtype, row, dy->dtype, gd_cpu_at(dy, r / positions * columns),
                    1.0f / (float)positions, columns);
    }
  }
}
