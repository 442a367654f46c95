/*
 * From what the user typed to a model: a preset by name (the user's folder, then those built into
 * the binary) or a path to a Hugging Face configuration, the family that reads it, and the recipe.
 * What a configuration's fields mean is the family's file (neox.c); nothing here builds graphs but
 * gd_model_list, to sort by size.
 */
#define _XOPEN_SOURCE 700
#include <dirent.h>
#include <errno.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/embedded.h"
#include "base/file.h"
#include "base/paths.h"
#include "model/config.h"
#include "model/model.h"

enum { PATH_BYTES = PATH_MAX, SUGGESTIONS = 3 };

static const struct gd_family *const families[] = {
#define GD_FAMILY(name) &gd_family_##name,
#include "model/families.def"
#undef GD_FAMILY
};
enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

/* --- names of the recipe's choices --------------------------------------------------------- */

static const char *const precision_names[] = {
    [GD_PRECISION_FP32] = "fp32", [GD_PRECISION_FP16] = "fp16", [GD_PRECISION_BF16] = "bf16"};
static const char *const optimizer_names[] = {
    [GD_OPTIMIZER_ADAM] = "adam", [GD_OPTIMIZER_ADAMW] = "adamw"};
static const char *const schedule_names[] = {[GD_SCHEDULE_CONSTANT] = "constant",
                                             [GD_SCHEDULE_LINEAR] = "linear",
                                             [GD_SCHEDULE_COSINE] = "cosine",
                                             [GD_SCHEDULE_WSD] = "wsd"};
enum {
  PRECISION_COUNT = sizeof precision_names / sizeof *precision_names,
  OPTIMIZER_COUNT = sizeof optimizer_names / sizeof *optimizer_names,
  SCHEDULE_COUNT = sizeof schedule_names / sizeof *schedule_names,
};

static int find_name(const char *const *names, int count, const char *text) {
  for (int i = 0; i < count; i++)
    if (strcmp(names[i], text) == 0)
      return i;
  return -1;
}

const char *gd_precision_name(enum gd_precision precision) {
  GD_ASSERT((int)precision < PRECISION_COUNT);
  return precision_names[precision];
}

enum gd_dtype gd_precision_dtype(enum gd_precision precision) {
  static const enum gd_dtype dtypes[] = {[GD_PRECISION_FP32] = GD_DTYPE_F32,
                                         [GD_PRECISION_FP16] = GD_DTYPE_F16,
                                         [GD_PRECISION_BF16] = GD_DTYPE_BF16};
  return dtypes[precision];
}

bool gd_recipe_decouples(const struct gd_recipe *recipe) {
  return recipe->optimizer == GD_OPTIMIZER_ADAMW || recipe->decoupled_decay;
}

const char *gd_recipe_decay_name(const struct gd_recipe *recipe) {
  bool unusual = recipe->optimizer == GD_OPTIMIZER_ADAM && gd_recipe_decouples(recipe);
  return unusual ? "decoupled weight decay" : "weight decay";
}

const char *gd_optimizer_name(enum gd_optimizer optimizer) {
  GD_ASSERT((int)optimizer < OPTIMIZER_COUNT);
  return optimizer_names[optimizer];
}

const char *gd_schedule_name(enum gd_schedule schedule) {
  GD_ASSERT((int)schedule < SCHEDULE_COUNT);
  return schedule_names[schedule];
}

bool gd_precision_parse(const char *text, enum gd_precision *precision) {
  enum gd_dtype dtype; /* a dtype has more names than "fp16" */
  if (!gd_dtype_parse(text, &dtype))
    return false;
  for (int i = 0; i < PRECISION_COUNT; i++)
    if (gd_precision_dtype((enum gd_precision)i) == dtype) {
      *precision = (enum gd_precision)i;
      return true;
    }
  return false;
}

bool gd_optimizer_parse(const char *text, enum gd_optimizer *optimizer) {
  int found = find_name(optimizer_names, OPTIMIZER_COUNT, text);
  if (found >= 0)
    *optimizer = (enum gd_optimizer)found;
  return found >= 0;
}

