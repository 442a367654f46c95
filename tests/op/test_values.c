/*
 * Hand-computed results, on ref and on cpu alike: the op tests compare cpu with ref, and these pin
 * ref itself. Expected numbers come from the formula on paper or from a table of the function,
 * never from this program.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "support/op_harness.h"

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof *(array)))
/* An input of one dtype and the dims in parentheses, with these values. */
#define GIVEN(type, dims_in_parentheses, ...)                                                \
  {                                                                                          \
    .dtype = GD_DTYPE_##type,                                                                \
    .rank = sizeof((int64_t[])UNWRAP dims_in_parentheses) / sizeof(int64_t),                 \
    .dims = UNWRAP dims_in_parentheses, .fill = OP_FILL_VALUES, .values = (const double[]) { \
      __VA_ARGS__                                                                            \
    }                                                                                        \
  }
#define UNWRAP(...) \
  { __VA_ARGS__ }
#define EXPECT(c, output, ...) \
  expect(&(c), output, COUNT(((const double[]){__VA_ARGS__})), (const double[]){__VA_ARGS__}, 2e-6)

static void expect(const struct op_case *c, uint32_t output, int64_t count, const double *values,
                   double tolerance) {
  static const struct op_backend cpu = {
      .name = "cpu", .kernels = gd_cpu_kernels, .workspace_bytes = gd_cpu_workspace_bytes};
  const char *wrong = op_check_values(c, &op_backend_ref, output, count, values, tolerance);
  if (!wrong)
    wrong = op_check_values(c, &cpu, output, count, values, tolerance);
  if (wrong)
    fail_msg("%s", wrong);
}

static void test_shapes(void **state) {
  (void)state;
  struct op_case concat = {
      .kind = GD_OP_concat,
      .n_in = 3,
      .in = {GIVEN(F32, (1, 2), 1, 2), GIVEN(F32, (0, 2), 0), GIVEN(F32, (2, 2), 3, 4, 5, 6)}};
  EXPECT(concat, 0, 1, 2, 3, 4, 5, 6);
  /* [[1 2 3] [4 5 6]] transposed */
  struct op_case transpose = {.kind = GD_OP_transpose,
                              .n_in = 1,
                              .in = {GIVEN(BF16, (2, 3), 1, 2, 3, 4, 5, 6)},
                              .attr = {.transpose = {{1, 0}}}};
  EXPECT(transpose, 0, 1, 4, 2, 5, 3, 6);
  /* x[i,j,k] = 4i + 2j + k; y[a,b,c] = x[b,c,a] */
  struct op_case cycle = {.kind = GD_OP_transpose,
                          .n_in = 1,
                          .in = {GIVEN(F32, (2, 2, 2), 0, 1, 2, 3, 4, 5, 6, 7)},
                          .attr = {.transpose = {{2, 0, 1}}}};
  EXPECT(cycle, 0, 0, 2, 4, 6, 1, 3, 5, 7);

  struct op_case slice = {.kind = GD_OP_slice,
                          .n_in = 1,
                          .in = {GIVEN(BF16, (2, 3, 2), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)},
                          .attr = {.slice = {.dim = 1, .start = 1, .length = 2}}};
  EXPECT(slice, 0, 3, 4, 5, 6, 9, 10, 11, 12);
  slice.attr.slice = (struct gd_attr_slice){.dim = 2, .start = 0, .length = 1};
  EXPECT(slice, 0, 1, 3, 5, 7, 9, 11);
  slice.attr.slice = (struct gd_attr_slice){.dim = 0, .start = 1, .length = 1};
  EXPECT(slice, 0, 7, 8, 9, 10, 11, 12);
  struct op_case pad = {.kind = GD_OP_pad,
                        .n_in = 1,
                        .in = {GIVEN(F32, (2, 2), 1, 2, 3, 4)},
                        .attr = {.slice = {.dim = 1, .start = 1, .length = 4}}};
  EXPECT(pad, 0, 0, 1, 2, 0, 0, 3, 4, 0);
  pad.attr.slice = (struct gd_attr_slice){.dim = 0, .start = 1, .length = 3};
  EXPECT(pad, 0, 0, 0, 1, 2, 3, 4);

  /* 1 + 2^-8 is the middle between two bf16, 65520 between the largest f16 and the next step. */
  struct op_case cast = {.kind = GD_OP_cast,
                         .n_in = 1,
                         .in = {GIVEN(F32, (3), 1.00390625, -3, 65520)},
                         .attr = {.cast = {GD_DTYPE_BF16}}};
  EXPECT(cast, 0, 1, -3, 65536);
  cast.attr.cast.dtype = GD_DTYPE_F16;
  EXPECT(cast, 0, 1.00390625, -3, HUGE_VAL);
  cast.attr.cast.dtype = GD_DTYPE_COUNT;
  EXPECT(cast, 0, 1.00390625, -3, 65520);

  struct op_case positions = {.kind = GD_OP_positions,
                              .n_in = 1,
                              .in = {GIVEN(I32, (2, 4), 5, 1, 7, 1, 1, 1, 2, 3)},
                              .attr = {.positions = {.pad = 1}}};
  EXPECT(positions, 0, 2, 1, 3, 1, 1, 1, 2, 3);
}

