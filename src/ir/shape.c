/*
 * The shape rules of ops.def, one small function each. A rule checks its inputs and describes its
 * outputs; it never touches the graph. gd_graph_infer runs them again after a pass changed leaves,
 * and the verifier runs them to check what is stored.
 */
#include "ir/shape.h"

#include <stdio.h>

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
  output(r, GD_DTYPE_F32, 2, (int64_t[]){r->attr->rows.rows, last_dim(dy)});
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

static enum gd_status shape_scalar(const struct rule *r) {
  if (!is_float(input(r, 0)))
    return wrong(r, "wants floats");
  output(r, GD_DTYPE_F32, 1, (int64_t[]){1});
  return GD_OK;
}

static enum gd_status shape_control(const struct rule *r) {
  if (!is_vector(input(r, 0), 1) || !is_vector(input(r, 1), 2))
    return wrong(r, "wants step[1] and loss scale[2]");
  for (uint32_t i = 2; i < r->n_in; i++)
    if (!is_vector(input(r, i), 1))
      return wrong(r, "wants scalars");
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
  return rules[kind](&rule);
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
      graph->tensors[op->out[i]].alias_of = outs[i].alias_of;
      graph->tensors[op->out[i]].alias_elements = outs[i].alias_elements;
    }
  }
  return GD_OK;
}
