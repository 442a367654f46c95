/*
 * Offloading: state lies in host memory, and copies stand where the two memories meet.
 *
 * ZeRO 1 and 2 keep the optimizer's state there (moments and fp32 parameters), ZeRO 3 also the
 * shares of the weights that compute, FSDP also the gradients. The rest follows: an op that updates
 * something on the host runs on the host; its inputs from the device are copied to the host before,
 * and what the device needs of its results is copied back. Copies are asynchronous. In the update
 * program the next gradient is copied while Adam works on one, and a result has until the Adam
 * after the next one to arrive, before its memory is used again.
 */
#include "pass/pass.h"

enum { IN_FLIGHT = 2 }; /* results on their way to the device while Adam goes on */

struct offload {
  struct gd_graph_rewrite rewrite;
  gd_tensor_id *copy_of; /* by old tensor: its copy in the other memory; GD_NONE */
  bool *stashed;         /* by old tensor: added to something on the host */
  gd_op_id *adams;       /* old ops that run on the host, in order */
  uint32_t n_adams, done;
  gd_tensor_id returning[IN_FLIGHT]; /* the last results on their way to the device; GD_NONE */
};

static bool on_host(const struct gd_graph *graph, gd_tensor_id id) {
  return graph->tensors[gd_tensor_root(graph, id, NULL)].space == GD_SPACE_HOST;
}

/* What a sharding keeps on the host is a column of methods.def. */
static void move_leaves(struct gd_graph *graph, enum gd_sharding sharding) {
  const struct gd_method_part *part = gd_sharding_part(sharding);
  unsigned moved = part ? part->offloads : GD_STATE_NONE;
  for (uint32_t i = 0; i < graph->n_targets; i++) {
    const struct gd_adam_target *target = &graph->targets[i];
    if (moved & GD_STATE_MASTER)
      graph->tensors[target->param].space = GD_SPACE_HOST;
    if ((moved & GD_STATE_COMPUTE) && target->compute != GD_NONE)
      graph->tensors[target->compute].space = GD_SPACE_HOST;
    if (moved & GD_STATE_GRADIENT)
      graph->tensors[target->grad].space = GD_SPACE_HOST;
  }
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    if ((moved & GD_STATE_MOMENTS) && graph->tensors[id].role == GD_ROLE_OPTIMIZER)
      graph->tensors[id].space = GD_SPACE_HOST;
}

/* A tensor in that memory: itself, or its copy, which is started now where there is none yet. */
static gd_tensor_id fetch(struct offload *o, gd_tensor_id id, enum gd_space space) {
  struct gd_graph *graph = o->rewrite.graph;
  gd_tensor_id now = gd_graph_rewrite_now(&o->rewrite, id);
  if (graph->error.status != GD_OK || on_host(graph, now) == (space == GD_SPACE_HOST))
    return now;
  if (o->copy_of[id] == GD_NONE)
    o->copy_of[id] = gd_transfer(graph, now, space);
  return o->copy_of[id];
}

static gd_tensor_id host_buffer_like(struct gd_graph *graph, gd_tensor_id id) {
  if (graph->error.status != GD_OK)
    return GD_NONE;
  int64_t elements = gd_tensor_elements(graph, id);
  return gd_buffer(graph, (struct gd_attr_buffer){.dtype = graph->tensors[id].dtype,
                                                  .space = GD_SPACE_HOST,
                                                  .elements = elements,
                                                  .used = elements});
}

static void rewrite_adam(struct offload *o, gd_op_id id) {
  struct gd_graph *graph = o->rewrite.graph;
  const struct gd_op *op = &o->rewrite.ops[id];
  gd_tensor_id in[8];
  for (uint32_t i = 0; i < op->n_in; i++)
    in[i] = i < 7 ? fetch(o, op->in[i], GD_SPACE_HOST) : op->in[i];
  if (o->done + 1 < o->n_adams) /* the next gradient is copied while this one is used */
    fetch(o, o->rewrite.ops[o->adams[o->done + 1]].in[1], GD_SPACE_HOST);
  bool returns = op->n_in > 7 && !on_host(graph, op->in[7]);
  gd_tensor_id before = o->returning[o->done % IN_FLIGHT];
  if (returns && before != GD_NONE)
    gd_graph_op(graph, GD_OP_wait, NULL, 1, &before);
  if (returns)
    in[7] = host_buffer_like(graph, op->in[7]);
  gd_tensor_id out = gd_graph_op(graph, GD_OP_adam, &op->attr, op->n_in, in);
  if (out != GD_NONE && returns) /* the device reads the new weights */
    o->returning[o->done % IN_FLIGHT] =
        gd_graph_op(graph, GD_OP_transfer_into, NULL, 2, (gd_tensor_id[]){op->in[7], out + 3});
  o->done++;
}

