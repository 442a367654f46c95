/*
 * Trials in and out of the database: by key, one at a time, and by filter, many. The columns are
 * made from the field tables of record.c; the schema is in store_open.c.
 */
#include "store/store.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "store/record_int.h"
#include "store/store_int.h"

/* --- a value as a column ------------------------------------------------------------------- */

static int bind_text(sqlite3_stmt *statement, int at, const char *text) {
  char clean[sizeof((struct gd_trial *)0)->reason];
  gd_clean_text(clean, sizeof clean, text);
  return sqlite3_bind_text(statement, at, clean, -1, SQLITE_TRANSIENT);
}

/* SQLite turns what is not a number into NULL, and back it comes. */
static int bind_field(sqlite3_stmt *statement, int at, const struct gd_field *field,
                      const void *record) {
  const void *value = (const char *)record + field->offset;
  switch (field->kind) {
  case GD_FIELD_TEXT: return bind_text(statement, at, value);
  case GD_FIELD_BOOL: return sqlite3_bind_int(statement, at, *(const bool *)value);
  case GD_FIELD_INT: return sqlite3_bind_int(statement, at, *(const int *)value);
  case GD_FIELD_INT64: return sqlite3_bind_int64(statement, at, *(const int64_t *)value);
  case GD_FIELD_REAL: return sqlite3_bind_double(statement, at, *(const double *)value);
  case GD_FIELD_STATUS:
    return bind_text(statement, at, gd_trial_status_name(*(const enum gd_trial_status *)value));
  case GD_FIELD_PRECISION:
    return bind_text(statement, at, gd_precision_name(*(const enum gd_precision *)value));
  case GD_FIELD_FAILURE:
    return bind_text(statement, at, gd_trial_failure_name(*(const enum gd_trial_failure *)value));
  }
  return SQLITE_MISUSE;
}

/* false: it is of another type than was written, or no word that this version knows. */
static bool read_field(sqlite3_stmt *statement, int at, const struct gd_field *field,
                       void *record) {
  void *value = (char *)record + field->offset;
  int type = sqlite3_column_type(statement, at);
  bool whole =
      field->kind == GD_FIELD_BOOL || field->kind == GD_FIELD_INT || field->kind == GD_FIELD_INT64;
  if (type != SQLITE_NULL &&
      ((whole && type != SQLITE_INTEGER) ||
       (field->kind == GD_FIELD_REAL && type != SQLITE_INTEGER && type != SQLITE_FLOAT)))
    return false;
  switch (field->kind) {
  case GD_FIELD_TEXT: gd_clean_text(value, field->size, gd_store_text(statement, at)); return true;
  case GD_FIELD_BOOL: *(bool *)value = sqlite3_column_int(statement, at) != 0; return true;
  case GD_FIELD_INT:
    *(int *)value = sqlite3_column_int(statement, at);
    return *(int *)value == sqlite3_column_int64(statement, at);
  case GD_FIELD_INT64: *(int64_t *)value = sqlite3_column_int64(statement, at); return true;
  case GD_FIELD_REAL:
    *(double *)value = sqlite3_column_type(statement, at) == SQLITE_NULL
                           ? (double)NAN
                           : sqlite3_column_double(statement, at);
    return true;
  case GD_FIELD_STATUS: return gd_trial_status_parse(gd_store_text(statement, at), value);
  case GD_FIELD_PRECISION: return gd_precision_parse(gd_store_text(statement, at), value);
  case GD_FIELD_FAILURE: return gd_trial_failure_parse(gd_store_text(statement, at), value);
  }
  return false;
}

static enum gd_status prepare(struct gd_store *store, const char *sql, sqlite3_stmt **statement,
                              struct gd_error *err) {
  GD_SQL_TRY(store, "read", sqlite3_prepare_v2(store->db, sql, -1, statement, NULL), err);
  return GD_OK;
}

static enum gd_status no_memory(struct gd_error *err) {
  return gd_nomem(err, "while talking to the database of results");
}

/* Columns keep the names of the first format, so that programs of before read what this one stores.
 */
static const char *column_of(const struct gd_field *field) {
  return field->first_name ? field->first_name : field->name;
}

