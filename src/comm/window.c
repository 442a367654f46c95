/*
 * Windows: messages under way that are waited for together; see comm_int.h.
 *
 * Every collective has a tag of its own, made of its number and kind. Ranks that are not in the
 * same collective therefore never take each other's messages; one that waits finds a message of
 * another collective from the rank that it waits for, and fails with both names.
 */
#define _GNU_SOURCE /* sched_yield, nanosleep */
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "comm/comm_int.h"

/* MPI promises tags up to 32,767. Ranks are at most one collective apart, so numbers may repeat. */
enum { NUMBERS = 4096, KINDS = 8, ANY_TAG = -1 };
_Static_assert(NUMBERS *KINDS == 32768 && (int)GD_COLLECTIVE_COUNT <= (int)KINDS,
               "tags fit 15 bits");

static const char *collective_name(int kind) {
  static const char *const names[KINDS] = {[GD_COLLECTIVE_REDUCE_SCATTER] = "a reduce-scatter",
                                           [GD_COLLECTIVE_ALL_GATHER] = "an all-gather",
                                           [GD_COLLECTIVE_BROADCAST] = "a broadcast",
                                           [GD_COLLECTIVE_BARRIER] = "a barrier",
                                           [GD_COLLECTIVE_SUM] = "a sum"};
  return names[kind] ? names[kind] : "an unknown collective";
}

void gd_comm_begin(struct gd_comm *comm, enum gd_collective kind) {
  comm->sequence = (comm->sequence + 1) % NUMBERS;
  comm->kind = kind;
  comm->tag = comm->sequence * KINDS + (int)kind;
}

/* --- posting ------------------------------------------------------------------------------- */

enum gd_status gd_window_send(struct gd_comm *comm, struct gd_window *window, const void *data,
                              int64_t bytes, int to, struct gd_error *err) {
  const struct gd_mpi *mpi = &comm->mpi;
  GD_ASSERT(!comm->failed && bytes <= INT_MAX && window->count < 2 * comm->size);
  window->peers[window->count] = to;
  window->bytes[window->count] = GD_WINDOW_SENT;
  return gd_comm_check(comm,
                       mpi->Isend(data, (int)bytes, mpi->byte, to, comm->tag, mpi->world,
                                  &window->requests[window->count++]),
                       "MPI_Isend", err);
}

enum gd_status gd_window_receive(struct gd_comm *comm, struct gd_window *window, void *data,
                                 int64_t bytes, int from, struct gd_error *err) {
  const struct gd_mpi *mpi = &comm->mpi;
  GD_ASSERT(!comm->failed && bytes <= INT_MAX && window->count < 2 * comm->size);
  window->peers[window->count] = from;
  window->bytes[window->count] = (int)bytes;
  return gd_comm_check(comm,
                       mpi->Irecv(data, (int)bytes, mpi->byte, from, comm->tag, mpi->world,
                                  &window->requests[window->count++]),
                       "MPI_Irecv", err);
}

/* --- failing ------------------------------------------------------------------------------- */

/* MPI forgets a request that is found done here, with how it ended: of a message that has come, the
 * size is looked at now. */
static bool is_done(struct gd_comm *comm, struct gd_window *window, int i) {
  struct gd_mpi_status state = {0};
  int done = 0;
  if (comm->mpi.Test(&window->requests[i], &done, &state) != GD_MPI_SUCCESS)
    return true;
  if (done && window->bytes[i] >= 0 && state.bytes == (size_t)window->bytes[i])
    window->bytes[i] = GD_WINDOW_CAME;
  return done;
}

/* What still waits for data would be written to after its owner has freed it. */
void gd_comm_fail(struct gd_comm *comm) {
  if (comm->failed)
    return;
  comm->failed = true;
  for (int w = 0; w < GD_COMM_WINDOWS; w++) {
    struct gd_window *window = &comm->windows[w];
    for (int i = 0; window->requests && i < window->count; i++)
      if (window->bytes[i] >= 0 && !is_done(comm, window, i)) {
        comm->mpi.Cancel(&window->requests[i]);
        is_done(comm, window, i);
      }
    window->count = 0;
  }
}

/* Who has not answered, as "rank 2" or "ranks 1, 2"; a few are enough. */
static void name_missing(struct gd_comm *comm, struct gd_window *window, char *text, size_t size) {
  int named = 0;
  char list[96] = "";
  size_t length = 0;
  for (int rank = 0; rank < comm->size; rank++) {
    bool missing = false;
    for (int i = 0; i < window->count; i++)
      missing = missing || (window->peers[i] == rank && !is_done(comm, window, i));
    if (missing && ++named <= 8)
      length += (size_t)snprintf(list + length, sizeof list - length, "%s%d", named > 1 ? ", " : "",
                                 rank);
  }
  snprintf(text, size, "rank%s %s%s", named > 1 ? "s" : "", list, named > 8 ? ", ..." : "");
}

static enum gd_status stalled(struct gd_comm *comm, struct gd_window *window,
                              struct gd_error *err) {
  char who[128];
  name_missing(comm, window, who, sizeof who);
  gd_comm_fail(comm);
  return gd_fail(err, GD_ENVIRONMENT,
                 "no answer from %s for %.3g s in %s: it must be stopped, stuck or slow; look "
                 "there, or raise --rank-timeout",
                 who, (double)comm->timeout_ns * 1e-9, collective_name((int)comm->kind));
}

/* --- ranks that do other things ------------------------------------------------------------ */

