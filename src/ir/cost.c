/*
 * What ops cost: FLOPs and bytes by the cost_<rule> that ops.def names, and the scratch that the
 * fused loss needs. Bytes are what an op must read and write at least once.
 */
#include "ir/fusion.h"

/* --- bytes --------------------------------------------------------------------------------- */

struct counting {
  const struct gd_graph *graph;
  const struct gd_op *op;
  const struct gd_op_info *info;
  struct gd_cost *cost;
  int64_t largest; /* elements of the largest tensor that was counted */
};

static double elements_of(const struct counting *c, gd_tensor_id id) {
  return (double)gd_tensor_elements(c->graph, id);
}

static double element_bytes(const struct counting *c, gd_tensor_id id) {
  return (double)gd_dtype_bytes(c->graph->tensors[id].dtype);
}

static void note_elements(struct counting *c, gd_tensor_id id) {
  int64_t elements = gd_tensor_elements(c->graph, id);
  c->largest = elements > c->largest ? elements : c->largest;
}

/* Reads inputs from `first` on. */
static void count_inputs(struct counting *c, uint32_t first) {
  for (uint32_t i = first; i < c->op->n_in; i++) {
    gd_tensor_id id = c->op->in[i];
    if (id == GD_NONE)
      continue;
    c->cost->read_bytes += elements_of(c, id) * element_bytes(c, id);
    note_elements(c, id);
  }
}

static void count_outputs(struct counting *c) {
  for (uint32_t i = 0; i < c->op->n_out; i++) {
    gd_tensor_id id = c->op->out[i];
    if (c->op->adds >> i & 1u) /* what is there is read first, in fp32 */
      c->cost->read_bytes += 4 * elements_of(c, id);
    c->cost->write_bytes += elements_of(c, id) * element_bytes(c, id);
    note_elements(c, id);
  }
}

static void count_tensors(struct counting *c) {
  count_inputs(c, 0);
  count_outputs(c);
}

/* --- rules --------------------------------------------------------------------------------- */

static void cost_none(struct counting *c) {
  (void)c;
}

static void cost_elements(struct counting *c) {
  count_tensors(c);
  c->cost->other_flops = (double)c->info->flops_per_element * (double)c->largest;
}

/* Input 0 is not read. */
static void cost_overwrite(struct counting *c) {
  count_inputs(c, 1);
  count_outputs(c);
}

/* Only the rows that are picked are read. */
static void cost_embed(struct counting *c) {
  count_inputs(c, 1);
  c->cost->read_bytes += elements_of(c, c->op->out[0]) * element_bytes(c, c->op->in[0]);
  count_outputs(c);
}

/* Where it adds to its table, the other rows stay as they are. */
static void cost_embed_grad(struct counting *c) {
  if (!(c->op->adds & 1u)) {
    cost_elements(c);
    return;
  }
  double touched = elements_of(c, c->op->in[0]);
  count_inputs(c, 0);
  c->cost->read_bytes += 4 * touched;
  c->cost->write_bytes += touched * element_bytes(c, c->op->out[0]);
  c->cost->other_flops = (double)c->info->flops_per_element * (double)c->largest;
}

static void cost_fused(struct counting *c) {
  count_tensors(c);
  c->cost->other_flops = gd_fusion_flops(gd_op_fusion(c->graph, c->op));
}

/* Rotated parts count as rope counts them. */
static void cost_heads(struct counting *c) {
  const struct gd_attr_heads *attr = &c->op->attr.heads;
  count_tensors(c);
  int64_t part = c->largest / attr->parts;
  for (uint32_t rotated = attr->rotated; rotated; rotated &= rotated - 1)
    c->cost->other_flops += (double)gd_op_info(GD_OP_rope)->flops_per_element * (double)part;
}

static void count_gemm(struct counting *c, double flops) {
  count_tensors(c);
  c->cost->gemm_flops = c->cost->executed_flops = flops;
}

/* 2 k per element of the output; k is the contracted dim of a. */
static void cost_matmul(struct counting *c) {
  const struct gd_tensor *a = &c->graph->tensors[c->op->in[0]];
  int64_t k = a->dims[a->rank - (c->op->attr.matmul.trans_a ? 2 : 1)];
  count_gemm(c, 2.0 * (double)k * elements_of(c, c->op->out[0]));
}

/* Taps of a filter [C,1,K] or [C,1,K,K]. */
static double filter_taps(const struct counting *c, gd_tensor_id weight) {
  return elements_of(c, weight) / (double)c->graph->tensors[weight].dims[0];
}

static void cost_filter(struct counting *c) {
  count_gemm(c, 2.0 * filter_taps(c, c->op->in[1]) * elements_of(c, c->op->in[0]));
}