static void test_embed(void **state) {
  (void)state;
  struct op_case c = {.kind = GD_OP_embed,
                      .n_in = 2,
                      .in = {GIVEN(F16, (3, 2), 1, 2, 3, 4, 5, 6), GIVEN(I32, (4), 2, 0, 2, 1)}};
  EXPECT(c, 0, 5, 6, 1, 2, 5, 6, 3, 4);
  struct op_case grad = {.kind = GD_OP_embed_grad,
                         .n_in = 2,
                         .in = {GIVEN(BF16, (3, 2), 1, 2, 3, 4, 5, 6), GIVEN(I32, (3), 3, 0, 3)},
                         .attr = {.embed = {.rows = 4}}};
  EXPECT(grad, 0, 3, 4, 0, 0, 0, 0, 6, 8);
  grad.attr.embed = (struct gd_attr_embed){.rows = 4, .has_pad = true, .pad = 3};
  EXPECT(grad, 0, 3, 4, 0, 0, 0, 0, 0, 0);
}

/* A = [1 2; 3 4; 5 6], B = [1 0 -1; 2 1 0]: AB = [5 2 -1; 11 4 -3; 17 6 -5]. */
static void test_matmul(void **state) {
  (void)state;
  struct op_case c = {.kind = GD_OP_matmul,
                      .n_in = 2,
                      .in = {GIVEN(F32, (3, 2), 1, 2, 3, 4, 5, 6),
                             GIVEN(F32, (2, 3), 1, 0, -1, 2, 1, 0), GIVEN(F32, (3), 10, 20, 30)},
                      .attr = {.matmul = {false, false, 1, GD_DTYPE_COUNT, false}}};
  EXPECT(c, 0, 5, 2, -1, 11, 4, -3, 17, 6, -5);
  c.n_in = 3;
  c.attr.matmul.alpha = 2; /* scales op(a) op(b), not the bias */
  EXPECT(c, 0, 20, 24, 28, 32, 28, 24, 44, 32, 20);

  struct op_case both = {
      .kind = GD_OP_matmul,
      .n_in = 2,
      .in = {GIVEN(BF16, (2, 3), 1, 3, 5, 2, 4, 6), GIVEN(BF16, (3, 2), 1, 2, 0, 1, -1, 0)},
      .attr = {.matmul = {true, true, 1, GD_DTYPE_F32, false}}};
  EXPECT(both, 0, 5, 2, -1, 11, 4, -3, 17, 6, -5);

  struct op_case batch = {
      .kind = GD_OP_matmul,
      .n_in = 2,
      .in = {GIVEN(F16, (2, 1, 2), 1, 2, 3, 4), GIVEN(F16, (2, 2, 1), 5, 6, 7, 8)},
      .attr = {.matmul = {false, false, 1, GD_DTYPE_COUNT, false}}};
  EXPECT(batch, 0, 17, 53);

  struct op_case flat = {.kind = GD_OP_matmul,
                         .n_in = 2,
                         .in = {GIVEN(F32, (2, 1, 2), 1, 2, 3, 4), GIVEN(F32, (1, 2), 10, 1)},
                         .attr = {.matmul = {false, true, 1, GD_DTYPE_COUNT, false}}};
  EXPECT(flat, 0, 12, 34);

  struct op_case empty = {
      .kind = GD_OP_matmul,
      .n_in = 3,
      .in = {GIVEN(F32, (2, 0), 0), GIVEN(F32, (0, 2), 0), GIVEN(F32, (2), 7, 8)},
      .attr = {.matmul = {false, false, 1, GD_DTYPE_COUNT, false}}};
  EXPECT(empty, 0, 7, 8, 7, 8);
}

static void test_add(void **state) {
  (void)state;
  struct op_case c = {.kind = GD_OP_add,
                      .n_in = 2,
                      .in = {GIVEN(F32, (2, 3), 1, 2, 3, 4, 5, 6), GIVEN(BF16, (3), 10, 20, 30)}};
  EXPECT(c, 0, 11, 22, 33, 14, 25, 36);
  c.kind = GD_OP_mul;
  EXPECT(c, 0, 10, 40, 90, 40, 100, 180);
}

/* y = dropout of n ones in samples of `columns`, the first of them sample `first` of the batch. */
static void drop(const gd_kernel *kernels, float *y, int64_t samples, int64_t columns,
                 struct gd_attr_dropout attr, int32_t seed, int32_t step, int32_t first) {
  int32_t seeds[3] = {seed, step, first};
  int64_t dims[2] = {samples, columns}, three = 3, n = samples * columns;
  for (int64_t i = 0; i < n; i++)
    y[i] = 1;
  struct gd_view x = {y, GD_DTYPE_F32, 2, dims, n};
  kernels[GD_OP_dropout](&(struct gd_kernel_args){
      .attr = &(union gd_attr){.dropout = attr},
      .n_in = 2,
      .n_out = 1,
      .in = (struct gd_view[]){x, {seeds, GD_DTYPE_I32, 1, &three, 3}},
      .out = &x,
      .threads = 1,
  });
}

