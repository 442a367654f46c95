/*
 * The two arenas of the CUDA backend: one on the GPU, one pinned on the host, and copies to and
 * from them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/cuda/runtime/cuda_program.h"

void gd_cuda_arenas_free(struct gd_cuda *cuda) {
  if (cuda->arena)
    cuda->cu->MemFree(cuda->arena);
  if (cuda->host)
    gd_cuda_unpin(&cuda->base, cuda->host, cuda->host_bytes);
  cuda->arena = 0;
  cuda->host = NULL;
  cuda->arena_bytes = cuda->host_bytes = 0;
}

static int64_t used_bytes(const struct gd_cuda *cuda) {
  size_t free_bytes = 0, total = 0;
  if (cuda->cu->MemGetInfo(&free_bytes, &total) != CUDA_SUCCESS)
    return -1;
  return (int64_t)(total - free_bytes);
}

/*
 * Host memory that copies can overlap with: zeroed by the system as all threads touch it, in huge
 * pages where there are such, then pinned. The driver's own allocation does both with one thread,
 * 4 KiB at a time: many seconds for the state of a large model.
 */
static enum gd_status pin(struct gd_cuda *cuda, int64_t bytes, void **pinned,
                          struct gd_error *err) {
  enum { PAGE_BYTES = 4096 };
  char size[32];
  void *at = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED)
    return gd_fail(err, GD_NOMEM_HOST, "the system refuses %s of host memory: %s",
                   gd_format_bytes(size, sizeof size, bytes), strerror(errno));
  madvise(at, (size_t)bytes, MADV_HUGEPAGE); /* a wish */
  /* Children that build kernels do without: pinned pages would be copied for each of them. */
  madvise(at, (size_t)bytes, MADV_DONTFORK);
  volatile char *page = at;
#pragma omp parallel for schedule(static)
  for (int64_t i = 0; i < bytes; i += PAGE_BYTES)
    page[i] = 0;
  enum gd_status status =
      gd_cuda_check_pinned(cuda, cuda->cu->MemHostRegister(at, (size_t)bytes, 0), bytes, err);
  if (status != GD_OK) {
    munmap(at, (size_t)bytes);
    return status;
  }
  *pinned = at;
  return GD_OK;
}

void *gd_cuda_pin(struct gd_backend *backend, int64_t bytes) {
  void *pinned;
  struct gd_error unused = {0};
  return pin(gd_cuda_of(backend), bytes, &pinned, &unused) == GD_OK ? pinned : NULL;
}

void gd_cuda_unpin(struct gd_backend *backend, void *at, int64_t bytes) {
  gd_cuda_of(backend)->cu->MemHostUnregister(at);
  munmap(at, (size_t)bytes);
}

