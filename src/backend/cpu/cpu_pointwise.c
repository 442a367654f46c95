/*
 * Kernels of the cpu backend that treat every element (or pair of elements) alone: add,
 * activations, rotary embedding. One thread owns a range of elements or rows; which one does not
 * matter.
 */
#include "backend/cpu/cpu_int.h"

/* y = a + b over n elements, shared out to threads. Bytes: a, b and y once each. */
static void add_elements(const struct gd_kernel_args *args, const struct gd_view *y,
                         const struct gd_view *a, const struct gd_view *b) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  int threads = gd_cpu_threads(args, 8 * a->elements);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(a->elements, GD_CPU_LINE_ELEMENTS, part, threads);
    rows->add(a->dtype, gd_cpu_at(y, range.begin), gd_cpu_at(a, range.begin), b->dtype,
              gd_cpu_at(b, range.begin), range.end - range.begin);
  }
}

/* The same with b repeated: one row of a is as long as all of b, which stays in cache. */
static void add_repeated(const struct gd_kernel_args *args, const struct gd_view *y,
                         const struct gd_view *a, const struct gd_view *b) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  int64_t count = a->elements / b->elements;
  int threads = gd_cpu_threads(args, 8 * a->elements);
#pragma omp parallel for num_threads(threads)
  for (int64_t r = 0; r < count; r++) {
    int64_t at = r * b->elements;
    rows->add(a->dtype, gd_cpu_at(y, at), gd_cpu_at(a, at), b->dtype, b->data, b->elements);
  }
}

void gd_cpu_add(const struct gd_kernel_args *args) {
  const struct gd_view *a = &args->in[0], *b = &args->in[1], *y = &args->out[0];
  if (a->elements == b->elements)
    add_elements(args, y, a, b);
  else if (a->elements > 0)
    add_repeated(args, y, a, b);
}

void gd_cpu_accumulate(const struct gd_kernel_args *args) {
  add_elements(args, &args->out[0], &args->in[0], &args->in[1]);
}

/* Bytes: x and y once each; about 30 instructions a vector for gelu, which bound it in cache. */
void gd_cpu_activate(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *x = &args->in[0], *y = &args->out[0];
  int threads = gd_cpu_threads(args, 8 * x->elements);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(x->elements, GD_CPU_LINE_ELEMENTS, part, threads);
    rows->activate(args->attr->activate.function, x->dtype, gd_cpu_at(y, range.begin),
                   gd_cpu_at(x, range.begin), range.end - range.begin);
  }
}

void gd_cpu_activate_grad(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *x = &args->in[0], *dy = &args->in[1], *dx = &args->out[0];
  int threads = gd_cpu_threads(args, 8 * x->elements);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(x->elements, GD_CPU_LINE_ELEMENTS, part, threads);
    rows->activate_grad(args->attr->activate.function, x->dtype, gd_cpu_at(dx, range.begin),
                        gd_cpu_at(x, range.begin), gd_cpu_at(dy, range.begin),
                        range.end - range.begin);
  }
}

/* x[..., T, D] with table[T, R]: one thread owns a range of rows. Bytes: x and y once each. */
void gd_cpu_rope(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *x = &args->in[0], *table = &args->in[1];
  struct gd_cpu_rope rope = {
      .dtype = x->dtype,
      .columns = gd_cpu_columns(x),
      .rotary = args->attr->rope.rotary,
      .positions = x->dims[x->rank - 2],
      .inverse = args->attr->rope.inverse,
      .table = table->data,
      .x = x->data,
      .y = args->out[0].data,
  };
  int64_t count = gd_cpu_row_count(x);
  int threads = gd_cpu_threads(args, 4 * x->elements);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(count, 1, part, threads);
    rows->rope(&rope, range.begin, range.end);
  }
}
