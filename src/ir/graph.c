/*
 * Graph construction, op table, facts about tensors, and costs.
 */
#include "ir/graph.h"

#include "ir/fusion.h"
#include "ir/shape.h"

static const struct gd_op_info op_infos[GD_OP_COUNT] = {
#define PRODUCT GD_FLOPS_PRODUCT
#define GD_OP(name, min, max, attr, shape, grad, flops, kind, inplace, recompute, adds, doc)      \
  [GD_OP_##name] = {                                                                              \
      #name, min, max, GD_ATTR_##attr, flops, GD_CLASS_##kind, inplace, GD_RECOMPUTE_##recompute, \
      adds,  doc},
#include "ir/ops.def"
#undef GD_OP
#undef PRODUCT
};

const struct gd_op_info *gd_op_info(enum gd_op_kind kind) {
  GD_ASSERT(kind < GD_OP_COUNT);
  return &op_infos[kind];
}

void gd_graph_init(struct gd_graph *graph) {
  *graph = (struct gd_graph){.block = -1,
                             .ranks = 1,
                             .ids = GD_NONE,
                             .pixels = GD_NONE,
                             .labels = GD_NONE,
                             .dropout_seed = GD_NONE,
                             .loss_weight = GD_NONE,
                             .loss_scale = GD_NONE,
                             .step = GD_NONE,
                             .lr = GD_NONE,
                             .loss = GD_NONE,
                             .loss_sum = GD_NONE,
                             .norm = GD_NONE,
                             .factor = GD_NONE};
}

void gd_graph_deinit(struct gd_graph *graph) {
  gd_mem_free(graph->tensors);
  gd_mem_free(graph->ops);
  gd_fusions_free(graph);
  gd_arena_deinit(&graph->arena);
  *graph = (struct gd_graph){0};
}

enum gd_status gd_graph_check(const struct gd_graph *graph, struct gd_error *err) {
  if (graph->error.status != GD_OK && err && err->status == GD_OK)
    *err = graph->error;
  return graph->error.status;
}

static gd_tensor_id out_of_memory(struct gd_graph *graph) {
  gd_fail(&graph->error, GD_ENVIRONMENT, "out of memory while building a graph of %u ops",
          graph->n_ops);
  return GD_NONE;
}

static gd_tensor_id add_tensor(struct gd_graph *graph, const struct gd_tensor *tensor) {
  struct gd_tensor copy = *tensor;
  int64_t *dims = gd_arena_alloc(&graph->arena, tensor->rank, sizeof *dims);
  if (!dims || !gd_vec_reserve((void **)&graph->tensors, &graph->tensors_capacity,
                               graph->n_tensors + 1, sizeof *graph->tensors))
    return out_of_memory(graph);
  for (uint32_t i = 0; i < tensor->rank; i++)
    dims[i] = tensor->dims[i];
  copy.dims = dims;
  graph->tensors[graph->n_tensors] = copy;
  return graph->n_tensors++;
}

/* The bytes of dims must fit int64_t with room for sums: 2^60 is past any machine. */
static bool dims_fit(uint32_t rank, const int64_t *dims, enum gd_dtype dtype) {
  int64_t bytes = gd_dtype_bytes(dtype);
  for (uint32_t i = 0; i < rank; i++)
    if (dims[i] < 0 || !gd_size_mul(bytes, dims[i], &bytes) || bytes > (int64_t)1 << 60)
      return false;
  return true;
}

gd_tensor_id gd_graph_leaf(struct gd_graph *graph, enum gd_role role, const char *name,
                           enum gd_dtype dtype, uint32_t rank, const int64_t *dims) {
  if (graph->error.status != GD_OK)
    return GD_NONE;
  GD_ASSERT(rank <= GD_MAX_RANK && role != GD_ROLE_ACTIVATION);
  if (!dims_fit(rank, dims, dtype)) {
    gd_fail(&graph->error, GD_BAD_INPUT,
            "the size of %s overflows; check the sizes in the configuration", name);
    return GD_NONE;
  }
  char *copy = gd_arena_copy_string(&graph->arena, name);
  if (!copy)
    return out_of_memory(graph);
  return add_tensor(graph, &(struct gd_tensor){.dtype = dtype,
                                               .role = role,
                                               .rank = rank,
                                               .dims = dims,
                                               .producer = GD_NONE,
                                               .alias_of = GD_NONE,
                                               .owner = GD_NONE,
                                               .block = graph->block,
                                               .name = copy});
}

