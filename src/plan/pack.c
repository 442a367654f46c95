/*
 * Offsets for intervals: the memory layout half of the planner.
 *
 * Optimal packing is NP-hard; greedy placement (each interval in the tightest gap between those
 * already placed and alive with it) comes within a few per cent of the lower bound. Two orders are
 * tried. By first use is what an allocator would do at run time; a training pass is close to a
 * stack, where it is usually exact. If it is not, large intervals first is tried as well (Pisarchyk
 * and Lee, "Efficient memory management for deep neural net inference", 2020).
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

/*
 * Places intervals in the order of `keys`. `placed` lists those placed by ascending offset; with
 * keys by first use, those that died before the current one can never matter again and leave it.
 */
static int64_t place(struct gd_interval *intervals, const struct key *keys, uint32_t count,
                     uint32_t *placed, bool by_use) {
  int64_t peak = 0;
  uint32_t n_placed = 0;
  for (uint32_t k = 0; k < count; k++) {
    struct gd_interval *now = &intervals[keys[k].index];
    int64_t lowest_free = 0, best_at = -1, best_gap = INT64_MAX;
    uint32_t kept = 0;
    now->offset_bytes = 0;
    if (now->bytes == 0)
      continue;
    for (uint32_t p = 0; p < n_placed; p++) {
      const struct gd_interval *other = &intervals[placed[p]];
      bool dead = other->last < now->first;
      if (!(by_use && dead))
        placed[kept++] = placed[p];
      if (dead || now->last < other->first)
        continue;
      int64_t gap = other->offset_bytes - lowest_free;
      if (gap >= now->bytes && gap < best_gap) {
        best_gap = gap;
        best_at = lowest_free;
      }
      if (other->offset_bytes + other->bytes > lowest_free)
        lowest_free = other->offset_bytes + other->bytes;
    }
    now->offset_bytes = best_at >= 0 ? best_at : lowest_free;
    if (now->offset_bytes + now->bytes > peak)
      peak = now->offset_bytes + now->bytes;
    uint32_t at = kept;
    for (; at > 0 && intervals[placed[at - 1]].offset_bytes > now->offset_bytes; at--)
      placed[at] = placed[at - 1];
    placed[at] = keys[k].index;
    n_placed = kept + 1;
  }
  return peak;
}

int64_t gd_pack_intervals(struct gd_interval *intervals, uint32_t count, int64_t live_bytes) {
  struct key *keys = gd_mem_alloc(count, sizeof *keys);
  uint32_t *placed = gd_mem_alloc(count, sizeof *placed);
  int64_t *by_use_offsets = gd_mem_alloc(count, sizeof *by_use_offsets);
  int64_t peak = -1;
  if (!keys || !placed || !by_use_offsets)
    goto done;
  for (uint32_t i = 0; i < count; i++)
    keys[i] = (struct key){intervals[i].first, -(int64_t)intervals[i].last, i};
  qsort(keys, count, sizeof *keys, compare_keys);
  peak = place(intervals, keys, count, placed, true);
  if (peak <= live_bytes)
    goto done;
  for (uint32_t i = 0; i < count; i++) {
    by_use_offsets[i] = intervals[i].offset_bytes;
    keys[i] = (struct key){-intervals[i].bytes, intervals[i].first, i};
  }
  qsort(keys, count, sizeof *keys, compare_keys);
  int64_t by_size_peak = place(intervals, keys, count, placed, false);
  if (by_size_peak < peak)
    peak = by_size_peak;
  else
    for (uint32_t i = 0; i < count; i++)
      intervals[i].offset_bytes = by_use_offsets[i];
done:
  gd_mem_free(keys);
  gd_mem_free(placed);
  gd_mem_free(by_use_offsets);
  return peak;
}
