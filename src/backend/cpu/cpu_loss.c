/*
 * linear_xent: the GEMM with the vocabulary, cross-entropy and the gradients of both, over
 * chunks of rows whose logits alone are stored. Letters: C width, V vocabulary.
 *
 * Rows whose label is ignored are left out: those that count are copied together, so that a masked
 * language model multiplies the seventh part it predicts. Per chunk three GEMMs (logits, dx, dw
 * added up over chunks) and one walk over the logits that turns each row into its gradient while it
 * is in L2. How rows are cut depends on the shape and the labels alone.
 *
 * Bound: the GEMMs. dw is read and written once a chunk, w read twice, so a chunk wants to be
 * deep; gd_loss_chunk_rows says how deep.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "backend/cpu/gemm.h"

struct loss {
  const struct gd_kernel_args *args;
  enum gd_dtype dtype;
  int64_t columns, vocabulary; /* C, V */
  char *logits;                /* [rows of a chunk][V]; then their gradient */
  char *x, *dx;                /* [rows of a chunk][C] */
  double *losses;              /* [rows of a chunk] */
  int64_t *rows;               /* [rows of a chunk]: where they come from */
};

static char *take(char **at, int64_t bytes) {
  char *taken = *at;
  *at += (bytes + 63) / 64 * 64;
  return taken;
}

static struct loss describe(const struct gd_kernel_args *args, int64_t chunk) {
  const struct gd_view *w = &args->in[1];
  struct loss loss = {
      .args = args, .dtype = w->dtype, .columns = w->dims[1], .vocabulary = w->dims[0]};
  int64_t element = gd_dtype_bytes(loss.dtype);
  char *at = (char *)args->workspace + gd_gemm_workspace_bytes(args->threads);
  loss.logits = take(&at, chunk * loss.vocabulary * element);
  loss.x = take(&at, chunk * loss.columns * element);
  loss.dx = take(&at, chunk * loss.columns * element);
  loss.losses = (double *)(void *)take(&at, chunk * (int64_t)sizeof *loss.losses);
  loss.rows = (int64_t *)(void *)take(&at, chunk * (int64_t)sizeof *loss.rows);
  GD_ASSERT(at <= (char *)args->workspace + args->workspace_bytes);
  return loss;
}

/* Copies rows between a tensor and the chunk: reads and writes count * C elements. */
static void copy_rows(const struct loss *loss, int64_t count, bool gather) {
  const struct gd_view *whole = gather ? &loss->args->in[0] : &loss->args->out[2];
  size_t row_bytes = (size_t)(loss->columns * gd_dtype_bytes(loss->dtype));
  char *piece = gather ? loss->x : loss->dx;
  int threads = gd_cpu_threads(loss->args, 2 * count * (int64_t)row_bytes);
  if (row_bytes == 0)
    return;
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < count; i++) {
    char *there = gd_cpu_at(whole, loss->rows[i] * loss->columns);
    char *here = piece + (size_t)i * row_bytes;
    memcpy(gather ? here : there, gather ? there : here, row_bytes);
  }
}

/* Each row of logits becomes its gradient; a thread owns a row at a time. */
static void turn_logits(const struct loss *loss, int64_t count) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_kernel_args *args = loss->args;
  const float *weight = args->in[3].data, *loss_scale = args->in[4].data;
  float *lse = args->out[1].data;
  double scale = (double)weight[0] * (double)loss_scale[0];
  int64_t row_bytes = loss->vocabulary * gd_dtype_bytes(loss->dtype);
  int threads = gd_cpu_threads(args, 4 * count * row_bytes);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t i = 0; i < count; i++) {
    char *row = loss->logits + i * row_bytes;
    int64_t r = loss->rows[i];
    int32_t label = gd_cpu_label(&args->attr->xent, &args->in[2], r);
    double row_lse = rows->logsumexp(loss->dtype, row, loss->vocabulary);
    double x = (double)gd_dtype_load(loss->dtype, row, label);
    loss->losses[i] = row_lse - x;
    lse[r] = (float)row_lse;
    rows->xent_grad(loss->dtype, row, row, loss->vocabulary, lse[r], (float)scale);
    gd_dtype_store(loss->dtype, row, label, (float)((exp(x - (double)lse[r]) - 1) * scale));
  }
}

static void multiply(const struct loss *loss, struct gd_gemm gemm, const void *a, const void *b,
                     const float *bias, void *c) {
  gemm.batch = 1;
  gemm.alpha = 1;
  gemm.dtype_a = gemm.dtype_b = loss->dtype;
  gd_gemm_run(&gemm, a, b, bias, c, loss->args->workspace, loss->args->threads);
}

