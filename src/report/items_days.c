/*
 * Training times: Tables 1 and 4, Figure 2 (speed-up over naive), and Figure 6 (compute of the
 * original runs).
 */
#include <string.h>

#include "report/report_int.h"

const int gd_report_counts[GD_REPORT_COUNTS] = {1, 2, 4, 8};

/* --- the paper's grid ---------------------------------------------------------------------- */

/* A column for the model, then one a GPU and count. */
const struct gd_report_column *gd_report_grid_columns(struct gd_report *report) {
  struct gd_report_column *columns =
      gd_arena_alloc(&report->arena, 1 + GD_REPORT_CELLS, sizeof *columns);
  if (!columns)
    return NULL;
  columns[0] = (struct gd_report_column){.title = "Model"};
  for (int i = 0; i < GD_REPORT_CELLS; i++) {
    const struct gd_paper_gpu *gpu = &report->paper.gpus[i / GD_REPORT_COUNTS];
    columns[1 + i] = (struct gd_report_column){
        .title = gd_report_print(report, "%d", gd_report_counts[i % GD_REPORT_COUNTS]),
        .group = gd_report_print(report, "%s (%.0f GB)", gpu->title, gpu->memory_gb),
        .number = true};
  }
  return columns;
}

const struct gd_paper_days *gd_report_paper_cell(const struct gd_report *report,
                                                 enum gd_paper_table table, const char *model,
                                                 int i) {
  return gd_paper_find(&report->paper, table, model, report->paper.gpus[i / GD_REPORT_COUNTS].gpu,
                       gd_report_counts[i % GD_REPORT_COUNTS]);
}

const char **gd_report_grid_names(struct gd_report *report) {
  const char **names = gd_report_texts(report, GD_REPORT_CELLS);
  for (int i = 0; i < GD_REPORT_CELLS && names; i++) {
    const char *title = report->paper.gpus[i / GD_REPORT_COUNTS].title;
    const char *word = strrchr(title, ' ');
    names[i] = gd_report_print(report, "%d %s", gd_report_counts[i % GD_REPORT_COUNTS],
                               word ? word + 1 : title);
  }
  return names;
}

/* Days as a shade, a step for each factor of four from half a day on: the table is its own map. */
const char *gd_report_shade(struct gd_report *report, double days, const char *more) {
  int step = (int)floor(log(days / 0.5) / log(4)) + 1;
  return gd_report_print(report, "d%d%s", step < 0 ? 0 : step > 6 ? 6 : step, more);
}

static void set_paper_cell(struct gd_report *report, const struct gd_paper_days *from,
                           struct gd_report_cell *cell) {
  if (!from)
    return;
  if (!(from->days > 0)) {
    *cell = (struct gd_report_cell){"\xe2\x80\x94", (double)NAN, "none", NULL};
    return;
  }
  bool wrong = from->share > 1, doubt = from->share > 0.8;
  cell->text = gd_report_print(report, "%s%s", gd_report_days(report, from->days),
                               wrong   ? "\xe2\x80\xa1"
                               : doubt ? "\xe2\x80\xa0"
                                       : "");
  cell->value = from->days;
  cell->class_name = gd_report_shade(report, from->days, wrong ? " wrong" : doubt ? " doubt" : "");
}

static enum gd_status paper_grid(struct gd_report *report, enum gd_paper_table which,
                                 const struct gd_report_block *block, struct gd_error *err) {
  const struct gd_report_column *columns = gd_report_grid_columns(report);
  struct gd_report_table *table =
      columns ? gd_report_table_new(&report->arena, columns, 1 + GD_REPORT_CELLS,
                                    report->paper.n_recipes)
              : NULL;
  if (!table)
    return gd_report_no_memory(err);
  for (int m = 0; m < report->paper.n_recipes; m++) {
    struct gd_report_cell *row = gd_report_table_row(table);
    row[0].text = gd_report_model_title(report, report->paper.recipes[m].model);
    for (int i = 0; i < GD_REPORT_CELLS; i++)
      set_paper_cell(report, gd_report_paper_cell(report, which, report->paper.recipes[m].model, i),
                     &row[1 + i]);
  }
  return gd_report_add_table(report, block, table, err);
}

static const char doubtful[] =
    "\xe2\x80\xa0 and \xe2\x80\xa1 mark times that would need more than 80 % and more than 100 % "
    "of "
    "the GPUs' peak by the paper's own FLOPs and peaks (Figure 9): its program read the clock "
    "without waiting for the GPU. \xe2\x80\x94 is infeasible with every method.";

