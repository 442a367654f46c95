/*
 * RoBERTa (Liu et al. 2019, arXiv:1907.11692) and BERT (Devlin et al. 2019, arXiv:1810.04805): a
 * bidirectional encoder with learned positions and norms after each part, trained to name masked
 * words. RoBERTa counts positions behind the padding id and skips padding; BERT counts all. Names
 * and arithmetic follow transformers' RobertaForMaskedLM and BertForMaskedLM. Attention sees
 * padding too, as it does in transformers without an attention mask.
 *
 * Letters: B batch, T sequence, C width, N heads, D head size, F inner width, V vocabulary, P
 * positions, S segments (token types).
 */
#include <string.h>

#include "model/blocks.h"
#include "model/config.h"
#include "model/model.h"

struct roberta {
  int64_t vocab, positions, segments, width, layers, heads, inner;
  int64_t padding; /* -1: none (BERT only) */
  double norm_eps, init_deviation, hidden_dropout, attention_dropout;
  enum gd_activation activation;
  bool is_bert;
};
_Static_assert(sizeof(struct roberta) <= sizeof((struct gd_model *)0)->config.opaque, "too large");

/* Positions left for words: RoBERTa's count begins behind the padding id. */
static int64_t usable_positions(const struct roberta *c) {
  return c->is_bert ? c->positions : c->positions - c->padding - 1;
}

/* --- config.json --------------------------------------------------------------------------- */

static enum gd_status parse(const struct gd_json *json, const json_t *config, struct roberta *c,
                            struct gd_model *model, struct gd_error *err) {
  const int64_t largest = GD_CONFIG_LARGEST;
  const char *kind = "absolute";
  c->segments = 2; /* transformers' defaults */
  c->norm_eps = 1e-12;
  c->init_deviation = 0.02;
  c->hidden_dropout = c->attention_dropout = 0.1;
  GD_TRY(gd_json_int(json, config, "vocab_size", 1, largest, &c->vocab, err));
  GD_TRY(gd_json_int(json, config, "hidden_size", 1, largest, &c->width, err));
  GD_TRY(gd_json_int(json, config, "num_hidden_layers", 1, GD_CONFIG_MOST_LAYERS, &c->layers, err));
  GD_TRY(gd_json_int(json, config, "num_attention_heads", 1, largest, &c->heads, err));
  GD_TRY(gd_json_int(json, config, "intermediate_size", 1, largest, &c->inner, err));
  GD_TRY(gd_json_int(json, config, "max_position_embeddings", 1, largest, &c->positions, err));
  GD_TRY(gd_config_int(json, config, "type_vocab_size", 1, largest, &c->segments, err));
  GD_TRY(gd_config_divides(json, "num_attention_heads", c->heads, "hidden_size", c->width, err));
  GD_TRY(gd_config_padding(json, config, c->vocab, &c->padding, err));
  GD_TRY(gd_config_activation(json, config, "hidden_act", &c->activation, err));
  GD_TRY(gd_config_number(json, config, "layer_norm_eps", 0, 1, &c->norm_eps, err));
  GD_TRY(gd_config_number(json, config, "initializer_range", 0, 100, &c->init_deviation, err));
  GD_TRY(gd_config_dropout(json, config, "hidden_dropout_prob", &c->hidden_dropout, err));
  GD_TRY(
      gd_config_dropout(json, config, "attention_probs_dropout_prob", &c->attention_dropout, err));
  GD_TRY(gd_config_only(json, config, "is_decoder", false, err));
  GD_TRY(gd_config_only(json, config, "add_cross_attention", false, err));
  GD_TRY(gd_config_only(json, config, "tie_word_embeddings", true, err));
  if (gd_config_has(json, config, "position_embedding_type"))
    GD_TRY(gd_json_string(json, config, "position_embedding_type", &kind, err));
  if (strcmp(kind, "absolute") != 0)
    return gd_config_unsupported(json, config, "position_embedding_type", "absolute", err);
  if (!c->is_bert && (c->padding < 0 || usable_positions(c) < 1))
    return gd_json_mismatch(json, config, "pad_token_id",
                            "an id below max_position_embeddings, behind which positions begin",
                            err);
  gd_config_limit_seq(json, usable_positions(c), &model->recipe.seq);
  memcpy(model->config.opaque, c, sizeof *c);
  return GD_OK;
}

