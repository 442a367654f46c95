/*
 * Simulating and weighing what may slow a run down; see diagnosis.h.
 */
#include "predict/diagnosis_int.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  MOST_OPTIONS = 16,
  MOST_WORKS = 64,
  MOST_STEPS = 512,
  LARGER_BATCH = 64, /* of a GPU: what is proposed at most */
  BUDGET = 2         /* faults at once that nobody said: more explain anything */
};
/* A fault that a log states, and what each simulated fault adds to the error of a prediction: the
   GPU model misses single rows by 4 to 9 % (results/accuracy.md), and faults are cruder facts. */
static const double certain = 0.97, fault_error = 0.12;
/* What is none of the causes, by any factor up to 10, or as far as it takes. */
static const double other_prior = 0.03, other_most = 10;
/* Scores of attention in eager PyTorch: scaled, masked, widened, normalised, narrowed; what
   --stack paper expects of them (stack_fit.c, GD_STACK_SCORES). */
static const double eager_score_traffic = 6;

struct works_of {
  struct gd_step_state state; /* eager, scores, fp32, tf32, micro_batch */
  struct gd_stack_works works;
};
struct step_of {
  struct gd_step_state state;
  struct gd_stack_step step;
};

struct asking {
  const struct gd_diagnosis_question *q;
  struct gd_diagnosis *d;
  struct gd_model model;
  struct gd_gpu_model gpu;
  struct gd_stack_facts fast, eager; /* the run's software, compiled where it can be, and not */
  struct gd_step_state healthy;
  struct gd_cause_option options[MOST_OPTIONS];
  int n_options;
  int chosen[MOST_OPTIONS]; /* level of each; -1: off */
  struct works_of works[MOST_WORKS];
  struct step_of steps[MOST_STEPS];
  int n_works, n_steps;
  double total, best; /* of all weights; of the likeliest set */
  struct gd_error *err;
  enum gd_status status;
};

/* --- simulating ------------------------------------------------------------------------------ */

static enum gd_precision precision_of(const struct asking *a, const struct gd_step_state *state) {
  return state->fp32 || state->tf32 ? GD_PRECISION_FP32 : a->q->precision;
}

static bool same_works(const struct gd_step_state *a, const struct gd_step_state *b) {
  return a->eager == b->eager && a->scores == b->scores && a->fp32 == b->fp32 &&
         a->tf32 == b->tf32 && a->micro_batch == b->micro_batch;
}

static bool same_step(const struct gd_step_state *a, const struct gd_step_state *b) {
  return same_works(a, b) && a->ckpt == b->ckpt && !(a->links < b->links) &&
         !(a->links > b->links) && !(a->clock < b->clock) && !(a->clock > b->clock);
}

static const struct gd_stack_works *works_for(struct asking *a, const struct gd_step_state *state) {
  for (int i = 0; i < a->n_works; i++)
    if (same_works(&a->works[i].state, state))
      return &a->works[i].works;
  if (a->n_works == MOST_WORKS) {
    a->status = gd_fail(a->err, GD_INTERNAL, "more than %d variants of a step", MOST_WORKS);
    return NULL;
  }
  struct works_of *made = &a->works[a->n_works];
  *made = (struct works_of){.state = *state};
  const struct gd_stack_facts *facts = state->eager ? &a->eager : &a->fast;
  struct gd_model model = a->model;
  model.recipe.precision = precision_of(a, state);
  a->status = gd_stack_works_make(facts, &model, model.recipe.precision, state->micro_batch,
                                  !state->scores, !state->fp32, &made->works, a->err);
  if (a->status != GD_OK)
    return NULL;
  a->n_works++;
  return &made->works;
}

static const struct gd_stack_step *step_for(struct asking *a, const struct gd_step_state *state) {
  static const struct gd_stack_step none = {.seconds = 1};
  for (int i = 0; i < a->n_steps; i++)
    if (same_step(&a->steps[i].state, state))
      return &a->steps[i].step;
  const struct gd_stack_works *works = a->status == GD_OK ? works_for(a, state) : NULL;
  if (!works)
    return &none;
  struct step_of *made = &a->steps[a->n_steps < MOST_STEPS ? a->n_steps++ : MOST_STEPS - 1];
  struct gd_stack_facts facts = state->eager ? a->eager : a->fast;
  struct gd_gpu_model gpu = a->gpu;
  gpu.power.clock_most *= state->clock;
  if (state->fp32 || state->tf32)
    facts.weights = GD_STACK_WEIGHTS_STORED; /* nothing is cast */
  /* Micro-batches of more than the batch are a larger batch: the time is that of as many samples.
   */
  double samples = (double)a->model.recipe.batch,
         together = (double)a->q->target->count * (double)state->micro_batch;
  struct gd_stack_run run = {.facts = &facts,
                             .works = works,
                             .gpu = &gpu,
                             .target = a->q->target,
                             .method = a->d->method,
                             .accumulation = fmax(samples / together, 1),
                             .value = {facts.value[GD_STACK_TRAFFIC], facts.value[GD_STACK_HOST]},
                             .score_traffic =
                                 state->eager && state->scores ? eager_score_traffic : 0,
                             .links = state->links};
  run.method.ckpt = state->ckpt;
  made->state = *state;
  gd_stack_step(&run, &made->step);
  made->step.seconds *= fmin(samples / together, 1);
  return &made->step;
}

