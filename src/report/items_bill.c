/*
 * What the reader's models would cost: for each the advice of `gpudays cost`, dollars against days
 * of every machine of the catalogue, and the machines of which no other is both cheaper and faster.
 */
#include <string.h>

#include "money/money.h"
#include "report/report_int.h"

enum { MOST_MODELS = 3 };
#define DEFAULT_MODEL "pythia-1b" /* the example of the paper's Sec. 4.1 */

/* --- which models -------------------------------------------------------------------------- */

static int add_model(const char **models, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (strcmp(models[i], name) == 0)
      return count;
  if (count < MOST_MODELS)
    models[count++] = name;
  return count;
}

static int trials_of(const struct gd_report *report, const char *model) {
  int count = 0;
  for (int i = 0; i < report->measured.n_trials; i++)
    count += strcmp(report->measured.trials[i].model, model) == 0;
  return count;
}

/* Those that are trained, then those with most trials. */
static int choose_models(const struct gd_report *report, const char **models) {
  const struct gd_report_measured *measured = &report->measured;
  int count = 0;
  for (int i = 0; i < report->n_run_models; i++)
    count = add_model(models, count, report->run_models[i]);
  for (int most = measured->n_trials; most > 0 && count < MOST_MODELS; most--)
    for (int i = 0; i < measured->n_models; i++)
      if (trials_of(report, measured->models[i]) == most)
        count = add_model(models, count, measured->models[i]);
  return count > 0 ? count : add_model(models, 0, DEFAULT_MODEL);
}

/* "RTX 4090 24 GB": whose it is, everybody knows. */
static const char *short_title(const struct gd_gpu *gpu) {
  static const char *const makers[] = {"NVIDIA ", "GeForce ", "AMD "};
  const char *title = gpu->title;
  for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
    if (strncmp(title, makers[i], strlen(makers[i])) == 0)
      title += strlen(makers[i]);
  return title;
}

static const char *machine_of(struct gd_report *report, const struct gd_money_option *option) {
  return gd_report_print(report, "%d x %s", option->machine->count, short_title(option->gpu));
}

/* --- ways to pay --------------------------------------------------------------------------- */

static double owned_usd(const struct gd_money_option *option) {
  return option->experiment_usd + option->energy_usd;
}

/* Dollars and days of all machines, rented or owned; labels where no other is as good in both. */
static enum gd_status fill_ways(struct gd_report *report, const struct gd_money_table *money,
                                bool rented, struct gd_plot_series *series, bool *front,
                                struct gd_error *err) {
  double *usd = gd_report_numbers(report, money->count);
  double *days = gd_report_numbers(report, money->count);
  const char **labels = gd_report_texts(report, money->count);
  if (!usd || !days || !labels)
    return gd_report_no_memory(err);
  for (int i = 0; i < money->count; i++) {
    const struct gd_money_option *option = &money->options[i];
    if (option->time.state != GD_TIME_KNOWN)
      continue;
    days[i] = option->time.days;
    usd[i] = rented ? option->rent_usd : owned_usd(option);
    if (!isfinite(usd[i]))
      days[i] = (double)NAN;
  }
  gd_money_front(usd, days, money->count, front);
  for (int i = 0; i < money->count; i++)
    if (front[i])
      labels[i] = gd_report_print(report, "%d x %s", money->options[i].machine->count,
                                  money->options[i].gpu->name);
  *series = (struct gd_plot_series){.name = rented ? "rented"
                                                   : "owned: a share of its life, and electricity",
                                    .x = usd,
                                    .y = days,
                                    .labels = labels,
                                    .count = money->count};
  return GD_OK;
}

