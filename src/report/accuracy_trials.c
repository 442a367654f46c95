/*
 * Trials that were measured, and what would have been predicted: planned again for their device
 * at their own micro-batch, then timed by the rates of that device. A GPU need not be here: its
 * record and its calibration are in the program. A CPU is this one, or its calibration is there
 * too.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/csv.h"
#include "base/embedded.h"
#include "predict/interval.h"
#include "predict/predict_trial.h"
#include "report/accuracy.h"
#include "store/store_runs.h"

/* --- one trial ----------------------------------------------------------------------------- */

static const char *keep(struct gd_accuracy *a, const char *text) {
  const char *copy = gd_arena_copy_string(&a->arena, text);
  return copy ? copy : "";
}

static struct gd_accuracy_trial facts_of(struct gd_accuracy *a, const char *file,
                                         const struct gd_trial *trial) {
  return (struct gd_accuracy_trial){.file = keep(a, file),
                                    .model = keep(a, trial->model),
                                    .method = keep(a, trial->method),
                                    .device = keep(a, trial->device),
                                    .precision = gd_precision_name(trial->precision),
                                    .ranks = trial->ranks,
                                    .cpus = trial->threads,
                                    .micro_batch = trial->micro_batch,
                                    .feasible = trial->status == GD_TRIAL_OK,
                                    .peak_bytes = trial->peak_bytes,
                                    .measured_s = trial->step_s};
}

/* What there is to know of a prediction, none where the trial was infeasible. */
static void take(struct gd_accuracy *a, const struct gd_predictor *predictor,
                 const struct gd_prediction *prediction, enum gd_status status,
                 struct gd_accuracy_trial *to) {
  to->basis = keep(a, predictor->basis);
  to->calibrated = keep(a, predictor->calibrated ? predictor->rates.date : "");
  if (status != GD_OK || !prediction->known)
    return;
  to->of = prediction->of;
  to->predicted_s = prediction->step_s;
  to->low_s = prediction->low_s;
  to->high_s = prediction->high_s;
}

static enum gd_status predict_gpu(struct gd_accuracy *a, const struct gd_gpu *gpu,
                                  const struct gd_trial *trial, struct gd_accuracy_trial *to,
                                  struct gd_error *err) {
  struct gd_predictor predictor = {0};
  struct gd_prediction prediction = {0};
  struct gd_trial planned;
  struct gd_target target;
  struct gd_model model;
  GD_TRY(
      gd_hw_target(&a->stack.hw, gpu->name, trial->ranks, trial->nodes, NULL, NULL, &target, err));
  if (trial->threads > 0)
    target.cpus = trial->threads; /* a rank's on that machine, not the usual four a GPU */
  struct gd_trial_options options = {.target = &target,
                                     .micro_batch = GD_MICRO_BATCH_FIXED,
                                     .micro_batch_size = trial->micro_batch,
                                     .precision = &trial->precision,
                                     .device_limit_bytes = trial->device_limit_bytes,
                                     .host_limit_bytes = trial->host_limit_bytes};
  GD_TRY(gd_method_parse(trial->method, &options.method, err));
  GD_TRY(gd_model_load(trial->model, &model, err));
  GD_TRY(gd_trial_plan(&model, &options, &planned, err));
  to->planned_feasible = planned.status != GD_TRIAL_INFEASIBLE;
  to->planned_bytes = planned.peak_bytes;
  GD_TRY(gd_predictor_for_target(&predictor, &target, err));
  gd_rates_leave_out(&predictor.rates, trial->model);
  enum gd_status status = GD_OK;
  if (to->feasible)
    status = gd_trial_predict_stored(trial, &target, &predictor, &prediction, err);
  take(a, &predictor, &prediction, status, to);
  gd_predictor_deinit(&predictor);
  return status;
}

/* The calibration of that device that travels in the program; *found false: there is none. */
static enum gd_status embedded_rates(const char *device, struct gd_rates *rates, bool *found,
                                     struct gd_error *err) {
  static const char folder[] = "calibration/";
  *found = false;
  for (int i = 0; i < gd_embedded_file_count && !*found; i++) {
    const struct gd_embedded_file *file = &gd_embedded_files[i];
    struct gd_json json = {0};
    if (strncmp(file->path, folder, strlen(folder)) != 0)
      continue;
    enum gd_status status = gd_json_parse(&json, file->path, file->text, file->length, err);
    if (status == GD_OK)
      status = gd_rates_parse(rates, &json, err);
    gd_json_deinit(&json);
    GD_TRY(status);
    *found = strcmp(rates->device, device) == 0;
    if (!*found)
      gd_rates_deinit(rates);
  }
  return GD_OK;
}

/* This machine where it is the one that measured, else one whose calibration is in the program: of
   ranks, which share a machine, only the former knows. */
