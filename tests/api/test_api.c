/*
 * The public API, called as a program would: errors are a status and a sentence, results are
 * untouched then, and nothing is left in memory. tests/api/test_install.sh has it as it is
 * installed.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <gpudays/gpudays.h>

#include "base/mem.h"

#define TIED  GD_SOURCE_DIR "/tests/reference/neox-tied"
#define IMAGE GD_SOURCE_DIR "/tests/reference/vit-a"

static struct gpd_error err;

static int set_up(void **state) {
  (void)state;
  err = (struct gpd_error){0};
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  return gd_mem_live_blocks() != 0;
}

/* The last call failed so, and said that. */
static void assert_failed(enum gpd_status got, enum gpd_status want, const char *part) {
  assert_int_equal(got, want);
  assert_int_equal(err.status, want);
  if (!strstr(err.text, part))
    fail_msg("\"%s\" is not in \"%s\"", part, err.text);
  err = (struct gpd_error){0};
}

static struct gpd_model *load(const char *name, const struct gpd_recipe *recipe) {
  struct gpd_model *model;
  if (gpd_model_load(name, recipe, &model, &err) != GPD_OK)
    fail_msg("%s", err.text);
  return model;
}

static void test_status(void **state) {
  (void)state;
  assert_string_equal(gpd_status_name(GPD_OK), "ok");
  assert_string_equal(gpd_status_name(GPD_INTERNAL), "internal");
  assert_string_equal(gpd_status_name((enum gpd_status)99), "unknown");
  assert_true(strlen(gpd_version()) > 0);
}

static void test_models(void **state) {
  struct gpd_model *model = NULL;
  struct gpd_model_info info;
  (void)state;
  assert_failed(gpd_model_load("no-such-model", NULL, &model, &err), GPD_BAD_INPUT,
                "no-such-model");
  assert_failed(gpd_model_load(NULL, NULL, &model, &err), GPD_BAD_INPUT, "name_or_path is NULL");
  assert_failed(gpd_model_load("pythia-14m", &(struct gpd_recipe){.batch = -1}, &model, &err),
                GPD_BAD_INPUT, "batch is -1");
  assert_failed(
      gpd_model_load("pythia-14m", &(struct gpd_recipe){.precision = "fp8"}, &model, &err),
      GPD_BAD_INPUT, "precision is \"fp8\"");
  assert_failed(
      gpd_model_load("pythia-14m", &(struct gpd_recipe){.optimizer = "sgd"}, &model, &err),
      GPD_BAD_INPUT, "optimizer is \"sgd\"");
  assert_failed(gpd_model_load("vit", &(struct gpd_recipe){.seq = 8}, &model, &err), GPD_BAD_INPUT,
                "images");
  assert_int_equal(gpd_model_load("no-such-model", NULL, &model, NULL), GPD_BAD_INPUT);
  assert_null(model);
  model = load("pythia-14m", &(struct gpd_recipe){.batch = 8, .steps = 3, .precision = "bf16"});
  assert_int_equal(gpd_model_describe(model, &info, &err), GPD_OK);
  assert_string_equal(info.name, "pythia-14m");
  assert_string_equal(info.family, "gpt_neox");
  assert_string_equal(info.precision, "bf16");
  assert_int_equal(info.batch, 8);
  assert_int_equal(info.steps, 3);
  assert_true(info.parameters > 10000000 && info.flops_per_step > 0 && !info.images);
  gpd_model_free(model);
  gpd_model_free(NULL);
}

