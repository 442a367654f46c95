/*
 * `gpudays cost --budget USD`: which presets a budget, and a deadline, allow; see cost.h.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cost.h"
#include "cli/show_items.h"

static const char *machine_cell(struct gd_cli *cli, const struct gd_money_advice *advice,
                                bool rented) {
  const struct gd_money_option *option = advice->option;
  char a[2 * GD_SHOW_TEXT], b[GD_SHOW_TEXT], thing[GD_SHOW_WAY];
  if (!option)
    return "-";
  return gd_show_cell(cli, "%s, %s, %s days", gd_show_thing(thing, option, rented),
                      gd_show_usd(a, sizeof a, rented ? option->rent_usd : option->hardware_usd),
                      gd_show_days(b, sizeof b, option->time.days));
}

/* "predicted"; "measured, predicted" where what is bought and what is rented differ in it. */
static const char *sources_cell(struct gd_cli *cli, const struct gd_money_preset *preset) {
  const struct gd_money_option *bought = preset->advice[0].option,
                               *rented = preset->advice[1].option;
  if (!bought && !rented)
    return "";
  if (!bought || !rented || bought->time.times == rented->time.times)
    return gd_times_name((bought ? bought : rented)->time.times);
  return gd_show_cell(cli, "%s, %s", gd_times_name(bought->time.times),
                      gd_times_name(rented->time.times));
}

static void append_largest(struct gd_cli *cli, const struct gd_money_preset *preset, bool rented) {
  const struct gd_money_option *option = preset ? preset->advice[rented].option : NULL;
  const char *how = rented ? "rented" : "bought";
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT], c[GD_SHOW_TEXT], thing[GD_SHOW_WAY], text[1024];
  if (!option)
    snprintf(text, sizeof text, "%s: none", how);
  else
    snprintf(text, sizeof text, "%s: %s on %s, %s days (%s - %s; %s%s)", how, preset->model.name,
             gd_show_thing(thing, option, rented), gd_show_days(a, sizeof a, option->time.days),
             gd_show_days(b, sizeof b, option->time.days_low),
             gd_show_days(c, sizeof c, option->time.days_high),
             option->time.times == GD_TIMES_PREDICTED ? "predicted: " : "", option->time.source);
  gd_show_paragraph(&cli->out, 2, text);
}

/* What a model of any size would be, of 20 tokens a parameter. */
static void append_size(struct gd_cli *cli, const struct gd_money_preset *preset, bool rented) {
  const double limit_days = cli->options.days.value;
  const struct gd_money_option *option = preset->advice[rented].option;
  double tokens, size = gd_money_presets_size(preset, rented, limit_days, &tokens);
  char n[GD_SHOW_TEXT], d[GD_SHOW_TEXT], thing[GD_SHOW_WAY];
  if (preset->model.family->images)
    return;
  gd_show_item(cli, "size",
               gd_show_cell(cli,
                            "at that rate %s trains %s parameters on 20 tokens each, %s, in the %g "
                            "days; gpudays plan --params SIZE says whether they fit",
                            gd_show_thing(thing, option, rented), gd_show_power(n, sizeof n, size),
                            gd_show_power(d, sizeof d, tokens), limit_days));
}

/* The answer: the most that the dollars, and the days, are enough for. */
static void append_answer(struct gd_cli *cli, const struct gd_money_presets *presets) {
  const struct gd_money_limits limits = gd_cost_limits(cli);
  char a[2 * GD_SHOW_TEXT], b[GD_SHOW_TEXT], c[GD_SHOW_TEXT], d[GD_SHOW_TEXT], thing[GD_SHOW_WAY],
      text[GD_SHOW_WAY];
  for (int rented = 1; rented >= 0; rented--) {
    const struct gd_money_preset *preset = gd_money_presets_largest(presets, rented);
    const bool own = cli->options.own;
    const char *label = rented ? "to rent" : own ? "to train" : "to buy";
    if (rented && own)
      continue;
    if (!preset) {
      gd_show_item(cli, label,
                   gd_show_cell(cli, "no preset is likely to be trained within %s",
                                gd_show_limits(text, &limits)));
      continue;
    }
    const struct gd_money_option *option = preset->advice[rented].option;
    gd_show_item(
        cli, label,
        gd_show_cell(cli,
                     "%s, the most FLOPs within %s: %s for %s, %s days (%s - %s); details: gpudays "
                     "cost %s",
                     preset->model.name, gd_show_limits(text, &limits),
                     gd_show_thing(thing, option, rented),
                     gd_show_usd(a, sizeof a,
                                 rented ? option->rent_usd
                                 : own  ? option->energy_usd
                                        : option->hardware_usd),
                     gd_show_days(b, sizeof b, option->time.days),
                     gd_show_days(c, sizeof c, option->calendar.days_low),
                     gd_show_days(d, sizeof d, option->calendar.days_high), preset->model.name));
  }
  const struct gd_money_preset *rent = gd_money_presets_largest(presets, true),
                               *buy = gd_money_presets_largest(presets, false);
  if (limits.days > 0 && limits.budget_usd <= 0 && (rent || buy))
    append_size(cli, rent ? rent : buy, rent);
  gd_strbuf_append(&cli->out, "\n");
}