/* Seconds that the rate of such a run shows for a step. */
static double seconds_of(struct asking *a, const struct gd_step_state *state) {
  return step_for(a, state)->seconds * (1 + state->wait) / state->counted;
}

/* Of the chosen set, without one of them; -1: with all. */
static double seconds_of_set(struct asking *a, int without) {
  struct gd_step_state state = a->healthy;
  for (int i = 0; i < a->n_options; i++)
    if (a->chosen[i] >= 0 && i != without)
      a->options[i].cause->apply(&state, a->options[i].levels[a->chosen[i]]);
  return seconds_of(a, &state);
}

/* --- the run without a fault ----------------------------------------------------------------- */

static bool fits(const struct asking *a, const struct gd_stack_graph *graph,
                 const struct gd_method *method, int64_t micro_batch) {
  struct gd_stack_bytes bytes;
  gd_stack_facts_bytes(&a->fast, graph, method, a->q->target->count, (double)micro_batch, &bytes);
  return bytes.device <= (double)a->q->target->gpu->memory_bytes;
}

/* Data parallel, else sharded, else recomputing: the first that fits, with its largest
   micro-batch. */
static enum gd_status choose_healthy(struct asking *a) {
  struct gd_stack_graph graph = {0};
  struct gd_model model = a->model;
  int64_t own = model.recipe.batch / a->q->target->count;
  if (a->q->micro_batch >= own && own < LARGER_BATCH)
    own = LARGER_BATCH; /* nothing is accumulated: a larger batch is the way */
  bool several = a->q->target->count > 1;
  struct gd_method methods[4] = {{0}};
  int n_methods = 0;
  model.recipe.precision = a->q->precision;
  GD_TRY(gd_stack_graph_make(&model, gd_stack_facts_mode(&a->fast, true), &graph, a->err));
  for (int ckpt = 0; ckpt < 2; ckpt++) {
    if (a->q->method) {
      methods[n_methods] = *a->q->method;
      methods[n_methods++].ckpt = ckpt > 0;
      continue;
    }
    if (!several || a->fast.weights != GD_STACK_WEIGHTS_GATHERED)
      methods[n_methods++] = (struct gd_method){.ckpt = ckpt > 0};
    if (several)
      methods[n_methods++] = (struct gd_method){.ckpt = ckpt > 0, .sharding = GD_SHARDING_FSDP3};
  }
  a->d->method = methods[n_methods - 1];
  a->healthy = (struct gd_step_state){.micro_batch = 0, .links = 1, .clock = 1, .counted = 1};
  for (int i = 0; i < n_methods && a->healthy.micro_batch == 0; i++) {
    a->d->method = methods[i];
    for (int64_t size = 1; size <= own && fits(a, &graph, &methods[i], size); size *= 2)
      a->healthy.micro_batch = size;
  }
  a->healthy.ckpt = a->d->method.ckpt;
  if (a->healthy.micro_batch < a->q->micro_batch)
    a->healthy.micro_batch = a->q->micro_batch; /* the run shows that it fits */
  if (a->healthy.micro_batch < 1)
    a->healthy.micro_batch = 1;
  a->d->micro_batch = a->healthy.micro_batch;
  return GD_OK;
}

/* What the multipliers alone take at their peak, which nothing goes below. */
static void find_bound(struct asking *a) {
  const struct gd_stack_works *works = works_for(a, &a->healthy);
  if (!works)
    return;
  a->d->bound_s = gd_stack_works_least_s(works, &a->gpu);
  a->d->bound_s *= (double)a->model.recipe.batch /
                   ((double)a->q->target->count * (double)a->healthy.micro_batch);
}

