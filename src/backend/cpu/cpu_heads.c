/*
 * split_heads and merge_heads of the cpu backend: what a transpose, a split and rotary positions
 * would do, in one pass over memory. The rotation is the kernel of rope with other steps between
 * rows, so the bits are those of the ops apart.
 */
#include <string.h>

#include "backend/cpu/cpu_int.h"

/* Tokens that a thread takes at a time, all heads of them before the next ones: their part of x
   then stays in L2, and what is read or written of a head is contiguous. */
enum { TOKENS = 32 };

struct heads {
  struct gd_cpu_rope rope; /* without rows: of a head of all tokens of a sample */
  const struct gd_attr_heads *attr;
  const struct gd_view *x, *parts;
  int64_t heads, tokens, columns; /* N, T, D */
  bool split;
};

/* Tokens begin .. end of head `in_token` of sample b, in the order of x. */
static void move_head(const struct gd_cpu_rows *rows, const struct heads *h, int64_t b,
                      int64_t begin, int64_t end, int64_t in_token) {
  int64_t count = h->attr->parts, width = count * h->heads * h->columns;
  int64_t part = h->attr->interleaved ? in_token % count : in_token / h->heads;
  int64_t head = h->attr->interleaved ? in_token / count : in_token % h->heads;
  void *in_x = gd_cpu_at(h->x, b * h->tokens * width + in_token * h->columns);
  void *in_part = gd_cpu_at(&h->parts[part], (b * h->heads + head) * h->tokens * h->columns);
  struct gd_cpu_rope rope = h->rope;
  rope.x = h->split ? in_x : in_part;
  rope.y = h->split ? in_part : in_x;
  rope.x_step = h->split ? width : h->columns;
  rope.y_step = h->split ? h->columns : width;
  if (h->attr->rotated >> part & 1u) {
    rows->rope(&rope, begin, end);
    return;
  }
  int64_t size = gd_dtype_bytes(rope.dtype);
  for (int64_t t = begin; t < end; t++)
    memcpy((char *)rope.y + t * rope.y_step * size, (const char *)rope.x + t * rope.x_step * size,
           (size_t)(h->columns * size));
}

/* Bytes: x and the parts once each. */
static void move_heads(const struct gd_kernel_args *args, bool split) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_attr_heads *attr = &args->attr->heads;
  const struct gd_view *parts = split ? args->out : args->in;
  struct heads h = {.attr = attr,
                    .x = split ? args->in : args->out,
                    .parts = parts,
                    .heads = parts->dims[1],
                    .tokens = parts->dims[2],
                    .columns = parts->dims[3],
                    .split = split};
  h.rope = (struct gd_cpu_rope){
      .dtype = parts->dtype,
      .columns = h.columns,
      .rotary = attr->rotary,
      .positions = h.tokens,
      .inverse = attr->inverse,
      .table = attr->rotated ? args->in[split ? 1 : attr->parts].data : NULL,
  };
  if (h.x->elements == 0)
    return;
  int64_t in_token = attr->parts * h.heads, tiles = (h.tokens + TOKENS - 1) / TOKENS;
  int64_t steps = parts->dims[0] * tiles * in_token;
  int threads = gd_cpu_threads(args, 4 * h.x->elements);
#pragma omp parallel for num_threads(threads)
  for (int thread = 0; thread < threads; thread++) {
    struct gd_cpu_range range = gd_cpu_share(steps, 1, thread, threads);
    for (int64_t step = range.begin; step < range.end; step++) {
      int64_t tile = step / in_token % tiles, begin = tile * TOKENS;
      int64_t end = begin + TOKENS < h.tokens ? begin + TOKENS : h.tokens;
      move_head(rows, &h, step / in_token / tiles, begin, end, step % in_token);
    }
  }
}

void gd_cpu_split_heads(const struct gd_kernel_args *args) {
  move_heads(args, true);
}

void gd_cpu_merge_heads(const struct gd_kernel_args *args) {
  move_heads(args, false);
}
