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
    if (graph->ops[id].kind == GD_OP_linear_xent) {
      struct gd_attr_xent *attr = &graph->ops[id].attr.xent;
      attr->chunk_bytes = ctx->setup->loss_chunk_bytes;
      attr->masked = attr->chunk_bytes > 0 && graph->ids != GD_NONE && !graph->predicts_next;
    }
  return GD_OK;
}