bool gd_schedule_parse(const char *text, enum gd_schedule *schedule) {
  int found = find_name(schedule_names, SCHEDULE_COUNT, text);
  if (found >= 0)
    *schedule = (enum gd_schedule)found;
  return found >= 0;
}

/* --- recipes ------------------------------------------------------------------------------- */

/* What a bare configuration trains with: what is usual for a language model of a billion
   parameters (GPT-3's betas, decay and clipping; arXiv:2005.14165, appendix B). */
static const struct gd_recipe default_recipe = {
    .batch = 512,
    .seq = 2048,
    .steps = 100000,
    .precision = GD_PRECISION_BF16,
    .optimizer = GD_OPTIMIZER_ADAMW,
    .lr = 3e-4,
    .min_lr = 3e-5,
    .beta1 = 0.9,
    .beta2 = 0.95,
    .eps = 1e-8,
    .weight_decay = 0.1,
    .max_grad_norm = 1,
    .schedule = GD_SCHEDULE_COSINE,
    .warmup_steps = 2000,
    .drop_path = -1, /* the configuration's */
};

/* Past any run, and far enough from overflow that batch * seq and batch * steps fit. */
static const int64_t most_sequences = 1000000000, most_steps = 1000000000;

static const char *const recipe_keys[] = {
    "batch",        "seq",          "steps",           "precision",
    "optimizer",    "lr",           "min_lr",          "betas",
    "eps",          "weight_decay", "max_grad_norm",   "schedule",
    "warmup_steps", "decay_steps",  "decoupled_decay", "drop_path",
};
static const char *const preset_keys[] = {"name", "source", "date", "config", "recipe"};

static enum gd_status read_betas(const struct gd_json *json, const json_t *object,
                                 struct gd_recipe *recipe, struct gd_error *err) {
  const json_t *betas = json_object_get(object, "betas");
  double values[2];
  bool fine = json_is_array(betas) && json_array_size(betas) == 2;
  for (size_t i = 0; fine && i < 2; i++) {
    const json_t *beta = json_array_get(betas, i);
    values[i] = json_number_value(beta);
    /* Compared as the float the optimizer computes with: 1 - beta divides. */
    fine = json_is_number(beta) && values[i] >= 0 && (float)values[i] < 1.0f;
  }
  if (!fine)
    return gd_json_mismatch(json, object, "betas", "two numbers from 0 to below 1", err);
  recipe->beta1 = values[0];
  recipe->beta2 = values[1];
  return GD_OK;
}

static enum gd_status read_choices(const struct gd_json *json, const json_t *object,
                                   struct gd_recipe *recipe, struct gd_error *err) {
  const char *text;
  if (gd_json_has(object, "precision")) {
    GD_TRY(gd_json_string(json, object, "precision", &text, err));
    if (!gd_precision_parse(text, &recipe->precision))
      return gd_json_mismatch(json, object, "precision", "fp32, fp16 or bf16", err);
  }
  if (gd_json_has(object, "optimizer")) {
    GD_TRY(gd_json_string(json, object, "optimizer", &text, err));
    if (!gd_optimizer_parse(text, &recipe->optimizer))
      return gd_json_mismatch(json, object, "optimizer", "adam or adamw", err);
    recipe->decoupled_decay = false;
  }
  if (gd_json_has(object, "decoupled_decay")) {
    GD_TRY(gd_json_bool(json, object, "decoupled_decay", &recipe->decoupled_decay, err));
    if (recipe->optimizer == GD_OPTIMIZER_ADAMW && !recipe->decoupled_decay)
      return gd_json_mismatch(json, object, "decoupled_decay", "true, as adamw has it", err);
  }
  if (gd_json_has(object, "schedule")) {
    GD_TRY(gd_json_string(json, object, "schedule", &text, err));
    if (!gd_schedule_parse(text, &recipe->schedule))
      return gd_json_mismatch(json, object, "schedule", "constant, linear, cosine or wsd", err);
  }
  return GD_OK;
}

