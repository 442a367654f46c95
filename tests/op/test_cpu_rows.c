/*
 * The vector loops of the cpu backend at every level this CPU has, below the kernels: the stated
 * error of the exponential, of the normal tail and of other functions, conversions and random words
 * bit by bit, and rows that make softmax and logsumexp take their rare paths. test_cpu_ops.c covers
 * the kernels, at the best level only.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "base/rng.h"
#include "support/bits.h"

enum { BLOCK = 1021 }; /* odd: the last vector of a block is short at every level */

static void test_exp(void **state) {
  (void)state;
  static const float given[] = {-INFINITY, -1e30f, -200, -88, 0, 88.74f, 1e30f, INFINITY};
  static const float wanted[] = {0, 0, 0, 0, 1, INFINITY, INFINITY, INFINITY};
  float x[BLOCK], y[BLOCK];
  for (int isa = 0; isa <= (int)gd_isa_detect(); isa++) {
    const struct gd_cpu_rows *rows = gd_cpu_rows_for((enum gd_isa)isa);
    double worst = 0;
    for (int64_t at = 0; at < 2000000; at += BLOCK) {
      for (int i = 0; i < BLOCK; i++)
        x[i] = (float)(-86.9 + 175.6 * (double)(at + i) / 2001000.0);
      rows->exp(y, x, BLOCK);
      for (int i = 0; i < BLOCK; i++)
        worst = fmax(worst, fabs((double)y[i] / exp((double)x[i]) - 1));
    }
    if (!(worst < 2e-7))
      fail_msg("%s: exp is off by %g", gd_isa_name((enum gd_isa)isa), worst);
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
      rows->exp(y, &given[i], 1);
      assert_true(y[0] == wanted[i]);
    }
    x[0] = float_of(0xffffffffu); /* a NaN with every bit set must stay one */
    rows->exp(y, x, 1);
    assert_true(isnan(y[0]));
  }
}

static void test_normal_tail(void **state) {
  (void)state;
  float x[BLOCK], y[BLOCK];
  for (int isa = 0; isa <= (int)gd_isa_detect(); isa++) {
    const struct gd_cpu_rows *rows = gd_cpu_rows_for((enum gd_isa)isa);
    double worst = 0, worst_relative = 0;
    for (int64_t at = 0; at < 2000000; at += BLOCK) {
      for (int i = 0; i < BLOCK; i++)
        x[i] = (float)(13.0 * (double)(at + i) / 2001000.0);
      rows->normal_tail(y, x, BLOCK);
      for (int i = 0; i < BLOCK; i++) {
        double exact = 0.5 * erfc((double)x[i] / sqrt(2.0)), error = fabs((double)y[i] - exact);
        worst = fmax(worst, error);
        worst_relative = fmax(worst_relative, error / exact);
      }
    }
    if (!(worst < 1e-7 && worst_relative < 1e-5))
      fail_msg("%s: the normal tail is off by %g, relative %g", gd_isa_name((enum gd_isa)isa),
               worst, worst_relative);
  }
}

static double exact_value(enum gd_activation function, bool derivative, double x) {
  double e = exp(-fabs(x));
  switch (function) {
  case GD_ACTIVATION_SOFTPLUS: return derivative ? 1 / (1 + exp(-x)) : fmax(x, 0) + log1p(e);
  case GD_ACTIVATION_TANH: return derivative ? 1 / (cosh(x) * cosh(x)) : tanh(x);
  default: return derivative ? e / ((1 + e) * (1 + e)) : 1 / (1 + exp(-x)); /* sigmoid */
  }
}

