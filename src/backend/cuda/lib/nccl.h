/*
 * The part of NCCL 2 that gpudays uses, loaded at run time as driver.h has it. Names and values are
 * the library's own.
 */
#ifndef GD_BACKEND_CUDA_LIB_NCCL_H
#define GD_BACKEND_CUDA_LIB_NCCL_H

#include "backend/cuda/runtime/driver.h"

typedef struct ncclComm *ncclComm_t;
typedef struct {
  char internal[128];
} ncclUniqueId;

enum {
  ncclSuccess = 0,
  ncclInProgress = 7,
  ncclUint8 = 1, /* ncclDataType_t */
  ncclFloat32 = 7,
  ncclSum = 0, /* ncclRedOp_t */
};

#define GD_NCCL_FUNCTIONS(X)                                                                   \
  X(GetVersion, ncclGetVersion, (int *version))                                                \
  X(GetUniqueId, ncclGetUniqueId, (ncclUniqueId * id))                                         \
  X(CommInitRank, ncclCommInitRank, (ncclComm_t * comm, int ranks, ncclUniqueId id, int rank)) \
  X(CommDestroy, ncclCommDestroy, (ncclComm_t comm))                                           \
  X(CommAbort, ncclCommAbort, (ncclComm_t comm))                                               \
  X(CommGetAsyncError, ncclCommGetAsyncError, (ncclComm_t comm, int *error))                   \
  X(AllReduce, ncclAllReduce,                                                                  \
    (const void *send, void *receive, size_t count, int type, int op, ncclComm_t comm,         \
     CUstream stream))                                                                         \
  X(ReduceScatter, ncclReduceScatter,                                                          \
    (const void *send, void *receive, size_t count, int type, int op, ncclComm_t comm,         \
     CUstream stream))                                                                         \
  X(AllGather, ncclAllGather,                                                                  \
    (const void *send, void *receive, size_t count, int type, ncclComm_t comm, CUstream stream))

/* NOLINTBEGIN(bugprone-macro-parentheses) */
struct gd_nccl {
  GD_NCCL_FUNCTIONS(GD_CU_FIELD)
};
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
