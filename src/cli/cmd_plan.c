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
  gd_strbuf_printf(out, "; planned in %s\n", gd_show_seconds(a, sizeof a, trial->plan_s));
  gd_show_precision_note(out, model, trial);
  return GD_OK;
}

static enum gd_status plan_one(struct gd_cli *cli, const char *name, struct gd_show_object *rows,
                               struct gd_error *verdict, struct gd_error *err) {
  struct gd_model model;
  struct gd_trial_options options;
  struct gd_trial trial;
  bool programs = cli->options.json || cli->options.csv;
  GD_TRY(gd_cli_trial_options(cli, &options, err));
  GD_TRY(gd_cli_load_model(cli, name, &model, err));
  GD_TRY(gd_trial_plan(&model, &options, &trial, err));
  if (programs) {
    struct gd_show_object row;
    gd_show_trial(&row, &trial, false);
    gd_show_append(rows, &row);
  } else {
    gd_strbuf_append(&cli->out, cli->out.length ? "\n" : "");
    GD_TRY(append_sheet(cli, &model, &trial, err));
  }
  if (cli->options.explain) {
    gd_strbuf_append(&cli->out, "\n");
    GD_TRY(gd_trial_explain(&model, &options, &trial, &cli->out, err));
  }
  /* The first model that does not fit is the sentence; the others are in the tables. */
  gd_trial_verdict(&trial, verdict);
  return GD_OK;
}

enum gd_status gd_cmd_plan(struct gd_cli *cli, struct gd_error *err) {
  struct gd_show_object root, rows;
  struct gd_error verdict = {0};
  enum gd_status status = GD_OK;
  if (cli->options.explain && (cli->options.json || cli->options.csv))
    return gd_fail(err, GD_BAD_INPUT, "--explain is text for people; leave out --json and --csv");
  rows = (struct gd_show_object){.object = json_array()};
  for (int i = 0; i < cli->n_arguments && status == GD_OK; i++)
    status = plan_one(cli, cli->arguments[i], &rows, &verdict, err);
  if (status != GD_OK || !(cli->options.json || cli->options.csv)) {
    json_decref(rows.object);
  } else if (cli->options.csv) {
    status = gd_show_csv(&cli->out, &rows, err);
  } else {
    gd_show_begin(&root);
    gd_show_set_object(&root, "trials", &rows);
    status = gd_show_json(&cli->out, &root, err);
  }
  GD_TRY(status);
  if (verdict.status != GD_OK)
    *err = verdict;
  return verdict.status;
}
