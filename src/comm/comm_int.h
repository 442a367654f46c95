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

enum gd_collective {
  GD_COLLECTIVE_REDUCE_SCATTER,
  GD_COLLECTIVE_ALL_GATHER,
  GD_COLLECTIVE_BROADCAST,
  GD_COLLECTIVE_BARRIER,
  GD_COLLECTIVE_SUM,
  GD_COLLECTIVE_COUNT
};

/* In place of the bytes that a message is to have. */
enum { GD_WINDOW_SENT = -1, GD_WINDOW_CAME = -2 };

struct gd_window {
  int count;       /* messages posted */
  void **requests; /* MPI_Request, 2 x (size - 1) of them at most */
  int *peers;      /* the rank that each is from or to */
  int *bytes;      /* that each receives; GD_WINDOW_SENT: it sends; GD_WINDOW_CAME: it has */
  struct gd_mpi_status *states; /* how each ended */
};

struct gd_comm {
  int rank, size;
  int local_rank; /* among those of this machine */
  int local_size; /* of the machine that has most */
  int cores, allowed_cores;
  int host_cores; /* of this machine, that its ranks may run on */
  int *hosts;     /* of each rank, the first rank of its machine */
  int sequence;   /* number of the collective that runs */
  enum gd_collective kind;
  int tag;     /* of its messages */
  bool joined; /* MPI was started by us; on one rank it is not */
  bool failed;
  int64_t timeout_ns;
  struct gd_comm_start start; /* what to do about a rank that does not come */
  pid_t parent;               /* mpirun, or what stands for it on this node */
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

/* GD_OK for GD_MPI_SUCCESS; else the communicator has failed, in what. */
enum gd_status gd_comm_check(struct gd_comm *comm, int code, const char *what,
                             struct gd_error *err) GD_MUST_USE;
/* Nothing is received any more, so that buffers may be freed. */
void gd_comm_fail(struct gd_comm *comm);
/* Every collective begins with it: what is posted until the next one has a tag of its own. */
void gd_comm_begin(struct gd_comm *comm, enum gd_collective kind);

/* Posting into a window; bytes fit an int. */
enum gd_status gd_window_send(struct gd_comm *comm, struct gd_window *window, const void *data,
                              int64_t bytes, int to, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_window_receive(struct gd_comm *comm, struct gd_window *window, void *data,
                                 int64_t bytes, int from, struct gd_error *err) GD_MUST_USE;
/* Until all that was posted is done, with the sizes that were expected. */
enum gd_status gd_window_wait(struct gd_comm *comm, struct gd_window *window,
                              struct gd_error *err) GD_MUST_USE;

#endif