enum gd_status gd_recipe_parse(const struct gd_json *json, json_t *object, struct gd_recipe *recipe,
                               struct gd_error *err) {
  struct gd_recipe read = *recipe;
  GD_TRY(gd_config_keys(json, object, "a recipe", recipe_keys,
                        (int)(sizeof recipe_keys / sizeof *recipe_keys), err));
  GD_TRY(gd_config_int(json, object, "batch", 1, most_sequences, &read.batch, err));
  GD_TRY(gd_config_int(json, object, "seq", 1, most_sequences, &read.seq, err));
  GD_TRY(gd_config_int(json, object, "steps", 1, most_steps, &read.steps, err));
  GD_TRY(read_choices(json, object, &read, err));
  GD_TRY(gd_config_number(json, object, "lr", 0, 1000, &read.lr, err));
  if (gd_json_has(object, "lr"))
    read.min_lr = read.lr / 10; /* the ratio of the default recipe, and of Pythia's */
  GD_TRY(gd_config_number(json, object, "min_lr", 0, read.lr, &read.min_lr, err));
  if (gd_json_has(object, "betas"))
    GD_TRY(read_betas(json, object, &read, err));
  /* The optimizer divides by sqrt(v) + eps in fp32, and v may be zero. */
  GD_TRY(gd_config_number(json, object, "eps", (double)FLT_MIN, 1, &read.eps, err));
  GD_TRY(gd_config_number(json, object, "weight_decay", 0, 1000, &read.weight_decay, err));
  GD_TRY(gd_config_number(json, object, "max_grad_norm", 0, 1e6, &read.max_grad_norm, err));
  if (read.warmup_steps > read.steps)
    read.warmup_steps = read.steps;
  GD_TRY(gd_config_int(json, object, "warmup_steps", 0, read.steps, &read.warmup_steps, err));
  if (read.decay_steps > read.steps)
    read.decay_steps = read.steps;
  GD_TRY(gd_config_int(json, object, "decay_steps", 0, read.steps, &read.decay_steps, err));
  GD_TRY(gd_config_dropout(json, object, "drop_path", &read.drop_path, err));
  *recipe = read;
  return GD_OK;
}

json_t *gd_recipe_json(const struct gd_recipe *r) {
  return json_pack("{sI sI sI ss ss sb sf sf s[ff] sf sf sf ss sI sI sf}", "batch",
                   (json_int_t)r->batch, "seq", (json_int_t)r->seq, "steps", (json_int_t)r->steps,
                   "precision", gd_precision_name(r->precision), "optimizer",
                   gd_optimizer_name(r->optimizer), "decoupled_decay", gd_recipe_decouples(r), "lr",
                   r->lr, "min_lr", r->min_lr, "betas", r->beta1, r->beta2, "eps", r->eps,
                   "weight_decay", r->weight_decay, "max_grad_norm", r->max_grad_norm, "schedule",
                   gd_schedule_name(r->schedule), "warmup_steps", (json_int_t)r->warmup_steps,
                   "decay_steps", (json_int_t)r->decay_steps, "drop_path", r->drop_path);
}

int64_t gd_recipe_decay_steps(const struct gd_recipe *recipe) {
  int64_t after = recipe->steps - recipe->warmup_steps;
  int64_t decay = recipe->decay_steps > 0 ? recipe->decay_steps : (recipe->steps + 4) / 5;
  return recipe->schedule == GD_SCHEDULE_WSD && decay < after ? decay : after;
}

double gd_recipe_lr(const struct gd_recipe *recipe, int64_t step) {
  if (step < 0)
    step = 0;
  /* The first step already moves: warm-up counts from 1. */
  if (step < recipe->warmup_steps)
    return recipe->lr * (double)(step + 1) / (double)recipe->warmup_steps;
  if (recipe->schedule == GD_SCHEDULE_CONSTANT)
    return recipe->lr;
  double left = step >= recipe->steps
                    ? 0
                    : (double)(recipe->steps - step) / (double)gd_recipe_decay_steps(recipe);
  left = left < 1 ? left : 1;
  double share = recipe->schedule == GD_SCHEDULE_COSINE
                     ? 0.5 * (1 + cos(3.14159265358979323846 * (1 - left)))
                     : left;
  return recipe->min_lr + (recipe->lr - recipe->min_lr) * share;
}

