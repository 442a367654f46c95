/*
 * How long the paper's stack takes, by the paper's own clock; see stack_paper.h.
 *
 * A micro-step is a sum: GEMMs at the peak and at the speed of memory, everything else at the speed
 * of memory, collectives as far as the backward pass does not hide them. The paper reads the clock
 * of the host around a micro-step and around an update, and waits for the GPU in neither
 * (src/benchmarking/step_time.py of github.com/apoorvkh/academic-pretraining, release of
 * 2024-10-28). CUDA lets the host run ahead by a queue of launches, so that the last kernels of a
 * micro-step are not in its time, unless the software waits for the GPU itself: DeepSpeed does so
 * at the end of a backward pass from ZeRO 2 on (overlap_comm) and where it offloads, FSDP before it
 * gathers (limit_all_gathers). That is why data parallel and ZeRO 1 look best there.
 */
#include <math.h>

#include "predict/stack_paper_int.h"

/* --- what is known, and not fitted ----------------------------------------------------------- */

static const double memory_share = 0.8;     /* of the data sheet's bandwidth: kernels that stream */
static const double copy_share = 0.85;      /* likewise: copies of whole tensors */
static const double nvlink_share = 0.7;     /* of the links' rate that NCCL reaches */
static const double network_share = 0.8;    /* likewise of networks */
static const double host_link_share = 0.5;  /* likewise of copies while the GPU computes */
static const double cpu_adam_per_s = 0.3e9; /* parameters that 4 cores update */
static const double update_bytes = 28; /* a parameter: Adam reads and writes all of its state */

/* Bytes a parameter that a micro-step copies: autocast casts weights (4 to 2) and their gradients
   (2 to 4); data parallel copies fp32 gradients into buckets and back; DeepSpeed copies gradients
   into buckets in the precision of the model. */
static const double cast_bytes = 12, bucket_bytes = 16, zero_bucket_copies = 2;

/* Launches: an eager op under autocast casts its inputs too; casts of a weight and of its gradient;
   into a bucket and back. */
static const double autocast_launches = 2, cast_launches = 1, bucket_launches = 2;

static const struct gd_stack_parameter_info parameters[GD_STACK_PARAMETERS] = {
    [GD_STACK_REUSE] = {"reuse", "FLOP/B", "FLOPs of a GEMM for each byte of memory bandwidth", 0,
                        400, 1},
    [GD_STACK_COMPILED_BYTES] = {"compiled", "x", "bytes moved where compiled over our graph's", 1,
                                 2, 1},
    [GD_STACK_EAGER] = {"eager", "x", "likewise op by op", 1, 2.5, 1},
    [GD_STACK_AUTOCAST] = {"autocast", "x", "op by op under autocast over op by op", 1, 1.5, 1},
    [GD_STACK_SCORES] = {"scores", "x",
                         "bytes over our graph's for the scores of attention under autocast", 1, 6,
                         1},
    [GD_STACK_AHEAD] = {"ahead", "kernels", "of our graph that the host launches ahead of the GPU",
                        0, 300, 1},
    [GD_STACK_BUS] = {"bus", "GB/s", "collectives over the host's bus", 0, 8e9, 1e9},
};

const struct gd_stack_parameter_info *gd_stack_parameter(enum gd_stack_parameter parameter) {
  GD_ASSERT(parameter < GD_STACK_PARAMETERS);
  return &parameters[parameter];
}

/* What a GPU lacks it does in another precision, as gd_setup_precision has it. */
double gd_stack_peak(const struct gd_gpu *gpu, enum gd_precision precision, bool naive) {
  bool bits16 = precision != GD_PRECISION_FP32;
  enum gd_peak own = precision == GD_PRECISION_BF16 ? GD_PEAK_BF16 : GD_PEAK_FP16;
  enum gd_peak other = own == GD_PEAK_BF16 ? GD_PEAK_FP16 : GD_PEAK_BF16;
  if (bits16 && gpu->flops[own] > 0)
    return gpu->flops[own];
  if (bits16 && gpu->flops[other] > 0)
    return gpu->flops[other];
  return gpu->flops[naive || gpu->flops[GD_PEAK_TF32] <= 0 ? GD_PEAK_FP32 : GD_PEAK_TF32];
}

/* --- a phase --------------------------------------------------------------------------------- */

/* A step that is being timed. */
struct timing {
  const struct gd_stack_model *model;
  const struct gd_stack_graph *graph;
  const struct gd_stack_point *point;
  const struct gd_target *target;
  const double *fitted;
  bool casts;    /* weights, under autocast */
  bool compiled; /* FSDP's hooks break the graph, Mamba and DeepSpeed do without */
  double peak;
  double ops, scores; /* times the bytes of our graph are moved: by ops, and by ops on scores */
};

