/*
 * Choosing a plan; see choose.h. Every size that is tried is a whole graph with its plan, so the
 * search tries the likeliest answer first and remembers what each graph was found to need.
 */
#include "trial/choose.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "codegen/codegen.h"
#include "exec/run.h"
#include "gd_version.h"
#include "pass/explain.h"
#include "trial/agree.h"
#include "trial/recipe.h"

enum {
  SPARE_PARTS = 32, /* 1/32 of the memory stays free: others may use the device too */
  /* A micro-step fills a device from so many tokens or pixels on, and from enough_flops / 12 on:
     vit on an H200 does 779 images/s with micro-steps of 1e14 FLOPs, and 753 with twice that and
     fewer saved activations. */
  ROWS_TO_FILL = 1 << 15,
  ENOUGH_TO_FILL = 12,
};

void gd_candidate_deinit(struct gd_candidate *candidate) {
  gd_plan_deinit(&candidate->plan);
  gd_graph_deinit(&candidate->graph);
}

/* What a graph was found to need: a search for another memory need not plan it again. */
struct needs {
  int64_t micro_batch, saved; /* of which graph */
  int64_t device_bytes, host_bytes, blocks;
  int64_t rows; /* tokens or pixels of a micro-step */
  double flops; /* of a micro-step */
};
enum { MOST_TRIED = 96 };

struct gd_planner {
  const struct gd_model *model;
  const struct gd_trial_options *options; /* of the trial that is planned now */
  struct gd_trial *trial;
  struct gd_model_identity identity;
  struct gd_place place; /* threads are the same on all ranks */
  bool settled;          /* a rank failed, and all know it: see gd_planner_settle */
  double
      enough_flops;   /* a micro-step of more FLOPs is too long, unless its size is 1; 0: none is */
  int64_t save_bytes; /* what a plan may have where activations are saved; 0: none are */
  struct needs last;  /* of the size that was tried last */
  /* Of the plans made so far, the likeliest answer: if it is the answer, no plan is made twice. */
  struct gd_candidate ready;
  int64_t ready_size, ready_saved; /* size 0: none */
  bool ready_good;
  double ready_plan_s;
  /* All that were tried, for the device that has these caps and that precision. */
  struct needs tried[MOST_TRIED];
  int n_tried;
  struct gd_caps tried_caps;
  enum gd_precision tried_precision;
  int tried_ranks;
};

/* A plan points to its graph. */
static void move_candidate(struct gd_candidate *to, struct gd_candidate *from) {
  *to = *from;
  to->plan.graph = &to->graph;
  *from = (struct gd_candidate){0};
}

static struct gd_setup setup_of(const struct gd_planner *p, int64_t micro_batch, int64_t saved) {
  const struct gd_caps *caps = &p->place.caps;
  return (struct gd_setup){.model = p->model,
                           .precision = p->trial->precision,
                           .micro_batch = micro_batch,
                           .method = p->options->method,
                           .ranks = p->trial->ranks,
                           .tf32 = caps->tf32,
                           .cache = p->options->graphs,
                           .loss_chunk_bytes = caps->loss_chunk_bytes,
                           .saved_blocks = saved,
                           .no_compiler = p->trial->no_compiler[0] != '\0',
                           .rank = p->options->comm ? gd_comm_rank(p->options->comm) : 0};
}

static enum gd_status make_candidate(struct gd_planner *p, int64_t micro_batch, int64_t saved,
                                     struct gd_candidate *candidate, struct gd_error *err) {
  struct gd_setup setup = setup_of(p, micro_batch, saved);
  int64_t start = gd_clock_ns();
  GD_TRY(gd_pipeline_build(&setup, &candidate->graph, err));
  GD_TRY(gd_plan_make(&candidate->graph, &p->place.caps, &candidate->plan, err));
  p->trial->plan_s = 1e-9 * (double)(gd_clock_ns() - start);
  return GD_OK;
}

/* --- what a size needs --------------------------------------------------------------------- */

static const struct needs *find_tried(const struct gd_planner *p, int64_t micro_batch,
                                      int64_t saved) {
  for (int i = 0; i < p->n_tried; i++)
    if (p->tried[i].micro_batch == micro_batch && p->tried[i].saved == saved)
      return &p->tried[i];
  return NULL;
}

static bool is_too_long(const struct gd_planner *p, const struct needs *needs) {
  return needs->micro_batch > 1 && p->enough_flops > 0 && needs->flops > p->enough_flops;
}

static bool fits_device(const struct gd_planner *p, const struct needs *needs) {
  return needs->device_bytes <= p->trial->device_limit_bytes &&
         needs->host_bytes <= p->trial->host_limit_bytes;
}

