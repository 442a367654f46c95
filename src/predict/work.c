/*
 * From an op to the sizes that decide its speed; see work.h. enum gd_work_class in ir/op.h says
 * which sizes a class has.
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
  return gd_op_info(kind)->work == GD_WORK_COLLECTIVE;
}

bool gd_work_is_transfer(enum gd_op_kind kind) {
  return gd_op_info(kind)->work == GD_WORK_TRANSFER;
}

static const struct gd_tensor *tensor(const struct gd_graph *graph, gd_tensor_id id) {
  return &graph->tensors[id];
}

static double dim(const struct gd_tensor *t, uint32_t at) {
  return at < t->rank ? (double)t->dims[at] : 1;
}

/* All dims but the last `kept`. */
static double leading(const struct gd_tensor *t, uint32_t kept) {
  double elements = 1;
  for (uint32_t i = 0; i + kept < t->rank; i++)
    elements *= (double)t->dims[i];
  return elements;
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

static uint64_t variant_fused(const struct gd_graph *graph, const struct gd_op *fused) {
  const struct gd_fusion *fusion = gd_op_fusion(graph, fused);
  uint64_t bits = 0;
  for (gd_op_id id = 0; id < fusion->body.n_ops; id++) {
    const struct gd_op *op = &fusion->body.ops[id];
    if (gd_op_info(op->kind)->op_class == GD_CLASS_VIEW)
      continue;
    bits |= bit_of(gd_op_info(op->kind)->name);
    if (gd_op_info(op->kind)->attr == GD_ATTR_activate)
      bits |= bit_of(gd_activation_name(op->attr.activate.function));
  }
  return bits;
}

/* Bits of a GEMM's variant. Odd rows do not begin at multiples of 8 elements: a GPU reads them in
   smaller pieces. */
enum { TRANS_A = 1, TRANS_B = 2, ODD_ROWS = 16 };
static bool has_odd_rows(const struct gd_graph *graph, const struct gd_op *op) {
  const struct gd_tensor *a = tensor(graph, op->in[0]), *b = tensor(graph, op->in[1]);
  const struct gd_tensor *out = tensor(graph, op->out[0]);
  return a->dims[a->rank - 1] % 8 || b->dims[b->rank - 1] % 8 || out->dims[out->rank - 1] % 8;
}

static uint64_t variant_matmul(const struct gd_graph *graph, const struct gd_op *op) {
  return (op->attr.matmul.trans_a ? TRANS_A : 0u) | (op->attr.matmul.trans_b ? TRANS_B : 0u) |
         (op->adds ? 4u : 0) |
         (tensor(graph, op->out[0])->dtype != tensor(graph, op->in[0])->dtype ? 8u : 0) |
         (has_odd_rows(graph, op) ? ODD_ROWS : 0);
}

static uint64_t variant_attention(const struct gd_graph *graph, const struct gd_op *op) {
  (void)graph;
  return (op->attr.attention.causal ? 1u : 0) | (op->attr.attention.probability > 0 ? 2u : 0);
}

static uint64_t variant_softmax(const struct gd_graph *graph, const struct gd_op *op) {
  (void)graph;
  return op->attr.softmax.causal ? 1 : 0;
}

static uint64_t variant_activate(const struct gd_graph *graph, const struct gd_op *op) {
  (void)graph;
  return UINT64_C(1) << op->attr.activate.function;
}

static uint64_t variant_heads(const struct gd_graph *graph, const struct gd_op *op) {
  (void)graph;
  return (op->attr.heads.rotated ? 1u : 0) | (op->attr.heads.parts > 1 ? 2u : 0);
}

/* Whether there is a 16-bit copy. */
static uint64_t variant_adam(const struct gd_graph *graph, const struct gd_op *op) {
  (void)graph;
  return op->n_in > 7 && op->in[7] != GD_NONE ? 1 : 0;
}

/* Whether rows stay whole. */
static uint64_t variant_transpose(const struct gd_graph *graph, const struct gd_op *op) {
  uint32_t last = tensor(graph, op->in[0])->rank - 1;
  return op->attr.transpose.perm[last] == last ? 1 : 0;
}

/* Whether one operand is a row. */
static uint64_t variant_broadcast(const struct gd_graph *graph, const struct gd_op *op) {
  return gd_tensor_elements(graph, op->in[0]) != gd_tensor_elements(graph, op->in[1]) ? 1 : 0;
}

/* What linear_xent adds to is read once, next to GEMMs that take far longer. */
static uint64_t variant_none(const struct gd_graph *graph, const struct gd_op *op) {
  (void)graph;
  (void)op;
  return 0;
}

static uint64_t variant_adds(const struct gd_graph *graph, const struct gd_op *op) {
  (void)graph;
  return op->adds ? 1 : 0;
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

static void sizes_matmul(const struct gd_graph *graph, const struct gd_op *op,
                         struct gd_work *work) {
  const struct gd_tensor *a = tensor(graph, op->in[0]), *b = tensor(graph, op->in[1]);
  const struct gd_tensor *out = tensor(graph, op->out[0]);
  double n = dim(out, out->rank - 1), batch = leading(b, 2);
  double k = dim(a, a->rank - (op->attr.matmul.trans_a ? 2 : 1));
  set_sizes(work, batch, (double)gd_tensor_elements(graph, op->out[0]) / n / batch, n, k);
}

static void sizes_linear_xent(const struct gd_graph *graph, const struct gd_op *op,
                              struct gd_work *work) {
  const struct gd_tensor *w = tensor(graph, op->in[1]);
  set_sizes(work, 1, leading(tensor(graph, op->in[0]), 1), dim(w, 0), dim(w, 1));
}

/* q and k are inputs q_at and q_at + 1. */
static void attention_sizes(const struct gd_graph *graph, const struct gd_op *op, uint32_t q_at,
                            struct gd_work *work) {
  const struct gd_tensor *q = tensor(graph, op->in[q_at]), *k = tensor(graph, op->in[q_at + 1]);
  set_sizes(work, dim(q, 0) * dim(q, 1), dim(q, 2), dim(q, 3), dim(q, 1) / dim(k, 1));
}

static void sizes_attention(const struct gd_graph *graph, const struct gd_op *op,
                            struct gd_work *work) {
  attention_sizes(graph, op, 0, work);
}

static void sizes_attention_grad(const struct gd_graph *graph, const struct gd_op *op,
                                 struct gd_work *work) {
  attention_sizes(graph, op, 1, work);
}

/* u is input u_at, A_log input u_at + 2. */
static void scan_sizes(const struct gd_graph *graph, const struct gd_op *op, uint32_t u_at,
                       struct gd_work *work) {
  const struct gd_tensor *u = tensor(graph, op->in[u_at]), *a = tensor(graph, op->in[u_at + 2]);
  set_sizes(work, dim(u, 0), dim(u, 1), dim(u, 2), dim(a, 1));
}

static void sizes_scan(const struct gd_graph *graph, const struct gd_op *op, struct gd_work *work) {
  scan_sizes(graph, op, 0, work);
}

static void sizes_scan_grad(const struct gd_graph *graph, const struct gd_op *op,
                            struct gd_work *work) {
  scan_sizes(graph, op, 1, work);
}

static void sizes_filter(const struct gd_graph *graph, const struct gd_op *op,
                         struct gd_work *work) {
  const struct gd_tensor *x = tensor(graph, op->in[0]);
  double in = (double)gd_tensor_elements(graph, op->in[0]), c = dim(x, x->rank - 1);
  set_sizes(work, dim(x, 0), in / c / dim(x, 0), c, work->flops / 2 / in);
}

/* The whole is what holds the slices of all ranks. */
static void sizes_collective(const struct gd_graph *graph, const struct gd_op *op,
                             struct gd_work *work) {
  double in = (double)gd_tensor_bytes(graph, op->in[0]);
  double out = (double)gd_tensor_bytes(graph, op->out[0]);
  set_sizes(work, fmax(in, out), (double)op->attr.ranks.ranks, 1, 1);
}

static void sizes_fused(const struct gd_graph *graph, const struct gd_op *op,
                        struct gd_work *work) {
  set_sizes(work, work->bytes, (double)gd_op_fusion(graph, op)->columns, 1, 1);
}

static void sizes_bytes(const struct gd_graph *graph, const struct gd_op *op,
                        struct gd_work *work) {
  const struct gd_tensor *t = tensor(graph, op->n_out ? op->out[0] : op->in[0]);
  set_sizes(work, work->bytes, t->rank ? dim(t, t->rank - 1) : 1, 1, 1);
}

/* --- the table ----------------------------------------------------------------------------- */

static const struct {
  void (*sizes)(const struct gd_graph *, const struct gd_op *, struct gd_work *);
  uint64_t (*variant)(const struct gd_graph *, const struct gd_op *);
} classes[GD_WORK_COUNT] = {
    [GD_WORK_NONE] = {sizes_bytes, variant_none},
    [GD_WORK_BYTES] = {sizes_bytes, variant_adds},
    [GD_WORK_BROADCAST] = {sizes_bytes, variant_broadcast},
    [GD_WORK_TRANSPOSE] = {sizes_bytes, variant_transpose},
    [GD_WORK_HEADS] = {sizes_bytes, variant_heads},
    [GD_WORK_SOFTMAX] = {sizes_bytes, variant_softmax},
    [GD_WORK_ACTIVATE] = {sizes_bytes, variant_activate},
    [GD_WORK_ACTIVATE_GRAD] = {sizes_bytes, variant_activate},
    [GD_WORK_ADAM] = {sizes_bytes, variant_adam},
    [GD_WORK_FUSED] = {sizes_fused, variant_fused},
    [GD_WORK_MATMUL] = {sizes_matmul, variant_matmul},
    [GD_WORK_LINEAR_XENT] = {sizes_linear_xent, variant_none},
    [GD_WORK_ATTENTION] = {sizes_attention, variant_attention},
    [GD_WORK_ATTENTION_GRAD] = {sizes_attention_grad, variant_attention},
    [GD_WORK_SCAN] = {sizes_scan, variant_adds},
    [GD_WORK_SCAN_GRAD] = {sizes_scan_grad, variant_adds},
    [GD_WORK_FILTER] = {sizes_filter, variant_adds},
    [GD_WORK_COLLECTIVE] = {sizes_collective, variant_adds},
    [GD_WORK_TRANSFER] = {sizes_bytes, variant_adds},
};

void gd_work_of(const struct gd_graph *graph, gd_op_id id, double counted_share,
                struct gd_work *work) {
  const struct gd_op *op = &graph->ops[id];
  struct gd_cost cost;
  const enum gd_work_class class = gd_op_info(op->kind)->work;
  union gd_attr attr = op->attr;
  const bool *tf32 = gd_attr_tf32(op->kind, &attr);
  bool by_operand = class == GD_WORK_MATMUL || class == GD_WORK_ATTENTION;
  enum gd_dtype dtype = by_operand ? tensor(graph, op->in[0])->dtype : widest_dtype(graph, op);
  gd_op_cost(graph, id, &cost);
  *work = (struct gd_work){.kind = op->kind,
                           .unit = unit_of(dtype, tf32 && *tf32),
                           .variant = classes[class].variant(graph, op),
                           .on_host = lies_on_host(graph, op),
                           .flops = cost.executed_flops,
                           .bytes = cost.read_bytes + cost.write_bytes};
  /* The fused loss leaves out rows that do not count; see exec/run.h. */
  bool gathers = class == GD_WORK_LINEAR_XENT &&
                 gd_loss_gathers(&op->attr.xent, gd_tensor_elements(graph, op->in[2]));
  if (gathers)
    work->flops *= counted_share;
  classes[class].sizes(graph, op, work);
  if (gathers)
    work->sizes[1] = fmax(1, work->sizes[1] * counted_share);
}

int gd_work_load_elements(const struct gd_work *work) {
  bool bits16 = work->unit == GD_PEAK_BF16 || work->unit == GD_PEAK_FP16;
  if (!bits16 || gd_op_info(work->kind)->work != GD_WORK_MATMUL || !(work->variant & ODD_ROWS))
    return 8;
  /* The last dims of both operands and of the result, by what is transposed. */
  const double *sizes = work->sizes;
  int64_t a = (int64_t)(work->variant & TRANS_A ? sizes[1] : sizes[3]);
  int64_t b = (int64_t)(work->variant & TRANS_B ? sizes[3] : sizes[2]);
  int64_t all = a | b | (int64_t)sizes[2];
  return all % 8 == 0 ? 8 : (int)(all & -all);
}

/* --- likeness ------------------------------------------------------------------------------ */

static int bits_apart(uint64_t a, uint64_t b) {
  int count = 0;
  for (uint64_t x = a ^ b; x; x &= x - 1)
    count++;
  return count;
}

/*
 * What a factor of two in a size counts for: heads take alike, and so do the bytes of a cluster.
 */
static double weight_of(const struct gd_work *work, int size) {
  static const double attention[GD_WORK_SIZES] = {0.1, 1, 1, 0.5},
                      fused[GD_WORK_SIZES] = {0.25, 0.25, 1, 1};
  switch (gd_op_info(work->kind)->work) {
  case GD_WORK_ATTENTION:
  case GD_WORK_ATTENTION_GRAD: return attention[size];
  case GD_WORK_FUSED: return fused[size];
  default: return 1;
  }
}

void gd_work_steps(const struct gd_work *from, const struct gd_work *to,
                   double steps[GD_WORK_SIZES]) {
  for (int i = 0; i < GD_WORK_SIZES; i++)
    steps[i] = weight_of(from, i) * log2(to->sizes[i] / from->sizes[i]);
}

/*
 * Whether two units are one to this work: fp16 and bf16 have as many bytes, and on GPUs one rate;
 * TF32 is fp32 to what only moves it.
 */
static bool same_unit(const struct gd_work *a, const struct gd_work *b) {
  bool a16 = a->unit == GD_PEAK_FP16 || a->unit == GD_PEAK_BF16;
  bool b16 = b->unit == GD_PEAK_FP16 || b->unit == GD_PEAK_BF16;
  return a->unit == b->unit || (a16 && b16) || (a->flops <= 0 && b->flops <= 0 && a16 == b16);
}

double gd_work_distance(const struct gd_work *a, const struct gd_work *b) {
  double steps[GD_WORK_SIZES], sum = 0;
  gd_work_steps(a, b, steps);
  for (int i = 0; i < GD_WORK_SIZES; i++)
    sum += steps[i] * steps[i];
  /* A bit of the variant is as far off as a size that differs by two or three times; the layout of
     a GEMM and one op of a cluster count for half of that. */
  const enum gd_work_class class = gd_op_info(a->kind)->work;
  double bit = class == GD_WORK_FUSED || class == GD_WORK_MATMUL ? 0.7 : 1.5;
  uint64_t odd = class == GD_WORK_MATMUL ? (a->variant ^ b->variant) & ODD_ROWS : 0;
  double other = bit * bits_apart(a->variant, b->variant ^ odd);
  if (!same_unit(a, b) || odd) /* other instructions, other kernels */
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

uint64_t gd_work_hash(const struct gd_work *work) {
  const double numbers[] = {work->flops,    work->bytes,    work->sizes[0],
                            work->sizes[1], work->sizes[2], work->sizes[3]};
  uint64_t hash = work->variant * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)work->kind;
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    uint64_t bits;
    memcpy(&bits, &numbers[i], sizeof bits);
    hash = (hash ^ bits) * UINT64_C(0xff51afd7ed558ccd);
    hash ^= hash >> 33;
  }
  return hash;
}
