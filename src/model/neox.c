/*
 * GPT-NeoX (Black et al. 2022), the architecture of Pythia: a causal decoder with rotary positions
 * on part of each head and, usually, attention and MLP in parallel on one residual stream.
 * Names and arithmetic follow transformers' GPTNeoXForCausalLM.
 *
 * Letters: B batch, T sequence, C width, N heads, D head size, R rotary dims, F inner width,
 * V vocabulary.
 */
#include <string.h>

#include "model/blocks.h"
#include "model/config.h"
#include "model/model.h"
#include "model/rope.h"

/* --- config.json --------------------------------------------------------------------------- */

/* A probability that must be zero: the family trains without dropout (as Pythia did). */
static enum gd_status read_no_dropout(const struct gd_json *json, const json_t *config,
                                      const char *key, struct gd_error *err) {
  double probability = 0;
  GD_TRY(gd_config_number(json, config, key, 0, 1, &probability, err));
  if (probability == 0)
    return GD_OK;
  gd_json_refuse(json, config, key);
  return gd_fail(err, GD_UNSUPPORTED,
                 "%s: %s is %g; GPT-NeoX trains without dropout here, so set it to 0", json->file,
                 key, probability);
}

/* transformers 5 nests the rotary fields in rope_parameters; 4 has them at the top. */
static enum gd_status read_rope(const struct gd_json *json, const json_t *config,
                                struct gd_neox *neox, struct gd_error *err) {
  double fraction = 0.25; /* transformers' defaults */
  neox->rope_base = 10000;
  const json_t *nested = gd_json_get(json, config, "rope_parameters");
  const json_t *scaling = gd_json_get(json, config, "rope_scaling");
  if (scaling && !json_is_null(scaling)) {
    gd_json_refuse(json, config, "rope_scaling");
    return gd_fail(err, GD_UNSUPPORTED,
                   "%s: rope_scaling is set; GPT-NeoX trains with unscaled rotary positions here, "
                   "so set it to null",
                   json->file);
  }
  if (nested && !json_is_null(nested)) {
    const char *type = "default";
    if (!json_is_object(nested))
      return gd_fail(err, GD_BAD_INPUT, "%s: rope_parameters is not an object", json->file);
    if (gd_config_has(json, nested, "rope_type"))
      GD_TRY(gd_json_string(json, nested, "rope_type", &type, err));
    if (strcmp(type, "default") != 0) {
      gd_json_refuse(json, nested, "rope_type");
      return gd_fail(err, GD_UNSUPPORTED,
                     "%s: rope_parameters.rope_type is \"%s\"; this engine has \"default\" for "
                     "GPT-NeoX",
                     json->file, type);
    }
  }
  const json_t *places[] = {nested, config};
  static const char *const base_keys[] = {"rope_theta", "rotary_emb_base"};
  static const char *const fraction_keys[] = {"partial_rotary_factor", "rotary_pct"};
  bool have_base = false, have_fraction = false;
  for (int place = 0; place < 2; place++)
    for (int key = 0; key < 2; key++) {
      if (!json_is_object(places[place]))
        continue;
      if (gd_config_has(json, places[place], base_keys[key]) && !have_base) {
        GD_TRY(
            gd_json_number(json, places[place], base_keys[key], 1e-3, 1e12, &neox->rope_base, err));
        have_base = true;
      }
      if (gd_config_has(json, places[place], fraction_keys[key]) && !have_fraction) {
        GD_TRY(gd_json_number(json, places[place], fraction_keys[key], 0, 1, &fraction, err));
        have_fraction = true;
      }
    }
  int64_t head = neox->width / neox->heads;
  neox->rotary = (int64_t)((double)head * fraction);
  if (neox->rotary % 2)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: %g of a head of %lld is %lld rotary dims, an odd number; choose "
                   "rotary_pct so that it is even",
                   json->file, fraction, (long long)head, (long long)neox->rotary);
  return GD_OK;
}