static void test_dropout(void **state) {
  (void)state;
  enum { SAMPLES = 6, COLUMNS = 5003, N = SAMPLES * COLUMNS };
  static const struct gd_attr_dropout attr = {.probability = 0.3f, .stream = 2};
  static const gd_kernel *const tables[] = {gd_ref_kernels, gd_cpu_kernels};
  static float all[N], part[N], ref[N];

  /* The words of counter 0, key 0 after 7 rounds are 0x5f6fb709 0d893f64 4f121f81 4f730a48 (the
     test vectors of the Philox paper's library): of 2^16, 0.715 0.373 0.248 0.053 0.123 0.309 0.040
     0.310. */
  struct op_case c = {.kind = GD_OP_dropout,
                      .n_in = 2,
                      .in = {GIVEN(F32, (1, 8), 1, 2, 3, 4, 5, 6, 7, 8), GIVEN(I32, (3), 0, 0, 0)},
                      .attr = {.dropout = {.probability = 0.5f}}};
  EXPECT(c, 0, 2, 0, 0, 0, 0, 0, 0, 0);
  c.attr.dropout.probability = 0.2f; /* rounded to 13107 of 65536 */
  EXPECT(c, 0, 1.2499952, 2.4999905, 3.7499857, 0, 0, 7.4999714, 0, 9.9999619);
  c.attr.dropout.probability = 0x1p-18f; /* rounded to none */
  EXPECT(c, 0, 1, 2, 3, 4, 5, 6, 7, 8);

  /* The same draws, one a sample: samples 1 to 3 of a batch have the words of elements 1 to 3. */
  struct op_case whole = {.kind = GD_OP_dropout,
                          .n_in = 2,
                          .in = {GIVEN(F32, (3, 2), 1, 2, 3, 4, 5, 6), GIVEN(I32, (3), 0, 0, 1)},
                          .attr = {.dropout = {.probability = 0.3f, .per_sample = true}}};
  EXPECT(whole, 0, 1.4285777, 2.8571553, 0, 0, 0, 0);
  whole.in[0] = (struct op_input)GIVEN(F32, (1, 3), HUGE_VAL, -HUGE_VAL, 1); /* 0, not NaN */
  whole.in[1] = (struct op_input)GIVEN(I32, (3), 0, 0, 2);
  EXPECT(whole, 0, 0, 0, 0);

  for (int64_t t = 0; t < COUNT(tables); t++) {
    int64_t kept = 0, same = 0;
    drop(tables[t], all, SAMPLES, COLUMNS, attr, 11, 22, 4);
    for (int64_t i = 0; i < N; i++) {
      assert_true(all[i] == 0 || fabsf(all[i] - 65536 / (65536 - 19661.0f)) < 1e-6f);
      kept += all[i] != 0;
    }
    /* 0.7 of 30018, with a deviation of sqrt(30018 . 0.3 . 0.7) = 79.4: five of them. */
    assert_true(fabs((double)kept - 0.7 * N) < 400);
    /* The same samples as 1 + 2 + 3 of a batch, each with its place in it. */
    drop(tables[t], part, 1, COLUMNS, attr, 11, 22, 4);
    drop(tables[t], part + COLUMNS, 2, COLUMNS, attr, 11, 22, 5);
    drop(tables[t], part + 3 * COLUMNS, 3, COLUMNS, attr, 11, 22, 7);
    assert_memory_equal(part, all, sizeof all);
    /* Another seed, step or stream draws anew: two masks agree in 0.7^2 + 0.3^2 = 0.58 of N, with a
       deviation of 86. */
    for (int which = 0; which < 3; which++) {
      struct gd_attr_dropout other = {attr.probability, attr.stream + (which == 0), false};
      drop(tables[t], part, SAMPLES, COLUMNS, other, 11 + (which == 1), 22 + (which == 2), 4);
      same = 0;
      for (int64_t i = 0; i < N; i++)
        same += (part[i] != 0) == (all[i] != 0);
      assert_true(fabs((double)same - 0.58 * N) < 430);
    }
    if (t == 0)
      memcpy(ref, all, sizeof ref);
    for (int64_t i = 0; i < N; i++)
      assert_true((ref[i] != 0) == (all[i] != 0));
  }
}

/* [3 4]: mean square 12.5. */
static void test_rmsnorm(void **state) {
  (void)state;
  struct op_case c = {.kind = GD_OP_rmsnorm,
                      .n_in = 2,
                      .in = {GIVEN(F32, (2, 2), 3, 4, 1, -1), GIVEN(F32, (2), 1, 10)},
                      .attr = {.norm = {1e-12f}}};
  EXPECT(c, 0, 0.8485281374, 11.313708499, 1, -10);
  EXPECT(c, 1, 0.2828427125, 1);
  c.attr.norm.eps = 12.5f; /* 1 / sqrt(25) and 1 / sqrt(13.5) */
  EXPECT(c, 0, 0.6, 8, 0.2721655270, -2.721655270);
  EXPECT(c, 1, 0.2, 0.2721655270);

  /* g = dy w = [3 2], r = 1: dx = g - x mean(g x) = [3 2] - [1 -1] / 2. Second row: x r = [1.5 -1],
     g = [1 2], mean(g x r) = -1/4: dx = r ([1 2] + [1.5 -1] / 4). */
  struct op_case grad = {.kind = GD_OP_rmsnorm_grad,
                         .n_in = 4,
                         .in = {GIVEN(F32, (2, 2), 3, 1, 1, 1), GIVEN(F32, (2, 2), 1, -1, 3, -2),
                                GIVEN(F32, (2), 1, 2), GIVEN(F32, (2), 1, 0.5)}};
  EXPECT(grad, 0, 2.5, 2.5, 0.6875, 0.875);
  EXPECT(grad, 1, 4.5, -2);
}

static void test_pool(void **state) {
  (void)state;
  struct op_case c = {.kind = GD_OP_pool,
                      .n_in = 1,
                      .in = {GIVEN(BF16, (2, 3, 2), 1, 2, 3, 4, 5, 9, -1, 0, -1, 0, -1, 6)}};
  EXPECT(c, 0, 3, 5, -1, 2);
  struct op_case grad = {.kind = GD_OP_pool_grad,
                         .n_in = 1,
                         .in = {GIVEN(F32, (2, 2), 3, 6, 0, 9)},
                         .attr = {.rows = {3}}};
  EXPECT(grad, 0, 1, 2, 1, 2, 1, 2, 0, 3, 0, 3, 0, 3);
}

