/*
 * What may happen to a store while it writes: several processes at once, SIGKILL at any moment, a
 * disk that is full or read-only. A row counts as stored once gd_store_put said so, and then it
 * stays.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <sqlite3.h>

#include "base/file.h"
#include "base/mem.h"
#include "store/store_int.h"
#include "support/scratch.h"
#include "support/trial_sample.h"

enum { WRITERS = 4, ROWS = 200, KILLS = 20, SKIPPED = 77 };

/* --- children ------------------------------------------------------------------------------ */

static void complain(const char *what, const struct gd_error *err) {
  fprintf(stderr, "%s: %s\n", what, err->text);
}

/* Puts rows first, first + 1, ... and counts each in *stored once it is acknowledged. */
static int write_rows(const char *path, uint64_t first, uint64_t count, volatile uint64_t *stored) {
  struct gd_store *store;
  struct gd_error err = {0};
  if (gd_store_open(path, &store, &err) != GD_OK) {
    complain("open", &err);
    return 1;
  }
  for (uint64_t i = 0; i < count; i++) {
    struct gd_trial trial;
    struct gd_store_key key;
    trial_sample(&trial, first + i);
    trial_sample_key(&key, first + i);
    if (gd_store_put(store, &key, &trial, NULL, &err) != GD_OK) {
      complain("put", &err);
      gd_store_close(store);
      return 1;
    }
    if (stored)
      *stored = i + 1;
  }
  gd_store_close(store);
  return 0;
}

static int wait_for(pid_t child) {
  int status;
  assert_int_equal(waitpid(child, &status, 0), child);
  return status;
}

/* A fork that runs body(); cmocka must not see its end. */
static int in_child(int (*body)(const char *path), const char *path) {
  fflush(NULL);
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    int code = body(path);
    fflush(NULL);
    _exit(code);
  }
  int status = wait_for(child);
  if (!WIFEXITED(status))
    fail_msg("the child was ended by signal %d", WTERMSIG(status));
  return WEXITSTATUS(status);
}

/* --- looking at the result ----------------------------------------------------------------- */

static void assert_intact(const char *path) {
  sqlite3 *db;
  sqlite3_stmt *statement;
  assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
  assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &statement, NULL),
                   SQLITE_OK);
  assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
  assert_string_equal((const char *)sqlite3_column_text(statement, 0), "ok");
  sqlite3_finalize(statement);
  sqlite3_close(db);
}

/* Rows first .. first + count are there, each once and each as it was put. */
static void assert_stored(struct gd_store *store, uint64_t first, uint64_t count) {
  for (uint64_t i = first; i < first + count; i++) {
    struct gd_trial trial, copy;
    struct gd_store_key key;
    struct gd_error err = {0};
    bool found;
    trial_sample(&trial, i);
    trial_sample_key(&key, i);
    assert_int_equal(gd_store_find(store, &key, &copy, NULL, &found, &err), GD_OK);
    if (!found)
      fail_msg("row %llu was acknowledged and is gone", (unsigned long long)i);
    assert_memory_equal(&trial.micro_step, &copy.micro_step, sizeof trial.micro_step);
    assert_true(trial.days == copy.days);
  }
}

static enum gd_status count_row(void *user, const struct gd_store_row *row, struct gd_error *err) {
  (void)row;
  (void)err;
  (*(uint64_t *)user)++;
  return GD_OK;
}

static uint64_t count_rows(struct gd_store *store) {
  uint64_t rows = 0;
  struct gd_error err = {0};
  assert_int_equal(gd_store_query(store, &(struct gd_store_filter){.history = true, .brief = true},
                                  count_row, &rows, &err),
                   GD_OK);
  return rows;
}

static struct gd_store *open_store(const char *path) {
  struct gd_store *store;
  struct gd_error err = {0};
  if (gd_store_open(path, &store, &err) != GD_OK)
    fail_msg("%s", err.text);
  return store;
}