static enum gd_status neox_parse(const struct gd_json *json, const json_t *config,
                                 struct gd_model *model, struct gd_error *err) {
  const int64_t largest = GD_CONFIG_LARGEST;
  struct gd_neox neox = {
      .norm_eps = 1e-5, .init_deviation = 0.02, .parallel_residual = true, .attention_bias = true};
  GD_TRY(gd_json_int(json, config, "vocab_size", 1, largest, &neox.vocab, err));
  GD_TRY(gd_json_int(json, config, "hidden_size", 1, largest, &neox.width, err));
  GD_TRY(
      gd_json_int(json, config, "num_hidden_layers", 1, GD_CONFIG_MOST_LAYERS, &neox.layers, err));
  GD_TRY(gd_json_int(json, config, "num_attention_heads", 1, largest, &neox.heads, err));
  GD_TRY(gd_json_int(json, config, "intermediate_size", 1, largest, &neox.inner, err));
  GD_TRY(
      gd_config_divides(json, "num_attention_heads", neox.heads, "hidden_size", neox.width, err));
  GD_TRY(gd_config_number(json, config, "layer_norm_eps", 0, 1, &neox.norm_eps, err));
  GD_TRY(gd_config_number(json, config, "initializer_range", 0, 100, &neox.init_deviation, err));
  GD_TRY(gd_config_bool(json, config, "use_parallel_residual", &neox.parallel_residual, err));
  GD_TRY(gd_config_bool(json, config, "tie_word_embeddings", &neox.tied, err));
  GD_TRY(gd_config_bool(json, config, "attention_bias", &neox.attention_bias, err));
  GD_TRY(read_no_dropout(json, config, "attention_dropout", err));
  GD_TRY(read_no_dropout(json, config, "hidden_dropout", err));
  GD_TRY(gd_config_activation(json, config, "hidden_act", &neox.activation, err));
  GD_TRY(read_rope(json, config, &neox, err));
  model->config.neox = neox;
  return GD_OK;
}

/* --- the graph ----------------------------------------------------------------------------- */

struct builder {
  struct gd_blocks m;
  const struct gd_neox *c;
  int64_t b, t; /* micro-batch, sequence */
  gd_tensor_id rope_table;
};

static gd_tensor_id norm(struct builder *n, const char *module, gd_tensor_id x_BTC) {
  return gd_blocks_layernorm(&n->m, module, x_BTC, n->c->norm_eps);
}

static gd_tensor_id attention(struct builder *n, gd_tensor_id x_BTC) {
  struct gd_graph *g = n->m.graph;
  const struct gd_neox *c = n->c;
  int64_t heads = c->heads, d = c->width / heads, heads_dims[] = {n->b, heads, n->t, d};
  gd_tensor_id qkv =
      gd_blocks_linear(&n->m, "attention.query_key_value", x_BTC, 3 * c->width, c->attention_bias);
  /* q, k, v alternate per head */
  qkv = gd_reshape(g, qkv, 5, (int64_t[]){n->b, n->t, heads, 3, d});
  gd_tensor_id qkv_3BNTD = gd_transpose(g, qkv, (uint8_t[]){3, 0, 2, 1, 4});
  gd_tensor_id part = gd_split(g, qkv_3BNTD, 3);
  if (part == GD_NONE)
    return GD_NONE;
  gd_tensor_id q_BNTD = gd_reshape(g, part, 4, heads_dims);
  gd_tensor_id k_BNTD = gd_reshape(g, part + 1, 4, heads_dims);
  gd_tensor_id v_BNTD = gd_reshape(g, part + 2, 4, heads_dims);
  if (c->rotary > 0) {
    q_BNTD = gd_rope(g, q_BNTD, n->rope_table, c->rotary);
    k_BNTD = gd_rope(g, k_BNTD, n->rope_table, c->rotary);
  }
  gd_tensor_id out_BTC = gd_blocks_attention(g, q_BNTD, k_BNTD, v_BNTD, true, 0);
  return gd_blocks_linear(&n->m, "attention.dense", out_BTC, c->width, c->attention_bias);
}