/* Takes the candidate over. */
static void set_ready(struct gd_planner *p, int64_t micro_batch, int64_t saved, bool good,
                      struct gd_candidate *candidate) {
  gd_candidate_deinit(&p->ready);
  move_candidate(&p->ready, candidate);
  p->ready_size = micro_batch;
  p->ready_saved = saved;
  p->ready_good = good;
  p->ready_plan_s = p->trial->plan_s;
}

/* Whether this is a likelier answer than the plan at hand. Good ones come first; of two good ones
   the larger, or the one that saves more; of two others the smaller, which is shown where nothing
   fits.
 */
static bool is_likelier(const struct gd_planner *p, const struct needs *needs, bool good) {
  if (p->ready_size == 0 || good != p->ready_good)
    return p->ready_size == 0 || good;
  return good ? needs->micro_batch > p->ready_size || needs->saved > p->ready_saved
              : needs->micro_batch < p->ready_size;
}

/* Sets p->last to what a micro-batch needs when the last `saved` layers save activations. Plans
   only what is not known. limit_bytes: of device memory, for the plan to be good. */
static enum gd_status find_needs(struct gd_planner *p, int64_t micro_batch, int64_t saved,
                                 int64_t limit_bytes, struct gd_error *err) {
  struct gd_candidate candidate = {0};
  const struct gd_graph *graph = &candidate.graph;
  const struct needs *known = find_tried(p, micro_batch, saved);
  if (known) {
    p->last = *known;
    return GD_OK;
  }
  enum gd_status status = make_candidate(p, micro_batch, saved, &candidate, err);
  if (status == GD_OK) {
    p->last = (struct needs){
        .micro_batch = micro_batch,
        .saved = saved,
        .device_bytes = candidate.plan.device_bytes,
        .host_bytes = candidate.plan.host_bytes,
        .blocks = gd_graph_blocks(graph),
        .rows = gd_tensor_elements(graph, graph->ids != GD_NONE ? graph->ids : graph->pixels),
        .flops = graph->model_flops};
    if (p->n_tried < MOST_TRIED)
      p->tried[p->n_tried++] = p->last;
    bool good = fits_device(p, &p->last) && p->last.device_bytes <= limit_bytes &&
                !is_too_long(p, &p->last);
    if (is_likelier(p, &p->last, good))
      set_ready(p, micro_batch, saved < p->last.blocks ? saved : p->last.blocks, good, &candidate);
  }
  gd_candidate_deinit(&candidate);
  return status;
}

/* --- the micro-batch ----------------------------------------------------------------------- */

/* The largest power of two up to the batch that is not too long. flops: of a micro-step of size 1;
   they grow in proportion to the size. */
static int64_t longest_size(const struct gd_planner *p, double flops, int64_t batch) {
  int64_t size = 1;
  while (size <= batch / 2 && (p->enough_flops <= 0 || 2 * (double)size * flops <= p->enough_flops))
    size *= 2;
  return size;
}

/*
 * The power of two from which to look, at least 2 and at most `most`: bytes grow in proportion to
 * the micro-batch, and those of size 1 and of another one tell how. A wrong guess costs plans,
 * never the answer.
 */
static int64_t guess_size(const struct gd_planner *p, int64_t bytes, int64_t other_bytes,
                          int64_t other, int64_t most) {
  int64_t size = 2, each = (other_bytes - bytes) / (other - 1);
  int64_t fitting = (p->trial->device_limit_bytes - bytes) / (each > 0 ? each : 1) + 1;
  while (size <= most / 2 && 2 * size <= fitting)
    size *= 2;
  return size;
}

/* Whether a size fits with nothing saved, and whether it is not too long either. */
static enum gd_status try_size(struct gd_planner *p, int64_t size, bool *good, bool *fits,
                               struct gd_error *err) {
  GD_TRY(find_needs(p, size, 0, INT64_MAX, err));
  *fits = fits_device(p, &p->last);
  *good = *fits && !is_too_long(p, &p->last);
  return GD_OK;
}

/*
 * The largest good power of two, 0 if there is none; *bad is the least size known not to fit. Where
 * FLOPs bound the size, the largest that they permit is tried right after size 1: often it is the
 * answer, and longer ones are never planned.
 */
