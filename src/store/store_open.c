/*
 * Opening the database: where it is, whether it is ours to touch, its schema, and how it is to
 * survive what comes. A file that is not plainly ours is refused by its first bytes, before SQLite
 * could change anything.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/paths.h"
#include "base/switches.h"
#include "store/store_int.h"

enum {
  APPLICATION_ID = 0x67706473, /* "gpds": PRAGMA application_id */
  BUSY_MS = 30000,             /* a trial is one small transaction; others wait their turn */
  HEADER_BYTES = 100,          /* https://www.sqlite.org/fileformat2.html, section 1.3 */
};

/* --- schema -------------------------------------------------------------------------------- */

/*
 * Frozen: a step that was released is never edited, changes are steps of their own. Columns have
 * the names of the fields in record.c, those of the first format where a field was renamed.
 */
const char *const gd_store_steps[GD_STORE_SCHEMA] = {
    /* 0 -> 1. What is long and seldom asked for lies apart, so that searching stays fast. */
    "CREATE TABLE trials("
    "  id INTEGER PRIMARY KEY, digest TEXT NOT NULL UNIQUE, key TEXT NOT NULL,"
    "  superseded INTEGER NOT NULL, measured_s REAL NOT NULL,"
    "  status TEXT NOT NULL, reason TEXT, model TEXT, method TEXT, device TEXT, backend TEXT,"
    "  threads INTEGER, ranks INTEGER, nodes INTEGER, version TEXT, \"commit\" TEXT,"
    "  precision TEXT, no_compiler TEXT, precision_substituted INTEGER, parameters INTEGER,"
    "  micro_batch INTEGER, accumulation INTEGER, remainder INTEGER, peak_bytes INTEGER,"
    "  host_bytes INTEGER, live_bytes INTEGER, device_limit_bytes INTEGER,"
    "  host_limit_bytes INTEGER, reduces INTEGER, plan_s REAL, model_flops_per_step REAL,"
    "  exec_flops_per_step REAL, train_flops REAL, pass_s REAL, pass_half_width_s REAL,"
    "  last_pass_s REAL, last_pass_half_width_s REAL, update_s REAL, update_half_width_s REAL,"
    "  warmup_s REAL, step_s REAL, step_half_width_s REAL, days REAL, days_low REAL,"
    "  days_high REAL, tokens_per_s REAL, samples_per_s REAL, peak_flops REAL, mfu REAL, hfu REAL,"
    "  busy_share REAL, loss REAL, norm REAL, resident_bytes INTEGER, runtime_bytes INTEGER,"
    "  time TEXT, host TEXT, system TEXT, kernel TEXT, cpu TEXT, driver TEXT);"
    "CREATE TABLE details("
    "  id INTEGER PRIMARY KEY REFERENCES trials(id) ON DELETE CASCADE, key_text TEXT NOT NULL,"
    "  samples TEXT NOT NULL, bytes TEXT NOT NULL, host_parts TEXT NOT NULL,"
    "  profile TEXT NOT NULL);"
    "CREATE INDEX trials_key ON trials(key);",
    /* 1 -> 2. Clocks; and everything that filters, orders or counts rows in one index. */
    "ALTER TABLE trials ADD COLUMN clocks TEXT NOT NULL DEFAULT '';"
    "CREATE INDEX trials_filter ON trials(superseded, model, status, method, device, host, ranks,"
    "  time, days, peak_bytes, mfu, measured_s);",
    /* 2 -> 3. Identities of recipe and machine, where a row came from, why it failed, and who
       measures what. What a row of before can tell it gains; its host tells whether it was loaded,
       but for jobs, which run on other hosts. */
    "ALTER TABLE trials ADD COLUMN recipe TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE trials ADD COLUMN machine TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE trials ADD COLUMN failure TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE trials ADD COLUMN tries INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE trials ADD COLUMN devices INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE trials ADD COLUMN note TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE trials ADD COLUMN throttled_share REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE trials ADD COLUMN stalled_share REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE trials ADD COLUMN steal_share REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE trials ADD COLUMN gpu_looks INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE trials ADD COLUMN gpu_throttled_share REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE trials ADD COLUMN gpu_power_capped_share REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE trials ADD COLUMN gpu_clock_mhz INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE trials ADD COLUMN gpu_low_clock_mhz INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE trials ADD COLUMN gpu_max_clock_mhz INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE trials ADD COLUMN gpu_power_w REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE trials ADD COLUMN gpu_power_limit_w REAL NOT NULL DEFAULT 0;"
    "ALTER TABLE trials ADD COLUMN gpu_clock_reasons TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE trials ADD COLUMN origin TEXT NOT NULL DEFAULT '';"
    "UPDATE trials SET recipe = gd_recipe_of_key(coalesce((SELECT key_text FROM details WHERE"
    "  details.id = trials.id), ''), precision_substituted),"
    "  machine = 'cpu=' || coalesce(cpu, '') || CASE backend WHEN 'cuda' THEN ';gpu=' || device "
    "ELSE"
    "  '' END,"
    "  origin = CASE WHEN host = gd_host() OR device LIKE 'SLURM: %' THEN '' ELSE"
    "  'a store of before' END;"
    "DROP INDEX trials_filter;"
    "CREATE INDEX trials_filter ON trials(superseded, model, status, method, device, host, ranks,"
    "  recipe, time, days, peak_bytes, mfu, measured_s);"
    "CREATE INDEX trials_recipe ON trials(recipe);",
    /* 3 -> 4. Runs of `train`, in a table of their own: they answer for no trial. */
    "CREATE TABLE runs("
    "  id INTEGER PRIMARY KEY, host TEXT NOT NULL, folder TEXT NOT NULL,"
    "  first_step INTEGER NOT NULL, last_step INTEGER NOT NULL, finished INTEGER NOT NULL,"
    "  seconds REAL NOT NULL, stalled_s REAL NOT NULL, data_s REAL NOT NULL,"
    "  promised_step_s REAL NOT NULL, promised_by TEXT NOT NULL, slowed_by TEXT NOT NULL,"
    "  record TEXT NOT NULL, provenance TEXT NOT NULL, UNIQUE(host, folder, first_step));",
};

