/*
 * The table of options: every machine of the catalogue, or those that were named, with its days and
 * its costs, sorted and with both fronts marked.
 */
#define _GNU_SOURCE /* strcasestr */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "hw/estimate.h"
#include "money/money_int.h"
#include "train/checkpoint.h"

#define RENTED_NAME "rented-%dx-%s" /* GPUs, which */

/* --- terms --------------------------------------------------------------------------------- */

static void set_figure(struct gd_money_figure *figure, double value, const char *source) {
  figure->value = value;
  snprintf(figure->source, sizeof figure->source, "%s", source);
}

static void set_cited(struct gd_money_figure *figure, double value, const struct gd_energy *energy,
                      const char *field) {
  const struct gd_cite *cite = gd_cite_of(energy->cites, energy->n_cites, field);
  figure->value = value;
  snprintf(figure->source, sizeof figure->source, "%.40s: %.180s, %.20s", energy->title,
           cite ? cite->source : "no source", cite ? cite->date : "no date");
}

enum gd_status gd_money_terms_default(struct gd_hw *hw, const char *energy,
                                      struct gd_money_terms *terms, struct gd_error *err) {
  const struct gd_energy *record;
  GD_TRY(gd_hw_energy(hw, energy, &record, err));
  *terms = (struct gd_money_terms){0};
  set_figure(&terms->life_years, 5, "as in arXiv:2410.23261, Sec. 4.1");
  set_figure(&terms->utilisation, 1,
             "assumed: board power in full, as Llama 2 reports it (arXiv:2307.09288, Table 2)");
  terms->mfu.value = 0.4;
  snprintf(terms->mfu.source, sizeof terms->mfu.source,
           "assumed: this engine has %d - %d %% on an H200 (results/h200.csv), Llama 3 38 - 43 %%",
           GD_MONEY_H200_MFU_LOW, GD_MONEY_H200_MFU_HIGH);
  set_figure(&terms->rent_usd_per_gpu_hour, 0, "the catalogue's offers, by GPU");
  set_cited(&terms->pue, record->pue, record, "pue");
  set_cited(&terms->usd_per_kwh, record->usd_per_kwh, record, "usd_per_kwh");
  set_cited(&terms->g_co2_per_kwh, record->g_co2_per_kwh, record, "g_co2_per_kwh");
  return GD_OK;
}

void gd_money_terms_set(struct gd_money_terms *terms, enum gd_money_term term, double value,
                        const char *source) {
  struct gd_money_figure *const figures[GD_MONEY_TERM_COUNT] = {
      [GD_MONEY_USD_PER_KWH] = &terms->usd_per_kwh,
      [GD_MONEY_PUE] = &terms->pue,
      [GD_MONEY_UTILISATION] = &terms->utilisation,
      [GD_MONEY_G_CO2_PER_KWH] = &terms->g_co2_per_kwh,
      [GD_MONEY_MFU] = &terms->mfu,
      [GD_MONEY_USD_PER_GPU_HOUR] = &terms->rent_usd_per_gpu_hour};
  GD_ASSERT(term < GD_MONEY_TERM_COUNT);
  set_figure(figures[term], value, source);
  if (term == GD_MONEY_UTILISATION)
    terms->utilisation_given = true;
}

enum gd_status gd_money_terms_set_rent(struct gd_money_terms *terms, const char *text,
                                       const char **provider, struct gd_error *err) {
  char *end, clean[64];
  double usd = strtod(text, &end);
  if (end == text || *end) {
    *provider = text;
    return GD_OK;
  }
  if (!(usd > 0 && usd <= 1000))
    return gd_fail(
        err, GD_BAD_INPUT,
        "--rent is \"%s\"; expected USD a GPU-hour above 0, 1000 at most, or a part of a "
        "provider's name",
        gd_json_excerpt(clean, sizeof clean, text));
  set_figure(&terms->rent_usd_per_gpu_hour, usd, "--rent");
  return GD_OK;
}

/* --- work ---------------------------------------------------------------------------------- */

enum gd_status gd_money_work_of(const struct gd_model *model, struct gd_money_work *work,
                                struct gd_error *err) {
  struct gd_model_facts facts;
  GD_TRY(gd_model_facts(model, model->recipe.precision, &facts, err));
  *work = (struct gd_money_work){.parameters = facts.parameters,
                                 .tokens = facts.tokens,
                                 .flops_per_step = facts.flops_per_step,
                                 .train_flops = facts.train_flops};
  return GD_OK;
}

