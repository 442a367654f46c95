/*
 * Fusions: storage in their graph, rules, costs and text.
 */
#include "ir/fusion.h"

#include "ir/rules_int.h"

uint32_t gd_graph_fusion(struct gd_graph *graph, struct gd_fusion *fusion) {
  if (graph->error.status == GD_OK && fusion->body.error.status != GD_OK)
    graph->error = fusion->body.error;
  if (graph->error.status == GD_OK &&
      !gd_vec_reserve((void **)&graph->fusions, &graph->fusions_capacity, graph->n_fusions + 1,
                      sizeof *graph->fusions))
    gd_nomem(&graph->error, "while fusing ops");
  if (graph->error.status != GD_OK) {
    gd_graph_deinit(&fusion->body);
    return GD_NONE;
  }
  graph->fusions[graph->n_fusions] = *fusion;
  *fusion = (struct gd_fusion){0};
  return graph->n_fusions++;
}

void gd_fusions_free(struct gd_graph *graph) {
  for (uint32_t i = graph->n_shared_fusions; i < graph->n_fusions; i++)
    gd_graph_deinit(&graph->fusions[i].body); /* NOLINT(misc-no-recursion): bodies have none */
  gd_mem_free(graph->fusions);
  graph->fusions = NULL;
  graph->n_fusions = graph->fusions_capacity = 0;
}

const struct gd_fusion *gd_op_fusion(const struct gd_graph *graph, const struct gd_op *op) {
  bool fused = gd_op_info(op->kind)->attr == GD_ATTR_fused;
  return fused ? &graph->fusions[op->attr.fused.fusion] : NULL;
}

uint64_t gd_op_inplace(const struct gd_graph *graph, const struct gd_op *op) {
  const struct gd_fusion *fusion = gd_op_fusion(graph, op);
  return fusion ? fusion->inplace : gd_op_info(op->kind)->inplace;
}

/* The inputs are those the fusion was made for, by position; the outputs are its outputs. */
enum gd_status gd_shape_fused(const struct gd_rule *r) {
  if (r->attr->fused.fusion >= r->graph->n_fusions)
    return gd_rule_wrong(r, "the fusion does not exist");
  const struct gd_fusion *fusion = &r->graph->fusions[r->attr->fused.fusion];
  const struct gd_tensor *locals = fusion->body.tensors;
  if (r->n_in != fusion->n_in)
    return gd_rule_wrong(r, "the fusion takes another number of inputs");
  for (uint32_t i = 0; i < r->n_in; i++)
    if (input(r, i)->dtype != locals[i].dtype || !same_dims(input(r, i), &locals[i]))
      return gd_rule_wrong(r, "an input is not what the fusion was made for");
  for (uint32_t i = 0; i < fusion->n_out; i++) {
    const struct gd_tensor *out = &locals[fusion->out[i]];
    output(r, out->dtype, out->rank, out->dims);
  }
  return GD_OK;
}

static enum gd_status bad(const char *what, struct gd_error *err) {
  return gd_fail(err, GD_INTERNAL, "a fusion %s", what);
}

enum gd_status gd_fusion_verify(const struct gd_fusion *fusion, struct gd_error *err) {
  const struct gd_graph *body = &fusion->body;
  if (body->n_fusions > 0)
    return bad("holds a fusion", err);
  GD_TRY(gd_graph_verify(body, err)); /* NOLINT(misc-no-recursion): no fusions in there */
  if (fusion->n_in > body->n_tensors || fusion->n_out < 1 || fusion->n_out > GD_MAX_OUTPUTS ||
      fusion->n_in > 64)
    return bad("has more inputs or outputs than can be", err);
  for (gd_tensor_id id = 0; id < body->n_tensors; id++)
    if ((body->tensors[id].producer == GD_NONE) != (id < fusion->n_in))
      return bad("has an input among its results", err);
  for (gd_op_id id = 0; id < body->n_ops; id++) {
    const struct gd_op_info *info = gd_op_info(body->ops[id].kind);
    if (info->op_class != GD_CLASS_PURE && info->attr != GD_ATTR_reshape)
      return bad("holds an op with state, or a view with an offset", err);
  }
  for (uint32_t i = 0; i < fusion->n_out; i++)
    if (fusion->out[i] < fusion->n_in || fusion->out[i] >= body->n_tensors ||
        body->tensors[fusion->out[i]].alias_of != GD_NONE)
      return bad("has an output that it does not compute", err);
  if (fusion->rows < 1 || fusion->columns < 1)
    return bad("has no rows or columns", err);
  return GD_OK;
}

double gd_fusion_flops(const struct gd_fusion *fusion) {
  double flops = 0;
  for (gd_op_id id = 0; id < fusion->body.n_ops; id++) {
    struct gd_cost cost;
    gd_op_cost(&fusion->body, id, &cost); /* NOLINT(misc-no-recursion): no fusions in there */
    flops += cost.other_flops;
  }
  return flops;
}

void gd_fusion_print(const struct gd_fusion *fusion, struct gd_strbuf *out) {
  for (gd_op_id id = 0; id < fusion->body.n_ops; id++) {
    gd_strbuf_append(out, "                    | ");
    gd_op_print(&fusion->body, id, out); /* NOLINT(misc-no-recursion): no fusions in there */
  }
}
