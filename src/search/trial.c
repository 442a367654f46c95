/*
 * Trials: the micro-batch, then the measurement of Sec. 3.2 of the paper with
 * the guards its code lacks: a timed region that ends when the device is done, an interval, a check
 * of the numbers in the same run, and the physics of the device.
 */
#include "search/trial.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process.h"
#include "codegen/codegen.h"
#include "exec/run.h"
#include "gd_version.h"
#include "pass/pass.h"
#include "search/agree.h"
#include "search/clocks.h"
#include "search/load.h"
#include "store/store.h"

/* --- planning ------------------------------------------------------------------------------ */

enum {
  KEEP_PARTS = 32, /* one of so many of the memory stays free: others may use the device too */
  ROWS_TO_FILL = 1 << 15,
  ENOUGH_TO_FILL = 12, /* of FLOPs that are enough, a part that fills a device: vit on an H200 does
                          779 images/s with passes of 1e14, 753 with twice that and less kept */
};

/* A graph with its plan, for one micro-batch size. */
struct candidate {
  struct gd_graph graph;
  struct gd_plan plan;
};

static void candidate_deinit(struct candidate *candidate) {
  gd_plan_deinit(&candidate->plan);
  gd_graph_deinit(&candidate->graph);
}

/* What a graph was found to need: a search for another memory need not plan it again. */
struct sized {
  int64_t micro_batch, kept; /* of which graph */
  int64_t device_bytes, host_bytes, blocks;
  int64_t rows; /* tokens or pixels of a pass */
  double flops; /* of a pass */
};
enum { MOST_SIZES = 96 };

struct planning {
  const struct gd_model *model;
  const struct gd_trial_options *options;
  struct gd_trial *trial;
  struct gd_caps caps;
  int threads;            /* that the backend is opened with; the same on all ranks */
  unsigned char uuid[16]; /* of this rank's GPU; zeros: it has none */
  bool settled;           /* all ranks fail, and know it */
  int64_t used_bytes;     /* of the size that was tried last */
  double pass_flops;      /* likewise */
  double enough_flops;    /* a size whose pass has more is too long, but for 1; 0: none is */
  int64_t pass_rows; /* of the size that was tried last: tokens, which products have as rows, or
                        pixels, of which there are plenty */
  int64_t used_host_bytes, blocks; /* likewise */
  int64_t keep_bytes; /* what a plan may have where activations are kept; 0: they are not */
  /* The likeliest answer of those planned, so as not to plan it again: of the largest good size,
     with the most blocks that keep, else of the first that was tried. */
  struct candidate ready;
  int64_t ready_size, ready_blocks; /* size 0: none */
  double ready_plan_s;
  /* All that were tried, for the device that has these caps and that precision. */
  struct sized sizes[MOST_SIZES];
  int n_sizes;
  struct gd_caps sized_caps;
  enum gd_precision sized_precision;
  int sized_ranks;
};

/* A plan points to its graph. */
static void move_candidate(struct candidate *to, struct candidate *from) {
  *to = *from;
  to->plan.graph = &to->graph;
  *from = (struct candidate){0};
}

static enum gd_status make_candidate(struct planning *p, int64_t micro_batch,
                                     struct candidate *candidate, struct gd_error *err) {
  struct gd_setup setup = {.model = p->model,
                           .precision = p->trial->precision,
                           .micro_batch = micro_batch,
                           .method = p->options->method,
                           .ranks = p->trial->ranks,
                           .tf32 = p->caps.tf32,
                           .loss_chunk_bytes = p->caps.loss_chunk_bytes,
                           .kept_blocks = p->trial->kept_blocks,
                           .no_compiler = p->trial->no_compiler[0] != '\0',
                           .rank = p->options->comm ? gd_comm_rank(p->options->comm) : 0};
  int64_t start = gd_clock_ns();
  GD_TRY(gd_pipeline_build(&setup, &candidate->graph, err));
  GD_TRY(gd_plan_make(&candidate->graph, &p->caps, &candidate->plan, err));
  p->trial->plan_s = 1e-9 * (double)(gd_clock_ns() - start);
  return GD_OK;
}

static const struct sized *find_sized(const struct planning *p, int64_t micro_batch, int64_t kept) {
  for (int i = 0; i < p->n_sizes; i++)
    if (p->sizes[i].micro_batch == micro_batch && p->sizes[i].kept == kept)
      return &p->sizes[i];
  return NULL;
}

static void set_last(struct planning *p, const struct sized *sized) {
  p->used_bytes = sized->device_bytes;
  p->used_host_bytes = sized->host_bytes;
  p->blocks = sized->blocks;
  p->pass_rows = sized->rows;
  p->pass_flops = sized->flops;
}

/* What a micro-batch with trial->kept_blocks needs; the candidate is made only where that is not
   known. Where there is no room for what was found it will be planned again. */
static enum gd_status find_needs(struct planning *p, int64_t micro_batch,
                                 struct candidate *candidate, bool *made, struct gd_error *err) {
  const struct gd_graph *graph = &candidate->graph;
  const struct sized *known = find_sized(p, micro_batch, p->trial->kept_blocks);
  *made = !known;
  if (known) {
    set_last(p, known);
    return GD_OK;
  }
  GD_TRY(make_candidate(p, micro_batch, candidate, err));
  struct sized sized = {
      .micro_batch = micro_batch,
      .kept = p->trial->kept_blocks,
      .device_bytes = candidate->plan.device_bytes,
      .host_bytes = candidate->plan.host_bytes,
      .blocks = gd_graph_blocks(graph),
      .rows = gd_tensor_elements(graph, graph->ids != GD_NONE ? graph->ids : graph->pixels),
      .flops = graph->model_flops};
  if (p->n_sizes < MOST_SIZES)
    p->sizes[p->n_sizes++] = sized;
  set_last(p, &sized);
  return GD_OK;
}

