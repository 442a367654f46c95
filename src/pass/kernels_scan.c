/*
 * Fuses the selective scan: the steps that model/mamba.c writes out become one op.
 *
 *   u32 = cast(u)
 *   h = recur(decay(delta, A_log), outer(mul(delta, u32), b))
 *   y = cast(add(contract_states(h, c), mul(u32, d)))
 *
 * is y = scan(u, delta, A_log, b, c, d).
 *
 * Only where nothing else reads what lies between, and where all of that is fp32 and y has the
 * dtype of u: scan computes in fp32 and rounds once, so the replacement rounds as the pattern did.
 */
#include "pass/kernels.h"

enum { INSIDE = 8 }; /* ops of the pattern but the last */

struct pattern {
  gd_op_id inside[INSIDE];
  uint32_t n_inside;
  gd_tensor_id u, delta, a_log, b, c, d;
};

/*
 * The inputs of the op that makes `id`; the op joins the pattern. NULL: it is of another kind, its
 * result is not fp32, or its result has more or fewer readers.
 */
static const gd_tensor_id *above(const struct gd_graph_rewrite *r, struct pattern *p,
                                 gd_tensor_id id, enum gd_op_kind kind, uint32_t readers) {
  const struct gd_tensor *t = &r->graph->tensors[id];
  if (t->producer == GD_NONE || r->ops[t->producer].kind != kind || t->dtype != GD_DTYPE_F32 ||
      r->n_readers[id] != readers)
    return NULL;
  GD_ASSERT(p->n_inside < INSIDE);
  p->inside[p->n_inside++] = t->producer;
  return r->ops[t->producer].in;
}

/* Whether this op ends a pattern. */
static bool match(const struct gd_graph_rewrite *r, gd_op_id last, struct pattern *p) {
  const struct gd_tensor *tensors = r->graph->tensors;
  const gd_tensor_id *sum, *contract, *skip, *recur, *decay, *outer, *input, *widen;
  p->n_inside = 0;
  if (r->ops[last].kind != GD_OP_cast || /* from y upwards */
      !(sum = above(r, p, r->ops[last].in[0], GD_OP_add, 1)) ||
      !(contract = above(r, p, sum[0], GD_OP_contract_states, 1)) ||
      !(skip = above(r, p, sum[1], GD_OP_mul, 1)) ||
      !(recur = above(r, p, contract[0], GD_OP_recur, 1)) ||
      !(decay = above(r, p, recur[0], GD_OP_decay, 1)) ||
      !(outer = above(r, p, recur[1], GD_OP_outer, 1)) ||
      !(input = above(r, p, outer[0], GD_OP_mul, 1)) ||
      !(widen = above(r, p, skip[0], GD_OP_cast, 2)) || /* by skip and input: */
      input[1] != skip[0] || input[0] != decay[0])
    return false;
  p->u = widen[0];
  p->delta = decay[0];
  p->a_log = decay[1];
  p->b = outer[1];
  p->c = contract[1];
  p->d = skip[1];
  return tensors[p->u].dtype == tensors[r->ops[last].out[0]].dtype &&
         tensors[p->b].dtype == tensors[p->c].dtype && tensors[p->d].rank == 1 &&
         tensors[p->d].dtype == GD_DTYPE_F32;
}

enum gd_status gd_kernels_scan(struct gd_graph *graph, struct gd_error *err) {
  struct gd_graph_rewrite r;
  GD_TRY(gd_graph_rewrite_begin(&r, graph, err));
  for (gd_op_id id = 0; id < r.n_ops; id++) {
    struct pattern p;
    if (!match(&r, id, &p)) {
      gd_graph_rewrite_keep(&r, id);
      continue;
    }
    for (uint32_t i = 0; i < p.n_inside; i++)
      gd_graph_rewrite_drop(&r, p.inside[i]);
    gd_graph_rewrite_enter(&r, id);
    gd_tensor_id y =
        gd_scan(graph, gd_graph_rewrite_now(&r, p.u), gd_graph_rewrite_now(&r, p.delta),
                gd_graph_rewrite_now(&r, p.a_log), gd_graph_rewrite_now(&r, p.b),
                gd_graph_rewrite_now(&r, p.c), gd_graph_rewrite_now(&r, p.d));
    gd_graph_rewrite_replace(&r, r.ops[id].out[0], y);
  }
  return gd_graph_rewrite_end(&r, err);
}
