/*
 * `gpudays plan MODEL...`: memory by category, micro-batch and predicted time, before anything
 * runs; on this machine, or on hardware of the catalogue.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/plan_stack.h"
#include "cli/predicting.h"
#include "cli/show_trial.h"
#include "search/plans.h"
#include "search/search.h"

/* A byte count as a row of the memory table. */
static void set_row(struct gd_cli *cli, const char **row, const char *name, int64_t bytes,
                    int64_t whole) {
  char exact[GD_SHOW_TEXT], rounded[GD_SHOW_TEXT];
  row[0] = name;
  row[1] = gd_show_cell(cli, "%s", gd_format_count(exact, sizeof exact, bytes));
  row[2] = gd_show_cell(cli, "%s", gd_format_bytes(rounded, sizeof rounded, bytes));
  if (whole > 0)
    row[3] = gd_show_cell(cli, "%.1f %%", 100 * (double)bytes / (double)whole);
}

static enum gd_status append_memory(struct gd_cli *cli, const struct gd_trial *trial,
                                    struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"DEVICE MEMORY", false}, {"BYTES", true}, {"SIZE", true}, {"SHARE", true}};
  enum { COLUMNS = sizeof columns / sizeof *columns, ROWS = GD_CATEGORY_DEVICE_COUNT + 3 };
  const char *cells[ROWS * COLUMNS] = {0};
  int64_t left = trial->device_limit_bytes - trial->peak_bytes;
  int at = 0;
  for (int i = 0; i < GD_CATEGORY_DEVICE_COUNT; i++)
    set_row(cli, cells + (ptrdiff_t)COLUMNS * at++, gd_category_name((enum gd_category)i),
            trial->bytes[i], trial->peak_bytes);
  set_row(cli, cells + (ptrdiff_t)COLUMNS * at++, "peak", trial->peak_bytes, 0);
  set_row(cli, cells + (ptrdiff_t)COLUMNS * at++, "limit", trial->device_limit_bytes, 0);
  set_row(cli, cells + (ptrdiff_t)COLUMNS * at++, left < 0 ? "missing" : "headroom",
          left < 0 ? -left : left, 0);
  return gd_show_table(&cli->out, 2, columns, COLUMNS, cells, at, err);
}

/* What offloading keeps there; nothing worth a word where only the batch is staged. */
static void append_host_parts(struct gd_strbuf *out, const struct gd_trial *trial) {
  char bytes[GD_SHOW_TEXT];
  bool first = true;
  for (int i = 0; i < GD_CATEGORY_INPUTS; i++) {
    if (trial->host_parts[i] == 0)
      continue;
    gd_strbuf_printf(out, "%s%s %s", first ? ": " : ", ", gd_category_name((enum gd_category)i),
                     gd_format_bytes(bytes, sizeof bytes, trial->host_parts[i]));
    first = false;
  }
}

/* The predicted time of a plan that fits. */
static void append_times(struct gd_cli *cli, const struct gd_predicting *p,
                         const struct gd_prediction *prediction) {
  struct gd_strbuf *out = &cli->out;
  struct gd_show_duration days;
  char step[GD_SHOW_TEXT], pass[GD_SHOW_TEXT], last[GD_SHOW_TEXT], update[GD_SHOW_TEXT];
  gd_show_duration(&days, prediction->days * 86400, prediction->days_low * 86400,
                   prediction->days_high * 86400);
  gd_strbuf_append(out, "  ");
  gd_show_bold(cli, days.value);
  gd_strbuf_printf(out, "  (%s), predicted: a step takes %s\n", days.interval,
                   gd_show_seconds(step, sizeof step, prediction->step_s));
  gd_show_seconds(last, sizeof last, prediction->last_pass_s);
  gd_strbuf_printf(out, "  a pass %s%s%s, the update %s\n",
                   gd_show_seconds(pass, sizeof pass, prediction->pass_s),
                   prediction->has_last_pass ? ", the last " : "",
                   prediction->has_last_pass ? last : "",
                   gd_show_seconds(update, sizeof update, prediction->update_s));
  gd_show_basis(cli, p, 1u << prediction->of);
}

