/*
 * Gradients of gd_autodiff against finite differences, on ref kernels. A case builds one op on fp32
 * parameters; its output goes through a fixed matrix into a cross-entropy, so that the loss is a
 * scalar and the gradient that reaches the op has no special direction. Every element of every
 * parameter is compared. An op whose row in ops.def has a gradient rule must be in a case, unless
 * it has no attributes and takes matrices of one shape: such a case is made here.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/cache.h"
#include "base/rng.h"
#include "ir/autodiff.h"
#include "support/op_harness.h"

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof *(array)))
#define DIMS(...)                                                               \
  (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]) { \
    __VA_ARGS__                                                                 \
  }

struct grad_case {
  enum gd_op_kind kind; /* the op it is about */
  const char *name;
  gd_tensor_id (*build)(struct gd_graph *graph); /* the output, or the loss itself */
  float low, high;                               /* of every parameter; 0, 0: in [-1, 1) */
};

static gd_tensor_id param(struct gd_graph *graph, const char *name, uint32_t rank,
                          const int64_t *dims) {
  return gd_graph_param(graph, name, rank, dims, GD_INIT_NORMAL, 1);
}

static gd_tensor_id constant(struct gd_graph *graph, const char *name, uint32_t rank,
                             const int64_t *dims) {
  return gd_graph_leaf(graph, GD_ROLE_CONST, name, GD_DTYPE_F32, rank, dims);
}

/* Integer leaves are filled with values below their number in the name: ids5 has 0 to 4. */
static gd_tensor_id integers(struct gd_graph *graph, const char *name, uint32_t rank,
                             const int64_t *dims) {
  return gd_graph_leaf(graph, GD_ROLE_INPUT, name, GD_DTYPE_I32, rank, dims);
}

/* --- cases --------------------------------------------------------------------------------- */

static gd_tensor_id build_reshape(struct gd_graph *g) {
  return gd_reshape(g, param(g, "x", DIMS(2, 6)), DIMS(3, 2, 2));
}

static gd_tensor_id build_split(struct gd_graph *g) {
  gd_tensor_id first = gd_split(g, param(g, "x", DIMS(6, 3)), 3);
  gd_tensor_id scores =
      gd_matmul(g, first, first + 1, GD_NONE,
                (struct gd_attr_matmul){.trans_b = true, .alpha = 1, .out_dtype = GD_DTYPE_COUNT});
  return gd_matmul(g, scores, first + 2, GD_NONE,
                   (struct gd_attr_matmul){.alpha = 1, .out_dtype = GD_DTYPE_COUNT});
}

static gd_tensor_id build_concat(struct gd_graph *g) {
  gd_tensor_id a = param(g, "a", DIMS(2, 3)), b = param(g, "b", DIMS(2, 3));
  return gd_concat(g, 4, (gd_tensor_id[]){a, b, a, gd_activate(g, b, GD_ACTIVATION_SILU)});
}

static gd_tensor_id build_transpose(struct gd_graph *g) {
  return gd_transpose(g, param(g, "x", DIMS(2, 3, 4)), (uint8_t[]){2, 0, 1});
}

static gd_tensor_id build_transpose_4(struct gd_graph *g) {
  return gd_transpose(g, param(g, "x", DIMS(2, 3, 2, 3)), (uint8_t[]){0, 2, 1, 3});
}

static gd_tensor_id build_slice(struct gd_graph *g) { /* entry 2 is in both */
  gd_tensor_id x = param(g, "x", DIMS(2, 5, 3));
  return gd_add(g, gd_slice(g, x, 1, 0, 3),
                gd_activate(g, gd_slice(g, x, 1, 2, 3), GD_ACTIVATION_TANH));
}

static gd_tensor_id build_slice_last(struct gd_graph *g) {
  return gd_slice(g, param(g, "x", DIMS(3, 5)), 1, 3, 2);
}

static gd_tensor_id build_pad(struct gd_graph *g) {
  return gd_pad(g, param(g, "x", DIMS(2, 2, 3)), 1, 1, 4);
}

static gd_tensor_id build_cast(struct gd_graph *g) { /* without a precision pass: to fp32 */
  return gd_cast(g, param(g, "x", DIMS(3, 2)), GD_DTYPE_COUNT);
}

static gd_tensor_id build_embed(struct gd_graph *g) { /* 8 ids out of 5: some twice, some never */
  return gd_embed(g, param(g, "table", DIMS(5, 3)), integers(g, "ids5", DIMS(2, 4)));
}

/* Letters: a and b transposed, in every combination, with a bias. */
static gd_tensor_id matmul_case(struct gd_graph *g, bool trans_a, bool trans_b) {
  gd_tensor_id a = trans_a ? param(g, "a", DIMS(3, 2)) : param(g, "a", DIMS(2, 3));
  gd_tensor_id b = trans_b ? param(g, "b", DIMS(4, 3)) : param(g, "b", DIMS(3, 4));
  return gd_matmul(g, a, b, param(g, "bias", DIMS(4)),
                   (struct gd_attr_matmul){trans_a, trans_b, 0.5f, GD_DTYPE_COUNT, false});
}
static gd_tensor_id build_matmul_nn(struct gd_graph *g) {
  return matmul_case(g, false, false);
}
static gd_tensor_id build_matmul_nt(struct gd_graph *g) {
  return matmul_case(g, false, true);
}
static gd_tensor_id build_matmul_tn(struct gd_graph *g) {
  return matmul_case(g, true, false);
}
static gd_tensor_id build_matmul_tt(struct gd_graph *g) {
  return matmul_case(g, true, true);
}

