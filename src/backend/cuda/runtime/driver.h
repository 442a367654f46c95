/*
 * The part of the CUDA driver and of NVRTC that gpudays uses, declared here and loaded at run time
 * (load.c): the build needs no CUDA toolkit, and one binary serves machines with and without a GPU.
 * Names and values are those of the libraries' own interfaces.
 */
#ifndef GD_BACKEND_CUDA_RUNTIME_DRIVER_H
#define GD_BACKEND_CUDA_RUNTIME_DRIVER_H

#include <stddef.h>
#include <stdint.h>

typedef int CUdevice;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphNode_st *CUgraphNode;
typedef struct CUgraphExec_st *CUgraphExec;

enum {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_OUT_OF_MEMORY = 2,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_NOT_READY = 600,

  CU_DEVICE_ATTRIBUTE_CLOCK_RATE = 13, /* kHz */
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,

  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,

  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DEFAULT = 0,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
  CU_STREAM_CAPTURE_STATUS_ACTIVE = 1,

  CU_GRAPH_NODE_TYPE_KERNEL = 0,
  CU_GRAPH_NODE_TYPE_MEMCPY = 1,
  CU_GRAPH_NODE_TYPE_MEMSET = 2,
};

/* Field, symbol, parameters; each returns CUDA_SUCCESS or an error. */
#define GD_CU_FUNCTIONS(X)                                                                         \
  X(Init, cuInit, (unsigned flags))                                                                \
  X(DriverGetVersion, cuDriverGetVersion, (int *version))                                          \
  X(GetErrorName, cuGetErrorName, (int error, const char **text))                                  \
  X(GetErrorString, cuGetErrorString, (int error, const char **text))                              \
  X(DeviceGetCount, cuDeviceGetCount, (int *count))                                                \
  X(DeviceGet, cuDeviceGet, (CUdevice * device, int ordinal))                                      \
  X(DeviceGetName, cuDeviceGetName, (char *name, int size, CUdevice device))                       \
  X(DeviceGetAttribute, cuDeviceGetAttribute, (int *value, int attribute, CUdevice device))        \
  X(DeviceGetUuid, cuDeviceGetUuid_v2, (unsigned char uuid[16], CUdevice device))                  \
  X(DeviceGetPCIBusId, cuDeviceGetPCIBusId, (char *bus_id, int size, CUdevice device))             \
  X(DeviceTotalMem, cuDeviceTotalMem_v2, (size_t * bytes, CUdevice device))                        \
  X(DevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))      \
  X(CtxSetCurrent, cuCtxSetCurrent, (CUcontext context))                                           \
  X(CtxSynchronize, cuCtxSynchronize, (void))                                                      \
  X(MemGetInfo, cuMemGetInfo_v2, (size_t * free_bytes, size_t * total_bytes))                      \
  X(MemAlloc, cuMemAlloc_v2, (CUdeviceptr * at, size_t bytes))                                     \
  X(MemFree, cuMemFree_v2, (CUdeviceptr at))                                                       \
  X(MemHostRegister, cuMemHostRegister_v2, (void *at, size_t bytes, unsigned flags))               \
  X(MemHostUnregister, cuMemHostUnregister, (void *at))                                            \
  X(MemHostAlloc, cuMemHostAlloc, (void **at, size_t bytes, unsigned flags))                       \
  X(MemFreeHost, cuMemFreeHost, (void *at))                                                        \
  X(MemcpyAsync, cuMemcpyAsync, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream)) \
  X(MemsetD8Async, cuMemsetD8Async,                                                                \
    (CUdeviceptr at, unsigned char value, size_t bytes, CUstream stream))                          \
  X(StreamCreate, cuStreamCreate, (CUstream * stream, unsigned flags))                             \
  X(StreamDestroy, cuStreamDestroy_v2, (CUstream stream))                                          \
  X(StreamQuery, cuStreamQuery, (CUstream stream))                                                 \
  X(StreamSynchronize, cuStreamSynchronize, (CUstream stream))                                     \
  X(StreamWaitEvent, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))          \
  X(StreamBeginCapture, cuStreamBeginCapture_v2, (CUstream stream, int mode))                      \
  X(StreamEndCapture, cuStreamEndCapture, (CUstream stream, CUgraph * graph))                      \
  X(EventCreate, cuEventCreate, (CUevent * event, unsigned flags))                                 \
  X(EventDestroy, cuEventDestroy_v2, (CUevent event))                                              \
  X(EventRecord, cuEventRecord, (CUevent event, CUstream stream))                                  \
  X(EventSynchronize, cuEventSynchronize, (CUevent event))                                         \
  X(EventElapsedTime, cuEventElapsedTime, (float *milliseconds, CUevent begin, CUevent end))       \
  X(ModuleLoadData, cuModuleLoadData, (CUmodule * module, const void *image))                      \
  X(ModuleUnload, cuModuleUnload, (CUmodule module))                                               \
  X(ModuleGetFunction, cuModuleGetFunction,                                                        \
    (CUfunction * function, CUmodule module, const char *name))                                    \
  X(FuncGetAttribute, cuFuncGetAttribute, (int *value, int attribute, CUfunction function))        \
  X(FuncSetAttribute, cuFuncSetAttribute, (CUfunction function, int attribute, int value))         \
  X(LaunchKernel, cuLaunchKernel,                                                                  \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,     \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void **params,    \
     void **extra))                                                                                \
  X(LaunchHostFunc, cuLaunchHostFunc, (CUstream stream, void (*run)(void *job), void *job))        \
  X(GraphInstantiate, cuGraphInstantiateWithFlags,                                                 \
    (CUgraphExec * exec, CUgraph graph, unsigned long long flags))                                 \
  X(GraphLaunch, cuGraphLaunch, (CUgraphExec exec, CUstream stream))                               \
  X(GraphExecDestroy, cuGraphExecDestroy, (CUgraphExec exec))                                      \
  X(GraphDestroy, cuGraphDestroy, (CUgraph graph))

