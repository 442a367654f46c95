/*
 * Records of trials: names, the summary of samples, provenance, and the line of JSON. One table
 * says which fields a trial has; the database's columns and the JSON are both made from it.
 */
#define _GNU_SOURCE /* gethostname, clock_gettime */
#include "store/record.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "pass/method.h"
#include "store/record_int.h"

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
 * What the samples' standard error is too small by: the median of normal noise has sqrt(pi / 2) =
 * 1.25 times the error of the mean, and sampling that ends when the interval looks tight ends most
 * often when it is too tight. Chosen by simulation of that rule; tests/exec/test_coverage.c is it.
 */
#define MEDIAN_FACTOR 1.3
/* Confidence of the interval between two of the sorted samples, likewise. */
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
 * Half of what lies between the sorted samples that have the median between them with that
 * confidence, whatever the distribution: below the l-th lie fewer than l with the probability of as
 * many heads in n tosses (any book on order statistics). 0 where there are too few.
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
  if (strcmp(trial->backend, "cuda") != 0)
    device = host;
  else if (gpus > 0 && gpus < trial->ranks) /* they share them, each with a context of its own */
    device *= 0.8 * gpus / trial->ranks;
  return trial->peak_bytes > trial->device_limit_bytes ? (double)trial->device_limit_bytes < device
                                                       : (double)trial->host_limit_bytes < host;
}

/* --- fields -------------------------------------------------------------------------------- */

