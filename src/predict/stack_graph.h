/*
 * What the paper's software stack (PyTorch, Transformers, DeepSpeed) does in one forward and
 * backward pass, counted on our graph of the same model: GEMMs, bytes that other ops move,
 * kernels, and what autograd keeps for the backward pass. The graphs are those of the model and
 * pass libraries without what that stack lacks (fused loss and heads); nothing here knows a GPU.
 */
#ifndef GD_PREDICT_STACK_GRAPH_H
#define GD_PREDICT_STACK_GRAPH_H

#include "model/model.h"

/* How a model is run there. */
enum gd_stack_mode {
  GD_STACK_NAIVE,    /* eager under autocast, attention with its scores */
  GD_STACK_COMPILED, /* free lunch without DeepSpeed: compiled where that works, under autocast */
  GD_STACK_HALF,     /* free lunch under DeepSpeed: eager, the model itself in 16 bits */
  GD_STACK_MEGATRON, /* Megatron-LM on DeepSpeed: 16 bits, scores, fused small kernels */
  GD_STACK_MODE_COUNT
};

/* Sums over the ops of one phase. */
struct gd_stack_phase {
  double gemm_flops;      /* 2 m n k outside fused attention */
  double attention_flops; /* of fused attention, as executed: half where causal */
  double gemm_bytes;      /* what GEMMs read and write */
  double other_bytes;     /* what all else reads and writes, but for */
  double score_bytes;     /* what works on the scores of attention, outside GEMMs */
  double kernels;         /* launches */
};

struct gd_stack_sums {
  struct gd_stack_phase forward, backward;
  double saved_bytes;       /* kept from the forward for the backward pass, without checkpointing */
  double block_saved_bytes; /* of that, the largest block's */
  double outside_bytes;     /* of that, what lies outside the blocks: the loss and its logits */
  double ckpt_bytes;        /* block inputs: what checkpointing keeps */
};

/* A model in one mode. Every sum is fixed + per sample x micro-batch. */
struct gd_stack_graph {
  struct gd_stack_sums one, two; /* of micro-batches of 1 and 2 */
  double parameters, parameter_tensors;
  double block_parameters; /* of the largest block */
  double model_flops;      /* of one sample, as the paper counts */
  bool fp32;               /* the recipe's GEMMs are fp32 */
  int blocks;
};

enum gd_status gd_stack_graph_make(const struct gd_model *model, enum gd_stack_mode mode,
                                   struct gd_stack_graph *graph, struct gd_error *err) GD_MUST_USE;
/* Whether torch.compile works for it: Appendix F. */
bool gd_stack_compiles(const struct gd_model *model);
/* Elements of the scores of one layer's attention, [B,N,T,T]; 0 where no op writes them. */
int64_t gd_stack_scores(const struct gd_graph *graph);
/* Whether what an op writes is as large, and of that shape. */
bool gd_stack_works_on_scores(const struct gd_graph *graph, const struct gd_op *op, int64_t scores);
/* The sums of any micro-batch. */
void gd_stack_graph_at(const struct gd_stack_graph *graph, double micro_batch,
                       struct gd_stack_sums *sums);

#endif
