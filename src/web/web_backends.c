/*
 * The backends as a browser has them: what they can do, which is all that planning asks, without a
 * device to open. Takes the place of src/backend/cpu, cuda and ref.
 */
#include "backend/backend.h"
#include "backend/libraries.h"
#include "hw/hw.h"

static enum gd_status no_device(const struct gd_backend_options *options,
                                struct gd_backend **backend, struct gd_error *err) {
  (void)options;
  (void)backend;
  return gd_fail(
      err, GD_ENVIRONMENT,
      "a browser has no device to plan for; name a GPU with --gpu, such as --gpu 4x3090");
}

/* As gd_cuda_caps: for the oldest GPU that runs it; the target's own take their place. */
static void gpu_caps(const struct gd_backend_options *options, struct gd_caps *caps) {
  (void)options;
  gd_caps_gpu(GD_GPU_OLDEST, caps);
}

const struct gd_backend_ops gd_backend_cpu = {.name = "cpu", .open = no_device};
const struct gd_backend_ops gd_backend_cuda = {.name = "cuda", .caps = gpu_caps, .open = no_device};
const struct gd_backend_ops gd_backend_ref = {.name = "ref", .open = no_device};

void gd_libraries(void (*show)(void *user, const struct gd_library *library), void *user) {
  (void)show;
  (void)user;
}
