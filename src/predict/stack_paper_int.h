/*
 * What memory and time of the paper's stack share; see stack_paper.h.
 */
#ifndef GD_PREDICT_STACK_PAPER_INT_H
#define GD_PREDICT_STACK_PAPER_INT_H

#include "predict/stack_paper.h"

/* DeepSpeed's, as opposed to FSDP's and none. */
static inline bool gd_stack_is_zero(enum gd_sharding sharding) {
  return sharding != GD_SHARDING_NONE && !gd_shards_by_block(sharding);
}

/* Bytes a parameter that compute: of DeepSpeed's model, of what FSDP gathers. */
static inline double gd_stack_compute_bytes(const struct gd_stack_graph *graph) {
  return graph->fp32 ? 4 : 2;
}

/* The peak of the unit that multiplies: TF32 is part of the free lunch. */
double gd_stack_peak(const struct gd_gpu *gpu, enum gd_precision precision, bool naive);

#endif
