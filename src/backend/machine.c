/*
 * The text of a machine; see machine.h.
 */
#define _GNU_SOURCE /* sched_getaffinity, environ */
#include "backend/machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/cuda_int.h"
#include "backend/host_memory.h"

struct writer {
  char *text;
  size_t size, length;
  uint64_t hash; /* of all that was put, also of what did not fit */
  bool cut;
};

static void put_char(struct writer *to, char c) {
  to->hash = (to->hash ^ (unsigned char)c) * 0x100000001b3u; /* FNV-1a */
  if (to->length + 1 < to->size) {
    to->text[to->length++] = c;
    to->text[to->length] = '\0';
  } else {
    to->cut = true;
  }
}

/* A value is one line of printable ASCII without the separator. */
static void put(struct writer *to, const char *name, const char *value) {
  if (!value[0])
    return;
  if (to->length)
    put_char(to, ';');
  for (; *name; name++)
    put_char(to, *name);
  put_char(to, '=');
  for (; *value; value++)
    put_char(to, *value < ' ' || *value > '~' || *value == ';' ? '?' : *value);
}

static void put_number(struct writer *to, const char *name, int64_t value, const char *unit) {
  char text[48];
  snprintf(text, sizeof text, "%lld%s", (long long)value, unit);
  put(to, name, value > 0 ? text : "");
}

/* Equal nodes differ by some megabytes that the kernel keeps for itself. */
static void put_memory(struct writer *to, const char *name, int64_t bytes) {
  const int64_t gib = (int64_t)1 << 30;
  put_number(to, name, bytes > 0 && bytes < gib ? 1 : (bytes + gib / 2) / gib, " GiB");
}

/* The value of a line "name : value" of a file, or its first line where name is NULL. */
static void read_value(const char *path, const char *name, char *text, size_t size) {
  char line[512];
  text[0] = '\0';
  FILE *file = fopen(path, "re");
  while (file && !text[0] && fgets(line, sizeof line, file)) {
    char *value = line;
    if (name) {
      if (strncmp(line, name, strlen(name)) != 0)
        continue;
      value = strchr(line, ':');
      value = value ? value + 1 + strspn(value + 1, " \t") : line + strlen(line);
    }
    value[strcspn(value, "\n")] = '\0';
    snprintf(text, size, "%s", value);
  }
  if (file)
    fclose(file);
}

static int count_cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 0;
}

/* --- NVIDIA -------------------------------------------------------------------------------- */

static void put_library(void *user, const struct gd_cuda_library *library) {
  if (!library->only_watches)
    put(user, library->name, library->path ? library->version : "none");
}

static void put_driver(struct writer *to) {
  char version[64];
  read_value("/sys/module/nvidia/version", NULL, version, sizeof version);
  put(to, "driver", version);
  gd_cuda_libraries(put_library, to);
}

void gd_machine_driver(char *text, size_t size) {
  const struct gd_cu *cu;
  struct writer to = {.text = text, .size = size};
  text[0] = '\0';
  if (gd_cu_load(&cu, NULL) == GD_OK)
    put_driver(&to);
}

/* --- switches ------------------------------------------------------------------------------ */

extern char **environ;

static bool begins(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

/* Whether a variable "NAME=value" can change how fast a trial is. */
static bool is_switch(const char *variable) {
  static const char *const prefixes[] = {"GPUDAYS_", "NCCL_", "CUBLAS", "CUDNN_", "OMPI_MCA_btl"};
  static const char *const names[] = {"CUDA_LAUNCH_BLOCKING=", "CUDA_DEVICE_MAX_CONNECTIONS=",
                                      "CUDA_MODULE_LOADING=",  "NVIDIA_TF32_OVERRIDE=",
                                      "OMP_PROC_BIND=",        "OMP_PLACES=",
                                      "GOMP_CPU_AFFINITY=",    "CC="};
  /* Where things are, what is written down, and what an image of a container says of itself. */
  static const char *const without[] = {
      "GPUDAYS_DB=",        "GPUDAYS_TEST_",      "GPUDAYS_ATTENTION_TRACE=",
      "GPUDAYS_CUDA_PATH=", "GPUDAYS_LIBMPI=",    "GPUDAYS_MPIRUN",
      "GPUDAYS_NVML=",      "NCCL_VERSION=",      "NCCL_DEBUG",
      "CUDNN_VERSION=",     "CUDNN_LOGDEST_DBG=", "CUDNN_LOGLEVEL_DBG=",
      "CUBLAS_LOG"};
  for (size_t i = 0; i < sizeof without / sizeof *without; i++)
    if (begins(variable, without[i]))
      return false;
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
    if (begins(variable, prefixes[i]))
      return true;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (begins(variable, names[i]))
      return true;
  return false;
}

static int compare_texts(const void *left, const void *right) {
  return strcmp(*(const char *const *)left, *(const char *const *)right);
}

static void put_switches(struct writer *to) {
  enum { MOST = 64 };
  const char *found[MOST];
  size_t count = 0;
  for (char **at = environ; at && *at && count < MOST; at++)
    if (is_switch(*at))
      found[count++] = *at;
  qsort(found, count, sizeof *found, compare_texts);
  for (size_t i = 0; i < count; i++) {
    char name[64];
    const char *equals = strchr(found[i], '=');
    if (!equals)
      continue;
    snprintf(name, sizeof name, "%.*s", (int)(equals - found[i]), found[i]);
    put(to, name, equals[1] ? equals + 1 : "empty");
  }
}

/* --- all of it ----------------------------------------------------------------------------- */

void gd_machine_print(const char *backend, const struct gd_device_info *info, int ranks,
                      char text[GD_MACHINE_TEXT]) {
  enum { HASH_BYTES = 24 };
  struct writer to = {.text = text, .size = GD_MACHINE_TEXT - HASH_BYTES};
  char cpu[128];
  text[0] = '\0';
  read_value("/proc/cpuinfo", "model name", cpu, sizeof cpu);
  put(&to, "cpu", cpu);
  put_number(&to, "cores", count_cores(), "");
  put_memory(&to, "memory", gd_host_memory_total_bytes());
  if (strcmp(backend, "cuda") == 0) {
    put(&to, "gpu", info->name);
    put_number(&to, "gpus", info->devices > 0 && info->devices < ranks ? info->devices : ranks, "");
    put_memory(&to, "gpu_memory", info->memory_bytes);
    put_driver(&to);
  }
  put_switches(&to);
  if (to.cut)
    snprintf(text + to.length, GD_MACHINE_TEXT - to.length, "...%016llx",
             (unsigned long long)to.hash);
}

int64_t gd_machine_number(const char *text, const char *name) {
  size_t length = strlen(name);
  for (const char *at = text; at && *at; at = strchr(at, ';') ? strchr(at, ';') + 1 : NULL)
    if (strncmp(at, name, length) == 0 && at[length] == '=')
      return strtoll(at + length + 1, NULL, 10);
  return 0;
}
