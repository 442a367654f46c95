/*
 * Every point of the search space in every format: well-formed, nothing but fields that the tools
 * document (fields_*.txt), the batch whole, and each part of the method where it belongs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "export/export.h"
#include "pass/method.h"
#include "support/fault.h"

#define FOLDER GD_SOURCE_DIR "/tests/export/"

/* --- lists of fields ----------------------------------------------------------------------- */

enum { MOST_FIELDS = 256 };
struct field {
  char path[96], type[8], values[256];
};
struct fields {
  struct field list[MOST_FIELDS];
  int count;
};
static struct fields hf_fields, deepspeed_fields, torchtitan_fields;

static void read_fields(const char *name, struct fields *to) {
  char path[512], line[512];
  snprintf(path, sizeof path, FOLDER "%s", name);
  FILE *file = fopen(path, "re");
  assert_non_null(file);
  while (fgets(line, sizeof line, file)) {
    struct field *field = &to->list[to->count];
    if (line[0] == '#')
      continue;
    assert_in_range(to->count, 0, MOST_FIELDS - 1);
    *field = (struct field){0};
    assert_true(sscanf(line, "%95s %7s %255[^\n]", field->path, field->type, field->values) >= 2);
    to->count++;
  }
  fclose(file);
  assert_true(to->count > 20);
}

static int setup(void **state) {
  (void)state;
  read_fields("fields_hf.txt", &hf_fields);
  read_fields("fields_deepspeed.txt", &deepspeed_fields);
  read_fields("fields_torchtitan.txt", &torchtitan_fields);
  return 0;
}

static const struct field *find_field(const struct fields *fields, const char *path) {
  for (int i = 0; i < fields->count; i++)
    if (strcmp(fields->list[i].path, path) == 0)
      return &fields->list[i];
  fail_msg("%s is no field that the tool documents", path);
  return NULL;
}

