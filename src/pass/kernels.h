/*
 * The parts of the kernels method: each replaces one pattern of the forward graph by one fused op,
 * wherever it finds it, and leaves alone what it does not know. They run behind the precision pass,
 * which decides dtypes, and before autodiff, so that backward passes are those of the fused ops.
 */
#ifndef GD_PASS_KERNELS_H
#define GD_PASS_KERNELS_H

#include "ir/graph.h"

/* The selective scan, whose decay, input and state are then no longer stored for every step. */
enum gd_status gd_kernels_scan(struct gd_graph *graph, struct gd_error *err) GD_MUST_USE;

#endif
