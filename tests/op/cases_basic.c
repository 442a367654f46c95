/*
 * Cases of the ops that have no file of their own: shapes, forward, gradients, update. See
 * op_cases.h.
 */
#include <math.h>

#include "op/op_cases.h"

static const int64_t sizes[] = {1, 2, 3, 7, 17, 33, 65, 129};

/* --- shapes -------------------------------------------------------------------------------- */

void cases_reshape(void) {
  for (int64_t d = 0; d < COUNT(floats); d++) {
    check_view(GD_OP_reshape, &(union gd_attr){.reshape = {.rank = 1, .dims = {21}}}, floats[d], 2,
               (int64_t[]){3, 7});
    check_view(GD_OP_reshape, &(union gd_attr){.reshape = {.rank = 4, .dims = {1, 0, 5, 2}}},
               floats[d], 1, (int64_t[]){0});
  }
}

void cases_split(void) {
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (uint32_t parts = 1; parts <= 8; parts++)
      check_view(GD_OP_split, &(union gd_attr){.split = {parts}}, floats[d], 2,
                 (int64_t[]){(int64_t)parts * 3, 7});
}

void cases_concat(void) {
  static const enum gd_dtype dtypes[] = {GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16, GD_DTYPE_I32};
  for (int64_t d = 0; d < COUNT(dtypes); d++)
    for (uint32_t n = 1; n <= 16; n++) {
      struct op_case c = {.kind = GD_OP_concat, .n_in = n};
      for (uint32_t i = 0; i < n; i++) /* parts of 0 to 4 rows */
        c.in[i] = (struct op_input){
            .dtype = dtypes[d], DIMS((i * 3 + n) % 5, 7, 3), .low = -50, .high = 50};
      check(&c);
    }
  check(&(struct op_case){.kind = GD_OP_concat,
                          .n_in = 3,
                          .in = {{.dtype = GD_DTYPE_BF16, DIMS(129, 300)},
                                 {.dtype = GD_DTYPE_BF16, DIMS(1, 300)},
                                 {.dtype = GD_DTYPE_BF16, DIMS(65, 300)}}});
}

static void check_transpose(enum gd_dtype dtype, uint32_t rank, const int64_t *dims,
                            const uint8_t *perm) {
  struct op_case c = {.kind = GD_OP_transpose, .n_in = 1};
  c.in[0] = (struct op_input){.dtype = dtype, .rank = rank, .low = -50, .high = 50};
  for (uint32_t i = 0; i < rank; i++) {
    c.in[0].dims[i] = dims[i];
    c.attr.transpose.perm[i] = perm[i];
  }
  check(&c);
}

void cases_transpose(void) {
  static const int64_t dims4[][4] = {{2, 3, 5, 7}, {1, 17, 33, 65}, {3, 1, 129, 2}, {2, 0, 3, 1}};
  static const enum gd_dtype dtypes[] = {GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16, GD_DTYPE_I32};
  for (int64_t d = 0; d < COUNT(dtypes); d++) {
    for (int64_t s = 0; s < COUNT(dims4); s++)
      for (uint32_t code = 0; code < 256; code++) { /* the 24 permutations among the 4^4 words */
        uint8_t perm[4] = {code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6 & 3};
        if ((1u << perm[0] | 1u << perm[1] | 1u << perm[2] | 1u << perm[3]) == 15)
          check_transpose(dtypes[d], 4, dims4[s], perm);
      }
    check_transpose(dtypes[d], 1, (int64_t[]){17}, (uint8_t[]){0});
    check_transpose(dtypes[d], 2, (int64_t[]){129, 65}, (uint8_t[]){1, 0});
    check_transpose(dtypes[d], 2, (int64_t[]){1, 2049}, (uint8_t[]){1, 0});
    /* Rows, columns, or both allow whole vectors. */
    check_transpose(dtypes[d], 2, (int64_t[]){72, 136}, (uint8_t[]){1, 0});
    check_transpose(dtypes[d], 2, (int64_t[]){64, 129}, (uint8_t[]){1, 0});
    check_transpose(dtypes[d], 2, (int64_t[]){129, 64}, (uint8_t[]){1, 0});
    check_transpose(dtypes[d], 4, (int64_t[]){2, 40, 3, 80}, (uint8_t[]){0, 3, 2, 1});
    check_transpose(dtypes[d], 4, (int64_t[]){2, 5, 3, 64}, (uint8_t[]){0, 2, 1, 3});
    check_transpose(dtypes[d], 3, (int64_t[]){3, 17, 7}, (uint8_t[]){2, 0, 1});
    check_transpose(dtypes[d], 5, (int64_t[]){2, 17, 3, 4, 33}, (uint8_t[]){2, 0, 3, 1, 4});
    check_transpose(dtypes[d], 5, (int64_t[]){2, 7, 3, 4, 5}, (uint8_t[]){4, 2, 0, 3, 1});
    check_transpose(dtypes[d], 8, (int64_t[]){2, 3, 2, 1, 3, 2, 5, 3},
                    (uint8_t[]){7, 2, 5, 0, 3, 6, 1, 4});
    check_transpose(dtypes[d], 8, (int64_t[]){2, 3, 2, 1, 3, 2, 5, 3},
                    (uint8_t[]){0, 1, 2, 3, 4, 5, 6, 7});
  }
}

