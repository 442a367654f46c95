/*
 * A part of an image at another size: bilinear or bicubic with antialias, as Pillow's resize does
 * it (a filter as wide as the shrinking asks for, in fixed point, rows first), so that its pixels
 * are Pillow's to the last bit.
 */
#ifndef GD_DATA_IMAGE_RESIZE_H
#define GD_DATA_IMAGE_RESIZE_H

#include "data/image_codec.h"

struct gd_box {
  int64_t left, top, width, height;
};

/* Buffers of one thread. */
struct gd_resizer {
  int32_t *weights, *sums;
  int64_t *bounds;
  size_t weights_count, sums_count, bounds_count;
  struct gd_image rows;
};
void gd_resizer_free(struct gd_resizer *resizer); /* safe on a zeroed one */

enum gd_filter { GD_FILTER_BILINEAR, GD_FILTER_BICUBIC };

/* The box lies in `from`; pixels around it are not looked at, as after a crop. */
enum gd_status gd_resize(struct gd_resizer *resizer, const struct gd_image *from, struct gd_box box,
                         enum gd_filter filter, int64_t width, int64_t height, struct gd_image *to,
                         struct gd_error *err) GD_MUST_USE;

#endif
