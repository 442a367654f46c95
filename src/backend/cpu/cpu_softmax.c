/*
 * Softmax over the last dim and its gradient. One thread owns a row at a time; in the causal case
 * row i reads i + 1 columns only and zeroes the rest.
 *
 * Bytes: the lower triangle read once, the whole output written once. Rows grow in the causal case,
 * so threads take small blocks of them in turn.
 */
#include <omp.h>

#include "backend/cpu/cpu_int.h"
#include "base/status.h"

enum { ROWS_AT_A_TIME = 8 };

struct shape {
  int64_t rows, columns, positions;
  bool causal;
};

static struct shape shape_of(const struct gd_view *x, bool causal) {
  return (struct shape){
      .rows = gd_view_rows(x),
      .columns = gd_view_columns(x),
      .positions = x->rank < 2 ? 1 : x->dims[x->rank - 2],
      .causal = causal,
  };
}

/* Columns of row r that count. */
static int64_t seen_by(const struct shape *shape, int64_t r) {
  int64_t seen = r % shape->positions + 1;
  return shape->causal && seen < shape->columns ? seen : shape->columns;
}

void gd_cpu_softmax(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *x = &args->in[0], *y = &args->out[0];
  struct shape shape = shape_of(x, args->attr->softmax.causal);
  int64_t buffer_floats = gd_cpu_buffer_floats(shape.columns);
  int threads = gd_cpu_threads(args, 8 * x->elements);
  GD_ASSERT(threads * buffer_floats * (int64_t)sizeof(float) <= args->workspace_bytes);
#pragma omp parallel num_threads(threads)
  {
    float *buffer = (float *)args->workspace + omp_get_thread_num() * buffer_floats;
#pragma omp for schedule(static, ROWS_AT_A_TIME)
    for (int64_t r = 0; r < shape.rows; r++)
      rows->softmax(x->dtype, gd_cpu_at(y, r * shape.columns), gd_cpu_at(x, r * shape.columns),
                    seen_by(&shape, r), shape.columns, buffer);
  }
}

void gd_cpu_softmax_grad(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *y = &args->in[0], *dy = &args->in[1], *dx = &args->out[0];
  struct shape shape = shape_of(y, args->attr->softmax.causal);
  int threads = gd_cpu_threads(args, 8 * y->elements);
#pragma omp parallel for num_threads(threads) schedule(static, ROWS_AT_A_TIME)
  for (int64_t r = 0; r < shape.rows; r++) {
    int64_t at = r * shape.columns;
    rows->softmax_grad(y->dtype, gd_cpu_at(dx, at), gd_cpu_at(y, at), gd_cpu_at(dy, at),
                       seen_by(&shape, r), shape.columns);
  }
}