static const struct gd_report_column columns[] = {
    {"Machine", NULL, false},      {"Days", NULL, true},
    {"Interval", NULL, false},     {"Rent, USD", NULL, true},
    {"Hardware, USD", NULL, true}, {"Owned, USD", NULL, true},
    {"Energy, kWh", NULL, true},   {"Break-even, months", NULL, true},
    {"Best to", NULL, false},      {"Days from", NULL, false},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void set_dollars(struct gd_report *report, struct gd_report_cell *cell, double usd) {
  if (fabs(usd) < 10)
    gd_report_set_digits(report, cell, usd);
  else if (isfinite(usd))
    gd_report_set_count(report, cell, (int64_t)llround(usd));
}

static void option_row(struct gd_report *report, const struct gd_money_option *option, bool rent,
                       bool own, struct gd_report_table *table) {
  struct gd_report_cell *row = gd_report_table_row(table);
  enum gd_physics physics = gd_physics_of(option->time.share);
  row[0].text = machine_of(report, option);
  gd_report_set_days(report, &row[1], option->time.days);
  if (option->time.days_low < option->time.days_high)
    row[2].text = gd_report_print(report, "%s to %s", gd_report_days(report, option->time.days_low),
                                  gd_report_days(report, option->time.days_high));
  set_dollars(report, &row[3], option->rent_usd);
  set_dollars(report, &row[4], option->hardware_usd);
  set_dollars(report, &row[5], owned_usd(option));
  set_dollars(report, &row[6], option->energy_kwh);
  gd_report_set_digits(report, &row[7], option->break_even_months);
  row[8].text = rent && own ? "rent, own" : rent ? "rent" : own ? "own" : "";
  row[9].text = gd_times_name(option->time.times);
  if (option->time.share > 0 && physics != GD_PHYSICS_FINE)
    row[1].class_name = physics == GD_PHYSICS_IMPOSSIBLE ? "wrong" : "doubt";
}

/* Machines on a front, or all. */
static struct gd_report_table *options_table(struct gd_report *report,
                                             const struct gd_money_table *money, const bool *rent,
                                             const bool *own, bool all) {
  struct gd_report_table *table =
      gd_report_table_new(&report->arena, columns, COLUMNS, money->count);
  for (int i = 0; i < money->count && table; i++)
    if (money->options[i].time.state == GD_TIME_KNOWN && (all || rent[i] || own[i]))
      option_row(report, &money->options[i], rent[i], own[i], table);
  return table;
}

/* --- one model ----------------------------------------------------------------------------- */

/* The advice as the title of the figure. */
static const char *advice_title(struct gd_report *report, const char *model,
                                const struct gd_money_table *money) {
  struct gd_money_advice advice;
  char usd[48];
  gd_money_advise(money, &(struct gd_money_limits){.possible = true}, &advice);
  if (!advice.option)
    return gd_report_print(report, "No machine of the catalogue trains %s", model);
  return gd_report_print(report, "%s: %s %s for $%s, %s days", model,
                         advice.rented ? "rent" : "buy", machine_of(report, advice.option),
                         gd_format_number(usd, sizeof usd, advice.usd, advice.usd < 10 ? 2 : 0),
                         gd_report_days(report, advice.option->time.days));
}

static enum gd_status show_options(struct gd_report *report, const char *name,
                                   const struct gd_money_table *money, struct gd_error *err) {
  const char *model = gd_report_model_title(report, name);
  const char *from =
      "prices of this program's catalogue, days as the table says; 'gpudays cost' has "
      "the assumptions and takes others";
  enum gd_report_source source =
      report->order->no_predictions ? GD_REPORT_MEASURED : GD_REPORT_PREDICTED;
  struct gd_plot_series series[2];
  bool *rent = gd_arena_alloc(&report->arena, (size_t)money->count + 1, sizeof *rent);
  bool *own = gd_arena_alloc(&report->arena, (size_t)money->count + 1, sizeof *own);
  if (!rent || !own)
    return gd_report_no_memory(err);
  GD_TRY(fill_ways(report, money, true, &series[0], rent, err));
  GD_TRY(fill_ways(report, money, false, &series[1], own, err));
  struct gd_plot plot = {.kind = GD_PLOT_SCATTER,
                         .title = advice_title(report, model, money),
                         .x_label = "USD of one run, logarithmic",
                         .y_label = "days, logarithmic",
                         .height = 480,
                         .series = series,
                         .n_series = 2,
                         .log_x = true,
                         .log_y = true};
  GD_TRY(gd_report_add_plot(
      report,
      &(struct gd_report_block){
          gd_report_print(report, "cost-%s", name),
          "Every machine of the catalogue, rented or owned; labelled where no other is cheaper and "
          "as fast. The machine's price is spread over the years that it is used.",
          source, from},
      &plot, err));
  GD_TRY(gd_report_add_table(
      report,
      &(struct gd_report_block){gd_report_print(report, "cost-%s-best", name),
                                "Machines of which no other is both cheaper and faster, to rent or "
                                "to own.",
                                source, from},
      options_table(report, money, rent, own, false), err));
  gd_report_fold(report, "Every machine of the catalogue");
  GD_TRY(gd_report_add_table(
      report,
      &(struct gd_report_block){gd_report_print(report, "cost-%s-machines", name),
                                "The same of all machines.", source, from},
      options_table(report, money, rent, own, true), err));
  gd_report_fold(report, NULL);
  return GD_OK;
}

/* *known: whether there are days on any machine. */
static enum gd_status model_section(struct gd_report *report, const char *name, int number,
                                    bool *known, struct gd_error *err) {
  struct gd_model model;
  struct gd_money_table money = {0};
  struct gd_money_asked asked = {.hw = &report->hw,
                                 .paper = &report->paper,
                                 .store = report->order->store,
                                 .model = &model,
                                 .times = report->order->no_predictions ? GD_TIMES_MEASURED
                                                                        : GD_TIMES_AUTO};
  if (gd_model_load(name, &model, NULL) != GD_OK)
    return GD_OK; /* a model that is not here any more has no price */
  GD_TRY(gd_money_terms_default(&report->hw, NULL, &asked.terms, err));
  enum gd_status status = gd_money_table_make(&asked, &money, err);
  bool any = false;
  for (int i = 0; i < money.count; i++)
    any = any || money.options[i].time.state == GD_TIME_KNOWN;
  if (status == GD_OK && any) {
    gd_report_begin(report, gd_report_print(report, "cost-%d", number), NULL,
                    gd_report_model_title(report, name));
    status = show_options(report, name, &money, err);
    gd_report_end(report);
    *known = true;
  }
  gd_money_table_deinit(&money);
  return status;
}

enum gd_status gd_report_items_bill(struct gd_report *report, struct gd_error *err) {
  const char *models[MOST_MODELS];
  int count = choose_models(report, models);
  bool known = false;
  gd_report_chapter(report, "cost", "What it would cost");
  if (report->n_run_models + report->measured.n_trials == 0)
    gd_report_text(report, "As an example, until something is measured or trained here:");
  for (int i = 0; i < count; i++)
    GD_TRY(model_section(report, models[i], i + 1, &known, err));
  if (!known)
    gd_report_lacks(report, GD_REPORT_PREDICTED,
                    "no days on a machine of the catalogue are known without predictions; "
                    "'gpudays cost MODEL' compares all machines");
  if (known && report->measured.n_models > count)
    gd_report_text(report,
                   gd_report_print(report,
                                   "These are %d of the models of this store; 'gpudays cost "
                                   "MODEL' compares machines for any other.",
                                   count));
  return GD_OK;
}