static enum gd_status table_1(struct gd_report *report, struct gd_error *err) {
  gd_report_begin(report, "table-1", "Table 1", "Days to train with the best settings");
  gd_report_text(report, doubtful);
  GD_TRY(paper_grid(
      report, GD_PAPER_OPTIMAL,
      &(struct gd_report_block){"table-1-paper",
                                "Days on 1, 2, 4 and 8 GPUs with the best of up to 22 "
                                "combinations of methods.",
                                GD_REPORT_PAPER, "arXiv 2410.23261, Table 1, 2024-10-30"},
      err));
  GD_TRY(gd_report_predicted_days(report, GD_PAPER_OPTIMAL, err));
  gd_report_end(report);
  return GD_OK;
}

static enum gd_status table_4(struct gd_report *report, struct gd_error *err) {
  gd_report_begin(report, "table-4", "Table 4", "Days to train with naive settings");
  GD_TRY(paper_grid(report, GD_PAPER_NAIVE,
                    &(struct gd_report_block){"table-4-paper",
                                              "Days on 1, 2, 4 and 8 GPUs without "
                                              "any method; marks as in Table 1.",
                                              GD_REPORT_PAPER,
                                              "arXiv 2410.23261, Table 4 (Appendix G), 2024-10-30"},
                    err));
  GD_TRY(gd_report_predicted_days(report, GD_PAPER_NAIVE, err));
  gd_report_end(report);
  return GD_OK;
}

/* --- figure 2 ------------------------------------------------------------------------------ */

enum { FIGURE_2_BARS = GD_REPORT_GPUS + 1, MOST_RATIOS = 512, FEW_BARS = 12 };

static bool is_pythia(const struct gd_paper_recipe *recipe) {
  return strcmp(recipe->family, "Pythia") == 0;
}

/* naive days / best (or analytic) days, for each Pythia cell of one GPU, or of all (gpu < 0). */
static int paper_ratios(const struct gd_report *report, int gpu, bool analytic, double *ratios) {
  int count = 0;
  for (int m = 0; m < report->paper.n_recipes; m++)
    for (int i = 0; i < GD_REPORT_CELLS && is_pythia(&report->paper.recipes[m]); i++) {
      const struct gd_paper_recipe *recipe = &report->paper.recipes[m];
      const struct gd_paper_days *naive =
          gd_report_paper_cell(report, GD_PAPER_NAIVE, recipe->model, i);
      const struct gd_paper_days *best =
          gd_report_paper_cell(report, GD_PAPER_OPTIMAL, recipe->model, i);
      double other = analytic
                         ? gd_paper_analytic_days(recipe, &report->paper.gpus[i / GD_REPORT_COUNTS],
                                                  gd_report_counts[i % GD_REPORT_COUNTS])
                     : best ? best->days
                            : 0;
      if ((gpu < 0 || i / GD_REPORT_COUNTS == gpu) && naive && naive->days > 0 && other > 0 &&
          count < MOST_RATIOS)
        ratios[count++] = naive->days / other;
    }
  return count;
}

/* A series of means with their intervals, under construction. */
struct means {
  double *y, *low, *high;
};

static bool new_means(struct gd_report *report, struct means *means, int count) {
  *means = (struct means){gd_report_numbers(report, count), gd_report_numbers(report, count),
                          gd_report_numbers(report, count)};
  return means->y && means->low && means->high;
}

static void set_mean(struct means *means, int at, struct gd_report_mean mean) {
  means->y[at] = mean.mean;
  means->low[at] = mean.mean - mean.half; /* NaN where there is no interval */
  means->high[at] = mean.mean + mean.half;
}

static struct gd_plot_series series_of(const struct means *means, const char *name, int count) {
  return (struct gd_plot_series){
      .name = name, .y = means->y, .low = means->low, .high = means->high, .count = count};
}

