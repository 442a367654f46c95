/*
 * Data to time algorithms on. On zeros a GPU draws less power and holds a higher clock: products
 * run a sixth faster than on numbers, and the fastest of them need not be the same one.
 */
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
