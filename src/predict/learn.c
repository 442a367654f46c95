/*
 * Three numbers from whole steps; see learn.h. The sum over models of the mean absolute logarithm
 * of predicted over measured is made least, one number after the other: a trial that is off for a
 * reason of its own then counts no more than any.
 */
#include "predict/learn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compare.h"
#include "predict/predict_trial.h"

enum { ROUNDS = 5, TRIES = 7 };

struct lesson {
  char model[128];
  struct gd_candidate plan, last; /* of the trial's micro-steps; last: of a smaller last one */
  bool has_last;
  bool offload;
  enum gd_point_class of;
  int64_t accumulation;
  int threads;
  double measured_s;
  double off; /* log of predicted over measured, as the numbers are */
};

struct gd_learner {
  struct lesson **lessons; /* a plan points to its graph: they stay where they are */
  uint32_t count, capacity;
  int disturbed;
};

struct gd_learner *gd_learner_new(void) {
  return gd_mem_alloc(1, sizeof(struct gd_learner));
}

static void lesson_free(struct lesson *lesson) {
  gd_candidate_deinit(&lesson->plan);
  gd_candidate_deinit(&lesson->last);
  gd_mem_free(lesson);
}

void gd_learner_free(struct gd_learner *learner) {
  if (!learner)
    return;
  for (uint32_t i = 0; i < learner->count; i++)
    lesson_free(learner->lessons[i]);
  gd_mem_free(learner->lessons);
  gd_mem_free(learner);
}

int gd_learner_count(const struct gd_learner *learner) {
  return (int)learner->count;
}

/* --- plans --------------------------------------------------------------------------------- */

static enum gd_status plan_lesson(struct lesson *lesson, const struct gd_trial *trial,
                                  const struct gd_target *target, struct gd_error *err) {
  struct gd_model model;
  struct gd_trial planned;
  struct gd_trial_options options;
  GD_TRY(gd_trial_options_of_stored(trial, target, &model, &options, err));
  struct gd_planner *planner = gd_planner_new(&model);
  if (!planner)
    return gd_nomem(err, "before the first plan");
  enum gd_status status = gd_planner_choose(planner, &options, &planned, &lesson->plan, err);
  lesson->has_last = status == GD_OK && planned.remainder > 0;
  if (lesson->has_last)
    status = gd_planner_remainder(planner, &lesson->last, err);
  lesson->accumulation = planned.accumulation;
  lesson->offload = options.method.offload;
  lesson->of = gd_point_class_of(&options.method);
  gd_planner_free(planner);
  return status;
}

/* Whether other programs had CPUs that its time depends on. */
static bool is_disturbed(const struct gd_rates *rates, const struct gd_trial *trial) {
  bool on_cpus = rates->multiprocessors == 0 || strstr(trial->method, "offload");
  return on_cpus && trial->busy_share > GD_RATES_QUIET;
}

/* Peaks are measured or of a data sheet, and clocks vary; sums in fp16 count as fp32 may. Above
   twice the fastest unit nothing was measured on that device. */
static enum gd_status check_speed(const struct gd_rates *rates, const struct gd_trial *trial,
                                  struct gd_error *err) {
  double peak = 0, speed = trial->exec_flops_per_step / trial->step_s;
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    peak = fmax(peak, rates->flops[i]);
  if (speed <= 2 * peak)
    return GD_OK;
  return gd_fail(err, GD_BAD_INPUT,
                 "a step of %s in %.3g s (step_s) is %.3g FLOP/s, and the peak of the %s is %.3g: "
                 "this was not measured on it",
                 trial->model, trial->step_s, speed, rates->device, peak);
}

