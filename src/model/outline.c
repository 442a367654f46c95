/*
 * Sizes of models that have no family here; see outline.h. The count is that of a transformer in
 * general: attention with grouped keys and values, an MLP that is gated or not, experts, a table of
 * words and maybe a second one for the head. Norms, biases and positions are left out.
 *
 * Letters: C width, L layers, N heads, M key and value heads, D head size, F inner width, V
 * vocabulary.
 */
#include "model/outline.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/config.h"
#include "model/fields.h"
#include "model/model_int.h"

/* --- what is known of architectures -------------------------------------------------------- */

/* By model_type: what a field does not say, from transformers' configuration and modeling files.
   lacks: what this version would need. */
static const struct architecture {
  const char *model_type;
  bool gated, tied; /* where no field says it */
  const char *lacks;
} architectures[] = {
    {"qwen3_moe", true, false, "routed experts are not there"},
    {"qwen2_moe", true, false, "routed experts are not there"},
    {"gemma", true, true, "norms with 1 + weight and scaled embeddings are not there"},
    {"gemma2", true, true, "norms after each part and soft-capped scores are not there"},
    {"gemma3_text", true, true,
     "q/k norms, norms after each part and windows in some layers are not there"},
    {"gemma3", true, true,
     "a tower for images, q/k norms and windows in some layers are not there"},
    {"olmo2", true, false, "q/k norms and norms after each part alone are not there"},
    {"olmo3", true, false, "q/k norms and windows in some layers are not there"},
    {"olmoe", true, false, "routed experts and q/k norms are not there"},
    {"mixtral", true, false, "routed experts are not there"},
    {"phi3", true, false, "q, k, v and gates in one matrix are not there"},
    {"deepseek_v2", true, false, "latent attention and routed experts are not there"},
    {"deepseek_v3", true, false, "latent attention and routed experts are not there"},
    {"modernbert", true, true,
     "rotary positions in an encoder and windows in some layers are not there"},
    {"t5", false, true, "an encoder with a decoder and relative positions are not there"},
    {"dinov2", false, true, "LayerScale in a ViT and self-distillation are not there"},
    {"opt", false, true, "positions from 2 on in a decoder with ReLU are not there"},
    {"bloom", false, true, "ALiBi is not there"},
};

static const struct architecture *find_architecture(const char *model_type) {
  for (size_t i = 0; i < sizeof architectures / sizeof *architectures; i++)
    if (strcmp(architectures[i].model_type, model_type) == 0)
      return &architectures[i];
  return NULL;
}

/* --- sizes --------------------------------------------------------------------------------- */

struct sizes {
  int64_t width, layers, heads, kv_heads, head, inner, vocab;
  int64_t decoder_layers; /* behind an encoder */
  int64_t experts, chosen, expert_inner, shared_inner, dense_layers;
  int64_t patch_inputs, sequence; /* of images: values of a patch, patches of an image */
  bool gated, tied;
};

/* The first of the names that the configuration has. */
static enum gd_status read_first(const struct gd_json *json, const json_t *config,
                                 const char *const *keys, int64_t *value, struct gd_error *err) {
  for (int i = 0; keys[i]; i++) {
    /* A number only: some have a list, one entry a layer. */
    if (!json_is_number(gd_json_get(json, config, keys[i])))
      continue;
    return gd_json_int(json, config, keys[i], 0, GD_CONFIG_LARGEST, value, err);
  }
  return GD_OK;
}
#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

static enum gd_status need(const struct gd_json *json, const json_t *config,
                           const char *const *keys, int64_t *value, struct gd_error *err) {
  GD_TRY(read_first(json, config, keys, value, err));
  if (*value > 0)
    return GD_OK;
  return gd_fail(err, GD_UNSUPPORTED,
                 "%s: there is no %s, so that its parameters cannot be counted; ask for --params "
                 "and --tokens",
                 json->file, keys[0]);
}

