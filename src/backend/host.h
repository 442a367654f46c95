/*
 * The host runtime: what the backends that compute in host memory share. ref and cpu are the same
 * machine with different kernel tables; each is a struct gd_host_kind and a row of functions, most
 * of which are GD_HOST_BACKEND_OPS.
 */
#ifndef GD_BACKEND_HOST_H
#define GD_BACKEND_HOST_H

#include "backend/backend.h"
#include "backend/kernel.h"

/* Pieces of a reduction arrive here; larger ones only save messages. */
enum { GD_HOST_COMM_BYTES = 1 << 20 };

/* What tells one host backend from the other. */
struct gd_host_kind {
  const struct gd_backend_ops *ops;
  const gd_kernel *kernels;
  const char *(*level)(void);    /* of the kernels, for the device's name: "ref", "avx512_bf16" */
  bool (*multiplies_bf16)(void); /* by an instruction; NULL: it does not */
  bool generates;                /* fused ops: their kernels are generated and compiled */
};

enum gd_status gd_host_open(const struct gd_host_kind *kind,
                            const struct gd_backend_options *options, int threads,
                            struct gd_backend **backend, struct gd_error *err) GD_MUST_USE;
/* As many threads as the options, the affinity and the quota of the process give it. */
int gd_host_threads(const struct gd_backend_options *options);
int gd_host_threads_of(const struct gd_backend *backend);

void gd_host_close(struct gd_backend *backend);
void gd_host_describe(struct gd_backend *backend, struct gd_device_info *info);
enum gd_status gd_host_reserve(struct gd_backend *backend, int64_t device_bytes, int64_t host_bytes,
                               struct gd_error *err) GD_MUST_USE;
void *gd_host_memory(struct gd_backend *backend);
void gd_host_usage(struct gd_backend *backend, int64_t *plan_bytes, int64_t *runtime_bytes);
enum gd_status gd_host_bind(struct gd_backend *backend, const struct gd_plan *plan,
                            struct gd_bound **bound, struct gd_error *err) GD_MUST_USE;
void gd_host_unbind(struct gd_backend *backend, struct gd_bound *bound);
enum gd_status gd_host_run(struct gd_backend *backend, struct gd_bound *bound,
                           enum gd_program program, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_host_sync(struct gd_backend *backend, struct gd_error *err) GD_MUST_USE;
const struct gd_event *gd_host_events(struct gd_backend *backend, const struct gd_bound *bound,
                                      enum gd_program program, uint32_t *count);
enum gd_status gd_host_write(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                             const void *from, int64_t bytes, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_host_clear(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                             int64_t bytes, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_host_read(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                            void *to, int64_t bytes, struct gd_error *err) GD_MUST_USE;

/* Fields of a struct gd_backend_ops that all host backends have in common. */
#define GD_HOST_BACKEND_OPS                                                                     \
  .close = gd_host_close, .describe = gd_host_describe, .reserve = gd_host_reserve,             \
  .host_memory = gd_host_memory, .usage = gd_host_usage, .bind = gd_host_bind,                  \
  .unbind = gd_host_unbind, .run = gd_host_run, .sync = gd_host_sync, .events = gd_host_events, \
  .write = gd_host_write, .clear = gd_host_clear, .read = gd_host_read

#endif
