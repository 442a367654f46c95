/*
 * Operations on the bytes of an image; see image_ops.h. Formulas are those of Pillow's ImageOps,
 * ImageEnhance and Image.transform, and rounding is theirs too: tests compare with its bytes.
 */
#include "data/image_ops.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

enum { LEVELS = 256 };

static const double degree = 3.14159265358979323846 / 180;

double gd_image_op_value(enum gd_image_op op, double level, bool increasing, bool negative) {
  double share = level / GD_IMAGE_MOST_LEVEL, sign = negative ? -1 : 1;
  switch (op) {
  case GD_IMAGE_ROTATE: return sign * share * 30;
  case GD_IMAGE_POSTERIZE: return increasing ? 4 - trunc(share * 4) : trunc(share * 4);
  case GD_IMAGE_SOLARIZE: return increasing ? 256 - trunc(share * 256) : trunc(share * 256);
  case GD_IMAGE_SOLARIZE_ADD: return trunc(share * 110);
  case GD_IMAGE_COLOR:
  case GD_IMAGE_CONTRAST:
  case GD_IMAGE_BRIGHTNESS:
  case GD_IMAGE_SHARPNESS:
    return increasing ? fmax(0.1, 1 + sign * share * 0.9) : share * 1.8 + 0.1;
  case GD_IMAGE_SHEAR_X:
  case GD_IMAGE_SHEAR_Y: return sign * share * 0.3;
  case GD_IMAGE_TRANSLATE_X:
  case GD_IMAGE_TRANSLATE_Y: return sign * share * 0.45;
  case GD_IMAGE_AUTO_CONTRAST:
  case GD_IMAGE_EQUALIZE:
  case GD_IMAGE_INVERT:
  case GD_IMAGE_OP_COUNT: break;
  }
  return 0;
}

/* --- a byte becomes another byte ----------------------------------------------------------- */

static int64_t count_of(const struct gd_image *image) {
  return image->width * image->height;
}

static uint8_t clamp(double value) {
  return (uint8_t)(value <= 0 ? 0 : value >= 255 ? 255 : value);
}

static void look_up(struct gd_image *image, uint8_t table[3][LEVELS]) {
  for (int64_t i = 0; i < count_of(image); i++)
    for (int c = 0; c < 3; c++)
      image->rgb[3 * i + c] = table[c][image->rgb[3 * i + c]];
}

static void count_levels(const struct gd_image *image, int64_t counts[3][LEVELS]) {
  memset(counts, 0, 3 * sizeof *counts);
  for (int64_t i = 0; i < count_of(image); i++)
    for (int c = 0; c < 3; c++)
      counts[c][image->rgb[3 * i + c]]++;
}

/* The darkest level of a channel becomes 0 and the brightest 255. */
static void stretch(const int64_t counts[LEVELS], uint8_t table[LEVELS]) {
  int low = 0, high = LEVELS - 1;
  while (low < LEVELS - 1 && counts[low] == 0)
    low++;
  while (high > 0 && counts[high] == 0)
    high--;
  double scale = high > low ? 255.0 / (high - low) : 1, offset = high > low ? -low * scale : 0;
  for (int x = 0; x < LEVELS; x++)
    table[x] = clamp(x * scale + offset);
}

/* Levels as often as each other, the brightest left out of the count. */
static void equalize(const int64_t counts[LEVELS], uint8_t table[LEVELS]) {
  int64_t sum = 0, last = 0, before = 0;
  for (int x = 0; x < LEVELS; x++) {
    sum += counts[x];
    last = counts[x] ? counts[x] : last;
  }
  int64_t step = (sum - last) / 255;
  before = step / 2;
  for (int x = 0; x < LEVELS; before += counts[x++])
    table[x] = (uint8_t)(step == 0 ? x : before / step > 255 ? 255 : before / step);
}

static void fill_table(enum gd_image_op op, double value, uint8_t table[LEVELS]) {
  int whole = (int)value, bits = whole < 0 ? 0 : whole > 8 ? 8 : whole;
  for (int x = 0; x < LEVELS; x++)
    table[x] = (uint8_t)(op == GD_IMAGE_POSTERIZE  ? x & ~(0xff >> bits)
                         : op == GD_IMAGE_SOLARIZE ? (x < whole ? x : 255 - x)
                         : op == GD_IMAGE_INVERT   ? 255 - x
                         : x >= 128                ? x /* of GD_IMAGE_SOLARIZE_ADD */
                         : x + whole > 255         ? 255
                                                   : x + whole);
}

