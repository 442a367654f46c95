/*
 * Every op on the GPU against ref: the cases of tests/op/test_ops.c, run twice. The first time
 * kernels are only noted, so that they are built side by side; the second time counts.
 */
#define _GNU_SOURCE
#define GD_TEST_NO_MAIN
#define GD_TEST_BACKEND cuda_ops
#include "support/cuda_ops.h"

#include "op/test_ops.c"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The argument of the program: ops whose names hold it; NULL: all. */
static const char *wanted;

/* Products with turned operands wherever there is room: op_matmul.c. */
static void test_turned_matmul(void **state) {
  (void)state;
  setenv("GPUDAYS_TURNED", "1", 1);
  run(cases_matmul);
  unsetenv("GPUDAYS_TURNED");
}

/* The gradient of attention by one kernel wherever it can be, with each of its tiles; then by two
   kernels: op_attention.c. */
static void cases_attention_tiles(void) {
  static const char *const tiles[] = {"w0", "w1", "w2", "w3", "w4", "0"};
  for (size_t i = 0; i < sizeof tiles / sizeof *tiles; i++) {
    setenv("GPUDAYS_ATTENTION_TILE", tiles[i], 1);
    cases_attention_grad();
  }
  unsetenv("GPUDAYS_ATTENTION_TILE");
}
static void test_attention_tiles(void **state) {
  (void)state;
  run(cases_attention_tiles);
}

static void note(const char *name, void (*cases)(void)) {
  if (!wanted || strstr(name, wanted))
    cases();
}

int main(int argc, char **argv) {
  struct gd_error why = {0};
  const struct CMUnitTest tests[] = {
#define GD_OP(name, ...) cmocka_unit_test(test_##name),
#include "ir/ops.def"
#undef GD_OP
      cmocka_unit_test(test_turned_matmul),
      cmocka_unit_test(test_attention_tiles),
  };
  if (!cuda_ops_open(&why)) {
    printf("skipped: %s\n", why.text);
    return 77;
  }
  char pattern[64] = "*";
  if (argc > 1) {
    wanted = argv[1];
    snprintf(pattern, sizeof pattern, "test_*%s*", wanted);
    cmocka_set_test_filter(pattern);
  }
  cuda_ops.collects = true;
#define GD_OP(name, ...) note(#name, cases_##name);
#include "ir/ops.def"
#undef GD_OP
  note("attention_tiles", cases_attention_tiles);
  cuda_ops.collects = false;
  if (!cuda_ops_build(&why)) /* those that need it fail by themselves */
    printf("%s\n", why.text);
  int result = cmocka_run_group_tests(tests, NULL, NULL);
  cuda_ops_close();
  return result;
}
