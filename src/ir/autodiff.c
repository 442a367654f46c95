/*
 * Reverse-mode differentiation and the update program.
 *
 * The forward ops are walked backwards; each op's grad_<rule> appends ops that turn the gradient
 * of its outputs into contributions to its inputs. Contributions add up in the order they are
 * found. Each one to a parameter goes into its GRAD leaf at once, so that a weight gradient lives
 * for one op and not until the end of the pass; pass_accumulate.c saves even that.
 */
#include "ir/autodiff.h"

struct diff {
  struct gd_graph *graph;
  uint32_t n_forward;     /* tensors before the backward pass: the length of the arrays */
  gd_tensor_id *grad;     /* by forward tensor that is no parameter */
  gd_tensor_id *grad_sum; /* by parameter: its GRAD leaf, as the last accumulate left it */
  bool *wanted;           /* depends on a parameter */
};

/* The tensor under whose id gradients are kept: a half copy stands for its master. */
static gd_tensor_id key_of(const struct diff *d, gd_tensor_id id) {
  return d->graph->tensors[id].role == GD_ROLE_PARAM_HALF ? d->graph->tensors[id].owner : id;
}

static bool is_param(const struct diff *d, gd_tensor_id id) {
  return d->graph->tensors[key_of(d, id)].role == GD_ROLE_PARAM;
}

/* A parameter or a view of one: its gradient is made in fp32. */
static bool is_weight(const struct diff *d, gd_tensor_id id) {
  return is_param(d, gd_tensor_root(d->graph, id, NULL));
}

static bool wants(const struct diff *d, gd_tensor_id id) {
  return id != GD_NONE && d->wanted[key_of(d, id)];
}

static gd_tensor_id grad_of_output(const struct diff *d, const struct gd_op *op, uint32_t i) {
  return d->grad[op->out[i]];
}

static void contribute(struct diff *d, gd_tensor_id to, gd_tensor_id grad) {
  gd_tensor_id key = key_of(d, to);
  if (grad == GD_NONE || !d->wanted[key])
    return;
  if (d->graph->tensors[key].role == GD_ROLE_PARAM)
    d->grad_sum[key] =
        gd_graph_op(d->graph, GD_OP_accumulate, NULL, 2, (gd_tensor_id[]){d->grad_sum[key], grad});
  else
    d->grad[key] = d->grad[key] == GD_NONE ? grad : gd_add(d->graph, d->grad[key], grad);
}

static enum gd_status unsupported(const struct gd_op *op, const char *why, struct gd_error *err) {
  return gd_fail(err, GD_INTERNAL, "no gradient of %s: %s", gd_op_info(op->kind)->name, why);
}

static enum gd_status grad_none(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  (void)d;
  return unsupported(op, "it has no gradient rule", err);
}

static enum gd_status grad_reshape(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  const struct gd_tensor *x = &d->graph->tensors[op->in[0]];
  (void)err;
  contribute(d, op->in[0], gd_reshape(d->graph, grad_of_output(d, op, 0), x->rank, x->dims));
  return GD_OK;
}

static enum gd_status grad_split(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id parts[16];
  for (uint32_t i = 0; i < op->n_out; i++) {
    parts[i] = grad_of_output(d, op, i);
    if (parts[i] == GD_NONE)
      return unsupported(op, "a part is not used", err);
  }
  contribute(d, op->in[0], gd_concat(d->graph, op->n_out, parts));
  return GD_OK;
}

static enum gd_status grad_concat(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  for (uint32_t i = 1; i < op->n_in; i++)
    if (d->graph->tensors[op->in[i]].dims[0] != d->graph->tensors[op->in[0]].dims[0])
      return unsupported(op, "the parts differ in size", err);
  gd_tensor_id first = gd_split(d->graph, grad_of_output(d, op, 0), op->n_in);
  if (first == GD_NONE)
    return gd_graph_check(d->graph, err);
  for (uint32_t i = 0; i < op->n_in; i++) /* the outputs of an op have consecutive ids */
    contribute(d, op->in[i], first + i);
  return GD_OK;
}

static enum gd_status grad_transpose(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  uint8_t inverse[GD_MAX_RANK] = {0};
  (void)err;
  for (uint32_t i = 0; i < d->graph->tensors[op->in[0]].rank; i++)
    inverse[op->attr.transpose.perm[i]] = (uint8_t)i;
  contribute(d, op->in[0], gd_transpose(d->graph, grad_of_output(d, op, 0), inverse));
  return GD_OK;
}