/* Relative errors: these functions must be as good where they are small. */
static void test_activations(void **state) {
  (void)state;
  static const enum gd_activation functions[] = {GD_ACTIVATION_SOFTPLUS, GD_ACTIVATION_TANH,
                                                 GD_ACTIVATION_SIGMOID};
  float x[BLOCK], y[BLOCK], ones[BLOCK];
  for (int i = 0; i < BLOCK; i++)
    ones[i] = 1;
  for (int isa = 0; isa <= (int)gd_isa_detect(); isa++)
    for (int which = 0; which < 6; which++) {
      const struct gd_cpu_rows *rows = gd_cpu_rows_for((enum gd_isa)isa);
      enum gd_activation function = functions[which / 2];
      bool derivative = which % 2;
      double worst = 0;
      for (uint32_t begin = 0x30000000u; begin < 0x42200000u; begin += 977 * BLOCK) {
        for (uint32_t i = 0; i < BLOCK; i++) /* 2^-31 to 40, with both signs */
          x[i] = float_of(begin + 977 * i) * (i % 2 ? 1.0f : -1.0f);
        if (derivative)
          rows->activate_grad(function, GD_DTYPE_F32, y, x, ones, BLOCK);
        else
          rows->activate(function, GD_DTYPE_F32, y, x, BLOCK);
        for (int i = 0; i < BLOCK; i++)
          worst =
              fmax(worst, fabs((double)y[i] / exact_value(function, derivative, (double)x[i]) - 1));
      }
      if (!(worst < 3e-7))
        fail_msg("%s: %s%s is off by %g", gd_isa_name((enum gd_isa)isa),
                 gd_activation_name(function), derivative ? " (derivative)" : "", worst);
    }
}

/* The mask is that of gd_rng_dropout, from any element on, across the low word of the counter. */
static void test_dropout(void **state) {
  (void)state;
  static const uint64_t firsts[] = {0, 1, 7, 0x7ffffffc3u, 0x123456789abcdeu};
  float x[BLOCK], y[BLOCK + 1];
  for (int i = 0; i < BLOCK; i++)
    x[i] = (float)(i + 1);
  for (int isa = 0; isa <= (int)gd_isa_detect(); isa++)
    for (size_t f = 0; f < sizeof firsts / sizeof *firsts; f++)
      for (int64_t begin = 0; begin < 70; begin += 23)
        for (int64_t end = begin; end <= BLOCK; end += end < 200 ? 1 : 400) {
          struct gd_cpu_dropout dropout = {
              GD_DTYPE_F32, 42, 0x500000003u, firsts[f], 0x6000u, 2, x, y};
          for (int64_t i = 0; i <= BLOCK; i++)
            y[i] = -1;
          gd_cpu_rows_for((enum gd_isa)isa)->dropout(&dropout, begin, end);
          for (int64_t i = 0; i <= BLOCK; i++) {
            uint32_t bits = gd_rng_dropout(dropout.seed, dropout.stream, firsts[f] + (uint64_t)i);
            float kept = bits >= dropout.threshold ? 2 * (float)(i + 1) : 0;
            if (y[i] != (i < begin || i >= end ? -1 : kept))
              fail_msg("%s: element %lld of %lld to %lld is %g", gd_isa_name((enum gd_isa)isa),
                       (long long)i, (long long)begin, (long long)end, (double)y[i]);
          }
        }
}