/* --- several writers ----------------------------------------------------------------------- */

static void test_writers(void **state) {
  const char *path = scratch_path("a.db");
  pid_t children[WRITERS];
  (void)state;
  fflush(NULL);
  for (int i = 0; i < WRITERS; i++) { /* also the creation of the database is a race of four */
    children[i] = fork();
    assert_true(children[i] >= 0);
    if (children[i] == 0)
      _exit(write_rows(path, (uint64_t)i * ROWS, ROWS, NULL));
  }
  for (int i = 0; i < WRITERS; i++)
    assert_int_equal(wait_for(children[i]), 0);
  struct gd_store *store = open_store(path);
  assert_int_equal(count_rows(store), WRITERS * ROWS);
  assert_stored(store, 0, WRITERS * ROWS);
  gd_store_close(store);
  assert_intact(path);
}

/* A reader neither waits for a writer nor sees half of what it does. */
static void test_reader_and_writer(void **state) {
  const char *path = scratch_path("a.db");
  struct gd_store *writer = open_store(path), *reader = open_store(path);
  struct gd_error err = {0};
  struct gd_trial trial;
  struct gd_store_key key;
  const struct gd_provenance from = {.time = "2024-05-01T00:00:00.000Z"};
  bool added;
  (void)state;
  if (gd_store_on_network(path))
    skip(); /* a rollback journal lets them wait for each other */
  trial_sample(&trial, 1);
  trial_sample_key(&key, 1);
  assert_int_equal(gd_store_begin(writer, &err), GD_OK);
  assert_int_equal(gd_store_insert(writer, &key, &trial, &from, "", &added, &err), GD_OK);
  assert_int_equal(count_rows(reader), 0);
  assert_int_equal(gd_store_end(writer, GD_OK, &err), GD_OK);
  assert_int_equal(count_rows(reader), 1);
  gd_store_close(writer);
  gd_store_close(reader);
}

/* --- SIGKILL ------------------------------------------------------------------------------- */

