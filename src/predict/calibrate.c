/*
 * GEMMs, small models, and the check on others; see calibrate.h.
 *
 * An op's time is the least of a few runs, so that other programs disturb it little; ops of the
 * same work in one graph are averaged, since each finds other data in the caches.
 */
#define _POSIX_C_SOURCE 200809L
#include "predict/calibrate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "base/compare.h"
#include "base/cpus.h"
#include "base/rng.h"
#include "codegen/codegen.h"
#include "comm/heartbeat.h"
#include "exec/run.h"
#include "gd_version.h"
#include "pass/pass.h"

enum { RUNS = 4, MOST_RUNS = 12, MOST_ROUNDS = 4 };

/* All that was timed of one piece of work. */
struct gathered {
  struct gd_work work;
  double sum_s; /* of this round */
  int count, round;
  double before_s; /* least mean of the rounds before */
};

struct calibration {
  const struct gd_calibrate_options *options;
  struct gd_rates *rates;
  struct gd_backend *backend;
  struct gd_caps caps;
  struct gd_device_info info;
  bool no_compiler;
  bool gpu;
  struct gathered *list;
  uint32_t count, capacity;
  double *best_s; /* by place in a program */
  uint32_t best_capacity;
  int round; /* how often everything was measured before */
  int64_t start_ns;
  double limit_s;
};

static double spent(const struct calibration *c) {
  return 1e-9 * (double)(gd_clock_ns() - c->start_ns);
}

/* Whether there are other ranks, which wait while rank 0 measures what one device does. */
static bool has_others(const struct calibration *c) {
  return c->options->comm && gd_comm_size(c->options->comm) > 1;
}

static void report(const struct calibration *c, const char *what) {
  if (!c->options->progress)
    return;
  double done = fmin(1, spent(c) / c->limit_s);
  c->options->progress(c->options->progress_user, what, done, fmax(0, c->limit_s - spent(c)));
}

static enum gd_status no_memory(struct gd_error *err) {
  return gd_nomem(err, "while calibrating");
}

/* --- gathering ----------------------------------------------------------------------------- */

static double mean_s(const struct gathered *g) {
  return fmin(g->before_s, g->sum_s / g->count);
}

static void add_time(struct gathered *g, int round, double seconds) {
  if (g->round != round) {
    g->before_s = mean_s(g);
    g->sum_s = 0;
    g->count = 0;
    g->round = round;
  }
  g->sum_s += seconds;
  g->count++;
}

static enum gd_status gather(struct calibration *c, const struct gd_work *work, double seconds,
                             struct gd_error *err) {
  if (!(seconds > 0) || gd_op_info(work->kind)->work == GD_WORK_NONE)
    return GD_OK;
  for (uint32_t i = 0; i < c->count; i++)
    if (gd_work_same(&c->list[i].work, work)) {
      add_time(&c->list[i], c->round, seconds);
      return GD_OK;
    }
  if (!gd_vec_reserve((void **)&c->list, &c->capacity, c->count + 1, sizeof *c->list))
    return no_memory(err);
  c->list[c->count++] = (struct gathered){*work, seconds, 1, c->round, HUGE_VAL};
  return GD_OK;
}

/*
 * The ops of a program with their least times over the runs. An asynchronous op shares
 * the machine with it, which is the simulation's business: alone, it is timed alone.
 */
static enum gd_status gather_program(struct calibration *c, const struct gd_plan *plan,
                                     enum gd_program program, bool alone, struct gd_error *err) {
  const struct gd_graph *graph = plan->graph;
  double share = graph->loss == GD_NONE ? 1 : gd_run_counted_share(graph);
  for (uint32_t i = 0; i < plan->n_order[program]; i++) {
    struct gd_work work;
    gd_work_of(graph, plan->order[program][i], share, &work);
    if (alone || !gd_op_is_async(work.kind))
      GD_TRY(gather(c, &work, c->best_s[i], err));
  }
  return GD_OK;
}

/* The sum of the least times so far. */
static double keep_best(struct calibration *c, struct gd_bound *bound, enum gd_program program,
                        bool first) {
  uint32_t count;
  double sum = 0;
  const struct gd_event *events = c->backend->ops->events(c->backend, bound, program, &count);
  for (uint32_t i = 0; i < count; i++) {
    double seconds = 1e-9 * (double)(events[i].end_ns - events[i].begin_ns);
    if (first || seconds < c->best_s[i])
      c->best_s[i] = seconds;
    sum += c->best_s[i];
  }
  return sum;
}

