/*
 * Claims: which process measures which trial at present, so that searches that share a database
 * share the work. A claim is a row; SQLite's transactions decide between two that come at once.
 *
 * An owner is a process of a boot of a machine, in a namespace of process ids: where all of that is
 * ours, /proc says whether it lives. Elsewhere its last sign of life must do.
 */
#define _GNU_SOURCE /* readlink, gethostname, clock_gettime */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/store_int.h"

enum { PLACE_TEXT = 160, OWNER_TEXT = PLACE_TEXT + 64, BEAT_S = 30 };

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Where process ids mean what they mean here: boot and namespace. */
static void name_place(char place[PLACE_TEXT]) {
  char boot[64] = "", space[64] = "";
  FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
  if (file) {
    if (fgets(boot, sizeof boot, file))
      boot[strcspn(boot, "\n")] = '\0';
    fclose(file);
  }
  ssize_t length = readlink("/proc/self/ns/pid", space, sizeof space - 1);
  space[length > 0 ? length : 0] = '\0';
  snprintf(place, PLACE_TEXT, "%s %s", boot, space);
}

/* When a process began, in ticks since boot: field 22 of /proc/PID/stat (proc(5)), counted from the
   end of the program's name, which may hold anything. 0: there is no such process, or it is dead
   and not yet reaped. */
static unsigned long long started_at(int64_t pid) {
  char path[64], line[1024];
  unsigned long long ticks = 0;
  snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
  FILE *file = fopen(path, "re");
  if (!file)
    return 0;
  char *at = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
  fclose(file);
  if (at && at[1] == ' ' && (at[2] == 'Z' || at[2] == 'X'))
    return 0;
  enum { FIELDS_AFTER_NAME = 20 };
  for (int i = 0; at && i < FIELDS_AFTER_NAME; i++)
    at = strchr(at + 1, ' ');
  if (at)
    ticks = strtoull(at + 1, NULL, 10);
  return ticks;
}

static void name_owner(char owner[OWNER_TEXT]) {
  char place[PLACE_TEXT];
  name_place(place);
  snprintf(owner, OWNER_TEXT, "%s %lld %llu", place, (long long)getpid(), started_at(getpid()));
}

struct claim {
  bool found;
  char owner[OWNER_TEXT];
  struct gd_store_owner who;
};

static enum gd_status read_claim(struct gd_store *store, const char *hash, struct claim *claim,
                                 struct gd_error *err) {
  sqlite3_stmt *statement = NULL;
  *claim = (struct claim){0};
  int code = sqlite3_prepare_v2(
      store->db, "SELECT owner, host, pid, time FROM claims WHERE key = ?", -1, &statement, NULL);
  if (code == SQLITE_OK)
    code = sqlite3_bind_text(statement, 1, hash, -1, SQLITE_STATIC);
  if (code == SQLITE_OK)
    code = sqlite3_step(statement);
  if (code == SQLITE_ROW) {
    const char *owner = (const char *)sqlite3_column_text(statement, 0);
    const char *host = (const char *)sqlite3_column_text(statement, 1);
    claim->found = true;
    snprintf(claim->owner, sizeof claim->owner, "%s", owner ? owner : "");
    snprintf(claim->who.host, sizeof claim->who.host, "%s", host ? host : "");
    claim->who.pid = sqlite3_column_int64(statement, 2);
    claim->who.age_s = now_s() - sqlite3_column_double(statement, 3);
    code = SQLITE_DONE;
  }
  sqlite3_finalize(statement);
  GD_SQL_TRY(store, "read", code, err);
  return GD_OK;
}

static bool lives(const struct claim *claim) {
  char place[PLACE_TEXT], owner[OWNER_TEXT];
  name_place(place);
  size_t length = strlen(place);
  if (strncmp(claim->owner, place, length) != 0 || claim->owner[length] != ' ')
    return claim->who.age_s < GD_STORE_CLAIM_LAPSES_S;
  unsigned long long began = started_at(claim->who.pid);
  snprintf(owner, sizeof owner, "%s %lld %llu", place, (long long)claim->who.pid, began);
  return began != 0 && strcmp(owner, claim->owner) == 0;
}

