/*
 * A session: the plan that was chosen for a model, open on its backend and ready to run. Measuring
 * (measure.h) and training (train/train.h) both run one, so that what trains is what was timed.
 *
 *   struct gd_session session = {0};
 *   GD_TRY(gd_session_open(&session, &model, &options, &trial, err));
 *   if (trial.status != GD_TRIAL_INFEASIBLE)
 *     GD_TRY(gd_run_init(&session.run, seed, err));
 *   gd_session_close(&session);
 */
#ifndef GD_TRIAL_SESSION_H
#define GD_TRIAL_SESSION_H

#include "exec/run.h"
#include "trial/choose.h"

struct gd_session {
  struct gd_trial_options options; /* with the place that the backend is */
  struct gd_place own;             /* as the backend was opened first */
  const struct gd_place *place;    /* that was planned for */
  struct gd_backend_options opened;
  struct gd_backend *backend;
  struct gd_planner *planner;
  struct gd_candidate full, remainder, evaluation;
  struct gd_run run;
};

/*
 * Chooses a plan for the device that is here, agrees on it with all ranks, and opens it. Fills the
 * plan part of the trial; infeasible is GD_OK with that status and nothing open. model and options
 * are borrowed. On failure it is closed.
 */
enum gd_status gd_session_open(struct gd_session *session, const struct gd_model *model,
                               const struct gd_trial_options *options, struct gd_trial *trial,
                               struct gd_error *err) GD_MUST_USE;
void gd_session_close(struct gd_session *session); /* safe on a zeroed one */

#endif
