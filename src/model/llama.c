/*
 * Llama (Touvron et al. 2023) and its relatives: a causal decoder with rotary positions, gated
 * inner layers and grouped keys and values. Mistral is the same; Qwen2 adds biases to queries, keys
 * and values; Qwen3 normalises each head of queries and keys instead; OLMo normalises without
 * weights. Names and arithmetic follow transformers' LlamaForCausalLM, MistralForCausalLM,
 * Qwen2ForCausalLM, Qwen3ForCausalLM and OlmoForCausalLM.
 *
 * Letters: B batch, T sequence, C width, N heads, M key and value heads, D head size, F inner
 * width, V vocabulary.
 */
#include <string.h>

#include "model/blocks.h"
#include "model/config.h"
#include "model/model.h"
#include "model/rope.h"

struct llama {
  int64_t vocab, width, layers, heads, kv_heads, head, inner;
  int64_t padding; /* the word that is not trained; -1: none */
  int64_t window;  /* positions that attention sees; 0: all */
  double norm_eps, init_deviation, attention_dropout;
  struct gd_rope rope;
  enum gd_activation activation;
  bool qkv_bias, out_bias, mlp_bias, tied, plain_norm;
  bool head_norms; /* of queries and keys, before they rotate */
};
_Static_assert(sizeof(struct llama) <= sizeof((struct gd_model *)0)->config.opaque, "too large");

/* --- config.json --------------------------------------------------------------------------- */

static enum gd_status read_sizes(const struct gd_json *json, const json_t *config, struct llama *c,
                                 struct gd_error *err) {
  const int64_t largest = GD_CONFIG_LARGEST;
  GD_TRY(gd_json_int(json, config, "vocab_size", 1, largest, &c->vocab, err));
  GD_TRY(gd_json_int(json, config, "hidden_size", 1, largest, &c->width, err));
  GD_TRY(gd_json_int(json, config, "num_hidden_layers", 1, GD_CONFIG_MOST_LAYERS, &c->layers, err));
  GD_TRY(gd_json_int(json, config, "num_attention_heads", 1, largest, &c->heads, err));
  GD_TRY(gd_json_int(json, config, "intermediate_size", 1, largest, &c->inner, err));
  if (c->kv_heads == 0)
    c->kv_heads = c->heads;
  GD_TRY(gd_config_int(json, config, "num_key_value_heads", 1, largest, &c->kv_heads, err));
  GD_TRY(gd_config_divides(json, "num_key_value_heads", c->kv_heads, "num_attention_heads",
                           c->heads, err));
  if (gd_config_has(json, config, "head_dim"))
    GD_TRY(gd_json_int(json, config, "head_dim", 1, largest, &c->head, err));
  else if (c->head == 0)
    GD_TRY(gd_config_divides(json, "num_attention_heads", c->heads, "hidden_size", c->width, err));
  c->head = c->head ? c->head : c->width / c->heads;
  if (c->head % 2)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: a head has %lld dims; rotary positions need an even number", json->file,
                   (long long)c->head);
  return GD_OK;
}

/* Whether a layer of those listed sees a window. */
static bool lists_windows(const json_t *types) {
  for (size_t i = 0; i < json_array_size(types); i++) {
    const char *type = json_string_value(json_array_get(types, i));
    if (!type || strcmp(type, "full_attention") != 0)
      return true;
  }
  return false;
}

static enum gd_status read_window(const struct gd_json *json, const json_t *config, bool is_qwen,
                                  struct llama *c, struct gd_error *err) {
  const json_t *types = gd_json_get(json, config, "layer_types");
  bool used = !is_qwen; /* Qwen2 has a switch, and then a window in the layers past some only */
  int64_t full_layers = 28;
  GD_TRY(gd_config_bool(json, config, "use_sliding_window", &used, err));
  GD_TRY(gd_config_int(json, config, "max_window_layers", 0, GD_CONFIG_LARGEST, &full_layers, err));
  if (used && is_qwen)
    used = json_is_array(types) ? lists_windows(types) : full_layers < c->layers;
  GD_TRY(gd_config_int(json, config, "sliding_window", 1, GD_CONFIG_LARGEST, &c->window, err));
  if (!used || json_is_null(gd_json_get(json, config, "sliding_window")))
    c->window = 0;
  return GD_OK;
}