/* --- forward ------------------------------------------------------------------------------- */

void cases_embed(void) {
  static const struct op_input ids[] = {{DIMS(1)}, {DIMS(3, 7)}, {DIMS(129)}, {DIMS(2, 0)}, {0}};
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t s = 0; s < COUNT(sizes); s++)
      for (int64_t i = 0; i < COUNT(ids); i++) {
        struct op_case c = {.kind = GD_OP_embed, .n_in = 2};
        int64_t vocabulary = 1 + sizes[s] * 3;
        c.in[0] = (struct op_input){.dtype = floats[d], DIMS(vocabulary, sizes[s])};
        c.in[1] = ids[i];
        c.in[1].dtype = GD_DTYPE_I32;
        c.in[1].fill = OP_FILL_INDEX;
        c.in[1].high = (double)vocabulary;
        check(&c);
      }
  for (int64_t d = 0; d < COUNT(floats); d++)
    check(&(struct op_case){
        .kind = GD_OP_embed,
        .n_in = 2,
        .in = {{.dtype = floats[d], DIMS(50, 136)},
               {.dtype = GD_DTYPE_I32, DIMS(40), .fill = OP_FILL_INDEX, .high = 50}}});
}

struct matmul_shape {
  uint32_t leading; /* dims before the matrix: of a, and of b unless it is flat */
  int64_t batch[2]; /* their sizes */
  int64_t m, n, k;
  bool flat_b;
};

static struct op_input matrix(enum gd_dtype dtype, const struct matmul_shape *shape,
                              uint32_t leading, int64_t rows, int64_t columns, bool transposed) {
  struct op_input in = {.dtype = dtype, .rank = leading + 2};
  for (uint32_t i = 0; i < leading; i++)
    in.dims[i] = shape->batch[i];
  in.dims[leading] = transposed ? columns : rows;
  in.dims[leading + 1] = transposed ? rows : columns;
  return in;
}

static void check_matmul(const struct matmul_shape *shape, enum gd_dtype dtype,
                         struct gd_attr_matmul attr, bool bias) {
  struct op_case c = {.kind = GD_OP_matmul, .n_in = bias ? 3 : 2, .attr = {.matmul = attr}};
  c.in[0] = matrix(dtype, shape, shape->leading, shape->m, shape->k, attr.trans_a);
  c.in[1] =
      matrix(dtype, shape, shape->flat_b ? 0 : shape->leading, shape->k, shape->n, attr.trans_b);
  if (bias)
    c.in[2] = (struct op_input)F32_VECTOR(shape->n);
  if (bias &&
      op_cases.backend
          ->library_sums) { /* it may want a bias in the dtype of the output: exact in all */
    c.in[2].fill = OP_FILL_EIGHTHS;
    c.in[2].high = 1;
  }
  if (attr.tf32) /* both factors to 2^-12 of themselves; the errors of k terms have any sign */
    c.noise = 0x1p-9 * sqrt((double)shape->k + 1);
  check(&c);
}

