/*
 * The choice of a token: the likeliest at temperature 0, by the probabilities of the logits above
 * it, and of the first ones alone under top-p.
 */
#include <math.h>

#include "support/ok.h"
#include "train/sample.h"

enum { COUNT = 4 };
/* Probabilities 0.1, 0.4, 0.2, 0.3. */
static const double shares[COUNT] = {0.1, 0.4, 0.2, 0.3};

static int32_t choose(double temperature, double top_p, double uniform) {
  float logits[COUNT];
  int32_t order[COUNT];
  for (int i = 0; i < COUNT; i++)
    logits[i] = (float)(log(shares[i]) + 7);
  return gd_sample_token(logits, COUNT, temperature, top_p, uniform, order);
}

static void test_likeliest(void **state) {
  (void)state;
  int32_t order[COUNT];
  assert_int_equal(choose(0, 1, 0.99), 1);
  assert_int_equal(gd_sample_token((const float[]){2, 5, 5, 1}, COUNT, 0, 1, 0.5, order), 1);
}

/* Sorted by probability they end at 0.4 (1), 0.7 (3), 0.9 (2), 1 (0). */
static void test_probabilities(void **state) {
  (void)state;
  const struct {
    double uniform;
    int32_t token;
  } cases[] = {{0, 1},    {0.39, 1}, {0.41, 3}, {0.69, 3},       {0.71, 2},
               {0.89, 2}, {0.91, 0}, {0.99, 0}, {1 - 0x1p-53, 0}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
    assert_int_equal(choose(1, 1, cases[i].uniform), cases[i].token);
}

/* Two tokens reach 0.5, and share all of it: 4/7 and 3/7. One is kept whatever top-p says. */
static void test_top_p(void **state) {
  (void)state;
  assert_int_equal(choose(1, 0.5, 0.56), 1);
  assert_int_equal(choose(1, 0.5, 0.58), 3);
  assert_int_equal(choose(1, 0.5, 0.999), 3);
  assert_int_equal(choose(1, 1e-9, 0.999), 1);
}

/* At temperature 1/2 probabilities are squared: 0.16 of 0.3 for the first. */
static void test_temperature(void **state) {
  (void)state;
  assert_int_equal(choose(0.5, 1, 0.53), 1);
  assert_int_equal(choose(0.5, 1, 0.54), 3);
  assert_int_equal(choose(1000, 1, 0.26), 3); /* nearly uniform */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_likeliest),
      cmocka_unit_test(test_probabilities),
      cmocka_unit_test(test_top_p),
      cmocka_unit_test(test_temperature),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