/* Of the size that was tried last. */
static bool is_too_long(const struct planning *p, int64_t size) {
  return size > 1 && p->enough_flops > 0 && p->pass_flops > p->enough_flops;
}

/* Takes the candidate over. */
static void set_ready(struct planning *p, int64_t micro_batch, int64_t blocks,
                      struct candidate *candidate) {
  candidate_deinit(&p->ready);
  move_candidate(&p->ready, candidate);
  p->ready_size = micro_batch;
  p->ready_blocks = blocks;
  p->ready_plan_s = p->trial->plan_s;
}

/* Whether a micro-batch fits. */
static enum gd_status try_size(struct planning *p, int64_t micro_batch, bool *fits,
                               struct gd_error *err) {
  struct candidate candidate = {0};
  bool made = false;
  enum gd_status status = find_needs(p, micro_batch, &candidate, &made, err);
  if (status == GD_OK) {
    *fits = p->used_bytes <= p->trial->device_limit_bytes &&
            p->used_host_bytes <= p->trial->host_limit_bytes;
    /* The first is also what is left where none fits. */
    if (made && (p->ready_size == 0 ||
                 (*fits && micro_batch > p->ready_size && !is_too_long(p, micro_batch))))
      set_ready(p, micro_batch, p->trial->kept_blocks, &candidate);
  }
  candidate_deinit(&candidate);
  return status;
}

/* The largest power of two up to the batch that is not too long, of size 1's FLOPs: they grow in
   proportion to the size. */
