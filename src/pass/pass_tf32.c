/*
 * TF32: fp32 GEMMs may round their operands to 10 bits of mantissa and run on the tensor cores,
 * as PyTorch does with allow_tf32. A mark on the ops; where a device lacks it, nothing happens.
 */
#include "pass/pass.h"

enum gd_status gd_pass_tf32(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  if (!ctx->setup->tf32)
    return GD_OK;
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    struct gd_op *op = &graph->ops[id];
    bool *tf32 = gd_attr_tf32(op->kind, &op->attr);
    if (tf32)
      *tf32 = true;
  }
  return GD_OK;
}
