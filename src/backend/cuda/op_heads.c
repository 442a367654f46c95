/*
 * split_heads and merge_heads of the CUDA backend: one launch for all parts, kernels/heads.cu. Its
 * struct is repeated here.
 */
#include <stdio.h>

#include "backend/cuda/columns.h"
#include "backend/cuda/divide.h"

enum {
  VECTOR_BYTES = 16, /* the widest access */
  BLOCK = 256,       /* threads */
  DEFINES = 96,      /* bytes of a list of defines */
  MOST_RUN = 32,     /* elements of a rotary part that one thread rotates */
};

struct heads {
  void *x;
  void *part[GD_HEADS_PARTS];
  const void *table;
  int64_t rows, columns, rotary;
  int64_t heads;
  struct gd_divider by_token, by_positions, by_inner;
  uint32_t rotated;
  int32_t interleaved;
  int32_t lanes;
  int64_t items;
  float sign;
};

/* How rows move: see the head of kernels/heads.cu. */
struct way {
  int64_t vec;
  int rotates, unroll;
  int64_t run; /* vectors of the rotary part, with `rotates` 3 */
};

/* May so many elements move as one? */
static bool vector_fits(const struct heads *h, int64_t vec, int64_t size, uint32_t parts) {
  if (h->columns % vec || !gd_cuda_aligned(h->x, vec * size))
    return false;
  for (uint32_t i = 0; i < parts; i++)
    if (!gd_cuda_aligned(h->part[i], vec * size))
      return false;
  return true;
}

/* The halves of the rotary part and what is behind them too? */
static bool halves_fit(const struct heads *h, int64_t vec) {
  int64_t angle_bytes = gd_cuda_least(vec * (int64_t)sizeof(float), VECTOR_BYTES);
  return !h->rotated || (h->rotary / 2 % vec == 0 && gd_cuda_aligned(h->table, angle_bytes));
}

static int32_t lanes_for(int64_t items) {
  return (int32_t)gd_cuda_least(gd_cuda_power(items), BLOCK);
}

/* One unit of the rotary part a thread at most, whatever `most` rows it has? */
static bool spreads(const struct heads *h, int64_t vec, struct way *way) {
  int64_t items = h->columns / vec, units = 1;
  way->rotates = h->rotary / 2 % vec ? 3 : 2;
  way->run = gd_cuda_ceil(h->rotary, vec);
  if (way->rotates == 2)
    units = h->rotary / 2 / vec;
  else if (h->rotary > MOST_RUN || h->rotary % 4 || way->run > items)
    return false;
  if (items > BLOCK || !gd_cuda_aligned(h->table, VECTOR_BYTES))
    return false;
  for (way->unroll = 4; way->unroll > 1 && way->unroll * units > lanes_for(items);)
    way->unroll /= 2;
  return way->unroll > 1;
}

static struct way choose_way(const struct heads *h, int64_t size, uint32_t parts) {
  struct way way = {.vec = VECTOR_BYTES / size};
  while (way.vec > 1 && !vector_fits(h, way.vec, size, parts))
    way.vec /= 2;
  if (h->rotated && way.vec * size >= 8 && spreads(h, way.vec, &way))
    return way;
  way.rotates = h->rotated != 0;
  way.unroll = h->rotated ? 2 : 4; /* a pair is two vectors */
  while (way.vec > 1 && !halves_fit(h, way.vec))
    way.vec /= 2;
  return way;
}

static enum gd_status move_heads(const struct gd_cuda_call *call, const char *name, bool split) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_attr_heads *attr = &args->attr->heads;
  const struct gd_view *x = split ? args->in : args->out, *parts = split ? args->out : args->in;
  int64_t size = gd_dtype_bytes(x->dtype);
  if (x->elements == 0)
    return GD_OK;
  struct heads h = {
      .x = x->data,
      .rows = x->elements / parts->dims[3],
      .columns = parts->dims[3],
      .rotary = attr->rotated ? attr->rotary : 0,
      .heads = attr->heads,
      .by_token = gd_divider_of(attr->parts * attr->heads),
      .by_positions = gd_divider_of(parts->dims[2]),
      .by_inner = gd_divider_of(attr->interleaved ? (int64_t)attr->parts : attr->heads),
      .interleaved = attr->interleaved,
      .sign = attr->inverse ? -1.0f : 1.0f,
  };
  h.rotated = h.rotary > 0 ? attr->rotated : 0;
  for (uint32_t i = 0; i < attr->parts; i++)
    h.part[i] = parts[i].data;
  if (h.rotated)
    h.table = args->in[split ? 1 : attr->parts].data;
  struct way way = choose_way(&h, size, attr->parts);

  /* Where every part turns, a row has a pair of vectors for two of its vectors. */
  bool all = way.rotates == 1 && h.rotated + 1 == 1u << attr->parts;
  h.items = (h.columns - (all ? h.rotary / 2 : 0)) / way.vec;
  h.lanes = lanes_for(h.items);
  char defines[DEFINES];
  snprintf(defines, sizeof defines, "VEC=%d UNROLL=%d ROTATES=%d WIDE=%d RUN=%d HALF=%d",
           (int)way.vec, way.unroll, way.rotates, h.rows >= GD_CUDA_DIVIDEND_LIMIT,
           way.rotates == 3 ? (int)way.run : 0, way.rotates == 3 ? (int)h.rotary / 2 : 0);
  struct gd_cuda_kernel kernel = {"heads", name, defines, 1, {x->dtype}};
  struct gd_cuda_grid grid = {.x = gd_cuda_ceil(h.rows, (int64_t)(BLOCK / h.lanes) * way.unroll),
                              .threads = BLOCK};
  return GD_CUDA_LAUNCH(call, &kernel, grid, &h);
}

enum gd_status gd_cuda_op_split_heads(const struct gd_cuda_call *call) {
  return move_heads(call, "split_heads", true);
}

enum gd_status gd_cuda_op_merge_heads(const struct gd_cuda_call *call) {
  return move_heads(call, "merge_heads", false);
}
