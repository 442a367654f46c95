/*
 * Options of `cost` for people and for programs; see show_cost.h.
 */
#include "cli/show_cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/show_items.h"

const char *gd_show_usd(char *text, size_t size, double usd) {
  char digits[GD_SHOW_TEXT];
  if (isfinite(usd))
    snprintf(text, size, "$%s", gd_format_number(digits, sizeof digits, usd, usd < 10 ? 2 : 0));
  else
    snprintf(text, size, "-");
  return text;
}

/* Three digits, and no more than the number has: the paper's 30 days are not 30.0. */
const char *gd_show_days(char *text, size_t size, double days) {
  if (days < 999.5)
    snprintf(text, size, "%.3g", days);
  else
    gd_format_number(text, size, days, 0);
  return text;
}

/* --- names --------------------------------------------------------------------------------- */

const char *gd_show_thing(char text[GD_SHOW_WAY], const struct gd_money_option *option,
                          bool rented) {
  if (rented || option->owned)
    snprintf(text, GD_SHOW_WAY, "%d x %.60s", option->machine->count, option->gpu->name);
  else
    snprintf(text, GD_SHOW_WAY, "%.60s", option->machine->name);
  return text;
}

const char *gd_show_way(char text[GD_SHOW_WAY], const struct gd_money_option *option, bool rented) {
  char thing[GD_SHOW_WAY];
  snprintf(text, GD_SHOW_WAY, "%s %.80s",
           rented          ? "rent"
           : option->owned ? "use your"
                           : "buy",
           gd_show_thing(thing, option, rented));
  return text;
}

const char *gd_show_whole_way(char text[2 * GD_SHOW_WAY], const struct gd_money_way *way) {
  char a[2 * GD_SHOW_TEXT], b[GD_SHOW_TEXT], name[GD_SHOW_WAY];
  snprintf(text, 2 * GD_SHOW_WAY, "%s for %.40s, %.40s days",
           gd_show_way(name, way->option, way->rented), gd_show_usd(a, sizeof a, way->usd),
           gd_show_days(b, sizeof b, way->option->time.days));
  return text;
}

const char *gd_show_limits(char text[GD_SHOW_WAY], const struct gd_money_limits *limits) {
  char a[2 * GD_SHOW_TEXT] = "", b[GD_SHOW_TEXT] = "";
  if (limits->budget_usd > 0)
    gd_show_usd(a, sizeof a, limits->budget_usd);
  if (limits->days > 0)
    snprintf(b, sizeof b, "%g day%s", limits->days, fabs(limits->days - 1) < 1e-9 ? "" : "s");
  snprintf(text, GD_SHOW_WAY, "%.40s%s%.40s", a, a[0] && b[0] ? " and " : "", b);
  return text;
}

/* --- for programs -------------------------------------------------------------------------- */

static const char *physics_name(enum gd_physics physics) {
  static const char *const names[] = {"fine", "doubtful", "impossible"};
  return names[physics];
}

static const char *state_name(enum gd_time_state state) {
  static const char *const names[] = {"unknown", "infeasible", "known"};
  return names[state];
}

static void set_time(struct gd_show_object *to, const struct gd_time *time) {
  double none = (double)NAN;
  bool known = time->state == GD_TIME_KNOWN;
  gd_show_set_real(to, "days", known ? time->days : none);
  gd_show_set_real(to, "days_low", known ? time->days_low : none);
  gd_show_set_real(to, "days_high", known ? time->days_high : none);
  gd_show_set_text(to, "state", state_name(time->state));
  gd_show_set_text(to, "times", gd_times_name(time->times));
  gd_show_set_text(to, "source", time->source);
  gd_show_set_text(to, "method", time->method);
  if (time->network.name)
    gd_show_set_text(to, "network", time->network.name);
  else
    gd_show_set_null(to, "network");
  gd_show_set_int(to, "nodes", time->network.nodes);
  gd_show_set_int(to, "network_cards", time->network.cards);
  gd_show_set_bool(to, "network_assumed", time->network.assumed);
  gd_show_set_real(to, "peak_share", known && time->share > 0 ? time->share : none);
  gd_show_set_text(to, "physics", physics_name(gd_physics_of(known ? time->share : 0)));
}

