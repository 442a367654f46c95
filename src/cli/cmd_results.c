/*
 * `gpudays results` and `gpudays best`: what the store has, as the paper's table of optimal
 * configurations, and in and out of files. What a row means is src/store's.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/results_verbs.h"
#include "cli/show_trial.h"
#include "model/presets.h"
#include "pass/method.h"
#include "store/store.h"
#include "store/store_usual.h"
#include "trial/load.h"

/* --- rows ---------------------------------------------------------------------------------- */

/* What a query found. For people only what the table shows is kept; for programs rows are written
   as they come, as there may be any number of them. */
struct found {
  struct gd_cli *cli;
  const char **cells; /* for people; in gd_mem, the texts in the arena */
  uint32_t capacity, count;
  uint32_t loaded;                     /* rows that were not measured here */
  struct gd_show_object best_by_model; /* for programs */
  struct gd_usual_recipes usual;       /* for people */
  uint32_t loud;                       /* rows that were measured while other programs ran */
  double busy_share;                   /* that those used at most */
  unsigned peaks;                      /* bit per enum gd_peak that an MFU is a share of */
  bool other_recipe;                   /* some row has not the usual recipe of its model */
  bool several_models;
  char model[sizeof((struct gd_trial *)0)->model];
};

enum {
  COLUMN_ID,
  COLUMN_MODEL,
  COLUMN_DEVICE,
  COLUMN_COUNT,
  COLUMN_METHOD,
  COLUMN_MICRO_BATCH,
  COLUMN_ACCUM,
  COLUMN_DAYS,
  COLUMN_INTERVAL,
  COLUMN_MEMORY,
  COLUMN_MFU,
  /* Only where rows need them to be told apart. */
  COLUMN_PEAK,
  COLUMN_RECIPE,
  COLUMN_LIMIT,
  COLUMN_HOST_LIMIT,
  COLUMN_MACHINE,
  COLUMN_VERSION,
  COLUMN_MEASURED,
  COLUMN_LOADED,
  COLUMNS
};
static const struct gd_show_column columns[COLUMNS] = {
    [COLUMN_ID] = {"ID", false, 0},
    [COLUMN_MODEL] = {"MODEL", false, 0},
    [COLUMN_DEVICE] = {"DEVICE", false, 2},
    [COLUMN_COUNT] = {"COUNT", true, 4},
    [COLUMN_METHOD] = {"METHOD", false, 0},
    [COLUMN_MICRO_BATCH] = {"MICRO-BATCH", true, 5},
    [COLUMN_ACCUM] = {"ACCUM", true, 8},
    [COLUMN_DAYS] = {"DAYS", true, 0},
    [COLUMN_INTERVAL] = {"95 %", true, 6},
    [COLUMN_MEMORY] = {"MEMORY", true, 2},
    [COLUMN_MFU] = {"MFU", true, 1},
    [COLUMN_PEAK] = {"OF PEAK", false, 7},
    [COLUMN_RECIPE] = {"RECIPE", false, 1},
    [COLUMN_LIMIT] = {"LIMIT", true, 3},
    [COLUMN_HOST_LIMIT] = {"HOST LIMIT", true, 3},
    [COLUMN_MACHINE] = {"MACHINE", false, 3},
    [COLUMN_VERSION] = {"VERSION", false, 4},
    [COLUMN_MEASURED] = {"MEASURED", false, 3},
    [COLUMN_LOADED] = {"LOADED", false, 7},
};

static void set_days(struct gd_cli *cli, const char **row, const struct gd_trial *trial) {
  char low[GD_SHOW_TEXT], high[GD_SHOW_TEXT];
  if (trial->status != GD_TRIAL_OK) {
    row[0] = trial->status == GD_TRIAL_PLANNED ? "pending" : gd_trial_status_name(trial->status);
    return;
  }
  row[0] = gd_show_cell(cli, "%s", gd_format_digits(low, sizeof low, trial->days, 4));
  row[1] = gd_show_cell(cli, "%s - %s", gd_format_digits(low, sizeof low, trial->days_low, 4),
                        gd_format_digits(high, sizeof high, trial->days_high, 4));
}

