/*
 * The queue behind a computation: what hides, what shows, and that a bound network is the time.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "predict/streams.h"

static void is_near(double a, double b) {
  assert_true(fabs(a - b) < 1e-12);
}

/* 10 s of work next to 4 s of a collective, each at half its speed meanwhile. */
static void test_hidden(void **state) {
  double left_s[1];
  struct gd_streams s = {.speed = 0.5, .left_s = left_s};
  (void)state;
  gd_streams_push(&s, 4);
  gd_streams_compute(&s, 10);
  gd_streams_wait(&s, s.pushed);
  is_near(s.now_s, 8 + 6);
}

/* What is longer than the work goes on alone at its own speed. */
static void test_shown(void **state) {
  double left_s[1];
  struct gd_streams s = {.speed = 0.5, .left_s = left_s};
  (void)state;
  gd_streams_push(&s, 10);
  gd_streams_compute(&s, 1);
  gd_streams_wait(&s, s.pushed);
  is_near(s.now_s, 2 + 9);
}

/* One after the other, in their order; a wait for the first is none for the second. */
static void test_order(void **state) {
  double left_s[2];
  struct gd_streams s = {.speed = 1, .left_s = left_s};
  (void)state;
  uint32_t first = gd_streams_push(&s, 2), second = gd_streams_push(&s, 3);
  gd_streams_wait(&s, first);
  is_near(s.now_s, 2);
  gd_streams_compute(&s, 1);
  gd_streams_wait(&s, second);
  is_near(s.now_s, 5);
  gd_streams_wait(&s, 0);
  is_near(s.now_s, 5);
}

static void test_speed(void **state) {
  double left_s[1];
  struct gd_streams s = {.speed = gd_streams_gpu_speed(0.25), .left_s = left_s};
  (void)state;
  gd_streams_push(&s, 100);
  gd_streams_compute(&s, 8);
  is_near(s.now_s, 10);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_hidden),
      cmocka_unit_test(test_shown),
      cmocka_unit_test(test_order),
      cmocka_unit_test(test_speed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
