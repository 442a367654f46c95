/*
 * What ops of GEMMs mean: shape and gradient rules of matmul and attention, and of rope and the
 * splitting of heads around it.
 */
#include "ir/rules_int.h"

/* --- shapes -------------------------------------------------------------------------------- */

enum gd_status gd_shape_matmul(const struct gd_rule *r) {
  const struct gd_tensor *a = input(r, 0), *b = input(r, 1);
  const struct gd_attr_matmul *attr = &r->attr->matmul;
  if (a->rank < 2 || b->rank < 2 || a->dtype != b->dtype || !is_float(a))
    return gd_rule_wrong(r, "wants two matrices of one floating dtype");
  int64_t m = a->dims[a->rank - (attr->trans_a ? 1 : 2)];
  int64_t k = a->dims[a->rank - (attr->trans_a ? 2 : 1)];
  int64_t n = b->dims[b->rank - (attr->trans_b ? 2 : 1)];
  if (b->dims[b->rank - (attr->trans_b ? 1 : 2)] != k)
    return gd_rule_wrong(r, "the contracted dims differ");
  bool flattens = b->rank == 2 && !attr->trans_a; /* leading dims of a are rows */
  if (!flattens) {
    if (a->rank != b->rank)
      return gd_rule_wrong(r, "the batch dims differ");
    for (uint32_t i = 0; i + 2 < a->rank; i++)
      if (a->dims[i] != b->dims[i])
        return gd_rule_wrong(r, "the batch dims differ");
  }
  if (r->n_in > 2 && !is_vector(input(r, 2), n))
    return gd_rule_wrong(r, "the bias is not fp32[n]");
  enum gd_dtype dtype = attr->out_dtype == GD_DTYPE_COUNT ? a->dtype : attr->out_dtype;
  struct gd_shape *out = output(r, dtype, a->rank, a->dims);
  out->dims[a->rank - 2] = m;
  out->dims[a->rank - 1] = n;
  return GD_OK;
}

enum gd_status gd_shape_rope(const struct gd_rule *r) {
  const struct gd_tensor *x = input(r, 0), *table = input(r, 1);
  int64_t rotary = r->attr->rope.rotary;
  if (x->rank < 2 || !is_float(x) || rotary < 0 || rotary % 2 || rotary > last_dim(x))
    return gd_rule_wrong(r, "the rotary size is odd or exceeds the head");
  if (table->rank != 2 || table->dtype != GD_DTYPE_F32 || table->dims[0] != x->dims[x->rank - 2] ||
      table->dims[1] != rotary)
    return gd_rule_wrong(r, "the table is not fp32[T,R]");
  output_like(r, 0);
  return GD_OK;
}

/* The table, behind so many other inputs where something is rotated, is that of T and the heads. */
static bool rotation_fits(const struct gd_rule *r, uint32_t others, int64_t positions,
                          int64_t head) {
  const struct gd_attr_heads *a = &r->attr->heads;
  if (a->rotated >> a->parts || r->n_in != others + (a->rotated != 0))
    return false;
  if (!a->rotated)
    return true;
  const struct gd_tensor *table = input(r, others);
  return a->rotary >= 0 && a->rotary % 2 == 0 && a->rotary <= head && table->rank == 2 &&
         table->dtype == GD_DTYPE_F32 && table->dims[0] == positions && table->dims[1] == a->rotary;
}

enum gd_status gd_shape_split_heads(const struct gd_rule *r) {
  const struct gd_attr_heads *a = &r->attr->heads;
  const struct gd_tensor *x = input(r, 0);
  if (a->parts < 1 || a->parts > GD_HEADS_PARTS || a->heads < 1 || x->rank != 3 || !is_float(x) ||
      x->dims[2] % (a->heads * a->parts))
    return gd_rule_wrong(r, "wants x[B,T,C] whose columns divide into parts and heads");
  int64_t head = x->dims[2] / (a->heads * a->parts);
  if (!rotation_fits(r, 1, x->dims[1], head))
    return gd_rule_wrong(r, "the parts to rotate do not exist, or the table is not fp32[T,R]");
  for (uint32_t i = 0; i < a->parts; i++)
    output(r, x->dtype, 4, (int64_t[]){x->dims[0], a->heads, x->dims[1], head});
  return GD_OK;
}