/* What does not fit is shown with the limit that it does not fit in. */
static void set_memory(struct gd_cli *cli, const char **cell, const struct gd_trial *trial) {
  char text[GD_SHOW_TEXT], limit[GD_SHOW_TEXT];
  struct gd_trial_need need = gd_trial_need(trial);
  if (trial->status == GD_TRIAL_INFEASIBLE && need.bytes > need.limit_bytes)
    *cell = gd_show_cell(cli, "%s of %s%s", gd_format_bytes(text, sizeof text, need.bytes),
                         gd_format_bytes(limit, sizeof limit, need.limit_bytes),
                         need.device ? "" : " on the host");
  else
    *cell = gd_show_bytes_cell(cli, trial->peak_bytes);
}

/* "64 x 256, 10 steps", and the precision where it is not the usual one. */
static enum gd_status set_recipe(struct found *found, const char **row,
                                 const struct gd_trial *trial, struct gd_error *err) {
  struct gd_usual_compared of;
  char batch[GD_SHOW_TEXT], seq[GD_SHOW_TEXT + 4] = "", count[GD_SHOW_TEXT], steps[GD_SHOW_TEXT];
  GD_TRY(gd_usual_compare(&found->usual, trial, &of, err));
  found->other_recipe |= of.differs;
  if (!of.known)
    return GD_OK;
  if (!of.images)
    snprintf(seq, sizeof seq, " x %s",
             of.recipe.seq > 0 ? gd_format_count(count, sizeof count, of.recipe.seq) : "?");
  row[COLUMN_RECIPE] = gd_show_cell(
      found->cli, "%s%s, %s step%s%s%s", gd_format_count(batch, sizeof batch, of.recipe.batch), seq,
      gd_format_count(steps, sizeof steps, of.recipe.steps), of.recipe.steps == 1 ? "" : "s",
      of.precision_differs ? ", " : "",
      of.precision_differs ? gd_precision_name(of.recipe.precision) : "");
  return GD_OK;
}

/* The trial that others disturbed the most. */
static void remember_load(struct found *found, const struct gd_trial *trial) {
  if (trial->status != GD_TRIAL_OK)
    return;
  if (trial->busy_share > GD_LOAD_QUIET)
    found->loud++;
  if (trial->busy_share > found->busy_share)
    found->busy_share = trial->busy_share;
}

/* What rows of the same model, device and method may differ in. */
static void set_differing(struct gd_cli *cli, const char **row, const struct gd_store_row *from) {
  const struct gd_trial *trial = &from->trial;
  if (trial->device_limit_bytes > 0)
    row[COLUMN_LIMIT] = gd_show_bytes_cell(cli, trial->device_limit_bytes);
  if (trial->host_limit_bytes > 0)
    row[COLUMN_HOST_LIMIT] = gd_show_bytes_cell(cli, trial->host_limit_bytes);
  row[COLUMN_MACHINE] = gd_show_cell(cli, "%s", from->provenance.host);
  row[COLUMN_VERSION] = gd_show_cell(cli, "%s %s", trial->version, trial->commit);
  row[COLUMN_MEASURED] =
      gd_show_cell(cli, "%.10s %.5s", from->provenance.time,
                   strlen(from->provenance.time) > 16 ? from->provenance.time + 11 : "");
}

