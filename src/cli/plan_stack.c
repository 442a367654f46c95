/*
 * Plans for a software stack as a table and as JSON; see plan_stack.h. What they are is
 * report/stack_plan.h.
 */
#include "cli/plan_stack.h"

#include <math.h>
#include <stdio.h>

#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/predicting.h"
#include "cli/show.h"
#include "hw/gpu_spec.h"

static void set_object(const struct gd_stack_plan *plan, const struct gd_stack_row *row,
                       struct gd_show_object *to) {
  char method[GD_METHOD_NAME], reason[256] = "";
  bool ok = row->fits;
  if (!ok)
    gd_stack_plan_reason(plan, row, reason, sizeof reason);
  gd_show_begin(to);
  gd_show_set_text(to, "model", row->model->name);
  gd_show_set_text(to, "method", gd_method_name(&row->method, method));
  gd_show_set_text(to, "gpu", plan->target.gpu->name);
  gd_show_set_int(to, "count", plan->target.count);
  gd_show_set_text(to, "stack", plan->facts->name);
  gd_show_set_int(to, "micro_batch",
                  ok                             ? row->micro_batch
                  : plan->limits.micro_batch > 0 ? plan->limits.micro_batch
                                                 : 1);
  gd_show_set_int(to, "accumulation", (int64_t)row->accumulation);
  gd_show_set_int(to, "peak_bytes", (int64_t)row->bytes.device);
  gd_show_set_int(to, "host_bytes", (int64_t)row->bytes.host);
  gd_show_set_bool(to, "feasible", ok);
  gd_show_set_bool(to, "may_not_fit", ok && row->tight);
  gd_show_set_text(to, "reason", reason);
  gd_show_set_real(to, "step_s", ok ? row->step_s : (double)NAN);
  gd_show_set_real(to, "days", ok ? row->days : (double)NAN);
  gd_show_set_real(to, "days_low", ok ? row->days_low : (double)NAN);
  gd_show_set_real(to, "days_high", ok ? row->days_high : (double)NAN);
  gd_show_set_bool(to, "predicted", ok);
  gd_show_set_bool(to, "validated", ok && plan->validated);
  gd_show_set_text(to, "basis", plan->basis);
  if (plan->facts->paper) {
    gd_show_set_real(to, "waited_days", ok ? row->days : (double)NAN); /* its name of before */
    gd_show_set_real(to, "paper_clock_days", ok ? row->clock_days : (double)NAN);
  }
  if (ok && row->step.seconds > 0) {
    gd_show_set_real(to, "micro_step_s", row->step.forward_s + row->step.backward_s);
    gd_show_set_real(to, "update_s", row->step.update_s + row->step.collective_s);
    gd_show_set_real(to, "gpu_s", row->step.gpu_s);
    gd_show_set_real(to, "host_s", row->step.host_s);
    gd_show_set_real(to, "clock", row->step.clock);
    gd_show_set_real(to, "power_w", row->step.watts);
  }
  gd_show_set_text(to, "precision", gd_precision_name(row->precision));
  gd_show_set_bool(to, "precision_substituted", row->substituted);
  gd_show_target(to, &plan->target);
}

static void set_cells(struct gd_cli *cli, const struct gd_stack_row *row, bool paper,
                      const char **cells) {
  char text[GD_METHOD_NAME];
  struct gd_show_duration shown;
  cells[0] = row->model->name;
  cells[1] = gd_show_cell(cli, "%s", gd_method_name(&row->method, text));
  cells[2] = !row->fits ? "no" : row->tight ? "perhaps" : "yes";
  if (row->fits) {
    gd_show_duration(&shown, row->days, row->days_low, row->days_high);
    cells[3] = gd_show_cell(cli, "%s", shown.value);
    cells[4] = gd_show_cell(cli, "%s", shown.interval);
    cells[5] = gd_show_cell(cli, "%lld", (long long)row->micro_batch);
    cells[6] = gd_show_cell(cli, "%.0f", row->accumulation);
  }
  if (row->fits && paper) {
    gd_show_duration(&shown, row->clock_days, row->clock_days, row->clock_days);
    cells[9] = gd_show_cell(cli, "%s", shown.value);
  }
  cells[7] = gd_show_bytes_cell(cli, (int64_t)row->bytes.device);
  cells[8] = gd_show_bytes_cell(cli, (int64_t)row->bytes.host);
}

