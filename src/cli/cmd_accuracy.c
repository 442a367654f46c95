/*
 * `gpudays accuracy`: predicted against measured, as a summary, as the page results/accuracy.md, or
 * for programs. What is compared and how it is scored is src/report/accuracy.h.
 */
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "cli/cli.h"
#include "cli/show.h"
#include "cli/show_published.h"
#include "report/accuracy.h"
#include "store/store_best.h"

/* --- for people ----------------------------------------------------------------------------- */

static void add_row(struct gd_show_rows *rows, const char *what,
                    const struct gd_accuracy_score *score) {
  struct gd_cli *cli = rows->cli;
  const char **row = gd_show_row(rows);
  row[0] = what;
  row[1] = gd_show_cell(cli, "%d", score->count);
  if (score->count == 0)
    return;
  row[2] = gd_show_cell(cli, "%.1f %%", 100 * score->median);
  row[3] = gd_show_cell(cli, "%.1f %%", 100 * score->p90);
  row[4] = gd_show_cell(cli, "%.1f %%", 100 * score->worst);
}

static void add_interval(struct gd_show_rows *rows, const char *what,
                         const struct gd_published_interval *of) {
  struct gd_cli *cli = rows->cli;
  const char **row = gd_show_row(rows);
  row[0] = what;
  row[1] = gd_show_cell(cli, "%d", of->rows);
  row[2] = gd_show_cell(cli, "%.1f %%", 100 * of->median);
  row[3] = gd_show_cell(cli, "%.1f %%", 100 * of->p90);
}