static enum gd_status add_cells(struct found *found, const struct gd_store_row *from,
                                struct gd_error *err) {
  const struct gd_trial *trial = &from->trial;
  struct gd_cli *cli = found->cli;
  char text[GD_SHOW_TEXT];
  if (!gd_vec_reserve((void **)&found->cells, &found->capacity, (found->count + 1) * COLUMNS,
                      sizeof *found->cells))
    return gd_nomem(err, "while listing results");
  const char **row = found->cells + (size_t)found->count * COLUMNS;
  memset(row, 0, COLUMNS * sizeof *row);
  row[COLUMN_ID] = gd_show_cell(cli, "%s", from->short_id);
  row[COLUMN_MODEL] = gd_show_cell(cli, "%s", trial->model);
  row[COLUMN_DEVICE] = gd_show_cell(cli, "%s", trial->device);
  row[COLUMN_COUNT] = gd_show_cell(cli, "%d", trial->ranks);
  row[COLUMN_METHOD] = gd_show_cell(cli, "%s", trial->method);
  row[COLUMN_MICRO_BATCH] = gd_show_count_cell(cli, trial->micro_batch);
  row[COLUMN_ACCUM] = gd_show_count_cell(cli, trial->accumulation);
  set_days(cli, row + COLUMN_DAYS, trial);
  set_memory(cli, row + COLUMN_MEMORY, trial);
  set_differing(cli, row, from);
  if (trial->status == GD_TRIAL_OK && trial->peak_flops > 0) {
    row[COLUMN_MFU] =
        gd_show_cell(cli, "%s %%", gd_format_digits(text, sizeof text, 100 * trial->mfu, 2));
    row[COLUMN_PEAK] = gd_show_trial_peak(trial);
    found->peaks |= 1U << gd_trial_peak(trial);
  }
  GD_TRY(set_recipe(found, row, trial, err));
  remember_load(found, trial);
  if (from->origin[0]) {
    row[COLUMN_LOADED] = gd_show_cell(cli, "%s, %s", from->provenance.host, from->origin);
    found->loaded++;
  }
  return GD_OK;
}

static void set_row(struct gd_show_object *to, const struct gd_store_row *row) {
  const struct gd_provenance *from = &row->provenance;
  struct gd_show_object object;
  gd_show_set_trial(to, &row->trial, row->trial.status != GD_TRIAL_PLANNED);
  gd_show_begin_inside(&object, to, "provenance");
  gd_show_set_text(&object, "time", from->time);
  gd_show_set_text(&object, "host", from->host);
  gd_show_set_text(&object, "system", from->system);
  gd_show_set_text(&object, "kernel", from->kernel);
  gd_show_set_text(&object, "cpu", from->cpu);
  gd_show_set_text(&object, "clocks", from->clocks);
  gd_show_set_text(&object, "driver", from->driver);
  gd_show_set_object(to, "provenance", &object);
  gd_show_set_text(to, "origin", row->origin[0] ? row->origin : "here");
  gd_show_set_text(to, "key", row->key_hash);
  gd_show_set_text(to, "id", row->short_id);
  gd_show_set_bool(to, "superseded", row->superseded);
}

/* Days of different models are not compared: with several, each has a best trial of its own. */
static void remember_best(struct found *found, const struct gd_store_row *row) {
  const struct gd_trial *trial = &row->trial;
  struct gd_show_object object;
  if (found->model[0] && strcmp(found->model, trial->model) != 0)
    found->several_models = true;
  snprintf(found->model, sizeof found->model, "%s", trial->model);
  json_t *best = json_object_get(found->best_by_model.object, trial->model);
  bool ok = trial->status == GD_TRIAL_OK && !row->superseded;
  double days = best ? json_number_value(json_object_get(best, "days")) : (double)INFINITY;
  if (ok && (!json_is_object(best) || trial->days < days)) {
    gd_show_begin(&object);
    set_row(&object, row);
    gd_show_set_object(&found->best_by_model, trial->model, &object);
  } else if (!best) {
    gd_show_set_null(&found->best_by_model, trial->model);
  }
}

enum { ENOUGH_TO_WRITE = 1 << 20 };

