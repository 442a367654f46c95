/*
 * Plans for the paper's stack; see plan_stack.h. The prediction is src/predict/stack_paper.h, and
 * what it is worth comes from src/report/accuracy.h: errors on GPUs that a fit has not seen.
 */
#include "cli/plan_stack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/predicting.h"
#include "cli/show.h"
#include "hw/estimate.h"
#include "predict/predict.h"
#include "report/accuracy.h"

struct row {
  const struct gd_stack_model *model;
  struct gd_stack_point point;
  double step_s, days;
  int number;
  enum gd_precision precision; /* that the GPU runs the recipe in */
  bool substituted;
};

struct question {
  struct gd_cli *cli;
  const struct gd_accuracy *accuracy;
  struct gd_target target;
  double error; /* half width of intervals, relative */
  bool validated;
  char basis[512];
  struct row *rows;
  int n_rows, n_methods;
};

static bool fits(const struct row *row) {
  return row->point.micro_batch > 0;
}

/* --- asking --------------------------------------------------------------------------------- */

/* Only what the paper's tables hold has been compared with anything. */
static void judge(struct question *q, bool known_models) {
  const struct gd_accuracy_score *score = &q->accuracy->held_gpu;
  bool known = gd_paper_find_gpu(&q->accuracy->stack.paper, q->target.gpu->name) != NULL;
  q->validated = known && known_models && q->target.nodes == 1 && q->target.count <= 8;
  q->error = fmax(score->p90, q->validated ? 0 : GD_PREDICT_UNVALIDATED);
  snprintf(
      q->basis, sizeof q->basis,
      "%sthe paper's software on the %s, fitted to its Tables 1 and 4; median error %.0f %%, 90 "
      "%% within %.0f %% on GPUs that a fit had not seen",
      q->validated ? "" : "unvalidated; ", q->target.gpu->title, 100 * score->median,
      100 * score->p90);
}

static enum gd_status check_method(const struct gd_method *method, struct gd_error *err) {
  int parts = method->compile + method->kernels + method->tf32;
  bool fsdp = method->sharding == GD_SHARDING_FSDP2 || method->sharding == GD_SHARDING_FSDP3;
  if (parts == 3 || (parts == 0 && !fsdp))
    return GD_OK;
  return gd_fail(err, GD_UNSUPPORTED,
                 "--stack paper knows naive, also with ckpt, zero1 to zero3 and offload (as "
                 "Megatron-LM on DeepSpeed), and free-lunch with ckpt, a sharding and offload; "
                 "choose among these");
}

static enum gd_status fill_rows(struct question *q, const struct gd_method *methods,
                                struct gd_error *err) {
  struct gd_cli *cli = q->cli;
  bool known = true;
  struct gd_stack_model *models =
      gd_arena_alloc(&cli->arena, (size_t)cli->n_arguments, sizeof *models);
  q->rows =
      gd_arena_alloc(&cli->arena, (size_t)cli->n_arguments * (size_t)q->n_methods, sizeof *q->rows);
  if (!models || !q->rows)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory before the first plan");
  for (int i = 0; i < cli->n_arguments; i++) {
    GD_TRY(gd_cli_load_model(cli, cli->arguments[i], &models[i].model, err));
    const struct gd_recipe *recipe = &models[i].model.recipe;
    if (recipe->batch % q->target.count)
      return gd_fail(err, GD_BAD_INPUT, "a batch of %lld does not divide among %d GPUs",
                     (long long)recipe->batch, q->target.count);
    GD_TRY(gd_stack_model_make(&models[i], err));
    known = known && gd_paper_find_recipe(&q->accuracy->stack.paper, models[i].model.name);
    for (int k = 0; k < q->n_methods; k++) {
      struct row *row = &q->rows[q->n_rows];
      *row = (struct row){.model = &models[i], .number = q->n_rows++};
      gd_stack_point(&models[i], &methods[k], &q->target, recipe->batch, &row->point);
      GD_TRY(gd_estimate_precision(&models[i].model, q->target.gpu, NULL, &row->precision,
                                   &row->substituted, err));
      if (!fits(row))
        continue;
      row->step_s = gd_stack_step_s(&models[i], &row->point, &q->target, &q->accuracy->all.fit);
      row->days = row->step_s * (double)recipe->steps / 86400;
    }
  }
  judge(q, known);
  return GD_OK;
}

