/*
 * The shape rules of ops.def, one small function each. A rule checks its inputs and describes its
 * outputs; it never touches the graph. gd_graph_infer runs them again after a pass changed leaves,
 * and the verifier runs them to check what is stored.
 */
#include "ir/shape.h"

#include <stdio.h>

#include "ir/fusion.h"

struct rule {
  const struct gd_graph *graph;
  enum gd_op_kind kind;
  const union gd_attr *attr;
  uint32_t n_in;
  const gd_tensor_id *in;
  struct gd_shape *outs;
  uint32_t *n_out;
  struct gd_error *err;
};

static const struct gd_tensor *input(const struct rule *r, uint32_t i) {
  return &r->graph->tensors[r->in[i]];
}

static struct gd_shape *output(const struct rule *r, enum gd_dtype dtype, uint32_t rank,
                               const int64_t *dims) {
  GD_ASSERT(*r->n_out < GD_MAX_OUTPUTS && rank <= GD_MAX_RANK);
  struct gd_shape *out = &r->outs[(*r->n_out)++];
  *out = (struct gd_shape){.dtype = dtype, .rank = rank, .alias_of = GD_NONE};
  for (uint32_t i = 0; i < rank; i++)
    out->dims[i] = dims[i];
  return out;
}

static struct gd_shape *output_like(const struct rule *r, uint32_t i) {
  return output(r, input(r, i)->dtype, input(r, i)->rank, input(r, i)->dims);
}

/* An output that is input i, overwritten. */
static void output_overwrites(const struct rule *r, uint32_t i) {
  output_like(r, i)->alias_of = r->in[i];
}

static enum gd_status wrong(const struct rule *r, const char *what) {
  char dims[256];
  size_t at = 0;
  dims[0] = '\0';
  for (uint32_t i = 0; i < r->n_in && at < sizeof dims - 40; i++) {
    if (r->in[i] == GD_NONE)
      continue;
    const struct gd_tensor *t = input(r, i);
    at += (size_t)snprintf(dims + at, sizeof dims - at, "%s%s[", i ? ", " : "",
                           gd_dtype_name(t->dtype));
    for (uint32_t d = 0; d < t->rank && at < sizeof dims - 30; d++)
      at += (size_t)snprintf(dims + at, sizeof dims - at, "%s%lld", d ? "," : "",
                             (long long)t->dims[d]);
    at += (size_t)snprintf(dims + at, sizeof dims - at, "]");
  }
  return gd_fail(r->err, GD_INTERNAL, "%s of (%s): %s", gd_op_info(r->kind)->name, dims, what);
}

static int64_t elements(const struct gd_tensor *t) {
  int64_t count = 1;
  for (uint32_t i = 0; i < t->rank; i++)
    count *= t->dims[i];
  return count;
}

static bool same_dims(const struct gd_tensor *a, const struct gd_tensor *b) {
  if (a->rank != b->rank)
    return false;
  for (uint32_t i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i])
      return false;
  return true;
}

static bool is_float(const struct gd_tensor *t) {
  return t->dtype != GD_DTYPE_I32;
}

static bool is_vector(const struct gd_tensor *t, int64_t length) {
  return t->rank == 1 && t->dims[0] == length && t->dtype == GD_DTYPE_F32;
}

static int64_t last_dim(const struct gd_tensor *t) {
  return t->dims[t->rank - 1];
}

static enum gd_status shape_reshape(const struct rule *r) {
  const struct gd_attr_reshape *want = &r->attr->reshape;
  int64_t count = 1;
  for (uint32_t i = 0; i < want->rank; i++)
    count *= want->dims[i];
  if (count != elements(input(r, 0)))
    return wrong(r, "the number of elements changes");
  output(r, input(r, 0)->dtype, want->rank, want->dims)->alias_of = r->in[0];
  return GD_OK;
}

static enum gd_status shape_split(const struct rule *r) {
  const struct gd_tensor *x = input(r, 0);
  uint32_t parts = r->attr->split.parts;
  if (x->rank < 1 || parts < 1 || parts > GD_MAX_OUTPUTS || x->dims[0] % parts)
    return wrong(r, "dim 0 does not divide into the parts");
  int64_t part_elements = elements(x) / parts;
  for (uint32_t i = 0; i < parts; i++) {
    struct gd_shape *out = output_like(r, 0);
    out->dims[0] /= parts;
    out->alias_of = r->in[0];
    out->alias_elements = part_elements * (int64_t)i;
  }
  return GD_OK;
}

static enum gd_status shape_concat(const struct rule *r) {
  struct gd_shape *out = output_like(r, 0);
  for (uint32_t i = 1; i < r->n_in; i++) {
    const struct gd_tensor *part = input(r, i);
    if (part->rank != out->rank || part->rank < 1 || part->dtype != out->dtype)
      return wrong(r, "parts differ in rank or dtype");
    for (uint32_t d = 1; d < part->rank; d++)
      if (part->dims[d] != out->dims[d])
        return wrong(r, "parts differ past dim 0");
    out->dims[0] += part->dims[0];
  }
  return GD_OK;
}

