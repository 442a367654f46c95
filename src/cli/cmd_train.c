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
#include <time.h>
#include <unistd.h>

#include "base/cache.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/switches.h"
#include "cli/cli.h"
#include "cli/launch.h"
#include "cli/progress.h"
#include "cli/show_run.h"
#include "cli/train_jobs.h"
#include "comm/comm.h"
#include "data/tokenizer.h"
#include "search/slurm_config.h"
#include "store/store_best.h"
#include "train/run_folder.h"
#include "train/train.h"
#include "train/trained.h"
#include "trial/agree.h"

enum { DEFAULT_KEEP = 2, DEFAULT_EVAL_SAMPLES = 256 };
#define DEFAULT_CHECKPOINT_S 1800.0

/* --- signals ------------------------------------------------------------------------------- */

static volatile sig_atomic_t asked_to_stop; /* the signal; 0: none */

static void note_signal(int signal_number) {
  asked_to_stop = signal_number;
  signal(signal_number, SIG_DFL); /* a second one ends the process */
}

static void catch_signals(void) {
  signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is a full disk */
  signal(SIGPIPE, SIG_IGN); /* who reads the notes may go; the run stays */
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
  struct watching *w = user;
  char line[320], tokens[GD_SHOW_TEXT], left[GD_SHOW_TEXT], date[GD_SHOW_TEXT];
  int64_t steps = w->settings->model.recipe.steps;
  double spent_s = 1e-9 * (double)(gd_clock_ns() - w->begun_ns); /* with all that is not a step */
  double left_s = spent_s / (double)++w->n_steps * (double)(steps - s->step);
  snprintf(line, sizeof line,
           "step %lld of %lld, loss %.4f, done %s (%s left), %s %s/s, MFU %.0f %%, lr %.2e, "
           "norm %.3g",
           (long long)s->step, (long long)steps, s->loss,
           gd_show_date(date, sizeof date, (int64_t)time(NULL) + (int64_t)left_s),
           gd_show_seconds(left, sizeof left, left_s < 1 ? 1 : left_s),
           gd_format_number(tokens, sizeof tokens, s->tokens_per_s, 0),
           s->images ? "images" : "tokens", 100 * s->mfu, s->lr, s->norm);
  gd_progress_line(&w->progress, line);
}

static void show_note(void *user, const char *sentence) {
  struct watching *w = user;
  gd_progress_clear(&w->progress);
  fprintf(stderr, "gpudays: %s\n", sentence);
}

