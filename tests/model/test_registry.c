/*
 * From a name or a path to a model: presets built in and of the user, configurations of Hugging
 * Face as transformers 4 and 5 write them, recipes, and the sentences for what is wrong.
 */
#define _POSIX_C_SOURCE 200809L
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/model.h"
#include "pass/pass.h"
#include "support/fault.h"
#include "support/scratch.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define CONFIG                                                              \
  "\"model_type\": \"gpt_neox\", \"vocab_size\": 96, \"hidden_size\": 32, " \
  "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"intermediate_size\": 64"

static enum gd_status parse(const char *text, struct gd_model *model, struct gd_error *err) {
  struct gd_json json;
  *err = (struct gd_error){0};
  enum gd_status status =
      gd_json_parse(&json, "models/tiny.json", text, (int64_t)strlen(text), err);
  if (status == GD_OK)
    status = gd_model_parse(&json, model, err);
  gd_json_deinit(&json);
  return status;
}

static void expect_failure(const char *text, enum gd_status expected, const char *sentence) {
  struct gd_model model;
  struct gd_error err;
  memset(&model, 0x55, sizeof model);
  struct gd_model before = model;
  assert_int_equal(parse(text, &model, &err), expected);
  assert_string_equal(err.text, sentence);
  assert_memory_equal(&model, &before, sizeof model);
}

/* --- presets ------------------------------------------------------------------------------- */

static void test_preset(void **state) {
  (void)state;
  struct gd_model model;
  struct gd_error err = {0};
  if (gd_model_load("pythia-160m", &model, &err) != GD_OK)
    fail_msg("%s", err.text);
  assert_string_equal(model.name, "pythia-160m");
  assert_ptr_equal(model.family, &gd_family_neox);
  assert_int_equal(model.config.neox.width, 768);
  assert_int_equal(model.config.neox.vocab, 50304);
  assert_int_equal(model.recipe.batch, 1024);
  assert_int_equal(model.recipe.seq, 2049);
  assert_int_equal(model.recipe.steps, 143000);
  assert_int_equal(model.recipe.precision, GD_PRECISION_FP16);
  assert_int_equal(model.recipe.optimizer, GD_OPTIMIZER_ADAM);
  assert_true(model.recipe.lr == 6e-4 && model.recipe.min_lr == 6e-5);
  assert_true(model.recipe.beta1 == 0.9 && model.recipe.beta2 == 0.95);
  assert_true(model.recipe.eps == 1e-8 && model.recipe.weight_decay == 0.1);
  assert_true(model.recipe.max_grad_norm == 1);
  assert_int_equal(model.recipe.schedule, GD_SCHEDULE_COSINE);
  assert_int_equal(model.recipe.warmup_steps, 1430);
}

