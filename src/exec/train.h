/*
 * A few steps of real training on synthetic data: what shows that a method leaves the mathematics
 * alone. Data and masks of labels depend on seed and sample alone, dropout on the step too, so
 * that the losses are those of the whole batch whatever the method, the micro-batch and the ranks.
 *
 *   double losses[5];
 *   struct gd_train_options options = {.model = &model, .backend = "cpu", .batch = 8,
 *                                      .micro_batch = 3, .steps = 5, .lr = 1e-3};
 *   GD_TRY(gd_train(&options, losses, err));
 */
#ifndef GD_EXEC_TRAIN_H
#define GD_EXEC_TRAIN_H

#include "backend/backend.h"
#include "model/model.h"
#include "pass/method.h"

struct gd_train_options {
  const struct gd_model *model;
  const char *backend;
  int threads; /* 0: all */
  enum gd_precision precision;
  struct gd_method method;
  struct gd_comm *comm; /* borrowed; NULL: one rank */
  int64_t batch;        /* samples a step over all ranks, which must divide it */
  int64_t micro_batch;  /* of one rank; the last of a step may be smaller */
  int steps;
  uint64_t seed;
  double lr;
  bool resident;                    /* measure what the resident set grows by */
  int64_t device_bytes, host_bytes; /* out: what the plan says */
  int64_t resident_bytes;           /* out: -1 unknown */
};

/* losses[i] is the loss before update i; the same on every rank. */
enum gd_status gd_train(struct gd_train_options *options, double *losses,
                        struct gd_error *err) GD_MUST_USE;

#endif
