/*
 * What ops mean that move, pick or rename elements: shape and gradient rules of reshape, split,
 * concat, transpose, slice, pad, cast, positions, embed and view.
 */
#include "ir/rules_int.h"

/* --- shapes -------------------------------------------------------------------------------- */

enum gd_status gd_shape_reshape(const struct gd_rule *r) {
  const struct gd_attr_reshape *want = &r->attr->reshape;
  int64_t count = 1;
  for (uint32_t i = 0; i < want->rank; i++)
    count *= want->dims[i];
  if (count != elements(input(r, 0)))
    return gd_rule_wrong(r, "the number of elements changes");
  output(r, input(r, 0)->dtype, want->rank, want->dims)->alias_of = r->in[0];
  return GD_OK;
}

enum gd_status gd_shape_split(const struct gd_rule *r) {
  const struct gd_tensor *x = input(r, 0);
  uint32_t parts = r->attr->split.parts;
  if (x->rank < 1 || parts < 1 || parts > GD_MAX_OUTPUTS || x->dims[0] % parts)
    return gd_rule_wrong(r, "dim 0 does not divide into the parts");
  int64_t part_elements = elements(x) / parts;
  for (uint32_t i = 0; i < parts; i++) {
    struct gd_shape *out = output_like(r, 0);
    out->dims[0] /= parts;
    out->alias_of = r->in[0];
    out->alias_elements = part_elements * (int64_t)i;
  }
  return GD_OK;
}

enum gd_status gd_shape_concat(const struct gd_rule *r) {
  struct gd_shape *out = output_like(r, 0);
  for (uint32_t i = 1; i < r->n_in; i++) {
    const struct gd_tensor *part = input(r, i);
    if (part->rank != out->rank || part->rank < 1 || part->dtype != out->dtype)
      return gd_rule_wrong(r, "parts differ in rank or dtype");
    for (uint32_t d = 1; d < part->rank; d++)
      if (part->dims[d] != out->dims[d])
        return gd_rule_wrong(r, "parts differ past dim 0");
    out->dims[0] += part->dims[0];
  }
  return GD_OK;
}

enum gd_status gd_shape_transpose(const struct gd_rule *r) {
  const struct gd_tensor *x = input(r, 0);
  struct gd_shape *out = output_like(r, 0);
  uint32_t seen = 0;
  for (uint32_t i = 0; i < x->rank; i++) {
    uint8_t from = r->attr->transpose.perm[i];
    if (from >= x->rank || (seen & 1u << from))
      return gd_rule_wrong(r, "perm is no permutation");
    seen |= 1u << from;
    out->dims[i] = x->dims[from];
  }
  return GD_OK;
}

enum gd_status gd_shape_slice(const struct gd_rule *r) {
  const struct gd_attr_slice *a = &r->attr->slice;
  const struct gd_tensor *x = input(r, 0);
  if (a->dim >= x->rank || a->start < 0 || a->length < 0 || a->start > x->dims[a->dim] - a->length)
    return gd_rule_wrong(r, "the slice leaves the dim");
  output_like(r, 0)->dims[a->dim] = a->length;
  return GD_OK;
}

enum gd_status gd_shape_pad(const struct gd_rule *r) {
  const struct gd_attr_slice *a = &r->attr->slice;
  const struct gd_tensor *x = input(r, 0);
  if (a->dim >= x->rank || a->start < 0 || a->start > a->length - x->dims[a->dim])
    return gd_rule_wrong(r, "the input does not fit the padded dim");
  output_like(r, 0)->dims[a->dim] = a->length;
  return GD_OK;
}

enum gd_status gd_shape_cast(const struct gd_rule *r) {
  enum gd_dtype dtype = r->attr->cast.dtype;
  if (!is_float(input(r, 0)) || dtype == GD_DTYPE_I32)
    return gd_rule_wrong(r, "casts between floating dtypes only");
  output_like(r, 0)->dtype = dtype == GD_DTYPE_COUNT ? input(r, 0)->dtype : dtype;
  return GD_OK;
}

enum gd_status gd_shape_positions(const struct gd_rule *r) {
  if (input(r, 0)->rank != 2 || input(r, 0)->dtype != GD_DTYPE_I32)
    return gd_rule_wrong(r, "wants ids[B,T]");
  output_like(r, 0);
  return GD_OK;
}

enum gd_status gd_shape_embed(const struct gd_rule *r) {
  const struct gd_tensor *table = input(r, 0), *ids = input(r, 1);
  int64_t dims[GD_MAX_RANK];
  if (table->rank != 2 || !is_float(table) || ids->dtype != GD_DTYPE_I32 ||
      ids->rank + 1 > GD_MAX_RANK)
    return gd_rule_wrong(r, "wants table[V,C] and integer ids");
  for (uint32_t i = 0; i < ids->rank; i++)
    dims[i] = ids->dims[i];
  dims[ids->rank] = table->dims[1];
  output(r, table->dtype, ids->rank + 1, dims);
  return GD_OK;
}

