/*
 * Records of trials: names, the summary of samples, provenance, and the line of JSON. One table
 * says which fields a trial has; the database's columns and the JSON are both made from it.
 */
#include "store/record.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- names --------------------------------------------------------------------------------- */

static const char *const status_names[GD_TRIAL_STATUS_COUNT] = {
    [GD_TRIAL_PLANNED] = "planned",         [GD_TRIAL_OK] = "ok",
    [GD_TRIAL_INFEASIBLE] = "infeasible",   [GD_TRIAL_FAILED] = "failed",
    [GD_TRIAL_IMPLAUSIBLE] = "implausible",
};

const char *gd_trial_status_name(enum gd_trial_status status) {
  GD_ASSERT(status < GD_TRIAL_STATUS_COUNT);
  return status_names[status];
}

bool gd_trial_status_parse(const char *text, enum gd_trial_status *status) {
  for (int i = 0; i < GD_TRIAL_STATUS_COUNT; i++)
    if (strcmp(text, status_names[i]) == 0) {
      *status = (enum gd_trial_status)i;
      return true;
    }
  return false;
}

/* --- statistics ---------------------------------------------------------------------------- */

static int compare_ns(const void *left, const void *right) {
  int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
  return a < b ? -1 : a > b;
}

/* Two-sided 95 % quantile of Student's t, by degrees of freedom (any table of it). */
static double student_t(int freedom) {
  static const double quantiles[] = {0,     12.706, 4.303, 3.182, 2.776, 2.571, 2.447,
                                     2.365, 2.306,  2.262, 2.228, 2.201, 2.179, 2.160,
                                     2.145, 2.131,  2.120, 2.110, 2.101, 2.093, 2.086};
  const int last = (int)(sizeof quantiles / sizeof *quantiles) - 1;
  return freedom <= last ? quantiles[freedom] : 1.96 + 2.5 / freedom;
}

void gd_samples_summarise(struct gd_samples *samples) {
  int64_t sorted[GD_TRIAL_MAX_SAMPLES];
  int n = samples->count;
  samples->median_s = samples->half_width_s = 0;
  if (n == 0)
    return;
  memcpy(sorted, samples->ns, (size_t)n * sizeof *sorted);
  qsort(sorted, (size_t)n, sizeof *sorted, compare_ns);
  int lower = (n - 1) / 2, upper = n / 2;
  samples->median_s = 1e-9 * 0.5 * ((double)sorted[lower] + (double)sorted[upper]);
  if (n < 2) {
    samples->half_width_s = samples->median_s; /* one sample says nothing about its spread */
    return;
  }
  double mean = 0, squares = 0;
  for (int i = 0; i < n; i++)
    mean += 1e-9 * (double)sorted[i] / n;
  for (int i = 0; i < n; i++)
    squares += (1e-9 * (double)sorted[i] - mean) * (1e-9 * (double)sorted[i] - mean);
  samples->half_width_s = student_t(n - 1) * sqrt(squares / (n - 1) / n);
}
