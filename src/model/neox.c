/*
 * GPT-NeoX (Black et al. 2022), the architecture of Pythia: a causal decoder with rotary positions
 * on part of each head and, usually, attention and MLP in parallel on one residual stream.
 * Names and arithmetic follow transformers' GPTNeoXForCausalLM.
 *
 * Letters: B batch, T sequence, C width, N heads, D head size, R rotary dims, F inner width,
 * V vocabulary.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/model.h"

/* --- config.json --------------------------------------------------------------------------- */

static enum gd_status read_activation(const struct gd_json *json, const json_t *config,
                                      enum gd_activation *activation, struct gd_error *err) {
  static const struct {
    const char *name;
    enum gd_activation activation;
  } known[] = {
      {"gelu", GD_ACTIVATION_GELU},
      {"gelu_new", GD_ACTIVATION_GELU_TANH},
      {"gelu_fast", GD_ACTIVATION_GELU_TANH}, /* the same polynomial, factored otherwise */
      {"gelu_pytorch_tanh", GD_ACTIVATION_GELU_TANH},
      {"relu", GD_ACTIVATION_RELU},
      {"silu", GD_ACTIVATION_SILU},
      {"swish", GD_ACTIVATION_SILU},
  };
  const char *name = "gelu";
  if (gd_json_has(config, "hidden_act"))
    GD_TRY(gd_json_string(json, config, "hidden_act", &name, err));
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(name, known[i].name) == 0) {
      *activation = known[i].activation;
      return GD_OK;
    }
  return gd_fail(err, GD_UNSUPPORTED,
                 "%s: hidden_act is \"%s\"; this engine has gelu, gelu_new, gelu_fast, "
                 "gelu_pytorch_tanh, relu and silu",
                 json->file, name);
}

/* A probability that must be zero: the family trains without dropout (as Pythia did). */
static enum gd_status read_no_dropout(const struct gd_json *json, const json_t *config,
                                      const char *key, struct gd_error *err) {
  double probability = 0;
  if (gd_json_has(config, key))
    GD_TRY(gd_json_number(json, config, key, 0, 1, &probability, err));
  if (probability != 0)
    return gd_fail(err, GD_UNSUPPORTED,
                   "%s: %s is %g; GPT-NeoX trains without dropout here, so set it to 0", json->file,
                   key, probability);
  return GD_OK;
}