gd_tensor_id gd_graph_param(struct gd_graph *graph, const char *name, uint32_t rank,
                            const int64_t *dims, enum gd_init init, double init_value) {
  gd_tensor_id id = gd_graph_leaf(graph, GD_ROLE_PARAM, name, GD_DTYPE_F32, rank, dims);
  if (id != GD_NONE) {
    graph->tensors[id].init = init;
    graph->tensors[id].init_value = init_value;
  }
  return id;
}

gd_tensor_id gd_graph_loss_scale(struct gd_graph *graph) {
  if (graph->loss_scale == GD_NONE)
    graph->loss_scale =
        gd_graph_leaf(graph, GD_ROLE_STATE, "loss_scale", GD_DTYPE_F32, 1, (int64_t[]){2});
  return graph->loss_scale;
}

gd_tensor_id gd_graph_op(struct gd_graph *graph, enum gd_op_kind kind, const union gd_attr *attr,
                         uint32_t n_in, const gd_tensor_id *in) {
  static const union gd_attr no_attr;
  struct gd_shape outs[GD_MAX_OUTPUTS];
  uint32_t n_out = 0;
  if (graph->error.status != GD_OK)
    return GD_NONE;
  if (gd_shape_infer(graph, kind, attr ? attr : &no_attr, n_in, in, outs, &n_out, &graph->error) !=
      GD_OK)
    return GD_NONE;

  gd_tensor_id *ins = gd_arena_alloc(&graph->arena, n_in, sizeof *ins);
  gd_tensor_id *out_ids = gd_arena_alloc(&graph->arena, n_out, sizeof *out_ids);
  if (!ins || !out_ids ||
      !gd_vec_reserve((void **)&graph->ops, &graph->ops_capacity, graph->n_ops + 1,
                      sizeof *graph->ops))
    return out_of_memory(graph);
  for (uint32_t i = 0; i < n_in; i++)
    ins[i] = in[i];
  for (uint32_t i = 0; i < n_out; i++) {
    if (!dims_fit(outs[i].rank, outs[i].dims, outs[i].dtype)) {
      gd_fail(&graph->error, GD_BAD_INPUT,
              "an output of %s overflows; check the sizes in the configuration",
              gd_op_info(kind)->name);
      return GD_NONE;
    }
    out_ids[i] = add_tensor(graph, &(struct gd_tensor){.dtype = outs[i].dtype,
                                                       .role = GD_ROLE_ACTIVATION,
                                                       .space = outs[i].space,
                                                       .rank = outs[i].rank,
                                                       .dims = outs[i].dims,
                                                       .producer = graph->n_ops,
                                                       .alias_of = outs[i].alias_of,
                                                       .alias_elements = outs[i].alias_elements,
                                                       .owner = GD_NONE,
                                                       .block = graph->block});
    if (out_ids[i] == GD_NONE)
      return GD_NONE;
  }
  graph->ops[graph->n_ops++] = (struct gd_op){.kind = kind,
                                              .phase = graph->phase,
                                              .block = graph->block,
                                              .n_in = n_in,
                                              .n_out = n_out,
                                              .in = ins,
                                              .out = out_ids,
                                              .attr = attr ? *attr : no_attr};
  return out_ids[0];
}

/* --- builders ------------------------------------------------------------------------------ */

gd_tensor_id gd_reshape(struct gd_graph *graph, gd_tensor_id x, uint32_t rank,
                        const int64_t *dims) {
  union gd_attr attr = {.reshape = {.rank = rank}};
  GD_ASSERT(rank <= GD_MAX_RANK);
  for (uint32_t i = 0; i < rank; i++)
    attr.reshape.dims[i] = dims[i];
  return gd_graph_op(graph, GD_OP_reshape, &attr, 1, &x);
}

gd_tensor_id gd_split(struct gd_graph *graph, gd_tensor_id x, uint32_t parts) {
  return gd_graph_op(graph, GD_OP_split, &(union gd_attr){.split = {parts}}, 1, &x);
}

gd_tensor_id gd_concat(struct gd_graph *graph, uint32_t n, const gd_tensor_id *parts) {
  return gd_graph_op(graph, GD_OP_concat, NULL, n, parts);
}

