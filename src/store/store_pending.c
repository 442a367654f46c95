/*
 * Trials that were announced and have no result yet, also those of other builds of this program:
 * their keys name another commit, so that no search of this build asks for them.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "store/record_int.h"
#include "store/store_int.h"

enum gd_status gd_store_pending_keys(struct gd_store *store, struct gd_store_key **keys,
                                     uint32_t *count, struct gd_error *err) {
  static const char sql[] = "SELECT key, key_text FROM trials JOIN details USING(id) "
                            "WHERE status = 'planned' AND origin = '' ORDER BY time, id";
  struct gd_store_key *found = NULL;
  uint32_t capacity = 0, n = 0;
  sqlite3_stmt *statement = NULL;
  enum gd_status status = GD_OK;
  int code = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);
  if (code == SQLITE_OK)
    code = sqlite3_step(statement);
  for (; status == GD_OK && code == SQLITE_ROW; code = sqlite3_step(statement)) {
    const char *hash = (const char *)sqlite3_column_text(statement, 0);
    const char *text = (const char *)sqlite3_column_text(statement, 1);
    if (!hash || !text || strlen(hash) != GD_HASH_TEXT - 1 || strlen(text) >= sizeof found->text ||
        strspn(hash, "0123456789abcdef") != GD_HASH_TEXT - 1)
      continue;
    if (!gd_vec_reserve((void **)&found, &capacity, n + 1, sizeof *found)) {
      status = gd_nomem(err, "while listing pending trials");
      break;
    }
    snprintf(found[n].hash, sizeof found[n].hash, "%s", hash);
    snprintf(found[n++].text, sizeof found->text, "%s", text);
  }
  if (status == GD_OK && code != SQLITE_DONE)
    status = gd_store_fail(store, code, "read", err);
  sqlite3_finalize(statement);
  if (status != GD_OK) {
    gd_mem_free(found);
    return status;
  }
  *keys = found;
  *count = n;
  return GD_OK;
}

/* --- how far searches are ------------------------------------------------------------------ */

/* Of the same search: all that its trials have in common but the limits of memory, which the same
   command may have left to the machine. */
#define OF_SEARCH                                                                            \
  "(SELECT count(*) FROM trials AS done WHERE done.status NOT IN ('planned', 'failed') AND " \
  "done.superseded = 0 AND done.origin = '' AND done.model = trials.model AND "              \
  "done.recipe = trials.recipe AND done.device = trials.device AND "                         \
  "done.ranks = trials.ranks AND done.host = trials.host AND "                               \
  "done.version = trials.version AND done.\"commit\" = trials.\"commit\")"

enum gd_status gd_store_progress(struct gd_store *store, const struct gd_store_filter *filter,
                                 gd_store_visit_progress visit, void *user, struct gd_error *err) {
  struct gd_store_filter pending = *filter;
  struct gd_store_progress of;
  sqlite3_stmt *statement = NULL;
  int code = SQLITE_DONE;
  pending.pending = true;
  enum gd_status status = gd_store_prepare(
      store, &pending, "model, device, host, ranks, count(*), min(time), " OF_SEARCH,
      " GROUP BY model, recipe, device, host, ranks, version, \"commit\" ORDER BY max(time) DESC",
      &statement, err);
  while (status == GD_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
    of = (struct gd_store_progress){.ranks = sqlite3_column_int(statement, 3),
                                    .pending = sqlite3_column_int64(statement, 4),
                                    .measured = sqlite3_column_int64(statement, 6)};
    gd_clean_text(of.model, sizeof of.model, gd_store_text(statement, 0));
    gd_clean_text(of.device, sizeof of.device, gd_store_text(statement, 1));
    gd_clean_text(of.host, sizeof of.host, gd_store_text(statement, 2));
    gd_clean_text(of.since, sizeof of.since, gd_store_text(statement, 5));
    status = visit(user, &of, err);
  }
  if (status == GD_OK && code != SQLITE_DONE)
    status = gd_store_fail(store, code, "read", err);
  sqlite3_finalize(statement);
  return status;
}

/* --- the same question --------------------------------------------------------------------- */

static bool is_named(const char *field, const char *name) {
  size_t length = strlen(name);
  return strncmp(field, name, length) == 0 && field[length] == '=';
}

/* Fields that name the build of gpudays. Old keys have the driver too; it is now in the text of the
   machine. */
static bool is_of_build(const char *field) {
  return is_named(field, "version") || is_named(field, "commit") || is_named(field, "build") ||
         is_named(field, "driver");
}

/* Whether a text "name=value;..." has that field of `bytes` bytes. */
static bool has_field(const char *text, const char *field, size_t bytes) {
  for (const char *at = text; at; at = strchr(at, ';'), at = at ? at + 1 : NULL)
    if (strncmp(at, field, bytes) == 0 && (at[bytes] == ';' || !at[bytes]))
      return true;
  return false;
}

/* Whether all that `other` says is said by `text`, but for what skip names. */
static bool covers(const char *text, const char *other, bool (*skip)(const char *field)) {
  for (const char *at = other; at; at = strchr(at, ';'), at = at ? at + 1 : NULL)
    if (!skip(at) && !has_field(text, at, strcspn(at, ";")))
      return false;
  return true;
}

static bool is_machine_or_build(const char *field) {
  return is_named(field, "machine") || is_of_build(field);
}

static bool is_none(const char *field) {
  (void)field;
  return false;
}

bool gd_store_key_same_build(const struct gd_store_key *a, const struct gd_store_key *b) {
  static const char *const names[] = {"version", "commit", "build"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char left[128] = "", right[128] = "";
    gd_key_value(a->text, names[i], left, sizeof left);
    gd_key_value(b->text, names[i], right, sizeof right);
    if (strcmp(left, right) != 0)
      return false;
  }
  return true;
}

bool gd_store_key_same_trial(const struct gd_store_key *ours, const struct gd_store_key *other) {
  char here[GD_MACHINE_TEXT] = "", there[GD_MACHINE_TEXT] = "";
  if (!gd_key_is_whole(other->text) || !covers(ours->text, other->text, is_machine_or_build))
    return false;
  gd_key_value(ours->text, "machine", here, sizeof here);
  if (gd_key_value(other->text, "machine", there, sizeof there))
    return covers(here, there, is_none);
  /* A key of before: what a job asked for is its device's name. Which GPU it was planned for was
     not in it, and without a job it may be any machine's. */
  return strncmp(here, "job=", 4) == 0 && !strstr(here, ";gpu=");
}