static enum gd_status append_sheet(struct gd_cli *cli, const struct gd_predicting *p,
                                   const struct gd_plan_point *point, struct gd_error *err) {
  const struct gd_model *model = point->model;
  const struct gd_trial *trial = &point->trial;
  struct gd_strbuf *out = &cli->out;
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT], step[3 * GD_SHOW_TEXT], passes[3 * GD_SHOW_TEXT];
  bool fits = trial->status != GD_TRIAL_INFEASIBLE;
  bool host = !fits && trial->peak_bytes <= trial->device_limit_bytes;
  gd_show_trial_title(out, trial);
  gd_strbuf_append(out, "  ");
  gd_show_bold(cli, fits ? "fits" : "does not fit");
  gd_strbuf_printf(
      out, ": %s of %s memory needed, %s allowed\n",
      gd_format_bytes(a, sizeof a, host ? trial->host_bytes : trial->peak_bytes),
      host ? "host" : "device",
      gd_format_bytes(b, sizeof b, host ? trial->host_limit_bytes : trial->device_limit_bytes));
  gd_strbuf_printf(out, "  a step of %s is %s\n", gd_show_step_size(step, sizeof step, model),
                   gd_show_passes(passes, sizeof passes, trial));
  if (p->has_target)
    gd_show_nodes(cli, &p->target);
  if (fits && gd_predicting_shows(p))
    append_times(cli, p, &point->prediction);
  gd_strbuf_append(out, "\n");
  GD_TRY(append_memory(cli, trial, err));
  gd_strbuf_printf(out, "\n  host memory %s of %s", gd_format_bytes(a, sizeof a, trial->host_bytes),
                   gd_format_bytes(b, sizeof b, trial->host_limit_bytes));
  append_host_parts(out, trial);
  gd_strbuf_printf(out, "; planned in %s\n", gd_show_seconds(a, sizeof a, trial->plan_s));
  gd_show_precision_note(out, model, trial);
  gd_show_trial_note(out, trial);
  if (fits && !gd_predicting_shows(p))
    gd_show_basis(cli, p, 0);
  return GD_OK;
}

/* --- several methods ------------------------------------------------------------------------ */

static void set_trial_row(struct gd_cli *cli, const char **row, const struct gd_plan_point *point) {
  static const enum gd_category shown[] = {GD_CATEGORY_PARAMETERS, GD_CATEGORY_GRADIENTS,
                                           GD_CATEGORY_OPTIMIZER, GD_CATEGORY_ACTIVATIONS};
  const struct gd_trial *trial = &point->trial;
  char text[GD_SHOW_TEXT];
  row[0] = trial->model;
  row[1] = trial->method;
  row[2] = trial->status == GD_TRIAL_INFEASIBLE ? "no" : "yes";
  row[3] = gd_show_cell(cli, "%s", gd_format_count(text, sizeof text, trial->micro_batch));
  row[4] = gd_show_cell(cli, "%s", gd_format_count(text, sizeof text, trial->accumulation));
  row[5] = gd_show_cell(cli, "%s", gd_format_bytes(text, sizeof text, trial->peak_bytes));
  for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
    row[6 + i] =
        gd_show_cell(cli, "%s", gd_format_bytes(text, sizeof text, trial->bytes[shown[i]]));
  row[10] = gd_show_cell(cli, "%s", gd_format_bytes(text, sizeof text, trial->host_bytes));
}

/* The same with times; what does not fit has none. */
static void set_ranked_row(struct gd_cli *cli, const char **row,
                           const struct gd_plan_point *point) {
  const struct gd_trial *trial = &point->trial;
  const struct gd_prediction *prediction = &point->prediction;
  char text[GD_SHOW_TEXT];
  struct gd_show_duration days;
  bool fits = trial->status != GD_TRIAL_INFEASIBLE;
  row[0] = trial->model;
  row[1] = trial->method;
  row[2] = fits ? "yes" : "no";
  if (fits) {
    gd_show_duration(&days, prediction->days * 86400, prediction->days_low * 86400,
                     prediction->days_high * 86400);
    row[3] = gd_show_cell(cli, "%s", days.value);
    row[4] = gd_show_cell(cli, "%s", days.interval);
    row[5] = gd_show_cell(cli, "%s", gd_show_seconds(text, sizeof text, prediction->step_s));
    row[6] = gd_show_cell(cli, "%s", gd_show_seconds(text, sizeof text, prediction->update_s));
  }
  row[7] = gd_show_cell(cli, "%s", gd_format_count(text, sizeof text, trial->micro_batch));
  row[8] = gd_show_cell(cli, "%s", gd_format_count(text, sizeof text, trial->accumulation));
  row[9] = gd_show_cell(cli, "%s", gd_format_bytes(text, sizeof text, trial->peak_bytes));
  row[10] = gd_show_cell(cli, "%s", gd_format_bytes(text, sizeof text, trial->host_bytes));
}

