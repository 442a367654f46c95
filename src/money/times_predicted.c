/*
 * Days by simulation (src/predict): the methods of the search space planned for the machine's GPUs,
 * and the fastest of those that fit. Planning takes tens of milliseconds a point, and a catalogue
 * has dozens of machines, so the methods that win where memory is not short are tried first, and
 * all others only where none of these fits.
 */
#include <stdio.h>

#include "hw/estimate.h"
#include "money/money_int.h"
#include "search/plans.h"

/* On one device they are the same points without sharding. */
static const char *const first_methods[2][3] = {
    {"free-lunch", "free-lunch+ckpt"},
    {"free-lunch", "free-lunch+zero1", "free-lunch+ckpt+zero1"},
};

static int methods_of(bool several, bool first, struct gd_method methods[GD_METHODS_MOST]) {
  int count = 0;
  if (!first)
    return gd_method_space(several, methods);
  for (int i = 0; i < 3 && first_methods[several][i]; i++)
    if (gd_method_parse(first_methods[several][i], &methods[count], NULL) == GD_OK)
      count++;
  return count;
}

static void set_time(const struct gd_times_context *context, const struct gd_predictor *predictor,
                     const struct gd_target *target, const struct gd_plan_point *point,
                     struct gd_time *time) {
  const struct gd_prediction *prediction = &point->prediction;
  double peak_flops = gd_estimate_peak(target->gpu, point->trial.precision, GD_PEAKS_DATASHEET);
  time->state = GD_TIME_KNOWN;
  time->days = prediction->days;
  time->days_low = prediction->days_low;
  time->days_high = prediction->days_high;
  if (peak_flops > 0)
    time->share =
        gd_estimate_days(context->work->train_flops, peak_flops, target->count) / prediction->days;
  snprintf(time->method, sizeof time->method, "%s", point->trial.method);
  snprintf(time->source, sizeof time->source, "%.600s; +-%.0f %%", predictor->basis,
           100 * predictor->error);
}

static bool is_known_misfit(const struct gd_times_misfits *misfits, const struct gd_target *target,
                            int method) {
  for (int i = 0; i < misfits->count; i++) {
    const struct gd_times_misfit *misfit = &misfits->list[i];
    if (misfit->method == method && misfit->ranks == target->count &&
        misfit->compute_capability == target->gpu->compute_capability)
      return misfit->device_bytes > target->memory_bytes ||
             misfit->host_bytes > target->host_memory_bytes;
  }
  return false;
}

static void add_misfit(struct gd_times_misfits *misfits, const struct gd_target *target,
                       const struct gd_plan_point *point) {
  const int most = sizeof misfits->list / sizeof *misfits->list;
  if (point->trial.status == GD_TRIAL_INFEASIBLE && misfits->count < most)
    misfits->list[misfits->count++] =
        (struct gd_times_misfit){.compute_capability = target->gpu->compute_capability,
                                 .ranks = target->count,
                                 .method = point->number,
                                 .device_bytes = point->trial.peak_bytes,
                                 .host_bytes = point->trial.host_bytes};
}

/* Tries methods; *time stays as it is where none fits. */
static enum gd_status try_methods(const struct gd_times_context *context,
                                  const struct gd_predictor *predictor,
                                  const struct gd_target *target, bool first, struct gd_time *time,
                                  struct gd_error *err) {
  struct gd_method methods[GD_METHODS_MOST];
  int count = methods_of(target->count > 1, first, methods);
  struct gd_plan_point *points = gd_mem_alloc((size_t)count + 1, sizeof *points);
  const struct gd_plan_point *best = NULL;
  if (!points)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory before the prediction");
  int n_points = 0;
  for (int i = 0; i < count; i++) {
    if (!first && is_known_misfit(context->misfits, target, i))
      continue;
    struct gd_plan_point *point = &points[n_points++];
    point->model = context->asked->model;
    point->number = i;
    point->options = (struct gd_trial_options){
        .backend = "cuda", .target = target, .method = methods[i], .ranks = target->count};
  }
  enum gd_status status = gd_plan_points(points, n_points, predictor, err);
  for (int i = 0; i < n_points && status == GD_OK; i++) {
    if (!first)
      add_misfit(context->misfits, target, &points[i]);
    bool good = points[i].trial.status == GD_TRIAL_PLANNED && points[i].prediction.known;
    if (good && (!best || points[i].prediction.days < best->prediction.days))
      best = &points[i];
  }
  if (best)
    set_time(context, predictor, target, best, time);
  gd_mem_free(points);
  return status;
}

static enum gd_status predict(const struct gd_times_context *context,
                              const struct gd_target *target, struct gd_time *time,
                              struct gd_error *err) {
  struct gd_predictor predictor = {0};
  enum gd_status status = gd_predictor_for_target(&predictor, target, err);
  if (status == GD_OK)
    status = try_methods(context, &predictor, target, true, time, err);
  if (status == GD_OK && time->state != GD_TIME_KNOWN)
    status = try_methods(context, &predictor, target, false, time, err);
  if (status == GD_OK && time->state != GD_TIME_KNOWN)
    time->state = GD_TIME_INFEASIBLE;
  gd_predictor_deinit(&predictor);
  return status;
}

enum gd_status gd_times_predict(const struct gd_times_context *context,
                                const struct gd_machine *machine, const struct gd_gpu *gpu,
                                struct gd_time *time, struct gd_error *err) {
  struct gd_error error = {0};
  struct gd_target target;
  bool rented = !machine->build && !machine->file; /* made up by the table, in no catalogue */
  enum gd_status status = gd_hw_target(context->asked->hw, gpu->name, machine->count, 1,
                                       rented ? NULL : machine->name, NULL, &target, &error);
  if (status == GD_OK)
    status = predict(context, &target, time, &error);
  /* What cannot be planned for one machine is no answer for it, and none for the others. */
  if (status == GD_OK || status == GD_BAD_INPUT || status == GD_UNSUPPORTED)
    return GD_OK;
  gd_fail_at(err, status, error.file, error.line, "%s", error.text);
  return status;
}
