/*
 * Plans for a software stack as a table and as JSON; see plan_stack.h. What they are is
 * report/stack_plan.h.
 */
#include "cli/plan_stack.h"

#include <math.h>
#include <stdio.h>

#include "cli/cli.h"
#include "cli/predicting.h"
#include "cli/show.h"
#include "report/stack_plan.h"

static void reason_of(const struct gd_stack_plan *plan, const struct gd_stack_row *row, char *text,
                      size_t size) {
  char need[GD_SHOW_TEXT], have[GD_SHOW_TEXT];
  struct gd_stack_miss miss = gd_stack_plan_miss(plan, row);
  int64_t micro_batch = plan->limits.micro_batch > 0 ? plan->limits.micro_batch : 1;
  snprintf(text, size, "micro-batch %lld needs %s of the %s that a %s has", (long long)micro_batch,
           gd_format_bytes(need, sizeof need, (int64_t)miss.need_bytes),
           gd_format_bytes(have, sizeof have, (int64_t)miss.have_bytes),
           miss.host ? "GPU's host share" : "GPU");
}

static void set_object(const struct gd_stack_plan *plan, const struct gd_stack_row *row,
                       struct gd_show_object *to) {
  char method[GD_METHOD_NAME], reason[256] = "";
  bool ok = row->fits;
  if (!ok)
    reason_of(plan, row, reason, sizeof reason);
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
  gd_show_set_text(to, "reason", reason);
  gd_show_set_real(to, "step_s", ok ? row->step_s : (double)NAN);
  gd_show_set_real(to, "days", ok ? row->days : (double)NAN);
  gd_show_set_real(to, "days_low", ok ? row->days_low : (double)NAN);
  gd_show_set_real(to, "days_high", ok ? row->days_high : (double)NAN);
  gd_show_set_bool(to, "predicted", ok);
  gd_show_set_bool(to, "validated", ok && plan->validated);
  gd_show_set_text(to, "basis", plan->basis);
  if (ok && plan->facts->paper)
    gd_show_set_real(to, "waited_days", row->waited_days > 0 ? row->waited_days : row->days);
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

static enum gd_status show_objects(struct gd_cli *cli, const struct gd_stack_plan *plan,
                                   struct gd_error *err) {
  struct gd_show_object root, row, rows = {.object = json_array()};
  for (int i = 0; i < plan->count; i++) {
    set_object(plan, &plan->rows[i], &row);
    gd_show_append(&rows, &row);
  }
  if (cli->options.csv)
    return gd_show_csv(&cli->out, &rows, err);
  gd_show_begin(&root);
  gd_show_set_object(&root, "trials", &rows);
  return gd_show_json(&cli->out, &root, err);
}

static void set_cells(struct gd_cli *cli, const struct gd_stack_row *row, const char **cells) {
  char text[GD_METHOD_NAME];
  struct gd_show_duration shown;
  cells[0] = row->model->name;
  cells[1] = gd_show_cell(cli, "%s", gd_method_name(&row->method, text));
  cells[2] = row->fits ? "yes" : "no";
  if (row->fits) {
    gd_show_duration(&shown, row->days, row->days_low, row->days_high);
    cells[3] = gd_show_cell(cli, "%s", shown.value);
    cells[4] = gd_show_cell(cli, "%s", shown.interval);
    cells[5] = gd_show_cell(cli, "%lld", (long long)row->micro_batch);
    cells[6] = gd_show_cell(cli, "%.0f", row->accumulation);
  }
  cells[7] = gd_show_bytes_cell(cli, (int64_t)row->bytes.device);
  cells[8] = gd_show_bytes_cell(cli, (int64_t)row->bytes.host);
}

/* What the shortest step is bound by, and whether memory is near its end. */
static void show_step(struct gd_cli *cli, const struct gd_stack_plan *plan) {
  const struct gd_stack_row *row = &plan->rows[0];
  char line[256 + GD_METHOD_NAME], need[GD_SHOW_TEXT], have[GD_SHOW_TEXT], method[GD_METHOD_NAME];
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
  if (row->waited_days > 0) {
    struct gd_show_duration shown;
    gd_show_duration(&shown, row->waited_days, row->waited_days, row->waited_days);
    snprintf(line, sizeof line,
             "note: these are times by the paper's clock, which does not wait for the GPU to end a "
             "micro-step: a run of %s in fact takes %s",
             gd_method_name(&row->method, method), shown.value);
    gd_show_paragraph(&cli->out, 0, line);
  }
  if (row->tight) {
    struct gd_stack_miss miss = gd_stack_plan_miss(plan, row);
    snprintf(line, sizeof line,
             "note: by the estimate %s of memory are needed and %s are there; it may not fit",
             gd_format_bytes(need, sizeof need, (int64_t)miss.need_bytes),
             gd_format_bytes(have, sizeof have, (int64_t)miss.have_bytes));
    gd_show_paragraph(&cli->out, 0, line);
  }
}

static enum gd_status show_table(struct gd_cli *cli, const struct gd_stack_plan *plan,
                                 struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"MODEL", false},       {"METHOD", false},  {"FITS", false},
      {"TIME", true},         {"INTERVAL", true}, {"MICRO-BATCH", true},
      {"ACCUMULATION", true}, {"DEVICE", true},   {"HOST", true}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  char line[720];
  for (int i = 0; i < plan->count; i++)
    set_cells(cli, &plan->rows[i], gd_show_row(&rows));
  gd_strbuf_printf(&cli->out, "%d x %s, %s:\n", plan->target.count, plan->target.gpu->title,
                   plan->facts->title);
  gd_show_nodes(cli, &plan->target);
  gd_strbuf_append(&cli->out, "\n");
  GD_TRY(gd_show_rows(&rows, 0, err));
  snprintf(line, sizeof line, "predicted, not measured: %s", plan->basis);
  gd_strbuf_append(&cli->out, "\n");
  for (int i = 0; i < plan->count; i++)
    if (plan->rows[i].substituted && (i == 0 || plan->rows[i].model != plan->rows[i - 1].model))
      gd_strbuf_printf(&cli->out, "%s: the recipe's %s runs as %s: this GPU has no %s\n",
                       plan->rows[i].model->name,
                       gd_precision_name(plan->rows[i].model->recipe.precision),
                       gd_precision_name(plan->rows[i].precision),
                       gd_precision_name(plan->rows[i].model->recipe.precision));
  gd_show_paragraph(&cli->out, 0, line);
  show_step(cli, plan);
  return GD_OK;
}

