/*
 * Cases of slice, pad, cast, positions, mul, dropout, rmsnorm, rmsnorm_grad, pool,
 * pool_grad.
 */
#include "op/op_cases.h"

static const enum gd_dtype all_dtypes[] = {GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16, GD_DTYPE_I32};

/* slice and pad: each dim of each shape, at the start, in the middle, at the end, nothing, all. */
static void window_cases(enum gd_op_kind kind) {
  static const struct op_input xs[] = {
      {DIMS(1)},          {DIMS(7)},       {DIMS(3, 5)},    {DIMS(2, 3, 17)},   {DIMS(3, 33, 2, 5)},
      {DIMS(2, 129, 65)}, {DIMS(129, 33)}, {DIMS(3, 5000)}, {DIMS(2, 0, 5, 2)}, {DIMS(1, 1, 17000)},
  };
  for (int64_t d = 0; d < COUNT(all_dtypes); d++)
    for (int64_t s = 0; s < COUNT(xs); s++)
      for (uint32_t dim = 0; dim < xs[s].rank; dim++) {
        int64_t n = xs[s].dims[dim], pad = kind == GD_OP_pad;
        const struct gd_attr_slice windows[] = {
            {dim, 0, n},
            {dim, 0, pad ? n + 3 : n / 2},
            {dim, pad ? 1 : n / 3, pad ? n + 2 : n / 3},
            {dim, pad ? 65 : n - n / 2, pad ? n + 65 : n / 2},
            {dim, pad ? 0 : n, pad ? n + 1 : 0},
        };
        for (int64_t w = 0; w < COUNT(windows); w++) {
          struct op_case c = {
              .kind = kind, .n_in = 1, .in = {xs[s]}, .attr = {.slice = windows[w]}};
          c.in[0].dtype = all_dtypes[d];
          c.in[0].low = -50;
          c.in[0].high = 50;
          check(&c);
        }
      }
}

void cases_slice(void) {
  window_cases(GD_OP_slice);
}

void cases_pad(void) {
  window_cases(GD_OP_pad);
}

void cases_cast(void) {
  static const enum gd_dtype to[] = {GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16, GD_DTYPE_COUNT};
  static const double highs[] = {3, 1e5}; /* the second is past f16 */
  for (int64_t from = 0; from < COUNT(floats); from++)
    for (int64_t t = 0; t < COUNT(to); t++)
      for (int64_t s = 0; s < COUNT(flat_shapes); s++)
        for (int64_t h = 0; h < COUNT(highs); h++) {
          struct op_case c = {
              .kind = GD_OP_cast, .n_in = 1, .in = {flat_shapes[s]}, .attr = {.cast = {to[t]}}};
          c.in[0].dtype = floats[from];
          c.in[0].high = highs[h];
          check(&c);
        }
}

void cases_positions(void) {
  static const struct op_input ids[] = {{DIMS(1, 1)}, {DIMS(3, 7)},    {DIMS(2, 129)}, {DIMS(0, 5)},
                                        {DIMS(5, 0)}, {DIMS(1, 4097)}, {DIMS(9, 1000)}};
  static const int32_t pads[] = {0, 1, 3, 9, -1}; /* the last two never occur */
  for (int64_t s = 0; s < COUNT(ids); s++)
    for (int64_t p = 0; p < COUNT(pads); p++)
      for (int high = 1; high <= 5; high += 2) {
        struct op_case c = {
            .kind = GD_OP_positions, .n_in = 1, .in = {ids[s]}, .attr = {.positions = {pads[p]}}};
        c.in[0].dtype = GD_DTYPE_I32;
        c.in[0].fill = OP_FILL_INDEX;
        c.in[0].high = high;
        check(&c);
      }
}

void cases_mul(void) {
  broadcast_cases(GD_OP_mul);
}

static void check_dropout(const struct op_input *x, enum gd_dtype dtype, const double *seed,
                          struct gd_attr_dropout attr) {
  struct op_case c = {.kind = GD_OP_dropout, .n_in = 2, .in = {*x}, .attr = {.dropout = attr}};
  c.in[0].dtype = dtype;
  c.in[1] =
      (struct op_input){.dtype = GD_DTYPE_I32, DIMS(3), .fill = OP_FILL_VALUES, .values = seed};
  check(&c);
}

