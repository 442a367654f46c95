/*
 * ViT (Dosovitskiy et al. 2021, arXiv:2010.11929): an image cut into patches, each a token, with a
 * class token before them and learned positions; a bidirectional encoder with norms before each
 * part; classes are read off the class token. Names and arithmetic follow transformers'
 * ViTForImageClassification, which has no pooler.
 *
 * Letters: B batch, T tokens (patches and one), C width, N heads, D head size, F inner width.
 */
#include <string.h>

#include "model/config.h"
#include "model/images.h"
#include "model/model.h"

struct vit {
  struct gd_images images;
  int64_t width, layers, heads, inner;
  double norm_eps, init_deviation, hidden_dropout, attention_dropout;
  enum gd_activation activation;
  bool qkv_bias;
};
_Static_assert(sizeof(struct vit) <= sizeof((struct gd_model *)0)->config.opaque, "too large");

static int64_t token_count(const struct vit *c) {
  const struct gd_images *i = &c->images;
  return 1 + (i->height / i->patch_height) * (i->width / i->patch_width);
}

/* --- config.json --------------------------------------------------------------------------- */

static enum gd_status vit_parse(const struct gd_json *json, const json_t *config,
                                struct gd_model *model, struct gd_error *err) {
  const int64_t largest = GD_CONFIG_LARGEST;
  struct vit c = {.images = {3, 224, 224, 16, 16, 2}, /* transformers' defaults */
                  .norm_eps = 1e-12,
                  .init_deviation = 0.02,
                  .activation = GD_ACTIVATION_GELU,
                  .qkv_bias = true};
  GD_TRY(gd_images_parse(json, config, &c.images, err));
  GD_TRY(gd_json_int(json, config, "hidden_size", 1, largest, &c.width, err));
  GD_TRY(gd_json_int(json, config, "num_hidden_layers", 1, GD_CONFIG_MOST_LAYERS, &c.layers, err));
  GD_TRY(gd_json_int(json, config, "num_attention_heads", 1, largest, &c.heads, err));
  GD_TRY(gd_json_int(json, config, "intermediate_size", 1, largest, &c.inner, err));
  GD_TRY(gd_config_divides(json, "num_attention_heads", c.heads, "hidden_size", c.width, err));
  GD_TRY(gd_config_activation(json, config, "hidden_act", &c.activation, err));
  GD_TRY(gd_config_number(json, config, "layer_norm_eps", 0, 1, &c.norm_eps, err));
  GD_TRY(gd_config_number(json, config, "initializer_range", 0, 100, &c.init_deviation, err));
  GD_TRY(gd_config_dropout(json, config, "hidden_dropout_prob", &c.hidden_dropout, err));
  GD_TRY(
      gd_config_dropout(json, config, "attention_probs_dropout_prob", &c.attention_dropout, err));
  GD_TRY(gd_config_bool(json, config, "qkv_bias", &c.qkv_bias, err));
  if (gd_config_has(json, config, "head_dim")) { /* transformers 5 lets it differ */
    int64_t head;
    GD_TRY(gd_json_int(json, config, "head_dim", 1, largest, &head, err));
    if (head != c.width / c.heads)
      return gd_config_unsupported(json, config, "head_dim", "hidden_size / num_attention_heads",
                                   err);
  }
  model->recipe.seq = token_count(&c); /* the image's, not the recipe's */
  memcpy(model->config.opaque, &c, sizeof c);
  return GD_OK;
}

/* --- the graph ----------------------------------------------------------------------------- */

/* Patches behind the class token: both are added to the positions, once for all images. */
static gd_tensor_id embeddings(struct gd_blocks *m, const struct vit *c, int64_t b, bool soft) {
  struct gd_graph *g = m->graph;
  const struct gd_images *images = &c->images;
  int64_t t = token_count(c), width = c->width;
  gd_tensor_id pixels = gd_images_leaves(g, images, b, soft);
  gd_tensor_id first = gd_blocks_param(m, "cls_token", 3, (int64_t[]){1, 1, width}, GD_INIT_NORMAL);
  gd_tensor_id places =
      gd_blocks_param(m, "position_embeddings", 3, (int64_t[]){1, t, width}, GD_INIT_NORMAL);
  gd_tensor_id x = gd_images_patches(m, "patch_embeddings.projection", pixels, false,
                                     images->patch_height, images->patch_width, width);
  first = gd_reshape(g, first, 2, (int64_t[]){1, width});
  places = gd_reshape(g, places, 2, (int64_t[]){t, width});
  gd_tensor_id table_TC = gd_add(g, places, gd_pad(g, first, 0, 0, t));
  gd_tensor_id x_BTC = gd_pad(g, gd_reshape(g, x, 3, (int64_t[]){b, t - 1, width}), 1, 1, t);
  return gd_dropout(g, gd_add(g, x_BTC, table_TC), c->hidden_dropout);
}