static gd_tensor_id mlp(struct builder *n, gd_tensor_id x_BTC) {
  const struct gd_neox *c = n->c;
  gd_tensor_id inner_BTF = gd_blocks_linear(&n->m, "mlp.dense_h_to_4h", x_BTC, c->inner, true);
  inner_BTF = gd_activate(n->m.graph, inner_BTF, c->activation);
  return gd_blocks_linear(&n->m, "mlp.dense_4h_to_h", inner_BTF, c->width, true);
}

static void neox_build(const struct gd_model *model, int64_t micro_batch, struct gd_graph *graph) {
  const struct gd_neox *c = &model->config.neox;
  struct builder n = {
      .m = {.graph = graph, .deviation = c->init_deviation}, .c = c, .b = micro_batch};
  int64_t table_dims[] = {c->vocab, c->width};

  gd_tensor_id ids;
  n.t = gd_blocks_causal_tokens(graph, n.b, model->recipe.seq, &ids);
  if (c->rotary > 0) {
    struct gd_rope rope = {.type = GD_ROPE_DEFAULT, .base = c->rope_base, .magnitude = 1};
    n.rope_table = gd_rope_table(graph, &rope, model->recipe.seq, n.t, c->rotary);
  }
  gd_blocks_enter(&n.m, "gpt_neox.");
  gd_tensor_id table_VC = gd_blocks_param(&n.m, "embed_in.weight", 2, table_dims, GD_INIT_NORMAL);
  gd_tensor_id x_BTC = gd_embed(graph, table_VC, ids);
  for (int64_t layer = 0; layer < c->layers; layer++) {
    graph->block = (int32_t)layer;
    gd_blocks_enter(&n.m, "gpt_neox.layers.%lld.", (long long)layer);
    gd_tensor_id attended = attention(&n, norm(&n, "input_layernorm", x_BTC));
    if (c->parallel_residual) {
      gd_tensor_id fed = mlp(&n, norm(&n, "post_attention_layernorm", x_BTC));
      x_BTC = gd_add(graph, gd_add(graph, fed, attended), x_BTC);
    } else {
      x_BTC = gd_add(graph, attended, x_BTC);
      x_BTC = gd_add(graph, mlp(&n, norm(&n, "post_attention_layernorm", x_BTC)), x_BTC);
    }
  }
  graph->block = -1;
  gd_blocks_enter(&n.m, "gpt_neox.");
  x_BTC = norm(&n, "final_layer_norm", x_BTC);
  gd_blocks_enter(&n.m, "%s", "");
  gd_tensor_id head_VC =
      c->tied ? table_VC : gd_blocks_param(&n.m, "embed_out.weight", 2, table_dims, GD_INIT_NORMAL);
  graph->loss = gd_blocks_next_token_loss(graph, gd_linear(graph, x_BTC, head_VC, GD_NONE));
}

/* Causal masks and frequency tables that transformers 4 stored with the weights, and the head
   where it is a copy of the words. */
static bool neox_ignores_tensor(const char *name) {
  return gd_name_ends(name, ".attention.bias") || gd_name_ends(name, ".attention.masked_bias") ||
         gd_name_ends(name, ".rotary_emb.inv_freq") || strcmp(name, "embed_out.weight") == 0 ||
         strcmp(name, "lm_head.weight") == 0;
}

static int64_t neox_classes(const struct gd_model *model) {
  return model->config.neox.vocab;
}

const struct gd_family gd_family_neox = {
    .model_type = "gpt_neox",
    .title = "GPT-NeoX",
    .parse = neox_parse,
    .build = neox_build,
    .ignores_tensor = neox_ignores_tensor,
    .classes = neox_classes,
};
