/*
 * Trials for programs and for people; see show_trial.h. What a trial means is src/search's.
 */
#include "cli/show_trial.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

/* --- for programs -------------------------------------------------------------------------- */

static void set_or_null(struct gd_show_object *to, const char *key, double value, bool known) {
  if (known)
    gd_show_set_real(to, key, value);
  else
    gd_show_set_null(to, key);
}

static void set_bytes_or_null(struct gd_show_object *to, const char *key, int64_t bytes) {
  if (bytes >= 0)
    gd_show_set_int(to, key, bytes);
  else
    gd_show_set_null(to, key);
}

static void set_plan(struct gd_show_object *to, const struct gd_trial *trial) {
  struct gd_show_object categories;
  gd_show_set_int(to, "micro_batch", trial->micro_batch);
  gd_show_set_int(to, "accumulation", trial->accumulation);
  gd_show_set_int(to, "remainder", trial->remainder);
  gd_show_set_int(to, "peak_bytes", trial->peak_bytes);
  gd_show_set_int(to, "host_bytes", trial->host_bytes);
  gd_show_begin_inside(&categories, to, "categories");
  /* Device memory alone, so that they sum to peak_bytes. */
  for (int i = 0; i < GD_CATEGORY_DEVICE_COUNT; i++)
    gd_show_set_int(&categories, gd_category_name((enum gd_category)i), trial->bytes[i]);
  gd_show_set_object(to, "categories", &categories);
  gd_show_begin_inside(&categories, to, "host_categories");
  for (int i = 0; i < GD_CATEGORY_DEVICE_COUNT; i++)
    gd_show_set_int(&categories, gd_category_name((enum gd_category)i), trial->host_parts[i]);
  gd_show_set_object(to, "host_categories", &categories);
  gd_show_set_bool(to, "feasible", trial->status != GD_TRIAL_INFEASIBLE);
  gd_show_set_known_text(to, "reason", trial->reason);
  gd_show_set_int(to, "device_limit_bytes", trial->device_limit_bytes);
  gd_show_set_int(to, "host_limit_bytes", trial->host_limit_bytes);
  gd_show_set_int(to, "live_bytes", trial->live_bytes);
  if (trial->gathered_bytes > 0)
    gd_show_set_int(to, "gathered_bytes", trial->gathered_bytes);
  gd_show_set_text(to, "precision", gd_precision_name(trial->precision));
  gd_show_set_bool(to, "precision_substituted", trial->precision_substituted);
  gd_show_set_known_text(to, "no_compiler", trial->no_compiler);
  gd_show_set_int(to, "parameters", trial->parameters);
  gd_show_set_real(to, "flops_per_step", trial->model_flops_per_step);
  gd_show_set_real(to, "executed_flops_per_step", trial->exec_flops_per_step);
  gd_show_set_real(to, "train_flops", trial->train_flops);
  gd_show_set_real(to, "plan_s", trial->plan_s);
}

/* Times stay as evidence in a trial that failed its checks; days are claimed by a good one only. */
static void set_times(struct gd_show_object *to, const struct gd_trial *trial, bool measured) {
  bool timed = measured && trial->step_s > 0, ok = measured && trial->status == GD_TRIAL_OK;
  set_or_null(to, "micro_step_s", trial->micro_step.median_s, timed);
  set_or_null(to, "last_micro_step_s", trial->last_micro_step.median_s,
              timed && trial->last_micro_step.median_s > 0);
  set_or_null(to, "update_s", trial->update.median_s, timed);
  set_or_null(to, "step_s", trial->step_s, timed);
  set_or_null(to, "days", trial->days, ok);
  set_or_null(to, "days_low", trial->days_low, ok);
  set_or_null(to, "days_high", trial->days_high, ok);
}

static void set_samples(struct gd_show_object *to, const char *key,
                        const struct gd_samples *samples) {
  double seconds[GD_TRIAL_MAX_SAMPLES];
  for (int i = 0; i < samples->count; i++)
    seconds[i] = 1e-9 * (double)samples->ns[i];
  gd_show_set_reals(to, key, seconds, samples->count);
}

static const char *program_name(enum gd_program program) {
  return program == GD_PROGRAM_UPDATE ? "update" : "micro-step";
}

