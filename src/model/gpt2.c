/*
 * GPT-2 (Radford et al. 2019) and what Megatron-LM calls GPT: a causal decoder with learned
 * positions, norms before each part and one table for words in and out. Names and arithmetic follow
 * transformers' GPT2LMHeadModel.
 *
 * Letters: B batch, T sequence, C width, N heads, D head size, F inner width, V vocabulary, P
 * positions.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/blocks.h"
#include "model/config.h"
#include "model/model.h"

struct gpt2 {
  int64_t vocab, positions, width, layers, heads, inner;
  double norm_eps, init_deviation;
  double embedding_dropout, attention_dropout, residual_dropout;
  enum gd_activation activation;
  bool tied;
};
_Static_assert(sizeof(struct gpt2) <= sizeof((struct gd_model *)0)->config.opaque, "too large");

/* --- config.json --------------------------------------------------------------------------- */

/* A size under GPT-2's own name or the one that other families use; both are valid names. */
static enum gd_status read_size(const struct gd_json *json, const json_t *config, const char *own,
                                const char *common, int64_t high, int64_t *value,
                                struct gd_error *err) {
  const char *key =
      gd_config_has(json, config, common) && !gd_config_has(json, config, own) ? common : own;
  return gd_json_int(json, config, key, 1, high, value, err);
}

static enum gd_status gpt2_parse(const struct gd_json *json, const json_t *config,
                                 struct gd_model *model, struct gd_error *err) {
  struct gpt2 c = {.norm_eps = 1e-5, /* transformers' defaults */
                   .init_deviation = 0.02,
                   .embedding_dropout = 0.1,
                   .attention_dropout = 0.1,
                   .residual_dropout = 0.1,
                   .activation = GD_ACTIVATION_GELU_TANH,
                   .tied = true};
  const int64_t largest = GD_CONFIG_LARGEST;
  GD_TRY(gd_json_int(json, config, "vocab_size", 1, largest, &c.vocab, err));
  GD_TRY(read_size(json, config, "n_positions", "max_position_embeddings", largest, &c.positions,
                   err));
  GD_TRY(read_size(json, config, "n_embd", "hidden_size", largest, &c.width, err));
  GD_TRY(read_size(json, config, "n_layer", "num_hidden_layers", GD_CONFIG_MOST_LAYERS, &c.layers,
                   err));
  GD_TRY(read_size(json, config, "n_head", "num_attention_heads", largest, &c.heads, err));
  GD_TRY(gd_config_divides(json, "n_head", c.heads, "n_embd", c.width, err));
  c.inner = 4 * c.width;
  GD_TRY(gd_config_int(json, config, "n_inner", 1, largest, &c.inner, err));
  GD_TRY(gd_config_activation(json, config, "activation_function", &c.activation, err));
  GD_TRY(gd_config_number(json, config, "layer_norm_epsilon", 0, 1, &c.norm_eps, err));
  GD_TRY(gd_config_number(json, config, "initializer_range", 0, 100, &c.init_deviation, err));
  GD_TRY(gd_config_dropout(json, config, "embd_pdrop", &c.embedding_dropout, err));
  GD_TRY(gd_config_dropout(json, config, "attn_pdrop", &c.attention_dropout, err));
  GD_TRY(gd_config_dropout(json, config, "resid_pdrop", &c.residual_dropout, err));
  GD_TRY(gd_config_bool(json, config, "tie_word_embeddings", &c.tied, err));
  GD_TRY(gd_config_only(json, config, "scale_attn_weights", true, err));
  GD_TRY(gd_config_only(json, config, "scale_attn_by_inverse_layer_idx", false, err));
  GD_TRY(gd_config_only(json, config, "reorder_and_upcast_attn", false, err));
  GD_TRY(gd_config_only(json, config, "add_cross_attention", false, err));
  gd_config_limit_seq(json, c.positions, &model->recipe.seq);
  memcpy(model->config.opaque, &c, sizeof c);
  return GD_OK;
}

/* --- the graph ----------------------------------------------------------------------------- */

/* x weight + bias with weight [inputs, outputs]: transformers' Conv1D. */
static gd_tensor_id conv1d(struct gd_blocks *m, const char *module, gd_tensor_id x, int64_t inputs,
                           int64_t outputs, double deviation) {
  char name[192];
  snprintf(name, sizeof name, "%s%s.weight", m->prefix, module);
  gd_tensor_id weight =
      gd_graph_param(m->graph, name, 2, (int64_t[]){inputs, outputs}, GD_INIT_NORMAL, deviation);
  snprintf(name, sizeof name, "%s%s.bias", m->prefix, module);
  gd_tensor_id bias = gd_graph_param(m->graph, name, 1, &outputs, GD_INIT_ZEROS, 0);
  return gd_matmul(m->graph, x, weight, bias,
                   (struct gd_attr_matmul){.alpha = 1, .out_dtype = GD_DTYPE_COUNT});
}

