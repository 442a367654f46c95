/*
 * The random generator against its published answers, what is drawn with it, and the hash.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* Known answers of the Random123 distribution for philox4x32-10. */
static void test_philox(void **state) {
  (void)state;
  static const struct {
    uint64_t seed, stream, index; /* key, counter words 2 and 3, counter words 0 and 1 */
    uint32_t answer[4];
  } cases[] = {
      {0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {UINT64_MAX, UINT64_MAX, UINT64_MAX, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      /* Digits of pi: counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0. */
      {0x299f31d0a4093822,
       0x0370734413198a2e,
       0x85a308d3243f6a88,
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (size_t i = 0; i < COUNT(cases); i++) {
    uint32_t words[4];
    gd_rng_philox(cases[i].seed, cases[i].stream, cases[i].index, words);
    assert_memory_equal(words, cases[i].answer, sizeof words);
  }
}

/*
 * Of a million elements: the share that is kept, its variance over blocks of 100, and what
 * elements 1 to 9 apart (of the same word, of the same counter, of the next) have in common, all
 * within five standard deviations; so for steps, streams and seeds that follow each other, which is
 * how dropouts of a run are told apart.
 */
static void test_dropout(void **state) {
  (void)state;
  enum { N = 1000000, BLOCK = 100, LAGS = 9 };
  static unsigned char kept[N + LAGS];
  static unsigned char last[N];
  /* Counter 0 is a known answer of the Random123 distribution for philox4x32-7. */
  static const uint32_t known[2][4] = {{0x5f6fb709, 0x0d893f64, 0x4f121f81, 0x4f730a48},
                                       {0x1df8a382, 0x46b9669e, 0xfa04da42, 0x14f30e67}};
  for (uint64_t e = 0; e < 8; e++) {
    uint32_t shift = e % 2 ? 16 : 0;
    assert_int_equal(gd_rng_dropout(0, 0, e), known[0][e / 2] >> shift & 0xffff);
    assert_int_equal(gd_rng_dropout(42, 0x500000003, 0xffffffff0 + e),
                     known[1][e / 2] >> shift & 0xffff);
  }
  for (int series = 0; series < 5; series++) {
    uint64_t seed = 7 + (series == 1), step = 100 + (series == 2), layer = 3 + (series == 3);
    double probability = series == 4 ? 0.5 : 0.1, n = N;
    uint32_t threshold = gd_rng_dropout_threshold(probability);
    double p = threshold / 65536.0, q = 1 - p, squares = 0;
    assert_true(fabs(p - probability) <= 0x1p-17);
    assert_true(fabs(gd_rng_dropout_scale(probability) * q - 1) < 1e-15);
    int64_t total = 0, together = 0;
    for (uint64_t i = 0; i < N + LAGS; i++)
      kept[i] = gd_rng_dropout(seed, layer << 32 | step, i) >= threshold;
    for (int64_t i = 0; i < N; i += BLOCK) {
      int64_t sum = 0;
      for (int64_t k = 0; k < BLOCK; k++)
        sum += kept[i + k];
      squares += ((double)sum - BLOCK * q) * ((double)sum - BLOCK * q);
      total += sum;
    }
    assert_true(fabs((double)total - n * q) < 5 * sqrt(n * p * q));
    /* The mean of N / BLOCK squares, each with a variance of about twice its mean squared. */
    assert_true(fabs(squares / (n * p * q) - 1) < 5 * sqrt(2.0 * BLOCK / n));
    for (int lag = 1; lag <= LAGS; lag++) {
      double sum = 0;
      for (int64_t i = 0; i < N; i++)
        sum += (kept[i] - q) * (kept[i + lag] - q);
      assert_true(fabs(sum) < 5 * sqrt(n) * p * q);
    }
    for (int64_t i = 0; i < N; i++)
      together += kept[i] && last[i];
    if (series > 0 && series < 4) /* two draws with the same probability */
      assert_true(fabs((double)together - n * q * q) < 5 * sqrt(n * q * q * (1 - q * q)));
    memcpy(last, kept, sizeof last);
  }
  assert_int_equal(gd_rng_dropout_threshold(0), 0);
  assert_int_equal(gd_rng_dropout_threshold(0.999999999), 65535);
  assert_true(gd_rng_dropout_scale(0) == 1);
}

static void test_draws(void **state) {
  (void)state;
  enum { DRAWS = 100003 };
  double sum = 0, squares = 0;
  int64_t seen[7] = {0};
  for (uint64_t i = 0; i < 20000; i++) {
    float u = gd_rng_uniform(1, 2, i);
    assert_true(u >= 0 && u < 1);
    sum += (double)u;
    int64_t below = gd_rng_below(1, 3, i, 7);
    assert_in_range(below, 0, 6);
    seen[below]++;
  }
  assert_true(fabs(sum / 20000 - 0.5) < 0.01); /* five standard errors */
  for (int i = 0; i < 7; i++)
    assert_true(fabs((double)seen[i] - 20000 / 7.0) < 260);

  float *values = gd_mem_alloc(DRAWS, sizeof *values);
  float few[6];
  gd_rng_normal(5, 6, 0.02, 0, values, DRAWS);
  for (int64_t first = 0; first <= 8; first += 4) { /* drawn alone, a slice is the same */
    gd_rng_normal(5, 6, 0.02, first, few, 6);
    assert_memory_equal(values + first, few, sizeof few);
  }
  sum = 0;
  for (int i = 0; i < DRAWS; i++) {
    assert_true(isfinite(values[i]));
    sum += (double)values[i];
    squares += (double)values[i] * (double)values[i];
  }
  assert_true(fabs(sum / DRAWS) < 5 * 0.02 / sqrt(DRAWS));
  assert_true(fabs(sqrt(squares / DRAWS) / 0.02 - 1) < 0.012);
  gd_mem_free(values);
}

static void test_hash(void **state) {
  (void)state;
  /* FNV-1a's published values. */
  assert_true(gd_hash_string("") == 0xcbf29ce484222325u);
  assert_true(gd_hash_string("a") == 0xaf63dc4c8601ec8cu);
  assert_true(gd_hash_string("foobar") == 0x85944171f73967e8u);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_philox),
      cmocka_unit_test(test_dropout),
      cmocka_unit_test(test_draws),
      cmocka_unit_test(test_hash),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
