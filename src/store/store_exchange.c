/*
 * Results as a file, for other labs: JSON lines, a header and then one line a trial with its key
 * and its provenance; read also as the table that is published (store_csv.c). What is read was
 * written by others and is judged as such.
 */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/embedded.h"
#include "base/file.h"
#include "base/json.h"
#include "store/record_int.h"
#include "store/store_int.h"

enum {
  FORMAT_VERSION = 3, /* 2 said pass for micro-step, and is read */
  MOST_LINE_BYTES = 1 << 20,
  MOST_EMPTY_LINES = 1000,
  MOST_TABLE_BYTES = 256 << 20, /* as of any table of CSV */
};
static const int64_t most_bytes = (int64_t)4 << 30; /* of a file: a million trials */
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
  const char *key = NULL;
  char clean[sizeof((struct gd_store_key *)0)->text];
  if (sqlite3_bind_int64(to->key, 1, row->id) == SQLITE_OK && sqlite3_step(to->key) == SQLITE_ROW)
    key = (const char *)sqlite3_column_text(to->key, 0);
  gd_clean_text(clean, sizeof clean, key ? key : "");
  if (!key || !clean[0] || strcmp(clean, key) != 0) { /* JSON has no words for it */
    sqlite3_reset(to->key);
    gd_store_note_damage(to->store, row->id, "key");
    return GD_OK;
  }
  sqlite3_reset(to->key);
  to->line.length = 0;
  gd_strbuf_append(&to->line, "{\"key\":");
  gd_json_append_text(&to->line, clean);
  gd_strbuf_append(&to->line, ",\"provenance\":");
  gd_provenance_append(&to->line, &row->provenance);
  gd_strbuf_append(&to->line, ",\"trial\":");
  gd_record_append(&to->line, &row->trial, GD_NAMES_TODAY);
  gd_strbuf_append(&to->line, "}\n");
  if (to->line.failed)
    return gd_nomem(err, "while saving results");
  fwrite(to->line.text, 1, to->line.length, to->file); /* a failure waits for gd_file_end */
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
  char origin[sizeof((struct gd_store_row *)0)->origin];
  int64_t number;       /* of the line */
  int64_t bytes, empty; /* read so far; lines without anything */
  int64_t added, known;
  struct gd_identities presets;
};

static enum gd_status fail_read(const struct loading *from, struct gd_error *err) {
  return gd_fail(err, GD_BAD_INPUT, "%s: cannot be read: %s", from->path, strerror(errno));
}

/* The next line, without its end, in from->line. */
static enum gd_status read_line(struct loading *from, bool *more, struct gd_error *err) {
  char chunk[8192];
  size_t count = 0;
  int c;
  from->line.length = 0;
  from->number++;
  errno = 0;
  while ((c = getc_unlocked(from->file)) != EOF && c != '\n') {
    if (c == '\0')
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: line %lld holds a byte that no text has; name a file that 'results save' "
                     "wrote",
                     from->path, (long long)from->number);
    chunk[count++] = (char)c;
    if (count == sizeof chunk - 1) {
      chunk[count] = '\0';
      gd_strbuf_append(&from->line, chunk);
      count = 0;
    }
    if (from->line.length > MOST_LINE_BYTES)
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: line %lld is longer than %d bytes; is it a file that "
                     "'results save' wrote?",
                     from->path, (long long)from->number, MOST_LINE_BYTES);
  }
  chunk[count] = '\0';
  gd_strbuf_append(&from->line, chunk);
  *more = c != EOF || from->line.length > 0;
  from->bytes += (int64_t)from->line.length + 1;
  from->empty += from->line.length == 0;
  if (from->line.failed)
    return gd_nomem(err, "while loading %s", from->path);
  if (from->bytes > most_bytes || from->empty > MOST_EMPTY_LINES)
    return gd_fail(
        err, GD_BAD_INPUT, "%s: has %s; name a file that 'results save' wrote, or load it in parts",
        from->path, from->empty > MOST_EMPTY_LINES ? "over a thousand empty lines" : "over 4 GiB");
  return ferror(from->file) ? fail_read(from, err) : GD_OK;
}

