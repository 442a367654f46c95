/*
 * `gpudays cost [MODEL]`: machines compared for one model, or presets for one budget and deadline.
 * The arithmetic is src/money's, how options look is show_cost.c's.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/progress.h"
#include "cli/show_cost.h"
#include "money/answer.h"
#include "report/stack_days.h"
#include "store/store_best.h"

/* What a question needs; zeroed before, freed after. */
struct sources {
  struct gd_hw hw;
  struct gd_paper paper;
  struct gd_store *store;
  struct gd_stack_days days; /* with --stack */
  struct gd_progress progress;
};

static void sources_deinit(struct sources *sources) {
  gd_hw_deinit(&sources->hw);
  gd_paper_deinit(&sources->paper);
  gd_store_close(sources->store);
  gd_stack_days_close(&sources->days);
}

/* --- what was asked ------------------------------------------------------------------------ */

/* What the user says instead of what is assumed. */
static enum gd_status set_terms(const struct gd_cli_options *options, struct gd_money_asked *asked,
                                struct gd_error *err) {
  const struct {
    const struct gd_cli_number *number;
    enum gd_money_term term;
    const char *name;
  } given[] = {{&options->kwh_usd, GD_MONEY_USD_PER_KWH, "--kwh-usd"},
               {&options->pue, GD_MONEY_PUE, "--pue"},
               {&options->utilisation, GD_MONEY_UTILISATION, "--utilisation"},
               {&options->co2, GD_MONEY_G_CO2_PER_KWH, "--co2"},
               {&options->mfu, GD_MONEY_MFU, "--mfu"}};
  for (size_t i = 0; i < sizeof given / sizeof *given; i++)
    if (given[i].number->given)
      gd_money_terms_set(&asked->terms, given[i].term, given[i].number->value, given[i].name);
  if (!options->rent)
    return GD_OK;
  return gd_money_terms_set_rent(&asked->terms, options->rent, &asked->provider, err);
}

static enum gd_status ask(const struct gd_cli *cli, struct sources *sources,
                          struct gd_money_asked *asked, struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  GD_TRY(gd_hw_load(&sources->hw, err));
  GD_TRY(gd_paper_load(&sources->paper, err));
  if (options->stack)
    GD_TRY(gd_stack_days_open(options->stack, &sources->days, err));
  else if (options->times == GD_TIMES_AUTO || options->times == GD_TIMES_MEASURED)
    GD_TRY(gd_store_open(options->store, &sources->store, err));
  *asked = (struct gd_money_asked){.hw = &sources->hw,
                                   .paper = &sources->paper,
                                   .store = sources->store,
                                   .times = options->stack ? GD_TIMES_PREDICTED : options->times,
                                   .stack = options->stack ? &sources->days.stack : NULL,
                                   .machines = options->machine,
                                   .progress = gd_progress_report,
                                   .progress_user = &sources->progress};
  sources->progress.on = cli->progress;
  GD_TRY(gd_money_terms_default(&sources->hw, options->energy, &asked->terms, err));
  return set_terms(options, asked, err);
}

static struct gd_money_limits limits_of(const struct gd_cli *cli) {
  return (struct gd_money_limits){.budget_usd = cli->options.budget_usd.value,
                                  .days = cli->options.days.value};
}

