/*
 * Graphs that compute and do not learn: the loss of a plan that trains, and a model alone. Both are
 * what the pipeline builds, without dropout and without the ops that nobody waits for.
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

/* Keeps the op `last` and what it needs. Leaves all stay, and with them their places. */
static enum gd_status keep_needed(struct gd_graph *graph, gd_op_id last, struct gd_error *err) {
  struct gd_graph_rewrite rewrite;
  bool *needed = gd_mem_alloc(graph->n_ops, sizeof *needed);
  if (!needed)
    return gd_nomem(err, "while leaving ops out of a graph");
  needed[last] = true;
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

/* Whether an op adds the loss of a micro-batch to the sum that the host reads. */
static bool sums_loss(const struct gd_graph *graph, const struct gd_op *op) {
  for (uint32_t i = 0; i < op->n_out; i++)
    if (graph->tensors[op->out[i]].alias_of == graph->loss_sum)
      return true;
  return false;
}

enum gd_status gd_pipeline_evaluation(const struct gd_setup *setup, struct gd_graph *graph,
                                      struct gd_error *err) {
  struct gd_setup evaluates = *setup;
  evaluates.no_dropout = true;
  evaluates.cache = NULL;
  GD_TRY(gd_pipeline_build(&evaluates, graph, err));
  for (gd_op_id id = graph->n_ops; id-- > 0;)
    if (sums_loss(graph, &graph->ops[id])) {
      GD_TRY(keep_needed(graph, id, err));
      return gd_graph_verify(graph, err);
    }
  return gd_fail(err, GD_INTERNAL, "the graph does not sum its loss");
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
  GD_TRY(keep_needed(graph, last, err));
  return gd_graph_verify(graph, err);
}
