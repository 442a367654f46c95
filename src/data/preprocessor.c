/*
 * preprocessor_config.json and the names of classes; see preprocessor.h.
 */
#include "data/preprocessor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"

/* transformers' BitImageProcessor has all steps and no habits of its own: the shorter side to a
   length, the middle, (x / 255 - mean) / deviation. resample 2 is Pillow's BILINEAR. */
enum gd_status gd_preprocessor_write(const char *path, int64_t side, enum gd_normalize normalize,
                                     struct gd_error *err) {
  const struct gd_normalization *n = &gd_normalizations[normalize];
  struct gd_strbuf text = {0};
  json_t *object =
      json_pack("{s:s,s:b,s:b,s:{s:I},s:i,s:b,s:{s:I,s:I},s:b,s:f,s:b,s:[f,f,f],s:[f,f,f]}",
                "image_processor_type", "BitImageProcessor", "do_convert_rgb", 1, "do_resize", 1,
                "size", "shortest_edge", (json_int_t)gd_image_scaled(side), "resample", 2,
                "do_center_crop", 1, "crop_size", "height", (json_int_t)side, "width",
                (json_int_t)side, "do_rescale", 1, "rescale_factor", 1.0 / 255, "do_normalize",
                normalize != GD_NORMALIZE_NONE, "image_mean", n->mean[0], n->mean[1], n->mean[2],
                "image_std", n->deviation[0], n->deviation[1], n->deviation[2]);
  bool made = object && gd_json_append(&text, object, JSON_INDENT(2) | JSON_REAL_PRECISION(16));
  json_decref(object);
  gd_strbuf_append(&text, "\n");
  enum gd_status status = made && !text.failed ? gd_file_write(path, text.text, text.length, err)
                                               : gd_nomem(err, "for preprocessor_config.json");
  gd_strbuf_deinit(&text);
  return status;
}

/* Three numbers, or one for all. */
static bool read_three(const json_t *object, const char *key, double out[3]) {
  const json_t *value = json_object_get(object, key);
  if (!json_is_number(value) && json_array_size(value) != 3)
    return false;
  for (size_t i = 0; i < 3; i++) {
    const json_t *each = json_is_number(value) ? value : json_array_get(value, i);
    if (!json_is_number(each))
      return false;
    out[i] = json_number_value(each);
  }
  return true;
}

static bool is_near(const double a[3], const double b[3]) {
  for (int i = 0; i < 3; i++)
    if (!(fabs(a[i] - b[i]) < 1e-3))
      return false;
  return true;
}

static enum gd_status read_normalize(const struct gd_json *json, enum gd_normalize *normalize,
                                     struct gd_error *err) {
  double mean[3], deviation[3];
  if (json_is_false(json_object_get(json->root, "do_normalize"))) {
    *normalize = GD_NORMALIZE_NONE;
    return GD_OK;
  }
  if (!read_three(json->root, "image_mean", mean) ||
      !read_three(json->root, "image_std", deviation))
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: image_mean and image_std are not three numbers each; --normalize says what "
                   "they are",
                   json->file);
  for (int i = 0; i < GD_NORMALIZE_COUNT; i++)
    if (is_near(mean, gd_normalizations[i].mean) &&
        is_near(deviation, gd_normalizations[i].deviation)) {
      *normalize = (enum gd_normalize)i;
      return GD_OK;
    }
  return gd_fail(err, GD_UNSUPPORTED,
                 "%s: image_mean %g %g %g and image_std %g %g %g are none of imagenet, half and "
                 "none; --normalize takes one of them all the same",
                 json->file, mean[0], mean[1], mean[2], deviation[0], deviation[1], deviation[2]);
}

enum gd_status gd_preprocessor_read(const char *folder, enum gd_normalize *normalize, bool *found,
                                    struct gd_error *err) {
  char path[GD_FILE_PATH];
  struct gd_json json = {0};
  snprintf(path, sizeof path, "%.4000s/preprocessor_config.json", folder);
  *found = !gd_file_is_missing(path);
  if (!*found)
    return GD_OK;
  GD_TRY(gd_json_load(&json, path, err));
  enum gd_status status = read_normalize(&json, normalize, err);
  gd_json_deinit(&json);
  return status;
}

enum gd_status gd_class_names_read(const char *folder, struct gd_arena *arena,
                                   const char *const **names, int64_t *n, struct gd_error *err) {
  char path[GD_FILE_PATH], key[24];
  struct gd_json json = {0};
  *names = NULL;
  *n = 0;
  snprintf(path, sizeof path, "%.4000s/config.json", folder);
  if (gd_file_is_missing(path))
    return GD_OK;
  GD_TRY(gd_json_load(&json, path, err));
  const json_t *labels = json_object_get(json.root, "id2label");
  size_t count = json_object_size(labels), i = 0;
  const char **list = gd_arena_alloc(arena, count + 1, sizeof *list);
  for (; list && i < count; i++) {
    snprintf(key, sizeof key, "%zu", i);
    const char *name = json_string_value(json_object_get(labels, key));
    if (!name || !(list[i] = gd_arena_copy_string(arena, name)))
      break;
  }
  gd_json_deinit(&json);
  if (!list)
    return gd_nomem(err, "while reading the names of classes");
  *names = list;
  *n = i == count ? (int64_t)count : 0;
  return GD_OK;
}

bool gd_class_names_set(json_t *config, const char *const *names, int64_t n) {
  json_t *id2label = json_object(), *label2id = json_object();
  bool made = id2label && label2id;
  for (int64_t i = 0; made && i < n; i++) {
    char key[24];
    snprintf(key, sizeof key, "%lld", (long long)i);
    made = json_object_set_new(id2label, key, json_string(names[i])) == 0 &&
           json_object_set_new(label2id, names[i], json_integer((json_int_t)i)) == 0;
  }
  made = made && json_object_set(config, "id2label", id2label) == 0 &&
         json_object_set(config, "label2id", label2id) == 0;
  json_decref(id2label);
  json_decref(label2id);
  return made;
}
