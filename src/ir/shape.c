/*
 * Runs the shape rules of ops.def. gd_graph_infer runs them again after a pass changed leaves, and
 * the verifier runs them to check what is stored.
 */
#include "ir/shape.h"

#include <stdio.h>

#include "ir/rules_int.h"

enum gd_status gd_rule_wrong(const struct gd_rule *r, const char *what) {
  char dims[256];
  size_t at = 0;
  dims[0] = '\0';
  for (uint32_t i = 0; i < r->n_in && at < sizeof dims - 40; i++) {
    if (r->in[i] == GD_NONE)
      continue;
    const struct gd_tensor *t = input(r, i);
    at += (size_t)snprintf(dims + at, sizeof dims - at, "%s%s[", i ? ", " : "",
                           gd_dtype_name(t->dtype));
    for (uint32_t d = 0; d < t->rank && at < sizeof dims - 30; d++)
      at += (size_t)snprintf(dims + at, sizeof dims - at, "%s%lld", d ? "," : "",
                             (long long)t->dims[d]);
    at += (size_t)snprintf(dims + at, sizeof dims - at, "]");
  }
  return gd_fail(r->err, GD_INTERNAL, "%s of (%s): %s", gd_op_info(r->kind)->name, dims, what);
}

enum gd_status gd_shape_infer(const struct gd_graph *graph, enum gd_op_kind kind,
                              const union gd_attr *attr, uint32_t n_in, const gd_tensor_id *in,
                              struct gd_shape *outs, uint32_t *n_out, struct gd_error *err) {
  static enum gd_status (*const rules[GD_OP_COUNT])(const struct gd_rule *) = {
#define GD_OP(name, min, max, attr, doc, shape, ...) [GD_OP_##name] = gd_shape_##shape,
#include "ir/ops.def"
#undef GD_OP
  };
  const struct gd_op_info *info = gd_op_info(kind);
  struct gd_rule rule = {graph, kind, attr, n_in, in, outs, n_out, err};
  if (n_in < info->inputs_min || (info->inputs_max && n_in > info->inputs_max))
    return gd_fail(err, GD_INTERNAL, "%s takes %u to %u inputs, not %u", info->name,
                   info->inputs_min, info->inputs_max, n_in);
  for (uint32_t i = 0; i < n_in; i++)
    if (in[i] >= graph->n_tensors)
      return gd_fail(err, GD_INTERNAL, "%s: input %u does not exist", info->name, i);
  *n_out = 0;
  GD_TRY(rules[kind](&rule));
  for (uint32_t i = 0; i < *n_out; i++) { /* a view lies where its input does */
    gd_tensor_id alias = outs[i].alias_of;
    if (alias != GD_NONE)
      outs[i].space = graph->tensors[gd_tensor_root(graph, alias, NULL)].space;
  }
  return GD_OK;
}

enum gd_status gd_graph_infer(struct gd_graph *graph, struct gd_error *err) {
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    struct gd_shape outs[GD_MAX_OUTPUTS];
    uint32_t n_out;
    const struct gd_op *op = &graph->ops[id];
    GD_TRY(gd_shape_infer(graph, op->kind, &op->attr, op->n_in, op->in, outs, &n_out, err));
    GD_ASSERT(n_out == op->n_out);
    for (uint32_t i = 0; i < n_out; i++) {
      /* Passes change dtypes of leaves, never dims: the stored dims stay valid. */
      graph->tensors[op->out[i]].dtype = outs[i].dtype;
      if (op->adds >> i & 1u) /* keeps the leaf it is added to */
        continue;
      graph->tensors[op->out[i]].alias_of = outs[i].alias_of;
      graph->tensors[op->out[i]].alias_elements = outs[i].alias_elements;
      graph->tensors[op->out[i]].space = outs[i].space;
    }
  }
  return GD_OK;
}