void cases_matmul(void) {
  static const int64_t small[] = {1, 3, 17, 65};
  static const struct matmul_shape shapes[] = {
      {.m = 2, .n = 7, .k = 33},
      {.m = 129, .n = 33, .k = 129},
      {.m = 7, .n = 33, .k = 2049},
      {.m = 1025, .n = 7, .k = 17},
      {.m = 3, .n = 1025, .k = 33},
      {.m = 0, .n = 3, .k = 5},
      {.m = 3, .n = 0, .k = 5},
      {.m = 3, .n = 5, .k = 0},
      {.leading = 1, .batch = {3}, .m = 17, .n = 33, .k = 7},
      {.leading = 1, .batch = {1}, .m = 65, .n = 17, .k = 129},
      {.leading = 1, .batch = {0}, .m = 2, .n = 3, .k = 4},
      {.leading = 2, .batch = {2, 3}, .m = 17, .n = 17, .k = 16},
      {.leading = 2, .batch = {3, 5}, .m = 1, .n = 65, .k = 33},
      {.leading = 1, .batch = {7}, .m = 9, .n = 33, .k = 17, .flat_b = true},
      {.leading = 2, .batch = {2, 3}, .m = 11, .n = 65, .k = 33, .flat_b = true},
      {.leading = 2, .batch = {2, 0}, .m = 11, .n = 65, .k = 33, .flat_b = true},
  };
  static const enum gd_dtype outs[] = {GD_DTYPE_COUNT, GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16};
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int trans = 0; trans < 4; trans++) {
      struct gd_attr_matmul attr = {.trans_a = trans & 1, .trans_b = trans & 2, .alpha = 1};
      attr.out_dtype = GD_DTYPE_COUNT;
      for (int64_t i = 0; i < 2 * COUNT(small) * COUNT(small) * COUNT(small); i++)
        check_matmul(&(struct matmul_shape){.m = small[i / 2 % 4],
                                            .n = small[i / 8 % 4],
                                            .k = small[i / 32 % 4]},
                     floats[d], attr, i % 2);
      attr.alpha = 0.125f;
      for (int64_t i = 0; i < COUNT(shapes); i++)
        for (int64_t o = 0; o < COUNT(outs); o++) {
          if (shapes[i].flat_b && attr.trans_a)
            continue; /* a transposed a is batched, and a flat b is not */
          attr.out_dtype = outs[o];
          check_matmul(&shapes[i], floats[d], attr, o % 2);
        }
      attr.out_dtype = GD_DTYPE_COUNT; /* once past the blocks of any cache */
      check_matmul(&(struct matmul_shape){.m = 131, .n = 67, .k = 1031}, floats[d], attr, true);
      attr.tf32 = true;
      if (floats[d] == GD_DTYPE_F32)
        check_matmul(&(struct matmul_shape){.m = 131, .n = 67, .k = 1031}, floats[d], attr, false);
    }
}

void broadcast_cases(enum gd_op_kind kind) {
  static const struct {
    struct op_input a, b;
  } shapes[] = {
      {{DIMS(1)}, {DIMS(1)}},
      {{DIMS(2, 3, 7)}, {DIMS(2, 3, 7)}},
      {{DIMS(2, 3, 7)}, {DIMS(3, 7)}},
      {{DIMS(17, 33)}, {DIMS(33)}},
      {{DIMS(5, 65)}, {0}},
      {{0}, {0}},
      {{DIMS(3, 0)}, {DIMS(0)}},
      {{DIMS(0, 3)}, {DIMS(3)}},
      {{DIMS(33, 2049)}, {DIMS(33, 2049)}},
      {{DIMS(33, 2049)}, {DIMS(2049)}},
      {{DIMS(2049, 1)}, {DIMS(1)}},
  };
  for (int64_t a = 0; a < COUNT(floats); a++)
    for (int64_t b = 0; b < COUNT(floats); b++)
      for (int64_t s = 0; s < COUNT(shapes); s++) {
        struct op_case c = {.kind = kind, .n_in = 2, .in = {shapes[s].a, shapes[s].b}};
        c.in[0].dtype = floats[a];
        c.in[1].dtype = floats[b];
        check(&c);
      }
}

void cases_add(void) {
  broadcast_cases(GD_OP_add);
}

const struct row_shape row_shapes[ROW_SHAPES_COUNT] = {
    {{DIMS(1)}, 1},
    {{DIMS(7)}, 7},
    {{DIMS(2, 1)}, 1},
    {{DIMS(3, 2)}, 2},
    {{DIMS(7, 3)}, 3},
    {{DIMS(17, 7)}, 7},
    {{DIMS(2, 3, 17)}, 17},
    {{DIMS(5, 33)}, 33},
    {{DIMS(3, 65)}, 65},
    {{DIMS(2, 5, 129)}, 129},
    {{DIMS(5, 2049)}, 2049},
    {{DIMS(1, 4096)}, 4096},
    {{DIMS(300, 257)}, 257},
    {{DIMS(2049, 3)}, 3},
    {{DIMS(0, 5)}, 5},
    {{DIMS(3, 0, 17)}, 17},
    {{DIMS(801, 1040)}, 1040},
};

bool has_many_rows(int64_t shape) {
  return row_shapes[shape].x.dims[0] > 800 && row_shapes[shape].columns > 1024;
}

