/*
 * Kernels of the cpu backend that only move bytes: concat, slice, pad, copy, cast, fill, transpose,
 * and positions, which only counts.
 */
#include <string.h>

#include "backend/cpu/cpu_int.h"
#include "base/status.h"

/* --- copies --------------------------------------------------------------------------------- */

/* memcpy on several threads, each with one range of whole cache lines. */
static void copy_bytes(const struct gd_kernel_args *args, void *to, const void *from,
                       int64_t bytes) {
  int threads = gd_cpu_threads(args, 2 * bytes);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(bytes, 4096, part, threads);
    if (range.begin < range.end)
      memcpy((char *)to + range.begin, (const char *)from + range.begin,
             (size_t)(range.end - range.begin));
  }
}

void gd_cpu_concat(const struct gd_kernel_args *args) {
  char *to = args->out[0].data;
  int64_t size = gd_dtype_bytes(args->out[0].dtype);
  for (uint32_t i = 0; i < args->n_in; i++) {
    int64_t bytes = args->in[i].elements * size;
    copy_bytes(args, to, args->in[i].data, bytes);
    to += bytes;
  }
}

/* Bytes of every row of the output y: zeros, some of row x, zeros. A row of slice has no zeros. */
struct window {
  int64_t row_y, lead; /* all of it; the zeros in front */
  int64_t row_x, skip; /* all of it; what is left out in front */
  int64_t run;         /* copied */
};

/* Rows may be few and long or many and short: threads share bytes, and may meet inside a row. */
static void copy_window(const struct gd_kernel_args *args, const struct window *window) {
  const struct window w = *window;
  const char *x = args->in[0].data;
  char *y = args->out[0].data;
  int64_t bytes = args->out[0].elements * gd_dtype_bytes(args->out[0].dtype);
  int threads = gd_cpu_threads(args, 2 * bytes);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(bytes, 64, part, threads);
    for (int64_t at = range.begin; at < range.end;) {
      int64_t row = at / w.row_y, in = at % w.row_y;
      bool copied = in >= w.lead && in < w.lead + w.run;
      int64_t stop = in < w.lead ? w.lead : copied ? w.lead + w.run : w.row_y;
      int64_t count = stop - in < range.end - at ? stop - in : range.end - at;
      if (copied)
        memcpy(y + at, x + row * w.row_x + w.skip + (in - w.lead), (size_t)count);
      else
        memset(y + at, 0, (size_t)count);
      at += count;
    }
  }
}

/* Bytes of one entry of a dim: of all dims behind it. */
static int64_t entry_bytes(const struct gd_view *x, uint32_t dim) {
  int64_t bytes = gd_dtype_bytes(x->dtype);
  for (uint32_t i = dim + 1; i < x->rank; i++)
    bytes *= x->dims[i];
  return bytes;
}

/* Bytes: y twice. */
void gd_cpu_slice(const struct gd_kernel_args *args) {
  const struct gd_attr_slice *a = &args->attr->slice;
  const struct gd_view *x = &args->in[0];
  int64_t entry = entry_bytes(x, a->dim);
  copy_window(args, &(struct window){.row_y = a->length * entry,
                                     .row_x = x->dims[a->dim] * entry,
                                     .skip = a->start * entry,
                                     .run = a->length * entry});
}

/* Bytes: x and y once each. */
void gd_cpu_pad(const struct gd_kernel_args *args) {
  const struct gd_attr_slice *a = &args->attr->slice;
  const struct gd_view *x = &args->in[0];
  int64_t entry = entry_bytes(x, a->dim), run = x->dims[a->dim] * entry;
  copy_window(args,
              &(struct window){
                  .row_y = a->length * entry, .lead = a->start * entry, .row_x = run, .run = run});
}

static void convert_elements(const struct gd_kernel_args *args, const struct gd_view *y,
                             const struct gd_view *x) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  int threads = gd_cpu_threads(args, 8 * x->elements);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(x->elements, GD_CPU_LINE_ELEMENTS, part, threads);
    rows->convert(y->dtype, gd_cpu_at(y, range.begin), x->dtype, gd_cpu_at(x, range.begin),
                  range.end - range.begin);
  }
}

void gd_cpu_copy(const struct gd_kernel_args *args) {
  convert_elements(args, &args->out[0], &args->in[1]);
}