/*
 * Runs a program a few times and gathers its ops. Where other programs get in the way the least
 * times go on falling: then it is run more often, until two runs in a row have changed nothing.
 */
static enum gd_status time_program(struct calibration *c, const struct gd_plan *plan,
                                   struct gd_bound *bound, enum gd_program program, bool alone,
                                   struct gd_error *err) {
  const struct gd_backend_ops *ops = c->backend->ops;
  int64_t start_ns = gd_clock_ns();
  if (!gd_vec_reserve((void **)&c->best_s, &c->best_capacity, plan->n_order[program] + 1,
                      sizeof *c->best_s))
    return no_memory(err);
  double least = HUGE_VAL;
  for (int i = 0, settled = 0; i < MOST_RUNS && settled < 2; i++) {
    double late_s = 1e-9 * (double)(gd_clock_ns() - start_ns);
    if (i >= 3 && late_s > (i < RUNS ? 1 : 2))
      break;
    GD_TRY(ops->run(c->backend, bound, program, err));
    GD_TRY(ops->sync(c->backend, err));
    double sum = keep_best(c, bound, program, i == 0);
    settled = sum > 0.98 * least ? settled + 1 : 0;
    least = sum;
  }
  return gather_program(c, plan, program, alone, err);
}

/* --- GEMMs --------------------------------------------------------------------------------- */

/* A GEMM of its own: [batch] M x N over K, stored as the bits of gd_work's variant say. */
static gd_tensor_id build_gemm(struct gd_graph *graph, const double *sizes, uint64_t variant,
                               enum gd_dtype dtype, bool tf32) {
  int64_t b = (int64_t)sizes[0], m = (int64_t)sizes[1], n = (int64_t)sizes[2],
          k = (int64_t)sizes[3];
  bool trans_a = variant & 1u, trans_b = variant & 2u;
  int64_t left[3] = {b, trans_a ? k : m, trans_a ? m : k};
  int64_t right[3] = {b, trans_b ? n : k, trans_b ? k : n};
  uint32_t rank = b > 1 ? 3 : 2, skip = 3 - rank;
  gd_graph_init(graph);
  gd_tensor_id x = gd_graph_leaf(graph, GD_ROLE_INPUT, "x", dtype, rank, left + skip);
  gd_tensor_id y = gd_graph_leaf(graph, GD_ROLE_INPUT, "y", dtype, rank, right + skip);
  return gd_matmul(
      graph, x, y, GD_NONE,
      (struct gd_attr_matmul){.trans_a = trans_a,
                              .trans_b = trans_b,
                              .alpha = 1,
                              .out_dtype = trans_a && b == 1 ? GD_DTYPE_F32 : GD_DTYPE_COUNT,
                              .tf32 = tf32});
}

/* Data as it occurs: GEMMs of zeros draw less power, and a GPU runs them faster. */
static enum gd_status fill_leaves(struct calibration *c, const struct gd_plan *plan,
                                  struct gd_error *err) {
  enum { CHUNK = 1 << 18 };
  enum gd_status status = GD_OK;
  float *normal = gd_mem_alloc(CHUNK, sizeof *normal);
  uint16_t *bits16 = gd_mem_alloc(CHUNK, sizeof *bits16);
  if (!normal || !bits16)
    status = no_memory(err);
  if (status == GD_OK)
    gd_rng_normal(1, 1, 1, 0, normal, CHUNK);
  for (gd_tensor_id id = 0; id < plan->graph->n_tensors && status == GD_OK; id++) {
    const struct gd_tensor *t = &plan->graph->tensors[id];
    int64_t bytes = gd_tensor_bytes(plan->graph, id), width = gd_dtype_bytes(t->dtype);
    if (t->role != GD_ROLE_INPUT)
      continue;
    for (int i = 0; i < CHUNK && width == 2; i++)
      bits16[i] = t->dtype == GD_DTYPE_BF16 ? gd_f32_to_bf16(normal[i]) : gd_f32_to_f16(normal[i]);
    for (int64_t at = 0; at < bytes && status == GD_OK; at += CHUNK * width) {
      int64_t part = bytes - at < CHUNK * width ? bytes - at : CHUNK * width;
      status = c->backend->ops->write(c->backend, t->space, plan->offset_bytes[id] + at,
                                      width == 2 ? (void *)bits16 : (void *)normal, part, err);
    }
  }
  gd_mem_free(bits16);
  gd_mem_free(normal);
  return status;
}

