/*
 * Cheap recomputation: an activation that can be recomputed cheaply from tensors that are saved
 * anyway is not saved. gelu(x) goes, since the gradient of gelu needs x; the output of a norm goes,
 * since the gradient of the norm needs its input. The backward pass recomputes them where it reads
 * them.
 *
 * Part of the compile method, before clusters are formed: a copy that a pointwise op of the
 * backward pass reads becomes part of that op's cluster and is never stored. For GEMMs there is one
 * copy of a tensor, which lives from the first GEMM that reads it to the last.
 *
 * A copy for a GEMM costs a trip through memory of its own. Where there is memory to spare, the
 * last setup->saved_blocks blocks save what GEMMs read; the choice of the plan says how many.
 *
 * What goes from one block to the next is saved: checkpointing saves it too, and must not have to
 * look into the block before.
 */
#include "codegen/lower.h"
#include "pass/pass.h"

enum saving {
  SAVE_NOTHING, /* not there in the backward pass */
  SAVE_TENSOR,  /* read by it, hence saved */
  SAVE_INPUTS,  /* recomputed from what is saved */
};
enum { MOST_DEPTH = 3 }; /* ops in a row that one copy may cost */

struct recompute {
  struct gd_graph *graph;
  struct gd_graph_rewrite rewrite;
  uint8_t *saving;      /* by root tensor of the forward pass */
  uint8_t *depth;       /* SAVE_INPUTS: ops from what is saved to it */
  bool *read;           /* by root: the backward pass reads it */
  bool *needed;         /* by root: a copy would not do for all of its readers there */
  bool *costs;          /* by root: an op that is no part of a cluster reads it there */
  bool *pointwise;      /* by op: it can be part of a cluster */
  int32_t saved_from;   /* first block that saves what costs a copy */
  gd_tensor_id *shared; /* by root: the copy for ops that are no part of a cluster */
};

static bool is_reshape_of(const struct gd_graph *graph, gd_tensor_id id, gd_tensor_id root) {
  return gd_tensor_elements(graph, id) == gd_tensor_elements(graph, root);
}

static bool is_backward(const struct gd_op *op) {
  return op->phase == GD_PHASE_BACKWARD;
}

static void find_saved(struct recompute *r, int64_t saved_blocks) {
  int32_t blocks = gd_graph_blocks(r->graph);
  for (gd_op_id id = 0; id < r->graph->n_ops; id++) {
    int64_t elements, columns;
    r->pointwise[id] = gd_lower_shape(r->graph, id, &elements, &columns);
  }
  r->saved_from = saved_blocks <= 0        ? INT32_MAX
                  : saved_blocks >= blocks ? 0
                                           : blocks - (int32_t)saved_blocks;
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
      enum gd_op_class op_class = gd_op_info(op->kind)->op_class;
      if (!is_reshape_of(graph, op->in[i], root) || op_class == GD_CLASS_STATE ||
          (op_class == GD_CLASS_VIEW && op->n_out > 1) || op->block != graph->tensors[root].block)
        r->needed[root] = true;
    }
  }
}

/* The depth at which output 0 can be recomputed; 0: it cannot. */
static uint8_t depth_of(const struct recompute *r, const struct gd_op *op) {
  const struct gd_graph *graph = r->graph;
  uint8_t depth = 0;
  if (gd_op_info(op->kind)->recompute != GD_RECOMPUTE_CHEAP || r->needed[op->out[0]])
    return 0;
  for (uint32_t i = 0; i < op->n_in; i++) {
    gd_tensor_id root = gd_tensor_root(graph, op->in[i], NULL);
    if (graph->tensors[root].producer == GD_NONE || r->saving[root] == SAVE_TENSOR)
      continue;
    if (r->saving[root] == SAVE_NOTHING || !is_reshape_of(graph, op->in[i], root))
      return 0;
    depth = r->depth[root] > depth ? r->depth[root] : depth;
  }
  return depth < MOST_DEPTH ? (uint8_t)(depth + 1) : 0;
}

static void decide(struct recompute *r) {
  const struct gd_graph *graph = r->graph;
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    const struct gd_op *op = &graph->ops[id];
    if (op->phase != GD_PHASE_FORWARD || gd_op_info(op->kind)->op_class != GD_CLASS_PURE)
      continue;
    for (uint32_t i = 0; i < op->n_out; i++)
      r->saving[op->out[i]] = r->read[op->out[i]] ? SAVE_TENSOR : SAVE_NOTHING;
    gd_tensor_id first = op->out[0]; /* the only output that is recomputed */
    bool saved = r->costs[first] && graph->tensors[first].block >= r->saved_from;
    r->depth[first] = saved ? 0 : depth_of(r, op);
    if (r->depth[first] > 0)
      r->saving[first] = SAVE_INPUTS;
  }
}

/* What stands for a tensor in the backward pass: itself, or a copy that is recomputed here. share:
   one copy for all readers. */
static gd_tensor_id again(struct recompute *r, gd_tensor_id id, bool share) {
  struct gd_graph *graph = r->graph;
  gd_tensor_id root = gd_tensor_root(graph, id, NULL), copy;
  if (graph->error.status != GD_OK || root >= r->rewrite.n_tensors ||
      r->saving[root] != SAVE_INPUTS)
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
    if (r->saving[gd_tensor_root(r->graph, op->in[i], NULL)] == SAVE_INPUTS)
      return true;
  return false;
}

/* The same op on copies. An op that can be part of a cluster gets copies of its own, which then
   become part of the cluster too; others share theirs. */
static void rebuild(struct recompute *r, gd_op_id id, bool pointwise) {
  struct gd_graph *graph = r->graph;
  const struct gd_op *op = &r->rewrite.ops[id];
  gd_tensor_id *in = gd_arena_alloc(&graph->arena, op->n_in, sizeof *in);
  gd_graph_rewrite_enter(&r->rewrite, id);
  if (!in) {
    gd_nomem(&graph->error, "in the recompute pass");
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
  if (ctx->setup->no_compiler)
    return GD_OK;
  size_t n = graph->n_tensors;
  struct recompute r = {.graph = graph,
                        .saving = gd_mem_alloc(n, sizeof *r.saving),
                        .depth = gd_mem_alloc(n, sizeof *r.depth),
                        .read = gd_mem_alloc(n, sizeof *r.read),
                        .needed = gd_mem_alloc(n, sizeof *r.needed),
                        .costs = gd_mem_alloc(n, sizeof *r.costs),
                        .pointwise = gd_mem_alloc((size_t)graph->n_ops + 1, sizeof *r.pointwise),
                        .shared = gd_mem_alloc(n, sizeof *r.shared)};
  GD_ASSERT(graph->backward_done);
  if (!r.saving || !r.depth || !r.read || !r.needed || !r.costs || !r.pointwise || !r.shared) {
    status = gd_nomem(ctx->err, "in the recompute pass");
  } else {
    for (size_t i = 0; i < n; i++)
      r.shared[i] = GD_NONE;
    find_saved(&r, ctx->setup->saved_blocks);
    find_reads(&r);
    decide(&r);
    status = rewrite_backward(&r, ctx->err);
  }
  gd_mem_free(r.saving);
  gd_mem_free(r.depth);
  gd_mem_free(r.read);
  gd_mem_free(r.needed);
  gd_mem_free(r.costs);
  gd_mem_free(r.pointwise);
  gd_mem_free(r.shared);
  return status;
}
