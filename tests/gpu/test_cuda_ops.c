/*
 * Every op on the GPU against ref: the cases of tests/op, run twice. The first time
 * kernels are only noted, so that they are built in parallel; the second time counts.
 */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda_cases.h"

/* GEMMs with transposed operands wherever there is room: op_matmul.c. */
static void cases_transposed_matmul(void) {
  setenv("GPUDAYS_GEMM_TRANSPOSED", "1", 1);
  cases_matmul();
  unsetenv("GPUDAYS_GEMM_TRANSPOSED");
}

static void test_transposed_matmul(void **state) {
  (void)state;
  op_cases_run(cases_transposed_matmul);
}

/* Every GEMM in pieces of fp32, as where cuBLASLt has no algorithm: op_matmul.c. */
static void cases_staged_matmul(void) {
  setenv("GPUDAYS_GEMM_STAGED", "1", 1);
  cases_matmul();
  unsetenv("GPUDAYS_GEMM_STAGED");
}

static void test_staged_matmul(void **state) {
  (void)state;
  op_cases_run(cases_staged_matmul);
}

/* By the second algorithm that cuBLASLt proposes, as GPUDAYS_AUTOTUNE=2 has it. */
static void cases_second_matmul(void) {
  cuda_ops_candidate(2);
  cases_matmul();
  cuda_ops_candidate(0);
}

static void test_second_matmul(void **state) {
  (void)state;
  op_cases_run(cases_second_matmul);
}

static void test_attention_tiles(void **state) {
  (void)state;
  op_cases_run(cases_attention_tiles);
}

static void test_attention_cudnn(void **state) {
  (void)state;
  op_cases_run(cases_attention_cudnn);
}

static void test_attention_short(void **state) {
  (void)state;
  op_cases_run(cases_attention_short);
}

static void test_scan_limits(void **state) {
  (void)state;
  op_cases_run(cases_scan_limits);
}

#define GD_OP(name, ...)                         \
  static void test_##name(void **state) {        \
    (void)state;                                 \
    op_cases_run_op(GD_OP_##name, cases_##name); \
  }
#include "ir/ops.def"
#undef GD_OP

static const struct test {
  const char *name;
  void (*cases)(void);
  struct CMUnitTest unit;
} all[] = {
#define GD_OP(name, ...) {#name, cases_##name, cmocka_unit_test(test_##name)},
#include "ir/ops.def"
#undef GD_OP
    {"transposed_matmul", cases_transposed_matmul, cmocka_unit_test(test_transposed_matmul)},
    {"staged_matmul", cases_staged_matmul, cmocka_unit_test(test_staged_matmul)},
    {"second_matmul", cases_second_matmul, cmocka_unit_test(test_second_matmul)},
    {"attention_tiles", cases_attention_tiles, cmocka_unit_test(test_attention_tiles)},
    {"attention_cudnn", cases_attention_cudnn, cmocka_unit_test(test_attention_cudnn)},
    {"attention_short", cases_attention_short, cmocka_unit_test(test_attention_short)},
    {"scan_limits", cases_scan_limits, cmocka_unit_test(test_scan_limits)},
};

/* Parts that take about as long as each other, by what the names of their ops hold; `rest` is what
   no other part has. tests/gpu/parts has them run side by side. */
static const struct {
  const char *name, *ops[6];
} parts[] = {
    {"attention", {"attention"}},
    {"gemms", {"matmul", "xent"}},
    {"scan", {"scan", "decay", "outer", "recur", "contract"}},
};

static bool is_in_part(const char *name, int part) {
  for (int i = 0; i < 6 && parts[part].ops[i]; i++)
    if (strstr(name, parts[part].ops[i]))
      return true;
  return false;
}

/* wanted: a part, or what the names of ops hold; NULL: all. */
static bool is_wanted(const char *name, const char *wanted) {
  if (!wanted)
    return true;
  bool taken = false;
  for (int i = 0; i < COUNT(parts); i++) {
    if (strcmp(wanted, parts[i].name) == 0)
      return is_in_part(name, i);
    taken |= is_in_part(name, i);
  }
  return strcmp(wanted, "rest") == 0 ? !taken : strstr(name, wanted) != NULL;
}

int main(int argc, char **argv) {
  struct gd_error why = {0};
  struct CMUnitTest units[COUNT(all)];
  size_t n = 0;
  if (!cuda_ops_open(&why)) {
    printf("skipped: %s\n", why.text);
    return 77;
  }
  op_cases = (struct op_cases){.backend = &cuda_ops, .parts = 1};
  cuda_ops.collects = true;
  for (int i = 0; i < COUNT(all); i++)
    if (is_wanted(all[i].name, argc > 1 ? argv[1] : NULL)) {
      units[n++] = all[i].unit;
      all[i].cases();
    }
  cuda_ops.collects = false;
  if (n == 0) {
    printf("no op has \"%s\" in its name, and no part is called so\n", argv[1]);
    return 1;
  }
  if (!cuda_ops_build(&why)) /* those that need it fail by themselves */
    printf("%s\n", why.text);
  print_message("%d modules\n", cuda_ops_compiled());
  if (getenv("GD_TEST_BUILD")) /* they are in the cache now: sanitize.sh */
    n = 0;
  int result = n ? _cmocka_run_group_tests("ops on cuda", units, n, NULL, NULL) : 0;
  if (cuda_ops_built_alone() > 0)
    print_message("%d modules more were built one by one: op_harness.c does not note them\n",
                  cuda_ops_built_alone());
  cuda_ops_close();
  return result;
}