static bool is_among(const char *values, const char *text) {
  size_t length = strlen(text);
  if (!values[0])
    return true;
  for (const char *at = values; (at = strstr(at, text)); at++)
    if ((at == values || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0'))
      return true;
  return false;
}

static bool has_type(const struct field *field, const json_t *value) {
  switch (json_typeof(value)) {
  case JSON_OBJECT: return strcmp(field->type, "object") == 0;
  case JSON_ARRAY: return strcmp(field->type, "list") == 0;
  case JSON_STRING:
    return strcmp(field->type, "text") == 0 && is_among(field->values, json_string_value(value));
  case JSON_INTEGER: return strcmp(field->type, "int") == 0;
  case JSON_REAL: return strcmp(field->type, "real") == 0;
  case JSON_TRUE:
  case JSON_FALSE: return strcmp(field->type, "bool") == 0;
  case JSON_NULL: break;
  }
  return false;
}

/* What the Trainer fills in: "auto" stands for values that it has itself, and for no others. */
static bool is_auto(const char *path, const json_t *value) {
  static const char filled[] = "train_batch_size train_micro_batch_size_per_gpu "
                               "gradient_accumulation_steps gradient_clipping optimizer.params.lr "
                               "optimizer.params.betas optimizer.params.eps "
                               "optimizer.params.weight_decay";
  return json_is_string(value) && strcmp(json_string_value(value), "auto") == 0 &&
         is_among(filled, path);
}

static void check_object(const struct fields *fields, json_t *object, const char *before,
                         bool inside) {
  const char *key;
  json_t *value;
  json_object_foreach(object, key, value) {
    char path[128];
    snprintf(path, sizeof path, "%s%s%s", before, before[0] ? "." : "", key);
    const struct field *field = find_field(fields, path);
    if (!(inside && is_auto(path, value)) && !has_type(field, value))
      fail_msg("%s has another type or value than %s %s", path, field->type, field->values);
    if (fields == &hf_fields && strcmp(key, "deepspeed") == 0)
      check_object(&deepspeed_fields, value, "", true);
    else if (json_is_object(value))
      check_object(fields, value, path, inside);
  }
}

/* --- the points ---------------------------------------------------------------------------- */

static const char *const models[] = {"pythia-160m", "roberta",      "vit",
                                     "mamba-130m",  "llama-3.1-8b", "convnext-large-1k"};
enum { MODELS = sizeof models / sizeof *models };

struct point {
  struct gd_model model;
  struct gd_trial trial;
  struct gd_method method;
  struct gd_strbuf text, notes;
  struct gd_error err;
};

static void make_point(struct point *p, const char *model, const struct gd_method *method,
                       int ranks, const char *backend) {
  *p = (struct point){.method = *method};
  if (gd_model_load(model, &p->model, &p->err) != GD_OK)
    fail_msg("%s", p->err.text);
  struct gd_trial *trial = &p->trial;
  *trial = (struct gd_trial){.status = GD_TRIAL_OK,
                             .ranks = ranks,
                             .nodes = ranks > 4 ? 2 : 1,
                             .threads = 8,
                             .precision = p->model.recipe.precision,
                             .parameters = strcmp(model, "llama-3.1-8b") == 0 ? 8030261248 : 1,
                             .micro_batch = 8,
                             .peak_bytes = 1 << 30,
                             .host_bytes = 1 << 20,
                             .step_s = 2.5,
                             .days = 10,
                             .days_low = 9.9,
                             .days_high = 10.1};
  snprintf(trial->model, sizeof trial->model, "%s", p->model.name);
  snprintf(trial->device, sizeof trial->device, "NVIDIA A100 80GB PCIe");
  snprintf(trial->backend, sizeof trial->backend, "%s", backend);
  gd_method_name(method, trial->method);
  trial->accumulation = p->model.recipe.batch / ranks / 8;
}

static enum gd_status run(struct point *p, enum gd_export_format format) {
  struct gd_export from = {
      .model = &p->model, .trial = &p->trial, .seed = 7, .config = "{\"it\": \"isn't\"}"};
  p->text.length = p->notes.length = 0;
  p->err = (struct gd_error){0};
  enum gd_status status = gd_export(format, &from, &p->text, &p->notes, &p->err);
  assert_int_equal(status, p->err.status);
  return status;
}

static void point_deinit(struct point *p) {
  gd_strbuf_deinit(&p->text);
  gd_strbuf_deinit(&p->notes);
}

static bool noted(const struct point *p, const char *part) {
  return p->notes.length > 0 && strstr(p->notes.text, part);
}

/* Calls check for each model, point and number of ranks. */
static void each_point(void (*check)(struct point *p)) {
  static const char *const backends[] = {"cuda", "cpu"};
  static const int ranks[] = {1, 4, 8};
  struct gd_method methods[GD_METHODS_MOST + 2];
  static struct point p;
  int points = 0;
  for (int m = 0; m < MODELS; m++)
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++) {
      int count = gd_method_space(ranks[r] > 1, methods);
      assert_int_equal(count, ranks[r] > 1 ? 22 : 12);
      methods[count++] = (struct gd_method){0};               /* naive */
      methods[count++] = (struct gd_method){.kernels = true}; /* and without TF32 */
      for (int i = 0; i < 2 * count; i++, points++) {
        make_point(&p, models[m], &methods[i / 2], ranks[r], backends[i % 2]);
        check(&p);
        point_deinit(&p);
      }
    }
  assert_int_equal(points, MODELS * 2 * (14 + 24 + 24));
}

static json_t *load(struct point *p, enum gd_export_format format) {
  json_error_t error;
  if (run(p, format) != GD_OK)
    fail_msg("%s", p->err.text);
  json_t *root = json_loads(p->text.text, JSON_REJECT_DUPLICATES, &error);
  if (!root)
    fail_msg("line %d: %s", error.line, error.text);
  return root;
}

static int64_t int_at(json_t *root, const char *key) {
  assert_true(json_is_integer(json_object_get(root, key)));
  return json_integer_value(json_object_get(root, key));
}

static bool bool_at(json_t *root, const char *key) {
  return json_is_true(json_object_get(root, key));
}

/* --- hf ------------------------------------------------------------------------------------ */

static void check_hf(struct point *p) {
  const struct gd_recipe *recipe = &p->model.recipe;
  enum gd_sharding sharding = p->method.sharding;
  bool fsdp = sharding == GD_SHARDING_FSDP2 || sharding == GD_SHARDING_FSDP3;
  bool cpu = strcmp(p->trial.backend, "cpu") == 0;
  json_t *root = load(p, GD_EXPORT_HF);
  check_object(&hf_fields, root, "", false);
  assert_int_equal(int_at(root, "per_device_train_batch_size") *
                       int_at(root, "gradient_accumulation_steps") * p->trial.ranks,
                   recipe->batch);
  assert_int_equal(int_at(root, "max_steps"), recipe->steps);
  assert_int_equal(int_at(root, "save_steps"), 1440); /* an hour of 2.5 s steps */
  assert_int_equal(int_at(root, "seed"), 7);
  assert_true(json_real_value(json_object_get(root, "learning_rate")) == recipe->lr);
  assert_int_equal(bool_at(root, "bf16"), recipe->precision == GD_PRECISION_BF16);
  assert_int_equal(bool_at(root, "fp16"), recipe->precision == GD_PRECISION_FP16);
  /* Appendix F of the paper: not with DeepSpeed, and not for Mamba; a note says so. */
  bool compiles = (fsdp || sharding == GD_SHARDING_NONE) && p->model.family != &gd_family_mamba;
  assert_int_equal(bool_at(root, "torch_compile"), p->method.compile && compiles);
  assert_int_equal(noted(p, "torch_compile is false"), p->method.compile && !compiles);
  assert_int_equal(bool_at(root, "use_cpu"), cpu);
  /* TF32 stops the loading on a device that has none. */
  assert_int_equal(json_object_get(root, "tf32") != NULL,
                   !cpu && recipe->precision == GD_PRECISION_FP32);
  assert_int_equal(bool_at(root, "tf32"),
                   !cpu && recipe->precision == GD_PRECISION_FP32 && p->method.tf32);
  json_t *config = json_object_get(root, "fsdp_config");
  assert_int_equal(bool_at(root, "fsdp"), fsdp);
  assert_int_equal(config != NULL, fsdp);
  if (fsdp) {
    assert_int_equal(bool_at(config, "reshard_after_forward"), sharding == GD_SHARDING_FSDP3);
    assert_int_equal(bool_at(config, "cpu_offload"), p->method.offload);
  }
  assert_int_equal(
      bool_at(fsdp ? config : root, fsdp ? "activation_checkpointing" : "gradient_checkpointing"),
      p->method.ckpt);
  assert_int_equal(json_object_get(root, "deepspeed") != NULL,
                   sharding != GD_SHARDING_NONE && !fsdp);
  assert_int_equal(noted(p, p->method.kernels ? "attn_implementation=\"sdpa\""
                                              : "attn_implementation=\"eager\""),
                   p->model.family != &gd_family_mamba && p->model.family != &gd_family_convnext);
  json_decref(root);
}

static void test_hf(void **state) {
  (void)state;
  each_point(check_hf);
}

/* --- train.py ------------------------------------------------------------------------------ */

static bool has_line(const struct point *p, const char *line) {
  const char *at = strstr(p->text.text, line);
  return at && (at == p->text.text || at[-1] == '\n');
}

/* All of it is filled in, from the family that it is of; and the settings are those of hf. */
static void check_train_py(struct point *p) {
  char line[96];
  struct gd_strbuf settings = {0};
  bool causal;
  assert_int_equal(gd_model_is_causal(&p->model, &causal, &p->err), GD_OK);
  assert_int_equal(run(p, GD_EXPORT_HF), GD_OK);
  gd_strbuf_append(&settings, p->text.text);
  assert_int_equal(run(p, GD_EXPORT_TRAIN_PY), GD_OK);
  assert_non_null(strstr(p->text.text, settings.text));
  gd_strbuf_deinit(&settings);
  assert_false(has_line(p, "#if") || has_line(p, "#end"));
  for (const char *at = p->text.text; (at = strchr(at, '@')); at++)
    assert_true(strncmp(at, "@staticmethod", strlen("@staticmethod")) == 0);
  assert_non_null(strstr(p->text.text, "{\"it\": \"isn\\u0027t\"}"));
  snprintf(line, sizeof line, "GPUS = %d  #", p->trial.ranks);
  assert_true(has_line(p, line));
  assert_int_equal(has_line(p, "SEQ = "), !p->model.family->images);
  assert_int_equal(has_line(p, "import numpy"), !p->model.family->images);
  assert_int_equal(has_line(p, "MASK_TOKEN = "), !causal && !p->model.family->images);
  assert_int_equal(has_line(p, "def collate("), p->model.family->images);
  assert_false(noted(p, "attention is an argument") || noted(p, "no length of sequences"));
}

static void test_train_py(void **state) {
  (void)state;
  each_point(check_train_py);
}

/* What a format says whole is what its software is planned with. */
static void test_software(void **state) {
  (void)state;
  static struct point p;
  struct gd_method zero, fsdp;
  make_point(&p, "pythia-160m", &(struct gd_method){0}, 4, "cuda");
  assert_int_equal(gd_method_parse("free-lunch+zero2", &zero, &p.err), GD_OK);
  assert_int_equal(gd_method_parse("free-lunch+fsdp3+offload", &fsdp, &p.err), GD_OK);
  assert_string_equal(gd_export_stack(GD_EXPORT_HF, &p.model, NULL), "pytorch-compile");
  assert_string_equal(gd_export_stack(GD_EXPORT_SBATCH, &p.model, &fsdp), "pytorch-compile");
  assert_string_equal(gd_export_stack(GD_EXPORT_TRAIN_PY, &p.model, &zero), "deepspeed");
  assert_string_equal(gd_export_stack(GD_EXPORT_DEEPSPEED, &p.model, NULL), "deepspeed");
  assert_string_equal(gd_export_stack(GD_EXPORT_TORCHTITAN, &p.model, NULL), "torchtitan");
  assert_false(gd_export_keeps(GD_EXPORT_HF, &zero, true));
  assert_true(gd_export_keeps(GD_EXPORT_HF, &fsdp, true));
  assert_true(gd_export_keeps(GD_EXPORT_DEEPSPEED, &zero, true));
  assert_false(gd_export_keeps(GD_EXPORT_DEEPSPEED, &fsdp, true));
  assert_false(gd_export_keeps(GD_EXPORT_TORCHTITAN, &zero, true));
  assert_true(gd_export_keeps(GD_EXPORT_TORCHTITAN, &fsdp, true));
  assert_false(gd_export_keeps(GD_EXPORT_TORCHTITAN, &fsdp, false));
  assert_int_equal(gd_export_of_stack("deepspeed", &p.model, &zero), GD_EXPORT_DEEPSPEED);
  assert_int_equal(gd_export_of_stack("torchtitan", &p.model, &fsdp), GD_EXPORT_HF); /* no Llama */
  point_deinit(&p);
}

/* --- deepspeed ----------------------------------------------------------------------------- */

static void check_deepspeed(struct point *p) {
  static const int stages[] = {0, 1, 2, 3, 2, 3}; /* by enum gd_sharding */
  const struct gd_recipe *recipe = &p->model.recipe;
  json_t *root = load(p, GD_EXPORT_DEEPSPEED);
  check_object(&deepspeed_fields, root, "", false);
  assert_int_equal(int_at(root, "train_batch_size"), recipe->batch);
  assert_int_equal(int_at(root, "train_micro_batch_size_per_gpu") *
                       int_at(root, "gradient_accumulation_steps") * p->trial.ranks,
                   recipe->batch);
  json_t *zero = json_object_get(root, "zero_optimization");
  int64_t stage = int_at(zero, "stage");
  assert_int_equal(stage, stages[p->method.sharding]);
  assert_int_equal(json_object_get(zero, "offload_optimizer") != NULL, p->method.offload);
  assert_int_equal(json_object_get(zero, "offload_param") != NULL, p->method.offload && stage == 3);
  assert_int_equal(noted(p, "no FSDP"), p->method.sharding >= GD_SHARDING_FSDP2);
  assert_int_equal(json_object_get(root, "activation_checkpointing") != NULL, p->method.ckpt);
  assert_int_equal(json_object_get(root, "fp16") != NULL, recipe->precision == GD_PRECISION_FP16);
  assert_int_equal(json_object_get(root, "bf16") != NULL, recipe->precision == GD_PRECISION_BF16);
  /* Its "Adam" is AdamW unless told. */
  json_t *params = json_object_get(json_object_get(root, "optimizer"), "params");
  assert_int_equal(json_is_false(json_object_get(params, "adam_w_mode")),
                   !gd_recipe_decouples(recipe));
  json_decref(root);
}

static void test_deepspeed(void **state) {
  (void)state;
  each_point(check_deepspeed);
}

/* --- torchtitan ---------------------------------------------------------------------------- */

/* One line of the TOML that we write, as JSON writes the same value. */
static void check_line(const char *section, const char *key, const char *value, json_t *root) {
  char path[128], text[320];
  snprintf(path, sizeof path, "%s.%s", section, key);
  snprintf(text, sizeof text, "[%s]", value);
  json_t *list = json_loads(text, 0, NULL);
  if (!list)
    fail_msg("%s: %s is no value", path, value);
  const struct field *field = find_field(&torchtitan_fields, path);
  if (!has_type(field, json_array_get(list, 0)))
    fail_msg("%s is %s, not %s %s", path, value, field->type, field->values);
  assert_null(json_object_get(root, path));
  json_object_set(root, path, json_array_get(list, 0));
  json_decref(list);
}

static json_t *read_toml(char *text) {
  char section[64] = "", key[64], value[256];
  json_t *root = json_object();
  for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n"))
    if (sscanf(line, "[%63[a-z_]]", section) != 1) {
      assert_int_equal(sscanf(line, "%63[a-z0-9_] = %255[^\n]", key, value), 2);
      check_line(section, key, value, root);
    }
  return root;
}

static bool text_is(json_t *root, const char *key, const char *text) {
  const char *value = json_string_value(json_object_get(root, key));
  return value && strcmp(value, text) == 0;
}

static void check_torchtitan(struct point *p) {
  const struct gd_recipe *recipe = &p->model.recipe;
  const struct gd_method *method = &p->method;
  enum gd_status status = run(p, GD_EXPORT_TORCHTITAN);
  bool llama = p->model.family == &gd_family_llama;
  if (!llama || method->sharding == GD_SHARDING_ZERO1 || (method->offload && p->trial.ranks == 1)) {
    assert_int_equal(status, GD_UNSUPPORTED);
    assert_non_null(strstr(p->err.text, "--format"));
    return;
  }
  assert_int_equal(status, GD_OK);
  json_t *root = read_toml(p->text.text);
  assert_true(text_is(root, "model.name", "llama3"));
  assert_true(text_is(root, "model.flavor", "8B"));
  int64_t replicas = int_at(root, "parallelism.data_parallel_replicate_degree");
  int64_t shards = int_at(root, "parallelism.data_parallel_shard_degree");
  assert_int_equal(replicas * shards, p->trial.ranks);
  assert_int_equal(shards, method->sharding ? p->trial.ranks : 1);
  assert_int_equal(int_at(root, "training.global_batch_size"), recipe->batch);
  assert_int_equal(recipe->batch % (int_at(root, "training.local_batch_size") * p->trial.ranks), 0);
  assert_int_equal(int_at(root, "training.seq_len"), recipe->seq);
  assert_true(text_is(root, "activation_checkpoint.mode", method->ckpt ? "full" : "none"));
  assert_int_equal(bool_at(root, "compile.enable"), method->compile);
  assert_int_equal(bool_at(root, "training.enable_cpu_offload"), method->offload);
  bool always = method->sharding == GD_SHARDING_ZERO3 || method->sharding == GD_SHARDING_FSDP3;
  if (method->sharding)
    assert_true(
        text_is(root, "parallelism.fsdp_reshard_after_forward", always ? "always" : "never"));
  assert_int_equal(noted(p, "FSDP alone"),
                   method->sharding == GD_SHARDING_ZERO2 || method->sharding == GD_SHARDING_ZERO3);
  json_decref(root);
}

static void test_torchtitan(void **state) {
  (void)state;
  each_point(check_torchtitan);
}

/* --- sbatch -------------------------------------------------------------------------------- */

static bool shows(const struct point *p, const char *part) {
  return strstr(p->text.text, part) != NULL;
}

/* 10.1 days and a tenth of them, in jobs of a day; the rest is tests/export/test_sbatch.sh. */
static void check_sbatch(struct point *p) {
  char line[64];
  int nodes = p->trial.ranks > 4 ? 2 : 1, per_node = p->trial.ranks / nodes;
  bool cpu = strcmp(p->trial.backend, "cpu") == 0;
  assert_int_equal(run(p, GD_EXPORT_SBATCH), GD_OK);
  snprintf(line, sizeof line, "--nodes=%d\n", nodes);
  assert_true(shows(p, line));
  snprintf(line, sizeof line, "#SBATCH --cpus-per-task=%d\n", (cpu ? 8 : 4) * per_node);
  assert_true(shows(p, line));
  double bytes = (double)(p->trial.peak_bytes + p->trial.host_bytes) * 1.25;
  int own = (int)ceil(bytes / (1024.0 * 1024.0 * 1024.0)) + 4; /* of a trial on a CPU */
  snprintf(line, sizeof line, "#SBATCH --mem=%dG\n", (cpu ? own : 64) * per_node);
  assert_true(shows(p, line));
  snprintf(line, sizeof line, "#SBATCH --gpus-per-node=%d\n", per_node);
  assert_int_equal(shows(p, line), !cpu);
  snprintf(line, sizeof line, "--nproc-per-node=%d ", per_node);
  assert_true(shows(p, line));
  assert_true(shows(p, "#SBATCH --array=1-12%1\n"));
  assert_true(shows(p, "#SBATCH --time=1-00:00:00\n"));
}

static void test_sbatch(void **state) {
  (void)state;
  each_point(check_sbatch);
}

static void test_sbatch_time(void **state) {
  (void)state;
  struct gd_method method = {0};
  static struct point p;
  make_point(&p, "pythia-160m", &method, 1, "cuda");
  p.trial.days_high = 0.5; /* 13.2 hours with what comes on top */
  assert_int_equal(run(&p, GD_EXPORT_SBATCH), GD_OK);
  assert_true(shows(&p, "#SBATCH --time=0-13:12:00\n"));
  assert_false(shows(&p, "--array"));
  p.trial.days_high = 100000;
  assert_int_equal(run(&p, GD_EXPORT_SBATCH), GD_OK);
  assert_true(shows(&p, "--array=1-1000%1\n"));
  assert_true(noted(&p, "submit it again"));
  p.trial.days_high = 0.5;
  p.trial.status = GD_TRIAL_PLANNED; /* and predicted */
  assert_int_equal(run(&p, GD_EXPORT_SBATCH), GD_OK);
  assert_true(shows(&p, "#SBATCH --time=0-13:12:00\n"));
  assert_true(shows(&p, "as gpudays predicts it"));
  assert_false(noted(&p, "not measured"));
  p.trial.step_s = 0;
  p.trial.host_bytes = INT64_C(100) << 30; /* offload beyond the paper's 64 GB */
  assert_int_equal(run(&p, GD_EXPORT_SBATCH), GD_OK);
  assert_true(shows(&p, "--mem=125G\n"));
  assert_true(noted(&p, "not measured"));
  p.trial.ranks = 8;
  p.trial.nodes = 3;
  assert_int_equal(run(&p, GD_EXPORT_SBATCH), GD_UNSUPPORTED);
  point_deinit(&p);
}

/* --- details ------------------------------------------------------------------------------- */

/* A last micro-batch that is smaller: the largest whole one that fits, and a note. */
static void test_remainder(void **state) {
  (void)state;
  static const struct {
    int64_t batch, found, expected;
  } cases[] = {{1024, 7, 4}, {1000, 48, 40}, {997, 100, 1}, {1024, 1024, 1024}, {12, 100, 12}};
  static struct point p;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    make_point(&p, "pythia-160m", &(struct gd_method){0}, 1, "cuda");
    p.model.recipe.batch = cases[i].batch;
    p.trial.micro_batch = cases[i].found;
    json_t *root = load(&p, GD_EXPORT_HF);
    assert_int_equal(int_at(root, "per_device_train_batch_size"), cases[i].expected);
    assert_int_equal(int_at(root, "gradient_accumulation_steps") * cases[i].expected,
                     cases[i].batch);
    assert_int_equal(noted(&p, "smaller last one"), cases[i].found != cases[i].expected);
    json_decref(root);
    point_deinit(&p);
  }
}