/* Why what is estimated to be too large may run, how sure that is, and what fits for sure. */
static void show_tight(struct gd_cli *cli, const struct gd_stack_plan *plan) {
  const struct gd_stack_row *row = &plan->rows[0];
  char line[640], need[GD_SHOW_TEXT], have[GD_SHOW_TEXT], method[GD_METHOD_NAME];
  struct gd_stack_miss miss = gd_stack_plan_miss(plan, row);
  int length = snprintf(
      line, sizeof line,
      "note: it may not fit: by the estimate %s of memory are needed and %s are there. It may run "
      "all the same, since for one in four published runs of llm-foundry, which all ran, the "
      "estimate is above the GPU's memory, though never by more than 14 %%; what is above %.0f %% "
      "is refused here",
      gd_format_bytes(need, sizeof need, (int64_t)miss.need_bytes),
      gd_format_bytes(have, sizeof have, (int64_t)miss.have_bytes),
      100 * (plan->facts->memory_over - 1));
  for (int i = 1; i < plan->count && plan->rows[i].model == row->model; i++)
    if (plan->rows[i].fits && !plan->rows[i].tight) {
      struct gd_show_duration shown;
      gd_show_duration(&shown, plan->rows[i].days, plan->rows[i].days, plan->rows[i].days);
      snprintf(line + length, sizeof line - (size_t)length,
               ". %s fits by the estimate, and takes %s",
               gd_method_name(&plan->rows[i].method, method), shown.value);
      break;
    }
  gd_show_paragraph(&cli->out, 0, line);
}

/* What the shortest step is bound by, and whether memory is near its end. */
static void show_step(struct gd_cli *cli, const struct gd_stack_plan *plan) {
  const struct gd_stack_row *row = &plan->rows[0];
  char line[256];
  if (!row->fits)
    return;
  if (row->step.host_s > row->step.gpu_s) {
    snprintf(line, sizeof line,
             "note: bound by the host, which launches kernels for %.3g ms a micro-step where the "
             "GPU computes for %.3g: a larger micro-batch costs little",
             1e3 * row->step.host_s, 1e3 * row->step.gpu_s);
    gd_show_paragraph(&cli->out, 0, line);
  }
  if (row->step.seconds > 0 && row->step.clock < 0.97) {
    snprintf(line, sizeof line,
             "note: the power limit holds the clock at %.0f %% of the data sheet's",
             100 * row->step.clock);
    gd_show_paragraph(&cli->out, 0, line);
  }
  if (row->tight)
    show_tight(cli, plan);
}

/* Recipes whose precision this GPU does not have. */
static void show_precisions(struct gd_cli *cli, const struct gd_stack_plan *plan) {
  for (int i = 0; i < plan->count; i++)
    if (plan->rows[i].substituted && (i == 0 || plan->rows[i].model != plan->rows[i - 1].model))
      gd_strbuf_printf(&cli->out, "%s: the recipe's %s runs as %s: this GPU has no %s\n",
                       plan->rows[i].model->name,
                       gd_precision_name(plan->rows[i].model->recipe.precision),
                       gd_precision_name(plan->rows[i].precision),
                       gd_precision_name(plan->rows[i].model->recipe.precision));
}

static enum gd_status show_table(struct gd_cli *cli, const struct gd_stack_plan *plan,
                                 struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"MODEL", false, 0},       {"METHOD", false, 0},  {"FITS", false, 0},
      {"TIME", true, 0},         {"INTERVAL", true, 3}, {"MICRO-BATCH", true, 2},
      {"ACCUMULATION", true, 5}, {"DEVICE", true, 1},   {"HOST", true, 4},
      {"ITS CLOCK", true, 2}}; /* the paper's, which does not wait for the GPU */
  const int n_columns = (int)(sizeof columns / sizeof *columns);
  struct gd_show_rows rows = {
      .cli = cli, .columns = columns, .n_columns = plan->facts->paper ? n_columns : n_columns - 1};
  char line[720];
  for (int i = 0; i < plan->count; i++)
    set_cells(cli, &plan->rows[i], plan->facts->paper, gd_show_row(&rows));
  gd_strbuf_printf(&cli->out, "%d x %s, %s:\n", plan->target.count, plan->target.gpu->title,
                   plan->facts->title);
  gd_show_nodes(cli, &plan->target);
  gd_strbuf_append(&cli->out, "\n");
  GD_TRY(gd_show_rows(&rows, 0, err));
  snprintf(line, sizeof line, "predicted, not measured: %s", plan->basis);
  gd_strbuf_append(&cli->out, "\n");
  show_precisions(cli, plan);
  gd_show_paragraph(&cli->out, 0, line);
  if (plan->facts->paper)
    gd_show_paragraph(&cli->out, 0,
                      "ITS CLOCK: what the paper's tables would have; that clock does not wait for "
                      "the GPU to end a micro-step");
  show_step(cli, plan);
  return GD_OK;
}

