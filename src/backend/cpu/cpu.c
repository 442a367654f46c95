/*
 * The cpu backend: its table of kernels, the scratch they need, and the adapter of its GEMM.
 * The other kernels are in cpu_<family>.c; the GEMM itself is gemm.c. Driven by backend/host.c.
 */
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/gemm.h"
#include "base/sizes.h"
#include "codegen/lower.h"

/* A row of ops.def that names a kernel nobody wrote does not link. */
const gd_kernel gd_cpu_kernels[GD_OP_COUNT] = {
#define KERNEL_none(name)       NULL
#define KERNEL_own(name)        gd_cpu_##name
#define KERNEL_own_or_ref(name) gd_cpu_##name
#define KERNEL_host(name)       gd_host_##name
#define GD_OP(name, min, max, attr, doc, shape, grad, cost, flops, lower, ref, cpu, ...) \
  [GD_OP_##name] = KERNEL_##cpu(name),
#include "ir/ops.def"
#undef GD_OP
};

void gd_cpu_leave_to_ref(enum gd_op_kind kind, const struct gd_kernel_args *args) {
  GD_ASSERT(gd_op_info(kind)->cpu_may_use_ref);
  if (args->left_to_ref)
    *args->left_to_ref = true;
  gd_ref_kernels[kind](args);
}

int64_t gd_cpu_workspace_bytes(int threads, int64_t widest) {
  int64_t partials_bytes = GD_CPU_PARTIALS * (int64_t)sizeof(float);
  int64_t losses_bytes = GD_CPU_LOSS_CHUNKS * (int64_t)sizeof(double);
  int64_t buffers_bytes = threads * gd_cpu_buffer_floats(widest) * (int64_t)sizeof(float);
  int64_t scan_bytes = threads * (int64_t)sizeof(struct gd_cpu_scan_scratch) +
                       3 * GD_CPU_SCAN_CARRIED * (int64_t)sizeof(float);
  int64_t fused_bytes = partials_bytes + threads * GD_LOWER_BUFFER_FLOATS * (int64_t)sizeof(float);
  return gd_most(gd_most(gd_most(gd_gemm_workspace_bytes(threads), buffers_bytes), scan_bytes),
                 gd_most(fused_bytes, losses_bytes));
}

/* The rules are those of shape_matmul in ir/shape.c. Bound: see gemm.h. */
void gd_cpu_matmul(const struct gd_kernel_args *args) {
  const struct gd_attr_matmul *attr = &args->attr->matmul;
  const struct gd_view *a = &args->in[0], *b = &args->in[1], *c = &args->out[0];
  int64_t a_rows = a->dims[a->rank - 2], a_columns = a->dims[a->rank - 1];
  int64_t b_rows = b->dims[b->rank - 2], b_columns = b->dims[b->rank - 1];
  int64_t batch = 1;
  for (uint32_t i = 0; i + 2 < a->rank; i++)
    batch *= a->dims[i];
  struct gd_gemm gemm = {
      .m = attr->trans_a ? a_columns : a_rows,
      .n = attr->trans_b ? b_rows : b_columns,
      .k = attr->trans_a ? a_rows : a_columns,
      .batch = batch,
      .trans_a = attr->trans_a,
      .trans_b = attr->trans_b,
      .lda = a_columns,
      .ldb = b_columns,
      .ldc = c->dims[c->rank - 1],
      .stride_a = a_rows * a_columns,
      .stride_b = b_rows * b_columns,
      .dtype_a = a->dtype,
      .dtype_b = b->dtype,
      .dtype_c = c->dtype,
      .alpha = attr->alpha,
      .accumulate = gd_kernel_adds(args, 0),
  };
  if (b->rank == 2 && !attr->trans_a) { /* the leading dims of a are so many more rows */
    gemm.m *= batch;
    gemm.batch = 1;
  }
  gemm.stride_c = gemm.m * gemm.n;
  gd_gemm_run(&gemm, a->data, b->data, gd_cpu_optional(args, 2), c->data, args->workspace,
              args->threads);
}
