/*
 * RUN/model; see publish.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "train/publish.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "data/preprocessor.h"

static enum gd_status copy_file(const char *from, const char *to, struct gd_error *err) {
  char piece[1 << 16];
  struct gd_file_out out;
  FILE *in = gd_file_open(from, "r");
  if (!in)
    return gd_fail(err, GD_ENVIRONMENT, "%s cannot be read: %s", from, strerror(errno));
  enum gd_status status = gd_file_begin(&out, to, err);
  if (status == GD_OK) {
    for (size_t n; (n = fread(piece, 1, sizeof piece, in)) > 0;)
      fwrite(piece, 1, n, out.stream);
    if (ferror(in))
      status = gd_fail(err, GD_ENVIRONMENT, "%s cannot be read: %s", from, strerror(errno));
    status = gd_file_end(&out, status, err);
  }
  fclose(in);
  return status;
}

/* A hard link, or a copy; what was there stays until then. */
static enum gd_status publish_file(const char *from, const char *to, struct gd_error *err) {
  char part[GD_FILE_PATH + 8];
  snprintf(part, sizeof part, "%s.part", to);
  unlink(part);
  if (link(from, part) != 0)
    return copy_file(from, to, err);
  if (rename(part, to) == 0) {
    unlink(part); /* both were the same file already: rename leaves them alone */
    return GD_OK;
  }
  enum gd_status status =
      gd_fail(err, GD_ENVIRONMENT, "%s cannot be put in its place: %s", part, strerror(errno));
  unlink(part);
  return status;
}

static enum gd_status write_object(const char *path, json_t *object, struct gd_error *err) {
  struct gd_strbuf text = {0};
  bool made = object && gd_json_append(&text, object, JSON_INDENT(2));
  enum gd_status status = made ? gd_file_write(path, text.text, text.length, err)
                               : gd_fail(err, GD_ENVIRONMENT, "out of memory for %s", path);
  gd_strbuf_deinit(&text);
  json_decref(object);
  return status;
}

/* The tokens that begin and end a text, as config.json has them, for transformers' generate. */
static enum gd_status write_generation(const struct gd_publishing *p, const char *path,
                                       struct gd_error *err) {
  static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
  json_t *config = json_loads(p->config_text, 0, NULL), *out = json_object();
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (json_is_integer(json_object_get(config, keys[i])))
      json_object_set(out, keys[i], json_object_get(config, keys[i]));
  json_decref(config);
  return write_object(path, out, err);
}

/* config.json with the names of the classes; those of shards have numbers alone. */
static enum gd_status write_config(const struct gd_publishing *p, const char *from, const char *to,
                                   struct gd_error *err) {
  const struct gd_image_files *files = p->images ? &p->images->files : NULL;
  if (!files || !files->classes)
    return publish_file(from, to, err);
  json_t *config = json_loads(p->config_text, 0, NULL);
  if (!config || !gd_class_names_set(config, files->classes, files->n_classes)) {
    json_decref(config);
    return gd_nomem(err, "for config.json");
  }
  return write_object(to, config, err);
}

static enum gd_status publish_images(const struct gd_publishing *p, struct gd_error *err) {
  const struct gd_image_options *o = &p->images->options;
  char path[GD_FILE_PATH];
  snprintf(path, sizeof path, "%.4000s/model/preprocessor_config.json", p->folder);
  return o->height == o->width ? gd_preprocessor_write(path, o->height, o->normalize, err) : GD_OK;
}

enum gd_status gd_publish(const struct gd_publishing *p, struct gd_error *err) {
  char from[GD_FILE_PATH], to[GD_FILE_PATH];
  snprintf(to, sizeof to, "%.4000s/model", p->folder);
  GD_TRY(gd_file_make_folder(to, err));
  snprintf(from, sizeof from, "%.4000s/config.json", p->checkpoint);
  snprintf(to, sizeof to, "%.4000s/model/config.json", p->folder);
  GD_TRY(write_config(p, from, to, err));
  snprintf(from, sizeof from, "%.4000s/tokenizer.json", p->folder);
  snprintf(to, sizeof to, "%.4000s/model/tokenizer.json", p->folder);
  if (!gd_file_is_missing(from))
    GD_TRY(publish_file(from, to, err));
  if (p->images)
    GD_TRY(publish_images(p, err));
  snprintf(to, sizeof to, "%.4000s/model/generation_config.json", p->folder);
  if (p->generates)
    GD_TRY(write_generation(p, to, err));
  snprintf(from, sizeof from, "%.4000s/model.safetensors", p->checkpoint);
  snprintf(to, sizeof to, "%.4000s/model/model.safetensors", p->folder); /* last: run_view.c */
  return publish_file(from, to, err);
}