static enum gd_status check_options(const struct gd_cli *cli, struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  bool both = options->budget_usd.given && options->days.given;
  if (cli->n_arguments == 0 && options->text)
    return gd_fail(err, GD_BAD_INPUT, "--text needs a model: gpudays cost MODEL --text");
  if (cli->n_arguments == 0 && !both)
    return gd_fail(err, GD_BAD_INPUT,
                   "cost needs a model, such as 'gpudays cost pythia-1b', or --budget and --days "
                   "together: which presets they allow");
  if (cli->n_arguments == 0 &&
      (options->seq || options->batch || options->steps || options->tokens))
    return gd_fail(err, GD_BAD_INPUT,
                   "--seq, --batch, --steps and --tokens change a model's recipe; name the model");
  if (options->mfu.given && options->times != GD_TIMES_ANALYTIC)
    return gd_fail(
        err, GD_BAD_INPUT,
        "--mfu %g is the share of the peak that --times analytic assumes, and the days of "
        "--times %s do not rest on it; add --times analytic, or leave --mfu out",
        options->mfu.value, gd_times_name(options->times));
  if (options->stack && options->times != GD_TIMES_AUTO && options->times != GD_TIMES_PREDICTED)
    return gd_fail(err, GD_BAD_INPUT,
                   "--stack %s has predicted days alone, and --times %s asks for others; leave one "
                   "of them out",
                   options->stack, gd_times_name(options->times));
  if (options->text && options->csv)
    return gd_fail(err, GD_BAD_INPUT, "--text and --csv exclude each other; --json has both");
  return GD_OK;
}

static const char *plural(double count) {
  return fabs(count - 1) < 1e-9 ? "" : "s";
}

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

