/*
 * The readers of option values; see option_values.h. What a value means is decided here; whether it
 * makes sense for a model is the library's business.
 */
#define _POSIX_C_SOURCE 200809L
#include "cli/option_values.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/json.h"
#include "cli/cli.h"
#include "pass/pass.h"
#include "predict/stack_facts.h"

static enum gd_status bad_value(const struct gd_option *option, const char *text,
                                const char *expected, struct gd_error *err) {
  char clean[64];
  return gd_fail(err, GD_BAD_INPUT, "--%s is \"%s\"; expected %s", option->name,
                 gd_json_excerpt(clean, sizeof clean, text), expected);
}

static void *field(const struct gd_option *option, struct gd_cli_options *options) {
  return (char *)options + option->target;
}

enum gd_status gd_value_switch(const struct gd_option *option, const char *text,
                               struct gd_cli_options *options, struct gd_error *err) {
  (void)text;
  (void)err;
  *(bool *)field(option, options) = true;
  return GD_OK;
}

enum gd_status gd_value_int(const struct gd_option *option, const char *text,
                            struct gd_cli_options *options, struct gd_error *err) {
  char expected[96];
  if (gd_parse_int(text, option->low, option->high, field(option, options)))
    return GD_OK;
  snprintf(expected, sizeof expected, "a whole number from %" PRId64 " to %" PRId64, option->low,
           option->high);
  return bad_value(option, text, expected, err);
}

/* "4", or "1,2,4,8" of `plan`. */
enum gd_status gd_value_counts(const struct gd_option *option, const char *text,
                               struct gd_cli_options *options, struct gd_error *err) {
  char first[24];
  size_t length = strcspn(text, ",");
  options->counts = text[length] == ',' ? text : NULL;
  snprintf(first, sizeof first, "%.*s", (int)length, text);
  return gd_value_int(option, options->counts ? first : text, options, err);
}

/* What strtod also takes for one is not: a sign, "nan", "0x10". */
static bool is_number(const char *text, double *value, char **end) {
  errno = 0;
  *value = strtod(text, end);
  return (isdigit((unsigned char)text[0]) || text[0] == '.') && !strpbrk(text, "xX") && errno == 0;
}

enum gd_status gd_value_seconds(const struct gd_option *option, const char *text,
                                struct gd_cli_options *options, struct gd_error *err) {
  char expected[96], *end;
  double value;
  if (is_number(text, &value, &end) && *end == '\0' && value > 0 && value <= (double)option->high) {
    *(double *)field(option, options) = value;
    return GD_OK;
  }
  snprintf(expected, sizeof expected, "seconds above 0, %" PRId64 " at most", option->high);
  return bad_value(option, text, expected, err);
}

/* Keeps a number that its parser found good, unless it is too large. */
static enum gd_status set_number(const struct gd_option *option, const char *text, double value,
                                 bool good, const char *above, struct gd_cli_options *options,
                                 struct gd_error *err) {
  char expected[96];
  if (good && value <= (double)option->high) {
    *(struct gd_cli_number *)field(option, options) = (struct gd_cli_number){true, value};
    return GD_OK;
  }
  snprintf(expected, sizeof expected, "a number %s %" PRId64 " to %" PRId64, above, option->low,
           option->high);
  return bad_value(option, text, expected, err);
}

enum gd_status gd_value_number(const struct gd_option *option, const char *text,
                               struct gd_cli_options *options, struct gd_error *err) {
  char *end;
  double value;
  bool good = is_number(text, &value, &end) && *end == '\0' && value >= (double)option->low;
  return set_number(option, text, value, good, "from", options, err);
}

enum gd_status gd_value_above(const struct gd_option *option, const char *text,
                              struct gd_cli_options *options, struct gd_error *err) {
  char *end;
  double value;
  bool good = is_number(text, &value, &end) && *end == '\0' && value > (double)option->low;
  return set_number(option, text, value, good, "above", options, err);
}

/* 40000, 40k and 0.04M are the same sum. */
enum gd_status gd_value_usd(const struct gd_option *option, const char *text,
                            struct gd_cli_options *options, struct gd_error *err) {
  char *end;
  double value;
  bool good = is_number(text, &value, &end);
  if (good && *end && !end[1]) {
    int letter = tolower((unsigned char)*end);
    value *= letter == 'k' ? 1e3 : letter == 'm' ? 1e6 : 1;
    end += letter == 'k' || letter == 'm';
  }
  if (!good || *end || !(value > 0 && value <= (double)option->high))
    return bad_value(option, text, "dollars above 0 such as 40000, 40k or 1.5M", err);
  *(struct gd_cli_number *)field(option, options) = (struct gd_cli_number){true, value};
  return GD_OK;
}

