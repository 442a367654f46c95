/*
 * A short list of graphs, the oldest of which go when it is full; see graph_cache.h.
 */
#include "pass/graph_cache.h"

#include <pthread.h>

#include "base/mem.h"

enum { MOST_ENTRIES = 96 };
static const int64_t most_bytes = (int64_t)1 << 28;

struct entry {
  /* What the graph depends on. */
  const struct gd_model *model;
  enum gd_precision precision;
  int64_t micro_batch, loss_chunk_bytes, saved_blocks;
  bool tf32, no_compiler;
  uint32_t passes;

  struct gd_graph_shared *graph; /* NULL: being built */
  int64_t used;                  /* when it was asked for last */
};

struct gd_graph_cache {
  pthread_mutex_t mutex;
  pthread_cond_t built;
  struct entry entries[MOST_ENTRIES];
  int count;
  int64_t bytes, time;
};

struct gd_graph_cache *gd_graph_cache_new(void) {
  struct gd_graph_cache *cache = gd_mem_alloc(1, sizeof *cache);
  if (cache) {
    pthread_mutex_init(&cache->mutex, NULL);
    pthread_cond_init(&cache->built, NULL);
  }
  return cache;
}

void gd_graph_cache_free(struct gd_graph_cache *cache) {
  if (!cache)
    return;
  for (int i = 0; i < cache->count; i++)
    gd_graph_unshare(cache->entries[i].graph);
  pthread_cond_destroy(&cache->built);
  pthread_mutex_destroy(&cache->mutex);
  gd_mem_free(cache);
}

static bool is_same(const struct entry *a, const struct entry *b) {
  return a->model == b->model && a->precision == b->precision && a->micro_batch == b->micro_batch &&
         a->loss_chunk_bytes == b->loss_chunk_bytes && a->saved_blocks == b->saved_blocks &&
         a->tf32 == b->tf32 && a->no_compiler == b->no_compiler && a->passes == b->passes;
}

static struct entry *find(struct gd_graph_cache *cache, const struct entry *wanted) {
  for (int i = 0; i < cache->count; i++)
    if (is_same(&cache->entries[i], wanted))
      return &cache->entries[i];
  return NULL;
}

static void forget(struct gd_graph_cache *cache, struct entry *entry) {
  if (entry->graph)
    cache->bytes -= gd_graph_shared_bytes(entry->graph);
  gd_graph_unshare(entry->graph);
  *entry = cache->entries[--cache->count];
}

/* Room for one more: the least recently used graphs go. False: every entry is being
   built. */
static bool make_room(struct gd_graph_cache *cache) {
  while (cache->count == MOST_ENTRIES || cache->bytes > most_bytes) {
    struct entry *oldest = NULL;
    for (int i = 0; i < cache->count; i++)
      if (cache->entries[i].graph && (!oldest || cache->entries[i].used < oldest->used))
        oldest = &cache->entries[i];
    if (!oldest)
      return cache->count < MOST_ENTRIES;
    forget(cache, oldest);
  }
  return true;
}

/* Runs without the lock, since it takes long. The caller owns one reference of *shared. */
static enum gd_status build_and_share(const struct gd_setup *setup, gd_graph_builder *build,
                                      struct gd_graph_shared **shared, struct gd_error *err) {
  struct gd_graph graph = {0};
  enum gd_status status = build(setup, &graph, err);
  if (status == GD_OK)
    return gd_graph_share(&graph, shared, err);
  gd_graph_deinit(&graph);
  return status;
}

enum gd_status gd_graph_cache_get(const struct gd_setup *setup, uint32_t passes,
                                  gd_graph_builder *build, struct gd_graph *graph,
                                  struct gd_error *err) {
  struct gd_graph_cache *cache = setup->cache;
  struct entry wanted = {.model = setup->model,
                         .precision = setup->precision,
                         .micro_batch = setup->micro_batch,
                         .loss_chunk_bytes = setup->loss_chunk_bytes,
                         .saved_blocks = setup->saved_blocks,
                         .tf32 = setup->tf32,
                         .no_compiler = setup->no_compiler,
                         .passes = passes};
  struct entry *entry;
  struct gd_graph_shared *shared = NULL;
  enum gd_status status;
  pthread_mutex_lock(&cache->mutex);
  while ((entry = find(cache, &wanted)) && !entry->graph)
    pthread_cond_wait(&cache->built, &cache->mutex);
  if (entry) {
    entry->used = ++cache->time;
    status = gd_graph_clone(entry->graph, graph, err);
    pthread_mutex_unlock(&cache->mutex);
    return status;
  }
  if (!make_room(cache)) {
    pthread_mutex_unlock(&cache->mutex);
    return build(setup, graph, err);
  }
  wanted.used = ++cache->time;
  cache->entries[cache->count++] = wanted;
  pthread_mutex_unlock(&cache->mutex);
  status = build_and_share(setup, build, &shared, err);
  if (status == GD_OK)
    status = gd_graph_clone(shared, graph, err);
  pthread_mutex_lock(&cache->mutex);
  entry = find(cache, &wanted); /* entries move; those being built are never evicted */
  if (status == GD_OK) {
    entry->graph = shared;
    cache->bytes += gd_graph_shared_bytes(shared);
  } else {
    gd_graph_unshare(shared);
    forget(cache, entry);
  }
  pthread_cond_broadcast(&cache->built);
  pthread_mutex_unlock(&cache->mutex);
  return status;
}