static enum gd_status show_summary(struct gd_cli *cli, const struct gd_accuracy *a,
                                   struct gd_error *err) {
  static const struct gd_show_column columns[] = {{"PREDICTED", false, 0},
                                                  {"COMPARED", true, 2},
                                                  {"MEDIAN", true, 0},
                                                  {"90 %", true, 1},
                                                  {"WORST", true, 0}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  struct gd_accuracy_score trials = gd_accuracy_trials(a, NULL);
  int exact, near, right[2], of[2];
  struct gd_fitted fitted;
  add_row(&rows, "trials, step time", &trials);
  if (a->n_runs > 0) {
    struct gd_accuracy_score runs = gd_accuracy_runs(a);
    add_row(&rows, "runs, step time", &runs);
  }
  for (int i = 0; i < a->n_gpus; i++)
    add_row(&rows, gd_show_cell(cli, "paper, %s left out", a->gpus[i].name), &a->gpus[i].score);
  add_row(&rows, "paper, every GPU left out once", &a->held_gpu);
  for (int i = 0; i < a->n_families; i++)
    add_row(&rows, gd_show_cell(cli, "paper, %s left out", a->families[i].name),
            &a->families[i].score);
  add_row(&rows, "paper, every family left out once", &a->held_family);
  add_row(&rows, "paper, every model left out once", &a->held_model);
  GD_TRY(gd_fitted_load(&fitted, err));
  add_interval(&rows, "published, GPU left out", &fitted.of[GD_KNOWN_STACK]);
  add_interval(&rows, "published, source and stack left out", &fitted.of[GD_KNOWN_GPU]);
  add_row(&rows, "Megatron table, memory", &a->megatron_memory);
  add_row(&rows, "Megatron table, time", &a->megatron_time);
  GD_TRY(gd_show_rows(&rows, 0, err));
  right[0] = gd_accuracy_feasible(a, GD_PAPER_OPTIMAL, &of[0]);
  right[1] = gd_accuracy_feasible(a, GD_PAPER_NAIVE, &of[1]);
  gd_accuracy_micro_batches(a, &exact, &near);
  gd_strbuf_printf(&cli->out,
                   "\nFits or not: %d of %d cells right in Table 1, %d of %d in Table 4.\n"
                   "Micro-batches of Appendix J: %d of %d exact, %d within a factor of two.\n",
                   right[0], of[0], right[1], of[1], exact, a->stack.paper.n_settings, near);
  struct gd_accuracy_choices found = gd_accuracy_choices(a, GD_ACCURACY_GPU_UNSEEN);
  gd_strbuf_printf(
      &cli->out,
      "Methods of Appendix J, GPU left out: %d of %d found, %d within 2 %%; the paper's "
      "are predicted to take %.1f %% longer than ours at the median.\n",
      found.right, found.of, found.near, 100 * found.regret.median);
  return GD_OK;
}

/* --- for programs --------------------------------------------------------------------------- */

static void set_score(struct gd_show_object *to, const struct gd_accuracy_score *score) {
  bool any = score->count > 0;
  gd_show_set_int(to, "compared", score->count);
  gd_show_set_real(to, "median_error", any ? score->median : (double)NAN);
  gd_show_set_real(to, "p90_error", any ? score->p90 : (double)NAN);
  gd_show_set_real(to, "worst_error", any ? score->worst : (double)NAN);
}

static void add_score(struct gd_show_object *to, const char *key,
                      const struct gd_accuracy_score *score) {
  struct gd_show_object object;
  gd_show_begin(&object);
  set_score(&object, score);
  gd_show_set_object(to, key, &object);
}

static void add_folds(struct gd_show_object *to, const char *key,
                      const struct gd_accuracy_fold *folds, int count,
                      const struct gd_accuracy_score *together) {
  struct gd_show_object object, rows = {.object = json_array()};
  gd_show_begin(&object);
  set_score(&object, together);
  for (int i = 0; i < count; i++) {
    struct gd_show_object row;
    gd_show_begin(&row);
    gd_show_set_text(&row, "left_out", folds[i].name);
    gd_show_set_int(&row, "fitted", folds[i].fit.cells);
    set_score(&row, &folds[i].score);
    gd_show_append(&rows, &row);
  }
  gd_show_set_object(&object, "folds", &rows);
  gd_show_set_object(to, key, &object);
}

static struct gd_show_object cells_of(const struct gd_accuracy *a) {
  static const char *const groups[GD_STACK_GROUP_COUNT] = {[GD_STACK_FITTED] = "fitted",
                                                           [GD_STACK_APART] = "apart",
                                                           [GD_STACK_IMPOSSIBLE] = "implausible",
                                                           [GD_STACK_INFEASIBLE] = "infeasible"};
  struct gd_show_object rows = {.object = json_array()};
  for (int i = 0; i < a->stack.n_cells; i++) {
    const struct gd_stack_cell *cell = &a->stack.cells[i];
    const struct gd_accuracy_cell *found = &a->cells[i];
    char method[GD_METHOD_NAME] = "";
    struct gd_show_object row;
    bool measured = cell->paper->days > 0, fits = found->point != NULL;
    gd_show_begin(&row);
    gd_show_set_int(&row, "table", cell->paper->table);
    gd_show_set_text(&row, "model", cell->paper->model);
    gd_show_set_text(&row, "gpu", cell->paper->gpu);
    gd_show_set_int(&row, "count", cell->paper->count);
    gd_show_set_text(&row, "group", groups[cell->group]);
    gd_show_set_real(&row, "paper_days", measured ? cell->paper->days : (double)NAN);
    gd_show_set_real(&row, "peak_share", measured ? cell->share : (double)NAN);
    gd_show_set_bool(&row, "feasible", fits);
    gd_show_set_real(&row, "days", fits ? found->days_gpu : (double)NAN);
    gd_show_set_real(&row, "days_family_left_out", fits ? found->days_family : (double)NAN);
    gd_show_set_text(&row, "method", fits ? gd_method_name(&found->point->method, method) : "");
    gd_show_set_int(&row, "micro_batch", fits ? found->point->micro_batch : 0);
    gd_show_append(&rows, &row);
  }
  return rows;
}

static struct gd_show_object trials_of(const struct gd_accuracy *a) {
  struct gd_show_object rows = {.object = json_array()};
  for (uint32_t i = 0; i < a->n_trials; i++) {
    const struct gd_accuracy_trial *trial = &a->trials[i];
    struct gd_show_object row;
    gd_show_begin(&row);
    gd_show_set_text(&row, "model", trial->model);
    gd_show_set_text(&row, "method", trial->method);
    gd_show_set_text(&row, "device", trial->device);
    gd_show_set_int(&row, "ranks", trial->ranks);
    gd_show_set_int(&row, "micro_batch", trial->micro_batch);
    gd_show_set_bool(&row, "feasible", trial->feasible);
    gd_show_set_int(&row, "peak_bytes", trial->peak_bytes);
    gd_show_set_int(&row, "planned_bytes", trial->planned_bytes);
    gd_show_set_positive(&row, "step_s", trial->measured_s);
    gd_show_set_real(&row, "predicted_step_s",
                     trial->predicted_s > 0 ? trial->predicted_s : (double)NAN);
    gd_show_set_text(&row, "class", gd_point_class_name(trial->of));
    gd_show_set_int(&row, "cpus", trial->cpus);
    gd_show_set_positive(&row, "predicted_low_s", trial->low_s);
    gd_show_set_positive(&row, "predicted_high_s", trial->high_s);
    gd_show_set_text(&row, "reason", trial->why ? trial->why : "");
    gd_show_append(&rows, &row);
  }
  return rows;
}

static struct gd_show_object runs_of(const struct gd_accuracy *a) {
  struct gd_show_object rows = {.object = json_array()};
  for (uint32_t i = 0; i < a->n_runs; i++) {
    const struct gd_accuracy_run *run = &a->runs[i];
    struct gd_show_object row;
    gd_show_begin(&row);
    gd_show_set_text(&row, "run", run->folder);
    gd_show_set_text(&row, "model", run->trial.model);
    gd_show_set_text(&row, "method", run->trial.method);
    gd_show_set_text(&row, "device", run->trial.device);
    gd_show_set_int(&row, "ranks", run->trial.ranks);
    gd_show_set_int(&row, "micro_batch", run->trial.micro_batch);
    gd_show_set_int(&row, "steps", run->steps);
    gd_show_set_real(&row, "step_s", run->trial.measured_s);
    gd_show_set_real(&row, "whole_step_s", run->whole_s);
    gd_show_set_real(&row, "predicted_step_s",
                     run->trial.predicted_s > 0 ? run->trial.predicted_s : (double)NAN);
    gd_show_set_positive(&row, "expected_step_s", run->expected_s);
    gd_show_set_text(&row, "expected_by", run->expected_by);
    gd_show_set_text(&row, "slowed_by", run->slowed_by);
    gd_show_set_text(&row, "reason", run->trial.why ? run->trial.why : "");
    gd_show_append(&rows, &row);
  }
  return rows;
}

static void add_parameters(struct gd_show_object *to, const struct gd_stack_fit *fit) {
  struct gd_show_object object;
  gd_show_begin(&object);
  for (int i = 0; i < GD_STACK_PARAMETERS; i++)
    gd_show_set_real(&object, gd_stack_parameter((enum gd_stack_parameter)i)->name, fit->value[i]);
  gd_show_set_object(to, "parameters", &object);
}

static void add_choices(struct gd_show_object *to, const struct gd_accuracy *a) {
  static const char *const unseen[GD_ACCURACY_UNSEEN_COUNT] = {"all_seen", "gpu_unseen",
                                                               "model_unseen", "family_unseen"};
  struct gd_show_object object, row;
  gd_show_begin(&object);
  for (int i = 0; i < GD_ACCURACY_UNSEEN_COUNT; i++) {
    struct gd_accuracy_choices found = gd_accuracy_choices(a, (enum gd_accuracy_unseen)i);
    gd_show_begin(&row);
    gd_show_set_int(&row, "cells", found.of);
    gd_show_set_int(&row, "right", found.right);
    gd_show_set_int(&row, "near", found.near);
    gd_show_set_real(&row, "median_regret", found.regret.median);
    gd_show_set_real(&row, "p90_regret", found.regret.p90);
    gd_show_set_object(&object, unseen[i], &row);
  }
  gd_show_set_object(to, "choices", &object);
}

static void add_feasible(struct gd_show_object *to, const struct gd_accuracy *a) {
  struct gd_show_object object;
  int right = 0, cells = 0;
  gd_show_begin(&object);
  for (int t = 0; t < 2; t++) {
    int of;
    right += gd_accuracy_feasible(a, t ? GD_PAPER_NAIVE : GD_PAPER_OPTIMAL, &of);
    cells += of;
  }
  gd_show_set_int(&object, "cells", cells);
  gd_show_set_int(&object, "right", right);
  gd_show_set_object(to, "feasibility", &object);
}

static enum gd_status show_json(struct gd_cli *cli, const struct gd_accuracy *a,
                                struct gd_error *err) {
  struct gd_show_object root, paper, megatron, rows = trials_of(a);
  struct gd_accuracy_score trials = gd_accuracy_trials(a, NULL);
  gd_show_begin(&root);
  gd_show_set_object(&root, "trials", &rows);
  add_score(&root, "trials_error", &trials);
  rows = runs_of(a);
  gd_show_set_object(&root, "runs", &rows);
  struct gd_accuracy_score runs = gd_accuracy_runs(a);
  add_score(&root, "runs_error", &runs);
  gd_show_begin(&paper);
  add_folds(&paper, "gpu_left_out", a->gpus, a->n_gpus, &a->held_gpu);
  add_folds(&paper, "family_left_out", a->families, a->n_families, &a->held_family);
  add_folds(&paper, "model_left_out", a->models, a->n_models, &a->held_model);
  add_score(&paper, "apart_gpu_left_out", &a->apart_gpu);
  add_score(&paper, "apart_family_left_out", &a->apart_family);
  add_feasible(&paper, a);
  add_choices(&paper, a);
  add_parameters(&paper, &a->all.fit);
  rows = cells_of(a);
  gd_show_set_object(&paper, "cells", &rows);
  gd_show_set_object(&root, "paper", &paper);
  gd_show_published(&root, &a->published_errors);
  gd_show_begin(&megatron);
  add_score(&megatron, "memory", &a->megatron_memory);
  add_score(&megatron, "time", &a->megatron_time);
  gd_show_set_object(&root, "megatron", &megatron);
  return gd_show_json(&cli->out, &root, err);
}

/* --- the command ---------------------------------------------------------------------------- */

static enum gd_status add_trials(struct gd_cli *cli, struct gd_accuracy *a, struct gd_error *err) {
  struct gd_store *store = NULL;
  for (int i = 0; i < cli->n_arguments; i++)
    GD_TRY(gd_accuracy_add_file(a, cli->arguments[i], err));
  if (cli->n_arguments > 0)
    return GD_OK;
  enum gd_status status = gd_store_open(cli->options.store, &store, err);
  if (status == GD_OK)
    status = gd_accuracy_add_store(a, store, err);
  if (status == GD_OK)
    gd_store_note_left_out(store, &cli->notes);
  gd_store_close(store);
  return status;
}

static void say_written(struct gd_cli *cli, const struct gd_accuracy *a, const char *path) {
  char picture[GD_FILE_PATH];
  gd_strbuf_printf(&cli->out, "Wrote %s", path);
  if (gd_accuracy_picture_path(a, path, picture, sizeof picture))
    gd_strbuf_printf(&cli->out, " and the picture %s", picture);
  gd_strbuf_append(&cli->out, ".\n");
}

static enum gd_status show(struct gd_cli *cli, const struct gd_accuracy *a, struct gd_error *err) {
  const char *path = gd_cli_file(cli->options.output);
  if (path)
    GD_TRY(gd_accuracy_write_page(a, path, err));
  if (cli->options.output && !path)
    return gd_accuracy_page(a, &cli->out, err);
  if (cli->options.json)
    return show_json(cli, a, err);
  if (cli->options.csv) {
    struct gd_show_object rows = cells_of(a);
    return gd_show_csv(&cli->out, &rows, err);
  }
  GD_TRY(show_summary(cli, a, err));
  if (path)
    say_written(cli, a, path);
  else
    gd_strbuf_append(&cli->out, "\nEvery row, and a picture of predicted over published rates: "
                                "gpudays accuracy -o accuracy.md\n");
  return GD_OK;
}

/* --- rows of one's own ------------------------------------------------------------------------ */

/* Rates a second and GPU, with the digits that such figures deserve. */
static const char *rate_cell(struct gd_cli *cli, double rate) {
  char text[GD_SHOW_TEXT];
  return gd_show_cell(cli, "%s", gd_format_digits(text, sizeof text, rate, 4));
}

/* Rates of all GPUs together, or of another model, are off by far more than any row that a fit had
   not seen. */
static void note_far(struct gd_cli *cli, const struct gd_published_row *row, double predicted,
                     const struct gd_published_interval *widest) {
  char line[320];
  double off = row->per_gpu / predicted; /* predicted over published seconds */
  if (off <= widest->high && off >= widest->low)
    return;
  snprintf(line, sizeof line,
           "note: %s is off by more than any interval (x%.2f to x%.2f); see that per_gpu is the "
           "rate of one GPU, and that model, seq and count are what ran, before 'gpudays fit'",
           row->id, widest->low, widest->high);
  gd_show_paragraph(&cli->out, 0, line);
}

static enum gd_status show_added(struct gd_cli *cli, const struct gd_published *published,
                                 const struct gd_published_fit *fit, const char *path,
                                 struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"ROW", false, 0},      {"STACK", false, 0},    {"GPU", false, 0},
      {"COUNT", true, 1},     {"MODEL", false, 0},    {"MICRO-BATCH", true, 4},
      {"PUBLISHED", true, 3}, {"PREDICTED", true, 3}, {"TIME OFF BY", true, 0}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  struct gd_fitted fitted;
  GD_TRY(gd_fitted_load(&fitted, err));
  for (int i = 0; i < published->count; i++) {
    const struct gd_published_row *from = &published->rows[i];
    const char **row = gd_show_row(&rows);
    double found = gd_published_predict(published, from, fit, NULL);
    row[0] = from->id;
    row[1] = from->facts->name;
    row[2] = from->gpu_name;
    row[3] = gd_show_cell(cli, "%d", from->target.count);
    row[4] = from->model;
    row[5] = gd_show_cell(cli, "%lld", (long long)from->micro_batch);
    row[6] = rate_cell(cli, from->per_gpu);
    row[7] = rate_cell(cli, found);
    row[8] = gd_show_cell(cli, "%+.0f %%", 100 * (from->per_gpu / found - 1));
  }
  GD_TRY(gd_show_rows(&rows, 0, err));
  gd_strbuf_printf(&cli->out, "\n%d row%s kept in %s for 'gpudays fit'.\n", published->count,
                   published->count == 1 ? " is" : "s are", path);
  for (int i = 0; i < published->count; i++)
    note_far(cli, &published->rows[i],
             gd_published_predict(published, &published->rows[i], fit, NULL),
             &fitted.of[GD_KNOWN_NOTHING]);
  return GD_OK;
}

