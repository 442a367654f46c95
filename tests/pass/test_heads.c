/*
 * The rewrite around attention: on a small model of every family that attends, loss and gradients
 * are bit for bit those of the graph without it; on shapes of every kind, so are the ops against
 * those that they stand for; and what it must leave alone.
 */
#include <math.h>
#include <string.h>

#include "ir/autodiff.h"
#include "pass/kernels.h"
#include "support/attending.h"
#include "support/graphs.h"
#include "support/ok.h"
#include "support/op_harness.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* --- models --------------------------------------------------------------------------------- */

static float apart[ATTENDING_GRADIENTS], fused[ATTENDING_GRADIENTS];

/* The forward graph with attention ops, and with the rewrite or without it. */
static void forward(const struct gd_model *model, enum gd_precision precision, bool rewrite,
                    struct gd_graph *graph) {
  const attending_rewrite rewrites[] = {gd_kernels_attention, rewrite ? gd_kernels_heads : NULL,
                                        NULL};
  attending_forward(model, precision, rewrites, graph);
}

static int64_t train(const struct gd_model *model, const char *backend, int threads,
                     enum gd_precision precision, bool rewrite, double *loss, float *gradients) {
  struct gd_graph graph;
  forward(model, precision, rewrite, &graph);
  int64_t count = attending_train(model, &graph, backend, threads, loss, gradients);
  gd_graph_deinit(&graph);
  return count;
}

static void compare(const char *backend, enum gd_precision precision) {
  for (size_t i = 0; i < ATTENDING_COUNT; i++) {
    struct gd_model model;
    double loss, again;
    attending_load(&attending[i], &model);
    int64_t count = train(&model, backend, 2, precision, false, &loss, apart);
    assert_true(isfinite(loss));
    assert_int_equal(train(&model, backend, 3, precision, true, &again, fused), count);
    if (again != loss)
      fail_msg("%s: another loss", attending[i].config);
    if (memcmp(apart, fused, (size_t)count * sizeof *apart) != 0)
      fail_msg("%s: other gradients", attending[i].config);
  }
}

static void test_models_ref(void **state) {
  (void)state;
  compare("ref", GD_PRECISION_FP32);
}

static void test_models_cpu_fp32(void **state) {
  (void)state;
  compare("cpu", GD_PRECISION_FP32);
}

static void test_models_cpu_bf16(void **state) {
  (void)state;
  compare("cpu", GD_PRECISION_BF16);
}

/* What is found in every family, forward and by its gradients. Patches of images have a transpose
   of their own, which stays. */
static void test_counts(void **state) {
  (void)state;
  for (size_t i = 0; i < ATTENDING_COUNT; i++) {
    struct gd_error err = {0};
    struct gd_model model;
    struct gd_graph before, after;
    attending_load(&attending[i], &model);
    forward(&model, GD_PRECISION_BF16, false, &before);
    forward(&model, GD_PRECISION_BF16, true, &after);
    assert_int_equal(graph_count_ops(&before, GD_OP_rope), ATTENDING_LAYERS * attending[i].ropes);
    assert_int_equal(graph_count_ops(&after, GD_OP_rope), 0);
    assert_int_equal(graph_count_ops(&after, GD_OP_split), 0);
    assert_int_equal(graph_count_ops(&after, GD_OP_transpose), attending[i].seq ? 0 : 1);
    assert_int_equal(graph_count_ops(&after, GD_OP_split_heads),
                     ATTENDING_LAYERS * attending[i].splits);
    assert_int_equal(graph_count_ops(&after, GD_OP_merge_heads), ATTENDING_LAYERS);
    struct gd_cost cost_before, cost_after;
    gd_graph_cost(&before, &cost_before);
    gd_graph_cost(&after, &cost_after);
    assert_true(cost_before.gemm_flops == cost_after.gemm_flops);
    assert_true(cost_before.other_flops == cost_after.other_flops);
    assert_true(cost_after.read_bytes <= cost_before.read_bytes);
    OK(gd_autodiff(&after, &err));
    OK(gd_graph_verify(&after, &err));
    uint32_t both = ATTENDING_LAYERS * (attending[i].splits + 1);
    assert_int_equal(graph_count_ops(&after, GD_OP_split_heads), both);
    assert_int_equal(graph_count_ops(&after, GD_OP_merge_heads), both);
    assert_int_equal(graph_count_ops(&after, GD_OP_concat), 0);
    gd_graph_deinit(&before);
    gd_graph_deinit(&after);
  }
}

