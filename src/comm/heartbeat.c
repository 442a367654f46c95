/*
 * A thread that says "there is more to come" over and over; see heartbeat.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "comm/heartbeat.h"

#include <math.h>
#include <time.h>

/* From rank 0 to the others: whether there is more to come. */
static enum gd_status tell(struct gd_comm *comm, bool more, struct gd_error *err) {
  return gd_comm_broadcast(comm, &more, sizeof more, 0, err);
}

/* Four beats in the time that the others wait, and one a second at least. */
static void next_beat(const struct gd_comm *comm, struct timespec *at) {
  double seconds = fmin(1, gd_comm_timeout_s(comm) / 4);
  int64_t ns = (int64_t)(seconds * 1e9) + at->tv_nsec;
  at->tv_sec += (time_t)(ns / 1000000000);
  at->tv_nsec = (long)(ns % 1000000000);
}

static void *beat(void *argument) {
  struct gd_heartbeat *heartbeat = argument;
  struct timespec at;
  pthread_mutex_lock(&heartbeat->mutex);
  while (!heartbeat->stopping && heartbeat->error.status == GD_OK) {
    clock_gettime(CLOCK_MONOTONIC, &at);
    next_beat(heartbeat->comm, &at);
    int waited = 0;
    while (!heartbeat->stopping && waited == 0)
      waited = pthread_cond_timedwait(&heartbeat->changed, &heartbeat->mutex, &at);
    if (!heartbeat->stopping)
      heartbeat->error.status = tell(heartbeat->comm, true, &heartbeat->error);
  }
  pthread_mutex_unlock(&heartbeat->mutex);
  return NULL;
}

enum gd_status gd_heartbeat_start(struct gd_heartbeat *heartbeat, struct gd_comm *comm,
                                  struct gd_error *err) {
  pthread_condattr_t attributes;
  *heartbeat = (struct gd_heartbeat){.comm = comm};
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&heartbeat->mutex, NULL);
  pthread_cond_init(&heartbeat->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  heartbeat->started = pthread_create(&heartbeat->thread, NULL, beat, heartbeat) == 0;
  if (!heartbeat->started) {
    pthread_cond_destroy(&heartbeat->changed);
    pthread_mutex_destroy(&heartbeat->mutex);
    return gd_fail(err, GD_ENVIRONMENT, "cannot start a thread next to the work of rank 0");
  }
  return GD_OK;
}

enum gd_status gd_heartbeat_stop(struct gd_heartbeat *heartbeat, struct gd_error *err) {
  if (!heartbeat->started)
    return GD_OK;
  pthread_mutex_lock(&heartbeat->mutex);
  heartbeat->stopping = true;
  pthread_cond_signal(&heartbeat->changed);
  pthread_mutex_unlock(&heartbeat->mutex);
  pthread_join(heartbeat->thread, NULL);
  pthread_cond_destroy(&heartbeat->changed);
  pthread_mutex_destroy(&heartbeat->mutex);
  heartbeat->started = false;
  if (heartbeat->error.status != GD_OK)
    return gd_fail(err, heartbeat->error.status, "%s", heartbeat->error.text);
  return tell(heartbeat->comm, false, err);
}

enum gd_status gd_heartbeat_listen(struct gd_comm *comm, struct gd_error *err) {
  bool more = true;
  while (more)
    GD_TRY(gd_comm_broadcast(comm, &more, sizeof more, 0, err));
  return GD_OK;
}
