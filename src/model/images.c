/*
 * Images in, classes out: see images.h. What lies between is the families' (vit.c, convnext.c).
 */
#include "model/images.h"

#include <stdio.h>
#include <string.h>

#include "model/config.h"

/* --- config.json --------------------------------------------------------------------------- */

/* 224, or [224, 160] as height and width. */
static enum gd_status read_size(const struct gd_json *json, const json_t *config, const char *key,
                                int64_t *height, int64_t *width, struct gd_error *err) {
  const int64_t largest = 1 << 20; /* far past any image; products of sizes are checked later */
  const json_t *value = gd_json_get(json, config, key);
  if (json_is_array(value)) {
    int64_t sides[2] = {0, 0};
    for (size_t i = 0; i < 2; i++)
      if (json_is_integer(json_array_get(value, i)))
        sides[i] = (int64_t)json_integer_value(json_array_get(value, i));
    if (json_array_size(value) != 2 || sides[0] < 1 || sides[0] > largest || sides[1] < 1 ||
        sides[1] > largest)
      return gd_json_mismatch(json, config, key, "a number of pixels, or height and width", err);
    *height = sides[0];
    *width = sides[1];
    return GD_OK;
  }
  if (!gd_config_has(json, config, key))
    return GD_OK;
  GD_TRY(gd_json_int(json, config, key, 1, largest, height, err));
  *width = *height;
  return GD_OK;
}

/* transformers 4 and 5 write id2label, unless there are as many classes as by default. */
static enum gd_status read_classes(const struct gd_json *json, const json_t *config,
                                   int64_t *classes, struct gd_error *err) {
  const json_t *labels = gd_json_get(json, config, "id2label");
  int64_t named = json_is_object(labels) ? (int64_t)json_object_size(labels) : 0;
  *classes = named ? named : 2;
  GD_TRY(gd_config_int(json, config, "num_labels", 1, GD_CONFIG_LARGEST, classes, err));
  if (named && *classes != named)
    return gd_fail(err, GD_BAD_INPUT, "%s: num_labels is %lld, but id2label names %lld classes",
                   json->file, (long long)*classes, (long long)named);
  if (*classes < 2) /* transformers takes that for a regression */
    return gd_config_unsupported(json, config, named ? "id2label" : "num_labels",
                                 "two classes or more", err);
  return GD_OK;
}

enum gd_status gd_images_parse(const struct gd_json *json, const json_t *config,
                               struct gd_images *images, struct gd_error *err) {
  const char *problem = "single_label_classification";
  GD_TRY(gd_config_int(json, config, "num_channels", 1, GD_CONFIG_LARGEST, &images->channels, err));
  GD_TRY(read_size(json, config, "image_size", &images->height, &images->width, err));
  GD_TRY(read_size(json, config, "patch_size", &images->patch_height, &images->patch_width, err));
  GD_TRY(read_classes(json, config, &images->classes, err));
  if (gd_config_has(json, config, "problem_type"))
    GD_TRY(gd_json_string(json, config, "problem_type", &problem, err));
  if (strcmp(problem, "single_label_classification") != 0)
    return gd_config_unsupported(json, config, "problem_type", "single_label_classification", err);
  if (images->height < images->patch_height || images->width < images->patch_width)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: image_size %lld x %lld is smaller than patch_size %lld x %lld", json->file,
                   (long long)images->height, (long long)images->width,
                   (long long)images->patch_height, (long long)images->patch_width);
  return GD_OK;
}

/* --- the graph ----------------------------------------------------------------------------- */

