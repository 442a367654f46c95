/*
 * `gpudays why MODEL`: what a run in any software reaches, what such software reaches elsewhere,
 * and what explains the gap. The causes and their simulation are predict/diagnosis.h's, logs are
 * predict/stack_log.h's.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/show_why.h"
#include "hw/collective.h"
#include "hw/estimate.h"
#include "search/points.h"

/* Up to it a run is as good as what is reached elsewhere: half of the predictions miss by 4 to 9 %,
   others by more. */
static const double good_gap = 1.15;

/* --- what was measured ----------------------------------------------------------------------- */

static enum gd_status check_asked(const struct gd_cli_options *options, struct gd_error *err) {
  int rates = (options->tokens_per_s > 0) + options->samples_per_s.given + (options->step_time > 0);
  if (rates > 1)
    return gd_fail(err, GD_BAD_INPUT,
                   "--tokens-per-s, --samples-per-s and --step-time say the same; give one");
  if (rates == 0 && !options->log)
    return gd_fail(err, GD_BAD_INPUT,
                   "why needs what you measured: --tokens-per-s X, --samples-per-s X, --step-time "
                   "TIME or --log FILE");
  if (!options->gpu && !options->log)
    return gd_fail(err, GD_BAD_INPUT, "why needs the GPUs of the run, as --gpu 4xa100");
  return GD_OK;
}

/* What the log says and the command line does not. */
static void take_settings(struct why *why) {
  struct gd_cli_options *options = &why->cli->options;
  const struct gd_stack_log *log = &why->log;
  if (options->seq == 0 && log->seq >= 2 && log->seq < 1e9)
    options->seq = (int64_t)log->seq;
  if (options->batch == 0 && log->batch >= 1 && log->batch < 1e9)
    options->batch = (int64_t)(log->batch + 0.5);
  if (options->count == 0 && options->gpu && log->gpus >= 1 && log->gpus <= 1e6)
    options->count = (int64_t)log->gpus;
  why->micro_batch =
      options->micro_batch_size > 0 ? options->micro_batch_size : (int64_t)log->micro_batch;
}

static enum gd_status load_model(struct why *why, struct gd_error *err) {
  struct gd_cli *cli = why->cli;
  const struct gd_stack_log *log = &why->log;
  if (cli->options.log)
    take_settings(why);
  else
    why->micro_batch = cli->options.micro_batch_size;
  GD_TRY(gd_cli_load_model(cli, cli->arguments[0], &why->model, err));
  /* build-nanogpt prints tokens and seconds; the sequence is the recipe's. */
  double tokens = log->step_tokens / (double)why->model.recipe.seq;
  if (cli->options.batch > 0 || why->model.family->images || !(tokens >= 1 && tokens < 1e9))
    return GD_OK;
  cli->options.batch = (int64_t)(tokens + 0.5);
  return gd_cli_load_model(cli, cli->arguments[0], &why->model, err);
}

static enum gd_status measure(struct why *why, struct gd_error *err) {
  const struct gd_cli_options *options = &why->cli->options;
  const struct gd_stack_log *log = &why->log;
  const struct gd_recipe *recipe = &why->model.recipe;
  bool images = why->model.family->images;
  double seq = images ? 1 : (double)recipe->seq, samples = 0;
  if (options->tokens_per_s > 0 && images)
    return gd_fail(err, GD_BAD_INPUT, "%s is a model of images; give --samples-per-s",
                   why->model.name);
  if (options->tokens_per_s > 0)
    samples = (double)options->tokens_per_s / seq;
  else if (options->samples_per_s.given)
    samples = options->samples_per_s.value;
  else if (options->step_time > 0)
    samples = (double)recipe->batch / options->step_time;
  else if (log->times.mean_s > 0 &&
           (options->batch > 0 ||
            (log->samples_per_s <= 0 && log->tokens_per_s <= 0 && log->tokens_per_gpu_s <= 0)))
    samples = (double)recipe->batch / log->times.mean_s;
  else if (log->samples_per_s > 0)
    samples = log->samples_per_s;
  else if (log->tokens_per_s > 0)
    samples = log->tokens_per_s / seq;
  else if (log->tokens_per_gpu_s > 0)
    samples = log->tokens_per_gpu_s * (options->count > 0 ? (double)options->count : 1) / seq;
  why->per_s = samples * seq;
  why->step_s = (double)recipe->batch / samples;
  return samples > 0
             ? GD_OK
             : gd_fail(err, GD_BAD_INPUT, "%s tells no rate; add --tokens-per-s", options->log);
}