void cases_layernorm(void) {
  static const struct {
    double low, high;
  } ranges[] = {{-1, 1}, {10, 11}, {-1e-3, 1e-3}}; /* the second defeats E[x^2] - E[x]^2 */
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t s = 0; s < COUNT(row_shapes); s++)
      for (int64_t r = 0; r < COUNT(ranges); r++)
        for (uint32_t bias = 0; bias < 2; bias++) {
          if (ranges[r].low > 0 && row_shapes[s].columns < 7)
            continue; /* few values may lie so close together that nothing is left of them */
          if (has_many_rows(s) && (r > 0 || !bias))
            continue;
          struct op_case c = {.kind = GD_OP_layernorm, .n_in = 2 + bias, .attr = {.norm = {1e-5f}}};
          c.in[0] = row_shapes[s].x;
          c.in[0].dtype = floats[d];
          c.in[0].low = ranges[r].low;
          c.in[0].high = ranges[r].high;
          /* A mean may be near 0, and is off by bits of x; a deviation of 1/sqrt(12) enlarges that.
           */
          c.noise = 4 * last_bit * ranges[r].high * (ranges[r].low > 0 ? 2 * sqrt(12) : 1);
          c.in[1] = (struct op_input)F32_VECTOR(row_shapes[s].columns);
          c.in[2] = (struct op_input)F32_VECTOR(row_shapes[s].columns);
          check(&c);
        }
}

void cases_rope(void) {
  static const struct op_input xs[] = {
      {DIMS(1, 2)},        {DIMS(3, 7)},         {DIMS(2, 17, 16)},
      {DIMS(2, 3, 5, 33)}, {DIMS(1, 2, 65, 64)}, {DIMS(2, 129, 80)},
      {DIMS(2, 0, 16)},    {DIMS(0, 3, 16)},     {DIMS(7, 300, 64)}};
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t s = 0; s < COUNT(xs); s++)
      for (int64_t quarters = 0; quarters <= 4; quarters++)
        for (int inverse = 0; inverse < 2; inverse++) {
          int64_t columns = xs[s].dims[xs[s].rank - 1];
          int64_t rotary = columns * quarters / 4 / 2 * 2;
          struct op_case c = {.kind = GD_OP_rope, .n_in = 2, .attr = {.rope = {rotary, inverse}}};
          c.in[0] = xs[s];
          c.in[0].dtype = floats[d];
          c.in[1] = (struct op_input){.dtype = GD_DTYPE_F32,
                                      DIMS(xs[s].dims[xs[s].rank - 2], rotary),
                                      .fill = OP_FILL_ANGLES};
          check(&c);
        }
}

/* One NaN among the elements of one input: it reaches what depends on it, as in PyTorch. */
static void check_nan(struct op_case c, uint32_t input) {
  c.in[input].fill = OP_FILL_NAN;
  check(&c);
}

/* Squares and others: a causal row may end before its own index. */
static const struct op_input score_shapes[] = {
    {DIMS(1, 1)},    {DIMS(2, 2)},         {DIMS(3, 3)},        {DIMS(2, 7, 7)},
    {DIMS(17, 17)},  {DIMS(2, 3, 33, 33)}, {DIMS(65, 65)},      {DIMS(1, 2, 129, 129)},
    {DIMS(3, 7)},    {DIMS(7, 3)},         {DIMS(2, 17, 2049)}, {DIMS(0, 3, 3)},
    {DIMS(2, 0, 5)}, {DIMS(3, 0)},         {DIMS(2, 256, 256)},
};

void cases_softmax(void) {
  static const double highs[] = {3, 80, 10000};
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t h = 0; h < COUNT(highs); h++) {
      for (int64_t s = 0; s < COUNT(score_shapes); s++)
        for (int causal = 0; causal < 2; causal++) {
          struct op_case c = {.kind = GD_OP_softmax, .n_in = 1, .attr = {.softmax = {causal}}};
          c.in[0] = score_shapes[s];
          c.in[0].dtype = floats[d];
          c.in[0].high = highs[h];
          c.in[0].fill = causal ? OP_FILL_CAUSAL : OP_FILL_UNIFORM;
          check(&c);
          if (!causal)
            check_nan(c, 0);
        }
      for (int64_t s = 0; s < COUNT(row_shapes); s++) {
        struct op_case c = {.kind = GD_OP_softmax, .n_in = 1, .in = {row_shapes[s].x}};
        c.in[0].dtype = floats[d];
        c.in[0].high = highs[h];
        if (!has_many_rows(s) || h == 0)
          check(&c);
      }
    }
}

const struct op_input flat_shapes[FLAT_SHAPES_COUNT] = {
    {DIMS(1)},     {DIMS(2)},     {DIMS(3)},       {DIMS(7)}, {DIMS(17)},          {DIMS(3, 11)},
    {DIMS(5, 13)}, {DIMS(3, 43)}, {DIMS(2, 2049)}, {DIMS(0)}, {DIMS(4, 17, 1031)}, {DIMS(0, 7)},
};
/* Where a formula may overflow, cancel or change branch. */
static const double delicate[] = {0,   -0.0, 1e-7, -1e-7, 1e-3, -1e-3, 0.5,   -0.5,  1,  -1,
                                  2.5, -2.5, 4,    -4,    6,    -6,    9,     -9,    20, -20,
                                  50,  -50,  100,  -100,  1000, -1000, 60000, -60000};