static void test_plans(void **state) {
  struct gpd_model *model = load("pythia-160m", NULL);
  struct gpd_plan *plan = NULL;
  struct gpd_plan_info info;
  struct gpd_prediction days = {.days = -1};
  (void)state;
  assert_failed(gpd_plan_make(model, &(struct gpd_plan_options){.gpu = "a1000"}, &plan, &err),
                GPD_BAD_INPUT, "a1000");
  assert_failed(gpd_plan_make(model, &(struct gpd_plan_options){.method = "magic"}, &plan, &err),
                GPD_BAD_INPUT, "magic");
  assert_failed(gpd_plan_make(model, &(struct gpd_plan_options){.count = 4}, &plan, &err),
                GPD_BAD_INPUT, "name one");
  assert_failed(
      gpd_plan_make(model, &(struct gpd_plan_options){.gpu = "a100", .count = -4}, &plan, &err),
      GPD_BAD_INPUT, "count is -4");
  assert_null(plan);
  struct gpd_plan_options four = {.gpu = "a100", .count = 4, .method = "free-lunch+zero1"};
  assert_int_equal(gpd_plan_make(model, &four, &plan, &err), GPD_OK);
  gpd_model_free(model); /* the plan stays */
  gpd_plan_describe(plan, &info);
  assert_true(info.feasible && info.ranks == 4 && info.micro_batch > 0);
  assert_string_equal(info.method, "free-lunch+zero1");
  assert_int_equal(gpd_plan_predict(plan, &days, &err), GPD_OK);
  assert_true(days.days > 0 && days.days_low <= days.days && days.days <= days.days_high);
  assert_true(days.mfu > 0 && days.mfu < 1 && strlen(days.basis) > 0);
  gpd_plan_free(plan);
  gpd_plan_free(NULL);
}

/* Without a GPU it is this machine's CPU, calibrated or not. */
static void test_plan_here(void **state) {
  struct gpd_model *model = load(TIED, &(struct gpd_recipe){.batch = 4, .seq = 16});
  struct gpd_plan *plan = NULL;
  struct gpd_plan_info info;
  struct gpd_prediction days;
  (void)state;
  assert_int_equal(gpd_plan_make(model, NULL, &plan, &err), GPD_OK);
  gpd_plan_describe(plan, &info);
  assert_true(info.feasible && info.ranks == 1);
  assert_string_equal(info.method, "free-lunch");
  assert_int_equal(gpd_plan_predict(plan, &days, &err), GPD_OK);
  assert_true(days.step_s > 0 && days.samples_per_s > 0);
  gpd_plan_free(plan);
  gpd_model_free(model);
}

static void test_infeasible(void **state) {
  struct gpd_model *model = load("pythia-160m", NULL);
  struct gpd_plan *plan = NULL;
  struct gpd_plan_info info;
  struct gpd_prediction days = {.days = -1};
  struct gpd_plan_options small = {.gpu = "a100", .device_memory_bytes = 1 << 20};
  (void)state;
  assert_int_equal(gpd_plan_make(model, &small, &plan, &err), GPD_OK);
  gpd_plan_describe(plan, &info);
  assert_false(info.feasible);
  assert_true(strlen(info.reason) > 0);
  assert_failed(gpd_plan_predict(plan, &days, &err), GPD_NOMEM_DEVICE, "device memory");
  gpd_plan_free(plan);
  struct gpd_plan_options less = {
      .gpu = "a100", .method = "free-lunch+zero1+offload", .host_memory_bytes = 1 << 20};
  assert_int_equal(gpd_plan_make(model, &less, &plan, &err), GPD_OK);
  gpd_plan_describe(plan, &info);
  assert_false(info.feasible);
  assert_failed(gpd_plan_predict(plan, &days, &err), GPD_NOMEM_HOST, "host memory");
  assert_true(days.days < 0);
  gpd_plan_free(plan);
  gpd_model_free(model);
}

/* Losses of some steps on the same tokens. */
static void train(const struct gpd_train_options *options, double *losses, int steps) {
  struct gpd_model *model =
      load(TIED, &(struct gpd_recipe){.batch = 5, .seq = 8, .precision = "fp32"});
  struct gpd_trainer *trainer;
  struct gpd_batch_shape shape;
  int32_t tokens[40];
  assert_int_equal(gpd_trainer_open(model, options, &trainer, &err), GPD_OK);
  gpd_model_free(model); /* the trainer stays */
  gpd_trainer_shape(trainer, &shape);
  assert_int_equal(shape.ids, 40);
  assert_int_equal(shape.labels, 40);
  assert_int_equal(shape.pixels, 0);
  for (int i = 0; i < 40; i++)
    tokens[i] = i * i % 23;
  struct gpd_batch batch = {.ids = tokens, .labels = tokens};
  for (int i = 0; i < steps; i++)
    assert_int_equal(gpd_trainer_step(trainer, &batch, &losses[i], &err), GPD_OK);
  gpd_trainer_close(trainer);
}