enum gd_status gd_shape_merge_heads(const struct gd_rule *r) {
  const struct gd_attr_heads *a = &r->attr->heads;
  const struct gd_tensor *first = input(r, 0);
  if (a->parts < 1 || a->parts > GD_HEADS_PARTS || r->n_in < a->parts || first->rank != 4 ||
      !is_float(first) || first->dims[1] != a->heads || a->heads < 1)
    return gd_rule_wrong(r, "wants parts[B,N,T,D] of as many heads as the attribute has");
  for (uint32_t i = 1; i < a->parts; i++)
    if (!same_dims(first, input(r, i)) || first->dtype != input(r, i)->dtype)
      return gd_rule_wrong(r, "the parts differ");
  if (!rotation_fits(r, a->parts, first->dims[2], first->dims[3]))
    return gd_rule_wrong(r, "the parts to rotate do not exist, or the table is not fp32[T,R]");
  output(r, first->dtype, 3,
         (int64_t[]){first->dims[0], first->dims[2], a->parts * a->heads * first->dims[3]});
  return GD_OK;
}

/* q, k, v as inputs first, first + 1, first + 2, and the seed as input `seed`. */
static bool attention_fits(const struct gd_rule *r, uint32_t first, uint32_t seed_at) {
  const struct gd_tensor *q = input(r, first), *k = input(r, first + 1), *v = input(r, first + 2);
  float probability = r->attr->attention.probability;
  if (q->rank != 4 || k->rank != 4 || !same_dims(k, v) || !is_float(q) || q->dtype != k->dtype ||
      q->dtype != v->dtype || q->dims[0] != k->dims[0] || q->dims[2] != k->dims[2] ||
      q->dims[3] != k->dims[3] || k->dims[1] < 1 || q->dims[1] % k->dims[1])
    return false;
  if (!(probability >= 0 && probability < 1) || (probability > 0) != (r->n_in > seed_at))
    return false;
  return probability == 0 || (input(r, seed_at)->rank == 1 && input(r, seed_at)->dims[0] == 3 &&
                              input(r, seed_at)->dtype == GD_DTYPE_I32);
}

enum gd_status gd_shape_attention(const struct gd_rule *r) {
  if (!attention_fits(r, 0, 3))
    return gd_rule_wrong(
        r, "wants q[B,N,T,D], k and v[B,M,T,D] with M dividing N, seed[3] for dropout");
  output_like(r, 0);
  output(r, GD_DTYPE_F32, 3, input(r, 0)->dims);
  return GD_OK;
}

enum gd_status gd_shape_attention_grad(const struct gd_rule *r) {
  const struct gd_tensor *dout = input(r, 0), *q = input(r, 1), *out = input(r, 4);
  const struct gd_tensor *lse = input(r, 5);
  if (!attention_fits(r, 1, 6) || !same_dims(dout, q) || !same_dims(out, q) ||
      dout->dtype != q->dtype || out->dtype != q->dtype || lse->dtype != GD_DTYPE_F32 ||
      lse->rank != 3 || elements(lse) * last_dim(q) != elements(q))
    return gd_rule_wrong(r, "the inputs do not belong to one attention");
  for (uint32_t i = 1; i <= 3; i++)
    output_like(r, i);
  return GD_OK;
}

/* --- gradients ----------------------------------------------------------------------------- */

static gd_tensor_id flatten(struct gd_graph *graph, gd_tensor_id x) {
  const struct gd_tensor *t = &graph->tensors[x];
  int64_t columns = t->dims[t->rank - 1], rows = 1;
  for (uint32_t i = 0; i + 1 < t->rank; i++)
    rows *= t->dims[i];
  return t->rank == 2 ? x : gd_reshape(graph, x, 2, (int64_t[]){rows, columns});
}

