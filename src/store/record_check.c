/*
 * Whether the numbers of a record can be: each within what any machine could have, and together
 * what a trial computes from them. What comes from a file or from a database that was edited goes
 * through here before anything believes it.
 */
#define _GNU_SOURCE /* timegm */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "backend/backend.h"
#include "pass/method.h"
#include "store/record_int.h"

/* Limits past any machine, and small enough that sums over ranks stay in range; in the order of
   gd_trial_fields. */
static const struct {
  const char *name;
  double low, high;
} limits[] = {
    {"threads", 0, 65536},
    {"ranks", 1, 1048576},
    {"nodes", 1, 1048576},
    {"parameters", 0, 1e15},
    {"micro_batch", 0, 1e9},
    {"accumulation", 0, 1e9},
    {"remainder", 0, 1e9},
    {"peak_bytes", 0, GD_RECORD_MOST_BYTES},
    {"host_bytes", 0, GD_RECORD_MOST_BYTES},
    {"live_bytes", 0, GD_RECORD_MOST_BYTES},
    {"device_limit_bytes", 0, 1LL << 62},
    {"host_limit_bytes", 0, 1LL << 62},
    {"plan_s", 0, 1e9},
    {"model_flops_per_step", 0, 1e40},
    {"exec_flops_per_step", 0, 1e40},
    {"train_flops", 0, 1e50},
    {"micro_step_s", 0, 1e9},
    {"micro_step_half_width_s", 0, 1e9},
    {"last_micro_step_s", 0, 1e9},
    {"last_micro_step_half_width_s", 0, 1e9},
    {"update_s", 0, 1e9},
    {"update_half_width_s", 0, 1e9},
    {"warmup_s", 0, 1e9},
    {"step_s", 0, 1e12},
    {"step_half_width_s", 0, 1e12},
    {"days", 0, 1e12},
    {"days_low", 0, 1e12},
    {"days_high", 0, 1e12},
    {"tokens_per_s", 0, 1e20},
    {"samples_per_s", 0, 1e20},
    {"peak_flops", 0, 1e30},
    {"mfu", 0, 1000},
    {"hfu", 0, 1000},
    {"busy_share", -1, 1},
    {"resident_bytes", -1, GD_RECORD_MOST_BYTES},
    {"runtime_bytes", -1, GD_RECORD_MOST_BYTES},
    {"tries", 0, 1000000},
    {"devices", 0, 1048576},
    {"throttled_share", 0, 1},
    {"stalled_share", 0, 1},
    {"steal_share", 0, 1},
    {"gpu_looks", 0, 2e9},
    {"gpu_throttled_share", 0, 1},
    {"gpu_power_capped_share", 0, 1},
    {"gpu_clock_mhz", 0, 1e6},
    {"gpu_low_clock_mhz", 0, 1e6},
    {"gpu_max_clock_mhz", 0, 1e6},
    {"gpu_power_w", 0, 1e6},
    {"gpu_power_limit_w", 0, 1e6},
};

static double value_of(const struct gd_field *field, const struct gd_trial *trial) {
  const void *at = (const char *)trial + field->offset;
  switch (field->kind) {
  case GD_FIELD_INT: return *(const int *)at;
  case GD_FIELD_INT64: return (double)*(const int64_t *)at;
  case GD_FIELD_REAL: return *(const double *)at;
  case GD_FIELD_TEXT:
  case GD_FIELD_BOOL:
  case GD_FIELD_STATUS:
  case GD_FIELD_PRECISION:
  case GD_FIELD_FAILURE: break;
  }
  return 0;
}

/* Times of a trial that is not ok are evidence that nobody computes with; counts and bytes are
   used. */
static const char *out_of_range(const struct gd_trial *trial) {
  size_t at = 0;
  for (int i = 0; i < gd_trial_field_count && at < sizeof limits / sizeof *limits; i++) {
    const struct gd_field *field = &gd_trial_fields[i];
    if (strcmp(field->name, limits[at].name) != 0)
      continue;
    double value = value_of(field, trial), low = limits[at].low, high = limits[at].high;
    at++;
    if (field->kind == GD_FIELD_REAL && trial->status != GD_TRIAL_OK)
      continue;
    if (!(value >= low && value <= high))
      return field->name;
  }
  GD_ASSERT(at == sizeof limits / sizeof *limits);
  for (int i = 0; i < GD_CATEGORY_COUNT; i++)
    if (trial->bytes[i] < 0 || trial->bytes[i] > GD_RECORD_MOST_BYTES)
      return "bytes";
  for (int i = 0; i < GD_CATEGORY_DEVICE_COUNT; i++)
    if (trial->host_parts[i] < 0 || trial->host_parts[i] > GD_RECORD_MOST_BYTES)
      return "host_parts";
  return NULL;
}

