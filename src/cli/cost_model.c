/*
 * The answer of `gpudays cost MODEL`: one way to rent or to buy, in lines as those of `plan`, then
 * the table of machines and what it rests on; see cost.h.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cost.h"
#include "cli/progress.h"
#include "cli/show_items.h"
#include "cli/show_model.h"

/* --- the answer is no ---------------------------------------------------------------------- */

/* No machine has days from that source. */
static enum gd_status no_days(const struct gd_money_table *table, int infeasible,
                              struct gd_error *err) {
  const char *model = table->model->name;
  if (infeasible > 0)
    return gd_fail(err, GD_MISMATCH, "%s can be trained on none of these machines", model);
  if (table->times == GD_TIMES_PAPER)
    return gd_fail(err, GD_MISMATCH,
                   "the paper has no days of %s with this recipe on these machines; leave --times "
                   "paper out",
                   model);
  return gd_fail(err, GD_MISMATCH,
                 "no good trial of %s on a GPU of these machines is stored; gpudays bench %s "
                 "measures some, or leave --times %s out",
                 model, model, gd_times_name(table->times));
}

/* Who does not train it: of machines that were never measured nothing is known. */
static const char *name_none(const struct gd_money_table *table,
                             const struct gd_money_answer *answer, char text[64]) {
  if (table->times == GD_TIMES_MEASURED && answer->unknown > 0)
    snprintf(text, 64, "none of the machines with %s days", gd_times_name(table->times));
  else
    snprintf(text, 64, "no machine");
  return text;
}

/* Deadlines and budgets are held against intervals. */
static const char *trains(const struct gd_money_limits *limits) {
  return limits->days > 0 || limits->budget_usd > 0 ? "is likely to train" : "trains";
}

/* Nothing is within the limits, bought or rented: what is nearest to them. */
static enum gd_status none_within(const struct gd_money_table *table,
                                  const struct gd_money_limits *limits,
                                  const struct gd_money_answer *answer, struct gd_error *err) {
  const bool money = limits->budget_usd > 0, both = money && limits->days > 0;
  const struct gd_money_near *near = &answer->near;
  char a[2 * GD_SHOW_TEXT], b[GD_SHOW_TEXT], asked[GD_SHOW_WAY], more[2 * GD_SHOW_WAY] = "";
  char way[2 * GD_SHOW_WAY], none[64];
  if (!near->way.option)
    return gd_fail(err, GD_MISMATCH,
                   "no price is known of the GPUs that train %s; --usd-per-hour says one to rent, "
                   "--gpu-usd one to buy",
                   table->model->name);
  if (near->buy && !table->terms.owned)
    snprintf(more, sizeof more, "; to buy: %.40s for %s, %s days", near->buy->machine->name,
             gd_show_usd(a, sizeof a, near->buy->hardware_usd),
             gd_show_days(b, sizeof b, near->buy->time.days));
  return gd_fail(err, GD_MISMATCH, "%s %s %s %s %s%s; the %s: %s%s", name_none(table, answer, none),
                 trains(limits), table->model->name, money && !both ? "for" : "within",
                 gd_show_limits(asked, limits), table->terms.owned ? "" : ", bought or rented",
                 !near->cheapest ? "fastest that there is"
                 : both          ? "cheapest in time"
                                 : "cheapest that there is",
                 gd_show_whole_way(way, &near->way), more);
}

/* --- one model, for people ----------------------------------------------------------------- */

static void append_title(struct gd_cli *cli, const struct gd_money_table *table) {
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT], c[GD_SHOW_TEXT];
  gd_show_bold(cli, table->model->name);
  gd_strbuf_printf(&cli->out, ", %s parameters, %s %s, %s FLOPs\n\n",
                   gd_format_count(a, sizeof a, table->work.parameters),
                   gd_show_power(b, sizeof b, table->work.tokens),
                   table->model->family->images ? "images" : "tokens",
                   gd_show_power(c, sizeof c, table->work.train_flops));
  if (table->model->assumed || table->model->unknown[0]) {
    gd_show_assumed(cli, table->model);
    gd_strbuf_append(&cli->out, "\n");
  }
}

