/*
 * Presets by name; see presets.h. What is in their files is the registry's and the families'.
 */
#define _XOPEN_SOURCE 700
#include "model/presets.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/paths.h"
#include "model/config.h"

enum { SUGGESTIONS = 3 };
static const char folder_inside[] = "models/";

/* --- files --------------------------------------------------------------------------------- */

static const struct gd_embedded_file *find_embedded(const char *name) {
  char path[256];
  int length = snprintf(path, sizeof path, "%s%s.json", folder_inside, name);
  if (length < 0 || (size_t)length >= sizeof path)
    return NULL;
  return gd_embedded_find(path);
}

/* The path of the user's preset of that name; false when there is none. */
static bool find_user_preset(const char *name, char *path, size_t size) {
  char folder[GD_PRESET_PATH];
  if (!gd_path_config("models", folder, sizeof folder))
    return false;
  int length = snprintf(path, size, "%s/%s.json", folder, name);
  return length >= 0 && (size_t)length < size && access(path, F_OK) == 0;
}

bool gd_preset_find(const char *name, struct gd_preset_at *at) {
  at->embedded = NULL;
  if (strchr(name, '/'))
    return false;
  if (find_user_preset(name, at->path, sizeof at->path))
    return true;
  at->embedded = find_embedded(name);
  return at->embedded != NULL;
}

enum gd_status gd_preset_read(const struct gd_preset_at *at, struct gd_json *json,
                              struct gd_error *err) {
  const struct gd_embedded_file *file = at->embedded;
  return file ? gd_json_parse(json, file->path, file->text, file->length, err)
              : gd_json_load(json, at->path, err);
}

/* --- all of them --------------------------------------------------------------------------- */

struct collecting {
  struct gd_arena *arena;
  const char **list; /* in gd_mem */
  uint32_t count, capacity;
};

/* Adds the stem of "<stem>.json" unless it is there already. */
static enum gd_status add(struct collecting *to, const char *file, struct gd_error *err) {
  if (!gd_name_is_json(file) || file[0] == '.')
    return GD_OK;
  char *name = gd_arena_copy_string(to->arena, file);
  if (!name || !gd_vec_reserve((void **)&to->list, &to->capacity, to->count + 1, sizeof *to->list))
    return gd_nomem(err, "while listing models");
  name[strlen(name) - strlen(".json")] = '\0';
  for (uint32_t i = 0; i < to->count; i++)
    if (strcmp(to->list[i], name) == 0)
      return GD_OK;
  to->list[to->count++] = name;
  return GD_OK;
}

static enum gd_status add_all(struct collecting *to, struct gd_error *err) {
  char folder[GD_PRESET_PATH];
  size_t inside = sizeof folder_inside - 1;
  for (int i = 0; i < gd_embedded_file_count; i++)
    if (strncmp(gd_embedded_files[i].path, folder_inside, inside) == 0)
      GD_TRY(add(to, gd_embedded_files[i].path + inside, err));
  DIR *dir = gd_path_config("models", folder, sizeof folder) ? opendir(folder) : NULL;
  if (!dir) /* most people have no presets of their own */
    return GD_OK;
  enum gd_status status = GD_OK;
  for (struct dirent *entry = readdir(dir); entry && status == GD_OK; entry = readdir(dir))
    status = add(to, entry->d_name, err);
  closedir(dir);
  return status;
}

enum gd_status gd_presets_collect(struct gd_arena *arena, const char *const **names, int *count,
                                  struct gd_error *err) {
  struct collecting all = {.arena = arena};
  const char **kept = NULL;
  enum gd_status status = add_all(&all, err);
  if (status == GD_OK) {
    kept = gd_arena_alloc(arena, all.count + (size_t)1, sizeof *kept);
    if (!kept)
      status = gd_nomem(err, "while listing models");
  }
  for (uint32_t i = 0; status == GD_OK && i < all.count; i++)
    kept[i] = all.list[i];
  gd_mem_free(all.list);
  if (status != GD_OK)
    return status;
  *names = kept;
  *count = (int)all.count;
  return GD_OK;
}

/* --- names of Hugging Face ----------------------------------------------------------------- */

bool gd_name_is_hub(const char *word) {
  const char *slash = strchr(word, '/');
  return slash && slash > word && slash[1] && !strchr(slash + 1, '/') && !strchr("./~-", word[0]) &&
         !gd_name_is_json(word);
}

enum gd_status gd_preset_hub_names(const char *preset, struct gd_arena *arena,
                                   const char *const **names, int *count, struct gd_error *err) {
  struct gd_preset_at at;
  struct gd_json json = {0};
  enum gd_status status = GD_OK;
  *count = 0;
  *names = NULL;
  if (!gd_preset_find(preset, &at))
    return GD_OK;
  if (gd_preset_read(&at, &json, NULL) != GD_OK)
    return GD_OK; /* a broken one of the user's: whoever loads it says so */
  const json_t *hub = json_object_get(json.root, "hub");
  size_t most = json_array_size(hub);
  const char **kept = gd_arena_alloc(arena, most + 1, sizeof *kept);
  if (!kept)
    status = gd_nomem(err, "while reading names");
  for (size_t i = 0; i < most && status == GD_OK; i++) {
    const char *name = json_string_value(json_array_get(hub, i));
    if (name && !(kept[(*count)++] = gd_arena_copy_string(arena, name)))
      status = gd_nomem(err, "while reading names");
  }
  *names = kept;
  gd_json_deinit(&json);
  return status;
}

