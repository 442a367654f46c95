/*
 * Trials: micro-batch search against brute force, the guards, the statistics.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "trial/measure.h"

static void load(const char *name, struct gd_model *model) {
  struct gd_error err = {0};
  assert_int_equal(gd_model_load(name, model, &err), GD_OK);
}

static void plan(const struct gd_model *model, struct gd_trial_options *options,
                 struct gd_trial *trial) {
  struct gd_error err = {0};
  options->backend = "cpu";
  if (gd_trial_plan(model, options, trial, &err) != GD_OK)
    fail_msg("%s", err.text);
}

static int64_t peak_of(const struct gd_model *model, int64_t micro_batch) {
  struct gd_trial trial;
  plan(model,
       &(struct gd_trial_options){.micro_batch = GD_MICRO_BATCH_FIXED,
                                  .micro_batch_size = micro_batch,
                                  .device_limit_bytes = INT64_MAX},
       &trial);
  return trial.peak_bytes;
}

static void test_micro_batch_search(void **state) {
  struct gd_model model;
  struct gd_trial trial;
  (void)state;
  load("pythia-14m", &model);
  model.recipe.batch = 40;
  for (int64_t want = 1; want <= 13; want += 3) {
    int64_t limit = peak_of(&model, want + 1) - 1; /* the largest that fits is exactly `want` */
    plan(&model,
         &(struct gd_trial_options){.micro_batch = GD_MICRO_BATCH_MAX, .device_limit_bytes = limit},
         &trial);
    assert_int_equal(trial.micro_batch, want);
    assert_int_equal(trial.accumulation, (40 + want - 1) / want);
    assert_int_equal(trial.remainder, 40 % want);
    assert_true(trial.peak_bytes <= limit);
    plan(
        &model,
        &(struct gd_trial_options){.micro_batch = GD_MICRO_BATCH_POW2, .device_limit_bytes = limit},
        &trial);
    assert_true(trial.micro_batch <= want && 2 * trial.micro_batch > want);
    assert_int_equal(trial.micro_batch & (trial.micro_batch - 1), 0);
  }
  plan(&model, /* never more than the batch itself */
       &(struct gd_trial_options){.micro_batch = GD_MICRO_BATCH_MAX,
                                  .device_limit_bytes = INT64_MAX},
       &trial);
  assert_int_equal(trial.micro_batch, 40);
}

/* `auto` doubles like pow2, up to so many FLOPs a pass and thread; one sequence is always allowed.
 */
static void test_enough_work(void **state) {
  static const struct {
    const char *model;
    int threads;
    int64_t seq, want;
  } cases[] = {
      {"pythia-14m", 1, 0, 2},    {"pythia-14m", 2, 0, 4},  {"pythia-14m", 16, 0, 32},
      {"pythia-14m", 2, 256, 32}, {"pythia-160m", 2, 0, 1}, /* more than enough in one sequence */
  };
  struct gd_model model;
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gd_trial bounded, free;
    struct gd_trial_options options = {.threads = cases[i].threads,
                                       .device_limit_bytes = INT64_MAX};
    load(cases[i].model, &model);
    if (cases[i].seq)
      model.recipe.seq = cases[i].seq;
    model.recipe.batch = 128;
    plan(&model, &options, &bounded);
    options.micro_batch = GD_MICRO_BATCH_POW2;
    plan(&model, &options, &free);
    double enough = 3e11 * cases[i].threads;
    double sequence = bounded.model_flops_per_step / 128;
    double micro_step = sequence * (double)bounded.micro_batch;
    assert_int_equal(bounded.micro_batch, cases[i].want);
    assert_true(bounded.micro_batch == 1 || micro_step <= enough);
    assert_true(bounded.micro_batch == 128 || 2 * micro_step > enough);
    assert_int_equal(free.micro_batch, 128);
  }
  /* Memory is the bound where it comes first. */
  struct gd_trial tight;
  load("pythia-14m", &model);
  plan(&model,
       &(struct gd_trial_options){.threads = 16, .device_limit_bytes = peak_of(&model, 4) - 1},
       &tight);
  assert_int_equal(tight.micro_batch, 2);
}

static void test_infeasible(void **state) {
  struct gd_model model;
  struct gd_trial trial;
  (void)state;
  load("pythia-160m", &model);
  plan(&model, &(struct gd_trial_options){.device_limit_bytes = 1 << 30}, &trial);
  assert_int_equal(trial.status, GD_TRIAL_INFEASIBLE);
  assert_non_null(strstr(trial.reason, "micro-batch 1 needs"));
  assert_non_null(strstr(trial.reason, "optimizer 1.21 GiB"));
  assert_non_null(strstr(trial.reason, "has 1.00 GiB"));
  assert_true(trial.peak_bytes > 1 << 30);
  plan(&model,
       &(struct gd_trial_options){.device_limit_bytes = INT64_MAX, .host_limit_bytes = 1000},
       &trial);
  assert_int_equal(trial.status, GD_TRIAL_INFEASIBLE);
  assert_non_null(strstr(trial.reason, "host memory"));
}

