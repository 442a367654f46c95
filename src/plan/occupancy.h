/*
 * Which bytes are taken at which times: what packing asks for gaps.
 *
 * A segment tree over time. Each node has the bytes that are taken throughout its time, and those
 * that are taken at any moment of it, as disjoint ranges in ascending order. Ranges that touch are
 * one, and a tight packing has few holes, so the lists are short: adding an interval and asking for
 * the gaps next to it take logarithmic time in practice, where a walk over all intervals that are
 * alive together takes quadratic time over a whole graph.
 */
#ifndef GD_PLAN_OCCUPANCY_H
#define GD_PLAN_OCCUPANCY_H

#include "base/mem.h"

struct gd_occupancy_node;
struct gd_occupancy {
  struct gd_occupancy_node *nodes; /* 1 is the root, 2 n and 2 n + 1 are the halves of n */
  uint32_t n_times;                /* a power of two */
  struct gd_arena arena;           /* of the ranges */
};

/* For times 0 .. n_times - 1. False when memory is out; deinit is then still needed. */
bool gd_occupancy_init(struct gd_occupancy *occupancy, uint32_t n_times);
void gd_occupancy_deinit(struct gd_occupancy *occupancy); /* safe on a zeroed one */

/* Bytes start .. end are taken from time `first` to `last`, both included. False: out of memory. */
bool gd_occupancy_take(struct gd_occupancy *occupancy, uint32_t first, uint32_t last, int64_t start,
                       int64_t end);

/* Where `bytes` are free from `first` to `last`: at the start of the smallest gap between taken
   bytes that holds them, the lowest of equal ones; else behind all that is taken. */
int64_t gd_occupancy_find(const struct gd_occupancy *occupancy, uint32_t first, uint32_t last,
                          int64_t bytes);

#endif
