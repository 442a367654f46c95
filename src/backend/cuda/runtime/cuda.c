/*
 * The CUDA backend: opening and closing it, and running a bound plan, one CUDA graph per program.
 * Binding is cuda_bind.c.
 */
#include <omp.h>
#include <stdlib.h>

#include "backend/cuda/runtime/autotune.h"
#include "backend/cuda/runtime/cuda_program.h"
#include "backend/cuda/runtime/graph_toggle.h"
#include "backend/cuda/runtime/module.h"
#include "base/switches.h"

/*
 * After an illegal address or a trap the context is of no use to anybody in this process: every
 * call of the driver answers with that error, and a library that is asked to give back what it has
 * there may wait for ever. The driver takes all of it back when the process ends.
 */
static void cuda_close(struct gd_backend *backend) {
  struct gd_cuda *cuda = gd_cuda_of(backend);
  if (cuda->context && !cuda->stuck)
    cuda->broken = gd_cuda_drain(cuda) != CUDA_SUCCESS;
  if (cuda->stuck)
    return; /* freeing memory would wait for its kernels */
  if (cuda->context) {
    gd_cuda_arenas_free(cuda);
    gd_cuda_gemms_free(cuda);
    gd_cuda_cudnn_free(cuda);
    gd_cuda_autotune_close(cuda);
    gd_cuda_nccl_free(cuda);
  }
  gd_cuda_modules_close(cuda);
  gd_cuda_nvml_free(cuda);
  if (cuda->stream)
    cuda->cu->StreamDestroy(cuda->stream);
  if (cuda->comm_stream)
    cuda->cu->StreamDestroy(cuda->comm_stream);
  gd_mem_free(cuda);
}

static enum gd_status cuda_open(const struct gd_backend_options *options,
                                struct gd_backend **backend, struct gd_error *err) {
  const struct gd_cu *cu;
  const char *fixed = gd_env("GPUDAYS_DETERMINISTIC");
  GD_TRY(gd_cu_load(&cu, err));
  struct gd_cuda *cuda = gd_mem_alloc(1, sizeof *cuda);
  if (!cuda)
    return gd_nomem(err, "while opening the cuda backend");
  cuda->base.ops = &gd_backend_cuda;
  cuda->cu = cu;
  cuda->comm = options->comm;
  cuda->trace = options->trace;
  cuda->threads = options->threads > 0 ? options->threads : omp_get_max_threads();
  cuda->deterministic = fixed && fixed[0] != '0';
  cuda->untimed = fixed && fixed[0] == '1';
  cuda->choices = options->choices;
  cuda->fixed_candidate = gd_cuda_autotune_fixed();
  enum gd_status status =
      gd_cuda_device_find(cuda, cuda->comm ? gd_comm_local_rank(cuda->comm) : 0, err);
  if (status == GD_OK)
    status = gd_cuda_device_sharing(cuda, err);
  if (status != GD_OK) {
    gd_mem_free(cuda);
    return status;
  }
  *backend = &cuda->base;
  return GD_OK;
}

/* Ranks may share a GPU: none takes memory before all have given back that of the last trial. */
static enum gd_status cuda_reserve(struct gd_backend *backend, int64_t device_bytes,
                                   int64_t host_bytes, struct gd_error *err) {
  struct gd_cuda *cuda = gd_cuda_of(backend);
  if (cuda->comm && gd_comm_size(cuda->comm) > 1)
    GD_TRY(gd_comm_barrier(cuda->comm, err));
  return gd_cuda_agree(cuda, gd_cuda_arenas_make(cuda, device_bytes, host_bytes, err), err);
}

static enum gd_status cuda_sync(struct gd_backend *backend, struct gd_error *err) {
  struct gd_cuda *cuda = gd_cuda_of(backend);
  GD_TRY(gd_cuda_wait(cuda, cuda->stream, "a program", err));
  if (cuda->host_error.status == GD_OK)
    return GD_OK;
  return gd_fail(err, cuda->host_error.status, "%s", cuda->host_error.text);
}

static int64_t since_ns(struct gd_cuda *cuda, CUevent begin, CUevent end) {
  float milliseconds = 0;
  cuda->cu->EventElapsedTime(&milliseconds, begin, end);
  return (int64_t)(1e6 * (double)milliseconds);
}

/* Op by op, with the time of each. */
static enum gd_status run_traced(struct gd_cuda *cuda, struct gd_bound *bound,
                                 enum gd_program program, struct gd_error *err) {
  struct gd_event *events = bound->events[program];
  GD_TRY(gd_cuda_launch_program(cuda, bound, program, err));
  GD_TRY(cuda_sync(&cuda->base, err));
  for (uint32_t i = 0; i < bound->n_launches[program]; i++) {
    events[i].begin_ns = since_ns(cuda, bound->marks[0], bound->marks[2 * i]);
    events[i].end_ns = since_ns(cuda, bound->marks[0], bound->marks[2 * i + 1]);
  }
  return GD_OK;
}

static enum gd_status cuda_run(struct gd_backend *backend, struct gd_bound *bound,
                               enum gd_program program, struct gd_error *err) {
  struct gd_cuda *cuda = gd_cuda_of(backend);
  if (bound->n_launches[program] == 0)
    return GD_OK;
  GD_TRY(gd_cuda_toggles_settle(cuda, bound->toggles[program], err));
  if (cuda->trace)
    return run_traced(cuda, bound, program, err);
  return gd_cuda_check(cuda, cuda->cu->GraphLaunch(bound->graphs[program], cuda->stream),
                       "cuGraphLaunch", err);
}

static const struct gd_event *cuda_events(struct gd_backend *backend, const struct gd_bound *bound,
                                          enum gd_program program, uint32_t *count) {
  (void)backend;
  *count = bound->events[program] ? bound->n_launches[program] : 0;
  return bound->events[program];
}

const struct gd_backend_ops gd_backend_cuda = {
    .name = "cuda",
    .caps = gd_cuda_caps,
    .open = cuda_open,
    .close = cuda_close,
    .describe = gd_cuda_describe,
    .peak_flops = gd_cuda_peak_flops,
    .reserve = cuda_reserve,
    .host_memory = gd_cuda_host_memory,
    .usage = gd_cuda_usage,
    .bind = gd_cuda_bind,
    .unbind = gd_cuda_unbind,
    .run = cuda_run,
    .sync = cuda_sync,
    .events = cuda_events,
    .write = gd_cuda_write,
    .clear = gd_cuda_clear,
    .read = gd_cuda_read,
    .pin = gd_cuda_pin,
    .unpin = gd_cuda_unpin,
    .clocks = gd_cuda_clocks,
};
