/*
 * The measurement of a trial; see measure.h.
 */
#include "trial/measure.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "trial/agree.h"
#include "trial/clocks.h"
#include "trial/load.h"
#include "trial/session.h"

struct measuring {
  const struct gd_model *model;
  const struct gd_trial_options *options;
  struct gd_trial *trial;
  const struct gd_place *place;
  struct gd_run *run;
  double limit_s;     /* sampling time for each program */
  double expected_s;  /* of the whole trial, from what the warm-up took; 0: not known yet */
  int64_t started_ns; /* for progress */
};

static void report(const struct measuring *m, const char *what) {
  const struct gd_trial_options *options = m->options;
  if (!options->progress)
    return;
  double spent = 1e-9 * (double)(gd_clock_ns() - m->started_ns);
  double total = m->expected_s > spent ? m->expected_s : spent;
  options->progress(options->progress_user, what, total > 0 ? spent / total : 0,
                    m->expected_s > 0 ? total - spent : -1);
}

/* What a training step is made of, each timed apart. */
enum piece { PIECE_MICRO_STEP, PIECE_LAST_MICRO_STEP, PIECE_UPDATE };

static bool has_last_micro_step(const struct gd_trial *trial) {
  return trial->remainder || trial->reduces;
}

/* A micro-step begins with its batch on the host, as in training. */
static enum gd_status run_piece(struct measuring *m, enum piece piece, struct gd_error *err) {
  bool smaller = piece == PIECE_LAST_MICRO_STEP && m->trial->remainder;
  enum gd_run_part part = smaller ? GD_RUN_REMAINDER : GD_RUN_FULL;
  if (piece != PIECE_UPDATE)
    GD_TRY(gd_run_send(m->run, part, err));
  switch (piece) {
  case PIECE_MICRO_STEP: return gd_run_micro_step(m->run, part, err);
  case PIECE_LAST_MICRO_STEP: return gd_run_last_micro_step(m->run, part, err);
  case PIECE_UPDATE: /* a learning rate of zero costs the same and keeps the loss where it was */
    return gd_run_update(m->run, 0, err);
  }
  return GD_OK;
}

/* The slowest rank's value; all ranks leave with the same. They also wait for each other here. */
static enum gd_status slowest(struct measuring *m, int64_t *ns, struct gd_error *err) {
  struct gd_comm *comm = m->options->comm;
  void *gathered;
  if (!comm || gd_comm_size(comm) == 1)
    return GD_OK;
  GD_TRY(gd_agree_gather(comm, ns, sizeof *ns, &gathered, err));
  const int64_t *all = gathered;
  for (int i = 0; i < gd_comm_size(comm); i++)
    *ns = all[i] > *ns ? all[i] : *ns;
  gd_mem_free(gathered);
  return GD_OK;
}

/* One timed call: the clock stops when the device, and the slowest rank, are done. */
static enum gd_status time_once(struct measuring *m, enum piece piece, int64_t *ns,
                                struct gd_error *err) {
  int64_t start = gd_clock_ns();
  GD_TRY(run_piece(m, piece, err));
  *ns = gd_clock_ns() - start;
  return slowest(m, ns, err);
}

/* Samples until the interval is within 2 %, the time is up, or the array is full. */
static enum gd_status sample(struct measuring *m, const char *what, enum piece piece,
                             struct gd_samples *samples, struct gd_error *err) {
  int64_t start = gd_clock_ns();
  for (samples->count = 0; samples->count < GD_TRIAL_MAX_SAMPLES;) {
    report(m, what);
    GD_TRY(time_once(m, piece, &samples->ns[samples->count], err));
    samples->count++;
    gd_samples_summarise(samples);
    int64_t elapsed_ns = gd_clock_ns() - start;
    GD_TRY(slowest(m, &elapsed_ns, err)); /* all ranks must stop at the same sample */
    bool late = samples->count >= 3 && 1e-9 * (double)elapsed_ns >= m->limit_s;
    if (late || gd_samples_are_tight(samples))
      break;
  }
  return GD_OK;
}