enum gd_status gd_value_times(const struct gd_option *option, const char *text,
                              struct gd_cli_options *options, struct gd_error *err) {
  char expected[96] = "";
  size_t length = 0;
  if (gd_times_parse(text, &options->times))
    return GD_OK;
  for (int i = 0; i < GD_TIMES_COUNT && length < sizeof expected; i++)
    length += (size_t)snprintf(expected + length, sizeof expected - length, "%s%s",
                               i == 0                    ? ""
                               : i + 1 == GD_TIMES_COUNT ? " or "
                                                         : ", ",
                               gd_times_name((enum gd_times)i));
  return bad_value(option, text, expected, err);
}

/* A number and nothing else: what it counts can only be guessed. */
static bool is_bare(const char *text) {
  char *end;
  double value;
  return is_number(text, &value, &end) && *end == '\0';
}

static enum gd_status no_unit(const struct gd_option *option, const char *text,
                              const char *const units[3], struct gd_error *err) {
  char clean[64];
  gd_json_excerpt(clean, sizeof clean, text);
  return gd_fail(err, GD_BAD_INPUT, "--%s is \"%s\", without a unit; write %s%s, %s%s or %s%s",
                 option->name, clean, clean, units[0], clean, units[1], clean, units[2]);
}

/* 90s, 1.5m, 2h and 1d. */
enum gd_status gd_value_time(const struct gd_option *option, const char *text,
                             struct gd_cli_options *options, struct gd_error *err) {
  static const struct {
    char letter;
    double seconds;
  } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
  char *end;
  double value;
  if (is_bare(text) && strtod(text, NULL) > 0)
    return no_unit(option, text, (const char *const[]){"s", "m (minutes)", "h"}, err);
  bool number = is_number(text, &value, &end);
  for (size_t i = 0; number && i < sizeof units / sizeof *units; i++)
    if (*end == units[i].letter && end[1] == '\0') {
      value *= units[i].seconds;
      end++;
    }
  if (!number || *end || !(value > 0 && value <= (double)option->high))
    return bad_value(option, text, "a time above 0 such as 90s, 10m, 2h or 1d", err);
  *(double *)field(option, options) = value;
  return GD_OK;
}

/* 350ms and 1.2s. */
enum gd_status gd_value_step_time(const struct gd_option *option, const char *text,
                                  struct gd_cli_options *options, struct gd_error *err) {
  char *end;
  double value;
  if (is_bare(text) && strtod(text, NULL) > 0)
    return no_unit(option, text, (const char *const[]){"s", "ms", "m (minutes)"}, err);
  bool number = is_number(text, &value, &end);
  double unit = number && strcmp(end, "s") == 0    ? 1
                : number && strcmp(end, "ms") == 0 ? 1e-3
                : number && strcmp(end, "m") == 0  ? 60
                                                   : 0;
  if (!(unit > 0 && value * unit >= 1e-6 && value * unit <= 1e6))
    return bad_value(option, text, "a time such as 1.2s or 350ms", err);
  *(double *)field(option, options) = value * unit;
  return GD_OK;
}

/* 500 (steps), or a time as above, which is kept as a number below 0. */
enum gd_status gd_value_every(const struct gd_option *option, const char *text,
                              struct gd_cli_options *options, struct gd_error *err) {
  struct gd_cli_number *number = field(option, options);
  double seconds = 0;
  int64_t steps;
  number->given = true;
  if (gd_parse_int(text, 1, 1000000000, &steps)) {
    number->value = (double)steps;
    return GD_OK;
  }
  const struct gd_option time = {.name = option->name, .target = 0, .high = 31536000};
  struct gd_cli_options unused;
  struct gd_error why = {0};
  if (is_bare(text) || gd_value_time(&time, text, &unused, &why) != GD_OK)
    return bad_value(option, text, "a number of steps such as 500, or a time such as 30m", err);
  memcpy(&seconds, &unused, sizeof seconds);
  number->value = -seconds;
  return GD_OK;
}

