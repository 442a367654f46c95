/*
 * One pass over memory on either side of attention. Before attention, models split x into heads and
 * rotate queries and keys by their positions. The ops are, for each of q, k and v (Llama, BERT),
 *
 *   x[B,T,N D]    reshape  transpose  [rope]
 *
 * or, for all three (GPT-NeoX, GPT-2),
 *
 *   x[B,T,3 N D]  reshape  transpose  split in 3  each: reshape  [rope]
 *
 * split_heads replaces them. After attention, reshapes, a transpose and a reshape join the heads:
 * merge_heads replaces these. Nothing else may read what is in between, because none of it exists
 * afterwards. The bits are those of the replaced ops. Runs after the attention rewrite, whose op it
 * looks for.
 */
#include "pass/kernels.h"

enum { MOST_DROPPED = 16 };

/* What attention reads, found from back to front. */
struct match {
  gd_op_id dropped[MOST_DROPPED]; /* old ops */
  uint32_t n_dropped;
  gd_tensor_id x, table; /* old tensors; table: GD_NONE where nothing is rotated */
  struct gd_attr_heads attr;
};

static const struct gd_tensor *tensor(const struct gd_graph_rewrite *r, gd_tensor_id id) {
  return &r->graph->tensors[id];
}

/* What the op of that kind reads that makes x for one reader alone; it goes into the match.
   GD_NONE: there is none. */
static gd_tensor_id take(const struct gd_graph_rewrite *r, struct match *m, gd_tensor_id x,
                         enum gd_op_kind kind) {
  gd_op_id id = gd_kernels_maker(r, x, kind);
  if (id == GD_NONE || m->n_dropped == MOST_DROPPED)
    return GD_NONE;
  m->dropped[m->n_dropped++] = id;
  return r->ops[id].in[0];
}

static bool has_perm(const struct gd_op *op, uint32_t rank, const uint8_t *perm) {
  for (uint32_t i = 0; i < rank; i++)
    if (op->attr.transpose.perm[i] != perm[i])
      return false;
  return true;
}

/* Where a part is made by a rope: *x becomes the input of that rope. False: it rotates by another
   table, width or direction than the parts before it. */
static bool take_rope(const struct gd_graph_rewrite *r, struct match *m, uint32_t part,
                      gd_tensor_id *x) {
  gd_op_id id = gd_kernels_maker(r, *x, GD_OP_rope);
  if (id == GD_NONE)
    return true;
  const struct gd_op *rope = &r->ops[id];
  if (m->attr.rotated && (m->table != rope->in[1] || m->attr.rotary != rope->attr.rope.rotary ||
                          m->attr.inverse != rope->attr.rope.inverse))
    return false;
  m->table = rope->in[1];
  m->attr.rotary = rope->attr.rope.rotary;
  m->attr.inverse = rope->attr.rope.inverse;
  m->attr.rotated |= 1u << part;
  *x = take(r, m, *x, GD_OP_rope);
  return true;
}

/* The last step of both patterns: the transpose of a reshape of x[B,T,C] to these dims. */
static bool take_transpose(const struct gd_graph_rewrite *r, struct match *m,
                           gd_tensor_id transposed, uint32_t rank, const int64_t *dims,
                           const uint8_t *perm) {
  gd_op_id id = gd_kernels_maker(r, transposed, GD_OP_transpose);
  gd_tensor_id apart = take(r, m, transposed, GD_OP_transpose);
  if (apart == GD_NONE || !gd_kernels_has_dims(tensor(r, apart), rank, dims) ||
      !has_perm(&r->ops[id], rank, perm))
    return false;
  m->x = take(r, m, apart, GD_OP_reshape);
  int64_t width = 1;
  for (uint32_t i = 2; i < rank; i++)
    width *= dims[i];
  return m->x != GD_NONE &&
         gd_kernels_has_dims(tensor(r, m->x), 3, (int64_t[]){dims[0], dims[1], width});
}

/* q, k or v alone. */
static bool find_one(const struct gd_graph_rewrite *r, gd_tensor_id heads_BNTD, struct match *m) {
  const struct gd_tensor *t = tensor(r, heads_BNTD);
  int64_t b = t->dims[0], n = t->dims[1], tokens = t->dims[2], d = t->dims[3];
  *m = (struct match){.table = GD_NONE, .attr = {.heads = n, .parts = 1}};
  return take_rope(r, m, 0, &heads_BNTD) &&
         take_transpose(r, m, heads_BNTD, 4, (int64_t[]){b, tokens, n, d}, (uint8_t[]){0, 2, 1, 3});
}