/* Why that way: "the least of 98 ways", "the fastest of 12 ways within $500". */
static void append_reason(struct gd_strbuf *out, const struct gd_money_limits *limits,
                          const struct gd_money_advice *advice) {
  const bool budget = limits->budget_usd > 0;
  char text[GD_SHOW_WAY];
  const bool owned = advice->option->owned;
  if (advice->ways == 1 && owned)
    gd_strbuf_append(out, "its electricity");
  else if (advice->ways == 1)
    gd_strbuf_append(out, "the only way to buy or rent");
  else
    gd_strbuf_printf(out, "%sthe %s of %d %s", advice->near ? "within 5 % of " : "",
                     budget ? "fastest" : "cheapest", advice->ways,
                     owned ? "by its electricity" : "ways to buy or rent");
  if (budget || limits->days > 0)
    gd_strbuf_printf(out, " within %s", gd_show_limits(text, limits));
  if (advice->near && budget)
    gd_strbuf_printf(out, ", for %.0f %% of its dollars", 100 * advice->usd / advice->fastest.usd);
  else if (advice->near)
    gd_strbuf_printf(out, ", and %.3g times as fast",
                     advice->cheapest.option->time.days / advice->option->time.days);
}

static bool same_way(const struct gd_money_way *a, const struct gd_money_way *b) {
  return a->option == b->option && a->rented == b->rented;
}

/* What dollars and days can be traded for each other: both ends of what is reasonable. */
static void append_ends(struct gd_cli *cli, const struct gd_money_limits *limits,
                        const struct gd_money_advice *advice) {
  char a[2 * GD_SHOW_WAY], b[2 * GD_SHOW_WAY];
  if (same_way(&advice->cheapest, &advice->fastest))
    return;
  gd_show_item(cli, "or",
               gd_show_cell(cli, "cheapest: %s; fastest%s: %s",
                            gd_show_whole_way(a, &advice->cheapest),
                            limits->budget_usd > 0 ? "" : " for up to twice that",
                            gd_show_whole_way(b, &advice->fastest)));
}

/* "; break-even: the same machine, bought, is cheaper from 15.9 months of use on" */
static void append_break_even(struct gd_strbuf *text, const struct gd_money_option *option,
                              bool rented) {
  char months[GD_SHOW_TEXT];
  if (isnan(option->break_even_months))
    return;
  gd_strbuf_append(text, "; break-even: ");
  if (isfinite(option->break_even_months))
    gd_strbuf_printf(text, "%s %s months of use",
                     rented ? "buying the same machine pays after" : "against renting it after",
                     gd_format_digits(months, sizeof months, option->break_even_months, 3));
  else
    gd_strbuf_append(text, "never, its electricity costs as much as its rent");
}

/* From how many runs on a purchase is cheaper than the cheapest rent. */
static void append_purchase(struct gd_cli *cli, const struct gd_money_table *table,
                            const struct gd_money_advice *advice) {
  const struct gd_money_option *buy = advice->buy;
  char a[GD_SHOW_TEXT], b[2 * GD_SHOW_TEXT], c[GD_SHOW_TEXT];
  struct gd_strbuf text = {0};
  if (advice->for_sale == 0)
    gd_strbuf_append(&text, "buying was not compared: no machine for sale has days here");
  else if (advice->compared == 0)
    gd_strbuf_printf(&text, "buying was not compared: none of %d machine%s for sale is in time",
                     advice->for_sale, gd_cost_plural(advice->for_sale));
  else if (!buy)
    gd_strbuf_printf(
        &text, "buying does not pay: of %d machine%s for sale none saves its price in %g years",
        advice->compared, gd_cost_plural(advice->compared), table->terms.life_years.value);
  else
    gd_strbuf_printf(&text, "buying pays from %s run%s on: %s for %s, %s days each",
                     gd_format_number(a, sizeof a, advice->buy_runs, 0),
                     gd_cost_plural(advice->buy_runs), buy->machine->name,
                     gd_show_usd(b, sizeof b, buy->hardware_usd),
                     gd_show_days(c, sizeof c, buy->time.days));
  if (buy)
    gd_strbuf_printf(&text, ", against the cheapest rent of %s a run",
                     gd_show_usd(b, sizeof b, advice->rent->rent_usd));
  append_break_even(&text, advice->option, true);
  gd_show_item_buffer(cli, "buy", &text);
}

