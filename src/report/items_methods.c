/*
 * Methods: Figures 3 and 10 (what is feasible), 4 and 11 (what saving memory does to speed), 5 (the
 * best against an arbitrary choice), and Appendix J (the settings behind Table 1).
 */
#include <stdlib.h>
#include <string.h>

#include "report/report_int.h"

/* --- feasibility, figures 3 and 10 ---------------------------------------------------------- */

/* Which counts of GPUs a figure looks at. */
enum counts { ONE_GPU, SEVERAL_GPUS };

static bool counts_hold(enum counts counts, int gpus) {
  return counts == ONE_GPU ? gpus == 1 : gpus > 1;
}

static bool paper_feasible(const struct gd_report *report, enum gd_paper_table table,
                           const char *model, const char *gpu, enum counts counts) {
  for (int i = 0; i < GD_REPORT_COUNTS; i++) {
    const struct gd_paper_days *cell =
        gd_paper_find(&report->paper, table, model, gpu, gd_report_counts[i]);
    if (cell && cell->days > 0 && counts_hold(counts, gd_report_counts[i]))
      return true;
  }
  return false;
}

/* Whether free-lunch alone is the optimum there for one of the counts: then it is feasible. */
static bool paper_lunch_alone(const struct gd_report *report, const char *model, const char *gpu,
                              enum counts counts) {
  for (int i = 0; i < GD_REPORT_COUNTS; i++) {
    const struct gd_paper_setting *setting =
        gd_paper_find_setting(&report->paper, model, gpu, gd_report_counts[i]);
    if (setting && counts_hold(counts, gd_report_counts[i]) && !setting->checkpointing &&
        !setting->offloading && setting->sharding[0] == '\0')
      return true;
  }
  return false;
}

enum { INFEASIBLE = -1, SAVING_ONLY, LUNCH_ONLY, NAIVE_TOO };
static const char *const classes_10[] = {"feasible; best with memory-saving methods",
                                         "feasible; best with free-lunch alone",
                                         "feasible with naive settings too"};
static const char *const classes_3[] = {"only with efficient methods", "with naive settings too"};

static int paper_class(const struct gd_report *report, const char *model, const char *gpu,
                       enum counts counts) {
  if (paper_feasible(report, GD_PAPER_NAIVE, model, gpu, counts))
    return NAIVE_TOO;
  if (!paper_feasible(report, GD_PAPER_OPTIMAL, model, gpu, counts))
    return INFEASIBLE;
  return paper_lunch_alone(report, model, gpu, counts) ? LUNCH_ONLY : SAVING_ONLY;
}

struct grid {
  const char *name, *title, *caption;
  enum counts counts;
  bool pythia_only; /* Figure 3: three classes */
  bool stack;       /* planned_grid: of the paper's software, not of this engine */
};

/* NULL: memory is out. */
static const char **gpu_names(struct gd_report *report) {
  const struct gd_paper *paper = &report->paper;
  const char **gpus = gd_report_texts(report, paper->n_gpus);
  for (int g = 0; g < paper->n_gpus && gpus; g++)
    gpus[g] =
        gd_report_print(report, "%s (%.0f GB)", paper->gpus[g].title, paper->gpus[g].memory_gb);
  return gpus;
}

static double paper_cell(const struct gd_report *report, const void *user, int model, int gpu) {
  const struct gd_paper *paper = &report->paper;
  const struct grid *grid = user;
  int found = paper_class(report, paper->recipes[model].model, paper->gpus[gpu].gpu, grid->counts);
  return found == INFEASIBLE ? (double)NAN : grid->pythia_only ? found == NAIVE_TOO : found;
}

