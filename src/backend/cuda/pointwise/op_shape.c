/*
 * Ops of the CUDA backend that move bytes: concat, transpose, slice, pad, embed, fill, buffer, and
 * positions. One contiguous run is left to the driver's copy; everything else is a kernel of
 * kernels/shape.cu.
 */
#include "backend/cuda/kernels/shape_args.cuh"
#include "backend/cuda/runtime/cuda_int.h"
#include "backend/cuda/runtime/divide.h"

enum { THREADS = 256, UNROLL = 4, TILE_BLOCK = 8 };

/* --- what they share ------------------------------------------------------------------------- */

static enum gd_status copy_run(const struct gd_cuda_call *call, void *to, const void *from,
                               int64_t bytes) {
  if (call->stage != GD_CUDA_LAUNCH || bytes == 0)
    return GD_OK;
  int result = call->cuda->cu->MemcpyAsync((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from,
                                           (size_t)bytes, call->stream);
  return gd_cuda_check(call->cuda, result, "copying on the device", call->err);
}

static enum gd_status clear_run(const struct gd_cuda_call *call, void *to, int64_t bytes) {
  if (call->stage != GD_CUDA_LAUNCH || bytes == 0)
    return GD_OK;
  int result =
      call->cuda->cu->MemsetD8Async((CUdeviceptr)(uintptr_t)to, 0, (size_t)bytes, call->stream);
  return gd_cuda_check(call->cuda, result, "clearing memory of the device", call->err);
}

static void *byte_at(const struct gd_view *view, int64_t bytes) {
  return (char *)view->data + bytes;
}

/* Collects what a unit must divide, as one bit pattern: the lowest bit of all decides. */
static int64_t unit_of(uint64_t multiples) {
  return multiples % 16 == 0 ? 16 : multiples % 8 == 0 ? 8 : multiples % 4 == 0 ? 4 : 2;
}

/* Of a kernel whose threads have UNROLL units each. */
static struct gd_cuda_grid grid_of(int64_t units) {
  int64_t each = (int64_t)THREADS * UNROLL;
  return (struct gd_cuda_grid){.x = (units + each - 1) / each, .threads = THREADS};
}

static struct gd_cuda_kernel by_unit(const char *const names[4], int64_t unit) {
  int at = unit == 16 ? 0 : unit == 8 ? 1 : unit == 4 ? 2 : 3;
  return (struct gd_cuda_kernel){.file = "shape", .name = names[at]};
}

_Static_assert((int)GD_SHAPE_DIMS == (int)GD_MAX_RANK, "kernels have as many dims as graphs");

/* --- concat ---------------------------------------------------------------------------------- */

/* Parts can be many and tiny (the sums of squares of a sharded step): one launch for 224 of them.
 */
enum gd_status gd_cuda_op_concat(const struct gd_cuda_call *call) {
  static const char *const names[] = {"concat_16", "concat_8", "concat_4", "concat_2"};
  const struct gd_kernel_args *args = call->args;
  const struct gd_view *y = &args->out[0];
  int64_t size = gd_dtype_bytes(y->dtype), at_bytes = 0;
  for (uint32_t first = 0; first < args->n_in; first += GD_SHAPE_PARTS) {
    uint32_t left = args->n_in - first;
    struct gd_shape_parts parts = {.count =
                                       (int32_t)(left < GD_SHAPE_PARTS ? left : GD_SHAPE_PARTS)};
    uint64_t multiples = (uint64_t)(uintptr_t)y->data | (uint64_t)at_bytes;
    int64_t bytes = 0;
    for (int32_t i = 0; i < parts.count; i++) {
      const struct gd_view *part = &args->in[first + (uint32_t)i];
      int64_t part_bytes = part->elements * size;
      if (part_bytes > 0)
        multiples |= (uint64_t)(uintptr_t)part->data | (uint64_t)part_bytes;
      parts.from[i] = part->data;
      parts.end[i] = bytes += part_bytes;
    }
    int64_t unit = unit_of(multiples);
    for (int32_t i = 0; i < parts.count; i++)
      parts.end[i] /= unit;
    void *to = byte_at(y, at_bytes);
    struct gd_cuda_kernel kernel = by_unit(names, unit);
    GD_TRY(GD_CUDA_LAUNCH(call, &kernel, grid_of(bytes / unit), &to, &parts));
    at_bytes += bytes;
  }
  return GD_OK;
}

/* --- strided copies -------------------------------------------------------------------------- */

/* A dim of the output, and how far apart its entries are, in bytes. */
struct axis {
  int64_t extent;
  int64_t in_bytes, out_bytes;
};

/*
 * The output, dense, from an input whose entries lie anywhere; the last axis is counted in units.
 * The kernel's indices have 31 bits: what is larger is halved along its outermost axis.
 */
static enum gd_status copy_strided(const struct gd_cuda_call *call, char *to, const char *from,
                                   const struct axis *axes, uint32_t rank, int64_t unit) {
  static const char *const names[] = {"strided_16", "strided_8", "strided_4", "strided_2"};
  int64_t total = 1;
  for (uint32_t d = 0; d < rank; d++)
    total *= axes[d].extent;
  if (total >= GD_CUDA_DIVIDEND_LIMIT) {
    if (axes[0].extent == 1)
      return copy_strided(call, to, from, axes + 1, rank - 1, unit);
    struct axis half[GD_MAX_RANK];
    for (uint32_t d = 0; d < rank; d++)
      half[d] = axes[d];
    half[0].extent = axes[0].extent / 2;
    GD_TRY(copy_strided(call, to, from, half, rank, unit));
    to += half[0].extent * (total / axes[0].extent) * unit;
    from += half[0].extent * half[0].in_bytes;
    half[0].extent = axes[0].extent - half[0].extent;
    return copy_strided(call, to, from, half, rank, unit);
  }
  struct gd_shape_strided strided = {.total = (uint32_t)total, .rank = (int32_t)rank};
  for (uint32_t d = 0; d < rank && total > 0; d++) {
    strided.dims[d] = gd_divider_of(axes[d].extent);
    strided.strides[d] = axes[d].in_bytes / unit;
  }
  struct gd_cuda_kernel kernel = by_unit(names, unit);
  return GD_CUDA_LAUNCH(call, &kernel, grid_of(total), &to, &from, &strided);
}

/* Rows whose last axis is a run of bytes; the others say where in the input a run begins. */
static enum gd_status copy_runs(const struct gd_cuda_call *call, char *to, const char *from,
                                const struct axis *axes, uint32_t rank) {
  struct axis units[GD_MAX_RANK];
  uint64_t multiples = (uint64_t)(uintptr_t)to | (uint64_t)(uintptr_t)from;
  multiples |= (uint64_t)(axes[rank - 1].extent * axes[rank - 1].in_bytes);
  for (uint32_t d = 0; d + 1 < rank; d++)
    multiples |= (uint64_t)axes[d].in_bytes;
  int64_t unit = unit_of(multiples);
  for (uint32_t d = 0; d < rank; d++)
    units[d] = axes[d];
  units[rank - 1].extent = axes[rank - 1].extent * axes[rank - 1].in_bytes / unit;
  units[rank - 1].in_bytes = unit;
  return copy_strided(call, to, from, units, rank, unit);
}

/* --- slice and pad --------------------------------------------------------------------------- */

enum gd_status gd_cuda_op_slice(const struct gd_cuda_call *call) {
  const struct gd_attr_slice *a = &call->args->attr->slice;
  const struct gd_view *x = &call->args->in[0], *y = &call->args->out[0];
  int64_t outer, inner, size = gd_dtype_bytes(x->dtype), n = x->dims[a->dim];
  gd_view_around(x, a->dim, &outer, &inner);
  if (y->elements == 0)
    return GD_OK;
  char *from = byte_at(x, a->start * inner * size);
  if (outer == 1 || a->length == n)
    return copy_run(call, y->data, from, y->elements * size);
  struct axis axes[] = {{.extent = outer, .in_bytes = n * inner * size},
                        {.extent = a->length * inner, .in_bytes = size}};
  return copy_runs(call, y->data, from, axes, 2);
}

/* Some rows of pad, of which all indices fit the kernel's. */
static enum gd_status pad_rows(const struct gd_cuda_call *call, char *to, const char *from,
                               int64_t rows, const int64_t row_lead_run[3], int64_t unit) {
  static const char *const names[] = {"pad_16", "pad_8", "pad_4", "pad_2"};
  struct gd_shape_window window = {.row = gd_divider_of(row_lead_run[0]),
                                   .lead = (uint32_t)row_lead_run[1],
                                   .run = (uint32_t)row_lead_run[2],
                                   .total = (uint32_t)(rows * row_lead_run[0])};
  struct gd_cuda_kernel kernel = by_unit(names, unit);
  return GD_CUDA_LAUNCH(call, &kernel, grid_of(window.total), &to, &from, &window);
}

enum gd_status gd_cuda_op_pad(const struct gd_cuda_call *call) {
  const struct gd_attr_slice *a = &call->args->attr->slice;
  const struct gd_view *x = &call->args->in[0], *y = &call->args->out[0];
  int64_t outer, inner, size = gd_dtype_bytes(x->dtype), n = x->dims[a->dim];
  gd_view_around(x, a->dim, &outer, &inner);
  if (y->elements == 0)
    return GD_OK;
  if (x->elements == 0)
    return clear_run(call, y->data, y->elements * size);
  int64_t row = a->length * inner * size, lead = a->start * inner * size, run = n * inner * size;
  int64_t unit = unit_of((uint64_t)(uintptr_t)x->data | (uint64_t)(uintptr_t)y->data |
                         (uint64_t)row | (uint64_t)lead | (uint64_t)run);
  if (row / unit < GD_CUDA_DIVIDEND_LIMIT) {
    int64_t most = (GD_CUDA_DIVIDEND_LIMIT - 1) / (row / unit);
    for (int64_t r = 0; r < outer; r += most)
      GD_TRY(pad_rows(call, byte_at(y, r * row), byte_at(x, r * run),
                      outer - r < most ? outer - r : most,
                      (int64_t[]){row / unit, lead / unit, run / unit}, unit));
    return GD_OK;
  }
  for (int64_t r = 0; r < outer; r++) { /* few: they have gigabytes each */
    GD_TRY(clear_run(call, byte_at(y, r * row), lead));
    GD_TRY(copy_run(call, byte_at(y, r * row + lead), byte_at(x, r * run), run));
    GD_TRY(clear_run(call, byte_at(y, r * row + lead + run), row - lead - run));
  }
  return GD_OK;
}

/* --- transpose ------------------------------------------------------------------------------- */

/*
 * The dims of the output without those of one entry, and with neighbours as one dim where they are
 * neighbours in the input too. What is left is never longer, and most permutations become a swap.
 */
static uint32_t merged_axes(const struct gd_view *x, const uint8_t *perm,
                            struct axis axes[GD_MAX_RANK]) {
  int64_t strides[GD_MAX_RANK], stride = gd_dtype_bytes(x->dtype);
  uint32_t count = 0;
  for (uint32_t d = x->rank; d-- > 0;) {
    strides[d] = stride;
    stride *= x->dims[d];
  }
  for (uint32_t i = 0; i < x->rank; i++) {
    struct axis axis = {.extent = x->dims[perm[i]], .in_bytes = strides[perm[i]]};
    if (axis.extent == 1)
      continue;
    if (count > 0 && axes[count - 1].in_bytes == axis.extent * axis.in_bytes) {
      axes[count - 1].extent *= axis.extent;
      axes[count - 1].in_bytes = axis.in_bytes;
    } else {
      axes[count++] = axis;
    }
  }
  stride = gd_dtype_bytes(x->dtype);
  for (uint32_t i = count; i-- > 0;) {
    axes[i].out_bytes = stride;
    stride *= axes[i].extent;
  }
  return count;
}

/* Below this a tile would be mostly empty, and caches hold what an element-wise copy jumps over. */
enum { LEAST_SIDE = 16 };

/* `columns` is the axis that was last in the input; the last one of the output are the rows. */
static enum gd_status transpose_tiles(const struct gd_cuda_call *call, const struct axis *axes,
                                      uint32_t count, uint32_t columns) {
  const struct gd_view *x = &call->args->in[0], *y = &call->args->out[0];
  int64_t size = gd_dtype_bytes(x->dtype), side = TILE_BLOCK * 16 / size;
  const struct axis *row_axis = &axes[count - 1], *column_axis = &axes[columns];
  int64_t row_tiles = (row_axis->extent + side - 1) / side;
  int64_t column_tiles = (column_axis->extent + side - 1) / side, blocks = row_tiles * column_tiles;
  uint64_t in = (uint64_t)(uintptr_t)x->data | (uint64_t)row_axis->in_bytes;
  uint64_t out = (uint64_t)(uintptr_t)y->data | (uint64_t)column_axis->out_bytes;
  struct gd_shape_tiles tiles = {.row_tiles = gd_divider_of(row_tiles),
                                 .column_tiles = gd_divider_of(column_tiles),
                                 .rows = row_axis->extent,
                                 .columns = column_axis->extent,
                                 .row_in = row_axis->in_bytes / size,
                                 .column_out = column_axis->out_bytes / size};
  for (uint32_t d = 0; d + 1 < count; d++) {
    if (d == columns)
      continue;
    tiles.dims[tiles.rank] = gd_divider_of(axes[d].extent);
    tiles.in_strides[tiles.rank] = axes[d].in_bytes / size;
    tiles.out_strides[tiles.rank] = axes[d].out_bytes / size;
    tiles.rank++;
    in |= (uint64_t)axes[d].in_bytes;
    out |= (uint64_t)axes[d].out_bytes;
    blocks *= axes[d].extent;
  }
  GD_ASSERT(blocks < GD_CUDA_DIVIDEND_LIMIT); /* of at least 512 bytes each: a terabyte */
  tiles.wide_in = in % 16 == 0;
  tiles.wide_out = out % 16 == 0;
  struct gd_cuda_kernel kernel = {.file = "shape",
                                  .name = size == 2 ? "transpose_2" : "transpose_4"};
  struct gd_cuda_grid grid = {.x = blocks, .threads = THREADS};
  void *to = y->data, *from = x->data;
  return GD_CUDA_LAUNCH(call, &kernel, grid, &to, &from, &tiles);
}

enum gd_status gd_cuda_op_transpose(const struct gd_cuda_call *call) {
  const struct gd_view *x = &call->args->in[0], *y = &call->args->out[0];
  struct axis axes[GD_MAX_RANK];
  int64_t size = gd_dtype_bytes(x->dtype);
  if (x->elements == 0)
    return GD_OK;
  uint32_t count = merged_axes(x, call->args->attr->transpose.perm, axes), columns = 0;
  if (count <= 1)
    return copy_run(call, y->data, x->data, x->elements * size);
  if (axes[count - 1].in_bytes == size)
    return copy_runs(call, y->data, x->data, axes, count);
  while (axes[columns].in_bytes != size) /* some dim of more than one entry is last in the input */
    columns++;
  if (axes[count - 1].extent >= LEAST_SIDE && axes[columns].extent >= LEAST_SIDE)
    return transpose_tiles(call, axes, count, columns);
  return copy_strided(call, y->data, x->data, axes, count, size);
}

/* --- embed ----------------------------------------------------------------------------------- */

enum gd_status gd_cuda_op_embed(const struct gd_cuda_call *call) {
  static const char *const names[] = {"embed_16", "embed_8", "embed_4", "embed_2"};
  const struct gd_view *table = &call->args->in[0], *ids = &call->args->in[1];
  const struct gd_view *y = &call->args->out[0];
  int64_t row = table->dims[1] * gd_dtype_bytes(table->dtype);
  if (y->elements == 0)
    return GD_OK;
  int64_t unit =
      unit_of((uint64_t)(uintptr_t)table->data | (uint64_t)(uintptr_t)y->data | (uint64_t)row);
  struct gd_divider units = gd_divider_of(row / unit);
  struct gd_cuda_kernel kernel = by_unit(names, unit);
  int64_t most = (GD_CUDA_DIVIDEND_LIMIT - 1) / (row / unit);
  for (int64_t r = 0; r < ids->elements; r += most) {
    int64_t rows = ids->elements - r < most ? ids->elements - r : most;
    uint32_t total = (uint32_t)(rows * (row / unit));
    void *to = byte_at(y, r * row), *from = table->data;
    void *id = byte_at(ids, r * gd_dtype_bytes(ids->dtype));
    GD_TRY(GD_CUDA_LAUNCH(call, &kernel, grid_of(total), &to, &from, &id, &units, &total));
  }
  return GD_OK;
}

/* --- fill, buffer, positions ----------------------------------------------------------------- */

enum gd_status gd_cuda_op_fill(const struct gd_cuda_call *call) {
  const struct gd_view *y = &call->args->out[0];
  int64_t size = gd_dtype_bytes(y->dtype), bytes = y->elements * size;
  uint32_t pattern = 0;
  gd_dtype_store(y->dtype, &pattern, 0, call->args->attr->fill.value);
  if (size == 2)
    gd_dtype_store(y->dtype, &pattern, 1, call->args->attr->fill.value);
  if (pattern == 0)
    return clear_run(call, y->data, bytes);
  struct gd_cuda_kernel kernel = {.file = "shape", .name = "fill"};
  void *to = y->data;
  return GD_CUDA_LAUNCH(call, &kernel, grid_of((bytes + 15) / 16), &to, &bytes, &pattern);
}

/* Padding of a flat tensor: sums of squares run over it. */
enum gd_status gd_cuda_op_buffer(const struct gd_cuda_call *call) {
  const struct gd_attr_buffer *attr = &call->args->attr->buffer;
  int64_t size = gd_dtype_bytes(attr->dtype);
  return clear_run(call, byte_at(&call->args->out[0], attr->used * size),
                   (attr->elements - attr->used) * size);
}

enum gd_status gd_cuda_op_positions(const struct gd_cuda_call *call) {
  const struct gd_view *ids = &call->args->in[0];
  int64_t steps = ids->dims[1];
  int32_t pad = call->args->attr->positions.pad;
  struct gd_cuda_kernel kernel = {.file = "shape", .name = "positions"};
  struct gd_cuda_grid grid = {.x = ids->elements ? ids->dims[0] : 0, .threads = 1024};
  void *y = call->args->out[0].data, *x = ids->data;
  return GD_CUDA_LAUNCH(call, &kernel, grid, &y, &x, &steps, &pad);
}
