/*
 * From what the user typed to a model: a preset by name (the user's folder, then those built into
 * the binary) or a path to a Hugging Face configuration, the family that reads it, and the recipe.
 * What a configuration's fields mean is the family's file (neox.c); nothing here builds graphs but
 * gd_model_list, to sort by size.
 */
#define _XOPEN_SOURCE 700
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "model/config.h"
#include "model/fields.h"
#include "model/model.h"
#include "model/model_int.h"
#include "model/presets.h"

enum { PATH_BYTES = PATH_MAX };

static const struct gd_family *const families[] = {
#define GD_FAMILY(name) &gd_family_##name,
#include "model/families.def"
#undef GD_FAMILY
};
enum { FAMILY_COUNT = sizeof families / sizeof families[0] };

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

const struct gd_recipe *gd_recipe_default(void) {
  return &default_recipe;
}

/* Past any run; so has recipe_parse.c. */
static const int64_t most_positions = 1000000000;

static const char *const preset_keys[] = {"name",   "hub",    "source", "date",
                                          "config", "recipe", "images"};

const char *gd_family_kind(const struct gd_family *family) {
  return family->kind ? family->kind : "transformer";
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
void gd_model_name_of_path(const char *path, char *name, size_t size) {
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
  gd_json_refuse(json, config, "model_type");
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

/* What any configuration of transformers may ask for and no family here has. */
static enum gd_status check_common(const struct gd_json *json, const json_t *config,
                                   struct gd_error *err) {
  static const char *const never[] = {"is_encoder_decoder", "add_cross_attention",
                                      "tie_encoder_decoder"};
  const json_t *pruned = gd_json_get(json, config, "pruned_heads");
  for (size_t i = 0; i < sizeof never / sizeof *never; i++)
    GD_TRY(gd_config_only(json, config, never[i], false, err));
  if (json_object_size(pruned) > 0 || json_array_size(pruned) > 0)
    return gd_config_unsupported(json, config, "pruned_heads", "none, as no head is left out here",
                                 err);
  if (gd_config_has(json, config, "cross_attention_hidden_size"))
    return gd_config_unsupported(json, config, "cross_attention_hidden_size",
                                 "null, as no cross-attention is built here", err);
  return GD_OK;
}

/* Which parts of the recipe nobody gave. */
static unsigned assumed_of(const json_t *recipe) {
  static const char *const keys[] = {"steps", "batch", "seq", "lr", "precision"};
  unsigned assumed = 0;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (!gd_json_has(recipe, keys[i]))
      assumed |= 1u << i;
  return assumed;
}

static enum gd_status read_name(const struct gd_json *json, const json_t *object, const char *key,
                                char *out, size_t size, struct gd_error *err) {
  const char *text = "";
  if (gd_json_has(object, key))
    GD_TRY(gd_json_string(json, object, key, &text, err));
  if (strlen(text) >= size)
    return gd_json_mismatch(json, object, key, "a shorter text", err);
  snprintf(out, size, "%s", text);
  return GD_OK;
}

static enum gd_status parse_images(const struct gd_json *json, struct gd_model *model,
                                   struct gd_error *err) {
  static const char *const keys[] = {"augment", "normalize", "label_smoothing", "drop_path"};
  struct gd_image_training *images = &model->images;
  json_t *object = json_object_get(json->root, "images");
  if (!gd_json_has(json->root, "images"))
    return GD_OK;
  if (!json_is_object(object))
    return gd_json_mismatch(json, json->root, "images", "an object", err);
  if (!model->family->images)
    return gd_json_mismatch(json, json->root, "images",
                            "left out, as the model is trained on tokens", err);
  GD_TRY(gd_config_keys(json, object, "\"images\"", keys, (int)(sizeof keys / sizeof *keys), err));
  GD_TRY(read_name(json, object, "augment", images->augment, sizeof images->augment, err));
  GD_TRY(read_name(json, object, "normalize", images->normalize, sizeof images->normalize, err));
  GD_TRY(gd_config_number(json, object, "label_smoothing", 0, 1, &images->label_smoothing, err));
  return gd_config_dropout(json, object, "drop_path", &images->drop_path, err);
}

static enum gd_status parse_named(const struct gd_json *json, const json_t *config, bool preset,
                                  struct gd_model *model, struct gd_error *err) {
  int64_t positions = default_recipe.seq;
  json_t *recipe = preset ? json_object_get(json->root, "recipe") : NULL;
  GD_TRY(find_family(json, config, &model->family, err));
  GD_TRY(check_common(json, config, err));
  GD_TRY(
      gd_config_int(json, config, "max_position_embeddings", 1, most_positions, &positions, err));
  gd_config_limit_seq(json, positions, &model->recipe.seq);
  if (preset && gd_json_has(json->root, "recipe")) {
    if (!json_is_object(recipe))
      return gd_json_mismatch(json, json->root, "recipe", "an object", err);
    GD_TRY(gd_recipe_parse(json, recipe, &model->recipe, err));
  }
  if (preset && gd_json_has(json->root, "name")) {
    const char *name;
    GD_TRY(gd_json_string(json, json->root, "name", &name, err));
    gd_json_excerpt(model->name, sizeof model->name, name);
  } else {
    gd_model_name_of_path(json->file, model->name, sizeof model->name);
  }
  GD_TRY(model->family->parse(json, config, model, err));
  if (model->recipe.drop_path < 0)
    model->recipe.drop_path = 0;
  GD_TRY(gd_model_check_drop_path(model, err));
  if (preset)
    GD_TRY(parse_images(json, model, err));
  model->assumed = assumed_of(recipe);
  return gd_model_assume_steps(model, err);
}

enum gd_status gd_model_parse(const struct gd_json *json, struct gd_model *model,
                              struct gd_error *err) {
  struct gd_model read = {.recipe = default_recipe};
  struct gd_json_log log = {0};
  struct gd_json logged = *json;
  json_t *config = json->root;
  bool preset = json_object_get(json->root, "config") != NULL;
  if (preset) {
    GD_TRY(gd_config_keys(json, json->root, "a preset", preset_keys,
                          (int)(sizeof preset_keys / sizeof *preset_keys), err));
    config = json_object_get(json->root, "config");
    if (!json_is_object(config))
      return gd_json_mismatch(json, json->root, "config", "a Hugging Face configuration", err);
  }
  if (!logged.log)
    logged.log = &log;
  enum gd_status status = parse_named(&logged, config, preset, &read, err);
  if (status == GD_OK && logged.log->failed)
    status = gd_nomem(err, "while reading a model");
  if (status == GD_OK) {
    gd_fields_unknown(config, logged.log, read.unknown, sizeof read.unknown);
    *model = read;
  }
  gd_json_log_deinit(&log);
  return status;
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

/* --- places -------------------------------------------------------------------------------- */

/* What a word means: a file, or something inside the program; preset: its name, "" for a path. */
struct place {
  struct gd_preset_at at;
  char preset[GD_PRESET_NAME];
};

static enum gd_status find_in_folder(const char *folder, struct place *place,
                                     struct gd_error *err) {
  size_t size = sizeof place->at.path;
  int length = snprintf(place->at.path, size, "%s/config.json", folder);
  if (length < 0 || (size_t)length >= size)
    return gd_fail(err, GD_BAD_INPUT, "%.64s...: the path is too long", folder);
  if (gd_file_is_missing(place->at.path))
    return gd_fail(err, GD_BAD_INPUT, "%s: the folder has no config.json", folder);
  return GD_OK;
}

static enum gd_status find_path(const char *path, bool folder, struct place *place,
                                struct gd_error *err) {
  if (folder)
    return find_in_folder(path, place, err);
  int length = snprintf(place->at.path, sizeof place->at.path, "%s", path);
  return length >= 0 && (size_t)length < sizeof place->at.path
             ? GD_OK
             : gd_fail(err, GD_BAD_INPUT, "%.64s...: the path is too long", path);
}

static enum gd_status find_place(const char *word, struct place *place, struct gd_error *err) {
  struct stat about;
  char config[PATH_BYTES];
  bool found;
  bool exists = stat(word, &about) == 0;
  bool folder = exists && S_ISDIR(about.st_mode);
  bool hub = !exists && gd_name_is_hub(word); /* what is here comes before what is there */
  *place = (struct place){0};
  if (word[0] == '\0')
    return gd_fail(err, GD_BAD_INPUT,
                   "the model's name is empty; 'gpudays models' lists those there are");
  if ((!hub && (strchr(word, '/') || gd_name_is_json(word))) || (exists && !folder))
    return find_path(word, folder, place, err);
  /* A folder that happens to be called like a preset hides it only when it holds a model. */
  if (folder && snprintf(config, sizeof config, "%s/config.json", word) > 0 &&
      !gd_file_is_missing(config))
    return find_in_folder(word, place, err);
  GD_TRY(gd_preset_of_name(word, place->preset, &found, err));
  if (found && gd_preset_find(place->preset, &place->at))
    return GD_OK;
  place->preset[0] = '\0';
  return folder ? find_in_folder(word, place, err) : gd_preset_unknown(word, err);
}

enum gd_status gd_model_read_json(const char *name_or_path, struct gd_json *json,
                                  struct gd_error *err) {
  struct place place;
  GD_TRY(find_place(name_or_path, &place, err));
  return gd_preset_read(&place.at, json, err);
}

static enum gd_status load_place(const struct place *place, struct gd_model *model,
                                 struct gd_strbuf *config, struct gd_error *err) {
  struct gd_json json = {0};
  struct gd_model read;
  enum gd_status status = gd_preset_read(&place->at, &json, err);
  if (status == GD_OK)
    status = parse_model(&json, &read, config, err);
  if (status == GD_OK) {
    /* The file's own name, so that two copies of a preset can be told apart. */
    if (place->preset[0])
      gd_json_excerpt(read.name, sizeof read.name, place->preset);
    else
      gd_model_name_of_path(place->at.path, read.name, sizeof read.name);
    read.preset = place->preset[0] != '\0';
    *model = read;
  }
  gd_json_deinit(&json);
  return status;
}

enum gd_status gd_model_load_config(const char *name_or_path, struct gd_model *model,
                                    struct gd_strbuf *text, struct gd_error *err) {
  struct place place;
  GD_TRY(find_place(name_or_path, &place, err));
  return load_place(&place, model, text, err);
}

enum gd_status gd_model_load(const char *name_or_path, struct gd_model *model,
                             struct gd_error *err) {
  return gd_model_load_config(name_or_path, model, NULL, err);
}

/* A preset as listed; the last two are filled in for sorting only. */
struct preset {
  const char *name;
  const char *family; /* NULL: it cannot be read */
  int64_t parameters;
};

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
  struct place place = {0};
  if (!gd_preset_find(preset->name, &place.at))
    return GD_OK;
  snprintf(place.preset, sizeof place.preset, "%.*s", GD_PRESET_NAME - 1, preset->name);
  enum gd_status status = load_place(&place, &model, NULL, &reason);
  if (status == GD_ENVIRONMENT)
    return gd_fail(err, status, "%s", reason.text);
  if (status != GD_OK)
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
  const char *const *all;
  GD_TRY(gd_presets_collect(arena, &all, count, err));
  struct preset *presets = gd_arena_alloc(arena, (size_t)*count + 1, sizeof *presets);
  const char **list = gd_arena_alloc(arena, (size_t)*count + 1, sizeof *list);
  if (!presets || !list)
    return gd_nomem(err, "while listing models");
  for (int i = 0; i < *count; i++) {
    presets[i] = (struct preset){.name = all[i]};
    GD_TRY(measure(&presets[i], err));
  }
  if (*count > 0)
    qsort(presets, (size_t)*count, sizeof *presets, compare_sizes);
  for (int i = 0; i < *count; i++)
    list[i] = presets[i].name;
  *names = list;
  return GD_OK;
}