/* Writes the inputs of a part. The inputs of both parts share memory, laid out by two plans, so
   those of the other part are lost. */
static enum gd_status put_batch(struct measuring *m, enum gd_run_part part, struct gd_error *err) {
  const struct gd_model *model = m->model;
  struct gd_comm *comm = m->options->comm;
  uint64_t seed = m->options->seed + (comm ? (uint64_t)gd_comm_rank(comm) : 0);
  return gd_run_random_batch(m->run, part, model->family->classes(model), seed, err);
}

/* A micro-step and its update. Loss and norm are those of the first micro-batch, over all ranks, as
   if it were the whole step. Every rank has the same. */
static enum gd_status first_step(struct measuring *m, int64_t *micro_step_ns, int64_t *update_ns,
                                 struct gd_error *err) {
  struct gd_trial *trial = m->trial;
  struct gd_comm *comm = m->options->comm;
  double share = gd_run_step_share(m->run, GD_RUN_FULL);
  int64_t before_ns = gd_clock_ns();
  GD_TRY(gd_run_last_micro_step(m->run, GD_RUN_FULL,
                                err)); /* so that the update sees whole gradients */
  *micro_step_ns = gd_clock_ns() - before_ns;
  GD_TRY(gd_run_take_loss(m->run, &trial->loss, err));
  if (comm) /* each rank has its part of the sum */
    GD_TRY(gd_comm_sum_doubles(comm, &trial->loss, 1, err));
  GD_TRY(time_once(m, PIECE_UPDATE, update_ns, err));
  GD_TRY(gd_run_norm(m->run, &trial->norm, err));
  trial->loss /= share;
  trial->norm /= share;
  return GD_OK;
}

/* The warm-up, with the check of loss and norm: pages are mapped and libraries choose algorithms.
   None of this counts as a sample. */
static enum gd_status warm_up(struct measuring *m, int64_t *micro_step_ns, int64_t *update_ns,
                              struct gd_error *err) {
  struct gd_trial *trial = m->trial;
  int64_t start = gd_clock_ns();
  report(m, "warm-up");
  GD_TRY(gd_run_init(m->run, m->options->seed, err));
  GD_TRY(put_batch(m, GD_RUN_FULL, err));
  GD_TRY(first_step(m, micro_step_ns, update_ns, err));
  for (int skipped = 0; skipped < GD_RUN_MOST_SKIPS && trial->precision == GD_PRECISION_FP16 &&
                        !isfinite(trial->norm);
       skipped++) /* with half the loss scale */
    GD_TRY(first_step(m, micro_step_ns, update_ns, err));
  if (trial->remainder) {
    int64_t unused_ns;
    GD_TRY(put_batch(m, GD_RUN_REMAINDER, err));
    GD_TRY(time_once(m, PIECE_LAST_MICRO_STEP, &unused_ns, err));
    GD_TRY(put_batch(m, GD_RUN_FULL, err));
  }
  trial->warmup_s = 1e-9 * (double)(gd_clock_ns() - start);
  return GD_OK;
}

/* How long sampling takes at least: three samples, or the time that it has. */
static double sampling_s(double one_s, double limit_s) {
  return 3 * one_s > limit_s ? 3 * one_s : limit_s;
}

void gd_trial_set_days_low(struct gd_trial *trial) {
  double width = trial->step_half_width_s / trial->step_s, held = gd_trial_held_share(trial);
  if (!gd_backend_is_gpu(trial->backend))
    held = fmax(held, fmin(trial->busy_share, GD_LOAD_GROSS));
  trial->days_low = trial->days * fmax(0, 1 - width) * (held > GD_LOAD_QUIET ? 1 - held : 1);
}