static enum gd_status answer(struct gd_cli *cli, const struct gd_stack_plan *plan,
                             struct gd_error *err) {
  char reason[256];
  if (gd_cli_for_programs(cli))
    GD_TRY(show_objects(cli, plan, err));
  else
    GD_TRY(show_table(cli, plan, err));
  for (int i = 0; i < plan->count; i++)
    if (!plan->rows[i].fits && (i == 0 || plan->rows[i].model != plan->rows[i - 1].model)) {
      reason_of(plan, &plan->rows[i], reason, sizeof reason);
      return gd_fail(err, GD_NOMEM_DEVICE, "%s does not fit: %s", plan->rows[i].model->name,
                     reason);
    }
  return GD_OK;
}

enum gd_status gd_plan_stack(struct gd_cli *cli, struct gd_error *err) {
  struct gd_cli_options *options = &cli->options;
  struct gd_stack_plan plan = {0};
  struct gd_points_asked points;
  if (!options->gpu)
    return gd_fail(err, GD_BAD_INPUT, "--stack %s predicts for given GPUs; name one with --gpu",
                   options->stack);
  options->ranks = options->count > 0 ? options->count : 1; /* what `all` methods are for */
  GD_TRY(gd_points_of_cli(cli, &points, err));
  const struct gd_stack_asked asked = {
      .stack = options->stack,
      .models = points.models,
      .n_models = points.n_models,
      .methods = points.methods,
      .n_methods = points.n_methods,
      .gpu = options->gpu,
      .machine = options->machine,
      .network = options->network,
      .count = (int)options->ranks,
      .nodes = (int)options->nodes,
      .cpus = (int)options->threads,
      .precision = gd_cli_precision(cli),
      .limits = {.micro_batch = options->micro_batch_size,
                 .any_size = options->micro_batch == GD_MICRO_BATCH_MAX,
                 .device_bytes = (double)options->device_memory_bytes,
                 .host_bytes = (double)options->host_memory_bytes}};
  enum gd_status status = gd_stack_plan_make(&asked, &plan, err);
  if (status == GD_OK)
    status = answer(cli, &plan, err);
  gd_stack_plan_deinit(&plan);
  return status;
}