static void cost_filter_dw(struct counting *c) {
  count_gemm(c, 2.0 * filter_taps(c, c->op->out[0]) * elements_of(c, c->op->in[0]));
}

/* Logits, dx and dw, over all rows: the paper does not count which labels are ignored. */
static void cost_linear_xent(struct counting *c) {
  double classes = (double)c->graph->tensors[c->op->in[1]].dims[0];
  count_gemm(c, 6.0 * elements_of(c, c->op->in[0]) * classes);
  c->cost->other_flops = (double)(gd_op_info(GD_OP_xent)->flops_per_element +
                                  gd_op_info(GD_OP_xent_grad)->flops_per_element) *
                         elements_of(c, c->op->in[2]) * classes;
}

/* Elements of all score matrices of an attention: those that are computed, or all of them. */
static double score_elements(const struct counting *c, const struct gd_tensor *q, bool computed) {
  double t = (double)q->dims[2];
  double matrix = computed && c->op->attr.attention.causal ? 0.5 * t * (t + 1) : t * t;
  return (double)q->dims[0] * (double)q->dims[1] * matrix;
}

/* A GEMM takes 2 D FLOPs a score; size is D. */
static void count_attention(struct counting *c, gd_tensor_id q_id, int gemms, int executed_gemms,
                            int flops_per_score) {
  const struct gd_tensor *q = &c->graph->tensors[q_id];
  double size = (double)c->graph->tensors[c->op->out[0]].dims[3];
  if (c->op->attr.attention.probability > 0)
    flops_per_score += gd_op_info(GD_OP_dropout)->flops_per_element;
  count_gemm(c, 2.0 * gemms * size * score_elements(c, q, false));
  c->cost->executed_flops = 2.0 * executed_gemms * size * score_elements(c, q, true);
  c->cost->other_flops = (double)flops_per_score * score_elements(c, q, true);
}

/* Scores and output. */
static void cost_attention(struct counting *c) {
  count_attention(c, c->op->in[0], 2, 2, gd_op_info(GD_OP_softmax)->flops_per_element);
}

/* Two gradients of each, and the scores recomputed, which the paper does not count. */
static void cost_attention_grad(struct counting *c) {
  int flops = gd_op_info(GD_OP_softmax)->flops_per_element +
              gd_op_info(GD_OP_softmax_grad)->flops_per_element;
  count_attention(c, c->op->in[1], 4, 5, flops);
}

void gd_op_cost(const struct gd_graph *graph, gd_op_id id, struct gd_cost *cost) {
  static void (*const rules[GD_OP_COUNT])(struct counting *) = {
#define GD_OP(name, min, max, attr, doc, shape, grad, cost, ...) [GD_OP_##name] = cost_##cost,
#include "ir/ops.def"
#undef GD_OP
  };
  const struct gd_op *op = &graph->ops[id];
  struct counting c = {graph, op, gd_op_info(op->kind), cost, 0};
  *cost = (struct gd_cost){0};
  rules[op->kind](&c); /* NOLINT(misc-no-recursion): no fusions in a fusion */
}

void gd_graph_cost(const struct gd_graph *graph, struct gd_cost *cost) {
  *cost = (struct gd_cost){0};
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    struct gd_cost one;
    if (gd_phase_program(graph->ops[id].phase) != GD_PROGRAM_MICRO_STEP)
      continue;
    gd_op_cost(graph, id, &one);
    if (!graph->ops[id].recomputed) /* the paper counts what training needs, not what it repeats */
      cost->gemm_flops += one.gemm_flops;
    cost->executed_flops += one.executed_flops;
    cost->other_flops += one.other_flops;
    cost->read_bytes += one.read_bytes;
    cost->write_bytes += one.write_bytes;
  }
}

/* --- scratch ------------------------------------------------------------------------------- */

enum {
  /* Logits at a time. GEMMs over 336 rows run at 97 % of the rate of 1,024, over 160 at 88 %. */
  LOSS_CHUNK_BYTES = 33 << 20,
  LOSS_CHUNK_STEP = 16, /* rows: the least there are */
  LOSS_TILE_ROWS = 128, /* that a GPU's GEMMs compute at a time */
  /* Fewer rows than that a GPU multiplies as they are. */
  LOSS_LEAST_GATHERED = 2048,
  LOSS_MASKED_PERCENT = 16, /* masked models predict 15 of 100 tokens, and chance adds a few */
};

