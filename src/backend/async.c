/*
 * The communication thread: one mutex, one condition, a ring of jobs. It sleeps while the queue is
 * empty, since the cores belong to the computation.
 */
#define _POSIX_C_SOURCE 200809L
#include "backend/async.h"

#include <string.h>

static void *work(void *argument) {
  struct gd_async *async = argument;
  pthread_mutex_lock(&async->mutex);
  for (;;) {
    while (async->done == async->pushed && !async->stopping)
      pthread_cond_wait(&async->changed, &async->mutex);
    if (async->done == async->pushed)
      break;
    uint64_t slot = async->done % GD_ASYNC_JOBS;
    void (*run)(void *job) = async->jobs[slot].run;
    void *job = async->jobs[slot].job;
    pthread_mutex_unlock(&async->mutex);
    run(job);
    pthread_mutex_lock(&async->mutex);
    async->done++;
    pthread_cond_broadcast(&async->changed);
  }
  pthread_mutex_unlock(&async->mutex);
  return NULL;
}

enum gd_status gd_async_start(struct gd_async *async, struct gd_error *err) {
  GD_ASSERT(!async->started);
  pthread_mutex_init(&async->mutex, NULL);
  pthread_cond_init(&async->changed, NULL);
  int failed = pthread_create(&async->thread, NULL, work, async);
  if (failed)
    return gd_fail(err, GD_ENVIRONMENT, "the system refused a thread for communication: %s",
                   strerror(failed));
  async->started = true;
  return GD_OK;
}

void gd_async_stop(struct gd_async *async) {
  if (!async->started)
    return;
  pthread_mutex_lock(&async->mutex);
  async->stopping = true;
  pthread_cond_broadcast(&async->changed);
  pthread_mutex_unlock(&async->mutex);
  pthread_join(async->thread, NULL);
  pthread_mutex_destroy(&async->mutex);
  pthread_cond_destroy(&async->changed);
  *async = (struct gd_async){0};
}

uint64_t gd_async_push(struct gd_async *async, void (*run)(void *job), void *job) {
  pthread_mutex_lock(&async->mutex);
  while (async->pushed - async->done == GD_ASYNC_JOBS)
    pthread_cond_wait(&async->changed, &async->mutex);
  async->jobs[async->pushed % GD_ASYNC_JOBS].run = run;
  async->jobs[async->pushed % GD_ASYNC_JOBS].job = job;
  uint64_t number = ++async->pushed;
  pthread_cond_broadcast(&async->changed);
  pthread_mutex_unlock(&async->mutex);
  return number;
}

void gd_async_wait(struct gd_async *async, uint64_t number) {
  pthread_mutex_lock(&async->mutex);
  while (async->done < number)
    pthread_cond_wait(&async->changed, &async->mutex);
  pthread_mutex_unlock(&async->mutex);
}