enum gd_status gd_model_is_causal(const struct gd_model *model, bool *causal,
                                  struct gd_error *err) {
  struct gd_graph graph;
  gd_graph_init(&graph);
  model->family->build(model, 1, &graph);
  enum gd_status status = gd_graph_check(&graph, err);
  *causal = graph.predicts_next;
  gd_graph_deinit(&graph);
  return status;
}

/* --- configurations ------------------------------------------------------------------------ */

/* The last part of a path, or NULL when it says nothing: "", "." or "..". */
static const char *last_part(char *path) {
  size_t length = strlen(path);
  while (length > 0 && path[length - 1] == '/')
    path[--length] = '\0';
  const char *slash = strrchr(path, '/');
  const char *part = slash ? slash + 1 : path;
  return part[0] == '\0' || strcmp(part, ".") == 0 || strcmp(part, "..") == 0 ? NULL : part;
}

/* A file's name without ".json"; for ".../config.json" that of its folder, as it was written:
   following links would lead to the blobs of Hugging Face's cache. */
static void name_of_path(const char *path, char *name, size_t size) {
  char text[PATH_BYTES], resolved[PATH_BYTES];
  snprintf(text, sizeof text, "%s", path);
  char *slash = strrchr(text, '/');
  char *base = slash ? slash + 1 : text;
  const char *part = base;
  if (strcmp(base, "config.json") == 0) {
    base[0] = '\0';
    part = last_part(text);
    if (!part && path[0] != '/' && realpath(text[0] ? text : ".", resolved))
      part = last_part(resolved);
  } else if (gd_name_is_json(base)) {
    base[strlen(base) - strlen(".json")] = '\0';
  }
  gd_json_excerpt(name, size, part && part[0] ? part : "model");
}

static enum gd_status find_family(const struct gd_json *json, const json_t *config,
                                  const struct gd_family **family, struct gd_error *err) {
  char clean[64], known[256];
  const char *type;
  size_t length = 0;
  GD_TRY(gd_json_string(json, config, "model_type", &type, err));
  for (int i = 0; i < FAMILY_COUNT; i++)
    if (strcmp(families[i]->model_type, type) == 0) {
      *family = families[i];
      return GD_OK;
    }
  for (int i = 0; i < FAMILY_COUNT && length < sizeof known; i++)
    length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", i ? ", " : "",
                               families[i]->model_type);
  return gd_fail(err, GD_UNSUPPORTED, "%s: model_type is \"%s\"; this version has %s", json->file,
                 gd_json_excerpt(clean, sizeof clean, type), known);
}

enum gd_status gd_model_check_drop_path(const struct gd_model *model, struct gd_error *err) {
  if (model->recipe.drop_path > 0 && !model->family->images)
    return gd_fail(err, GD_BAD_INPUT,
                   "drop_path (stochastic depth) is for models of images, and %s is trained on "
                   "tokens; leave it out",
                   model->name);
  return GD_OK;
}

enum gd_status gd_model_parse(const struct gd_json *json, struct gd_model *model,
                              struct gd_error *err) {
  struct gd_model read = {.recipe = default_recipe};
  const json_t *config = json->root;
  int64_t positions = default_recipe.seq;
  bool preset = json_object_get(json->root, "config") != NULL;
  if (preset) {
    GD_TRY(gd_config_keys(json, json->root, "a preset", preset_keys,
                          (int)(sizeof preset_keys / sizeof *preset_keys), err));
    config = json_object_get(json->root, "config");
    if (!json_is_object(config))
      return gd_json_mismatch(json, json->root, "config", "a Hugging Face configuration", err);
  }
  GD_TRY(find_family(json, config, &read.family, err));
  GD_TRY(
      gd_config_int(json, config, "max_position_embeddings", 1, most_sequences, &positions, err));
  gd_config_limit_seq(json, positions, &read.recipe.seq);
  if (preset && gd_json_has(json->root, "recipe")) {
    json_t *recipe = json_object_get(json->root, "recipe");
    if (!json_is_object(recipe))
      return gd_json_mismatch(json, json->root, "recipe", "an object", err);
    GD_TRY(gd_recipe_parse(json, recipe, &read.recipe, err));
  }
  if (preset && gd_json_has(json->root, "name")) {
    const char *name;
    GD_TRY(gd_json_string(json, json->root, "name", &name, err));
    gd_json_excerpt(read.name, sizeof read.name, name);
  } else {
    name_of_path(json->file, read.name, sizeof read.name);
  }
  GD_TRY(read.family->parse(json, config, &read, err));
  if (read.recipe.drop_path < 0)
    read.recipe.drop_path = 0;
  GD_TRY(gd_model_check_drop_path(&read, err));
  *model = read;
  return GD_OK;
}

