/*
 * The search: models x methods in, results out. All points are planned first, which takes
 * milliseconds and answers those that do not fit; the store is asked for what is known; the rest is
 * measured, each trial in a process of its own (child.h), the most promising first, and stored
 * before the next one begins. Killed at any moment, the same search goes on where it was. With
 * SLURM (slurm.h) the trials are jobs instead, submitted in that order and stored as they end.
 * Inside a job that somebody else has started (the user's own mpirun or srun) each rank is a
 * search: the trials run in the ranks themselves, in the order asked for, and no store is read or
 * written.
 *
 *   struct gd_search search = {.store = store};
 *   GD_TRY(gd_search_make(&search, &asked, &machine, &points, err));
 *   GD_TRY(gd_search_run(&search, err));
 *   int best = gd_search_best(&search, 0);
 *
 * A trial that failed for want of something that the machine may have another time (memory, a
 * process that was killed, a time limit, a node) is measured again when it is asked for again,
 * after those that were never tried; one that would fail again is not, unless `retry_failed`.
 *
 * Order: the step that is predicted to be the shortest comes first, and of equals the larger
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

#include "search/points.h"
#include "search/slurm.h"

struct gd_search {
  /* of gd_search_make */
  struct gd_point *points;
  int count;
  struct gd_trial_options trial;        /* as asked: of every point, but for method and machine */
  int64_t shared_bytes;                 /* memory that all ranks share here; 0: not known */
  const struct gd_predictor *predictor; /* borrowed */
  /* what is asked besides */
  struct gd_store *store; /* NULL: nothing is read or kept */
  bool fresh;             /* measure also what is known */
  bool retry_failed;      /* measure also what failed for a reason that will be there again */
  bool simulate;          /* measure nothing: predictions are the answer, and none is kept */
  bool fast;              /* leave out what the prediction excludes */
  bool best_alone;        /* of each model only the point that gd_points_best takes */
  double rank_timeout_s;  /* 0: the default */
  double trial_timeout_s; /* of one trial; 0: GD_SEARCH_TRIAL_TIMEOUT_S */
  double time_limit_s;    /* of the whole search; 0: none */
  bool in_job; /* this process is a rank of trial.comm's job: trials run in it, one by one */
  const struct gd_slurm_config *slurm_config; /* trials are jobs; NULL: they run here */
  const char *slurm_folder;                   /* of these jobs; NULL: next to the store */
  bool any_gpu; /* which GPU the jobs get is not known: trial.target stands in for it */
  /* Both may be NULL. eta_s is that of the whole search; below 0: not known. point is NULL where
   * the progress is that of all jobs. */
  void (*progress)(void *user, const struct gd_point *point, int number, int of, const char *what,
                   double done, double eta_s);
  void (*finished)(void *user, const struct gd_point *point);
  void *user;
  struct gd_slurm *slurm; /* of gd_search_run, while it runs */
  /* results */
  int stop_signal; /* that ended the search; 0: none */
  int n_found;     /* trials of other builds whose results were found and stored (leftovers.h) */
  int n_run, n_stored, n_pending, n_predicted;
  int n_failed[GD_FAILURE_COUNT]; /* by why */
  char began[32];                 /* as in struct gd_provenance */
  int n_cancelled; /* jobs, when a signal or the time limit ended the search; -1: scancel failed */
};

#define GD_SEARCH_TRIAL_TIMEOUT_S 3600.0

/*
 * Makes the points of a search on one machine; points must live as long as the search. In a job
 * (in_job) the machine is each rank's own and is not looked at. With slurm_config, which is set
 * before, ranks share the memory of their job and not what the machine has.
 */
enum gd_status gd_search_make(struct gd_search *search, const struct gd_points_asked *asked,
                              const struct gd_point_machine *machine, struct gd_points *points,
                              struct gd_error *err) GD_MUST_USE;

/*
 * Runs it. A trial that breaks is the result of its point. An error of the search itself (a store
 * that cannot be written, no process can be started, no point can be planned) ends it; what was
 * stored before stays.
 */
enum gd_status gd_search_run(struct gd_search *search, struct gd_error *err) GD_MUST_USE;

/* The trial with the fewest days among the good ones of that point's model, or -1. One that was
   disturbed (gd_trial_is_disturbed) only where all were. */
int gd_search_best(const struct gd_search *search, int of);

/* Whether trials that were measured now have compiled kernels on this machine: those of a GPU, or
   fused ops. They are compiled once more where the cache cannot keep them. */
bool gd_search_has_compiled(const struct gd_search *search);
/* A library that is missing fails every point alike: then its sentence is the whole answer. */
bool gd_search_fails_alike(const struct gd_search *search);
/* One good trial is an answer, GD_OK; otherwise what kept the first from being one. */
enum gd_status gd_search_verdict(const struct gd_search *search, struct gd_error *err);

#endif
