/*
 * What must hold of a graph at each stage of the pipeline, beyond what gd_graph_verify checks of
 * any graph. gd_pipeline_build checks the forward graph and the graph that it returns; in builds
 * with sanitizers, and where a test asks for it, the graph after each pass.
 */
#include "pass/pass.h"

/* Why an op may not be there yet; NULL: it may. */
static const char *why_too_early(const struct gd_op *op, enum gd_stage stage) {
  if (stage == GD_STAGE_BUILD)
    return "an op before the model built its graph";
  if (stage < GD_STAGE_ALL && op->phase == GD_PHASE_UPDATE)
    return "an op of the update program before there is one";
  if (stage == GD_STAGE_FORWARD && op->phase == GD_PHASE_BACKWARD)
    return "an op of the backward pass before autodiff";
  if (stage == GD_STAGE_FORWARD && (op->recomputed || op->last_only))
    return "a recomputed op, or one of a step's last micro-batch, before autodiff";
  return NULL;
}

enum gd_status gd_stage_verify(const struct gd_graph *graph, enum gd_stage stage,
                               struct gd_error *err) {
  static const char *const names[] = {"build", "forward", "micro-step", "all"};
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    const char *why = why_too_early(&graph->ops[id], stage);
    if (why)
      return gd_fail(err, GD_INTERNAL, "op %u (%s) at stage %s is %s", id,
                     gd_op_info(graph->ops[id].kind)->name, names[stage], why);
  }
  for (gd_tensor_id id = 0; id < graph->n_tensors && stage < GD_STAGE_ALL; id++)
    if (graph->tensors[id].space == GD_SPACE_HOST && graph->tensors[id].role == GD_ROLE_OPTIMIZER)
      return gd_fail(err, GD_INTERNAL, "tensor %u at stage %s is in host memory before offload", id,
                     names[stage]);
  if (stage >= GD_STAGE_MICRO_STEP && !graph->backward_done)
    return gd_fail(err, GD_INTERNAL, "the graph at stage %s has no backward pass", names[stage]);
  if (stage == GD_STAGE_ALL && (graph->norm == GD_NONE || graph->lr == GD_NONE))
    return gd_fail(err, GD_INTERNAL, "the graph at stage all has no update program");
  return stage == GD_STAGE_BUILD ? GD_OK : gd_graph_verify(graph, err);
}