const char *gd_show_provider(const struct gd_money_table *table,
                             const struct gd_money_option *option) {
  const struct gd_money_figure *own = &table->terms.rent_usd_per_gpu_hour;
  return own->value > 0 ? own->source : option->rent ? option->rent->provider : "";
}

void gd_show_option(struct gd_show_object *to, const struct gd_money_table *table,
                    const struct gd_money_option *option, double limit_days) {
  double known = option->time.state == GD_TIME_KNOWN ? option->time.days : (double)NAN;
  gd_show_begin(to);
  gd_show_set_text(to, "model", table->model->name);
  gd_show_set_text(to, "machine", option->machine->name);
  gd_show_set_text(to, "gpu", option->gpu->name);
  gd_show_set_int(to, "count", option->machine->count);
  gd_show_set_real(to, "hardware_usd", option->hardware_usd);
  gd_show_set_real(to, "experiment_usd", option->experiment_usd);
  set_time(to, &option->time);
  const char *how;
  gd_show_set_real(to, "power_w", option->power_w);
  gd_show_set_real(to, "gpu_power_w", gd_money_gpu_w(&table->terms, option, &how));
  gd_show_set_text(to, "gpu_power_from", how);
  gd_show_set_real(to, "energy_kwh", option->energy_kwh);
  gd_show_set_real(to, "energy_usd", option->energy_usd);
  gd_show_set_real(to, "co2_kg", option->co2_kg);
  gd_show_set_real(to, "rent_usd_per_hour", option->rent_usd_per_hour);
  gd_show_set_real(to, "rent_usd", option->rent_usd);
  gd_show_set_text(to, "rent_provider", gd_show_provider(table, option));
  gd_show_set_real(to, "break_even_months", option->break_even_months);
  gd_show_set_bool(to, "hardware_front", option->hardware_front);
  gd_show_set_bool(to, "experiment_front", option->experiment_front);
  gd_show_set_real(to, "rent_usd_low", option->rent_usd / known * option->time.days_low);
  gd_show_set_real(to, "rent_usd_high", option->rent_usd / known * option->time.days_high);
  gd_show_calendar(to, &option->calendar, limit_days);
}

void gd_show_set_option(struct gd_show_object *to, const char *key,
                        const struct gd_money_table *table, const struct gd_money_option *option,
                        double limit_days) {
  struct gd_show_object object;
  if (!option) {
    gd_show_set_null(to, key);
    return;
  }
  gd_show_option(&object, table, option, limit_days);
  gd_show_set_object(to, key, &object);
}

static void set_figure(struct gd_show_object *to, const char *key,
                       const struct gd_money_figure *figure) {
  struct gd_show_object object;
  gd_show_begin(&object);
  gd_show_set_real(&object, "value", figure->value);
  gd_show_set_text(&object, "source", figure->source);
  gd_show_set_object(to, key, &object);
}

void gd_show_set_terms(struct gd_show_object *to, const char *key,
                       const struct gd_money_terms *terms) {
  struct gd_show_object object;
  gd_show_begin(&object);
  set_figure(&object, "life_years", &terms->life_years);
  set_figure(&object, "utilisation", &terms->utilisation);
  set_figure(&object, "pue", &terms->pue);
  set_figure(&object, "usd_per_kwh", &terms->usd_per_kwh);
  set_figure(&object, "g_co2_per_kwh", &terms->g_co2_per_kwh);
  set_figure(&object, "mfu", &terms->mfu);
  gd_show_set_object(to, key, &object);
}

/* --- the table ----------------------------------------------------------------------------- */