static enum gd_status show_added_objects(struct gd_cli *cli, const struct gd_published *published,
                                         const struct gd_published_fit *fit, const char *path,
                                         struct gd_error *err) {
  struct gd_show_object root, rows = {.object = json_array()};
  for (int i = 0; i < published->count; i++) {
    struct gd_show_object row;
    double found = gd_published_predict(published, &published->rows[i], fit, NULL);
    gd_show_published_row(&row, &published->rows[i]);
    gd_show_set_real(&row, "predicted", found);
    gd_show_set_real(&row, "error", published->rows[i].per_gpu / found - 1);
    gd_show_append(&rows, &row);
  }
  if (cli->options.csv)
    return gd_show_csv(&cli->out, &rows, err);
  gd_show_begin(&root);
  gd_show_set_text(&root, "kept", path);
  gd_show_set_object(&root, "rows", &rows);
  return gd_show_json(&cli->out, &root, err);
}

/* Checked, kept for `gpudays fit` and this command, compared. */
static enum gd_status add_file(struct gd_cli *cli, const struct gd_published *published,
                               struct gd_error *err) {
  char to[GD_FILE_PATH];
  struct gd_published_fit fit;
  GD_TRY(gd_published_kept_fit(published, &fit, err));
  GD_TRY(gd_published_keep(cli->arguments[1], to, sizeof to, err));
  return gd_cli_for_programs(cli) ? show_added_objects(cli, published, &fit, to, err)
                                  : show_added(cli, published, &fit, to, err);
}