enum gd_status gd_learner_add(struct gd_learner *learner, const struct gd_rates *rates,
                              const struct gd_trial *trial, struct gd_error *err) {
  struct gd_hw hw = {0};
  struct gd_target target, *on = NULL;
  struct gd_error why = {0};
  if (trial->status != GD_TRIAL_OK || trial->ranks > 1 || trial->step_s <= 0 ||
      strcmp(trial->device, rates->device) != 0)
    return GD_OK;
  if (is_disturbed(rates, trial)) {
    learner->disturbed++;
    return GD_OK;
  }
  GD_TRY(check_speed(rates, trial, err));
  if (!gd_vec_reserve((void **)&learner->lessons, &learner->capacity, learner->count + 1,
                      sizeof(struct lesson *)))
    return gd_nomem(err, "while trials are planned again");
  struct lesson *lesson = gd_mem_alloc(1, sizeof *lesson);
  if (!lesson)
    return gd_nomem(err, "while trials are planned again");
  *lesson = (struct lesson){.measured_s = trial->step_s, .threads = trial->threads};
  snprintf(lesson->model, sizeof lesson->model, "%s", trial->model);
  enum gd_status status = GD_OK;
  if (rates->multiprocessors > 0) {
    status = gd_hw_load(&hw, err);
    if (status == GD_OK)
      status = gd_hw_target(&hw, rates->gpu, 1, 0, NULL, NULL, &target, err);
    on = &target;
  }
  if (status == GD_OK)
    status = plan_lesson(lesson, trial, on, &why);
  gd_hw_deinit(&hw);
  if (status == GD_OK) {
    learner->lessons[learner->count++] = lesson;
    return GD_OK;
  }
  lesson_free(lesson);
  /* A trial of a model that is not here says nothing; without memory nothing can go on. */
  return why.status == GD_ENVIRONMENT ? gd_fail(err, why.status, "%s", why.text)
         : why.status != GD_OK        ? GD_OK
                                      : status;
}

/* --- the fit ------------------------------------------------------------------------------- */

static enum gd_status predict(const struct lesson *lesson, struct gd_rates *rates, double *step_s,
                              struct gd_error *err) {
  struct gd_simulated micro_step, last, update;
  const struct gd_plan *plan = &lesson->plan.plan;
  if (rates->multiprocessors > 0 && lesson->threads > 0)
    rates->cpus = lesson->threads;
  GD_TRY(gd_simulate(plan, GD_PROGRAM_MICRO_STEP, rates, &micro_step, err));
  GD_TRY(gd_simulate(plan, GD_PROGRAM_UPDATE, rates, &update, err));
  last = micro_step;
  if (lesson->has_last || plan->has_last)
    GD_TRY(gd_simulate(lesson->has_last ? &lesson->last.plan : plan, GD_PROGRAM_LAST_MICRO_STEP,
                       rates, &last, err));
  *step_s = (double)(lesson->accumulation - 1) * micro_step.seconds + last.seconds + update.seconds;
  return GD_OK;
}

static int trials_of(const struct gd_learner *learner, const char *model) {
  int count = 0;
  for (uint32_t i = 0; i < learner->count; i++)
    count += strcmp(learner->lessons[i]->model, model) == 0;
  return count;
}

static bool counts(const struct lesson *lesson, const char *without) {
  return !without || strcmp(lesson->model, without) != 0;
}

/* What a model's trials without offload are off by, on average: that is no fault of its host. */
static double off_alone(const struct gd_learner *learner, const char *model) {
  double sum = 0;
  int count = 0;
  for (uint32_t i = 0; i < learner->count; i++) {
    const struct lesson *lesson = learner->lessons[i];
    if (strcmp(lesson->model, model) != 0 || lesson->of != GD_POINT_FREE_LUNCH)
      continue;
    sum += lesson->off;
    count++;
  }
  return count > 0 ? sum / count : 0;
}

/* Over all trials but those of a model; each model weighs the same. of_host: over what offload adds
   to the time of the same model without it. */
static enum gd_status error_of(const struct gd_learner *learner, struct gd_rates *rates,
                               const char *without, bool of_host, double *sum,
                               struct gd_error *err) {
  *sum = 0;
  for (uint32_t i = 0; i < learner->count; i++) {
    struct lesson *lesson = learner->lessons[i];
    double step_s;
    if (!counts(lesson, without) || (of_host && lesson->of == GD_POINT_NAIVE))
      continue;
    GD_TRY(predict(lesson, rates, &step_s, err));
    lesson->off = log(step_s / lesson->measured_s);
  }
  for (uint32_t i = 0; i < learner->count; i++) {
    const struct lesson *lesson = learner->lessons[i];
    if (!counts(lesson, without) || (of_host && !lesson->offload))
      continue;
    double off = lesson->off - (of_host ? off_alone(learner, lesson->model) : 0);
    /* Round at its bottom, or one number could not move without the others. */
    *sum += hypot(off, 0.03) / trials_of(learner, lesson->model);
  }
  return GD_OK;
}

