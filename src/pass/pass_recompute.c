/*
 * Cheap recomputation: what the forward pass can make again from tensors that are kept anyway is
 * not kept. gelu(x) goes, since the gradient of gelu needs x; the output of a norm goes, since the
 * gradient of the norm needs its input. The backward pass makes them again where it reads them.
 *
 * Part of the compile method, before clusters are formed: a copy that a pointwise op of the
 * backward pass reads becomes part of that op's cluster and is never stored. For products there is
 * one copy of a tensor, which lives from the first product that reads it to the last.
 *
 * A copy for a product costs a pass over memory of its own. Where there is memory to spare the last
 * setup->kept_blocks blocks keep what products read; search/trial.c says how many.
 *
 * What goes from one block to the next is kept: checkpointing keeps it too, and must not have to
 * look into the block before.
 */
#include "codegen/lower.h"
#include "pass/pass.h"

enum keeping {
  KEEP_NOTHING, /* not there in the backward pass */
  KEEP_TENSOR,  /* read by it, hence kept */
  KEEP_INPUTS,  /* made again from what is kept */
};
enum { MOST_DEPTH = 3 }; /* ops in a row that one copy may cost */

struct recompute {
  struct gd_graph *graph;
  struct gd_graph_rewrite rewrite;
  uint8_t *keeping;     /* by root tensor of the forward pass */
  uint8_t *depth;       /* KEEP_INPUTS: ops from what is kept to it */
  bool *read, *needed;  /* by root: the backward pass reads it; ... must read it itself */
  bool *costs;          /* by root: an op that is no part of a cluster reads it there */
  bool *pointwise;      /* by op: it can be part of a cluster */
  int32_t kept_from;    /* first block that keeps what costs a copy */
  gd_tensor_id *shared; /* by root: the copy for ops that are no part of a cluster */
};

static bool is_reshape_of(const struct gd_graph *graph, gd_tensor_id id, gd_tensor_id root) {
  return gd_tensor_elements(graph, id) == gd_tensor_elements(graph, root);
}

static bool is_backward(const struct gd_op *op) {
  return op->phase == GD_PHASE_BACKWARD;
}

static void find_kept(struct recompute *r, int64_t kept_blocks) {
  int32_t blocks = gd_graph_blocks(r->graph);
  for (gd_op_id id = 0; id < r->graph->n_ops; id++) {
    int64_t elements, columns;
    r->pointwise[id] = gd_lower_shape(r->graph, id, &elements, &columns);
  }
  r->kept_from = kept_blocks <= 0        ? INT32_MAX
                 : kept_blocks >= blocks ? 0
                                         : blocks - (int32_t)kept_blocks;
}

/* Before the rewriting starts: graph->ops is still whole. */
static void find_reads(struct recompute *r) {
  const struct gd_graph *graph = r->graph;
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    const struct gd_op *op = &graph->ops[id];
    for (uint32_t i = 0; is_backward(op) && i < op->n_in; i++) {
      gd_tensor_id root = gd_tensor_root(graph, op->in[i], NULL);
      r->read[root] = true;
      r->costs[root] = r->costs[root] || !r->pointwise[id];
      if (!is_reshape_of(graph, op->in[i], root) || op->kind == GD_OP_split ||
          gd_op_info(op->kind)->op_class == GD_CLASS_STATE ||
          op->block != graph->tensors[root].block)
        r->needed[root] = true;
    }
  }
}

/* Ops that cost bytes only, and whose gradient reads their input rather than their output. */
static bool is_cheap(enum gd_op_kind kind) {
  switch ((int)kind) {
  case GD_OP_add:
  case GD_OP_mul:
  case GD_OP_cast:
  case GD_OP_dropout:
  case GD_OP_activate:
  case GD_OP_layernorm:
  case GD_OP_rmsnorm:
  case GD_OP_transpose:
  case GD_OP_merge_heads: return true;
  default: return false;
  }
}

/* The depth at which output 0 can be made again; 0: it cannot. */
static uint8_t depth_of(const struct recompute *r, const struct gd_op *op) {
  const struct gd_graph *graph = r->graph;
  uint8_t depth = 0;
  if (!is_cheap(op->kind) || r->needed[op->out[0]])
    return 0;
  for (uint32_t i = 0; i < op->n_in; i++) {
    gd_tensor_id root = gd_tensor_root(graph, op->in[i], NULL);
    if (graph->tensors[root].producer == GD_NONE || r->keeping[root] == KEEP_TENSOR)
      continue;
    if (r->keeping[root] == KEEP_NOTHING || !is_reshape_of(graph, op->in[i], root))
      return 0;
    depth = r->depth[root] > depth ? r->depth[root] : depth;
  }
  return depth < MOST_DEPTH ? (uint8_t)(depth + 1) : 0;
}

static bool is_kept(const struct recompute *r, gd_tensor_id root) {
  return r->costs[root] && r->graph->tensors[root].block >= r->kept_from;
}

static void decide(struct recompute *r) {
  const struct gd_graph *graph = r->graph;
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    const struct gd_op *op = &graph->ops[id];
    if (op->phase != GD_PHASE_FORWARD || gd_op_info(op->kind)->op_class != GD_CLASS_PURE)
      continue;
    for (uint32_t i = 0; i < op->n_out; i++)
      r->keeping[op->out[i]] = r->read[op->out[i]] ? KEEP_TENSOR : KEEP_NOTHING;
    r->depth[op->out[0]] = is_kept(r, op->out[0]) ? 0 : depth_of(r, op);
    if (r->depth[op->out[0]] > 0)
      r->keeping[op->out[0]] = KEEP_INPUTS;
  }
}

