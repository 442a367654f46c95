/*
 * Ops, host, collectives and clock of a stack's step; see stack_step.h.
 */
#include "predict/stack_step.h"

#include <math.h>
#include <string.h>

#include "hw/collective.h"
#include "ir/autodiff.h"
#include "pass/kernels.h"
#include "pass/pass.h"
#include "predict/streams.h"

/* --- ops ------------------------------------------------------------------------------------ */

void gd_stack_works_deinit(struct gd_stack_works *works) {
  gd_mem_free(works->all);
  gd_mem_free(works->timings);
  *works = (struct gd_stack_works){0};
}

/* The micro-step of a model as that stack runs it, on one device. */
static enum gd_status build(const struct gd_stack_facts *facts, struct gd_pass_ctx *ctx, bool flash,
                            struct gd_graph *graph) {
  const struct gd_setup *setup = ctx->setup;
  bool fused = facts->kernels == GD_STACK_KERNELS_FUSED;
  gd_graph_init(graph);
  setup->model->family->build(setup->model, setup->micro_batch, graph);
  GD_TRY(gd_graph_check(graph, ctx->err));
  GD_TRY(gd_pass_precision(ctx, graph));
  if (flash) {
    GD_TRY(gd_kernels_attention(graph, ctx->err));
    GD_TRY(gd_kernels_scan(graph, ctx->err));
  }
  if (fused) {
    GD_TRY(gd_kernels_heads(graph, ctx->err));
    GD_TRY(gd_kernels_loss(graph, ctx->err));
  }
  GD_TRY(gd_autodiff(graph, ctx->err));
  if (fused)
    GD_TRY(gd_pass_recompute(ctx, graph));
  if (facts->kernels != GD_STACK_KERNELS_EAGER)
    GD_TRY(gd_pass_compile(ctx, graph));
  GD_TRY(gd_pass_tf32(ctx, graph));
  return facts->fuses_accumulation ? gd_pass_accumulate(ctx, graph) : GD_OK;
}

static enum gd_status add_work(struct gd_stack_works *works, const struct gd_stack_work *one,
                               struct gd_error *err) {
  for (int i = 0; i < works->count; i++) {
    struct gd_stack_work *other = &works->all[i];
    if (other->forward == one->forward && other->in_block == one->in_block &&
        other->scores == one->scores && gd_work_same(&other->work, &one->work)) {
      other->count += one->count;
      return GD_OK;
    }
  }
  uint32_t capacity = (uint32_t)works->capacity;
  if (!gd_vec_reserve((void **)&works->all, &capacity, (uint32_t)works->count + 1,
                      sizeof *works->all))
    return gd_nomem(err, "while counting the ops of a stack");
  works->capacity = (int)capacity;
  works->all[works->count++] = *one;
  return GD_OK;
}

/* Whether the forward pass first needs a tensor when its blocks have begun: a head's weights,
   unless they are the embedding's. */
static bool is_of_head(const struct gd_graph *graph, gd_tensor_id id) {
  bool began = false;
  for (gd_op_id i = 0; i < graph->n_ops && graph->ops[i].phase == GD_PHASE_FORWARD; i++) {
    began = began || graph->ops[i].block >= 0;
    for (uint32_t k = 0; k < graph->ops[i].n_in; k++)
      if (graph->ops[i].in[k] == id)
        return began;
  }
  return false;
}

static void count_parameters(const struct gd_graph *graph, struct gd_stack_works *works) {
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
    const struct gd_tensor *tensor = &graph->tensors[id];
    if (tensor->role != GD_ROLE_PARAM)
      continue;
    works->tensors++;
    double elements = tensor->flat ? 0 : (double)gd_tensor_elements(graph, id);
    *(tensor->block >= 0      ? &works->block_parameters
      : is_of_head(graph, id) ? &works->head_parameters
                              : &works->embedding_parameters) += elements;
  }
}

static enum gd_status count_ops(const struct gd_graph *graph, struct gd_stack_works *works,
                                struct gd_error *err) {
  works->parameters = (double)gd_graph_parameters(graph);
  count_parameters(graph, works);
  works->blocks = gd_graph_blocks(graph);
  works->model_flops = graph->model_flops;
  int64_t scores = gd_stack_scores(graph);
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    const struct gd_op *op = &graph->ops[id];
    struct gd_stack_work one = {.count = 1,
                                .forward = op->phase == GD_PHASE_FORWARD,
                                .in_block = op->block >= 0,
                                .scores = gd_stack_works_on_scores(graph, op, scores)};
    if (gd_op_info(op->kind)->op_class == GD_CLASS_VIEW ||
        gd_phase_program(op->phase) != GD_PROGRAM_MICRO_STEP)
      continue;
    gd_work_of(graph, id, 1, &one.work);
    GD_TRY(add_work(works, &one, err));
  }
  return GD_OK;
}

