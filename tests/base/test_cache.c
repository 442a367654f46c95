/*
 * The cache: only a folder that nobody else can write in is used, whoever could swap one of the
 * folders above it included; anything else is a private folder, with the reason.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <setjmp.h>
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

#include "base/cache.h"
#include "base/mem.h"
#include "support/scratch.h"

static int set_up(void **state) {
  unsetenv("TMPDIR");
  int made = scratch_setup(state);
  setenv("XDG_CACHE_HOME", scratch_path("above/cache"), 1);
  return made;
}

/* Whether the folder is the one in the environment. */
static bool lasts(void) {
  char path[1024], found[1024], problem[1024];
  assert_true(gd_cache_folder("kernels", path, sizeof path));
  bool same =
      realpath(scratch_path("above/cache/gpudays/kernels"), found) && strcmp(path, found) == 0;
  const char *why = gd_cache_problem("kernels", problem, sizeof problem);
  assert_int_equal(same, why == NULL);
  if (why)
    assert_non_null(strstr(why, "; set XDG_CACHE_HOME to a folder that only you can write"));
  return same;
}

static void expect_problem(const char *part) {
  char problem[1024] = "";
  assert_false(lasts());
  gd_cache_problem("kernels", problem, sizeof problem);
  if (!strstr(problem, part))
    fail_msg("\"%s\" lacks \"%s\"", problem, part);
}