static enum gd_status parse_line(struct loading *from, struct gd_json *json, struct gd_error *err) {
  char label[600];
  snprintf(label, sizeof label, "%.500s: line %lld", from->path, (long long)from->number);
  return gd_json_parse(json, label, from->line.text, (int64_t)from->line.length, err);
}

/* The first line: the header of JSON lines, or (*table) that of CSV. */
static enum gd_status check_header(struct loading *from, bool *table, struct gd_error *err) {
  static const char mark[] = "\xef\xbb\xbf", first[] = "model,method,";
  struct gd_json json = {0};
  const char *format;
  int64_t version;
  bool more;
  GD_TRY(read_line(from, &more, err));
  if (!more || from->line.length == 0)
    return gd_fail(err, GD_BAD_INPUT, "%s is empty; name a file that 'results save' wrote",
                   from->path);
  const char *begin = from->line.text;
  begin += strncmp(begin, mark, strlen(mark)) == 0 ? strlen(mark) : 0;
  *table = strncmp(begin, first, strlen(first)) == 0;
  if (*table)
    return GD_OK;
  enum gd_status status = parse_line(from, &json, NULL);
  if (status == GD_OK)
    status = gd_json_string(&json, json.root, "format", &format, NULL);
  if (status != GD_OK || strcmp(format, format_name) != 0)
    status = gd_fail(err, GD_BAD_INPUT,
                     "%s does not begin as saved results do; name a file that 'results save' or "
                     "'results --csv' wrote",
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

static enum gd_status read_row(struct gd_identities *presets, const struct gd_json *json,
                               struct gd_store_key *key, struct gd_store_row *row,
                               struct gd_error *err) {
  char preset[64];
  const json_t *from = json_object_get(json->root, "provenance");
  const json_t *trial = json_object_get(json->root, "trial");
  const char *text, *field, *expected;
  GD_TRY(gd_json_string(json, json->root, "key", &text, err));
  if (strlen(text) >= sizeof key->text || !gd_key_is_whole(text))
    return gd_json_mismatch(json, json->root, "key", "the key of a trial", err);
  snprintf(key->text, sizeof key->text, "%s", text);
  gd_hash_hex(key->hash, key->text);
  if (!json_is_object(from))
    return gd_json_mismatch(json, json->root, "provenance", "an object", err);
  if (!json_is_object(trial))
    return gd_json_mismatch(json, json->root, "trial", "an object", err);
  GD_TRY(gd_fields_set(json, from, gd_provenance_fields, gd_provenance_field_count,
                       &row->provenance, err));
  if (!gd_time_believable(row->provenance.time))
    return gd_json_mismatch(json, from, "time",
                            "a time such as 2024-05-01T12:00:00.000Z that has been", err);
  GD_TRY(gd_record_set(json, trial, &row->trial, err));
  if (!gd_record_believable(&row->trial, &field, &expected) ||
      !gd_record_consistent(&row->trial, &field, &expected))
    return gd_json_mismatch(json, trial, field, expected, err);
  field = gd_key_contradicts(key->text, &row->trial);
  if (field)
    return gd_json_mismatch(json, trial, field, "what the key of the trial says", err);
  field = gd_store_contradicts_preset(presets, key, &row->trial, preset);
  if (field)
    return gd_json_mismatch(json, trial, field, preset, err);
  if (row->trial.status == GD_TRIAL_PLANNED)
    return gd_json_mismatch(json, trial, "status", "a trial that has ended", err);
  return GD_OK;
}

/* Keys and hosts of the rows that were added: superseding each at once would be quadratic. */
static enum gd_status begin_added(struct gd_store *store, struct gd_error *err) {
  return gd_store_exec(store, "write to",
                       "CREATE TEMP TABLE added(key TEXT, host TEXT, PRIMARY KEY(key, host))"
                       " WITHOUT ROWID",
                       err);
}

static enum gd_status add_row(struct loading *from, const struct gd_store_key *key,
                              const struct gd_store_row *row, struct gd_error *err) {
  bool added;
  GD_TRY(
      gd_store_insert(from->store, key, &row->trial, &row->provenance, from->origin, &added, err));
  *(added ? &from->added : &from->known) += 1;
  if (!added)
    return GD_OK;
  return gd_store_change(from->store, "write to",
                         "INSERT INTO temp.added VALUES(?1, ?2) ON CONFLICT DO NOTHING", key->hash,
                         row->provenance.host, NULL, err);
}

/* Of the same key and host the newest of those that were loaded is current. */
static enum gd_status supersede(struct gd_store *store, struct gd_error *err) {
  return gd_store_exec(store, "write to",
                       "UPDATE trials SET superseded = id NOT IN"
                       "  (SELECT id FROM (SELECT trials.id AS id, row_number() OVER"
                       "    (PARTITION BY trials.key, trials.host ORDER BY trials.time DESC, "
                       "trials.id DESC) AS place"
                       "    FROM temp.added JOIN trials USING(key, host) WHERE trials.origin != '')"
                       "   WHERE place = 1)"
                       " WHERE origin != '' AND (key, host) IN (SELECT key, host FROM temp.added);"
                       "DROP TABLE temp.added",
                       err);
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
      status = read_row(&from->presets, &json, &key, &row, err);
    gd_json_deinit(&json);
    if (status == GD_OK)
      status = gd_store_identify_with(&from->presets, &key, &row.provenance, &row.trial, err);
    if (status == GD_OK)
      status = add_row(from, &key, &row, err);
    GD_TRY(status);
  }
}

/* --- load a table -------------------------------------------------------------------------- */

/* Whether a trial of the table is in this very database, or was loaded in another form: the table
   has of a key its hash. */
static enum gd_status is_known(struct gd_store *store, const char *hash, const char *time,
                               bool *known, struct gd_error *err) {
  sqlite3_stmt *statement = NULL;
  int code = sqlite3_prepare_v2(store->db, "SELECT 1 FROM trials WHERE key = ? AND time = ?", -1,
                                &statement, NULL);
  if (code == SQLITE_OK)
    code = sqlite3_bind_text(statement, 1, hash, -1, SQLITE_STATIC);
  if (code == SQLITE_OK)
    code = sqlite3_bind_text(statement, 2, time, -1, SQLITE_STATIC);
  if (code == SQLITE_OK)
    code = sqlite3_step(statement);
  *known = code == SQLITE_ROW;
  sqlite3_finalize(statement);
  if (code != SQLITE_ROW)
    GD_SQL_TRY(store, "read", code, err);
  return GD_OK;
}

static enum gd_status load_table_row(struct loading *from, const struct gd_csv *csv, int at,
                                     struct gd_error *err) {
  struct gd_store_row row = {0};
  struct gd_store_key key = {0};
  bool known, superseded;
  char preset[64];
  int time = gd_csv_column(csv, "provenance.time"), hash = gd_csv_column(csv, "key");
  GD_TRY(gd_record_read_csv(csv, at, &row.trial, &row.provenance, &superseded, err));
  if (row.trial.status == GD_TRIAL_PLANNED)
    return gd_csv_mismatch(csv, at, gd_csv_column(csv, "status"), "a trial that has ended", err);
  if (!gd_time_believable(row.provenance.time))
    return gd_csv_mismatch(csv, at, time, "a time such as 2024-05-01T12:00:00.000Z that has been",
                           err);
  const char *cell = gd_csv_cell(csv, at, hash);
  if (strlen(cell) != GD_HASH_TEXT - 1 || strspn(cell, "0123456789abcdef") != GD_HASH_TEXT - 1)
    return gd_csv_mismatch(csv, at, hash, "the key of a trial", err);
  GD_TRY(is_known(from->store, cell, row.provenance.time, &known, err));
  if (known) {
    from->known++;
    return GD_OK;
  }
  snprintf(key.text, sizeof key.text, GD_KEY_OF_TABLE "%s", cell);
  gd_hash_hex(key.hash, key.text);
  const char *field = gd_store_contradicts_preset(&from->presets, &key, &row.trial, preset);
  if (field)
    return gd_csv_mismatch(csv, at, gd_csv_column(csv, field), preset, err);
  GD_TRY(gd_store_identify_with(&from->presets, &key, &row.provenance, &row.trial, err));
  return add_row(from, &key, &row, err);
}

static enum gd_status load_table(struct loading *from, struct gd_error *err) {
  struct gd_strbuf text = {0};
  struct gd_csv csv = {0};
  enum gd_status status = GD_OK;
  bool more = true;
  gd_strbuf_printf(&text, "%s\n", from->line.text);
  while (more && status == GD_OK) {
    status = read_line(from, &more, err);
    if (status == GD_OK && more)
      gd_strbuf_printf(&text, "%s\n", from->line.text);
    if (status == GD_OK && text.length > MOST_TABLE_BYTES)
      status = gd_fail(err, GD_BAD_INPUT, "%s is longer than %d MiB; load it in parts", from->path,
                       MOST_TABLE_BYTES >> 20);
  }
  if (status == GD_OK && text.failed)
    status = gd_nomem(err, "while loading %s", from->path);
  if (status == GD_OK)
    status = gd_csv_parse(&csv, from->path, text.text, (int64_t)text.length, err);
  gd_strbuf_deinit(&text);
  for (int i = 0; i < csv.rows && status == GD_OK; i++)
    status = load_table_row(from, &csv, i, err);
  gd_csv_deinit(&csv);
  return status;
}

static const char published[] = "results/";

/* The table that travels in the program under that name. */
static const struct gd_embedded_file *find_published(const char *name) {
  char path[64];
  snprintf(path, sizeof path, "%s%.40s.csv", published, name);
  return gd_embedded_find(path);
}

/* Neither a file nor a name. */
static enum gd_status fail_missing(const char *path, struct gd_error *err) {
  struct gd_strbuf names = {0};
  for (int i = 0; i < gd_embedded_file_count; i++) {
    const char *name = gd_embedded_files[i].path;
    if (strncmp(name, published, sizeof published - 1) != 0)
      continue;
    name += sizeof published - 1;
    gd_strbuf_printf(&names, "%s%.*s", names.length ? ", " : "", (int)strcspn(name, "."), name);
  }
  enum gd_status status =
      gd_fail(err, GD_BAD_INPUT,
              "%s: there is no such file, and of the results that come with gpudays (%s) none has "
              "that name",
              path, names.failed || !names.text ? "none" : names.text);
  gd_strbuf_deinit(&names);
  return status;
}

/* A device may never end, and a folder has no lines. */
static enum gd_status open_input(struct loading *from, struct gd_error *err) {
  struct stat info;
  const struct gd_embedded_file *table = find_published(from->path);
  from->file = fopen(from->path, "re");
  if (!from->file && errno == ENOENT && table) {
    from->file = fmemopen((void *)(uintptr_t)table->text, (size_t)table->length, "r");
    name_origin(table->path, from->origin, sizeof from->origin);
    return from->file ? GD_OK : gd_nomem(err, "while loading %s", from->path);
  }
  if (!from->file && errno == ENOENT)
    return fail_missing(from->path, err);
  if (!from->file || fstat(fileno(from->file), &info) != 0)
    return gd_fail(err, GD_BAD_INPUT, "%s: cannot be opened: %s", from->path, strerror(errno));
  if (!S_ISREG(info.st_mode) && !S_ISFIFO(info.st_mode) && !S_ISSOCK(info.st_mode))
    return gd_fail(err, GD_BAD_INPUT,
                   "%s is no file but %s; name a file that 'results save' wrote, or a pipe",
                   from->path, S_ISDIR(info.st_mode) ? "a folder" : "a device");
  return GD_OK;
}

enum gd_status gd_store_load(struct gd_store *store, const char *path, int64_t *added,
                             int64_t *known, struct gd_error *err) {
  struct loading from = {.store = store, .path = path};
  bool table = false;
  name_origin(path, from.origin, sizeof from.origin);
  enum gd_status status = open_input(&from, err);
  if (status == GD_OK)
    status = check_header(&from, &table, err);
  if (status == GD_OK)
    status = gd_store_begin(store, err);
  if (status == GD_OK) {
    status = begin_added(store, err);
    if (status == GD_OK)
      status = table ? load_table(&from, err) : load_rows(&from, err);
    if (status == GD_OK)
      status = supersede(store, err);
    status = gd_store_end(store, status, err);
  }
  if (status == GD_OK) {
    *added = from.added;
    *known = from.known;
  }
  gd_strbuf_deinit(&from.line);
  if (from.file)
    fclose(from.file);
  return status;
}