static gd_tensor_id batched_case(struct gd_graph *g, bool trans_a, bool trans_b) {
  gd_tensor_id a = trans_a ? param(g, "a", DIMS(2, 2, 3, 2)) : param(g, "a", DIMS(2, 2, 2, 3));
  gd_tensor_id b = trans_b ? param(g, "b", DIMS(2, 2, 4, 3)) : param(g, "b", DIMS(2, 2, 3, 4));
  return gd_matmul(g, a, b, GD_NONE,
                   (struct gd_attr_matmul){trans_a, trans_b, 0.5f, GD_DTYPE_COUNT, false});
}
static gd_tensor_id build_batched_nn(struct gd_graph *g) {
  return batched_case(g, false, false);
}
static gd_tensor_id build_batched_nt(struct gd_graph *g) {
  return batched_case(g, false, true);
}
static gd_tensor_id build_batched_tn(struct gd_graph *g) {
  return batched_case(g, true, false);
}
static gd_tensor_id build_batched_tt(struct gd_graph *g) {
  return batched_case(g, true, true);
}

static gd_tensor_id build_linear(struct gd_graph *g) {
  return gd_linear(g, param(g, "x", DIMS(2, 2, 3)), param(g, "weight", DIMS(4, 3)),
                   param(g, "bias", DIMS(4)));
}

static gd_tensor_id build_flat_nn(struct gd_graph *g) {
  return gd_matmul(g, param(g, "a", DIMS(2, 2, 3)), param(g, "b", DIMS(3, 4)), GD_NONE,
                   (struct gd_attr_matmul){false, false, 2, GD_DTYPE_COUNT, false});
}

static gd_tensor_id build_square(struct gd_graph *g) { /* x x^T: both operands are one parameter */
  gd_tensor_id x = param(g, "x", DIMS(3, 3));
  return gd_matmul(g, x, x, GD_NONE,
                   (struct gd_attr_matmul){false, true, 1, GD_DTYPE_COUNT, false});
}

static gd_tensor_id build_add(struct gd_graph *g) {
  return gd_add(g, param(g, "a", DIMS(2, 3)), param(g, "b", DIMS(2, 3)));
}

static gd_tensor_id build_add_broadcast(struct gd_graph *g) {
  return gd_add(g, param(g, "a", DIMS(2, 2, 3)), param(g, "b", DIMS(2, 3)));
}

static gd_tensor_id build_add_computed(struct gd_graph *g) { /* what is repeated is no parameter */
  gd_tensor_id b = gd_activate(g, param(g, "b", DIMS(2, 3)), GD_ACTIVATION_SILU);
  return gd_add(g, param(g, "a", DIMS(3, 2, 3)), gd_add(g, b, b));
}

static gd_tensor_id build_mul(struct gd_graph *g) {
  return gd_mul(g, param(g, "a", DIMS(2, 3)), param(g, "b", DIMS(2, 3)));
}

static gd_tensor_id build_mul_broadcast(struct gd_graph *g) {
  return gd_mul(g, param(g, "a", DIMS(2, 2, 3)), param(g, "b", DIMS(3)));
}

static gd_tensor_id build_mul_computed(struct gd_graph *g) {
  gd_tensor_id b = gd_activate(g, param(g, "b", DIMS(2, 3)), GD_ACTIVATION_SILU);
  return gd_mul(g, gd_activate(g, param(g, "a", DIMS(3, 2, 3)), GD_ACTIVATION_TANH), b);
}

static gd_tensor_id build_mul_square(struct gd_graph *g) {
  gd_tensor_id x = param(g, "x", DIMS(2, 3));
  return gd_mul(g, x, x);
}

/* Two masks; the seed is any, as its name ends in a letter. */
static gd_tensor_id build_dropout(struct gd_graph *g) {
  return gd_dropout(g, gd_dropout(g, param(g, "x", DIMS(4, 3)), 0.3), 0.5);
}

/* 6 samples, of which some are dropped and some stay. */
static gd_tensor_id build_drop_path(struct gd_graph *g) {
  gd_tensor_id x = param(g, "x", DIMS(6, 2, 3));
  return gd_add(g, gd_drop_path(g, gd_activate(g, x, GD_ACTIVATION_TANH), 0.5), x);
}

static gd_tensor_id build_add_twice(struct gd_graph *g) { /* (x + x) + silu(x) */
  gd_tensor_id x = param(g, "x", DIMS(2, 3));
  return gd_add(g, gd_add(g, x, x), gd_activate(g, x, GD_ACTIVATION_SILU));
}

static gd_tensor_id build_layernorm(struct gd_graph *g) {
  return gd_layernorm(g, param(g, "x", DIMS(2, 2, 5)), param(g, "weight", DIMS(5)),
                      param(g, "bias", DIMS(5)), 1e-5f);
}

static gd_tensor_id build_layernorm_nobias(struct gd_graph *g) {
  return gd_layernorm(g, param(g, "x", DIMS(3, 5)), param(g, "weight", DIMS(5)), GD_NONE, 0.1f);
}