typedef enum gd_status (*timing)(struct calibration *c, const struct gd_plan *plan,
                                 struct gd_bound *bound, struct gd_error *err);

static enum gd_status time_alone(struct calibration *c, const struct gd_plan *plan,
                                 struct gd_bound *bound, struct gd_error *err) {
  return time_program(c, plan, bound, GD_PROGRAM_MICRO_STEP, true, err);
}

/* Plans, fills and times a graph that was built; takes it over. */
static enum gd_status time_graph(struct calibration *c, struct gd_graph *graph, timing time_it,
                                 struct gd_error *err) {
  struct gd_plan plan = {0};
  struct gd_bound *bound = NULL;
  const struct gd_backend_ops *ops = c->backend->ops;
  enum gd_status status = gd_graph_check(graph, err);
  if (status == GD_OK)
    status = gd_plan_make(graph, &c->caps, &plan, err);
  if (status == GD_OK && plan.device_bytes < c->info.memory_bytes / 2) {
    status = ops->reserve(c->backend, plan.device_bytes, plan.host_bytes, err);
    if (status == GD_OK)
      status = ops->bind(c->backend, &plan, &bound, err);
    if (status == GD_OK)
      status = fill_leaves(c, &plan, err);
    if (status == GD_OK)
      status = time_it(c, &plan, bound, err);
    if (bound)
      ops->unbind(c->backend, bound);
  }
  gd_plan_deinit(&plan);
  gd_graph_deinit(graph);
  return status;
}

static enum gd_status time_gemm(struct calibration *c, const double *sizes, uint64_t variant,
                                enum gd_dtype dtype, bool tf32, struct gd_error *err) {
  struct gd_graph graph = {0};
  build_gemm(&graph, sizes, variant, dtype, tf32);
  return time_graph(c, &graph, time_alone, err);
}

/* Each shape as a layer's forward GEMM, the gradient of its input, that of its weight. */
static enum gd_status time_shape(struct calibration *c, const double *sizes, struct gd_error *err) {
  static const uint64_t variants[] = {2, 0, 1};
  static const enum gd_dtype dtypes[] = {GD_DTYPE_BF16, GD_DTYPE_F32};
  double flops = 2 * sizes[0] * sizes[1] * sizes[2] * sizes[3];
  for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
    bool bits16 = dtypes[d] != GD_DTYPE_F32;
    double peak = c->rates->flops[bits16 ? GD_PEAK_BF16 : GD_PEAK_FP32];
    if (!c->caps.dtype[dtypes[d]] || flops > 0.03 * peak)
      continue;
    for (size_t v = 0; v < sizeof variants / sizeof *variants; v++) {
      GD_TRY(time_gemm(c, sizes, variants[v], dtypes[d], false, err));
      if (!bits16 && c->caps.tf32)
        GD_TRY(time_gemm(c, sizes, variants[v], dtypes[d], true, err));
    }
  }
  return GD_OK;
}

static enum gd_status time_gemms(struct calibration *c, double until, struct gd_error *err) {
  static const double ns[] = {128, 512, 2048, 8192}, ks[] = {128, 512, 2048};
  static const double ms[] = {256, 2048, 16384, 65536};
  double least = 2e-5 * c->rates->flops[GD_PEAK_FP32]; /* launches cost more than that */
  /* In an order that covers the grid however early the time is up. */
  for (size_t i = 0; i < 48; i++) {
    size_t at = i * 19 % 48;
    const double sizes[GD_WORK_SIZES] = {1, ms[at % 4], ns[at / 4 % 4], ks[at / 16]};
    if (2 * sizes[1] * sizes[2] * sizes[3] < least || spent(c) > until * c->limit_s)
      continue;
    report(c, "GEMMs");
    GD_TRY(time_shape(c, sizes, err));
  }
  /* Scores and their use in naive attention, of even and of odd length and of wide heads, and
     logits of an odd vocabulary: rows that loads cannot take whole. */
  const double heads = c->gpu ? 192 : 4;
  const double others[][GD_WORK_SIZES] = {{heads, 1024, 1024, 64},  {heads, 1024, 64, 1024},
                                          {heads, 2049, 2049, 64},  {heads, 2049, 64, 2049},
                                          {heads, 2049, 2049, 256}, {heads, 2049, 256, 2049},
                                          {1, 16384, 50265, 1024}};
  for (size_t i = 0; i < sizeof others / sizeof *others; i++)
    if (spent(c) < (until + 0.05) * c->limit_s)
      GD_TRY(time_shape(c, others[i], err));
  return GD_OK;
}

