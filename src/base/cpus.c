/*
 * The affinity mask; see cpus.h.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include "base/cpus.h"

#include <sched.h>

int gd_cpus(int unknown) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : unknown;
}
