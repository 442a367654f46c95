/*
 * The collectives of comm.h. All but the broadcast are direct exchanges between every two ranks, in
 * chunks through a few windows, so that chunks travel while one is added up, and a rank that wakes
 * from its sleep finds several. A ring would move the same bytes, but add in another order on every
 * slice.
 */
#include <string.h>

#include "base/mem.h"
#include "base/sizes.h"
#include "comm/comm.h"
#include "comm/comm_int.h"

enum {
  SUM_CHUNK_BYTES = 256 * 1024,   /* stays in the second-level cache until it is added */
  MOVE_CHUNK_BYTES = 1024 * 1024, /* long enough to be at full speed */
  BLOCK = 1024,                   /* elements added at a time, in the first-level cache */
};

/* Four lanes: what every machine of this century has, and more than its memory can feed. */
typedef float lanes __attribute__((vector_size(16), aligned(4), may_alias));

static void add(float *out, const float *a, const float *b, int64_t count) {
  int64_t i = 0;
  for (; i + 4 <= count; i += 4)
    *(lanes *)(out + i) = *(const lanes *)(a + i) + *(const lanes *)(b + i);
  for (; i < count; i++)
    out[i] = a[i] + b[i];
}

/* The s-th rank after this one, and the s-th before it: every pair meets once in 1 <= s < size. */
static int after(const struct gd_comm *comm, int s) {
  return (comm->rank + s) % comm->size;
}

static int before(const struct gd_comm *comm, int s) {
  return (comm->rank - s + comm->size) % comm->size;
}

/* --- reduce-scatter ------------------------------------------------------------------------ */

struct reduction {
  struct gd_comm *comm;
  float *data;
  int64_t shard, chunk; /* elements */
  float *scratch;       /* for each window, for each s, a chunk from before(s) */
};

static float *received(const struct reduction *r, int64_t index, int s) {
  return r->scratch + ((index % GD_COMM_WINDOWS) * (r->comm->size - 1) + (s - 1)) * r->chunk;
}

static enum gd_status post_chunk(const struct reduction *r, int64_t index, struct gd_error *err) {
  struct gd_comm *comm = r->comm;
  struct gd_window *window = &comm->windows[index % GD_COMM_WINDOWS];
  int64_t from = index * r->chunk, bytes = 4 * gd_least(r->chunk, r->shard - from);
  for (int s = 1; s < comm->size; s++)
    GD_TRY(gd_window_receive(comm, window, received(r, index, s), bytes, before(comm, s), err));
  for (int s = 1; s < comm->size; s++)
    GD_TRY(gd_window_send(comm, window, r->data + after(comm, s) * r->shard + from, bytes,
                          after(comm, s), err));
  return GD_OK;
}

/* The own slice becomes ((rank 0 + rank 1) + rank 2) + ..., itself at its place in the order. */
static void add_chunk(const struct reduction *r, int64_t index) {
  const struct gd_comm *comm = r->comm;
  float sum[BLOCK];
  float *own = r->data + comm->rank * r->shard + index * r->chunk;
  int64_t count = gd_least(r->chunk, r->shard - index * r->chunk);
  for (int64_t at = 0; at < count; at += BLOCK) {
    int64_t n = gd_least(BLOCK, count - at);
    const float *left = NULL;
    for (int rank = 0; rank < comm->size; rank++) {
      int s = (comm->rank - rank + comm->size) % comm->size;
      const float *right = (s == 0 ? own : received(r, index, s)) + at;
      float *out = rank + 1 == comm->size ? own + at : sum;
      if (left)
        add(out, left, right, n);
      left = left ? out : right;
    }
  }
}

