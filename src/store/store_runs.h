/*
 * Runs of `gpudays train` in the store: what a process that trained has measured from its first
 * step to its last. They are no trials: `best` does not choose them and no search takes them for an
 * answer; `accuracy` holds predictions against them.
 */
#ifndef GD_STORE_STORE_RUNS_H
#define GD_STORE_STORE_RUNS_H

#include "base/file.h"
#include "store/store.h"

struct gd_run_record {
  char folder[GD_FILE_PATH];     /* absolute, on its host */
  int64_t first_step, last_step; /* done before this process, and in all */
  bool finished;                 /* the recipe's last step is done */
  double seconds;                /* from the first step to the last: evaluation, checkpoints */
  double stalled_s, data_s;      /* of them, for checkpoints; data wait */
  double expected_step_s;        /* what it was started on; 0: nobody said */
  char expected_by[16];          /* "trial", "prediction" or empty */
  char slowed_by[256];           /* what was seen where it was slower; empty: it was not */
  struct gd_trial trial;         /* the plan; step_s (median), rates, MFU and loss of the run */
  struct gd_provenance provenance;
};

/* One process is one row: put again, it takes the place of what it was. provenance is set here. */
enum gd_status gd_store_put_run(struct gd_store *store, const struct gd_run_record *run,
                                struct gd_error *err) GD_MUST_USE;
/* Visits all of them, oldest first; a status other than GD_OK ends it and is returned. A row that
   cannot be read is left out, and told by gd_store_damage. trial.status is ok. */
enum gd_status gd_store_query_runs(struct gd_store *store,
                                   enum gd_status (*visit)(void *user,
                                                           const struct gd_run_record *run,
                                                           struct gd_error *err),
                                   void *user, struct gd_error *err) GD_MUST_USE;

#endif