/* --- answers ------------------------------------------------------------------------------- */

struct stack_planning {
  struct gd_cli *cli;
  struct gd_stack_plan plan;
  struct gd_stack_asked asked;
  struct gd_answer *answers;  /* where several are compared */
  struct gd_show_object rows; /* likewise, for programs */
  int count;
  bool comparing, any;
  struct gd_error verdict; /* of the first that does not fit */
  bool in_time;            /* some answer is, or may be */
  struct gd_error late;    /* of the first that is not */
};

static enum gd_status show_objects(struct stack_planning *planning, struct gd_show_object *rows,
                                   struct gd_error *err) {
  struct gd_cli *cli = planning->cli;
  struct gd_show_object root;
  if (cli->options.csv)
    return gd_show_csv(&cli->out, rows, err);
  gd_show_begin(&root);
  gd_show_set_object(&root, "trials", rows);
  return gd_show_json(&cli->out, &root, err);
}

/* The first row of each model is its shortest, or does not fit. */
static bool is_first(const struct gd_stack_plan *plan, int i) {
  return i == 0 || plan->rows[i].model != plan->rows[i - 1].model;
}

static void note_verdict(struct stack_planning *planning) {
  const struct gd_stack_plan *plan = &planning->plan;
  char reason[256];
  for (int i = 0; i < plan->count; i++) {
    if (!is_first(plan, i))
      continue;
    planning->any = planning->any || plan->rows[i].fits;
    if (plan->rows[i].fits || planning->verdict.status != GD_OK)
      continue;
    gd_stack_plan_reason(plan, &plan->rows[i], reason, sizeof reason);
    (void)gd_fail(&planning->verdict, GD_NOMEM_DEVICE, "%s does not fit: %s",
                  plan->rows[i].model->name, reason);
  }
}

static enum gd_status append_row(struct stack_planning *planning, const struct gd_stack_row *row,
                                 struct gd_show_object *rows, struct gd_error *err) {
  struct gd_answer answer;
  struct gd_show_object object;
  GD_TRY(gd_answer_of_stack(planning->cli, &planning->plan, row, &answer, err));
  gd_answer_note_deadline(&answer, &planning->in_time, &planning->late);
  set_object(&planning->plan, row, &object);
  gd_answer_object(&object, &answer);
  if (planning->asked.n_methods > 1 && planning->cli->options.methods)
    gd_show_set_bool(&object, "answer",
                     row->fits && is_first(&planning->plan, (int)(row - planning->plan.rows)));
  gd_show_append(rows, &object);
  return GD_OK;
}

/* One answer for each model: for people lines, or, where several are compared, rows of a table. */
static enum gd_status show_answers(struct stack_planning *planning, struct gd_error *err) {
  struct gd_cli *cli = planning->cli;
  const struct gd_stack_plan *plan = &planning->plan;
  for (int i = 0; i < plan->count; i++) {
    struct gd_answer *answer = &planning->answers[planning->count];
    if (!is_first(plan, i))
      continue;
    if (gd_cli_for_programs(cli)) {
      GD_TRY(append_row(planning, &plan->rows[i], &planning->rows, err));
      continue;
    }
    GD_TRY(gd_answer_of_stack(cli, &planning->plan, &plan->rows[i], answer, err));
    gd_answer_note_deadline(answer, &planning->in_time, &planning->late);
    planning->count++;
    if (planning->comparing)
      continue;
    gd_answer_append(cli, answer);
    gd_show_nodes(cli, &plan->target);
  }
  if (!planning->comparing && !gd_cli_for_programs(cli)) {
    show_precisions(cli, plan);
    show_step(cli, plan);
  }
  return GD_OK;
}

static enum gd_status show_ranking(struct stack_planning *planning, struct gd_error *err) {
  const struct gd_stack_plan *plan = &planning->plan;
  if (!gd_cli_for_programs(planning->cli))
    return show_table(planning->cli, plan, err);
  for (int i = 0; i < plan->count; i++)
    GD_TRY(append_row(planning, &plan->rows[i], &planning->rows, err));
  return GD_OK;
}

