/*
 * The GPU model and the stacks: that GPUs and work behave as physics has them, that what a fit
 * leaves out has no influence on it, and what is promised of rows that a fit has not seen.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "predict/published_errors.h"

static struct gd_published published;
static struct gd_published_errors errors;

static int load(void **state) {
  struct gd_error err = {0};
  (void)state;
  if (gd_published_load(&published, &err) != GD_OK ||
      gd_published_errors_make(&published, &errors, &err) != GD_OK) {
    print_error("%s\n", err.text);
    return -1;
  }
  return 0;
}

static int unload(void **state) {
  (void)state;
  gd_published_errors_deinit(&errors);
  gd_published_deinit(&published);
  return 0;
}

static struct gd_gpu_model model_of(const char *name) {
  const struct gd_gpu *gpu;
  struct gd_error err = {0};
  struct gd_gpu_model model;
  assert_int_equal(gd_hw_gpu(&published.hw, name, &gpu, &err), GD_OK);
  gd_gpu_model_make(gpu, &errors.fit.gpu, &model);
  return model;
}

static double gemm(const char *name, double n) {
  struct gd_gpu_model model = model_of(name);
  return gd_gpu_model_gemm_flops(&model, n, n, n) / model.flops[GD_PEAK_FP16];
}

/* Shares of the data sheet's rate: cards whose power limit is low for their rate fall behind. */
static void test_power(void **state) {
  (void)state;
  assert_true(gemm("a100", 8192) > 0.8 && gemm("a100", 8192) < 1);
  assert_true(gemm("a100-pcie", 8192) < gemm("a100", 8192));
  assert_true(gemm("l4", 8192) < 0.75 && gemm("t4", 8192) < 0.75);
  assert_true(gemm("h100-pcie", 8192) < gemm("h100", 8192));
  assert_true(gemm("4090", 8192) > 0.9); /* half rate, and clocks above the data sheet's */
  assert_true(gemm("h100", 512) < 0.5 * gemm("h100", 8192));
}

static double seconds(const char *name, enum gd_op_kind kind, const double sizes[4], double flops,
                      double bytes) {
  static const struct gd_gpu_software software = {1, 1, false};
  struct gd_gpu_model model = model_of(name);
  struct gd_work work = {.kind = kind, .unit = GD_PEAK_BF16, .flops = flops, .bytes = bytes};
  memcpy(work.sizes, sizes, sizeof work.sizes);
  return gd_gpu_model_seconds(&model, &work, &software, 1);
}

static void test_work(void **state) {
  (void)state;
  static const double whole[] = {1, 13824, 16384, 4096}, more[] = {1, 13952, 16384, 4096};
  static const double bytes[] = {1e9, 1024, 1, 1};
  /* One row of tiles more than a whole number of waves. */
  double a = seconds("a100", GD_OP_matmul, whole, 2.0 * 13824 * 16384 * 4096, 1e9);
  double b = seconds("a100", GD_OP_matmul, more, 2.0 * 13952 * 16384 * 4096, 1e9);
  assert_true(b > a);
  /* A gigabyte is as fast as the memory. */
  double copy = seconds("a100", GD_OP_add, bytes, 0, 1e9);
  assert_true(copy > 1e9 / 2.039e12 && copy < 1.7 * 1e9 / 2.039e12);
  /* Attention with smaller heads has more exponentials a flop. */
  static const double wide[] = {64, 8192, 128, 1}, narrow[] = {128, 8192, 64, 1};
  double flops = 2.0 * 64 * 8192 * 8192 * 128;
  assert_true(seconds("a100", GD_OP_attention, narrow, flops, 1e8) >
              seconds("a100", GD_OP_attention, wide, flops, 1e8));
  /* Hopper runs kernels for Ampere at less than its peaks' ratio. */
  double gain = seconds("a100", GD_OP_attention, wide, flops, 1e8) /
                seconds("h100", GD_OP_attention, wide, flops, 1e8);
  assert_true(gain > 1.3 && gain < 989.4 / 312);
}