/* The last micro-batch is smaller, and the losses are those of the whole batch. */
static void test_micro_batches(void **state) {
  double whole[4], parts[4];
  (void)state;
  train(&(struct gpd_train_options){.lr = 1e-2, .threads = 1, .method = "naive"}, whole, 4);
  train(&(struct gpd_train_options){.lr = 1e-2, .threads = 1, .method = "naive", .micro_batch = 2},
        parts, 4);
  for (int i = 0; i < 4; i++) {
    assert_true(parts[i] > whole[i] * (1 - 1e-5) && parts[i] < whole[i] * (1 + 1e-5));
    assert_true(i == 0 || whole[i] < whole[i - 1]);
  }
}

static void test_bad_batches(void **state) {
  struct gpd_model *model =
      load(TIED, &(struct gpd_recipe){.batch = 1, .seq = 4, .precision = "fp32"});
  struct gpd_trainer *trainer = NULL;
  int32_t tokens[4] = {1, 2, 3, 4}, ignored[4] = {-100, -100, -100, -100}, wrong[4] = {0, 0, -1, 0};
  double loss = -1, first = -1;
  (void)state;
  assert_failed(
      gpd_trainer_open(model, &(struct gpd_train_options){.method = "magic"}, &trainer, &err),
      GPD_BAD_INPUT, "magic");
  assert_failed(gpd_trainer_open(model, &(struct gpd_train_options){.lr = -1}, &trainer, &err),
                GPD_BAD_INPUT, "lr is -1");
  assert_null(trainer);
  assert_int_equal(gpd_trainer_open(model, NULL, &trainer, &err), GPD_OK);
  struct gpd_batch good = {.ids = tokens, .labels = tokens};
  struct gpd_batch none = {.labels = tokens}, bad = {.ids = wrong, .labels = tokens};
  struct gpd_batch empty = {.ids = tokens, .labels = ignored};
  assert_failed(gpd_trainer_step(trainer, &none, &loss, &err), GPD_BAD_INPUT, "no ids");
  assert_failed(gpd_trainer_step(trainer, &bad, &loss, &err), GPD_BAD_INPUT, "ids[2] is -1");
  assert_failed(gpd_trainer_step(trainer, &empty, &loss, &err), GPD_BAD_INPUT, "-100");
  assert_true(loss < 0);
  assert_int_equal(gpd_trainer_step(trainer, &good, &first, &err), GPD_OK);
  assert_true(first > 0);
  gpd_trainer_close(trainer);
  gpd_trainer_close(NULL);
  gpd_model_free(model);
}

/* Options that no training on this machine can have. */
static void test_bad_options(void **state) {
  struct gpd_model *model =
      load(TIED, &(struct gpd_recipe){.batch = 3, .seq = 4, .precision = "fp32"});
  struct gpd_trainer *trainer = NULL;
  struct gpd_plan *plan = NULL;
  static const struct {
    struct gpd_train_options options;
    const char *says;
  } wrong[] = {{{.threads = -1}, "threads is -1"},
               {{.threads = 4097}, "threads is 4097"},
               {{.micro_batch = -1}, "micro_batch is -1"},
               {{.micro_batch = 4}, "micro_batch is 4; expected 1 to 3"},
               {{.lr = (double)NAN}, "lr is"},
               {{.method = "zero1"}, "\"zero1\"; expected one of one device"},
               {{.method = "free-lunch+fsdp3"}, "of one device"},
               {{.method = "zero3+offload"}, "of one device"}};
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_failed(gpd_trainer_open(model, &wrong[i].options, &trainer, &err), GPD_BAD_INPUT,
                  wrong[i].says);
  assert_null(trainer);
  assert_failed(gpd_plan_make(model, &(struct gpd_plan_options){.threads = 4097}, &plan, &err),
                GPD_BAD_INPUT, "threads is 4097");
  assert_failed(gpd_plan_make(model, &(struct gpd_plan_options){.micro_batch = 4}, &plan, &err),
                GPD_BAD_INPUT, "micro-batch 4");
  assert_null(plan);
  gpd_model_free(model);
}

