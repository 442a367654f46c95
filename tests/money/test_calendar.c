/*
 * Jobs in a queue: the closed form against jobs that are followed one by one, what a job spends on
 * anything but training, and deadlines at the ends of an interval.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "money/calendar.h"

static void assert_near(double value, double expected) {
  if (!(fabs(value - expected) <= 1e-9 * fabs(expected)))
    fail_msg("%.12g, not %.12g", value, expected);
}

static double done_days(double limit_h, double wait_h, int at_a_time, double bytes, double days,
                        int64_t *jobs) {
  struct gd_queue queue = {
      .wall_limit_s = 3600 * limit_h, .wait_s = 3600 * wait_h, .at_a_time = at_a_time};
  struct gd_calendar calendar;
  gd_calendar_find(&queue, bytes, days, days, days, &calendar);
  if (isfinite(calendar.days)) {
    assert_near(calendar.days_low, calendar.days);
    assert_near(calendar.days_high, calendar.days);
  }
  *jobs = calendar.jobs;
  return calendar.days;
}

static void test_no_queue(void **state) {
  struct gd_calendar calendar;
  (void)state;
  gd_calendar_find(&(struct gd_queue){0}, 1e10, 5, 4, 7, &calendar);
  assert_near(calendar.days, 5);
  assert_near(calendar.days_low, 4);
  assert_near(calendar.days_high, 7);
  assert_int_equal(calendar.jobs, 0);
}

/* Without a limit there is one job: it waits, starts, trains, and writes the model. */
static void test_one_job(void **state) {
  int64_t jobs;
  (void)state;
  assert_near(done_days(0, 6, 1, 0, 2, &jobs), 2 + 6.0 / 24 + GD_QUEUE_STARTUP_S / 86400);
  assert_int_equal(jobs, 1);
  /* A checkpoint of 60 GB is a minute at 1 GB/s; each half an hour it stops the loop a little. */
  double pauses = 60e9 / GD_QUEUE_COPY_BYTES_PER_S / GD_QUEUE_CHECKPOINT_EVERY_S;
  assert_near(done_days(0, 6, 1, 60e9, 2, &jobs),
              2 * (1 + pauses) + 6.0 / 24 + (GD_QUEUE_STARTUP_S + 60) / 86400);
}

/* 24 h: ten minutes are kept for the end, two go into the start, one each into reading and none
   more into writing, which is within the ten. */
static void test_overhead(void **state) {
  struct gd_queue queue = {.wall_limit_s = 86400};
  int64_t jobs;
  (void)state;
  assert_near(gd_queue_overhead_s(&queue, 60e9), 600 + GD_QUEUE_STARTUP_S + 60);
  assert_near(gd_queue_overhead_s(&queue, 900e9), 900 + GD_QUEUE_STARTUP_S + 900);
  /* What one job can train is one job; a second more is two. */
  double most_days = (86400 - gd_queue_overhead_s(&queue, 0)) / 86400;
  done_days(24, 0, 1, 0, most_days * (1 - 1e-9), &jobs);
  assert_int_equal(jobs, 1);
  done_days(24, 0, 1, 0, most_days + 1.0 / 86400, &jobs);
  assert_int_equal(jobs, 2);
  /* A job that never gets to training ends nothing. */
  assert_true(isinf(done_days(0.03, 1, 1, 0, 1, &jobs)));
  assert_true(isinf(done_days(0.3, 1, 1, 2000e9, 1, &jobs)));
}

/* Each job is submitted when the one at_a_time before it has ended, waits since then, and begins
   when the one before it has ended. */
static double followed(int64_t jobs, int at_a_time, double wait_s, double job_s, double last_s) {
  double end_s[256] = {0};
  for (int64_t i = 0; i < jobs; i++) {
    double submitted_s = i < at_a_time ? 0 : end_s[i - at_a_time];
    double free_s = i > 0 ? end_s[i - 1] : 0;
    double begin_s = fmax(free_s, submitted_s + wait_s);
    end_s[i] = begin_s + (i + 1 == jobs ? last_s : job_s);
  }
  return end_s[jobs - 1];
}

static void test_followed(void **state) {
  static const double waits_h[] = {0, 1, 6, 30, 100};
  (void)state;
  for (double days = 0.3; days < 60; days *= 1.7)
    for (int at_a_time = 1; at_a_time <= 6; at_a_time++)
      for (size_t i = 0; i < sizeof waits_h / sizeof *waits_h; i++) {
        int64_t jobs;
        double done_s = 86400 * done_days(12, waits_h[i], at_a_time, 0, days, &jobs);
        struct gd_queue queue = {.wall_limit_s = 43200};
        double train_s = 43200 - gd_queue_overhead_s(&queue, 0);
        assert_true(jobs < 256);
        assert_near((double)jobs, ceil(86400 * days / train_s));
        double last_s = GD_QUEUE_STARTUP_S + 86400 * days - (double)(jobs - 1) * train_s;
        assert_near(done_s, followed(jobs, at_a_time, 3600 * waits_h[i],
                                     GD_QUEUE_STARTUP_S + train_s, last_s));
      }
}

static void test_deadline(void **state) {
  (void)state;
  assert_int_equal(gd_deadline_of(4, 6, 0), GD_DEADLINE_NONE);
  assert_int_equal(gd_deadline_of(4, 6, 6), GD_DEADLINE_LIKELY);
  assert_int_equal(gd_deadline_of(4, 6, 5.99), GD_DEADLINE_AT_RISK);
  assert_int_equal(gd_deadline_of(4, 6, 4), GD_DEADLINE_AT_RISK);
  assert_int_equal(gd_deadline_of(4, 6, 3.99), GD_DEADLINE_NO);
  assert_string_equal(gd_deadline_name(GD_DEADLINE_AT_RISK), "at risk");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_queue), cmocka_unit_test(test_one_job),
      cmocka_unit_test(test_overhead), cmocka_unit_test(test_followed),
      cmocka_unit_test(test_deadline),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
