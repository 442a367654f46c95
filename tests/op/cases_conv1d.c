/*
 * Cases of conv1d, conv1d_dx, conv1d_dw. Shapes: channels around the widths of vectors,
 * sequences shorter and longer than the filter and than the runs of steps that tasks are cut into,
 * filters with and without a fast loop, and channels past one panel.
 */
#include <math.h>

#include "op/op_cases.h"

static const struct {
  int64_t batch, steps, channels, taps;
} conv1d_shapes[] = {
    {1, 1, 1, 1},     {2, 3, 5, 4},    {1, 2, 17, 4},    {3, 7, 33, 4},  {1, 65, 16, 4},
    {2, 129, 7, 4},   {5, 40, 130, 4}, {1, 64, 65, 3},   {2, 70, 9, 2},  {2, 19, 31, 5},
    {3, 4, 6, 9},     {1, 5, 2, 300},  {2, 3, 900, 300}, {0, 3, 4, 4},   {2, 0, 4, 4},
    {2, 3, 0, 4},     {1, 300, 3, 4},  {2, 2049, 5, 4},  {2, 70, 36, 3}, {2, 70, 12, 2},
    {3, 200, 140, 4},
};

static void check_conv1d(enum gd_op_kind kind) {
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t s = 0; s < COUNT(conv1d_shapes); s++) {
      int64_t b = conv1d_shapes[s].batch, t = conv1d_shapes[s].steps;
      int64_t channels = conv1d_shapes[s].channels, k = conv1d_shapes[s].taps;
      struct op_input x = {.dtype = floats[d], DIMS(b, t, channels)};
      struct op_case c = {.kind = kind, .n_in = 2, .in = {x, x}, .seed = (uint64_t)s};
      int64_t terms = kind == GD_OP_conv1d_dw ? b * t : k;
      if (kind == GD_OP_conv1d_dw)
        c.attr.rows.rows = k;
      else
        c.in[1] = (struct op_input){.dtype = GD_DTYPE_F32, DIMS(channels, 1, k)};
      if (kind == GD_OP_conv1d) {
        c.in[2] = (struct op_input)F32_VECTOR(channels);
        c.n_in = 3;
      }
      c.noise = 2 * last_bit * sqrt((double)terms + 1); /* a sum may come out near 0 */
      check(&c);
    }
}

void cases_conv1d(void) {
  check_conv1d(GD_OP_conv1d);
}

void cases_conv1d_dx(void) {
  check_conv1d(GD_OP_conv1d_dx);
}

void cases_conv1d_dw(void) {
  check_conv1d(GD_OP_conv1d_dw);
}
