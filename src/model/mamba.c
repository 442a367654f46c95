/*
 * Mamba (Gu and Dao 2023, arXiv:2312.00752): a causal language model whose layers are selective
 * state spaces behind a short convolution, gated, without attention. Names and arithmetic follow
 * transformers' MambaForCausalLM.
 *
 * fp32 whatever the compute dtype, as in the authors' code: the step sizes delta, A, the state of
 * the recurrence, and the residual stream where residual_in_fp32 says so.
 *
 * Letters: B batch, T sequence, W width, C channels (intermediate_size), S state size, R rank of
 * the step sizes, K taps of the convolution, V vocabulary.
 */
#include <math.h>
#include <string.h>

#include "model/blocks.h"
#include "model/config.h"
#include "model/model.h"

enum { MOST_STATES = 256, MOST_TAPS = 256 }; /* the kernels' limits */

struct mamba {
  int64_t vocab, width, channels, layers, states, taps, rank;
  double norm_eps, init_deviation;
  double step_scale, step_min, step_max; /* of delta at the start */
  bool constant_steps;                   /* dt_proj.weight starts constant, else uniform */
  bool rescaled;                         /* out_proj starts smaller by sqrt(layers) */
  bool bias, conv_bias, residual_fp32, tied;
};
_Static_assert(sizeof(struct mamba) <= sizeof(((struct gd_model *)0)->config), "config.opaque");

static struct mamba config_of(const struct gd_model *model) {
  struct mamba mamba;
  memcpy(&mamba, &model->config, sizeof mamba);
  return mamba;
}

/* --- config.json --------------------------------------------------------------------------- */

/* An integer, or "auto": a sixteenth of the width, rounded up. */
static enum gd_status read_rank(const struct gd_json *json, const json_t *config, int64_t width,
                                int64_t *rank, struct gd_error *err) {
  const json_t *value = gd_json_get(json, config, "time_step_rank");
  *rank = (width + 15) / 16;
  if (json_is_string(value) && strcmp(json_string_value(value), "auto") == 0)
    return GD_OK;
  return gd_config_int(json, config, "time_step_rank", 1, GD_CONFIG_LARGEST, rank, err);
}

/* How delta starts; see transformers' _init_weights. */
static enum gd_status read_steps(const struct gd_json *json, const json_t *config,
                                 struct mamba *mamba, struct gd_error *err) {
  const char *scheme = "random";
  double floor = 1e-4;
  GD_TRY(gd_config_number(json, config, "time_step_scale", 0, 1e6, &mamba->step_scale, err));
  GD_TRY(gd_config_number(json, config, "time_step_min", 1e-30, 1e6, &mamba->step_min, err));
  GD_TRY(gd_config_number(json, config, "time_step_max", 1e-30, 1e6, &mamba->step_max, err));
  GD_TRY(gd_config_number(json, config, "time_step_floor", 0, 1e6, &floor, err));
  if (mamba->step_max < mamba->step_min)
    return gd_json_mismatch(json, config, "time_step_max", "at least time_step_min", err);
  if (floor > mamba->step_min)
    return gd_config_unsupported(json, config, "time_step_floor", "at most time_step_min", err);
  if (gd_config_has(json, config, "time_step_init_scheme"))
    GD_TRY(gd_json_string(json, config, "time_step_init_scheme", &scheme, err));
  mamba->constant_steps = strcmp(scheme, "constant") == 0;
  if (!mamba->constant_steps && strcmp(scheme, "random") != 0)
    return gd_config_unsupported(json, config, "time_step_init_scheme", "random or constant", err);
  return GD_OK;
}

