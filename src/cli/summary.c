/*
 * The summary of a point; see summary.h.
 */
#include "cli/summary.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/answer.h"
#include "cli/cli.h"
#include "cli/show_model.h"
#include "cli/show_trial.h"
#include "trial/load.h"

/* What there is to say of a point. */
enum kind {
  PLANNED,   /* what fits, and why not; with predicted times where they are known */
  PREDICTED, /* days of a simulation */
  MEASURED,
  NO_DAYS, /* it was to be measured or predicted, and there is a reason instead */
};

struct summary {
  struct gd_cli *cli;
  struct gd_strbuf *out; /* the cli's */
  const struct gd_predicting *p;
  const struct gd_point *point;
  const struct gd_trial *trial; /* the point's */
  enum kind kind;
  bool fits;
};

/* --- the answer ---------------------------------------------------------------------------- */

/* "  725 days (2.0 years)  (<before>721 - 728)": a line without its end. */
static void append_days(struct gd_cli *cli, double days, double low, double high,
                        const char *before) {
  struct gd_show_duration shown;
  gd_show_duration(&shown, days, low, high);
  gd_strbuf_append(&cli->out, "  ");
  gd_show_bold(cli, shown.value);
  gd_strbuf_printf(&cli->out, "  (%s%s)", before, shown.interval);
}

/* How much the GPUs draw; how: "modelled", "measured by NVML". */
static void append_energy(const struct summary *s, double power_w, double days, const char *how) {
  if (power_w > 0)
    gd_strbuf_printf(s->out, "  about %.0f W a GPU, %.3g kWh for %s (%s)\n", power_w,
                     power_w * s->trial->ranks * 24 * days / 1000,
                     s->trial->ranks > 1 ? "all of them" : "the run", how);
}

/* Days; whether it fits; or why there are none. */
static void append_answer(const struct summary *s) {
  const struct gd_trial *trial = s->trial;
  char needed[GD_SHOW_TEXT], allowed[GD_SHOW_TEXT];
  bool host = !s->fits && trial->peak_bytes <= trial->device_limit_bytes;
  if (s->kind == PREDICTED || s->kind == MEASURED) {
    struct gd_answer answer;
    gd_answer_of_trial(s->cli, s->p, s->point, &answer);
    gd_answer_append(s->cli, &answer);
    append_energy(s, trial->gpu_power_w, trial->days, "measured by NVML");
    return;
  }
  gd_show_trial_title(s->out, trial);
  gd_strbuf_append(s->out, "  ");
  if (s->kind == NO_DAYS) {
    gd_show_bold(s->cli, gd_trial_status_name(trial->status));
    gd_strbuf_append(s->out, "\n");
    gd_show_paragraph(s->out, 2, trial->reason);
    return;
  }
  gd_show_bold(s->cli, s->fits ? "fits" : "does not fit");
  gd_strbuf_printf(
      s->out, ": %s of %s memory needed, %s allowed\n",
      gd_format_bytes(needed, sizeof needed, host ? trial->host_bytes : trial->peak_bytes),
      host ? "host" : "device",
      gd_format_bytes(allowed, sizeof allowed,
                      host ? trial->host_limit_bytes : trial->device_limit_bytes));
}

/* --- the step ------------------------------------------------------------------------------ */

/* "1.71 s", or "1.71 s, the last 1.80 s": smaller, or with the exchange of gradients. */
static const char *say_micro_step(char text[3 * GD_SHOW_TEXT], double each_s, double last_s,
                                  bool differs) {
  char each[GD_SHOW_TEXT], last[GD_SHOW_TEXT];
  gd_show_seconds(each, sizeof each, each_s);
  gd_show_seconds(last, sizeof last, last_s);
  snprintf(text, (size_t)3 * GD_SHOW_TEXT, "%s%s%s", each, differs ? ", the last " : "",
           differs ? last : "");
  return text;
}

