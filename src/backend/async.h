/*
 * The communication thread of the host backends: copies between memories and collectives are
 * pushed to its queue, it runs them in order, and whoever needs a result waits for its number.
 *
 *   struct gd_async async = {0};
 *   GD_TRY(gd_async_start(&async, err));
 *   uint64_t number = gd_async_push(&async, run, job);
 *   gd_async_wait(&async, number);
 *   gd_async_stop(&async);
 */
#ifndef GD_BACKEND_ASYNC_H
#define GD_BACKEND_ASYNC_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { GD_ASYNC_JOBS = 256 }; /* capacity of the queue; a push to a full one waits */

struct gd_async {
  bool started, stopping;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  uint64_t pushed, done; /* number of the last job pushed, and of the last one finished */
  struct {
    void (*run)(void *job);
    void *job;
  } jobs[GD_ASYNC_JOBS];
};

enum gd_status gd_async_start(struct gd_async *async, struct gd_error *err) GD_MUST_USE;
/* Waits for what was pushed, then ends the thread. Safe on a zeroed struct. */
void gd_async_stop(struct gd_async *async);
uint64_t gd_async_push(struct gd_async *async, void (*run)(void *job), void *job);
void gd_async_wait(struct gd_async *async, uint64_t number);

#endif
