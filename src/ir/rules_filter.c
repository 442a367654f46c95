/*
 * What filters mean: shape and gradient rules of depthwise and causal convolutions, and of pooling.
 */
#include "ir/rules_int.h"

/* --- shapes -------------------------------------------------------------------------------- */

enum gd_status gd_shape_pool(const struct gd_rule *r) {
  const struct gd_tensor *x = input(r, 0);
  if (x->rank != 3 || !is_float(x) || x->dims[1] < 1)
    return gd_rule_wrong(r, "wants x[B,S,C]");
  output(r, x->dtype, 2, (int64_t[]){x->dims[0], x->dims[2]});
  return GD_OK;
}

enum gd_status gd_shape_pool_grad(const struct gd_rule *r) {
  const struct gd_tensor *dy = input(r, 0);
  if (dy->rank != 2 || !is_float(dy))
    return gd_rule_wrong(r, "wants dy[B,C]");
  output(r, dy->dtype, 3, (int64_t[]){dy->dims[0], r->attr->rows.rows, dy->dims[1]});
  return GD_OK;
}

/* A filter per channel: fp32 [C,1,K] or [C,1,K,K]. */
static bool is_filter(const struct gd_tensor *w, uint32_t rank, int64_t channels) {
  return w->rank == rank && w->dtype == GD_DTYPE_F32 && w->dims[0] == channels && w->dims[1] == 1 &&
         w->dims[2] >= 1 && (rank == 3 || (w->dims[3] == w->dims[2] && w->dims[2] % 2 == 1));
}

static enum gd_status filter_forward(const struct gd_rule *r, uint32_t rank) {
  const struct gd_tensor *x = input(r, 0);
  if (x->rank != rank || !is_float(x) || !is_filter(input(r, 1), rank, last_dim(x)))
    return gd_rule_wrong(r, "the filter does not belong to the channels");
  if (r->n_in > 2 && !is_vector(input(r, 2), last_dim(x)))
    return gd_rule_wrong(r, "the bias is not fp32[C]");
  output_like(r, 0);
  return GD_OK;
}

static enum gd_status filter_dw(const struct gd_rule *r, uint32_t rank) {
  const struct gd_tensor *dy = input(r, 0);
  int64_t k = r->attr->rows.rows;
  if (dy->rank != rank || !same_dims(dy, input(r, 1)))
    return gd_rule_wrong(r, "dy does not belong to x");
  output(r, GD_DTYPE_F32, rank, (int64_t[]){last_dim(dy), 1, k, k});
  output(r, GD_DTYPE_F32, 1, &dy->dims[dy->rank - 1]);
  return GD_OK;
}

enum gd_status gd_shape_depthwise(const struct gd_rule *r) {
  return filter_forward(r, 4);
}

enum gd_status gd_shape_depthwise_dx(const struct gd_rule *r) {
  return filter_forward(r, 4);
}

enum gd_status gd_shape_depthwise_dw(const struct gd_rule *r) {
  return filter_dw(r, 4);
}

enum gd_status gd_shape_conv1d(const struct gd_rule *r) {
  return filter_forward(r, 3);
}

enum gd_status gd_shape_conv1d_dx(const struct gd_rule *r) {
  return filter_forward(r, 3);
}

enum gd_status gd_shape_conv1d_dw(const struct gd_rule *r) {
  return filter_dw(r, 3);
}

/* --- gradients ----------------------------------------------------------------------------- */

enum gd_status gd_grad_pool(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  union gd_attr attr = {.rows = {d->graph->tensors[op->in[0]].dims[1]}};
  gd_tensor_id dy = grad_of_output(d, op, 0);
  (void)err;
  gd_diff_contribute(d, op->in[0], gd_graph_op(d->graph, GD_OP_pool_grad, &attr, 1, &dy));
  return GD_OK;
}

/* depthwise and conv1d: the same three gradients with other kernels. */
static enum gd_status filter_gradients(struct gd_diff *d, const struct gd_op *op,
                                       enum gd_op_kind kind_dx, enum gd_op_kind kind_dw,
                                       struct gd_error *err) {
  gd_tensor_id dy = grad_of_output(d, op, 0);
  union gd_attr attr = {.rows = {d->graph->tensors[op->in[1]].dims[2]}};
  gd_tensor_id dw = gd_graph_op(d->graph, kind_dw, &attr, 2, (gd_tensor_id[]){dy, op->in[0]});
  if (dw == GD_NONE)
    return gd_graph_check(d->graph, err);
  gd_diff_contribute(d, op->in[1], dw);
  gd_diff_contribute(d, op->in[2], dw + 1);
  if (wants(d, op->in[0]))
    gd_diff_contribute(d, op->in[0],
                       gd_graph_op(d->graph, kind_dx, NULL, 2, (gd_tensor_id[]){dy, op->in[1]}));
  return GD_OK;
}

enum gd_status gd_grad_depthwise(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  return filter_gradients(d, op, GD_OP_depthwise_dx, GD_OP_depthwise_dw, err);
}

enum gd_status gd_grad_conv1d(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  return filter_gradients(d, op, GD_OP_conv1d_dx, GD_OP_conv1d_dw, err);
}
