/*
 * Resizing; see image_resize.h. After Pillow's src/libImaging/Resample.c (8 bits a channel), whose
 * order of operations it keeps: weights in double, divided by their sum, rounded to 22 bits.
 */
#include "data/image_resize.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { PRECISION_BITS = 32 - 8 - 2 };

/* Weights of one dim: output i is the sum of weights[i * most + k] input[first[i] + k]. */
struct taps {
  int32_t *weights;
  int64_t *first, *count;
  int64_t most;
};

void gd_resizer_free(struct gd_resizer *r) {
  gd_mem_free(r->weights);
  gd_mem_free(r->sums);
  gd_mem_free(r->bounds);
  gd_image_free(&r->rows);
  *r = (struct gd_resizer){0};
}

static enum gd_status reserve(void *block, size_t *capacity, size_t count, size_t size,
                              struct gd_error *err) {
  void **at = block;
  if (count <= *capacity)
    return GD_OK;
  void *larger = gd_mem_alloc(count, size);
  if (!larger)
    return gd_nomem(err, "for an image");
  gd_mem_free(*at);
  *at = larger;
  *capacity = count;
  return GD_OK;
}

/* A triangle; or the cubic convolution of Keys 1981 with a = -0.5. */
static double weight_at(enum gd_filter filter, double x) {
  if (filter == GD_FILTER_BILINEAR)
    return x < 1 ? 1 - x : 0;
  const double a = -0.5;
  return x < 1 ? ((a + 2) * x - (a + 3)) * x * x + 1 : x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
}

/* In fixed point, to the nearest. */
static int32_t fixed(double weight) {
  return (int32_t)((weight < 0 ? -0.5 : 0.5) + weight * (1 << PRECISION_BITS));
}

static enum gd_status make_taps(struct gd_resizer *r, enum gd_filter filter, int64_t in,
                                int64_t out, struct taps *taps, struct gd_error *err) {
  double scale = (double)in / (double)out, filter_scale = scale < 1 ? 1 : scale;
  double support = filter_scale * (filter == GD_FILTER_BICUBIC ? 2 : 1); /* on either side */
  double row[64], *w = row, *many = NULL;
  taps->most = (int64_t)ceil(support) * 2 + 1;
  GD_TRY(
      reserve(&r->weights, &r->weights_count, (size_t)(out * taps->most), sizeof *r->weights, err));
  GD_TRY(reserve(&r->bounds, &r->bounds_count, (size_t)(2 * out), sizeof *r->bounds, err));
  if (taps->most > (int64_t)(sizeof row / sizeof *row)) {
    w = many = gd_mem_alloc((size_t)taps->most, sizeof *many);
    if (!many)
      return gd_nomem(err, "for an image");
  }
  taps->weights = r->weights;
  taps->first = r->bounds;
  taps->count = r->bounds + out;
  for (int64_t i = 0; i < out; i++) {
    double center = ((double)i + 0.5) * scale, sum = 0;
    int64_t low = (int64_t)(center - support + 0.5), high = (int64_t)(center + support + 0.5);
    low = low < 0 ? 0 : low;
    high = high > in ? in : high;
    for (int64_t k = 0; k < high - low; k++) {
      double x = fabs(((double)(k + low) - center + 0.5) * (1.0 / filter_scale));
      w[k] = weight_at(filter, x);
      sum += w[k];
    }
    for (int64_t k = 0; k < high - low; k++)
      taps->weights[i * taps->most + k] = fixed(sum != 0 ? w[k] / sum : w[k]);
    taps->first[i] = low;
    taps->count[i] = high - low;
  }
  gd_mem_free(many);
  return GD_OK;
}

static uint8_t rounded(int32_t sum) {
  int32_t value = sum >> PRECISION_BITS;
  return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

static void resize_row(const struct taps *taps, const uint8_t *from, int64_t width, uint8_t *to) {
  for (int64_t i = 0; i < width; i++) {
    const int32_t *w = taps->weights + i * taps->most;
    const uint8_t *at = from + 3 * taps->first[i];
    int32_t r = 1 << (PRECISION_BITS - 1), g = r, b = r;
    for (int64_t k = 0; k < taps->count[i]; k++) {
      r += at[3 * k] * w[k];
      g += at[3 * k + 1] * w[k];
      b += at[3 * k + 2] * w[k];
    }
    to[3 * i] = rounded(r);
    to[3 * i + 1] = rounded(g);
    to[3 * i + 2] = rounded(b);
  }
}

static enum gd_status resize_rows(struct gd_resizer *r, enum gd_filter filter, const uint8_t *from,
                                  int64_t pitch, int64_t width, int64_t rows, int64_t out,
                                  struct gd_image *to, struct gd_error *err) {
  struct taps taps;
  GD_TRY(make_taps(r, filter, width, out, &taps, err));
  GD_TRY(gd_image_reserve(to, out, rows, err));
  for (int64_t y = 0; y < rows; y++)
    resize_row(&taps, from + y * pitch, out, to->rgb + y * out * 3);
  return GD_OK;
}

static enum gd_status resize_columns(struct gd_resizer *r, enum gd_filter filter,
                                     const uint8_t *from, int64_t pitch, int64_t width,
                                     int64_t rows, int64_t out, struct gd_image *to,
                                     struct gd_error *err) {
  struct taps taps;
  int64_t bytes = 3 * width;
  GD_TRY(make_taps(r, filter, rows, out, &taps, err));
  GD_TRY(reserve(&r->sums, &r->sums_count, (size_t)bytes, sizeof *r->sums, err));
  GD_TRY(gd_image_reserve(to, width, out, err));
  for (int64_t y = 0; y < out; y++) {
    int32_t *sums = r->sums;
    for (int64_t x = 0; x < bytes; x++)
      sums[x] = 1 << (PRECISION_BITS - 1);
    for (int64_t k = 0; k < taps.count[y]; k++) {
      const uint8_t *row = from + (taps.first[y] + k) * pitch;
      int32_t w = taps.weights[y * taps.most + k];
#pragma omp simd
      for (int64_t x = 0; x < bytes; x++)
        sums[x] += row[x] * w;
    }
    uint8_t *out_row = to->rgb + y * bytes;
#pragma omp simd
    for (int64_t x = 0; x < bytes; x++)
      out_row[x] = rounded(sums[x]);
  }
  return GD_OK;
}

enum gd_status gd_resize(struct gd_resizer *r, const struct gd_image *from, struct gd_box box,
                         enum gd_filter filter, int64_t width, int64_t height, struct gd_image *to,
                         struct gd_error *err) {
  const uint8_t *at = from->rgb + (box.top * from->width + box.left) * 3;
  int64_t pitch = from->width * 3;
  GD_ASSERT(box.left >= 0 && box.top >= 0 && box.width > 0 && box.height > 0 &&
            box.left + box.width <= from->width && box.top + box.height <= from->height);
  if (box.width != width) {
    struct gd_image *rows = box.height == height ? to : &r->rows;
    GD_TRY(resize_rows(r, filter, at, pitch, box.width, box.height, width, rows, err));
    at = rows->rgb;
    pitch = 3 * width;
  }
  if (box.height != height)
    return resize_columns(r, filter, at, pitch, width, box.height, height, to, err);
  if (box.width != width)
    return GD_OK;
  GD_TRY(gd_image_reserve(to, width, height, err));
  for (int64_t y = 0; y < height; y++)
    memcpy(to->rgb + 3 * y * width, at + y * pitch, (size_t)(3 * width));
  return GD_OK;
}