/* ", name, name ..." of both structs. */
static void append_columns(struct gd_strbuf *sql) {
  for (int i = 0; i < gd_trial_field_count; i++)
    gd_strbuf_printf(sql, ", \"%s\"", column_of(&gd_trial_fields[i]));
  for (int i = 0; i < gd_provenance_field_count; i++)
    gd_strbuf_printf(sql, ", \"%s\"", gd_provenance_fields[i].name);
}

/* --- writing ------------------------------------------------------------------------------- */

static double measured_s(const struct gd_trial *trial) {
  enum { PROGRAMS = 3 };
  const struct gd_samples *all[PROGRAMS] = {&trial->micro_step, &trial->last_micro_step,
                                            &trial->update};
  double seconds = isfinite(trial->warmup_s) ? trial->warmup_s : 0;
  for (int i = 0; i < PROGRAMS; i++)
    for (int k = 0; k < all[i]->count; k++)
      seconds += 1e-9 * (double)all[i]->ns[k];
  return seconds;
}

enum { OWN_COLUMNS = 5 }; /* digest, key, superseded, measured_s, origin */

static enum gd_status prepare_inserts(struct gd_store *store, struct gd_error *err) {
  struct gd_strbuf sql = {0};
  if (store->insert)
    return GD_OK;
  gd_strbuf_append(&sql, "INSERT INTO trials(digest, key, superseded, measured_s, origin");
  append_columns(&sql);
  gd_strbuf_append(&sql, ") VALUES(?");
  for (int i = 1; i < OWN_COLUMNS + gd_trial_field_count + gd_provenance_field_count; i++)
    gd_strbuf_append(&sql, ", ?");
  gd_strbuf_append(&sql, ") ON CONFLICT(digest) DO NOTHING");
  enum gd_status status =
      sql.failed ? no_memory(err) : prepare(store, sql.text, &store->insert, err);
  gd_strbuf_deinit(&sql);
  if (status == GD_OK)
    status = prepare(store,
                     "INSERT INTO details(key_text, samples, bytes, host_parts, profile, id) "
                     "VALUES(?, ?, ?, ?, ?, ?)",
                     &store->insert_details, err);
  return status;
}

/* All that a row says, so that one and the same row is stored once, whoever brings it; but for what
   came later, which a row of before gains without becoming another. */
static enum gd_status make_digest(const struct gd_store_key *key, const struct gd_trial *trial,
                                  const struct gd_provenance *provenance, char digest[GD_HASH_TEXT],
                                  struct gd_error *err) {
  struct gd_strbuf text = {0};
  gd_strbuf_printf(&text, "%s\n", key->text);
  gd_provenance_append(&text, provenance);
  gd_record_append(&text, trial, GD_NAMES_FIRST);
  if (!text.failed)
    gd_hash_hex(digest, text.text);
  enum gd_status status = text.failed ? no_memory(err) : GD_OK;
  gd_strbuf_deinit(&text);
  return status;
}

static int bind_row(sqlite3_stmt *statement, const struct gd_store_key *key, const char *digest,
                    const struct gd_trial *trial, const struct gd_provenance *provenance,
                    const char *origin) {
  int code = SQLITE_OK, at = 1;
  code |= sqlite3_bind_text(statement, at++, digest, -1, SQLITE_TRANSIENT);
  code |= sqlite3_bind_text(statement, at++, key->hash, -1, SQLITE_TRANSIENT);
  code |= sqlite3_bind_int(statement, at++, 0);
  code |= sqlite3_bind_double(statement, at++, measured_s(trial));
  code |= bind_text(statement, at++, origin);
  for (int i = 0; i < gd_trial_field_count; i++)
    code |= bind_field(statement, at++, &gd_trial_fields[i], trial);
  for (int i = 0; i < gd_provenance_field_count; i++)
    code |= bind_field(statement, at++, &gd_provenance_fields[i], provenance);
  return code;
}

