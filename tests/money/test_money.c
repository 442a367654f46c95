/*
 * Money: the arithmetic of docs/cost.md on machines made up for the purpose, fronts with ties,
 * choosing at the edges, and the words of a grant proposal.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "money/money.h"

static void assert_near(double value, double expected) {
  if (!(fabs(value - expected) <= 1e-9 * fabs(expected)))
    fail_msg("%.12g, not %.12g", value, expected);
}

/* --- one option ---------------------------------------------------------------------------- */

static const struct gd_gpu gpu = {.name = "g", .title = "Example G", .power_w = 400};
static const struct gd_rent rent = {.gpu = "g", .provider = "P", .usd_per_gpu_hour = 2};
static const struct gd_machine machine = {
    .name = "m", .gpu = "g", .count = 8, .usd = 182500, .power_w = 800};

static struct gd_money_terms terms(void) {
  return (struct gd_money_terms){.life_years = {5, "s"},
                                 .utilisation = {0.5, "s"},
                                 .pue = {1.5, "s"},
                                 .usd_per_kwh = {0.1, "s"},
                                 .g_co2_per_kwh = {400, "s"},
                                 .mfu = {0.4, "s"}};
}

static struct gd_money_option option_of(const struct gd_machine *of, double days) {
  struct gd_money_option option = {.machine = of, .gpu = &gpu, .rent = &rent};
  struct gd_money_terms t = terms();
  if (days > 0)
    option.time = (struct gd_time){.state = GD_TIME_KNOWN,
                                   .times = GD_TIMES_ANALYTIC,
                                   .days = days,
                                   .days_low = days,
                                   .days_high = days};
  gd_money_price(&t, &option);
  return option;
}

static void test_price(void **state) {
  (void)state;
  struct gd_money_option option = option_of(&machine, 10);
  assert_near(option.hardware_usd, 182500);
  assert_near(option.experiment_usd, 1000); /* 10 of 1,825 days */
  assert_near(option.power_w, 3600);        /* (8 x 400 x 0.5 + 800) x 1.5 */
  assert_near(option.energy_kwh, 864);
  assert_near(option.energy_usd, 86.4);
  assert_near(option.co2_kg, 345.6);
  assert_near(option.rent_usd_per_hour, 16);
  assert_near(option.rent_usd, 3840);
  /* 16 - 0.36 dollars an hour are saved; a month has 730 hours. */
  assert_near(option.break_even_months, 182500 / 15.64 / 730);
}

static void test_own_and_rent(void **state) {
  (void)state;
  struct gd_money_terms t = terms();
  struct gd_money_option option = option_of(&machine, 10);
  assert_near(gd_money_own_usd(&t, &option, 0), 182500);
  assert_near(gd_money_own_usd(&t, &option, 60), 182500 + 0.36 * 43800);
  assert_near(gd_money_rent_usd(&option, 60), 16.0 * 43800);
  /* At the break-even both cost the same. */
  double months = option.break_even_months;
  assert_near(gd_money_own_usd(&t, &option, months), gd_money_rent_usd(&option, months));
}

static void test_price_unknown(void **state) {
  (void)state;
  struct gd_machine not_for_sale = machine;
  not_for_sale.usd = 0;
  struct gd_money_option option = option_of(&not_for_sale, 10);
  assert_true(isnan(option.hardware_usd) && isnan(option.experiment_usd));
  assert_true(isnan(option.break_even_months));
  assert_near(option.rent_usd, 3840);
  option = option_of(&machine, 0);
  assert_near(option.hardware_usd, 182500);
  assert_true(isnan(option.experiment_usd) && isnan(option.energy_kwh) && isnan(option.rent_usd));
  assert_true(isfinite(option.break_even_months)); /* needs no days */
  struct gd_money_terms t = terms();
  option.rent = NULL;
  gd_money_price(&t, &option);
  assert_true(isnan(option.rent_usd_per_hour) && isnan(option.break_even_months));
}

static void test_never(void **state) {
  (void)state;
  struct gd_money_terms t = terms();
  struct gd_money_option option = option_of(&machine, 10);
  t.rent_usd_per_gpu_hour.value = 0.36 / 8; /* what electricity costs */
  gd_money_price(&t, &option);
  assert_true(isinf(option.break_even_months));
  t.rent_usd_per_gpu_hour.value = 0.5; /* the user's price comes before the catalogue's */
  gd_money_price(&t, &option);
  assert_near(option.rent_usd_per_hour, 4);
}

