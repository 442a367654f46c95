/*
 * From an op to the sizes that decide its speed; see work.h.
 *
 *   matmul                 batch, M, N, K
 *   linear_xent            1, rows, classes, width
 *   attention, its grad    B N (heads of the batch), T, D, query heads to a key
 *   scan, its grad         B, T, C, S
 *   depthwise, conv1d, ... B, positions, C, taps
 *   collectives            bytes of the whole buffer, ranks
 *   all else               bytes, columns of a row
 */
#include "predict/work.h"

#include <math.h>
#include <string.h>

#include "ir/fusion.h"

const char *gd_unit_name(enum gd_peak peak) {
  static const char *const names[GD_PEAK_COUNT] = {"fp32", "tf32", "fp16", "bf16"};
  return names[peak];
}

bool gd_unit_parse(const char *text, enum gd_peak *peak) {
  for (int i = 0; i < GD_PEAK_COUNT; i++)
    if (strcmp(text, gd_unit_name((enum gd_peak)i)) == 0) {
      *peak = (enum gd_peak)i;
      return true;
    }
  return false;
}

bool gd_work_is_collective(enum gd_op_kind kind) {
  return kind == GD_OP_all_reduce || kind == GD_OP_reduce_scatter || kind == GD_OP_all_gather ||
         kind == GD_OP_gather;
}

bool gd_work_is_transfer(enum gd_op_kind kind) {
  return kind == GD_OP_transfer || kind == GD_OP_transfer_into;
}

static const struct gd_tensor *tensor(const struct gd_graph *graph, gd_tensor_id id) {
  return &graph->tensors[id];
}

static double dim(const struct gd_tensor *t, uint32_t at) {
  return at < t->rank ? (double)t->dims[at] : 1;
}

/* All dims but the last `kept`. */
static double leading(const struct gd_tensor *t, uint32_t kept) {
  double product = 1;
  for (uint32_t i = 0; i + kept < t->rank; i++)
    product *= (double)t->dims[i];
  return product;
}

static void set_sizes(struct gd_work *work, double a, double b, double c, double d) {
  const double sizes[GD_WORK_SIZES] = {a, b, c, d};
  for (int i = 0; i < GD_WORK_SIZES; i++)
    work->sizes[i] = fmax(1, sizes[i]);
}

/* --- unit and variant ---------------------------------------------------------------------- */

static enum gd_peak unit_of(enum gd_dtype dtype, bool tf32) {
  return dtype == GD_DTYPE_BF16  ? GD_PEAK_BF16
         : dtype == GD_DTYPE_F16 ? GD_PEAK_FP16
         : tf32                  ? GD_PEAK_TF32
                                 : GD_PEAK_FP32;
}

/* The dtype of the largest floating tensor it reads or writes. */
static enum gd_dtype widest_dtype(const struct gd_graph *graph, const struct gd_op *op) {
  enum gd_dtype dtype = GD_DTYPE_F32;
  int64_t largest = -1;
  for (uint32_t i = 0; i < op->n_in + op->n_out; i++) {
    gd_tensor_id id = i < op->n_in ? op->in[i] : op->out[i - op->n_in];
    if (id == GD_NONE || tensor(graph, id)->dtype == GD_DTYPE_I32)
      continue;
    int64_t elements = gd_tensor_elements(graph, id);
    if (elements > largest) {
      largest = elements;
      dtype = tensor(graph, id)->dtype;
    }
  }
  return dtype;
}

/* A bit for a name, the same in every version: kinds may be renumbered. */
static uint64_t bit_of(const char *name) {
  uint64_t hash = UINT64_C(1469598103934665603);
  for (; *name; name++)
    hash = (hash ^ (unsigned char)*name) * UINT64_C(1099511628211);
  return UINT64_C(1) << (hash >> 20) % 48;
}

static uint64_t fused_variant(const struct gd_fusion *fusion) {
  uint64_t bits = 0;
  for (gd_op_id id = 0; id < fusion->body.n_ops; id++) {
    const struct gd_op *op = &fusion->body.ops[id];
    if (gd_op_info(op->kind)->op_class == GD_CLASS_VIEW)
      continue;
    bits |= bit_of(gd_op_info(op->kind)->name);
    if (op->kind == GD_OP_activate || op->kind == GD_OP_activate_grad)
      bits |= bit_of(gd_activation_name(op->attr.activate.function));
  }
  return bits;
}

/* Rows that do not begin at multiples of 8 elements: a GPU reads them in smaller pieces. */
static bool has_odd_rows(const struct gd_graph *graph, const struct gd_op *op) {
  const struct gd_tensor *a = tensor(graph, op->in[0]), *b = tensor(graph, op->in[1]);
  const struct gd_tensor *out = tensor(graph, op->out[0]);
  return a->dims[a->rank - 1] % 8 || b->dims[b->rank - 1] % 8 || out->dims[out->rank - 1] % 8;
}

