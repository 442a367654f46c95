/*
 * The answers of `gpudays cost`; see answer.h.
 */
#include "money/answer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cpus.h"
#include "money/money_int.h"

/* --- one model ----------------------------------------------------------------------------- */

/* The least that is spent where money is short and the days suffice, else the fastest. */
static void find_near(const struct gd_money_table *table, const struct gd_money_limits *limits,
                      struct gd_money_near *near) {
  const bool money = limits->budget_usd > 0, both = money && limits->days > 0;
  struct gd_money_limits any = {.budget_usd = HUGE_VAL};
  struct gd_money_advice advice, in_time;
  gd_money_advise(table, &any, &advice);
  if (!advice.option)
    return;
  any.days = limits->days;
  gd_money_advise(table, &any, &in_time);
  near->cheapest = money && in_time.option;
  near->way = near->cheapest ? in_time.cheapest : advice.fastest;
  if (!both && near->way.rented)
    near->buy = gd_money_nearest(table, limits);
}

/* Of those that may be within the limits: with a deadline the way whose upper end comes first, of
   equals the cheapest; else the cheapest. */
static void find_at_risk(const struct gd_money_table *table, const struct gd_money_limits *limits,
                         struct gd_money_way *way) {
  struct gd_money_limits risky = *limits;
  double least = 0;
  risky.at_risk = true;
  for (int i = 0; table->options && i < 2 * table->count; i++) {
    const struct gd_money_option *option = &table->options[i / 2];
    bool rented = i % 2 == 1;
    if (!gd_money_way_within(option, rented, &risky))
      continue;
    double usd = gd_money_run_usd(option, rented);
    double high = limits->days > 0 ? option->calendar.days_high : usd;
    if (!way->option || high < least || (high <= least && usd < way->usd)) {
      least = high;
      *way = (struct gd_money_way){.option = option, .rented = rented, .usd = usd};
    }
  }
}

static int count_within(const struct gd_money_table *table, const struct gd_money_limits *limits) {
  struct gd_money_limits buying = *limits;
  int count = 0;
  if (limits->budget_usd > 0)
    buying.days = 0;
  for (int i = 0; i < table->count; i++)
    count += gd_money_within(&table->options[i], &buying);
  return count;
}

void gd_money_answer(const struct gd_money_table *table, const struct gd_money_limits *limits,
                     struct gd_money_answer *answer) {
  struct gd_money_limits possible = {
      .budget_usd = limits->budget_usd, .days = limits->days, .possible = true};
  *answer = (struct gd_money_answer){0};
  for (int i = 0; i < table->count; i++) {
    enum gd_time_state state = table->options[i].time.state;
    answer->known = answer->known || state == GD_TIME_KNOWN;
    answer->infeasible += state == GD_TIME_INFEASIBLE;
    answer->unknown += state == GD_TIME_UNKNOWN;
    if (state == GD_TIME_KNOWN)
      answer->deadlines[gd_money_deadline(&table->options[i], limits->days)]++;
  }
  if (!answer->known)
    return;
  gd_money_advise(table, limits, &answer->advice);
  if (!answer->advice.option) {
    find_near(table, limits, &answer->near);
    if (limits->days > 0 || limits->budget_usd > 0)
      find_at_risk(table, limits, &answer->at_risk);
  }
  answer->chosen = gd_money_choose(table, limits);
  answer->chosen_of = count_within(table, limits);
  answer->possible = gd_money_choose(table, &possible);
  answer->rented = gd_money_choose_rented(table, limits);
  if (limits->budget_usd > 0 && limits->days > 0) {
    gd_money_reach_bought(table, limits, &answer->reach_bought);
    gd_money_reach_rented(table, limits, &answer->reach_rented);
  }
}

