/*
 * Mixed precision, as one rewrite of leaves: every weight that a product or an embedding reads
 * gets a 16-bit copy, and the shape rules carry that dtype through everything downstream. Norm
 * weights, biases, statistics and the loss stay fp32 because their shape rules say so; gradients
 * of parameters stay fp32 because autodiff makes them so.
 */
#include "pass/pass.h"

static enum gd_dtype compute_dtype(enum gd_precision precision) {
  switch (precision) {
  case GD_PRECISION_FP32: return GD_DTYPE_F32;
  case GD_PRECISION_FP16: return GD_DTYPE_F16;
  case GD_PRECISION_BF16: return GD_DTYPE_BF16;
  }
  return GD_DTYPE_F32;
}

/* A reshaped weight (a filter as a matrix) is on its way to a product. */
static bool reads_half(enum gd_op_kind kind, uint32_t input) {
  return (kind == GD_OP_matmul && input < 2) ||
         ((kind == GD_OP_embed || kind == GD_OP_reshape) && input == 0);
}

enum gd_status gd_pass_precision(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  enum gd_dtype dtype = compute_dtype(ctx->setup->precision);
  if (dtype == GD_DTYPE_F32)
    return GD_OK;
  const uint32_t n_before = graph->n_tensors;
  gd_tensor_id *half_of = gd_mem_alloc(n_before, sizeof *half_of); /* 0: none yet, else id + 1 */
  if (!half_of)
    return gd_fail(ctx->err, GD_ENVIRONMENT, "out of memory in the precision pass");
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    struct gd_op *op = &graph->ops[id];
    if (op->kind == GD_OP_cast && op->attr.cast.dtype == GD_DTYPE_COUNT)
      op->attr.cast.dtype = dtype;
    gd_tensor_id *in = gd_arena_alloc(&graph->arena, op->n_in, sizeof *in);
    for (uint32_t i = 0; in && i < op->n_in; i++) {
      gd_tensor_id param = in[i] = op->in[i];
      if (!reads_half(op->kind, i) || graph->tensors[param].role != GD_ROLE_PARAM)
        continue;
      if (!half_of[param]) {
        const struct gd_tensor master = graph->tensors[param];
        gd_tensor_id half =
            gd_graph_leaf(graph, GD_ROLE_PARAM_HALF, master.name, dtype, master.rank, master.dims);
        if (half == GD_NONE)
          break;
        graph->tensors[half].owner = param;
        graph->tensors[half].block = master.block;
        half_of[param] = half + 1;
      }
      in[i] = half_of[param] - 1;
    }
    if (!in)
      gd_fail(&graph->error, GD_ENVIRONMENT, "out of memory in the precision pass");
    else
      op->in = in;
    if (graph->error.status != GD_OK)
      break;
  }
  gd_mem_free(half_of);
  GD_TRY(gd_graph_check(graph, ctx->err));
  return gd_graph_infer(graph, ctx->err);
}
