/*
 * Views of runs; see run_view.h.
 */
#define _GNU_SOURCE
#include "train/run_view.h"

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/compare.h"
#include "base/file.h"
#include "base/json.h"

const char *gd_run_state_name(enum gd_run_state state) {
  static const char *const names[] = {"training", "stopped", "finished"};
  return names[state];
}

/* --- run.json ------------------------------------------------------------------------------ */

/* A text that may be missing. */
static void take_text(char *to, size_t size, const json_t *object, const char *key) {
  const char *text = json_string_value(json_object_get(object, key));
  if (text)
    snprintf(to, size, "%s", text);
  gd_text_clean(to);
}

static int64_t take_count(const json_t *object, const char *key) {
  json_int_t value = json_integer_value(json_object_get(object, key));
  return value > 0 ? (int64_t)value : 0;
}

/* `older`: the name of it in runs of older programs. */
static const json_t *either(const json_t *object, const char *key, const char *older) {
  const json_t *found = json_object_get(object, key);
  return found ? found : json_object_get(object, older);
}

static void take_session(struct gd_run_session *session, const json_t *from) {
  take_text(session->method, sizeof session->method, from, "method");
  take_text(session->device, sizeof session->device, from, "device");
  take_text(session->backend, sizeof session->backend, from, "backend");
  take_text(session->expected_by, sizeof session->expected_by, from,
            json_object_get(from, "expected_by") ? "expected_by" : "promised_by");
  session->micro_batch = take_count(from, "micro_batch");
  session->accumulation = take_count(from, "accumulation");
  session->ranks = take_count(from, "ranks");
  double expected_s = json_number_value(either(from, "expected_step_s", "promised_step_s"));
  session->expected_step_s = expected_s > 0 ? expected_s : 0;
}

static enum gd_status read_settings(struct gd_run_view *view, const struct gd_json *json,
                                    struct gd_error *err) {
  const int64_t most = INT64_C(1) << 60;
  const json_t *model = json_object_get(json->root, "model");
  const json_t *recipe = json_object_get(model, "recipe");
  const char *name;
  if (!json_is_object(model) || !json_is_object(recipe))
    return gd_json_mismatch(json, json->root, "model", "a model with its recipe", err);
  GD_TRY(gd_json_string(json, model, "name", &name, err));
  GD_TRY(gd_json_int(json, recipe, "steps", 1, most, &view->steps, err));
  GD_TRY(gd_json_int(json, recipe, "batch", 1, most, &view->batch, err));
  GD_TRY(gd_json_int(json, recipe, "seq", 1, most, &view->seq, err));
  snprintf(view->model, sizeof view->model, "%s", name);
  view->session = (struct gd_run_session){0};
  take_text(view->session.method, sizeof view->session.method, json->root, "method");
  take_session(&view->session, either(json->root, "session", "leg"));
  return GD_OK;
}

/* --- state --------------------------------------------------------------------------------- */

/* When a file was last written; 0: it is not there. */
static int64_t change_of(const char *folder, const char *name) {
  char path[GD_FILE_PATH];
  struct stat file;
  snprintf(path, sizeof path, "%.4000s/%s", folder, name);
  return stat(path, &file) == 0 ? (int64_t)file.st_mtime : 0;
}

static void judge(struct gd_run_view *view, const char *folder, bool locked) {
  const struct gd_run_log *log = &view->log;
  bool published = change_of(folder, "model/model.safetensors") > 0;
  view->step = log->n_points > 0 ? log->points[log->n_points - 1].step : 0;
  view->loss = log->n_points > 0 ? log->points[log->n_points - 1].loss : (double)NAN;
  view->eval_loss = log->n_evals > 0 ? log->evals[log->n_evals - 1].loss : (double)NAN;
  view->step_s = gd_run_log_step_s(log);
  int64_t units = view->batch * (log->images ? 1 : view->seq); /* of a step */
  view->tokens_per_s = view->step_s > 0 ? (double)units / view->step_s : 0;
  view->skipped = 0;
  for (uint32_t i = 0; i < log->n_points; i++)
    view->skipped += log->points[i].skipped;
  view->changed_s = log->changed_s > 0 ? log->changed_s : change_of(folder, "run.json");
  view->state = locked                                   ? GD_RUN_STATE_TRAINING
                : view->step >= view->steps && published ? GD_RUN_STATE_FINISHED
                                                         : GD_RUN_STATE_STOPPED;
  view->completion_s = 0;
  if (view->state == GD_RUN_STATE_TRAINING && view->step_s > 0)
    view->completion_s =
        (int64_t)time(NULL) + (int64_t)(view->step_s * (double)(view->steps - view->step));
}

