/*
 * Starting a process: what it writes and how it ends come back, signals are read meanwhile and
 * taken as before afterwards, and it ends with its parent. Commands of the system: their words,
 * their codes, and an end to those that take too long.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
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
#include "base/process.h"

static const char *const end_of_all = NULL;

static void start(struct gd_process_order order, const char *script, struct gd_process *process) {
  const char *const arguments[] = {"/bin/sh", "-c", script, end_of_all};
  struct gd_error err = {0};
  order.name = "a shell";
  order.arguments = arguments;
  if (gd_process_start(&order, process, &err) != GD_OK)
    fail_msg("%s", err.text);
}

/* What it writes to stderr until it has ended, and its status. */
static int listen_to(struct gd_process *process, char *text, size_t size) {
  size_t length = 0;
  int status;
  for (bool ended = false; !ended;) {
    struct pollfd fds[] = {{.fd = process->errors, .events = POLLIN},
                           {.fd = process->signals.fd, .events = POLLIN}};
    poll(fds, 2, 10000);
    ended = waitpid(process->pid, &status, WNOHANG) == process->pid;
    ssize_t count = read(process->errors, text + length, size - 1 - length);
    length += count > 0 ? (size_t)count : 0;
  }
  text[length] = '\0';
  return status;
}

static bool is_blocked(int signal) {
  sigset_t mask;
  sigprocmask(SIG_SETMASK, NULL, &mask);
  return sigismember(&mask, signal) == 1;
}

static void test_words(void **state) {
  struct gd_process process;
  char text[256];
  (void)state;
  start((struct gd_process_order){.silent = true, .own_group = true, .expendable = true},
        "echo lost; read line || echo \"nothing to read, group $(cut -d' ' -f5 /proc/$$/stat) of "
        "$$\" >&2; "
        "cat /proc/self/oom_score_adj >&2; exit 3",
        &process);
  int status = listen_to(&process, text, sizeof text);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
  assert_non_null(strstr(text, "nothing to read"));
  assert_null(strstr(text, "lost"));
  assert_non_null(strstr(text, "\n1000\n"));
  char group[64];
  snprintf(group, sizeof group, "%d of %d\n", (int)process.pid, (int)process.pid);
  assert_non_null(strstr(text, group));
  assert_int_equal(gd_signals_asked(&process.signals), 0); /* its end asks nobody to end */
  gd_process_close(&process);
}

static void test_signals(void **state) {
  struct gd_process process;
  char text[64];
  (void)state;
  sigset_t hup;
  sigemptyset(&hup);
  sigaddset(&hup, SIGHUP);
  sigprocmask(SIG_BLOCK, &hup, NULL); /* stays so */
  start((struct gd_process_order){0}, "trap 'echo heard >&2; exit 0' TERM; kill -TERM $$",
        &process);
  assert_true(is_blocked(SIGINT) && is_blocked(SIGCHLD));
  raise(SIGTERM);
  raise(SIGINT);
  int asked = gd_signals_asked(&process.signals);
  assert_true(asked == SIGTERM || asked == SIGINT);
  assert_int_equal(gd_signals_asked(&process.signals), 0);
  assert_int_equal(listen_to(&process, text, sizeof text), 0);
  assert_string_equal(text, "heard\n"); /* it is deaf to nothing itself */
  gd_process_close(&process);
  assert_false(is_blocked(SIGINT) || is_blocked(SIGCHLD) || is_blocked(SIGTERM));
  assert_true(is_blocked(SIGHUP));
  sigprocmask(SIG_UNBLOCK, &hup, NULL);
}

/* nohup, and a shell's background jobs: what is ignored asks nobody to end. */
static void test_ignored(void **state) {
  struct gd_signals signals;
  (void)state;
  signal(SIGHUP, SIG_IGN);
  assert_true(gd_signals_open(&signals));
  assert_false(is_blocked(SIGHUP));
  raise(SIGHUP);
  assert_int_equal(gd_signals_asked(&signals), 0);
  raise(SIGTERM);
  assert_int_equal(gd_signals_asked(&signals), SIGTERM);
  gd_signals_close(&signals);
  signal(SIGHUP, SIG_DFL);
  assert_false(is_blocked(SIGTERM));
}