/* A sequence is refused where it is given, so that a loaded model can be described. */
static void test_long_sequences(void **state) {
  struct gpd_model *model = NULL;
  (void)state;
  assert_failed(gpd_model_load("gpt2", &(struct gpd_recipe){.seq = 1025}, &model, &err),
                GPD_BAD_INPUT, "1025 tokens");
  assert_failed(gpd_model_load("roberta-base", &(struct gpd_recipe){.seq = 513}, &model, &err),
                GPD_BAD_INPUT, "513 tokens");
  assert_null(model);
}

/* More than any machine has is refused before it is touched. */
static void test_too_large(void **state) {
  struct gpd_model *model = load("pythia-12b", &(struct gpd_recipe){.batch = 65536});
  struct gpd_trainer *trainer = NULL;
  (void)state;
  assert_failed(
      gpd_trainer_open(model, &(struct gpd_train_options){.method = "naive"}, &trainer, &err),
      GPD_NOMEM_DEVICE, "too little");
  gpd_model_free(model);
  model = load("mamba-130m", &(struct gpd_recipe){.batch = 1000000000}); /* past 64 bits */
  assert_failed(
      gpd_trainer_open(model, &(struct gpd_train_options){.method = "naive"}, &trainer, &err),
      GPD_BAD_INPUT, "more than can be planned");
  assert_null(trainer);
  gpd_model_free(model);
}

/* Every argument that has to be there, left out once. */
static void test_null(void **state) {
  struct gpd_model *model =
      load(TIED, &(struct gpd_recipe){.batch = 1, .seq = 4, .precision = "fp32"});
  struct gpd_model *unused_model = NULL;
  struct gpd_plan *plan = NULL;
  struct gpd_trainer *trainer = NULL;
  struct gpd_model_info facts;
  struct gpd_plan_info info = {.ranks = 7};
  struct gpd_batch_shape shape = {.ids = 7};
  struct gpd_prediction days;
  struct gpd_verify_result found;
  struct gpd_batch batch = {0};
  double loss;
  (void)state;
#define NULL_FAILS(call, name) assert_failed(call, GPD_BAD_INPUT, name " is NULL")
  NULL_FAILS(gpd_model_load("pythia-14m", NULL, NULL, &err), "model");
  NULL_FAILS(gpd_model_load(NULL, NULL, &unused_model, &err), "name_or_path");
  NULL_FAILS(gpd_model_describe(NULL, &facts, &err), "model");
  NULL_FAILS(gpd_model_describe(model, NULL, &err), "info");
  NULL_FAILS(gpd_plan_make(NULL, NULL, &plan, &err), "model");
  NULL_FAILS(gpd_plan_make(model, NULL, NULL, &err), "plan");
  NULL_FAILS(gpd_plan_predict(NULL, &days, &err), "plan");
  NULL_FAILS(gpd_trainer_open(NULL, NULL, &trainer, &err), "model");
  NULL_FAILS(gpd_trainer_open(model, NULL, NULL, &err), "trainer");
  NULL_FAILS(gpd_trainer_step(NULL, &batch, &loss, &err), "trainer");
  NULL_FAILS(gpd_verify(NULL, NULL, &found, &err), "folder");
  NULL_FAILS(gpd_verify(TIED, NULL, NULL, &err), "result");
  assert_int_equal(gpd_model_describe(NULL, NULL, NULL), GPD_BAD_INPUT);
  assert_int_equal(gpd_plan_make(model, NULL, &plan, &err), GPD_OK);
  NULL_FAILS(gpd_plan_predict(plan, NULL, &err), "prediction");
  gpd_plan_describe(plan, NULL);
  gpd_plan_describe(NULL, &info);
  assert_true(info.ranks == 0 && !info.feasible && !info.precision);
  assert_int_equal(gpd_trainer_open(model, NULL, &trainer, &err), GPD_OK);
  NULL_FAILS(gpd_trainer_step(trainer, NULL, &loss, &err), "batch");
  NULL_FAILS(gpd_trainer_step(trainer, &batch, NULL, &err), "loss");
  gpd_trainer_shape(trainer, NULL);
  gpd_trainer_shape(NULL, &shape);
  assert_int_equal(shape.ids, 0);
  gpd_trainer_close(trainer);
  gpd_plan_free(plan);
  gpd_model_free(model);
}