enum gd_status gd_stack_works_make(const struct gd_stack_facts *facts, const struct gd_model *model,
                                   enum gd_precision precision, int64_t micro_batch, bool flash,
                                   bool tf32, struct gd_stack_works *works, struct gd_error *err) {
  struct gd_setup setup = {
      .model = model, .precision = precision, .micro_batch = micro_batch, .ranks = 1, .tf32 = tf32};
  struct gd_pass_ctx ctx = {&setup, err};
  struct gd_graph graph = {0};
  struct gd_stack_works made = {0};
  enum gd_status status = build(facts, &ctx, flash, &graph);
  if (status == GD_OK)
    status = count_ops(&graph, &made, err);
  made.timings = gd_mem_alloc((size_t)made.count + 1, sizeof *made.timings);
  if (status == GD_OK && !made.timings)
    status = gd_nomem(err, "while counting the ops of a stack");
  gd_graph_deinit(&graph);
  if (status != GD_OK)
    gd_stack_works_deinit(&made);
  *works = made;
  return status;
}

double gd_stack_works_least_s(const struct gd_stack_works *works, const struct gd_gpu_model *gpu) {
  double seconds = 0;
  for (int i = 0; i < works->count; i++) {
    const struct gd_work *work = &works->all[i].work;
    double peak = gpu->flops[work->unit] * gpu->power.clock_most;
    if (work->flops > 0 && peak > 0)
      seconds += works->all[i].count * work->flops / peak;
  }
  return seconds;
}

/* --- a micro-step --------------------------------------------------------------------------- */

/* What one phase takes on the GPU, and how many ops the host launches. */
struct sums {
  double gpu_s, ops;
};

static double traffic_of(const struct gd_stack_run *run, const struct gd_stack_work *one) {
  return one->scores && run->score_traffic > 0 ? run->score_traffic : run->value[GD_STACK_TRAFFIC];
}

static void make_timings(const struct gd_stack_run *run) {
  struct gd_gpu_software software = {.attention = run->facts->attention,
                                     .native = run->facts->native_attention};
  for (int i = 0; i < run->works->count; i++) {
    software.traffic = traffic_of(run, &run->works->all[i]);
    gd_gpu_timing_make(run->gpu, &run->works->all[i].work, &software, &run->works->timings[i]);
  }
}

static struct sums sum_phase(const struct gd_stack_run *run, bool forward, int in_block,
                             double clock) {
  struct sums sums = {0};
  for (int i = 0; i < run->works->count; i++) {
    const struct gd_stack_work *one = &run->works->all[i];
    if (one->forward != forward || (in_block >= 0 && one->in_block != (in_block > 0)))
      continue;
    sums.gpu_s += one->count * gd_gpu_timing_seconds(&run->works->timings[i], clock);
    sums.ops += one->count;
  }
  return sums;
}

static void add_sums(struct sums *to, const struct sums *other) {
  to->gpu_s += other->gpu_s;
  to->ops += other->ops;
}

/* The GPU runs behind the host: the slower one sets the time, and where they are alike each waits
   for the other now and then. */
static double slower(double gpu_s, double host_s) {
  return pow(pow(gpu_s, 5) + pow(host_s, 5), 0.2);
}

static double memory_s(const struct gd_stack_run *run, double bytes) {
  return bytes / (run->gpu->fit.value[GD_GPU_MEMORY] * run->gpu->memory_bytes_per_s);
}

/* Buckets into which data parallel collects gradients: PyTorch's 25 MiB. */
static const double bucket_bytes = 25.0 * 1024 * 1024;

/* One collective a block, as FSDP gathers and scatters, or one a bucket. */
static double collective_s(const struct gd_stack_run *run, enum gd_collective kind, double bytes) {
  struct gd_fabric fabric;
  if (run->target->count < 2)
    return 0;
  gd_fabric_of(run->target, &fabric);
  double calls = gd_shards_by_block(run->method.sharding) ? run->works->blocks + 1
                                                          : ceil(bytes / bucket_bytes);
  return gd_collective_seconds(&fabric, kind, bytes, calls) / (run->links > 0 ? run->links : 1);
}

