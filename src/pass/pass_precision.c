/*
 * Mixed precision, as one rewrite of leaves: every weight that a matmul or an embedding reads
 * gets a 16-bit copy, and the shape rules carry that dtype through everything downstream. Norm
 * weights, biases, statistics and the loss stay fp32 because their shape rules say so; gradients
 * of parameters stay fp32 because autodiff makes them so.
 */
#include "pass/pass.h"

enum gd_status gd_pass_precision(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  enum gd_dtype dtype = gd_precision_dtype(ctx->setup->precision);
  if (dtype == GD_DTYPE_F32)
    return GD_OK;
  const uint32_t n_before = graph->n_tensors;
  gd_tensor_id *copy_of = gd_mem_alloc(n_before, sizeof *copy_of); /* 0: none yet, else id + 1 */
  if (!copy_of)
    return gd_nomem(ctx->err, "in the precision pass");
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    struct gd_op *op = &graph->ops[id];
    const struct gd_op_info *info = gd_op_info(op->kind);
    if (info->attr == GD_ATTR_cast && op->attr.cast.dtype == GD_DTYPE_COUNT)
      op->attr.cast.dtype = dtype;
    gd_tensor_id *in = gd_arena_alloc(&graph->arena, op->n_in, sizeof *in);
    for (uint32_t i = 0; in && i < op->n_in; i++) {
      gd_tensor_id param = in[i] = op->in[i];
      if (!(info->compute_inputs >> i & 1u) || graph->tensors[param].role != GD_ROLE_PARAM)
        continue;
      if (!copy_of[param]) {
        const struct gd_tensor master = graph->tensors[param];
        gd_tensor_id copy = gd_graph_leaf(graph, GD_ROLE_PARAM_COMPUTE, master.name, dtype,
                                          master.rank, master.dims);
        if (copy == GD_NONE)
          break;
        graph->tensors[copy].owner = param;
        graph->tensors[copy].block = master.block;
        copy_of[param] = copy + 1;
      }
      in[i] = copy_of[param] - 1;
    }
    if (!in)
      gd_nomem(&graph->error, "in the precision pass");
    else
      op->in = in;
    if (graph->error.status != GD_OK)
      break;
  }
  gd_mem_free(copy_of);
  GD_TRY(gd_graph_check(graph, ctx->err));
  return gd_graph_infer(graph, ctx->err);
}