static void expect_unknown(const char *name, const char *sentence) {
  struct gd_model model;
  struct gd_error err = {0};
  assert_int_equal(gd_model_load(name, &model, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, sentence);
}

static void test_unknown(void **state) {
  (void)state;
  char long_name[3000];
  struct gd_model model;
  struct gd_error err = {0};
  expect_unknown("pythia-16m",
                 "unknown model \"pythia-16m\"; did you mean pythia-160m, pythia-14m or pythia-1b? "
                 "('gpudays models' lists all; a path to a Hugging Face config.json works too)");
  expect_unknown("", "the model's name is empty; 'gpudays models' lists those there are");
  memset(long_name, 'p', sizeof long_name - 1);
  long_name[sizeof long_name - 1] = '\0';
  assert_int_equal(gd_model_load(long_name, &model, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "ppp...\"; did you mean "));
}

static void test_list(void **state) {
  (void)state;
  static const char *const sizes[] = {"pythia-14m",  "pythia-31m", "pythia-70m",  "pythia-160m",
                                      "pythia-410m", "pythia-1b",  "pythia-1.4b", "pythia-2.8b",
                                      "pythia-6.9b", "pythia-12b"};
  struct gd_arena arena = {0};
  struct gd_error err = {0};
  const char *const *names;
  int count;
  size_t at = 0;
  int64_t blocks = gd_mem_live_blocks();
  if (gd_model_list(&arena, &names, &count, &err) != GD_OK)
    fail_msg("%s", err.text);
  assert_true(count >= (int)COUNT(sizes));
  for (int i = 0; i < count; i++) {
    struct gd_model model;
    if (at < COUNT(sizes) && strcmp(names[i], sizes[at]) == 0)
      at++;
    if (gd_model_load(names[i], &model, &err) != GD_OK) /* all that is built in can be read */
      fail_msg("%s", err.text);
    assert_string_equal(model.name, names[i]);
  }
  assert_int_equal(at, COUNT(sizes)); /* all of them, the small before the large */
  gd_arena_deinit(&arena);
  assert_int_equal(gd_mem_live_blocks(), blocks);
}

static int find(const char *const *names, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (strcmp(names[i], name) == 0)
      return i;
  return -1;
}

static void check_user_presets(void) {
  struct gd_arena arena = {0};
  struct gd_model model;
  struct gd_error err = {0};
  const char *const *names;
  int count;
  assert_int_equal(gd_model_load("mine", &model, &err), GD_OK);
  assert_string_equal(model.name, "mine");
  assert_int_equal(model.recipe.batch, 8);
  assert_int_equal(gd_model_load("pythia-14m", &model, &err), GD_OK);
  assert_int_equal(model.config.neox.width, 32); /* the user's, not the one built in */
  assert_int_equal(gd_model_list(&arena, &names, &count, &err), GD_OK);
  int mine = find(names, count, "mine"), again = find(names, count, "pythia-14m");
  int next = find(names, count, "pythia-31m"); /* both are smaller, of one family */
  assert_in_range(mine, next - 2, next - 1);
  assert_in_range(again, next - 2, next - 1);
  assert_int_equal(find(names + again + 1, count - again - 1, "pythia-14m"), -1); /* once */
  assert_int_equal(find(names, count, "broken"), count - 1);
  assert_int_equal(find(names, count, "readme"), -1);
  gd_arena_deinit(&arena);
  assert_int_equal(gd_model_load("broken", &model, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "gpudays/models/broken.json: line 1"));
}

static void write_user_presets(const char *folder) {
  char path[256];
  static const char *const files[][2] = {
      {"mine", "{\"config\": {" CONFIG "}, \"recipe\": {\"batch\": 8}}"},
      {"pythia-14m", "{" CONFIG "}"},
      {"broken", "{"},
  };
  for (size_t i = 0; i < COUNT(files); i++) {
    snprintf(path, sizeof path, "%s/gpudays/models/%s.json", folder, files[i][0]);
    scratch_write_text(path, files[i][1]);
  }
  snprintf(path, sizeof path, "%s/gpudays/models/readme.txt", folder);
  scratch_write_text(path, "not a preset");
}

static void test_user_presets(void **state) {
  (void)state;
  write_user_presets("config");
  setenv("XDG_CONFIG_HOME", scratch_path("config"), 1);
  check_user_presets();
  /* Without it, and when it is not absolute, ~/.config counts. */
  write_user_presets("home/.config");
  setenv("HOME", scratch_path("home"), 1);
  setenv("XDG_CONFIG_HOME", "config", 1);
  check_user_presets();
  unsetenv("XDG_CONFIG_HOME");
  check_user_presets();
  unsetenv("HOME");
  struct gd_model model;
  struct gd_error err = {0};
  assert_int_equal(gd_model_load("mine", &model, &err), GD_BAD_INPUT);
  setenv("HOME", scratch_path("empty"), 1);
  setenv("XDG_CONFIG_HOME", scratch_path("empty"), 1);
}

/* --- paths --------------------------------------------------------------------------------- */

static void expect_name(const char *path, const char *name) {
  struct gd_model model;
  struct gd_error err = {0};
  if (gd_model_load(path, &model, &err) != GD_OK)
    fail_msg("%s", err.text);
  assert_string_equal(model.name, name);
}

static void test_paths(void **state) {
  (void)state;
  struct gd_model model;
  struct gd_error err = {0};
  char before[1024];
  scratch_write_text("work/my-model/config.json", "{" CONFIG "}");
  scratch_write_text("work/other.json", "{" CONFIG "}");
  scratch_write_text("work/plain", "{" CONFIG "}");
  scratch_write_text("work/hollow/notes.txt", "");
  scratch_write_text("work/pythia-70m/checkpoint", "");
  expect_name(scratch_path("work/my-model"), "my-model");
  expect_name(scratch_path("work/my-model/"), "my-model");
  expect_name(scratch_path("work/my-model/config.json"), "my-model");
  expect_name(scratch_path("work/other.json"), "other");

  assert_non_null(getcwd(before, sizeof before));
  assert_int_equal(chdir(scratch_path("work")), 0);
  expect_name("my-model", "my-model");
  expect_name("./my-model", "my-model");
  expect_name("other.json", "other");
  expect_name("plain", "plain");
  /* A folder of that name without a model in it does not hide the preset. */
  expect_name("pythia-70m", "pythia-70m");
  assert_int_equal(gd_model_load("hollow", &model, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, "hollow: the folder has no config.json");
  assert_int_equal(chdir("my-model"), 0);
  expect_name(".", "my-model");
  expect_name("config.json", "my-model");
  expect_name("./config.json", "my-model");
  /* Hugging Face's cache links to files named by their digest. */
  assert_int_equal(symlink("../plain", "link.json"), 0);
  expect_name("link.json", "link");
  assert_int_equal(chdir(before), 0);

  err = (struct gd_error){0};
  assert_int_equal(gd_model_load("no/such/config.json", &model, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, "no/such/config.json: cannot be opened: No such file or directory");
  err = (struct gd_error){0};
  assert_int_equal(gd_model_load("missing.json", &model, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, "missing.json: cannot be opened: No such file or directory");
  err = (struct gd_error){0};
  assert_int_equal(gd_model_load("/dev/null", &model, &err), GD_BAD_INPUT);
  assert_string_equal(err.text, "/dev/null: empty; expected a JSON object");
}

static void test_reference(void **state) {
  (void)state;
  static const char *const folders[] = {"neox-parallel", "neox-serial", "neox-tied", "neox-nobias",
                                        "neox-v4-config"};
  for (size_t i = 0; i < COUNT(folders); i++) {
    char path[1024];
    struct gd_model model;
    struct gd_json json;
    struct gd_error err = {0};
    snprintf(path, sizeof path, "%s/tests/reference/%s", GD_SOURCE_DIR, folders[i]);
    if (gd_model_load(path, &model, &err) != GD_OK)
      fail_msg("%s", err.text);
    assert_string_equal(model.name, folders[i]);
    assert_true(model.recipe.seq <= 64); /* max_position_embeddings of these */
    snprintf(path, sizeof path, "%s/tests/reference/%s/recipe.json", GD_SOURCE_DIR, folders[i]);
    assert_int_equal(gd_json_load(&json, path, &err), GD_OK);
    if (gd_recipe_parse(&json, json.root, &model.recipe, &err) != GD_OK)
      fail_msg("%s", err.text);
    assert_int_equal(model.recipe.steps, 5);
    gd_json_deinit(&json);
  }
}

/* --- configurations and recipes ------------------------------------------------------------ */

static void test_defaults(void **state) {
  (void)state;
  struct gd_model model;
  struct gd_error err;
  assert_int_equal(parse("{" CONFIG "}", &model, &err), GD_OK);
  assert_string_equal(model.name, "tiny");
  const struct gd_recipe *recipe = &model.recipe;
  assert_int_equal(recipe->batch, 512);
  assert_int_equal(recipe->seq, 2048);
  struct gd_graph graph; /* 20 tokens a parameter, in whole steps; a 50th of them warms up */
  gd_graph_init(&graph);
  model.family->build(&model, 1, &graph);
  int64_t parameters = gd_graph_parameters(&graph);
  gd_graph_deinit(&graph);
  assert_int_equal(recipe->steps, (20 * parameters + 512 * 2048 - 1) / (512 * 2048));
  assert_int_equal(model.assumed, GD_ASSUMED_STEPS | GD_ASSUMED_BATCH | GD_ASSUMED_SEQ |
                                      GD_ASSUMED_LR | GD_ASSUMED_PRECISION);
  assert_int_equal(recipe->precision, GD_PRECISION_BF16);
  assert_int_equal(recipe->optimizer, GD_OPTIMIZER_ADAMW);
  assert_true(recipe->lr == 3e-4 && recipe->min_lr == 3e-5);
  assert_int_equal(recipe->warmup_steps, (recipe->steps + 49) / 50);
  assert_int_equal(parse("{" CONFIG ", \"max_position_embeddings\": 512}", &model, &err), GD_OK);
  assert_int_equal(model.recipe.seq, 512);
  assert_int_equal(parse("{" CONFIG ", \"max_position_embeddings\": 8192}", &model, &err), GD_OK);
  assert_int_equal(model.recipe.seq, 2048);
  /* A preset may leave out its recipe, or parts of it. */
  assert_int_equal(parse("{\"name\": \"x\", \"config\": {" CONFIG "}}", &model, &err), GD_OK);
  assert_string_equal(model.name, "x");
  assert_int_equal(model.recipe.batch, 512);
  assert_int_equal(
      parse("{\"config\": {" CONFIG "}, \"recipe\": {\"lr\": 1e-5, \"steps\": 100}}", &model, &err),
      GD_OK);
  assert_true(fabs(model.recipe.min_lr - 1e-6) < 1e-20);
  assert_int_equal(model.recipe.warmup_steps, 100);
}

static void test_bad_config(void **state) {
  struct gd_model model;
  struct gd_error err;
  (void)state;
  expect_failure("{}", GD_BAD_INPUT, "models/tiny.json: model_type is missing; expected a string");
  expect_failure("{\"model_type\": 3}", GD_BAD_INPUT,
                 "models/tiny.json: model_type is 3; expected a string");
  assert_int_equal(parse("{\"model_type\": \"nanogpt\"}", &model, &err), GD_UNSUPPORTED);
  assert_non_null(strstr(err.text, "models/tiny.json: model_type is \"nanogpt\"; this version has "
                                   "gpt_neox, gpt2, llama"));
  expect_failure("{\"model_type\": \"nano\\u0007gpt\"}", GD_BAD_INPUT,
                 "models/tiny.json: model_type is \"nano?gpt\"; expected a string without control "
                 "characters");
  expect_failure("{\"config\": 3}", GD_BAD_INPUT,
                 "models/tiny.json: config is 3; expected a Hugging Face configuration");
  expect_failure(
      "{\"config\": {\"model_type\": \"gpt_neox\"}}", GD_BAD_INPUT,
      "models/tiny.json: config.vocab_size is missing; expected a whole number from 1 to "
      "2147483648");
  expect_failure("{\"config\": {}, \"recipee\": {}}", GD_BAD_INPUT,
                 "models/tiny.json: \"recipee\" is not a field of a preset; did you mean recipe?");
  expect_failure("{\"config\": {" CONFIG "}, \"recipe\": []}", GD_BAD_INPUT,
                 "models/tiny.json: recipe is an array of 0; expected an object");
  expect_failure(
      "{" CONFIG ", \"max_position_embeddings\": 0}", GD_BAD_INPUT,
      "models/tiny.json: max_position_embeddings is 0; expected a whole number from 1 to "
      "1000000000");
}

static void test_bad_recipe(void **state) {
  (void)state;
  static const struct {
    const char *recipe, *sentence;
  } cases[] = {
      {"\"warmup_step\": 3",
       "\"warmup_step\" is not a field of a recipe; did you mean warmup_steps?"},
      {"\"batch\": 0", "recipe.batch is 0; expected a whole number from 1 to 1000000000"},
      {"\"seq\": 1e12",
       "recipe.seq is 1000000000000; expected a whole number from 1 to 1000000000"},
      {"\"steps\": 2.5", "recipe.steps is 2.5; expected a whole number from 1 to 1000000000"},
      {"\"precision\": \"int8\"", "recipe.precision is \"int8\"; expected fp32, fp16 or bf16"},
      {"\"precision\": \"int32\"", "recipe.precision is \"int32\"; expected fp32, fp16 or bf16"},
      {"\"optimizer\": \"sgd\"", "recipe.optimizer is \"sgd\"; expected adam or adamw"},
      {"\"optimizer\": 1", "recipe.optimizer is 1; expected a string"},
      {"\"schedule\": \"sine\"",
       "recipe.schedule is \"sine\"; expected constant, linear, cosine or wsd"},
      {"\"lr\": -1", "recipe.lr is -1; expected a number from 0 to 1000"},
      {"\"lr\": 0.1, \"min_lr\": 0.2", "recipe.min_lr is 0.2; expected a number from 0 to 0.1"},
      {"\"betas\": 0.9", "recipe.betas is 0.9; expected two numbers from 0 to below 1"},
      {"\"betas\": [0.9]", "recipe.betas is an array of 1; expected two numbers from 0 to below 1"},
      {"\"betas\": [0.9, 1]",
       "recipe.betas is an array of 2; expected two numbers from 0 to below 1"},
      {"\"betas\": [0.9, 0.99999999999]",
       "recipe.betas is an array of 2; expected two numbers from 0 to below 1"},
      {"\"betas\": [0.9, null]",
       "recipe.betas is an array of 2; expected two numbers from 0 to below 1"},
      {"\"eps\": 0", "recipe.eps is 0; expected a number from 1.17549e-38 to 1"},
      {"\"weight_decay\": -0.1", "recipe.weight_decay is -0.1; expected a number from 0 to 1000"},
      {"\"optimizer\": \"adamw\", \"decoupled_decay\": false",
       "recipe.decoupled_decay is false; expected true, as adamw has it"},
      {"\"decoupled_decay\": 1", "recipe.decoupled_decay is 1; expected true or false"},
      {"\"max_grad_norm\": -1", "recipe.max_grad_norm is -1; expected a number from 0 to 1e+06"},
      {"\"steps\": 10, \"warmup_steps\": 11",
       "recipe.warmup_steps is 11; expected a whole number from 0 to 10"},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    char text[1024], sentence[512];
    snprintf(text, sizeof text, "{\"config\": {%s}, \"recipe\": {%s}}", CONFIG, cases[i].recipe);
    snprintf(sentence, sizeof sentence, "models/tiny.json: %s", cases[i].sentence);
    expect_failure(text, GD_BAD_INPUT, sentence);
  }
}

/* "adam" alone is PyTorch's; what GPT-NeoX and fairseq call Adam decays the parameter. */
static void test_decoupled(void **state) {
  static const struct {
    const char *recipe;
    bool decouples;
  } cases[] = {
      {"\"optimizer\": \"adam\"", false},
      {"\"optimizer\": \"adam\", \"decoupled_decay\": true", true},
      {"\"optimizer\": \"adam\", \"decoupled_decay\": false", false},
      {"\"optimizer\": \"adamw\"", true},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct gd_model model;
    struct gd_graph graph;
    struct gd_error err;
    char text[1024];
    int updates = 0;
    snprintf(text, sizeof text, "{\"config\": {%s}, \"recipe\": {%s}}", CONFIG, cases[i].recipe);
    assert_int_equal(parse(text, &model, &err), GD_OK);
    assert_int_equal(gd_recipe_decouples(&model.recipe), cases[i].decouples);
    struct gd_setup setup = {.model = &model, .precision = GD_PRECISION_FP32, .micro_batch = 1};
    assert_int_equal(gd_pipeline_build(&setup, &graph, &err), GD_OK);
    for (gd_op_id id = 0; id < graph.n_ops; id++) {
      if (graph.ops[id].kind != GD_OP_adam)
        continue;
      assert_int_equal(graph.ops[id].attr.adam.decoupled, cases[i].decouples);
      updates++;
    }
    assert_true(updates > 0);
    gd_graph_deinit(&graph);
  }
}

static void test_names(void **state) {
  (void)state;
  enum gd_precision precision;
  enum gd_optimizer optimizer;
  enum gd_schedule schedule;
  for (int i = GD_PRECISION_FP32; i <= GD_PRECISION_BF16; i++) {
    assert_true(gd_precision_parse(gd_precision_name((enum gd_precision)i), &precision));
    assert_int_equal(precision, i);
  }
  for (int i = GD_OPTIMIZER_ADAM; i <= GD_OPTIMIZER_ADAMW; i++) {
    assert_true(gd_optimizer_parse(gd_optimizer_name((enum gd_optimizer)i), &optimizer));
    assert_int_equal(optimizer, i);
  }
  for (int i = GD_SCHEDULE_CONSTANT; i <= GD_SCHEDULE_WSD; i++) {
    assert_true(gd_schedule_parse(gd_schedule_name((enum gd_schedule)i), &schedule));
    assert_int_equal(schedule, i);
  }
  assert_true(gd_precision_parse("bfloat16", &precision));
  assert_int_equal(precision, GD_PRECISION_BF16);
  assert_false(gd_precision_parse("int32", &precision));
  assert_false(gd_precision_parse("", &precision));
  assert_false(gd_optimizer_parse("Adam", &optimizer));
}

static void expect_lr(const struct gd_recipe *recipe, int64_t step, double lr) {
  if (!(fabs(gd_recipe_lr(recipe, step) - lr) <= 1e-12))
    fail_msg("step %lld: %.12g, expected %.12g", (long long)step, gd_recipe_lr(recipe, step), lr);
}

static void test_schedule(void **state) {
  (void)state;
  struct gd_recipe recipe = {
      .steps = 110, .warmup_steps = 10, .lr = 1, .min_lr = 0.1, .schedule = GD_SCHEDULE_COSINE};
  expect_lr(&recipe, -5, 0.1);
  expect_lr(&recipe, 0, 0.1);
  expect_lr(&recipe, 4, 0.5);
  expect_lr(&recipe, 9, 1);
  expect_lr(&recipe, 10, 1);
  expect_lr(&recipe, 60, 0.55);
  expect_lr(&recipe, 35, 0.1 + 0.9 * 0.5 * (1 + sqrt(0.5)));
  expect_lr(&recipe, 110, 0.1);
  expect_lr(&recipe, INT64_MAX, 0.1);
  recipe.schedule = GD_SCHEDULE_LINEAR;
  expect_lr(&recipe, 4, 0.5);
  expect_lr(&recipe, 35, 0.775);
  expect_lr(&recipe, 109, 0.109);
  expect_lr(&recipe, 110, 0.1);
  /* Stable, then down over the last fifth, or over as many steps as are asked for. */
  recipe.schedule = GD_SCHEDULE_WSD;
  expect_lr(&recipe, 4, 0.5);
  expect_lr(&recipe, 88, 1);
  expect_lr(&recipe, 99, 0.55);
  expect_lr(&recipe, 110, 0.1);
  recipe.decay_steps = 50;
  expect_lr(&recipe, 60, 1);
  expect_lr(&recipe, 85, 0.55);
  recipe.decay_steps = 1000; /* more than there are behind the warm-up */
  expect_lr(&recipe, 10, 1);
  expect_lr(&recipe, 60, 0.55);
  recipe.schedule = GD_SCHEDULE_CONSTANT;
  expect_lr(&recipe, 0, 0.1);
  expect_lr(&recipe, 1000, 1);
  /* No warm-up; nothing but warm-up. */
  recipe = (struct gd_recipe){.steps = 4, .lr = 1, .schedule = GD_SCHEDULE_LINEAR};
  expect_lr(&recipe, 0, 1);
  expect_lr(&recipe, 3, 0.25);
  recipe.warmup_steps = 4;
  expect_lr(&recipe, 3, 1);
  expect_lr(&recipe, 4, 0);
}

/* --- memory -------------------------------------------------------------------------------- */

static enum gd_status load_once(void *context, struct gd_error *err) {
  struct gd_model model;
  return gd_model_load(context, &model, err);
}

static enum gd_status list_once(void *context, struct gd_error *err) {
  struct gd_arena arena = {0};
  const char *const *names;
  int count;
  (void)context;
  enum gd_status status = gd_model_list(&arena, &names, &count, err);
  gd_arena_deinit(&arena);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  char preset[] = "pythia-160m", unknown[] = "pythia-16m", path[1024];
  assert_int_equal(fault_sweep(load_once, preset), GD_OK);
  assert_int_equal(fault_sweep(load_once, unknown), GD_BAD_INPUT);
  scratch_write_text("bad/config.json", "{" CONFIG ", \"hidden_dropout\": 2}");
  snprintf(path, sizeof path, "%s", scratch_path("bad"));
  assert_int_equal(fault_sweep(load_once, path), GD_BAD_INPUT);
}

static void test_list_memory(void **state) {
  (void)state;
  assert_int_equal(fault_sweep(list_once, NULL), GD_OK);
}

/* No preset but those the test writes. */
static int setup(void **state) {
  int status = scratch_setup(state);
  setenv("XDG_CONFIG_HOME", scratch_path("empty"), 1);
  return status;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_preset),       cmocka_unit_test(test_unknown),
      cmocka_unit_test(test_decoupled),    cmocka_unit_test(test_list),
      cmocka_unit_test(test_user_presets), cmocka_unit_test(test_paths),
      cmocka_unit_test(test_reference),    cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_bad_config),   cmocka_unit_test(test_bad_recipe),
      cmocka_unit_test(test_names),        cmocka_unit_test(test_schedule),
      cmocka_unit_test(test_memory),       cmocka_unit_test(test_list_memory),
  };
  return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
