/*
 * Models with weights; see trained.h.
 */
#include "train/trained.h"

#include <stdio.h>

#include "train/checkpoint.h"

static enum gd_status find_in_run(const char *path, struct gd_arena *arena, struct gd_trained *t,
                                  struct gd_strbuf *damaged, struct gd_error *err) {
  struct gd_checkpoint checkpoint;
  struct gd_checkpoint_passed passed = {0};
  struct gd_binding binding;
  char folder[GD_FILE_PATH];
  bool found;
  GD_TRY(gd_run_folder_read(path, arena, &t->settings, err));
  GD_TRY(gd_binding_read(path, &binding, err));
  snprintf(folder, sizeof folder, "%.4000s/checkpoints", path);
  enum gd_status status =
      gd_checkpoint_find(&(struct gd_checkpoint_query){.folder = folder, .binding = &binding}, NULL,
                         &found, &checkpoint, &passed, err);
  if (damaged && passed.lines.length > 0)
    gd_strbuf_append(damaged, passed.lines.text);
  gd_strbuf_deinit(&passed.lines);
  GD_TRY(status);
  if (!found)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s has no whole checkpoint yet; --checkpoint-every says when train writes one",
                   path);
  t->model = t->settings.model;
  t->is_run = true;
  t->step = checkpoint.facts.step;
  snprintf(t->weights, sizeof t->weights, "%s", checkpoint.path);
  return GD_OK;
}

static enum gd_status find_in_folder(const char *path, struct gd_trained *t, struct gd_error *err) {
  char config[GD_FILE_PATH];
  snprintf(config, sizeof config, "%.4000s/config.json", path);
  if (gd_file_is_missing(config))
    return gd_fail(err, GD_BAD_INPUT,
                   "%s is neither a run of 'gpudays train' nor a model folder: it has no run.json "
                   "and no config.json",
                   path);
  GD_TRY(gd_model_load(path, &t->model, err));
  snprintf(t->weights, sizeof t->weights, "%.4000s", path);
  return GD_OK;
}

enum gd_status gd_trained_find(const char *path, struct gd_arena *arena, struct gd_trained *trained,
                               struct gd_strbuf *damaged, struct gd_error *err) {
  *trained = (struct gd_trained){.step = -1};
  if (gd_run_folder_has_run(path))
    GD_TRY(find_in_run(path, arena, trained, damaged, err));
  else
    GD_TRY(find_in_folder(path, trained, err));
  snprintf(trained->tokenizer, sizeof trained->tokenizer, "%.4000s/tokenizer.json", path);
  if (gd_file_is_missing(trained->tokenizer))
    trained->tokenizer[0] = '\0';
  return GD_OK;
}