static enum gd_status find_power(struct gd_planner *p, int64_t batch, int64_t *found, int64_t *bad,
                                 struct gd_error *err) {
  bool good, fits;
  *found = 0;
  GD_TRY(try_size(p, 1, &good, &fits, err));
  *bad = fits ? *bad : 1;
  if (!good)
    return GD_OK;
  *found = 1;
  int64_t bytes = p->last.device_bytes, most = longest_size(p, p->last.flops, batch);
  int64_t size = p->enough_flops > 0 ? most : 2; /* without a bound the longest may be absurd */
  if (most < 2)
    return GD_OK;
  GD_TRY(try_size(p, size, &good, &fits, err));
  *bad = fits ? *bad : size;
  int64_t guess = guess_size(p, bytes, p->last.device_bytes, size, most);
  if (good)
    *found = size;
  /* Down from the guess until one is good, then up as long as the next one is. */
  for (size = guess < *bad ? guess : *bad / 2; size > *found; size = good ? 0 : size / 2) {
    GD_TRY(try_size(p, size, &good, &fits, err));
    *bad = fits ? *bad : size;
    *found = good ? size : *found;
  }
  for (; 2 * *found <= most && 2 * *found < *bad; *found *= 2) {
    GD_TRY(try_size(p, 2 * *found, &good, &fits, err));
    *bad = fits ? *bad : 2 * *found;
    if (!good)
      break;
  }
  return GD_OK;
}

/* The policies `pow2`, `auto` (which also stops before a micro-step is longer than it gains from)
   and `max` (which then bisects). 0: not even one sequence fits. */
static enum gd_status find_micro_batch(struct gd_planner *p, int64_t *found, struct gd_error *err) {
  const int64_t batch = p->model->recipe.batch / p->trial->ranks;
  int64_t good = 0, bad = batch + 1;
  bool fits, unused;
  *found = 0;
  if (p->options->micro_batch == GD_MICRO_BATCH_FIXED) {
    GD_TRY(try_size(p, p->options->micro_batch_size, &unused, &fits, err));
    *found = fits ? p->options->micro_batch_size : 0;
    return GD_OK;
  }
  GD_TRY(find_power(p, batch, &good, &bad, err));
  if (p->options->micro_batch == GD_MICRO_BATCH_MAX)
    while (good > 0 && bad - good > 1) {
      int64_t middle = good + (bad - good) / 2;
      GD_TRY(try_size(p, middle, &unused, &fits, err));
      if (fits)
        good = middle;
      else
        bad = middle;
    }
  *found = good;
  return GD_OK;
}

/* --- saved activations --------------------------------------------------------------------- */

/* Whether a micro-batch fits into what saved activations may fill, with so many layers saving. */
static enum gd_status try_saving(struct gd_planner *p, int64_t micro_batch, int64_t saved,
                                 bool *fits, struct gd_error *err) {
  GD_TRY(find_needs(p, micro_batch, saved, p->save_bytes, err));
  *fits = p->last.device_bytes <= p->save_bytes;
  return GD_OK;
}

/* Micro-steps half as long cost only what is exchanged in each, as long as they fill the device. */
static bool may_halve(const struct gd_planner *p) {
  return p->options->micro_batch == GD_MICRO_BATCH_AUTO && p->trial->micro_batch % 2 == 0 &&
         p->options->method.sharding <= GD_SHARDING_ZERO1 &&
         p->last.flops / 2 >= p->place.caps.enough_flops / ENOUGH_TO_FILL &&
         p->last.rows / 2 >= ROWS_TO_FILL;
}

/*
 * Between so many layers that can save and so many that cannot: where the memory would end if each
 * took the same, and halfway when that was wrong often.
 */
static int64_t guess_saved(const struct gd_planner *p, int64_t good, int64_t good_bytes,
                           int64_t bad, int64_t bad_bytes, int tries) {
  enum { MOST_GUESSES = 3 };
  int64_t middle = good + (bad - good) / 2;
  if (good_bytes < 0 || bad_bytes <= good_bytes || tries >= MOST_GUESSES)
    return middle;
  double share = (double)(p->save_bytes - good_bytes) / (double)(bad_bytes - good_bytes);
  int64_t guess = good + (int64_t)(share * (double)(bad - good));
  return guess <= good ? good + 1 : guess >= bad ? bad - 1 : guess;
}

/*
 * Memory that the micro-batch leaves over: as many layers as fit save the activations that the
 * compile method would recompute as inputs of GEMMs (pass_recompute.c). All of them at half the
 * micro-batch are better than some at the whole.
 */
