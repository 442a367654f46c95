/*
 * `gpudays bench MODEL...`: training measured here. One model is answered by a few lines that begin
 * with the answer, several by a table.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/progress.h"
#include "cli/show_trial.h"
#include "comm/comm.h"
#include "search/load.h"

struct bench {
  const char *argument; /* what the user called the model */
  struct gd_model model;
  struct gd_method method;
  struct gd_trial trial;
};

/* --- one trial for people ------------------------------------------------------------------ */

static void append_answer(struct gd_cli *cli, const struct bench *bench) {
  const struct gd_trial *trial = &bench->trial;
  struct gd_strbuf *out = &cli->out;
  struct gd_show_duration days;
  char a[GD_SHOW_TEXT], b[3 * GD_SHOW_TEXT], c[GD_SHOW_TEXT];
  gd_show_duration(&days, trial->days * 86400, trial->days_low * 86400, trial->days_high * 86400);
  gd_strbuf_append(out, "  ");
  gd_show_bold(cli, days.value);
  gd_strbuf_printf(out, "  (95 %%: %s)\n", days.interval);
  gd_strbuf_printf(
      out, "  %s steps of %s, %s each:\n", gd_format_count(a, sizeof a, bench->model.recipe.steps),
      gd_show_step_size(b, sizeof b, &bench->model), gd_show_seconds(c, sizeof c, trial->step_s));
}

static void append_step(struct gd_strbuf *out, const struct gd_trial *trial) {
  char pass[GD_SHOW_TEXT], last[GD_SHOW_TEXT], update[GD_SHOW_TEXT], passes[3 * GD_SHOW_TEXT];
  bool differs = trial->last_pass.count > 0; /* smaller, or with the exchange of gradients */
  gd_show_seconds(last, sizeof last, trial->last_pass.median_s);
  gd_strbuf_printf(
      out, "  %s (%s%s%s) + update (%s)\n", gd_show_passes(passes, sizeof passes, trial),
      gd_show_seconds(pass, sizeof pass, trial->pass.median_s), differs ? ", the last " : "",
      differs ? last : "", gd_show_seconds(update, sizeof update, trial->update.median_s));
}

static void append_memory(struct gd_strbuf *out, const struct gd_trial *trial) {
  struct gd_strbuf line = {0};
  char size[GD_SHOW_TEXT];
  gd_strbuf_printf(&line, "memory %s:", gd_format_bytes(size, sizeof size, trial->peak_bytes));
  for (int i = 0; i < GD_CATEGORY_DEVICE_COUNT; i++)
    gd_strbuf_printf(&line, " %s %s%s", gd_category_name((enum gd_category)i),
                     gd_format_bytes(size, sizeof size, trial->bytes[i]),
                     i + 1 < GD_CATEGORY_DEVICE_COUNT ? "," : ";");
  gd_strbuf_printf(&line, " host %s", gd_format_bytes(size, sizeof size, trial->host_bytes));
  if (trial->resident_bytes >= 0)
    gd_strbuf_printf(&line, "; resident set grew by %s",
                     gd_format_bytes(size, sizeof size, trial->resident_bytes));
  if (line.text && !line.failed)
    gd_show_paragraph(out, 2, line.text);
  gd_strbuf_deinit(&line);
}

static void append_speed(struct gd_strbuf *out, const struct bench *bench) {
  const struct gd_trial *trial = &bench->trial;
  struct gd_strbuf line = {0};
  char rate[2 * GD_SHOW_TEXT];
  gd_strbuf_append(&line, gd_show_throughput(rate, sizeof rate, &bench->model, trial));
  if (trial->peak_flops > 0) {
    gd_strbuf_printf(&line, ", MFU %s %%", gd_show_digits(rate, sizeof rate, 100 * trial->mfu, 2));
    /* Executed FLOPs are worth a word where they differ from the model's. */
    if (fabs(trial->hfu - trial->mfu) >= 0.005)
      gd_strbuf_printf(&line, ", HFU %s %%",
                       gd_show_digits(rate, sizeof rate, 100 * trial->hfu, 2));
    gd_strbuf_printf(&line, " of %s %s (measured peak)",
                     gd_show_rate(rate, sizeof rate, trial->peak_flops),
                     gd_precision_name(trial->precision));
  }
  gd_strbuf_printf(&line, "; loss %.4g, gradient norm %.3g: plausible", trial->loss, trial->norm);
  if (line.text && !line.failed)
    gd_show_paragraph(out, 2, line.text);
  gd_strbuf_deinit(&line);
}

