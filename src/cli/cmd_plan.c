/*
 * `gpudays plan MODEL...`: memory by category, micro-batch and predicted time, before anything
 * runs; on this machine, or on hardware of the catalogue.
 */
#include <stdio.h>
#include <stdlib.h>

#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/plan_outline.h"
#include "cli/plan_stack.h"
#include "cli/predicting.h"
#include "cli/show_items.h"
#include "cli/show_model.h"
#include "cli/show_trial.h"
#include "cli/summary.h"
#include "hw/gpu_spec.h"
#include "search/points.h"
#include "search/remedies.h"

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
  row[10] = gd_show_bytes_cell(cli, trial->bytes[GD_CATEGORY_WORKSPACE] +
                                        trial->bytes[GD_CATEGORY_INPUTS]);
  row[11] = gd_show_bytes_cell(cli, trial->host_bytes);
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

/* Where the first of the ranking is not what plan answers, of one model. */
static void append_choice(struct gd_cli *cli, const struct gd_point *points, int count) {
  const struct gd_point *best = gd_points_best(points, count);
  for (int i = 0; i < count; i++)
    if (points[i].model != points[0].model)
      return;
  if (best && best != &points[0])
    gd_show_paragraph(&cli->out, 2,
                      gd_show_cell(cli, "answer: %s, within %.0f %% of the first and simpler",
                                   best->trial.method, 100 * (GD_POINTS_NEAR - 1)));
}

static enum gd_status append_table(struct gd_cli *cli, const struct gd_predicting *p,
                                   const struct gd_point *points, int count, struct gd_error *err) {
  static const struct gd_show_column bytes[] = {
      {"MODEL", false, 0},      {"METHOD", false, 0},      {"FITS", false, 0},
      {"MICRO-BATCH", true, 1}, {"ACCUMULATION", true, 5}, {"DEVICE", true, 0},
      {"PARAMETERS", true, 6},  {"GRADIENTS", true, 7},    {"OPTIMIZER", true, 7},
      {"ACTIVATIONS", true, 3}, {"WORKSPACE", true, 7},    {"HOST", true, 4}};
  static const struct gd_show_column times[] = {
      {"MODEL", false, 0}, {"METHOD", false, 0},     {"FITS", false, 0},
      {"TIME", true, 0},   {"INTERVAL", true, 2},    {"STEP", true, 3},
      {"UPDATE", true, 6}, {"MICRO-BATCH", true, 1}, {"ACCUMULATION", true, 5},
      {"DEVICE", true, 0}, {"HOST", true, 4}};
  char device[GD_SHOW_TEXT], host[GD_SHOW_TEXT];
  const struct gd_trial *first = &points[0].trial;
  bool timed = gd_predicting_shows(p);
  unsigned classes = 0;
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, bytes);
  if (timed) {
    rows.columns = times;
    rows.n_columns = sizeof times / sizeof *times;
  }
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
  if (timed) {
    append_choice(cli, points, count);
    append_misses(cli, points, count);
  }
  append_precisions(cli, points, count);
  gd_show_basis(cli, p, classes);
  return GD_OK;
}

/* --- one machine --------------------------------------------------------------------------- */

/* All that a command line asks, and what it found. */
struct planning {
  struct gd_cli *cli;
  struct gd_answer *answers;  /* where several are compared */
  struct gd_show_object rows; /* likewise, for programs */
  int count;
  bool comparing;          /* models, or hardware: one answer each */
  bool any;                /* fits */
  struct gd_error verdict; /* of the first that does not */
  bool in_time;            /* some answer is, or may be */
  struct gd_error late;    /* of the first that is not */
};

static enum gd_status make_object(struct planning *planning, struct gd_predicting *p,
                                  const struct gd_point *point, struct gd_show_object *row,
                                  struct gd_error *err) {
  struct gd_answer answer;
  GD_TRY(gd_answer_of_point(planning->cli, p, point, point, 1, &answer, err));
  gd_answer_note_deadline(&answer, &planning->in_time, &planning->late);
  gd_show_trial(row, &point->trial, false);
  gd_show_prediction(row, p, &point->trial, &point->prediction);
  gd_answer_object(row, &answer);
  gd_show_set_assumed(row, planning->cli, point->model);
  return GD_OK;
}

static enum gd_status show_objects(struct planning *planning, struct gd_show_object *rows,
                                   struct gd_error *err) {
  struct gd_cli *cli = planning->cli;
  struct gd_show_object root;
  if (cli->options.csv)
    return gd_show_csv(&cli->out, rows, err);
  gd_show_begin(&root);
  gd_show_set_object(&root, "trials", rows);
  return gd_show_json(&cli->out, &root, err);
}