static enum gd_status insert_details(struct gd_store *store, int64_t id,
                                     const struct gd_store_key *key, const struct gd_trial *trial,
                                     struct gd_error *err) {
  sqlite3_stmt *statement = store->insert_details;
  int code = sqlite3_bind_text(statement, 1, key->text, -1, SQLITE_TRANSIENT);
  for (int i = 0; i < GD_PART_COUNT; i++) {
    struct gd_strbuf text = {0};
    gd_part_append(&text, trial, (enum gd_part)i, GD_NAMES_FIRST);
    code |= text.failed ? SQLITE_NOMEM
                        : sqlite3_bind_text(statement, 2 + i, text.text, -1, SQLITE_TRANSIENT);
    gd_strbuf_deinit(&text);
  }
  code |= sqlite3_bind_int64(statement, 2 + GD_PART_COUNT, id);
  if (code != SQLITE_OK)
    return no_memory(err);
  errno = 0;
  code = sqlite3_step(statement);
  enum gd_status status = code == SQLITE_DONE ? GD_OK : gd_store_fail(store, code, "write to", err);
  sqlite3_reset(statement);
  return status;
}

enum gd_status gd_store_insert(struct gd_store *store, const struct gd_store_key *key,
                               const struct gd_trial *trial, const struct gd_provenance *provenance,
                               const char *origin, bool *added, struct gd_error *err) {
  char digest[GD_HASH_TEXT];
  GD_TRY(prepare_inserts(store, err));
  GD_TRY(make_digest(key, trial, provenance, digest, err));
  if (bind_row(store->insert, key, digest, trial, provenance, origin) != SQLITE_OK)
    return no_memory(err);
  errno = 0;
  int code = sqlite3_step(store->insert);
  *added = code == SQLITE_DONE && sqlite3_changes(store->db) > 0;
  enum gd_status status = code == SQLITE_DONE ? GD_OK : gd_store_fail(store, code, "write to", err);
  sqlite3_reset(store->insert);
  if (status == GD_OK && *added)
    status = insert_details(store, sqlite3_last_insert_rowid(store->db), key, trial, err);
  return status;
}

enum gd_status gd_store_change(struct gd_store *store, const char *what, const char *sql,
                               const char *a, const char *b, const char *c, struct gd_error *err) {
  const char *texts[] = {a, b, c};
  errno = 0;
  sqlite3_stmt *statement = NULL;
  int code = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);
  for (int i = 0; i < 3 && code == SQLITE_OK && texts[i]; i++)
    code = sqlite3_bind_text(statement, i + 1, texts[i], -1, SQLITE_STATIC);
  if (code == SQLITE_OK)
    code = sqlite3_step(statement);
  enum gd_status status = code == SQLITE_DONE ? GD_OK : gd_store_fail(store, code, what, err);
  sqlite3_finalize(statement);
  return status;
}

#define DELETE_PENDING "DELETE FROM trials WHERE key = ? AND status = 'planned'"

/* Of that key, a result that answers who asks: what is planned next to it is not pending. */
#define HAS_ANSWER(key)                                                                       \
  "EXISTS(SELECT 1 FROM trials AS done WHERE done.key = " key " AND done.superseded = 0 AND " \
  "done.origin = '' AND done.status IN ('ok', 'implausible'))"

static enum gd_status has_answer(struct gd_store *store, const struct gd_store_key *key,
                                 bool *answered, struct gd_error *err) {
  sqlite3_stmt *statement = NULL;
  GD_TRY(prepare(store, "SELECT " HAS_ANSWER("?"), &statement, err));
  int code = sqlite3_bind_text(statement, 1, key->hash, -1, SQLITE_STATIC);
  if (code == SQLITE_OK)
    code = sqlite3_step(statement);
  *answered = code == SQLITE_ROW && sqlite3_column_int(statement, 0) != 0;
  sqlite3_finalize(statement);
  return code == SQLITE_ROW ? GD_OK : gd_store_fail(store, code, "read", err);
}

static enum gd_status put(struct gd_store *store, const struct gd_store_key *key,
                          const struct gd_trial *trial, const struct gd_provenance *provenance,
                          struct gd_error *err) {
  bool added, answered = false;
  GD_TRY(gd_store_change(store, "write to", DELETE_PENDING, key->hash, NULL, NULL, err));
  if (trial->status == GD_TRIAL_PLANNED)
    GD_TRY(has_answer(store, key, &answered, err));
  if (answered)
    return GD_OK;
  if (trial->status != GD_TRIAL_PLANNED)
    GD_TRY(gd_store_change(store, "write to",
                           "UPDATE trials SET superseded = 1 WHERE key = ? AND superseded = 0 AND "
                           "origin = ''",
                           key->hash, NULL, NULL, err));
  GD_TRY(gd_store_insert(store, key, trial, provenance, "", &added, err));
  if (!added) { /* the very same row, put again: it is the current one, and ours */
    char digest[GD_HASH_TEXT];
    GD_TRY(make_digest(key, trial, provenance, digest, err));
    GD_TRY(gd_store_change(store, "write to",
                           "UPDATE trials SET superseded = 0, origin = '' WHERE digest = ?", digest,
                           NULL, NULL, err));
  }
  return GD_OK;
}

