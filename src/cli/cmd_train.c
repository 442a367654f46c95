/*
 * `gpudays train MODEL --data FILE...` and `gpudays train RUN`: trains, or goes on. What a run is
 * made of is src/train's; here are the settings and what is shown.
 */
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cpus.h"
#include "base/exit_code.h"
#include "base/switches.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/progress.h"
#include "cli/show_model.h"
#include "cli/show_run.h"
#include "cli/train_jobs.h"
#include "comm/comm.h"
#include "comm/start_ranks.h"
#include "model/presets.h"
#include "search/slurm_config.h"
#include "store/store_best.h"
#include "train/run_settings.h"
#include "train/train.h"
#include "train/trained.h"

enum { DEFAULT_KEEP = 2, DEFAULT_EVAL_SAMPLES = 256 };
/* What repeated tokens are worth has decayed by then: arXiv:2305.16264, section 6. */
enum { MOST_EPOCHS = 40 };
#define DEFAULT_CHECKPOINT_S 1800.0
#define RUNS                 "runs" /* the folder of runs that nobody named */

/* --- signals ------------------------------------------------------------------------------- */

static volatile sig_atomic_t asked_to_stop; /* the signal; 0: none */

static int64_t asked_ns;

/* A second one ends the process; not one right behind the first, which a launcher passed on to a
   process that had it already. */
static void note_signal(int signal_number) {
  if (asked_to_stop && gd_clock_ns() - asked_ns > 1000000000) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
  } else if (!asked_to_stop) {
    asked_ns = gd_clock_ns();
    asked_to_stop = signal_number;
  }
}

/* A mapped token file became shorter, or its disk failed. */
static void end_at_bus_error(int signal_number) {
  static const char text[] =
      "gpudays: a data file became shorter, or its disk failed, while it was read; "
      "'gpudays train RUN' goes on from the last checkpoint when it is whole\n";
  (void)signal_number;
  (void)!write(STDERR_FILENO, text, sizeof text - 1);
  _exit(GD_EXIT_ENVIRONMENT);
}

