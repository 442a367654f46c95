/*
 * A run of training as jobs of SLURM, one after another: each submits its successor before it
 * begins, ends in order before its limit, and the last one cancels what it has submitted. So a run
 * goes on whatever ends a job. RUN/slurm has job.sh, log-ID of each job, and two lists that jobs
 * append to: "jobs" (id, step that it began with, when) and "ended" (id, exit code, when).
 */
#ifndef GD_SEARCH_SLURM_RUN_H
#define GD_SEARCH_SLURM_RUN_H

#include "search/slurm_config.h"
#include "search/slurm_int.h"

/* Submits the first job; script: what the caller knows of it. *id is the job's. GD_BAD_INPUT where
   the run has a job already. */
enum gd_status gd_slurm_run_submit(const struct gd_slurm_config *config, const char *run,
                                   const struct gd_slurm_run_script *script, char id[GD_SLURM_ID],
                                   struct gd_error *err) GD_MUST_USE;

struct gd_slurm_run_job {
  char id[GD_SLURM_ID];
  char state[32];     /* as SLURM says; "ENDED" where it has forgotten it */
  int64_t first_step; /* that it began with; -1: it has not begun */
  int64_t begun_s;    /* since 1970 */
  int code;           /* -1: it has not ended, or not in order */
};
/* All jobs of a run, the oldest first, and one that waits behind them. Free with gd_mem_free. */
enum gd_status gd_slurm_run_list(const char *run, struct gd_slurm_run_job **jobs, int *count,
                                 struct gd_error *err) GD_MUST_USE;

#endif
