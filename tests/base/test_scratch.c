/*
 * Folders that a process works in: locks, what a killed process leaves, and what is swept.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/scratch.h"

static char parent[1024];

static int make_parent(void **state) {
  const char *folder = getenv("TMPDIR");
  (void)state;
  snprintf(parent, sizeof parent, "%s/scratch-XXXXXX", folder ? folder : "/tmp");
  return mkdtemp(parent) ? 0 : -1;
}

static int remove_parent(void **state) {
  (void)state;
  return rmdir(parent); /* every test leaves it empty */
}

static bool exists(const char *folder, const char *name) {
  char path[8192];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  return access(path, F_OK) == 0;
}

static void put(const char *folder, const char *name) {
  char path[8192];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fclose(file), 0);
}

static bool take(struct gd_scratch *scratch, const char *name) {
  struct gd_error err = {0};
  bool taken;
  if (gd_scratch_take(scratch, parent, name, &taken, &err) != GD_OK)
    fail_msg("%s", err.text);
  return taken;
}

/* Whether another process can take it. */
static bool others_may(const char *name) {
  int status;
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    struct gd_scratch scratch;
    bool taken;
    _exit(gd_scratch_take(&scratch, parent, name, &taken, NULL) == GD_OK && taken ? 0 : 1);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void one_at_a_time(void **state) {
  struct gd_scratch scratch;
  (void)state;
  assert_true(take(&scratch, "a"));
  assert_false(others_may("a"));
  assert_true(others_may("b"));
  put(scratch.path, "result.json");
  assert_true(gd_scratch_has(&scratch, "result.json"));
  assert_false(gd_scratch_has(&scratch, "order.json"));
  gd_scratch_leave(&scratch);
  assert_true(others_may("a"));
  assert_true(take(&scratch, "a")); /* with what it holds */
  assert_true(gd_scratch_has(&scratch, "result.json"));
  gd_scratch_remove(&scratch);
  assert_false(exists(parent, "a"));
  gd_scratch_remove(&scratch); /* nothing is held */
  assert_true(take(&scratch, "b"));
  gd_scratch_remove(&scratch);
}

/* Twenty rounds of four processes that take one folder, count in it, and remove it. */
static void removed_under_others(void **state) {
  enum { PROCESSES = 4, ROUNDS = 20 };
  (void)state;
  for (int i = 0; i < PROCESSES; i++)
    if (fork() == 0) {
      struct gd_scratch scratch;
      bool taken;
      int done = 0;
      while (done < ROUNDS) {
        if (gd_scratch_take(&scratch, parent, "c", &taken, NULL) != GD_OK)
          _exit(2);
        if (!taken)
          continue;
        if (gd_scratch_has(&scratch, "mine")) /* of somebody who is still in it */
          _exit(3);
        put(scratch.path, "mine");
        done++;
        gd_scratch_remove(&scratch);
      }
      _exit(0);
    }
  for (int i = 0; i < PROCESSES; i++) {
    int status;
    assert_true(wait(&status) > 0);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
  }
  rmdir(parent); /* the last rmdir of one may have come before the mkdir of another */
  assert_int_equal(mkdir(parent, 0700), 0);
}

static void killed_ones_are_swept(void **state) {
  struct gd_scratch ours = GD_SCRATCH_NONE, kept = GD_SCRATCH_NONE;
  char link[2048];
  int status;
  (void)state;
  assert_int_equal(gd_scratch_make(&ours, parent, "run-", NULL), GD_OK);
  pid_t pid = fork();
  assert_true(pid >= 0);
  if (pid == 0) {
    struct gd_scratch theirs = GD_SCRATCH_NONE;
    char deep[GD_SCRATCH_PATH + 16];
    if (gd_scratch_make(&theirs, parent, "run-", NULL) != GD_OK)
      _exit(1);
    snprintf(deep, sizeof deep, "%s/session", theirs.path);
    mkdir(deep, 0700);
    put(deep, "segment");
    raise(SIGKILL);
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_true(WIFSIGNALED(status));
  assert_true(take(&kept, "run-kept"));
  put(kept.path, "result.json");
  gd_scratch_leave(&kept);
  snprintf(link, sizeof link, "%s/run-link", parent);
  assert_int_equal(symlink(parent, link), 0);
  put(parent, "other");
  gd_scratch_sweep(parent, "run-", "result.json", 30);
  assert_true(exists(ours.path, "lock")); /* is in use */
  assert_true(exists(parent, "run-kept/result.json"));
  assert_true(exists(parent, "run-link")); /* is no folder */
  assert_true(exists(parent, "other"));
  gd_scratch_remove(&ours);
  gd_scratch_sweep(parent, "run-", NULL, 0);
  assert_false(exists(parent, "run-kept"));
  unlink(link);
  snprintf(link, sizeof link, "%s/other", parent);
  unlink(link);
}

static void folders_that_cannot_be(void **state) {
  struct gd_scratch scratch;
  struct gd_error err = {0};
  bool taken = true;
  (void)state;
  assert_int_equal(gd_scratch_make(&scratch, "/nowhere/at/all", "x-", &err), GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "cannot make the folder /nowhere/at/all/x-"));
  assert_string_equal(scratch.path, "");
  assert_int_equal(gd_scratch_take(&scratch, "/dev/null", "x", &taken, &err), GD_ENVIRONMENT);
  assert_false(taken);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_at_a_time), cmocka_unit_test(removed_under_others),
      cmocka_unit_test(killed_ones_are_swept), cmocka_unit_test(folders_that_cannot_be)};
  return cmocka_run_group_tests(tests, make_parent, remove_parent);
}
