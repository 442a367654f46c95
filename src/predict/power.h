/*
 * The power that a GPU draws while it trains, and the clock that its limit leaves: multiplying and
 * moving bytes cost energy, and a GPU that would need more than its board may have runs slower, at
 * a lower voltage. A calibration times single ops, which are over before the limit counts; a
 * training step is not. The same figures are the energy of a run.
 */
#ifndef GD_PREDICT_POWER_H
#define GD_PREDICT_POWER_H

#include "hw/hw.h"

struct gd_power {
  double limit_w; /* of the board; 0: not known, and nothing is limited */
  double idle_w;
  double flop_joules; /* of tensor cores, at the clock of a calibration */
  double byte_joules; /* of device memory */
};
/* From the data sheet and published figures of its architecture. */
void gd_power_of(const struct gd_gpu *gpu, struct gd_power *power);

/* What a program asks of a GPU, without any limit. */
struct gd_power_load {
  double flops, bytes;
  double seconds;
  double flop_s; /* of these, bound by arithmetic: they take longer at a lower clock */
};
/* The share of its clock that the limit leaves: 1 where it does not count. */
double gd_power_clock(const struct gd_power *power, const struct gd_power_load *load);
/* Mean watts at that clock; no more than the limit. */
double gd_power_watts(const struct gd_power *power, const struct gd_power_load *load, double clock);

#endif