const struct gd_money_variant gd_money_variants[] = {
    {"half the rent", {.rent = 0.5, .hardware = 1, .electricity = 1, .days = 1}},
    {"twice the rent", {.rent = 2, .hardware = 1, .electricity = 1, .days = 1}},
    {"hardware at half its price", {.rent = 1, .hardware = 0.5, .electricity = 1, .days = 1}},
    {"hardware at twice its price", {.rent = 1, .hardware = 2, .electricity = 1, .days = 1}},
    {"electricity at twice its price", {.rent = 1, .hardware = 1, .electricity = 2, .days = 1}},
    {"half the days", {.rent = 1, .hardware = 1, .electricity = 1, .days = 0.5}},
    {"twice the days", {.rent = 1, .hardware = 1, .electricity = 1, .days = 2}},
};
const int gd_money_variant_count = sizeof gd_money_variants / sizeof *gd_money_variants;

/* --- all presets --------------------------------------------------------------------------- */

static int compare_presets(const void *left, const void *right) {
  const struct gd_money_preset *a = left, *b = right;
  double x = a->table.work.train_flops, y = b->table.work.train_flops;
  return x != y ? (x > y) - (x < y) : strcmp(a->model.name, b->model.name);
}

/* A preset that is being priced. */
struct pricing {
  struct gd_money_asked asked; /* of this preset */
  struct gd_times_context context;
  enum gd_status status;
  struct gd_error error;
};

/* Presets on several threads. */
struct work {
  const struct gd_money_asked *asked;
  const struct gd_money_limits *limits;
  struct gd_money_shared shared;
  struct gd_money_presets *presets;
  struct pricing *pricings; /* as many */
  void (*begin)(void *user, const char *name, int number, int count);
  void *user;
  pthread_mutex_t mutex; /* of what follows, and of who is told of progress */
  int next;
  bool failed;
};

/* The part of a preset that one thread at a time does: it reads the catalogue and the store. */
static enum gd_status begin_preset(struct work *work, int at) {
  struct pricing *pricing = &work->pricings[at];
  struct gd_money_preset *preset = &work->presets->list[at];
  pricing->asked = *work->asked;
  pricing->asked.model = &preset->model;
  pricing->asked.within = work->limits;
  pricing->asked.shared = &work->shared;
  pricing->asked.progress = NULL; /* it is told of presets */
  work->begin(work->user, preset->model.name, at + 1, work->presets->count);
  if (work->asked->progress)
    work->asked->progress(work->asked->progress_user, "comparing machines",
                          (double)at / work->presets->count, -1);
  return gd_money_table_begin(&pricing->asked, &preset->table, &pricing->context, &pricing->error);
}

static void advise_preset(const struct gd_money_limits *limits, struct gd_money_preset *preset) {
  struct gd_money_limits within = *limits;
  for (int rented = 0; rented < 2; rented++) {
    within.ways = rented ? GD_MONEY_RENT : GD_MONEY_BUY;
    gd_money_advise(&preset->table, &within, &preset->advice[rented]);
  }
}

/* No preset is begun after one that failed. */
static void *price_presets(void *argument) {
  struct work *work = argument;
  for (;;) {
    pthread_mutex_lock(&work->mutex);
    int at = work->failed ? work->presets->count : work->next++;
    bool done = at >= work->presets->count;
    enum gd_status status = done ? GD_OK : begin_preset(work, at);
    pthread_mutex_unlock(&work->mutex);
    if (done)
      return NULL;
    struct pricing *pricing = &work->pricings[at];
    struct gd_money_preset *preset = &work->presets->list[at];
    if (status == GD_OK)
      status = gd_money_table_finish(&pricing->context, &preset->table, &pricing->error);
    if (status == GD_OK)
      advise_preset(work->limits, preset);
    gd_times_close(&pricing->context);
    pricing->status = status;
    pthread_mutex_lock(&work->mutex);
    work->failed = work->failed || status != GD_OK;
    pthread_mutex_unlock(&work->mutex);
  }
}

