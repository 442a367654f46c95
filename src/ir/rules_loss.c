/*
 * What losses mean: shape and gradient rules of cross-entropy, with labels or with targets of all
 * classes, with logits and fused with their GEMM.
 */
#include "ir/rules_int.h"

/* --- shapes -------------------------------------------------------------------------------- */

/* labels have the dims of logits without the vocabulary. */
static bool labels_fit(const struct gd_tensor *logits, const struct gd_tensor *labels) {
  if (logits->rank < 1 || labels->rank + 1 != logits->rank || labels->dtype != GD_DTYPE_I32)
    return false;
  for (uint32_t i = 0; i < labels->rank; i++)
    if (labels->dims[i] != logits->dims[i])
      return false;
  return true;
}

enum gd_status gd_shape_xent(const struct gd_rule *r) {
  const struct gd_tensor *logits = input(r, 0), *labels = input(r, 1);
  if (!is_float(logits) || !labels_fit(logits, labels) || !is_vector(input(r, 2), 1))
    return gd_rule_wrong(r, "wants logits[...,V], labels[...], weight[1]");
  if (r->attr->xent.shift && labels->rank < 1)
    return gd_rule_wrong(r, "a shift needs a sequence dim");
  output(r, GD_DTYPE_F32, 1, (int64_t[]){1});
  output(r, GD_DTYPE_F32, labels->rank, labels->dims);
  return GD_OK;
}

enum gd_status gd_shape_linear_xent(const struct gd_rule *r) {
  const struct gd_tensor *x = input(r, 0), *w = input(r, 1), *labels = input(r, 2);
  int64_t rows = 1;
  for (uint32_t i = 0; i + 1 < x->rank; i++)
    rows *= x->dims[i];
  if (x->rank < 1 || w->rank != 2 || !is_float(x) || w->dtype != x->dtype ||
      last_dim(w) != last_dim(x) || labels->dtype != GD_DTYPE_I32 || elements(labels) != rows ||
      !is_vector(input(r, 3), 1) || !is_vector(input(r, 4), 2))
    return gd_rule_wrong(r, "wants x[...,C], w[V,C], labels[...], weight[1], loss scale[2]");
  if (r->n_in > 5 && !is_vector(input(r, 5), w->dims[0]))
    return gd_rule_wrong(r, "the bias is not fp32[V]");
  if (r->attr->xent.shift && labels->rank < 1)
    return gd_rule_wrong(r, "a shift needs a sequence dim");
  output(r, GD_DTYPE_F32, 1, (int64_t[]){1});
  output(r, GD_DTYPE_F32, labels->rank, labels->dims);
  output_like(r, 0);
  output(r, GD_DTYPE_F32, 2, w->dims);
  if (r->n_in > 5)
    output(r, GD_DTYPE_F32, 1, w->dims);
  return GD_OK;
}

enum gd_status gd_shape_xent_grad(const struct gd_rule *r) {
  if (!is_float(input(r, 0)) || !labels_fit(input(r, 0), input(r, 2)) ||
      !same_dims(input(r, 1), input(r, 2)) || input(r, 1)->dtype != GD_DTYPE_F32 ||
      !is_vector(input(r, 3), 1) || !is_vector(input(r, 4), 2))
    return gd_rule_wrong(r, "wants logits, logsumexp, labels, weight[1], loss scale[2]");
  output_like(r, 0);
  return GD_OK;
}

/* targets have the dims of logits, in fp32. */
static bool targets_fit(const struct gd_tensor *logits, const struct gd_tensor *targets) {
  return is_float(logits) && logits->rank >= 1 && targets->dtype == GD_DTYPE_F32 &&
         same_dims(logits, targets);
}

enum gd_status gd_shape_soft_xent(const struct gd_rule *r) {
  const struct gd_tensor *logits = input(r, 0);
  if (!targets_fit(logits, input(r, 1)) || !is_vector(input(r, 2), 1))
    return gd_rule_wrong(r, "wants logits[...,V], targets[...,V] in fp32, weight[1]");
  output(r, GD_DTYPE_F32, 1, (int64_t[]){1});
  output(r, GD_DTYPE_F32, logits->rank - 1, logits->dims);
  output(r, GD_DTYPE_F32, 1, (int64_t[]){1});
  return GD_OK;
}

enum gd_status gd_shape_soft_xent_grad(const struct gd_rule *r) {
  const struct gd_tensor *logits = input(r, 0), *lse = input(r, 1);
  bool fits = targets_fit(logits, input(r, 2)) && lse->rank + 1 == logits->rank &&
              lse->dtype == GD_DTYPE_F32;
  for (uint32_t i = 0; fits && i < lse->rank; i++)
    fits = lse->dims[i] == logits->dims[i];
  if (!fits || !is_vector(input(r, 3), 1) || !is_vector(input(r, 4), 2))
    return gd_rule_wrong(r, "wants logits, logsumexp, targets, weight[1], loss scale[2]");
  output_like(r, 0);
  return GD_OK;
}

/* --- gradients ----------------------------------------------------------------------------- */

/* The seed is 1, times the loss scale that the update program divides out again. */
static enum gd_status grad_loss(struct gd_diff *d, const struct gd_op *op, enum gd_op_kind kind,
                                struct gd_error *err) {
  if (op->out[0] != d->graph->loss)
    return unsupported(op, "it is not the loss", err);
  gd_diff_contribute(d, op->in[0],
                     gd_graph_op(d->graph, kind, &op->attr, 5,
                                 (gd_tensor_id[]){op->in[0], op->out[1], op->in[1], op->in[2],
                                                  d->graph->loss_scale}));
  return GD_OK;
}

enum gd_status gd_grad_xent(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  return grad_loss(d, op, GD_OP_xent_grad, err);
}

enum gd_status gd_grad_soft_xent(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  return grad_loss(d, op, GD_OP_soft_xent_grad, err);
}

/* The op computed its own gradients, with the seed of grad_xent. */
enum gd_status gd_grad_linear_xent(struct gd_diff *d, const struct gd_op *op,
                                   struct gd_error *err) {
  if (op->out[0] != d->graph->loss || op->in[4] != d->graph->loss_scale)
    return unsupported(op, "it is not the loss", err);
  gd_diff_contribute(d, op->in[0], op->out[2]);
  gd_diff_contribute(d, op->in[1], op->out[3]);
  if (op->n_in > 5)
    gd_diff_contribute(d, op->in[5], op->out[4]);
  return GD_OK;
}
