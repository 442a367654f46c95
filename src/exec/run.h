/*
 * A run: a plan in the memory of a backend, ready to train. Micro-step and update are separate
 * calls, because they are timed apart and because one update follows many micro-steps.
 *
 *   struct gd_run run = {0};
 *   GD_TRY(gd_run_open(&run, backend, &plan, NULL, err));
 *   GD_TRY(gd_run_init(&run, seed, err));
 *   GD_TRY(gd_run_random_batch(&run, GD_RUN_FULL, classes, seed, err));
 *   GD_TRY(gd_run_micro_step(&run, GD_RUN_FULL, err));
 *   GD_TRY(gd_run_update(&run, lr, err));
 *   gd_run_close(&run);
 */
#ifndef GD_EXEC_RUN_H
#define GD_EXEC_RUN_H

#include "backend/backend.h"
#include "model/model.h"
#include "model/safetensors.h"

/* The last micro-batch of a step may be smaller: a second plan over the same leaves. A third one
   computes the loss and nothing else (gd_pipeline_evaluation). */
enum gd_run_part { GD_RUN_FULL, GD_RUN_REMAINDER, GD_RUN_EVALUATION, GD_RUN_PARTS };

struct gd_run {
  struct gd_backend *backend;               /* borrowed */
  const struct gd_plan *plan[GD_RUN_PARTS]; /* borrowed; NULL: none, but for FULL */
  struct gd_bound *bound[GD_RUN_PARTS];
  int64_t batch; /* samples of a step over all ranks; 0: one micro-batch of each */
};

/* Reserves the arenas (the larger of all plans) and binds. The plans must outlive the run. */
enum gd_status gd_run_open(struct gd_run *run, struct gd_backend *backend,
                           const struct gd_plan *full, const struct gd_plan *remainder,
                           struct gd_error *err) GD_MUST_USE;
enum gd_status gd_run_open_parts(struct gd_run *run, struct gd_backend *backend,
                                 const struct gd_plan *const plans[GD_RUN_PARTS],
                                 struct gd_error *err) GD_MUST_USE;
void gd_run_close(struct gd_run *run); /* safe on a zeroed run */

/* Parameters as transformers initialises them, from a counter-based generator: tensor by name,
   element by index, so the values depend on the seed alone. Clears gradients, moments, state. */
enum gd_status gd_run_init(struct gd_run *run, uint64_t seed, struct gd_error *err) GD_MUST_USE;
/* The same with parameters out of a checkpoint. Missing, extra or misshapen tensors are errors. */
enum gd_status gd_run_load(struct gd_run *run, const struct gd_family *family,
                           const struct gd_safetensors *file, struct gd_error *err) GD_MUST_USE;

/* One micro-batch: ids or pixels, as the graph has them, and labels. */
struct gd_batch {
  const int32_t *ids;    /* [micro_batch, seq] */
  const float *pixels;   /* [micro_batch, 3, height, width] */
  const int32_t *labels; /* [micro_batch, seq] or [micro_batch]; -100 does not count */
  double weight;         /* 1 / labels that count in the whole batch */
  const float *targets;  /* [micro_batch, classes]: soft ones, in the place of labels */
};
enum gd_status gd_run_batch(struct gd_run *run, enum gd_run_part part, const struct gd_batch *batch,
                            struct gd_error *err) GD_MUST_USE;
/* The staging memory of the host, as a batch to be filled: *inputs is where its ids or pixels go,
 *labels its labels or targets, in the order of the graph. Every element has 4 bytes. */
void gd_run_stage(struct gd_run *run, enum gd_run_part part, double weight, struct gd_batch *batch,
                  void **inputs, void **labels);
/*
 * Random input through the staging memory of the host arena. Tokens are uniform; causal models
 * predict the next one, others 15 % of them (BERT's masking rate). Pixels are normal. Labels have
 * the weight that they have in training, where a step is run->batch samples: the loss summed over
 * ranks is then gd_run_step_share times the mean over their micro-batches.
 */
enum gd_status gd_run_random_batch(struct gd_run *run, enum gd_run_part part, int64_t classes,
                                   uint64_t seed, struct gd_error *err) GD_MUST_USE;
/* Copies the batch that is in the staging memory to the device, as every micro-step of training
   does; its weight stays. */
enum gd_status gd_run_send(struct gd_run *run, enum gd_run_part part,
                           struct gd_error *err) GD_MUST_USE;
/* The part of a step that is one micro-batch on every rank. */
double gd_run_step_share(const struct gd_run *run, enum gd_run_part part);
/* Expected share of labels that count: 1, or for masked models the share that is masked. */
double gd_run_counted_share(const struct gd_graph *graph);
/* What dropout draws: step of training, and the place of the micro-batch's first sample in it. */
enum gd_status gd_run_seed(struct gd_run *run, enum gd_run_part part, uint32_t seed, int64_t step,
                           int64_t first_sample, struct gd_error *err) GD_MUST_USE;
/* How many labels count: with a shift, position t is scored against label t + 1. */
int64_t gd_batch_valid_labels(const struct gd_graph *graph, const int32_t *labels);

/* Starts forward + backward of one micro-batch; `last` as below. Until gd_run_wait, the staging
   memory may be filled, and nothing else of the run is touched. */
enum gd_status gd_run_start(struct gd_run *run, enum gd_run_part part, bool last,
                            struct gd_error *err) GD_MUST_USE;
enum gd_status gd_run_wait(struct gd_run *run, struct gd_error *err) GD_MUST_USE;
/* Both: returns when the device is done. */
enum gd_status gd_run_micro_step(struct gd_run *run, enum gd_run_part part,
                                 struct gd_error *err) GD_MUST_USE;
/* The same for the last micro-batch of a step: gradients are reduced over ranks on the way. */
enum gd_status gd_run_last_micro_step(struct gd_run *run, enum gd_run_part part,
                                      struct gd_error *err) GD_MUST_USE;
enum gd_status gd_run_update(struct gd_run *run, double lr, struct gd_error *err) GD_MUST_USE;
/* From now on, an update whose gradient norm (gd_run_norm) is above this as fp32 changes nothing
   but clears the gradients. 0: any norm is taken, as from the start. */
enum gd_status gd_run_limit_norm(struct gd_run *run, float most, struct gd_error *err) GD_MUST_USE;

/* The norm of the gradients as an update would find it. They are cleared, and nothing else changes.
 */
enum gd_status gd_run_take_norm(struct gd_run *run, double *norm, struct gd_error *err) GD_MUST_USE;

/* fp16 may overflow under the first loss scales: the update then skips and halves the scale. From
   2^16 down to 1 that is so many times; what overflows after them is wrong. */
enum { GD_RUN_MOST_SKIPS = 17 };

/* The loss summed since the last call, and the gradient norm of the last update (0: none yet). */
enum gd_status gd_run_take_loss(struct gd_run *run, double *loss, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_run_norm(struct gd_run *run, double *norm, struct gd_error *err) GD_MUST_USE;
/* Samples since the last call whose class was found, of a model with soft targets; 0: of others. */
enum gd_status gd_run_take_hits(struct gd_run *run, double *hits, struct gd_error *err) GD_MUST_USE;
/* A tensor of the full plan as floats; out holds gd_tensor_elements values. */
enum gd_status gd_run_read(struct gd_run *run, gd_tensor_id id, float *out,
                           struct gd_error *err) GD_MUST_USE;

#endif
