/*
 * The ref kernel of linear_xent: the loss of logits that are never stored, with its gradients. A
 * logit is recomputed wherever it is needed, and rounded to the dtype of x each time, as the
 * unfused ops round what they store.
 *
 * Letters: R rows, C columns, V vocabulary.
 */
#include <math.h>

#include "backend/ref/ref_int.h"

enum { BLOCK = 256 }; /* columns of a gradient summed at a time */

static double rounded(enum gd_dtype dtype, double value) {
  float stored = 0;
  gd_dtype_store(dtype, &stored, 0, (float)value);
  return (double)gd_dtype_load(dtype, &stored, 0);
}

/* sum_c x[r,c] w[v,c] + bias[v]. */
static double logit(const struct gd_kernel_args *args, int64_t r, int64_t v) {
  const struct gd_view *x = &args->in[0], *w = &args->in[1];
  int64_t columns = gd_view_columns(w);
  double sum = 0;
  for (int64_t c = 0; c < columns; c++)
    sum += get(x, r * columns + c) * get(w, v * columns + c);
  return rounded(x->dtype, sum + (args->n_in > 5 ? get(&args->in[5], v) : 0.0));
}

/* (exp(logit - lse_r) - [v = label]) weight loss_scale. */
static double logit_grad(const struct gd_kernel_args *args, int64_t r, int64_t v, int32_t label) {
  double p = exp(logit(args, r, v) - get(&args->out[1], r));
  double scale = get(&args->in[3], 0) * get(&args->in[4], 0);
  return rounded(args->in[0].dtype, (p - (v == label ? 1 : 0)) * scale);
}

/* lse_r = log sum_v exp(logit); 0 in rows that do not count. Returns lse_r - logit of the label. */
static double row_loss(const struct gd_kernel_args *args, int64_t r, int32_t label) {
  int64_t vocabulary = args->in[1].dims[0];
  double max = -HUGE_VAL, sum = 0;
  for (int64_t v = 0; v < vocabulary; v++)
    max = fmax(max, logit(args, r, v));
  for (int64_t v = 0; v < vocabulary; v++)
    sum += exp(logit(args, r, v) - max);
  put(&args->out[1], r, max + log(sum));
  return max + log(sum) - logit(args, r, label);
}

/* dx[r,c] = sum_v g[r,v] w[v,c], for at most BLOCK columns from `at` on. */
static void row_grad(const struct gd_kernel_args *args, int64_t r, int32_t label, int64_t at) {
  const struct gd_view *w = &args->in[1];
  int64_t columns = gd_view_columns(w), count = columns - at < BLOCK ? columns - at : BLOCK;
  double sums[BLOCK] = {0};
  for (int64_t v = 0; v < w->dims[0]; v++) {
    double g = logit_grad(args, r, v, label);
    for (int64_t c = 0; c < count; c++)
      sums[c] += g * get(w, v * columns + at + c);
  }
  for (int64_t c = 0; c < count; c++)
    put(&args->out[2], r * columns + at + c, sums[c]);
}

/* dw[v,c] = sum_r g[r,v] x[r,c], for at most BLOCK columns from `at` on; dbias[v] = sum_r g[r,v].
 */
static void weight_grad(const struct gd_kernel_args *args, int64_t v, int64_t at) {
  const struct gd_attr_xent *attr = &args->attr->xent;
  const struct gd_view *x = &args->in[0], *labels = &args->in[2];
  int64_t columns = gd_view_columns(x), count = columns - at < BLOCK ? columns - at : BLOCK;
  double sums[BLOCK] = {0}, bias = 0;
  for (int64_t r = 0; r < labels->elements; r++) {
    int32_t label = label_of(attr, labels, r);
    if (label == attr->ignore)
      continue;
    double g = logit_grad(args, r, v, label);
    bias += g;
    for (int64_t c = 0; c < count; c++)
      sums[c] += g * get(x, r * columns + at + c);
  }
  for (int64_t c = 0; c < count; c++)
    put_out(args, 3, v * columns + at + c, sums[c]);
  if (args->n_out > 4 && at == 0)
    put_out(args, 4, v, bias);
}

/* loss = weight * sum over the rows that count of lse - logit of the label, and its gradients. */
void gd_ref_linear_xent(const struct gd_kernel_args *args) {
  const struct gd_attr_xent *attr = &args->attr->xent;
  const struct gd_view *labels = &args->in[2];
  int64_t columns = gd_view_columns(&args->in[0]), vocabulary = args->in[1].dims[0];
  double loss = 0;
  for (int64_t r = 0; r < labels->elements; r++) {
    int32_t label = label_of(attr, labels, r);
    if (label != attr->ignore) {
      loss += row_loss(args, r, label);
      for (int64_t at = 0; at < columns; at += BLOCK)
        row_grad(args, r, label, at);
      continue;
    }
    put(&args->out[1], r, 0);
    for (int64_t c = 0; c < columns; c++)
      put(&args->out[2], r * columns + c, 0);
  }
  for (int64_t v = 0; v < vocabulary; v++)
    for (int64_t at = 0; at == 0 || at < columns; at += BLOCK) /* the bias has no columns */
      weight_grad(args, v, at);
  put(&args->out[0], 0, get(&args->in[3], 0) * loss);
}