/* --- ops ------------------------------------------------------------------------------------ */

/* x[B,T,C] to parts and back, by the ops that were there before: each part a tensor of its own. */
static void apart_split(struct gd_graph *g, gd_tensor_id x, gd_tensor_id table,
                        const struct gd_attr_heads *a, const int64_t part_dims[4],
                        gd_tensor_id *parts) {
  int64_t b = part_dims[0], n = part_dims[1], t = part_dims[2], d = part_dims[3], p = a->parts;
  gd_tensor_id y =
      gd_reshape(g, x, 5, a->interleaved ? (int64_t[]){b, t, n, p, d} : (int64_t[]){b, t, p, n, d});
  y = gd_transpose(g, y, a->interleaved ? (uint8_t[]){3, 0, 2, 1, 4} : (uint8_t[]){2, 0, 3, 1, 4});
  gd_tensor_id first = gd_split(g, y, a->parts);
  for (uint32_t i = 0; i < a->parts; i++) {
    parts[i] = gd_reshape(g, first + i, 4, part_dims);
    if (a->rotated >> i & 1u)
      parts[i] = gd_graph_op(g, GD_OP_rope,
                             &(union gd_attr){.rope = {.rotary = a->rotary, .inverse = a->inverse}},
                             2, (gd_tensor_id[]){parts[i], table});
  }
}

static gd_tensor_id apart_merge(struct gd_graph *g, const gd_tensor_id *parts, gd_tensor_id table,
                                const struct gd_attr_heads *a, const int64_t part_dims[4]) {
  int64_t b = part_dims[0], n = part_dims[1], t = part_dims[2], d = part_dims[3], p = a->parts;
  gd_tensor_id transposed[GD_HEADS_PARTS];
  for (uint32_t i = 0; i < a->parts; i++) {
    transposed[i] = parts[i];
    if (a->rotated >> i & 1u)
      transposed[i] = gd_graph_op(
          g, GD_OP_rope, &(union gd_attr){.rope = {.rotary = a->rotary, .inverse = a->inverse}}, 2,
          (gd_tensor_id[]){parts[i], table});
    transposed[i] = gd_reshape(g, transposed[i], 5, (int64_t[]){1, b, n, t, d});
  }
  gd_tensor_id y = gd_concat(g, a->parts, transposed);
  y = gd_transpose(g, y, a->interleaved ? (uint8_t[]){1, 3, 2, 0, 4} : (uint8_t[]){1, 3, 0, 2, 4});
  return gd_reshape(g, y, 3, (int64_t[]){b, t, p * n * d});
}

static void expect_same(const struct op_program *program, gd_tensor_id a, gd_tensor_id b) {
  assert_memory_equal(op_program_data(program, a), op_program_data(program, b),
                      (size_t)gd_tensor_bytes(program->graph, a));
}