enum gd_status gd_store_put(struct gd_store *store, const struct gd_store_key *key,
                            const struct gd_trial *trial, const struct gd_provenance *provenance,
                            struct gd_error *err) {
  struct gd_provenance here;
  if (!provenance) {
    gd_provenance_here(trial->backend, &here);
    provenance = &here;
  }
  GD_TRY(gd_store_begin(store, err));
  return gd_store_end(store, put(store, key, trial, provenance, err), err);
}

enum gd_status gd_store_drop_pending(struct gd_store *store, const struct gd_store_key *key,
                                     struct gd_error *err) {
  return gd_store_change(store, "write to", DELETE_PENDING, key->hash, NULL, NULL, err);
}

/* --- reading ------------------------------------------------------------------------------- */

void gd_store_note_damage(struct gd_store *store, int64_t id, const char *column) {
  if (store->damaged++ == 0)
    snprintf(
        store->damage, sizeof store->damage,
        "trial %lld has a %s that this gpudays does not understand: it was edited, or %.300s is "
        "damaged",
        (long long)id, column, store->path);
}

int64_t gd_store_damage(const struct gd_store *store, const char **sentence) {
  *sentence = store->damage;
  return store->damaged;
}

static enum gd_status prepare_fetch(struct gd_store *store, bool details, struct gd_error *err) {
  struct gd_strbuf sql = {0};
  if (store->fetch[details])
    return GD_OK;
  gd_strbuf_append(&sql, "SELECT superseded, key, origin, key_text, digest");
  append_columns(&sql);
  gd_strbuf_printf(&sql, "%s FROM trials JOIN details USING(id) WHERE id = ?",
                   details ? ", samples, bytes, host_parts, profile" : "");
  enum gd_status status =
      sql.failed ? no_memory(err) : prepare(store, sql.text, &store->fetch[details], err);
  gd_strbuf_deinit(&sql);
  return status;
}

/* The column that is not what it was; NULL: all are. */
static const char *read_row(sqlite3_stmt *statement, bool details, struct gd_store_row *row) {
  int at = 0;
  const char *wrong, *expected;
  row->superseded = sqlite3_column_int(statement, at++) != 0;
  snprintf(row->key_hash, sizeof row->key_hash, "%s", gd_store_text(statement, at++));
  gd_clean_text(row->origin, sizeof row->origin, gd_store_text(statement, at++));
  int key_text = at++;
  snprintf(row->short_id, sizeof row->short_id, "%s", gd_store_text(statement, at++));
  for (int i = 0; i < gd_trial_field_count; i++)
    if (!read_field(statement, at++, &gd_trial_fields[i], &row->trial))
      return gd_trial_fields[i].name;
  for (int i = 0; i < gd_provenance_field_count; i++)
    if (!read_field(statement, at++, &gd_provenance_fields[i], &row->provenance))
      return gd_provenance_fields[i].name;
  for (int i = 0; i < GD_PART_COUNT && details; i++)
    if (!gd_part_parse(gd_store_text(statement, at++), &row->trial, (enum gd_part)i))
      return gd_part_name((enum gd_part)i);
  if (!gd_record_believable(&row->trial, &wrong, &expected))
    return wrong;
  if (!gd_time_believable(row->provenance.time))
    return "time";
  return gd_key_contradicts(gd_store_text(statement, key_text), &row->trial);
}

