/*
 * Cross-entropy, its gradient, and linear_xent: the product with the vocabulary, the loss and the
 * gradients of both, over chunks of rows whose logits alone are stored. Kernels: kernels/loss.cu.
 * Letters: C width, V vocabulary.
 *
 * Per chunk three products (logits; dx; dw, added up over chunks) and one walk over the logits that
 * turns them into their gradient. Rows whose label is ignored take part with a gradient of zero:
 * leaving them out needs their number, and a captured graph cannot wait for it. dw, in fp32, is
 * read and written once a chunk and w read twice, so chunks want to be deep: struct gd_caps says
 * how deep.
 */
#include "backend/cuda/product.h"

enum {
  MOST_THREADS = 512, /* as kernels/loss.cu has it */
  MOST_BLOCKS = 4096, /* of xent; fixed, as the order of the sum depends on it */
  TILE_ROWS = 128,    /* rows that products compute at a time: any less costs as much */
  SCRATCH_ALIGNMENT = 256,
};

static struct gd_cuda_kernel kernel_of(const char *name, enum gd_dtype dtype) {
  return (struct gd_cuda_kernel){.file = "loss", .name = name, .n_types = 1, .types = {dtype}};
}

/* A block a row, with a thread for every 16 bytes up to the most there are. */
static struct gd_cuda_grid grid_of(int64_t blocks, int64_t columns, enum gd_dtype dtype) {
  int64_t warps = (columns * gd_dtype_bytes(dtype) / 16 + 31) / 32;
  warps = warps < 1 ? 1 : warps > MOST_THREADS / 32 ? MOST_THREADS / 32 : warps;
  return (struct gd_cuda_grid){.x = blocks, .threads = (int)warps * 32};
}

/* What kernels want to know of labels: positions of a sequence where they are shifted, or 0. */
static int64_t positions_of(const struct gd_attr_xent *attr, const struct gd_view *labels) {
  return attr->shift ? labels->dims[labels->rank - 1] : 0;
}

static enum gd_status sum_losses(const struct gd_cuda_call *call, enum gd_dtype dtype,
                                 double *losses, int64_t count, double *total, bool adds,
                                 void *weight, void *loss) {
  struct gd_cuda_kernel kernel = kernel_of("loss_sum", dtype);
  int add = adds;
  return GD_CUDA_LAUNCH(call, &kernel, ((struct gd_cuda_grid){.x = 1, .threads = 256}), &losses,
                        &count, &total, &add, &weight, &loss);
}

enum gd_status gd_cuda_op_xent(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_attr_xent *attr = &args->attr->xent;
  const struct gd_view *logits = &args->in[0], *labels = &args->in[1];
  struct gd_cuda_kernel kernel = kernel_of("xent_rows", logits->dtype);
  double *total = args->workspace, *losses = total + 1;
  int64_t columns = logits->dims[logits->rank - 1], rows = labels->elements;
  int64_t blocks = rows < MOST_BLOCKS ? rows : MOST_BLOCKS, positions = positions_of(attr, labels);
  int ignore = attr->ignore;
  void *from = logits->data, *label = labels->data, *lse = args->out[1].data;
  GD_TRY(GD_CUDA_LAUNCH(call, &kernel, grid_of(blocks, columns, logits->dtype), &from, &label, &lse,
                        &losses, &rows, &columns, &positions, &ignore));
  return sum_losses(call, logits->dtype, losses, blocks, total, false, args->in[2].data,
                    args->out[0].data);
}

enum gd_status gd_cuda_op_xent_grad(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_attr_xent *attr = &args->attr->xent;
  const struct gd_view *logits = &args->in[0], *labels = &args->in[2];
  struct gd_cuda_kernel kernel = kernel_of("xent_grad", logits->dtype);
  int64_t columns = logits->dims[logits->rank - 1], positions = positions_of(attr, labels);
  int ignore = attr->ignore;
  void *to = args->out[0].data, *from = logits->data, *lse = args->in[1].data;
  void *label = labels->data, *weight = args->in[3].data, *scale = args->in[4].data;
  int64_t rows = columns > 0 ? labels->elements : 0;
  return GD_CUDA_LAUNCH(call, &kernel, grid_of(rows, columns, logits->dtype), &to, &from, &lse,
                        &label, &weight, &scale, &columns, &positions, &ignore);
}

