/*
 * Learning from whole steps: what trials took says three things of a device that ops timed one by
 * one cannot. How much energy training draws (so how far the power limit lowers the clock of a
 * GPU), how fast its host works on large state, and how a step compares with the sum of its ops.
 * Three numbers, fitted to the trials of every model alike; and once more without each model, so
 * that the error on trials of a model can be that of a fit which has not seen it.
 *
 *   struct gd_learner *learner = gd_learner_new();
 *   GD_TRY(gd_learner_add(learner, &trial, err)); // each trial
 *   GD_TRY(gd_learner_learn(learner, &rates, "h200.csv", err));
 *   gd_learner_free(learner);
 */
#ifndef GD_PREDICT_LEARN_H
#define GD_PREDICT_LEARN_H

#include "predict/rates.h"
#include "trial/trial.h"

struct gd_learner;
struct gd_learner *gd_learner_new(void);          /* NULL: no memory */
void gd_learner_free(struct gd_learner *learner); /* NULL is fine */

/* Keeps the plan of a trial of that calibration's device; others, what was no success, and what
   other programs disturbed (of a GPU only with offload), are passed over. GD_ENVIRONMENT without
   memory. */
enum gd_status gd_learner_add(struct gd_learner *learner, const struct gd_rates *rates,
                              const struct gd_trial *trial, struct gd_error *err) GD_MUST_USE;
int gd_learner_count(const struct gd_learner *learner);
/* GD_BAD_INPUT where fewer than two models were added. from: where trials come from, for people. */
enum gd_status gd_learner_learn(struct gd_learner *learner, struct gd_rates *rates,
                                const char *from, struct gd_error *err) GD_MUST_USE;

#endif