/* Micro-steps x accumulation + update, as in Sec. 3.2; a smaller last one counts as itself. */
static void extrapolate(struct gd_trial *trial, const struct gd_recipe *recipe) {
  double rest = has_last_micro_step(trial) ? 1 : 0;
  double full = (double)trial->accumulation - rest;
  trial->step_s = full * trial->micro_step.median_s + rest * trial->last_micro_step.median_s +
                  trial->update.median_s;
  /* Each program's median is one draw that multiplies its count; the three are independent. */
  double a = full * trial->micro_step.half_width_s, b = rest * trial->last_micro_step.half_width_s;
  double c = trial->update.half_width_s;
  trial->step_half_width_s = sqrt(a * a + b * b + c * c);
  double days_per_s = (double)recipe->steps / 86400;
  trial->days = trial->step_s * days_per_s;
  gd_trial_set_days_low(trial);
  trial->days_high = (trial->step_s + trial->step_half_width_s) * days_per_s;
  trial->samples_per_s = (double)recipe->batch / trial->step_s;
  trial->tokens_per_s = trial->samples_per_s * (double)recipe->seq;
}

void gd_trial_judge(struct gd_trial *trial, int64_t classes) {
  double bound = 5 * log((double)(classes > 2 ? classes : 3));
  double rate = trial->step_s > 0 ? trial->exec_flops_per_step / trial->step_s : 0;
  double limit = trial->peak_flops > 0 ? fmax(trial->peak_flops, trial->limit_flops) : HUGE_VAL;
  trial->status = GD_TRIAL_OK;
  trial->reason[0] = '\0';
  if (trial->peak_flops > 0 && trial->step_s > 0) {
    trial->mfu = trial->model_flops_per_step / trial->step_s / trial->peak_flops;
    trial->hfu = rate / trial->peak_flops;
  }
  if (!isfinite(trial->loss) || trial->loss <= 0 || trial->loss > bound) {
    trial->status = GD_TRIAL_FAILED;
    snprintf(trial->reason, sizeof trial->reason,
             "the loss at random start is %g, not in (0, %.1f]: the run computes nonsense",
             trial->loss, bound);
  } else if (!isfinite(trial->norm) || trial->norm <= 0) {
    trial->status = GD_TRIAL_FAILED;
    snprintf(trial->reason, sizeof trial->reason,
             "the gradient norm is %g, not finite and positive: the run computes nonsense",
             trial->norm);
  } else if (rate > limit || !isfinite(trial->step_s)) { /* mfu counts what fused ops skip */
    trial->status = GD_TRIAL_IMPLAUSIBLE;
    snprintf(trial->reason, sizeof trial->reason,
             "%.3g executed FLOP/s are more than this device's peak of %.3g in %s: the clock or "
             "the count is wrong",
             rate, limit, gd_precision_name(trial->precision));
  }
}

/* --- profile ------------------------------------------------------------------------------- */

static int compare_rows(const void *left, const void *right) {
  const struct gd_profile_row *a = left, *b = right;
  return a->seconds > b->seconds ? -1 : a->seconds < b->seconds;
}

static void add_event(struct gd_trial *trial, const struct gd_graph *graph, enum gd_program program,
                      const struct gd_event *event) {
  enum gd_op_kind kind = graph->ops[event->op].kind;
  struct gd_cost cost;
  uint32_t i = 0;
  while (i < trial->n_profile &&
         (trial->profile[i].kind != kind || trial->profile[i].program != program))
    i++;
  if (i == GD_PROFILE_ROWS)
    return;
  if (i == trial->n_profile)
    trial->profile[trial->n_profile++] =
        (struct gd_profile_row){.kind = kind, .program = program, .async = event->async};
  trial->profile[i].count++;
  trial->profile[i].seconds += 1e-9 * (double)(event->end_ns - event->begin_ns);
  gd_op_cost(graph, event->op, &cost);
  trial->profile[i].bytes += cost.read_bytes + cost.write_bytes;
  trial->profile[i].flops += gd_trial_op_flops(graph, event->op);
}

