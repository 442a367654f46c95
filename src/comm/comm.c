/*
 * Joining and leaving a job, and windows of messages; see comm.h. The collectives on top are in
 * collective.c.
 */
#define _GNU_SOURCE /* sched_getaffinity, process_vm_readv */
#include "comm/comm.h"

#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/strbuf.h"
#include "comm/comm_int.h"

enum { DEFAULT_TIMEOUT_S = 300, TAG = 1 };

/* --- where this process stands ------------------------------------------------------------- */

static bool read_variable(const char *name, int64_t low, int *value) {
  const char *text = getenv(name);
  int64_t number;
  if (!text || !gd_parse_int(text, low, INT_MAX, &number))
    return false;
  *value = (int)number;
  return true;
}

bool gd_comm_in_job(int *rank, int *size) {
  static const struct {
    const char *rank, *size;
  } variables[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, /* OpenMPI's mpirun */
      {"PMI_RANK", "PMI_SIZE"},                         /* srun --mpi=pmi2 */
      {"PMIX_RANK", "SLURM_STEP_NUM_TASKS"},            /* srun --mpi=pmix, which names no size */
      {"PMIX_RANK", "SLURM_NTASKS"},
      {"PMIX_RANK", NULL},
  };
  for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
    int r, n = 0;
    if (read_variable(variables[i].rank, 0, &r) &&
        (!variables[i].size || (read_variable(variables[i].size, 1, &n) && r < n))) {
      *rank = r;
      *size = n;
      return true;
    }
  }
  *rank = 0;
  *size = 1;
  return false;
}

/*
 * OpenMPI moves large messages between processes of one machine by process_vm_readv. Where that is
 * forbidden (containers, yama) it does not always notice before the first message, which then never
 * arrives, so it is told. The parent stands for a sibling: neither is a descendant. A null address
 * is a fault where reading is allowed.
 */
static bool may_read_siblings(void) {
  char byte;
  struct iovec here = {&byte, 1}, there = {NULL, 1};
  return process_vm_readv(getppid(), &here, 1, &there, 1, 0) >= 0 || errno == EFAULT;
}

static void prepare_environment(void) {
  if (may_read_siblings())
    return;
  setenv("OMPI_MCA_btl_vader_single_copy_mechanism", "none", 0); /* version 4 */
  setenv("OMPI_MCA_smsc", "^cma", 0);                            /* version 5 */
}

static enum gd_status check_mpi(struct gd_comm *comm, int code, const char *what,
                                struct gd_error *err) {
  char text[GD_MPI_MAX_ERROR_STRING + 1] = "unknown error";
  int length = 0;
  if (code == GD_MPI_SUCCESS)
    return GD_OK;
  comm->failed = true;
  comm->mpi.Error_string(code, text, &length);
  return gd_fail(err, GD_ENVIRONMENT, "MPI failed in %s: %s", what, text);
}

/* What the watchdog is to say; see watchdog.c. */
struct joining {
  const struct gd_comm_start *start;
  int rank, size; /* as the environment has it; size 0: not known */
  double timeout_s;
};

static void say_stalled(void *user) {
  const struct joining *joining = user;
  struct gd_error err = {0};
  char job[32] = "all ranks";
  if (joining->size > 0)
    snprintf(job, sizeof job, "all %d ranks", joining->size);
  enum gd_status status =
      gd_fail(&err, GD_ENVIRONMENT,
              "rank %d has waited %.3g s in MPI_Init, which ends when %s are there: one of them "
              "must be stopped, stuck or not started; look for it (ps, top), or raise "
              "--rank-timeout",
              joining->rank, joining->timeout_s, job);
  if (status != GD_OK)
    joining->start->stalled(joining->start->user, &err);
}

