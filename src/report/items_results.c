/*
 * The beginning of the page: what was measured here, with which settings it was fastest, and all
 * trials. Of an empty store: how to fill it, and a prediction as an example. How far predictions
 * were from it is items_compared.c's, runs of `train` are items_runs.c's.
 */
#include <stdlib.h>
#include <string.h>

#include "report/html.h"
#include "report/report_int.h"

/* --- nothing yet --------------------------------------------------------------------------- */

#define EXAMPLE "pythia-1b" /* the paper's own, of its Sec. 4.1 */

/* Predicted days of the example on the paper's GPUs, a bar each. */
static enum gd_status example_plot(struct gd_report *report, int model, const char *title,
                                   struct gd_error *err) {
  struct gd_plot_series series[GD_REPORT_GPUS];
  const char *names[GD_REPORT_COUNTS];
  for (int i = 0; i < GD_REPORT_COUNTS; i++)
    names[i] = gd_report_print(report, i ? "%d GPUs" : "%d GPU", gd_report_counts[i]);
  for (int g = 0; g < GD_REPORT_GPUS; g++) {
    double *days = gd_report_numbers(report, GD_REPORT_COUNTS);
    double *low = gd_report_numbers(report, GD_REPORT_COUNTS);
    double *high = gd_report_numbers(report, GD_REPORT_COUNTS);
    if (!days || !low || !high)
      return gd_report_no_memory(err);
    for (int i = 0; i < GD_REPORT_COUNTS; i++) {
      const struct gd_report_prediction *cell =
          &report->predicted.best[model * GD_REPORT_CELLS + g * GD_REPORT_COUNTS + i];
      if (cell->state != GD_REPORT_KNOWN)
        continue;
      days[i] = cell->days;
      low[i] = cell->low;
      high[i] = cell->high;
    }
    series[g] = (struct gd_plot_series){.name = report->paper.gpus[g].title,
                                        .y = days,
                                        .low = low,
                                        .high = high,
                                        .count = GD_REPORT_COUNTS};
  }
  struct gd_plot plot = {.kind = GD_PLOT_BARS,
                         .title = title,
                         .x_label = "GPUs",
                         .y_label = "days, logarithmic",
                         .categories = names,
                         .n_categories = GD_REPORT_COUNTS,
                         .series = series,
                         .n_series = GD_REPORT_GPUS,
                         .log_y = true};
  return gd_report_add_plot(
      report,
      &(struct gd_report_block){
          "example",
          "An example, predicted for this program's engine with the best of a few methods; the "
          "lines are intervals of 90 %. 'gpudays plan MODEL --gpu 4xa100' answers for any model "
          "and machine.",
          GD_REPORT_PREDICTED,
          "plans of this program, timed by a model of each GPU; the appendix says what each rests "
          "on"},
      &plot, err);
}

static enum gd_status example(struct gd_report *report, struct gd_error *err) {
  enum { A100_4 = 2 * GD_REPORT_COUNTS + 2 };
  int model = 0;
  while (model < report->paper.n_recipes &&
         strcmp(report->paper.recipes[model].model, EXAMPLE) != 0)
    model++;
  if (!report->predicted.known || model == report->paper.n_recipes)
    return GD_OK;
  const struct gd_report_prediction *shown =
      &report->predicted.best[model * GD_REPORT_CELLS + A100_4];
  const char *title =
      shown->state == GD_REPORT_KNOWN
          ? gd_report_print(report, "%s on 4 %s would take %s days (%s to %s)",
                            gd_report_model_title(report, EXAMPLE),
                            report->paper.gpus[A100_4 / GD_REPORT_COUNTS].title,
                            gd_report_days(report, shown->days), gd_report_days(report, shown->low),
                            gd_report_days(report, shown->high))
          : gd_report_print(report, "Days of %s", gd_report_model_title(report, EXAMPLE));
  return example_plot(report, model, title, err);
}

/* --- in short ------------------------------------------------------------------------------ */

static void add_fact(struct gd_report *report, enum gd_report_source source, const char *text) {
  gd_strbuf_append(&report->body, "<li>");
  gd_report_chip(&report->body, source);
  gd_html_text(&report->body, text);
  gd_strbuf_append(&report->body, "</li>\n");
}

/* Whether a says more about its machine than b: the larger model does, among runs of a year at
   most; else the shorter run. */