/* What is paid for: the rent, with the range that follows from that of the days, or the machine. */
static void append_cost(struct gd_cli *cli, const struct gd_money_table *table,
                        const struct gd_money_advice *advice) {
  const struct gd_money_option *option = advice->option;
  const struct gd_money_range range = gd_money_rent_range(option);
  char a[2 * GD_SHOW_TEXT], b[2 * GD_SHOW_TEXT], c[2 * GD_SHOW_TEXT];
  struct gd_strbuf text = {0};
  if (option->owned) {
    gd_strbuf_printf(&text, "%s of electricity; nothing to buy or to rent (--own)",
                     gd_show_usd(a, sizeof a, option->energy_usd));
  } else if (advice->rented) {
    gd_strbuf_printf(&text, "rent %s", gd_show_usd(a, sizeof a, option->rent_usd));
    if (range.high > range.low)
      gd_strbuf_printf(&text, " (%s - %s)", gd_show_usd(b, sizeof b, range.low),
                       gd_show_usd(c, sizeof c, range.high));
    gd_strbuf_printf(&text, ", %s a GPU-hour (%s)",
                     gd_show_usd(a, sizeof a, option->rent_usd_per_hour / option->machine->count),
                     gd_show_provider(table, option));
  } else {
    gd_strbuf_printf(&text, "buy it for %s, %s of its %g years for this run, %s of electricity",
                     gd_show_usd(a, sizeof a, option->hardware_usd),
                     gd_show_usd(b, sizeof b, option->experiment_usd),
                     table->terms.life_years.value, gd_show_usd(c, sizeof c, option->energy_usd));
    if (isfinite(option->rent_usd))
      gd_strbuf_printf(&text, "; renting as much: %s", gd_show_usd(a, sizeof a, option->rent_usd));
    append_break_even(&text, option, false);
  }
  gd_show_item_buffer(cli, "cost", &text);
}

static void append_energy(struct gd_cli *cli, const struct gd_money_table *table,
                          const struct gd_money_option *option, bool rented) {
  char a[GD_SHOW_TEXT], b[2 * GD_SHOW_TEXT], c[GD_SHOW_TEXT];
  const char *how;
  double gpu_w = gd_money_gpu_w(&table->terms, option, &how);
  gd_show_item(cli, "energy",
               gd_show_cell(cli, "%s kWh (%s%s), %s kg of CO2; %.0f W a GPU, %s",
                            gd_format_digits(a, sizeof a, option->energy_kwh, 3),
                            gd_show_usd(b, sizeof b, option->energy_usd),
                            rented ? ", part of the rent" : "",
                            gd_format_digits(c, sizeof c, option->co2_kg, 3), gpu_w, how));
}