/* --- links --------------------------------------------------------------------------------- */

/* Copies between the two memories, with nothing else running. */
static enum gd_status time_transfers(struct calibration *c, struct gd_error *err) {
  static const int64_t elements[] = {1 << 14, 1 << 18, 1 << 21, 1 << 23};
  report(c, "copies");
  for (size_t i = 0; i < sizeof elements / sizeof *elements; i++) {
    struct gd_graph graph = {0};
    gd_graph_init(&graph);
    gd_tensor_id far = gd_graph_leaf(&graph, GD_ROLE_INPUT, "far", GD_DTYPE_F32, 1, &elements[i]);
    gd_tensor_id near = gd_graph_leaf(&graph, GD_ROLE_INPUT, "near", GD_DTYPE_F32, 1, &elements[i]);
    if (graph.error.status == GD_OK)
      graph.tensors[far].space = GD_SPACE_HOST;
    gd_transfer(&graph, far, GD_SPACE_DEVICE);
    gd_transfer(&graph, near, GD_SPACE_HOST);
    const gd_tensor_id into[2] = {far, near};
    gd_graph_op(&graph, GD_OP_transfer_into, &(union gd_attr){.none = {0}}, 2, into);
    GD_TRY(time_graph(c, &graph, time_alone, err));
  }
  return GD_OK;
}

/* The time of an op is that of the rank on which it took longest. */
static enum gd_status take_slowest(struct calibration *c, uint32_t count, struct gd_error *err) {
  struct gd_comm *comm = c->options->comm;
  uint32_t ranks = (uint32_t)gd_comm_size(comm), rank = (uint32_t)gd_comm_rank(comm);
  double *all = gd_mem_alloc((size_t)ranks * count, sizeof *all);
  if (!all)
    return no_memory(err);
  memcpy(all + (size_t)rank * count, c->best_s, count * sizeof *all);
  enum gd_status status = gd_comm_all_gather(comm, all, (int64_t)(count * sizeof *all), err);
  for (uint32_t i = 0; status == GD_OK && i < ranks * count; i++)
    c->best_s[i % count] = fmax(c->best_s[i % count], all[i]);
  gd_mem_free(all);
  return status;
}

/* As time_program, on all ranks together: as often on each, started at once. */
static enum gd_status time_together(struct calibration *c, const struct gd_plan *plan,
                                    struct gd_bound *bound, struct gd_error *err) {
  const struct gd_backend_ops *ops = c->backend->ops;
  uint32_t count = plan->n_order[GD_PROGRAM_MICRO_STEP];
  if (!gd_vec_reserve((void **)&c->best_s, &c->best_capacity, count + 1, sizeof *c->best_s))
    return no_memory(err);
  for (int i = 0; i <= MOST_RUNS; i++) { /* the first one connects ranks, and does not count */
    GD_TRY(gd_comm_barrier(c->options->comm, err));
    GD_TRY(ops->run(c->backend, bound, GD_PROGRAM_MICRO_STEP, err));
    GD_TRY(ops->sync(c->backend, err));
    keep_best(c, bound, GD_PROGRAM_MICRO_STEP, i <= 1);
  }
  GD_TRY(take_slowest(c, count, err));
  return gather_program(c, plan, GD_PROGRAM_MICRO_STEP, true, err);
}

/* Every collective over shards of so many elements. The backend runs them as it does in a training
   step: over MPI on CPUs, by NCCL or through host memory on GPUs. */