static enum gd_status save_what_fits(struct gd_planner *p, struct gd_error *err) {
  struct gd_trial *trial = p->trial;
  int64_t good = 0, bad, bad_bytes;
  bool fits;
  const struct needs *none = find_tried(p, trial->micro_batch, 0);
  int64_t good_bytes = none ? none->device_bytes : -1;
  GD_TRY(try_saving(p, trial->micro_batch, INT64_MAX, &fits, err));
  int64_t blocks = bad = p->last.blocks;
  bad_bytes = p->last.device_bytes;
  if (!fits && may_halve(p)) {
    GD_TRY(try_saving(p, trial->micro_batch / 2, INT64_MAX, &fits, err));
    blocks = p->last.blocks;
    if (fits)
      trial->micro_batch /= 2;
  }
  for (int tries = 0; !fits && bad - good > 1; tries++) {
    int64_t saved = guess_saved(p, good, good_bytes, bad, bad_bytes, tries);
    bool some;
    GD_TRY(try_saving(p, trial->micro_batch, saved, &some, err));
    *(some ? &good : &bad) = saved;
    *(some ? &good_bytes : &bad_bytes) = p->last.device_bytes;
  }
  trial->saved_blocks = fits ? blocks : good;
  return GD_OK;
}

static bool may_save(const struct gd_planner *p) {
  return p->save_bytes > 0 && p->options->method.compile && !p->trial->no_compiler[0];
}

/*
 * Where FLOPs bound the micro-batch and memory is plenty, the longest with all that can be saved is
 * the answer, and then it is the only plan that is made. *found 0: it is not, or may not be.
 */
static enum gd_status try_longest(struct gd_planner *p, int64_t batch, int64_t *found,
                                  struct gd_error *err) {
  int64_t saved = may_save(p) ? INT64_MAX : 0;
  int64_t limit_bytes = saved ? p->save_bytes : INT64_MAX;
  *found = 0;
  if (p->enough_flops <= 0 || batch < 2)
    return GD_OK;
  /* Backward takes about twice the GEMMs of forward; a plan then tells exactly. */
  int64_t guess = longest_size(p, p->identity.flops, batch), size = 0;
  for (int tries = 0; tries < 2 && guess >= 2 && guess != size; tries++) {
    size = guess;
    GD_TRY(find_needs(p, size, saved, limit_bytes, err));
    guess = longest_size(p, p->last.flops / (double)size, batch);
  }
  if (guess < 2 || guess != size || !fits_device(p, &p->last) || p->last.device_bytes > limit_bytes)
    return GD_OK;
  *found = size;
  p->trial->saved_blocks = saved ? p->last.blocks : 0;
  return GD_OK;
}

/* --- the record of a plan ------------------------------------------------------------------ */

/* Padding of the last chunk of a GPU's fused loss does not count, nor does that of tiles. */
double gd_trial_op_flops(const struct gd_graph *graph, gd_op_id id) {
  const struct gd_op *op = &graph->ops[id];
  struct gd_cost cost;
  gd_op_cost(graph, id, &cost);
  if (gd_op_info(op->kind)->work == GD_WORK_LINEAR_XENT &&
      gd_loss_gathers(&op->attr.xent, gd_tensor_elements(graph, op->in[2])))
    return gd_run_counted_share(graph) * cost.executed_flops;
  return cost.executed_flops;
}

/* Of a micro-step. */
static double executed_flops(const struct gd_candidate *candidate) {
  const struct gd_graph *graph = &candidate->graph;
  struct gd_cost cost;
  gd_graph_cost(graph, &cost);
  double flops = cost.executed_flops;
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    if (gd_op_info(graph->ops[id].kind)->work == GD_WORK_LINEAR_XENT) {
      gd_op_cost(graph, id, &cost);
      flops -= cost.executed_flops - gd_trial_op_flops(graph, id);
    }
  return flops;
}

/* The model's FLOPs are the same for all methods: MFU tells the faster of two. */
static void record_plan(const struct gd_planner *p, struct gd_trial *trial,
                        const struct gd_candidate *candidate) {
  const struct gd_plan *plan = &candidate->plan;
  const struct gd_recipe *recipe = &p->model->recipe;
  double sequences = (double)trial->micro_batch;
  int64_t batch = recipe->batch / trial->ranks;
  trial->accumulation = (batch + trial->micro_batch - 1) / trial->micro_batch;
  trial->remainder = batch % trial->micro_batch;
  trial->parameters = gd_graph_parameters(&candidate->graph);
  trial->peak_bytes = plan->device_bytes;
  trial->host_bytes = plan->host_bytes;
  trial->live_bytes = plan->live_bytes;
  trial->reduces = plan->has_last;
  trial->plan_hash = gd_plan_hash(plan);
  memcpy(trial->bytes, plan->bytes, sizeof trial->bytes);
  memcpy(trial->host_parts, plan->host_parts, sizeof trial->host_parts);
  trial->model_flops_per_step = p->identity.flops * (double)recipe->batch;
  trial->exec_flops_per_step = executed_flops(candidate) / sequences * (double)recipe->batch;
  trial->train_flops = trial->model_flops_per_step * (double)recipe->steps;
}

