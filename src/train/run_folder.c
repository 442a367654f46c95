/*
 * run.json; see run_folder.h.
 */
#define _GNU_SOURCE
#include "train/run_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

/* Who looks whether a run is being trained has its lock for a moment. */
enum { LOCK_TRIES = 20, LOCK_WAIT_MS = 5 };
enum { RANKS_MOST = 4096, THREADS_MOST = 1 << 16 };

static const char *path_in(char path[GD_FILE_PATH], const char *folder, const char *name) {
  snprintf(path, GD_FILE_PATH, "%.4000s/%s", folder, name);
  return path;
}

bool gd_run_folder_has_run(const char *folder) {
  char path[GD_FILE_PATH];
  return !gd_file_is_missing(path_in(path, folder, "run.json"));
}

/* Absolute, so that the run goes on from any folder; a weight behind the name stays. */
static json_t *file_list(const char *const *files, int count) {
  json_t *list = json_array();
  for (int i = 0; i < count; i++) {
    char path[PATH_MAX], whole[PATH_MAX + 64], name[PATH_MAX];
    const char *colon = strrchr(files[i], ':');
    bool weighted = colon && gd_file_is_missing(files[i]);
    snprintf(name, sizeof name, "%.*s", weighted ? (int)(colon - files[i]) : PATH_MAX - 1,
             files[i]);
    snprintf(whole, sizeof whole, "%s%s", realpath(name, path) ? path : name,
             weighted ? colon : "");
    json_array_append_new(list, json_string(whole));
  }
  return list;
}

/* Likewise of a folder; "" stays. */
static const char *absolute(const char *folder, char path[PATH_MAX]) {
  return folder && folder[0] && realpath(folder, path) ? path : folder ? folder : "";
}

enum gd_status gd_run_folder_create(const char *folder, const struct gd_run_settings *s,
                                    struct gd_error *err) {
  char path[GD_FILE_PATH], init[PATH_MAX];
  if (gd_run_folder_has_run(folder))
    return gd_fail(err, GD_BAD_INPUT,
                   "%s has a run already: 'gpudays train %s' goes on with it, -o takes another "
                   "folder",
                   folder, folder);
  GD_TRY(gd_file_make_folder(folder, err));
  json_t *run = json_pack(
      "{s:i,s:{s:s,s:o?,s:o},s:o,s:o,s:I,s:s,s:s,s:I,s:I,s:I,s:I,s:I,s:f,s:I,s:I,s:I}", "format", 1,
      "model", "name", s->model.name, "config", json_loads(s->config_text, 0, NULL), "recipe",
      gd_recipe_json(&s->model.recipe), "data", file_list(s->data, s->n_data), "eval",
      file_list(s->eval, s->n_eval), "data_size", (json_int_t)s->data_size, "init",
      absolute(s->init, init), "method", s->method, "micro_batch", (json_int_t)s->micro_batch,
      "seed", (json_int_t)s->seed, "mask_token", (json_int_t)s->mask_token, "token_bytes",
      (json_int_t)s->token_bytes, "checkpoint_steps", (json_int_t)s->checkpoint_steps,
      "checkpoint_s", s->checkpoint_s, "keep", (json_int_t)s->keep, "eval_steps",
      (json_int_t)s->eval_steps, "eval_samples", (json_int_t)s->eval_samples);
  if (run && s->model.family->images) {
    json_object_set_new(run, "augment", json_string(s->augment));
    json_object_set_new(run, "normalize", json_string(s->normalize));
    json_object_set_new(run, "label_smoothing", json_real(s->label_smoothing));
  }
  if (run && s->ranks > 0)
    json_object_set_new(run, "ranks", json_integer((json_int_t)s->ranks));
  if (run && s->threads > 0)
    json_object_set_new(run, "threads", json_integer((json_int_t)s->threads));
  if (run && s->deterministic[0])
    json_object_set_new(run, "deterministic",
                        strcmp(s->deterministic, "1") == 0 ? json_true()
                                                           : json_string(s->deterministic));
  if (run && s->data_hash && s->data_hash[0])
    json_object_set_new(run, "data_hash", json_string(s->data_hash));
  struct gd_strbuf text = {0};
  enum gd_status status = GD_OK;
  if (s->tokenizer_text)
    status = gd_file_write(path_in(path, folder, "tokenizer.json"), s->tokenizer_text,
                           strlen(s->tokenizer_text), err);
  if (status != GD_OK) {
    json_decref(run);
    return status;
  }
  if (!gd_json_append(&text, run, JSON_INDENT(2) | JSON_REAL_PRECISION(17)))
    status = gd_nomem(err, "for run.json");
  else
    status = gd_file_write(path_in(path, folder, "run.json"), text.text, text.length, err);
  gd_strbuf_deinit(&text);
  json_decref(run);
  return status;
}