static void set_profile(struct gd_show_object *to, const struct gd_trial *trial) {
  struct gd_show_object row, rows = {.object = json_array()};
  for (uint32_t i = 0; i < trial->n_profile; i++) {
    gd_show_begin(&row);
    gd_show_set_text(&row, "op", gd_op_info(trial->profile[i].kind)->name);
    gd_show_set_text(&row, "program", program_name(trial->profile[i].program));
    gd_show_set_bool(&row, "async", trial->profile[i].async);
    gd_show_set_int(&row, "count", trial->profile[i].count);
    gd_show_set_real(&row, "seconds", trial->profile[i].seconds);
    gd_show_set_real(&row, "bytes", trial->profile[i].bytes);
    gd_show_set_real(&row, "flops", trial->profile[i].flops);
    gd_show_append(&rows, &row);
  }
  gd_show_set_object(to, "profile", &rows);
}

static void set_mhz(struct gd_show_object *to, const char *key, int mhz) {
  if (mhz > 0)
    gd_show_set_int(to, key, mhz);
  else
    gd_show_set_null(to, key);
}

/* The names are there also where the clocks were not watched. */
static void set_clocks(struct gd_show_object *to, const struct gd_trial *trial) {
  bool watched = trial->gpu_looks > 0;
  set_or_null(to, "gpu_throttled_share", trial->gpu_throttled_share, watched);
  set_or_null(to, "gpu_power_capped_share", trial->gpu_power_capped_share, watched);
  set_mhz(to, "gpu_clock_mhz", trial->gpu_clock_mhz);
  set_mhz(to, "gpu_low_clock_mhz", trial->gpu_low_clock_mhz);
  set_mhz(to, "gpu_max_clock_mhz", trial->gpu_max_clock_mhz);
  set_or_null(to, "gpu_power_w", trial->gpu_power_w, trial->gpu_power_w > 0);
  set_or_null(to, "energy_kwh", gd_trial_energy_kwh(trial), trial->gpu_power_w > 0);
  set_or_null(to, "gpu_power_limit_w", trial->gpu_power_limit_w, trial->gpu_power_limit_w > 0);
  gd_show_set_known_text(to, "gpu_clock_reasons", trial->gpu_clock_reasons);
}

static void set_measurement(struct gd_show_object *to, const struct gd_trial *trial) {
  struct gd_show_object samples, versions;
  bool timed = trial->step_s > 0, ran = timed || trial->warmup_s > 0;
  bool peak = timed && trial->peak_flops > 0;
  set_or_null(to, "tokens_per_s", trial->tokens_per_s, timed);
  set_or_null(to, "samples_per_s", trial->samples_per_s, timed);
  set_or_null(to, "mfu", trial->mfu, peak);
  set_or_null(to, "hfu", trial->hfu, peak);
  set_or_null(to, "peak_flops", trial->peak_flops, trial->peak_flops > 0);
  if (trial->devices > 0)
    gd_show_set_int(to, "devices", trial->devices);
  else
    gd_show_set_null(to, "devices"); /* every trial has the same columns */
  set_or_null(to, "busy_share", trial->busy_share, timed && trial->busy_share >= 0);
  set_or_null(to, "throttled_share", trial->throttled_share, timed);
  set_or_null(to, "stalled_share", trial->stalled_share, timed);
  set_or_null(to, "steal_share", trial->steal_share, timed);
  set_clocks(to, trial);
  gd_show_begin_inside(&samples, to, "samples");
  set_samples(&samples, "micro_step_s", &trial->micro_step);
  if (trial->last_micro_step.count > 0)
    set_samples(&samples, "last_micro_step_s", &trial->last_micro_step);
  set_samples(&samples, "update_s", &trial->update);
  gd_show_set_object(to, "samples", &samples);
  set_or_null(to, "warmup_s", trial->warmup_s, ran);
  set_or_null(to, "loss", trial->loss, ran);
  set_or_null(to, "grad_norm", trial->norm, ran);
  set_bytes_or_null(to, "resident_bytes", ran ? trial->resident_bytes : -1);
  set_bytes_or_null(to, "runtime_bytes", ran ? trial->runtime_bytes : -1);
  if (trial->n_profile > 0)
    set_profile(to, trial);
  gd_show_set_known_text(to, "recipe", trial->recipe);
  gd_show_set_known_text(to, "machine", trial->machine);
  gd_show_set_known_text(to, "failure", gd_trial_failure_name(trial->failure));
  if (trial->tries > 0)
    gd_show_set_int(to, "tries", trial->tries);
  else
    gd_show_set_null(to, "tries");
  gd_show_begin_inside(&versions, to, "versions");
  gd_show_set_text(&versions, "gpudays", trial->version);
  gd_show_set_text(&versions, "commit", trial->commit);
  gd_show_set_object(to, "versions", &versions);
}