static gd_tensor_id build_rmsnorm(struct gd_graph *g) {
  return gd_rmsnorm(g, param(g, "x", DIMS(2, 2, 5)), param(g, "weight", DIMS(5)), 1e-5f);
}

static const struct gd_attr_heads two_parts = {
    .heads = 2, .parts = 2, .interleaved = true, .rotated = 2, .rotary = 2};

static gd_tensor_id build_split_heads(struct gd_graph *g) {
  gd_tensor_id first =
      gd_split_heads(g, param(g, "x", DIMS(2, 3, 12)), constant(g, "table", DIMS(3, 2)), two_parts);
  return gd_mul(g, first, first + 1);
}

static gd_tensor_id build_merge_heads(struct gd_graph *g) {
  gd_tensor_id parts[] = {param(g, "a", DIMS(2, 2, 3, 3)), param(g, "b", DIMS(2, 2, 3, 3))};
  return gd_merge_heads(g, parts, constant(g, "table", DIMS(3, 2)), two_parts);
}

static gd_tensor_id build_merge_one(struct gd_graph *g) {
  gd_tensor_id part = param(g, "x", DIMS(2, 3, 2, 2));
  return gd_merge_heads(g, &part, GD_NONE, (struct gd_attr_heads){.heads = 3, .parts = 1});
}

static gd_tensor_id build_rope(struct gd_graph *g) {
  return gd_rope(g, param(g, "x", DIMS(2, 3, 6)), constant(g, "table", DIMS(3, 4)), 4);
}

static gd_tensor_id build_softmax(struct gd_graph *g) {
  return gd_softmax(g, param(g, "x", DIMS(2, 3, 4)), false);
}

static gd_tensor_id build_softmax_causal(struct gd_graph *g) {
  return gd_softmax(g, param(g, "x", DIMS(2, 4, 4)), true);
}

/* Heads over key heads; the seed as gd_dropout makes it. */
static gd_tensor_id attention_case(struct gd_graph *g, int64_t heads, int64_t key_heads,
                                   struct gd_attr_attention attr) {
  gd_tensor_id seed = GD_NONE;
  if (attr.probability > 0)
    seed = g->dropout_seed = integers(g, "dropout_seed9", DIMS(3));
  return gd_attention(g, param(g, "q", DIMS(2, heads, 3, 2)),
                      param(g, "k", DIMS(2, key_heads, 3, 2)),
                      param(g, "v", DIMS(2, key_heads, 3, 2)), seed, attr);
}
static gd_tensor_id build_attention_full(struct gd_graph *g) {
  return attention_case(g, 2, 2, (struct gd_attr_attention){.scale = 0.7f});
}
static gd_tensor_id build_attention_causal(struct gd_graph *g) {
  return attention_case(g, 2, 2, (struct gd_attr_attention){.causal = true, .scale = 1.5f});
}
static gd_tensor_id build_attention_shared(struct gd_graph *g) {
  return attention_case(g, 4, 2, (struct gd_attr_attention){.causal = true, .scale = 0.7f});
}
static gd_tensor_id build_attention_dropout(struct gd_graph *g) {
  return attention_case(
      g, 3, 1, (struct gd_attr_attention){.scale = 0.7f, .probability = 0.4f, .stream = 2});
}

#define BUILD_ACTIVATION(name, kind)                                        \
  static gd_tensor_id build_##name(struct gd_graph *g) {                    \
    return gd_activate(g, param(g, "x", DIMS(3, 4)), GD_ACTIVATION_##kind); \
  }
BUILD_ACTIVATION(gelu, GELU)
BUILD_ACTIVATION(gelu_tanh, GELU_TANH)
BUILD_ACTIVATION(quick_gelu, QUICK_GELU)
BUILD_ACTIVATION(relu, RELU)
BUILD_ACTIVATION(silu, SILU)
BUILD_ACTIVATION(softplus, SOFTPLUS)
BUILD_ACTIVATION(tanh, TANH)
BUILD_ACTIVATION(sigmoid, SIGMOID)

static gd_tensor_id build_pool(struct gd_graph *g) {
  return gd_pool(g, param(g, "x", DIMS(2, 3, 4)));
}

static gd_tensor_id build_depthwise(struct gd_graph *g) {
  return gd_depthwise(g, param(g, "x", DIMS(1, 4, 3, 2)), param(g, "weight", DIMS(2, 1, 3, 3)),
                      param(g, "bias", DIMS(2)));
}

static gd_tensor_id build_conv1d(struct gd_graph *g) {
  return gd_conv1d(g, param(g, "x", DIMS(2, 5, 2)), param(g, "weight", DIMS(2, 1, 3)),
                   param(g, "bias", DIMS(2)));
}

static gd_tensor_id scan_case(struct gd_graph *g, int64_t batch, int64_t steps) {
  return gd_scan(g, param(g, "u", DIMS(batch, steps, 2)), param(g, "delta", DIMS(batch, steps, 2)),
                 param(g, "a_log", DIMS(2, 3)), param(g, "b", DIMS(batch, steps, 3)),
                 param(g, "c", DIMS(batch, steps, 3)), param(g, "d", DIMS(2)));
}
static gd_tensor_id build_scan(struct gd_graph *g) {
  return scan_case(g, 2, 5);
}
/* Past a kept state; the loss of a few steps, as that of all would drown in its own rounding. */
static gd_tensor_id build_scan_chunks(struct gd_graph *g) {
  return gd_slice(g, scan_case(g, 1, GD_SCAN_CHUNK + 6), 1, GD_SCAN_CHUNK - 2, 8);
}

