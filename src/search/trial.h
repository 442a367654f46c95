/*
 * A trial: one method on one model on one machine. First planned (which micro-batch fits), then
 * measured: warm-up, passes and updates timed apart until the interval is tight, each number
 * beside the check of the same run. What comes out of it, struct gd_trial, is in store/record.h.
 */
#ifndef GD_SEARCH_TRIAL_H
#define GD_SEARCH_TRIAL_H

#include "backend/backend.h"
#include "hw/hw.h"
#include "model/model.h"
#include "pass/method.h"
#include "plan/plan.h"
#include "predict/predict.h"
#include "store/record.h"

struct gd_trial_options {
  const char *backend; /* "cpu", "cuda", "ref" */
  const struct gd_target
      *target; /* borrowed: plan for that hardware and open no device; else NULL */
  int threads; /* 0: all */
  struct gd_method method;
  int ranks;                          /* to plan for; 0: as many as comm has, or one */
  int nodes;                          /* that the ranks are spread over; 0: one */
  struct gd_comm *comm;               /* borrowed; NULL: one rank */
  enum gd_micro_batch micro_batch;    /* policy */
  int64_t micro_batch_size;           /* GD_MICRO_BATCH_FIXED */
  const enum gd_precision *precision; /* NULL: the recipe's, or its substitute on this device */
  int64_t device_limit_bytes;         /* 0: what the machine has */
  int64_t keep_limit_bytes;           /* up to which activations are kept; 0: nearly all there is */
  bool keeps_nothing;                 /* however much there is */
  int64_t host_limit_bytes;           /* 0: what the machine has */
  uint64_t seed;
  double
      sample_seconds; /* stop sampling each program after this long (0: 5 s), 3 samples at least */
  bool profile;       /* also time each op of one step */
  void (*progress)(void *user, const char *what, double done, double eta_s); /* may be NULL */
  void *progress_user;
};

/* Finds the micro-batch and fills the plan part. Infeasible is GD_OK with that status. */
enum gd_status gd_trial_plan(const struct gd_model *model, const struct gd_trial_options *options,
                             struct gd_trial *trial, struct gd_error *err) GD_MUST_USE;
/*
 * gd_trial_plan, then the predicted times of what was planned, feasible or not. prediction->known
 * is false where there is no plan.
 */
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
/* gd_trial_plan, then measures. Wrong numbers are GD_OK with status failed or implausible. */
enum gd_status gd_trial_measure(const struct gd_model *model,
                                const struct gd_trial_options *options, struct gd_trial *trial,
                                struct gd_error *err) GD_MUST_USE;

/* Text of graph and plan for the trial's micro-batch: `plan --explain`. */
enum gd_status gd_trial_explain(const struct gd_model *model,
                                const struct gd_trial_options *options,
                                const struct gd_trial *trial, struct gd_strbuf *out,
                                struct gd_error *err) GD_MUST_USE;

/*
 * The guards on a measured trial: loss and gradient norm must be sane at random start, and the
 * FLOPs executed per second must not exceed the device's peak (model FLOPs may: a fused loss skips
 * rows that do not count, causal attention half of the scores). Sets status, reason, mfu and hfu
 * from loss, norm, step_s, the FLOP counts and peak_flops.
 */
void gd_trial_judge(struct gd_trial *trial, int64_t classes);

#endif
