/*
 * Timing of algorithms, and data to time them on. On zeros a GPU draws less power and holds a
 * higher clock: products run a sixth faster than on numbers, and the fastest of them need not be
 * the same one.
 */
#include <math.h>

#include "backend/cuda/cuda_int.h"

enum { BLOCK = 256, WAVES = 64 };

enum gd_status gd_cuda_noise(const struct gd_cuda_call *call, const void *at, int64_t elements,
                             enum gd_dtype dtype) {
  struct gd_cuda_kernel kernel = {.file = "noise", .name = "noise", .n_types = 1, .types = {dtype}};
  struct gd_cuda_grid grid = {.x = gd_cuda_blocks(call->cuda, elements, BLOCK, WAVES),
                              .threads = BLOCK};
  return gd_cuda_launch_now(call, &kernel, grid, (void *[]){&at, &elements});
}

enum gd_status gd_cuda_noise_inputs(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  for (uint32_t i = 0; i < args->n_in; i++) {
    const struct gd_view *in = &args->in[i];
    if (in->dtype == GD_DTYPE_F32 || in->dtype == GD_DTYPE_BF16 || in->dtype == GD_DTYPE_F16)
      GD_TRY(gd_cuda_noise(call, in->data, in->elements, in->dtype));
  }
  return GD_OK;
}

static bool time_once(const struct gd_cuda_call *call, CUevent begin, CUevent end,
                      enum gd_status (*work)(const void *user), const void *user, double *us) {
  const struct gd_cu *cu = call->cuda->cu;
  float milliseconds = 0;
  if (cu->EventRecord(begin, call->stream) != CUDA_SUCCESS || work(user) != GD_OK ||
      cu->EventRecord(end, call->stream) != CUDA_SUCCESS ||
      cu->EventSynchronize(end) != CUDA_SUCCESS ||
      cu->EventElapsedTime(&milliseconds, begin, end) != CUDA_SUCCESS)
    return false;
  *us = 1e3 * (double)milliseconds;
  return true;
}

double gd_cuda_time_us(const struct gd_cuda_call *call, enum gd_status (*work)(const void *user),
                       const void *user) {
  const struct gd_cu *cu = call->cuda->cu;
  CUevent begin = NULL, end = NULL;
  double best = HUGE_VAL, us = 0;
  if (cu->EventCreate(&begin, CU_EVENT_DEFAULT) != CUDA_SUCCESS)
    return best;
  if (cu->EventCreate(&end, CU_EVENT_DEFAULT) != CUDA_SUCCESS) {
    cu->EventDestroy(begin);
    return best;
  }
  for (int i = 0; i < 4 && time_once(call, begin, end, work, user, &us); i++)
    if (i > 0 && us < best) /* the first one warms up */
      best = us;
  cu->EventDestroy(begin);
  cu->EventDestroy(end);
  return best;
}