static void test_schedules(void **state) {
  (void)state;
  static const struct {
    enum gd_schedule schedule;
    double min_lr;
    int64_t warmup;
    const char *hf, *deepspeed;
  } cases[] = {
      {GD_SCHEDULE_COSINE, 1e-5, 100, "cosine_with_min_lr", "WarmupCosineLR"},
      {GD_SCHEDULE_COSINE, 0, 100, "cosine", "WarmupCosineLR"},
      {GD_SCHEDULE_LINEAR, 0, 100, "linear", "WarmupDecayLR"},
      {GD_SCHEDULE_LINEAR, 1e-5, 100, "polynomial", "WarmupDecayLR"},
      {GD_SCHEDULE_CONSTANT, 1e-3, 100, "constant_with_warmup", "WarmupLR"},
      {GD_SCHEDULE_COSINE, 1e-3, 100, "constant_with_warmup", "WarmupLR"}, /* decays to itself */
      {GD_SCHEDULE_CONSTANT, 1e-3, 0, "constant", NULL},
  };
  static struct point p;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    make_point(&p, "pythia-160m", &(struct gd_method){0}, 1, "cuda");
    p.model.recipe.schedule = cases[i].schedule;
    p.model.recipe.lr = 1e-3;
    p.model.recipe.min_lr = cases[i].min_lr;
    p.model.recipe.warmup_steps = cases[i].warmup;
    json_t *root = load(&p, GD_EXPORT_HF);
    assert_true(text_is(root, "lr_scheduler_type", cases[i].hf));
    json_decref(root);
    root = load(&p, GD_EXPORT_DEEPSPEED);
    json_t *scheduler = json_object_get(root, "scheduler");
    assert_int_equal(scheduler != NULL, cases[i].deepspeed != NULL);
    if (scheduler)
      assert_true(text_is(scheduler, "type", cases[i].deepspeed));
    json_decref(root);
    point_deinit(&p);
  }
}

