/*
 * Cross-entropy, its gradient, and linear_xent: the GEMM with the vocabulary, the loss and the
 * gradients of both, over chunks of rows whose logits alone are stored. Kernels: kernels/loss.cu.
 * Letters: C width, V vocabulary.
 *
 * Per chunk three GEMMs (logits; dx; dw, accumulated over chunks) and one walk over the logits that
 * overwrites them with their gradient. dw, in fp32, is read and written once a chunk and w read
 * twice, so chunks want to be deep: struct gd_caps says how deep.
 *
 * In causal models nearly all rows count, and one whose label is ignored takes part with a gradient
 * of zero. Masked models predict one token in seven: there the rows that count are gathered
 * (gd_loss_gathers), dx of the others is zero, and chunks behind the last such row are toggles
 * that a launch of the program leaves out (graph_toggle.h). The last chunk has rows of zeros
 * behind.
 *
 * GEMMs over an odd number of columns run at a fifth of the rate of others, so where V is no
 * multiple of 8 they see a copy of w and the bias with zeros behind, up to the pitch of the logits;
 * dw of the last, partial group of rows is summed in scratch. The bias stays with the GEMM,
 * whose epilogue adds it for nothing: read by the walk it would be twice the bytes of a row.
 */
#include "backend/cuda/gemm/cuda_gemm.h"
#include "backend/cuda/runtime/graph_toggle.h"

enum {
  MOST_THREADS = 512, /* as kernels/loss.cu has it */
  MOST_BLOCKS = 4096, /* of xent; fixed, as the order of the sum depends on it */
  TILE_ROWS = 128,    /* rows that a GEMM computes at a time: any less costs as much */
  SCRATCH_ALIGNMENT = 256,
  WALK_SHARED_BYTES = 1024, /* of linear_xent_walk, without its row, at most */
  COUNT_THREADS = 1024,     /* of loss_rows, one block */
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

enum gd_status gd_cuda_op_soft_xent(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_view *logits = &args->in[0];
  struct gd_cuda_kernel kernel = kernel_of("soft_xent_rows", logits->dtype);
  double *total = args->workspace, *losses = total + 1, *hits = losses + MOST_BLOCKS;
  int64_t columns = logits->dims[logits->rank - 1], rows = args->out[1].elements;
  int64_t blocks = rows < MOST_BLOCKS ? rows : MOST_BLOCKS;
  void *from = logits->data, *targets = args->in[1].data, *lse = args->out[1].data;
  GD_TRY(GD_CUDA_LAUNCH(call, &kernel, grid_of(blocks, columns, logits->dtype), &from, &targets,
                        &lse, &losses, &hits, &rows, &columns));
  GD_TRY(sum_losses(call, logits->dtype, losses, blocks, total, false, args->in[2].data,
                    args->out[0].data));
  return sum_losses(call, logits->dtype, hits, blocks, total, false, NULL, args->out[2].data);
}

enum gd_status gd_cuda_op_soft_xent_grad(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_view *logits = &args->in[0];
  struct gd_cuda_kernel kernel = kernel_of("soft_xent_grad", logits->dtype);
  int64_t columns = logits->dims[logits->rank - 1];
  int64_t rows = columns > 0 ? args->in[1].elements : 0;
  void *to = args->out[0].data, *from = logits->data, *lse = args->in[1].data;
  void *targets = args->in[2].data, *weight = args->in[3].data, *scale = args->in[4].data;
  return GD_CUDA_LAUNCH(call, &kernel, grid_of(rows, columns, logits->dtype), &to, &from, &lse,
                        &targets, &weight, &scale, &columns);
}

/* --- linear_xent ---------------------------------------------------------------------------- */

struct loss {
  const struct gd_cuda_call *call;
  enum gd_dtype dtype;
  int64_t columns, vocabulary, pitch; /* C, V, elements between rows of logits */
  int64_t width;                      /* V as GEMMs see it: the pitch where it is padded */
  int64_t direct;                     /* rows of dw that GEMMs write; the rest is in tail */
  char *logits;                       /* [rows of a chunk][pitch]; then their gradient */
  double *losses, *total;             /* [rows of a chunk], [1] */
  int32_t *list, *count;              /* rows that count, and their number; NULL: all take part */
  char *x;                            /* with a list: [rows of a chunk][C], then its dx */
  void *w;                            /* [width][C] */
  float *bias;                        /* [width], or NULL */
  float *tail;                        /* dw of rows from direct on: [width - direct][C] */
};

/* The next `bytes` of scratch, from a multiple of `alignment` on. */
static void *take(uintptr_t *at, int64_t bytes, uintptr_t alignment) {
  uintptr_t start = (*at + alignment - 1) / alignment * alignment;
  *at = start + (uintptr_t)bytes;
  return (void *)start;
}

static struct loss describe(const struct gd_cuda_call *call, int64_t chunk, bool gathers) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_view *w = &args->in[1];
  const int64_t element = gd_dtype_bytes(w->dtype), c = w->dims[1], v = w->dims[0];
  struct loss loss = {.call = call,
                      .dtype = w->dtype,
                      .columns = c,
                      .vocabulary = v,
                      .pitch = gd_loss_row_pitch(&args->attr->xent, v),
                      .width = v,
                      .direct = v,
                      .w = w->data,
                      .bias = args->n_in > 5 ? args->in[5].data : NULL};
  uintptr_t at = (uintptr_t)args->workspace + GD_CUDA_WORKSPACE_BYTES;
  loss.logits = take(&at, chunk * loss.pitch * element, SCRATCH_ALIGNMENT);
  loss.total = take(&at, (chunk + 1) * (int64_t)sizeof(double), sizeof(double));
  loss.losses = loss.total + 1;
  if (gathers) {
    loss.x = take(&at, chunk * c * element, SCRATCH_ALIGNMENT);
    loss.count = take(&at, (args->in[2].elements + 1) * (int64_t)sizeof(int32_t), sizeof(int32_t));
    loss.list = loss.count + 1;
  }
  if (gd_loss_pads(&args->attr->xent, v)) {
    loss.width = loss.pitch;
    loss.direct = v / GD_LOSS_PITCH_STEP * GD_LOSS_PITCH_STEP;
    loss.w = take(&at, loss.width * c * element, SCRATCH_ALIGNMENT);
    loss.bias =
        loss.bias ? take(&at, loss.width * (int64_t)sizeof(float), SCRATCH_ALIGNMENT) : NULL;
    loss.tail =
        take(&at, (loss.width - loss.direct) * c * (int64_t)sizeof(float), SCRATCH_ALIGNMENT);
  }
  GD_ASSERT(at <= (uintptr_t)args->workspace + (uintptr_t)args->workspace_bytes);
  return loss;
}