static enum gd_status write_row(struct found *found, const struct gd_store_row *row,
                                struct gd_error *err) {
  struct gd_cli *cli = found->cli;
  struct gd_show_object object;
  if (cli->options.csv && found->count == 0) { /* with the names of the columns before it */
    gd_show_begin(&object);
    set_row(&object, row);
    GD_TRY(gd_show_csv_row(&cli->out, &object, true, err));
  } else if (cli->options.csv) {
    gd_show_begin_csv(&object, &cli->out);
    set_row(&object, row);
    GD_TRY(gd_show_end_text(&object, err));
  } else {
    gd_strbuf_append(&cli->out, found->count ? ",\n    " : "{\n  \"trials\": [\n    ");
    gd_show_begin_text(&object, &cli->out, 4);
    set_row(&object, row);
    GD_TRY(gd_show_end_text(&object, err));
    remember_best(found, row);
  }
  return cli->out.length < ENOUGH_TO_WRITE ? GD_OK : gd_cli_write(cli, err);
}

static enum gd_status add_row(struct found *found, const struct gd_store_row *row,
                              struct gd_error *err) {
  if (!gd_cli_for_programs(found->cli)) {
    GD_TRY(add_cells(found, row, err));
  } else {
    GD_TRY(write_row(found, row, err));
  }
  found->count++;
  return GD_OK;
}

static void found_begin(struct found *found, struct gd_cli *cli) {
  *found = (struct found){.cli = cli};
  if (!gd_cli_for_programs(cli))
    return;
  gd_show_begin(&found->best_by_model);
}

static void found_deinit(struct found *found) {
  json_decref(found->best_by_model.object);
  gd_mem_free(found->cells);
  gd_usual_deinit(&found->usual);
}

/* What comes after the rows; the whole is as bench prints it. */
static enum gd_status end_json(struct found *found, struct gd_error *err) {
  struct gd_strbuf *out = &found->cli->out;
  struct gd_show_object best = {0};
  json_t *only = found->several_models || !found->model[0]
                     ? NULL
                     : json_object_get(found->best_by_model.object, found->model);
  gd_strbuf_append(out,
                   found->count ? "\n  ],\n  \"best\": " : "{\n  \"trials\": [],\n  \"best\": ");
  if (json_is_object(only)) {
    best.object = json_incref(only);
    GD_TRY(gd_show_json_inside(out, &best, 2, err));
  } else {
    gd_strbuf_append(out, "null");
  }
  if (found->several_models) {
    gd_strbuf_append(out, ",\n  \"best_by_model\": ");
    GD_TRY(gd_show_json_inside(out, &found->best_by_model, 2, err));
  }
  gd_strbuf_append(out, "\n}\n");
  return GD_OK;
}

/* Whose times may be too long, as bench said when it measured them. */
static void append_load(struct found *found) {
  char note[256];
  if (found->loud == 0)
    return;
  snprintf(
      note, sizeof note,
      "note: %u of %u %s measured while other programs used up to %.0f %% of the CPUs, so that "
      "the time may be too long by that much or more: bench --fresh measures again",
      (unsigned)found->loud, (unsigned)found->count, found->loud == 1 ? "was" : "were",
      100 * found->busy_share);
  gd_show_paragraph(&found->cli->out, 2, note);
}

/* --- which columns tell rows apart --------------------------------------------------------- */

static bool is_same(const char *a, const char *b) {
  return strcmp(a ? a : "", b ? b : "") == 0;
}

/* Rows that the columns which are always shown, but for what was measured, do not tell apart. */
static int compare_cores(const void *left, const void *right) {
  static const int cores[] = {COLUMN_MODEL, COLUMN_METHOD, COLUMN_DEVICE, COLUMN_COUNT,
                              COLUMN_MICRO_BATCH};
  const char *const *a = *(const char *const *const *)left, *const *b =
                                                                *(const char *const *const *)right;
  int order = 0;
  for (size_t i = 0; i < sizeof cores / sizeof *cores && order == 0; i++)
    order = strcmp(a[cores[i]] ? a[cores[i]] : "", b[cores[i]] ? b[cores[i]] : "");
  return order;
}

