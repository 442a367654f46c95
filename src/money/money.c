/*
 * The arithmetic of docs/cost.md: what an option costs, which options are on the front, and which
 * one to take. The table of options is made in money_table.c, their days come from times.c.
 */
#include "money/money.h"

#include <math.h>
#include <string.h>

/* --- one option ---------------------------------------------------------------------------- */

enum gd_physics gd_physics_of(double share) {
  return share > 1 ? GD_PHYSICS_IMPOSSIBLE : share > 0.8 ? GD_PHYSICS_DOUBTFUL : GD_PHYSICS_FINE;
}

/* kWh an hour, from the grid. */
static double power_kw(const struct gd_money_option *option) {
  return option->power_w / 1000;
}

/* NaN where the machine has no price; INFINITY where renting costs no more than the electricity. */
static double break_even_months(const struct gd_money_terms *terms,
                                const struct gd_money_option *option) {
  double saved = option->rent_usd_per_hour - power_kw(option) * terms->usd_per_kwh.value;
  if (option->owned || !isfinite(option->hardware_usd) || !isfinite(saved))
    return (double)NAN;
  return saved > 0 ? option->hardware_usd / saved / GD_MONEY_HOURS_A_MONTH : (double)INFINITY;
}

double gd_money_gpu_w(const struct gd_money_terms *terms, const struct gd_money_option *option,
                      const char **how) {
  const struct gd_time *time = &option->time;
  bool known = !terms->utilisation_given && time->gpu_power_w > 0;
  if (how)
    *how = !known                             ? "a share of its board's power"
           : time->times == GD_TIMES_MEASURED ? "measured by NVML"
                                              : "modelled";
  return known ? time->gpu_power_w : option->gpu->power_w * terms->utilisation.value;
}

/* The paper's days are whole numbers: half a day either way is not an interval to be held to. */
static void set_calendar(const struct gd_money_terms *terms, struct gd_money_option *option) {
  const struct gd_time *time = &option->time;
  const bool printed = time->times == GD_TIMES_PAPER;
  option->calendar = (struct gd_calendar){0};
  if (time->state == GD_TIME_KNOWN)
    gd_calendar_find(&terms->queue, option->checkpoint_bytes, time->days,
                     printed ? time->days : time->days_low, printed ? time->days : time->days_high,
                     &option->calendar);
}

void gd_money_price(const struct gd_money_terms *terms, struct gd_money_option *option) {
  const struct gd_machine *machine = option->machine;
  double days = option->time.state == GD_TIME_KNOWN ? option->time.days : (double)NAN;
  double rate = terms->owned                             ? (double)NAN
                : terms->rent_usd_per_gpu_hour.value > 0 ? terms->rent_usd_per_gpu_hour.value
                : option->rent                           ? option->rent->usd_per_gpu_hour
                                                         : (double)NAN;
  double gpus_w = machine->count * gd_money_gpu_w(terms, option, NULL);
  option->owned = terms->owned;
  option->hardware_usd = terms->owned ? 0 : machine->usd > 0 ? machine->usd : (double)NAN;
  option->experiment_usd =
      option->hardware_usd * days * 24 / (terms->life_years.value * GD_MONEY_HOURS_A_YEAR);
  option->power_w = (gpus_w + machine->power_w) * terms->pue.value;
  option->energy_kwh = power_kw(option) * 24 * days;
  option->energy_usd = option->energy_kwh * terms->usd_per_kwh.value;
  option->co2_kg = option->energy_kwh * terms->g_co2_per_kwh.value / 1000;
  option->rent_usd_per_hour = rate * machine->count;
  option->rent_usd = option->rent_usd_per_hour * 24 * days;
  option->break_even_months = break_even_months(terms, option);
  set_calendar(terms, option);
}

double gd_money_own_usd(const struct gd_money_terms *terms, const struct gd_money_option *option,
                        double months) {
  double energy_usd = power_kw(option) * terms->usd_per_kwh.value * months * GD_MONEY_HOURS_A_MONTH;
  return option->hardware_usd + energy_usd;
}