static enum gd_status shape_transpose(const struct rule *r) {
  const struct gd_tensor *x = input(r, 0);
  struct gd_shape *out = output_like(r, 0);
  uint32_t seen = 0;
  for (uint32_t i = 0; i < x->rank; i++) {
    uint8_t from = r->attr->transpose.perm[i];
    if (from >= x->rank || (seen & 1u << from))
      return wrong(r, "perm is no permutation");
    seen |= 1u << from;
    out->dims[i] = x->dims[from];
  }
  return GD_OK;
}

static enum gd_status shape_slice(const struct rule *r) {
  const struct gd_attr_slice *a = &r->attr->slice;
  const struct gd_tensor *x = input(r, 0);
  if (a->dim >= x->rank || a->start < 0 || a->length < 0 || a->start > x->dims[a->dim] - a->length)
    return wrong(r, "the slice leaves the dim");
  output_like(r, 0)->dims[a->dim] = a->length;
  return GD_OK;
}

static enum gd_status shape_pad(const struct rule *r) {
  const struct gd_attr_slice *a = &r->attr->slice;
  const struct gd_tensor *x = input(r, 0);
  if (a->dim >= x->rank || a->start < 0 || a->start > a->length - x->dims[a->dim])
    return wrong(r, "the input does not fit the padded dim");
  output_like(r, 0)->dims[a->dim] = a->length;
  return GD_OK;
}

static enum gd_status shape_cast(const struct rule *r) {
  enum gd_dtype dtype = r->attr->cast.dtype;
  if (!is_float(input(r, 0)) || dtype == GD_DTYPE_I32)
    return wrong(r, "casts between floating dtypes only");
  output_like(r, 0)->dtype = dtype == GD_DTYPE_COUNT ? input(r, 0)->dtype : dtype;
  return GD_OK;
}

static enum gd_status shape_positions(const struct rule *r) {
  if (input(r, 0)->rank != 2 || input(r, 0)->dtype != GD_DTYPE_I32)
    return wrong(r, "wants ids[B,T]");
  output_like(r, 0);
  return GD_OK;
}

static enum gd_status shape_embed(const struct rule *r) {
  const struct gd_tensor *table = input(r, 0), *ids = input(r, 1);
  int64_t dims[GD_MAX_RANK];
  if (table->rank != 2 || !is_float(table) || ids->dtype != GD_DTYPE_I32 ||
      ids->rank + 1 > GD_MAX_RANK)
    return wrong(r, "wants table[V,C] and integer ids");
  for (uint32_t i = 0; i < ids->rank; i++)
    dims[i] = ids->dims[i];
  dims[ids->rank] = table->dims[1];
  output(r, table->dtype, ids->rank + 1, dims);
  return GD_OK;
}

static enum gd_status shape_matmul(const struct rule *r) {
  const struct gd_tensor *a = input(r, 0), *b = input(r, 1);
  const struct gd_attr_matmul *attr = &r->attr->matmul;
  if (a->rank < 2 || b->rank < 2 || a->dtype != b->dtype || !is_float(a))
    return wrong(r, "wants two matrices of one floating dtype");
  int64_t m = a->dims[a->rank - (attr->trans_a ? 1 : 2)];
  int64_t k = a->dims[a->rank - (attr->trans_a ? 2 : 1)];
  int64_t n = b->dims[b->rank - (attr->trans_b ? 2 : 1)];
  if (b->dims[b->rank - (attr->trans_b ? 1 : 2)] != k)
    return wrong(r, "the contracted dims differ");
  bool flattens = b->rank == 2 && !attr->trans_a; /* leading dims of a are rows */
  if (!flattens) {
    if (a->rank != b->rank)
      return wrong(r, "the batch dims differ");
    for (uint32_t i = 0; i + 2 < a->rank; i++)
      if (a->dims[i] != b->dims[i])
        return wrong(r, "the batch dims differ");
  }
  if (r->n_in > 2 && !is_vector(input(r, 2), n))
    return wrong(r, "the bias is not fp32[n]");
  enum gd_dtype dtype = attr->out_dtype == GD_DTYPE_COUNT ? a->dtype : attr->out_dtype;
  struct gd_shape *out = output(r, dtype, a->rank, a->dims);
  out->dims[a->rank - 2] = m;
  out->dims[a->rank - 1] = n;
  return GD_OK;
}

static enum gd_status shape_add(const struct rule *r) {
  const struct gd_tensor *a = input(r, 0), *b = input(r, 1);
  if (b->rank > a->rank || !is_float(a) || !is_float(b))
    return wrong(r, "b has more dims than a, or is no float");
  for (uint32_t i = 0; i < b->rank; i++)
    if (b->dims[i] != a->dims[a->rank - b->rank + i])
      return wrong(r, "b is not the trailing dims of a");
  output_like(r, 0);
  return GD_OK;
}

