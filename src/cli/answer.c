/*
 * Answers of `plan`; see answer.h.
 */
#include "cli/answer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/show_cost.h"
#include "cli/show_items.h"
#include "cli/show_trial.h"
#include "export/export.h"
#include "hw/estimate.h"
#include "money/run_cost.h"
#include "train/checkpoint.h"

/* --- words --------------------------------------------------------------------------------- */

/* "NVIDIA GeForce RTX 3090 24 GB" is "RTX 3090 24 GB" to everybody. */
static const char *short_title(const char *title) {
  static const char *const makers[] = {"NVIDIA ", "GeForce ", "Tesla "};
  for (size_t i = 0; i < sizeof makers / sizeof *makers; i++)
    if (strncmp(title, makers[i], strlen(makers[i])) == 0)
      title += strlen(makers[i]);
  return title;
}

const char *gd_answer_place(struct gd_cli *cli, const char *device, int count, bool gpus) {
  if (count == 1)
    return gd_show_cell(cli, "%s", short_title(device));
  return gpus ? gd_show_cell(cli, "%d x %s", count, short_title(device))
              : gd_show_cell(cli, "%d ranks on %s", count, device);
}

/* "compiled and fused kernels, ZeRO stage 1": each once. compiles false: the software does not,
   whatever the method asks. */
static const char *words_of(struct gd_cli *cli, const struct gd_method *method, bool compiles) {
  struct gd_strbuf text = {0};
  const char *before = "";
  for (int i = 0; i < GD_METHOD_PART_COUNT; i++) {
    const struct gd_method_part *part = gd_method_row((enum gd_method_part_id)i);
    if (!gd_method_has(method, (enum gd_method_part_id)i) || !part->words ||
        strstr(before, part->words) || (i == GD_METHOD_PART_COMPILE && !compiles))
      continue;
    gd_strbuf_printf(&text, "%s%s", text.length ? ", " : "", part->words);
    before = part->words;
  }
  if (method->compile && !compiles)
    gd_strbuf_printf(&text, "%snot compiled", text.length ? ", " : "");
  const char *words = gd_show_cell(cli, "%s", text.length ? text.text : "op by op");
  gd_strbuf_deinit(&text);
  return words;
}

/* What is trained: "143,000 steps of 1,024 x 2,049 tokens, 3.0e11 in all". */
static const char *say_run(struct gd_cli *cli, const struct gd_model *model) {
  const struct gd_recipe *recipe = &model->recipe;
  char count[GD_SHOW_TEXT], size[3 * GD_SHOW_TEXT], all[GD_SHOW_TEXT];
  double samples = (double)recipe->steps * (double)recipe->batch;
  return gd_show_cell(
      cli, "%s step%s of %s, %s in all", gd_format_count(count, sizeof count, recipe->steps),
      recipe->steps == 1 ? "" : "s", gd_show_step_size(size, sizeof size, model),
      gd_show_power(all, sizeof all, samples * (model->family->images ? 1 : (double)recipe->seq)));
}

const char *gd_answer_hardware(struct gd_cli *cli, const char *gpu, int count) {
  const struct gd_cli_options *options = &cli->options;
  struct gd_strbuf text = {0};
  if (count > 1 && !strchr(gpu, '/'))
    gd_strbuf_printf(&text, "--gpu %dx%s", count, gpu);
  else
    gd_strbuf_printf(&text, count > 1 ? "--gpu %s --count %d" : "--gpu %s", gpu, count);
  if (gd_cli_was_given(cli, "nodes"))
    gd_strbuf_printf(&text, " --nodes %lld", (long long)options->nodes);
  if (options->machine)
    gd_strbuf_printf(&text, " --machine %s", options->machine);
  if (options->network)
    gd_strbuf_printf(&text, " --network %s", options->network);
  const char *cell = gd_show_cell(cli, "%s", text.text ? text.text : "");
  gd_strbuf_deinit(&text);
  return cell;
}

/* --- making -------------------------------------------------------------------------------- */

static void begin(struct gd_answer *answer, const struct gd_model *model) {
  *answer = (struct gd_answer){.model = model->name,
                               .images = model->family->images,
                               .rent_usd = (double)NAN,
                               .rent_usd_per_gpu_hour = (double)NAN,
                               .hardware_usd = (double)NAN,
                               .experiment_usd = (double)NAN,
                               .energy_kwh = (double)NAN,
                               .energy_usd = (double)NAN,
                               .co2_kg = (double)NAN};
}

static void set_days(const struct gd_cli *cli, struct gd_answer *answer,
                     const struct gd_model *model, int64_t parameters, double step_s, double days,
                     double low, double high, int gpus) {
  const struct gd_queue queue = gd_show_queue_of(cli);
  const struct gd_recipe *recipe = &model->recipe;
  answer->days = days;
  answer->days_low = low;
  answer->days_high = high;
  answer->per_s = (double)recipe->batch * (answer->images ? 1 : (double)recipe->seq) / step_s;
  answer->per_gpu_per_s = answer->per_s / gpus;
  answer->limit_days = cli->options.days.value;
  gd_calendar_find(&queue, (double)gd_checkpoint_bytes(parameters), days, low, high,
                   &answer->calendar);
}

static enum gd_status set_cost(struct gd_cli *cli, struct gd_hw *hw, const struct gd_target *target,
                               double gpu_power_w, struct gd_answer *answer, struct gd_error *err) {
  struct gd_run_cost cost;
  GD_TRY(gd_run_cost_find(hw, target, answer->days, gpu_power_w, &cost, err));
  const struct gd_money_option *option = &cost.option;
  answer->rent_usd = option->rent_usd;
  answer->rent_usd_per_gpu_hour = option->rent ? option->rent->usd_per_gpu_hour : (double)NAN;
  answer->provider = option->rent ? gd_show_cell(cli, "%s", option->rent->provider) : NULL;
  answer->machine = cost.bought ? gd_show_cell(cli, "%s", cost.bought->name) : NULL;
  answer->machines = cost.machines;
  answer->hardware_usd = option->hardware_usd;
  answer->experiment_usd = option->experiment_usd;
  answer->energy_kwh = option->energy_kwh;
  answer->energy_usd = option->energy_usd;
  answer->co2_kg = option->co2_kg;
  return GD_OK;
}