static gd_tensor_id build_decay(struct gd_graph *g) {
  return gd_decay(g, param(g, "delta", DIMS(2, 3, 2)), param(g, "a_log", DIMS(2, 3)));
}
static gd_tensor_id build_outer(struct gd_graph *g) {
  return gd_outer(g, param(g, "x", DIMS(2, 3, 2)), param(g, "b", DIMS(2, 3, 4)));
}
static gd_tensor_id build_recur(struct gd_graph *g) {
  return gd_recur(g, param(g, "a", DIMS(2, 4, 2, 3)), param(g, "x", DIMS(2, 4, 2, 3)));
}
static gd_tensor_id build_contract_states(struct gd_graph *g) {
  return gd_contract_states(g, param(g, "h", DIMS(2, 3, 2, 4)), param(g, "c", DIMS(2, 3, 4)),
                            GD_DTYPE_COUNT);
}
/* The whole of an unfused scan; u and delta have two uses each. */
static gd_tensor_id build_scan_in_parts(struct gd_graph *g) {
  gd_tensor_id u = param(g, "u", DIMS(2, 5, 2)), delta = param(g, "delta", DIMS(2, 5, 2));
  gd_tensor_id a = gd_decay(g, delta, param(g, "a_log", DIMS(2, 3)));
  gd_tensor_id x = gd_outer(g, gd_mul(g, delta, u), param(g, "b", DIMS(2, 5, 3)));
  gd_tensor_id y =
      gd_contract_states(g, gd_recur(g, a, x), param(g, "c", DIMS(2, 5, 3)), GD_DTYPE_F32);
  return gd_add(g, y, gd_mul(g, u, param(g, "d", DIMS(2))));
}

static gd_tensor_id xent_case(struct gd_graph *g, bool shift) {
  g->loss_weight = gd_graph_leaf(g, GD_ROLE_INPUT, "weight", GD_DTYPE_F32, DIMS(1));
  g->loss = gd_xent(g, param(g, "logits", DIMS(2, 5, 3)), integers(g, "labels3", DIMS(2, 5)),
                    g->loss_weight, (struct gd_attr_xent){.ignore = 0, .shift = shift});
  return g->loss;
}
static gd_tensor_id build_xent(struct gd_graph *g) {
  return xent_case(g, false);
}
static gd_tensor_id build_xent_shift(struct gd_graph *g) {
  return xent_case(g, true);
}

/* Targets from -1 to 1: the gradient is linear in them, whatever they are. */
static gd_tensor_id build_soft_xent(struct gd_graph *g) {
  g->loss_weight = gd_graph_leaf(g, GD_ROLE_INPUT, "weight", GD_DTYPE_F32, DIMS(1));
  g->loss = gd_soft_xent(g, param(g, "logits", DIMS(2, 5, 3)), constant(g, "soft", DIMS(2, 5, 3)),
                         g->loss_weight);
  return g->loss;
}

/* Label 0 is ignored; the labels have dims of their own. */
static gd_tensor_id linear_xent_case(struct gd_graph *g, bool shift, bool bias) {
  g->loss_weight = gd_graph_leaf(g, GD_ROLE_INPUT, "weight", GD_DTYPE_F32, DIMS(1));
  gd_tensor_id x = shift ? param(g, "x", DIMS(10, 3)) : param(g, "x", DIMS(2, 5, 3));
  g->loss =
      gd_linear_xent(g, x, param(g, "w", DIMS(4, 3)), bias ? param(g, "bias", DIMS(4)) : GD_NONE,
                     integers(g, "labels4", DIMS(2, 5)), g->loss_weight,
                     (struct gd_attr_xent){.ignore = 0, .shift = shift});
  return g->loss;
}
static gd_tensor_id build_linear_xent(struct gd_graph *g) {
  return linear_xent_case(g, false, false);
}
static gd_tensor_id build_linear_xent_shift(struct gd_graph *g) {
  return linear_xent_case(g, true, true);
}
/* Tied: the table embeds, and the loss gives the other half of its gradient. */
static gd_tensor_id build_linear_xent_tied(struct gd_graph *g) {
  gd_tensor_id table = param(g, "table", DIMS(4, 3));
  g->loss_weight = gd_graph_leaf(g, GD_ROLE_INPUT, "weight", GD_DTYPE_F32, DIMS(1));
  gd_tensor_id x = gd_embed(g, table, integers(g, "ids4", DIMS(2, 3)));
  g->loss = gd_linear_xent(g, gd_activate(g, x, GD_ACTIVATION_GELU), table, GD_NONE,
                           integers(g, "labels4", DIMS(2, 3)), g->loss_weight,
                           (struct gd_attr_xent){.ignore = -100});
  return g->loss;
}

/* A table that embeds and, tied, scores: its two contributions lie far apart. */
static gd_tensor_id build_tied(struct gd_graph *g) {
  gd_tensor_id table = param(g, "table", DIMS(4, 3));
  gd_tensor_id x = gd_embed(g, table, integers(g, "ids4", DIMS(2, 3)));
  x = gd_add(g, x, gd_activate(g, x, GD_ACTIVATION_GELU));
  return gd_linear(g, x, table, GD_NONE);
}