static bool says_more(const struct gd_report_trial *a, const struct gd_report_trial *b) {
  const double year = 365;
  if (!b || (a->days <= year) != (b->days <= year))
    return !b || a->days <= year;
  return a->days <= year ? a->train_flops > b->train_flops : a->days < b->days;
}

/* One good trial of each site. */
static void measured_facts(struct gd_report *report) {
  enum { MOST = 4 };
  const struct gd_report_measured *measured = &report->measured;
  for (int i = 0, said = 0; i < measured->n_sites && said < MOST; i++) {
    const struct gd_report_trial *best = NULL;
    for (int g = 0; g < measured->n_groups; g++) {
      const struct gd_report_trial *trial = measured->groups[g].best;
      if (trial && gd_report_is_at(trial, &measured->sites[i]) && says_more(trial, best))
        best = trial;
    }
    if (!best)
      continue;
    said++;
    add_fact(report, GD_REPORT_MEASURED,
             gd_report_print(report, "%s takes %s days on %s with %s (95 %%: %s to %s).",
                             gd_report_model_title(report, best->model),
                             gd_report_days(report, best->days), measured->sites[i].label,
                             best->method_name, gd_report_days(report, best->days_low),
                             gd_report_days(report, best->days_high)));
  }
}

/* --- the best settings --------------------------------------------------------------------- */

static const struct gd_report_column best_columns[] = {
    {"Model", NULL, false},      {"On", NULL, false},           {"Method", NULL, false},
    {"Micro-batch", NULL, true}, {"Days", "Measured", true},    {"\xc2\xb1 %", "Measured", true},
    {"Days", "Predicted", true}, {"Off, %", "Predicted", true}, {"Times naive", NULL, true},
    {"MFU, %", NULL, true},      {"GiB", NULL, true},           {"Paper, days", NULL, true},
};
enum { BEST_COLUMNS = sizeof best_columns / sizeof *best_columns };

/* What the paper says of that model on so many of that GPU; NULL: nothing. */
static const struct gd_paper_days *paper_days(const struct gd_report *report,
                                              enum gd_paper_table table,
                                              const struct gd_report_trial *trial) {
  const struct gd_paper_gpu *gpu = gd_report_paper_gpu(report, trial->device);
  return gpu ? gd_paper_find(&report->paper, table, trial->model, gpu->gpu, trial->ranks) : NULL;
}

static bool is_in_paper(const struct gd_report *report) {
  bool any = false;
  for (int i = 0; i < report->measured.n_trials; i++)
    any = any || paper_days(report, GD_PAPER_OPTIMAL, &report->measured.trials[i]);
  return any;
}

static const char *site_of(struct gd_report *report, const struct gd_report_trial *trial) {
  for (int i = 0; i < report->measured.n_sites; i++)
    if (gd_report_is_at(trial, &report->measured.sites[i]))
      return report->measured.sites[i].label;
  return gd_report_print(report, "%d x %s", trial->ranks, trial->device);
}

/* With one digit behind the point: errors of predictions are no more exact. */
static void set_percent(struct gd_report *report, struct gd_report_cell *cell, double percent) {
  *cell = (struct gd_report_cell){.text = gd_report_print(report, "%.1f", percent + 0.0),
                                  .value = percent};
}

static void best_row(struct gd_report *report, const struct gd_report_comparing *comparing,
                     const struct gd_report_group *group, struct gd_report_table *table) {
  const struct gd_report_trial *best = group->best ? group->best : &group->trials[0];
  const struct gd_report_compared *compared = gd_report_compared_of(comparing, best);
  const struct gd_paper_days *paper = paper_days(report, GD_PAPER_OPTIMAL, best);
  struct gd_report_cell *row = gd_report_table_row(table);
  row[0].text = gd_report_model_title(report, best->model);
  row[1].text = site_of(report, best);
  row[2].text = best->method_name;
  if (best->micro_batch > 0)
    gd_report_set_count(report, &row[3], best->micro_batch);
  if (best->peak_bytes > 0)
    gd_report_set_digits(report, &row[10], (double)best->peak_bytes / 0x1p30);
  if (table->n_columns > 11 && paper && paper->days > 0)
    gd_report_set_days(report, &row[11], paper->days);
  if (best->status != GD_TRIAL_OK) {
    row[4] = (struct gd_report_cell){
        .text = gd_trial_status_name(best->status), .value = (double)NAN, .class_name = "none"};
    return;
  }
  gd_report_set_days(report, &row[4], best->days);
  if (best->days_high > best->days_low)
    set_percent(report, &row[5], 50 * (best->days_high - best->days_low) / best->days);
  if (compared) {
    double ratio = compared->predicted_s / compared->measured_s;
    gd_report_set_days(report, &row[6], best->days * ratio);
    set_percent(report, &row[7], 100 * (ratio - 1));
  }
  if (group->naive && group->naive->status == GD_TRIAL_OK)
    gd_report_set_digits(report, &row[8], group->naive->days / best->days);
  else if (group->naive)
    row[8] = (struct gd_report_cell){.text = gd_trial_status_name(group->naive->status),
                                     .value = (double)NAN,
                                     .class_name = "none"};
  if (best->mfu > 0)
    gd_report_set_digits(report, &row[9], 100 * best->mfu);
}

