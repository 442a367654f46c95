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

/* What a method needs at micro-batch 1, where that did not fit: on GPUs with less it need not be
 * planned again, which is most of the work for a model that is too large for most machines. */
struct gd_times_misfit {
  int compute_capability; /* all of a GPU that a plan depends on */
  int ranks, method;      /* method: its place in gd_method_space */
  int64_t device_bytes, host_bytes;
};
struct gd_times_misfits {
  int count;
  struct gd_times_misfit list[512]; /* 4 numbers of ranks, a few capabilities, some 30 methods */
};

/* What the sources need, read once for a model. */
struct gd_times_context {
  const struct gd_money_asked *asked;
  const struct gd_money_work *work;
  struct gd_times_trial *trials; /* measured; in the arena */
  int n_trials;
  char recipe[GD_HASH_TEXT]; /* asked for, with recipe_steps for its steps; 0: not yet made */
  int64_t recipe_steps;
  struct gd_times_misfits *misfits; /* predicted; in the arena */
  char *left_out;                   /* of the table: sizeof GD_TIMES_LEFT_OUT */
  double paper_scale; /* steps asked for / steps of the paper's recipe; 0: another recipe */
};
enum { GD_TIMES_LEFT_OUT = sizeof((struct gd_money_table *)0)->left_out };

enum gd_status gd_times_open(const struct gd_money_asked *asked, struct gd_money_table *table,
                             struct gd_times_context *context, struct gd_error *err) GD_MUST_USE;
/* What the source that was asked for says of that machine; *time is whole in any case. */
enum gd_status gd_times_find(const struct gd_times_context *context,
                             const struct gd_machine *machine, const struct gd_gpu *gpu,
                             struct gd_time *time, struct gd_error *err) GD_MUST_USE;

/* times_predicted.c: the simulator's answer for that machine. */
enum gd_status gd_times_predict(const struct gd_times_context *context,
                                const struct gd_machine *machine, const struct gd_gpu *gpu,
                                struct gd_time *time, struct gd_error *err) GD_MUST_USE;

#endif