static void test_physics(void **state) {
  (void)state;
  assert_int_equal(gd_physics_of(0), GD_PHYSICS_FINE);
  assert_int_equal(gd_physics_of(0.8), GD_PHYSICS_FINE);
  assert_int_equal(gd_physics_of(0.81), GD_PHYSICS_DOUBTFUL);
  assert_int_equal(gd_physics_of(1), GD_PHYSICS_DOUBTFUL);
  assert_int_equal(gd_physics_of(1.001), GD_PHYSICS_IMPOSSIBLE);
}

/* --- fronts -------------------------------------------------------------------------------- */

static void assert_front(const double *x, const double *y, int count, const char *expected) {
  bool on[16];
  char found[17] = "";
  gd_money_front(x, y, count, on);
  for (int i = 0; i < count; i++)
    found[i] = on[i] ? '1' : '0';
  assert_string_equal(found, expected);
}

static void test_front(void **state) {
  (void)state;
  assert_front((double[]){1, 2, 3, 4}, (double[]){9, 5, 6, 1}, 4, "1101");
  /* The same price: the faster one alone. The same days: the cheaper one alone. */
  assert_front((double[]){1, 1, 2, 3}, (double[]){9, 8, 7, 7}, 4, "0110");
  /* Equal points stand together, and both leave when something beats them. */
  assert_front((double[]){2, 2, 5}, (double[]){4, 4, 1}, 3, "111");
  assert_front((double[]){2, 2, 1}, (double[]){4, 4, 4}, 3, "001");
  double nan = (double)NAN;
  assert_front((double[]){1, nan, 3}, (double[]){nan, 1, 5}, 3, "001");
  assert_front((double[]){7}, (double[]){7}, 1, "1");
}

/* --- choosing ------------------------------------------------------------------------------ */

enum { COUNT = 5 };
static const struct gd_machine machines[COUNT] = {
    {.name = "slow", .gpu = "g", .count = 1, .usd = 1000},
    {.name = "same", .gpu = "g", .count = 2, .usd = 3000},
    {.name = "fast", .gpu = "g", .count = 4, .usd = 9000},
    {.name = "unknown", .gpu = "g", .count = 8, .usd = 500},
    {.name = "rented", .gpu = "g", .count = 8, .usd = 0},
};
static const double all_days[COUNT] = {100, 100, 20, 0, 10};

static struct gd_money_table table_of(struct gd_money_option options[COUNT]) {
  static struct gd_model model = {.name = "example"};
  for (int i = 0; i < COUNT; i++)
    options[i] = option_of(&machines[i], all_days[i]);
  return (struct gd_money_table){
      .model = &model, .terms = terms(), .options = options, .count = COUNT};
}

static const char *chosen(double budget_usd, double days) {
  struct gd_money_option options[COUNT];
  struct gd_money_table table = table_of(options);
  const struct gd_money_option *option =
      gd_money_choose(&table, &(struct gd_money_limits){.budget_usd = budget_usd, .days = days});
  return option ? option->machine->name : "none";
}

static void test_choose(void **state) {
  (void)state;
  assert_string_equal(chosen(1000, 0), "slow"); /* exactly its price; the unknown is no answer */
  assert_string_equal(chosen(999, 0), "none");
  assert_string_equal(chosen(8999, 0), "slow"); /* as fast as `same`, and cheaper */
  assert_string_equal(chosen(9000, 0), "fast");
  assert_string_equal(chosen(0, 100), "slow");
  assert_string_equal(chosen(0, 99), "fast");
  assert_string_equal(chosen(0, 19), "none");  /* what is not for sale cannot be bought */
  assert_string_equal(chosen(1e6, 1), "fast"); /* both: the fastest that the money buys */
  assert_string_equal(chosen(0, 0), "slow");   /* 1,000 x 100 against 9,000 x 20, and energy */
}

static void test_choose_possible(void **state) {
  (void)state;
  struct gd_money_option options[COUNT];
  struct gd_money_table table = table_of(options);
  struct gd_money_limits limits = {.budget_usd = 9000, .possible = true};
  options[2].time.share = 1;
  assert_string_equal(gd_money_choose(&table, &limits)->machine->name, "fast");
  options[2].time.share = 1.01;
  assert_string_equal(gd_money_choose(&table, &limits)->machine->name, "slow");
  limits.possible = false;
  assert_string_equal(gd_money_choose(&table, &limits)->machine->name, "fast");
}

