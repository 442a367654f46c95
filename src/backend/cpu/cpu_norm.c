/*
 * Layer and root-mean-square normalisation, their gradients, and sums over rows. Letters: R rows, C
 * columns.
 *
 * Forward, one thread owns a range of rows. Where rows are summed (gradients of weight and bias,
 * sum_rows) they are cut into at most GD_CPU_CHUNKS chunks by the shape alone; a chunk is summed in
 * fp32 by whoever takes it, and the chunks are added in order, in double.
 */
#include <string.h>

#include "backend/cpu/cpu_int.h"

/* Both norms have x, the weight and perhaps a bias; their last output is 1 / deviation. */
static void normalise(const struct gd_kernel_args *args, bool has_mean,
                      void (*loop)(const struct gd_cpu_norm *norm, int64_t begin, int64_t end)) {
  const struct gd_view *x = &args->in[0];
  struct gd_cpu_norm norm = {
      .dtype = x->dtype,
      .columns = gd_view_columns(x),
      .eps = args->attr->norm.eps,
      .x = x->data,
      .weight = args->in[1].data,
      .bias = gd_cpu_optional(args, 2),
      .y = args->out[0].data,
      .mean = has_mean ? args->out[1].data : NULL,
      .rstd = args->out[args->n_out - 1].data,
  };
  int64_t count = gd_view_rows(x);
  int threads = gd_cpu_threads(args, 4 * x->elements);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(count, 1, part, threads);
    loop(&norm, range.begin, range.end);
  }
}

void gd_cpu_layernorm(const struct gd_kernel_args *args) {
  normalise(args, true, gd_cpu_rows()->layernorm);
}

void gd_cpu_rmsnorm(const struct gd_kernel_args *args) {
  normalise(args, false, gd_cpu_rows()->rmsnorm);
}

void gd_cpu_add_chunks(float *sums, const float *partials, int64_t chunks, int64_t stride,
                       int64_t begin, int64_t end, bool adds) {
  enum { BLOCK = 64 };
  for (int64_t at = begin; at < end; at += BLOCK) {
    int64_t count = end - at < BLOCK ? end - at : BLOCK;
    double total[BLOCK] = {0};
    for (int64_t c = 0; c < chunks; c++)
      for (int64_t j = 0; j < count; j++)
        total[j] += (double)partials[c * stride + at + j];
    for (int64_t j = 0; j < count; j++)
      sums[at + j] = adds ? sums[at + j] + (float)total[j] : (float)total[j];
  }
}

static void clear(float *sums, int64_t count) {
  memset(sums, 0, (size_t)count * sizeof *sums);
}

/* Bytes: dy, x and dx once each; the partial sums of a chunk stay in L1 or L2. */
static void norm_grad(const struct gd_kernel_args *args, const float *mean, float *dbias,
                      void (*loop)(const struct gd_cpu_norm_grad *norm, int64_t begin, int64_t end,
                                   float *dweight, float *dbias)) {
  const struct gd_view *x = &args->in[1];
  int64_t columns = gd_view_columns(x), count = gd_view_rows(x);
  struct gd_cpu_norm_grad norm = {
      .dtype = x->dtype,
      .columns = columns,
      .dy = args->in[0].data,
      .x = x->data,
      .weight = args->in[2].data,
      .mean = mean,
      .rstd = args->in[args->n_in - 1].data,
      .dx = args->out[0].data,
  };
  float *dweight = args->out[1].data;
  float *partials = args->workspace; /* [chunks][2][C]: of the weight, of the bias */
  int64_t chunks = gd_cpu_chunks(count, 2 * columns);
  bool fits = 2 * columns <= GD_CPU_PARTIALS;
  if (chunks == 1 && (!args->adds || !fits)) {
    if (!gd_kernel_adds(args, 1))
      clear(dweight, columns);
    if (dbias && !gd_kernel_adds(args, 2))
      clear(dbias, columns);
    loop(&norm, 0, count, dweight, dbias);
    return;
  }
  int threads = gd_cpu_threads(args, 8 * x->elements);
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(static)
    for (int64_t c = 0; c < chunks; c++) {
      struct gd_cpu_range range = gd_cpu_share(count, 1, c, chunks);
      float *sums = partials + c * 2 * columns;
      clear(sums, 2 * columns);
      loop(&norm, range.begin, range.end, sums, dbias ? sums + columns : NULL);
    }
#pragma omp for schedule(static)
    for (int part = 0; part < threads; part++) {
      struct gd_cpu_range range = gd_cpu_share(columns, 16, part, threads);
      gd_cpu_add_chunks(dweight, partials, chunks, 2 * columns, range.begin, range.end,
                        gd_kernel_adds(args, 1));
      if (dbias)
        gd_cpu_add_chunks(dbias, partials + columns, chunks, 2 * columns, range.begin, range.end,
                          gd_kernel_adds(args, 2));
    }
  }
}

void gd_cpu_layernorm_grad(const struct gd_kernel_args *args) {
  float *dbias = args->attr->norm_grad.has_bias ? args->out[2].data : NULL;
  norm_grad(args, args->in[3].data, dbias, gd_cpu_rows()->layernorm_grad);
}

void gd_cpu_rmsnorm_grad(const struct gd_kernel_args *args) {
  norm_grad(args, NULL, NULL, gd_cpu_rows()->rmsnorm_grad);
}

/* Bytes: x once. A task is one chunk of rows by at most BLOCK columns, whose sums stay in L1. */
void gd_cpu_sum_rows(const struct gd_kernel_args *args) {
  enum { BLOCK = 4096 };
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *x = &args->in[0], *y = &args->out[0];
  int64_t columns = y->elements, count = 1;
  for (uint32_t i = 0; i + y->rank < x->rank; i++)
    count *= x->dims[i];
  int64_t chunks = gd_cpu_chunks(count, columns), blocks = (columns + BLOCK - 1) / BLOCK;
  bool adds = gd_kernel_adds(args, 0);
  float *partials = chunks > 1 ? args->workspace : y->data; /* [chunks][columns] */
  int threads = gd_cpu_threads(args, 4 * x->elements);
#pragma omp parallel num_threads(threads)
  {
#pragma omp for schedule(static)
    for (int64_t task = 0; task < chunks * blocks; task++) {
      int64_t c = task / blocks, at = task % blocks * BLOCK;
      int64_t width = columns - at < BLOCK ? columns - at : BLOCK;
      struct gd_cpu_range range = gd_cpu_share(count, 1, c, chunks);
      float own[BLOCK]; /* where the one chunk is added to y */
      float *sums = adds && chunks == 1 ? own : partials + c * columns + at;
      clear(sums, width);
      rows->sum_rows(x->dtype, sums, gd_cpu_at(x, range.begin * columns + at),
                     range.end - range.begin, columns, width);
      if (sums == own)
        rows->add(GD_DTYPE_F32, partials + at, partials + at, GD_DTYPE_F32, own, width);
    }
#pragma omp for schedule(static)
    for (int part = 0; part < threads; part++) {
      struct gd_cpu_range range = gd_cpu_share(columns, 16, part, threads);
      if (chunks > 1)
        gd_cpu_add_chunks(y->data, partials, chunks, columns, range.begin, range.end, adds);
    }
  }
}