static enum gd_status best_section(struct gd_report *report,
                                   const struct gd_report_comparing *comparing,
                                   struct gd_error *err) {
  const struct gd_report_measured *measured = &report->measured;
  struct gd_report_table *table = gd_report_table_new(
      &report->arena, best_columns, BEST_COLUMNS - !is_in_paper(report), measured->n_groups);
  if (!table)
    return gd_report_no_memory(err);
  gd_report_begin(report, "best", NULL, "Best settings");
  for (int i = 0; i < measured->n_groups; i++)
    best_row(report, comparing, &measured->groups[i], table);
  GD_TRY(gd_report_add_table(
      report,
      &(struct gd_report_block){
          "best-settings",
          "The fastest trial of each model and machine with its 95 % interval; what was predicted "
          "without that model's trials; how many times as fast as naive settings it is; and the "
          "memory it needs.",
          GD_REPORT_MEASURED, gd_report_measured_from(report)},
      table, err));
  gd_report_end(report);
  return GD_OK;
}

/* --- methods ------------------------------------------------------------------------------- */

enum { MOST_GROUPS = 12, MOST_METHODS = 32 };

struct methods {
  const struct gd_report_group *groups[MOST_GROUPS];
  int n_groups;
  struct method_row {
    const char *name;
    double *ratio; /* by group: days over those of the group's fastest; NaN: not known */
    double mean;
  } rows[MOST_METHODS];
  int n_rows;
};

static int compare_rows(const void *left, const void *right) {
  const struct method_row *a = left, *b = right;
  return (a->mean > b->mean) - (a->mean < b->mean);
}

static struct method_row *row_of(struct gd_report *report, struct methods *methods,
                                 const char *name) {
  for (int i = 0; i < methods->n_rows; i++)
    if (strcmp(methods->rows[i].name, name) == 0)
      return &methods->rows[i];
  if (methods->n_rows == MOST_METHODS)
    return NULL;
  struct method_row *row = &methods->rows[methods->n_rows];
  *row = (struct method_row){.name = name, .ratio = gd_report_numbers(report, MOST_GROUPS)};
  if (!row->ratio)
    return NULL;
  methods->n_rows++;
  return row;
}

/* Groups of a site in which there is something to choose, and their methods from the fastest on. */
static void collect_methods(struct gd_report *report, const struct gd_report_site *site,
                            struct methods *methods) {
  for (int g = 0; g < report->measured.n_groups && methods->n_groups < MOST_GROUPS; g++) {
    const struct gd_report_group *group = &report->measured.groups[g];
    int good = 0;
    if (!gd_report_is_at(&group->trials[0], site))
      continue;
    for (int i = 0; i < group->count; i++)
      good += group->trials[i].status == GD_TRIAL_OK;
    if (good < 2)
      continue;
    int at = methods->n_groups++;
    methods->groups[at] = group;
    for (int i = 0; i < good; i++) { /* sorted: the good ones first, by days */
      struct method_row *row = row_of(report, methods, group->trials[i].method_name);
      if (row && !isfinite(row->ratio[at]))
        row->ratio[at] = group->trials[i].days / group->trials[0].days;
    }
  }
  for (int r = 0; r < methods->n_rows; r++) {
    struct method_row *row = &methods->rows[r];
    int count = 0;
    for (int i = 0; i < methods->n_groups; i++)
      if (isfinite(row->ratio[i])) {
        row->mean += row->ratio[i];
        count++;
      }
    row->mean /= count > 0 ? count : 1;
  }
  qsort(methods->rows, (size_t)methods->n_rows, sizeof *methods->rows, compare_rows);
}