/* --- what steps may ask ---------------------------------------------------------------------- */

static void sql_recipe(sqlite3_context *context, int count, sqlite3_value **values) {
  char hash[GD_HASH_TEXT] = "";
  const char *text = (const char *)sqlite3_value_text(values[0]);
  (void)count;
  if (!text || !gd_recipe_of_key(text, sqlite3_value_int(values[1]) != 0, hash))
    hash[0] = '\0';
  sqlite3_result_text(context, hash, -1, SQLITE_TRANSIENT);
}

static void sql_host(sqlite3_context *context, int count, sqlite3_value **values) {
  char host[256] = "";
  (void)count;
  (void)values;
  if (gethostname(host, sizeof host - 1) != 0)
    host[0] = '\0';
  sqlite3_result_text(context, host, -1, SQLITE_TRANSIENT);
}

static enum gd_status add_functions(struct gd_store *store, struct gd_error *err) {
  GD_SQL_TRY(store, "open",
             sqlite3_create_function(store->db, "gd_recipe_of_key", 2, SQLITE_UTF8, NULL,
                                     sql_recipe, NULL, NULL),
             err);
  GD_SQL_TRY(
      store, "open",
      sqlite3_create_function(store->db, "gd_host", 0, SQLITE_UTF8, NULL, sql_host, NULL, NULL),
      err);
  return GD_OK;
}

