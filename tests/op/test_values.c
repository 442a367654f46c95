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
  static const struct op_backend cpu = {"cpu", gd_cpu_kernels, gd_cpu_workspace_bytes};
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
                         .attr = {.rows = {4}}};
  EXPECT(grad, 0, 3, 4, 0, 0, 0, 0, 6, 8);
}

/* A = [1 2; 3 4; 5 6], B = [1 0 -1; 2 1 0]: AB = [5 2 -1; 11 4 -3; 17 6 -5]. */
static void test_matmul(void **state) {
  (void)state;
  struct op_case c = {.kind = GD_OP_matmul,
                      .n_in = 2,
                      .in = {GIVEN(F32, (3, 2), 1, 2, 3, 4, 5, 6),
                             GIVEN(F32, (2, 3), 1, 0, -1, 2, 1, 0), GIVEN(F32, (3), 10, 20, 30)},
                      .attr = {.matmul = {false, false, 1, GD_DTYPE_COUNT}}};
  EXPECT(c, 0, 5, 2, -1, 11, 4, -3, 17, 6, -5);
  c.n_in = 3;
  c.attr.matmul.alpha = 2; /* scales the product, not the bias */
  EXPECT(c, 0, 20, 24, 28, 32, 28, 24, 44, 32, 20);

  struct op_case both = {
      .kind = GD_OP_matmul,
      .n_in = 2,
      .in = {GIVEN(BF16, (2, 3), 1, 3, 5, 2, 4, 6), GIVEN(BF16, (3, 2), 1, 2, 0, 1, -1, 0)},
      .attr = {.matmul = {true, true, 1, GD_DTYPE_F32}}};
  EXPECT(both, 0, 5, 2, -1, 11, 4, -3, 17, 6, -5);

  struct op_case batch = {
      .kind = GD_OP_matmul,
      .n_in = 2,
      .in = {GIVEN(F16, (2, 1, 2), 1, 2, 3, 4), GIVEN(F16, (2, 2, 1), 5, 6, 7, 8)},
      .attr = {.matmul = {false, false, 1, GD_DTYPE_COUNT}}};
  EXPECT(batch, 0, 17, 53);

  struct op_case flat = {.kind = GD_OP_matmul,
                         .n_in = 2,
                         .in = {GIVEN(F32, (2, 1, 2), 1, 2, 3, 4), GIVEN(F32, (1, 2), 10, 1)},
                         .attr = {.matmul = {false, true, 1, GD_DTYPE_COUNT}}};
  EXPECT(flat, 0, 12, 34);

  struct op_case empty = {
      .kind = GD_OP_matmul,
      .n_in = 3,
      .in = {GIVEN(F32, (2, 0), 0), GIVEN(F32, (0, 2), 0), GIVEN(F32, (2), 7, 8)},
      .attr = {.matmul = {false, false, 1, GD_DTYPE_COUNT}}};
  EXPECT(empty, 0, 7, 8, 7, 8);
}

