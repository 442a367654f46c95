/*
 * Starts this program again as the ranks of a job under mpirun, or as one process that is watched;
 * waits for them, and starts them again when they die.
 *
 *   GD_TRY(gd_ranks_run(&(struct gd_ranks_order){.argc = argc, .argv = argv, ...}, &code, err));
 */
#ifndef GD_COMM_START_RANKS_H
#define GD_COMM_START_RANKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* In the environment of ranks that were started again: how often that was. */
#define GD_RANKS_RETRIED "GPUDAYS_RETRIED"

struct gd_ranks_order {
  int argc; /* of this process: each rank gets the same */
  char **argv;
  int64_t ranks;         /* 1: one process, without mpirun */
  double rank_timeout_s; /* 0: the default */
  const char *mark;      /* variable that is set here, and for the ranks */
  bool orderly;          /* ranks that have met end by themselves when they get SIGUSR1 */
  int64_t retries;       /* they are started again so often when they die or are lost */
  void (*heard)(const char *text, size_t length);                  /* what they write to stderr */
  void (*retries_now)(const char *why, int64_t retry, int64_t of); /* why: "" where they said it */
};

/*
 * *code becomes their exit code. What a user did wrong, and an answer that is no, are not tried
 * again. GD_ENVIRONMENT: there is no mpirun, or a rank died or was lost; GD_INTERNAL: one crashed.
 */
enum gd_status gd_ranks_run(const struct gd_ranks_order *order, int *code,
                            struct gd_error *err) GD_MUST_USE;

#endif