static enum gd_status shape_layernorm(const struct rule *r) {
  const struct gd_tensor *x = input(r, 0);
  if (x->rank < 1 || !is_float(x) || !is_vector(input(r, 1), last_dim(x)) ||
      (r->n_in > 2 && !is_vector(input(r, 2), last_dim(x))))
    return wrong(r, "weight and bias are not fp32 of the last dim");
  output_like(r, 0);
  output(r, GD_DTYPE_F32, x->rank - 1, x->dims);
  output(r, GD_DTYPE_F32, x->rank - 1, x->dims);
  return GD_OK;
}

static enum gd_status shape_dropout(const struct rule *r) {
  const struct gd_tensor *seed = input(r, 1);
  if (!is_float(input(r, 0)) || input(r, 0)->rank < 1 || seed->rank != 1 || seed->dims[0] != 3 ||
      seed->dtype != GD_DTYPE_I32 || !(r->attr->dropout.probability < 1))
    return wrong(r, "wants floats with a sample dim, and seed[3]");
  output_like(r, 0);
  return GD_OK;
}

static enum gd_status shape_rmsnorm(const struct rule *r) {
  const struct gd_tensor *x = input(r, 0);
  if (x->rank < 1 || !is_float(x) || !is_vector(input(r, 1), last_dim(x)))
    return wrong(r, "the weight is not fp32 of the last dim");
  output_like(r, 0);
  output(r, GD_DTYPE_F32, x->rank - 1, x->dims);
  return GD_OK;
}

static enum gd_status shape_rmsnorm_grad(const struct rule *r) {
  const struct gd_tensor *dy = input(r, 0), *x = input(r, 1);
  if (!same_dims(dy, x) || dy->dtype != x->dtype || !is_vector(input(r, 2), last_dim(x)) ||
      elements(input(r, 3)) * last_dim(x) != elements(x))
    return wrong(r, "the inputs do not belong to one rmsnorm");
  output_like(r, 1);
  output(r, GD_DTYPE_F32, 1, &x->dims[x->rank - 1]);
  return GD_OK;
}

static enum gd_status shape_pool(const struct rule *r) {
  const struct gd_tensor *x = input(r, 0);
  if (x->rank != 3 || !is_float(x) || x->dims[1] < 1)
    return wrong(r, "wants x[B,S,C]");
  output(r, x->dtype, 2, (int64_t[]){x->dims[0], x->dims[2]});
  return GD_OK;
}

static enum gd_status shape_pool_grad(const struct rule *r) {
  const struct gd_tensor *dy = input(r, 0);
  if (dy->rank != 2 || !is_float(dy))
    return wrong(r, "wants dy[B,C]");
  output(r, dy->dtype, 3, (int64_t[]){dy->dims[0], r->attr->rows.rows, dy->dims[1]});
  return GD_OK;
}

/* A filter per channel: fp32 [C,1,K] or [C,1,K,K]. */
static bool is_filter(const struct gd_tensor *w, uint32_t rank, int64_t channels) {
  return w->rank == rank && w->dtype == GD_DTYPE_F32 && w->dims[0] == channels && w->dims[1] == 1 &&
         w->dims[2] >= 1 && (rank == 3 || (w->dims[3] == w->dims[2] && w->dims[2] % 2 == 1));
}

static enum gd_status filter_forward(const struct rule *r, uint32_t rank) {
  const struct gd_tensor *x = input(r, 0);
  if (x->rank != rank || !is_float(x) || !is_filter(input(r, 1), rank, last_dim(x)))
    return wrong(r, "the filter does not belong to the channels");
  if (r->n_in > 2 && !is_vector(input(r, 2), last_dim(x)))
    return wrong(r, "the bias is not fp32[C]");
  output_like(r, 0);
  return GD_OK;
}

static enum gd_status filter_dw(const struct rule *r, uint32_t rank) {
  const struct gd_tensor *dy = input(r, 0);
  int64_t k = r->attr->rows.rows;
  if (dy->rank != rank || !same_dims(dy, input(r, 1)))
    return wrong(r, "dy does not belong to x");
  output(r, GD_DTYPE_F32, rank, (int64_t[]){last_dim(dy), 1, k, k});
  output(r, GD_DTYPE_F32, 1, &dy->dims[dy->rank - 1]);
  return GD_OK;
}

static enum gd_status shape_depthwise(const struct rule *r) {
  return filter_forward(r, 4);
}

static enum gd_status shape_depthwise_dx(const struct rule *r) {
  return filter_forward(r, 4);
}

static enum gd_status shape_depthwise_dw(const struct rule *r) {
  return filter_dw(r, 4);
}

static enum gd_status shape_conv1d(const struct rule *r) {
  return filter_forward(r, 3);
}

static enum gd_status shape_conv1d_dx(const struct rule *r) {
  return filter_forward(r, 3);
}

static enum gd_status shape_conv1d_dw(const struct rule *r) {
  return filter_dw(r, 3);
}

