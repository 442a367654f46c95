/*
 * The modules that families share. What a family does with them is its own file.
 */
#include "model/blocks.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

static bool failed(const struct gd_graph *graph) {
  return graph->error.status != GD_OK;
}

void gd_blocks_enter(struct gd_blocks *m, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(m->prefix, sizeof m->prefix, format, args);
  va_end(args);
}

void gd_blocks_tokens(struct gd_graph *graph, int64_t b, int64_t t) {
  int64_t dims[] = {b, t}, one[] = {1};
  graph->ids = gd_graph_leaf(graph, GD_ROLE_INPUT, "input_ids", GD_DTYPE_I32, 2, dims);
  graph->labels = gd_graph_leaf(graph, GD_ROLE_INPUT, "labels", GD_DTYPE_I32, 2, dims);
  graph->loss_weight = gd_graph_leaf(graph, GD_ROLE_INPUT, "loss_weight", GD_DTYPE_F32, 1, one);
}

enum { TILE = 64 }; /* positions that attention kernels take at a time, or a divisor of that */

int64_t gd_blocks_causal_tokens(struct gd_graph *graph, int64_t b, int64_t t, gd_tensor_id *ids) {
  gd_blocks_tokens(graph, b, t);
  *ids = graph->ids;
  if (!graph->trims || t <= TILE || t % TILE != 1)
    return t;
  *ids = gd_slice(graph, graph->ids, 1, 0, t - 1);
  return t - 1;
}

gd_tensor_id gd_blocks_next_token_loss(struct gd_graph *graph, gd_tensor_id logits_BTV) {
  struct gd_attr_xent attr = {.ignore = -100, .shift = true};
  gd_tensor_id labels = graph->labels;
  if (logits_BTV == GD_NONE || labels == GD_NONE)
    return GD_NONE;
  int64_t scored = graph->tensors[logits_BTV].dims[1], t = graph->tensors[labels].dims[1];
  if (scored < t) {
    labels = gd_slice(graph, labels, 1, t - scored, scored);
    attr.shift = false;
  }
  graph->predicts_next = true;
  return gd_xent(graph, logits_BTV, labels, graph->loss_weight, attr);
}

gd_tensor_id gd_blocks_param(struct gd_blocks *m, const char *name, uint32_t rank,
                             const int64_t *dims, enum gd_init init) {
  char full[192];
  snprintf(full, sizeof full, "%s%s", m->prefix, name);
  return gd_graph_param(m->graph, full, rank, dims, init, m->deviation);
}

/* "<prefix><module>.<leaf>" */
static gd_tensor_id module_param(struct gd_blocks *m, const char *module, const char *leaf,
                                 uint32_t rank, const int64_t *dims, enum gd_init init) {
  char name[96];
  snprintf(name, sizeof name, "%s.%s", module, leaf);
  return gd_blocks_param(m, name, rank, dims, init);
}

static int64_t last_dim(const struct gd_graph *graph, gd_tensor_id x) {
  return graph->tensors[x].dims[graph->tensors[x].rank - 1];
}

gd_tensor_id gd_blocks_linear(struct gd_blocks *m, const char *module, gd_tensor_id x,
                              int64_t outputs, bool has_bias) {
  if (failed(m->graph))
    return GD_NONE;
  int64_t dims[] = {outputs, last_dim(m->graph, x)};
  gd_tensor_id weight = module_param(m, module, "weight", 2, dims, GD_INIT_NORMAL);
  gd_tensor_id bias = has_bias ? module_param(m, module, "bias", 1, dims, GD_INIT_ZEROS) : GD_NONE;
  return gd_linear(m->graph, x, weight, bias);
}

gd_tensor_id gd_blocks_layernorm(struct gd_blocks *m, const char *module, gd_tensor_id x,
                                 double eps) {
  if (failed(m->graph))
    return GD_NONE;
  int64_t dims[] = {last_dim(m->graph, x)};
  gd_tensor_id weight = module_param(m, module, "weight", 1, dims, GD_INIT_ONES);
  gd_tensor_id bias = module_param(m, module, "bias", 1, dims, GD_INIT_ZEROS);
  return gd_layernorm(m->graph, x, weight, bias, (float)eps);
}

gd_tensor_id gd_blocks_heads(struct gd_graph *graph, gd_tensor_id x_BTC, int64_t heads) {
  if (failed(graph))
    return GD_NONE;
  const int64_t *dims = graph->tensors[x_BTC].dims;
  gd_tensor_id x_BTND =
      gd_reshape(graph, x_BTC, 4, (int64_t[]){dims[0], dims[1], heads, dims[2] / heads});
  return gd_transpose(graph, x_BTND, (uint8_t[]){0, 2, 1, 3});
}

gd_tensor_id gd_blocks_attention(struct gd_graph *graph, gd_tensor_id q_BNTD, gd_tensor_id k_BMTD,
                                 gd_tensor_id v_BMTD, bool causal, double dropout) {
  if (failed(graph))
    return GD_NONE;
  const int64_t *q_dims = graph->tensors[q_BNTD].dims;
  int64_t b = q_dims[0], n = q_dims[1], t = q_dims[2], d = q_dims[3];
  int64_t groups = graph->tensors[k_BMTD].dims[1], rows = n / groups * t;
  bool shared = groups != n;
  gd_tensor_id q = shared ? gd_reshape(graph, q_BNTD, 4, (int64_t[]){b, groups, rows, d}) : q_BNTD;
  gd_tensor_id scores =
      gd_matmul(graph, q, k_BMTD, GD_NONE,
                (struct gd_attr_matmul){
                    .trans_b = true, .alpha = 1.0f / sqrtf((float)d), .out_dtype = GD_DTYPE_COUNT});
  if (shared) /* back to one matrix a head: the causal mask counts rows within it */
    scores = gd_reshape(graph, scores, 4, (int64_t[]){b, n, t, t});
  gd_tensor_id weights = gd_dropout(graph, gd_softmax(graph, scores, causal), dropout);
  if (shared)
    weights = gd_reshape(graph, weights, 4, (int64_t[]){b, groups, rows, t});
  gd_tensor_id out = gd_matmul(graph, weights, v_BMTD, GD_NONE,
                               (struct gd_attr_matmul){.alpha = 1, .out_dtype = GD_DTYPE_COUNT});
  if (shared)
    out = gd_reshape(graph, out, 4, (int64_t[]){b, n, t, d});
  gd_tensor_id out_BTND = gd_transpose(graph, out, (uint8_t[]){0, 2, 1, 3});
  return gd_reshape(graph, out_BTND, 3, (int64_t[]){b, t, n * d});
}