/* Nothing is within the limits, bought or rented: what is nearest to them. */
static enum gd_status none_within(const struct gd_money_table *table,
                                  const struct gd_money_limits *limits,
                                  const struct gd_money_answer *answer, struct gd_error *err) {
  const bool money = limits->budget_usd > 0, both = money && limits->days > 0;
  const struct gd_money_near *near = &answer->near;
  char a[2 * GD_SHOW_TEXT], b[GD_SHOW_TEXT], asked[GD_SHOW_WAY], more[2 * GD_SHOW_WAY] = "";
  char way[2 * GD_SHOW_WAY], none[64];
  if (!near->way.option)
    return no_days(table, answer->infeasible, err);
  if (near->buy)
    snprintf(more, sizeof more, "; to buy: %.40s for %s, %s days", near->buy->machine->name,
             gd_show_usd(a, sizeof a, near->buy->hardware_usd),
             gd_show_days(b, sizeof b, near->buy->time.days));
  return gd_fail(err, GD_MISMATCH, "%s trains %s %s %s, bought or rented; the %s: %s%s",
                 name_none(table, answer, none), table->model->name,
                 money && !both ? "for" : "within", gd_show_limits(asked, limits),
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
}

/* Why that way: "the least of 98 ways", "the fastest of 12 ways within $500". */
static void append_reason(struct gd_cli *cli, const struct gd_money_limits *limits,
                          const struct gd_money_advice *advice) {
  const bool budget = limits->budget_usd > 0;
  char text[GD_SHOW_WAY];
  if (advice->ways == 1)
    gd_strbuf_append(&cli->out, "the only way to buy or rent");
  else
    gd_strbuf_printf(&cli->out, "%sthe %s of %d ways to buy or rent",
                     advice->near ? "within 5 % of " : "", budget ? "fastest" : "least",
                     advice->ways);
  if (budget || limits->days > 0)
    gd_strbuf_printf(&cli->out, " within %s", gd_show_limits(text, limits));
  if (advice->near && budget)
    gd_strbuf_printf(&cli->out, ", for %.0f %% of its dollars",
                     100 * advice->usd / advice->fastest.usd);
  else if (advice->near)
    gd_strbuf_printf(&cli->out, ", and %.3g times as fast",
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
  gd_strbuf_printf(&cli->out, "cheapest: %s; fastest%s: %s\n",
                   gd_show_whole_way(a, &advice->cheapest),
                   limits->budget_usd > 0 ? "" : " for up to twice that",
                   gd_show_whole_way(b, &advice->fastest));
}

/* From how many runs on a purchase is cheaper than the cheapest rent. */
static void append_purchase(struct gd_cli *cli, const struct gd_money_table *table,
                            const struct gd_money_advice *advice) {
  const struct gd_money_option *buy = advice->buy;
  char a[GD_SHOW_TEXT], b[2 * GD_SHOW_TEXT], c[GD_SHOW_TEXT];
  if (advice->for_sale == 0)
    gd_strbuf_append(&cli->out, "buying was not compared: no machine for sale has days here\n");
  else if (advice->compared == 0)
    gd_strbuf_printf(&cli->out,
                     "buying was not compared: none of %d machine%s for sale is in time\n",
                     advice->for_sale, plural(advice->for_sale));
  else if (!buy)
    gd_strbuf_printf(&cli->out,
                     "buying does not pay: of %d machine%s for sale none saves its price in %g "
                     "years\n",
                     advice->compared, plural(advice->compared), table->terms.life_years.value);
  if (!buy)
    return;
  gd_strbuf_printf(&cli->out, "buying pays from %s run%s on: %s for %s, %s days each",
                   gd_format_number(a, sizeof a, advice->buy_runs, 0), plural(advice->buy_runs),
                   buy->machine->name, gd_show_usd(b, sizeof b, buy->hardware_usd),
                   gd_show_days(c, sizeof c, buy->time.days));
  gd_strbuf_printf(&cli->out, ", against the cheapest rent of %s a run\n",
                   gd_show_usd(b, sizeof b, advice->rent->rent_usd));
}

/* The answer, before everything that it rests on. */
static void append_advice(struct gd_cli *cli, const struct gd_money_table *table,
                          const struct gd_money_limits *limits,
                          const struct gd_money_advice *advice) {
  const struct gd_money_option *option = advice->option;
  char a[2 * GD_SHOW_TEXT], b[GD_SHOW_TEXT], way[GD_SHOW_WAY];
  if (!option)
    return;
  gd_show_bold(cli, gd_show_way(way, option, advice->rented));
  gd_strbuf_printf(&cli->out, ": %s for one run of %s days, ",
                   gd_show_usd(a, sizeof a, advice->usd),
                   gd_show_days(b, sizeof b, option->time.days));
  append_reason(cli, limits, advice);
  gd_strbuf_append(&cli->out, "\n");
  append_ends(cli, limits, advice);
  if (advice->rented) {
    gd_strbuf_printf(&cli->out, "%s a GPU-hour (%s); ",
                     gd_show_usd(a, sizeof a, option->rent_usd_per_hour / option->machine->count),
                     gd_show_provider(table, option));
    append_purchase(cli, table, advice);
  }
  gd_show_time_lines(cli, &option->time);
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
  gd_strbuf_printf(&cli->out, "%s: %s, %s, %s days: %s %s, %s %% of the recipe\n",
                   rented ? "rented" : "bought", gd_show_thing(thing, reach->option, rented),
                   gd_show_usd(a, sizeof a, reach->usd), gd_show_days(b, sizeof b, reach->days),
                   gd_show_power(c, sizeof c, reach->share * table->work.tokens),
                   table->model->family->images ? "images" : "tokens",
                   gd_format_digits(d, sizeof d, 100 * reach->share, 3));
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

/* --- one model, for programs --------------------------------------------------------------- */

static void set_number(struct gd_show_object *to, const char *key,
                       const struct gd_cli_number *number) {
  gd_show_set_real(to, key, number->given ? number->value : (double)NAN);
}

static void set_reach(struct gd_show_object *to, const char *key,
                      const struct gd_money_table *table, const struct gd_money_reach *reach) {
  struct gd_show_object object;
  if (!reach->option) {
    gd_show_set_null(to, key);
    return;
  }
  gd_show_begin(&object);
  gd_show_set_text(&object, "machine", reach->option->machine->name);
  gd_show_set_real(&object, "usd", reach->usd);
  gd_show_set_real(&object, "days", reach->days);
  gd_show_set_real(&object, "share", reach->share);
  gd_show_set_real(&object, "tokens", reach->share * table->work.tokens);
  gd_show_set_object(to, key, &object);
}

static void set_way(struct gd_show_object *object, const char *end,
                    const struct gd_money_way *way) {
  char key[64];
  snprintf(key, sizeof key, "%s_way", end);
  gd_show_set_text(object, key, way->rented ? "rent" : "buy");
  snprintf(key, sizeof key, "%s_machine", end);
  gd_show_set_text(object, key, way->option->machine->name);
  snprintf(key, sizeof key, "%s_usd", end);
  gd_show_set_real(object, key, way->usd);
  snprintf(key, sizeof key, "%s_days", end);
  gd_show_set_real(object, key, way->option->time.days);
}

static void set_advice(struct gd_show_object *object, const struct gd_money_advice *advice) {
  const struct gd_money_option *buy = advice->buy;
  gd_show_begin(object);
  gd_show_set_text(object, "way", advice->rented ? "rent" : "buy");
  gd_show_set_text(object, "machine", advice->option->machine->name);
  gd_show_set_text(object, "gpu", advice->option->gpu->name);
  gd_show_set_int(object, "count", advice->option->machine->count);
  gd_show_set_real(object, "usd", advice->usd);
  gd_show_set_real(object, "days", advice->option->time.days);
  gd_show_set_int(object, "ways", advice->ways);
  gd_show_set_real(object, "buying_pays_runs", buy ? advice->buy_runs : (double)NAN);
  gd_show_set_text(object, "buying_pays_machine", buy ? buy->machine->name : "");
  gd_show_set_real(object, "buying_against_usd",
                   advice->rent ? advice->rent->rent_usd : (double)NAN);
  set_way(object, "cheapest", &advice->cheapest);
  set_way(object, "fastest", &advice->fastest);
}

static void set_rows(struct gd_show_object *rows, const struct gd_money_table *table) {
  *rows = (struct gd_show_object){.object = json_array()};
  for (int i = 0; i < table->count; i++) {
    struct gd_show_object object;
    gd_show_option(&object, table, &table->options[i]);
    gd_show_append(rows, &object);
  }
}

/* --- at other prices ----------------------------------------------------------------------- */

static enum gd_status set_variants(struct gd_show_object *root, struct gd_money_table *table,
                                   const struct gd_money_limits *limits, struct gd_error *err) {
  struct gd_show_object rows = {.object = json_array()}, object;
  for (int i = 0; i < gd_money_variant_count; i++) {
    struct gd_money_advice advice;
    GD_TRY(gd_money_advise_scaled(table, limits, &gd_money_variants[i].scales, &advice, err));
    if (!advice.option)
      continue;
    set_advice(&object, &advice);
    gd_show_set_text(&object, "at", gd_money_variants[i].name);
    gd_show_append(&rows, &object);
  }
  gd_show_set_object(root, "sensitivity", &rows);
  return GD_OK;
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
                       gd_format_number(c, sizeof c, advice.buy_runs, 0), plural(advice.buy_runs));
    gd_strbuf_append(&cli->out, "\n");
  }
  return GD_OK;
}

static enum gd_status append_json(struct gd_cli *cli, struct gd_money_table *table,
                                  const struct gd_money_answer *answer, struct gd_error *err) {
  const struct gd_money_limits limits = limits_of(cli);
  struct gd_show_object root, rows, object;
  struct gd_strbuf text = {0};
  gd_show_begin(&root);
  gd_show_set_text(&root, "model", table->model->name);
  gd_show_set_text(&root, "stack", table->stack);
  gd_show_set_int(&root, "parameters", table->work.parameters);
  gd_show_set_real(&root, "tokens", table->work.tokens);
  gd_show_set_real(&root, "train_flops", table->work.train_flops);
  set_number(&root, "budget_usd", &cli->options.budget_usd);
  set_number(&root, "days_limit", &cli->options.days);
  gd_show_set_terms(&root, "terms", &table->terms);
  set_rows(&rows, table);
  gd_show_set_object(&root, "options", &rows);
  if (answer->advice.option) {
    set_advice(&object, &answer->advice);
    gd_show_set_object(&root, "advice", &object);
  } else {
    gd_show_set_null(&root, "advice");
  }
  GD_TRY(set_variants(&root, table, &limits, err));
  gd_show_set_option(&root, "chosen", table, answer->chosen);
  gd_show_set_option(&root, "chosen_possible", table, answer->possible);
  gd_show_set_option(&root, "chosen_rented", table, answer->rented);
  set_reach(&root, "reach_bought", table, &answer->reach_bought);
  set_reach(&root, "reach_rented", table, &answer->reach_rented);
  if (cli->options.text && answer->advice.option) {
    gd_money_paragraph(table, &answer->advice, &text);
    gd_show_set_text(&root, "text", text.text ? text.text : "");
    gd_strbuf_deinit(&text);
  }
  return gd_show_json(&cli->out, &root, err);
}

/* --- one model ----------------------------------------------------------------------------- */

/* "pythia-1b", or one of several: "pythia-1b (3 of 40)". */
static void label_progress(void *user, const char *name, int number, int count) {
  struct gd_progress *progress = user;
  if (count > 1)
    snprintf(progress->label, sizeof progress->label, "%.80s (%d of %d)", name, number, count);
  else
    snprintf(progress->label, sizeof progress->label, "%.80s", name);
}

/* Nothing is within the limits: how much of the run is. */
static void append_none(struct gd_cli *cli, const struct gd_money_table *table,
                        const struct gd_money_limits *limits,
                        const struct gd_money_answer *answer) {
  char text[GD_SHOW_WAY], none[64];
  const bool part = answer->reach_bought.option || answer->reach_rented.option;
  gd_strbuf_printf(&cli->out, "%s trains it within %s, bought or rented%s\n",
                   name_none(table, answer, none), gd_show_limits(text, limits),
                   part ? "; a part of the run is:" : "");
  append_reach(cli, table, &answer->reach_bought, false);
  append_reach(cli, table, &answer->reach_rented, true);
  gd_strbuf_append(&cli->out, "\n");
}

static enum gd_status append_answer(struct gd_cli *cli, struct gd_money_table *table,
                                    const struct gd_money_answer *answer, struct gd_error *err) {
  const struct gd_money_limits limits = limits_of(cli);
  struct gd_show_object rows;
  char a[2 * GD_SHOW_TEXT], b[GD_SHOW_TEXT], thing[GD_SHOW_WAY];
  if (cli->options.json)
    return append_json(cli, table, answer, err);
  if (cli->options.csv) {
    set_rows(&rows, table);
    return gd_show_csv(&cli->out, &rows, err);
  }
  if (cli->options.text) {
    if (answer->advice.option)
      gd_money_paragraph(table, &answer->advice, &cli->out);
    return GD_OK;
  }
  append_title(cli, table);
  append_advice(cli, table, &limits, &answer->advice);
  if (!answer->advice.option)
    append_none(cli, table, &limits, answer);
  GD_TRY(gd_show_options(cli, table, err));
  if (answer->chosen)
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
    gd_strbuf_append(&cli->out, "\n");
    append_reach(cli, table, &answer->reach_bought, false);
    append_reach(cli, table, &answer->reach_rented, true);
  }
  append_notes(cli, table, answer->unknown);
  GD_TRY(append_variants(cli, table, &limits, err));
  gd_show_terms(cli, table);
  return GD_OK;
}

