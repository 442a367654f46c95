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
  enum { BLOCK = 2048 };
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

/*
 * Bytes: dx once. The first row of an image in a range is computed and copied to the next, both to
 * the next two, and so on: long copies run at the speed of memory, single rows do not.
 */
void gd_cpu_pool_grad(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *dy = &args->in[0], *dx = &args->out[0];
  int64_t positions = dx->dims[1], columns = dx->dims[2], count = dx->dims[0] * positions;
  size_t row_bytes = (size_t)(columns * gd_dtype_bytes(dx->dtype));
  int64_t most = 1 + 32768 / ((int64_t)row_bytes + 1); /* rows of one copy: they stay in cache */
  int threads = gd_cpu_threads(args, 4 * dx->elements);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(count, 1, part, threads);
    for (int64_t r = range.begin, stop; r < range.end; r = stop) {
      int64_t image = r / positions;
      stop = (image + 1) * positions < range.end ? (image + 1) * positions : range.end;
      rows->scale(dx->dtype, gd_cpu_at(dx, r * columns), dy->dtype, gd_cpu_at(dy, image * columns),
                  1.0f / (float)positions, columns);
      for (int64_t done = 1, more; r + done < stop; done += more) {
        more = done < most ? done : most;
        more = more < stop - r - done ? more : stop - r - done;
        memcpy(gd_cpu_at(dx, (r + done) * columns), gd_cpu_at(dx, r * columns),
               (size_t)more * row_bytes);
      }
    }
  }
}