static enum gd_status grad_embed(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  union gd_attr attr = op->attr;
  (void)err;
  attr.embed.rows = d->graph->tensors[op->in[0]].dims[0];
  contribute(d, op->in[0],
             gd_graph_op(d->graph, GD_OP_embed_grad, &attr, 2,
                         (gd_tensor_id[]){grad_of_output(d, op, 0), op->in[1]}));
  return GD_OK;
}

static gd_tensor_id flatten(struct gd_graph *graph, gd_tensor_id x) {
  const struct gd_tensor *t = &graph->tensors[x];
  int64_t columns = t->dims[t->rank - 1], rows = 1;
  for (uint32_t i = 0; i + 1 < t->rank; i++)
    rows *= t->dims[i];
  return t->rank == 2 ? x : gd_reshape(graph, x, 2, (int64_t[]){rows, columns});
}

static enum gd_status grad_matmul(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  struct gd_graph *graph = d->graph;
  const bool ta = op->attr.matmul.trans_a, tb = op->attr.matmul.trans_b;
  gd_tensor_id a = op->in[0], b = op->in[1], dc = grad_of_output(d, op, 0);
  bool flattened = graph->tensors[b].rank == 2 && graph->tensors[a].rank > 2;
  /* Weight gradients are fp32, whatever the compute dtype; others follow their operands. */
  struct gd_attr_matmul attr_a = {.alpha = op->attr.matmul.alpha,
                                  .out_dtype = is_weight(d, a) ? GD_DTYPE_F32 : GD_DTYPE_COUNT};
  struct gd_attr_matmul attr_b = {.alpha = op->attr.matmul.alpha,
                                  .out_dtype = is_weight(d, b) ? GD_DTYPE_F32 : GD_DTYPE_COUNT};
  (void)err;
  if (graph->tensors[dc].dtype != graph->tensors[a].dtype) /* a product with an fp32 output */
    dc = gd_cast(graph, dc, graph->tensors[a].dtype);

  if (wants(d, b)) { /* first: dc and a may then die in the product that makes da */
    gd_tensor_id a2 = flattened ? flatten(graph, a) : a, dc2 = flattened ? flatten(graph, dc) : dc;
    attr_b.trans_a = tb ? true : !ta;
    attr_b.trans_b = tb ? ta : false;
    contribute(d, b, gd_matmul(graph, tb ? dc2 : a2, tb ? a2 : dc2, GD_NONE, attr_b));
  }
  if (op->n_in > 2 && wants(d, op->in[2]))
    contribute(d, op->in[2],
               gd_graph_op(graph, GD_OP_sum_rows, &(union gd_attr){.rows = {1}}, 1, &dc));
  if (wants(d, a)) {
    attr_a.trans_a = ta ? tb : false;
    attr_a.trans_b = ta ? true : !tb;
    contribute(d, a, gd_matmul(graph, ta ? b : dc, ta ? dc : b, GD_NONE, attr_a));
  }
  return GD_OK;
}

/* What reaches the second operand of a broadcast: the fp32 sum over the dims that it lacks. */
static gd_tensor_id unbroadcast(struct diff *d, gd_tensor_id grad, const struct gd_op *op) {
  uint32_t kept = d->graph->tensors[op->in[1]].rank;
  if (kept == d->graph->tensors[op->in[0]].rank)
    return grad;
  union gd_attr attr = {.rows = {(int64_t)kept}};
  return gd_graph_op(d->graph, GD_OP_sum_rows, &attr, 1, &grad);
}

static enum gd_status grad_add(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id dy = grad_of_output(d, op, 0);
  (void)err;
  contribute(d, op->in[0], dy);
  if (wants(d, op->in[1]))
    contribute(d, op->in[1], unbroadcast(d, dy, op));
  return GD_OK;
}

static enum gd_status grad_mul(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id dy = grad_of_output(d, op, 0), a = op->in[0], b = op->in[1];
  (void)err;
  if (wants(d, b))
    contribute(d, b, unbroadcast(d, gd_mul(d->graph, dy, a), op));
  if (wants(d, a))
    contribute(d, a, gd_mul(d->graph, dy, b));
  return GD_OK;
}