static const struct gd_show_column columns[] = {
    {"MACHINE", false, 0},   {"HARDWARE", true, 1}, {"DAYS", true, 0},       {"INTERVAL", true, 4},
    {"COST/RUN", true, 0},   {"KWH", true, 7},      {"ENERGY", true, 6},     {"RENT", true, 0},
    {"BREAK-EVEN", true, 3}, {"PARETO", false, 2},  {"DAYS FROM", false, 5}, {"DEADLINE", false, 0},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static const char *usd_cell(struct gd_cli *cli, double usd) {
  char text[2 * GD_SHOW_TEXT];
  return isfinite(usd) ? gd_show_cell(cli, "%s", gd_show_usd(text, sizeof text, usd)) : "-";
}

static const char *months_cell(struct gd_cli *cli, double months) {
  char text[GD_SHOW_TEXT];
  if (isnan(months))
    return "-";
  if (!isfinite(months))
    return "never";
  return gd_show_cell(cli, "%s mo", gd_format_digits(text, sizeof text, months, 3));
}

/* The source, and what physics says of it. */
static const char *source_cell(struct gd_cli *cli, const struct gd_time *time) {
  const char *name = gd_times_name(time->times);
  enum gd_physics physics = gd_physics_of(time->share);
  if (time->state != GD_TIME_KNOWN || physics == GD_PHYSICS_FINE)
    return name;
  return gd_show_cell(cli, "%s, %.0f %% of peak: %s", name, 100 * time->share,
                      physics_name(physics));
}

/* Of days that were measured or predicted. */
static const char *interval_cell(struct gd_cli *cli, const struct gd_time *time) {
  char low[GD_SHOW_TEXT], high[GD_SHOW_TEXT];
  if (time->times == GD_TIMES_PAPER || !(time->days_high > time->days_low))
    return "";
  return gd_show_cell(cli, "%s - %s", gd_show_days(low, sizeof low, time->days_low),
                      gd_show_days(high, sizeof high, time->days_high));
}

static const char *front_cell(const struct gd_money_option *option) {
  return option->hardware_front && option->experiment_front ? "buy, run"
         : option->hardware_front                           ? "buy"
         : option->experiment_front                         ? "run"
                                                            : "";
}

static void fill_row(struct gd_cli *cli, const struct gd_money_option *option, double limit_days,
                     const char **row) {
  char text[GD_SHOW_TEXT];
  row[0] = option->machine->name;
  row[1] = usd_cell(cli, option->hardware_usd);
  row[10] = source_cell(cli, &option->time);
  if (option->time.state != GD_TIME_KNOWN) {
    row[2] = "infeasible";
    return;
  }
  row[2] = gd_show_cell(cli, "%s", gd_show_days(text, sizeof text, option->time.days));
  row[3] = interval_cell(cli, &option->time);
  row[4] = usd_cell(cli, option->experiment_usd);
  row[5] = gd_show_cell(cli, "%s", gd_format_digits(text, sizeof text, option->energy_kwh, 3));
  row[6] = usd_cell(cli, option->energy_usd);
  row[7] = usd_cell(cli, option->rent_usd);
  row[8] = months_cell(cli, option->break_even_months);
  row[9] = front_cell(option);
  if (limit_days > 0)
    row[11] = gd_deadline_name(gd_money_deadline(option, limit_days));
}

enum gd_status gd_show_options(struct gd_cli *cli, const struct gd_money_table *table,
                               double limit_days, struct gd_error *err) {
  struct gd_show_rows rows = {
      .cli = cli, .columns = columns, .n_columns = limit_days > 0 ? COLUMNS : COLUMNS - 1};
  for (int i = 0; i < table->count; i++)
    if (table->options[i].time.state != GD_TIME_UNKNOWN)
      fill_row(cli, &table->options[i], limit_days, gd_show_row(&rows));
  return gd_show_rows(&rows, 0, err);
}

/* --- sentences ----------------------------------------------------------------------------- */

static void append_rent(struct gd_cli *cli, const struct gd_money_table *table,
                        const struct gd_money_option *option) {
  double months = 12 * table->terms.life_years.value;
  char a[2 * GD_SHOW_TEXT], b[2 * GD_SHOW_TEXT], c[GD_SHOW_TEXT];
  if (!isfinite(option->rent_usd))
    return;
  gd_strbuf_printf(&cli->out, "  rented: %s at %s a GPU-hour (%s)",
                   gd_show_usd(a, sizeof a, option->rent_usd),
                   gd_show_usd(b, sizeof b, option->rent_usd_per_hour / option->machine->count),
                   gd_show_provider(table, option));
  if (isfinite(option->break_even_months))
    gd_strbuf_printf(&cli->out, "; buying pays after %s months of use%s",
                     gd_format_digits(c, sizeof c, option->break_even_months, 3),
                     option->break_even_months > months ? ", beyond its life" : "");
  gd_strbuf_append(&cli->out, "\n");
  if (isfinite(option->hardware_usd))
    gd_strbuf_printf(&cli->out,
                     "  %g years without pause: %s to own with its electricity, %s to rent\n",
                     table->terms.life_years.value,
                     gd_show_usd(a, sizeof a, gd_money_own_usd(&table->terms, option, months)),
                     gd_show_usd(b, sizeof b, gd_money_rent_usd(option, months)));
}

static void append_doubts(struct gd_cli *cli, const struct gd_time *time) {
  char text[256];
  enum gd_physics physics = gd_physics_of(time->share);
  if (physics == GD_PHYSICS_FINE)
    return;
  snprintf(text, sizeof text,
           "note: these days need %.0f %% of the GPUs' peak: %s; they are the source's, not ours",
           100 * time->share, physics_name(physics));
  gd_show_paragraph(&cli->out, 2, text);
}

static void append_source(struct gd_cli *cli, const struct gd_time *time) {
  char text[sizeof time->source + sizeof time->method + 64];
  snprintf(text, sizeof text, "days: %s%s%s%s", time->method, time->method[0] ? ", " : "",
           time->times == GD_TIMES_PREDICTED ? "predicted, not measured: " : "", time->source);
  gd_show_paragraph(&cli->out, 2, text);
}

void gd_show_time_lines(struct gd_cli *cli, const struct gd_time *time) {
  append_source(cli, time);
  append_doubts(cli, time);
}

void gd_show_option_lines(struct gd_cli *cli, const struct gd_money_table *table,
                          const struct gd_money_option *option) {
  char a[2 * GD_SHOW_TEXT], b[2 * GD_SHOW_TEXT], c[GD_SHOW_TEXT], d[GD_SHOW_TEXT];
  gd_strbuf_append(&cli->out, "  a run: ");
  if (isfinite(option->experiment_usd) && !option->owned)
    gd_strbuf_printf(&cli->out, "%s of the hardware's %g years, ",
                     gd_show_usd(a, sizeof a, option->experiment_usd),
                     table->terms.life_years.value);
  const char *how;
  double gpu_w = gd_money_gpu_w(&table->terms, option, &how);
  gd_strbuf_printf(&cli->out, "%s kWh (%s, %s kg of CO2)\n    %.0f W a GPU, %s\n",
                   gd_format_digits(c, sizeof c, option->energy_kwh, 3),
                   gd_show_usd(b, sizeof b, option->energy_usd),
                   gd_format_digits(d, sizeof d, option->co2_kg, 3), gpu_w, how);
  append_rent(cli, table, option);
  gd_show_time_lines(cli, &option->time);
}

static void append_term(struct gd_cli *cli, const struct gd_money_figure *figure,
                        const char *before, const char *after) {
  char text[512];
  snprintf(text, sizeof text, "%s%g%s: %s", before, figure->value, after, figure->source);
  gd_show_paragraph(&cli->out, 2, text);
}

void gd_show_terms(struct gd_cli *cli, const struct gd_money_table *table) {
  const struct gd_money_terms *terms = &table->terms;
  bool analytic = false, shares = terms->utilisation_given;
  for (int i = 0; i < table->count; i++) {
    analytic = analytic || table->options[i].time.times == GD_TIMES_ANALYTIC;
    shares = shares || !(table->options[i].time.gpu_power_w > 0);
  }
  gd_strbuf_append(&cli->out, "\nassumed\n");
  if (!terms->owned)
    append_term(cli, &terms->life_years, "life of hardware ", " years");
  if (analytic)
    append_term(cli, &terms->mfu, "share of peak ", ", memory not looked at");
  if (shares)
    append_term(cli, &terms->utilisation, "share of board power where it is not known ", "");
  append_term(cli, &terms->pue, "PUE ", "");
  append_term(cli, &terms->usd_per_kwh, "electricity $", " a kWh");
  append_term(cli, &terms->g_co2_per_kwh, "CO2 ", " g a kWh");
}
