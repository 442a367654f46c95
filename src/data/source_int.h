/*
 * The two kinds of sources; see source.h.
 */
#ifndef GD_DATA_SOURCE_INT_H
#define GD_DATA_SOURCE_INT_H

#include "data/source.h"

struct gd_source_ops {
  void (*close)(void *self);
  enum gd_status (*follow)(void *self, int64_t offset, int64_t count, int64_t stride,
                           struct gd_error *err);
  enum gd_status (*count)(void *self, int64_t first, int64_t count, double *labels,
                          struct gd_error *err);
  enum gd_status (*read)(void *self, int64_t first, int64_t count, void *inputs, void *labels,
                         struct gd_error *err);
  void (*prefetch)(void *self, int64_t first, int64_t count);
};

/* Opens a source of images into *source, which is zeroed. */
enum gd_status gd_image_source_open(struct gd_source *source,
                                    const struct gd_image_options *options,
                                    const struct gd_image_files *known,
                                    struct gd_error *err) GD_MUST_USE;
/* Of a source that it opened; NULL: of another. */
const struct gd_image_set *gd_image_source_set(const struct gd_source *source);

#endif
