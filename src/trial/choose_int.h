/*
 * What choose.c and choose_sizes.c share: the planner, and what it has found out so far.
 */
#ifndef GD_TRIAL_CHOOSE_INT_H
#define GD_TRIAL_CHOOSE_INT_H

#include "pass/graph_cache.h"
#include "trial/choose.h"

/* What a graph was found to need: a search for another memory need not plan it again. */
struct needs {
  int64_t micro_batch, saved; /* of which graph */
  bool at_least;              /* it was not planned: device_bytes is a bound, which was too much */
  int64_t device_bytes, host_bytes, blocks;
  int64_t rows;                   /* tokens or pixels of a micro-step */
  double flops;                   /* of a micro-step */
  int64_t parameters, rest_bytes; /* where at_least is set: of struct gd_graph_least */
  /* Where it was planned: live_bytes is what it would need if nothing were lost in packing, and the
     op at which that is comes before the backward pass of blocks 0 .. n_waiting - 1. */
  int64_t live_bytes, n_waiting;
};
enum { MOST_TRIED = 96, MOST_SPARE = 6 };

/* A plan that is not the answer now; the next device may ask for it. */
struct spare {
  struct gd_candidate candidate;
  int64_t size, saved; /* size 0: none */
  double plan_s;
};

struct gd_planner {
  const struct gd_model *model;
  const struct gd_trial_options *options; /* of the trial that is planned now */
  struct gd_trial *trial;
  struct gd_trial_options resized; /* of gd_planner_choose_size */
  struct gd_model_identity identity;
  struct gd_place place; /* threads are the same on all ranks */
  bool settled;          /* a rank failed, and all know it: see gd_planner_settle */
  double
      enough_flops;   /* a micro-step of more FLOPs is too long, unless its size is 1; 0: none is */
  int64_t save_bytes; /* what a plan may have where activations are saved; 0: none are */
  struct needs last;  /* of the size that was tried last */
  /* Of parameters, gradients and optimizer on the device: every plan of the method has the same.
     0: none was made yet. */
  int64_t state_bytes;
  /* Of the plans made so far, the likeliest answer: if it is the answer, no plan is made twice. */
  struct gd_candidate ready;
  int64_t ready_size, ready_saved; /* size 0: none */
  bool ready_good;
  /* What was found out about the plan that was recorded last: size 0: none. */
  struct {
    int64_t size, saved;
    uint64_t plan_hash;
    double flops; /* of a micro-step, as executed */
  } recorded;
  double ready_plan_s;
  struct spare spares[MOST_SPARE];
  unsigned next_spare; /* that is replaced */
  /* All that were tried, for the device that has these caps and that precision. */
  struct needs tried[MOST_TRIED];
  int n_tried;
  struct gd_caps tried_caps;
  enum gd_precision tried_precision;
  int tried_ranks;
};

/* What a graph of that size is built from, of the trial that is planned now. */
struct gd_setup gd_planner_setup(const struct gd_planner *p, int64_t micro_batch, int64_t saved);
/* Builds and plans it, or takes it from the spares. */
enum gd_status gd_planner_make(struct gd_planner *p, int64_t micro_batch, int64_t saved,
                               struct gd_candidate *candidate, struct gd_error *err) GD_MUST_USE;
/* Keeps a plan, which it takes, if it is likelier to be the answer than the one that is kept. */
void gd_planner_set_ready(struct gd_planner *p, int64_t micro_batch, int64_t saved, bool good,
                          struct gd_candidate *candidate);
/* The one at hand becomes a spare. */
void gd_planner_spare_ready(struct gd_planner *p);
/* The micro-batch that was found, with its saved layers, in p->trial; *found 0: nothing fits. */
enum gd_status gd_planner_search_sizes(struct gd_planner *p, int64_t *found,
                                       struct gd_error *err) GD_MUST_USE;

#endif