/* --- the device ---------------------------------------------------------------------------- */

void gd_place_of(struct gd_backend *backend, const struct gd_backend_options *options,
                 struct gd_place *place) {
  *place = (struct gd_place){0};
  backend->ops->caps(options, &place->caps);
  backend->ops->describe(backend, &place->info);
}

enum gd_status gd_place_find(const char *name, const struct gd_backend_options *options,
                             struct gd_place *place, struct gd_error *err) {
  struct gd_backend *backend;
  GD_TRY(gd_backend_open(name, options, &backend, err));
  gd_place_of(backend, options, place);
  gd_backend_close(backend);
  return GD_OK;
}

int64_t gd_place_shared_bytes(const struct gd_place *place) {
  return place->info.devices == 0 ? place->info.memory_bytes : 0;
}

void gd_options_share(struct gd_trial_options *options, int64_t shared_bytes) {
  if (options->ranks > 1 && options->device_limit_bytes == 0)
    options->device_limit_bytes = shared_bytes / options->ranks;
  if (options->ranks > 1 && options->host_limit_bytes == 0)
    options->host_limit_bytes = shared_bytes / options->ranks;
}

/* What a rank may have of a device's memory. Where a machine has more ranks than devices: its
   share, less a context of its own. devices 0 (a CPU): ranks share the machine's memory. */
static int64_t share_of(int ranks, const struct gd_device_info *info) {
  int sharing = info->sharing       ? info->sharing
                : info->devices > 0 ? (ranks + info->devices - 1) / info->devices
                                    : 1;
  if (info->devices == 0)
    return info->memory_bytes / ranks;
  if (sharing <= 1)
    return info->memory_bytes;
  int64_t context_bytes = info->memory_bytes - gd_gpu_plan_bytes(info->memory_bytes);
  return gd_gpu_plan_bytes((info->memory_bytes + context_bytes) / sharing); /* one is off already */
}

enum gd_status gd_planner_settle(struct gd_planner *p, enum gd_status status,
                                 struct gd_error *err) {
  if (!p->options->comm || p->settled)
    return status;
  status = gd_comm_agree(p->options->comm, status, err);
  p->settled = status != GD_OK;
  return status;
}

/* Opens the backend to see what it has, unless the caller knows. */
static enum gd_status look(struct gd_planner *p, int threads, struct gd_error *err) {
  if (p->options->place && p->options->place->info.threads == threads)
    p->place = *p->options->place;
  else
    GD_TRY(gd_place_find(p->options->backend,
                         &(struct gd_backend_options){.threads = threads, .comm = p->options->comm},
                         &p->place, err));
  return GD_OK;
}

/* What the backend finds here, and the least of what all ranks find. */
static enum gd_status find_device_here(struct gd_planner *p, struct gd_limits *limits,
                                       struct gd_error *err) {
  const struct gd_trial_options *options = p->options;
  struct gd_error why = {0};
  /* Of this machine: a job of ranks knows how many; else they are spread evenly over the nodes. */
  int ranks = options->comm ? gd_comm_local_size(options->comm)
                            : (p->trial->ranks + p->trial->nodes - 1) / p->trial->nodes;
  int threads = options->place ? options->place->info.threads : options->threads;
  GD_TRY(gd_planner_settle(p, look(p, threads, err), err));
  /* Without a compiler the compile method plans and runs unfused, and says so. */
  if (options->method.compile && !gd_codegen_works(&p->place.caps, &why))
    snprintf(limits->no_compiler, sizeof limits->no_compiler, "%.255s", why.text);
  limits->threads = p->place.info.threads;
  limits->device_bytes =
      options->device_limit_bytes ? options->device_limit_bytes : share_of(ranks, &p->place.info);
  limits->host_bytes = options->host_limit_bytes ? options->host_limit_bytes
                                                 : p->place.info.host_memory_bytes / ranks;
  GD_TRY(gd_agree_limits(options->comm, limits, p->trial->note, sizeof p->trial->note, err));
  /* Scratch and the size of a micro-step depend on the threads. All ranks look again or none, since
     opening may wait for the others. */
  if (limits->threads_differ)
    GD_TRY(gd_planner_settle(p, look(p, (int)limits->threads, err), err));
  p->place.reduced = limits->threads_differ;
  return GD_OK;
}

