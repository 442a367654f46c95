/*
 * A GEMM as cuBLASLt takes it, and how the ops of a graph become one. cuda_gemm.c is the mapping,
 * which needs no GPU; op_matmul.c runs it.
 *
 * The library is column-major, our tensors are row-major: a row-major matrix read column by column
 * is its transpose, so y = op(a) op(b) is computed as y' = op(b)' op(a)', without a copy. A is
 * then b, B is a, and a bias over the columns of y is one over the rows of D.
 *
 *   struct gd_cuda_gemm gemm;
 *   gd_cuda_gemm_of(args, &gemm);
 *   GD_TRY(gd_cuda_gemm_run(call, &gemm));
 */
#ifndef GD_BACKEND_CUDA_GEMM_CUDA_GEMM_H
#define GD_BACKEND_CUDA_GEMM_CUDA_GEMM_H

#include "backend/cpu/gemm.h"
#include "backend/cuda/runtime/cuda_int.h"

/* How the bias, always fp32, comes in. */
enum gd_cuda_bias {
  GD_CUDA_BIAS_NONE,
  GD_CUDA_BIAS_EPILOGUE, /* as it is, by the library */
  /* The library wants it in the dtype of a 16-bit output: rounded first, which moves a result by at
     most half a unit in the last place of the bias. Adding it in fp32 would cost another read and
     write of the output, more than it gains. */
  GD_CUDA_BIAS_ROUNDED,
  /* In fp32, by our own kernel, to a staged GEMM: where m is no multiple of 8 the library rounds to
     16 bits before it adds the bias, and the result would be rounded twice. */
  GD_CUDA_BIAS_FINISH,
};

/* What the library does to a 16-bit result before it stores it; GELU is the tanh approximation. */
enum gd_cuda_epilogue {
  GD_CUDA_EPILOGUE_NONE,
  GD_CUDA_EPILOGUE_GELU,  /* D = gelu(result); the result itself goes to aux, unless that is NULL */
  GD_CUDA_EPILOGUE_DGELU, /* D = result times the derivative of gelu at aux */
};

/* D[m,n] = alpha op(A)[m,k] op(B)[k,n] + bias[m] (+ D), column-major, `batch` times. */
struct gd_cuda_gemm {
  int64_t m, n, k, batch;
  bool trans_a, trans_b;                /* A is stored k x m, B is stored n x k */
  int64_t lda, ldb, ldd;                /* elements between columns as stored */
  int64_t stride_a, stride_b, stride_d; /* elements between batch items; 0: shared */
  enum gd_dtype dtype;                  /* of A and B */
  enum gd_dtype dtype_d;
  float alpha;
  bool adds; /* D is added to; fp32 */
  bool tf32; /* fp32 inputs may be rounded to TF32 */
  enum gd_cuda_bias bias_mode;
  /* The library has no such pair of dtypes, or would round twice: computed in fp32 in the
     workspace, a piece at a time, and converted by our own kernel. */
  bool staged;
  enum gd_cuda_epilogue epilogue;
  const void *a, *b;
  const float *bias;
  void *d;
  void *aux; /* of an epilogue: dtype and ld are those of D */
};

/* Of a row-major GEMM. bias may be NULL. */
void gd_cuda_gemm_rows(const struct gd_gemm *rows, const void *a, const void *b, const float *bias,
                       void *c, struct gd_cuda_gemm *gemm);
/* Of a matmul op. */
void gd_cuda_gemm_of(const struct gd_kernel_args *args, struct gd_cuda_gemm *gemm);

/*
 * Pieces of a staged GEMM: whole batch items, or columns of one. Piece `at` (0, 1, ...) as a GEMM
 * into `stage`, fp32 [batch][n][m] without gaps, and where in d its result belongs, in
 * elements. False when there is no such piece, or when `stage_elements` cannot hold a column.
 */
bool gd_cuda_gemm_piece(const struct gd_cuda_gemm *whole, int64_t at, float *stage,
                        int64_t stage_elements, struct gd_cuda_gemm *piece, int64_t *d_at);

/* to[c][r] = from[r][c], row-major; pitches (elements from row to row) count 4 bytes. */
struct gd_cuda_transpose {
  const float *from;
  float *to;
  int64_t rows, columns, from_pitch, to_pitch;
};

/*
 * A GEMM in fp32 with both operands K-major, which Hopper's tensor cores want in TF32: operands
 * that are not are transposed into `room` (at a multiple of 256). Returns how many copies come
 * first; 0: both are K-major already, or there is no room.
 */
int gd_cuda_gemm_transposed(const struct gd_cuda_gemm *gemm, void *room, int64_t room_bytes,
                            struct gd_cuda_gemm *transposed, struct gd_cuda_transpose copies[2]);

/* At every stage of a call. The library has the workspace to itself where no bias is rounded and
   nothing is staged; else its first half. */
enum gd_status gd_cuda_gemm_run(const struct gd_cuda_call *call,
                                const struct gd_cuda_gemm *gemm) GD_MUST_USE;

/* One with an epilogue, by the direct path; *done is false where the library has no algorithm. */
enum gd_status gd_cuda_gemm_epilogue(const struct gd_cuda_call *call,
                                     const struct gd_cuda_gemm *gemm, bool *done) GD_MUST_USE;
/* Microseconds of the fastest path, as timed in TUNE, here or in an earlier process; infinite where
   it was not timed. */
enum gd_status gd_cuda_gemm_us(const struct gd_cuda_call *call, const struct gd_cuda_gemm *gemm,
                               double *us) GD_MUST_USE;
/* GEMMs that share B (gd_cuda_emulated_share), in this order, as a group; in TUNE they are timed
   so. *wanted: it is faster than one after the other, or a switch demands it. */
enum gd_status gd_cuda_gemms_wanted(const struct gd_cuda_call *call,
                                    const struct gd_cuda_gemm *gemms, int n,
                                    bool *wanted) GD_MUST_USE;
enum gd_status gd_cuda_gemms_run(const struct gd_cuda_call *call, const struct gd_cuda_gemm *gemms,
                                 int n) GD_MUST_USE;

#endif