static enum gd_status roberta_parse(const struct gd_json *json, const json_t *config,
                                    struct gd_model *model, struct gd_error *err) {
  struct roberta c = {.padding = 1, .activation = GD_ACTIVATION_GELU};
  return parse(json, config, &c, model, err);
}

static enum gd_status bert_parse(const struct gd_json *json, const json_t *config,
                                 struct gd_model *model, struct gd_error *err) {
  struct roberta c = {.padding = 0, .activation = GD_ACTIVATION_GELU, .is_bert = true};
  return parse(json, config, &c, model, err);
}

/* --- the graph ----------------------------------------------------------------------------- */

static gd_tensor_id table(struct gd_blocks *m, const char *name, int64_t rows, int64_t width) {
  return gd_blocks_param(m, name, 2, (int64_t[]){rows, width}, GD_INIT_NORMAL);
}

/* Embeddings of words and positions, and that of segment 0, which all tokens are in here. */
static gd_tensor_id embeddings(struct gd_blocks *m, const struct roberta *c, int64_t t,
                               gd_tensor_id words_VC) {
  struct gd_graph *g = m->graph;
  gd_tensor_id places_PC = table(m, "position_embeddings.weight", c->positions, c->width);
  gd_tensor_id segments_SC = table(m, "token_type_embeddings.weight", c->segments, c->width);
  gd_tensor_id x_BTC = gd_embed_padded(g, words_VC, g->ids, c->padding);
  gd_tensor_id first_C = gd_reshape(g, gd_slice(g, segments_SC, 0, 0, 1), 1, &c->width);
  gd_tensor_id places =
      c->is_bert
          ? gd_slice(g, places_PC, 0, 0, t)
          : gd_embed_padded(g, places_PC, gd_positions(g, g->ids, (int32_t)c->padding), c->padding);
  x_BTC = gd_add(g, gd_add(g, x_BTC, first_C), places);
  x_BTC = gd_blocks_layernorm(m, "LayerNorm", x_BTC, c->norm_eps);
  return gd_dropout(g, x_BTC, c->hidden_dropout);
}

/* The last projection of a part, the residual connection and the norm. */
static gd_tensor_id close_part(struct gd_blocks *m, const struct roberta *c, const char *dense,
                               const char *norm, gd_tensor_id part, gd_tensor_id x_BTC) {
  struct gd_graph *g = m->graph;
  gd_tensor_id out_BTC = gd_blocks_linear(m, dense, part, c->width, true);
  out_BTC = gd_add(g, gd_dropout(g, out_BTC, c->hidden_dropout), x_BTC);
  return gd_blocks_layernorm(m, norm, out_BTC, c->norm_eps);
}

static gd_tensor_id layer(struct gd_blocks *m, const struct roberta *c, gd_tensor_id x_BTC) {
  struct gd_graph *g = m->graph;
  static const char *const names[] = {"attention.self.query", "attention.self.key",
                                      "attention.self.value"};
  gd_tensor_id qkv[3];
  for (int i = 0; i < 3; i++)
    qkv[i] = gd_blocks_heads(g, gd_blocks_linear(m, names[i], x_BTC, c->width, true), c->heads);
  gd_tensor_id attended =
      gd_blocks_attention(g, qkv[0], qkv[1], qkv[2], false, c->attention_dropout);
  x_BTC = close_part(m, c, "attention.output.dense", "attention.output.LayerNorm", attended, x_BTC);
  gd_tensor_id inner_BTF = gd_blocks_linear(m, "intermediate.dense", x_BTC, c->inner, true);
  inner_BTF = gd_activate(g, inner_BTF, c->activation);
  return close_part(m, c, "output.dense", "output.LayerNorm", inner_BTF, x_BTC);
}

