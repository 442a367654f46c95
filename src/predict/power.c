/*
 * Power and clock; see power.h. Each constant has its source.
 */
#include "predict/power.h"

#include <math.h>
#include <string.h>

/* P ~ f V^2, and V rises with f where GPUs run: between f^2 and f^3. So energy a FLOP ~ f^1.5. */
#define ENERGY_OF_CLOCK 1.5
/* An idle GPU in its highest state over its limit: 85 of 700 W (H200), 55 of 400 W (A100). */
#define IDLE_SHARE 0.12
/* HBM2e takes 3.9 pJ a bit (O'Connor et al., MICRO 2017), GDDR6X 7.25 (Micron's data sheet), and
   the way to the multiprocessors about as much again. */
#define HBM_JOULES  60e-12
#define GDDR_JOULES 110e-12

/*
 * Joules a FLOP of long GEMMs in 16 bits: the board's power over the largest rate that was measured
 * (github.com/stas00/ml-engineering, compute/accelerator, 2024-09 and 2025-06), idle taken off:
 * 352 W for 267.9 TFLOP/s (A100), 616 W for 792 (H100), 880 W for 1,745 (B200). Ada: 396 W for 168
 * (tinygrad pull 11390), where the clock was not limited, so at most. Ampere's cards: 264 W for the
 * 110 TFLOP/s of an A6000, likewise. Volta: 264 W for 100 of 125 TFLOP/s.
 */
static double flop_joules(const struct gd_gpu *gpu) {
  switch (gpu->compute_capability) {
  case 70: return 2.6e-12;
  case 80: return 1.31e-12;
  case 86: return 2.4e-12;
  case 89: return 1.9e-12;
  case 90: return 0.78e-12;
  case 100: return 0.50e-12;
  case 120: return 1.6e-12;
  }
  return 1.3e-12;
}

void gd_power_of(const struct gd_gpu *gpu, struct gd_power *power) {
  bool hbm = strcmp(gpu->class_name ? gpu->class_name : "", "datacenter") == 0 &&
             gpu->memory_bytes_per_s > 0.85e12; /* A40, L40 and L40S have GDDR6 */
  *power = (struct gd_power){.limit_w = gpu->power_w,
                             .idle_w = IDLE_SHARE * gpu->power_w,
                             .flop_joules = flop_joules(gpu),
                             .byte_joules = hbm ? HBM_JOULES : GDDR_JOULES};
}

static double needed_w(const struct gd_power *power, const struct gd_power_load *load,
                       double clock) {
  double seconds = load->seconds + load->flop_s * (1 / clock - 1);
  double joules = load->flops * power->flop_joules * pow(clock, ENERGY_OF_CLOCK) +
                  load->bytes * power->byte_joules;
  return power->idle_w + joules / seconds;
}

double gd_power_clock(const struct gd_power *power, const struct gd_power_load *load) {
  double low = 0.25, high = 1; /* no board runs below a quarter of its clock */
  if (power->limit_w <= 0 || load->seconds <= 0 || needed_w(power, load, 1) <= power->limit_w)
    return 1;
  for (int i = 0; i < 20; i++) {
    double middle = (low + high) / 2;
    if (needed_w(power, load, middle) > power->limit_w)
      high = middle;
    else
      low = middle;
  }
  return low;
}

double gd_power_watts(const struct gd_power *power, const struct gd_power_load *load,
                      double clock) {
  if (power->limit_w <= 0 || load->seconds <= 0)
    return 0;
  return fmin(needed_w(power, load, clock), power->limit_w);
}
