/*
 * The planner: order, lifetimes, in-place reuse, offsets, categories.
 *
 * A buffer is one piece of activation memory: the storage of a tensor, of all views of it, and of
 * every output that took its place. Its lifetime runs from the op that first writes it to the last
 * op that reads any of these.
 */
#include "plan/plan.h"

#include <inttypes.h>
#include <string.h>

#include "base/sizes.h"
#include "ir/fusion.h"

static const char *const category_names[GD_CATEGORY_COUNT] = {
    [GD_CATEGORY_PARAMETERS] = "parameters",
    [GD_CATEGORY_GRADIENTS] = "gradients",
    [GD_CATEGORY_OPTIMIZER] = "optimizer",
    [GD_CATEGORY_ACTIVATIONS] = "activations",
    [GD_CATEGORY_WORKSPACE] = "workspace",
    [GD_CATEGORY_INPUTS] = "inputs",
    [GD_CATEGORY_HOST] = "host",
};

const char *gd_category_name(enum gd_category category) {
  GD_ASSERT(category < GD_CATEGORY_COUNT);
  return category_names[category];
}

static enum gd_category category_of(enum gd_role role) {
  switch (role) {
  case GD_ROLE_PARAM:
  case GD_ROLE_PARAM_COMPUTE: return GD_CATEGORY_PARAMETERS;
  case GD_ROLE_GRAD: return GD_CATEGORY_GRADIENTS;
  case GD_ROLE_OPTIMIZER: return GD_CATEGORY_OPTIMIZER;
  case GD_ROLE_INPUT:
  case GD_ROLE_CONST:
  case GD_ROLE_STATE: return GD_CATEGORY_INPUTS;
  case GD_ROLE_PIECE:
  case GD_ROLE_ACTIVATION: return GD_CATEGORY_ACTIVATIONS;
  }
  return GD_CATEGORY_ACTIVATIONS;
}

/* The transient buffers of one program in one memory. */
struct pool {
  struct gd_interval *intervals;
  uint32_t n_intervals;
};

struct planner {
  const struct gd_graph *graph;
  const struct gd_caps *caps;
  struct gd_plan *plan;
  uint32_t *last_use;  /* by root tensor: last op that needs it, in this program */
  uint32_t *awaited;   /* by tensor: the first op that waits for it; see find_awaited */
  uint32_t *buffer_of; /* by root tensor: index in its pool; GD_NONE: none */
  struct pool pools[GD_SPACE_COUNT];
  int64_t *live_change; /* by op: bytes that come alive there */
  bool over_matmuls;    /* dGELU may overwrite what a matmul has written */
  uint32_t n_over;      /* of a program: how many dGELUs do */
  uint32_t n_inplace;   /* of a program: outputs that overwrite an input */
};

static enum gd_status no_memory(struct gd_error *err) {
  return gd_nomem(err, "while planning");
}

/* --- leaves -------------------------------------------------------------------------------- */

/* Inputs come last: all that persists then has the same place whatever the micro-batch, and a
   second plan for the smaller last micro-batch of a step can share it. */
static const enum gd_role leaf_order[] = {GD_ROLE_PARAM,     GD_ROLE_PARAM_COMPUTE, GD_ROLE_GRAD,
                                          GD_ROLE_OPTIMIZER, GD_ROLE_STATE,         GD_ROLE_CONST,
                                          GD_ROLE_INPUT};

/* Bytes of a category, in the memory they are in. */
static int64_t *tally(struct gd_plan *plan, enum gd_category category, enum gd_space space) {
  return space == GD_SPACE_HOST ? &plan->host_parts[category] : &plan->bytes[category];
}

/* So that no sum of places overflows: a size of each kind is checked alone, in the graph. */
static enum gd_status check_sum(double bytes, const char *what, struct gd_error *err) {
  const double most = 0x1p61; /* 2 EiB */
  if (bytes < most)
    return GD_OK;
  return gd_fail(err, GD_BAD_INPUT,
                 "all %s together are %.3g bytes, more than can be planned; choose a smaller batch "
                 "or micro-batch, or check the sizes in the configuration",
                 what, bytes);
}