/* [1 2 3]: mean 2, variance 2/3, so y = -+sqrt(3/2) = -+1.2247449. */
static void test_layernorm(void **state) {
  (void)state;
  struct op_case c = {.kind = GD_OP_layernorm,
                      .n_in = 3,
                      .in = {GIVEN(F32, (2, 3), 1, 2, 3, 5, 5, 5), GIVEN(F32, (3), 1, 1, 2),
                             GIVEN(F32, (3), 0, 10, 100)},
                      .attr = {.norm = {1e-12f}}};
  EXPECT(c, 1, 2, 5);
  EXPECT(c, 0, -1.2247449, 10, 102.4494897, 0, 10, 100);
  struct op_case statistics = c;
  statistics.attr.norm.eps = 1.0f / 3; /* 1 / sqrt(2/3 + 1/3) and 1 / sqrt(1/3) */
  EXPECT(statistics, 2, 1, 1.7320508);

  /* mean 0, rstd 1: dw = dy x, db = dy, dx = g - mean(g) - x mean(g x) with g = dy w. */
  struct op_case grad = {.kind = GD_OP_layernorm_grad,
                         .n_in = 5,
                         .in = {GIVEN(F32, (1, 2), 3, 1), GIVEN(F32, (1, 2), 1, -1),
                                GIVEN(F32, (2), 1, 2), GIVEN(F32, (1), 0), GIVEN(F32, (1), 1)},
                         .attr = {.norm_grad = {true}}};
  EXPECT(grad, 1, 3, -1);
  EXPECT(grad, 2, 3, 1);
  EXPECT(grad, 0, 0, 0); /* g = [3 2]: minus 5/2 is +-1/2, minus x mean(g x) = x/2 leaves 0 */
  struct op_case three = {.kind = GD_OP_layernorm_grad,
                          .n_in = 5,
                          .in = {GIVEN(F32, (1, 3), 1, 0, 0), GIVEN(F32, (1, 3), 1, 2, 3),
                                 GIVEN(F32, (3), 1, 1, 1), GIVEN(F32, (1), 2),
                                 GIVEN(F32, (1), 1.2247448714)}};
  /* h = [-r 0 r], r^2 = 3/2: dx = r (g - 1/3 - h (-r)/3) = r [1/6, -1/3, 1/6] */
  EXPECT(three, 0, 0.2041241, -0.4082483, 0.2041241);
}

static void test_rope(void **state) {
  (void)state;
  /* One pair a position, rotated by 0 and by a quarter; the third value is left alone. */
  struct op_case c = {.kind = GD_OP_rope,
                      .n_in = 2,
                      .in = {GIVEN(F32, (2, 3), 1, 2, 3, 4, 5, 6), GIVEN(F32, (2, 2), 1, 0, 0, 1)},
                      .attr = {.rope = {.rotary = 2}}};
  EXPECT(c, 0, 1, 2, 3, -5, 4, 6);
  c.attr.rope.inverse = true;
  EXPECT(c, 0, 1, 2, 3, 5, -4, 6);
  /* Pairs are (0, 2) and (1, 3), not neighbours. */
  struct op_case two_pairs = {
      .kind = GD_OP_rope,
      .n_in = 2,
      .in = {GIVEN(F32, (1, 4), 1, 2, 3, 4), GIVEN(F32, (1, 4), 0, 1, 1, 0)},
      .attr = {.rope = {.rotary = 4}}};
  EXPECT(two_pairs, 0, -3, 2, 1, 4);
}

static void test_heads(void **state) {
  (void)state;
  /* A token's columns are q0 q1 k0 k1, then q0 k0 q1 k1; a head is one column wide. */
  struct op_case c = {.kind = GD_OP_split_heads,
                      .n_in = 1,
                      .in = {GIVEN(F32, (1, 2, 4), 1, 2, 3, 4, 5, 6, 7, 8)},
                      .attr = {.heads = {.heads = 2, .parts = 2}}};
  EXPECT(c, 0, 1, 5, 2, 6);
  EXPECT(c, 1, 3, 7, 4, 8);
  c.attr.heads.interleaved = true;
  EXPECT(c, 0, 1, 5, 3, 7);
  EXPECT(c, 1, 2, 6, 4, 8);
  /* The second part of two, two columns wide, turns by 0 and by a quarter. */
  struct op_case rotated = {
      .kind = GD_OP_split_heads,
      .n_in = 2,
      .in = {GIVEN(F32, (1, 2, 4), 1, 2, 3, 4, 5, 6, 7, 8), GIVEN(F32, (2, 2), 1, 0, 0, 1)},
      .attr = {.heads = {.heads = 1, .parts = 2, .rotated = 2, .rotary = 2}}};
  EXPECT(rotated, 0, 1, 2, 5, 6);
  EXPECT(rotated, 1, 3, 4, -8, 7);
  /* Back again. */
  struct op_case back = {.kind = GD_OP_merge_heads,
                         .n_in = 3,
                         .in = {GIVEN(F32, (1, 1, 2, 2), 1, 2, 5, 6),
                                GIVEN(F32, (1, 1, 2, 2), 3, 4, -8, 7),
                                GIVEN(F32, (2, 2), 1, 0, 0, 1)},
                         .attr = rotated.attr};
  back.attr.heads.inverse = true;
  EXPECT(back, 0, 1, 2, 3, 4, 5, 6, 7, 8);
}