/* The software with its kernels compiled, and op by op; what PyTorch does either way is known. */
static enum gd_status choose_facts(struct asking *a, bool compiles) {
  const struct gd_stack_facts *op_by_op, *compiled;
  GD_TRY(gd_stacks_find(a->q->stacks, "pytorch-eager", &op_by_op, a->err));
  GD_TRY(gd_stacks_find(a->q->stacks, "pytorch-compile", &compiled, a->err));
  a->fast = a->eager = *a->q->facts;
  if (!a->fast.flash) {
    a->fast.flash = a->eager.flash = true;
    a->fast.attention = a->eager.attention = GD_GPU_FLASH_2;
  }
  if (compiles && a->fast.kernels == GD_STACK_KERNELS_EAGER) {
    a->fast.kernels = GD_STACK_KERNELS_COMPILED;
    memcpy(a->fast.value, compiled->value, sizeof a->fast.value);
  }
  if (a->eager.kernels != GD_STACK_KERNELS_EAGER) {
    a->eager.kernels = GD_STACK_KERNELS_EAGER;
    memcpy(a->eager.value, op_by_op->value, sizeof a->eager.value);
  }
  return GD_OK;
}

/* --- what is known of each cause -------------------------------------------------------------- */

static void set_levels(struct gd_cause_option *o, const double *levels, int count) {
  o->n_levels = 0;
  for (int i = 0; i < count; i++)
    o->levels[o->n_levels++] = levels[i];
}

/* One GPU of several, one micro-step of several; what a log counts itself is right. */
static void set_counts(const struct asking *a, struct gd_cause_option *o) {
  double gpus = a->q->target ? a->q->target->count : 1, levels[2];
  int count = 0;
  if (a->q->counted_by_hand && gpus > 1)
    levels[count++] = 1 / gpus;
  if (a->q->counted_by_hand && a->q->accumulation > 1)
    levels[count++] = 1 / a->q->accumulation;
  set_levels(o, levels, count);
}

static void set_micro_batch(const struct asking *a, struct gd_cause_option *o) {
  static const double guesses[] = {1, 2, 4};
  double known = (double)a->q->micro_batch, best = (double)a->healthy.micro_batch;
  int count = 0;
  if (known > 0) {
    o->fixed = known < best;
    set_levels(o, &known, o->fixed);
    return;
  }
  while (count < 3 && 2 * guesses[count] <= best)
    count++;
  set_levels(o, guesses, count);
}

static void set_widths(const struct asking *a, struct gd_cause_option *o) {
  const double *peaks = a->q->target ? a->q->target->gpu->flops : NULL;
  enum gd_run_answer tf32 = a->q->facts_said[GD_RUN_TF32].answer;
  double levels[2];
  int count = 0;
  if (peaks && peaks[GD_PEAK_TF32] > peaks[GD_PEAK_FP32] && tf32 != GD_RUN_NO)
    levels[count++] = 1;
  if (tf32 != GD_RUN_YES || count == 0)
    levels[count++] = 2;
  if (a->q->target && a->q->precision == GD_PRECISION_FP32)
    count = 0; /* it has nothing else */
  set_levels(o, levels, count);
}

/* Stalls are seen, and so is how much they cost; a smooth run waits for nothing now and then. */
static void set_waiting(const struct asking *a, struct gd_cause_option *o) {
  const double seen = 0.02, smooth = 0.02, rough = 0.15;
  const struct gd_stack_log *log = a->q->log;
  if (a->q->facts_said[GD_RUN_LOADER_WORKERS].answer == GD_RUN_NO)
    o->prior = 0.25;
  if (!log || log->times.steps < 4)
    return;
  const struct gd_stack_log_times *times = &log->times;
  if (times->stalls > 0 && times->stalled > seen && times->stalled < 1) {
    double level = times->stalled / (1 - times->stalled);
    o->fixed = true;
    set_levels(o, &level, 1);
  } else if (times->spread < smooth)
    o->prior *= 0.3;
  else if (times->spread > rough)
    o->prior = fmax(o->prior, 0.4);
}

static void set_clock(const struct asking *a, struct gd_cause_option *o) {
  const double grown = 1.05;
  if (a->q->log && a->q->log->times.drift > grown)
    o->prior = 0.5;
}

