/*
 * The verifier: every rule that autodiff, passes, planner and executors rely on, checked on the
 * graph as stored. Run after each stage in tests and by `gpudays plan --explain`.
 *
 *  1. Inputs exist and are leaves or outputs of an earlier op of the same program.
 *  2. Outputs name their op as producer; dtype, dims and aliasing are what the shape rule says.
 *  3. What belongs to a parameter (gradient, moments, 16-bit copy) has its dims.
 *  4. Only STATE ops overwrite memory, only that of leaves and of `buffer`, and nothing reads the
 *     old value of a leaf later in the same program. Flat leaves and buffers are exempt from the
 *     last: they are filled piece by piece, and then read whole.
 *  5. An output that is added to memory is fp32, its op's row in ops.def permits it, and the memory
 *     is that of an fp32 leaf of as many elements, which counts as overwritten.
 *  6. What a fused op consists of is such a graph itself, of PURE ops and views.
 */
#include <string.h>

#include "ir/fusion.h"
#include "ir/shape.h"

static enum gd_status bad_op(const struct gd_graph *graph, gd_op_id op, const char *what,
                             struct gd_error *err) {
  return gd_fail(err, GD_INTERNAL, "op %u (%s): %s", op, gd_op_info(graph->ops[op].kind)->name,
                 what);
}

static enum gd_status verify_leaves(const struct gd_graph *graph, struct gd_error *err) {
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
    const struct gd_tensor *t = &graph->tensors[id];
    bool owned =
        t->role == GD_ROLE_PARAM_COMPUTE || t->role == GD_ROLE_GRAD || t->role == GD_ROLE_OPTIMIZER;
    if ((t->role == GD_ROLE_ACTIVATION) != (t->producer != GD_NONE))
      return gd_fail(err, GD_INTERNAL, "tensor %u: activations, and they alone, have a producer",
                     id);
    if (!owned || t->flat)
      continue;
    if (t->owner >= graph->n_tensors || graph->tensors[t->owner].role != GD_ROLE_PARAM ||
        gd_tensor_elements(graph, t->owner) != gd_tensor_elements(graph, id))
      return gd_fail(err, GD_INTERNAL, "tensor %u (%s) does not match its parameter", id, t->name);
  }
  return GD_OK;
}

static bool adds_to_leaf(const struct gd_graph *graph, const struct gd_tensor *t) {
  if (t->alias_of >= graph->n_tensors)
    return false;
  const struct gd_tensor *leaf = &graph->tensors[t->alias_of];
  int64_t elements = 1;
  for (uint32_t i = 0; i < t->rank; i++)
    elements *= t->dims[i];
  return leaf->producer == GD_NONE && leaf->dtype == GD_DTYPE_F32 && t->dtype == GD_DTYPE_F32 &&
         gd_tensor_elements(graph, t->alias_of) == elements;
}

