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

#endif
