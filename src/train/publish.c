/*
 * RUN/model; see publish.h.
 */
#define _GNU_SOURCE
#include "train/publish.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

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

/* The tokens that begin and end a text, as config.json has them, for transformers' generate. */
static enum gd_status write_generation(const char *config_text, const char *path,
                                       struct gd_error *err) {
  static const char *const keys[] = {"bos_token_id", "eos_token_id", "pad_token_id"};
  struct gd_strbuf text = {0};
  json_t *config = json_loads(config_text, 0, NULL), *out = json_object();
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
    if (json_is_integer(json_object_get(config, keys[i])))
      json_object_set(out, keys[i], json_object_get(config, keys[i]));
  bool written = gd_json_append(&text, out, JSON_INDENT(2));
  json_decref(config);
  json_decref(out);
  enum gd_status status = written ? gd_file_write(path, text.text, text.length, err)
                                  : gd_nomem(err, "for generation_config.json");
  gd_strbuf_deinit(&text);
  return status;
}

enum gd_status gd_publish_model(const struct gd_published *p, struct gd_error *err) {
  static const char *const names[] = {"config.json", "model.safetensors"};
  char from[GD_FILE_PATH], to[GD_FILE_PATH];
  snprintf(to, sizeof to, "%.4000s/model", p->folder);
  GD_TRY(gd_file_make_folder(to, err));
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(from, sizeof from, "%.4000s/%s", p->checkpoint, names[i]);
    snprintf(to, sizeof to, "%.4000s/model/%s", p->folder, names[i]);
    GD_TRY(publish_file(from, to, err));
  }
  snprintf(from, sizeof from, "%.4000s/tokenizer.json", p->folder);
  snprintf(to, sizeof to, "%.4000s/model/tokenizer.json", p->folder);
  if (!gd_file_is_missing(from))
    GD_TRY(publish_file(from, to, err));
  if (!p->predicts_next)
    return GD_OK;
  snprintf(to, sizeof to, "%.4000s/model/generation_config.json", p->folder);
  return write_generation(p->config_text, to, err);
}
