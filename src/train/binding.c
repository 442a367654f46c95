/*
 * Bindings; see binding.h. The hashes are of run.json's own values, not of what this program makes
 * of them: a later program that knows more settings still has the same ones.
 */
#include "train/binding.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "train/run_folder.h"

static const struct part {
  const char *key, *name;
  const char *fields[8]; /* of run.json, or of "model" in it */
  bool of_model;
} parts[GD_BINDING_PARTS] = {
    [GD_BINDING_MODEL] = {"model", "model", {"config"}, true},
    [GD_BINDING_RECIPE] = {"recipe", "recipe", {"recipe"}, true},
    [GD_BINDING_DATA] = {"data",
                         "data",
                         {"data_size", "mask_token", "token_bytes", "augment", "normalize",
                          "label_smoothing"},
                         false},
    [GD_BINDING_START] = {"start", "seed or initial weights", {"seed", "init"}, false},
};

/* The data is known by its content where run.json has that, else by its files. */
static const char *data_field(const json_t *run) {
  return json_object_get(run, "data_hash") ? "data_hash" : "data";
}

static bool hash_part(const json_t *run, enum gd_binding_part id, char hash[GD_HASH_TEXT]) {
  const struct part *part = &parts[id];
  const json_t *from = part->of_model ? json_object_get(run, "model") : run;
  json_t *values = json_object();
  struct gd_strbuf text = {0};
  bool fine = values != NULL;
  for (size_t i = 0; i < sizeof part->fields / sizeof *part->fields && part->fields[i]; i++)
    if (json_object_get(from, part->fields[i]))
      fine &= json_object_set(values, part->fields[i], json_object_get(from, part->fields[i])) == 0;
  if (id == GD_BINDING_DATA && json_object_get(run, data_field(run)))
    fine &= json_object_set(values, data_field(run), json_object_get(run, data_field(run))) == 0;
  fine = fine &&
         gd_json_append(&text, values, JSON_COMPACT | JSON_SORT_KEYS | JSON_REAL_PRECISION(17));
  if (fine)
    gd_hash_hex(hash, text.text);
  gd_strbuf_deinit(&text);
  json_decref(values);
  return fine;
}

enum gd_status gd_binding_read(const char *folder, struct gd_binding *binding,
                               struct gd_error *err) {
  struct gd_json json = {0};
  char path[GD_FILE_PATH];
  *binding = (struct gd_binding){0};
  if (!gd_run_folder_has_run(folder))
    return GD_OK;
  snprintf(path, sizeof path, "%.4000s/run.json", folder);
  GD_TRY(gd_json_load(&json, path, err));
  binding->known = true;
  for (int i = 0; i < GD_BINDING_PARTS; i++)
    binding->known &= hash_part(json.root, (enum gd_binding_part)i, binding->part[i]);
  gd_json_deinit(&json);
  return binding->known ? GD_OK : gd_nomem(err, "while reading run.json");
}

bool gd_binding_differs(const struct gd_binding *a, const struct gd_binding *b, char *what,
                        size_t size) {
  size_t used = 0;
  int count = 0;
  what[0] = '\0';
  for (int i = 0; i < GD_BINDING_PARTS && a->known && b->known && used < size; i++)
    if (strcmp(a->part[i], b->part[i]) != 0)
      used +=
          (size_t)snprintf(what + used, size - used, "%s%s", count++ ? ", " : "", parts[i].name);
  return count > 0;
}

json_t *gd_binding_object(const struct gd_binding *binding) {
  json_t *object = json_object();
  for (int i = 0; i < GD_BINDING_PARTS && object; i++)
    json_object_set_new(object, parts[i].key, json_string(binding->part[i]));
  return object;
}

void gd_binding_parse(const json_t *object, struct gd_binding *binding) {
  *binding = (struct gd_binding){.known = json_is_object(object)};
  for (int i = 0; i < GD_BINDING_PARTS; i++) {
    const char *hash = json_string_value(json_object_get(object, parts[i].key));
    snprintf(binding->part[i], sizeof binding->part[i], "%s", hash ? hash : "");
  }
}