/* q, k and v as the three parts of a split, in this order. */
static bool find_three(const struct gd_graph_rewrite *r, const gd_tensor_id *heads_BNTD,
                       struct match *m) {
  const struct gd_tensor *t = tensor(r, heads_BNTD[0]);
  int64_t b = t->dims[0], n = t->dims[1], tokens = t->dims[2], d = t->dims[3];
  gd_op_id split = GD_NONE;
  *m = (struct match){.table = GD_NONE, .attr = {.heads = n, .parts = 3}};
  for (uint32_t i = 0; i < 3; i++) {
    gd_tensor_id x = heads_BNTD[i];
    if (!gd_kernels_has_dims(tensor(r, x), 4, t->dims) || !take_rope(r, m, i, &x))
      return false;
    gd_tensor_id part = take(r, m, x, GD_OP_reshape);
    gd_op_id from = part == GD_NONE ? GD_NONE : gd_kernels_maker(r, part, GD_OP_split);
    if (from == GD_NONE || (i > 0 && from != split) || r->ops[from].n_out != 3 ||
        r->ops[from].out[i] != part)
      return false;
    split = from;
  }
  gd_tensor_id transposed = take(r, m, r->ops[split].out[0], GD_OP_split);
  struct match other = *m;
  if (take_transpose(r, m, transposed, 5, (int64_t[]){b, tokens, 3, n, d},
                     (uint8_t[]){2, 0, 3, 1, 4}))
    return true;
  *m = other;
  m->attr.interleaved = true;
  return take_transpose(r, m, transposed, 5, (int64_t[]){b, tokens, n, 3, d},
                        (uint8_t[]){3, 0, 2, 1, 4});
}

static gd_tensor_id build_split(struct gd_graph_rewrite *r, const struct match *m) {
  for (uint32_t i = 0; i < m->n_dropped; i++)
    gd_graph_rewrite_drop(r, m->dropped[i]);
  return gd_split_heads(r->graph, gd_graph_rewrite_now(r, m->x),
                        m->table == GD_NONE ? GD_NONE : gd_graph_rewrite_now(r, m->table), m->attr);
}

/* In front of attention op `id`. */
static void split_heads(struct gd_graph_rewrite *r, gd_op_id id) {
  const gd_tensor_id *qkv = r->ops[id].in;
  struct match m;
  gd_graph_rewrite_enter(r, id);
  if (find_three(r, qkv, &m)) {
    gd_tensor_id first = build_split(r, &m);
    for (uint32_t i = 0; i < 3 && first != GD_NONE; i++)
      gd_graph_rewrite_replace(r, qkv[i], first + i);
    return;
  }
  for (uint32_t i = 0; i < 3; i++)
    if (find_one(r, qkv[i], &m))
      gd_graph_rewrite_replace(r, qkv[i], build_split(r, &m));
}

/* Whether op `id` is the reshape to [B,T,N D] that ends the pattern after an attention; m->x is
   then the attention's output. */
static bool find_merge(const struct gd_graph_rewrite *r, gd_op_id id, struct match *m) {
  const struct gd_op *last = &r->ops[id];
  *m = (struct match){.table = GD_NONE, .attr = {.parts = 1}};
  if (last->kind != GD_OP_reshape)
    return false;
  gd_op_id transpose = gd_kernels_maker(r, last->in[0], GD_OP_transpose);
  if (transpose == GD_NONE || tensor(r, last->in[0])->rank != 4 ||
      !has_perm(&r->ops[transpose], 4, (uint8_t[]){0, 2, 1, 3}))
    return false;
  gd_tensor_id x = take(r, m, last->in[0], GD_OP_transpose);
  const int64_t *dims = tensor(r, x)->dims;
  while (gd_kernels_maker(r, x, GD_OP_reshape) != GD_NONE && m->n_dropped < MOST_DROPPED)
    x = take(r, m, x, GD_OP_reshape);
  m->x = x;
  m->attr.heads = dims[1];
  gd_op_id attention = gd_kernels_maker(r, x, GD_OP_attention);
  return attention != GD_NONE && r->ops[attention].out[0] == x &&
         gd_kernels_has_dims(tensor(r, x), 4, dims) &&
         gd_kernels_has_dims(tensor(r, last->out[0]), 3,
                             (int64_t[]){dims[0], dims[2], dims[1] * dims[3]});
}

static void merge_heads(struct gd_graph_rewrite *r, gd_op_id id, const struct match *m) {
  for (uint32_t i = 0; i < m->n_dropped; i++)
    gd_graph_rewrite_drop(r, m->dropped[i]);
  gd_graph_rewrite_enter(r, id);
  gd_tensor_id x = gd_graph_rewrite_now(r, m->x);
  gd_graph_rewrite_replace(r, r->ops[id].out[0], gd_merge_heads(r->graph, &x, GD_NONE, m->attr));
}

enum gd_status gd_kernels_heads(struct gd_graph *graph, struct gd_error *err) {
  struct gd_graph_rewrite rewrite;
  GD_ASSERT(!graph->backward_done);
  GD_TRY(gd_graph_rewrite_begin(&rewrite, graph, err));
  for (gd_op_id id = 0; id < rewrite.n_ops; id++) {
    struct match match;
    if (find_merge(&rewrite, id, &match)) {
      merge_heads(&rewrite, id, &match);
      continue;
    }
    if (rewrite.ops[id].kind == GD_OP_attention)
      split_heads(&rewrite, id);
    gd_graph_rewrite_keep(&rewrite, id);
  }
  return gd_graph_rewrite_end(&rewrite, err);
}
