/*
 * Generated kernels against the reference kernels of the ops they consist of: every op that can be
 * part of a fusion, alone and in the clusters that models make of them, over odd shapes and all
 * dtypes, on 1 to 3 threads, and in place wherever the fusion permits it.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "backend/cpu/cpu_int.h"
#include "base/rng.h"
#include "codegen/codegen.h"
#include "support/op_harness.h"
#include "support/scratch.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

/* --- cases: each builds the body of a fusion on x[B,T,C] ---------------------------------------
 */

/* The leaves are made first, and all of them, as a fusion wants it; a case uses some. */
struct context {
  struct gd_graph *g;
  enum gd_dtype dtype;
  int64_t dims[3];
  gd_tensor_id x, y, z, t, wide, table; /* [B,T,C]; table: [T,C] */
  gd_tensor_id w, b, w2;                /* [C] */
  gd_tensor_id mean, rstd;              /* [B,T] */
  gd_tensor_id seed;
};

static void make_leaves(struct context *c) {
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
enum { LEAVES = 12 };

static gd_tensor_id dropout(struct context *c, gd_tensor_id x, float probability, uint32_t stream) {
  return gd_graph_op(c->g, GD_OP_dropout, &(union gd_attr){.dropout = {probability, stream}}, 2,
                     (gd_tensor_id[]){x, c->seed});
}

static gd_tensor_id sum(struct context *c, gd_tensor_id x) {
  return gd_graph_op(c->g, GD_OP_sum_rows, &(union gd_attr){.rows = {1}}, 1, &x);
}

static gd_tensor_id slope(struct context *c, enum gd_activation function, gd_tensor_id x,
                          gd_tensor_id dy) {
  return gd_graph_op(c->g, GD_OP_activate_grad, &(union gd_attr){.activate = {function}}, 2,
                     (gd_tensor_id[]){x, dy});
}

static gd_tensor_id norm_grad(struct context *c, gd_tensor_id dy, gd_tensor_id x, gd_tensor_id w) {
  return gd_graph_op(c->g, GD_OP_layernorm_grad, &(union gd_attr){.norm_grad = {true}}, 5,
                     (gd_tensor_id[]){dy, x, w, c->mean, c->rstd});
}

struct outputs {
  uint32_t n;
  gd_tensor_id id[GD_MAX_OUTPUTS];
};

static void out(struct outputs *o, gd_tensor_id id) {
  o->id[o->n++] = id;
}

static void case_arithmetic(struct context *c, struct outputs *o) {
  out(o, gd_add(c->g, c->x, c->y));
  out(o, gd_mul(c->g, c->x, c->y));
  out(o, gd_add(c->g, c->x, c->w));
  out(o, gd_mul(c->g, c->x, c->w));
  out(o, gd_add(c->g, c->y, c->table));
  out(o, gd_cast(c->g, c->x, GD_DTYPE_F32));
  out(o, gd_cast(c->g, c->x, GD_DTYPE_BF16));
  out(o, gd_cast(c->g, c->y, GD_DTYPE_F16));
}

static void case_activations(struct context *c, struct outputs *o) {
  for (int i = 0; i < GD_ACTIVATION_COUNT; i++)
    out(o, gd_activate(c->g, c->wide, (enum gd_activation)i));
}

static void case_activation_gradients(struct context *c, struct outputs *o) {
  for (int i = 0; i < GD_ACTIVATION_COUNT; i++)
    out(o, slope(c, (enum gd_activation)i, c->wide, c->y));
}

static void case_dropout(struct context *c, struct outputs *o) {
  out(o, dropout(c, c->x, 0.1F, 3));
  out(o, dropout(c, c->x, 0.5F, 4));
}

static void case_layernorm(struct context *c, struct outputs *o) {
  gd_tensor_id y = gd_layernorm(c->g, c->x, c->w, c->b, 1e-5F);
  out(o, y);
  out(o, y + 1);
  out(o, y + 2);
}

/* Two norms of one tensor; the second has no bias and its statistics go nowhere. */
static void case_two_norms(struct context *c, struct outputs *o) {
  gd_tensor_id y = gd_layernorm(c->g, c->x, c->w, c->b, 1e-5F);
  out(o, y);
  out(o, gd_layernorm(c->g, c->x, c->w2, GD_NONE, 1e-5F));
  out(o, y + 2);
}

static void case_rmsnorm(struct context *c, struct outputs *o) {
  gd_tensor_id y = gd_rmsnorm(c->g, c->x, c->w, 1e-6F);
  out(o, y);
  out(o, y + 1);
}

static void case_layernorm_grad(struct context *c, struct outputs *o) {
  gd_tensor_id dx = norm_grad(c, c->y, c->x, c->w);
  out(o, dx);
  out(o, dx + 1);
  out(o, dx + 2);
}

static void case_rmsnorm_grad(struct context *c, struct outputs *o) {
  gd_tensor_id dx =
      gd_graph_op(c->g, GD_OP_rmsnorm_grad, NULL, 4, (gd_tensor_id[]){c->y, c->x, c->w, c->rstd});
  out(o, dx);
  out(o, dx + 1);
}

static void case_softmax(struct context *c, struct outputs *o) {
  out(o, gd_softmax(c->g, c->wide, false));
  out(o, gd_graph_op(c->g, GD_OP_softmax_grad, &(union gd_attr){.softmax = {false}}, 2,
                     (gd_tensor_id[]){c->x, c->y}));
}

static void case_sum_rows(struct context *c, struct outputs *o) {
  out(o, sum(c, c->x));
  out(o, sum(c, gd_mul(c->g, c->x, c->y)));
}

/* The clusters of models. */

static void case_residual_norm(struct context *c, struct outputs *o) { /* pre-norm */
  gd_tensor_id x = gd_add(c->g, c->x, c->y);
  gd_tensor_id y = gd_layernorm(c->g, x, c->w, c->b, 1e-5F);
  out(o, x);
  out(o, gd_cast(c->g, y, GD_DTYPE_F32));
  out(o, y + 1);
  out(o, y + 2);
}

static void case_dropout_residual_norm(struct context *c, struct outputs *o) { /* RoBERTa */
  gd_tensor_id x = gd_add(c->g, dropout(c, c->x, 0.1F, 7), c->y);
  gd_tensor_id y = gd_layernorm(c->g, x, c->w, c->b, 1e-5F);
  out(o, y);
  out(o, x);
  out(o, y + 1);
  out(o, y + 2);
}

static void case_dropout_residual_norm_grad(struct context *c, struct outputs *o) {
  gd_tensor_id dx = norm_grad(c, gd_add(c->g, c->y, c->z), c->x, c->w);
  gd_tensor_id da = dropout(c, dx, 0.1F, 7);
  out(o, dx);
  out(o, dx + 1);
  out(o, dx + 2);
  out(o, da);
  out(o, sum(c, da));
}

static void case_swiglu(struct context *c, struct outputs *o) {
  out(o, gd_mul(c->g, gd_activate(c->g, c->x, GD_ACTIVATION_SILU), c->y));
}

static void case_swiglu_grad(struct context *c, struct outputs *o) {
  gd_tensor_id g = gd_activate(c->g, c->x, GD_ACTIVATION_SILU);
  out(o, gd_mul(c->g, c->z, g));
  out(o, slope(c, GD_ACTIVATION_SILU, c->x, gd_mul(c->g, c->z, c->y)));
}

static void case_layer_scale(struct context *c, struct outputs *o) { /* ConvNeXt, both ways */
  out(o, gd_add(c->g, c->x, gd_mul(c->g, c->y, c->w)));
  out(o, gd_mul(c->g, c->z, c->w));
  out(o, sum(c, gd_mul(c->g, c->z, c->y)));
}

static void case_parallel_residual_grad(struct context *c, struct outputs *o) { /* NeoX */
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
static void case_reshape(struct context *c, struct outputs *o) {
  int64_t rows = c->dims[0] * c->dims[1];
  gd_tensor_id x = gd_activate(c->g, c->x, GD_ACTIVATION_GELU);
  gd_tensor_id flat = gd_reshape(c->g, x, 2, (int64_t[]){rows, c->dims[2]});
  out(o, gd_rmsnorm(c->g, flat, c->w, 1e-6F));
  out(o, sum(c, flat));
}

struct emit_case {
  const char *name;
  void (*build)(struct context *c, struct outputs *o);
  bool exact; /* one rounding, like ref */
};

static const struct emit_case cases[] = {
    {"arithmetic", case_arithmetic, true},
    {"activations", case_activations, false},
    {"activation gradients", case_activation_gradients, false},
    {"dropout", case_dropout, false},
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

struct shape {
  enum gd_dtype dtype;
  int64_t dims[3];
};

#ifndef GD_TEST_NO_MAIN
static const struct shape shapes[] = {
    {GD_DTYPE_F32, {1, 1, 1}},     {GD_DTYPE_F32, {2, 3, 17}},   {GD_DTYPE_F32, {1, 67, 64}},
    {GD_DTYPE_BF16, {2, 3, 17}},   {GD_DTYPE_BF16, {3, 41, 64}}, {GD_DTYPE_F16, {2, 5, 33}},
    {GD_DTYPE_BF16, {5, 300, 17}}, /* the kernels of another shape, more rows than chunks */
};
#endif

/* --- running ------------------------------------------------------------------------------- */

/* One case at one shape: the results of its body, op by op. */
struct problem {
  const struct emit_case *c;
  struct outputs outputs;
  struct op_program ref;
  uint32_t n_in;
};

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

static int compare(const struct problem *p, uint32_t output, const void *got, const char *how) {
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

/* The cases at these shapes, in one graph: their kernels are built together. Results of ref. */
static int make_problems(const struct shape *list, int n_shapes, struct gd_graph *graph,
                         struct problem *problems) {
  static struct gd_lowered lowered;
  struct gd_error err = {0};
  int n = COUNT(cases) * n_shapes;
  gd_graph_init(graph);
  for (int i = 0; i < n; i++) {
    struct problem *p = &problems[i];
    const struct shape *shape = &list[i % n_shapes];
    *p = (struct problem){.c = &cases[i / n_shapes]};
    struct context c = {.dtype = shape->dtype};
    memcpy(c.dims, shape->dims, sizeof c.dims);
    struct gd_fusion fusion = {.n_in = LEAVES, .rows = c.dims[0] * c.dims[1], .columns = c.dims[2]};
    gd_graph_init(&fusion.body);
    c.g = &fusion.body;
    make_leaves(&c);
    p->c->build(&c, &p->outputs);
    assert_int_equal(gd_graph_check(&fusion.body, &err), GD_OK);
    p->n_in = LEAVES;
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

#ifndef GD_TEST_NO_MAIN /* tests/gpu runs the same cases elsewhere */
enum { GUARD = 64, THREADS = 3 };

/* Memory of the outputs, guarded on both sides. */
struct memory {
  char *data[GD_MAX_OUTPUTS];
  int64_t bytes[GD_MAX_OUTPUTS];
};

static struct memory make_memory(const struct problem *p) {
  struct memory m;
  for (uint32_t i = 0; i < p->outputs.n; i++) {
    m.bytes[i] = gd_tensor_bytes(p->ref.graph, p->outputs.id[i]);
    m.data[i] = gd_mem_alloc((size_t)m.bytes[i] + 2 * GUARD, 1);
    assert_non_null(m.data[i]);
    memset(m.data[i], 0xA5, (size_t)m.bytes[i] + 2 * GUARD);
  }
  return m;
}

static int free_memory(const struct problem *p, struct memory *m) {
  int wrong = 0;
  for (uint32_t i = 0; i < p->outputs.n; i++) {
    for (int g = 0; g < GUARD; g++)
      wrong |= (unsigned char)m->data[i][g] != 0xA5 ||
               (unsigned char)m->data[i][GUARD + m->bytes[i] + g] != 0xA5;
    gd_mem_free(m->data[i]);
  }
  if (wrong)
    print_error("%s writes outside an output\n", p->c->name);
  return wrong;
}

/* Runs the kernel; in_place: input whose memory output 0 takes, or -1. Results into m. */
static void run(const struct problem *p, const struct gd_fused_kernel *kernel, int threads,
                int in_place, struct memory *m, void *workspace, int64_t workspace_bytes) {
  struct gd_view in[64], outs[GD_MAX_OUTPUTS];
  for (uint32_t i = 0; i < p->n_in; i++)
    in[i] = (struct gd_view){.data = op_program_data(&p->ref, i)};
  for (uint32_t i = 0; i < p->outputs.n; i++)
    outs[i] = (struct gd_view){.data = m->data[i] + GUARD};
  if (in_place >= 0) {
    memcpy(outs[0].data, in[in_place].data, (size_t)m->bytes[0]);
    in[in_place].data = outs[0].data;
  }
  memset(workspace, 0xC3, (size_t)workspace_bytes);
  struct gd_kernel_args args = {.fused = kernel,
                                .n_in = p->n_in,
                                .n_out = p->outputs.n,
                                .in = in,
                                .out = outs,
                                .workspace = workspace,
                                .workspace_bytes = workspace_bytes,
                                .threads = threads};
  gd_cpu_fused(&args);
}

static int check(const struct problem *p, const struct gd_fusion *fusion,
                 const struct gd_fused_kernel *kernel) {
  int64_t bytes = gd_cpu_workspace_bytes(THREADS, 0);
  void *workspace = gd_mem_alloc((size_t)bytes, 1);
  int wrong = 0;
  assert_non_null(workspace);
  struct memory first = make_memory(p);
  run(p, kernel, 1, -1, &first, workspace, bytes);
  for (uint32_t i = 0; i < p->outputs.n; i++)
    wrong |= compare(p, i, first.data[i] + GUARD, "1 thread");
  for (int variant = 2; variant <= THREADS + (int)p->n_in && !wrong; variant++) {
    int in_place = variant > THREADS ? variant - THREADS - 1 : -1;
    if (in_place >= 0 && !(fusion->inplace >> in_place & 1))
      continue;
    struct memory m = make_memory(p);
    run(p, kernel, variant > THREADS ? 2 : variant, in_place, &m, workspace, bytes);
    for (uint32_t i = 0; i < p->outputs.n && !wrong; i++)
      if (memcmp(m.data[i] + GUARD, first.data[i] + GUARD, (size_t)m.bytes[i]) != 0) {
        print_error("%s: variant %d (in place of %d) gives other bits in output %u\n", p->c->name,
                    variant, in_place, i);
        wrong = 1;
      }
    wrong |= free_memory(p, &m);
  }
  wrong |= free_memory(p, &first);
  gd_mem_free(workspace);
  return wrong;
}

static void check_all(const int *which, int n_shapes) {
  enum { MOST = COUNT(cases) * COUNT(shapes) };
  static struct problem problems[MOST];
  struct shape list[COUNT(shapes)];
  struct gd_graph graph;
  struct gd_codegen *code = NULL;
  struct gd_error err = {0};
  int wrong = 0, in_place = 0;
  for (int i = 0; i < n_shapes; i++)
    list[i] = shapes[which[i]];
  int n = make_problems(list, n_shapes, &graph, problems);
  if (gd_codegen_build(&graph, &code, &err) != GD_OK)
    fail_msg("%s", err.text);
  for (int i = 0; i < n; i++) {
    in_place += graph.fusions[i].inplace != 0;
    wrong += check(&problems[i], &graph.fusions[i], gd_codegen_kernel(code, (uint32_t)i));
    op_program_deinit(&problems[i].ref);
  }
  gd_codegen_free(code);
  gd_graph_deinit(&graph);
  assert_int_equal(wrong, 0);
  assert_true(in_place > n / 2); /* the variants in place are not empty */
  assert_int_equal(gd_mem_live_blocks(), 0);
}

static void test_kernels(void **state) {
  const int all[] = {0, 1, 2, 3, 4, 5, 6};
  _Static_assert(COUNT(all) == COUNT(shapes), "a shape is left out");
  (void)state;
  setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
  check_all(all, COUNT(all));
}

/* The prelude has other code for each width of vectors: a compiler that is told of fewer. */
static void test_instruction_sets(void **state) {
#if defined(__x86_64__)
  static const char *const levels[] = {"x86-64", "x86-64-v3"};
  const int few[] = {1, 4, 5}; /* one of each dtype */
  (void)state;
  setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
  for (int i = 0; i < COUNT(levels); i++) {
    char script[128], name[32];
    if (i > 0 && !__builtin_cpu_supports("avx2"))
      break;
    snprintf(script, sizeof script, "#!/bin/sh\nexec cc \"$@\" -march=%s\n", levels[i]);
    snprintf(name, sizeof name, "cc-%s", levels[i]);
    scratch_write_text(name, script);
    assert_int_equal(chmod(scratch_path(name), 0700), 0);
    setenv("CC", scratch_path(name), 1);
    check_all(few, COUNT(few));
    unsetenv("CC");
  }
#else
  (void)state;
  skip();
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_kernels, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_instruction_sets, scratch_setup, scratch_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