static double gradient_bytes(const struct gd_stack_run *run) {
  return run->gradient_bytes > 0 ? run->gradient_bytes : run->facts->gradient_bytes;
}

/* What is exchanged: weights before they are needed, gradients once they are there. */
struct exchange {
  double gather_s, reduce_s;            /* of all weights, of all gradients */
  bool gathers, gathers_again, reduces; /* in a forward pass; in a backward pass, once more */
  bool reduces_last;                    /* in the last backward pass alone */
  bool gathers_updated;                 /* in the first forward pass alone */
};

static struct exchange exchange_of(const struct gd_stack_run *run) {
  double p = run->works->parameters, gradients = gradient_bytes(run) * p;
  double gathered = collective_s(run, GD_COLLECTIVE_ALL_GATHER, 2 * p);
  double reduced = collective_s(run, GD_COLLECTIVE_REDUCE_SCATTER, gradients);
  struct exchange e = {.gather_s = gathered, .reduce_s = reduced};
  switch (run->method.sharding) {
  case GD_SHARDING_NONE:
    e.reduce_s = collective_s(run, GD_COLLECTIVE_ALL_REDUCE, gradients);
    e.reduces_last = true;
    break;
  case GD_SHARDING_ZERO1:
    e.reduces_last = true;
    e.gathers_updated = true;
    break;
  case GD_SHARDING_ZERO2:
    e.reduces = true;
    e.gathers_updated = true;
    break;
  case GD_SHARDING_FSDP2: e.gathers = e.reduces = true; break;
  case GD_SHARDING_ZERO3:
  case GD_SHARDING_FSDP3: e.gathers = e.gathers_again = e.reduces = true; break;
  case GD_SHARDING_COUNT: break;
  }
  return e;
}

/* A model in pieces of which the weights are gathered and the gradients are summed: its blocks, all
   alike, and what lies around them. More of them than that make no difference. */
enum { MOST_PIECES = 128 };
struct pieces {
  int blocks;
  double block_bytes, head_bytes, embedding_bytes; /* shares of the weights: of one block, behind
                                                      the blocks, ahead of them (or both) */
  double speed; /* of computation and collectives while both run */
};

static struct pieces pieces_of(const struct gd_stack_run *run) {
  const struct gd_stack_works *works = run->works;
  const double p = works->parameters;
  bool in_blocks = works->blocks > 0 && works->block_parameters > 0;
  int blocks = (int)fmin(fmax(works->blocks, 1), MOST_PIECES);
  return (struct pieces){
      .blocks = blocks,
      .block_bytes = (in_blocks ? works->block_parameters / p : 1) / blocks,
      .head_bytes = in_blocks ? works->head_parameters / p : 0,
      .embedding_bytes = in_blocks ? 1 - (works->block_parameters + works->head_parameters) / p : 0,
      .speed = gd_streams_gpu_speed(run->gpu->fit.value[GD_GPU_EXPOSED])};
}

/* Seconds of a pass: of each block, and around them. */
struct span {
  double block_s, outside_s;
};

/* A forward pass whose weights come one piece ahead; its last part, the loss, is outside blocks. */
static double forward_with(const struct pieces *p, const struct span *span, double gather_s) {
  double left_s[MOST_PIECES + 2];
  struct gd_streams s = {.speed = p->speed, .left_s = left_s};
  if (gather_s <= 0)
    return p->blocks * span->block_s + span->outside_s;
  gd_streams_push(&s, gather_s * p->embedding_bytes);
  uint32_t next = gd_streams_push(&s, gather_s * p->block_bytes);
  for (int i = 0; i < p->blocks; i++) {
    gd_streams_wait(&s, next);
    next = gd_streams_push(&s, gather_s * (i + 1 < p->blocks ? p->block_bytes : p->head_bytes));
    gd_streams_compute(&s, span->block_s);
  }
  gd_streams_wait(&s, next);
  gd_streams_compute(&s, span->outside_s);
  return s.now_s;
}

/* A backward pass: from the loss to the first block, the gradients of each piece summed behind it,
   those of the embedding last; outside: also of what is in no block, whose weights are there. */
