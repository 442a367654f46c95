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

/* --- fields -------------------------------------------------------------------------------- */

#define RENAMED(first_name, name, kind, member)                                            \
  {                                                                                        \
    name, GD_FIELD_##kind, false, offsetof(RECORD, member), sizeof(((RECORD *)0)->member), \
        first_name                                                                         \
  }
#define FIELD(name, kind, member) RENAMED(NULL, name, kind, member)
#define SAME(kind, member)        FIELD(#member, kind, member)
#define LATER(kind, member) \
  { #member, GD_FIELD_##kind, true, offsetof(RECORD, member), sizeof(((RECORD *)0)->member), NULL }

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
    RENAMED("pass_s", "micro_step_s", REAL, micro_step.median_s),
    RENAMED("pass_half_width_s", "micro_step_half_width_s", REAL, micro_step.half_width_s),
    RENAMED("last_pass_s", "last_micro_step_s", REAL, last_micro_step.median_s),
    RENAMED("last_pass_half_width_s", "last_micro_step_half_width_s", REAL,
            last_micro_step.half_width_s),
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
    bytes = 0;
    while (text[bytes] >= ' ' && text[bytes] < 0x7f && length + bytes + 1 < size)
      bytes++; /* almost always all of it */
    bool shown = bytes > 0 || gd_text_shown(text, &bytes);
    if (length + (shown ? bytes : 1) >= size)
      break;
    memcpy(to + length, shown ? text : "?", shown ? bytes : 1);
    length += shown ? bytes : 1;
  }
  to[length] = '\0';
}