static enum gd_status grad_slice(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  const struct gd_attr_slice *a = &op->attr.slice;
  (void)err;
  contribute(d, op->in[0],
             gd_pad(d->graph, grad_of_output(d, op, 0), a->dim, a->start,
                    d->graph->tensors[op->in[0]].dims[a->dim]));
  return GD_OK;
}

static enum gd_status grad_pad(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  const struct gd_attr_slice *a = &op->attr.slice;
  (void)err;
  contribute(d, op->in[0],
             gd_slice(d->graph, grad_of_output(d, op, 0), a->dim, a->start,
                      d->graph->tensors[op->in[0]].dims[a->dim]));
  return GD_OK;
}

static enum gd_status grad_cast(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  (void)err;
  contribute(d, op->in[0],
             gd_cast(d->graph, grad_of_output(d, op, 0), d->graph->tensors[op->in[0]].dtype));
  return GD_OK;
}

/* The same mask and scale, drawn again from the same counters. */
static enum gd_status grad_dropout(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  (void)err;
  contribute(d, op->in[0],
             gd_graph_op(d->graph, GD_OP_dropout, &op->attr, 2,
                         (gd_tensor_id[]){grad_of_output(d, op, 0), op->in[1]}));
  return GD_OK;
}

static enum gd_status grad_rmsnorm(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id dx =
      gd_graph_op(d->graph, GD_OP_rmsnorm_grad, NULL, 4,
                  (gd_tensor_id[]){grad_of_output(d, op, 0), op->in[0], op->in[1], op->out[1]});
  if (dx == GD_NONE)
    return gd_graph_check(d->graph, err);
  contribute(d, op->in[0], dx);
  contribute(d, op->in[1], dx + 1);
  return GD_OK;
}

static enum gd_status grad_pool(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  union gd_attr attr = {.rows = {d->graph->tensors[op->in[0]].dims[1]}};
  gd_tensor_id dy = grad_of_output(d, op, 0);
  (void)err;
  contribute(d, op->in[0], gd_graph_op(d->graph, GD_OP_pool_grad, &attr, 1, &dy));
  return GD_OK;
}

/* depthwise and conv1d: the same three gradients with other kernels. */
static enum gd_status filter_gradients(struct diff *d, const struct gd_op *op,
                                       enum gd_op_kind kind_dx, enum gd_op_kind kind_dw,
                                       struct gd_error *err) {
  gd_tensor_id dy = grad_of_output(d, op, 0);
  union gd_attr attr = {.rows = {d->graph->tensors[op->in[1]].dims[2]}};
  gd_tensor_id dw = gd_graph_op(d->graph, kind_dw, &attr, 2, (gd_tensor_id[]){dy, op->in[0]});
  if (dw == GD_NONE)
    return gd_graph_check(d->graph, err);
  contribute(d, op->in[1], dw);
  contribute(d, op->in[2], dw + 1);
  if (wants(d, op->in[0]))
    contribute(d, op->in[0],
               gd_graph_op(d->graph, kind_dx, NULL, 2, (gd_tensor_id[]){dy, op->in[1]}));
  return GD_OK;
}

static enum gd_status grad_depthwise(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  return filter_gradients(d, op, GD_OP_depthwise_dx, GD_OP_depthwise_dw, err);
}

static enum gd_status grad_conv1d(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  return filter_gradients(d, op, GD_OP_conv1d_dx, GD_OP_conv1d_dw, err);
}

static enum gd_status grad_scan(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id in[8] = {grad_of_output(d, op, 0)};
  for (uint32_t i = 0; i < 6; i++)
    in[1 + i] = op->in[i];
  in[7] = op->out[1];
  gd_tensor_id first = gd_graph_op(d->graph, GD_OP_scan_grad, NULL, 8, in);
  if (first == GD_NONE)
    return gd_graph_check(d->graph, err);
  for (uint32_t i = 0; i < 6; i++)
    contribute(d, op->in[i], first + i);
  return GD_OK;
}

static enum gd_status grad_decay(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id ddelta =
      gd_graph_op(d->graph, GD_OP_decay_grad, NULL, 4,
                  (gd_tensor_id[]){grad_of_output(d, op, 0), op->out[0], op->in[0], op->in[1]});
  if (ddelta == GD_NONE)
    return gd_graph_check(d->graph, err);
  contribute(d, op->in[0], ddelta);
  contribute(d, op->in[1], ddelta + 1);
  return GD_OK;
}

