/*
 * Plans for the paper's stack; see stack_plan.h.
 */
#include "report/stack_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "hw/estimate.h"
#include "predict/predict.h"

static enum gd_status check_method(const struct gd_method *method, struct gd_error *err) {
  bool known = true;
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++) {
    enum gd_part_paper paper = gd_method_row((enum gd_method_part_id)i)->paper;
    if (gd_method_has(method, (enum gd_method_part_id)i))
      known = known && (paper == GD_ON_PAPER_YES ||
                        (paper == GD_ON_PAPER_WHOLE_GROUP && gd_method_is_free_lunch(method)));
  }
  if (method->without)
    return gd_fail(err, GD_UNSUPPORTED, "--stack paper is not made of passes; leave out --without");
  if (known)
    return GD_OK;
  return gd_fail(err, GD_UNSUPPORTED,
                 "--stack paper knows naive, also with ckpt, zero1 to zero3 and offload (as "
                 "Megatron-LM on DeepSpeed), and free-lunch with ckpt, a sharding and offload; "
                 "choose among these");
}

/* Only what the paper's tables hold has been compared with anything. */
static void judge(struct gd_stack_plan *plan, bool known_models) {
  const struct gd_accuracy_score *score = &plan->accuracy.held_gpu;
  const struct gd_target *target = &plan->target;
  bool known = gd_paper_find_gpu(&plan->accuracy.stack.paper, target->gpu->name) != NULL;
  plan->validated = known && known_models && target->nodes == 1 && target->count <= 8;
  plan->error = fmax(score->p90, plan->validated ? 0 : GD_PREDICT_UNVALIDATED);
  snprintf(
      plan->basis, sizeof plan->basis,
      "%sthe paper's software on the %s, fitted to its Tables 1 and 4; median error %.0f %%, 90 "
      "%% within %.0f %% on GPUs that a fit had not seen",
      plan->validated ? "" : "unvalidated; ", target->gpu->title, 100 * score->median,
      100 * score->p90);
}

static enum gd_status add_row(struct gd_stack_plan *plan, const struct gd_stack_model *model,
                              const struct gd_method *method, struct gd_error *err) {
  const struct gd_recipe *recipe = &model->model.recipe;
  struct gd_stack_row *row = &plan->rows[plan->count];
  *row = (struct gd_stack_row){.model = model, .number = plan->count++};
  gd_stack_point(model, method, &plan->target, recipe->batch, &row->point);
  row->fits = row->point.micro_batch > 0;
  if (row->fits) {
    row->step_s = gd_stack_step_s(model, &row->point, &plan->target, &plan->accuracy.all.fit);
    row->days = row->step_s * (double)recipe->steps / 86400;
  }
  return gd_estimate_precision(&model->model, plan->target.gpu, NULL, &row->precision,
                               &row->substituted, err);
}

static enum gd_status add_rows(const struct gd_stack_asked *asked, struct gd_stack_plan *plan,
                               struct gd_error *err) {
  size_t n_models = (size_t)asked->n_models;
  bool known = true;
  struct gd_stack_model *models = gd_arena_alloc(&plan->arena, n_models, sizeof *models);
  plan->rows =
      gd_arena_alloc(&plan->arena, n_models * (size_t)asked->n_methods, sizeof *plan->rows);
  if (!models || !plan->rows)
    return gd_nomem(err, "before the first plan");
  for (int i = 0; i < asked->n_models; i++) {
    models[i].model = asked->models[i];
    int64_t batch = models[i].model.recipe.batch;
    if (batch % plan->target.count)
      return gd_fail(err, GD_BAD_INPUT, "a batch of %lld does not divide among %d GPUs",
                     (long long)batch, plan->target.count);
    GD_TRY(gd_stack_model_make(&models[i], err));
    known = known && gd_paper_find_recipe(&plan->accuracy.stack.paper, models[i].model.name);
    for (int k = 0; k < asked->n_methods; k++)
      GD_TRY(add_row(plan, &models[i], &asked->methods[k], err));
  }
  judge(plan, known);
  return GD_OK;
}

static int compare_rows(const void *left, const void *right) {
  const struct gd_stack_row *a = left, *b = right;
  if (a->model != b->model)
    return a->model < b->model ? -1 : 1;
  if (a->fits != b->fits)
    return a->fits ? -1 : 1;
  if (a->days < b->days || a->days > b->days)
    return a->days < b->days ? -1 : 1;
  return a->number - b->number;
}

enum gd_status gd_stack_plan_make(const struct gd_stack_asked *asked, struct gd_stack_plan *plan,
                                  struct gd_error *err) {
  *plan = (struct gd_stack_plan){0};
  for (int i = 0; i < asked->n_methods; i++)
    GD_TRY(check_method(&asked->methods[i], err));
  GD_TRY(gd_accuracy_make(&plan->accuracy, err));
  GD_TRY(gd_hw_target(&plan->accuracy.stack.hw, asked->gpu, asked->count, asked->nodes,
                      asked->machine, asked->network, &plan->target, err));
  GD_TRY(add_rows(asked, plan, err));
  qsort(plan->rows, (size_t)plan->count, sizeof *plan->rows, compare_rows);
  return GD_OK;
}

void gd_stack_plan_deinit(struct gd_stack_plan *plan) {
  gd_accuracy_deinit(&plan->accuracy);
  gd_arena_deinit(&plan->arena);
  *plan = (struct gd_stack_plan){0};
}

struct gd_stack_miss gd_stack_plan_miss(const struct gd_stack_plan *plan,
                                        const struct gd_stack_row *row) {
  const struct gd_stack_bytes *bytes = &row->point.bytes;
  double device = (double)plan->target.gpu->memory_bytes;
  bool host = bytes->device <= device;
  return (struct gd_stack_miss){.host = host,
                                .need_bytes = host ? bytes->host : bytes->device,
                                .have_bytes =
                                    host ? (double)plan->target.host_memory_bytes : device};
}
