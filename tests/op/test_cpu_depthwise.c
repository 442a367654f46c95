/*
 * The loops under depthwise at every level this CPU has, in fp32, against sums in double:
 * test_cpu_ops.c covers the kernels in every dtype, at the best level only.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/cpu/cpu_int.h"
#include "base/mem.h"
#include "base/rng.h"

enum { IMAGES = 2, MOST_LANES = 16 };

struct problem {
  struct gd_cpu_depthwise d;
  int64_t taps, groups;
  float *x, *dy, *y, *weight, *bias, *filters, *sums; /* sums: [taps + 1][channels] */
};

static float *uniform(int64_t count, uint64_t stream) {
  float *values = gd_mem_alloc((size_t)count + MOST_LANES, sizeof *values);
  assert_non_null(values);
  for (int64_t i = 0; i < count; i++)
    values[i] = 2 * gd_rng_uniform(1, stream, (uint64_t)i) - 1;
  return values;
}

static void problem_init(struct problem *p, const struct gd_cpu_rows *rows, int64_t height,
                         int64_t width, int64_t channels, int64_t k, float *filters) {
  int64_t elements = IMAGES * height * width * channels, lanes = rows->lanes;
  *p = (struct problem){.taps = k * k, .groups = (channels + lanes - 1) / lanes};
  p->x = uniform(elements, 1);
  p->dy = uniform(elements, 2);
  p->y = uniform(elements, 3);
  p->weight = uniform(channels * p->taps, 4);
  p->bias = uniform(channels, 5);
  p->sums = uniform(channels * (p->taps + 1), 6);
  p->filters = filters;
  for (int64_t c = 0; c < p->groups * lanes; c++)
    for (int64_t t = 0; t < p->taps; t++)
      p->filters[(c / lanes * p->taps + t) * lanes + c % lanes] =
          c < channels ? p->weight[c * p->taps + t] : 0;
  p->d = (struct gd_cpu_depthwise){.dtype = GD_DTYPE_F32,
                                   .height = height,
                                   .width = width,
                                   .channels = channels,
                                   .k = k,
                                   .x = p->x,
                                   .dy = p->dy,
                                   .filters = p->filters,
                                   .bias = p->bias,
                                   .y = p->y};
}

static void problem_deinit(struct problem *p) {
  float *owned[] = {p->x, p->dy, p->y, p->weight, p->bias, p->sums};
  for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
    gd_mem_free(owned[i]);
}

/* x at a place that may lie outside the image, where it is 0. */
static double at(const struct problem *p, int64_t image, int64_t row, int64_t column, int64_t c) {
  const struct gd_cpu_depthwise *d = &p->d;
  if (row < 0 || row >= d->height || column < 0 || column >= d->width)
    return 0;
  return (double)p->x[((image * d->height + row) * d->width + column) * d->channels + c];
}

static void check_y(const struct problem *p, const char *level) {
  const struct gd_cpu_depthwise *d = &p->d;
  for (int64_t i = 0; i < IMAGES * d->height * d->width * d->channels; i++) {
    int64_t c = i % d->channels, column = i / d->channels % d->width;
    int64_t row = i / d->channels / d->width % d->height;
    int64_t image = i / d->channels / d->width / d->height;
    double sum = (double)p->bias[c];
    for (int64_t t = 0; t < p->taps; t++)
      sum += at(p, image, row + t / d->k - d->k / 2, column + t % d->k - d->k / 2, c) *
             (double)p->weight[c * p->taps + t];
    if (!(fabs((double)p->y[i] - sum) < 1e-5))
      fail_msg("%s, K %lld: y[%lld] is %g, not %g", level, (long long)d->k, (long long)i,
               (double)p->y[i], sum);
  }
}

static void check_sums(const struct problem *p, const char *level) {
  const struct gd_cpu_depthwise *d = &p->d;
  int64_t pixels = IMAGES * d->height * d->width;
  for (int64_t c = 0; c < d->channels; c++)
    for (int64_t t = 0; t <= p->taps; t++) {
      double sum = 0;
      for (int64_t i = 0; i < pixels; i++) {
        int64_t column = i % d->width, row = i / d->width % d->height;
        double x = t == p->taps ? 1
                                : at(p, i / d->width / d->height, row + t / d->k - d->k / 2,
                                     column + t % d->k - d->k / 2, c);
        sum += (double)p->dy[i * d->channels + c] * x;
      }
      double found = (double)p->sums[t * d->channels + c];
      if (!(fabs(found - sum) < 1e-6 * sqrt((double)pixels) + 1e-5))
        fail_msg("%s, K %lld: tap %lld of channel %lld is %g, not %g", level, (long long)d->k,
                 (long long)t, (long long)c, found, sum);
    }
}

static void test_levels(void **state) {
  static const int64_t shapes[][4] = {/* height, width, channels, K */
                                      {7, 7, 21, 7},   {5, 16, 9, 7},  {9, 3, 35, 7},
                                      {4, 130, 17, 7}, {6, 11, 18, 3}, {3, 5, 4, 1},
                                      {8, 30, 5, 21},  {2, 9, 33, 27}};
  static _Alignas(64) float filters[4 * MOST_LANES * 27 * 27];
  (void)state;
  for (int isa = 0; isa <= (int)gd_isa_detect(); isa++)
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
      const struct gd_cpu_rows *rows = gd_cpu_rows_for((enum gd_isa)isa);
      const char *level = gd_isa_name((enum gd_isa)isa);
      struct problem p;
      problem_init(&p, rows, shapes[s][0], shapes[s][1], shapes[s][2], shapes[s][3], filters);
      for (int64_t group = 0; group < p.groups; group++) {
        for (int64_t image = 0; image < IMAGES; image++) { /* two bands */
          rows->depthwise(&p.d, image, group, 0, p.d.height / 2);
          rows->depthwise(&p.d, image, group, p.d.height / 2, p.d.height);
        }
        rows->depthwise_dw(&p.d, group, 0, IMAGES * p.d.height, p.sums + group * rows->lanes,
                           p.d.channels);
      }
      check_y(&p, level);
      check_sums(&p, level);
      problem_deinit(&p);
    }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_levels)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
