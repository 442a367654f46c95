/*
 * embed_grad of the CUDA backend: positions sorted by id, then summed row by row of the table
 * (kernels/embed.cu, which says how). A round takes 2^20 positions, so that the workspace suffices
 * whatever the batch; the rounds after the first add to the table. All sizes follow from the shapes
 * alone, and so do the sums.
 */
#include "backend/cuda/kernels/embed_args.cuh"
#include "backend/cuda/runtime/cuda_int.h"
#include "backend/cuda/runtime/divide.h"
#include "base/sizes.h"

enum {
  THREADS = 256,
  WARPS = THREADS / 32,
  CHUNK = 1024,    /* keys a block sorts */
  DIGIT_BITS = 9,  /* at most */
  COLUMNS = 128,   /* a warp sums */
  LEAST_PIECE = 7, /* log2: the serial part of a row is below two pieces */
  ROUND = 1 << 20,
  MAX_ROWS = (4 << 20) - 1, /* of the table */
};

/* What the workspace holds, each behind the other. */
enum {
  KEYS_BYTES = 4 * ROUND, /* twice, and as much for the order */
  COUNTS_BYTES = 4 * (1 << DIGIT_BITS) * (ROUND / CHUNK),
  TOTALS_BYTES = 4 * (1 << DIGIT_BITS),
  OFFSETS_BYTES = 4 * (MAX_ROWS + 1),
  PARTIALS_BYTES = 28 << 20,
  USED_BYTES = 4 * KEYS_BYTES + COUNTS_BYTES + TOTALS_BYTES + OFFSETS_BYTES + PARTIALS_BYTES,
};
_Static_assert((int)USED_BYTES <= (int)GD_CUDA_WORKSPACE_BYTES, "the workspace holds a round");

struct scratch {
  void *keys[2], *order[2];
  void *counts, *totals, *offsets, *partials;
};

static struct scratch lay_out(void *workspace) {
  struct scratch s;
  char *at = workspace;
  for (int i = 0; i < 2; i++, at += KEYS_BYTES)
    s.keys[i] = at;
  for (int i = 0; i < 2; i++, at += KEYS_BYTES)
    s.order[i] = at;
  s.counts = at;
  s.totals = at += COUNTS_BYTES;
  s.partials = at += TOTALS_BYTES;
  s.offsets = at + PARTIALS_BYTES;
  return s;
}

static struct gd_cuda_kernel kernel_of(const struct gd_cuda_call *call, const char *name) {
  return (struct gd_cuda_kernel){
      .file = "embed", .name = name, .n_types = 1, .types = {call->args->in[0].dtype}};
}

/* Leaves the ids in s->keys[0] and their positions in s->order[0], sorted. */
static enum gd_status sort(const struct gd_cuda_call *call, struct scratch *s, void *ids,
                           int32_t count, int64_t rows) {
  struct gd_cuda_kernel counting = kernel_of(call, "sort_count");
  struct gd_cuda_kernel scanning = kernel_of(call, "sort_scan");
  struct gd_cuda_kernel scattering = kernel_of(call, "sort_scatter");
  int32_t bits = 1, chunks = (int32_t)gd_div_up(count, CHUNK);
  while (INT64_C(1) << bits < rows)
    bits++;
  int32_t passes = (int32_t)gd_div_up(bits, DIGIT_BITS),
          digit_bits = (int32_t)gd_div_up(bits, passes);
  void *keys = ids, *order = NULL;
  for (int32_t pass = 0; pass < passes; pass++) {
    struct gd_embed_digit digit = {pass * digit_bits, 1 << digit_bits};
    struct gd_cuda_grid by_chunk = {.x = chunks, .threads = THREADS};
    struct gd_cuda_grid by_bin = {.x = digit.bins, .threads = THREADS};
    GD_TRY(GD_CUDA_LAUNCH(call, &counting, by_chunk, &s->counts, &keys, &count, &digit));
    GD_TRY(GD_CUDA_LAUNCH(call, &scanning, by_bin, &s->counts, &s->totals, &chunks));
    GD_TRY(GD_CUDA_LAUNCH(call, &scattering, by_chunk, &s->keys[1], &s->order[1], &keys, &order,
                          &s->counts, &s->totals, &count, &digit));
    void *sorted_keys = s->keys[1], *sorted_order = s->order[1];
    s->keys[1] = s->keys[0];
    s->order[1] = s->order[0];
    keys = s->keys[0] = sorted_keys;
    order = s->order[0] = sorted_order;
  }
  return GD_OK;
}

