/*
 * A watch over MPI_Init and NCCL's like of it, which wait for every rank and cannot be called off:
 * a rank that is stopped or stuck on its way there would keep all the others for ever. A thread
 * counts while this rank is inside and tells the caller when that takes too long; see gd_comm_open
 * and gd_comm_guard_begin. gd_window_wait in comm.c has a limit of its own.
 */
#define _POSIX_C_SOURCE 200809L
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "comm/comm_int.h"

/* Steps of a tenth of a second, and none counts for more than a second: a job that was suspended as
 * a whole does not find its time over when it wakes, as in gd_window_wait. */
enum { STEP_NS = 100000000, MOST_A_STEP_NS = 1000000000, S_NS = 1000000000 };

static void sleep_a_step(struct gd_watchdog *dog) {
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += STEP_NS;
  until.tv_sec += until.tv_nsec / S_NS;
  until.tv_nsec %= S_NS;
  pthread_cond_timedwait(&dog->changed, &dog->mutex, &until);
}

static void *watch(void *user) {
  struct gd_watchdog *dog = user;
  int64_t last = gd_clock_ns(), waited = 0;
  pthread_mutex_lock(&dog->mutex);
  while (!dog->over && waited <= dog->limit_ns) {
    sleep_a_step(dog);
    int64_t now = gd_clock_ns();
    waited += now - last < MOST_A_STEP_NS ? now - last : MOST_A_STEP_NS;
    last = now;
  }
  bool over = dog->over;
  pthread_mutex_unlock(&dog->mutex);
  if (!over)
    dog->bark(dog->user);
  return NULL;
}

enum gd_status gd_watchdog_start(struct gd_watchdog *dog, double limit_s, void (*bark)(void *user),
                                 void *user, struct gd_error *err) {
  pthread_condattr_t attributes;
  *dog = (struct gd_watchdog){
      .limit_ns = (int64_t)(limit_s * (double)S_NS), .bark = bark, .user = user};
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_mutex_init(&dog->mutex, NULL);
  pthread_cond_init(&dog->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  int failed = pthread_create(&dog->thread, NULL, watch, dog);
  if (!failed)
    return GD_OK;
  pthread_cond_destroy(&dog->changed);
  pthread_mutex_destroy(&dog->mutex);
  return gd_fail(err, GD_ENVIRONMENT, "cannot start a thread that watches the ranks join: %s",
                 strerror(failed));
}

void gd_watchdog_stop(struct gd_watchdog *dog) {
  pthread_mutex_lock(&dog->mutex);
  dog->over = true;
  pthread_cond_signal(&dog->changed);
  pthread_mutex_unlock(&dog->mutex);
  pthread_join(dog->thread, NULL);
  pthread_cond_destroy(&dog->changed);
  pthread_mutex_destroy(&dog->mutex);
}

/* --- guards -------------------------------------------------------------------------------- */

struct gd_comm_guard {
  struct gd_comm *comm;
  const char *what;
  struct gd_watchdog dog;
};

static void say_stalled(void *user) {
  const struct gd_comm_guard *guard = user;
  const struct gd_comm *comm = guard->comm;
  struct gd_error err = {0};
  enum gd_status status =
      gd_fail(&err, GD_ENVIRONMENT,
              "rank %d has waited %.3g s in %s, which ends when all %d ranks are there: one of "
              "them must be stopped or stuck; look for it (ps, top), or raise --rank-timeout",
              comm->rank, 1e-9 * (double)comm->timeout_ns, guard->what, comm->size);
  if (status != GD_OK)
    comm->start.stalled(comm->start.user, &err);
}

enum gd_status gd_comm_guard_begin(struct gd_comm *comm, const char *what,
                                   struct gd_comm_guard **guard, struct gd_error *err) {
  *guard = NULL;
  if (!comm || comm->size == 1 || !comm->start.stalled)
    return GD_OK;
  struct gd_comm_guard *begun = gd_mem_alloc(1, sizeof *begun);
  if (!begun)
    return gd_nomem(err, "while ranks meet");
  begun->comm = comm;
  begun->what = what;
  enum gd_status status =
      gd_watchdog_start(&begun->dog, gd_comm_timeout_s(comm), say_stalled, begun, err);
  if (status != GD_OK) {
    gd_mem_free(begun);
    return status;
  }
  *guard = begun;
  return GD_OK;
}

void gd_comm_guard_end(struct gd_comm_guard *guard) {
  if (!guard)
    return;
  gd_watchdog_stop(&guard->dog);
  gd_mem_free(guard);
}
