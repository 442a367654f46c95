/*
 * Tables 1 and 4, predicted: days of this program's engine on the paper's GPUs with their
 * intervals, and days of the paper's own software next to what the paper measured.
 */
#include "report/report_int.h"

/* What one table shows. */
struct part {
  enum gd_paper_table which;
  const char *number; /* "1", "4" */
  const struct gd_report_prediction *cells;
};

static void set_cell(struct gd_report *report, const struct gd_report_prediction *from,
                     struct gd_report_cell *cell) {
  if (from->state == GD_REPORT_INFEASIBLE)
    *cell = (struct gd_report_cell){"\xe2\x80\x94", (double)NAN, "none", NULL};
  else if (from->state == GD_REPORT_KNOWN) {
    gd_report_set_days(report, cell, from->days);
    cell->class_name = gd_report_shade(report, from->days, "");
  }
}

static enum gd_status grid(struct gd_report *report, const struct part *part,
                           const struct gd_report_block *block, struct gd_error *err) {
  int rows = report->paper.n_recipes;
  const struct gd_report_column *columns = gd_report_grid_columns(report);
  struct gd_report_table *table =
      columns ? gd_report_table_new(&report->arena, columns, 1 + GD_REPORT_CELLS, rows) : NULL;
  if (!table)
    return gd_report_no_memory(err);
  for (int m = 0; m < rows; m++) {
    struct gd_report_cell *row = gd_report_table_row(table);
    row[0].text = gd_report_model_title(report, report->paper.recipes[m].model);
    for (int i = 0; i < GD_REPORT_CELLS; i++)
      set_cell(report, &part->cells[m * GD_REPORT_CELLS + i], &row[1 + i]);
  }
  return gd_report_add_table(report, block, table, err);
}

static const struct gd_report_column list_columns[] = {
    {"Model", NULL, false},  {"GPU", NULL, false},        {"Count", NULL, true},
    {"Method", NULL, false}, {"Days", NULL, true},        {"from", NULL, true},
    {"to", NULL, true},      {"Paper, days", NULL, true},
};
enum { LIST_COLUMNS = sizeof list_columns / sizeof *list_columns };

static enum gd_status list(struct gd_report *report, const struct part *part,
                           const struct gd_report_block *block, struct gd_error *err) {
  int rows = report->paper.n_recipes * GD_REPORT_CELLS;
  struct gd_report_table *table =
      gd_report_table_new(&report->arena, list_columns, LIST_COLUMNS, rows);
  if (!table)
    return gd_report_no_memory(err);
  for (int k = 0; k < rows; k++) {
    const struct gd_report_prediction *from = &part->cells[k];
    const char *model = report->paper.recipes[k / GD_REPORT_CELLS].model;
    int cell = k % GD_REPORT_CELLS;
    const struct gd_paper_days *paper = gd_report_paper_cell(report, part->which, model, cell);
    struct gd_report_cell *row = gd_report_table_row(table);
    row[0].text = gd_report_model_title(report, model);
    row[1].text = report->paper.gpus[cell / GD_REPORT_COUNTS].title;
    gd_report_set_count(report, &row[2], gd_report_counts[cell % GD_REPORT_COUNTS]);
    row[3].text = from->method;
    set_cell(report, from, &row[4]);
    if (from->state == GD_REPORT_KNOWN) {
      gd_report_set_days(report, &row[5], from->low);
      gd_report_set_days(report, &row[6], from->high);
    }
    if (paper && paper->days > 0)
      gd_report_set_days(report, &row[7], paper->days);
  }
  return gd_report_add_table(report, block, table, err);
}

/* How far the prediction is from the paper, in percent. */
static double difference(const struct gd_report *report, const void *user, int model, int cell) {
  const struct part *part = user;
  const struct gd_paper_days *paper =
      gd_report_paper_cell(report, part->which, report->paper.recipes[model].model, cell);
  const struct gd_report_prediction *predicted = &part->cells[model * GD_REPORT_CELLS + cell];
  return paper && paper->days > 0 && predicted->state == GD_REPORT_KNOWN
             ? round(100 * (predicted->days / paper->days - 1))
             : (double)NAN;
}

static enum gd_status differences(struct gd_report *report, const struct part *part,
                                  const struct gd_report_block *block, struct gd_error *err) {
  struct gd_report_map map = {
      .columns = gd_report_grid_names(report),
      .n_columns = GD_REPORT_CELLS,
      .value = difference,
      .user = part,
      .look = {.title = gd_report_print(
                   report, "The paper's software, predicted, against its Table %s", part->number),
               .y_label = "% longer than in the paper (negative: shorter)",
               .diverging = true,
               .empty_name = "infeasible in the paper, or predicted so"}};
  return gd_report_add_map(report, block, &map, err);
}

static enum gd_status engine(struct gd_report *report, const struct part *part,
                             struct gd_error *err) {
  bool naive = part->which == GD_PAPER_NAIVE;
  const char *from = "simulation of this program's plans; what each GPU's rests on is below";
  gd_report_fold(report, "This program's engine, predicted for the same GPUs");
  GD_TRY(grid(
      report, part,
      &(struct gd_report_block){
          gd_report_print(report, "table-%s-predicted", part->number),
          naive ? "Days that this program's own engine would take with naive settings."
                : "Days that this program's own engine would take: the fastest of free-lunch "
                  "alone and, on several GPUs, with ZeRO 1 (with or without checkpointing); "
                  "where none fits, the best of combinations that save more memory. The table of "
                  "intervals names the method of each; 'gpudays plan' ranks all 22.",
          GD_REPORT_PREDICTED, from},
      err));
  for (int g = 0; g < GD_REPORT_GPUS; g++)
    if (report->predicted.basis[g])
      gd_report_text(report, report->predicted.basis[g]);
  GD_TRY(list(report, part,
              &(struct gd_report_block){gd_report_print(report, "table-%s-intervals", part->number),
                                        "Days with their intervals, next to the paper's.",
                                        GD_REPORT_PREDICTED, from},
              err));
  gd_report_fold(report, NULL);
  return GD_OK;
}

static enum gd_status stack(struct gd_report *report, const struct part *part,
                            struct gd_error *err) {
  const char *from = gd_report_print(report, "a model of the paper's software, %s",
                                     report->predicted.stack_basis ? report->predicted.stack_basis
                                                                   : "not validated");
  gd_report_fold(report, "The paper's software, predicted, against the paper");
  GD_TRY(grid(report, part,
              &(struct gd_report_block){gd_report_print(report, "table-%s-stack", part->number),
                                        "Days of the paper's software on a GPU that the fit has "
                                        "not seen.",
                                        GD_REPORT_PREDICTED, from},
              err));
  GD_TRY(differences(report, part,
                     &(struct gd_report_block){
                         gd_report_print(report, "table-%s-error", part->number),
                         "How far that is from what the paper measured; cells above the GPUs' peak "
                         "cannot be met.",
                         GD_REPORT_PREDICTED, from},
                     err));
  gd_report_fold(report, NULL);
  return GD_OK;
}

enum gd_status gd_report_predicted_days(struct gd_report *report, enum gd_paper_table which,
                                        struct gd_error *err) {
  const struct gd_report_predicted *predicted = &report->predicted;
  bool naive = which == GD_PAPER_NAIVE;
  const char *number = naive ? "4" : "1";
  if (!predicted->known)
    return GD_OK;
  GD_TRY(engine(report, &(struct part){which, number, naive ? predicted->naive : predicted->best},
                err));
  return stack(
      report, &(struct part){which, number, naive ? predicted->stack_naive : predicted->stack_best},
      err);
}
