/*
 * Memory of the machine: what the kernel says is available, or the limit of a container or of a
 * cluster's job below that.
 */
#include "backend/host_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cgroup.h"

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

/* "max", or a file that is not there, is no limit. The second version has its own name. */
static void take_least(void *user, const char *folder) {
  static const char *const names[] = {"memory.limit_in_bytes", "memory.max"};
  int64_t *least = user;
  char path[4 * PATH_BYTES];
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    snprintf(path, sizeof path, "%s/%s", folder, names[i]);
    int64_t limit = read_limit(path);
    *least = limit < *least ? limit : *least;
  }
}

static int64_t cgroup_limit_bytes(const char *root) {
  int64_t least = INT64_MAX;
  gd_cgroup_walk(root, "memory", take_least, &least);
  return least;
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