/* Every 16-bit number, and floats around every one: halfway, just above and just below. */
static void test_convert(void **state) {
  (void)state;
  static uint16_t words[0x10000], narrow[0x10000];
  static float wide[0x10000], around[0x10000];
  for (uint32_t i = 0; i < 0x10000; i++)
    words[i] = (uint16_t)i;
  for (int isa = 0; isa <= (int)gd_isa_detect(); isa++) {
    const struct gd_cpu_rows *rows = gd_cpu_rows_for((enum gd_isa)isa);
    for (int dtype = GD_DTYPE_BF16; dtype <= GD_DTYPE_F16; dtype++) {
      bool bf16 = dtype == GD_DTYPE_BF16;
      rows->convert(GD_DTYPE_F32, wide, (enum gd_dtype)dtype, words, 0x10000);
      for (uint32_t i = 0; i < 0x10000; i++) {
        float exact = bf16 ? gd_bf16_to_f32(words[i]) : gd_f16_to_f32(words[i]);
        assert_true(isnan(exact) ? isnan(wide[i]) : bits_of(exact) == bits_of(wide[i]));
      }
      uint32_t middle = bf16 ? 0x8000u : 0x1000u;
      const uint32_t steps[] = {0, 1, middle - 1, middle, middle + 1, 2 * middle - 1};
      for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
        for (uint32_t i = 0; i < 0x10000; i++)
          around[i] = float_of(bits_of(wide[i]) + steps[s]);
        rows->convert((enum gd_dtype)dtype, narrow, GD_DTYPE_F32, around, 0x10000);
        for (uint32_t i = 0; i < 0x10000; i++) {
          uint16_t exact = bf16 ? gd_f32_to_bf16(around[i]) : gd_f32_to_f16(around[i]);
          float got = bf16 ? gd_bf16_to_f32(narrow[i]) : gd_f16_to_f32(narrow[i]);
          bool flushed = bf16 && fabsf(around[i]) < 0x1p-126f; /* allowed to become zero */
          if (isnan(around[i]))
            assert_true(isnan(got));
          else if (narrow[i] != exact && !(flushed && got == 0))
            fail_msg("%s: %a becomes %#x, not %#x", gd_isa_name((enum gd_isa)isa),
                     (double)around[i], (unsigned)narrow[i], (unsigned)exact);
        }
      }
    }
  }
}

/* x[j] = first + step * j, with -inf before `begin`. */
static void check_row(const struct gd_cpu_rows *rows, int64_t n, double first, double step,
                      int64_t begin) {
  float x[3000], y[3000], buffer[3000];
  double sum = 0, max = -HUGE_VAL;
  assert_true(n <= 3000);
  for (int64_t j = 0; j < n; j++) {
    x[j] = j < begin ? -INFINITY : (float)(first + step * (double)j);
    max = fmax(max, (double)x[j]);
  }
  for (int64_t j = 0; j < n; j++)
    sum += exp((double)x[j] - max);
  rows->softmax(GD_DTYPE_F32, y, x, n, n, buffer);
  for (int64_t j = 0; j < n; j++)
    assert_true(fabs((double)y[j] - exp((double)x[j] - max) / sum) <= 1e-6);
  double lse = max + log(sum);
  assert_true(fabs(rows->logsumexp(GD_DTYPE_F32, x, n) - lse) <= 1e-6 * (1 + fabs(lse)));
}

static void test_rows(void **state) {
  (void)state;
  for (int isa = 0; isa <= (int)gd_isa_detect(); isa++) {
    const struct gd_cpu_rows *rows = gd_cpu_rows_for((enum gd_isa)isa);
    const int64_t lengths[] = {1, 3, 4, 15, 16, 17, 100, 1023, 1024, 1025, 2049, 3000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
      int64_t n = lengths[i];
      check_row(rows, n, 0, 0, 0);
      check_row(rows, n, 1000, 0.01, 0); /* far from zero */
      check_row(rows, n, -300, 0.3, 0);  /* grows past what the first block allows for */
      check_row(rows, n, 500, -1, 0);    /* the rest underflows */
      check_row(rows, n, 1, 0.1, n - 1); /* all but one are -inf */
      check_row(rows, n, 1, 0.1, n / 2); /* the first block may be all -inf */
    }
    float none[20], y[20], buffer[20];
    for (int j = 0; j < 20; j++)
      none[j] = -INFINITY;
    assert_true(rows->logsumexp(GD_DTYPE_F32, none, 20) == -HUGE_VAL);
    none[7] = NAN;
    assert_true(isnan(rows->logsumexp(GD_DTYPE_F32, none, 20)));
    rows->softmax(GD_DTYPE_F32, y, none, 20, 20, buffer);
    assert_true(isnan(y[0]));
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_exp),         cmocka_unit_test(test_normal_tail),
      cmocka_unit_test(test_activations), cmocka_unit_test(test_dropout),
      cmocka_unit_test(test_convert),     cmocka_unit_test(test_rows),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
