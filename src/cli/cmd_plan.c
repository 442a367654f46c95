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
#include "cli/summary.h"
#include "search/points.h"

/* --- several methods ------------------------------------------------------------------------ */

static void set_trial_row(struct gd_cli *cli, const char **row, const struct gd_point *point) {
  static const enum gd_category shown[] = {GD_CATEGORY_PARAMETERS, GD_CATEGORY_GRADIENTS,
                                           GD_CATEGORY_OPTIMIZER, GD_CATEGORY_ACTIVATIONS};
  const struct gd_trial *trial = &point->trial;
  row[0] = trial->model;
  row[1] = trial->method;
  row[2] = trial->status == GD_TRIAL_INFEASIBLE ? "no" : "yes";
  row[3] = gd_show_count_cell(cli, trial->micro_batch);
  row[4] = gd_show_count_cell(cli, trial->accumulation);
  row[5] = gd_show_bytes_cell(cli, trial->peak_bytes);
  for (size_t i = 0; i < sizeof shown / sizeof *shown; i++)
    row[6 + i] = gd_show_bytes_cell(cli, trial->bytes[shown[i]]);
  row[10] = gd_show_bytes_cell(cli, trial->host_bytes);
}

/* The same with times; what does not fit has none. */
static void set_ranked_row(struct gd_cli *cli, const char **row, const struct gd_point *point) {
  const struct gd_trial *trial = &point->trial;
  const struct gd_prediction *prediction = &point->prediction;
  struct gd_show_duration days;
  bool fits = trial->status != GD_TRIAL_INFEASIBLE;
  row[0] = trial->model;
  row[1] = trial->method;
  row[2] = fits ? "yes" : "no";
  if (fits) {
    gd_show_duration(&days, prediction->days, prediction->days_low, prediction->days_high);
    row[3] = gd_show_cell(cli, "%s", days.value);
    row[4] = gd_show_cell(cli, "%s", days.interval);
    row[5] = gd_show_seconds_cell(cli, prediction->step_s);
    row[6] = gd_show_seconds_cell(cli, prediction->update_s);
  }
  row[7] = gd_show_count_cell(cli, trial->micro_batch);
  row[8] = gd_show_count_cell(cli, trial->accumulation);
  row[9] = gd_show_bytes_cell(cli, trial->peak_bytes);
  row[10] = gd_show_bytes_cell(cli, trial->host_bytes);
}

/* What a column has no room for: once a model, since it is the same for all methods. */
static void append_precisions(struct gd_cli *cli, const struct gd_point *points, int count) {
  for (int i = 0; i < count; i++) {
    bool first = true;
    for (int k = 0; k < i; k++)
      first = first && points[k].model != points[i].model;
    if (first)
      gd_show_precision_note(&cli->out, points[i].model, &points[i].trial);
  }
}

/* Why the points that do not fit do not: the first of each model stands for its like. */
static void append_misses(struct gd_cli *cli, const struct gd_point *points, int count) {
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
    gd_show_buffer(&cli->out, 2, &line);
  }
}

