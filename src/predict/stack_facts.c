/*
 * Reading data/stacks and what was fitted; see stack_facts.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "predict/stack_facts.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embedded.h"
#include "base/json.h"
#include "base/paths.h"
#include "base/strbuf.h"
#include "predict/gpu_model.h"

enum { MOST = 64, PATH_BYTES = 4096 };

void gd_stacks_deinit(struct gd_stacks *stacks) {
  gd_arena_deinit(&stacks->arena);
  *stacks = (struct gd_stacks){0};
}

/* --- one file ------------------------------------------------------------------------------- */

struct reader {
  struct gd_stacks *stacks;
  const struct gd_json *json;
};

static enum gd_status read_text(struct reader *r, const char *key, const char **to,
                                struct gd_error *err) {
  const char *text;
  GD_TRY(gd_json_string(r->json, r->json->root, key, &text, err));
  *to = gd_arena_copy_string(&r->stacks->arena, text);
  return *to ? GD_OK : gd_nomem(err, "while reading stacks");
}

/* A list of words as ",one,two,". */
static enum gd_status read_words(struct reader *r, const char *key, const char **to,
                                 struct gd_error *err) {
  const json_t *list = json_object_get(r->json->root, key), *word;
  char text[512] = ",";
  size_t i, length = 1;
  if (!json_is_array(list))
    return gd_json_mismatch(r->json, r->json->root, key, "a list of words", err);
  json_array_foreach(list, i, word) {
    if (!json_is_string(word) || length + json_string_length(word) + 2 > sizeof text)
      return gd_json_mismatch(r->json, r->json->root, key, "a list of words", err);
    length += (size_t)snprintf(text + length, sizeof text - length, "%s,", json_string_value(word));
  }
  *to = gd_arena_copy_string(&r->stacks->arena, text);
  return *to ? GD_OK : gd_nomem(err, "while reading stacks");
}

/* One of several words, by its place among them. */
static enum gd_status read_choice(struct reader *r, const char *key, const char *const *words,
                                  int count, int *to, struct gd_error *err) {
  const char *text;
  GD_TRY(gd_json_string(r->json, r->json->root, key, &text, err));
  for (int i = 0; i < count; i++)
    if (strcmp(words[i], text) == 0) {
      *to = i;
      return GD_OK;
    }
  struct gd_strbuf expected = {0};
  for (int i = 0; i < count; i++)
    gd_strbuf_printf(&expected, "%s%s", i ? " or " : "", words[i]);
  enum gd_status status =
      gd_json_mismatch(r->json, r->json->root, key, expected.text ? expected.text : "", err);
  gd_strbuf_deinit(&expected);
  return status;
}

static enum gd_status read_sources(struct reader *r, struct gd_error *err) {
  const json_t *list = json_object_get(r->json->root, "sources"), *one;
  size_t i;
  const char *text;
  if (json_array_size(list) == 0)
    return gd_json_mismatch(r->json, r->json->root, "sources",
                            "a list of {\"source\", \"date\"}: facts have sources", err);
  json_array_foreach(list, i, one) {
    GD_TRY(gd_json_string(r->json, one, "source", &text, err));
    GD_TRY(gd_json_string(r->json, one, "date", &text, err));
  }
  return GD_OK;
}

static enum gd_status read_figures(struct reader *r, struct gd_stack_facts *facts,
                                   struct gd_error *err) {
  const struct {
    const char *key;
    double low, high;
    double *to;
  } figures[] = {{"state_bytes", 1, 64, &facts->state_bytes},
                 {"gradient_bytes", 1, 8, &facts->gradient_bytes},
                 {"update_bytes", 1, 200, &facts->update_bytes},
                 {"traffic", 0.1, 20, &facts->start[GD_STACK_TRAFFIC]},
                 {"host_us", 0.1, 1000, &facts->start[GD_STACK_HOST]}};
  for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
    GD_TRY(gd_json_number(r->json, r->json->root, figures[i].key, figures[i].low, figures[i].high,
                          figures[i].to, err));
  if (gd_json_has(r->json->root, "update_launches"))
    GD_TRY(gd_json_number(r->json, r->json->root, "update_launches", 0, 1000,
                          &facts->update_launches, err));
  facts->memory_over = GD_STACK_MEMORY_OVER;
  if (gd_json_has(r->json->root, "memory_over"))
    GD_TRY(gd_json_number(r->json, r->json->root, "memory_over", 1, 4, &facts->memory_over, err));
  facts->start[GD_STACK_HOST] *= 1e-6;
  memcpy(facts->value, facts->start, sizeof facts->value);
  return GD_OK;
}

