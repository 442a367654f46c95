/*
 * The segment tree of occupancy.h.
 *
 * An interval is stored in `whole` of the O(log n) nodes whose time it covers and whose parent's it
 * does not, and in `any` of these nodes and all their ancestors. What is taken at some moment of a
 * query is then `any` of the nodes that the query covers, and `whole` of their ancestors.
 */
#include "plan/occupancy.h"

#include <string.h>

#include "base/status.h"

struct range {
  int64_t start, end;
};

struct ranges {
  struct range *items;
  uint32_t count, capacity;
};

struct gd_occupancy_node {
  struct ranges whole, any;
};

/* A query of a tree with 2^32 leaves visits at most two nodes on each level that are partly inside,
   and two more that are wholly inside. */
enum { MOST_LISTS = 4 * 33, FIRST_CAPACITY = 2 };

/* The lists that answer a query, and how far each has been read. */
struct query {
  const struct range *at[MOST_LISTS], *end[MOST_LISTS];
  uint32_t count;
};

bool gd_occupancy_init(struct gd_occupancy *occupancy, uint32_t n_times) {
  uint32_t leaves = 1;
  while (leaves < n_times)
    leaves *= 2;
  *occupancy = (struct gd_occupancy){
      .nodes = gd_mem_alloc((size_t)leaves * 2, sizeof *occupancy->nodes), .n_times = leaves};
  return occupancy->nodes != NULL;
}

void gd_occupancy_deinit(struct gd_occupancy *occupancy) {
  gd_arena_deinit(&occupancy->arena);
  gd_mem_free(occupancy->nodes);
  *occupancy = (struct gd_occupancy){0};
}

/* --- taking -------------------------------------------------------------------------------- */

/* The first range that ends at `start` or behind it. */
static uint32_t first_behind(const struct range *items, uint32_t count, int64_t start) {
  uint32_t low = 0, high = count;
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (items[middle].end < start)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Room for one more. Lists that are outgrown stay in the arena: all together they are as long as
   those that replace them. */
static bool grow(struct gd_arena *arena, struct ranges *list) {
  if (list->count < list->capacity)
    return true;
  uint32_t capacity = list->capacity ? 2 * list->capacity : FIRST_CAPACITY;
  struct range *items = gd_arena_alloc(arena, capacity, sizeof *items);
  if (!items)
    return false;
  if (list->count > 0)
    memcpy(items, list->items, list->count * sizeof *items);
  list->items = items;
  list->capacity = capacity;
  return true;
}

/* Adds a range, which becomes one with all that it touches. */
static bool add_range(struct gd_arena *arena, struct ranges *list, int64_t start, int64_t end) {
  uint32_t from = first_behind(list->items, list->count, start), to = from;
  if (from < list->count && list->items[from].start <= start && end <= list->items[from].end)
    return true;
  while (to < list->count && list->items[to].start <= end)
    to++;
  if (to == from && !grow(arena, list))
    return false;
  if (to > from) {
    start = list->items[from].start < start ? list->items[from].start : start;
    end = list->items[to - 1].end > end ? list->items[to - 1].end : end;
  }
  if (to != from + 1)
    memmove(list->items + from + 1, list->items + to, (list->count - to) * sizeof *list->items);
  list->count = list->count + 1 - (to - from);
  list->items[from] = (struct range){start, end};
  return true;
}

/* Of the node whose time is `begin` .. `begin` + `length` - 1. */
static bool take(struct gd_occupancy *occupancy, uint32_t node, uint32_t begin, uint32_t length,
                 uint32_t first, uint32_t last, struct range range) {
  struct gd_occupancy_node *at = &occupancy->nodes[node];
  uint32_t middle = begin + length / 2;
  if (!add_range(&occupancy->arena, &at->any, range.start, range.end))
    return false;
  if (first <= begin && begin + (length - 1) <= last)
    return add_range(&occupancy->arena, &at->whole, range.start, range.end);
  if (first < middle && !take(occupancy, 2 * node, begin, length / 2, first, last, range))
    return false;
  return last < middle || take(occupancy, 2 * node + 1, middle, length / 2, first, last, range);
}

bool gd_occupancy_take(struct gd_occupancy *occupancy, uint32_t first, uint32_t last, int64_t start,
                       int64_t end) {
  GD_ASSERT(first <= last && last < occupancy->n_times && start <= end);
  return take(occupancy, 1, 0, occupancy->n_times, first, last, (struct range){start, end});
}

/* --- finding ------------------------------------------------------------------------------- */

static void add_list(struct query *query, const struct ranges *list) {
  if (list->count == 0)
    return;
  GD_ASSERT(query->count < MOST_LISTS);
  query->at[query->count] = list->items;
  query->end[query->count++] = list->items + list->count;
}

static void collect(const struct gd_occupancy_node *nodes, uint32_t node, uint32_t begin,
                    uint32_t length, uint32_t first, uint32_t last, struct query *query) {
  uint32_t middle = begin + length / 2;
  if (nodes[node].any.count == 0)
    return;
  if (first <= begin && begin + (length - 1) <= last) {
    add_list(query, &nodes[node].any);
    return;
  }
  add_list(query, &nodes[node].whole);
  if (first < middle)
    collect(nodes, 2 * node, begin, length / 2, first, last, query);
  if (last >= middle)
    collect(nodes, 2 * node + 1, middle, length / 2, first, last, query);
}

/* The first byte from `from` on that no list has; lists are read up to there. *next is the first
   one behind it that some list has, INT64_MAX if none has. */
static int64_t next_free(struct query *query, int64_t from, int64_t *next) {
  int64_t reached;
  do {
    reached = from;
    *next = INT64_MAX;
    for (uint32_t i = 0; i < query->count;) {
      const struct range *at = query->at[i], *end = query->end[i];
      while (at < end && at->start <= from) {
        from = at->end > from ? at->end : from;
        at++;
      }
      if (at < end && at->start < *next)
        *next = at->start;
      query->at[i] = at;
      if (at < end) {
        i++;
        continue;
      }
      query->count--; /* read to its end */
      query->at[i] = query->at[query->count];
      query->end[i] = query->end[query->count];
    }
  } while (from > reached && *next <= from);
  return from;
}

int64_t gd_occupancy_find(const struct gd_occupancy *occupancy, uint32_t first, uint32_t last,
                          int64_t bytes) {
  struct query query = {.count = 0};
  int64_t best_at = -1, best_gap = INT64_MAX, next = 0, at;
  collect(occupancy->nodes, 1, 0, occupancy->n_times, first, last, &query);
  for (at = 0; (at = next_free(&query, at, &next)), next != INT64_MAX; at = next)
    if (next - at >= bytes && next - at < best_gap) {
      best_gap = next - at;
      best_at = at;
    }
  return best_at >= 0 ? best_at : at;
}