/* "activations 14.0 GiB, fp32 master and fp16 weights 2.26 GiB, ...", the largest first. Weights
   that are gathered from all ranks lie where activations do, and are a part of their own. */
static const char *say_memory(struct gd_cli *cli, const struct gd_trial *trial) {
  enum { GATHERED = GD_CATEGORY_DEVICE_COUNT, PARTS };
  struct gd_strbuf text = {0};
  bool said[PARTS] = {false}, fp32 = trial->precision == GD_PRECISION_FP32;
  const char *precision = gd_precision_name(trial->precision);
  const char *names[PARTS] = {0};
  int64_t bytes[PARTS];
  char size[GD_SHOW_TEXT];
  for (int i = 0; i < GD_CATEGORY_DEVICE_COUNT; i++) {
    names[i] = gd_category_name((enum gd_category)i);
    bytes[i] = trial->bytes[i];
  }
  names[GD_CATEGORY_PARAMETERS] =
      fp32 ? "fp32 weights" : gd_show_cell(cli, "fp32 master and %s weights", precision);
  names[GD_CATEGORY_OPTIMIZER] = "Adam's moments";
  names[GATHERED] = gd_show_cell(cli, "gathered %s weights", precision);
  bytes[GATHERED] = trial->gathered_bytes;
  bytes[GD_CATEGORY_ACTIVATIONS] -= trial->gathered_bytes;
  for (int n = 0; n < PARTS; n++) {
    int largest = -1;
    for (int i = 0; i < PARTS; i++)
      if (!said[i] && (largest < 0 || bytes[i] > bytes[largest]))
        largest = i;
    said[largest] = true;
    if (bytes[largest] * 200 < trial->peak_bytes)
      break; /* half a percent, and what follows is smaller */
    gd_strbuf_printf(&text, "%s%s %s", n ? ", " : "", names[largest] ? names[largest] : "weights",
                     gd_format_bytes(size, sizeof size, bytes[largest]));
  }
  const char *cell = gd_show_cell(cli, "%s", text.text ? text.text : "");
  gd_strbuf_deinit(&text);
  return cell;
}

static const char *say_lack(struct gd_cli *cli, const struct gd_trial *trial) {
  char needed[GD_SHOW_TEXT], allowed[GD_SHOW_TEXT];
  struct gd_trial_need need = gd_trial_need(trial);
  return gd_show_cell(
      cli, "needs %s of %s memory and has %s", gd_format_bytes(needed, sizeof needed, need.bytes),
      need.device ? "device" : "host", gd_format_bytes(allowed, sizeof allowed, need.limit_bytes));
}

/* What keeps free-lunch alone from being the answer, where that is memory. */
static const char *say_why(struct gd_cli *cli, const struct gd_point *point,
                           const struct gd_point *among, int count) {
  char needed[GD_SHOW_TEXT];
  for (int i = 0; i < count; i++) {
    const struct gd_trial *trial = &among[i].trial;
    if (strcmp(trial->method, "free-lunch") != 0 || among[i].model != point->model ||
        trial->status != GD_TRIAL_INFEASIBLE)
      continue;
    return gd_show_cell(cli, "free-lunch alone does not fit: it needs %s with micro-batch %lld",
                        gd_format_bytes(needed, sizeof needed, gd_trial_need(trial).bytes),
                        (long long)trial->micro_batch);
  }
  return NULL;
}

/* "within about 1.3x, 9 times out of 10: untested on RTX 3090 24 GB" */
static const char *say_trust(struct gd_cli *cli, const struct gd_predicting *p,
                             const struct gd_prediction *prediction, int count) {
  const struct gd_gpu *gpu = p->has_target ? p->target.gpu : NULL;
  const char *title = gpu ? short_title(gpu->title) : "this machine";
  double factor = 1 / (1 - prediction->error);
  const char *peak = prediction->ends_at_peak ? "; the fast end is the peak" : "";
  if (prediction->validated)
    return gd_show_cell(cli, "within about %.2gx, 9 times out of 10: tested on %s%s", factor, title,
                        peak);
  if (gpu && p->predictor.distance <= 0 && count > 1)
    return gd_show_cell(cli, "within about %.2gx, 9 times out of 10: tested on one %s, not on %d%s",
                        factor, title, count, peak);
  return gd_show_cell(cli, "within about %.2gx, 9 times out of 10: untested on %s%s", factor, title,
                      peak);
}

/* Appends " --device-memory 24GiB", in the largest unit that it is a whole number of. */
static void set_size(char *text, size_t size, const char *option, int64_t bytes) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB"};
  int unit = 0;
  size_t length = strlen(text);
  if (bytes <= 0)
    return;
  for (; unit < 3 && bytes % 1024 == 0; unit++)
    bytes /= 1024;
  snprintf(text + length, size - length, " %s %lld%s", option, (long long)bytes, units[unit]);
}

const char *gd_answer_limits(struct gd_cli *cli) {
  static const char *const policies[] = {
      [GD_MICRO_BATCH_POW2] = " --micro-batch pow2", [GD_MICRO_BATCH_MAX] = " --micro-batch max"};
  const struct gd_cli_options *options = &cli->options;
  char text[192] = "";
  set_size(text, sizeof text, "--device-memory", options->device_memory_bytes);
  set_size(text, sizeof text, "--host-memory", options->host_memory_bytes);
  if (options->micro_batch == GD_MICRO_BATCH_FIXED)
    return gd_show_cell(cli, "%s --micro-batch %lld", text, (long long)options->micro_batch_size);
  return gd_show_cell(cli, "%s%s", text,
                      options->micro_batch == GD_MICRO_BATCH_AUTO ? ""
                                                                  : policies[options->micro_batch]);
}

