/*
 * The power that a GPU draws while it computes, and the clock that its limit leaves: multiplying
 * and moving bytes cost energy, and a GPU that would need more than its board may have runs slower,
 * at a lower voltage. All of the program's watts come from here: the energy of a run, the clock of
 * this engine's steps (simulate.h) and that of other software (stack_step.h).
 *
 *   struct gd_power_load load = {0};
 *   gd_power_add(&model.power, GD_PEAK_BF16, flops, bytes, &load);
 *   double clock = gd_power_clock(&model.power, &load, seconds_at, user);
 *   double watts = gd_power_watts(&model.power, &load, seconds_at(user, clock), clock);
 *
 * Clocks are relative to the one that the data sheet's rates are of.
 */
#ifndef GD_PREDICT_POWER_H
#define GD_PREDICT_POWER_H

#include "hw/hw.h"

struct gd_power {
  double limit_w; /* of the board; 0: not known, and nothing is limited */
  double idle_w;
  double clock_most; /* what it may reach: 1 where the data sheet's is the highest */
  double flop_joules[GD_PEAK_COUNT]; /* of GEMMs, at clock 1 */
  double byte_joules;                /* of device memory */
};

/* What is known of a GPU's arithmetic besides its data sheet. */
struct gd_power_units {
  double flops[GD_PEAK_COUNT]; /* rates of its units, each above 0 */
  double watts_per_tflops;     /* of 16-bit GEMMs at clock 1 */
  double clock_most;
  bool half_rate; /* sums in fp32 halve the rate of its tensor cores */
};
void gd_power_of(const struct gd_gpu *gpu, const struct gd_power_units *units,
                 struct gd_power *power);

/* Work in sums. */
struct gd_power_load {
  double flop_joules; /* at clock 1 */
  double byte_joules;
};
void gd_power_add(const struct gd_power *power, enum gd_peak unit, double flops, double bytes,
                  struct gd_power_load *load);

/* Mean watts of so much work in so many seconds at that clock; no more than the limit. */
double gd_power_watts(const struct gd_power *power, const struct gd_power_load *load,
                      double seconds, double clock);
/* The highest clock at which that work stays within the limit; seconds_at: how long it takes. */
double gd_power_clock(const struct gd_power *power, const struct gd_power_load *load,
                      double (*seconds_at)(void *user, double clock), void *user);

#endif