static void activation_cases(enum gd_op_kind kind, enum gd_activation function) {
  static const double highs[] = {4, 40};
  uint32_t n_in = kind == GD_OP_activate ? 1 : 2;
  for (int64_t d = 0; d < COUNT(floats); d++) {
    struct op_case c = {.kind = kind, .n_in = n_in, .attr = {.activate = {function}}};
    for (int64_t s = 0; s < COUNT(flat_shapes); s++)
      for (int64_t h = 0; h < COUNT(highs); h++) {
        c.in[0] = c.in[1] = flat_shapes[s];
        c.in[0].dtype = c.in[1].dtype = floats[d];
        c.in[0].high = highs[h];
        c.noise = 2 * last_bit * highs[h];
        check(&c);
      }
    for (int64_t i = 0; i < COUNT(delicate); i++) { /* one by one: none hides in the mean */
      c.in[0] = (struct op_input){
          .dtype = floats[d], DIMS(1), .fill = OP_FILL_VALUES, .values = &delicate[i]};
      c.in[1] = (struct op_input){.dtype = floats[d], DIMS(1), .low = 0.5, .high = 1};
      c.noise = 2 * last_bit * fabs(delicate[i]);
      check(&c);
    }
    c.in[0] = c.in[1] = (struct op_input){.dtype = floats[d], DIMS(3, 43)};
    c.noise = 8 * last_bit;
    for (uint32_t i = 0; i < n_in; i++)
      check_nan(c, i);
  }
}

void cases_activate(void) {
  for (int f = 0; f < GD_ACTIVATION_COUNT; f++)
    activation_cases(GD_OP_activate, (enum gd_activation)f);
}

const struct op_input label_shapes[LABEL_SHAPES_COUNT] = {
    {DIMS(1)},       {DIMS(2)},     {DIMS(3, 1)}, {DIMS(2, 7)}, {DIMS(17)},
    {DIMS(2, 3, 5)}, {DIMS(5, 13)}, {DIMS(0)},    {DIMS(2, 0)}, {0},
};

/* xent and xent_grad over one set of logits. */
static void check_xent(enum gd_op_kind kind, enum gd_dtype dtype, const struct op_input *labels,
                       int64_t vocabulary, double high, struct gd_attr_xent attr) {
  static const double weight = 0.0625, scale[2] = {1024, 3};
  bool grad = kind == GD_OP_xent_grad;
  struct op_case c = {.kind = kind, .n_in = grad ? 5 : 3, .attr = {.xent = attr}};
  struct op_input *logits = &c.in[0], *label = &c.in[grad ? 2 : 1];
  c.noise = weight * (grad ? scale[0] : 1) * high * last_bit; /* lse - x, exp(x - lse) - 1 */
  *logits = *label = *labels;
  logits->dtype = dtype;
  logits->high = high;
  logits->dims[logits->rank++] = vocabulary;
  label->dtype = GD_DTYPE_I32;
  label->fill = OP_FILL_LABEL;
  label->high = (double)vocabulary;
  if (grad) {
    c.in[1] = *labels;
    c.in[1].dtype = GD_DTYPE_F32;
    c.in[1].fill = OP_FILL_LSE;
    c.in[4] =
        (struct op_input){.dtype = GD_DTYPE_F32, DIMS(2), .fill = OP_FILL_VALUES, .values = scale};
  }
  c.in[grad ? 3 : 2] =
      (struct op_input){.dtype = GD_DTYPE_F32, DIMS(1), .fill = OP_FILL_VALUES, .values = &weight};
  check(&c);
  if (high < 2)
    check_nan(c, 0);
}

static void xent_cases(enum gd_op_kind kind) {
  static const int64_t vocabularies[] = {1, 2, 3, 17, 129, 2049};
  static const double highs[] = {1, 30};
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int shift = 0; shift < 2; shift++) {
      struct gd_attr_xent attr = {.ignore = -100, .shift = shift};
      for (int64_t s = 0; s < COUNT(label_shapes); s++)
        for (int64_t v = 0; v < COUNT(vocabularies); v++)
          for (int64_t h = 0; h < COUNT(highs); h++)
            if (!shift || label_shapes[s].rank > 0)
              check_xent(kind, floats[d], &label_shapes[s], vocabularies[v], highs[h], attr);
      check_xent(kind, floats[d], &(struct op_input){DIMS(2, 5)}, 50257, 4, attr);
    }
}