static void roberta_build(const struct gd_model *model, int64_t micro_batch,
                          struct gd_graph *graph) {
  struct roberta c;
  memcpy(&c, model->config.opaque, sizeof c);
  struct gd_blocks m = {.graph = graph, .deviation = c.init_deviation};
  const char *body = c.is_bert ? "bert" : "roberta";
  int64_t t = model->recipe.seq;
  if (t > usable_positions(&c)) {
    gd_fail(&graph->error, GD_BAD_INPUT,
            "a sequence of %lld tokens is longer than the %lld positions that "
            "max_position_embeddings leaves for words; choose a shorter one with --seq",
            (long long)t, (long long)usable_positions(&c));
    return;
  }

  gd_blocks_tokens(graph, micro_batch, t);
  gd_blocks_enter(&m, "%s.embeddings.", body);
  gd_tensor_id words_VC = table(&m, "word_embeddings.weight", c.vocab, c.width);
  gd_tensor_id x_BTC = embeddings(&m, &c, t, words_VC);
  for (int64_t i = 0; i < c.layers; i++) {
    graph->block = (int32_t)i;
    gd_blocks_enter(&m, "%s.encoder.layer.%lld.", body, (long long)i);
    x_BTC = layer(&m, &c, x_BTC);
  }
  graph->block = -1;
  gd_blocks_enter(&m, "%s", c.is_bert ? "cls.predictions." : "lm_head.");
  x_BTC = gd_blocks_linear(&m, c.is_bert ? "transform.dense" : "dense", x_BTC, c.width, true);
  x_BTC = gd_activate(graph, x_BTC, c.is_bert ? c.activation : GD_ACTIVATION_GELU);
  x_BTC =
      gd_blocks_layernorm(&m, c.is_bert ? "transform.LayerNorm" : "layer_norm", x_BTC, c.norm_eps);
  gd_tensor_id bias_V = gd_blocks_param(&m, "bias", 1, &c.vocab, GD_INIT_ZEROS);
  graph->loss = gd_xent(graph, gd_linear(graph, x_BTC, words_VC, bias_V), graph->labels,
                        graph->loss_weight, (struct gd_attr_xent){.ignore = -100});
}

/* Heads of other tasks, counters, and copies of what is tied. */
static bool roberta_ignores_tensor(const char *name) {
  static const char *const copies[] = {"lm_head.decoder.weight", "lm_head.decoder.bias",
                                       "cls.predictions.decoder.weight",
                                       "cls.predictions.decoder.bias"};
  for (size_t i = 0; i < sizeof copies / sizeof *copies; i++)
    if (strcmp(name, copies[i]) == 0)
      return true;
  return gd_name_ends(name, ".position_ids") || gd_name_begins(name, "roberta.pooler.") ||
         gd_name_begins(name, "bert.pooler.") || gd_name_begins(name, "cls.seq_relationship.");
}

static int64_t roberta_classes(const struct gd_model *model) {
  struct roberta c;
  memcpy(&c, model->config.opaque, sizeof c);
  return c.vocab;
}

const struct gd_family gd_family_roberta = {
    .model_type = "roberta",
    .title = "RoBERTa",
    .parse = roberta_parse,
    .build = roberta_build,
    .ignores_tensor = roberta_ignores_tensor,
    .classes = roberta_classes,
};

const struct gd_family gd_family_bert = {
    .model_type = "bert",
    .title = "BERT",
    .parse = bert_parse,
    .build = roberta_build,
    .ignores_tensor = roberta_ignores_tensor,
    .classes = roberta_classes,
};
