/*
 * Holds memory of the first GPU, as another program that uses the card would: for
 * test_cuda_failures.sh.
 *
 * Usage: hold_memory BYTES: takes so many. hold_memory -BYTES: takes all but so many.
 * Says "holding N bytes, M are free" when it has them, and keeps them until stdin ends.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "backend/cuda/runtime/cuda_int.h"

static const int64_t least_piece_bytes = 2 << 20; /* the driver gives no less at a time */

static int64_t free_bytes(const struct gd_cu *cu) {
  size_t left = 0, total = 0;
  return cu->MemGetInfo(&left, &total) == CUDA_SUCCESS ? (int64_t)left : -1;
}

/* In pieces, each half as large as the last one that was refused. */
static int64_t take(const struct gd_cu *cu, int64_t bytes) {
  int64_t taken = 0;
  for (int64_t piece = bytes; piece >= least_piece_bytes && taken < bytes;) {
    CUdeviceptr at;
    if (piece <= bytes - taken && cu->MemAlloc(&at, (size_t)piece) == CUDA_SUCCESS)
      taken += piece;
    else
      piece /= 2;
  }
  return taken;
}

int main(int argc, char **argv) {
  struct gd_error err = {0};
  const struct gd_cu *cu;
  CUdevice device;
  CUcontext context;
  char *end = argc == 2 ? argv[1] : NULL;
  int64_t bytes = end ? strtoll(argv[1], &end, 10) : 0;
  if (!end || *end || bytes == 0) {
    fprintf(stderr, "usage: hold_memory BYTES, or -BYTES for all but so many\n");
    return 2;
  }
  if (gd_cu_load(&cu, &err) != GD_OK) {
    fprintf(stderr, "%s\n", err.text);
    return 3;
  }
  if (cu->Init(0) != CUDA_SUCCESS || cu->DeviceGet(&device, 0) != CUDA_SUCCESS ||
      cu->DevicePrimaryCtxRetain(&context, device) != CUDA_SUCCESS ||
      cu->CtxSetCurrent(context) != CUDA_SUCCESS) {
    fprintf(stderr, "there is no GPU, or it has no memory left\n");
    return 3;
  }
  int64_t taken = take(cu, bytes > 0 ? bytes : free_bytes(cu) + bytes);
  printf("holding %" PRId64 " bytes, %" PRId64 " are free\n", taken, free_bytes(cu));
  fflush(stdout);
  for (char text[256]; read(STDIN_FILENO, text, sizeof text) > 0;)
    continue;
  return 0;
}