static enum gd_status read_experts(const struct gd_json *json, const json_t *config,
                                   struct sizes *s, struct gd_error *err) {
  int64_t shared = 0, chosen = 0;
  s->expert_inner = s->inner;
  GD_TRY(read_first(json, config, NAMES("num_local_experts", "num_experts", "n_routed_experts"),
                    &s->experts, err));
  if (s->experts == 0)
    return GD_OK;
  GD_TRY(read_first(json, config, NAMES("num_experts_per_tok", "moe_topk", "experts_per_token"),
                    &chosen, err));
  GD_TRY(read_first(json, config, NAMES("moe_intermediate_size"), &s->expert_inner, err));
  GD_TRY(read_first(json, config, NAMES("shared_expert_intermediate_size"), &s->shared_inner, err));
  GD_TRY(read_first(json, config, NAMES("n_shared_experts"), &shared, err));
  GD_TRY(read_first(json, config, NAMES("first_k_dense_replace"), &s->dense_layers, err));
  s->chosen = chosen > 0 && chosen <= s->experts ? chosen : s->experts;
  s->shared_inner += shared * s->expert_inner;
  return GD_OK;
}

static enum gd_status read_images(const struct gd_json *json, const json_t *config, struct sizes *s,
                                  struct gd_error *err) {
  int64_t image = 0, patch = 0, channels = 3;
  GD_TRY(read_first(json, config, NAMES("image_size"), &image, err));
  GD_TRY(read_first(json, config, NAMES("patch_size"), &patch, err));
  GD_TRY(read_first(json, config, NAMES("num_channels"), &channels, err));
  if (image > 0 && patch > 0 && patch <= image && image <= 1 << 20) {
    s->sequence = 1 + (image / patch) * (image / patch);
    s->patch_inputs = channels * patch * patch;
  }
  return GD_OK;
}

static bool names_gate(const struct gd_json *json, const json_t *config) {
  const char *keys[] = {"hidden_act", "feed_forward_proj", "hidden_activation"};
  bool gated = false;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    const char *text = json_string_value(gd_json_get(json, config, keys[i]));
    gated = gated || (text && (strcmp(text, "silu") == 0 || strcmp(text, "swish") == 0 ||
                               gd_name_begins(text, "gated-")));
  }
  return gated;
}

static enum gd_status read_sizes(const struct gd_json *json, const json_t *config,
                                 const struct architecture *known, struct sizes *s,
                                 struct gd_error *err) {
  bool decoder = false;
  double ratio = 4; /* of the MLP, where neither a size nor a ratio is said */
  *s = (struct sizes){.tied = !known || known->tied}; /* transformers' default is tied */
  GD_TRY(need(json, config, NAMES("hidden_size", "d_model", "n_embd", "dim"), &s->width, err));
  GD_TRY(need(json, config, NAMES("num_hidden_layers", "num_layers", "n_layer", "n_layers"),
              &s->layers, err));
  GD_TRY(need(json, config, NAMES("num_attention_heads", "num_heads", "n_head"), &s->heads, err));
  s->kv_heads = s->heads;
  s->head = s->width / s->heads;
  GD_TRY(read_first(json, config, NAMES("num_key_value_heads"), &s->kv_heads, err));
  GD_TRY(read_first(json, config, NAMES("head_dim", "d_kv"), &s->head, err));
  GD_TRY(gd_config_number(json, config, "mlp_ratio", 0.01, 100, &ratio, err));
  s->inner = (int64_t)(ratio * (double)s->width);
  GD_TRY(read_first(json, config,
                    NAMES("intermediate_size", "d_ff", "ffn_dim", "n_inner", "ffn_hidden_size"),
                    &s->inner, err));
  GD_TRY(read_first(json, config, NAMES("vocab_size"), &s->vocab, err));
  GD_TRY(gd_config_bool(json, config, "tie_word_embeddings", &s->tied, err));
  GD_TRY(gd_config_bool(json, config, "is_encoder_decoder", &decoder, err));
  if (decoder) {
    s->decoder_layers = s->layers;
    GD_TRY(read_first(json, config, NAMES("num_decoder_layers"), &s->decoder_layers, err));
  }
  s->gated = (known && known->gated) || names_gate(json, config);
  GD_TRY(read_images(json, config, s, err));
  return read_experts(json, config, s, err);
}

/* --- the count ----------------------------------------------------------------------------- */