static enum gd_status paper_grid(struct gd_report *report, const struct grid *grid,
                                 struct gd_error *err) {
  struct gd_report_map map = {.columns = gpu_names(report),
                              .n_columns = report->paper.n_gpus,
                              .pythia_only = grid->pythia_only,
                              .value = paper_cell,
                              .user = grid,
                              .look = {.title = grid->title,
                                       .classes = grid->pythia_only ? classes_3 : classes_10,
                                       .n_classes = grid->pythia_only ? 2 : 3,
                                       .ordered = true,
                                       .empty_name = "infeasible"}};
  return gd_report_add_map(report,
                           &(struct gd_report_block){grid->name, grid->caption, GD_REPORT_PAPER,
                                                     "derived from Tables 1 and 4 and Appendix J "
                                                     "of arXiv 2410.23261"},
                           &map, err);
}

/* The same of this program's engine, by its plans: they are exact in bytes. */
static double predicted_class(const struct gd_report *report, const void *user, int model,
                              int gpu) {
  (void)user;
  double found = (double)NAN;
  for (int i = 0; i < GD_REPORT_COUNTS; i++) {
    int cell = model * GD_REPORT_CELLS + gpu * GD_REPORT_COUNTS + i;
    if (gd_report_counts[i] == 1)
      continue;
    if (report->predicted.naive[cell].state == GD_REPORT_KNOWN)
      return 1;
    if (report->predicted.best[cell].state == GD_REPORT_KNOWN)
      found = 0;
  }
  return found;
}

static enum gd_status predicted_grid(struct gd_report *report, struct gd_error *err) {
  if (!report->predicted.known)
    return GD_OK;
  struct gd_report_map map = {.columns = gpu_names(report),
                              .n_columns = report->paper.n_gpus,
                              .pythia_only = true,
                              .value = predicted_class,
                              .look = {.title = "What this engine fits, planned",
                                       .classes = classes_3,
                                       .n_classes = 2,
                                       .ordered = true,
                                       .empty_name = "infeasible"}};
  return gd_report_add_map(report,
                           &(struct gd_report_block){"figure-3-predicted",
                                                     "The same for this program's engine: what its "
                                                     "plans fit into.",
                                                     GD_REPORT_PREDICTED,
                                                     "plans of this program, exact in bytes"},
                           &map, err);
}

static const char *const classes_measured[] = {"infeasible", "only with efficient methods",
                                               "efficient methods; naive not measured",
                                               "with naive settings too"};

/* NaN: nothing is known. */
static double measured_class(const struct gd_report_group *group) {
  if (!group)
    return (double)NAN;
  if (group->naive && group->naive->status == GD_TRIAL_OK)
    return 3;
  if (group->best)
    return group->naive && group->naive->status == GD_TRIAL_INFEASIBLE ? 1 : 2;
  for (int i = 0; i < group->count; i++)
    if (group->trials[i].status != GD_TRIAL_INFEASIBLE)
      return (double)NAN;
  return 0;
}

/* Models of the store over its sites, each cell by `value`; those without any are left out. */
static enum gd_status measured_map(struct gd_report *report,
                                   double (*value)(const struct gd_report_group *group),
                                   struct gd_plot *plot, bool *any, struct gd_error *err) {
  const struct gd_report_measured *measured = &report->measured;
  struct gd_plot_series *series = gd_report_series(report, measured->n_models);
  const char **sites = gd_report_texts(report, measured->n_sites);
  if (!series || !sites)
    return gd_report_no_memory(err);
  int rows = 0;
  for (int i = 0; i < measured->n_sites; i++)
    sites[i] = measured->sites[i].label;
  for (int m = 0; m < measured->n_models; m++) {
    double *values = gd_report_numbers(report, measured->n_sites);
    if (!values)
      return gd_report_no_memory(err);
    bool known = false;
    for (int i = 0; i < measured->n_sites; i++) {
      values[i] = value(gd_report_find_group(measured, measured->models[m], &measured->sites[i]));
      known = known || isfinite(values[i]);
    }
    if (known)
      series[rows++] =
          (struct gd_plot_series){.name = gd_report_model_title(report, measured->models[m]),
                                  .y = values,
                                  .count = measured->n_sites};
  }
  plot->kind = GD_PLOT_CELLS;
  plot->categories = sites;
  plot->n_categories = measured->n_sites;
  plot->series = series;
  plot->n_series = rows;
  *any = rows > 0;
  return GD_OK;
}