/* MPI_Init, with somebody who notices when it does not end. */
static enum gd_status call_init(struct gd_comm *comm, struct joining *joining, int *level,
                                struct gd_error *err) {
  struct gd_watchdog dog;
  bool watched = joining->start && joining->start->stalled;
  if (watched)
    GD_TRY(gd_watchdog_start(&dog, joining->timeout_s, say_stalled, joining, err));
  int code = comm->mpi.Init_thread(NULL, NULL, GD_MPI_THREAD_SERIALIZED, level);
  if (watched)
    gd_watchdog_stop(&dog);
  return check_mpi(comm, code, "MPI_Init_thread", err);
}

static enum gd_status start_mpi(struct gd_comm *comm, struct joining *joining,
                                struct gd_error *err) {
  const struct gd_mpi *mpi = &comm->mpi;
  int before = 0, after = 0, level = 0, expected = joining->size;
  GD_TRY(gd_mpi_load(&comm->mpi, err));
  GD_TRY(check_mpi(comm, mpi->Initialized(&before), "MPI_Initialized", err));
  GD_TRY(check_mpi(comm, mpi->Finalized(&after), "MPI_Finalized", err));
  if (before || after)
    return gd_fail(err, GD_INTERNAL, "a process joins its job once; this one has %s",
                   after ? "left it" : "joined before");
  prepare_environment();
  GD_TRY(call_init(comm, joining, &level, err));
  comm->joined = true;
  GD_TRY(check_mpi(comm, mpi->Comm_set_errhandler(mpi->world, mpi->errors),
                   "MPI_Comm_set_errhandler", err));
  GD_TRY(check_mpi(comm, mpi->Comm_rank(mpi->world, &comm->rank), "MPI_Comm_rank", err));
  GD_TRY(check_mpi(comm, mpi->Comm_size(mpi->world, &comm->size), "MPI_Comm_size", err));
  if (level < GD_MPI_THREAD_SERIALIZED)
    return gd_fail(err, GD_ENVIRONMENT,
                   "this OpenMPI was built without threads (level %d, %d is needed); install one "
                   "with them",
                   level, GD_MPI_THREAD_SERIALIZED);
  if (expected > 0 && comm->size != expected)
    return gd_fail(err, GD_ENVIRONMENT,
                   "the job has %d ranks, but OpenMPI sees %d: it was started by another MPI's "
                   "mpirun, or by srun without --mpi=pmix; use OpenMPI's mpirun",
                   expected, comm->size);
  return GD_OK;
}

/* --- cores --------------------------------------------------------------------------------- */

struct seat {
  uint64_t host, mask; /* hashes */
  int64_t cores;
};

/* FNV-1a. */
static uint64_t hash_of(const void *data, size_t bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
  return hash;
}

static struct seat own_seat(void) {
  char name[256] = "";
  cpu_set_t set;
  struct seat seat = {0};
  CPU_ZERO(&set);
  if (gethostname(name, sizeof name - 1) == 0)
    seat.host = hash_of(name, strlen(name));
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    seat.mask = hash_of(&set, sizeof set);
    seat.cores = CPU_COUNT(&set);
  } else { /* more cores than a cpu_set_t has */
    seat.cores = sysconf(_SC_NPROCESSORS_ONLN);
  }
  return seat;
}

/* Who is on this machine. Ranks that were bound have masks of their own; others share one. */
static enum gd_status meet_neighbours(struct gd_comm *comm, struct gd_error *err) {
  struct seat own = own_seat(), *seats;
  int64_t sharers = 1;
  seats = gd_mem_alloc((size_t)comm->size, sizeof *seats);
  if (!seats)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while joining the job");
  seats[comm->rank] = own;
  enum gd_status status = gd_comm_all_gather(comm, seats, sizeof *seats, err);
  for (int i = 0; i < comm->size; i++)
    sharers += i != comm->rank && seats[i].host == own.host && seats[i].mask == own.mask;
  for (int i = 0; i < comm->rank; i++)
    comm->local_rank += seats[i].host == own.host;
  for (int i = 0; i < comm->size; i++) {
    int beside = 0;
    for (int j = 0; j < comm->size; j++)
      beside += seats[j].host == seats[i].host;
    comm->local_size = beside > comm->local_size ? beside : comm->local_size;
  }
  gd_mem_free(seats);
  comm->cores = own.cores / sharers > 1 ? (int)(own.cores / sharers) : 1;
  return status;
}

