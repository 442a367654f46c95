/*
 * TF32: fp32 products may round their operands to 10 bits of mantissa and run on the tensor cores,
 * as PyTorch does with allow_tf32. A mark on the ops; where a device lacks it, nothing happens.
 */
#include "pass/pass.h"

enum gd_status gd_pass_tf32(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  if (!ctx->setup->method.tf32 || !ctx->setup->tf32)
    return GD_OK;
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    struct gd_op *op = &graph->ops[id];
    if (op->kind == GD_OP_matmul)
      op->attr.matmul.tf32 = true;
    else if (op->kind == GD_OP_attention || op->kind == GD_OP_attention_grad)
      op->attr.attention.tf32 = true;
    else if (op->kind == GD_OP_linear_xent)
      op->attr.xent.tf32 = true;
  }
  return GD_OK;
}