static void test_nearest(void **state) {
  (void)state;
  struct gd_money_option options[COUNT];
  struct gd_money_table table = table_of(options);
  assert_string_equal(
      gd_money_nearest(&table, &(struct gd_money_limits){.budget_usd = 1})->machine->name, "slow");
  assert_string_equal(gd_money_nearest(&table, &(struct gd_money_limits){.days = 1})->machine->name,
                      "fast");
}

static void test_rented(void **state) {
  (void)state;
  struct gd_money_option options[COUNT];
  struct gd_money_table table = table_of(options);
  /* 2 dollars a GPU-hour: slow 4,800, same 9,600, fast 3,840, rented 3,840. */
  struct gd_money_limits limits = {.days = 15};
  assert_string_equal(gd_money_choose_rented(&table, &limits)->machine->name, "rented");
  limits = (struct gd_money_limits){.budget_usd = 3839, .days = 15};
  assert_null(gd_money_choose_rented(&table, &limits));
}

/* Renting is an answer like buying; a table of machines that are not for sale has one. */
static void test_advise(void **state) {
  (void)state;
  struct gd_money_option options[COUNT];
  struct gd_money_table table = table_of(options);
  struct gd_money_advice advice;
  /* Bought: slow 1,000, same 3,000, fast 9,000, with energy. Rented: see test_rented. */
  gd_money_advise(&table, &(struct gd_money_limits){0}, &advice);
  assert_string_equal(advice.option->machine->name, "slow");
  assert_false(advice.rented);
  assert_int_equal(advice.ways, 3 + 4);
  assert_true(fabs(advice.usd - options[0].hardware_usd - options[0].energy_usd) < 1e-9);
  assert_null(advice.buy);
  /* In time only two are: the cheapest is rented, and pays for `fast` within some runs. */
  gd_money_advise(&table, &(struct gd_money_limits){.days = 25}, &advice);
  assert_true(advice.rented && fabs(advice.usd - 3840) < 1e-9);
  assert_string_equal(advice.option->machine->name, "rented"); /* of equals the fastest */
  assert_string_equal(advice.buy->machine->name, "fast");
  double saved_usd = 3840 - options[2].energy_usd;
  assert_true(fabs(advice.buy_runs - ceil(9000 / saved_usd)) < 1e-9 && advice.buy_runs > 1);
  /* A budget that buys nothing may rent: the fastest within it. */
  gd_money_advise(&table, &(struct gd_money_limits){.budget_usd = 3840, .days = 25}, &advice);
  assert_true(advice.rented);
  assert_string_equal(advice.option->machine->name, "rented");
  gd_money_advise(&table, &(struct gd_money_limits){.budget_usd = 3839, .days = 25}, &advice);
  assert_null(advice.option);
  assert_int_equal(advice.ways, 0);
  /* Nothing for sale. */
  for (int i = 0; i < COUNT; i++)
    options[i].hardware_usd = (double)NAN;
  gd_money_advise(&table, &(struct gd_money_limits){0}, &advice);
  assert_true(advice.rented && advice.option && !advice.buy);
}

/* A few percent of dollars do not decide over many days, nor a few percent of days over dollars. */
static void test_advise_near(void **state) {
  (void)state;
  struct gd_money_option options[COUNT];
  struct gd_money_table table = table_of(options);
  struct gd_money_limits limits = {.ways = GD_MONEY_RENT};
  struct gd_money_advice advice;
  /* Rented: `slow` for 4,800 and 100 days, `fast` for 4,990 and 20, `rented` dear and fastest. */
  options[2].rent_usd = 4990;
  options[4].rent_usd = 9700;
  gd_money_advise(&table, &limits, &advice);
  assert_true(advice.near && advice.rented);
  assert_string_equal(advice.option->machine->name, "fast");
  assert_string_equal(advice.cheapest.option->machine->name, "slow");
  assert_string_equal(advice.fastest.option->machine->name, "fast"); /* 9,700 is over twice 4,800 */
  assert_ptr_equal(advice.rent, &options[0]); /* buying is compared with the cheapest rent */
  /* Not so near, or not so much faster: the cheapest. */
  options[2].rent_usd = 5100;
  gd_money_advise(&table, &limits, &advice);
  assert_true(!advice.near && advice.option == &options[0]);
  options[2].rent_usd = 4990;
  options[2].time.days = 51;
  gd_money_advise(&table, &limits, &advice);
  assert_true(!advice.near && advice.option == &options[0]);
  /* With a budget the fastest, unless a few percent of its days save half of its dollars. */
  limits.budget_usd = 1e5;
  gd_money_advise(&table, &limits, &advice);
  assert_true(!advice.near && advice.option == &options[4]);
  assert_ptr_equal(advice.fastest.option, &options[4]);
  options[2].time.days = 10.4;
  options[2].rent_usd = 4800;
  gd_money_advise(&table, &limits, &advice);
  assert_true(advice.near && advice.option == &options[2]);
  /* Buying alone. */
  limits.ways = GD_MONEY_BUY;
  gd_money_advise(&table, &limits, &advice);
  assert_true(!advice.rented && advice.ways == 3 && !advice.rent);
}