/* Device, threads and memory: of the target, or of what the backend finds here. */
static enum gd_status find_device(struct gd_planner *p, struct gd_error *err) {
  const struct gd_trial_options *options = p->options;
  const struct gd_target *target = options->target;
  struct gd_trial *trial = p->trial;
  struct gd_limits limits = {0};
  if (target) {
    p->place = (struct gd_place){0};
    gd_target_caps(target, &p->place.caps);
    snprintf(p->place.info.name, sizeof p->place.info.name, "%.127s", target->gpu->title);
    limits.threads = target->cpus;
    limits.device_bytes =
        options->device_limit_bytes ? options->device_limit_bytes : target->memory_bytes;
    limits.host_bytes =
        options->host_limit_bytes ? options->host_limit_bytes : target->host_memory_bytes;
  } else {
    GD_TRY(find_device_here(p, &limits, err));
    gd_machine_print(options->backend, &p->place.info, trial->ranks, trial->machine);
  }
  snprintf(trial->device, sizeof trial->device, "%s", p->place.info.name);
  snprintf(trial->no_compiler, sizeof trial->no_compiler, "%s", limits.no_compiler);
  trial->threads = (int)limits.threads;
  trial->device_limit_bytes = limits.device_bytes;
  trial->host_limit_bytes = limits.host_bytes;
  return GD_OK;
}

static int ranks_of(const struct gd_trial_options *options) {
  int ranks = options->comm     ? gd_comm_size(options->comm)
              : options->target ? options->target->count
                                : options->ranks;
  return ranks > 1 ? ranks : 1;
}

static enum gd_status check_batch(const struct gd_planner *p, struct gd_error *err) {
  const struct gd_trial_options *options = p->options;
  int64_t batch = p->model->recipe.batch;
  int ranks = p->trial->ranks;
  if (batch % ranks)
    return gd_fail(err, GD_BAD_INPUT,
                   "a batch of %lld does not divide among %d ranks; choose %s or --batch so "
                   "that it does",
                   (long long)batch, ranks, options->target ? "--count" : "--ranks");
  if (options->micro_batch == GD_MICRO_BATCH_FIXED &&
      (options->micro_batch_size < 1 || options->micro_batch_size > batch / ranks))
    return gd_fail(err, GD_BAD_INPUT, "micro-batch %lld is outside 1..%lld (the batch%s)",
                   (long long)options->micro_batch_size, (long long)batch / ranks,
                   ranks > 1 ? " of a rank" : "");
  return GD_OK;
}

/* Fills what is known before any plan: names, device, limits, precision. */
static enum gd_status begin(struct gd_planner *p, const struct gd_trial_options *options,
                            struct gd_trial *trial, struct gd_error *err) {
  int nodes = options->target ? options->target->nodes : options->nodes;
  p->options = options;
  p->trial = trial;
  p->settled = false;
  *trial = (struct gd_trial){.status = GD_TRIAL_PLANNED,
                             .nodes = nodes > 1 ? nodes : 1,
                             .busy_share = -1,
                             .resident_bytes = -1,
                             .version = GD_VERSION,
                             .commit = GD_COMMIT};
  snprintf(trial->model, sizeof trial->model, "%s", p->model->name);
  gd_method_name(&options->method, trial->method);
  trial->ranks = ranks_of(options);
  snprintf(trial->backend, sizeof trial->backend, "%s",
           options->target ? "cuda" : options->backend);
  if (options->identity)
    p->identity = *options->identity;
  else if (!p->identity.graph[0])
    GD_TRY(gd_model_identify(p->model, &p->identity, err));
  gd_recipe_hash_of(p->model, &p->identity, options->precision, trial->recipe);
  memcpy(trial->model_graph, p->identity.graph, sizeof trial->model_graph);
  GD_TRY(check_batch(p, err));
  GD_TRY(find_device(p, err));
  p->save_bytes = !p->place.caps.keeps || options->saves_nothing ? 0
                  : options->save_limit_bytes
                      ? options->save_limit_bytes
                      : trial->device_limit_bytes / SPARE_PARTS * (SPARE_PARTS - 1);
  p->enough_flops = options->micro_batch == GD_MICRO_BATCH_AUTO ? p->place.caps.enough_flops : 0;
  return gd_setup_precision(p->model, &p->place.caps, options->precision, &trial->precision,
                            &trial->precision_substituted, err);
}

/* --- the choice ---------------------------------------------------------------------------- */

static bool same_caps(const struct gd_caps *a, const struct gd_caps *b) {
  return a->backend == b->backend && a->alignment_bytes == b->alignment_bytes &&
         a->workspace_bytes == b->workspace_bytes && a->column_bytes == b->column_bytes &&
         a->comm_bytes == b->comm_bytes && a->loss_chunk_bytes == b->loss_chunk_bytes &&
         a->compile == b->compile && a->needs_cc == b->needs_cc && a->tf32 == b->tf32 &&
         a->enough_flops == b->enough_flops && a->keeps == b->keeps &&
         memcmp(a->dtype, b->dtype, sizeof a->dtype) == 0 && a->dtypes_alone == b->dtypes_alone;
}

