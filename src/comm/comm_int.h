/*
 * Inside of src/comm: the communicator, and windows, sets of messages under way that are waited for
 * together.
 */
#ifndef GD_COMM_COMM_INT_H
#define GD_COMM_COMM_INT_H

#include <pthread.h>
#include <sys/types.h>

#include "comm/comm.h"
#include "comm/mpi_api.h"

enum { GD_COMM_WINDOWS = 4, GD_COMM_SCALARS = 32 };

struct gd_window {
  int count;       /* messages posted */
  void **requests; /* MPI_Request, 2 x (size - 1) of them at most */
  int *peers;      /* whom each is from or to, for the sentence about a rank that stalls */
};

struct gd_comm {
  int rank, size;
  int local_rank; /* among those of this machine */
  int local_size; /* of the machine that has most */
  int cores;
  bool joined; /* MPI was started by us; on one rank it is not */
  bool failed;
  int64_t timeout_ns;
  struct gd_comm_start start; /* what to do about a rank that does not come */
  pid_t parent; /* mpirun, or what stands for it on this node */
  struct gd_mpi mpi;
  struct gd_window windows[GD_COMM_WINDOWS];
  double *scalars; /* size x GD_COMM_SCALARS */
};

/* Calls bark(user), once and in a thread of its own, unless it is stopped within limit_s seconds of
 * this process running. gd_watchdog_stop waits for a bark that has begun. */
struct gd_watchdog {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool over;
  int64_t limit_ns;
  void (*bark)(void *user);
  void *user;
};
enum gd_status gd_watchdog_start(struct gd_watchdog *dog, double limit_s, void (*bark)(void *user),
                                 void *user, struct gd_error *err) GD_MUST_USE;
void gd_watchdog_stop(struct gd_watchdog *dog);

/* Posting into a window; bytes fit an int. */
enum gd_status gd_window_send(struct gd_comm *comm, struct gd_window *window, const void *data,
                              int64_t bytes, int to, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_window_receive(struct gd_comm *comm, struct gd_window *window, void *data,
                                 int64_t bytes, int from, struct gd_error *err) GD_MUST_USE;
/* Until all that was posted is done; what names the collective in the sentence of a failure. */
enum gd_status gd_window_wait(struct gd_comm *comm, struct gd_window *window, const char *what,
                              struct gd_error *err) GD_MUST_USE;

#endif