/* *whole false: the row is damaged, which is noted. */
static enum gd_status fetch(struct gd_store *store, int64_t id, bool details,
                            struct gd_store_row *row, bool *whole, struct gd_error *err) {
  GD_TRY(prepare_fetch(store, details, err));
  sqlite3_stmt *statement = store->fetch[details];
  enum gd_status status = GD_OK;
  const char *wrong = NULL;
  *row = (struct gd_store_row){.id = id};
  int code = sqlite3_bind_int64(statement, 1, id);
  if (code == SQLITE_OK)
    code = sqlite3_step(statement);
  if (code == SQLITE_ROW)
    wrong = read_row(statement, details, row);
  else if (code == SQLITE_DONE)
    wrong = "missing part";
  else if ((code & 0xff) == SQLITE_CORRUPT)
    wrong = "page";
  else
    status = gd_store_fail(store, code, "read", err);
  if (wrong)
    gd_store_note_damage(store, id, wrong);
  *whole = status == GD_OK && !wrong;
  sqlite3_reset(statement);
  return status;
}

enum gd_status gd_store_find(struct gd_store *store, const struct gd_store_key *key,
                             struct gd_trial *trial, struct gd_provenance *provenance, bool *found,
                             struct gd_error *err) {
  sqlite3_stmt *statement = NULL;
  int64_t id = 0;
  bool stale = false, same_key = false;
  store->damaged = 0;
  GD_TRY(prepare(
      store,
      "SELECT trials.id, status != 'planned' AND EXISTS(SELECT 1 FROM trials AS p WHERE p.key = "
      "trials.key AND p.status = 'planned') AND " HAS_ANSWER(
          "trials.key") ", key_text IS ? FROM trials LEFT JOIN details USING(id) WHERE key = ? AND "
                        "superseded = 0 AND origin = '' ORDER BY status = 'planned', time DESC, "
                        "trials.id DESC LIMIT 1",
      &statement, err));
  int code = sqlite3_bind_text(statement, 1, key->text, -1, SQLITE_STATIC);
  if (code == SQLITE_OK)
    code = sqlite3_bind_text(statement, 2, key->hash, -1, SQLITE_STATIC);
  if (code == SQLITE_OK)
    code = sqlite3_step(statement);
  if (code == SQLITE_ROW) {
    id = sqlite3_column_int64(statement, 0);
    stale = sqlite3_column_int(statement, 1) != 0;
    same_key = sqlite3_column_int(statement, 2) != 0;
  }
  sqlite3_finalize(statement);
  if (stale && gd_store_drop_pending(store, key, NULL) != GD_OK)
    stale = false; /* it may not be written, and is not listed either */
  if (code != SQLITE_ROW && code != SQLITE_DONE)
    return gd_store_fail(store, code, "read", err);
  if (id) {
    struct gd_store_row *row = gd_mem_alloc(1, sizeof *row);
    bool whole = false;
    enum gd_status status = row ? fetch(store, id, true, row, &whole, err) : no_memory(err);
    if (whole && !same_key) { /* its hash is that of another text */
      gd_store_note_damage(store, id, "key");
      whole = false;
    }
    id = whole ? id : 0; /* what cannot be read is measured again */
    if (whole) {
      *trial = row->trial;
      if (provenance)
        *provenance = row->provenance;
    }
    gd_mem_free(row);
    GD_TRY(status);
  }
  *found = id != 0;
  return GD_OK;
}

/* --- filters ------------------------------------------------------------------------------- */

static const struct {
  const char *name, *order, *reverse;
} sorts[GD_STORE_SORT_COUNT] = {
    [GD_STORE_SORT_TIME] = {"time", "time DESC", "time"},
    [GD_STORE_SORT_DAYS] = {"days", "status != 'ok', days", "status != 'ok', days DESC"},
    [GD_STORE_SORT_MODEL] = {"model", "model, status != 'ok', days", "model DESC"},
    [GD_STORE_SORT_METHOD] = {"method", "method, model, status != 'ok', days", "method DESC"},
    [GD_STORE_SORT_DEVICE] = {"device", "device, model, status != 'ok', days", "device DESC"},
    [GD_STORE_SORT_STATUS] = {"status", "status, model, days", "status DESC"},
    [GD_STORE_SORT_MEMORY] = {"memory", "peak_bytes", "peak_bytes DESC"},
    [GD_STORE_SORT_MFU] = {"mfu", "status != 'ok', mfu DESC", "status != 'ok', mfu"},
};