/* Of the last micro-step and update that were sampled. */
static void take_profile(struct measuring *m, struct gd_backend *backend) {
  static const enum gd_program programs[] = {GD_PROGRAM_MICRO_STEP, GD_PROGRAM_UPDATE};
  struct gd_trial *trial = m->trial;
  const struct gd_graph *graph = m->run->plan[GD_RUN_FULL]->graph;
  for (size_t p = 0; p < sizeof programs / sizeof *programs; p++) {
    uint32_t count;
    const struct gd_event *events =
        backend->ops->events(backend, m->run->bound[GD_RUN_FULL], programs[p], &count);
    for (uint32_t i = 0; i < count; i++)
      add_event(trial, graph, programs[p], &events[i]);
  }
  qsort(trial->profile, trial->n_profile, sizeof *trial->profile, compare_rows);
}

/* The other ranks on this machine's CPUs are not other programs. Ranks on further machines count as
   if they were here: then the share is at worst too small. */
static enum gd_status own_ranks(const struct measuring *m, const struct gd_load *before,
                                struct gd_load *after, struct gd_error *err) {
  struct gd_comm *comm = m->options->comm;
  double own_s = 1e-9 * (double)(after->own_ns - before->own_ns);
  if (!comm)
    return GD_OK;
  GD_TRY(gd_comm_sum_doubles(comm, &own_s, 1, err));
  after->own_ns = before->own_ns + (int64_t)(1e9 * own_s);
  return GD_OK;
}

static enum gd_status sample_pieces(struct measuring *m, struct gd_error *err) {
  struct gd_trial *trial = m->trial;
  GD_TRY(sample(m, "micro-steps", PIECE_MICRO_STEP, &trial->micro_step, err));
  if (trial->remainder)
    GD_TRY(put_batch(m, GD_RUN_REMAINDER, err));
  if (has_last_micro_step(trial))
    GD_TRY(sample(m, "last micro-step", PIECE_LAST_MICRO_STEP, &trial->last_micro_step, err));
  return sample(m, "updates", PIECE_UPDATE, &trial->update, err);
}

/* The rank that was held back most: the others waited for it. */
static enum gd_status most_share(struct measuring *m, double *share, struct gd_error *err) {
  int64_t parts = (int64_t)(1e9 * *share);
  GD_TRY(slowest(m, &parts, err));
  *share = 1e-9 * (double)parts;
  return GD_OK;
}

/* All samples, and what the accounts of the machine say about that time. */
static enum gd_status sample_all(struct measuring *m, struct gd_backend *backend,
                                 struct gd_error *err) {
  struct gd_trial *trial = m->trial;
  struct gd_clocks_watch clocks;
  struct gd_load before, after;
  struct gd_load_watch watch;
  gd_load_read(&before);
  gd_load_watch_start(&watch);
  gd_clocks_watch_start(&clocks, backend);
  enum gd_status status = sample_pieces(m, err);
  gd_clocks_watch_stop(&clocks);
  trial->stalled_share = gd_load_watch_stop(&watch);
  gd_load_read(&after);
  GD_TRY(status);
  trial->throttled_share = gd_load_throttled_share(&before, &after);
  trial->steal_share = gd_load_steal_share(&before, &after);
  GD_TRY(most_share(m, &trial->throttled_share, err));
  GD_TRY(most_share(m, &trial->steal_share, err));
  GD_TRY(most_share(m, &trial->stalled_share, err));
  GD_TRY(gd_clocks_tell(&clocks, m->options->comm, trial, err));
  GD_TRY(own_ranks(m, &before, &after, err));
  trial->busy_share = gd_load_share(&before, &after);
  /* A quota and a GPU's clocks are facts of the place that is measured, whatever they leave; stops
     are not. */
  double stopped = fmax(trial->stalled_share, trial->steal_share);
  if (stopped > GD_LOAD_GROSS && trial->throttled_share < GD_LOAD_QUIET)
    return gd_fail(err, GD_ENVIRONMENT,
                   "the process did not run for %.0f %% of the time in which it was measured: it "
                   "was stopped, or its virtual machine was; measure again when it is left alone",
                   100 * stopped);
  return GD_OK;
}