static void catch_signals(void) {
  signal(SIGPIPE, SIG_IGN); /* who reads the notes may go; the run stays */
  signal(SIGBUS, end_at_bus_error);
  static const int signals[] = {SIGINT, SIGTERM, SIGUSR1, SIGHUP};
  for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
    struct sigaction action = {.sa_handler = note_signal, .sa_flags = SA_RESTART}, before;
    sigemptyset(&action.sa_mask);
    if (sigaction(signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
      sigaction(signals[i], &action, NULL);
  }
}

static bool is_asked_to_stop(void *user) {
  (void)user;
  return asked_to_stop != 0;
}

/* --- what is shown ------------------------------------------------------------------------- */

struct watching {
  struct gd_cli *cli;
  struct gd_progress progress;
  const struct gd_run_settings *settings;
  const char *folder;
  struct gd_trial plan;
  int64_t retries;    /* so often was it started again */
  int64_t first_step; /* of this process */
  int64_t begun_ns;   /* its first step, */
  int64_t n_steps;    /* and how many it has made */
};

static void show_opened(void *user, const struct gd_trial *plan, int64_t step) {
  struct watching *w = user;
  w->plan = *plan;
  w->first_step = step;
  w->begun_ns = gd_clock_ns();
}

static void show_step(void *user, const struct gd_train_step *s) {
  enum { FIELDS = 7, TEXT = 160 };
  struct watching *w = user;
  char text[FIELDS][TEXT], tokens[GD_SHOW_TEXT], left[GD_SHOW_TEXT], date[GD_SHOW_TEXT];
  int64_t steps = w->settings->model.recipe.steps;
  double spent_s = 1e-9 * (double)(gd_clock_ns() - w->begun_ns); /* with all that is not a step */
  double left_s = spent_s / (double)++w->n_steps * (double)(steps - s->step);
  gd_show_date(date, sizeof date, (int64_t)time(NULL) + (int64_t)left_s);
  gd_show_seconds(left, sizeof left, left_s < 1 ? 1 : left_s);
  gd_format_number(tokens, sizeof tokens, s->tokens_per_s, 0);
  snprintf(text[0], TEXT, "step %lld of %lld", (long long)s->step, (long long)steps);
  snprintf(text[1], TEXT, "loss %.4f", s->loss);
  snprintf(text[2], TEXT, "done %s (%s left)", date, left);
  snprintf(text[3], TEXT, "%s %s/s", tokens, s->images ? "images" : "tokens");
  snprintf(text[4], TEXT, "MFU %.0f %%", 100 * s->mfu);
  snprintf(text[5], TEXT, "lr %.2e", s->lr);
  snprintf(text[6], TEXT, "norm %.3g", s->norm);
  struct gd_progress_field fields[FIELDS];
  int count = 0;
  for (int i = 0; i < FIELDS; i++)
    if (i != 4 || s->mfu > 0)
      fields[count++] = (struct gd_progress_field){text[i], i};
  gd_progress_fields(&w->progress, fields, count);
}

static void show_note(void *user, const char *sentence) {
  struct watching *w = user;
  gd_progress_clear(&w->progress);
  fprintf(stderr, "gpudays: %s\n", sentence);
}

static bool holds_weights(const char *folder) {
  char path[GD_FILE_PATH];
  snprintf(path, sizeof path, "%.4000s/model.safetensors", folder);
  return access(path, F_OK) == 0;
}

/* Weights that lie next to a configuration are easily taken for those that a run begins with. */
static void append_weights(struct gd_cli *cli, const struct gd_run_settings *s) {
  const char *folder = cli->arguments[0];
  if (s->init[0])
    gd_strbuf_printf(&cli->out, "  initial weights: %s\n", s->init);
  else if (holds_weights(folder))
    gd_strbuf_printf(&cli->out, "  initial weights: drawn; those in %s are not used (--init %s)\n",
                     folder, folder);
}

static void append_end(struct watching *w, const struct gd_train_end *end) {
  struct gd_cli *cli = w->cli;
  const struct gd_recipe *recipe = &w->settings->model.recipe;
  char time_text[GD_SHOW_TEXT], step_text[GD_SHOW_TEXT], rate[GD_SHOW_TEXT], line[1024];
  int64_t done = end->step - w->first_step;
  bool images = w->settings->model.family->images;
  gd_show_bold(cli, w->settings->model.name);
  gd_strbuf_printf(&cli->out, ": %lld of %lld steps", (long long)end->step,
                   (long long)recipe->steps);
  if (done > 0)
    gd_strbuf_printf(&cli->out, ", loss %.4f", end->loss);
  if (end->eval_loss > 0)
    gd_strbuf_printf(&cli->out, ", evaluation %.4f", end->eval_loss);
  if (end->eval_accuracy >= 0)
    gd_strbuf_printf(&cli->out, ", top-1 %.2f %%", 100 * end->eval_accuracy);
  gd_strbuf_append(&cli->out, "\n");
  if (end->resumed && done > 0) {
    snprintf(line, sizeof line, "went on from the checkpoint of step %lld",
             (long long)end->resumed_step);
    gd_show_paragraph(&cli->out, 2, line);
  }
  if (w->retries > 0)
    gd_strbuf_printf(&cli->out,
                     "  started again %lld time%s, after a rank or the process had died\n",
                     (long long)w->retries, w->retries == 1 ? "" : "s");
  if (done > 0) {
    snprintf(line, sizeof line,
             "%lld step%s in %s, %s each (median): %s %s/s; %s, gradient accumulation %lld x "
             "micro-batch %lld",
             (long long)done, done == 1 ? "" : "s",
             gd_show_seconds(time_text, sizeof time_text, end->seconds),
             gd_show_seconds(step_text, sizeof step_text, end->step_s),
             gd_format_number(rate, sizeof rate,
                              (double)(recipe->batch * (images ? 1 : recipe->seq)) / end->step_s,
                              0),
             images ? "images" : "tokens", w->plan.method, (long long)w->plan.accumulation,
             (long long)w->plan.micro_batch);
    gd_show_paragraph(&cli->out, 2, line);
  }
  if (images && done > 0) {
    snprintf(line, sizeof line, "data wait %s, %.0f %% of the time",
             gd_show_seconds(time_text, sizeof time_text, end->data_wait_s),
             100 * end->data_wait_s / end->seconds);
    gd_show_paragraph(&cli->out, 2, line);
  }
  if (done > 0 && end->expected_step_s > 0) {
    double more = end->step_s / end->expected_step_s - 1;
    snprintf(line, sizeof line, "%s %s a step: this is %.0f %% %s",
             strcmp(end->expected_by, "trial") == 0 ? "bench measured" : "predicted were",
             gd_show_seconds(step_text, sizeof step_text, end->expected_step_s), 100 * fabs(more),
             more >= 0 ? "longer" : "shorter");
    gd_show_paragraph(&cli->out, 2, line);
  }
  if (end->skipped > 0)
    gd_strbuf_printf(&cli->out,
                     "  %lld update%s skipped: the loss was not finite, or it or the norm spiked\n",
                     (long long)end->skipped, end->skipped == 1 ? " was" : "s were");
  if (end->best_step >= 0)
    gd_strbuf_printf(&cli->out, "  lowest evaluation loss: the checkpoint of step %lld\n",
                     (long long)end->best_step);
  append_weights(cli, w->settings);
  if (end->finished)
    snprintf(line, sizeof line, "the model is in %s/model, as transformers loads it", w->folder);
  else
    snprintf(line, sizeof line, "%s: 'gpudays train %s' goes on",
             end->asked ? "asked to stop" : "the time is up", w->folder);
  gd_show_paragraph(&cli->out, 2, line);
}

static enum gd_status append_object(struct watching *w, const struct gd_train_end *end,
                                    struct gd_error *err) {
  const struct gd_recipe *recipe = &w->settings->model.recipe;
  struct gd_show_object object;
  gd_show_begin(&object);
  gd_show_set_text(&object, "run", w->folder);
  gd_show_set_text(&object, "model", w->settings->model.name);
  gd_show_set_text(&object, "method", w->plan.method);
  gd_show_set_int(&object, "micro_batch", w->plan.micro_batch);
  gd_show_set_int(&object, "accumulation", w->plan.accumulation);
  gd_show_set_int(&object, "step", end->step);
  gd_show_set_int(&object, "steps", recipe->steps);
  gd_show_set_bool(&object, "finished", end->finished);
  if (end->resumed)
    gd_show_set_int(&object, "resumed_step", end->resumed_step);
  else
    gd_show_set_null(&object, "resumed_step");
  gd_show_set_real(&object, "loss", end->loss);
  gd_show_set_positive(&object, "eval_loss", end->eval_loss);
  if (end->eval_accuracy >= 0)
    gd_show_set_real(&object, "eval_accuracy", end->eval_accuracy);
  else
    gd_show_set_null(&object, "eval_accuracy");
  if (end->best_step >= 0)
    gd_show_set_int(&object, "best_step", end->best_step);
  else
    gd_show_set_null(&object, "best_step");
  gd_show_set_real(&object, "step_s", end->step_s);
  gd_show_set_positive(&object, "expected_step_s", end->expected_step_s);
  gd_show_set_text(&object, "expected_by", end->expected_by);
  gd_show_set_real(&object, "seconds", end->seconds);
  gd_show_set_real(&object, "checkpoint_stall_s", end->stalled_s);
  gd_show_set_real(&object, "data_wait_s", end->data_wait_s);
  gd_show_set_int(&object, "skipped", end->skipped);
  gd_show_set_int(&object, "retries", w->retries);
  return gd_show_json(&w->cli->out, &object, err);
}

/* --- settings ------------------------------------------------------------------------------ */

/* What a recipe's file calls them, and what the command line does. */
static const char *const recipe_options[][2] = {{"lr", "lr"},
                                                {"min_lr", "min-lr"},
                                                {"weight_decay", "weight-decay"},
                                                {"max_grad_norm", "clip"},
                                                {"warmup_steps", "warmup"},
                                                {"decay_steps", "decay"},
                                                {"schedule", "schedule"},
                                                {"betas", "betas"}};
#define COMMAND_LINE "the command line"

/* "the command line: warmup_steps is 10; expected ...": in the words of who has typed --warmup. */
static void name_option(struct gd_error *err) {
  char text[sizeof err->text];
  size_t head = strlen(COMMAND_LINE ": ");
  if (!err || strncmp(err->text, COMMAND_LINE ": ", head) != 0)
    return;
  size_t length = strcspn(err->text + head, " ");
  for (size_t i = 0; i < sizeof recipe_options / sizeof *recipe_options; i++)
    if (strlen(recipe_options[i][0]) == length &&
        strncmp(err->text + head, recipe_options[i][0], length) == 0) {
      snprintf(text, sizeof text, "--%s%.900s", recipe_options[i][1], err->text + head + length);
      memcpy(err->text, text, sizeof text);
      return;
    }
}

static enum gd_status read_betas(const char *text, json_t *to, struct gd_error *err) {
  char *end, clean[64];
  double first = strtod(text, &end), second = *end == ',' ? strtod(end + 1, &end) : -1;
  if (*end || !(first >= 0 && first < 1 && second >= 0 && second < 1))
    return gd_fail(err, GD_BAD_INPUT,
                   "--betas is \"%s\"; expected two numbers from 0 to below 1, such as 0.9,0.95",
                   gd_json_excerpt(clean, sizeof clean, text));
  json_object_set_new(to, "betas", json_pack("[f,f]", first, second));
  return GD_OK;
}

/* The recipe's values that the command line gives, checked as those of a file are. */
static enum gd_status change_recipe(const struct gd_cli *cli, struct gd_recipe *recipe,
                                    struct gd_error *err) {
  const struct gd_cli_options *o = &cli->options;
  struct gd_json json = {.root = json_object(), .file = COMMAND_LINE};
  const struct {
    const char *key;
    const struct gd_cli_number *number;
  } numbers[] = {{"lr", &o->lr},
                 {"min_lr", &o->min_lr},
                 {"weight_decay", &o->weight_decay},
                 {"max_grad_norm", &o->clip}};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
    if (numbers[i].number->given)
      json_object_set_new(json.root, numbers[i].key, json_real(numbers[i].number->value));
  if (o->warmup.given)
    json_object_set_new(json.root, "warmup_steps", json_integer((json_int_t)o->warmup.value));
  if (o->decay.given)
    json_object_set_new(json.root, "decay_steps", json_integer((json_int_t)o->decay.value));
  if (o->schedule)
    json_object_set_new(json.root, "schedule", json_string(o->schedule));
  enum gd_status status = o->betas ? read_betas(o->betas, json.root, err) : GD_OK;
  if (status == GD_OK) {
    status = gd_recipe_parse(&json, json.root, recipe, err);
    name_option(err);
  }
  gd_json_deinit(&json);
  return status;
}

static int ranks_of(const struct gd_cli *cli) {
  return cli->comm ? gd_comm_size(cli->comm) : 1;
}

/* The method of the best trial that was measured here, or free-lunch. */
static const char *best_method(struct gd_cli *cli, const struct gd_model *model) {
  struct gd_store_filter filter = {0};
  char recipe[GD_CLI_RECIPE_TEXT], name[GD_METHOD_NAME];
  struct gd_best_asked asked = gd_cli_best_asked(cli, model, &filter, recipe);
  bool found = gd_best_method(cli->options.store, &asked, gd_cli_backend(cli), ranks_of(cli), name);
  return found ? gd_arena_copy_string(&cli->arena, name) : "free-lunch";
}

enum gd_status gd_cli_find_trained(struct gd_cli *cli, const char *path, struct gd_trained *trained,
                                   struct gd_error *err) {
  struct gd_strbuf damaged = {0};
  enum gd_status status = gd_trained_find(path, &cli->arena, trained, &damaged, err);
  if (damaged.length > 0)
    fprintf(stderr, "gpudays: %s", damaged.text);
  gd_strbuf_deinit(&damaged);
  return status;
}

/* What is said of images, for a model of images; nothing, for others. */
static enum gd_status image_settings(struct gd_cli *cli, const struct gd_trained *init,
                                     struct gd_run_settings *s, struct gd_error *err) {
  const struct gd_cli_options *o = &cli->options;
  const char *given = o->augment                 ? "--augment"
                      : o->normalize             ? "--normalize"
                      : o->label_smoothing.given ? "--label-smoothing"
                      : o->data_threads          ? "--data-threads"
                                                 : NULL;
  if (!s->model.family->images && given)
    return gd_fail(err, GD_BAD_INPUT, "%s is for models of images, and %s is trained on tokens",
                   given, s->model.name);
  if (s->model.family->images && (o->mask_token.given || o->token_bytes))
    return gd_fail(err, GD_BAD_INPUT, "%s is for models of tokens, and %s is trained on images",
                   o->token_bytes ? "--token-bytes" : "--mask-token", s->model.name);
  const struct gd_run_images images = {
      .augment = o->augment,
      .normalize = o->normalize,
      .label_smoothing = o->label_smoothing.given ? &o->label_smoothing.value : NULL,
      .drop_path = o->drop_path.given ? &o->drop_path.value : NULL,
      .model = cli->arguments[0],
      .init = init};
  return gd_run_set_images(s, &images, &cli->arena, err);
}

/* What is named first is a run or a model, and --data is there. */
static enum gd_status check_named(const struct gd_cli *cli, struct gd_error *err) {
  const char *name = cli->arguments[0];
  char config[GD_FILE_PATH], preset[GD_PRESET_NAME];
  struct stat about;
  bool found;
  snprintf(config, sizeof config, "%.4000s/config.json", name);
  bool folder = stat(name, &about) == 0 && S_ISDIR(about.st_mode);
  if (folder && gd_file_is_missing(config))
    return gd_fail(err, GD_BAD_INPUT,
                   "%s is neither a run of 'gpudays train' nor a model: the folder has no run.json "
                   "and no config.json",
                   name);
  if (cli->options.data)
    return GD_OK;
  if (strchr(name, '/') && gd_file_is_missing(name)) {
    GD_TRY(gd_preset_of_name(name, preset, &found, err));
    if (!found)
      return gd_fail(err, GD_BAD_INPUT, "there is no run and no model %s", name);
  }
  if (cli->n_arguments > 1)
    return gd_fail(err, GD_BAD_INPUT,
                   "train needs --data before the files: gpudays train %s --data %s", name,
                   cli->arguments[1]);
  struct gd_model model;
  GD_TRY(gd_model_load(name, &model, err));
  return gd_fail(err, GD_BAD_INPUT,
                 "train needs --data FILE: token ids as nanoGPT, llm.c, Megatron-LM or NumPy "
                 "write them, or a folder or tar archives of images");
}

/* Settings of a new run. */
static enum gd_status new_settings(struct gd_cli *cli, struct gd_run_settings *s,
                                   struct gd_error *err) {
  const struct gd_cli_options *o = &cli->options;
  struct gd_strbuf config = {0};
  struct gd_model named;
  const char **data = gd_arena_alloc(&cli->arena, (size_t)cli->n_arguments + 1, sizeof *data);
  const char **eval = gd_arena_alloc(&cli->arena, 1, sizeof *eval);
  if (!data || !eval)
    return gd_nomem(err, "before training");
  GD_TRY(check_named(cli, err));
  if ((o->eval_every || o->samples) && !o->eval)
    return gd_fail(err, GD_BAD_INPUT, "--%s needs data to evaluate on: --eval FILE",
                   o->eval_every ? "eval-every" : "samples");
  GD_TRY(gd_cli_load_model(cli, cli->arguments[0], &s->model, err));
  GD_TRY(gd_model_load_config(cli->arguments[0], &named, &config, err));
  s->config_text = gd_arena_copy_string(&cli->arena, config.text);
  gd_strbuf_deinit(&config);
  if (!s->config_text)
    return gd_nomem(err, "before training");
  if (o->precision_given)
    s->model.recipe.precision = o->precision;
  data[s->n_data++] = o->data;
  for (int i = 1; i < cli->n_arguments; i++)
    data[s->n_data++] = cli->arguments[i];
  if (o->eval)
    eval[s->n_eval++] = o->eval;
  s->data = data;
  s->eval = eval;
  s->init = "";
  struct gd_trained from;
  if (o->init) {
    GD_TRY(gd_cli_find_trained(cli, o->init, &from, err));
    s->init = gd_arena_copy_string(&cli->arena, from.weights);
    if (!s->init)
      return gd_nomem(err, "before training");
  }
  GD_TRY(image_settings(cli, o->init ? &from : NULL, s, err));
  GD_TRY(gd_run_set_tokenizer(s, o->tokenizer, cli->arguments[0], &cli->arena, err));
  s->method = o->methods ? o->methods : best_method(cli, &s->model);
  s->micro_batch = o->micro_batch == GD_MICRO_BATCH_FIXED ? o->micro_batch_size : 0;
  s->seed = o->seed;
  GD_TRY(gd_run_set_mask(s, o->mask_token.given ? (int64_t)o->mask_token.value : -1, err));
  s->token_bytes = o->token_bytes;
  if (o->epochs.given && (o->steps || o->tokens))
    return gd_fail(err, GD_BAD_INPUT, "--%s and --epochs say the same thing twice; give one",
                   o->steps ? "steps" : "tokens");
  if (o->epochs.given) {
    GD_TRY(gd_run_set_epochs(s, o->epochs.value, ranks_of(cli), (int)o->data_threads, err));
    if (s->model.assumed & GD_ASSUMED_STEPS && !s->model.family->images)
      gd_model_assume_warmup(&s->model);
    s->model.assumed &= ~(unsigned)GD_ASSUMED_STEPS;
  }
  if (o->steps || o->tokens || o->epochs.given)
    gd_run_shorten_warmup(&s->model.recipe);
  GD_TRY(change_recipe(cli, &s->model.recipe, err));
  s->ranks = o->ranks;
  s->threads = o->threads;
  s->deterministic = gd_arena_copy_string(&cli->arena, gd_cli_determinism());
  if (!s->deterministic)
    return gd_nomem(err, "before training");
  gd_run_set_usual(s);
  if (o->samples)
    s->eval_samples = o->samples;
  return GD_OK;
}

/* What may change between two sessions of a run. */
static void change_settings(const struct gd_cli *cli, struct gd_run_settings *s) {
  const struct gd_cli_options *o = &cli->options;
  if (o->methods)
    s->method = o->methods;
  if (o->micro_batch == GD_MICRO_BATCH_FIXED)
    s->micro_batch = o->micro_batch_size;
  if (o->checkpoint_every.given) {
    s->checkpoint_steps = o->checkpoint_every.value > 0 ? (int64_t)o->checkpoint_every.value : 0;
    s->checkpoint_s = o->checkpoint_every.value < 0 ? -o->checkpoint_every.value : 0;
  }
  if (o->keep)
    s->keep = o->keep;
  if (o->eval_every)
    s->eval_steps = o->eval_every;
}

/* What a run that goes on may be given; every other option would change what it trains. */
static bool may_change(const char *option) {
  static const char *const names[] = {
      "backend",       "threads",       "methods",      "micro-batch",
      "device-memory", "host-memory",   "ranks",        "store",
      "time-limit",    "rank-timeout",  "retries",      "checkpoint-every",
      "keep",          "eval-every",    "data-threads", "dry-run",
      "deterministic", "json",          "quiet",        "slurm",
      "slurm-config",  "slurm-device",  "nodes",        "job-time",
      "job-status",    "check-hardware"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(option, names[i]) == 0)
      return true;
  return false;
}

static enum gd_status refuse_changes(const struct gd_cli *cli, struct gd_error *err) {
  const char *given = cli->n_arguments > 1 ? "further files" : NULL;
  char option[64];
  for (int i = 0; i < cli->n_given && !given; i++)
    if (!may_change(cli->given[i]->name)) {
      snprintf(option, sizeof option, "--%s", cli->given[i]->name);
      given = option;
    }
  if (given)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s is a run with settings of its own (%s/run.json), and %s would change what "
                   "it trains: leave it out, or start a new run",
                   cli->arguments[0], cli->arguments[0], given);
  return GD_OK;
}

