/*
 * Every CUDA kernel that the op tests would run compiles under NVRTC for every architecture of the
 * paper's GPUs: no GPU is needed, so kernels cannot rot on machines without one.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/runtime/cuda_int.h"
#include "gpu/cuda_cases.h"
#include "support/sample.h"

/*
 * There are hundreds of modules and some take NVRTC seconds: each architecture compiles one of each
 * kernel file, and its own share of the others, which differ in dtypes and tilings. One run takes
 * one of the architectures (support/sample.h); with GD_TEST_ALL, all three and larger shares.
 * GD_TEST_MODULES=all: all modules for each.
 */
enum { SHARES = 54, SHARES_OF_ALL = 9 };

static void compile_for(int sm, int share) {
  struct gd_error why = {0};
  if (!sample_has((uint64_t)share / 3, 3))
    skip();
  if (!cuda_ops_pretend(sm, &why))
    fail_msg("%s", why.text);
  op_cases = (struct op_cases){.backend = &cuda_ops, .parts = 1};
#define GD_OP(name, ...) cases_##name();
#include "ir/ops.def"
#undef GD_OP
  cases_attention_tiles();
  cases_attention_short();
  cases_scan_limits();
  if (!getenv("GD_TEST_MODULES"))
    cuda_ops_keep(getenv("GD_TEST_ALL") ? SHARES_OF_ALL : SHARES, share);
  if (!cuda_ops_build(&why))
    fail_msg("%s", why.text);
  print_message("sm_%d: %d modules\n", sm, cuda_ops_compiled());
  assert_true(cuda_ops_compiled() > 22); /* there are as many files */
  cuda_ops_close();
}

static void test_sm80(void **state) {
  (void)state;
  compile_for(80, 0);
}

static void test_sm86(void **state) {
  (void)state;
  compile_for(86, 3);
}

static void test_sm90(void **state) {
  (void)state;
  compile_for(90, 6);
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