static void test_add(void **state) {
  (void)state;
  struct op_case c = {.kind = GD_OP_add,
                      .n_in = 2,
                      .in = {GIVEN(F32, (2, 3), 1, 2, 3, 4, 5, 6), GIVEN(BF16, (3), 10, 20, 30)}};
  EXPECT(c, 0, 11, 22, 33, 14, 25, 36);
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
  /* One pair a position, turned by 0 and by a quarter; the third value is left alone. */
  struct op_case c = {.kind = GD_OP_rope,
                      .n_in = 2,
                      .in = {GIVEN(F32, (2, 3), 1, 2, 3, 4, 5, 6), GIVEN(F32, (2, 2), 1, 0, 0, 1)},
                      .attr = {.rope = {.rotary = 2}}};
  EXPECT(c, 0, 1, 2, 3, -5, 4, 6);
  c.attr.rope.inverse = true;
  EXPECT(c, 0, 1, 2, 3, 5, -4, 6);
  /* Pairs are (0, 2) and (1, 3), not neighbours. */
  struct op_case halves = {.kind = GD_OP_rope,
                           .n_in = 2,
                           .in = {GIVEN(F32, (1, 4), 1, 2, 3, 4), GIVEN(F32, (1, 4), 0, 1, 1, 0)},
                           .attr = {.rope = {.rotary = 4}}};
  EXPECT(halves, 0, -3, 2, 1, 4);
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

  c.kind = GD_OP_activate_grad;
  c.n_in = 2;
  c.attr.activate.function = GD_ACTIVATION_GELU;
  EXPECT(c, 0, 0.5, 1.0833154706, -0.0833154706, 1.0852318011, 3 * -0.0852318011);
  c.attr.activate.function = GD_ACTIVATION_RELU;
  EXPECT(c, 0, 0, 1, 0, 1, 0);
  c.attr.activate.function = GD_ACTIVATION_SILU;
  EXPECT(c, 0, 0.5, 0.9276705119, 0.0723294881, 1.0907842488, 3 * -0.0907842488);
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
  EXPECT(squares, 0, 30);
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
  struct op_case c = {
      .kind = GD_OP_control,
      .n_in = 4,
      .in = {GIVEN(F32, (1), 7), GIVEN(F32, (2), 2, 3), GIVEN(F32, (1), 9), GIVEN(F32, (1), 16)}};
  EXPECT(c, 0, 8);
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

  /* norm = max_norm = 1e-6: the 1e-6 of the formula makes it a half. */
  struct op_case tiny = {.kind = GD_OP_control,
                         .n_in = 3,
                         .in = {GIVEN(F32, (1), 0), GIVEN(F32, (2), 1, 0), GIVEN(F32, (1), 1e-12)},
                         .attr = {.control = {1e-6f, false, 0}}};
  EXPECT(tiny, 3, 0.5);

  struct op_case overflow = {
      .kind = GD_OP_control,
      .n_in = 3,
      .in = {GIVEN(F32, (1), 7), GIVEN(F32, (2), 16, 3), GIVEN(F32, (1), HUGE_VAL)},
      .attr = {.control = {1, true, 5}}};
  EXPECT(overflow, 0, 7);
  EXPECT(overflow, 1, 8, 0);
  EXPECT(overflow, 2, HUGE_VAL);
  EXPECT(overflow, 3, 0);
  overflow.in[1].values = (const double[]){1.5, 3}; /* never below 1 */
  EXPECT(overflow, 1, 1, 0);
  overflow.attr.control.dynamic_scale = false;
  EXPECT(overflow, 1, 1.5, 3);
  EXPECT(overflow, 0, 7);
  overflow.in[2].values = (const double[]){nan("")};
  EXPECT(overflow, 3, 0);
  EXPECT(overflow, 0, 7);
}

/* From zero moments the first step is lr g / (|g| + eps): 0.01 against the sign of g. */
static void test_adam(void **state) {
  (void)state;
  struct op_case c = {.kind = GD_OP_adam,
                      .n_in = 8,
                      .in = {GIVEN(F32, (2), 1, -1), GIVEN(F32, (2), 4, -8), GIVEN(F32, (2), 0, 0),
                             GIVEN(F32, (2), 0, 0), GIVEN(F32, (1), 0.25), GIVEN(F32, (1), 0.01),
                             GIVEN(F32, (1), 1), GIVEN(F32, (2), 5, 5)},
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
                                  GIVEN(F32, (1), 2)},
                           .attr = {.adam = {0.5f, 0.25f, 1, 0, false}}};
  EXPECT(second, 0, 2 - 1 / (1 / sqrt(0.9375) + 1));

  struct op_case skipped = c;
  skipped.in[4].values = (const double[]){0};
  skipped.in[1].values = (const double[]){HUGE_VAL, nan("")};
  EXPECT(skipped, 0, 1, -1);
  EXPECT(skipped, 1, 0, 0);
  EXPECT(skipped, 3, 5, 5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_shapes),    cmocka_unit_test(test_embed),
      cmocka_unit_test(test_matmul),    cmocka_unit_test(test_add),
      cmocka_unit_test(test_layernorm), cmocka_unit_test(test_rope),
      cmocka_unit_test(test_softmax),   cmocka_unit_test(test_activations),
      cmocka_unit_test(test_xent),      cmocka_unit_test(test_sums),
      cmocka_unit_test(test_control),   cmocka_unit_test(test_adam),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