/* Causal attention of one head with a residual: q, k, v from one projection, as in the models. */
static gd_tensor_id build_attention(struct gd_graph *g) {
  gd_tensor_id x = param(g, "x", DIMS(3, 4));
  gd_tensor_id qkv = gd_linear(g, x, param(g, "weight", DIMS(12, 4)), param(g, "bias", DIMS(12)));
  qkv = gd_transpose(g, gd_reshape(g, qkv, DIMS(3, 3, 4)), (uint8_t[]){1, 0, 2});
  gd_tensor_id q = gd_split(g, qkv, 3), k = q + 1, v = q + 2;
  gd_tensor_id table = constant(g, "table", DIMS(3, 2));
  gd_tensor_id scores =
      gd_matmul(g, gd_rope(g, q, table, 2), gd_rope(g, k, table, 2), GD_NONE,
                (struct gd_attr_matmul){false, true, 0.5f, GD_DTYPE_COUNT, false});
  gd_tensor_id mixed = gd_matmul(g, gd_softmax(g, scores, true), v, GD_NONE,
                                 (struct gd_attr_matmul){false, false, 1, GD_DTYPE_COUNT, false});
  return gd_add(g, x, gd_reshape(g, mixed, DIMS(3, 4)));
}

static const struct grad_case cases[] = {
    {GD_OP_reshape, "reshape", build_reshape, 0, 0},
    {GD_OP_split, "split", build_split, 0, 0},
    {GD_OP_concat, "concat", build_concat, 0, 0},
    {GD_OP_transpose, "transpose", build_transpose, 0, 0},
    {GD_OP_transpose, "transpose of rank 4", build_transpose_4, 0, 0},
    {GD_OP_slice, "slice", build_slice, 0, 0},
    {GD_OP_slice, "slice of the last dim", build_slice_last, 0, 0},
    {GD_OP_pad, "pad", build_pad, 0, 0},
    {GD_OP_cast, "cast", build_cast, 0, 0},
    {GD_OP_embed, "embed", build_embed, 0, 0},
    {GD_OP_matmul, "matmul nn", build_matmul_nn, 0, 0},
    {GD_OP_matmul, "matmul nt", build_matmul_nt, 0, 0},
    {GD_OP_matmul, "matmul tn", build_matmul_tn, 0, 0},
    {GD_OP_matmul, "matmul tt", build_matmul_tt, 0, 0},
    {GD_OP_matmul, "batched matmul nn", build_batched_nn, 0, 0},
    {GD_OP_matmul, "batched matmul nt", build_batched_nt, 0, 0},
    {GD_OP_matmul, "batched matmul tn", build_batched_tn, 0, 0},
    {GD_OP_matmul, "batched matmul tt", build_batched_tt, 0, 0},
    {GD_OP_matmul, "linear", build_linear, 0, 0},
    {GD_OP_matmul, "flattened matmul", build_flat_nn, 0, 0},
    {GD_OP_matmul, "one operand twice", build_square, 0, 0},
    {GD_OP_add, "add", build_add, 0, 0},
    {GD_OP_add, "broadcast add", build_add_broadcast, 0, 0},
    {GD_OP_add, "a parameter used three times", build_add_twice, 0, 0},
    {GD_OP_add, "broadcast add of what is no parameter", build_add_computed, 0, 0},
    {GD_OP_mul, "mul", build_mul, 0, 0},
    {GD_OP_mul, "broadcast mul", build_mul_broadcast, 0, 0},
    {GD_OP_mul, "broadcast mul of what is no parameter", build_mul_computed, 0, 0},
    {GD_OP_mul, "square", build_mul_square, 0, 0},
    {GD_OP_dropout, "dropout", build_dropout, 0, 0},
    {GD_OP_dropout, "drop path", build_drop_path, 0, 0},
    {GD_OP_layernorm, "layernorm", build_layernorm, 0, 0},
    {GD_OP_layernorm, "layernorm without bias", build_layernorm_nobias, 0, 0},
    {GD_OP_rmsnorm, "rmsnorm", build_rmsnorm, 0, 0},
    {GD_OP_rope, "rope", build_rope, 0, 0},
    {GD_OP_split_heads, "split_heads", build_split_heads, 0, 0},
    {GD_OP_merge_heads, "merge_heads", build_merge_heads, 0, 0},
    {GD_OP_merge_heads, "merge_heads of one part", build_merge_one, 0, 0},
    {GD_OP_softmax, "softmax", build_softmax, -2, 2},
    {GD_OP_softmax, "causal softmax", build_softmax_causal, -2, 2},
    {GD_OP_attention, "full attention", build_attention_full, -2, 2},
    {GD_OP_attention, "causal attention", build_attention_causal, 0, 0},
    {GD_OP_attention, "attention with shared keys", build_attention_shared, -2, 2},
    {GD_OP_attention, "attention with dropout", build_attention_dropout, 0, 0},
    {GD_OP_activate, "gelu", build_gelu, -3, 3},
    {GD_OP_activate, "gelu_tanh", build_gelu_tanh, -3, 3},
    {GD_OP_activate, "relu above", build_relu, 0.1f, 1}, /* the step stays on its side of 0 */
    {GD_OP_activate, "relu below", build_relu, -1, -0.1f},
    {GD_OP_activate, "silu", build_silu, -3, 3},
    {GD_OP_activate, "softplus", build_softplus, -3, 3},
    {GD_OP_activate, "quick_gelu", build_quick_gelu, -3, 3},
    {GD_OP_activate, "tanh", build_tanh, -2, 2},
    {GD_OP_activate, "sigmoid", build_sigmoid, -3, 3},
    {GD_OP_pool, "pool", build_pool, 0, 0},
    {GD_OP_depthwise, "depthwise", build_depthwise, 0, 0},
    {GD_OP_conv1d, "conv1d", build_conv1d, 0, 0},
    {GD_OP_scan, "scan", build_scan, 0.1f, 0.9f},
    {GD_OP_scan, "scan of two chunks", build_scan_chunks, 0.1f, 0.5f},
    {GD_OP_decay, "decay", build_decay, 0.1f, 0.9f},
    {GD_OP_outer, "outer", build_outer, 0, 0},
    {GD_OP_recur, "recur", build_recur, 0, 0},
    {GD_OP_contract_states, "contract_states", build_contract_states, 0, 0},
    {GD_OP_recur, "scan in parts", build_scan_in_parts, 0.1f, 0.9f},
    {GD_OP_xent, "xent", build_xent, -2, 2},
    {GD_OP_soft_xent, "soft_xent", build_soft_xent, -2, 2},
    {GD_OP_xent, "shifted xent", build_xent_shift, -2, 2},
    {GD_OP_linear_xent, "linear_xent", build_linear_xent, 0, 0},
    {GD_OP_linear_xent, "shifted linear_xent with bias", build_linear_xent_shift, 0, 0},
    {GD_OP_linear_xent, "tied linear_xent", build_linear_xent_tied, 0, 0},
    {GD_OP_embed, "tied embedding", build_tied, 0, 0},
    {GD_OP_softmax, "attention", build_attention, 0, 0},
};