static enum gd_status measured_grid(struct gd_report *report, const char *name,
                                    struct gd_error *err) {
  struct gd_plot plot = {.title = "What could be trained here",
                         .classes = classes_measured,
                         .n_classes = 4,
                         .ordered = true,
                         .empty_name = "not measured"};
  bool any = false;
  GD_TRY(measured_map(report, measured_class, &plot, &any, err));
  if (!any)
    return GD_OK;
  return gd_report_add_plot(report,
                            &(struct gd_report_block){name,
                                                      "The same of this store: models over "
                                                      "the devices on which they were tried.",
                                                      GD_REPORT_MEASURED,
                                                      gd_report_measured_from(report)},
                            &plot, err);
}

static enum gd_status figure_3(struct gd_report *report, struct gd_error *err) {
  gd_report_begin(report, "figure-3", "Figure 3", "Which Pythia models can be trained at all");
  gd_report_pair(report, true);
  GD_TRY(paper_grid(report,
                    &(struct grid){"figure-3-paper", "Efficient methods make every pair feasible",
                                   "Pythia on 2, 4 or 8 GPUs: 9 of 20 pairs are infeasible with "
                                   "naive settings, none with the best ones.",
                                   SEVERAL_GPUS, true, false},
                    err));
  GD_TRY(measured_grid(report, "figure-3-measured", err));
  GD_TRY(predicted_grid(report, err));
  gd_report_pair(report, false);
  gd_report_end(report);
  return GD_OK;
}

/* By plans: whether free-lunch alone fits is known there, which the paper's tables do not tell. */
static const char *const classes_10_planned[] = {
    "only with memory-saving methods", "with free-lunch alone too", "with naive settings too"};

static double planned_class(const struct gd_report *report, const void *user, int model, int gpu) {
  const struct grid *grid = user;
  const struct gd_report_predicted *from = &report->predicted;
  const struct gd_report_prediction *naive = grid->stack ? from->stack_naive : from->naive;
  const struct gd_report_prediction *lunch = grid->stack ? from->stack_lunch : from->lunch;
  const struct gd_report_prediction *saving = grid->stack ? from->stack_saving : from->saving;
  double found = (double)NAN;
  for (int i = 0; i < GD_REPORT_COUNTS; i++) {
    int cell = model * GD_REPORT_CELLS + gpu * GD_REPORT_COUNTS + i;
    if (!counts_hold(grid->counts, gd_report_counts[i]))
      continue;
    double here = naive[cell].state == GD_REPORT_KNOWN    ? NAIVE_TOO
                  : lunch[cell].state == GD_REPORT_KNOWN  ? LUNCH_ONLY
                  : saving[cell].state == GD_REPORT_KNOWN ? SAVING_ONLY
                                                          : (double)NAN;
    if (!(found >= here))
      found = isnan(here) ? found : here;
  }
  return found;
}

static enum gd_status planned_grid(struct gd_report *report, const struct grid *grid,
                                   struct gd_error *err) {
  if (!report->predicted.known)
    return GD_OK;
  struct gd_report_map map = {.columns = gpu_names(report),
                              .n_columns = report->paper.n_gpus,
                              .value = planned_class,
                              .user = grid,
                              .look = {.title = grid->title,
                                       .classes = classes_10_planned,
                                       .n_classes = 3,
                                       .ordered = true,
                                       .empty_name = "infeasible with what was planned"}};
  return gd_report_add_map(
      report,
      &(struct gd_report_block){grid->name, grid->caption, GD_REPORT_PREDICTED,
                                grid->stack ? "a model of that software's memory; Table 1 says "
                                              "how often it is right"
                                            : "plans of this program, exact in bytes"},
      &map, err);
}