static enum gd_status copy(const struct gd_cuda_call *call, void *to, const void *from,
                           int64_t bytes) {
  if (bytes == 0 || call->stage != GD_CUDA_LAUNCH)
    return GD_OK;
  return gd_cuda_check(call->cuda,
                       call->cuda->cu->MemcpyAsync((CUdeviceptr)(uintptr_t)to,
                                                   (CUdeviceptr)(uintptr_t)from, (size_t)bytes,
                                                   call->stream),
                       "copying inside linear_xent", call->err);
}

static enum gd_status clear(const struct gd_cuda_call *call, void *at, int64_t bytes) {
  if (bytes == 0 || call->stage != GD_CUDA_LAUNCH)
    return GD_OK;
  return gd_cuda_check(
      call->cuda,
      call->cuda->cu->MemsetD8Async((CUdeviceptr)(uintptr_t)at, 0, (size_t)bytes, call->stream),
      "clearing inside linear_xent", call->err);
}

/* w and the bias with zeros behind. */
static enum gd_status pad(const struct loss *loss) {
  const struct gd_kernel_args *args = loss->call->args;
  int64_t row = loss->columns * gd_dtype_bytes(loss->dtype), have = loss->vocabulary;
  int64_t lacks = loss->width - have, number = sizeof(float);
  GD_TRY(copy(loss->call, loss->w, args->in[1].data, have * row));
  GD_TRY(clear(loss->call, (char *)loss->w + have * row, lacks * row));
  if (!loss->bias)
    return GD_OK;
  GD_TRY(copy(loss->call, loss->bias, args->in[5].data, have * number));
  return clear(loss->call, loss->bias + have, lacks * number);
}

/* The rows of dw that are summed in scratch: from where they belong, and back. */
static enum gd_status move_tail(const struct loss *loss, bool back) {
  float *own = loss->call->args->out[3].data;
  int64_t bytes = (loss->vocabulary - loss->direct) * loss->columns * (int64_t)sizeof(float);
  own += loss->direct * loss->columns;
  return copy(loss->call, back ? own : loss->tail, back ? loss->tail : own, bytes);
}

static enum gd_status multiply(const struct loss *loss, struct gd_gemm rows, const void *a,
                               const void *b, const float *bias, void *c) {
  struct gd_cuda_gemm gemm;
  rows.batch = 1;
  rows.alpha = 1;
  rows.dtype_a = rows.dtype_b = loss->dtype;
  gd_cuda_gemm_rows(&rows, a, b, bias, c, &gemm);
  gemm.tf32 = loss->call->args->attr->xent.tf32;
  return gd_cuda_gemm_run(loss->call, &gemm);
}