/* --- one case ------------------------------------------------------------------------------ */

enum { CLASSES = 3 };
static const float weight = 0.5f, scale = 4;

/* Everything but a loss gets one: reshape to rows, a fixed matrix, cross-entropy. */
static void append_loss(struct gd_graph *g, gd_tensor_id y) {
  if (y == g->loss || gd_graph_check(g, NULL) != GD_OK)
    return;
  int64_t columns = g->tensors[y].dims[g->tensors[y].rank - 1];
  int64_t rows = gd_tensor_elements(g, y) / columns;
  gd_tensor_id logits = gd_matmul(g, gd_reshape(g, y, DIMS(rows, columns)),
                                  constant(g, "mix", DIMS(columns, CLASSES)), GD_NONE,
                                  (struct gd_attr_matmul){false, false, 1, GD_DTYPE_COUNT, false});
  g->loss_weight = gd_graph_leaf(g, GD_ROLE_INPUT, "weight", GD_DTYPE_F32, DIMS(1));
  g->loss = gd_xent(g, logits, integers(g, "labels3", DIMS(rows)), g->loss_weight,
                    (struct gd_attr_xent){.ignore = -100});
}

/* Values go by the name, not by the id: compilers evaluate arguments, and with them leaves, in
 * either order. */
static void fill_leaf(const struct op_program *program, gd_tensor_id id,
                      const struct grad_case *c) {
  const struct gd_graph *g = program->graph;
  const struct gd_tensor *t = &g->tensors[id];
  uint64_t stream = gd_cache_hash_text(0, t->name);
  void *data = op_program_data(program, id);
  float low = t->role == GD_ROLE_PARAM ? c->low : 0, high = t->role == GD_ROLE_PARAM ? c->high : 0;
  if (low == 0 && high == 0) {
    low = -1;
    high = 1;
  }
  for (int64_t i = 0; i < gd_tensor_elements(g, id); i++) {
    uint64_t at = (uint64_t)i;
    if (t->dtype == GD_DTYPE_I32) {
      int64_t bound = t->name[strlen(t->name) - 1] - '0';
      ((int32_t *)data)[i] = (int32_t)gd_rng_below(5, stream, at, bound);
    } else if (id == g->loss_weight) {
      ((float *)data)[i] = weight;
    } else if (id == g->loss_scale) {
      ((float *)data)[i] = i == 0 ? scale : 0;
    } else if (t->role != GD_ROLE_GRAD && t->role != GD_ROLE_STATE) {
      ((float *)data)[i] = low + (high - low) * gd_rng_uniform(5, stream, at);
    }
  }
}

static double loss_of(const struct op_program *program) {
  op_program_run(program, gd_ref_kernels, GD_PHASE_FORWARD);
  return (double)*(const float *)op_program_data(program, program->graph->loss);
}

/*
 * The five-point difference [-f(2h) + 8 f(h) - 8 f(-h) + f(-2h)] / 12h: its error h^4 f'''''/30
 * and the rounding of an fp32 loss over h are both below 1e-4 at h = 0.03 (Abramowitz, Stegun,
 * 25.3.6).
 */
static double difference(const struct op_program *program, float *x) {
  const float h = 0.03f, at = *x;
  double f[4];
  const float offsets[4] = {-2 * h, -h, h, 2 * h};
  volatile float moved[4]; /* the points as fp32 has them */
  for (int i = 0; i < 4; i++) {
    moved[i] = at + offsets[i];
    *x = moved[i];
    f[i] = loss_of(program);
  }
  *x = at;
  double step = ((double)moved[3] - (double)moved[0]) / 4;
  return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * step);
}