/* What shows the same GPUs in detail. */
static void append_next(struct gd_cli *cli, const struct gd_money_option *option) {
  const char *stack = cli->options.stack;
  char recipe[GD_CLI_RECIPE_TEXT];
  /* What was named may be a file: by its own name it is not known again. */
  const char *gpu = cli->options.n_gpus == 1 ? cli->options.gpus[0].name : option->gpu->name;
  const int n = option->machine->count;
  const char *count = strchr(gpu, '/') ? gd_show_cell(cli, "%s --count %d", gpu, n)
                                       : gd_show_cell(cli, "%dx%s", n, gpu);
  gd_cli_recipe_options(cli, recipe, sizeof recipe);
  const char *of = cli->n_arguments > 0
                       ? gd_show_argument(cli, cli->arguments[0])
                       : gd_show_cell(cli, "--params %lld", (long long)cli->options.params);
  gd_show_item_command(cli, "next",
                       gd_show_cell(cli, "gpudays plan %s%s --gpu %s%s%s", of, recipe,
                                    count ? count : "", stack ? " --stack " : "",
                                    stack ? stack : ""));
}

static void append_trust(struct gd_cli *cli, const struct gd_time *time) {
  struct gd_strbuf text = {0};
  const enum gd_physics physics = gd_physics_of(time->share);
  if (time->times == GD_TIMES_PREDICTED)
    gd_strbuf_printf(&text, "within about %.2gx, 9 times out of 10; predicted, not measured: ",
                     time->days_high / time->days);
  /* What follows the first colon is how it was judged, which the last lines say in full. */
  gd_strbuf_printf(&text, "%s%s%.*s", time->method, time->method[0] ? ", " : "",
                   (int)strcspn(time->source, ":"), time->source);
  if (physics != GD_PHYSICS_FINE)
    gd_strbuf_printf(&text, "; these days need %.0f %% of the GPUs' peak: %s", 100 * time->share,
                     physics == GD_PHYSICS_IMPOSSIBLE ? "impossible" : "doubtful");
  gd_show_item_buffer(cli, "trust", &text);
}

/* Between nodes; what is bought or rented may have another. */
static void append_network(struct gd_cli *cli, const struct gd_time *time) {
  if (!time->network.name)
    return;
  struct gd_strbuf text = {0};
  gd_strbuf_printf(&text, "%d nodes, joined by %d x %s each%s%s%s", time->network.nodes,
                   time->network.cards, time->network.name, time->network.like ? ", as in " : "",
                   time->network.like ? time->network.like : "",
                   time->network.assumed
                       ? ": assumed, and in no price; plan --network predicts for another"
                       : ", which no price has");
  gd_show_item_buffer(cli, "network", &text);
}

/* The answer, before everything that it rests on. */
static void append_advice(struct gd_cli *cli, const struct gd_money_table *table,
                          const struct gd_money_limits *limits,
                          const struct gd_money_advice *advice) {
  const struct gd_money_option *option = advice->option;
  const struct gd_time *time = &option->time;
  const bool paper = time->times == GD_TIMES_PAPER;
  char a[2 * GD_SHOW_TEXT], way[GD_SHOW_WAY];
  struct gd_strbuf text = {0};
  gd_strbuf_printf(&text, "%s: %s for one run, ", gd_show_way(way, option, advice->rented),
                   gd_show_usd(a, sizeof a, advice->usd));
  append_reason(&text, limits, advice);
  gd_show_item_buffer(cli, "answer", &text);
  gd_show_item_time(cli, NULL, time->days, paper ? time->days : time->days_low,
                    paper ? time->days : time->days_high, &option->calendar);
  gd_show_item_calendar(cli, &table->terms.queue, &option->calendar);
  gd_show_item_deadline(cli, &option->calendar, limits->days);
  append_cost(cli, table, advice);
  if (advice->rented)
    append_purchase(cli, table, advice);
  append_ends(cli, limits, advice);
  append_energy(cli, table, option, advice->rented);
  append_network(cli, time);
  append_next(cli, option);
  append_trust(cli, time);
  gd_strbuf_append(&cli->out, "\n");
}