static void count(const struct sizes *s, struct gd_outline *outline) {
  double width = (double)s->width, matrices = s->gated ? 3 : 2;
  double attention = width * (double)s->head * (2 * (double)s->heads + 2 * (double)s->kv_heads);
  double dense = matrices * width * (double)s->inner;
  double expert = matrices * width * (double)s->expert_inner;
  double shared = matrices * width * (double)s->shared_inner;
  double sparse = (double)(s->experts > 0 ? s->layers - s->dense_layers : 0);
  double router = width * (double)s->experts;
  double layers = (double)s->layers * attention + ((double)s->layers - sparse) * dense +
                  /* a decoder's layer looks at itself and at the encoder */
                  (double)s->decoder_layers * (2 * attention + dense);
  double words = (double)s->vocab * width;
  double patches = (double)s->patch_inputs * width;
  outline->parameters = layers + sparse * ((double)s->experts * expert + shared + router) +
                        (s->tied ? 1 : 2) * words + patches;
  outline->active =
      layers + sparse * ((double)s->chosen * expert + shared + router) + words + patches;
  outline->experts = s->experts;
  outline->chosen = s->chosen;
}

/* --- from a configuration ------------------------------------------------------------------ */

static enum gd_status parse(const struct gd_json *json, json_t *config, const char *refused,
                            struct gd_outline *outline, struct gd_error *err) {
  struct sizes sizes;
  char clean[64];
  int64_t positions = 0;
  const char *type = json_string_value(gd_json_get(json, config, "model_type"));
  const struct architecture *known = find_architecture(type ? type : "");
  json_t *text = gd_json_get(json, config, "text_config"); /* of models of texts and images */
  json_t *from = json_is_object(text) ? text : config;
  GD_TRY(read_sizes(json, from, known, &sizes, err));
  count(&sizes, outline);
  outline->counted = true;
  outline->images = sizes.sequence > 0 && sizes.vocab == 0;
  GD_TRY(read_first(json, from, NAMES("max_position_embeddings", "n_positions"), &positions, err));
  if (outline->images)
    outline->recipe.seq = sizes.sequence;
  else if (positions > 0 && positions < outline->recipe.seq)
    outline->recipe.seq = positions;
  gd_json_excerpt(outline->model_type, sizeof outline->model_type, type ? type : "none");
  gd_json_excerpt(clean, sizeof clean, outline->model_type);
  if (known)
    snprintf(outline->lacks, sizeof outline->lacks, "model_type %s: %s", clean, known->lacks);
  else
    gd_json_excerpt(outline->lacks, sizeof outline->lacks, refused);
  gd_fields_unknown(from, json->log, outline->unread, sizeof outline->unread);
  return GD_OK;
}

void gd_outline_ask(struct gd_json *json, json_t *config) {
  struct gd_outline read;
  struct gd_error refused = {0};
  gd_outline_of_size(0, &read);
  (void)!parse(json, config, "", &read, &refused); /* what it asks for is in the log */
}

enum gd_status gd_outline_load(const char *name_or_path, struct gd_outline *outline,
                               struct gd_error *err) {
  struct gd_json json = {0};
  struct gd_json_log log = {0};
  struct gd_model model;
  struct gd_error refused = {0};
  struct gd_outline read;
  enum gd_status status = gd_model_load(name_or_path, &model, &refused);
  GD_ASSERT(status != GD_OK);
  if (status != GD_UNSUPPORTED)
    return gd_fail(err, status, "%s", refused.text);
  gd_outline_of_size(0, &read);
  status = gd_model_read_json(name_or_path, &json, err);
  json_t *inside = status == GD_OK ? json_object_get(json.root, "config") : NULL;
  const char *begin = strstr(refused.text, ": "); /* behind the file's name */
  json.log = &log;
  if (status == GD_OK)
    status = parse(&json, json_is_object(inside) ? inside : json.root,
                   begin ? begin + 2 : refused.text, &read, err);
  if (status == GD_OK) {
    gd_model_name_of_path(json.file, read.name, sizeof read.name);
    *outline = read;
  }
  gd_json_log_deinit(&log);
  gd_json_deinit(&json);
  return status;
}

/* --- recipes ------------------------------------------------------------------------------- */

