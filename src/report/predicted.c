/*
 * Predictions for the cells of Tables 1 and 4, two ways: what this program's own engine would take
 * on those GPUs (plans of the presets, walked with the rates of the nearest device that was
 * calibrated), and what the paper's software would take, by a fit that has not seen the GPU in
 * question. Both come with what they rest on.
 */
#include <stdlib.h>
#include <string.h>

#include "predict/stack_paper.h"
#include "report/report_int.h"
#include "search/plans.h"

/* --- the engine ----------------------------------------------------------------------------- */

/* What is tried on every cell, and what else where nothing of it fits. The whole space takes
   minutes for all cells. */
enum { TRIED = 4 };
static const char *const tried[2][TRIED] = {
    {"naive", "free-lunch", "free-lunch+ckpt"},
    {"naive", "free-lunch", "free-lunch+zero1", "free-lunch+ckpt+zero1"},
};
static const char *const tried_then[2][TRIED] = {
    {"free-lunch+ckpt+zero1+offload", "free-lunch+ckpt+zero3+offload"},
    {"free-lunch+ckpt+zero3", "free-lunch+ckpt+zero3+offload"},
};

/* The paper's GPUs, so many of each. */
struct machines {
  struct gd_report *report;
  const struct gd_model *models;
  int counts; /* place in gd_report_counts */
  struct gd_target targets[GD_REPORT_GPUS];
  struct gd_predictor predictors[GD_REPORT_GPUS];
};

static int cell_of(const struct machines *machines, int model, int gpu) {
  return model * GD_REPORT_CELLS + gpu * GD_REPORT_COUNTS + machines->counts;
}

/* The faster one stays. */
static void take_faster(struct gd_report_prediction *to, const struct gd_trial_target *found) {
  const struct gd_prediction *from = &found->prediction;
  if (found->status != GD_OK || !from->known) {
    if (to->state == GD_REPORT_UNKNOWN)
      to->state = GD_REPORT_INFEASIBLE;
    return;
  }
  if (to->state == GD_REPORT_KNOWN && to->days <= from->days)
    return;
  *to = (struct gd_report_prediction){
      .state = GD_REPORT_KNOWN, .days = from->days, .low = from->days_low, .high = from->days_high};
  snprintf(to->method, sizeof to->method, "%s", found->trial.method);
}

static void take_target(struct gd_report_predicted *predicted, int cell, const char *method,
                        const struct gd_trial_target *found) {
  if (strcmp(method, "naive") == 0) {
    take_faster(&predicted->naive[cell], found);
    return;
  }
  take_faster(&predicted->best[cell], found);
  take_faster(strcmp(method, "free-lunch") == 0 ? &predicted->lunch[cell]
                                                : &predicted->saving[cell],
              found);
}

/* Methods on all GPUs for all models; `left`: on those cells alone that have no answer. */
static enum gd_status plan_methods(struct machines *machines, const char *const *methods, bool left,
                                   struct gd_plan_family *families, struct gd_error *err) {
  struct gd_report *report = machines->report;
  struct gd_report_predicted *predicted = &report->predicted;
  int count = 0;
  for (int m = 0; m < report->paper.n_recipes; m++)
    for (int i = 0; i < TRIED && methods[i]; i++) {
      struct gd_plan_family *family = &families[count];
      family->model = &machines->models[m];
      family->options = (struct gd_trial_options){
          .backend = "cuda", .ranks = gd_report_counts[machines->counts], .nodes = 1};
      family->count = 0;
      GD_TRY(gd_method_parse(methods[i], &family->options.method, err));
      for (int g = 0; g < report->paper.n_gpus; g++)
        if (!left || predicted->best[cell_of(machines, m, g)].state != GD_REPORT_KNOWN)
          family->targets[family->count++] = (struct gd_trial_target){
              .target = &machines->targets[g], .predictor = &machines->predictors[g]};
      count += family->count > 0;
    }
  GD_TRY(gd_plan_families(families, count, err));
  for (int f = 0; f < count; f++)
    for (int i = 0; i < families[f].count; i++) {
      const struct gd_trial_target *found = &families[f].targets[i];
      int model = (int)(families[f].model - machines->models);
      int gpu = (int)(found->target - machines->targets);
      take_target(predicted, cell_of(machines, model, gpu), found->trial.method, found);
    }
  return GD_OK;
}