gd_tensor_id gd_transpose(struct gd_graph *graph, gd_tensor_id x, const uint8_t *perm) {
  union gd_attr attr = {.transpose = {{0}}};
  if (graph->error.status != GD_OK)
    return GD_NONE;
  for (uint32_t i = 0; i < graph->tensors[x].rank; i++)
    attr.transpose.perm[i] = perm[i];
  return gd_graph_op(graph, GD_OP_transpose, &attr, 1, &x);
}

gd_tensor_id gd_slice(struct gd_graph *graph, gd_tensor_id x, uint32_t dim, int64_t start,
                      int64_t length) {
  return gd_graph_op(graph, GD_OP_slice, &(union gd_attr){.slice = {dim, start, length}}, 1, &x);
}

gd_tensor_id gd_pad(struct gd_graph *graph, gd_tensor_id x, uint32_t dim, int64_t start,
                    int64_t length) {
  return gd_graph_op(graph, GD_OP_pad, &(union gd_attr){.slice = {dim, start, length}}, 1, &x);
}

gd_tensor_id gd_cast(struct gd_graph *graph, gd_tensor_id x, enum gd_dtype dtype) {
  return gd_graph_op(graph, GD_OP_cast, &(union gd_attr){.cast = {dtype}}, 1, &x);
}

gd_tensor_id gd_positions(struct gd_graph *graph, gd_tensor_id ids, int32_t pad) {
  return gd_graph_op(graph, GD_OP_positions, &(union gd_attr){.positions = {pad}}, 1, &ids);
}

gd_tensor_id gd_embed(struct gd_graph *graph, gd_tensor_id table, gd_tensor_id ids) {
  return gd_embed_padded(graph, table, ids, -1);
}

gd_tensor_id gd_embed_padded(struct gd_graph *graph, gd_tensor_id table, gd_tensor_id ids,
                             int64_t pad) {
  union gd_attr attr = {.embed = {.has_pad = pad >= 0, .pad = pad >= 0 ? (int32_t)pad : 0}};
  return gd_graph_op(graph, GD_OP_embed, &attr, 2, (gd_tensor_id[]){table, ids});
}

gd_tensor_id gd_matmul(struct gd_graph *graph, gd_tensor_id a, gd_tensor_id b, gd_tensor_id bias,
                       struct gd_attr_matmul attr) {
  return gd_graph_op(graph, GD_OP_matmul, &(union gd_attr){.matmul = attr}, bias == GD_NONE ? 2 : 3,
                     (gd_tensor_id[]){a, b, bias});
}

gd_tensor_id gd_linear(struct gd_graph *graph, gd_tensor_id x, gd_tensor_id weight_NK,
                       gd_tensor_id bias) {
  return gd_matmul(
      graph, x, weight_NK, bias,
      (struct gd_attr_matmul){.trans_b = true, .alpha = 1, .out_dtype = GD_DTYPE_COUNT});
}

gd_tensor_id gd_add(struct gd_graph *graph, gd_tensor_id a, gd_tensor_id b) {
  return gd_graph_op(graph, GD_OP_add, NULL, 2, (gd_tensor_id[]){a, b});
}

gd_tensor_id gd_mul(struct gd_graph *graph, gd_tensor_id a, gd_tensor_id b) {
  return gd_graph_op(graph, GD_OP_mul, NULL, 2, (gd_tensor_id[]){a, b});
}

gd_tensor_id gd_dropout(struct gd_graph *graph, gd_tensor_id x, double probability) {
  if (probability <= 0)
    return x;
  if (graph->dropout_seed == GD_NONE)
    graph->dropout_seed =
        gd_graph_leaf(graph, GD_ROLE_INPUT, "dropout_seed", GD_DTYPE_I32, 1, (int64_t[]){3});
  union gd_attr attr = {.dropout = {(float)probability, graph->n_dropouts++}};
  return gd_graph_op(graph, GD_OP_dropout, &attr, 2, (gd_tensor_id[]){x, graph->dropout_seed});
}

gd_tensor_id gd_rmsnorm(struct gd_graph *graph, gd_tensor_id x, gd_tensor_id weight, float eps) {
  return gd_graph_op(graph, GD_OP_rmsnorm, &(union gd_attr){.norm = {eps}}, 2,
                     (gd_tensor_id[]){x, weight});
}