/* exp(ln n) = n. */
static void test_softmax(void **state) {
  (void)state;
  struct op_case c = {.kind = GD_OP_softmax,
                      .n_in = 1,
                      .in = {GIVEN(F32, (2, 3), 0, 0.69314718, 1.60943791, 1000, 1000, 1000)}};
  EXPECT(c, 0, 0.125, 0.25, 0.625, 1. / 3, 1. / 3, 1. / 3);
  c.attr.softmax.causal = true;
  EXPECT(c, 0, 1, 0, 0, 0.5, 0.5, 0);
  /* y dy = [1/4 . 4, 3/4 . 8], sum 7: dx = [1/4 (4 - 7), 3/4 (8 - 7)] */
  struct op_case grad = {
      .kind = GD_OP_softmax_grad,
      .n_in = 2,
      .in = {GIVEN(F32, (2, 2), 0.25, 0.75, 0.25, 0.75), GIVEN(F32, (2, 2), 4, 8, 4, 8)}};
  EXPECT(grad, 0, -0.75, 0.75, -0.75, 0.75);
  grad.attr.softmax.causal = true;
  EXPECT(grad, 0, 0.25 * (4 - 1), 0, -0.75, 0.75);
}

/* As PyTorch: relu(NaN) is NaN, its derivative there is 1, and a NaN among the scores of a softmax
 * makes all its row NaN. -0 is no NaN, and infinity stays. */
static void test_nans(void **state) {
  (void)state;
  struct op_case relu = {.kind = GD_OP_activate,
                         .n_in = 1,
                         .in = {GIVEN(F32, (5), nan(""), -0.0, HUGE_VAL, -HUGE_VAL, 3),
                                GIVEN(F32, (5), 2, 2, 2, 2, nan(""))},
                         .attr = {.activate = {GD_ACTIVATION_RELU}}};
  EXPECT(relu, 0, nan(""), 0, HUGE_VAL, 0, 3);
  relu.kind = GD_OP_activate_grad;
  relu.n_in = 2;
  EXPECT(relu, 0, 2, 0, 2, 0, nan(""));
  struct op_case softmax = {
      .kind = GD_OP_softmax, .n_in = 1, .in = {GIVEN(F32, (3, 2), 1, nan(""), nan(""), 5, 0, 0)}};
  EXPECT(softmax, 0, nan(""), nan(""), nan(""), nan(""), 0.5, 0.5);
}

/* The normal distribution function at 1 is 0.8413447461, at 2 0.9772498681; density at 1
 * 0.2419707245, at 2 0.0539909665. */
static void test_activations(void **state) {
  (void)state;
  struct op_case c = {.kind = GD_OP_activate,
                      .n_in = 1,
                      .in = {GIVEN(F32, (5), 0, 1, -1, 2, -2), GIVEN(F32, (5), 1, 1, 1, 1, 3)}};
  c.attr.activate.function = GD_ACTIVATION_GELU;
  EXPECT(c, 0, 0, 0.8413447461, -0.1586552539, 1.9544997361, -0.0455002639);
  c.attr.activate.function = GD_ACTIVATION_RELU;
  EXPECT(c, 0, 0, 1, 0, 2, 0);
  c.attr.activate.function = GD_ACTIVATION_SILU; /* x / (1 + e^-x) */
  EXPECT(c, 0, 0, 0.7310585786, -0.2689414214, 1.7615941560, -0.2384058440);
  c.attr.activate.function = GD_ACTIVATION_GELU_TANH; /* tanh(0.8335621) = 0.6823842 at 1 */
  expect(&c, 0, 5, (const double[]){0, 0.8411920, -0.1588080, 1.9545977, -0.0454023}, 2e-6);
  c.attr.activate.function = GD_ACTIVATION_SOFTPLUS; /* log(1 + e^x) */
  EXPECT(c, 0, 0.6931471806, 1.3132616875, 0.3132616875, 2.1269280110, 0.1269280110);
  c.attr.activate.function = GD_ACTIVATION_QUICK_GELU; /* x / (1 + e^-1.702x) */
  EXPECT(c, 0, 0, 0.8457957659, -0.1542042341, 1.9356586231, -0.0643413769);
  c.attr.activate.function = GD_ACTIVATION_TANH;
  EXPECT(c, 0, 0, 0.7615941560, -0.7615941560, 0.9640275801, -0.9640275801);
  c.attr.activate.function = GD_ACTIVATION_SIGMOID;
  EXPECT(c, 0, 0.5, 0.7310585786, 0.2689414214, 0.8807970780, 0.1192029220);

  c.kind = GD_OP_activate_grad;
  c.n_in = 2;
  c.attr.activate.function = GD_ACTIVATION_GELU;
  EXPECT(c, 0, 0.5, 1.0833154706, -0.0833154706, 1.0852318011, 3 * -0.0852318011);
  c.attr.activate.function = GD_ACTIVATION_RELU;
  EXPECT(c, 0, 0, 1, 0, 1, 0);
  c.attr.activate.function = GD_ACTIVATION_SILU;
  EXPECT(c, 0, 0.5, 0.9276705119, 0.0723294881, 1.0907842488, 3 * -0.0907842488);
  c.attr.activate.function = GD_ACTIVATION_SOFTPLUS; /* the sigmoid */
  EXPECT(c, 0, 0.5, 0.7310585786, 0.2689414214, 0.8807970780, 3 * 0.1192029220);
  c.attr.activate.function = GD_ACTIVATION_QUICK_GELU; /* s (1 + 1.702 x (1 - s)) */
  EXPECT(c, 0, 0.5, 1.0677796066, -0.0677796066, 1.0738153543, 3 * -0.0738153543);
  c.attr.activate.function = GD_ACTIVATION_TANH; /* 1 - tanh^2 */
  EXPECT(c, 0, 1, 0.4199743416, 0.4199743416, 0.0706508249, 3 * 0.0706508249);
  c.attr.activate.function = GD_ACTIVATION_SIGMOID; /* s (1 - s) */
  EXPECT(c, 0, 0.25, 0.1966119332, 0.1966119332, 0.1049935854, 3 * 0.1049935854);
}

