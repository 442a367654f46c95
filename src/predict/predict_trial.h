/*
 * The predicted times of a trial: a plan is chosen for it (trial/choose.h), and the predicted clock
 * (predict.h) is asked how long its programs take.
 */
#ifndef GD_PREDICT_PREDICT_TRIAL_H
#define GD_PREDICT_PREDICT_TRIAL_H

#include "predict/predict.h"
#include "trial/choose.h"

/*
 * gd_planner_choose, then the predicted times of what was chosen. prediction->known is false where
 * nothing fits, and without a predictor.
 */
enum gd_status gd_planner_predict(struct gd_planner *planner,
                                  const struct gd_trial_options *options,
                                  const struct gd_predictor *predictor, struct gd_trial *trial,
                                  struct gd_prediction *prediction,
                                  struct gd_error *err) GD_MUST_USE;
/* The same with a planner of its own. */
enum gd_status gd_trial_predict(const struct gd_model *model,
                                const struct gd_trial_options *options,
                                const struct gd_predictor *predictor, struct gd_trial *trial,
                                struct gd_prediction *prediction, struct gd_error *err) GD_MUST_USE;
/*
 * The prediction for a trial that was measured, at its own micro-batch, precision, ranks and
 * threads: what to hold against trial->step_s. target: what it ran on, where that is no CPU and not
 * here; else NULL. The model is the preset of that name, with the trial's batch, sequence and
 * steps; GD_UNSUPPORTED where the trial is of another model, so that nothing can be compared.
 */
enum gd_status gd_trial_predict_stored(const struct gd_trial *stored,
                                       const struct gd_target *target,
                                       const struct gd_predictor *predictor,
                                       struct gd_prediction *prediction,
                                       struct gd_error *err) GD_MUST_USE;

/* The model of a stored trial, and the options that plan it again as it ran. stored must outlive
   them. GD_UNSUPPORTED where its model is not the preset of that name. */
enum gd_status gd_trial_options_of_stored(const struct gd_trial *stored,
                                          const struct gd_target *target, struct gd_model *model,
                                          struct gd_trial_options *options,
                                          struct gd_error *err) GD_MUST_USE;

#endif
