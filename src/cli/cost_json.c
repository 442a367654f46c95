/*
 * What `gpudays cost MODEL --json` prints; see cost.h.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cost.h"
#include "cli/plan_outline.h"
#include "cli/show_items.h"
#include "cli/show_model.h"
#include "train/checkpoint.h"

void gd_cost_set_number(struct gd_show_object *to, const char *key,
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
  gd_show_set_text(object, key, way->rented ? "rent" : way->option->owned ? "own" : "buy");
  snprintf(key, sizeof key, "%s_machine", end);
  gd_show_set_text(object, key, way->option->machine->name);
  snprintf(key, sizeof key, "%s_usd", end);
  gd_show_set_real(object, key, way->usd);
  snprintf(key, sizeof key, "%s_days", end);
  gd_show_set_real(object, key, way->option->time.days);
}

/* What may be in time, where nothing is likely to be. */
static void set_at_risk(struct gd_show_object *root, const struct gd_money_way *way,
                        const struct gd_money_limits *limits) {
  struct gd_show_object object;
  gd_show_begin(&object);
  gd_show_set_text(&object, "way", way->rented ? "rent" : way->option->owned ? "own" : "buy");
  gd_show_set_text(&object, "machine", way->option->machine->name);
  gd_show_set_real(&object, "usd", way->usd);
  gd_show_set_real(&object, "days", way->option->time.days);
  gd_show_calendar(&object, &way->option->calendar, limits->days);
  gd_show_set_limit(&object, "budget",
                    gd_money_budget(way->option, way->rented, limits->budget_usd));
  gd_show_set_object(root, "at_risk", &object);
}

static void set_advice(struct gd_show_object *object, const struct gd_money_advice *advice,
                       double limit_days) {
  const struct gd_money_option *buy = advice->buy;
  gd_show_begin(object);
  gd_show_set_text(object, "way", advice->rented ? "rent" : advice->option->owned ? "own" : "buy");
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
  gd_show_set_real(object, "days_low", advice->option->time.days_low);
  gd_show_set_real(object, "days_high", advice->option->time.days_high);
  gd_show_set_real(object, "break_even_months", advice->option->break_even_months);
  gd_show_calendar(object, &advice->option->calendar, limit_days);
}

void gd_cost_rows(struct gd_show_object *rows, const struct gd_money_table *table,
                  double limit_days) {
  *rows = (struct gd_show_object){.object = json_array()};
  for (int i = 0; i < table->count; i++) {
    struct gd_show_object object;
    gd_show_option(&object, table, &table->options[i], limit_days);
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
    set_advice(&object, &advice, limits->days);
    gd_show_set_text(&object, "at", gd_money_variants[i].name);
    gd_show_append(&rows, &object);
  }
  gd_show_set_object(root, "sensitivity", &rows);
  return GD_OK;
}

enum gd_status gd_cost_model_json(struct gd_cli *cli, const struct gd_money_asked *asked,
                                  struct gd_money_table *table,
                                  const struct gd_money_answer *answer, struct gd_error *err) {
  const struct gd_money_limits limits = gd_cost_limits(cli);
  struct gd_show_object root, rows, object;
  struct gd_strbuf text = {0};
  gd_show_begin(&root);
  gd_show_set_text(&root, "model", table->model->name);
  gd_show_set_text(&root, "stack", table->stack);
  gd_show_set_int(&root, "parameters", table->work.parameters);
  gd_show_set_real(&root, "tokens", table->work.tokens);
  gd_show_set_real(&root, "train_flops", table->work.train_flops);
  if (asked->outline) {
    gd_show_set_assumed_of_outline(&root, asked->outline);
    gd_show_set_unknown(&root, asked->outline->unread);
    gd_show_set_stand_ins(&root, asked->stand_ins);
  } else {
    gd_show_set_assumed(&root, cli, table->model);
  }
  gd_cost_set_number(&root, "budget_usd", &cli->options.budget_usd);
  gd_cost_set_number(&root, "days_limit", &cli->options.days);
  gd_show_set_terms(&root, "terms", &table->terms);
  gd_cost_rows(&rows, table, limits.days);
  gd_show_set_object(&root, "options", &rows);
  if (answer->advice.option) {
    set_advice(&object, &answer->advice, limits.days);
    gd_show_set_object(&root, "advice", &object);
  } else {
    gd_show_set_null(&root, "advice");
  }
  GD_TRY(set_variants(&root, table, &limits, err));
  gd_show_set_option(&root, "chosen", table, answer->chosen, limits.days);
  gd_show_set_option(&root, "chosen_possible", table, answer->possible, limits.days);
  gd_show_set_option(&root, "chosen_rented", table, answer->rented, limits.days);
  if (answer->at_risk.option)
    set_at_risk(&root, &answer->at_risk, &limits);
  else
    gd_show_set_null(&root, "at_risk");
  gd_show_set_queue(&root, "queue", &table->terms.queue,
                    (double)gd_checkpoint_bytes(table->work.parameters));
  set_reach(&root, "reach_bought", table, &answer->reach_bought);
  set_reach(&root, "reach_rented", table, &answer->reach_rented);
  if (cli->options.text && answer->advice.option) {
    gd_money_paragraph(table, &answer->advice, &text);
    gd_show_set_text(&root, "text", text.text ? text.text : "");
    gd_strbuf_deinit(&text);
  }
  return gd_show_json(&cli->out, &root, err);
}