static void test_bad_options(void **state) {
  struct gd_model model;
  struct gd_trial trial;
  struct gd_error err = {0};
  (void)state;
  load("pythia-14m", &model);
  struct gd_trial_options options = {
      .backend = "cpu", .micro_batch = GD_MICRO_BATCH_FIXED, .micro_batch_size = 1025};
  assert_int_equal(gd_trial_plan(&model, &options, &trial, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "1025"));
  err = (struct gd_error){0};
  options.backend = "tpu";
  options.micro_batch_size = 1;
  assert_int_equal(gd_trial_plan(&model, &options, &trial, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "tpu"));
}

static void test_statistics(void **state) {
  struct gd_samples samples = {.count = 4, .ns = {1000000000, 3000000000, 2000000000, 4000000000}};
  (void)state;
  gd_samples_summarise(&samples);
  assert_true(fabs(samples.median_s - 2.5) < 1e-12);
  /* deviation 1.29099, t(3) = 3.182: 1.3 * 3.182 * 1.29099 / 2. Neighbours: -0.35 of the squares,
     corrected by (1 - 1.4) / 4: below none. */
  assert_true(fabs(samples.half_width_s - 2.6702) < 1e-3);
  samples = (struct gd_samples){.count = 8, .ns = {1, 2, 3, 4, 5, 6, 7, 8}};
  gd_samples_summarise(&samples); /* a drift: neighbours are nearly the same */
  assert_true(samples.half_width_s > 3 * 0.5e-9 * 7);
  samples.count = 1;
  gd_samples_summarise(&samples);
  assert_true(samples.half_width_s == samples.median_s);
}

static void test_guards(void **state) {
  struct gd_trial good = {.loss = 10.8,
                          .norm = 1.5,
                          .step_s = 2,
                          .model_flops_per_step = 1e12,
                          .exec_flops_per_step = 1.2e12,
                          .peak_flops = 1e12};
  struct gd_trial trial = good;
  (void)state;
  gd_trial_judge(&trial, 50304);
  assert_int_equal(trial.status, GD_TRIAL_OK);
  assert_true(fabs(trial.mfu - 0.5) < 1e-12 && fabs(trial.hfu - 0.6) < 1e-12);
  trial = good;
  trial.exec_flops_per_step =
      0.9e12; /* fused ops skip a tenth: 110 % of the model's, 99 % of ours */
  trial.step_s = 0.91;
  gd_trial_judge(&trial, 50304);
  assert_int_equal(trial.status, GD_TRIAL_OK);
  assert_true(trial.mfu > 1 && trial.hfu < 1);
  trial = good;
  trial.step_s = 1.19; /* 101 % of peak executed */
  gd_trial_judge(&trial, 50304);
  assert_int_equal(trial.status, GD_TRIAL_IMPLAUSIBLE);
  trial.limit_flops = 2 * trial.peak_flops; /* TF32 by the units of fp16: up to their peak */
  gd_trial_judge(&trial, 50304);
  assert_int_equal(trial.status, GD_TRIAL_OK);
  trial.step_s = 0.59;
  gd_trial_judge(&trial, 50304);
  assert_int_equal(trial.status, GD_TRIAL_IMPLAUSIBLE);
  assert_non_null(strstr(trial.reason, "peak"));
  const double bad_losses[] = {(double)NAN, (double)INFINITY, 0, -1, 55};
  for (int i = 0; i < 5; i++) {
    trial = good;
    trial.loss = bad_losses[i];
    gd_trial_judge(&trial, 50304);
    assert_int_equal(trial.status, GD_TRIAL_FAILED);
  }
  const double bad_norms[] = {(double)NAN, (double)INFINITY, 0};
  for (int i = 0; i < 3; i++) {
    trial = good;
    trial.norm = bad_norms[i];
    gd_trial_judge(&trial, 50304);
    assert_int_equal(trial.status, GD_TRIAL_FAILED);
  }
}