static enum gd_status figure_10(struct gd_report *report, struct gd_error *err) {
  gd_report_begin(report, "figure-10", "Figure 10", "What is feasible with which methods");
  gd_report_text(
      report, "The paper's figure also shows where free-lunch methods alone fit. Its tables tell "
              "that only where free-lunch alone is the best choice; elsewhere it is not known, "
              "and its two maps here say what the best choice was. For this program's engine all "
              "three classes are known from its plans, and for the paper's software from a model "
              "of its memory.");
  gd_report_pair(report, true);
  GD_TRY(paper_grid(report,
                    &(struct grid){"figure-10-paper-1", "Paper: one GPU",
                                   "What the best choice was.", ONE_GPU, false, false},
                    err));
  GD_TRY(paper_grid(report,
                    &(struct grid){"figure-10-paper-several", "Paper: 2, 4 or 8 GPUs",
                                   "What the best choice was.", SEVERAL_GPUS, false, false},
                    err));
  GD_TRY(planned_grid(report,
                      &(struct grid){"figure-10-predicted-1", "This engine: one GPU",
                                     "What its plans fit into.", ONE_GPU, false, false},
                      err));
  GD_TRY(planned_grid(report,
                      &(struct grid){"figure-10-predicted-several", "This engine: 2, 4 or 8 GPUs",
                                     "What its plans fit into.", SEVERAL_GPUS, false, false},
                      err));
  GD_TRY(planned_grid(report,
                      &(struct grid){.name = "figure-10-stack-1",
                                     .title = "PyTorch: one GPU",
                                     .caption = "By a model of its memory.",
                                     .counts = ONE_GPU,
                                     .stack = true},
                      err));
  GD_TRY(planned_grid(report,
                      &(struct grid){.name = "figure-10-stack-several",
                                     .title = "PyTorch: 2, 4 or 8 GPUs",
                                     .caption = "By a model of its memory.",
                                     .counts = SEVERAL_GPUS,
                                     .stack = true},
                      err));
  gd_report_pair(report, false);
  gd_report_end(report);
  return GD_OK;
}

/* --- what saving memory does to speed, figures 4 and 11 ------------------------------------- */

/* In whole percent, as the paper prints it; never -0. */
static double percent_less(double days, double than) {
  return round(100 * (1 - days / than)) + 0.0;
}

/* Reduction of the training time by the best memory-saving methods. */
static double saving_gain(const struct gd_report_group *group) {
  if (!group || !group->saving || !group->free_lunch || group->free_lunch->status != GD_TRIAL_OK)
    return (double)NAN;
  return percent_less(group->saving->days, group->free_lunch->days);
}

static double predicted_gain(const struct gd_report *report, const void *user, int model,
                             int column) {
  int cell = model * GD_REPORT_CELLS + column;
  const struct gd_report_predicted *from = &report->predicted;
  bool stack = *(const bool *)user;
  const struct gd_report_prediction *lunch = &(stack ? from->stack_lunch : from->lunch)[cell];
  const struct gd_report_prediction *saving = &(stack ? from->stack_saving : from->saving)[cell];
  if (lunch->state != GD_REPORT_KNOWN || saving->state != GD_REPORT_KNOWN)
    return (double)NAN;
  return percent_less(saving->days, lunch->days);
}

static const char *predicted_gain_title(struct gd_report *report, const bool *stack,
                                        bool pythia_only) {
  int gains = 0, count = 0;
  for (int m = 0; m < report->paper.n_recipes; m++)
    for (int i = 0; i < GD_REPORT_CELLS; i++) {
      if (pythia_only && strcmp(report->paper.recipes[m].family, "Pythia") != 0)
        continue;
      double gain = predicted_gain(report, stack, m, i);
      gains += gain > 0;
      count += isfinite(gain) != 0;
    }
  return gd_report_print(report, "Predicted: %s gains from saving memory in %d of %d cases",
                         *stack ? "PyTorch" : "this engine", gains, count);
}

static const char *predicted_from(bool stack) {
  return stack
             ? "a model of the paper's software, of a GPU that its fit has not seen; Table 1 says "
               "how good it is"
             : "predicted days of this program's engine; Table 1 says what those of each GPU rest "
               "on";
}

