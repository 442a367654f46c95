/*
 * split_heads and merge_heads of the CUDA backend: one launch for all parts, kernels/heads.cu.
 */
#include <stdio.h>

#include "backend/cuda/kernels/heads_args.cuh"
#include "backend/cuda/pointwise/columns.h"
#include "backend/cuda/runtime/divide.h"
#include "base/sizes.h"

enum {
  VECTOR_BYTES = 16, /* the widest access */
  BLOCK = 256,       /* threads */
  TOKENS = 8,        /* of a group: see the kernel */
  UNROLL = 4,        /* rows of a thread */
  MOST_PAIR = 4,     /* neighbours that a thread rotates */
  LEAST_BYTES = 8,   /* of these; of fewer, rows are rotated in shared memory */
  DEFINES = 80,      /* bytes of a list of defines */
};

/* Whether so many elements can move as one vector. */
static bool vector_fits(const struct gd_heads_args *h, int64_t vec, int64_t size, uint32_t parts) {
  if (h->columns % vec || !gd_cuda_aligned(h->x, vec * size))
    return false;
  for (uint32_t i = 0; i < parts; i++)
    if (!gd_cuda_aligned(h->part[i], vec * size))
      return false;
  return true;
}

/* How many neighbours are rotated at a time: they divide half of the rotary columns, and what the
   last vector has left behind them. */
static int64_t pair_of(const struct gd_heads_args *h, int64_t vec) {
  int64_t pair = gd_least(vec, MOST_PAIR);
  while (pair > 1 && (h->rotary / 2 % pair || (h->second - h->rotary) % pair ||
                      !gd_cuda_aligned(h->table, pair * (int64_t)sizeof(float))))
    pair /= 2;
  return pair;
}

static enum gd_status move_heads(const struct gd_cuda_call *call, const char *name, bool split) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_attr_heads *attr = &args->attr->heads;
  const struct gd_view *x = split ? args->in : args->out, *parts = split ? args->out : args->in;
  int64_t size = gd_dtype_bytes(x->dtype), vec = VECTOR_BYTES / size;
  if (x->elements == 0)
    return GD_OK;
  _Static_assert(GD_HEADS_PARTS == 3, "kernels/heads_args.cuh");
  struct gd_heads_args h = {
      .x = x->data,
      .tokens = parts->dims[0] * parts->dims[2],
      .columns = parts->dims[3],
      .rotary = attr->rotated ? attr->rotary : 0,
      .heads = attr->heads,
      .by_group = gd_divider_of(attr->parts * attr->heads * TOKENS),
      .by_positions = gd_divider_of(parts->dims[2]),
      .by_inner = gd_divider_of(attr->interleaved ? (int64_t)attr->parts : attr->heads),
      .interleaved = attr->interleaved,
      .sign = attr->inverse ? -1.0f : 1.0f,
  };
  h.rows = gd_div_up(h.tokens, TOKENS) * TOKENS * attr->parts * attr->heads;
  h.rotated = h.rotary > 0 ? attr->rotated : 0;
  for (uint32_t i = 0; i < attr->parts; i++)
    h.part[i] = parts[i].data;
  if (h.rotated)
    h.table = args->in[split ? 1 : attr->parts].data;
  while (vec > 1 && !vector_fits(&h, vec, size, attr->parts))
    vec /= 2;

  h.items = (int32_t)(h.columns / vec);
  h.lanes = (int32_t)gd_least(h.items, BLOCK);
  h.second = (int32_t)(gd_div_up(h.rotary, vec) * vec);
  int64_t pair = pair_of(&h, vec), pieces = (h.rotary / 2 + h.second - h.rotary) / pair;
  h.by_pieces = gd_divider_of(pieces > 0 ? pieces : 1);
  bool stash = h.rotated && pair * size < LEAST_BYTES && h.items == h.lanes;
  char defines[DEFINES];
  snprintf(defines, sizeof defines,
           "VEC=%d UNROLL=%d PAIR=%d ROTATES=%d WIDE=%d TOKENS=%d STASH=%d", (int)vec, UNROLL,
           (int)pair, h.rotated != 0, h.rows >= GD_CUDA_DIVIDEND_LIMIT, TOKENS, stash);
  struct gd_cuda_kernel kernel = {"heads", name, defines, 1, {x->dtype}};
  struct gd_cuda_grid grid = {.x = gd_div_up(h.rows, (int64_t)(BLOCK / h.lanes) * UNROLL),
                              .threads = BLOCK};
  return GD_CUDA_LAUNCH(call, &kernel, grid, &h);
}

enum gd_status gd_cuda_op_split_heads(const struct gd_cuda_call *call) {
  return move_heads(call, "split_heads", true);
}

enum gd_status gd_cuda_op_merge_heads(const struct gd_cuda_call *call) {
  return move_heads(call, "merge_heads", false);
}
