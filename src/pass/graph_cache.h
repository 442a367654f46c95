/*
 * Graphs that methods have in common. The pipeline up to the pass before `shard` depends on the
 * model, the micro-batch and a few switches alone, so that the 22 methods of a search need two of
 * them for each micro-batch: with and without ckpt. Threads may use one cache at the same time.
 *
 *   struct gd_graph_cache *cache = gd_graph_cache_new();        // NULL: out of memory, also fine
 *   struct gd_setup setup = {.cache = cache, ...};
 *   GD_TRY(gd_pipeline_build(&setup, &graph, err));
 *   gd_graph_cache_free(cache);                                 // graphs live on
 *
 * Models are told apart by address: a cache must not outlive them.
 */
#ifndef GD_PASS_GRAPH_CACHE_H
#define GD_PASS_GRAPH_CACHE_H

#include "pass/pass.h"

struct gd_graph_cache *gd_graph_cache_new(void);
void gd_graph_cache_free(struct gd_graph_cache *cache); /* NULL is fine */

/*
 * A copy of the graph of setup and passes (bits by number); where there is none yet, build makes
 * it. A thread that asks for what another one is building waits for it.
 */
typedef enum gd_status gd_graph_builder(const struct gd_setup *setup, struct gd_graph *graph,
                                        struct gd_error *err);
enum gd_status gd_graph_cache_get(const struct gd_setup *setup, uint32_t passes,
                                  gd_graph_builder *build, struct gd_graph *graph,
                                  struct gd_error *err) GD_MUST_USE;

/* Activations that the forward pass of blocks leaves for the backward pass. */
struct gd_graph_saved {
  int64_t bytes;
  int64_t own_bytes, own_tensors; /* of them: read by the backward pass of the same block */
};
/* What every plan made of such a graph has, whatever the ranks, the sharding and offload. */
struct gd_graph_least {
  int64_t blocks, rows; /* rows: tokens or pixels of a micro-step */
  double flops;         /* of a micro-step: graph->model_flops */
  int64_t parameters;
  struct gd_graph_saved all, last; /* of all blocks, which lie in memory together, and the last */
  /* As noted last by gd_graph_cache_note, for the sharding of the setup or, where there was none,
     for any; -1: nothing was. To guess with. */
  int64_t rest_bytes;
};
/* Of the graph of setup and passes; last_blocks: how many are the last. */
enum gd_status gd_graph_cache_least(const struct gd_setup *setup, uint32_t passes,
                                    gd_graph_builder *build, int64_t last_blocks,
                                    struct gd_graph_least *least, struct gd_error *err) GD_MUST_USE;
/* Notes what a plan had beyond what is certain, where gd_graph_cache_least knows its graph. */
void gd_graph_cache_note(const struct gd_setup *setup, uint32_t passes, int64_t rest_bytes);

#endif