/* The same by prediction: of this engine free-lunch alone against +ckpt, +zero1 and both, of the
   paper's software against all that save memory. */
static enum gd_status figure_gain_predicted(struct gd_report *report, const char *number,
                                            bool stack, struct gd_error *err) {
  if (!report->predicted.known)
    return GD_OK;
  struct gd_report_map map = {
      .columns = gd_report_grid_names(report),
      .n_columns = GD_REPORT_CELLS,
      .pythia_only = strcmp(number, "4") == 0,
      .value = predicted_gain,
      .user = &stack,
      .look = {.title = predicted_gain_title(report, &stack, strcmp(number, "4") == 0),
               .y_label = "% less time than free-lunch alone (negative: more)",
               .diverging = true,
               .empty_name = "free-lunch alone does not fit"}};
  return gd_report_add_map(
      report,
      &(struct gd_report_block){
          gd_report_print(report, "figure-%s-%s", number, stack ? "stack" : "predicted"),
          stack ? "Predicted, not measured: days of the paper's software with the best of all "
                  "memory-saving methods against free-lunch alone."
                : "Predicted, not measured: days of this program's engine with the best of +ckpt, "
                  "+zero1 and both against free-lunch alone.",
          GD_REPORT_PREDICTED, predicted_from(stack)},
      &map, err);
}

/* In how many of the cells saving memory saves time. */
static const char *gain_title(struct gd_report *report, const struct gd_plot *plot,
                              const char *whose) {
  int gains = 0, count = 0;
  for (int s = 0; s < plot->n_series; s++)
    for (int i = 0; i < plot->series[s].count; i++) {
      gains += plot->series[s].y[i] > 0;
      count += isfinite(plot->series[s].y[i]) != 0;
    }
  return gd_report_print(report, "Saving memory saves time in %d of %d cases%s", gains, count,
                         whose);
}

static enum gd_status figure_gain(struct gd_report *report, const char *number, const char *title,
                                  const char *about, struct gd_error *err) {
  struct gd_plot plot = {.y_label = "% less time than free-lunch alone (negative: more)",
                         .diverging = true,
                         .empty_name = "one of the two was not measured, or is infeasible"};
  bool any = false;
  gd_report_begin(report, gd_report_print(report, "figure-%s", number),
                  gd_report_print(report, "Figure %s", number), title);
  gd_report_text(report, about);
  if (strcmp(number, "4") == 0)
    GD_TRY(gd_report_add_statements(report, "figure-4-paper", "Figure 4", err));
  GD_TRY(measured_map(report, saving_gain, &plot, &any, err));
  plot.title = gain_title(report, &plot, " measured here");
  if (any)
    GD_TRY(gd_report_add_plot(
        report,
        &(struct gd_report_block){gd_report_print(report, "figure-%s-measured", number),
                                  "Time of the best memory-saving trial against the free-lunch "
                                  "trial of the same model, device and count.",
                                  GD_REPORT_MEASURED, gd_report_measured_from(report)},
        &plot, err));
  GD_TRY(figure_gain_predicted(report, number, false, err));
  GD_TRY(figure_gain_predicted(report, number, true, err));
  gd_report_end(report);
  return GD_OK;
}

/* --- the best against an arbitrary choice, figure 5 ------------------------------------------ */

enum { RELATIVES = 4 };
static const char *const relative_names[RELATIVES] = {"best", "free-lunch alone", "median",
                                                      "worst"};

/* The groups of the store that have three memory-saving trials and, as in the paper, one of
   free-lunch alone. NULL: memory is out. */