static enum gd_status explain(struct gd_cli *cli, const struct gd_predicting *p,
                              struct gd_point *point, struct gd_error *err) {
  if (!cli->options.explain)
    return GD_OK;
  gd_strbuf_append(&cli->out, "\n");
  GD_TRY(gd_trial_explain(point->model, &point->options, &point->trial, cli->options.explain_pass,
                          &cli->out, err));
  return gd_show_collectives(cli, p, point, err);
}

/* Of one method that was named, or where all is to be explained: every figure. */
static enum gd_status show_details(struct gd_cli *cli, const struct gd_predicting *p,
                                   struct gd_point *point, struct gd_error *err) {
  if (cli->options.explain_pass)
    return explain(cli, p, point, err);
  gd_strbuf_append(&cli->out, "\n");
  GD_TRY(gd_summary_append(cli, p, point, true, err));
  return explain(cli, p, point, err);
}

/* One model, one answer: the best of the points, or why there is none and what to do. */
static enum gd_status answer_one(struct planning *planning, struct gd_predicting *p,
                                 const struct gd_points_asked *asked, struct gd_point *points,
                                 int count, struct gd_error *err) {
  struct gd_cli *cli = planning->cli;
  const struct gd_point *best = gd_points_best(points, count);
  const struct gd_target *target = p->has_target ? &p->target : NULL;
  struct gd_point *point = &points[(best ? best : gd_points_nearest(points, count)) - points];
  struct gd_answer answer;
  struct gd_remedies remedies = {0};
  struct gd_show_object row, rows = {.object = gd_cli_for_programs(cli) ? json_array() : NULL};
  if (!best)
    GD_TRY(gd_answer_find_remedies(cli, p, asked, point, &remedies, err));
  if (gd_cli_for_programs(cli)) {
    GD_TRY(make_object(planning, p, point, &row, err));
    if (!best && !cli->options.csv)
      gd_answer_remedy_objects(cli, &row, point, target, &remedies);
    gd_show_append(&rows, &row);
    return show_objects(planning, &rows, err);
  }
  GD_TRY(gd_answer_of_point(cli, p, point, points, count, &answer, err));
  gd_answer_note_deadline(&answer, &planning->in_time, &planning->late);
  gd_answer_append(cli, &answer);
  if (target)
    gd_show_nodes(cli, target);
  gd_show_precision_note(&cli->out, point->model, &point->trial);
  gd_show_assumed(cli, point->model);
  if (!best)
    gd_answer_remedies(cli, point, target, &remedies);
  if ((best && cli->options.methods) || cli->options.explain)
    return show_details(cli, p, point, err);
  if (best && !target && gd_predicting_shows(p))
    gd_show_basis(cli, p, 1u << point->prediction.of); /* a target's is in the line of trust */
  else
    gd_show_too_old(cli, p);
  return GD_OK;
}

/* One of the models or machines that are compared. */
static enum gd_status add_answer(struct planning *planning, struct gd_predicting *p,
                                 const struct gd_point *points, int count, struct gd_error *err) {
  struct gd_cli *cli = planning->cli;
  const struct gd_point *best = gd_points_best(points, count);
  const struct gd_point *point = best ? best : gd_points_nearest(points, count);
  struct gd_show_object row;
  if (gd_cli_for_programs(cli)) {
    GD_TRY(make_object(planning, p, point, &row, err));
    gd_show_append(&planning->rows, &row);
    return GD_OK;
  }
  struct gd_answer *answer = &planning->answers[planning->count++];
  GD_TRY(gd_answer_of_point(cli, p, point, points, count, answer, err));
  gd_answer_note_deadline(answer, &planning->in_time, &planning->late);
  return GD_OK;
}

/* The best of its model's, which are next to each other. */
static bool is_answer(const struct gd_points *points, int i) {
  int from = i, to = i;
  while (from > 0 && points->all[from - 1].model == points->all[i].model)
    from--;
  while (to < points->count && points->all[to].model == points->all[i].model)
    to++;
  return gd_points_best(&points->all[from], to - from) == &points->all[i];
}

