/*
 * Offsets for intervals: the memory layout half of the planner.
 *
 * Optimal packing is NP-hard; greedy placement (each interval in the tightest gap between those
 * already placed and alive with it) comes within a few per cent of the lower bound. Two orders are
 * tried. The order of first use is what an allocator would see at run time. A micro-step uses
 * memory much like a stack, so this order usually reaches the lower bound. Where it does not,
 * largest first is tried too (Pisarchyk and Lee, "Efficient memory management for deep neural net
 * inference", 2020).
 */
#include <stdlib.h>
#include <string.h>

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

/* --- by first use --------------------------------------------------------------------------- */

struct gap {
  int64_t start, end;
};

/* Free bytes at one time, in ascending order; the last gap has no end. */
struct gaps {
  struct gap *items;
  uint32_t count;
};

/* The smallest gap that holds so many bytes, the lowest of equal ones; else the last. */
static uint32_t find_gap(const struct gaps *gaps, int64_t bytes) {
  uint32_t best = gaps->count - 1;
  int64_t best_bytes = INT64_MAX;
  for (uint32_t i = 0; i + 1 < gaps->count; i++) {
    int64_t free_bytes = gaps->items[i].end - gaps->items[i].start;
    if (free_bytes >= bytes && free_bytes < best_bytes) {
      best_bytes = free_bytes;
      best = i;
    }
  }
  return best;
}

static void remove_gap(struct gaps *gaps, uint32_t at) {
  gaps->count--;
  memmove(gaps->items + at, gaps->items + at + 1, (gaps->count - at) * sizeof *gaps->items);
}

/* Bytes become free: a gap of their own, or a part of those next to them. */
static void free_bytes_again(struct gaps *gaps, int64_t start, int64_t end) {
  uint32_t low = 0, high = gaps->count - 1; /* the first gap behind them */
  while (low < high) {
    uint32_t middle = low + (high - low) / 2;
    if (gaps->items[middle].start < start)
      low = middle + 1;
    else
      high = middle;
  }
  bool joins_next = gaps->items[low].start == end;
  bool joins_last = low > 0 && gaps->items[low - 1].end == start;
  if (joins_next && joins_last) {
    gaps->items[low - 1].end = gaps->items[low].end;
    remove_gap(gaps, low);
  } else if (joins_next) {
    gaps->items[low].start = start;
  } else if (joins_last) {
    gaps->items[low - 1].end = end;
  } else {
    memmove(gaps->items + low + 1, gaps->items + low, (gaps->count - low) * sizeof *gaps->items);
    gaps->items[low] = (struct gap){start, end};
    gaps->count++;
  }
}

/*
 * In the order of first use, an interval overlaps exactly those placed before that are alive when
 * it begins. So one list of gaps that moves along with time is enough. Same result as place().
 */
static int64_t place_by_use(struct gd_interval *intervals, const struct key *keys, uint32_t count,
                            uint32_t n_times) {
  struct gaps gaps = {.items = gd_mem_alloc((size_t)count + 2, sizeof *gaps.items), .count = 1};
  uint32_t *dying = gd_mem_alloc((size_t)n_times + 1, sizeof *dying); /* by time: 1 + a number */
  uint32_t *next = gd_mem_alloc((size_t)count + 1, sizeof *next);     /* by interval: likewise */
  uint32_t time = 0;
  int64_t peak = -1;
  if (gaps.items && dying && next) {
    peak = 0;
    gaps.items[0] = (struct gap){0, INT64_MAX};
  }
  for (uint32_t k = 0; peak >= 0 && k < count; k++) {
    uint32_t number = keys[k].index;
    struct gd_interval *now = &intervals[number];
    now->offset_bytes = 0;
    if (now->bytes == 0)
      continue;
    for (; time < now->first; time++)
      for (uint32_t i = dying[time]; i; i = next[i - 1])
        free_bytes_again(&gaps, intervals[i - 1].offset_bytes,
                         intervals[i - 1].offset_bytes + intervals[i - 1].bytes);
    uint32_t at = find_gap(&gaps, now->bytes);
    now->offset_bytes = gaps.items[at].start;
    gaps.items[at].start += now->bytes;
    if (gaps.items[at].start == gaps.items[at].end)
      remove_gap(&gaps, at);
    next[number] = dying[now->last];
    dying[now->last] = number + 1;
    peak = now->offset_bytes + now->bytes > peak ? now->offset_bytes + now->bytes : peak;
  }
  gd_mem_free(gaps.items);
  gd_mem_free(dying);
  gd_mem_free(next);
  return peak;
}

/* --- in any order --------------------------------------------------------------------------- */

/*
 * Two intervals overlap if one is alive when the other begins, so only times at which something
 * begins count. begun[t] is the number of such times up to t. NULL when memory is out.
 */
static uint32_t *count_beginnings(const struct gd_interval *intervals, uint32_t count,
                                  uint32_t n_times) {
  uint32_t *begun = gd_mem_alloc((size_t)n_times + 1, sizeof *begun);
  for (uint32_t i = 0; begun && i < count; i++)
    if (intervals[i].bytes > 0)
      begun[intervals[i].first] = 1;
  for (uint32_t time = 1; begun && time < n_times; time++)
    begun[time] += begun[time - 1];
  return begun;
}

/* Places intervals in the order of `keys`, each into the smallest gap that holds it. Stops where
   the peak reaches `limit`: the offsets are then not wanted. Returns the peak, -1 when memory is
   out. */
static int64_t place(struct gd_interval *intervals, const struct key *keys, uint32_t count,
                     uint32_t n_times, int64_t limit) {
  struct gd_occupancy occupancy = {0};
  uint32_t *begun = count_beginnings(intervals, count, n_times);
  int64_t peak = 0;
  bool ok = begun && gd_occupancy_init(&occupancy, n_times ? begun[n_times - 1] : 0);
  for (uint32_t k = 0; ok && k < count && peak < limit; k++) {
    struct gd_interval *now = &intervals[keys[k].index];
    now->offset_bytes = 0;
    if (now->bytes == 0)
      continue;
    uint32_t first = begun[now->first] - 1, last = begun[now->last] - 1;
    int64_t at = gd_occupancy_find(&occupancy, first, last, now->bytes);
    ok = gd_occupancy_take(&occupancy, first, last, at, at + now->bytes);
    now->offset_bytes = at;
    peak = at + now->bytes > peak ? at + now->bytes : peak;
  }
  gd_occupancy_deinit(&occupancy);
  gd_mem_free(begun);
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
  peak = place_by_use(intervals, keys, count, n_times);
  if (peak <= live_bytes) /* or memory is out */
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