static void append_end(struct watching *w, const struct gd_train_end *end) {
  struct gd_cli *cli = w->cli;
  const struct gd_recipe *recipe = &w->settings->model.recipe;
  char time_text[GD_SHOW_TEXT], step_text[GD_SHOW_TEXT], rate[GD_SHOW_TEXT], line[1024];
  int64_t done = end->step - w->first_step;
  bool images = w->settings->model.family->images;
  gd_show_bold(cli, w->settings->model.name);
  gd_strbuf_printf(&cli->out, ": %lld of %lld steps, loss %.4f", (long long)end->step,
                   (long long)recipe->steps, end->loss);
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
    snprintf(line, sizeof line, "steps waited %s for images, %.0f %% of the time",
             gd_show_seconds(time_text, sizeof time_text, end->data_wait_s),
             100 * end->data_wait_s / end->seconds);
    gd_show_paragraph(&cli->out, 2, line);
  }
  if (done > 0 && end->promised_step_s > 0) {
    double more = end->step_s / end->promised_step_s - 1;
    snprintf(line, sizeof line, "%s %s a step: this is %.0f %% %s",
             strcmp(end->promised_by, "trial") == 0 ? "bench measured" : "predicted were",
             gd_show_seconds(step_text, sizeof step_text, end->promised_step_s), 100 * fabs(more),
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
  if (end->eval_loss > 0)
    gd_show_set_real(&object, "eval_loss", end->eval_loss);
  else
    gd_show_set_null(&object, "eval_loss");
  if (end->eval_accuracy >= 0)
    gd_show_set_real(&object, "eval_accuracy", end->eval_accuracy);
  else
    gd_show_set_null(&object, "eval_accuracy");
  if (end->best_step >= 0)
    gd_show_set_int(&object, "best_step", end->best_step);
  else
    gd_show_set_null(&object, "best_step");
  gd_show_set_real(&object, "step_s", end->step_s);
  if (end->promised_step_s > 0)
    gd_show_set_real(&object, "promised_step_s", end->promised_step_s);
  else
    gd_show_set_null(&object, "promised_step_s");
  gd_show_set_text(&object, "promised_by", end->promised_by);
  gd_show_set_real(&object, "seconds", end->seconds);
  gd_show_set_real(&object, "checkpoint_stall_s", end->stalled_s);
  gd_show_set_real(&object, "data_wait_s", end->data_wait_s);
  gd_show_set_int(&object, "skipped", end->skipped);
  gd_show_set_int(&object, "retries", w->retries);
  return gd_show_json(&w->cli->out, &object, err);
}

/* --- settings ------------------------------------------------------------------------------ */

/* The recipe's values that the command line gives, checked as those of a file are. */
static enum gd_status change_recipe(const struct gd_cli *cli, struct gd_recipe *recipe,
                                    struct gd_error *err) {
  const struct gd_cli_options *o = &cli->options;
  struct gd_json json = {.root = json_object(), .file = "the command line"};
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
  if (o->betas) {
    char *end;
    double first = strtod(o->betas, &end), second = *end == ',' ? strtod(end + 1, &end) : -1;
    if (*end)
      second = -1;
    json_object_set_new(json.root, "betas", json_pack("[f,f]", first, second));
  }
  enum gd_status status = gd_recipe_parse(&json, json.root, recipe, err);
  gd_json_deinit(&json);
  return status;
}

struct finding {
  const char *backend;
  int ranks;
  char method[GD_METHOD_NAME];
};

/* The first one is the best; only its method is asked for. */
static enum gd_status take_method(void *user, const struct gd_store_row *row,
                                  struct gd_error *err) {
  struct finding *finding = user;
  (void)err;
  if (!finding->method[0] && strcmp(row->trial.backend, finding->backend) == 0 &&
      row->trial.ranks == finding->ranks)
    snprintf(finding->method, sizeof finding->method, "%s", row->trial.method);
  return GD_OK;
}

/* The method of the best trial that was measured here, or free-lunch. */
static const char *best_method(struct gd_cli *cli, const struct gd_model *model, int ranks) {
  struct finding finding = {.backend = gd_cli_backend(cli), .ranks = ranks};
  struct gd_store *store = NULL;
  struct gd_store_filter filter = {0};
  char recipe[GD_CLI_RECIPE_TEXT];
  struct gd_error unused = {0};
  struct gd_best_asked asked = gd_cli_best_asked(cli, model, &filter, recipe);
  if (gd_store_open(cli->options.store, &store, &unused) == GD_OK &&
      gd_best_query(store, &asked, take_method, &finding, &unused) != GD_OK)
    finding.method[0] = '\0';
  gd_store_close(store);
  return finding.method[0] ? gd_arena_copy_string(&cli->arena, finding.method) : "free-lunch";
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

/* The token that masks: that of --mask-token, of the tokenizer, or of the usual vocabularies of
   BERT and RoBERTa. */
static enum gd_status find_mask(const struct gd_cli *cli, struct gd_run_settings *s,
                                struct gd_error *err) {
  int64_t classes = s->model.family->classes(&s->model);
  bool causal;
  if (cli->options.mask_token.given) {
    s->mask_token = (int64_t)cli->options.mask_token.value;
    return GD_OK;
  }
  s->mask_token = s->tokenizer_mask >= 0 ? s->tokenizer_mask
                  : classes == 30522     ? 103
                  : classes == 50265     ? 50264
                                         : -1;
  if (s->mask_token >= 0 || s->model.family->images)
    return GD_OK;
  GD_TRY(gd_model_is_causal(&s->model, &causal, err));
  if (!causal)
    return gd_fail(
        err, GD_BAD_INPUT,
        "%s fills in masked tokens, and which token masks is not known: --mask-token ID, "
        "or --tokenizer FILE with a token <mask> or [MASK]",
        s->model.name);
  return GD_OK;
}

/* What is said of images, for a model of images; nothing, for others. */
static enum gd_status image_settings(const struct gd_cli_options *o, struct gd_run_settings *s,
                                     struct gd_error *err) {
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
  s->model.soft_targets = s->model.family->images;
  s->augment = o->augment ? o->augment : "crop,flip";
  s->normalize = o->normalize ? o->normalize : "imagenet";
  s->label_smoothing = o->label_smoothing.given ? o->label_smoothing.value : 0;
  return GD_OK;
}

/* The tokenizer of --tokenizer, or the one in the folder of the model: it stays with the run. */
static enum gd_status read_tokenizer(struct gd_cli *cli, struct gd_run_settings *s,
                                     struct gd_error *err) {
  const char *path = cli->options.tokenizer;
  char inside[GD_FILE_PATH];
  s->tokenizer_mask = -1;
  struct gd_strbuf text = {0};
  struct gd_tokenizer *tokenizer = NULL;
  int64_t classes = s->model.family->classes(&s->model), size;
  snprintf(inside, sizeof inside, "%.4000s/tokenizer.json", cli->arguments[0]);
  if (!path && gd_file_is_missing(inside))
    return GD_OK;
  GD_TRY(gd_tokenizer_load(&tokenizer, path ? path : inside, err));
  size = gd_tokenizer_size(tokenizer);
  s->tokenizer_mask = gd_tokenizer_id(tokenizer, "<mask>");
  if (s->tokenizer_mask < 0)
    s->tokenizer_mask = gd_tokenizer_id(tokenizer, "[MASK]");
  gd_tokenizer_free(tokenizer);
  if (size > classes)
    return gd_fail(err, GD_BAD_INPUT,
                   "the tokenizer has %lld tokens, and %s has %lld; choose another one",
                   (long long)size, s->model.name, (long long)classes);
  enum gd_status status = gd_tokenizer_text(path ? path : inside, &text, err);
  if (status == GD_OK)
    s->tokenizer_text = gd_arena_copy_string(&cli->arena, text.text);
  gd_strbuf_deinit(&text);
  return status != GD_OK || s->tokenizer_text ? status : gd_nomem(err, "for the tokenizer");
}

/* A run that was made shorter than its recipe does not warm up for all of it. */
static void shorten_warmup(const struct gd_cli_options *o, struct gd_recipe *recipe) {
  int64_t most = (recipe->steps + 9) / 10;
  if ((o->steps || o->tokens) && recipe->warmup_steps > most)
    recipe->warmup_steps = most;
}

/* Settings of a new run. */
static enum gd_status new_settings(struct gd_cli *cli, int ranks, struct gd_run_settings *s,
                                   struct gd_error *err) {
  const struct gd_cli_options *o = &cli->options;
  struct gd_strbuf config = {0};
  struct gd_model named;
  const char **data = gd_arena_alloc(&cli->arena, (size_t)cli->n_arguments + 1, sizeof *data);
  const char **eval = gd_arena_alloc(&cli->arena, 1, sizeof *eval);
  if (!data || !eval)
    return gd_nomem(err, "before training");
  if (!o->data)
    return gd_fail(err, GD_BAD_INPUT,
                   "train needs --data FILE: token ids as nanoGPT, llm.c, Megatron-LM or NumPy "
                   "write them, or a folder or tar archives of images");
  if (o->eval_every && !o->eval)
    return gd_fail(err, GD_BAD_INPUT, "--eval-every needs data to evaluate on: --eval FILE");
  GD_TRY(gd_cli_load_model(cli, cli->arguments[0], &s->model, err));
  shorten_warmup(o, &s->model.recipe);
  GD_TRY(image_settings(o, s, err));
  GD_TRY(gd_model_load_config(cli->arguments[0], &named, &config, err));
  s->config_text = gd_arena_copy_string(&cli->arena, config.text);
  gd_strbuf_deinit(&config);
  if (!s->config_text)
    return gd_nomem(err, "before training");
  GD_TRY(change_recipe(cli, &s->model.recipe, err));
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
  if (o->init) {
    struct gd_trained from;
    GD_TRY(gd_cli_find_trained(cli, o->init, &from, err));
    s->init = gd_arena_copy_string(&cli->arena, from.weights);
    if (!s->init)
      return gd_nomem(err, "before training");
  }
  GD_TRY(read_tokenizer(cli, s, err));
  s->method = o->methods ? o->methods : best_method(cli, &s->model, ranks);
  s->micro_batch = o->micro_batch == GD_MICRO_BATCH_FIXED ? o->micro_batch_size : 0;
  s->seed = o->seed;
  GD_TRY(find_mask(cli, s, err));
  s->token_bytes = o->token_bytes;
  s->keep = DEFAULT_KEEP;
  s->checkpoint_s = DEFAULT_CHECKPOINT_S;
  s->eval_samples = o->samples                ? o->samples
                    : s->model.family->images ? INT64_C(1) << 40
                                              : DEFAULT_EVAL_SAMPLES;
  return GD_OK;
}

/* What may change between two legs of a run. */
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
      "backend",       "threads",      "methods",      "micro-batch",
      "device-memory", "host-memory",  "ranks",        "store",
      "time-limit",    "rank-timeout", "retries",      "checkpoint-every",
      "keep",          "eval-every",   "data-threads", "dry-run",
      "json",          "quiet",        "slurm",        "slurm-config",
      "slurm-device",  "nodes",        "job-time",     "job-status",
      "check-hardware"};
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
  gd_strbuf_printf(&cli->out, "  data: %s tokens, %s sequences, %.2f epochs\n",
                   gd_format_count(tokens, sizeof tokens, data->tokens),
                   gd_format_count(sequences, sizeof sequences, data->sequences),
                   (double)(r->batch * r->steps) / (double)data->sequences);
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
}

