/*
 * Finds the loss of a model, xent of [reshape of] [cast of] [reshape of] x w' [+ bias], and puts
 * linear_xent in its place: the logits of a micro-batch are then never stored. A cast to fp32 on
 * the way changes nothing, since xent computes in fp32 and the gradient comes back in the dtype of
 * the matmul. Where another op reads the logits, the graph stays as it is.
 */
#include "pass/kernels.h"

struct pattern {
  gd_op_id ops[4]; /* the ops between matmul and xent, last first, then the matmul */
  uint32_t n_ops;
  const struct gd_op *matmul;
};

/* Steps back over an op of that kind, where there is one. */
static void skip(const struct gd_graph_rewrite *r, struct pattern *p, enum gd_op_kind kind,
                 gd_tensor_id *tensor) {
  gd_op_id maker = gd_kernels_maker(r, *tensor, kind);
  if (maker == GD_NONE)
    return;
  p->ops[p->n_ops++] = maker;
  *tensor = r->ops[maker].in[0];
}

/* Whether a matmul is x w' with the weight as [V,C], and rounds to the dtype of x. */
static bool is_projection(const struct gd_graph *graph, const struct gd_op *op) {
  const struct gd_attr_matmul *attr = &op->attr.matmul;
  return !attr->trans_a && attr->trans_b && attr->alpha == 1 &&
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
  gd_op_id matmul = gd_kernels_maker(r, logits, GD_OP_matmul);
  if (matmul == GD_NONE || !is_projection(graph, &r->ops[matmul]) ||
      graph->tensors[r->ops[matmul].in[1]].dims[0] != vocabulary)
    return false;
  p->matmul = &r->ops[matmul];
  p->ops[p->n_ops++] = matmul;
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
    gd_tensor_id bias = p.matmul->n_in > 2 ? p.matmul->in[2] : GD_NONE;
    struct gd_attr_xent attr = xent->attr.xent;
    attr.tf32 = p.matmul->attr.matmul.tf32;
    gd_tensor_id loss =
        gd_linear_xent(graph, gd_graph_rewrite_now(&r, p.matmul->in[0]), p.matmul->in[1], bias,
                       gd_graph_rewrite_now(&r, xent->in[1]), xent->in[2], attr);
    if (loss != GD_NONE)
      gd_graph_rewrite_replace(&r, xent->out[0], loss);
  }
  return gd_graph_rewrite_end(&r, err);
}