static uint64_t variant_of(const struct gd_graph *graph, const struct gd_op *op) {
  switch (op->kind) {
  case GD_OP_matmul:
    return (op->attr.matmul.trans_a ? 1u : 0) | (op->attr.matmul.trans_b ? 2u : 0) |
           (op->adds ? 4u : 0) |
           (tensor(graph, op->out[0])->dtype != tensor(graph, op->in[0])->dtype ? 8u : 0) |
           (has_odd_rows(graph, op) ? 16u : 0);
  case GD_OP_attention:
  case GD_OP_attention_grad:
    return (op->attr.attention.causal ? 1u : 0) | (op->attr.attention.probability > 0 ? 2u : 0);
  case GD_OP_softmax:
  case GD_OP_softmax_grad: return op->attr.softmax.causal ? 1 : 0;
  case GD_OP_activate:
  case GD_OP_activate_grad: return UINT64_C(1) << op->attr.activate.function;
  case GD_OP_split_heads:
  case GD_OP_merge_heads:
    return (op->attr.heads.rotated ? 1u : 0) | (op->attr.heads.parts > 1 ? 2u : 0);
  case GD_OP_adam: return op->n_in > 7 && op->in[7] != GD_NONE ? 1 : 0;
  case GD_OP_transpose: /* whether rows stay whole */
    return op->attr.transpose.perm[tensor(graph, op->in[0])->rank - 1] ==
                   tensor(graph, op->in[0])->rank - 1
               ? 1
               : 0;
  case GD_OP_add:
  case GD_OP_mul: /* one operand is a row */
    return gd_tensor_elements(graph, op->in[0]) != gd_tensor_elements(graph, op->in[1]) ? 1 : 0;
  case GD_OP_linear_xent: return 0; /* what it adds to is read once, of all that it multiplies */
  case GD_OP_fused: return fused_variant(&graph->fusions[op->attr.fused.fusion]);
  default: return op->adds ? 1 : 0;
  }
}

static bool lies_on_host(const struct gd_graph *graph, const struct gd_op *op) {
  if (gd_op_is_async(op->kind))
    return false;
  for (uint32_t i = 0; i < op->n_in + op->n_out; i++) {
    gd_tensor_id id = i < op->n_in ? op->in[i] : op->out[i - op->n_in];
    if (id != GD_NONE && tensor(graph, gd_tensor_root(graph, id, NULL))->space == GD_SPACE_HOST)
      return true;
  }
  return false;
}

/* --- sizes --------------------------------------------------------------------------------- */

static void product_sizes(const struct gd_graph *graph, const struct gd_op *op,
                          struct gd_work *work) {
  const struct gd_tensor *a = tensor(graph, op->in[0]), *b = tensor(graph, op->in[1]);
  const struct gd_tensor *out = tensor(graph, op->out[0]);
  double n = dim(out, out->rank - 1), batch = leading(b, 2);
  double k = dim(a, a->rank - (op->attr.matmul.trans_a ? 2 : 1));
  set_sizes(work, batch, (double)gd_tensor_elements(graph, op->out[0]) / n / batch, n, k);
}

static void other_sizes(const struct gd_graph *graph, const struct gd_op *op,
                        struct gd_work *work) {
  gd_tensor_id id = op->n_out ? op->out[0] : op->in[0];
  if (gd_work_is_collective(op->kind)) {
    gd_tensor_id whole = op->kind == GD_OP_gather ? op->out[0] : op->in[0];
    set_sizes(work, (double)gd_tensor_bytes(graph, whole), (double)op->attr.ranks.ranks, 1, 1);
    return;
  }
  if (op->kind == GD_OP_fused) {
    const struct gd_fusion *fusion = &graph->fusions[op->attr.fused.fusion];
    set_sizes(work, work->bytes, (double)fusion->columns, 1, 1);
    return;
  }
  const struct gd_tensor *t = tensor(graph, id);
  set_sizes(work, work->bytes, t->rank ? dim(t, t->rank - 1) : 1, 1, 1);
}