static bool equal(double a, double b) {
  return fabs(a - b) <= 1e-6 * fmax(fabs(a), fabs(b));
}

/* A quotient that is a whole number but for rounding. */
static bool is_whole(double value) {
  return isfinite(value) && value >= 0.5 && equal(value, nearbyint(value));
}

/* Where samples are told, they are what the median is of. */
static bool are_of(const struct gd_samples *samples) {
  struct gd_samples again = *samples;
  gd_samples_summarise(&again);
  return samples->count == 0 || equal(again.median_s, samples->median_s);
}

double gd_record_batch(const struct gd_trial *trial) {
  return trial->samples_per_s * trial->step_s;
}

/* Sequences of one rank in a step; the last micro-batch may be smaller. */
static double rank_batch(const struct gd_trial *trial) {
  int64_t last = trial->remainder ? trial->remainder : trial->micro_batch;
  return ((double)trial->accumulation - 1) * (double)trial->micro_batch + (double)last;
}

/* Passes and update, as a trial adds them up. */
static double step_seconds(const struct gd_trial *trial) {
  double last = trial->last_micro_step.median_s, rest = last > 0 ? 1 : 0;
  return ((double)trial->accumulation - rest) * trial->micro_step.median_s + rest * last +
         trial->update.median_s;
}

struct check {
  bool fine;
  const char *field, *expected;
};

static bool pass_all(const struct check *checks, size_t count, const char **field,
                     const char **expected) {
  for (size_t i = 0; i < count; i++)
    if (!checks[i].fine) {
      *field = checks[i].field;
      *expected = checks[i].expected;
      return false;
    }
  return true;
}

/* The plan and what was seen when it ran. */
static bool ran(const struct gd_trial *trial, const char **field, const char **expected) {
  enum { MOST_LOSS = 100 }; /* five times the logarithm of any vocabulary, as gd_trial_judge has */
  double batch = nearbyint(gd_record_batch(trial));
  const struct check checks[] = {
      {trial->device[0], "device", "the name of a device, as the status is ok"},
      {trial->step_s > 0, "step_s", "seconds above 0, as the status is ok"},
      {trial->micro_step.median_s > 0, "micro_step_s", "seconds above 0, as the status is ok"},
      {trial->micro_batch >= 1, "micro_batch", "1 or more, as the status is ok"},
      {trial->accumulation >= 1, "accumulation", "1 or more, as the status is ok"},
      {trial->remainder < trial->micro_batch, "remainder", "less than micro_batch"},
      {trial->peak_bytes > 0 && trial->peak_bytes >= trial->live_bytes, "peak_bytes",
       "above 0 and not less than live_bytes"},
      {equal(trial->step_s, step_seconds(trial)), "step_s",
       "the seconds of its micro-steps and of the update"},
      {trial->samples_per_s > 0 && is_whole(gd_record_batch(trial)), "samples_per_s",
       "sequences of a step / step_s"},
      {equal(floor(batch / trial->ranks), rank_batch(trial)), "accumulation",
       "the micro-batches (micro_batch, the last remainder) of samples_per_s x step_s / ranks "
       "sequences"},
      {trial->tokens_per_s > 0 && is_whole(trial->tokens_per_s / trial->samples_per_s),
       "tokens_per_s", "samples_per_s x the length of a sequence"},
      {are_of(&trial->micro_step) && are_of(&trial->last_micro_step) && are_of(&trial->update),
       "samples", "those that micro_step_s, last_micro_step_s and update_s are the medians of"},
      {trial->loss > 0 && trial->loss <= MOST_LOSS, "loss",
       "the loss of a random start, above 0, as the status is ok"},
      {isfinite(trial->norm) && trial->norm > 0, "norm",
       "the norm of gradients, above 0, as the status is ok"},
  };
  return pass_all(checks, sizeof checks / sizeof *checks, field, expected);
}