/* A sum of products of [B,T,C,S] with what lies along one of its dims, in the dtype of `to`. */
static void contribute_contraction(struct diff *d, gd_tensor_id to, enum gd_op_kind kind,
                                   gd_tensor_id states, gd_tensor_id along) {
  union gd_attr attr = {.cast = {is_weight(d, to) ? GD_DTYPE_F32 : d->graph->tensors[to].dtype}};
  if (wants(d, to))
    contribute(d, to, gd_graph_op(d->graph, kind, &attr, 2, (gd_tensor_id[]){states, along}));
}

static enum gd_status grad_outer(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id dy = grad_of_output(d, op, 0);
  (void)err;
  contribute_contraction(d, op->in[1], GD_OP_contract_channels, dy, op->in[0]);
  contribute_contraction(d, op->in[0], GD_OP_contract_states, dy, op->in[1]);
  return GD_OK;
}

static enum gd_status grad_recur(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id dx = gd_graph_op(d->graph, GD_OP_recur_grad, NULL, 3,
                                (gd_tensor_id[]){grad_of_output(d, op, 0), op->in[0], op->out[0]});
  if (dx == GD_NONE)
    return gd_graph_check(d->graph, err);
  contribute(d, op->in[1], dx);
  contribute(d, op->in[0], dx + 1);
  return GD_OK;
}

static enum gd_status grad_contract_states(struct diff *d, const struct gd_op *op,
                                           struct gd_error *err) {
  gd_tensor_id dy = grad_of_output(d, op, 0);
  (void)err;
  contribute_contraction(d, op->in[1], GD_OP_contract_channels, op->in[0], dy);
  if (wants(d, op->in[0]))
    contribute(d, op->in[0], gd_outer(d->graph, dy, op->in[1]));
  return GD_OK;
}

static enum gd_status grad_layernorm(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  union gd_attr attr = {.norm_grad = {.has_bias = op->n_in > 2}};
  gd_tensor_id dx = gd_graph_op(
      d->graph, GD_OP_layernorm_grad, &attr, 5,
      (gd_tensor_id[]){grad_of_output(d, op, 0), op->in[0], op->in[1], op->out[1], op->out[2]});
  if (dx == GD_NONE)
    return gd_graph_check(d->graph, err);
  contribute(d, op->in[0], dx);
  contribute(d, op->in[1], dx + 1);
  if (op->n_in > 2)
    contribute(d, op->in[2], dx + 2);
  return GD_OK;
}

static enum gd_status grad_rope(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  union gd_attr attr = op->attr;
  (void)err;
  attr.rope.inverse = !attr.rope.inverse;
  contribute(d, op->in[0],
             gd_graph_op(d->graph, GD_OP_rope, &attr, 2,
                         (gd_tensor_id[]){grad_of_output(d, op, 0), op->in[1]}));
  return GD_OK;
}

static enum gd_status grad_split_heads(struct diff *d, const struct gd_op *op,
                                       struct gd_error *err) {
  gd_tensor_id parts[GD_HEADS_PARTS];
  struct gd_attr_heads attr = op->attr.heads;
  attr.inverse = !attr.inverse;
  for (uint32_t i = 0; i < op->n_out; i++) {
    parts[i] = grad_of_output(d, op, i);
    if (parts[i] == GD_NONE)
      return unsupported(op, "a part is not used", err);
  }
  contribute(d, op->in[0],
             gd_merge_heads(d->graph, parts, attr.rotated ? op->in[1] : GD_NONE, attr));
  return GD_OK;
}

static enum gd_status grad_merge_heads(struct diff *d, const struct gd_op *op,
                                       struct gd_error *err) {
  struct gd_attr_heads attr = op->attr.heads;
  attr.inverse = !attr.inverse;
  gd_tensor_id first = gd_split_heads(d->graph, grad_of_output(d, op, 0),
                                      attr.rotated ? op->in[attr.parts] : GD_NONE, attr);
  if (first == GD_NONE)
    return gd_graph_check(d->graph, err);
  for (uint32_t i = 0; i < attr.parts; i++)
    contribute(d, op->in[i], first + i);
  return GD_OK;
}

