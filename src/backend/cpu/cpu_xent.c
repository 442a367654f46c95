/*
 * Cross-entropy over a vocabulary and its gradient, with labels and with targets of all classes.
 * Letters: V vocabulary.
 *
 * One thread owns a row at a time. Bytes: the logits once, and in the gradient dlogits once. The
 * loss is summed in double over chunks of rows that depend on their number alone.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"

void gd_cpu_xent(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_attr_xent *attr = &args->attr->xent;
  const struct gd_view *logits = &args->in[0], *labels = &args->in[1];
  const float *weight = args->in[2].data;
  float *loss = args->out[0].data, *lse = args->out[1].data;
  int64_t columns = gd_view_columns(logits), count = gd_view_rows(logits);
  int64_t chunks = count < GD_CPU_LOSS_CHUNKS ? count : GD_CPU_LOSS_CHUNKS;
  double *partials = args->workspace;
  int threads = gd_cpu_threads(args, 4 * logits->elements);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t c = 0; c < chunks; c++) {
    struct gd_cpu_range range = gd_cpu_share(count, 1, c, chunks);
    double sum = 0;
    for (int64_t r = range.begin; r < range.end; r++) {
      double row_lse = rows->logsumexp(logits->dtype, gd_cpu_at(logits, r * columns), columns);
      int32_t label = gd_cpu_label(attr, labels, r);
      if (label != attr->ignore)
        sum += row_lse - (double)gd_dtype_load(logits->dtype, logits->data, r * columns + label);
      lse[r] = (float)row_lse;
    }
    partials[c] = sum;
  }
  double total = 0;
  for (int64_t c = 0; c < chunks; c++)
    total += partials[c];
  loss[0] = (float)((double)weight[0] * total);
}

void gd_cpu_xent_grad(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_attr_xent *attr = &args->attr->xent;
  const struct gd_view *logits = &args->in[0], *labels = &args->in[2], *dlogits = &args->out[0];
  const float *lse = args->in[1].data, *weight = args->in[3].data, *loss_scale = args->in[4].data;
  int64_t columns = gd_view_columns(logits), count = gd_view_rows(logits);
  double scale = (double)weight[0] * (double)loss_scale[0];
  int threads = gd_cpu_threads(args, 8 * logits->elements);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < count; r++) {
    int64_t at = r * columns;
    int32_t label = gd_cpu_label(attr, labels, r);
    if (label == attr->ignore) {
      memset(gd_cpu_at(dlogits, at), 0, (size_t)(columns * gd_dtype_bytes(dlogits->dtype)));
      continue;
    }
    /* Read first: dlogits may be the logits. */
    double x = (double)gd_dtype_load(logits->dtype, logits->data, at + label);
    rows->xent_grad(logits->dtype, gd_cpu_at(dlogits, at), gd_cpu_at(logits, at), columns, lse[r],
                    (float)scale);
    gd_dtype_store(dlogits->dtype, dlogits->data, at + label,
                   (float)((exp(x - (double)lse[r]) - 1) * scale));
  }
}

/* What a row adds to the loss, and whether the first of its largest logits is where the first of
   its largest targets is. */
static double soft_row(const struct gd_view *logits, const float *target, int64_t at,
                       int64_t columns, double lse, bool *hit) {
  double sum = 0;
  float top = 0;
  int64_t guess = 0, right = 0;
  for (int64_t j = 0; j < columns; j++) {
    float x = gd_dtype_load(logits->dtype, logits->data, at + j);
    sum += (double)target[j] * (lse - (double)x);
    if (j == 0 || x > top) {
      top = x;
      guess = j;
    }
    right = target[j] > target[right] ? j : right;
  }
  *hit = columns > 0 && !isnan(lse) && guess == right && target[right] > 0;
  return sum;
}

void gd_cpu_soft_xent(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *logits = &args->in[0];
  const float *targets = args->in[1].data, *weight = args->in[2].data;
  float *loss = args->out[0].data, *lse = args->out[1].data, *hits = args->out[2].data;
  int64_t columns = gd_view_columns(logits), count = gd_view_rows(logits), found = 0;
  int64_t chunks = count < GD_CPU_LOSS_CHUNKS ? count : GD_CPU_LOSS_CHUNKS;
  double *partials = args->workspace;
  int threads = gd_cpu_threads(args, 8 * logits->elements);
#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : found)
  for (int64_t c = 0; c < chunks; c++) {
    struct gd_cpu_range range = gd_cpu_share(count, 1, c, chunks);
    double sum = 0;
    for (int64_t r = range.begin; r < range.end; r++) {
      int64_t at = r * columns;
      double row_lse = rows->logsumexp(logits->dtype, gd_cpu_at(logits, at), columns);
      bool hit;
      sum += soft_row(logits, targets + at, at, columns, row_lse, &hit);
      found += hit;
      lse[r] = (float)row_lse;
    }
    partials[c] = sum;
  }
  double total = 0;
  for (int64_t c = 0; c < chunks; c++)
    total += partials[c];
  loss[0] = (float)((double)weight[0] * total);
  hits[0] = (float)found;
}

void gd_cpu_soft_xent_grad(const struct gd_kernel_args *args) {
  const struct gd_view *logits = &args->in[0], *dlogits = &args->out[0];
  const float *lse = args->in[1].data, *targets = args->in[2].data;
  const float *weight = args->in[3].data, *loss_scale = args->in[4].data;
  int64_t columns = gd_view_columns(logits), count = gd_view_rows(logits);
  double scale = (double)weight[0] * (double)loss_scale[0];
  int threads = gd_cpu_threads(args, 8 * logits->elements);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t r = 0; r < count; r++) {
    const float *target = targets + r * columns;
    double sum = 0;
    for (int64_t j = 0; j < columns; j++)
      sum += (double)target[j];
    for (int64_t j = 0; j < columns; j++) {
      int64_t i = r * columns + j;
      double p = exp((double)gd_dtype_load(logits->dtype, logits->data, i) - (double)lse[r]);
      gd_dtype_store(dlogits->dtype, dlogits->data, i,
                     (float)((p * sum - (double)target[j]) * scale));
    }
  }
}