/* --- linear_xent ---------------------------------------------------------------------------- */

struct loss {
  const struct gd_cuda_call *call;
  enum gd_dtype dtype;
  int64_t columns, vocabulary, pitch; /* C, V, elements between rows of logits */
  char *logits;                       /* [rows of a chunk][pitch]; then their gradient */
  double *losses, *total;             /* [rows of a chunk], [1] */
};

static struct loss describe(const struct gd_cuda_call *call, int64_t chunk) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_view *w = &args->in[1];
  struct loss loss = {
      .call = call, .dtype = w->dtype, .columns = w->dims[1], .vocabulary = w->dims[0]};
  loss.pitch = gd_loss_row_pitch(&args->attr->xent, loss.vocabulary);
  uintptr_t start = (uintptr_t)args->workspace + GD_CUDA_WORKSPACE_BYTES;
  uintptr_t at = (start + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
  loss.logits = (char *)at;
  at += (uintptr_t)(chunk * loss.pitch * gd_dtype_bytes(loss.dtype));
  at = (at + sizeof(double) - 1) / sizeof(double) * sizeof(double);
  loss.total = (double *)at;
  loss.losses = loss.total + 1;
  at += (uintptr_t)(chunk + 1) * sizeof(double);
  GD_ASSERT(at <= (uintptr_t)args->workspace + (uintptr_t)args->workspace_bytes);
  return loss;
}

static enum gd_status multiply(const struct loss *loss, struct gd_gemm rows, const void *a,
                               const void *b, const float *bias, void *c) {
  struct gd_cuda_product product;
  rows.batch = 1;
  rows.alpha = 1;
  rows.dtype_a = rows.dtype_b = loss->dtype;
  gd_cuda_product_rows(&rows, a, b, bias, c, &product);
  product.tf32 = loss->call->args->attr->xent.tf32;
  return gd_cuda_product_run(loss->call, &product);
}

/* Each row of logits becomes its gradient. */
static enum gd_status turn_logits(const struct loss *loss, int64_t first, int64_t count) {
  const struct gd_kernel_args *args = loss->call->args;
  const struct gd_attr_xent *attr = &args->attr->xent;
  struct gd_cuda_kernel kernel = kernel_of("linear_xent_turn", loss->dtype);
  struct loss l = *loss;
  int64_t positions = positions_of(attr, &args->in[2]);
  int ignore = attr->ignore;
  void *label = args->in[2].data, *weight = args->in[3].data, *scale = args->in[4].data;
  void *lse = args->out[1].data;
  return GD_CUDA_LAUNCH(loss->call, &kernel, grid_of(count, l.vocabulary, l.dtype), &l.logits,
                        &label, &weight, &scale, &lse, &l.losses, &first, &l.vocabulary, &l.pitch,
                        &positions, &ignore);
}

static enum gd_status sum_bias(const struct loss *loss, int64_t count, bool adds) {
  struct gd_cuda_kernel kernel = kernel_of("linear_xent_columns", loss->dtype);
  struct loss l = *loss;
  int64_t wide = 16 / gd_dtype_bytes(l.dtype);
  void *dbias = l.call->args->out[4].data;
  int add = adds, by_wide = l.pitch % wide == 0;
  int64_t each = 32 * (by_wide ? wide : 1);
  return GD_CUDA_LAUNCH(
      l.call, &kernel,
      ((struct gd_cuda_grid){.x = (l.vocabulary + each - 1) / each, .threads = MOST_THREADS}),
      &dbias, &l.logits, &count, &l.vocabulary, &l.pitch, &add, &by_wide);
}