static void append_plan(struct gd_cli *cli, const char *folder, const struct gd_run_settings *s,
                        const struct gd_source *data) {
  const struct gd_recipe *r = &s->model.recipe;
  gd_show_bold(cli, s->model.name);
  gd_strbuf_printf(&cli->out, ", %s, %s: nothing was trained\n", s->method,
                   gd_precision_name(r->precision));
  gd_strbuf_printf(&cli->out, "  %lld steps of %lld", (long long)r->steps, (long long)r->batch);
  if (s->model.family->images)
    gd_strbuf_append(&cli->out, " images");
  else
    gd_strbuf_printf(&cli->out, " x %lld tokens", (long long)r->seq);
  gd_strbuf_printf(&cli->out, "; lr %g to %g, %s, warm-up %lld\n", r->lr, r->min_lr,
                   gd_schedule_name(r->schedule), (long long)r->warmup_steps);
  gd_strbuf_printf(&cli->out,
                   "  %s, betas %g %g, eps %g, weight decay %g, clipping %g, seed %lld\n",
                   gd_optimizer_name(r->optimizer), r->beta1, r->beta2, r->eps, r->weight_decay,
                   r->max_grad_norm, (long long)s->seed);
  if (gd_source_tokens(data))
    append_tokens(cli, r, gd_source_tokens(data));
  else
    append_images(cli, s, gd_source_images(data));
  gd_strbuf_printf(&cli->out, "  folder: %s\n", folder);
}