static enum gd_status get_number(struct gd_store *store, const char *sql, int64_t *number,
                                 struct gd_error *err) {
  sqlite3_stmt *statement = NULL;
  int code = sqlite3_prepare_v2(store->db, sql, -1, &statement, NULL);
  if (code == SQLITE_OK)
    code = sqlite3_step(statement);
  if (code == SQLITE_ROW) {
    *number = sqlite3_column_int64(statement, 0);
    code = SQLITE_OK;
  }
  sqlite3_finalize(statement);
  GD_SQL_TRY(store, "read", code, err);
  return GD_OK;
}

static enum gd_status fail_newer(const char *path, int64_t version, struct gd_error *err) {
  return gd_fail(err, GD_ENVIRONMENT,
                 "%s was written by a newer gpudays (schema %lld, this one knows %d) and was left "
                 "untouched; use that gpudays, or set GPUDAYS_DB to another file",
                 path, (long long)version, GD_STORE_SCHEMA);
}

static enum gd_status fail_foreign(const char *path, struct gd_error *err) {
  return gd_fail(err, GD_ENVIRONMENT,
                 "%s is a database of another program and was left untouched; set GPUDAYS_DB to "
                 "another file",
                 path);
}

static enum gd_status fail_damaged(const char *path, const char *why, struct gd_error *err) {
  return gd_fail(err, GD_ENVIRONMENT,
                 "%s is damaged (%s) and was left as it is; move it away to start anew, or restore "
                 "a copy of it (a file that 'results save' wrote comes back with 'results load')",
                 path, why);
}

static enum gd_status migrate_once(struct gd_store *store, const char *const *steps, int count,
                                   bool *done, struct gd_error *err) {
  int64_t version = 0, tables = 0;
  char sql[128];
  GD_TRY(get_number(store, "PRAGMA user_version", &version, err));
  *done = version == count;
  if (version > count)
    return fail_newer(store->path, version, err);
  if (*done)
    return GD_OK;
  if (version == 0) {
    GD_TRY(get_number(store, "SELECT count(*) FROM sqlite_schema", &tables, err));
    if (tables > 0)
      return fail_foreign(store->path, err);
  }
  GD_TRY(gd_store_exec(store, "change the schema of", steps[version], err));
  snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d", APPLICATION_ID,
           (int)version + 1);
  return gd_store_exec(store, "change the schema of", sql, err);
}

enum gd_status gd_store_migrate(struct gd_store *store, const char *const *steps, int count,
                                struct gd_error *err) {
  int64_t version = 0;
  bool done = false;
  /* Nothing is locked in the usual case. */
  GD_TRY(get_number(store, "PRAGMA user_version", &version, err));
  if (version == count)
    return GD_OK;
  if (version > count)
    return fail_newer(store->path, version, err);
  GD_TRY(add_functions(store, err));
  while (!done) { /* another process may do it meanwhile: asked again under the lock */
    GD_TRY(gd_store_begin(store, err));
    GD_TRY(gd_store_end(store, migrate_once(store, steps, count, &done, err), err));
  }
  return GD_OK;
}

/* --- errors -------------------------------------------------------------------------------- */

/* What the operating system said. */
static int system_number(const struct gd_store *store) {
  int number = errno; /* SQLite does not keep it for a COMMIT */
  if (store->db && sqlite3_system_errno(store->db) != 0)
    number = sqlite3_system_errno(store->db);
  return number;
}

static bool means_full(int code, int number) {
  bool failed_write = (code & 0xff) == SQLITE_IOERR || (code & 0xff) == SQLITE_CANTOPEN;
  return (code & 0xff) == SQLITE_FULL ||
         (failed_write && (number == ENOSPC || number == EDQUOT || number == EFBIG));
}

