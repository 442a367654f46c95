/*
 * The CPU's GEMM: C = alpha * op(A) * op(B) + bias (+ C), batched, row-major, sums in
 * fp32.
 *
 * One driver (gemm.c) blocks, packs and hands blocks of C to threads; one set of micro-kernels per
 * instruction set (gemm_kernels_*.c) does the arithmetic, chosen at run time. The result depends on
 * the shape, the dtypes and the instruction set, never on the number of threads: a block of C has
 * one owner, and k is summed in one fixed order. bf16 instructions take subnormal inputs and sums
 * for zero, as their hardware does; nothing else does.
 *
 *   struct gd_gemm g = {.m = rows, .n = out, .k = in, .batch = 1, .trans_b = true,
 *                       .lda = in, .ldb = in, .ldc = out, .dtype_a = GD_DTYPE_BF16,
 *                       .dtype_b = GD_DTYPE_BF16, .dtype_c = GD_DTYPE_BF16, .alpha = 1};
 *   gd_gemm_run(&g, x, weight, bias, y, workspace, threads);
 */
#ifndef GD_BACKEND_CPU_GEMM_H
#define GD_BACKEND_CPU_GEMM_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/isa.h"
#include "ir/dtype.h"

struct gd_gemm {
  int64_t m, n, k, batch;               /* any may be 0; k = 0 leaves bias (+ C) */
  bool trans_a;                         /* A is stored k x m instead of m x k */
  bool trans_b;                         /* B is stored n x k instead of k x n */
  int64_t lda, ldb, ldc;                /* elements between rows as stored */
  int64_t stride_a, stride_b, stride_c; /* elements between batch items; 0 for A or B: shared */
  enum gd_dtype dtype_a, dtype_b;       /* both F32, both BF16 or both F16 */
  enum gd_dtype dtype_c;                /* F32, BF16 or F16 */
  float alpha;
  bool accumulate; /* C is added to, in fp32, and rounded once */
};

/* Bytes of scratch for any GEMM on this many threads, whatever its shape and instruction set. */
int64_t gd_gemm_workspace_bytes(int threads);

/* Rows of C that the best kernels of this CPU compute at a time: any less costs as much. */
int64_t gd_gemm_tile_rows(enum gd_dtype dtype);

/*
 * Computes the GEMM with the best kernels of this CPU. a, b and c are of the dtypes in g and
 * need only their element's alignment; c overlaps neither. bias is fp32[n], added to every row, or
 * NULL. workspace is 64-byte aligned and has the size above. Allocates nothing and cannot fail.
 */
void gd_gemm_run(const struct gd_gemm *g, const void *a, const void *b, const float *bias, void *c,
                 void *workspace, int threads);

/* The same with the kernels of one level, at most gd_isa_detect(): for tests and benchmarks. */
void gd_gemm_run_isa(const struct gd_gemm *g, const void *a, const void *b, const float *bias,
                     void *c, void *workspace, int threads, enum gd_isa isa);

#endif
