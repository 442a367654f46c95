/*
 * Plans for several kinds of GPUs at once are those that each would get alone: micro-batch, bytes,
 * kept blocks, what is missing where nothing fits, and predicted days.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "search/plans.h"
#include "support/ok.h"

/* By memory, but for the last two: whoever comes next to whom, the answer is the same. */
static const char *const gpus[] = {"v100-16gb", "3090", "4090", "a100-40gb", "a6000",
                                   "h100",      "a100", "h200", "b200",      "3090-ti"};
enum { GPUS = sizeof gpus / sizeof *gpus };

static void check_alike(const struct gd_trial_target *found, const struct gd_trial *alone,
                        const struct gd_prediction *prediction) {
  const struct gd_trial *trial = &found->trial;
  assert_int_equal(trial->status, alone->status);
  assert_string_equal(trial->reason, alone->reason);
  assert_int_equal(trial->micro_batch, alone->micro_batch);
  assert_int_equal(trial->kept_blocks, alone->kept_blocks);
  assert_int_equal(trial->peak_bytes, alone->peak_bytes);
  assert_int_equal(trial->host_bytes, alone->host_bytes);
  assert_true(trial->exec_flops_per_step == alone->exec_flops_per_step);
  if (alone->status == GD_TRIAL_PLANNED)
    assert_true(found->prediction.known && found->prediction.days == prediction->days);
  else
    assert_false(found->prediction.known);
}

static void check(struct gd_hw *hw, const char *name, int64_t layers, int count,
                  const char *method) {
  struct gd_model model;
  struct gd_error err = {0};
  struct gd_target targets[GPUS];
  struct gd_predictor predictors[GPUS] = {0};
  struct gd_trial_target found[GPUS] = {0};
  OK(gd_model_load(name, &model, &err));
  model.config.neox.layers = layers;
  struct gd_plan_family family = {.model = &model, .targets = found, .count = GPUS};
  family.options = (struct gd_trial_options){.backend = "cuda", .ranks = count};
  OK(gd_method_parse(method, &family.options.method, &err));
  for (int i = 0; i < GPUS; i++) {
    OK(gd_hw_target(hw, gpus[i], count, 1, NULL, NULL, &targets[i], &err));
    OK(gd_predictor_for_target(&predictors[i], &targets[i], &err));
    found[i].target = &targets[i];
    found[i].predictor = &predictors[i];
  }
  OK(gd_plan_families(&family, 1, &err));
  for (int i = 0; i < GPUS; i++) {
    struct gd_trial_options options = family.options;
    struct gd_trial trial;
    struct gd_prediction prediction;
    options.target = &targets[i];
    OK(found[i].status);
    OK(gd_trial_predict(&model, &options, &predictors[i], &trial, &prediction, &err));
    check_alike(&found[i], &trial, &prediction);
    gd_predictor_deinit(&predictors[i]);
  }
}

static void test_as_alone(void **state) {
  struct gd_hw hw = {0};
  struct gd_error err = {0};
  (void)state;
  OK(gd_hw_load(&hw, &err));
  check(&hw, "pythia-160m", 6, 1, "free-lunch"); /* all fit, some keep */
  check(&hw, "pythia-1.4b", 12, 2, "free-lunch+ckpt+zero1");
  check(&hw, "pythia-6.9b", 8, 1, "free-lunch"); /* some fit */
  check(&hw, "pythia-12b", 12, 1, "naive");      /* few fit */
  gd_hw_deinit(&hw);
}

/* A predictor that was made after another one of the same GPU is the one that was made alone. */
static void test_predictor_like(void **state) {
  struct gd_hw hw = {0};
  struct gd_error err = {0};
  (void)state;
  OK(gd_hw_load(&hw, &err));
  for (int i = 0; i < GPUS; i++) {
    struct gd_target one, eight;
    struct gd_predictor first = {0}, alone = {0}, like = {0};
    OK(gd_hw_target(&hw, gpus[i], 1, 1, NULL, NULL, &one, &err));
    OK(gd_hw_target(&hw, gpus[i], 8, 1, NULL, NULL, &eight, &err));
    OK(gd_predictor_for_target(&first, &one, &err));
    OK(gd_predictor_for_target(&alone, &eight, &err));
    OK(gd_predictor_like(&like, &first, &eight, &err));
    assert_string_equal(like.basis, alone.basis);
    for (int of = 0; of < GD_POINT_CLASSES; of++) {
      assert_string_equal(like.of[of].words, alone.of[of].words);
      assert_true(like.of[of].error == alone.of[of].error);
      assert_int_equal(like.of[of].validated, alone.of[of].validated);
    }
    assert_true(like.rates.peer_link.bytes_per_s == alone.rates.peer_link.bytes_per_s);
    assert_int_equal(like.rates.n_points, alone.rates.n_points);
    assert_memory_equal(like.rates.first, alone.rates.first, sizeof like.rates.first);
    gd_predictor_deinit(&first);
    gd_predictor_deinit(&alone);
    gd_predictor_deinit(&like);
  }
  gd_hw_deinit(&hw);
}

/* What one target cannot have leaves the others their answer. */
static void test_one_refused(void **state) {
  struct gd_hw hw = {0};
  struct gd_error err = {0};
  struct gd_model model;
  struct gd_target targets[2];
  struct gd_predictor predictor = {0};
  (void)state;
  OK(gd_hw_load(&hw, &err));
  OK(gd_model_load("pythia-14m", &model, &err));
  OK(gd_hw_target(&hw, "a100", 3, 1, NULL, NULL, &targets[0], &err)); /* 1024 does not divide */
  OK(gd_hw_target(&hw, "a100", 1, 1, NULL, NULL, &targets[1], &err));
  OK(gd_predictor_for_target(&predictor, &targets[1], &err));
  struct gd_trial_target found[2] = {{.target = &targets[0], .predictor = &predictor},
                                     {.target = &targets[1], .predictor = &predictor}};
  struct gd_trial_options options = {.backend = "cuda"};
  OK(gd_method_parse("free-lunch", &options.method, &err));
  OK(gd_trial_predict_targets(&model, &options, found, 2, &err));
  assert_int_equal(found[0].status, GD_BAD_INPUT);
  assert_int_equal(found[1].status, GD_OK);
  assert_true(found[1].prediction.known);
  gd_predictor_deinit(&predictor);
  gd_hw_deinit(&hw);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_as_alone),
      cmocka_unit_test(test_one_refused),
      cmocka_unit_test(test_predictor_like),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