static struct gd_money_work work_of_outline(const struct gd_outline *outline) {
  double flops = gd_outline_flops(outline);
  return (struct gd_money_work){.parameters = (int64_t)outline->parameters,
                                .tokens = outline->tokens,
                                .flops_per_step = flops / (double)outline->recipe.steps,
                                .train_flops = flops};
}

/* --- options ------------------------------------------------------------------------------- */

static enum gd_status check_provider(const struct gd_money_asked *asked, struct gd_error *err) {
  char clean[64];
  if (!asked->provider || gd_hw_cheapest_rent(asked->hw, NULL, asked->provider))
    return GD_OK;
  return gd_fail(
      err, GD_BAD_INPUT,
      "no offer of the catalogue is by \"%s\"; expected a part of a provider's name, such "
      "as %s, or USD a GPU-hour",
      gd_json_excerpt(clean, sizeof clean, asked->provider),
      asked->hw->n_rents > 0 ? asked->hw->rents[0].provider : "none");
}

/* Lists a machine; fill_options does the rest. */
static enum gd_status add_option(const struct gd_money_asked *asked,
                                 const struct gd_machine *machine, struct gd_money_table *table,
                                 struct gd_error *err) {
  struct gd_money_option *option = &table->options[table->count];
  for (int i = 0; i < table->count; i++)
    if (strcmp(table->options[i].machine->name, machine->name) == 0)
      return GD_OK; /* named twice */
  *option = (struct gd_money_option){.machine = machine};
  GD_TRY(gd_hw_gpu(asked->hw, machine->gpu, &option->gpu, err));
  option->rent = gd_hw_cheapest_rent(asked->hw, option->gpu->name, asked->provider);
  table->count++;
  return GD_OK;
}

/* Until an option's days are found, they are the fewest that the peak of its GPUs allows. */
static enum gd_status set_least_days(const struct gd_money_asked *asked,
                                     struct gd_money_table *table, struct gd_error *err) {
  for (int i = 0; i < table->count; i++) {
    struct gd_money_option *option = &table->options[i];
    enum gd_precision precision;
    bool substituted;
    GD_TRY(gd_estimate_precision(asked->model, option->gpu, NULL, &precision, &substituted, err));
    double peak_flops = gd_estimate_peak(option->gpu, precision, GD_PEAKS_DATASHEET);
    option->time.days =
        gd_estimate_days(table->work.train_flops, peak_flops, option->machine->count);
  }
  return GD_OK;
}

static int compare_least_days(const void *left, const void *right) {
  const struct gd_money_option *a = left, *b = right;
  double x = a->time.days, y = b->time.days;
  return x != y ? (x > y) - (x < y) : strcmp(a->machine->name, b->machine->name);
}

/* Whether the option, at its best, is within the limits and, where a budget makes the fastest the
   advice, about as fast as the advice so far. */
static bool may_win(const struct gd_money_table *table, const struct gd_money_option *option,
                    const struct gd_money_limits *limits, const struct gd_money_advice *so_far) {
  struct gd_money_option best = *option;
  struct gd_money_advice alone;
  best.time.state = GD_TIME_KNOWN;
  best.time.days_low = best.time.days_high = best.time.days;
  gd_money_price(&table->terms, &best);
  gd_money_advise(&(struct gd_money_table){.terms = table->terms, .options = &best, .count = 1},
                  limits, &alone);
  return alone.option && (limits->budget_usd <= 0 || !so_far->option ||
                          best.time.days <= GD_MONEY_NEAR * so_far->fastest.option->time.days);
}

/* Leaves out those after the first `done`, whose days are known, that cannot be advised. */
static void drop_hopeless(const struct gd_money_limits *within, struct gd_money_table *table,
                          int done) {
  struct gd_money_limits limits[2] = {*within, *within};
  struct gd_money_advice so_far[2];
  int kept = done;
  for (int rented = 0; rented < 2; rented++) {
    limits[rented].ways = rented ? GD_MONEY_RENT : GD_MONEY_BUY;
    gd_money_advise(
        &(struct gd_money_table){.terms = table->terms, .options = table->options, .count = done},
        &limits[rented], &so_far[rented]);
  }
  for (int i = done; i < table->count; i++)
    if (may_win(table, &table->options[i], &limits[0], &so_far[0]) ||
        may_win(table, &table->options[i], &limits[1], &so_far[1]))
      table->options[kept++] = table->options[i];
  table->count = kept;
}