/* What was planned for a device of another kind, or for more of them, is of no use. */
static void forget_others(struct gd_planner *p) {
  const struct gd_trial *trial = p->trial;
  if (!same_caps(&p->tried_caps, &p->place.caps) || p->tried_precision != trial->precision ||
      p->tried_ranks != trial->ranks) {
    gd_candidate_deinit(&p->ready);
    p->ready = (struct gd_candidate){0};
    p->ready_size = p->n_tried = 0;
  }
  p->ready_good = false; /* for this memory that is not known yet */
  p->tried_caps = p->place.caps;
  p->tried_precision = trial->precision;
  p->tried_ranks = trial->ranks;
}

/* The plan that was chosen: the one at hand, or made now. */
static enum gd_status take_candidate(struct gd_planner *p, struct gd_candidate *candidate,
                                     struct gd_error *err) {
  struct gd_trial *trial = p->trial;
  if (p->ready_size != trial->micro_batch || p->ready_saved != trial->saved_blocks)
    return make_candidate(p, trial->micro_batch, trial->saved_blocks, candidate, err);
  move_candidate(candidate, &p->ready);
  trial->plan_s = p->ready_plan_s;
  p->ready_size = 0;
  return GD_OK;
}

/* The micro-batch that was found, with its saved layers; *found 0: nothing fits. */
static enum gd_status search_sizes(struct gd_planner *p, int64_t *found, struct gd_error *err) {
  struct gd_trial *trial = p->trial;
  const struct gd_trial_options *options = p->options;
  GD_TRY(try_longest(p, p->model->recipe.batch / trial->ranks, found, err));
  trial->micro_batch = *found;
  if (*found)
    return GD_OK;
  GD_TRY(find_micro_batch(p, found, err));
  trial->micro_batch = *found                                         ? *found
                       : options->micro_batch == GD_MICRO_BATCH_FIXED ? options->micro_batch_size
                                                                      : 1;
  GD_ASSERT(trial->micro_batch > 0);
  return *found && may_save(p) ? save_what_fits(p, err) : GD_OK;
}

/* Plans what was expected. *same false: this process would not have chosen it. */
static enum gd_status take_expected(struct gd_planner *p, struct gd_candidate *full, bool *same,
                                    struct gd_error *err) {
  const struct gd_plan_identity *expected = &p->options->expected;
  struct gd_trial *trial = p->trial;
  *same = false;
  if (expected->micro_batch > p->model->recipe.batch / trial->ranks)
    return GD_OK;
  trial->micro_batch = expected->micro_batch;
  trial->saved_blocks = expected->saved_blocks;
  GD_TRY(make_candidate(p, trial->micro_batch, trial->saved_blocks, full, err));
  *same = full->plan.device_bytes <= trial->device_limit_bytes &&
          full->plan.host_bytes <= trial->host_limit_bytes &&
          gd_plan_hash(&full->plan) == expected->hash;
  if (*same)
    return GD_OK;
  gd_candidate_deinit(full);
  *full = (struct gd_candidate){0};
  trial->saved_blocks = 0;
  return GD_OK;
}

static void note_other_plan(struct gd_trial *trial, const struct gd_plan_identity *expected) {
  size_t length = strlen(trial->note);
  snprintf(trial->note + length, sizeof trial->note - length,
           "%sthe plan of this process is not the one that the search has chosen (micro-batch %lld "
           "of plan %016llx, not %lld of %016llx)",
           length ? "; " : "", (long long)trial->micro_batch, (unsigned long long)trial->plan_hash,
           (long long)expected->micro_batch, (unsigned long long)expected->hash);
}

enum gd_status gd_planner_choose(struct gd_planner *p, const struct gd_trial_options *options,
                                 struct gd_trial *trial, struct gd_candidate *full,
                                 struct gd_error *err) {
  bool expected = options->expected.micro_batch > 0, same = false;
  int64_t found;
  GD_TRY(begin(p, options, trial, err));
  forget_others(p);
  if (expected)
    GD_TRY(take_expected(p, full, &same, err));
  if (same) {
    record_plan(p, trial, full);
    return GD_OK;
  }
  GD_TRY(search_sizes(p, &found, err));
  GD_TRY(take_candidate(p, full, err));
  record_plan(p, trial, full);
  if (expected)
    note_other_plan(trial, &options->expected);
  if (!found) {
    struct gd_error miss = {0};
    trial->status = GD_TRIAL_INFEASIBLE;
    (void)!gd_plan_fits(&full->plan, trial->device_limit_bytes, trial->host_limit_bytes, &miss);
    snprintf(trial->reason, sizeof trial->reason, "micro-batch %lld %s",
             (long long)trial->micro_batch, miss.text);
  }
  return GD_OK;
}

