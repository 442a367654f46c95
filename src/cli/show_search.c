/*
 * The points of a search as a table, and as JSON; see show_search.h.
 */
#include "cli/show_search.h"

#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/show_trial.h"
#include "cli/summary.h"

/* --- for people ---------------------------------------------------------------------------- */

/* Of trials on one GPU, the one whose note is shown. */
static bool is_slowed_more(const struct gd_trial *a, const struct gd_trial *b) {
  if (a->gpu_throttled_share > b->gpu_throttled_share)
    return true;
  return !(a->gpu_throttled_share < b->gpu_throttled_share) &&
         strstr(a->gpu_clock_reasons, GD_REASON_SETTING) &&
         (!strstr(b->gpu_clock_reasons, GD_REASON_SETTING) || a->gpu_clock_mhz < b->gpu_clock_mhz);
}

static void set_row(struct gd_cli *cli, const char **row, const struct gd_point *point) {
  const struct gd_trial *trial = &point->trial;
  char text[2 * GD_SHOW_TEXT];
  struct gd_show_duration days;
  bool predicted = point->source == GD_SEARCH_PREDICTED;
  row[0] = trial->model;
  row[1] = trial->method;
  row += 1;
  if (trial->status != GD_TRIAL_OK) {
    row[1] = point->source == GD_SEARCH_PENDING ? "pending" : gd_trial_status_name(trial->status);
    return;
  }
  gd_show_duration(&days, trial->days, trial->days_low, trial->days_high);
  row[1] = gd_show_cell(cli, "%s", days.value);
  row[2] = gd_show_cell(cli, "%s%s", predicted ? "predicted: " : "", days.interval);
  row[3] = gd_show_seconds_cell(cli, trial->step_s);
  row[4] = gd_show_cell(cli, "%s", gd_show_throughput(text, sizeof text, point->model, trial));
  if (trial->peak_flops > 0)
    row[5] = gd_show_cell(cli, "%s %%", gd_format_digits(text, sizeof text, 100 * trial->mfu, 2));
  row[6] = gd_show_count_cell(cli, trial->micro_batch);
  row[7] = gd_precision_name(trial->precision);
  row[8] = gd_show_bytes_cell(cli, trial->peak_bytes);
  row[9] = gd_show_bytes_cell(cli, trial->host_bytes);
}

/* Whether this is the first point of its model. */
static bool is_first_of_model(const struct gd_search *search, int index) {
  for (int i = 0; i < index; i++)
    if (strcmp(search->points[i].argument, search->points[index].argument) == 0)
      return false;
  return true;
}

static bool is_one_model(const struct gd_search *search) {
  for (int i = 1; i < search->count; i++)
    if (strcmp(search->points[i].argument, search->points[0].argument) != 0)
      return false;
  return true;
}

/* The reason once for all points of the model that share it, at the first of them. */
static void append_failure(struct gd_strbuf *out, const struct gd_search *search, int index) {
  const struct gd_point *point = &search->points[index];
  struct gd_strbuf line = {0};
  int alike = 0, of = 0, shown = 0;
  for (int i = 0; i < search->count; i++) {
    const struct gd_point *other = &search->points[i];
    bool rival = strcmp(other->argument, point->argument) == 0;
    if (rival && i < index && gd_point_same_failure(point, other))
      return;
    of += rival;
    alike += rival && gd_point_same_failure(point, other);
  }
  gd_strbuf_printf(&line, "%s, ", point->trial.model);
  if (alike > 1)
    gd_strbuf_printf(&line, "%d of %d (", alike, of);
  for (int i = index; i < search->count; i++) {
    const struct gd_point *other = &search->points[i];
    if (strcmp(other->argument, point->argument) == 0 && gd_point_same_failure(point, other))
      gd_strbuf_printf(&line, "%s%s", shown++ ? ", " : "", other->trial.method);
  }
  gd_strbuf_printf(&line, "%s: %s", alike > 1 ? ")" : "", point->trial.reason);
  if (point->trial.tries > 1)
    gd_strbuf_printf(&line, " (tried %d times)", point->trial.tries);
  gd_show_buffer(out, 2, &line);
}

/* How many points have no answer, and what the same command would do about it. */
static void append_failed_count(struct gd_strbuf *out, const struct gd_search *search) {
  int plan = search->n_failed[GD_FAILURE_PLAN], crash = search->n_failed[GD_FAILURE_CRASH];
  int other = search->n_failed[GD_FAILURE_ENVIRONMENT] + search->n_failed[GD_FAILURE_NONE];
  if (other > 0)
    gd_strbuf_printf(out,
                     "  note: %d of %d failed (environment, will be tried again by the same "
                     "command)\n",
                     other, search->count);
  if (plan > 0)
    gd_strbuf_printf(out, "  note: %d of %d failed (plan); --retry-failed tries %s again\n", plan,
                     search->count, plan == 1 ? "it" : "them");
  if (crash > 0)
    gd_strbuf_printf(out, "  note: %d of %d failed (crash); --retry-failed tries %s again\n", crash,
                     search->count, crash == 1 ? "it" : "them");
}

