/*
 * Attention without stored scores: finds what gd_blocks_attention (model/blocks.c) builds,
 *
 *   [q = reshape(q)]  scores = matmul(q, k^T) * alpha  [reshape]  softmax  [dropout]  [reshape]
 *   out = matmul(weights, v)
 *
 * and puts one attention op in its place. The reshapes are there where heads share keys. Nothing
 * else may read what is in between, because none of it exists afterwards. The random numbers of
 * dropout are those of the ops it replaces.
 */
#include "pass/kernels.h"

struct match {
  gd_op_id dropped[8]; /* old ops, each before the last matmul */
  uint32_t n_dropped;
  gd_tensor_id q, k, v, seed; /* old tensors; q has dims or must be reshaped to them */
  int64_t dims[4];            /* B, N, T, D */
  struct gd_attr_attention attr;
};

static const struct gd_tensor *tensor(const struct gd_graph_rewrite *r, gd_tensor_id id) {
  return &r->graph->tensors[id];
}

/* The op that makes x if it is of that kind and x has no other reader; it goes into the match. */
static const struct gd_op *take(const struct gd_graph_rewrite *r, struct match *m, gd_tensor_id x,
                                enum gd_op_kind kind) {
  gd_op_id id = gd_kernels_maker(r, x, kind);
  if (id == GD_NONE || r->ops[id].out[0] != x)
    return NULL;
  m->dropped[m->n_dropped++] = id;
  return &r->ops[id];
}

/* What x was before a reshape, or x itself. */
static gd_tensor_id before_reshape(const struct gd_graph_rewrite *r, struct match *m,
                                   gd_tensor_id x) {
  const struct gd_op *op = take(r, m, x, GD_OP_reshape);
  return op ? op->in[0] : x;
}

static bool is_matmul(const struct gd_op *op, bool trans_b) {
  const struct gd_attr_matmul *attr = &op->attr.matmul;
  return op->kind == GD_OP_matmul && op->n_in == 2 && !attr->trans_a && attr->trans_b == trans_b &&
         attr->out_dtype == GD_DTYPE_COUNT;
}

/* Whether the shapes are those of attention: scores[B,N,T,T], with q and weights as [B,M,N/M T,.]
   before the matmuls. */
static bool shapes_fit(const struct gd_graph_rewrite *r, struct match *m, const struct gd_op *first,
                       const struct gd_op *softmax, const struct gd_op *last) {
  const struct gd_tensor *k = tensor(r, m->k), *v = tensor(r, m->v);
  const struct gd_tensor *scores = tensor(r, softmax->in[0]);
  if (k->rank != 4 || scores->rank != 4 || !gd_kernels_has_dims(v, 4, k->dims))
    return false;
  int64_t b = scores->dims[0], n = scores->dims[1], t = scores->dims[2], d = k->dims[3];
  int64_t key_heads = k->dims[1];
  if (scores->dims[3] != t || k->dims[0] != b || k->dims[2] != t || key_heads < 1 ||
      n % key_heads != 0)
    return false;
  int64_t rows = n / key_heads * t;
  m->dims[0] = b;
  m->dims[1] = n;
  m->dims[2] = t;
  m->dims[3] = d;
  return gd_kernels_has_dims(tensor(r, first->in[0]), 4, (int64_t[]){b, key_heads, rows, d}) &&
         gd_kernels_has_dims(tensor(r, last->in[0]), 4, (int64_t[]){b, key_heads, rows, t});
}

/* Whether the pattern ends with old op `id`. */
static bool find_match(const struct gd_graph_rewrite *r, gd_op_id id, struct match *m) {
  const struct gd_op *last = &r->ops[id];
  if (!is_matmul(last, false) || last->attr.matmul.alpha != 1)
    return false;
  *m = (struct match){.v = last->in[1], .seed = GD_NONE};
  gd_tensor_id weights = before_reshape(r, m, last->in[0]);
  const struct gd_op *dropout = take(r, m, weights, GD_OP_dropout);
  if (dropout && dropout->attr.dropout.per_sample)
    return false;
  if (dropout) {
    m->seed = dropout->in[1];
    m->attr.probability = dropout->attr.dropout.probability;
    m->attr.stream = dropout->attr.dropout.stream;
  }
  const struct gd_op *softmax = take(r, m, dropout ? dropout->in[0] : weights, GD_OP_softmax);
  if (!softmax)
    return false;
  const struct gd_op *first = take(r, m, before_reshape(r, m, softmax->in[0]), GD_OP_matmul);
  if (!first || !is_matmul(first, true))
    return false;
  m->k = first->in[1];
  m->attr.causal = softmax->attr.softmax.causal;
  m->attr.scale = first->attr.matmul.alpha;
  if (!shapes_fit(r, m, first, softmax, last))
    return false;
  m->q = first->in[0];
  if (!gd_kernels_has_dims(tensor(r, m->q), 4,
                           m->dims)) { /* a reshape the other way round is not needed */
    struct match with_reshape = *m;
    gd_tensor_id q = before_reshape(r, &with_reshape, m->q);
    if (q != m->q && gd_kernels_has_dims(tensor(r, q), 4, m->dims)) {
      *m = with_reshape;
      m->q = q;
    }
  }
  return true;
}

static void replace(struct gd_graph_rewrite *r, gd_op_id id, const struct match *m) {
  struct gd_graph *graph = r->graph;
  gd_tensor_id old = r->ops[id].out[0], q = gd_graph_rewrite_now(r, m->q);
  for (uint32_t i = 0; i < m->n_dropped; i++)
    gd_graph_rewrite_drop(r, m->dropped[i]);
  gd_graph_rewrite_enter(r, id);
  if (!gd_kernels_has_dims(&graph->tensors[q], 4, m->dims))
    q = gd_reshape(graph, q, 4, m->dims);
  gd_tensor_id out =
      gd_attention(graph, q, gd_graph_rewrite_now(r, m->k), gd_graph_rewrite_now(r, m->v),
                   m->seed == GD_NONE ? GD_NONE : gd_graph_rewrite_now(r, m->seed), m->attr);
  if (out != GD_NONE && !gd_kernels_has_dims(&graph->tensors[old], 4, m->dims))
    out = gd_reshape(graph, out, 4, graph->tensors[old].dims);
  gd_graph_rewrite_replace(r, old, out);
}

enum gd_status gd_kernels_attention(struct gd_graph *graph, struct gd_error *err) {
  struct gd_graph_rewrite rewrite;
  GD_ASSERT(!graph->backward_done);
  GD_TRY(gd_graph_rewrite_begin(&rewrite, graph, err));
  for (gd_op_id id = 0; id < rewrite.n_ops; id++) {
    struct match match;
    if (find_match(&rewrite, id, &match))
      replace(&rewrite, id, &match);
    else
      gd_graph_rewrite_keep(&rewrite, id);
  }
  return gd_graph_rewrite_end(&rewrite, err);
}