gd_tensor_id gd_pool(struct gd_graph *graph, gd_tensor_id x_BSC) {
  return gd_graph_op(graph, GD_OP_pool, NULL, 1, &x_BSC);
}

gd_tensor_id gd_depthwise(struct gd_graph *graph, gd_tensor_id x_BHWC, gd_tensor_id weight,
                          gd_tensor_id bias) {
  return gd_graph_op(graph, GD_OP_depthwise, NULL, 3, (gd_tensor_id[]){x_BHWC, weight, bias});
}

gd_tensor_id gd_conv1d(struct gd_graph *graph, gd_tensor_id x_BTC, gd_tensor_id weight,
                       gd_tensor_id bias) {
  return gd_graph_op(graph, GD_OP_conv1d, NULL, 3, (gd_tensor_id[]){x_BTC, weight, bias});
}

gd_tensor_id gd_scan(struct gd_graph *graph, gd_tensor_id u_BTC, gd_tensor_id delta_BTC,
                     gd_tensor_id a_log_CS, gd_tensor_id b_BTS, gd_tensor_id c_BTS,
                     gd_tensor_id d_C) {
  return gd_graph_op(graph, GD_OP_scan, NULL, 6,
                     (gd_tensor_id[]){u_BTC, delta_BTC, a_log_CS, b_BTS, c_BTS, d_C});
}

gd_tensor_id gd_decay(struct gd_graph *graph, gd_tensor_id delta_BTC, gd_tensor_id a_log_CS) {
  return gd_graph_op(graph, GD_OP_decay, NULL, 2, (gd_tensor_id[]){delta_BTC, a_log_CS});
}

gd_tensor_id gd_outer(struct gd_graph *graph, gd_tensor_id x_BTC, gd_tensor_id b_BTS) {
  return gd_graph_op(graph, GD_OP_outer, NULL, 2, (gd_tensor_id[]){x_BTC, b_BTS});
}

gd_tensor_id gd_recur(struct gd_graph *graph, gd_tensor_id a_BTCS, gd_tensor_id x_BTCS) {
  return gd_graph_op(graph, GD_OP_recur, NULL, 2, (gd_tensor_id[]){a_BTCS, x_BTCS});
}

gd_tensor_id gd_contract_states(struct gd_graph *graph, gd_tensor_id h_BTCS, gd_tensor_id c_BTS,
                                enum gd_dtype dtype) {
  return gd_graph_op(graph, GD_OP_contract_states, &(union gd_attr){.cast = {dtype}}, 2,
                     (gd_tensor_id[]){h_BTCS, c_BTS});
}

gd_tensor_id gd_layernorm(struct gd_graph *graph, gd_tensor_id x, gd_tensor_id weight,
                          gd_tensor_id bias, float eps) {
  return gd_graph_op(graph, GD_OP_layernorm, &(union gd_attr){.norm = {eps}},
                     bias == GD_NONE ? 2 : 3, (gd_tensor_id[]){x, weight, bias});
}

gd_tensor_id gd_rope(struct gd_graph *graph, gd_tensor_id x, gd_tensor_id table, int64_t rotary) {
  return gd_graph_op(graph, GD_OP_rope, &(union gd_attr){.rope = {.rotary = rotary}}, 2,
                     (gd_tensor_id[]){x, table});
}

gd_tensor_id gd_split_heads(struct gd_graph *graph, gd_tensor_id x_BTC, gd_tensor_id table,
                            struct gd_attr_heads attr) {
  return gd_graph_op(graph, GD_OP_split_heads, &(union gd_attr){.heads = attr},
                     attr.rotated ? 2 : 1, (gd_tensor_id[]){x_BTC, table});
}

gd_tensor_id gd_merge_heads(struct gd_graph *graph, const gd_tensor_id *parts_BNTD,
                            gd_tensor_id table, struct gd_attr_heads attr) {
  gd_tensor_id in[GD_HEADS_PARTS + 1];
  uint32_t n_in = 0;
  while (n_in < attr.parts && n_in < GD_HEADS_PARTS) {
    in[n_in] = parts_BNTD[n_in];
    n_in++;
  }
  if (attr.rotated)
    in[n_in++] = table;
  return gd_graph_op(graph, GD_OP_merge_heads, &(union gd_attr){.heads = attr}, n_in, in);
}

