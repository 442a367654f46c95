/*
 * Modules that several families are made of: named linear layers and norms, heads, attention. Each
 * appends to the forward graph; after a failure each returns GD_NONE (see ir/graph.h).
 *
 *   struct gd_blocks m = {.graph = graph, .deviation = 0.02};
 *   gd_blocks_enter(&m, "model.layers.%lld.", 3LL);
 *   x_BTC = gd_blocks_linear(&m, "mlp.up_proj", x_BTC, inner, false);
 *
 * makes the parameter model.layers.3.mlp.up_proj.weight.
 *
 * Letters: B batch, T sequence, C width, N heads, M key and value heads (they divide N), D head
 * size.
 */
#ifndef GD_MODEL_BLOCKS_H
#define GD_MODEL_BLOCKS_H

#include "ir/graph.h"

struct gd_blocks {
  struct gd_graph *graph;
  double deviation; /* of the weights of linear layers and tables at the start */
  char prefix[96];  /* what parameter names begin with, its dot included */
};

void gd_blocks_enter(struct gd_blocks *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* The leaves of a language model: input_ids and labels [b,t], loss_weight. */
void gd_blocks_tokens(struct gd_graph *graph, int64_t b, int64_t t);
/*
 * The same for a model that predicts the next token; *ids is what it reads, [b, result], and the
 * result the positions it has. These are t, or t - 1 where the graph may be trimmed: the last
 * position predicts nothing, and nothing before it looks at it, so loss and gradients are the same
 * without it. It is left out where that leaves whole tiles: of 2,049 tokens, as Pythia's recipe
 * has them, attention at 2,048 is an eighth faster on a GPU.
 */
int64_t gd_blocks_causal_tokens(struct gd_graph *graph, int64_t b, int64_t t, gd_tensor_id *ids);
/* The loss of such a model. */
gd_tensor_id gd_blocks_next_token_loss(struct gd_graph *graph, gd_tensor_id logits_BTV);

/* A parameter "<prefix><name>"; a GD_INIT_NORMAL has the deviation of m. */
gd_tensor_id gd_blocks_param(struct gd_blocks *m, const char *name, uint32_t rank,
                             const int64_t *dims, enum gd_init init);
/* "<prefix><module>.weight" [outputs, width of x] and, maybe, ".bias". */
gd_tensor_id gd_blocks_linear(struct gd_blocks *m, const char *module, gd_tensor_id x,
                              int64_t outputs, bool has_bias);
gd_tensor_id gd_blocks_layernorm(struct gd_blocks *m, const char *module, gd_tensor_id x,
                                 double eps);

/* [B,T,N D] -> [B,N,T,D]. */
gd_tensor_id gd_blocks_heads(struct gd_graph *graph, gd_tensor_id x_BTC, int64_t heads);
/*
 * softmax(q k' / sqrt(D)) v as [B,T,N D], with dropout on the weights. Where N exceeds M, each key
 * and value head serves N / M query heads, whose queries are taken as further rows: nothing is
 * copied.
 */
gd_tensor_id gd_blocks_attention(struct gd_graph *graph, gd_tensor_id q_BNTD, gd_tensor_id k_BMTD,
                                 gd_tensor_id v_BMTD, bool causal, double dropout);

#endif