/* Odd sizes, every dtype: fused and apart in one graph, on one backend. */
static void check_bits(const gd_kernel *kernels, enum gd_dtype dtype, const int64_t part_dims[4],
                       const struct gd_attr_heads *a) {
  struct gd_graph g;
  struct gd_error err = {0};
  struct op_program program;
  gd_tensor_id split[GD_HEADS_PARTS];
  int64_t width = a->parts * part_dims[1] * part_dims[3];
  gd_graph_init(&g);
  gd_tensor_id x = gd_graph_leaf(&g, GD_ROLE_INPUT, "x", dtype, 3,
                                 (int64_t[]){part_dims[0], part_dims[2], width});
  gd_tensor_id table = gd_graph_leaf(&g, GD_ROLE_INPUT, "table", GD_DTYPE_F32, 2,
                                     (int64_t[]){part_dims[2], a->rotary});
  gd_tensor_id first = gd_split_heads(&g, x, table, *a);
  apart_split(&g, x, table, a, part_dims, split);
  gd_tensor_id merged = gd_merge_heads(&g, split, table, *a);
  gd_tensor_id merged_apart = apart_merge(&g, split, table, a, part_dims);
  OK(gd_graph_check(&g, &err));
  assert_true(op_program_init(&program, &g));
  for (int64_t i = 0; i < gd_tensor_elements(&g, x); i++)
    gd_dtype_store(dtype, op_program_data(&program, x), i, sinf((float)(i * i % 4093)) * 3);
  for (int64_t i = 0; i < gd_tensor_elements(&g, table); i++)
    gd_dtype_store(GD_DTYPE_F32, op_program_data(&program, table), i, cosf((float)(i % 977)));
  op_program_run(&program, kernels, GD_PHASE_FORWARD);
  for (uint32_t i = 0; i < a->parts; i++)
    expect_same(&program, first + i, split[i]);
  expect_same(&program, merged, merged_apart);
  op_program_deinit(&program);
  gd_graph_deinit(&g);
}

static void test_bits(void **state) {
  static const int64_t dims[][4] = {{2, 3, 37, 24}, {1, 2, 65, 64}, {2, 1, 5, 7}, {1, 4, 33, 80}};
  static const enum gd_dtype dtypes[] = {GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16};
  static const gd_kernel *const tables[] = {gd_ref_kernels, gd_cpu_kernels};
  (void)state;
  for (size_t k = 0; k < COUNT(tables); k++)
    for (size_t d = 0; d < COUNT(dtypes); d++)
      for (size_t s = 0; s < COUNT(dims); s++)
        for (uint32_t mode = 0; mode < 32; mode++) {
          struct gd_attr_heads a = {.heads = dims[s][1],
                                    .parts = 3,
                                    .interleaved = mode & 1,
                                    .inverse = mode & 2,
                                    .rotated = mode >> 2,
                                    .rotary = dims[s][3] * (1 + mode % 3) / 3 / 2 * 2};
          check_bits(tables[k], dtypes[d], dims[s], &a);
        }
}

/* --- what is left alone --------------------------------------------------------------------- */

enum { B = 2, T = 5, N = 3, D = 4, R = 2 };

struct parts {
  gd_tensor_id qkv, transposed, part, q, rotated[2], attended, back;
};

/* A layer of GPT-NeoX: the matmul's output, and what follows up to the next matmul. */
static struct parts layer(struct gd_graph *g, gd_tensor_id table_of_k, int64_t rotary_of_k) {
  struct parts p;
  int64_t dims[] = {B, N, T, D};
  p.qkv = gd_graph_leaf(g, GD_ROLE_INPUT, "qkv", GD_DTYPE_F32, 3, (int64_t[]){B, T, 3 * N * D});
  gd_tensor_id table = gd_graph_leaf(g, GD_ROLE_CONST, "table", GD_DTYPE_F32, 2, (int64_t[]){T, R});
  p.transposed = gd_transpose(g, gd_reshape(g, p.qkv, 5, (int64_t[]){B, T, N, 3, D}),
                              (uint8_t[]){3, 0, 2, 1, 4});
  p.part = gd_split(g, p.transposed, 3);
  p.q = gd_reshape(g, p.part, 4, dims);
  gd_tensor_id k = gd_reshape(g, p.part + 1, 4, dims), v = gd_reshape(g, p.part + 2, 4, dims);
  p.rotated[0] = gd_rope(g, p.q, table, R);
  p.rotated[1] = gd_rope(g, k, table_of_k == GD_NONE ? table : table_of_k, rotary_of_k);
  p.attended = gd_attention(g, p.rotated[0], p.rotated[1], v, GD_NONE,
                            (struct gd_attr_attention){.scale = 0.5f});
  p.back = gd_transpose(g, p.attended, (uint8_t[]){0, 2, 1, 3});
  gd_activate(g, gd_reshape(g, p.back, 3, (int64_t[]){B, T, N * D}), GD_ACTIVATION_TANH);
  return p;
}