static struct gd_dataset_options token_options(const struct gd_run_settings *s,
                                               const char *const *files, int count, bool causal) {
  return (struct gd_dataset_options){.files = files,
                                     .n_files = count,
                                     .seq = s->model.recipe.seq,
                                     .vocabulary = s->model.family->classes(&s->model),
                                     .causal = causal,
                                     .mask_token = (int32_t)s->mask_token,
                                     .width = (int)s->token_bytes,
                                     .seed = (uint64_t)s->seed};
}

/* One decoding thread for each core, among the ranks of this machine. */
static int thread_count(const struct gd_cli *cli) {
  int ranks = cli->comm ? gd_comm_size(cli->comm) : 1, cores = gd_cpus(1) / ranks;
  return cli->options.data_threads ? (int)cli->options.data_threads : cores < 1 ? 1 : cores;
}

static enum gd_status image_options(const struct gd_cli *cli, const struct gd_run_settings *s,
                                    const struct gd_graph *graph, const char *const *files,
                                    int count, struct gd_image_options *out, struct gd_error *err) {
  const struct gd_tensor *pixels = &graph->tensors[graph->pixels];
  *out = (struct gd_image_options){.files = files,
                                   .n_files = count,
                                   .height = pixels->dims[2],
                                   .width = pixels->dims[3],
                                   .classes = s->model.family->classes(&s->model),
                                   .seed = (uint64_t)s->seed,
                                   .smoothing = s->label_smoothing,
                                   .threads = thread_count(cli)};
  if (pixels->dims[1] != 3)
    return gd_fail(err, GD_UNSUPPORTED, "%s wants images of %lld channels, and JPEG and PNG have 3",
                   s->model.name, (long long)pixels->dims[1]);
  if (!gd_normalize_parse(s->normalize, &out->normalize))
    return gd_fail(err, GD_BAD_INPUT, "--normalize %s: it is imagenet, half or none", s->normalize);
  return gd_augment_parse(s->augment, &out->augment, err);
}