static enum gd_status fill_some(struct gd_times_context *context, struct gd_money_table *table,
                                int from, int to, struct gd_error *err) {
  GD_TRY(gd_times_find(context, table->options + from, to - from, err));
  for (int i = from; i < to; i++)
    gd_money_price(&table->terms, &table->options[i]);
  return GD_OK;
}

/*
 * Days and costs, once it is known which machines there are. Within limits, those come first that
 * could be the fastest: one, then four times as many at a time, since machines are predicted
 * together. The paper's days are not held to the peak.
 */
static enum gd_status fill_options(struct gd_times_context *context, struct gd_money_table *table,
                                   struct gd_error *err) {
  const struct gd_money_limits *within = context->asked->within;
  if (!within || context->asked->times == GD_TIMES_PAPER)
    return fill_some(context, table, 0, table->count, err);
  GD_TRY(set_least_days(context->asked, table, err));
  if (table->count > 1)
    qsort(table->options, (size_t)table->count, sizeof *table->options, compare_least_days);
  for (int done = 0, some = 1;; some *= 4) {
    drop_hopeless(within, table, done);
    if (done == table->count)
      return GD_OK;
    int next = table->count - done < some ? table->count : done + some;
    GD_TRY(fill_some(context, table, done, next, err));
    done = next;
  }
}

/* For sale, or the only one of its kind that there is. */
static bool listed(const struct gd_hw *hw, const struct gd_machine *machine) {
  if (machine->usd > 0)
    return true;
  for (int i = 0; i < hw->n_machines; i++) {
    const struct gd_machine *other = &hw->machines[i];
    if (other != machine && other->count == machine->count &&
        strcmp(other->gpu, machine->gpu) == 0 && (other->usd > 0 || other < machine))
      return false;
  }
  return true;
}

/* A machine of a provider's: so many of that GPU, with the power of a build for as many. */
static struct gd_machine *rented_machine(struct gd_arena *arena, const struct gd_hw *hw,
                                         const struct gd_gpu *gpu, int count) {
  struct gd_machine *machine = gd_arena_alloc(arena, 1, sizeof *machine);
  char *name = gd_arena_printf(arena, RENTED_NAME, count, gpu->name);
  char *title = gd_arena_printf(arena, "%d x %s of a provider", count, gpu->title);
  if (!machine || !name || !title)
    return NULL;
  *machine = (struct gd_machine){
      .name = name, .title = title, .gpu = gpu->name, .count = count, .topology = gpu->topology};
  for (int i = 0; i < hw->n_builds; i++)
    if (hw->builds[i].count == count)
      machine->power_w = hw->builds[i].power_w;
  return machine;
}

/* One of those by its name, "rented-8x-h200"; NULL: it is no such name. */
static enum gd_status find_rented(const struct gd_hw *hw, const char *name, struct gd_arena *arena,
                                  const struct gd_machine **machine, struct gd_error *err) {
  *machine = NULL;
  for (int i = 0; i < hw->n_gpus; i++)
    for (int count = 1; count <= GD_MONEY_MOST_RENTED; count *= 2) {
      char expected[128];
      snprintf(expected, sizeof expected, RENTED_NAME, count, hw->gpus[i].name);
      if (strcmp(name, expected) != 0)
        continue;
      *machine = rented_machine(arena, hw, &hw->gpus[i], count);
      if (!*machine)
        return gd_nomem(err, "while naming rented GPUs");
    }
  return GD_OK;
}

/* The machines of --machine, each by name or by file. */
static enum gd_status add_named(const struct gd_money_asked *asked, struct gd_money_table *table,
                                struct gd_error *err) {
  for (const char *at = asked->machines;;) {
    const struct gd_machine *machine;
    size_t length = strcspn(at, ",");
    char *name = gd_arena_printf(&table->arena, "%.*s", (int)length, at);
    if (!name)
      return gd_nomem(err, "while reading names of machines");
    GD_TRY(find_rented(asked->hw, name, &table->arena, &machine, err));
    if (!machine)
      GD_TRY(gd_hw_machine(asked->hw, name, &machine, err));
    GD_TRY(add_option(asked, machine, table, err));
    if (at[length] == '\0')
      return GD_OK;
    at += length + 1;
  }
}