/* Parses a file that was read, and appends its configuration to config where that is not NULL. */
static enum gd_status parse_model(const struct gd_json *json, struct gd_model *model,
                                  struct gd_strbuf *config, struct gd_error *err) {
  GD_TRY(gd_model_parse(json, model, err));
  if (!config)
    return GD_OK;
  json_t *preset = json_object_get(json->root, "config");
  bool done = gd_json_append(config, preset ? preset : json->root,
                             JSON_INDENT(2) | JSON_REAL_PRECISION(17));
  gd_strbuf_append(config, "\n");
  return done && !config->failed ? GD_OK : gd_nomem(err, "while reading a model");
}

static enum gd_status load_file(const char *path, struct gd_model *model, struct gd_strbuf *config,
                                struct gd_error *err) {
  struct gd_json json = {0};
  struct gd_model read;
  enum gd_status status = gd_json_load(&json, path, err);
  if (status == GD_OK)
    status = parse_model(&json, &read, config, err);
  if (status == GD_OK) {
    /* The file's own name, so that two copies of a preset can be told apart. */
    name_of_path(path, read.name, sizeof read.name);
    *model = read;
  }
  gd_json_deinit(&json);
  return status;
}

static enum gd_status load_folder(const char *folder, struct gd_model *model,
                                  struct gd_strbuf *config, struct gd_error *err) {
  char path[PATH_BYTES];
  int length = snprintf(path, sizeof path, "%s/config.json", folder);
  if (length < 0 || (size_t)length >= sizeof path)
    return gd_fail(err, GD_BAD_INPUT, "%.64s...: the path is too long", folder);
  if (gd_file_is_missing(path))
    return gd_fail(err, GD_BAD_INPUT, "%s: the folder has no config.json", folder);
  return load_file(path, model, config, err);
}

/* --- presets ------------------------------------------------------------------------------- */

static const struct gd_embedded_file *find_embedded(const char *name) {
  char path[256];
  int length = snprintf(path, sizeof path, "models/%s.json", name);
  if (length < 0 || (size_t)length >= sizeof path)
    return NULL;
  for (int i = 0; i < gd_embedded_file_count; i++)
    if (strcmp(gd_embedded_files[i].path, path) == 0)
      return &gd_embedded_files[i];
  return NULL;
}

/* The path of the user's preset of that name; false when there is none. */
static bool find_user_preset(const char *name, char *path, size_t size) {
  char folder[PATH_BYTES];
  if (!gd_path_config("models", folder, sizeof folder))
    return false;
  int length = snprintf(path, size, "%s/%s.json", folder, name);
  return length >= 0 && (size_t)length < size && access(path, F_OK) == 0;
}

static enum gd_status load_embedded(const struct gd_embedded_file *file, const char *name,
                                    struct gd_model *model, struct gd_strbuf *config,
                                    struct gd_error *err) {
  struct gd_json json = {0};
  struct gd_model read;
  enum gd_status status = gd_json_parse(&json, file->path, file->text, file->length, err);
  if (status == GD_OK)
    status = parse_model(&json, &read, config, err);
  if (status == GD_OK) {
    gd_json_excerpt(read.name, sizeof read.name, name);
    *model = read;
  }
  gd_json_deinit(&json);
  return status;
}

