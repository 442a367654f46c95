/*
 * Looks at a GPU's clocks: what is counted, what a trial keeps of it, what it may have lost, and
 * the thread that looks, on a backend that tells what it is told to.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "trial/clocks.h"

static void count(struct gd_clocks_watch *watch, int times, unsigned reasons, int mhz) {
  for (int i = 0; i < times; i++)
    gd_clocks_count(
        watch,
        &(struct gd_clocks){
            .reasons = reasons, .mhz = mhz, .max_mhz = 2000, .power_w = 600, .power_limit_w = 700});
}

static void tell(const struct gd_clocks_watch *watch, struct gd_trial *trial) {
  *trial = (struct gd_trial){0};
  assert_int_equal(gd_clocks_tell(watch, NULL, trial, NULL), GD_OK);
}

static void test_hot(void **state) {
  static struct gd_clocks_watch watch;
  static struct gd_trial trial;
  (void)state;
  count(&watch, 11, GD_CLOCKS_POWER_CAP, 1800);
  count(&watch, 8, GD_CLOCKS_THERMAL | GD_CLOCKS_SLOWDOWN, 1000);
  count(&watch, 1, GD_CLOCKS_POWER_BRAKE, 1500); /* a twentieth: not worth a word */
  count(&watch, 50, GD_CLOCKS_IDLE | GD_CLOCKS_THERMAL, 200);
  tell(&watch, &trial);
  assert_int_equal(trial.gpu_looks, 20);
  assert_true(fabs(trial.gpu_throttled_share - 0.45) < 1e-9);
  assert_true(fabs(trial.gpu_power_capped_share - 0.55) < 1e-9);
  assert_int_equal(trial.gpu_clock_mhz, 1800);
  assert_int_equal(trial.gpu_low_clock_mhz, 1000);
  assert_int_equal(trial.gpu_max_clock_mhz, 2000);
  assert_true(fabs(trial.gpu_power_w - 600) < 1e-9);
  assert_true(fabs(trial.gpu_power_limit_w - 700) < 1e-9);
  assert_string_equal(trial.gpu_clock_reasons, "thermal, hardware slowdown, power cap");
  assert_true(fabs(gd_trial_gpu_lost_share(&trial) - 0.225) < 1e-9);
  assert_true(fabs(gd_trial_held_share(&trial) - 0.225) < 1e-9);
}

/* The usual state of a card under load is not held against it. */
static void test_capped(void **state) {
  static struct gd_clocks_watch watch;
  static struct gd_trial trial;
  (void)state;
  count(&watch, 10, GD_CLOCKS_POWER_CAP | GD_CLOCKS_SETTING, 1400);
  tell(&watch, &trial);
  assert_true(trial.gpu_throttled_share == 0);
  assert_true(fabs(trial.gpu_power_capped_share - 1) < 1e-9);
  assert_string_equal(trial.gpu_clock_reasons, "power cap, clock setting");
  assert_true(gd_trial_held_share(&trial) == 0);
}

/* A card that tells reasons and no clocks may have lost all of the time. */
static void test_no_clocks(void **state) {
  static struct gd_clocks_watch watch;
  static struct gd_trial trial;
  (void)state;
  tell(&watch, &trial);
  assert_int_equal(trial.gpu_looks, 0);
  assert_string_equal(trial.gpu_clock_reasons, "");
  count(&watch, 3, GD_CLOCKS_POWER_BRAKE, 0);
  count(&watch, 1, 0, GD_CLOCKS_MOST_MHZ); /* no clock of today */
  tell(&watch, &trial);
  assert_int_equal(trial.gpu_looks, 4);
  assert_int_equal(trial.gpu_clock_mhz, 0);
  assert_int_equal(trial.gpu_low_clock_mhz, 0);
  assert_true(fabs(gd_trial_gpu_lost_share(&trial) - 0.75) < 1e-9);
}

static bool is_known;
static atomic_int asked;

static bool tell_clocks(struct gd_backend *backend, struct gd_clocks *now) {
  (void)backend;
  atomic_fetch_add(&asked, 1);
  *now = (struct gd_clocks){.mhz = 1500, .max_mhz = 2000};
  return is_known;
}

/* What was counted until it had looked so often; *all: how often it has looked. */
static int looks_in(struct gd_backend *backend, int least, int *all) {
  static struct gd_clocks_watch watch;
  atomic_store(&asked, 0);
  gd_clocks_watch_start(&watch, backend);
  for (int i = 0; i < 10000 && atomic_load(&asked) < least; i++)
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
  gd_clocks_watch_stop(&watch);
  *all = atomic_load(&asked);
  nanosleep(&(struct timespec){.tv_nsec = 150000000}, NULL);
  assert_int_equal(atomic_load(&asked), *all); /* nobody looks any more */
  return watch.looks;
}

static void test_watch(void **state) {
  const struct gd_backend_ops with = {.clocks = tell_clocks}, without = {0};
  int all, counted;
  (void)state;
  is_known = true;
  counted = looks_in(&(struct gd_backend){.ops = &with}, 0, &all);
  assert_true(counted >= 1 && counted == all); /* at once */
  counted = looks_in(&(struct gd_backend){.ops = &with}, 4, &all);
  assert_true(counted >= 4 && counted == all);
  is_known = false;
  counted = looks_in(&(struct gd_backend){.ops = &with}, 2, &all);
  assert_true(counted == 0 && all >= 2);
  counted = looks_in(&(struct gd_backend){.ops = &without}, 0, &all);
  assert_true(counted == 0 && all == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_hot),
      cmocka_unit_test(test_capped),
      cmocka_unit_test(test_no_clocks),
      cmocka_unit_test(test_watch),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
