/*
 * The one way in which files are written: what stands at the path decides. Nothing is renamed over
 * a device or a link, what was there stays until all is written, and errors are those of the
 * system.
 */
#define _GNU_SOURCE
#include <errno.h>
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

#include "base/file.h"
#include "base/scratch.h"
#include "support/scratch.h"

enum { NOBODY = 65534 };

/* Under /tmp: another user, too, can get there. */
static int set_up(void **state) {
  unsetenv("TMPDIR");
  return scratch_setup(state);
}

static enum gd_status write_text(const char *path, const char *text, struct gd_error *err) {
  *err = (struct gd_error){0};
  return gd_file_write(path, text, strlen(text), err);
}

static void expect_content(const char *name, const char *text) {
  struct gd_strbuf found = {0};
  struct gd_error err = {0};
  if (gd_file_read(scratch_path(name), 1 << 20, &found, &err) != GD_OK)
    fail_msg("%s", err.text);
  assert_string_equal(found.text ? found.text : "", text);
  gd_strbuf_deinit(&found);
}

static void test_regular(void **state) {
  struct gd_error err;
  struct stat info;
  (void)state;
  mode_t mask = umask(027);
  assert_int_equal(write_text(scratch_path("new"), "one", &err), GD_OK);
  umask(mask);
  expect_content("new", "one");
  assert_int_equal(stat(scratch_path("new"), &info), 0);
  assert_int_equal(info.st_mode & 07777, 0640);
  /* Permissions stay, and so does the owner where that is possible. */
  assert_int_equal(chmod(scratch_path("new"), 0604), 0);
  if (geteuid() == 0)
    assert_int_equal(chown(scratch_path("new"), NOBODY, NOBODY), 0);
  assert_int_equal(write_text(scratch_path("new"), "", &err), GD_OK);
  expect_content("new", "");
  assert_int_equal(stat(scratch_path("new"), &info), 0);
  assert_int_equal(info.st_mode & 07777, 0604);
  if (geteuid() == 0)
    assert_int_equal(info.st_uid, NOBODY);
  assert_int_equal(scratch_count(""), 1); /* no temporary file is left */
}

static void test_links(void **state) {
  struct gd_error err;
  struct stat info;
  (void)state;
  scratch_write_text("folder/target", "old");
  assert_int_equal(symlink("folder/target", scratch_path("link")), 0);
  assert_int_equal(symlink("link", scratch_path("second")), 0);
  assert_int_equal(symlink("nothing", scratch_path("dangling")), 0);
  assert_int_equal(write_text(scratch_path("second"), "new", &err), GD_OK);
  expect_content("folder/target", "new");
  assert_int_equal(lstat(scratch_path("second"), &info), 0);
  assert_true(S_ISLNK(info.st_mode));
  assert_int_equal(scratch_count("folder"), 1);
  assert_int_equal(write_text(scratch_path("dangling"), "x", &err), GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "is a symbolic link to a file that is not there; remove it"));
  assert_int_equal(lstat(scratch_path("dangling"), &info), 0);
  assert_int_equal(lstat(scratch_path("nothing"), &info), -1);
}

