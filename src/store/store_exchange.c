/*
 * Results as a file, for other labs: JSON lines, a header and then one line a trial with its key
 * and its provenance. What is read was written by others and is judged as such.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "store/record_int.h"
#include "store/store_int.h"

enum { FORMAT_VERSION = 2, MOST_LINE_BYTES = 1 << 20 };
static const char format_name[] = "gpudays results";

/* --- save ---------------------------------------------------------------------------------- */

struct saving {
  struct gd_store *store;
  FILE *file;
  struct gd_strbuf line;
  int64_t saved;
  sqlite3_stmt *key; /* text of a row's key, by id */
};

static enum gd_status write_row(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct saving *to = user;
  const char *key = "";
  if (sqlite3_bind_int64(to->key, 1, row->id) == SQLITE_OK && sqlite3_step(to->key) == SQLITE_ROW)
    key = (const char *)sqlite3_column_text(to->key, 0);
  json_t *trial = gd_record_get(&row->trial);
  json_t *from = gd_fields_get(gd_provenance_fields, gd_provenance_field_count, &row->provenance);
  json_t *line =
      json_pack("{s:s, s:o, s:o}", "key", key ? key : "", "provenance", from, "trial", trial);
  to->line.length = 0;
  bool fine = gd_json_text(line, &to->line);
  json_decref(line);
  sqlite3_reset(to->key);
  if (!fine)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while saving results");
  fprintf(to->file, "%s\n", to->line.text); /* a failure waits for gd_file_end */
  to->saved++;
  return GD_OK;
}

enum gd_status gd_store_save(struct gd_store *store, const char *path, int64_t *saved,
                             struct gd_error *err) {
  struct saving to = {.store = store};
  struct gd_file_out out;
  GD_TRY(gd_file_begin(&out, path, err));
  to.file = out.stream;
  fprintf(to.file, "{\"format\":\"%s\",\"version\":%d}\n", format_name, FORMAT_VERSION);
  enum gd_status status = GD_OK;
  int code =
      sqlite3_prepare_v2(store->db, "SELECT key_text FROM details WHERE id = ?", -1, &to.key, NULL);
  if (code != SQLITE_OK)
    status = gd_store_fail(store, code, "read", err);
  if (status == GD_OK)
    status = gd_store_query(
        store,
        &(struct gd_store_filter){.history = true, .sort = GD_STORE_SORT_TIME, .reverse = true},
        write_row, &to, err);
  sqlite3_finalize(to.key);
  gd_strbuf_deinit(&to.line);
  status = gd_file_end(&out, status, err);
  if (status == GD_OK)
    *saved = to.saved;
  return status;
}

/* --- load ---------------------------------------------------------------------------------- */

struct loading {
  struct gd_store *store;
  const char *path;
  FILE *file;
  struct gd_strbuf line;
  int64_t number; /* of the line */
  int64_t added, known;
};

/* The next line, without its end, in from->line. */
static enum gd_status read_line(struct loading *from, bool *more, struct gd_error *err) {
  char chunk[8192];
  from->line.length = 0;
  *more = false;
  from->number++;
  while (fgets(chunk, sizeof chunk, from->file)) {
    *more = true;
    gd_strbuf_append(&from->line, chunk);
    if (from->line.failed)
      return gd_fail(err, GD_ENVIRONMENT, "out of memory while loading %s", from->path);
    if (from->line.length > MOST_LINE_BYTES)
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: line %lld is longer than %d bytes; is it a file that "
                     "'results save' wrote?",
                     from->path, (long long)from->number, MOST_LINE_BYTES);
    if (from->line.length && from->line.text[from->line.length - 1] == '\n') {
      from->line.text[--from->line.length] = '\0';
      return GD_OK;
    }
  }
  if (ferror(from->file))
    return gd_fail(err, GD_BAD_INPUT, "%s: cannot be read: %s", from->path, strerror(errno));
  return GD_OK;
}

static enum gd_status parse_line(struct loading *from, struct gd_json *json, struct gd_error *err) {
  char label[600];
  snprintf(label, sizeof label, "%.500s: line %lld", from->path, (long long)from->number);
  return gd_json_parse(json, label, from->line.text, (int64_t)from->line.length, err);
}

static enum gd_status check_header(struct loading *from, struct gd_error *err) {
  struct gd_json json = {0};
  const char *format;
  int64_t version;
  bool more;
  GD_TRY(read_line(from, &more, err));
  if (!more)
    return gd_fail(err, GD_BAD_INPUT, "%s is empty; name a file that 'results save' wrote",
                   from->path);
  enum gd_status status = parse_line(from, &json, NULL);
  if (status == GD_OK)
    status = gd_json_string(&json, json.root, "format", &format, NULL);
  if (status != GD_OK || strcmp(format, format_name) != 0)
    status = gd_fail(err, GD_BAD_INPUT,
                     "%s does not begin as saved results do; name a file that 'results save' wrote",
                     from->path);
  else
    status = gd_json_int(&json, json.root, "version", 1, 1000000, &version, err);
  if (status == GD_OK && version > FORMAT_VERSION)
    status = gd_fail(err, GD_UNSUPPORTED,
                     "%s was saved by a newer gpudays (format %lld, this one reads %d); load it "
                     "with that one",
                     from->path, (long long)version, FORMAT_VERSION);
  gd_json_deinit(&json);
  return status;
}

