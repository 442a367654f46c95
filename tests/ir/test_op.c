/*
 * The op table: what its columns say must fit together, and attributes print as attrs.def says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "ir/graph.h"

enum where { WHERE_none, WHERE_own, WHERE_own_or_ref, WHERE_host, WHERE_combine, WHERE_runtime };
static const struct {
  enum where ref, cpu, cuda;
} kernels[GD_OP_COUNT] = {
#define GD_OP(name, min, max, attr, doc, shape, grad, cost, flops, lower, ref, cpu, cuda, ...) \
  [GD_OP_##name] = {WHERE_##ref, WHERE_##cpu, WHERE_##cuda},
#include "ir/ops.def"
#undef GD_OP
};

/* Only copies, collectives and waits may do without a kernel on a GPU, and only views and fused ops
   without one of ref: everything else is compared with it. */
static void test_kernels(void **state) {
  (void)state;
  for (int i = 0; i < GD_OP_COUNT; i++) {
    enum gd_op_kind kind = (enum gd_op_kind)i;
    const struct gd_op_info *info = gd_op_info(kind);
    bool view = info->op_class == GD_CLASS_VIEW;
    print_message("%s\n", info->name);
    assert_true(view == (kernels[i].cpu == WHERE_none));
    assert_true(view == (kernels[i].cuda == WHERE_none));
    assert_true((view || kind == GD_OP_fused) == (kernels[i].ref == WHERE_none));
    assert_true((kernels[i].cuda == WHERE_runtime) == (info->async || kind == GD_OP_wait));
    assert_true(info->cpu_may_use_ref == (kernels[i].cpu == WHERE_own_or_ref));
  }
}

static void test_facts(void **state) {
  (void)state;
  for (int i = 0; i < GD_OP_COUNT; i++) {
    const struct gd_op_info *info = gd_op_info((enum gd_op_kind)i);
    bool collective = info->work == GD_WORK_COLLECTIVE, transfer = info->work == GD_WORK_TRANSFER;
    print_message("%s\n", info->name);
    assert_true(collective == (info->exchange != GD_EXCHANGE_NONE));
    assert_true(info->async == (collective || transfer));
    assert_true((info->recompute == GD_RECOMPUTE_FREE) == (info->op_class == GD_CLASS_VIEW));
    if (info->op_class == GD_CLASS_STATE)
      assert_int_equal(info->recompute, GD_RECOMPUTE_NEVER);
    if (info->flops_per_element == GD_FLOPS_GEMM)
      assert_true(info->recompute == GD_RECOMPUTE_COSTLY || info->recompute == GD_RECOMPUTE_NEVER);
    if (info->fuse == GD_FUSE_NONE)
      assert_int_equal(info->sums, 0);
    assert_int_equal(info->sums & ~((1u << 16) - 1), 0);
    assert_true(strlen(info->doc) > 0);
  }
}

static void assert_prints(const struct gd_graph *graph, const char *attributes) {
  struct gd_strbuf text = {0};
  gd_op_print(graph, graph->n_ops - 1, &text);
  if (!strstr(text.text, attributes))
    fail_msg("no \"%s\" in %s", attributes, text.text);
  gd_strbuf_deinit(&text);
}

static void test_print(void **state) {
  (void)state;
  struct gd_graph g;
  struct gd_error err = {0};
  gd_graph_init(&g);
  gd_tensor_id x = gd_graph_leaf(&g, GD_ROLE_INPUT, "x", GD_DTYPE_F32, 3, (int64_t[]){2, 4, 12});
  gd_tensor_id w = gd_graph_leaf(&g, GD_ROLE_INPUT, "w", GD_DTYPE_F32, 2, (int64_t[]){8, 12});
  gd_linear(&g, x, w, GD_NONE);
  assert_prints(&g, ") tb : ");
  gd_matmul(&g, x, w, GD_NONE,
            (struct gd_attr_matmul){.trans_b = true, .alpha = 0.5f, .out_dtype = GD_DTYPE_COUNT});
  assert_prints(&g, ") tb alpha=0.5 : ");
  gd_transpose(&g, x, (uint8_t[]){0, 2, 1});
  assert_prints(&g, ") perm=021 : ");
  gd_slice(&g, x, 1, 0, 3);
  assert_prints(&g, ") dim=1 start=0 length=3 : ");
  gd_activate(&g, x, GD_ACTIVATION_GELU_TANH);
  assert_prints(&g, ") gelu_tanh : ");
  gd_softmax(&g, x, true);
  assert_prints(&g, ") causal : ");
  gd_softmax(&g, x, false);
  assert_prints(&g, "(x) : ");
  gd_split_heads(
      &g, x, GD_NONE,
      (struct gd_attr_heads){.heads = 2, .parts = 3, .interleaved = true, .inverse = true});
  assert_prints(&g, ") heads=2 parts=3 interleaved : "); /* nothing is rotated, so nothing back */
  gd_transfer(&g, x, GD_SPACE_HOST);
  assert_prints(&g, ") host : ");
  assert_int_equal(gd_graph_check(&g, &err), GD_OK);
  gd_graph_deinit(&g);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_kernels),
      cmocka_unit_test(test_facts),
      cmocka_unit_test(test_print),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
