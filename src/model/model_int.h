/*
 * What the files of src/model share about where a model comes from.
 */
#ifndef GD_MODEL_MODEL_INT_H
#define GD_MODEL_MODEL_INT_H

#include "base/json.h"

/* The file that a preset's name, a Hugging Face name or a path means, as JSON. */
enum gd_status gd_model_read_json(const char *name_or_path, struct gd_json *json,
                                  struct gd_error *err) GD_MUST_USE;
/* A file's name without ".json"; for ".../config.json" that of its folder. */
void gd_model_name_of_path(const char *path, char *name, size_t size);

#endif