static enum gd_status figure_2_paper(struct gd_report *report, struct gd_error *err) {
  struct means means[2];
  const char *names[FIGURE_2_BARS] = {0};
  double ratios[MOST_RATIOS];
  if (!new_means(report, &means[0], FIGURE_2_BARS) || !new_means(report, &means[1], FIGURE_2_BARS))
    return gd_report_no_memory(err);
  for (int i = 0; i < FIGURE_2_BARS; i++) {
    int gpu = i < GD_REPORT_GPUS ? i : -1;
    names[i] = gpu >= 0 ? report->paper.gpus[gpu].title : "all";
    for (int s = 0; s < 2; s++) {
      int count = paper_ratios(report, gpu, s == 1, ratios);
      set_mean(&means[s], i, gd_report_mean_of(ratios, count));
    }
  }
  struct gd_plot_series series[] = {series_of(&means[0], "best settings (Table 1)", FIGURE_2_BARS),
                                    series_of(&means[1], "analytic (Sec. 3.1)", FIGURE_2_BARS)};
  struct gd_plot plot = {.kind = GD_PLOT_BARS,
                         .title = gd_report_print(report,
                                                  "The best settings train Pythia %.1f times as "
                                                  "fast as naive ones",
                                                  means[0].y[GD_REPORT_GPUS]),
                         .x_label = "GPU",
                         .y_label = "times as fast as naive",
                         .categories = names,
                         .n_categories = FIGURE_2_BARS,
                         .series = series,
                         .n_series = 2};
  return gd_report_add_plot(
      report,
      &(struct gd_report_block){"figure-2-paper",
                                "Mean over the Pythia cells in which naive is feasible, with 95 % "
                                "intervals. The text says 4.3 times; its tables give this.",
                                GD_REPORT_PAPER,
                                "computed from Tables 1 and 4 and Figure 9 of arXiv 2410.23261"},
      &plot, err);
}

/* The same of this program's engine on the paper's GPUs. */
static int predicted_ratios(const struct gd_report *report, int gpu, double *ratios) {
  const struct gd_report_predicted *predicted = &report->predicted;
  int count = 0;
  for (int m = 0; m < report->paper.n_recipes; m++)
    for (int i = 0; i < GD_REPORT_CELLS && is_pythia(&report->paper.recipes[m]); i++) {
      const struct gd_report_prediction *naive = &predicted->naive[m * GD_REPORT_CELLS + i];
      const struct gd_report_prediction *best = &predicted->best[m * GD_REPORT_CELLS + i];
      if ((gpu < 0 || i / GD_REPORT_COUNTS == gpu) && naive->state == GD_REPORT_KNOWN &&
          best->state == GD_REPORT_KNOWN && count < MOST_RATIOS)
        ratios[count++] = naive->days / best->days;
    }
  return count;
}

static enum gd_status figure_2_predicted(struct gd_report *report, struct gd_error *err) {
  struct means means;
  const char *names[FIGURE_2_BARS] = {0};
  double ratios[MOST_RATIOS];
  if (!report->predicted.known)
    return GD_OK;
  if (!new_means(report, &means, FIGURE_2_BARS))
    return gd_report_no_memory(err);
  for (int i = 0; i < FIGURE_2_BARS; i++) {
    int gpu = i < GD_REPORT_GPUS ? i : -1;
    names[i] = gpu >= 0 ? report->paper.gpus[gpu].title : "all";
    set_mean(&means, i, gd_report_mean_of(ratios, predicted_ratios(report, gpu, ratios)));
  }
  struct gd_plot_series series = series_of(&means, "best settings", FIGURE_2_BARS);
  struct gd_plot plot = {.kind = GD_PLOT_BARS,
                         .title =
                             gd_report_print(report, "This engine is predicted to gain %.1f times",
                                             means.y[GD_REPORT_GPUS]),
                         .x_label = "GPU",
                         .y_label = "times as fast as naive",
                         .categories = names,
                         .n_categories = FIGURE_2_BARS,
                         .series = &series,
                         .n_series = 1};
  return gd_report_add_plot(
      report,
      &(struct gd_report_block){"figure-2-predicted",
                                "This program's engine on the paper's GPUs: mean over the Pythia "
                                "cells in which naive fits, with 95 % intervals of the mean.",
                                GD_REPORT_PREDICTED,
                                "predicted days of Tables 1 and 4, with what they rest on there"},
      &plot, err);
}

static bool has_ratio(const struct gd_report_group *group) {
  return group->best && group->naive && group->naive->status == GD_TRIAL_OK;
}

/* One bar a model and device while they are few, else the means of devices. */
static int measured_speedups(struct gd_report *report, struct means *means, const char **names) {
  const struct gd_report_measured *measured = &report->measured;
  double ratios[MOST_RATIOS];
  int bars = 0, groups = 0;
  for (int g = 0; g < measured->n_groups; g++)
    groups += has_ratio(&measured->groups[g]);
  for (int g = 0; g < measured->n_groups && groups <= FEW_BARS; g++) {
    const struct gd_report_group *group = &measured->groups[g];
    if (!has_ratio(group))
      continue;
    const char *title = gd_report_model_title(report, group->model);
    names[bars] = measured->n_sites == 1
                      ? title
                      : gd_report_print(report, "%s, %d x %s", title, group->ranks, group->device);
    means->y[bars++] = group->naive->days / group->best->days;
  }
  for (int i = 0; i < measured->n_sites && groups > FEW_BARS; i++) {
    int count = 0;
    for (int m = 0; m < measured->n_models; m++) {
      const struct gd_report_group *group =
          gd_report_find_group(measured, measured->models[m], &measured->sites[i]);
      if (group && has_ratio(group) && count < MOST_RATIOS)
        ratios[count++] = group->naive->days / group->best->days;
    }
    if (count == 0)
      continue;
    names[bars] = measured->sites[i].label;
    set_mean(means, bars++, gd_report_mean_of(ratios, count));
  }
  return bars;
}

