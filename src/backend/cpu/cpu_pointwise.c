/*
 * Kernels of the cpu backend that treat every element (or pair of elements) alone: add, mul,
 * dropout, activations, rotary embedding. One thread owns a range of elements or rows; which one
 * does not matter.
 */
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "base/rng.h"

/* The add or the mul of struct gd_cpu_rows. */
typedef void combine_loop(enum gd_dtype dtype, void *y, const void *a, enum gd_dtype dtype_b,
                          const void *b, int64_t n);

/* y = a op b over n elements, shared out to threads. Bytes: a, b and y once each. */
static void combine_elements(const struct gd_kernel_args *args, combine_loop *combine,
                             const struct gd_view *y, const struct gd_view *a,
                             const struct gd_view *b) {
  int threads = gd_cpu_threads(args, 8 * a->elements);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(a->elements, GD_CPU_LINE_ELEMENTS, part, threads);
    combine(a->dtype, gd_cpu_at(y, range.begin), gd_cpu_at(a, range.begin), b->dtype,
            gd_cpu_at(b, range.begin), range.end - range.begin);
  }
}

/* The same with b repeated: one row of a is as long as all of b, which stays in cache. */
static void combine_repeated(const struct gd_kernel_args *args, combine_loop *combine,
                             const struct gd_view *y, const struct gd_view *a,
                             const struct gd_view *b) {
  int64_t count = a->elements / b->elements;
  int threads = gd_cpu_threads(args, 8 * a->elements);
#pragma omp parallel for num_threads(threads)
  for (int64_t r = 0; r < count; r++) {
    int64_t at = r * b->elements;
    combine(a->dtype, gd_cpu_at(y, at), gd_cpu_at(a, at), b->dtype, b->data, b->elements);
  }
}

static void combine(const struct gd_kernel_args *args, combine_loop *loop) {
  const struct gd_view *a = &args->in[0], *b = &args->in[1], *y = &args->out[0];
  if (a->elements == b->elements)
    combine_elements(args, loop, y, a, b);
  else if (a->elements > 0)
    combine_repeated(args, loop, y, a, b);
}

void gd_cpu_add(const struct gd_kernel_args *args) {
  combine(args, gd_cpu_rows()->add);
}

void gd_cpu_mul(const struct gd_kernel_args *args) {
  combine(args, gd_cpu_rows()->mul);
}

void gd_cpu_accumulate(const struct gd_kernel_args *args) {
  combine_elements(args, gd_cpu_rows()->add, &args->out[0], &args->in[0], &args->in[1]);
}

/* One draw for each sample: zeros, or x scaled. Bytes: x, where it is kept, and y once each. */
static void drop_samples(const struct gd_kernel_args *args, const struct gd_cpu_dropout *d) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *x = &args->in[0], *y = &args->out[0];
  int64_t sample = x->dims[0] ? x->elements / x->dims[0] : 0;
  sample = sample > 0 ? sample : 1; /* 0: no elements */
  int threads = gd_cpu_threads(args, x->elements);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(x->elements, GD_CPU_LINE_ELEMENTS, part, threads);
    for (int64_t i = range.begin, end; i < range.end; i = end) {
      int64_t number = i / sample;
      end = (number + 1) * sample < range.end ? (number + 1) * sample : range.end;
      if (gd_rng_dropout(d->seed, d->stream, d->first + (uint64_t)number) >= d->threshold)
        rows->scale(y->dtype, gd_cpu_at(y, i), x->dtype, gd_cpu_at(x, i), d->scale, end - i);
      else
        memset(gd_cpu_at(y, i), 0, (size_t)((end - i) * gd_dtype_bytes(y->dtype)));
    }
  }
}

/*
 * The rule of the random numbers is that of gd_ref_dropout. Bytes: x and y once each; the seven
 * rounds of Philox are about 13 instructions a vector of elements, which bound it in cache.
 */
void gd_cpu_dropout(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_attr_dropout *attr = &args->attr->dropout;
  const struct gd_view *x = &args->in[0];
  const int32_t *seed = args->in[1].data; /* of the run, step, first sample */
  int64_t sample = x->dims[0] ? x->elements / x->dims[0] : 0;
  struct gd_cpu_dropout dropout = {
      .dtype = x->dtype,
      .seed = (uint32_t)seed[0],
      .stream = (uint64_t)attr->stream << 32 | (uint32_t)seed[1],
      .first = (uint64_t)seed[2] * (uint64_t)(attr->per_sample ? 1 : sample),
      .threshold = gd_rng_dropout_threshold((double)attr->probability),
      .scale = (float)gd_rng_dropout_scale((double)attr->probability),
      .x = x->data,
      .y = args->out[0].data,
  };
  if (attr->per_sample) {
    drop_samples(args, &dropout);
    return;
  }
  int threads = gd_cpu_threads(args, 8 * x->elements);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(x->elements, GD_CPU_LINE_ELEMENTS, part, threads);
    rows->dropout(&dropout, range.begin, range.end);
  }
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
      .columns = gd_view_columns(x),
      .rotary = args->attr->rope.rotary,
      .positions = x->dims[x->rank - 2],
      .x_step = gd_view_columns(x),
      .y_step = gd_view_columns(x),
      .inverse = args->attr->rope.inverse,
      .table = table->data,
      .x = x->data,
      .y = args->out[0].data,
  };
  int64_t count = gd_view_rows(x);
  int threads = gd_cpu_threads(args, 4 * x->elements);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(count, 1, part, threads);
    rows->rope(&rope, range.begin, range.end);
  }
}