static struct gd_report_spread *measured_spreads(struct gd_report *report, int *count) {
  const struct gd_report_measured *measured = &report->measured;
  struct gd_report_spread *spreads =
      gd_arena_alloc(&report->arena, (size_t)measured->n_groups + 1, sizeof *spreads);
  *count = 0;
  for (int g = 0; g < measured->n_groups && spreads; g++) {
    const struct gd_report_group *group = &measured->groups[g];
    if (isfinite(group->median_days) && group->free_lunch &&
        group->free_lunch->status == GD_TRIAL_OK)
      spreads[(*count)++] = (struct gd_report_spread){.best = group->saving->days,
                                                      .median = group->median_days,
                                                      .worst = group->worst_days,
                                                      .lunch = group->free_lunch->days};
  }
  return spreads;
}

/* Speeds relative to the median of the memory-saving methods, over all spreads. */
static void relative_speeds(const struct gd_report_spread *spreads, int count, double *means,
                            double *low, double *high) {
  enum { MOST = 512, FEWEST = 3 }; /* of fewer an interval of the mean says nothing */
  double values[RELATIVES][MOST];
  int counts[RELATIVES] = {0};
  for (int s = 0; s < count && s < MOST; s++) {
    const struct gd_report_spread *spread = &spreads[s];
    double speeds[RELATIVES] = {spread->median / spread->best, spread->median / spread->lunch, 1,
                                spread->median / spread->worst};
    for (int i = 0; i < RELATIVES; i++)
      if (isfinite(speeds[i]))
        values[i][counts[i]++] = speeds[i];
  }
  for (int i = 0; i < RELATIVES; i++) {
    struct gd_report_mean mean = gd_report_mean_of(values[i], counts[i]);
    means[i] = mean.mean;
    bool shown = i != 2 && counts[i] >= FEWEST;
    low[i] = shown ? mean.mean - mean.half : (double)NAN;
    high[i] = shown ? mean.mean + mean.half : (double)NAN;
  }
}

static enum gd_status add_speeds(struct gd_report *report, const struct gd_report_block *block,
                                 const char *whose, const struct gd_report_spread *spreads,
                                 int count, struct gd_error *err) {
  double means[RELATIVES], low[RELATIVES], high[RELATIVES];
  relative_speeds(spreads, count, means, low, high);
  struct gd_plot_series series = {
      .name = "speed", .y = means, .low = low, .high = high, .count = RELATIVES};
  struct gd_plot plot = {.kind = GD_PLOT_BARS,
                         .title = gd_report_print(report,
                                                  "The best choice is %.2f times as fast as the "
                                                  "median one%s",
                                                  means[0], whose ? whose : ""),
                         .x_label = "choice",
                         .y_label = "speed, relative to the median choice",
                         .categories = relative_names,
                         .n_categories = RELATIVES,
                         .series = &series,
                         .n_series = 1};
  return gd_report_add_plot(report, block, &plot, err);
}

static enum gd_status figure_5_measured(struct gd_report *report, struct gd_error *err) {
  int count;
  const struct gd_report_spread *spreads = measured_spreads(report, &count);
  if (!spreads)
    return gd_report_no_memory(err);
  if (count == 0)
    return GD_OK;
  return add_speeds(
      report,
      &(struct gd_report_block){
          "figure-5-measured",
          gd_report_print(
              report,
              "Mean over %d combination%s of model, device and count in which free-lunch "
              "alone was measured too.",
              count, count == 1 ? "" : "s"),
          GD_REPORT_MEASURED, gd_report_measured_from(report)},
      NULL, spreads, count, err);
}