double gd_money_rent_usd(const struct gd_money_option *option, double months) {
  return option->rent_usd_per_hour * months * GD_MONEY_HOURS_A_MONTH;
}

/* --- many options -------------------------------------------------------------------------- */

void gd_money_front(const double *x, const double *y, int count, bool *on) {
  for (int i = 0; i < count; i++) {
    on[i] = isfinite(x[i]) && isfinite(y[i]);
    for (int j = 0; j < count && on[i]; j++)
      if (x[j] <= x[i] && y[j] <= y[i] && (x[j] < x[i] || y[j] < y[i]))
        on[i] = false;
  }
}

static bool for_sale(const struct gd_money_option *option) {
  return isfinite(option->hardware_usd);
}

/* What the limits ask of days. */
static bool days_within(const struct gd_money_option *option,
                        const struct gd_money_limits *limits) {
  const struct gd_time *time = &option->time;
  if (time->state != GD_TIME_KNOWN || !isfinite(option->calendar.days))
    return false;
  enum gd_deadline deadline = gd_money_deadline(option, limits->days);
  return deadline <= (limits->at_risk ? GD_DEADLINE_AT_RISK : GD_DEADLINE_LIKELY) &&
         !(limits->possible && gd_physics_of(time->share) == GD_PHYSICS_IMPOSSIBLE);
}

enum gd_deadline gd_money_deadline(const struct gd_money_option *option, double limit_days) {
  return gd_deadline_of(option->calendar.days_low, option->calendar.days_high, limit_days);
}

/* As set_calendar: what the paper prints is no interval. */
struct gd_money_range gd_money_rent_range(const struct gd_money_option *option) {
  const struct gd_time *time = &option->time;
  bool interval = time->times != GD_TIMES_PAPER && time->days_high > time->days_low;
  double usd_per_day = option->rent_usd / time->days;
  return (struct gd_money_range){.low = interval ? usd_per_day * time->days_low : option->rent_usd,
                                 .high =
                                     interval ? usd_per_day * time->days_high : option->rent_usd};
}

enum gd_deadline gd_money_budget(const struct gd_money_option *option, bool rented,
                                 double budget_usd) {
  struct gd_money_range range =
      rented ? gd_money_rent_range(option)
             : (struct gd_money_range){.low = option->hardware_usd, .high = option->hardware_usd};
  if (budget_usd <= 0 || !isfinite(range.high))
    return GD_DEADLINE_NONE;
  return gd_deadline_of(range.low, range.high, budget_usd);
}

static bool budget_within(const struct gd_money_option *option, bool rented,
                          const struct gd_money_limits *limits) {
  return gd_money_budget(option, rented, limits->budget_usd) <=
         (limits->at_risk ? GD_DEADLINE_AT_RISK : GD_DEADLINE_LIKELY);
}

bool gd_money_within(const struct gd_money_option *option, const struct gd_money_limits *limits) {
  return for_sale(option) && days_within(option, limits) && budget_within(option, false, limits);
}

/* What is made small first, and among equals second. */
struct rank {
  double first, second;
};

static struct rank rank_of(const struct gd_money_option *option,
                           const struct gd_money_limits *limits) {
  if (limits->budget_usd > 0)
    return (struct rank){option->time.days, option->hardware_usd};
  if (limits->days > 0)
    return (struct rank){option->hardware_usd, option->time.days};
  return (struct rank){option->experiment_usd + option->energy_usd, option->time.days};
}

/* The lowest of those that can be bought within `within`, ranked as for `ranked`. */
static const struct gd_money_option *lowest(const struct gd_money_table *table,
                                            const struct gd_money_limits *within,
                                            const struct gd_money_limits *ranked) {
  const struct gd_money_option *best = NULL;
  struct rank least = {0};
  for (int i = 0; i < table->count; i++) {
    const struct gd_money_option *option = &table->options[i];
    if (!gd_money_within(option, within))
      continue;
    struct rank rank = rank_of(option, ranked);
    if (!best || rank.first < least.first ||
        (rank.first <= least.first && rank.second < least.second)) {
      best = option;
      least = rank;
    }
  }
  return best;
}

