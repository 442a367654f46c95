/*
 * Predictions of what was measured: the trials of the store, each predicted without those of its
 * model, and how far off that is.
 */
#include <string.h>

#include "report/accuracy.h"
#include "report/report_int.h"

struct collecting {
  struct gd_report *report;
  struct gd_report_comparing *to;
  struct gd_accuracy accuracy;
  bool *wanted; /* of the report's trials */
};

/* The place of that trial of the store, where it is still wanted; -1: it is not. */
static int find_wanted(const struct collecting *from, const struct gd_trial *trial) {
  const struct gd_report_measured *measured = &from->report->measured;
  for (int i = 0; i < measured->n_trials; i++) {
    const struct gd_report_trial *at = &measured->trials[i];
    if (from->wanted[i] && trial->status == GD_TRIAL_OK && !(at->days < trial->days) &&
        !(at->days > trial->days) && at->ranks == (trial->ranks > 0 ? trial->ranks : 1) &&
        strcmp(at->model, trial->model) == 0 && strcmp(at->method_name, trial->method) == 0 &&
        strcmp(at->device, trial->device) == 0)
      return i;
  }
  return -1;
}

static enum gd_status collect(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct collecting *from = user;
  struct gd_accuracy *accuracy = &from->accuracy;
  int at = find_wanted(from, &row->trial);
  if (at < 0)
    return GD_OK;
  from->wanted[at] = false;
  GD_TRY(gd_accuracy_add_trial(accuracy, "", &row->trial, err));
  const struct gd_accuracy_trial *found = &accuracy->trials[accuracy->n_trials - 1];
  if (found->predicted_s > 0 && found->measured_s > 0)
    from->to->all[from->to->count++] =
        (struct gd_report_compared){&from->report->measured.trials[at], found->measured_s,
                                    found->predicted_s, found->low_s, found->high_s};
  return GD_OK;
}

/* Which trials: the best, naive and free-lunch ones of every group, then others. */
static void choose_wanted(struct collecting *from) {
  enum { MOST = 48 }; /* a prediction takes some 20 ms */
  const struct gd_report_measured *measured = &from->report->measured;
  int count = 0;
  for (int g = 0; g < measured->n_groups; g++) {
    const struct gd_report_group *group = &measured->groups[g];
    const struct gd_report_trial *const first[] = {group->best, group->naive, group->free_lunch};
    for (int i = 0; i < 3; i++)
      if (first[i] && first[i]->status == GD_TRIAL_OK && count < MOST) {
        bool *wanted = &from->wanted[first[i] - measured->trials];
        count += !*wanted;
        *wanted = true;
      }
  }
  for (int i = 0; i < measured->n_trials && count < MOST; i++)
    if (!from->wanted[i] && measured->trials[i].status == GD_TRIAL_OK) {
      from->wanted[i] = true;
      count++;
    }
}

/* The catalogue is only part of a struct gd_accuracy that was made whole; here it is all. */
static enum gd_status predict_wanted(struct collecting *from, struct gd_error *err) {
  GD_TRY(gd_hw_load(&from->accuracy.stack.hw, err));
  return gd_store_query(from->report->order->store,
                        &(struct gd_store_filter){.brief = true, .sort = GD_STORE_SORT_MODEL},
                        collect, from, err);
}

static void set_score(struct gd_report_comparing *to, double *errors) {
  for (int i = 0; i < to->count; i++)
    errors[i] = fabs(to->all[i].predicted_s / to->all[i].measured_s - 1);
  if (to->count == 0)
    return;
  struct gd_accuracy_score score = gd_accuracy_score(errors, to->count);
  to->median = score.median;
  to->worst = score.worst;
}

enum gd_status gd_report_compare(struct gd_report *report, struct gd_report_comparing *to,
                                 struct gd_error *err) {
  size_t most = (size_t)report->measured.n_trials + 1;
  struct collecting from = {.report = report, .to = to};
  *to = (struct gd_report_comparing){0};
  from.wanted = gd_arena_alloc(&report->arena, most, sizeof *from.wanted);
  to->all = gd_arena_alloc(&report->arena, most, sizeof *to->all);
  double *errors = gd_report_numbers(report, (int)most);
  if (!from.wanted || !to->all || !errors)
    return gd_report_no_memory(err);
  if (report->order->no_predictions)
    return GD_OK;
  choose_wanted(&from);
  enum gd_status status = predict_wanted(&from, err);
  gd_accuracy_deinit(&from.accuracy);
  set_score(to, errors);
  return status;
}

const struct gd_report_compared *gd_report_compared_of(const struct gd_report_comparing *from,
                                                       const struct gd_report_trial *trial) {
  for (int i = 0; i < from->count; i++)
    if (from->all[i].trial == trial)
      return &from->all[i];
  return NULL;
}

/* --- the figure ---------------------------------------------------------------------------- */

/* Errors of one site's trials by the time of their step. */
static enum gd_status site_series(struct gd_report *report,
                                  const struct gd_report_comparing *comparing,
                                  const struct gd_report_site *site, struct gd_plot_series *series,
                                  struct gd_error *err) {
  double *x = gd_report_numbers(report, comparing->count);
  double *y = gd_report_numbers(report, comparing->count);
  double *low = gd_report_numbers(report, comparing->count);
  double *high = gd_report_numbers(report, comparing->count);
  if (!x || !y || !low || !high)
    return gd_report_no_memory(err);
  *series = (struct gd_plot_series){.name = site->label, .x = x, .y = y, .low = low, .high = high};
  for (int i = 0; i < comparing->count; i++) {
    const struct gd_report_compared *at = &comparing->all[i];
    if (!gd_report_is_at(at->trial, site))
      continue;
    int n = series->count++;
    x[n] = at->measured_s;
    y[n] = 100 * (at->predicted_s / at->measured_s - 1);
    low[n] = 100 * (at->low_s / at->measured_s - 1);
    high[n] = 100 * (at->high_s / at->measured_s - 1);
  }
  return GD_OK;
}

enum gd_status gd_report_items_compared(struct gd_report *report,
                                        const struct gd_report_comparing *comparing,
                                        struct gd_error *err) {
  enum { MOST_SITES = 8 };
  const struct gd_report_measured *measured = &report->measured;
  struct gd_plot_series series[MOST_SITES] = {0};
  int n_series = 0;
  if (comparing->count == 0)
    return GD_OK;
  for (int i = 0; i < measured->n_sites && n_series < MOST_SITES; i++) {
    GD_TRY(site_series(report, comparing, &measured->sites[i], &series[n_series], err));
    n_series += series[n_series].count > 0;
  }
  gd_report_begin(report, "prediction", NULL, "Prediction against measurement");
  struct gd_plot plot = {
      .kind = GD_PLOT_SCATTER,
      .title = gd_report_print(report,
                               "Predictions of %d trial%s are off by %.1f %% in the median, %.0f "
                               "%% at worst",
                               comparing->count, comparing->count == 1 ? "" : "s",
                               100 * comparing->median, 100 * comparing->worst),
      .x_label = "measured step, s, logarithmic",
      .y_label = "% longer predicted than measured",
      .series = series,
      .n_series = n_series,
      .log_x = true};
  GD_TRY(gd_report_add_plot(
      report,
      &(struct gd_report_block){"prediction-errors",
                                "Each trial is predicted again without the trials of its model. At "
                                "0 it takes as long as predicted; the lines are intervals of 90 %. "
                                "Where a line does not reach 0, the measurement is outside of it.",
                                GD_REPORT_MEASURED, gd_report_measured_from(report)},
      &plot, err));
  gd_report_end(report);
  return GD_OK;
}