static void build_collectives(struct gd_graph *graph, int rank, int ranks, int64_t shard) {
  const union gd_attr attr = {.ranks = {.rank = rank, .ranks = ranks}};
  int64_t whole = shard * ranks;
  gd_graph_init(graph);
  graph->rank = rank;
  graph->ranks = ranks;
  for (int k = 0; k < GD_OP_COUNT; k++) {
    const struct gd_op_info *info = gd_op_info((enum gd_op_kind)k);
    if (info->exchange == GD_EXCHANGE_NONE)
      continue;
    bool from_shard = info->op_class == GD_CLASS_PURE; /* writes the whole somewhere else */
    gd_tensor_id leaf = gd_graph_leaf(graph, GD_ROLE_INPUT, info->name, GD_DTYPE_F32, 1,
                                      from_shard ? &shard : &whole);
    gd_graph_op(graph, (enum gd_op_kind)k, &attr, 1, &leaf);
  }
}

static enum gd_status time_collectives(struct calibration *c, struct gd_error *err) {
  static const int64_t shards[] = {1 << 14, 1 << 18, 1 << 21};
  struct gd_comm *comm = c->options->comm;
  report(c, "collectives");
  for (size_t i = 0; i < sizeof shards / sizeof *shards; i++) {
    struct gd_graph graph = {0};
    build_collectives(&graph, gd_comm_rank(comm), gd_comm_size(comm), shards[i]);
    GD_TRY(time_graph(c, &graph, time_together, err));
  }
  return GD_OK;
}

/* --- models -------------------------------------------------------------------------------- */

struct built {
  struct gd_model model;
  struct gd_graph graph;
  struct gd_plan plan;
  struct gd_run run;
};

static void built_deinit(struct built *built) {
  gd_run_close(&built->run);
  gd_plan_deinit(&built->plan);
  gd_graph_deinit(&built->graph);
}

/* A model in memory, ready to run; *fits false: this machine has too little. */
static enum gd_status build(struct calibration *c, const struct gd_calibrate_spec *spec,
                            const char *method, enum gd_precision precision, struct built *built,
                            bool *fits, struct gd_error *err) {
  struct gd_setup setup = {.model = &built->model,
                           .precision = precision,
                           .ranks = 1,
                           .tf32 = c->caps.tf32,
                           .loss_chunk_bytes = c->caps.loss_chunk_bytes,
                           .no_compiler = c->no_compiler};
  GD_TRY(gd_method_parse(method, &setup.method, err));
  GD_TRY(gd_calibrate_model(spec, c->gpu, &built->model, err));
  setup.micro_batch = built->model.recipe.batch;
  GD_TRY(gd_pipeline_build(&setup, &built->graph, err));
  GD_TRY(gd_plan_make(&built->graph, &c->caps, &built->plan, err));
  *fits = built->plan.device_bytes < c->info.memory_bytes / 2;
  if (!*fits)
    return GD_OK;
  GD_TRY(gd_run_open(&built->run, c->backend, &built->plan, NULL, err));
  GD_TRY(gd_run_init(&built->run, 1, err));
  GD_TRY(gd_run_random_batch(&built->run, GD_RUN_FULL, spec->classes, 1, err));
  GD_TRY(gd_run_last_micro_step(&built->run, GD_RUN_FULL, err)); /* pages, algorithms: not timed */
  return gd_run_update(&built->run, 0, err);
}

static enum gd_status learn_model(struct calibration *c, const struct gd_calibrate_spec *spec,
                                  const char *method, enum gd_precision precision,
                                  struct gd_error *err) {
  struct built built = {0};
  bool fits = false;
  report(c, spec->family);
  enum gd_status status = build(c, spec, method, precision, &built, &fits, err);
  if (status == GD_OK && fits)
    status = time_program(c, &built.plan, built.run.bound[GD_RUN_FULL], GD_PROGRAM_MICRO_STEP,
                          false, err);
  if (status == GD_OK && fits)
    status =
        time_program(c, &built.plan, built.run.bound[GD_RUN_FULL], GD_PROGRAM_UPDATE, false, err);
  built_deinit(&built);
  return status;
}

/* In what a device computes: 16 bits and fp32. */
static int precisions_of(const struct calibration *c, enum gd_precision precisions[2]) {
  int count = 0;
  if (c->caps.dtype[GD_DTYPE_BF16])
    precisions[count++] = GD_PRECISION_BF16;
  precisions[count++] = GD_PRECISION_FP32;
  return count;
}