void gd_outline_of_size(double parameters, struct gd_outline *outline) {
  *outline = (struct gd_outline){.parameters = parameters,
                                 .active = parameters,
                                 .recipe = *gd_recipe_default(),
                                 .assumed = GD_ASSUMED_STEPS | GD_ASSUMED_BATCH | GD_ASSUMED_SEQ |
                                            GD_ASSUMED_LR | GD_ASSUMED_PRECISION};
  snprintf(outline->name, sizeof outline->name,
           parameters >= 1e9 ? "%.4gB parameters" : "%.4gM parameters",
           parameters / (parameters >= 1e9 ? 1e9 : 1e6));
}

enum gd_status gd_outline_change(struct gd_outline *outline, const struct gd_recipe_change *change,
                                 struct gd_error *err) {
  struct gd_recipe *recipe = &outline->recipe;
  if (outline->images && (change->seq || change->tokens))
    return gd_fail(err, GD_BAD_INPUT, "%s is trained on images; %s does not apply to it",
                   outline->name, change->seq ? "--seq" : "--tokens");
  if (change->steps && change->tokens)
    return gd_fail(err, GD_BAD_INPUT, "--steps and --tokens say the same thing twice; give one");
  recipe->seq = change->seq ? change->seq : recipe->seq;
  recipe->batch = change->batch ? change->batch : recipe->batch;
  outline->assumed &= ~(change->seq ? (unsigned)GD_ASSUMED_SEQ : 0u);
  outline->assumed &= ~(change->batch ? (unsigned)GD_ASSUMED_BATCH : 0u);
  outline->assumed &= ~(change->steps || change->tokens ? (unsigned)GD_ASSUMED_STEPS : 0u);
  double per_step = (double)recipe->batch * (double)recipe->seq;
  outline->tokens = change->tokens    ? (double)change->tokens
                    : change->steps   ? (double)change->steps * per_step
                    : outline->images ? (double)recipe->steps * per_step
                    /* dense models were counted whole, with experts what computes */
                    : outline->experts > 0 ? GD_CHINCHILLA_TOKENS * outline->active
                                           : GD_CHINCHILLA_TOKENS * outline->parameters;
  double steps = ceil(outline->tokens / per_step);
  recipe->steps = steps < 1 ? 1 : steps < 1e9 ? (int64_t)steps : 1000000000;
  return GD_OK;
}

double gd_outline_flops(const struct gd_outline *outline) {
  return 6 * outline->active * outline->tokens;
}

/* --- N of a graph -------------------------------------------------------------------------- */

/* A table of words next to a head of the same shape is looked up and no more. */
static bool is_looked_up(const struct gd_graph *graph, gd_tensor_id table) {
  const struct gd_tensor *a = &graph->tensors[table];
  for (gd_tensor_id id = table + 1; id < graph->n_tensors; id++) {
    const struct gd_tensor *b = &graph->tensors[id];
    if (b->role == GD_ROLE_PARAM && b->rank == 2 && b->block < 0 && b->dims[0] == a->dims[0] &&
        b->dims[1] == a->dims[1])
      return true;
  }
  return false;
}

enum gd_status gd_model_active_parameters(const struct gd_model *model, double *active,
                                          bool *attends, struct gd_error *err) {
  struct gd_graph graph;
  bool seen = false;
  gd_graph_init(&graph);
  model->family->build(model, 1, &graph);
  enum gd_status status = gd_graph_check(&graph, err);
  *active = status == GD_OK ? (double)gd_graph_parameters(&graph) : 0;
  *attends = false;
  for (gd_tensor_id id = 0; status == GD_OK && id < graph.n_tensors && !seen; id++) {
    const struct gd_tensor *t = &graph.tensors[id];
    seen = t->role == GD_ROLE_PARAM && t->rank == 2 && t->block < 0; /* the first table */
    if (seen && is_looked_up(&graph, id))
      *active -= (double)t->dims[0] * (double)t->dims[1];
  }
  for (gd_op_id op = 0; status == GD_OK && op < graph.n_ops; op++)
    *attends = *attends || gd_op_info(graph.ops[op].kind)->work == GD_WORK_SOFTMAX;
  gd_graph_deinit(&graph);
  return status;
}
