/*
 * What can be said of a trial's record without planning or running anything: names, the summary of
 * samples, and how much of the time something else held it back.
 */
#include "trial/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "pass/method.h"

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

const char *gd_trial_failure_name(enum gd_trial_failure failure) {
  static const char *const names[GD_FAILURE_COUNT] = {[GD_FAILURE_NONE] = "",
                                                      [GD_FAILURE_PLAN] = "plan",
                                                      [GD_FAILURE_ENVIRONMENT] = "environment",
                                                      [GD_FAILURE_CRASH] = "crash"};
  GD_ASSERT(failure < GD_FAILURE_COUNT);
  return names[failure];
}

bool gd_trial_failure_parse(const char *text, enum gd_trial_failure *failure) {
  for (int i = 0; i < GD_FAILURE_COUNT; i++)
    if (strcmp(text, gd_trial_failure_name((enum gd_trial_failure)i)) == 0) {
      *failure = (enum gd_trial_failure)i;
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

/*
 * The standard error of the mean is too small by this factor. The median of normal noise has
 * sqrt(pi / 2) = 1.25 times the error of the mean; and sampling that ends when the interval looks
 * tight ends too often when it is too tight. tests/trial/test_samples.c simulates that rule; the
 * factor is chosen so that the intervals hold the true median as often as they should.
 */
#define MEDIAN_FACTOR 1.3
/* Confidence of the interval between two of the sorted samples, chosen likewise. */
#define ORDER_CONFIDENCE 0.97

/*
 * Samples that follow each other resemble each other: with a correlation of r, n of them tell as
 * much about their centre as n (1 - r) / (1 + r) that do not. The estimate of r is too low by about
 * (1 + 4 r) / n (Marriott and Pope, Biometrika 41, 1954). From four samples on; the factor of the
 * half width.
 */
static double correlation_factor(const struct gd_samples *samples, double mean, double squares) {
  double sum = 0;
  int n = samples->count;
  if (n < 4 || squares <= 0)
    return 1;
  for (int i = 1; i < n; i++)
    sum += (1e-9 * (double)samples->ns[i] - mean) * (1e-9 * (double)samples->ns[i - 1] - mean);
  double r = sum / squares;
  r = fmin(fmax(r + (1 + 4 * r) / n, 0), 0.9);
  return sqrt((1 + r) / (1 - r));
}

/*
 * Half of the distance between two sorted samples that have the true median between them with that
 * confidence, whatever the distribution. Each sample is below the median with probability 1/2, so
 * how many are is binomial (any book on order statistics). 0 where there are too few samples.
 */
static double order_half_width(const int64_t *sorted, int n) {
  double probability = ldexp(1, -n), below = probability; /* of no heads; of at most `low` */
  int low = 0;
  if (2 * below > 1 - ORDER_CONFIDENCE)
    return 0;
  for (;;) {
    probability *= (double)(n - low) / (low + 1);
    if (2 * (below + probability) > 1 - ORDER_CONFIDENCE)
      break;
    below += probability;
    low++;
  }
  return 0.5e-9 * ((double)sorted[n - 1 - low] - (double)sorted[low]);
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
  double by_error = MEDIAN_FACTOR * student_t(n - 1) * sqrt(squares / (n - 1) / n);
  samples->half_width_s =
      fmax(by_error, order_half_width(sorted, n)) * correlation_factor(samples, mean, squares);
}

bool gd_samples_are_tight(const struct gd_samples *samples) {
  return samples->count >= GD_SAMPLES_TO_JUDGE &&
         samples->half_width_s <= GD_SAMPLES_TIGHT * samples->median_s;
}

double gd_trial_gpu_lost_share(const struct gd_trial *trial) {
  double left = 0; /* of the speed */
  if (trial->gpu_low_clock_mhz > 0 && trial->gpu_max_clock_mhz > 0)
    left = fmin(1, (double)trial->gpu_low_clock_mhz / trial->gpu_max_clock_mhz);
  return trial->gpu_throttled_share * (1 - left);
}

double gd_trial_held_share(const struct gd_trial *trial) {
  return fmax(fmax(trial->throttled_share, gd_trial_gpu_lost_share(trial)),
              fmax(trial->stalled_share, trial->steal_share));
}

bool gd_trial_is_disturbed(const struct gd_trial *trial) {
  struct gd_method method;
  bool on_cores = !gd_backend_is_gpu(trial->backend) ||
                  (gd_method_parse(trial->method, &method, NULL) == GD_OK && method.offload);
  return trial->status == GD_TRIAL_OK && on_cores && trial->busy_share > GD_TRIAL_MOST_BUSY;
}

double gd_trial_energy_kwh(const struct gd_trial *trial) {
  int gpus = trial->devices > 0 ? trial->devices : trial->ranks; /* ranks may share one */
  return trial->gpu_power_w * gpus * 24 * trial->days / 1000;
}

struct gd_trial_need gd_trial_need(const struct gd_trial *trial) {
  if (trial->peak_bytes > trial->device_limit_bytes)
    return (struct gd_trial_need){true, trial->peak_bytes, trial->device_limit_bytes};
  return (struct gd_trial_need){false, trial->host_bytes, trial->host_limit_bytes};
}

bool gd_trial_is_limited(const struct gd_trial *trial) {
  const double half_gib = 512.0 * 1024 * 1024;
  const char *machine = trial->machine;
  int ranks = trial->ranks / (trial->nodes > 1 ? trial->nodes : 1);
  double share = ranks > 1 ? 1.0 / ranks : 1; /* of a node */
  double host = half_gib * (double)gd_machine_number(machine, "memory") * share;
  double gpus = (double)gd_machine_number(machine, "gpus");
  double device = half_gib * (double)gd_machine_number(machine, "gpu_memory");
  if (trial->status != GD_TRIAL_INFEASIBLE)
    return false;
  if (!gd_backend_is_gpu(trial->backend))
    device = host;
  else if (gpus > 0 && gpus < trial->ranks) /* they share them, each with a context of its own */
    device *= 0.8 * gpus / trial->ranks;
  struct gd_trial_need need = gd_trial_need(trial);
  return (double)need.limit_bytes < (need.device ? device : host);
}

enum gd_status gd_trial_verdict(const struct gd_trial *trial, struct gd_error *err) {
  switch (trial->status) {
  case GD_TRIAL_PLANNED:
  case GD_TRIAL_OK: return GD_OK;
  case GD_TRIAL_INFEASIBLE:
    return gd_fail(err, gd_trial_need(trial).device ? GD_NOMEM_DEVICE : GD_NOMEM_HOST,
                   "%s does not fit: %s", trial->model, trial->reason);
  case GD_TRIAL_FAILED:
    return gd_fail(err, trial->failure == GD_FAILURE_CRASH ? GD_INTERNAL : GD_MISMATCH,
                   "%s failed: %s", trial->model, trial->reason);
  case GD_TRIAL_IMPLAUSIBLE:
    return gd_fail(err, GD_MISMATCH, "the result of %s is implausible: %s", trial->model,
                   trial->reason);
  case GD_TRIAL_STATUS_COUNT: break;
  }
  return gd_fail(err, GD_INTERNAL, "the trial of %s has no status", trial->model);
}