/* --- all of it ----------------------------------------------------------------------------- */

static void append_tokens(struct gd_cli *cli, const struct gd_recipe *r,
                          const struct gd_dataset *data) {
  char tokens[GD_SHOW_TEXT], sequences[GD_SHOW_TEXT];
  double epochs = (double)(r->batch * r->steps) / (double)data->sequences;
  gd_strbuf_printf(&cli->out, "  data: %s tokens, %s sequences, %.*f epochs\n",
                   gd_format_count(tokens, sizeof tokens, data->tokens),
                   gd_format_count(sequences, sizeof sequences, data->sequences),
                   epochs < 0.1 ? 4 : 2, epochs);
  if (epochs > MOST_EPOCHS)
    gd_strbuf_printf(
        &cli->out,
        "    after %d epochs hardly anything is learnt from the same tokens: bring more "
        "data, or train less (--epochs, --tokens, --steps)\n",
        MOST_EPOCHS);
  for (int i = 0; i < data->n_parts; i++)
    gd_strbuf_printf(&cli->out, "    %s: %s, %d bytes an id\n", data->parts[i].file.path,
                     gd_token_format_name(data->parts[i].file.format), data->parts[i].file.width);
}

static void append_images(struct gd_cli *cli, const struct gd_run_settings *s,
                          const struct gd_image_set *set) {
  const struct gd_recipe *r = &s->model.recipe;
  char images[GD_SHOW_TEXT];
  gd_strbuf_printf(&cli->out, "  data: %s images of %u classes, %.2f epochs",
                   gd_format_count(images, sizeof images, set->files.count), set->files.n_classes,
                   (double)(r->batch * r->steps) / (double)set->files.count);
  if (set->files.classes)
    gd_strbuf_printf(&cli->out, ": %s to %s", set->files.classes[0],
                     set->files.classes[set->files.n_classes - 1]);
  gd_strbuf_printf(
      &cli->out, "\n  %lld x %lld pixels; augmentation %s, label smoothing %g, normalization %s\n",
      (long long)set->options.height, (long long)set->options.width, s->augment, s->label_smoothing,
      s->normalize);
  if (r->drop_path > 0)
    gd_strbuf_printf(&cli->out, "  stochastic depth: up to %g, at the last block\n", r->drop_path);
}

