/*
 * Memory of the machine: what the kernel says is available, or the limit of a container or of a
 * cluster's job below that.
 */
#include "backend/host_memory.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* A field of /proc/meminfo or 0. */
static int64_t meminfo_bytes(const char *root, const char *field) {
  char line[256], path[PATH_BYTES];
  int64_t kib = 0;
  snprintf(path, sizeof path, "%s/proc/meminfo", root);
  FILE *file = fopen(path, "r");
  if (!file)
    return 0;
  while (fgets(line, sizeof line, file))
    if (strncmp(line, field, strlen(field)) == 0) {
      kib = strtoll(line + strlen(field), NULL, 10);
      break;
    }
  fclose(file);
  return kib * 1024;
}

/* The number in a group's file. "max", or no such file: the group sets no limit. */
static int64_t read_limit(const char *path) {
  char line[64];
  FILE *file = fopen(path, "r");
  if (!file)
    return INT64_MAX;
  char *got = fgets(line, sizeof line, file);
  fclose(file);
  return got && line[0] >= '0' && line[0] <= '9' ? strtoll(line, NULL, 10) : INT64_MAX;
}

/*
 * The least limit on the way up from `group` to where its hierarchy is mounted: a group has no more
 * than those that it is in. In a container `group` may be the host's name of what is mounted as the
 * root there; the folders that are then not there are passed over.
 */
static int64_t least_limit(const char *root, const char *mount, char *group, const char *name) {
  char path[2 * PATH_BYTES];
  int64_t least = INT64_MAX;
  for (;;) {
    snprintf(path, sizeof path, "%s%s%s/%s", root, mount, group, name);
    int64_t limit = read_limit(path);
    least = limit < least ? limit : least;
    char *last = strrchr(group, '/');
    if (!last)
      return least;
    *last = '\0';
  }
}

/* "memory" among the controllers of the first version of control groups, "cpu,memory". */
static bool has_memory(const char *controllers) {
  while (*controllers) {
    size_t length = strcspn(controllers, ",");
    if (length == strlen("memory") && strncmp(controllers, "memory", length) == 0)
      return true;
    controllers += length + (controllers[length] == ',');
  }
  return false;
}

/*
 * Lines of /proc/self/cgroup are ID:CONTROLLERS:PATH; the second version's are "0::PATH". Where the
 * process was moved out of what its namespace shows, PATH begins with "/..": no folder of ours.
 */
static int64_t cgroup_limit_bytes(const char *root) {
  char line[PATH_BYTES], path[PATH_BYTES], unified[PATH_BYTES] = "", memory[PATH_BYTES] = "";
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
      snprintf(unified, sizeof unified, "%s", group);
    else if (has_memory(controllers))
      snprintf(memory, sizeof memory, "%s", group);
  }
  if (file)
    fclose(file);
  int64_t first = least_limit(root, "/sys/fs/cgroup/memory", memory, "memory.limit_in_bytes");
  int64_t second = least_limit(root, "/sys/fs/cgroup", unified, "memory.max");
  return first < second ? first : second;
}

int64_t gd_host_memory_under(const char *root) {
  int64_t available = meminfo_bytes(root, "MemAvailable:"), limit = cgroup_limit_bytes(root);
  return available < limit ? available : limit;
}

int64_t gd_host_memory_bytes(void) {
  return gd_host_memory_under("");
}

int64_t gd_host_memory_total_bytes(void) {
  int64_t total = meminfo_bytes("", "MemTotal:"), limit = cgroup_limit_bytes("");
  return total < limit ? total : limit;
}