static void expect(struct gd_graph *g, int splits, int merges) {
  struct gd_error err = {0};
  OK(gd_kernels_heads(g, &err));
  OK(gd_graph_verify(g, &err));
  assert_int_equal(graph_count_ops(g, GD_OP_split_heads), splits);
  assert_int_equal(graph_count_ops(g, GD_OP_merge_heads), merges);
  assert_int_equal(graph_count_ops(g, GD_OP_transpose), 2 - splits - merges);
  gd_graph_deinit(g);
}

static void test_left_alone(void **state) {
  struct gd_graph g;
  (void)state;
  gd_graph_init(&g);
  layer(&g, GD_NONE, R);
  expect(&g, 1, 1);

  gd_graph_init(&g); /* the transposed is read elsewhere */
  gd_activate(&g, layer(&g, GD_NONE, R).transposed, GD_ACTIVATION_TANH);
  expect(&g, 0, 1);

  gd_graph_init(&g); /* a part is */
  gd_activate(&g, layer(&g, GD_NONE, R).part + 2, GD_ACTIVATION_TANH);
  expect(&g, 0, 1);

  gd_graph_init(&g); /* q before it turns is */
  gd_activate(&g, layer(&g, GD_NONE, R).q, GD_ACTIVATION_TANH);
  expect(&g, 0, 1);

  gd_graph_init(&g); /* so is the output before it is one row a token */
  gd_activate(&g, layer(&g, GD_NONE, R).back, GD_ACTIVATION_TANH);
  expect(&g, 1, 0);

  gd_graph_init(&g); /* and as heads: one reader more is one too many */
  gd_activate(&g, layer(&g, GD_NONE, R).attended, GD_ACTIVATION_TANH);
  expect(&g, 1, 0);

  gd_graph_init(&g); /* k turns by another table */
  layer(&g, gd_graph_leaf(&g, GD_ROLE_CONST, "other", GD_DTYPE_F32, 2, (int64_t[]){T, R}), R);
  expect(&g, 0, 1);

  gd_graph_init(&g); /* or by more of it */
  layer(&g, gd_graph_leaf(&g, GD_ROLE_CONST, "other", GD_DTYPE_F32, 2, (int64_t[]){T, 4}), 4);
  expect(&g, 0, 1);
}

static void test_text(void **state) {
  struct gd_graph g;
  struct gd_error err = {0};
  struct gd_strbuf text = {0};
  (void)state;
  gd_graph_init(&g);
  layer(&g, GD_NONE, R);
  OK(gd_kernels_heads(&g, &err));
  gd_graph_print(&g, &text);
  assert_string_equal(
      text.text,
      "qkv : f32[2,5,36]\n"
      "table : f32[5,2]\n"
      "-    fwd  %2, %3, %4 = split_heads(qkv, table) heads=3 parts=3 interleaved rotated=3 "
      "rotary=2 : f32[2,3,5,4], f32[2,3,5,4], f32[2,3,5,4]\n"
      "-    fwd  %5, %6 = attention(%2, %3, %4) scale=0.5 : f32[2,3,5,4], f32[2,3,5]\n"
      "-    fwd  %7 = merge_heads(%5) heads=3 parts=1 : f32[2,5,12]\n"
      "-    fwd  %8 = activate(%7) tanh : f32[2,5,12]\n");
  gd_strbuf_deinit(&text);
  gd_graph_deinit(&g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_text),
      cmocka_unit_test(test_left_alone),
      cmocka_unit_test(test_counts),
      cmocka_unit_test(test_bits),
      cmocka_unit_test(test_models_ref),
      cmocka_unit_test(test_models_cpu_fp32),
      cmocka_unit_test(test_models_cpu_bf16),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