/* --- what it ran as -------------------------------------------------------------------------- */

static void say(struct why *why, enum gd_run_fact fact, enum gd_run_answer answer,
                const char *words, const char *value) {
  struct gd_stack_log_fact *to = &why->question.facts_said[fact];
  to->answer = answer;
  snprintf(to->said, sizeof to->said, "%s%s", words, value ? value : "");
}

/* By options: what the command line says outweighs a log. */
static enum gd_status take_facts(struct why *why, struct gd_error *err) {
  struct gd_cli *cli = why->cli;
  const struct gd_cli_options *options = &cli->options;
  struct gd_diagnosis_question *q = &why->question;
  memcpy(q->facts_said, why->log.facts, sizeof q->facts_said);
  if (options->precision_given)
    say(why, GD_RUN_HALF, options->precision == GD_PRECISION_FP32 ? GD_RUN_NO : GD_RUN_YES,
        "--precision ", gd_precision_name(options->precision));
  if (options->stack && q->framework == GD_FRAMEWORK_PYTORCH &&
      strcmp(q->facts->name, "pytorch-eager") == 0)
    say(why, GD_RUN_COMPILED, GD_RUN_NO, "--stack ", options->stack);
  if (options->stack && strcmp(q->facts->name, "pytorch-compile") == 0 &&
      q->facts_said[GD_RUN_COMPILED].answer == GD_RUN_UNKNOWN)
    say(why, GD_RUN_COMPILED, GD_RUN_YES, "--stack ", options->stack);
  if (!options->methods)
    return GD_OK;
  struct gd_method *methods;
  int count;
  GD_TRY(gd_cli_methods(cli, "free-lunch", &methods, &count, err));
  if (count != 1)
    return gd_fail(err, GD_BAD_INPUT, "--methods lists %d; a run has one", count);
  why->method = methods[0];
  q->method = &why->method;
  if (why->method.ckpt)
    say(why, GD_RUN_CHECKPOINTING, GD_RUN_YES, "--methods ", options->methods);
  say(why, GD_RUN_FUSED_ATTENTION, gd_method_is_naive(&why->method) ? GD_RUN_NO : GD_RUN_YES,
      "--methods ", options->methods);
  return GD_OK;
}

static enum gd_status choose_stack(struct why *why, struct gd_error *err) {
  const char *stack = why->cli->options.stack;
  if (!stack)
    stack = why->log.format ? why->log.format->stack : "pytorch-compile";
  GD_TRY(gd_stacks_find(&why->stacks, stack, &why->question.facts, err));
  if (why->question.facts->own || why->question.facts->paper)
    return gd_fail(err, GD_BAD_INPUT, "why knows no causes in --stack %s; 'gpudays bench' does",
                   stack);
  why->question.framework = gd_stack_log_framework(&why->log, why->cli->options.stack);
  return GD_OK;
}

/* --- the hardware ---------------------------------------------------------------------------- */

/* A network that is slower than such machines usually have is a cause that is known. */
static enum gd_status take_network(struct why *why, int count, struct gd_error *err) {
  const struct gd_cli_options *options = &why->cli->options;
  struct gd_target usual;
  struct gd_fabric own, common;
  if (!options->network || why->target.nodes < 2)
    return GD_OK;
  GD_TRY(gd_hw_target(&why->hw, options->gpu, count, (int)options->nodes, options->machine, NULL,
                      &usual, err));
  gd_fabric_of(&why->target, &own);
  gd_fabric_of(&usual, &common);
  if (!(own.between_bytes_per_s < common.between_bytes_per_s))
    return GD_OK;
  why->question.links = own.between_bytes_per_s / common.between_bytes_per_s;
  why->target = usual;
  say(why, GD_RUN_FAST_NETWORK, GD_RUN_NO, "--network ", options->network);
  return GD_OK;
}