/* A whole trial of a small model, with a smaller last micro-batch: the parts must add up. */
static void test_measure(void **state) {
  struct gd_model model;
  struct gd_trial trial;
  struct gd_error err = {0};
  (void)state;
  load("pythia-14m", &model);
  model.recipe.seq = 33;
  model.recipe.batch = 7;
  model.recipe.steps = 1000;
  struct gd_trial_options options = {.backend = "cpu",
                                     .micro_batch = GD_MICRO_BATCH_FIXED,
                                     .micro_batch_size = 3,
                                     .sample_seconds = 0.5};
  assert_int_equal(gd_trial_measure(&model, &options, &trial, &err), GD_OK);
  assert_int_equal(trial.status, GD_TRIAL_OK);
  assert_int_equal(trial.accumulation, 3);
  assert_int_equal(trial.remainder, 1);
  assert_true(trial.micro_step.count >= 3 && trial.update.count >= 3 &&
              trial.last_micro_step.count >= 3);
  double step =
      2 * trial.micro_step.median_s + trial.last_micro_step.median_s + trial.update.median_s;
  assert_true(fabs(trial.step_s - step) < 1e-9);
  assert_true(fabs(trial.days - step * 1000 / 86400) < 1e-12);
  assert_true(trial.days_low < trial.days && trial.days < trial.days_high);
  assert_true(trial.mfu > 0 && trial.mfu < 1 && trial.precision_substituted);
  assert_int_equal(trial.precision, GD_PRECISION_BF16);
  assert_true(fabs(trial.loss - log(50304)) < 0.5);
}

/*
 * The plan is exact: the process's resident set grows by what the plan says, libraries, threads and
 * scratch included, and by no more. (Less only where a page of scratch was never touched.)
 */
static void test_resident_set_is_the_plan(void **state) {
  static const struct {
    enum gd_precision precision;
    int64_t seq, micro_batch, batch;
  } cases[] = {{GD_PRECISION_FP32, 129, 4, 8},
               {GD_PRECISION_BF16, 129, 4, 8},
               {GD_PRECISION_BF16, 257, 3, 8}};
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct gd_model model;
    struct gd_trial trial;
    struct gd_error err = {0};
    load("pythia-14m", &model);
    model.recipe.seq = cases[i].seq;
    model.recipe.batch = cases[i].batch;
    struct gd_trial_options options = {.backend = "cpu",
                                       .precision = &cases[i].precision,
                                       .micro_batch = GD_MICRO_BATCH_FIXED,
                                       .micro_batch_size = cases[i].micro_batch,
                                       .sample_seconds = 0.1};
    assert_int_equal(gd_trial_measure(&model, &options, &trial, &err), GD_OK);
    assert_int_equal(trial.status, GD_TRIAL_OK);
    double planned = (double)(trial.peak_bytes + trial.host_bytes);
    double used = (double)trial.resident_bytes;
    print_message("%s seq %d: planned %.2f MiB, resident set grew by %.2f MiB\n",
                  gd_precision_name(trial.precision), (int)cases[i].seq, planned / 0x1p20,
                  used / 0x1p20);
    assert_true(used > 0.97 * planned);
    assert_true(used < planned + 4 * 0x1p20); /* huge pages round an arena's edges up to 2 MiB */
  }
}

static void measure_images(enum gd_precision precision, int64_t batch, int64_t micro_batch,
                           struct gd_trial *trial) {
  struct gd_model model;
  struct gd_error err = {0};
  load(GD_SOURCE_DIR "/tests/reference/vit-a/config.json", &model);
  model.recipe.batch = batch;
  struct gd_trial_options options = {.backend = "cpu",
                                     .precision = &precision,
                                     .micro_batch = GD_MICRO_BATCH_FIXED,
                                     .micro_batch_size = micro_batch,
                                     .sample_seconds = 0.02};
  assert_int_equal(gd_trial_measure(&model, &options, trial, &err), GD_OK);
  assert_string_equal(trial->reason, "");
  assert_int_equal(trial->status, GD_TRIAL_OK);
}

/* One image is a small part of a step, and has the weight that it has there. Where it is the whole
   step its gradients overflow under the first loss scale: that is halved until they do not. */
static void test_fp16_images(void **state) {
  static const int64_t batches[] = {64, 1};
  (void)state;
  for (size_t i = 0; i < sizeof batches / sizeof *batches; i++) {
    struct gd_trial half, full;
    measure_images(GD_PRECISION_FP16, batches[i], 1, &half);
    measure_images(GD_PRECISION_FP32, batches[i], 1, &full);
    assert_true(fabs(half.loss - full.loss) < 0.01 * full.loss);
    assert_true(fabs(half.norm - full.norm) < 0.01 * full.norm);
  }
}

/* The smaller last pass has its labels where the others have pixels. */
static void test_images_with_remainder(void **state) {
  struct gd_trial trial;
  (void)state;
  measure_images(GD_PRECISION_FP32, 8, 3, &trial);
  assert_int_equal(trial.remainder, 2);
  assert_true(trial.last_micro_step.count >= 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_micro_batch_search),
      cmocka_unit_test(test_enough_work),
      cmocka_unit_test(test_infeasible),
      cmocka_unit_test(test_bad_options),
      cmocka_unit_test(test_statistics),
      cmocka_unit_test(test_guards),
      cmocka_unit_test(test_measure),
      cmocka_unit_test(test_resident_set_is_the_plan),
      cmocka_unit_test(test_fp16_images),
      cmocka_unit_test(test_images_with_remainder),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
