/*
 * Finds the loss of a model, xent of [reshape of] [cast of] [reshape of] x w' [+ bias], and puts
 * linear_xent in its place: the logits of a micro-batch are then never stored. A cast to fp32 on
 * the way changes nothing, since xent computes in fp32 and the gradient comes back in the dtype of
 * the product. Anything else that reads the logits keeps them, and the graph as it is.
 */
#include "pass/kernels.h"

struct pattern {
  gd_op_id ops[4]; /* of the product, and of what follows it up to the xent, last first */
  uint32_t n_ops;
  const struct gd_op *product;
};

/* The op that makes a tensor for one reader alone, or NULL. */
static const struct gd_op *sole_maker(const struct gd_graph_rewrite *r, gd_tensor_id tensor) {
  gd_op_id producer = r->graph->tensors[tensor].producer;
  return producer == GD_NONE || r->n_readers[tensor] != 1 ? NULL : &r->ops[producer];
}

static void skip(const struct gd_graph_rewrite *r, struct pattern *p, enum gd_op_kind kind,
                 gd_tensor_id *tensor) {
  const struct gd_op *maker = sole_maker(r, *tensor);
  if (!maker || maker->kind != kind)
    return;
  p->ops[p->n_ops++] = (gd_op_id)(maker - r->ops);
  *tensor = maker->in[0];
}

/* x w' with the weight as [V,C], in the dtype of both. */
static bool is_projection(const struct gd_graph *graph, const struct gd_op *op) {
  const struct gd_attr_matmul *attr = &op->attr.matmul;
  return op->kind == GD_OP_matmul && !attr->trans_a && attr->trans_b && attr->alpha == 1 &&
         graph->tensors[op->in[1]].rank == 2 &&
         graph->tensors[op->out[0]].dtype == graph->tensors[op->in[0]].dtype;
}

static bool ends_pattern(const struct gd_graph_rewrite *r, gd_op_id id, struct pattern *p) {
  const struct gd_graph *graph = r->graph;
  const struct gd_op *xent = &r->ops[id];
  if (xent->kind != GD_OP_xent || xent->out[0] != graph->loss || r->n_readers[xent->out[1]] > 0)
    return false;
  gd_tensor_id logits = xent->in[0];
  int64_t vocabulary = graph->tensors[logits].dims[graph->tensors[logits].rank - 1];
  *p = (struct pattern){0};
  skip(r, p, GD_OP_reshape, &logits);
  skip(r, p, GD_OP_cast, &logits);
  skip(r, p, GD_OP_reshape, &logits);
  p->product = sole_maker(r, logits);
  if (!p->product || !is_projection(graph, p->product) ||
      graph->tensors[p->product->in[1]].dims[0] != vocabulary)
    return false;
  p->ops[p->n_ops++] = (gd_op_id)(p->product - r->ops);
  return true;
}

enum gd_status gd_kernels_loss(struct gd_graph *graph, struct gd_error *err) {
  struct gd_graph_rewrite r;
  struct pattern p;
  GD_TRY(gd_graph_rewrite_begin(&r, graph, err));
  for (gd_op_id id = 0; id < r.n_ops && graph->error.status == GD_OK; id++) {
    if (!ends_pattern(&r, id, &p)) {
      gd_graph_rewrite_keep(&r, id);
      continue;
    }
    for (uint32_t i = 0; i < p.n_ops; i++)
      gd_graph_rewrite_drop(&r, p.ops[i]);
    gd_graph_rewrite_enter(&r, id);
    const struct gd_op *xent = &r.ops[id];
    gd_tensor_id bias = p.product->n_in > 2 ? p.product->in[2] : GD_NONE;
    struct gd_attr_xent attr = xent->attr.xent;
    attr.tf32 = p.product->attr.matmul.tf32;
    gd_tensor_id loss =
        gd_linear_xent(graph, gd_graph_rewrite_now(&r, p.product->in[0]), p.product->in[1], bias,
                       gd_graph_rewrite_now(&r, xent->in[1]), xent->in[2], attr);
    if (loss != GD_NONE)
      gd_graph_rewrite_replace(&r, xent->out[0], loss);
  }
  return gd_graph_rewrite_end(&r, err);
}