static enum gd_status learn_models(struct calibration *c, struct gd_error *err) {
  static const char *const methods[] = {"free-lunch", "naive"};
  static const char *const offloads[] = {"free-lunch+zero1+offload", "free-lunch+fsdp3+offload",
                                         "free-lunch+zero2+offload"};
  enum gd_precision precisions[2];
  int n_precisions = precisions_of(c, precisions), n_specs;
  const struct gd_calibrate_spec *specs = gd_calibrate_specs(false, &n_specs);
  /* Each family in the precision of its recipes before any in the other one. */
  for (int other = 0; other < n_precisions; other++)
    for (int s = 0; s < n_specs; s++) {
      bool images = specs[s].seq == 1;
      enum gd_precision precision = precisions[(images ? n_precisions - 1 : 0) ^ other];
      bool first = s == 0 && other == 0;
      for (size_t m = 0; m < sizeof methods / sizeof *methods; m++)
        if (spent(c) < 0.8 * c->limit_s || (first && c->round == 0))
          GD_TRY(learn_model(c, &specs[s], methods[m], precision, err));
      for (size_t m = 0; m < sizeof offloads / sizeof *offloads && first; m++)
        if (spent(c) < 0.8 * c->limit_s)
          GD_TRY(learn_model(c, &specs[s], offloads[m], precision, err));
    }
  return GD_OK;
}

/* --- from times to rates ------------------------------------------------------------------- */

/* The highest rate, in bytes a second, among works without FLOPs that move at least least_bytes;
   0: there is none. */
static double best_rate(const struct calibration *c, double least_bytes, bool transfers,
                        bool on_host) {
  double best = 0;
  for (uint32_t i = 0; i < c->count; i++) {
    const struct gd_work *work = &c->list[i].work;
    bool counts = work->flops <= 0 && work->bytes >= least_bytes && work->on_host == on_host &&
                  gd_work_is_transfer(work->kind) == transfers &&
                  !gd_work_is_collective(work->kind);
    if (counts)
      best = fmax(best, work->bytes / mean_s(&c->list[i]));
  }
  return best;
}

static enum gd_status make_points(struct calibration *c, struct gd_error *err) {
  struct gd_rates *rates = c->rates;
  double memory = best_rate(c, 32 << 20, false, false), link = best_rate(c, 1 << 20, true, false);
  double adam = best_rate(c, 1 << 20, false, true);
  if (rates->memory_bytes_per_s <= 0)
    rates->memory_bytes_per_s = memory > 0 ? memory : 2e10;
  rates->host_link = (struct gd_link){link > 0 ? 0.5 * link : 5e9, 1e-5};
  rates->host_bytes_per_s = adam > 0 ? adam / rates->cpus : rates->memory_bytes_per_s / rates->cpus;
  /* Ranks on one machine move bytes through its memory: out, in, and to where they are added; GPUs
     of the catalogue have links. What was measured of either is in their points' factors. */
  if (rates->peer_link.bytes_per_s <= 0) {
    rates->peer_link = (struct gd_link){rates->memory_bytes_per_s / 8, 5e-5};
    snprintf(rates->peer_source, sizeof rates->peer_source, "estimated from the speed of memory");
  }
  for (uint32_t i = 0; i < c->count; i++)
    if (gd_work_is_collective(c->list[i].work.kind) && c->list[i].work.sizes[1] > 1)
      snprintf(rates->peer_source, sizeof rates->peer_source, "measured");
  for (uint32_t i = 0; i < c->count; i++)
    GD_TRY(gd_rates_add(rates, &c->list[i].work, mean_s(&c->list[i]), err));
  gd_rates_sort(rates);
  GD_TRY(gd_rates_drop_disturbed(rates, err));
  gd_rates_fit_links(rates);
  return GD_OK;
}

/* --- the check ----------------------------------------------------------------------------- */

