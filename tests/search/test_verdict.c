/*
 * What several points come to: their order, failures that are one, and the sentence where nothing
 * is an answer.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "search/search.h"

static struct gd_point failed(const char *model, const char *reason) {
  struct gd_point point = {.argument = model, .source = GD_SEARCH_RUN};
  point.trial.status = GD_TRIAL_FAILED;
  snprintf(point.trial.model, sizeof point.trial.model, "%s", model);
  snprintf(point.trial.reason, sizeof point.trial.reason, "%s", reason);
  return point;
}

static void test_rank(void **state) {
  static const struct gd_model models[2];
  struct gd_point points[] = {
      {.number = 0, .model = &models[1], .prediction.days = 1},
      {.number = 1, .model = &models[0], .trial.status = GD_TRIAL_INFEASIBLE},
      {.number = 2, .model = &models[0], .prediction.days = 5},
      {.number = 3, .model = &models[0], .prediction.days = 2},
      {.number = 4, .model = &models[0], .prediction.days = 5},
  };
  static const int order[] = {3, 2, 4, 1, 0};
  (void)state;
  gd_points_rank(points, 5);
  for (int i = 0; i < 5; i++)
    assert_int_equal(points[i].number, order[i]);
}

static void test_verdict(void **state) {
  struct gd_point points[] = {failed("a", "no library"), failed("a", "no library"),
                              failed("a", "no library")};
  struct gd_search search = {.points = points, .count = 3};
  struct gd_error err = {0};
  (void)state;
  /* One cause is one sentence. */
  assert_true(gd_search_fails_alike(&search));
  assert_int_equal(gd_search_verdict(&search, &err), GD_MISMATCH);
  assert_string_equal(err.text, "all 3 trials failed: no library");
  /* Several: the first. */
  snprintf(points[1].trial.reason, sizeof points[1].trial.reason, "no time");
  assert_false(gd_search_fails_alike(&search));
  assert_false(gd_point_same_failure(&points[0], &points[1]));
  err = (struct gd_error){0};
  assert_int_equal(gd_search_verdict(&search, &err), GD_MISMATCH);
  assert_string_equal(err.text, "a failed: no library");
  /* What is pending may still be good. */
  points[2].source = GD_SEARCH_PENDING;
  search.n_pending = 1;
  err = (struct gd_error){0};
  assert_false(gd_point_same_failure(&points[0], &points[2]));
  assert_int_equal(gd_search_verdict(&search, &err), GD_MISMATCH);
  assert_non_null(strstr(err.text, "1 of 3 are pending"));
  /* One good trial is an answer. */
  points[1].trial.status = GD_TRIAL_OK;
  assert_int_equal(gd_search_verdict(&search, &err), GD_OK);
}

/* The peak that MFU is a share of is that of the GEMMs. */
static void test_peak(void **state) {
  struct gd_trial trial = {.precision = GD_PRECISION_BF16, .backend = "cuda", .method = "tf32"};
  (void)state;
  assert_int_equal(gd_trial_peak(&trial), GD_PEAK_BF16);
  trial.precision = GD_PRECISION_FP32;
  assert_int_equal(gd_trial_peak(&trial), GD_PEAK_TF32);
  snprintf(trial.backend, sizeof trial.backend, "cpu");
  assert_int_equal(gd_trial_peak(&trial), GD_PEAK_FP32);
  snprintf(trial.backend, sizeof trial.backend, "cuda");
  snprintf(trial.method, sizeof trial.method, "naive");
  assert_int_equal(gd_trial_peak(&trial), GD_PEAK_FP32);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_rank),
      cmocka_unit_test(test_verdict),
      cmocka_unit_test(test_peak),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