enum gd_status gd_cuda_arenas_make(struct gd_cuda *cuda, int64_t device_bytes, int64_t host_bytes,
                                   struct gd_error *err) {
  char size[32], left[256];
  GD_TRY(gd_cuda_context(cuda, err));
  gd_cuda_arenas_free(cuda);
  int64_t before = used_bytes(cuda);
  if (device_bytes > 0) {
    int result = cuda->cu->MemAlloc(&cuda->arena, (size_t)device_bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      return gd_fail(err, GD_NOMEM_DEVICE, "the GPU refuses %s: %s",
                     gd_format_bytes(size, sizeof size, device_bytes),
                     gd_cuda_say_free(cuda, left, sizeof left));
    GD_CUDA_TRY(result, "cuMemAlloc");
    cuda->arena_bytes = device_bytes;
    GD_CUDA_TRY(cuda->cu->MemsetD8Async(cuda->arena, 0, (size_t)device_bytes, cuda->stream),
                "cuMemset");
  }
  int64_t after = used_bytes(cuda);
  cuda->measured_bytes = before < 0 || after < 0 ? -1 : after - before;
  if (host_bytes > 0) {
    GD_TRY(pin(cuda, host_bytes, &cuda->host, err));
    cuda->host_bytes = host_bytes;
  }
  GD_CUDA_TRY(cuda->cu->StreamSynchronize(cuda->stream), "cuStreamSynchronize");
  return GD_OK;
}

void *gd_cuda_host_memory(struct gd_backend *backend) {
  return gd_cuda_of(backend)->host;
}

void gd_cuda_usage(struct gd_backend *backend, int64_t *plan_bytes, int64_t *runtime_bytes) {
  struct gd_cuda *cuda = gd_cuda_of(backend);
  int64_t used = cuda->context ? used_bytes(cuda) : -1;
  int64_t others = used - cuda->measured_bytes; /* ours, unless others use the GPU */
  *plan_bytes = used < 0 ? -1 : cuda->measured_bytes;
  *runtime_bytes = used < 0 || cuda->measured_bytes < 0 || others > GD_CUDA_OWN_BYTES ? -1 : others;
}

/* Where NCCL's kernels are on the stream, other ranks may fail to come: it is not waited for ever.
 */
enum gd_status gd_cuda_wait(struct gd_cuda *cuda, CUstream stream, const char *what,
                            struct gd_error *err) {
  if (cuda->nccl)
    return gd_cuda_nccl_sync(cuda, stream, err);
  return gd_cuda_check(cuda, cuda->cu->StreamSynchronize(stream), what, err);
}

static CUdeviceptr device_address(const void *host) {
  return (CUdeviceptr)(uintptr_t)host; /* one address space for both: every 64-bit system */
}

enum gd_status gd_cuda_copy(struct gd_cuda *cuda, void *to, const void *from, int64_t bytes,
                            CUstream stream, struct gd_error *err) {
  if (bytes == 0)
    return GD_OK;
  return gd_cuda_check(
      cuda, cuda->cu->MemcpyAsync(device_address(to), device_address(from), (size_t)bytes, stream),
      "cuMemcpyAsync", err);
}

static enum gd_status copy(struct gd_cuda *cuda, CUdeviceptr to, CUdeviceptr from, int64_t bytes,
                           struct gd_error *err) {
  if (bytes == 0)
    return GD_OK;
  GD_CUDA_TRY(cuda->cu->MemcpyAsync(to, from, (size_t)bytes, cuda->stream), "cuMemcpy");
  return gd_cuda_wait(cuda, cuda->stream, "cuMemcpy", err);
}

static bool is_inside(const struct gd_cuda *cuda, enum gd_space space, int64_t offset_bytes,
                      int64_t bytes) {
  int64_t all_bytes = space == GD_SPACE_HOST ? cuda->host_bytes : cuda->arena_bytes;
  return offset_bytes >= 0 && bytes >= 0 && offset_bytes <= all_bytes - bytes;
}

enum gd_status gd_cuda_write(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                             const void *from, int64_t bytes, struct gd_error *err) {
  struct gd_cuda *cuda = gd_cuda_of(backend);
  GD_ASSERT(is_inside(cuda, space, offset_bytes, bytes));
  cuda->writes++;
  if (space == GD_SPACE_HOST) {
    memcpy((char *)cuda->host + offset_bytes, from, (size_t)bytes);
    return GD_OK;
  }
  return copy(cuda, cuda->arena + (CUdeviceptr)offset_bytes, device_address(from), bytes, err);
}

enum gd_status gd_cuda_clear(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                             int64_t bytes, struct gd_error *err) {
  struct gd_cuda *cuda = gd_cuda_of(backend);
  GD_ASSERT(is_inside(cuda, space, offset_bytes, bytes));
  cuda->writes++;
  if (space == GD_SPACE_HOST) {
    memset((char *)cuda->host + offset_bytes, 0, (size_t)bytes);
    return GD_OK;
  }
  if (bytes > 0)
    GD_CUDA_TRY(cuda->cu->MemsetD8Async(cuda->arena + (CUdeviceptr)offset_bytes, 0, (size_t)bytes,
                                        cuda->stream),
                "cuMemset");
  return GD_OK;
}

enum gd_status gd_cuda_read(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                            void *to, int64_t bytes, struct gd_error *err) {
  struct gd_cuda *cuda = gd_cuda_of(backend);
  GD_ASSERT(is_inside(cuda, space, offset_bytes, bytes));
  if (space == GD_SPACE_HOST) {
    memcpy(to, (char *)cuda->host + offset_bytes, (size_t)bytes);
    return GD_OK;
  }
  return copy(cuda, device_address(to), cuda->arena + (CUdeviceptr)offset_bytes, bytes, err);
}
