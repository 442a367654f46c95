/*
 * ConvNeXt (Liu et al. 2022, arXiv:2201.03545): a convolutional network of several stages, each at
 * half the resolution of the one before. A block is a depthwise 7 x 7 convolution, a norm and two
 * linear layers on every pixel, scaled by channel and added to what it read. Names and arithmetic
 * follow transformers' ConvNextForImageClassification; channels are last throughout.
 *
 * Letters: B batch, H W rows and columns, C channels, S = H W pixels.
 */
#include <stdio.h>
#include <string.h>

#include "model/config.h"
#include "model/images.h"
#include "model/model.h"

enum { MOST_STAGES = 12, FILTER = 7, WIDER = 4 }; /* WIDER: of the first linear layer */

struct convnext {
  struct gd_images images;
  int64_t stages, widths[MOST_STAGES], depths[MOST_STAGES];
  double norm_eps; /* of the last norm; the others have 1e-6 */
  double init_deviation, init_scale;
  enum gd_activation activation;
};
_Static_assert(sizeof(struct convnext) <= sizeof((struct gd_model *)0)->config.opaque, "too large");

static const double inner_norm_eps = 1e-6;

/* --- config.json --------------------------------------------------------------------------- */

/* One whole number a stage. */
static enum gd_status read_stages(const struct gd_json *json, const json_t *config, const char *key,
                                  int64_t stages, int64_t most, int64_t *values,
                                  struct gd_error *err) {
  const json_t *array = gd_json_get(json, config, key);
  char expected[96];
  snprintf(expected, sizeof expected, "num_stages = %lld numbers from 1 to %lld", (long long)stages,
           (long long)most);
  if (!gd_config_has(json, config, key))
    return stages == 4 ? GD_OK : gd_json_mismatch(json, config, key, expected, err);
  if (!json_is_array(array) || (int64_t)json_array_size(array) != stages)
    return gd_json_mismatch(json, config, key, expected, err);
  for (int64_t i = 0; i < stages; i++) {
    const json_t *value = json_array_get(array, (size_t)i);
    values[i] = json_is_integer(value) ? (int64_t)json_integer_value(value) : 0;
    if (values[i] < 1 || values[i] > most)
      return gd_json_mismatch(json, config, key, expected, err);
  }
  return GD_OK;
}

static int64_t block_count(const struct convnext *c) {
  int64_t blocks = 0;
  for (int64_t s = 0; s < c->stages; s++)
    blocks += c->depths[s];
  return blocks;
}

/* Every stage but the first divides both sides of the image by two, and the last must have a pixel.
 */
static enum gd_status check_sizes(const struct gd_json *json, const struct convnext *c,
                                  struct gd_error *err) {
  const struct gd_images *i = &c->images;
  int64_t rows = i->height / i->patch_height, columns = i->width / i->patch_width;
  int64_t smaller = rows < columns ? rows : columns, blocks = block_count(c);
  if (blocks > GD_CONFIG_MOST_LAYERS)
    return gd_fail(err, GD_BAD_INPUT, "%s: depths are %lld blocks in all; at most %d are taken",
                   json->file, (long long)blocks, GD_CONFIG_MOST_LAYERS);
  if (smaller >> (c->stages - 1) < 1)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: image_size %lld x %lld vanishes in %lld stages; choose a larger one",
                   json->file, (long long)i->height, (long long)i->width, (long long)c->stages);
  return GD_OK;
}

static enum gd_status convnext_parse(const struct gd_json *json, const json_t *config,
                                     struct gd_model *model, struct gd_error *err) {
  struct convnext c = {.images = {3, 224, 224, 4, 4, 2}, /* transformers' defaults */
                       .stages = 4,
                       .widths = {96, 192, 384, 768},
                       .depths = {3, 3, 9, 3},
                       .norm_eps = 1e-12,
                       .init_deviation = 0.02,
                       .init_scale = 1e-6,
                       .activation = GD_ACTIVATION_GELU};
  double drop_path = 0;
  GD_TRY(gd_images_parse(json, config, &c.images, err));
  GD_TRY(gd_config_int(json, config, "num_stages", 1, MOST_STAGES, &c.stages, err));
  GD_TRY(read_stages(json, config, "hidden_sizes", c.stages, GD_CONFIG_LARGEST, c.widths, err));
  GD_TRY(read_stages(json, config, "depths", c.stages, GD_CONFIG_MOST_LAYERS, c.depths, err));
  GD_TRY(check_sizes(json, &c, err));
  GD_TRY(gd_config_activation(json, config, "hidden_act", &c.activation, err));
  GD_TRY(gd_config_number(json, config, "layer_norm_eps", 0, 1, &c.norm_eps, err));
  GD_TRY(gd_config_number(json, config, "initializer_range", 0, 100, &c.init_deviation, err));
  GD_TRY(gd_config_number(json, config, "layer_scale_init_value", -100, 100, &c.init_scale, err));
  GD_TRY(gd_config_dropout(json, config, "drop_path_rate", &drop_path, err));
  if (model->recipe.drop_path < 0) /* no recipe has one */
    model->recipe.drop_path = drop_path;
  model->recipe.seq = 1; /* an image is one sample, not a sequence */
  memcpy(model->config.opaque, &c, sizeof c);
  return GD_OK;
}