static struct timing timing_of(const struct gd_stack_model *model,
                               const struct gd_stack_point *point, const struct gd_target *target,
                               const struct gd_stack_fit *fit) {
  enum gd_stack_mode mode = point->mode;
  enum gd_sharding sharding = point->method.sharding;
  bool compiles = gd_stack_compiles(&model->model);
  struct timing t = {.model = model,
                     .graph = &model->graphs[mode],
                     .point = point,
                     .target = target,
                     .fitted = fit->value};
  t.peak = gd_stack_peak(target->gpu, model->model.recipe.precision, mode == GD_STACK_NAIVE);
  t.casts = !t.graph->fp32 && sharding == GD_SHARDING_NONE &&
            (mode == GD_STACK_NAIVE || mode == GD_STACK_COMPILED);
  t.compiled = mode == GD_STACK_COMPILED && compiles && !gd_shards_by_block(sharding);
  /* mamba_ssm's function for the inside of a block is one op to autocast. */
  bool autocast =
      !t.graph->fp32 && (mode == GD_STACK_NAIVE || (mode == GD_STACK_COMPILED && compiles));
  t.ops = fit->value[GD_STACK_EAGER] * (autocast ? fit->value[GD_STACK_AUTOCAST] : 1);
  t.scores = fit->value[GD_STACK_SCORES] / (autocast ? 1 : 2); /* half of it converts */
  if (t.compiled || mode == GD_STACK_MEGATRON) {               /* which fuses as much by hand */
    t.ops = fit->value[GD_STACK_COMPILED_BYTES];
    t.scores = 1; /* conversions and mask are in the softmax's kernel */
  }
  return t;
}

static double phase_s(const struct timing *t, const struct gd_stack_phase *phase) {
  double flops = phase->gemm_flops + phase->attention_flops;
  double bytes = t->ops * phase->other_bytes + t->scores * phase->score_bytes;
  double bandwidth = t->target->gpu->memory_bytes_per_s;
  return flops / t->peak + flops / (t->fitted[GD_STACK_REUSE] * bandwidth) +
         bytes / (memory_share * bandwidth);
}

/* --- a micro-step ---------------------------------------------------------------------------- */

/* Seconds of the GPU, and kernels that are launched for them. */
struct work {
  double seconds, launches;
};

static double copies_s(const struct timing *t) {
  enum gd_sharding sharding = t->point->method.sharding;
  double bytes = t->casts ? cast_bytes : 0;
  if (sharding == GD_SHARDING_NONE && t->target->count > 1)
    bytes += bucket_bytes;
  if (gd_stack_is_zero(sharding))
    bytes += zero_bucket_copies * gd_stack_compute_bytes(t->graph);
  return bytes * t->graph->parameters / (copy_share * t->target->gpu->memory_bytes_per_s);
}

/* Checkpointing runs the forward pass again in the backward pass. */
static void count_work(const struct timing *t, struct work *forward, struct work *backward) {
  const struct gd_stack_point *point = t->point;
  double tensors = t->graph->parameter_tensors;
  double each = t->point->mode == GD_STACK_NAIVE && t->casts ? autocast_launches : 1;
  double casts = t->casts ? cast_launches * tensors : 0;
  *forward = (struct work){phase_s(t, &point->forward), each * point->forward.kernels + casts};
  *backward = (struct work){phase_s(t, &point->backward) + copies_s(t),
                            each * point->backward.kernels + casts};
  if (point->method.sharding == GD_SHARDING_NONE && t->target->count > 1)
    backward->launches += bucket_launches * tensors;
  if (point->method.ckpt) {
    backward->seconds += forward->seconds;
    backward->launches += forward->launches;
  }
}

/* Whether the host returns from a micro-step while the GPU works on. */
static bool runs_ahead(const struct timing *t) {
  enum gd_sharding sharding = t->point->method.sharding;
  return t->point->mode != GD_STACK_MEGATRON && !t->point->method.offload &&
         (sharding == GD_SHARDING_NONE || sharding == GD_SHARDING_ZERO1);
}

/* Seconds of the last kernels, which the clock does not see. What it sees is never above the peak:
   nothing that is predicted is impossible, whatever the tables say. */
static double unseen_s(const struct timing *t, const struct work *forward,
                       const struct work *backward) {
  double ahead = t->fitted[GD_STACK_AHEAD], seconds = forward->seconds + backward->seconds;
  if (!runs_ahead(t))
    return 0;
  double unseen = backward->seconds * fmin(1, ahead / backward->launches);
  if (ahead > backward->launches)
    unseen += forward->seconds * fmin(1, (ahead - backward->launches) / forward->launches);
  double least = t->graph->model_flops * (double)t->point->micro_batch / t->peak;
  return fmin(unseen, fmax(0, seconds - least));
}

/* --- links ----------------------------------------------------------------------------------- */

static double inside_bytes_per_s(const struct timing *t) {
  const struct gd_target *target = t->target;
  bool linked = target->topology == GD_TOPOLOGY_SWITCH ||
                (target->topology == GD_TOPOLOGY_PAIRS && target->count == 2);
  return linked && target->gpu->peer_link_bytes_per_s > 0
             ? nvlink_share * target->gpu->peer_link_bytes_per_s
             : t->fitted[GD_STACK_BUS];
}