const char *gd_store_sort_name(enum gd_store_sort sort) {
  GD_ASSERT(sort < GD_STORE_SORT_COUNT);
  return sorts[sort].name;
}

bool gd_store_sort_parse(const char *text, enum gd_store_sort *sort) {
  for (int i = 0; i < GD_STORE_SORT_COUNT; i++)
    if (strcmp(sorts[i].name, text) == 0) {
      *sort = (enum gd_store_sort)i;
      return true;
    }
  return false;
}

static void append_match(struct gd_strbuf *sql, const char *column, const char *pattern,
                         const char *parameter) {
  if (pattern)
    gd_strbuf_printf(sql, " AND %s %s %s", column, strpbrk(pattern, "*?") ? "GLOB" : "=",
                     parameter);
}

static void append_where(struct gd_strbuf *sql, const struct gd_store_filter *filter) {
  gd_strbuf_printf(sql, " FROM trials WHERE status %s 'planned'", filter->pending ? "=" : "!=");
  if (!filter->history)
    gd_strbuf_append(sql, " AND superseded = 0");
  if (filter->pending)
    gd_strbuf_append(sql, " AND NOT " HAS_ANSWER("trials.key"));
  append_match(sql, "model", filter->model, ":model");
  append_match(sql, "method", filter->method, ":method");
  append_match(sql, "host", filter->host, ":host");
  if (filter->model_name)
    gd_strbuf_append(sql, " AND model = :model_name");
  if (filter->recipe)
    gd_strbuf_append(sql, " AND recipe = :recipe");
  if (filter->id)
    gd_strbuf_append(sql, " AND substr(digest, 1, length(:id)) = :id");
  if (filter->device)
    gd_strbuf_append(sql, " AND instr(lower(device), lower(:device)) > 0");
  if (filter->status)
    gd_strbuf_append(sql, " AND status = :status");
  if (filter->ranks > 0)
    gd_strbuf_append(sql, " AND ranks = :ranks");
  if (filter->since)
    gd_strbuf_append(sql, " AND time >= :since");
}

static int bind_named(sqlite3_stmt *statement, const char *name, const char *text) {
  int at = sqlite3_bind_parameter_index(statement, name);
  return at && text ? sqlite3_bind_text(statement, at, text, -1, SQLITE_STATIC) : SQLITE_OK;
}

/* A pattern for SQLite's GLOB, to which [ begins a set of characters: here it is one itself. */
static int bind_pattern(sqlite3_stmt *statement, const char *name, const char *pattern) {
  struct gd_strbuf text = {0};
  int at = sqlite3_bind_parameter_index(statement, name);
  if (!at || !pattern || !strpbrk(pattern, "*?"))
    return bind_named(statement, name, pattern);
  for (; *pattern; pattern++)
    gd_strbuf_append_bytes(&text, *pattern == '[' ? "[[]" : pattern, *pattern == '[' ? 3 : 1);
  int code = text.failed ? SQLITE_NOMEM
                         : sqlite3_bind_text(statement, at, text.text ? text.text : "", -1,
                                             SQLITE_TRANSIENT);
  gd_strbuf_deinit(&text);
  return code;
}

static int bind_filter(sqlite3_stmt *statement, const struct gd_store_filter *filter) {
  int code = SQLITE_OK, at;
  code |= bind_pattern(statement, ":model", filter->model);
  code |= bind_pattern(statement, ":method", filter->method);
  code |= bind_pattern(statement, ":host", filter->host);
  code |= bind_named(statement, ":device", filter->device);
  code |= bind_named(statement, ":since", filter->since);
  code |= bind_named(statement, ":recipe", filter->recipe);
  code |= bind_named(statement, ":id", filter->id);
  code |= bind_named(statement, ":model_name", filter->model_name);
  if (filter->status)
    code |= bind_named(statement, ":status", gd_trial_status_name(*filter->status));
  if ((at = sqlite3_bind_parameter_index(statement, ":ranks")) > 0)
    code |= sqlite3_bind_int(statement, at, filter->ranks);
  if ((at = sqlite3_bind_parameter_index(statement, ":limit")) > 0)
    code |= sqlite3_bind_int64(statement, at, filter->limit);
  return code;
}