/* Rows first to first + count, from x to dx. dw and dbias are added to, or written. */
static enum gd_status run_chunk(const struct loss *loss, int64_t first, int64_t count, bool begins,
                                bool adds_dw, bool adds_dbias) {
  const struct gd_kernel_args *args = loss->call->args;
  const int64_t columns = loss->columns, vocabulary = loss->vocabulary;
  const int64_t at_bytes = first * columns * gd_dtype_bytes(loss->dtype);
  const char *x = (const char *)args->in[0].data + at_bytes;
  char *dx = (char *)args->out[2].data + at_bytes;
  const void *w = args->in[1].data;
  GD_TRY(multiply(loss,
                  (struct gd_gemm){.m = count,
                                   .n = vocabulary,
                                   .k = columns,
                                   .trans_b = true,
                                   .lda = columns,
                                   .ldb = columns,
                                   .ldc = loss->pitch,
                                   .dtype_c = loss->dtype},
                  x, w, args->n_in > 5 ? args->in[5].data : NULL, loss->logits));
  GD_TRY(turn_logits(loss, first, count));
  GD_TRY(multiply(loss,
                  (struct gd_gemm){.m = count,
                                   .n = columns,
                                   .k = vocabulary,
                                   .lda = loss->pitch,
                                   .ldb = columns,
                                   .ldc = columns,
                                   .dtype_c = loss->dtype},
                  loss->logits, w, NULL, dx));
  GD_TRY(multiply(loss,
                  (struct gd_gemm){.m = vocabulary,
                                   .n = columns,
                                   .k = count,
                                   .trans_a = true,
                                   .lda = loss->pitch,
                                   .ldb = columns,
                                   .ldc = columns,
                                   .dtype_c = GD_DTYPE_F32,
                                   .accumulate = adds_dw},
                  loss->logits, x, NULL, args->out[3].data));
  if (args->n_out > 4)
    GD_TRY(sum_bias(loss, count, adds_dbias));
  return sum_losses(loss->call, loss->dtype, loss->losses, count, loss->total, !begins,
                    args->in[3].data, args->out[0].data);
}

/* No rows: gradients of zero, and a loss of zero. */
static enum gd_status run_nothing(const struct loss *loss) {
  const struct gd_cuda_call *call = loss->call;
  const struct gd_kernel_args *args = call->args;
  for (uint32_t i = 3; i < args->n_out && call->stage == GD_CUDA_LAUNCH; i++)
    if (!gd_kernel_adds(args, i) && args->out[i].elements > 0)
      GD_TRY(gd_cuda_check(call->cuda,
                           call->cuda->cu->MemsetD8Async(
                               (CUdeviceptr)(uintptr_t)args->out[i].data, 0,
                               (size_t)args->out[i].elements * sizeof(float), call->stream),
                           "clearing a gradient", call->err));
  return sum_losses(call, loss->dtype, loss->losses, 0, loss->total, false, args->in[3].data,
                    args->out[0].data);
}

/* Chunks of about one size, in whole tiles of the products where that many rows are permitted. */
static int64_t chunk_rows(int64_t rows, int64_t most) {
  int64_t whole = most / TILE_ROWS * TILE_ROWS;
  if (rows <= most || whole == 0)
    return most;
  int64_t chunks = (rows + whole - 1) / whole;
  return ((rows + chunks - 1) / chunks + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
}

enum gd_status gd_cuda_op_linear_xent(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  int64_t rows = args->in[2].elements;
  int64_t most =
      gd_loss_chunk_rows(&args->attr->xent, rows, args->in[1].dims[0], args->in[1].dtype);
  struct loss loss = describe(call, most);
  if (rows == 0)
    return run_nothing(&loss);
  int64_t chunk = chunk_rows(rows, most);
  for (int64_t first = 0; first < rows; first += chunk)
    GD_TRY(run_chunk(&loss, first, rows - first < chunk ? rows - first : chunk, first == 0,
                     first > 0 || gd_kernel_adds(args, 3), first > 0 || gd_kernel_adds(args, 4)));
  return GD_OK;
}