static enum gd_status open_cpu(const struct gd_trial *trial, struct gd_predictor *predictor,
                               bool *found, struct gd_error *err) {
  struct gd_place place;
  GD_TRY(gd_place_find(trial->backend, &(struct gd_backend_options){.threads = trial->threads},
                       &place, err));
  GD_TRY(gd_predictor_for_machine(predictor, &place.info, trial->ranks, err));
  *found = predictor->calibrated && strcmp(predictor->rates.device, trial->device) == 0;
  if (*found || trial->ranks > 1)
    return GD_OK;
  struct gd_rates rates = {0};
  GD_TRY(embedded_rates(trial->device, &rates, found, err));
  if (!*found)
    return GD_OK;
  gd_predictor_deinit(predictor);
  *predictor = (struct gd_predictor){.rates = rates, .calibrated = true};
  for (int i = 0; i < GD_POINT_CLASSES; i++)
    predictor->of[i].error = gd_calibration_error(&predictor->rates, (enum gd_point_class)i,
                                                  &predictor->of[i].validated);
  snprintf(predictor->basis, sizeof predictor->basis, "its calibration of %.10s", rates.date);
  return GD_OK;
}

static enum gd_status predict_cpu(struct gd_accuracy *a, const struct gd_trial *trial,
                                  struct gd_accuracy_trial *to, struct gd_error *err) {
  struct gd_predictor predictor = {0};
  struct gd_prediction prediction = {0};
  bool found = false;
  to->planned_feasible = to->feasible;
  enum gd_status status = open_cpu(trial, &predictor, &found, err);
  if (status == GD_OK && !found)
    to->why = "measured on a machine whose calibration is not here";
  gd_rates_leave_out(&predictor.rates, trial->model);
  if (status == GD_OK && found && to->feasible)
    status = gd_trial_predict_stored(trial, NULL, &predictor, &prediction, err);
  if (found)
    take(a, &predictor, &prediction, status, to);
  gd_predictor_deinit(&predictor);
  return status;
}

/* Predicts it; what cannot be predicted says why. */
static enum gd_status compare(struct gd_accuracy *a, const struct gd_trial *trial,
                              struct gd_accuracy_trial *to, struct gd_error *err) {
  const struct gd_gpu *gpu;
  struct gd_error why = {0};
  bool known = gd_hw_gpu(&a->stack.hw, trial->device, &gpu, &why) == GD_OK;
  why = (struct gd_error){0};
  enum gd_status status =
      known ? predict_gpu(a, gpu, trial, to, &why) : predict_cpu(a, trial, to, &why);
  if (status == GD_ENVIRONMENT || status == GD_INTERNAL)
    return gd_fail(err, status, "%s", why.text);
  if (status != GD_OK)
    to->why = keep(a, why.text);
  return GD_OK;
}

enum gd_status gd_accuracy_add_trial(struct gd_accuracy *a, const char *file,
                                     const struct gd_trial *trial, struct gd_error *err) {
  if (trial->status != GD_TRIAL_OK && trial->status != GD_TRIAL_INFEASIBLE)
    return GD_OK;
  if (!gd_vec_reserve((void **)&a->trials, &a->trials_capacity, a->n_trials + 1, sizeof *a->trials))
    return gd_nomem(err, "while reading trials");
  struct gd_accuracy_trial *to = &a->trials[a->n_trials++];
  *to = facts_of(a, file, trial);
  return compare(a, trial, to, err);
}

static enum gd_status add_run(void *user, const struct gd_run_record *run, struct gd_error *err) {
  struct gd_accuracy *a = user;
  if (!gd_vec_reserve((void **)&a->runs, &a->runs_capacity, a->n_runs + 1, sizeof *a->runs))
    return gd_nomem(err, "while reading runs");
  struct gd_accuracy_run *to = &a->runs[a->n_runs++];
  int64_t steps = run->last_step - run->first_step;
  *to = (struct gd_accuracy_run){.trial = facts_of(a, "", &run->trial),
                                 .folder = keep(a, run->folder),
                                 .expected_by = keep(a, run->expected_by),
                                 .slowed_by = keep(a, run->slowed_by),
                                 .steps = steps,
                                 .whole_s = run->seconds / (double)steps,
                                 .expected_s = run->expected_step_s};
  return compare(a, &run->trial, &to->trial, err);
}

/* --- from a store --------------------------------------------------------------------------- */

static enum gd_status visit(void *user, const struct gd_store_row *row, struct gd_error *err) {
  return gd_accuracy_add_trial(user, "", &row->trial, err);
}

enum gd_status gd_accuracy_add_store(struct gd_accuracy *accuracy, struct gd_store *store,
                                     struct gd_error *err) {
  struct gd_store_filter filter = {.brief = true, .sort = GD_STORE_SORT_MODEL};
  GD_TRY(gd_store_query_runs(store, add_run, accuracy, err));
  return gd_store_query(store, &filter, visit, accuracy, err);
}