/* Before leaves get their places. */
static enum gd_status check_leaves(const struct gd_graph *graph, struct gd_error *err) {
  double bytes = 0;
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    if (graph->tensors[id].producer == GD_NONE)
      bytes += (double)gd_tensor_bytes(graph, id);
  return check_sum(bytes, "parameters and inputs", err);
}

static void place_leaves(struct planner *p, int64_t at[GD_SPACE_COUNT]) {
  const struct gd_graph *graph = p->graph;
  int64_t staging_bytes = 0;
  for (size_t i = 0; i < sizeof leaf_order / sizeof *leaf_order; i++)
    for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
      const struct gd_tensor *t = &graph->tensors[id];
      if (t->role != leaf_order[i])
        continue;
      int64_t bytes = gd_round_up(gd_tensor_bytes(graph, id), p->caps->alignment_bytes);
      p->plan->offset_bytes[id] = at[t->space];
      *tally(p->plan, category_of(t->role), t->space) += bytes;
      at[t->space] += bytes;
      if (id == graph->ids || id == graph->pixels || id == graph->labels)
        staging_bytes += bytes; /* prepared on the host before it is copied */
    }
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
    int64_t offset;
    gd_tensor_id root = gd_tensor_root(graph, id, &offset);
    if (graph->tensors[id].role == GD_ROLE_PIECE && root != id)
      p->plan->offset_bytes[id] = p->plan->offset_bytes[root] + offset;
  }
  p->plan->staging_at = at[GD_SPACE_HOST];
  at[GD_SPACE_HOST] += staging_bytes;
  p->plan->host_parts[GD_CATEGORY_INPUTS] += staging_bytes;
}

/* --- lifetimes ----------------------------------------------------------------------------- */

static bool in_program(const struct gd_graph *graph, gd_op_id op, enum gd_program program) {
  return gd_phase_program(graph->ops[op].phase) == program;
}

static bool is_transient(const struct gd_graph *graph, gd_tensor_id root) {
  return graph->tensors[root].producer != GD_NONE;
}

/* By tensor: the first synchronous op that reads it. An asynchronous op that reads it does not
   count itself, since it may not have run yet: the first op that waits for its output does.
   GD_NONE: none.
 */
static void find_awaited(struct planner *p, enum gd_program program) {
  const struct gd_graph *graph = p->graph;
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    p->awaited[id] = GD_NONE;
  for (gd_op_id id = graph->n_ops; id-- > 0;) {
    const struct gd_op *op = &graph->ops[id];
    if (!in_program(graph, id, program) || gd_op_is_view(op->kind))
      continue;
    uint32_t by = gd_op_is_async(op->kind) ? p->awaited[op->out[0]] : id;
    for (uint32_t i = 0; i < op->n_in; i++)
      for (gd_tensor_id in = op->in[i]; in != GD_NONE; in = graph->tensors[in].alias_of)
        p->awaited[in] = by < p->awaited[in] ? by : p->awaited[in];
  }
}

static void extend(uint32_t *last_use, uint32_t op) {
  if (*last_use < op)
    *last_use = op;
}

static void find_last_uses(struct planner *p, enum gd_program program) {
  const struct gd_graph *graph = p->graph;
  gd_op_id end = 0;
  memset(p->last_use, 0, graph->n_tensors * sizeof *p->last_use);
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    if (in_program(graph, id, program))
      end = id;
  find_awaited(p, program);
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    if (!in_program(graph, id, program))
      continue;
    const struct gd_op *op = &graph->ops[id];
    uint32_t until = id; /* an asynchronous op needs its memory until it is waited for */
    if (gd_op_is_async(op->kind))
      until = p->awaited[op->out[0]] != GD_NONE ? p->awaited[op->out[0]] : end;
    for (uint32_t i = 0; i < op->n_in; i++)
      if (op->in[i] != GD_NONE)
        extend(&p->last_use[gd_tensor_root(graph, op->in[i], NULL)], until);
    for (uint32_t i = 0; i < op->n_out; i++) /* an output nobody reads lives at its own op */
      extend(&p->last_use[gd_tensor_root(graph, op->out[i], NULL)], until);
  }
  /* What the host reads after the update must survive to its end. */
  if (program == GD_PROGRAM_UPDATE && graph->norm != GD_NONE)
    p->last_use[graph->norm] = p->last_use[graph->factor] = graph->n_ops - 1;
}