/* Inputs first .. first + 5 are u, delta, A_log, b, c, d of one scan. */
static bool scan_fits(const struct rule *r, uint32_t first) {
  const struct gd_tensor *u = input(r, first), *a = input(r, first + 2), *b = input(r, first + 3);
  return u->rank == 3 && is_float(u) && same_dims(u, input(r, first + 1)) &&
         is_float(input(r, first + 1)) && a->rank == 2 && a->dtype == GD_DTYPE_F32 &&
         a->dims[0] == u->dims[2] && b->rank == 3 && b->dims[0] == u->dims[0] &&
         b->dims[1] == u->dims[1] && b->dims[2] == a->dims[1] &&
         same_dims(b, input(r, first + 4)) && is_float(b) &&
         b->dtype == input(r, first + 4)->dtype && is_vector(input(r, first + 5), u->dims[2]);
}

static enum gd_status shape_scan(const struct rule *r) {
  const struct gd_tensor *u = input(r, 0);
  if (!scan_fits(r, 0))
    return wrong(r, "wants u[B,T,C], delta[B,T,C], A_log[C,S], b[B,T,S], c[B,T,S], d[C]");
  output_like(r, 0);
  int64_t chunks = (u->dims[1] + GD_SCAN_CHUNK - 1) / GD_SCAN_CHUNK;
  output(r, GD_DTYPE_F32, 4, (int64_t[]){u->dims[0], chunks, u->dims[2], input(r, 2)->dims[1]});
  return GD_OK;
}

static enum gd_status shape_scan_grad(const struct rule *r) {
  if (!scan_fits(r, 1) || !same_dims(input(r, 0), input(r, 1)))
    return wrong(r, "the inputs do not belong to one scan");
  for (uint32_t i = 1; i <= 6; i++)
    output_like(r, i);
  return GD_OK;
}

/* fp32 [B,T,C,S], what the parts of an unfused scan work on. */
static bool is_states(const struct gd_tensor *t) {
  return t->rank == 4 && t->dtype == GD_DTYPE_F32;
}

/* x is [B,T,dims[last]] of states [B,T,C,S]. */
static bool is_of_states(const struct gd_tensor *x, const struct gd_tensor *states, uint32_t last) {
  return x->rank == 3 && is_float(x) && x->dims[0] == states->dims[0] &&
         x->dims[1] == states->dims[1] && x->dims[2] == states->dims[last];
}

static enum gd_status shape_decay(const struct rule *r) {
  const struct gd_tensor *delta = input(r, 0), *a = input(r, 1);
  if (delta->rank != 3 || !is_float(delta) || a->rank != 2 || a->dtype != GD_DTYPE_F32 ||
      a->dims[0] != delta->dims[2])
    return wrong(r, "wants delta[B,T,C], A_log[C,S] in fp32");
  output(r, GD_DTYPE_F32, 4,
         (int64_t[]){delta->dims[0], delta->dims[1], delta->dims[2], a->dims[1]});
  return GD_OK;
}

static enum gd_status shape_decay_grad(const struct rule *r) {
  const struct gd_tensor *da = input(r, 0), *a_log = input(r, 3);
  if (!is_states(da) || !is_states(input(r, 1)) || !same_dims(da, input(r, 1)) ||
      !is_of_states(input(r, 2), da, 2) || a_log->rank != 2 || a_log->dtype != GD_DTYPE_F32 ||
      a_log->dims[0] != da->dims[2] || a_log->dims[1] != da->dims[3])
    return wrong(r, "the inputs do not belong to one decay");
  output_like(r, 2);
  output_like(r, 3);
  return GD_OK;
}

static enum gd_status shape_outer(const struct rule *r) {
  const struct gd_tensor *x = input(r, 0), *b = input(r, 1);
  if (x->rank != 3 || b->rank != 3 || !is_float(x) || !is_float(b) || x->dims[0] != b->dims[0] ||
      x->dims[1] != b->dims[1])
    return wrong(r, "wants x[B,T,C], b[B,T,S]");
  output(r, GD_DTYPE_F32, 4, (int64_t[]){x->dims[0], x->dims[1], x->dims[2], b->dims[2]});
  return GD_OK;
}

static enum gd_status shape_recur(const struct rule *r) {
  if (!is_states(input(r, 0)) || !is_states(input(r, 1)) || !same_dims(input(r, 0), input(r, 1)))
    return wrong(r, "wants a[B,T,C,S] and x[B,T,C,S] in fp32");
  output_like(r, 1);
  return GD_OK;
}

static enum gd_status shape_recur_grad(const struct rule *r) {
  for (uint32_t i = 0; i < 3; i++)
    if (!is_states(input(r, i)) || !same_dims(input(r, i), input(r, 0)))
      return wrong(r, "the inputs do not belong to one recur");
  output_like(r, 0);
  output_like(r, 1);
  return GD_OK;
}