static enum gd_status append_table(struct gd_cli *cli, const struct gd_predicting *p,
                                   const struct gd_point *points, int count, struct gd_error *err) {
  static const struct gd_show_column bytes[] = {
      {"MODEL", false},       {"METHOD", false},     {"FITS", false},      {"MICRO-BATCH", true},
      {"ACCUMULATION", true}, {"DEVICE", true},      {"PARAMETERS", true}, {"GRADIENTS", true},
      {"OPTIMIZER", true},    {"ACTIVATIONS", true}, {"HOST", true}};
  static const struct gd_show_column times[] = {
      {"MODEL", false},       {"METHOD", false}, {"FITS", false},  {"TIME", true},
      {"INTERVAL", true},     {"STEP", true},    {"UPDATE", true}, {"MICRO-BATCH", true},
      {"ACCUMULATION", true}, {"DEVICE", true},  {"HOST", true}};
  _Static_assert(sizeof bytes == sizeof times, "both tables have as many columns");
  char device[GD_SHOW_TEXT], host[GD_SHOW_TEXT];
  const struct gd_trial *first = &points[0].trial;
  bool timed = gd_predicting_shows(p);
  unsigned classes = 0;
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, bytes);
  if (timed)
    rows.columns = times;
  for (int i = 0; i < count; i++)
    if (points[i].trial.status != GD_TRIAL_INFEASIBLE)
      classes |= 1u << points[i].prediction.of;
  for (int i = 0; i < count; i++)
    (timed ? set_ranked_row : set_trial_row)(cli, gd_show_row(&rows), &points[i]);
  gd_show_trial_place(&cli->out, first);
  gd_strbuf_printf(&cli->out, "; %s of device and %s of host memory allowed%s\n",
                   gd_format_bytes(device, sizeof device, first->device_limit_bytes),
                   gd_format_bytes(host, sizeof host, first->host_limit_bytes),
                   first->ranks > 1 ? " a rank" : "");
  if (p->has_target)
    gd_show_nodes(cli, &p->target);
  GD_TRY(gd_show_rows(&rows, 2, err));
  if (timed)
    append_misses(cli, points, count);
  append_precisions(cli, points, count);
  gd_show_basis(cli, p, classes);
  return GD_OK;
}

/* --- all of it ----------------------------------------------------------------------------- */

static enum gd_status show_objects(struct gd_cli *cli, const struct gd_predicting *p,
                                   const struct gd_point *points, int count, struct gd_error *err) {
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

static enum gd_status make_points(struct gd_cli *cli, const struct gd_predicting *p,
                                  struct gd_points *points, int *n_methods, struct gd_error *err) {
  struct gd_point_machine machine = gd_predicting_machine(p);
  struct gd_points_asked asked;
  GD_TRY(gd_points_of_cli(cli, &asked, err));
  asked.machines = &machine;
  asked.n_machines = 1;
  *n_methods = asked.n_methods;
  return gd_points_make(&asked, points, err);
}

static enum gd_status show_points(struct gd_cli *cli, const struct gd_predicting *p,
                                  struct gd_point *points, int count, int n_methods,
                                  struct gd_error *err) {
  bool programs = cli->options.json || cli->options.csv;
  if (gd_predicting_shows(p) && n_methods > 1)
    gd_points_rank(points, count);
  if (programs)
    return show_objects(cli, p, points, count, err);
  for (int i = 0; i < count; i++) {
    gd_strbuf_append(&cli->out, n_methods == 1 && i ? "\n" : "");
    if (n_methods == 1)
      GD_TRY(gd_summary_append(cli, p, &points[i], true, err));
    if (cli->options.explain) {
      gd_strbuf_append(&cli->out, "\n");
      GD_TRY(gd_trial_explain(points[i].model, &points[i].options, &points[i].trial,
                              cli->options.explain_pass, &cli->out, err));
      GD_TRY(gd_show_collectives(cli, p, &points[i], err));
    }
  }
  return n_methods > 1 ? append_table(cli, p, points, count, err) : GD_OK;
}

static enum gd_status plan_all(struct gd_cli *cli, const struct gd_predicting *p,
                               struct gd_points *points, int n_methods, struct gd_error *err) {
  struct gd_error verdict = {0};
  bool any = false;
  GD_TRY(gd_points_plan(points->all, points->count, err));
  GD_TRY(gd_points_error(points->all, points->count, true, err));
  for (int i = 0; i < points->count; i++) {
    /* The first model that does not fit is the sentence; the others are in the tables. */
    gd_trial_verdict(&points->all[i].trial, &verdict);
    any |= points->all[i].trial.status != GD_TRIAL_INFEASIBLE;
  }
  GD_TRY(show_points(cli, p, points->all, points->count, n_methods, err));
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
  if (cli->options.stack)
    return gd_plan_stack(cli, err);
  struct gd_points points = {0};
  int n_methods;
  GD_TRY(gd_predicting_open(&predicting, cli, err));
  enum gd_status status = make_points(cli, &predicting, &points, &n_methods, err);
  if (status == GD_OK)
    status = plan_all(cli, &predicting, &points, n_methods, err);
  gd_points_free(&points);
  gd_predicting_close(&predicting);
  return status;
}
