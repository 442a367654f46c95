/*
 * Predicted trials; see predict_trial.h.
 */
#include "predict/predict_trial.h"

#include <math.h>
#include <string.h>

#include "store/store.h"

/* No interval of a GPU reaches below what the FLOPs that run take at the peak: recomputed ones
   count, masked scores of causal attention, which are skipped, do not. */
static void end_at_peak(const struct gd_predictor *predictor, const struct gd_trial *trial,
                        const struct gd_method *method, struct gd_prediction *p) {
  bool known = predictor->rates.multiprocessors > 0; /* of a CPU it is measured, or a guess */
  double peak = trial->ranks * gd_predictor_peak(predictor, trial->precision, method->tf32);
  double least_s = peak > 0 ? fmin(trial->exec_flops_per_step / peak, p->step_s) : 0;
  if (!known || !(p->step_s > 0) || p->low_s >= least_s)
    return;
  p->low_s = least_s;
  p->ends_at_peak = true;
  p->days_low = p->days * least_s / p->step_s;
}

/* The times of a plan, and of its smaller last micro-step where there is one. */
static enum gd_status predict_plan(struct gd_planner *planner,
                                   const struct gd_trial_options *options,
                                   const struct gd_predictor *predictor,
                                   const struct gd_trial *trial, const struct gd_candidate *full,
                                   int64_t steps, struct gd_prediction *prediction,
                                   struct gd_error *err) {
  struct gd_candidate rest = {0};
  enum gd_status status = trial->remainder ? gd_planner_remainder(planner, &rest, err) : GD_OK;
  if (status == GD_OK)
    status = gd_predict(predictor, &full->plan, trial->remainder ? &rest.plan : NULL,
                        &(struct gd_step_shape){.accumulation = trial->accumulation,
                                                .steps = steps,
                                                .of = gd_point_class_of(&options->method)},
                        prediction, err);
  if (status == GD_OK)
    end_at_peak(predictor, trial, &options->method, prediction);
  gd_candidate_deinit(&rest);
  return status;
}

/* What is planned and predicted. */
struct choice {
  struct gd_trial trial;
  struct gd_candidate full;
  struct gd_prediction prediction;
};

/*
 * The largest useful micro-batch is not always the fastest: half of it may have the memory to save
 * what it recomputes, or suit the GPU better; so may a quarter, where half was faster. The fastest
 * by prediction takes the place of trial, full and prediction, so that more memory is not slower.
 */
static enum gd_status try_smaller(struct gd_planner *planner,
                                  const struct gd_trial_options *options,
                                  const struct gd_predictor *predictor, struct gd_trial *trial,
                                  struct gd_candidate *full, struct gd_prediction *prediction,
                                  struct gd_error *err) {
  enum { HALVINGS = 2 };
  const struct gd_trial largest = *trial;
  enum gd_status status = GD_OK;
  for (int i = 1; i <= HALVINGS && status == GD_OK && prediction->known; i++) {
    int64_t size = gd_planner_smaller_size(options, &largest, i);
    struct choice other = {0};
    if (size == 0)
      break;
    status = gd_planner_choose_size(planner, options, size, &other.trial, &other.full, err);
    if (status == GD_OK && other.trial.status == GD_TRIAL_PLANNED)
      status = predict_plan(planner, options, predictor, &other.trial, &other.full,
                            gd_planner_model(planner)->recipe.steps, &other.prediction, err);
    if (status == GD_OK && other.prediction.known && other.prediction.step_s < prediction->step_s) {
      gd_planner_take(planner, options, trial);
      gd_planner_return(planner, full);
      gd_candidate_move(full, &other.full);
      *trial = other.trial;
      *prediction = other.prediction;
    } else {
      if (status == GD_OK)
        gd_planner_return(planner, &other.full);
      i = HALVINGS; /* where half is slower, so is a quarter */
    }
    gd_candidate_deinit(&other.full);
    gd_planner_take(planner, options, trial);
  }
  return status;
}

enum gd_status gd_planner_predict(struct gd_planner *planner,
                                  const struct gd_trial_options *options,
                                  const struct gd_predictor *predictor, struct gd_trial *trial,
                                  struct gd_prediction *prediction, struct gd_error *err) {
  struct gd_candidate full = {0};
  *prediction = (struct gd_prediction){0};
  enum gd_status status = gd_planner_choose(planner, options, trial, &full, err);
  if (status == GD_OK && trial->status == GD_TRIAL_PLANNED && predictor)
    status = predict_plan(planner, options, predictor, trial, &full,
                          gd_planner_model(planner)->recipe.steps, prediction, err);
  if (status == GD_OK && predictor && (options->target || predictor->calibrated))
    status = try_smaller(planner, options, predictor, trial, &full, prediction, err);
  if (status == GD_OK) /* the next device may have the same plan */
    gd_planner_return(planner, &full);
  gd_candidate_deinit(&full);
  return status;
}

enum gd_status gd_trial_predict(const struct gd_model *model,
                                const struct gd_trial_options *options,
                                const struct gd_predictor *predictor, struct gd_trial *trial,
                                struct gd_prediction *prediction, struct gd_error *err) {
  struct gd_planner *planner = gd_planner_new(model);
  enum gd_status status =
      planner ? gd_planner_predict(planner, options, predictor, trial, prediction, err)
              : gd_nomem(err, "before the first plan");
  gd_planner_free(planner);
  return status;
}

enum gd_status gd_trial_options_of_stored(const struct gd_trial *stored,
                                          const struct gd_target *target, struct gd_model *model,
                                          struct gd_trial_options *options, struct gd_error *err) {
  char recipe[GD_HASH_TEXT];
  *options = (struct gd_trial_options){.backend = stored->backend,
                                       .target = target,
                                       .threads = stored->threads,
                                       .ranks = stored->ranks,
                                       .nodes = stored->nodes,
                                       .micro_batch = GD_MICRO_BATCH_FIXED,
                                       .micro_batch_size = stored->micro_batch,
                                       .precision = &stored->precision,
                                       .device_limit_bytes = INT64_MAX / 4,
                                       .host_limit_bytes = INT64_MAX / 4,
                                       .save_limit_bytes = stored->peak_bytes};
  GD_TRY(gd_method_parse(stored->method, &options->method, err));
  GD_TRY(gd_recipe_of_trial(stored, model, recipe, err));
  if (!recipe[0] || (stored->recipe[0] && strcmp(stored->recipe, recipe) != 0))
    return gd_fail(err, GD_UNSUPPORTED, "the stored trial of %s is not one of the preset",
                   stored->model);
  return GD_OK;
}

enum gd_status gd_trial_predict_stored(const struct gd_trial *stored,
                                       const struct gd_target *target,
                                       const struct gd_predictor *predictor,
                                       struct gd_prediction *prediction, struct gd_error *err) {
  struct gd_model model;
  struct gd_trial planned;
  struct gd_trial_options options;
  GD_TRY(gd_trial_options_of_stored(stored, target, &model, &options, err));
  return gd_trial_predict(&model, &options, predictor, &planned, prediction, err);
}
