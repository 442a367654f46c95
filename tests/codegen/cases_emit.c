/*
 * The cases of cases_emit.h: bodies of fusions on x[B,T,C], and how a kernel's results are
 * compared.
 */
#include "codegen/cases_emit.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "codegen/lower.h"

/* The leaves are made first, and all of them, as a fusion wants it; a case uses some. */
struct emit_context {
  struct gd_graph *g;
  enum gd_dtype dtype;
  int64_t dims[3];
  gd_tensor_id x, y, z, t, wide, table; /* [B,T,C]; table: [T,C] */
  gd_tensor_id w, b, w2;                /* [C] */
  gd_tensor_id mean, rstd;              /* [B,T] */
  gd_tensor_id seed;
};

static void make_leaves(struct emit_context *c) {
  struct gd_graph *g = c->g;
  c->x = gd_graph_leaf(g, GD_ROLE_INPUT, "x", c->dtype, 3, c->dims);
  c->y = gd_graph_leaf(g, GD_ROLE_INPUT, "y", c->dtype, 3, c->dims);
  c->z = gd_graph_leaf(g, GD_ROLE_INPUT, "z", c->dtype, 3, c->dims);
  c->t = gd_graph_leaf(g, GD_ROLE_INPUT, "t", c->dtype, 3, c->dims);
  c->wide = gd_graph_leaf(g, GD_ROLE_INPUT, "wide", c->dtype, 3, c->dims);
  c->table = gd_graph_leaf(g, GD_ROLE_INPUT, "table", c->dtype, 2, &c->dims[1]);
  c->w = gd_graph_leaf(g, GD_ROLE_INPUT, "w", GD_DTYPE_F32, 1, &c->dims[2]);
  c->b = gd_graph_leaf(g, GD_ROLE_INPUT, "b", GD_DTYPE_F32, 1, &c->dims[2]);
  c->w2 = gd_graph_leaf(g, GD_ROLE_INPUT, "w2", GD_DTYPE_F32, 1, &c->dims[2]);
  c->mean = gd_graph_leaf(g, GD_ROLE_INPUT, "mean", GD_DTYPE_F32, 2, c->dims);
  c->rstd = gd_graph_leaf(g, GD_ROLE_INPUT, "rstd", GD_DTYPE_F32, 2, c->dims);
  c->seed = gd_graph_leaf(g, GD_ROLE_INPUT, "seed", GD_DTYPE_I32, 1, (int64_t[]){3});
}

static gd_tensor_id dropout(struct emit_context *c, gd_tensor_id x, float probability,
                            uint32_t stream) {
  return gd_graph_op(c->g, GD_OP_dropout, &(union gd_attr){.dropout = {probability, stream, false}},
                     2, (gd_tensor_id[]){x, c->seed});
}

static gd_tensor_id drop_path(struct emit_context *c, gd_tensor_id x, uint32_t stream) {
  return gd_graph_op(c->g, GD_OP_dropout, &(union gd_attr){.dropout = {0.5F, stream, true}}, 2,
                     (gd_tensor_id[]){x, c->seed});
}

static gd_tensor_id sum(struct emit_context *c, gd_tensor_id x) {
  return gd_graph_op(c->g, GD_OP_sum_rows, &(union gd_attr){.rows = {1}}, 1, &x);
}

static gd_tensor_id derivative(struct emit_context *c, enum gd_activation function, gd_tensor_id x,
                               gd_tensor_id dy) {
  return gd_graph_op(c->g, GD_OP_activate_grad, &(union gd_attr){.activate = {function}}, 2,
                     (gd_tensor_id[]){x, dy});
}

static gd_tensor_id norm_grad(struct emit_context *c, gd_tensor_id dy, gd_tensor_id x,
                              gd_tensor_id w) {
  return gd_graph_op(c->g, GD_OP_layernorm_grad, &(union gd_attr){.norm_grad = {true}}, 5,
                     (gd_tensor_id[]){dy, x, w, c->mean, c->rstd});
}

static void out(struct emit_outputs *o, gd_tensor_id id) {
  o->id[o->n++] = id;
}

static void case_arithmetic(struct emit_context *c, struct emit_outputs *o) {
  out(o, gd_add(c->g, c->x, c->y));
  out(o, gd_mul(c->g, c->x, c->y));
  out(o, gd_add(c->g, c->x, c->w));
  out(o, gd_mul(c->g, c->x, c->w));
  out(o, gd_add(c->g, c->y, c->table));
  out(o, gd_cast(c->g, c->x, GD_DTYPE_F32));
  out(o, gd_cast(c->g, c->x, GD_DTYPE_BF16));
  out(o, gd_cast(c->g, c->y, GD_DTYPE_F16));
}