/* Compares every element of one parameter; `passes` have been accumulated. */
static int compare(const struct op_program *program, const struct grad_case *c, gd_tensor_id grad,
                   int passes) {
  const struct gd_graph *g = program->graph;
  gd_tensor_id owner = g->tensors[grad].owner;
  float *x = op_program_data(program, owner);
  const float *got = op_program_data(program, grad);
  int wrong = 0;
  /* One unit in the last place of each fp32 loss, by the coefficients of the difference: 18 / 12h.
   */
  double rounding = 50 * (double)FLT_EPSILON * fabs(loss_of(program)) * (double)scale * passes;
  for (int64_t i = 0; i < gd_tensor_elements(g, owner); i++) {
    double want = difference(program, &x[i]) * (double)scale * passes;
    if (fabs((double)got[i] - want) <= 5e-4 * (0.3 + fabs(want)) + rounding)
      continue;
    if (wrong++ == 0)
      print_error("%s: the gradient of %s[%lld] is %g, by differences %g\n", c->name,
                  g->tensors[owner].name, (long long)i, (double)got[i], want);
  }
  return wrong;
}

static int check_case(const struct grad_case *c, bool covered[GD_OP_COUNT]) {
  enum { PASSES = 2 };
  struct gd_graph g;
  struct gd_error err = {0};
  struct op_program program = {0};
  int wrong = 0, compared = 0;
  gd_graph_init(&g);
  append_loss(&g, c->build(&g));
  uint32_t n_forward = g.n_ops;
  if (gd_graph_check(&g, &err) != GD_OK || gd_autodiff(&g, &err) != GD_OK ||
      gd_graph_verify(&g, &err) != GD_OK || !op_program_init(&program, &g)) {
    print_error("%s: %s\n", c->name, err.text);
    wrong = 1;
    goto done;
  }
  for (gd_tensor_id id = 0; id < g.n_tensors; id++)
    if (g.tensors[id].producer == GD_NONE)
      fill_leaf(&program, id, c);
  for (int pass = 0; pass < PASSES; pass++) {
    op_program_run(&program, gd_ref_kernels, GD_PHASE_FORWARD);
    op_program_run(&program, gd_ref_kernels, GD_PHASE_BACKWARD);
  }
  for (gd_tensor_id id = 0; id < g.n_tensors; id++)
    if (g.tensors[id].role == GD_ROLE_GRAD) {
      wrong += compare(&program, c, id, PASSES);
      compared++;
    }
  double loss = loss_of(&program);
  double sum = (double)*(const float *)op_program_data(&program, g.loss_sum);
  if (compared == 0 || !isfinite(loss) || fabs(sum - PASSES * loss) > 1e-4 * fabs(sum)) {
    print_error("%s: %d parameters, loss %g, summed %g\n", c->name, compared, loss, sum);
    wrong++;
  }
  for (gd_op_id op = 0; op < n_forward; op++)
    covered[g.ops[op].kind] |= g.ops[op].kind == c->kind;
done:
  op_program_deinit(&program);
  gd_graph_deinit(&g);
  return wrong;
}

/* An op on matrices of one shape. */
static enum gd_op_kind plain_kind;

static gd_tensor_id build_plain(struct gd_graph *g) {
  static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "h"};
  gd_tensor_id in[COUNT(names)];
  uint32_t n = gd_op_info(plain_kind)->inputs_min;
  for (uint32_t i = 0; i < n && i < COUNT(names); i++)
    in[i] = param(g, names[i], DIMS(3, 3));
  return gd_graph_op(g, plain_kind, NULL, n, in);
}

static bool has_plain_case(enum gd_op_kind kind) {
  struct gd_graph g;
  gd_graph_init(&g);
  plain_kind = kind;
  bool has = gd_op_info(kind)->attr == GD_ATTR_none && build_plain(&g) != GD_NONE;
  gd_graph_deinit(&g);
  return has;
}

static int check_plain(enum gd_op_kind kind, bool covered[GD_OP_COUNT]) {
  struct grad_case c = {.kind = kind, .name = gd_op_info(kind)->name, .build = build_plain};
  return has_plain_case(kind) && check_case(&c, covered) != 0;
}

