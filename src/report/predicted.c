/*
 * Predictions for the cells of Tables 1 and 4, two ways: what this program's own engine would take
 * on those GPUs (plans of the presets, walked with the rates of the nearest device that was
 * calibrated), and what the paper's software would take, by a fit that has not seen the GPU in
 * question. Both come with what they rest on.
 */
#include <stdlib.h>
#include <string.h>

#include "base/compare.h"
#include "predict/stack_paper.h"
#include "report/report_int.h"
#include "search/points.h"

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
static void take_faster(struct gd_report_prediction *to, const struct gd_point *found) {
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

static void take_point(struct gd_report_predicted *predicted, int cell,
                       const struct gd_point *found) {
  const char *method = found->trial.method;
  if (strcmp(method, "naive") == 0) {
    take_faster(&predicted->naive[cell], found);
    return;
  }
  take_faster(&predicted->best[cell], found);
  take_faster(strcmp(method, "free-lunch") == 0 ? &predicted->lunch[cell]
                                                : &predicted->saving[cell],
              found);
}

static enum gd_status plan_points(struct gd_points *points, struct gd_error *err) {
  GD_TRY(gd_points_plan(points->all, points->count, err));
  return gd_points_error(points->all, points->count, false, err);
}

/* Points of models and methods on all GPUs. */
static enum gd_status make_points(const struct machines *machines, int model, int n_models,
                                  const struct gd_method *methods, int n_methods,
                                  struct gd_points *points, struct gd_error *err) {
  struct gd_point_machine gpus[GD_REPORT_GPUS] = {0};
  for (int g = 0; g < machines->report->paper.n_gpus; g++)
    gpus[g] = (struct gd_point_machine){.target = &machines->targets[g],
                                        .predictor = &machines->predictors[g]};
  return gd_points_make(
      &(struct gd_points_asked){
          .models = &machines->models[model],
          .n_models = n_models,
          .methods = methods,
          .n_methods = n_methods,
          .machines = gpus,
          .n_machines = machines->report->paper.n_gpus,
          .options = {.backend = "cuda", .ranks = gd_report_counts[machines->counts], .nodes = 1}},
      points, err);
}

static int cell_of_point(const struct machines *machines, const struct gd_point *point) {
  return cell_of(machines, (int)(point->model - machines->models),
                 (int)(point->options.target - machines->targets));
}

/* Methods on all GPUs for all models; `left`: on those cells alone that have no answer. */
static enum gd_status plan_methods(const struct machines *machines, const char *const *names,
                                   bool left, struct gd_error *err) {
  struct gd_report_predicted *predicted = &machines->report->predicted;
  struct gd_method methods[TRIED];
  struct gd_points points = {0};
  int n_methods = 0, count = 0;
  for (; n_methods < TRIED && names[n_methods]; n_methods++)
    GD_TRY(gd_method_parse(names[n_methods], &methods[n_methods], err));
  GD_TRY(make_points(machines, 0, machines->report->paper.n_recipes, methods, n_methods, &points,
                     err));
  for (int i = 0; i < points.count; i++)
    if (!left || predicted->best[cell_of_point(machines, &points.all[i])].state != GD_REPORT_KNOWN)
      points.all[count++] = points.all[i];
  points.count = count;
  enum gd_status status = plan_points(&points, err);
  for (int i = 0; i < points.count && status == GD_OK; i++) {
    const struct gd_point *point = &points.all[i];
    take_point(predicted, cell_of_point(machines, point), point);
  }
  gd_points_free(&points);
  return status;
}

/* The days of n memory-saving methods become a spread, where free-lunch alone and three of them
   fit. */
static void take_spread(struct gd_report_spread *spreads, int *count, double *days, int n,
                        double lunch) {
  if (n < 3 || !isfinite(lunch))
    return;
  qsort(days, (size_t)n, sizeof *days, gd_compare_doubles);
  spreads[(*count)++] = (struct gd_report_spread){
      .best = days[0], .median = days[n / 2], .worst = days[n - 1], .lunch = lunch};
}

/* Of all methods on one GPU. GPUs change first among the points. */
static void add_spread(struct gd_report *report, const struct gd_points *points, int gpu) {
  struct gd_report_predicted *predicted = &report->predicted;
  double days[GD_METHODS_MOST], lunch = (double)NAN;
  int n = 0;
  for (int i = gpu; i < points->count; i += report->paper.n_gpus) {
    const struct gd_point *found = &points->all[i];
    if (found->status != GD_OK || !found->prediction.known)
      continue;
    if (strcmp(found->trial.method, "free-lunch") == 0)
      lunch = found->prediction.days;
    else
      days[n++] = found->prediction.days;
  }
  take_spread(predicted->spreads, &predicted->n_spreads, days, n, lunch);
}

/* The whole space for the smaller Pythias, whose plans are quick: what Figure 5 is about. */
static enum gd_status plan_spreads(const struct machines *machines, struct gd_error *err) {
  struct gd_report *report = machines->report;
  struct gd_method methods[GD_METHODS_MOST];
  int n_methods = gd_method_space(true, methods);
  for (int m = 0; m < report->paper.n_recipes; m++) {
    const struct gd_paper_recipe *recipe = &report->paper.recipes[m];
    struct gd_points points = {0};
    if (strcmp(recipe->family, "Pythia") != 0 || recipe->parameters > 1.5e9)
      continue;
    GD_TRY(make_points(machines, m, 1, methods, n_methods, &points, err));
    enum gd_status status = plan_points(&points, err);
    for (int g = 0; g < report->paper.n_gpus && status == GD_OK; g++)
      add_spread(report, &points, g);
    gd_points_free(&points);
    GD_TRY(status);
  }
  return GD_OK;
}

static enum gd_status predict_machines(struct machines *machines, struct gd_error *err) {
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
  GD_TRY(plan_methods(machines, tried[several], false, err));
  GD_TRY(plan_methods(machines, tried_then[several], true, err));
  return gd_report_counts[machines->counts] == GD_REPORT_SPREAD_GPUS ? plan_spreads(machines, err)
                                                                     : GD_OK;
}

static enum gd_status predict_engine(struct gd_report *report, struct gd_error *err) {
  size_t rows = (size_t)report->paper.n_recipes;
  struct gd_model *models = gd_arena_alloc(&report->arena, rows, sizeof *models);
  report->predicted.spreads =
      gd_arena_alloc(&report->arena, rows * GD_REPORT_GPUS, sizeof *report->predicted.spreads);
  if (!models || !report->predicted.spreads)
    return gd_report_no_memory(err);
  for (size_t m = 0; m < rows; m++)
    GD_TRY(gd_model_load(report->paper.recipes[m].model, &models[m], err));
  for (int i = 0; i < GD_REPORT_COUNTS; i++) {
    struct machines machines = {.report = report, .models = models, .counts = i};
    enum gd_status status = predict_machines(&machines, err);
    for (int g = 0; g < GD_REPORT_GPUS; g++)
      gd_predictor_deinit(&machines.predictors[g]);
    GD_TRY(status);
  }
  return GD_OK;
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

/* Of the best settings' cell: free-lunch alone against the memory-saving methods. */
static void take_methods(struct gd_report *report, const struct gd_stack_cell *cell,
                         const struct gd_stack_fit *fit, int at) {
  struct gd_report_predicted *predicted = &report->predicted;
  struct gd_report_prediction *lunch = &predicted->stack_lunch[at],
                              *saving = &predicted->stack_saving[at];
  double days[GD_METHODS_MOST];
  int n = 0;
  *lunch = *saving = (struct gd_report_prediction){.state = GD_REPORT_INFEASIBLE};
  for (int i = 0; i < cell->n_points; i++) {
    const struct gd_stack_point *point = &cell->points[i];
    if (point->micro_batch == 0)
      continue;
    double found = gd_stack_step_s(cell->model, point, &cell->target, fit) *
                   (double)cell->model->model.recipe.steps / 86400;
    bool alone = point->method.sharding == GD_SHARDING_NONE && !point->method.ckpt;
    struct gd_report_prediction *to = alone ? lunch : saving;
    if (to->state != GD_REPORT_KNOWN || found < to->days)
      *to = (struct gd_report_prediction){.state = GD_REPORT_KNOWN, .days = found};
    if (!alone)
      days[n++] = found;
  }
  if (strcmp(cell->family, "Pythia") == 0 && cell->paper->count > 1)
    take_spread(predicted->stack_spreads, &predicted->n_stack_spreads, days, n,
                lunch->state == GD_REPORT_KNOWN ? lunch->days : (double)NAN);
}

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
  if (cell->paper->table == GD_PAPER_OPTIMAL)
    take_methods(report, cell, fit, row * GD_REPORT_CELLS + column);
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
    qsort(judging.errors, (size_t)n, sizeof *judging.errors, gd_compare_doubles);
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
  struct gd_report_prediction **all[] = {&predicted->best,        &predicted->naive,
                                         &predicted->lunch,       &predicted->saving,
                                         &predicted->stack_best,  &predicted->stack_naive,
                                         &predicted->stack_lunch, &predicted->stack_saving};
  size_t cells = (size_t)report->paper.n_recipes * GD_REPORT_CELLS;
  if (report->order->no_predictions)
    return GD_OK;
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    *all[i] = gd_arena_alloc(&report->arena, cells, sizeof **all[i]);
    if (!*all[i])
      return gd_report_no_memory(err);
  }
  predicted->stack_spreads =
      gd_arena_alloc(&report->arena, cells, sizeof *predicted->stack_spreads);
  if (!predicted->stack_spreads)
    return gd_report_no_memory(err);
  GD_TRY(predict_engine(report, err));
  GD_TRY(predict_stack(report, err));
  predicted->known = true;
  return GD_OK;
}