/* transformers 5 nests the rotary fields in rope_parameters; 4 has them at the top. */
static enum gd_status read_rope(const struct gd_json *json, const json_t *config,
                                struct gd_neox *neox, struct gd_error *err) {
  double fraction = 0.25; /* transformers' defaults */
  neox->rope_base = 10000;
  const json_t *nested = json_object_get(config, "rope_parameters");
  const json_t *scaling = json_object_get(config, "rope_scaling");
  if (scaling && !json_is_null(scaling))
    return gd_fail(err, GD_UNSUPPORTED,
                   "%s: rope_scaling is set; GPT-NeoX trains with unscaled rotary positions here, "
                   "so set it to null",
                   json->file);
  if (nested && !json_is_null(nested)) {
    const char *type = "default";
    if (!json_is_object(nested))
      return gd_fail(err, GD_BAD_INPUT, "%s: rope_parameters is not an object", json->file);
    if (gd_json_has(nested, "rope_type"))
      GD_TRY(gd_json_string(json, nested, "rope_type", &type, err));
    if (strcmp(type, "default") != 0)
      return gd_fail(err, GD_UNSUPPORTED,
                     "%s: rope_parameters.rope_type is \"%s\"; this engine has \"default\" for "
                     "GPT-NeoX",
                     json->file, type);
  }
  const json_t *places[] = {nested, config};
  static const char *const base_keys[] = {"rope_theta", "rotary_emb_base"};
  static const char *const fraction_keys[] = {"partial_rotary_factor", "rotary_pct"};
  bool have_base = false, have_fraction = false;
  for (int place = 0; place < 2; place++)
    for (int key = 0; key < 2; key++) {
      if (!json_is_object(places[place]))
        continue;
      if (!have_base && gd_json_has(places[place], base_keys[key])) {
        GD_TRY(
            gd_json_number(json, places[place], base_keys[key], 1e-3, 1e12, &neox->rope_base, err));
        have_base = true;
      }
      if (!have_fraction && gd_json_has(places[place], fraction_keys[key])) {
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
  const int64_t largest = (int64_t)1 << 31; /* far past any model; products are checked later */
  struct gd_neox neox = {
      .norm_eps = 1e-5, .init_deviation = 0.02, .parallel_residual = true, .attention_bias = true};
  GD_TRY(gd_json_int(json, config, "vocab_size", 1, largest, &neox.vocab, err));
  GD_TRY(gd_json_int(json, config, "hidden_size", 1, largest, &neox.width, err));
  GD_TRY(gd_json_int(json, config, "num_hidden_layers", 1, 1024, &neox.layers, err));
  GD_TRY(gd_json_int(json, config, "num_attention_heads", 1, largest, &neox.heads, err));
  GD_TRY(gd_json_int(json, config, "intermediate_size", 1, largest, &neox.inner, err));
  if (neox.width % neox.heads)
    return gd_fail(err, GD_BAD_INPUT,
                   "%s: num_attention_heads %lld does not divide hidden_size %lld; choose a "
                   "divisor",
                   json->file, (long long)neox.heads, (long long)neox.width);
  if (gd_json_has(config, "layer_norm_eps"))
    GD_TRY(gd_json_number(json, config, "layer_norm_eps", 0, 1, &neox.norm_eps, err));
  if (gd_json_has(config, "initializer_range"))
    GD_TRY(gd_json_number(json, config, "initializer_range", 0, 100, &neox.init_deviation, err));
  if (gd_json_has(config, "use_parallel_residual"))
    GD_TRY(gd_json_bool(json, config, "use_parallel_residual", &neox.parallel_residual, err));
  if (gd_json_has(config, "tie_word_embeddings"))
    GD_TRY(gd_json_bool(json, config, "tie_word_embeddings", &neox.tied, err));
  if (gd_json_has(config, "attention_bias"))
    GD_TRY(gd_json_bool(json, config, "attention_bias", &neox.attention_bias, err));
  GD_TRY(read_no_dropout(json, config, "attention_dropout", err));
  GD_TRY(read_no_dropout(json, config, "hidden_dropout", err));
  GD_TRY(read_activation(json, config, &neox.activation, err));
  GD_TRY(read_rope(json, config, &neox, err));
  model->config.neox = neox;
  return GD_OK;
}

/* --- the graph ----------------------------------------------------------------------------- */

struct builder {
  struct gd_graph *graph;
  const struct gd_neox *neox;
  int64_t b, t; /* micro-batch, sequence */
  gd_tensor_id rope_table;
  char prefix[64]; /* "gpt_neox.layers.3" */
};

/* A parameter "<prefix>.<module>.<weight|bias>". */
static gd_tensor_id param(struct builder *m, const char *module, const char *leaf, uint32_t rank,
                          const int64_t *dims, enum gd_init init) {
  char name[192];
  snprintf(name, sizeof name, "%s.%s.%s", m->prefix, module, leaf);
  return gd_graph_param(m->graph, name, rank, dims, init, m->neox->init_deviation);
}

static gd_tensor_id norm(struct builder *m, const char *module, gd_tensor_id x) {
  int64_t dims[] = {m->neox->width};
  gd_tensor_id weight = param(m, module, "weight", 1, dims, GD_INIT_ONES);
  gd_tensor_id bias = param(m, module, "bias", 1, dims, GD_INIT_ZEROS);
  return gd_layernorm(m->graph, x, weight, bias, (float)m->neox->norm_eps);
}

static gd_tensor_id linear(struct builder *m, const char *module, gd_tensor_id x, int64_t n,
                           int64_t k, bool has_bias) {
  gd_tensor_id weight = param(m, module, "weight", 2, (int64_t[]){n, k}, GD_INIT_NORMAL);
  gd_tensor_id bias =
      has_bias ? param(m, module, "bias", 1, (int64_t[]){n}, GD_INIT_ZEROS) : GD_NONE;
  return gd_linear(m->graph, x, weight, bias);
}

static gd_tensor_id attention(struct builder *m, gd_tensor_id x_BTC) {
  struct gd_graph *g = m->graph;
  const struct gd_neox *c = m->neox;
  int64_t n = c->heads, d = c->width / c->heads;
  int64_t heads_dims[] = {m->b, n, m->t, d};
  gd_tensor_id qkv =
      linear(m, "attention.query_key_value", x_BTC, 3 * c->width, c->width, c->attention_bias);
  qkv = gd_reshape(g, qkv, 5, (int64_t[]){m->b, m->t, n, 3, d}); /* q, k, v alternate per head */
  gd_tensor_id qkv_3BNTD = gd_transpose(g, qkv, (uint8_t[]){3, 0, 2, 1, 4});
  gd_tensor_id part = gd_split(g, qkv_3BNTD, 3);
  if (part == GD_NONE)
    return GD_NONE;
  gd_tensor_id q_BNTD = gd_reshape(g, part, 4, heads_dims);
  gd_tensor_id k_BNTD = gd_reshape(g, part + 1, 4, heads_dims);
  gd_tensor_id v_BNTD = gd_reshape(g, part + 2, 4, heads_dims);
  if (c->rotary > 0) {
    q_BNTD = gd_rope(g, q_BNTD, m->rope_table, c->rotary);
    k_BNTD = gd_rope(g, k_BNTD, m->rope_table, c->rotary);
  }
  gd_tensor_id scores_BNTT =
      gd_matmul(g, q_BNTD, k_BNTD, GD_NONE,
                (struct gd_attr_matmul){
                    .trans_b = true, .alpha = 1.0f / sqrtf((float)d), .out_dtype = GD_DTYPE_COUNT});
  gd_tensor_id weights_BNTT = gd_softmax(g, scores_BNTT, true);
  gd_tensor_id out_BNTD =
      gd_matmul(g, weights_BNTT, v_BNTD, GD_NONE,
                (struct gd_attr_matmul){.alpha = 1, .out_dtype = GD_DTYPE_COUNT});
  gd_tensor_id out_BTND = gd_transpose(g, out_BNTD, (uint8_t[]){0, 2, 1, 3});
  gd_tensor_id out_BTC = gd_reshape(g, out_BTND, 3, (int64_t[]){m->b, m->t, c->width});
  return linear(m, "attention.dense", out_BTC, c->width, c->width, c->attention_bias);
}

static gd_tensor_id mlp(struct builder *m, gd_tensor_id x_BTC) {
  const struct gd_neox *c = m->neox;
  gd_tensor_id inner_BTF = linear(m, "mlp.dense_h_to_4h", x_BTC, c->inner, c->width, true);
  inner_BTF = gd_activate(m->graph, inner_BTF, c->activation);
  return linear(m, "mlp.dense_4h_to_h", inner_BTF, c->width, c->inner, true);
}

static void neox_build(const struct gd_model *model, int64_t micro_batch, struct gd_graph *graph) {
  const struct gd_neox *c = &model->config.neox;
  struct builder m = {.graph = graph, .neox = c, .b = micro_batch, .t = model->recipe.seq};
  int64_t tokens_dims[] = {m.b, m.t}, table_dims[] = {c->vocab, c->width};

  graph->ids = gd_graph_leaf(graph, GD_ROLE_INPUT, "input_ids", GD_DTYPE_I32, 2, tokens_dims);
  graph->labels = gd_graph_leaf(graph, GD_ROLE_INPUT, "labels", GD_DTYPE_I32, 2, tokens_dims);
  graph->loss_weight =
      gd_graph_leaf(graph, GD_ROLE_INPUT, "loss_weight", GD_DTYPE_F32, 1, (int64_t[]){1});
  if (c->rotary > 0) {
    m.rope_table = gd_graph_leaf(graph, GD_ROLE_CONST, "rope_table", GD_DTYPE_F32, 2,
                                 (int64_t[]){m.t, c->rotary});
    if (m.rope_table == GD_NONE)
      return;
    graph->tensors[m.rope_table].init = GD_INIT_ROPE;
    graph->tensors[m.rope_table].init_value = c->rope_base;
  }

  snprintf(m.prefix, sizeof m.prefix, "gpt_neox");
  gd_tensor_id table_VC = param(&m, "embed_in", "weight", 2, table_dims, GD_INIT_NORMAL);
  gd_tensor_id x_BTC = gd_embed(graph, table_VC, graph->ids);
  for (int64_t layer = 0; layer < c->layers; layer++) {
    graph->block = (int32_t)layer;
    snprintf(m.prefix, sizeof m.prefix, "gpt_neox.layers.%lld", (long long)layer);
    gd_tensor_id attended = attention(&m, norm(&m, "input_layernorm", x_BTC));
    if (c->parallel_residual) {
      gd_tensor_id fed = mlp(&m, norm(&m, "post_attention_layernorm", x_BTC));
      x_BTC = gd_add(graph, gd_add(graph, fed, attended), x_BTC);
    } else {
      x_BTC = gd_add(graph, attended, x_BTC);
      x_BTC = gd_add(graph, mlp(&m, norm(&m, "post_attention_layernorm", x_BTC)), x_BTC);
    }
  }
  graph->block = -1;
  snprintf(m.prefix, sizeof m.prefix, "gpt_neox");
  x_BTC = norm(&m, "final_layer_norm", x_BTC);
  gd_tensor_id head_VC = c->tied ? table_VC
                                 : gd_graph_param(graph, "embed_out.weight", 2, table_dims,
                                                  GD_INIT_NORMAL, c->init_deviation);
  gd_tensor_id logits_BTV = gd_linear(graph, x_BTC, head_VC, GD_NONE);
  graph->loss = gd_xent(graph, logits_BTV, graph->labels, graph->loss_weight,
                        (struct gd_attr_xent){.ignore = -100, .shift = true});
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), end_length = strlen(end);
  return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* Causal masks and frequency tables that transformers 4 stored beside the weights. */
static bool neox_ignores_tensor(const char *name) {
  return ends_with(name, ".attention.bias") || ends_with(name, ".attention.masked_bias") ||
         ends_with(name, ".rotary_emb.inv_freq");
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