/* --- open and close ------------------------------------------------------------------------ */

static enum gd_status allocate(struct gd_comm *comm, struct gd_error *err) {
  size_t messages = 2 * (size_t)comm->size;
  comm->scalars = gd_mem_alloc((size_t)comm->size * GD_COMM_SCALARS, sizeof *comm->scalars);
  bool all = comm->scalars != NULL;
  for (int i = 0; i < GD_COMM_WINDOWS; i++) {
    struct gd_window *window = &comm->windows[i];
    window->requests = gd_mem_alloc(messages, sizeof *window->requests);
    window->peers = gd_mem_alloc(messages, sizeof *window->peers);
    all = all && window->requests && window->peers;
  }
  if (!all)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while joining the job");
  return GD_OK;
}

static enum gd_status join(struct gd_comm *comm, const struct gd_comm_start *start,
                           struct gd_error *err) {
  struct joining joining = {.start = start, .timeout_s = DEFAULT_TIMEOUT_S};
  comm->size = 1;
  comm->parent = getppid();
  if (start)
    comm->start = *start;
  if (start && start->timeout_s > 0)
    joining.timeout_s = start->timeout_s;
  gd_comm_set_timeout(comm, joining.timeout_s);
  if (gd_comm_in_job(&joining.rank, &joining.size) && joining.size != 1)
    GD_TRY(start_mpi(comm, &joining, err));
  GD_TRY(allocate(comm, err));
  return meet_neighbours(comm, err);
}

enum gd_status gd_comm_open(struct gd_comm **comm, const struct gd_comm_start *start,
                            struct gd_error *err) {
  struct gd_comm *opened = gd_mem_alloc(1, sizeof *opened);
  if (!opened)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while joining the job");
  enum gd_status status = join(opened, start, err);
  if (status != GD_OK) {
    opened->failed = true; /* the others may not have failed: no farewell */
    gd_comm_close(opened);
    return status;
  }
  *comm = opened;
  return GD_OK;
}

void gd_comm_close(struct gd_comm *comm) {
  if (!comm)
    return;
  if (comm->joined && !comm->failed)
    comm->mpi.Finalize();
  for (int i = 0; i < GD_COMM_WINDOWS; i++) {
    /* After a failure MPI still knows of buffers, not of these arrays. */
    gd_mem_free(comm->windows[i].requests);
    gd_mem_free(comm->windows[i].peers);
  }
  gd_mem_free(comm->scalars);
  gd_mem_free(comm);
}

void gd_comm_abort(struct gd_comm *comm, int code) {
  if (comm->joined)
    comm->mpi.Abort(comm->mpi.world, code);
}

int gd_comm_rank(const struct gd_comm *comm) {
  return comm->rank;
}

int gd_comm_size(const struct gd_comm *comm) {
  return comm->size;
}

int gd_comm_local_rank(const struct gd_comm *comm) {
  return comm->local_rank;
}

int gd_comm_local_size(const struct gd_comm *comm) {
  return comm->local_size;
}

int gd_comm_cores(const struct gd_comm *comm) {
  return comm->cores;
}

bool gd_comm_has_failed(const struct gd_comm *comm) {
  return comm->failed;
}

void gd_comm_set_timeout(struct gd_comm *comm, double seconds) {
  comm->timeout_ns = (int64_t)(seconds * 1e9);
}

double gd_comm_timeout_s(const struct gd_comm *comm) {
  return 1e-9 * (double)comm->timeout_ns;
}

/* --- windows ------------------------------------------------------------------------------- */

enum gd_status gd_window_send(struct gd_comm *comm, struct gd_window *window, const void *data,
                              int64_t bytes, int to, struct gd_error *err) {
  const struct gd_mpi *mpi = &comm->mpi;
  GD_ASSERT(!comm->failed && bytes <= INT_MAX && window->count < 2 * comm->size);
  window->peers[window->count] = to;
  return check_mpi(comm,
                   mpi->Isend(data, (int)bytes, mpi->byte, to, TAG, mpi->world,
                              &window->requests[window->count++]),
                   "MPI_Isend", err);
}