/* c holds what the family assumes where a field is missing. */
static enum gd_status parse(const struct gd_json *json, const json_t *config, bool is_qwen,
                            struct llama *c, struct gd_model *model, struct gd_error *err) {
  c->init_deviation = 0.02;
  c->activation = GD_ACTIVATION_SILU;
  GD_TRY(read_sizes(json, config, c, err));
  GD_TRY(gd_config_padding(json, config, c->vocab, &c->padding, err));
  GD_TRY(gd_config_number(json, config, "initializer_range", 0, 100, &c->init_deviation, err));
  GD_TRY(gd_config_dropout(json, config, "attention_dropout", &c->attention_dropout, err));
  GD_TRY(gd_config_activation(json, config, "hidden_act", &c->activation, err));
  GD_TRY(gd_config_bool(json, config, "tie_word_embeddings", &c->tied, err));
  GD_TRY(gd_rope_parse(json, config, &c->rope, err));
  GD_TRY(read_window(json, config, is_qwen, c, err));
  if (gd_config_has(json, config, "clip_qkv"))
    return gd_config_unsupported(json, config, "clip_qkv", "null: nothing is clipped here", err);
  memcpy(model->config.opaque, c, sizeof *c);
  return GD_OK;
}

static enum gd_status read_rms_eps(const struct gd_json *json, const json_t *config,
                                   struct llama *c, struct gd_error *err) {
  c->norm_eps = 1e-6;
  return gd_config_number(json, config, "rms_norm_eps", 0, 1, &c->norm_eps, err);
}

/* Llama and OLMo have the biases of attention behind one switch. */
static enum gd_status read_biases(const struct gd_json *json, const json_t *config, struct llama *c,
                                  struct gd_error *err) {
  GD_TRY(gd_config_bool(json, config, "attention_bias", &c->qkv_bias, err));
  c->out_bias = c->qkv_bias;
  return GD_OK;
}

static enum gd_status llama_parse(const struct gd_json *json, const json_t *config,
                                  struct gd_model *model, struct gd_error *err) {
  struct llama c = {.padding = -1};
  GD_TRY(read_rms_eps(json, config, &c, err));
  GD_TRY(read_biases(json, config, &c, err));
  GD_TRY(gd_config_bool(json, config, "mlp_bias", &c.mlp_bias, err));
  return parse(json, config, false, &c, model, err);
}

static enum gd_status mistral_parse(const struct gd_json *json, const json_t *config,
                                    struct gd_model *model, struct gd_error *err) {
  struct llama c = {.padding = -1, .kv_heads = 8, .window = 4096}; /* transformers' defaults */
  GD_TRY(read_rms_eps(json, config, &c, err));
  return parse(json, config, false, &c, model, err);
}

static enum gd_status qwen2_parse(const struct gd_json *json, const json_t *config,
                                  struct gd_model *model, struct gd_error *err) {
  struct llama c = {.padding = -1, .window = 4096, .qkv_bias = true};
  GD_TRY(read_rms_eps(json, config, &c, err));
  return parse(json, config, true, &c, model, err);
}

static enum gd_status qwen3_parse(const struct gd_json *json, const json_t *config,
                                  struct gd_model *model, struct gd_error *err) {
  struct llama c = {.padding = -1, .window = 4096, .head = 128, .head_norms = true};
  GD_TRY(read_rms_eps(json, config, &c, err));
  GD_TRY(read_biases(json, config, &c, err));
  return parse(json, config, true, &c, model, err);
}

static enum gd_status olmo_parse(const struct gd_json *json, const json_t *config,
                                 struct gd_model *model, struct gd_error *err) {
  struct llama c = {.padding = 1, .norm_eps = 1e-5, .plain_norm = true}; /* eps is no field */
  GD_TRY(read_biases(json, config, &c, err));
  return parse(json, config, false, &c, model, err);
}