/* Tries values around the present one, closer each time, and keeps the best; being pulled to 1 by
   a little settles what no trial speaks of. */
static enum gd_status fit_one(const struct gd_learner *learner, struct gd_rates *rates,
                              double *value, double width, const char *without,
                              struct gd_error *err) {
  const double pull = 0.001;
  double best = *value, least = HUGE_VAL, center = *value;
  bool of_host = value == &rates->learned.host;
  for (int i = 0; i < TRIES; i++) {
    double sum;
    *value = center * exp(width * (2.0 * i / (TRIES - 1) - 1));
    GD_TRY(error_of(learner, rates, without, of_host, &sum, err));
    sum += pull * fabs(log(*value));
    if (sum < least) {
      least = sum;
      best = *value;
    }
  }
  *value = best;
  return GD_OK;
}

static enum gd_status fit(const struct gd_learner *learner, struct gd_rates *rates,
                          const char *without, struct gd_error *err) {
  bool gpu = rates->multiprocessors > 0, offloads = false;
  rates->learned = (struct gd_learned){1, 1, 1};
  for (uint32_t i = 0; i < learner->count; i++)
    offloads |= learner->lessons[i]->offload && counts(learner->lessons[i], without);
  double width = 0.7; /* a factor of two */
  for (int round = 0; round < ROUNDS; round++, width /= 2) {
    if (gpu)
      GD_TRY(fit_one(learner, rates, &rates->learned.energy, width, without, err));
    if (gpu && offloads)
      GD_TRY(fit_one(learner, rates, &rates->learned.host, width, without, err));
    GD_TRY(fit_one(learner, rates, &rates->learned.step, width / 4, without, err));
  }
  return GD_OK;
}

static enum gd_status fit_without(const struct gd_learner *learner, struct gd_rates *rates,
                                  struct gd_error *err) {
  rates->n_without = 0;
  for (uint32_t i = 0; i < learner->count; i++) {
    const char *model = learner->lessons[i]->model;
    bool known = false;
    for (int k = 0; k < rates->n_without; k++)
      known |= strcmp(rates->without[k].model, model) == 0;
    if (known || rates->n_without == GD_LEARNED_MODELS)
      continue;
    GD_TRY(fit(learner, rates, model, err));
    struct gd_learned_without *to = &rates->without[rates->n_without++];
    snprintf(to->model, sizeof to->model, "%s", model);
    to->learned = rates->learned;
  }
  return GD_OK;
}

static double median_of(double *values, int count) {
  qsort(values, (size_t)count, sizeof *values, gd_compare_doubles);
  return count > 0 ? 0.5 * (values[(count - 1) / 2] + values[count / 2]) : 0;
}

/* Of a class, or of all (GD_POINT_CLASSES). */
static struct gd_trial_errors errors_of(const struct gd_learner *learner, const double *errors,
                                        double *some, int of) {
  struct gd_trial_errors found = {0};
  for (uint32_t i = 0; i < learner->count; i++) {
    const struct lesson *lesson = learner->lessons[i];
    if (of != GD_POINT_CLASSES && (int)lesson->of != of)
      continue;
    some[found.trials++] = errors[i];
    found.worst_error = fmax(found.worst_error, errors[i]);
    if (found.cpus_least == 0 || lesson->threads < found.cpus_least)
      found.cpus_least = lesson->threads;
    if (lesson->threads > found.cpus_most)
      found.cpus_most = lesson->threads;
  }
  found.median_error = median_of(some, found.trials);
  return found;
}

/* Of the logarithms, every model weighing the same. */
static double mean_square(const struct gd_learner *learner, int models) {
  double sum = 0;
  for (uint32_t i = 0; i < learner->count; i++) {
    const struct lesson *lesson = learner->lessons[i];
    sum += lesson->off * lesson->off / trials_of(learner, lesson->model);
  }
  return sum / models;
}