/* Whether output 0 of an op may take the buffer of input `at`, which dies there. */
static bool may_take(const struct planner *p, gd_op_id id, uint32_t at) {
  const struct gd_graph *graph = p->graph;
  const struct gd_op *op = &graph->ops[id];
  enum gd_space space = graph->tensors[op->out[0]].space;
  int64_t offset;
  gd_tensor_id root = gd_tensor_root(graph, op->in[at], &offset);
  uint32_t buffer = p->buffer_of[root];
  if (!is_transient(graph, root) || offset != 0 || buffer == GD_NONE ||
      graph->tensors[root].space != space || p->pools[space].intervals[buffer].last != id ||
      gd_tensor_bytes(graph, root) != gd_tensor_bytes(graph, op->out[0]))
    return false;
  for (uint32_t j = 0; j < op->n_in; j++) { /* what is not elementwise the same stays intact */
    if (j == at || op->in[j] == op->in[at])
      continue;
    gd_tensor_id other = gd_tensor_root(graph, op->in[j], NULL);
    if (graph->tensors[other].space == space && p->buffer_of[other] == buffer)
      return false;
  }
  return true;
}

/* Whether an op is dGELU as the epilogue of a GEMM can compute it: the tanh form. See
   backend/cuda/gemm/gemm_epilogue.c. */
static bool is_gelu_gradient(const struct gd_graph *graph, const struct gd_op *op) {
  const struct gd_fusion *fusion = gd_op_fusion(graph, op);
  if (fusion)
    op = &fusion->body.ops[0];
  return gd_op_info(op->kind)->work == GD_WORK_ACTIVATE_GRAD &&
         op->attr.activate.function == GD_ACTIVATION_GELU_TANH;
}

/* The input that dies at `id` and that output 0 may overwrite, or GD_NONE. dGELU overwrites the
   input that a matmul has written last: the matmul can then compute dGELU in its epilogue. */
static uint32_t inplace_input(struct planner *p, gd_op_id id) {
  const struct gd_graph *graph = p->graph;
  const struct gd_op *op = &graph->ops[id];
  uint64_t permitted = gd_op_inplace(graph, op);
  uint32_t first = GD_NONE, latest = GD_NONE;
  gd_op_id written = 0;
  for (uint32_t i = 0; i < op->n_in && i < 64; i++) {
    if (!(permitted >> i & 1u) || !may_take(p, id, i))
      continue;
    gd_op_id producer = graph->tensors[gd_tensor_root(graph, op->in[i], NULL)].producer;
    first = first == GD_NONE ? i : first;
    if (latest == GD_NONE || producer > written) {
      latest = i;
      written = producer;
    }
  }
  if (!p->over_matmuls || latest == first || !is_gelu_gradient(graph, op) ||
      gd_op_info(graph->ops[written].kind)->work != GD_WORK_MATMUL)
    return first;
  p->n_over++;
  return latest;
}

static void make_buffers(struct planner *p, enum gd_program program) {
  const struct gd_graph *graph = p->graph;
  for (int space = 0; space < GD_SPACE_COUNT; space++)
    p->pools[space].n_intervals = 0;
  p->n_over = p->n_inplace = 0;
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    if (!in_program(graph, id, program))
      continue;
    const struct gd_op *op = &graph->ops[id];
    for (uint32_t i = 0; i < op->n_out; i++) {
      gd_tensor_id out = op->out[i];
      struct pool *pool = &p->pools[graph->tensors[out].space];
      if (graph->tensors[out].alias_of != GD_NONE)
        continue;
      uint32_t over = i == 0 ? inplace_input(p, id) : GD_NONE, buffer;
      if (over != GD_NONE) {
        buffer = p->buffer_of[gd_tensor_root(graph, op->in[over], NULL)];
        p->n_inplace++;
      } else {
        buffer = pool->n_intervals++;
        pool->intervals[buffer] = (struct gd_interval){
            .bytes = gd_round_up(gd_tensor_bytes(graph, out), p->caps->alignment_bytes),
            .first = id};
      }
      pool->intervals[buffer].last = p->last_use[out];
      p->buffer_of[out] = buffer;
    }
  }
}