/* The sum is written through r.data. NOLINTNEXTLINE(readability-non-const-parameter) */
enum gd_status gd_comm_reduce_scatter(struct gd_comm *comm, float *data, int64_t shard_elements,
                                      void *scratch, int64_t scratch_bytes, struct gd_error *err) {
  struct reduction r = {.comm = comm, .data = data, .shard = shard_elements, .scratch = scratch};
  GD_ASSERT(shard_elements >= 0 && scratch_bytes >= GD_COMM_MIN_SCRATCH_BYTES);
  if (comm->size == 1 || shard_elements == 0)
    return GD_OK;
  r.chunk = gd_least(scratch_bytes / (GD_COMM_WINDOWS * (comm->size - 1)), SUM_CHUNK_BYTES) / 4;
  if (r.chunk >= 16)
    r.chunk -= r.chunk % 16; /* whole cache lines */
  if (r.chunk == 0)
    return gd_fail(err, GD_ENVIRONMENT, "%d ranks are more than a scratch of %lld bytes can serve",
                   comm->size, (long long)scratch_bytes);
  gd_comm_begin(comm, GD_COLLECTIVE_REDUCE_SCATTER);
  int64_t chunks = (shard_elements + r.chunk - 1) / r.chunk, posted = 0;
  for (int64_t i = 0; i < chunks; i++) {
    while (posted < gd_least(chunks, i + GD_COMM_WINDOWS))
      GD_TRY(post_chunk(&r, posted++, err));
    GD_TRY(gd_window_wait(comm, &comm->windows[i % GD_COMM_WINDOWS], err));
    add_chunk(&r, i);
  }
  return GD_OK;
}

/* --- all-gather ---------------------------------------------------------------------------- */

static enum gd_status post_slices(struct gd_comm *comm, char *data, int64_t shard_bytes,
                                  int64_t index, struct gd_error *err) {
  struct gd_window *window = &comm->windows[index % GD_COMM_WINDOWS];
  int64_t from = index * MOVE_CHUNK_BYTES, bytes = gd_least(MOVE_CHUNK_BYTES, shard_bytes - from);
  for (int s = 1; s < comm->size; s++)
    GD_TRY(gd_window_receive(comm, window, data + before(comm, s) * shard_bytes + from, bytes,
                             before(comm, s), err));
  for (int s = 1; s < comm->size; s++)
    GD_TRY(gd_window_send(comm, window, data + comm->rank * shard_bytes + from, bytes,
                          after(comm, s), err));
  return GD_OK;
}

static enum gd_status gather(struct gd_comm *comm, void *data, int64_t shard_bytes,
                             enum gd_collective kind, struct gd_error *err) {
  int64_t chunks = (shard_bytes + MOVE_CHUNK_BYTES - 1) / MOVE_CHUNK_BYTES, posted = 0;
  if (comm->size == 1 || shard_bytes == 0)
    return GD_OK;
  gd_comm_begin(comm, kind);
  for (int64_t i = 0; i < chunks; i++) {
    while (posted < gd_least(chunks, i + GD_COMM_WINDOWS))
      GD_TRY(post_slices(comm, data, shard_bytes, posted++, err));
    GD_TRY(gd_window_wait(comm, &comm->windows[i % GD_COMM_WINDOWS], err));
  }
  return GD_OK;
}

enum gd_status gd_comm_all_gather(struct gd_comm *comm, void *data, int64_t shard_bytes,
                                  struct gd_error *err) {
  GD_ASSERT(shard_bytes >= 0);
  return gather(comm, data, shard_bytes, GD_COLLECTIVE_ALL_GATHER, err);
}

enum gd_status gd_comm_all_reduce(struct gd_comm *comm, float *data, int64_t shard_elements,
                                  void *scratch, int64_t scratch_bytes, struct gd_error *err) {
  GD_TRY(gd_comm_reduce_scatter(comm, data, shard_elements, scratch, scratch_bytes, err));
  return gd_comm_all_gather(comm, data, 4 * shard_elements, err);
}

/* --- the small ones ------------------------------------------------------------------------ */

/* Down a binomial tree: the rank at distance d from the root gets it from d without its lowest bit,
 * and hands it on to d plus each lower power of two. */