static enum gd_status figure_2_measured(struct gd_report *report, struct gd_error *err) {
  struct means means;
  const char **names = gd_report_texts(report, report->measured.n_groups);
  if (!names || !new_means(report, &means, report->measured.n_groups))
    return gd_report_no_memory(err);
  int bars = measured_speedups(report, &means, names);
  if (bars == 0)
    return GD_OK;
  struct gd_plot_series series = series_of(&means, "best settings", bars);
  struct gd_plot plot = {.kind = GD_PLOT_BARS,
                         .title = "What the best settings gained here",
                         .x_label = "model",
                         .y_label = "times as fast as naive",
                         .categories = names,
                         .n_categories = bars,
                         .series = &series,
                         .n_series = 1};
  return gd_report_add_plot(
      report,
      &(struct gd_report_block){"figure-2-measured",
                                "Naive against the best trial of the same model, device "
                                "and count.",
                                GD_REPORT_MEASURED, gd_report_measured_from(report)},
      &plot, err);
}

static enum gd_status figure_2(struct gd_report *report, struct gd_error *err) {
  gd_report_begin(report, "figure-2", "Figure 2", "Speed-up of the best settings over naive ones");
  gd_report_pair(report, true);
  GD_TRY(figure_2_paper(report, err));
  GD_TRY(figure_2_measured(report, err));
  GD_TRY(figure_2_predicted(report, err));
  gd_report_pair(report, false);
  gd_report_end(report);
  return GD_OK;
}

/* --- figure 6 ------------------------------------------------------------------------------ */

static const struct gd_report_column original_columns[] = {
    {"Model", NULL, false}, {"GPUs", NULL, true},     {"Type", NULL, false},
    {"Days", NULL, true},   {"GPU-days", NULL, true}, {"GPU-days, 8 A100 (Table 1)", NULL, true},
    {"Ratio", NULL, true},
};
enum { ORIGINAL_COLUMNS = sizeof original_columns / sizeof *original_columns };

struct originals {
  double *before, *after, *here;
  const char **names;
  double ratios[64];
  int n_ratios;
};

/* "RoBERTa 350M": Figure 6 (a) has sizes of its own, which are not those of Table 3. */
static const char *original_title(struct gd_report *report, const struct gd_paper_original *from) {
  const struct gd_paper_recipe *recipe = gd_paper_find_recipe(&report->paper, from->model);
  return recipe ? gd_report_print(report, "%s %s", recipe->family, from->size) : from->model;
}

static void original_row(struct gd_report *report, int i, struct originals *all,
                         struct gd_report_table *table) {
  const struct gd_paper_original *from = &report->paper.originals[i];
  const struct gd_paper_days *now =
      gd_paper_find(&report->paper, GD_PAPER_OPTIMAL, from->model, "a100", 8);
  struct gd_report_cell *row = gd_report_table_row(table);
  row[0].text = all->names[i] = original_title(report, from);
  row[2].text = from->gpu;
  if (now && now->days > 0)
    gd_report_set_days(report, &row[5], all->after[i] = 8 * now->days);
  if (!(from->gpus > 0 && from->days > 0))
    return;
  gd_report_set_count(report, &row[1], from->gpus);
  gd_report_set_days(report, &row[3], from->days);
  gd_report_set_days(report, &row[4], all->before[i] = from->gpus * from->days);
  if (isfinite(all->after[i])) {
    gd_report_set_digits(report, &row[6], all->before[i] / all->after[i]);
    if (all->n_ratios < 64)
      all->ratios[all->n_ratios++] = all->before[i] / all->after[i];
  }
}

/* The fewest GPU-days that were measured for each of the originals. */
static bool measured_gpu_days(struct gd_report *report, struct originals *all) {
  bool any = false;
  for (int i = 0; i < report->paper.n_originals; i++)
    for (int g = 0; g < report->measured.n_groups; g++) {
      const struct gd_report_group *group = &report->measured.groups[g];
      if (!group->best || strcmp(group->model, report->paper.originals[i].model) != 0 ||
          !gd_backend_is_gpu(group->best->backend))
        continue;
      double days = group->best->days * group->ranks;
      if (!(all->here[i] <= days))
        all->here[i] = days;
      any = true;
    }
  return any;
}