/* The peak of all devices together: measured now, or found before where that is higher. */
static enum gd_status find_peak(struct measuring *m, struct gd_backend *backend,
                                struct gd_error *err) {
  GD_ASSERT(backend);
  struct gd_trial *trial = m->trial;
  enum gd_dtype dtype = gd_precision_dtype(trial->precision);
  bool tf32 = m->place->caps.tf32 && m->options->method.tf32;
  struct gd_peak_share own = {.peak_flops = backend->ops->peak_flops(backend, dtype, tf32),
                              .threads = m->place->info.threads};
  double peak, limit;
  if (tf32 && dtype == GD_DTYPE_F32)
    own.limit_flops = backend->ops->peak_flops(backend, GD_DTYPE_F16, false);
  memcpy(own.uuid, m->place->info.uuid, sizeof own.uuid);
  GD_TRY(gd_agree_peak(m->options->comm, &own, &peak, &limit, &trial->devices, err));
  trial->peak_flops = fmax(trial->peak_flops, peak);
  trial->limit_flops = fmax(trial->limit_flops, limit);
  return GD_OK;
}

static enum gd_status measure(struct measuring *m, struct gd_backend *backend,
                              struct gd_error *err) {
  struct gd_trial *trial = m->trial;
  const struct gd_model *model = m->model;
  int64_t micro_step_ns, update_ns;
  GD_TRY(find_peak(m, backend, err));
  GD_TRY(warm_up(m, &micro_step_ns, &update_ns, err));
  gd_trial_judge(trial, model->family->classes(model)); /* nonsense is not worth timing */
  if (trial->status != GD_TRIAL_OK)
    return GD_OK;
  m->expected_s = 1e-9 * (double)(gd_clock_ns() - m->started_ns) +
                  sampling_s(1e-9 * (double)micro_step_ns, m->limit_s / 3) +
                  sampling_s(1e-9 * (double)update_ns, m->limit_s / 10);
  GD_TRY(sample_all(m, backend, err));
  if (m->options->profile)
    take_profile(m, backend);
  backend->ops->usage(backend, &trial->resident_bytes, &trial->runtime_bytes);
  /* Measured at both ends: another program in the way of one must not lower the peak. */
  GD_TRY(find_peak(m, backend, err));
  extrapolate(trial, &model->recipe);
  gd_trial_judge(trial, model->family->classes(model));
  return GD_OK;
}

static enum gd_status measure_as_planned(const struct gd_model *model,
                                         const struct gd_trial_options *options,
                                         struct gd_trial *trial, struct gd_error *err) {
  struct measuring m = {.model = model,
                        .options = options,
                        .trial = trial,
                        .limit_s = options->sample_seconds > 0 ? options->sample_seconds : 5,
                        .started_ns = gd_clock_ns()};
  struct gd_session session;
  enum gd_status status = gd_session_open(&session, model, options, trial, err);
  if (status == GD_OK && trial->status != GD_TRIAL_INFEASIBLE) {
    m.run = &session.run;
    m.place = session.place;
    status = measure(&m, session.backend, err);
  }
  gd_session_close(&session);
  return status;
}

/* Where others use the device too there may be less memory than it has: then nothing is saved,
   which is slower, and the result says so for as long as it is stored. */
enum gd_status gd_trial_measure(const struct gd_model *model,
                                const struct gd_trial_options *options, struct gd_trial *trial,
                                struct gd_error *err) {
  struct gd_error why = {0};
  enum gd_status status = measure_as_planned(model, options, trial, &why);
  if (status != GD_NOMEM_DEVICE || trial->saved_blocks == 0 || trial->ranks > 1) {
    if (err && why.status != GD_OK)
      *err = why;
    return status;
  }
  struct gd_trial_options less = *options;
  less.saves_nothing = true;
  less.expected = (struct gd_plan_identity){0};
  status = measure_as_planned(model, &less, trial, err);
  if (status == GD_OK && trial->status == GD_TRIAL_OK)
    snprintf(trial->reason, sizeof trial->reason, "measured with nothing saved: %.255s", why.text);
  return status;
}