static enum gd_status figure_5(struct gd_report *report, struct gd_error *err) {
  const struct gd_report_predicted *predicted = &report->predicted;
  gd_report_begin(report, "figure-5", "Figure 5", "The best settings against an arbitrary choice");
  GD_TRY(gd_report_add_statements(report, "figure-5-paper", "Figure 5", err));
  GD_TRY(figure_5_measured(report, err));
  if (predicted->known && predicted->n_spreads > 0)
    GD_TRY(add_speeds(
        report,
        &(struct gd_report_block){
            "figure-5-predicted",
            gd_report_print(report,
                            "Predicted, not measured: mean over Pythia up to 1B on %d of each of "
                            "the paper's GPUs, %d combinations, all methods of the search space.",
                            GD_REPORT_SPREAD_GPUS, predicted->n_spreads),
            GD_REPORT_PREDICTED, predicted_from(false)},
        ", predicted", predicted->spreads, predicted->n_spreads, err));
  if (predicted->known && predicted->n_stack_spreads > 0)
    GD_TRY(add_speeds(
        report,
        &(struct gd_report_block){
            "figure-5-stack",
            gd_report_print(
                report,
                "Predicted, not measured: the paper's software, mean over Pythia on 2, "
                "4 and 8 of the paper's GPUs, %d combinations in which free-lunch alone "
                "fits.",
                predicted->n_stack_spreads),
            GD_REPORT_PREDICTED, predicted_from(true)},
        ", predicted for PyTorch", predicted->stack_spreads, predicted->n_stack_spreads, err));
  gd_report_end(report);
  return GD_OK;
}

/* --- Appendix J ----------------------------------------------------------------------------- */

static const struct gd_report_column setting_columns[] = {
    {"Model", NULL, false},         {"GPU", NULL, false},           {"Count", NULL, true},
    {"Free lunch", NULL, false},    {"Checkpointing", NULL, false}, {"Sharding", NULL, false},
    {"Offloading", NULL, false},    {"Micro-batch", NULL, true},    {"Accumulation", NULL, true},
    {"Days (Table 1)", NULL, true},
};
enum { SETTING_COLUMNS = sizeof setting_columns / sizeof *setting_columns };

static const char *yes_no(bool yes) {
  return yes ? "yes" : "no";
}

/* "FSDP 2" of "fsdp2". */
static const char *sharding_title(const char *name) {
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++)
    if (strcmp(gd_method_row((enum gd_method_part_id)i)->name, name) == 0)
      return gd_method_row((enum gd_method_part_id)i)->title;
  return "none";
}

static enum gd_status settings_table(struct gd_report *report, struct gd_error *err) {
  const struct gd_paper *paper = &report->paper;
  struct gd_report_table *table =
      gd_report_table_new(&report->arena, setting_columns, SETTING_COLUMNS, paper->n_settings);
  if (!table)
    return gd_report_no_memory(err);
  for (int i = 0; i < paper->n_settings; i++) {
    const struct gd_paper_setting *setting = &paper->settings[i];
    const struct gd_paper_gpu *gpu = gd_paper_find_gpu(paper, setting->gpu);
    const struct gd_paper_days *days =
        gd_paper_find(paper, GD_PAPER_OPTIMAL, setting->model, setting->gpu, setting->count);
    struct gd_report_cell *row = gd_report_table_row(table);
    row[0].text = gd_report_model_title(report, setting->model);
    row[1].text = gpu ? gpu->title : setting->gpu;
    gd_report_set_count(report, &row[2], setting->count);
    row[3].text = yes_no(setting->free_lunch);
    row[4].text = yes_no(setting->checkpointing);
    row[5].text = sharding_title(setting->sharding);
    row[6].text = yes_no(setting->offloading);
    gd_report_set_count(report, &row[7], setting->micro_batch);
    gd_report_set_count(report, &row[8], setting->accumulation);
    if (days && days->days > 0)
      gd_report_set_days(report, &row[9], days->days);
  }
  return gd_report_add_table(
      report,
      &(struct gd_report_block){"appendix-j-paper",
                                "The best settings of every feasible cell of Table 1. GPUs x "
                                "micro-batch x accumulation is the batch of Table 3.",
                                GD_REPORT_PAPER, "arXiv 2410.23261, Appendix J, 2024-10-30"},
      table, err);
}

static const char *const setting_classes[] = {"free-lunch alone", "+ sharding", "+ checkpointing",
                                              "+ checkpointing and sharding", "+ offloading"};

static double setting_class(const struct gd_paper_setting *setting) {
  if (!setting)
    return (double)NAN;
  if (setting->offloading)
    return 4;
  if (setting->checkpointing)
    return setting->sharding[0] ? 3 : 2;
  return setting->sharding[0] ? 1 : 0;
}