#define FIELD(name, kind, member) \
  { name, GD_FIELD_##kind, false, offsetof(RECORD, member), sizeof(((RECORD *)0)->member) }
#define SAME(kind, member) FIELD(#member, kind, member)
#define LATER(kind, member) \
  { #member, GD_FIELD_##kind, true, offsetof(RECORD, member), sizeof(((RECORD *)0)->member) }

#define RECORD struct gd_trial
const struct gd_field gd_trial_fields[] = {
    SAME(STATUS, status),
    SAME(TEXT, reason),
    SAME(TEXT, model),
    SAME(TEXT, method),
    SAME(TEXT, device),
    SAME(TEXT, backend),
    SAME(INT, threads),
    SAME(INT, ranks),
    SAME(INT, nodes),
    SAME(TEXT, version),
    SAME(TEXT, commit),
    SAME(PRECISION, precision),
    SAME(TEXT, no_compiler),
    SAME(BOOL, precision_substituted),
    SAME(INT64, parameters),
    SAME(INT64, micro_batch),
    SAME(INT64, accumulation),
    SAME(INT64, remainder),
    SAME(INT64, peak_bytes),
    SAME(INT64, host_bytes),
    SAME(INT64, live_bytes),
    SAME(INT64, device_limit_bytes),
    SAME(INT64, host_limit_bytes),
    SAME(BOOL, reduces),
    SAME(REAL, plan_s),
    SAME(REAL, model_flops_per_step),
    SAME(REAL, exec_flops_per_step),
    SAME(REAL, train_flops),
    FIELD("pass_s", REAL, pass.median_s),
    FIELD("pass_half_width_s", REAL, pass.half_width_s),
    FIELD("last_pass_s", REAL, last_pass.median_s),
    FIELD("last_pass_half_width_s", REAL, last_pass.half_width_s),
    FIELD("update_s", REAL, update.median_s),
    FIELD("update_half_width_s", REAL, update.half_width_s),
    SAME(REAL, warmup_s),
    SAME(REAL, step_s),
    SAME(REAL, step_half_width_s),
    SAME(REAL, days),
    SAME(REAL, days_low),
    SAME(REAL, days_high),
    SAME(REAL, tokens_per_s),
    SAME(REAL, samples_per_s),
    SAME(REAL, peak_flops),
    SAME(REAL, mfu),
    SAME(REAL, hfu),
    SAME(REAL, busy_share),
    SAME(REAL, loss),
    SAME(REAL, norm),
    SAME(INT64, resident_bytes),
    SAME(INT64, runtime_bytes),
    LATER(TEXT, recipe),
    LATER(TEXT, machine),
    LATER(FAILURE, failure),
    LATER(INT, tries),
    LATER(INT, devices),
    LATER(TEXT, note),
    LATER(REAL, throttled_share),
    LATER(REAL, stalled_share),
    LATER(REAL, steal_share),
    LATER(INT, gpu_looks),
    LATER(REAL, gpu_throttled_share),
    LATER(REAL, gpu_power_capped_share),
    LATER(INT, gpu_clock_mhz),
    LATER(INT, gpu_low_clock_mhz),
    LATER(INT, gpu_max_clock_mhz),
    LATER(REAL, gpu_power_w),
    LATER(REAL, gpu_power_limit_w),
    LATER(TEXT, gpu_clock_reasons),
};
const int gd_trial_field_count = sizeof gd_trial_fields / sizeof *gd_trial_fields;
#undef RECORD

#define RECORD struct gd_provenance
const struct gd_field gd_provenance_fields[] = {
    SAME(TEXT, time), SAME(TEXT, host),   SAME(TEXT, system), SAME(TEXT, kernel),
    SAME(TEXT, cpu),  SAME(TEXT, driver), SAME(TEXT, clocks),
};
const int gd_provenance_field_count = sizeof gd_provenance_fields / sizeof *gd_provenance_fields;
#undef RECORD

void gd_clean_text(char *to, size_t size, const char *text) {
  size_t length = 0;
  for (size_t bytes; *text; text += bytes) {
    bool shown = gd_text_shown(text, &bytes);
    if (length + (shown ? bytes : 1) >= size)
      break;
    memcpy(to + length, shown ? text : "?", shown ? bytes : 1);
    length += shown ? bytes : 1;
  }
  to[length] = '\0';
}

/* JSON has no word for these. */
static json_t *real_get(double value) {
  if (isfinite(value))
    return json_real(value);
  return json_string(isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
}

static bool real_set(const json_t *value, double *real) {
  static const struct {
    const char *text;
    double value;
  } others[] = {{"nan", (double)NAN}, {"inf", (double)INFINITY}, {"-inf", -(double)INFINITY}};
  if (json_is_number(value)) {
    *real = json_number_value(value);
    return true;
  }
  for (size_t i = 0; i < sizeof others / sizeof *others && json_is_string(value); i++)
    if (strcmp(json_string_value(value), others[i].text) == 0) {
      *real = others[i].value;
      return true;
    }
  return false;
}

static json_t *text_get(const char *text) {
  char clean[sizeof((struct gd_trial *)0)->reason];
  gd_clean_text(clean, sizeof clean, text);
  return json_string(clean);
}

static json_t *fields_get(const struct gd_field *fields, int count, const void *record,
                          bool later) {
  json_t *object = json_object();
  bool fine = object != NULL;
  for (int i = 0; i < count && fine; i++) {
    if (fields[i].later && !later)
      continue;
    const void *at = (const char *)record + fields[i].offset;
    json_t *value = NULL;
    switch (fields[i].kind) {
    case GD_FIELD_TEXT: value = text_get(at); break;
    case GD_FIELD_BOOL: value = json_boolean(*(const bool *)at); break;
    case GD_FIELD_INT: value = json_integer(*(const int *)at); break;
    case GD_FIELD_INT64: value = json_integer(*(const int64_t *)at); break;
    case GD_FIELD_REAL: value = real_get(*(const double *)at); break;
    case GD_FIELD_STATUS:
      value = json_string(gd_trial_status_name(*(const enum gd_trial_status *)at));
      break;
    case GD_FIELD_PRECISION:
      value = json_string(gd_precision_name(*(const enum gd_precision *)at));
      break;
    case GD_FIELD_FAILURE:
      value = json_string(gd_trial_failure_name(*(const enum gd_trial_failure *)at));
      break;
    }
    fine = json_object_set_new(object, fields[i].name, value) == 0;
  }
  if (!fine) {
    json_decref(object);
    return NULL;
  }
  return object;
}

json_t *gd_fields_get(const struct gd_field *fields, int count, const void *record) {
  return fields_get(fields, count, record, true);
}

static enum gd_status field_set(const struct gd_json *json, const json_t *object,
                                const struct gd_field *field, void *at, struct gd_error *err) {
  const char *text;
  int64_t number;
  if (field->later && !json_object_get(object, field->name))
    return GD_OK;
  switch (field->kind) {
  case GD_FIELD_TEXT:
    GD_TRY(gd_json_string(json, object, field->name, &text, err));
    if (strlen(text) >= field->size)
      return gd_json_mismatch(json, object, field->name, "a shorter text", err);
    gd_clean_text(at, field->size, text);
    return GD_OK;
  case GD_FIELD_BOOL: return gd_json_bool(json, object, field->name, at, err);
  case GD_FIELD_INT:
    GD_TRY(gd_json_int(json, object, field->name, 0, INT32_MAX, &number, err));
    *(int *)at = (int)number;
    return GD_OK;
  case GD_FIELD_INT64: return gd_json_int(json, object, field->name, -1, (int64_t)1 << 62, at, err);
  case GD_FIELD_REAL:
    if (!real_set(json_object_get(object, field->name), at))
      return gd_json_mismatch(json, object, field->name, "a number", err);
    return GD_OK;
  case GD_FIELD_STATUS:
    GD_TRY(gd_json_string(json, object, field->name, &text, err));
    if (!gd_trial_status_parse(text, at))
      return gd_json_mismatch(json, object, field->name, "the status of a trial", err);
    return GD_OK;
  case GD_FIELD_PRECISION:
    GD_TRY(gd_json_string(json, object, field->name, &text, err));
    if (!gd_precision_parse(text, at))
      return gd_json_mismatch(json, object, field->name, "fp32, bf16 or fp16", err);
    return GD_OK;
  case GD_FIELD_FAILURE:
    GD_TRY(gd_json_string(json, object, field->name, &text, err));
    if (!gd_trial_failure_parse(text, at))
      return gd_json_mismatch(json, object, field->name, "plan, environment or nothing", err);
    return GD_OK;
  }
  return GD_OK;
}

enum gd_status gd_fields_set(const struct gd_json *json, const json_t *object,
                             const struct gd_field *fields, int count, void *record,
                             struct gd_error *err) {
  for (int i = 0; i < count; i++)
    GD_TRY(field_set(json, object, &fields[i], (char *)record + fields[i].offset, err));
  return GD_OK;
}

/* --- parts --------------------------------------------------------------------------------- */

const char *gd_part_name(enum gd_part part) {
  static const char *const names[GD_PART_COUNT] = {[GD_PART_SAMPLES] = "samples",
                                                   [GD_PART_BYTES] = "bytes",
                                                   [GD_PART_HOST_PARTS] = "host_parts",
                                                   [GD_PART_PROFILE] = "profile"};
  return names[part];
}

enum { PROGRAMS_WITH_SAMPLES = 3 };
static const char *const sampled[PROGRAMS_WITH_SAMPLES] = {"pass_ns", "last_pass_ns", "update_ns"};
static const size_t sampled_offsets[PROGRAMS_WITH_SAMPLES] = {offsetof(struct gd_trial, pass),
                                                              offsetof(struct gd_trial, last_pass),
                                                              offsetof(struct gd_trial, update)};

static json_t *numbers_get(const int64_t *numbers, int count) {
  json_t *list = json_array();
  for (int i = 0; i < count; i++)
    if (json_array_append_new(list, json_integer(numbers[i])) != 0) {
      json_decref(list);
      return NULL;
    }
  return list;
}

static json_t *samples_get(const struct gd_trial *trial) {
  json_t *object = json_object();
  for (int i = 0; i < PROGRAMS_WITH_SAMPLES; i++) {
    const struct gd_samples *samples =
        (const struct gd_samples *)((const char *)trial + sampled_offsets[i]);
    if (json_object_set_new(object, sampled[i], numbers_get(samples->ns, samples->count)) != 0) {
      json_decref(object);
      return NULL;
    }
  }
  return object;
}

static bool samples_set(struct gd_trial *trial, const json_t *value) {
  for (int i = 0; i < PROGRAMS_WITH_SAMPLES; i++) {
    struct gd_samples *samples = (struct gd_samples *)((char *)trial + sampled_offsets[i]);
    const json_t *list = json_object_get(value, sampled[i]);
    size_t count = json_array_size(list);
    if (!json_is_array(list) || count > GD_TRIAL_MAX_SAMPLES)
      return false;
    for (size_t k = 0; k < count; k++) {
      const json_t *number = json_array_get(list, k);
      if (!json_is_integer(number) || json_integer_value(number) < 0)
        return false;
      samples->ns[k] = json_integer_value(number);
    }
    samples->count = (int)count;
  }
  return true;
}

static json_t *categories_get(const int64_t *bytes, int count) {
  json_t *object = json_object();
  for (int i = 0; i < count; i++)
    if (json_object_set_new(object, gd_category_name((enum gd_category)i),
                            json_integer(bytes[i])) != 0) {
      json_decref(object);
      return NULL;
    }
  return object;
}

static bool categories_set(int64_t *bytes, int count, const json_t *value) {
  for (int i = 0; i < count; i++) {
    const json_t *number = json_object_get(value, gd_category_name((enum gd_category)i));
    if (!json_is_integer(number))
      return false;
    bytes[i] = json_integer_value(number);
  }
  return json_object_size(value) == (size_t)count;
}

static const char *const program_names[GD_PROGRAM_COUNT] = {[GD_PROGRAM_PASS] = "pass",
                                                            [GD_PROGRAM_UPDATE] = "update",
                                                            [GD_PROGRAM_INIT] = "init",
                                                            [GD_PROGRAM_LAST] = "last"};

static bool program_find(const char *name, enum gd_program *program) {
  for (int i = 0; i < GD_PROGRAM_COUNT; i++)
    if (strcmp(program_names[i], name) == 0) {
      *program = (enum gd_program)i;
      return true;
    }
  return false;
}

static json_t *profile_get(const struct gd_trial *trial) {
  json_t *rows = json_array();
  for (uint32_t i = 0; i < trial->n_profile; i++) {
    const struct gd_profile_row *row = &trial->profile[i];
    json_t *object =
        json_pack("{s:s, s:s, s:b, s:I, s:o, s:o, s:o}", "op", gd_op_info(row->kind)->name,
                  "program", program_names[row->program], "beside", (int)row->beside, "count",
                  (json_int_t)row->count, "seconds", real_get(row->seconds), "bytes",
                  real_get(row->bytes), "flops", real_get(row->flops));
    if (json_array_append_new(rows, object) != 0) {
      json_decref(rows);
      return NULL;
    }
  }
  return rows;
}

static bool op_find(const char *name, enum gd_op_kind *kind) {
  for (int i = 0; i < GD_OP_COUNT; i++)
    if (strcmp(gd_op_info((enum gd_op_kind)i)->name, name) == 0) {
      *kind = (enum gd_op_kind)i;
      return true;
    }
  return false;
}

static bool profile_set(struct gd_trial *trial, const json_t *value) {
  size_t count = json_array_size(value);
  trial->n_profile = 0;
  if (!json_is_array(value) || count > GD_PROFILE_ROWS)
    return false;
  for (size_t i = 0; i < count; i++) {
    const json_t *object = json_array_get(value, i);
    const json_t *op = json_object_get(object, "op"), *beside = json_object_get(object, "beside");
    const json_t *program = json_object_get(object, "program");
    const json_t *ops = json_object_get(object, "count");
    struct gd_profile_row row = {.beside = json_is_true(beside)};
    if (!json_is_string(op) || !json_is_boolean(beside) || !json_is_string(program) ||
        !program_find(json_string_value(program), &row.program) || !json_is_integer(ops) ||
        json_integer_value(ops) < 0 || json_integer_value(ops) > UINT32_MAX ||
        !real_set(json_object_get(object, "seconds"), &row.seconds))
      return false;
    row.count = (uint32_t)json_integer_value(ops);
    /* Records of before had neither. */
    if (json_object_get(object, "bytes") &&
        (!real_set(json_object_get(object, "bytes"), &row.bytes) ||
         !real_set(json_object_get(object, "flops"), &row.flops)))
      return false;
    if (op_find(json_string_value(op), &row.kind))
      trial->profile[trial->n_profile++] = row;
  }
  return true;
}

json_t *gd_part_get(const struct gd_trial *trial, enum gd_part part) {
  switch (part) {
  case GD_PART_SAMPLES: return samples_get(trial);
  case GD_PART_BYTES: return categories_get(trial->bytes, GD_CATEGORY_COUNT);
  case GD_PART_HOST_PARTS: return categories_get(trial->host_parts, GD_CATEGORY_DEVICE_COUNT);
  case GD_PART_PROFILE: return profile_get(trial);
  case GD_PART_COUNT: break;
  }
  return NULL;
}

bool gd_part_set(struct gd_trial *trial, enum gd_part part, const json_t *value) {
  switch (part) {
  case GD_PART_SAMPLES: return samples_set(trial, value);
  case GD_PART_BYTES: return categories_set(trial->bytes, GD_CATEGORY_COUNT, value);
  case GD_PART_HOST_PARTS:
    return categories_set(trial->host_parts, GD_CATEGORY_DEVICE_COUNT, value);
  case GD_PART_PROFILE: return profile_set(trial, value);
  case GD_PART_COUNT: break;
  }
  return false;
}

/* --- the whole record ---------------------------------------------------------------------- */

static json_t *record_get(const struct gd_trial *trial, bool later) {
  json_t *object = fields_get(gd_trial_fields, gd_trial_field_count, trial, later);
  for (int i = 0; i < GD_PART_COUNT; i++)
    if (json_object_set_new(object, gd_part_name((enum gd_part)i),
                            gd_part_get(trial, (enum gd_part)i)) != 0) {
      json_decref(object);
      return NULL;
    }
  return object;
}

json_t *gd_record_get(const struct gd_trial *trial) {
  return record_get(trial, true);
}

json_t *gd_record_get_first(const struct gd_trial *trial) {
  return record_get(trial, false);
}

/* A misspelt or foreign field is no reason to guess what else is meant otherwise. */
static enum gd_status check_names(const struct gd_json *json, const json_t *object,
                                  struct gd_error *err) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    bool known = false;
    for (int i = 0; i < gd_trial_field_count && !known; i++)
      known = strcmp(key, gd_trial_fields[i].name) == 0;
    for (int i = 0; i < GD_PART_COUNT && !known; i++)
      known = strcmp(key, gd_part_name((enum gd_part)i)) == 0;
    if (!known) {
      char clean[64];
      return gd_fail(err, GD_BAD_INPUT, "%s: \"%s\" is no field of a trial", json->file,
                     gd_json_excerpt(clean, sizeof clean, key));
    }
  }
  return GD_OK;
}

/* Numbers that would be believed must be believable. */
static enum gd_status check_record(const struct gd_json *json, const json_t *object,
                                   const struct gd_trial *trial, struct gd_error *err) {
  struct gd_method method;
  if (gd_method_parse(trial->method, &method, NULL) != GD_OK)
    return gd_json_mismatch(json, object, "method", "the name of a method", err);
  if (trial->ranks < 1)
    return gd_json_mismatch(json, object, "ranks", "1 or more", err);
  if (trial->status != GD_TRIAL_OK)
    return GD_OK;
  if (!(trial->step_s > 0 && isfinite(trial->step_s)))
    return gd_json_mismatch(json, object, "step_s", "seconds above 0, as the status is ok", err);
  if (!(trial->days > 0 && trial->days_low <= trial->days && trial->days <= trial->days_high &&
        isfinite(trial->days_high)))
    return gd_json_mismatch(json, object, "days", "days above 0 within their interval", err);
  if (trial->micro_batch < 1 || trial->accumulation < 1)
    return gd_json_mismatch(json, object, "micro_batch", "1 or more, as the status is ok", err);
  /* The guard of a trial; mfu counts what is skipped. TF32 may be done by the units of fp16, whose
     peak is two to four times as high. */
  bool halves = trial->precision == GD_PRECISION_FP32 && method.tf32;
  if (!(trial->hfu >= 0 && trial->hfu <= (halves ? 4 : 1)))
    return gd_json_mismatch(json, object, "hfu",
                            halves ? "0 to 4, as the status is ok" : "0 to 1, as the status is ok",
                            err);
  return GD_OK;
}

enum gd_status gd_record_set(const struct gd_json *json, const json_t *object,
                             struct gd_trial *trial, struct gd_error *err) {
  GD_TRY(check_names(json, object, err));
  GD_TRY(gd_fields_set(json, object, gd_trial_fields, gd_trial_field_count, trial, err));
  for (int i = 0; i < GD_PART_COUNT; i++) {
    const char *name = gd_part_name((enum gd_part)i);
    if (!gd_part_set(trial, (enum gd_part)i, json_object_get(object, name)))
      return gd_json_mismatch(json, object, name, "what gpudays writes there", err);
  }
  return check_record(json, object, trial, err);
}

static int append_chunk(const char *chunk, size_t length, void *out) {
  gd_strbuf_append_bytes(out, chunk, length);
  return 0;
}

bool gd_json_text(const json_t *value, struct gd_strbuf *out) {
  return value &&
         json_dump_callback(value, append_chunk, out, JSON_COMPACT | JSON_ENCODE_ANY) == 0 &&
         !out->failed;
}

enum gd_status gd_record_print(const struct gd_trial *trial, struct gd_strbuf *out,
                               struct gd_error *err) {
  json_t *object = gd_record_get(trial);
  bool fine = gd_json_text(object, out);
  json_decref(object);
  return fine ? GD_OK : gd_fail(err, GD_ENVIRONMENT, "out of memory while writing a record");
}

enum gd_status gd_record_parse(const char *label, const char *text, int64_t length,
                               struct gd_trial *trial, struct gd_error *err) {
  struct gd_json json = {0};
  struct gd_trial read = {0};
  enum gd_status status = gd_json_parse(&json, label, text, length, err);
  if (status == GD_OK)
    status = gd_record_set(&json, json.root, &read, err);
  if (status == GD_OK)
    *trial = read;
  gd_json_deinit(&json);
  return status;
}

/* --- provenance ---------------------------------------------------------------------------- */

/* The value of the first line "name SEPARATOR value" of a file, without quotes. */
static bool read_line(const char *path, const char *name, const char *separators, char *to,
                      size_t size) {
  char line[1024];
  size_t length = strlen(name);
  bool found = false;
  FILE *file = fopen(path, "re");
  if (!file)
    return false;
  while (!found && fgets(line, sizeof line, file)) {
    if (strncmp(line, name, length) != 0 || !strchr(separators, line[length]))
      continue;
    char *value = line + length + strspn(line + length, separators);
    value[strcspn(value, "\"\n")] = '\0';
    gd_clean_text(to, size, value);
    found = true;
  }
  fclose(file);
  return found;
}

static double read_khz(const char *name) {
  char path[128];
  double khz = 0;
  snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cpufreq/%s", name);
  FILE *file = fopen(path, "re");
  if (!file)
    return 0;
  if (fscanf(file, "%lf", &khz) != 1)
    khz = 0;
  fclose(file);
  return khz;
}

static void read_clocks(char *to, size_t size) {
  double low = read_khz("cpuinfo_min_freq"), high = read_khz("cpuinfo_max_freq");
  char mhz[32];
  if (low > 0 && high > 0)
    snprintf(to, size, "%.0f-%.0f MHz", low / 1000, high / 1000);
  else if (read_line("/proc/cpuinfo", "cpu MHz", "\t: ", mhz, sizeof mhz))
    snprintf(to, size, "%.0f MHz", strtod(mhz, NULL));
}

void gd_provenance_here(const char *backend, struct gd_provenance *provenance) {
  struct utsname names;
  struct timespec now;
  struct tm utc;
  char host[sizeof provenance->host] = "", text[160];
  *provenance = (struct gd_provenance){0};
  clock_gettime(CLOCK_REALTIME, &now);
  if (gmtime_r(&now.tv_sec, &utc) && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc) > 0)
    snprintf(provenance->time, sizeof provenance->time, "%.19s.%03dZ", text,
             (int)(now.tv_nsec / 1000000) % 1000);
  if (gethostname(host, sizeof host - 1) == 0)
    gd_clean_text(provenance->host, sizeof provenance->host, host);
  read_line("/etc/os-release", "PRETTY_NAME", "=\"", provenance->system, sizeof provenance->system);
  if (uname(&names) == 0) {
    snprintf(text, sizeof text, "%.60s %.90s", names.sysname, names.release);
    gd_clean_text(provenance->kernel, sizeof provenance->kernel, text);
  }
  read_line("/proc/cpuinfo", "model name", "\t: ", provenance->cpu, sizeof provenance->cpu);
  read_clocks(provenance->clocks, sizeof provenance->clocks);
  if (strcmp(backend, "cuda") == 0)
    gd_machine_driver(provenance->driver, sizeof provenance->driver);
}