void cases_xent(void) {
  xent_cases(GD_OP_xent);
}

/* soft_xent and soft_xent_grad: targets of rows that sum to 1, to less, and to nothing. */
static void soft_xent_cases(enum gd_op_kind kind) {
  static const int64_t vocabularies[] = {1, 2, 3, 17, 129, 2049};
  static const double weight = 0.0625, scale[2] = {1024, 3}, highs[] = {1, 30};
  bool grad = kind == GD_OP_soft_xent_grad;
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t s = 0; s < COUNT(label_shapes); s++)
      for (int64_t v = 0; v < COUNT(vocabularies); v++)
        for (int64_t h = 0; h < COUNT(highs); h++) {
          struct op_case c = {.kind = kind, .n_in = grad ? 5 : 3};
          struct op_input *targets = &c.in[grad ? 2 : 1];
          c.noise = weight * (grad ? scale[0] : 1) * highs[h] * last_bit;
          c.in[0] = label_shapes[s];
          c.in[0].dims[c.in[0].rank++] = vocabularies[v];
          *targets = c.in[0];
          c.in[0].dtype = floats[d];
          c.in[0].high = highs[h];
          targets->dtype = GD_DTYPE_F32;
          targets->fill = h == 0 ? OP_FILL_SOFTMAX : OP_FILL_INDEX;
          targets->high = 2; /* with OP_FILL_INDEX: 0 and 1 */
          if (grad) {
            c.in[1] = label_shapes[s];
            c.in[1].dtype = GD_DTYPE_F32;
            c.in[1].fill = OP_FILL_LSE;
            c.in[4] = (struct op_input){
                .dtype = GD_DTYPE_F32, DIMS(2), .fill = OP_FILL_VALUES, .values = scale};
          }
          c.in[grad ? 3 : 2] = (struct op_input){
              .dtype = GD_DTYPE_F32, DIMS(1), .fill = OP_FILL_VALUES, .values = &weight};
          if (h > 0)
            c.noise *= (double)vocabularies[v]; /* the targets of a row sum to half of it */
          check(&c);
          if (h == 0)
            check_nan(c, 0);
        }
}

void cases_soft_xent(void) {
  soft_xent_cases(GD_OP_soft_xent);
}

void cases_soft_xent_grad(void) {
  soft_xent_cases(GD_OP_soft_xent_grad);
}

/* --- backward ------------------------------------------------------------------------------ */

void cases_layernorm_grad(void) {
  static const double lows[] = {-1, 10};
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t s = 0; s < COUNT(row_shapes); s++)
      for (int64_t l = 0; l < COUNT(lows); l++)
        for (int bias = 0; bias < 2; bias++) {
          struct op_case c = {
              .kind = GD_OP_layernorm_grad, .n_in = 5, .attr = {.norm_grad = {bias}}};
          for (uint32_t i = 0; i < 5; i++) {
            c.in[i] = row_shapes[s].x;
            c.in[i].dtype = i < 2 ? floats[d] : GD_DTYPE_F32;
          }
          c.in[1].low = lows[l];
          c.in[1].high = lows[l] + 2;
          c.in[2] = (struct op_input)F32_VECTOR(row_shapes[s].columns);
          c.in[3].rank = c.in[4].rank = c.in[1].rank - 1;
          c.in[3].of = c.in[4].of = 1;
          c.in[3].fill = OP_FILL_MEAN;
          c.in[4].fill = OP_FILL_RSTD;
          if (has_many_rows(s) && (l > 0 || !bias))
            continue;
          if (row_shapes[s].columns > 2) /* of one or two, nothing is left but rounding */
            check(&c);
        }
}

void cases_softmax_grad(void) {
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int causal = 0; causal < 2; causal++)
      for (int64_t s = 0; s < COUNT(score_shapes); s++) {
        struct op_case c = {.kind = GD_OP_softmax_grad, .n_in = 2, .attr = {.softmax = {causal}}};
        c.in[0] = c.in[1] = score_shapes[s];
        c.in[0].dtype = c.in[1].dtype = floats[d];
        c.in[0].fill = causal ? OP_FILL_CAUSAL_P : OP_FILL_SOFTMAX;
        c.in[1].fill = causal ? OP_FILL_CAUSAL : OP_FILL_UNIFORM;
        check(&c);
        for (uint32_t i = 0; i < 2 && !causal; i++)
          check_nan(c, i);
      }
  for (int64_t d = 0; d < COUNT(floats); d++) {
    struct op_case c = {.kind = GD_OP_softmax_grad, .n_in = 2};
    c.in[0] = c.in[1] = (struct op_input){.dtype = floats[d], DIMS(801, 1040)};
    c.in[0].fill = OP_FILL_SOFTMAX;
    check(&c);
  }
}

