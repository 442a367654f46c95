/*
 * Collectives between GPUs by NCCL: the communicator, who may use it, and the four collectives of a
 * plan, put on a stream that may be capturing. MPI only starts the ranks and carries the
 * communicator's name.
 *
 * NCCL refuses two ranks on one GPU unless NCCL_MULTI_RANK_GPU_ENABLE=1 permits it (from 2.30.3
 * on), and a rank may lack the library: then all ranks exchange through host memory instead
 * (cuda_bind.c). All decide alike, from what all of them told each other. GPUDAYS_NCCL=off keeps to
 * host memory; GPUDAYS_NCCL=on makes that a failure, and sends the collectives of a single rank
 * through NCCL too.
 *
 * A rank that does not come leaves the kernels of the others waiting. ncclCommAbort ends these
 * kernels, but returns only after every captured graph that uses the communicator was destroyed,
 * which in turn needs the kernels to end: so it runs on a thread of its own while the graphs are
 * destroyed here.
 */
#define _POSIX_C_SOURCE 200809L
#include "backend/cuda/lib/nccl.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cuda/runtime/cuda_int.h"
#include "base/clock.h"
#include "base/switches.h"

enum wish { WISH_IF_POSSIBLE, WISH_NEVER, WISH_ALWAYS };

enum {
  SHARING_VERSION = 23003, /* the first that takes several ranks on one GPU, where it is told to */
  ABORT_S = 5,             /* for the kernels of an aborted communicator to end */
};

struct gd_cuda_nccl {
  const struct gd_nccl *api;
  ncclComm_t comm; /* NULL: aborted */
  int rank, size;
  ncclComm_t aborting; /* what the thread is busy with; NULL: there is no thread */
  pthread_t thread;
  atomic_bool aborted; /* the thread has ended */
};

/* What a rank tells the others before anything is decided. */
struct answer {
  int32_t found, wish, may_share;
};

static enum wish own_wish(void) {
  const char *text = gd_env("GPUDAYS_NCCL");
  return !text ? WISH_IF_POSSIBLE : strcmp(text, "off") == 0 ? WISH_NEVER : WISH_ALWAYS;
}

static enum gd_status check(int result, const char *what, struct gd_error *err) {
  if (result == ncclSuccess || result == ncclInProgress)
    return GD_OK;
  return gd_fail(err, GD_ENVIRONMENT,
                 "NCCL fails in %s (result %d); NCCL_DEBUG=INFO says more, GPUDAYS_NCCL=off does "
                 "without it",
                 what, result);
}

/* Whether this rank's NCCL takes several ranks on one GPU. */
static bool may_share(const struct gd_nccl *api) {
  const char *wish = gd_env("NCCL_MULTI_RANK_GPU_ENABLE");
  int version = 0;
  return wish && strcmp(wish, "1") == 0 && api->GetVersion(&version) == ncclSuccess &&
         version >= SHARING_VERSION;
}

/* Whether all ranks will use it; the same answer on every rank. */
static enum gd_status decide(const struct answer *answers, int size, bool shared, bool *use,
                             struct gd_error *err) {
  bool found = true, always = false, never = false, permitted = true;
  for (int i = 0; i < size; i++) {
    found &= answers[i].found != 0;
    permitted &= answers[i].may_share != 0;
    always |= answers[i].wish == WISH_ALWAYS;
    never |= answers[i].wish == WISH_NEVER;
  }
  shared = shared && !permitted;
  *use = found && !shared && !never && (size > 1 || always);
  if (always && !*use)
    return gd_fail(err, GD_ENVIRONMENT, "GPUDAYS_NCCL=on cannot be had: %s",
                   never    ? "another rank has GPUDAYS_NCCL=off"
                   : shared ? "ranks share a GPU, which NCCL refuses (2.30.3 and later permit it "
                              "with NCCL_MULTI_RANK_GPU_ENABLE=1)"
                            : "a rank does not find the library; see gpudays doctor there");
  return GD_OK;
}