/* Cheaper hardware tips the scale, and cheaper rents tip it back; the table stays as it was. */
static void test_advise_scaled(void **state) {
  (void)state;
  struct gd_money_option options[COUNT];
  struct gd_money_table table = table_of(options);
  struct gd_money_limits limits = {.days = 25};
  struct gd_money_scales scales = {.rent = 1, .hardware = 0.1, .electricity = 1, .days = 1};
  struct gd_money_advice advice;
  struct gd_error err = {0};
  assert_int_equal(gd_money_advise_scaled(&table, &limits, &scales, &advice, &err), GD_OK);
  assert_false(advice.rented);
  assert_true(fabs(advice.usd - 900 - options[2].energy_usd) < 1e-9);
  scales.rent = 0.01;
  assert_int_equal(gd_money_advise_scaled(&table, &limits, &scales, &advice, &err), GD_OK);
  assert_true(advice.rented && fabs(advice.usd - 38.40) < 1e-9);
  scales = (struct gd_money_scales){.rent = 1, .hardware = 1, .electricity = 1, .days = 2};
  assert_int_equal(gd_money_advise_scaled(&table, &limits, &scales, &advice, &err), GD_OK);
  assert_true(advice.option->time.days == 20 && options[4].time.days == 10);
  gd_arena_deinit(&table.arena);
}

static void test_reach(void **state) {
  (void)state;
  struct gd_money_option options[COUNT];
  struct gd_money_table table = table_of(options);
  struct gd_money_limits limits = {.budget_usd = 1000, .days = 25};
  struct gd_money_reach reach;
  gd_money_reach_bought(&table, &limits, &reach);
  assert_string_equal(reach.option->machine->name, "slow");
  assert_near(reach.share, 0.25);
  assert_near(reach.usd, 1000);
  assert_near(reach.days, 25);
  /* 8 GPUs for 384 dollars a day: 1,000 last 2.6 of the 10 days. */
  gd_money_reach_rented(&table, &limits, &reach);
  assert_true(reach.option->machine->count >= 4);
  assert_near(reach.share, 1000.0 / 3840);
  assert_near(reach.usd, 1000);
  /* More money than time: the deadline ends it, and money is left. */
  limits = (struct gd_money_limits){.budget_usd = 1e6, .days = 5};
  gd_money_reach_rented(&table, &limits, &reach);
  assert_string_equal(reach.option->machine->name, "rented");
  assert_near(reach.share, 0.5);
  assert_near(reach.usd, 1920);
  limits.budget_usd = 10;
  gd_money_reach_bought(&table, &limits, &reach);
  assert_null(reach.option);
}

/* --- names --------------------------------------------------------------------------------- */

static void test_times(void **state) {
  (void)state;
  enum gd_times times = GD_TIMES_COUNT;
  assert_true(gd_times_parse("paper", &times));
  assert_int_equal(times, GD_TIMES_PAPER);
  assert_true(gd_times_parse(gd_times_name(GD_TIMES_AUTO), &times));
  assert_int_equal(times, GD_TIMES_AUTO);
  assert_false(gd_times_parse("guessed", &times));
  assert_false(gd_times_parse("", &times));
}

/* --- what a user says ---------------------------------------------------------------------- */