/* 300e9, 300B and 0.3T are the same count. */
enum gd_status gd_value_count(const struct gd_option *option, const char *text,
                              struct gd_cli_options *options, struct gd_error *err) {
  static const char suffixes[] = "KMBT";
  char *end;
  double value;
  bool number = is_number(text, &value, &end);
  const char *suffix = number && *end ? strchr(suffixes, toupper((unsigned char)*end)) : NULL;
  if (suffix) {
    for (const char *s = suffixes; s <= suffix; s++)
      value *= 1000;
    end++;
  }
  if (!number || *end || !(value >= 1 && value < 1e18))
    return bad_value(option, text, "a count such as 300B, 1.5T or 2000000", err);
  *(int64_t *)field(option, options) = (int64_t)value;
  return GD_OK;
}

enum gd_status gd_value_bytes(const struct gd_option *option, const char *text,
                              struct gd_cli_options *options, struct gd_error *err) {
  int64_t bytes;
  if (is_bare(text) && strtod(text, NULL) > 0)
    return no_unit(option, text, (const char *const[]){"GiB", "MiB", "B (bytes)"}, err);
  if (!gd_parse_bytes(text, &bytes) || bytes == 0)
    return bad_value(option, text, "a size above 0 such as 2GiB, 512MiB or 4096B", err);
  *(int64_t *)field(option, options) = bytes;
  return GD_OK;
}

enum gd_status gd_value_backend(const struct gd_option *option, const char *text,
                                struct gd_cli_options *options, struct gd_error *err) {
  const struct gd_backend_ops *ops;
  char names[64];
  if (gd_backend_find(text, &ops, NULL) != GD_OK)
    return bad_value(option, text, gd_backend_names(names, sizeof names, "or"), err);
  options->backend = ops->name;
  return GD_OK;
}

enum gd_status gd_value_precision(const struct gd_option *option, const char *text,
                                  struct gd_cli_options *options, struct gd_error *err) {
  if (!gd_precision_parse(text, &options->precision))
    return bad_value(option, text, "fp32, bf16 or fp16", err);
  options->precision_given = true;
  return GD_OK;
}

enum gd_status gd_value_optimizer(const struct gd_option *option, const char *text,
                                  struct gd_cli_options *options, struct gd_error *err) {
  if (!gd_optimizer_parse(text, &options->optimizer))
    return bad_value(option, text, "adam or adamw", err);
  options->optimizer_given = true;
  return GD_OK;
}

enum gd_status gd_value_micro_batch(const struct gd_option *option, const char *text,
                                    struct gd_cli_options *options, struct gd_error *err) {
  if (strcmp(text, "auto") == 0)
    options->micro_batch = GD_MICRO_BATCH_AUTO;
  else if (strcmp(text, "pow2") == 0)
    options->micro_batch = GD_MICRO_BATCH_POW2;
  else if (strcmp(text, "max") == 0)
    options->micro_batch = GD_MICRO_BATCH_MAX;
  else if (gd_parse_int(text, option->low, option->high, &options->micro_batch_size))
    options->micro_batch = GD_MICRO_BATCH_FIXED;
  else
    return bad_value(option, text, "auto, pow2, max or a whole number from 1", err);
  return GD_OK;
}

/* Without a value the graph and its plan; "passes" a summary; a name what that pass changes. */
enum gd_status gd_value_explain(const struct gd_option *option, const char *text,
                                struct gd_cli_options *options, struct gd_error *err) {
  struct gd_strbuf names = {0};
  if (!text || strcmp(text, "passes") == 0 || gd_pass_find(text, strlen(text)) >= 0) {
    options->explain = true;
    options->explain_pass = text;
    return GD_OK;
  }
  gd_strbuf_append(&names, "passes, or one of ");
  gd_pass_list(&names);
  enum gd_status status = bad_value(option, text, names.failed ? "a pass" : names.text, err);
  gd_strbuf_deinit(&names);
  return status;
}

enum gd_status gd_value_peaks(const struct gd_option *option, const char *text,
                              struct gd_cli_options *options, struct gd_error *err) {
  options->paper_peaks = strcmp(text, "paper") == 0;
  if (!options->paper_peaks && strcmp(text, "datasheet") != 0)
    return bad_value(option, text, "datasheet or paper", err);
  return GD_OK;
}

