/*
 * Predictors of many GPUs that read calibrations once and share what they look up: each says what
 * one of its own says, whatever was looked up before.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "predict/predict.h"

static const char *const gpus[] = {"3090", "h100", "a100", "h200", "t4"};
enum { GPUS = sizeof gpus / sizeof *gpus };

/* Work of sizes that nobody measured, between points of the calibration. */
static struct gd_work work_near(const struct gd_rates *rates, uint32_t at) {
  struct gd_work work = rates->points[at].work;
  for (int i = 0; i < GD_WORK_SIZES; i++)
    work.sizes[i] *= 1.3;
  work.flops *= 1.7;
  work.bytes *= 1.5;
  return work;
}

static void test_same_seconds(void **state) {
  struct gd_hw hw = {0};
  struct gd_error err = {0};
  struct gd_calibrations *calibrations;
  struct gd_predictor alone[GPUS] = {0}, shared[GPUS] = {0};
  int sharing = 0;
  (void)state;
  assert_int_equal(gd_hw_load(&hw, &err), GD_OK);
  assert_int_equal(gd_calibrations_new(&calibrations, &err), GD_OK);
  for (int i = 0; i < GPUS; i++) {
    struct gd_target target;
    assert_int_equal(gd_hw_target(&hw, gpus[i], 2, 1, NULL, NULL, &target, &err), GD_OK);
    assert_int_equal(gd_predictor_for_target(&alone[i], &target, &err), GD_OK);
    assert_int_equal(gd_predictor_by(calibrations, &shared[i], &target, &err), GD_OK);
    if (i > 0)
      sharing += gd_rates_remember_with(&shared[i].rates, &shared[0].rates);
    gd_rates_remember(&shared[i].rates);
    assert_string_equal(shared[i].basis, alone[i].basis);
  }
  gd_calibrations_free(calibrations); /* predictors do not need them any more */
  assert_true(sharing > 0);
  assert_true(alone[0].rates.n_points > 100);
  for (int round = 0; round < 2; round++)
    for (uint32_t at = 0; at < alone[0].rates.n_points; at += 7)
      for (int i = 0; i < GPUS; i++) {
        struct gd_work work = work_near(&alone[0].rates, at);
        double own = gd_rates_seconds(&alone[i].rates, &work),
               theirs = gd_rates_seconds(&shared[i].rates, &work);
        assert_memory_equal(&own, &theirs, sizeof own);
      }
  for (int i = 0; i < GPUS; i++) {
    gd_predictor_deinit(&alone[i]);
    gd_predictor_deinit(&shared[i]);
  }
  gd_hw_deinit(&hw);
  assert_int_equal(gd_mem_live_blocks(), 0);
}

/* Other points are other factors. */
static void test_other_points(void **state) {
  struct gd_hw hw = {0};
  struct gd_error err = {0};
  struct gd_target target;
  struct gd_predictor one = {0}, other = {0};
  (void)state;
  assert_int_equal(gd_hw_load(&hw, &err), GD_OK);
  assert_int_equal(gd_hw_target(&hw, "h100", 1, 1, NULL, NULL, &target, &err), GD_OK);
  assert_int_equal(gd_predictor_for_target(&one, &target, &err), GD_OK);
  assert_int_equal(gd_predictor_like(&other, &one, &target, &err), GD_OK);
  assert_false(gd_rates_remember_with(&other.rates, &one.rates)); /* it keeps none */
  gd_rates_remember(&one.rates);
  other.rates.points[3].factor += 0.5;
  assert_false(gd_rates_remember_with(&other.rates, &one.rates));
  other.rates.points[3].factor = one.rates.points[3].factor;
  assert_true(gd_rates_remember_with(&other.rates, &one.rates));
  gd_predictor_deinit(&one); /* what they share lives on */
  struct gd_work work = work_near(&other.rates, 3);
  assert_true(gd_rates_seconds(&other.rates, &work) >= 0);
  gd_predictor_deinit(&other);
  gd_hw_deinit(&hw);
  assert_int_equal(gd_mem_live_blocks(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_seconds),
      cmocka_unit_test(test_other_points),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