/* Gathered weights among what is alive there, each buffer once. */
static int64_t count_gathered(const struct planner *p, enum gd_program program, gd_op_id at) {
  const struct gd_graph *graph = p->graph;
  const struct pool *pool = &p->pools[GD_SPACE_DEVICE];
  int64_t bytes = 0;
  for (gd_op_id id = 0; id <= at; id++) {
    const struct gd_op *op = &graph->ops[id];
    const struct gd_op_info *info = gd_op_info(op->kind);
    if (info->exchange != GD_EXCHANGE_SHARE || info->op_class != GD_CLASS_PURE ||
        !in_program(graph, id, program) || graph->tensors[op->out[0]].space != GD_SPACE_DEVICE)
      continue;
    const struct gd_interval *buffer = &pool->intervals[p->buffer_of[op->out[0]]];
    if (buffer->first == id && buffer->last >= at)
      bytes += buffer->bytes;
  }
  return bytes;
}

/* The most bytes alive at one op: the bound that packing is measured against. */
static int64_t find_live_peak(struct planner *p, enum gd_program program, enum gd_space space) {
  const struct pool *pool = &p->pools[space];
  int64_t live = 0, most = 0, before = p->plan->live_bytes;
  memset(p->live_change, 0, ((size_t)p->graph->n_ops + 1) * sizeof *p->live_change);
  for (uint32_t i = 0; i < pool->n_intervals; i++) {
    p->live_change[pool->intervals[i].first] += pool->intervals[i].bytes;
    p->live_change[pool->intervals[i].last + 1] -= pool->intervals[i].bytes;
  }
  for (gd_op_id id = 0; id < p->graph->n_ops; id++) {
    live += p->live_change[id];
    most = live > most ? live : most;
    if (space == GD_SPACE_DEVICE && live > p->plan->live_bytes) {
      p->plan->live_bytes = live;
      p->plan->live_at = id;
    }
  }
  if (space == GD_SPACE_DEVICE && p->plan->live_bytes > before)
    p->plan->gathered_bytes = count_gathered(p, program, p->plan->live_at);
  return most;
}

/* Buffers of a program and their places. */
static enum gd_status pack_program(struct planner *p, enum gd_program program, bool over_matmuls,
                                   int64_t peaks[GD_SPACE_COUNT], struct gd_error *err) {
  p->over_matmuls = over_matmuls;
  make_buffers(p, program);
  for (int space = 0; space < GD_SPACE_COUNT; space++) {
    struct pool *pool = &p->pools[space];
    double bytes = 0;
    for (uint32_t i = 0; i < pool->n_intervals; i++)
      bytes += (double)pool->intervals[i].bytes;
    GD_TRY(check_sum(bytes, "activations", err));
    int64_t live_bytes = find_live_peak(p, program, (enum gd_space)space);
    peaks[space] = gd_pack_intervals(pool->intervals, pool->n_intervals, live_bytes);
    if (peaks[space] < 0)
      return no_memory(err);
  }
  return GD_OK;
}

/* Places of the buffers of all memories, one memory behind the other; NULL when memory is out. */
static struct gd_interval *save_places(const struct planner *p) {
  size_t count = 0;
  for (int space = 0; space < GD_SPACE_COUNT; space++)
    count += p->pools[space].n_intervals;
  struct gd_interval *places = gd_mem_alloc(count + 1, sizeof *places);
  count = 0;
  for (int space = 0; places && space < GD_SPACE_COUNT; space++)
    for (uint32_t i = 0; i < p->pools[space].n_intervals; i++)
      places[count++] = p->pools[space].intervals[i];
  return places;
}

/* The buffers that pack_program made with over_matmuls, at the places that were saved. */
static void restore_places(struct planner *p, enum gd_program program,
                           const struct gd_interval *places) {
  p->over_matmuls = true;
  make_buffers(p, program);
  for (int space = 0; space < GD_SPACE_COUNT; space++)
    for (uint32_t i = 0; i < p->pools[space].n_intervals; i++)
      p->pools[space].intervals[i] = *places++;
}

