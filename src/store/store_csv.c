/*
 * Trials out of the table that `results --csv` and `bench --csv` print: what is published. Not all
 * of a record is in it (samples, profiles); what is there is read by name, and an empty cell is
 * nothing.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "store/record_int.h"
#include "store/store_int.h"

/* Columns that are not called as the record's field is. */
static const struct {
  const char *field, *column;
} other_names[] = {
    {"model_flops_per_step", "flops_per_step"},
    {"exec_flops_per_step", "executed_flops_per_step"},
    {"norm", "grad_norm"},
    {"version", "versions.gpudays"},
    {"commit", "versions.commit"},
};

/* Fields without a column, and columns that came later: nothing, where they are missing. */
static bool may_miss(const struct gd_field *field) {
  static const char *const names[] = {"reduces",
                                      "micro_step_half_width_s",
                                      "last_micro_step_half_width_s",
                                      "update_half_width_s",
                                      "step_half_width_s",
                                      "no_compiler"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(field->name, names[i]) == 0)
      return true;
  return field->later;
}

static const char *column_name(const struct gd_field *field) {
  for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++)
    if (strcmp(field->name, other_names[i].field) == 0)
      return other_names[i].column;
  return field->name;
}

static enum gd_status read_number(const struct gd_csv *csv, int row, int column, double *value,
                                  struct gd_error *err) {
  *value = 0;
  return gd_csv_cell(csv, row, column)[0] ? gd_csv_number(csv, row, column, -1, 1e50, value, err)
                                          : GD_OK;
}

static enum gd_status read_cell(const struct gd_csv *csv, int row, int column,
                                const struct gd_field *field, void *at, struct gd_error *err) {
  const char *cell = gd_csv_cell(csv, row, column);
  double number = 0;
  switch (field->kind) {
  case GD_FIELD_TEXT:
    if (strlen(cell) >= field->size)
      return gd_csv_mismatch(csv, row, column, "a shorter text", err);
    gd_clean_text(at, field->size, cell);
    return GD_OK;
  case GD_FIELD_BOOL:
    *(bool *)at = strcmp(cell, "true") == 0;
    return *(bool *)at || !cell[0] || strcmp(cell, "false") == 0
               ? GD_OK
               : gd_csv_mismatch(csv, row, column, "true or false", err);
  case GD_FIELD_INT:
  case GD_FIELD_INT64:
    GD_TRY(read_number(csv, row, column, &number, err));
    if (number != nearbyint(number) || number > (field->kind == GD_FIELD_INT ? 2e9 : 4e18))
      return gd_csv_mismatch(csv, row, column, "a whole number that a trial can have", err);
    if (field->kind == GD_FIELD_INT)
      *(int *)at = (int)number;
    else
      *(int64_t *)at = (int64_t)number;
    return GD_OK;
  case GD_FIELD_REAL: return read_number(csv, row, column, at, err);
  case GD_FIELD_STATUS:
    return gd_trial_status_parse(cell, at)
               ? GD_OK
               : gd_csv_mismatch(csv, row, column, "a status such as ok", err);
  case GD_FIELD_PRECISION:
    return gd_precision_parse(cell, at)
               ? GD_OK
               : gd_csv_mismatch(csv, row, column, "fp32, fp16 or bf16", err);
  case GD_FIELD_FAILURE:
    return gd_trial_failure_parse(cell, at)
               ? GD_OK
               : gd_csv_mismatch(csv, row, column, "plan, environment or nothing", err);
  }
  return GD_OK;
}

static enum gd_status fail_column(const struct gd_csv *csv, const char *name,
                                  struct gd_error *err) {
  return gd_fail(err, GD_BAD_INPUT,
                 "%s has no column '%s'; expected what 'gpudays results --csv' writes", csv->file,
                 name);
}