enum gd_status gd_store_fail(struct gd_store *store, int code, const char *what,
                             struct gd_error *err) {
  const char *path = store->path;
  const char *why = store->db ? sqlite3_errmsg(store->db) : sqlite3_errstr(code);
  int number = system_number(store);
  if (store->full && (code & 0xff) == SQLITE_READONLY) { /* opened to be read for that reason */
    code = SQLITE_FULL;
    why = sqlite3_errstr(code);
  }
  store->full |= means_full(code, number);
  if (means_full(code, number))
    return gd_fail(err, GD_ENVIRONMENT,
                   "cannot %s %s: the disk is full (%s); what was stored before is safe, free "
                   "some space or set GPUDAYS_DB to a file elsewhere",
                   what, path, why);
  switch (code & 0xff) {
  case SQLITE_CORRUPT:
  case SQLITE_NOTADB: return fail_damaged(path, why, err);
  case SQLITE_READONLY:
  case SQLITE_PERM:
  case SQLITE_CANTOPEN:
  case SQLITE_AUTH:
    return gd_fail(err, GD_ENVIRONMENT,
                   "cannot %s %s: %s; set GPUDAYS_DB to a file where you may write", what, path,
                   why);
  case SQLITE_BUSY:
  case SQLITE_LOCKED:
    return gd_fail(err, GD_ENVIRONMENT,
                   "cannot %s %s: another process has held it for over %d seconds; wait for it, or "
                   "end it",
                   what, path, BUSY_MS / 1000);
  case SQLITE_NOMEM:
    return gd_fail(err, GD_ENVIRONMENT, "cannot %s %s: memory ran out", what, path);
  case SQLITE_IOERR:
    return gd_fail(err, GD_ENVIRONMENT, "cannot %s %s: %s (%s); is its disk all right?", what, path,
                   why, number ? strerror(number) : "no reason given");
  default:
    if (strncmp(why, "no such ", 8) == 0) /* a table or a column that the schema has */
      return fail_damaged(path, why, err);
    return gd_fail(err, GD_INTERNAL, "cannot %s %s: %s", what, path, why);
  }
}

enum gd_status gd_store_exec(struct gd_store *store, const char *what, const char *sql,
                             struct gd_error *err) {
  errno = 0;
  GD_SQL_TRY(store, what, sqlite3_exec(store->db, sql, NULL, NULL, NULL), err);
  return GD_OK;
}

enum gd_status gd_store_begin(struct gd_store *store, struct gd_error *err) {
  return gd_store_exec(store, "write to", "BEGIN IMMEDIATE", err);
}

enum gd_status gd_store_end(struct gd_store *store, enum gd_status status, struct gd_error *err) {
  if (status == GD_OK)
    status = gd_store_exec(store, "write to", "COMMIT", err);
  /* A failed COMMIT (a full disk) leaves the transaction open, or has rolled it back already. */
  if (status != GD_OK && !sqlite3_get_autocommit(store->db))
    sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
  return status;
}

/* --- the file ------------------------------------------------------------------------------ */

enum gd_status gd_store_find_path(const char *asked, char path[GD_STORE_PATH],
                                  struct gd_error *err) {
  const char *env = gd_env("GPUDAYS_DB");
  bool fits;
  if (asked || (env && env[0]))
    fits = snprintf(path, GD_STORE_PATH, "%s", asked ? asked : env) < GD_STORE_PATH;
  else if (!(fits = gd_path_data("results.db", path, GD_STORE_PATH)) && !path[0])
    return gd_fail(err, GD_ENVIRONMENT,
                   "there is no place for results: neither GPUDAYS_DB, XDG_DATA_HOME nor HOME is "
                   "set; set GPUDAYS_DB to a file");
  if (strcmp(path, ":memory:") == 0)
    return gd_fail(err, GD_ENVIRONMENT,
                   "\":memory:\" would forget all results when gpudays ends; set GPUDAYS_DB to a "
                   "file (./:memory: is one of that name)");
  if (!path[0] || !fits || strlen(path) >= GD_STORE_PATH - 16) /* room for SQLite's "-journal" */
    return gd_fail(err, GD_ENVIRONMENT, "the path of the database is %s; set GPUDAYS_DB to a file",
                   path[0] ? "too long" : "empty");
  return GD_OK;
}

