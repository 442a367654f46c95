/*
 * The search: models x methods in, results out. All points are planned first, which takes
 * milliseconds and answers those that do not fit; the store is asked for what is known; the rest is
 * measured, each trial in a process of its own (child.h), the most promising first, and stored
 * before the next one begins. Killed at any moment, the same search goes on where it was. With
 * SLURM (slurm.h) the trials are jobs instead, submitted in that order and stored as they end.
 *
 *   struct gd_search search = {.points = points, .count = 12, .trial = options, .store = store};
 *   GD_TRY(gd_search_run(&search, err));
 *   int best = gd_search_best(&search, 0);
 *
 * A trial that failed for want of something that the machine may have another time (memory, a
 * process that was killed, a time limit, a node) is measured again when it is asked for again,
 * after those that were never tried; one that would fail again is not, unless `retry_failed`.
 *
 * Promise: the step that is predicted to be the shortest comes first, and of equals the larger
 * micro-batch. The prediction is that of predict/predict.h: of this machine where it was
 * calibrated, else of a usual one, whose proportions are enough for an order.
 *
 * With `fast`, a point is measured only where the prediction cannot exclude it: its low end must
 * lie a hundredth below the best that was measured of its model. The low end is that best one's own
 * time and the predicted difference between the two, kind of op by kind of op, each difference off
 * by the predictor's error in the point's favour. The error of what both have in common falls out.
 */
#ifndef GD_SEARCH_SEARCH_H
#define GD_SEARCH_SEARCH_H

#include "search/slurm.h"
#include "search/trial.h"
#include "store/store.h"

enum gd_search_source {
  GD_SEARCH_PENDING,   /* not reached, or its process was ended with the search */
  GD_SEARCH_PLAN,      /* answered by the plan: it does not fit, or cannot be planned */
  GD_SEARCH_STORE,     /* read, not run */
  GD_SEARCH_RUN,       /* measured now */
  GD_SEARCH_PREDICTED, /* not measured: simulated, or excluded by `fast` */
};

struct gd_search_point {
  const char *argument;         /* what the user called the model */
  const struct gd_model *model; /* borrowed, with its recipe */
  struct gd_method method;
  /* results */
  struct gd_trial trial;
  enum gd_search_source source;
  enum gd_status status; /* what kind of failure an error was that is now trial.reason */
  int tried;             /* how often it has failed before, and is tried again */
  char stored_at[32];    /* GD_SEARCH_STORE: when it was measured */
  struct gd_prediction prediction;
  struct gd_store_key key;
};

struct gd_search {
  struct gd_search_point *points;
  int count;
  struct gd_trial_options trial;        /* of every point, but for the method */
  struct gd_store *store;               /* NULL: nothing is read or kept */
  const struct gd_predictor *predictor; /* borrowed */
  bool fresh;                           /* measure also what is known */
  bool retry_failed;      /* measure also what failed for a reason that will be there again */
  bool simulate;          /* measure nothing: predictions are the answer, and none is kept */
  bool fast;              /* leave out what the prediction excludes */
  double rank_timeout_s;  /* 0: the default */
  double trial_timeout_s; /* of one trial; 0: GD_SEARCH_TRIAL_TIMEOUT_S */
  double time_limit_s;    /* of the whole search; 0: none */
  struct gd_slurm *slurm; /* trials are its jobs; NULL: they run here */
  const struct gd_slurm_config *slurm_config;
  bool any_gpu; /* which GPU the jobs get is not known: trial.target stands in for it */
  /* Both may be NULL. eta_s is that of the whole search; below 0: not known. point is NULL where
   * the progress is that of all jobs. */
  void (*progress)(void *user, const struct gd_search_point *point, int number, int of,
                   const char *what, double done, double eta_s);
  void (*finished)(void *user, const struct gd_search_point *point);
  void *user;
  /* results */
  int stop_signal; /* that ended the search; 0: none */
  int n_run, n_stored, n_pending, n_predicted;
  int n_failed[GD_FAILURE_COUNT]; /* by why */
  char began[32];                 /* as in struct gd_provenance */
  int n_cancelled; /* jobs, when a signal or the time limit ended the search; -1: scancel failed */
};

#define GD_SEARCH_TRIAL_TIMEOUT_S 3600.0

/*
 * Runs it. A trial that breaks is the result of its point. An error of the search itself (a store
 * that cannot be written, no process can be started, no point can be planned) ends it; what was
 * stored before stays.
 */
enum gd_status gd_search_run(struct gd_search *search, struct gd_error *err) GD_MUST_USE;

/* The trial with the fewest days among the good ones of that point's model, or -1. */
int gd_search_best(const struct gd_search *search, int of);

/*
 * The memory that all ranks of a trial have together here, where the device's is the machine's; 0
 * where the device has its own. gd_search_share gives each rank its part of it, where no limit was
 * set.
 */
int64_t gd_search_machine_bytes(const struct gd_trial_options *options);
void gd_search_share(struct gd_trial_options *options, int64_t machine_bytes);

/* What one rank of a job may plan for: its memory less a sixteenth for the program itself. */
int64_t gd_search_job_bytes(const struct gd_slurm_config *config);

#endif