static enum gd_status find_target(struct why *why, struct gd_error *err) {
  const struct gd_cli_options *options = &why->cli->options;
  struct gd_model_facts facts;
  int count = options->count > 0 ? (int)options->count : 1;
  GD_TRY(gd_hw_target(&why->hw, options->gpu, count, (int)options->nodes, options->machine,
                      options->network, &why->target, err));
  GD_TRY(take_network(why, count, err));
  const double *peaks = why->target.gpu->flops;
  why->question.precision = peaks[GD_PEAK_BF16] > 0   ? GD_PRECISION_BF16
                            : peaks[GD_PEAK_FP16] > 0 ? GD_PRECISION_FP16
                                                      : GD_PRECISION_FP32;
  GD_TRY(gd_model_facts(&why->model, why->question.precision, &facts, err));
  why->peak =
      gd_estimate_peak(why->target.gpu, why->question.precision, GD_PEAKS_DATASHEET) * count;
  why->step_flops = facts.flops_per_step;
  if (why->model.recipe.batch < count)
    return gd_fail(err, GD_BAD_INPUT, "a batch of %lld leaves nothing for some of %d GPUs",
                   (long long)why->model.recipe.batch, count);
  return GD_OK;
}

/* More than the multipliers can do: the figure is wrong, not the run. */
static enum gd_status check_possible(struct why *why, struct gd_error *err) {
  const struct gd_diagnosis *d = &why->diagnosis;
  char rate[GD_SHOW_TEXT], most[GD_SHOW_TEXT];
  if (why->step_s >= d->bound_s)
    return GD_OK;
  const char *unit = why->model.family->images ? "images" : "tokens";
  return gd_fail(err, GD_MISMATCH,
                 "%s %s/s is impossible: at the peak of %d x %s its multipliers alone allow %s; "
                 "name all GPUs of the job (--gpu %dx%s, --count), the run's --seq, and count "
                 "accumulated micro-batches once",
                 gd_format_digits(rate, sizeof rate, why->per_s, 3), unit, why->target.count,
                 why->target.gpu->title,
                 gd_format_digits(most, sizeof most, why->per_s * why->step_s / d->bound_s, 3),
                 2 * why->target.count, why->target.gpu->name);
}

/* What gpudays itself is predicted to reach there: by its best method, as `plan` answers. */
static enum gd_status predict_own(struct why *why, struct gd_error *err) {
  struct gd_cli *cli = why->cli;
  struct gd_predicting predicting = {0};
  struct gd_points points = {0};
  struct gd_points_asked asked = {.models = &why->model, .n_models = 1};
  struct gd_cli given = *cli;
  given.options.methods = NULL;
  given.options.precision_given = false;
  given.options.stack = NULL;
  given.options.micro_batch_size = 0;
  given.options.micro_batch = GD_MICRO_BATCH_AUTO;
  struct gd_points_kept *kept = gd_points_kept_new();
  enum gd_status status =
      kept ? gd_predicting_open(&predicting, &given, err) : gd_nomem(err, "before the first plan");
  struct gd_point_machine machine = gd_predicting_machine(&predicting);
  struct gd_method *methods;
  if (status == GD_OK)
    status = gd_cli_methods(&given, "all", &methods, &asked.n_methods, err);
  if (status == GD_OK) {
    asked.methods = methods;
    asked.machines = &machine;
    asked.n_machines = 1;
    gd_cli_trial_options(&given, &(struct gd_method){0}, &asked.options);
    status = gd_points_make(&asked, &points, err);
  }
  if (status == GD_OK)
    status = gd_points_plan_with(kept, points.all, points.count, err);
  const struct gd_point *best = status == GD_OK ? gd_points_best(points.all, points.count) : NULL;
  if (best && best->prediction.known)
    why->own_s = best->prediction.step_s;
  gd_points_free(&points);
  gd_points_kept_free(kept);
  gd_predicting_close(&predicting);
  cli->arena = given.arena;
  return status;
}

