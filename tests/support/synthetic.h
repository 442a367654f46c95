/*
 * A few steps of real training on synthetic data: what shows that a method leaves the mathematics
 * alone. Data and masks of labels depend on seed and sample alone, dropout on the step too, so
 * that the losses are those of the whole batch whatever the method, the micro-batch and the ranks.
 *
 *   double losses[5];
 *   struct synthetic_options options = {
 *       .trainer = {.model = &model, .backend = "cpu", .batch = 8, .micro_batch = 3},
 *       .steps = 5, .lr = 1e-3};
 *   OK(synthetic_train(&options, losses, &err));
 */
#ifndef GD_TESTS_SUPPORT_SYNTHETIC_H
#define GD_TESTS_SUPPORT_SYNTHETIC_H

#include "exec/trainer.h"

struct synthetic_options {
  struct gd_trainer_options trainer;
  int steps;
  double lr;
  int64_t device_bytes, host_bytes; /* out: what the plan says */
  int64_t resident_bytes;           /* out: what the resident set grew by; -1 unknown */
};

/* losses[i] is the loss before update i; the same on every rank. */
enum gd_status synthetic_train(struct synthetic_options *options, double *losses,
                               struct gd_error *err) GD_MUST_USE;

#endif
