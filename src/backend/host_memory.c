/*
 * Memory of the machine: what the kernel says is available, or a container's limit below that.
 */
#include "backend/host_memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A field of /proc/meminfo or 0. */
static int64_t meminfo_bytes(const char *field) {
  char line[256];
  int64_t kib = 0;
  FILE *file = fopen("/proc/meminfo", "r");
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

/* A container's memory limit, where there is one below the machine's. */
static int64_t cgroup_limit_bytes(void) {
  static const char *const files[] = {"/sys/fs/cgroup/memory.max",
                                      "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    char line[64];
    FILE *file = fopen(files[i], "r");
    if (!file)
      continue;
    char *got = fgets(line, sizeof line, file);
    fclose(file);
    if (got && line[0] >= '0' && line[0] <= '9')
      return strtoll(line, NULL, 10);
  }
  return INT64_MAX;
}

int64_t gd_host_memory_bytes(void) {
  int64_t available = meminfo_bytes("MemAvailable:"), limit = cgroup_limit_bytes();
  return available < limit ? available : limit;
}