static enum gd_status read_fields(const struct gd_csv *csv, int row, const char *prefix,
                                  const struct gd_field *fields, int count, void *record,
                                  struct gd_error *err) {
  for (int i = 0; i < count; i++) {
    char name[96];
    snprintf(name, sizeof name, "%s%s", prefix, column_name(&fields[i]));
    int column = gd_csv_column(csv, name);
    int first = fields[i].first_name ? gd_csv_column(csv, fields[i].first_name) : -1;
    if (column >= 0 && first >= 0)
      return gd_fail(err, GD_BAD_INPUT, "%s has '%s' twice, once as '%s'", csv->file, name,
                     fields[i].first_name);
    column = column < 0 ? first : column;
    if (column < 0 && may_miss(&fields[i]))
      continue;
    if (column < 0)
      return fail_column(csv, name, err);
    GD_TRY(read_cell(csv, row, column, &fields[i], (char *)record + fields[i].offset, err));
  }
  return GD_OK;
}

static bool is_field(const char *column, const char *prefix, const struct gd_field *fields,
                     int count) {
  size_t length = strlen(prefix);
  if (strncmp(column, prefix, length) != 0)
    return false;
  for (int i = 0; i < count; i++)
    if (strcmp(column + length, column_name(&fields[i])) == 0 ||
        (fields[i].first_name && strcmp(column + length, fields[i].first_name) == 0))
      return true;
  return false;
}

static bool is_category(const char *column) {
  const char *dot = strchr(column, '.');
  size_t length = dot ? (size_t)(dot - column) : 0;
  for (int i = 0; i < GD_CATEGORY_DEVICE_COUNT && dot; i++)
    if (strcmp(dot + 1, gd_category_name((enum gd_category)i)) == 0)
      return (length == 10 && strncmp(column, "categories", length) == 0) ||
             (length == 15 && strncmp(column, "host_categories", length) == 0);
  return false;
}

/* A misspelt column is no reason to guess what else is meant otherwise, as of a record. */
static enum gd_status check_columns(const struct gd_csv *csv, struct gd_error *err) {
  static const char *const others[] = {"gpu", "count",      "feasible", "energy_kwh", "key",
                                       "id",  "superseded", "origin",   "source",     "basis"};
  char name[64];
  for (int i = 0; i < csv->columns; i++) {
    const char *column = csv->header[i];
    bool known = is_field(column, "", gd_trial_fields, gd_trial_field_count) ||
                 is_field(column, "provenance.", gd_provenance_fields, gd_provenance_field_count) ||
                 is_category(column);
    for (size_t k = 0; k < sizeof others / sizeof *others && !known; k++)
      known = strcmp(column, others[k]) == 0;
    if (!known)
      return gd_fail(err, GD_BAD_INPUT,
                     "%s: column %d, \"%s\", is not one that 'gpudays results --csv' writes",
                     csv->file, i + 1, gd_json_excerpt(name, sizeof name, column));
  }
  return GD_OK;
}

/* Columns that repeat another one for who reads the table: they must not contradict it. */
static enum gd_status check_repeated(const struct gd_csv *csv, int row,
                                     const struct gd_trial *trial, struct gd_error *err) {
  const struct gd_field flag = {.name = "feasible", .kind = GD_FIELD_BOOL};
  const struct gd_field text = {.name = "gpu", .kind = GD_FIELD_TEXT, .size = sizeof trial->device};
  bool fits = trial->status != GD_TRIAL_INFEASIBLE, feasible = fits;
  char gpu[sizeof trial->device], expected[64];
  double count = trial->ranks;
  int column = gd_csv_column(csv, "feasible");
  if (column >= 0 && gd_csv_cell(csv, row, column)[0])
    GD_TRY(read_cell(csv, row, column, &flag, &feasible, err));
  if (feasible != fits) {
    snprintf(expected, sizeof expected, "%s, as the status is %s", fits ? "true" : "false",
             gd_trial_status_name(trial->status));
    return gd_csv_mismatch(csv, row, column, expected, err);
  }
  column = gd_csv_column(csv, "count");
  if (column >= 0 && gd_csv_cell(csv, row, column)[0])
    GD_TRY(read_number(csv, row, column, &count, err));
  if (count < trial->ranks || count > trial->ranks) {
    snprintf(expected, sizeof expected, "%d, as many as ranks", trial->ranks);
    return gd_csv_mismatch(csv, row, column, expected, err);
  }
  column = gd_csv_column(csv, "energy_kwh");
  double kwh = gd_trial_energy_kwh(trial), said = kwh;
  if (column >= 0 && gd_csv_cell(csv, row, column)[0])
    GD_TRY(read_number(csv, row, column, &said, err));
  if (!(fabs(said - kwh) <= 1e-6 * kwh))
    return gd_csv_mismatch(csv, row, column, "that of gpu_power_w, the GPUs and the days", err);
  column = gd_csv_column(csv, "gpu");
  if (column < 0 || !gd_csv_cell(csv, row, column)[0])
    return GD_OK;
  GD_TRY(read_cell(csv, row, column, &text, gpu, err));
  return strcmp(gpu, trial->device) == 0
             ? GD_OK
             : gd_csv_mismatch(csv, row, column, "the same as device", err);
}