/* *found tells "no such preset" from "there is one and it is broken". */
static enum gd_status load_preset(const char *name, struct gd_model *model,
                                  struct gd_strbuf *config, bool *found, struct gd_error *err) {
  char path[PATH_BYTES];
  *found = true;
  if (find_user_preset(name, path, sizeof path))
    return load_file(path, model, config, err);
  const struct gd_embedded_file *file = find_embedded(name);
  if (file)
    return load_embedded(file, name, model, config, err);
  *found = false;
  return GD_OK;
}

/* A preset as listed; the last three are filled in for sorting only. */
struct preset {
  const char *name;
  int distance, prefix; /* to what was asked for */
  const char *family;   /* NULL: it cannot be read */
  int64_t parameters;
};

struct presets {
  struct gd_arena *arena; /* holds the names */
  struct preset *list;
  uint32_t count, capacity;
};

/* Adds the stem of "<stem>.json" unless it is there already. */
static enum gd_status add_preset(struct presets *presets, const char *file, struct gd_error *err) {
  if (!gd_name_is_json(file) || file[0] == '.')
    return GD_OK;
  char *name = gd_arena_copy_string(presets->arena, file);
  if (!name || !gd_vec_reserve((void **)&presets->list, &presets->capacity, presets->count + 1,
                               sizeof *presets->list))
    return gd_nomem(err, "while listing models");
  name[strlen(name) - strlen(".json")] = '\0';
  for (uint32_t i = 0; i < presets->count; i++)
    if (strcmp(presets->list[i].name, name) == 0)
      return GD_OK;
  presets->list[presets->count++] = (struct preset){.name = name};
  return GD_OK;
}

static enum gd_status collect_presets(struct presets *presets, struct gd_error *err) {
  static const char prefix[] = "models/";
  char folder[PATH_BYTES];
  for (int i = 0; i < gd_embedded_file_count; i++)
    if (strncmp(gd_embedded_files[i].path, prefix, sizeof prefix - 1) == 0)
      GD_TRY(add_preset(presets, gd_embedded_files[i].path + sizeof prefix - 1, err));
  DIR *dir = gd_path_config("models", folder, sizeof folder) ? opendir(folder) : NULL;
  if (!dir) /* most people have no presets of their own */
    return GD_OK;
  enum gd_status status = GD_OK;
  for (struct dirent *entry = readdir(dir); entry && status == GD_OK; entry = readdir(dir))
    status = add_preset(presets, entry->d_name, err);
  closedir(dir);
  return status;
}

/* Nearest first: few edits, then a long common beginning, then the short name. */
static int compare_nearness(const void *a, const void *b) {
  const struct preset *x = a, *y = b;
  if (x->distance != y->distance)
    return x->distance < y->distance ? -1 : 1;
  if (x->prefix != y->prefix)
    return x->prefix > y->prefix ? -1 : 1;
  size_t x_length = strlen(x->name), y_length = strlen(y->name);
  if (x_length != y_length)
    return x_length < y_length ? -1 : 1;
  return strcmp(x->name, y->name);
}

static enum gd_status unknown_model(const char *name, struct gd_error *err) {
  struct gd_arena arena = {0};
  struct presets presets = {.arena = &arena};
  struct gd_strbuf nearest = {0};
  char clean[96];
  enum gd_status status = collect_presets(&presets, err);
  if (status != GD_OK)
    goto done;
  for (uint32_t i = 0; i < presets.count; i++) {
    struct preset *preset = &presets.list[i];
    preset->distance = gd_edit_distance(name, preset->name);
    while (name[preset->prefix] && name[preset->prefix] == preset->name[preset->prefix])
      preset->prefix++;
  }
  if (presets.count > 0)
    qsort(presets.list, presets.count, sizeof *presets.list, compare_nearness);
  uint32_t shown = presets.count < SUGGESTIONS ? presets.count : SUGGESTIONS;
  for (uint32_t i = 0; i < shown; i++)
    gd_strbuf_printf(&nearest, "%s%s",
                     i == 0          ? "; did you mean "
                     : i + 1 < shown ? ", "
                                     : " or ",
                     presets.list[i].name);
  if (shown > 0)
    gd_strbuf_append(&nearest, "?");
  status = gd_fail(err, GD_BAD_INPUT,
                   "unknown model \"%s\"%s ('gpudays models' lists all; a path to a Hugging Face "
                   "config.json works too)",
                   gd_json_excerpt(clean, sizeof clean, name),
                   nearest.text && !nearest.failed ? nearest.text : "");
done:
  gd_strbuf_deinit(&nearest);
  gd_mem_free(presets.list);
  gd_arena_deinit(&arena);
  return status;
}

