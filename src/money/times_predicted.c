/*
 * Days by simulation (src/predict): the methods of the search space planned for the machines' GPUs,
 * and for each machine the fastest of those that fit. A catalogue has dozens of machines, and a
 * plan of a large model takes tens of milliseconds, so machines with as many GPUs are planned
 * together: what a graph needs is found once for all of them. The methods that win where memory is
 * not short come first; those that buy memory with time follow where it is what keeps the
 * micro-batch small, and all others where none of these fits but what offloads.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "hw/estimate.h"
#include "money/money_int.h"
#include "predict/interval.h"
#include "search/points.h"

/* A machine whose days are asked for. */
struct wanted {
  struct gd_money_option *option;
  struct gd_target target;
  struct gd_predictor predictor;
  bool fits;     /* some method that offloads nothing */
  bool is_short; /* of memory: with more of it the micro-batch would be larger */
};

enum round { ROUND_PLAIN, ROUND_SHORT, ROUND_ALL };

/* By round, and by whether there are several GPUs; on one, all shardings are the same points. */
enum { ROUND_MOST = 3 };
static const char *const round_methods[ROUND_ALL][2][ROUND_MOST] = {
    [ROUND_PLAIN] = {{"free-lunch"}, {"free-lunch", "free-lunch+zero1", "free-lunch+fsdp2"}},
    [ROUND_SHORT] = {{"free-lunch+ckpt", "free-lunch+zero1+offload"},
                     {"free-lunch+ckpt+zero1", "free-lunch+zero1+offload"}},
};

static int methods_of(bool several, enum round round, struct gd_method methods[GD_METHODS_MOST]) {
  int count = 0;
  if (round == ROUND_ALL)
    return gd_method_space(several, methods);
  for (int i = 0; i < ROUND_MOST && round_methods[round][several][i]; i++)
    if (gd_method_parse(round_methods[round][several][i], &methods[count], NULL) == GD_OK)
      count++;
  return count;
}

/* Whether twice the micro-batch would be neither too long for that GPU nor more than its part of
   the batch: only memory keeps it from that. */
static bool is_short(const struct gd_model *model, const struct wanted *wanted,
                     const struct gd_trial *trial) {
  struct gd_caps caps;
  gd_target_caps(&wanted->target, &caps);
  double twice = 2 * (double)trial->micro_batch;
  double flops = trial->model_flops_per_step / (double)model->recipe.batch;
  return twice <= (double)model->recipe.batch / trial->ranks &&
         (caps.enough_flops <= 0 || twice * flops <= caps.enough_flops);
}

static void set_network(struct gd_time *time, const struct gd_target *target) {
  time->network.nodes = target->nodes;
  if (!target->network)
    return;
  time->network.name = target->network->name;
  time->network.like = target->machine ? target->machine->name : NULL;
  time->network.cards = target->network_cards;
  time->network.assumed = target->network_assumed || target->cards_assumed;
}

static void set_time(const struct gd_times_context *context, const struct wanted *wanted,
                     const struct gd_point *found) {
  const struct gd_prediction *prediction = &found->prediction;
  const struct gd_target *target = &wanted->target;
  struct gd_time *time = &wanted->option->time;
  char basis[GD_PREDICTOR_BASIS], interval[GD_INTERVAL_TEXT];
  double peak_flops = gd_estimate_peak(target->gpu, found->trial.precision, GD_PEAKS_DATASHEET);
  time->state = GD_TIME_KNOWN;
  set_network(time, target);
  time->days = prediction->days;
  time->days_low = prediction->days_low;
  time->days_high = prediction->days_high;
  time->gpu_power_w = prediction->power_w;
  if (peak_flops > 0)
    time->share = gd_estimate_days(context->work->train_flops, peak_flops, target->count) /
                  prediction->days *
                  fmin(1, found->trial.exec_flops_per_step / found->trial.model_flops_per_step);
  snprintf(time->method, sizeof time->method, "%s", found->trial.method);
  bool runs = target->gpu->compute_capability >= GD_GPU_OLDEST;
  char other[48] = ""; /* what the GPU computes in instead */
  if (found->trial.precision_substituted)
    snprintf(other, sizeof other, "; %s runs as %s",
             gd_precision_name(context->asked->model->recipe.precision),
             gd_precision_name(found->trial.precision));
  snprintf(time->source, sizeof time->source, "%.740s; interval of 90 %% %s%s%s",
           gd_predictor_basis(&wanted->predictor, prediction->of, basis),
           gd_interval_say(prediction->error, interval), other,
           runs ? "" : "; for comparison only: the engine needs compute capability 8.0");
}

/* What the points say of the machines, which change first among them: the one that plan answers
   with, unless there is an answer already that is as fast; or that none of all methods fits. */
