/*
 * Cost: Tables 5 to 7 (prices), Figure 7 (cost against days for one model), Figures 12 and 13 (the
 * same for all models). The paper's side is arithmetic on its own tables, as Sec. 4.1 does it.
 */
#include <string.h>

#include "report/report_int.h"

#define PAPER_PRICES "arXiv 2410.23261, Tables 5 to 7, quotes of 2024-09-21"

/* --- machines of the paper ------------------------------------------------------------------ */

static double machine_usd(const struct gd_report *report, const struct gd_paper_gpu *gpu,
                          int count) {
  return count * gpu->usd + gd_paper_system_usd(&report->paper, count);
}

static double life_days(const struct gd_report *report) {
  const struct gd_paper_statement *life = gd_paper_find_statement(&report->paper, "hardware_life");
  return (life ? life->value : 5) * 365;
}

static const struct gd_report_column gpu_columns[] = {
    {"GPU", NULL, false}, {"Memory, GB", NULL, true}, {"USD", NULL, true}, {"Quote", NULL, false}};

static enum gd_status table_5(struct gd_report *report, struct gd_error *err) {
  struct gd_report_table *table =
      gd_report_table_new(&report->arena, gpu_columns, 4, report->paper.n_gpus);
  if (!table)
    return gd_report_no_memory(err);
  gd_report_begin(report, "table-5", "Table 5", "What a GPU costs");
  for (int i = 0; i < report->paper.n_gpus; i++) {
    const struct gd_paper_gpu *gpu = &report->paper.gpus[i];
    struct gd_report_cell *row = gd_report_table_row(table);
    row[0].text = gpu->title;
    gd_report_set_count(report, &row[1], (int64_t)gpu->memory_gb);
    gd_report_set_count(report, &row[2], (int64_t)gpu->usd);
    row[3].text = gpu->quote;
  }
  GD_TRY(gd_report_add_table(report,
                             &(struct gd_report_block){"table-5-paper", "Prices of one GPU.",
                                                       GD_REPORT_PAPER, PAPER_PRICES},
                             table, err));
  gd_report_end(report);
  return GD_OK;
}

static const struct gd_report_column part_columns[] = {{"Machine for", NULL, false},
                                                       {"Part", NULL, false},
                                                       {"Detail", NULL, false},
                                                       {"USD", NULL, true}};

static void add_money(struct gd_report *report, struct gd_report_cell *cell, double usd) {
  char text[48];
  *cell = (struct gd_report_cell){
      gd_report_print(report, "%s", gd_format_number(text, sizeof text, usd, 2)), usd, NULL};
}

static enum gd_status parts_table(struct gd_report *report, bool servers, const char *name,
                                  const char *caption, struct gd_error *err) {
  const struct gd_paper *paper = &report->paper;
  struct gd_report_table *table =
      gd_report_table_new(&report->arena, part_columns, 4, paper->n_parts + GD_REPORT_COUNTS);
  if (!table)
    return gd_report_no_memory(err);
  for (int c = 0; c < GD_REPORT_COUNTS; c++) {
    int count = gd_report_counts[c];
    struct gd_report_cell *row;
    if ((count > 2) != servers)
      continue;
    for (int i = 0; i < paper->n_parts; i++)
      if (paper->parts[i].gpus == count) {
        row = gd_report_table_row(table);
        row[0].text = gd_report_print(report, "%d GPU%s", count, count > 1 ? "s" : "");
        row[1].text = paper->parts[i].part;
        row[2].text = paper->parts[i].detail;
        if (paper->parts[i].usd > 0)
          add_money(report, &row[3], paper->parts[i].usd);
      }
    row = gd_report_table_row(table);
    row[0].text = gd_report_print(report, "%d GPU%s", count, count > 1 ? "s" : "");
    row[1].text = "Total, without GPUs";
    add_money(report, &row[3], gd_paper_system_usd(paper, count));
  }
  return gd_report_add_table(
      report, &(struct gd_report_block){name, caption, GD_REPORT_PAPER, PAPER_PRICES}, table, err);
}

/* The 16 machines: GPUs, and what is around them. */
static enum gd_status machines_plot(struct gd_report *report, struct gd_error *err) {
  const struct gd_paper *paper = &report->paper;
  double *gpus = gd_report_numbers(report, GD_REPORT_CELLS);
  double *rest = gd_report_numbers(report, GD_REPORT_CELLS);
  const char **names = gd_report_texts(report, GD_REPORT_CELLS);
  if (!gpus || !rest || !names)
    return gd_report_no_memory(err);
  for (int i = 0; i < GD_REPORT_CELLS; i++) {
    const struct gd_paper_gpu *gpu = &paper->gpus[i / GD_REPORT_COUNTS];
    int count = gd_report_counts[i % GD_REPORT_COUNTS];
    const char *word = strrchr(gpu->title, ' ');
    names[i] = gd_report_print(report, "%d %s", count, word ? word + 1 : gpu->title);
    gpus[i] = count * gpu->usd;
    rest[i] = gd_paper_system_usd(paper, count);
  }
  struct gd_plot_series series[] = {
      {.name = "rest of the machine", .y = rest, .count = GD_REPORT_CELLS},
      {.name = "GPUs", .y = gpus, .count = GD_REPORT_CELLS}};
  struct gd_plot plot = {.kind = GD_PLOT_STACKED,
                         .title = "What a machine costs (Tables 5 to 7)",
                         .x_label = "machine",
                         .y_label = "USD",
                         .categories = names,
                         .n_categories = GD_REPORT_CELLS,
                         .series = series,
                         .n_series = 2};
  return gd_report_add_plot(report,
                            &(struct gd_report_block){"machines",
                                                      "Price of the paper's 16 machines.",
                                                      GD_REPORT_PAPER, PAPER_PRICES},
                            &plot, err);
}

