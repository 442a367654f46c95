/*
 * What a model folder of transformers says of images besides the weights: preprocessor_config.json,
 * how pixels are made of them, and the names of the classes in config.json.
 */
#ifndef GD_DATA_PREPROCESSOR_H
#define GD_DATA_PREPROCESSOR_H

#include "base/json.h"
#include "data/image_set.h"

/* preprocessor_config.json of the transform of evaluation (image_set.h), for a square model: that
   of others transformers cannot describe. GD_ENVIRONMENT. */
enum gd_status gd_preprocessor_write(const char *path, int64_t side, enum gd_normalize normalize,
                                     struct gd_error *err) GD_MUST_USE;
/* How the pixels of a model folder are normalized; *found: its preprocessor_config.json says so.
   GD_UNSUPPORTED: by other numbers than those of enum gd_normalize. */
enum gd_status gd_preprocessor_read(const char *folder, enum gd_normalize *normalize, bool *found,
                                    struct gd_error *err) GD_MUST_USE;

/* Names of the classes, by their numbers, in the folder's config.json (id2label), in the arena; *n
   0: it has none for each number from 0 on. */
enum gd_status gd_class_names_read(const char *folder, struct gd_arena *arena,
                                   const char *const **names, int64_t *n,
                                   struct gd_error *err) GD_MUST_USE;
/* Puts them into a configuration, as id2label and label2id. False: no memory. */
bool gd_class_names_set(json_t *config, const char *const *names, int64_t n);

#endif