void gd_show_trial(struct gd_show_object *to, const struct gd_trial *trial, bool measured) {
  gd_show_begin(to);
  gd_show_set_trial(to, trial, measured);
}

void gd_show_set_trial(struct gd_show_object *to, const struct gd_trial *trial, bool measured) {
  gd_show_set_text(to, "model", trial->model);
  gd_show_set_text(to, "method", trial->method);
  gd_show_set_text(to, "gpu", trial->device);
  gd_show_set_int(to, "count", trial->ranks);
  gd_show_set_text(to, "status", gd_trial_status_name(trial->status));
  gd_show_set_text(to, "device", trial->device);
  gd_show_set_text(to, "backend", trial->backend);
  gd_show_set_int(to, "threads", trial->threads);
  gd_show_set_int(to, "ranks", trial->ranks);
  gd_show_set_int(to, "nodes", trial->nodes);
  gd_show_set_known_text(to, "note", trial->note);
  set_plan(to, trial);
  set_times(to, trial, measured);
  if (measured)
    set_measurement(to, trial);
}

/* --- for people ---------------------------------------------------------------------------- */

/* Ranks that have a GPU each; a machine of fewer is shared, as a CPU is. */
static bool on_gpus(const struct gd_trial *trial) {
  return strcmp(trial->backend, "cuda") == 0 && (!trial->devices || trial->devices >= trial->ranks);
}

void gd_show_trial_place(struct gd_strbuf *out, const struct gd_trial *trial) {
  gd_strbuf_append(out, "on ");
  if (trial->ranks > 1 && on_gpus(trial))
    gd_strbuf_printf(out, "%d x ", trial->ranks);
  else if (trial->ranks > 1)
    gd_strbuf_printf(out, "%d ranks, each ", trial->ranks);
  gd_strbuf_append(out, trial->device);
}

void gd_show_trial_title(struct gd_strbuf *out, const struct gd_trial *trial) {
  gd_strbuf_printf(out, "%s, %s, %s, ", trial->model, trial->method,
                   gd_precision_name(trial->precision));
  gd_show_trial_place(out, trial);
  gd_strbuf_append(out, "\n");
}

const char *gd_show_accumulation(char *text, size_t size, const struct gd_trial *trial) {
  char micro_steps[GD_SHOW_TEXT], micro_batch[GD_SHOW_TEXT], last[GD_SHOW_TEXT];
  gd_format_count(micro_steps, sizeof micro_steps, trial->accumulation);
  gd_format_count(micro_batch, sizeof micro_batch, trial->micro_batch);
  gd_format_count(last, sizeof last, trial->remainder);
  snprintf(text, size, "gradient accumulation %s x micro-batch %s%s%s%s%s", micro_steps,
           micro_batch, trial->remainder ? ", the last " : "", trial->remainder ? last : "",
           trial->remainder && trial->ranks > 1 ? "," : "",
           trial->ranks == 1 ? ""
           : on_gpus(trial)  ? " per GPU"
                             : " per rank");
  return text;
}

void gd_show_precision_note(struct gd_strbuf *out, const struct gd_model *model,
                            const struct gd_trial *trial) {
  const char *recipe = gd_precision_name(model->recipe.precision);
  bool gpu = strcmp(trial->backend, "cuda") == 0; /* which cannot do it at all */
  char line[160];
  if (!trial->precision_substituted)
    return;
  snprintf(line, sizeof line, "note: the recipe's %s runs as %s here%s: this %s %s", recipe,
           gd_precision_name(trial->precision),
           trial->precision == GD_PRECISION_FP16 ? ", with a loss scale" : "",
           gpu ? "GPU has no" : "device has no fast", recipe);
  gd_show_paragraph(out, 2, line);
}