static const char *behind_slash(const char *name) {
  const char *slash = strrchr(name, '/');
  return slash ? slash + 1 : name;
}

/* Whether a preset has the word among its names; every: with the owner, unless the word has none.
 */
static enum gd_status has_name(const char *preset, const char *word, struct gd_arena *arena,
                               bool *has, struct gd_error *err) {
  const char *const *names;
  int count;
  GD_TRY(gd_preset_hub_names(preset, arena, &names, &count, err));
  *has = false;
  for (int i = 0; i < count && !*has; i++)
    *has = strcasecmp(word, strchr(word, '/') ? names[i] : behind_slash(names[i])) == 0;
  return GD_OK;
}

static enum gd_status find_name(const char *word, struct gd_arena *arena, const char **preset,
                                struct gd_error *err) {
  const char *const *names;
  int count;
  bool has;
  GD_TRY(gd_presets_collect(arena, &names, &count, err));
  for (int i = 0; i < count && !*preset; i++)
    if (strcasecmp(names[i], word) == 0)
      *preset = names[i];
  for (int i = 0; i < count && !*preset; i++) {
    GD_TRY(has_name(names[i], word, arena, &has, err));
    if (has)
      *preset = names[i];
  }
  return GD_OK;
}

enum gd_status gd_preset_of_name(const char *word, char preset[GD_PRESET_NAME], bool *found,
                                 struct gd_error *err) {
  struct gd_arena arena = {0};
  struct gd_preset_at at;
  const char *name = NULL;
  enum gd_status status = GD_OK;
  if (gd_preset_find(word, &at))
    name = word;
  else if (strlen(word) < GD_PRESET_NAME)
    status = find_name(word, &arena, &name, err);
  *found = status == GD_OK && name && strlen(name) < GD_PRESET_NAME;
  if (*found)
    snprintf(preset, GD_PRESET_NAME, "%s", name);
  gd_arena_deinit(&arena);
  return status;
}

/* --- no preset ----------------------------------------------------------------------------- */

struct candidate {
  const char *name;
  int distance, prefix; /* to what was asked for, whatever its case */
};

/* Nearest first: few edits, then a long common beginning, then the short name. */
static int compare_nearness(const void *a, const void *b) {
  const struct candidate *x = a, *y = b;
  if (x->distance != y->distance)
    return x->distance < y->distance ? -1 : 1;
  if (x->prefix != y->prefix)
    return x->prefix > y->prefix ? -1 : 1;
  size_t x_length = strlen(x->name), y_length = strlen(y->name);
  if (x_length != y_length)
    return x_length < y_length ? -1 : 1;
  return strcmp(x->name, y->name);
}

/* "pythia-160m, pythia-14m or pythia-1b" */
static enum gd_status list_nearest(const char *word, struct gd_arena *arena,
                                   struct gd_strbuf *nearest, struct gd_error *err) {
  const char *const *names;
  int count;
  char *lower = gd_arena_copy_string(arena, word);
  GD_TRY(gd_presets_collect(arena, &names, &count, err));
  struct candidate *all = gd_arena_alloc(arena, (size_t)count + 1, sizeof *all);
  if (!all || !lower)
    return gd_nomem(err, "while looking for a model");
  for (char *at = lower; *at; at++)
    *at = (char)(*at >= 'A' && *at <= 'Z' ? *at - 'A' + 'a' : *at);
  for (int i = 0; i < count; i++) {
    all[i] = (struct candidate){.name = names[i], .distance = gd_edit_distance(lower, names[i])};
    while (lower[all[i].prefix] && lower[all[i].prefix] == names[i][all[i].prefix])
      all[i].prefix++;
  }
  if (count > 0)
    qsort(all, (size_t)count, sizeof *all, compare_nearness);
  int shown = count < SUGGESTIONS ? count : SUGGESTIONS;
  for (int i = 0; i < shown; i++)
    gd_strbuf_printf(nearest, "%s%s", i == 0 ? "" : i + 1 < shown ? ", " : " or ", all[i].name);
  return nearest->failed ? gd_nomem(err, "while looking for a model") : GD_OK;
}

enum gd_status gd_preset_unknown(const char *word, struct gd_error *err) {
  struct gd_arena arena = {0};
  struct gd_strbuf nearest = {0};
  char clean[96];
  enum gd_status status = list_nearest(behind_slash(word), &arena, &nearest, err);
  const char *names = nearest.text ? nearest.text : "";
  gd_json_excerpt(clean, sizeof clean, word);
  if (status == GD_OK && gd_name_is_hub(word))
    status = gd_fail(err, GD_BAD_INPUT,
                     "\"%s\" is no folder here, and no preset has that Hugging Face name; nearest "
                     "are %s; download huggingface.co/%s/resolve/main/config.json and give its "
                     "path, or ask plan or estimate for --params and --tokens",
                     clean, names, clean);
  else if (status == GD_OK)
    status = gd_fail(err, GD_BAD_INPUT,
                     "unknown model \"%s\"%s%s%s ('gpudays models' lists all; a path to a Hugging "
                     "Face config.json works too)",
                     clean, names[0] ? "; did you mean " : "", names, names[0] ? "?" : "");
  gd_strbuf_deinit(&nearest);
  gd_arena_deinit(&arena);
  return status;
}
