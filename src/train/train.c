/*
 * The training loop; see train.h.
 */
#define _GNU_SOURCE /* realpath */
#include "train/train.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/switches.h"
#include "exec/run.h"
#include "store/store_runs.h"
#include "train/drift.h"
#include "train/evaluate.h"
#include "train/publish.h"
#include "train/run_folder.h"
#include "train/run_log.h"
#include "train/train_fault.h"
#include "train/train_log.h"
#include "trial/agree.h"
#include "trial/session.h"

enum {
  ROLL_BACK_AFTER = 3, /* skipped updates in a row */
  MOST_ROLL_BACKS = 3, /* without a checkpoint in between */
  TIMES = 1024,        /* step times that the median is of */
};

/* A micro-batch of this rank. */
struct micro_batch {
  enum gd_run_part part;
  int64_t first, count; /* samples */
};

struct training {
  const struct gd_training *o;
  struct gd_train_end *end;
  struct gd_comm *comm;
  struct gd_session session;
  struct gd_trial plan;
  struct gd_source data, eval;
  bool data_failed;          /* it cannot be read any more */
  int64_t ask_every;         /* so many micro-steps, whether the run is to end is asked */
  struct micro_batch staged; /* what the staging memory holds; count 0: nothing of use */
  bool chose;                /* kernels that the run had not chosen before */
  bool images;               /* samples are images, not sequences */
  struct gd_checkpoint_writer writer;
  struct gd_train_log log;
  struct gd_drift drift;
  char checkpoints[GD_FILE_PATH], choices[GD_FILE_PATH]; /* folders of the run */
  int rank;
  int64_t local, offset; /* samples of this rank in a step, and before them */
  int64_t step, first;   /* done; sample that the next step begins with */
  int64_t saved_step;    /* of the newest checkpoint; -1: none */
  int64_t saved_ns;      /* when that was begun */
  int64_t opened_ns;     /* this process; */
  int64_t begun_ns;      /* its first step */
  double peak_flops;
  struct gd_train_before before; /* the same on all ranks: it decides about spikes */
  struct gd_binding binding;     /* what checkpoints of this run say of it; likewise */
  int bad_in_row, roll_backs;
  int64_t judged_from;    /* spikes are judged by the steps behind it: that of the last roll-back */
  int64_t abandoned_from; /* checkpoints behind this step are damaged, or of steps done again */
  bool looked;            /* at whether anything is learnt */
  float step_s[TIMES];
  int64_t n_steps; /* of this process */
  /* of this process, for drift.h */
  int64_t first_step;          /* that was done before it */
  double data_wait_s, early_s; /* for samples, in all; before the last micro-step of a step */
  double fastest_s;            /* of all micro-steps; 0: none yet */
  double stalled_told_s, norm; /* of end.stalled_s, told so far; the last gradient norm */
};