void cases_activate_grad(void) {
  for (int f = 0; f < GD_ACTIVATION_COUNT; f++)
    activation_cases(GD_OP_activate_grad, (enum gd_activation)f);
}

void cases_xent_grad(void) {
  xent_cases(GD_OP_xent_grad);
}

/* Many positions, of which most have few ids, and rows of whole vectors. */
static void check_busy_embed_grad(enum gd_dtype dtype, int64_t vocabulary, int64_t columns) {
  struct op_case c = {
      .kind = GD_OP_embed_grad, .n_in = 2, .attr = {.embed = {vocabulary, true, 1}}};
  c.in[0] = (struct op_input){.dtype = dtype, DIMS(3, 700, columns)};
  c.in[1] =
      (struct op_input){.dtype = GD_DTYPE_I32, DIMS(3, 700), .fill = OP_FILL_INDEX, .high = 4};
  c.noise = last_bit * 700; /* a sum of some 500 terms may come out near 0 */
  check(&c);
}

void cases_embed_grad(void) {
  static const int64_t vocabularies[] = {1, 7, 129, 5000};
  for (int64_t d = 0; d < COUNT(floats); d++) {
    check_busy_embed_grad(floats[d], 700, 132);
    check_busy_embed_grad(floats[d], 300000, 4);
  }
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t s = 0; s < COUNT(sizes); s++)
      for (int64_t v = 0; v < COUNT(vocabularies); v++)
        for (int64_t rows = 0; rows <= 300; rows = rows * 16 + 1) {
          struct op_case c = {
              .kind = GD_OP_embed_grad,
              .n_in = 2,
              .attr = {.embed = {vocabularies[v], rows % 2 == 1, (int32_t)(vocabularies[v] / 2)}}};
          c.in[0] = (struct op_input){.dtype = floats[d], DIMS(1, rows, sizes[s])};
          c.in[1] = (struct op_input){.dtype = GD_DTYPE_I32,
                                      DIMS(1, rows),
                                      .fill = OP_FILL_INDEX,
                                      .high = (double)vocabularies[v]};
          check(&c);
        }
}

void cases_sum_rows(void) {
  static const struct op_input xs[] = {
      {DIMS(1)},
      {DIMS(3, 2)},
      {DIMS(7, 3)},
      {DIMS(2, 17, 7)},
      {DIMS(2, 3, 5, 33)},
      {DIMS(129, 65)},
      {DIMS(2049, 17)},
      {DIMS(3, 2049)},
      {DIMS(0, 5)},
      {DIMS(5, 0)},
      {0},
  };
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t s = 0; s < COUNT(xs); s++)
      for (int64_t kept = 0; kept <= (int64_t)xs[s].rank; kept++) {
        struct op_case c = {
            .kind = GD_OP_sum_rows, .n_in = 1, .in = {xs[s]}, .attr = {.rows = {kept}}};
        c.in[0].dtype = floats[d];
        c.noise = last_bit; /* a sum of n terms may come out near 0 */
        for (int64_t i = 0; i < (int64_t)xs[s].rank - kept; i++)
          c.noise *= (double)xs[s].dims[i];
        check(&c);
      }
}

/* accumulate and copy: every pair of dtypes. */
static void pair_cases(enum gd_op_kind kind) {
  for (int64_t to = 0; to < COUNT(floats); to++)
    for (int64_t from = 0; from < COUNT(floats); from++)
      for (int64_t s = 0; s < COUNT(flat_shapes); s++) {
        struct op_case c = {.kind = kind, .n_in = 2, .in = {flat_shapes[s], flat_shapes[s]}};
        c.in[0].dtype = floats[to];
        c.in[1].dtype = floats[from];
        c.in[1].high = 3;
        check(&c);
      }
}

void cases_accumulate(void) {
  pair_cases(GD_OP_accumulate);
}

/* --- update -------------------------------------------------------------------------------- */

void cases_sum_squares(void) {
  for (int64_t d = 0; d < COUNT(floats); d++) {
    struct op_case c = {.kind = GD_OP_sum_squares, .n_in = 1};
    for (int64_t s = 0; s < COUNT(flat_shapes); s++) {
      c.in[0] = flat_shapes[s];
      c.in[0].dtype = floats[d];
      check(&c);
    }
    c.in[0] = (struct op_input){.dtype = floats[d], DIMS(300001), .low = 1, .high = 2};
    check(&c);
  }
}

