/*
 * Cost: Tables 5 to 7 (prices), Figure 7 (cost against days for one model), Figures 12 and 13 (the
 * same for all models). The paper's side is arithmetic on its own tables, as Sec. 4.1 does it.
 */
#include <string.h>

#include "money/money.h"
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
      gd_report_print(report, "%s", gd_format_number(text, sizeof text, usd, 2)), usd, NULL, NULL};
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
  const char **names = gd_report_grid_names(report);
  if (!gpus || !rest || !names)
    return gd_report_no_memory(err);
  for (int i = 0; i < GD_REPORT_CELLS; i++) {
    const struct gd_paper_gpu *gpu = &paper->gpus[i / GD_REPORT_COUNTS];
    int count = gd_report_counts[i % GD_REPORT_COUNTS];
    gpus[i] = count * gpu->usd;
    rest[i] = gd_paper_system_usd(paper, count);
  }
  struct gd_plot_series series[] = {
      {.name = "rest of the machine", .y = rest, .count = GD_REPORT_CELLS},
      {.name = "GPUs", .y = gpus, .count = GD_REPORT_CELLS}};
  struct gd_plot plot = {.kind = GD_PLOT_STACKED,
                         .title = "GPUs are most of what a machine with A100 or H100 costs",
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
  bool predicted; /* days of this program's engine, with their intervals, instead of Table 1 */
};

/* Days of that model on so many of the GPU; false: none. */
static bool days_of(const struct gd_report *report, const struct scatter *scatter, int gpu, int i,
                    double *days, double *low, double *high) {
  const struct gd_paper *paper = &report->paper;
  if (!scatter->predicted) {
    const struct gd_paper_days *cell = gd_paper_find(paper, GD_PAPER_OPTIMAL, scatter->model,
                                                     paper->gpus[gpu].gpu, gd_report_counts[i]);
    *days = cell ? cell->days : 0;
    return *days > 0;
  }
  for (int m = 0; m < paper->n_recipes; m++)
    if (strcmp(paper->recipes[m].model, scatter->model) == 0) {
      const struct gd_report_prediction *cell =
          &report->predicted.best[m * GD_REPORT_CELLS + gpu * GD_REPORT_COUNTS + i];
      *days = cell->days;
      *low = cell->low;
      *high = cell->high;
      return cell->state == GD_REPORT_KNOWN;
    }
  return false;
}

static enum gd_status cost_series(struct gd_report *report, const struct scatter *scatter, int g,
                                  struct gd_plot_series *series, struct gd_error *err) {
  const struct gd_paper_gpu *gpu = &report->paper.gpus[g];
  double *usd = gd_report_numbers(report, GD_REPORT_COUNTS);
  double *days = gd_report_numbers(report, GD_REPORT_COUNTS);
  double *low = gd_report_numbers(report, GD_REPORT_COUNTS);
  double *high = gd_report_numbers(report, GD_REPORT_COUNTS);
  const char **labels = gd_report_texts(report, GD_REPORT_COUNTS);
  if (!usd || !days || !labels || !low || !high)
    return gd_report_no_memory(err);
  for (int i = 0; i < GD_REPORT_COUNTS; i++) {
    double price = machine_usd(report, gpu, gd_report_counts[i]), found;
    labels[i] = gd_report_print(report, "%d", gd_report_counts[i]);
    if (!days_of(report, scatter, g, i, &found, &low[i], &high[i]))
      continue;
    days[i] = found;
    usd[i] = scatter->cost == WHOLE_MACHINE ? price : price * found / life_days(report);
  }
  *series = (struct gd_plot_series){
      .name = gpu->title, .x = usd, .y = days, .labels = labels, .count = GD_REPORT_COUNTS};
  if (scatter->predicted) {
    series->low = low;
    series->high = high;
  }
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
      .title = gd_report_print(report, "%s against days%s",
                               scatter->cost == WHOLE_MACHINE ? "Price of the machine"
                                                              : "Cost of one run",
                               scatter->predicted ? ", predicted" : ""),
      .x_label = scatter->cost == WHOLE_MACHINE ? "hardware USD" : "USD of one run",
      .y_label = "days",
      .series = series,
      .n_series = gpus,
      .log_x = true,
      .log_y = true};
  return gd_report_add_plot(
      report,
      &(struct gd_report_block){
          scatter->name, scatter->caption,
          scatter->predicted ? GD_REPORT_PREDICTED : GD_REPORT_PAPER,
          scatter->predicted
              ? "predicted days (table-1-intervals.csv); prices of Tables 5 to 7 of arXiv "
                "2410.23261"
              : "Table 1 and Tables 5 to 7 of arXiv 2410.23261"},
      &plot, err);
}

/* --- machines of the catalogue ---------------------------------------------------------------- */