static int compare_numbers(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The days of all methods on one GPU become a spread, where three memory-saving ones fit. */
static void add_spread(struct gd_report_predicted *predicted, const struct gd_plan_family *families,
                       int count, int gpu) {
  double days[GD_METHODS_MOST], lunch = (double)NAN;
  int n = 0;
  for (int f = 0; f < count; f++) {
    const struct gd_trial_target *found = &families[f].targets[gpu];
    if (found->status != GD_OK || !found->prediction.known)
      continue;
    if (strcmp(found->trial.method, "free-lunch") == 0)
      lunch = found->prediction.days;
    else
      days[n++] = found->prediction.days;
  }
  if (n < 3)
    return;
  qsort(days, (size_t)n, sizeof *days, compare_numbers);
  predicted->spreads[predicted->n_spreads++] = (struct gd_report_spread){
      .best = days[0], .median = days[n / 2], .worst = days[n - 1], .lunch = lunch};
}

/* The whole space for the smaller Pythias, whose plans are quick: what Figure 5 is about. */
static enum gd_status plan_spreads(struct machines *machines, struct gd_plan_family *families,
                                   struct gd_error *err) {
  struct gd_report *report = machines->report;
  struct gd_method methods[GD_METHODS_MOST];
  int n_methods = gd_method_space(true, methods);
  for (int m = 0; m < report->paper.n_recipes; m++) {
    const struct gd_paper_recipe *recipe = &report->paper.recipes[m];
    if (strcmp(recipe->family, "Pythia") != 0 || recipe->parameters > 1.5e9)
      continue;
    for (int f = 0; f < n_methods; f++) {
      families[f].model = &machines->models[m];
      families[f].options =
          (struct gd_trial_options){.backend = "cuda", .method = methods[f], .nodes = 1};
      families[f].count = report->paper.n_gpus;
      for (int g = 0; g < families[f].count; g++)
        families[f].targets[g] = (struct gd_trial_target){.target = &machines->targets[g],
                                                          .predictor = &machines->predictors[g]};
    }
    GD_TRY(gd_plan_families(families, n_methods, err));
    for (int g = 0; g < report->paper.n_gpus; g++)
      add_spread(&report->predicted, families, n_methods, g);
  }
  return GD_OK;
}

static enum gd_status predict_machines(struct machines *machines, struct gd_plan_family *families,
                                       struct gd_error *err) {
  struct gd_report *report = machines->report;
  int several = gd_report_counts[machines->counts] > 1;
  for (int g = 0; g < report->paper.n_gpus; g++) {
    const struct gd_paper_gpu *gpu = &report->paper.gpus[g];
    struct gd_predictor *predictor = &machines->predictors[g];
    GD_TRY(gd_hw_target(&report->hw, gpu->gpu, gd_report_counts[machines->counts], 1, NULL, NULL,
                        &machines->targets[g], err));
    GD_TRY(gd_predictor_for_target(predictor, &machines->targets[g], err));
    struct gd_strbuf basis = {0};
    gd_predictor_say(predictor,
                     1u << GD_POINT_NAIVE | 1u << GD_POINT_FREE_LUNCH | 1u << GD_POINT_OFFLOAD,
                     &basis);
    report->predicted.basis[g] =
        gd_report_print(report, "%s: %s", gpu->title, basis.text ? basis.text : "");
    gd_strbuf_deinit(&basis);
  }
  GD_TRY(plan_methods(machines, tried[several], false, families, err));
  GD_TRY(plan_methods(machines, tried_then[several], true, families, err));
  return gd_report_counts[machines->counts] == GD_REPORT_SPREAD_GPUS
             ? plan_spreads(machines, families, err)
             : GD_OK;
}

static enum gd_status predict_engine(struct gd_report *report, struct gd_error *err) {
  size_t rows = (size_t)report->paper.n_recipes;
  size_t most = rows * TRIED > GD_METHODS_MOST ? rows * TRIED : GD_METHODS_MOST;
  struct gd_model *models = gd_arena_alloc(&report->arena, rows, sizeof *models);
  struct gd_plan_family *families = gd_mem_alloc(most, sizeof *families);
  struct gd_trial_target *targets = gd_mem_alloc(most * GD_REPORT_GPUS, sizeof *targets);
  report->predicted.spreads =
      gd_arena_alloc(&report->arena, rows * GD_REPORT_GPUS, sizeof *report->predicted.spreads);
  enum gd_status status = GD_OK;
  if (!models || !families || !targets || !report->predicted.spreads) {
    gd_mem_free(targets);
    gd_mem_free(families);
    return gd_report_no_memory(err);
  }
  for (size_t m = 0; m < rows && status == GD_OK; m++)
    status = gd_model_load(report->paper.recipes[m].model, &models[m], err);
  for (size_t f = 0; f < most && status == GD_OK; f++)
    families[f].targets = targets + f * GD_REPORT_GPUS;
  for (int i = 0; i < GD_REPORT_COUNTS && status == GD_OK; i++) {
    struct machines machines = {.report = report, .models = models, .counts = i};
    status = predict_machines(&machines, families, err);
    for (int g = 0; g < GD_REPORT_GPUS; g++)
      gd_predictor_deinit(&machines.predictors[g]);
  }
  gd_mem_free(targets);
  gd_mem_free(families);
  return status;
}

/* --- the paper's software -------------------------------------------------------------------- */

static int row_of(const struct gd_report *report, const char *model) {
  for (int m = 0; m < report->paper.n_recipes; m++)
    if (strcmp(report->paper.recipes[m].model, model) == 0)
      return m;
  return -1;
}

static int column_of(const struct gd_report *report, const char *gpu, int count) {
  for (int i = 0; i < GD_REPORT_CELLS; i++)
    if (strcmp(report->paper.gpus[i / GD_REPORT_COUNTS].gpu, gpu) == 0 &&
        gd_report_counts[i % GD_REPORT_COUNTS] == count)
      return i;
  return -1;
}

struct judging {
  double *errors; /* of cells within 80 % of the peak */
  int n_errors, right, cells;
};

static void take_cell(struct gd_report *report, const struct gd_stack_cell *cell,
                      const struct gd_stack_fit *fit, struct judging *judging) {
  struct gd_report_predicted *predicted = &report->predicted;
  struct gd_stack_answer answer;
  int row = row_of(report, cell->paper->model);
  int column = column_of(report, cell->paper->gpu, cell->paper->count);
  if (row < 0 || column < 0)
    return;
  GD_ASSERT(judging->errors);
  gd_stack_cell_predict(cell, fit, &answer);
  struct gd_report_prediction *to = &(cell->paper->table == GD_PAPER_NAIVE
                                          ? predicted->stack_naive
                                          : predicted->stack_best)[row * GD_REPORT_CELLS + column];
  to->state = answer.feasible ? GD_REPORT_KNOWN : GD_REPORT_INFEASIBLE;
  to->days = answer.days;
  judging->cells++;
  judging->right += answer.feasible == (cell->paper->days > 0);
  if (answer.feasible && cell->group == GD_STACK_FITTED)
    judging->errors[judging->n_errors++] = gd_stack_cell_error(cell, answer.days);
}

static enum gd_status predict_stack(struct gd_report *report, struct gd_error *err) {
  struct gd_stack stack = {0};
  struct judging judging = {0};
  enum gd_status status = gd_stack_load(&stack, err);
  if (status == GD_OK) {
    judging.errors = gd_report_numbers(report, stack.n_cells);
    status = judging.errors ? GD_OK : gd_report_no_memory(err);
  }
  for (int g = 0; g < report->paper.n_gpus && status == GD_OK; g++) {
    const char *gpu = report->paper.gpus[g].gpu;
    struct gd_stack_fit fit;
    gd_stack_fit(&stack, &(struct gd_stack_leave){.gpu = gpu}, &fit);
    for (int i = 0; i < stack.n_cells; i++)
      if (strcmp(stack.cells[i].paper->gpu, gpu) == 0)
        take_cell(report, &stack.cells[i], &fit, &judging);
  }
  if (status == GD_OK && judging.n_errors > 0) {
    int n = judging.n_errors;
    qsort(judging.errors, (size_t)n, sizeof *judging.errors, compare_numbers);
    report->predicted.stack_basis = gd_report_print(
        report,
        "fitted to the cells of the other three GPUs, so that none of these was seen; of %d cells "
        "that need up to 80 %% of the peak half are off by less than %.0f %% and nine in ten by "
        "less than %.0f %%; feasible or not is right in %d of %d cells",
        n, 100 * judging.errors[n / 2], 100 * judging.errors[(9 * n) / 10], judging.right,
        judging.cells);
  }
  gd_stack_deinit(&stack);
  return status;
}

enum gd_status gd_report_predict(struct gd_report *report, struct gd_error *err) {
  struct gd_report_predicted *predicted = &report->predicted;
  struct gd_report_prediction **all[] = {&predicted->best,       &predicted->naive,
                                         &predicted->lunch,      &predicted->saving,
                                         &predicted->stack_best, &predicted->stack_naive};
  size_t cells = (size_t)report->paper.n_recipes * GD_REPORT_CELLS;
  if (report->order->no_predictions)
    return GD_OK;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    *all[i] = gd_arena_alloc(&report->arena, cells, sizeof **all[i]);
    if (!*all[i])
      return gd_report_no_memory(err);
  }
  GD_TRY(predict_engine(report, err));
  GD_TRY(predict_stack(report, err));
  predicted->known = true;
  return GD_OK;
}
