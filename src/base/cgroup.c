/*
 * Control groups; see cgroup.h, and the kernel's Documentation/admin-guide/cgroup-v2.rst and
 * cgroup-v1/, scheduler/sched-bwc.rst for the files.
 */
#include "base/cgroup.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* --- where they are ------------------------------------------------------------------------ */

/* One of the controllers of the first version, "cpu,cpuacct". */
static bool has_controller(const char *controllers, const char *wanted) {
  while (*controllers) {
    size_t length = strcspn(controllers, ",");
    if (length == strlen(wanted) && strncmp(controllers, wanted, length) == 0)
      return true;
    controllers += length + (controllers[length] == ',');
  }
  return false;
}

/*
 * Lines of /proc/self/cgroup are ID:CONTROLLERS:PATH; the second version's are "0::PATH". Where the
 * process was moved out of what its namespace shows, PATH begins with "/..": no folder of ours.
 */
static void find_groups(const char *root, const char *controller, char *first, char *second) {
  char line[PATH_BYTES], path[PATH_BYTES];
  first[0] = second[0] = '\0';
  snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
  FILE *file = fopen(path, "r");
  while (file && fgets(line, sizeof line, file)) {
    char *controllers = strchr(line, ':'),
         *group = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!group)
      continue;
    *controllers++ = *group++ = '\0';
    group[strcspn(group, "\n")] = '\0';
    if (strncmp(group, "/..", 3) == 0)
      continue;
    if (!*controllers)
      snprintf(second, PATH_BYTES, "%s", group);
    else if (has_controller(controllers, controller))
      snprintf(first, PATH_BYTES, "%s", group);
  }
  if (file)
    fclose(file);
}

/* Visits a group and its parents. In a container, `group` may be the name that the host has for the
 * container's root; visitors ignore folders that do not exist. */
static void walk_up(const char *root, const char *mount, const char *group,
                    void (*visit)(void *user, const char *folder), void *user) {
  char path[3 * PATH_BYTES], rest[PATH_BYTES];
  snprintf(rest, sizeof rest, "%s", group);
  for (;;) {
    snprintf(path, sizeof path, "%s%s%s", root, mount, rest);
    visit(user, path);
    char *last = strrchr(rest, '/');
    if (!last)
      return;
    *last = '\0';
  }
}

void gd_cgroup_walk(const char *root, const char *controller,
                    void (*visit)(void *user, const char *folder), void *user) {
  char first[PATH_BYTES], second[PATH_BYTES], mount[64];
  find_groups(root, controller, first, second);
  snprintf(mount, sizeof mount, "/sys/fs/cgroup/%.32s", controller);
  walk_up(root, mount, first, visit, user);
  walk_up(root, "/sys/fs/cgroup", second, visit, user);
}

/* --- CPUs ---------------------------------------------------------------------------------- */

static bool read_line(const char *folder, const char *name, char *line, int size) {
  char path[4 * PATH_BYTES];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *file = fopen(path, "r");
  bool got = file && fgets(line, size, file);
  if (file)
    fclose(file);
  return got;
}

/* cpu.max is "QUOTA PERIOD" or "max PERIOD"; before, two files, and a quota of -1 is none. */
static void take_quota(void *user, const char *folder) {
  double *least = user, quota = 0, period = 0;
  char line[128], *end;
  if (read_line(folder, "cpu.max", line, sizeof line)) {
    quota = strtod(line, &end);
    period = strtod(end, NULL);
  } else if (read_line(folder, "cpu.cfs_quota_us", line, sizeof line)) {
    quota = strtod(line, NULL);
    if (read_line(folder, "cpu.cfs_period_us", line, sizeof line))
      period = strtod(line, NULL);
  }
  if (quota > 0 && period > 0 && (*least == 0 || quota / period < *least))
    *least = quota / period;
}

double gd_cgroup_cpus(const char *root) {
  double cpus = 0;
  gd_cgroup_walk(root, "cpu", take_quota, &cpus);
  return cpus;
}

/* A group that waits for its own quota is not counted in the one above. */
static void add_throttled(void *user, const char *folder) {
  static const struct {
    const char *name;
    int64_t ns;
  } fields[] = {{"throttled_usec ", 1000}, {"throttled_time ", 1}};
  int64_t *sum = user;
  char path[4 * PATH_BYTES], line[128];
  snprintf(path, sizeof path, "%s/cpu.stat", folder);
  FILE *file = fopen(path, "r");
  while (file && fgets(line, sizeof line, file))
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
      if (strncmp(line, fields[i].name, strlen(fields[i].name)) == 0) {
        int64_t value = strtoll(line + strlen(fields[i].name), NULL, 10);
        if (value > 0 && value < INT64_MAX / fields[i].ns - *sum)
          *sum += value * fields[i].ns;
      }
  if (file)
    fclose(file);
}

int64_t gd_cgroup_throttled_ns(const char *root) {
  int64_t sum = 0;
  gd_cgroup_walk(root, "cpu", add_throttled, &sum);
  return sum;
}

/* --- memory -------------------------------------------------------------------------------- */

/* The innermost folder that has the count: of the second version it is the sum of those within. */
static void take_oom_kills(void *user, const char *folder) {
  static const char *const names[] = {"memory.events", "memory.oom_control"};
  static const char field[] = "oom_kill ";
  int64_t *count = user;
  for (size_t i = 0; i < sizeof names / sizeof *names && *count < 0; i++) {
    char path[4 * PATH_BYTES], line[128];
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file))
      if (strncmp(line, field, sizeof field - 1) == 0)
        *count = strtoll(line + sizeof field - 1, NULL, 10);
    if (file)
      fclose(file);
  }
}

int64_t gd_cgroup_oom_kills(const char *root) {
  int64_t count = -1;
  gd_cgroup_walk(root, "memory", take_oom_kills, &count);
  return count;
}