/* Says that others were computing, when they were; the interval does not show it. */
static void append_load_note(struct gd_strbuf *out, const char *start,
                             const struct gd_trial *trial) {
  char note[256 + sizeof trial->model];
  if (trial->busy_share <= GD_LOAD_QUIET)
    return;
  snprintf(note, sizeof note,
           "%s: other programs used %.0f %% of the CPUs while this was measured, so that the time "
           "may be too long by that much or more: measure again on a quiet machine",
           start, 100 * trial->busy_share);
  gd_show_paragraph(out, 2, note);
}

static void append_sheet(struct gd_cli *cli, const struct bench *bench) {
  const struct gd_trial *trial = &bench->trial;
  struct gd_strbuf *out = &cli->out;
  gd_show_trial_title(out, trial);
  if (trial->status != GD_TRIAL_OK) {
    gd_strbuf_append(out, "  ");
    gd_show_bold(cli, gd_trial_status_name(trial->status));
    gd_strbuf_append(out, "\n");
    gd_show_paragraph(out, 2, trial->reason);
    return;
  }
  append_answer(cli, bench);
  append_step(out, trial);
  append_memory(out, trial);
  append_speed(out, bench);
  gd_show_precision_note(out, &bench->model, trial);
  gd_show_compiler_note(out, trial);
  append_load_note(out, "note", trial);
  if (trial->step_half_width_s > 0.02 * trial->step_s) {
    char note[160], width[GD_SHOW_TEXT];
    snprintf(
        note, sizeof note,
        "note: the interval is +-%s %%, wider than the 2 %% aimed at: other programs are "
        "running, or the sample is too short (--sample-seconds)",
        gd_show_digits(width, sizeof width, 100 * trial->step_half_width_s / trial->step_s, 2));
    gd_show_paragraph(out, 2, note);
  }
}

/* --- several ------------------------------------------------------------------------------- */

static void set_row(struct gd_cli *cli, const char **row, const struct bench *bench) {
  const struct gd_trial *trial = &bench->trial;
  char text[2 * GD_SHOW_TEXT];
  struct gd_show_duration days;
  row[0] = trial->model;
  row[1] = trial->method;
  row += 1;
  if (trial->status != GD_TRIAL_OK) {
    row[1] = gd_trial_status_name(trial->status);
    return;
  }
  gd_show_duration(&days, trial->days * 86400, trial->days_low * 86400, trial->days_high * 86400);
  row[1] = gd_show_cell(cli, "%s", days.value);
  row[2] = gd_show_cell(cli, "%s", days.interval);
  row[3] = gd_show_cell(cli, "%s", gd_show_seconds(text, sizeof text, trial->step_s));
  row[4] = gd_show_cell(cli, "%s", gd_show_throughput(text, sizeof text, &bench->model, trial));
  if (trial->peak_flops > 0)
    row[5] = gd_show_cell(cli, "%s %%", gd_show_digits(text, sizeof text, 100 * trial->mfu, 2));
  row[6] = gd_show_cell(cli, "%s", gd_format_count(text, sizeof text, trial->micro_batch));
  row[7] = gd_precision_name(trial->precision);
  row[8] = gd_show_cell(cli, "%s", gd_format_bytes(text, sizeof text, trial->peak_bytes));
  row[9] = gd_show_cell(cli, "%s", gd_format_bytes(text, sizeof text, trial->host_bytes));
}