const struct gd_money_option *gd_money_choose(const struct gd_money_table *table,
                                              const struct gd_money_limits *limits) {
  struct gd_money_limits within = *limits;
  if (limits->budget_usd > 0)
    within.days = 0;
  return lowest(table, &within, limits);
}

const struct gd_money_option *gd_money_choose_rented(const struct gd_money_table *table,
                                                     const struct gd_money_limits *limits) {
  const struct gd_money_option *best = NULL;
  for (int i = 0; i < table->count; i++) {
    const struct gd_money_option *option = &table->options[i];
    bool within = isfinite(option->rent_usd) && days_within(option, limits) &&
                  budget_within(option, true, limits);
    if (within && (!best || option->rent_usd < best->rent_usd))
      best = option;
  }
  return best;
}

const struct gd_money_option *gd_money_nearest(const struct gd_money_table *table,
                                               const struct gd_money_limits *limits) {
  struct gd_money_limits all = {0};
  /* Ranked the other way round: by price where money is short, by days where time is. */
  struct gd_money_limits ranked = {.budget_usd = limits->budget_usd > 0 ? 0 : 1, .days = 1};
  return lowest(table, &all, &ranked);
}

/* --- buying or renting --------------------------------------------------------------------- */

double gd_money_run_usd(const struct gd_money_option *option, bool rented) {
  return rented ? option->rent_usd : option->hardware_usd + option->energy_usd;
}

bool gd_money_way_within(const struct gd_money_option *option, bool rented,
                         const struct gd_money_limits *limits) {
  if (limits->ways == (rented ? GD_MONEY_BUY : GD_MONEY_RENT))
    return false;
  return isfinite(gd_money_run_usd(option, rented)) && days_within(option, limits) &&
         budget_within(option, rented, limits);
}

/* Runs from which buying an option costs less than as many rents; 0: never, or not in its life. */
static double runs_to_pay(const struct gd_money_table *table, const struct gd_money_option *option,
                          double rent_usd) {
  double saved_usd = rent_usd - option->energy_usd;
  double life_days = table->terms.life_years.value * GD_MONEY_HOURS_A_YEAR / 24;
  if (!(saved_usd > 0))
    return 0;
  double runs = ceil(option->hardware_usd / saved_usd);
  return runs * option->time.days <= life_days ? runs : 0;
}

/* The cheapest rent is compared with all that can be bought in time, whatever the budget is now. */
static void find_purchase(const struct gd_money_table *table, const struct gd_money_limits *limits,
                          struct gd_money_advice *advice) {
  const struct gd_money_limits in_time = {.days = limits->days, .possible = limits->possible};
  advice->rent = gd_money_choose_rented(table, limits);
  for (int i = 0; i < table->count && advice->rent; i++) {
    const struct gd_money_option *option = &table->options[i];
    advice->for_sale += for_sale(option) && option->time.state == GD_TIME_KNOWN;
    if (!gd_money_way_within(option, false, &in_time))
      continue;
    double runs = runs_to_pay(table, option, advice->rent->rent_usd);
    advice->compared++;
    if (runs > 0 && (!advice->buy || runs < advice->buy_runs)) {
      advice->buy = option;
      advice->buy_runs = runs;
    }
  }
}

/* The fastest or the cheapest way within the limits, and within most; *ways counts them. */
static struct gd_money_way best_way(const struct gd_money_table *table,
                                    const struct gd_money_limits *limits, bool by_days,
                                    double most_usd, double most_days, int *ways) {
  struct gd_money_way best = {0};
  struct rank least = {0};
  *ways = 0;
  for (int i = 0; i < 2 * table->count; i++) {
    const struct gd_money_option *option = &table->options[i / 2];
    bool rented = i % 2 == 1;
    double usd = gd_money_run_usd(option, rented), days = option->time.days;
    if (!gd_money_way_within(option, rented, limits) || usd > most_usd || days > most_days)
      continue;
    struct rank rank = by_days ? (struct rank){days, usd} : (struct rank){usd, days};
    ++*ways;
    if (!best.option || rank.first < least.first ||
        (rank.first <= least.first && rank.second < least.second)) {
      best = (struct gd_money_way){.option = option, .rented = rented, .usd = usd};
      least = rank;
    }
  }
  return best;
}

