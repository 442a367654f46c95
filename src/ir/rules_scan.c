/*
 * What the selective scan means, whole and step by step: shape and gradient rules.
 */
#include "ir/rules_int.h"

/* --- shapes -------------------------------------------------------------------------------- */

/* Inputs first .. first + 5 are u, delta, A_log, b, c, d of one scan. */
static bool scan_fits(const struct gd_rule *r, uint32_t first) {
  const struct gd_tensor *u = input(r, first), *a = input(r, first + 2), *b = input(r, first + 3);
  return u->rank == 3 && is_float(u) && same_dims(u, input(r, first + 1)) &&
         is_float(input(r, first + 1)) && a->rank == 2 && a->dtype == GD_DTYPE_F32 &&
         a->dims[0] == u->dims[2] && b->rank == 3 && b->dims[0] == u->dims[0] &&
         b->dims[1] == u->dims[1] && b->dims[2] == a->dims[1] &&
         same_dims(b, input(r, first + 4)) && is_float(b) &&
         b->dtype == input(r, first + 4)->dtype && is_vector(input(r, first + 5), u->dims[2]);
}

enum gd_status gd_shape_scan(const struct gd_rule *r) {
  const struct gd_tensor *u = input(r, 0);
  if (!scan_fits(r, 0))
    return gd_rule_wrong(r, "wants u[B,T,C], delta[B,T,C], A_log[C,S], b[B,T,S], c[B,T,S], d[C]");
  output_like(r, 0);
  int64_t chunks = (u->dims[1] + GD_SCAN_CHUNK - 1) / GD_SCAN_CHUNK;
  output(r, GD_DTYPE_F32, 4, (int64_t[]){u->dims[0], chunks, u->dims[2], input(r, 2)->dims[1]});
  return GD_OK;
}

enum gd_status gd_shape_scan_grad(const struct gd_rule *r) {
  if (!scan_fits(r, 1) || !same_dims(input(r, 0), input(r, 1)))
    return gd_rule_wrong(r, "the inputs do not belong to one scan");
  for (uint32_t i = 1; i <= 6; i++)
    output_like(r, i);
  return GD_OK;
}

/* fp32 [B,T,C,S], what the parts of an unfused scan work on. */
static bool is_states(const struct gd_tensor *t) {
  return t->rank == 4 && t->dtype == GD_DTYPE_F32;
}

/* x is [B,T,dims[last]] of states [B,T,C,S]. */
static bool is_of_states(const struct gd_tensor *x, const struct gd_tensor *states, uint32_t last) {
  return x->rank == 3 && is_float(x) && x->dims[0] == states->dims[0] &&
         x->dims[1] == states->dims[1] && x->dims[2] == states->dims[last];
}

enum gd_status gd_shape_decay(const struct gd_rule *r) {
  const struct gd_tensor *delta = input(r, 0), *a = input(r, 1);
  if (delta->rank != 3 || !is_float(delta) || a->rank != 2 || a->dtype != GD_DTYPE_F32 ||
      a->dims[0] != delta->dims[2])
    return gd_rule_wrong(r, "wants delta[B,T,C], A_log[C,S] in fp32");
  output(r, GD_DTYPE_F32, 4,
         (int64_t[]){delta->dims[0], delta->dims[1], delta->dims[2], a->dims[1]});
  return GD_OK;
}

enum gd_status gd_shape_decay_grad(const struct gd_rule *r) {
  const struct gd_tensor *da = input(r, 0), *a_log = input(r, 3);
  if (!is_states(da) || !is_states(input(r, 1)) || !same_dims(da, input(r, 1)) ||
      !is_of_states(input(r, 2), da, 2) || a_log->rank != 2 || a_log->dtype != GD_DTYPE_F32 ||
      a_log->dims[0] != da->dims[2] || a_log->dims[1] != da->dims[3])
    return gd_rule_wrong(r, "the inputs do not belong to one decay");
  output_like(r, 2);
  output_like(r, 3);
  return GD_OK;
}

enum gd_status gd_shape_outer(const struct gd_rule *r) {
  const struct gd_tensor *x = input(r, 0), *b = input(r, 1);
  if (x->rank != 3 || b->rank != 3 || !is_float(x) || !is_float(b) || x->dims[0] != b->dims[0] ||
      x->dims[1] != b->dims[1])
    return gd_rule_wrong(r, "wants x[B,T,C], b[B,T,S]");
  output(r, GD_DTYPE_F32, 4, (int64_t[]){x->dims[0], x->dims[1], x->dims[2], b->dims[2]});
  return GD_OK;
}

