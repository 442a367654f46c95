/*
 * Binding a plan to the GPU: launches, autotuning, and one captured CUDA graph per program.
 *
 * Every op is called three times (enum gd_cuda_stage): to learn which kernels it needs, to time
 * algorithms, and to be captured. Work of the host, Adam on offloaded state and collectives through
 * MPI, is a host node of the same graph, so a program stays one launch. With `trace` nothing is
 * captured: ops are launched one by one between events. Nodes that a launch can toggle off, by its
 * inputs, are graph_toggle.c's.
 */
#include <string.h>

#include "backend/cuda/runtime/autotune.h"
#include "backend/cuda/runtime/cuda_program.h"
#include "backend/cuda/runtime/fused.h"
#include "backend/cuda/runtime/graph_toggle.h"
#include "backend/cuda/runtime/module.h"

enum {
  COMM_SCRATCH_BYTES = 1 << 20
}; /* pieces of a reduction over ranks arrive here, on the host */

enum gd_status gd_cuda_agree(struct gd_cuda *cuda, enum gd_status status, struct gd_error *err) {
  return cuda->comm ? gd_comm_agree(cuda->comm, status, err) : status;
}

/* Waits for everything that was launched; with NCCL not for ever, and cuda->stuck says so. */
int gd_cuda_drain(struct gd_cuda *cuda) {
  if (cuda->nccl)
    gd_cuda_nccl_drain(cuda);
  return cuda->stuck ? CUDA_SUCCESS : cuda->cu->CtxSynchronize();
}

/* Adam and its like on offloaded state: the cpu kernels, on host memory. */
static enum gd_status bind_host_op(struct gd_cuda *cuda, struct gd_bound *bound,
                                   struct gd_cuda_launch *launch, struct gd_error *err) {
  launch->job = gd_arena_alloc(&bound->arena, 1, sizeof *launch->job);
  if (!launch->job)
    return gd_nomem(err, "while binding a plan");
  *launch->job = (struct gd_cuda_job){gd_cpu_kernels[launch->op->kind], launch->op->args};
  launch->job->args.threads = cuda->threads;
  launch->job->args.workspace = NULL;
  launch->job->args.workspace_bytes = 0;
  launch->job->args.err = &cuda->host_error;
  return GD_OK;
}

/* Without NCCL: the host kernel on a staged copy of the whole. */
static enum gd_status bind_staged(struct gd_cuda *cuda, struct gd_bound *bound,
                                  struct gd_cuda_launch *launch, struct gd_error *err) {
  static const gd_kernel kernels[GD_OP_COUNT] = {
      [GD_OP_all_reduce] = gd_host_all_reduce,
      [GD_OP_reduce_scatter] = gd_host_reduce_scatter,
      [GD_OP_all_gather] = gd_host_all_gather,
      [GD_OP_gather] = gd_host_all_gather, /* the rank's own slice is in its place by then */
  };
  const struct gd_launch *op = launch->op;
  int64_t elements = gd_cuda_whole_of(op)->elements;
  int64_t bytes = elements * gd_dtype_bytes(gd_cuda_whole_of(op)->dtype);
  struct gd_view *views = gd_arena_alloc(&bound->arena, 2, sizeof *views);
  GD_TRY(bind_host_op(cuda, bound, launch, err));
  struct gd_kernel_args *args = &launch->job->args;
  void *staging = NULL;
  if (!views)
    return gd_nomem(err, "while binding a plan");
  /* A buffer each: the next may be copied down while this one is copied up. */
  int64_t all_bytes = bytes + COMM_SCRATCH_BYTES;
  GD_TRY(gd_cuda_check_pinned(cuda, cuda->cu->MemHostAlloc(&staging, (size_t)all_bytes, 0),
                              all_bytes, err));
  bound->staging[bound->n_staging++] = staging;
  views[0] = op->args.in[0];
  views[1] = op->args.out[0];
  views[gd_cuda_scatters(op->kind) ? 0 : 1].data = staging;
  args->in = &views[0];
  args->out = &views[1];
  args->comm = cuda->comm;
  args->comm_scratch = (char *)staging + bytes;
  args->comm_scratch_bytes = COMM_SCRATCH_BYTES;
  launch->job->kernel = kernels[op->kind];
  return GD_OK;
}

static bool on_host(const struct gd_graph *graph, gd_tensor_id id) {
  return gd_bind_space(graph, id) == GD_SPACE_HOST;
}