/* What follows from it. */
static bool adds_up(const struct gd_trial *trial, const char **field, const char **expected) {
  double rate = trial->model_flops_per_step / trial->step_s;
  double executed = trial->exec_flops_per_step / trial->step_s;
  double steps = trial->train_flops / trial->model_flops_per_step;
  const struct check checks[] = {
      {trial->model_flops_per_step > 0, "model_flops_per_step", "above 0, as the status is ok"},
      {is_whole(steps), "train_flops", "a number of steps x the FLOPs of a step"},
      {equal(trial->days, steps * trial->step_s / 86400), "days",
       "steps x step_s / 86400, with as many steps as train_flops has FLOPs of a step"},
      {trial->days_low <= trial->days, "days_low", "at most days"},
      {trial->days_high >= trial->days, "days_high", "at least days"},
      {trial->peak_flops > 0 ? equal(trial->mfu, rate / trial->peak_flops) : trial->mfu == 0, "mfu",
       "the FLOPs of a step / step_s / peak_flops"},
      {trial->peak_flops > 0 ? equal(trial->hfu, executed / trial->peak_flops) : trial->hfu == 0,
       "hfu", "the executed FLOPs of a step / step_s / peak_flops"},
      {trial->hfu <= gd_record_most_hfu(trial), "hfu", "at most 1, as the status is ok"},
  };
  return pass_all(checks, sizeof checks / sizeof *checks, field, expected);
}

double gd_record_most_hfu(const struct gd_trial *trial) {
  struct gd_method method;
  bool by_fp16 = trial->precision == GD_PRECISION_FP32 &&
                 gd_method_parse(trial->method, &method, NULL) == GD_OK && method.tf32;
  return by_fp16 ? 4 : 1;
}

bool gd_record_believable(const struct gd_trial *trial, const char **field, const char **expected) {
  const struct gd_backend_ops *ops;
  struct gd_method method;
  *expected = "a number in the range of what a trial can have";
  *field = out_of_range(trial);
  if (*field)
    return false;
  const struct check names[] = {
      {gd_method_parse(trial->method, &method, NULL) == GD_OK, "method", "the name of a method"},
      {trial->model[0], "model", "the name of a model"},
      {gd_backend_find(trial->backend, &ops, NULL) == GD_OK, "backend", "the name of a backend"},
      {trial->nodes <= trial->ranks, "nodes", "at most as many as ranks"},
  };
  if (!pass_all(names, sizeof names / sizeof *names, field, expected))
    return false;
  return trial->status != GD_TRIAL_OK ||
         (ran(trial, field, expected) && adds_up(trial, field, expected));
}

/* --- from elsewhere ------------------------------------------------------------------------ */

/* Tokens of a sequence: whole, and no longer than rounding lets us tell. */
static bool is_length(double value) {
  return value <= 1e8 && is_whole(value) && fabs(value - nearbyint(value)) <= 0.01;
}

/* Bytes by category add up to the whole; not told (a brief query) is fine. */
static bool are_parts(const int64_t *bytes, int count, int64_t whole) {
  int64_t sum = 0;
  for (int i = 0; i < count; i++)
    sum += bytes[i];
  return sum == 0 || sum == whole;
}

/* Between the largest and the sum of what its programs are uncertain by; a table leaves them out.
 */
static bool is_half_width(const struct gd_trial *trial) {
  double rest = trial->last_micro_step.median_s > 0 ? 1 : 0;
  double a = ((double)trial->accumulation - rest) * trial->micro_step.half_width_s;
  double b = rest * trial->last_micro_step.half_width_s, c = trial->update.half_width_s;
  double slack = 1e-6 * trial->step_s, width = trial->step_half_width_s;
  return a + b + c <= 0 || (width >= fmax(fmax(a, b), c) - slack && width <= a + b + c + slack);
}

/* One half width below, or further where the trial was held back or shared its machine. */
static bool is_low_end(const struct gd_trial *trial) {
  double base = trial->days * fmax(0, 1 - trial->step_half_width_s / trial->step_s);
  double held = fmin(fmax(gd_trial_held_share(trial), fmax(trial->busy_share, 0)), 1);
  double slack = 1e-6 * trial->days;
  return trial->days_low <= base + slack && trial->days_low >= base * (1 - held) - slack;
}

