/*
 * Collectives between GPUs by NCCL: the communicator, who may use it, and the four collectives of a
 * plan, put on a stream that may be capturing. MPI only starts the ranks and carries the
 * communicator's name.
 *
 * NCCL refuses two ranks on one GPU, and a rank may lack the library: then all ranks exchange
 * through host memory instead (cuda.c). All decide alike, by what all of them told each other.
 * GPUDAYS_NCCL=off keeps to host memory; GPUDAYS_NCCL=on makes that a failure, and sends the
 * collectives of a single rank through NCCL too.
 */
#include "backend/cuda/nccl.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda_int.h"
#include "base/clock.h"

enum wish { WISH_IF_POSSIBLE, WISH_NEVER, WISH_ALWAYS };

struct gd_cuda_nccl {
  const struct gd_nccl *api;
  ncclComm_t comm;
  int rank, size;
};

/* What a rank tells the others before anything is decided. */
struct answer {
  int32_t found, wish;
};

static enum wish own_wish(void) {
  const char *text = getenv("GPUDAYS_NCCL");
  return !text || !text[0] ? WISH_IF_POSSIBLE : strcmp(text, "off") == 0 ? WISH_NEVER : WISH_ALWAYS;
}

static enum gd_status check(int result, const char *what, struct gd_error *err) {
  if (result == ncclSuccess || result == ncclInProgress)
    return GD_OK;
  return gd_fail(err, GD_ENVIRONMENT,
                 "NCCL fails in %s (result %d); NCCL_DEBUG=INFO says more, GPUDAYS_NCCL=off does "
                 "without it",
                 what, result);
}

/* Whether all ranks will use it; the same answer on every rank. */
static enum gd_status decide(const struct answer *answers, int size, bool shared, bool *use,
                             struct gd_error *err) {
  bool found = true, always = false, never = false;
  for (int i = 0; i < size; i++) {
    found &= answers[i].found != 0;
    always |= answers[i].wish == WISH_ALWAYS;
    never |= answers[i].wish == WISH_NEVER;
  }
  *use = found && !shared && !never && (size > 1 || always);
  if (always && !*use)
    return gd_fail(err, GD_ENVIRONMENT, "GPUDAYS_NCCL=on cannot be had: %s",
                   never    ? "another rank has GPUDAYS_NCCL=off"
                   : shared ? "ranks share a GPU, which NCCL refuses"
                            : "a rank does not find the library; see gpudays doctor there");
  return GD_OK;
}

static enum gd_status exchange_answers(struct gd_cuda *cuda, bool found, int size, bool *use,
                                       struct gd_error *err) {
  struct answer *answers = gd_mem_alloc((size_t)size, sizeof *answers);
  enum gd_status status = GD_OK;
  if (!answers)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while opening NCCL");
  answers[cuda->comm ? gd_comm_rank(cuda->comm) : 0] =
      (struct answer){.found = found, .wish = (int32_t)own_wish()};
  if (size > 1)
    status = gd_comm_all_gather(cuda->comm, answers, sizeof *answers, err);
  if (status == GD_OK)
    status = decide(answers, size, cuda->sharing > 1, use, err);
  gd_mem_free(answers);
  return status;
}

/* The first collective connects the ranks: here, not inside a program. */
static enum gd_status connect(struct gd_cuda *cuda, struct gd_cuda_nccl *nccl,
                              struct gd_error *err) {
  CUdeviceptr small = 0;
  GD_TRY(gd_cuda_check(cuda, cuda->cu->MemAlloc(&small, sizeof(float)), "cuMemAlloc", err));
  void *data = (void *)(uintptr_t)small;
  enum gd_status status =
      check(nccl->api->AllReduce(data, data, 1, ncclFloat32, ncclSum, nccl->comm, cuda->side),
            "ncclAllReduce", err);
  if (status == GD_OK)
    status = gd_cuda_check(cuda, cuda->cu->StreamSynchronize(cuda->side), "ncclAllReduce", err);
  cuda->cu->MemFree(small);
  return status;
}

