/*
 * Generated kernels on the GPU against the reference kernels of the ops they consist of: the cases
 * of codegen/cases_emit.h at shapes that every way of sharing rows out to threads occurs in,
 * in place wherever the fusion permits it, and with tensors that are aligned to their elements
 * alone. Each variant must give the same bits.
 *
 * Argument K/N: part K of N, a share of the shapes. GD_TEST_BRIEF=N: every Nth case, no large one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/runtime/fused.h"
#include "codegen/cases_emit.h"
#include "support/cuda_ops.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))
enum { GUARD = 128 };

static const struct emit_shape gpu_shapes[] = {
    {GD_DTYPE_F32, {1, 1, 1}},      {GD_DTYPE_F32, {2, 3, 17}},      {GD_DTYPE_F32, {1, 67, 64}},
    {GD_DTYPE_BF16, {3, 41, 64}},   {GD_DTYPE_F16, {2, 5, 33}},      {GD_DTYPE_BF16, {5, 30, 6}},
    {GD_DTYPE_F16, {2, 20, 12}},    {GD_DTYPE_BF16, {3, 500, 520}},  {GD_DTYPE_BF16, {3, 700, 768}},
    {GD_DTYPE_F16, {2, 300, 2048}}, {GD_DTYPE_F32, {1, 30, 3072}},   {GD_DTYPE_BF16, {2, 20, 5000}},
    {GD_DTYPE_F32, {1, 20, 1001}},  {GD_DTYPE_BF16, {1, 20, 12288}},
};

/* Memory with guards whose data begins `shift` bytes past a cache line. */
struct guarded {
  char *block, *data;
  int64_t bytes;
};

static struct guarded make_guarded(int64_t bytes, int64_t shift) {
  struct guarded g = {.bytes = bytes};
  size_t size = (size_t)(bytes + 2 * GUARD + 64 + shift);
  g.block = gd_mem_alloc(size, 1);
  assert_non_null(g.block);
  memset(g.block, 0xA5, size);
  g.data = g.block + GUARD;
  g.data += (64 - (uintptr_t)g.data % 64) % 64 + (uintptr_t)shift;
  return g;
}

static bool intact(const struct guarded *g) {
  for (int64_t i = 1; i <= GUARD; i++)
    if ((unsigned char)g->data[-i] != 0xA5 || (unsigned char)g->data[g->bytes + i - 1] != 0xA5)
      return false;
  return true;
}

static struct gd_view view_of(const struct gd_graph *graph, gd_tensor_id id, char *data) {
  const struct gd_tensor *t = &graph->tensors[id];
  return (struct gd_view){.data = data,
                          .dtype = t->dtype,
                          .rank = t->rank,
                          .dims = t->dims,
                          .elements = gd_tensor_elements(graph, id)};
}

/* One run; in_place: input whose memory output 0 takes, or -1. Outputs into outs. */
static int run_on_gpu(const struct emit_problem *p, const struct gd_cuda_fused *fused, int in_place,
                      bool shifted, struct guarded *outs) {
  struct guarded ins[EMIT_LEAVES];
  struct gd_view in[EMIT_LEAVES], out[GD_MAX_OUTPUTS];
  const struct gd_graph *graph = p->ref.graph;
  int wrong = 0;
  for (uint32_t i = 0; i < p->outputs.n; i++) {
    gd_tensor_id id = p->outputs.id[i];
    outs[i] = make_guarded(gd_tensor_bytes(graph, id),
                           shifted ? gd_dtype_bytes(graph->tensors[id].dtype) : 0);
    out[i] = view_of(graph, id, outs[i].data);
  }
  for (gd_tensor_id i = 0; i < p->n_in; i++) {
    ins[i] = make_guarded(gd_tensor_bytes(graph, i),
                          shifted ? gd_dtype_bytes(graph->tensors[i].dtype) : 0);
    char *data = (int)i == in_place ? outs[0].data : ins[i].data;
    memcpy(data, op_program_data(&p->ref, i), (size_t)ins[i].bytes);
    in[i] = view_of(graph, i, data);
  }
  struct gd_kernel_args args = {
      .device_fused = fused, .n_in = p->n_in, .n_out = p->outputs.n, .in = in, .out = out};
  cuda_ops_fused(&args);
  for (uint32_t i = 0; i < p->n_in; i++) {
    wrong |= !intact(&ins[i]);
    gd_mem_free(ins[i].block);
  }
  for (uint32_t i = 0; i < p->outputs.n; i++)
    wrong |= !intact(&outs[i]);
  if (wrong)
    print_error("%s writes outside an output\n", p->c->name);
  return wrong;
}

