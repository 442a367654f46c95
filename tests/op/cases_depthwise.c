/*
 * Cases of depthwise, depthwise_dx, depthwise_dw. Shapes: channels around the widths of
 * vectors, images smaller and larger than the filter, several strips of columns, bands of rows,
 * several images that are walked as one, and filters past those that have fast loops.
 */
#include <math.h>

#include "op/op_cases.h"

static const struct {
  int64_t images, height, width, channels, k;
} depthwise_shapes[] = {
    {1, 1, 1, 1, 1},     {2, 3, 5, 7, 1},     {1, 4, 4, 17, 3},    {3, 7, 7, 33, 7},
    {1, 14, 14, 16, 7},  {1, 2, 9, 19, 7},    {2, 29, 8, 4, 7},    {1, 5, 131, 21, 7},
    {1, 3, 250, 5, 7},   {1, 6, 6, 40, 5},    {2, 12, 11, 3, 9},   {1, 9, 40, 18, 21},
    {1, 3, 17, 2, 27},   {1, 4, 6, 3, 29},    {1, 1, 3, 6000, 7},  {0, 3, 4, 5, 7},
    {2, 0, 4, 5, 3},     {2, 3, 0, 5, 3},     {2, 3, 4, 0, 3},     {5, 33, 17, 8, 7},
    {1, 64, 3, 9, 7},    {9, 31, 32, 5, 3},   {48, 3, 3, 1100, 7}, {64, 2, 2, 1100, 3},
    {50, 2, 2, 1096, 5}, {48, 3, 3, 1096, 7}, {2, 37, 9, 40, 5},   {1700, 7, 7, 8, 7},
    {800, 8, 8, 8, 7},   {800, 2, 13, 3, 5},  {500, 9, 22, 3, 7},  {1, 29, 14, 40, 7},
};

/* A dot product of n numbers below 1 rounds by about its terms' last bits, sqrt(n) of them. */
static double sum_noise(int64_t terms) {
  return 2 * last_bit * sqrt((double)terms + 1);
}

static void check_depthwise(enum gd_op_kind kind) {
  for (int64_t d = 0; d < COUNT(floats); d++)
    for (int64_t s = 0; s < COUNT(depthwise_shapes); s++) {
      int64_t b = depthwise_shapes[s].images, h = depthwise_shapes[s].height;
      int64_t w = depthwise_shapes[s].width, c = depthwise_shapes[s].channels;
      int64_t k = depthwise_shapes[s].k;
      struct op_input image = {.dtype = floats[d], DIMS(b, h, w, c)};
      struct op_case test = {.kind = kind, .n_in = 2, .in = {image, image}, .seed = (uint64_t)s};
      if (kind == GD_OP_depthwise_dw) {
        test.attr.rows.rows = k;
        test.noise = sum_noise(b * h * w);
      } else {
        test.in[1] = (struct op_input){.dtype = GD_DTYPE_F32, DIMS(c, 1, k, k)};
        test.noise = sum_noise(k * k);
      }
      if (kind == GD_OP_depthwise) {
        test.in[2] = (struct op_input){.dtype = GD_DTYPE_F32, DIMS(c)};
        test.n_in = 3;
      }
      check(&test);
    }
}

void cases_depthwise(void) {
  check_depthwise(GD_OP_depthwise);
}

void cases_depthwise_dx(void) {
  check_depthwise(GD_OP_depthwise_dx);
}

void cases_depthwise_dw(void) {
  check_depthwise(GD_OP_depthwise_dw);
}