/* Models in the order asked for; of each the shortest first, and last what does not fit. */
static int compare_rows(const void *left, const void *right) {
  const struct row *a = left, *b = right;
  if (a->model != b->model)
    return a->model < b->model ? -1 : 1;
  if (fits(a) != fits(b))
    return fits(a) ? -1 : 1;
  if (a->days < b->days || a->days > b->days)
    return a->days < b->days ? -1 : 1;
  return a->number - b->number;
}

/* --- answering ------------------------------------------------------------------------------ */

static void reason_of(const struct question *q, const struct row *row, char *text, size_t size) {
  char need[GD_SHOW_TEXT], have[GD_SHOW_TEXT];
  const struct gd_stack_bytes *bytes = &row->point.bytes;
  bool host = bytes->device <= (double)q->target.gpu->memory_bytes;
  double limit = (double)(host ? q->target.host_memory_bytes : q->target.gpu->memory_bytes);
  snprintf(text, size, "micro-batch 1 needs %s of the %s that a %s has",
           gd_format_bytes(need, sizeof need, (int64_t)(host ? bytes->host : bytes->device)),
           gd_format_bytes(have, sizeof have, (int64_t)limit), host ? "GPU's host share" : "GPU");
}

static void set_object(const struct question *q, const struct row *row, struct gd_show_object *to) {
  char method[GD_METHOD_NAME], reason[256] = "";
  bool ok = fits(row);
  if (!ok)
    reason_of(q, row, reason, sizeof reason);
  gd_show_begin(to);
  gd_show_set_text(to, "model", row->model->model.name);
  gd_show_set_text(to, "method", gd_method_name(&row->point.method, method));
  gd_show_set_text(to, "gpu", q->target.gpu->name);
  gd_show_set_int(to, "count", q->target.count);
  gd_show_set_text(to, "stack", "paper");
  gd_show_set_int(to, "micro_batch", ok ? row->point.micro_batch : 1);
  gd_show_set_int(to, "accumulation", (int64_t)row->point.accumulation);
  gd_show_set_int(to, "peak_bytes", (int64_t)row->point.bytes.device);
  gd_show_set_int(to, "host_bytes", (int64_t)row->point.bytes.host);
  gd_show_set_bool(to, "feasible", ok);
  gd_show_set_text(to, "reason", reason);
  gd_show_set_real(to, "step_s", ok ? row->step_s : (double)NAN);
  gd_show_set_real(to, "days", ok ? row->days : (double)NAN);
  gd_show_set_real(to, "days_low", ok ? row->days * (1 - q->error) : (double)NAN);
  gd_show_set_real(to, "days_high", ok ? row->days * (1 + q->error) : (double)NAN);
  gd_show_set_bool(to, "predicted", ok);
  gd_show_set_bool(to, "validated", ok && q->validated);
  gd_show_set_text(to, "basis", q->basis);
  gd_show_set_text(to, "precision", gd_precision_name(row->precision));
  gd_show_set_bool(to, "precision_substituted", row->substituted);
  gd_show_target(to, &q->target);
}

static enum gd_status show_objects(const struct question *q, struct gd_error *err) {
  struct gd_show_object root, row, rows = {.object = json_array()};
  for (int i = 0; i < q->n_rows; i++) {
    set_object(q, &q->rows[i], &row);
    gd_show_append(&rows, &row);
  }
  if (q->cli->options.csv)
    return gd_show_csv(&q->cli->out, &rows, err);
  gd_show_begin(&root);
  gd_show_set_object(&root, "trials", &rows);
  return gd_show_json(&q->cli->out, &root, err);
}

enum { COLUMNS = 9 };

static void set_cells(const struct question *q, const struct row *row, const char **cells) {
  struct gd_cli *cli = q->cli;
  char text[GD_METHOD_NAME];
  struct gd_show_duration shown;
  double s = row->days * 86400;
  cells[0] = row->model->model.name;
  cells[1] = gd_show_cell(cli, "%s", gd_method_name(&row->point.method, text));
  cells[2] = fits(row) ? "yes" : "no";
  if (fits(row)) {
    gd_show_duration(&shown, s, s * (1 - q->error), s * (1 + q->error));
    cells[3] = gd_show_cell(cli, "%s", shown.value);
    cells[4] = gd_show_cell(cli, "%s", shown.interval);
    cells[5] = gd_show_cell(cli, "%lld", (long long)row->point.micro_batch);
    cells[6] = gd_show_cell(cli, "%.0f", row->point.accumulation);
  }
  cells[7] =
      gd_show_cell(cli, "%s", gd_format_bytes(text, sizeof text, (int64_t)row->point.bytes.device));
  cells[8] =
      gd_show_cell(cli, "%s", gd_format_bytes(text, sizeof text, (int64_t)row->point.bytes.host));
}

