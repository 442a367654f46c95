/*
 * Software stacks as data (data/stacks): what is known of how each trains, as far as time and
 * memory depend on it, and two parameters that `gpudays fit` finds for it where somebody published
 * figures. A user's own are in $XDG_CONFIG_HOME/gpudays/stacks, and hide those of the same name.
 *
 *   struct gd_stacks stacks = {0};
 *   const struct gd_stack_facts *facts;
 *   GD_TRY(gd_stacks_load(&stacks, err));
 *   GD_TRY(gd_stacks_find(&stacks, "composer", &facts, err));
 *   gd_stacks_deinit(&stacks);
 */
#ifndef GD_PREDICT_STACK_FACTS_H
#define GD_PREDICT_STACK_FACTS_H

#include "base/mem.h"
#include "base/status.h"
#include "predict/stack_graph.h"

/* Where its kernels come from. */
enum gd_stack_kernels {
  GD_STACK_KERNELS_EAGER,    /* one an op */
  GD_STACK_KERNELS_COMPILED, /* one for what lies between GEMMs */
  GD_STACK_KERNELS_FUSED,    /* written by hand: the same, and the loss */
  GD_STACK_KERNELS_COUNT
};
/* How weights get into 16 bits. */
enum gd_stack_weights {
  GD_STACK_WEIGHTS_CAST,     /* autocast casts them in every forward pass */
  GD_STACK_WEIGHTS_GATHERED, /* FSDP casts before it gathers */
  GD_STACK_WEIGHTS_STORED,   /* the model itself is in 16 bits */
  GD_STACK_WEIGHTS_COUNT
};

enum gd_stack_fitted {
  GD_STACK_TRAFFIC, /* bytes moved by what is bound by memory over those of our graph */
  GD_STACK_HOST,    /* seconds of the host an op */
  GD_STACK_FITTED_COUNT
};

/*
 * So many times its GPU's memory an estimate had of published runs, which fit all the same: 42 of
 * llm-foundry's 176 are above 1, and none above 1.143. What is estimated beyond that does not fit.
 * A file may say another (LLMQ, which computes part of each block again: 1.222 of 12).
 */
#define GD_STACK_MEMORY_OVER 1.15

struct gd_stack_facts {
  const char *name, *title;
  const char *aliases;   /* ",hf-trainer,eager," */
  const char *scores_of; /* likewise: families whose attention writes its scores there */
  enum gd_stack_kernels kernels;
  enum gd_stack_weights weights;
  enum gd_stack_mode memory; /* by whose rules autograd keeps activations */
  bool flash;                /* fused attention */
  double attention;          /* its speed over FlashAttention 1's */
  bool native_attention;     /* with kernels of Hopper's own */
  bool overlaps;             /* gradients are summed while the backward pass runs */
  bool fuses_accumulation;   /* GEMMs add to gradients */
  bool updates_on_gpu;       /* also what is offloaded */
  bool whole_outside;    /* gradients outside of blocks are never sharded, and summed once a step */
  double state_bytes;    /* a parameter: weights, gradients, moments */
  double gradient_bytes; /* a parameter, as ranks sum them */
  double update_bytes;   /* a parameter, read and written by the optimizer */
  double update_launches; /* optimizer launches per tensor; 0: one launch for all tensors */
  double memory_over;     /* see GD_STACK_MEMORY_OVER */
  double start[GD_STACK_FITTED_COUNT]; /* by the file: what is expected of such software */
  double value[GD_STACK_FITTED_COUNT]; /* fitted; else the same */
  int rows;                            /* published figures that it was fitted to; 0: none */
  bool own, paper;                     /* this engine; the paper's software: clocks of their own */
};

struct gd_stacks {
  struct gd_arena arena;
  struct gd_stack_facts *all; /* sorted by name */
  int count;
};

enum gd_status gd_stacks_load(struct gd_stacks *stacks, struct gd_error *err) GD_MUST_USE;
void gd_stacks_deinit(struct gd_stacks *stacks); /* safe on a zeroed one */
/* By name or alias; else GD_BAD_INPUT that lists them. */
enum gd_status gd_stacks_find(const struct gd_stacks *stacks, const char *name,
                              const struct gd_stack_facts **facts,
                              struct gd_error *err) GD_MUST_USE;

/* Whether attention is fused there: by the file, unless the family or the method has scores. */
bool gd_stack_has_flash(const struct gd_stack_facts *facts, const struct gd_model *model,
                        bool naive);

#endif
