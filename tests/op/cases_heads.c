/*
 * Cases of split_heads, merge_heads. Shapes: heads that are no whole vectors, parts of
 * the rotary part that are fewer than a vector, tokens around the tiles of the cpu kernel, one part
 * to three in both orders, every choice of parts that turn.
 */
#include "op/op_cases.h"

static const struct {
  int64_t batch, tokens, heads, size;
} heads_shapes[] = {
    {1, 1, 1, 1},   {2, 3, 2, 2},    {2, 5, 3, 7},   {1, 31, 2, 16}, {2, 33, 3, 24}, {1, 65, 2, 64},
    {3, 17, 1, 80}, {1, 40, 5, 128}, {1, 4, 1, 520}, {0, 3, 2, 4},   {1, 0, 2, 4},   {2, 3, 2, 0},
};

static void check_heads(enum gd_op_kind kind) {
  bool split = kind == GD_OP_split_heads;
  for (int64_t s = 0; s < COUNT(heads_shapes); s++)
    for (int64_t d = 0; d < COUNT(floats); d++)
      for (uint32_t parts = 1; parts <= GD_HEADS_PARTS; parts++)
        for (uint32_t mode = 0; mode < 4u << parts; mode++) {
          int64_t b = heads_shapes[s].batch, t = heads_shapes[s].tokens;
          int64_t n = heads_shapes[s].heads, size = heads_shapes[s].size;
          struct op_case c = {.kind = kind, .seed = (uint64_t)s};
          struct gd_attr_heads *a = &c.attr.heads;
          *a = (struct gd_attr_heads){.heads = n,
                                      .parts = parts,
                                      .interleaved = mode & 1,
                                      .inverse = mode & 2,
                                      .rotated = mode >> 2};
          if ((a->inverse && !a->rotated) || (a->interleaved && parts == 1))
            continue; /* the same again */
          a->rotary = a->rotated ? size * (1 + (s + parts + mode) % 4) / 4 / 2 * 2 : 0;
          struct op_input x = {.dtype = floats[d], DIMS(b, t, parts * n * size)};
          struct op_input part = {.dtype = floats[d], DIMS(b, n, t, size)};
          c.n_in = split ? 1 : parts;
          for (uint32_t i = 0; i < c.n_in; i++)
            c.in[i] = split ? x : part;
          if (a->rotated)
            c.in[c.n_in++] = (struct op_input){
                .dtype = GD_DTYPE_F32, DIMS(t, a->rotary), .fill = OP_FILL_ANGLES};
          check(&c);
        }
}

void cases_split_heads(void) {
  check_heads(GD_OP_split_heads);
}

void cases_merge_heads(void) {
  check_heads(GD_OP_merge_heads);
}
