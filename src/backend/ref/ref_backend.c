/*
 * The ref backend: one thread, the kernels that are obviously right, no claim of speed.
 */
#include "backend/host.h"

static const char *level(void) {
  return "ref";
}

static const struct gd_host_kind kind = {
    .ops = &gd_backend_ref, .kernels = gd_ref_kernels, .level = level};

static void ref_caps(const struct gd_backend_options *options, struct gd_caps *caps) {
  (void)options;
  *caps = (struct gd_caps){
      .backend = "ref",
      .alignment_bytes = 64,
      .comm_bytes = GD_HOST_COMM_BYTES,
      .dtype = {[GD_DTYPE_F32] = true, [GD_DTYPE_BF16] = true, [GD_DTYPE_F16] = true}};
}

static enum gd_status ref_open(const struct gd_backend_options *options,
                               struct gd_backend **backend, struct gd_error *err) {
  return gd_host_open(&kind, options, 1, backend, err);
}

/* 0: no utilisation is reported. */
static double ref_peak_flops(struct gd_backend *backend, enum gd_dtype dtype, bool tf32) {
  (void)backend;
  (void)dtype;
  (void)tf32;
  return 0;
}

const struct gd_backend_ops gd_backend_ref = {
    .name = "ref",
    .caps = ref_caps,
    .open = ref_open,
    .peak_flops = ref_peak_flops,
    GD_HOST_BACKEND_OPS,
};