static bool is_high_end(const struct gd_trial *trial) {
  return equal(trial->days_high, trial->days * (1 + trial->step_half_width_s / trial->step_s));
}

/* Nothing is measured of a trial that does not fit, or that broke. */
static bool measured_nothing(const struct gd_trial *trial, const char **field,
                             const char **expected) {
  const char *nothing = trial->status == GD_TRIAL_FAILED ? "0, as the status is failed"
                                                         : "0, as the status is infeasible";
  const struct check checks[] = {
      {!(trial->step_s > 0), "step_s", nothing},
      {!(trial->days > 0), "days", nothing},
      {!(trial->days_low > 0), "days_low", nothing},
      {!(trial->days_high > 0), "days_high", nothing},
  };
  return pass_all(checks, sizeof checks / sizeof *checks, field, expected);
}

bool gd_record_consistent(const struct gd_trial *trial, const char **field, const char **expected) {
  const double most_norm = 1e20; /* its square, a sum in fp32, is past what that can hold */
  const struct check sums[] = {
      {are_parts(trial->bytes, GD_CATEGORY_DEVICE_COUNT, trial->peak_bytes), "peak_bytes",
       "the sum of its bytes by category (bytes, categories)"},
      {are_parts(trial->host_parts, GD_CATEGORY_DEVICE_COUNT, trial->host_bytes), "host_bytes",
       "the sum of its bytes by category (host_parts, host_categories)"},
  };
  if (strstr(trial->method, " without ")) {
    *field = "method";
    *expected = "a method with all its passes: others answer for none";
    return false;
  }
  if (!pass_all(sums, sizeof sums / sizeof *sums, field, expected))
    return false;
  if (trial->status == GD_TRIAL_INFEASIBLE || trial->status == GD_TRIAL_FAILED)
    return measured_nothing(trial, field, expected);
  if (trial->status != GD_TRIAL_OK)
    return true;
  const struct check checks[] = {
      {trial->parameters >= 1, "parameters", "1 or more, as the status is ok"},
      {trial->device_limit_bytes == 0 || trial->peak_bytes <= trial->device_limit_bytes,
       "device_limit_bytes", "at least peak_bytes, as the status is ok"},
      {trial->host_limit_bytes == 0 || trial->host_bytes <= trial->host_limit_bytes,
       "host_limit_bytes", "at least host_bytes, as the status is ok"},
      {is_length(trial->tokens_per_s / trial->samples_per_s), "tokens_per_s",
       "samples_per_s x the length of a sequence"},
      {trial->norm <= most_norm, "norm",
       "the norm of gradients, above 0 and at most 1e20, as the status is ok"},
      {is_half_width(trial), "step_half_width_s",
       "what micro_step_half_width_s, last_micro_step_half_width_s and update_half_width_s make"},
      {is_high_end(trial), "days_high", "days x (1 + step_half_width_s / step_s)"},
      {is_low_end(trial), "days_low",
       "as far below days as days_high is above, and further only where it was held back"},
  };
  return pass_all(checks, sizeof checks / sizeof *checks, field, expected);
}

/* "2024-05-01T12:00:00.123Z": sorts as text, and nothing else does. A day ahead of us is a clock,
   or a time zone, that is wrong; more is no date of a measurement. */
bool gd_time_believable(const char *text) {
  static const char shape[] = "dddd-dd-ddTdd:dd:dd.dddZ";
  enum { FIRST_YEAR = 2000, DAY_S = 86400 };
  struct tm utc = {0}, back;
  if (strlen(text) != strlen(shape))
    return false;
  for (size_t i = 0; shape[i]; i++)
    if (shape[i] == 'd' ? text[i] < '0' || text[i] > '9' : text[i] != shape[i])
      return false;
  if (sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d", &utc.tm_year, &utc.tm_mon, &utc.tm_mday, &utc.tm_hour,
             &utc.tm_min, &utc.tm_sec) != 6 ||
      utc.tm_year < FIRST_YEAR)
    return false;
  utc.tm_year -= 1900;
  utc.tm_mon -= 1;
  back = utc;
  time_t then = timegm(&back); /* the 31st of April comes back as another day */
  return back.tm_mon == utc.tm_mon && back.tm_mday == utc.tm_mday && back.tm_hour == utc.tm_hour &&
         back.tm_min == utc.tm_min && then <= time(NULL) + DAY_S;
}