enum gd_status gd_window_receive(struct gd_comm *comm, struct gd_window *window, void *data,
                                 int64_t bytes, int from, struct gd_error *err) {
  const struct gd_mpi *mpi = &comm->mpi;
  GD_ASSERT(!comm->failed && bytes <= INT_MAX && window->count < 2 * comm->size);
  window->peers[window->count] = from;
  return check_mpi(comm,
                   mpi->Irecv(data, (int)bytes, mpi->byte, from, TAG, mpi->world,
                              &window->requests[window->count++]),
                   "MPI_Irecv", err);
}

/* Who has not answered, as "rank 2" or "ranks 1, 2"; a few are enough. */
static void name_missing(struct gd_comm *comm, struct gd_window *window, char *text, size_t size) {
  int named = 0;
  char list[96] = "";
  size_t length = 0;
  for (int rank = 0; rank < comm->size; rank++) {
    bool missing = false;
    for (int i = 0; i < window->count; i++) {
      int done = 0;
      if (window->peers[i] == rank &&
          comm->mpi.Test(&window->requests[i], &done, GD_MPI_IGNORE) == GD_MPI_SUCCESS)
        missing = missing || !done;
    }
    if (missing && ++named <= 8)
      length += (size_t)snprintf(list + length, sizeof list - length, "%s%d", named > 1 ? ", " : "",
                                 rank);
  }
  snprintf(text, size, "rank%s %s%s", named > 1 ? "s" : "", list, named > 8 ? ", ..." : "");
}

static enum gd_status stalled(struct gd_comm *comm, struct gd_window *window, const char *what,
                              struct gd_error *err) {
  char who[128];
  comm->failed = true;
  name_missing(comm, window, who, sizeof who);
  return gd_fail(err, GD_ENVIRONMENT,
                 "no answer from %s for %.3g s in %s: it must be stopped, stuck or slow; look "
                 "there, or raise --rank-timeout",
                 who, (double)comm->timeout_ns * 1e-9, what);
}

enum gd_status gd_window_wait(struct gd_comm *comm, struct gd_window *window, const char *what,
                              struct gd_error *err) {
  /*
   * Yielding is enough for what is nearly there; the sleeps after that leave the core to whoever
   * computes. A step counts for a second at most, so that a job that was suspended as a whole
   * (Ctrl-Z, a laptop's lid) does not find its time over when it wakes.
   */
  enum { YIELD_NS = 50000, FIRST_SLEEP_NS = 20000, LAST_SLEEP_NS = 100000, STEP_NS = 1000000000 };
  struct timespec nap = {.tv_nsec = FIRST_SLEEP_NS};
  int64_t last = gd_clock_ns(), waited = 0;
  for (;;) {
    int done = 0;
    GD_TRY(check_mpi(comm, comm->mpi.Testall(window->count, window->requests, &done, GD_MPI_IGNORE),
                     what, err));
    if (done) {
      window->count = 0;
      return GD_OK;
    }
    int64_t now = gd_clock_ns();
    waited += now - last < STEP_NS ? now - last : STEP_NS;
    last = now;
    if (waited < YIELD_NS) {
      sched_yield();
      continue;
    }
    if (waited > comm->timeout_ns)
      return stalled(comm, window, what, err);
    if (getppid() != comm->parent) {
      comm->failed = true;
      return gd_fail(err, GD_ENVIRONMENT,
                     "mpirun, which started this rank, is gone; the rank ends as well");
    }
    nanosleep(&nap, NULL);
    if (nap.tv_nsec < LAST_SLEEP_NS)
      nap.tv_nsec *= 2;
    if (nap.tv_nsec > LAST_SLEEP_NS)
      nap.tv_nsec = LAST_SLEEP_NS;
  }
}