/* " --ranks 2 --threads 4 --device-memory 8GiB": what `bench` and `train` take alike. */
static const char *say_run_options(struct gd_cli *cli, const struct gd_point *point) {
  char ranks[24] = "", threads[32] = "";
  if (point->trial.ranks > 1)
    snprintf(ranks, sizeof ranks, " --ranks %d", point->trial.ranks);
  if (cli->options.threads > 0)
    snprintf(threads, sizeof threads, " --threads %lld", (long long)cli->options.threads);
  return gd_show_cell(cli, "%s%s%s", ranks, threads, gd_answer_limits(cli));
}

/* " --methods free-lunch", where methods were asked for. Passes are left out to look at a plan:
   they have an option of their own, which `train` has not. */
static void set_methods(struct gd_cli *cli, const struct gd_point *point,
                        char text[GD_METHOD_NAME + 16]) {
  struct gd_method method = point->options.method;
  char name[GD_METHOD_NAME];
  method.without = 0;
  text[0] = '\0';
  if (cli->options.methods)
    snprintf(text, GD_METHOD_NAME + 16, " --methods %s", gd_method_name(&method, name));
}

/* For this machine: measuring. */
static const char *say_next(struct gd_cli *cli, const struct gd_point *point) {
  const char *without = strstr(point->trial.method, " without ");
  char recipe[GD_CLI_RECIPE_TEXT], methods[GD_METHOD_NAME + 16], passes[GD_METHOD_NAME + 16] = "";
  gd_cli_recipe_options(cli, recipe, sizeof recipe);
  set_methods(cli, point, methods);
  if (without)
    snprintf(passes, sizeof passes, " --without %s", without + strlen(" without "));
  for (char *plus = passes; (plus = strchr(plus, '+'));)
    *plus = ','; /* in the name of a method a comma would begin the next one */
  return gd_show_cell(cli, "gpudays bench %s%s%s%s%s", gd_show_argument(cli, point->argument),
                      recipe, say_run_options(cli, point), methods, passes);
}

/* For a target: training on it with the settings of the answer, which are the engine's. What other
   software has there is another plan, by its own memory. */
static void set_next(struct gd_cli *cli, const struct gd_predicting *p,
                     const struct gd_point *point, struct gd_answer *answer) {
  const struct gd_trial *trial = &point->trial;
  struct gd_method method = point->options.method;
  char recipe[GD_CLI_RECIPE_TEXT], name[GD_METHOD_NAME], methods[GD_METHOD_NAME + 16];
  char ranks[24] = "", nodes[48] = "";
  method.without = 0;
  gd_method_name(&method, name);
  gd_cli_recipe_options(cli, recipe, sizeof recipe);
  if (trial->ranks > 1)
    snprintf(ranks, sizeof ranks, " --ranks %d", trial->ranks);
  if (p->target.nodes > 1)
    snprintf(nodes, sizeof nodes, " --slurm --nodes %d --backend cuda", p->target.nodes);
  set_methods(cli, point, methods);
  answer->elsewhere = gd_show_cell(cli, "gpudays export %s%s %s%s%s --format train.py",
                                   gd_show_argument(cli, point->argument), recipe,
                                   gd_answer_hardware(cli, p->target.gpu->name, p->target.count),
                                   gd_answer_limits(cli), methods);
  answer->next = answer->elsewhere;
  if (p->target.gpu->compute_capability >= GD_GPU_OLDEST)
    answer->next =
        gd_show_cell(cli, "gpudays train %s%s%s%s%s --methods %s --data %s",
                     gd_show_argument(cli, point->argument), recipe, ranks, nodes,
                     gd_answer_limits(cli), name, point->model->family->images ? "FOLDER" : "FILE");
}

enum gd_status gd_answer_find_remedies(struct gd_cli *cli, struct gd_predicting *p,
                                       const struct gd_points_asked *asked,
                                       const struct gd_point *point, struct gd_remedies *remedies,
                                       struct gd_error *err) {
  struct gd_points_asked one = *asked;
  one.models = point->model;
  one.n_models = 1;
  one.identities = NULL;
  return gd_remedies_find(
      &(struct gd_remedies_asked){.points = &one,
                                  .target = p->has_target ? &p->target : NULL,
                                  .hw = &p->hw,
                                  .named = cli->options.methods != NULL,
                                  .fixed_memory = cli->options.device_memory_bytes > 0},
      remedies, err);
}

enum gd_status gd_answer_of_point(struct gd_cli *cli, struct gd_predicting *p,
                                  const struct gd_point *point, const struct gd_point *among,
                                  int count, struct gd_answer *answer, struct gd_error *err) {
  const struct gd_trial *trial = &point->trial;
  const struct gd_prediction *prediction = &point->prediction;
  char text[GD_SHOW_TEXT * 3];
  bool gpu = strcmp(trial->backend, "cuda") == 0;
  begin(answer, point->model);
  answer->fits = trial->status != GD_TRIAL_INFEASIBLE;
  answer->method = gd_show_cell(cli, "%s", trial->method);
  answer->place = gd_answer_place(cli, trial->device, trial->ranks, gpu);
  answer->cpu = !gpu;
  answer->gpu = p->has_target ? gd_show_cell(cli, "%s", short_title(p->target.gpu->title)) : NULL;
  answer->count = trial->ranks;
  answer->software = "gpudays' own engine";
  answer->stack = "own";
  answer->precision = trial->precision;
  answer->micro_batch = trial->micro_batch;
  answer->peak_bytes = (double)trial->peak_bytes;
  answer->limit_bytes = (double)trial->device_limit_bytes;
  answer->settings = gd_show_cell(cli, "%s", gd_show_accumulation(text, sizeof text, trial));
  answer->words = words_of(cli, &point->options.method, true);
  answer->run = say_run(cli, point->model);
  answer->memory = say_memory(cli, trial);
  if (!answer->fits) {
    answer->lacks = say_lack(cli, trial);
    return GD_OK;
  }
  if (p->has_target)
    set_next(cli, p, point, answer);
  else
    answer->next = say_next(cli, point);
  if (count > 1)
    answer->why = say_why(cli, point, among, count);
  if (!prediction->known || !gd_predicting_shows(p))
    return GD_OK;
  set_days(cli, answer, point->model, trial->parameters, prediction->step_s, prediction->days,
           prediction->days_low, prediction->days_high, trial->ranks);
  double peak =
      gd_predictor_peak(&p->predictor, trial->precision, gd_trial_peak(trial) == GD_PEAK_TF32);
  if (peak > 0 && (gpu || trial->ranks == 1)) {
    answer->mfu = trial->model_flops_per_step / prediction->step_s / (peak * trial->ranks);
    answer->hfu = trial->exec_flops_per_step / prediction->step_s / (peak * trial->ranks);
  }
  answer->trust = say_trust(cli, p, prediction, trial->ranks);
  return p->has_target ? set_cost(cli, &p->hw, &p->target, prediction->power_w, answer, err)
                       : GD_OK;
}