/* Of the same library, from CUDA 11.6 on: what switches nodes of a graph off and on. */
#define GD_CU_NODE_FUNCTIONS(X)                                                             \
  X(StreamGetCaptureInfo, cuStreamGetCaptureInfo_v2,                                        \
    (CUstream stream, int *status, uint64_t *id, CUgraph *graph, const CUgraphNode **last,  \
     size_t *n_last))                                                                       \
  X(GraphGetNodes, cuGraphGetNodes, (CUgraph graph, CUgraphNode * nodes, size_t * n_nodes)) \
  X(GraphNodeGetType, cuGraphNodeGetType, (CUgraphNode node, int *type))                    \
  X(GraphNodeSetEnabled, cuGraphNodeSetEnabled,                                             \
    (CUgraphExec exec, CUgraphNode node, unsigned enabled))

typedef struct nvrtc_program_st *nvrtcProgram;
enum { NVRTC_ERROR_INVALID_OPTION = 5 };

#define GD_NVRTC_FUNCTIONS(X)                                                          \
  X(Version, nvrtcVersion, (int *major, int *minor))                                   \
  X(CreateProgram, nvrtcCreateProgram,                                                 \
    (nvrtcProgram * program, const char *source, const char *name, int headers,        \
     const char *const *header_texts, const char *const *header_names))                \
  X(CompileProgram, nvrtcCompileProgram,                                               \
    (nvrtcProgram program, int options, const char *const *option_texts))              \
  X(GetProgramLogSize, nvrtcGetProgramLogSize, (nvrtcProgram program, size_t * bytes)) \
  X(GetProgramLog, nvrtcGetProgramLog, (nvrtcProgram program, char *log))              \
  X(GetCUBINSize, nvrtcGetCUBINSize, (nvrtcProgram program, size_t * bytes))           \
  X(GetCUBIN, nvrtcGetCUBIN, (nvrtcProgram program, char *cubin))                      \
  X(DestroyProgram, nvrtcDestroyProgram, (nvrtcProgram * program))

/* A declarator cannot be put in parentheses. NOLINTBEGIN(bugprone-macro-parentheses) */
#define GD_CU_FIELD(field, symbol, parameters) int(*field) parameters;
struct gd_cu {
  GD_CU_FUNCTIONS(GD_CU_FIELD)
};
struct gd_cu_nodes {
  GD_CU_NODE_FUNCTIONS(GD_CU_FIELD)
};
struct gd_nvrtc {
  GD_NVRTC_FUNCTIONS(GD_CU_FIELD)
};
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
