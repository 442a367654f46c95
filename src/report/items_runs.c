/*
 * Runs of `gpudays train`: a table of them, the losses of those that changed last together, and the
 * curves of each: loss and evaluation, throughput, learning rate, skipped updates, and the step
 * time against what the run was expected. Read from their folders; nothing of it is in the store.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compare.h"
#include "report/report_int.h"
#include "train/run_view.h"

enum {
  POINTS = 300, /* of a curve: what shares one is shown by its mean, of step times the median */
  ON_PAGE = 8,  /* runs whose curves are on the page: those that changed last; of others the table
                   links to a file */
};

struct run {
  const char *folder, *name;
  struct gd_run_view view;
  /* curves, in the arena; by place, `count` of them */
  int count;
  double *step, *loss, *rate, *lr, *skipped, *drift;
  double *eval_step, *eval;
  int n_evals;
  bool on_page;
};

/* --- curves --------------------------------------------------------------------------------- */

/* Mean of what is finite; NaN: nothing is. */
struct mean {
  double sum;
  int count;
};
static void add_value(struct mean *mean, double value) {
  if (isfinite(value)) {
    mean->sum += value;
    mean->count++;
  }
}
static double value_of(const struct mean *mean) {
  return mean->count > 0 ? mean->sum / mean->count : (double)NAN;
}

/* One place of the curves: the points from `first` up to `end`. */
static void fill_place(struct run *run, int place, uint32_t first, uint32_t end, double *seconds,
                       int64_t *skipped) {
  const struct gd_run_point *points = run->view.log.points;
  struct mean loss = {0}, rate = {0};
  int count = 0;
  for (uint32_t i = first; i < end; i++) {
    add_value(&loss, points[i].loss);
    add_value(&rate, points[i].tokens_per_s);
    *skipped += points[i].skipped;
    if (points[i].step_s > 0)
      seconds[count++] = points[i].step_s;
  }
  qsort(seconds, (size_t)count, sizeof *seconds, gd_compare_doubles);
  run->step[place] = (double)points[end - 1].step;
  run->loss[place] = value_of(&loss);
  run->rate[place] = value_of(&rate);
  run->lr[place] = points[end - 1].lr;
  run->skipped[place] = (double)*skipped;
  if (count > 0 && run->view.session.expected_step_s > 0)
    run->drift[place] = 100 * (seconds[count / 2] / run->view.session.expected_step_s - 1);
}

static enum gd_status make_curves(struct gd_report *report, struct run *run, struct gd_error *err) {
  const struct gd_run_log *log = &run->view.log;
  int count = log->n_points < POINTS ? (int)log->n_points : POINTS;
  double **const curves[] = {&run->step, &run->loss,    &run->rate,
                             &run->lr,   &run->skipped, &run->drift};
  int64_t skipped = 0;
  double *seconds = gd_report_numbers(report, (int)(log->n_points / POINTS) + 2);
  for (size_t i = 0; i < sizeof curves / sizeof *curves; i++)
    if (!(*curves[i] = gd_report_numbers(report, count + 1)))
      return gd_report_no_memory(err);
  run->n_evals = (int)log->n_evals;
  run->eval_step = gd_report_numbers(report, run->n_evals + 1);
  run->eval = gd_report_numbers(report, run->n_evals + 1);
  if (!seconds || !run->eval_step || !run->eval)
    return gd_report_no_memory(err);
  for (int i = 0; i < count; i++)
    fill_place(run, i, (uint32_t)((int64_t)log->n_points * i / count),
               (uint32_t)((int64_t)log->n_points * (i + 1) / count), seconds, &skipped);
  for (int i = 0; i < run->n_evals; i++) {
    run->eval_step[i] = (double)log->evals[i].step;
    run->eval[i] = log->evals[i].loss;
  }
  run->count = count;
  return GD_OK;
}

/* --- the table ------------------------------------------------------------------------------ */