/* --- from a file ---------------------------------------------------------------------------- */

static enum gd_status add_rows(struct gd_accuracy *a, const struct gd_csv *csv, const char *path,
                               struct gd_error *err) {
  const char *name = strrchr(path, '/');
  for (int row = 0; row < csv->rows; row++) {
    struct gd_trial trial;
    bool superseded;
    GD_TRY(gd_record_read_csv(csv, row, &trial, NULL, &superseded, err));
    if (!superseded)
      GD_TRY(gd_accuracy_add_trial(a, name ? name + 1 : path, &trial, err));
  }
  return GD_OK;
}

enum gd_status gd_accuracy_add_file(struct gd_accuracy *accuracy, const char *path,
                                    struct gd_error *err) {
  struct gd_csv csv = {0};
  enum gd_status status = gd_csv_load(&csv, path, err);
  if (status == GD_OK)
    status = add_rows(accuracy, &csv, path, err);
  gd_csv_deinit(&csv);
  return status;
}

/* --- scores -------------------------------------------------------------------------------- */

/* device NULL: any; of GD_POINT_CLASSES: any. */
static bool is_compared(const struct gd_accuracy_trial *trial, const char *device,
                        enum gd_point_class of) {
  return trial->predicted_s > 0 && trial->measured_s > 0 &&
         (!device || strcmp(device, trial->device) == 0) &&
         (of == GD_POINT_CLASSES || of == trial->of);
}

static struct gd_accuracy_score score(const struct gd_accuracy *accuracy, const char *device,
                                      enum gd_point_class of) {
  struct gd_accuracy_score found = {0};
  double *errors = gd_mem_alloc(accuracy->n_trials + 1, sizeof *errors);
  int count = 0;
  for (uint32_t i = 0; errors && i < accuracy->n_trials; i++) {
    const struct gd_accuracy_trial *trial = &accuracy->trials[i];
    if (is_compared(trial, device, of))
      errors[count++] = fabs(trial->predicted_s - trial->measured_s) / trial->measured_s;
  }
  if (errors)
    found = gd_accuracy_score(errors, count);
  gd_mem_free(errors);
  return found;
}

struct gd_accuracy_score gd_accuracy_trials(const struct gd_accuracy *accuracy,
                                            const char *device) {
  return score(accuracy, device, GD_POINT_CLASSES);
}

struct gd_accuracy_score gd_accuracy_runs(const struct gd_accuracy *accuracy) {
  struct gd_accuracy_score found = {0};
  double *errors = gd_mem_alloc(accuracy->n_runs + 1, sizeof *errors);
  int count = 0;
  for (uint32_t i = 0; errors && i < accuracy->n_runs; i++) {
    const struct gd_accuracy_trial *trial = &accuracy->runs[i].trial;
    if (is_compared(trial, NULL, GD_POINT_CLASSES))
      errors[count++] = fabs(trial->predicted_s - trial->measured_s) / trial->measured_s;
  }
  if (errors)
    found = gd_accuracy_score(errors, count);
  gd_mem_free(errors);
  return found;
}

struct gd_trial_errors gd_accuracy_errors(const struct gd_accuracy *accuracy, const char *device,
                                          enum gd_point_class of) {
  struct gd_accuracy_score found = score(accuracy, device, of);
  struct gd_trial_errors errors = {.trials = found.count,
                                   .median_error = round(100 * found.median) / 100,
                                   .worst_error = ceil(100 * found.worst) / 100};
  for (uint32_t i = 0; i < accuracy->n_trials; i++) {
    const struct gd_accuracy_trial *trial = &accuracy->trials[i];
    if (!is_compared(trial, device, of))
      continue;
    if (errors.cpus_least == 0 || trial->cpus < errors.cpus_least)
      errors.cpus_least = trial->cpus;
    if (trial->cpus > errors.cpus_most)
      errors.cpus_most = trial->cpus;
  }
  return errors;
}

int gd_accuracy_within(const struct gd_accuracy *accuracy, const char *device, int *compared) {
  int within = 0;
  *compared = 0;
  for (uint32_t i = 0; i < accuracy->n_trials; i++) {
    const struct gd_accuracy_trial *trial = &accuracy->trials[i];
    if (!is_compared(trial, device, GD_POINT_CLASSES))
      continue;
    ++*compared;
    within += trial->measured_s >= trial->low_s && trial->measured_s <= trial->high_s;
  }
  return within;
}

/* --- intervals ------------------------------------------------------------------------------ */

