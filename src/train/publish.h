/*
 * RUN/model, a folder as transformers loads it: config.json, model.safetensors, tokenizer.json
 * where the run has one, and generation_config.json. Files of the checkpoint are linked where that
 * is possible; what was there before stays until the new file takes its place.
 */
#ifndef GD_TRAIN_PUBLISH_H
#define GD_TRAIN_PUBLISH_H

#include <stdbool.h>

#include "base/status.h"

struct gd_published {
  const char *folder;      /* of the run */
  const char *checkpoint;  /* folder of the last one */
  const char *config_text; /* config.json */
  bool predicts_next;      /* it generates text */
};
enum gd_status gd_publish_model(const struct gd_published *p, struct gd_error *err) GD_MUST_USE;

#endif
