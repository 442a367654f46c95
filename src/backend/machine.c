/*
 * The text of a machine; see machine.h.
 */
#define _GNU_SOURCE /* environ */
#include "backend/machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/host_memory.h"
#include "backend/libraries.h"
#include "base/cgroup.h"
#include "base/compare.h"
#include "base/cpus.h"
#include "base/switches.h"
#include "comm/comm.h"

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

/* CPUs that a control group leaves us, in hundredths; all of them: nothing. */
static void put_quota(struct writer *to) {
  char text[32];
  double cpus = gd_cgroup_cpus("");
  snprintf(text, sizeof text, "%.2f", cpus);
  put(to, "quota", cpus > 0 && (gd_cpus(0) == 0 || cpus < gd_cpus(0)) ? text : "");
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

/* --- NVIDIA -------------------------------------------------------------------------------- */

static void put_library(void *user, const struct gd_library *library) {
  if (!library->only_watches)
    put(user, library->name, library->path ? library->version : "none");
}

static void put_driver(struct writer *to) {
  char version[64];
  read_value("/sys/module/nvidia/version", NULL, version, sizeof version);
  put(to, "driver", version);
  gd_libraries(put_library, to);
}

void gd_machine_driver(char *text, size_t size) {
  struct writer to = {.text = text, .size = size};
  text[0] = '\0';
  if (gd_libraries_driver())
    put_driver(&to);
}

/* --- switches ------------------------------------------------------------------------------ */

extern char **environ;

static bool begins(const char *text, const char *with) {
  return strncmp(text, with, strlen(with)) == 0;
}

/* What ranks exchange messages by; what mpirun tells its own processes is not in it. */
static bool tunes_ranks(const char *variable) {
  static const char *const prefixes[] = {"OMPI_MCA_pml", "OMPI_MCA_btl", "OMPI_MCA_coll",
                                         "OMPI_MCA_mtl", "OMPI_MCA_osc", "OMPI_MCA_mpi_yield"};
  /* Where the segments of ranks lie is decided by our own launcher. */
  if (begins(variable, "OMPI_MCA_btl_vader_backing") || begins(variable, "OMPI_MCA_btl_sm_backing"))
    return false;
  for (size_t i = 0; i < sizeof prefixes / sizeof *prefixes; i++)
    if (begins(variable, prefixes[i]))
      return true;
  return false;
}

/* Whether a variable "NAME=value" can change how fast a trial is. */
static bool is_switch(const char *variable, int ranks) {
  static const char *const prefixes[] = {"NCCL_", "CUBLAS", "CUDNN_"};
  static const char *const names[] = {"CUDA_LAUNCH_BLOCKING=", "CUDA_DEVICE_MAX_CONNECTIONS=",
                                      "CUDA_MODULE_LOADING=",  "NVIDIA_TF32_OVERRIDE=",
                                      "OMP_PROC_BIND=",        "OMP_PLACES=",
                                      "GOMP_CPU_AFFINITY=",    "CC="};
  /* These change no time: versions that images of containers note, and settings of logs. */
  static const char *const without[] = {"NCCL_VERSION=",       "NCCL_DEBUG",
                                        "CUDNN_VERSION=",      "CUDNN_LOGDEST_DBG=",
                                        "CUDNN_LOGLEVEL_DBG=", "CUBLAS_LOG"};
  if (begins(variable, "GPUDAYS_")) {
    const struct gd_switch *own = gd_switch_find(variable);
    return own && own->kind == GD_SWITCH_TUNING; /* what is not in the table is never read */
  }
  if (ranks > 1 && tunes_ranks(variable))
    return true;
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

static void put_switches(struct writer *to, int ranks) {
  enum { MOST = 64 };
  const char *found[MOST];
  size_t count = 0;
  for (char **at = environ; at && *at && count < MOST; at++)
    if (is_switch(*at, ranks))
      found[count++] = *at;
  qsort(found, count, sizeof *found, gd_compare_texts);
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
  char cpu[128], version[64];
  text[0] = '\0';
  read_value("/proc/cpuinfo", "model name", cpu, sizeof cpu);
  put(&to, "cpu", cpu);
  put_number(&to, "cores", gd_cpus(0), "");
  put_quota(&to);
  put_memory(&to, "memory", gd_host_memory_total_bytes());
  if (ranks > 1 && gd_comm_version(version, sizeof version))
    put(&to, "OpenMPI", version);
  if (gd_backend_is_gpu(backend)) {
    put(&to, "gpu", info->name);
    put_number(&to, "gpus", info->devices > 0 && info->devices < ranks ? info->devices : ranks, "");
    put_memory(&to, "gpu_memory", info->memory_bytes);
    put_driver(&to);
  }
  put_switches(&to, ranks);
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