void cases_dropout(void) {
  static const double seeds[][3] = {{0, 0, 0}, {1234, 7, 1}, {-5, 100000, 3}, {99, -1, 1 << 24}};
  static const double far[3] = {3, 1, (1 << 20) - 1};
  static const struct gd_attr_dropout attrs[] = {
      {0, 0, false},       {0.1f, 0, false},           {0.5f, 1, false},
      {0.9f, 1000, false}, {0x1.fffffep-1f, 2, false}, {0.5f, 3, true},
      {0.1f, 1000, true}};
  for (int64_t d = 0; d < COUNT(floats); d++) {
    for (int64_t s = 0; s < COUNT(flat_shapes); s++) /* most samples begin inside a counter */
      for (int64_t i = 0; i < COUNT(seeds) * COUNT(attrs); i++)
        if (flat_shapes[s].rank < 3 || i % 7 == 6) /* the big one needs not every combination */
          check_dropout(&flat_shapes[s], floats[d], seeds[i % 4], attrs[i / 4]);
    /* The counter passes 2^32 after the first sample. */
    check_dropout(&(struct op_input){DIMS(3, 16384)}, floats[d], far, attrs[2]);
  }
}

void cases_rmsnorm(void) {
  static const struct { double low, high; } ranges[] = {{-1, 1}, {10, 11}, {-1e-3, 1e-3}};
  static const float epsilons[] = {1e-5f, 1e-6f};
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t s = 0; s < COUNT(row_shapes); s++)
      for (int64_t i = 0; i < COUNT(ranges) * COUNT(epsilons); i++) {
        struct op_case c = {.kind = GD_OP_rmsnorm, .n_in = 2, .attr = {.norm = {epsilons[i % 2]}}};
        c.in[0] = row_shapes[s].x;
        c.in[0].dtype = floats[d];
        c.in[0].low = ranges[i / 2].low;
        c.in[0].high = ranges[i / 2].high;
        c.in[1] = (struct op_input)F32_VECTOR(row_shapes[s].columns);
        if (!has_many_rows(s) || i == 0)
          check(&c);
      }
}

void cases_rmsnorm_grad(void) {
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t s = 0; s < COUNT(row_shapes); s++) {
      struct op_case c = {.kind = GD_OP_rmsnorm_grad, .n_in = 4};
      for (uint32_t i = 0; i < 4; i++) {
        c.in[i] = row_shapes[s].x;
        c.in[i].dtype = i < 2 ? floats[d] : GD_DTYPE_F32;
      }
      c.in[2] = (struct op_input)F32_VECTOR(row_shapes[s].columns);
      c.in[3].rank = c.in[1].rank - 1;
      c.in[3].low = 0.5; /* any will do: the formula takes it as it is */
      c.in[3].high = 2;
      c.noise = 8 * last_bit; /* g - h mean(g h) may cancel */
      check(&c);
    }
}

static const struct {
  int64_t images, positions, columns;
} pool_shapes[] = {
    {1, 1, 1},   {2, 3, 7}, {3, 49, 33}, {1, 197, 768}, {2, 5, 513},
    {5, 1, 129}, {0, 3, 5}, {3, 4, 0},   {2, 1000, 65}, {17, 50, 16},
};

void cases_pool(void) {
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t s = 0; s < COUNT(pool_shapes); s++) {
      struct op_case c = {.kind = GD_OP_pool, .n_in = 1, .noise = 8 * last_bit};
      c.in[0] = (struct op_input){
          .dtype = floats[d],
          DIMS(pool_shapes[s].images, pool_shapes[s].positions, pool_shapes[s].columns)};
      check(&c);
    }
}

void cases_pool_grad(void) {
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t s = 0; s < COUNT(pool_shapes); s++)
      for (int64_t positions = 0; positions < 2; positions++) { /* none at all, and as above */
        struct op_case c = {.kind = GD_OP_pool_grad,
                            .n_in = 1,
                            .attr = {.rows = {positions * pool_shapes[s].positions}}};
        c.in[0] = (struct op_input){.dtype = floats[d],
                                    DIMS(pool_shapes[s].images, pool_shapes[s].columns)};
        check(&c);
      }
}
