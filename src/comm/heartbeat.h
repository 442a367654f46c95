/*
 * Rank 0 works for a while by itself, and the others wait for it. While it is alive they hear of it
 * every second or so, so that their patience (gd_comm_set_timeout) need not be as long as its work:
 * one that is stopped or gone falls silent.
 *
 *   if (gd_comm_rank(comm) > 0)
 *     return gd_heartbeat_listen(comm, err);
 *   struct gd_heartbeat heartbeat = {0};
 *   GD_TRY(gd_heartbeat_start(&heartbeat, comm, err));
 *   work();
 *   GD_TRY(gd_heartbeat_stop(&heartbeat, err));
 */
#ifndef GD_COMM_HEARTBEAT_H
#define GD_COMM_HEARTBEAT_H

#include <pthread.h>

#include "comm/comm.h"

struct gd_heartbeat {
  struct gd_comm *comm;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool started, stopping;
  struct gd_error error; /* of the thread */
};

/* Of rank 0. Until it is stopped nobody else may use the communicator. */
enum gd_status gd_heartbeat_start(struct gd_heartbeat *heartbeat, struct gd_comm *comm,
                                  struct gd_error *err) GD_MUST_USE;
/* Lets the others go on. Safe on a zeroed struct; what went wrong meanwhile is returned. */
enum gd_status gd_heartbeat_stop(struct gd_heartbeat *heartbeat, struct gd_error *err) GD_MUST_USE;
/* Of the others: returns when rank 0 has stopped. */
enum gd_status gd_heartbeat_listen(struct gd_comm *comm, struct gd_error *err) GD_MUST_USE;

#endif