static void append_plan(struct gd_cli *cli, const char *folder, const struct gd_run_settings *s,
                        const struct gd_trial *trial, const struct gd_source *data) {
  const struct gd_recipe *r = &s->model.recipe;
  gd_show_bold(cli, s->model.name);
  gd_strbuf_printf(&cli->out, ", %s, %s", trial->method, gd_precision_name(trial->precision));
  if (trial->precision_substituted)
    gd_strbuf_printf(&cli->out, " (for the recipe's %s, which is not fast here)",
                     gd_precision_name(r->precision));
  gd_strbuf_append(&cli->out, ": nothing was trained\n");
  gd_strbuf_printf(&cli->out, "  %lld steps of %lld", (long long)r->steps, (long long)r->batch);
  if (s->model.family->images)
    gd_strbuf_append(&cli->out, " images");
  else
    gd_strbuf_printf(&cli->out, " x %lld tokens", (long long)r->seq);
  gd_strbuf_printf(&cli->out, "; lr %g to %g, %s, warm-up %lld\n", r->lr, r->min_lr,
                   gd_schedule_name(r->schedule), (long long)r->warmup_steps);
  gd_strbuf_printf(&cli->out, "  %s, betas %g %g, eps %g, %s %g, clipping %g, seed %lld\n",
                   gd_optimizer_name(r->optimizer), r->beta1, r->beta2, r->eps,
                   gd_recipe_decay_name(r), r->weight_decay, r->max_grad_norm, (long long)s->seed);
  if (gd_source_tokens(data))
    append_tokens(cli, r, gd_source_tokens(data));
  else
    append_images(cli, s, gd_source_images(data));
  append_weights(cli, s);
  gd_strbuf_printf(&cli->out, "  folder: %s\n", folder);
}

