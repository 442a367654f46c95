/*
 * The CUDA runtime: one context, one arena, one CUDA graph per program of a plan.
 *
 * Binding calls every op of a program three times (enum gd_cuda_stage): to learn which kernels it
 * needs, to time algorithms, and to capture it. What runs beside the computation goes to a second
 * stream, tied in by events exactly where the plan lets buffers live until. Work of the host, Adam
 * on offloaded state and collectives through MPI, is a host node of the same graph, so a program
 * stays one launch. With `trace`, ops are launched one by one between events instead. What a launch
 * can leave out, by its inputs, is in sections.c.
 *
 * The context stays until the process ends: making it takes half a second, and a search asks for
 * many backends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "backend/backend.h"
#include "backend/cuda/cuda_int.h"
#include "backend/cuda/fused.h"
#include "backend/cuda/module.h"
#include "backend/cuda/multi.h"
#include "backend/cuda/sections.h"
#include "backend/host_memory.h"
#include "backend/side.h"

enum {
  OLDEST_SM = GD_GPU_OLDEST,    /* compute capability that kernels are written for */
  MOST_TOGETHER = 256,          /* ops that one launch may take */
  COMM_SCRATCH_BYTES = 1 << 20, /* pieces of a reduction over ranks arrive here, on the host */
};

/* A context with its kernels and libraries takes half a GiB to one; more in use is somebody's. */
static const int64_t own_bytes = INT64_C(3) << 30;

/* Work of the host inside a graph. */
struct job {
  gd_kernel kernel;
  struct gd_kernel_args args;
};

struct launch {
  gd_op_id op;
  enum gd_op_kind kind;
  gd_cuda_op function; /* NULL: a copy, a collective, or the host's work */
  struct gd_kernel_args args;
  struct job *job; /* what the host does, if anything */
  bool beside;
  bool by_nccl;   /* a collective that NCCL carries */
  uint32_t waits; /* 1 + index of the side launch whose event this one waits for; 0: none */
  CUevent done;   /* of a side launch */
  struct gd_cuda_sections *sections; /* NULL: its integer inputs are computed; all of it runs */
};

struct gd_bound {
  struct gd_arena arena;
  struct gd_cuda_fusions *fusions;
  struct launch *launches[GD_PROGRAM_COUNT];
  uint32_t n_launches[GD_PROGRAM_COUNT];
  CUgraphExec graphs[GD_PROGRAM_COUNT]; /* NULL with trace, and for empty programs */
  struct gd_cuda_sections *sections[GD_PROGRAM_COUNT];
  struct gd_event *events[GD_PROGRAM_COUNT]; /* with trace */
  CUevent *marks;                            /* with trace: before and after each op */
  uint32_t n_marks;
  CUevent fork;   /* what the side stream waits for */
  void **staging; /* pinned, one for each collective between ranks */
  uint32_t n_staging;
};

static struct gd_cuda *cuda_of(struct gd_backend *backend) {
  return (struct gd_cuda *)backend;
}

/* How much of the GPU is free, for the end of a sentence. */
static const char *say_free(const struct gd_cuda *cuda, char *text, size_t size) {
  size_t free_bytes = 0, total = 0;
  char left[32], all[32];
  if (cuda->cu->MemGetInfo(&free_bytes, &total) != CUDA_SUCCESS) { /* there is no context yet */
    snprintf(text, size, "other programs may have taken the GPU's memory");
    return text;
  }
  bool shared = (int64_t)(total - free_bytes) - cuda->arena_bytes > own_bytes;
  snprintf(text, size, "%s of its %s are free%s",
           gd_format_bytes(left, sizeof left, (int64_t)free_bytes),
           gd_format_bytes(all, sizeof all, (int64_t)total),
           shared ? ", as other programs or ranks use the GPU; wait for them, or plan for what is "
                    "left with --device-memory"
                  : "");
  return text;
}

enum gd_status gd_cuda_check(const struct gd_cuda *cuda, int result, const char *what,
                             struct gd_error *err) {
  const char *name = NULL, *text = NULL;
  char left[256];
  if (result == CUDA_SUCCESS)
    return GD_OK;
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    return gd_fail(err, GD_NOMEM_DEVICE, "the GPU has no memory for %s: %s", what,
                   say_free(cuda, left, sizeof left));
  cuda->cu->GetErrorName(result, &name);
  cuda->cu->GetErrorString(result, &text);
  return gd_fail(err, GD_ENVIRONMENT, "CUDA fails in %s: %s (%s)", what,
                 text ? text : "unknown error", name ? name : "?");
}

enum gd_status gd_cuda_check_pinned(const struct gd_cuda *cuda, int result, int64_t bytes,
                                    struct gd_error *err) {
  char size[32];
  if (result == CUDA_ERROR_OUT_OF_MEMORY)
    return gd_fail(err, GD_NOMEM_HOST, "the driver refuses to pin %s of host memory",
                   gd_format_bytes(size, sizeof size, bytes));
  return gd_cuda_check(cuda, result, "pinning host memory", err);
}

#define CHECK(call, what) GD_TRY(gd_cuda_check(cuda, (call), (what), err))

/* --- the device ----------------------------------------------------------------------------- */

/*
 * What a GPU without a record should reach, from the FLOPs of one multiprocessor in one cycle:
 * dense 16-bit products of GA100, of GA10x and AD10x, of GH100, of GB100 and of GB20x, as NVIDIA's
 * papers on these architectures have them. Consumer cards do half of it with fp32 sums: for them
 * this is too much, and never too little.
 */
static void reckon(const struct gd_cuda *cuda, double peaks[GD_PEAK_COUNT]) {
  int khz = 0;
  cuda->cu->DeviceGetAttribute(&khz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE, cuda->device);
  double cycles = 1e3 * khz * cuda->sm_count;
  double per_cycle = cuda->sm >= 120   ? 1024
                     : cuda->sm >= 100 ? 8192
                     : cuda->sm >= 90  ? 4096
                     : cuda->sm == 80  ? 2048
                                       : 1024;
  peaks[GD_PEAK_FP16] = peaks[GD_PEAK_BF16] = per_cycle * cycles;
  peaks[GD_PEAK_TF32] = per_cycle / 2 * cycles;
  peaks[GD_PEAK_FP32] = (cuda->sm == 80 ? 128 : 256) * cycles;
}