enum gd_status gd_shape_embed_grad(const struct gd_rule *r) {
  const struct gd_tensor *dy = input(r, 0), *ids = input(r, 1);
  if (dy->rank != ids->rank + 1 || elements(ids) * last_dim(dy) != elements(dy) ||
      ids->dtype != GD_DTYPE_I32 || !is_float(dy))
    return gd_rule_wrong(r, "dy does not belong to the ids");
  output(r, GD_DTYPE_F32, 2, (int64_t[]){r->attr->embed.rows, last_dim(dy)});
  return GD_OK;
}

enum gd_status gd_shape_view(const struct gd_rule *r) {
  const struct gd_attr_view *want = &r->attr->view;
  int64_t count = 1;
  for (uint32_t i = 0; i < want->rank; i++)
    count *= want->dims[i];
  if (want->start < 0 || want->start + count > elements(input(r, 0)))
    return gd_rule_wrong(r, "the view reaches past its input");
  struct gd_shape *out = output(r, input(r, 0)->dtype, want->rank, want->dims);
  out->alias_of = r->in[0];
  out->alias_elements = want->start;
  return GD_OK;
}

/* --- gradients ----------------------------------------------------------------------------- */

enum gd_status gd_grad_reshape(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  const struct gd_tensor *x = &d->graph->tensors[op->in[0]];
  (void)err;
  gd_diff_contribute(d, op->in[0],
                     gd_reshape(d->graph, grad_of_output(d, op, 0), x->rank, x->dims));
  return GD_OK;
}

enum gd_status gd_grad_split(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id parts[16];
  for (uint32_t i = 0; i < op->n_out; i++) {
    parts[i] = grad_of_output(d, op, i);
    if (parts[i] == GD_NONE)
      return unsupported(op, "a part is not used", err);
  }
  gd_diff_contribute(d, op->in[0], gd_concat(d->graph, op->n_out, parts));
  return GD_OK;
}

enum gd_status gd_grad_concat(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  for (uint32_t i = 1; i < op->n_in; i++)
    if (d->graph->tensors[op->in[i]].dims[0] != d->graph->tensors[op->in[0]].dims[0])
      return unsupported(op, "the parts differ in size", err);
  gd_tensor_id first = gd_split(d->graph, grad_of_output(d, op, 0), op->n_in);
  if (first == GD_NONE)
    return gd_graph_check(d->graph, err);
  for (uint32_t i = 0; i < op->n_in; i++) /* the outputs of an op have consecutive ids */
    gd_diff_contribute(d, op->in[i], first + i);
  return GD_OK;
}

enum gd_status gd_grad_transpose(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  uint8_t inverse[GD_MAX_RANK] = {0};
  (void)err;
  for (uint32_t i = 0; i < d->graph->tensors[op->in[0]].rank; i++)
    inverse[op->attr.transpose.perm[i]] = (uint8_t)i;
  gd_diff_contribute(d, op->in[0], gd_transpose(d->graph, grad_of_output(d, op, 0), inverse));
  return GD_OK;
}

enum gd_status gd_grad_embed(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  union gd_attr attr = op->attr;
  (void)err;
  attr.embed.rows = d->graph->tensors[op->in[0]].dims[0];
  gd_diff_contribute(d, op->in[0],
                     gd_graph_op(d->graph, GD_OP_embed_grad, &attr, 2,
                                 (gd_tensor_id[]){grad_of_output(d, op, 0), op->in[1]}));
  return GD_OK;
}

enum gd_status gd_grad_slice(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  const struct gd_attr_slice *a = &op->attr.slice;
  (void)err;
  gd_diff_contribute(d, op->in[0],
                     gd_pad(d->graph, grad_of_output(d, op, 0), a->dim, a->start,
                            d->graph->tensors[op->in[0]].dims[a->dim]));
  return GD_OK;
}

enum gd_status gd_grad_pad(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  const struct gd_attr_slice *a = &op->attr.slice;
  (void)err;
  gd_diff_contribute(d, op->in[0],
                     gd_slice(d->graph, grad_of_output(d, op, 0), a->dim, a->start,
                              d->graph->tensors[op->in[0]].dims[a->dim]));
  return GD_OK;
}

enum gd_status gd_grad_cast(struct gd_diff *d, const struct gd_op *op, struct gd_error *err) {
  (void)err;
  gd_diff_contribute(
      d, op->in[0],
      gd_cast(d->graph, grad_of_output(d, op, 0), d->graph->tensors[op->in[0]].dtype));
  return GD_OK;
}