enum gd_status gd_show_profile(struct gd_cli *cli, const struct gd_trial *trial,
                               struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"PROGRAM", false, 0}, {"OP", false, 0},    {"COUNT", true, 2}, {"TIME", true, 0},
      {"SHARE", true, 0},    {"MEMORY", true, 3}, {"GEMM", true, 4}};
  enum { MOST = 24 };
  struct gd_show_rows rows = GD_SHOW_ROWS(cli, columns);
  char text[GD_SHOW_TEXT];
  for (uint32_t i = 0; i < trial->n_profile && i < MOST; i++) {
    const struct gd_profile_row *row = &trial->profile[i];
    double whole =
        row->program == GD_PROGRAM_UPDATE ? trial->update.median_s : trial->micro_step.median_s;
    const char **cell = gd_show_row(&rows);
    cell[0] = program_name(row->program);
    cell[1] = gd_op_info(row->kind)->name;
    cell[2] = gd_show_count_cell(cli, row->count);
    cell[3] = gd_show_seconds_cell(cli, row->seconds);
    cell[4] = row->async ? "async" : gd_show_cell(cli, "%.1f %%", 100 * row->seconds / whole);
    bool known = row->seconds > 0;
    cell[5] = known && row->bytes > 0
                  ? gd_show_cell(cli, "%.3g GB/s", 1e-9 * row->bytes / row->seconds)
                  : "";
    cell[6] =
        known && row->flops > 0
            ? gd_show_cell(cli, "%s", gd_show_rate(text, sizeof text, row->flops / row->seconds))
            : "";
  }
  gd_strbuf_append(&cli->out, "\n");
  return gd_show_rows(&rows, 2, err);
}

void gd_show_trial_note(struct gd_strbuf *out, const struct gd_trial *trial) {
  struct gd_strbuf line = {0};
  if (trial->no_compiler[0])
    gd_strbuf_printf(&line, "note: the compile method ran without generated kernels: %s",
                     trial->no_compiler);
  else if (trial->status == GD_TRIAL_OK && trial->reason[0])
    gd_strbuf_printf(&line, "note: %s; --fresh measures anew", trial->reason);
  gd_show_buffer(out, 2, &line);
  if (trial->note[0]) {
    char note[sizeof trial->note + 8];
    snprintf(note, sizeof note, "note: %s", trial->note);
    gd_show_paragraph(out, 2, note);
  }
}

const char *gd_show_step_size(char *text, size_t size, const struct gd_model *model) {
  char batch[GD_SHOW_TEXT], seq[GD_SHOW_TEXT];
  gd_format_count(batch, sizeof batch, model->recipe.batch);
  if (model->family->images)
    snprintf(text, size, "%s images", batch);
  else
    snprintf(text, size, "%s x %s tokens", batch,
             gd_format_count(seq, sizeof seq, model->recipe.seq));
  return text;
}

const char *gd_show_throughput(char *text, size_t size, const struct gd_model *model,
                               const struct gd_trial *trial) {
  char rate[GD_SHOW_TEXT];
  bool images = model->family->images;
  snprintf(
      text, size, "%s %s/s",
      gd_format_digits(rate, sizeof rate, images ? trial->samples_per_s : trial->tokens_per_s, 4),
      images ? "images" : "tokens");
  return text;
}

const char *gd_show_peak_source(const char *backend, const char *device, enum gd_peak peak,
                                double flops) {
  struct gd_hw hw = {0};
  if (strcmp(backend, "cuda") != 0)
    return "measured";
  bool stated = gd_hw_load(&hw, NULL) == GD_OK && gd_hw_states_peak(&hw, device, peak, flops);
  gd_hw_deinit(&hw);
  return stated ? "datasheet" : "reckoned";
}

const char *gd_show_trial_peak(const struct gd_trial *trial) {
  return gd_trial_peak(trial) == GD_PEAK_TF32 ? "TF32" : gd_precision_name(trial->precision);
}