static enum gd_status plan_target(struct stack_planning *planning, struct gd_error *err) {
  struct gd_cli *cli = planning->cli;
  struct gd_cli_options *options = &cli->options;
  struct gd_stack_asked *asked = &planning->asked;
  struct gd_method *methods = gd_arena_alloc(&cli->arena, GD_METHODS_MOST, sizeof *methods);
  options->ranks = options->count > 0 ? options->count : 1; /* what `all` methods are for */
  if (!methods)
    return gd_nomem(err, "before the first plan");
  if (options->methods)
    GD_TRY(gd_cli_methods(cli, "all", &methods, &asked->n_methods, err));
  else
    asked->n_methods = gd_stack_plan_methods(&planning->plan, options->ranks > 1, methods);
  asked->methods = methods;
  asked->gpu = options->gpu;
  asked->count = (int)options->ranks;
  asked->nodes = (int)options->nodes;
  GD_TRY(gd_stack_plan_fill(&planning->plan, asked, err));
  if (!options->methods)
    gd_stack_plan_prefer_simple(&planning->plan);
  note_verdict(planning);
  return planning->comparing || asked->n_methods == 1 || !options->methods
             ? show_answers(planning, err)
             : show_ranking(planning, err);
}

static enum gd_status plan_targets(struct stack_planning *planning, struct gd_error *err) {
  struct gd_cli *cli = planning->cli;
  const struct gd_cli_options given = cli->options;
  GD_TRY(gd_stack_plan_open(given.stack, &planning->plan, err));
  for (int i = 0; i < given.n_gpus; i++) {
    cli->options = given;
    cli->options.gpu = given.gpus[i].name;
    cli->options.count = given.gpus[i].count > 0 ? given.gpus[i].count : given.count;
    GD_TRY(plan_target(planning, err));
  }
  if (gd_cli_for_programs(cli))
    return GD_OK;
  if (!planning->comparing)
    return GD_OK;
  GD_TRY(gd_answer_table(cli, planning->answers, planning->count, err));
  return cli->options.output ? gd_answer_draw(cli, planning->answers, planning->count, err) : GD_OK;
}

struct gd_stack_asked gd_plan_stack_asked(const struct gd_cli *cli, const char *stack,
                                          const struct gd_model *models, int n_models) {
  const struct gd_cli_options *options = &cli->options;
  return (struct gd_stack_asked){.stack = stack,
                                 .models = models,
                                 .n_models = n_models,
                                 .gpu = options->gpu,
                                 .count = options->count > 0 ? (int)options->count : 1,
                                 .nodes = (int)options->nodes,
                                 .machine = options->machine,
                                 .network = options->network,
                                 .cpus = (int)options->threads,
                                 .precision = gd_cli_precision(cli),
                                 .limits = {.micro_batch = options->micro_batch_size,
                                            .any_size = options->micro_batch == GD_MICRO_BATCH_MAX,
                                            .device_bytes = (double)options->device_memory_bytes,
                                            .host_bytes = (double)options->host_memory_bytes}};
}

enum gd_status gd_plan_stack(struct gd_cli *cli, struct gd_error *err) {
  struct gd_cli_options *options = &cli->options;
  struct gd_points_asked points;
  if (!options->gpu)
    return gd_fail(err, GD_BAD_INPUT, "--stack %s predicts for given GPUs; name one with --gpu",
                   options->stack);
  GD_TRY(gd_points_of_cli(cli, "naive", &points, err));
  struct stack_planning planning = {
      .cli = cli,
      .rows = {.object = json_array()},
      .comparing = options->n_gpus > 1 || (points.n_models > 1 && !options->methods),
      .answers = gd_arena_alloc(&cli->arena, (size_t)(points.n_models * options->n_gpus) + 1,
                                sizeof *planning.answers),
      .asked = gd_plan_stack_asked(cli, options->stack, points.models, points.n_models)};
  GD_TRY(gd_answer_may_draw(cli, planning.comparing, err));
  if (!planning.answers)
    return gd_nomem(err, "before the first plan");
  enum gd_status status = plan_targets(&planning, err);
  gd_stack_plan_deinit(&planning.plan);
  if (status == GD_OK && gd_cli_for_programs(cli))
    status = show_objects(&planning, &planning.rows, err);
  else
    json_decref(planning.rows.object);
  bool fits = planning.verdict.status == GD_OK || (options->n_gpus > 1 && planning.any);
  bool late = planning.late.status != GD_OK &&
              !(planning.in_time && (options->n_gpus > 1 || points.n_models == 1));
  if (status != GD_OK || (fits && !late))
    return status;
  *err = fits ? planning.late : planning.verdict;
  return err->status;
}