/* Several methods, ranked where their times are known; or models by their details. */
static enum gd_status show_points(struct planning *planning, struct gd_predicting *p,
                                  struct gd_points *points, int n_methods, struct gd_error *err) {
  struct gd_cli *cli = planning->cli;
  struct gd_show_object row, rows = {.object = gd_cli_for_programs(cli) ? json_array() : NULL};
  if (gd_predicting_shows(p) && n_methods > 1)
    gd_points_rank(points->all, points->count);
  if (gd_cli_for_programs(cli)) {
    for (int i = 0; i < points->count; i++) {
      GD_TRY(make_object(planning, p, &points->all[i], &row, err));
      gd_show_set_bool(&row, "answer", is_answer(points, i));
      gd_show_append(&rows, &row);
    }
    return show_objects(planning, &rows, err);
  }
  for (int i = 0; i < points->count; i++) {
    struct gd_answer answer;
    GD_TRY(gd_answer_of_point(cli, p, &points->all[i], points->all, points->count, &answer, err));
    gd_answer_note_deadline(&answer, &planning->in_time, &planning->late);
    gd_strbuf_append(&cli->out, n_methods == 1 && i ? "\n" : "");
    if (n_methods == 1)
      GD_TRY(gd_summary_append(cli, p, &points->all[i], true, err));
    GD_TRY(explain(cli, p, &points->all[i], err));
  }
  return n_methods > 1 ? append_table(cli, p, points->all, points->count, err) : GD_OK;
}

static enum gd_status show_all(struct planning *planning, struct gd_predicting *p,
                               const struct gd_points_asked *asked, struct gd_points *points,
                               struct gd_error *err) {
  const struct gd_cli *cli = planning->cli;
  int each = points->count / asked->n_models;
  if (planning->comparing) {
    for (int i = 0; i < asked->n_models; i++)
      GD_TRY(add_answer(planning, p, &points->all[i * each], each, err));
    return GD_OK;
  }
  if (asked->n_models == 1 && (!cli->options.methods || asked->n_methods == 1))
    return answer_one(planning, p, asked, points->all, points->count, err);
  return show_points(planning, p, points, asked->n_methods, err);
}

/* The first point that does not fit is the sentence, where an answer lacks. */
static void note_verdict(struct planning *planning, const struct gd_points_asked *asked,
                         const struct gd_points *points) {
  int each = points->count / asked->n_models;
  for (int i = 0; i < asked->n_models; i++) {
    const struct gd_point *of = &points->all[i * each];
    if (gd_points_best(of, each)) {
      planning->any = true;
      continue;
    }
    const struct gd_point *nearest = gd_points_nearest(of, each);
    if (nearest)
      gd_trial_verdict(&nearest->trial, &planning->verdict);
  }
}

/* What was named must be possible; of all methods it is enough that some are. */
static enum gd_status check_points(const struct gd_cli *cli, const struct gd_points *points,
                                   struct gd_error *err) {
  bool any = false;
  for (int i = 0; i < points->count; i++)
    any = any || points->all[i].status == GD_OK;
  return gd_points_error(points->all, points->count, cli->options.methods || !any, err);
}

static enum gd_status plan_here(struct planning *planning, struct gd_points_asked *asked,
                                struct gd_points_kept *kept, struct gd_error *err) {
  struct gd_predicting predicting = {0};
  struct gd_points points = {0};
  struct gd_cli *cli = planning->cli;
  struct gd_method *methods;
  GD_TRY(gd_predicting_open(&predicting, cli, err));
  struct gd_point_machine machine = gd_predicting_machine(&predicting);
  enum gd_status status = gd_cli_methods(cli, "all", &methods, &asked->n_methods, err);
  if (status == GD_OK) {
    asked->methods = methods;
    asked->machines = &machine;
    asked->n_machines = 1;
    gd_cli_trial_options(cli, &(struct gd_method){0}, &asked->options);
    status = gd_points_make(asked, &points, err);
  }
  if (status == GD_OK)
    status = gd_points_plan_with(kept, points.all, points.count, err);
  if (status == GD_OK)
    status = check_points(cli, &points, err);
  if (status == GD_OK) {
    note_verdict(planning, asked, &points);
    status = show_all(planning, &predicting, asked, &points, err);
  }
  gd_points_free(&points);
  gd_predicting_close(&predicting);
  return status;
}

/* --- all of it ----------------------------------------------------------------------------- */

/* Each hardware that --gpu and --count name, or this machine. */
static enum gd_status plan_each(struct planning *planning, struct gd_points_asked *asked,
                                struct gd_points_kept *kept, struct gd_error *err) {
  struct gd_cli_options *options = &planning->cli->options;
  const struct gd_cli_options given = *options;
  if (options->n_gpus == 0)
    return plan_here(planning, asked, kept, err);
  for (int i = 0; i < given.n_gpus; i++) {
    *options = given;
    options->gpu = given.gpus[i].name;
    options->count = given.gpus[i].count > 0 ? given.gpus[i].count : given.count;
    GD_TRY(plan_here(planning, asked, kept, err));
  }
  return GD_OK;
}

