/*
 * What the training loop reads: samples by their index, be they tokens (dataset.h) or images
 * (image_set.h). Images are decoded ahead, by threads that follow the indices which this rank will
 * ask for; the samples are the same however many threads there are.
 *
 *   struct gd_source source;
 *   GD_TRY(gd_source_open(&source, &options, NULL, err));
 *   GD_TRY(gd_source_follow(&source, offset, local, batch, err));
 *   GD_TRY(gd_source_read(&source, first, count, inputs, labels, err));
 *   gd_source_close(&source);
 */
#ifndef GD_DATA_SOURCE_H
#define GD_DATA_SOURCE_H

#include "data/dataset.h"
#include "data/image_set.h"

struct gd_source_options {
  struct gd_dataset_options tokens; /* n_files 0: not of tokens */
  struct gd_image_options images;   /* n_files 0: not of images */
};

struct gd_source_ops;
struct gd_source {
  const struct gd_source_ops *ops; /* NULL: not open */
  void *self;
  int64_t samples; /* of an epoch */
};

/* Whether there are files to read. */
bool gd_source_is_given(const struct gd_source_options *options);
/* known: the training data, whose numbering of classes an evaluation takes over; NULL: none. */
enum gd_status gd_source_open(struct gd_source *source, const struct gd_source_options *options,
                              const struct gd_source *known, struct gd_error *err) GD_MUST_USE;
void gd_source_close(struct gd_source *source); /* safe on a zeroed one */

/* This rank will read, in order, `count` samples from `offset` on out of every `stride`. */
enum gd_status gd_source_follow(struct gd_source *source, int64_t offset, int64_t count,
                                int64_t stride, struct gd_error *err) GD_MUST_USE;
/* Labels that count among samples first .. first + count. */
enum gd_status gd_source_count(struct gd_source *source, int64_t first, int64_t count,
                               double *labels, struct gd_error *err) GD_MUST_USE;
/* Samples first .. first + count: ids and labels (int32), or pixels and targets (float), each as
   the graph has them. */
enum gd_status gd_source_read(struct gd_source *source, int64_t first, int64_t count, void *inputs,
                              void *labels, struct gd_error *err) GD_MUST_USE;
/* They will be read soon. */
void gd_source_prefetch(struct gd_source *source, int64_t first, int64_t count);

/* What it reads, for who shows it; NULL: the other kind. */
const struct gd_dataset *gd_source_tokens(const struct gd_source *source);
const struct gd_image_set *gd_source_images(const struct gd_source *source);

#endif