static enum gd_status mamba_parse(const struct gd_json *json, const json_t *config,
                                  struct gd_model *model, struct gd_error *err) {
  struct mamba mamba = {.states = 16,
                        .taps = 4,
                        .norm_eps = 1e-5,
                        .init_deviation = 0.1,
                        .step_scale = 1,
                        .step_min = 1e-3,
                        .step_max = 0.1,
                        .conv_bias = true,
                        .residual_fp32 = true,
                        .tied = true};
  enum gd_activation activation = GD_ACTIVATION_SILU;
  double expand = 2;
  GD_TRY(gd_json_int(json, config, "vocab_size", 1, GD_CONFIG_LARGEST, &mamba.vocab, err));
  GD_TRY(gd_json_int(json, config, "hidden_size", 1, GD_CONFIG_LARGEST, &mamba.width, err));
  GD_TRY(
      gd_json_int(json, config, "num_hidden_layers", 1, GD_CONFIG_MOST_LAYERS, &mamba.layers, err));
  GD_TRY(gd_config_int(json, config, "state_size", 1, MOST_STATES, &mamba.states, err));
  GD_TRY(gd_config_int(json, config, "conv_kernel", 1, MOST_TAPS, &mamba.taps, err));
  GD_TRY(gd_config_number(json, config, "expand", 1e-6, 1024, &expand, err));
  mamba.channels = (int64_t)(expand * (double)mamba.width);
  /* Where both are there, transformers lets the size win over the factor. */
  GD_TRY(
      gd_config_int(json, config, "intermediate_size", 1, GD_CONFIG_LARGEST, &mamba.channels, err));
  if (mamba.channels < 1)
    return gd_json_mismatch(json, config, "expand", "a factor that leaves a channel", err);
  GD_TRY(read_rank(json, config, mamba.width, &mamba.rank, err));
  GD_TRY(gd_config_number(json, config, "layer_norm_epsilon", 0, 1, &mamba.norm_eps, err));
  GD_TRY(gd_config_number(json, config, "initializer_range", 0, 100, &mamba.init_deviation, err));
  GD_TRY(gd_config_bool(json, config, "use_bias", &mamba.bias, err));
  GD_TRY(gd_config_bool(json, config, "use_conv_bias", &mamba.conv_bias, err));
  GD_TRY(gd_config_bool(json, config, "residual_in_fp32", &mamba.residual_fp32, err));
  GD_TRY(gd_config_bool(json, config, "rescale_prenorm_residual", &mamba.rescaled, err));
  GD_TRY(gd_config_bool(json, config, "tie_word_embeddings", &mamba.tied, err));
  GD_TRY(gd_config_activation(json, config, "hidden_act", &activation, err));
  if (activation != GD_ACTIVATION_SILU) /* versions disagree on whether it serves the gate too */
    return gd_config_unsupported(json, config, "hidden_act", "silu", err);
  GD_TRY(read_steps(json, config, &mamba, err));
  memcpy(&model->config, &mamba, sizeof mamba);
  return GD_OK;
}

/* --- the graph ----------------------------------------------------------------------------- */

struct builder {
  struct gd_blocks blocks; /* the graph, and what names begin with */
  struct mamba c;
  gd_tensor_id no_bias; /* zeros, where the convolution has no bias; made once */
};

static gd_tensor_id param(struct builder *m, const char *name, uint32_t rank, const int64_t *dims,
                          enum gd_init init, double value) {
  m->blocks.deviation = value;
  return gd_blocks_param(&m->blocks, name, rank, dims, init);
}

/* A weight as PyTorch starts it: uniform below 1 / sqrt(inputs of one output). */
static gd_tensor_id uniform(struct builder *m, const char *name, uint32_t rank, const int64_t *dims,
                            int64_t inputs, double scale) {
  return param(m, name, rank, dims, GD_INIT_UNIFORM, scale / sqrt((double)inputs));
}

static gd_tensor_id norm(struct builder *m, const char *name, gd_tensor_id x) {
  gd_tensor_id weight = param(m, name, 1, &m->c.width, GD_INIT_ONES, 0);
  gd_tensor_id y = gd_rmsnorm(m->blocks.graph, x, weight, (float)m->c.norm_eps);
  return m->c.residual_fp32 ? gd_cast(m->blocks.graph, y, GD_DTYPE_COUNT) : y;
}

