/*
 * A short list of graphs, the oldest of which go when it is full; see graph_cache.h.
 */
#include "pass/graph_cache.h"

#include <pthread.h>

#include "base/mem.h"

enum { MOST_ENTRIES = 96, MOST_LEAST = 256 };
static const int64_t most_bytes = (int64_t)1 << 28;

/* What a graph depends on. */
struct key {
  const struct gd_model *model;
  enum gd_precision precision;
  int64_t micro_batch, loss_chunk_bytes, saved_blocks;
  bool tf32, no_compiler;
  uint32_t passes;
};

struct entry {
  struct key key;
  struct gd_graph_shared *graph; /* NULL: being built */
  int64_t used;                  /* when it was asked for last */
};

/* What is known of a graph after it is gone too. */
struct least {
  struct key key;
  struct gd_graph_least of;
  struct gd_graph_saved *until; /* by block: of those before it; in gd_mem */
  /* As noted, by sharding, and the newest of them behind these; -1: none was. */
  int64_t rest_bytes[GD_SHARDING_COUNT + 1];
};

struct gd_graph_cache {
  pthread_mutex_t mutex;
  pthread_cond_t built;
  struct entry entries[MOST_ENTRIES];
  int count;
  int64_t bytes, time;
  struct least least[MOST_LEAST]; /* the newest ones, in a ring */
  int64_t n_least;                /* ever */
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
  for (int i = 0; i < MOST_LEAST; i++)
    gd_mem_free(cache->least[i].until);
  pthread_cond_destroy(&cache->built);
  pthread_mutex_destroy(&cache->mutex);
  gd_mem_free(cache);
}

static bool is_same(const struct key *a, const struct key *b) {
  return a->model == b->model && a->precision == b->precision && a->micro_batch == b->micro_batch &&
         a->loss_chunk_bytes == b->loss_chunk_bytes && a->saved_blocks == b->saved_blocks &&
         a->tf32 == b->tf32 && a->no_compiler == b->no_compiler && a->passes == b->passes;
}

static struct key key_of(const struct gd_setup *setup, uint32_t passes) {
  return (struct key){.model = setup->model,
                      .precision = setup->precision,
                      .micro_batch = setup->micro_batch,
                      .loss_chunk_bytes = setup->loss_chunk_bytes,
                      .saved_blocks = setup->saved_blocks,
                      .tf32 = setup->tf32,
                      .no_compiler = setup->no_compiler,
                      .passes = passes};
}

static struct entry *find(struct gd_graph_cache *cache, const struct key *wanted) {
  for (int i = 0; i < cache->count; i++)
    if (is_same(&cache->entries[i].key, wanted))
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

/* --- the least that a graph needs ------------------------------------------------------------ */

enum counted { COUNTED = 1, COUNTED_OWN = 2 };

/* A tensor that an op of the backward pass reads. */
static void count_saved(const struct gd_graph *graph, const struct gd_op *op, gd_tensor_id root,
                        uint8_t *counted, struct gd_graph_saved *until) {
  gd_op_id producer = graph->tensors[root].producer;
  if (producer == GD_NONE || graph->ops[producer].block < 0 ||
      graph->ops[producer].phase != GD_PHASE_FORWARD)
    return;
  struct gd_graph_saved *saved = &until[graph->ops[producer].block + 1];
  if (!(counted[root] & COUNTED))
    saved->bytes += gd_tensor_bytes(graph, root);
  if (op->block == graph->ops[producer].block && !(counted[root] & COUNTED_OWN)) {
    saved->own_bytes += gd_tensor_bytes(graph, root);
    saved->own_tensors++;
    counted[root] |= COUNTED_OWN;
  }
  counted[root] |= COUNTED;
}

/*
 * What an op of a block's forward pass makes and one of the backward pass reads. The passes that
 * are not shared move parameters, gradients and state, and what is added to gradients; of these
 * activations they move none. Zeroed where memory is out: a bound of 0 is one too.
 */
static struct least find_least(const struct gd_graph *graph, const struct key *key) {
  struct least least = {.key = *key};
  int64_t blocks = gd_graph_blocks(graph);
  uint8_t *counted = gd_mem_alloc(graph->n_tensors, sizeof *counted); /* enum counted */
  struct gd_graph_saved *until = gd_mem_alloc((size_t)blocks + 1, sizeof *until);
  if (!counted || !until) {
    gd_mem_free(counted);
    gd_mem_free(until);
    return (struct least){0};
  }
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    const struct gd_op *op = &graph->ops[id];
    for (uint32_t i = 0; op->phase == GD_PHASE_BACKWARD && i < op->n_in; i++)
      if (op->in[i] != GD_NONE)
        count_saved(graph, op, gd_tensor_root(graph, op->in[i], NULL), counted, until);
  }
  for (int64_t block = 0; block < blocks; block++) {
    until[block + 1].bytes += until[block].bytes;
    until[block + 1].own_bytes += until[block].own_bytes;
    until[block + 1].own_tensors += until[block].own_tensors;
  }
  least.until = until;
  least.of = (struct gd_graph_least){
      .blocks = blocks,
      .rows = gd_tensor_elements(graph, graph->ids != GD_NONE ? graph->ids : graph->pixels),
      .flops = graph->model_flops,
      .parameters = gd_graph_parameters(graph),
      .all = until[blocks]};
  for (int i = 0; i <= GD_SHARDING_COUNT; i++)
    least.rest_bytes[i] = -1;
  gd_mem_free(counted);
  return least;
}

