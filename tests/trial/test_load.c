/*
 * The share of other programs, of a quota and of stops: the arithmetic on made-up accounts, the
 * lines of /proc/stat, a child that is stopped, and that a reading of this machine moves.
 */
#define _GNU_SOURCE /* SCHED_IDLE */
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "trial/load.h"

static const int64_t second = 1000000000;

/* Share over wall_s seconds of 4 CPUs, of which own_s were ours and busy_s anybody's. */
static double share(double wall_s, double own_s, double busy_s) {
  struct gd_load before = {
      .wall_ns = 7 * second, .own_ns = 3 * second, .busy_ns = 900 * second, .cpus = 4};
  struct gd_load after = before;
  after.wall_ns += (int64_t)(wall_s * 1e9);
  after.own_ns += (int64_t)(own_s * 1e9);
  after.busy_ns += (int64_t)(busy_s * 1e9);
  return gd_load_share(&before, &after);
}

static void test_share(void **state) {
  (void)state;
  assert_true(fabs(share(10, 20, 30) - 0.25) < 1e-9);
  assert_true(fabs(share(10, 0, 40) - 1) < 1e-9);
  assert_true(fabs(share(2, 8, 8)) < 1e-9); /* we alone */
  assert_true(fabs(share(2, 4, 4.4) - 0.05) < 1e-9);
  /* Ticks lag behind the clock of the process, and behind that of the wall. */
  assert_true(share(1, 4, 3.97) == 0);
  assert_true(share(1, 0, 4.03) == 1);
}

static void test_unknown(void **state) {
  struct gd_load before = {.wall_ns = 0, .own_ns = 0, .busy_ns = 0, .cpus = 2};
  struct gd_load after = {.wall_ns = second, .own_ns = second, .busy_ns = 2 * second, .cpus = 2};
  (void)state;
  assert_true(fabs(gd_load_share(&before, &after) - 0.5) < 1e-9);
  assert_true(share(0.499, 1, 1) == -1);
  assert_true(share(0.5, 1, 1) >= 0);
  after.cpus = 3; /* one came on line */
  assert_true(gd_load_share(&before, &after) == -1);
  after.cpus = 2;
  after.busy_ns = -1;
  assert_true(gd_load_share(&before, &after) == -1);
  after.busy_ns = 2 * second;
  before.busy_ns = -1;
  assert_true(gd_load_share(&before, &after) == -1);
  before = after = (struct gd_load){.busy_ns = 0};
  after.wall_ns = second;
  assert_true(gd_load_share(&before, &after) == -1);
}

static void test_parse(void **state) {
  int cpu = -1;
  int64_t steal = -1;
  (void)state;
  /* user nice system idle iowait irq softirq steal guest guest_nice */
  assert_int_equal(gd_load_parse("cpu0 1 20 300 4000 50000 6 70 800 9 9\n", &cpu, &steal), 1197);
  assert_int_equal(steal, 800);
  assert_int_equal(cpu, 0);
  assert_int_equal(gd_load_parse("cpu127 0 0 0 0 0 0 0 1\n", &cpu, &steal), 1);
  assert_int_equal(steal, 1);
  assert_int_equal(cpu, 127);
  cpu = -1;
  const char *others[] = {"cpu  1 2 3 4 5 6 7 8 9 10\n", "intr 1 2 3 4 5 6 7 8\n",
                          "cpu0 1 2 3 4 5 6 7\n",        "cpu0\n",
                          "cpux 1 2 3 4 5 6 7 8\n",      ""};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    assert_int_equal(gd_load_parse(others[i], &cpu, &steal), -1);
  assert_int_equal(cpu, -1);
}