/* "MFU 45 %, HFU 60 % of 2.1 TFLOP/s bf16 (measured peak)" */
static const char *say_mfu(struct gd_cli *cli, const struct gd_trial *trial) {
  char text[GD_SHOW_TEXT];
  struct gd_strbuf line = {0};
  if (!(trial->peak_flops > 0))
    return NULL;
  gd_strbuf_printf(&line, "MFU %s %%", gd_format_digits(text, sizeof text, 100 * trial->mfu, 2));
  /* Executed FLOPs are worth a word where they differ from the model's. */
  if (fabs(trial->hfu - trial->mfu) >= 0.005)
    gd_strbuf_printf(&line, ", HFU %s %%%s",
                     gd_format_digits(text, sizeof text, 100 * trial->hfu, 2),
                     trial->hfu < trial->mfu
                         ? " (less: masked scores, rows without a label and a last position are "
                           "skipped)"
                         : "");
  gd_strbuf_printf(
      &line, " of %s %s (%s peak)", gd_show_rate(text, sizeof text, trial->peak_flops),
      gd_show_trial_peak(trial),
      gd_show_peak_source(trial->backend, trial->device, gd_trial_peak(trial),
                          trial->peak_flops / (trial->devices ? trial->devices : trial->ranks)));
  const char *cell = gd_show_cell(cli, "%s", line.text ? line.text : "");
  gd_strbuf_deinit(&line);
  return cell;
}

/* "100 steps of 4 x 8 tokens, 1.2 s each: 16 micro-steps of 70 ms and an update of 80 ms" */
static const char *say_step(struct gd_cli *cli, const struct gd_point *point) {
  const struct gd_trial *trial = &point->trial;
  const int64_t steps = point->model->recipe.steps;
  const struct gd_prediction *prediction = &point->prediction;
  bool measured = point->source != GD_SEARCH_PREDICTED;
  double last_s = measured ? trial->last_micro_step.median_s : prediction->last_micro_step_s;
  bool has_last = measured ? trial->last_micro_step.count > 0 : prediction->has_last_micro_step;
  char size[3 * GD_SHOW_TEXT], count[GD_SHOW_TEXT], step[GD_SHOW_TEXT], each[GD_SHOW_TEXT],
      last[GD_SHOW_TEXT], update[GD_SHOW_TEXT];
  return gd_show_cell(cli, "%s step%s of %s, %s each: micro-step %s%s%s, update %s",
                      gd_format_count(count, sizeof count, steps), steps == 1 ? "" : "s",
                      gd_show_step_size(size, sizeof size, point->model),
                      gd_show_seconds(step, sizeof step, trial->step_s),
                      gd_show_seconds(each, sizeof each, trial->micro_step.median_s),
                      has_last ? ", the last " : "",
                      has_last ? gd_show_seconds(last, sizeof last, last_s) : "",
                      gd_show_seconds(update, sizeof update, trial->update.median_s));
}

/* What it takes next to the plan's bytes: "host 1.2 GiB; resident set grew by 900 MiB". */
static const char *say_more_memory(struct gd_cli *cli, const struct gd_trial *trial) {
  struct gd_strbuf text = {0};
  char size[GD_SHOW_TEXT];
  bool gpu = strcmp(trial->backend, "cuda") == 0;
  gd_strbuf_printf(&text, "%s; host %s", say_memory(cli, trial),
                   gd_format_bytes(size, sizeof size, trial->host_bytes));
  if (trial->resident_bytes >= 0)
    gd_strbuf_printf(&text, gpu ? "; the driver counts %s" : "; resident set grew by %s",
                     gd_format_bytes(size, sizeof size, trial->resident_bytes));
  if (trial->resident_bytes >= 0 && trial->runtime_bytes >= 0 && gpu)
    gd_strbuf_printf(&text, ", and %s of runtime next to it",
                     gd_format_bytes(size, sizeof size, trial->runtime_bytes));
  const char *cell = gd_show_cell(cli, "%s", text.text ? text.text : "");
  gd_strbuf_deinit(&text);
  return cell;
}

/* What trains with the settings that were timed. */
static const char *say_train(struct gd_cli *cli, const struct gd_point *point) {
  char recipe[GD_CLI_RECIPE_TEXT], methods[GD_METHOD_NAME + 16];
  gd_cli_recipe_options(cli, recipe, sizeof recipe);
  set_methods(cli, point, methods);
  return gd_show_cell(cli, "gpudays train %s%s%s%s --data %s",
                      gd_show_argument(cli, point->argument), recipe, say_run_options(cli, point),
                      methods, point->model->family->images ? "FOLDER" : "FILE");
}