static struct least *known_least(struct gd_graph_cache *cache, const struct key *wanted) {
  for (int i = 0; i < MOST_LEAST && i < cache->n_least; i++)
    if (cache->least[i].until && is_same(&cache->least[i].key, wanted))
      return &cache->least[i];
  return NULL;
}

/* Takes it over. */
static void keep_least(struct gd_graph_cache *cache, struct least *least) {
  struct least *at = &cache->least[cache->n_least % MOST_LEAST];
  if (!least->until)
    return;
  if (known_least(cache, &least->key)) {
    gd_mem_free(least->until);
    return;
  }
  gd_mem_free(at->until);
  *at = *least;
  cache->n_least++;
}

/* --- graphs ---------------------------------------------------------------------------------- */

/* Runs without the lock, since it takes long. The caller owns one reference of *shared. */
static enum gd_status build_and_share(const struct gd_setup *setup, const struct key *key,
                                      gd_graph_builder *build, struct gd_graph_shared **shared,
                                      struct least *least, struct gd_error *err) {
  struct gd_graph graph = {0};
  enum gd_status status = build(setup, &graph, err);
  if (status == GD_OK) {
    *least = find_least(&graph, key);
    return gd_graph_share(&graph, shared, err);
  }
  gd_graph_deinit(&graph);
  return status;
}

/* Builds what is missing and leaves a copy in *graph, where that is not NULL. */
static enum gd_status build_entry(const struct gd_setup *setup, const struct key *wanted,
                                  gd_graph_builder *build, struct gd_graph *graph,
                                  struct gd_error *err) {
  struct gd_graph_cache *cache = setup->cache;
  struct gd_graph_shared *shared = NULL;
  struct least least = {0};
  enum gd_status status = build_and_share(setup, wanted, build, &shared, &least, err);
  if (status == GD_OK && graph)
    status = gd_graph_clone(shared, graph, err);
  pthread_mutex_lock(&cache->mutex);
  keep_least(cache, &least);
  struct entry *entry = find(cache, wanted); /* entries move; those being built are never evicted */
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

/* With the lock: waits while another thread builds it. NULL: there is none. */
static struct entry *await_entry(struct gd_graph_cache *cache, const struct key *wanted) {
  struct entry *entry;
  while ((entry = find(cache, wanted)) && !entry->graph)
    pthread_cond_wait(&cache->built, &cache->mutex);
  return entry;
}

/* With the lock: an entry that this thread will build. False: there is no room. */
static bool add_entry(struct gd_graph_cache *cache, const struct key *wanted) {
  if (!make_room(cache))
    return false;
  cache->entries[cache->count++] = (struct entry){.key = *wanted, .used = ++cache->time};
  return true;
}

enum gd_status gd_graph_cache_get(const struct gd_setup *setup, uint32_t passes,
                                  gd_graph_builder *build, struct gd_graph *graph,
                                  struct gd_error *err) {
  struct gd_graph_cache *cache = setup->cache;
  struct key wanted = key_of(setup, passes);
  enum gd_status status = GD_OK;
  pthread_mutex_lock(&cache->mutex);
  struct entry *entry = await_entry(cache, &wanted);
  if (entry) {
    entry->used = ++cache->time;
    status = gd_graph_clone(entry->graph, graph, err);
  }
  bool added = !entry && add_entry(cache, &wanted);
  pthread_mutex_unlock(&cache->mutex);
  if (entry)
    return status;
  return added ? build_entry(setup, &wanted, build, graph, err) : build(setup, graph, err);
}

enum gd_status gd_graph_cache_least(const struct gd_setup *setup, uint32_t passes,
                                    gd_graph_builder *build, int64_t last_blocks,
                                    struct gd_graph_least *least, struct gd_error *err) {
  struct gd_graph_cache *cache = setup->cache;
  struct key wanted = key_of(setup, passes);
  *least = (struct gd_graph_least){0};
  pthread_mutex_lock(&cache->mutex);
  if (!known_least(cache, &wanted) && !await_entry(cache, &wanted) && add_entry(cache, &wanted)) {
    pthread_mutex_unlock(&cache->mutex);
    GD_TRY(build_entry(setup, &wanted, build, NULL, err));
    pthread_mutex_lock(&cache->mutex);
  }
  const struct least *known = known_least(cache, &wanted);
  if (known) {
    int64_t blocks = known->of.blocks, last = last_blocks < blocks ? last_blocks : blocks;
    const struct gd_graph_saved *before = &known->until[blocks - (last > 0 ? last : 0)];
    *least = known->of;
    least->last =
        (struct gd_graph_saved){.bytes = least->all.bytes - before->bytes,
                                .own_bytes = least->all.own_bytes - before->own_bytes,
                                .own_tensors = least->all.own_tensors - before->own_tensors};
    least->rest_bytes = known->rest_bytes[setup->method.sharding];
    if (least->rest_bytes < 0)
      least->rest_bytes = known->rest_bytes[GD_SHARDING_COUNT];
  }
  pthread_mutex_unlock(&cache->mutex);
  return GD_OK;
}

void gd_graph_cache_note(const struct gd_setup *setup, uint32_t passes, int64_t rest_bytes) {
  struct gd_graph_cache *cache = setup->cache;
  struct key wanted = key_of(setup, passes);
  pthread_mutex_lock(&cache->mutex);
  struct least *known = known_least(cache, &wanted);
  if (known)
    known->rest_bytes[setup->method.sharding] = known->rest_bytes[GD_SHARDING_COUNT] = rest_bytes;
  pthread_mutex_unlock(&cache->mutex);
}