/* A quota, and the host of a virtual machine. */
static void test_held(void **state) {
  struct gd_load before = {.busy_ns = 0, .cpus = 4}, after = before;
  (void)state;
  after.wall_ns = 10 * second;
  after.busy_ns = 30 * second;
  after.own_ns = 5 * second; /* one thread with half a CPU */
  assert_true(gd_load_throttled_share(&before, &after) == 0);
  assert_true(gd_load_throttled_share(&before, &before) == 0);
  after.throttled_ns = 5 * second;
  assert_true(fabs(gd_load_throttled_share(&before, &after) - 0.5) < 1e-9);
  after.throttled_ns = 15 * second; /* two threads with half a CPU together */
  assert_true(fabs(gd_load_throttled_share(&before, &after) - 0.75) < 1e-9);
  after.steal_ns = 4 * second;
  assert_true(fabs(gd_load_steal_share(&before, &after) - 0.1) < 1e-9);
  after.wall_ns = second / 10; /* too short for ticks */
  assert_true(gd_load_steal_share(&before, &after) == 0);
}

enum { TRIES = 5 }; /* for what a machine does that is not stopped by its host meanwhile */

/* A process that naps for a second, and its share of not running, in percent. */
static pid_t start_watched(int policy) {
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    struct gd_load_watch watch;
    struct sched_param none = {0};
    if (policy != SCHED_OTHER)
      sched_setscheduler(0, policy, &none);
    gd_load_watch_start(&watch);
    for (int i = 0; i < 50; i++) /* a nap that is stopped goes on after it */
      nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    _exit((int)(100 * gd_load_watch_stop(&watch)));
  }
  return child;
}

static int percent_of(pid_t child) {
  int status = 0;
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

/* A child that is stopped for most of its time notices. */
static void test_watch_stopped(void **state) {
  siginfo_t ended = {0};
  (void)state;
  pid_t child = start_watched(SCHED_OTHER);
  while (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && !ended.si_pid) {
    kill(child, SIGSTOP);
    nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
    kill(child, SIGCONT);
    nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
  }
  int percent = percent_of(child);
  print_message("stopped: did not run for %d %%\n", percent);
  assert_true(percent > 30);
}

static void test_watch_alone(void **state) {
  int percent = 100;
  (void)state;
  for (int i = 0; i < TRIES && percent >= 30; i++) {
    percent = percent_of(start_watched(SCHED_OTHER));
    print_message("left alone: did not run for %d %%\n", percent);
  }
  assert_true(percent < 30);
}

/* Starved by busy loops on every CPU, a process waits for its turn: it was not stopped. */
static void test_watch_starved(void **state) {
  pid_t loops[64];
  int count = 0, percent = 100;
  (void)state;
  if (access("/proc/thread-self/schedstat", R_OK) != 0)
    skip();
  for (long i = 0; i < 4 * sysconf(_SC_NPROCESSORS_ONLN) && count < 64; i++)
    if ((loops[count++] = fork()) == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (;;)
        ;
    }
  for (int i = 0; i < TRIES && percent >= 15; i++) {
    percent = percent_of(start_watched(SCHED_IDLE)); /* the last to get a turn */
    print_message("starved: did not run for %d %%\n", percent);
  }
  for (int i = 0; i < count; i++) {
    kill(loops[i], SIGKILL);
    waitpid(loops[i], NULL, 0);
  }
  assert_true(percent < 15);
}

/* Half a second of work: all clocks move, and the share is one. */
static void test_read(void **state) {
  struct gd_load before, now;
  volatile double sum = 0;
  (void)state;
  gd_load_read(&before);
  if (before.busy_ns < 0)
    skip(); /* not Linux */
  assert_true(before.cpus >= 1);
  do {
    for (int i = 0; i < 1000000; i++)
      sum = sum + 1;
    gd_load_read(&now);
  } while (now.wall_ns - before.wall_ns < GD_LOAD_SHORTEST_NS);
  assert_true(now.own_ns > before.own_ns);
  assert_true(now.busy_ns > before.busy_ns);
  double part = gd_load_share(&before, &now);
  assert_true(part >= 0 && part <= 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_share),         cmocka_unit_test(test_unknown),
      cmocka_unit_test(test_parse),         cmocka_unit_test(test_held),
      cmocka_unit_test(test_watch_stopped), cmocka_unit_test(test_watch_alone),
      cmocka_unit_test(test_watch_starved), cmocka_unit_test(test_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
