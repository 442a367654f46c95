/*
 * Points: what a question about training is made of, and its answer. A point is a model x a method
 * x a machine x settings; `plan`, `bench`, `cost` and `report` all make theirs here, and have them
 * planned and predicted on as many threads as there are CPUs. Planning needs no device, only time:
 * tens of milliseconds a point.
 *
 *   struct gd_points points;
 *   GD_TRY(gd_points_make(&(struct gd_points_asked){...}, &points, err));
 *   GD_TRY(gd_points_plan(points.all, points.count, err));
 *   ... points.all[i].trial, .prediction ...
 *   gd_points_free(&points);
 */
#ifndef GD_SEARCH_POINTS_H
#define GD_SEARCH_POINTS_H

#include "predict/predict_trial.h"
#include "store/store.h"

/* Where the answer of a point comes from. */
enum gd_point_source {
  GD_SEARCH_PENDING,   /* not reached, or its process was ended with the search */
  GD_SEARCH_PLAN,      /* answered by the plan: it does not fit, or cannot be planned */
  GD_SEARCH_STORE,     /* read, not run */
  GD_SEARCH_RUN,       /* measured now */
  GD_SEARCH_PREDICTED, /* not measured: simulated, or excluded by `fast` */
};

struct gd_point {
  /* what is asked; all borrowed */
  const char *argument;                 /* what the user called the model */
  const struct gd_model *model;         /* with its recipe */
  struct gd_trial_options options;      /* the method, the machine, the settings */
  const struct gd_predictor *predictor; /* of the machine; NULL: plan only */
  int number;                           /* its place in the order of asking */
  /* the answer: planned, predicted, and by a search measured */
  enum gd_status status; /* what kind of failure an error was that is now trial.reason */
  struct gd_trial trial;
  struct gd_prediction prediction; /* not known where nothing fits */
  /* of a search (search.h) */
  enum gd_point_source source;
  int tried;          /* how often it has failed before, and is tried again */
  char stored_at[32]; /* GD_SEARCH_STORE: when it was measured */
  char damage[512];   /* what the store had of it that cannot be read, in a sentence; or "" */
  struct gd_store_key key;
};
struct gd_points {
  struct gd_point *all;
  int count;
  struct gd_model_identity *identities; /* of the models, which all of their points share */
};

/* A machine to plan for: a target of the catalogue, or the place that this process is at. */
struct gd_point_machine {
  const struct gd_target *target;
  const struct gd_place *place;
  const struct gd_predictor *predictor;
  int64_t shared_bytes; /* memory that all ranks share, where no limit was set; 0: none is */
};

struct gd_points_asked {
  const struct gd_model *models;
  const char *const *arguments; /* as many; NULL: the models' names */
  int n_models;
  const struct gd_model_identity *identities; /* as many; NULL: they are found */
  const struct gd_method *methods;
  int n_methods;
  const struct gd_point_machine *machines; /* best in the order of their memory */
  int n_machines;
  struct gd_trial_options options; /* of all, but for the method and the machine */
};
/* Every method on every model on every machine, in that order: machines change first. */
enum gd_status gd_points_make(const struct gd_points_asked *asked, struct gd_points *points,
                              struct gd_error *err) GD_MUST_USE;
void gd_points_free(struct gd_points *points); /* safe on a zeroed one */
/* Models in the order asked for; of each the shortest prediction first, and last what does not fit.
 */
void gd_points_rank(struct gd_point *points, int count);
/*
 * The point that answers where several methods are asked for: the shortest prediction, or the
 * method with the fewest parts of those within GD_POINTS_NEAR of it, since predictions do not tell
 * these apart and less can go wrong with it. NULL: none fits.
 */
#define GD_POINTS_NEAR 1.02
/* Parts besides those of free-lunch. */
int gd_points_count_parts(const struct gd_method *method);
const struct gd_point *gd_points_best(const struct gd_point *points, int count);
/* The same of every stride-th point: of one machine, where machines change first. */
const struct gd_point *gd_points_best_of(const struct gd_point *points, int count, int stride);
/* Of points that do not fit, the one that lacks the smallest share of the memory that it has; NULL:
   none was planned. */
const struct gd_point *gd_points_nearest(const struct gd_point *points, int count);
/*
 * Of ranks whose options are their own: that all ask for the same, before the first trial. The rest
 * is compared by each trial.
 */
enum gd_status gd_points_agree(const struct gd_points_asked *asked, bool simulate, bool fast,
                               struct gd_comm *comm, struct gd_error *err) GD_MUST_USE;

/*
 * Plans and predicts all. What cannot be planned is failed, with the reason, and keeps no other
 * from its answer. Neighbours that differ in their target alone share what their graphs need.
 * GD_ENVIRONMENT without memory.
 */
enum gd_status gd_points_plan(struct gd_point *points, int count, struct gd_error *err) GD_MUST_USE;
/*
 * The same, for who asks again of the same models: graphs, and what planners found that they need,
 * are kept for the next call, which must not be at the same time. Kept must not outlive the models;
 * NULL: nothing is kept.
 */
struct gd_points_kept;
struct gd_points_kept *gd_points_kept_new(void);       /* NULL without memory */
void gd_points_kept_free(struct gd_points_kept *kept); /* NULL is fine */
enum gd_status gd_points_plan_with(struct gd_points_kept *kept, struct gd_point *points, int count,
                                   struct gd_error *err) GD_MUST_USE;
/* The error of the first point that has one. refused false: a point that cannot be planned as it
   was asked for (GD_BAD_INPUT, GD_UNSUPPORTED) is no error. */
enum gd_status gd_points_error(const struct gd_point *points, int count, bool refused,
                               struct gd_error *err);

/* Threads that each of the ranks on this machine is planned with where nobody says how many: the
   cores divided among them, one at least. 0: one rank, or OMP_NUM_THREADS says it. */
int gd_points_threads(int ranks);

/* Whether both have no answer, for the same reason. */
bool gd_point_same_failure(const struct gd_point *a, const struct gd_point *b);
/* Why a failed trial has failed, from the point's status; GD_OK: its own check has failed. */
void gd_point_set_failure(struct gd_point *point);

#endif