/* Whatever the rows that are left out say, the fit is the same to the last bit. */
static void test_left_out_is_unseen(void **state) {
  (void)state;
  const struct gd_published_leave leaves[] = {
      {.gpu = "h100"}, {.source = 1}, {.stack = "megatron"}, {.fold = 2}, {.architecture = "ada"}};
  for (size_t l = 0; l < sizeof leaves / sizeof *leaves; l++) {
    struct gd_published_fit before, after;
    struct gd_error err = {0};
    int left = 0;
    assert_int_equal(gd_published_fit(&published, &leaves[l], NULL, &before, &err), GD_OK);
    for (int i = 0; i < published.count; i++)
      if (gd_published_left_out(&published, &leaves[l], &published.rows[i])) {
        published.rows[i].per_gpu *= 7;
        left++;
      }
    assert_int_equal(gd_published_fit(&published, &leaves[l], NULL, &after, &err), GD_OK);
    for (int i = 0; i < published.count; i++)
      if (gd_published_left_out(&published, &leaves[l], &published.rows[i]))
        published.rows[i].per_gpu /= 7;
    assert_true(left > 0 && left < published.count);
    assert_int_equal(before.rows, published.count - left);
    assert_memory_equal(&before.gpu, &after.gpu, sizeof before.gpu);
    assert_memory_equal(before.stack, after.stack, sizeof before.stack);
  }
}

/* Rates that the model itself wrote, with other parameters than those a fit starts from. */
static void test_fit_recovers(void **state) {
  (void)state;
  static double kept[1024];
  struct gd_published_fit truth, fit;
  struct gd_error err = {0};
  assert_true(published.count <= 1024);
  assert_int_equal(gd_published_fit(&published, NULL, NULL, &truth, &err), GD_OK);
  truth.gpu.value[GD_GPU_MEMORY] *= 0.9;
  truth.gpu.value[GD_GPU_GEMM] *= 0.95;
  for (int i = 0; i < published.count; i++) {
    kept[i] = published.rows[i].per_gpu;
    published.rows[i].per_gpu = gd_published_predict(&published, &published.rows[i], &truth, NULL);
  }
  assert_int_equal(gd_published_fit(&published, NULL, NULL, &fit, &err), GD_OK);
  for (int i = 0; i < published.count; i++) {
    double found = gd_published_predict(&published, &published.rows[i], &fit, NULL);
    assert_true(fabs(log(found / published.rows[i].per_gpu)) < 0.05);
    published.rows[i].per_gpu = kept[i];
  }
}

static bool has_stack_elsewhere(const struct gd_published_row *row, const void *user) {
  (void)user;
  for (int i = 0; i < published.count; i++)
    if (published.rows[i].stack == row->stack &&
        strcmp(published.rows[i].gpu_name, row->gpu_name) != 0)
      return true;
  return false;
}

static bool is_launch_bound(const struct gd_published_row *row, const void *user) {
  (void)user;
  return strncmp(row->model, "gpt-h1024", 9) == 0;
}

static bool is_long(const struct gd_published_row *row, const void *user) {
  (void)user;
  return row->seq == 65536;
}

static void check(const char *what, enum gd_published_unseen unseen,
                  bool (*takes)(const struct gd_published_row *, const void *), int rows,
                  double median, double p90) {
  struct gd_published_score score = gd_published_score(&errors, unseen, takes, NULL);
  if (score.rows < rows || score.median > median || score.p90 > p90)
    fail_msg("%s: %d rows, median %g, 90 %% within %g", what, score.rows, score.median, score.p90);
}

static void test_promises(void **state) {
  (void)state;
  assert_int_equal(published.count, 462);
  check("GPU left out", GD_UNSEEN_GPU, has_stack_elsewhere, 200, 0.10, 0.25);
  check("architecture left out", GD_UNSEEN_ARCHITECTURE, has_stack_elsewhere, 200, 0.10, 0.25);
  check("source and stack left out", GD_UNSEEN_STACK, NULL, 462, 0.20, 0.35);
  check("bound by launches", GD_UNSEEN_MODEL, is_launch_bound, 100, 0.20, 0.25);
  check("65,536 tokens, GPU left out", GD_UNSEEN_GPU, is_long, 9, 0.20, 0.25);
  /* Every source for itself. */
  for (int s = 0; s < published.n_sources; s++) {
    double worst = 0;
    for (int i = 0; i < published.count; i++)
      if (published.rows[i].group == s && !isnan(gd_published_error(&errors, GD_UNSEEN_GPU, i)))
        worst = fmax(worst, fabs(gd_published_error(&errors, GD_UNSEEN_GPU, i)));
    assert_true(worst < 0.35);
  }
}

