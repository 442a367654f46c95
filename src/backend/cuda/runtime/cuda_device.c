/*
 * The device of the CUDA backend: which GPU, what it is, its context.
 *
 * The context stays until the process ends: making it takes half a second, and a search opens many
 * backends.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/runtime/cuda_program.h"
#include "backend/cuda/runtime/module.h"
#include "backend/host_memory.h"

enum { OLDEST_SM = GD_GPU_OLDEST }; /* compute capability that kernels are written for */

const char *gd_cuda_say_free(const struct gd_cuda *cuda, char *text, size_t size) {
  size_t free_bytes = 0, total = 0;
  char left[32], all[32];
  if (cuda->cu->MemGetInfo(&free_bytes, &total) != CUDA_SUCCESS) { /* there is no context yet */
    snprintf(text, size, "other programs may have taken the GPU's memory");
    return text;
  }
  bool shared = (int64_t)(total - free_bytes) - cuda->arena_bytes > GD_CUDA_OWN_BYTES;
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
                   gd_cuda_say_free(cuda, left, sizeof left));
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

/*
 * What a GPU without a record should reach, from the FLOPs of one multiprocessor in one cycle:
 * dense 16-bit MMAs of GA100, of GA10x and AD10x, of GH100, of GB100 and of GB20x, as NVIDIA's
 * papers on these architectures have them. Consumer cards do half of it with fp32 accumulation: for
 * them this is too much, and never too little.
 */
static void derive_peaks(const struct gd_cuda *cuda, double peaks[GD_PEAK_COUNT]) {
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
double gd_cuda_peak_flops(struct gd_backend *backend, enum gd_dtype dtype, bool use_tf32) {
  struct gd_cuda *cuda = gd_cuda_of(backend);
  struct gd_hw hw = {0};
  const struct gd_gpu *gpu = NULL;
  char name[128] = "";
  double peaks[GD_PEAK_COUNT];
  derive_peaks(cuda, peaks);
  cuda->cu->DeviceGetName(name, sizeof name, cuda->device);
  if (gd_hw_load(&hw, NULL) == GD_OK && gd_hw_gpu(&hw, name, &gpu, NULL) == GD_OK)
    memcpy(peaks, gpu->flops, sizeof peaks);
  gd_hw_deinit(&hw);
  return peaks[dtype == GD_DTYPE_F16    ? GD_PEAK_FP16
               : dtype == GD_DTYPE_BF16 ? GD_PEAK_BF16
               : use_tf32               ? GD_PEAK_TF32
                                        : GD_PEAK_FP32];
}

void gd_cuda_caps(const struct gd_backend_options *options, struct gd_caps *caps) {
  (void)options;
  gd_caps_gpu(OLDEST_SM, caps);
}

void gd_cuda_describe(struct gd_backend *backend, struct gd_device_info *info) {
  struct gd_cuda *cuda = gd_cuda_of(backend);
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

enum gd_status gd_cuda_device_find(struct gd_cuda *cuda, int local_rank, struct gd_error *err) {
  int count = 0, result = cuda->cu->Init(0);
  if (result == CUDA_SUCCESS)
    cuda->cu->DeviceGetCount(&count);
  if (result == CUDA_ERROR_NO_DEVICE || (result == CUDA_SUCCESS && count <= 0))
    return gd_fail(err, GD_ENVIRONMENT,
                   "there is no GPU for the cuda backend; use --backend cpu, or look at "
                   "CUDA_VISIBLE_DEVICES");
  GD_CUDA_TRY(result, "cuInit");
  GD_CUDA_TRY(cuda->cu->DeviceGet(&cuda->device, local_rank % (count > 0 ? count : 1)),
              "cuDeviceGet");
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
enum gd_status gd_cuda_device_sharing(struct gd_cuda *cuda, struct gd_error *err) {
  enum { UUID_BYTES = 16 };
  int size = cuda->comm ? gd_comm_size(cuda->comm) : 1;
  if (size == 1)
    return GD_OK;
  unsigned char(*all)[UUID_BYTES] = gd_mem_alloc((size_t)size, UUID_BYTES);
  if (!all)
    return gd_nomem(err, "while opening the cuda backend");
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
enum gd_status gd_cuda_context(struct gd_cuda *cuda, struct gd_error *err) {
  static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  static CUcontext contexts[64];
  if (cuda->context)
    return gd_cuda_check(cuda, cuda->cu->CtxSetCurrent(cuda->context), "cuCtxSetCurrent", err);
  int result = CUDA_SUCCESS;
  pthread_mutex_lock(&mutex);
  GD_ASSERT(cuda->device < 64);
  if (!contexts[cuda->device])
    result = cuda->cu->DevicePrimaryCtxRetain(&contexts[cuda->device], cuda->device);
  CUcontext context = contexts[cuda->device];
  pthread_mutex_unlock(&mutex);
  GD_CUDA_TRY(result, "cuDevicePrimaryCtxRetain");
  GD_CUDA_TRY(cuda->cu->CtxSetCurrent(context), "cuCtxSetCurrent");
  if (!cuda->modules)
    GD_TRY(gd_cuda_modules_open(cuda, err));
  if (!cuda->stream)
    GD_CUDA_TRY(cuda->cu->StreamCreate(&cuda->stream, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
  if (!cuda->comm_stream)
    GD_CUDA_TRY(cuda->cu->StreamCreate(&cuda->comm_stream, CU_STREAM_NON_BLOCKING),
                "cuStreamCreate");
  cuda->context = context; /* everything is there */
  return GD_OK;
}