static void test_killed(void **state) {
  const char *path = scratch_path("a.db");
  volatile uint64_t *stored =
      mmap(NULL, sizeof *stored, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  uint64_t random = 12345;
  enum { EARLY = 8 };
  int lived = 0;
  (void)state;
  assert_ptr_not_equal(stored, MAP_FAILED);
  for (uint64_t round = 0; round < KILLS; round++) {
    /* From the first moments, when the database is created, to many rows later: how soon there are
       so many depends on the load of the machine. */
    random = random * 6364136223846793005u + 1442695040888963407u;
    uint64_t rows = round < EARLY ? 0 : 1 + (random >> 33) % 30;
    struct timespec moment = {.tv_nsec = (long)((random >> 33) % (rows ? 2000000 : 8000000))};
    uint64_t first = round * 100000;
    *stored = 0;
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0)
      _exit(write_rows(path, first, 100000, stored));
    while (*stored < rows && waitpid(child, NULL, WNOHANG) == 0)
      nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    nanosleep(&moment, NULL);
    kill(child, SIGKILL);
    int status = wait_for(child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    lived += *stored > 0;
    struct gd_store *store = open_store(path);
    assert_stored(store, first, *stored);
    /* The row in flight is there whole or not at all. */
    struct gd_trial copy;
    struct gd_store_key key;
    struct gd_error err = {0};
    bool found;
    trial_sample_key(&key, first + *stored);
    assert_int_equal(gd_store_find(store, &key, &copy, NULL, &found, &err), GD_OK);
    trial_sample_key(&key, first + *stored + 1);
    assert_int_equal(gd_store_find(store, &key, &copy, NULL, &found, &err), GD_OK);
    assert_false(found);
    gd_store_close(store);
    assert_intact(path);
  }
  print_message("%d of %d writers had stored something when they were killed\n", lived, KILLS);
  assert_true(lived >= KILLS - EARLY);
  munmap((void *)(uintptr_t)stored, sizeof *stored);
}

/* --- full and read-only disks --------------------------------------------------------------- */

/* Writes until it fails; then all that was acknowledged must be there. 0: as it should be. */
static int fill(const char *path, uint64_t most) {
  struct gd_store *store;
  struct gd_error err = {0};
  uint64_t stored = 0, found_rows = 0;
  if (gd_store_open(path, &store, &err) != GD_OK) {
    complain("open", &err);
    return 1;
  }
  for (;; stored++) {
    struct gd_trial trial;
    struct gd_store_key key;
    if (stored == most)
      return 2;
    trial_sample(&trial, stored);
    trial_sample_key(&key, stored);
    if (gd_store_put(store, &key, &trial, NULL, &err) != GD_OK)
      break;
  }
  if (err.status != GD_ENVIRONMENT || !strstr(err.text, "disk is full") ||
      !strstr(err.text, path)) {
    complain("the sentence", &err);
    return 3;
  }
  for (int again = 0; again < 2; again++) { /* by the same handle, and by a new one */
    found_rows = 0;
    err = (struct gd_error){0};
    if (gd_store_query(store, &(struct gd_store_filter){0}, count_row, &found_rows, &err) !=
            GD_OK ||
        found_rows != stored || stored < 5) {
      complain("rows", &err);
      fprintf(stderr, "%llu stored, %llu found\n", (unsigned long long)stored,
              (unsigned long long)found_rows);
      return 4;
    }
    gd_store_close(store);
    store = NULL;
    if (again == 0 && gd_store_open(path, &store, &err) != GD_OK) {
      complain("open again", &err);
      return 5;
    }
  }
  return 0;
}

static int fill_to_limit(const char *path) {
  struct rlimit limit = {.rlim_cur = 400000, .rlim_max = 400000};
  signal(SIGXFSZ, SIG_IGN);
  if (setrlimit(RLIMIT_FSIZE, &limit) != 0)
    return SKIPPED;
  return fill(path, 10000);
}

static void test_limited(void **state) {
  const char *path = scratch_path("a.db");
  (void)state;
  assert_int_equal(in_child(fill_to_limit, path), 0);
  assert_intact(path);
  /* Space again: the next one goes in. */
  struct gd_store *store = open_store(path);
  uint64_t before = count_rows(store);
  gd_store_close(store);
  assert_int_equal(write_rows(path, 500000, 10, NULL), 0);
  store = open_store(path);
  assert_int_equal(count_rows(store), before + 10);
  gd_store_close(store);
}

/* A disk of our own, which needs root; it goes with the process. */
static bool mount_small(const char *folder) {
  return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
         mount("small", folder, "tmpfs", 0, "size=768k") == 0;
}

static int fill_disk(const char *folder) {
  char path[600];
  snprintf(path, sizeof path, "%s/a.db", folder);
  if (!mount_small(folder))
    return SKIPPED;
  return fill(path, 10000);
}

static void test_full(void **state) {
  const char *folder = scratch_path("disk");
  (void)state;
  mkdir(folder, 0777);
  int code = in_child(fill_disk, folder);
  if (code == SKIPPED) {
    print_message("SKIPPED: a full disk, as no tmpfs can be mounted here (needs root)\n");
    skip();
  }
  assert_int_equal(code, 0);
}

/* No root here, or no mount: permissions, or nothing to test. */
static bool make_read_only(const char *folder, bool mounted) {
  if (mounted)
    return mount("small", folder, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL) == 0;
  return geteuid() != 0 && chmod(folder, 0555) == 0;
}

static int read_only(const char *folder) {
  char path[600], other[600];
  struct gd_store *store;
  struct gd_error err = {0};
  struct gd_trial trial;
  struct gd_store_key key;
  uint64_t rows = 0;
  bool mounted = mount_small(folder);
  snprintf(path, sizeof path, "%s/a.db", folder);
  snprintf(other, sizeof other, "%s/none/b.db", folder);
  if (write_rows(path, 0, 5, NULL) != 0)
    return 1;
  if (!make_read_only(folder, mounted))
    return SKIPPED;
  trial_sample(&trial, 9);
  trial_sample_key(&key, 9);
  /* What is there can be read, and what cannot be written says so. */
  if (gd_store_open(path, &store, &err) != GD_OK ||
      gd_store_query(store, &(struct gd_store_filter){0}, count_row, &rows, &err) != GD_OK ||
      rows != 5) {
    complain("read", &err);
    return 2;
  }
  if (mounted && (gd_store_put(store, &key, &trial, NULL, &err) != GD_ENVIRONMENT ||
                  !strstr(err.text, path) || !strstr(err.text, "GPUDAYS_DB"))) {
    complain("write", &err);
    return 3;
  }
  gd_store_close(store);
  err = (struct gd_error){0};
  int code = 0;
  if (gd_store_open(other, &store, &err) != GD_ENVIRONMENT || !strstr(err.text, "GPUDAYS_DB")) {
    complain("new", &err);
    code = 4;
  }
  chmod(folder, 0777);
  return code;
}

static void test_read_only(void **state) {
  const char *folder = scratch_path("disk");
  (void)state;
  mkdir(folder, 0777);
  int code = in_child(read_only, folder);
  if (code == SKIPPED) {
    print_message("SKIPPED: a read-only disk, as root may write anywhere and no tmpfs can be "
                  "mounted here\n");
    skip();
  }
  assert_int_equal(code, 0);
}

/* --- what is read where nothing can be written --------------------------------------------- */

enum content { CLOSED, WITH_LOG, OLDER, HELD, CONTENTS };
enum { OLD_ROWS = 2, NEW_ROWS = 5 }; /* of tests/store/schema3.sql, and put here */

/* A writer that is killed leaves its rows in the log (-wal), and no index of it (-shm) that counts.
 */
static int put_and_die(const char *path) {
  struct gd_store *store;
  struct gd_error err = {0};
  for (uint64_t i = 0; i < NEW_ROWS; i++) {
    struct gd_trial trial;
    struct gd_store_key key;
    trial_sample(&trial, i);
    trial_sample_key(&key, i);
    if (i == 0 && gd_store_open(path, &store, &err) != GD_OK)
      return 1;
    if (gd_store_put(store, &key, &trial, NULL, &err) != GD_OK)
      return 1;
  }
  return 0; /* without gd_store_close */
}

/* Somebody has put rows and has the database open, log and index included, until *holder is killed.
 */
static int put_and_hold(const char *path, pid_t *holder) {
  int ready[2];
  char byte = 0;
  if (pipe(ready) != 0)
    return 1;
  *holder = fork();
  if (*holder == 0) {
    close(ready[0]);
    if (put_and_die(path) == 0 && write(ready[1], &byte, 1) == 1)
      for (;;)
        pause();
    _exit(1);
  }
  close(ready[1]);
  bool is_ready = *holder > 0 && read(ready[0], &byte, 1) == 1;
  close(ready[0]);
  return !is_ready;
}

static void let_go(pid_t holder) {
  if (holder > 0) {
    kill(holder, SIGKILL);
    waitpid(holder, NULL, 0);
  }
}

static int make_content(const char *path, enum content content, pid_t *holder) {
  struct gd_strbuf sql = {0};
  struct gd_error err = {0};
  sqlite3 *db = NULL;
  char shm[620];
  int code;
  if (content == CLOSED)
    return write_rows(path, 0, NEW_ROWS, NULL);
  if (content == HELD)
    return put_and_hold(path, holder);
  if (content == WITH_LOG) {
    snprintf(shm, sizeof shm, "%s-shm", path);
    return in_child(put_and_die, path) != 0 || unlink(shm) != 0;
  }
  if (gd_file_read(GD_SOURCE_DIR "/tests/store/schema3.sql", 1 << 20, &sql, &err) != GD_OK)
    return 1;
  code = sqlite3_open(path, &db) != SQLITE_OK ||
         sqlite3_exec(db, sql.text, NULL, NULL, NULL) != SQLITE_OK ||
         sqlite3_exec(db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL) != SQLITE_OK;
  sqlite3_close(db);
  gd_strbuf_deinit(&sql);
  return code;
}

static bool fill_up(const char *folder) {
  char path[600], block[4096] = "";
  snprintf(path, sizeof path, "%s/fill", folder);
  FILE *file = fopen(path, "wb");
  if (!file)
    return false;
  while (fwrite(block, 1, sizeof block, file) == sizeof block && fflush(file) == 0)
    ;
  fclose(file);
  return true;
}

static bool lock_disk(const char *folder, bool full) {
  return full ? fill_up(folder)
              : mount("small", folder, "tmpfs", MS_REMOUNT | MS_RDONLY, NULL) == 0;
}

/* Reads all that is there, is refused a row with the right words, and reads again. */
static int read_all(const char *path, enum content content, bool full) {
  struct gd_store *store;
  struct gd_error err = {0};
  struct gd_trial trial;
  struct gd_store_key key;
  uint64_t rows = 0;
  int code = 0;
  if (gd_store_open(path, &store, &err) != GD_OK) {
    complain("open", &err);
    return 2;
  }
  trial_sample(&trial, 99);
  trial_sample_key(&key, 99);
  if (gd_store_query(store, &(struct gd_store_filter){0}, count_row, &rows, &err) != GD_OK ||
      rows != (content == OLDER ? OLD_ROWS : NEW_ROWS) ||
      gd_store_is_full(store) != (full && content != HELD)) { /* with an index nothing is missing */
    complain("read", &err);
    code = 3;
  } else if (gd_store_put(store, &key, &trial, NULL, &err) != GD_ENVIRONMENT ||
             !strstr(err.text, path) || !strstr(err.text, "GPUDAYS_DB") ||
             !strstr(err.text, full ? "disk is full" : "readonly")) {
    complain("write", &err);
    code = 4;
  }
  gd_store_close(store);
  return code;
}

/* path: of a folder, before it the digits of what to do. */
static int read_as_it_is(const char *what) {
  const char *folder = what + 2;
  enum content content = (enum content)(what[0] - '0');
  bool full = what[1] == '1';
  char path[600];
  snprintf(path, sizeof path, "%s/a.db", folder);
  if (!mount_small(folder))
    return SKIPPED;
  pid_t holder = 0;
  int code = make_content(path, content, &holder) != 0 || !lock_disk(folder, full);
  for (int again = 0; again < 2 && code == 0; again++)
    code = read_all(path, content, full);
  let_go(holder);
  return code;
}

static void test_locked_disk(void **state) {
  char what[600];
  (void)state;
  mkdir(scratch_path("disk"), 0777);
  for (int content = 0; content < CONTENTS; content++)
    for (int full = content == HELD; full <= 1; full++) { /* in use a disk stays writable */
      snprintf(what, sizeof what, "%d%d%s", content, full, scratch_path("disk"));
      int code = in_child(read_as_it_is, what);
      if (code == SKIPPED) {
        print_message("SKIPPED: a disk that is full, as no tmpfs can be mounted here\n");
        skip();
      }
      if (code)
        fail_msg("content %d, full %d: %d", content, full, code);
    }
}

#define IN_SCRATCH(test) cmocka_unit_test_setup_teardown(test, scratch_setup, scratch_teardown)

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_SCRATCH(test_writers),     IN_SCRATCH(test_reader_and_writer),
      IN_SCRATCH(test_killed),      IN_SCRATCH(test_limited),
      IN_SCRATCH(test_full),        IN_SCRATCH(test_read_only),
      IN_SCRATCH(test_locked_disk),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
