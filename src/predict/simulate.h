/*
 * The predicted clock: walks a program of a plan with the rates of a device instead of the device.
 * Ops run one after the other in the order of the plan; what is asynchronous
 * (collectives, copies between memories) forms a queue of its own, which starts each when the
 * computation reaches it, and ops wait for what they read by plan->waits. Copies are hidden exactly
 * as far as those waits allow.
 *
 *   struct gd_simulated pass;
 *   GD_TRY(gd_simulate(&plan, GD_PROGRAM_MICRO_STEP, &rates, &pass, err));
 *   printf("%g s\n", pass.seconds);
 */
#ifndef GD_PREDICT_SIMULATE_H
#define GD_PREDICT_SIMULATE_H

#include "plan/plan.h"
#include "predict/rates.h"
#include "trial/trial.h"

struct gd_simulated {
  double seconds;  /* of the program */
  double main_s;   /* sum over the ops of the computation */
  double async_s;  /* likewise of asynchronous ops */
  double clock;    /* of a GPU, over the highest that it reaches: what its power leaves */
  double power_w;  /* mean, of a GPU's board; 0: not known */
  uint32_t n_rows; /* by kind of op, in the order of their first use */
  struct gd_profile_row rows[GD_PROFILE_ROWS];
  /* Collectives over the fabric of a target, by kind. */
  struct gd_simulated_collective {
    uint32_t calls;
    double bytes, seconds, latency_s; /* sums; bytes as gd_collective_seconds counts them */
  } collectives[GD_COLLECTIVE_COUNT];
};

/* GD_ENVIRONMENT when memory is out; nothing else can fail. */
enum gd_status gd_simulate(const struct gd_plan *plan, enum gd_program program,
                           const struct gd_rates *rates, struct gd_simulated *simulated,
                           struct gd_error *err) GD_MUST_USE;

#endif