static enum gd_status read_categories(const struct gd_csv *csv, int row, const char *prefix,
                                      int64_t *bytes, struct gd_error *err) {
  for (int i = 0; i < GD_CATEGORY_DEVICE_COUNT; i++) {
    char name[96];
    double number;
    snprintf(name, sizeof name, "%s.%s", prefix, gd_category_name((enum gd_category)i));
    int column = gd_csv_column(csv, name);
    if (column < 0)
      return fail_column(csv, name, err);
    GD_TRY(read_number(csv, row, column, &number, err));
    if (!(number >= 0 && number <= (double)GD_RECORD_MOST_BYTES))
      return gd_csv_mismatch(csv, row, column, "a number of bytes that a rank can have", err);
    bytes[i] = (int64_t)number;
  }
  return GD_OK;
}

/* What the table leaves out, of what it has. An interval that is none is left to the check of the
   columns that it comes from. */
static void complete(struct gd_trial *trial) {
  trial->bytes[GD_CATEGORY_HOST] = trial->host_bytes;
  if (trial->days > 0 && trial->days_high >= trial->days && trial->days_high <= 1e12)
    trial->step_half_width_s = (trial->days_high - trial->days) / trial->days * trial->step_s;
}

enum gd_status gd_record_read_csv(const struct gd_csv *csv, int row, struct gd_trial *trial,
                                  struct gd_provenance *provenance, bool *superseded,
                                  struct gd_error *err) {
  struct gd_trial read = {0};
  struct gd_provenance from = {0};
  const char *field, *expected;
  if (row == 0) /* once a table */
    GD_TRY(gd_csv_check_names(csv, err));
  GD_TRY(read_fields(csv, row, "", gd_trial_fields, gd_trial_field_count, &read, err));
  GD_TRY(read_fields(csv, row, "provenance.", gd_provenance_fields, gd_provenance_field_count,
                     &from, err));
  GD_TRY(read_categories(csv, row, "categories", read.bytes, err));
  GD_TRY(read_categories(csv, row, "host_categories", read.host_parts, err));
  if (provenance && gd_csv_column(csv, "key") < 0)
    return fail_column(csv, "key", err);
  if (row == 0) /* last: a missing column may be there under a wrong name, and that is said first */
    GD_TRY(check_columns(csv, err));
  complete(&read);
  GD_TRY(check_repeated(csv, row, &read, err));
  if (!gd_record_believable(&read, &field, &expected) ||
      !gd_record_consistent(&read, &field, &expected)) {
    struct gd_field named = {.name = field};
    for (int i = 0; i < gd_trial_field_count; i++)
      if (strcmp(gd_trial_fields[i].name, field) == 0)
        named = gd_trial_fields[i];
    int column = gd_csv_column(csv, column_name(&named));
    if (column < 0 && named.first_name)
      column = gd_csv_column(csv, named.first_name);
    if (column <
        0) /* what the table does not have is 0 here, which only ranks and nodes cannot be */
      return fail_column(csv, column_name(&named), err);
    return gd_csv_mismatch(csv, row, column, expected, err);
  }
  int column = gd_csv_column(csv, "superseded");
  const struct gd_field flag = {.name = "superseded", .kind = GD_FIELD_BOOL};
  *superseded = false;
  if (column >= 0)
    GD_TRY(read_cell(csv, row, column, &flag, superseded, err));
  *trial = read;
  if (provenance)
    *provenance = from;
  return GD_OK;
}