/* Where results are small or arguments large: one value each, to six digits of itself. */
static void test_activation_tails(void **state) {
  (void)state;
  static const struct {
    enum gd_op_kind kind;
    enum gd_activation function;
    double x, y;
  } tails[] = {
      {GD_OP_activate, GD_ACTIVATION_SOFTPLUS, -5, 0.00671534848912},
      {GD_OP_activate, GD_ACTIVATION_SOFTPLUS, -20, 2.06115362031e-9},
      {GD_OP_activate, GD_ACTIVATION_SOFTPLUS, -80, 1.804851388e-35},
      {GD_OP_activate, GD_ACTIVATION_SOFTPLUS, -1e6, 0},
      {GD_OP_activate, GD_ACTIVATION_SOFTPLUS, 20, 20.0000000020612},
      {GD_OP_activate, GD_ACTIVATION_SOFTPLUS, 1e6, 1e6},
      {GD_OP_activate, GD_ACTIVATION_SOFTPLUS, 1e38, 1e38},
      {GD_OP_activate, GD_ACTIVATION_TANH, 1e-4, 9.99999996667e-5},
      {GD_OP_activate, GD_ACTIVATION_TANH, -1e-20, -1e-20},
      {GD_OP_activate, GD_ACTIVATION_TANH, -1e6, -1},
      {GD_OP_activate, GD_ACTIVATION_SIGMOID, -20, 2.06115361819e-9},
      {GD_OP_activate, GD_ACTIVATION_SIGMOID, 1e6, 1},
      {GD_OP_activate, GD_ACTIVATION_QUICK_GELU, 1e38, 1e38},
      {GD_OP_activate_grad, GD_ACTIVATION_TANH, 10, 8.24461445577e-9},
      {GD_OP_activate_grad, GD_ACTIVATION_SIGMOID, -20, 2.06115361394e-9},
      {GD_OP_activate_grad, GD_ACTIVATION_QUICK_GELU, 1e38, 1},
      {GD_OP_activate_grad, GD_ACTIVATION_SOFTPLUS, -20, 2.06115361819e-9},
  };
  for (int64_t i = 0; i < COUNT(tails); i++) {
    struct op_case c = {.kind = tails[i].kind,
                        .n_in = tails[i].kind == GD_OP_activate ? 1 : 2,
                        .in = {GIVEN(F32, (1), tails[i].x), GIVEN(F32, (1), 1)},
                        .attr = {.activate = {tails[i].function}}};
    double size = fabs(tails[i].y);
    expect(&c, 0, 1, &tails[i].y, 1e-6 * size / (1 + size) + 1e-44);
  }
}

static void test_xent(void **state) {
  (void)state;
  /* Equal logits: every row costs ln V. One of three rows is ignored. */
  struct op_case uniform = {.kind = GD_OP_xent,
                            .n_in = 3,
                            .in = {GIVEN(F32, (3, 4), 2, 2, 2, 2, 0, 0, 0, 0, -5, -5, -5, -5),
                                   GIVEN(I32, (3), 1, -100, 3), GIVEN(F32, (1), 0.5)},
                            .attr = {.xent = {.ignore = -100}}};
  EXPECT(uniform, 0, log(4));
  EXPECT(uniform, 1, 2 + log(4), log(4), log(4) - 5);
  /* Two sequences of two: rows 0 and 2 are scored against labels 1 and 3, rows 1 and 3 not. */
  struct op_case shifted = {.kind = GD_OP_xent,
                            .n_in = 3,
                            .in = {GIVEN(F32, (2, 2, 2), 0, 1.09861229, 7, 7, 0, 0, 9, 8),
                                   GIVEN(I32, (2, 2), 1, 0, 1, 0), GIVEN(F32, (1), 1)},
                            .attr = {.xent = {.ignore = -100, .shift = true}}};
  EXPECT(shifted, 0, log(4) + log(2));

  /* p = [1/4 3/4]; weight 1/2, scale 8. The second number of the scale counts good steps. */
  struct op_case grad = {.kind = GD_OP_xent_grad,
                         .n_in = 5,
                         .in = {GIVEN(F32, (2, 2), 0, 1.09861229, 0, 0),
                                GIVEN(F32, (2), 1.38629436, 0.69314718), GIVEN(I32, (2), 1, -100),
                                GIVEN(F32, (1), 0.5), GIVEN(F32, (2), 8, 77)},
                         .attr = {.xent = {.ignore = -100}}};
  EXPECT(grad, 0, 1, -1, 0, 0);
}

/* Targets in place of labels: p = [1/4 3/4] twice. The second row is a miss, the third counts
   nothing. */