/* The folders of a file, those that are missing. */
static enum gd_status make_folders(const char *path, struct gd_error *err) {
  char folder[GD_STORE_PATH];
  snprintf(folder, sizeof folder, "%s", path);
  for (char *at = strchr(folder + 1, '/'); at; at = strchr(at + 1, '/')) {
    *at = '\0';
    int number = mkdir(folder, 0777) == 0 ? 0 : errno; /* before access puts its own there */
    if (number && number != EEXIST && access(folder, F_OK) != 0)
      return gd_fail(err, GD_ENVIRONMENT,
                     "cannot make the folder %s for results: %s; set GPUDAYS_DB to a file where "
                     "you may write",
                     folder, strerror(number));
    *at = '/';
  }
  return GD_OK;
}

static uint32_t big_endian(const unsigned char *at) {
  return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* What the first bytes say. A file that a crash left half written has a journal: SQLite's matter.
 */
static enum gd_status inspect(const char *path, bool *wal, struct gd_error *err) {
  unsigned char header[HEADER_BYTES];
  char journal[GD_STORE_PATH];
  struct stat info;
  *wal = false;
  if (stat(path, &info) != 0)
    return errno == ENOENT
               ? GD_OK
               : gd_fail(err, GD_ENVIRONMENT, "cannot open %s: %s; set GPUDAYS_DB to another file",
                         path, strerror(errno));
  if (!S_ISREG(info.st_mode))
    return gd_fail(err, GD_ENVIRONMENT, "%s is no file; set GPUDAYS_DB to one", path);
  snprintf(journal, sizeof journal, "%.*s-journal", GD_STORE_PATH - 16, path);
  if (info.st_size == 0 || access(journal, F_OK) == 0)
    return GD_OK;
  FILE *file = fopen(path, "re");
  if (!file)
    return gd_fail(err, GD_ENVIRONMENT, "cannot open %s: %s; set GPUDAYS_DB to another file", path,
                   strerror(errno));
  size_t got = fread(header, 1, sizeof header, file);
  fclose(file);
  if (got < sizeof header || memcmp(header, "SQLite format 3", 16) != 0)
    return fail_damaged(path, "it does not begin as a database does", err);
  uint32_t version = big_endian(header + 60), application = big_endian(header + 68);
  *wal = header[19] == 2;
  if (application != APPLICATION_ID)
    return fail_foreign(path, err);
  if (version > GD_STORE_SCHEMA)
    return fail_newer(path, version, err);
  return GD_OK;
}

/* Magic numbers: statfs(2) and the sources of each; FUSE counts, as sshfs and the like are it. */
bool gd_store_is_network(int64_t magic) {
  static const uint32_t network[] = {
      0x6969,     /* NFS */
      0x0bd00bd0, /* Lustre */
      0x19830326, /* BeeGFS (fhgfs) */
      0xff534d42, /* CIFS */
      0xfe534d42, /* SMB 2 */
      0x517b,     /* SMB */
      0x65735546, /* FUSE */
      0x47504653, /* GPFS (Spectrum Scale) */
      0x00c36400, /* Ceph */
      0x5346414f, /* AFS */
      0x6b414653, /* kAFS */
      0x73757245, /* Coda */
      0x01021997, /* 9p */
      0x20030528, /* OrangeFS */
      0x7461636f, /* OCFS2 */
      0x01161970, /* GFS2 */
      0x013111a8, /* IBRIX */
      0xaad7aaea, /* PanFS */
      0x564c,     /* NCP */
  };
  for (size_t i = 0; i < sizeof network / sizeof *network; i++)
    if ((uint32_t)magic == network[i])
      return true;
  return false;
}

bool gd_store_on_network(const char *path) {
  char folder[GD_STORE_PATH];
  struct statfs info;
  snprintf(folder, sizeof folder, "%s", path);
  char *slash = strrchr(folder, '/');
  if (slash)
    slash[slash == folder ? 1 : 0] = '\0';
  if (statfs(path, &info) != 0 && statfs(slash ? folder : ".", &info) != 0)
    return false;
  return gd_store_is_network((int64_t)info.f_type);
}

/* --- the database in it -------------------------------------------------------------------- */

/*
 * Opens a database in WAL mode whose shared index (-shm) cannot be made: its disk is read-only or
 * full. Without a log it is read as a file that nobody changes; with one that a killed process
 * left, the index is kept in this process's memory. Whoever had the database open would have an
 * index.
 */
static int open_unshared(struct gd_store *store) {
  char uri[3 * GD_STORE_PATH + 32], wal[GD_STORE_PATH];
  size_t length = (size_t)snprintf(uri, sizeof uri, "file:");
  struct stat info;
  snprintf(wal, sizeof wal, "%.*s-wal", GD_STORE_PATH - 16, store->path);
  bool has_log = stat(wal, &info) == 0 && info.st_size > 0;
  for (const char *at = store->path; *at; at++)
    length += (size_t)snprintf(uri + length, sizeof uri - length,
                               strchr("%?#", *at) ? "%%%02X" : "%c", (unsigned)(unsigned char)*at);
  snprintf(uri + length, sizeof uri - length, has_log ? "?vfs=unix-none" : "?immutable=1");
  sqlite3_close(store->db);
  store->db = NULL;
  int code = sqlite3_open_v2(uri, &store->db, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, NULL);
  if (code == SQLITE_OK && has_log)
    code = sqlite3_exec(store->db, "PRAGMA locking_mode = EXCLUSIVE", NULL, NULL, NULL);
  return code;
}

/* Opens the file without a change to it; what can only be read is opened so. */
static enum gd_status open_file(struct gd_store *store, bool wal, bool network,
                                struct gd_error *err) {
  static const char probe[] = "SELECT count(*) FROM sqlite_schema";
  int code =
      sqlite3_open_v2(store->path, &store->db,
                      SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
  GD_SQL_TRY(store, "open", code, err);
  sqlite3_extended_result_codes(store->db, 1);
  sqlite3_busy_timeout(store->db, BUSY_MS);
  /* WAL keeps its index in memory that machines do not share: alone, it can be ended. */
  bool end_wal = wal && network && sqlite3_db_readonly(store->db, "main") != 1;
  errno = 0;
  if (end_wal)
    code = sqlite3_exec(store->db,
                        "PRAGMA locking_mode = EXCLUSIVE; PRAGMA journal_mode = DELETE;"
                        "PRAGMA locking_mode = NORMAL",
                        NULL, NULL, NULL);
  if (code == SQLITE_OK)
    code = sqlite3_exec(store->db, probe, NULL, NULL, NULL);
  bool full = code != SQLITE_OK && means_full(code, system_number(store));
  if (wal && (full || (code & 0xff) == SQLITE_CANTOPEN || (code & 0xff) == SQLITE_READONLY)) {
    store->full = full;
    code = open_unshared(store);
    if (code == SQLITE_OK) /* and no temporary files on a full disk */
      code = sqlite3_exec(store->db, "PRAGMA temp_store = MEMORY", NULL, NULL, NULL);
    if (code == SQLITE_OK)
      code = sqlite3_exec(store->db, probe, NULL, NULL, NULL);
  }
  GD_SQL_TRY(store, "open", code, err);
  return GD_OK;
}

/* --- what cannot be changed ---------------------------------------------------------------- */

/* Puts a copy in memory in the place of the database, to be read alone. */
static enum gd_status copy_to_memory(struct gd_store *store, struct gd_error *err) {
  sqlite3 *copy = NULL;
  int code = sqlite3_open_v2(":memory:", &copy, SQLITE_OPEN_READWRITE, NULL);
  if (code == SQLITE_OK) {
    sqlite3_backup *backup = sqlite3_backup_init(copy, "main", store->db, "main");
    code = backup ? sqlite3_backup_step(backup, -1) : sqlite3_errcode(copy);
    sqlite3_backup_finish(backup);
    code = code == SQLITE_DONE ? SQLITE_OK : code;
  }
  if (code != SQLITE_OK) {
    enum gd_status status = gd_store_fail(store, code, "read", err);
    sqlite3_close(copy);
    return status;
  }
  sqlite3_close(store->db);
  store->db = copy;
  return GD_OK;
}

/* The schema of today; where the file cannot be changed, in a copy of it. */
static enum gd_status update_schema(struct gd_store *store, struct gd_error *err) {
  struct gd_error why = {0};
  int64_t version = 0;
  enum gd_status status = gd_store_migrate(store, gd_store_steps, GD_STORE_SCHEMA, &why);
  bool read_only = sqlite3_db_readonly(store->db, "main") == 1;
  if (status == GD_OK || !(read_only || store->full) ||
      get_number(store, "PRAGMA user_version", &version, NULL) != GD_OK || version == 0 ||
      version > GD_STORE_SCHEMA) {
    if (status != GD_OK)
      *err = why;
    return status;
  }
  GD_TRY(copy_to_memory(store, err));
  GD_TRY(gd_store_migrate(store, gd_store_steps, GD_STORE_SCHEMA, err));
  return gd_store_exec(store, "open", "PRAGMA query_only = ON", err);
}

/* --- open and close ------------------------------------------------------------------------ */

static enum gd_status prepare(struct gd_store *store, bool network, struct gd_error *err) {
  GD_TRY(gd_store_exec(store, "open", "PRAGMA foreign_keys = ON; PRAGMA synchronous = FULL", err));
  GD_TRY(update_schema(store, err));
  /* After the schema, so that the file itself says whose it is from its first moment. Where the
     mode cannot change now (others are at it, or it is read-only) the one it has is fine too. */
  if (!network && !sqlite3_db_readonly(store->db, "main"))
    sqlite3_exec(store->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
  return GD_OK;
}

enum gd_status gd_store_open_as(const char *path, enum gd_store_disk disk, struct gd_store **store,
                                struct gd_error *err) {
  bool wal = false, network;
  *store = NULL;
  struct gd_store *opened = gd_mem_alloc(1, sizeof *opened);
  if (!opened)
    return gd_nomem(err, "while opening the database of results");
  enum gd_status status = gd_store_find_path(path, opened->path, err);
  if (status == GD_OK)
    status = inspect(opened->path, &wal, err);
  if (status == GD_OK)
    status = make_folders(opened->path, err);
  if (status == GD_OK) {
    network = disk == GD_STORE_ASK ? gd_store_on_network(opened->path) : disk == GD_STORE_NETWORK;
    status = open_file(opened, wal, network, err);
    if (status == GD_OK)
      status = prepare(opened, network, err);
  }
  if (status != GD_OK) {
    gd_store_close(opened);
    return status;
  }
  *store = opened;
  return GD_OK;
}

enum gd_status gd_store_open(const char *path, struct gd_store **store, struct gd_error *err) {
  return gd_store_open_as(path, GD_STORE_ASK, store, err);
}

void gd_store_close(struct gd_store *store) {
  if (!store)
    return;
  sqlite3_finalize(store->insert);
  sqlite3_finalize(store->insert_details);
  for (int i = 0; i < GD_STORE_FETCHES; i++)
    sqlite3_finalize(store->fetch[i]);
  sqlite3_close(store->db);
  gd_mem_free(store);
}

const char *gd_store_path(const struct gd_store *store) {
  return store->path;
}

bool gd_store_is_full(const struct gd_store *store) {
  return store->full;
}