/* Names become a part of programs and files. */
static void test_names(void **state) {
  (void)state;
  static struct point p;
  make_point(&p, "pythia-160m", &(struct gd_method){0}, 1, "cuda");
  snprintf(p.model.name, sizeof p.model.name, "%s", "-x$(reboot)\n`id` \"q\"");
  snprintf(p.trial.device, sizeof p.trial.device, "%s", "GPU\nrm -rf /");
  assert_int_equal(run(&p, GD_EXPORT_SBATCH), GD_OK);
  assert_true(shows(&p, "#SBATCH --job-name=x__reboot___id___q_\n"));
  assert_false(shows(&p, "$(reboot)"));
  assert_false(shows(&p, "\nrm"));
  snprintf(p.model.name, sizeof p.model.name, "../..");
  assert_int_equal(run(&p, GD_EXPORT_HF), GD_OK);
  assert_true(shows(&p, "\"output_dir\": \"model\""));
  point_deinit(&p);
}

static void test_refused(void **state) {
  (void)state;
  static struct point p;
  enum gd_export_format format = GD_EXPORT_HF;
  make_point(&p, "pythia-160m", &(struct gd_method){0}, 1, "cuda");
  struct gd_export from = {.model = &p.model, .trial = &p.trial, .seed = UINT64_C(1) << 32};
  assert_int_equal(gd_export(GD_EXPORT_HF, &from, &p.text, &p.notes, &p.err), GD_BAD_INPUT);
  p.trial.ranks = 3;
  assert_int_equal(run(&p, GD_EXPORT_HF), GD_BAD_INPUT);
  assert_non_null(strstr(p.err.text, "does not divide"));
  assert_false(gd_export_parse("json", &format));
  for (int i = 0; i < GD_EXPORT_COUNT; i++) {
    assert_true(gd_export_parse(gd_export_name((enum gd_export_format)i), &format));
    assert_int_equal(format, i);
  }
  point_deinit(&p);
}