/* Projections of the layer's input and output, which may have biases. */
static gd_tensor_id project(struct builder *m, const char *weight_name, const char *bias_name,
                            gd_tensor_id x, int64_t outputs, int64_t inputs, double scale) {
  gd_tensor_id weight = uniform(m, weight_name, 2, (int64_t[]){outputs, inputs}, inputs, scale);
  gd_tensor_id bias = m->c.bias ? param(m, bias_name, 1, &outputs, GD_INIT_ZEROS, 0) : GD_NONE;
  return gd_linear(m->blocks.graph, x, weight, bias);
}

static gd_tensor_id convolve(struct builder *m, gd_tensor_id x_BTC) {
  struct gd_graph *g = m->blocks.graph;
  const struct mamba *c = &m->c;
  int64_t dims[] = {c->channels, 1, c->taps};
  gd_tensor_id weight = uniform(m, "mixer.conv1d.weight", 3, dims, c->taps, 1);
  if (!c->conv_bias && m->no_bias == GD_NONE)
    m->no_bias = gd_graph_leaf(g, GD_ROLE_CONST, "no_bias", GD_DTYPE_F32, 1, &c->channels);
  gd_tensor_id bias =
      c->conv_bias ? uniform(m, "mixer.conv1d.bias", 1, &c->channels, c->taps, 1) : m->no_bias;
  return gd_activate(g, gd_conv1d(g, x_BTC, weight, bias), GD_ACTIVATION_SILU);
}

/* softplus(x dt_proj' + bias) in fp32: the recurrence multiplies a thousand factors exp(delta A).
 */
static gd_tensor_id step_sizes(struct builder *m, gd_tensor_id x_BTR) {
  struct gd_graph *g = m->blocks.graph;
  const struct mamba *c = &m->c;
  gd_tensor_id weight = param(m, "mixer.dt_proj.weight", 2, (int64_t[]){c->channels, c->rank},
                              c->constant_steps ? GD_INIT_CONSTANT : GD_INIT_UNIFORM,
                              c->step_scale / sqrt((double)c->rank));
  gd_tensor_id bias = param(m, "mixer.dt_proj.bias", 1, &c->channels, GD_INIT_STEPS, c->step_max);
  if (bias == GD_NONE)
    return GD_NONE;
  g->tensors[bias].init_low = c->step_min;
  struct gd_attr_matmul attr = {.trans_b = true, .alpha = 1, .out_dtype = GD_DTYPE_F32};
  return gd_activate(g, gd_matmul(g, x_BTR, weight, bias, attr), GD_ACTIVATION_SOFTPLUS);
}

/*
 * The recurrence, with every step of it written out in fp32, as transformers does it without its
 * CUDA kernels. pass/kernels_scan.c makes one op `scan` of it; keep the two in step.
 */
static gd_tensor_id scan(struct gd_graph *g, gd_tensor_id u_BTC, gd_tensor_id delta_BTC,
                         gd_tensor_id a_log_CS, gd_tensor_id b_BTS, gd_tensor_id c_BTS,
                         gd_tensor_id d_C) {
  gd_tensor_id u32_BTC = gd_cast(g, u_BTC, GD_DTYPE_F32);
  gd_tensor_id a_BTCS = gd_decay(g, delta_BTC, a_log_CS);
  gd_tensor_id x_BTCS = gd_outer(g, gd_mul(g, delta_BTC, u32_BTC), b_BTS);
  gd_tensor_id h_BTCS = gd_recur(g, a_BTCS, x_BTCS);
  gd_tensor_id y_BTC = gd_contract_states(g, h_BTCS, c_BTS, GD_DTYPE_F32);
  return gd_cast(g, gd_add(g, y_BTC, gd_mul(g, u32_BTC, d_C)), GD_DTYPE_COUNT);
}

