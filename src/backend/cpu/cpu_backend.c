/*
 * The cpu backend: all threads of the process, the fast kernels, generated kernels for fused ops.
 */
#include "backend/cpu/isa.h"
#include "backend/host.h"

/* Of a micro-step on one thread, about two seconds of a core with bf16 instructions: what a
   micro-step costs whatever its size is 1 % of it (docs/decisions.md). */
#define ENOUGH_FLOPS 3e11

static const char *level(void) {
  return gd_isa_name(gd_isa_detect());
}

static bool multiplies_bf16(void) {
  return gd_isa_detect() >= GD_ISA_AVX512_BF16;
}

static const struct gd_host_kind kind = {.ops = &gd_backend_cpu,
                                         .kernels = gd_cpu_kernels,
                                         .level = level,
                                         .multiplies_bf16 = multiplies_bf16,
                                         .generates = true};

static void cpu_caps(const struct gd_backend_options *options, struct gd_caps *caps) {
  const int64_t many = 1 << 20; /* columns: so many that the fixed part does not count */
  int threads = gd_host_threads(options);
  *caps =
      (struct gd_caps){.backend = "cpu",
                       .alignment_bytes = 64,
                       .workspace_bytes = gd_cpu_workspace_bytes(threads, 0),
                       .comm_bytes = GD_HOST_COMM_BYTES,
                       .column_bytes = (gd_cpu_workspace_bytes(threads, many) + many - 1) / many,
                       .compile = true,
                       .needs_cc = true,
                       .enough_flops = ENOUGH_FLOPS * threads,
                       .dtype = {[GD_DTYPE_F32] = true, [GD_DTYPE_BF16] = true}};
}

static enum gd_status cpu_open(const struct gd_backend_options *options,
                               struct gd_backend **backend, struct gd_error *err) {
  GD_TRY(gd_isa_check(err));
  return gd_host_open(&kind, options, gd_host_threads(options), backend, err);
}

static double cpu_peak_flops(struct gd_backend *backend, enum gd_dtype dtype, bool tf32) {
  (void)tf32;
  return gd_isa_peak_flops(dtype, gd_host_threads_of(backend), gd_isa_detect());
}

const struct gd_backend_ops gd_backend_cpu = {
    .name = "cpu",
    .caps = cpu_caps,
    .open = cpu_open,
    .peak_flops = cpu_peak_flops,
    GD_HOST_BACKEND_OPS,
};