/* dGELU overwrites what a matmul has written (planner.over_matmuls) unless that packs worse; the
   bytes alive at once are the same either way. */
static enum gd_status place_buffers(struct planner *p, enum gd_program program,
                                    struct gd_error *err) {
  int64_t peaks[GD_SPACE_COUNT], without[GD_SPACE_COUNT];
  GD_TRY(pack_program(p, program, true, peaks, err));
  if (p->n_over > 0 && peaks[GD_SPACE_DEVICE] > find_live_peak(p, program, GD_SPACE_DEVICE)) {
    struct gd_interval *places = save_places(p);
    enum gd_status status = places ? pack_program(p, program, false, without, err) : no_memory(err);
    if (status == GD_OK && peaks[GD_SPACE_DEVICE] <= without[GD_SPACE_DEVICE])
      restore_places(p, program, places);
    else
      memcpy(peaks, without, sizeof peaks);
    gd_mem_free(places);
    GD_TRY(status);
  }
  for (int space = 0; space < GD_SPACE_COUNT; space++) {
    int64_t *most = tally(p->plan, GD_CATEGORY_ACTIVATIONS, (enum gd_space)space);
    *most = peaks[space] > *most ? peaks[space] : *most;
    p->plan->n_buffers += p->pools[space].n_intervals;
  }
  p->plan->n_inplace += p->n_inplace;
  return GD_OK;
}

/* What a program runs, in order. The last micro-step has the memory of the others, so it is not
   planned apart. */
static enum gd_status make_order(struct planner *p, enum gd_program program, struct gd_error *err) {
  const struct gd_graph *graph = p->graph;
  enum gd_program planned = program == GD_PROGRAM_LAST_MICRO_STEP ? GD_PROGRAM_MICRO_STEP : program;
  gd_op_id *order = gd_arena_alloc(&p->plan->arena, graph->n_ops, sizeof *order);
  if (!order)
    return no_memory(err);
  p->plan->order[program] = order;
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    if (!in_program(graph, id, planned) || gd_op_is_view(graph->ops[id].kind))
      continue;
    p->plan->has_last |= graph->ops[id].last_only;
    if (!graph->ops[id].last_only || program == GD_PROGRAM_LAST_MICRO_STEP)
      order[p->plan->n_order[program]++] = id;
  }
  return GD_OK;
}

/* Which asynchronous op each op waits for. find_last_uses keeps the memory of an asynchronous op
   until the first op that waits for it. */
static enum gd_status find_waits(struct planner *p, enum gd_program program, struct gd_error *err) {
  const struct gd_graph *graph = p->graph;
  const gd_op_id *order = p->plan->order[program];
  uint32_t n = p->plan->n_order[program], *made_at = p->awaited; /* by tensor, as waits */
  uint32_t *waits = gd_arena_alloc(&p->plan->arena, (size_t)n + 1, sizeof *waits);
  if (!waits)
    return no_memory(err);
  p->plan->waits[program] = waits;
  memset(made_at, 0, graph->n_tensors * sizeof *made_at);
  for (uint32_t at = 0; at < n; at++) {
    const struct gd_op *op = &graph->ops[order[at]];
    if (gd_op_is_async(op->kind)) {
      for (uint32_t i = 0; i < op->n_out; i++)
        made_at[op->out[i]] = at + 1;
      continue;
    }
    for (uint32_t i = 0; i < op->n_in; i++)
      for (gd_tensor_id in = op->in[i]; in != GD_NONE; in = graph->tensors[in].alias_of)
        waits[at] = made_at[in] > waits[at] ? made_at[in] : waits[at];
  }
  return GD_OK;
}