static void say(const struct training *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void say(const struct training *t, const char *format, ...) {
  char text[1400];
  va_list arguments;
  if (!t->o->note || t->rank != 0)
    return;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  t->o->note(t->o->user, text);
}

/* A sentence a line. */
static void say_lines(const struct training *t, const char *lines) {
  for (const char *at = lines ? lines : ""; *at;) {
    size_t length = strcspn(at, "\n");
    say(t, "%.*s", (int)length, at);
    at += length + (at[length] != '\0');
  }
}

static void say_trouble(struct training *t) {
  say_lines(t, t->log.trouble);
  t->log.trouble[0] = '\0';
}

static enum gd_status sum(const struct training *t, double *values, int count,
                          struct gd_error *err) {
  return t->comm ? gd_comm_sum_doubles(t->comm, values, count, err) : GD_OK;
}

/* --- a step -------------------------------------------------------------------------------- */

/* The one that begins `done` samples into a step. */
static struct micro_batch micro_batch_at(const struct training *t, int64_t step_first,
                                         int64_t done) {
  int64_t size = t->plan.micro_batch, left = t->local - done;
  return (struct micro_batch){.part = left < size ? GD_RUN_REMAINDER : GD_RUN_FULL,
                              .first = step_first + t->offset + done,
                              .count = left < size ? left : size};
}

/* Samples into the staging memory, where labels or targets lie behind ids or pixels; unless they
   are there already. */
static enum gd_status stage_samples(struct training *t, const struct micro_batch *m, double weight,
                                    struct gd_batch *batch, struct gd_error *err) {
  void *inputs, *labels;
  gd_run_stage(&t->session.run, m->part, weight, batch, &inputs, &labels);
  if (t->staged.first == m->first && t->staged.count == m->count)
    return GD_OK;
  t->staged.count = 0;
  enum gd_status status = gd_source_read(&t->data, m->first, m->count, inputs, labels, err);
  t->data_failed = status != GD_OK;
  GD_TRY(status);
  t->staged = *m;
  return GD_OK;
}

/* One micro-batch from its files to the device. */
static enum gd_status put_samples(struct training *t, const struct micro_batch *m, double valid,
                                  struct gd_error *err) {
  struct gd_batch batch;
  GD_TRY(stage_samples(t, m, 1 / valid, &batch, err));
  return gd_run_batch(&t->session.run, m->part, &batch, err);
}

static bool evaluation_is_due_at(const struct training *t, int64_t step) {
  int64_t every = t->o->eval_steps;
  return t->eval.ops && every > 0 && step > 0 && step % every == 0;
}

/* While the device computes, the samples of the next micro-batch are read. Not behind a step after
   which an evaluation needs the staging memory. What cannot be read now fails when it is due. */
static void stage_ahead(struct training *t, int64_t done) {
  const struct gd_recipe *recipe = &t->o->model->recipe;
  struct gd_error unused = {0};
  struct gd_batch batch;
  bool next_step = done >= t->local;
  if (next_step && (t->step + 1 >= recipe->steps || evaluation_is_due_at(t, t->step + 1)))
    return;
  struct micro_batch m = next_step ? micro_batch_at(t, t->first + recipe->batch, 0)
                                   : micro_batch_at(t, t->first, done);
  if (stage_samples(t, &m, 0, &batch, &unused) != GD_OK)
    t->staged.count = 0;
}

static bool is_asked(const struct training *t) {
  return t->o->stop && t->o->stop(t->o->user);
}

static bool is_late(const struct training *t) {
  double limit_s = t->o->time_limit_s;
  return limit_s > 0 && 1e-9 * (double)(gd_clock_ns() - t->opened_ns) >= limit_s;
}

/* Between two micro-steps of a long step: whether to end without the rest of it. All ranks ask
   alike, twice a second or less. */
static enum gd_status break_off(struct training *t, int64_t made, bool *broken,
                                struct gd_error *err) {
  bool fault = gd_train_fault("within", t->step + 1);
  if (made == 0 || (made % t->ask_every && !fault))
    return GD_OK;
  double said[] = {is_asked(t), is_late(t) || fault};
  GD_TRY(sum(t, said, 2, err));
  t->end->asked = said[0] > 0;
  *broken = said[0] > 0 || said[1] > 0;
  return GD_OK;
}

/* scale: of loss and gradients, 1 but for tests. Samples that are read longer than the device
   computes are waited for. */
static enum gd_status micro_steps(struct training *t, double valid, double scale, bool *broken,
                                  struct gd_error *err) {
  struct gd_run *run = &t->session.run;
  int64_t begin_ns = gd_clock_ns(), made = 0;
  *broken = false;
  for (int64_t done = 0; done < t->local; made++) {
    GD_TRY(break_off(t, made, broken, err));
    if (*broken)
      break;
    struct micro_batch m = micro_batch_at(t, t->first, done);
    int64_t read_ns = gd_clock_ns();
    GD_TRY(put_samples(t, &m, valid / scale, err));
    t->data_wait_s += 1e-9 * (double)(gd_clock_ns() - read_ns);
    t->early_s = 1e-9 * (double)(gd_clock_ns() - begin_ns);
    GD_TRY(gd_run_seed(run, m.part, (uint32_t)t->o->trial.seed, t->step, t->offset + done, err));
    done += m.count;
    int64_t start_ns = gd_clock_ns();
    GD_TRY(gd_run_start(run, m.part, done >= t->local, err));
    int64_t started_ns = gd_clock_ns();
    stage_ahead(t, done);
    double ahead_s = 1e-9 * (double)(gd_clock_ns() - started_ns);
    GD_TRY(gd_run_wait(run, err));
    double micro_step_s = 1e-9 * (double)(gd_clock_ns() - start_ns);
    if (t->fastest_s == 0 || micro_step_s < t->fastest_s)
      t->fastest_s = micro_step_s;
    /* A CPU has computed when `start` returns: nothing hides the reading. */
    double computing_s = fmax(0, t->fastest_s - 1e-9 * (double)(started_ns - start_ns));
    t->data_wait_s += fmax(0, ahead_s - computing_s);
  }
  return GD_OK;
}

/* What all ranks tell each other once a step. */
enum { SAID_LOSS, SAID_ASKED, SAID_LATE, SAID_WRITTEN, SAID_ASK_EVERY, SAID_COUNT };

/* The norm is known within the update: it is told which one is a spike, and skips itself. */
static enum gd_status update(struct training *t, struct gd_train_step *out, struct gd_error *err) {
  struct gd_run *run = &t->session.run;
  double most = gd_recent_most_norm(&t->before.recent);
  float limit = isfinite(most) ? (float)most : 0;
  GD_TRY(gd_run_limit_norm(run, limit, err));
  GD_TRY(gd_run_update(run, out->lr, err));
  GD_TRY(gd_run_norm(run, &out->norm, err));
  out->skipped = limit > 0 && out->norm > (double)limit && isfinite(out->norm);
  return GD_OK;
}

/* A loss that is still that of guessing when the learning rate has been at its peak is no spike,
   but worth a sentence; once. */
static void look_at_learning(struct training *t) {
  const struct gd_recent *recent = &t->before.recent;
  double mean = 0, guessing = log((double)t->o->data.tokens.vocabulary);
  bool soft = t->images; /* targets may be mixtures: what guessing costs is not known */
  if (t->looked || soft || recent->count < GD_RECENT_TO_JUDGE ||
      t->step < t->o->model->recipe.warmup_steps + GD_RECENT_MOST)
    return;
  t->looked = true;
  for (int i = recent->count - GD_RECENT_TO_JUDGE; i < recent->count; i++)
    mean += recent->loss[i] / GD_RECENT_TO_JUDGE;
  if (mean > 0.995 * guessing)
    say(t,
        "the loss is %.4f at step %" PRId64 ", after the warm-up: guessing among %lld tokens gives "
        "ln(%lld) = %.4f. Nothing is learnt: are the ids those of the model's tokenizer, is the "
        "learning rate (--lr) far too low or too high?",
        mean, t->step, (long long)t->o->data.tokens.vocabulary,
        (long long)t->o->data.tokens.vocabulary, guessing);
}

/* Micro-steps in half a second. */
static double ask_every(const struct training *t, int64_t step_ns) {
  double micro_steps = (double)t->local / (double)t->plan.micro_batch;
  return fmax(1, floor(0.5 * micro_steps / (1e-9 * (double)(step_ns + 1))));
}

/* *broken: the run is to end, and the step was not made. */
static enum gd_status run_step(struct training *t, struct gd_train_step *out, double *said,
                               bool *broken, struct gd_error *err) {
  struct gd_run *run = &t->session.run;
  const struct gd_recipe *recipe = &t->o->model->recipe;
  int64_t begin_ns = gd_clock_ns();
  double valid, scale = gd_train_fault("norm", t->step + 1) ? 1024 : 1;
  double data_wait_s = t->data_wait_s;
  GD_TRY(gd_source_count(&t->data, t->first + t->offset, t->local, &valid, err));
  GD_TRY(sum(t, &valid, 1, err));
  GD_TRY(micro_steps(t, valid, scale, broken, err));
  if (*broken)
    return GD_OK;
  GD_TRY(gd_run_take_loss(run, &said[SAID_LOSS], err));
  said[SAID_LOSS] *= gd_train_fault("loss", t->step + 1) ? 1024 : 1 / scale;
  said[SAID_ASKED] = is_asked(t);
  said[SAID_LATE] = is_late(t) || gd_train_fault("late", t->step + 1);
  said[SAID_ASK_EVERY] = t->rank == 0 ? ask_every(t, gd_clock_ns() - begin_ns) : 0;
  GD_TRY(sum(t, said, SAID_COUNT, err));
  t->ask_every = (int64_t)said[SAID_ASK_EVERY];
  *out = (struct gd_train_step){.loss = said[SAID_LOSS], .lr = gd_recipe_lr(recipe, t->step)};
  out->skipped = !isfinite(out->loss) || out->loss > gd_recent_most_loss(&t->before.recent);
  if (out->skipped)
    GD_TRY(gd_state_clear_gradients(run, err));
  else
    GD_TRY(update(t, out, err));
  out->step_s = 1e-9 * (double)(gd_clock_ns() - begin_ns);
  t->step++;
  t->first += recipe->batch;
  out->step = t->step;
  out->images = t->images;
  out->tokens = t->step * recipe->batch * (t->images ? 1 : recipe->seq);
  out->tokens_per_s = (double)(recipe->batch * (t->images ? 1 : recipe->seq)) / out->step_s;
  out->data_wait_s = t->data_wait_s - data_wait_s;
  t->end->data_wait_s += out->data_wait_s;
  if (t->peak_flops > 0)
    out->mfu = t->plan.model_flops_per_step / out->step_s / t->peak_flops;
  t->step_s[t->n_steps++ % TIMES] = (float)out->step_s;
  if (out->skipped) {
    t->bad_in_row++;
    t->end->skipped++;
  } else {
    t->bad_in_row = 0;
    gd_recent_add(&t->before.recent, out->loss, out->norm);
    look_at_learning(t);
  }
  gd_source_prefetch(&t->data, t->first + t->offset, t->local);
  return GD_OK;
}

/* --- evaluation ---------------------------------------------------------------------------- */

static bool evaluation_is_due(const struct training *t) {
  return evaluation_is_due_at(t, t->step) && t->before.evaluated_step != t->step;
}

static bool calls_off(void *user) {
  const struct training *t = user;
  return is_asked(t) || gd_train_fault("stop", t->step);
}

/* With the plan for it; the fused loss adds to gradients all the same. *stop: it was called off by
   a signal, and is made up for when the run goes on. */
static enum gd_status evaluate(struct training *t, bool *stop, struct gd_error *err) {
  const struct gd_training *o = t->o;
  struct gd_run *run = &t->session.run;
  struct gd_evaluated result;
  int64_t samples = t->eval.samples < o->eval_samples ? t->eval.samples : o->eval_samples;
  t->staged.count = 0;
  GD_TRY(gd_evaluate(&(struct gd_evaluation){.run = run,
                                             .part = GD_RUN_EVALUATION,
                                             .data = gd_source_tokens(&t->eval),
                                             .images = t->images ? &t->eval : NULL,
                                             .micro_batch = t->plan.micro_batch,
                                             .samples = samples,
                                             .comm = t->comm,
                                             .stop = calls_off,
                                             .user = t},
                     &result, err));
  GD_TRY(gd_state_clear_gradients(run, err));
  *stop = t->end->asked = result.stopped;
  if (*stop)
    return GD_OK;
  t->end->eval_loss = result.loss;
  t->end->eval_accuracy = t->images ? result.accuracy : -1;
  t->before.evaluated_step = t->step;
  if (t->rank == 0)
    gd_train_log_eval(&t->log, t->step, t->end->eval_loss, t->end->eval_accuracy);
  say_trouble(t);
  if (o->evaluated)
    o->evaluated(o->user, t->step, t->end->eval_loss);
  return GD_OK;
}

/* --- checkpoints --------------------------------------------------------------------------- */

/* The checkpoints of this run. */
static struct gd_checkpoint_query own_checkpoints(const struct training *t) {
  return (struct gd_checkpoint_query){.folder = t->checkpoints, .binding = &t->binding};
}

static void prune(struct training *t) {
  struct gd_checkpoint_query query = own_checkpoints(t);
  gd_checkpoint_prune(&query, &(struct gd_checkpoint_pruning){.keep = t->o->keep,
                                                              .best = gd_checkpoint_best(&query),
                                                              .now = t->saved_step,
                                                              .behind = t->abandoned_from});
  t->abandoned_from = INT64_MAX;
}

/* Puts the one under way in its place. What fails is said, unless a communicator is lost. */
static enum gd_status end_checkpoint(struct training *t, bool must, struct gd_error *err) {
  struct gd_error why = {0};
  int64_t begin_ns = gd_clock_ns(), step = t->writer.facts.step;
  if (!t->writer.active)
    return GD_OK;
  enum gd_status status = gd_checkpoint_end(&t->writer, &why);
  t->end->stalled_s += 1e-9 * (double)(gd_clock_ns() - begin_ns);
  if (status == GD_OK) {
    t->saved_step = step;
    if (t->writer.facts.scheduled)
      t->roll_backs = 0;
    if (t->rank == 0)
      prune(t);
    return GD_OK;
  }
  if (must || (t->comm && gd_comm_has_failed(t->comm))) {
    *err = why;
    return status;
  }
  say(t, "the checkpoint of step %" PRId64 " was not written, and training goes on: %s", step,
      why.text);
  return GD_OK;
}

/* Whether a checkpoint of now would be there without a signal or a time limit. Where they come by
   the clock, every one is: the next one counts from it. */
static bool is_scheduled(const struct training *t) {
  const struct gd_training *o = t->o;
  return o->checkpoint_s > 0 ||
         (o->checkpoint_steps > 0 && t->step % o->checkpoint_steps == 0 && t->bad_in_row == 0);
}

static enum gd_status begin_checkpoint(struct training *t, bool must, struct gd_error *err) {
  struct gd_error why = {0};
  GD_TRY(end_checkpoint(t, must, err));
  int64_t begin_ns = gd_clock_ns();
  struct gd_checkpoint_facts facts = {.step = t->step,
                                      .first = t->first,
                                      .loss = isfinite(t->end->loss) ? t->end->loss : 0,
                                      .eval_loss = t->end->eval_loss,
                                      .ranks = t->comm ? gd_comm_size(t->comm) : 1,
                                      .binding = t->binding,
                                      .scheduled = is_scheduled(t),
                                      .bad_in_row = t->bad_in_row,
                                      .judged_from = t->judged_from};
  facts.roll_backs = facts.scheduled ? 0 : t->roll_backs;
  snprintf(facts.method, sizeof facts.method, "%s", t->plan.method);
  enum gd_status status = gd_checkpoint_begin(&t->writer, &t->session.run, &facts, &why);
  t->saved_ns = gd_clock_ns();
  t->end->stalled_s += 1e-9 * (double)(t->saved_ns - begin_ns);
  if (status == GD_OK || (!must && !(t->comm && gd_comm_has_failed(t->comm)))) {
    if (status != GD_OK)
      say(t, "the checkpoint of step %" PRId64 " was not written, and training goes on: %s",
          t->step, why.text);
    return GD_OK;
  }
  *err = why;
  return status;
}

static bool checkpoint_is_due(const struct training *t) {
  const struct gd_training *o = t->o;
  if (o->checkpoint_steps > 0 && t->step % o->checkpoint_steps == 0)
    return true;
  return o->checkpoint_s > 0 && 1e-9 * (double)(gd_clock_ns() - t->saved_ns) >= o->checkpoint_s;
}

/* Goes back to the last checkpoint and on with other data; to one that is there whether or not the
   run was stopped on the way, so that both go on alike. */
static enum gd_status roll_back(struct training *t, double loss, struct gd_error *err) {
  struct gd_checkpoint_query query = own_checkpoints(t);
  struct gd_checkpoint checkpoint;
  bool found;
  int64_t first = t->first, step = t->step;
  GD_TRY(end_checkpoint(t, false, err));
  query.scheduled = true;
  GD_TRY(gd_checkpoint_find(&query, t->comm, &found, &checkpoint, NULL, err));
  if (!found || t->roll_backs >= MOST_ROLL_BACKS)
    return gd_fail(err, GD_MISMATCH,
                   "the loss was %g at step %" PRId64 ", and %d updates in a row were skipped%s; "
                   "a lower learning rate (--lr) or a longer warm-up (--warmup) may help",
                   loss, step, ROLL_BACK_AFTER,
                   found ? ", and going back to the last checkpoint did not help"
                         : ", and there is no checkpoint to go back to");
  GD_TRY(gd_checkpoint_load(&checkpoint, &t->session.run, t->o->model->family, err));
  t->step = t->saved_step = t->judged_from = t->abandoned_from = checkpoint.facts.step;
  if (t->rank == 0)
    prune(t);
  t->first = first;
  t->bad_in_row = 0;
  t->roll_backs++;
  if (t->rank == 0) {
    struct gd_error why = {0};
    gd_train_log_close(&t->log);
    if (gd_train_log_open(&t->log, t->o->folder, t->step, t->judged_from, &t->before, &why) !=
        GD_OK)
      say(t, "%s; training goes on without it", why.text);
  }
  t->before = (struct gd_train_before){.evaluated_step = -1}; /* the same on all ranks */
  t->looked = true;
  say(t,
      "loss or gradient norm spiked for %d steps up to step %" PRId64
      ": back to the checkpoint of step %" PRId64 ", and on with the data behind",
      ROLL_BACK_AFTER, step, t->step);
  return GD_OK;
}

/* --- hardware ------------------------------------------------------------------------------ */

/* The first micro-batch of the last step once more; loss and gradient norm of all ranks. */
static enum gd_status repeat(struct training *t, double values[2], struct gd_error *err) {
  struct gd_run *run = &t->session.run;
  int64_t size = t->plan.micro_batch, first = t->first - t->o->model->recipe.batch + t->offset;
  double valid;
  GD_TRY(gd_source_count(&t->data, first, size, &valid, err));
  GD_TRY(put_samples(t, &(struct micro_batch){GD_RUN_FULL, first, size}, valid, err));
  GD_TRY(gd_run_seed(run, GD_RUN_FULL, (uint32_t)t->o->trial.seed, t->step - 1, t->offset, err));
  GD_TRY(gd_run_last_micro_step(run, GD_RUN_FULL, err));
  GD_TRY(gd_run_take_loss(run, &values[0], err));
  return gd_run_take_norm(run, &values[1], err);
}

/* The same bits on a CPU and where that was asked for; otherwise sums have any order. */
static bool is_same(const struct training *t, double a, double b) {
  const char *deterministic = gd_env("GPUDAYS_DETERMINISTIC");
  bool exact =
      !gd_backend_is_gpu(t->o->trial.backend) || (deterministic && strcmp(deterministic, "0") != 0);
  return a == b || (isnan(a) && isnan(b)) || (!exact && fabs(a - b) <= 1e-6 * fabs(a));
}

/* The same micro-step twice, without an update: what computes differs from a spike of the data in
   that it does not give the same again. */
static enum gd_status check_hardware(struct training *t, struct gd_error *err) {
  int ranks = t->comm ? gd_comm_size(t->comm) : 1;
  double(*all)[2][2] = gd_mem_alloc((size_t)ranks, sizeof *all); /* by rank and time */
  if (!all)
    return gd_nomem(err, "while checking the hardware");
  enum gd_status status = GD_OK;
  for (int time = 0; time < 2 && status == GD_OK; time++)
    status = repeat(t, all[t->rank][time], err);
  if (gd_train_fault("flip", t->step) && t->rank == ranks - 1)
    all[t->rank][1][0] *= 1.001;
  if (status == GD_OK && t->comm)
    status = gd_comm_all_gather(t->comm, all, sizeof *all, err);
  for (int rank = 0; rank < ranks && status == GD_OK; rank++)
    if (!is_same(t, all[rank][0][0], all[rank][1][0]) ||
        !is_same(t, all[rank][0][1], all[rank][1][1]))
      status = gd_fail(err, GD_ENVIRONMENT,
                       "the same micro-step after step %" PRId64
                       " gave loss %.9g, then %.9g, and gradient norm %.9g, then %.9g (rank %d): "
                       "its device or memory computes wrongly. Nothing was written since the last "
                       "checkpoint; look at dmesg and nvidia-smi -q, and go on with another device",
                       t->step, all[rank][0][0], all[rank][1][0], all[rank][0][1], all[rank][1][1],
                       rank);
  gd_mem_free(all);
  return status;
}

/* Every so many steps, and at the first spike of several. */
static enum gd_status check_hardware_when_due(struct training *t, struct gd_error *err) {
  bool spiked = t->bad_in_row == 1;
  if (t->o->hardware_steps == 0 || (!spiked && t->step % t->o->hardware_steps != 0))
    return GD_OK;
  GD_TRY(check_hardware(t, err));
  if (spiked)
    say(t,
        "the spike of step %" PRId64
        " is none of the hardware's: the same micro-step gives the same again",
        t->step);
  return GD_OK;
}

/* --- begin and end ------------------------------------------------------------------------- */

static enum gd_status open_data(struct training *t, struct gd_error *err) {
  const struct gd_training *o = t->o;
  GD_TRY(gd_source_open(&t->data, &o->data, NULL, err));
  if (gd_source_is_given(&o->eval))
    GD_TRY(gd_source_open(&t->eval, &o->eval, &t->data, err));
  return GD_OK;
}

static enum gd_status open_session(struct training *t, struct gd_error *err) {
  const struct gd_recipe *recipe = &t->o->model->recipe;
  int ranks = t->comm ? gd_comm_size(t->comm) : 1;
  if (recipe->batch % ranks)
    return gd_fail(err, GD_BAD_INPUT,
                   "a batch of %" PRId64
                   " does not divide among %d ranks; choose --ranks or --batch so that it does",
                   recipe->batch, ranks);
  struct gd_trial_options options = t->o->trial;
  const char *deterministic = gd_env("GPUDAYS_DETERMINISTIC");
  options.evaluates = t->eval.ops != NULL;
  if (deterministic && strcmp(deterministic, "kept") == 0)
    options.choices = t->choices;
  uint64_t choices = gd_run_folder_choices(t->o->folder);
  GD_TRY(gd_session_open(&t->session, t->o->model, &options, &t->plan, err));
  t->chose = gd_run_folder_choices(t->o->folder) != choices;
  if (t->plan.status == GD_TRIAL_INFEASIBLE)
    return gd_fail(err, GD_NOMEM_DEVICE, "%s", t->plan.reason);
  t->local = recipe->batch / ranks;
  t->offset = t->local * t->rank;
  const struct gd_plan *plan = &t->session.full.plan;
  enum gd_dtype dtype = gd_precision_dtype(t->plan.precision);
  bool tf32 = t->session.place->caps.tf32 && t->o->trial.method.tf32;
  struct gd_peak_share own = {
      .peak_flops = t->session.backend->ops->peak_flops(t->session.backend, dtype, tf32),
      .threads = t->session.place->info.threads};
  double limit;
  memcpy(own.uuid, t->session.place->info.uuid, sizeof own.uuid);
  GD_TRY(gd_agree_peak(t->comm, &own, &t->peak_flops, &limit, &t->plan.devices, err));
  GD_ASSERT((t->images ? plan->graph->pixels : plan->graph->ids) != GD_NONE);
  GD_TRY(gd_source_follow(&t->data, t->offset, t->local, recipe->batch, err));
  int64_t size = t->plan.micro_batch;
  return t->eval.ops ? gd_source_follow(&t->eval, t->rank * size, size, ranks * size, err) : GD_OK;
}

/* Random parameters, or those of another model's folder. */
static enum gd_status init_parameters(struct training *t, struct gd_error *err) {
  struct gd_safetensors file;
  if (!t->o->init || !t->o->init[0])
    return gd_run_init(&t->session.run, t->o->trial.seed, err);
  enum gd_status status = gd_safetensors_open(&file, t->o->init, err);
  if (status == GD_OK)
    status = gd_run_load(&t->session.run, t->o->model->family, &file, err);
  gd_safetensors_close(&file);
  return t->comm ? gd_comm_agree(t->comm, status, err) : status;
}

/* Rank 0 reads run.json for all of them. */
static enum gd_status bind(struct training *t, struct gd_error *err) {
  enum gd_status status = t->rank == 0 ? gd_binding_read(t->o->folder, &t->binding, err) : GD_OK;
  if (!t->comm)
    return status;
  GD_TRY(gd_comm_agree(t->comm, status, err));
  return gd_comm_broadcast(t->comm, &t->binding, sizeof t->binding, 0, err);
}

/* A run that was trained and has no checkpoint begins again, says so, and keeps the log that it
   had; not where checkpoints lie there that are damaged or of another run.json: they would go. */
static enum gd_status check_beginning(const struct training *t,
                                      const struct gd_checkpoint_passed *passed,
                                      struct gd_error *err) {
  struct gd_run_log log = {0};
  struct gd_error why = {0};
  enum gd_status status = GD_OK;
  if (t->rank == 0 && gd_run_log_read(&log, t->o->folder, &why) == GD_OK && log.n_points > 0) {
    char log_path[GD_FILE_PATH], kept[GD_FILE_PATH];
    snprintf(log_path, sizeof log_path, "%.4000s/log.jsonl", t->o->folder);
    snprintf(kept, sizeof kept, "%.4000s/log.jsonl.old", t->o->folder);
    if (passed->foreign > 0)
      status = gd_fail(err, GD_BAD_INPUT,
                       "%s has a log of %" PRIu32 " steps, but all its checkpoints are of another "
                       "run: restore run.json if it was edited, or move these checkpoints away to "
                       "begin again",
                       t->o->folder, log.n_points);
    else if (passed->count > 0)
      status = gd_fail(err, GD_ENVIRONMENT,
                       "%s has a log of %" PRIu32 " steps, and no checkpoint of it is whole: bring "
                       "one back from a copy, or take %s away to begin again",
                       t->o->folder, log.n_points, t->checkpoints);
    else if (rename(log_path, kept) != 0)
      status = gd_fail(err, GD_ENVIRONMENT, "cannot rename %s to %s: %s", log_path, kept,
                       strerror(errno));
    else
      say(t,
          "there is no whole checkpoint yet of the %d steps in log.jsonl: the run begins again, "
          "and "
          "that log is log.jsonl.old",
          (int)log.n_points);
  }
  gd_run_log_deinit(&log);
  return t->comm ? gd_comm_agree(t->comm, status, err) : status;
}

/* From the newest checkpoint, or from the start. */
static enum gd_status begin(struct training *t, struct gd_error *err) {
  struct gd_checkpoint_query query = own_checkpoints(t);
  struct gd_checkpoint checkpoint;
  struct gd_checkpoint_passed passed = {0};
  bool found;
  GD_TRY(bind(t, err));
  enum gd_status status = gd_checkpoint_find(&query, t->comm, &found, &checkpoint, &passed, err);
  say_lines(t, passed.lines.text);
  gd_strbuf_deinit(&passed.lines);
  GD_TRY(status);
  t->saved_step = t->abandoned_from = -1;
  if (!found) {
    GD_TRY(check_beginning(t, &passed, err));
    return init_parameters(t, err);
  }
  GD_TRY(gd_checkpoint_load(&checkpoint, &t->session.run, t->o->model->family, err));
  t->step = t->saved_step = t->abandoned_from = checkpoint.facts.step;
  if (t->step > t->o->model->recipe.steps)
    return gd_fail(err, GD_BAD_INPUT,
                   "the checkpoint is of step %" PRId64 ", and run.json ends at step %" PRId64
                   ": was it edited?",
                   t->step, t->o->model->recipe.steps);
  t->first = checkpoint.facts.first;
  t->bad_in_row = checkpoint.facts.bad_in_row;
  t->roll_backs = checkpoint.facts.roll_backs;
  t->judged_from = checkpoint.facts.judged_from;
  t->end->loss = checkpoint.facts.loss;
  t->end->eval_loss = checkpoint.facts.eval_loss;
  t->end->resumed = true;
  if (t->chose)
    say(t,
        "kernels were chosen that this run had not: with another GPU, driver or library, or "
        "another "
        "plan, the losses from step %" PRId64
        " on may differ in their last bits from those of a run that was not stopped",
        t->step + 1);
  t->end->resumed_step = t->step;
  return GD_OK;
}

/* What rank 0's log knows, on all ranks. */
static enum gd_status open_log(struct training *t, struct gd_error *err) {
  enum gd_status status = GD_OK;
  if (t->rank == 0)
    status = gd_train_log_open(&t->log, t->o->folder, t->step, t->judged_from, &t->before, err);
  if (!t->comm)
    return status;
  GD_TRY(gd_comm_agree(t->comm, status, err));
  return gd_comm_broadcast(t->comm, &t->before, sizeof t->before, 0, err);
}

/* --- the expected step time ---------------------------------------------------------------- */

/* The expected step time, on all ranks; run.json has it from here on. */
static enum gd_status begin_drift(struct training *t, struct gd_error *err) {
  struct gd_expected expected = {.by = ""};
  struct gd_run_session now = {.micro_batch = t->plan.micro_batch,
                               .accumulation = t->plan.accumulation,
                               .ranks = t->plan.ranks};
  struct gd_error why = {0};
  if (t->rank == 0 && t->o->keeps)
    gd_expected_find(t->o->store, &t->session, t->o->model, &t->plan, &expected);
  t->end->expected_step_s = now.expected_step_s = expected.step_s;
  t->end->expected_by = expected.by;
  snprintf(now.method, sizeof now.method, "%s", t->plan.method);
  snprintf(now.device, sizeof now.device, "%s", t->plan.device);
  snprintf(now.backend, sizeof now.backend, "%s", t->plan.backend);
  snprintf(now.expected_by, sizeof now.expected_by, "%s", expected.by);
  if (t->rank == 0 && gd_run_folder_has_run(t->o->folder) &&
      gd_run_folder_set_session(t->o->folder, &now, &why) != GD_OK)
    say(t, "%s", why.text);
  if (t->comm) {
    GD_TRY(gd_comm_broadcast(t->comm, &expected.step_s, sizeof expected.step_s, 0, err));
    GD_TRY(gd_comm_broadcast(t->comm, &expected.tolerance, sizeof expected.tolerance, 0, err));
  }
  t->first_step = t->step;
  gd_drift_begin(&t->drift, &expected, t->session.backend, t->comm);
  return GD_OK;
}

static enum gd_status watch_drift(struct training *t, const struct gd_train_step *step,
                                  double data_wait_s, struct gd_error *err) {
  const char *sentence;
  struct gd_drift_step took = {.step_s = step->step_s,
                               .early_s = t->early_s,
                               .data_wait_s = t->data_wait_s - data_wait_s,
                               .stalled_s = t->end->stalled_s - t->stalled_told_s,
                               .writing = t->writer.active};
  t->stalled_told_s = t->end->stalled_s;
  t->norm = step->norm;
  GD_TRY(gd_drift_add(&t->drift, &took, &sentence, err));
  if (sentence)
    say(t, "%s", sentence);
  return GD_OK;
}

/* What this process has measured. */
static void fill_record(const struct training *t, struct gd_run_record *run) {
  const struct gd_recipe *recipe = &t->o->model->recipe;
  const struct gd_train_end *end = t->end;
  struct gd_trial *trial = &run->trial;
  *trial = t->plan;
  trial->step_s = end->step_s;
  trial->samples_per_s = (double)recipe->batch / end->step_s;
  trial->tokens_per_s = trial->samples_per_s * (double)recipe->seq;
  trial->days = end->step_s * (double)recipe->steps / 86400;
  trial->peak_flops = t->peak_flops;
  if (t->peak_flops > 0)
    trial->mfu = trial->model_flops_per_step / end->step_s / t->peak_flops;
  trial->loss = end->loss;
  trial->norm = t->norm;
  run->first_step = t->first_step;
  run->last_step = t->step;
  run->finished = end->finished;
  run->seconds = end->seconds;
  run->stalled_s = end->stalled_s;
  run->data_s = t->data_wait_s;
  run->expected_step_s = end->expected_step_s;
  snprintf(run->expected_by, sizeof run->expected_by, "%s", end->expected_by);
  snprintf(run->slowed_by, sizeof run->slowed_by, "%s", t->drift.causes);
}

/* Into the store; a few steps are no measurement. */
static void keep_run(struct training *t) {
  struct gd_run_record *run = NULL;
  struct gd_store *store = NULL;
  struct gd_error why = {0};
  if (!t->o->keeps || t->rank != 0 || t->n_steps < GD_DRIFT_WARMUP || t->step <= t->first_step)
    return;
  run = gd_mem_alloc(1, sizeof *run);
  if (run && realpath(t->o->folder, run->folder)) {
    fill_record(t, run);
    if (gd_store_open(t->o->store, &store, &why) != GD_OK ||
        gd_store_put_run(store, run, &why) != GD_OK)
      say(t, "the run was not stored: %s", why.text);
  }
  gd_store_close(store);
  gd_mem_free(run);
}

static enum gd_status train_steps(struct training *t, struct gd_error *err) {
  const struct gd_training *o = t->o;
  int64_t steps = o->model->recipe.steps;
  bool stop = false;
  if (t->step < steps && evaluation_is_due(t)) /* it was called off */
    GD_TRY(evaluate(t, &stop, err));
  while (t->step < steps && !stop) {
    double said[SAID_COUNT] = {0};
    struct gd_train_step step;
    said[SAID_WRITTEN] = gd_checkpoint_is_written(&t->writer);
    double data_wait_s = t->data_wait_s;
    GD_TRY(run_step(t, &step, said, &stop, err));
    if (stop)
      break;
    t->end->loss = step.loss;
    t->end->asked = said[SAID_ASKED] > 0;
    stop = t->end->asked || said[SAID_LATE] > 0;
    if (t->rank == 0)
      gd_train_log_step(&t->log, &step);
    say_trouble(t);
    if (o->stepped)
      o->stepped(o->user, &step);
    GD_TRY(watch_drift(t, &step, data_wait_s, err));
    gd_train_fault_hold(t->step, o->stop, o->user);
    gd_train_fault_slow(t->step);
    if (t->writer.active && said[SAID_WRITTEN] >= (t->comm ? gd_comm_size(t->comm) : 1))
      GD_TRY(end_checkpoint(t, false, err));
    GD_TRY(check_hardware_when_due(t, err));
    if (t->bad_in_row >= ROLL_BACK_AFTER) {
      GD_TRY(roll_back(t, step.loss, err));
      continue;
    }
    if (!stop && evaluation_is_due(t))
      GD_TRY(evaluate(t, &stop, err));
    /* Time differs between ranks: rank 0's decides. */
    double due = t->rank == 0 && checkpoint_is_due(t);
    if (o->checkpoint_s > 0)
      GD_TRY(sum(t, &due, 1, err));
    else
      due = checkpoint_is_due(t);
    if (due > 0 && !stop && t->step < steps && t->bad_in_row == 0)
      GD_TRY(begin_checkpoint(t, false, err));
  }
  return GD_OK;
}

static int compare_floats(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return x < y ? -1 : x > y;
}

static enum gd_status publish_model(const struct training *t, struct gd_error *err) {
  char checkpoint[GD_FILE_PATH];
  snprintf(checkpoint, sizeof checkpoint, "%.4000s/step-%08" PRId64, t->checkpoints, t->step);
  return gd_publish(&(struct gd_publishing){.folder = t->o->folder,
                                            .checkpoint = checkpoint,
                                            .config_text = t->o->config_text,
                                            .generates = t->session.full.graph.predicts_next,
                                            .images = gd_source_images(&t->data)},
                    err);
}

static enum gd_status finish(struct training *t, struct gd_error *err) {
  const struct gd_training *o = t->o;
  struct gd_train_end *end = t->end;
  struct gd_checkpoint_query query = own_checkpoints(t);
  int64_t timed = t->n_steps < TIMES ? t->n_steps : TIMES;
  bool stop;
  end->seconds = 1e-9 * (double)(gd_clock_ns() - t->begun_ns);
  end->finished = t->step >= o->model->recipe.steps;
  end->step = t->step;
  if (timed > 0) {
    qsort(t->step_s, (size_t)timed, sizeof *t->step_s, compare_floats);
    end->step_s = (double)t->step_s[timed / 2];
  }
  gd_drift_end(&t->drift);
  keep_run(t);
  if (end->finished && t->eval.ops && t->before.evaluated_step != t->step)
    GD_TRY(evaluate(t, &stop, err));
  GD_TRY(end_checkpoint(t, false, err));
  if (t->saved_step != t->step) {
    GD_TRY(begin_checkpoint(t, true, err));
    GD_TRY(end_checkpoint(t, true, err));
  }
  end->best_step = t->rank == 0 ? gd_checkpoint_best(&query) : -1;
  if (end->finished && !isfinite(end->loss))
    return gd_fail(err, GD_MISMATCH,
                   "the loss of the last step is not finite: nothing can be done with this model");
  struct gd_error why = {0};
  if (!end->finished || t->rank != 0 || publish_model(t, &why) == GD_OK)
    return GD_OK;
  return gd_fail(err, why.status,
                 "the model was not put into %s/model: %s; the run is done and its last checkpoint "
                 "whole: 'gpudays train %s' tries again",
                 o->folder, why.text, o->folder);
}

/* What a user would rather know before the first step. */
static void say_troubles_ahead(const struct training *t) {
  struct statvfs disk;
  char needs[32], has[32];
  int64_t bytes = gd_checkpoint_bytes(t->plan.parameters);
  if (t->plan.precision_substituted)
    say(t, "the recipe's %s runs as %s here: this device has no fast %s",
        gd_precision_name(t->o->model->recipe.precision), gd_precision_name(t->plan.precision),
        gd_precision_name(t->o->model->recipe.precision));
  if (statvfs(t->o->folder, &disk) == 0 &&
      (double)disk.f_bavail * (double)disk.f_frsize < (double)bytes)
    say(t, "a checkpoint takes %s, and the disk of %s has %s left: make room, or none will be kept",
        gd_format_bytes(needs, sizeof needs, bytes), t->o->folder,
        gd_format_bytes(has, sizeof has, (int64_t)disk.f_bavail * (int64_t)disk.f_frsize));
}

static enum gd_status run(struct training *t, struct gd_error *err) {
  const struct gd_training *o = t->o;
  enum gd_status status = open_data(t, err);
  if (status == GD_OK && t->rank == 0)
    status = gd_file_make_folder(t->checkpoints, err);
  GD_TRY(t->comm ? gd_comm_agree(t->comm, status, err) : status);
  GD_TRY(open_session(t, err));
  GD_TRY(begin(t, err));
  GD_TRY(open_log(t, err));
  say_troubles_ahead(t);
  gd_checkpoint_reserve(&t->writer, &t->session.run);
  t->saved_ns = t->begun_ns = gd_clock_ns();
  GD_TRY(begin_drift(t, err));
  if (o->opened)
    o->opened(o->user, &t->plan, t->step);
  status = train_steps(t, err);
  if ((status == GD_BAD_INPUT || t->data_failed) && !t->comm) { /* the steps before it count */
    struct gd_error why = {0};
    if (t->step > t->saved_step && begin_checkpoint(t, true, &why) == GD_OK &&
        end_checkpoint(t, true, &why) == GD_OK)
      say(t, "the state of step %" PRId64 " is saved", t->step);
  }
  GD_TRY(status);
  return finish(t, err);
}

enum gd_status gd_train_run(const struct gd_training *training, struct gd_train_end *end,
                            struct gd_error *err) {
  struct training *t = gd_mem_alloc(1, sizeof *t);
  if (!t)
    return gd_nomem(err, "before training");
  *end = (struct gd_train_end){.eval_accuracy = -1};
  t->o = training;
  t->opened_ns = gd_clock_ns();
  t->ask_every = 1;
  t->images = training->model->family->images;
  t->end = end;
  t->comm = training->trial.comm;
  t->rank = t->comm ? gd_comm_rank(t->comm) : 0;
  snprintf(t->checkpoints, sizeof t->checkpoints, "%.4000s/checkpoints", training->folder);
  snprintf(t->choices, sizeof t->choices, "%.4000s/kernels", training->folder);
  t->writer.folder = t->checkpoints;
  t->writer.config_text = training->config_text;
  t->writer.comm = t->comm;
  enum gd_status status = run(t, err);
  if (t->writer.active) { /* a failure: what was under way still counts where all ranks wrote it */
    struct gd_error unused = {0};
    if (gd_checkpoint_end(&t->writer, &unused) != GD_OK && training->note && t->rank == 0)
      training->note(training->user, unused.text);
  }
  gd_checkpoint_release(&t->writer);
  gd_drift_end(&t->drift);
  gd_train_log_close(&t->log);
  gd_session_close(&t->session);
  gd_source_close(&t->eval);
  gd_source_close(&t->data);
  gd_mem_free(t);
  return status;
}