void gd_cpu_cast(const struct gd_kernel_args *args) {
  convert_elements(args, &args->out[0], &args->in[0]);
}

/* One thread owns a sequence: its count runs through it. Bytes: ids and y once each. */
void gd_cpu_positions(const struct gd_kernel_args *args) {
  const struct gd_view *ids = &args->in[0];
  const int32_t pad = args->attr->positions.pad;
  int64_t sequences = ids->dims[0], steps = ids->dims[1];
  int threads = gd_cpu_threads(args, 8 * ids->elements);
#pragma omp parallel for num_threads(threads)
  for (int64_t b = 0; b < sequences; b++) {
    const int32_t *x = (const int32_t *)ids->data + b * steps;
    int32_t *y = (int32_t *)args->out[0].data + b * steps, count = 0;
    for (int64_t t = 0; t < steps; t++) {
      int32_t real = x[t] != pad;
      count += real;
      y[t] = pad + (count & -real);
    }
  }
}

/* A block of the value is prepared once and copied over the range; zero is the C library's. */
void gd_cpu_fill(const struct gd_kernel_args *args) {
  enum { BLOCK = 1024 };
  const struct gd_view *y = &args->out[0];
  int64_t size = gd_dtype_bytes(y->dtype);
  int threads = gd_cpu_threads(args, size * y->elements);
  uint32_t block[BLOCK] = {0};
  for (int64_t i = 0; i < BLOCK; i++)
    gd_dtype_store(y->dtype, block, i, args->attr->fill.value);
  bool zero = block[0] == 0;
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(y->elements, BLOCK, part, threads);
    if (zero)
      memset(gd_cpu_at(y, range.begin), 0, (size_t)((range.end - range.begin) * size));
    for (int64_t i = range.begin; i < range.end && !zero; i += BLOCK) {
      int64_t count = range.end - i < BLOCK ? range.end - i : BLOCK;
      memcpy(gd_cpu_at(y, i), block, (size_t)(count * size));
    }
  }
}

/* --- transpose ------------------------------------------------------------------------------ */

/* A dim of the output: neighbours along it are so many bytes apart on either side. */
struct axis {
  int64_t extent, in_bytes, out_bytes;
};

/* Dims of the output without those of extent 1, neighbours in both tensors merged. */
static uint32_t merged_axes(const struct gd_view *x, const uint8_t *perm, struct axis *axes) {
  int64_t in_bytes[GD_MAX_RANK], out_bytes[GD_MAX_RANK];
  int64_t size = gd_dtype_bytes(x->dtype), in_step = size, out_step = size;
  for (uint32_t i = x->rank; i-- > 0;) {
    in_bytes[i] = in_step;
    in_step *= x->dims[i];
    out_bytes[i] = out_step;
    out_step *= x->dims[perm[i]];
  }
  uint32_t count = 0;
  for (uint32_t i = 0; i < x->rank; i++) {
    struct axis axis = {x->dims[perm[i]], in_bytes[perm[i]], out_bytes[i]};
    struct axis *last = &axes[count - (count > 0)];
    if (axis.extent == 1)
      continue;
    if (count > 0 && last->in_bytes == axis.in_bytes * axis.extent) {
      last->extent *= axis.extent;
      last->in_bytes = axis.in_bytes;
      last->out_bytes = axis.out_bytes;
    } else {
      axes[count++] = axis;
    }
  }
  return count;
}

/* Nested loops as one range of steps, so that threads can share it. Outermost loop first. */
struct walk {
  uint32_t count;
  struct axis loops[GD_MAX_RANK];
};

struct cursor {
  int64_t index[GD_MAX_RANK];
  int64_t in, out; /* bytes from the start */
};

static int64_t walk_steps(const struct walk *walk) {
  int64_t steps = 1;
  for (uint32_t i = 0; i < walk->count; i++)
    steps *= walk->loops[i].extent;
  return steps;
}

static void cursor_set(const struct walk *walk, int64_t step, struct cursor *at) {
  at->in = at->out = 0;
  for (uint32_t i = walk->count; i-- > 0;) {
    const struct axis *loop = &walk->loops[i];
    at->index[i] = step % loop->extent;
    step /= loop->extent;
    at->in += at->index[i] * loop->in_bytes;
    at->out += at->index[i] * loop->out_bytes;
  }
}

