/*
 * Plans for the paper's stack as a table and as JSON; see plan_stack.h. What they are is
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
  snprintf(text, size, "micro-batch 1 needs %s of the %s that a %s has",
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
  gd_show_set_text(to, "model", row->model->model.name);
  gd_show_set_text(to, "method", gd_method_name(&row->point.method, method));
  gd_show_set_text(to, "gpu", plan->target.gpu->name);
  gd_show_set_int(to, "count", plan->target.count);
  gd_show_set_text(to, "stack", "paper");
  gd_show_set_int(to, "micro_batch", ok ? row->point.micro_batch : 1);
  gd_show_set_int(to, "accumulation", (int64_t)row->point.accumulation);
  gd_show_set_int(to, "peak_bytes", (int64_t)row->point.bytes.device);
  gd_show_set_int(to, "host_bytes", (int64_t)row->point.bytes.host);
  gd_show_set_bool(to, "feasible", ok);
  gd_show_set_text(to, "reason", reason);
  gd_show_set_real(to, "step_s", ok ? row->step_s : (double)NAN);
  gd_show_set_real(to, "days", ok ? row->days : (double)NAN);
  gd_show_set_real(to, "days_low", ok ? row->days * (1 - plan->error) : (double)NAN);
  gd_show_set_real(to, "days_high", ok ? row->days * (1 + plan->error) : (double)NAN);
  gd_show_set_bool(to, "predicted", ok);
  gd_show_set_bool(to, "validated", ok && plan->validated);
  gd_show_set_text(to, "basis", plan->basis);
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

static void set_cells(struct gd_cli *cli, const struct gd_stack_plan *plan,
                      const struct gd_stack_row *row, const char **cells) {
  char text[GD_METHOD_NAME];
  struct gd_show_duration shown;
  cells[0] = row->model->model.name;
  cells[1] = gd_show_cell(cli, "%s", gd_method_name(&row->point.method, text));
  cells[2] = row->fits ? "yes" : "no";
  if (row->fits) {
    gd_show_duration(&shown, row->days, row->days * (1 - plan->error),
                     row->days * (1 + plan->error));
    cells[3] = gd_show_cell(cli, "%s", shown.value);
    cells[4] = gd_show_cell(cli, "%s", shown.interval);
    cells[5] = gd_show_cell(cli, "%lld", (long long)row->point.micro_batch);
    cells[6] = gd_show_cell(cli, "%.0f", row->point.accumulation);
  }
  cells[7] = gd_show_bytes_cell(cli, (int64_t)row->point.bytes.device);
  cells[8] = gd_show_bytes_cell(cli, (int64_t)row->point.bytes.host);
}

static enum gd_status show_table(struct gd_cli *cli, const struct gd_stack_plan *plan,
                                 struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"MODEL", false},       {"METHOD", false},  {"FITS", false},
      {"TIME", true},         {"INTERVAL", true}, {"MICRO-BATCH", true},
      {"ACCUMULATION", true}, {"DEVICE", true},   {"HOST", true}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  char line[640];
  for (int i = 0; i < plan->count; i++)
    set_cells(cli, plan, &plan->rows[i], gd_show_row(&rows));
  gd_strbuf_printf(&cli->out, "%d x %s, the paper's software:\n", plan->target.count,
                   plan->target.gpu->title);
  gd_show_nodes(cli, &plan->target);
  gd_strbuf_append(&cli->out, "\n");
  GD_TRY(gd_show_rows(&rows, 0, err));
  snprintf(line, sizeof line, "predicted, not measured: %s", plan->basis);
  gd_strbuf_append(&cli->out, "\n");
  for (int i = 0; i < plan->count; i++)
    if (plan->rows[i].substituted && (i == 0 || plan->rows[i].model != plan->rows[i - 1].model))
      gd_strbuf_printf(&cli->out, "%s: the recipe's %s runs as %s: this GPU has no %s\n",
                       plan->rows[i].model->model.name,
                       gd_precision_name(plan->rows[i].model->model.recipe.precision),
                       gd_precision_name(plan->rows[i].precision),
                       gd_precision_name(plan->rows[i].model->model.recipe.precision));
  gd_show_paragraph(&cli->out, 0, line);
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
      return gd_fail(err, GD_NOMEM_DEVICE, "%s does not fit: %s", plan->rows[i].model->model.name,
                     reason);
    }
  return GD_OK;
}

enum gd_status gd_plan_stack(struct gd_cli *cli, struct gd_error *err) {
  struct gd_cli_options *options = &cli->options;
  struct gd_stack_plan plan = {0};
  struct gd_points_asked points;
  if (!options->gpu)
    return gd_fail(err, GD_BAD_INPUT, "--stack paper predicts for given GPUs; name one with --gpu");
  options->ranks = options->count > 0 ? options->count : 1; /* what `all` methods are for */
  GD_TRY(gd_points_of_cli(cli, &points, err));
  enum gd_status status = gd_stack_plan_make(&(struct gd_stack_asked){.models = points.models,
                                                                      .n_models = points.n_models,
                                                                      .methods = points.methods,
                                                                      .n_methods = points.n_methods,
                                                                      .gpu = options->gpu,
                                                                      .machine = options->machine,
                                                                      .network = options->network,
                                                                      .count = (int)options->ranks,
                                                                      .nodes = (int)options->nodes},
                                             &plan, err);
  if (status == GD_OK)
    status = answer(cli, &plan, err);
  gd_stack_plan_deinit(&plan);
  return status;
}
