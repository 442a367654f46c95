/*
 * The part of cuDNN 9 that gpudays uses, loaded at run time as driver.h has it: the graph interface
 * in C. Names and values are the library's own.
 */
#ifndef GD_BACKEND_CUDA_LIB_CUDNN_H
#define GD_BACKEND_CUDA_LIB_CUDNN_H

#include "backend/cuda/runtime/driver.h"

typedef struct cudnnContext *cudnnHandle_t;
typedef void *cudnnBackendDescriptor_t;

#define GD_CUDNN_FUNCTIONS(X)                                                                    \
  X(Create, cudnnCreate, (cudnnHandle_t * handle))                                               \
  X(Destroy, cudnnDestroy, (cudnnHandle_t handle))                                               \
  X(SetStream, cudnnSetStream, (cudnnHandle_t handle, CUstream stream))                          \
  X(BackendCreateDescriptor, cudnnBackendCreateDescriptor,                                       \
    (int type, cudnnBackendDescriptor_t *descriptor))                                            \
  X(BackendDestroyDescriptor, cudnnBackendDestroyDescriptor,                                     \
    (cudnnBackendDescriptor_t descriptor))                                                       \
  X(BackendSetAttribute, cudnnBackendSetAttribute,                                               \
    (cudnnBackendDescriptor_t descriptor, int name, int type, int64_t count,                     \
     const void *elements))                                                                      \
  X(BackendGetAttribute, cudnnBackendGetAttribute,                                               \
    (cudnnBackendDescriptor_t descriptor, int name, int type, int64_t requested, int64_t *count, \
     void *elements))                                                                            \
  X(BackendFinalize, cudnnBackendFinalize, (cudnnBackendDescriptor_t descriptor))                \
  X(BackendExecute, cudnnBackendExecute,                                                         \
    (cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack))

/* NOLINTBEGIN(bugprone-macro-parentheses) */
struct gd_cudnn {
  GD_CUDNN_FUNCTIONS(GD_CU_FIELD)
};
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
