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
#ifndef GD_SEARCH_LOAD_H
#define GD_SEARCH_LOAD_H

#include <stdint.h>

/* Up to this share of others a measurement counts as one on a quiet machine. */
#define GD_LOAD_QUIET 0.05
/* The kernel counts in ticks of 10 ms a CPU: below this, one tick more or less is over 2 %. */
#define GD_LOAD_SHORTEST_NS INT64_C(500000000)

/* The accounts at one moment; differences mean something, values do not. */
struct gd_load {
  int64_t wall_ns;
  int64_t own_ns;  /* CPU time of this process, over its threads */
  int64_t busy_ns; /* CPU time of everybody on the CPUs that this process may use; -1: unknown */
  int cpus;        /* how many those are */
};

void gd_load_read(struct gd_load *now);

/*
 * CPU time that others (and the host of a virtual machine: steal) took between two readings, as a
 * share of all there was; 0..1. -1: unknown, for want of /proc/stat or because the readings lie too
 * close together.
 */
double gd_load_share(const struct gd_load *before, const struct gd_load *after);

/* Ticks that the CPU of one line of /proc/stat was not idle, and its number; -1: no such line. */
int64_t gd_load_parse(const char *line, int *cpu);

#endif