static enum gd_status answer_model(struct gd_cli *cli, struct gd_money_asked *asked,
                                   struct gd_money_table *table, struct gd_error *err) {
  const struct gd_money_limits limits = limits_of(cli);
  struct gd_money_answer answer;
  label_progress(asked->progress_user, asked->model->name, 0, 0);
  GD_TRY(gd_money_table_make(asked, table, err));
  gd_money_answer(table, &limits, &answer);
  if (!answer.known)
    return no_days(table, answer.infeasible, err);
  GD_TRY(append_answer(cli, table, &answer, err));
  if (!answer.advice.option)
    return none_within(table, &limits, &answer, err);
  return GD_OK;
}

/* --- all presets --------------------------------------------------------------------------- */

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

static enum gd_status append_presets(struct gd_cli *cli, const struct gd_money_presets *presets,
                                     struct gd_error *err) {
  const int count = presets->count;
  static const struct gd_show_column columns[] = {{"MODEL", false, 0},     {"PARAMETERS", true, 2},
                                                  {"FLOPS", true, 3},      {"IF BOUGHT", false, 0},
                                                  {"IF RENTED", false, 0}, {"DAYS FROM", false, 1}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  char text[GD_SHOW_TEXT];
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
  gd_show_paragraph(&cli->out, 0,
                    "IF BOUGHT, IF RENTED: the fastest within both limits, as 'gpudays cost MODEL' "
                    "with them takes it; the dollars are of the machine, or of the run's rent. "
                    "Presets are in the order of FLOPS.");
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
    gd_show_option(&object, &preset->table, preset->advice[i % 2].option);
    gd_show_set_text(&object, "way", i % 2 ? "rent" : "buy");
    gd_show_append(&rows, &object);
  }
  if (cli->options.csv)
    return gd_show_csv(&cli->out, &rows, err);
  gd_show_begin(&root);
  gd_show_set_text(&root, "stack", presets->count > 0 ? presets->list[0].table.stack : "own");
  set_number(&root, "budget_usd", &cli->options.budget_usd);
  set_number(&root, "days_limit", &cli->options.days);
  if (presets->count > 0)
    gd_show_set_terms(&root, "terms", &presets->list[0].table.terms);
  gd_show_set_object(&root, "options", &rows);
  gd_show_set_option(&root, "chosen", bought ? &bought->table : NULL,
                     bought ? bought->advice[0].option : NULL);
  gd_show_set_option(&root, "chosen_rented", rented ? &rented->table : NULL,
                     rented ? rented->advice[1].option : NULL);
  return gd_show_json(&cli->out, &root, err);
}

