/*
 * A run: a plan in the memory of a backend, ready to train. Pass and update are separate calls,
 * because they are timed apart and because one update follows many passes.
 *
 *   struct gd_run run = {0};
 *   GD_TRY(gd_run_open(&run, backend, &plan, NULL, err));
 *   GD_TRY(gd_run_init(&run, seed, err));
 *   GD_TRY(gd_run_random_batch(&run, GD_RUN_FULL, vocab, seed, weight, err));
 *   GD_TRY(gd_run_pass(&run, GD_RUN_FULL, err));
 *   GD_TRY(gd_run_update(&run, lr, err));
 *   gd_run_close(&run);
 */
#ifndef GD_EXEC_RUN_H
#define GD_EXEC_RUN_H

#include "backend/backend.h"
#include "model/model.h"
#include "model/safetensors.h"

/* The last micro-batch of a step may be smaller: a second plan over the same leaves. */
enum gd_run_part { GD_RUN_FULL, GD_RUN_REMAINDER, GD_RUN_PARTS };

struct gd_run {
  struct gd_backend *backend;               /* borrowed */
  const struct gd_plan *plan[GD_RUN_PARTS]; /* borrowed; REMAINDER may be NULL */
  struct gd_bound *bound[GD_RUN_PARTS];
};

/* Reserves the arenas (the larger of both plans) and binds. The plans must outlive the run. */
enum gd_status gd_run_open(struct gd_run *run, struct gd_backend *backend,
                           const struct gd_plan *full, const struct gd_plan *remainder,
                           struct gd_error *err) GD_MUST_USE;
void gd_run_close(struct gd_run *run); /* safe on a zeroed run */

/* Parameters as transformers initialises them, from a counter-based generator: tensor by name,
   element by index, so the values depend on the seed alone. Clears gradients, moments, state. */
enum gd_status gd_run_init(struct gd_run *run, uint64_t seed, struct gd_error *err) GD_MUST_USE;
/* The same with parameters out of a checkpoint. Missing, extra or misshapen tensors are errors. */
enum gd_status gd_run_load(struct gd_run *run, const struct gd_family *family,
                           const struct gd_safetensors *file, struct gd_error *err) GD_MUST_USE;

/* ids and labels hold micro_batch x seq entries; weight is 1 / valid labels of the whole batch. */
enum gd_status gd_run_batch(struct gd_run *run, enum gd_run_part part, const int32_t *ids,
                            const int32_t *labels, double weight, struct gd_error *err) GD_MUST_USE;
/* Uniform random tokens, labels = ids, through the staging memory of the host arena. */
enum gd_status gd_run_random_batch(struct gd_run *run, enum gd_run_part part, int64_t classes,
                                   uint64_t seed, double weight, struct gd_error *err) GD_MUST_USE;

/* Forward + backward of one micro-batch; returns when the device is done. */
enum gd_status gd_run_pass(struct gd_run *run, enum gd_run_part part,
                           struct gd_error *err) GD_MUST_USE;
enum gd_status gd_run_update(struct gd_run *run, double lr, struct gd_error *err) GD_MUST_USE;

/* The loss summed since the last call, and the gradient norm of the last update (0: none yet). */
enum gd_status gd_run_take_loss(struct gd_run *run, double *loss, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_run_norm(struct gd_run *run, double *norm, struct gd_error *err) GD_MUST_USE;
/* A tensor of the full plan as floats; out holds gd_tensor_elements values. */
enum gd_status gd_run_read(struct gd_run *run, gd_tensor_id id, float *out,
                           struct gd_error *err) GD_MUST_USE;

#endif