static void test_no_program(void **state) {
  const char *const arguments[] = {"/nowhere/at/all", end_of_all};
  struct gd_process process;
  struct gd_error err = {0};
  char text[64];
  (void)state;
  assert_int_equal(
      gd_process_start(&(struct gd_process_order){.name = "it", .arguments = arguments}, &process,
                       &err),
      GD_OK);
  int status = listen_to(&process, text, sizeof text);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 127);
  gd_process_close(&process);
}

/* --- commands ------------------------------------------------------------------------------ */

static enum gd_status run_shell(const char *script, double timeout_s,
                                struct gd_process_output *output, struct gd_error *err) {
  const char *const arguments[] = {"sh", "-c", script, end_of_all};
  *err = (struct gd_error){0};
  return gd_process_run(arguments, timeout_s, output, err);
}

static void test_run(void **state) {
  struct gd_process_output output;
  struct gd_error err;
  (void)state;
  assert_int_equal(run_shell("read x || echo no input; echo oh >&2; exit 7", 20, &output, &err),
                   GD_OK);
  assert_string_equal(output.out.text, "no input\n");
  assert_string_equal(output.errors.text, "oh\n");
  assert_int_equal(output.code, 7);
  gd_process_output_deinit(&output);
  assert_int_equal(run_shell("kill -9 $$", 20, &output, &err), GD_OK);
  assert_int_equal(output.code, 128 + SIGKILL);
  gd_process_output_deinit(&output);
  /* More than a pipe holds; what is too much is read and not kept. */
  assert_int_equal(run_shell("head -c 3000000 /dev/zero | tr '\\0' x", 20, &output, &err), GD_OK);
  assert_true(output.code == 0 && output.out.length >= 1 << 20 && output.out.length < 1200000);
  gd_process_output_deinit(&output);
  const char *const missing[] = {"no-such-command-anywhere", end_of_all};
  err = (struct gd_error){0};
  assert_int_equal(gd_process_run(missing, 20, &output, &err), GD_UNSUPPORTED);
  assert_string_equal(err.text, "no-such-command-anywhere is not in PATH");
  gd_process_output_deinit(&output);
}

/* One that goes on speaking, and one that has closed its streams: neither is waited for. */
static void test_run_late(void **state) {
  static const char *const scripts[] = {"while :; do echo; sleep 0.01; done",
                                        "exec >&- 2>&-; sleep 100"};
  (void)state;
  for (size_t i = 0; i < sizeof scripts / sizeof *scripts; i++) {
    struct gd_process_output output;
    struct gd_error err;
    int64_t start_ns = gd_clock_ns();
    assert_int_equal(run_shell(scripts[i], 0.3, &output, &err), GD_ENVIRONMENT);
    assert_string_equal(err.text, "sh did not end within 0.3 s");
    assert_true(gd_clock_ns() - start_ns < INT64_C(50000000000));
    gd_process_output_deinit(&output);
  }
}

/* A parent that is killed takes along what it started. */
static void test_death(void **state) {
  int ends[2];
  char text[64] = "";
  (void)state;
  assert_int_equal(pipe2(ends, 0), 0);
  pid_t parent = fork();
  if (parent == 0) {
    struct gd_process process;
    close(ends[0]);
    start((struct gd_process_order){.death_signal = SIGKILL}, "while :; do sleep 1; done",
          &process);
    dprintf(ends[1], "%d\n", (int)process.pid);
    for (;;)
      pause();
  }
  close(ends[1]);
  assert_true(read(ends[0], text, sizeof text - 1) > 0);
  pid_t child = (pid_t)strtol(text, NULL, 10);
  assert_true(child > 1);
  kill(parent, SIGKILL);
  waitpid(parent, NULL, 0);
  for (int i = 0; i < 10000 && kill(child, 0) == 0; i++) {
    waitpid(child, NULL, WNOHANG); /* an orphan may be ours: the tests before made us a reaper */
    poll(NULL, 0, 10);
  }
  assert_int_equal(kill(child, 0), -1);
  close(ends[0]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_words),   cmocka_unit_test(test_signals),
      cmocka_unit_test(test_ignored), cmocka_unit_test(test_no_program),
      cmocka_unit_test(test_run),     cmocka_unit_test(test_run_late),
      cmocka_unit_test(test_death),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