static enum gd_status join(struct gd_cuda *cuda, struct gd_cuda_nccl *nccl, struct gd_error *err) {
  ncclUniqueId id = {0};
  if (nccl->rank == 0)
    GD_TRY(check(nccl->api->GetUniqueId(&id), "ncclGetUniqueId", err));
  if (nccl->size > 1)
    GD_TRY(gd_comm_broadcast(cuda->comm, &id, sizeof id, 0, err));
  GD_TRY(check(nccl->api->CommInitRank(&nccl->comm, nccl->size, id, nccl->rank), "ncclCommInitRank",
               err));
  return connect(cuda, nccl, err);
}

enum gd_status gd_cuda_nccl_open(struct gd_cuda *cuda, struct gd_error *err) {
  const struct gd_nccl *api = NULL;
  int size = cuda->comm ? gd_comm_size(cuda->comm) : 1;
  bool use = false;
  if (cuda->nccl_decided || (size == 1 && own_wish() != WISH_ALWAYS))
    return GD_OK;
  bool found = gd_nccl_load(&api, NULL) == GD_OK;
  GD_TRY(exchange_answers(cuda, found, size, &use, err));
  cuda->nccl_decided = true;
  if (!use)
    return GD_OK;
  struct gd_cuda_nccl *nccl = gd_mem_alloc(1, sizeof *nccl);
  if (!nccl)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while opening NCCL");
  *nccl = (struct gd_cuda_nccl){
      .api = api, .size = size, .rank = cuda->comm ? gd_comm_rank(cuda->comm) : 0};
  cuda->nccl = nccl;
  return join(cuda, nccl, err);
}

void gd_cuda_nccl_free(struct gd_cuda *cuda) {
  struct gd_cuda_nccl *nccl = cuda->nccl;
  if (nccl && nccl->comm) {
    /* Destroying waits for the other ranks, who may not come any more. */
    if (cuda->host_error.status == GD_OK && !cuda->broken &&
        !(cuda->comm && gd_comm_has_failed(cuda->comm)))
      nccl->api->CommDestroy(nccl->comm);
    else
      nccl->api->CommAbort(nccl->comm);
  }
  gd_mem_free(nccl);
  cuda->nccl = NULL;
}

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
  switch (kind) {
  case GD_OP_all_reduce:
    GD_ASSERT(dtype == GD_DTYPE_F32);
    return check(
        api->AllReduce(whole, whole, (size_t)elements, ncclFloat32, ncclSum, nccl->comm, stream),
        "ncclAllReduce", err);
  case GD_OP_reduce_scatter:
    GD_ASSERT(dtype == GD_DTYPE_F32);
    return check(
        api->ReduceScatter(whole, own, (size_t)slice, ncclFloat32, ncclSum, nccl->comm, stream),
        "ncclReduceScatter", err);
  default: /* all_gather, gather: bytes */
    return check(api->AllGather(own, whole, (size_t)slice_bytes, ncclUint8, nccl->comm, stream),
                 "ncclAllGather", err);
  }
}

/* A rank that stays away leaves the others' kernels waiting for ever: they must be given up. */
static enum gd_status give_up(struct gd_cuda *cuda, const char *why, struct gd_error *err) {
  struct gd_cuda_nccl *nccl = cuda->nccl;
  nccl->api->CommAbort(nccl->comm);
  nccl->comm = NULL;
  return gd_fail(err, GD_ENVIRONMENT,
                 "rank %d waits for the other ranks in vain (%s); look at their machines, or raise "
                 "--rank-timeout",
                 nccl->rank, why);
}

/*
 * A step counts for a second at most, as comm.c has it: a job that was suspended as a whole has not
 * waited. The program's own work counts, since nobody sees from outside whether a graph computes or
 * waits.
 */
enum gd_status gd_cuda_nccl_sync(struct gd_cuda *cuda, struct gd_error *err) {
  enum { LOOK_NS = 100000000, STEP_NS = 1000000000 };
  struct gd_cuda_nccl *nccl = cuda->nccl;
  int64_t looked = gd_clock_ns(), waited = 0;
  double limit_s = cuda->comm ? gd_comm_timeout_s(cuda->comm) : 0;
  int result;
  if (!nccl->comm)
    return gd_fail(err, GD_ENVIRONMENT, "NCCL was given up after a failure");
  while ((result = cuda->cu->StreamQuery(cuda->stream)) == CUDA_ERROR_NOT_READY) {
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
