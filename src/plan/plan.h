/*
 * The plan: exact bytes in every memory, before anything runs.
 *
 * Leaves (parameters, gradients, optimizer state, inputs) get fixed places at the start of the
 * device arena; what ops produce shares the rest by lifetime. The micro-step and the update program
 * never run at the same time, so they share it too. The planner needs no device: it reads a graph
 * and a struct gd_caps.
 *
 *   struct gd_plan plan = {0};
 *   GD_TRY(gd_plan_make(&graph, &caps, &plan, err));
 *   printf("%lld bytes\n", (long long)plan.device_bytes);
 *   gd_plan_deinit(&plan);
 */
#ifndef GD_PLAN_PLAN_H
#define GD_PLAN_PLAN_H

#include "ir/caps.h"
#include "ir/graph.h"

/* Device categories first; they sum to device_bytes exactly. */
enum gd_category {
  GD_CATEGORY_PARAMETERS,  /* fp32 masters and 16-bit copies */
  GD_CATEGORY_GRADIENTS,   /* fp32 accumulators */
  GD_CATEGORY_OPTIMIZER,   /* moments */
  GD_CATEGORY_ACTIVATIONS, /* what ops produce, packed by lifetime */
  GD_CATEGORY_WORKSPACE,   /* scratch of kernels */
  GD_CATEGORY_INPUTS,      /* batch, tables, scalars */
  GD_CATEGORY_DEVICE_COUNT,
  GD_CATEGORY_HOST =
      GD_CATEGORY_DEVICE_COUNT, /* all of host memory: staged batch, offloaded state */
  GD_CATEGORY_COUNT
};
const char *gd_category_name(enum gd_category category); /* as in --json */

struct gd_plan {
  struct gd_arena arena;
  const struct gd_graph *graph; /* borrowed */
  int64_t *offset_bytes;        /* by tensor: place in the arena of its space; -1: never used */
  gd_op_id *order[GD_PROGRAM_COUNT];  /* what each program runs, in order; views left out */
  uint32_t n_order[GD_PROGRAM_COUNT]; /* lengths of the above */
  /* By place in order: 1 + place of the last asynchronous op (gd_op_is_async) whose output this op
     reads, 0: none. That op waits for it; an asynchronous op waits for all ops before it. */
  uint32_t *waits[GD_PROGRAM_COUNT];
  bool has_last;        /* the last micro-step differs from the others: it reduces gradients */
  int64_t workspace_at; /* offset of the kernels' scratch */
  int64_t workspace_bytes;
  int64_t comm_at, comm_bytes; /* scratch of the collectives, which run while kernels do */
  int64_t staging_at;          /* in the host arena: where the batch is prepared */
  int64_t bytes[GD_CATEGORY_COUNT];
  int64_t host_parts[GD_CATEGORY_DEVICE_COUNT]; /* what bytes[GD_CATEGORY_HOST] consists of */
  int64_t device_bytes; /* the device arena: what a run allocates and touches */
  int64_t host_bytes;   /* the host arena */
  int64_t live_bytes;   /* most activation bytes alive at once: no packing can beat it */
  gd_op_id live_at;     /* the op where that happens */
  int64_t
      gathered_bytes; /* of live_bytes: weights that were gathered from the shards of all ranks */
  uint32_t n_buffers; /* distinct pieces of activation memory */
  uint32_t n_inplace; /* outputs that took the place of a dying input */
};

enum gd_status gd_plan_make(const struct gd_graph *graph, const struct gd_caps *caps,
                            struct gd_plan *plan, struct gd_error *err) GD_MUST_USE;
void gd_plan_deinit(struct gd_plan *plan); /* safe on a zeroed plan */

/* Which limit the plan misses, as GD_NOMEM_DEVICE or GD_NOMEM_HOST with the byte breakdown. */
enum gd_status gd_plan_fits(const struct gd_plan *plan, int64_t device_limit, int64_t host_limit,
                            struct gd_error *err) GD_MUST_USE;

/* Graph, order, and the place of every buffer as stable text. */
void gd_plan_print(const struct gd_plan *plan, struct gd_strbuf *out);

/* --- packing, apart from graphs so that tests can throw random intervals at it --------------- */

struct gd_interval {
  int64_t bytes;        /* aligned by the caller */
  uint32_t first, last; /* alive from op `first` to op `last`, both included */
  int64_t offset_bytes; /* result */
};
/*
 * Gives each interval an offset such that those alive together never overlap. Returns the peak, or
 * -1 when memory is out. live_bytes, the most bytes alive at once, is where it stops looking for
 * something better.
 */
int64_t gd_pack_intervals(struct gd_interval *intervals, uint32_t count, int64_t live_bytes);

#endif
