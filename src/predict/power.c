/*
 * Power and clock; see power.h. Each constant has its source; watts a TFLOP/s by process are
 * fitted to published rates (gpu_model.c).
 */
#include "predict/power.h"

#include <math.h>
#include <string.h>

/* P ~ f V^2, and V rises with f where GPUs run: between f^2 and f^3. So energy a FLOP ~ f^1.5. */
static const double energy_of_clock = 1.5;
/* An idle GPU in its highest state over its limit: 85 of 700 W (H200), 55 of 400 W (A100). */
static const double idle_share = 0.12;
/* Reading or writing a byte: HBM2e 3.9 pJ a bit (O'Connor et al., MICRO 2017) to HBM3 4.5, GDDR6X
   7.25 (Micron's data sheet), and the way to the multiprocessors. */
static const double hbm_joules = 50e-12, gddr_joules = 90e-12;
/* Cards that run GEMMs with fp32 sums at half rate issue as many instructions as others for each
   FLOP, and spend half of the difference on them. */
static const double half_rate_energy = 1.5;
/* No board runs below a fifth of its clock. */
static const double clock_least = 0.2;

/* A40, L40 and L40S are cards of servers with GDDR6. */
static bool has_hbm(const struct gd_gpu *gpu) {
  return strcmp(gpu->class_name, "datacenter") == 0 && gpu->memory_bytes_per_s > 8.9e11;
}

void gd_power_of(const struct gd_gpu *gpu, const struct gd_power_units *units,
                 struct gd_power *power) {
  double full_w = 1e-12 * units->watts_per_tflops * units->flops[GD_PEAK_FP16];
  *power = (struct gd_power){.limit_w = gpu->power_w,
                             .idle_w = idle_share * gpu->power_w,
                             .clock_most = units->clock_most,
                             .byte_joules = has_hbm(gpu) ? hbm_joules : gddr_joules};
  /* Wider formats (fp32) do fewer FLOPs at the same power, so a FLOP takes more joules. */
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    power->flop_joules[i] = (units->half_rate ? half_rate_energy : 1) * full_w / units->flops[i];
}

void gd_power_add(const struct gd_power *power, enum gd_peak unit, double flops, double bytes,
                  struct gd_power_load *load) {
  load->flop_joules += flops * power->flop_joules[unit];
  load->byte_joules += bytes * power->byte_joules;
}

static double needed_w(const struct gd_power *power, const struct gd_power_load *load,
                       double seconds, double clock) {
  double joules = load->flop_joules * pow(clock, energy_of_clock) + load->byte_joules;
  return power->idle_w + joules / seconds;
}

double gd_power_watts(const struct gd_power *power, const struct gd_power_load *load,
                      double seconds, double clock) {
  if (power->limit_w <= 0 || seconds <= 0)
    return 0;
  return fmin(needed_w(power, load, seconds, clock), power->limit_w);
}

double gd_power_clock(const struct gd_power *power, const struct gd_power_load *load,
                      double (*seconds_at)(void *user, double clock), void *user) {
  double low = clock_least, high = power->clock_most;
  if (power->limit_w <= 0 || needed_w(power, load, seconds_at(user, high), high) <= power->limit_w)
    return high;
  for (int i = 0; i < 12; i++) {
    double middle = (low + high) / 2;
    if (needed_w(power, load, seconds_at(user, middle), middle) > power->limit_w)
      high = middle;
    else
      low = middle;
  }
  return low;
}