static void test_soft_xent(void **state) {
  (void)state;
  struct op_case mixed = {.kind = GD_OP_soft_xent,
                          .n_in = 3,
                          .in = {GIVEN(F32, (3, 2), 0, 1.09861229, 0, 1.09861229, 5, 5),
                                 GIVEN(F32, (3, 2), 0.25, 0.75, 1, 0, 0, 0), GIVEN(F32, (1), 0.5)}};
  EXPECT(mixed, 0, 0.5 * (0.25 * log(4) + 0.75 * log(4.0 / 3) + log(4)));
  EXPECT(mixed, 1, log(4), log(4), 5 + log(2));
  EXPECT(mixed, 2, 1);
  struct op_case grad = {.kind = GD_OP_soft_xent_grad,
                         .n_in = 5,
                         .in = {GIVEN(F32, (3, 2), 0, 1.09861229, 0, 1.09861229, 5, 5),
                                GIVEN(F32, (3), 1.38629436, 1.38629436, 5.69314718),
                                GIVEN(F32, (3, 2), 0, 1, 0.5, 0.5, 0, 0), GIVEN(F32, (1), 0.5),
                                GIVEN(F32, (2), 8, 77)}};
  EXPECT(grad, 0, 1, -1, -1, 1, 0, 0);
}

static void test_sums(void **state) {
  (void)state;
  struct op_case rows = {.kind = GD_OP_sum_rows,
                         .n_in = 1,
                         .in = {GIVEN(BF16, (2, 2, 2), 1, 2, 3, 4, 5, 6, 7, 8)},
                         .attr = {.rows = {1}}};
  EXPECT(rows, 0, 16, 20);
  rows.attr.rows.rows = 2;
  EXPECT(rows, 0, 6, 8, 10, 12);
  struct op_case squares = {
      .kind = GD_OP_sum_squares, .n_in = 1, .in = {GIVEN(F32, (2, 2), 1, -2, 3, -4)}};
  EXPECT(squares, 0, 30, 0);
  struct op_case accumulate = {
      .kind = GD_OP_accumulate, .n_in = 2, .in = {GIVEN(F32, (2), 1, 2), GIVEN(F16, (2), 3, 5)}};
  EXPECT(accumulate, 0, 4, 7);
  struct op_case copy = {.kind = GD_OP_copy,
                         .n_in = 2,
                         .in = {GIVEN(BF16, (2), 9, 9), GIVEN(F32, (2), 1.00390625, -3)}};
  EXPECT(copy, 0, 1, -3); /* 1 + 2^-8 is the middle between two neighbours: to the even one */
  struct op_case fill = {
      .kind = GD_OP_fill, .n_in = 1, .in = {GIVEN(F32, (3), 1, 2, 3)}, .attr = {.fill = {-1.5f}}};
  EXPECT(fill, 0, -1.5, -1.5, -1.5);
}

/* Sums 9 and 16 of gradients that carry a loss scale of 2: norm 5 / 2. */
static void test_control(void **state) {
  (void)state;
  struct op_case c = {.kind = GD_OP_control,
                      .n_in = 4,
                      .in = {GIVEN(F32, (2), 7, 0), GIVEN(F32, (2), 2, 3), GIVEN(F32, (2), 9, 0),
                             GIVEN(F32, (2), 12, 4)}};
  EXPECT(c, 0, 8, 0);
  EXPECT(c, 1, 2, 3); /* not dynamic: neither number moves */
  EXPECT(c, 2, 2.5);
  EXPECT(c, 3, 0.5);

  struct op_case clipped = c;
  clipped.attr.control = (struct gd_attr_control){1, true, 5};
  EXPECT(clipped, 3, 1 / 2.500001 / 2);
  EXPECT(clipped, 1, 2, 4);
  clipped.attr.control.max_norm = 3;
  EXPECT(clipped, 3, 0.5);
  clipped.attr.control.growth_interval = 4; /* the fourth good step doubles; factor: old scale */
  EXPECT(clipped, 1, 4, 0);
  EXPECT(clipped, 3, 0.5);

  /* The largest norm that is taken is 2.5 itself; a smaller one skips, and no scale moves. */
  struct op_case limited = clipped;
  limited.in[0].values = (const double[]){7, 2.5};
  EXPECT(limited, 0, 8, 2.5);
  limited.in[0].values = (const double[]){7, 2.4};
  EXPECT(limited, 0, 7, 2.4);
  EXPECT(limited, 1, 2, 3);
  EXPECT(limited, 2, 2.5);
  EXPECT(limited, 3, 0);

  /* norm = max_norm = 1e-6: the 1e-6 of the formula makes it a half. */
  struct op_case tiny = {
      .kind = GD_OP_control,
      .n_in = 3,
      .in = {GIVEN(F32, (2), 0, 0), GIVEN(F32, (2), 1, 0), GIVEN(F32, (2), 1e-12, 0)},
      .attr = {.control = {1e-6f, false, 0}}};
  EXPECT(tiny, 3, 0.5);

  struct op_case overflow = {
      .kind = GD_OP_control,
      .n_in = 3,
      .in = {GIVEN(F32, (2), 7, 0), GIVEN(F32, (2), 16, 3), GIVEN(F32, (2), HUGE_VAL, 0)},
      .attr = {.control = {1, true, 5}}};
  EXPECT(overflow, 0, 7, 0);
  EXPECT(overflow, 1, 8, 0);
  EXPECT(overflow, 2, HUGE_VAL);
  EXPECT(overflow, 3, 0);
  overflow.in[1].values = (const double[]){1.5, 3}; /* never below 1 */
  EXPECT(overflow, 1, 1, 0);
  overflow.attr.control.dynamic_scale = false;
  EXPECT(overflow, 1, 1.5, 3);
  EXPECT(overflow, 0, 7, 0);
  overflow.in[2].values = (const double[]){nan("")};
  EXPECT(overflow, 3, 0);
  EXPECT(overflow, 0, 7, 0);
}

