/*
 * `gpudays plan MODEL...`: memory by category and the micro-batch, before anything runs.
 */
#include <stdio.h>

#include "cli/cli.h"
#include "cli/show_trial.h"

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

static enum gd_status append_sheet(struct gd_cli *cli, const struct gd_model *model,
                                   const struct gd_trial *trial, struct gd_error *err) {
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
  gd_strbuf_printf(out, "  a step of %s is %s\n\n", gd_show_step_size(step, sizeof step, model),
                   gd_show_passes(passes, sizeof passes, trial));
  GD_TRY(append_memory(cli, trial, err));
  gd_strbuf_printf(out, "\n  host memory %s of %s", gd_format_bytes(a, sizeof a, trial->host_bytes),
                   gd_format_bytes(b, sizeof b, trial->host_limit_bytes));
  append_host_parts(out, trial);
  gd_strbuf_printf(out, "; planned in %s\n", gd_show_seconds(a, sizeof a, trial->plan_s));
  gd_show_precision_note(out, model, trial);
  gd_show_compiler_note(out, trial);
  return GD_OK;
}

/* --- several methods ------------------------------------------------------------------------ */

static void set_trial_row(struct gd_cli *cli, const char **row, const struct gd_trial *trial) {
  static const enum gd_category shown[] = {GD_CATEGORY_PARAMETERS, GD_CATEGORY_GRADIENTS,
                                           GD_CATEGORY_OPTIMIZER, GD_CATEGORY_ACTIVATIONS};
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

static enum gd_status append_table(struct gd_cli *cli, const struct gd_trial *trials, int count,
                                   struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"MODEL", false},    {"METHOD", false},     {"FITS", false},      {"MICRO-BATCH", true},
      {"PASSES", true},    {"DEVICE", true},      {"PARAMETERS", true}, {"GRADIENTS", true},
      {"OPTIMIZER", true}, {"ACTIVATIONS", true}, {"HOST", true}};
  enum { COLUMNS = sizeof columns / sizeof *columns };
  char device[GD_SHOW_TEXT], host[GD_SHOW_TEXT];
  const char **cells = gd_arena_alloc(&cli->arena, (size_t)count * COLUMNS, sizeof *cells);
  if (!cells)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while printing a table");
  for (int i = 0; i < count; i++)
    set_trial_row(cli, cells + (ptrdiff_t)COLUMNS * i, &trials[i]);
  gd_show_trial_place(&cli->out, &trials[0]);
  gd_strbuf_printf(&cli->out, "; %s of device and %s of host memory allowed%s\n",
                   gd_format_bytes(device, sizeof device, trials[0].device_limit_bytes),
                   gd_format_bytes(host, sizeof host, trials[0].host_limit_bytes),
                   trials[0].ranks > 1 ? " a rank" : "");
  return gd_show_table(&cli->out, 2, columns, COLUMNS, cells, count, err);
}

/* --- all of it ----------------------------------------------------------------------------- */

static enum gd_status plan_one(struct gd_cli *cli, const char *name, const struct gd_method *method,
                               bool alone, struct gd_trial *trial, struct gd_error *verdict,
                               struct gd_error *err) {
  struct gd_model model;
  struct gd_trial_options options;
  gd_cli_trial_options(cli, method, &options);
  GD_TRY(gd_cli_load_model(cli, name, &model, err));
  GD_TRY(gd_trial_plan(&model, &options, trial, err));
  if (alone && !cli->options.json && !cli->options.csv) {
    gd_strbuf_append(&cli->out, cli->out.length ? "\n" : "");
    GD_TRY(append_sheet(cli, &model, trial, err));
  }
  if (cli->options.explain) {
    gd_strbuf_append(&cli->out, "\n");
    GD_TRY(gd_trial_explain(&model, &options, trial, &cli->out, err));
  }
  /* The first model that does not fit is the sentence; the others are in the tables. */
  gd_trial_verdict(trial, verdict);
  return GD_OK;
}

static enum gd_status show_objects(struct gd_cli *cli, const struct gd_trial *trials, int count,
                                   struct gd_error *err) {
  struct gd_show_object root, row, rows = {.object = json_array()};
  for (int i = 0; i < count; i++) {
    gd_show_trial(&row, &trials[i], false);
    gd_show_append(&rows, &row);
  }
  if (cli->options.csv)
    return gd_show_csv(&cli->out, &rows, err);
  gd_show_begin(&root);
  gd_show_set_object(&root, "trials", &rows);
  return gd_show_json(&cli->out, &root, err);
}

enum gd_status gd_cmd_plan(struct gd_cli *cli, struct gd_error *err) {
  struct gd_error verdict = {0};
  struct gd_method *methods;
  bool programs = cli->options.json || cli->options.csv, any = false;
  int n_methods, at = 0;
  if (cli->options.explain && programs)
    return gd_fail(err, GD_BAD_INPUT, "--explain is text for people; leave out --json and --csv");
  GD_TRY(gd_cli_methods(cli, &methods, &n_methods, err));
  int count = cli->n_arguments * n_methods;
  struct gd_trial *trials = gd_arena_alloc(&cli->arena, (size_t)count, sizeof *trials);
  if (!trials)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory before the first plan");
  for (int i = 0; i < cli->n_arguments; i++)
    for (int k = 0; k < n_methods; k++, at++) {
      GD_TRY(plan_one(cli, cli->arguments[i], &methods[k], n_methods == 1, &trials[at], &verdict,
                      err));
      any |= trials[at].status != GD_TRIAL_INFEASIBLE;
    }
  if (programs)
    GD_TRY(show_objects(cli, trials, count, err));
  else if (n_methods > 1)
    GD_TRY(append_table(cli, trials, count, err));
  /* Of several methods one that fits is an answer; of several models each must fit. */
  if (verdict.status == GD_OK || (n_methods > 1 && any))
    return GD_OK;
  *err = verdict;
  return verdict.status;
}