/* "580 days, 3 % less than measured": how far a prediction for this machine was off. */
static const char *say_predicted(struct gd_cli *cli, const struct gd_point *point) {
  const struct gd_prediction *prediction = &point->prediction;
  struct gd_show_duration shown;
  gd_show_duration(&shown, prediction->days, prediction->days_low, prediction->days_high);
  double percent = 100 * (prediction->days / point->trial.days - 1);
  if (fabs(percent) < 0.5)
    return gd_show_cell(cli, "%s, as measured", shown.value);
  return gd_show_cell(cli, "%s, %.0f %% %s than measured", shown.value, fabs(percent),
                      percent < 0 ? "less" : "more");
}

void gd_answer_of_trial(struct gd_cli *cli, const struct gd_predicting *p,
                        const struct gd_point *point, struct gd_answer *answer) {
  const struct gd_trial *trial = &point->trial;
  bool measured = point->source != GD_SEARCH_PREDICTED;
  char text[GD_SHOW_TEXT * 3], loss[GD_SHOW_TEXT];
  begin(answer, point->model);
  answer->fits = true;
  answer->method = gd_show_cell(cli, "%s", trial->method);
  answer->cpu = strcmp(trial->backend, "cuda") != 0;
  answer->place = gd_answer_place(cli, trial->device, trial->ranks, !answer->cpu);
  answer->software = "gpudays' own engine";
  answer->stack = "own";
  answer->precision = trial->precision;
  answer->micro_batch = trial->micro_batch;
  answer->peak_bytes = (double)trial->peak_bytes;
  answer->limit_bytes = (double)trial->device_limit_bytes;
  answer->settings = gd_show_cell(cli, "%s", gd_show_accumulation(text, sizeof text, trial));
  answer->words = words_of(cli, &point->options.method, true);
  set_days(cli, answer, point->model, trial->parameters, trial->step_s, trial->days,
           trial->days_low, trial->days_high, trial->ranks);
  answer->interval_of = measured ? "95 %: " : "predicted: ";
  answer->mfu = trial->peak_flops > 0 ? trial->mfu : 0;
  answer->mfu_words = say_mfu(cli, trial);
  answer->step = say_step(cli, point);
  answer->memory = say_more_memory(cli, trial);
  answer->next = measured ? say_train(cli, point) : say_next(cli, point);
  if (measured) {
    gd_format_digits(loss, sizeof loss, trial->loss, 4);
    answer->trust = gd_show_cell(cli, "measured here; loss %s, gradient norm %.3g: plausible", loss,
                                 trial->norm);
    if (gd_predicting_shows(p) && point->prediction.known)
      answer->predicted = say_predicted(cli, point);
  } else if (point->prediction.known) {
    answer->trust = say_trust(cli, p, &point->prediction, trial->ranks);
  }
}

/* "20 days by the paper's own clock, ...": what its tables would have, where that is less than a
   run takes, and what wins there. */
static const char *say_clock(struct gd_cli *cli, const struct gd_stack_plan *plan,
                             const struct gd_stack_row *row) {
  const struct gd_stack_row *best = row;
  struct gd_show_duration own, least;
  char name[GD_METHOD_NAME];
  for (int i = 0; i < plan->count; i++) {
    const struct gd_stack_row *other = &plan->rows[i];
    if (other->model == row->model && other->fits && other->clock_days < 0.999 * best->clock_days)
      best = other;
  }
  if (!(row->clock_days > 0) || (best == row && row->clock_days > 0.999 * row->days))
    return NULL;
  gd_show_duration(&own, row->clock_days, row->clock_days, row->clock_days);
  gd_show_duration(&least, best->clock_days, best->clock_days, best->clock_days);
  const char *text = gd_show_cell(
      cli, "%s by the clock of its tables, which does not wait for the GPU to end a micro-step",
      own.value);
  return best == row ? text
                     : gd_show_cell(cli, "%s; %s is the fastest there, %s", text,
                                    gd_method_name(&best->method, name), least.value);
}

enum gd_status gd_answer_of_stack(struct gd_cli *cli, struct gd_stack_plan *plan,
                                  const struct gd_stack_row *row, struct gd_answer *answer,
                                  struct gd_error *err) {
  const struct gd_target *target = &plan->target;
  const char *argument = row->model->name; /* or what the user called it */
  for (int i = 0; i < cli->n_arguments; i++)
    if (row->model == &plan->models[i])
      argument = cli->arguments[i];
  struct gd_stack_miss miss = gd_stack_plan_miss(plan, row);
  char name[GD_METHOD_NAME], need[GD_SHOW_TEXT], have[GD_SHOW_TEXT], recipe[GD_CLI_RECIPE_TEXT];
  begin(answer, row->model);
  answer->fits = row->fits;
  answer->method = gd_show_cell(cli, "%s", gd_method_name(&row->method, name));
  answer->place = gd_answer_place(cli, target->gpu->title, target->count, true);
  answer->gpu = gd_show_cell(cli, "%s", short_title(target->gpu->title));
  answer->count = target->count;
  answer->software = gd_show_cell(cli, "%s", plan->facts->title);
  answer->stack = gd_show_cell(cli, "%s", plan->facts->name);
  answer->precision = row->precision;
  answer->micro_batch = row->micro_batch;
  answer->peak_bytes = row->bytes.device;
  answer->limit_bytes = miss.device_bytes;
  answer->memory = row->tight ? "by an estimate; it may not fit" : NULL;
  answer->settings =
      gd_show_cell(cli, "gradient accumulation %.0f x micro-batch %lld%s", row->accumulation,
                   (long long)row->micro_batch, target->count > 1 ? " per GPU" : "");
  answer->words = words_of(cli, &row->method, plan->facts->kernels != GD_STACK_KERNELS_EAGER);
  answer->run = say_run(cli, row->model);
  answer->next = gd_show_cell(
      cli, "gpudays export %s%s %s%s --stack %s --methods %s --format %s",
      gd_show_argument(cli, argument), gd_cli_recipe_options(cli, recipe, sizeof recipe),
      gd_answer_hardware(cli, target->gpu->name, target->count), gd_answer_limits(cli),
      cli->options.stack, gd_method_name(&row->method, name),
      gd_export_name(gd_export_of_stack(plan->facts->name, row->model, &row->method)));
  answer->elsewhere = answer->next;
  if (!row->fits) {
    answer->lacks = gd_show_cell(cli, "needs about %s of %s memory and has %s",
                                 gd_format_bytes(need, sizeof need, (int64_t)miss.need_bytes),
                                 miss.host ? "host" : "device",
                                 gd_format_bytes(have, sizeof have, (int64_t)miss.have_bytes));
    return GD_OK;
  }
  answer->clock = say_clock(cli, plan, row);
  struct gd_model_facts facts;
  GD_TRY(gd_model_facts(row->model, row->precision, &facts, err));
  set_days(cli, answer, row->model, facts.parameters, row->step_s, row->days, row->days_low,
           row->days_high, target->count);
  double peak = gd_estimate_peak(target->gpu, row->precision, GD_PEAKS_DATASHEET);
  if (peak > 0)
    answer->mfu = facts.flops_per_step / row->step_s / (peak * target->count);
  answer->trust = gd_show_cell(cli, "within about %.2gx, 9 times out of 10; %s",
                               row->days_high / row->days, plan->basis);
  return set_cost(cli, gd_stack_plan_hw(plan), target, row->step.watts, answer, err);
}