static enum gd_status exchange_answers(struct gd_cuda *cuda, const struct gd_nccl *api, int size,
                                       bool *use, struct gd_error *err) {
  struct answer *answers = gd_mem_alloc((size_t)size, sizeof *answers);
  enum gd_status status = GD_OK;
  if (!answers)
    return gd_nomem(err, "while opening NCCL");
  answers[cuda->comm ? gd_comm_rank(cuda->comm) : 0] = (struct answer){
      .found = api != NULL, .wish = (int32_t)own_wish(), .may_share = api && may_share(api)};
  if (size > 1)
    status = gd_comm_all_gather(cuda->comm, answers, sizeof *answers, err);
  if (status == GD_OK)
    status = decide(answers, size, cuda->sharing > 1, use, err);
  gd_mem_free(answers);
  return status;
}

static enum gd_status join(struct gd_cuda *cuda, struct gd_cuda_nccl *nccl, struct gd_error *err) {
  ncclUniqueId id = {0};
  if (nccl->rank == 0)
    GD_TRY(check(nccl->api->GetUniqueId(&id), "ncclGetUniqueId", err));
  if (nccl->size > 1)
    GD_TRY(gd_comm_broadcast(cuda->comm, &id, sizeof id, 0, err));
  struct gd_comm_guard *guard = NULL;
  GD_TRY(gd_comm_guard_begin(cuda->comm, "ncclCommInitRank", &guard, err));
  int result = nccl->api->CommInitRank(&nccl->comm, nccl->size, id, nccl->rank);
  gd_comm_guard_end(guard);
  return check(result, "ncclCommInitRank", err);
}

enum gd_status gd_cuda_nccl_open(struct gd_cuda *cuda, struct gd_error *err) {
  const struct gd_nccl *api = NULL;
  int size = cuda->comm ? gd_comm_size(cuda->comm) : 1;
  bool use = false;
  if (cuda->nccl_decided || (size == 1 && own_wish() != WISH_ALWAYS))
    return GD_OK;
  if (gd_nccl_load(&api, NULL) != GD_OK)
    api = NULL;
  GD_TRY(exchange_answers(cuda, api, size, &use, err));
  cuda->nccl_decided = true;
  if (!use)
    return GD_OK;
  GD_ASSERT(api); /* all ranks have found it */
  struct gd_cuda_nccl *nccl = gd_mem_alloc(1, sizeof *nccl);
  if (!nccl)
    return gd_nomem(err, "while opening NCCL");
  *nccl = (struct gd_cuda_nccl){
      .api = api, .size = size, .rank = cuda->comm ? gd_comm_rank(cuda->comm) : 0};
  cuda->nccl = nccl;
  return join(cuda, nccl, err);
}

/* --- giving up ------------------------------------------------------------------------------- */

static void *abort_communicator(void *user) {
  struct gd_cuda_nccl *nccl = user;
  nccl->api->CommAbort(nccl->aborting);
  atomic_store(&nccl->aborted, true);
  return NULL;
}

/* The kernels of this rank end; the communicator is gone as soon as its graphs are. */
static void start_abort(struct gd_cuda_nccl *nccl) {
  if (!nccl->comm)
    return;
  nccl->aborting = nccl->comm;
  nccl->comm = NULL;
  if (pthread_create(&nccl->thread, NULL, abort_communicator, nccl) != 0)
    nccl->aborting = NULL; /* the process ends with it as it is */
}

static void nap(void) {
  nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
}

static bool is_busy(const struct gd_cuda *cuda) {
  return cuda->cu->StreamQuery(cuda->stream) == CUDA_ERROR_NOT_READY ||
         cuda->cu->StreamQuery(cuda->comm_stream) == CUDA_ERROR_NOT_READY;
}

void gd_cuda_nccl_drain(struct gd_cuda *cuda) {
  struct gd_cuda_nccl *nccl = cuda->nccl;
  bool failed = cuda->host_error.status != GD_OK || (cuda->comm && gd_comm_has_failed(cuda->comm));
  /* Where nothing has failed, the others are on their way, or the wait fails at its limit. */
  if (nccl->comm && !failed && gd_cuda_nccl_sync(cuda, cuda->stream, NULL) == GD_OK)
    return;
  if (is_busy(cuda))
    start_abort(nccl);
  int64_t start = gd_clock_ns();
  while (is_busy(cuda)) {
    if (gd_clock_ns() - start > ABORT_S * INT64_C(1000000000)) {
      cuda->stuck = true;
      return;
    }
    nap();
  }
}

/*
 * Destroying waits for the other ranks, who may not come any more; then it is aborted. A context
 * that is lost cannot tell NCCL that its graphs are gone, and it would wait for that for ever:
 * nothing is asked of it, and the process takes all with it when it ends.
 */