static void test_images(void **state) {
  struct gpd_model *model = load(IMAGE, &(struct gpd_recipe){.batch = 2, .precision = "fp32"});
  struct gpd_trainer *trainer;
  struct gpd_batch_shape shape;
  int32_t labels[2] = {0, 1};
  double loss;
  (void)state;
  assert_int_equal(
      gpd_trainer_open(model, &(struct gpd_train_options){.threads = 1}, &trainer, &err), GPD_OK);
  gpd_trainer_shape(trainer, &shape);
  assert_int_equal(shape.ids, 0);
  assert_int_equal(shape.labels, 2);
  assert_true(shape.pixels > 0);
  float *pixels = calloc((size_t)shape.pixels, sizeof *pixels);
  assert_non_null(pixels);
  struct gpd_batch batch = {.pixels = pixels, .labels = labels};
  assert_int_equal(gpd_trainer_step(trainer, &batch, &loss, &err), GPD_OK);
  assert_true(loss > 0);
  batch.pixels = NULL;
  assert_failed(gpd_trainer_step(trainer, &batch, &loss, &err), GPD_BAD_INPUT, "no pixels");
  batch.pixels = pixels;
  pixels[3] = NAN;
  assert_failed(gpd_trainer_step(trainer, &batch, &loss, &err), GPD_BAD_INPUT, "pixels[3] is nan");
  pixels[3] = 0;
  pixels[shape.pixels - 1] = -INFINITY;
  assert_failed(gpd_trainer_step(trainer, &batch, &loss, &err), GPD_BAD_INPUT, "is -inf");
  free(pixels);
  gpd_trainer_close(trainer);
  gpd_model_free(model);
}

static void test_verify(void **state) {
  struct gpd_verify_result found = {0};
  (void)state;
  assert_int_equal(gpd_verify(TIED, NULL, &found, &err), GPD_OK);
  assert_true(found.ok && found.loss_error <= found.loss_bound);
  static const char *const of_several[] = {"zero1", "free-lunch+fsdp3", "zero2+offload"};
  for (size_t i = 0; i < sizeof of_several / sizeof *of_several; i++)
    assert_failed(
        gpd_verify(TIED, &(struct gpd_verify_options){.method = of_several[i]}, &found, &err),
        GPD_BAD_INPUT, "on one device");
  assert_failed(gpd_verify(TIED, &(struct gpd_verify_options){.threads = 4097}, &found, &err),
                GPD_BAD_INPUT, "threads is 4097");
  assert_failed(gpd_verify("/nonexistent", NULL, &found, &err), GPD_BAD_INPUT, "/nonexistent");
  assert_failed(gpd_verify(TIED, &(struct gpd_verify_options){.precision = "int8"}, &found, &err),
                GPD_BAD_INPUT, "int8");
}

/* Memory that is refused at any place is an error, and leaks nothing. */
static void test_no_memory(void **state) {
  struct gpd_plan_options where = {.gpu = "a100"};
  (void)state;
  for (int64_t nth = 1; nth < 2000; nth += nth < 40 ? 1 : 97) {
    struct gpd_model *model = NULL;
    struct gpd_plan *plan = NULL;
    gd_mem_fail_after(nth);
    enum gpd_status status = gpd_model_load("pythia-14m", NULL, &model, &err);
    if (status == GPD_OK)
      status = gpd_plan_make(model, &where, &plan, &err);
    gd_mem_fail_after(0);
    if (status != GPD_OK)
      assert_true(err.status == status && strlen(err.text) > 0);
    gpd_plan_free(plan);
    gpd_model_free(model);
    assert_int_equal(gd_mem_live_blocks(), 0);
    err = (struct gpd_error){0};
  }
}

int main(void) {
#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
  const struct CMUnitTest tests[] = {
      TEST(test_status),      TEST(test_models),      TEST(test_plans),
      TEST(test_plan_here),   TEST(test_infeasible),  TEST(test_micro_batches),
      TEST(test_bad_batches), TEST(test_images),      TEST(test_verify),
      TEST(test_no_memory),   TEST(test_bad_options), TEST(test_long_sequences),
      TEST(test_too_large),   TEST(test_null),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
