/*
 * Cases of linear_xent. Logits of multiples of 1/8 are exact, so that ref and a
 * backend round the same ones; a gradient may still fall on the other side of a middle, and one of
 * the largest, weight * loss scale, then moves every sum by its last bit.
 */
#include "op/op_cases.h"

static void check_labels(enum gd_dtype dtype, const struct op_input *labels, const double *values,
                         bool flat, int64_t vocabulary, int64_t columns, bool bias,
                         struct gd_attr_xent attr) {
  static const double weight = 0.25, scale[2] = {8, 3};
  static const double last_bits[GD_DTYPE_COUNT] = {
      [GD_DTYPE_F32] = 0x1p-21, [GD_DTYPE_BF16] = 0x1p-8, [GD_DTYPE_F16] = 0x1p-11};
  struct op_case c = {.kind = GD_OP_linear_xent, .n_in = bias ? 6 : 5, .attr = {.xent = attr}};
  c.in[0] = c.in[2] = *labels;
  if (flat) { /* x[rows,C]: as many rows as labels, whatever the dims of these */
    int64_t rows = 1;
    for (uint32_t i = 0; i < labels->rank; i++)
      rows *= labels->dims[i];
    c.in[0].rank = 1;
    c.in[0].dims[0] = rows;
  }
  c.in[0].dims[c.in[0].rank++] = columns;
  c.in[0].dtype = dtype;
  c.in[0].fill = OP_FILL_EIGHTHS;
  c.in[1] = (struct op_input){
      .dtype = dtype, DIMS(vocabulary, columns), .fill = OP_FILL_EIGHTHS, .high = 1};
  c.in[2].dtype = GD_DTYPE_I32;
  c.in[2].fill = values ? OP_FILL_VALUES : OP_FILL_LABEL;
  c.in[2].values = values;
  c.in[2].high = (double)vocabulary;
  c.in[3] =
      (struct op_input){.dtype = GD_DTYPE_F32, DIMS(1), .fill = OP_FILL_VALUES, .values = &weight};
  c.in[4] =
      (struct op_input){.dtype = GD_DTYPE_F32, DIMS(2), .fill = OP_FILL_VALUES, .values = scale};
  c.in[5] = (struct op_input){
      .dtype = GD_DTYPE_F32, DIMS(vocabulary), .fill = OP_FILL_EIGHTHS, .high = 2};
  c.noise = weight * scale[0] * last_bits[dtype];
  check(&c);
}

static void check_linear_xent(enum gd_dtype dtype, const struct op_input *labels, bool flat,
                              int64_t vocabulary, int64_t columns, bool bias,
                              struct gd_attr_xent attr) {
  check_labels(dtype, labels, NULL, flat, vocabulary, columns, bias, attr);
}

/* Rows that count: how many of so many in a hundred, from the first on, or the last alone. */
struct counting {
  int percent;
  int64_t first;
  bool last;
};

/* Enough rows that a GPU copies those that count together, in chunks of one size. */
static void check_counting(enum gd_dtype dtype, const struct counting *counting, int64_t rows,
                           int64_t vocabulary, int64_t columns, bool bias, int64_t chunk_bytes) {
  static double labels[2100];
  assert_true(rows <= COUNT(labels));
  for (int64_t i = 0; i < rows; i++) {
    bool counts = i < counting->first || i * 37 % 100 < counting->percent ||
                  (counting->last && i == rows - 1);
    labels[i] = counts ? (double)(i * 31 % vocabulary) : -100;
  }
  check_labels(
      dtype, &(struct op_input){DIMS(rows)}, labels, false, vocabulary, columns, bias,
      (struct gd_attr_xent){.ignore = -100, .masked = chunk_bytes > 0, .chunk_bytes = chunk_bytes});
}

/* None, some, all; the edges of chunks of 384 rows (one of 128 with the smaller chunk_bytes). */
static void cases_counting(void) {
  static const struct counting some[] = {
      {0},
      {.first = 1},
      {.last = true},
      {.percent = 15},
      {.percent = 100},
      {.first = 127},
      {.first = 128},
      {.first = 384},
      {.first = 385},
      {.first = 768, .last = true},
  };
  static const int64_t rows[] = {2047, 2048, 2100}, vocabularies[] = {77, 128};
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t i = 0; i < COUNT(some); i++) {
      check_counting(floats[d], &some[i], 50, vocabularies[i % 2], 9, i % 3 == 0, 0);
      if (!op_cases.backend->library_sums)
        continue;
      for (int64_t v = 0; v < 2; v++)
        check_counting(floats[d], &some[i], rows[(i + v) % 3], vocabularies[v], v ? 8 : 7,
                       (i + v) % 3 == 0, v == i % 2 ? 1 << 20 : 40000);
    }
}

void cases_linear_xent(void) {
  static const int64_t vocabularies[] = {1, 2, 17, 129, 259}, widths[] = {1, 3, 33, 64};
  for (int64_t d = 0; d < COUNT(floats); d++) {
    check_linear_xent(floats[d], &(struct op_input){DIMS(5)}, false, 1031, 300, true,
                      (struct gd_attr_xent){.ignore = -100});
    for (int64_t s = 0; s < COUNT(label_shapes); s++)
      for (int64_t v = 0; v < COUNT(vocabularies); v++)
        for (int64_t w = 0; w < COUNT(widths); w++) {
          int64_t i = s + v + w; /* every attribute with every shape would take minutes */
          struct gd_attr_xent attr = {.ignore = -100, .shift = i % 2 && label_shapes[s].rank > 0};
          check_linear_xent(floats[d], &label_shapes[s], i % 3 == 0, vocabularies[v], widths[w],
                            i % 4 > 1, attr);
        }
  }
  /* More rows than one chunk of logits holds. */
  check_linear_xent(GD_DTYPE_F32, &(struct op_input){DIMS(3, 9)}, false, (1 << 19) + 3, 2, true,
                    (struct gd_attr_xent){.ignore = -100});
  cases_counting();
  if (!op_cases.backend->library_sums)
    return;
  /* On a GPU: padded rows, GEMMs over odd vocabularies, one chunk and several. */
  static const int64_t odd[] = {1, 77, 128, 264, 1031}, chunks[] = {1, 1 << 20};
  for (int64_t d = 0; d < COUNT(floats); d++) {
    for (int64_t i = 0; i < COUNT(odd) * COUNT(chunks) * 2; i++)
      check_linear_xent(floats[d], &(struct op_input){DIMS(5, 9)}, i % 2, odd[i / 4], 8, i % 2,
                        (struct gd_attr_xent){
                            .ignore = -100, .shift = i % 3 == 0, .chunk_bytes = chunks[i / 2 % 2]});
    check_linear_xent(floats[d], &(struct op_input){DIMS(2, 20)}, false, 50265, 8, true,
                      (struct gd_attr_xent){.ignore = -100, .chunk_bytes = 1 << 20});
  }
}