/* JSON has no word for what is not finite. */
static void append_real(struct gd_strbuf *out, double value) {
  if (isfinite(value))
    gd_json_append_real(out, value);
  else
    gd_json_append_text(out, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
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

static void append_text(struct gd_strbuf *out, const char *text) {
  char clean[sizeof((struct gd_trial *)0)->reason];
  gd_clean_text(clean, sizeof clean, text);
  gd_json_append_text(out, clean);
}

static void append_bool(struct gd_strbuf *out, bool value) {
  gd_strbuf_append(out, value ? "true" : "false");
}

/* The name of a value of an object; all but the first come after a comma. */
static void append_name(struct gd_strbuf *out, bool first, const char *name) {
  gd_strbuf_append_bytes(out, first ? "{\"" : ",\"", 2);
  gd_strbuf_append(out, name);
  gd_strbuf_append_bytes(out, "\":", 2);
}

/* An object of the fields that is not closed, as parts may come after them. */
static void append_fields(struct gd_strbuf *out, const struct gd_field *fields, int count,
                          const void *record, enum gd_names names) {
  bool first = true;
  for (int i = 0; i < count; i++) {
    if (fields[i].later && names == GD_NAMES_FIRST)
      continue;
    const void *at = (const char *)record + fields[i].offset;
    const char *first_name = names == GD_NAMES_FIRST ? fields[i].first_name : NULL;
    append_name(out, first, first_name ? first_name : fields[i].name);
    first = false;
    switch (fields[i].kind) {
    case GD_FIELD_TEXT: append_text(out, at); break;
    case GD_FIELD_BOOL: append_bool(out, *(const bool *)at); break;
    case GD_FIELD_INT: gd_json_append_int(out, *(const int *)at); break;
    case GD_FIELD_INT64: gd_json_append_int(out, *(const int64_t *)at); break;
    case GD_FIELD_REAL: append_real(out, *(const double *)at); break;
    case GD_FIELD_STATUS:
      append_text(out, gd_trial_status_name(*(const enum gd_trial_status *)at));
      break;
    case GD_FIELD_PRECISION:
      append_text(out, gd_precision_name(*(const enum gd_precision *)at));
      break;
    case GD_FIELD_FAILURE:
      append_text(out, gd_trial_failure_name(*(const enum gd_trial_failure *)at));
      break;
    }
  }
}

static enum gd_status field_set(const struct gd_json *json, const json_t *object,
                                const struct gd_field *field, void *at, struct gd_error *err) {
  const char *text, *name = field->name;
  int64_t number;
  if (field->later && !json_object_get(object, name))
    return GD_OK;
  if (field->first_name && json_object_get(object, field->first_name)) {
    if (json_object_get(object, name))
      return gd_json_mismatch(json, object, field->first_name, "nothing, as its new name is there",
                              err);
    name = field->first_name;
  }
  switch (field->kind) {
  case GD_FIELD_TEXT:
    GD_TRY(gd_json_string(json, object, name, &text, err));
    if (strlen(text) >= field->size)
      return gd_json_mismatch(json, object, name, "a shorter text", err);
    gd_clean_text(at, field->size, text);
    return GD_OK;
  case GD_FIELD_BOOL: return gd_json_bool(json, object, name, at, err);
  case GD_FIELD_INT:
    GD_TRY(gd_json_int(json, object, name, 0, INT32_MAX, &number, err));
    *(int *)at = (int)number;
    return GD_OK;
  case GD_FIELD_INT64: return gd_json_int(json, object, name, -1, (int64_t)1 << 62, at, err);
  case GD_FIELD_REAL:
    if (!real_set(json_object_get(object, name), at))
      return gd_json_mismatch(json, object, name, "a number", err);
    return GD_OK;
  case GD_FIELD_STATUS:
    GD_TRY(gd_json_string(json, object, name, &text, err));
    if (!gd_trial_status_parse(text, at))
      return gd_json_mismatch(json, object, name, "the status of a trial", err);
    return GD_OK;
  case GD_FIELD_PRECISION:
    GD_TRY(gd_json_string(json, object, name, &text, err));
    if (!gd_precision_parse(text, at))
      return gd_json_mismatch(json, object, name, "fp32, bf16 or fp16", err);
    return GD_OK;
  case GD_FIELD_FAILURE:
    GD_TRY(gd_json_string(json, object, name, &text, err));
    if (!gd_trial_failure_parse(text, at))
      return gd_json_mismatch(json, object, name, "plan, environment or nothing", err);
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

static const json_t *either(const json_t *object, const char *name, const char *first_name) {
  const json_t *value = json_object_get(object, name);
  return value ? value : json_object_get(object, first_name);
}

enum { PROGRAMS_WITH_SAMPLES = 3 };
static const char *const sampled[][PROGRAMS_WITH_SAMPLES] = {
    [GD_NAMES_TODAY] = {"micro_step_ns", "last_micro_step_ns", "update_ns"},
    [GD_NAMES_FIRST] = {"pass_ns", "last_pass_ns", "update_ns"}};
static const size_t sampled_offsets[PROGRAMS_WITH_SAMPLES] = {
    offsetof(struct gd_trial, micro_step), offsetof(struct gd_trial, last_micro_step),
    offsetof(struct gd_trial, update)};

static void append_samples(struct gd_strbuf *out, const struct gd_trial *trial,
                           enum gd_names names) {
  for (int i = 0; i < PROGRAMS_WITH_SAMPLES; i++) {
    const struct gd_samples *samples =
        (const struct gd_samples *)((const char *)trial + sampled_offsets[i]);
    append_name(out, i == 0, sampled[names][i]);
    gd_strbuf_append_bytes(out, "[", 1);
    for (int k = 0; k < samples->count; k++) {
      gd_strbuf_append_bytes(out, ",", k ? 1 : 0);
      gd_json_append_int(out, samples->ns[k]);
    }
    gd_strbuf_append_bytes(out, "]", 1);
  }
  gd_strbuf_append_bytes(out, "}", 1);
}

static bool samples_set(struct gd_trial *trial, const json_t *value) {
  for (int i = 0; i < PROGRAMS_WITH_SAMPLES; i++) {
    struct gd_samples *samples = (struct gd_samples *)((char *)trial + sampled_offsets[i]);
    const json_t *list = either(value, sampled[GD_NAMES_TODAY][i], sampled[GD_NAMES_FIRST][i]);
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

static void append_categories(struct gd_strbuf *out, const int64_t *bytes, int count) {
  for (int i = 0; i < count; i++) {
    append_name(out, i == 0, gd_category_name((enum gd_category)i));
    gd_json_append_int(out, bytes[i]);
  }
  gd_strbuf_append_bytes(out, "}", 1);
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

static const char *const program_names[][GD_PROGRAM_COUNT] = {
    [GD_NAMES_TODAY] = {[GD_PROGRAM_MICRO_STEP] = "micro_step",
                        [GD_PROGRAM_UPDATE] = "update",
                        [GD_PROGRAM_INIT] = "init",
                        [GD_PROGRAM_LAST_MICRO_STEP] = "last_micro_step"},
    [GD_NAMES_FIRST] = {[GD_PROGRAM_MICRO_STEP] = "pass",
                        [GD_PROGRAM_UPDATE] = "update",
                        [GD_PROGRAM_INIT] = "init",
                        [GD_PROGRAM_LAST_MICRO_STEP] = "last"}};
static const char *const async_names[] = {[GD_NAMES_TODAY] = "async", [GD_NAMES_FIRST] = "beside"};

static bool program_find(const char *name, enum gd_program *program) {
  for (int i = 0; i < GD_PROGRAM_COUNT; i++)
    if (strcmp(program_names[GD_NAMES_TODAY][i], name) == 0 ||
        strcmp(program_names[GD_NAMES_FIRST][i], name) == 0) {
      *program = (enum gd_program)i;
      return true;
    }
  return false;
}

static void append_profile(struct gd_strbuf *out, const struct gd_trial *trial,
                           enum gd_names names) {
  gd_strbuf_append_bytes(out, "[", 1);
  for (uint32_t i = 0; i < trial->n_profile; i++) {
    const struct gd_profile_row *row = &trial->profile[i];
    gd_strbuf_append_bytes(out, ",", i ? 1 : 0);
    append_name(out, true, "op");
    gd_json_append_text(out, gd_op_info(row->kind)->name);
    append_name(out, false, "program");
    gd_json_append_text(out, program_names[names][row->program]);
    append_name(out, false, async_names[names]);
    append_bool(out, row->async);
    append_name(out, false, "count");
    gd_json_append_int(out, row->count);
    append_name(out, false, "seconds");
    append_real(out, row->seconds);
    append_name(out, false, "bytes");
    append_real(out, row->bytes);
    append_name(out, false, "flops");
    append_real(out, row->flops);
    gd_strbuf_append_bytes(out, "}", 1);
  }
  gd_strbuf_append_bytes(out, "]", 1);
}

static bool profile_set(struct gd_trial *trial, const json_t *value) {
  size_t count = json_array_size(value);
  trial->n_profile = 0;
  if (!json_is_array(value) || count > GD_PROFILE_ROWS)
    return false;
  for (size_t i = 0; i < count; i++) {
    const json_t *object = json_array_get(value, i);
    const json_t *op = json_object_get(object, "op");
    const json_t *async = either(object, async_names[GD_NAMES_TODAY], async_names[GD_NAMES_FIRST]);
    const json_t *program = json_object_get(object, "program");
    const json_t *ops = json_object_get(object, "count");
    struct gd_profile_row row = {.async = json_is_true(async)};
    if (!json_is_string(op) || !json_is_boolean(async) || !json_is_string(program) ||
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
    if (gd_op_find(json_string_value(op), &row.kind))
      trial->profile[trial->n_profile++] = row;
  }
  return true;
}

void gd_part_append(struct gd_strbuf *out, const struct gd_trial *trial, enum gd_part part,
                    enum gd_names names) {
  switch (part) {
  case GD_PART_SAMPLES: append_samples(out, trial, names); break;
  case GD_PART_BYTES: append_categories(out, trial->bytes, GD_CATEGORY_COUNT); break;
  case GD_PART_HOST_PARTS:
    append_categories(out, trial->host_parts, GD_CATEGORY_DEVICE_COUNT);
    break;
  case GD_PART_PROFILE: append_profile(out, trial, names); break;
  case GD_PART_COUNT: break;
  }
}

static bool part_set(struct gd_trial *trial, enum gd_part part, const json_t *value) {
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

/* --- parts as they are written: almost always, and without a tree ---------------------------- */

static bool scan(const char **at, const char *word) {
  size_t length = strlen(word);
  if (strncmp(*at, word, length) != 0)
    return false;
  *at += length;
  return true;
}

/* "12": digits that JSON has for a number, and that fit. */
static bool scan_number(const char **at, int64_t *number) {
  enum { MOST_DIGITS = 18 };
  const char *digit = *at;
  int64_t value = 0;
  for (; *digit >= '0' && *digit <= '9'; digit++) {
    if (digit - *at == MOST_DIGITS)
      return false;
    value = 10 * value + (*digit - '0');
  }
  if (digit == *at || (**at == '0' && digit - *at > 1))
    return false;
  *at = digit;
  *number = value;
  return true;
}

static bool scan_name(const char **at, bool first, const char *name) {
  return scan(at, first ? "{\"" : ",\"") && scan(at, name) && scan(at, "\":");
}

static bool scan_samples(const char **at, struct gd_trial *trial) {
  for (int i = 0; i < PROGRAMS_WITH_SAMPLES; i++) {
    struct gd_samples *samples = (struct gd_samples *)((char *)trial + sampled_offsets[i]);
    int count = 0;
    if (!scan_name(at, i == 0, sampled[GD_NAMES_FIRST][i]) || !scan(at, "["))
      return false;
    while (**at != ']') {
      if (count == GD_TRIAL_MAX_SAMPLES || (count > 0 && !scan(at, ",")) ||
          !scan_number(at, &samples->ns[count++]))
        return false;
    }
    samples->count = count;
    (*at)++;
  }
  return scan(at, "}");
}

static bool scan_categories(const char **at, int64_t *bytes, int count) {
  for (int i = 0; i < count; i++)
    if (!scan_name(at, i == 0, gd_category_name((enum gd_category)i)) ||
        !scan_number(at, &bytes[i]))
      return false;
  return scan(at, "}");
}

static bool scan_part(const char *text, struct gd_trial *trial, enum gd_part part) {
  bool fine = false;
  switch (part) {
  case GD_PART_SAMPLES: fine = scan_samples(&text, trial); break;
  case GD_PART_BYTES: fine = scan_categories(&text, trial->bytes, GD_CATEGORY_COUNT); break;
  case GD_PART_HOST_PARTS:
    fine = scan_categories(&text, trial->host_parts, GD_CATEGORY_DEVICE_COUNT);
    break;
  case GD_PART_PROFILE:
    trial->n_profile = 0;
    fine = scan(&text, "[]"); /* few trials have one */
    break;
  case GD_PART_COUNT: break;
  }
  return fine && !*text;
}

bool gd_part_parse(const char *text, struct gd_trial *trial, enum gd_part part) {
  if (scan_part(text, trial, part))
    return true;
  json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
  bool fine = value && part_set(trial, part, value);
  json_decref(value);
  return fine;
}

/* --- the whole record ---------------------------------------------------------------------- */

void gd_record_append(struct gd_strbuf *out, const struct gd_trial *trial, enum gd_names names) {
  append_fields(out, gd_trial_fields, gd_trial_field_count, trial, names);
  for (int i = 0; i < GD_PART_COUNT; i++) {
    append_name(out, false, gd_part_name((enum gd_part)i));
    gd_part_append(out, trial, (enum gd_part)i, names);
  }
  gd_strbuf_append_bytes(out, "}", 1);
}

void gd_provenance_append(struct gd_strbuf *out, const struct gd_provenance *provenance) {
  append_fields(out, gd_provenance_fields, gd_provenance_field_count, provenance, GD_NAMES_TODAY);
  gd_strbuf_append_bytes(out, "}", 1);
}

/* A misspelt or foreign field is no reason to guess what else is meant otherwise. */
static enum gd_status check_names(const struct gd_json *json, const json_t *object,
                                  struct gd_error *err) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)(uintptr_t)object, key, value) {
    bool known = false;
    for (int i = 0; i < gd_trial_field_count && !known; i++)
      known = strcmp(key, gd_trial_fields[i].name) == 0 ||
              (gd_trial_fields[i].first_name && strcmp(key, gd_trial_fields[i].first_name) == 0);
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
  if (!(trial->days > 0))
    return gd_json_mismatch(json, object, "days", "days above 0, as the status is ok", err);
  if (!(trial->days_low <= trial->days))
    return gd_json_mismatch(json, object, "days_low", "at most days", err);
  if (!(trial->days_high >= trial->days && isfinite(trial->days_high)))
    return gd_json_mismatch(json, object, "days_high", "at least days", err);
  if (trial->micro_batch < 1 || trial->accumulation < 1)
    return gd_json_mismatch(json, object, trial->micro_batch < 1 ? "micro_batch" : "accumulation",
                            "1 or more, as the status is ok", err);
  /* A measured trial above the peak is implausible, not ok. */
  double most = gd_record_most_hfu(trial);
  if (!(trial->hfu >= 0 && trial->hfu <= most))
    return gd_json_mismatch(
        json, object, "hfu",
        most > 1 ? "0 to 4, as the status is ok" : "0 to 1, as the status is ok", err);
  return GD_OK;
}

enum gd_status gd_record_set(const struct gd_json *json, const json_t *object,
                             struct gd_trial *trial, struct gd_error *err) {
  GD_TRY(check_names(json, object, err));
  GD_TRY(gd_fields_set(json, object, gd_trial_fields, gd_trial_field_count, trial, err));
  for (int i = 0; i < GD_PART_COUNT; i++) {
    const char *name = gd_part_name((enum gd_part)i);
    if (!part_set(trial, (enum gd_part)i, json_object_get(object, name)))
      return gd_json_mismatch(json, object, name, "what gpudays writes there", err);
  }
  return check_record(json, object, trial, err);
}

enum gd_status gd_record_print(const struct gd_trial *trial, struct gd_strbuf *out,
                               struct gd_error *err) {
  gd_record_append(out, trial, GD_NAMES_TODAY);
  return out->failed ? gd_nomem(err, "while writing a record") : GD_OK;
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
  if (gd_backend_is_gpu(backend))
    gd_machine_driver(provenance->driver, sizeof provenance->driver);
}

enum gd_status gd_provenance_print(const struct gd_provenance *provenance, struct gd_strbuf *out,
                                   struct gd_error *err) {
  gd_provenance_append(out, provenance);
  return out->failed ? gd_nomem(err, "while writing a record") : GD_OK;
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