enum gd_status gd_shape_recur(const struct gd_rule *r) {
  if (!is_states(input(r, 0)) || !is_states(input(r, 1)) || !same_dims(input(r, 0), input(r, 1)))
    return gd_rule_wrong(r, "wants a[B,T,C,S] and x[B,T,C,S] in fp32");
  output_like(r, 1);
  return GD_OK;
}

enum gd_status gd_shape_recur_grad(const struct gd_rule *r) {
  for (uint32_t i = 0; i < 3; i++)
    if (!is_states(input(r, i)) || !same_dims(input(r, i), input(r, 0)))
      return gd_rule_wrong(r, "the inputs do not belong to one recur");
  output_like(r, 0);
  output_like(r, 1);
  return GD_OK;
}

/* Input 1 goes along dim `along` of the states; `kept` is left. */
static enum gd_status contract(const struct gd_rule *r, uint32_t along, uint32_t kept) {
  const struct gd_tensor *h = input(r, 0), *x = input(r, 1);
  enum gd_dtype dtype = r->attr->contract.dtype;
  if (!is_states(h) || !is_of_states(x, h, along) || dtype == GD_DTYPE_I32)
    return gd_rule_wrong(r, "wants h[B,T,C,S] in fp32 and a vector along one of its dims");
  output(r, dtype == GD_DTYPE_COUNT ? x->dtype : dtype, 3,
         (int64_t[]){h->dims[0], h->dims[1], h->dims[kept]});
  return GD_OK;
}

enum gd_status gd_shape_contract_states(const struct gd_rule *r) {
  return contract(r, 3, 2);
}

enum gd_status gd_shape_contract_channels(const struct gd_rule *r) {
  return contract(r, 2, 3);
}

/* --- gradients ----------------------------------------------------------------------------- */

enum gd_status gd_grad_scan(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id in[8] = {grad_of_output(d, op, 0)};
  for (uint32_t i = 0; i < 6; i++)
    in[1 + i] = op->in[i];
  in[7] = op->out[1];
  gd_tensor_id first = gd_graph_op(d->graph, GD_OP_scan_grad, NULL, 8, in);
  if (first == GD_NONE)
    return gd_graph_check(d->graph, err);
  for (uint32_t i = 0; i < 6; i++)
    gd_diff_contribute(d, op->in[i], first + i);
  return GD_OK;
}

enum gd_status gd_grad_decay(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id ddelta =
      gd_graph_op(d->graph, GD_OP_decay_grad, NULL, 4,
                  (gd_tensor_id[]){grad_of_output(d, op, 0), op->out[0], op->in[0], op->in[1]});
  if (ddelta == GD_NONE)
    return gd_graph_check(d->graph, err);
  gd_diff_contribute(d, op->in[0], ddelta);
  gd_diff_contribute(d, op->in[1], ddelta + 1);
  return GD_OK;
}

/* Contracts [B,T,C,S] with what lies along one of its dims, in the dtype of `to`. */
static void contribute_contraction(struct gd_diff *d, gd_tensor_id to, enum gd_op_kind kind,
                                   gd_tensor_id states, gd_tensor_id along) {
  union gd_attr attr = {
      .contract = {is_weight(d, to) ? GD_DTYPE_F32 : d->graph->tensors[to].dtype}};
  if (wants(d, to))
    gd_diff_contribute(d, to,
                       gd_graph_op(d->graph, kind, &attr, 2, (gd_tensor_id[]){states, along}));
}

enum gd_status gd_grad_outer(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id dy = grad_of_output(d, op, 0);
  (void)err;
  contribute_contraction(d, op->in[1], GD_OP_contract_channels, dy, op->in[0]);
  contribute_contraction(d, op->in[0], GD_OP_contract_states, dy, op->in[1]);
  return GD_OK;
}

enum gd_status gd_grad_recur(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id dx = gd_graph_op(d->graph, GD_OP_recur_grad, NULL, 3,
                                (gd_tensor_id[]){grad_of_output(d, op, 0), op->in[0], op->out[0]});
  if (dx == GD_NONE)
    return gd_graph_check(d->graph, err);
  gd_diff_contribute(d, op->in[1], dx);
  gd_diff_contribute(d, op->in[0], dx + 1);
  return GD_OK;
}

enum gd_status gd_grad_contract_states(struct gd_diff *d, const struct gd_op *op,
                                       struct gd_error *err) {
  gd_tensor_id dy = grad_of_output(d, op, 0);
  (void)err;
  contribute_contraction(d, op->in[1], GD_OP_contract_channels, op->in[0], dy);
  if (wants(d, op->in[0]))
    gd_diff_contribute(d, op->in[0], gd_outer(d->graph, dy, op->in[1]));
  return GD_OK;
}