/* Shows each of the columns that two such rows differ in; the time only where nothing else does. */
static enum gd_status tell_apart(const struct found *found, bool hidden[COLUMNS],
                                 struct gd_error *err) {
  static const int columns_that_tell[] = {COLUMN_RECIPE, COLUMN_LIMIT, COLUMN_HOST_LIMIT,
                                          COLUMN_MACHINE, COLUMN_VERSION};
  const char ***rows = gd_mem_alloc(found->count + 1, sizeof *rows);
  if (!rows)
    return gd_nomem(err, "while listing results");
  for (uint32_t i = 0; i < found->count; i++)
    rows[i] = found->cells + (size_t)i * COLUMNS;
  qsort(rows, found->count, sizeof *rows, compare_cores);
  for (uint32_t i = 1; i < found->count; i++) {
    bool told = false;
    if (compare_cores(&rows[i - 1], &rows[i]) != 0)
      continue;
    for (size_t k = 0; k < sizeof columns_that_tell / sizeof *columns_that_tell; k++) {
      int column = columns_that_tell[k];
      bool differs = !is_same(rows[i - 1][column], rows[i][column]);
      hidden[column] = hidden[column] && !differs;
      told = told || differs;
    }
    hidden[COLUMN_MEASURED] = hidden[COLUMN_MEASURED] && told;
  }
  gd_mem_free(rows);
  return GD_OK;
}

/* The table, or its like for programs. */
static enum gd_status append_found(struct found *found, struct gd_error *err) {
  struct gd_cli *cli = found->cli;
  if (cli->options.json)
    return end_json(found, err);
  if (cli->options.csv)
    return GD_OK;
  bool hidden[COLUMNS] = {[COLUMN_PEAK] = (found->peaks & (found->peaks - 1)) == 0,
                          [COLUMN_RECIPE] = !found->other_recipe,
                          [COLUMN_LIMIT] = true,
                          [COLUMN_HOST_LIMIT] = true,
                          [COLUMN_MACHINE] = true,
                          [COLUMN_VERSION] = true,
                          [COLUMN_MEASURED] = true,
                          [COLUMN_LOADED] = found->loaded == 0};
  struct gd_show_column shown[COLUMNS];
  size_t to = 0;
  int n_shown = 0;
  GD_TRY(tell_apart(found, hidden, err));
  for (int i = 0; i < COLUMNS; i++)
    if (!hidden[i])
      shown[n_shown++] = columns[i];
  for (size_t i = 0; i < (size_t)found->count * COLUMNS; i++) /* the cells of those close up */
    if (!hidden[i % COLUMNS])
      found->cells[to++] = found->cells[i];
  GD_TRY(gd_show_table(&cli->out, 0, shown, n_shown, found->cells, (int)found->count, err));
  append_load(found);
  return GD_OK;
}

/* --- results ------------------------------------------------------------------------------- */

static enum gd_status visit(void *user, const struct gd_store_row *row, struct gd_error *err) {
  return add_row(user, row, err);
}

/* "pythia-14m on H100: 3 of 12 trials measured, 9 pending since 2026-05-01 12:30". */
static enum gd_status visit_progress(void *user, const struct gd_store_progress *of,
                                     struct gd_error *err) {
  struct gd_cli *cli = user;
  struct gd_strbuf line = {0};
  int64_t trials = of->pending + of->measured;
  (void)err;
  gd_strbuf_printf(&line,
                   "%s on %d x %s, %s: %lld of %lld trial%s measured, %lld pending, planned "
                   "%.10s %.5s",
                   of->model, of->ranks, of->device, of->host, (long long)of->measured,
                   (long long)trials, trials == 1 ? "" : "s", (long long)of->pending, of->since,
                   strlen(of->since) > 16 ? of->since + 11 : "");
  gd_show_buffer(&cli->out, 0, &line);
  return GD_OK;
}

