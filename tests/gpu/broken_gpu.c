/*
 * NVIDIA's driver with an illegal address: for test_cuda_failures.sh, which has it loaded in the
 * place of the real one. It needs that one, where all other functions are found.
 *
 * With $GD_TEST_BREAK=FILE the process that comes first, and makes FILE, has its largest
 * allocation taken away before its fifth launch of a graph, whose kernels then read what is not
 * there: the error is the GPU's own, and the context is lost.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cuda/runtime/driver.h"

enum { BREAKS_AT = 5, UNKNOWN = 999 };

int cuMemAlloc_v2(CUdeviceptr *at, size_t bytes);
int cuGraphLaunch(CUgraphExec exec, CUstream stream);

static CUdeviceptr largest;
static size_t largest_bytes;
static int launches;

/* ISO C has no cast from an object to a function pointer. */
static bool find(const char *name, void *to, size_t size) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  void *address = library ? dlsym(library, name) : NULL;
  memcpy(to, &address, size);
  return address != NULL;
}

int cuMemAlloc_v2(CUdeviceptr *at, size_t bytes) {
  int (*alloc)(CUdeviceptr *, size_t);
  int result = find("cuMemAlloc_v2", &alloc, sizeof alloc) ? alloc(at, bytes) : UNKNOWN;
  if (result == CUDA_SUCCESS && bytes > largest_bytes) {
    largest = *at;
    largest_bytes = bytes;
  }
  return result;
}

static bool is_first(const char *path) {
  int file = path ? open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600) : -1;
  if (file >= 0)
    close(file);
  return file >= 0;
}

int cuGraphLaunch(CUgraphExec exec, CUstream stream) {
  int (*launch)(CUgraphExec, CUstream), (*release)(CUdeviceptr);
  if (!find("cuGraphLaunch", &launch, sizeof launch) ||
      !find("cuMemFree_v2", &release, sizeof release))
    return UNKNOWN;
  if (++launches == BREAKS_AT && is_first(getenv("GD_TEST_BREAK")))
    release(largest);
  return launch(exec, stream);
}