enum gd_status gd_value_id(const struct gd_option *option, const char *text,
                           struct gd_cli_options *options, struct gd_error *err) {
  if (!gd_store_is_id(text))
    return bad_value(option, text,
                     "an ID that 'gpudays results' shows, or its first digits, 4 at least", err);
  options->filter.id = text;
  return GD_OK;
}

enum gd_status gd_value_status(const struct gd_option *option, const char *text,
                               struct gd_cli_options *options, struct gd_error *err) {
  if (!gd_trial_status_parse(text, &options->status) || options->status == GD_TRIAL_PLANNED)
    return bad_value(option, text,
                     "ok, infeasible, failed or implausible (--pending for those to come)", err);
  options->filter.status = &options->status;
  return GD_OK;
}

enum gd_status gd_value_sort(const struct gd_option *option, const char *text,
                             struct gd_cli_options *options, struct gd_error *err) {
  char expected[128] = "";
  size_t length = 0;
  if (gd_store_sort_parse(text, &options->filter.sort))
    return GD_OK;
  for (int i = 0; i < GD_STORE_SORT_COUNT && length < sizeof expected; i++)
    length += (size_t)snprintf(expected + length, sizeof expected - length, "%s%s",
                               i == 0                         ? ""
                               : i + 1 == GD_STORE_SORT_COUNT ? " or "
                                                              : ", ",
                               gd_store_sort_name((enum gd_store_sort)i));
  return bad_value(option, text, expected, err);
}

enum gd_status gd_value_format(const struct gd_option *option, const char *text,
                               struct gd_cli_options *options, struct gd_error *err) {
  static const char *const of_tokens[] = {"llmc", "raw", "npy"};
  for (size_t i = 0; i < sizeof of_tokens / sizeof *of_tokens; i++)
    if (strcmp(text, of_tokens[i]) == 0) {
      options->tokens_format = text;
      return GD_OK;
    }
  if (!gd_export_parse(text, &options->format))
    return bad_value(option, text, GD_EXPORT_NAMES "; of tokens llmc, raw, npy", err);
  options->format_given = true;
  return GD_OK;
}

/* A day of the calendar, or so many hours or days back; times in the store sort as text. */
enum gd_status gd_value_since(const struct gd_option *option, const char *text,
                              struct gd_cli_options *options, struct gd_error *err) {
  static const char shape[] = "dddd-dd-ddTdd:dd:dd";
  size_t length = strlen(text), i = 0;
  char *end;
  long back = strtol(text, &end, 10);
  if (isdigit((unsigned char)text[0]) && back >= 0 && back < 100000 && end[0] && !end[1] &&
      strchr("hd", end[0])) {
    time_t then = time(NULL) - back * (end[0] == 'h' ? 3600 : 86400);
    struct tm utc;
    gmtime_r(&then, &utc);
    strftime(options->since, sizeof options->since, "%Y-%m-%dT%H:%M:%S", &utc);
    options->filter.since = options->since;
    return GD_OK;
  }
  while (i < length && i < strlen(shape) &&
         (shape[i] == 'd' ? isdigit((unsigned char)text[i]) != 0 : text[i] == shape[i]))
    i++;
  bool month = length >= 7 && (strncmp(text + 5, "01", 2) < 0 || strncmp(text + 5, "12", 2) > 0);
  if (i != length || (length != 4 && length != 7 && length != 10 && length != 16 && length != 19) ||
      month)
    return bad_value(option, text, "a day such as 2024-05-31, or 24h or 7d for the last of them",
                     err);
  snprintf(options->since, sizeof options->since, "%s", text);
  options->filter.since = options->since;
  return GD_OK;
}

enum gd_status gd_value_stack(const struct gd_option *option, const char *text,
                              struct gd_cli_options *options, struct gd_error *err) {
  struct gd_stacks stacks;
  const struct gd_stack_facts *facts;
  (void)option;
  GD_TRY(gd_stacks_load(&stacks, err));
  enum gd_status status = gd_stacks_find(&stacks, text, &facts, err);
  if (status == GD_OK)
    options->stack = facts->own ? NULL : text;
  gd_stacks_deinit(&stacks);
  return status;
}

/* Which methods there are is the library's answer; an empty text is one to no question. */
enum gd_status gd_value_text(const struct gd_option *option, const char *text,
                             struct gd_cli_options *options, struct gd_error *err) {
  if (!text[0])
    return bad_value(option, text, option->argument, err);
  *(const char **)field(option, options) = text;
  return GD_OK;
}