static enum gd_status grad_softmax(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  (void)err;
  contribute(d, op->in[0],
             gd_graph_op(d->graph, GD_OP_softmax_grad, &op->attr, 2,
                         (gd_tensor_id[]){op->out[0], grad_of_output(d, op, 0)}));
  return GD_OK;
}

static enum gd_status grad_attention(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  gd_tensor_id in[7] = {
      grad_of_output(d, op, 0), op->in[0], op->in[1], op->in[2], op->out[0], op->out[1], GD_NONE};
  if (op->n_in > 3)
    in[6] = op->in[3];
  gd_tensor_id dq = gd_graph_op(d->graph, GD_OP_attention_grad, &op->attr, 3 + op->n_in, in);
  if (dq == GD_NONE)
    return gd_graph_check(d->graph, err);
  for (uint32_t i = 0; i < 3; i++)
    contribute(d, op->in[i], dq + i);
  return GD_OK;
}

static enum gd_status grad_activate(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  (void)err;
  contribute(d, op->in[0],
             gd_graph_op(d->graph, GD_OP_activate_grad, &op->attr, 2,
                         (gd_tensor_id[]){op->in[0], grad_of_output(d, op, 0)}));
  return GD_OK;
}

static enum gd_status grad_xent(struct diff *d, const struct gd_op *op, struct gd_error *err) {
  if (op->out[0] != d->graph->loss)
    return unsupported(op, "it is not the loss", err);
  /* The seed is 1, times the loss scale that the update program divides out again. */
  contribute(d, op->in[0],
             gd_graph_op(d->graph, GD_OP_xent_grad, &op->attr, 5,
                         (gd_tensor_id[]){op->in[0], op->out[1], op->in[1], op->in[2],
                                          d->graph->loss_scale}));
  return GD_OK;
}

/* The op computed its own gradients, with the seed of grad_xent. */
static enum gd_status grad_linear_xent(struct diff *d, const struct gd_op *op,
                                       struct gd_error *err) {
  if (op->out[0] != d->graph->loss || op->in[4] != d->graph->loss_scale)
    return unsupported(op, "it is not the loss", err);
  contribute(d, op->in[0], op->out[2]);
  contribute(d, op->in[1], op->out[3]);
  if (op->n_in > 5)
    contribute(d, op->in[5], op->out[4]);
  return GD_OK;
}

/* --- the walk ------------------------------------------------------------------------------ */

static gd_tensor_id owned_leaf(struct gd_graph *graph, gd_tensor_id param, enum gd_role role,
                               const char *prefix) {
  if (graph->error.status != GD_OK)
    return GD_NONE;
  const struct gd_tensor owner = graph->tensors[param];
  char *name = gd_arena_printf(&graph->arena, "%s.%s", prefix, owner.name);
  gd_tensor_id id =
      gd_graph_leaf(graph, role, name ? name : prefix, GD_DTYPE_F32, owner.rank, owner.dims);
  if (id != GD_NONE) {
    graph->tensors[id].owner = param;
    graph->tensors[id].block = owner.block;
  }
  return id;
}

/* What depends on a parameter. */
static void find_wanted(struct diff *d) {
  const struct gd_graph *graph = d->graph;
  for (gd_tensor_id id = 0; id < d->n_forward; id++)
    d->wanted[id] = graph->tensors[id].role == GD_ROLE_PARAM;
  for (gd_op_id op = 0; op < graph->n_ops; op++) {
    bool any = false;
    for (uint32_t i = 0; i < graph->ops[op].n_in; i++)
      any |= wants(d, graph->ops[op].in[i]);
    for (uint32_t i = 0; i < graph->ops[op].n_out; i++)
      d->wanted[graph->ops[op].out[i]] = any;
  }
}

