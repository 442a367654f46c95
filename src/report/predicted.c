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

/* What is tried first, and where that does not fit. The whole space takes minutes for all cells. */
static const char *const first_one[] = {"naive", "free-lunch"};
static const char *const first_several[] = {"naive", "free-lunch+zero1"};
static const char *const then_one[] = {"free-lunch+ckpt", "free-lunch+ckpt+zero1+offload",
                                       "free-lunch+ckpt+zero3+offload"};
static const char *const then_several[] = {"free-lunch+ckpt+zero1", "free-lunch+ckpt+zero3",
                                           "free-lunch+ckpt+zero3+offload"};
enum { FIRST = 2, THEN = 3 };

struct planning {
  struct gd_report *report;
  const struct gd_target *target;
  const struct gd_predictor *predictor;
  const struct gd_model *models;
  struct gd_plan_point *points; /* room for all */
  int cell;                     /* column of the tables */
};

static void take_point(const struct planning *p, const struct gd_plan_point *point) {
  struct gd_report_predicted *predicted = &p->report->predicted;
  bool naive = strcmp(point->trial.method, "naive") == 0;
  struct gd_report_prediction *to =
      &(naive ? predicted->naive : predicted->best)[point->number * GD_REPORT_CELLS + p->cell];
  const struct gd_prediction *from = &point->prediction;
  if (point->trial.status == GD_TRIAL_INFEASIBLE || !from->known) {
    if (to->state == GD_REPORT_UNKNOWN)
      to->state = GD_REPORT_INFEASIBLE;
    return;
  }
  if (to->state == GD_REPORT_KNOWN && to->days <= from->days)
    return;
  *to = (struct gd_report_prediction){
      .state = GD_REPORT_KNOWN, .days = from->days, .low = from->days_low, .high = from->days_high};
  snprintf(to->method, sizeof to->method, "%s", point->trial.method);
}

/* Plans these methods for the models that have no answer yet, or for all. */
static enum gd_status plan_methods(struct planning *p, const char *const *methods, int n_methods,
                                   bool all, struct gd_error *err) {
  struct gd_report_predicted *predicted = &p->report->predicted;
  int count = 0;
  for (int m = 0; m < p->report->paper.n_recipes; m++)
    for (int i = 0; i < n_methods; i++) {
      struct gd_plan_point *point = &p->points[count];
      if (!all && predicted->best[m * GD_REPORT_CELLS + p->cell].state == GD_REPORT_KNOWN)
        continue;
      *point = (struct gd_plan_point){
          .model = &p->models[m],
          .number = m,
          .options = {
              .backend = "cuda", .target = p->target, .ranks = p->target->count, .nodes = 1}};
      GD_TRY(gd_method_parse(methods[i], &point->options.method, err));
      count++;
    }
  if (count == 0)
    return GD_OK;
  GD_TRY(gd_plan_points(p->points, count, p->predictor, err));
  for (int i = 0; i < count; i++)
    take_point(p, &p->points[i]);
  return GD_OK;
}

static enum gd_status predict_target(struct planning *p, struct gd_error *err) {
  bool one = p->target->count == 1;
  GD_TRY(plan_methods(p, one ? first_one : first_several, FIRST, true, err));
  return plan_methods(p, one ? then_one : then_several, THEN, false, err);
}

static enum gd_status predict_cell(struct gd_report *report, const struct gd_model *models,
                                   struct gd_plan_point *points, int cell, struct gd_error *err) {
  struct gd_target target;
  struct gd_predictor predictor = {0};
  struct planning planning = {.report = report,
                              .target = &target,
                              .predictor = &predictor,
                              .models = models,
                              .points = points,
                              .cell = cell};
  const struct gd_paper_gpu *gpu = &report->paper.gpus[cell / GD_REPORT_COUNTS];
  GD_TRY(gd_hw_target(&report->hw, gpu->gpu, gd_report_counts[cell % GD_REPORT_COUNTS], 1, NULL,
                      NULL, &target, err));
  enum gd_status status = gd_predictor_for_target(&predictor, &target, err);
  if (status == GD_OK)
    status = predict_target(&planning, err);
  if (status == GD_OK)
    report->predicted.basis[cell / GD_REPORT_COUNTS] = gd_report_print(
        report, "%s: %s; interval +-%.0f %%", gpu->title, predictor.basis, 100 * predictor.error);
  gd_predictor_deinit(&predictor);
  return status;
}

static enum gd_status predict_engine(struct gd_report *report, struct gd_error *err) {
  int rows = report->paper.n_recipes;
  struct gd_model *models = gd_arena_alloc(&report->arena, (size_t)rows, sizeof *models);
  struct gd_plan_point *points = gd_mem_alloc((size_t)rows * THEN, sizeof *points);
  enum gd_status status = models && points ? GD_OK : gd_report_no_memory(err);
  for (int m = 0; m < rows && status == GD_OK; m++)
    status = gd_model_load(report->paper.recipes[m].model, &models[m], err);
  for (int cell = 0; cell < GD_REPORT_CELLS && status == GD_OK; cell++)
    status = predict_cell(report, models, points, cell, err);
  gd_mem_free(points);
  return status;
}

/* --- the paper's software -------------------------------------------------------------------- */

static int compare_numbers(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

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
  struct gd_report_prediction **all[] = {&predicted->best, &predicted->naive,
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