static void test_gradients(void **state) {
  (void)state;
  bool covered[GD_OP_COUNT] = {false};
  int wrong = 0;
  for (int64_t i = 0; i < COUNT(cases); i++)
    wrong += check_case(&cases[i], covered) != 0;
#define GD_OP(name, min, max, attr, doc, shape, grad, ...) \
  if (strcmp(#grad, "none") != 0)                          \
    wrong += check_plain(GD_OP_##name, covered);
#include "ir/ops.def"
#undef GD_OP
  assert_int_equal(wrong, 0);
  assert_int_equal(gd_mem_live_blocks(), 0);
  assert_true(has_plain_case(GD_OP_mul) && !has_plain_case(GD_OP_pool));
#define GD_OP(name, min, max, attr, doc, shape, grad, ...)  \
  if (strcmp(#grad, "none") != 0 && !covered[GD_OP_##name]) \
    fail_msg("%s has a gradient rule but no case here", #name);
#include "ir/ops.def"
#undef GD_OP
}

/* The rest of what gd_autodiff promises. */

static void test_unused_parameter(void **state) {
  (void)state;
  struct gd_graph g;
  struct gd_error err = {0};
  struct op_program program;
  static const struct grad_case c = {.name = "unused"};
  gd_graph_init(&g);
  gd_tensor_id unused = param(&g, "unused", DIMS(2));
  gd_tensor_id dead = gd_activate(&g, param(&g, "dead", DIMS(3)), GD_ACTIVATION_GELU);
  append_loss(&g, gd_activate(&g, param(&g, "x", DIMS(2, 3)), GD_ACTIVATION_GELU));
  assert_int_not_equal(dead, GD_NONE);
  assert_int_equal(gd_autodiff(&g, &err), GD_OK);
  assert_int_equal(gd_graph_verify(&g, &err), GD_OK);
  assert_true(op_program_init(&program, &g));
  for (gd_tensor_id id = 0; id < g.n_tensors; id++)
    if (g.tensors[id].producer == GD_NONE)
      fill_leaf(&program, id, &c);
  op_program_run(&program, gd_ref_kernels, GD_PHASE_FORWARD);
  op_program_run(&program, gd_ref_kernels, GD_PHASE_BACKWARD);
  int leaves = 0;
  for (gd_tensor_id id = 0; id < g.n_tensors; id++) {
    if (g.tensors[id].role != GD_ROLE_GRAD)
      continue;
    const float *grad = op_program_data(&program, id);
    bool reached = strcmp(g.tensors[g.tensors[id].owner].name, "x") == 0;
    leaves++;
    assert_true((*grad != 0) == reached);
  }
  assert_int_equal(leaves, 3);
  assert_int_not_equal(unused, GD_NONE);
  op_program_deinit(&program);
  gd_graph_deinit(&g);
}

/* One update: unscaled norm, Adam's first step of lr against the sign, zeroed gradients. */
static void test_update(void **state) {
  (void)state;
  static const struct grad_case c = {.name = "update"};
  static const struct gd_update update = {.adam = {0.9f, 0.95f, 1e-8f, 0, false}};
  const float lr = 0.01f;
  struct gd_graph g;
  struct gd_error err = {0};
  struct op_program program, before;
  double squares = 0;
  gd_graph_init(&g);
  append_loss(&g, build_attention(&g));
  assert_int_equal(gd_autodiff(&g, &err), GD_OK);
  assert_int_equal(gd_append_update(&g, &update, &err), GD_OK);
  assert_int_equal(gd_graph_verify(&g, &err), GD_OK);
  assert_true(op_program_init(&program, &g) && op_program_init(&before, &g));
  for (gd_tensor_id id = 0; id < g.n_tensors; id++)
    if (g.tensors[id].producer == GD_NONE && g.tensors[id].role != GD_ROLE_OPTIMIZER)
      fill_leaf(&program, id, &c);
  *(float *)op_program_data(&program, g.lr) = lr;
  double loss = loss_of(&program);
  op_program_run(&program, gd_ref_kernels, GD_PHASE_BACKWARD);
  for (gd_tensor_id id = 0; id < g.n_tensors; id++)
    if (g.tensors[id].role == GD_ROLE_GRAD || g.tensors[id].role == GD_ROLE_PARAM)
      memcpy(op_program_data(&before, id), op_program_data(&program, id),
             (size_t)gd_tensor_bytes(&g, id));
  op_program_run(&program, gd_ref_kernels, GD_PHASE_UPDATE);

  for (gd_tensor_id id = 0; id < g.n_tensors; id++) {
    if (g.tensors[id].role != GD_ROLE_GRAD)
      continue;
    const float *grad = op_program_data(&before, id), *zeroed = op_program_data(&program, id);
    const float *was = op_program_data(&before, g.tensors[id].owner);
    const float *is = op_program_data(&program, g.tensors[id].owner);
    for (int64_t i = 0; i < gd_tensor_elements(&g, id); i++) {
      squares += (double)grad[i] * (double)grad[i];
      assert_true(zeroed[i] == 0);
      if (fabsf(grad[i]) > 1e-3f) /* far above eps */
        assert_true(fabsf(is[i] - (was[i] - copysignf(lr, grad[i]))) < 1e-6f);
    }
  }
  assert_true(*(const float *)op_program_data(&program, g.step) == 1);
  double norm = (double)*(const float *)op_program_data(&program, g.norm);
  assert_true(fabs(norm - sqrt(squares) / (double)scale) < 1e-5 * norm);
  assert_true(loss_of(&program) < loss);
  op_program_deinit(&program);
  op_program_deinit(&before);
  gd_graph_deinit(&g);
}

/* Out of memory anywhere is a status, and leaves nothing behind. */
static void test_out_of_memory(void **state) {
  (void)state;
  int64_t nth = 0;
  for (bool failed = true; failed; nth++) {
    struct gd_graph g;
    struct gd_error err = {0};
    gd_graph_init(&g);
    gd_mem_fail_after(nth + 1);
    append_loss(&g, build_attention(&g));
    enum gd_status status = gd_graph_check(&g, &err);
    if (status == GD_OK)
      status = gd_autodiff(&g, &err);
    gd_mem_fail_after(0);
    failed = status != GD_OK;
    assert_true(!failed || status == GD_ENVIRONMENT);
    gd_graph_deinit(&g);
    assert_int_equal(gd_mem_live_blocks(), 0);
  }
  assert_true(nth > 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_gradients),
      cmocka_unit_test(test_unused_parameter),
      cmocka_unit_test(test_update),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