static void case_activations(struct emit_context *c, struct emit_outputs *o) {
  for (int i = 0; i < GD_ACTIVATION_COUNT; i++)
    out(o, gd_activate(c->g, c->wide, (enum gd_activation)i));
}

static void case_activation_gradients(struct emit_context *c, struct emit_outputs *o) {
  for (int i = 0; i < GD_ACTIVATION_COUNT; i++)
    out(o, derivative(c, (enum gd_activation)i, c->wide, c->y));
}

static void case_dropout(struct emit_context *c, struct emit_outputs *o) {
  out(o, dropout(c, c->x, 0.1F, 3));
  out(o, dropout(c, c->x, 0.5F, 4));
}

static void case_drop_path(struct emit_context *c, struct emit_outputs *o) {
  out(o, drop_path(c, c->x, 3));
  out(o, gd_add(c->g, drop_path(c, dropout(c, c->x, 0.1F, 4), 5), c->y));
}

/* Rows have one length, and a sample several rows. */
static void case_drop_path_of_rows(struct emit_context *c, struct emit_outputs *o) {
  gd_tensor_id x = gd_add(c->g, drop_path(c, c->x, 3), c->y);
  out(o, x);
  out(o, gd_layernorm(c->g, x, c->w, c->b, 1e-5F));
}

static void case_layernorm(struct emit_context *c, struct emit_outputs *o) {
  gd_tensor_id y = gd_layernorm(c->g, c->x, c->w, c->b, 1e-5F);
  out(o, y);
  out(o, y + 1);
  out(o, y + 2);
}

/* Two norms of one tensor; the second has no bias and its statistics go nowhere. */
static void case_two_norms(struct emit_context *c, struct emit_outputs *o) {
  gd_tensor_id y = gd_layernorm(c->g, c->x, c->w, c->b, 1e-5F);
  out(o, y);
  out(o, gd_layernorm(c->g, c->x, c->w2, GD_NONE, 1e-5F));
  out(o, y + 2);
}

static void case_rmsnorm(struct emit_context *c, struct emit_outputs *o) {
  gd_tensor_id y = gd_rmsnorm(c->g, c->x, c->w, 1e-6F);
  out(o, y);
  out(o, y + 1);
}

static void case_layernorm_grad(struct emit_context *c, struct emit_outputs *o) {
  gd_tensor_id dx = norm_grad(c, c->y, c->x, c->w);
  out(o, dx);
  out(o, dx + 1);
  out(o, dx + 2);
}

static void case_rmsnorm_grad(struct emit_context *c, struct emit_outputs *o) {
  gd_tensor_id dx =
      gd_graph_op(c->g, GD_OP_rmsnorm_grad, NULL, 4, (gd_tensor_id[]){c->y, c->x, c->w, c->rstd});
  out(o, dx);
  out(o, dx + 1);
}

static void case_softmax(struct emit_context *c, struct emit_outputs *o) {
  out(o, gd_softmax(c->g, c->wide, false));
  out(o, gd_graph_op(c->g, GD_OP_softmax_grad, &(union gd_attr){.softmax = {false}}, 2,
                     (gd_tensor_id[]){c->x, c->y}));
}

static void case_sum_rows(struct emit_context *c, struct emit_outputs *o) {
  out(o, sum(c, c->x));
  out(o, sum(c, gd_mul(c->g, c->x, c->y)));
}

/* The clusters of models. */

static void case_residual_norm(struct emit_context *c, struct emit_outputs *o) { /* pre-norm */
  gd_tensor_id x = gd_add(c->g, c->x, c->y);
  gd_tensor_id y = gd_layernorm(c->g, x, c->w, c->b, 1e-5F);
  out(o, x);
  out(o, gd_cast(c->g, y, GD_DTYPE_F32));
  out(o, y + 1);
  out(o, y + 2);
}

static void case_dropout_residual_norm(struct emit_context *c,
                                       struct emit_outputs *o) { /* RoBERTa */
  gd_tensor_id x = gd_add(c->g, dropout(c, c->x, 0.1F, 7), c->y);
  gd_tensor_id y = gd_layernorm(c->g, x, c->w, c->b, 1e-5F);
  out(o, y);
  out(o, x);
  out(o, y + 1);
  out(o, y + 2);
}

