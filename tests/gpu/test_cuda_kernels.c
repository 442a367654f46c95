/*
 * Every CUDA kernel that the op tests would run compiles under NVRTC for every architecture of the
 * paper's GPUs: no GPU is needed, so kernels cannot rot on machines without one.
 */
#define GD_TEST_NO_MAIN
#define GD_TEST_CASES_ONLY
#define GD_TEST_BACKEND cuda_ops
#include "support/cuda_ops.h"

#include "op/test_ops.c"

#include <stdio.h>

#include "backend/cuda/cuda_int.h"

static void collect(void (*cases)(void)) {
  cases();
}

static void compile_for(int sm) {
  struct gd_error why = {0};
  if (!cuda_ops_pretend(sm, &why))
    fail_msg("%s", why.text);
#define GD_OP(name, ...) collect(cases_##name);
#include "ir/ops.def"
#undef GD_OP
  if (!cuda_ops_build(&why))
    fail_msg("%s", why.text);
  print_message("sm_%d: %d modules\n", sm, cuda_ops_compiled());
  assert_true(cuda_ops_compiled() > 20);
  cuda_ops_close();
}

static void test_sm80(void **state) {
  (void)state;
  compile_for(80);
}

static void test_sm86(void **state) {
  (void)state;
  compile_for(86);
}

static void test_sm90(void **state) {
  (void)state;
  compile_for(90);
}

int main(void) {
  struct gd_error why = {0};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sm80),
      cmocka_unit_test(test_sm86),
      cmocka_unit_test(test_sm90),
  };
  const struct gd_nvrtc *nvrtc;
  if (gd_nvrtc_load(&nvrtc, &why) != GD_OK) {
    printf("skipped: %s\n", why.text);
    return 77;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
