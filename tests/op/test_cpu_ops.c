/*
 * Every op of ops.def on the cpu backend against ref. A run takes the first cases of an op and an
 * eleventh of the others (support/sample.h); 11, as cases of one dtype or shape recur after 2, 3
 * or 5. What op_check demands of a case is in support/op_harness.h. Argument: a pattern of tests,
 * such as test_softmax*.
 */
#include "op/op_cases.h"

#define GD_OP(name, ...)                         \
  static void test_##name(void **state) {        \
    (void)state;                                 \
    op_cases_run_op(GD_OP_##name, cases_##name); \
  }
#include "ir/ops.def"
#undef GD_OP

int main(int argc, char **argv) {
  static const struct op_backend cpu = {
      .name = "cpu", .kernels = gd_cpu_kernels, .workspace_bytes = gd_cpu_workspace_bytes};
  const struct CMUnitTest tests[] = {
#define GD_OP(name, ...) cmocka_unit_test(test_##name),
#include "ir/ops.def"
#undef GD_OP
  };
  op_cases = (struct op_cases){.backend = &cpu, .parts = 11};
  if (argc > 1)
    cmocka_set_test_filter(argv[1]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