static void sizes_of(const struct gd_graph *graph, const struct gd_op *op, struct gd_work *work) {
  if (op->n_in == 0) {
    other_sizes(graph, op, work);
    return;
  }
  const struct gd_tensor *x = tensor(graph, op->in[0]);
  switch (op->kind) {
  case GD_OP_matmul: product_sizes(graph, op, work); return;
  case GD_OP_linear_xent: {
    const struct gd_tensor *w = tensor(graph, op->in[1]);
    set_sizes(work, 1, leading(x, 1), dim(w, 0), dim(w, 1));
    return;
  }
  case GD_OP_attention:
  case GD_OP_attention_grad: {
    uint32_t q_at = op->kind == GD_OP_attention ? 0 : 1;
    const struct gd_tensor *q = tensor(graph, op->in[q_at]), *k = tensor(graph, op->in[q_at + 1]);
    set_sizes(work, dim(q, 0) * dim(q, 1), dim(q, 2), dim(q, 3), dim(q, 1) / dim(k, 1));
    return;
  }
  case GD_OP_scan:
  case GD_OP_scan_grad: {
    uint32_t u_at = op->kind == GD_OP_scan ? 0 : 1;
    const struct gd_tensor *u = tensor(graph, op->in[u_at]), *a = tensor(graph, op->in[u_at + 2]);
    set_sizes(work, dim(u, 0), dim(u, 1), dim(u, 2), dim(a, 1));
    return;
  }
  case GD_OP_depthwise:
  case GD_OP_depthwise_dx:
  case GD_OP_depthwise_dw:
  case GD_OP_conv1d:
  case GD_OP_conv1d_dx:
  case GD_OP_conv1d_dw: {
    double in = (double)gd_tensor_elements(graph, op->in[0]), c = dim(x, x->rank - 1);
    set_sizes(work, dim(x, 0), in / c / dim(x, 0), c, work->flops / 2 / in);
    return;
  }
  default: other_sizes(graph, op, work);
  }
}

void gd_work_of(const struct gd_graph *graph, gd_op_id id, double counted_share,
                struct gd_work *work) {
  const struct gd_op *op = &graph->ops[id];
  struct gd_cost cost;
  bool tf32 = op->kind == GD_OP_matmul        ? op->attr.matmul.tf32
              : op->kind == GD_OP_linear_xent ? op->attr.xent.tf32
              : op->kind == GD_OP_attention || op->kind == GD_OP_attention_grad
                  ? op->attr.attention.tf32
                  : false;
  bool product = op->kind == GD_OP_matmul || op->kind == GD_OP_attention;
  enum gd_dtype dtype = product ? tensor(graph, op->in[0])->dtype : widest_dtype(graph, op);
  gd_op_cost(graph, id, &cost);
  *work = (struct gd_work){.kind = op->kind,
                           .unit = unit_of(dtype, tf32),
                           .variant = variant_of(graph, op),
                           .on_host = lies_on_host(graph, op),
                           .flops = cost.executed_flops,
                           .bytes = cost.read_bytes + cost.write_bytes};
  /* The fused loss leaves out rows that do not count; see exec/run.h. */
  bool gathers = op->kind == GD_OP_linear_xent &&
                 gd_loss_gathers(&op->attr.xent, gd_tensor_elements(graph, op->in[2]));
  if (gathers)
    work->flops *= counted_share;
  sizes_of(graph, op, work);
  if (gathers)
    work->sizes[1] = fmax(1, work->sizes[1] * counted_share);
}

/* --- likeness ------------------------------------------------------------------------------ */

static int bits_apart(uint64_t a, uint64_t b) {
  int count = 0;
  for (uint64_t x = a ^ b; x; x &= x - 1)
    count++;
  return count;
}

double gd_work_distance(const struct gd_work *a, const struct gd_work *b) {
  static const double weight[GD_WORK_SIZES] = {1, 1, 1, 1};
  double sum = 0;
  for (int i = 0; i < GD_WORK_SIZES; i++) {
    double apart = log2(a->sizes[i] / b->sizes[i]);
    sum += weight[i] * apart * apart;
  }
  /* A bit of the variant is as far off as a size that differs by two or three times; the layout of
     a product and one op of a cluster count for half of that. */
  double bit = a->kind == GD_OP_fused || a->kind == GD_OP_matmul ? 0.7 : 1.5;
  double other = bit * bits_apart(a->variant, b->variant);
  if (a->unit != b->unit)
    other += 3;
  return sqrt(sum + other * other);
}

static bool same_number(double a, double b) {
  return fabs(a - b) <= 1e-9 * fabs(a);
}

bool gd_work_same(const struct gd_work *a, const struct gd_work *b) {
  for (int i = 0; i < GD_WORK_SIZES; i++)
    if (!same_number(a->sizes[i], b->sizes[i]))
      return false;
  return a->kind == b->kind && a->unit == b->unit && a->variant == b->variant &&
         a->on_host == b->on_host && same_number(a->flops, b->flops) &&
         same_number(a->bytes, b->bytes);
}
