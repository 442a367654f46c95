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

#include "plan/occupancy.h"
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

/* Places intervals in the order of `keys`, each into the smallest gap that holds it. Stops where
   the peak reaches `limit`: the offsets are then not wanted. Returns the peak, -1 when memory is
   out. */
static int64_t place(struct gd_interval *intervals, const struct key *keys, uint32_t count,
                     uint32_t n_times, int64_t limit) {
  struct gd_occupancy occupancy;
  int64_t peak = 0;
  bool ok = gd_occupancy_init(&occupancy, n_times);
  for (uint32_t k = 0; ok && k < count && peak < limit; k++) {
    struct gd_interval *now = &intervals[keys[k].index];
    now->offset_bytes = 0;
    if (now->bytes == 0)
      continue;
    int64_t at = gd_occupancy_find(&occupancy, now->first, now->last, now->bytes);
    ok = gd_occupancy_take(&occupancy, now->first, now->last, at, at + now->bytes);
    now->offset_bytes = at;
    peak = at + now->bytes > peak ? at + now->bytes : peak;
  }
  gd_occupancy_deinit(&occupancy);
  return ok ? peak : -1;
}

int64_t gd_pack_intervals(struct gd_interval *intervals, uint32_t count, int64_t live_bytes) {
  struct key *keys = gd_mem_alloc(count, sizeof *keys);
  int64_t *by_use_offsets = gd_mem_alloc(count, sizeof *by_use_offsets);
  int64_t peak = -1;
  uint32_t n_times = 0;
  if (!keys || !by_use_offsets)
    goto done;
  for (uint32_t i = 0; i < count; i++) {
    keys[i] = (struct key){intervals[i].first, -(int64_t)intervals[i].last, i};
    n_times = intervals[i].last >= n_times ? intervals[i].last + 1 : n_times;
  }
  qsort(keys, count, sizeof *keys, compare_keys);
  peak = place(intervals, keys, count, n_times, INT64_MAX);
  if (peak <= live_bytes)
    goto done;
  for (uint32_t i = 0; i < count; i++) {
    by_use_offsets[i] = intervals[i].offset_bytes;
    keys[i] = (struct key){-intervals[i].bytes, intervals[i].first, i};
  }
  qsort(keys, count, sizeof *keys, compare_keys);
  int64_t by_size_peak = place(intervals, keys, count, n_times, peak);
  if (by_size_peak < peak)
    peak = by_size_peak;
  else
    for (uint32_t i = 0; i < count; i++)
      intervals[i].offset_bytes = by_use_offsets[i];
done:
  gd_mem_free(keys);
  gd_mem_free(by_use_offsets);
  return peak;
}
