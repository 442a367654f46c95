/*
 * Parts of a program that a launch leaves out. A captured program has one size; where an op turns
 * out to have less to do, by numbers among its inputs, what is beyond them would run for nothing.
 * Such an op says how to count, and around each part from which count on it is needed:
 *
 *   gd_cuda_toggles_count(call, count_rows);
 *   for (int64_t first = 0; first < rows; first += chunk)
 *     if (gd_cuda_toggle_begin(call, first + 1)) {
 *       ... kernels of rows that may exist ...
 *       gd_cuda_toggle_end(call);
 *     }
 *
 * Before a program is launched cuda.c has its counters count (gd_cuda_toggles_settle) and switches
 * the nodes of its graph off or on. A part must not be needed for anything but its own rows: what
 * is behind it sees memory as if it had never been there. Where the driver lacks the functions,
 * GPUDAYS_GRAPH_TOGGLE=0 says so, or the op is called by itself, all parts run: an op must be right
 * then too.
 */
#ifndef GD_BACKEND_CUDA_RUNTIME_GRAPH_TOGGLE_H
#define GD_BACKEND_CUDA_RUNTIME_GRAPH_TOGGLE_H

#include "backend/cuda/runtime/cuda_int.h"

/* --- for ops -------------------------------------------------------------------------------- */

/* Puts on the call's stream what writes the count to *to, memory of the host that a GPU can write.
   It may read the op's integer inputs alone, as they are before the program. */
typedef enum gd_status (*gd_cuda_count)(const struct gd_cuda_call *call, int32_t *to);

/* Of this op: at every stage, before its first toggle. */
enum gd_status gd_cuda_toggles_count(const struct gd_cuda_call *call,
                                     gd_cuda_count count) GD_MUST_USE;
/* What follows is needed if the count is at least `least`; false: it is not, leave it out. */
bool gd_cuda_toggle_begin(const struct gd_cuda_call *call, int64_t least);
void gd_cuda_toggle_end(const struct gd_cuda_call *call);

/* --- for the runtime ------------------------------------------------------------------------ */

/* Of one program; *toggles may be NULL afterwards, which all of these take. */
enum gd_status gd_cuda_toggles_open(struct gd_cuda *cuda, struct gd_cuda_toggles **toggles,
                                    struct gd_error *err) GD_MUST_USE;
void gd_cuda_toggles_close(struct gd_cuda *cuda, struct gd_cuda_toggles *toggles);
/* Around the capture. The graph is theirs afterwards; exec: what was made of it, or NULL. */
void gd_cuda_toggles_capture(struct gd_cuda_toggles *toggles);
void gd_cuda_toggles_captured(struct gd_cuda *cuda, struct gd_cuda_toggles *toggles, CUgraph graph,
                              CUgraphExec exec);
/* Counts where inputs may have changed, waits for it, and switches. */
enum gd_status gd_cuda_toggles_settle(struct gd_cuda *cuda, struct gd_cuda_toggles *toggles,
                                      struct gd_error *err) GD_MUST_USE;

#endif
