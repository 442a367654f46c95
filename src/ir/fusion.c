/*
 * Fusions: storage in their graph, rules, costs and text.
 */
#include "ir/fusion.h"

uint32_t gd_graph_fusion(struct gd_graph *graph, struct gd_fusion *fusion) {
  if (graph->error.status == GD_OK && fusion->body.error.status != GD_OK)
    graph->error = fusion->body.error;
  if (graph->error.status == GD_OK &&
      !gd_vec_reserve((void **)&graph->fusions, &graph->fusions_capacity, graph->n_fusions + 1,
                      sizeof *graph->fusions))
    gd_fail(&graph->error, GD_ENVIRONMENT, "out of memory while fusing ops");
  if (graph->error.status != GD_OK) {
    gd_graph_deinit(&fusion->body);
    return GD_NONE;
  }
  graph->fusions[graph->n_fusions] = *fusion;
  *fusion = (struct gd_fusion){0};
  return graph->n_fusions++;
}

void gd_fusions_free(struct gd_graph *graph) {
  for (uint32_t i = 0; i < graph->n_fusions; i++)
    gd_graph_deinit(&graph->fusions[i].body); /* NOLINT(misc-no-recursion): bodies have none */
  gd_mem_free(graph->fusions);
  graph->fusions = NULL;
  graph->n_fusions = graph->fusions_capacity = 0;
}

uint64_t gd_op_inplace(const struct gd_graph *graph, const struct gd_op *op) {
  return op->kind == GD_OP_fused ? graph->fusions[op->attr.fused.fusion].inplace
                                 : gd_op_info(op->kind)->inplace;
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
    enum gd_op_class op_class = gd_op_info(body->ops[id].kind)->op_class;
    if (op_class != GD_CLASS_PURE && body->ops[id].kind != GD_OP_reshape)
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
