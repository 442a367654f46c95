/*
 * From days of computing to days of the calendar: a cluster ends a job at its limit, and the next
 * one waits in the queue. What a job spends on starting, on loading the checkpoint and on ending in
 * order is added; no training step is lost, since a job stops in order (src/search/slurm_run.h).
 *
 *   struct gd_queue queue = {.wall_limit_s = 86400, .wait_s = 21600};
 *   struct gd_calendar calendar;
 *   gd_calendar_find(&queue, checkpoint_bytes, days, days_low, days_high, &calendar);
 *   ... calendar.jobs, calendar.days: INFINITY where a job ends before it trains ...
 *
 * And deadlines: whether days with an interval are within so many.
 */
#ifndef GD_MONEY_CALENDAR_H
#define GD_MONEY_CALENDAR_H

#include <stdbool.h>
#include <stdint.h>

/* --- deadlines ----------------------------------------------------------------------------- */

enum gd_deadline {
  GD_DEADLINE_NONE,    /* nobody asked */
  GD_DEADLINE_LIKELY,  /* the upper end of the interval is within it */
  GD_DEADLINE_AT_RISK, /* it lies inside of the interval */
  GD_DEADLINE_NO       /* the lower end is beyond it */
};
/* limit_days 0: none. */
enum gd_deadline gd_deadline_of(double days_low, double days_high, double limit_days);
const char *gd_deadline_name(enum gd_deadline deadline); /* "", "likely", "at risk", "no" */

/* --- the queue ----------------------------------------------------------------------------- */

/* Assumed, and not measured on a cluster: the node, the container, libraries and kernels, until the
   checkpoint is read. */
#define GD_QUEUE_STARTUP_S 120.0
/* Assumed: what a job gets of a file system that a cluster shares, for a checkpoint that is read or
   written. */
#define GD_QUEUE_BYTES_PER_S 1e9
/* How long the loop stands still for a checkpoint, which is written next to training from a copy in
   host memory: 11.3 GiB in 0.22 s, results/training/README.md. */
#define GD_QUEUE_COPY_BYTES_PER_S 55e9
/* `gpudays train` writes one so often, unless told otherwise. */
#define GD_QUEUE_CHECKPOINT_EVERY_S 1800.0
enum { GD_QUEUE_JOBS_MOST = 100000 }; /* of one run */

struct gd_queue {
  double wall_limit_s; /* of a job; 0: none, the run is one job */
  double wait_s;       /* of a job, since it was submitted */
  int at_a_time;       /* jobs of the run in the queue, the one that runs too; 0: one. See below */
};
/*
 * at_a_time 1: a job is submitted when the one before it has ended, and all of them wait in full.
 * 2: when that one is submitted, and so on: it waits while others run. This holds where waiting for
 * another job counts as waiting, which in SLURM is PriorityFlags=ACCRUE_ALWAYS.
 */

struct gd_calendar {
  double days, days_low, days_high; /* from now to the end of the last job */
  int64_t jobs;                     /* 0: no queue was asked about, and days are as given */
  double checkpoint_bytes;
  double overhead_s; /* of a job in the middle: what it does not train */
};

bool gd_queue_is_asked(const struct gd_queue *queue);
/* The time of a job in which it does not train: start, load, and the end before its limit. */
double gd_queue_overhead_s(const struct gd_queue *queue, double checkpoint_bytes);
/* days_low and days_high: equal to days where no interval is known. */
void gd_calendar_find(const struct gd_queue *queue, double checkpoint_bytes, double days,
                      double days_low, double days_high, struct gd_calendar *calendar);

#endif