static enum gd_status read_facts(struct reader *r, struct gd_stack_facts *facts,
                                 struct gd_error *err) {
  static const char *const kernels[] = {"eager", "compiled", "fused"};
  static const char *const weights[] = {"cast", "gathered", "stored"};
  static const char *const memory[] = {"scores", "autocast", "half", "megatron"};
  static const char *const attention[] = {"scores", "flash", "flash-2", "cudnn"};
  static const char *const updates[] = {"cpu", "gpu"};
  const json_t *root = r->json->root;
  int kernel = 0, weight = 0, mode = 0, flash = 0, update = 0;
  GD_TRY(read_choice(r, "kernels", kernels, GD_STACK_KERNELS_COUNT, &kernel, err));
  GD_TRY(read_choice(r, "weights", weights, GD_STACK_WEIGHTS_COUNT, &weight, err));
  GD_TRY(read_choice(r, "memory", memory, GD_STACK_MODE_COUNT, &mode, err));
  GD_TRY(read_choice(r, "attention", attention, 4, &flash, err));
  GD_TRY(read_choice(r, "offload_update", updates, 2, &update, err));
  GD_TRY(gd_json_bool(r->json, root, "overlaps", &facts->overlaps, err));
  GD_TRY(gd_json_bool(r->json, root, "fuses_accumulation", &facts->fuses_accumulation, err));
  if (gd_json_has(root, "whole_outside"))
    GD_TRY(gd_json_bool(r->json, root, "whole_outside", &facts->whole_outside, err));
  facts->kernels = (enum gd_stack_kernels)kernel;
  facts->weights = (enum gd_stack_weights)weight;
  facts->memory = (enum gd_stack_mode)mode;
  facts->flash = flash > 0;
  facts->attention = flash > 1 ? GD_GPU_FLASH_2 : 1;
  facts->native_attention = flash > 2;
  facts->updates_on_gpu = update;
  GD_TRY(read_words(r, "scores_of", &facts->scores_of, err));
  return read_figures(r, facts, err);
}

static enum gd_status read_file(struct gd_stacks *stacks, const struct gd_json *json,
                                struct gd_error *err) {
  struct reader r = {stacks, json};
  struct gd_stack_facts facts = {0};
  const char *clock = "";
  GD_TRY(read_text(&r, "name", &facts.name, err));
  GD_TRY(read_text(&r, "title", &facts.title, err));
  GD_TRY(read_words(&r, "aliases", &facts.aliases, err));
  GD_TRY(read_sources(&r, err));
  if (gd_json_has(json->root, "clock"))
    GD_TRY(gd_json_string(json, json->root, "clock", &clock, err));
  facts.own = strcmp(clock, "own") == 0;
  facts.paper = strcmp(clock, "paper") == 0;
  facts.scores_of = ",";
  if (!facts.own && !facts.paper)
    GD_TRY(read_facts(&r, &facts, err));
  for (int i = 0; i < stacks->count; i++)
    if (strcmp(stacks->all[i].name, facts.name) == 0) {
      stacks->all[i] = facts;
      return GD_OK;
    }
  if (stacks->count == MOST)
    return gd_fail(err, GD_BAD_INPUT, "%s: there are %d stacks already; remove one", json->file,
                   MOST);
  stacks->all[stacks->count++] = facts;
  return GD_OK;
}

/* --- all of them ---------------------------------------------------------------------------- */

static enum gd_status read_embedded(struct gd_stacks *stacks, struct gd_error *err) {
  for (int i = 0; i < gd_embedded_file_count; i++) {
    const struct gd_embedded_file *file = &gd_embedded_files[i];
    struct gd_json json = {0};
    if (strncmp(file->path, "stacks/", 7) != 0)
      continue;
    enum gd_status status = gd_json_parse(&json, file->path, file->text, file->length, err);
    if (status == GD_OK)
      status = read_file(stacks, &json, err);
    gd_json_deinit(&json);
    if (status != GD_OK)
      return status;
  }
  return GD_OK;
}

