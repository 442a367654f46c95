/*
 * Generated kernels of the cpu backend against the reference kernels of the ops they consist of:
 * the cases of cases_emit.h over odd shapes and all dtypes, on 1 to 3 threads, and in place
 * wherever the fusion permits it.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "backend/cpu/cpu_int.h"
#include "codegen/cases_emit.h"
#include "codegen/codegen.h"
#include "support/scratch.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

static const struct emit_shape shapes[] = {
    {GD_DTYPE_F32, {1, 1, 1}},     {GD_DTYPE_F32, {2, 3, 17}},   {GD_DTYPE_F32, {1, 67, 64}},
    {GD_DTYPE_BF16, {2, 3, 17}},   {GD_DTYPE_BF16, {3, 41, 64}}, {GD_DTYPE_F16, {2, 5, 33}},
    {GD_DTYPE_BF16, {5, 300, 17}}, /* the kernels of another shape, more rows than chunks */
};

enum { GUARD = 64, THREADS = 3 };

/* Memory of the outputs, guarded on both sides. */
struct memory {
  char *data[GD_MAX_OUTPUTS];
  int64_t bytes[GD_MAX_OUTPUTS];
};

static struct memory make_memory(const struct emit_problem *p) {
  struct memory m;
  for (uint32_t i = 0; i < p->outputs.n; i++) {
    m.bytes[i] = gd_tensor_bytes(p->ref.graph, p->outputs.id[i]);
    m.data[i] = gd_mem_alloc((size_t)m.bytes[i] + 2 * GUARD, 1);
    assert_non_null(m.data[i]);
    memset(m.data[i], 0xA5, (size_t)m.bytes[i] + 2 * GUARD);
  }
  return m;
}

static int free_memory(const struct emit_problem *p, struct memory *m) {
  int wrong = 0;
  for (uint32_t i = 0; i < p->outputs.n; i++) {
    for (int g = 0; g < GUARD; g++)
      wrong |= (unsigned char)m->data[i][g] != 0xA5 ||
               (unsigned char)m->data[i][GUARD + m->bytes[i] + g] != 0xA5;
    gd_mem_free(m->data[i]);
  }
  if (wrong)
    print_error("%s writes outside an output\n", p->c->name);
  return wrong;
}

/* Runs the kernel; in_place: input whose memory output 0 takes, or -1. Results into m. */
static void run(const struct emit_problem *p, const struct gd_fused_kernel *kernel, int threads,
                int in_place, struct memory *m, void *workspace, int64_t workspace_bytes) {
  struct gd_view in[64], outs[GD_MAX_OUTPUTS];
  for (uint32_t i = 0; i < p->n_in; i++)
    in[i] = (struct gd_view){.data = op_program_data(&p->ref, i)};
  for (uint32_t i = 0; i < p->outputs.n; i++)
    outs[i] = (struct gd_view){.data = m->data[i] + GUARD};
  if (in_place >= 0) {
    memcpy(outs[0].data, in[in_place].data, (size_t)m->bytes[0]);
    in[in_place].data = outs[0].data;
  }
  memset(workspace, 0xC3, (size_t)workspace_bytes);
  struct gd_kernel_args args = {.fused = kernel,
                                .n_in = p->n_in,
                                .n_out = p->outputs.n,
                                .in = in,
                                .out = outs,
                                .workspace = workspace,
                                .workspace_bytes = workspace_bytes,
                                .threads = threads};
  gd_cpu_fused(&args);
}

static int check(const struct emit_problem *p, const struct gd_fusion *fusion,
                 const struct gd_fused_kernel *kernel) {
  int64_t bytes = gd_cpu_workspace_bytes(THREADS, 0);
  void *workspace = gd_mem_alloc((size_t)bytes, 1);
  int wrong = 0;
  assert_non_null(workspace);
  struct memory first = make_memory(p);
  run(p, kernel, 1, -1, &first, workspace, bytes);
  for (uint32_t i = 0; i < p->outputs.n; i++)
    wrong |= emit_compare(p, i, first.data[i] + GUARD, "1 thread");
  for (int variant = 2; variant <= THREADS + (int)p->n_in && !wrong; variant++) {
    int in_place = variant > THREADS ? variant - THREADS - 1 : -1;
    if (in_place >= 0 && !(fusion->inplace >> in_place & 1))
      continue;
    struct memory m = make_memory(p);
    run(p, kernel, variant > THREADS ? 2 : variant, in_place, &m, workspace, bytes);
    for (uint32_t i = 0; i < p->outputs.n && !wrong; i++)
      if (memcmp(m.data[i] + GUARD, first.data[i] + GUARD, (size_t)m.bytes[i]) != 0) {
        print_error("%s: variant %d (in place of %d) gives other bits in output %u\n", p->c->name,
                    variant, in_place, i);
        wrong = 1;
      }
    wrong |= free_memory(p, &m);
  }
  wrong |= free_memory(p, &first);
  gd_mem_free(workspace);
  return wrong;
}

static void check_all(const int *which, int n_shapes) {
  enum { MOST = EMIT_CASES * COUNT(shapes) };
  static struct emit_problem problems[MOST];
  struct emit_shape list[COUNT(shapes)];
  struct gd_graph graph;
  struct gd_codegen *code = NULL;
  struct gd_error err = {0};
  int wrong = 0, in_place = 0;
  for (int i = 0; i < n_shapes; i++)
    list[i] = shapes[which[i]];
  int n = emit_make_problems(list, n_shapes, &graph, problems);
  if (gd_codegen_build(&graph, &code, &err) != GD_OK)
    fail_msg("%s", err.text);
  for (int i = 0; i < n; i++) {
    in_place += graph.fusions[i].inplace != 0;
    wrong += check(&problems[i], &graph.fusions[i], gd_codegen_kernel(code, (uint32_t)i));
    op_program_deinit(&problems[i].ref);
  }
  gd_codegen_free(code);
  gd_graph_deinit(&graph);
  assert_int_equal(wrong, 0);
  assert_true(in_place > n / 2); /* the variants in place are not empty */
  assert_int_equal(gd_mem_live_blocks(), 0);
}

static void test_kernels(void **state) {
  const int all[] = {0, 1, 2, 3, 4, 5, 6};
  _Static_assert(COUNT(all) == COUNT(shapes), "a shape is left out");
  (void)state;
  setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
  check_all(all, COUNT(all));
}

/* The prelude has other code for each width of vectors: a compiler that is told of fewer. */
static void test_instruction_sets(void **state) {
#if defined(__x86_64__)
  static const char *const levels[] = {"x86-64", "x86-64-v3"};
  const int few[] = {1, 4, 5}; /* one of each dtype */
  (void)state;
  setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
  for (int i = 0; i < COUNT(levels); i++) {
    char script[128], name[32];
    if (i > 0 && !__builtin_cpu_supports("avx2"))
      break;
    snprintf(script, sizeof script, "#!/bin/sh\nexec cc \"$@\" -march=%s\n", levels[i]);
    snprintf(name, sizeof name, "cc-%s", levels[i]);
    scratch_write_text(name, script);
    assert_int_equal(chmod(scratch_path(name), 0700), 0);
    setenv("CC", scratch_path(name), 1);
    check_all(few, COUNT(few));
    unsetenv("CC");
  }
#else
  (void)state;
  skip();
#endif
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_kernels, scratch_setup, scratch_teardown),
      cmocka_unit_test_setup_teardown(test_instruction_sets, scratch_setup, scratch_teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