/* "free-lunch is the fastest for 5 of 7 models on 1 x H200". */
static const char *methods_title(struct gd_report *report, const struct gd_report_site *site,
                                 const struct methods *methods) {
  const char *best = NULL;
  int most = 0;
  for (int g = 0; g < methods->n_groups; g++) {
    int wins = 0;
    for (int k = 0; k < methods->n_groups; k++)
      wins += strcmp(methods->groups[g]->trials[0].method_name,
                     methods->groups[k]->trials[0].method_name) == 0;
    if (wins > most) {
      most = wins;
      best = methods->groups[g]->trials[0].method_name;
    }
  }
  return gd_report_print(report, "%s is the fastest for %d of %d model%s on %s", best ? best : "",
                         most, methods->n_groups, methods->n_groups == 1 ? "" : "s", site->label);
}

static enum gd_status methods_plot(struct gd_report *report, int number,
                                   const struct gd_report_site *site, const struct methods *methods,
                                   struct gd_error *err) {
  struct gd_plot_series *series = gd_report_series(report, methods->n_rows);
  const char **names = gd_report_texts(report, methods->n_groups);
  if (!series || !names)
    return gd_report_no_memory(err);
  for (int i = 0; i < methods->n_groups; i++)
    names[i] = gd_report_model_title(report, methods->groups[i]->model);
  for (int r = 0; r < methods->n_rows; r++)
    series[r] = (struct gd_plot_series){
        .name = methods->rows[r].name, .y = methods->rows[r].ratio, .count = methods->n_groups};
  struct gd_plot plot = {.kind = GD_PLOT_CELLS,
                         .title = methods_title(report, site, methods),
                         .y_label = "times the days of the fastest method; 1 is the fastest",
                         .categories = names,
                         .n_categories = methods->n_groups,
                         .series = series,
                         .n_series = methods->n_rows,
                         .log_y = true,
                         .empty_name = "not measured, or it does not fit"};
  return gd_report_add_plot(
      report,
      &(struct gd_report_block){gd_report_print(report, "methods-%d", number),
                                "Every method that was measured there, for models with two or "
                                "more.",
                                GD_REPORT_MEASURED, gd_report_measured_from(report)},
      &plot, err);
}

static enum gd_status methods_section(struct gd_report *report, struct gd_error *err) {
  enum { MOST_SITES = 4 };
  int shown = 0;
  for (int i = 0; i < report->measured.n_sites && shown < MOST_SITES; i++) {
    const struct gd_report_site *site = &report->measured.sites[i];
    struct methods methods = {0};
    collect_methods(report, site, &methods);
    if (methods.n_groups == 0)
      continue;
    if (shown++ == 0)
      gd_report_begin(report, "methods", NULL, "Methods compared");
    GD_TRY(methods_plot(report, shown, site, &methods, err));
  }
  if (shown > 0)
    gd_report_end(report);
  return GD_OK;
}

/* --- all trials ---------------------------------------------------------------------------- */

static const struct gd_report_column trial_columns[] = {
    {"Model", NULL, false},      {"Device", NULL, false},     {"Count", NULL, true},
    {"Method", NULL, false},     {"Micro-batch", NULL, true}, {"Days", NULL, true},
    {"95 % from", NULL, true},   {"to", NULL, true},          {"MFU, %", NULL, true},
    {"Memory, GiB", NULL, true}, {"Measured", NULL, false},   {"Recipe", NULL, false},
};
enum { TRIAL_COLUMNS = sizeof trial_columns / sizeof *trial_columns };