enum gd_status gd_provenance_print(const struct gd_provenance *provenance, struct gd_strbuf *out,
                                   struct gd_error *err) {
  json_t *object = gd_fields_get(gd_provenance_fields, gd_provenance_field_count, provenance);
  bool fine = gd_json_text(object, out);
  json_decref(object);
  return fine ? GD_OK : gd_fail(err, GD_ENVIRONMENT, "out of memory while writing a record");
}

enum gd_status gd_provenance_parse(const char *label, const char *text, int64_t length,
                                   struct gd_provenance *provenance, struct gd_error *err) {
  struct gd_json json = {0};
  struct gd_provenance read = {0};
  enum gd_status status = gd_json_parse(&json, label, text, length, err);
  if (status == GD_OK)
    status = gd_fields_set(&json, json.root, gd_provenance_fields, gd_provenance_field_count, &read,
                           err);
  if (status == GD_OK)
    *provenance = read;
  gd_json_deinit(&json);
  return status;
}

/* --- hashes -------------------------------------------------------------------------------- */

/* The finaliser of MurmurHash3 (Appleby, public domain): every bit changes every other. */
static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
  return x ^ x >> 33;
}

void gd_hash_hex(char hex[GD_HASH_TEXT], const char *text) {
  uint64_t a = 0xcbf29ce484222325u, b = 0x9e3779b97f4a7c15u;
  for (; *text; text++) {
    a = (a ^ (unsigned char)*text) * 0x100000001b3u;
    b = mix(b + (unsigned char)*text);
  }
  snprintf(hex, GD_HASH_TEXT, "%016" PRIx64 "%016" PRIx64, mix(a ^ b), mix(a + 3 * b));
}