static void case_dropout_residual_norm_grad(struct emit_context *c, struct emit_outputs *o) {
  gd_tensor_id dx = norm_grad(c, gd_add(c->g, c->y, c->z), c->x, c->w);
  gd_tensor_id da = dropout(c, dx, 0.1F, 7);
  out(o, dx);
  out(o, dx + 1);
  out(o, dx + 2);
  out(o, da);
  out(o, sum(c, da));
}

static void case_swiglu(struct emit_context *c, struct emit_outputs *o) {
  out(o, gd_mul(c->g, gd_activate(c->g, c->x, GD_ACTIVATION_SILU), c->y));
}

static void case_swiglu_grad(struct emit_context *c, struct emit_outputs *o) {
  gd_tensor_id g = gd_activate(c->g, c->x, GD_ACTIVATION_SILU);
  out(o, gd_mul(c->g, c->z, g));
  out(o, derivative(c, GD_ACTIVATION_SILU, c->x, gd_mul(c->g, c->z, c->y)));
}

static void case_layer_scale(struct emit_context *c,
                             struct emit_outputs *o) { /* ConvNeXt, both ways */
  out(o, gd_add(c->g, c->x, gd_mul(c->g, c->y, c->w)));
  out(o, gd_mul(c->g, c->z, c->w));
  out(o, sum(c, gd_mul(c->g, c->z, c->y)));
}

static void case_parallel_residual_grad(struct emit_context *c, struct emit_outputs *o) { /* NeoX */
  gd_tensor_id a = norm_grad(c, c->y, c->x, c->w), b = norm_grad(c, c->z, c->x, c->w2);
  gd_tensor_id total = gd_add(c->g, gd_add(c->g, c->t, a), b);
  out(o, total);
  out(o, a + 1);
  out(o, a + 2);
  out(o, b + 1);
  out(o, b + 2);
  out(o, sum(c, total));
}

/* Through a reshape: the row space is the same, the dims are not. */
static void case_reshape(struct emit_context *c, struct emit_outputs *o) {
  int64_t rows = c->dims[0] * c->dims[1];
  gd_tensor_id x = gd_activate(c->g, c->x, GD_ACTIVATION_GELU);
  gd_tensor_id flat = gd_reshape(c->g, x, 2, (int64_t[]){rows, c->dims[2]});
  out(o, gd_rmsnorm(c->g, flat, c->w, 1e-6F));
  out(o, sum(c, flat));
}

static const struct emit_case cases[EMIT_CASES] = {
    {"arithmetic", case_arithmetic, true},
    {"activations", case_activations, false},
    {"activation gradients", case_activation_gradients, false},
    {"dropout", case_dropout, false},
    {"drop path", case_drop_path, false},
    {"drop path of rows", case_drop_path_of_rows, false},
    {"layernorm", case_layernorm, false},
    {"two norms", case_two_norms, false},
    {"rmsnorm", case_rmsnorm, false},
    {"layernorm_grad", case_layernorm_grad, false},
    {"rmsnorm_grad", case_rmsnorm_grad, false},
    {"softmax", case_softmax, false},
    {"sum_rows", case_sum_rows, false},
    {"residual norm", case_residual_norm, false},
    {"dropout residual norm", case_dropout_residual_norm, false},
    {"its gradient", case_dropout_residual_norm_grad, false},
    {"swiglu", case_swiglu, false},
    {"swiglu gradient", case_swiglu_grad, false},
    {"layer scale", case_layer_scale, false},
    {"parallel residual gradient", case_parallel_residual_grad, false},
    {"reshape", case_reshape, false},
};

/* --- running ------------------------------------------------------------------------------- */

static void fill(const struct op_program *program, gd_tensor_id id, uint64_t stream) {
  const struct gd_tensor *t = &program->graph->tensors[id];
  void *data = op_program_data(program, id);
  if (strcmp(t->name, "seed") == 0) {
    memcpy(data, (int32_t[]){77, 5, 3}, 3 * sizeof(int32_t));
    return;
  }
  for (int64_t i = 0; i < gd_tensor_elements(program->graph, id); i++) {
    float u = gd_rng_uniform(11, stream, (uint64_t)i);
    float value = strcmp(t->name, "rstd") == 0   ? 0.5F + u
                  : strcmp(t->name, "wide") == 0 ? 24 * u - 12
                                                 : 2 * u - 1;
    gd_dtype_store(t->dtype, data, i, value);
  }
}