static void add_option(struct asking *a, const struct gd_cause *cause) {
  const struct gd_diagnosis_question *q = a->q;
  struct gd_cause_option *o = &a->options[a->n_options];
  enum gd_run_answer said = cause->fact < GD_RUN_FACT_COUNT && cause->fault != GD_RUN_UNKNOWN
                                ? q->facts_said[cause->fact].answer
                                : GD_RUN_UNKNOWN;
  *o = (struct gd_cause_option){.cause = cause, .prior = cause->prior};
  while (o->n_levels < GD_CAUSE_LEVELS && cause->levels[o->n_levels] > 0) {
    o->levels[o->n_levels] = cause->levels[o->n_levels];
    o->n_levels++;
  }
  if (!cause->remedy[q->framework] || (said != GD_RUN_UNKNOWN && said != cause->fault))
    return;
  if (cause->multi_gpu && q->target && q->target->count < 2)
    return;
  o->fixed = said == cause->fault && said != GD_RUN_UNKNOWN;
  if (gd_cause_is(o, "not-compiled") && !gd_stack_compiles(q->model))
    return;
  if (gd_cause_is(o, "not-compiled") && q->framework == GD_FRAMEWORK_TRAINER)
    o->prior = 0.9; /* it compiles only where --torch_compile asks for it */
  if (gd_cause_is(o, "checkpointing") && a->healthy.ckpt)
    return;
  if (gd_cause_is(o, "fp32-gemms"))
    set_widths(a, o);
  if (gd_cause_is(o, "small-micro-batch"))
    set_micro_batch(a, o);
  if (gd_cause_is(o, "data-loading"))
    set_waiting(a, o);
  if (gd_cause_is(o, "low-clock"))
    set_clock(a, o);
  if (gd_cause_is(o, "slow-links") && q->links > 0)
    set_levels(o, &q->links, 1);
  if (gd_cause_is(o, "miscounted"))
    set_counts(a, o);
  a->n_options += o->n_levels > 0;
}

/* --- weighing -------------------------------------------------------------------------------- */

static double normal_density(double x, double width) {
  const double root = 2.5066282746310002; /* of 2 pi */
  return exp(-0.5 * x * x / (width * width)) / (width * root);
}

static void weigh_set(struct asking *a) {
  double seconds = seconds_of_set(a, -1), weight = 1;
  int faults = 0;
  for (int i = 0; i < a->n_options; i++) {
    const struct gd_cause_option *o = &a->options[i];
    if (a->chosen[i] < 0)
      continue;
    faults++;
    weight *= (o->fixed ? 1 : o->prior / (1 - o->prior)) / o->n_levels;
  }
  double width = sqrt(a->d->error * a->d->error + faults * fault_error * fault_error);
  weight *= normal_density(log(a->q->step_s / seconds), width);
  a->total += weight;
  if (weight > a->best) {
    a->best = weight;
    a->d->likely_s = seconds;
  }
  for (int i = 0; i < a->n_options; i++) {
    struct gd_cause_option *o = &a->options[i];
    if (a->chosen[i] < 0)
      continue;
    double without = seconds_of_set(a, i);
    o->weight += weight;
    o->share += weight * (1 - without / seconds);
    if (weight > o->best) {
      o->best = weight;
      o->with_s = seconds;
      o->without_s = without;
      o->level = o->levels[a->chosen[i]];
    }
  }
}

static void weigh_sets(struct asking *a, int at, int budget) {
  if (a->status != GD_OK)
    return;
  if (at == a->n_options) {
    weigh_set(a);
    return;
  }
  const struct gd_cause_option *o = &a->options[at];
  if (!o->fixed) {
    a->chosen[at] = -1;
    weigh_sets(a, at + 1, budget);
  }
  for (int i = 0; i < o->n_levels && (o->fixed || budget > 0); i++) {
    a->chosen[at] = i;
    weigh_sets(a, at + 1, budget - !o->fixed);
  }
  a->chosen[at] = -1;
}

/* As if nobody knew the cause: what is said costs its time, and something else the rest. */
static void weigh_other(struct asking *a) {
  for (int i = 0; i < a->n_options; i++)
    a->chosen[i] = a->options[i].fixed ? 0 : -1;
  double factor = a->q->step_s / seconds_of_set(a, -1);
  double weight = factor > 1 ? other_prior / log(fmax(factor, other_most)) : 0;
  a->total += weight;
  a->d->unexplained = a->total > 0 ? weight / a->total : 1;
  for (int i = 0; i < a->n_options; i++)
    if (a->options[i].fixed)
      a->options[i].weight += weight;
}

/* --- what was found -------------------------------------------------------------------------- */

static int compare_found(const void *left, const void *right) {
  const struct gd_found_cause *a = left, *b = right;
  return (a->share < b->share) - (a->share > b->share);
}