static const struct gd_report_column option_columns[] = {
    {"Model", NULL, false},
    {"Machine", NULL, false},
    {"Hardware, USD", NULL, true},
    {"Days", NULL, true},
    {"One run, USD", NULL, true},
    {"Energy, kWh", NULL, true},
    {"Energy, USD", NULL, true},
    {"Rent, USD", NULL, true},
    {"Break-even, months", NULL, true},
    {"Cheapest of its speed", NULL, false},
    {"Of the peak, %", NULL, true},
};
enum { OPTION_COLUMNS = sizeof option_columns / sizeof *option_columns };

static void set_dollars(struct gd_report *report, struct gd_report_cell *cell, double usd) {
  if (isfinite(usd))
    gd_report_set_count(report, cell, (int64_t)llround(usd));
}

static const char *front_of(const struct gd_money_option *option) {
  if (option->hardware_front && option->experiment_front)
    return "to buy, to use";
  return option->hardware_front ? "to buy" : option->experiment_front ? "to use" : "";
}

static void option_row(struct gd_report *report, const char *model,
                       const struct gd_money_option *option, struct gd_report_table *table) {
  struct gd_report_cell *row = gd_report_table_row(table);
  row[0].text = gd_report_model_title(report, model);
  row[1].text = gd_report_print(report, "%s", option->machine->name);
  set_dollars(report, &row[2], option->hardware_usd);
  gd_report_set_days(report, &row[3], option->time.days);
  set_dollars(report, &row[4], option->experiment_usd);
  set_dollars(report, &row[5], option->energy_kwh);
  set_dollars(report, &row[6], option->energy_usd);
  set_dollars(report, &row[7], option->rent_usd);
  gd_report_set_digits(report, &row[8], option->break_even_months);
  row[9].text = front_of(option);
  if (option->time.share > 0) {
    enum gd_physics physics = gd_physics_of(option->time.share);
    gd_report_set_digits(report, &row[10], 100 * option->time.share);
    row[10].class_name = physics == GD_PHYSICS_IMPOSSIBLE ? "wrong"
                         : physics == GD_PHYSICS_DOUBTFUL ? "doubt"
                                                          : NULL;
  }
}

/* The machines for which the source has days of the model. */
static enum gd_status add_options(struct gd_report *report, const char *name, enum gd_times times,
                                  struct gd_report_table *table, struct gd_error *err) {
  struct gd_model model;
  struct gd_money_table money = {0};
  struct gd_money_asked asked = {.hw = &report->hw,
                                 .paper = &report->paper,
                                 .store = report->order->store,
                                 .model = &model,
                                 .times = times};
  if (gd_model_load(name, &model, NULL) != GD_OK)
    return GD_OK; /* a model of the store that is here no more has no price */
  GD_TRY(gd_money_terms_default(&report->hw, NULL, &asked.terms, err));
  enum gd_status status = gd_money_table_make(&asked, &money, err);
  for (int i = 0; i < money.count && status == GD_OK; i++)
    if (money.options[i].time.state == GD_TIME_KNOWN && table->n_rows < table->room)
      option_row(report, name, &money.options[i], table);
  gd_money_table_deinit(&money);
  return status;
}

static enum gd_status options_paper(struct gd_report *report, struct gd_error *err) {
  struct gd_report_table *table =
      gd_report_table_new(&report->arena, option_columns, OPTION_COLUMNS, 64);
  if (!table)
    return gd_report_no_memory(err);
  GD_TRY(add_options(report, "pythia-1b", GD_TIMES_PAPER, table, err));
  return gd_report_add_table(
      report,
      &(struct gd_report_block){
          "figure-7-machines",
          "The same machines with energy, rent and break-even; 'gpudays cost' "
          "has the assumptions and takes others.",
          GD_REPORT_PAPER,
          "days of Table 1, prices of Tables 5 to 7; energy and rent of this "
          "program's catalogue"},
      table, err);
}

/* --- the figures -------------------------------------------------------------------------------
 */

static enum gd_status figure_7(struct gd_report *report, struct gd_error *err) {
  gd_report_begin(report, "figure-7", "Figure 7", "Cost against days: Pythia 1B");
  gd_report_text(
      report, "Numbers next to the points are GPUs. One run costs the share of a machine's price "
              "that its days are of five years. Both axes are logarithmic, so that no outlier is "
              "cut off.");
  gd_report_pair(report, true);
  GD_TRY(cost_plot(report,
                   &(struct scatter){"figure-7-hardware", "The price of the machine.", "pythia-1b",
                                     WHOLE_MACHINE, false},
                   err));
  GD_TRY(cost_plot(report,
                   &(struct scatter){"figure-7-experiment", "The cost of one run.", "pythia-1b",
                                     ONE_EXPERIMENT, false},
                   err));
  if (report->predicted.known) {
    GD_TRY(cost_plot(report,
                     &(struct scatter){"figure-7-hardware-predicted",
                                       "The price of the machine, with predicted days and their "
                                       "intervals.",
                                       "pythia-1b", WHOLE_MACHINE, true},
                     err));
    GD_TRY(cost_plot(report,
                     &(struct scatter){"figure-7-experiment-predicted",
                                       "The cost of one run, with predicted days and their "
                                       "intervals.",
                                       "pythia-1b", ONE_EXPERIMENT, true},
                     err));
  }
  gd_report_pair(report, false);
  GD_TRY(options_paper(report, err));
  gd_report_end(report);
  return GD_OK;
}