/* Of training and evaluation. The graph of the model says what a sample is. */
static enum gd_status source_options(const struct gd_cli *cli, const struct gd_run_settings *s,
                                     struct gd_source_options *data, struct gd_source_options *eval,
                                     struct gd_error *err) {
  struct gd_graph graph;
  *data = *eval = (struct gd_source_options){0};
  gd_graph_init(&graph);
  s->model.family->build(&s->model, 1, &graph);
  enum gd_status status = gd_graph_check(&graph, err);
  if (status == GD_OK && s->model.family->images) {
    status = image_options(cli, s, &graph, s->data, s->n_data, &data->images, err);
    eval->images = data->images;
    eval->images.files = s->eval;
    eval->images.n_files = s->n_eval;
    eval->images.evaluates = true;
  } else if (status == GD_OK) {
    data->tokens = token_options(s, s->data, s->n_data, graph.predicts_next);
    eval->tokens = token_options(s, s->eval, s->n_eval, graph.predicts_next);
    eval->tokens.in_order = true;
  }
  gd_graph_deinit(&graph);
  return status;
}

/* What the plan of a run is chosen by. */
static enum gd_status trial_options(const struct gd_cli *cli, const struct gd_run_settings *s,
                                    struct gd_trial_options *out, struct gd_error *err) {
  struct gd_method method;
  GD_TRY(gd_method_parse(s->method, &method, err));
  gd_cli_trial_options(cli, &method, out);
  out->comm = cli->comm;
  out->seed = (uint64_t)s->seed;
  if (s->micro_batch > 0) { /* that of another number of ranks may be more than a rank's share */
    int64_t share = s->model.recipe.batch / (cli->comm ? gd_comm_size(cli->comm) : 1);
    bool given = cli->options.micro_batch == GD_MICRO_BATCH_FIXED;
    out->micro_batch = GD_MICRO_BATCH_FIXED;
    out->micro_batch_size = s->micro_batch > share && !given && share > 0 ? share : s->micro_batch;
  }
  return GD_OK;
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
    gd_show_set_int(&object, "steps", s->model.recipe.steps);
    gd_show_set_int(&object, "parameters", trial.parameters);
    gd_show_set_int(&object, "peak_bytes", trial.peak_bytes);
    gd_show_set_int(&object, "checkpoint_bytes", 12 * trial.parameters);
    return gd_show_json(&cli->out, &object, err);
  }
  append_plan(cli, folder, s, data);
  gd_strbuf_printf(
      &cli->out, "  %s parameters; %d rank%s, gradient accumulation %lld x micro-batch %lld\n",
      gd_format_count(parameters, sizeof parameters, trial.parameters), trial.ranks,
      trial.ranks == 1 ? "" : "s", (long long)trial.accumulation, (long long)trial.micro_batch);
  gd_strbuf_printf(&cli->out, "  memory %s; a checkpoint takes %s, and %lld stay\n",
                   gd_format_bytes(memory, sizeof memory, trial.peak_bytes),
                   gd_format_bytes(checkpoint, sizeof checkpoint, 12 * trial.parameters),
                   (long long)s->keep);
  return GD_OK;
}