static enum gd_status write_claim(struct gd_store *store, const char *hash, const char *owner,
                                  struct gd_error *err) {
  char host[256] = "";
  sqlite3_stmt *statement = NULL;
  if (gethostname(host, sizeof host - 1) != 0)
    host[0] = '\0';
  errno = 0;
  int code = sqlite3_prepare_v2(
      store->db, "INSERT OR REPLACE INTO claims(key, owner, host, pid, time) VALUES(?, ?, ?, ?, ?)",
      -1, &statement, NULL);
  if (code == SQLITE_OK) {
    code |= sqlite3_bind_text(statement, 1, hash, -1, SQLITE_STATIC);
    code |= sqlite3_bind_text(statement, 2, owner, -1, SQLITE_STATIC);
    code |= sqlite3_bind_text(statement, 3, host, -1, SQLITE_STATIC);
    code |= sqlite3_bind_int64(statement, 4, getpid());
    code |= sqlite3_bind_double(statement, 5, now_s());
  }
  if (code == SQLITE_OK)
    code = sqlite3_step(statement);
  sqlite3_finalize(statement);
  GD_SQL_TRY(store, "write to", code, err);
  return GD_OK;
}

static enum gd_status claim_it(struct gd_store *store, const char *hash, bool *ours,
                               struct gd_store_owner *owner, struct gd_error *err) {
  struct claim claim;
  char us[OWNER_TEXT];
  name_owner(us);
  GD_TRY(read_claim(store, hash, &claim, err));
  *ours = !claim.found || strcmp(claim.owner, us) == 0 || !lives(&claim);
  if (!*ours && owner)
    *owner = claim.who;
  return *ours ? write_claim(store, hash, us, err) : GD_OK;
}

enum gd_status gd_store_claim(struct gd_store *store, const struct gd_store_key *key, bool *ours,
                              struct gd_store_owner *owner, struct gd_error *err) {
  *ours = false;
  GD_TRY(gd_store_begin(store, err));
  enum gd_status status = gd_store_end(store, claim_it(store, key->hash, ours, owner, err), err);
  if (status != GD_OK)
    *ours = false;
  return status;
}

enum gd_status gd_store_beat(struct gd_store *store, struct gd_error *err) {
  char owner[OWNER_TEXT], now[48];
  int64_t clock = gd_clock_ns();
  if (store->beat_ns && clock - store->beat_ns < (int64_t)BEAT_S * 1000000000)
    return GD_OK;
  name_owner(owner);
  snprintf(now, sizeof now, "%.3f", now_s());
  GD_TRY(gd_store_change(store, "write to",
                         "UPDATE claims SET time = CAST(?2 AS REAL) WHERE owner = ?1", owner, now,
                         NULL, err));
  store->beat_ns = clock;
  return GD_OK;
}

enum gd_status gd_store_release(struct gd_store *store, const struct gd_store_key *key,
                                struct gd_error *err) {
  char owner[OWNER_TEXT];
  name_owner(owner);
  return gd_store_change(store, "write to", "DELETE FROM claims WHERE key = ?1 AND owner = ?2",
                         key->hash, owner, NULL, err);
}

enum gd_status gd_store_claimed(struct gd_store *store, const struct gd_store_key *key,
                                bool *claimed, struct gd_store_owner *owner, struct gd_error *err) {
  struct claim claim;
  char us[OWNER_TEXT];
  name_owner(us);
  GD_TRY(read_claim(store, key->hash, &claim, err));
  *claimed = claim.found && strcmp(claim.owner, us) != 0 && lives(&claim);
  if (*claimed && owner)
    *owner = claim.who;
  return GD_OK;
}
