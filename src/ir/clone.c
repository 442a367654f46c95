/*
 * Copies of a graph that share what never changes: see gd_graph_share.
 */
#include <stdatomic.h>

#include "ir/fusion.h"

struct gd_graph_shared {
  struct gd_graph graph;
  atomic_int users; /* copies, and who made it */
};

enum gd_status gd_graph_share(struct gd_graph *graph, struct gd_graph_shared **shared,
                              struct gd_error *err) {
  *shared = gd_mem_alloc(1, sizeof **shared);
  if (!*shared) {
    gd_graph_deinit(graph);
    return gd_nomem(err, "while sharing a graph");
  }
  (*shared)->graph = *graph;
  atomic_init(&(*shared)->users, 1);
  *graph = (struct gd_graph){0};
  return GD_OK;
}

void gd_graph_unshare(struct gd_graph_shared *shared) {
  if (!shared || atomic_fetch_sub(&shared->users, 1) > 1)
    return;
  gd_graph_deinit(&shared->graph);
  gd_mem_free(shared);
}

/* A copy of an array with room for a quarter more, since passes add to it. */
static void *copy_array(const void *from, uint32_t count, size_t size, uint32_t *capacity) {
  *capacity = count + count / 4 + 1;
  return gd_mem_copy(from, count, *capacity, size);
}

enum gd_status gd_graph_clone(struct gd_graph_shared *shared, struct gd_graph *graph,
                              struct gd_error *err) {
  const struct gd_graph *from = &shared->graph;
  GD_ASSERT(from->n_flats == 0 && from->n_targets == 0); /* passes change those in place */
  *graph = *from;
  graph->arena = (struct gd_arena){0};
  graph->shared = shared;
  graph->n_shared_fusions = from->n_fusions;
  atomic_fetch_add(&shared->users, 1);
  graph->tensors =
      copy_array(from->tensors, from->n_tensors, sizeof *from->tensors, &graph->tensors_capacity);
  graph->ops = copy_array(from->ops, from->n_ops, sizeof *from->ops, &graph->ops_capacity);
  graph->fusions =
      copy_array(from->fusions, from->n_fusions, sizeof *from->fusions, &graph->fusions_capacity);
  if (graph->tensors && graph->ops && graph->fusions)
    return GD_OK;
  graph->n_tensors = graph->n_ops = 0;
  if (!graph->fusions)
    graph->n_fusions = graph->n_shared_fusions = 0;
  return gd_nomem(err, "while copying a graph");
}

int64_t gd_graph_shared_bytes(const struct gd_graph_shared *shared) {
  const struct gd_graph *graph = &shared->graph;
  /* Ids and dims in the arena are about as much again as the arrays. */
  return 2 * (int64_t)((size_t)graph->tensors_capacity * sizeof *graph->tensors +
                       (size_t)graph->ops_capacity * sizeof *graph->ops);
}
