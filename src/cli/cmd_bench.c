/*
 * `gpudays bench MODEL...`: training measured here, by a search over models and methods. One trial
 * is answered by a few lines that begin with the answer, several by a table, the winner, and why
 * the others lost.
 */
#define _GNU_SOURCE /* sched_getaffinity */
#include <math.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cache.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/mpirun.h"
#include "cli/predicting.h"
#include "cli/progress.h"
#include "cli/show_trial.h"
#include "comm/comm.h"
#include "search/agree.h"
#include "search/load.h"
#include "search/search.h"

/* --- one trial for people ------------------------------------------------------------------ */

static void append_answer(struct gd_cli *cli, const struct gd_search_point *point) {
  const struct gd_trial *trial = &point->trial;
  struct gd_strbuf *out = &cli->out;
  struct gd_show_duration days;
  char a[GD_SHOW_TEXT], b[3 * GD_SHOW_TEXT], c[GD_SHOW_TEXT];
  gd_show_duration(&days, trial->days * 86400, trial->days_low * 86400, trial->days_high * 86400);
  gd_strbuf_append(out, "  ");
  gd_show_bold(cli, days.value);
  gd_strbuf_printf(out, "  (%s: %s)\n", point->source == GD_SEARCH_PREDICTED ? "predicted" : "95 %",
                   days.interval);
  gd_strbuf_printf(out, "  %s step%s of %s, %s each:\n",
                   gd_format_count(a, sizeof a, point->model->recipe.steps),
                   point->model->recipe.steps == 1 ? "" : "s",
                   gd_show_step_size(b, sizeof b, point->model),
                   gd_show_seconds(c, sizeof c, trial->step_s));
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

static bool on_gpu(const struct gd_trial *trial) {
  return strcmp(trial->backend, "cuda") == 0;
}

static void append_memory(struct gd_strbuf *out, const struct gd_trial *trial) {
  struct gd_strbuf line = {0};
  char size[GD_SHOW_TEXT], more[GD_SHOW_TEXT];
  gd_strbuf_printf(&line, "memory %s:", gd_format_bytes(size, sizeof size, trial->peak_bytes));
  for (int i = 0; i < GD_CATEGORY_DEVICE_COUNT; i++)
    gd_strbuf_printf(&line, " %s %s%s", gd_category_name((enum gd_category)i),
                     gd_format_bytes(size, sizeof size, trial->bytes[i]),
                     i + 1 < GD_CATEGORY_DEVICE_COUNT ? "," : ";");
  gd_strbuf_printf(&line, " host %s", gd_format_bytes(size, sizeof size, trial->host_bytes));
  if (trial->resident_bytes >= 0 && !on_gpu(trial))
    gd_strbuf_printf(&line, "; resident set grew by %s",
                     gd_format_bytes(size, sizeof size, trial->resident_bytes));
  if (trial->resident_bytes >= 0 && on_gpu(trial))
    gd_strbuf_printf(&line, "; the driver counts %s",
                     gd_format_bytes(size, sizeof size, trial->resident_bytes));
  if (trial->resident_bytes >= 0 && trial->runtime_bytes >= 0 && on_gpu(trial))
    gd_strbuf_printf(&line, ", and %s of runtime beside it",
                     gd_format_bytes(more, sizeof more, trial->runtime_bytes));
  if (line.text && !line.failed)
    gd_show_paragraph(out, 2, line.text);
  gd_strbuf_deinit(&line);
}

static void append_speed(struct gd_strbuf *out, const struct gd_search_point *point) {
  const struct gd_trial *trial = &point->trial;
  enum gd_peak peak = gd_show_peak_of(trial);
  struct gd_strbuf line = {0};
  char rate[2 * GD_SHOW_TEXT];
  gd_strbuf_append(&line, gd_show_throughput(rate, sizeof rate, point->model, trial));
  if (trial->peak_flops > 0) {
    gd_strbuf_printf(&line, ", MFU %s %%", gd_show_digits(rate, sizeof rate, 100 * trial->mfu, 2));
    /* Executed FLOPs are worth a word where they differ from the model's. */
    if (fabs(trial->hfu - trial->mfu) >= 0.005)
      gd_strbuf_printf(&line, ", HFU %s %%%s",
                       gd_show_digits(rate, sizeof rate, 100 * trial->hfu, 2),
                       trial->hfu < trial->mfu
                           ? " (less: fused kernels skip masked scores and rows without a label)"
                           : "");
    gd_strbuf_printf(
        &line, " of %s %s (%s peak)", gd_show_rate(rate, sizeof rate, trial->peak_flops),
        gd_show_trial_peak(trial),
        gd_show_peak_source(trial->backend, trial->device, peak,
                            trial->peak_flops / (trial->devices ? trial->devices : trial->ranks)));
  }
  gd_strbuf_printf(&line, "; loss %.4g, gradient norm %.3g: plausible", trial->loss, trial->norm);
  if (line.text && !line.failed)
    gd_show_paragraph(out, 2, line.text);
  gd_strbuf_deinit(&line);
}

/* Says that others were computing, when they were; the interval does not show it. */
static void append_load_note(struct gd_strbuf *out, const char *up_to, double busy_share) {
  char note[256];
  if (busy_share <= GD_LOAD_QUIET)
    return;
  snprintf(note, sizeof note,
           "note: other programs used %s%.0f %% of the CPUs while this was measured, so that the "
           "time may be too long by that much, or many times where threads wait for each other: "
           "measure again on a quiet machine",
           up_to, 100 * busy_share);
  gd_show_paragraph(out, 2, note);
}

/* Held back by what is about the process, not about the GPU. */
static double held_process(const struct gd_trial *trial) {
  return fmax(trial->throttled_share, fmax(trial->stalled_share, trial->steal_share));
}

/* Says that the process was held back, and by what. */
static void append_held_note(struct gd_strbuf *out, const char *up_to,
                             const struct gd_trial *trial) {
  char note[320];
  double held = held_process(trial);
  if (held <= GD_LOAD_QUIET)
    return;
  if (trial->throttled_share > GD_LOAD_QUIET)
    snprintf(note, sizeof note,
             "note: a CPU quota (cgroup) denied %s%.0f %% of the CPU time that was asked for, so "
             "that the time is that of the quota; the interval reaches down to the time without",
             up_to, 100 * trial->throttled_share);
  else
    snprintf(note, sizeof note,
             "note: the process did not run for %s%.0f %% of the time (%s), so that the time is "
             "too long; the interval reaches down by that much: measure again when it is left "
             "alone",
             up_to, 100 * held,
             held <= trial->steal_share ? "steal: the host of this virtual machine was busy"
                                        : "stopped by a signal, frozen or suspended");
  gd_show_paragraph(out, 2, note);
}

/* ", to 900 of 1980 MHz", where that is known. */
static void append_clock(struct gd_strbuf *out, const char *before, int mhz, int max_mhz) {
  if (mhz > 0 && max_mhz > 0)
    gd_strbuf_printf(out, "%s%d of %d MHz", before, mhz, max_mhz);
}

/* Says that the GPU was slower than it can be, and why; the limit of its power is its usual state
   under load, and of interest only where somebody looks into the time. */
static void append_clock_notes(struct gd_strbuf *out, const char *up_to,
                               const struct gd_trial *trial) {
  const char *reasons = trial->gpu_clock_reasons;
  struct gd_strbuf note = {0};
  if (trial->gpu_throttled_share > GD_LOAD_QUIET) {
    gd_strbuf_printf(&note, "note: the GPU was slowed down by %s for %s%.0f %% of the time",
                     strstr(reasons, GD_REASON_THERMAL)       ? "heat"
                     : strstr(reasons, GD_REASON_POWER_BRAKE) ? "the brake of its power supply"
                                                              : "its hardware (heat or power)",
                     up_to, 100 * trial->gpu_throttled_share);
    append_clock(&note, ", to ", trial->gpu_low_clock_mhz, trial->gpu_max_clock_mhz);
    gd_strbuf_append(&note, ": the time is too long, and the interval reaches down by what the "
                            "clock may have lost; measure again when the cause is gone");
  } else if (strstr(reasons, GD_REASON_SETTING) &&
             trial->gpu_clock_mhz < (1 - GD_LOAD_QUIET) * trial->gpu_max_clock_mhz) {
    gd_strbuf_append(&note, "note: a setting holds the GPU's clock down");
    append_clock(&note, ", at ", trial->gpu_clock_mhz, trial->gpu_max_clock_mhz);
    gd_strbuf_append(&note, " (application or locked clocks; nvidia-smi -rac and -rgc reset "
                            "them): the time is that of the setting");
  } else if (trial->n_profile > 0 && trial->gpu_power_capped_share > GD_LOAD_QUIET) {
    gd_strbuf_printf(&note,
                     "note: the GPU's power limit (%.0f W) lowered its clock for %.0f %% of "
                     "the time",
                     trial->gpu_power_limit_w, 100 * trial->gpu_power_capped_share);
    append_clock(&note, ", median ", trial->gpu_clock_mhz, trial->gpu_max_clock_mhz);
    gd_strbuf_append(&note, ", as is usual under load");
  }
  if (note.text && !note.failed)
    gd_show_paragraph(out, 2, note.text);
  gd_strbuf_deinit(&note);
}

/* Of trials on one GPU, the one whose note is shown. */
static bool is_slowed_more(const struct gd_trial *a, const struct gd_trial *b) {
  if (a->gpu_throttled_share > b->gpu_throttled_share)
    return true;
  return !(a->gpu_throttled_share < b->gpu_throttled_share) &&
         strstr(a->gpu_clock_reasons, GD_REASON_SETTING) &&
         (!strstr(b->gpu_clock_reasons, GD_REASON_SETTING) || a->gpu_clock_mhz < b->gpu_clock_mhz);
}

/* Says that nothing ran, and how to make it. */
static void append_store_note(struct gd_strbuf *out, const struct gd_search_point *point) {
  bool failed = point->trial.status == GD_TRIAL_FAILED;
  if (point->source == GD_SEARCH_STORE)
    gd_strbuf_printf(out, "  note: %s on %.10s at %.5s UTC; %s\n", failed ? "failed" : "measured",
                     point->stored_at, strlen(point->stored_at) > 11 ? point->stored_at + 11 : "",
                     failed ? "--retry-failed tries it again" : "--fresh measures anew");
}

static void append_sheet(struct gd_cli *cli, const struct gd_search_point *point) {
  const struct gd_trial *trial = &point->trial;
  struct gd_strbuf *out = &cli->out;
  gd_show_trial_title(out, trial);
  if (trial->status != GD_TRIAL_OK) {
    gd_strbuf_append(out, "  ");
    gd_show_bold(cli, gd_trial_status_name(trial->status));
    gd_strbuf_append(out, "\n");
    gd_show_paragraph(out, 2, trial->reason);
    append_store_note(out, point);
    return;
  }
  append_answer(cli, point);
  append_step(out, trial);
  append_memory(out, trial);
  if (point->source == GD_SEARCH_PREDICTED)
    return;
  append_speed(out, point);
  gd_show_precision_note(out, point->model, trial);
  gd_show_trial_note(out, trial);
  append_load_note(out, "", trial->busy_share);
  append_held_note(out, "", trial);
  append_clock_notes(out, "", trial);
  if (trial->step_half_width_s > 0.02 * trial->step_s) {
    char note[160], width[GD_SHOW_TEXT];
    snprintf(
        note, sizeof note,
        "note: the interval is +-%s %%, wider than the 2 %% aimed at: other programs are "
        "running, or the sample is too short (--sample-seconds)",
        gd_show_digits(width, sizeof width, 100 * trial->step_half_width_s / trial->step_s, 2));
    gd_show_paragraph(out, 2, note);
  }
  append_store_note(out, point);
}

/* --- several ------------------------------------------------------------------------------- */

static void set_row(struct gd_cli *cli, const char **row, const struct gd_search_point *point) {
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
  gd_show_duration(&days, trial->days * 86400, trial->days_low * 86400, trial->days_high * 86400);
  row[1] = gd_show_cell(cli, "%s", days.value);
  row[2] = gd_show_cell(cli, "%s%s", predicted ? "predicted: " : "", days.interval);
  row[3] = gd_show_cell(cli, "%s", gd_show_seconds(text, sizeof text, trial->step_s));
  row[4] = gd_show_cell(cli, "%s", gd_show_throughput(text, sizeof text, point->model, trial));
  if (trial->peak_flops > 0)
    row[5] = gd_show_cell(cli, "%s %%", gd_show_digits(text, sizeof text, 100 * trial->mfu, 2));
  row[6] = gd_show_cell(cli, "%s", gd_format_count(text, sizeof text, trial->micro_batch));
  row[7] = gd_precision_name(trial->precision);
  row[8] = gd_show_cell(cli, "%s", gd_format_bytes(text, sizeof text, trial->peak_bytes));
  row[9] = gd_show_cell(cli, "%s", gd_format_bytes(text, sizeof text, trial->host_bytes));
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

static void append_text(struct gd_strbuf *out, struct gd_strbuf *line) {
  if (line->text && !line->failed)
    gd_show_paragraph(out, 2, line->text);
  out->failed = out->failed || line->failed;
  gd_strbuf_deinit(line);
}

static bool is_same_failure(const struct gd_search_point *a, const struct gd_search_point *b) {
  return a->source != GD_SEARCH_PENDING && b->source != GD_SEARCH_PENDING &&
         a->trial.status != GD_TRIAL_OK && a->trial.status == b->trial.status &&
         strcmp(a->trial.reason, b->trial.reason) == 0;
}

/* A library that is missing fails every point alike: then its sentence is the whole answer. */
static bool all_fail_alike(const struct gd_search *search) {
  for (int i = 0; i < search->count; i++)
    if (!is_same_failure(&search->points[0], &search->points[i]))
      return false;
  return search->count > 1;
}

/* The reason once for all points of the model that share it, at the first of them. */
static void append_failure(struct gd_strbuf *out, const struct gd_search *search, int index) {
  const struct gd_search_point *point = &search->points[index];
  struct gd_strbuf line = {0};
  int alike = 0, of = 0, shown = 0;
  for (int i = 0; i < search->count; i++) {
    const struct gd_search_point *other = &search->points[i];
    bool rival = strcmp(other->argument, point->argument) == 0;
    if (rival && i < index && is_same_failure(point, other))
      return;
    of += rival;
    alike += rival && is_same_failure(point, other);
  }
  gd_strbuf_printf(&line, "%s, ", point->trial.model);
  if (alike > 1)
    gd_strbuf_printf(&line, "%d of %d (", alike, of);
  for (int i = index; i < search->count; i++) {
    const struct gd_search_point *other = &search->points[i];
    if (strcmp(other->argument, point->argument) == 0 && is_same_failure(point, other))
      gd_strbuf_printf(&line, "%s%s", shown++ ? ", " : "", other->trial.method);
  }
  gd_strbuf_printf(&line, "%s: %s", alike > 1 ? ")" : "", point->trial.reason);
  if (point->trial.tries > 1)
    gd_strbuf_printf(&line, " (tried %d times)", point->trial.tries);
  append_text(out, &line);
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
  const struct gd_search_point *point = &search->points[index];
  const struct gd_trial *trial = &point->trial;
  if (point->source == GD_SEARCH_PENDING)
    return;
  if (trial->status != GD_TRIAL_OK) {
    if (!all_fail_alike(search)) /* else the error says it, with the count */
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
  gd_show_duration(&days, winner->days * 86400, winner->days_low * 86400,
                   winner->days_high * 86400);
  gd_strbuf_printf(&cli->out, ", %s\n", days.value);
  rivals = 0;
  for (int i = 0; i < search->count; i++) {
    const struct gd_search_point *point = &search->points[i];
    if (i == best || strcmp(point->argument, search->points[of].argument) != 0)
      continue;
    if (point->trial.status != GD_TRIAL_OK || point->source != search->points[best].source)
      continue;
    /* Intervals that overlap do not tell who is faster. */
    bool close = point->trial.days_low <= winner->days_high;
    gd_strbuf_printf(&line, "%s %s %sx%s", rivals++ ? "," : "slower:", point->trial.method,
                     gd_show_digits(text, sizeof text, point->trial.days / winner->days, 3),
                     close ? " (within the intervals)" : "");
  }
  append_text(&cli->out, &line);
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
    const struct gd_search_point *point = &search->points[i];
    if (point->source != GD_SEARCH_PREDICTED)
      continue;
    gd_strbuf_printf(&line, "%s %s%s%s", shown++ ? "," : "",
                     is_one_model(search) ? "" : point->trial.model,
                     is_one_model(search) ? "" : " ", point->trial.method);
    int best = gd_search_best(search, i);
    double of = best < 0 ? 0 : search->points[best].prediction.step_s;
    if (of > 0)
      gd_strbuf_printf(&line, " %sx",
                       gd_show_digits(ratio, sizeof ratio, point->prediction.step_s / of, 3));
  }
  append_text(out, &line);
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
  append_text(out, &line);
}

static enum gd_status append_table(struct gd_cli *cli, const struct gd_search *search,
                                   struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"MODEL", false}, {"METHOD", false}, {"TIME", true}, {"95 %", true},
      {"STEP", true},   {"SPEED", true},   {"MFU", true},  {"MICRO-BATCH", true},
      {"PREC", false},  {"MEMORY", true},  {"HOST", true},
  };
  enum { COLUMNS = sizeof columns / sizeof *columns };
  int count = search->count;
  double busy_share = -1;
  const struct gd_trial *held = NULL, *slowed = NULL;
  const char **cells = gd_arena_alloc(&cli->arena, (size_t)count * COLUMNS, sizeof *cells);
  if (!cells)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while printing a table");
  for (int i = 0; i < count; i++)
    set_row(cli, cells + (ptrdiff_t)COLUMNS * i, &search->points[i]);
  /* A trial that ended in an error may not have come as far as its device. */
  for (int i = 0; i < count; i++)
    if (search->points[i].trial.device[0]) {
      gd_show_trial_place(&cli->out, &search->points[i].trial);
      gd_strbuf_append(&cli->out, "\n");
      break;
    }
  GD_TRY(gd_show_table(&cli->out, 2, columns, COLUMNS, cells, count, err));
  for (int i = 0; i < count; i++)
    if (is_first_of_model(search, i))
      append_winner(cli, search, i);
  for (int i = 0; i < count; i++) {
    const struct gd_trial *trial = &search->points[i].trial;
    append_row_notes(&cli->out, search, i);
    if (trial->status == GD_TRIAL_OK && trial->busy_share > busy_share)
      busy_share = trial->busy_share;
    if (trial->status == GD_TRIAL_OK && (!held || held_process(trial) > held_process(held)))
      held = trial;
    if (trial->status == GD_TRIAL_OK && (!slowed || is_slowed_more(trial, slowed)))
      slowed = trial;
  }
  append_load_note(&cli->out, "up to ", busy_share);
  if (held)
    append_held_note(&cli->out, "up to ", held);
  if (slowed)
    append_clock_notes(&cli->out, "up to ", slowed);
  append_failed_count(&cli->out, search);
  append_pending(&cli->out, search);
  append_excluded(&cli->out, search);
  if (search->n_stored > 0)
    gd_strbuf_printf(&cli->out, "  note: %d of %d were measured before; --fresh measures anew\n",
                     search->n_stored, count);
  return GD_OK;
}