static void test_modes(void **state) {
  static const char *const folders[] = {"above", "above/cache", "above/cache/gpudays",
                                        "above/cache/gpudays/kernels"};
  struct stat info;
  (void)state;
  assert_true(lasts());
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
    bool last = i == 3;
    assert_int_equal(stat(scratch_path(folders[i]), &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    assert_int_equal(chmod(scratch_path(folders[i]), 0777), 0);
    expect_problem("(mode 0777; 'chmod go-w' closes it)");
    assert_int_equal(chmod(scratch_path(folders[i]), 0770), 0);
    expect_problem("(mode 0770; 'chmod go-w' closes it)");
    assert_int_equal(chmod(scratch_path(folders[i]), 01777), 0); /* as /tmp is */
    assert_int_equal(lasts(), !last);
    assert_int_equal(chmod(scratch_path(folders[i]), 0755), 0);
    assert_true(lasts());
  }
}

static void test_owners(void **state) {
  (void)state;
  assert_true(lasts());
  if (geteuid() != 0)
    skip();
  assert_int_equal(chown(scratch_path("above/cache"), 65534, 65534), 0);
  expect_problem("belongs to user 65534, and this is user 0");
  assert_int_equal(chown(scratch_path("above/cache"), 0, 0), 0);
  assert_true(lasts());
  assert_int_equal(chown(scratch_path("above/cache/gpudays/kernels"), 65534, 65534), 0);
  expect_problem("belongs to user 65534, and this is user 0");
}

/* A link is followed, and what counts is where it leads. */
static void test_links(void **state) {
  char path[1024], found[1024];
  (void)state;
  assert_true(lasts());
  assert_int_equal(mkdir(scratch_path("open"), 0777), 0);
  assert_int_equal(chmod(scratch_path("open"), 0777), 0);
  assert_int_equal(symlink("above/cache", scratch_path("link")), 0);
  setenv("XDG_CACHE_HOME", scratch_path("link"), 1);
  assert_true(gd_cache_folder("kernels", path, sizeof path));
  assert_non_null(realpath(scratch_path("above/cache/gpudays/kernels"), found));
  assert_string_equal(path, found);
  assert_int_equal(rename(scratch_path("above"), scratch_path("open/above")), 0);
  assert_int_equal(unlink(scratch_path("link")), 0);
  assert_int_equal(symlink("open/above/cache", scratch_path("link")), 0);
  expect_problem("others may write in ");
}

static void test_nowhere(void **state) {
  const char *home = getenv("HOME");
  char *kept = home ? strdup(home) : NULL;
  (void)state;
  scratch_write_text("above/cache", "a file");
  expect_problem("cannot be made: Not a directory");
  unsetenv("XDG_CACHE_HOME");
  unsetenv("HOME");
  expect_problem("neither XDG_CACHE_HOME nor HOME names a folder");
  if (kept)
    setenv("HOME", kept, 1);
  (free)(kept);
}

/* The private folder is the process's: gone with it, and not with a child that ends in between. */
static void test_private(void **state) {
  int status = -1;
  char path[1024];
  struct stat info;
  (void)state;
  assert_int_equal(mkdir(scratch_path("tmp"), 0700), 0);
  setenv("TMPDIR", scratch_path("tmp"), 1);
  scratch_write_text("above/cache", "a file");
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    size_t count = 0;
    bool fine = gd_cache_folder("cuda", path, sizeof path) && stat(path, &info) == 0 &&
                (info.st_mode & 07777) == 0700 && strstr(path, "/tmp/gpudays-cache-");
    gd_cache_write("cuda", 7, "kernel", 6);
    pid_t inner = fork();
    if (inner == 0)
      exit(0);
    waitpid(inner, &status, 0);
    char *bytes = gd_cache_read("cuda", 7, &count);
    fine = fine && bytes && count == 6 && strcmp(bytes, "kernel") == 0;
    gd_mem_free(bytes);
    exit(fine ? 0 : 1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  assert_int_equal(scratch_count("tmp"), 0);
  /* A folder of temporary files that others could swap is not used. */
  assert_int_equal(chmod(scratch_path("tmp"), 0777), 0);
  assert_true(gd_cache_folder("cuda", path, sizeof path));
  assert_int_equal(strncmp(path, "/tmp/gpudays-cache-", 19), 0);
}

static bool is_kept(uint64_t key) {
  size_t count;
  char *bytes = gd_cache_read("cuda", key, &count);
  gd_mem_free(bytes);
  return bytes != NULL;
}

/* What is no regular file of one's own reads as absent, at once, and is replaced. */
static void test_files(void **state) {
  char folder[1024], path[1100], other[1100];
  (void)state;
  assert_true(gd_cache_folder("cuda", folder, sizeof folder));
  snprintf(path, sizeof path, "%s/0000000000000007", folder);
  snprintf(other, sizeof other, "%s/0000000000000008", folder);
  for (int how = 0; how < 6; how++) {
    gd_cache_write("cuda", 7, "kernel", 6);
    gd_cache_write("cuda", 8, "another", 7);
    assert_true(is_kept(7) && is_kept(8));
    if (how < 2)
      assert_int_equal(chmod(path, how ? 0660 : 0606), 0);
    else if (how == 2)
      assert_int_equal(rename(other, path), 0); /* whole, and another's */
    else
      assert_int_equal(unlink(path), 0);
    if (how == 3)
      assert_int_equal(mkfifo(path, 0600), 0);
    if (how == 4)
      assert_int_equal(symlink("0000000000000008", path), 0);
    if (how == 5)
      assert_int_equal(mkdir(path, 0700), 0);
    assert_false(is_kept(7));
    assert_null(how < 3 ? NULL : gd_cache_open(path));
  }
  gd_cache_write("cuda", 7, "kernel", 6);
  assert_true(is_kept(7));
  assert_int_equal(scratch_count("above/cache/gpudays/cuda"), 2);
}

/* All that a key is made of changes it. */
static void test_keys(void **state) {
  (void)state;
  scratch_write_text("library", "1");
  uint64_t key = gd_cache_hash_file(1, scratch_path("library"));
  assert_true(key == gd_cache_hash_file(1, scratch_path("library")));
  assert_true(key != gd_cache_hash_file(2, scratch_path("library")));
  assert_true(key != gd_cache_hash_file(1, scratch_path("another")));
  scratch_write_text("library", "12");
  assert_true(key != gd_cache_hash_file(1, scratch_path("library")));
  assert_true(gd_cache_hash_text(gd_cache_hash_text(0, "ab"), "c") !=
              gd_cache_hash_text(gd_cache_hash_text(0, "a"), "bc"));
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, scratch_teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_modes),   TEST(test_owners), TEST(test_links), TEST(test_nowhere),
      TEST(test_private), TEST(test_files),  TEST(test_keys),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
