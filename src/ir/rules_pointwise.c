/*
 * What ops mean that treat elements or rows alone: shape and gradient rules of add, mul, dropout,
 * activations, softmax, norms and sums over rows.
 */
#include "ir/rules_int.h"

/* --- shapes -------------------------------------------------------------------------------- */

enum gd_status gd_shape_add(const struct gd_rule *r) {
  const struct gd_tensor *a = input(r, 0), *b = input(r, 1);
  if (b->rank > a->rank || !is_float(a) || !is_float(b))
    return gd_rule_wrong(r, "b has more dims than a, or is no float");
  for (uint32_t i = 0; i < b->rank; i++)
    if (b->dims[i] != a->dims[a->rank - b->rank + i])
      return gd_rule_wrong(r, "b is not the trailing dims of a");
  output_like(r, 0);
  return GD_OK;
}

enum gd_status gd_shape_layernorm(const struct gd_rule *r) {
  const struct gd_tensor *x = input(r, 0);
  if (x->rank < 1 || !is_float(x) || !is_vector(input(r, 1), last_dim(x)) ||
      (r->n_in > 2 && !is_vector(input(r, 2), last_dim(x))))
    return gd_rule_wrong(r, "weight and bias are not fp32 of the last dim");
  output_like(r, 0);
  output(r, GD_DTYPE_F32, x->rank - 1, x->dims);
  output(r, GD_DTYPE_F32, x->rank - 1, x->dims);
  return GD_OK;
}

enum gd_status gd_shape_dropout(const struct gd_rule *r) {
  const struct gd_tensor *seed = input(r, 1);
  if (!is_float(input(r, 0)) || input(r, 0)->rank < 1 || seed->rank != 1 || seed->dims[0] != 3 ||
      seed->dtype != GD_DTYPE_I32 || !(r->attr->dropout.probability < 1))
    return gd_rule_wrong(r, "wants floats with a sample dim, and seed[3]");
  output_like(r, 0);
  return GD_OK;
}

enum gd_status gd_shape_rmsnorm(const struct gd_rule *r) {
  const struct gd_tensor *x = input(r, 0);
  if (x->rank < 1 || !is_float(x) || !is_vector(input(r, 1), last_dim(x)))
    return gd_rule_wrong(r, "the weight is not fp32 of the last dim");
  output_like(r, 0);
  output(r, GD_DTYPE_F32, x->rank - 1, x->dims);
  return GD_OK;
}

enum gd_status gd_shape_rmsnorm_grad(const struct gd_rule *r) {
  const struct gd_tensor *dy = input(r, 0), *x = input(r, 1);
  if (!same_dims(dy, x) || dy->dtype != x->dtype || !is_vector(input(r, 2), last_dim(x)) ||
      elements(input(r, 3)) * last_dim(x) != elements(x))
    return gd_rule_wrong(r, "the inputs do not belong to one rmsnorm");
  output_like(r, 1);
  output(r, GD_DTYPE_F32, 1, &x->dims[x->rank - 1]);
  return GD_OK;
}

enum gd_status gd_shape_same(const struct gd_rule *r) {
  if (!is_float(input(r, 0)) || input(r, 0)->rank < 1)
    return gd_rule_wrong(r, "wants floats");
  if (r->n_in > 1 &&
      (!same_dims(input(r, 0), input(r, 1)) || input(r, 0)->dtype != input(r, 1)->dtype))
    return gd_rule_wrong(r, "the inputs differ");
  output_like(r, 0);
  return GD_OK;
}

enum gd_status gd_shape_layernorm_grad(const struct gd_rule *r) {
  const struct gd_tensor *dy = input(r, 0), *x = input(r, 1), *mean = input(r, 3);
  if (x->rank < 1 || !is_float(x) || !same_dims(dy, x) || dy->dtype != x->dtype ||
      !is_vector(input(r, 2), last_dim(x)) || elements(mean) * last_dim(x) != elements(x) ||
      mean->dtype != GD_DTYPE_F32 || !same_dims(mean, input(r, 4)) ||
      input(r, 4)->dtype != GD_DTYPE_F32)
    return gd_rule_wrong(r, "the inputs do not belong to one layernorm");
  output_like(r, 1);
  output(r, GD_DTYPE_F32, 1, &x->dims[x->rank - 1]);
  if (r->attr->norm_grad.has_bias)
    output(r, GD_DTYPE_F32, 1, &x->dims[x->rank - 1]);
  return GD_OK;
}