/* Each row of logits becomes its gradient. */
static enum gd_status turn_logits(const struct loss *loss, int64_t first, int64_t count) {
  const struct gd_kernel_args *args = loss->call->args;
  const struct gd_attr_xent *attr = &args->attr->xent;
  struct gd_cuda_kernel kernel = kernel_of("linear_xent_walk", loss->dtype);
  struct loss l = *loss;
  int64_t positions = positions_of(attr, &args->in[2]);
  int64_t row_bytes = (l.width * gd_dtype_bytes(l.dtype) + 15) / 16 * 16;
  int ignore = attr->ignore;
  int keeps = row_bytes + WALK_SHARED_BYTES <= l.call->cuda->shared_bytes;
  void *label = args->in[2].data, *weight = args->in[3].data, *scale = args->in[4].data;
  void *lse = args->out[1].data;
  struct gd_cuda_grid grid = grid_of(count, l.vocabulary, l.dtype);
  grid.shared_bytes = keeps ? (int)row_bytes : 0;
  if (l.list) {
    kernel.name = "linear_xent_walk_listed";
    return GD_CUDA_LAUNCH(loss->call, &kernel, grid, &l.logits, &label, &weight, &scale, &lse,
                          &l.losses, &first, &l.vocabulary, &l.width, &l.pitch, &keeps, &l.list,
                          &l.count);
  }
  return GD_CUDA_LAUNCH(loss->call, &kernel, grid, &l.logits, &label, &weight, &scale, &lse,
                        &l.losses, &first, &l.vocabulary, &l.width, &l.pitch, &positions, &ignore,
                        &keeps);
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

/* dw of a chunk: rows from `first` on, of which there are `rows`, to `to`. */
static enum gd_status multiply_dw(const struct loss *loss, const void *x, int64_t count,
                                  int64_t first, int64_t rows, void *to, bool adds) {
  return multiply(loss,
                  (struct gd_gemm){.m = rows,
                                   .n = loss->columns,
                                   .k = count,
                                   .trans_a = true,
                                   .lda = loss->pitch,
                                   .ldb = loss->columns,
                                   .ldc = loss->columns,
                                   .dtype_c = GD_DTYPE_F32,
                                   .accumulate = adds},
                  loss->logits + first * gd_dtype_bytes(loss->dtype), x, NULL, to);
}

static enum gd_status find_rows(const struct gd_cuda_call *call, int32_t *list, int32_t *count) {
  const struct gd_view *labels = &call->args->in[2];
  struct gd_cuda_kernel kernel = kernel_of("loss_rows", call->args->in[1].dtype);
  int64_t rows = labels->elements;
  void *label = labels->data;
  int ignore = call->args->attr->xent.ignore;
  return GD_CUDA_LAUNCH(call, &kernel, ((struct gd_cuda_grid){.x = 1, .threads = COUNT_THREADS}),
                        &label, &list, &count, &rows, &ignore);
}

/* For the host, before the program. */
static enum gd_status count_rows(const struct gd_cuda_call *call, int32_t *to) {
  return find_rows(call, NULL, to);
}

/* Rows of x to the chunk, or of the chunk to dx. */
static enum gd_status move_rows(const struct loss *loss, int64_t first, int64_t count,
                                bool gathers) {
  const struct gd_kernel_args *args = loss->call->args;
  struct gd_cuda_kernel kernel = kernel_of("linear_xent_move", loss->dtype);
  struct loss l = *loss;
  void *tensor = gathers ? args->in[0].data : args->out[2].data;
  int gather = gathers;
  return GD_CUDA_LAUNCH(loss->call, &kernel, grid_of(l.columns > 0 ? count : 0, l.columns, l.dtype),
                        &tensor, &l.x, &l.list, &l.count, &first, &l.columns, &gather);
}

/* A chunk from x to dx: the rows first .. first + count, of those whose label counts where there is
   a list of them, else of all. adds_dw, adds_dbias: added to what is there; else written. */
static enum gd_status run_chunk(const struct loss *loss, int64_t first, int64_t count, bool begins,
                                bool adds_dw, bool adds_dbias) {
  const struct gd_kernel_args *args = loss->call->args;
  const int64_t columns = loss->columns, width = loss->width, direct = loss->direct;
  const int64_t at_bytes = first * columns * gd_dtype_bytes(loss->dtype);
  const char *x = loss->list ? loss->x : (const char *)args->in[0].data + at_bytes;
  char *dx = loss->list ? loss->x : (char *)args->out[2].data + at_bytes;
  if (loss->list)
    GD_TRY(move_rows(loss, first, count, true));
  GD_TRY(multiply(loss,
                  (struct gd_gemm){.m = count,
                                   .n = width,
                                   .k = columns,
                                   .trans_b = true,
                                   .lda = columns,
                                   .ldb = columns,
                                   .ldc = loss->pitch,
                                   .dtype_c = loss->dtype},
                  x, loss->w, loss->bias, loss->logits));
  GD_TRY(turn_logits(loss, first, count));
  GD_TRY(multiply_dw(loss, x, count, 0, direct, args->out[3].data, adds_dw));
  if (loss->tail)
    GD_TRY(multiply_dw(loss, x, count, direct, width - direct, loss->tail, adds_dw));
  GD_TRY(multiply(loss,
                  (struct gd_gemm){.m = count,
                                   .n = columns,
                                   .k = width,
                                   .lda = loss->pitch,
                                   .ldb = columns,
                                   .ldc = columns,
                                   .dtype_c = loss->dtype},
                  loss->logits, loss->w, NULL, dx));
  if (loss->list)
    GD_TRY(move_rows(loss, first, count, false));
  if (args->n_out > 4)
    GD_TRY(sum_bias(loss, count, adds_dbias));
  return sum_losses(loss->call, loss->dtype, loss->losses, count, loss->total, !begins,
                    args->in[3].data, args->out[0].data);
}

/* No rows: gradients of zero, and a loss of zero. */
static enum gd_status run_nothing(const struct loss *loss) {
  const struct gd_cuda_call *call = loss->call;
  const struct gd_kernel_args *args = call->args;
  for (uint32_t i = 3; i < args->n_out; i++)
    if (!gd_kernel_adds(args, i))
      GD_TRY(clear(call, args->out[i].data, args->out[i].elements * (int64_t)sizeof(float)));
  return sum_losses(call, loss->dtype, loss->losses, 0, loss->total, false, args->in[3].data,
                    args->out[0].data);
}

/* Chunks of about one size, in whole tiles of the GEMMs where that many rows are permitted. */
static int64_t chunk_rows(int64_t rows, int64_t most) {
  int64_t whole = most / TILE_ROWS * TILE_ROWS;
  if (rows <= most || whole == 0)
    return most;
  int64_t chunks = (rows + whole - 1) / whole;
  return ((rows + chunks - 1) / chunks + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
}

static enum gd_status run_all(const struct loss *loss, int64_t rows, int64_t chunk) {
  const struct gd_kernel_args *args = loss->call->args;
  for (int64_t first = 0; first < rows; first += chunk)
    GD_TRY(run_chunk(loss, first, rows - first < chunk ? rows - first : chunk, first == 0,
                     first > 0 || gd_kernel_adds(args, 3), first > 0 || gd_kernel_adds(args, 4)));
  return GD_OK;
}

/* The first chunk always runs: it writes what the others add to. All are of one size. */
static enum gd_status run_gathered(const struct loss *loss, int64_t rows, int64_t chunk) {
  const struct gd_cuda_call *call = loss->call;
  const struct gd_kernel_args *args = call->args;
  GD_TRY(gd_cuda_toggles_count(call, count_rows));
  GD_TRY(find_rows(call, loss->list, loss->count));
  GD_TRY(clear(call, args->out[1].data, rows * (int64_t)sizeof(float)));
  GD_TRY(clear(call, args->out[2].data, rows * loss->columns * gd_dtype_bytes(loss->dtype)));
  GD_TRY(run_chunk(loss, 0, chunk, true, gd_kernel_adds(args, 3), gd_kernel_adds(args, 4)));
  for (int64_t first = chunk; first < rows; first += chunk)
    if (gd_cuda_toggle_begin(call, first + 1)) {
      GD_TRY(run_chunk(loss, first, chunk, false, true, true));
      gd_cuda_toggle_end(call);
    }
  return GD_OK;
}

enum gd_status gd_cuda_op_linear_xent(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_attr_xent *attr = &args->attr->xent;
  const struct gd_view *w = &args->in[1];
  int64_t rows = args->in[2].elements;
  /* Without chunk_bytes it is a CPU's op: ours takes it as it is. */
  bool gathers = attr->chunk_bytes > 0 && gd_loss_gathers(attr, rows);
  int64_t most = gathers ? gd_loss_gathered_rows(attr, rows, w->dims[0], w->dtype)
                         : gd_loss_chunk_rows(attr, rows, w->dims[0], w->dtype);
  struct loss loss = describe(call, most, gathers);
  if (rows == 0)
    return run_nothing(&loss);
  if (loss.tail)
    GD_TRY(pad(&loss));
  if (loss.tail && gd_kernel_adds(args, 3))
    GD_TRY(move_tail(&loss, false));
  if (gathers)
    GD_TRY(run_gathered(&loss, rows, most));
  else
    GD_TRY(run_all(&loss, rows, chunk_rows(rows, most)));
  return loss.tail ? move_tail(&loss, true) : GD_OK;
}