enum gd_status gd_grad_matmul(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  struct gd_graph *graph = d->graph;
  const bool ta = op->attr.matmul.trans_a, tb = op->attr.matmul.trans_b;
  gd_tensor_id a = op->in[0], b = op->in[1], dc = grad_of_output(d, op, 0);
  bool flattened = graph->tensors[b].rank == 2 && graph->tensors[a].rank > 2;
  /* Weight gradients are fp32, whatever the compute dtype; others follow their operands. */
  struct gd_attr_matmul attr_a = {.alpha = op->attr.matmul.alpha,
                                  .out_dtype = is_weight(d, a) ? GD_DTYPE_F32 : GD_DTYPE_COUNT};
  struct gd_attr_matmul attr_b = {.alpha = op->attr.matmul.alpha,
                                  .out_dtype = is_weight(d, b) ? GD_DTYPE_F32 : GD_DTYPE_COUNT};
  (void)err;
  if (graph->tensors[dc].dtype != graph->tensors[a].dtype) /* a GEMM with an fp32 output */
    dc = gd_cast(graph, dc, graph->tensors[a].dtype);

  if (wants(d, b)) { /* first: dc and a may then die in the GEMM that makes da */
    gd_tensor_id a2 = flattened ? flatten(graph, a) : a, dc2 = flattened ? flatten(graph, dc) : dc;
    attr_b.trans_a = tb ? true : !ta;
    attr_b.trans_b = tb ? ta : false;
    gd_diff_contribute(d, b, gd_matmul(graph, tb ? dc2 : a2, tb ? a2 : dc2, GD_NONE, attr_b));
  }
  if (op->n_in > 2 && wants(d, op->in[2]))
    gd_diff_contribute(d, op->in[2],
                       gd_graph_op(graph, GD_OP_sum_rows, &(union gd_attr){.rows = {1}}, 1, &dc));
  if (wants(d, a)) {
    attr_a.trans_a = ta ? tb : false;
    attr_a.trans_b = ta ? true : !tb;
    gd_diff_contribute(d, a, gd_matmul(graph, ta ? b : dc, ta ? dc : b, GD_NONE, attr_a));
  }
  return GD_OK;
}

enum gd_status gd_grad_rope(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  union gd_attr attr = op->attr;
  (void)err;
  attr.rope.inverse = !attr.rope.inverse;
  gd_diff_contribute(d, op->in[0],
                     gd_graph_op(d->graph, GD_OP_rope, &attr, 2,
                                 (gd_tensor_id[]){grad_of_output(d, op, 0), op->in[1]}));
  return GD_OK;
}

enum gd_status gd_grad_split_heads(struct gd_diff *d, const struct gd_op *op,
                                   struct gd_error *err) {
  gd_tensor_id parts[GD_HEADS_PARTS];
  struct gd_attr_heads attr = op->attr.heads;
  attr.inverse = !attr.inverse;
  for (uint32_t i = 0; i < op->n_out; i++) {
    parts[i] = grad_of_output(d, op, i);
    if (parts[i] == GD_NONE)
      return unsupported(op, "a part is not used", err);
  }
  gd_diff_contribute(d, op->in[0],
                     gd_merge_heads(d->graph, parts, attr.rotated ? op->in[1] : GD_NONE, attr));
  return GD_OK;
}

enum gd_status gd_grad_merge_heads(struct gd_diff *d, const struct gd_op *op,
                                   struct gd_error *err) {
  struct gd_attr_heads attr = op->attr.heads;
  attr.inverse = !attr.inverse;
  gd_tensor_id first = gd_split_heads(d->graph, grad_of_output(d, op, 0),
                                      attr.rotated ? op->in[attr.parts] : GD_NONE, attr);
  if (first == GD_NONE)
    return gd_graph_check(d->graph, err);
  for (uint32_t i = 0; i < attr.parts; i++)
    gd_diff_contribute(d, op->in[i], first + i);
  return GD_OK;
}

enum gd_status gd_grad_attention(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id in[7] = {
      grad_of_output(d, op, 0), op->in[0], op->in[1], op->in[2], op->out[0], op->out[1], GD_NONE};
  if (op->n_in > 3)
    in[6] = op->in[3];
  gd_tensor_id dq = gd_graph_op(d->graph, GD_OP_attention_grad, &op->attr, 3 + op->n_in, in);
  if (dq == GD_NONE)
    return gd_graph_check(d->graph, err);
  for (uint32_t i = 0; i < 3; i++)
    gd_diff_contribute(d, op->in[i], dq + i);
  return GD_OK;
}