/* 16-bit intermediate values are rounded in ref and not in a kernel: a few units in the last place
   of the largest value of the row. */
static double tolerance(enum gd_dtype dtype) {
  return dtype == GD_DTYPE_F32 ? 3e-6 : dtype == GD_DTYPE_F16 ? 0x1p-9 : 0x1p-6;
}

int emit_compare(const struct emit_problem *p, uint32_t output, const void *got, const char *how) {
  gd_tensor_id id = p->outputs.id[output];
  const struct gd_tensor *t = &p->ref.graph->tensors[id];
  const void *want = op_program_data(&p->ref, id);
  /* Sums and statistics are fp32, of values that may have been 16-bit. */
  enum gd_dtype coarsest = GD_DTYPE_F32;
  for (gd_tensor_id i = 0; i < p->ref.graph->n_tensors; i++)
    if (p->ref.graph->tensors[i].dtype == GD_DTYPE_F16 ||
        p->ref.graph->tensors[i].dtype == GD_DTYPE_BF16)
      coarsest = p->ref.graph->tensors[i].dtype == GD_DTYPE_BF16 || coarsest == GD_DTYPE_BF16
                     ? GD_DTYPE_BF16
                     : GD_DTYPE_F16;
  int64_t count = gd_tensor_elements(p->ref.graph, id);
  double largest = 0;
  for (int64_t i = 0; i < count; i++) {
    double value = fabs((double)gd_dtype_load(t->dtype, want, i));
    largest = value > largest ? value : largest;
  }
  for (int64_t i = 0; i < count; i++) {
    double w = (double)gd_dtype_load(t->dtype, want, i);
    double g = (double)gd_dtype_load(t->dtype, got, i);
    if (p->c->exact ? g == w : fabs(g - w) <= tolerance(coarsest) * (1e-3 + largest))
      continue;
    print_error("%s, %s[%lld,%lld,%lld], %s: output %u element %lld is %.9g, not %.9g\n",
                p->c->name, gd_dtype_name(p->ref.graph->tensors[0].dtype),
                (long long)p->ref.graph->tensors[0].dims[0],
                (long long)p->ref.graph->tensors[0].dims[1],
                (long long)p->ref.graph->tensors[0].dims[2], how, output, (long long)i, g, w);
    return 1;
  }
  return 0;
}

int emit_make_problems(const struct emit_shape *list, int n_shapes, struct gd_graph *graph,
                       struct emit_problem *problems) {
  static struct gd_lowered lowered;
  struct gd_error err = {0};
  int n = EMIT_CASES * n_shapes;
  gd_graph_init(graph);
  for (int i = 0; i < n; i++) {
    struct emit_problem *p = &problems[i];
    const struct emit_shape *shape = &list[i % n_shapes];
    *p = (struct emit_problem){.c = &cases[i / n_shapes]};
    struct emit_context c = {.dtype = shape->dtype};
    memcpy(c.dims, shape->dims, sizeof c.dims);
    struct gd_fusion fusion = {
        .n_in = EMIT_LEAVES, .rows = c.dims[0] * c.dims[1], .columns = c.dims[2]};
    gd_graph_init(&fusion.body);
    c.g = &fusion.body;
    make_leaves(&c);
    p->c->build(&c, &p->outputs);
    assert_int_equal(gd_graph_check(&fusion.body, &err), GD_OK);
    p->n_in = EMIT_LEAVES;
    fusion.n_out = p->outputs.n;
    memcpy(fusion.out, p->outputs.id, sizeof fusion.out);
    if (!gd_lower(&fusion, &lowered))
      fail_msg("%s cannot be lowered", p->c->name);
    fusion.inplace = gd_lower_inplace(&lowered, 0);
    assert_int_not_equal(gd_graph_fusion(graph, &fusion), GD_NONE);
  }
  for (int i = 0; i < n; i++) {
    if (gd_fusion_verify(&graph->fusions[i], &err) != GD_OK)
      fail_msg("%s: %s", problems[i].c->name, err.text);
    assert_true(op_program_init(&problems[i].ref, &graph->fusions[i].body));
  }
#pragma omp parallel for schedule(dynamic) /* each on its own memory */
  for (int i = 0; i < n; i++) {
    for (gd_tensor_id id = 0; id < problems[i].n_in; id++)
      fill(&problems[i].ref, id, id);
    op_program_run(&problems[i].ref, gd_ref_kernels, GD_PHASE_FORWARD);
  }
  return n;
}