static void cursor_next(const struct walk *walk, struct cursor *at) {
  for (uint32_t i = walk->count; i-- > 0;) {
    const struct axis *loop = &walk->loops[i];
    at->in += loop->in_bytes;
    at->out += loop->out_bytes;
    if (++at->index[i] < loop->extent)
      return;
    at->in -= loop->extent * loop->in_bytes;
    at->out -= loop->extent * loop->out_bytes;
    at->index[i] = 0;
  }
}

static struct axis tiles_of(const struct axis *axis, int64_t tile) {
  return (struct axis){(axis->extent + tile - 1) / tile, axis->in_bytes * tile,
                       axis->out_bytes * tile};
}

static int64_t tile_extent(const struct axis *axis, int64_t tile, int64_t index) {
  int64_t left = axis->extent - index * tile;
  return left < tile ? left : tile;
}

/*
 * The last dim stays last: rows of `run` bytes are copied. A step copies ROWS rows along the
 * innermost other dim of the output. Dims with smaller input steps run inside these tiles and the
 * others outside them, so that the input a thread jumps about in is small and stays in cache until
 * it is used up.
 */
static void transpose_runs(const struct gd_kernel_args *args, const struct axis *axes,
                           uint32_t count, int64_t run) {
  enum { ROWS = 32 };
  const struct axis rows = axes[count - 1];
  struct walk walk = {0};
  for (uint32_t i = 0; i + 1 < count; i++)
    if (axes[i].in_bytes > rows.in_bytes)
      walk.loops[walk.count++] = axes[i];
  uint32_t tile_loop = walk.count;
  walk.loops[walk.count++] = tiles_of(&rows, ROWS);
  for (uint32_t i = 0; i + 1 < count; i++)
    if (axes[i].in_bytes <= rows.in_bytes)
      walk.loops[walk.count++] = axes[i];

  int64_t steps = walk_steps(&walk);
  int threads = gd_cpu_threads(args, 4 * args->in[0].elements);
  const char *from = args->in[0].data;
  char *to = args->out[0].data;
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(steps, 1, part, threads);
    struct cursor at;
    cursor_set(&walk, range.begin, &at);
    for (int64_t step = range.begin; step < range.end; step++) {
      int64_t n = tile_extent(&rows, ROWS, at.index[tile_loop]);
      for (int64_t i = 0; i < n; i++)
        memcpy(to + at.out + i * rows.out_bytes, from + at.in + i * rows.in_bytes, (size_t)run);
      cursor_next(&walk, &at);
    }
  }
}

/*
 * Another dim becomes last: tiles of TILE x TILE elements between that dim and the one that was
 * last. A tile is transposed into a buffer, square by square, and leaves it in whole lines: output
 * rows that are a power of two apart, or nearly, would evict each other from L1 before their lines
 * are full. Tiles follow each other along the output's rows: few pages are written at a time.
 *
 * In a square of 16-byte vectors, interleaving the first half of the rows with the second rotates
 * the digits of (row, column) by one; log2 of the rows such steps exchange the two.
 */
enum { TILE = 64 };

typedef uint16_t u16x8 __attribute__((vector_size(16)));
typedef uint32_t u32x4 __attribute__((vector_size(16)));

/* The elements of `size` bytes of a and b in turn: of the first half of each, and of the second. */
static inline u16x8 interleave_low(int64_t size, u16x8 a, u16x8 b) {
  return size == 2 ? __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
                   : (u16x8)__builtin_shufflevector((u32x4)a, (u32x4)b, 0, 4, 1, 5);
}
static inline u16x8 interleave_high(int64_t size, u16x8 a, u16x8 b) {
  return size == 2 ? __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
                   : (u16x8)__builtin_shufflevector((u32x4)a, (u32x4)b, 2, 6, 3, 7);
}

/* 2: eight rows, three steps; 4: four rows, two steps. A constant, so that no loop is left. */
static inline __attribute__((always_inline)) void transpose_square(const int64_t size, char *to,
                                                                   int64_t out_bytes,
                                                                   const char *from,
                                                                   int64_t in_bytes) {
  const int64_t rows = 16 / size, half = rows / 2;
  u16x8 x[8], y[8];
  GD_CPU_UNROLL
  for (int64_t i = 0; i < rows; i++)
    memcpy(&x[i], from + i * in_bytes, sizeof x[i]);
  GD_CPU_UNROLL
  for (int64_t step = 1; step < rows; step *= 2) {
    GD_CPU_UNROLL
    for (int64_t i = 0; i < half; i++) {
      y[2 * i] = interleave_low(size, x[i], x[i + half]);
      y[2 * i + 1] = interleave_high(size, x[i], x[i + half]);
    }
    GD_CPU_UNROLL
    for (int64_t i = 0; i < rows; i++)
      x[i] = y[i];
  }
  GD_CPU_UNROLL
  for (int64_t i = 0; i < rows; i++)
    memcpy(to + i * out_bytes, &x[i], sizeof x[i]);
}

