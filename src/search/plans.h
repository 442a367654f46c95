/*
 * Many plans at once: points of a search planned and predicted on as many threads as there are
 * CPUs. Planning needs no device, only time: tens of milliseconds a point.
 */
#ifndef GD_SEARCH_PLANS_H
#define GD_SEARCH_PLANS_H

#include "search/trial.h"

struct gd_plan_point {
  const struct gd_model *model; /* borrowed */
  struct gd_trial_options options;
  int number; /* the caller's */
  /* results */
  struct gd_trial trial;
  struct gd_prediction prediction;
};

/* Fills the results of all. The error is that of the first point, in order, which has one. */
enum gd_status gd_plan_points(struct gd_plan_point *points, int count,
                              const struct gd_predictor *predictor,
                              struct gd_error *err) GD_MUST_USE;

/* One way to train on several kinds of GPUs: gd_trial_predict_targets. */
struct gd_plan_family {
  const struct gd_model *model; /* borrowed */
  struct gd_trial_options options;
  struct gd_trial_target *targets; /* borrowed; the results are in there */
  int count;
};
/* Fills the results of all, each family on one thread. */
enum gd_status gd_plan_families(struct gd_plan_family *families, int count,
                                struct gd_error *err) GD_MUST_USE;

#endif
