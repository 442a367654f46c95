/*
 * Graphs that compute and do not learn: the loss of a plan that trains, and a model alone. Both are
 * what the pipeline builds, without dropout and without the ops that the result does not need.
 */
#include "base/mem.h"
#include "pass/pass.h"

/* Marks the ops that an op's inputs come from, and all before them. needed: by op. */
static void mark_needed(const struct gd_graph *graph, bool *needed) {
  for (gd_op_id id = graph->n_ops; id-- > 0;) {
    const struct gd_op *op = &graph->ops[id];
    for (uint32_t i = 0; needed[id] && i < op->n_in; i++)
      if (op->in[i] != GD_NONE && graph->tensors[op->in[i]].producer != GD_NONE)
        needed[graph->tensors[op->in[i]].producer] = true;
  }
}

/* Keeps the ops `last` and `also` (GD_NONE: none) and what they need. Leaves all stay, and with
 * them their places. */
static enum gd_status keep_needed(struct gd_graph *graph, gd_op_id last, gd_op_id also,
                                  struct gd_error *err) {
  struct gd_graph_rewrite rewrite;
  bool *needed = gd_mem_alloc(graph->n_ops, sizeof *needed);
  if (!needed)
    return gd_nomem(err, "while leaving ops out of a graph");
  needed[last] = true;
  if (also != GD_NONE)
    needed[also] = true;
  mark_needed(graph, needed);
  graph->norm = graph->factor = GD_NONE;
  graph->n_targets = 0;
  enum gd_status status = gd_graph_rewrite_begin(&rewrite, graph, err);
  if (status == GD_OK) {
    for (gd_op_id id = 0; id < rewrite.n_ops; id++)
      if (needed[id])
        gd_graph_rewrite_keep(&rewrite, id);
    status = gd_graph_rewrite_end(&rewrite, err);
  }
  gd_mem_free(needed);
  return status;
}

/* The op that adds a micro-batch's value to a sum that the host reads; GD_NONE: none. */
static gd_op_id sums_into(const struct gd_graph *graph, gd_tensor_id sum) {
  for (gd_op_id id = graph->n_ops; sum != GD_NONE && id-- > 0;)
    for (uint32_t i = 0; i < graph->ops[id].n_out; i++)
      if (graph->tensors[graph->ops[id].out[i]].alias_of == sum)
        return id;
  return GD_NONE;
}

enum gd_status gd_pipeline_evaluation(const struct gd_setup *setup, struct gd_graph *graph,
                                      struct gd_error *err) {
  struct gd_setup evaluates = *setup;
  evaluates.no_dropout = true;
  evaluates.cache = NULL;
  GD_TRY(gd_pipeline_build(&evaluates, graph, err));
  gd_op_id loss = sums_into(graph, graph->loss_sum);
  if (loss == GD_NONE)
    return gd_fail(err, GD_INTERNAL, "the graph does not sum its loss");
  GD_TRY(keep_needed(graph, loss, sums_into(graph, graph->hits_sum), err));
  return gd_graph_verify(graph, err);
}

enum gd_status gd_pipeline_forward(const struct gd_setup *setup, enum gd_forward_end end,
                                   struct gd_graph *graph, struct gd_error *err) {
  struct gd_setup forward = *setup;
  forward.no_dropout = true;
  GD_ASSERT(setup->precision == GD_PRECISION_FP32); /* 16-bit copies are the init program's */
  GD_TRY(gd_pipeline_build_forward(&forward, graph, err));
  gd_op_id last = graph->tensors[graph->loss].producer;
  if (end == GD_FORWARD_LOGITS) {
    last = graph->tensors[graph->ops[last].in[0]].producer;
    graph->loss = GD_NONE;
  }
  GD_TRY(keep_needed(graph, last, GD_NONE, err));
  return gd_graph_verify(graph, err);
}