static void take_points(const struct gd_times_context *context, struct wanted *wanted, int count,
                        const struct gd_points *points, enum round round) {
  for (int i = 0; i < count; i++) {
    struct gd_time *time = &wanted[i].option->time;
    const struct gd_point *best = gd_points_best_of(&points->all[i], points->count - i, count);
    bool planned = false;
    for (int j = i; j < points->count; j += count) {
      const struct gd_point *found = &points->all[j];
      planned = planned || found->status == GD_OK;
      wanted[i].fits = wanted[i].fits || (found->status == GD_OK && found->prediction.known &&
                                          !found->options.method.offload);
    }
    if (best)
      wanted[i].is_short = is_short(context->asked->model, &wanted[i], &best->trial);
    /* What earlier rounds found is simpler. */
    if (best &&
        (time->state == GD_TIME_UNKNOWN || GD_POINTS_NEAR * best->prediction.days < time->days))
      set_time(context, &wanted[i], best);
    else if (!best && planned && round == ROUND_ALL)
      time->state = GD_TIME_INFEASIBLE;
  }
}

/* Plans methods on machines that have as many GPUs each, in the order of their memory. */
static enum gd_status try_methods(const struct gd_times_context *context, struct wanted *wanted,
                                  int count, enum round round, struct gd_error *err) {
  struct gd_method methods[GD_METHODS_MOST];
  struct gd_points points = {0};
  struct gd_point_machine *machines = gd_mem_alloc((size_t)count + 1, sizeof *machines);
  if (!machines)
    return gd_nomem(err, "before the prediction");
  for (int i = 0; i < count; i++)
    machines[i] =
        (struct gd_point_machine){.target = &wanted[i].target, .predictor = &wanted[i].predictor};
  enum gd_status status = gd_points_make(
      &(struct gd_points_asked){.models = context->asked->model,
                                .n_models = 1,
                                .identities = context->identity,
                                .methods = methods,
                                .n_methods = methods_of(wanted[0].target.count > 1, round, methods),
                                .machines = machines,
                                .n_machines = count,
                                .options = {.backend = "cuda", .ranks = wanted[0].target.count}},
      &points, err);
  if (status == GD_OK)
    status = gd_points_plan_with(context->kept, points.all, points.count, err);
  if (status == GD_OK)
    status = gd_points_error(points.all, points.count, false, err);
  if (status == GD_OK)
    take_points(context, wanted, count, &points, round);
  gd_points_free(&points);
  gd_mem_free(machines);
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

/* Machines with as many GPUs; those that the next round is for come first after each. */
static enum gd_status predict_alike(const struct gd_times_context *context, struct wanted *wanted,
                                    int count, struct gd_error *err) {
  for (int round = ROUND_PLAIN; round <= ROUND_ALL && count > 0; round++) {
    int left = 0;
    GD_TRY(try_methods(context, wanted, count, (enum round)round, err));
    for (int i = 0; i < count; i++)
      if (!wanted[i].fits || (round == ROUND_PLAIN && wanted[i].is_short)) {
        struct wanted other = wanted[left];
        wanted[left++] = wanted[i];
        wanted[i] = other;
      }
    count = left;
  }
  return GD_OK;
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

void gd_money_shared_init(struct gd_money_shared *shared) {
  *shared = (struct gd_money_shared){0};
  pthread_mutex_init(&shared->mutex, NULL);
}

void gd_money_shared_deinit(struct gd_money_shared *shared) {
  for (uint32_t i = 0; i < shared->count; i++)
    gd_predictor_deinit(&shared->predictors[i].predictor);
  gd_mem_free(shared->predictors);
  gd_calibrations_free(shared->calibrations);
  pthread_mutex_destroy(&shared->mutex);
}

/* The predictor of the target's GPU; the first of its kind reads the calibration. */
static enum gd_status find_predictor(struct gd_money_shared *shared, const struct gd_target *target,
                                     const struct gd_predictor **found, struct gd_error *err) {
  for (uint32_t i = 0; i < shared->count; i++)
    if (shared->predictors[i].gpu == target->gpu) {
      *found = &shared->predictors[i].predictor;
      return GD_OK;
    }
  if (!gd_vec_reserve((void **)&shared->predictors, &shared->capacity, shared->count + 1,
                      sizeof *shared->predictors))
    return gd_nomem(err, "before the prediction");
  struct gd_times_predictor *made = &shared->predictors[shared->count];
  *made = (struct gd_times_predictor){.gpu = target->gpu};
  if (!shared->calibrations)
    GD_TRY(gd_calibrations_new(&shared->calibrations, err));
  GD_TRY(gd_predictor_by(shared->calibrations, &made->predictor, target, err));
  for (uint32_t i = 0; i < shared->count && !made->predictor.rates.memo; i++)
    (void)gd_rates_remember_with(&made->predictor.rates, &shared->predictors[i].predictor.rates);
  gd_rates_remember(&made->predictor.rates);
  shared->count++;
  *found = &made->predictor;
  return GD_OK;
}

static enum gd_status make_predictor(struct gd_money_shared *shared, struct wanted *wanted,
                                     struct gd_error *err) {
  const struct gd_predictor *like;
  pthread_mutex_lock(&shared->mutex);
  enum gd_status status = find_predictor(shared, &wanted->target, &like, err);
  if (status == GD_OK)
    status = gd_predictor_like(&wanted->predictor, like, &wanted->target, err);
  pthread_mutex_unlock(&shared->mutex);
  return status;
}

enum gd_status gd_times_target(const struct gd_times_context *context,
                               const struct gd_money_option *option, struct gd_target *target,
                               struct gd_error *err) {
  const struct gd_machine *machine = option->machine;
  bool rented = !machine->build && !machine->file; /* made up by the table, in no catalogue */
  int nodes = rented && machine->count > GD_MONEY_MOST_RENTED ? 0 : 1; /* 0: as few as hold them */
  return gd_hw_target(context->asked->hw, option->gpu->name, machine->count, nodes,
                      rented ? NULL : machine->name, NULL, target, err);
}

/* What cannot be planned for one machine is no answer for it, and none for the others. */
static enum gd_status skip_refused(enum gd_status status, const struct gd_error *error,
                                   struct gd_error *err) {
  if (status == GD_OK || status == GD_BAD_INPUT || status == GD_UNSUPPORTED)
    return GD_OK;
  gd_fail_at(err, status, error->file, error->line, "%s", error->text);
  return status;
}

/* *count are before it. */
static enum gd_status prepare(const struct gd_times_context *context,
                              struct gd_money_option *option, struct wanted *wanted, int *count,
                              struct gd_error *err) {
  struct gd_error error = {0};
  wanted->option = option;
  enum gd_status status = gd_times_target(context, option, &wanted->target, &error);
  if (status == GD_OK)
    status = make_predictor(context->asked->shared, wanted, &error);
  if (status == GD_OK)
    (*count)++;
  else
    gd_predictor_deinit(&wanted->predictor);
  return skip_refused(status, &error, err);
}

static enum gd_status predict_stack(const struct gd_times_context *context,
                                    struct gd_money_option *option, struct gd_error *err) {
  const struct gd_money_asked *asked = context->asked;
  struct gd_error error = {0};
  struct gd_target target;
  pthread_mutex_lock(&asked->shared->mutex);
  enum gd_status status = gd_times_target(context, option, &target, &error);
  if (status == GD_OK)
    status =
        asked->stack->predict(asked->stack->user, asked->model, &target, &option->time, &error);
  pthread_mutex_unlock(&asked->shared->mutex);
  struct gd_time *time = &option->time;
  double peak_flops = 0;
  enum gd_precision precision;
  bool substituted;
  if (time->state == GD_TIME_KNOWN) {
    set_network(time, &target);
    GD_TRY(gd_estimate_precision(asked->model, option->gpu, NULL, &precision, &substituted, err));
    peak_flops = gd_estimate_peak(option->gpu, precision, GD_PEAKS_DATASHEET);
  }
  if (peak_flops > 0)
    time->share =
        gd_estimate_days(context->work->train_flops, peak_flops, target.count) / time->days;
  return skip_refused(status, &error, err);
}

static enum gd_status predict_stacks(const struct gd_times_context *context,
                                     struct gd_money_option *options, int count,
                                     struct gd_error *err) {
  const struct gd_money_asked *asked = context->asked;
  for (int i = 0; i < count; i++) {
    if (asked->progress)
      asked->progress(asked->progress_user, "comparing machines", (double)i / count, -1);
    if (options[i].time.state == GD_TIME_UNKNOWN)
      GD_TRY(predict_stack(context, &options[i], err));
  }
  return GD_OK;
}

enum gd_status gd_times_predict(struct gd_times_context *context, struct gd_money_option *options,
                                int count, struct gd_error *err) {
  if (context->asked->outline)
    return gd_times_predict_size(context, options, count, err);
  if (context->asked->stack)
    return predict_stacks(context, options, count, err);
  struct wanted *wanted = gd_mem_alloc((size_t)count + 1, sizeof *wanted);
  enum gd_status status = GD_OK;
  int n_wanted = 0;
  if (!wanted)
    return gd_nomem(err, "before the prediction");
  if (!context->kept)
    context->kept = gd_points_kept_new();
  if (!context->identity &&
      gd_model_identify(context->asked->model, &context->found, NULL) == GD_OK)
    context->identity = &context->found;
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