/* --- for programs -------------------------------------------------------------------------- */

static void set_point(struct gd_show_object *to, const struct gd_search *search,
                      const struct gd_search_point *point) {
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
    const struct gd_search_point *point = &search->points[i];
    const char *key = point->model->name;
    for (int k = 0; k < search->count; k++) /* two folders of one name are told by their paths */
      if (strcmp(search->points[k].model->name, point->model->name) == 0 &&
          strcmp(search->points[k].argument, point->argument) != 0)
        key = gd_json_excerpt(path, sizeof path, point->argument);
    set_best(to, key, search, i);
  }
}

static enum gd_status show_objects(struct gd_cli *cli, const struct gd_search *search,
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

/* --- progress ------------------------------------------------------------------------------ */

struct watching {
  const struct gd_cli *cli;
  struct gd_progress progress;
  const char *reason; /* of the last trial that was not good; NULL: none */
};

static void set_label(struct watching *watching, const struct gd_search_point *point, int number,
                      int of) {
  struct gd_progress *progress = &watching->progress;
  if (!point)
    snprintf(progress->label, sizeof progress->label, "%d job%s", of, of == 1 ? "" : "s");
  else if (of > 1)
    snprintf(progress->label, sizeof progress->label, "%d of %d, %.64s, %s", number, of,
             point->model->name, point->trial.method);
  else
    snprintf(progress->label, sizeof progress->label, "%.128s", point->model->name);
}

static void show_progress(void *user, const struct gd_search_point *point, int number, int of,
                          const char *what, double done, double eta_s) {
  struct watching *watching = user;
  set_label(watching, point, number, of);
  gd_progress_report(&watching->progress, what, done, eta_s);
}

/* The live table: a line for each finished trial, above the progress line. */
static void show_finished(void *user, const struct gd_search_point *point) {
  struct watching *watching = user;
  const struct gd_trial *trial = &point->trial;
  struct gd_show_duration days;
  char memory[GD_SHOW_TEXT];
  bool ok = trial->status == GD_TRIAL_OK, colour = watching->cli->colour;
  gd_progress_clear(&watching->progress);
  char model[64];
  fprintf(stderr, "  %-16s  %-30s  ", gd_json_excerpt(model, sizeof model, trial->model),
          trial->method);
  if (ok) {
    bool predicted = point->source == GD_SEARCH_PREDICTED;
    gd_show_duration(&days, trial->days * 86400, trial->days_low * 86400, trial->days_high * 86400);
    fprintf(stderr, "%s%s%s  (%s: %s)  %s\n", colour ? "\033[32m" : "", days.value,
            colour ? "\033[0m" : "", predicted ? "predicted" : "95 %", days.interval,
            gd_format_bytes(memory, sizeof memory, trial->peak_bytes));
  } else {
    bool again = watching->reason && strcmp(watching->reason, trial->reason) == 0;
    fprintf(stderr, "%s%s%s  %.160s\n", colour ? "\033[31m" : "",
            gd_trial_status_name(trial->status), colour ? "\033[0m" : "",
            again ? "for the same reason" : trial->reason);
    watching->reason = trial->reason;
  }
}

/* --- all of it ----------------------------------------------------------------------------- */

/* Every method on every model. */
static enum gd_status make_points(struct gd_cli *cli, struct gd_search *search,
                                  struct gd_error *err) {
  struct gd_method *methods;
  int n_methods, at = 0;
  GD_TRY(gd_cli_methods(cli, &methods, &n_methods, err));
  search->count = cli->n_arguments * n_methods;
  search->points = gd_arena_alloc(&cli->arena, (size_t)search->count, sizeof *search->points);
  struct gd_model *models = gd_arena_alloc(&cli->arena, (size_t)cli->n_arguments, sizeof *models);
  if (!search->points || !models)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory before the first trial");
  /* All are read before any runs: a misspelt last name must not cost the time of the others. */
  for (int i = 0; i < cli->n_arguments; i++) {
    GD_TRY(gd_cli_load_model(cli, cli->arguments[i], &models[i], err));
    for (int k = 0; k < n_methods; k++, at++)
      search->points[at] = (struct gd_search_point){
          .argument = cli->arguments[i], .model = &models[i], .method = methods[k]};
  }
  return GD_OK;
}

/*
 * Options are each rank's own under one's own mpirun. Those that decide which trials there are, and
 * for which run, are compared before the first one: the rest is by each trial.
 */
static enum gd_status agree_on_options(const struct gd_cli *cli, const struct gd_search *search,
                                       struct gd_error *err) {
  const struct gd_recipe *first = &search->points[0].model->recipe;
  uint64_t models = 0, methods = 0, recipes = 0;
  char name[GD_METHOD_NAME];
  for (int i = 0; i < search->count; i++) {
    const struct gd_search_point *point = &search->points[i];
    const struct gd_recipe *recipe = &point->model->recipe;
    if (point->model == search->points[0].model)
      methods = gd_cache_hash_text(methods, gd_method_name(&point->method, name));
    if (i > 0 && point->model == point[-1].model)
      continue;
    int64_t facts[] = {recipe->batch, recipe->seq, recipe->steps, (int64_t)recipe->optimizer};
    models = gd_cache_hash_text(models, point->model->name);
    recipes = gd_cache_hash(recipes, facts, sizeof facts);
  }
  const struct gd_term terms[] = {
      {"list of models", (int64_t)models, false},
      {"list of methods", (int64_t)methods, false},
      {"batch", first->batch, true},
      {"sequence length", first->seq, true},
      {"number of steps", first->steps, true},
      {"optimizer", (int64_t)first->optimizer, false},
      {"recipe", (int64_t)recipes, false},
      {"--simulate", cli->options.simulate, true},
      {"--fast", cli->options.fast, true},
  };
  return gd_agree_terms(cli->comm, terms, sizeof terms / sizeof *terms, err);
}

/*
 * Inside a job that somebody else has started, this process is one of its ranks: the trials run
 * here, one after the other, and nothing is read from the store or kept. A trial that fails for
 * want of memory is a result; one that fails in its environment ends the job, on all ranks.
 */
static enum gd_status run_in_job(struct gd_cli *cli, struct gd_search *search,
                                 struct gd_error *err) {
  struct watching watching = {.cli = cli, .progress = {.on = cli->progress}};
  GD_TRY(gd_launch_join(cli, err));
  GD_TRY(agree_on_options(cli, search, err));
  GD_TRY(make_points(cli, search, err)); /* `all` depends on how many ranks there are */
  for (int i = 0; i < search->count; i++) {
    struct gd_search_point *point = &search->points[i];
    struct gd_trial_options options;
    struct gd_error own = {0};
    gd_cli_trial_options(cli, &point->method, &options);
    set_label(&watching, point, i + 1, search->count);
    options.progress = gd_progress_report;
    options.progress_user = &watching.progress;
    point->status = gd_trial_measure(point->model, &options, &point->trial, &own);
    point->source = GD_SEARCH_RUN;
    gd_progress_clear(&watching.progress);
    if (point->status == GD_OK)
      continue;
    point->trial.status = GD_TRIAL_FAILED;
    snprintf(point->trial.reason, sizeof point->trial.reason, "%s", own.text);
    /* What the process has lost, such as a GPU's context, the next trials would lack as well. */
    if (point->status == GD_ENVIRONMENT || (cli->comm && gd_comm_has_failed(cli->comm)))
      return gd_fail(err, point->status, "%s", own.text);
  }
  return GD_OK;
}

/* cpu and ref compute on the CPU; every other backend has a device for each rank. */
static bool has_gpus(const struct gd_cli_options *options) {
  return strcmp(options->backend, "cpu") != 0 && strcmp(options->backend, "ref") != 0;
}

/* As many as each rank has to itself when they share this machine. */
static int64_t share_of_cores(int64_t ranks) {
  cpu_set_t set;
  int64_t cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : ranks;
  return cores / ranks > 1 ? cores / ranks : 1;
}

/* What became of jobs is said in any case: nobody sees them end. */
static void say_jobs(const struct gd_search *search) {
  static const char on[] = "the same command goes on";
  if (search->n_cancelled < 0)
    fprintf(stderr, "gpudays: interrupted; scancel failed, so its jobs are still there: "
                    "the same command waits for them, 'squeue --me' lists them\n");
  else if (search->stop_signal == SIGHUP)
    fprintf(stderr, "gpudays: interrupted; its jobs stay with SLURM, and %s with them\n", on);
  else
    fprintf(stderr, "gpudays: interrupted with %d of %d trials to go; %d job%s cancelled; %s\n",
            search->n_pending, search->count, search->n_cancelled,
            search->n_cancelled == 1 ? " was" : "s were", on);
}

/* Ctrl-C and its like: the trial is gone, and so are we, in the way the shell expects. */
static void leave_by_signal(const struct gd_cli *cli, const struct gd_search *search) {
  if (search->slurm_config)
    say_jobs(search);
  else if (cli->progress)
    fprintf(stderr, "gpudays: interrupted with %d of %d trials to go; the same command goes on\n",
            search->n_pending, search->count);
  signal(search->stop_signal, SIG_DFL);
  raise(search->stop_signal);
}

/* Whether the catalogue has a GPU of that name. */
static bool is_known_gpu(const char *name) {
  struct gd_hw hw = {0};
  const struct gd_gpu *gpu;
  bool known = gd_hw_load(&hw, NULL) == GD_OK && gd_hw_gpu(&hw, name, &gpu, NULL) == GD_OK;
  gd_hw_deinit(&hw);
  return known;
}

/*
 * Jobs on GPUs are planned for the GPU that --gpu, the section or its name names. Where none does,
 * one stands in for it, for the order of the trials alone: memory and device are the job's to find.
 */
static enum gd_status aim_jobs(struct gd_cli *cli, const struct gd_slurm_config *config,
                               struct gd_search *search, struct gd_predicting *predicting,
                               struct gd_error *err) {
  struct gd_cli_options *options = &cli->options;
  const char *gpu = config->gpu[0] ? config->gpu : config->device;
  search->any_gpu = !config->gpu[0] && !is_known_gpu(gpu);
  options->gpu = search->any_gpu ? "a100" : gpu;
  options->count = options->ranks > 1 ? options->ranks : 1;
  if (search->any_gpu && options->nodes == 0)
    options->nodes = 1;
  return gd_predicting_open(predicting, cli, err);
}

/* With --slurm: what a rank has is what its job asks for, and not what this machine has. */
static enum gd_status prepare_jobs(struct gd_cli *cli, struct gd_search *search,
                                   struct gd_predicting *predicting, struct gd_error *err) {
  struct gd_cli_options *options = &cli->options;
  const struct gd_gpu *gpu = options->gpu ? predicting->target.gpu : NULL;
  struct gd_slurm_config *config = gd_arena_alloc(&cli->arena, 1, sizeof *config);
  if (!config)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory before the first job");
  GD_TRY(gd_slurm_config_load(
      &(struct gd_slurm_asked){.path = options->slurm_config,
                               .section = options->slurm_device,
                               .backend = options->gpu ? NULL : options->backend,
                               .gpu = gpu ? gpu->name : NULL},
      config, err));
  options->backend = config->backend;
  if (has_gpus(options) && !options->gpu)
    GD_TRY(aim_jobs(cli, config, search, predicting, err));
  if (options->threads == 0)
    options->threads = config->cpus;
  if (options->device_memory_bytes == 0 && !has_gpus(options))
    options->device_memory_bytes = gd_search_job_bytes(config);
  if (options->host_memory_bytes == 0)
    options->host_memory_bytes = gd_search_job_bytes(config);
  search->slurm_config = config;
  return GD_OK;
}

static enum gd_status open_jobs(struct gd_cli *cli, struct gd_search *search,
                                struct gd_error *err) {
  const struct gd_cli_options *options = &cli->options;
  const char *store = gd_store_path(search->store), *slash = strrchr(store, '/');
  char *folder = slash ? gd_arena_printf(&cli->arena, "%.*s/slurm", (int)(slash - store), store)
                       : gd_arena_copy_string(&cli->arena, "slurm");
  if (!folder)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory before the first job");
  return gd_slurm_open(
      &(struct gd_slurm_options){.config = search->slurm_config,
                                 .folder = options->slurm_dir ? options->slurm_dir : folder,
                                 .ranks = search->trial.ranks,
                                 .nodes = search->trial.nodes,
                                 .gpus = has_gpus(options),
                                 .timeout_s = options->trial_timeout > 0
                                                  ? options->trial_timeout
                                                  : GD_SEARCH_TRIAL_TIMEOUT_S},
      &search->slurm, err);
}

static enum gd_status run_search(struct gd_cli *cli, struct gd_search *search,
                                 const struct gd_predicting *predicting, struct gd_error *err) {
  struct watching watching = {.cli = cli, .progress = {.on = cli->progress}};
  struct gd_cli_options *options = &cli->options;
  char mpirun[4096];
  if (options->ranks > 1 && !options->simulate && !options->slurm)
    GD_TRY(gd_mpirun_find(mpirun, sizeof mpirun, err));
  gd_cli_trial_options(cli, &(struct gd_method){0}, &search->trial);
  if (predicting->has_target) {
    search->trial.target = &predicting->target;
    search->trial.nodes = predicting->target.nodes; /* as many as its machines make of --count */
  }
  search->predictor = &predicting->predictor;
  search->fresh = options->fresh;
  search->retry_failed = options->retry_failed;
  search->simulate = options->simulate;
  search->fast = options->fast;
  search->time_limit_s = options->time_limit;
  search->trial_timeout_s = options->trial_timeout;
  search->rank_timeout_s = options->rank_timeout;
  search->user = &watching;
  search->progress = cli->progress ? show_progress : NULL;
  search->finished = cli->progress && search->count > 1 ? show_finished : NULL;
  enum gd_status status = options->no_store || options->simulate
                              ? GD_OK
                              : gd_store_open(options->store, &search->store, err);
  if (status == GD_OK && options->slurm)
    status = open_jobs(cli, search, err);
  if (status == GD_OK)
    status = gd_search_run(search, err);
  gd_slurm_close(search->slurm);
  search->slurm = NULL;
  gd_store_close(search->store);
  search->store = NULL;
  search->user = NULL;
  gd_progress_clear(&watching.progress);
  if (search->stop_signal)
    leave_by_signal(cli, search);
  return status;
}

/* One good trial is an answer; otherwise what kept the first from being one. */
static enum gd_status conclude(const struct gd_search *search, struct gd_error *err) {
  struct gd_error first = {0};
  for (int i = 0; i < search->count; i++)
    if (search->points[i].trial.status == GD_TRIAL_OK)
      return GD_OK;
  for (int i = 0; i < search->count && first.status == GD_OK; i++)
    if (search->points[i].source != GD_SEARCH_PENDING)
      gd_trial_verdict(&search->points[i].trial, &first);
  if (all_fail_alike(search)) {
    const struct gd_trial *trial = &search->points[0].trial;
    return gd_fail(err, first.status, "all %d trials %s%s: %s", search->count,
                   trial->status == GD_TRIAL_FAILED ? "" : "are ",
                   gd_trial_status_name(trial->status), trial->reason);
  }
  if (first.status != GD_OK && search->n_pending == 0) {
    *err = first;
    return first.status;
  }
  return gd_fail(err, GD_MISMATCH,
                 "no trial was good before the time limit, and %d of %d are pending; the same "
                 "command goes on with them",
                 search->n_pending, search->count);
}

/* In short: the sheet has the reason with its parts. */
static enum gd_status does_not_fit(const struct gd_trial *trial, struct gd_error *err) {
  char needed[GD_SHOW_TEXT], allowed[GD_SHOW_TEXT];
  bool device = trial->peak_bytes > trial->device_limit_bytes;
  return gd_fail(
      err, device ? GD_NOMEM_DEVICE : GD_NOMEM_HOST,
      "%s does not fit: it needs %s of %s memory and has %s", trial->model,
      gd_format_bytes(needed, sizeof needed, device ? trial->peak_bytes : trial->host_bytes),
      device ? "device" : "host",
      gd_format_bytes(allowed, sizeof allowed,
                      device ? trial->device_limit_bytes : trial->host_limit_bytes));
}

static enum gd_status show_search(struct gd_cli *cli, const struct gd_search *search,
                                  const struct gd_predicting *predicting, struct gd_error *err) {
  const struct gd_search_point *only = &search->points[0];
  bool people = !cli->options.json && !cli->options.csv;
  unsigned classes = 0;
  if (search->count == 1 && only->source == GD_SEARCH_RUN && only->status != GD_OK)
    return gd_fail(err, only->status, "%s", only->trial.reason);
  if (!people)
    GD_TRY(show_objects(cli, search, err));
  else if (search->count == 1 && only->source != GD_SEARCH_PENDING)
    append_sheet(cli, only);
  else
    GD_TRY(append_table(cli, search, err));
  if (people && search->count == 1 && only->trial.status == GD_TRIAL_INFEASIBLE)
    return does_not_fit(&only->trial, err);
  if (people && predicting->has_target)
    gd_show_nodes(cli, &predicting->target);
  for (int i = 0; i < search->count; i++)
    if (search->points[i].prediction.known)
      classes |= 1u << search->points[i].prediction.of;
  if (people && search->n_predicted > 0)
    gd_show_basis(cli, predicting, classes);
  for (int i = 0; i < search->count && people; i++)
    if (search->points[i].trial.n_profile > 0)
      GD_TRY(gd_show_profile(cli, &search->points[i].trial, err));
  return conclude(search, err);
}

/* Kernels that were compiled for one process alone cost their time again in the next trial. */
static void note_cache(struct gd_cli *cli, const struct gd_search *search) {
  bool gpus = has_gpus(&cli->options), compiled = false;
  char problem[1024];
  for (int i = 0; i < search->count; i++)
    compiled |= search->points[i].source == GD_SEARCH_RUN && !search->slurm_config &&
                (gpus || search->points[i].method.compile);
  if (compiled && gd_cache_problem(gpus ? "cuda" : "kernels", problem, sizeof problem))
    gd_strbuf_printf(&cli->notes, "%s\n", problem);
}

static enum gd_status bench(struct gd_cli *cli, struct gd_predicting *predicting, bool in_job,
                            struct gd_error *err) {
  struct gd_search search = {0};
  if (cli->options.slurm && in_job)
    return gd_fail(err, GD_BAD_INPUT,
                   "--slurm submits jobs, and this process is a rank of one; leave out --slurm");
  if (cli->options.slurm)
    GD_TRY(prepare_jobs(cli, &search, predicting, err));
  cli->options.backend = gd_cli_backend(cli);
  GD_TRY(make_points(cli, &search, err)); /* a wrong name is said before ranks meet */
  if (in_job) {
    GD_TRY(run_in_job(cli, &search, err));
  } else {
    if (cli->options.ranks > 1 && !cli->options.slurm && !cli->options.gpu &&
        cli->options.threads == 0 && !getenv("OMP_NUM_THREADS"))
      cli->options.threads = share_of_cores(cli->options.ranks);
    if (!cli->options.gpu) /* the hardware of --gpu was looked up before: it counts the ranks */
      GD_TRY(gd_predicting_open(predicting, cli, err));
    GD_TRY(run_search(cli, &search, predicting, err));
  }
  note_cache(cli, &search);
  return show_search(cli, &search, predicting, err);
}

enum gd_status gd_cmd_bench(struct gd_cli *cli, struct gd_error *err) {
  struct gd_predicting predicting = {0};
  int rank, size;
  bool in_job = gd_comm_in_job(&rank, &size);
  if (cli->options.gpu && !in_job)
    GD_TRY(gd_predicting_open(&predicting, cli, err));
  enum gd_status status = bench(cli, &predicting, in_job, err);
  gd_predicting_close(&predicting);
  return status;
}