static enum gd_status read_files(const struct gd_json *json, const char *key,
                                 struct gd_arena *arena, const char *const **files, int *count,
                                 struct gd_error *err) {
  const json_t *list = json_object_get(json->root, key);
  size_t n = json_array_size(list);
  if (!json_is_array(list) || n > GD_RUN_FILES_MOST)
    return gd_json_mismatch(json, json->root, key, "a list of files", err);
  const char **names = gd_arena_alloc(arena, n + 1, sizeof *names);
  for (size_t i = 0; i < n && names; i++) {
    const char *name = json_string_value(json_array_get(list, i));
    if (!name)
      return gd_json_mismatch(json, json->root, key, "a list of files", err);
    names[i] = gd_arena_copy_string(arena, name);
    if (!names[i])
      names = NULL;
  }
  *files = names;
  *count = (int)n;
  return names ? GD_OK : gd_nomem(err, "while reading run.json");
}

static enum gd_status read_model(const struct gd_json *json, struct gd_arena *arena,
                                 struct gd_run_settings *s, struct gd_error *err) {
  struct gd_json model = {.root = json_object_get(json->root, "model")};
  memcpy(model.file, json->file, sizeof model.file);
  if (!json_is_object(model.root))
    return gd_json_mismatch(json, json->root, "model", "a model with its recipe", err);
  GD_TRY(gd_model_parse(&model, &s->model, err));
  struct gd_strbuf text = {0};
  gd_json_append(&text, json_object_get(model.root, "config"),
                 JSON_INDENT(2) | JSON_REAL_PRECISION(17));
  s->config_text = text.failed || !text.text ? NULL : gd_arena_printf(arena, "%s\n", text.text);
  gd_strbuf_deinit(&text);
  return s->config_text ? GD_OK : gd_nomem(err, "while reading run.json");
}

static enum gd_status read_images(const struct gd_json *json, struct gd_arena *arena,
                                  struct gd_run_settings *s, struct gd_error *err) {
  const char *augment, *normalize;
  GD_TRY(gd_json_string(json, json->root, "augment", &augment, err));
  GD_TRY(gd_json_string(json, json->root, "normalize", &normalize, err));
  GD_TRY(gd_json_number(json, json->root, "label_smoothing", 0, 1, &s->label_smoothing, err));
  s->model.soft_targets = true;
  s->augment = gd_arena_copy_string(arena, augment);
  s->normalize = gd_arena_copy_string(arena, normalize);
  return s->augment && s->normalize ? GD_OK : gd_nomem(err, "while reading run.json");
}