static void trial_row(struct gd_report *report, const struct gd_report_trial *trial, bool other,
                      struct gd_report_table *table) {
  struct gd_report_cell *row = gd_report_table_row(table);
  row[0].text = gd_report_model_title(report, trial->model);
  row[1].text = trial->device;
  gd_report_set_count(report, &row[2], trial->ranks);
  row[3].text = trial->method_name;
  row[10].text = trial->date;
  if (table->n_columns == TRIAL_COLUMNS)
    row[11].text = other ? "another" : "preset's";
  if (trial->micro_batch > 0)
    gd_report_set_count(report, &row[4], trial->micro_batch);
  if (trial->peak_bytes > 0)
    gd_report_set_digits(report, &row[9], (double)trial->peak_bytes / 0x1p30);
  if (trial->status != GD_TRIAL_OK) {
    row[5] = (struct gd_report_cell){
        .text = gd_trial_status_name(trial->status), .value = (double)NAN, .class_name = "none"};
    return;
  }
  gd_report_set_days(report, &row[5], trial->days);
  gd_report_set_days(report, &row[6], trial->days_low);
  gd_report_set_days(report, &row[7], trial->days_high);
  if (trial->mfu > 0)
    gd_report_set_digits(report, &row[8], 100 * trial->mfu);
}

static enum gd_status trials_section(struct gd_report *report, struct gd_error *err) {
  enum { FEW = 12 };
  const struct gd_report_measured *measured = &report->measured;
  int count = measured->n_trials + measured->other_recipes;
  if (count == 0 && measured->limited == 0)
    return GD_OK;
  gd_report_begin(report, "store", NULL, "Every trial");
  if (measured->other_recipes > 0)
    gd_report_text(report,
                   gd_report_print(report,
                                   "%d trial%s of other recipes (batch, length or steps "
                                   "that are not the preset's) %s in this table alone.",
                                   measured->other_recipes, measured->other_recipes == 1 ? "" : "s",
                                   measured->other_recipes == 1 ? "is" : "are"));
  if (measured->limited > 0)
    gd_report_text(report, gd_report_print(report,
                                           "%d infeasible trial%s within a limit that was set "
                                           "(--device-memory, --host-memory) %s left out: the "
                                           "device has more.",
                                           measured->limited, measured->limited == 1 ? "" : "s",
                                           measured->limited == 1 ? "is" : "are"));
  struct gd_report_table *table = gd_report_table_new(
      &report->arena, trial_columns, TRIAL_COLUMNS - (measured->other_recipes == 0), count);
  if (!table)
    return gd_report_no_memory(err);
  for (int i = 0; i < measured->n_trials; i++)
    trial_row(report, &measured->trials[i], false, table);
  for (int i = 0; i < measured->other_recipes; i++)
    trial_row(report, &measured->others[i], true, table);
  if (count > FEW)
    gd_report_fold(report, gd_report_print(report, "All %d trials", count));
  if (count > 0)
    GD_TRY(gd_report_add_table(
        report,
        &(struct gd_report_block){"trials",
                                  "Finished trials. MFU is a share of the peak that the GEMMs run "
                                  "at: of fp32 models on a GPU that is fp32's for naive and TF32's "
                                  "for free-lunch.",
                                  GD_REPORT_MEASURED, gd_report_measured_from(report)},
        table, err));
  if (count > FEW)
    gd_report_fold(report, NULL);
  gd_report_end(report);
  return GD_OK;
}

/* --- all of it ----------------------------------------------------------------------------- */

static enum gd_status measured_sections(struct gd_report *report, struct gd_error *err) {
  struct gd_report_comparing comparing;
  enum gd_status status = gd_report_compare(report, &comparing, err);
  if (status == GD_OK)
    status = best_section(report, &comparing, err);
  if (status == GD_OK)
    status = gd_report_items_compared(report, &comparing, err);
  if (status == GD_OK)
    status = methods_section(report, err);
  return status;
}

enum gd_status gd_report_items_results(struct gd_report *report, struct gd_error *err) {
  const struct gd_report_measured *measured = &report->measured;
  gd_report_chapter(report, "results", "Your results");
  if (measured->n_trials + measured->other_recipes == 0 && report->order->n_runs == 0) {
    gd_report_lacks(
        report, GD_REPORT_MEASURED,
        "Nothing was measured or trained here yet. 'gpudays bench pythia-160m' measures "
        "a model on this machine and 'gpudays train pythia-14m --data FILE' trains one; "
        "make this page again then.");
    GD_TRY(example(report, err));
  }
  if (measured->n_trials > 0) {
    gd_strbuf_append(&report->body, "<ul class=\"facts\">\n");
    measured_facts(report);
    gd_strbuf_append(&report->body, "</ul>\n");
    GD_TRY(measured_sections(report, err));
  }
  GD_TRY(gd_report_items_runs(report, err));
  return trials_section(report, err);
}
