/*
 * The expected step time of a run: that of the trial that was measured here of this very plan, or
 * else the prediction for it. The run is held against it (drift.h).
 */
#ifndef GD_TRAIN_EXPECTED_H
#define GD_TRAIN_EXPECTED_H

#include "trial/session.h"

struct gd_expected {
  double step_s;    /* 0: nobody said */
  double tolerance; /* a step may take longer by that share of it */
  const char *by;   /* "trial", "prediction" or "" */
};

/*
 * store: its path, as of gd_store_open. Of several trials of the plan the shortest one counts that
 * was not disturbed. A prediction needs a calibration of this machine, and tolerates what lies
 * within its own interval. What cannot be read leaves it unknown: it never fails.
 */
void gd_expected_find(const char *store, const struct gd_session *session,
                      const struct gd_model *model, const struct gd_trial *plan,
                      struct gd_expected *expected);

#endif
