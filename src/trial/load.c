/*
 * The load of other programs, from /proc/stat; see load.h.
 */
#define _GNU_SOURCE
#include "trial/load.h"

#include <fcntl.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/clock.h"

int64_t gd_load_parse(const char *line, int *cpu, int64_t *steal) {
  /* proc(5): user nice system idle iowait irq softirq steal; guest time is part of user's. */
  static const char busy[] = {1, 1, 1, 0, 0, 1, 1, 1};
  char *end;
  int64_t ticks = 0;
  /* The line of all CPUs together has a blank where the number would be. */
  if (strncmp(line, "cpu", 3) != 0 || line[3] < '0' || line[3] > '9')
    return -1;
  long number = strtol(line + 3, &end, 10);
  if (number > INT32_MAX)
    return -1;
  for (size_t i = 0; i < sizeof busy; i++) {
    const char *start = end;
    long long value = strtoll(start, &end, 10);
    if (end == start)
      return -1;
    ticks += busy[i] ? value : 0;
    *steal = value; /* the last of them */
  }
  *cpu = (int)number;
  return ticks;
}

void gd_load_read(struct gd_load *now) {
  char line[512];
  cpu_set_t set;
  struct timespec own = {0};
  int64_t ticks = 0, steal = 0;
  FILE *file = fopen("/proc/stat", "r");
  *now = (struct gd_load){.busy_ns = -1};
  if (file && sched_getaffinity(0, sizeof set, &set) == 0) {
    while (fgets(line, sizeof line, file)) {
      int cpu;
      int64_t stolen, busy = gd_load_parse(line, &cpu, &stolen);
      if (busy < 0 || cpu >= CPU_SETSIZE || !CPU_ISSET((size_t)cpu, &set))
        continue;
      ticks += busy;
      steal += stolen;
      now->cpus++;
    }
    if (now->cpus > 0)
      now->busy_ns = ticks * (INT64_C(1000000000) / sysconf(_SC_CLK_TCK));
    now->steal_ns = steal * (INT64_C(1000000000) / sysconf(_SC_CLK_TCK));
  }
  if (file)
    fclose(file);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  now->own_ns = (int64_t)own.tv_sec * 1000000000 + own.tv_nsec;
  now->throttled_ns = gd_cgroup_throttled_ns("");
  now->wall_ns = gd_clock_ns();
}

/* Ticks are rounded, so a share may come out a little below 0 or above 1. NaN (0 / 0) is 0. */
static double within_one(double share) {
  return share > 0 ? fmin(share, 1) : 0;
}

double gd_load_share(const struct gd_load *before, const struct gd_load *after) {
  int64_t wall_ns = after->wall_ns - before->wall_ns;
  if (before->busy_ns < 0 || after->busy_ns < 0 || before->cpus != after->cpus || after->cpus < 1 ||
      wall_ns < GD_LOAD_SHORTEST_NS)
    return -1;
  int64_t others_ns = (after->busy_ns - before->busy_ns) - (after->own_ns - before->own_ns);
  return within_one((double)others_ns / ((double)wall_ns * after->cpus));
}

/* Both count over CPUs, so that the number of threads does not matter. */
double gd_load_throttled_share(const struct gd_load *before, const struct gd_load *after) {
  double denied = (double)(after->throttled_ns - before->throttled_ns);
  return within_one(denied / (denied + (double)(after->own_ns - before->own_ns)));
}

double gd_load_steal_share(const struct gd_load *before, const struct gd_load *after) {
  if (gd_load_share(before, after) < 0)
    return 0;
  return within_one((double)(after->steal_ns - before->steal_ns) /
                    ((double)(after->wall_ns - before->wall_ns) * after->cpus));
}

/* --- the process as a whole ---------------------------------------------------------------- */

enum { TICK_NS = 5000000, LATE_NS = 20000000 };

/* Nanoseconds that the ticker's thread was ready and waited for a CPU, so far: the second number of
   its schedstat (proc(5)). 0: not known. The file stays open, as it is read 200 times a second. */
static int64_t queued_ns(struct gd_load_watch *watch) {
  char text[96];
  if (watch->schedstat < 0)
    watch->schedstat = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
  ssize_t count = watch->schedstat < 0 ? 0 : pread(watch->schedstat, text, sizeof text - 1, 0);
  text[count > 0 ? count : 0] = '\0';
  const char *second = strchr(text, ' ');
  return second ? strtoll(second, NULL, 10) : 0;
}

/* A thread that waits for its turn on busy CPUs is late too, but the process was not stopped: other
   programs are counted by gd_load_share. */
static void notice_stall(void *user) {
  struct gd_load_watch *watch = user;
  int64_t now = gd_clock_ns(), queued = queued_ns(watch);
  int64_t late = now - watch->last_ns - TICK_NS - (queued - watch->queued_ns);
  watch->stalled_ns += late >= LATE_NS ? late : 0;
  watch->last_ns = now;
  watch->queued_ns = queued;
}

void gd_load_watch_start(struct gd_load_watch *watch) {
  int64_t now = gd_clock_ns();
  *watch = (struct gd_load_watch){.start_ns = now, .last_ns = now, .schedstat = -1};
  gd_ticker_start(&watch->ticker, TICK_NS, notice_stall, watch);
}

double gd_load_watch_stop(struct gd_load_watch *watch) {
  gd_ticker_stop(&watch->ticker);
  if (watch->schedstat >= 0)
    close(watch->schedstat);
  double wall_ns = (double)(gd_clock_ns() - watch->start_ns);
  if (wall_ns < (double)GD_LOAD_SHORTEST_NS) /* one turn of another program is most of it */
    return 0;
  return within_one((double)watch->stalled_ns / wall_ns);
}