static enum gd_status show_comparison(struct planning *planning,
                                      const struct gd_points_asked *asked, struct gd_error *err) {
  struct gd_cli *cli = planning->cli;
  if (gd_cli_for_programs(cli))
    return show_objects(planning, &planning->rows, err);
  GD_TRY(gd_answer_table(cli, planning->answers, planning->count, err));
  gd_strbuf_append(&cli->out, "\n");
  gd_show_paragraph(&cli->out, 0,
                    "each by its best method, predicted for gpudays' own engine where not said "
                    "otherwise; PER S: tokens or images, of all GPUs; one of them alone says how "
                    "far to trust it");
  for (int i = 0; i < asked->n_models; i++)
    gd_show_assumed(cli, &asked->models[i]);
  return cli->options.output ? gd_answer_draw(cli, planning->answers, planning->count, err) : GD_OK;
}

static enum gd_status plan(struct gd_cli *cli, struct gd_points_asked *asked,
                           struct gd_error *err) {
  struct planning planning = {.cli = cli,
                              .rows = {.object = gd_cli_for_programs(cli) ? json_array() : NULL}};
  int machines = cli->options.n_gpus > 1 ? cli->options.n_gpus : 1;
  planning.comparing = machines > 1 || (asked->n_models > 1 && !cli->options.methods);
  GD_TRY(gd_answer_may_draw(cli, planning.comparing, err));
  planning.answers = gd_arena_alloc(&cli->arena, (size_t)(asked->n_models * machines) + 1,
                                    sizeof *planning.answers);
  struct gd_points_kept *kept = gd_points_kept_new();
  if (!kept || !planning.answers)
    return gd_nomem(err, "before the first plan");
  enum gd_status status = plan_each(&planning, asked, kept, err);
  gd_points_kept_free(kept);
  if (status == GD_OK && planning.comparing)
    status = show_comparison(&planning, asked, err);
  else
    json_decref(planning.rows.object);
  if (status != GD_OK)
    return status;
  /* On several kinds of hardware one that fits is an answer; of several models each must fit. */
  bool fits = planning.verdict.status == GD_OK || (machines > 1 && planning.any);
  bool late = planning.late.status != GD_OK &&
              !(planning.in_time && (machines > 1 || asked->n_models == 1));
  if (fits && !late)
    return GD_OK;
  *err = fits ? planning.late : planning.verdict;
  return err->status;
}

/* Of a size alone. */
static enum gd_status plan_outline(struct gd_cli *cli, const char *argument, struct gd_error *err) {
  struct gd_outline outline;
  GD_TRY(gd_cli_outline(cli, argument, &outline, err));
  return gd_plan_outline(cli, &outline, err);
}

/* Whether an argument is a configuration that cannot be built. */
static bool is_size_alone(struct gd_cli *cli) {
  struct gd_model *model = gd_arena_alloc(&cli->arena, 1, sizeof *model);
  for (int i = 0; model && i < cli->n_arguments; i++)
    if (gd_cli_load_model(cli, cli->arguments[i], model, NULL) == GD_UNSUPPORTED)
      return true;
  return false;
}

/* The size of one may be counted all the same; a comparison is of plans. */
static enum gd_status refuse_or_outline(struct gd_cli *cli, const struct gd_error *refused,
                                        struct gd_error *err) {
  if (cli->n_arguments == 1)
    return plan_outline(cli, cli->arguments[0], err);
  return gd_fail(err, GD_UNSUPPORTED,
                 "%s; alone it is planned by its size (gpudays plan, with this argument alone), "
                 "but a comparison is of models that can be built",
                 refused->text);
}

enum gd_status gd_cmd_plan(struct gd_cli *cli, struct gd_error *err) {
  struct gd_points_asked asked = {0};
  cli->verbatim = cli->options.explain;
  if (cli->options.explain && gd_cli_for_programs(cli))
    return gd_fail(err, GD_BAD_INPUT, "--explain is text for people; leave out --json and --csv");
  if (cli->options.explain && cli->options.n_gpus > 1)
    return gd_fail(err, GD_BAD_INPUT, "--explain is for one kind of hardware; name one GPU");
  GD_TRY(gd_show_check_queue(cli, err));
  if (cli->options.params)
    return plan_outline(cli, cli->n_arguments > 0 ? cli->arguments[0] : NULL, err);
  if (cli->n_arguments == 0)
    return gd_fail(err, GD_BAD_INPUT, "plan needs an argument: gpudays plan MODEL..., such as '%s'",
                   cli->command->example);
  struct gd_error refused = {0};
  enum gd_status status = cli->options.stack ? gd_plan_stack(cli, &refused)
                                             : gd_points_of_cli(cli, "all", &asked, &refused);
  if (status == GD_UNSUPPORTED && is_size_alone(cli))
    return refuse_or_outline(cli, &refused, err);
  if (status == GD_OK && cli->options.stack)
    return GD_OK;
  if (status != GD_OK) {
    *err = refused;
    return status;
  }
  return plan(cli, &asked, err);
}