static enum gd_status read_folder(struct gd_stacks *stacks, struct gd_error *err) {
  char folder[PATH_BYTES - 300], path[PATH_BYTES];
  enum gd_status status = GD_OK;
  if (!gd_path_config("stacks", folder, sizeof folder))
    return GD_OK;
  DIR *open = opendir(folder);
  for (const struct dirent *entry; open && status == GD_OK && (entry = readdir(open));) {
    struct gd_json json = {0};
    size_t length = strlen(entry->d_name);
    if (length < 6 || strcmp(entry->d_name + length - 5, ".json") != 0)
      continue;
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    status = gd_json_load(&json, path, err);
    if (status == GD_OK)
      status = read_file(stacks, &json, err);
    gd_json_deinit(&json);
  }
  if (open)
    closedir(open);
  return status;
}

/* What `gpudays fit` found, of those that it knows. */
static enum gd_status read_fitted(struct gd_stacks *stacks, const struct gd_json *json,
                                  struct gd_error *err) {
  const json_t *fitted = json_object_get(json->root, "stacks");
  for (int i = 0; i < stacks->count; i++) {
    struct gd_stack_facts *facts = &stacks->all[i];
    const json_t *one = json_object_get(fitted, facts->name);
    int64_t rows;
    if (!one)
      continue;
    GD_TRY(gd_json_number(json, one, "traffic", 0.01, 100, &facts->value[GD_STACK_TRAFFIC], err));
    GD_TRY(gd_json_number(json, one, "host_s", 1e-9, 1, &facts->value[GD_STACK_HOST], err));
    GD_TRY(gd_json_int(json, one, "rows", 0, 1000000, &rows, err));
    facts->rows = (int)rows;
  }
  return GD_OK;
}

static enum gd_status find_fitted(struct gd_stacks *stacks, struct gd_error *err) {
  struct gd_json json = {0};
  bool found;
  GD_TRY(gd_fitted_open(&json, &found, err));
  enum gd_status status = found ? read_fitted(stacks, &json, err) : GD_OK;
  gd_json_deinit(&json);
  return status;
}

static int compare(const void *a, const void *b) {
  const struct gd_stack_facts *left = a, *right = b;
  return strcmp(left->name, right->name);
}

enum gd_status gd_stacks_load(struct gd_stacks *stacks, struct gd_error *err) {
  *stacks = (struct gd_stacks){0};
  stacks->all = gd_arena_alloc(&stacks->arena, MOST, sizeof *stacks->all);
  enum gd_status status = stacks->all ? GD_OK : gd_nomem(err, "while reading stacks");
  if (status == GD_OK)
    status = read_embedded(stacks, err);
  if (status == GD_OK)
    status = find_fitted(stacks, err);
  if (status == GD_OK)
    status = read_folder(stacks, err);
  if (status != GD_OK) {
    gd_stacks_deinit(stacks);
    return status;
  }
  qsort(stacks->all, (size_t)stacks->count, sizeof *stacks->all, compare);
  return GD_OK;
}

static bool has_word(const char *words, const char *word) {
  char wanted[160];
  snprintf(wanted, sizeof wanted, ",%.150s,", word);
  return strstr(words, wanted) != NULL;
}

/* ", " between them. */
static void append_names(const struct gd_stacks *stacks, struct gd_strbuf *out) {
  for (int i = 0; i < stacks->count; i++)
    gd_strbuf_printf(out, "%s%s", i ? ", " : "", stacks->all[i].name);
}

enum gd_status gd_stacks_find(const struct gd_stacks *stacks, const char *name,
                              const struct gd_stack_facts **facts, struct gd_error *err) {
  char shown[64];
  for (int i = 0; i < stacks->count; i++)
    if (strcmp(stacks->all[i].name, name) == 0 || has_word(stacks->all[i].aliases, name)) {
      *facts = &stacks->all[i];
      return GD_OK;
    }
  struct gd_strbuf names = {0};
  append_names(stacks, &names);
  enum gd_status status =
      gd_fail(err, GD_BAD_INPUT, "--stack is %s; expected one of %s",
              gd_json_excerpt(shown, sizeof shown, name), names.text ? names.text : "");
  gd_strbuf_deinit(&names);
  return status;
}

bool gd_stack_has_flash(const struct gd_stack_facts *facts, const struct gd_model *model,
                        bool naive) {
  return facts->flash && !naive && !has_word(facts->scores_of, model->family->model_type);
}