/* --- lines --------------------------------------------------------------------------------- */

static void append_speed(struct gd_cli *cli, const struct gd_answer *answer) {
  const char *unit = answer->images ? "images" : "tokens";
  char all[GD_SHOW_TEXT], each[GD_SHOW_TEXT];
  struct gd_strbuf text = {0};
  gd_strbuf_printf(&text, "%s %s/s", gd_format_digits(all, sizeof all, answer->per_s, 3), unit);
  if (answer->per_gpu_per_s < answer->per_s)
    gd_strbuf_printf(&text, ", %s per %s",
                     gd_format_digits(each, sizeof each, answer->per_gpu_per_s, 3),
                     answer->cpu ? "rank" : "GPU");
  if (answer->mfu_words)
    gd_strbuf_printf(&text, "; %s", answer->mfu_words);
  else if (answer->mfu > 0)
    gd_strbuf_printf(&text, "; MFU %s %%", gd_format_digits(all, sizeof all, 100 * answer->mfu, 2));
  if (!answer->mfu_words && answer->mfu >= 0.9 && answer->hfu > 0 && answer->hfu < answer->mfu)
    gd_strbuf_printf(&text, " (HFU %s %%: masked scores are skipped)",
                     gd_format_digits(all, sizeof all, 100 * answer->hfu, 2));
  bool other = answer->gpu && strcmp(answer->stack, "own") == 0; /* could be asked of it */
  gd_strbuf_printf(&text, "; %s%s", answer->software, other ? " (--stack pytorch: PyTorch)" : "");
  gd_show_item_buffer(cli, "speed", &text);
}

static void append_settings(struct gd_cli *cli, const struct gd_answer *answer) {
  struct gd_strbuf text = {0};
  gd_strbuf_printf(&text, "%s (%s), %s, %s", answer->method, answer->words,
                   gd_precision_name(answer->precision), answer->settings);
  gd_show_item_buffer(cli, "settings", &text);
}

static void append_memory(struct gd_cli *cli, const struct gd_answer *answer) {
  char peak[GD_SHOW_TEXT], limit[GD_SHOW_TEXT];
  struct gd_strbuf text = {0};
  gd_strbuf_printf(&text, "%s of %s",
                   gd_format_bytes(peak, sizeof peak, (int64_t)answer->peak_bytes),
                   gd_format_bytes(limit, sizeof limit, (int64_t)answer->limit_bytes));
  if (answer->memory && answer->memory[0])
    gd_strbuf_printf(&text, ": %s", answer->memory);
  if (answer->why)
    gd_strbuf_printf(&text, "; %s", answer->why);
  gd_show_item_buffer(cli, "memory", &text);
}

static void append_cost(struct gd_cli *cli, const struct gd_answer *answer) {
  char a[GD_SHOW_TEXT], b[GD_SHOW_TEXT], c[GD_SHOW_TEXT], kwh[GD_SHOW_TEXT];
  struct gd_strbuf text = {0};
  if (isfinite(answer->rent_usd))
    gd_strbuf_printf(&text, "rent %s (%s a GPU-hour, %s)",
                     gd_show_usd(a, sizeof a, answer->rent_usd),
                     gd_show_usd(b, sizeof b, answer->rent_usd_per_gpu_hour), answer->provider);
  if (isfinite(answer->hardware_usd))
    gd_strbuf_printf(&text, "%sown %s%s for %s, %s of its 5 years", text.length ? "; " : "",
                     answer->machines > 1 ? gd_show_cell(cli, "%d x ", answer->machines) : "",
                     answer->machine, gd_show_usd(a, sizeof a, answer->hardware_usd),
                     gd_show_usd(b, sizeof b, answer->experiment_usd));
  if (isfinite(answer->energy_kwh))
    gd_strbuf_printf(&text, "%s%s kWh (%s, %s kg of CO2)", text.length ? "; " : "",
                     gd_format_digits(kwh, sizeof kwh, answer->energy_kwh, 3),
                     gd_show_usd(c, sizeof c, answer->energy_usd),
                     gd_format_digits(a, sizeof a, answer->co2_kg, 3));
  gd_show_item_buffer(cli, "cost", &text);
}

static void append_next(struct gd_cli *cli, const struct gd_answer *answer) {
  gd_show_item_command(cli, "next", answer->next);
  if (!answer->elsewhere || strcmp(answer->stack, "own") != 0)
    return;
  if (strcmp(answer->elsewhere, answer->next) == 0) {
    gd_show_item(cli, "", "which plans anew, by PyTorch's memory and speed");
    return;
  }
  gd_show_item(cli, "PyTorch", "has a plan of its own, by its memory and speed:");
  gd_show_item_command(cli, "", answer->elsewhere);
}

