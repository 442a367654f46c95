/*
 * Days by simulation (src/predict): the methods of the search space planned for the machines' GPUs,
 * and for each machine the fastest of those that fit. A catalogue has dozens of machines, and a
 * plan of a large model takes tens of milliseconds, so machines with as many GPUs are planned
 * together: what a graph needs is found once for all of them. The methods that win where memory is
 * not short are tried first, and all others only on machines where none of these fits.
 */
#include <stdio.h>
#include <stdlib.h>

#include "hw/estimate.h"
#include "money/money_int.h"
#include "search/plans.h"

/* A machine whose days are asked for. */
struct wanted {
  struct gd_money_option *option;
  struct gd_target target;
  struct gd_predictor predictor;
};

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

static void set_time(const struct gd_times_context *context, const struct wanted *wanted,
                     const struct gd_trial_target *found) {
  const struct gd_prediction *prediction = &found->prediction;
  const struct gd_target *target = &wanted->target;
  struct gd_time *time = &wanted->option->time;
  char basis[GD_PREDICTOR_BASIS];
  double peak_flops = gd_estimate_peak(target->gpu, found->trial.precision, GD_PEAKS_DATASHEET);
  time->state = GD_TIME_KNOWN;
  time->days = prediction->days;
  time->days_low = prediction->days_low;
  time->days_high = prediction->days_high;
  if (peak_flops > 0)
    time->share =
        gd_estimate_days(context->work->train_flops, peak_flops, target->count) / prediction->days;
  snprintf(time->method, sizeof time->method, "%s", found->trial.method);
  bool runs = target->gpu->compute_capability >= GD_GPU_OLDEST;
  snprintf(time->source, sizeof time->source, "%.540s; +-%.0f %%%s",
           gd_predictor_basis(&wanted->predictor, prediction->of, basis), 100 * prediction->error,
           runs ? "" : "; for comparison only: the engine needs compute capability 8.0");
}

/* What the points say of the machines: the fastest that fits, or that none of all methods does. */
static void take_points(const struct gd_times_context *context, const struct wanted *wanted,
                        int count, const struct gd_plan_family *families, int n_families,
                        bool first) {
  for (int i = 0; i < count; i++) {
    const struct gd_trial_target *best = NULL;
    bool planned = false;
    for (int j = 0; j < n_families; j++) {
      const struct gd_trial_target *found = &families[j].targets[i];
      planned = planned || found->status == GD_OK;
      if (found->status == GD_OK && found->prediction.known &&
          (!best || found->prediction.days < best->prediction.days))
        best = found;
    }
    if (best)
      set_time(context, &wanted[i], best);
    else if (planned && !first)
      wanted[i].option->time.state = GD_TIME_INFEASIBLE;
  }
}

/* Plans methods on machines that have as many GPUs each, in the order of their memory. */
static enum gd_status try_methods(const struct gd_times_context *context,
                                  const struct wanted *wanted, int count, bool first,
                                  struct gd_error *err) {
  struct gd_method methods[GD_METHODS_MOST];
  struct gd_plan_family families[GD_METHODS_MOST];
  int n_methods = methods_of(wanted[0].target.count > 1, first, methods);
  struct gd_trial_target *targets = gd_mem_alloc((size_t)(n_methods * count) + 1, sizeof *targets);
  if (!targets)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory before the prediction");
  for (int i = 0; i < n_methods; i++) {
    families[i] = (struct gd_plan_family){
        .model = context->asked->model,
        .options = {.backend = "cuda", .method = methods[i], .ranks = wanted[0].target.count},
        .targets = targets + (size_t)i * (size_t)count,
        .count = count};
    for (int j = 0; j < count; j++) {
      families[i].targets[j].target = &wanted[j].target;
      families[i].targets[j].predictor = &wanted[j].predictor;
    }
  }
  enum gd_status status = gd_plan_families(families, n_methods, err);
  if (status == GD_OK)
    take_points(context, wanted, count, families, n_methods, first);
  gd_mem_free(targets);
  return status;
}

