/*
 * Data-parallel rows of the Megatron/DeepSpeed table (data/paper/megatron.csv) by the stack of that
 * name, as `gpudays plan --stack megatron` has it: a checkpointed GPT on 8 x A100 40 GB, one
 * micro-step a step. No row of the table is among what that stack is fitted to.
 *
 *   struct gd_stack_megatron found;
 *   GD_TRY(gd_stack_megatron(&hw, &stacks, &fit, &paper.megatron[i], &found, err));
 */
#ifndef GD_PREDICT_STACK_MEGATRON_H
#define GD_PREDICT_STACK_MEGATRON_H

#include "paper/paper.h"
#include "predict/stack_step.h"

/* The bytes are those of the row's own batch; of one sequence where it has none. */
struct gd_stack_megatron {
  struct gd_stack_bytes bytes;
  double limit_bytes; /* of the GPU */
  double iteration_s;
};
enum gd_status gd_stack_megatron(struct gd_hw *hw, const struct gd_stacks *stacks,
                                 const struct gd_gpu_fit *fit, const struct gd_megatron_row *row,
                                 struct gd_stack_megatron *result,
                                 struct gd_error *err) GD_MUST_USE;

#endif