/* What a column has no room for: once a model, since it is the same for all methods. */
static void append_precisions(struct gd_cli *cli, const struct gd_plan_point *points, int count) {
  for (int i = 0; i < count; i++) {
    bool first = true;
    for (int k = 0; k < i; k++)
      first = first && points[k].model != points[i].model;
    if (first)
      gd_show_precision_note(&cli->out, points[i].model, &points[i].trial);
  }
}

/* Why the points that do not fit do not: the first of each model stands for its like. */
static void append_misses(struct gd_cli *cli, const struct gd_plan_point *points, int count) {
  for (int i = 0; i < count; i++) {
    struct gd_strbuf line = {0};
    int alike = 0;
    bool first = true;
    if (points[i].trial.status != GD_TRIAL_INFEASIBLE)
      continue;
    for (int k = 0; k < count; k++)
      if (points[k].model == points[i].model && points[k].trial.status == GD_TRIAL_INFEASIBLE) {
        first = first && k >= i;
        alike++;
      }
    if (!first)
      continue;
    gd_strbuf_printf(&line, "%s, %d of the methods do not fit; %s: %s", points[i].trial.model,
                     alike, points[i].trial.method, points[i].trial.reason);
    if (line.text && !line.failed)
      gd_show_paragraph(&cli->out, 2, line.text);
    gd_strbuf_deinit(&line);
  }
}

static enum gd_status append_table(struct gd_cli *cli, const struct gd_predicting *p,
                                   const struct gd_plan_point *points, int count,
                                   struct gd_error *err) {
  static const struct gd_show_column bytes[] = {
      {"MODEL", false},    {"METHOD", false},     {"FITS", false},      {"MICRO-BATCH", true},
      {"PASSES", true},    {"DEVICE", true},      {"PARAMETERS", true}, {"GRADIENTS", true},
      {"OPTIMIZER", true}, {"ACTIVATIONS", true}, {"HOST", true}};
  static const struct gd_show_column times[] = {
      {"MODEL", false},   {"METHOD", false}, {"FITS", false},  {"TIME", true},
      {"INTERVAL", true}, {"STEP", true},    {"UPDATE", true}, {"MICRO-BATCH", true},
      {"PASSES", true},   {"DEVICE", true},  {"HOST", true}};
  enum { COLUMNS = sizeof bytes / sizeof *bytes };
  _Static_assert(sizeof bytes == sizeof times, "both tables have as many columns");
  char device[GD_SHOW_TEXT], host[GD_SHOW_TEXT];
  const struct gd_trial *first = &points[0].trial;
  bool timed = gd_predicting_shows(p);
  unsigned classes = 0;
  const char **cells = gd_arena_alloc(&cli->arena, (size_t)count * COLUMNS, sizeof *cells);
  if (!cells)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while printing a table");
  for (int i = 0; i < count; i++)
    if (points[i].trial.status != GD_TRIAL_INFEASIBLE)
      classes |= 1u << points[i].prediction.of;
  for (int i = 0; i < count; i++)
    (timed ? set_ranked_row : set_trial_row)(cli, cells + (ptrdiff_t)COLUMNS * i, &points[i]);
  gd_show_trial_place(&cli->out, first);
  gd_strbuf_printf(&cli->out, "; %s of device and %s of host memory allowed%s\n",
                   gd_format_bytes(device, sizeof device, first->device_limit_bytes),
                   gd_format_bytes(host, sizeof host, first->host_limit_bytes),
                   first->ranks > 1 ? " a rank" : "");
  if (p->has_target)
    gd_show_nodes(cli, &p->target);
  GD_TRY(gd_show_table(&cli->out, 2, timed ? times : bytes, COLUMNS, cells, count, err));
  if (timed)
    append_misses(cli, points, count);
  append_precisions(cli, points, count);
  gd_show_basis(cli, p, classes);
  return GD_OK;
}

/* --- all of it ----------------------------------------------------------------------------- */

static enum gd_status show_objects(struct gd_cli *cli, const struct gd_predicting *p,
                                   const struct gd_plan_point *points, int count,
                                   struct gd_error *err) {
  struct gd_show_object root, row, rows = {.object = json_array()};
  for (int i = 0; i < count; i++) {
    gd_show_trial(&row, &points[i].trial, false);
    gd_show_prediction(&row, p, &points[i].trial, &points[i].prediction);
    gd_show_append(&rows, &row);
  }
  if (cli->options.csv)
    return gd_show_csv(&cli->out, &rows, err);
  gd_show_begin(&root);
  gd_show_set_object(&root, "trials", &rows);
  return gd_show_json(&cli->out, &root, err);
}

