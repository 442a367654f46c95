/*
 * Offsets for intervals: the memory layout half of the planner.
 *
 * Optimal packing is NP-hard; greedy placement (each interval at the lowest offset where it fits
 * between those already placed and alive with it) comes within a few per cent of the lower bound
 * when large intervals go first (Pisarchyk and Lee, "Efficient memory management for deep neural
 * net inference", 2020). Two orders are tried, by size and by first use, and the smaller peak wins:
 * a training pass is close to a stack, where first-use order is often exact.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* qsort has no context argument in C17, so the keys travel in the sorted records. */
struct key {
  int64_t major, minor; /* ascending */
  uint32_t index;
};

static int compare_keys(const void *left, const void *right) {
  const struct key *a = left, *b = right;
  if (a->major != b->major)
    return a->major < b->major ? -1 : 1;
  if (a->minor != b->minor)
    return a->minor < b->minor ? -1 : 1;
  return a->index < b->index ? -1 : a->index > b->index;
}

/* Places intervals in the order of `keys`; `placed` lists placed ones by ascending offset. */
static int64_t place(struct gd_interval *intervals, const struct key *keys, uint32_t count,
                     uint32_t *placed) {
  int64_t peak = 0;
  uint32_t n_placed = 0;
  for (uint32_t k = 0; k < count; k++) {
    struct gd_interval *now = &intervals[keys[k].index];
    int64_t lowest_free = 0, best_at = -1, best_gap = INT64_MAX;
    if (now->bytes > 0)
      for (uint32_t p = 0; p < n_placed; p++) {
        const struct gd_interval *other = &intervals[placed[p]];
        if (other->last < now->first || now->last < other->first)
          continue;
        int64_t gap = other->offset_bytes - lowest_free;
        if (gap >= now->bytes && gap < best_gap) {
          best_gap = gap;
          best_at = lowest_free;
        }
        if (other->offset_bytes + other->bytes > lowest_free)
          lowest_free = other->offset_bytes + other->bytes;
      }
    now->offset_bytes = now->bytes == 0 ? 0 : best_at >= 0 ? best_at : lowest_free;
    if (now->offset_bytes + now->bytes > peak)
      peak = now->offset_bytes + now->bytes;
    if (now->bytes == 0)
      continue;
    uint32_t at = n_placed++;
    for (; at > 0 && intervals[placed[at - 1]].offset_bytes > now->offset_bytes; at--)
      placed[at] = placed[at - 1];
    placed[at] = keys[k].index;
  }
  return peak;
}

int64_t gd_pack_intervals(struct gd_interval *intervals, uint32_t count, uint32_t *order,
                          int64_t *scratch_offsets) {
  struct key *keys = gd_mem_alloc(count, sizeof *keys);
  if (!keys)
    return -1;
  for (uint32_t i = 0; i < count; i++)
    keys[i] = (struct key){-intervals[i].bytes, intervals[i].first, i};
  qsort(keys, count, sizeof *keys, compare_keys);
  int64_t by_size = place(intervals, keys, count, order);
  for (uint32_t i = 0; i < count; i++)
    scratch_offsets[i] = intervals[i].offset_bytes;

  for (uint32_t i = 0; i < count; i++)
    keys[i] = (struct key){intervals[i].first, -(int64_t)intervals[i].last, i};
  qsort(keys, count, sizeof *keys, compare_keys);
  int64_t by_use = place(intervals, keys, count, order);
  gd_mem_free(keys);
  if (by_use <= by_size)
    return by_use;
  for (uint32_t i = 0; i < count; i++)
    intervals[i].offset_bytes = scratch_offsets[i];
  return by_size;
}