static enum gd_status bind_collective(struct gd_cuda *cuda, const struct gd_plan *plan,
                                      struct gd_bound *bound, struct gd_cuda_launch *launch,
                                      struct gd_error *err) {
  const struct gd_op *op = &plan->graph->ops[launch->op->op];
  bool host = on_host(plan->graph, gd_cuda_scatters(op->kind) ? op->in[0] : op->out[0]);
  launch->by_nccl = cuda->nccl && !host;
  if (launch->by_nccl || !cuda->comm || op->attr.ranks.ranks == 1)
    return GD_OK;
  return bind_staged(cuda, bound, launch, err);
}

/* Whether its integer inputs are what the host wrote before the program: they can be counted. */
static bool is_decided(const struct gd_graph *graph, const struct gd_op *op) {
  for (uint32_t i = 0; i < op->n_in; i++) {
    const struct gd_tensor *t =
        op->in[i] == GD_NONE ? NULL : &graph->tensors[gd_tensor_root(graph, op->in[i], NULL)];
    if (t && t->dtype == GD_DTYPE_I32 &&
        (t->role != GD_ROLE_INPUT || t->producer != GD_NONE || t->space != GD_SPACE_DEVICE))
      return false;
  }
  return true;
}

/* How the GPU runs a launch. */
static enum gd_status bind_op(struct gd_cuda *cuda, const struct gd_plan *plan,
                              struct gd_bound *bound, struct gd_cuda_launch *launch,
                              struct gd_error *err) {
  struct gd_launch *op = launch->op;
  if (gd_op_info(op->kind)->attr == GD_ATTR_fused)
    op->args.device_fused = gd_cuda_fusion(bound->fusions, op->args.attr->fused.fusion);
  if (op->async)
    GD_CUDA_TRY(cuda->cu->EventCreate(&launch->done, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
  if (gd_cuda_is_collective(op->kind))
    return bind_collective(cuda, plan, bound, launch, err);
  if (!gd_cuda_ops[op->kind]) /* copies and waits: ops.def says `runtime` */
    return GD_OK;
  if (on_host(plan->graph, plan->graph->ops[op->op].out[0]))
    return bind_host_op(cuda, bound, launch, err);
  launch->function = gd_cuda_ops[op->kind];
  return GD_OK;
}

static enum gd_status bind_program(struct gd_cuda *cuda, const struct gd_plan *plan,
                                   enum gd_program program, struct gd_bound *bound,
                                   struct gd_error *err) {
  const struct gd_memory memory = {
      .data = {[GD_SPACE_DEVICE] = (void *)(uintptr_t)cuda->arena, [GD_SPACE_HOST] = cuda->host},
      .bytes = {[GD_SPACE_DEVICE] = cuda->arena_bytes, [GD_SPACE_HOST] = cuda->host_bytes}};
  struct gd_launches ops;
  GD_TRY(gd_bind_program(plan, program, &memory, &bound->arena, &ops, err));
  struct gd_cuda_launch *launches =
      gd_arena_alloc(&bound->arena, (size_t)ops.n + 1, sizeof *launches);
  bound->events[program] = cuda->trace ? gd_bind_events(&ops, &bound->arena) : NULL;
  if (!launches || (cuda->trace && !bound->events[program]))
    return gd_nomem(err, "while binding a plan");
  bound->launches[program] = launches;
  GD_TRY(gd_cuda_toggles_open(cuda, &bound->toggles[program], err));
  for (uint32_t i = 0; i < ops.n; i++) {
    launches[i].op = &ops.at[i];
    bound->n_launches[program] = i + 1; /* what unbind has to free, also after a failure */
    GD_TRY(bind_op(cuda, plan, bound, &launches[i], err));
    if (is_decided(plan->graph, &plan->graph->ops[ops.at[i].op]))
      launches[i].toggles = bound->toggles[program];
  }
  return GD_OK;
}

static enum gd_status capture(struct gd_cuda *cuda, struct gd_bound *bound, enum gd_program program,
                              struct gd_error *err) {
  CUgraph graph = NULL;
  if (bound->n_launches[program] == 0)
    return GD_OK;
  GD_CUDA_TRY(cuda->cu->StreamBeginCapture(cuda->stream, CU_STREAM_CAPTURE_MODE_RELAXED),
              "cuStreamBeginCapture");
  gd_cuda_toggles_capture(bound->toggles[program]);
  enum gd_status status = gd_cuda_launch_program(cuda, bound, program, err);
  int ended = cuda->cu->StreamEndCapture(cuda->stream, &graph); /* also after a failure */
  if (status == GD_OK)
    status = gd_cuda_check(cuda, ended, "cuStreamEndCapture", err);
  if (status == GD_OK)
    status = gd_cuda_check(cuda, cuda->cu->GraphInstantiate(&bound->graphs[program], graph, 0),
                           "cuGraphInstantiate", err);
  gd_cuda_toggles_captured(cuda, bound->toggles[program], graph, bound->graphs[program]);
  return status;
}

void gd_cuda_unbind(struct gd_backend *backend, struct gd_bound *bound) {
  struct gd_cuda *cuda = gd_cuda_of(backend);
  if (!bound)
    return;
  gd_cuda_drain(cuda);
  if (cuda->stuck)
    return;
  for (int program = 0; program < GD_PROGRAM_COUNT; program++) {
    if (bound->graphs[program])
      cuda->cu->GraphExecDestroy(bound->graphs[program]);
    gd_cuda_toggles_close(cuda, bound->toggles[program]);
    for (uint32_t i = 0; i < bound->n_launches[program]; i++)
      if (bound->launches[program][i].done)
        cuda->cu->EventDestroy(bound->launches[program][i].done);
  }
  for (uint32_t i = 0; i < bound->n_marks; i++)
    cuda->cu->EventDestroy(bound->marks[i]);
  for (uint32_t i = 0; i < bound->n_staging; i++)
    cuda->cu->MemFreeHost(bound->staging[i]);
  if (bound->fork)
    cuda->cu->EventDestroy(bound->fork);
  gd_cuda_fusions_free(bound->fusions);
  gd_arena_deinit(&bound->arena);
  gd_mem_free(bound);
}

/* Events around every op of the longest program. */
static enum gd_status make_marks(struct gd_cuda *cuda, struct gd_bound *bound,
                                 struct gd_error *err) {
  uint32_t most = 0;
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    most = bound->n_launches[program] > most ? bound->n_launches[program] : most;
  bound->marks = gd_arena_alloc(&bound->arena, 2 * (size_t)most + 1, sizeof(CUevent));
  if (!bound->marks)
    return gd_nomem(err, "while binding a plan");
  for (; bound->n_marks < 2 * most; bound->n_marks++)
    GD_CUDA_TRY(cuda->cu->EventCreate(&bound->marks[bound->n_marks], CU_EVENT_DEFAULT),
                "cuEventCreate");
  return GD_OK;
}

static bool has_collectives(const struct gd_plan *plan) {
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    for (uint32_t i = 0; i < plan->n_order[program]; i++)
      if (gd_cuda_is_collective(plan->graph->ops[plan->order[program][i]].kind))
        return true;
  return false;
}

/* Leaves the arena as gd_cuda_arenas_make did: zeros. */
static enum gd_status time_algorithms(struct gd_cuda *cuda, struct gd_bound *bound,
                                      struct gd_error *err) {
  cuda->writes++;
  GD_TRY(gd_cuda_launch_stage(cuda, bound, GD_CUDA_TUNE, err));
  if (cuda->arena_bytes > 0)
    GD_CUDA_TRY(cuda->cu->MemsetD8Async(cuda->arena, 0, (size_t)cuda->arena_bytes, cuda->stream),
                "cuMemset");
  GD_CUDA_TRY(cuda->cu->StreamSynchronize(cuda->stream), "timing algorithms");
  return GD_OK;
}

static bool is_same_collective(const struct gd_cuda_launch *a, const struct gd_cuda_launch *b) {
  const struct gd_view *x = gd_cuda_whole_of(a->op), *y = gd_cuda_whole_of(b->op);
  return b->by_nccl && a->op->kind == b->op->kind && x->elements == y->elements &&
         x->dtype == y->dtype;
}

/*
 * NCCL connects ranks by the algorithm that a size calls for, when it first does. That is a
 * conversation between all ranks, so each collective is launched once here, at its size and place,
 * and none begins one inside a capture. The arena is zeros, and sums of zeros leave it so.
 */
static enum gd_status connect_ranks(struct gd_cuda *cuda, struct gd_bound *bound,
                                    struct gd_error *err) {
  struct gd_comm_guard *guard = NULL;
  enum gd_status status = GD_OK;
  if (!cuda->nccl)
    return GD_OK;
  GD_TRY(gd_comm_guard_begin(cuda->comm, "connecting NCCL's ranks", &guard, err));
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    for (uint32_t i = 0; i < bound->n_launches[program] && status == GD_OK; i++) {
      const struct gd_cuda_launch *launches = bound->launches[program];
      bool known = !launches[i].by_nccl;
      for (uint32_t j = 0; j < i && !known; j++)
        known = is_same_collective(&launches[i], &launches[j]);
      if (!known)
        status = gd_cuda_launch_collective(cuda, &launches[i], cuda->comm_stream, err);
    }
  if (status == GD_OK)
    status = gd_cuda_nccl_sync(cuda, cuda->comm_stream, err);
  gd_comm_guard_end(guard);
  return status;
}

/* Everything up to the capture; nothing in it waits for other ranks. */
static enum gd_status prepare_programs(struct gd_cuda *cuda, const struct gd_plan *plan,
                                       struct gd_bound *bound, struct gd_error *err) {
  if (plan->graph->n_fusions > 0)
    GD_TRY(gd_cuda_fusions_build(cuda, plan->graph, &bound->fusions, err));
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    GD_TRY(bind_program(cuda, plan, (enum gd_program)program, bound, err));
  GD_TRY(gd_cuda_launch_stage(cuda, bound, GD_CUDA_COLLECT, err));
  GD_TRY(gd_cuda_modules_build(cuda, err));
  GD_TRY(time_algorithms(cuda, bound, err));
  GD_TRY(gd_cuda_autotune_keep(cuda, err));
  return cuda->trace ? make_marks(cuda, bound, err) : GD_OK;
}

/* NCCL may still exchange addresses of buffers during a capture: the others must be there. */
static enum gd_status capture_programs(struct gd_cuda *cuda, struct gd_bound *bound,
                                       struct gd_error *err) {
  struct gd_comm_guard *guard = NULL;
  enum gd_status status = GD_OK;
  if (cuda->nccl)
    GD_TRY(gd_comm_guard_begin(cuda->comm, "capturing NCCL's collectives", &guard, err));
  for (int program = 0; program < GD_PROGRAM_COUNT && status == GD_OK && !cuda->trace; program++)
    status = capture(cuda, bound, (enum gd_program)program, err);
  gd_comm_guard_end(guard);
  return status;
}

/* Ranks gd_cuda_agree before each part that waits for the others. */
static enum gd_status bind_programs(struct gd_cuda *cuda, const struct gd_plan *plan,
                                    struct gd_bound *bound, struct gd_error *err) {
  GD_TRY(gd_cuda_agree(cuda, prepare_programs(cuda, plan, bound, err), err));
  if (!cuda->nccl)
    return gd_cuda_agree(cuda, capture_programs(cuda, bound, err), err);
  GD_TRY(gd_cuda_agree(cuda, connect_ranks(cuda, bound, err), err));
  return gd_cuda_agree(cuda, capture_programs(cuda, bound, err), err);
}

static enum gd_status bind_all(struct gd_cuda *cuda, const struct gd_plan *plan,
                               struct gd_bound *bound, struct gd_error *err) {
  uint32_t n_all = 0;
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    n_all += plan->n_order[program];
  bound->staging = gd_arena_alloc(&bound->arena, (size_t)n_all + 1, sizeof *bound->staging);
  if (!bound->staging)
    return gd_nomem(err, "while binding a plan");
  enum gd_status status = gd_cuda_check(
      cuda, cuda->cu->EventCreate(&bound->fork, CU_EVENT_DISABLE_TIMING), "cuEventCreate", err);
  if (status == GD_OK)
    status = gd_cuda_nvml_open(cuda, err);
  GD_TRY(gd_cuda_agree(cuda, status, err));
  if (has_collectives(plan))
    GD_TRY(gd_cuda_agree(cuda, gd_cuda_nccl_open(cuda, err), err));
  return bind_programs(cuda, plan, bound, err);
}

enum gd_status gd_cuda_bind(struct gd_backend *backend, const struct gd_plan *plan,
                            struct gd_bound **bound, struct gd_error *err) {
  struct gd_cuda *cuda = gd_cuda_of(backend);
  struct gd_bound *b = gd_mem_alloc(1, sizeof *b);
  GD_ASSERT(plan->device_bytes <= cuda->arena_bytes);
  enum gd_status status = b ? bind_all(cuda, plan, b, err) : gd_nomem(err, "while binding a plan");
  if (status != GD_OK) {
    gd_cuda_unbind(backend, b);
    b = NULL;
  }
  *bound = b;
  return status;
}