/* How far the prediction of a pass and an update is from what they take. */
static enum gd_status check_model(struct calibration *c, const struct gd_calibrate_spec *spec,
                                  const char *method, enum gd_precision precision, double *error,
                                  bool *checked, struct gd_error *err) {
  struct built built = {0};
  struct gd_simulated micro_step;
  double times[5];
  int count = 0;
  report(c, "check");
  *checked = false;
  enum gd_status status = build(c, spec, method, precision, &built, checked, err);
  if (status == GD_OK && *checked)
    status = gd_simulate(&built.plan, GD_PROGRAM_MICRO_STEP, c->rates, &micro_step, err);
  for (int64_t start = gd_clock_ns(); status == GD_OK && *checked && count < 5;) {
    int64_t before = gd_clock_ns();
    status = gd_run_micro_step(&built.run, GD_RUN_FULL, err);
    times[count++] = 1e-9 * (double)(gd_clock_ns() - before);
    if (count >= 3 && gd_clock_ns() - start > 1500000000)
      break;
  }
  if (status == GD_OK && *checked) {
    qsort(times, (size_t)count, sizeof *times, gd_compare_doubles);
    *error = fabs(micro_step.seconds / times[(count - 1) / 2] - 1);
  }
  built_deinit(&built);
  return status;
}

static enum gd_status check_models(struct calibration *c, struct gd_error *err) {
  static const char *const methods[] = {"free-lunch", "naive"};
  enum { MOST = 32 };
  double errors[MOST];
  struct gd_rates *rates = c->rates;
  enum gd_precision precisions[2];
  int n_specs, count = 0, n_precisions = precisions_of(c, precisions);
  const struct gd_calibrate_spec *specs = gd_calibrate_specs(true, &n_specs);
  for (size_t m = 0; m < sizeof methods / sizeof *methods; m++)
    for (int s = 0; s < n_specs && count < MOST; s++) {
      bool images = specs[s].seq == 1, checked = false;
      if (spent(c) > c->limit_s && count > 0)
        continue;
      GD_TRY(check_model(c, &specs[s], methods[m], precisions[images ? n_precisions - 1 : 0],
                         &errors[count], &checked, err));
      count += checked;
    }
  if (count == 0)
    return GD_OK;
  qsort(errors, (size_t)count, sizeof *errors, gd_compare_doubles);
  rates->checked_trials = count;
  rates->median_error = 0.5 * (errors[(count - 1) / 2] + errors[count / 2]);
  rates->worst_error = errors[count - 1];
  snprintf(rates->checked, sizeof rates->checked,
           "%d micro-steps of models it was not calibrated on, measured with it", count);
  return GD_OK;
}

/* --- all of it ----------------------------------------------------------------------------- */

/* What the catalogue knows of a GPU: its architecture, and the peaks that others scale by. */
static void look_up_gpu(struct calibration *c, struct gd_hw *hw) {
  struct gd_rates *rates = c->rates;
  const struct gd_gpu *found;
  if (gd_hw_gpu(hw, rates->device, &found, NULL) != GD_OK)
    return; /* its own file then stands alone: nothing can be scaled to another GPU */
  snprintf(rates->gpu, sizeof rates->gpu, "%s", found->name);
  snprintf(rates->architecture, sizeof rates->architecture, "%s", found->architecture);
  rates->compute_capability = found->compute_capability;
  rates->multiprocessors = found->multiprocessors;
  rates->memory_bytes_per_s = found->memory_bytes_per_s;
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    if (found->flops[i] > 0)
      rates->flops[i] = found->flops[i];
  struct gd_fabric fabric;
  gd_fabric_of(&(struct gd_target){.gpu = found,
                                   .count = has_others(c) ? gd_comm_size(c->options->comm) : 2,
                                   .nodes = 1,
                                   .topology = found->topology},
               &fabric);
  rates->peer_link = (struct gd_link){fabric.inside_bytes_per_s, 5e-6};
  snprintf(rates->peer_source, sizeof rates->peer_source, "taken from data sheets");
}

static void read_peaks(struct calibration *c) {
  static const struct {
    enum gd_peak peak;
    enum gd_dtype dtype;
    bool tf32;
  } asked[] = {{GD_PEAK_FP32, GD_DTYPE_F32, false},
               {GD_PEAK_TF32, GD_DTYPE_F32, true},
               {GD_PEAK_FP16, GD_DTYPE_F16, false},
               {GD_PEAK_BF16, GD_DTYPE_BF16, false}};
  for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
    if (!c->caps.dtype[asked[i].dtype] || (asked[i].tf32 && !c->caps.tf32))
      continue;
    double peak = c->backend->ops->peak_flops(c->backend, asked[i].dtype, asked[i].tf32);
    c->rates->flops[asked[i].peak] = fmax(c->rates->flops[asked[i].peak], peak);
  }
}

