/*
 * A matrix product as cuBLASLt takes it, and how the ops of a graph become one. product.c is the
 * mapping, which needs no GPU; op_matmul.c runs it.
 *
 * The library is column-major, our tensors are row-major: a row-major matrix read column by column
 * is its transpose, so y = op(a) op(b) is computed as y' = op(b)' op(a)', without a copy. A is
 * then b, B is a, and a bias over the columns of y is one over the rows of D.
 *
 *   struct gd_cuda_product product;
 *   gd_cuda_product_of(args, &product);
 *   GD_TRY(gd_cuda_product_run(call, &product));
 */
#ifndef GD_BACKEND_CUDA_PRODUCT_H
#define GD_BACKEND_CUDA_PRODUCT_H

#include "backend/cpu/gemm.h"
#include "backend/cuda/cuda_int.h"

/* How the bias, always fp32, comes in. */
enum gd_cuda_bias {
  GD_CUDA_BIAS_NONE,
  GD_CUDA_BIAS_EPILOGUE, /* as it is, by the library */
  /* The library wants it in the dtype of a half output: rounded first, which moves a result by at
     most half a last bit of the bias. A pass over the output would cost more than it gains. */
  GD_CUDA_BIAS_ROUNDED,
  /* In fp32, by us, to a staged product: with m no multiple of 8 the library rounds a half product
     before it adds a bias to it, and the result has two roundings. */
  GD_CUDA_BIAS_FINISH,
};

/* What the library does to a product of 16 bits before it stores it; gelu is the one by tanh. */
enum gd_cuda_epilogue {
  GD_CUDA_EPILOGUE_NONE,
  GD_CUDA_EPILOGUE_GELU,  /* D is gelu of it; it goes to aux, unless that is NULL */
  GD_CUDA_EPILOGUE_DGELU, /* D is it times the slope of gelu at aux */
};

/* D[m,n] = alpha op(A)[m,k] op(B)[k,n] + bias[m] (+ D), column-major, `batch` times. */
struct gd_cuda_product {
  int64_t m, n, k, batch;
  bool trans_a, trans_b;                /* A is stored k x m, B is stored n x k */
  int64_t lda, ldb, ldd;                /* elements between columns as stored */
  int64_t stride_a, stride_b, stride_d; /* elements between batch items; 0: shared */
  enum gd_dtype dtype;                  /* of A and B */
  enum gd_dtype dtype_d;
  float alpha;
  bool adds; /* D is added to; fp32 */
  bool tf32; /* fp32 inputs may be rounded to TF32 */
  enum gd_cuda_bias bias_way;
  /* The library has no such pair of dtypes, or would round twice: through fp32 in the workspace, a
     piece at a time. */
  bool staged;
  enum gd_cuda_epilogue epilogue;
  const void *a, *b;
  const float *bias;
  void *d;
  void *aux; /* of an epilogue: dtype and ld are those of D */
};

/* Of a row-major product. bias may be NULL. */
void gd_cuda_product_rows(const struct gd_gemm *rows, const void *a, const void *b,
                          const float *bias, void *c, struct gd_cuda_product *product);
/* Of a matmul op. */
void gd_cuda_product_of(const struct gd_kernel_args *args, struct gd_cuda_product *product);

/*
 * Pieces of a staged product: whole batch items, or columns of one. Piece `at` (0, 1, ...) as a
 * product into `stage`, fp32 [batch][n][m] without gaps, and where in d its result belongs, in
 * elements. False when there is no such piece, or when `stage_elements` cannot hold a column.
 */
bool gd_cuda_product_piece(const struct gd_cuda_product *whole, int64_t at, float *stage,
                           int64_t stage_elements, struct gd_cuda_product *piece, int64_t *d_at);

/* to[c][r] = from[r][c], row by row; distances between rows in elements of 4 bytes. */
struct gd_cuda_turn {
  const float *from;
  float *to;
  int64_t rows, columns, from_pitch, to_pitch;
};

/*
 * Products of fp32 as Hopper's tensor cores like them in TF32: both operands with k contiguous,
 * copied into `room` (at a multiple of 256) where they are not. Returns how many copies come first;
 * 0: there is nothing to turn, or no room for it.
 */
int gd_cuda_product_turned(const struct gd_cuda_product *product, void *room, int64_t room_bytes,
                           struct gd_cuda_product *turned, struct gd_cuda_turn turns[2]);

/* At every stage of a call. The library has the workspace to itself where no bias is rounded and
   nothing is staged; else its first half. */
enum gd_status gd_cuda_product_run(const struct gd_cuda_call *call,
                                   const struct gd_cuda_product *product) GD_MUST_USE;

/* One with an epilogue, which has no other way; *done is false where the library has none. */
enum gd_status gd_cuda_product_activated(const struct gd_cuda_call *call,
                                         const struct gd_cuda_product *product,
                                         bool *done) GD_MUST_USE;
/* Microseconds of a product, by what was timed in TUNE, here or in a process before; infinite where
   it was not. */
enum gd_status gd_cuda_product_us(const struct gd_cuda_call *call,
                                  const struct gd_cuda_product *product, double *us) GD_MUST_USE;
/* The choices that products made, for times of what may take the place of a part of them. */
struct gd_cuda_choices; /* choices.h */
enum gd_status gd_cuda_products_choices(const struct gd_cuda_call *call,
                                        struct gd_cuda_choices **choices) GD_MUST_USE;
/* The first character of a variable for people who tune, '\0' where it is not set: mostly '0'
   never, '1' always, else by time. */
char gd_cuda_said(const char *variable);

/* Products that share B (gd_cuda_halves_share), in this order, piece by piece; in TUNE they are
   timed so. Whether that is faster than one after the other, by the times of all. */
enum gd_status gd_cuda_products_wanted(const struct gd_cuda_call *call,
                                       const struct gd_cuda_product *products, int n,
                                       bool *wanted) GD_MUST_USE;
enum gd_status gd_cuda_products_run(const struct gd_cuda_call *call,
                                    const struct gd_cuda_product *products, int n) GD_MUST_USE;

#endif
