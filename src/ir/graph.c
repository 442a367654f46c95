/*
 * Graph construction, one builder an op, and facts about tensors.
 */
#include "ir/graph.h"

#include "ir/fusion.h"
#include "ir/shape.h"

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
                             .hits = GD_NONE,
                             .hits_sum = GD_NONE,
                             .norm = GD_NONE,
                             .factor = GD_NONE};
}

void gd_graph_deinit(struct gd_graph *graph) {
  gd_mem_free(graph->tensors);
  gd_mem_free(graph->ops);
  gd_fusions_free(graph);
  gd_arena_deinit(&graph->arena);
  gd_graph_unshare(graph->shared); /* NOLINT(misc-no-recursion): what is shared is no copy */
  *graph = (struct gd_graph){0};
}

enum gd_status gd_graph_check(const struct gd_graph *graph, struct gd_error *err) {
  if (graph->error.status != GD_OK && err && err->status == GD_OK)
    *err = graph->error;
  return graph->error.status;
}

static gd_tensor_id out_of_memory(struct gd_graph *graph) {
  gd_nomem(&graph->error, "while building a graph of %u ops", graph->n_ops);
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

static gd_tensor_id drop(struct gd_graph *graph, gd_tensor_id x, double probability,
                         bool per_sample) {
  if (probability <= 0 || graph->no_dropout)
    return x;
  if (graph->dropout_seed == GD_NONE)
    graph->dropout_seed =
        gd_graph_leaf(graph, GD_ROLE_INPUT, "dropout_seed", GD_DTYPE_I32, 1, (int64_t[]){3});
  union gd_attr attr = {.dropout = {(float)probability, graph->n_dropouts++, per_sample}};
  return gd_graph_op(graph, GD_OP_dropout, &attr, 2, (gd_tensor_id[]){x, graph->dropout_seed});
}

gd_tensor_id gd_dropout(struct gd_graph *graph, gd_tensor_id x, double probability) {
  return drop(graph, x, probability, false);
}

gd_tensor_id gd_drop_path(struct gd_graph *graph, gd_tensor_id x, double probability) {
  return drop(graph, x, probability, true);
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
  return gd_graph_op(graph, GD_OP_contract_states, &(union gd_attr){.contract = {dtype}}, 2,
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

gd_tensor_id gd_soft_xent(struct gd_graph *graph, gd_tensor_id logits, gd_tensor_id targets,
                          gd_tensor_id weight) {
  return gd_graph_op(graph, GD_OP_soft_xent, NULL, 3, (gd_tensor_id[]){logits, targets, weight});
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

int64_t gd_graph_widest_row(const struct gd_graph *graph) {
  int64_t widest = 0;
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
    const struct gd_tensor *t = &graph->tensors[id];
    if (t->rank > 1 && t->dims[t->rank - 1] > widest) /* flat ones have no rows */
      widest = t->dims[t->rank - 1];
  }
  return widest;
}