static enum gd_status walk(struct diff *d, struct gd_error *err) {
  static enum gd_status (*const rules[GD_OP_COUNT])(struct diff *, const struct gd_op *,
                                                    struct gd_error *) = {
#define GD_OP(name, min, max, attr, shape, grad, ...) [GD_OP_##name] = grad_##grad,
#include "ir/ops.def"
#undef GD_OP
  };
  struct gd_graph *graph = d->graph;
  for (gd_op_id id = graph->n_ops; id-- > 0;) {
    const struct gd_op op = graph->ops[id]; /* a copy: the array grows while rules append */
    bool reached = op.out[0] == graph->loss;
    for (uint32_t i = 0; i < op.n_out; i++)
      reached |= d->grad[op.out[i]] != GD_NONE;
    if (!d->wanted[op.out[0]] || !reached)
      continue;
    graph->block = op.block;
    GD_TRY(rules[op.kind](d, &op, err));
    GD_TRY(gd_graph_check(graph, err));
  }
  graph->block = -1;
  return GD_OK;
}

enum gd_status gd_autodiff(struct gd_graph *graph, struct gd_error *err) {
  enum gd_status status = gd_graph_check(graph, err);
  struct diff d = {.graph = graph};
  if (status != GD_OK)
    return status;
  GD_ASSERT(graph->loss != GD_NONE && !graph->backward_done);
  graph->block = -1;
  gd_graph_loss_scale(graph);
  graph->loss_sum =
      gd_graph_leaf(graph, GD_ROLE_STATE, "loss_sum", GD_DTYPE_F32, 1, (int64_t[]){1});
  uint32_t before_leaves = graph->n_tensors;
  gd_tensor_id *grad_sum = gd_mem_alloc(before_leaves, sizeof *grad_sum);
  for (gd_tensor_id id = 0; grad_sum && id < before_leaves; id++)
    grad_sum[id] = graph->tensors[id].role == GD_ROLE_PARAM
                       ? owned_leaf(graph, id, GD_ROLE_GRAD, "grad")
                       : GD_NONE;

  d.n_forward = graph->n_tensors;
  d.grad_sum = grad_sum;
  d.grad = gd_mem_alloc(d.n_forward, sizeof *d.grad);
  d.wanted = gd_mem_alloc(d.n_forward, sizeof *d.wanted);
  if (!grad_sum || !d.grad || !d.wanted) {
    status = gd_fail(err, GD_ENVIRONMENT, "out of memory while differentiating");
    goto done;
  }
  for (gd_tensor_id id = 0; id < d.n_forward; id++)
    d.grad[id] = GD_NONE;
  find_wanted(&d);
  graph->phase = GD_PHASE_BACKWARD;
  status = walk(&d, err);
  if (status == GD_OK) {
    gd_graph_op(graph, GD_OP_accumulate, NULL, 2, (gd_tensor_id[]){graph->loss_sum, graph->loss});
    status = gd_graph_check(graph, err);
  }
  graph->phase = GD_PHASE_FORWARD;
  if (status != GD_OK)
    goto done;
  graph->backward_done = true;
  struct gd_cost cost;
  gd_graph_cost(graph, &cost);
  graph->model_flops = cost.product_flops;
done:
  gd_mem_free(grad_sum);
  gd_mem_free(d.grad);
  gd_mem_free(d.wanted);
  return status;
}

/* --- the update program -------------------------------------------------------------------- */

/* Every parameter by itself, where no pass has said otherwise. */
static enum gd_status default_targets(struct gd_graph *graph, struct gd_error *err) {
  const uint32_t n = graph->n_tensors;
  uint32_t count = 0;
  for (gd_tensor_id id = 0; id < n; id++)
    count += graph->tensors[id].role == GD_ROLE_GRAD;
  struct gd_adam_target *targets = gd_arena_alloc(&graph->arena, count, sizeof *targets);
  gd_tensor_id *half_of = gd_mem_alloc(n, sizeof *half_of); /* by master */
  if (!targets || !half_of) {
    gd_mem_free(half_of);
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while building the update program");
  }
  for (gd_tensor_id id = 0; id < n; id++)
    half_of[id] = GD_NONE;
  for (gd_tensor_id id = 0; id < n; id++)
    if (graph->tensors[id].role == GD_ROLE_PARAM_HALF)
      half_of[graph->tensors[id].owner] = id;
  count = 0;
  for (gd_tensor_id id = 0; id < n; id++)
    if (graph->tensors[id].role == GD_ROLE_GRAD)
      targets[count++] = (struct gd_adam_target){.param = graph->tensors[id].owner,
                                                 .grad = id,
                                                 .half = half_of[graph->tensors[id].owner],
                                                 .norm = id,
                                                 .clear = id,
                                                 .gather = GD_NONE};
  gd_mem_free(half_of);
  graph->targets = targets;
  graph->n_targets = count;
  return GD_OK;
}