static void transpose_square_2(char *to, int64_t out_bytes, const char *from, int64_t in_bytes) {
  transpose_square(2, to, out_bytes, from, in_bytes);
}

static void transpose_square_4(char *to, int64_t out_bytes, const char *from, int64_t in_bytes) {
  transpose_square(4, to, out_bytes, from, in_bytes);
}

/* rows x columns elements of `size` bytes: squares, then what is left at the edges. */
static void transpose_tile(int64_t size, char *to, int64_t out_bytes, const char *from,
                           int64_t in_bytes, int64_t rows, int64_t columns) {
  uint32_t buffer[TILE * TILE];
  char *transposed = (char *)buffer; /* [columns][TILE] elements */
  int64_t side = 16 / size, step = TILE * size, r = 0;
  for (; r + side <= rows; r += side) {
    int64_t c = 0;
    for (; c + side <= columns; c += side)
      (size == 2 ? transpose_square_2 : transpose_square_4)(
          transposed + c * step + r * size, step, from + r * in_bytes + c * size, in_bytes);
    for (; c < columns; c++)
      for (int64_t i = r; i < r + side; i++)
        memcpy(transposed + c * step + i * size, from + i * in_bytes + c * size, (size_t)size);
  }
  for (; r < rows; r++)
    for (int64_t c = 0; c < columns; c++)
      memcpy(transposed + c * step + r * size, from + r * in_bytes + c * size, (size_t)size);
  for (int64_t c = 0; c < columns; c++)
    memcpy(to + c * out_bytes, transposed + c * step, (size_t)(rows * size));
}

static void transpose_tiles(const struct gd_kernel_args *args, const struct axis *axes,
                            uint32_t count) {
  int64_t size = gd_dtype_bytes(args->in[0].dtype);
  const struct axis rows = axes[count - 1]; /* last in the output */
  struct axis columns = {0};                /* last in the input */
  struct walk walk = {0};
  for (uint32_t i = 0; i + 1 < count; i++) {
    if (axes[i].in_bytes == size)
      columns = axes[i];
    else
      walk.loops[walk.count++] = axes[i];
  }
  GD_ASSERT(columns.extent > 0); /* some dim of more than one element comes last */
  uint32_t tile_loop = walk.count;
  walk.loops[walk.count++] = tiles_of(&columns, TILE);
  walk.loops[walk.count++] = tiles_of(&rows, TILE);

  int64_t steps = walk_steps(&walk);
  int threads = gd_cpu_threads(args, 4 * args->in[0].elements);
  const char *from = args->in[0].data;
  char *to = args->out[0].data;
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(steps, 1, part, threads);
    struct cursor at;
    cursor_set(&walk, range.begin, &at);
    for (int64_t step = range.begin; step < range.end; step++) {
      transpose_tile(size, to + at.out, columns.out_bytes, from + at.in, rows.in_bytes,
                     tile_extent(&rows, TILE, at.index[tile_loop + 1]),
                     tile_extent(&columns, TILE, at.index[tile_loop]));
      cursor_next(&walk, &at);
    }
  }
}

/* Bytes: x and y once each. */
void gd_cpu_transpose(const struct gd_kernel_args *args) {
  const struct gd_view *x = &args->in[0], *y = &args->out[0];
  struct axis axes[GD_MAX_RANK];
  int64_t size = gd_dtype_bytes(x->dtype);
  if (x->elements == 0)
    return;
  uint32_t count = merged_axes(x, args->attr->transpose.perm, axes);
  if (count <= 1)
    copy_bytes(args, y->data, x->data, x->elements * size);
  else if (axes[count - 1].in_bytes == size)
    transpose_runs(args, axes, count - 1, axes[count - 1].extent * size);
  else
    transpose_tiles(args, axes, count);
}
