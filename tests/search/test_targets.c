/*
 * Plans for several kinds of GPUs at once are those that each would get alone: micro-batch, bytes,
 * saved layers, what is missing where nothing fits, and predicted days.
 */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/cpus.h"
#include "search/points.h"
#include "support/ok.h"

/* By memory, but for the last two: whatever their order, the answer is the same. */
static const char *const gpus[] = {"v100-16gb", "3090", "4090", "a100-40gb", "a6000",
                                   "h100",      "a100", "h200", "b200",      "3090-ti"};
enum { GPUS = sizeof gpus / sizeof *gpus };

static void check_alike(const struct gd_point *found, const struct gd_trial *alone,
                        const struct gd_prediction *prediction) {
  const struct gd_trial *trial = &found->trial;
  assert_int_equal(trial->status, alone->status);
  assert_string_equal(trial->reason, alone->reason);
  assert_int_equal(trial->micro_batch, alone->micro_batch);
  assert_int_equal(trial->saved_blocks, alone->saved_blocks);
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
  struct gd_point_machine machines[GPUS] = {0};
  static struct gd_trial trials[GPUS];
  static struct gd_prediction predictions[GPUS];
  struct gd_points points;
  struct gd_method parsed;
  OK(gd_model_load(name, &model, &err));
  model.config.neox.layers = layers;
  OK(gd_method_parse(method, &parsed, &err));
  for (int i = 0; i < GPUS; i++) {
    OK(gd_hw_target(hw, gpus[i], count, 1, NULL, NULL, &targets[i], &err));
    OK(gd_predictor_for_target(&predictors[i], &targets[i], &err));
    machines[i].target = &targets[i];
    machines[i].predictor = &predictors[i];
  }
  OK(gd_points_make(&(struct gd_points_asked){.models = &model,
                                              .n_models = 1,
                                              .methods = &parsed,
                                              .n_methods = 1,
                                              .machines = machines,
                                              .n_machines = GPUS,
                                              .options = {.backend = "cuda", .ranks = count}},
                    &points, &err));
  OK(gd_points_plan(points.all, points.count, &err));
  OK(gd_points_error(points.all, points.count, true, &err));
  for (int i = 0; i < GPUS; i++) {
    OK(gd_trial_predict(&model, &points.all[i].options, &predictors[i], &trials[i], &predictions[i],
                        &err));
    check_alike(&points.all[i], &trials[i], &predictions[i]);
  }
  /* In rounds, with what the rounds before have found. */
  struct gd_points_kept *kept = gd_points_kept_new();
  for (int i = 0; i < GPUS; i += GPUS / 3) {
    int some = GPUS - i < GPUS / 3 ? GPUS - i : GPUS / 3;
    OK(gd_points_plan_with(kept, points.all + GPUS - i - some, some, &err));
  }
  OK(gd_points_error(points.all, points.count, true, &err));
  for (int i = 0; i < GPUS; i++) {
    check_alike(&points.all[i], &trials[i], &predictions[i]);
    gd_predictor_deinit(&predictors[i]);
  }
  gd_points_kept_free(kept);
  gd_points_free(&points);
}

static void test_as_alone(void **state) {
  struct gd_hw hw = {0};
  struct gd_error err = {0};
  (void)state;
  OK(gd_hw_load(&hw, &err));
  check(&hw, "pythia-160m", 6, 1, "free-lunch"); /* all fit, some save */
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

/* A GPU at hand that was never calibrated is predicted by the catalogue, not as a CPU. */
static void test_machine_of_the_catalogue(void **state) {
  struct gd_hw hw = {0};
  struct gd_error err = {0};
  struct gd_device_info info = {.name = "NVIDIA GeForce RTX 3090", .threads = 4};
  struct gd_predictor here = {0}, there = {0};
  struct gd_target target;
  (void)state;
  setenv("XDG_DATA_HOME", "/nonexistent", 1);
  OK(gd_hw_load(&hw, &err));
  OK(gd_hw_target(&hw, "3090", 1, 1, NULL, NULL, &target, &err));
  OK(gd_predictor_for_target(&there, &target, &err));
  OK(gd_predictor_for_machine(&here, &info, 1, &err));
  assert_string_equal(here.basis, there.basis);
  assert_memory_equal(here.rates.flops, there.rates.flops, sizeof here.rates.flops);
  assert_true(here.rates.memory_bytes_per_s == there.rates.memory_bytes_per_s);
  gd_predictor_deinit(&here);
  gd_predictor_deinit(&there);
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
  struct gd_point found[2] = {
      {.model = &model, .predictor = &predictor, .options = {.target = &targets[0]}},
      {.model = &model, .predictor = &predictor, .options = {.target = &targets[1]}}};
  for (int i = 0; i < 2; i++)
    OK(gd_method_parse("free-lunch", &found[i].options.method, &err));
  OK(gd_points_plan(found, 2, &err));
  assert_int_equal(found[0].status, GD_BAD_INPUT);
  assert_int_equal(found[0].trial.status, GD_TRIAL_FAILED);
  assert_int_equal(found[1].status, GD_OK);
  assert_true(found[1].prediction.known);
  OK(gd_points_error(found, 2, false, &err));
  assert_int_equal(gd_points_error(found, 2, true, &err), GD_BAD_INPUT);
  gd_predictor_deinit(&predictor);
  gd_hw_deinit(&hw);
}

/* Ranks on one machine divide its cores, unless the environment says how many threads each has. */
static void test_threads(void **state) {
  (void)state;
  int cores = gd_cpus(1);
  unsetenv("OMP_NUM_THREADS");
  assert_int_equal(gd_points_threads(0), 0);
  assert_int_equal(gd_points_threads(1), 0);
  for (int ranks = 2; ranks <= 2 * cores; ranks++) {
    int threads = gd_points_threads(ranks);
    assert_true(threads >= 1);
    assert_true(threads == 1 || threads * ranks <= gd_cpus(ranks));
  }
  assert_int_equal(gd_points_threads(1000 * cores), 1);
  setenv("OMP_NUM_THREADS", "3", 1);
  assert_int_equal(gd_points_threads(2), 0);
  unsetenv("OMP_NUM_THREADS");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_threads),
      cmocka_unit_test(test_as_alone),
      cmocka_unit_test(test_one_refused),
      cmocka_unit_test(test_predictor_like),
      cmocka_unit_test(test_machine_of_the_catalogue),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