void gd_answer_append(struct gd_cli *cli, const struct gd_answer *answer) {
  const struct gd_queue queue = gd_show_queue_of(cli);
  gd_show_bold(cli, answer->model);
  gd_strbuf_append(&cli->out, " on ");
  gd_show_bold(cli, answer->place);
  gd_strbuf_append(&cli->out, "\n");
  if (!answer->fits) {
    gd_show_item(cli, "answer",
                 gd_show_cell(cli, "does not fit: %s %s", answer->method, answer->lacks));
    append_memory(cli, answer);
    return;
  }
  if (answer->days > 0) {
    gd_show_item_time(cli, answer->interval_of, answer->days, answer->days_low, answer->days_high,
                      &answer->calendar);
    gd_show_item_calendar(cli, &queue, &answer->calendar);
    gd_show_item_deadline(cli, &answer->calendar, answer->limit_days);
    if (answer->predicted)
      gd_show_item(cli, "predicted", answer->predicted);
    append_speed(cli, answer);
  } else {
    gd_show_item(cli, "answer",
                 "fits; its time is not known before this machine was calibrated "
                 "('gpudays calibrate', once, a minute) or measured");
  }
  if (answer->clock)
    gd_show_item(cli, "paper", answer->clock);
  if (answer->run)
    gd_show_item(cli, "run", answer->run);
  append_settings(cli, answer);
  if (answer->step)
    gd_show_item(cli, "step", answer->step);
  append_memory(cli, answer);
  append_cost(cli, answer);
  append_next(cli, answer);
  if (answer->trust)
    gd_show_item(cli, "trust", answer->trust);
}

void gd_answer_note_deadline(const struct gd_answer *answer, bool *in_time, struct gd_error *late) {
  const struct gd_calendar *calendar = &answer->calendar;
  if (!answer->fits || !(answer->days > 0) || !(answer->limit_days > 0))
    return;
  if (gd_deadline_of(calendar->days_low, calendar->days_high, answer->limit_days) != GD_DEADLINE_NO)
    *in_time = true;
  else if (late->status == GD_OK)
    (void)gd_fail(late, GD_MISMATCH, "%s on %s takes %.3g days at least, and not %g", answer->model,
                  answer->place, calendar->days_low, answer->limit_days);
}

/* --- a table ------------------------------------------------------------------------------- */

enum gd_status gd_answer_table(struct gd_cli *cli, const struct gd_answer *answers, int count,
                               struct gd_error *err) {
  static const struct gd_show_column columns[] = {
      {"MODEL", false, 0},   {"HARDWARE", false, 0}, {"TIME", true, 0},    {"INTERVAL", true, 1},
      {"PER S", true, 6},    {"MFU", true, 4},       {"METHOD", false, 3}, {"MICRO-BATCH", true, 5},
      {"MEMORY", true, 2},   {"RENT", true, 1},      {"KWH", true, 7},     {"DONE", false, 0},
      {"DEADLINE", false, 0}};
  /* The last ones where a queue or a deadline is asked about. */
  const struct gd_queue queue = gd_show_queue_of(cli);
  const bool queued = gd_queue_is_asked(&queue), limited = cli->options.days.given;
  const int n_columns = (int)(sizeof columns / sizeof *columns);
  struct gd_show_rows rows = {.cli = cli,
                              .columns = columns,
                              .n_columns = limited  ? n_columns
                                           : queued ? n_columns - 1
                                                    : n_columns - 2};
  for (int i = 0; i < count; i++) {
    const struct gd_answer *answer = &answers[i];
    char text[GD_SHOW_TEXT], day[GD_SHOW_DAY];
    struct gd_show_duration shown;
    const char **row = gd_show_row(&rows);
    row[0] = answer->model;
    row[1] = answer->place;
    row[2] = answer->fits ? "fits" : "does not fit";
    row[6] = answer->method;
    row[7] = gd_show_count_cell(cli, answer->micro_batch);
    row[8] = gd_show_bytes_cell(cli, (int64_t)answer->peak_bytes);
    if (answer->days <= 0)
      continue;
    gd_show_duration(&shown, answer->days, answer->days_low, answer->days_high);
    row[2] = gd_show_cell(cli, "%s", shown.value);
    row[3] = gd_show_cell(cli, "%s", shown.interval);
    row[4] = gd_show_cell(cli, "%s", gd_format_digits(text, sizeof text, answer->per_s, 3));
    if (answer->mfu > 0)
      row[5] =
          gd_show_cell(cli, "%s %%", gd_format_digits(text, sizeof text, 100 * answer->mfu, 2));
    if (isfinite(answer->rent_usd))
      row[9] = gd_show_cell(cli, "%s", gd_show_usd(text, sizeof text, answer->rent_usd));
    if (isfinite(answer->energy_kwh))
      row[10] = gd_show_cell(cli, "%s", gd_format_digits(text, sizeof text, answer->energy_kwh, 3));
    if (queued || limited)
      row[11] = gd_show_cell(cli, "%s", gd_show_day(day, answer->calendar.days));
    if (limited)
      row[12] = gd_deadline_name(gd_deadline_of(answer->calendar.days_low,
                                                answer->calendar.days_high, answer->limit_days));
  }
  return gd_show_rows(&rows, 0, err);
}

/* --- for programs -------------------------------------------------------------------------- */