enum gd_status gd_planner_remainder(struct gd_planner *p, struct gd_candidate *remainder,
                                    struct gd_error *err) {
  double plan_s = p->trial->plan_s;
  enum gd_status status =
      make_candidate(p, p->trial->remainder, p->trial->saved_blocks, remainder, err);
  p->trial->plan_s = plan_s;
  return status;
}

enum gd_status gd_planner_evaluation(struct gd_planner *p, struct gd_candidate *evaluation,
                                     struct gd_error *err) {
  struct gd_setup setup = setup_of(p, p->trial->micro_batch, p->trial->saved_blocks);
  GD_TRY(gd_pipeline_evaluation(&setup, &evaluation->graph, err));
  return gd_plan_make(&evaluation->graph, &p->place.caps, &evaluation->plan, err);
}

void gd_planner_return(struct gd_planner *p, struct gd_candidate *full) {
  set_ready(p, p->trial->micro_batch, p->trial->saved_blocks, false, full);
}

const struct gd_model *gd_planner_model(const struct gd_planner *p) {
  return p->model;
}

const struct gd_place *gd_planner_place(const struct gd_planner *p) {
  return &p->place;
}

struct gd_planner *gd_planner_new(const struct gd_model *model) {
  struct gd_planner *p = gd_mem_alloc(1, sizeof *p);
  if (p)
    p->model = model;
  return p;
}

void gd_planner_free(struct gd_planner *p) {
  if (p)
    gd_candidate_deinit(&p->ready);
  gd_mem_free(p);
}

enum gd_status gd_trial_plan(const struct gd_model *model, const struct gd_trial_options *options,
                             struct gd_trial *trial, struct gd_error *err) {
  struct gd_planner *p = gd_planner_new(model);
  struct gd_candidate full = {0};
  enum gd_status status =
      p ? gd_planner_choose(p, options, trial, &full, err) : gd_nomem(err, "before the first plan");
  gd_candidate_deinit(&full);
  gd_planner_free(p);
  return status;
}

enum gd_status gd_trial_explain(const struct gd_model *model,
                                const struct gd_trial_options *options,
                                const struct gd_trial *trial, const char *pass,
                                struct gd_strbuf *out, struct gd_error *err) {
  struct gd_trial scratch;
  struct gd_planner p = {.model = model};
  struct gd_candidate full = {0};
  const struct gd_plan *plan = &full.plan;
  enum gd_status status = begin(&p, options, &scratch, err);
  if (status == GD_OK && pass) {
    struct gd_setup setup = setup_of(&p, trial->micro_batch, trial->saved_blocks);
    gd_strbuf_printf(out, "-- %s, %s%s, %s, micro-batch %lld\n", trial->model,
                     strcmp(pass, "passes") == 0 ? "" : "pass ", pass, trial->method,
                     (long long)trial->micro_batch);
    return gd_pipeline_explain(&setup, pass, out, err);
  }
  if (status == GD_OK)
    status = make_candidate(&p, trial->micro_batch, trial->saved_blocks, &full, err);
  if (status == GD_OK) {
    gd_strbuf_printf(
        out,
        "-- %u tensors, %u ops; %u buffers of activations, %u outputs in place; "
        "packed %lld bytes, at least %lld alive at once (op %u); %lld layers save the inputs of "
        "GEMMs\n",
        full.graph.n_tensors, full.graph.n_ops, plan->n_buffers, plan->n_inplace,
        (long long)plan->bytes[GD_CATEGORY_ACTIVATIONS], (long long)plan->live_bytes, plan->live_at,
        (long long)trial->saved_blocks);
    gd_plan_print(plan, out);
    if (out->failed)
      status = gd_nomem(err, "while printing the plan");
  }
  gd_candidate_deinit(&full);
  return status;
}

static bool uses_tf32(const struct gd_trial *trial) {
  struct gd_method method;
  return gd_method_parse(trial->method, &method, NULL) == GD_OK && method.tf32;
}

enum gd_peak gd_trial_peak(const struct gd_trial *trial) {
  switch (trial->precision) {
  case GD_PRECISION_FP16: return GD_PEAK_FP16;
  case GD_PRECISION_BF16: return GD_PEAK_BF16;
  case GD_PRECISION_FP32: break;
  }
  return strcmp(trial->backend, "cuda") == 0 && uses_tf32(trial) ? GD_PEAK_TF32 : GD_PEAK_FP32;
}