static enum gd_status tables_6_and_7(struct gd_report *report, struct gd_error *err) {
  gd_report_begin(report, "table-6", "Table 6", "What a desktop costs");
  GD_TRY(parts_table(report, false, "table-6-paper", "Desktops for one or two GPUs, without them.",
                     err));
  gd_report_end(report);
  gd_report_begin(report, "table-7", "Table 7", "What a server costs");
  GD_TRY(parts_table(report, true, "table-7-paper",
                     "Servers for four or eight GPUs, without them; quoted as a whole.", err));
  GD_TRY(machines_plot(report, err));
  gd_report_end(report);
  return GD_OK;
}

/* --- cost against days ----------------------------------------------------------------------- */

enum cost { WHOLE_MACHINE, ONE_EXPERIMENT };

struct scatter {
  const char *name, *caption, *model;
  enum cost cost;
};

static enum gd_status cost_series(struct gd_report *report, const struct scatter *scatter, int g,
                                  struct gd_plot_series *series, struct gd_error *err) {
  const struct gd_paper_gpu *gpu = &report->paper.gpus[g];
  double *usd = gd_report_numbers(report, GD_REPORT_COUNTS);
  double *days = gd_report_numbers(report, GD_REPORT_COUNTS);
  const char **labels = gd_report_texts(report, GD_REPORT_COUNTS);
  if (!usd || !days || !labels)
    return gd_report_no_memory(err);
  for (int i = 0; i < GD_REPORT_COUNTS; i++) {
    int count = gd_report_counts[i];
    const struct gd_paper_days *cell =
        gd_paper_find(&report->paper, GD_PAPER_OPTIMAL, scatter->model, gpu->gpu, count);
    double price = machine_usd(report, gpu, count);
    labels[i] = gd_report_print(report, "%d", count);
    if (!cell || !(cell->days > 0))
      continue;
    days[i] = cell->days;
    usd[i] = scatter->cost == WHOLE_MACHINE ? price : price * cell->days / life_days(report);
  }
  *series = (struct gd_plot_series){
      .name = gpu->title, .x = usd, .y = days, .labels = labels, .count = GD_REPORT_COUNTS};
  return GD_OK;
}

static enum gd_status cost_plot(struct gd_report *report, const struct scatter *scatter,
                                struct gd_error *err) {
  int gpus = report->paper.n_gpus;
  struct gd_plot_series *series = gd_report_series(report, gpus);
  if (!series)
    return gd_report_no_memory(err);
  for (int g = 0; g < gpus; g++)
    GD_TRY(cost_series(report, scatter, g, &series[g], err));
  struct gd_plot plot = {
      .kind = GD_PLOT_SCATTER,
      .title = gd_report_print(report, "%s and days: %s",
                               scatter->cost == WHOLE_MACHINE ? "Price of the machine"
                                                              : "Cost of one run",
                               gd_report_model_title(report, scatter->model)),
      .x_label = scatter->cost == WHOLE_MACHINE ? "hardware USD" : "USD of one run",
      .y_label = "days",
      .series = series,
      .n_series = gpus,
      .log_x = true,
      .log_y = true};
  return gd_report_add_plot(
      report,
      &(struct gd_report_block){scatter->name, scatter->caption, GD_REPORT_PAPER,
                                "Table 1 and Tables 5 to 7 of arXiv 2410.23261"},
      &plot, err);
}

static enum gd_status figure_7(struct gd_report *report, struct gd_error *err) {
  gd_report_begin(report, "figure-7", "Figure 7", "Cost against days: Pythia 1B");
  gd_report_text(
      report, "Numbers beside the points are GPUs. One run costs the share of a machine's price "
              "that its days are of five years. Both axes are logarithmic, so that no outlier is "
              "cut off.");
  gd_report_pair(report, true);
  GD_TRY(cost_plot(report,
                   &(struct scatter){"figure-7-hardware", "The price of the machine.", "pythia-1b",
                                     WHOLE_MACHINE},
                   err));
  GD_TRY(cost_plot(
      report,
      &(struct scatter){"figure-7-experiment", "The cost of one run.", "pythia-1b", ONE_EXPERIMENT},
      err));
  gd_report_pair(report, false);
  gd_report_end(report);
  return GD_OK;
}

static enum gd_status figure_all(struct gd_report *report, const char *number, enum cost cost,
                                 const char *title, struct gd_error *err) {
  gd_report_begin(report, gd_report_print(report, "figure-%s", number),
                  gd_report_print(report, "Figure %s", number), title);
  gd_report_pair(report, true);
  for (int m = 0; m < report->paper.n_recipes; m++) {
    const char *model = report->paper.recipes[m].model;
    GD_TRY(cost_plot(report,
                     &(struct scatter){gd_report_print(report, "figure-%s-%s", number, model),
                                       gd_report_model_title(report, model), model, cost},
                     err));
  }
  gd_report_pair(report, false);
  gd_report_end(report);
  return GD_OK;
}

enum gd_status gd_report_items_cost(struct gd_report *report, struct gd_error *err) {
  gd_report_chapter(report, "Cost");
  GD_TRY(figure_7(report, err));
  GD_TRY(figure_all(report, "12", WHOLE_MACHINE, "Price of the machine against days, all models",
                    err));
  GD_TRY(figure_all(report, "13", ONE_EXPERIMENT, "Cost of one run against days, all models", err));
  GD_TRY(table_5(report, err));
  return tables_6_and_7(report, err);
}