static enum gd_status figure_6(struct gd_report *report, struct gd_error *err) {
  int count = report->paper.n_originals;
  struct originals all = {.before = gd_report_numbers(report, count),
                          .after = gd_report_numbers(report, count),
                          .here = gd_report_numbers(report, count),
                          .names = gd_report_texts(report, count)};
  struct gd_report_table *table =
      gd_report_table_new(&report->arena, original_columns, ORIGINAL_COLUMNS, count);
  if (!all.before || !all.after || !all.here || !all.names || !table)
    return gd_report_no_memory(err);
  gd_report_begin(report, "figure-6", "Figure 6", "Compute of the original runs, and now");
  for (int i = 0; i < count; i++)
    original_row(report, i, &all, table);
  struct gd_report_mean mean = gd_report_mean_of(all.ratios, all.n_ratios);
  gd_report_text(report, gd_report_print(report,
                                         "On average the original runs took "
                                         "%.1f times the GPU-days of 8 A100 with the best settings "
                                         "(the text says 3.0).",
                                         mean.mean));
  GD_TRY(gd_report_add_table(
      report,
      &(struct gd_report_block){"figure-6a",
                                "What the models were first "
                                "trained on, next to Table 1.",
                                GD_REPORT_PAPER, "arXiv 2410.23261, Figure 6 (a) and Table 1"},
      table, err));
  bool here = measured_gpu_days(report, &all);
  struct gd_plot_series series[] = {
      {.name = "original", .y = all.before, .count = count},
      {.name = "8 A100, best settings", .y = all.after, .count = count},
      {.name = "measured here, best", .y = all.here, .count = count}};
  struct gd_plot plot = {.kind = GD_PLOT_BARS,
                         .title = gd_report_print(report,
                                                  "The original runs took %.1f times the GPU-days "
                                                  "of 8 A100 today",
                                                  mean.mean),
                         .x_label = "model",
                         .y_label = "GPU-days (TPU core days of ViT), logarithmic",
                         .categories = all.names,
                         .n_categories = count,
                         .series = series,
                         .n_series = here ? 3 : 2,
                         .log_y = true};
  struct gd_report_block block = {"figure-6b", "GPU-days: lower is better.", GD_REPORT_PAPER,
                                  "arXiv 2410.23261, Figure 6 (a) and Table 1"};
  if (here)
    block.from = gd_report_print(report, "%s; %s", block.from, gd_report_measured_from(report));
  GD_TRY(gd_report_add_plot(report, &block, &plot, err));
  gd_report_end(report);
  return GD_OK;
}

/* --- in short ------------------------------------------------------------------------------ */

/* What Tables 1 and 4 say together, and what of it cannot be. */
static void paper_facts(struct gd_report *report) {
  double ratios = 0;
  int feasible = 0, beyond = 0, pairs = 0;
  for (int i = 0; i < report->paper.n_days; i++) {
    const struct gd_paper_days *cell = &report->paper.days[i];
    if (cell->table != GD_PAPER_OPTIMAL || !(cell->days > 0))
      continue;
    const struct gd_paper_days *naive =
        gd_paper_find(&report->paper, GD_PAPER_NAIVE, cell->model, cell->gpu, cell->count);
    feasible++;
    beyond += cell->share > 1;
    if (naive && naive->days > 0) {
      ratios += naive->days / cell->days;
      pairs++;
    }
  }
  gd_report_text(report,
                 gd_report_print(
                     report,
                     "Every table and figure of \xe2\x80\x9c$100K or 100 Days\xe2\x80\x9d (arXiv "
                     "2410.23261), next to what this program predicts and, where this store has "
                     "the trials for it, what was measured here. With the best settings the "
                     "paper's models train %.1f times as fast as with naive ones, on average over "
                     "%d cells where both are feasible; %d of the %d times of Table 1 would need "
                     "more than the GPUs' peak by the paper's own FLOPs and peaks, and are marked.",
                     ratios / (pairs > 0 ? pairs : 1), pairs, beyond, feasible));
}

enum gd_status gd_report_items_days(struct gd_report *report, struct gd_error *err) {
  paper_facts(report);
  gd_report_chapter(report, "paper-days", "Training time");
  GD_TRY(table_1(report, err));
  GD_TRY(table_4(report, err));
  GD_TRY(figure_2(report, err));
  return figure_6(report, err);
}