static enum gd_status trial_options(const struct gd_cli *cli, const struct gd_run_settings *s,
                                    struct gd_trial_options *out, struct gd_error *err) {
  gd_cli_trial_options(cli, &(struct gd_method){0}, out);
  out->comm = cli->comm;
  return gd_run_trial_options(s, cli->options.micro_batch == GD_MICRO_BATCH_FIXED, out, err);
}

/* --dry-run: what would be trained, and whether it fits. */
static enum gd_status show_plan(struct gd_cli *cli, const char *folder,
                                const struct gd_run_settings *s, const struct gd_source *data,
                                struct gd_error *err) {
  struct gd_trial_options options;
  struct gd_trial trial;
  char memory[32], checkpoint[32], parameters[GD_SHOW_TEXT];
  GD_TRY(trial_options(cli, s, &options, err));
  GD_TRY(gd_trial_plan(&s->model, &options, &trial, err));
  if (trial.status == GD_TRIAL_INFEASIBLE)
    return gd_fail(err, GD_NOMEM_DEVICE, "%s", trial.reason);
  if (cli->options.json) {
    struct gd_show_object object;
    gd_show_begin(&object);
    gd_show_set_text(&object, "run", folder);
    gd_show_set_text(&object, "model", s->model.name);
    gd_show_set_text(&object, "method", trial.method);
    gd_show_set_text(&object, "precision", gd_precision_name(trial.precision));
    gd_show_set_int(&object, "micro_batch", trial.micro_batch);
    gd_show_set_int(&object, "accumulation", trial.accumulation);
    gd_show_set_int(&object, "ranks", trial.ranks);
    gd_show_set_int(&object, "threads", trial.threads);
    gd_show_set_int(&object, "steps", s->model.recipe.steps);
    gd_show_set_int(&object, "parameters", trial.parameters);
    gd_show_set_int(&object, "peak_bytes", trial.peak_bytes);
    gd_show_set_int(&object, "checkpoint_bytes", gd_checkpoint_bytes(trial.parameters));
    gd_show_set_bool(&object, "deterministic", s->deterministic[0] || gd_cli_determinism()[0]);
    return gd_show_json(&cli->out, &object, err);
  }
  append_plan(cli, folder, s, &trial, data);
  gd_strbuf_printf(
      &cli->out, "  %s parameters; %d rank%s, gradient accumulation %lld x micro-batch %lld\n",
      gd_format_count(parameters, sizeof parameters, trial.parameters), trial.ranks,
      trial.ranks == 1 ? "" : "s", (long long)trial.accumulation, (long long)trial.micro_batch);
  gd_strbuf_printf(
      &cli->out, "  memory %s; a checkpoint takes %s, and %lld stay\n",
      gd_format_bytes(memory, sizeof memory, trial.peak_bytes),
      gd_format_bytes(checkpoint, sizeof checkpoint, gd_checkpoint_bytes(trial.parameters)),
      (long long)s->keep);
  gd_show_assumed(cli, &s->model);
  return GD_OK;
}

