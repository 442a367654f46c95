/*
 * A trainer: a model under a method on a backend, and training steps on the caller's data. The
 * public API trains with it.
 *
 *   struct gd_trainer trainer = {0};
 *   GD_TRY(gd_trainer_open(&trainer, &options, err));
 *   GD_TRY(gd_trainer_step(&trainer, step, &data, lr, &loss, err));
 *   gd_trainer_close(&trainer);
 */
#ifndef GD_EXEC_TRAINER_H
#define GD_EXEC_TRAINER_H

#include "exec/run.h"
#include "pass/method.h"

struct gd_trainer_options {
  const struct gd_model *model; /* borrowed until the trainer is closed */
  const char *backend;
  int threads; /* 0: all */
  enum gd_precision precision;
  struct gd_method method;
  struct gd_comm *comm; /* borrowed; NULL: one rank */
  int64_t batch;        /* samples a step over all ranks, which must divide it */
  int64_t micro_batch;  /* of one rank; the last of a step may be smaller; at most the rank's */
  uint64_t seed;        /* of the parameters, and of dropout */
};

struct gd_trainer {
  struct gd_trainer_options options;
  struct gd_graph graphs[GD_RUN_PARTS];
  struct gd_plan plans[GD_RUN_PARTS];
  int64_t local; /* samples of this rank in a step */
  int64_t first; /* the first of them */
  struct gd_backend *backend;
  struct gd_run run;
  int64_t resident_bytes; /* of the process before the arenas; -1: unknown. Tests compare */
};

/* The samples of a step. */
struct gd_trainer_data {
  /* Points *batch to samples first .. first + count of the step; the weight is set for it. */
  void (*fill)(void *user, const struct gd_graph *graph, int64_t first, int64_t count,
               struct gd_batch *batch);
  void *user;
  int64_t valid; /* labels that count in the whole step, of all ranks */
};

/* Builds, plans, opens the backend and initialises the parameters. On failure it is closed. */
enum gd_status gd_trainer_open(struct gd_trainer *trainer, const struct gd_trainer_options *options,
                               struct gd_error *err) GD_MUST_USE;
void gd_trainer_close(struct gd_trainer *trainer); /* safe on a zeroed one */

/* One training step, the step-th from 0: *loss is that before the update, the same on all ranks. */
enum gd_status gd_trainer_step(struct gd_trainer *trainer, int64_t step,
                               const struct gd_trainer_data *data, double lr, double *loss,
                               struct gd_error *err) GD_MUST_USE;

#endif