enum gd_status gd_shape_sum_rows(const struct gd_rule *r) {
  const struct gd_tensor *x = input(r, 0);
  int64_t kept = r->attr->rows.rows;
  if (kept < 0 || kept > (int64_t)x->rank || !is_float(x))
    return gd_rule_wrong(r, "keeps more dims than there are");
  output(r, GD_DTYPE_F32, (uint32_t)kept, x->dims + (x->rank - (uint32_t)kept));
  return GD_OK;
}

/* --- gradients ----------------------------------------------------------------------------- */

/* What reaches the second operand of a broadcast: the fp32 sum over the dims that it lacks. */
static gd_tensor_id unbroadcast(struct gd_diff *d, gd_tensor_id grad, const struct gd_op *op) {
  uint32_t kept = d->graph->tensors[op->in[1]].rank;
  if (kept == d->graph->tensors[op->in[0]].rank)
    return grad;
  union gd_attr attr = {.rows = {(int64_t)kept}};
  return gd_graph_op(d->graph, GD_OP_sum_rows, &attr, 1, &grad);
}

enum gd_status gd_grad_add(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id dy = grad_of_output(d, op, 0);
  (void)err;
  gd_diff_contribute(d, op->in[0], dy);
  if (wants(d, op->in[1]))
    gd_diff_contribute(d, op->in[1], unbroadcast(d, dy, op));
  return GD_OK;
}

enum gd_status gd_grad_mul(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id dy = grad_of_output(d, op, 0), a = op->in[0], b = op->in[1];
  (void)err;
  if (wants(d, b))
    gd_diff_contribute(d, b, unbroadcast(d, gd_mul(d->graph, dy, a), op));
  if (wants(d, a))
    gd_diff_contribute(d, a, gd_mul(d->graph, dy, b));
  return GD_OK;
}

/* The same mask and scale, drawn again from the same counters. */
enum gd_status gd_grad_dropout(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  (void)err;
  gd_diff_contribute(d, op->in[0],
                     gd_graph_op(d->graph, GD_OP_dropout, &op->attr, 2,
                                 (gd_tensor_id[]){grad_of_output(d, op, 0), op->in[1]}));
  return GD_OK;
}

enum gd_status gd_grad_rmsnorm(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id dx =
      gd_graph_op(d->graph, GD_OP_rmsnorm_grad, NULL, 4,
                  (gd_tensor_id[]){grad_of_output(d, op, 0), op->in[0], op->in[1], op->out[1]});
  if (dx == GD_NONE)
    return gd_graph_check(d->graph, err);
  gd_diff_contribute(d, op->in[0], dx);
  gd_diff_contribute(d, op->in[1], dx + 1);
  return GD_OK;
}

enum gd_status gd_grad_layernorm(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  union gd_attr attr = {.norm_grad = {.has_bias = op->n_in > 2}};
  gd_tensor_id dx = gd_graph_op(
      d->graph, GD_OP_layernorm_grad, &attr, 5,
      (gd_tensor_id[]){grad_of_output(d, op, 0), op->in[0], op->in[1], op->out[1], op->out[2]});
  if (dx == GD_NONE)
    return gd_graph_check(d->graph, err);
  gd_diff_contribute(d, op->in[0], dx);
  gd_diff_contribute(d, op->in[1], dx + 1);
  if (op->n_in > 2)
    gd_diff_contribute(d, op->in[2], dx + 2);
  return GD_OK;
}

enum gd_status gd_grad_softmax(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  (void)err;
  gd_diff_contribute(d, op->in[0],
                     gd_graph_op(d->graph, GD_OP_softmax_grad, &op->attr, 2,
                                 (gd_tensor_id[]){op->out[0], grad_of_output(d, op, 0)}));
  return GD_OK;
}

enum gd_status gd_grad_activate(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  (void)err;
  gd_diff_contribute(d, op->in[0],
                     gd_graph_op(d->graph, GD_OP_activate_grad, &op->attr, 2,
                                 (gd_tensor_id[]){op->in[0], grad_of_output(d, op, 0)}));
  return GD_OK;
}
