/*
 * From row-major tensors to a column-major GEMM: see cuda_gemm.h. Pure functions of shapes and
 * addresses, tested without a GPU.
 */
#include "backend/cuda/gemm/cuda_gemm.h"

enum { BIAS_MULTIPLE = 8 }; /* widths to which the library adds a bias before it rounds */

/* What the library accumulates in fp32: 16 bits to the same 16 bits, anything to fp32. */
static bool takes(enum gd_dtype in, enum gd_dtype out) {
  return out == GD_DTYPE_F32 || out == in;
}

static enum gd_cuda_bias bias_mode(const struct gd_gemm *rows, bool staged) {
  if (staged || (rows->dtype_c != GD_DTYPE_F32 && rows->n % BIAS_MULTIPLE != 0))
    return GD_CUDA_BIAS_FINISH;
  return rows->dtype_c == GD_DTYPE_F32 ? GD_CUDA_BIAS_EPILOGUE : GD_CUDA_BIAS_ROUNDED;
}

/*
 * y = op(a) op(b), so y' = op(b)' op(a)'. b[k,n] row by row is b'[n,k] column by column, with the
 * same distance ldb: op(A) = b' as stored. b stored [n,k] is then A[k,n], to be transposed.
 */
void gd_cuda_gemm_rows(const struct gd_gemm *rows, const void *a, const void *b, const float *bias,
                       void *c, struct gd_cuda_gemm *gemm) {
  GD_ASSERT(rows->dtype_a == rows->dtype_b);
  GD_ASSERT(!rows->accumulate || rows->dtype_c == GD_DTYPE_F32);
  *gemm = (struct gd_cuda_gemm){
      .m = rows->n,
      .n = rows->m,
      .k = rows->k,
      .batch = rows->batch,
      .trans_a = rows->trans_b,
      .trans_b = rows->trans_a,
      .lda = rows->ldb,
      .ldb = rows->lda,
      .ldd = rows->ldc,
      .stride_a = rows->stride_b,
      .stride_b = rows->stride_a,
      .stride_d = rows->stride_c,
      .dtype = rows->dtype_a,
      .dtype_d = rows->dtype_c,
      .alpha = rows->alpha,
      .adds = rows->accumulate,
      .staged = !takes(rows->dtype_a, rows->dtype_c),
      .a = b,
      .b = a,
      .bias = bias,
      .d = c,
  };
  if (bias)
    gemm->bias_mode = bias_mode(rows, gemm->staged);
  gemm->staged = gemm->staged || gemm->bias_mode == GD_CUDA_BIAS_FINISH;
}

/* Leading dims of a are rows where b has none; else both have them. */
void gd_cuda_gemm_of(const struct gd_kernel_args *args, struct gd_cuda_gemm *gemm) {
  const struct gd_attr_matmul *attr = &args->attr->matmul;
  const struct gd_view *a = &args->in[0], *b = &args->in[1], *y = &args->out[0];
  const float *bias = args->n_in > 2 ? args->in[2].data : NULL;
  struct gd_gemm rows = {
      .m = a->dims[a->rank - (attr->trans_a ? 1 : 2)],
      .n = b->dims[b->rank - (attr->trans_b ? 2 : 1)],
      .k = a->dims[a->rank - (attr->trans_a ? 2 : 1)],
      .batch = 1,
      .trans_a = attr->trans_a,
      .trans_b = attr->trans_b,
      .dtype_a = a->dtype,
      .dtype_b = b->dtype,
      .dtype_c = y->dtype,
      .alpha = attr->alpha,
      .accumulate = gd_kernel_adds(args, 0),
  };
  for (uint32_t i = 0; i + 2 < a->rank; i++)
    rows.batch *= a->dims[i];
  if (b->rank == 2 && !attr->trans_a) {
    rows.m *= rows.batch;
    rows.batch = 1;
  }
  rows.lda = attr->trans_a ? rows.m : rows.k;
  rows.ldb = attr->trans_b ? rows.k : rows.n;
  rows.ldc = rows.n;
  if (rows.batch != 1) {
    rows.stride_a = rows.m * rows.k;
    rows.stride_b = rows.k * rows.n;
    rows.stride_c = rows.m * rows.n;
  }
  gd_cuda_gemm_rows(&rows, a->data, b->data, bias, y->data, gemm);
  gemm->tf32 = attr->tf32;
}