/* The tensor as it can be read here: itself, or a copy that is made on the spot. */
static gd_tensor_id again(struct recompute *r, gd_tensor_id id, bool share) {
  struct gd_graph *graph = r->graph;
  gd_tensor_id root = gd_tensor_root(graph, id, NULL), copy;
  if (graph->error.status != GD_OK || root >= r->rewrite.n_tensors ||
      r->keeping[root] != KEEP_INPUTS)
    return gd_graph_rewrite_now(&r->rewrite, id);
  copy = share ? r->shared[root] : GD_NONE;
  if (copy == GD_NONE) {
    const struct gd_op *op = &r->rewrite.ops[graph->tensors[root].producer];
    gd_tensor_id in[4];
    GD_ASSERT(op->n_in <= 4);
    for (uint32_t i = 0; i < op->n_in; i++)
      in[i] = again(r, op->in[i], false); /* NOLINT(misc-no-recursion): at most MOST_DEPTH */
    copy = gd_graph_op(graph, op->kind, &op->attr, op->n_in, in);
    if (share)
      r->shared[root] = copy;
  }
  if (id != root && copy != GD_NONE) {
    const struct gd_tensor view = graph->tensors[id];
    copy = gd_reshape(graph, copy, view.rank, view.dims);
  }
  return copy;
}

static bool reads_copies(const struct recompute *r, const struct gd_op *op) {
  for (uint32_t i = 0; i < op->n_in; i++)
    if (r->keeping[gd_tensor_root(r->graph, op->in[i], NULL)] == KEEP_INPUTS)
      return true;
  return false;
}

/* The same op on copies. Whether it can be part of a cluster decides who shares them. */
static void rebuild(struct recompute *r, gd_op_id id, bool pointwise) {
  struct gd_graph *graph = r->graph;
  const struct gd_op *op = &r->rewrite.ops[id];
  gd_tensor_id *in = gd_arena_alloc(&graph->arena, op->n_in, sizeof *in);
  gd_graph_rewrite_enter(&r->rewrite, id);
  if (!in) {
    gd_fail(&graph->error, GD_ENVIRONMENT, "out of memory in the recompute pass");
    return;
  }
  for (uint32_t i = 0; i < op->n_in; i++) {
    in[i] = GD_NONE;
    for (uint32_t j = 0; j < i; j++)
      in[i] = op->in[j] == op->in[i] ? in[j] : in[i];
    if (in[i] == GD_NONE)
      in[i] = again(r, op->in[i], !pointwise);
  }
  gd_tensor_id first = gd_graph_op(graph, op->kind, &op->attr, op->n_in, in);
  for (uint32_t i = 0; first != GD_NONE && i < op->n_out; i++)
    gd_graph_rewrite_replace(&r->rewrite, op->out[i], first + i);
}

static enum gd_status rewrite_backward(struct recompute *r, struct gd_error *err) {
  enum gd_status status = gd_graph_rewrite_begin(&r->rewrite, r->graph, err);
  if (status == GD_OK) {
    for (gd_op_id id = 0; id < r->rewrite.n_ops; id++) {
      const struct gd_op *op = &r->rewrite.ops[id];
      if (is_backward(op) && reads_copies(r, op))
        rebuild(r, id, r->pointwise[id]);
      else
        gd_graph_rewrite_keep(&r->rewrite, id);
    }
    status = gd_graph_rewrite_end(&r->rewrite, err);
  }
  return status;
}

enum gd_status gd_pass_recompute(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  enum gd_status status;
  size_t n = graph->n_tensors;
  struct recompute r = {.graph = graph,
                        .keeping = gd_mem_alloc(n, sizeof *r.keeping),
                        .depth = gd_mem_alloc(n, sizeof *r.depth),
                        .read = gd_mem_alloc(n, sizeof *r.read),
                        .needed = gd_mem_alloc(n, sizeof *r.needed),
                        .costs = gd_mem_alloc(n, sizeof *r.costs),
                        .pointwise = gd_mem_alloc((size_t)graph->n_ops + 1, sizeof *r.pointwise),
                        .shared = gd_mem_alloc(n, sizeof *r.shared)};
  GD_ASSERT(graph->backward_done);
  if (!r.keeping || !r.depth || !r.read || !r.needed || !r.costs || !r.pointwise || !r.shared) {
    status = gd_fail(ctx->err, GD_ENVIRONMENT, "out of memory in the recompute pass");
  } else {
    for (size_t i = 0; i < n; i++)
      r.shared[i] = GD_NONE;
    find_kept(&r, ctx->setup->kept_blocks);
    find_reads(&r);
    decide(&r);
    status = rewrite_backward(&r, ctx->err);
  }
  gd_mem_free(r.keeping);
  gd_mem_free(r.depth);
  gd_mem_free(r.read);
  gd_mem_free(r.needed);
  gd_mem_free(r.costs);
  gd_mem_free(r.pointwise);
  gd_mem_free(r.shared);
  return status;
}