static void append_chosen(struct gd_cli *cli, const struct gd_money_table *table,
                          const struct gd_money_limits *limits,
                          const struct gd_money_answer *answer) {
  const struct gd_money_option *option = answer->chosen;
  const int count = answer->chosen_of;
  char a[2 * GD_SHOW_TEXT], b[GD_SHOW_TEXT], c[2 * GD_SHOW_TEXT], text[GD_SHOW_WAY];
  gd_strbuf_append(&cli->out, "\nto buy: ");
  if (!gd_money_within(option, limits))
    gd_strbuf_printf(&cli->out,
                     "nothing within %s; past the deadline: ", gd_show_limits(text, limits));
  gd_show_bold(cli, option->machine->name);
  gd_strbuf_printf(&cli->out, " for %s, %s days: ", gd_show_usd(a, sizeof a, option->hardware_usd),
                   gd_show_days(b, sizeof b, option->time.days));
  if (limits->budget_usd > 0)
    gd_strbuf_printf(&cli->out, "the fastest of %d within %s\n", count,
                     gd_show_usd(c, sizeof c, limits->budget_usd));
  else if (limits->days > 0)
    gd_strbuf_printf(&cli->out, "the cheapest of %d within %s\n", count,
                     gd_show_limits(text, limits));
  else
    gd_strbuf_printf(&cli->out, "the cheapest run of %d, energy included, if it is never idle\n",
                     count);
  gd_show_option_lines(cli, table, option);
}

/* What budget and deadline together allow, bought or rented. */
static void append_reach(struct gd_cli *cli, const struct gd_money_table *table,
                         const struct gd_money_reach *reach, bool rented) {
  char a[2 * GD_SHOW_TEXT], b[GD_SHOW_TEXT], c[GD_SHOW_TEXT], d[GD_SHOW_TEXT], thing[GD_SHOW_WAY];
  if (!reach->option)
    return;
  gd_show_item(cli, rented ? "rented" : "bought",
               gd_show_cell(cli, "%s, %s, %s days: %s %s, %s %% of the recipe",
                            gd_show_thing(thing, reach->option, rented),
                            gd_show_usd(a, sizeof a, reach->usd),
                            gd_show_days(b, sizeof b, reach->days),
                            gd_show_power(c, sizeof c, reach->share * table->work.tokens),
                            table->model->family->images ? "images" : "tokens",
                            gd_format_digits(d, sizeof d, 100 * reach->share, 3)));
}

static void append_notes(struct gd_cli *cli, const struct gd_money_table *table, int unknown) {
  gd_strbuf_append(&cli->out, "\n");
  gd_show_paragraph(
      &cli->out, 0,
      "COST/RUN: the run's share of the hardware's life. RENT: of the run. BREAK-EVEN: months of "
      "use after which buying is cheaper than renting. PARETO: no machine is cheaper to buy (buy), "
      "or has a cheaper run (run), and is as fast.");
  if (unknown > 0)
    gd_strbuf_printf(&cli->out,
                     "note: %d more machines are left out: there are no %s days of them\n", unknown,
                     gd_times_name(table->times));
  if (table->left_out[0])
    gd_strbuf_printf(&cli->out, "note: also measured, on what the catalogue does not have: %s\n",
                     table->left_out);
}

/* --- one model ----------------------------------------------------------------------------- */

/* Where nothing asked about has a price: how long the fastest takes, and its energy. */
static void append_unpriced(struct gd_cli *cli, const struct gd_money_table *table) {
  const struct gd_money_option *fastest = NULL;
  char thing[GD_SHOW_WAY];
  for (int i = 0; i < table->count; i++) {
    const struct gd_money_option *option = &table->options[i];
    if (option->time.state == GD_TIME_KNOWN && (!fastest || option->time.days < fastest->time.days))
      fastest = option;
  }
  GD_ASSERT(fastest); /* some machine has days */
  gd_show_item(cli, "answer",
               gd_show_cell(cli,
                            "%s; no price is known of these GPUs (--usd-per-hour to rent, "
                            "--gpu-usd to buy)",
                            gd_show_thing(thing, fastest, true)));
  gd_show_item_time(cli, NULL, fastest->time.days, fastest->time.days_low, fastest->time.days_high,
                    &fastest->calendar);
  gd_show_item_calendar(cli, &table->terms.queue, &fastest->calendar);
  append_energy(cli, table, fastest, false);
  append_next(cli, fastest);
  append_trust(cli, &fastest->time);
  gd_strbuf_append(&cli->out, "\n");
}