/* How far each search is, before the list of what it has yet to measure. */
static enum gd_status append_progress(struct gd_cli *cli, struct gd_store *store,
                                      const struct gd_store_filter *filter, struct gd_error *err) {
  GD_TRY(gd_store_progress(store, filter, visit_progress, cli, err));
  gd_show_paragraph(&cli->out, 0,
                    "The 'gpudays bench' that planned them goes on when it is given again; "
                    "'gpudays results remove --pending --yes' gives them up.");
  gd_strbuf_append(&cli->out, "\n");
  return GD_OK;
}

enum gd_status gd_results_list(struct gd_cli *cli, struct gd_store *store,
                               const struct gd_store_filter *filter, struct gd_error *err) {
  struct found found;
  found_begin(&found, cli);
  enum gd_status status = gd_store_query(store, filter, visit, &found, err);
  if (status == GD_OK && found.count == 0 && !gd_cli_for_programs(cli))
    gd_strbuf_printf(&cli->out, "no %s trials that match in %s; 'gpudays bench' measures some%s\n",
                     filter->pending ? "pending" : "finished", gd_store_path(store),
                     filter->pending ? "" : ", 'gpudays results load h200' adds published ones");
  else if (status == GD_OK && filter->pending && !gd_cli_for_programs(cli))
    status = append_progress(cli, store, filter, err);
  if (status == GD_OK && (found.count > 0 || gd_cli_for_programs(cli)))
    status = append_found(&found, err);
  found_deinit(&found);
  return status;
}

static enum gd_status show_total(struct gd_cli *cli, struct gd_store *store,
                                 const struct gd_store_filter *filter, struct gd_error *err) {
  struct gd_store_total total;
  struct gd_show_object object, rows;
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT], c[GD_SHOW_TEXT], hours[GD_SHOW_TEXT];
  GD_TRY(gd_store_count(store, filter, &total, err));
  if (gd_cli_for_programs(cli)) {
    gd_show_begin(&object);
    gd_show_set_int(&object, "trials", total.trials);
    for (int i = 0; i < GD_TRIAL_STATUS_COUNT; i++)
      gd_show_set_int(&object, gd_trial_status_name((enum gd_trial_status)i), total.by_status[i]);
    gd_show_set_int(&object, "models", total.models);
    gd_show_set_int(&object, "devices", total.devices);
    gd_show_set_real(&object, "measured_hours", total.measured_s / 3600);
    if (cli->options.json)
      return gd_show_json(&cli->out, &object, err);
    rows = (struct gd_show_object){.object = json_array()};
    gd_show_append(&rows, &object);
    return gd_show_csv(&cli->out, &rows, err);
  }
  gd_strbuf_printf(&cli->out, "%s trial%s, %s model%s, %s device%s",
                   gd_format_count(a, sizeof a, total.trials), total.trials == 1 ? "" : "s",
                   gd_format_count(b, sizeof b, total.models), total.models == 1 ? "" : "s",
                   gd_format_count(c, sizeof c, total.devices), total.devices == 1 ? "" : "s");
  const char *before = ": ";
  for (int i = 0; i < GD_TRIAL_STATUS_COUNT; i++)
    if (total.by_status[i] > 0) {
      gd_strbuf_printf(
          &cli->out, "%s%s %s", before, gd_format_count(a, sizeof a, total.by_status[i]),
          i == GD_TRIAL_PLANNED ? "pending" : gd_trial_status_name((enum gd_trial_status)i));
      before = ", ";
    }
  gd_strbuf_printf(&cli->out, "\n%s hours of measuring\n",
                   gd_format_digits(hours, sizeof hours, total.measured_s / 3600, 3));
  return GD_OK;
}

