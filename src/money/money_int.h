/*
 * Inside src/money: where the days of a run on a machine come from (times.c), as the table of
 * options (money_table.c) asks for them.
 */
#ifndef GD_MONEY_MONEY_INT_H
#define GD_MONEY_MONEY_INT_H

#include "money/money.h"

/* The fastest good trial of the model on one kind of GPU and so many of them. */
struct gd_times_trial {
  const struct gd_gpu *gpu;
  int count;
  struct gd_time time;
};

enum { GD_TIMES_TRIALS = 256 };

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
};
enum { GD_TIMES_LEFT_OUT = sizeof((struct gd_money_table *)0)->left_out };

enum gd_status gd_times_open(const struct gd_money_asked *asked, struct gd_money_table *table,
                             struct gd_times_context *context, struct gd_error *err) GD_MUST_USE;
/* What the source that was asked for says of the options' machines; every time is whole then. */
enum gd_status gd_times_find(const struct gd_times_context *context,
                             struct gd_money_option *options, int count,
                             struct gd_error *err) GD_MUST_USE;

/* times_predicted.c: the simulator's answer for those whose days are not known. */
enum gd_status gd_times_predict(const struct gd_times_context *context,
                                struct gd_money_option *options, int count,
                                struct gd_error *err) GD_MUST_USE;

#endif
