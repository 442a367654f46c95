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
  struct gd_gpu_fit fit;
  struct gd_gpu_model model;
  const struct gd_gpu *gpu;
  assert_int_equal(gd_hw_load(&hw, NULL), GD_OK);
  assert_int_equal(gd_hw_gpu(&hw, "h200", &gpu, NULL), GD_OK);
  assert_int_equal(gd_gpu_fit_load(&fit, NULL), GD_OK);
  gd_gpu_model_make(gpu, &fit, &model);
  gd_hw_deinit(&hw);
  return model.power;
}

/* A program of one second, of which some is bound by arithmetic. */
static double one_second(void *user, double clock) {
  const double *bound_s = user;
  return 1 + *bound_s * (1 / clock - 1);
}

static double clock_of(const struct gd_power *power, double flops, double bytes, double bound_s,
                       double *watts) {
  struct gd_power_load load = {0};
  gd_power_add(power, GD_PEAK_BF16, flops, bytes, &load);
  double clock = gd_power_clock(power, &load, one_second, &bound_s);
  *watts = gd_power_watts(power, &load, one_second(&bound_s, clock), clock);
  return clock;
}

static void clocks_fall_to_the_limit(void **state) {
  struct gd_power power = h200();
  double watts;
  (void)state;
  assert_true(power.limit_w == 700 && power.idle_w > 0 && power.idle_w < 150);
  double clock = clock_of(&power, 9e14, 1e12, 1, &watts);
  assert_true(clock > 0.8 && clock < 1);
  assert_true(watts > 699 && watts <= 700);
  /* What moves memory or waits has its clock, and draws less. */
  assert_true(clock_of(&power, 1e14, 2e12, 0.2, &watts) == 1);
  assert_true(watts > 250 && watts < 350);
  /* More energy, less clock; no limit, no power. */
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    power.flop_joules[i] *= 2;
  assert_true(clock_of(&power, 9e14, 1e12, 1, &watts) < clock);
  power.limit_w = 0;
  assert_true(clock_of(&power, 9e14, 1e12, 1, &watts) == 1 && watts == 0);
}

/* A step of pythia-410m on a GPU of the catalogue whose board may have that many times its watts.
 */
static struct gd_prediction with_limit(const char *name, double times, double *limit_w) {
  struct gd_hw hw = {0};
  struct gd_target target;
  struct gd_predictor predictor;
  struct gd_prediction prediction;
  struct gd_trial trial;
  struct gd_model model;
  struct gd_error err = {0};
  assert_int_equal(gd_hw_load(&hw, &err), GD_OK);
  assert_int_equal(gd_hw_target(&hw, name, 1, 0, NULL, NULL, &target, &err), GD_OK);
  struct gd_gpu gpu = *target.gpu;
  gpu.power_w *= times;
  *limit_w = gpu.power_w;
  target.gpu = &gpu;
  struct gd_trial_options options = {.target = &target,
                                     .micro_batch = GD_MICRO_BATCH_FIXED,
                                     .micro_batch_size = 2,
                                     .host_limit_bytes = INT64_MAX / 4};
  assert_int_equal(gd_method_parse("free-lunch", &options.method, &err), GD_OK);
  assert_int_equal(gd_model_load("pythia-410m", &model, &err), GD_OK);
  if (gd_predictor_for_target(&predictor, &target, &err) != GD_OK ||
      gd_trial_predict(&model, &options, &predictor, &trial, &prediction, &err) != GD_OK)
    fail_msg("%s", err.text);
  assert_true(prediction.known);
  gd_predictor_deinit(&predictor);
  gd_hw_deinit(&hw);
  return prediction;
}

/* The limit counts once, where it binds, and with the watts that are printed. */
static void a_limit_counts_once(void **state) {
  static const char *const gpus[] = {"h200", "h100", "a100", "3090", "4090", "l4", "b200"};
  (void)state;
  for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
    double few_w, more_w, most_w, all_w;
    struct gd_prediction few = with_limit(gpus[i], 0.5, &few_w);
    struct gd_prediction more = with_limit(gpus[i], 1, &more_w);
    struct gd_prediction most = with_limit(gpus[i], 5, &most_w);
    struct gd_prediction all = with_limit(gpus[i], 50, &all_w);
    assert_true(few.micro_step.clock < 1 && most.micro_step.clock == 1);
    /* Where it does not bind, any larger one gives the same to the last bit. */
    assert_true(most.step_s == all.step_s && most.micro_step.seconds == all.micro_step.seconds);
    assert_true(few.step_s >= more.step_s && more.step_s >= most.step_s);
    /* Where it binds, time grows by no more than the clock falls, */
    assert_true(few.micro_step.seconds <= most.micro_step.seconds / few.micro_step.clock + 1e-9);
    /* to the clock at which the board draws its limit, which is what energy is counted with. */
    if (fabs(few.micro_step.power_w / few_w - 1) > 0.02)
      fail_msg("%s: %g W of %g", gpus[i], few.micro_step.power_w, few_w);
    assert_true(most.micro_step.power_w < most_w && most.power_w <= most.micro_step.power_w);
    double joules =
        few.micro_step.power_w * (few.step_s - few.update_s) + few.update.power_w * few.update_s;
    assert_true(fabs(joules / (few.power_w * few.step_s) - 1) < 1e-9);
  }
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
      cmocka_unit_test(a_limit_counts_once),
      cmocka_unit_test(what_trials_say_is_learned),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
