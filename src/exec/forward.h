/*
 * A model alone, with weights, in fp32: the loss of a batch, or the logits of a sequence. `sample`
 * and `evaluate` run one; nothing is differentiated, so it needs the memory of the parameters and
 * of one layer's activations.
 *
 *   struct gd_forward forward = {0};
 *   GD_TRY(gd_forward_open(&forward, &options, &weights, err));
 *   GD_TRY(gd_forward_logits(&forward, ids, count, logits, err));
 *   gd_forward_close(&forward);
 */
#ifndef GD_EXEC_FORWARD_H
#define GD_EXEC_FORWARD_H

#include "exec/run.h"
#include "pass/pass.h"

struct gd_forward_options {
  const struct gd_model *model; /* borrowed until the forward is closed */
  const char *backend;
  int threads;          /* 0: all */
  int64_t seq;          /* tokens a sequence; 0: the recipe's */
  int64_t batch;        /* sequences at a time */
  int64_t device_bytes; /* limit; 0: what the device has */
  enum gd_forward_end end;
};

struct gd_forward {
  struct gd_model model; /* with the sequence of the options */
  struct gd_graph graph;
  struct gd_plan plan;
  struct gd_backend *backend;
  struct gd_run run;
};

/* Weights are those of a model folder (model/safetensors.h). Too large for the device:
   GD_NOMEM_DEVICE. On failure it is closed. */
enum gd_status gd_forward_open(struct gd_forward *forward, const struct gd_forward_options *options,
                               const struct gd_safetensors *weights,
                               struct gd_error *err) GD_MUST_USE;
void gd_forward_close(struct gd_forward *forward); /* safe on a zeroed one */

/* GD_FORWARD_LOGITS, batch 1: those behind the last of count ids, one for each class. count is
   between 1 and the sequence. */
enum gd_status gd_forward_logits(struct gd_forward *forward, const int32_t *ids, int64_t count,
                                 float *logits, struct gd_error *err) GD_MUST_USE;

#endif