static gd_tensor_id mixer(struct builder *m, gd_tensor_id x_BTW) {
  struct gd_graph *g = m->blocks.graph;
  const struct mamba *c = &m->c;
  const int64_t state_dims[] = {c->channels, c->states}, all = c->rank + 2 * c->states;
  gd_tensor_id both =
      project(m, "mixer.in_proj.weight", "mixer.in_proj.bias", x_BTW, 2 * c->channels, c->width, 1);
  gd_tensor_id u_BTC = convolve(m, gd_slice(g, both, 2, 0, c->channels));
  gd_tensor_id gate_BTC = gd_slice(g, both, 2, c->channels, c->channels);

  gd_tensor_id selection_weight =
      uniform(m, "mixer.x_proj.weight", 2, (int64_t[]){all, c->channels}, c->channels, 1);
  gd_tensor_id selected = gd_linear(g, u_BTC, selection_weight, GD_NONE);
  gd_tensor_id delta_BTC = step_sizes(m, gd_slice(g, selected, 2, 0, c->rank));
  gd_tensor_id b_BTS = gd_slice(g, selected, 2, c->rank, c->states);
  gd_tensor_id c_BTS = gd_slice(g, selected, 2, c->rank + c->states, c->states);

  gd_tensor_id a_log_CS = param(m, "mixer.A_log", 2, state_dims, GD_INIT_LOG_INDEX, 0);
  gd_tensor_id d_C = param(m, "mixer.D", 1, &c->channels, GD_INIT_ONES, 0);
  if (d_C == GD_NONE)
    return GD_NONE;
  /* As the authors mark them; decay would pull A towards -1, so all states to one time scale. */
  g->tensors[a_log_CS].no_decay = g->tensors[d_C].no_decay = true;
  gd_tensor_id y_BTC = scan(g, u_BTC, delta_BTC, a_log_CS, b_BTS, c_BTS, d_C);
  y_BTC = gd_mul(g, y_BTC, gd_activate(g, gate_BTC, GD_ACTIVATION_SILU));
  return project(m, "mixer.out_proj.weight", "mixer.out_proj.bias", y_BTC, c->width, c->channels,
                 c->rescaled ? 1 / sqrt((double)c->layers) : 1);
}

static void mamba_build(const struct gd_model *model, int64_t micro_batch, struct gd_graph *graph) {
  struct builder m = {.blocks = {.graph = graph}, .c = config_of(model), .no_bias = GD_NONE};
  const struct mamba *c = &m.c;
  int64_t table_dims[] = {c->vocab, c->width};
  gd_tensor_id ids;
  gd_blocks_causal_tokens(graph, micro_batch, model->recipe.seq, &ids);
  gd_tensor_id table_VW = gd_graph_param(graph, "backbone.embeddings.weight", 2, table_dims,
                                         GD_INIT_NORMAL, c->init_deviation);
  gd_tensor_id x_BTW = gd_embed(graph, table_VW, ids);
  if (c->residual_fp32)
    x_BTW = gd_cast(graph, x_BTW, GD_DTYPE_F32);
  for (int64_t layer = 0; layer < c->layers; layer++) {
    graph->block = (int32_t)layer;
    gd_blocks_enter(&m.blocks, "backbone.layers.%lld.", (long long)layer);
    x_BTW = gd_add(graph, x_BTW, mixer(&m, norm(&m, "norm.weight", x_BTW)));
  }
  graph->block = -1;
  gd_blocks_enter(&m.blocks, "backbone.");
  x_BTW = norm(&m, "norm_f.weight", x_BTW);
  gd_tensor_id head_VW = c->tied ? table_VW
                                 : gd_graph_param(graph, "lm_head.weight", 2, table_dims,
                                                  GD_INIT_UNIFORM, 1 / sqrt((double)c->width));
  graph->loss = gd_blocks_next_token_loss(graph, gd_linear(graph, x_BTW, head_VW, GD_NONE));
}

/* A tied head, which some checkpoints store as well as its table. */
static bool mamba_ignores_tensor(const char *name) {
  return strcmp(name, "lm_head.weight") == 0;
}

static int64_t mamba_classes(const struct gd_model *model) {
  return config_of(model).vocab;
}

const struct gd_family gd_family_mamba = {
    .model_type = "mamba",
    .title = "Mamba",
    .kind = "state-space model",
    .parse = mamba_parse,
    .build = mamba_build,
    .ignores_tensor = mamba_ignores_tensor,
    .classes = mamba_classes,
};