gd_tensor_id gd_softmax(struct gd_graph *graph, gd_tensor_id x, bool causal) {
  return gd_graph_op(graph, GD_OP_softmax, &(union gd_attr){.softmax = {causal}}, 1, &x);
}

gd_tensor_id gd_attention(struct gd_graph *graph, gd_tensor_id q_BNTD, gd_tensor_id k_BMTD,
                          gd_tensor_id v_BMTD, gd_tensor_id seed, struct gd_attr_attention attr) {
  return gd_graph_op(graph, GD_OP_attention, &(union gd_attr){.attention = attr},
                     seed == GD_NONE ? 3 : 4, (gd_tensor_id[]){q_BNTD, k_BMTD, v_BMTD, seed});
}

gd_tensor_id gd_activate(struct gd_graph *graph, gd_tensor_id x, enum gd_activation function) {
  return gd_graph_op(graph, GD_OP_activate, &(union gd_attr){.activate = {function}}, 1, &x);
}

gd_tensor_id gd_xent(struct gd_graph *graph, gd_tensor_id logits, gd_tensor_id labels,
                     gd_tensor_id weight, struct gd_attr_xent attr) {
  return gd_graph_op(graph, GD_OP_xent, &(union gd_attr){.xent = attr}, 3,
                     (gd_tensor_id[]){logits, labels, weight});
}

gd_tensor_id gd_view(struct gd_graph *graph, gd_tensor_id flat, int64_t start, uint32_t rank,
                     const int64_t *dims) {
  union gd_attr attr = {.view = {.start = start, .rank = rank}};
  GD_ASSERT(rank <= GD_MAX_RANK);
  for (uint32_t i = 0; i < rank; i++)
    attr.view.dims[i] = dims[i];
  return gd_graph_op(graph, GD_OP_view, &attr, 1, &flat);
}

gd_tensor_id gd_buffer(struct gd_graph *graph, struct gd_attr_buffer attr) {
  return gd_graph_op(graph, GD_OP_buffer, &(union gd_attr){.buffer = attr}, 0, NULL);
}

gd_tensor_id gd_transfer(struct gd_graph *graph, gd_tensor_id x, enum gd_space space) {
  return gd_graph_op(graph, GD_OP_transfer, &(union gd_attr){.transfer = {space}}, 1, &x);
}

gd_tensor_id gd_linear_xent(struct gd_graph *graph, gd_tensor_id x, gd_tensor_id weight_VC,
                            gd_tensor_id bias, gd_tensor_id labels, gd_tensor_id weight,
                            struct gd_attr_xent attr) {
  gd_tensor_id scale = gd_graph_loss_scale(graph);
  return gd_graph_op(graph, GD_OP_linear_xent, &(union gd_attr){.xent = attr},
                     bias == GD_NONE ? 5 : 6,
                     (gd_tensor_id[]){x, weight_VC, labels, weight, scale, bias});
}

/* --- facts --------------------------------------------------------------------------------- */

int64_t gd_tensor_elements(const struct gd_graph *graph, gd_tensor_id id) {
  const struct gd_tensor *tensor = &graph->tensors[id];
  int64_t elements = 1;
  for (uint32_t i = 0; i < tensor->rank; i++)
    elements *= tensor->dims[i];
  return elements;
}

int64_t gd_tensor_bytes(const struct gd_graph *graph, gd_tensor_id id) {
  return gd_tensor_elements(graph, id) * gd_dtype_bytes(graph->tensors[id].dtype);
}

gd_tensor_id gd_tensor_root(const struct gd_graph *graph, gd_tensor_id id, int64_t *offset_bytes) {
  int64_t offset = 0;
  while (graph->tensors[id].alias_of != GD_NONE) {
    offset += graph->tensors[id].alias_elements * gd_dtype_bytes(graph->tensors[id].dtype);
    id = graph->tensors[id].alias_of;
  }
  if (offset_bytes)
    *offset_bytes = offset;
  return id;
}

bool gd_op_is_async(enum gd_op_kind kind) {
  return kind >= GD_OP_all_reduce && kind <= GD_OP_transfer_into;
}