/* Models in the order asked for; of each the shortest first, and last what does not fit. */
static int compare_points(const void *left, const void *right) {
  const struct gd_plan_point *a = left, *b = right;
  bool a_fits = a->trial.status != GD_TRIAL_INFEASIBLE;
  bool b_fits = b->trial.status != GD_TRIAL_INFEASIBLE;
  if (a->model != b->model)
    return a->model < b->model ? -1 : 1;
  if (a_fits != b_fits)
    return a_fits ? -1 : 1;
  if (a_fits &&
      (a->prediction.days < b->prediction.days || a->prediction.days > b->prediction.days))
    return a->prediction.days < b->prediction.days ? -1 : 1;
  return a->number - b->number;
}

static enum gd_status make_points(struct gd_cli *cli, const struct gd_predicting *p,
                                  struct gd_plan_point **points, int *count, int *n_methods,
                                  struct gd_error *err) {
  struct gd_method *methods;
  int64_t machine_bytes = 0;
  int at = 0;
  GD_TRY(gd_cli_methods(cli, &methods, n_methods, err));
  *count = cli->n_arguments * *n_methods;
  *points = gd_arena_alloc(&cli->arena, (size_t)*count, sizeof **points);
  struct gd_model *models = gd_arena_alloc(&cli->arena, (size_t)cli->n_arguments, sizeof *models);
  if (!*points || !models)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory before the first plan");
  for (int i = 0; i < cli->n_arguments; i++) {
    GD_TRY(gd_cli_load_model(cli, cli->arguments[i], &models[i], err));
    for (int k = 0; k < *n_methods; k++, at++) {
      (*points)[at] = (struct gd_plan_point){.model = &models[i], .number = at};
      gd_cli_trial_options(cli, &methods[k], &(*points)[at].options);
      (*points)[at].options.target = p->has_target ? &p->target : NULL;
      if (at == 0)
        machine_bytes = gd_search_machine_bytes(&(*points)[at].options);
      gd_search_share(&(*points)[at].options, machine_bytes);
    }
  }
  return GD_OK;
}

static enum gd_status show_points(struct gd_cli *cli, const struct gd_predicting *p,
                                  struct gd_plan_point *points, int count, int n_methods,
                                  struct gd_error *err) {
  bool programs = cli->options.json || cli->options.csv;
  if (gd_predicting_shows(p) && n_methods > 1)
    qsort(points, (size_t)count, sizeof *points, compare_points);
  if (programs)
    return show_objects(cli, p, points, count, err);
  for (int i = 0; i < count; i++) {
    gd_strbuf_append(&cli->out, n_methods == 1 && i ? "\n" : "");
    if (n_methods == 1)
      GD_TRY(append_sheet(cli, p, &points[i], err));
    if (cli->options.explain) {
      gd_strbuf_append(&cli->out, "\n");
      GD_TRY(
          gd_trial_explain(points[i].model, &points[i].options, &points[i].trial, &cli->out, err));
    }
  }
  return n_methods > 1 ? append_table(cli, p, points, count, err) : GD_OK;
}

static enum gd_status plan_all(struct gd_cli *cli, struct gd_predicting *p, struct gd_error *err) {
  struct gd_plan_point *points;
  struct gd_error verdict = {0};
  int count, n_methods;
  bool any = false;
  GD_TRY(make_points(cli, p, &points, &count, &n_methods, err));
  GD_TRY(gd_plan_points(points, count, &p->predictor, err));
  for (int i = 0; i < count; i++) {
    /* The first model that does not fit is the sentence; the others are in the tables. */
    gd_trial_verdict(&points[i].trial, &verdict);
    any |= points[i].trial.status != GD_TRIAL_INFEASIBLE;
  }
  GD_TRY(show_points(cli, p, points, count, n_methods, err));
  /* Of several methods one that fits is an answer; of several models each must fit. */
  if (verdict.status == GD_OK || (n_methods > 1 && any))
    return GD_OK;
  *err = verdict;
  return verdict.status;
}

enum gd_status gd_cmd_plan(struct gd_cli *cli, struct gd_error *err) {
  struct gd_predicting predicting = {0};
  if (cli->options.explain && (cli->options.json || cli->options.csv))
    return gd_fail(err, GD_BAD_INPUT, "--explain is text for people; leave out --json and --csv");
  if (cli->options.paper_stack)
    return gd_plan_stack(cli, err);
  GD_TRY(gd_predicting_open(&predicting, cli, err));
  enum gd_status status = plan_all(cli, &predicting, err);
  gd_predicting_close(&predicting);
  return status;
}