/* What layer i adds to x. */
static gd_tensor_id residual(struct gd_graph *g, const struct vit *c, double drop_path, int64_t i,
                             gd_tensor_id out_BTC, gd_tensor_id x_BTC) {
  out_BTC = gd_dropout(g, out_BTC, c->hidden_dropout);
  return gd_add(g, gd_images_drop_path(g, out_BTC, drop_path, i, c->layers), x_BTC);
}

static gd_tensor_id layer(struct gd_blocks *m, const struct vit *c, double drop_path, int64_t i,
                          gd_tensor_id x_BTC) {
  struct gd_graph *g = m->graph;
  static const char *const names[] = {"attention.attention.query", "attention.attention.key",
                                      "attention.attention.value"};
  gd_tensor_id qkv[3], out_BTC = gd_blocks_layernorm(m, "layernorm_before", x_BTC, c->norm_eps);
  for (int part = 0; part < 3; part++) {
    qkv[part] = gd_blocks_linear(m, names[part], out_BTC, c->width, c->qkv_bias);
    qkv[part] = gd_blocks_heads(g, qkv[part], c->heads);
  }
  out_BTC = gd_blocks_attention(g, qkv[0], qkv[1], qkv[2], false, c->attention_dropout);
  out_BTC = gd_blocks_linear(m, "attention.output.dense", out_BTC, c->width, true);
  x_BTC = residual(g, c, drop_path, i, out_BTC, x_BTC);

  out_BTC = gd_blocks_layernorm(m, "layernorm_after", x_BTC, c->norm_eps);
  gd_tensor_id inner_BTF = gd_blocks_linear(m, "intermediate.dense", out_BTC, c->inner, true);
  inner_BTF = gd_activate(g, inner_BTF, c->activation);
  out_BTC = gd_blocks_linear(m, "output.dense", inner_BTF, c->width, true);
  return residual(g, c, drop_path, i, out_BTC, x_BTC);
}

static void vit_build(const struct gd_model *model, int64_t micro_batch, struct gd_graph *graph) {
  struct vit c;
  memcpy(&c, model->config.opaque, sizeof c);
  struct gd_blocks m = {.graph = graph, .deviation = c.init_deviation};
  gd_blocks_enter(&m, "vit.embeddings.");
  gd_tensor_id x_BTC = embeddings(&m, &c, micro_batch, model->soft_targets);
  for (int64_t i = 0; i < c.layers; i++) {
    graph->block = (int32_t)i;
    gd_blocks_enter(&m, "vit.encoder.layer.%lld.", (long long)i);
    x_BTC = layer(&m, &c, model->recipe.drop_path, i, x_BTC);
  }
  graph->block = -1;
  gd_blocks_enter(&m, "vit.");
  /* Norms know no other token, so that of the class token is enough. */
  gd_tensor_id x_BC =
      gd_reshape(graph, gd_slice(graph, x_BTC, 1, 0, 1), 2, (int64_t[]){micro_batch, c.width});
  x_BC = gd_blocks_layernorm(&m, "layernorm", x_BC, c.norm_eps);
  gd_images_loss(&m, x_BC, c.images.classes);
}

/* The pooler of checkpoints of the bare model, which no classifier reads. */
static bool vit_ignores_tensor(const char *name) {
  return gd_name_begins(name, "vit.pooler.");
}

static int64_t vit_classes(const struct gd_model *model) {
  struct vit c;
  memcpy(&c, model->config.opaque, sizeof c);
  return c.images.classes;
}

const struct gd_family gd_family_vit = {
    .model_type = "vit",
    .title = "ViT",
    .parse = vit_parse,
    .build = vit_build,
    .images = true,
    .ignores_tensor = vit_ignores_tensor,
    .classes = vit_classes,
};