static enum gd_status show_presets(struct gd_cli *cli, const struct gd_money_presets *presets,
                                   struct gd_error *err) {
  const struct gd_money_limits limits = limits_of(cli);
  char a[2 * GD_SHOW_TEXT];
  GD_TRY(gd_cli_for_programs(cli) ? append_presets_json(cli, presets, err)
                                  : append_presets(cli, presets, err));
  if (!gd_money_presets_largest(presets, false) && !gd_money_presets_largest(presets, true))
    return gd_fail(err, GD_MISMATCH, "no preset can be trained for %s within %g day%s",
                   gd_show_usd(a, sizeof a, limits.budget_usd), limits.days, plural(limits.days));
  return GD_OK;
}

static enum gd_status answer_presets(struct gd_cli *cli, const struct gd_money_asked *asked,
                                     struct gd_error *err) {
  const struct gd_money_limits limits = limits_of(cli);
  struct gd_money_presets presets;
  enum gd_status status =
      gd_money_presets_make(asked, &limits, label_progress, asked->progress_user, &presets, err);
  if (status == GD_OK)
    status = show_presets(cli, &presets, err);
  gd_money_presets_deinit(&presets);
  return status;
}

enum gd_status gd_cmd_cost(struct gd_cli *cli, struct gd_error *err) {
  struct sources sources = {0};
  struct gd_money_asked asked = {0};
  struct gd_money_table table = {0};
  struct gd_model model;
  GD_TRY(check_options(cli, err));
  enum gd_status status = ask(cli, &sources, &asked, err);
  if (status == GD_OK && cli->n_arguments > 0) {
    status = gd_cli_load_model(cli, cli->arguments[0], &model, err);
    asked.model = &model;
    if (status == GD_OK)
      status = answer_model(cli, &asked, &table, err);
  } else if (status == GD_OK) {
    status = answer_presets(cli, &asked, err);
  }
  gd_progress_clear(&sources.progress);
  if (status == GD_OK && sources.store)
    gd_store_note_left_out(sources.store, &cli->notes);
  gd_money_table_deinit(&table);
  sources_deinit(&sources);
  return status;
}