static void sum_bias(const struct loss *loss, int64_t count, float *dbias) {
  enum { BLOCK = 4096 };
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  int64_t blocks = (loss->vocabulary + BLOCK - 1) / BLOCK, element = gd_dtype_bytes(loss->dtype);
  int threads = gd_cpu_threads(loss->args, count * loss->vocabulary * element);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t block = 0; block < blocks; block++) {
    int64_t at = block * BLOCK, left = loss->vocabulary - at;
    rows->sum_rows(loss->dtype, dbias + at, loss->logits + at * element, count, loss->vocabulary,
                   left < BLOCK ? left : BLOCK);
  }
}

/* The rows in loss->rows, from x to dx; dbias is added to, dw too or written. Returns their loss.
 */
static double run_chunk(const struct loss *loss, int64_t count, bool adds) {
  const struct gd_kernel_args *args = loss->args;
  const int64_t columns = loss->columns, vocabulary = loss->vocabulary;
  const void *w = args->in[1].data;
  copy_rows(loss, count, true);
  multiply(loss,
           (struct gd_gemm){.m = count,
                            .n = vocabulary,
                            .k = columns,
                            .trans_b = true,
                            .lda = columns,
                            .ldb = columns,
                            .ldc = vocabulary,
                            .dtype_c = loss->dtype},
           loss->x, w, gd_cpu_optional(args, 5), loss->logits);
  turn_logits(loss, count);
  multiply(loss,
           (struct gd_gemm){.m = count,
                            .n = columns,
                            .k = vocabulary,
                            .lda = vocabulary,
                            .ldb = columns,
                            .ldc = columns,
                            .dtype_c = loss->dtype},
           loss->logits, w, NULL, loss->dx);
  copy_rows(loss, count, false);
  multiply(loss,
           (struct gd_gemm){.m = vocabulary,
                            .n = columns,
                            .k = count,
                            .trans_a = true,
                            .lda = vocabulary,
                            .ldb = columns,
                            .ldc = columns,
                            .dtype_c = GD_DTYPE_F32,
                            .accumulate = adds},
           loss->logits, loss->x, NULL, args->out[3].data);
  if (args->n_out > 4)
    sum_bias(loss, count, args->out[4].data);
  double sum = 0;
  for (int64_t i = 0; i < count; i++)
    sum += loss->losses[i];
  return sum;
}

/* Chunks of about one size, in whole tiles of the GEMMs where that many rows are permitted. */
static int64_t chunk_rows(int64_t rows, int64_t most, int64_t tile) {
  int64_t whole = most / tile * tile;
  if (rows <= most || whole == 0)
    return most;
  int64_t chunks = (rows + whole - 1) / whole;
  return ((rows + chunks - 1) / chunks + tile - 1) / tile * tile;
}

void gd_cpu_linear_xent(const struct gd_kernel_args *args) {
  const struct gd_attr_xent *attr = &args->attr->xent;
  const struct gd_view *labels = &args->in[2];
  const float *weight = args->in[3].data;
  float *loss_out = args->out[0].data, *lse = args->out[1].data;
  int64_t most = gd_loss_chunk_rows(attr, labels->elements, args->in[1].dims[0], args->in[1].dtype);
  struct loss loss = describe(args, most);
  size_t row_bytes = (size_t)(loss.columns * gd_dtype_bytes(loss.dtype));
  int64_t counted = 0;
  for (int64_t r = 0; r < labels->elements; r++)
    counted += gd_cpu_label(attr, labels, r) != attr->ignore;
  int64_t chunk = chunk_rows(counted, most, gd_gemm_tile_rows(loss.dtype));

  bool adds = gd_kernel_adds(args, 3);
  if (!adds && counted == 0)
    memset(args->out[3].data, 0, (size_t)args->out[3].elements * sizeof(float));
  if (args->n_out > 4 && !gd_kernel_adds(args, 4))
    memset(args->out[4].data, 0, (size_t)args->out[4].elements * sizeof(float));
  double total = 0;
  int64_t count = 0;
  for (int64_t r = 0; r < labels->elements; r++) {
    if (gd_cpu_label(attr, labels, r) == attr->ignore) {
      lse[r] = 0;
      if (row_bytes)
        memset(gd_cpu_at(&args->out[2], r * loss.columns), 0, row_bytes);
      continue;
    }
    loss.rows[count++] = r;
    if (count == chunk) {
      total += run_chunk(&loss, count, adds);
      adds = true;
      count = 0;
    }
  }
  if (count > 0)
    total += run_chunk(&loss, count, adds);
  loss_out[0] = (float)((double)weight[0] * total);
}
