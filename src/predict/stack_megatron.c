/*
 * The Megatron/DeepSpeed table; see stack_megatron.h.
 */
#include "predict/stack_megatron.h"

/* The method of a row: naive, since that software has neither of the free lunch's kernels. */
static struct gd_method method_of(const struct gd_megatron_row *row) {
  static const enum gd_sharding stages[] = {GD_SHARDING_NONE, GD_SHARDING_ZERO1, GD_SHARDING_ZERO2,
                                            GD_SHARDING_ZERO3};
  GD_ASSERT(row->zero_stage >= 0 && row->zero_stage < 4 && row->model_parallel == 1);
  return (struct gd_method){
      .ckpt = true, .sharding = stages[row->zero_stage], .offload = row->offload};
}

static double seconds_of(const struct gd_stack_facts *facts, const struct gd_stack_works *works,
                         const struct gd_gpu_fit *fit, const struct gd_target *target,
                         const struct gd_method *method) {
  struct gd_gpu_model gpu;
  struct gd_stack_step step;
  gd_gpu_model_make(target->gpu, fit, &gpu);
  const struct gd_stack_run run = {
      .facts = facts,
      .works = works,
      .gpu = &gpu,
      .target = target,
      .method = *method,
      .accumulation = 1,
      .value = {facts->value[GD_STACK_TRAFFIC], facts->value[GD_STACK_HOST]}};
  gd_stack_step(&run, &step);
  return step.seconds;
}

enum gd_status gd_stack_megatron(struct gd_hw *hw, const struct gd_stacks *stacks,
                                 const struct gd_gpu_fit *fit, const struct gd_megatron_row *row,
                                 struct gd_stack_megatron *result, struct gd_error *err) {
  const struct gd_stack_facts *facts;
  struct gd_model model;
  struct gd_stack_graph graph;
  struct gd_stack_works works = {0};
  struct gd_target target;
  struct gd_method method = method_of(row);
  int64_t micro_batch = row->batch ? row->batch / row->data_parallel : 1;
  GD_TRY(gd_stacks_find(stacks, "megatron", &facts, err));
  GD_TRY(gd_hw_target(hw, "a100-40gb", row->gpus, 1, NULL, NULL, &target, err));
  GD_TRY(gd_model_load(row->model, &model, err));
  bool flash = gd_stack_has_flash(facts, &model, true);
  GD_TRY(gd_stack_graph_make(&model, gd_stack_facts_mode(facts, flash), &graph, err));
  gd_stack_facts_bytes(facts, &graph, &method, row->gpus, (double)micro_batch, &result->bytes);
  result->limit_bytes = (double)target.gpu->memory_bytes;
  GD_TRY(gd_stack_works_make(facts, &model, model.recipe.precision, micro_batch, flash, false,
                             &works, err));
  result->iteration_s = seconds_of(facts, &works, fit, &target, &method);
  gd_stack_works_deinit(&works);
  return GD_OK;
}