enum gd_status gd_model_load_config(const char *name_or_path, struct gd_model *model,
                                    struct gd_strbuf *text, struct gd_error *err) {
  struct stat about;
  char config[PATH_BYTES];
  bool found;
  bool exists = stat(name_or_path, &about) == 0;
  bool folder = exists && S_ISDIR(about.st_mode);
  bool path = strchr(name_or_path, '/') || gd_name_is_json(name_or_path);
  if (name_or_path[0] == '\0')
    return gd_fail(err, GD_BAD_INPUT,
                   "the model's name is empty; 'gpudays models' lists those there are");
  if (path)
    return folder ? load_folder(name_or_path, model, text, err)
                  : load_file(name_or_path, model, text, err);
  if (exists && !folder)
    return load_file(name_or_path, model, text, err);
  /* A folder that happens to be called like a preset hides it only when it holds a model. */
  if (folder && snprintf(config, sizeof config, "%s/config.json", name_or_path) > 0 &&
      !gd_file_is_missing(config))
    return load_folder(name_or_path, model, text, err);
  GD_TRY(load_preset(name_or_path, model, text, &found, err));
  if (found)
    return GD_OK;
  return folder ? load_folder(name_or_path, model, text, err) : unknown_model(name_or_path, err);
}

enum gd_status gd_model_load(const char *name_or_path, struct gd_model *model,
                             struct gd_error *err) {
  return gd_model_load_config(name_or_path, model, NULL, err);
}

/* By family, then size; what cannot be read comes last. */
static int compare_sizes(const void *a, const void *b) {
  const struct preset *x = a, *y = b;
  if (!x->family != !y->family)
    return x->family ? -1 : 1;
  int families_differ = x->family ? strcmp(x->family, y->family) : 0;
  if (families_differ != 0)
    return families_differ;
  if (x->parameters != y->parameters)
    return x->parameters < y->parameters ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* A broken preset of the user's stays in the list without a size: loading it says what is wrong. */
static enum gd_status measure(struct preset *preset, struct gd_error *err) {
  struct gd_model model;
  struct gd_graph graph;
  struct gd_error reason = {0};
  bool found;
  enum gd_status status = load_preset(preset->name, &model, NULL, &found, &reason);
  if (status == GD_ENVIRONMENT)
    return gd_fail(err, status, "%s", reason.text);
  if (status != GD_OK || !found)
    return GD_OK;
  gd_graph_init(&graph);
  model.family->build(&model, 1, &graph);
  status = gd_graph_check(&graph, &reason);
  if (status == GD_OK) {
    preset->family = model.family->title;
    preset->parameters = gd_graph_parameters(&graph);
  }
  gd_graph_deinit(&graph);
  return status == GD_ENVIRONMENT ? gd_fail(err, status, "%s", reason.text) : GD_OK;
}

enum gd_status gd_model_list(struct gd_arena *arena, const char *const **names, int *count,
                             struct gd_error *err) {
  struct presets presets = {.arena = arena};
  enum gd_status status = collect_presets(&presets, err);
  for (uint32_t i = 0; status == GD_OK && i < presets.count; i++)
    status = measure(&presets.list[i], err);
  if (status != GD_OK)
    goto done;
  if (presets.count > 0)
    qsort(presets.list, presets.count, sizeof *presets.list, compare_sizes);
  const char **list = gd_arena_alloc(arena, presets.count + (size_t)1, sizeof *list);
  if (!list) {
    status = gd_nomem(err, "while listing models");
    goto done;
  }
  for (uint32_t i = 0; i < presets.count; i++)
    list[i] = presets.list[i].name;
  *names = list;
  *count = (int)presets.count;
done:
  gd_mem_free(presets.list);
  return status;
}