static int check_on_gpu(const struct emit_problem *p, const struct gd_fusion *fusion,
                        const struct gd_cuda_fused *fused) {
  struct guarded first[GD_MAX_OUTPUTS], outs[GD_MAX_OUTPUTS];
  int wrong = run_on_gpu(p, fused, -1, false, first);
  for (uint32_t i = 0; i < p->outputs.n && !cuda_ops.collects; i++)
    wrong |= emit_compare(p, i, first[i].data, "the GPU");
  for (int variant = -2; variant < (int)p->n_in && !wrong; variant++) {
    if (variant >= 0 && !(fusion->inplace >> variant & 1))
      continue;
    wrong |= run_on_gpu(p, fused, variant < 0 ? -1 : variant, variant == -1, outs);
    for (uint32_t i = 0; i < p->outputs.n; i++) {
      if (!cuda_ops.collects && !wrong &&
          memcmp(outs[i].data, first[i].data, (size_t)outs[i].bytes) != 0) {
        print_error("%s, %s[%lld]: %s gives other bits in output %u\n", p->c->name,
                    gd_dtype_name(p->ref.graph->tensors[0].dtype), (long long)fusion->columns,
                    variant == -2   ? "a second run"
                    : variant == -1 ? "less alignment"
                                    : "in place",
                    i);
        wrong = 1;
      }
      gd_mem_free(outs[i].block);
    }
  }
  for (uint32_t i = 0; i < p->outputs.n; i++)
    gd_mem_free(first[i].block);
  return wrong;
}

/* The argument of the program: this part of so many. */
static int part = 1, n_parts = 1;

static int choose_shapes(bool brief, struct emit_shape *list) {
  enum { MOST_ELEMENTS = 1 << 18 }; /* as op_harness.c has it */
  int n = 0;
  for (int i = part - 1; i < COUNT(gpu_shapes); i += n_parts) {
    const int64_t *dims = gpu_shapes[i].dims;
    if (!brief || dims[0] * dims[1] * dims[2] <= MOST_ELEMENTS)
      list[n++] = gpu_shapes[i];
  }
  return n;
}

static void test_fused(void **state) {
  static struct emit_problem problems[EMIT_CASES * COUNT(gpu_shapes)];
  struct emit_shape list[COUNT(gpu_shapes)];
  struct gd_cuda_fusions *fusions = NULL;
  struct gd_graph graph;
  struct gd_error err = {0};
  const char *brief = getenv("GD_TEST_BRIEF");
  int every = brief && atoi(brief) > 0 ? atoi(brief) : 1, wrong = 0;
  (void)state;
  int n = emit_make_problems(list, choose_shapes(brief != NULL, list), &graph, problems);
  if (gd_cuda_fusions_build(NULL, &graph, &fusions, &err) != GD_OK)
    fail_msg("%s", err.text);
  /* Modules are noted, built side by side, then used; GD_TEST_BUILD (sanitize.sh): not used. */
  for (int round = 0; round < (getenv("GD_TEST_BUILD") ? 1 : 2); round++) {
    cuda_ops.collects = round == 0;
    for (int i = 0; i < n; i += every)
      wrong += check_on_gpu(&problems[i], &graph.fusions[i], gd_cuda_fusion(fusions, (uint32_t)i));
    if (round == 0 && !cuda_ops_build(&err))
      fail_msg("%s", err.text);
  }
  print_message("%d cases, %d modules\n", (n + every - 1) / every, cuda_ops_compiled());
  for (int i = 0; i < n; i++)
    op_program_deinit(&problems[i].ref);
  gd_cuda_fusions_free(fusions);
  gd_graph_deinit(&graph);
  assert_int_equal(wrong, 0);
}

int main(int argc, char **argv) {
  struct gd_error why = {0};
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_fused)};
  if (argc > 1 && (sscanf(argv[1], "%d/%d", &part, &n_parts) != 2 || part < 1 || part > n_parts ||
                   n_parts > COUNT(gpu_shapes))) {
    printf("\"%s\" is no part; 1/2 is the first of two\n", argv[1]);
    return 1;
  }
  if (!cuda_ops_open(&why)) {
    printf("skipped: %s\n", why.text);
    return 77;
  }
  int result = cmocka_run_group_tests(tests, NULL, NULL);
  cuda_ops_close();
  return result;
}
