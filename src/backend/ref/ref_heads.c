/*
 * ref kernels of split_heads and merge_heads: between x[B,T,C], where a token's heads follow each
 * other, and parts [B,N,T,D], where a head's tokens do. A head of a rotated part turns on the way
 * as ref_rope has it; nothing else changes a bit.
 */
#include "backend/ref/ref_int.h"

struct heads {
  const struct gd_view *x, *parts, *table;
  const struct gd_attr_heads *attr;
  int64_t b, n, t, d; /* of a part */
};

static struct heads heads_of(const struct gd_kernel_args *args, bool split) {
  struct heads h = {.x = split ? args->in : args->out,
                    .parts = split ? args->out : args->in,
                    .table = &args->in[split ? 1 : args->attr->heads.parts],
                    .attr = &args->attr->heads};
  h.b = h.parts->dims[0];
  h.n = h.parts->dims[1];
  h.t = h.parts->dims[2];
  h.d = h.parts->dims[3];
  return h;
}

/* One head of one token, rotated: see gd_ref_rope. */
static void turn(const struct heads *h, const struct gd_view *to, int64_t to_at,
                 const struct gd_view *from, int64_t from_at, int64_t t) {
  int64_t rotary = h->attr->rotary, half = rotary / 2;
  double sign = h->attr->inverse ? -1 : 1;
  for (int64_t i = 0; i < half; i++) {
    double a = get(from, from_at + i), b = get(from, from_at + i + half);
    double cosine = get(h->table, t * rotary + i),
           sine = sign * get(h->table, t * rotary + i + half);
    put(to, to_at + i, a * cosine - b * sine);
    put(to, to_at + i + half, b * cosine + a * sine);
  }
  move(to, to_at + rotary, from, from_at + rotary, h->d - rotary);
}

/* parts[p][b,n,t,:] and x[b,t,p,n,:], or x[b,t,n,p,:], one from the other. */
static void move_heads(const struct gd_kernel_args *args, bool split) {
  const struct heads h = heads_of(args, split);
  int64_t parts = h.attr->parts;
  for (int64_t b = 0; b < h.b; b++)
    for (int64_t t = 0; t < h.t; t++)
      for (int64_t n = 0; n < h.n; n++)
        for (int64_t p = 0; p < parts; p++) {
          int64_t in_token = h.attr->interleaved ? n * parts + p : p * h.n + n;
          int64_t x_at = ((b * h.t + t) * h.n * parts + in_token) * h.d;
          int64_t part_at = ((b * h.n + n) * h.t + t) * h.d;
          const struct gd_view *from = split ? h.x : &h.parts[p], *to = split ? &h.parts[p] : h.x;
          int64_t from_at = split ? x_at : part_at, to_at = split ? part_at : x_at;
          if (h.attr->rotated >> p & 1u)
            turn(&h, to, to_at, from, from_at, t);
          else
            move(to, to_at, from, from_at, h.d);
        }
}

void gd_ref_split_heads(const struct gd_kernel_args *args) {
  move_heads(args, true);
}

void gd_ref_merge_heads(const struct gd_kernel_args *args) {
  move_heads(args, false);
}