/* --- the graph ----------------------------------------------------------------------------- */

struct builder {
  struct gd_blocks m;
  const struct llama *c;
  gd_tensor_id rope_table, ones; /* ones: the weight of OLMo's norms, a constant */
};

static gd_tensor_id norm(struct builder *b, const char *name, gd_tensor_id x_BTC) {
  const struct llama *c = b->c;
  if (c->plain_norm)
    return gd_layernorm(b->m.graph, x_BTC, b->ones, GD_NONE, (float)c->norm_eps);
  gd_tensor_id weight = gd_blocks_param(&b->m, name, 1, &c->width, GD_INIT_ONES);
  return gd_rmsnorm(b->m.graph, x_BTC, weight, (float)c->norm_eps);
}

/* RMSNorm of every head by one weight [D]; x stays [B,T,heads D]. */
static gd_tensor_id head_norm(struct builder *b, const char *name, gd_tensor_id x, int64_t heads) {
  const struct llama *c = b->c;
  struct gd_graph *g = b->m.graph;
  if (!c->head_norms || x == GD_NONE)
    return x;
  const int64_t *dims = g->tensors[x].dims, batch = dims[0], t = dims[1];
  gd_tensor_id weight = gd_blocks_param(&b->m, name, 1, &c->head, GD_INIT_ONES);
  x = gd_reshape(g, x, 4, (int64_t[]){batch, t, heads, c->head});
  x = gd_rmsnorm(g, x, weight, (float)c->norm_eps);
  return gd_reshape(g, x, 3, (int64_t[]){batch, t, heads * c->head});
}

static gd_tensor_id attention(struct builder *b, gd_tensor_id x_BTC) {
  const struct llama *c = b->c;
  struct gd_graph *g = b->m.graph;
  int64_t q_width = c->heads * c->head, kv_width = c->kv_heads * c->head;
  gd_tensor_id q = gd_blocks_linear(&b->m, "self_attn.q_proj", x_BTC, q_width, c->qkv_bias);
  gd_tensor_id k = gd_blocks_linear(&b->m, "self_attn.k_proj", x_BTC, kv_width, c->qkv_bias);
  gd_tensor_id v = gd_blocks_linear(&b->m, "self_attn.v_proj", x_BTC, kv_width, c->qkv_bias);
  q = head_norm(b, "self_attn.q_norm.weight", q, c->heads);
  k = head_norm(b, "self_attn.k_norm.weight", k, c->kv_heads);
  gd_tensor_id q_BNTD = gd_rope(g, gd_blocks_heads(g, q, c->heads), b->rope_table, c->head);
  gd_tensor_id k_BMTD = gd_rope(g, gd_blocks_heads(g, k, c->kv_heads), b->rope_table, c->head);
  gd_tensor_id v_BMTD = gd_blocks_heads(g, v, c->kv_heads);
  gd_tensor_id out = gd_blocks_attention(g, q_BNTD, k_BMTD, v_BMTD, true, c->attention_dropout);
  return gd_blocks_linear(&b->m, "self_attn.o_proj", out, c->width, c->out_bias);
}

static gd_tensor_id mlp(struct builder *b, gd_tensor_id x_BTC) {
  const struct llama *c = b->c;
  gd_tensor_id gate_BTF = gd_blocks_linear(&b->m, "mlp.gate_proj", x_BTC, c->inner, c->mlp_bias);
  gd_tensor_id up_BTF = gd_blocks_linear(&b->m, "mlp.up_proj", x_BTC, c->inner, c->mlp_bias);
  gate_BTF = gd_activate(b->m.graph, gate_BTF, c->activation);
  return gd_blocks_linear(&b->m, "mlp.down_proj", gd_mul(b->m.graph, gate_BTF, up_BTF), c->width,
                          c->mlp_bias);
}

