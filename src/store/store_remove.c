/*
 * Rows by name: what an id is, and forgetting rows. Nothing asks here whether they should be
 * forgotten; that is the command's.
 */
#include <string.h>

#include "base/hash.h"
#include "store/store_int.h"

bool gd_store_is_id(const char *text) {
  size_t length = strlen(text);
  return length >= GD_STORE_LEAST_ID && length < GD_HASH_TEXT &&
         strspn(text, "0123456789abcdef") == length;
}

/* The rows of one table whose ids the statement is run for, one after the other. */
static enum gd_status remove_all(struct gd_store *store, const char *sql, const int64_t *ids,
                                 uint32_t count, struct gd_error *err) {
  sqlite3_stmt *statement = NULL;
  int code = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);
  for (uint32_t i = 0; i < count && (code == SQLITE_OK || code == SQLITE_DONE); i++) {
    code = sqlite3_bind_int64(statement, 1, ids[i]);
    if (code == SQLITE_OK)
      code = sqlite3_step(statement);
    sqlite3_reset(statement);
  }
  sqlite3_finalize(statement);
  return code == SQLITE_OK || code == SQLITE_DONE ? GD_OK
                                                  : gd_store_fail(store, code, "write to", err);
}

enum gd_status gd_store_remove(struct gd_store *store, const int64_t *ids, uint32_t count,
                               struct gd_error *err) {
  GD_TRY(gd_store_begin(store, err));
  enum gd_status status = remove_all(store, "DELETE FROM details WHERE id = ?", ids, count, err);
  if (status == GD_OK)
    status = remove_all(store, "DELETE FROM trials WHERE id = ?", ids, count, err);
  return gd_store_end(store, status, err);
}