/* The predicted time of a plan that fits. */
static void append_plan_times(const struct summary *s) {
  const struct gd_prediction *prediction = &s->point->prediction;
  char step[GD_SHOW_TEXT], micro_step[3 * GD_SHOW_TEXT], update[GD_SHOW_TEXT];
  append_days(s->cli, prediction->days, prediction->days_low, prediction->days_high, "");
  gd_strbuf_printf(s->out, ", predicted: a step takes %s\n  a micro-step %s, the update %s\n",
                   gd_show_seconds(step, sizeof step, prediction->step_s),
                   say_micro_step(micro_step, prediction->micro_step_s,
                                  prediction->last_micro_step_s, prediction->has_last_micro_step),
                   gd_show_seconds(update, sizeof update, prediction->update_s));
  append_energy(s, prediction->power_w, prediction->days, "modelled");
  gd_show_basis(s->cli, s->p, 1u << prediction->of);
}

/* What it consists of, and how long its parts take. */
static void append_step(const struct summary *s) {
  char size[3 * GD_SHOW_TEXT], micro_steps[3 * GD_SHOW_TEXT];
  if (s->kind != PLANNED)
    return;
  gd_strbuf_printf(s->out, "  a step of %s: %s\n",
                   gd_show_step_size(size, sizeof size, s->point->model),
                   gd_show_accumulation(micro_steps, sizeof micro_steps, s->trial));
  if (s->p->has_target)
    gd_show_nodes(s->cli, &s->p->target);
  if (s->fits && gd_predicting_shows(s->p))
    append_plan_times(s);
}

/* --- memory -------------------------------------------------------------------------------- */

/* A byte count as a row of the memory table. */
static void add_row(struct gd_show_rows *rows, const char *name, int64_t bytes, int64_t whole) {
  const char **row = gd_show_row(rows);
  row[0] = name;
  row[1] = gd_show_count_cell(rows->cli, bytes);
  row[2] = gd_show_bytes_cell(rows->cli, bytes);
  if (whole > 0)
    row[3] = gd_show_cell(rows->cli, "%.1f %%", 100 * (double)bytes / (double)whole);
}

static enum gd_status append_memory_table(struct gd_cli *cli, const struct gd_trial *trial,
                                          struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"DEVICE MEMORY", false, 0}, {"BYTES", true, 1}, {"SIZE", true, 0}, {"SHARE", true, 0}};
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  int64_t left = trial->device_limit_bytes - trial->peak_bytes;
  for (int i = 0; i < GD_CATEGORY_DEVICE_COUNT; i++) {
    int64_t gathered = i == GD_CATEGORY_ACTIVATIONS ? trial->gathered_bytes : 0;
    if (gathered > 0)
      add_row(&rows, "gathered weights", gathered, trial->peak_bytes);
    add_row(&rows, gd_category_name((enum gd_category)i), trial->bytes[i] - gathered,
            trial->peak_bytes);
  }
  add_row(&rows, "peak", trial->peak_bytes, 0);
  add_row(&rows, "limit", trial->device_limit_bytes, 0);
  add_row(&rows, left < 0 ? "missing" : "headroom", left < 0 ? -left : left, 0);
  return gd_show_rows(&rows, 2, err);
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

/* A plan lists every category of bytes. */
static enum gd_status append_memory(const struct summary *s, struct gd_error *err) {
  const struct gd_trial *trial = s->trial;
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT];
  if (s->kind != PLANNED)
    return GD_OK;
  gd_strbuf_append(s->out, "\n");
  GD_TRY(append_memory_table(s->cli, trial, err));
  gd_strbuf_printf(s->out, "\n  host memory %s of %s",
                   gd_format_bytes(a, sizeof a, trial->host_bytes),
                   gd_format_bytes(b, sizeof b, trial->host_limit_bytes));
  append_host_parts(s->out, trial);
  gd_strbuf_printf(s->out, "; planned in %s\n", gd_show_seconds(a, sizeof a, trial->plan_s));
  return GD_OK;
}

/* --- notes --------------------------------------------------------------------------------- */

/* Says that others were computing, when they were; the interval does not show it. */
void gd_summary_load_note(struct gd_strbuf *out, const char *up_to, double busy_share,
                          bool disturbed) {
  char note[400];
  if (busy_share <= GD_LOAD_QUIET)
    return;
  snprintf(note, sizeof note,
           "note: other programs used %s%.0f %% of the CPUs while this was measured, so that the "
           "time may be too long by that much, or many times where threads wait for each other%s: "
           "the same command with --fresh measures again, on a quiet machine",
           up_to, 100 * busy_share,
           disturbed ? ". That is more than half, and best, cost and export take any other trial "
                       "first"
                     : "");
  gd_show_paragraph(out, 2, note);
}

