/*
 * Cases of attention, attention_grad. Shapes: sequences around the blocks and strips
 * that the cpu kernels cut them into, head sizes around vectors and pairs, heads that share keys,
 * one sequence and many; masked or not, with dropout or not. T odd puts rows of the weights at
 * every place within a counter of random numbers. fp32 also where TF32 is permitted, at some
 * shapes.
 */
#include <math.h>

#include "op/op_cases.h"

static const struct attention_shape attention_shapes[] = {
    {1, 1, 1, 1, 1},    {2, 3, 3, 5, 3},    {1, 2, 2, 17, 16},  {2, 2, 1, 33, 17},
    {1, 4, 2, 14, 8},   {1, 2, 2, 112, 32}, {1, 1, 1, 113, 64}, {1, 6, 2, 29, 20},
    {1, 2, 1, 225, 24}, {1, 1, 1, 240, 64}, {2, 1, 1, 97, 80},  {1, 1, 1, 130, 128},
    {1, 1, 1, 31, 256}, {1, 1, 1, 19, 255}, {1, 1, 1, 12, 520}, {3, 5, 5, 2, 10},
    {1, 3, 3, 197, 64}, {2, 1, 1, 208, 16}, {0, 2, 2, 3, 4},    {1, 2, 2, 0, 4},
    {1, 0, 2, 5, 4},    {2, 2, 1, 7, 0},
};

/* q, k, v as inputs first, first + 1, first + 2. */
static void attention_inputs(struct op_case *c, uint32_t first, const struct attention_shape *shape,
                             enum gd_dtype dtype) {
  struct op_input q = {
      .dtype = dtype, DIMS(shape->batch, shape->heads, shape->steps, shape->size), .high = 2};
  struct op_input k = q;
  k.dims[1] = shape->key_heads;
  c->in[first] = q;
  c->in[first + 1] = c->in[first + 2] = k;
  c->in[first + 2].high = 1;
}

/* mode: 1 causal, 2 with dropout, 4 fp32 in TF32, 8 by a library that rounds in fp16 what others
   round in bf16. nan: an input with a NaN, or -1. */
static void check_attention_with(enum gd_op_kind kind, const struct attention_shape *shape,
                                 uint64_t random_seed, enum gd_dtype dtype, int mode, int nan) {
  static const double seed[] = {5, 3, 7};
  struct op_case c = {.kind = kind, .seed = random_seed};
  bool tf32 = mode & 4;
  double t = (double)shape->steps, size = (double)shape->size;
  c.attr.attention = (struct gd_attr_attention){.causal = mode & 1,
                                                .scale = 1 / sqrtf((float)size + 1),
                                                .probability = mode & 2 ? 0.3f : 0,
                                                .tf32 = tf32,
                                                .stream = 9};
  /* In bf16 the weights, and in the backward pass their gradients, are rounded before they are
     multiplied: each is off by up to 2^-9 of itself, in no direction. TF32 rounds everything that
     is multiplied, to 2^-12 of itself. */
  double rounded = dtype == GD_DTYPE_BF16 ? 0x1p-9
                   : tf32                 ? 0x1p-11
                   : mode & 8             ? 0x1p-12
                                          : 2 * last_bit;
  if (kind == GD_OP_attention) {
    attention_inputs(&c, 0, shape, dtype);
    c.n_in = 3;
    c.noise = (tf32 ? 8 : 1) * rounded + 8 * last_bit;
  } else {
    attention_inputs(&c, 1, shape, dtype);
    c.in[0] = c.in[4] = c.in[1];
    c.in[0].high = c.in[4].high = 1;
    /* About what the logsumexp is, so that the weights sum to about 1. */
    c.in[5] = (struct op_input){.dtype = GD_DTYPE_F32,
                                .rank = 3,
                                .dims = {c.in[0].dims[0], c.in[0].dims[1], c.in[0].dims[2]},
                                .low = log(t + 1),
                                .high = log(t + 1) + 1};
    c.n_in = 6;
    c.noise = 4 * rounded * sqrt(size + 1);
  }
  if (mode & 2)
    c.in[c.n_in++] =
        (struct op_input){.dtype = GD_DTYPE_I32, DIMS(3), .fill = OP_FILL_VALUES, .values = seed};
  if (nan >= 0)
    c.in[nan].fill = OP_FILL_NAN;
  check(&c);
}

void check_attention_of(enum gd_op_kind kind, const struct attention_shape *shape,
                        uint64_t random_seed, enum gd_dtype dtype, int mode) {
  check_attention_with(kind, shape, random_seed, dtype, mode, -1);
}

/* A NaN reaches what depends on it, and nothing else. Not causal: what is masked next to a NaN may
   become NaN too. */
static void check_attention_nan(enum gd_op_kind kind) {
  static const struct attention_shape shapes[] = {
      {1, 2, 1, 33, 17}, {2, 2, 2, 113, 64}, {1, 2, 2, 225, 32}};
  for (int64_t s = 0; s < COUNT(shapes); s++)
    for (int64_t d = 0; d < COUNT(floats); d++)
      for (int mode = 0; mode < (floats[d] == GD_DTYPE_F32 ? 8 : 4); mode += 4)
        for (int nan = 0; nan < (kind == GD_OP_attention ? 3 : 4); nan++)
          check_attention_with(kind, &shapes[s], (uint64_t)s, floats[d], mode, nan);
}

static void check_attention(enum gd_op_kind kind) {
  for (int64_t s = 0; s < COUNT(attention_shapes); s++)
    for (int64_t d = 0; d < COUNT(floats); d++)
      for (int mode = 0; mode < 8; mode++) {
        const struct attention_shape *shape = &attention_shapes[s];
        if (!(mode & 4) || (floats[d] == GD_DTYPE_F32 && (shape->steps > 90 || shape->size == 17)))
          check_attention_of(kind, shape, (uint64_t)s, floats[d], mode);
      }
}

void cases_attention(void) {
  check_attention(GD_OP_attention);
  check_attention_nan(GD_OP_attention);
}

void cases_attention_grad(void) {
  check_attention(GD_OP_attention_grad);
  check_attention_nan(GD_OP_attention_grad);
}