enum gd_status gd_comm_broadcast(struct gd_comm *comm, void *data, int64_t bytes, int root,
                                 struct gd_error *err) {
  struct gd_window *window = &comm->windows[0];
  int distance = (comm->rank - root + comm->size) % comm->size, low = 1;
  GD_ASSERT(bytes >= 0 && root >= 0 && root < comm->size);
  if (comm->size > 1 && bytes > 0)
    gd_comm_begin(comm, GD_COLLECTIVE_BROADCAST);
  while (low < comm->size && !(distance & low))
    low *= 2;
  for (int64_t from = 0; from < bytes && comm->size > 1; from += MOVE_CHUNK_BYTES) {
    char *chunk = (char *)data + from;
    int64_t length = gd_least(MOVE_CHUNK_BYTES, bytes - from);
    if (distance != 0) {
      int parent = (distance - low + root) % comm->size;
      GD_TRY(gd_window_receive(comm, window, chunk, length, parent, err));
      GD_TRY(gd_window_wait(comm, window, err));
    }
    for (int step = low / 2; step > 0; step /= 2)
      if (distance + step < comm->size)
        GD_TRY(gd_window_send(comm, window, chunk, length, (distance + step + root) % comm->size,
                              err));
    GD_TRY(gd_window_wait(comm, window, err));
  }
  return GD_OK;
}

/* In round k each rank hears from the one 2^k before it; after log2(size) rounds from all. */
enum gd_status gd_comm_barrier(struct gd_comm *comm, struct gd_error *err) {
  struct gd_window *window = &comm->windows[0];
  char in, out = 0;
  if (comm->size > 1)
    gd_comm_begin(comm, GD_COLLECTIVE_BARRIER);
  for (int s = 1; s < comm->size; s *= 2) {
    GD_TRY(gd_window_receive(comm, window, &in, 1, before(comm, s), err));
    GD_TRY(gd_window_send(comm, window, &out, 1, after(comm, s), err));
    GD_TRY(gd_window_wait(comm, window, err));
  }
  return GD_OK;
}

enum gd_status gd_comm_sum_doubles(struct gd_comm *comm, double *values, int count,
                                   struct gd_error *err) {
  double *all = comm->scalars;
  GD_ASSERT(count >= 0);
  for (int at = 0; at < count && comm->size > 1; at += GD_COMM_SCALARS) {
    int n = (int)gd_least(GD_COMM_SCALARS, count - at);
    memcpy(all + (ptrdiff_t)comm->rank * n, values + at, (size_t)n * sizeof *all);
    GD_TRY(gather(comm, all, n * (int64_t)sizeof *all, GD_COLLECTIVE_SUM, err));
    for (int i = 0; i < n; i++) {
      double sum = all[i];
      for (int rank = 1; rank < comm->size; rank++)
        sum += all[rank * n + i];
      values[at + i] = sum;
    }
  }
  return GD_OK;
}

/* --- agreement ----------------------------------------------------------------------------- */

struct verdict {
  int32_t status;
  char text[sizeof((struct gd_error *)NULL)->text];
};

enum gd_status gd_comm_agree(struct gd_comm *comm, enum gd_status status, struct gd_error *err) {
  int first = 0;
  if (comm->size == 1 || comm->failed)
    return status;
  struct verdict *all = gd_mem_alloc((size_t)comm->size, sizeof *all);
  if (!all)
    return gd_nomem(err, "while ranks agree");
  struct verdict *own = &all[comm->rank];
  own->status = (int32_t)status;
  if (status != GD_OK && err)
    memcpy(own->text, err->text, sizeof own->text);
  enum gd_status told = gather(comm, all, sizeof *all, GD_COLLECTIVE_ALL_GATHER, err);
  while (told == GD_OK && first < comm->size && all[first].status == GD_OK)
    first++;
  if (told != GD_OK && status == GD_OK)
    status = told;
  else if (told == GD_OK && first < comm->size && status == GD_OK)
    status = gd_fail(err, (enum gd_status)all[first].status, "rank %d: %s", first, all[first].text);
  gd_mem_free(all);
  return status;
}