enum gd_status gd_run_view_read(struct gd_run_view *view, const char *folder,
                                struct gd_error *err) {
  struct gd_json json = {0};
  char path[GD_FILE_PATH];
  if (!gd_run_folder_has_run(folder))
    return gd_fail(err, GD_BAD_INPUT,
                   "%s is no run: it has no run.json, as 'gpudays train' writes it", folder);
  snprintf(path, sizeof path, "%.4000s/run.json", folder);
  GD_TRY(gd_json_load(&json, path, err));
  enum gd_status status = read_settings(view, &json, err);
  gd_json_deinit(&json);
  GD_TRY(status);
  /* First the lock: what is seen as ended has its whole log. */
  bool locked = gd_run_folder_is_locked(folder);
  GD_TRY(gd_run_log_read(&view->log, folder, err));
  judge(view, folder, locked);
  return GD_OK;
}

void gd_run_view_deinit(struct gd_run_view *view) {
  gd_run_log_deinit(&view->log);
  *view = (struct gd_run_view){0};
}

/* --- finding runs -------------------------------------------------------------------------- */

/* Paths of a folder's runs, in gd_mem; false: there is no memory. */
static bool list_runs(DIR *files, const char *folder, struct gd_arena *arena, const char ***list,
                      uint32_t *count) {
  uint32_t capacity = 0;
  const struct dirent *entry;
  while ((entry = readdir(files))) {
    if (entry->d_name[0] == '.')
      continue;
    const char *path = gd_arena_printf(arena, "%s/%s", folder, entry->d_name);
    if (!path)
      return false;
    if (!gd_run_folder_has_run(path))
      continue;
    if (!gd_vec_reserve((void **)list, &capacity, *count + 1, sizeof **list))
      return false;
    (*list)[(*count)++] = path;
  }
  return true;
}

/* Of one folder. */
static enum gd_status find_runs(const char *folder, struct gd_arena *arena,
                                const char *const **paths, int *count, struct gd_error *err) {
  const char **list = NULL;
  uint32_t found = 0;
  bool itself = gd_run_folder_has_run(folder);
  DIR *files = itself ? NULL : opendir(folder);
  if (!itself && !files)
    return gd_fail(err, GD_BAD_INPUT, "%s cannot be read: %s", folder, strerror(errno));
  bool enough = itself || list_runs(files, folder, arena, &list, &found);
  if (files)
    closedir(files);
  const char **copy = gd_arena_alloc(arena, (size_t)found + 1, sizeof *copy);
  if (copy && itself)
    copy[found++] = folder;
  else if (copy && found > 0)
    memcpy(copy, list, found * sizeof *list);
  gd_mem_free(list);
  if (!enough || !copy)
    return gd_nomem(err, "while looking for runs");
  qsort(copy, found, sizeof *copy, gd_compare_texts);
  *paths = copy;
  *count = (int)found;
  return GD_OK;
}

enum gd_status gd_run_view_find_all(const char *const *folders, int n_folders,
                                    struct gd_arena *arena, const char *const **paths, int *count,
                                    struct gd_error *err) {
  static const char *const usual[] = {"runs"};
  const char **all = NULL;
  uint32_t n = 0;
  if (n_folders == 0 && !gd_file_is_missing(usual[0])) {
    folders = usual;
    n_folders = 1;
  }
  for (int i = 0; i < n_folders; i++) {
    const char *const *found;
    int more;
    GD_TRY(find_runs(folders[i], arena, &found, &more, err));
    const char **longer = gd_arena_alloc(arena, n + (size_t)more + 1, sizeof *longer);
    if (!longer)
      return gd_nomem(err, "while looking for runs");
    for (uint32_t k = 0; k < n; k++)
      longer[k] = all[k];
    for (int k = 0; k < more; k++)
      longer[n++] = found[k];
    all = longer;
  }
  *paths = all;
  *count = (int)n;
  return GD_OK;
}

enum gd_status gd_run_progress_read(const char *folder, const struct gd_run_settings *settings,
                                    struct gd_run_progress *progress, struct gd_error *err) {
  char path[GD_FILE_PATH];
  struct stat model;
  struct gd_run_log log = {0};
  enum gd_status status = gd_run_log_read(&log, folder, err);
  double step_s = gd_run_log_step_s(&log);
  *progress =
      (struct gd_run_progress){.step = log.n_points > 0 ? log.points[log.n_points - 1].step : 0,
                               .steps = settings->model.recipe.steps};
  gd_run_log_deinit(&log);
  GD_TRY(status);
  snprintf(path, sizeof path, "%.4000s/model/model.safetensors", folder);
  progress->finished = stat(path, &model) == 0;
  if (progress->finished)
    progress->end_s = (int64_t)model.st_mtime;
  else if (progress->step > 0)
    progress->end_s =
        (int64_t)time(NULL) + (int64_t)((double)(progress->steps - progress->step) * step_s);
  return GD_OK;
}
