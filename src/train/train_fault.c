/*
 * Faults of tests; see train_fault.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "train/train_fault.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/switches.h"

/* What stands behind NAME@STEP: "", "=VALUE..." or ",..."; NULL: it is not in the list. */
static const char *find(const char *name, int64_t step) {
  const char *at = gd_env("GPUDAYS_TEST_TRAIN");
  size_t length = strlen(name);
  while (at && *at) {
    if (strncmp(at, name, length) == 0 && at[length] == '@') {
      char *end;
      if (strtoll(at + length + 1, &end, 10) == step)
        return end;
    }
    at += strcspn(at, ",");
    at += *at == ',';
  }
  return NULL;
}

bool gd_train_fault(const char *name, int64_t step) {
  return find(name, step) != NULL;
}

void gd_train_fault_hold(int64_t step, bool (*asked)(void *user), void *user) {
  const char *value = find("hold", step);
  char path[GD_FILE_PATH];
  if (!value || *value != '=')
    return;
  snprintf(path, sizeof path, "%.*s", (int)strcspn(value + 1, ","), value + 1);
  while (access(path, F_OK) == 0 && !(asked && asked(user)))
    nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
}

void gd_train_fault_slow(int64_t step) {
  const char *value = step > 0 ? find("slow", 1) : NULL;
  long long ms = value && *value == '=' ? strtoll(value + 1, NULL, 10) : 0;
  if (ms > 0)
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}