static enum gd_status show_table(const struct question *q, struct gd_error *err) {
  static const struct gd_show_column columns[COLUMNS] = {
      {"MODEL", false}, {"METHOD", false},  {"FITS", false},
      {"TIME", true},   {"INTERVAL", true}, {"MICRO-BATCH", true},
      {"PASSES", true}, {"DEVICE", true},   {"HOST", true}};
  struct gd_cli *cli = q->cli;
  char line[640];
  const char **cells = gd_arena_alloc(&cli->arena, (size_t)q->n_rows * COLUMNS, sizeof *cells);
  if (!cells)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while listing plans");
  for (int i = 0; i < q->n_rows; i++)
    set_cells(q, &q->rows[i], cells + (size_t)i * COLUMNS);
  gd_strbuf_printf(&cli->out, "%d x %s, the paper's software:\n", q->target.count,
                   q->target.gpu->title);
  gd_show_nodes(cli, &q->target);
  gd_strbuf_append(&cli->out, "\n");
  GD_TRY(gd_show_table(&cli->out, 0, columns, COLUMNS, cells, q->n_rows, err));
  snprintf(line, sizeof line, "predicted, not measured: %s", q->basis);
  gd_strbuf_append(&cli->out, "\n");
  for (int i = 0; i < q->n_rows; i++)
    if (q->rows[i].substituted && (i == 0 || q->rows[i].model != q->rows[i - 1].model))
      gd_strbuf_printf(&cli->out, "%s: the recipe's %s runs as %s: this GPU has no %s\n",
                       q->rows[i].model->model.name,
                       gd_precision_name(q->rows[i].model->model.recipe.precision),
                       gd_precision_name(q->rows[i].precision),
                       gd_precision_name(q->rows[i].model->model.recipe.precision));
  gd_show_paragraph(&cli->out, 0, line);
  return GD_OK;
}

static enum gd_status answer(struct question *q, struct gd_error *err) {
  char reason[256];
  qsort(q->rows, (size_t)q->n_rows, sizeof *q->rows, compare_rows);
  if (q->cli->options.json || q->cli->options.csv)
    GD_TRY(show_objects(q, err));
  else
    GD_TRY(show_table(q, err));
  for (int i = 0; i < q->n_rows; i++)
    if (!fits(&q->rows[i]) && (i == 0 || q->rows[i].model != q->rows[i - 1].model)) {
      reason_of(q, &q->rows[i], reason, sizeof reason);
      return gd_fail(err, GD_NOMEM_DEVICE, "%s does not fit: %s", q->rows[i].model->model.name,
                     reason);
    }
  return GD_OK;
}

enum gd_status gd_plan_stack(struct gd_cli *cli, struct gd_error *err) {
  struct gd_accuracy accuracy = {0};
  struct question q = {.cli = cli, .accuracy = &accuracy};
  struct gd_method *methods;
  struct gd_cli_options *options = &cli->options;
  if (!options->gpu)
    return gd_fail(err, GD_BAD_INPUT, "--stack paper predicts for given GPUs; name one with --gpu");
  options->ranks = options->count > 0 ? options->count : 1;
  GD_TRY(gd_cli_methods(cli, &methods, &q.n_methods, err));
  for (int i = 0; i < q.n_methods; i++)
    GD_TRY(check_method(&methods[i], err));
  enum gd_status status = gd_accuracy_make(&accuracy, err);
  if (status == GD_OK)
    status = gd_hw_target(&accuracy.stack.hw, options->gpu, (int)options->ranks,
                          (int)options->nodes, options->machine, options->network, &q.target, err);
  if (status == GD_OK)
    status = fill_rows(&q, methods, err);
  if (status == GD_OK)
    status = answer(&q, err);
  gd_accuracy_deinit(&accuracy);
  return status;
}