static enum gd_status read_settings(const struct gd_json *json, struct gd_arena *arena,
                                    struct gd_run_settings *s, struct gd_error *err) {
  const int64_t most = INT64_C(1) << 60;
  int64_t format;
  const char *method, *init = "", *data_hash = "";
  GD_TRY(gd_json_int(json, json->root, "format", 1, 1, &format, err));
  GD_TRY(read_model(json, arena, s, err));
  GD_TRY(read_files(json, "data", arena, &s->data, &s->n_data, err));
  GD_TRY(read_files(json, "eval", arena, &s->eval, &s->n_eval, err));
  if (gd_json_has(json->root, "data_size"))
    GD_TRY(gd_json_int(json, json->root, "data_size", 0, most, &s->data_size, err));
  if (gd_json_has(json->root, "init"))
    GD_TRY(gd_json_string(json, json->root, "init", &init, err));
  if (gd_json_has(json->root, "data_hash"))
    GD_TRY(gd_json_string(json, json->root, "data_hash", &data_hash, err));
  GD_TRY(gd_json_string(json, json->root, "method", &method, err));
  GD_TRY(gd_json_int(json, json->root, "micro_batch", 0, most, &s->micro_batch, err));
  GD_TRY(gd_json_int(json, json->root, "seed", 0, INT64_MAX, &s->seed, err));
  GD_TRY(gd_json_int(json, json->root, "mask_token", -1, INT32_MAX, &s->mask_token, err));
  GD_TRY(gd_json_int(json, json->root, "token_bytes", 0, 4, &s->token_bytes, err));
  GD_TRY(gd_json_int(json, json->root, "checkpoint_steps", 0, most, &s->checkpoint_steps, err));
  GD_TRY(gd_json_number(json, json->root, "checkpoint_s", 0, 1e9, &s->checkpoint_s, err));
  GD_TRY(gd_json_int(json, json->root, "keep", 1, 1 << 20, &s->keep, err));
  GD_TRY(gd_json_int(json, json->root, "eval_steps", 0, most, &s->eval_steps, err));
  GD_TRY(gd_json_int(json, json->root, "eval_samples", 1, most, &s->eval_samples, err));
  if (gd_json_has(json->root, "ranks"))
    GD_TRY(gd_json_int(json, json->root, "ranks", 0, RANKS_MOST, &s->ranks, err));
  if (gd_json_has(json->root, "threads"))
    GD_TRY(gd_json_int(json, json->root, "threads", 0, THREADS_MOST, &s->threads, err));
  const json_t *deterministic = json_object_get(json->root, "deterministic");
  const char *kept = json_string_value(deterministic);
  s->deterministic = json_is_true(deterministic)         ? "1"
                     : kept && strcmp(kept, "kept") == 0 ? "kept"
                                                         : "";
  if (s->model.family->images)
    GD_TRY(read_images(json, arena, s, err));
  s->method = gd_arena_copy_string(arena, method);
  s->init = gd_arena_copy_string(arena, init);
  s->data_hash = gd_arena_copy_string(arena, data_hash);
  return s->method && s->init && s->data_hash ? GD_OK : gd_nomem(err, "while reading run.json");
}

enum gd_status gd_run_folder_read(const char *folder, struct gd_arena *arena,
                                  struct gd_run_settings *settings, struct gd_error *err) {
  struct gd_json json = {0};
  char path[GD_FILE_PATH];
  *settings = (struct gd_run_settings){0};
  GD_TRY(gd_json_load(&json, path_in(path, folder, "run.json"), err));
  enum gd_status status = read_settings(&json, arena, settings, err);
  gd_json_deinit(&json);
  return status;
}

int64_t gd_run_folder_ranks(const char *folder) {
  struct gd_json json = {0};
  char path[GD_FILE_PATH];
  int64_t ranks = 0;
  if (gd_run_folder_has_run(folder) &&
      gd_json_load(&json, path_in(path, folder, "run.json"), NULL) == GD_OK &&
      gd_json_has(json.root, "ranks") &&
      gd_json_int(&json, json.root, "ranks", 0, RANKS_MOST, &ranks, NULL) != GD_OK)
    ranks = 0;
  gd_json_deinit(&json);
  return ranks;
}