/* The catalogue knows GPUs by the driver's name. */
static double cuda_peak_flops(struct gd_backend *backend, enum gd_dtype dtype, bool use_tf32) {
  struct gd_cuda *cuda = cuda_of(backend);
  struct gd_hw hw = {0};
  const struct gd_gpu *gpu = NULL;
  char name[128] = "";
  double peaks[GD_PEAK_COUNT];
  reckon(cuda, peaks);
  cuda->cu->DeviceGetName(name, sizeof name, cuda->device);
  if (gd_hw_load(&hw, NULL) == GD_OK && gd_hw_gpu(&hw, name, &gpu, NULL) == GD_OK)
    memcpy(peaks, gpu->flops, sizeof peaks);
  gd_hw_deinit(&hw);
  return peaks[dtype == GD_DTYPE_F16    ? GD_PEAK_FP16
               : dtype == GD_DTYPE_BF16 ? GD_PEAK_BF16
               : use_tf32               ? GD_PEAK_TF32
                                        : GD_PEAK_FP32];
}

static void cuda_caps(const struct gd_backend_options *options, struct gd_caps *caps) {
  (void)options;
  gd_caps_gpu(OLDEST_SM, caps);
}

static void cuda_describe(struct gd_backend *backend, struct gd_device_info *info) {
  struct gd_cuda *cuda = cuda_of(backend);
  size_t bytes = 0;
  cuda->cu->DeviceGetName(info->name, sizeof info->name, cuda->device);
  cuda->cu->DeviceTotalMem(&bytes, cuda->device);
  info->memory_bytes = gd_gpu_plan_bytes((int64_t)bytes);
  info->host_memory_bytes = gd_host_memory_bytes();
  info->threads = cuda->threads;
  info->sharing = cuda->sharing;
  cuda->cu->DeviceGetUuid(info->uuid, cuda->device);
  cuda->cu->DeviceGetCount(&info->devices);
}

static int attribute(const struct gd_cuda *cuda, int which) {
  int value = 0;
  cuda->cu->DeviceGetAttribute(&value, which, cuda->device);
  return value;
}