/* Before anything is written: all files are there and can be read. With --dry-run, what would be
   trained. */
static enum gd_status look_at_data(struct gd_cli *cli, const char *folder,
                                   struct gd_run_settings *s, struct gd_error *err) {
  struct gd_source data;
  GD_TRY(gd_run_open_data(s, cli->arguments[0], ranks_of(cli), (int)cli->options.data_threads,
                          &cli->arena, &data, err));
  enum gd_status status = cli->options.dry_run ? show_plan(cli, folder, s, &data, err) : GD_OK;
  gd_source_close(&data);
  return status;
}

/* How often the process that watches over this one has started the run again. */
static int64_t retries_before(void) {
  const char *text = gd_env(GD_RANKS_RETRIED);
  return text ? strtoll(text, NULL, 10) : 0;
}

static enum gd_status train(struct gd_cli *cli, const char *folder, struct gd_run_settings *s,
                            struct gd_error *err) {
  struct watching w = {.cli = cli,
                       .settings = s,
                       .folder = folder,
                       .progress = {.on = cli->progress},
                       .retries = retries_before()};
  struct gd_train_end end;
  struct gd_training training = {.model = &s->model,
                                 .folder = folder,
                                 .config_text = s->config_text,
                                 .keeps = true,
                                 .store = cli->options.store,
                                 .init = s->init,
                                 .checkpoint_steps = s->checkpoint_steps,
                                 .checkpoint_s = s->checkpoint_s,
                                 .keep = (int)s->keep,
                                 .eval_steps = s->eval_steps,
                                 .eval_samples = s->eval_samples,
                                 .time_limit_s = cli->options.time_limit,
                                 .hardware_steps = cli->options.check_hardware,
                                 .stop = is_asked_to_stop,
                                 .opened = show_opened,
                                 .stepped = show_step,
                                 .note = show_note,
                                 .user = &w};
  GD_TRY(gd_run_data_options(s, ranks_of(cli), (int)cli->options.data_threads, &training.data,
                             &training.eval, err));
  GD_TRY(trial_options(cli, s, &training.trial, err));
  enum gd_status status = gd_train_run(&training, &end, err);
  gd_progress_clear(&w.progress);
  GD_TRY(status);
  if (cli->options.json)
    return append_object(&w, &end, err);
  append_end(&w, &end);
  return GD_OK;
}

