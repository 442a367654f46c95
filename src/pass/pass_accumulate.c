/*
 * Gradients added in place. Autodiff makes every contribution to a parameter's gradient as a tensor
 * of its own and adds it to the GRAD leaf with an accumulate. Where the op that makes it can add to
 * memory itself (ops.def, fact ADDS), this pass lets it: the output becomes an alias of the leaf
 * and the accumulate goes. That saves the transient gradient and one trip of it through memory; an
 * embedding's gradient then touches only the rows that are in the batch.
 *
 * Runs after autodiff. The sums are the same but for those ops that add in pieces (embed_grad,
 * scan_grad), whose order of additions changes.
 */
#include "pass/pass.h"

/* An accumulate that another op takes over. */
struct fold {
  gd_op_id maker;    /* the op that makes the contribution */
  uint32_t output;   /* which of its outputs that is */
  gd_tensor_id leaf; /* the gradient that it is added to */
};

/* The leaf whose memory a tensor uses, which may be a piece of a flat leaf. */
static gd_tensor_id leaf_of(const struct gd_graph *graph, gd_tensor_id id) {
  while (graph->tensors[id].producer != GD_NONE && graph->tensors[id].alias_of != GD_NONE)
    id = graph->tensors[id].alias_of;
  return id;
}

/* Whether two leaves share memory: they are one, or one is a piece of the other. */
static bool overlap(const struct gd_graph *graph, gd_tensor_id a, gd_tensor_id b) {
  return a == b || graph->tensors[a].alias_of == b || graph->tensors[b].alias_of == a;
}

static bool touches(const struct gd_graph *graph, const struct gd_op *op, gd_tensor_id leaf) {
  for (uint32_t i = 0; i < op->n_in; i++)
    if (op->in[i] != GD_NONE && overlap(graph, leaf_of(graph, op->in[i]), leaf))
      return true;
  for (uint32_t i = 0; i < op->n_out; i++)
    if (overlap(graph, leaf_of(graph, op->out[i]), leaf))
      return true;
  return false;
}

/* Whether accumulate `id` can be folded into the op that makes what it adds. */
static bool find_fold(const struct gd_graph_rewrite *r, gd_op_id id, struct fold *fold) {
  const struct gd_graph *graph = r->graph;
  const struct gd_op *accumulate = &r->ops[id];
  if (accumulate->kind != GD_OP_accumulate)
    return false;
  gd_tensor_id leaf = leaf_of(graph, accumulate->in[0]);
  if (graph->tensors[gd_tensor_root(graph, leaf, NULL)].role != GD_ROLE_GRAD ||
      graph->tensors[leaf].producer != GD_NONE)
    return false;
  gd_tensor_id made = accumulate->in[1];
  gd_op_id maker = graph->tensors[made].producer;
  /* A reshape leaves the elements in order, so what it reads can be added just as well. */
  while (maker != GD_NONE && r->n_readers[made] == 1 && r->ops[maker].kind == GD_OP_reshape) {
    made = r->ops[maker].in[0];
    maker = graph->tensors[made].producer;
  }
  if (maker == GD_NONE || r->n_readers[made] != 1 || graph->tensors[made].dtype != GD_DTYPE_F32 ||
      graph->tensors[made].alias_of != GD_NONE)
    return false;
  if (made != accumulate->in[1] && r->n_readers[accumulate->out[0]] > 0)
    return false; /* its readers want the dims of the leaf */
  *fold = (struct fold){maker, made - r->ops[maker].out[0], leaf};
  if (!(gd_op_info(r->ops[maker].kind)->adds >> fold->output & 1u))
    return false;
  /* The addition moves to the maker: nothing on the way may see the leaf without it. */
  for (gd_op_id other = maker; other < id; other++)
    if (r->place[other] != GD_NONE && touches(graph, &r->ops[other], fold->leaf))
      return false;
  return true;
}

enum gd_status gd_pass_accumulate(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  struct gd_graph_rewrite r;
  struct fold fold;
  GD_TRY(gd_graph_rewrite_begin(&r, graph, ctx->err));
  for (gd_op_id id = 0; id < r.n_ops && graph->error.status == GD_OK; id++) {
    if (!find_fold(&r, id, &fold)) {
      gd_graph_rewrite_keep(&r, id);
      continue;
    }
    gd_op_id view = graph->tensors[r.ops[id].in[1]].producer;
    for (; view != fold.maker; view = graph->tensors[r.ops[view].in[0]].producer)
      gd_graph_rewrite_drop(&r, view);
    gd_tensor_id made = r.ops[fold.maker].out[fold.output];
    graph->ops[r.place[fold.maker]].adds |= 1u << fold.output;
    graph->tensors[made].alias_of = fold.leaf;
    if (r.n_readers[r.ops[id].out[0]] > 0) /* the next accumulate of the same leaf */
      gd_graph_rewrite_replace(&r, r.ops[id].out[0], made);
  }
  return gd_graph_rewrite_end(&r, ctx->err);
}