/* What the calibration alone misses trials by. */
static enum gd_status judge_calibration(struct gd_learner *learner, struct gd_rates *rates,
                                        struct gd_error *err) {
  double sum;
  rates->learned = (struct gd_learned){0};
  GD_TRY(error_of(learner, rates, NULL, false, &sum, err));
  rates->calibrated_square = mean_square(learner, rates->n_without);
  return GD_OK;
}

/* What trials of each model are missed by where it was left out. */
static enum gd_status judge(struct gd_learner *learner, struct gd_rates *rates,
                            struct gd_error *err) {
  double *errors = gd_mem_alloc(2 * (size_t)learner->count + 1, sizeof *errors);
  enum gd_status status = errors ? GD_OK : gd_nomem(err, "while trials are predicted");
  for (uint32_t i = 0; status == GD_OK && i < learner->count; i++) {
    struct lesson *lesson = learner->lessons[i];
    double step_s = 0;
    gd_rates_leave_out(rates, lesson->model);
    status = predict(lesson, rates, &step_s, err);
    errors[i] = fabs(step_s / lesson->measured_s - 1);
    lesson->off = log(step_s / lesson->measured_s);
  }
  if (status == GD_OK)
    rates->learned_square = mean_square(learner, rates->n_without);
  for (int of = 0; status == GD_OK && of <= GD_POINT_CLASSES; of++) {
    struct gd_trial_errors found = errors_of(learner, errors, errors + learner->count, of);
    if (of == GD_POINT_CLASSES) {
      rates->learned_median = found.median_error;
      rates->learned_worst = found.worst_error;
      break;
    }
    found.median_error = round(100 * found.median_error) / 100;
    found.worst_error = ceil(100 * found.worst_error) / 100;
    rates->errors[of] = found;
  }
  gd_mem_free(errors);
  return status;
}

/* Predictions for a GPU have the data sheet's host link and limit of power (gd_rates_retarget). */
static enum gd_status aim(struct gd_rates *rates, struct gd_error *err) {
  struct gd_hw hw = {0};
  struct gd_target target;
  struct gd_gpu_fit fit;
  struct gd_rates like = {0}; /* without points: links and power alone */
  GD_TRY(gd_gpu_fit_load(&fit, err));
  GD_TRY(gd_hw_load(&hw, err));
  enum gd_status status = gd_hw_target(&hw, rates->gpu, 1, 0, NULL, NULL, &target, err);
  if (status == GD_OK) {
    gd_rates_retarget(&like, &target, &fit);
    rates->host_link.bytes_per_s = like.host_link.bytes_per_s;
    rates->power = like.power;
  }
  gd_hw_deinit(&hw);
  return status;
}

static enum gd_status learn(struct gd_learner *learner, struct gd_rates *rates,
                            struct gd_error *err) {
  char others[96] = "";
  GD_TRY(fit_without(learner, rates, err));
  if (learner->disturbed > 0)
    snprintf(others, sizeof others, " (%d more while other programs used over %.0f %% of the CPUs)",
             learner->disturbed, 100 * GD_RATES_QUIET);
  if (rates->n_without < 2)
    return gd_fail(
        err, GD_BAD_INPUT,
        "trials of %d model%s on the %s%s are too few to learn from; two models are needed",
        rates->n_without, rates->n_without == 1 ? "" : "s", rates->device, others);
  GD_TRY(judge_calibration(learner, rates, err));
  GD_TRY(judge(learner, rates, err));
  return fit(learner, rates, NULL, err);
}

enum gd_status gd_learner_learn(struct gd_learner *learner, struct gd_rates *rates,
                                const char *from, struct gd_error *err) {
  int cpus = rates->cpus;
  struct gd_link host_link = rates->host_link;
  if (rates->multiprocessors > 0)
    GD_TRY(aim(rates, err));
  gd_rates_remember(rates);
  enum gd_status status = learn(learner, rates, err);
  gd_rates_forget(rates);
  rates->cpus = cpus;
  rates->host_link = host_link;
  GD_TRY(status);
  rates->learned_trials = (int)learner->count;
  snprintf(rates->learned_from, sizeof rates->learned_from, "%u trials of %d models, %.120s",
           learner->count, rates->n_without, from);
  return GD_OK;
}