enum gd_status gd_store_prepare(struct gd_store *store, const struct gd_store_filter *filter,
                                const char *what, const char *end, sqlite3_stmt **statement,
                                struct gd_error *err) {
  struct gd_strbuf sql = {0};
  gd_strbuf_printf(&sql, "SELECT %s", what);
  append_where(&sql, filter);
  gd_strbuf_append(&sql, end);
  enum gd_status status = sql.failed ? no_memory(err) : prepare(store, sql.text, statement, err);
  gd_strbuf_deinit(&sql);
  if (status == GD_OK && bind_filter(*statement, filter) != SQLITE_OK)
    status = no_memory(err);
  return status;
}

/* Which rows, in order. They come out of an index alone; whole rows are read one by one then. */
static enum gd_status find_ids(struct gd_store *store, const struct gd_store_filter *filter,
                               int64_t **ids, uint32_t *count, struct gd_error *err) {
  char end[160];
  uint32_t capacity = 0;
  sqlite3_stmt *statement = NULL;
  int code = SQLITE_DONE;
  snprintf(end, sizeof end, " ORDER BY %s, id%s%s",
           filter->reverse ? sorts[filter->sort].reverse : sorts[filter->sort].order,
           filter->sort == GD_STORE_SORT_TIME && !filter->reverse ? " DESC" : "",
           filter->limit > 0 ? " LIMIT :limit" : "");
  enum gd_status status = gd_store_prepare(store, filter, "id", end, &statement, err);
  while (status == GD_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
    if (!gd_vec_reserve((void **)ids, &capacity, *count + 1, sizeof **ids))
      status = no_memory(err);
    else
      (*ids)[(*count)++] = sqlite3_column_int64(statement, 0);
  }
  if (status == GD_OK && code != SQLITE_DONE)
    status = gd_store_fail(store, code, "read", err);
  sqlite3_finalize(statement);
  return status;
}

enum gd_status gd_store_query(struct gd_store *store, const struct gd_store_filter *filter,
                              gd_store_visit visit, void *user, struct gd_error *err) {
  int64_t *ids = NULL;
  uint32_t count = 0;
  struct gd_store_row *row = gd_mem_alloc(1, sizeof *row);
  if (!row)
    return no_memory(err);
  store->damaged = 0;
  /* One view of the database, whatever others write meanwhile. */
  enum gd_status status = gd_store_exec(store, "read", "BEGIN", err);
  if (status == GD_OK) {
    status = find_ids(store, filter, &ids, &count, err);
    for (uint32_t i = 0; i < count && status == GD_OK; i++) {
      bool whole = false;
      status = fetch(store, ids[i], !filter->brief, row, &whole, err);
      if (whole)
        status = visit(user, row, err);
    }
    status = gd_store_end(store, status, err);
  }
  gd_mem_free(ids);
  gd_mem_free(row);
  return status;
}

enum gd_status gd_store_count(struct gd_store *store, const struct gd_store_filter *filter,
                              struct gd_store_total *total, struct gd_error *err) {
  struct gd_strbuf what = {0};
  sqlite3_stmt *statement = NULL;
  int code = SQLITE_DONE;
  gd_strbuf_append(&what, "count(*), count(DISTINCT model), count(DISTINCT device), "
                          "total(measured_s)");
  for (int i = 0; i < GD_TRIAL_STATUS_COUNT; i++)
    gd_strbuf_printf(&what, ", count(*) FILTER(WHERE status = '%s')",
                     gd_trial_status_name((enum gd_trial_status)i));
  enum gd_status status = what.failed
                              ? no_memory(err)
                              : gd_store_prepare(store, filter, what.text, "", &statement, err);
  gd_strbuf_deinit(&what);
  if (status == GD_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
    total->trials = sqlite3_column_int64(statement, 0);
    total->models = sqlite3_column_int64(statement, 1);
    total->devices = sqlite3_column_int64(statement, 2);
    total->measured_s = sqlite3_column_double(statement, 3);
    for (int i = 0; i < GD_TRIAL_STATUS_COUNT; i++)
      total->by_status[i] = sqlite3_column_int64(statement, 4 + i);
  } else if (status == GD_OK) {
    status = gd_store_fail(store, code, "read", err);
  }
  sqlite3_finalize(statement);
  return status;
}