static void test_no_files(void **state) {
  struct gd_error err;
  struct stat info;
  (void)state;
  scratch_write_text("folder/x", "");
  assert_int_equal(write_text(scratch_path("folder"), "x", &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "is a folder; name a file"));
  assert_int_equal(write_text(scratch_path("folder/x/y"), "x", &err), GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "Not a directory"));
  assert_int_equal(write_text(scratch_path("no/such"), "x", &err), GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "No such file or directory"));
  if (access("/dev/full", W_OK) == 0) {
    assert_int_equal(symlink("/dev/full", scratch_path("full")), 0);
    assert_int_equal(write_text(scratch_path("full"), "x", &err), GD_ENVIRONMENT);
    assert_non_null(strstr(err.text, "No space left on device"));
    assert_int_equal(stat("/dev/full", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    /* More than a buffer holds: the reason is that of the first write. */
    char large[1 << 17];
    err = (struct gd_error){0};
    memset(large, 'x', sizeof large);
    assert_int_equal(gd_file_write("/dev/full", large, sizeof large, &err), GD_ENVIRONMENT);
    assert_non_null(strstr(err.text, "No space left on device"));
  }
  assert_int_equal(write_text("/dev/null", "x", &err), GD_OK);
  assert_int_equal(stat("/dev/null", &info), 0);
  assert_true(S_ISCHR(info.st_mode));
}

/* A reader at the other end of a FIFO gets the bytes; one that nobody writes to is not waited for.
 */
static void test_fifo(void **state) {
  struct gd_error err = {0};
  struct gd_strbuf found = {0};
  char text[8] = "";
  (void)state;
  assert_int_equal(mkfifo(scratch_path("fifo"), 0600), 0);
  assert_int_equal(gd_file_read(scratch_path("fifo"), 100, &found, &err), GD_ENVIRONMENT);
  int fd = open(scratch_path("fifo"), O_RDONLY | O_NONBLOCK);
  assert_true(fd >= 0);
  assert_int_equal(write_text(scratch_path("fifo"), "hello", &err), GD_OK);
  assert_int_equal(read(fd, text, sizeof text), 5);
  close(fd);
  err = (struct gd_error){0};
  assert_int_equal(gd_file_read(scratch_path(""), 100, &found, &err), GD_ENVIRONMENT);
  assert_non_null(strstr(err.text, "Is a directory"));
  gd_strbuf_deinit(&found);
}

/* A file that is open as stdout is the same file afterwards, and what was written stays. */
static void test_stdout(void **state) {
  struct gd_error err;
  (void)state;
  scratch_write_text("out", "");
  fflush(stdout);
  int kept = dup(STDOUT_FILENO), fd = open(scratch_path("out"), O_WRONLY);
  assert_true(kept >= 0 && fd >= 0);
  dup2(fd, STDOUT_FILENO);
  bool fine = write(STDOUT_FILENO, "a", 1) == 1;
  fine = write_text("/dev/stdout", "b", &err) == GD_OK && fine;
  fine = write_text(scratch_path("out"), "c", &err) == GD_OK && fine;
  fine = write(STDOUT_FILENO, "d", 1) == 1 && fine;
  dup2(kept, STDOUT_FILENO);
  close(kept);
  close(fd);
  assert_true(fine);
  expect_content("out", "abcd");
}

/* As another user, since permissions do not count for root; a child, since there is no way back. */
static void as_nobody(void (*check)(void)) {
  if (geteuid() == 0) {
    assert_int_equal(chmod(scratch_path(""), 0755), 0);
  }
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    if (geteuid() == 0 && (setgid(NOBODY) != 0 || setuid(NOBODY) != 0))
      _exit(77);
    check();
    _exit(0);
  }
  int status = -1;
  assert_int_equal(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    skip();
  assert_int_equal(status, 0);
}

static void require(bool holds, int code) {
  if (!holds)
    _exit(code);
}

static void check_permissions(void) {
  struct gd_error err;
  require(write_text(scratch_path("closed/new"), "x", &err) == GD_ENVIRONMENT, 1);
  require(strstr(err.text, "Permission denied"), 2);
  require(write_text(scratch_path("closed/file"), "x", &err) == GD_ENVIRONMENT, 3);
  require(strstr(err.text, "Permission denied"), 4);
  err = (struct gd_error){0};
  require(gd_file_make_folder(scratch_path("closed/a/b"), &err) == GD_ENVIRONMENT, 5);
  require(strstr(err.text, "Permission denied"), 6);
  require(!gd_file_is_missing(scratch_path("dark/file")), 7);
  require(gd_file_is_missing(scratch_path("closed/no")), 8);
  /* A folder of theirs with a file that may not be written. */
  require(write_text(scratch_path("open/fixed"), "x", &err) == GD_ENVIRONMENT, 9);
  require(strstr(err.text, "Permission denied"), 10);
  require(write_text(scratch_path("open/new"), "x", &err) == GD_OK, 11);
}

static void test_permissions(void **state) {
  (void)state;
  scratch_write_text("closed/file", "old");
  scratch_write_text("dark/file", "old");
  scratch_write_text("open/fixed", "old");
  assert_int_equal(chmod(scratch_path("closed"), 0555), 0);
  assert_int_equal(chmod(scratch_path("open"), 0777), 0);
  assert_int_equal(chmod(scratch_path("open/fixed"), 0444), 0);
  assert_int_equal(chmod(scratch_path("dark"), 0000), 0);
  as_nobody(check_permissions);
  assert_int_equal(chmod(scratch_path("closed"), 0755), 0);
  assert_int_equal(chmod(scratch_path("dark"), 0755), 0);
  expect_content("closed/file", "old");
  expect_content("open/fixed", "old");
  assert_int_equal(scratch_count("open"), 2);
}

static void test_stream(void **state) {
  struct gd_file_out out;
  struct gd_error err = {0};
  (void)state;
  scratch_write_text("file", "old");
  char path[512];
  snprintf(path, sizeof path, "%s", scratch_path("file"));
  assert_int_equal(gd_file_begin(&out, path, &err), GD_OK);
  fprintf(out.stream, "%d", 1);
  expect_content("file", "old"); /* until the end */
  assert_int_equal(gd_file_end(&out, GD_MISMATCH, &err), GD_MISMATCH);
  expect_content("file", "old");
  assert_int_equal(scratch_count(""), 1);
  assert_int_equal(gd_file_begin(&out, path, &err), GD_OK);
  fprintf(out.stream, "%d", 2);
  assert_int_equal(gd_file_end(&out, GD_OK, &err), GD_OK);
  expect_content("file", "2");
}

int main(void) {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, scratch_teardown)
  const struct CMUnitTest tests[] = {
      TEST(test_regular), TEST(test_links),       TEST(test_no_files), TEST(test_fifo),
      TEST(test_stdout),  TEST(test_permissions), TEST(test_stream),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