/* Input 1 goes along dim `along` of the states; `kept` is left. */
static enum gd_status contract(const struct rule *r, uint32_t along, uint32_t kept) {
  const struct gd_tensor *h = input(r, 0), *x = input(r, 1);
  enum gd_dtype dtype = r->attr->cast.dtype;
  if (!is_states(h) || !is_of_states(x, h, along) || dtype == GD_DTYPE_I32)
    return wrong(r, "wants h[B,T,C,S] in fp32 and a vector along one of its dims");
  output(r, dtype == GD_DTYPE_COUNT ? x->dtype : dtype, 3,
         (int64_t[]){h->dims[0], h->dims[1], h->dims[kept]});
  return GD_OK;
}

static enum gd_status shape_contract_states(const struct rule *r) {
  return contract(r, 3, 2);
}

static enum gd_status shape_contract_channels(const struct rule *r) {
  return contract(r, 2, 3);
}

static enum gd_status shape_rope(const struct rule *r) {
  const struct gd_tensor *x = input(r, 0), *table = input(r, 1);
  int64_t rotary = r->attr->rope.rotary;
  if (x->rank < 2 || !is_float(x) || rotary < 0 || rotary % 2 || rotary > last_dim(x))
    return wrong(r, "the rotary size is odd or exceeds the head");
  if (table->rank != 2 || table->dtype != GD_DTYPE_F32 || table->dims[0] != x->dims[x->rank - 2] ||
      table->dims[1] != rotary)
    return wrong(r, "the table is not fp32[T,R]");
  output_like(r, 0);
  return GD_OK;
}

/* The table, behind so many other inputs where something is rotated, is that of T and the heads. */
static bool rotation_fits(const struct rule *r, uint32_t others, int64_t positions, int64_t head) {
  const struct gd_attr_heads *a = &r->attr->heads;
  if (a->rotated >> a->parts || r->n_in != others + (a->rotated != 0))
    return false;
  if (!a->rotated)
    return true;
  const struct gd_tensor *table = input(r, others);
  return a->rotary >= 0 && a->rotary % 2 == 0 && a->rotary <= head && table->rank == 2 &&
         table->dtype == GD_DTYPE_F32 && table->dims[0] == positions && table->dims[1] == a->rotary;
}

static enum gd_status shape_split_heads(const struct rule *r) {
  const struct gd_attr_heads *a = &r->attr->heads;
  const struct gd_tensor *x = input(r, 0);
  if (a->parts < 1 || a->parts > GD_HEADS_PARTS || a->heads < 1 || x->rank != 3 || !is_float(x) ||
      x->dims[2] % (a->heads * a->parts))
    return wrong(r, "wants x[B,T,C] whose columns divide into parts and heads");
  int64_t head = x->dims[2] / (a->heads * a->parts);
  if (!rotation_fits(r, 1, x->dims[1], head))
    return wrong(r, "the parts to rotate do not exist, or the table is not fp32[T,R]");
  for (uint32_t i = 0; i < a->parts; i++)
    output(r, x->dtype, 4, (int64_t[]){x->dims[0], a->heads, x->dims[1], head});
  return GD_OK;
}

static enum gd_status shape_merge_heads(const struct rule *r) {
  const struct gd_attr_heads *a = &r->attr->heads;
  const struct gd_tensor *first = input(r, 0);
  if (a->parts < 1 || a->parts > GD_HEADS_PARTS || r->n_in < a->parts || first->rank != 4 ||
      !is_float(first) || first->dims[1] != a->heads || a->heads < 1)
    return wrong(r, "wants parts[B,N,T,D] of as many heads as the attribute has");
  for (uint32_t i = 1; i < a->parts; i++)
    if (!same_dims(first, input(r, i)) || first->dtype != input(r, i)->dtype)
      return wrong(r, "the parts differ");
  if (!rotation_fits(r, a->parts, first->dims[2], first->dims[3]))
    return wrong(r, "the parts to rotate do not exist, or the table is not fp32[T,R]");
  output(r, first->dtype, 3,
         (int64_t[]){first->dims[0], first->dims[2], a->parts * a->heads * first->dims[3]});
  return GD_OK;
}

/* q, k, v as inputs first, first + 1, first + 2, and the seed as input `seed`. */
static bool attention_fits(const struct rule *r, uint32_t first, uint32_t seed_at) {
  const struct gd_tensor *q = input(r, first), *k = input(r, first + 1), *v = input(r, first + 2);
  float probability = r->attr->attention.probability;
  if (q->rank != 4 || k->rank != 4 || !same_dims(k, v) || !is_float(q) || q->dtype != k->dtype ||
      q->dtype != v->dtype || q->dims[0] != k->dims[0] || q->dims[2] != k->dims[2] ||
      q->dims[3] != k->dims[3] || k->dims[1] < 1 || q->dims[1] % k->dims[1])
    return false;
  if (!(probability >= 0 && probability < 1) || (probability > 0) != (r->n_in > seed_at))
    return false;
  return probability == 0 || (input(r, seed_at)->rank == 1 && input(r, seed_at)->dims[0] == 3 &&
                              input(r, seed_at)->dtype == GD_DTYPE_I32);
}