/* By GPUs, then by memory. */
static int compare_wanted(const void *left, const void *right) {
  const struct wanted *a = left, *b = right;
  if (a->target.count != b->target.count)
    return a->target.count < b->target.count ? -1 : 1;
  if (a->target.memory_bytes != b->target.memory_bytes)
    return a->target.memory_bytes < b->target.memory_bytes ? -1 : 1;
  return 0;
}

/* Machines with as many GPUs; those that have no answer come first again afterwards. */
static enum gd_status predict_alike(const struct gd_times_context *context, struct wanted *wanted,
                                    int count, struct gd_error *err) {
  int left = 0;
  GD_TRY(try_methods(context, wanted, count, true, err));
  for (int i = 0; i < count; i++)
    if (wanted[i].option->time.state == GD_TIME_UNKNOWN) {
      struct wanted other = wanted[left];
      wanted[left++] = wanted[i];
      wanted[i] = other;
    }
  return left > 0 ? try_methods(context, wanted, left, false, err) : GD_OK;
}

static enum gd_status predict_all(const struct gd_times_context *context, struct wanted *wanted,
                                  int count, struct gd_error *err) {
  const struct gd_money_asked *asked = context->asked;
  qsort(wanted, (size_t)count, sizeof *wanted, compare_wanted);
  for (int i = 0, next; i < count; i = next) {
    for (next = i; next < count && wanted[next].target.count == wanted[i].target.count;)
      next++;
    if (asked->progress)
      asked->progress(asked->progress_user, "comparing machines", (double)i / count, -1);
    GD_TRY(predict_alike(context, wanted + i, next - i, err));
  }
  return GD_OK;
}

/* What cannot be planned for one machine is no answer for it, and none for the others. *count are
   before it. */
static enum gd_status prepare(const struct gd_times_context *context,
                              struct gd_money_option *option, struct wanted *wanted, int *count,
                              struct gd_error *err) {
  const struct gd_machine *machine = option->machine;
  struct gd_error error = {0};
  bool rented = !machine->build && !machine->file; /* made up by the table, in no catalogue */
  wanted->option = option;
  enum gd_status status =
      gd_hw_target(context->asked->hw, option->gpu->name, machine->count, 1,
                   rented ? NULL : machine->name, NULL, &wanted->target, &error);
  const struct wanted *like = NULL;
  for (int i = 1; i <= *count && !like; i++)
    like = wanted[-i].target.gpu == wanted->target.gpu ? &wanted[-i] : NULL;
  if (status == GD_OK && like)
    status = gd_predictor_like(&wanted->predictor, &like->predictor, &wanted->target, &error);
  else if (status == GD_OK)
    status = gd_predictor_for_target(&wanted->predictor, &wanted->target, &error);
  if (status == GD_OK)
    (*count)++;
  else
    gd_predictor_deinit(&wanted->predictor);
  if (status == GD_OK || status == GD_BAD_INPUT || status == GD_UNSUPPORTED)
    return GD_OK;
  gd_fail_at(err, status, error.file, error.line, "%s", error.text);
  return status;
}

enum gd_status gd_times_predict(const struct gd_times_context *context,
                                struct gd_money_option *options, int count, struct gd_error *err) {
  struct wanted *wanted = gd_mem_alloc((size_t)count + 1, sizeof *wanted);
  enum gd_status status = GD_OK;
  int n_wanted = 0;
  if (!wanted)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory before the prediction");
  for (int i = 0; i < count && status == GD_OK; i++)
    if (options[i].time.state == GD_TIME_UNKNOWN)
      status = prepare(context, &options[i], &wanted[n_wanted], &n_wanted, err);
  if (status == GD_OK && n_wanted > 0)
    status = predict_all(context, wanted, n_wanted, err);
  for (int i = 0; i < n_wanted; i++)
    gd_predictor_deinit(&wanted[i].predictor);
  gd_mem_free(wanted);
  return status;
}