/* GPUs that are for rent and that no machine of the catalogue holds. */
static enum gd_status add_rented(const struct gd_money_asked *asked, struct gd_money_table *table,
                                 struct gd_error *err) {
  const struct gd_hw *hw = asked->hw;
  for (int i = 0; i < hw->n_gpus; i++) {
    const struct gd_gpu *gpu = &hw->gpus[i];
    for (int count = 1; count <= GD_MONEY_MOST_RENTED &&
                        gd_hw_cheapest_rent(asked->hw, gpu->name, asked->provider);
         count *= 2) {
      bool held = false;
      for (int j = 0; j < hw->n_machines && !held; j++)
        held = hw->machines[j].count == count && strcmp(hw->machines[j].gpu, gpu->name) == 0;
      if (held)
        continue;
      const struct gd_machine *machine = rented_machine(&table->arena, hw, gpu, count);
      if (!machine)
        return gd_nomem(err, "while listing rented GPUs");
      GD_TRY(add_option(asked, machine, table, err));
    }
  }
  return GD_OK;
}

static int compare_numbers(double a, double b) {
  bool known_a = isfinite(a), known_b = isfinite(b);
  if (!known_a || !known_b)
    return known_b - known_a; /* what is not known comes last */
  return (a > b) - (a < b);
}

static double days_of(const struct gd_money_option *option) {
  return option->time.state == GD_TIME_KNOWN ? option->time.days : (double)NAN;
}

static int compare_options(const void *left, const void *right) {
  const struct gd_money_option *a = left, *b = right;
  int order = compare_numbers(a->hardware_usd, b->hardware_usd);
  if (order == 0)
    order = compare_numbers(days_of(a), days_of(b));
  return order != 0 ? order : strcmp(a->machine->name, b->machine->name);
}

static enum gd_status mark_fronts(struct gd_money_table *table, struct gd_error *err) {
  size_t count = (size_t)table->count;
  double *numbers = gd_arena_alloc(&table->arena, 3 * count + 1, sizeof *numbers);
  bool *on = gd_arena_alloc(&table->arena, count + 1, sizeof *on);
  if (!numbers || !on)
    return gd_nomem(err, "while comparing machines");
  double *hardware = numbers, *experiment = numbers + count, *days = numbers + 2 * count;
  for (size_t i = 0; i < count; i++) {
    const struct gd_money_option *option = &table->options[i];
    hardware[i] = option->hardware_usd;
    experiment[i] = option->experiment_usd;
    days[i] = days_of(option);
  }
  gd_money_front(hardware, days, table->count, on);
  for (size_t i = 0; i < count; i++)
    table->options[i].hardware_front = on[i];
  gd_money_front(experiment, days, table->count, on);
  for (size_t i = 0; i < count; i++)
    table->options[i].experiment_front = on[i];
  return GD_OK;
}

static enum gd_status add_all(const struct gd_money_asked *asked, struct gd_money_table *table,
                              struct gd_error *err) {
  const struct gd_hw *hw = asked->hw;
  for (int i = 0; i < hw->n_machines; i++)
    if (listed(hw, &hw->machines[i]))
      GD_TRY(add_option(asked, &hw->machines[i], table, err));
  return add_rented(asked, table, err);
}

/* --- GPUs that were named ------------------------------------------------------------------- */

/* The smallest machine for sale with as many of a GPU, of equals the cheapest; NULL: none. */
static const struct gd_machine *for_sale(const struct gd_hw *hw, const struct gd_gpu *gpu,
                                         int count) {
  const struct gd_machine *best = NULL;
  for (int i = 0; i < hw->n_machines; i++) {
    const struct gd_machine *machine = &hw->machines[i];
    if (strcmp(machine->gpu, gpu->name) == 0 && machine->count == count && machine->usd > 0 &&
        (!best || machine->usd < best->usd))
      best = machine;
  }
  return best;
}

/* So many GPUs that no machine of the catalogue holds: as many machines of 8, 4, 2 as that makes,
   or, to rent, whatever the provider has them in. */
static enum gd_status add_many(const struct gd_money_asked *asked, const struct gd_gpu *gpu,
                               int count, struct gd_money_table *table, struct gd_error *err) {
  struct gd_machine *machine = rented_machine(&table->arena, asked->hw, gpu, count);
  if (!machine)
    return gd_nomem(err, "while listing GPUs");
  for (int each = GD_MONEY_MOST_RENTED; each > 0 && count > GD_MONEY_MOST_RENTED; each /= 2) {
    const struct gd_machine *one = for_sale(asked->hw, gpu, each);
    if (!one || count % each != 0)
      continue;
    const int machines = count / each;
    machine->name = gd_arena_printf(&table->arena, "%dx-%s", machines, one->name);
    machine->usd = one->usd * machines;
    machine->power_w = one->power_w * machines;
    machine->cites = one->cites;
    machine->n_cites = one->n_cites;
    break;
  }
  return machine->name ? add_option(asked, machine, table, err)
                       : gd_nomem(err, "while listing GPUs");
}