/* What a row has no room for. */
static void append_row_notes(struct gd_strbuf *out, const struct gd_search *search, int index) {
  const struct gd_point *point = &search->points[index];
  const struct gd_trial *trial = &point->trial;
  if (point->source == GD_SEARCH_PENDING)
    return;
  if (trial->status != GD_TRIAL_OK) {
    if (!gd_search_fails_alike(search)) /* else the error says it, with the count */
      append_failure(out, search, index);
  } else if (trial->precision_substituted && is_first_of_model(search, index)) {
    gd_strbuf_printf(out, "  %s: the recipe's %s runs as %s here\n", trial->model,
                     gd_precision_name(point->model->recipe.precision),
                     gd_precision_name(trial->precision));
  }
}

/* The winner among the methods on one model, and by how much the others were slower. */
static void append_winner(struct gd_cli *cli, const struct gd_search *search, int of) {
  struct gd_strbuf line = {0};
  char text[GD_SHOW_TEXT];
  int best = gd_search_best(search, of), rivals = 0;
  for (int i = 0; i < search->count; i++)
    rivals += strcmp(search->points[i].argument, search->points[of].argument) == 0;
  if (best < 0 || rivals < 2)
    return;
  const struct gd_trial *winner = &search->points[best].trial;
  gd_strbuf_printf(&cli->out, "  best for %s: ", winner->model);
  gd_show_bold(cli, winner->method);
  struct gd_show_duration days;
  gd_show_duration(&days, winner->days, winner->days_low, winner->days_high);
  gd_strbuf_printf(&cli->out, ", %s\n", days.value);
  rivals = 0;
  for (int i = 0; i < search->count; i++) {
    const struct gd_point *point = &search->points[i];
    if (i == best || strcmp(point->argument, search->points[of].argument) != 0)
      continue;
    if (point->trial.status != GD_TRIAL_OK || point->source != search->points[best].source)
      continue;
    /* Intervals that overlap do not tell who is faster. */
    bool close = point->trial.days_low <= winner->days_high;
    gd_strbuf_printf(&line, "%s %s %sx%s", rivals++ ? "," : "slower:", point->trial.method,
                     gd_format_digits(text, sizeof text, point->trial.days / winner->days, 3),
                     close ? " (within the intervals)" : "");
  }
  gd_show_buffer(&cli->out, 2, &line);
}

/* What --fast left out, and by how much its prediction is behind that of the best one. */
static void append_excluded(struct gd_strbuf *out, const struct gd_search *search) {
  struct gd_strbuf line = {0};
  char ratio[GD_SHOW_TEXT];
  if (search->n_predicted == 0 || search->simulate)
    return;
  gd_strbuf_printf(&line, "not measured, %d of %d, since predictions have them behind:",
                   search->n_predicted, search->count);
  for (int i = 0, shown = 0; i < search->count; i++) {
    const struct gd_point *point = &search->points[i];
    if (point->source != GD_SEARCH_PREDICTED)
      continue;
    gd_strbuf_printf(&line, "%s %s%s%s", shown++ ? "," : "",
                     is_one_model(search) ? "" : point->trial.model,
                     is_one_model(search) ? "" : " ", point->trial.method);
    int best = gd_search_best(search, i);
    double of = best < 0 ? 0 : search->points[best].prediction.step_s;
    if (of > 0)
      gd_strbuf_printf(&line, " %sx",
                       gd_format_digits(ratio, sizeof ratio, point->prediction.step_s / of, 3));
  }
  gd_show_buffer(out, 2, &line);
}

static void append_pending(struct gd_strbuf *out, const struct gd_search *search) {
  struct gd_strbuf line = {0};
  if (search->n_pending == 0)
    return;
  gd_strbuf_printf(&line, "pending, %d of %d:", search->n_pending, search->count);
  for (int i = 0, shown = 0; i < search->count; i++)
    if (search->points[i].source == GD_SEARCH_PENDING)
      gd_strbuf_printf(&line, "%s %s%s%s", shown++ ? "," : "",
                       is_one_model(search) ? "" : search->points[i].trial.model,
                       is_one_model(search) ? "" : " ", search->points[i].trial.method);
  gd_strbuf_append(&line, "; the time limit came first: the same command goes on with them");
  gd_show_buffer(out, 2, &line);
}

