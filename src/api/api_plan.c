/*
 * The public API: plans and predictions, on this machine's CPU or on GPUs of the catalogue.
 */
#include <stdio.h>

#include "api/api_int.h"
#include "hw/hw.h"
#include "predict/predict.h"
#include "predict/predict_trial.h"

struct gpd_plan {
  struct gd_model model;
  struct gd_hw hw;         /* loaded with a target, which borrows from it */
  struct gd_target target; /* with a GPU */
  bool has_target, precision_given;
  struct gd_method method;
  struct gd_trial_options options;
  struct gd_trial trial;
};

static enum gd_status find_target(struct gpd_plan *plan, const struct gpd_plan_options *asked,
                                  struct gd_error *err) {
  GD_TRY(gd_hw_load(&plan->hw, err));
  GD_TRY(gd_hw_target(&plan->hw, asked->gpu, asked->count > 0 ? asked->count : 1, asked->nodes,
                      asked->machine, asked->network, &plan->target, err));
  plan->has_target = true;
  if (asked->threads > 0)
    plan->target.cpus = asked->threads;
  plan->options.backend = "cuda";
  plan->options.target = &plan->target;
  plan->options.ranks = plan->target.count;
  plan->options.nodes = plan->target.nodes;
  return GD_OK;
}

static enum gd_status check_options(const struct gpd_plan_options *asked, struct gd_error *err) {
  GD_TRY(gd_api_check("count", asked->count, err));
  GD_TRY(gd_api_check("nodes", asked->nodes, err));
  GD_TRY(gd_api_check_threads(asked->threads, err));
  GD_TRY(gd_api_check("micro_batch", asked->micro_batch, err));
  GD_TRY(gd_api_check("device_memory_bytes", asked->device_memory_bytes, err));
  GD_TRY(gd_api_check("host_memory_bytes", asked->host_memory_bytes, err));
  if (!asked->gpu && (asked->count > 1 || asked->nodes > 1 || asked->machine || asked->network))
    return gd_fail(err, GD_BAD_INPUT,
                   "count, nodes, machine and network are of GPUs; name one, such as \"a100\"");
  return GD_OK;
}

static enum gd_status make(struct gpd_plan *plan, const struct gpd_plan_options *asked,
                           struct gd_error *err) {
  GD_TRY(check_options(asked, err));
  GD_TRY(gd_api_method(asked->method, "free-lunch", &plan->method, err));
  plan->options = (struct gd_trial_options){
      .backend = "cpu",
      .threads = asked->threads,
      .method = plan->method,
      .ranks = 1,
      .nodes = 1,
      .micro_batch = asked->micro_batch > 0 ? GD_MICRO_BATCH_FIXED : GD_MICRO_BATCH_AUTO,
      .micro_batch_size = asked->micro_batch,
      .precision = plan->precision_given ? &plan->model.recipe.precision : NULL,
      .device_limit_bytes = asked->device_memory_bytes,
      .host_limit_bytes = asked->host_memory_bytes};
  if (!asked->gpu)
    return gd_trial_plan(&plan->model, &plan->options, &plan->trial, err);
  struct gd_predictor predictor = {0};
  struct gd_prediction prediction; /* by which the micro-batch is chosen, as by the command */
  GD_TRY(find_target(plan, asked, err));
  enum gd_status status = gd_predictor_for_target(&predictor, &plan->target, err);
  if (status == GD_OK)
    status =
        gd_trial_predict(&plan->model, &plan->options, &predictor, &plan->trial, &prediction, err);
  gd_predictor_deinit(&predictor);
  return status;
}

enum gpd_status gpd_plan_make(const struct gpd_model *model, const struct gpd_plan_options *options,
                              struct gpd_plan **plan, struct gpd_error *err) {
  static const struct gpd_plan_options defaults = {0};
  GD_API_NEEDS(model, err);
  GD_API_NEEDS(plan, err);
  struct gd_error why = {0};
  struct gpd_plan *made = gd_mem_alloc(1, sizeof *made);
  enum gd_status status = GD_OK;
  if (!made) {
    status = gd_nomem(&why, "before the plan");
  } else {
    made->model = model->model;
    made->precision_given = model->precision_given;
    status = make(made, options ? options : &defaults, &why);
  }
  if (status == GD_OK)
    *plan = made;
  else
    gpd_plan_free(made);
  return gd_api_result(status, &why, err);
}