static double backward_with(const struct pieces *p, const struct span *span, double gather_s,
                            double reduce_s, bool outside) {
  double left_s[2 * MOST_PIECES + 3];
  struct gd_streams s = {.speed = p->speed, .left_s = left_s};
  uint32_t next = gather_s > 0 ? gd_streams_push(&s, gather_s * p->block_bytes) : 0;
  gd_streams_compute(&s, span->outside_s);
  if (outside)
    gd_streams_push(&s, reduce_s * p->head_bytes);
  for (int i = 0; i < p->blocks; i++) {
    gd_streams_wait(&s, next);
    if (next > 0 && i + 1 < p->blocks)
      next = gd_streams_push(&s, gather_s * p->block_bytes);
    gd_streams_compute(&s, span->block_s);
    gd_streams_push(&s, reduce_s * p->block_bytes);
  }
  if (outside)
    gd_streams_push(&s, reduce_s * p->embedding_bytes);
  gd_streams_wait(&s, s.pushed);
  return s.now_s;
}

/* Parameters that four CPU cores update in a second: DeepSpeed's CPU Adam. */
static const double cpu_adam_per_s = 0.3e9;
static const double host_link_share = 0.7;

/* What is offloaded: copies while the GPU computes, and an update on the CPUs or by the GPU out of
   host memory. */
static void add_offload(const struct gd_stack_run *run, double *micro_step_s, double *update_s) {
  const struct gd_target *target = run->target;
  double own = run->works->parameters / target->count;
  double link = host_link_share * target->gpu->host_link_bytes_per_s;
  bool parameters = gd_shards_parameters(run->method.sharding);
  if (parameters)
    *micro_step_s = fmax(*micro_step_s, 3 * 2 * own / link);
  if (run->facts->updates_on_gpu)
    *update_s += run->facts->update_bytes * own / link;
  else
    *update_s += own / (cpu_adam_per_s * fmax(target->cpus, 1) / 4) + 2 * 2 * own / link;
}

struct timing {
  const struct gd_stack_run *run;
  struct gd_stack_step *step;
  struct exchange exchange; /* no clock changes it, */
  struct pieces pieces;
  double slowest; /* nor how much longer the slowest GPU takes */
};

static void span_of(const struct pieces *p, double phase_s, const struct sums *inside,
                    const struct sums *all, struct span *span) {
  double share = all->gpu_s > 0 ? inside->gpu_s / all->gpu_s : 0;
  span->block_s = phase_s * share / p->blocks;
  span->outside_s = phase_s * (1 - share);
}

/* What a micro-step computes: its ops in and outside of blocks. */
static void time_compute(struct timing *timing, double clock, struct span *forward,
                         struct span *backward) {
  const struct gd_stack_run *run = timing->run;
  struct gd_stack_step *step = timing->step;
  struct sums in_forward = sum_phase(run, true, 1, clock),
              forwards = sum_phase(run, true, 0, clock);
  struct sums in_backward = sum_phase(run, false, 1, clock),
              backwards = sum_phase(run, false, 0, clock);
  double host = run->value[GD_STACK_HOST], slowest = timing->slowest; /* all wait for it */
  add_sums(&forwards, &in_forward);
  if (run->method.ckpt)
    add_sums(&in_backward, &in_forward); /* once more */
  add_sums(&backwards, &in_backward);
  span_of(&timing->pieces, slower(slowest * forwards.gpu_s, host * forwards.ops), &in_forward,
          &forwards, forward);
  span_of(&timing->pieces, slower(slowest * backwards.gpu_s, host * backwards.ops), &in_backward,
          &backwards, backward);
  step->gpu_s = slowest * (forwards.gpu_s + backwards.gpu_s);
  step->host_s = host * (forwards.ops + backwards.ops);
}

/* Both passes of a micro-step, and what shows of collectives that a step has once: gradients behind
   the last backward pass, weights ahead of the first forward pass. */
static void time_passes(struct timing *timing, double clock) {
  const struct exchange *e = &timing->exchange;
  const struct pieces *p = &timing->pieces;
  const bool overlaps = timing->run->facts->overlaps;
  struct gd_stack_step *step = timing->step;
  struct span forward, backward;
  time_compute(timing, clock, &forward, &backward);
  step->forward_s = forward_with(p, &forward, e->gathers ? e->gather_s : 0);
  double again_s = e->gathers_again ? e->gather_s : 0;
  const bool whole = timing->run->facts->whole_outside;
  step->backward_s = backward_with(p, &backward, again_s, e->reduces ? e->reduce_s : 0, !whole);
  step->collective_s = 0;
  if (e->gathers_updated)
    step->collective_s +=
        overlaps ? forward_with(p, &forward, e->gather_s) - step->forward_s : e->gather_s;
  if (e->reduces_last && !overlaps)
    step->collective_s += e->reduce_s;
  else if (e->reduces_last || whole) /* what the last one sums that others do not */
    step->collective_s +=
        backward_with(p, &backward, again_s, e->reduce_s, true) - step->backward_s;
}

