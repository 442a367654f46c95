/*
 * A family for tests/adding: words, layers of one linear map whose output is taken from the stream,
 * and a head. Letters: B batch, T sequence, C width, V vocabulary.
 */
#include <string.h>

#include "model/blocks.h"
#include "model/config.h"
#include "model/model.h"

struct toy {
  int64_t vocab, width, layers;
};

static enum gd_status toy_parse(const struct gd_json *json, const json_t *config,
                                struct gd_model *model, struct gd_error *err) {
  struct toy c = {0};
  GD_TRY(gd_json_int(json, config, "vocab_size", 1, GD_CONFIG_LARGEST, &c.vocab, err));
  GD_TRY(gd_json_int(json, config, "hidden_size", 1, GD_CONFIG_LARGEST, &c.width, err));
  GD_TRY(gd_json_int(json, config, "num_layers", 1, GD_CONFIG_MOST_LAYERS, &c.layers, err));
  memcpy(model->config.opaque, &c, sizeof c);
  return GD_OK;
}

static void toy_build(const struct gd_model *model, int64_t micro_batch, struct gd_graph *graph) {
  struct toy c;
  memcpy(&c, model->config.opaque, sizeof c);
  struct gd_blocks m = {.graph = graph, .deviation = 0.02};
  int64_t words_dims[] = {c.vocab, c.width}, square[] = {c.width, c.width};
  gd_tensor_id ids;
  gd_blocks_causal_tokens(graph, micro_batch, model->recipe.seq, &ids);
  gd_blocks_enter(&m, "%s", "");
  gd_tensor_id words_VC = gd_blocks_param(&m, "words", 2, words_dims, GD_INIT_NORMAL);
  gd_tensor_id x_BTC = gd_embed(graph, words_VC, ids);
  for (int64_t layer = 0; layer < c.layers; layer++) {
    graph->block = (int32_t)layer;
    gd_blocks_enter(&m, "layers.%lld.", (long long)layer);
    gd_tensor_id weight = gd_blocks_param(&m, "weight", 2, square, GD_INIT_NORMAL);
    gd_tensor_id y_BTC = gd_linear(graph, x_BTC, weight, GD_NONE);
    x_BTC = gd_graph_op(graph, GD_OP_sub, NULL, 2, (gd_tensor_id[]){x_BTC, y_BTC});
  }
  graph->block = -1;
  graph->loss = gd_blocks_next_token_loss(graph, gd_linear(graph, x_BTC, words_VC, GD_NONE));
}

static int64_t toy_classes(const struct gd_model *model) {
  struct toy c;
  memcpy(&c, model->config.opaque, sizeof c);
  return c.vocab;
}

const struct gd_family gd_family_toy = {
    .model_type = "toy",
    .title = "Toy",
    .parse = toy_parse,
    .build = toy_build,
    .classes = toy_classes,
};