static int64_t longest_size(const struct planning *p, double flops, int64_t batch) {
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
static int64_t guess_size(const struct planning *p, int64_t bytes, int64_t other_bytes,
                          int64_t other, int64_t most) {
  int64_t size = 2, each = (other_bytes - bytes) / (other - 1);
  int64_t fitting = (p->trial->device_limit_bytes - bytes) / (each > 0 ? each : 1) + 1;
  while (size <= most / 2 && 2 * size <= fitting)
    size *= 2;
  return size;
}

/* Whether a size fits and is not too long. */
static enum gd_status is_good_size(struct planning *p, int64_t size, bool *good, bool *fits,
                                   struct gd_error *err) {
  GD_TRY(try_size(p, size, fits, err));
  *good = *fits && !is_too_long(p, size);
  return GD_OK;
}

/*
 * The largest good power of two, 0 if there is none; *bad is the least size known not to fit. Every
 * size that is looked at is a whole plan, so those that are too long are not: where FLOPs bound the
 * size, the largest that they permit is tried right after size 1, and often it is the answer.
 */
static enum gd_status find_power(struct planning *p, int64_t batch, int64_t *found, int64_t *bad,
                                 struct gd_error *err) {
  bool good, fits;
  *found = 0;
  GD_TRY(is_good_size(p, 1, &good, &fits, err));
  *bad = fits ? *bad : 1;
  if (!good)
    return GD_OK;
  *found = 1;
  int64_t bytes = p->used_bytes, most = longest_size(p, p->pass_flops, batch);
  int64_t size = p->enough_flops > 0 ? most : 2; /* without a bound the longest may be absurd */
  if (most < 2)
    return GD_OK;
  GD_TRY(is_good_size(p, size, &good, &fits, err));
  *bad = fits ? *bad : size;
  int64_t guess = guess_size(p, bytes, p->used_bytes, size, most);
  if (good)
    *found = size;
  /* Down from the guess until one is good, then up as long as the next one is. */
  for (size = guess < *bad ? guess : *bad / 2; size > *found; size = good ? 0 : size / 2) {
    GD_TRY(is_good_size(p, size, &good, &fits, err));
    *bad = fits ? *bad : size;
    *found = good ? size : *found;
  }
  for (; 2 * *found <= most && 2 * *found < *bad; *found *= 2) {
    GD_TRY(is_good_size(p, 2 * *found, &good, &fits, err));
    *bad = fits ? *bad : 2 * *found;
    if (!good)
      break;
  }
  return GD_OK;
}

/*
 * The largest power of two that fits; `auto` also stops before a pass that is longer than it gains
 * from; `max` then halves the gap. 0: not even one sequence fits.
 */
static enum gd_status find_micro_batch(struct planning *p, int64_t *found, struct gd_error *err) {
  const int64_t batch = p->model->recipe.batch / p->trial->ranks;
  int64_t good = 0, bad = batch + 1;
  bool fits;
  *found = 0;
  p->enough_flops = p->options->micro_batch == GD_MICRO_BATCH_AUTO ? p->caps.enough_flops : 0;
  if (p->options->micro_batch == GD_MICRO_BATCH_FIXED) {
    GD_TRY(try_size(p, p->options->micro_batch_size, &fits, err));
    *found = fits ? p->options->micro_batch_size : 0;
    return GD_OK;
  }
  GD_TRY(find_power(p, batch, &good, &bad, err));
  if (p->options->micro_batch == GD_MICRO_BATCH_MAX)
    while (good > 0 && bad - good > 1) {
      int64_t middle = good + (bad - good) / 2;
      GD_TRY(try_size(p, middle, &fits, err));
      if (fits)
        good = middle;
      else
        bad = middle;
    }
  *found = good;
  return GD_OK;
}

/* Whether a micro-batch fits into what may be kept in, with so many blocks keeping. */
static enum gd_status try_keeping(struct planning *p, int64_t micro_batch, int64_t kept, bool *fits,
                                  struct gd_error *err) {
  struct candidate candidate = {0};
  bool made = false;
  p->trial->kept_blocks = kept;
  enum gd_status status = find_needs(p, micro_batch, &candidate, &made, err);
  *fits = status == GD_OK && p->used_bytes <= p->keep_bytes;
  if (*fits && made)
    set_ready(p, micro_batch, kept < p->blocks ? kept : p->blocks, &candidate);
  candidate_deinit(&candidate);
  return status;
}

/* Passes half as long cost only what is exchanged in each, as long as they fill the device. */
static bool may_halve(const struct planning *p) {
  return p->options->micro_batch == GD_MICRO_BATCH_AUTO && p->trial->micro_batch % 2 == 0 &&
         p->options->method.sharding <= GD_SHARDING_ZERO1 &&
         p->pass_flops / 2 >= p->caps.enough_flops / ENOUGH_TO_FILL &&
         p->pass_rows / 2 >= ROWS_TO_FILL;
}

/*
 * Between so many blocks that can keep and so many that cannot: where the memory would end if each
 * took the same, and halfway when that was wrong often.
 */
static int64_t guess_kept(const struct planning *p, int64_t good, int64_t good_bytes, int64_t bad,
                          int64_t bad_bytes, int tries) {
  enum { MOST_GUESSES = 3 };
  int64_t middle = good + (bad - good) / 2;
  if (good_bytes < 0 || bad_bytes <= good_bytes || tries >= MOST_GUESSES)
    return middle;
  double share = (double)(p->keep_bytes - good_bytes) / (double)(bad_bytes - good_bytes);
  int64_t guess = good + (int64_t)(share * (double)(bad - good));
  return guess <= good ? good + 1 : guess >= bad ? bad - 1 : guess;
}

/*
 * Memory that the micro-batch leaves over: as many blocks as fit keep what the compile method would
 * make again for products (pass_recompute.c). All of them at half the micro-batch are better than
 * some at the whole.
 */
static enum gd_status keep_what_fits(struct planning *p, struct gd_error *err) {
  struct gd_trial *trial = p->trial;
  int64_t good = 0, bad, bad_bytes;
  bool fits;
  const struct sized *none = find_sized(p, trial->micro_batch, 0);
  int64_t good_bytes = none ? none->device_bytes : -1;
  GD_TRY(try_keeping(p, trial->micro_batch, INT64_MAX, &fits, err));
  int64_t blocks = bad = p->blocks;
  bad_bytes = p->used_bytes;
  if (!fits && may_halve(p)) {
    GD_TRY(try_keeping(p, trial->micro_batch / 2, INT64_MAX, &fits, err));
    blocks = p->blocks;
    if (fits)
      trial->micro_batch /= 2;
  }
  for (int tries = 0; !fits && bad - good > 1; tries++) {
    int64_t kept = guess_kept(p, good, good_bytes, bad, bad_bytes, tries);
    bool some;
    GD_TRY(try_keeping(p, trial->micro_batch, kept, &some, err));
    *(some ? &good : &bad) = kept;
    *(some ? &good_bytes : &bad_bytes) = p->used_bytes;
  }
  trial->kept_blocks = fits ? blocks : good;
  return GD_OK;
}

/* Products of an op as executed: the fused loss multiplies only rows whose label counts. What fills
   the last chunk of a GPU's does not count, as little as what fills tiles. */
static double op_flops(const struct gd_graph *graph, gd_op_id id) {
  const struct gd_op *op = &graph->ops[id];
  struct gd_cost cost;
  gd_op_cost(graph, id, &cost);
  if (op->kind == GD_OP_linear_xent &&
      gd_loss_gathers(&op->attr.xent, gd_tensor_elements(graph, op->in[2])))
    return gd_run_counted_share(graph) * cost.executed_flops;
  return cost.executed_flops;
}

/* Of a pass. */
static double executed_flops(const struct candidate *candidate) {
  const struct gd_graph *graph = &candidate->graph;
  struct gd_cost cost;
  gd_graph_cost(graph, &cost);
  double flops = cost.executed_flops;
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    if (graph->ops[id].kind == GD_OP_linear_xent) {
      gd_op_cost(graph, id, &cost);
      flops -= cost.executed_flops - op_flops(graph, id);
    }
  return flops;
}

static void record_plan(struct gd_trial *trial, const struct gd_model *model,
                        const struct candidate *candidate) {
  const struct gd_plan *plan = &candidate->plan;
  const struct gd_recipe *recipe = &model->recipe;
  double sequences = (double)trial->micro_batch;
  trial->parameters = gd_graph_parameters(&candidate->graph);
  trial->peak_bytes = plan->device_bytes;
  trial->host_bytes = plan->host_bytes;
  trial->live_bytes = plan->live_bytes;
  trial->reduces = plan->has_last;
  memcpy(trial->bytes, plan->bytes, sizeof trial->bytes);
  memcpy(trial->host_parts, plan->host_parts, sizeof trial->host_parts);
  trial->model_flops_per_step = candidate->graph.model_flops / sequences * (double)recipe->batch;
  trial->exec_flops_per_step = executed_flops(candidate) / sequences * (double)recipe->batch;
  trial->train_flops = trial->model_flops_per_step * (double)recipe->steps;
}

/* Without a compiler the compile method plans and runs unfused, and says so. */
static void find_compiler(const struct planning *p, struct gd_limits *limits) {
  struct gd_error why = {0};
  if (p->options->method.compile && !gd_codegen_works(&p->caps, &why))
    snprintf(limits->no_compiler, sizeof limits->no_compiler, "%.255s", why.text);
}

/* On one machine: in a job the ranks know, else they are spread evenly. */
static int ranks_beside(const struct planning *p) {
  const struct gd_trial *trial = p->trial;
  return p->options->comm ? gd_comm_local_size(p->options->comm)
                          : (trial->ranks + trial->nodes - 1) / trial->nodes;
}

/* What a rank may have of a device's memory where there are more ranks on a machine than devices:
   its share, less a context of its own. devices 0: they share what there is. */
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

static enum gd_status describe_here(struct planning *p, int threads, struct gd_device_info *info,
                                    struct gd_error *err) {
  struct gd_backend_options options = {.threads = threads, .comm = p->options->comm};
  const struct gd_backend_ops *ops;
  struct gd_backend *backend;
  *info = (struct gd_device_info){0};
  GD_TRY(gd_backend_find(p->options->backend, &ops, err));
  ops->caps(&options, &p->caps);
  GD_TRY(ops->open(&options, &backend, err));
  ops->describe(backend, info);
  gd_backend_close(backend);
  memcpy(p->uuid, info->uuid, sizeof p->uuid);
  return GD_OK;
}

/* A failure of one rank is one of all. */
static enum gd_status settle(struct planning *p, enum gd_status status, struct gd_error *err) {
  if (!p->options->comm || p->settled)
    return status;
  status = gd_comm_agree(p->options->comm, status, err);
  p->settled = status != GD_OK;
  return status;
}

/* What the backend finds here, and the least of what all ranks find. */
static enum gd_status find_device_here(struct planning *p, struct gd_device_info *info,
                                       struct gd_limits *limits, struct gd_error *err) {
  const struct gd_trial_options *options = p->options;
  int ranks = ranks_beside(p);
  GD_TRY(settle(p, describe_here(p, options->threads, info, err), err));
  find_compiler(p, limits);
  limits->threads = info->threads;
  limits->device_bytes =
      options->device_limit_bytes ? options->device_limit_bytes : share_of(ranks, info);
  limits->host_bytes =
      options->host_limit_bytes ? options->host_limit_bytes : info->host_memory_bytes / ranks;
  GD_TRY(gd_agree_limits(options->comm, limits, p->trial->note, sizeof p->trial->note, err));
  p->threads = (int)limits->threads;
  /* Scratch and the size of a pass depend on the threads. Where one rank asks again, all do. */
  return options->comm && gd_comm_size(options->comm) > 1
             ? settle(p, describe_here(p, p->threads, info, err), err)
             : GD_OK;
}

/* Device, threads and memory: of the target, or of what the backend finds here. */
static enum gd_status find_device(struct planning *p, struct gd_error *err) {
  const struct gd_trial_options *options = p->options;
  const struct gd_target *target = options->target;
  struct gd_trial *trial = p->trial;
  struct gd_device_info info = {0};
  struct gd_limits limits = {0};
  if (target) {
    gd_target_caps(target, &p->caps);
    snprintf(info.name, sizeof info.name, "%.127s", target->gpu->title);
    limits.threads = target->cpus;
    limits.device_bytes =
        options->device_limit_bytes ? options->device_limit_bytes : target->memory_bytes;
    limits.host_bytes =
        options->host_limit_bytes ? options->host_limit_bytes : target->host_memory_bytes;
  } else {
    GD_TRY(find_device_here(p, &info, &limits, err));
    gd_machine_print(options->backend, &info, trial->ranks, trial->machine);
  }
  snprintf(trial->device, sizeof trial->device, "%s", info.name);
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

/* Fills what is known before any plan: names, device, limits, precision. */
static enum gd_status begin(struct planning *p, struct gd_error *err) {
  struct gd_trial *trial = p->trial;
  const struct gd_trial_options *options = p->options;
  const struct gd_recipe *recipe = &p->model->recipe;
  int nodes = options->target ? options->target->nodes : options->nodes;
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
  GD_TRY(gd_recipe_hash(p->model, options->precision, trial->recipe, err));
  if (recipe->batch % trial->ranks)
    return gd_fail(err, GD_BAD_INPUT,
                   "a batch of %lld does not divide among %d ranks; choose %s or --batch so "
                   "that it does",
                   (long long)recipe->batch, trial->ranks, options->target ? "--count" : "--ranks");
  if (options->micro_batch == GD_MICRO_BATCH_FIXED &&
      (options->micro_batch_size < 1 || options->micro_batch_size > recipe->batch / trial->ranks))
    return gd_fail(err, GD_BAD_INPUT, "micro-batch %lld is outside 1..%lld (the batch%s)",
                   (long long)options->micro_batch_size, (long long)recipe->batch / trial->ranks,
                   trial->ranks > 1 ? " of a rank" : "");
  GD_TRY(find_device(p, err));
  if (p->caps.keeps && !options->keeps_nothing)
    p->keep_bytes = options->keep_limit_bytes
                        ? options->keep_limit_bytes
                        : trial->device_limit_bytes / KEEP_PARTS * (KEEP_PARTS - 1);
  return gd_setup_precision(p->model, &p->caps, options->precision, &trial->precision,
                            &trial->precision_substituted, err);
}

/* The candidate of a size, which may be at hand. */
static enum gd_status take_candidate(struct planning *p, int64_t micro_batch,
                                     struct candidate *candidate, struct gd_error *err) {
  enum gd_status status = GD_OK;
  if (p->ready_size == micro_batch && p->ready_blocks == p->trial->kept_blocks) {
    move_candidate(candidate, &p->ready);
    p->trial->plan_s = p->ready_plan_s;
    p->ready_size = 0;
  } else {
    status = make_candidate(p, micro_batch, candidate, err);
  }
  return status;
}

static bool same_caps(const struct gd_caps *a, const struct gd_caps *b) {
  return a->backend == b->backend && a->alignment_bytes == b->alignment_bytes &&
         a->workspace_bytes == b->workspace_bytes && a->column_bytes == b->column_bytes &&
         a->comm_bytes == b->comm_bytes && a->loss_chunk_bytes == b->loss_chunk_bytes &&
         a->compile == b->compile && a->needs_cc == b->needs_cc && a->tf32 == b->tf32 &&
         a->enough_flops == b->enough_flops && a->keeps == b->keeps &&
         memcmp(a->dtype, b->dtype, sizeof a->dtype) == 0 && a->dtypes_alone == b->dtypes_alone;
}

/* What was planned for a device of another kind, or for more of them, is of no use. */
static void forget_others(struct planning *p) {
  const struct gd_trial *trial = p->trial;
  if (!same_caps(&p->sized_caps, &p->caps) || p->sized_precision != trial->precision ||
      p->sized_ranks != trial->ranks) {
    candidate_deinit(&p->ready);
    p->ready = (struct candidate){0};
    p->ready_size = p->n_sizes = 0;
  }
  p->sized_caps = p->caps;
  p->sized_precision = trial->precision;
  p->sized_ranks = trial->ranks;
}

/* Chooses the micro-batch and leaves its candidate; infeasible leaves that of micro-batch 1. */
static enum gd_status choose_plan(struct planning *p, struct candidate *full,
                                  struct gd_error *err) {
  struct gd_trial *trial = p->trial;
  int64_t found;
  GD_TRY(begin(p, err));
  forget_others(p);
  int64_t batch = p->model->recipe.batch / trial->ranks;
  GD_TRY(find_micro_batch(p, &found, err));
  bool fixed = p->options->micro_batch == GD_MICRO_BATCH_FIXED;
  trial->micro_batch = found ? found : fixed ? p->options->micro_batch_size : 1;
  GD_ASSERT(trial->micro_batch > 0);
  if (found && p->keep_bytes > 0 && p->options->method.compile && !trial->no_compiler[0])
    GD_TRY(keep_what_fits(p, err));
  trial->accumulation = (batch + trial->micro_batch - 1) / trial->micro_batch;
  trial->remainder = batch % trial->micro_batch;
  GD_TRY(take_candidate(p, trial->micro_batch, full, err));
  record_plan(trial, p->model, full);
  if (!found) {
    struct gd_error miss = {0};
    trial->status = GD_TRIAL_INFEASIBLE;
    (void)!gd_plan_fits(&full->plan, trial->device_limit_bytes, trial->host_limit_bytes, &miss);
    snprintf(trial->reason, sizeof trial->reason, "micro-batch %lld %s",
             (long long)trial->micro_batch, miss.text);
  }
  return GD_OK;
}

static enum gd_status plan_trial(struct planning *p, struct candidate *full, struct gd_error *err) {
  enum gd_status status = choose_plan(p, full, err);
  candidate_deinit(&p->ready);
  return status;
}

enum gd_status gd_trial_plan(const struct gd_model *model, const struct gd_trial_options *options,
                             struct gd_trial *trial, struct gd_error *err) {
  struct planning p = {.model = model, .options = options, .trial = trial};
  struct candidate full = {0};
  enum gd_status status = plan_trial(&p, &full, err);
  candidate_deinit(&full);
  return status;
}

/* --- predicting ---------------------------------------------------------------------------- */

/* The times of a candidate, and of its smaller last pass where there is one. */
static enum gd_status predict_candidate(struct planning *p, const struct candidate *full,
                                        const struct gd_predictor *predictor,
                                        struct gd_prediction *prediction, struct gd_error *err) {
  struct candidate rest = {0};
  const struct gd_trial *trial = p->trial;
  double plan_s = trial->plan_s;
  enum gd_status status = GD_OK;
  if (trial->remainder)
    status = make_candidate(p, trial->remainder, &rest, err);
  p->trial->plan_s = plan_s;
  if (status == GD_OK)
    status = gd_predict(predictor, &full->plan, trial->remainder ? &rest.plan : NULL,
                        &(struct gd_step_shape){.accumulation = trial->accumulation,
                                                .steps = p->model->recipe.steps,
                                                .of = gd_point_class_of(&p->options->method)},
                        prediction, err);
  candidate_deinit(&rest);
  return status;
}

enum gd_status gd_trial_predict(const struct gd_model *model,
                                const struct gd_trial_options *options,
                                const struct gd_predictor *predictor, struct gd_trial *trial,
                                struct gd_prediction *prediction, struct gd_error *err) {
  struct planning p = {.model = model, .options = options, .trial = trial};
  struct candidate full = {0};
  *prediction = (struct gd_prediction){0};
  enum gd_status status = plan_trial(&p, &full, err);
  if (status == GD_OK)
    status = predict_candidate(&p, &full, predictor, prediction, err);
  candidate_deinit(&full);
  return status;
}

enum gd_status gd_trial_predict_targets(const struct gd_model *model,
                                        const struct gd_trial_options *options,
                                        struct gd_trial_target *targets, int count,
                                        struct gd_error *err) {
  struct planning p = {.model = model};
  enum gd_status status = GD_OK;
  for (int i = 0; i < count && status == GD_OK; i++) {
    struct gd_trial_target *target = &targets[i];
    struct gd_trial_options own = *options;
    struct candidate full = {0};
    struct gd_error error = {0};
    own.target = target->target;
    p.options = &own;
    p.trial = &target->trial;
    target->prediction = (struct gd_prediction){0};
    target->status = choose_plan(&p, &full, &error);
    if (target->status == GD_OK && target->trial.status == GD_TRIAL_PLANNED)
      target->status = predict_candidate(&p, &full, target->predictor, &target->prediction, &error);
    /* The next has nearly the same memory: its plan may be this one. */
    if (target->status == GD_OK)
      set_ready(&p, target->trial.micro_batch, target->trial.kept_blocks, &full);
    candidate_deinit(&full);
    if (target->status != GD_OK && target->status != GD_BAD_INPUT &&
        target->status != GD_UNSUPPORTED)
      status = gd_fail(err, target->status, "%s", error.text);
  }
  candidate_deinit(&p.ready);
  return status;
}

enum gd_status gd_trial_predict_stored(const struct gd_trial *stored,
                                       const struct gd_target *target,
                                       const struct gd_predictor *predictor,
                                       struct gd_prediction *prediction, struct gd_error *err) {
  struct gd_model model;
  struct gd_trial planned;
  struct gd_trial_options options = {.backend = stored->backend,
                                     .target = target,
                                     .threads = stored->threads,
                                     .ranks = stored->ranks,
                                     .nodes = stored->nodes,
                                     .micro_batch = GD_MICRO_BATCH_FIXED,
                                     .micro_batch_size = stored->micro_batch,
                                     .precision = &stored->precision,
                                     .device_limit_bytes = INT64_MAX / 4,
                                     .host_limit_bytes = INT64_MAX / 4,
                                     .keep_limit_bytes = stored->peak_bytes};
  char recipe[GD_HASH_TEXT];
  GD_TRY(gd_method_parse(stored->method, &options.method, err));
  GD_TRY(gd_recipe_of_trial(stored, &model, recipe, err));
  if (!recipe[0] || (stored->recipe[0] && strcmp(stored->recipe, recipe) != 0))
    return gd_fail(err, GD_UNSUPPORTED, "the stored trial of %s is not one of the preset",
                   stored->model);
  return gd_trial_predict(&model, &options, predictor, &planned, prediction, err);
}

enum gd_status gd_trial_explain(const struct gd_model *model,
                                const struct gd_trial_options *options,
                                const struct gd_trial *trial, struct gd_strbuf *out,
                                struct gd_error *err) {
  struct gd_trial scratch;
  struct planning p = {.model = model, .options = options, .trial = &scratch};
  struct candidate full = {0};
  enum gd_status status = begin(&p, err);
  scratch.kept_blocks = trial->kept_blocks;
  if (status == GD_OK)
    status = make_candidate(&p, trial->micro_batch, &full, err);
  if (status == GD_OK) {
    const struct gd_plan *plan = &full.plan;
    gd_strbuf_printf(
        out,
        "-- %u tensors, %u ops; %u buffers of activations, %u outputs in place; "
        "packed %lld bytes, at least %lld alive at once (op %u); %lld blocks keep what "
        "products read\n",
        full.graph.n_tensors, full.graph.n_ops, plan->n_buffers, plan->n_inplace,
        (long long)plan->bytes[GD_CATEGORY_ACTIVATIONS], (long long)plan->live_bytes, plan->live_at,
        (long long)trial->kept_blocks);
    gd_plan_print(plan, out);
    if (out->failed)
      status = gd_fail(err, GD_ENVIRONMENT, "out of memory while printing the plan");
  }
  candidate_deinit(&full);
  return status;
}

/* --- measuring ----------------------------------------------------------------------------- */

struct measuring {
  struct planning planning;
  struct gd_run run;
  double limit_s;     /* sampling time for each program */
  double expected_s;  /* of everything, from the warm-up */
  int64_t started_ns; /* for progress */
};

static void report(const struct measuring *m, const char *what) {
  const struct gd_trial_options *options = m->planning.options;
  if (!options->progress)
    return;
  double spent = 1e-9 * (double)(gd_clock_ns() - m->started_ns);
  double total = m->expected_s > spent ? m->expected_s : spent;
  options->progress(options->progress_user, what, total > 0 ? spent / total : 0,
                    m->expected_s > 0 ? total - spent : -1);
}

/* What a training step is made of, each timed apart. */
enum piece { PIECE_PASS, PIECE_LAST_PASS, PIECE_UPDATE };

static bool has_last_pass(const struct gd_trial *trial) {
  return trial->remainder || trial->reduces;
}

static enum gd_run_part last_part(const struct gd_trial *trial) {
  return trial->remainder ? GD_RUN_REMAINDER : GD_RUN_FULL;
}

static enum gd_status run_piece(struct measuring *m, enum piece piece, struct gd_error *err) {
  switch (piece) {
  case PIECE_PASS: return gd_run_pass(&m->run, GD_RUN_FULL, err);
  case PIECE_LAST_PASS: return gd_run_last_pass(&m->run, last_part(m->planning.trial), err);
  case PIECE_UPDATE: /* a learning rate of zero costs the same and keeps the loss where it was */
    return gd_run_update(&m->run, 0, err);
  }
  return GD_OK;
}

/* The slowest rank's value; all ranks leave with the same. They also wait for each other here. */
static enum gd_status slowest(struct measuring *m, int64_t *ns, struct gd_error *err) {
  struct gd_comm *comm = m->planning.options->comm;
  int size = comm ? gd_comm_size(comm) : 1;
  if (size == 1)
    return GD_OK;
  int64_t *all = gd_mem_alloc((size_t)size, sizeof *all);
  if (!all)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while comparing ranks");
  all[gd_comm_rank(comm)] = *ns;
  enum gd_status status = gd_comm_all_gather(comm, all, sizeof *all, err);
  for (int i = 0; i < size && status == GD_OK; i++)
    *ns = all[i] > *ns ? all[i] : *ns;
  gd_mem_free(all);
  return status;
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

/* The loss of the whole batch: each rank has its share of the sum. */
static enum gd_status take_loss(struct measuring *m, double *loss, struct gd_error *err) {
  struct gd_comm *comm = m->planning.options->comm;
  GD_TRY(gd_run_take_loss(&m->run, loss, err));
  return comm ? gd_comm_sum_doubles(comm, loss, 1, err) : GD_OK;
}

/* The inputs of a part. Both parts have theirs in the same memory, at places of their own: one's
   pixels may lie where the other's labels were. */
static enum gd_status put_batch(struct measuring *m, enum gd_run_part part, struct gd_error *err) {
  const struct gd_model *model = m->planning.model;
  struct gd_comm *comm = m->planning.options->comm;
  uint64_t seed = m->planning.options->seed + (comm ? (uint64_t)gd_comm_rank(comm) : 0);
  return gd_run_random_batch(&m->run, part, model->family->classes(model), seed, err);
}

/* A pass and its update. Loss and norm are those of the first micro-batch, over all ranks, as if it
   were the whole step. Every rank has the same. */
static enum gd_status first_step(struct measuring *m, int64_t *pass_ns, int64_t *update_ns,
                                 struct gd_error *err) {
  struct gd_trial *trial = m->planning.trial;
  double share = gd_run_step_share(&m->run, GD_RUN_FULL);
  int64_t before_ns = gd_clock_ns();
  GD_TRY(gd_run_last_pass(&m->run, GD_RUN_FULL, err)); /* so that the update sees whole gradients */
  *pass_ns = gd_clock_ns() - before_ns;
  GD_TRY(take_loss(m, &trial->loss, err));
  GD_TRY(time_once(m, PIECE_UPDATE, update_ns, err));
  GD_TRY(gd_run_norm(&m->run, &trial->norm, err));
  trial->loss /= share;
  trial->norm /= share;
  return GD_OK;
}

/* Warm-up with the check: pages come into being, libraries settle; none of it is timed. */
static enum gd_status warm_up(struct measuring *m, int64_t *pass_ns, int64_t *update_ns,
                              struct gd_error *err) {
  struct gd_trial *trial = m->planning.trial;
  int64_t start = gd_clock_ns();
  report(m, "warm-up");
  GD_TRY(gd_run_init(&m->run, m->planning.options->seed, err));
  GD_TRY(put_batch(m, GD_RUN_FULL, err));
  GD_TRY(first_step(m, pass_ns, update_ns, err));
  for (int skipped = 0; skipped < GD_RUN_MOST_SKIPS && trial->precision == GD_PRECISION_FP16 &&
                        !isfinite(trial->norm);
       skipped++) /* with half the loss scale */
    GD_TRY(first_step(m, pass_ns, update_ns, err));
  if (trial->remainder) {
    int64_t unused_ns;
    GD_TRY(put_batch(m, GD_RUN_REMAINDER, err));
    GD_TRY(time_once(m, PIECE_LAST_PASS, &unused_ns, err));
    GD_TRY(put_batch(m, GD_RUN_FULL, err));
  }
  trial->warmup_s = 1e-9 * (double)(gd_clock_ns() - start);
  return GD_OK;
}

static double limited(double one_s, double limit_s) {
  return 3 * one_s > limit_s ? 3 * one_s : limit_s;
}

/* Passes x accumulation + update, as in Sec. 3.2; a smaller last pass counts as itself. */
static void extrapolate(struct gd_trial *trial, const struct gd_recipe *recipe) {
  double rest = has_last_pass(trial) ? 1 : 0;
  double full = (double)trial->accumulation - rest;
  trial->step_s =
      full * trial->pass.median_s + rest * trial->last_pass.median_s + trial->update.median_s;
  /* Each program's median is one draw that multiplies its count; the three are independent. */
  double a = full * trial->pass.half_width_s, b = rest * trial->last_pass.half_width_s;
  double c = trial->update.half_width_s;
  trial->step_half_width_s = sqrt(a * a + b * b + c * c);
  double days_per_s = (double)recipe->steps / 86400;
  trial->days = trial->step_s * days_per_s;
  /* Held back for a share of the time, it would have taken that much less; likewise where others
     had a share of the cores that it computes on. */
  double held = gd_trial_held_share(trial);
  if (strcmp(trial->backend, "cuda") != 0)
    held = fmax(held, fmin(trial->busy_share, GD_LOAD_GROSS));
  trial->days_low = fmax(0, trial->step_s - trial->step_half_width_s) *
                    (held > GD_LOAD_QUIET ? 1 - held : 1) * days_per_s;
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
             "the count "
             "is wrong",
             rate, limit, gd_precision_name(trial->precision));
  }
}

static enum gd_dtype product_dtype(enum gd_precision precision) {
  return precision == GD_PRECISION_FP32   ? GD_DTYPE_F32
         : precision == GD_PRECISION_BF16 ? GD_DTYPE_BF16
                                          : GD_DTYPE_F16;
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
        (struct gd_profile_row){.kind = kind, .program = program, .beside = event->beside};
  trial->profile[i].count++;
  trial->profile[i].seconds += 1e-9 * (double)(event->end_ns - event->begin_ns);
  gd_op_cost(graph, event->op, &cost);
  trial->profile[i].bytes += cost.read_bytes + cost.write_bytes;
  trial->profile[i].flops += op_flops(graph, event->op);
}

/* The last pass and update that were sampled. */
static void take_profile(struct measuring *m, struct gd_backend *backend) {
  static const enum gd_program programs[] = {GD_PROGRAM_PASS, GD_PROGRAM_UPDATE};
  struct gd_trial *trial = m->planning.trial;
  const struct gd_graph *graph = m->run.plan[GD_RUN_FULL]->graph;
  for (size_t p = 0; p < sizeof programs / sizeof *programs; p++) {
    uint32_t count;
    const struct gd_event *events =
        backend->ops->events(backend, m->run.bound[GD_RUN_FULL], programs[p], &count);
    for (uint32_t i = 0; i < count; i++)
      add_event(trial, graph, programs[p], &events[i]);
  }
  qsort(trial->profile, trial->n_profile, sizeof *trial->profile, compare_rows);
}

/* The other ranks on this machine's CPUs are not other programs. Ranks on further machines count as
   if they were here: then the share is at worst too small. */
static enum gd_status own_ranks(const struct measuring *m, const struct gd_load *before,
                                struct gd_load *after, struct gd_error *err) {
  struct gd_comm *comm = m->planning.options->comm;
  double own_s = 1e-9 * (double)(after->own_ns - before->own_ns);
  if (!comm)
    return GD_OK;
  GD_TRY(gd_comm_sum_doubles(comm, &own_s, 1, err));
  after->own_ns = before->own_ns + (int64_t)(1e9 * own_s);
  return GD_OK;
}

static enum gd_status sample_pieces(struct measuring *m, struct gd_error *err) {
  struct gd_trial *trial = m->planning.trial;
  GD_TRY(sample(m, "passes", PIECE_PASS, &trial->pass, err));
  if (trial->remainder)
    GD_TRY(put_batch(m, GD_RUN_REMAINDER, err));
  if (has_last_pass(trial))
    GD_TRY(sample(m, "last pass", PIECE_LAST_PASS, &trial->last_pass, err));
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
  struct gd_trial *trial = m->planning.trial;
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
  GD_TRY(gd_clocks_tell(&clocks, m->planning.options->comm, trial, err));
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

/* Of all devices together; the higher one of this and of what was found before. */
static enum gd_status find_peak(struct measuring *m, struct gd_backend *backend,
                                struct gd_error *err) {
  struct gd_trial *trial = m->planning.trial;
  enum gd_dtype dtype = product_dtype(trial->precision);
  bool tf32 = m->planning.caps.tf32 && m->planning.options->method.tf32;
  struct gd_peak_share own = {.peak_flops = backend->ops->peak_flops(backend, dtype, tf32),
                              .threads = m->planning.threads};
  double peak, limit;
  if (tf32 && dtype == GD_DTYPE_F32)
    own.limit_flops = backend->ops->peak_flops(backend, GD_DTYPE_F16, false);
  memcpy(own.uuid, m->planning.uuid, sizeof own.uuid);
  GD_TRY(gd_agree_peak(m->planning.options->comm, &own, &peak, &limit, &trial->devices, err));
  trial->peak_flops = fmax(trial->peak_flops, peak);
  trial->limit_flops = fmax(trial->limit_flops, limit);
  return GD_OK;
}

static enum gd_status measure(struct measuring *m, struct gd_backend *backend,
                              struct gd_error *err) {
  struct gd_trial *trial = m->planning.trial;
  const struct gd_model *model = m->planning.model;
  int64_t pass_ns, update_ns;
  GD_TRY(find_peak(m, backend, err));
  GD_TRY(warm_up(m, &pass_ns, &update_ns, err));
  gd_trial_judge(trial, model->family->classes(model)); /* nonsense is not worth timing */
  if (trial->status != GD_TRIAL_OK)
    return GD_OK;
  m->expected_s = 1e-9 * (double)(gd_clock_ns() - m->started_ns) +
                  limited(1e-9 * (double)pass_ns, m->limit_s / 3) +
                  limited(1e-9 * (double)update_ns, m->limit_s / 10);
  GD_TRY(sample_all(m, backend, err));
  if (m->planning.options->profile)
    take_profile(m, backend);
  backend->ops->usage(backend, &trial->resident_bytes, &trial->runtime_bytes);
  /* Measured at both ends: another program in the way of one must not lower the peak. */
  GD_TRY(find_peak(m, backend, err));
  extrapolate(trial, &model->recipe);
  gd_trial_judge(trial, model->family->classes(model));
  return GD_OK;
}

static enum gd_status agree_plan(const struct planning *p, const struct candidate *full,
                                 const struct candidate *remainder, struct gd_error *err) {
  const struct gd_trial_options *options = p->options;
  return gd_agree_plan(
      options->comm,
      &(struct gd_offer){.trial = p->trial,
                         .recipe = &p->model->recipe,
                         .sample_seconds = options->sample_seconds,
                         .seed = options->seed,
                         .profile = options->profile,
                         .full = &full->plan,
                         .remainder = p->trial->remainder ? &remainder->plan : NULL},
      err);
}

static enum gd_status measure_as_planned(const struct gd_model *model,
                                         const struct gd_trial_options *options,
                                         struct gd_trial *trial, struct gd_error *err) {
  struct measuring m = {.planning = {.model = model, .options = options, .trial = trial},
                        .limit_s = options->sample_seconds > 0 ? options->sample_seconds : 5,
                        .started_ns = gd_clock_ns()};
  struct candidate full = {0}, remainder = {0};
  struct gd_backend *backend = NULL;
  enum gd_status status = plan_trial(&m.planning, &full, err);
  if (status == GD_OK && trial->status != GD_TRIAL_INFEASIBLE && trial->remainder)
    status = make_candidate(&m.planning, trial->remainder, &remainder, err);
  status = settle(&m.planning, status, err);
  if (status == GD_OK)
    status = agree_plan(&m.planning, &full, &remainder, err);
  if (status != GD_OK || trial->status == GD_TRIAL_INFEASIBLE)
    goto done;
  status = gd_backend_open(options->backend,
                           &(struct gd_backend_options){.threads = m.planning.threads,
                                                        .comm = options->comm,
                                                        .trace = options->profile},
                           &backend, err);
  if (status != GD_OK)
    goto done;
  status = gd_run_open(&m.run, backend, &full.plan, trial->remainder ? &remainder.plan : NULL, err);
  m.run.batch = model->recipe.batch;
  if (status == GD_OK)
    status = measure(&m, backend, err);
done:
  gd_run_close(&m.run);
  gd_backend_close(backend);
  candidate_deinit(&remainder);
  candidate_deinit(&full);
  return status;
}

/* Where others use the device too there may be less memory than it has: then nothing is kept, which
   is slower, and the result says so for as long as it is stored. */
enum gd_status gd_trial_measure(const struct gd_model *model,
                                const struct gd_trial_options *options, struct gd_trial *trial,
                                struct gd_error *err) {
  struct gd_error why = {0};
  enum gd_status status = measure_as_planned(model, options, trial, &why);
  if (status != GD_NOMEM_DEVICE || trial->kept_blocks == 0 || trial->ranks > 1) {
    if (err && why.status != GD_OK)
      *err = why;
    return status;
  }
  struct gd_trial_options less = *options;
  less.keeps_nothing = true;
  status = measure_as_planned(model, &less, trial, err);
  if (status == GD_OK && trial->status == GD_TRIAL_OK)
    snprintf(trial->reason, sizeof trial->reason, "measured with nothing kept: %.255s", why.text);
  return status;
}