static double seconds_at(void *user, double clock) {
  struct timing *timing = user;
  const struct gd_stack_run *run = timing->run;
  struct gd_stack_step *step = timing->step;
  double p = run->works->parameters;
  int shares = run->method.sharding == GD_SHARDING_NONE ? 1 : run->target->count;
  time_passes(timing, clock);
  if (run->facts->weights == GD_STACK_WEIGHTS_CAST) /* 4 read and 2 written, twice with gradients */
    step->forward_s += memory_s(run, 12 * p);
  step->update_s =
      fmax(memory_s(run, run->method.offload ? 0 : run->facts->update_bytes * p / shares),
           run->value[GD_STACK_HOST] * run->facts->update_launches * run->works->tensors);
  double micro_step_s = step->forward_s + step->backward_s;
  if (run->method.offload)
    add_offload(run, &micro_step_s, &step->update_s);
  step->seconds = run->accumulation * micro_step_s + step->update_s + step->collective_s;
  return step->seconds;
}

void gd_stack_step(const struct gd_stack_run *run, struct gd_stack_step *step) {
  struct gd_power_load load = {0}, drawn = {0};
  struct timing timing = {.run = run,
                          .step = step,
                          .exchange = exchange_of(run),
                          .pieces = pieces_of(run),
                          .slowest = gd_slowest_of(run->target->count)};
  double more = run->energy > 0 ? run->energy : 1;
  *step = (struct gd_stack_step){0};
  make_timings(run);
  for (int i = 0; i < run->works->count; i++) {
    const struct gd_stack_work *one = &run->works->all[i];
    double times = run->method.ckpt && one->forward && one->in_block ? 2 : 1;
    struct gd_power_load added = {0};
    gd_gpu_model_load(run->gpu, &one->work, traffic_of(run, one),
                      run->accumulation * times * one->count, &added);
    load.flop_joules += added.flop_joules;
    load.byte_joules += added.byte_joules;
    drawn.flop_joules += added.flop_joules * (one->work.unit != GD_PEAK_FP32 ? more : 1);
    drawn.byte_joules += added.byte_joules;
  }
  double clock = gd_power_clock(&run->gpu->power, &load, seconds_at, &timing);
  step->seconds = seconds_at(&timing, clock);
  step->clock = clock;
  /* The clock is that of published rates, which the fit of the GPU model looked at. */
  step->watts = gd_power_watts(&run->gpu->power, &drawn, step->seconds, clock);
}

/* --- memory --------------------------------------------------------------------------------- */

enum gd_stack_mode gd_stack_facts_mode(const struct gd_stack_facts *facts, bool flash) {
  return facts->memory == GD_STACK_COMPILED && !flash ? GD_STACK_NAIVE : facts->memory;
}

void gd_stack_facts_bytes(const struct gd_stack_facts *facts, const struct gd_stack_graph *graph,
                          const struct gd_method *method, int count, double micro_batch,
                          struct gd_stack_bytes *bytes) {
  /* What the rules there count with: fp32 weights, gradients and two moments. */
  const double usual = 16;
  struct gd_stack_graph own = *graph;
  if (facts->kernels == GD_STACK_KERNELS_FUSED) { /* the loss makes its logits in pieces */
    own.one.saved_bytes -= own.one.outside_bytes;
    own.two.saved_bytes -= own.two.outside_bytes;
    own.one.outside_bytes = own.two.outside_bytes = 0;
  }
  gd_stack_bytes(&own, method, count, micro_batch, bytes);
  double shares = method->sharding == GD_SHARDING_NONE ? 1 : count;
  double more = (facts->state_bytes - usual) * graph->parameters / shares;
  if (method->sharding == GD_SHARDING_NONE && facts->weights == GD_STACK_WEIGHTS_STORED)
    more -= 2 * graph->parameters; /* no copies in 16 bits: they are among the state */
  double *to = method->offload ? &bytes->host : &bytes->device;
  *to = fmax(*to + more, 0);
}
