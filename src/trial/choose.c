/*
 * Choosing a plan; see choose.h. The search among sizes is choose_sizes.c's.
 */
#include "trial/choose_int.h"

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

enum { SPARE_PARTS = 32 }; /* 1/32 of the memory stays free: others may use the device too */

void gd_candidate_deinit(struct gd_candidate *candidate) {
  gd_plan_deinit(&candidate->plan);
  gd_graph_deinit(&candidate->graph);
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
static void record_plan(struct gd_planner *p, struct gd_trial *trial,
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
  trial->gathered_bytes = plan->gathered_bytes;
  trial->reduces = plan->has_last;
  if (p->recorded.size != trial->micro_batch || p->recorded.saved != trial->saved_blocks) {
    p->recorded.size = trial->micro_batch;
    p->recorded.saved = trial->saved_blocks;
    p->recorded.plan_hash = gd_plan_hash(plan);
    p->recorded.flops = executed_flops(candidate);
  }
  trial->plan_hash = p->recorded.plan_hash;
  memcpy(trial->bytes, plan->bytes, sizeof trial->bytes);
  memcpy(trial->host_parts, plan->host_parts, sizeof trial->host_parts);
  trial->model_flops_per_step = p->identity.flops * (double)recipe->batch;
  trial->exec_flops_per_step = p->recorded.flops / sequences * (double)recipe->batch;
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

static void drop_plans(struct gd_planner *p) {
  gd_candidate_deinit(&p->ready);
  p->ready = (struct gd_candidate){0};
  p->ready_size = 0;
  for (int i = 0; i < MOST_SPARE; i++) {
    gd_candidate_deinit(&p->spares[i].candidate);
    p->spares[i] = (struct spare){0};
  }
}

/* What was planned for a device of another kind, or for more of them, is of no use. */
static void forget_others(struct gd_planner *p) {
  const struct gd_trial *trial = p->trial;
  if (!same_caps(&p->tried_caps, &p->place.caps) || p->tried_precision != trial->precision ||
      p->tried_ranks != trial->ranks) {
    drop_plans(p);
    p->n_tried = 0;
    p->recorded.size = 0;
    p->state_bytes = 0;
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
    return gd_planner_make(p, trial->micro_batch, trial->saved_blocks, candidate, err);
  gd_candidate_move(candidate, &p->ready);
  trial->plan_s = p->ready_plan_s;
  p->ready_size = 0;
  return GD_OK;
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
  GD_TRY(gd_planner_make(p, trial->micro_batch, trial->saved_blocks, full, err));
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
  GD_TRY(gd_planner_search_sizes(p, &found, err));
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

int64_t gd_planner_smaller_size(const struct gd_trial_options *options,
                                const struct gd_trial *trial, int halvings) {
  const int64_t parts = (int64_t)1 << halvings;
  bool may = options->micro_batch == GD_MICRO_BATCH_AUTO && !options->comm &&
             options->method.sharding <= GD_SHARDING_ZERO1 && !options->method.offload;
  return may && trial->micro_batch % parts == 0 ? trial->micro_batch / parts : 0;
}

enum gd_status gd_planner_choose_size(struct gd_planner *p, const struct gd_trial_options *options,
                                      int64_t micro_batch, struct gd_trial *trial,
                                      struct gd_candidate *full, struct gd_error *err) {
  p->resized = *options;
  p->resized.micro_batch = GD_MICRO_BATCH_FIXED;
  p->resized.micro_batch_size = micro_batch;
  return gd_planner_choose(p, &p->resized, trial, full, err);
}

void gd_planner_take(struct gd_planner *p, const struct gd_trial_options *options,
                     struct gd_trial *trial) {
  p->options = options;
  p->trial = trial;
}

enum gd_status gd_planner_remainder(struct gd_planner *p, struct gd_candidate *remainder,
                                    struct gd_error *err) {
  double plan_s = p->trial->plan_s;
  enum gd_status status =
      gd_planner_make(p, p->trial->remainder, p->trial->saved_blocks, remainder, err);
  p->trial->plan_s = plan_s;
  return status;
}

enum gd_status gd_planner_evaluation(struct gd_planner *p, struct gd_candidate *evaluation,
                                     struct gd_error *err) {
  struct gd_setup setup = gd_planner_setup(p, p->trial->micro_batch, p->trial->saved_blocks);
  GD_TRY(gd_pipeline_evaluation(&setup, &evaluation->graph, err));
  return gd_plan_make(&evaluation->graph, &p->place.caps, &evaluation->plan, err);
}

void gd_planner_return(struct gd_planner *p, struct gd_candidate *full) {
  gd_planner_set_ready(p, p->trial->micro_batch, p->trial->saved_blocks, false, full);
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
    drop_plans(p);
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
    struct gd_setup setup = gd_planner_setup(&p, trial->micro_batch, trial->saved_blocks);
    gd_strbuf_printf(out, "-- %s, %s%s, %s, micro-batch %lld\n", trial->model,
                     strcmp(pass, "passes") == 0 ? "" : "pass ", pass, trial->method,
                     (long long)trial->micro_batch);
    return gd_pipeline_explain(&setup, pass, out, err);
  }
  if (status == GD_OK)
    status = gd_planner_make(&p, trial->micro_batch, trial->saved_blocks, &full, err);
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