uint64_t gd_run_folder_choices(const char *folder) {
  char path[GD_FILE_PATH];
  uint64_t sum = 0;
  DIR *list = opendir(path_in(path, folder, "kernels"));
  for (struct dirent *entry; list && (entry = readdir(list)) != NULL;)
    if (strstr(entry->d_name, "-rank"))
      sum += entry->d_ino;
  if (list)
    closedir(list);
  return sum;
}

/* Files that have this in their names. */
static void remove_files(const char *path, const char *part) {
  DIR *list = opendir(path);
  for (struct dirent *entry; list && (entry = readdir(list)) != NULL;)
    if (strstr(entry->d_name, part))
      unlinkat(dirfd(list), entry->d_name, 0);
  if (list)
    closedir(list);
}

void gd_run_folder_forget(const char *folder) {
  static const char *const files[] = {"log.jsonl", "tokenizer.json", "run.json", ".lock"};
  static const char *const folders[] = {"checkpoints", "tensorboard", "kernels"};
  char path[GD_FILE_PATH];
  struct stat about;
  if (stat(path_in(path, folder, "log.jsonl"), &about) == 0 && about.st_size > 0)
    return;
  remove_files(path_in(path, folder, "kernels"), "-rank");
  remove_files(path_in(path, folder, "tensorboard"), "events.out.tfevents.");
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    if (rmdir(path_in(path, folder, folders[i])) != 0 && errno != ENOENT)
      return; /* something is in it */
  for (size_t i = 0; i < sizeof files / sizeof *files; i++)
    unlink(path_in(path, folder, files[i]));
  rmdir(folder);
}

enum gd_status gd_run_folder_lock(const char *folder, int *fd, struct gd_error *err) {
  char path[GD_FILE_PATH];
  *fd = open(path_in(path, folder, ".lock"), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
  if (*fd < 0)
    return gd_fail(err, GD_ENVIRONMENT, "%s cannot be opened: %s", path, strerror(errno));
  int why = 0;
  for (int tries = 0; tries < LOCK_TRIES; tries++) {
    if (flock(*fd, LOCK_EX | LOCK_NB) == 0)
      return GD_OK;
    why = errno;
    if (why != EWOULDBLOCK)
      break;
    poll(NULL, 0, LOCK_WAIT_MS);
  }
  close(*fd);
  *fd = -1;
  if (why == EWOULDBLOCK)
    return gd_fail(err, GD_ENVIRONMENT, "%s is being trained by another process", folder);
  return gd_fail(err, GD_ENVIRONMENT, "%s cannot be locked: %s", path, strerror(why));
}

bool gd_run_folder_is_locked(const char *folder) {
  char path[GD_FILE_PATH];
  int fd = open(path_in(path, folder, ".lock"), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0)
    return false;
  bool locked = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return locked;
}

enum gd_status gd_run_folder_set_session(const char *folder, const struct gd_run_session *session,
                                         struct gd_error *err) {
  struct gd_json json = {0};
  struct gd_strbuf text = {0};
  char path[GD_FILE_PATH];
  GD_TRY(gd_json_load(&json, path_in(path, folder, "run.json"), err));
  json_object_del(json.root, "leg"); /* its name in runs of older programs */
  json_object_set_new(json.root, "session",
                      json_pack("{s:s,s:s,s:s,s:I,s:I,s:I,s:f,s:s}", "method", session->method,
                                "device", session->device, "backend", session->backend,
                                "micro_batch", (json_int_t)session->micro_batch, "accumulation",
                                (json_int_t)session->accumulation, "ranks",
                                (json_int_t)session->ranks, "expected_step_s",
                                session->expected_step_s, "expected_by", session->expected_by));
  enum gd_status status = GD_OK;
  if (!gd_json_append(&text, json.root, JSON_INDENT(2) | JSON_REAL_PRECISION(17)))
    status = gd_nomem(err, "for run.json");
  else
    status = gd_file_write(path, text.text, text.length, err);
  gd_strbuf_deinit(&text);
  gd_json_deinit(&json);
  return status;
}