static enum gd_status shape_attention(const struct rule *r) {
  if (!attention_fits(r, 0, 3))
    return wrong(r, "wants q[B,N,T,D], k and v[B,M,T,D] with M dividing N, seed[3] for dropout");
  output_like(r, 0);
  output(r, GD_DTYPE_F32, 3, input(r, 0)->dims);
  return GD_OK;
}

static enum gd_status shape_attention_grad(const struct rule *r) {
  const struct gd_tensor *dout = input(r, 0), *q = input(r, 1), *out = input(r, 4);
  const struct gd_tensor *lse = input(r, 5);
  if (!attention_fits(r, 1, 6) || !same_dims(dout, q) || !same_dims(out, q) ||
      dout->dtype != q->dtype || out->dtype != q->dtype || lse->dtype != GD_DTYPE_F32 ||
      lse->rank != 3 || elements(lse) * last_dim(q) != elements(q))
    return wrong(r, "the inputs do not belong to one attention");
  for (uint32_t i = 1; i <= 3; i++)
    output_like(r, i);
  return GD_OK;
}

static enum gd_status shape_same(const struct rule *r) {
  if (!is_float(input(r, 0)) || input(r, 0)->rank < 1)
    return wrong(r, "wants floats");
  if (r->n_in > 1 &&
      (!same_dims(input(r, 0), input(r, 1)) || input(r, 0)->dtype != input(r, 1)->dtype))
    return wrong(r, "the inputs differ");
  output_like(r, 0);
  return GD_OK;
}

/* labels have the dims of logits without the vocabulary. */
static bool labels_fit(const struct gd_tensor *logits, const struct gd_tensor *labels) {
  if (logits->rank < 1 || labels->rank + 1 != logits->rank || labels->dtype != GD_DTYPE_I32)
    return false;
  for (uint32_t i = 0; i < labels->rank; i++)
    if (labels->dims[i] != logits->dims[i])
      return false;
  return true;
}

static enum gd_status shape_xent(const struct rule *r) {
  const struct gd_tensor *logits = input(r, 0), *labels = input(r, 1);
  if (!is_float(logits) || !labels_fit(logits, labels) || !is_vector(input(r, 2), 1))
    return wrong(r, "wants logits[...,V], labels[...], weight[1]");
  if (r->attr->xent.shift && labels->rank < 1)
    return wrong(r, "a shift needs a sequence dim");
  output(r, GD_DTYPE_F32, 1, (int64_t[]){1});
  output(r, GD_DTYPE_F32, labels->rank, labels->dims);
  return GD_OK;
}

static enum gd_status shape_linear_xent(const struct rule *r) {
  const struct gd_tensor *x = input(r, 0), *w = input(r, 1), *labels = input(r, 2);
  int64_t rows = 1;
  for (uint32_t i = 0; i + 1 < x->rank; i++)
    rows *= x->dims[i];
  if (x->rank < 1 || w->rank != 2 || !is_float(x) || w->dtype != x->dtype ||
      last_dim(w) != last_dim(x) || labels->dtype != GD_DTYPE_I32 || elements(labels) != rows ||
      !is_vector(input(r, 3), 1) || !is_vector(input(r, 4), 2))
    return wrong(r, "wants x[...,C], w[V,C], labels[...], weight[1], loss scale[2]");
  if (r->n_in > 5 && !is_vector(input(r, 5), w->dims[0]))
    return wrong(r, "the bias is not fp32[V]");
  if (r->attr->xent.shift && labels->rank < 1)
    return wrong(r, "a shift needs a sequence dim");
  output(r, GD_DTYPE_F32, 1, (int64_t[]){1});
  output(r, GD_DTYPE_F32, labels->rank, labels->dims);
  output_like(r, 0);
  output(r, GD_DTYPE_F32, 2, w->dims);
  if (r->n_in > 5)
    output(r, GD_DTYPE_F32, 1, w->dims);
  return GD_OK;
}

static enum gd_status shape_xent_grad(const struct rule *r) {
  if (!is_float(input(r, 0)) || !labels_fit(input(r, 0), input(r, 2)) ||
      !same_dims(input(r, 1), input(r, 2)) || input(r, 1)->dtype != GD_DTYPE_F32 ||
      !is_vector(input(r, 3), 1) || !is_vector(input(r, 4), 2))
    return wrong(r, "wants logits, logsumexp, labels, weight[1], loss scale[2]");
  output_like(r, 0);
  return GD_OK;
}

static enum gd_status shape_layernorm_grad(const struct rule *r) {
  const struct gd_tensor *dy = input(r, 0), *x = input(r, 1), *mean = input(r, 3);
  if (x->rank < 1 || !is_float(x) || !same_dims(dy, x) || dy->dtype != x->dtype ||
      !is_vector(input(r, 2), last_dim(x)) || elements(mean) * last_dim(x) != elements(x) ||
      mean->dtype != GD_DTYPE_F32 || !same_dims(mean, input(r, 4)) ||
      input(r, 4)->dtype != GD_DTYPE_F32)
    return wrong(r, "the inputs do not belong to one layernorm");
  output_like(r, 1);
  output(r, GD_DTYPE_F32, 1, &x->dims[x->rank - 1]);
  if (r->attr->norm_grad.has_bias)
    output(r, GD_DTYPE_F32, 1, &x->dims[x->rank - 1]);
  return GD_OK;
}