/* Data that changed since the run began would be another order of other samples. */
static enum gd_status check_size(const struct gd_cli *cli, struct gd_run_settings *s,
                                 const struct gd_source *data, struct gd_error *err) {
  const struct gd_dataset *tokens = gd_source_tokens(data);
  int64_t size = tokens ? tokens->tokens : gd_source_images(data)->files.count;
  if (s->data_size > 0 && s->data_size != size)
    return gd_fail(err, GD_BAD_INPUT,
                   "the data of %s has %lld %s, and had %lld when the run began: bring the files "
                   "back, or start a new run",
                   cli->arguments[0], (long long)size, tokens ? "tokens" : "images",
                   (long long)s->data_size);
  s->data_size = size;
  return GD_OK;
}

/* Before anything is written: all files are there and can be read. With --dry-run, what would be
   trained. */
static enum gd_status look_at_data(struct gd_cli *cli, const char *folder,
                                   struct gd_run_settings *s, struct gd_error *err) {
  struct gd_source_options data_options, eval_options;
  struct gd_source data, eval = {0};
  GD_TRY(source_options(cli, s, &data_options, &eval_options, err));
  GD_TRY(gd_source_open(&data, &data_options, NULL, err));
  enum gd_status status = GD_OK;
  if (gd_source_is_given(&eval_options))
    status = gd_source_open(&eval, &eval_options, &data, err);
  if (status == GD_OK)
    status = check_size(cli, s, &data, err);
  if (status == GD_OK && cli->options.dry_run)
    status = show_plan(cli, folder, s, &data, err);
  gd_source_close(&eval);
  gd_source_close(&data);
  return status;
}

/* How often the process that watches over this one has started the run again. */
static int64_t retries_before(void) {
  const char *text = gd_env(GD_LAUNCH_RETRIED);
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
  GD_TRY(source_options(cli, s, &training.data, &training.eval, err));
  GD_TRY(trial_options(cli, s, &training.trial, err));
  enum gd_status status = gd_train_run(&training, &end, err);
  gd_progress_clear(&w.progress);
  GD_TRY(status);
  if (cli->options.json)
    return append_object(&w, &end, err);
  append_end(&w, &end);
  return GD_OK;
}

/* Options are each rank's own under one's own mpirun: what they train must be the same. The plan is
   compared when it is opened. */