gd_tensor_id gd_images_leaves(struct gd_graph *graph, const struct gd_images *images, int64_t b,
                              bool soft) {
  int64_t dims[] = {b, images->channels, images->height, images->width}, one[] = {1};
  int64_t target_dims[] = {b, images->classes};
  graph->pixels = gd_graph_leaf(graph, GD_ROLE_INPUT, "pixel_values", GD_DTYPE_F32, 4, dims);
  graph->labels = soft
                      ? gd_graph_leaf(graph, GD_ROLE_INPUT, "targets", GD_DTYPE_F32, 2, target_dims)
                      : gd_graph_leaf(graph, GD_ROLE_INPUT, "labels", GD_DTYPE_I32, 1, dims);
  graph->loss_weight = gd_graph_leaf(graph, GD_ROLE_INPUT, "loss_weight", GD_DTYPE_F32, 1, one);
  return gd_cast(graph, graph->pixels, GD_DTYPE_COUNT);
}

/* The first `length` entries of a dim: x itself where there are no more. */
static gd_tensor_id first_of(struct gd_graph *graph, gd_tensor_id x, uint32_t dim, int64_t length) {
  if (x == GD_NONE || graph->tensors[x].dims[dim] == length)
    return x;
  return gd_slice(graph, x, dim, 0, length);
}

gd_tensor_id gd_images_patches(struct gd_blocks *m, const char *module, gd_tensor_id x,
                               bool channels_last, int64_t height, int64_t width, int64_t outputs) {
  struct gd_graph *g = m->graph;
  if (g->error.status != GD_OK)
    return GD_NONE;
  const int64_t *dims = g->tensors[x].dims;
  int64_t b = dims[0], c = dims[channels_last ? 3 : 1];
  uint32_t row_dim = channels_last ? 1 : 2;
  int64_t rows = dims[row_dim] / height, columns = dims[row_dim + 1] / width;
  int64_t filter_dims[] = {outputs, c, height, width}, taps = c * height * width;
  x = first_of(g, x, row_dim, rows * height);
  x = first_of(g, x, row_dim + 1, columns * width);
  /* Patches are brought into the order of the filter, which is then a matrix as it lies. */
  if (channels_last) {
    x = gd_reshape(g, x, 6, (int64_t[]){b, rows, height, columns, width, c});
    x = gd_transpose(g, x, (uint8_t[]){0, 1, 3, 5, 2, 4});
  } else {
    x = gd_reshape(g, x, 6, (int64_t[]){b, c, rows, height, columns, width});
    x = gd_transpose(g, x, (uint8_t[]){0, 2, 4, 1, 3, 5});
  }
  x = gd_reshape(g, x, 4, (int64_t[]){b, rows, columns, taps});

  char name[96];
  snprintf(name, sizeof name, "%s.weight", module);
  gd_tensor_id weight = gd_blocks_param(m, name, 4, filter_dims, GD_INIT_NORMAL);
  snprintf(name, sizeof name, "%s.bias", module);
  gd_tensor_id bias = gd_blocks_param(m, name, 1, filter_dims, GD_INIT_ZEROS);
  return gd_linear(g, x, gd_reshape(g, weight, 2, (int64_t[]){outputs, taps}), bias);
}

gd_tensor_id gd_images_drop_path(struct gd_graph *graph, gd_tensor_id x, double rate, int64_t block,
                                 int64_t blocks) {
  return gd_drop_path(graph, x, blocks > 1 ? rate * (double)block / (double)(blocks - 1) : 0);
}

void gd_images_loss(struct gd_blocks *m, gd_tensor_id x_BC, int64_t classes) {
  struct gd_graph *g = m->graph;
  gd_blocks_enter(m, "%s", "");
  gd_tensor_id logits = gd_blocks_linear(m, "classifier", x_BC, classes, true);
  if (g->labels != GD_NONE && g->tensors[g->labels].dtype == GD_DTYPE_F32) {
    g->loss = gd_soft_xent(g, logits, g->labels, g->loss_weight);
    g->hits = g->loss == GD_NONE ? GD_NONE : g->loss + 2;
    return;
  }
  g->loss = gd_xent(g, logits, g->labels, g->loss_weight,
                    (struct gd_attr_xent){.ignore = -100, .shift = false});
}