/* Sorts as text, and nothing else does: "2024-05-01T12:00:00.123Z". */
static bool is_time(const char *text) {
  static const char shape[] = "dddd-dd-ddTdd:dd:dd.dddZ";
  if (strlen(text) != strlen(shape))
    return false;
  for (size_t i = 0; shape[i]; i++)
    if (shape[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != shape[i])
      return false;
  return true;
}

static enum gd_status read_row(const struct gd_json *json, struct gd_store_key *key,
                               struct gd_store_row *row, struct gd_error *err) {
  const json_t *from = json_object_get(json->root, "provenance");
  const json_t *trial = json_object_get(json->root, "trial");
  const char *text;
  GD_TRY(gd_json_string(json, json->root, "key", &text, err));
  if (!text[0] || strlen(text) >= sizeof key->text)
    return gd_json_mismatch(json, json->root, "key", "the key of a trial", err);
  snprintf(key->text, sizeof key->text, "%s", text);
  gd_hash_hex(key->hash, key->text);
  if (!json_is_object(from))
    return gd_json_mismatch(json, json->root, "provenance", "an object", err);
  if (!json_is_object(trial))
    return gd_json_mismatch(json, json->root, "trial", "an object", err);
  GD_TRY(gd_fields_set(json, from, gd_provenance_fields, gd_provenance_field_count,
                       &row->provenance, err));
  if (!is_time(row->provenance.time))
    return gd_json_mismatch(json, from, "time", "a time such as 2024-05-01T12:00:00.000Z", err);
  GD_TRY(gd_record_set(json, trial, &row->trial, err));
  if (row->trial.status == GD_TRIAL_PLANNED)
    return gd_json_mismatch(json, trial, "status", "a trial that has ended", err);
  return GD_OK;
}

/* Of the same key and host the newest of those that were loaded is current. */
static enum gd_status add_row(struct loading *from, const struct gd_store_key *key,
                              const struct gd_store_row *row, struct gd_error *err) {
  bool added;
  GD_TRY(
      gd_store_insert(from->store, key, &row->trial, &row->provenance, row->origin, &added, err));
  *(added ? &from->added : &from->known) += 1;
  if (!added)
    return GD_OK;
  return gd_store_change(
      from->store, "write to",
      "UPDATE trials SET superseded = id != (SELECT id FROM trials WHERE key = ?1 AND host = ?2 AND"
      "  origin != '' ORDER BY time DESC, id DESC LIMIT 1)"
      " WHERE key = ?1 AND host = ?2 AND origin != ''",
      key->hash, row->provenance.host, NULL, err);
}

/* The last part of the path: where others keep their files is their own business. */
static void name_origin(const char *path, char *origin, size_t size) {
  const char *slash = strrchr(path, '/');
  gd_clean_text(origin, size, slash && slash[1] ? slash + 1 : path);
}

static enum gd_status load_rows(struct loading *from, struct gd_error *err) {
  for (;;) {
    struct gd_json json = {0};
    struct gd_store_key key;
    struct gd_store_row row = {0};
    bool more;
    GD_TRY(read_line(from, &more, err));
    if (!more)
      return GD_OK;
    if (from->line.length == 0)
      continue;
    enum gd_status status = parse_line(from, &json, err);
    if (status == GD_OK)
      status = read_row(&json, &key, &row, err);
    gd_json_deinit(&json);
    if (status == GD_OK && !row.trial.recipe[0] &&
        !gd_recipe_of_key(key.text, row.trial.precision_substituted, row.trial.recipe))
      row.trial.recipe[0] = '\0';
    name_origin(from->path, row.origin, sizeof row.origin);
    if (status == GD_OK)
      status = add_row(from, &key, &row, err);
    GD_TRY(status);
  }
}

enum gd_status gd_store_load(struct gd_store *store, const char *path, int64_t *added,
                             int64_t *known, struct gd_error *err) {
  struct loading from = {.store = store, .path = path};
  from.file = fopen(path, "re");
  if (!from.file)
    return gd_fail(err, GD_BAD_INPUT, "%s: cannot be opened: %s", path, strerror(errno));
  enum gd_status status = check_header(&from, err);
  if (status == GD_OK)
    status = gd_store_begin(store, err);
  if (status == GD_OK)
    status = gd_store_end(store, load_rows(&from, err), err);
  if (status == GD_OK) {
    *added = from.added;
    *known = from.known;
  }
  gd_strbuf_deinit(&from.line);
  fclose(from.file);
  return status;
}
