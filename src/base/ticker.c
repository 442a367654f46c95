/*
 * See ticker.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "base/ticker.h"

#include <errno.h>
#include <time.h>

enum { S_NS = 1000000000 };

static void *run(void *user) {
  struct gd_ticker *ticker = user;
  pthread_mutex_lock(&ticker->mutex);
  while (!ticker->over) {
    struct timespec until;
    int result = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (until.tv_nsec + ticker->period_ns) / S_NS;
    until.tv_nsec = (until.tv_nsec + ticker->period_ns) % S_NS;
    while (!ticker->over && result != ETIMEDOUT)
      result = pthread_cond_timedwait(&ticker->changed, &ticker->mutex, &until);
    pthread_mutex_unlock(&ticker->mutex);
    if (result == ETIMEDOUT)
      ticker->tick(ticker->user);
    pthread_mutex_lock(&ticker->mutex);
  }
  pthread_mutex_unlock(&ticker->mutex);
  return NULL;
}

void gd_ticker_start(struct gd_ticker *ticker, int64_t period_ns, void (*tick)(void *user),
                     void *user) {
  pthread_condattr_t attributes;
  *ticker = (struct gd_ticker){.period_ns = period_ns, .tick = tick, .user = user};
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&ticker->mutex, NULL);
  pthread_cond_init(&ticker->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  ticker->started = pthread_create(&ticker->thread, NULL, run, ticker) == 0;
}

void gd_ticker_stop(struct gd_ticker *ticker) {
  pthread_mutex_lock(&ticker->mutex);
  ticker->over = true;
  pthread_cond_signal(&ticker->changed);
  pthread_mutex_unlock(&ticker->mutex);
  if (ticker->started)
    pthread_join(ticker->thread, NULL);
  pthread_cond_destroy(&ticker->changed);
  pthread_mutex_destroy(&ticker->mutex);
}