static enum gd_status agree_on_settings(const struct gd_cli *cli, const char *folder,
                                        const struct gd_run_settings *s, struct gd_error *err) {
  const struct gd_recipe *r = &s->model.recipe;
  const double numbers[] = {r->lr,
                            r->min_lr,
                            r->beta1,
                            r->beta2,
                            r->eps,
                            r->weight_decay,
                            r->max_grad_norm,
                            (double)r->warmup_steps,
                            (double)r->decay_steps,
                            (double)r->schedule};
  uint64_t files = 0;
  for (int i = 0; i < s->n_data; i++)
    files = gd_cache_hash_text(files, s->data[i]);
  for (int i = 0; i < s->n_eval; i++)
    files = gd_cache_hash_text(files + 1, s->eval[i]);
  uint64_t images = gd_cache_hash(0, &s->label_smoothing, sizeof s->label_smoothing);
  if (s->model.family->images)
    images = gd_cache_hash_text(gd_cache_hash_text(images, s->augment), s->normalize);
  const struct gd_term terms[] = {
      {"folder", (int64_t)gd_cache_hash_text(0, folder), false},
      {"list of data files", (int64_t)files, false},
      {"treatment of images", (int64_t)images, false},
      {"recipe", (int64_t)gd_cache_hash(0, numbers, sizeof numbers), false},
      {"number of steps", r->steps, true},
      {"seed", s->seed, true},
      {"mask token", s->mask_token, true},
      {"--checkpoint-every", s->checkpoint_steps + (int64_t)(1000 * s->checkpoint_s), true},
      {"--eval-every", s->eval_steps, true},
  };
  return cli->comm ? gd_agree_terms(cli->comm, terms, sizeof terms / sizeof *terms, err) : GD_OK;
}

/* Rank 0 has the folder; the others learn whether it got it. */
static enum gd_status take_folder(struct gd_cli *cli, const char *folder, bool resumes,
                                  const struct gd_run_settings *s, int *lock,
                                  struct gd_error *err) {
  enum gd_status status = GD_OK;
  *lock = -1;
  if (cli->rank == 0 && !resumes)
    status = gd_run_folder_create(folder, s, err);
  if (cli->rank == 0 && status == GD_OK)
    status = gd_run_folder_lock(folder, lock, err);
  return cli->comm ? gd_comm_agree(cli->comm, status, err) : status;
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

enum gd_status gd_cmd_train(struct gd_cli *cli, struct gd_error *err) {
  struct gd_run_settings settings = {0};
  struct gd_slurm_config jobs;
  const char *folder = cli->arguments[0];
  int rank, size, lock;
  bool resumes = gd_run_folder_has_run(folder), in_job = gd_comm_in_job(&rank, &size);
  catch_signals();
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
    GD_TRY(new_settings(cli, cli->comm ? gd_comm_size(cli->comm) : 1, &settings, err));
    folder = cli->options.output ? cli->options.output
                                 : gd_arena_printf(&cli->arena, "runs/%s", settings.model.name);
    if (!folder)
      return gd_nomem(err, "before training");
    /* Started again, this very command may have made the run. */
    resumes = retries_before() > 0 && gd_run_folder_has_run(folder);
    if (resumes)
      GD_TRY(gd_run_folder_read(folder, &cli->arena, &settings, err));
  }
  if (cli->options.job_status)
    return gd_train_jobs_show(cli, folder, &settings, err);
  change_settings(cli, &settings);
  GD_TRY(agree_on_settings(cli, folder, &settings, err));
  GD_TRY(look_at_data(cli, folder, &settings, err));
  if (cli->options.dry_run)
    return GD_OK;
  if (cli->options.slurm && !resumes)
    GD_TRY(gd_run_folder_create(folder, &settings, err));
  if (cli->options.slurm)
    return gd_train_jobs_submit(cli, &jobs, folder, err);
  GD_TRY(take_folder(cli, folder, resumes, &settings, &lock, err));
  enum gd_status status = train(cli, folder, &settings, err);
  if (status != GD_OK && !resumes && cli->rank == 0)
    gd_run_folder_forget(folder); /* nothing was trained: the next try may use the name */
  if (lock >= 0)
    close(lock);
  return status;
}