void gd_answer_object(struct gd_show_object *to, const struct gd_answer *answer) {
  gd_show_set_text(to, "stack", answer->stack);
  gd_show_set_text_or_null(to, "software", answer->software);
  gd_show_set_text_or_null(to, "method_words", answer->words);
  gd_show_set_text_or_null(to, "trust", answer->trust);
  gd_show_set_positive(to, answer->images ? "images_per_s" : "tokens_per_s", answer->per_s);
  gd_show_set_positive(to, answer->images ? "images_per_s_per_gpu" : "tokens_per_s_per_gpu",
                       answer->per_gpu_per_s);
  gd_show_set_positive(to, "mfu", answer->mfu);
  gd_show_calendar(to, &answer->calendar, answer->limit_days);
  gd_show_set_real(to, "rent_usd", answer->rent_usd);
  gd_show_set_real(to, "rent_usd_per_gpu_hour", answer->rent_usd_per_gpu_hour);
  gd_show_set_text_or_null(to, "rent_provider", answer->provider);
  gd_show_set_text_or_null(to, "bought", answer->machine);
  gd_show_set_real(to, "hardware_usd", answer->hardware_usd);
  gd_show_set_real(to, "experiment_usd", answer->experiment_usd);
  gd_show_set_real(to, "wall_energy_kwh", answer->energy_kwh);
  gd_show_set_real(to, "energy_usd", answer->energy_usd);
  gd_show_set_real(to, "co2_kg", answer->co2_kg);
  gd_show_set_text_or_null(to, "next", answer->next);
  gd_show_set_text_or_null(to, "next_export", answer->elsewhere);
}

/* --- remedies ------------------------------------------------------------------------------ */

/* "+ckpt+zero1", "2 GPUs", "--seq 4096", "1 x H200": what changes. */
static const char *say_change(struct gd_cli *cli, const struct gd_remedy *remedy) {
  char size[GD_SHOW_TEXT];
  switch (remedy->kind) {
  case GD_REMEDY_METHOD: return gd_show_cell(cli, "%s", remedy->method);
  case GD_REMEDY_COUNT: return gd_show_cell(cli, "%d GPUs", remedy->count);
  case GD_REMEDY_SEQ: return gd_show_cell(cli, "sequence %lld", (long long)remedy->seq);
  case GD_REMEDY_HOST:
    return gd_show_cell(cli, "%s of host memory a GPU",
                        gd_format_bytes(size, sizeof size, remedy->host_bytes));
  case GD_REMEDY_GPU: break;
  }
  return gd_show_cell(cli, "%d x %s", remedy->count, short_title(remedy->gpu->title));
}

const char *gd_answer_remedy_command(struct gd_cli *cli, const struct gd_point *point,
                                     const struct gd_target *target,
                                     const struct gd_remedy *remedy) {
  const struct gd_cli_options *options = &cli->options;
  char recipe[GD_CLI_RECIPE_TEXT], size[64] = "", memory[96] = "";
  if (remedy->kind == GD_REMEDY_SEQ)
    snprintf(size, sizeof size, " --seq %lld --batch %lld", (long long)remedy->seq,
             (long long)remedy->batch);
  else
    gd_cli_recipe_options(cli, recipe, sizeof recipe);
  set_size(memory, sizeof memory, "--device-memory", options->device_memory_bytes);
  set_size(memory, sizeof memory, "--host-memory",
           remedy->kind == GD_REMEDY_HOST ? remedy->host_bytes : options->host_memory_bytes);
  return gd_show_cell(
      cli, "gpudays plan %s%s%s%s%s%s%s", gd_show_argument(cli, point->argument),
      remedy->kind == GD_REMEDY_SEQ ? size : recipe, target ? " " : "",
      target ? gd_answer_hardware(cli,
                                  remedy->kind == GD_REMEDY_GPU ? remedy->gpu->name : options->gpu,
                                  remedy->count)
             : "",
      memory, remedy->kind == GD_REMEDY_METHOD ? " --methods " : "",
      remedy->kind == GD_REMEDY_METHOD ? remedy->method : "");
}

/* ", 18 % slower than with enough memory" */
static void append_slowdown(struct gd_strbuf *text, double ratio) {
  double percent = 100 * (ratio - 1);
  if (fabs(percent) < 0.5)
    gd_strbuf_append(text, ", as fast as with enough memory");
  else
    gd_strbuf_printf(text, ", %.0f %% %s than with enough memory", fabs(percent),
                     percent > 0 ? "slower" : "faster");
}

void gd_answer_remedies(struct gd_cli *cli, const struct gd_point *point,
                        const struct gd_target *target, const struct gd_remedies *remedies) {
  for (int i = 0; i < remedies->count; i++) {
    const struct gd_remedy *remedy = &remedies->list[i];
    struct gd_show_duration shown;
    struct gd_strbuf text = {0};
    gd_strbuf_printf(&text, "%s: fits", say_change(cli, remedy));
    if (remedy->kind != GD_REMEDY_METHOD)
      gd_strbuf_printf(&text, " with %s", remedy->method);
    if (remedy->days > 0) {
      gd_show_duration(&shown, remedy->days, remedy->days, remedy->days);
      gd_strbuf_printf(&text, ", %s", shown.value);
    }
    if (remedy->days > 0 && remedies->days > 0 && remedy->kind <= GD_REMEDY_SEQ)
      append_slowdown(&text, remedy->days / remedies->days);
    gd_show_item_buffer(cli, i ? "" : "instead", &text);
    gd_show_item_command(cli, "", gd_answer_remedy_command(cli, point, target, remedy));
  }
  if (remedies->count == 0)
    gd_show_item(cli, "instead",
                 "nothing near to it fits: no other method, no more GPUs of this "
                 "kind, no shorter sequence");
}

void gd_answer_remedy_objects(struct gd_cli *cli, struct gd_show_object *to,
                              const struct gd_point *point, const struct gd_target *target,
                              const struct gd_remedies *remedies) {
  struct gd_show_object row, rows = {.object = json_array()};
  for (int i = 0; i < remedies->count; i++) {
    const struct gd_remedy *remedy = &remedies->list[i];
    gd_show_begin(&row);
    gd_show_set_text(&row, "change", say_change(cli, remedy));
    gd_show_set_text(&row, "method", remedy->method);
    gd_show_set_positive(&row, "days", remedy->days);
    gd_show_set_positive(&row, "days_ratio",
                         remedies->days > 0 ? remedy->days / remedies->days : 0);
    gd_show_set_text(&row, "command", gd_answer_remedy_command(cli, point, target, remedy));
    gd_show_append(&rows, &row);
  }
  gd_show_set_object(to, "remedies", &rows);
}
