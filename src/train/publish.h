/*
 * RUN/model: the model of a finished run as transformers loads it. The weights and config.json are
 * links into the last checkpoint; what belongs to them is tokenizer.json and generation_config.json
 * of a model of tokens, preprocessor_config.json and the names of the classes of one of images.
 */
#ifndef GD_TRAIN_PUBLISH_H
#define GD_TRAIN_PUBLISH_H

#include "base/status.h"
#include "data/image_set.h"

struct gd_publishing {
  const char *folder;                /* of the run */
  const char *checkpoint;            /* folder */
  const char *config_text;           /* config.json */
  bool generates;                    /* the model goes on with a text */
  const struct gd_image_set *images; /* that it was trained on; NULL: of tokens */
};

/* GD_ENVIRONMENT: a file cannot be written; what was there before may be new in part. */
enum gd_status gd_publish(const struct gd_publishing *p, struct gd_error *err) GD_MUST_USE;

#endif