static enum gd_status plan_program(struct planner *p, enum gd_program program,
                                   const int64_t base[GD_SPACE_COUNT], struct gd_error *err) {
  const struct gd_graph *graph = p->graph;
  GD_TRY(make_order(p, program, err));
  GD_TRY(find_waits(p, program, err));
  if (program == GD_PROGRAM_LAST_MICRO_STEP)
    return GD_OK;
  find_last_uses(p, program);
  GD_TRY(place_buffers(p, program, err));
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    if (!in_program(graph, id, program))
      continue;
    for (uint32_t i = 0; i < graph->ops[id].n_out; i++) {
      gd_tensor_id out = graph->ops[id].out[i];
      int64_t offset;
      gd_tensor_id root = gd_tensor_root(graph, out, &offset);
      enum gd_space space = graph->tensors[root].space;
      int64_t start = p->plan->offset_bytes[root];
      if (is_transient(graph, root))
        start = base[space] + p->pools[space].intervals[p->buffer_of[root]].offset_bytes;
      p->plan->offset_bytes[out] = offset + start;
    }
  }
  return GD_OK;
}

static void place_scratch(struct planner *p, int64_t at[GD_SPACE_COUNT]) {
  struct gd_plan *plan = p->plan;
  const struct gd_graph *graph = p->graph;
  const struct gd_caps *caps = p->caps;
  int64_t bytes = caps->column_bytes * gd_graph_widest_row(graph), most_op_bytes = 0;
  bool collectives = false;
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    int64_t op_bytes = gd_op_scratch_bytes(graph, id);
    most_op_bytes = op_bytes > most_op_bytes ? op_bytes : most_op_bytes;
    collectives |= graph->ranks > 1 && gd_op_is_async(graph->ops[id].kind);
  }
  bytes = bytes > caps->workspace_bytes ? bytes : caps->workspace_bytes;
  bytes = gd_round_up(bytes + most_op_bytes, caps->alignment_bytes);
  plan->workspace_at = at[GD_SPACE_DEVICE];
  plan->comm_at = plan->workspace_at + bytes;
  plan->comm_bytes = collectives ? caps->comm_bytes : 0;
  plan->workspace_bytes = bytes;
  plan->bytes[GD_CATEGORY_WORKSPACE] = bytes + plan->comm_bytes;
  at[GD_SPACE_DEVICE] += plan->bytes[GD_CATEGORY_WORKSPACE];
}

enum gd_status gd_plan_make(const struct gd_graph *graph, const struct gd_caps *caps,
                            struct gd_plan *plan, struct gd_error *err) {
  enum gd_status status = GD_OK;
  size_t n = graph->n_tensors;
  *plan = (struct gd_plan){.graph = graph};
  struct planner p = {.graph = graph,
                      .caps = caps,
                      .plan = plan,
                      .last_use = gd_mem_alloc(n, sizeof *p.last_use),
                      .awaited = gd_mem_alloc(n, sizeof *p.awaited),
                      .buffer_of = gd_mem_alloc(n, sizeof *p.buffer_of),
                      .live_change = gd_mem_alloc((size_t)graph->n_ops + 1, sizeof *p.live_change)};
  bool ok = p.last_use && p.awaited && p.buffer_of && p.live_change;
  for (int space = 0; space < GD_SPACE_COUNT; space++) {
    p.pools[space].intervals = gd_mem_alloc(n, sizeof *p.pools[space].intervals);
    ok = ok && p.pools[space].intervals;
  }
  plan->offset_bytes = gd_arena_alloc(&plan->arena, n, sizeof *plan->offset_bytes);
  if (!ok || !plan->offset_bytes) {
    status = no_memory(err);
    goto done;
  }
  for (size_t i = 0; i < n; i++) {
    plan->offset_bytes[i] = -1;
    p.buffer_of[i] = GD_NONE;
  }
  status = check_leaves(graph, err);
  if (status != GD_OK)
    goto done;
  int64_t at[GD_SPACE_COUNT] = {0};
  place_leaves(&p, at);
  place_scratch(&p, at);
  for (int program = 0; program < GD_PROGRAM_COUNT && status == GD_OK; program++)
    status = plan_program(&p, (enum gd_program)program, at, err);
  for (int category = 0; category < GD_CATEGORY_DEVICE_COUNT; category++) {
    plan->device_bytes += plan->bytes[category];
    plan->bytes[GD_CATEGORY_HOST] += plan->host_parts[category];
  }
  plan->host_bytes = plan->bytes[GD_CATEGORY_HOST];
done:
  gd_mem_free(p.last_use);
  gd_mem_free(p.awaited);
  gd_mem_free(p.buffer_of);
  gd_mem_free(p.live_change);
  for (int space = 0; space < GD_SPACE_COUNT; space++)
    gd_mem_free(p.pools[space].intervals);
  if (status != GD_OK)
    gd_plan_deinit(plan);
  return status;
}