int64_t gd_loss_chunk_rows(const struct gd_attr_xent *attr, int64_t rows, int64_t vocabulary,
                           enum gd_dtype dtype) {
  int64_t row_bytes = (vocabulary > 0 ? vocabulary : 1) * gd_dtype_bytes(dtype);
  int64_t bytes = attr->chunk_bytes > 0 ? attr->chunk_bytes : LOSS_CHUNK_BYTES;
  int64_t most = bytes / row_bytes / LOSS_CHUNK_STEP * LOSS_CHUNK_STEP;
  most = most > LOSS_CHUNK_STEP ? most : LOSS_CHUNK_STEP;
  return rows < most ? rows : most;
}

/* In causal models and of images nearly all rows count. */
bool gd_loss_gathers(const struct gd_attr_xent *attr, int64_t rows) {
  return attr->chunk_bytes == 0 ||
         (attr->masked && !attr->shift && rows >= LOSS_LEAST_GATHERED && rows <= INT32_MAX);
}

/*
 * On a GPU all chunks have one size, whatever the labels; chunks without a row are skipped. On
 * average half a chunk is multiplied for nothing, which speaks for small chunks. But each chunk
 * reads w twice and reads and writes dw: 12 bytes for 6 FLOPs a row and element of w. On an H200
 * (700 TFLOP/s, 4.2 TB/s) that takes as long as 330 rows of GEMM, and GEMMs hide most of it from
 * 670 rows on. So there are few chunks, as large as memory permits, whose size fits the share of
 * labels that a masked model has: 131,072 rows with 50,265 classes in 16 bits are four chunks of
 * 5,248 for 19,660 rows that count; 8,192 rows are one of 1,408 for 1,229.
 */
int64_t gd_loss_gathered_rows(const struct gd_attr_xent *attr, int64_t rows, int64_t vocabulary,
                              enum gd_dtype dtype) {
  int64_t most = gd_loss_chunk_rows(attr, rows, vocabulary, dtype);
  int64_t whole = most / LOSS_TILE_ROWS * LOSS_TILE_ROWS;
  int64_t expected = (rows * LOSS_MASKED_PERCENT + 99) / 100;
  if (whole == 0 || rows == 0)
    return most;
  int64_t chunks = (expected + whole - 1) / whole;
  int64_t each = (expected + chunks - 1) / chunks;
  return (each + LOSS_TILE_ROWS - 1) / LOSS_TILE_ROWS * LOSS_TILE_ROWS;
}

/* A GPU multiplies fast what starts at multiples of 16 bytes, whatever the vocabulary. */
int64_t gd_loss_row_pitch(const struct gd_attr_xent *attr, int64_t vocabulary) {
  int64_t steps = (vocabulary + GD_LOSS_PITCH_STEP - 1) / GD_LOSS_PITCH_STEP;
  return attr->chunk_bytes > 0 ? steps * GD_LOSS_PITCH_STEP : vocabulary;
}

bool gd_loss_pads(const struct gd_attr_xent *attr, int64_t vocabulary) {
  return attr->chunk_bytes > 0 && vocabulary % 8 != 0;
}

int64_t gd_op_scratch_bytes(const struct gd_graph *graph, gd_op_id id) {
  const struct gd_op *op = &graph->ops[id];
  if (gd_op_info(op->kind)->work != GD_WORK_LINEAR_XENT)
    return 0;
  const struct gd_tensor *w = &graph->tensors[op->in[1]];
  const struct gd_attr_xent *attr = &op->attr.xent;
  int64_t all = gd_tensor_elements(graph, op->in[2]);
  int64_t rows = gd_loss_chunk_rows(attr, all, w->dims[0], w->dtype);
  if (attr->chunk_bytes > 0) {
    int64_t pitch = gd_loss_row_pitch(attr, w->dims[0]), element = gd_dtype_bytes(w->dtype);
    bool gathers = gd_loss_gathers(attr, all);
    if (gathers)
      rows = gd_loss_gathered_rows(attr, all, w->dims[0], w->dtype);
    int64_t bytes = rows * (pitch * element + 8) + 1024; /* logits and losses */
    if (gathers) /* a chunk's x, then dx; which rows count, and how many */
      bytes += rows * w->dims[1] * element + 4 * (all + 1) + 1024;
    if (gd_loss_pads(attr, w->dims[0])) /* w and bias to the pitch, dw of the last, partial group */
      bytes += w->dims[1] * (pitch * element + 4 * GD_LOSS_PITCH_STEP) + 4 * pitch + 1024;
    return bytes;
  }
  /* A chunk's logits, x and dx, and one number and one index a row, each on its own cache line. */
  return rows * ((w->dims[0] + 2 * w->dims[1]) * gd_dtype_bytes(w->dtype) + 16) + 5 * 64;
}
