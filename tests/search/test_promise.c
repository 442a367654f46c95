/*
 * The order of promise: what costs more in a step by the plan comes later.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "search/search.h"

static double promise(const char *method_name, int ranks) {
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
  if (gd_trial_plan(&model, &options, &plan, &err) != GD_OK)
    fail_msg("%s", err.text);
  double seconds = gd_search_promise(&plan, &method);
  assert_true(seconds > 0);
  return seconds;
}

static void dearer_methods_come_later(void **state) {
  (void)state;
  /* Recomputation, traffic with the host, gathering twice, the full score matrix. */
  assert_true(promise("kernels", 1) < promise("kernels+ckpt", 1));
  assert_true(promise("kernels", 1) < promise("kernels+zero1+offload", 1));
  assert_true(promise("kernels+zero1+offload", 1) < promise("kernels+zero3+offload", 1));
  assert_true(promise("kernels+fsdp2", 2) < promise("kernels+fsdp3", 2));
  assert_true(promise("kernels", 2) < promise("kernels+zero3", 2));
  assert_true(promise("kernels", 1) < promise("naive", 1));
  assert_true(promise("kernels", 2) < promise("kernels", 1));
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(dearer_methods_come_later)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