static bool at_risk(enum gd_deadline limit) {
  return limit == GD_DEADLINE_AT_RISK;
}

/* A limit that lies within the interval, of days or of the rent that they make. */
static void append_at_risk(struct gd_cli *cli, const struct gd_money_limits *limits,
                           const struct gd_money_way *way) {
  char whole[2 * GD_SHOW_WAY], a[2 * GD_SHOW_TEXT], b[2 * GD_SHOW_TEXT];
  const struct gd_money_option *option = way->option;
  const struct gd_money_range usd = gd_money_rent_range(option);
  struct gd_strbuf text = {0};
  gd_strbuf_append(&text, gd_show_whole_way(whole, way));
  if (at_risk(gd_money_deadline(option, limits->days)))
    gd_strbuf_printf(&text, ": the deadline lies within the interval, %s - %s days",
                     gd_show_days(a, sizeof a, option->calendar.days_low),
                     gd_show_days(b, sizeof b, option->calendar.days_high));
  if (at_risk(gd_money_budget(option, way->rented, limits->budget_usd)))
    gd_strbuf_printf(&text, ": the budget lies within the interval of its rent, %s - %s",
                     gd_show_usd(a, sizeof a, usd.low), gd_show_usd(b, sizeof b, usd.high));
  gd_show_item_buffer(cli, "at risk", &text);
}

/* Nothing is likely to be within the limits: what may be, and how much of the run is. */
static void append_none(struct gd_cli *cli, const struct gd_money_table *table,
                        const struct gd_money_limits *limits,
                        const struct gd_money_answer *answer) {
  const struct gd_money_way *way = &answer->at_risk;
  char text[GD_SHOW_WAY], none[64];
  const bool part = answer->reach_bought.option || answer->reach_rented.option;
  gd_show_item(cli, "answer",
               gd_show_cell(cli, "no: %s %s it within %s%s%s", name_none(table, answer, none),
                            trains(limits), gd_show_limits(text, limits),
                            table->terms.owned ? "" : ", bought or rented",
                            part ? "; a part of the run is:" : ""));
  append_reach(cli, table, &answer->reach_bought, false);
  append_reach(cli, table, &answer->reach_rented, true);
  if (way->option)
    append_at_risk(cli, limits, way);
  gd_strbuf_append(&cli->out, "\n");
}

/* What the advice would be then, a line each. */
static enum gd_status append_variants(struct gd_cli *cli, struct gd_money_table *table,
                                      const struct gd_money_limits *limits, struct gd_error *err) {
  gd_strbuf_append(&cli->out, "\nat other prices\n");
  for (int i = 0; i < gd_money_variant_count; i++) {
    struct gd_money_advice advice;
    char a[2 * GD_SHOW_TEXT], b[GD_SHOW_TEXT], c[GD_SHOW_TEXT], way[GD_SHOW_WAY];
    GD_TRY(gd_money_advise_scaled(table, limits, &gd_money_variants[i].scales, &advice, err));
    if (!advice.option) {
      gd_strbuf_printf(&cli->out, "  %s: nothing is within the limits\n",
                       gd_money_variants[i].name);
      continue;
    }
    gd_strbuf_printf(&cli->out, "  %s: %s, %s for %s days", gd_money_variants[i].name,
                     gd_show_way(way, advice.option, advice.rented),
                     gd_show_usd(a, sizeof a, advice.usd),
                     gd_show_days(b, sizeof b, advice.option->time.days));
    if (advice.buy)
      gd_strbuf_printf(&cli->out, "; buying pays from %s run%s on",
                       gd_format_number(c, sizeof c, advice.buy_runs, 0),
                       gd_cost_plural(advice.buy_runs));
    gd_strbuf_append(&cli->out, "\n");
  }
  return GD_OK;
}