static void test_intervals(void **state) {
  (void)state;
  const struct gd_published_interval *of = errors.of;
  assert_true(of[GD_KNOWN_BOTH].high / of[GD_KNOWN_BOTH].low <= 1.6);
  assert_true(of[GD_KNOWN_NOTHING].high > of[GD_KNOWN_BOTH].high);
  for (int i = 0; i < GD_KNOWN_COUNT; i++) {
    assert_true(of[i].covered >= 0.9);
    assert_true(of[i].low < 1 && of[i].high > 1);
  }
}

/* What is in the program is what `gpudays fit` writes. */
static enum gd_published_known known_of(const struct gd_fitted *fitted, const struct gd_gpu *gpu,
                                        const struct gd_stack_facts *facts) {
  struct gd_fitted_ground ground;
  gd_fitted_stand(fitted, gpu, facts, NULL, 0, &ground);
  assert_ptr_equal(ground.interval, &fitted->of[ground.known]);
  return ground.known;
}

static void test_kept(void **state) {
  (void)state;
  struct gd_fitted fitted;
  struct gd_error err = {0};
  const struct gd_stack_facts *facts;
  const struct gd_gpu *gpu;
  assert_int_equal(gd_fitted_load(&fitted, &err), GD_OK);
  for (int i = 0; i < GD_GPU_PARAMETERS; i++)
    if (fabs(log(fitted.gpu.value[i] / errors.fit.gpu.value[i])) > 0.01)
      fail_msg("%s: run gpudays fit -o data/fitted/published.json",
               gd_gpu_parameter((enum gd_gpu_parameter)i)->name);
  for (int i = 0; i < GD_KNOWN_COUNT; i++)
    assert_true(fabs(log(fitted.of[i].high / errors.of[i].high)) < 0.01);
  for (int i = 0; i < published.stacks.count; i++)
    for (int k = 0; k < GD_STACK_FITTED_COUNT; k++) {
      double kept = published.stacks.all[i].value[k], found = errors.fit.stack[i][k];
      if (published.stacks.all[i].rows > 0)
        assert_true(fabs(log(kept / found)) < 0.01);
    }
  assert_int_equal(gd_stacks_find(&published.stacks, "composer-fsdp", &facts, &err), GD_OK);
  assert_int_equal(gd_hw_gpu(&published.hw, "h100", &gpu, &err), GD_OK);
  assert_int_equal(known_of(&fitted, gpu, facts), GD_KNOWN_BOTH);
  assert_int_equal(gd_hw_gpu(&published.hw, "l40s", &gpu, &err), GD_OK);
  assert_int_equal(known_of(&fitted, gpu, facts), GD_KNOWN_STACK);
  assert_int_equal(gd_hw_gpu(&published.hw, "v100-32gb", &gpu, &err), GD_OK);
  assert_int_equal(known_of(&fitted, gpu, facts), GD_KNOWN_STACK_ALONE);
  assert_int_equal(gd_stacks_find(&published.stacks, "torchtitan", &facts, &err), GD_OK);
  assert_int_equal(known_of(&fitted, gpu, facts), GD_KNOWN_NOTHING);
  assert_int_equal(gd_stacks_find(&published.stacks, "jax", &facts, &err), GD_BAD_INPUT);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_power),        cmocka_unit_test(test_work),
      cmocka_unit_test(test_promises),     cmocka_unit_test(test_intervals),
      cmocka_unit_test(test_kept),         cmocka_unit_test(test_left_out_is_unseen),
      cmocka_unit_test(test_fit_recovers),
  };
  return cmocka_run_group_tests(tests, load, unload);
}