void gd_money_advise(const struct gd_money_table *table, const struct gd_money_limits *limits,
                     struct gd_money_advice *advice) {
  const double any = (double)INFINITY;
  const bool budget = limits->budget_usd > 0;
  int unused;
  *advice = (struct gd_money_advice){0};
  advice->cheapest = best_way(table, limits, false, any, any, &advice->ways);
  if (!advice->cheapest.option)
    return;
  double most_usd = budget ? any : GD_MONEY_MOST * advice->cheapest.usd;
  advice->fastest = best_way(table, limits, true, most_usd, any, &unused);
  struct gd_money_way taken = budget ? advice->fastest : advice->cheapest;
  GD_ASSERT(taken.option); /* the cheapest is in both limits */
  struct gd_money_way other =
      budget ? best_way(table, limits, false, any, GD_MONEY_NEAR * taken.option->time.days, &unused)
             : best_way(table, limits, true, GD_MONEY_NEAR * taken.usd, any, &unused);
  GD_ASSERT(other.option); /* at least the one taken */
  advice->near = budget ? other.usd <= GD_MONEY_MUCH * taken.usd
                        : other.option->time.days <= GD_MONEY_MUCH * taken.option->time.days;
  if (advice->near)
    taken = other;
  advice->option = taken.option;
  advice->rented = taken.rented;
  advice->usd = taken.usd;
  if (advice->rented)
    find_purchase(table, limits, advice);
}

enum gd_status gd_money_advise_scaled(struct gd_money_table *table,
                                      const struct gd_money_limits *limits,
                                      const struct gd_money_scales *scales,
                                      struct gd_money_advice *advice, struct gd_error *err) {
  struct gd_money_table scaled = *table;
  scaled.options = gd_arena_alloc(&table->arena, (size_t)table->count + 1, sizeof *scaled.options);
  if (!scaled.options)
    return gd_nomem(err, "while prices are varied");
  for (int i = 0; i < table->count; i++) {
    struct gd_money_option *option = &scaled.options[i];
    *option = table->options[i];
    option->time.days *= scales->days;
    option->time.days_low *= scales->days;
    option->time.days_high *= scales->days;
    set_calendar(&table->terms, option);
    option->hardware_usd *= scales->hardware;
    option->experiment_usd *= scales->hardware * scales->days;
    option->energy_usd *= scales->electricity * scales->days;
    option->rent_usd *= scales->rent * scales->days;
    option->rent_usd_per_hour *= scales->rent;
  }
  gd_money_advise(&scaled, limits, advice);
  return GD_OK;
}

/* --- budget and deadline together ---------------------------------------------------------- */

void gd_money_reach_bought(const struct gd_money_table *table, const struct gd_money_limits *limits,
                           struct gd_money_reach *reach) {
  *reach = (struct gd_money_reach){.option = gd_money_choose(table, limits)};
  if (!reach->option)
    return;
  reach->days = limits->days;
  reach->share = limits->days / reach->option->time.days;
  reach->usd = reach->option->hardware_usd;
}

void gd_money_reach_rented(const struct gd_money_table *table, const struct gd_money_limits *limits,
                           struct gd_money_reach *reach) {
  *reach = (struct gd_money_reach){0};
  for (int i = 0; i < table->count; i++) {
    const struct gd_money_option *option = &table->options[i];
    double usd_per_day = option->rent_usd_per_hour * 24;
    if (option->time.state != GD_TIME_KNOWN || !isfinite(usd_per_day))
      continue;
    double days = fmin(limits->days, limits->budget_usd / usd_per_day);
    double share = days / option->time.days;
    if (reach->option && share <= reach->share)
      continue;
    *reach = (struct gd_money_reach){
        .option = option, .days = days, .share = share, .usd = days * usd_per_day};
  }
}