void cases_control(void) {
  static const double huge[] = {1e39, 0}, none[] = {0, 0}; /* huge is infinite as fp32 */
  static const double scales[][2] = {{1, 0}, {65536, 0}, {65536, 1999}, {1, 7}, {1.5, 2}};
  static const float max_norms[] = {0, 1e-3f, 1, 1e6f};
  static const double steps[][2] = {{3, 0}, {3, 1e-4}, {3, 8}, {143000, 1e6}}; /* largest norms */
  for (int64_t s = 0; s < COUNT(scales); s++)
    for (int64_t n = 0; n < COUNT(max_norms); n++)
      for (int dynamic = 0; dynamic < 2; dynamic++)
        for (uint32_t sums = 1; sums <= 17; sums += 4)
          for (int overflow = 0; overflow < 2; overflow++) {
            struct op_case c = {.kind = GD_OP_control,
                                .n_in = 2 + sums,
                                .attr = {.control = {max_norms[n], dynamic, 2000}}};
            c.in[0] = (struct op_input){.dtype = GD_DTYPE_F32,
                                        DIMS(2),
                                        .fill = OP_FILL_VALUES,
                                        .values = steps[(s + n + sums / 4) % COUNT(steps)]};
            c.in[1] = (struct op_input){
                .dtype = GD_DTYPE_F32, DIMS(2), .fill = OP_FILL_VALUES, .values = scales[s]};
            for (uint32_t i = 2; i < c.n_in; i++)
              c.in[i] = (struct op_input){.dtype = GD_DTYPE_F32, DIMS(2), .low = 1, .high = 90};
            c.in[2].fill = overflow || sums == 5 ? OP_FILL_VALUES : OP_FILL_UNIFORM;
            c.in[2].values = overflow ? huge : none;
            check(&c);
          }
}

void cases_adam(void) {
  static const double steps[][2] = {{1, 0}, {2, 0}, {1000, 7}, {143000, 0}},
                      factors[] = {0, 1, 0.0625};
  static const enum gd_dtype copies[] = {GD_DTYPE_COUNT, GD_DTYPE_BF16, GD_DTYPE_F16};
  for (int64_t s = 0; s < COUNT(flat_shapes); s++)
    for (int64_t i = 0; i < COUNT(steps) * COUNT(factors) * COUNT(copies) * 2; i++) {
      enum gd_dtype copy = copies[i / 12 % 3];
      if (flat_shapes[s].rank == 3 && i % 5 != 1)
        continue; /* the big one needs not every combination */
      struct op_case c = {.kind = GD_OP_adam,
                          .n_in = copy == GD_DTYPE_COUNT ? 7 : 8,
                          .attr = {.adam = {0.9f, 0.95f, 1e-8f, 0.1f, i / 36}}};
      for (uint32_t j = 0; j < c.n_in; j++) {
        c.in[j] = flat_shapes[s];
        c.in[j].dtype = j == 7 ? copy : GD_DTYPE_F32;
        if (j >= 4 && j < 7)
          c.in[j] = (struct op_input){.dtype = GD_DTYPE_F32, DIMS(1), .fill = OP_FILL_VALUES};
      }
      c.in[3].low = 1e-4; /* v is a mean of squares */
      c.in[3].high = 1;
      c.in[4].values = &factors[i % 3];
      c.in[5].fill = OP_FILL_UNIFORM;
      c.in[5].low = 1e-3;
      c.in[5].high = 1e-2;
      c.in[6].dims[0] = 2;
      c.in[6].values = steps[i / 3 % 4];
      check(&c);
    }
}

void cases_fill(void) {
  static const enum gd_dtype dtypes[] = {GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16, GD_DTYPE_I32};
  static const float values[] = {0, 1, -2.5f, 65504, 1e-3f};
  for (int64_t d = 0; d < COUNT(dtypes); d++)
    for (int64_t v = 0; v < COUNT(values); v++)
      for (int64_t s = 0; s < COUNT(flat_shapes); s++) {
        struct op_case c = {.kind = GD_OP_fill, .n_in = 1, .attr = {.fill = {values[v]}}};
        c.in[0] = flat_shapes[s];
        c.in[0].dtype = dtypes[d];
        check(&c);
      }
}

void cases_copy(void) {
  pair_cases(GD_OP_copy);
}

/* Its kernels are generated: tests/codegen/test_cpu_fused.c. Here: without a fusion there is no op.
 */
void cases_fused(void) {
  struct gd_graph g;
  gd_graph_init(&g);
  gd_tensor_id x = gd_graph_leaf(&g, GD_ROLE_INPUT, "x", GD_DTYPE_F32, 1, (int64_t[]){3});
  op_cases.checked++;
  op_cases.failed += gd_graph_op(&g, GD_OP_fused, &(union gd_attr){.fused = {0}}, 1, &x) != GD_NONE;
  gd_graph_deinit(&g);
}
