/*
 * OpenMPI's mpirun as a child process: found, started, listened to, and ended with all of its ranks
 * whatever happens. Its reports on stderr become one sentence. A run of one process that is to be
 * started again when it dies is watched in the same way, without mpirun.
 */
#ifndef GD_COMM_MPIRUN_H
#define GD_COMM_MPIRUN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/scratch.h"
#include "base/status.h"

/* The path of mpirun; GD_ENVIRONMENT with the remedy where there is none. */
enum gd_status gd_mpirun_find(char *path, size_t size, struct gd_error *err) GD_MUST_USE;

/* The line on stderr by which rank 0 says that all ranks have met in MPI_Init. */
#define GD_MPIRUN_MET "@met"

struct gd_mpirun_order {
  const char *const *arguments; /* the first is mpirun's path; NULL after the last */
  double meet_s;                /* the ranks have so long to start and meet, from now on */
  struct gd_scratch *scratch;   /* where the ranks keep shared memory: removed when they are gone */
  bool alone;                   /* there is no mpirun: the process is the only rank */
  bool orderly;                 /* ranks that have met end by themselves when they get SIGUSR1 */
  void (*heard)(const char *text, size_t length); /* what ranks write to stderr, as it comes */
};

/*
 * Runs mpirun until it and all its descendants are gone. *code is the exit code of ranks that ended
 * in order or said themselves why not. A rank or mpirun that was killed, and ranks that do not meet
 * in time, are GD_ENVIRONMENT; a rank that crashed is GD_INTERNAL. SIGINT, SIGTERM, SIGHUP and
 * SIGUSR1 end the ranks within a second, then this process. Ranks of an orderly run get SIGUSR1
 * instead and end by themselves; a second signal ends them as above. *asked, if not NULL, says
 * whether a signal came.
 */
enum gd_status gd_mpirun_run(const struct gd_mpirun_order *order, int *code, bool *asked,
                             struct gd_error *err) GD_MUST_USE;

#endif