static enum gd_status append_presets(struct gd_cli *cli, const struct gd_money_presets *presets,
                                     struct gd_error *err) {
  const int count = presets->count;
  static const struct gd_show_column columns[] = {{"MODEL", false, 0},     {"PARAMETERS", true, 2},
                                                  {"FLOPS", true, 3},      {"IF BOUGHT", false, 0},
                                                  {"IF RENTED", false, 0}, {"DAYS FROM", false, 1}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  char text[GD_SHOW_TEXT];
  append_answer(cli, presets);
  for (int i = 0; i < count; i++) {
    const struct gd_money_preset *p = &presets->list[i];
    const char **row = gd_show_row(&rows);
    row[0] = p->model.name;
    row[1] = gd_show_count_cell(cli, p->table.work.parameters);
    row[2] = gd_show_cell(cli, "%s", gd_show_power(text, sizeof text, p->table.work.train_flops));
    row[3] = machine_cell(cli, &p->advice[0], false);
    row[4] = machine_cell(cli, &p->advice[1], true);
    row[5] = sources_cell(cli, p);
  }
  GD_TRY(gd_show_rows(&rows, 0, err));
  gd_strbuf_append(&cli->out, "\nlargest that can be trained, by the FLOPs of its run:\n");
  for (int rented = 0; rented < 2; rented++)
    append_largest(cli, gd_money_presets_largest(presets, rented), rented);
  gd_strbuf_append(&cli->out, "\n");
  gd_show_paragraph(
      &cli->out, 0,
      gd_show_cell(cli,
                   "IF BOUGHT, IF RENTED: the %s within the limits, as 'gpudays cost MODEL' "
                   "with them takes it; the dollars are of the machine, or of the run's rent. "
                   "Presets are in the order of FLOPS.",
                   gd_cost_limits(cli).budget_usd > 0 ? "fastest" : "cheapest"));
  if (count > 0)
    gd_show_terms(cli, gd_money_presets_terms(presets));
  return GD_OK;
}

static enum gd_status append_presets_json(struct gd_cli *cli,
                                          const struct gd_money_presets *presets,
                                          struct gd_error *err) {
  struct gd_show_object root, rows = {.object = json_array()}, object;
  const struct gd_money_preset *bought = gd_money_presets_largest(presets, false);
  const struct gd_money_preset *rented = gd_money_presets_largest(presets, true);
  for (int i = 0; i < 2 * presets->count; i++) {
    const struct gd_money_preset *preset = &presets->list[i / 2];
    if (!preset->advice[i % 2].option)
      continue;
    gd_show_option(&object, &preset->table, preset->advice[i % 2].option, cli->options.days.value);
    gd_show_set_text(&object, "way", i % 2 ? "rent" : "buy");
    gd_show_append(&rows, &object);
  }
  if (cli->options.csv)
    return gd_show_csv(&cli->out, &rows, err);
  gd_show_begin(&root);
  gd_show_set_text(&root, "stack", presets->count > 0 ? presets->list[0].table.stack : "own");
  gd_cost_set_number(&root, "budget_usd", &cli->options.budget_usd);
  gd_cost_set_number(&root, "days_limit", &cli->options.days);
  if (presets->count > 0)
    gd_show_set_terms(&root, "terms", &presets->list[0].table.terms);
  gd_show_set_object(&root, "options", &rows);
  gd_show_set_option(&root, "chosen", bought ? &bought->table : NULL,
                     bought ? bought->advice[0].option : NULL, cli->options.days.value);
  gd_show_set_option(&root, "chosen_rented", rented ? &rented->table : NULL,
                     rented ? rented->advice[1].option : NULL, cli->options.days.value);
  return gd_show_json(&cli->out, &root, err);
}

static enum gd_status show_presets(struct gd_cli *cli, const struct gd_money_presets *presets,
                                   struct gd_error *err) {
  const struct gd_money_limits limits = gd_cost_limits(cli);
  char text[GD_SHOW_WAY];
  GD_TRY(gd_cli_for_programs(cli) ? append_presets_json(cli, presets, err)
                                  : append_presets(cli, presets, err));
  if (!gd_money_presets_largest(presets, false) && !gd_money_presets_largest(presets, true))
    return gd_fail(err, GD_MISMATCH, "no preset is likely to be trained within %s",
                   gd_show_limits(text, &limits));
  return GD_OK;
}

enum gd_status gd_cost_presets(struct gd_cli *cli, const struct gd_money_asked *asked,
                               struct gd_error *err) {
  const struct gd_money_limits limits = gd_cost_limits(cli);
  struct gd_money_presets presets;
  enum gd_status status = gd_money_presets_make(asked, &limits, gd_cost_label_progress,
                                                asked->progress_user, &presets, err);
  if (status == GD_OK)
    status = show_presets(cli, &presets, err);
  gd_money_presets_deinit(&presets);
  return status;
}