static const struct gd_report_column columns[] = {
    {"Run", NULL, false},
    {"Model", NULL, false},
    {"Method", NULL, false},
    {"Device", NULL, false},
    {"State", NULL, false},
    {"Steps", "Training", true},
    {"of", "Training", true},
    {"Loss", "Training", true},
    {"Evaluation", NULL, true},
    {"Skipped", NULL, true},
    {"Tokens (images)/s", NULL, true},
    {"Now", "Step, ms", true},
    {"Expected", "Step, ms", true},
    {"Longer, %", "Step, ms", true},
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void add_row(struct gd_report *report, const struct run *run, int number,
                    struct gd_report_table *table) {
  const struct gd_run_view *view = &run->view;
  const struct gd_run_session *session = &view->session;
  struct gd_report_cell *row = gd_report_table_row(table);
  row[0].text = run->name;
  if (run->count > 1)
    row[0].href = run->on_page    ? gd_report_print(report, "#run-%d", number)
                  : report->draws ? gd_report_print(report, "run-%d.svg", number)
                                  : gd_report_print(report, "run-%d.csv", number);
  row[1].text = gd_report_model_title(report, view->model);
  row[2].text = gd_report_print(report, "%s", session->method);
  row[3].text = gd_report_print(report, session->ranks > 1 ? "%s x %lld" : "%s", session->device,
                                (long long)session->ranks);
  row[4].text = gd_run_state_name(view->state);
  gd_report_set_count(report, &row[5], view->step);
  gd_report_set_count(report, &row[6], view->steps);
  gd_report_set_digits(report, &row[7], view->loss);
  gd_report_set_digits(report, &row[8], view->eval_loss);
  gd_report_set_count(report, &row[9], view->skipped);
  if (view->step_s <= 0)
    return;
  gd_report_set_count(report, &row[10], (int64_t)view->tokens_per_s);
  gd_report_set_digits(report, &row[11], 1000 * view->step_s);
  if (session->expected_step_s <= 0)
    return;
  gd_report_set_digits(report, &row[12], 1000 * session->expected_step_s);
  gd_report_set_digits(report, &row[13], 100 * (view->step_s / session->expected_step_s - 1));
}

/* --- figures -------------------------------------------------------------------------------- */

#define FROM "log.jsonl of the run"
enum { PANELS = 5, WIDTH = 900 };

static struct gd_plot_panel one_line(struct gd_report *report, const struct run *run,
                                     const char *title, const double *y) {
  struct gd_plot_series *series = gd_report_series(report, 1);
  if (series)
    *series = (struct gd_plot_series){.name = title, .x = run->step, .y = y, .count = run->count};
  return (struct gd_plot_panel){title, NULL, series, series ? 1 : 0};
}

static struct gd_plot_panel losses(struct gd_report *report, const struct run *run) {
  struct gd_plot_series *series = gd_report_series(report, 2);
  if (!series)
    return (struct gd_plot_panel){0};
  series[0] = (struct gd_plot_series){
      .name = "training", .x = run->step, .y = run->loss, .count = run->count};
  series[1] = (struct gd_plot_series){
      .name = "evaluation", .x = run->eval_step, .y = run->eval, .count = run->n_evals};
  return (struct gd_plot_panel){"Loss", NULL, series, run->n_evals > 0 ? 2 : 1};
}

/* "runs/a: loss 2.31 after 4,000 of 4,000 steps". */
static const char *run_title(struct gd_report *report, const struct run *run) {
  char step[48], steps[48], loss[48];
  const struct gd_run_view *view = &run->view;
  gd_format_count(step, sizeof step, view->step);
  gd_format_count(steps, sizeof steps, view->steps);
  return gd_report_print(report, "%s: loss %s after %s of %s steps", run->name,
                         isfinite(view->loss) ? gd_format_digits(loss, sizeof loss, view->loss, 4)
                                              : "not finite",
                         step, steps);
}

static enum gd_status run_curves(struct gd_report *report, const struct run *run, int number,
                                 struct gd_error *err) {
  const struct gd_run_view *view = &run->view;
  struct gd_plot_panel panels[PANELS];
  int count = 0;
  const char *name = gd_report_print(report, "run-%d", number);
  panels[count++] = losses(report, run);
  panels[count++] = one_line(
      report, run, view->log.images ? "Throughput (images/s)" : "Throughput (tokens/s)", run->rate);
  panels[count++] = one_line(report, run, "Learning rate", run->lr);
  if (view->session.expected_step_s > 0)
    panels[count++] = one_line(report, run, "Step time (% longer than expected)", run->drift);
  if (view->skipped > 0) /* their loss was not finite, or spiked */
    panels[count++] = one_line(report, run, "Skipped updates so far", run->skipped);
  struct gd_plot plot = {.kind = GD_PLOT_LINES,
                         .title = run_title(report, run),
                         .x_label = "step",
                         .width = WIDTH,
                         .panels = panels,
                         .n_panels = count};
  if (!run->on_page)
    return gd_report_write_plot(report, name, &plot, err);
  gd_report_begin(report, name, gd_report_print(report, "Run %d", number), run->name);
  GD_TRY(gd_report_add_plot(
      report,
      &(struct gd_report_block){
          gd_report_print(report, "%s-curves", name),
          view->session.expected_step_s > 0
              ? gd_report_print(report, "It was started on the %s of a step of %.4g ms.",
                                view->session.expected_by, 1000 * view->session.expected_step_s)
              : "Loss of training is before the update.",
          GD_REPORT_MEASURED, FROM},
      &plot, err));
  gd_report_end(report);
  return GD_OK;
}

/* Those that are on the page, together. */
static enum gd_status losses_together(struct gd_report *report, const struct run *runs, int count,
                                      struct gd_error *err) {
  struct gd_plot_series series[ON_PAGE];
  const struct run *best = NULL;
  int shown = 0;
  for (int i = 0; i < count; i++)
    if (runs[i].on_page && runs[i].count > 1) {
      series[shown++] = (struct gd_plot_series){
          .name = runs[i].name, .x = runs[i].step, .y = runs[i].loss, .count = runs[i].count};
      if (isfinite(runs[i].view.loss) && (!best || runs[i].view.loss < best->view.loss))
        best = &runs[i];
    }
  if (shown < 2)
    return GD_OK;
  struct gd_plot plot = {.kind = GD_PLOT_LINES,
                         .title = best ? gd_report_print(report, "%s has the lowest loss, %.4g",
                                                         best->name, best->view.loss)
                                       : "Losses of runs",
                         .x_label = "step",
                         .y_label = "loss",
                         .series = series,
                         .n_series = shown};
  return gd_report_add_plot(
      report,
      &(struct gd_report_block){"runs-loss",
                                shown < count
                                    ? gd_report_print(report,
                                                      "Losses of the %d of %d runs that changed "
                                                      "last.",
                                                      shown, count)
                                    : "Losses of all runs.",
                                GD_REPORT_MEASURED, FROM},
      &plot, err);
}

/* Whether fewer than ON_PAGE runs changed later; of those that changed together, the first. */
static bool is_among_newest(const struct run *runs, int count, int which) {
  int later = 0;
  for (int i = 0; i < count; i++)
    later += runs[i].view.changed_s > runs[which].view.changed_s ||
             (runs[i].view.changed_s == runs[which].view.changed_s && i < which);
  return later < ON_PAGE;
}

/* --- all of it ------------------------------------------------------------------------------ */

static enum gd_status note_models(struct gd_report *report, const struct run *runs, int count,
                                  struct gd_error *err) {
  report->run_models = gd_report_texts(report, count);
  if (!report->run_models)
    return gd_report_no_memory(err);
  for (int i = 0; i < count; i++) {
    bool known = false;
    for (int k = 0; k < report->n_run_models; k++)
      known = known || strcmp(report->run_models[k], runs[i].view.model) == 0;
    if (!known)
      report->run_models[report->n_run_models++] =
          gd_report_print(report, "%s", runs[i].view.model);
  }
  return GD_OK;
}

static enum gd_status make_items(struct gd_report *report, struct run *runs, int count,
                                 struct gd_error *err) {
  struct gd_report_table *table = gd_report_table_new(&report->arena, columns, COLUMNS, count);
  if (!table)
    return gd_report_no_memory(err);
  GD_TRY(note_models(report, runs, count, err));
  gd_report_begin(report, "runs", NULL, "Runs of train");
  for (int i = 0; i < count; i++) {
    runs[i].on_page = is_among_newest(runs, count, i);
    add_row(report, &runs[i], i + 1, table);
  }
  GD_TRY(gd_report_add_table(
      report,
      &(struct gd_report_block){"runs-table",
                                "What was trained. A name leads to the run's curves. A step is the "
                                "median of the last 32; what was expected is the trial or the "
                                "prediction it was started on.",
                                GD_REPORT_MEASURED, "folders of the runs"},
      table, err));
  GD_TRY(losses_together(report, runs, count, err));
  if (count > ON_PAGE)
    gd_report_text(report, gd_report_print(report,
                                           "The curves of the %d runs that changed last follow; "
                                           "those of the other %d are files, which the table "
                                           "links to.",
                                           (int)ON_PAGE, count - ON_PAGE));
  gd_report_end(report);
  for (int i = 0; i < count; i++)
    if (runs[i].count > 1)
      GD_TRY(run_curves(report, &runs[i], i + 1, err));
  return GD_OK;
}

/* A run that cannot be read is said on the page, and the others are there. */
enum gd_status gd_report_items_runs(struct gd_report *report, struct gd_error *err) {
  int asked = report->order->n_runs, count = 0;
  struct run *runs = gd_arena_alloc(&report->arena, (size_t)asked + 1, sizeof *runs);
  enum gd_status status = GD_OK;
  if (!runs)
    return gd_report_no_memory(err);
  for (int i = 0; i < asked && status == GD_OK; i++) {
    struct run *run = &runs[count];
    struct gd_error why = {0};
    const char *slash = strrchr(report->order->runs[i], '/');
    *run = (struct run){.folder = report->order->runs[i]};
    run->name = slash && slash[1] ? slash + 1 : run->folder;
    if (gd_run_view_read(&run->view, run->folder, &why) == GD_OK) {
      status = make_curves(report, run, err);
      count++;
    } else {
      gd_run_view_deinit(&run->view);
      gd_report_text(
          report, gd_report_print(report, "The run %s was left out: %s.", run->folder, why.text));
      if (!report->made->note[0])
        snprintf(report->made->note, sizeof report->made->note, "%.200s was left out: %.250s",
                 run->folder, why.text);
    }
  }
  if (status == GD_OK && count > 0)
    status = make_items(report, runs, count, err);
  for (int i = 0; i < count; i++)
    gd_run_view_deinit(&runs[i].view);
  report->made->runs = count;
  return status;
}
