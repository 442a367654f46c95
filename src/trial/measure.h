/*
 * Measuring a trial, as in Sec. 3.2 of the paper with the guards that its code lacks: warm-up,
 * micro-steps and updates timed apart until the interval is tight, a timed region that ends when
 * the device is done, a check of the numbers in the same run, and the physics of the device.
 *
 *   GD_TRY(gd_trial_measure(&model, &options, &trial, err));
 *   if (trial.status == GD_TRIAL_OK)
 *     ... trial.days ...
 */
#ifndef GD_TRIAL_MEASURE_H
#define GD_TRIAL_MEASURE_H

#include "trial/choose.h"

/*
 * Chooses a plan (choose.h), then measures it. Wrong numbers are GD_OK with status failed or
 * implausible; what does not fit is GD_OK with status infeasible. Where the device refuses the
 * memory of saved activations, it is measured once more with nothing saved.
 */
enum gd_status gd_trial_measure(const struct gd_model *model,
                                const struct gd_trial_options *options, struct gd_trial *trial,
                                struct gd_error *err) GD_MUST_USE;

/*
 * The guards on a measured trial: loss and gradient norm must be sane at random start, and the
 * FLOPs executed per second must not exceed the device's peak (model FLOPs may: a fused loss skips
 * rows that do not count, causal attention half of the scores). Sets status, reason, mfu and hfu
 * from loss, norm, step_s, the FLOP counts and peak_flops.
 */
void gd_trial_judge(struct gd_trial *trial, int64_t classes);

/* Sets days_low from days, the interval of the step, and for how much of the time the trial was
   held back, or (on CPUs) others had them: it would have taken that much less. */
void gd_trial_set_days_low(struct gd_trial *trial);

#endif