static void llama_build(const struct gd_model *model, int64_t micro_batch, struct gd_graph *graph) {
  struct llama c;
  memcpy(&c, model->config.opaque, sizeof c);
  struct builder b = {.m = {.graph = graph, .deviation = c.init_deviation}, .c = &c};
  int64_t t = model->recipe.seq, table_dims[] = {c.vocab, c.width};
  if (c.window > 0 && t > c.window) {
    gd_fail(&graph->error, GD_UNSUPPORTED,
            "sliding_window is %lld and a sequence has %lld tokens; this engine attends to all of "
            "them, so set sliding_window to null or choose a shorter --seq",
            (long long)c.window, (long long)t);
    return;
  }

  gd_tensor_id ids;
  t = gd_blocks_causal_tokens(graph, micro_batch, t, &ids);
  b.rope_table = gd_rope_table(graph, &c.rope, model->recipe.seq, t, c.head);
  if (c.plain_norm) {
    b.ones = gd_graph_leaf(graph, GD_ROLE_CONST, "ones", GD_DTYPE_F32, 1, &c.width);
    if (b.ones == GD_NONE)
      return;
    graph->tensors[b.ones].init = GD_INIT_ONES;
  }
  gd_blocks_enter(&b.m, "model.");
  gd_tensor_id table_VC =
      gd_blocks_param(&b.m, "embed_tokens.weight", 2, table_dims, GD_INIT_NORMAL);
  gd_tensor_id x_BTC = gd_embed_padded(graph, table_VC, ids, c.padding);
  for (int64_t layer = 0; layer < c.layers; layer++) {
    graph->block = (int32_t)layer;
    gd_blocks_enter(&b.m, "model.layers.%lld.", (long long)layer);
    x_BTC = gd_add(graph, attention(&b, norm(&b, "input_layernorm.weight", x_BTC)), x_BTC);
    x_BTC = gd_add(graph, mlp(&b, norm(&b, "post_attention_layernorm.weight", x_BTC)), x_BTC);
  }
  graph->block = -1;
  gd_blocks_enter(&b.m, "model.");
  x_BTC = norm(&b, "norm.weight", x_BTC);
  gd_blocks_enter(&b.m, "%s", "");
  gd_tensor_id head_VC =
      c.tied ? table_VC : gd_blocks_param(&b.m, "lm_head.weight", 2, table_dims, GD_INIT_NORMAL);
  graph->loss = gd_blocks_next_token_loss(graph, gd_linear(graph, x_BTC, head_VC, GD_NONE));
}

/* Frequency tables of old checkpoints, and the head where it is a copy of the words. */
static bool llama_ignores_tensor(const char *name) {
  return gd_name_ends(name, ".rotary_emb.inv_freq") || strcmp(name, "lm_head.weight") == 0;
}

static int64_t llama_classes(const struct gd_model *model) {
  struct llama c;
  memcpy(&c, model->config.opaque, sizeof c);
  return c.vocab;
}

const struct gd_family gd_family_llama = {
    .model_type = "llama",
    .title = "Llama",
    .parse = llama_parse,
    .build = llama_build,
    .ignores_tensor = llama_ignores_tensor,
    .classes = llama_classes,
};

const struct gd_family gd_family_mistral = {
    .model_type = "mistral",
    .title = "Mistral",
    .parse = mistral_parse,
    .build = llama_build,
    .ignores_tensor = llama_ignores_tensor,
    .classes = llama_classes,
};

const struct gd_family gd_family_qwen2 = {
    .model_type = "qwen2",
    .title = "Qwen2",
    .parse = qwen2_parse,
    .build = llama_build,
    .ignores_tensor = llama_ignores_tensor,
    .classes = llama_classes,
};

const struct gd_family gd_family_qwen3 = {
    .model_type = "qwen3",
    .title = "Qwen3",
    .parse = qwen3_parse,
    .build = llama_build,
    .ignores_tensor = llama_ignores_tensor,
    .classes = llama_classes,
};

const struct gd_family gd_family_olmo = {
    .model_type = "olmo",
    .title = "OLMo",
    .parse = olmo_parse,
    .build = llama_build,
    .ignores_tensor = llama_ignores_tensor,
    .classes = llama_classes,
};
