/*
 * Running the cases of op_cases.h: which of them, and what became of them.
 */
#include "op/op_cases.h"
#include "support/sample.h"

struct op_cases op_cases;

/* Whether ops.def says that a backend has a kernel. What the CUDA runtime does by itself, copies,
   collectives and waits, is tested by tests/gpu/test_cuda_nccl.c and the runs of whole models. */
#define HAS_none       false
#define HAS_runtime    false
#define HAS_host       true
#define HAS_own        true
#define HAS_combine    true
#define HAS_own_or_ref true
static const struct {
  bool cpu, cuda;
} has_kernel[GD_OP_COUNT] = {
#define GD_OP(name, min, max, attr, doc, shape, grad, cost, flops, lower, ref, cpu, cuda, ...) \
  [GD_OP_##name] = {HAS_##cpu, HAS_##cuda},
#include "ir/ops.def"
#undef GD_OP
};

static bool must_run(enum gd_op_kind kind) {
  return op_cases.backend->on_gpu ? has_kernel[kind].cuda : has_kernel[kind].cpu;
}

void check(const struct op_case *c) {
  enum { ALWAYS = 6 };
  op_cases.checked++;
  if (op_cases.checked > ALWAYS && !sample_has((uint64_t)op_cases.checked, op_cases.parts))
    return;
  if (!must_run(c->kind))
    return;
  const char *wrong = op_check(c, op_cases.backend);
  op_cases.kernel_runs[c->kind] += op_check_ran() == OP_RAN_KERNEL;
  if (!wrong)
    return;
  if (++op_cases.failed <= 8) /* the first few tell enough */
    print_error("%s\n", wrong);
}

/* Views run nothing: their outputs must lie in the memory of the input. */
void check_view(enum gd_op_kind kind, const union gd_attr *attr, enum gd_dtype dtype, uint32_t rank,
                const int64_t *dims) {
  struct gd_graph graph;
  gd_graph_init(&graph);
  gd_tensor_id x = gd_graph_leaf(&graph, GD_ROLE_INPUT, "x", dtype, rank, dims);
  assert_int_not_equal(gd_graph_op(&graph, kind, attr, 1, &x), GD_NONE);
  const struct gd_op *op = &graph.ops[0];
  int64_t at_bytes = 0;
  for (uint32_t i = 0; i < op->n_out; i++) {
    int64_t offset_bytes = -1;
    assert_int_equal(gd_tensor_root(&graph, op->out[i], &offset_bytes), x);
    assert_int_equal(offset_bytes, at_bytes);
    at_bytes += gd_tensor_bytes(&graph, op->out[i]);
  }
  assert_int_equal(at_bytes, gd_tensor_bytes(&graph, x));
  assert_null(gd_ref_kernels[kind]);
  assert_null(op_cases.backend->kernels[kind]);
  gd_graph_deinit(&graph);
  op_cases.checked++;
}

void op_cases_run(void (*cases)(void)) {
  op_cases.checked = op_cases.failed = 0;
  cases();
  assert_int_not_equal(op_cases.checked, 0);
  if (op_cases.failed)
    fail_msg("%d of %d cases fail", op_cases.failed, op_cases.checked);
  if (!op_cases.backend->on_gpu)
    assert_int_equal(gd_mem_live_blocks(), 0);
}

void op_cases_run_op(enum gd_op_kind kind, void (*cases)(void)) {
  op_cases.kernel_runs[kind] = 0;
  op_cases_run(cases);
  if (must_run(kind) && kind != GD_OP_fused && op_cases.kernel_runs[kind] == 0)
    fail_msg("no case ran the kernel of %s itself", gd_op_info(kind)->name);
}