static void change_levels(enum gd_image_op op, double value, struct gd_image *image) {
  int64_t counts[3][LEVELS];
  uint8_t table[3][LEVELS];
  bool counted = op == GD_IMAGE_AUTO_CONTRAST || op == GD_IMAGE_EQUALIZE;
  if (counted)
    count_levels(image, counts);
  for (int c = 0; c < 3; c++) {
    if (op == GD_IMAGE_AUTO_CONTRAST)
      stretch(counts[c], table[c]);
    else if (op == GD_IMAGE_EQUALIZE)
      equalize(counts[c], table[c]);
    else
      fill_table(op, value, table[c]);
  }
  look_up(image, table);
}

/* --- towards another image, or away from it ------------------------------------------------ */

/* ITU-R 601-2 luma in fixed point, as convert("L"). */
static int grey(const uint8_t *rgb) {
  return (rgb[0] * 19595 + rgb[1] * 38470 + rgb[2] * 7471 + 0x8000) >> 16;
}

/* from + factor (x - from): 1 is the image, 0 the other one. In fp32, as Pillow. */
static uint8_t blend(int from, int x, float factor) {
  float value = (float)from + factor * (float)(x - from);
  return (uint8_t)(value <= 0 ? 0 : value >= 255 ? 255 : value);
}

static void blend_with_grey(enum gd_image_op op, float factor, struct gd_image *image) {
  int64_t n = count_of(image), sum = 0;
  int from = 0; /* GD_IMAGE_BRIGHTNESS: black */
  if (op == GD_IMAGE_CONTRAST) {
    for (int64_t i = 0; i < n; i++)
      sum += grey(image->rgb + 3 * i);
    from = (int)((double)sum / (double)n + 0.5);
  }
  for (int64_t i = 0; i < n; i++) {
    uint8_t *pixel = image->rgb + 3 * i;
    if (op == GD_IMAGE_COLOR)
      from = grey(pixel);
    for (int c = 0; c < 3; c++)
      pixel[c] = blend(from, pixel[c], factor);
  }
}

/* The other image is a smoothed one: weights 1 around 5, over 13, and the edge as it is. */
static enum gd_status sharpen(float factor, struct gd_image *image, struct gd_image *buffer,
                              struct gd_error *err) {
  int64_t row = 3 * image->width;
  GD_TRY(gd_image_reserve(buffer, image->width, image->height, err));
  memcpy(buffer->rgb, image->rgb, (size_t)(3 * count_of(image)));
  for (int64_t y = 1; y + 1 < image->height; y++)
    for (int64_t i = y * row + 3; i < (y + 1) * row - 3; i++) {
      const uint8_t *at = buffer->rgb + i;
      int sum = 4 * at[0]; /* and once more below */
      for (int64_t line = -row; line <= row; line += row)
        sum += at[line - 3] + at[line] + at[line + 3];
      image->rgb[i] = blend((2 * sum + 13) / 26, at[0], factor);
    }
  return GD_OK;
}

/* --- pixels move --------------------------------------------------------------------------- */

/* A pixel's channels; the fourth is waste, and never next to a whole number. */
typedef float channels __attribute__((vector_size(16)));
typedef int32_t whole_channels __attribute__((vector_size(16)));

static inline const uint8_t *nearest(const struct gd_image *image, int64_t x, int64_t y) {
  x = x < 0 ? 0 : x >= image->width ? image->width - 1 : x;
  y = y < 0 ? 0 : y >= image->height ? image->height - 1 : y;
  return image->rgb + 3 * (y * image->width + x);
}

/* What lies at d between p[1] and p[2]: the cubic convolution of Keys 1981 with a = -1. */
static inline channels cubic(const channels p[4], float d) {
  channels outer = p[0] - p[1], inner = p[2] - p[3];
  return p[1] + d * ((p[2] - p[0]) + d * ((2 * outer + inner) - d * (outer + inner)));
}

static double exact_cubic(const double p[4], double d) {
  return p[1] + d * ((p[2] - p[0]) +
                     d * ((2 * (p[0] - p[1]) + p[2] - p[3]) + d * (p[1] - p[0] - p[2] + p[3])));
}

/* A channel in Pillow's precision. */
static double exact(const struct gd_image *image, int64_t left, int64_t top, double dx, double dy,
                    int c) {
  double rows[4], columns[4];
  for (int64_t v = 0; v < 4; v++) {
    for (int64_t u = 0; u < 4; u++)
      columns[u] = (double)nearest(image, left + u - 1, top + v - 1)[c];
    rows[v] = exact_cubic(columns, dx);
  }
  return exact_cubic(rows, dy);
}

/* What lies dx to the right of pixel (left, top) and dy below it. Pillow cuts off what is behind
   the point, so next to a whole number its precision decides: fp32 is off by 1e-3 at most. */