bool gd_cuda_gemm_piece(const struct gd_cuda_gemm *whole, int64_t at, float *stage,
                        int64_t stage_elements, struct gd_cuda_gemm *piece, int64_t *d_at) {
  int64_t columns = whole->m > 0 ? stage_elements / whole->m : whole->n;
  bool gapless = whole->ldd == whole->m && whole->stride_d == whole->m * whole->n;
  columns = columns < whole->n ? columns : whole->n;
  if (columns == 0)
    return false;
  int64_t items = 1; /* several where their results lie behind each other */
  if (columns == whole->n && gapless && whole->m > 0)
    items = stage_elements / (whole->m * whole->n);
  int64_t cuts = (whole->n + columns - 1) / columns; /* of one item */
  int64_t item = at / cuts * items, column = at % cuts * columns;
  if (item >= whole->batch)
    return false;
  int64_t element = gd_dtype_bytes(whole->dtype);
  *piece = *whole;
  piece->n = whole->n - column < columns ? whole->n - column : columns;
  piece->batch = whole->batch - item < items ? whole->batch - item : items;
  piece->a = (const char *)whole->a + item * whole->stride_a * element;
  piece->b = (const char *)whole->b +
             (item * whole->stride_b + (whole->trans_b ? column : column * whole->ldb)) * element;
  piece->d = stage;
  piece->dtype_d = GD_DTYPE_F32;
  piece->ldd = whole->m;
  piece->stride_d = whole->m * piece->n;
  piece->bias = NULL;
  piece->bias_mode = GD_CUDA_BIAS_NONE;
  piece->adds = false;
  piece->staged = false;
  *d_at = item * whole->stride_d + column * whole->ldd;
  return true;
}

enum { PITCH_MULTIPLE = 64 }; /* in elements: 256 bytes, of rows and matrices alike */

/* from: `rows` (k) rows of `columns`. False: it does not fit in what is left of the room. */
static bool transpose(const void *from, int64_t rows, int64_t columns, int64_t pitch, float **room,
                      int64_t *room_elements, struct gd_cuda_transpose *t) {
  int64_t to_pitch = (rows + PITCH_MULTIPLE - 1) / PITCH_MULTIPLE * PITCH_MULTIPLE;
  *t = (struct gd_cuda_transpose){from, *room, rows, columns, pitch, to_pitch};
  if (columns > *room_elements / to_pitch)
    return false;
  *room += columns * to_pitch;
  *room_elements -= columns * to_pitch;
  return true;
}

int gd_cuda_gemm_transposed(const struct gd_cuda_gemm *p, void *room, int64_t room_bytes,
                            struct gd_cuda_gemm *transposed, struct gd_cuda_transpose copies[2]) {
  float *at = room;
  int64_t elements = room_bytes / (int64_t)sizeof(float);
  int n = 0;
  *transposed = *p;
  if (p->dtype != GD_DTYPE_F32 || p->dtype_d != GD_DTYPE_F32 || p->batch != 1 || p->m == 0 ||
      p->n == 0 || p->k == 0)
    return 0;
  if (!p->trans_a) { /* stored m x k column by column: k rows of m */
    if (!transpose(p->a, p->k, p->m, p->lda, &at, &elements, &copies[n]))
      return 0;
    transposed->a = copies[n].to;
    transposed->lda = copies[n++].to_pitch;
    transposed->trans_a = true;
  }
  if (p->trans_b) { /* stored n x k: k rows of n */
    if (!transpose(p->b, p->k, p->n, p->ldb, &at, &elements, &copies[n]))
      return 0;
    transposed->b = copies[n].to;
    transposed->ldb = copies[n++].to_pitch;
    transposed->trans_b = false;
  }
  return n;
}