/* From zero moments the first step is lr g / (|g| + eps): 0.01 against the sign of g. */
static void test_adam(void **state) {
  (void)state;
  struct op_case c = {.kind = GD_OP_adam,
                      .n_in = 8,
                      .in = {GIVEN(F32, (2), 1, -1), GIVEN(F32, (2), 4, -8), GIVEN(F32, (2), 0, 0),
                             GIVEN(F32, (2), 0, 0), GIVEN(F32, (1), 0.25), GIVEN(F32, (1), 0.01),
                             GIVEN(F32, (2), 1, 0), GIVEN(F32, (2), 5, 5)},
                      .attr = {.adam = {0.9f, 0.999f, 1e-8f, 0, false}}};
  EXPECT(c, 0, 0.99, -0.99);
  EXPECT(c, 1, 0.1, -0.2);
  EXPECT(c, 2, 0.001, 0.004);
  EXPECT(c, 3, 0.99, -0.99);

  struct op_case coupled = c; /* g = [1 -2] + 2 p = [3 -4] */
  coupled.attr.adam.weight_decay = 2;
  EXPECT(coupled, 1, 0.3, -0.4);
  EXPECT(coupled, 2, 0.009, 0.016);
  EXPECT(coupled, 0, 0.99, -0.99);

  struct op_case decoupled = coupled; /* p (1 - 0.01 . 2) first */
  decoupled.attr.adam.decoupled = true;
  EXPECT(decoupled, 1, 0.1, -0.2);
  EXPECT(decoupled, 0, 0.97, -0.97);

  /* Step 2, m = v = 1, g = 1: both stay 1; 1 - b1^2 = 0.75, 1 - b2^2 = 0.9375; eps 1. */
  struct op_case second = {.kind = GD_OP_adam,
                           .n_in = 7,
                           .in = {GIVEN(F32, (1), 2), GIVEN(F32, (1), 1), GIVEN(F32, (1), 1),
                                  GIVEN(F32, (1), 1), GIVEN(F32, (1), 1), GIVEN(F32, (1), 0.75),
                                  GIVEN(F32, (2), 2, 0)},
                           .attr = {.adam = {0.5f, 0.25f, 1, 0, false}}};
  EXPECT(second, 0, 2 - 1 / (1 / sqrt(0.9375) + 1));

  struct op_case skipped = c;
  skipped.in[4].values = (const double[]){0};
  skipped.in[1].values = (const double[]){HUGE_VAL, nan("")};
  EXPECT(skipped, 0, 1, -1);
  EXPECT(skipped, 1, 0, 0);
  EXPECT(skipped, 3, 1, -1); /* the copy is made all the same: it may lie where nothing was yet */
}

/* ref and cpu share these, so that comparing the two says nothing. One rank; several are in
   tests/comm. */
static void test_host(void **state) {
  (void)state;
  bool seen[GD_OP_COUNT] = {false};
  struct op_case c = {.n_in = 1, .in = {GIVEN(F32, (3), 1, -2, 4)}};
  static const struct {
    enum gd_op_kind kind;
    const union gd_attr attr;
  } same[] = {{GD_OP_wait, {.none = {0}}},
              {GD_OP_all_reduce, {.ranks = {.ranks = 1}}},
              {GD_OP_reduce_scatter, {.ranks = {.ranks = 1}}},
              {GD_OP_all_gather, {.ranks = {.ranks = 1}}},
              {GD_OP_gather, {.ranks = {.ranks = 1}}},
              {GD_OP_transfer, {.transfer = {GD_SPACE_HOST}}}};
  for (int64_t i = 0; i < COUNT(same); i++) {
    c.kind = same[i].kind;
    c.attr = same[i].attr;
    EXPECT(c, 0, 1, -2, 4);
    seen[c.kind] = true;
  }
  struct op_case into = {.kind = GD_OP_transfer_into,
                         .n_in = 2,
                         .in = {GIVEN(F32, (2), 1, 2), GIVEN(F32, (2), 3, -4)}};
  EXPECT(into, 0, 3, -4);
  struct op_case buffer = {.kind = GD_OP_buffer,
                           .attr = {.buffer = {.dtype = GD_DTYPE_F32, .elements = 4}}};
  EXPECT(buffer, 0, 0, 0, 0, 0); /* all of it padding */
  seen[GD_OP_transfer_into] = seen[GD_OP_buffer] = true;
#define IS_SHARED_none       false
#define IS_SHARED_own        false
#define IS_SHARED_own_or_ref false
#define IS_SHARED_host       true
#define GD_OP(name, min, max, attr, doc, shape, grad, cost, flops, lower, ref, cpu, ...) \
  if (IS_SHARED_##cpu && !seen[GD_OP_##name])                                            \
    fail_msg("%s has no case here", #name);
#include "ir/ops.def"
#undef GD_OP
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shapes),
      cmocka_unit_test(test_embed),
      cmocka_unit_test(test_matmul),
      cmocka_unit_test(test_add),
      cmocka_unit_test(test_layernorm),
      cmocka_unit_test(test_rope),
      cmocka_unit_test(test_heads),
      cmocka_unit_test(test_softmax),
      cmocka_unit_test(test_nans),
      cmocka_unit_test(test_activations),
      cmocka_unit_test(test_xent),
      cmocka_unit_test(test_soft_xent),
      cmocka_unit_test(test_sums),
      cmocka_unit_test(test_control),
      cmocka_unit_test(test_adam),
      cmocka_unit_test(test_dropout),
      cmocka_unit_test(test_rmsnorm),
      cmocka_unit_test(test_pool),
      cmocka_unit_test(test_activation_tails),
      cmocka_unit_test(test_host),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