static inline void interpolate(const struct gd_image *image, int64_t left, int64_t top, double dx,
                               double dy, uint8_t to[3]) {
  const float close = 1.0F / 256;
  channels rows[4], columns[4];
  for (int64_t v = 0; v < 4; v++) {
    for (int64_t u = 0; u < 4; u++) {
      const uint8_t *at = nearest(image, left + u - 1, top + v - 1);
      columns[u] = (channels){(float)at[0], (float)at[1], (float)at[2], 0.5F};
    }
    rows[v] = cubic(columns, (float)dx);
  }
  channels value = cubic(rows, (float)dy);
  whole_channels whole = __builtin_convertvector(value, whole_channels);
  channels rest = value - __builtin_convertvector(whole, channels);
  whole_channels unsure = (rest < close) | (rest > 1 - close);
  if (unsure[0] | unsure[1] | unsure[2])
    for (int c = 0; c < 3; c++)
      whole[c] = (int32_t)exact(image, left, top, dx, dy, c);
  for (int c = 0; c < 3; c++)
    to[c] = (uint8_t)(whole[c] <= 0 ? 0 : whole[c] >= 255 ? 255 : whole[c]);
}

/* Output pixel (x, y) is the input at m[0] x + m[1] y + m[2] and m[3] x + m[4] y + m[5], both
   counted from the corner of the image; a thread reads 16 pixels for each. */
static enum gd_status transform(const double m[6], const uint8_t fill[3], struct gd_image *image,
                                struct gd_image *buffer, struct gd_error *err) {
  int64_t width = image->width, height = image->height;
  GD_TRY(gd_image_reserve(buffer, width, height, err));
  for (int64_t i = 0; i < width * height; i++) {
    int64_t row = i / width, column = i % width;
    double x = (double)column + 0.5, y = (double)row + 0.5;
    double from_x = m[0] * x + m[1] * y + m[2], from_y = m[3] * x + m[4] * y + m[5];
    uint8_t *to = buffer->rgb + 3 * i;
    if (!(from_x >= 0 && from_x < (double)width && from_y >= 0 && from_y < (double)height)) {
      memcpy(to, fill, 3);
      continue;
    }
    double left = floor(from_x - 0.5), top = floor(from_y - 0.5);
    interpolate(image, (int64_t)left, (int64_t)top, from_x - 0.5 - left, from_y - 0.5 - top, to);
  }
  struct gd_image made = *buffer;
  *buffer = *image;
  *image = made;
  return GD_OK;
}

/* About the middle, counterclockwise. */
static void rotation(double degrees, const struct gd_image *image, double m[6]) {
  double x = (double)image->width / 2, y = (double)image->height / 2;
  double cosine = cos(degrees * degree), sine = sin(degrees * degree);
  m[0] = m[4] = cosine;
  m[1] = -sine;
  m[3] = sine;
  m[2] = x - cosine * x + sine * y;
  m[5] = y - sine * x - cosine * y;
}

static enum gd_status move(enum gd_image_op op, double value, const uint8_t fill[3],
                           struct gd_image *image, struct gd_image *buffer, struct gd_error *err) {
  double m[6] = {1, 0, 0, 0, 1, 0};
  if (op == GD_IMAGE_ROTATE)
    rotation(value, image, m);
  else if (op == GD_IMAGE_SHEAR_X)
    m[1] = value;
  else if (op == GD_IMAGE_SHEAR_Y)
    m[3] = value;
  else if (op == GD_IMAGE_TRANSLATE_X)
    m[2] = value * (double)image->width;
  else
    m[5] = value * (double)image->height;
  return transform(m, fill, image, buffer, err);
}

enum gd_status gd_image_op_apply(enum gd_image_op op, double value, const uint8_t fill[3],
                                 struct gd_image *image, struct gd_image *buffer,
                                 struct gd_error *err) {
  switch (op) {
  case GD_IMAGE_AUTO_CONTRAST:
  case GD_IMAGE_EQUALIZE:
  case GD_IMAGE_INVERT:
  case GD_IMAGE_POSTERIZE:
  case GD_IMAGE_SOLARIZE:
  case GD_IMAGE_SOLARIZE_ADD: change_levels(op, value, image); return GD_OK;
  case GD_IMAGE_COLOR:
  case GD_IMAGE_CONTRAST:
  case GD_IMAGE_BRIGHTNESS: blend_with_grey(op, (float)value, image); return GD_OK;
  case GD_IMAGE_SHARPNESS: return sharpen((float)value, image, buffer, err);
  case GD_IMAGE_ROTATE:
  case GD_IMAGE_SHEAR_X:
  case GD_IMAGE_SHEAR_Y:
  case GD_IMAGE_TRANSLATE_X:
  case GD_IMAGE_TRANSLATE_Y: return move(op, value, fill, image, buffer, err);
  case GD_IMAGE_OP_COUNT: break;
  }
  GD_ASSERT(op < GD_IMAGE_OP_COUNT);
  return GD_OK;
}
