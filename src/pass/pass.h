/*
 * Passes: each efficiency method is one or more named rewrites of the graph, and the pipeline is
 * their ordered list. A pass reads its options from the context and never knows the model.
 */
#ifndef GD_PASS_PASS_H
#define GD_PASS_PASS_H

#include "ir/caps.h"
#include "ir/graph.h"
#include "model/model.h"
#include "pass/method.h"

struct gd_pass;
struct gd_graph_cache;

/* What to build: a model, one micro-batch size, and the choices that passes act on. */
struct gd_setup {
  const struct gd_model *model;
  enum gd_precision precision; /* as run, after gd_setup_precision */
  int64_t micro_batch;
  struct gd_method method;
  int ranks, rank;          /* ranks 0 or 1: one device */
  int64_t loss_chunk_bytes; /* of struct gd_caps */
  int64_t saved_blocks;     /* last blocks whose activations are saved, not recomputed, for GEMMs */
  bool tf32;                /* the device has it: the tf32 method may use it */
  bool no_compiler; /* fused ops cannot be run here: the compile method leaves ops as they are */
  struct gd_graph_cache *cache; /* graphs that methods have in common: graph_cache.h; or NULL */
  bool no_dropout;              /* to evaluate */
  bool verify_each; /* the graph is verified after each pass; builds with sanitizers always do */
  /* Sees the graph after each step of the pipeline, with the seconds that it took; or NULL. `pass`
     is NULL after the steps between: the forward graph, autodiff, the update program. */
  void (*watch)(void *user, const struct gd_pass *pass, const struct gd_graph *graph,
                double seconds);
  void *watch_user;
};

struct gd_pass_ctx {
  const struct gd_setup *setup;
  struct gd_error *err;
};

/* When a pass runs: before the model builds its graph, on the forward graph, on forward + backward,
   or on all programs. */
enum gd_stage { GD_STAGE_BUILD, GD_STAGE_FORWARD, GD_STAGE_MICRO_STEP, GD_STAGE_ALL };

struct gd_pass {
  const char *name;
  enum gd_status (*run)(struct gd_pass_ctx *ctx, struct gd_graph *graph);
  enum gd_stage stage;
  bool preserves_numerics; /* loss and gradients are bitwise those without it */
  bool shared;             /* depends on neither ranks nor sharding: see graph_cache.h */
  bool always;             /* whatever the method; otherwise where a part of the method names it */
  const char *needs;       /* earlier passes without which it cannot run, separated by blanks; "" */
  const char *stays;       /* why it cannot be switched off; NULL: it can */
  const char *doc;
};

/* The pipeline, in order. Each pass has a bit in struct gd_method's `without`, by its number. */
const struct gd_pass *gd_passes(int *count);
/* By name; -1: there is none. */
int gd_pass_find(const char *name, size_t length);
/* Whether a pass is part of a method: a part of it names the pass, and it is not switched off. */
bool gd_pass_is_on(const struct gd_method *method, int number);
/* Names of all passes, ", " between them. */
void gd_pass_list(struct gd_strbuf *out);
/* gd_graph_verify, and what must hold before the next stage begins. */
enum gd_status gd_stage_verify(const struct gd_graph *graph, enum gd_stage stage,
                               struct gd_error *err) GD_MUST_USE;

/* Causal models leave out a last position that predicts nothing: 2,048 of 2,049. */
enum gd_status gd_pass_trim(struct gd_pass_ctx *ctx, struct gd_graph *graph) GD_MUST_USE;
/* Mixed precision: compute copies of the weights, and everything downstream in that dtype. */
enum gd_status gd_pass_precision(struct gd_pass_ctx *ctx, struct gd_graph *graph) GD_MUST_USE;
/* Fused ops in place of patterns: see kernels.h. */
enum gd_status gd_pass_kernels(struct gd_pass_ctx *ctx, struct gd_graph *graph) GD_MUST_USE;
/* Lets fp32 GEMMs round their operands to TF32. */
enum gd_status gd_pass_tf32(struct gd_pass_ctx *ctx, struct gd_graph *graph) GD_MUST_USE;
/* Recomputes the inside of each block in the backward pass. */
enum gd_status gd_pass_ckpt(struct gd_pass_ctx *ctx, struct gd_graph *graph) GD_MUST_USE;
/* Data parallel, ZeRO, FSDP: flat leaves, shards, collectives. */
enum gd_status gd_pass_shard(struct gd_pass_ctx *ctx, struct gd_graph *graph) GD_MUST_USE;
/* State in host memory, with copies where the two memories meet. After the update program. */
enum gd_status gd_pass_offload(struct gd_pass_ctx *ctx, struct gd_graph *graph) GD_MUST_USE;
/*
 * After autodiff: gradients are added to their leaves by the ops that make them, where these can.
 * The same sums, and the same bits but for ops that add in pieces.
 */
