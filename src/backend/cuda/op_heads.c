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
  DEFINES = 64,      /* bytes of a list of defines */
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

/* May so many elements move as one? The halves of the rotary part and what is behind them too. */
static bool vector_fits(const struct heads *h, int64_t vec, int64_t size, uint32_t parts) {
  int64_t angle_bytes = gd_cuda_least(vec * (int64_t)sizeof(float), VECTOR_BYTES);
  if (h->columns % vec || !gd_cuda_aligned(h->x, vec * size))
    return false;
  for (uint32_t i = 0; i < parts; i++)
    if (!gd_cuda_aligned(h->part[i], vec * size))
      return false;
  return !h->rotated || (h->rotary / 2 % vec == 0 && gd_cuda_aligned(h->table, angle_bytes));
}

static enum gd_status move_heads(const struct gd_cuda_call *call, const char *name, bool split) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_attr_heads *attr = &args->attr->heads;
  const struct gd_view *x = split ? args->in : args->out, *parts = split ? args->out : args->in;
  int64_t size = gd_dtype_bytes(x->dtype), vec = VECTOR_BYTES / size;
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
  while (vec > 1 && !vector_fits(&h, vec, size, attr->parts))
    vec /= 2;

  /* Where every part turns, a row has a pair of vectors for two of its vectors. */
  bool all = h.rotated + 1 == 1u << attr->parts;
  h.items = (h.columns - (all ? h.rotary / 2 : 0)) / vec;
  h.lanes = (int32_t)gd_cuda_least(gd_cuda_power(h.items), BLOCK);
  int unroll = h.rotated ? 2 : 4; /* a pair is two vectors */
  char defines[DEFINES];
  snprintf(defines, sizeof defines, "VEC=%d UNROLL=%d ROTATES=%d WIDE=%d", (int)vec, unroll,
           h.rotated != 0, h.rows >= GD_CUDA_DIVIDEND_LIMIT);
  struct gd_cuda_kernel kernel = {"heads", name, defines, 1, {x->dtype}};
  struct gd_cuda_grid grid = {.x = gd_cuda_ceil(h.rows, (int64_t)(BLOCK / h.lanes) * unroll),
                              .threads = BLOCK};
  return GD_CUDA_LAUNCH(call, &kernel, grid, &h);
}

enum gd_status gd_cuda_op_split_heads(const struct gd_cuda_call *call) {
  return move_heads(call, "split_heads", true);
}

enum gd_status gd_cuda_op_merge_heads(const struct gd_cuda_call *call) {
  return move_heads(call, "merge_heads", false);
}
