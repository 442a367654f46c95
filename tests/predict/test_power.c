/*
 * What the limit of its power leaves of a GPU's clock, and what trials teach: those of a GPU that
 * draws more and has a faster host are predicted from those of another model.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "predict/learn.h"
#include "predict/predict_trial.h"

static struct gd_power h200(void) {
  struct gd_hw hw = {0};
  struct gd_power power;
  const struct gd_gpu *gpu;
  assert_int_equal(gd_hw_load(&hw, NULL), GD_OK);
  assert_int_equal(gd_hw_gpu(&hw, "h200", &gpu, NULL), GD_OK);
  gd_power_of(gpu, &power);
  gd_hw_deinit(&hw);
  return power;
}

static void clocks_fall_to_the_limit(void **state) {
  struct gd_power power = h200();
  struct gd_power_load load = {.flops = 9e14, .bytes = 1e12, .seconds = 1, .flop_s = 1};
  (void)state;
  assert_true(power.limit_w == 700 && power.idle_w > 0 && power.idle_w < 150);
  double clock = gd_power_clock(&power, &load);
  assert_true(clock > 0.8 && clock < 1);
  assert_true(fabs(gd_power_watts(&power, &load, clock) - 700) < 1);
  /* The rate that its joules are from is the one that it holds. */
  load = (struct gd_power_load){.flops = 792e12, .seconds = 1, .flop_s = 1};
  assert_true(fabs(gd_power_clock(&power, &load) - 1) < 0.01);
  /* What moves memory or waits has its clock, and draws less. */
  load = (struct gd_power_load){.flops = 1e14, .bytes = 2e12, .seconds = 1, .flop_s = 0.2};
  assert_true(gd_power_clock(&power, &load) == 1);
  assert_true(gd_power_watts(&power, &load, 1) > 250 && gd_power_watts(&power, &load, 1) < 350);
  /* More energy, less clock; no limit, no power. */
  load = (struct gd_power_load){.flops = 9e14, .bytes = 1e12, .seconds = 1, .flop_s = 1};
  power.flop_joules *= 2;
  assert_true(gd_power_clock(&power, &load) < clock);
  power.limit_w = 0;
  assert_true(gd_power_clock(&power, &load) == 1 && gd_power_watts(&power, &load, 1) == 0);
}

/* --- learning ------------------------------------------------------------------------------ */

static void embedded(struct gd_rates *rates) {
  *rates = (struct gd_rates){0};
  assert_int_equal(gd_calibration_find("h200", rates, NULL, 0, NULL), GD_OK);
}

/* A trial that took as long as a GPU with these three numbers would. */
static struct gd_trial made(const char *model, const char *method, const struct gd_learned *truth) {
  struct gd_trial trial = {0};
  struct gd_prediction prediction;
  struct gd_hw hw = {0};
  struct gd_target target;
  struct gd_predictor predictor;
  struct gd_model read;
  struct gd_error err = {0};
  assert_int_equal(gd_hw_load(&hw, &err), GD_OK);
  assert_int_equal(gd_hw_target(&hw, "h200", 1, 0, NULL, NULL, &target, &err), GD_OK);
  target.cpus = 16;
  assert_int_equal(gd_predictor_for_target(&predictor, &target, &err), GD_OK);
  predictor.rates.learned = *truth;
  struct gd_trial_options options = {.target = &target,
                                     .micro_batch = GD_MICRO_BATCH_FIXED,
                                     .micro_batch_size = 16,
                                     .host_limit_bytes = INT64_MAX / 4};
  assert_int_equal(gd_method_parse(method, &options.method, &err), GD_OK);
  assert_int_equal(gd_model_load(model, &read, &err), GD_OK);
  if (gd_trial_predict(&read, &options, &predictor, &trial, &prediction, &err) != GD_OK)
    fail_msg("%s", err.text);
  trial.status = GD_TRIAL_OK;
  trial.step_s = prediction.step_s;
  trial.threads = 16;
  snprintf(trial.device, sizeof trial.device, "NVIDIA H200");
  gd_predictor_deinit(&predictor);
  gd_hw_deinit(&hw);
  return trial;
}

static void what_trials_say_is_learned(void **state) {
  static const struct gd_learned truth = {1.5, 0.6, 1.05};
  static const char *const models[] = {"pythia-1b", "pythia-410m"};
  static const char *const methods[] = {"free-lunch", "free-lunch+fsdp3+offload"};
  struct gd_rates rates;
  struct gd_error err = {0};
  struct gd_learner *learner = gd_learner_new();
  (void)state;
  embedded(&rates);
  rates.learned_trials = rates.n_without = 0;
  assert_non_null(learner);
  for (int m = 0; m < 2; m++)
    for (int k = 0; k < 2; k++) {
      struct gd_trial trial = made(models[m], methods[k], &truth);
      assert_int_equal(gd_learner_add(learner, &rates, &trial, &err), GD_OK);
      if (m + k == 0) { /* one model is too few */
        assert_int_equal(gd_learner_learn(learner, &rates, "a test", &err), GD_BAD_INPUT);
        assert_non_null(strstr(err.text, "two models are needed"));
      }
      snprintf(trial.device, sizeof trial.device, "another");
      assert_int_equal(gd_learner_add(learner, &rates, &trial, &err), GD_OK);
    }
  assert_int_equal(gd_learner_count(learner), 4);
  if (gd_learner_learn(learner, &rates, "a test", &err) != GD_OK)
    fail_msg("%s", err.text);
  /* Both models are at the limit, so that a little more energy and a shorter step do as well. */
  if (rates.learned.energy < 1.3 || rates.learned.host > 0.8 || rates.learned_worst > 0.06)
    fail_msg("%g %g %g, off by %g", rates.learned.energy, rates.learned.host, rates.learned.step,
             rates.learned_worst);
  assert_int_equal(rates.n_without, 2);
  assert_true(rates.learned_median < 0.03 && rates.errors[GD_POINT_OFFLOAD].trials == 2);
  gd_rates_leave_out(&rates, "pythia-1b");
  assert_true(rates.learned.energy == rates.without[0].learned.energy &&
              rates.learned.host == rates.without[0].learned.host);
  gd_learner_free(learner);
  gd_rates_deinit(&rates);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(clocks_fall_to_the_limit),
      cmocka_unit_test(what_trials_say_is_learned),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
