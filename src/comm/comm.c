/*
 * Joining and leaving a job; see comm.h. Messages are in window.c, the collectives on top in
 * collective.c.
 */
#define _GNU_SOURCE /* sched_getaffinity, process_vm_readv */
#include "comm/comm.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/strbuf.h"
#include "base/switches.h"
#include "comm/comm_int.h"

enum { DEFAULT_TIMEOUT_S = 300 };

/* --- where this process stands ------------------------------------------------------------- */

static bool read_variable(const char *name, int64_t low, int *value) {
  const char *text = gd_env(name);
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
      return n != 1; /* a step of one task, as srun --pty bash is, has nobody to exchange with */
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

bool gd_comm_version(char *text, size_t size) {
  return gd_mpi_version(text, size);
}

enum gd_status gd_comm_check(struct gd_comm *comm, int code, const char *what,
                             struct gd_error *err) {
  char text[GD_MPI_MAX_ERROR_STRING + 1] = "unknown error";
  int length = 0;
  if (code == GD_MPI_SUCCESS)
    return GD_OK;
  gd_comm_fail(comm);
  comm->mpi.Error_string(code, text, &length);
  return gd_fail(err, GD_ENVIRONMENT, "MPI failed in %s: %s", what, text);
}

/* What the watchdog is to say; see watchdog.c. */
struct joining {
  const struct gd_comm_start *start;
  int rank, size; /* as the environment has it; size 0: not known */
  double timeout_s;
  _Atomic bool loaded; /* the library is; what takes time is MPI_Init */
};

static void say_stalled(void *user) {
  struct joining *joining = user;
  struct gd_error err = {0};
  char job[32] = "all ranks";
  enum gd_status status;
  if (joining->size > 0)
    snprintf(job, sizeof job, "all %d ranks", joining->size);
  if (atomic_load(&joining->loaded))
    status = gd_fail(&err, GD_ENVIRONMENT,
                     "rank %d has waited %.3g s in MPI_Init, which ends when %s are there: one of "
                     "them must be stopped, stuck or not started; look for it (ps, top), or raise "
                     "--rank-timeout",
                     joining->rank, joining->timeout_s, job);
  else
    status = gd_fail(&err, GD_ENVIRONMENT,
                     "rank %d has waited %.3g s for libmpi.so to be loaded: its file system must "
                     "be slow or gone; look there, or raise --rank-timeout",
                     joining->rank, joining->timeout_s);
  if (status != GD_OK)
    joining->start->stalled(joining->start->user, &err);
}

static enum gd_status start_mpi(struct gd_comm *comm, struct joining *joining,
                                struct gd_error *err) {
  const struct gd_mpi *mpi = &comm->mpi;
  int before = 0, after = 0, level = 0, expected = joining->size;
  GD_TRY(gd_mpi_load(&comm->mpi, err));
  GD_TRY(gd_comm_check(comm, mpi->Initialized(&before), "MPI_Initialized", err));
  GD_TRY(gd_comm_check(comm, mpi->Finalized(&after), "MPI_Finalized", err));
  if (before || after)
    return gd_fail(err, GD_INTERNAL, "a process joins its job once; this one has %s",
                   after ? "left it" : "joined before");
  prepare_environment();
  atomic_store(&joining->loaded, true);
  GD_TRY(gd_comm_check(comm, mpi->Init_thread(NULL, NULL, GD_MPI_THREAD_SERIALIZED, &level),
                       "MPI_Init_thread", err));
  comm->joined = true;
  GD_TRY(gd_comm_check(comm, mpi->Comm_set_errhandler(mpi->world, mpi->errors),
                       "MPI_Comm_set_errhandler", err));
  GD_TRY(gd_comm_check(comm, mpi->Comm_rank(mpi->world, &comm->rank), "MPI_Comm_rank", err));
  GD_TRY(gd_comm_check(comm, mpi->Comm_size(mpi->world, &comm->size), "MPI_Comm_size", err));
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
  uint64_t host; /* a hash of its name */
  cpu_set_t mask;
  int64_t cores; /* that this rank may run on */
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
  struct seat seat = {0};
  if (gethostname(name, sizeof name - 1) == 0)
    seat.host = hash_of(name, strlen(name));
  if (sched_getaffinity(0, sizeof seat.mask, &seat.mask) == 0)
    seat.cores = CPU_COUNT(&seat.mask);
  else /* more cores than a cpu_set_t has: an empty mask, alike on all */
    seat.cores = sysconf(_SC_NPROCESSORS_ONLN);
  return seat;
}

/* Cores that at least one rank of this machine may run on. */
static int cores_of_host(const struct gd_comm *comm, const struct seat *seats,
                         const struct seat *own) {
  cpu_set_t all;
  CPU_ZERO(&all);
  for (int i = 0; i < comm->size; i++)
    if (seats[i].host == own->host)
      CPU_OR(&all, &all, &seats[i].mask);
  return CPU_COUNT(&all) > 0 ? CPU_COUNT(&all) : (int)own->cores;
}

/* Who is on this machine. Ranks that were bound have masks of their own; others share one. */
static enum gd_status meet_neighbours(struct gd_comm *comm, struct gd_error *err) {
  struct seat own = own_seat(), *seats;
  int64_t sharers = 1;
  seats = gd_mem_alloc((size_t)comm->size, sizeof *seats);
  if (!seats)
    return gd_nomem(err, "while joining the job");
  seats[comm->rank] = own;
  enum gd_status status = gd_comm_all_gather(comm, seats, sizeof *seats, err);
  for (int i = 0; i < comm->size; i++)
    sharers += i != comm->rank && seats[i].host == own.host && CPU_EQUAL(&seats[i].mask, &own.mask);
  for (int i = 0; i < comm->rank; i++)
    comm->local_rank += seats[i].host == own.host;
  for (int i = 0; i < comm->size; i++) {
    int local = 0;
    for (int j = comm->size - 1; j >= 0; j--)
      if (seats[j].host == seats[i].host) {
        local++;
        comm->hosts[i] = j;
      }
    comm->local_size = local > comm->local_size ? local : comm->local_size;
  }
  comm->host_cores = cores_of_host(comm, seats, &own);
  gd_mem_free(seats);
  comm->allowed_cores = (int)own.cores;
  comm->cores = own.cores / sharers > 1 ? (int)(own.cores / sharers) : 1;
  return status;
}

/* --- open and close ------------------------------------------------------------------------ */

static enum gd_status allocate(struct gd_comm *comm, struct gd_error *err) {
  size_t messages = 2 * (size_t)comm->size;
  comm->scalars = gd_mem_alloc((size_t)comm->size * GD_COMM_SCALARS, sizeof *comm->scalars);
  comm->hosts = gd_mem_alloc((size_t)comm->size, sizeof *comm->hosts);
  bool all = comm->scalars && comm->hosts;
  for (int i = 0; i < GD_COMM_WINDOWS; i++) {
    struct gd_window *window = &comm->windows[i];
    window->requests = gd_mem_alloc(messages, sizeof *window->requests);
    window->peers = gd_mem_alloc(messages, sizeof *window->peers);
    window->bytes = gd_mem_alloc(messages, sizeof *window->bytes);
    window->states = gd_mem_alloc(messages, sizeof *window->states);
    all = all && window->requests && window->peers && window->bytes && window->states;
  }
  if (!all)
    return gd_nomem(err, "while joining the job");
  return GD_OK;
}

/* Both loading the library (from a file system that hangs) and MPI_Init can last for ever. */
static enum gd_status start_watched(struct gd_comm *comm, struct joining *joining,
                                    struct gd_error *err) {
  struct gd_watchdog dog;
  bool watched = joining->start && joining->start->stalled;
  if (watched)
    GD_TRY(gd_watchdog_start(&dog, joining->timeout_s, say_stalled, joining, err));
  enum gd_status status = start_mpi(comm, joining, err);
  if (watched)
    gd_watchdog_stop(&dog);
  return status;
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
  joining.timeout_s = fmax(joining.timeout_s, GD_COMM_LEAST_START_S);
  if (gd_comm_in_job(&joining.rank, &joining.size) && joining.size != 1)
    GD_TRY(start_watched(comm, &joining, err));
  GD_TRY(allocate(comm, err));
  return meet_neighbours(comm, err);
}

enum gd_status gd_comm_open(struct gd_comm **comm, const struct gd_comm_start *start,
                            struct gd_error *err) {
  struct gd_comm *opened = gd_mem_alloc(1, sizeof *opened);
  if (!opened)
    return gd_nomem(err, "while joining the job");
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
    gd_mem_free(comm->windows[i].bytes);
    gd_mem_free(comm->windows[i].states);
  }
  gd_mem_free(comm->scalars);
  gd_mem_free(comm->hosts);
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

int gd_comm_allowed_cores(const struct gd_comm *comm) {
  return comm->allowed_cores;
}

int gd_comm_host(const struct gd_comm *comm, int rank) {
  GD_ASSERT(rank >= 0 && rank < comm->size);
  return comm->hosts[rank];
}

int gd_comm_host_cores(const struct gd_comm *comm) {
  return comm->host_cores;
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
