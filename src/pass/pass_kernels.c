/*
 * The kernels method: each of its rewrites, in turn. What they look for is in kernels_*.c.
 */
#include "pass/kernels.h"
#include "pass/pass.h"

enum gd_status gd_pass_kernels(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  if (!ctx->setup->method.kernels)
    return GD_OK;
  GD_TRY(gd_kernels_attention(graph, ctx->err));
  GD_TRY(gd_kernels_heads(graph, ctx->err));
  GD_TRY(gd_kernels_scan(graph, ctx->err));
  GD_TRY(gd_kernels_loss(graph, ctx->err));
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    if (graph->ops[id].kind == GD_OP_linear_xent)
      graph->ops[id].attr.xent.chunk_bytes = ctx->setup->loss_chunk_bytes;
  return GD_OK;
}