/* Every machine that holds so many, and at least what could be rented. */
static enum gd_status add_count(const struct gd_money_asked *asked, const struct gd_gpu *gpu,
                                int count, struct gd_money_table *table, struct gd_error *err) {
  const struct gd_hw *hw = asked->hw;
  bool held = false;
  for (int i = 0; i < hw->n_machines; i++) {
    const struct gd_machine *machine = &hw->machines[i];
    if (machine->count != count || strcmp(machine->gpu, gpu->name) != 0 || !listed(hw, machine))
      continue;
    held = true;
    GD_TRY(add_option(asked, machine, table, err));
  }
  return held ? GD_OK : add_many(asked, gpu, count, table, err);
}

static enum gd_status add_gpus(const struct gd_money_asked *asked, struct gd_money_table *table,
                               struct gd_error *err) {
  for (int i = 0; i < asked->n_gpus; i++) {
    const struct gd_gpu_spec *spec = &asked->gpus[i];
    const struct gd_gpu *gpu;
    GD_TRY(gd_hw_gpu(asked->hw, spec->name, &gpu, err));
    if (spec->count > 0)
      GD_TRY(add_count(asked, gpu, spec->count, table, err));
    for (int count = 1; spec->count == 0 && count <= GD_MONEY_MOST_RENTED; count *= 2)
      GD_TRY(add_count(asked, gpu, count, table, err));
  }
  return GD_OK;
}

/* How many machines the table may have: those of the catalogue, and files that are named. */
static size_t most_options(const struct gd_money_asked *asked) {
  size_t most =
      (size_t)asked->hw->n_machines + (size_t)asked->hw->n_gpus * GD_MONEY_MOST_RENTED + 1;
  most += (size_t)asked->n_gpus * GD_MONEY_MOST_RENTED;
  for (const char *at = asked->machines; at && *at; at++)
    most += *at == ',';
  return most;
}

enum gd_status gd_money_table_begin(const struct gd_money_asked *asked,
                                    struct gd_money_table *table, struct gd_times_context *context,
                                    struct gd_error *err) {
  *context = (struct gd_times_context){0};
  *table = (struct gd_money_table){.model = asked->model,
                                   .terms = asked->terms,
                                   .times = asked->times,
                                   .stack = asked->stack ? asked->stack->name : "own"};
  GD_TRY(check_provider(asked, err));
  GD_TRY(gd_times_open(asked, table, context, err));
  table->options = gd_arena_alloc(&table->arena, most_options(asked), sizeof *table->options);
  if (!table->options)
    return gd_nomem(err, "before the machines are compared");
  return asked->machines     ? add_named(asked, table, err)
         : asked->n_gpus > 0 ? add_gpus(asked, table, err)
                             : add_all(asked, table, err);
}

enum gd_status gd_money_table_finish(struct gd_times_context *context, struct gd_money_table *table,
                                     struct gd_error *err) {
  if (context->asked->outline)
    table->work = work_of_outline(context->asked->outline);
  else
    GD_TRY(gd_money_work_of(table->model, &table->work, err));
  for (int i = 0; i < table->count; i++)
    table->options[i].checkpoint_bytes = (double)gd_checkpoint_bytes(table->work.parameters);
  GD_TRY(fill_options(context, table, err));
  if (table->count > 1)
    qsort(table->options, (size_t)table->count, sizeof *table->options, compare_options);
  return mark_fronts(table, err);
}

enum gd_status gd_money_table_make(const struct gd_money_asked *asked, struct gd_money_table *table,
                                   struct gd_error *err) {
  struct gd_money_shared shared;
  struct gd_money_asked one = *asked;
  struct gd_times_context context;
  gd_money_shared_init(&shared);
  one.shared = &shared;
  enum gd_status status = gd_money_table_begin(&one, table, &context, err);
  if (status == GD_OK)
    status = gd_money_table_finish(&context, table, err);
  gd_times_close(&context);
  gd_money_shared_deinit(&shared);
  return status;
}

void gd_money_table_deinit(struct gd_money_table *table) {
  gd_arena_deinit(&table->arena);
  *table = (struct gd_money_table){0};
}