/* Ranks of somebody else's mpirun or srun cannot be started again from here. */
static enum gd_status check_retries(const struct gd_cli *cli, bool in_job, struct gd_error *err) {
  if (cli->options.retries > 0 && in_job && !gd_launch_is_watched())
    return gd_fail(
        err, GD_BAD_INPUT,
        "--retries starts again what gpudays has started, and mpirun or srun has started "
        "this rank; leave it out, or use --ranks instead of mpirun");
  return GD_OK;
}

static enum gd_status check_jobs(const struct gd_cli *cli, bool in_job, bool resumes,
                                 struct gd_error *err) {
  if (in_job || cli->options.retries > 0)
    return gd_fail(err, GD_BAD_INPUT,
                   "--slurm submits jobs that start the ranks, and again until the run is done; "
                   "leave out %s",
                   in_job ? "mpirun or srun" : "--retries");
  if (cli->options.job_status && !resumes)
    return gd_fail(err, GD_BAD_INPUT, "%s has no run: --job-status shows the jobs of one",
                   cli->arguments[0]);
  return GD_OK;
}

/* What other commands take, and a run has no use for. */
static enum gd_status check_options(const struct gd_cli_options *o, struct gd_error *err) {
  if (o->methods && (strchr(o->methods, ',') || strcmp(o->methods, "all") == 0))
    return gd_fail(
        err, GD_BAD_INPUT,
        "train takes one method, such as free-lunch; 'gpudays bench MODEL --methods all' "
        "finds the fastest, and train then takes that one without being told");
  if (o->job_time > 0 && !o->slurm)
    return gd_fail(err, GD_BAD_INPUT, "--job-time needs --slurm, whose jobs it limits");
  return GD_OK;
}

