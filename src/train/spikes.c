/*
 * Spikes of losses and gradient norms; see spikes.h.
 */
#include "train/spikes.h"

#include <math.h>
#include <string.h>

#define SPIKE_SIGMAS 6

static void append(double *values, int count, double value) {
  if (count == GD_RECENT_MOST)
    memmove(values, values + 1, (size_t)(--count) * sizeof *values);
  values[count] = value;
}

void gd_recent_add(struct gd_recent *recent, double loss, double norm) {
  if (!isfinite(loss) || !isfinite(norm)) /* fp16: the update has skipped itself */
    return;
  append(recent->loss, recent->count, loss);
  append(recent->norm, recent->count, norm);
  recent->count += recent->count < GD_RECENT_MOST;
}

static double most(const double *values, int count) {
  double mean = 0, squares = 0;
  if (count < GD_RECENT_TO_JUDGE)
    return HUGE_VAL;
  for (int i = 0; i < count; i++)
    mean += values[i] / count;
  for (int i = 0; i < count; i++)
    squares += (values[i] - mean) * (values[i] - mean);
  return mean + SPIKE_SIGMAS * sqrt(squares / (count - 1));
}

double gd_recent_most_loss(const struct gd_recent *recent) {
  return most(recent->loss, recent->count);
}

double gd_recent_most_norm(const struct gd_recent *recent) {
  return most(recent->norm, recent->count);
}
