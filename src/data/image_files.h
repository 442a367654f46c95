/*
 * Where the images of a data set are, and of which class each is:
 *
 *   a folder    FOLDER/CLASS/.../NAME.jpg, .jpeg or .png; classes are numbered by their names,
 *               sorted
 *   shards      tar archives as WebDataset writes them: NAME.jpg (.jpeg, .png) and NAME.cls, the
 *               number of the class in digits, next to each other
 *
 * Only names are read here; images are read by gd_image_files_get, by any thread.
 */
#ifndef GD_DATA_IMAGE_FILES_H
#define GD_DATA_IMAGE_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/mem.h"
#include "base/status.h"
#include "base/strbuf.h"

struct gd_image_entry {
  const char *name; /* below the folder, or in the archive */
  int64_t first;    /* byte in the archive */
  int64_t bytes;
  int32_t class_number;
  int32_t shard; /* -1: a file of its own */
};

struct gd_image_shard {
  const char *path;
  const uint8_t *map;
  int64_t bytes;
};

struct gd_image_files {
  const char *folder; /* NULL: shards */
  struct gd_image_entry *entries;
  int64_t count;
  uint32_t capacity;
  const char **classes; /* names, sorted; NULL: shards, whose classes are numbers */
  int32_t *numbers;     /* of those names; NULL: their places */
  uint32_t n_classes;   /* named, or the highest number and one */
  uint32_t classes_capacity;
  bool jpeg, png; /* there are such names */
  struct gd_image_shard *shards;
  int n_shards;
  struct gd_arena arena;
};

/*
 * Lists one folder, or shards. classes: of the model. known: the training data, by whose names the
 * classes of an evaluation are numbered; NULL for the training data itself. GD_BAD_INPUT: no
 * images, another number of classes, a class that is not known, an image without its class.
 */
enum gd_status gd_image_files_open(struct gd_image_files *files, const char *const *paths, int n,
                                   int64_t classes, const struct gd_image_files *known,
                                   struct gd_error *err) GD_MUST_USE;
/* Of a folder only the names of its classes: `known` of an evaluation. */
enum gd_status gd_image_files_open_classes(struct gd_image_files *files, const char *folder,
                                           struct gd_error *err) GD_MUST_USE;
/*
 * The same of names by their numbers, as a model has them, if each folder of `paths` is one of
 * them; else files->classes is NULL, as it is for shards.
 */
enum gd_status gd_image_files_match_classes(struct gd_image_files *files, const char *const *names,
                                            int64_t count, const char *const *paths, int n,
                                            struct gd_error *err) GD_MUST_USE;
void gd_image_files_close(struct gd_image_files *files); /* safe on a zeroed one */

/* The bytes of an image: in the archive, or read into the buffer. The name is for sentences. */
enum gd_status gd_image_files_get(const struct gd_image_files *files, int64_t image,
                                  struct gd_strbuf *buffer, const uint8_t **bytes, size_t *size,
                                  struct gd_error *err) GD_MUST_USE;
/* "folder/class/name.jpg" or "shard.tar: name.jpg" */
const char *gd_image_files_name(const struct gd_image_files *files, int64_t image, char *text,
                                size_t size);

#endif