/* Slowed by the process's environment (quota, stops, steal), not by the GPU. */
double gd_summary_held_share(const struct gd_trial *trial) {
  return fmax(trial->throttled_share, fmax(trial->stalled_share, trial->steal_share));
}

/* Says that the process was held back, and by what. */
void gd_summary_held_note(struct gd_strbuf *out, const char *up_to, const struct gd_trial *trial) {
  char note[320];
  double held = gd_summary_held_share(trial);
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
void gd_summary_clock_notes(struct gd_strbuf *out, const char *up_to,
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
  gd_show_buffer(out, 2, &note);
}

/* Says that nothing ran, and how to make it. */
static void append_store_note(struct gd_strbuf *out, const struct gd_point *point) {
  bool failed = point->trial.status == GD_TRIAL_FAILED;
  if (point->source == GD_SEARCH_STORE)
    gd_strbuf_printf(out, "  note: %s on %.10s at %.5s UTC; %s\n", failed ? "failed" : "measured",
                     point->stored_at, strlen(point->stored_at) > 11 ? point->stored_at + 11 : "",
                     failed ? "--retry-failed tries it again" : "--fresh measures anew");
}

/* What may have made the measured times longer without widening their interval. */
static void append_measured_notes(struct gd_strbuf *out, const struct gd_trial *trial) {
  char note[160], width[GD_SHOW_TEXT];
  gd_summary_load_note(out, "", trial->busy_share, gd_trial_is_disturbed(trial));
  gd_summary_held_note(out, "", trial);
  gd_summary_clock_notes(out, "", trial);
  if (trial->step_half_width_s <= 0.02 * trial->step_s)
    return;
  snprintf(
      note, sizeof note,
      "note: the interval ends %s %% above the median, and 2 %% are aimed at: other programs are "
      "running, or the sample is too short (--sample-seconds)",
      gd_format_digits(width, sizeof width, 100 * trial->step_half_width_s / trial->step_s, 2));
  gd_show_paragraph(out, 2, note);
}

/* What the sections have no room for. */
static void append_notes(const struct summary *s) {
  if (s->kind == PLANNED || s->kind == MEASURED) {
    gd_show_precision_note(s->out, s->point->model, s->trial);
    gd_show_trial_note(s->out, s->trial);
  }
  if (s->kind == MEASURED || s->kind == PREDICTED) /* plan says it next to its answer */
    gd_show_assumed(s->cli, s->point->model);
  if (s->kind == MEASURED)
    append_measured_notes(s->out, s->trial);
  if (s->kind == MEASURED || s->kind == NO_DAYS)
    append_store_note(s->out, s->point);
  if (s->kind != PLANNED && s->fits && s->p->has_target)
    gd_show_nodes(s->cli, &s->p->target);
  if (s->kind == PREDICTED)
    gd_show_basis(s->cli, s->p, s->point->prediction.known ? 1u << s->point->prediction.of : 0);
  if (s->kind == PLANNED && s->fits && !gd_predicting_shows(s->p))
    gd_show_basis(s->cli, s->p, 0);
}

/* --- all of it ----------------------------------------------------------------------------- */

enum gd_status gd_summary_append(struct gd_cli *cli, const struct gd_predicting *p,
                                 const struct gd_point *point, bool planned, struct gd_error *err) {
  const struct gd_trial *trial = &point->trial;
  const struct summary s = {.cli = cli,
                            .out = &cli->out,
                            .p = p,
                            .point = point,
                            .trial = trial,
                            .fits = trial->status != GD_TRIAL_INFEASIBLE,
                            .kind = planned                                ? PLANNED
                                    : trial->status != GD_TRIAL_OK         ? NO_DAYS
                                    : point->source == GD_SEARCH_PREDICTED ? PREDICTED
                                                                           : MEASURED};
  append_answer(&s);
  append_step(&s);
  GD_TRY(append_memory(&s, err));
  append_notes(&s);
  return GD_OK;
}