void gpd_plan_free(struct gpd_plan *plan) {
  if (plan)
    gd_hw_deinit(&plan->hw);
  gd_mem_free(plan);
}

void gpd_plan_describe(const struct gpd_plan *plan, struct gpd_plan_info *info) {
  if (!info)
    return;
  *info = (struct gpd_plan_info){0};
  if (!plan)
    return;
  const struct gd_trial *trial = &plan->trial;
  *info = (struct gpd_plan_info){.feasible = trial->status != GD_TRIAL_INFEASIBLE,
                                 .ranks = trial->ranks,
                                 .micro_batch = trial->micro_batch,
                                 .accumulation = trial->accumulation,
                                 .device_bytes = trial->peak_bytes,
                                 .host_bytes = trial->host_bytes,
                                 .device_limit_bytes = trial->device_limit_bytes,
                                 .host_limit_bytes = trial->host_limit_bytes,
                                 .precision = gd_precision_name(trial->precision),
                                 .precision_substituted = trial->precision_substituted};
  snprintf(info->reason, sizeof info->reason, "%s", trial->reason);
  snprintf(info->method, sizeof info->method, "%s", trial->method);
  snprintf(info->device, sizeof info->device, "%s", trial->device);
}

static enum gd_status predict(const struct gpd_plan *plan, struct gd_predictor *predictor,
                              struct gpd_prediction *to, struct gd_error *err) {
  struct gd_prediction found = {0};
  struct gd_trial trial = {0};
  if (plan->trial.status == GD_TRIAL_INFEASIBLE)
    return gd_fail(err, gd_trial_need(&plan->trial).device ? GD_NOMEM_DEVICE : GD_NOMEM_HOST, "%s",
                   plan->trial.reason);
  if (plan->has_target) {
    GD_TRY(gd_predictor_for_target(predictor, &plan->target, err));
  } else {
    struct gd_place here;
    GD_TRY(gd_place_find("cpu", &(struct gd_backend_options){.threads = plan->options.threads},
                         &here, err));
    GD_TRY(gd_predictor_for_machine(predictor, &here.info, 1, err));
  }
  struct gd_trial_options options = plan->options;
  options.micro_batch = GD_MICRO_BATCH_FIXED; /* what gpd_plan_describe says */
  options.micro_batch_size = plan->trial.micro_batch;
  GD_TRY(gd_trial_predict(&plan->model, &options, predictor, &trial, &found, err));
  double peak = gd_predictor_peak(predictor, trial.precision, plan->method.tf32) * trial.ranks;
  *to = (struct gpd_prediction){.calibrated = found.validated,
                                .micro_step_s = found.micro_step_s,
                                .update_s = found.update_s,
                                .step_s = found.step_s,
                                .days = found.days,
                                .days_low = found.days_low,
                                .days_high = found.days_high,
                                .samples_per_s = (double)plan->model.recipe.batch / found.step_s,
                                .mfu = peak > 0 ? trial.model_flops_per_step / found.step_s / peak
                                                : 0};
  char basis[GD_PREDICTOR_BASIS];
  snprintf(to->basis, sizeof to->basis, "%s", gd_predictor_basis(predictor, found.of, basis));
  return GD_OK;
}

enum gpd_status gpd_plan_predict(const struct gpd_plan *plan, struct gpd_prediction *prediction,
                                 struct gpd_error *err) {
  GD_API_NEEDS(plan, err);
  GD_API_NEEDS(prediction, err);
  struct gd_error why = {0};
  struct gd_predictor predictor = {0};
  enum gd_status status = predict(plan, &predictor, prediction, &why);
  gd_predictor_deinit(&predictor);
  return gd_api_result(status, &why, err);
}