/* The sums of squares behind step and loss scale: what control reads. Returns the step. */
static gd_tensor_id append_control(struct gd_graph *graph, const struct gd_attr_control *control,
                                   gd_tensor_id *sums) {
  uint32_t n = 2;
  sums[0] = graph->step;
  sums[1] = graph->loss_scale;
  for (uint32_t i = 0; i < graph->n_targets; i++)
    sums[n++] = gd_graph_op(graph, GD_OP_sum_squares, NULL, 1, &graph->targets[i].norm);
  if (graph->ranks > 1) { /* each rank has summed its share: all need the whole */
    gd_tensor_id own = gd_concat(graph, n - 2, sums + 2);
    union gd_attr attr = {.ranks = {graph->rank, graph->ranks}};
    sums[2] = gd_graph_op(graph, GD_OP_gather, &attr, 1, &own);
    n = 3;
  }
  return gd_graph_op(graph, GD_OP_control, &(union gd_attr){.control = *control}, n, sums);
}

static void append_all_gather(struct gd_graph *graph, gd_tensor_id flat) {
  union gd_attr attr = {.ranks = {graph->rank, graph->ranks}};
  if (flat != GD_NONE)
    gd_graph_op(graph, GD_OP_all_gather, &attr, 1, &flat);
}

static void append_adam(struct gd_graph *graph, const struct gd_adam_target *target,
                        const struct gd_update *update, gd_tensor_id step) {
  union gd_attr adam = {.adam = update->adam};
  if (graph->tensors[target->param].no_decay && !update->decay_all)
    adam.adam.weight_decay = 0;
  gd_tensor_id m = owned_leaf(graph, target->param, GD_ROLE_OPTIMIZER, "m");
  gd_tensor_id v = owned_leaf(graph, target->param, GD_ROLE_OPTIMIZER, "v");
  if (v == GD_NONE)
    return;
  graph->tensors[m].flat = graph->tensors[v].flat = graph->tensors[target->param].flat;
  gd_graph_op(graph, GD_OP_adam, &adam, target->half == GD_NONE ? 7 : 8,
              (gd_tensor_id[]){target->param, target->grad, m, v, graph->factor, graph->lr, step,
                               target->half});
  append_all_gather(graph, target->gather);
  gd_graph_op(graph, GD_OP_fill, &(union gd_attr){.fill = {0}}, 1, &target->clear);
}

enum gd_status gd_append_update(struct gd_graph *graph, const struct gd_update *update,
                                struct gd_error *err) {
  GD_TRY(gd_graph_check(graph, err));
  GD_ASSERT(graph->backward_done && graph->step == GD_NONE);
  if (graph->n_targets == 0)
    GD_TRY(default_targets(graph, err));
  gd_tensor_id *sums = gd_mem_alloc((size_t)graph->n_targets + 3, sizeof *sums);
  if (!sums)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while building the update program");
  graph->phase = GD_PHASE_UPDATE;
  graph->step = gd_graph_leaf(graph, GD_ROLE_STATE, "step", GD_DTYPE_F32, 1, (int64_t[]){1});
  graph->lr = gd_graph_leaf(graph, GD_ROLE_INPUT, "lr", GD_DTYPE_F32, 1, (int64_t[]){1});
  gd_tensor_id step = append_control(graph, &update->control, sums);
  gd_mem_free(sums);
  GD_TRY(gd_graph_check(graph, err));
  graph->norm = step + 2;
  graph->factor = step + 3;
  for (uint32_t i = 0; i < graph->n_targets; i++) {
    graph->block = graph->tensors[graph->targets[i].param].block;
    append_adam(graph, &graph->targets[i], update, step);
  }

  graph->phase = GD_PHASE_INIT;
  for (uint32_t i = 0; i < graph->n_targets; i++) {
    const struct gd_adam_target *target = &graph->targets[i];
    if (target->half == GD_NONE)
      continue;
    gd_graph_op(graph, GD_OP_copy, NULL, 2, (gd_tensor_id[]){target->half, target->param});
    append_all_gather(graph, target->gather);
  }
  graph->phase = GD_PHASE_FORWARD;
  graph->block = -1;
  return gd_graph_check(graph, err);
}