/* Trials of the GPU that was measured within so wide an interval. */
static void count_trials(const struct gd_accuracy *a, const char *device, double half,
                         struct gd_accuracy_interval *to) {
  for (uint32_t i = 0; i < a->n_trials; i++) {
    const struct gd_accuracy_trial *trial = &a->trials[i];
    if (!is_compared(trial, device, GD_POINT_CLASSES))
      continue;
    to->trials++;
    to->trials_within += fabs(log(trial->predicted_s / trial->measured_s)) <= half;
  }
}

/* Published rates that were left out by what the question leaves out. */
static void count_rates(const struct gd_accuracy *a, enum gd_published_unseen unseen, double half,
                        struct gd_accuracy_interval *to) {
  int within = 0;
  for (int i = 0; i < a->published.count; i++) {
    double error = gd_published_error(&a->published_errors, unseen, i);
    if (isnan(error))
      continue;
    to->rates++;
    within += fabs(error) <= half;
  }
  to->rates_within = to->rates > 0 ? (double)within / to->rates : 0;
}

struct asked {
  const char *question, *gpu;
  int count;
  bool joins; /* errors on published rates, */
  enum gd_published_unseen unseen;
};

static enum gd_status find_interval(const struct gd_accuracy *a, struct gd_hw *hw,
                                    const struct asked *asked, struct gd_accuracy_interval *to,
                                    struct gd_error *err) {
  struct gd_predictor predictor = {0};
  struct gd_target target;
  GD_TRY(gd_hw_target(hw, asked->gpu, asked->count, 0, NULL, NULL, &target, err));
  GD_TRY(gd_predictor_for_target(&predictor, &target, err));
  *to = (struct gd_accuracy_interval){.question = asked->question,
                                      .error = predictor.of[GD_POINT_FREE_LUNCH].error};
  gd_predictor_deinit(&predictor);
  double half = gd_interval_half_of(to->error);
  count_trials(a, "NVIDIA H200", half, to);
  if (asked->joins)
    count_rates(a, asked->unseen, half, to);
  return GD_OK;
}

enum gd_status gd_accuracy_intervals(const struct gd_accuracy *a,
                                     struct gd_accuracy_interval intervals[GD_ACCURACY_INTERVALS],
                                     struct gd_error *err) {
  static const struct asked asked[GD_ACCURACY_INTERVALS] = {
      {"one H200, which was measured", "h200", 1, false, GD_UNSEEN_NOTHING},
      {"several H200", "h200", 8, true, GD_UNSEEN_GPU},
      {"another GPU of its architecture: H100", "h100", 1, true, GD_UNSEEN_GPU},
      {"a GPU of another architecture: A100", "a100", 1, true, GD_UNSEEN_ARCHITECTURE}};
  struct gd_hw hw = {0};
  GD_TRY(gd_hw_load(&hw, err));
  enum gd_status status = GD_OK;
  for (int i = 0; i < GD_ACCURACY_INTERVALS && status == GD_OK; i++)
    status = find_interval(a, &hw, &asked[i], &intervals[i], err);
  gd_hw_deinit(&hw);
  return status;
}

/* --- into a calibration --------------------------------------------------------------------- */

/* Whether the trials of a calibration's device were predicted from it, and from no other. */
static enum gd_status check_source(const char *path, const struct gd_rates *rates,
                                   const struct gd_accuracy *a, struct gd_error *err) {
  int trials = 0;
  for (uint32_t i = 0; i < a->n_trials; i++) {
    const struct gd_accuracy_trial *trial = &a->trials[i];
    if (trial->predicted_s <= 0 || strcmp(trial->device, rates->device) != 0)
      continue;
    trials++;
    if (strcmp(trial->calibrated, rates->date) != 0)
      return gd_fail(err, GD_BAD_INPUT,
                     "--calibration %s is of %s, and the trials were predicted from another, of "
                     "%s; name the one that is in use",
                     path, rates->date, trial->calibrated[0] ? trial->calibrated : "no date");
  }
  if (trials == 0)
    return gd_fail(err, GD_BAD_INPUT,
                   "--calibration %s is of the %s, and no trial of it was compared; name a file of "
                   "its trials",
                   path, rates->device);
  return GD_OK;
}

enum gd_status gd_accuracy_keep_errors(const struct gd_accuracy *a, const char *path,
                                       struct gd_error *err) {
  struct gd_rates rates = {0};
  struct gd_trial_errors errors[GD_POINT_CLASSES];
  GD_TRY(gd_rates_load(&rates, path, err));
  for (int i = 0; i < GD_POINT_CLASSES; i++)
    errors[i] = gd_accuracy_errors(a, rates.device, (enum gd_point_class)i);
  enum gd_status status = check_source(path, &rates, a, err);
  if (status == GD_OK)
    status = gd_rates_save_errors(path, errors, err);
  gd_rates_deinit(&rates);
  return status;
}