/* What a row has no room for. */
static void append_row_notes(struct gd_strbuf *out, const struct bench *bench) {
  const struct gd_trial *trial = &bench->trial;
  if (trial->status != GD_TRIAL_OK) {
    struct gd_strbuf line = {0};
    gd_strbuf_printf(&line, "%s, %s: %s", trial->model, trial->method, trial->reason);
    if (line.text && !line.failed)
      gd_show_paragraph(out, 2, line.text);
    gd_strbuf_deinit(&line);
    return;
  }
  if (trial->precision_substituted)
    gd_strbuf_printf(out, "  %s: the recipe's %s runs as %s here\n", trial->model,
                     gd_precision_name(bench->model.recipe.precision),
                     gd_precision_name(trial->precision));
  append_load_note(out, trial->model, trial);
}

static enum gd_status append_table(struct gd_cli *cli, const struct bench *benches, int count,
                                   struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"MODEL", false}, {"METHOD", false}, {"TIME", true}, {"95 %", true},
      {"STEP", true},   {"SPEED", true},   {"MFU", true},  {"MICRO-BATCH", true},
      {"PREC", false},  {"MEMORY", true},  {"HOST", true},
  };
  enum { COLUMNS = sizeof columns / sizeof *columns };
  const char **cells = gd_arena_alloc(&cli->arena, (size_t)count * COLUMNS, sizeof *cells);
  if (!cells)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while printing a table");
  for (int i = 0; i < count; i++)
    set_row(cli, cells + (ptrdiff_t)COLUMNS * i, &benches[i]);
  /* A trial that ended in an error may not have come as far as its device. */
  for (int i = 0; i < count; i++)
    if (benches[i].trial.device[0]) {
      gd_show_trial_place(&cli->out, &benches[i].trial);
      gd_strbuf_append(&cli->out, "\n");
      break;
    }
  GD_TRY(gd_show_table(&cli->out, 2, columns, COLUMNS, cells, count, err));
  for (int i = 0; i < count; i++)
    append_row_notes(&cli->out, &benches[i]);
  return GD_OK;
}

/* --- all of it ----------------------------------------------------------------------------- */

/* The fastest trial of the model that trial `of` is of, among those that passed, or -1. */
static int find_best(const struct bench *benches, int count, int of) {
  int best = -1;
  for (int i = 0; i < count; i++)
    if (strcmp(benches[i].argument, benches[of].argument) == 0 &&
        benches[i].trial.status == GD_TRIAL_OK &&
        (best < 0 || benches[i].trial.days < benches[best].trial.days))
      best = i;
  return best;
}

static void set_best(struct gd_show_object *to, const char *key, const struct bench *benches,
                     int count, int of) {
  struct gd_show_object row;
  int best = find_best(benches, count, of);
  if (best < 0) {
    gd_show_set_null(to, key);
    return;
  }
  gd_show_trial(&row, &benches[best].trial, true);
  gd_show_set_object(to, key, &row);
}

/* Days of different models are not compared: with several, each has a best trial of its own. */
static void set_best_by_model(struct gd_show_object *to, const struct bench *benches, int count) {
  for (int i = 0; i < count; i++) {
    char path[256];
    const char *key = benches[i].model.name;
    for (int k = 0; k < count; k++) /* two folders of one name are told by their paths */
      if (strcmp(benches[k].model.name, benches[i].model.name) == 0 &&
          strcmp(benches[k].argument, benches[i].argument) != 0)
        key = gd_json_excerpt(path, sizeof path, benches[i].argument);
    set_best(to, key, benches, count, i);
  }
}

static bool is_one_model(const struct gd_cli *cli) {
  for (int i = 1; i < cli->n_arguments; i++)
    if (strcmp(cli->arguments[i], cli->arguments[0]) != 0)
      return false;
  return true;
}

