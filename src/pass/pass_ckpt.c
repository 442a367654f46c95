/*
 * Checkpointing: the activations inside a block are not saved. What the backward pass of the block
 * reads is recomputed just before, from the block's input, by the same ops. It has the same bits,
 * dropout masks included, since these are drawn from counters.
 *
 * Saved: what other blocks read (a block's output is the next one's input) and whatever lies
 * outside the blocks. Only what the backward pass needs is recomputed, so the matmul that ends a
 * block runs once.
 */
#include "pass/pass.h"

struct ckpt {
  struct gd_graph_rewrite rewrite;
  bool *shared;        /* by old tensor: read by the forward pass of another block, so it stays */
  bool *needed;        /* by old forward op: runs again */
  gd_tensor_id *again; /* by old tensor: what stands for it in the backward pass; GD_NONE */
  bool *done;          /* by old forward op: it ran again */
};

static void find_shared(struct ckpt *c) {
  const struct gd_graph_rewrite *r = &c->rewrite;
  for (gd_op_id id = 0; id < r->n_ops; id++) {
    const struct gd_op *op = &r->ops[id];
    for (uint32_t i = 0; op->phase == GD_PHASE_FORWARD && i < op->n_in; i++) {
      if (op->in[i] == GD_NONE)
        continue;
      gd_op_id producer = r->graph->tensors[op->in[i]].producer;
      if (producer != GD_NONE && r->ops[producer].block != op->block)
        c->shared[op->in[i]] = true;
    }
  }
}

/* Marks the forward op of that block that makes a tensor which its backward pass needs; not where
   the tensor is saved. */
static void need(struct ckpt *c, gd_tensor_id id, int32_t block) {
  gd_op_id producer = id == GD_NONE ? GD_NONE : c->rewrite.graph->tensors[id].producer;
  if (producer == GD_NONE || c->shared[id])
    return;
  const struct gd_op *op = &c->rewrite.ops[producer];
  if (op->phase == GD_PHASE_FORWARD && op->block == block)
    c->needed[producer] = true;
}

/* Backwards through the ops: consumers come before producers. */
static void find_needed(struct ckpt *c) {
  const struct gd_graph_rewrite *r = &c->rewrite;
  for (gd_op_id id = r->n_ops; id-- > 0;) {
    const struct gd_op *op = &r->ops[id];
    if (op->block >= 0 && (op->phase == GD_PHASE_BACKWARD || c->needed[id]))
      for (uint32_t i = 0; i < op->n_in; i++)
        need(c, op->in[i], op->block);
  }
}

/* The op that must run again before this tensor can be read in the backward pass of the block;
   GD_NONE: the tensor is saved, or its op has run again. */
static gd_op_id gone(const struct ckpt *c, gd_tensor_id id, int32_t block) {
  gd_op_id producer = id == GD_NONE ? GD_NONE : c->rewrite.graph->tensors[id].producer;
  bool away = producer != GD_NONE && producer < c->rewrite.n_ops && c->needed[producer] &&
              !c->done[producer] && !c->shared[id] && c->rewrite.ops[producer].block == block;
  return away ? producer : GD_NONE;
}

/*
 * Recomputes an op, and first the inputs that are gone. This happens as late as possible: of two
 * branches of a block the second is recomputed only after the backward pass of the first. The
 * recursion is at most as deep as a block has ops.
 */
static void run_again(struct ckpt *c, gd_op_id id) { /* NOLINT(misc-no-recursion) */
  struct gd_graph *graph = c->rewrite.graph;
  const struct gd_op *op = &c->rewrite.ops[id];
  c->done[id] = true;
  for (uint32_t i = 0; i < op->n_in; i++)
    if (gone(c, op->in[i], op->block) != GD_NONE)
      run_again(c, gone(c, op->in[i], op->block));
  gd_tensor_id *in = gd_arena_alloc(&graph->arena, op->n_in, sizeof *in);
  if (!in) {
    gd_nomem(&graph->error, "in the ckpt pass");
    return;
  }
  for (uint32_t i = 0; i < op->n_in; i++)
    in[i] =
        op->in[i] != GD_NONE && c->again[op->in[i]] != GD_NONE ? c->again[op->in[i]] : op->in[i];
  gd_tensor_id out = gd_graph_op(graph, op->kind, &op->attr, op->n_in, in);
  if (out == GD_NONE)
    return;
  graph->ops[graph->n_ops - 1].recomputed = true;
  for (uint32_t i = 0; i < op->n_out;
       i++) /* the saved output has the same bits: no need to switch */
    if (!c->shared[op->out[i]])
      c->again[op->out[i]] = out + i;
}

static void rewrite_ops(struct ckpt *c) {
  struct gd_graph_rewrite *r = &c->rewrite;
  for (gd_op_id id = 0; id < r->n_ops; id++) {
    const struct gd_op *op = &r->ops[id];
    if (op->phase == GD_PHASE_BACKWARD && op->block >= 0) {
      gd_graph_rewrite_enter(r, id);
      for (uint32_t i = 0; i < op->n_in && r->graph->error.status == GD_OK; i++)
        if (gone(c, op->in[i], op->block) != GD_NONE)
          run_again(c, gone(c, op->in[i], op->block));
      for (uint32_t i = 0; i < op->n_in; i++)
        if (op->in[i] != GD_NONE && c->again[op->in[i]] != GD_NONE)
          gd_graph_rewrite_replace(r, op->in[i], c->again[op->in[i]]);
    }
    gd_graph_rewrite_keep(r, id);
  }
}

enum gd_status gd_pass_ckpt(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  struct ckpt c = {.shared = gd_mem_alloc(graph->n_tensors, sizeof *c.shared),
                   .needed = gd_mem_alloc(graph->n_ops, sizeof *c.needed),
                   .again = gd_mem_alloc(graph->n_tensors, sizeof *c.again),
                   .done = gd_mem_alloc(graph->n_ops, sizeof *c.done)};
  enum gd_status status = GD_OK;
  if (!c.shared || !c.needed || !c.again || !c.done)
    status = gd_nomem(ctx->err, "in the ckpt pass");
  if (status == GD_OK)
    status = gd_graph_rewrite_begin(&c.rewrite, graph, ctx->err);
  if (status == GD_OK) {
    for (gd_tensor_id id = 0; id < c.rewrite.n_tensors; id++)
      c.again[id] = GD_NONE;
    find_shared(&c);
    find_needed(&c);
    rewrite_ops(&c);
    status = gd_graph_rewrite_end(&c.rewrite, ctx->err);
  }
  gd_mem_free(c.shared);
  gd_mem_free(c.needed);
  gd_mem_free(c.again);
  gd_mem_free(c.done);
  return status;
}