/* All models as small multiples, whose axes are the same. */
static enum gd_status figure_all(struct gd_report *report, const char *number, enum cost cost,
                                 const char *title, const char *message, struct gd_error *err) {
  enum { WIDTH = 900 };
  int gpus = report->paper.n_gpus, count = report->paper.n_recipes;
  struct gd_plot_panel *panels = gd_arena_alloc(&report->arena, (size_t)count, sizeof *panels);
  if (!panels)
    return gd_report_no_memory(err);
  for (int m = 0; m < count; m++) {
    struct scatter scatter = {.model = report->paper.recipes[m].model, .cost = cost};
    struct gd_plot_series *series = gd_report_series(report, gpus);
    if (!series)
      return gd_report_no_memory(err);
    for (int g = 0; g < gpus; g++)
      GD_TRY(cost_series(report, &scatter, g, &series[g], err));
    panels[m] = (struct gd_plot_panel){
        .title = gd_report_model_title(report, scatter.model), .series = series, .n_series = gpus};
  }
  struct gd_plot plot = {.kind = GD_PLOT_SCATTER,
                         .title = message,
                         .x_label = cost == WHOLE_MACHINE ? "hardware USD, logarithmic"
                                                          : "USD of one run, logarithmic",
                         .y_label = "days, logarithmic",
                         .width = WIDTH,
                         .panels = panels,
                         .n_panels = count,
                         .shared_y = true,
                         .joined = true,
                         .log_x = true,
                         .log_y = true};
  const char *anchor = gd_report_print(report, "figure-%s", number);
  gd_report_begin(report, anchor, gd_report_print(report, "Figure %s", number), title);
  GD_TRY(gd_report_add_plot(
      report,
      &(struct gd_report_block){
          gd_report_print(report, "figure-%s-paper", number),
          "A line joins 1, 2, 4 and 8 of a GPU: more of them take fewer days, so 8 is its lowest "
          "point. All axes are the same, so that models can be compared.",
          GD_REPORT_PAPER, "Table 1 and Tables 5 to 7 of arXiv 2410.23261"},
      &plot, err));
  gd_report_end(report);
  return GD_OK;
}

/* The GPU whose machines reach the lowest cost of a run, for most models. */
static const char *cheapest_gpu(const struct gd_report *report, int *models) {
  const struct gd_paper *paper = &report->paper;
  int wins[GD_REPORT_GPUS] = {0}, most = 0;
  for (int m = 0; m < paper->n_recipes; m++) {
    double least = (double)INFINITY;
    int best = -1;
    for (int i = 0; i < GD_REPORT_CELLS; i++) {
      const struct gd_paper_days *cell =
          gd_report_paper_cell(report, GD_PAPER_OPTIMAL, paper->recipes[m].model, i);
      const struct gd_paper_gpu *gpu = &paper->gpus[i / GD_REPORT_COUNTS];
      double usd =
          cell && cell->days > 0
              ? machine_usd(report, gpu, gd_report_counts[i % GD_REPORT_COUNTS]) * cell->days
              : (double)INFINITY;
      if (usd < least) {
        least = usd;
        best = i / GD_REPORT_COUNTS;
      }
    }
    if (best >= 0)
      wins[best]++;
  }
  for (int g = 1; g < paper->n_gpus; g++)
    if (wins[g] > wins[most])
      most = g;
  *models = wins[most];
  return paper->gpus[most].title;
}

enum gd_status gd_report_items_cost(struct gd_report *report, struct gd_error *err) {
  int models;
  const char *cheapest = cheapest_gpu(report, &models);
  gd_report_chapter(report, "paper-cost", "Cost");
  GD_TRY(figure_7(report, err));
  GD_TRY(figure_all(report, "12", WHOLE_MACHINE, "Price of the machine against days, all models",
                    "A dearer machine takes fewer days, of every model", err));
  GD_TRY(figure_all(report, "13", ONE_EXPERIMENT, "Cost of one run against days, all models",
                    gd_report_print(report,
                                    "A run costs least on machines with the %s for %d of %d "
                                    "models",
                                    cheapest, models, report->paper.n_recipes),
                    err));
  GD_TRY(table_5(report, err));
  return tables_6_and_7(report, err);
}