static enum gd_status find_device(struct gd_cuda *cuda, int local_rank, struct gd_error *err) {
  int count = 0, result = cuda->cu->Init(0);
  if (result == CUDA_SUCCESS)
    cuda->cu->DeviceGetCount(&count);
  if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && count <= 0))
    return gd_fail(err, GD_ENVIRONMENT,
                   "there is no GPU for the cuda backend; use --backend cpu, or look at "
                   "CUDA_VISIBLE_DEVICES");
  CHECK(result, "cuInit");
  CHECK(cuda->cu->DeviceGet(&cuda->device, local_rank % (count > 0 ? count : 1)), "cuDeviceGet");
  cuda->sm = 10 * attribute(cuda, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
             attribute(cuda, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  cuda->sm_count = attribute(cuda, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  cuda->shared_bytes = attribute(cuda, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  if (cuda->sm < OLDEST_SM)
    return gd_fail(err, GD_UNSUPPORTED,
                   "this GPU has compute capability %d.%d; the cuda backend needs 8.0 (Ampere) or "
                   "newer",
                   cuda->sm / 10, cuda->sm % 10);
  return GD_OK;
}

/*
 * Ranks may see all GPUs of their machine or each its own alone, and be on several machines: only
 * the GPUs themselves tell who shares one. All ranks must plan alike, so the most that do counts.
 */
static enum gd_status count_sharing(struct gd_cuda *cuda, struct gd_error *err) {
  enum { UUID_BYTES = 16 };
  int size = cuda->comm ? gd_comm_size(cuda->comm) : 1;
  if (size == 1)
    return GD_OK;
  unsigned char(*all)[UUID_BYTES] = gd_mem_alloc((size_t)size, UUID_BYTES);
  if (!all)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while opening the cuda backend");
  int result = cuda->cu->DeviceGetUuid(all[gd_comm_rank(cuda->comm)], cuda->device);
  enum gd_status status = gd_comm_all_gather(cuda->comm, all, UUID_BYTES, err);
  if (status == GD_OK)
    status = gd_cuda_check(cuda, result, "cuDeviceGetUuid", err);
  for (int i = 0; i < size; i++) {
    int sharing = 0;
    for (int j = 0; j < size; j++)
      sharing += memcmp(all[i], all[j], UUID_BYTES) == 0;
    cuda->sharing = sharing > cuda->sharing ? sharing : cuda->sharing;
  }
  gd_mem_free(all);
  return status;
}

/* What needs a context waits until memory is asked for: describing a device takes no memory. */
static enum gd_status wake(struct gd_cuda *cuda, struct gd_error *err) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static CUcontext kept[64];
  if (cuda->context)
    return gd_cuda_check(cuda, cuda->cu->CtxSetCurrent(cuda->context), "cuCtxSetCurrent", err);
  int result = CUDA_SUCCESS;
  pthread_mutex_lock(&mutex);
  GD_ASSERT(cuda->device < 64);
  if (!kept[cuda->device])
    result = cuda->cu->DevicePrimaryCtxRetain(&kept[cuda->device], cuda->device);
  CUcontext context = kept[cuda->device];
  pthread_mutex_unlock(&mutex);
  CHECK(result, "cuDevicePrimaryCtxRetain");
  CHECK(cuda->cu->CtxSetCurrent(context), "cuCtxSetCurrent");
  if (!cuda->modules)
    GD_TRY(gd_cuda_modules_open(cuda, err));
  if (!cuda->stream)
    CHECK(cuda->cu->StreamCreate(&cuda->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  if (!cuda->side)
    CHECK(cuda->cu->StreamCreate(&cuda->side, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  cuda->context = context; /* everything is there */
  return GD_OK;
}

static void release(struct gd_cuda *cuda) {
  if (cuda->arena)
    cuda->cu->MemFree(cuda->arena);
  if (cuda->host) {
    cuda->cu->MemHostUnregister(cuda->host);
    munmap(cuda->host, (size_t)cuda->host_bytes);
  }
  cuda->arena = 0;
  cuda->host = NULL;
  cuda->arena_bytes = cuda->host_bytes = 0;
}

/* Waits for everything that was launched; with NCCL not for ever, and cuda->stuck says so. */
static int drain(struct gd_cuda *cuda) {
  if (cuda->nccl)
    gd_cuda_nccl_drain(cuda);
  return cuda->stuck ? CUDA_SUCCESS : cuda->cu->CtxSynchronize();
}

/*
 * After an illegal address or a trap the context is of no use to anybody in this process: every
 * call of the driver answers with that error, and a library that is asked to give back what it has
 * there may wait for ever. The driver takes all of it back when the process ends.
 */
static void cuda_close(struct gd_backend *backend) {
  struct gd_cuda *cuda = cuda_of(backend);
  if (cuda->context && !cuda->stuck)
    cuda->broken = drain(cuda) != CUDA_SUCCESS;
  if (cuda->stuck)
    return; /* freeing memory would wait for its kernels */
  if (cuda->context) {
    release(cuda);
    gd_cuda_products_free(cuda);
    gd_cuda_attention_free(cuda);
    gd_cuda_nccl_free(cuda);
  }
  gd_cuda_modules_close(cuda);
  gd_cuda_nvml_free(cuda);
  if (cuda->stream)
    cuda->cu->StreamDestroy(cuda->stream);
  if (cuda->side)
    cuda->cu->StreamDestroy(cuda->side);
  gd_mem_free(cuda);
}

static enum gd_status cuda_open(const struct gd_backend_options *options,
                                struct gd_backend **backend, struct gd_error *err) {
  const struct gd_cu *cu;
  const char *fixed = getenv("GPUDAYS_DETERMINISTIC");
  GD_TRY(gd_cu_load(&cu, err));
  struct gd_cuda *cuda = gd_mem_alloc(1, sizeof *cuda);
  if (!cuda)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while opening the cuda backend");
  cuda->base.ops = &gd_backend_cuda;
  cuda->cu = cu;
  cuda->comm = options->comm;
  cuda->trace = options->trace;
  cuda->threads = options->threads > 0 ? options->threads : omp_get_max_threads();
  cuda->deterministic = fixed && fixed[0] == '1';
  enum gd_status status = find_device(cuda, cuda->comm ? gd_comm_local_rank(cuda->comm) : 0, err);
  if (status == GD_OK)
    status = count_sharing(cuda, err);
  if (status != GD_OK) {
    gd_mem_free(cuda);
    return status;
  }
  *backend = &cuda->base;
  return GD_OK;
}

/* --- what all ranks know --------------------------------------------------------------------- */

struct verdict {
  int32_t status;
  char text[sizeof((struct gd_error *)NULL)->text];
};

/*
 * A rank that fails alone would begin the next trial while the others wait for it in this one, and
 * messages of one would be taken for those of the other. So all fail with it, for its reason.
 */
static enum gd_status agree(struct gd_cuda *cuda, enum gd_status status, struct gd_error *err) {
  struct gd_comm *comm = cuda->comm;
  int size = comm ? gd_comm_size(comm) : 1, first = 0;
  if (size == 1 || gd_comm_has_failed(comm))
    return status;
  struct verdict *all = gd_mem_alloc((size_t)size, sizeof *all);
  if (!all)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while ranks agree");
  struct verdict *own = &all[gd_comm_rank(comm)];
  own->status = (int32_t)status;
  if (status != GD_OK && err)
    memcpy(own->text, err->text, sizeof own->text);
  enum gd_status told = gd_comm_all_gather(comm, all, sizeof *all, err);
  while (told == GD_OK && first < size && all[first].status == GD_OK)
    first++;
  if (told != GD_OK && status == GD_OK)
    status = told;
  else if (first < size && status == GD_OK)
    status = gd_fail(err, (enum gd_status)all[first].status, "rank %d: %s", first, all[first].text);
  gd_mem_free(all);
  return status;
}

/* --- memory --------------------------------------------------------------------------------- */

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
static enum gd_status pin(struct gd_cuda *cuda, int64_t bytes, struct gd_error *err) {
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
  cuda->host = at;
  cuda->host_bytes = bytes;
  return GD_OK;
}

static enum gd_status reserve(struct gd_cuda *cuda, int64_t device_bytes, int64_t host_bytes,
                              struct gd_error *err) {
  char size[32], left[256];
  GD_TRY(wake(cuda, err));
  release(cuda);
  int64_t before = used_bytes(cuda);
  if (device_bytes > 0) {
    int result = cuda->cu->MemAlloc(&cuda->arena, (size_t)device_bytes);
    if (result == CUDA_ERROR_OUT_OF_MEMORY)
      return gd_fail(err, GD_NOMEM_DEVICE, "the GPU refuses %s: %s",
                     gd_format_bytes(size, sizeof size, device_bytes),
                     say_free(cuda, left, sizeof left));
    CHECK(result, "cuMemAlloc");
    cuda->arena_bytes = device_bytes;
    CHECK(cuda->cu->MemsetD8Async(cuda->arena, 0, (size_t)device_bytes, cuda->stream), "cuMemset");
  }
  int64_t after = used_bytes(cuda);
  cuda->measured_bytes = before < 0 || after < 0 ? -1 : after - before;
  if (host_bytes > 0)
    GD_TRY(pin(cuda, host_bytes, err));
  CHECK(cuda->cu->StreamSynchronize(cuda->stream), "cuStreamSynchronize");
  return GD_OK;
}

/* Ranks may share a GPU: none takes memory before all have given back that of the last trial. */
static enum gd_status cuda_reserve(struct gd_backend *backend, int64_t device_bytes,
                                   int64_t host_bytes, struct gd_error *err) {
  struct gd_cuda *cuda = cuda_of(backend);
  if (cuda->comm && gd_comm_size(cuda->comm) > 1)
    GD_TRY(gd_comm_barrier(cuda->comm, err));
  return agree(cuda, reserve(cuda, device_bytes, host_bytes, err), err);
}

static void *cuda_host_memory(struct gd_backend *backend) {
  return cuda_of(backend)->host;
}

static void cuda_usage(struct gd_backend *backend, int64_t *plan_bytes, int64_t *runtime_bytes) {
  struct gd_cuda *cuda = cuda_of(backend);
  int64_t used = cuda->context ? used_bytes(cuda) : -1;
  int64_t beside = used - cuda->measured_bytes; /* ours, unless others use the GPU */
  *plan_bytes = used < 0 ? -1 : cuda->measured_bytes;
  *runtime_bytes = used < 0 || cuda->measured_bytes < 0 || beside > own_bytes ? -1 : beside;
}

/* Where NCCL's kernels are on the stream, other ranks may fail to come: it is not waited for ever.
 */
static enum gd_status wait_for(struct gd_cuda *cuda, CUstream stream, const char *what,
                               struct gd_error *err) {
  if (cuda->nccl)
    return gd_cuda_nccl_sync(cuda, stream, err);
  return gd_cuda_check(cuda, cuda->cu->StreamSynchronize(stream), what, err);
}

static enum gd_status copy(struct gd_cuda *cuda, CUdeviceptr to, CUdeviceptr from, int64_t bytes,
                           struct gd_error *err) {
  if (bytes == 0)
    return GD_OK;
  CHECK(cuda->cu->MemcpyAsync(to, from, (size_t)bytes, cuda->stream), "cuMemcpy");
  return wait_for(cuda, cuda->stream, "cuMemcpy", err);
}

static CUdeviceptr device_address(const void *host) {
  return (CUdeviceptr)(uintptr_t)host; /* one address space for both: every 64-bit system */
}

static bool is_inside(const struct gd_cuda *cuda, enum gd_space space, int64_t offset_bytes,
                      int64_t bytes) {
  int64_t all_bytes = space == GD_SPACE_HOST ? cuda->host_bytes : cuda->arena_bytes;
  return offset_bytes >= 0 && bytes >= 0 && offset_bytes <= all_bytes - bytes;
}

static enum gd_status cuda_write(struct gd_backend *backend, enum gd_space space,
                                 int64_t offset_bytes, const void *from, int64_t bytes,
                                 struct gd_error *err) {
  struct gd_cuda *cuda = cuda_of(backend);
  GD_ASSERT(is_inside(cuda, space, offset_bytes, bytes));
  cuda->writes++;
  if (space == GD_SPACE_HOST) {
    memcpy((char *)cuda->host + offset_bytes, from, (size_t)bytes);
    return GD_OK;
  }
  return copy(cuda, cuda->arena + (CUdeviceptr)offset_bytes, device_address(from), bytes, err);
}

static enum gd_status cuda_clear(struct gd_backend *backend, enum gd_space space,
                                 int64_t offset_bytes, int64_t bytes, struct gd_error *err) {
  struct gd_cuda *cuda = cuda_of(backend);
  GD_ASSERT(is_inside(cuda, space, offset_bytes, bytes));
  cuda->writes++;
  if (space == GD_SPACE_HOST) {
    memset((char *)cuda->host + offset_bytes, 0, (size_t)bytes);
    return GD_OK;
  }
  if (bytes > 0)
    CHECK(cuda->cu->MemsetD8Async(cuda->arena + (CUdeviceptr)offset_bytes, 0, (size_t)bytes,
                                  cuda->stream),
          "cuMemset");
  return GD_OK;
}

static enum gd_status cuda_read(struct gd_backend *backend, enum gd_space space,
                                int64_t offset_bytes, void *to, int64_t bytes,
                                struct gd_error *err) {
  struct gd_cuda *cuda = cuda_of(backend);
  GD_ASSERT(is_inside(cuda, space, offset_bytes, bytes));
  if (space == GD_SPACE_HOST) {
    memcpy(to, (char *)cuda->host + offset_bytes, (size_t)bytes);
    return GD_OK;
  }
  return copy(cuda, device_address(to), cuda->arena + (CUdeviceptr)offset_bytes, bytes, err);
}

/* --- launches ------------------------------------------------------------------------------- */

static int64_t view_bytes(const struct gd_view *view) {
  return view->elements * gd_dtype_bytes(view->dtype);
}

static bool is_collective(enum gd_op_kind kind) {
  return kind == GD_OP_all_reduce || kind == GD_OP_reduce_scatter || kind == GD_OP_all_gather ||
         kind == GD_OP_gather;
}

/* What a collective works on: the flat tensor of all ranks' slices. */
static const struct gd_view *whole_of(const struct launch *launch) {
  return launch->kind == GD_OP_reduce_scatter ? &launch->args.in[0] : &launch->args.out[0];
}

static enum gd_status copy_bytes(struct gd_cuda *cuda, void *to, const void *from, int64_t bytes,
                                 CUstream stream, struct gd_error *err) {
  if (bytes == 0)
    return GD_OK;
  return gd_cuda_check(
      cuda, cuda->cu->MemcpyAsync(device_address(to), device_address(from), (size_t)bytes, stream),
      "cuMemcpyAsync", err);
}

/* Called by the driver, on a thread of its own, between the work before and behind it. */
static void run_job(void *argument) {
  const struct job *job = argument;
  job->kernel(&job->args);
}

/* By NCCL; or down to the host, over the ranks, and up again; one rank has nobody to talk to. */
static enum gd_status put_collective(struct gd_cuda *cuda, const struct launch *launch,
                                     CUstream stream, struct gd_error *err) {
  const struct gd_view *whole = whole_of(launch), *x = &launch->args.in[0];
  if (launch->kind == GD_OP_gather)
    GD_TRY(copy_bytes(cuda, (char *)whole->data + launch->args.attr->ranks.rank * view_bytes(x),
                      x->data, view_bytes(x), stream, err));
  if (launch->by_nccl)
    return gd_cuda_nccl_put(cuda, launch->kind, whole->data, whole->elements, whole->dtype, stream,
                            err);
  if (!launch->job)
    return GD_OK;
  void *staging = launch->job->args.out[0].data;
  if (launch->kind == GD_OP_reduce_scatter)
    staging = launch->job->args.in[0].data;
  GD_TRY(copy_bytes(cuda, staging, whole->data, view_bytes(whole), stream, err));
  CHECK(cuda->cu->LaunchHostFunc(stream, run_job, launch->job), "cuLaunchHostFunc");
  return copy_bytes(cuda, whole->data, staging, view_bytes(whole), stream, err);
}

static enum gd_status put(struct gd_cuda *cuda, const struct launch *launch,
                          enum gd_cuda_stage stage, struct gd_error *err) {
  CUstream stream = launch->beside ? cuda->side : cuda->stream;
  const struct gd_kernel_args *args = &launch->args;
  struct gd_cuda_call call = {.cuda = cuda,
                              .args = args,
                              .stream = stream,
                              .stage = stage,
                              .err = err,
                              .sections = launch->sections};
  if (launch->function)
    return launch->function(&call);
  if (stage != GD_CUDA_LAUNCH)
    return GD_OK;
  if (is_collective(launch->kind))
    return put_collective(cuda, launch, stream, err);
  if (launch->kind == GD_OP_transfer)
    return copy_bytes(cuda, args->out[0].data, args->in[0].data, view_bytes(&args->in[0]), stream,
                      err);
  if (launch->kind == GD_OP_transfer_into)
    return copy_bytes(cuda, args->out[0].data, args->in[1].data, view_bytes(&args->in[1]), stream,
                      err);
  if (launch->job)
    CHECK(cuda->cu->LaunchHostFunc(stream, run_job, launch->job), "cuLaunchHostFunc");
  return GD_OK;
}

/*
 * The same for as many launches as one kernel can take, updates of many parameters, or as share
 * work, products of one operand, or a product and what follows it. *taken says how many that were,
 * at least one. With trace every op stands alone.
 */
static enum gd_status put_some(struct gd_cuda *cuda, const struct launch *launches, uint32_t n,
                               enum gd_cuda_stage stage, uint32_t *taken, struct gd_error *err) {
  struct gd_cuda_step steps[MOST_TOGETHER];
  struct gd_cuda_call call = {.cuda = cuda, .stream = cuda->stream, .stage = stage, .err = err};
  uint32_t count = 0;
  *taken = 0;
  while (!cuda->trace && count < n && count < MOST_TOGETHER && launches[count].function &&
         !launches[count].beside && (count == 0 || !launches[count].waits)) {
    steps[count] = (struct gd_cuda_step){launches[count].kind, &launches[count].args};
    count++;
  }
  if (count > 1 && steps[0].kind == GD_OP_adam)
    GD_TRY(gd_cuda_multi_adam(&call, steps, count, taken));
  else if (count > 1 && steps[0].kind == GD_OP_sum_squares)
    GD_TRY(gd_cuda_multi_squares(&call, steps, count, taken));
  else if (count > 1 && steps[0].kind == GD_OP_matmul)
    GD_TRY(gd_cuda_multi_products(&call, steps, count, taken));
  if (*taken == 0 && count > 1 && steps[0].kind == GD_OP_matmul)
    GD_TRY(gd_cuda_multi_activated(&call, steps, count, taken));
  if (*taken > 0)
    return GD_OK;
  *taken = 1;
  return put(cuda, launches, stage, err);
}

/* --- binding -------------------------------------------------------------------------------- */

static bool on_host(const struct gd_graph *graph, gd_tensor_id id) {
  return graph->tensors[gd_tensor_root(graph, id, NULL)].space == GD_SPACE_HOST;
}

static struct gd_view view_of(const struct gd_cuda *cuda, const struct gd_plan *plan,
                              gd_tensor_id id) {
  if (id == GD_NONE)
    return (struct gd_view){0};
  const struct gd_tensor *t = &plan->graph->tensors[id];
  bool host = on_host(plan->graph, id);
  int64_t at = plan->offset_bytes[id];
  GD_ASSERT(is_inside(cuda, host ? GD_SPACE_HOST : GD_SPACE_DEVICE, at,
                      gd_tensor_bytes(plan->graph, id)));
  return (struct gd_view){.data = (char *)(host ? cuda->host : (void *)(uintptr_t)cuda->arena) + at,
                          .dtype = t->dtype,
                          .rank = t->rank,
                          .dims = t->dims,
                          .elements = gd_tensor_elements(plan->graph, id)};
}

/* Adam and its like on offloaded state: the cpu kernels, on host memory. */
static enum gd_status bind_host_op(struct gd_cuda *cuda, struct gd_bound *bound,
                                   struct launch *launch, struct gd_error *err) {
  launch->job = gd_arena_alloc(&bound->arena, 1, sizeof *launch->job);
  if (!launch->job)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while binding a plan");
  *launch->job = (struct job){gd_cpu_kernels[launch->kind], launch->args};
  launch->job->args.threads = cuda->threads;
  launch->job->args.workspace = NULL;
  launch->job->args.workspace_bytes = 0;
  launch->job->args.err = &cuda->host_error;
  return GD_OK;
}

/* Without NCCL: the host kernel on a staged copy of the whole. */
static enum gd_status bind_staged(struct gd_cuda *cuda, struct gd_bound *bound,
                                  struct launch *launch, struct gd_error *err) {
  static const gd_kernel kernels[GD_OP_COUNT] = {
      [GD_OP_all_reduce] = gd_host_all_reduce,
      [GD_OP_reduce_scatter] = gd_host_reduce_scatter,
      [GD_OP_all_gather] = gd_host_all_gather,
      [GD_OP_gather] = gd_host_all_gather, /* the own slice is in its place by then */
  };
  int64_t bytes = view_bytes(whole_of(launch));
  struct gd_view *views = gd_arena_alloc(&bound->arena, 2, sizeof *views);
  GD_TRY(bind_host_op(cuda, bound, launch, err));
  struct gd_kernel_args *args = &launch->job->args;
  void *staging = NULL;
  if (!views)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while binding a plan");
  /* Each has its own: the next may be on its way down while this one is on its way up. */
  int64_t all_bytes = bytes + COMM_SCRATCH_BYTES;
  GD_TRY(gd_cuda_check_pinned(cuda, cuda->cu->MemHostAlloc(&staging, (size_t)all_bytes, 0),
                              all_bytes, err));
  bound->staging[bound->n_staging++] = staging;
  views[0] = launch->args.in[0];
  views[1] = launch->args.out[0];
  views[launch->kind == GD_OP_reduce_scatter ? 0 : 1].data = staging;
  args->in = &views[0];
  args->out = &views[1];
  args->comm = cuda->comm;
  args->comm_scratch = (char *)staging + bytes;
  args->comm_scratch_bytes = COMM_SCRATCH_BYTES;
  launch->job->kernel = kernels[launch->kind];
  return GD_OK;
}

static enum gd_status bind_collective(struct gd_cuda *cuda, const struct gd_plan *plan,
                                      struct gd_bound *bound, struct launch *launch,
                                      struct gd_error *err) {
  const struct gd_op *op = &plan->graph->ops[launch->op];
  bool host = on_host(plan->graph, launch->kind == GD_OP_reduce_scatter ? op->in[0] : op->out[0]);
  launch->by_nccl = cuda->nccl && !host;
  if (launch->by_nccl || !cuda->comm || launch->args.attr->ranks.ranks == 1)
    return GD_OK;
  return bind_staged(cuda, bound, launch, err);
}

/* Whether its integer inputs are what the host wrote before the program: they can be counted. */
static bool is_decided(const struct gd_graph *graph, const struct gd_op *op) {
  for (uint32_t i = 0; i < op->n_in; i++) {
    const struct gd_tensor *t =
        op->in[i] == GD_NONE ? NULL : &graph->tensors[gd_tensor_root(graph, op->in[i], NULL)];
    if (t && t->dtype == GD_DTYPE_I32 &&
        (t->role != GD_ROLE_INPUT || t->producer != GD_NONE || t->space != GD_SPACE_DEVICE))
      return false;
  }
  return true;
}

static enum gd_status bind_op(struct gd_cuda *cuda, const struct gd_plan *plan, gd_op_id id,
                              struct gd_bound *bound, struct launch *launch, struct gd_error *err) {
  const struct gd_op *op = &plan->graph->ops[id];
  struct gd_view *views =
      gd_arena_alloc(&bound->arena, (size_t)op->n_in + op->n_out + 1, sizeof *views);
  if (!views)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while binding a plan");
  for (uint32_t i = 0; i < op->n_in; i++)
    views[i] = view_of(cuda, plan, op->in[i]);
  for (uint32_t i = 0; i < op->n_out; i++)
    views[op->n_in + i] = view_of(cuda, plan, op->out[i]);
  *launch = (struct launch){
      .op = id,
      .kind = op->kind,
      .beside = gd_op_is_async(op->kind),
      .args = {.attr = &op->attr,
               .device_fused = op->kind == GD_OP_fused
                                   ? gd_cuda_fusion(bound->fusions, op->attr.fused.fusion)
                                   : NULL,
               .n_in = op->n_in,
               .n_out = op->n_out,
               .adds = op->adds,
               .in = views,
               .out = views + op->n_in,
               .workspace = (char *)(uintptr_t)cuda->arena + plan->workspace_at,
               .workspace_bytes = plan->workspace_bytes}};
  if (is_collective(op->kind))
    return bind_collective(cuda, plan, bound, launch, err);
  if (launch->beside || op->kind == GD_OP_wait)
    return GD_OK;
  if (on_host(plan->graph, op->out[0]))
    return bind_host_op(cuda, bound, launch, err);
  launch->function = gd_cuda_ops[op->kind];
  if (!launch->function)
    return gd_fail(err, GD_UNSUPPORTED, "the cuda backend has no kernel for %s",
                   gd_op_info(op->kind)->name);
  return GD_OK;
}

static enum gd_status bind_program(struct gd_cuda *cuda, const struct gd_plan *plan,
                                   enum gd_program program, uint32_t *beside_at,
                                   struct gd_bound *bound, struct gd_error *err) {
  uint32_t n = plan->n_order[program];
  struct launch *launches = gd_arena_alloc(&bound->arena, (size_t)n + 1, sizeof *launches);
  struct gd_event *events =
      cuda->trace ? gd_arena_alloc(&bound->arena, (size_t)n + 1, sizeof *events) : NULL;
  if (!launches || (cuda->trace && !events))
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while binding a plan");
  bound->launches[program] = launches;
  bound->events[program] = events;
  GD_TRY(gd_cuda_sections_open(cuda, &bound->sections[program], err));
  memset(beside_at, 0, plan->graph->n_ops * sizeof *beside_at);
  for (uint32_t i = 0; i < n; i++) {
    gd_op_id id = plan->order[program][i];
    GD_TRY(bind_op(cuda, plan, id, bound, &launches[i], err));
    bound->n_launches[program] = i + 1;
    if (is_decided(plan->graph, &plan->graph->ops[id]))
      launches[i].sections = bound->sections[program];
    if (launches[i].beside) {
      CHECK(cuda->cu->EventCreate(&launches[i].done, CU_EVENT_DISABLE_TIMING), "cuEventCreate");
      beside_at[id] = i + 1;
    } else {
      launches[i].waits = gd_side_waits_for(plan->graph, &plan->graph->ops[id], beside_at);
    }
    if (events)
      events[i] = (struct gd_event){.op = id, .beside = launches[i].beside};
  }
  return GD_OK;
}

static enum gd_status call_all(struct gd_cuda *cuda, struct gd_bound *bound,
                               enum gd_cuda_stage stage, struct gd_error *err) {
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    for (uint32_t i = 0, n = bound->n_launches[program], taken; i < n; i += taken)
      GD_TRY(put_some(cuda, &bound->launches[program][i], n - i, stage, &taken, err));
  return GD_OK;
}

/* All of a program on the two streams; the side stream starts and ends inside. */
static enum gd_status put_program(struct gd_cuda *cuda, struct gd_bound *bound,
                                  enum gd_program program, struct gd_error *err) {
  const struct launch *launches = bound->launches[program], *last_beside = NULL;
  CUevent *marks = cuda->trace ? bound->marks : NULL;
  for (uint32_t i = 0, n = bound->n_launches[program], taken; i < n; i += taken) {
    const struct launch *launch = &launches[i];
    CUstream stream = launch->beside ? cuda->side : cuda->stream;
    if (launch->beside) { /* after everything before it */
      CHECK(cuda->cu->EventRecord(bound->fork, cuda->stream), "cuEventRecord");
      CHECK(cuda->cu->StreamWaitEvent(cuda->side, bound->fork, 0), "cuStreamWaitEvent");
    } else if (launch->waits) {
      CHECK(cuda->cu->StreamWaitEvent(cuda->stream, launches[launch->waits - 1].done, 0),
            "cuStreamWaitEvent");
    }
    if (marks)
      CHECK(cuda->cu->EventRecord(marks[2 * i], stream), "cuEventRecord");
    GD_TRY(put_some(cuda, launch, n - i, GD_CUDA_LAUNCH, &taken, err));
    if (marks)
      CHECK(cuda->cu->EventRecord(marks[2 * i + 1], stream), "cuEventRecord");
    if (launch->beside) {
      CHECK(cuda->cu->EventRecord(launch->done, cuda->side), "cuEventRecord");
      last_beside = launch;
    }
  }
  if (last_beside)
    CHECK(cuda->cu->StreamWaitEvent(cuda->stream, last_beside->done, 0), "cuStreamWaitEvent");
  return GD_OK;
}

static enum gd_status capture(struct gd_cuda *cuda, struct gd_bound *bound, enum gd_program program,
                              struct gd_error *err) {
  CUgraph graph = NULL;
  if (bound->n_launches[program] == 0)
    return GD_OK;
  CHECK(cuda->cu->StreamBeginCapture(cuda->stream, CU_STREAM_CAPTURE_MODE_RELAXED),
        "cuStreamBeginCapture");
  gd_cuda_sections_capture(bound->sections[program]);
  enum gd_status status = put_program(cuda, bound, program, err);
  int ended = cuda->cu->StreamEndCapture(cuda->stream, &graph); /* also after a failure */
  if (status == GD_OK)
    status = gd_cuda_check(cuda, ended, "cuStreamEndCapture", err);
  if (status == GD_OK)
    status = gd_cuda_check(cuda, cuda->cu->GraphInstantiate(&bound->graphs[program], graph, 0),
                           "cuGraphInstantiate", err);
  gd_cuda_sections_captured(cuda, bound->sections[program], graph, bound->graphs[program]);
  return status;
}

static void cuda_unbind(struct gd_backend *backend, struct gd_bound *bound) {
  struct gd_cuda *cuda = cuda_of(backend);
  if (!bound)
    return;
  drain(cuda);
  if (cuda->stuck)
    return;
  for (int program = 0; program < GD_PROGRAM_COUNT; program++) {
    if (bound->graphs[program])
      cuda->cu->GraphExecDestroy(bound->graphs[program]);
    gd_cuda_sections_close(cuda, bound->sections[program]);
    for (uint32_t i = 0; i < bound->n_launches[program]; i++)
      if (bound->launches[program][i].done)
        cuda->cu->EventDestroy(bound->launches[program][i].done);
  }
  for (uint32_t i = 0; i < bound->n_marks; i++)
    cuda->cu->EventDestroy(bound->marks[i]);
  for (uint32_t i = 0; i < bound->n_staging; i++)
    cuda->cu->MemFreeHost(bound->staging[i]);
  if (bound->fork)
    cuda->cu->EventDestroy(bound->fork);
  gd_cuda_fusions_free(bound->fusions);
  gd_arena_deinit(&bound->arena);
  gd_mem_free(bound);
}

/* Events around every op of the longest program. */
static enum gd_status make_marks(struct gd_cuda *cuda, struct gd_bound *bound,
                                 struct gd_error *err) {
  uint32_t most = 0;
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    most = bound->n_launches[program] > most ? bound->n_launches[program] : most;
  bound->marks = gd_arena_alloc(&bound->arena, 2 * (size_t)most + 1, sizeof(CUevent));
  if (!bound->marks)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while binding a plan");
  for (; bound->n_marks < 2 * most; bound->n_marks++)
    CHECK(cuda->cu->EventCreate(&bound->marks[bound->n_marks], CU_EVENT_DEFAULT), "cuEventCreate");
  return GD_OK;
}

static bool has_collectives(const struct gd_plan *plan) {
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    for (uint32_t i = 0; i < plan->n_order[program]; i++)
      if (is_collective(plan->graph->ops[plan->order[program][i]].kind))
        return true;
  return false;
}

/* Leaves the arena as reserve did: zeros. */
static enum gd_status time_algorithms(struct gd_cuda *cuda, struct gd_bound *bound,
                                      struct gd_error *err) {
  cuda->writes++;
  GD_TRY(call_all(cuda, bound, GD_CUDA_TUNE, err));
  if (cuda->arena_bytes > 0)
    CHECK(cuda->cu->MemsetD8Async(cuda->arena, 0, (size_t)cuda->arena_bytes, cuda->stream),
          "cuMemset");
  CHECK(cuda->cu->StreamSynchronize(cuda->stream), "timing algorithms");
  return GD_OK;
}

static bool is_same_collective(const struct launch *a, const struct launch *b) {
  const struct gd_view *x = whole_of(a), *y = whole_of(b);
  return b->by_nccl && a->kind == b->kind && x->elements == y->elements && x->dtype == y->dtype;
}

/*
 * NCCL connects ranks by the algorithm that a size calls for, when it first does. That is a
 * conversation between all ranks, so each collective is launched once here, at its size and place,
 * and none begins one inside a capture. The arena is zeros, and sums of zeros leave it so.
 */
static enum gd_status connect_ranks(struct gd_cuda *cuda, struct gd_bound *bound,
                                    struct gd_error *err) {
  struct gd_comm_guard *guard = NULL;
  enum gd_status status = GD_OK;
  if (!cuda->nccl)
    return GD_OK;
  GD_TRY(gd_comm_guard_begin(cuda->comm, "connecting NCCL's ranks", &guard, err));
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    for (uint32_t i = 0; i < bound->n_launches[program] && status == GD_OK; i++) {
      const struct launch *launches = bound->launches[program];
      bool known = !launches[i].by_nccl;
      for (uint32_t j = 0; j < i && !known; j++)
        known = is_same_collective(&launches[i], &launches[j]);
      if (!known)
        status = put_collective(cuda, &launches[i], cuda->side, err);
    }
  if (status == GD_OK)
    status = gd_cuda_nccl_sync(cuda, cuda->side, err);
  gd_comm_guard_end(guard);
  return status;
}

/* Everything up to the capture; nothing in it waits for other ranks. */
static enum gd_status prepare_programs(struct gd_cuda *cuda, const struct gd_plan *plan,
                                       struct gd_bound *bound, uint32_t *beside_at,
                                       struct gd_error *err) {
  if (plan->graph->n_fusions > 0)
    GD_TRY(gd_cuda_fusions_build(cuda, plan->graph, &bound->fusions, err));
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    GD_TRY(bind_program(cuda, plan, (enum gd_program)program, beside_at, bound, err));
  GD_TRY(call_all(cuda, bound, GD_CUDA_COLLECT, err));
  GD_TRY(gd_cuda_modules_build(cuda, err));
  GD_TRY(time_algorithms(cuda, bound, err));
  return cuda->trace ? make_marks(cuda, bound, err) : GD_OK;
}

/* NCCL may still exchange addresses of buffers during a capture: the others must be there. */
static enum gd_status capture_programs(struct gd_cuda *cuda, struct gd_bound *bound,
                                       struct gd_error *err) {
  struct gd_comm_guard *guard = NULL;
  enum gd_status status = GD_OK;
  if (cuda->nccl)
    GD_TRY(gd_comm_guard_begin(cuda->comm, "capturing NCCL's collectives", &guard, err));
  for (int program = 0; program < GD_PROGRAM_COUNT && status == GD_OK && !cuda->trace; program++)
    status = capture(cuda, bound, (enum gd_program)program, err);
  gd_comm_guard_end(guard);
  return status;
}

/* Ranks agree before each part that waits for the others. */
static enum gd_status bind_programs(struct gd_cuda *cuda, const struct gd_plan *plan,
                                    struct gd_bound *bound, uint32_t *beside_at,
                                    struct gd_error *err) {
  GD_TRY(agree(cuda, prepare_programs(cuda, plan, bound, beside_at, err), err));
  if (!cuda->nccl)
    return agree(cuda, capture_programs(cuda, bound, err), err);
  GD_TRY(agree(cuda, connect_ranks(cuda, bound, err), err));
  return agree(cuda, capture_programs(cuda, bound, err), err);
}

static enum gd_status bind_all(struct gd_cuda *cuda, const struct gd_plan *plan,
                               struct gd_bound *bound, uint32_t *beside_at, struct gd_error *err) {
  uint32_t n_all = 0;
  for (int program = 0; program < GD_PROGRAM_COUNT; program++)
    n_all += plan->n_order[program];
  bound->staging = gd_arena_alloc(&bound->arena, (size_t)n_all + 1, sizeof *bound->staging);
  if (!bound->staging || !beside_at)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while binding a plan");
  enum gd_status status = gd_cuda_check(
      cuda, cuda->cu->EventCreate(&bound->fork, CU_EVENT_DISABLE_TIMING), "cuEventCreate", err);
  if (status == GD_OK)
    status = gd_cuda_nvml_open(cuda, err);
  GD_TRY(agree(cuda, status, err));
  if (has_collectives(plan))
    GD_TRY(agree(cuda, gd_cuda_nccl_open(cuda, err), err));
  return bind_programs(cuda, plan, bound, beside_at, err);
}

static enum gd_status cuda_bind(struct gd_backend *backend, const struct gd_plan *plan,
                                struct gd_bound **bound, struct gd_error *err) {
  struct gd_cuda *cuda = cuda_of(backend);
  struct gd_bound *b = gd_mem_alloc(1, sizeof *b);
  uint32_t *beside_at = gd_mem_alloc((size_t)plan->graph->n_ops + 1, sizeof *beside_at);
  GD_ASSERT(plan->device_bytes <= cuda->arena_bytes);
  enum gd_status status = b ? bind_all(cuda, plan, b, beside_at, err)
                            : gd_fail(err, GD_ENVIRONMENT, "out of memory while binding a plan");
  gd_mem_free(beside_at);
  if (status != GD_OK) {
    cuda_unbind(backend, b);
    b = NULL;
  }
  *bound = b;
  return status;
}

/* --- running -------------------------------------------------------------------------------- */

static enum gd_status cuda_sync(struct gd_backend *backend, struct gd_error *err) {
  struct gd_cuda *cuda = cuda_of(backend);
  GD_TRY(wait_for(cuda, cuda->stream, "a program", err));
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
  GD_TRY(put_program(cuda, bound, program, err));
  GD_TRY(cuda_sync(&cuda->base, err));
  for (uint32_t i = 0; i < bound->n_launches[program]; i++) {
    events[i].begin_ns = since_ns(cuda, bound->marks[0], bound->marks[2 * i]);
    events[i].end_ns = since_ns(cuda, bound->marks[0], bound->marks[2 * i + 1]);
  }
  return GD_OK;
}

static enum gd_status cuda_run(struct gd_backend *backend, struct gd_bound *bound,
                               enum gd_program program, struct gd_error *err) {
  struct gd_cuda *cuda = cuda_of(backend);
  if (bound->n_launches[program] == 0)
    return GD_OK;
  GD_TRY(gd_cuda_sections_settle(cuda, bound->sections[program], err));
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
    .caps = cuda_caps,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .peak_flops = cuda_peak_flops,
    .reserve = cuda_reserve,
    .host_memory = cuda_host_memory,
    .usage = cuda_usage,
    .bind = cuda_bind,
    .unbind = cuda_unbind,
    .run = cuda_run,
    .sync = cuda_sync,
    .events = cuda_events,
    .write = cuda_write,
    .clear = cuda_clear,
    .read = cuda_read,
    .clocks = gd_cuda_clocks,
};