static enum gd_status shape_embed_grad(const struct rule *r) {
  const struct gd_tensor *dy = input(r, 0), *ids = input(r, 1);
  if (dy->rank != ids->rank + 1 || elements(ids) * last_dim(dy) != elements(dy) ||
      ids->dtype != GD_DTYPE_I32 || !is_float(dy))
    return wrong(r, "dy does not belong to the ids");
  output(r, GD_DTYPE_F32, 2, (int64_t[]){r->attr->embed.rows, last_dim(dy)});
  return GD_OK;
}

static enum gd_status shape_sum_rows(const struct rule *r) {
  const struct gd_tensor *x = input(r, 0);
  int64_t kept = r->attr->rows.rows;
  if (kept < 0 || kept > (int64_t)x->rank || !is_float(x))
    return wrong(r, "keeps more dims than there are");
  output(r, GD_DTYPE_F32, (uint32_t)kept, x->dims + (x->rank - (uint32_t)kept));
  return GD_OK;
}

static enum gd_status shape_accumulate(const struct rule *r) {
  if (!same_dims(input(r, 0), input(r, 1)) || !is_float(input(r, 0)) || !is_float(input(r, 1)))
    return wrong(r, "the dims differ");
  output_overwrites(r, 0);
  return GD_OK;
}

static enum gd_status shape_sum_squares(const struct rule *r) {
  if (!is_float(input(r, 0)))
    return wrong(r, "wants floats");
  output(r, GD_DTYPE_F32, 1, (int64_t[]){2});
  return GD_OK;
}

static enum gd_status shape_control(const struct rule *r) {
  if (!is_vector(input(r, 0), 1) || !is_vector(input(r, 1), 2))
    return wrong(r, "wants step[1] and loss scale[2]");
  for (uint32_t i = 2; i < r->n_in; i++)
    if (input(r, i)->rank != 1 || input(r, i)->dims[0] % 2 || input(r, i)->dtype != GD_DTYPE_F32)
      return wrong(r, "wants pairs: value and rest of a sum of squares");
  output_overwrites(r, 0);
  output_overwrites(r, 1);
  output(r, GD_DTYPE_F32, 1, (int64_t[]){1});
  output(r, GD_DTYPE_F32, 1, (int64_t[]){1});
  return GD_OK;
}

static enum gd_status shape_adam(const struct rule *r) {
  for (uint32_t i = 0; i < 4; i++)
    if (!same_dims(input(r, 0), input(r, i)) || input(r, i)->dtype != GD_DTYPE_F32)
      return wrong(r, "parameter, gradient and moments differ");
  for (uint32_t i = 4; i < 7; i++)
    if (!is_vector(input(r, i), 1))
      return wrong(r, "factor, lr and step are scalars");
  if (r->n_in > 7 && !same_dims(input(r, 0), input(r, 7)))
    return wrong(r, "the half copy differs");
  output_overwrites(r, 0);
  output_overwrites(r, 2);
  output_overwrites(r, 3);
  if (r->n_in > 7)
    output_overwrites(r, 7);
  return GD_OK;
}

static enum gd_status shape_fill(const struct rule *r) {
  output_overwrites(r, 0);
  return GD_OK;
}

/* --- ranks and memories -------------------------------------------------------------------- */

static enum gd_status shape_view(const struct rule *r) {
  const struct gd_attr_view *want = &r->attr->view;
  int64_t count = 1;
  for (uint32_t i = 0; i < want->rank; i++)
    count *= want->dims[i];
  if (want->start < 0 || want->start + count > elements(input(r, 0)))
    return wrong(r, "the view reaches past its input");
  struct gd_shape *out = output(r, input(r, 0)->dtype, want->rank, want->dims);
  out->alias_of = r->in[0];
  out->alias_elements = want->start;
  return GD_OK;
}

static enum gd_status shape_buffer(const struct rule *r) {
  const struct gd_attr_buffer *want = &r->attr->buffer;
  if (want->elements < 0 || want->used < 0 || want->used > want->elements)
    return wrong(r, "more is used than there is");
  output(r, want->dtype, 1, &want->elements)->space = want->space;
  return GD_OK;
}

/* A flat tensor of one equal slice a rank. */
static bool is_sliced(const struct rule *r) {
  const struct gd_attr_ranks *at = &r->attr->ranks;
  return input(r, 0)->rank == 1 && at->ranks > 0 && at->rank >= 0 && at->rank < at->ranks &&
         input(r, 0)->dims[0] % at->ranks == 0;
}

static enum gd_status shape_all_reduce(const struct rule *r) {
  if (!is_sliced(r) || (r->kind == GD_OP_all_reduce && input(r, 0)->dtype != GD_DTYPE_F32))
    return wrong(r, "wants a flat tensor of equal slices, in fp32 to be summed");
  output_overwrites(r, 0);
  return GD_OK;
}

