/*
 * The load of other programs on the CPUs that a measurement uses. The interval of a trial shows
 * what varies from sample to sample; a neighbour that computes all the time makes every sample
 * longer alike, and only the machine's own accounts show it.
 *
 * What is looked at is the CPU time of others, not ours: OpenMP threads spin while they wait, so
 * that a process with half a machine to itself looks as busy as one with the whole.
 *
 *   struct gd_load before, after;
 *   gd_load_read(&before);
 *   work();
 *   gd_load_read(&after);
 *   if (gd_load_share(&before, &after) > GD_LOAD_QUIET)
 *     complain();
 */
#ifndef GD_TRIAL_LOAD_H
#define GD_TRIAL_LOAD_H

#include <stdint.h>

#include "base/ticker.h"

/* Up to this share of others a measurement counts as one on a quiet machine. */
#define GD_LOAD_QUIET 0.05
/* A process that was stopped for more than this share of the time is not measured. */
#define GD_LOAD_GROSS 0.67
/* The kernel counts in ticks of 10 ms a CPU: below this, one tick more or less is over 2 %. */
#define GD_LOAD_SHORTEST_NS INT64_C(500000000)

/* The accounts at one moment; differences mean something, values do not. */
struct gd_load {
  int64_t wall_ns;
  int64_t own_ns;   /* CPU time of this process, over its threads */
  int64_t busy_ns;  /* CPU time of everybody on the CPUs that this process may use; -1: unknown */
  int64_t steal_ns; /* of that, taken by the host of a virtual machine */
  int64_t throttled_ns; /* denied to this process's control groups for a quota */
  int cpus;             /* how many those are */
};

void gd_load_read(struct gd_load *now);

/*
 * CPU time that others (and the host of a virtual machine: steal) took between two readings, as a
 * share of all there was; 0..1. -1: unknown, for want of /proc/stat or because the readings lie too
 * close together.
 */
double gd_load_share(const struct gd_load *before, const struct gd_load *after);

/* CPU time that a quota denied, as a share of what this process asked for; 0..1. */
double gd_load_throttled_share(const struct gd_load *before, const struct gd_load *after);
/* What the host of a virtual machine took of the CPUs, likewise part of gd_load_share; 0..1. */
double gd_load_steal_share(const struct gd_load *before, const struct gd_load *after);

/*
 * Notices when the process as a whole does not run: stopped by a signal, frozen, denied its CPUs. A
 * thread sleeps for 5 ms at a time; what it sleeps longer by, from 20 ms on, is counted.
 */
struct gd_load_watch {
  struct gd_ticker ticker;
  int64_t start_ns, last_ns, stalled_ns, queued_ns;
  int schedstat; /* open file; -1: none */
};
/* Without a thread to be had nothing is counted. */
void gd_load_watch_start(struct gd_load_watch *watch);
/* The share of the time since then that the process did not run; 0..1. */
double gd_load_watch_stop(struct gd_load_watch *watch);

/* Ticks that the CPU of one line of /proc/stat was not idle, those of them that were stolen, and
 * its number; -1: no such line. */
int64_t gd_load_parse(const char *line, int *cpu, int64_t *steal);

#endif