/* "Z1", "F3", as labels of cells. */
static const char *setting_label(struct gd_report *report, const struct gd_paper_setting *setting) {
  const char *sharding = setting ? setting->sharding : "";
  return sharding[0] ? gd_report_print(report, "%s%s", sharding[0] == 'z' ? "Z" : "F", sharding + 4)
                     : NULL;
}

static const char *shard_title(struct gd_report *report) {
  int sharded = 0, count = 0;
  for (int i = 0; i < report->paper.n_settings; i++)
    if (report->paper.settings[i].count > 1) {
      sharded += report->paper.settings[i].sharding[0] != '\0';
      count++;
    }
  return gd_report_print(report, "On several GPUs the best settings shard in %d of %d cells",
                         sharded, count);
}

static enum gd_status settings_map(struct gd_report *report, struct gd_error *err) {
  const struct gd_paper *paper = &report->paper;
  struct gd_plot_series *series = gd_report_series(report, paper->n_recipes);
  const char **columns = gd_report_grid_names(report);
  if (!series || !columns)
    return gd_report_no_memory(err);
  for (int m = 0; m < paper->n_recipes; m++) {
    double *values = gd_report_numbers(report, GD_REPORT_CELLS);
    const char **labels = gd_report_texts(report, GD_REPORT_CELLS);
    if (!values || !labels)
      return gd_report_no_memory(err);
    for (int i = 0; i < GD_REPORT_CELLS; i++) {
      const struct gd_paper_setting *setting = gd_paper_find_setting(
          paper, paper->recipes[m].model, paper->gpus[i / GD_REPORT_COUNTS].gpu,
          gd_report_counts[i % GD_REPORT_COUNTS]);
      values[i] = setting_class(setting);
      labels[i] = setting_label(report, setting);
    }
    series[m] =
        (struct gd_plot_series){.name = gd_report_model_title(report, paper->recipes[m].model),
                                .y = values,
                                .labels = labels,
                                .count = GD_REPORT_CELLS};
  }
  struct gd_plot plot = {.kind = GD_PLOT_CELLS,
                         .title = shard_title(report),
                         .categories = columns,
                         .n_categories = GD_REPORT_CELLS,
                         .series = series,
                         .n_series = paper->n_recipes,
                         .classes = setting_classes,
                         .n_classes = 5,
                         .ordered = true,
                         .empty_name = "infeasible"};
  return gd_report_add_plot(
      report,
      &(struct gd_report_block){
          "appendix-j-map",
          "What the best settings use. Z1 to Z3 and F2, F3: stages of ZeRO and "
          "FSDP.",
          GD_REPORT_PAPER, "arXiv 2410.23261, Appendix J, 2024-10-30"},
      &plot, err);
}

static enum gd_status appendix_j(struct gd_report *report, struct gd_error *err) {
  gd_report_begin(report, "appendix-j", "Appendix J", "The best settings");
  GD_TRY(settings_map(report, err));
  gd_report_fold(report, "All settings of the paper");
  GD_TRY(settings_table(report, err));
  gd_report_fold(report, NULL);
  gd_report_end(report);
  return GD_OK;
}

enum gd_status gd_report_items_methods(struct gd_report *report, struct gd_error *err) {
  gd_report_chapter(report, "paper-methods", "Methods");
  GD_TRY(figure_3(report, err));
  GD_TRY(figure_gain(report, "4", "Memory-saving methods can also save time",
                     "Memory that is saved may be spent on larger micro-batches. The paper gives "
                     "no numbers behind this figure; what its text states:",
                     err));
  GD_TRY(figure_5(report, err));
  GD_TRY(figure_10(report, err));
  GD_TRY(figure_gain(report, "11", "The same by model and number of GPUs",
                     "The paper gives no numbers behind this figure either. Its text says that "
                     "these methods only cost time on one GPU, and that models of images gain "
                     "least from them.",
                     err));
  return appendix_j(report, err);
}
