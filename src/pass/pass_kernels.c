/*
 * The pass `kernels`: each of its rewrites, in turn, and what they share. The patterns that they
 * look for are in kernels_*.c.
 */
#include "pass/kernels.h"
#include "pass/pass.h"

gd_op_id gd_kernels_maker(const struct gd_graph_rewrite *r, gd_tensor_id x, enum gd_op_kind kind) {
  gd_op_id id = r->graph->tensors[x].producer;
  return id != GD_NONE && r->ops[id].kind == kind && r->n_readers[x] == 1 ? id : GD_NONE;
}

bool gd_kernels_has_dims(const struct gd_tensor *t, uint32_t rank, const int64_t *dims) {
  for (uint32_t i = 0; i < rank && t->rank == rank; i++)
    if (t->dims[i] != dims[i])
      return false;
  return t->rank == rank;
}

enum gd_status gd_pass_kernels(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  GD_TRY(gd_kernels_attention(graph, ctx->err));
  GD_TRY(gd_kernels_heads(graph, ctx->err));
  GD_TRY(gd_kernels_scan(graph, ctx->err));
  GD_TRY(gd_kernels_loss(graph, ctx->err));
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    if (gd_op_info(graph->ops[id].kind)->work == GD_WORK_LINEAR_XENT) {
      struct gd_attr_xent *attr = &graph->ops[id].attr.xent;
      attr->chunk_bytes = ctx->setup->loss_chunk_bytes;
      attr->masked = attr->chunk_bytes > 0 && graph->ids != GD_NONE && !graph->predicts_next;
    }
  return GD_OK;
}