/* --- published rates ------------------------------------------------------------------------- */

/* How far a row is from the question, in factors of two and the like. */
static double apart(const struct why *why, const struct gd_published_row *row, double parameters) {
  double own = why->parameters;
  return fabs(log2(parameters / own)) +
         0.2 * fabs(log2((double)row->target.count / why->target.count)) +
         (row->seq > 0 ? 0.3 * fabs(log2((double)row->seq / (double)why->model.recipe.seq)) : 0) +
         (row->facts != why->question.facts);
}

static enum gd_status find_published(struct why *why, struct gd_error *err) {
  const double far = 3;
  struct gd_graph graph;
  GD_TRY(gd_published_load(&why->published, err));
  gd_graph_init(&graph);
  why->model.family->build(&why->model, 1, &graph);
  enum gd_status status = gd_graph_check(&graph, err);
  why->parameters = (double)gd_graph_parameters(&graph);
  gd_graph_deinit(&graph);
  double nearest = far;
  for (int i = 0; i < why->published.count && status == GD_OK; i++) {
    const struct gd_published_row *row = &why->published.rows[i];
    double parameters = why->published.works[row->works].parameters;
    if (row->target.gpu != NULL && strcmp(row->target.gpu->name, why->target.gpu->name) == 0 &&
        (row->seq == 0) == why->model.family->images && apart(why, row, parameters) < nearest) {
      nearest = apart(why, row, parameters);
      why->near = row;
    }
  }
  return status;
}

/* --- all of it ------------------------------------------------------------------------------- */

static enum gd_status diagnose(struct why *why, struct gd_error *err) {
  struct gd_diagnosis_question *q = &why->question;
  GD_TRY(gd_stacks_load(&why->stacks, err));
  GD_TRY(choose_stack(why, err));
  GD_TRY(take_facts(why, err));
  q->model = &why->model;
  q->stacks = &why->stacks;
  q->micro_batch = why->micro_batch;
  q->step_s = why->step_s;
  q->log = why->cli->options.log ? &why->log : NULL;
  q->counted_by_hand = why->cli->options.tokens_per_s > 0 || why->cli->options.samples_per_s.given;
  if (!why->cli->options.gpu)
    return gd_diagnosis_of_log(q, &why->diagnosis, err);
  GD_TRY(gd_hw_load(&why->hw, err));
  GD_TRY(gd_fitted_load(&why->fitted, err));
  GD_TRY(find_target(why, err));
  if (why->micro_batch > 0)
    q->accumulation =
        (double)why->model.recipe.batch / ((double)why->target.count * (double)why->micro_batch);
  q->hw = &why->hw;
  q->target = &why->target;
  q->fitted = &why->fitted;
  GD_TRY(gd_diagnosis_make(q, &why->diagnosis, err));
  GD_TRY(check_possible(why, err));
  why->gap = why->step_s / why->diagnosis.healthy_s;
  why->good = why->gap <= good_gap;
  GD_TRY(find_published(why, err));
  struct gd_error own = {0}; /* of a GPU that it does not run on: then nothing is said of it */
  if (predict_own(why, &own) != GD_OK)
    why->own_s = 0;
  return GD_OK;
}

enum gd_status gd_cmd_why(struct gd_cli *cli, struct gd_error *err) {
  struct why *why = gd_arena_alloc(&cli->arena, 1, sizeof *why);
  if (!why)
    return gd_nomem(err, "before a diagnosis");
  why->cli = cli;
  GD_TRY(check_asked(&cli->options, err));
  if (cli->options.log)
    GD_TRY(gd_stack_log_load(&why->log, cli->options.log, err));
  enum gd_status status = load_model(why, err);
  if (status == GD_OK)
    status = measure(why, err);
  if (status == GD_OK)
    status = diagnose(why, err);
  if (status == GD_OK)
    status = gd_show_why(why, err);
  gd_diagnosis_deinit(&why->diagnosis);
  gd_published_deinit(&why->published);
  gd_stacks_deinit(&why->stacks);
  gd_hw_deinit(&why->hw);
  gd_stack_log_deinit(&why->log);
  return status;
}