static enum gd_status shape_reduce_scatter(const struct rule *r) {
  if (!is_sliced(r) || input(r, 0)->dtype != GD_DTYPE_F32)
    return wrong(r, "wants a flat fp32 tensor of equal slices");
  int64_t slice = input(r, 0)->dims[0] / r->attr->ranks.ranks;
  struct gd_shape *out = output(r, GD_DTYPE_F32, 1, &slice);
  out->alias_of = r->in[0];
  out->alias_elements = slice * r->attr->ranks.rank;
  return GD_OK;
}

static enum gd_status shape_gather(const struct rule *r) {
  if (input(r, 0)->rank != 1)
    return wrong(r, "wants a flat tensor");
  int64_t whole = input(r, 0)->dims[0] * r->attr->ranks.ranks;
  output(r, input(r, 0)->dtype, 1, &whole);
  return GD_OK;
}

static enum gd_status shape_transfer(const struct rule *r) {
  output_like(r, 0)->space = r->attr->transfer.space;
  return GD_OK;
}

static enum gd_status shape_transfer_into(const struct rule *r) {
  if (!same_dims(input(r, 0), input(r, 1)) || input(r, 0)->dtype != input(r, 1)->dtype)
    return wrong(r, "dims or dtypes differ");
  output_overwrites(r, 0);
  return GD_OK;
}

/* The inputs are those the fusion was made for, by position; the outputs are its outputs. */
static enum gd_status shape_fused(const struct rule *r) {
  if (r->attr->fused.fusion >= r->graph->n_fusions)
    return wrong(r, "the fusion does not exist");
  const struct gd_fusion *fusion = &r->graph->fusions[r->attr->fused.fusion];
  const struct gd_tensor *locals = fusion->body.tensors;
  if (r->n_in != fusion->n_in)
    return wrong(r, "the fusion takes another number of inputs");
  for (uint32_t i = 0; i < r->n_in; i++)
    if (input(r, i)->dtype != locals[i].dtype || !same_dims(input(r, i), &locals[i]))
      return wrong(r, "an input is not what the fusion was made for");
  for (uint32_t i = 0; i < fusion->n_out; i++) {
    const struct gd_tensor *out = &locals[fusion->out[i]];
    output(r, out->dtype, out->rank, out->dims);
  }
  return GD_OK;
}

enum gd_status gd_shape_infer(const struct gd_graph *graph, enum gd_op_kind kind,
                              const union gd_attr *attr, uint32_t n_in, const gd_tensor_id *in,
                              struct gd_shape *outs, uint32_t *n_out, struct gd_error *err) {
  static enum gd_status (*const rules[GD_OP_COUNT])(const struct rule *) = {
#define GD_OP(name, min, max, attr, shape, ...) [GD_OP_##name] = shape_##shape,
#include "ir/ops.def"
#undef GD_OP
  };
  const struct gd_op_info *info = gd_op_info(kind);
  struct rule rule = {graph, kind, attr, n_in, in, outs, n_out, err};
  if (n_in < info->inputs_min || (info->inputs_max && n_in > info->inputs_max))
    return gd_fail(err, GD_INTERNAL, "%s takes %u to %u inputs, not %u", info->name,
                   info->inputs_min, info->inputs_max, n_in);
  for (uint32_t i = 0; i < n_in; i++)
    if (in[i] >= graph->n_tensors)
      return gd_fail(err, GD_INTERNAL, "%s: input %u does not exist", info->name, i);
  *n_out = 0;
  GD_TRY(rules[kind](&rule));
  for (uint32_t i = 0; i < *n_out; i++) { /* a view lies where its input does */
    gd_tensor_id alias = outs[i].alias_of;
    if (alias != GD_NONE)
      outs[i].space = graph->tensors[gd_tensor_root(graph, alias, NULL)].space;
  }
  return GD_OK;
}

enum gd_status gd_graph_infer(struct gd_graph *graph, struct gd_error *err) {
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    struct gd_shape outs[GD_MAX_OUTPUTS];
    uint32_t n_out;
    const struct gd_op *op = &graph->ops[id];
    GD_TRY(gd_shape_infer(graph, op->kind, &op->attr, op->n_in, op->in, outs, &n_out, err));
    GD_ASSERT(n_out == op->n_out);
    for (uint32_t i = 0; i < n_out; i++) {
      /* Passes change dtypes of leaves, never dims: the stored dims stay valid. */
      graph->tensors[op->out[i]].dtype = outs[i].dtype;
      if (op->adds >> i & 1u) /* keeps the leaf it is added to */
        continue;
      graph->tensors[op->out[i]].alias_of = outs[i].alias_of;
      graph->tensors[op->out[i]].alias_elements = outs[i].alias_elements;
      graph->tensors[op->out[i]].space = outs[i].space;
    }
  }
  return GD_OK;
}