/* All of them; the error is that of the first in their order. */
static enum gd_status price_all(struct work *work, struct gd_error *err) {
  enum { MOST_THREADS = 16 };
  pthread_t threads[MOST_THREADS];
  int cpus = gd_cpus(1), started = 0;
  gd_money_shared_init(&work->shared);
  pthread_mutex_init(&work->mutex, NULL);
  while (started + 1 < cpus && started < MOST_THREADS && started + 1 < work->presets->count &&
         pthread_create(&threads[started], NULL, price_presets, work) == 0)
    started++;
  price_presets(work); /* this thread works too, so none that could not be started is missed */
  for (int i = 0; i < started; i++)
    pthread_join(threads[i], NULL);
  pthread_mutex_destroy(&work->mutex);
  gd_money_shared_deinit(&work->shared);
  for (int i = 0; i < work->presets->count; i++) {
    const struct pricing *pricing = &work->pricings[i];
    if (pricing->status == GD_OK)
      continue;
    gd_fail_at(err, pricing->status, pricing->error.file, pricing->error.line, "%s",
               pricing->error.text);
    return pricing->status;
  }
  return GD_OK;
}

enum gd_status
gd_money_presets_make(const struct gd_money_asked *asked, const struct gd_money_limits *limits,
                      void (*begin)(void *user, const char *name, int number, int count),
                      void *user, struct gd_money_presets *presets, struct gd_error *err) {
  struct gd_arena names_arena = {0};
  const char *const *names;
  int count = 0;
  *presets = (struct gd_money_presets){0};
  enum gd_status status = gd_model_list(&names_arena, &names, &count, err);
  if (status == GD_OK) {
    presets->list = gd_mem_alloc((size_t)count + 1, sizeof *presets->list);
    if (!presets->list)
      status = gd_nomem(err, "while reading presets");
  }
  for (int i = 0; i < count && status == GD_OK; i++)
    if (gd_model_load(names[i], &presets->list[presets->count].model, NULL) == GD_OK)
      presets->count++;
  gd_arena_deinit(&names_arena);
  struct work work = {
      .asked = asked, .limits = limits, .presets = presets, .begin = begin, .user = user};
  work.pricings = gd_mem_alloc((size_t)presets->count + 1, sizeof *work.pricings);
  if (status == GD_OK && !work.pricings)
    status = gd_nomem(err, "while reading presets");
  if (status == GD_OK)
    status = price_all(&work, err);
  gd_mem_free(work.pricings);
  if (status == GD_OK && presets->count > 1)
    qsort(presets->list, (size_t)presets->count, sizeof *presets->list, compare_presets);
  for (int i = 0; presets->list && i < presets->count; i++)
    presets->list[i].table.model = &presets->list[i].model; /* it has moved */
  return status;
}

void gd_money_presets_deinit(struct gd_money_presets *presets) {
  for (int i = 0; i < presets->count; i++)
    gd_money_table_deinit(&presets->list[i].table);
  gd_mem_free(presets->list);
  *presets = (struct gd_money_presets){0};
}

const struct gd_money_preset *gd_money_presets_largest(const struct gd_money_presets *presets,
                                                       bool rented) {
  for (int i = presets->count - 1; i >= 0; i--)
    if (presets->list[i].advice[rented].option)
      return &presets->list[i];
  return NULL;
}

double gd_money_presets_size(const struct gd_money_preset *preset, bool rented, double days,
                             double *tokens) {
  const double tokens_each = 20; /* arXiv:2203.15556 */
  const struct gd_money_option *option = preset->advice[rented].option;
  double flops = preset->table.work.train_flops / option->calendar.days_high * days;
  double size = sqrt(flops / (6 * tokens_each));
  *tokens = tokens_each * size;
  return size;
}

const struct gd_money_table *gd_money_presets_terms(const struct gd_money_presets *presets) {
  for (int i = 0; i < presets->count; i++) {
    const struct gd_money_table *table = &presets->list[i].table;
    for (int j = 0; j < table->count; j++)
      if (table->options[j].time.times == GD_TIMES_ANALYTIC)
        return table;
  }
  return &presets->list[0].table;
}