void gd_plan_deinit(struct gd_plan *plan) {
  gd_arena_deinit(&plan->arena);
  *plan = (struct gd_plan){0};
}

/* --- answers ------------------------------------------------------------------------------- */

/* "parameters 5.65 GiB, ...": of the device all categories; of the host those that it has, which
   are offloaded state and the batch on its way to the device. */
static void append_breakdown(const int64_t *parts, bool host, struct gd_strbuf *out) {
  for (int category = 0; category < GD_CATEGORY_DEVICE_COUNT; category++) {
    char bytes[32];
    bool staging = host && category == GD_CATEGORY_INPUTS;
    if (host && parts[category] == 0)
      continue;
    gd_strbuf_printf(out, "%s%s %s", out->length ? ", " : "",
                     staging ? "staging of the batch" : category_names[category],
                     gd_format_bytes(bytes, sizeof bytes, parts[category]));
  }
}

enum gd_status gd_plan_fits(const struct gd_plan *plan, int64_t device_limit, int64_t host_limit,
                            struct gd_error *err) {
  char need[32], have[32], miss[32];
  struct gd_strbuf parts = {0};
  if (plan->device_bytes > device_limit) {
    append_breakdown(plan->bytes, false, &parts);
    gd_fail(err, GD_NOMEM_DEVICE, "needs %s of device memory (%s) and has %s: %s too little",
            gd_format_bytes(need, sizeof need, plan->device_bytes), parts.text ? parts.text : "",
            gd_format_bytes(have, sizeof have, device_limit),
            gd_format_bytes(miss, sizeof miss, plan->device_bytes - device_limit));
    gd_strbuf_deinit(&parts);
    return GD_NOMEM_DEVICE;
  }
  if (plan->host_bytes > host_limit) {
    append_breakdown(plan->host_parts, true, &parts);
    gd_fail(err, GD_NOMEM_HOST,
            "needs %s of host memory (%s) and has %s: %s too little; --host-memory sets that limit",
            gd_format_bytes(need, sizeof need, plan->host_bytes), parts.text ? parts.text : "",
            gd_format_bytes(have, sizeof have, host_limit),
            gd_format_bytes(miss, sizeof miss, plan->host_bytes - host_limit));
    gd_strbuf_deinit(&parts);
    return GD_NOMEM_HOST;
  }
  return GD_OK;
}

void gd_plan_print(const struct gd_plan *plan, struct gd_strbuf *out) {
  static const char *const programs[GD_PROGRAM_COUNT] = {"micro-step", "update", "init",
                                                         "last micro-step"};
  const struct gd_graph *graph = plan->graph;
  gd_strbuf_append(out, "-- leaves: offset bytes name\n");
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
    if (graph->tensors[id].producer != GD_NONE || plan->offset_bytes[id] < 0)
      continue;
    gd_strbuf_printf(out, "%14" PRId64 " %14" PRId64 "  ", plan->offset_bytes[id],
                     gd_tensor_bytes(graph, id));
    gd_tensor_print(graph, id, out);
    gd_strbuf_append(out, graph->tensors[id].space == GD_SPACE_HOST ? " (host)\n" : "\n");
  }
  for (int program = 0; program < GD_PROGRAM_COUNT; program++) {
    if (program == GD_PROGRAM_LAST_MICRO_STEP && !plan->has_last)
      continue;
    gd_strbuf_printf(out, "-- %s program: %u ops; offset of the first output, then the op\n",
                     programs[program], plan->n_order[program]);
    for (uint32_t i = 0; i < plan->n_order[program]; i++) {
      gd_op_id id = plan->order[program][i];
      gd_strbuf_printf(out, "%14" PRId64 "  ", plan->offset_bytes[graph->ops[id].out[0]]);
      gd_op_print(graph, id, out);
    }
  }
}