/* What was asked for, with methods and presets by their canonical names. */
static enum gd_status make_filter(const struct gd_cli *cli, struct gd_store_filter *filter,
                                  char method[GD_METHOD_NAME], char model[GD_PRESET_NAME],
                                  struct gd_error *err) {
  *filter = cli->options.filter;
  filter->ranks = (int)cli->options.ranks;
  filter->brief = !gd_cli_for_programs(cli);
  if (filter->pending && filter->status)
    return gd_fail(err, GD_BAD_INPUT,
                   "--pending and --status exclude each other; what is pending has no result yet");
  if (filter->method && !strpbrk(filter->method, "*?[")) {
    struct gd_method parsed;
    GD_TRY(gd_method_parse(filter->method, &parsed, err));
    filter->method = gd_method_name(&parsed, method);
  }
  if (filter->model && !strpbrk(filter->model, "*?[")) {
    bool found;
    GD_TRY(gd_preset_of_name(filter->model, model, &found, err));
    filter->model = found ? model : filter->model;
  }
  return GD_OK;
}

enum gd_status gd_cmd_results(struct gd_cli *cli, struct gd_error *err) {
  struct gd_store *store = NULL;
  struct gd_store_filter filter;
  char method[GD_METHOD_NAME], model[GD_PRESET_NAME];
  if (cli->n_arguments > 0)
    GD_TRY(gd_results_check_verb(cli, err));
  else if (cli->options.yes)
    return gd_fail(err, GD_BAD_INPUT, "--yes is of 'gpudays results remove'");
  GD_TRY(make_filter(cli, &filter, method, model, err));
  GD_TRY(gd_store_open(cli->options.store, &store, err));
  enum gd_status status;
  if (cli->n_arguments > 0)
    status = gd_results_run_verb(cli, store, &filter, err);
  else
    status = cli->options.total ? show_total(cli, store, &filter, err)
                                : gd_results_list(cli, store, &filter, err);
  if (status == GD_OK)
    gd_store_note_left_out(store, &cli->notes);
  gd_store_close(store);
  return status;
}

/* --- best ---------------------------------------------------------------------------------- */

/* Trials of the recipe that failed and may not fail again: one of them may be the best. */
static enum gd_status append_missing(struct gd_cli *cli, struct gd_store *store,
                                     const struct gd_best_asked *asked, struct gd_error *err) {
  char note[256];
  int missing;
  GD_TRY(gd_best_missing(store, asked, &missing, err));
  if (missing == 0)
    return GD_OK;
  snprintf(note, sizeof note,
           "%d trial%s of %.64s %s missing: %s failed (environment) and will be tried again by the "
           "same bench",
           missing, missing == 1 ? "" : "s", asked->model->name, missing == 1 ? "is" : "are",
           missing == 1 ? "it" : "they");
  if (gd_cli_for_programs(cli))
    gd_strbuf_printf(&cli->notes, "%s\n", note);
  else
    gd_strbuf_printf(&cli->out, "  note: %s\n", note);
  return GD_OK;
}

static enum gd_status find_best(struct gd_cli *cli, struct gd_store *store,
                                const struct gd_model *model, struct found *found,
                                struct gd_error *err) {
  struct gd_store_filter filter = cli->options.filter;
  char recipe[GD_CLI_RECIPE_TEXT];
  struct gd_best_asked asked = gd_cli_best_asked(cli, model, &filter, recipe);
  filter.ranks = (int)cli->options.ranks;
  filter.brief = !gd_cli_for_programs(cli);
  GD_TRY(gd_best_by_place(store, &asked, visit, found, err));
  gd_store_note_left_out(store, &cli->notes);
  GD_TRY(append_found(found, err));
  return append_missing(cli, store, &asked, err);
}

enum gd_status gd_cmd_best(struct gd_cli *cli, struct gd_error *err) {
  struct gd_store *store = NULL;
  struct gd_model model;
  GD_TRY(gd_cli_load_model(cli, cli->arguments[0], &model, err));
  struct found found;
  found_begin(&found, cli);
  enum gd_status status = gd_store_open(cli->options.store, &store, err);
  if (status == GD_OK)
    status = find_best(cli, store, &model, &found, err);
  gd_store_close(store);
  found_deinit(&found);
  return status;
}
