/*
 * What a search measures first on a machine that nobody measured: what costs more in a step by the
 * plan comes later.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "search/search.h"

/* micro_batch 0: what the policy takes. */
static double step_at(const char *method_name, int ranks, int64_t micro_batch) {
  struct gd_model model;
  struct gd_method method;
  struct gd_error err = {0};
  struct gd_trial plan;
  struct gd_trial_options options = {
      .backend = "cpu", .threads = 1, .ranks = ranks, .device_limit_bytes = INT64_C(1) << 30};
  assert_int_equal(gd_model_load("pythia-14m", &model, &err), GD_OK);
  assert_int_equal(gd_method_parse(method_name, &method, &err), GD_OK);
  model.recipe.seq = 128;
  model.recipe.batch = 64;
  options.method = method;
  options.micro_batch = micro_batch ? GD_MICRO_BATCH_FIXED : GD_MICRO_BATCH_AUTO;
  options.micro_batch_size = micro_batch;
  struct gd_predictor predictor = {.of = {[GD_POINT_NAIVE].error = GD_PREDICT_UNVALIDATED,
                                          [GD_POINT_FREE_LUNCH].error = GD_PREDICT_UNVALIDATED,
                                          [GD_POINT_OFFLOAD].error = GD_PREDICT_UNVALIDATED,
                                          [GD_POINT_OTHER].error = GD_PREDICT_UNVALIDATED}};
  struct gd_prediction prediction;
  gd_rates_guess_cpu(&predictor.rates, 1, 1); /* no core to spare for asynchronous ops */
  if (gd_trial_predict(&model, &options, &predictor, &plan, &prediction, &err) != GD_OK)
    fail_msg("%s", err.text);
  assert_true(prediction.known && prediction.step_s > 0);
  assert_true(prediction.low_s <= 0.6 * prediction.step_s && prediction.high_s > prediction.step_s);
  gd_predictor_deinit(&predictor);
  return prediction.step_s;
}

static double step_of(const char *method_name, int ranks) {
  return step_at(method_name, ranks, 0);
}

static void dearer_methods_come_later(void **state) {
  (void)state;
  /* Recomputation, traffic with the host, gathering twice, the full score matrix. */
  assert_true(step_of("kernels", 1) < step_of("kernels+ckpt", 1));
  assert_true(step_of("kernels", 1) < step_of("kernels+zero1+offload", 1));
  assert_true(step_of("kernels+zero1+offload", 1) < step_of("kernels+zero3+offload", 1));
  assert_true(step_of("kernels+fsdp2", 2) < step_of("kernels+fsdp3", 2));
  /* Parameters that are gathered in each of many passes, against gradients summed once a step. */
  assert_true(step_at("kernels", 2, 1) < step_at("kernels+zero3", 2, 1));
  assert_true(step_of("kernels", 1) < step_of("naive", 1));
  assert_true(step_of("kernels", 2) < step_of("kernels", 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(dearer_methods_come_later)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