static enum gd_status add_published(struct gd_cli *cli, struct gd_error *err) {
  struct gd_published published = {0};
  if (cli->options.template && cli->n_arguments == 1) {
    gd_published_template(&cli->out);
    return GD_OK;
  }
  if (cli->n_arguments != 2 || cli->options.template)
    return gd_fail(err, GD_BAD_INPUT,
                   "accuracy add takes one file of published rates (CSV), or --template, which "
                   "prints one");
  GD_TRY(gd_published_load_file(&published, cli->arguments[1], err));
  enum gd_status status = add_file(cli, &published, err);
  gd_published_deinit(&published);
  return status;
}

/* What cannot be written is said before seconds of fitting. A device or a pipe is not opened twice:
   its reader would see an end. */
static enum gd_status check_output(const char *path, struct gd_error *err) {
  struct stat facts;
  struct gd_file_out out;
  if (!path || (stat(path, &facts) == 0 && !S_ISREG(facts.st_mode) && !S_ISDIR(facts.st_mode)))
    return GD_OK;
  GD_TRY(gd_file_begin(&out, path, err));
  (void)!gd_file_end(&out, GD_MISMATCH, err); /* nothing takes its place */
  return GD_OK;
}

enum gd_status gd_cmd_accuracy(struct gd_cli *cli, struct gd_error *err) {
  struct gd_accuracy accuracy = {0};
  cli->verbatim = cli->options.template;
  if (cli->n_arguments > 0 && strcmp(cli->arguments[0], "add") == 0)
    return add_published(cli, err);
  if (cli->options.template)
    return gd_fail(err, GD_BAD_INPUT, "--template is for 'gpudays accuracy add --template'");
  GD_TRY(check_output(gd_cli_file(cli->options.output), err));
  enum gd_status status = gd_accuracy_make(&accuracy, err);
  if (status == GD_OK)
    status = add_trials(cli, &accuracy, err);
  if (status == GD_OK && (cli->options.output || cli->options.json))
    status = gd_accuracy_add_published(&accuracy, err);
  if (status == GD_OK && cli->options.calibration)
    status = gd_accuracy_keep_errors(&accuracy, cli->options.calibration, err);
  if (status == GD_OK)
    status = show(cli, &accuracy, err);
  gd_accuracy_deinit(&accuracy);
  return status;
}