void gd_cuda_nccl_free(struct gd_cuda *cuda) {
  struct gd_cuda_nccl *nccl = cuda->nccl;
  cuda->nccl = NULL;
  if (!nccl || cuda->broken || cuda->stuck)
    return;
  bool failed = cuda->host_error.status != GD_OK || (cuda->comm && gd_comm_has_failed(cuda->comm));
  if (nccl->comm && !failed)
    nccl->api->CommDestroy(nccl->comm);
  else
    start_abort(nccl);
  int64_t start = gd_clock_ns();
  while (nccl->aborting && !atomic_load(&nccl->aborted)) {
    if (gd_clock_ns() - start > ABORT_S * INT64_C(1000000000))
      return; /* the thread still reads it */
    nap();
  }
  if (nccl->aborting)
    pthread_join(nccl->thread, NULL);
  gd_mem_free(nccl);
}

/* --- collectives ----------------------------------------------------------------------------- */

enum gd_status gd_cuda_nccl_put(struct gd_cuda *cuda, enum gd_op_kind kind, void *whole,
                                int64_t elements, enum gd_dtype dtype, CUstream stream,
                                struct gd_error *err) {
  const struct gd_cuda_nccl *nccl = cuda->nccl;
  const struct gd_nccl *api = nccl->api;
  int64_t slice = elements / nccl->size, slice_bytes = slice * gd_dtype_bytes(dtype);
  char *own = (char *)whole + nccl->rank * slice_bytes;
  GD_ASSERT(elements % nccl->size == 0);
  if (elements == 0)
    return GD_OK;
  switch (gd_op_info(kind)->exchange) {
  case GD_EXCHANGE_SUM_AND_SHARE:
    GD_ASSERT(dtype == GD_DTYPE_F32);
    return check(
        api->AllReduce(whole, whole, (size_t)elements, ncclFloat32, ncclSum, nccl->comm, stream),
        "ncclAllReduce", err);
  case GD_EXCHANGE_SUM:
    GD_ASSERT(dtype == GD_DTYPE_F32);
    return check(
        api->ReduceScatter(whole, own, (size_t)slice, ncclFloat32, ncclSum, nccl->comm, stream),
        "ncclReduceScatter", err);
  default: /* slices are shared: bytes */
    return check(api->AllGather(own, whole, (size_t)slice_bytes, ncclUint8, nccl->comm, stream),
                 "ncclAllGather", err);
  }
}

static enum gd_status give_up(struct gd_cuda *cuda, const char *why, struct gd_error *err) {
  start_abort(cuda->nccl);
  return gd_fail(err, GD_ENVIRONMENT,
                 "rank %d waits for the other ranks in vain (%s); look at their machines, or raise "
                 "--rank-timeout",
                 cuda->nccl->rank, why);
}

/*
 * A step counts for a second at most, as comm.c has it: a job that was suspended as a whole has not
 * waited. The program's own work counts, since nobody sees from outside whether a graph computes or
 * waits.
 */
enum gd_status gd_cuda_nccl_sync(struct gd_cuda *cuda, CUstream stream, struct gd_error *err) {
  enum { LOOK_NS = 100000000, STEP_NS = 1000000000 };
  struct gd_cuda_nccl *nccl = cuda->nccl;
  int64_t looked = gd_clock_ns(), waited = 0;
  double limit_s = cuda->comm ? gd_comm_timeout_s(cuda->comm) : 0;
  int result;
  if (!nccl->comm)
    return gd_fail(err, GD_ENVIRONMENT, "NCCL was aborted after a failure");
  while ((result = cuda->cu->StreamQuery(stream)) == CUDA_ERROR_NOT_READY) {
    int64_t passed = gd_clock_ns() - looked;
    int failure = ncclSuccess;
    if (passed > LOOK_NS) {
      looked += passed;
      waited += passed < STEP_NS ? passed : STEP_NS;
      nccl->api->CommGetAsyncError(nccl->comm, &failure);
      if (failure != ncclSuccess && failure != ncclInProgress)
        return give_up(cuda, "NCCL reports an error", err);
      if (limit_s > 0 && 1e-9 * (double)waited > limit_s)
        return give_up(cuda, "the time is up", err);
    }
    sched_yield();
  }
  return gd_cuda_check(cuda, result, "a program", err);
}