static void rewrite_op(struct offload *o, gd_op_id id) {
  struct gd_graph_rewrite *r = &o->rewrite;
  struct gd_graph *graph = r->graph;
  const struct gd_op *op = &r->ops[id];
  gd_graph_rewrite_enter(r, id);
  bool host = op->n_in > 0 && on_host(graph, op->in[0]);
  if (op->kind == GD_OP_adam && host) {
    rewrite_adam(o, id);
  } else if (op->kind == GD_OP_gather && host) {
    gd_tensor_id share = fetch(o, op->in[0], GD_SPACE_DEVICE);
    o->copy_of[op->in[0]] = GD_NONE; /* gathered again later: copied again */
    if (op->attr.ranks.ranks > 1)
      share = gd_graph_op(graph, GD_OP_gather, &op->attr, 1, &share);
    if (share != GD_NONE)
      gd_graph_rewrite_replace(r, op->out[0], share);
  } else if (op->kind == GD_OP_accumulate && host) {
    gd_graph_op(graph, GD_OP_accumulate, NULL, 2,
                (gd_tensor_id[]){op->in[0], fetch(o, op->in[1], GD_SPACE_HOST)});
  } else if (op->kind == GD_OP_copy && !host && on_host(graph, op->in[1])) {
    gd_tensor_id buffer = host_buffer_like(graph, op->in[0]);
    gd_graph_op(graph, GD_OP_copy, NULL, 2, (gd_tensor_id[]){buffer, op->in[1]});
    gd_graph_op(graph, GD_OP_transfer_into, NULL, 2, (gd_tensor_id[]){op->in[0], buffer});
  } else {
    gd_graph_rewrite_keep(r, id);
  }
  /* Reduced gradients leave as soon as they are there, long before they are added. */
  for (uint32_t i = 0; i < op->n_out; i++)
    if (o->stashed[op->out[i]])
      fetch(o, op->out[i], GD_SPACE_HOST);
}

enum gd_status gd_pass_offload(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  struct offload o = {.copy_of = gd_mem_alloc(graph->n_tensors, sizeof *o.copy_of),
                      .stashed = gd_mem_alloc(graph->n_tensors, sizeof *o.stashed),
                      .adams = gd_mem_alloc(graph->n_ops, sizeof *o.adams),
                      .returning = {GD_NONE, GD_NONE}};
  enum gd_status status = GD_OK;
  if (!o.copy_of || !o.stashed || !o.adams)
    status = gd_nomem(ctx->err, "in the offload pass");
  if (status == GD_OK) {
    move_leaves(graph, ctx->setup->method.sharding);
    status = gd_graph_rewrite_begin(&o.rewrite, graph, ctx->err);
  }
  if (status == GD_OK) {
    for (gd_tensor_id id = 0; id < o.rewrite.n_tensors; id++)
      o.copy_of[id] = GD_NONE;
    for (gd_op_id id = 0; id < o.rewrite.n_ops; id++) {
      const struct gd_op *op = &o.rewrite.ops[id];
      if (op->kind == GD_OP_adam)
        o.adams[o.n_adams++] = id;
      if (op->kind == GD_OP_accumulate && on_host(graph, op->in[0]) && !on_host(graph, op->in[1]))
        o.stashed[op->in[1]] = true;
    }
    for (gd_op_id id = 0; id < o.rewrite.n_ops; id++)
      rewrite_op(&o, id);
    status = gd_graph_rewrite_end(&o.rewrite, ctx->err);
  }
  gd_mem_free(o.copy_of);
  gd_mem_free(o.stashed);
  gd_mem_free(o.adams);
  return status;
}