/* Positions first .. first + count. */
static enum gd_status add_round(const struct gd_cuda_call *call, struct gd_embed_sums *sums,
                                bool wide, int64_t first, int32_t count) {
  const struct gd_view *dy = &call->args->in[0], *ids = &call->args->in[1];
  struct scratch s = lay_out(call->args->workspace);
  int32_t *id = (int32_t *)ids->data + first;
  GD_TRY(sort(call, &s, id, count, sums->rows));
  struct gd_cuda_kernel offsets = kernel_of(call, "row_offsets");
  struct gd_cuda_kernel pieces = kernel_of(call, wide ? "piece_sums_wide" : "piece_sums_narrow");
  struct gd_cuda_kernel rows = kernel_of(call, wide ? "row_sums_wide" : "row_sums_narrow");
  void *table = call->args->out[0].data;
  char *values = (char *)dy->data + first * sums->columns * gd_dtype_bytes(dy->dtype);
  int64_t chunks = sums->chunks.divisor;
  uint32_t n_pieces = (uint32_t)count >> sums->piece_log2;
  struct gd_cuda_grid by_row = {.x = gd_div_up(sums->rows + 1, THREADS), .threads = THREADS};
  struct gd_cuda_grid by_piece = {.x = gd_div_up(n_pieces * chunks, WARPS), .threads = THREADS};
  struct gd_cuda_grid by_sum = {.x = gd_div_up(sums->rows * chunks, WARPS), .threads = THREADS};
  GD_TRY(GD_CUDA_LAUNCH(call, &offsets, by_row, &s.offsets, &s.keys[0], &count, &sums->rows));
  GD_TRY(GD_CUDA_LAUNCH(call, &pieces, by_piece, &s.partials, &values, &s.keys[0], &s.order[0],
                        sums, &n_pieces));
  return GD_CUDA_LAUNCH(call, &rows, by_sum, &table, &values, &s.order[0], &s.offsets, &s.partials,
                        sums);
}

enum gd_status gd_cuda_op_embed_grad(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_view *dy = &args->in[0], *ids = &args->in[1], *table = &args->out[0];
  const struct gd_attr_embed *attr = &args->attr->embed;
  int64_t columns = table->dims[1];
  bool adds = gd_kernel_adds(args, 0);
  if (table->elements == 0)
    return GD_OK;
  if (ids->elements == 0) {
    if (adds || call->stage != GD_CUDA_LAUNCH)
      return GD_OK;
    int result =
        call->cuda->cu->MemsetD8Async((CUdeviceptr)(uintptr_t)table->data, 0,
                                      (size_t)table->elements * sizeof(float), call->stream);
    return gd_cuda_check(call->cuda, result, "clearing a gradient", call->err);
  }
  if (attr->rows > MAX_ROWS || attr->rows * gd_div_up(columns, COLUMNS) >= GD_CUDA_DIVIDEND_LIMIT)
    return gd_fail(
        call->err, GD_UNSUPPORTED,
        "a table of %lld rows of %lld columns is larger than embed_grad takes: at most %d "
        "rows, and 2^31 pieces of %d columns",
        (long long)attr->rows, (long long)columns, MAX_ROWS, COLUMNS);
  GD_ASSERT(args->workspace_bytes >= USED_BYTES);
  struct gd_embed_sums sums = {.chunks = gd_divider_of(gd_div_up(columns, COLUMNS)),
                               .columns = columns,
                               .rows = (int32_t)attr->rows,
                               .piece_log2 = LEAST_PIECE,
                               .skipped = attr->has_pad ? attr->pad : -1,
                               .adds = adds};
  int64_t largest = ids->elements < ROUND ? ids->elements : ROUND;
  while ((largest >> sums.piece_log2) * columns * (int64_t)sizeof(float) > PARTIALS_BYTES)
    sums.piece_log2++;
  bool wide = columns % 4 == 0 && (uintptr_t)table->data % 16 == 0 &&
              (uintptr_t)dy->data % (uintptr_t)(4 * gd_dtype_bytes(dy->dtype)) == 0;
  for (int64_t first = 0; first < ids->elements; first += ROUND) {
    int64_t left = ids->elements - first;
    GD_TRY(add_round(call, &sums, wide, first, (int32_t)(left < ROUND ? left : ROUND)));
    sums.adds = true;
  }
  return GD_OK;
}