static enum gd_status collect(struct asking *a) {
  struct gd_diagnosis *d = a->d;
  const double likely = 0.03, felt = 0.01;
  d->causes = gd_arena_alloc(&d->arena, MOST_OPTIONS, sizeof *d->causes);
  if (!d->causes)
    return gd_nomem(a->err, "while naming causes");
  for (int i = 0; i < a->n_options; i++) {
    const struct gd_cause_option *o = &a->options[i];
    double probability = o->fixed ? certain : a->total > 0 ? o->weight / a->total : 0;
    double share = a->total > 0 ? o->share / a->total : 0;
    bool slower = a->q->target == NULL || a->q->step_s > d->healthy_s;
    if (probability < likely || (a->q->target && share < felt) || (!slower && !o->fixed) ||
        (a->q->target && o->with_s < 1.01 * o->without_s))
      continue;
    struct gd_found_cause *found = &d->causes[d->count++];
    *found = (struct gd_found_cause){.cause = o->cause,
                                     .level = o->level,
                                     .probability = probability,
                                     .share = share,
                                     .with_s = o->with_s,
                                     .without_s = o->without_s,
                                     .said = o->fixed};
    gd_cause_describe(a->q, o, a->healthy.micro_batch, found);
  }
  qsort(d->causes, (size_t)d->count, sizeof *d->causes, compare_found);
  return GD_OK;
}

/* That of `plan`, as an error of the logarithm: 90 % of a normal distribution lie within 1.645 of
   it. */
static void set_interval(struct asking *a) {
  struct gd_fitted_ground ground;
  gd_fitted_stand(a->q->fitted, a->q->target->gpu, a->q->facts, a->q->model, 1, &ground);
  memcpy(a->d->basis, ground.words, sizeof a->d->basis);
  a->d->low_s = a->d->healthy_s * ground.interval->low;
  a->d->high_s = a->d->healthy_s * ground.interval->high;
  a->d->error = log(ground.interval->high / ground.interval->low) / 2 / 1.645;
}

static enum gd_status diagnose(struct asking *a) {
  int count;
  const struct gd_cause *causes = gd_causes(&count);
  a->model = *a->q->model;
  GD_TRY(choose_facts(a, causes[0].remedy[a->q->framework] && gd_stack_compiles(a->q->model)));
  gd_gpu_model_make(a->q->target->gpu, &a->q->fitted->gpu, &a->gpu);
  GD_TRY(choose_healthy(a));
  a->d->healthy = *step_for(a, &a->healthy);
  GD_TRY(a->status);
  a->d->healthy_s = a->d->healthy.seconds;
  find_bound(a);
  set_interval(a);
  for (int i = 0; i < count; i++)
    add_option(a, &causes[i]);
  weigh_sets(a, 0, BUDGET);
  GD_TRY(a->status);
  weigh_other(a);
  GD_TRY(a->status);
  return collect(a);
}

enum gd_status gd_diagnosis_make(const struct gd_diagnosis_question *question,
                                 struct gd_diagnosis *diagnosis, struct gd_error *err) {
  struct asking *a = gd_mem_alloc(1, sizeof *a);
  *diagnosis = (struct gd_diagnosis){0};
  if (!a)
    return gd_nomem(err, "while naming causes");
  *a = (struct asking){.q = question, .d = diagnosis, .err = err};
  enum gd_status status = diagnose(a);
  for (int i = 0; i < a->n_works; i++)
    gd_stack_works_deinit(&a->works[i].works);
  gd_mem_free(a);
  if (status != GD_OK)
    gd_diagnosis_deinit(diagnosis);
  return status;
}

enum gd_status gd_diagnosis_of_log(const struct gd_diagnosis_question *question,
                                   struct gd_diagnosis *diagnosis, struct gd_error *err) {
  int count;
  const struct gd_cause *causes = gd_causes(&count);
  struct asking *a = gd_mem_alloc(1, sizeof *a);
  *diagnosis = (struct gd_diagnosis){0};
  if (!a)
    return gd_nomem(err, "while naming causes");
  *a = (struct asking){.q = question, .d = diagnosis, .err = err};
  for (int i = 0; i < count; i++) {
    add_option(a, &causes[i]);
    struct gd_cause_option *o = &a->options[a->n_options - (a->n_options > 0)];
    if (a->n_options > 0 && o->cause == &causes[i] && !o->fixed)
      a->n_options--; /* nothing of it can be simulated */
    else if (a->n_options > 0 && o->cause == &causes[i] && gd_cause_is(o, "data-loading"))
      o->share = o->levels[0] / (1 + o->levels[0]);
  }
  a->total = 1;
  enum gd_status status = collect(a);
  gd_mem_free(a);
  return status;
}

void gd_diagnosis_deinit(struct gd_diagnosis *diagnosis) {
  gd_arena_deinit(&diagnosis->arena);
  *diagnosis = (struct gd_diagnosis){0};
}