static enum gd_status verify_op(const struct gd_graph *graph, gd_op_id id, struct gd_error *err) {
  const struct gd_op *op = &graph->ops[id];
  struct gd_shape outs[GD_MAX_OUTPUTS];
  uint32_t n_out;
  for (uint32_t i = 0; i < op->n_in; i++) {
    if (op->in[i] >= graph->n_tensors)
      return bad_op(graph, id, "an input does not exist", err);
    gd_op_id producer = graph->tensors[op->in[i]].producer;
    if (producer == GD_NONE)
      continue;
    if (producer >= id)
      return bad_op(graph, id, "an input is produced later", err);
    if (gd_phase_program(graph->ops[producer].phase) != gd_phase_program(op->phase))
      return bad_op(graph, id, "an input is produced in another program", err);
  }
  GD_TRY(gd_shape_infer(graph, op->kind, &op->attr, op->n_in, op->in, outs, &n_out, err));
  if (n_out != op->n_out)
    return bad_op(graph, id, "has another number of outputs than its shape rule", err);
  if (op->adds & ~gd_op_info(op->kind)->adds || (n_out < 32 && op->adds >> n_out))
    return bad_op(graph, id, "adds an output that it cannot add", err);
  for (uint32_t i = 0; i < n_out; i++) {
    const struct gd_tensor *t = &graph->tensors[op->out[i]];
    if (op->adds >> i & 1u) {
      if (!adds_to_leaf(graph, t))
        return bad_op(graph, id, "adds to what is no fp32 leaf of the same size", err);
      outs[i].alias_of = t->alias_of;
    }
    if (t->producer != id || op->out[i] != op->out[0] + i)
      return bad_op(graph, id, "an output does not name it as producer", err);
    if (t->dtype != outs[i].dtype || t->rank != outs[i].rank || t->alias_of != outs[i].alias_of ||
        t->alias_elements != outs[i].alias_elements || t->space != outs[i].space ||
        memcmp(t->dims, outs[i].dims, t->rank * sizeof *t->dims) != 0)
      return bad_op(graph, id, "an output differs from its shape rule", err);
  }
  return GD_OK;
}

static bool in_pieces(const struct gd_graph *graph, gd_tensor_id root) {
  const struct gd_tensor *t = &graph->tensors[root];
  return t->flat || (t->producer != GD_NONE &&
                     gd_op_info(graph->ops[t->producer].kind)->attr == GD_ATTR_buffer);
}

/* overwritten_at[root]: the last STATE op that wrote it in this program, plus one. */
static enum gd_status verify_order(const struct gd_graph *graph, enum gd_program program,
                                   uint32_t *overwritten_at, struct gd_error *err) {
  memset(overwritten_at, 0, graph->n_tensors * sizeof *overwritten_at);
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    const struct gd_op *op = &graph->ops[id];
    if (gd_phase_program(op->phase) != program)
      continue;
    for (uint32_t i = 0; i < op->n_in; i++) {
      const struct gd_tensor *t = &graph->tensors[op->in[i]];
      uint32_t defined = t->producer == GD_NONE ? 0 : t->producer + 1;
      gd_tensor_id root = gd_tensor_root(graph, op->in[i], NULL);
      if (!in_pieces(graph, root) && overwritten_at[root] > defined)
        return bad_op(graph, id, "reads a value that was overwritten before", err);
    }
    for (uint32_t i = 0; i < op->n_out; i++) {
      if (graph->tensors[op->out[i]].alias_of == GD_NONE)
        continue;
      enum gd_op_class op_class = gd_op_info(op->kind)->op_class;
      gd_tensor_id root = gd_tensor_root(graph, op->out[i], NULL);
      if (op_class == GD_CLASS_VIEW)
        continue;
      bool writes = op_class == GD_CLASS_STATE || (op->adds >> i & 1u);
      if (!writes || (graph->tensors[root].producer != GD_NONE && !in_pieces(graph, root)))
        return bad_op(graph, id, "overwrites memory that is not a leaf's", err);
      overwritten_at[root] = id + 1;
    }
  }
  return GD_OK;
}

enum gd_status gd_graph_verify(const struct gd_graph *graph, struct gd_error *err) {
  GD_TRY(gd_graph_check(graph, err));
  GD_TRY(verify_leaves(graph, err));
  for (uint32_t i = 0; i < graph->n_fusions; i++)
    GD_TRY(gd_fusion_verify(&graph->fusions[i], err));
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    GD_TRY(verify_op(graph, id, err));
  uint32_t *overwritten_at = gd_mem_alloc(graph->n_tensors, sizeof *overwritten_at);
  if (!overwritten_at)
    return gd_nomem(err, "while verifying a graph");
  enum gd_status status = GD_OK;
  for (int program = 0; program < GD_PROGRAM_COUNT && status == GD_OK; program++)
    status = verify_order(graph, (enum gd_program)program, overwritten_at, err);
  gd_mem_free(overwritten_at);
  return status;
}