enum gd_status gd_cmd_train(struct gd_cli *cli, struct gd_error *err) {
  struct gd_run_settings settings = {0};
  struct gd_slurm_config jobs;
  const char *folder = cli->arguments[0];
  int rank, size, lock;
  bool resumes = gd_run_folder_has_run(folder), in_job = gd_comm_in_job(&rank, &size);
  catch_signals();
  GD_TRY(check_options(&cli->options, err));
  GD_TRY(check_retries(cli, in_job, err));
  if (in_job)
    GD_TRY(gd_launch_join(cli, err));
  else
    gd_launch_say_met();
  if (cli->options.slurm)
    GD_TRY(check_jobs(cli, in_job, resumes, err));
  if (cli->options.slurm && !cli->options.job_status)
    GD_TRY(gd_train_jobs_prepare(cli, &jobs, err));
  cli->options.backend = gd_cli_backend(cli);
  if (resumes) {
    GD_TRY(refuse_changes(cli, err));
    GD_TRY(gd_run_folder_read(folder, &cli->arena, &settings, err));
  } else {
    GD_TRY(new_settings(cli, &settings, err));
    folder = cli->options.output ? cli->options.output
                                 : gd_arena_printf(&cli->arena, RUNS "/%s", settings.model.name);
    if (!folder)
      return gd_nomem(err, "before training");
    /* Started again, this very command may have made the run. */
    resumes = retries_before() > 0 && gd_run_folder_has_run(folder);
    if (resumes)
      GD_TRY(gd_run_folder_read(folder, &cli->arena, &settings, err));
  }
  if (cli->options.job_status)
    return gd_train_jobs_show(cli, folder, &settings, err);
  if (settings.deterministic[0])
    GD_TRY(gd_cli_be_deterministic(settings.deterministic, err));
  if (cli->options.slurm && cli->options.ranks == 0)
    cli->options.ranks = settings.ranks;
  if (cli->options.threads == 0 && settings.threads <= gd_cpus(1))
    cli->options.threads = settings.threads;
  change_settings(cli, &settings);
  GD_TRY(gd_run_agree(cli->comm, folder, &settings, err));
  GD_TRY(look_at_data(cli, folder, &settings, err));
  if (cli->options.dry_run)
    return GD_OK;
  if (cli->options.slurm && !resumes)
    GD_TRY(gd_run_folder_create(folder, &settings, err));
  if (cli->options.slurm)
    return gd_train_jobs_submit(cli, &jobs, folder, err);
  GD_TRY(gd_run_take_folder(cli->comm, folder, resumes, &settings, &lock, err));
  enum gd_status status = train(cli, folder, &settings, err);
  if (status != GD_OK && !resumes && cli->rank == 0) {
    gd_run_folder_forget(folder); /* nothing was trained: the next try may use the name */
    if (!cli->options.output)
      rmdir(RUNS); /* likewise, where it is empty */
  }
  if (lock >= 0)
    close(lock);
  return status;
}
