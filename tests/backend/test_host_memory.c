/*
 * The memory of the machine, on made-up folders proc and sys: what is available, and the limits of
 * control groups of both versions on the way up from the group of the process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "backend/host_memory.h"
#include "support/scratch.h"

static const int64_t gib = INT64_C(1) << 30;

#define JOB "/system.slice/slurmstepd.scope/job_7"

/* A root folder whose machine has 1 TiB available. */
static void make(const char *name) {
  char path[64];
  snprintf(path, sizeof path, "%s/proc/meminfo", name);
  scratch_write_text(path, "MemTotal:       1181116006 kB\nMemAvailable:   1073741824 kB\n");
}

static int64_t bytes_in(const char *name) {
  return gd_host_memory_under(scratch_path(name));
}

static void test_no_limit(void **state) {
  (void)state;
  make("plain");
  assert_int_equal(bytes_in("plain"), 1024 * gib);
  /* The second version's root has no such file, and a group may have none set. */
  scratch_write_text("plain/proc/self/cgroup", "0::/user.slice\n");
  scratch_write_text("plain/sys/fs/cgroup/user.slice/memory.max", "max\n");
  assert_int_equal(bytes_in("plain"), 1024 * gib);
  assert_int_equal(bytes_in("nothing"), 0);
}

static void test_second_version(void **state) {
  (void)state;
  make("two");
  scratch_write_text("two/proc/self/cgroup", "0::" JOB "/step_0/user/task_0\n");
  scratch_write_text("two/sys/fs/cgroup" JOB "/memory.max", "68719476736\n");
  scratch_write_text("two/sys/fs/cgroup" JOB "/step_0/user/task_0/memory.max", "max\n");
  assert_int_equal(bytes_in("two"), 64 * gib);
  scratch_write_text("two/sys/fs/cgroup" JOB "/step_0/user/memory.max", "34359738368\n");
  assert_int_equal(bytes_in("two"), 32 * gib);
  /* Less above is less below. */
  scratch_write_text("two/sys/fs/cgroup/system.slice/memory.max", "17179869184\n");
  assert_int_equal(bytes_in("two"), 16 * gib);
  /* Another job's is not ours; more than the machine has is none. */
  scratch_write_text("two/sys/fs/cgroup/system.slice/slurmstepd.scope/job_8/memory.max", "1\n");
  assert_int_equal(bytes_in("two"), 16 * gib);
  scratch_write_text("two/proc/self/cgroup", "0::/other\n");
  scratch_write_text("two/sys/fs/cgroup/other/memory.max", "2199023255552\n");
  assert_int_equal(bytes_in("two"), 1024 * gib);
}

static void test_first_version(void **state) {
  (void)state;
  make("one");
  scratch_write_text("one/proc/self/cgroup", "5:devices:/memory\n"
                                             "4:hugetlb,memory:/slurm/uid_1000/job_7/step_0\n"
                                             "3:memoryless:/wrong\n"
                                             "1:name=systemd:/wrong\n"
                                             "0::/wrong\n");
  scratch_write_text("one/sys/fs/cgroup/memory/wrong/memory.limit_in_bytes", "1\n");
  scratch_write_text("one/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  assert_int_equal(bytes_in("one"), 1024 * gib);
  scratch_write_text("one/sys/fs/cgroup/memory/slurm/uid_1000/job_7/memory.limit_in_bytes",
                     "68719476736\n");
  assert_int_equal(bytes_in("one"), 64 * gib);
  scratch_write_text("one/sys/fs/cgroup/memory/slurm/uid_1000/job_7/step_0/memory.limit_in_bytes",
                     "34359738368\n");
  assert_int_equal(bytes_in("one"), 32 * gib);
}

/* Its own group is what is mounted, whatever the name. */
static void test_container(void **state) {
  (void)state;
  make("inside");
  scratch_write_text("inside/sys/fs/cgroup/memory.max", "8589934592\n");
  assert_int_equal(bytes_in("inside"), 8 * gib);
  scratch_write_text("inside/proc/self/cgroup", "0::/\n");
  assert_int_equal(bytes_in("inside"), 8 * gib);
  scratch_write_text("inside/proc/self/cgroup", "0::/docker/0123456789ab\n");
  assert_int_equal(bytes_in("inside"), 8 * gib);
  /* A group out of sight: the name leads nowhere, above all not out of the hierarchy. */
  scratch_write_text("inside/proc/self/cgroup", "0::/../other\n");
  scratch_write_text("inside/sys/fs/other/memory.max", "1\n");
  assert_int_equal(bytes_in("inside"), 8 * gib);
  make("older");
  scratch_write_text("older/proc/self/cgroup", "4:memory:/docker/0123456789ab\n");
  scratch_write_text("older/sys/fs/cgroup/memory/memory.limit_in_bytes", "4294967296\n");
  assert_int_equal(bytes_in("older"), 4 * gib);
}

static void test_this_machine(void **state) {
  (void)state;
  assert_true(gd_host_memory_bytes() > 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_no_limit),      cmocka_unit_test(test_second_version),
      cmocka_unit_test(test_first_version), cmocka_unit_test(test_container),
      cmocka_unit_test(test_this_machine),
  };
  return cmocka_run_group_tests(tests, scratch_setup, scratch_teardown);
}