/* A ring is as fast as its slowest link; the paper had one machine, and no network. */
static double collective_bytes_per_s(const struct timing *t) {
  const struct gd_target *target = t->target;
  double inside = inside_bytes_per_s(t);
  return target->nodes > 1 && target->network
             ? fmin(inside,
                    network_share * fmax(target->network_cards, 1) * target->network->bytes_per_s)
             : inside;
}

/* Seconds on links and host: of a micro-step, of those the ones that the clock does not see, and of
   an update. */
struct links {
  double micro_step_s, unseen_s, update_s;
};

/* What shows of collectives that run behind so much work. */
static double beyond(double collective_s, double work_s) {
  return fmax(0, collective_s - work_s);
}

/* The paper times single micro-steps as if each were the last of a step, so that data parallel and
   ZeRO sum gradients in every one. ZeRO 1 does so when the backward pass is over; where the host
   runs ahead, only what the update waits for is seen. */
static struct links collectives_of(const struct timing *t, double backward_s, double compute_s) {
  struct links links = {0};
  if (t->target->count < 2)
    return links;
  /* A ring moves (n - 1) / n of the data over each link, an all-reduce twice that. */
  double ring = (double)(t->target->count - 1) / t->target->count / collective_bytes_per_s(t);
  double moved = ring * gd_stack_compute_bytes(t->graph) * t->graph->parameters;
  switch (t->point->method.sharding) {
  case GD_SHARDING_NONE:
    links.micro_step_s = beyond(2 * ring * 4 * t->graph->parameters, backward_s);
    break;
  case GD_SHARDING_ZERO1:
    links.micro_step_s = moved;
    links.unseen_s = runs_ahead(t) ? moved : 0;
    links.update_s = moved;
    break;
  case GD_SHARDING_ZERO2:
    links.micro_step_s = beyond(moved, backward_s);
    links.update_s = moved;
    break;
  case GD_SHARDING_FSDP2: links.micro_step_s = beyond(2 * moved, compute_s); break;
  case GD_SHARDING_ZERO3:
  case GD_SHARDING_FSDP3: links.micro_step_s = beyond(3 * moved, compute_s); break;
  case GD_SHARDING_COUNT: break;
  }
  return links;
}

/* Adam on the CPU, and what crosses the host link in a micro-step and in an update. */
static struct links offload_of(const struct timing *t) {
  struct links links = {0};
  if (!t->point->method.offload)
    return links;
  double own = t->graph->parameters / t->target->count;
  double compute = gd_stack_compute_bytes(t->graph) * own;
  double link = host_link_share * t->target->gpu->host_link_bytes_per_s;
  links.update_s = own / cpu_adam_per_s;
  switch (t->point->method.sharding) {
  case GD_SHARDING_ZERO1:
  case GD_SHARDING_ZERO2:
    links.micro_step_s = compute / link; /* gradients */
    links.update_s += 2 * compute / link;
    break;
  case GD_SHARDING_ZERO3: links.micro_step_s = 3 * compute / link; break; /* weights twice too */
  case GD_SHARDING_FSDP2: links.micro_step_s = 8 * own / link; break;     /* in fp32 */
  case GD_SHARDING_FSDP3: links.micro_step_s = 12 * own / link; break;
  case GD_SHARDING_NONE:
  case GD_SHARDING_COUNT: break;
  }
  return links;
}

/* --- a step ---------------------------------------------------------------------------------- */

void gd_stack_time(const struct gd_stack_model *model, const struct gd_stack_point *point,
                   const struct gd_target *target, const struct gd_stack_fit *fit,
                   struct gd_stack_time *time) {
  struct timing t = timing_of(model, point, target, fit);
  struct work forward, backward;
  count_work(&t, &forward, &backward);
  double compute_s = forward.seconds + backward.seconds;
  double unseen = unseen_s(&t, &forward, &backward);
  struct links between = collectives_of(&t, backward.seconds, compute_s), host = offload_of(&t);
  double updated =
      t.graph->parameters / (point->method.sharding == GD_SHARDING_NONE ? 1 : target->count);
  double update_s = update_bytes * updated / (memory_share * target->gpu->memory_bytes_per_s) +
                    between.update_s + host.update_s;
  double micro_step_s = compute_s + between.micro_step_s + host.micro_step_s;
  unseen += between.unseen_s;
  time->waited_s = point->accumulation * micro_step_s + update_s;
  /* The update of fp16 looks for overflows, and so waits for what is left of one micro-step. */
  bool waits = model->model.recipe.precision == GD_PRECISION_FP16;
  time->step_s = time->waited_s - (point->accumulation - (waits ? 1 : 0)) * unseen;
}

double gd_stack_step_s(const struct gd_stack_model *model, const struct gd_stack_point *point,
                       const struct gd_target *target, const struct gd_stack_fit *fit) {
  struct gd_stack_time time;
  gd_stack_time(model, point, target, fit, &time);
  return time.step_s;
}
