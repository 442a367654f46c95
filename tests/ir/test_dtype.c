/*
 * The fp16 and bf16 conversions over every pattern they can meet.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>

#include "ir/dtype.h"
#include "support/bits.h"

static void test_round_trips(void **state) {
  (void)state;
  for (uint32_t pattern = 0; pattern <= 0xffff; pattern++) {
    uint16_t bits = (uint16_t)pattern;
    bool bf16_nan = (bits & 0x7f80) == 0x7f80 && (bits & 0x7f) != 0;
    bool f16_nan = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0;
    uint16_t bf16 = gd_f32_to_bf16(gd_bf16_to_f32(bits));
    uint16_t f16 = gd_f32_to_f16(gd_f16_to_f32(bits));
    /* A NaN keeps sign and payload and becomes a quiet one. */
    assert_int_equal(bf16, bf16_nan ? bits | 0x40 : bits);
    assert_int_equal(f16, f16_nan ? bits | 0x200 : bits);
    assert_int_equal(isnan(gd_bf16_to_f32(bits)) != 0, bf16_nan);
    assert_int_equal(isnan(gd_f16_to_f32(bits)) != 0, f16_nan);
  }
}

/* What each f16 pattern means, from the definition. */
static void test_f16_values(void **state) {
  (void)state;
  for (int pattern = 0; pattern < 0x7c00; pattern++) {
    int exponent = pattern >> 10, mantissa = pattern & 0x3ff;
    double value = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
    assert_true((double)gd_f16_to_f32((uint16_t)pattern) == value);
    assert_true((double)gd_f16_to_f32((uint16_t)(pattern | 0x8000)) == -value);
  }
  assert_true(gd_f16_to_f32(0x7c00) == INFINITY);
  assert_true(gd_f16_to_f32(0xfc00) == -INFINITY);
}

/* Between every two neighbours: the tie goes to the even one, a hair off it to the nearer one. */
static void test_rounding(void **state) {
  (void)state;
  for (uint32_t pattern = 0; pattern < 0x7bff; pattern++) {
    float low = gd_f16_to_f32((uint16_t)pattern), high = gd_f16_to_f32((uint16_t)(pattern + 1));
    float middle = (low + high) / 2; /* exact in fp32 */
    uint32_t even = pattern & 1 ? pattern + 1 : pattern;
    assert_int_equal(gd_f32_to_f16(middle), even);
    assert_int_equal(gd_f32_to_f16(-middle), even | 0x8000);
    assert_int_equal(gd_f32_to_f16(nextafterf(middle, 0)), pattern);
    assert_int_equal(gd_f32_to_f16(nextafterf(middle, INFINITY)), pattern + 1);
  }
  for (uint32_t pattern = 0; pattern < 0x7f80; pattern++) {
    uint32_t middle = pattern << 16 | 0x8000;
    uint32_t even = pattern & 1 ? pattern + 1 : pattern;
    assert_int_equal(gd_f32_to_bf16(float_of(middle)), even);
    assert_int_equal(gd_f32_to_bf16(float_of(middle | 0x80000000u)), even | 0x8000);
    assert_int_equal(gd_f32_to_bf16(float_of(middle - 1)), pattern);
    assert_int_equal(gd_f32_to_bf16(float_of(middle + 1)), pattern + 1);
  }
  /* The edges: past the largest finite number, below half the smallest. */
  assert_int_equal(gd_f32_to_f16(65504.0f), 0x7bff);
  assert_int_equal(gd_f32_to_f16(65519.996f), 0x7bff);
  assert_int_equal(gd_f32_to_f16(65520.0f), 0x7c00);
  assert_int_equal(gd_f32_to_f16(-1e30f), 0xfc00);
  assert_int_equal(gd_f32_to_f16(0x1p-25f), 0);
  assert_int_equal(gd_f32_to_f16(nextafterf(0x1p-25f, 1)), 1);
  assert_int_equal(gd_f32_to_f16(float_of(1)), 0);
  assert_int_equal(gd_f32_to_f16(float_of(0x80000001)), 0x8000);
  assert_int_equal(gd_f32_to_bf16(3.4028235e38f), 0x7f80);
  assert_int_equal(gd_f32_to_bf16(INFINITY), 0x7f80);
  /* A NaN whose payload is in the low bits only must not become an infinity. */
  assert_int_equal(gd_f32_to_bf16(float_of(0x7f800001)), 0x7fc0);
  assert_int_equal(gd_f32_to_f16(float_of(0xff800001)), 0xfe00);
}

static void test_dtypes(void **state) {
  (void)state;
  static const float values[] = {0, -1.5f, 100, -3};
  for (int dtype = 0; dtype < GD_DTYPE_COUNT; dtype++) {
    unsigned char storage[16] __attribute__((aligned(16)));
    enum gd_dtype parsed;
    assert_true(gd_dtype_parse(gd_dtype_name((enum gd_dtype)dtype), &parsed));
    assert_int_equal(parsed, dtype);
    for (int64_t i = 0; i < 4; i++)
      gd_dtype_store((enum gd_dtype)dtype, storage, i, values[i]);
    for (int64_t i = 0; i < 4; i++) {
      float expected = dtype == GD_DTYPE_I32 ? (float)(int32_t)values[i] : values[i];
      assert_int_equal(bits_of(gd_dtype_load((enum gd_dtype)dtype, storage, i)), bits_of(expected));
    }
  }
  enum gd_dtype parsed;
  assert_true(gd_dtype_parse("bfloat16", &parsed));
  assert_int_equal(parsed, GD_DTYPE_BF16);
  assert_false(gd_dtype_parse("float64", &parsed));
  assert_false(gd_dtype_parse("", &parsed));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trips),
      cmocka_unit_test(test_f16_values),
      cmocka_unit_test(test_rounding),
      cmocka_unit_test(test_dtypes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