/* --- the graph ----------------------------------------------------------------------------- */

/* drop_path: of all blocks, of which the last has it. */
static gd_tensor_id block(struct gd_blocks *m, const struct convnext *c, int64_t width,
                          double drop_path, gd_tensor_id x_BHWC) {
  struct gd_graph *g = m->graph;
  int64_t filter_dims[] = {width, 1, FILTER, FILTER};
  gd_tensor_id filter = gd_blocks_param(m, "dwconv.weight", 4, filter_dims, GD_INIT_NORMAL);
  gd_tensor_id bias = gd_blocks_param(m, "dwconv.bias", 1, filter_dims, GD_INIT_ZEROS);
  gd_tensor_id out = gd_depthwise(g, x_BHWC, filter, bias);
  out = gd_blocks_layernorm(m, "layernorm", out, inner_norm_eps);
  out = gd_blocks_linear(m, "pwconv1", out, WIDER * width, true);
  out = gd_blocks_linear(m, "pwconv2", gd_activate(g, out, c->activation), width, true);
  if (c->init_scale > 0) { /* otherwise transformers has no such parameter */
    char name[160];
    snprintf(name, sizeof name, "%slayer_scale_parameter", m->prefix);
    out = gd_mul(g, out, gd_graph_param(g, name, 1, &width, GD_INIT_CONSTANT, c->init_scale));
  }
  out = gd_images_drop_path(g, out, drop_path, g->block, block_count(c));
  return gd_add(g, out, x_BHWC);
}

static void convnext_build(const struct gd_model *model, int64_t micro_batch,
                           struct gd_graph *graph) {
  struct convnext c;
  memcpy(&c, model->config.opaque, sizeof c);
  struct gd_blocks m = {.graph = graph, .deviation = c.init_deviation};
  const struct gd_images *images = &c.images;
  gd_tensor_id pixels = gd_images_leaves(graph, images, micro_batch, model->soft_targets);
  gd_blocks_enter(&m, "convnext.embeddings.");
  gd_tensor_id x_BHWC = gd_images_patches(&m, "patch_embeddings", pixels, false,
                                          images->patch_height, images->patch_width, c.widths[0]);
  x_BHWC = gd_blocks_layernorm(&m, "layernorm", x_BHWC, inner_norm_eps);
  graph->block = 0;
  for (int64_t stage = 0; stage < c.stages; stage++) {
    if (stage > 0) { /* counts as part of the block that follows */
      gd_blocks_enter(&m, "convnext.encoder.stages.%lld.downsampling_layer.", (long long)stage);
      x_BHWC = gd_blocks_layernorm(&m, "0", x_BHWC, inner_norm_eps);
      x_BHWC = gd_images_patches(&m, "1", x_BHWC, true, 2, 2, c.widths[stage]);
    }
    for (int64_t i = 0; i < c.depths[stage]; i++, graph->block++) {
      gd_blocks_enter(&m, "convnext.encoder.stages.%lld.layers.%lld.", (long long)stage,
                      (long long)i);
      x_BHWC = block(&m, &c, c.widths[stage], model->recipe.drop_path, x_BHWC);
    }
  }
  graph->block = -1;
  if (graph->error.status != GD_OK)
    return;
  const int64_t *dims = graph->tensors[x_BHWC].dims;
  gd_tensor_id x_BSC =
      gd_reshape(graph, x_BHWC, 3, (int64_t[]){dims[0], dims[1] * dims[2], dims[3]});
  gd_blocks_enter(&m, "convnext.");
  gd_tensor_id x_BC = gd_blocks_layernorm(&m, "layernorm", gd_pool(graph, x_BSC), c.norm_eps);
  gd_images_loss(&m, x_BC, images->classes);
}

static int64_t convnext_classes(const struct gd_model *model) {
  struct convnext c;
  memcpy(&c, model->config.opaque, sizeof c);
  return c.images.classes;
}

const struct gd_family gd_family_convnext = {
    .model_type = "convnext",
    .title = "ConvNeXt",
    .kind = "convolutional network",
    .parse = convnext_parse,
    .build = convnext_build,
    .images = true,
    .classes = convnext_classes,
};
