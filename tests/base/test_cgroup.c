/*
 * CPU quotas and what they denied, on made-up folders proc and sys with files as kernels 5.15 and
 * 6.1 write them: both versions of control groups, on the way up from the group of the process.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/cgroup.h"
#include "support/scratch.h"

#define POD "/kubepods/pod7/main"

static void expect(const char *root, double cpus, int64_t throttled_ns) {
  assert_true(fabs(gd_cgroup_cpus(scratch_path(root)) - cpus) < 1e-9);
  assert_int_equal(gd_cgroup_throttled_ns(scratch_path(root)), throttled_ns);
}

static void test_none(void **state) {
  (void)state;
  expect("nothing", 0, 0);
  scratch_write_text("free/proc/self/cgroup", "0::/user.slice\n");
  scratch_write_text("free/sys/fs/cgroup/user.slice/cpu.max", "max 100000\n");
  scratch_write_text("free/sys/fs/cgroup/user.slice/cpu.stat",
                     "usage_usec 8151020\nuser_usec 5936060\nsystem_usec 2214960\n");
  expect("free", 0, 0);
}

static void test_second_version(void **state) {
  (void)state;
  scratch_write_text("two/proc/self/cgroup", "0::" POD "\n");
  scratch_write_text("two/sys/fs/cgroup" POD "/cpu.max", "150000 100000\n");
  scratch_write_text("two/sys/fs/cgroup" POD "/cpu.stat",
                     "usage_usec 512345678\nuser_usec 500000000\nsystem_usec 12345678\n"
                     "nr_periods 4321\nnr_throttled 1234\nthrottled_usec 98765432\nnr_bursts 0\n"
                     "burst_usec 0\n");
  expect("two", 1.5, INT64_C(98765432000));
  /* Above it: a smaller quota counts, and what each was denied adds up. */
  scratch_write_text("two/sys/fs/cgroup/kubepods/cpu.max", "50000 100000\n");
  scratch_write_text("two/sys/fs/cgroup/kubepods/cpu.stat", "throttled_usec 5\n");
  expect("two", 0.5, INT64_C(98765437000));
}

static void test_first_version(void **state) {
  (void)state;
  scratch_write_text("one/proc/self/cgroup", "9:memory:/other\n4:cpu,cpuacct:" POD "\n0::/\n");
  scratch_write_text("one/sys/fs/cgroup/cpu" POD "/cpu.cfs_quota_us", "-1\n");
  scratch_write_text("one/sys/fs/cgroup/cpu" POD "/cpu.cfs_period_us", "100000\n");
  expect("one", 0, 0);
  scratch_write_text("one/sys/fs/cgroup/cpu" POD "/cpu.cfs_quota_us", "50000\n");
  scratch_write_text("one/sys/fs/cgroup/cpu" POD "/cpu.stat",
                     "nr_periods 186\nnr_throttled 126\nthrottled_time 3400103061\n"
                     "nr_bursts 0\nburst_time 0\n");
  expect("one", 0.5, INT64_C(3400103061));
}

static void test_damage(void **state) {
  (void)state;
  scratch_write_text("bad/proc/self/cgroup", "nonsense\n0::/..\n0::/x\n");
  scratch_write_text("bad/sys/fs/cgroup/x/cpu.max", "\n");
  scratch_write_text("bad/sys/fs/cgroup/x/cpu.stat",
                     "throttled_usec -7\nthrottled_usec 9223372036854775807\nthrottled_usecs 3\n");
  expect("bad", 0, 0);
}

/* Of the group itself, not of others and not of the machine. */
static void test_oom_kills(void **state) {
  (void)state;
  assert_int_equal(gd_cgroup_oom_kills(scratch_path("nothing")), -1);
  scratch_write_text("kills2/proc/self/cgroup", "0::" POD "\n");
  scratch_write_text("kills2/sys/fs/cgroup/kubepods/memory.events", "oom 9\noom_kill 7\n");
  assert_int_equal(gd_cgroup_oom_kills(scratch_path("kills2")), 7);
  scratch_write_text("kills2/sys/fs/cgroup" POD "/memory.events",
                     "low 0\nhigh 0\nmax 12\noom 4\noom_kill 3\noom_group_kill 1\n");
  assert_int_equal(gd_cgroup_oom_kills(scratch_path("kills2")), 3);
  scratch_write_text("kills1/proc/self/cgroup", "9:memory:/job\n4:cpu,cpuacct:/\n0::/\n");
  scratch_write_text("kills1/sys/fs/cgroup/memory/memory.oom_control", "oom_kill 5\n");
  scratch_write_text("kills1/sys/fs/cgroup/memory/job/memory.oom_control",
                     "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  assert_int_equal(gd_cgroup_oom_kills(scratch_path("kills1")), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_none),          cmocka_unit_test(test_second_version),
      cmocka_unit_test(test_first_version), cmocka_unit_test(test_damage),
      cmocka_unit_test(test_oom_kills),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