static void test_terms(void **state) {
  (void)state;
  struct gd_money_terms terms = {0};
  struct gd_error err = {0};
  const char *provider = NULL;
  const struct gd_money_figure *const figures[GD_MONEY_TERM_COUNT] = {
      &terms.usd_per_kwh,   &terms.pue, &terms.utilisation,
      &terms.g_co2_per_kwh, &terms.mfu, &terms.rent_usd_per_gpu_hour};
  for (int i = 0; i < GD_MONEY_TERM_COUNT; i++) {
    gd_money_terms_set(&terms, (enum gd_money_term)i, 7 + i, "--given");
    assert_string_equal(figures[i]->source, "--given");
    assert_true(figures[i]->value > 6.9 + i && figures[i]->value < 7.1 + i);
    assert_int_equal(terms.utilisation_given, i >= GD_MONEY_UTILISATION);
  }
  assert_int_equal(gd_money_terms_set_rent(&terms, "1.5", &provider, &err), GD_OK);
  assert_null(provider);
  assert_true(terms.rent_usd_per_gpu_hour.value > 1.49 && terms.rent_usd_per_gpu_hour.value < 1.51);
  assert_int_equal(gd_money_terms_set_rent(&terms, "runpod", &provider, &err), GD_OK);
  assert_string_equal(provider, "runpod");
  assert_int_equal(gd_money_terms_set_rent(&terms, "8x", &provider, &err), GD_OK);
  static const char *const wrong[] = {"0", "-1", "1001", "nan", "inf"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_equal(gd_money_terms_set_rent(&terms, wrong[i], &provider, &err), GD_BAD_INPUT);
  assert_true(terms.rent_usd_per_gpu_hour.value > 1.49 && terms.rent_usd_per_gpu_hour.value < 1.51);
}

/* An interval is held against the deadline, not the days in its middle; the paper's days are. */
static void test_deadlines(void **state) {
  struct gd_money_terms t = terms();
  struct gd_money_option option = option_of(&machine, 10);
  (void)state;
  option.time.times = GD_TIMES_PREDICTED;
  option.time.days_low = 8;
  option.time.days_high = 14;
  gd_money_price(&t, &option);
  struct gd_money_table table = {.terms = t, .options = &option, .count = 1};
  struct gd_money_advice advice;
  gd_money_advise(&table, &(struct gd_money_limits){.days = 14}, &advice);
  assert_ptr_equal(advice.option, &option);
  gd_money_advise(&table, &(struct gd_money_limits){.days = 13.9}, &advice);
  assert_null(advice.option);
  gd_money_advise(&table, &(struct gd_money_limits){.days = 13.9, .at_risk = true}, &advice);
  assert_ptr_equal(advice.option, &option);
  gd_money_advise(&table, &(struct gd_money_limits){.days = 7.9, .at_risk = true}, &advice);
  assert_null(advice.option);
  /* Days in a queue count, dollars of rent are those of computing. */
  double rent_usd = option.rent_usd;
  table.terms.queue = t.queue = (struct gd_queue){.wall_limit_s = 86400, .wait_s = 43200};
  gd_money_price(&t, &option);
  assert_near(option.rent_usd, rent_usd);
  assert_true(option.calendar.days_high > 14 + 14 / 2.0);
  gd_money_advise(&table, &(struct gd_money_limits){.days = 14}, &advice);
  assert_null(advice.option);
  gd_money_advise(&table, &(struct gd_money_limits){.days = 25}, &advice);
  assert_ptr_equal(advice.option, &option);
  t.queue = (struct gd_queue){0};
  option.time.times = GD_TIMES_PAPER;
  gd_money_price(&t, &option);
  assert_int_equal(gd_money_deadline(&option, 10), GD_DEADLINE_LIKELY);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_terms),           cmocka_unit_test(test_price),
      cmocka_unit_test(test_own_and_rent),    cmocka_unit_test(test_price_unknown),
      cmocka_unit_test(test_never),           cmocka_unit_test(test_physics),
      cmocka_unit_test(test_front),           cmocka_unit_test(test_choose),
      cmocka_unit_test(test_choose_possible), cmocka_unit_test(test_nearest),
      cmocka_unit_test(test_rented),          cmocka_unit_test(test_advise),
      cmocka_unit_test(test_advise_scaled),   cmocka_unit_test(test_reach),
      cmocka_unit_test(test_advise_near),     cmocka_unit_test(test_times),
      cmocka_unit_test(test_deadlines),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