enum gd_status gd_pass_accumulate(struct gd_pass_ctx *ctx, struct gd_graph *graph) GD_MUST_USE;
/*
 * The compile method, after autodiff; needs no compiler. First what the forward pass need not save,
 * then clusters of small ops as fused ops. gd_codegen_works() says whether they can be
 * run. Clusters are fixed here, before checkpointing.
 */
enum gd_status gd_pass_recompute(struct gd_pass_ctx *ctx, struct gd_graph *graph) GD_MUST_USE;
enum gd_status gd_pass_compile(struct gd_pass_ctx *ctx, struct gd_graph *graph) GD_MUST_USE;

/*
 * The precision a device runs a recipe in: where it lacks one of fp16 and bf16 it is the other one
 * (fp16 comes with a loss scale), and fp32 where it lacks both. *substituted says that it is not
 * the recipe's. `forced` is the user's explicit choice, or NULL: GD_UNSUPPORTED where the device
 * cannot compute in it.
 */
enum gd_status gd_setup_precision(const struct gd_model *model, const struct gd_caps *caps,
                                  const enum gd_precision *forced, enum gd_precision *precision,
                                  bool *substituted, struct gd_error *err) GD_MUST_USE;

/* What a setup takes from a device: TF32, the chunks of the fused loss, and whether fused ops can
   be compiled, where the method, which must be set, asks for that. */
void gd_setup_device(struct gd_setup *setup, const struct gd_caps *caps);

/*
 * Model -> forward graph -> passes -> backward -> update program, verified. The graph must be
 * zeroed or deinitialised; the caller deinitialises it, also after a failure.
 */
enum gd_status gd_pipeline_build(const struct gd_setup *setup, struct gd_graph *graph,
                                 struct gd_error *err) GD_MUST_USE;
/* The least that its plan needs, from a graph that setup->cache has or gets: see
   gd_graph_cache_least. */
struct gd_graph_least;
enum gd_status gd_pipeline_least(const struct gd_setup *setup, int64_t last_blocks,
                                 struct gd_graph_least *least, struct gd_error *err) GD_MUST_USE;
/* Notes what a plan of it had beyond: see gd_graph_cache_note. */
void gd_pipeline_note(const struct gd_setup *setup, int64_t rest_bytes);
/* The first half of it, for gd_pipeline_forward: the forward graph and its passes. */
enum gd_status gd_pipeline_build_forward(const struct gd_setup *setup, struct gd_graph *graph,
                                         struct gd_error *err) GD_MUST_USE;

/*
 * What a run evaluates with: the graph of gd_pipeline_build without dropout, and of its ops those
 * that the loss needs. The leaves are those of training, at the same places; one op may still add
 * to gradients: the fused loss.
 */
enum gd_status gd_pipeline_evaluation(const struct gd_setup *setup, struct gd_graph *graph,
                                      struct gd_error *err) GD_MUST_USE;
/*
 * A model alone, in fp32: parameters, inputs, and the ops up to its loss or up to its logits, which
 * are then the output of the last op. Logits need a method without kernels, whose fused loss has
 * none.
 */
enum gd_forward_end { GD_FORWARD_LOSS, GD_FORWARD_LOGITS };
enum gd_status gd_pipeline_forward(const struct gd_setup *setup, enum gd_forward_end end,
                                   struct gd_graph *graph, struct gd_error *err) GD_MUST_USE;

#endif
