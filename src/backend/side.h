/*
 * A thread beside the computation: collectives and copies between memories are handed to it in
 * order, it runs them one after the other, and whoever needs a result waits for its number.
 *
 *   struct gd_side side = {0};
 *   GD_TRY(gd_side_start(&side, err));
 *   uint64_t number = gd_side_push(&side, run, job);
 *   gd_side_wait(&side, number);
 *   gd_side_stop(&side);
 */
#ifndef GD_BACKEND_SIDE_H
#define GD_BACKEND_SIDE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "ir/graph.h"

enum { GD_SIDE_JOBS = 256 }; /* waiting at once; a further push waits for room */

struct gd_side {
  bool started, stopping;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  uint64_t pushed, done; /* numbers of the last job handed over, and of the last one finished */
  struct {
    void (*run)(void *job);
    void *job;
  } jobs[GD_SIDE_JOBS];
};

enum gd_status gd_side_start(struct gd_side *side, struct gd_error *err) GD_MUST_USE;
/* Waits for what was pushed, then ends the thread. Safe on a zeroed struct. */
void gd_side_stop(struct gd_side *side);
uint64_t gd_side_push(struct gd_side *side, void (*run)(void *job), void *job);
void gd_side_wait(struct gd_side *side, uint64_t number);

/* The last op beside the computation that made something this op reads, as beside_at numbers it:
   by op, from 1 on, 0 for those that do not run there. Streams and threads alike wait by it. */
uint32_t gd_side_waits_for(const struct gd_graph *graph, const struct gd_op *op,
                           const uint32_t *beside_at);

#endif
