/*
 * Inside src/money: where the days of a run on a machine come from (times.c), as the table of
 * options (money_table.c) asks for them.
 */
#ifndef GD_MONEY_MONEY_INT_H
#define GD_MONEY_MONEY_INT_H

#include <pthread.h>

#include "money/money.h"
#include "predict/predict.h"
#include "trial/recipe.h"

/* The fastest good trial of the model on one kind of GPU and so many of them. */
struct gd_times_trial {
  const struct gd_gpu *gpu;
  int count;
  bool disturbed; /* gd_trial_is_disturbed: there is no other */
  struct gd_time time;
};

enum { GD_TIMES_TRIALS = 256 };
enum { GD_MONEY_MOST_RENTED = 8 }; /* GPUs of a machine: those of the paper */

/* Predictors by GPU, whatever the model: a calibration is read once. Threads may share one. */
struct gd_money_shared {
  pthread_mutex_t mutex;
  struct gd_times_predictor {
    const struct gd_gpu *gpu;
    struct gd_predictor predictor; /* for some target with that GPU */
  } * predictors;                  /* in gd_mem */
  uint32_t count, capacity;
  struct gd_calibrations *calibrations; /* NULL: not yet read */
};
void gd_money_shared_init(struct gd_money_shared *shared);
void gd_money_shared_deinit(struct gd_money_shared *shared);

/* What the sources need, read once for a model. */
struct gd_times_context {
  const struct gd_money_asked *asked;
  const struct gd_money_work *work;
  struct gd_times_trial *trials; /* measured; in the arena */
  int n_trials;
  char recipe[GD_HASH_TEXT]; /* asked for, with recipe_steps for its steps; 0: not yet made */
  int64_t recipe_steps;
  char *left_out;     /* of the table: sizeof GD_TIMES_LEFT_OUT */
  double paper_scale; /* steps asked for / steps of the paper's recipe; 0: another recipe */
  struct gd_points_kept *kept;              /* of all predictions; NULL: none yet */
  struct gd_model_identity found;           /* of the model, for them */
  const struct gd_model_identity *identity; /* that one, once it was found */
};
enum { GD_TIMES_LEFT_OUT = sizeof((struct gd_money_table *)0)->left_out };

enum gd_status gd_times_open(const struct gd_money_asked *asked, struct gd_money_table *table,
                             struct gd_times_context *context, struct gd_error *err) GD_MUST_USE;
void gd_times_close(struct gd_times_context *context); /* safe on a zeroed one */
/* What the source that was asked for says of the options' machines; every time is whole then. */
enum gd_status gd_times_find(struct gd_times_context *context, struct gd_money_option *options,
                             int count, struct gd_error *err) GD_MUST_USE;

/* times_predicted.c: the simulator's answer for those whose days are not known. */
enum gd_status gd_times_predict(struct gd_times_context *context, struct gd_money_option *options,
                                int count, struct gd_error *err) GD_MUST_USE;
/* times_size.c: likewise for asked->outline, by its stand-ins. */
enum gd_status gd_times_predict_size(struct gd_times_context *context,
                                     struct gd_money_option *options, int count,
                                     struct gd_error *err) GD_MUST_USE;
/* The hardware that an option is predicted for. */
enum gd_status gd_times_target(const struct gd_times_context *context,
                               const struct gd_money_option *option, struct gd_target *target,
                               struct gd_error *err) GD_MUST_USE;

/*
 * gd_money_table_make in two: begin reads the catalogue and the store, finish finds the days. Of
 * several tables, finish may run at the same time as others. The context borrows asked and table.
 */
enum gd_status gd_money_table_begin(const struct gd_money_asked *asked,
                                    struct gd_money_table *table, struct gd_times_context *context,
                                    struct gd_error *err) GD_MUST_USE;
enum gd_status gd_money_table_finish(struct gd_times_context *context, struct gd_money_table *table,
                                     struct gd_error *err) GD_MUST_USE;

#endif
