/*
 * The cpu backend: its table of kernels, the scratch they need, and the matrix product's adapter.
 * The other kernels are in cpu_<family>.c; the product itself is gemm.c. Driven by backend/host.c.
 */
#include "backend/cpu/cpu_int.h"
#include "backend/cpu/gemm.h"
#include "codegen/lower.h"

/* A row of ops.def without its kernel in cpu_int.h does not compile. */
const gd_kernel gd_cpu_kernels[GD_OP_COUNT] = {
#define KERNEL_VIEW(name)  NULL
#define KERNEL_PURE(name)  gd_cpu_##name
#define KERNEL_STATE(name) gd_cpu_##name
#define GD_OP(name, min, max, attr, shape, grad, flops, kind, ...) \
  [GD_OP_##name] = KERNEL_##kind(name),
#include "ir/ops.def"
#undef GD_OP
};

static int64_t larger(int64_t a, int64_t b) {
  return a > b ? a : b;
}

int64_t gd_cpu_workspace_bytes(int threads, int64_t widest) {
  int64_t partials_bytes = GD_CPU_PARTIALS * (int64_t)sizeof(float);
  int64_t losses_bytes = GD_CPU_LOSS_CHUNKS * (int64_t)sizeof(double);
  int64_t buffers_bytes = threads * gd_cpu_buffer_floats(widest) * (int64_t)sizeof(float);
  int64_t scan_bytes = threads * (int64_t)sizeof(struct gd_cpu_scan_scratch) +
                       3 * GD_CPU_SCAN_CARRIED * (int64_t)sizeof(float);
  int64_t fused_bytes = partials_bytes + threads * GD_LOWER_BUFFER_FLOATS * (int64_t)sizeof(float);
  return larger(larger(larger(gd_gemm_workspace_bytes(threads), buffers_bytes), scan_bytes),
                larger(fused_bytes, losses_bytes));
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