static gd_tensor_id attention(struct gd_blocks *m, const struct gpt2 *c, gd_tensor_id x_BTC,
                              int64_t b, int64_t t, double last_deviation) {
  struct gd_graph *g = m->graph;
  int64_t n = c->heads, d = c->width / n, heads_dims[] = {b, n, t, d};
  gd_tensor_id qkv = conv1d(m, "attn.c_attn", x_BTC, c->width, 3 * c->width, c->init_deviation);
  qkv = gd_reshape(g, qkv, 5, (int64_t[]){b, t, 3, n, d}); /* all of q, all of k, all of v */
  gd_tensor_id part = gd_split(g, gd_transpose(g, qkv, (uint8_t[]){2, 0, 3, 1, 4}), 3);
  if (part == GD_NONE)
    return GD_NONE;
  gd_tensor_id q_BNTD = gd_reshape(g, part, 4, heads_dims);
  gd_tensor_id k_BNTD = gd_reshape(g, part + 1, 4, heads_dims);
  gd_tensor_id v_BNTD = gd_reshape(g, part + 2, 4, heads_dims);
  gd_tensor_id out_BTC = gd_blocks_attention(g, q_BNTD, k_BNTD, v_BNTD, true, c->attention_dropout);
  return conv1d(m, "attn.c_proj", out_BTC, c->width, c->width, last_deviation);
}

static gd_tensor_id mlp(struct gd_blocks *m, const struct gpt2 *c, gd_tensor_id x_BTC,
                        double last_deviation) {
  gd_tensor_id inner_BTF = conv1d(m, "mlp.c_fc", x_BTC, c->width, c->inner, c->init_deviation);
  inner_BTF = gd_activate(m->graph, inner_BTF, c->activation);
  return conv1d(m, "mlp.c_proj", inner_BTF, c->inner, c->width, last_deviation);
}

static void gpt2_build(const struct gd_model *model, int64_t micro_batch, struct gd_graph *graph) {
  struct gpt2 c;
  memcpy(&c, model->config.opaque, sizeof c);
  struct gd_blocks m = {.graph = graph, .deviation = c.init_deviation};
  int64_t b = micro_batch, t = model->recipe.seq;
  int64_t words_dims[] = {c.vocab, c.width}, positions_dims[] = {c.positions, c.width};
  /* Two parts of a layer add to the stream: the GPT-2 paper, section 2.3. */
  double last_deviation = c.init_deviation / sqrt(2 * (double)c.layers);
  if (t > c.positions) {
    gd_fail(&graph->error, GD_BAD_INPUT,
            "a sequence of %lld tokens is longer than the model's %lld positions (n_positions); "
            "choose a shorter one with --seq",
            (long long)t, (long long)c.positions);
    return;
  }

  gd_tensor_id ids;
  t = gd_blocks_causal_tokens(graph, b, t, &ids);
  gd_blocks_enter(&m, "transformer.");
  gd_tensor_id words_VC = gd_blocks_param(&m, "wte.weight", 2, words_dims, GD_INIT_NORMAL);
  gd_tensor_id places_PC = gd_blocks_param(&m, "wpe.weight", 2, positions_dims, GD_INIT_NORMAL);
  gd_tensor_id x_BTC = gd_embed(graph, words_VC, ids);
  x_BTC = gd_add(graph, x_BTC, gd_slice(graph, places_PC, 0, 0, t));
  x_BTC = gd_dropout(graph, x_BTC, c.embedding_dropout);
  for (int64_t layer = 0; layer < c.layers; layer++) {
    graph->block = (int32_t)layer;
    gd_blocks_enter(&m, "transformer.h.%lld.", (long long)layer);
    gd_tensor_id normed = gd_blocks_layernorm(&m, "ln_1", x_BTC, c.norm_eps);
    gd_tensor_id attended = attention(&m, &c, normed, b, t, last_deviation);
    x_BTC = gd_add(graph, gd_dropout(graph, attended, c.residual_dropout), x_BTC);
    gd_tensor_id fed =
        mlp(&m, &c, gd_blocks_layernorm(&m, "ln_2", x_BTC, c.norm_eps), last_deviation);
    x_BTC = gd_add(graph, gd_dropout(graph, fed, c.residual_dropout), x_BTC);
  }
  graph->block = -1;
  gd_blocks_enter(&m, "transformer.");
  x_BTC = gd_blocks_layernorm(&m, "ln_f", x_BTC, c.norm_eps);
  gd_blocks_enter(&m, "%s", "");
  gd_tensor_id head_VC =
      c.tied ? words_VC : gd_blocks_param(&m, "lm_head.weight", 2, words_dims, GD_INIT_NORMAL);
  graph->loss = gd_blocks_next_token_loss(graph, gd_linear(graph, x_BTC, head_VC, GD_NONE));
}

/* Causal masks of old checkpoints, and the head where it is a copy of the words. */
static bool gpt2_ignores_tensor(const char *name) {
  return gd_name_ends(name, ".attn.bias") || gd_name_ends(name, ".attn.masked_bias") ||
         strcmp(name, "lm_head.weight") == 0;
}

static int64_t gpt2_classes(const struct gd_model *model) {
  struct gpt2 c;
  memcpy(&c, model->config.opaque, sizeof c);
  return c.vocab;
}

const struct gd_family gd_family_gpt2 = {
    .model_type = "gpt2",
    .title = "GPT-2",
    .parse = gpt2_parse,
    .build = gpt2_build,
    .ignores_tensor = gpt2_ignores_tensor,
    .classes = gpt2_classes,
};