enum gd_status gd_search_table(struct gd_cli *cli, const struct gd_predicting *p,
                               const struct gd_search *search, struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"MODEL", false, 0}, {"METHOD", false, 0}, {"TIME", true, 0}, {"95 %", true, 2},
      {"STEP", true, 3},   {"SPEED", true, 4},   {"MFU", true, 1},  {"MICRO-BATCH", true, 1},
      {"PREC", false, 6},  {"MEMORY", true, 2},  {"HOST", true, 5},
  };
  int count = search->count;
  double busy_share = -1;
  bool disturbed = false;
  unsigned classes = 0;
  const struct gd_trial *held = NULL, *slowed = NULL;
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  for (int i = 0; i < count; i++)
    set_row(cli, gd_show_row(&rows), &search->points[i]);
  /* A trial that ended in an error may not have come as far as its device. */
  for (int i = 0; i < count; i++)
    if (search->points[i].trial.device[0]) {
      gd_show_trial_place(&cli->out, &search->points[i].trial);
      gd_strbuf_append(&cli->out, "\n");
      break;
    }
  GD_TRY(gd_show_rows(&rows, 2, err));
  for (int i = 0; i < count; i++)
    if (is_first_of_model(search, i))
      append_winner(cli, search, i);
  for (int i = 0; i < count; i++) {
    const struct gd_trial *trial = &search->points[i].trial;
    append_row_notes(&cli->out, search, i);
    if (search->points[i].prediction.known)
      classes |= 1u << search->points[i].prediction.of;
    disturbed = disturbed || gd_trial_is_disturbed(trial);
    if (trial->status == GD_TRIAL_OK && trial->busy_share > busy_share)
      busy_share = trial->busy_share;
    if (trial->status == GD_TRIAL_OK &&
        (!held || gd_summary_held_share(trial) > gd_summary_held_share(held)))
      held = trial;
    if (trial->status == GD_TRIAL_OK && (!slowed || is_slowed_more(trial, slowed)))
      slowed = trial;
  }
  gd_summary_load_note(&cli->out, "up to ", busy_share, disturbed);
  if (held)
    gd_summary_held_note(&cli->out, "up to ", held);
  if (slowed)
    gd_summary_clock_notes(&cli->out, "up to ", slowed);
  append_failed_count(&cli->out, search);
  append_pending(&cli->out, search);
  append_excluded(&cli->out, search);
  if (search->n_stored > 0)
    gd_strbuf_printf(&cli->out, "  note: %d of %d were measured before; --fresh measures anew\n",
                     search->n_stored, count);
  if (p->has_target)
    gd_show_nodes(cli, &p->target);
  if (search->n_predicted > 0)
    gd_show_basis(cli, p, classes);
  return GD_OK;
}

/* --- for programs -------------------------------------------------------------------------- */

static void set_point(struct gd_show_object *to, const struct gd_search *search,
                      const struct gd_point *point) {
  static const char *const sources[] = {[GD_SEARCH_PENDING] = "pending",
                                        [GD_SEARCH_PLAN] = "plan",
                                        [GD_SEARCH_STORE] = "store",
                                        [GD_SEARCH_RUN] = "run",
                                        [GD_SEARCH_PREDICTED] = "predicted"};
  gd_show_trial(to, &point->trial, true);
  if (search->trial.target)
    gd_show_target(to, search->trial.target);
  gd_show_set_text(to, "source", sources[point->source]);
  if (point->trial.failure != GD_FAILURE_NONE)
    gd_show_set_text(to, "failure", gd_trial_failure_name(point->trial.failure));
  else
    gd_show_set_null(to, "failure");
  gd_show_set_int(to, "tries", point->trial.tries);
  if (point->source == GD_SEARCH_PREDICTED)
    gd_show_set_text(to, "basis", search->predictor->basis);
  else
    gd_show_set_null(to, "basis");
}

static void set_best(struct gd_show_object *to, const char *key, const struct gd_search *search,
                     int of) {
  struct gd_show_object row;
  int best = gd_search_best(search, of);
  if (best < 0) {
    gd_show_set_null(to, key);
    return;
  }
  set_point(&row, search, &search->points[best]);
  gd_show_set_object(to, key, &row);
}

/* Days of different models are not compared: with several, each has a best trial of its own. */
static void set_best_by_model(struct gd_show_object *to, const struct gd_search *search) {
  for (int i = 0; i < search->count; i++) {
    char path[256];
    const struct gd_point *point = &search->points[i];
    const char *key = point->model->name;
    for (int k = 0; k < search->count; k++) /* two folders of one name are told by their paths */
      if (strcmp(search->points[k].model->name, point->model->name) == 0 &&
          strcmp(search->points[k].argument, point->argument) != 0)
        key = gd_json_excerpt(path, sizeof path, point->argument);
    set_best(to, key, search, i);
  }
}

enum gd_status gd_search_objects(struct gd_cli *cli, const struct gd_search *search,
                                 struct gd_error *err) {
  struct gd_show_object root, by_model, row, rows = {.object = json_array()};
  for (int i = 0; i < search->count; i++) {
    set_point(&row, search, &search->points[i]);
    gd_show_append(&rows, &row);
  }
  if (cli->options.csv)
    return gd_show_csv(&cli->out, &rows, err);
  gd_show_begin(&root);
  gd_show_set_object(&root, "trials", &rows);
  if (is_one_model(search)) {
    set_best(&root, "best", search, 0);
  } else {
    gd_show_begin(&by_model);
    set_best_by_model(&by_model, search);
    gd_show_set_null(&root, "best");
    gd_show_set_object(&root, "best_by_model", &by_model);
  }
  return gd_show_json(&cli->out, &root, err);
}
