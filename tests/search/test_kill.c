/*
 * A search that is killed (SIGKILL) at twenty random moments and started again each time: the
 * database stays intact, no process is left, what is stored is never measured again, and in the end
 * every trial is there once. The moments follow from GD_TEST_SEED, which is printed.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "store/store.h"

enum { POINTS = 12, KILLS = 20 };
static const char *const arguments[] = {
    "gpudays",     "bench",         GD_SOURCE_DIR "/tests/reference/neox-parallel",
    "--seq=16",    "--batch=8",     "--sample-seconds=0.02",
    "--threads=1", "--methods=all", "--device-memory=64MiB",
    NULL};

/* --- the database -------------------------------------------------------------------------- */

struct census {
  int finished, pending;                                      /* rows that are current */
  int history;                                                /* rows that were superseded */
  int ok;                                                     /* of the finished ones */
  char methods[POINTS][sizeof((struct gd_trial *)0)->method]; /* of the finished ones */
};

static enum gd_status visit(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct census *census = user;
  (void)err;
  census->history += row->superseded;
  if (row->superseded)
    return GD_OK;
  if (row->trial.status == GD_TRIAL_PLANNED) {
    census->pending++;
    return GD_OK;
  }
  assert_true(census->finished < POINTS);
  for (int i = 0; i < census->finished; i++)
    assert_string_not_equal(census->methods[i], row->trial.method);
  snprintf(census->methods[census->finished++], sizeof *census->methods, "%s", row->trial.method);
  census->ok += row->trial.status == GD_TRIAL_OK;
  return GD_OK;
}

static void check_integrity(const char *path) {
  sqlite3 *db;
  sqlite3_stmt *query;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &query, NULL), SQLITE_OK);
  assert_int_equal(sqlite3_step(query), SQLITE_ROW);
  assert_string_equal((const char *)sqlite3_column_text(query, 0), "ok");
  sqlite3_finalize(query);
  sqlite3_close(db);
}

static struct census take_census(const char *path) {
  struct census census = {0};
  struct gd_store *store = NULL;
  struct gd_error err = {0};
  if (access(path, F_OK) != 0)
    return census;
  check_integrity(path);
  if (gd_store_open(path, &store, &err) != GD_OK)
    fail_msg("%s", err.text);
  struct gd_store_filter filter = {.history = true, .brief = true};
  if (gd_store_query(store, &filter, visit, &census, &err) != GD_OK)
    fail_msg("%s", err.text);
  filter = (struct gd_store_filter){.pending = true, .brief = true};
  if (gd_store_query(store, &filter, visit, &census, &err) != GD_OK)
    fail_msg("%s", err.text);
  gd_store_close(store);
  return census;
}

static void remove_database(const char *path) {
  static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
  char name[512];
  for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
    snprintf(name, sizeof name, "%s%s", path, ends[i]);
    unlink(name);
  }
}

/* --- the search ---------------------------------------------------------------------------- */

/* In a session of its own, by which all that it starts can be found. */
static pid_t start_search(void) {
  const char *program = getenv("GPUDAYS");
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    int nothing = open("/dev/null", O_RDWR);
    setsid();
    dup2(nothing, STDIN_FILENO);
    dup2(nothing, STDOUT_FILENO);
    execv(program, (char *const *)(uintptr_t)arguments);
    _exit(127);
  }
  return pid;
}

/* Processes of a session, zombies left out. */
static int count_session(pid_t session) {
  struct dirent *entry;
  int count = 0;
  DIR *folder = opendir("/proc");
  while (folder && (entry = readdir(folder))) {
    char path[64], text[512], state = 0;
    int parent, group, found = 0;
    if (!isdigit((unsigned char)entry->d_name[0]))
      continue;
    snprintf(path, sizeof path, "/proc/%.20s/stat", entry->d_name);
    FILE *file = fopen(path, "r");
    if (!file)
      continue;
    if (fgets(text, sizeof text, file) && strrchr(text, ')') &&
        sscanf(strrchr(text, ')') + 1, " %c %d %d %d", &state, &parent, &group, &found) == 4)
      count += found == session && state != 'Z';
    fclose(file);
  }
  if (folder)
    closedir(folder);
  return count;
}

static void expect_nothing_left(pid_t session) {
  for (int i = 0; i < 10000 && count_session(session) > 0; i++)
    poll(NULL, 0, 10);
  assert_int_equal(count_session(session), 0);
}

/* Whether the search came to its end before the moment; otherwise it was killed then. */
static bool run_until(double seconds) {
  pid_t pid = start_search();
  int64_t until = gd_clock_ns() + (int64_t)(seconds * 1e9);
  int status;
  while (gd_clock_ns() < until) {
    if (waitpid(pid, &status, WNOHANG) == pid) {
      assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
      return true;
    }
    poll(NULL, 0, 1);
  }
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  expect_nothing_left(pid);
  return false;
}

static void run_to_end(void) {
  assert_true(run_until(1000));
}

static void check_whole(const char *path) {
  struct census census = take_census(path);
  assert_int_equal(census.finished, POINTS);
  assert_int_equal(census.ok, POINTS);
  assert_int_equal(census.pending, 0);
  assert_int_equal(census.history, 0);
}

static void killed_at_random_moments(void **state) {
  const char *folder = getenv("TMPDIR"), *given = getenv("GD_TEST_SEED");
  uint64_t seed = given ? strtoull(given, NULL, 10) : (uint64_t)gd_clock_ns() % 1000000;
  char path[400];
  int before = 0, kills = 0, wholes = 0;
  (void)state;
  assert_non_null(getenv("GPUDAYS"));
  snprintf(path, sizeof path, "%s/kill.db", folder ? folder : "/tmp");
  setenv("GPUDAYS_DB", path, 1);
  remove_database(path);
  int64_t start = gd_clock_ns();
  run_to_end();
  double whole_s = 1e-9 * (double)(gd_clock_ns() - start);
  check_whole(path);
  remove_database(path);
  printf("GD_TEST_SEED=%llu, a search takes %.2f s\n", (unsigned long long)seed, whole_s);
  for (uint64_t i = 0; kills < KILLS && i < 10 * KILLS; i++) {
    if (run_until(0.4 * whole_s * (double)gd_rng_uniform(seed, 0, i))) {
      check_whole(path);
      remove_database(path);
      before = 0;
      wholes++;
      continue;
    }
    kills++;
    struct census census = take_census(path);
    assert_true(census.finished >= before); /* nothing is lost, */
    assert_int_equal(census.history, 0);    /* nor measured twice */
    before = census.finished;
    printf("kill %d: %d finished, %d pending\n", kills, census.finished, census.pending);
  }
  assert_int_equal(kills, KILLS);
  run_to_end();
  check_whole(path);
  /* Asked again, all of it is read: not one row more. */
  run_to_end();
  check_whole(path);
  printf("%d kills over %d searches\n", kills, wholes + 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(killed_at_random_moments)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
