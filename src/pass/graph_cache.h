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

#endif