/* A message of another collective from a rank that this one waits for; its tag, or ANY_TAG. A rank
 * that is ahead has sent what we wait for before, so such a message can only be there for as long
 * as the one before it is on its way. */
static int find_stranger(struct gd_comm *comm, struct gd_window *window, int *from) {
  for (int i = 0; i < window->count; i++) {
    struct gd_mpi_status state;
    int there = 0;
    if (window->bytes[i] < 0 || is_done(comm, window, i))
      continue;
    if (comm->mpi.Iprobe(window->peers[i], ANY_TAG, comm->mpi.world, &there, &state) ==
            GD_MPI_SUCCESS &&
        there && state.tag != comm->tag) {
      *from = window->peers[i];
      return state.tag;
    }
  }
  return ANY_TAG;
}

static enum gd_status apart(struct gd_comm *comm, int tag, int from, struct gd_error *err) {
  gd_comm_fail(comm);
  return gd_fail(err, GD_ENVIRONMENT,
                 "rank %d is in %s (number %d) while rank %d is in %s (number %d): the ranks do "
                 "not run the same trial; start all with the same gpudays and the same options",
                 from, collective_name(tag % KINDS), tag / KINDS, comm->rank,
                 collective_name((int)comm->kind), comm->tag / KINDS);
}

static enum gd_status other_size(struct gd_comm *comm, int from, int expected,
                                 struct gd_error *err) {
  gd_comm_fail(comm);
  return gd_fail(err, GD_ENVIRONMENT,
                 "rank %d has not the %d bytes for %s that rank %d expects: the ranks do not run "
                 "the same trial; start all with the same gpudays and the same options",
                 from, expected, collective_name((int)comm->kind), comm->rank);
}

/* All messages are there, or one has failed. */
static enum gd_status check_messages(struct gd_comm *comm, struct gd_window *window, int code,
                                     struct gd_error *err) {
  for (int i = 0; i < window->count; i++) {
    const struct gd_mpi_status *state = &window->states[i];
    bool received = window->bytes[i] >= 0;
    if (code != GD_MPI_SUCCESS && received && state->error == GD_MPI_ERR_TRUNCATE)
      return other_size(comm, window->peers[i], window->bytes[i], err);
    if (code != GD_MPI_SUCCESS && state->error != GD_MPI_SUCCESS &&
        state->error != GD_MPI_ERR_PENDING)
      return gd_comm_check(comm, state->error, collective_name((int)comm->kind), err);
    if (code == GD_MPI_SUCCESS && received && state->bytes != (size_t)window->bytes[i])
      return other_size(comm, window->peers[i], window->bytes[i], err);
  }
  return gd_comm_check(comm, code, collective_name((int)comm->kind), err);
}

/* --- waiting ------------------------------------------------------------------------------- */

struct waiting {
  int64_t last_ns, waited_ns;   /* clock of the last look; time that counts */
  int64_t check_ns, checked_ns; /* how often to look for strangers; when that was */
  int stranger;                 /* the tag that was seen then */
  struct timespec nap;
};

/*
 * Yielding is enough for what is nearly there; the sleeps after that leave the core to whoever
 * computes. A step counts for a second at most, so that a job that was suspended as a whole
 * (Ctrl-Z, a laptop's lid) does not find its time over when it wakes.
 */
enum {
  YIELD_NS = 50000,
  FIRST_SLEEP_NS = 20000,
  LAST_SLEEP_NS = 100000,
  STEP_NS = 1000000000,
};

static enum gd_status wait_a_little(struct gd_comm *comm, struct gd_window *window,
                                    struct waiting *w, struct gd_error *err) {
  int64_t now = gd_clock_ns();
  int from = 0;
  w->waited_ns += now - w->last_ns < STEP_NS ? now - w->last_ns : STEP_NS;
  w->last_ns = now;
  if (w->waited_ns < YIELD_NS) {
    sched_yield();
    return GD_OK;
  }
  if (w->waited_ns - w->checked_ns > w->check_ns) {
    int stranger = find_stranger(comm, window, &from);
    if (stranger != ANY_TAG && stranger == w->stranger)
      return apart(comm, stranger, from, err);
    w->stranger = stranger;
    w->checked_ns = w->waited_ns;
  }
  if (w->waited_ns > comm->timeout_ns)
    return stalled(comm, window, err);
  if (getppid() != comm->parent) {
    gd_comm_fail(comm);
    return gd_fail(err, GD_ENVIRONMENT,
                   "mpirun, which started this rank, is gone; the rank ends as well");
  }
  nanosleep(&w->nap, NULL);
  if (w->nap.tv_nsec < LAST_SLEEP_NS)
    w->nap.tv_nsec *= 2;
  if (w->nap.tv_nsec > LAST_SLEEP_NS)
    w->nap.tv_nsec = LAST_SLEEP_NS;
  return GD_OK;
}

enum gd_status gd_window_wait(struct gd_comm *comm, struct gd_window *window,
                              struct gd_error *err) {
  struct waiting w = {.last_ns = gd_clock_ns(),
                      .check_ns = comm->timeout_ns / 4 < STEP_NS ? comm->timeout_ns / 4 : STEP_NS,
                      .stranger = ANY_TAG,
                      .nap = {.tv_nsec = FIRST_SLEEP_NS}};
  for (;;) {
    int done = 0;
    int code = comm->mpi.Testall(window->count, window->requests, &done, window->states);
    if (done || code != GD_MPI_SUCCESS) {
      GD_TRY(check_messages(comm, window, code, err));
      window->count = 0;
      return GD_OK;
    }
    GD_TRY(wait_a_little(comm, window, &w, err));
  }
}