int32_t gd_graph_blocks(const struct gd_graph *graph) {
  int32_t blocks = 0;
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    if (graph->tensors[id].block >= blocks)
      blocks = graph->tensors[id].block + 1;
  return blocks;
}

int64_t gd_graph_parameters(const struct gd_graph *graph) {
  int64_t elements = 0;
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    if (graph->tensors[id].role == GD_ROLE_PARAM && !graph->tensors[id].flat)
      elements += gd_tensor_elements(graph, id);
  for (uint32_t i = 0; i < graph->n_flats; i++)
    elements += graph->flats[i].elements;
  return elements;
}

/* --- costs --------------------------------------------------------------------------------- */

/* Taps of a filter [C,1,K] or [C,1,K,K]. */
static double filter_taps(const struct gd_graph *graph, gd_tensor_id weight) {
  return (double)gd_tensor_elements(graph, weight) / (double)graph->tensors[weight].dims[0];
}

/* Elements of all score matrices of an attention: those that count, or all of them. */
static double score_elements(const struct gd_graph *graph, const struct gd_op *op, bool counted) {
  const struct gd_tensor *q = &graph->tensors[op->in[op->kind == GD_OP_attention ? 0 : 1]];
  double t = (double)q->dims[2];
  double matrix = counted && op->attr.attention.causal ? 0.5 * t * (t + 1) : t * t;
  return (double)q->dims[0] * (double)q->dims[1] * matrix;
}

/* 2 D per score and product; forward: scores, output. Backward: two gradients of each, and the
   scores again, which the paper does not count. */
static double attention_flops(const struct gd_graph *graph, const struct gd_op *op, bool executed) {
  const struct gd_tensor *dq = &graph->tensors[op->out[0]];
  int products = op->kind == GD_OP_attention ? 2 : executed ? 5 : 4;
  return 2.0 * products * (double)dq->dims[3] * score_elements(graph, op, executed);
}

static double product_flops(const struct gd_graph *graph, const struct gd_op *op) {
  const struct gd_tensor *a = &graph->tensors[op->in[0]];
  double in0 = (double)gd_tensor_elements(graph, op->in[0]);
  switch (op->kind) {
  case GD_OP_depthwise:
  case GD_OP_depthwise_dx:
  case GD_OP_conv1d:
  case GD_OP_conv1d_dx: return 2.0 * filter_taps(graph, op->in[1]) * in0;
  case GD_OP_depthwise_dw:
  case GD_OP_conv1d_dw: return 2.0 * filter_taps(graph, op->out[0]) * in0;
  case GD_OP_attention:
  case GD_OP_attention_grad: return attention_flops(graph, op, false);
  /* Logits, dx and dw, over all rows: the paper does not count which labels are ignored. */
  case GD_OP_linear_xent: return 6.0 * in0 * (double)graph->tensors[op->in[1]].dims[0];
  default: break;
  }
  /* matmul: 2 k per element of the output; k is the contracted dim of a. */
  int64_t k = a->dims[a->rank - (op->attr.matmul.trans_a ? 2 : 1)];
  return 2.0 * (double)k * (double)gd_tensor_elements(graph, op->out[0]);
}