static enum gd_status append_answer(struct gd_cli *cli, const struct gd_money_asked *asked,
                                    struct gd_money_table *table,
                                    const struct gd_money_answer *answer, struct gd_error *err) {
  const struct gd_money_limits limits = gd_cost_limits(cli);
  const struct gd_money_option *option = answer->advice.option;
  struct gd_show_object rows;
  char a[2 * GD_SHOW_TEXT], b[GD_SHOW_TEXT], thing[GD_SHOW_WAY];
  if (cli->options.json)
    return gd_cost_model_json(cli, asked, table, answer, err);
  if (cli->options.csv) {
    gd_cost_rows(&rows, table, limits.days);
    return gd_show_csv(&cli->out, &rows, err);
  }
  if (cli->options.text) {
    if (answer->advice.option)
      gd_money_paragraph(table, &answer->advice, &cli->out);
    return GD_OK;
  }
  append_title(cli, table);
  if (answer->advice.option)
    append_advice(cli, table, &limits, &answer->advice);
  else if (!answer->near.way.option)
    append_unpriced(cli, table);
  else
    append_none(cli, table, &limits, answer);
  GD_TRY(gd_show_options(cli, table, limits.days, err));
  if (option && option != answer->chosen) {
    gd_strbuf_append(&cli->out, "\n");
    gd_show_bold(cli, gd_show_way(thing, option, answer->advice.rented));
    gd_strbuf_append(&cli->out, "\n");
    gd_show_time_lines(cli, &option->time);
  }
  if (answer->chosen && !table->terms.owned)
    append_chosen(cli, table, &limits, answer);
  if (answer->possible && answer->possible != answer->chosen)
    gd_strbuf_printf(&cli->out, "of those that physics allows: %s for %s, %s days\n",
                     answer->possible->machine->name,
                     gd_show_usd(a, sizeof a, answer->possible->hardware_usd),
                     gd_show_days(b, sizeof b, answer->possible->time.days));
  if (answer->rented && answer->rented != answer->advice.rent)
    gd_strbuf_printf(&cli->out, "cheapest to rent: %s, %s for %s days\n",
                     gd_show_thing(thing, answer->rented, true),
                     gd_show_usd(a, sizeof a, answer->rented->rent_usd),
                     gd_show_days(b, sizeof b, answer->rented->time.days));
  if (answer->advice.option && (answer->reach_bought.option || answer->reach_rented.option)) {
    gd_strbuf_append(&cli->out, "\nin all of the days, or of the dollars\n");
    append_reach(cli, table, &answer->reach_bought, false);
    append_reach(cli, table, &answer->reach_rented, true);
  }
  append_notes(cli, table, answer->unknown);
  if ((answer->advice.option || answer->near.way.option) && !table->terms.owned)
    GD_TRY(append_variants(cli, table, &limits, err));
  gd_show_terms(cli, table);
  return GD_OK;
}

enum gd_status gd_cost_model(struct gd_cli *cli, struct gd_money_asked *asked,
                             struct gd_money_table *table, struct gd_error *err) {
  const struct gd_money_limits limits = gd_cost_limits(cli);
  struct gd_money_answer answer;
  gd_cost_label_progress(asked->progress_user, asked->model->name, 0, 0);
  GD_TRY(gd_money_table_make(asked, table, err));
  gd_money_answer(table, &limits, &answer);
  if (!answer.known)
    return no_days(table, answer.infeasible, err);
  GD_TRY(append_answer(cli, asked, table, &answer, err));
  if (!answer.advice.option)
    return none_within(table, &limits, &answer, err);
  return GD_OK;
}