static enum gd_status show_objects(struct gd_cli *cli, const struct bench *benches, int count,
                                   struct gd_error *err) {
  struct gd_show_object root, by_model, row, rows = {.object = json_array()};
  for (int i = 0; i < count; i++) {
    gd_show_trial(&row, &benches[i].trial, true);
    gd_show_append(&rows, &row);
  }
  if (cli->options.csv)
    return gd_show_csv(&cli->out, &rows, err);
  gd_show_begin(&root);
  gd_show_set_object(&root, "trials", &rows);
  if (is_one_model(cli)) {
    set_best(&root, "best", benches, count, 0);
  } else {
    gd_show_begin(&by_model);
    set_best_by_model(&by_model, benches, count);
    gd_show_set_null(&root, "best");
    gd_show_set_object(&root, "best_by_model", &by_model);
  }
  return gd_show_json(&cli->out, &root, err);
}

/* With several models an error is the result of its own trial, and the others still run. */
static enum gd_status measure(struct gd_cli *cli, struct bench *bench, int index, int count,
                              struct gd_error *err) {
  struct gd_progress progress = {.on = cli->progress};
  struct gd_trial_options options;
  gd_cli_trial_options(cli, &bench->method, &options);
  options.progress = gd_progress_report;
  options.progress_user = &progress;
  snprintf(progress.label, sizeof progress.label, "%s", bench->model.name);
  if (count > 1)
    snprintf(progress.label, sizeof progress.label, "%.128s (%d of %d)", bench->model.name,
             index + 1, count);
  enum gd_status status = gd_trial_measure(&bench->model, &options, &bench->trial, err);
  gd_progress_clear(&progress);
  if (status != GD_OK) {
    bench->trial.status = GD_TRIAL_FAILED;
    snprintf(bench->trial.reason, sizeof bench->trial.reason, "%s", err->text);
  }
  return status;
}

/* Every method on every model. */
static enum gd_status make_benches(struct gd_cli *cli, struct bench **benches, int *count,
                                   struct gd_error *err) {
  struct gd_method *methods;
  int n_methods, at = 0;
  GD_TRY(gd_cli_methods(cli, &methods, &n_methods, err));
  *count = cli->n_arguments * n_methods;
  *benches = gd_arena_alloc(&cli->arena, (size_t)*count, sizeof **benches);
  if (!*benches)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory before the first trial");
  /* All are read before any runs: a misspelt last name must not cost the time of the others. */
  for (int i = 0; i < cli->n_arguments; i++)
    for (int k = 0; k < n_methods; k++, at++) {
      (*benches)[at].argument = cli->arguments[i];
      (*benches)[at].method = methods[k];
      GD_TRY(gd_cli_load_model(cli, cli->arguments[i], &(*benches)[at].model, err));
    }
  return GD_OK;
}

enum gd_status gd_cmd_bench(struct gd_cli *cli, struct gd_error *err) {
  struct gd_error first = {0};
  struct bench *benches;
  int count;
  GD_TRY(make_benches(cli, &benches, &count, err)); /* a wrong name is said before ranks meet */
  GD_TRY(gd_launch_join(cli, err));
  GD_TRY(make_benches(cli, &benches, &count, err)); /* `all` depends on how many they are */
  for (int i = 0; i < count; i++) {
    struct gd_error own = {0};
    enum gd_status status = measure(cli, &benches[i], i, count, &own);
    if (status == GD_OK)
      status = gd_trial_verdict(&benches[i].trial, &own);
    else if (count == 1 || (cli->comm && gd_comm_has_failed(cli->comm)))
      return gd_fail(err, status, "%s", own.text);
    if (status != GD_OK && first.status == GD_OK)
      first = own;
  }
  if (cli->options.json || cli->options.csv)
    GD_TRY(show_objects(cli, benches, count, err));
  else if (count == 1)
    append_sheet(cli, &benches[0]);
  else
    GD_TRY(append_table(cli, benches, count, err));
  for (int i = 0; i < count && !cli->options.json && !cli->options.csv; i++)
    if (benches[i].trial.n_profile > 0)
      GD_TRY(gd_show_profile(cli, &benches[i].trial, err));
  for (int i = 0; i < count; i++)
    if (benches[i].trial.status == GD_TRIAL_OK)
      return GD_OK;
  *err = first;
  return first.status;
}