void gd_op_cost(const struct gd_graph *graph, gd_op_id id, struct gd_cost *cost) {
  const struct gd_op *op = &graph->ops[id];
  const struct gd_op_info *info = gd_op_info(op->kind);
  *cost = (struct gd_cost){0};
  if (info->op_class == GD_CLASS_VIEW)
    return;
  int64_t largest = 0;
  for (uint32_t i = 0; i < op->n_in; i++) {
    if (op->in[i] == GD_NONE)
      continue;
    int64_t elements = gd_tensor_elements(graph, op->in[i]);
    if (op->kind == GD_OP_embed && i == 0) /* only the rows that are picked */
      elements = gd_tensor_elements(graph, op->out[0]);
    bool overwritten =
        (op->kind == GD_OP_fill || op->kind == GD_OP_copy || op->kind == GD_OP_transfer_into) &&
        i == 0;
    if (!overwritten)
      cost->read_bytes +=
          (double)elements * (double)gd_dtype_bytes(graph->tensors[op->in[i]].dtype);
    largest = elements > largest ? elements : largest;
  }
  for (uint32_t i = 0; i < op->n_out; i++) {
    int64_t elements = gd_tensor_elements(graph, op->out[i]);
    if (op->adds >> i & 1u) {
      if (op->kind == GD_OP_embed_grad) /* the other rows stay as they are */
        elements = gd_tensor_elements(graph, op->in[0]);
      cost->read_bytes += 4.0 * (double)elements;
    }
    cost->write_bytes +=
        (double)elements * (double)gd_dtype_bytes(graph->tensors[op->out[i]].dtype);
    largest = elements > largest ? elements : largest;
  }
  if (op->kind == GD_OP_fused) {
    cost->other_flops = gd_fusion_flops(&graph->fusions[op->attr.fused.fusion]);
    return;
  }
  if (op->kind == GD_OP_split_heads || op->kind == GD_OP_merge_heads) { /* as rope counts them */
    int64_t part = largest / op->attr.heads.parts;
    for (uint32_t rotated = op->attr.heads.rotated; rotated; rotated &= rotated - 1)
      cost->other_flops += (double)gd_op_info(GD_OP_rope)->flops_per_element * (double)part;
    return;
  }
  if (info->flops_per_element != GD_FLOPS_PRODUCT) {
    cost->other_flops = (double)info->flops_per_element * (double)largest;
    return;
  }
  cost->product_flops = cost->executed_flops = product_flops(graph, op);
  if (op->kind == GD_OP_linear_xent)
    cost->other_flops = (double)(gd_op_info(GD_OP_xent)->flops_per_element +
                                 gd_op_info(GD_OP_xent_grad)->flops_per_element) *
                        (double)gd_tensor_elements(graph, op->in[2]) *
                        (double)graph->tensors[op->in[1]].dims[0];
  if (op->kind != GD_OP_attention && op->kind != GD_OP_attention_grad)
    return;
  int other = gd_op_info(GD_OP_softmax)->flops_per_element;
  if (op->kind == GD_OP_attention_grad)
    other += gd_op_info(GD_OP_softmax_grad)->flops_per_element;
  if (op->attr.attention.probability > 0)
    other += gd_op_info(GD_OP_dropout)->flops_per_element;
  cost->executed_flops = attention_flops(graph, op, true);
  cost->other_flops = (double)other * score_elements(graph, op, true);
}

void gd_graph_cost(const struct gd_graph *graph, struct gd_cost *cost) {
  *cost = (struct gd_cost){0};
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    struct gd_cost one;
    if (gd_phase_program(graph->ops[id].phase) != GD_PROGRAM_PASS)
      continue;
    gd_op_cost(graph, id, &one);
    if (!graph->ops[id].recomputed) /* the paper counts what training needs, not what it repeats */
      cost->product_flops += one.product_flops;
    cost->executed_flops += one.executed_flops;
    cost->other_flops += one.other_flops;
    cost->read_bytes += one.read_bytes;
    cost->write_bytes += one.write_bytes;
  }
}

/* --- scratch ------------------------------------------------------------------------------- */

enum {
  /* Logits at a time. Products over 336 rows run at 97 % of the rate of 1,024, over 160 at 88 %. */
  LOSS_CHUNK_BYTES = 33 << 20,
  LOSS_CHUNK_STEP = 16, /* rows: the least there are */
  LOSS_TILE_ROWS = 128, /* that a GPU's products compute at a time */
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
 * A GPU's chunks are of one size, whatever the labels, and those without a row are left out, so
 * that on average half a chunk is multiplied for nothing. A chunk also reads w twice and reads and
 * writes dw, 12 bytes for 6 FLOPs a row and element of w: on an H200 (700 TFLOP/s, 4.2 TB/s) as
 * long as 330 rows take, of which products hide most from 670 rows on, where dw alone takes as long
 * to move as to compute. So few chunks, as deep as memory permits, of a size that the labels of a
 * masked model fill: of 131,072 rows with 50,265 classes in 16 bits four of 5,248, for 19,660 rows
 * that count; of 8,192 rows one of 1,408 for 1,229.
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
  if (op->kind != GD_OP_linear_xent)
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

int64_t gd_graph_widest_row(const struct gd_graph *graph) {
  int64_t widest = 0;
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
    const struct gd_tensor *t = &graph->tensors[id];
    if (t->rank > 1 && t->dims[t->rank - 1] > widest) /* flat ones have no rows */
      widest = t->dims[t->rank - 1];
  }
  return widest;
}
