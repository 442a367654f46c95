/*
 * Runs in the store; see store_runs.h.
 */
#include "store/store_runs.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "store/record_int.h"
#include "store/store_int.h"

/* --- writing ------------------------------------------------------------------------------- */

static int bind_text(sqlite3_stmt *statement, int at, const char *text) {
  return sqlite3_bind_text(statement, at, text, -1, SQLITE_TRANSIENT);
}

static int bind_run(sqlite3_stmt *s, const struct gd_run_record *run, const char *host,
                    const char *record, const char *provenance) {
  const int codes[] = {bind_text(s, 1, host),
                       bind_text(s, 2, run->folder),
                       sqlite3_bind_int64(s, 3, run->first_step),
                       sqlite3_bind_int64(s, 4, run->last_step),
                       sqlite3_bind_int(s, 5, run->finished),
                       sqlite3_bind_double(s, 6, run->seconds),
                       sqlite3_bind_double(s, 7, run->stalled_s),
                       sqlite3_bind_double(s, 8, run->data_s),
                       sqlite3_bind_double(s, 9, run->expected_step_s),
                       bind_text(s, 10, run->expected_by),
                       bind_text(s, 11, run->slowed_by),
                       bind_text(s, 12, record),
                       bind_text(s, 13, provenance)};
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++)
    if (codes[i] != SQLITE_OK)
      return codes[i];
  return SQLITE_OK;
}

static enum gd_status insert(struct gd_store *store, const struct gd_run_record *run,
                             const char *host, const char *record, const char *provenance,
                             struct gd_error *err) {
  static const char sql[] =
      "INSERT OR REPLACE INTO runs(host, folder, first_step, last_step, finished, seconds,"
      " stalled_s, data_s, promised_step_s, promised_by, slowed_by, record, provenance)"
      " VALUES(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
  sqlite3_stmt *statement = NULL;
  int code = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);
  if (code == SQLITE_OK)
    code = bind_run(statement, run, host, record, provenance);
  if (code == SQLITE_OK)
    code = sqlite3_step(statement);
  sqlite3_finalize(statement);
  GD_SQL_TRY(store, "write to", code, err);
  return GD_OK;
}

enum gd_status gd_store_put_run(struct gd_store *store, const struct gd_run_record *run,
                                struct gd_error *err) {
  struct gd_strbuf record = {0}, from = {0};
  struct gd_provenance here;
  struct gd_trial *trial = gd_mem_alloc(1, sizeof *trial);
  if (!trial)
    return gd_nomem(err, "while storing a run");
  *trial = run->trial;
  trial->status = GD_TRIAL_PLANNED; /* it has no micro-steps and no updates, as a trial has */
  gd_provenance_here(trial->backend, &here);
  enum gd_status status = gd_record_print(trial, &record, err);
  if (status == GD_OK)
    status = gd_provenance_print(&here, &from, err);
  if (status == GD_OK)
    status = insert(store, run, here.host, record.text, from.text, err);
  gd_strbuf_deinit(&record);
  gd_strbuf_deinit(&from);
  gd_mem_free(trial);
  return status;
}

/* --- reading ------------------------------------------------------------------------------- */

/* Whether the row is one that a run can have. */
static bool read_run(sqlite3_stmt *s, struct gd_run_record *run) {
  struct gd_error why = {0};
  const char *record = gd_store_text(s, 10), *from = gd_store_text(s, 11);
  *run = (struct gd_run_record){.first_step = sqlite3_column_int64(s, 2),
                                .last_step = sqlite3_column_int64(s, 3),
                                .finished = sqlite3_column_int(s, 4) != 0,
                                .seconds = sqlite3_column_double(s, 5),
                                .stalled_s = sqlite3_column_double(s, 6),
                                .data_s = sqlite3_column_double(s, 7),
                                .expected_step_s = sqlite3_column_double(s, 8)};
  gd_clean_text(run->folder, sizeof run->folder, gd_store_text(s, 1));
  gd_clean_text(run->expected_by, sizeof run->expected_by, gd_store_text(s, 9));
  gd_clean_text(run->slowed_by, sizeof run->slowed_by, gd_store_text(s, 12));
  if (gd_record_parse("the store", record, (int64_t)strlen(record), &run->trial, &why) != GD_OK ||
      gd_provenance_parse("the store", from, (int64_t)strlen(from), &run->provenance, &why) !=
          GD_OK)
    return false;
  run->trial.status = GD_TRIAL_OK;
  return run->first_step >= 0 && run->last_step > run->first_step && run->seconds > 0 &&
         run->trial.step_s > 0 && run->expected_step_s >= 0;
}

enum gd_status gd_store_query_runs(struct gd_store *store,
                                   enum gd_status (*visit)(void *user,
                                                           const struct gd_run_record *run,
                                                           struct gd_error *err),
                                   void *user, struct gd_error *err) {
  static const char sql[] =
      "SELECT id, folder, first_step, last_step, finished, seconds, stalled_s, data_s,"
      " promised_step_s, promised_by, record, provenance, slowed_by FROM runs ORDER BY id";
  sqlite3_stmt *statement = NULL;
  struct gd_run_record *run = gd_mem_alloc(1, sizeof *run);
  enum gd_status status = GD_OK;
  if (!run)
    return gd_nomem(err, "while reading runs");
  store->damaged = 0;
  int code = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);
  while (code == SQLITE_OK && status == GD_OK && (code = sqlite3_step(statement)) == SQLITE_ROW) {
    code = SQLITE_OK;
    if (read_run(statement, run))
      status = visit(user, run, err);
    else if (store->damaged++ == 0)
      snprintf(store->damage, sizeof store->damage,
               "run %lld of the store was edited, or %.300s is damaged",
               (long long)sqlite3_column_int64(statement, 0), store->path);
  }
  sqlite3_finalize(statement);
  gd_mem_free(run);
  GD_TRY(status);
  GD_SQL_TRY(store, "read", code, err);
  return GD_OK;
}