static void describe(struct calibration *c) {
  struct gd_rates *rates = c->rates;
  bool gpu = gd_backend_is_gpu(c->options->backend);
  time_t now = time(NULL);
  struct tm utc;
  c->backend->ops->describe(c->backend, &c->info);
  *rates = (struct gd_rates){.version = GD_VERSION, .commit = GD_COMMIT, .busy_share = -1};
  snprintf(rates->device, sizeof rates->device, "%s", c->info.name);
  snprintf(rates->backend, sizeof rates->backend, "%s", c->options->backend);
  snprintf(rates->source, sizeof rates->source, "measured by gpudays calibrate");
  if (gmtime_r(&now, &utc))
    strftime(rates->date, sizeof rates->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  rates->threads = c->info.threads;
  rates->cpus = gd_cpus(rates->threads);
  rates->op_s = gpu ? 3e-6 : 2e-6;
  rates->async_speed = gpu ? 1 : fmin(1, (double)rates->cpus / (rates->threads + 1));
  c->gpu = gpu;
}

/* comm: NULL where the device works for this rank alone. */
static enum gd_status reopen(struct calibration *c, bool trace, struct gd_comm *comm,
                             struct gd_error *err) {
  const struct gd_backend_ops *ops;
  struct gd_backend_options options = {
      .threads = c->options->threads, .trace = trace, .comm = comm};
  gd_backend_close(c->backend);
  c->backend = NULL;
  GD_TRY(gd_backend_find(c->options->backend, &ops, err));
  ops->caps(&options, &c->caps);
  return ops->open(&options, &c->backend, err);
}

/* What one device does. */
static enum gd_status measure_device(struct calibration *c, struct gd_error *err) {
  struct gd_hw hw = {0};
  GD_TRY(reopen(c, true, NULL, err));
  c->no_compiler = !gd_codegen_works(&c->caps, NULL);
  describe(c);
  report(c, "peaks");
  read_peaks(c);
  if (c->gpu) {
    GD_TRY(gd_hw_load(&hw, err));
    look_up_gpu(c, &hw);
    gd_hw_deinit(&hw);
  }
  GD_TRY(time_transfers(c, err));
  /* Once more while there is time: who was in the way the first time may be gone. */
  for (; c->round < MOST_ROUNDS && spent(c) < (c->round ? 0.7 : 1) * c->limit_s; c->round++) {
    GD_TRY(time_gemms(c, c->round ? 0.8 : 0.3, err));
    GD_TRY(learn_models(c, err));
  }
  GD_TRY(make_points(c, err));
  GD_TRY(reopen(c, false, NULL, err)); /* whole steps as they are run, not op by op */
  return check_models(c, err);
}

static enum gd_status measure(struct calibration *c, struct gd_error *err) {
  struct gd_comm *comm = c->options->comm;
  struct gd_heartbeat heartbeat = {0};
  if (has_others(c)) {
    GD_TRY(reopen(c, true, comm, err));
    c->backend->ops->describe(c->backend, &c->info);
    GD_TRY(time_collectives(c, err));
    gd_backend_close(c->backend); /* its threads and memory are rank 0's now */
    c->backend = NULL;
    if (gd_comm_rank(comm) > 0)
      return gd_heartbeat_listen(comm, err);
    GD_TRY(gd_heartbeat_start(&heartbeat, comm, err));
  }
  if (c->options->alone)
    c->options->alone(c->options->progress_user);
  enum gd_status status = measure_device(c, err);
  enum gd_status ended = gd_heartbeat_stop(&heartbeat, status == GD_OK ? err : NULL);
  return status == GD_OK ? ended : status;
}

enum gd_status gd_calibrate(const struct gd_calibrate_options *options, struct gd_rates *rates,
                            struct gd_error *err) {
  struct calibration c = {.options = options,
                          .rates = rates,
                          .start_ns = gd_clock_ns(),
                          .limit_s = options->limit_s > 0 ? options->limit_s : 60};
  enum gd_status status = measure(&c, err);
  gd_backend_close(c.backend);
  gd_mem_free(c.list);
  gd_mem_free(c.best_s);
  return status;
}