static enum gd_status attempt(void *context, struct gd_error *err) {
  struct point *p = context;
  struct gd_export from = {.model = &p->model, .trial = &p->trial};
  struct gd_strbuf text = {0}, notes = {0};
  enum gd_status status = GD_OK;
  for (int i = 0; status == GD_OK && i < GD_EXPORT_COUNT; i++)
    status = gd_export((enum gd_export_format)i, &from, &text, &notes, err);
  gd_strbuf_deinit(&text);
  gd_strbuf_deinit(&notes);
  return status;
}

static void test_memory(void **state) {
  (void)state;
  static struct point p;
  struct gd_method method = {.compile = true,
                             .kernels = true,
                             .ckpt = true,
                             .sharding = GD_SHARDING_ZERO3,
                             .offload = true};
  make_point(&p, "llama-3.1-8b", &method, 4, "cuda");
  assert_int_equal(fault_sweep(attempt, &p), GD_OK);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_train_py),    cmocka_unit_test(test_software),
      cmocka_unit_test(test_hf),          cmocka_unit_test(test_deepspeed),
      cmocka_unit_test(test_torchtitan),  cmocka_unit_test(test_sbatch),
      cmocka_unit_test(test_sbatch_time), cmocka_unit_test(test_remainder),
      cmocka_unit_test(test_schedules),   cmocka_unit_test(test_names),
      cmocka_unit_test(test_refused),     cmocka_unit_test(test_memory),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
