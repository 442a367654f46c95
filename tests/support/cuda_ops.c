/*
 * See cuda_ops.h.
 */
#include "support/cuda_ops.h"

#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/runtime/autotune.h"
#include "backend/cuda/runtime/cuda_int.h"
#include "backend/cuda/runtime/module.h"
#include "backend/cuda/runtime/multi_tensor.h"

enum {
  GUARD_BYTES = 128,       /* as op_harness.c lays them out */
  ARENA_BYTES = 512 << 20, /* all tensors of a case */
  MOST_STEPS = 3,
  MOST_VIEWS = OP_MAX_IN + GD_MAX_OUTPUTS,
};

static struct gd_backend *opened;
static struct gd_cuda pretended;
static struct gd_cuda *cuda;
static int compiled;
static const struct gd_cu *driver;
static struct gd_cu counting; /* the driver, with launches counted */
static int64_t launches;
static int all_shared_bytes; /* of the device */
static int64_t most_workspace_bytes = INT64_MAX;
struct op_backend cuda_ops = {
    .name = "cuda", .on_gpu = true, .threads_alike = true, .library_sums = true};

/* Where a tensor of the host is on the GPU during a call. */
struct twin {
  const char *data;
  char *host; /* with guards, unless it lies apart */
  int64_t bytes;
  CUdeviceptr device;
  CUdeviceptr block; /* of its own, or 0: within the arena */
};

/*
 * GD_TEST_APART=1: every tensor is an allocation of its own, of exactly its size, so that
 * compute-sanitizer sees a read past its end. Guards, which see writes alone, stay at home.
 */
static bool lies_apart(void) {
  const char *text = getenv("GD_TEST_APART");
  return text && text[0] == '1' && !cuda_ops.collects;
}

static void expect(int result, const char *what) {
  struct gd_error err = {0};
  if (gd_cuda_check(cuda, result, what, &err) != GD_OK) {
    fprintf(stderr, "%s\n", err.text);
    abort(); /* the device is of no use any more */
  }
}

static void copy(CUdeviceptr to, CUdeviceptr from, int64_t bytes) {
  expect(cuda->cu->MemcpyAsync(to, from, (size_t)bytes, cuda->stream), "copying");
  expect(cuda->cu->StreamSynchronize(cuda->stream), "a kernel before");
}

/* Takes a tensor to the GPU, aligned as it is here; *at: where the arena is free. */
static struct twin make_twin(char *data, int64_t bytes, CUdeviceptr *at) {
  int64_t shift = (int64_t)((uintptr_t)data % 64), guard = lies_apart() ? 0 : GUARD_BYTES;
  struct twin twin = {.data = data, .host = data - guard, .bytes = bytes + 2 * guard};
  if (lies_apart()) {
    expect(cuda->cu->MemAlloc(&twin.block, (size_t)(shift + bytes + !bytes)), "cuMemAlloc");
    twin.device = twin.block + (CUdeviceptr)shift;
  } else {
    *at = (*at + 511) / 512 * 512;
    twin.device = *at + (CUdeviceptr)shift;
    *at += (CUdeviceptr)(twin.bytes + 64);
  }
  if (!cuda_ops.collects) {
    GD_ASSERT(*at <= cuda->arena + ARENA_BYTES);
    copy(twin.device, (CUdeviceptr)(uintptr_t)twin.host, twin.bytes);
  }
  return twin;
}

/* The tensors of a case on the GPU, each once, and the ops on them. */
struct visit {
  struct twin twins[MOST_STEPS * MOST_VIEWS];
  uint32_t n;
  CUdeviceptr at; /* where the arena is free */
  struct gd_view views[MOST_STEPS][MOST_VIEWS];
  struct gd_kernel_args args[MOST_STEPS];
};

static void visit_op(struct visit *visit, const struct gd_kernel_args *host, uint32_t step) {
  struct gd_view *views = visit->views[step];
  for (uint32_t i = 0; i < host->n_in + host->n_out; i++) {
    views[i] = i < host->n_in ? host->in[i] : host->out[i - host->n_in];
    if (!views[i].data)
      continue;
    char *data = views[i].data;
    struct twin *twin = NULL;
    for (uint32_t j = 0; j < visit->n; j++)
      if (visit->twins[j].data == data)
        twin = &visit->twins[j];
    if (!twin) {
      twin = &visit->twins[visit->n++];
      *twin = make_twin(data, views[i].elements * gd_dtype_bytes(views[i].dtype), &visit->at);
    }
    views[i].data = (void *)(uintptr_t)(twin->device + (CUdeviceptr)(data - twin->host));
  }
  visit->args[step] = *host;
  visit->args[step].in = views;
  visit->args[step].out = views + host->n_in;
  visit->args[step].workspace = (void *)(uintptr_t)cuda->arena;
  visit->args[step].workspace_bytes = GD_CUDA_WORKSPACE_BYTES + host->workspace_bytes;
  if (visit->args[step].workspace_bytes > most_workspace_bytes)
    visit->args[step].workspace_bytes = most_workspace_bytes;
}

/* The guard behind the workspace here stands behind a limited one there, with other bytes of the
   arena after it. */
static void copy_workspace_guard(const struct gd_kernel_args *host, bool home) {
  if (most_workspace_bytes > GD_CUDA_WORKSPACE_BYTES - GUARD_BYTES)
    return;
  CUdeviceptr there = cuda->arena + (CUdeviceptr)most_workspace_bytes;
  CUdeviceptr here = (CUdeviceptr)(uintptr_t)host->workspace + (CUdeviceptr)host->workspace_bytes;
  copy(home ? here : there, home ? there : here, GUARD_BYTES);
}

static void come_home(struct visit *visit) {
  for (uint32_t i = 0; i < visit->n; i++) {
    const struct twin *twin = &visit->twins[i];
    copy((CUdeviceptr)(uintptr_t)twin->host, twin->device, twin->bytes);
    if (twin->block)
      cuda->cu->MemFree(twin->block);
  }
}

static void run(enum gd_op_kind kind, const struct gd_kernel_args *host) {
  struct visit visit = {.at = cuda->arena +
                              (CUdeviceptr)(GD_CUDA_WORKSPACE_BYTES + host->workspace_bytes)};
  struct gd_error err = {0};
  visit_op(&visit, host, 0);
  struct gd_cuda_call call = {.cuda = cuda,
                              .args = &visit.args[0],
                              .stream = cuda->stream,
                              .stage = GD_CUDA_COLLECT,
                              .err = &err};
  if (gd_cuda_ops[kind](&call) != GD_OK)
    fprintf(stderr, "%s: %s\n", gd_op_info(kind)->name, err.text);
  if (cuda_ops.collects)
    return;
  call.stage = GD_CUDA_LAUNCH;
  copy_workspace_guard(host, false);
  if (err.status == GD_OK && gd_cuda_ops[kind](&call) != GD_OK)
    fprintf(stderr, "%s: %s\n", gd_op_info(kind)->name, err.text);
  come_home(&visit);
  copy_workspace_guard(host, true);
}

uint32_t cuda_ops_gemms(const struct gd_kernel_args *host, uint32_t n) {
  static const enum gd_cuda_stage stages[] = {GD_CUDA_COLLECT, GD_CUDA_LAUNCH};
  struct visit visit = {.at = cuda->arena + GD_CUDA_WORKSPACE_BYTES};
  struct gd_cuda_step steps[MOST_STEPS];
  struct gd_error err = {0};
  uint32_t taken = 0;
  GD_ASSERT(n <= MOST_STEPS && !cuda_ops.collects);
  for (uint32_t i = 0; i < n; i++) {
    visit_op(&visit, &host[i], i);
    steps[i] = (struct gd_cuda_step){GD_OP_matmul, &visit.args[i]};
  }
  for (int stage = 0; stage < 2 && err.status == GD_OK; stage++) {
    struct gd_cuda_call call = {
        .cuda = cuda, .stream = cuda->stream, .stage = stages[stage], .err = &err};
    for (uint32_t i = 0; i < n && call.stage == GD_CUDA_COLLECT && err.status == GD_OK; i++) {
      call.args = &visit.args[i];
      if (gd_cuda_ops[GD_OP_matmul](&call) != GD_OK)
        break;
    }
    if (err.status != GD_OK || gd_cuda_multi_gemm(&call, steps, n, &taken) != GD_OK)
      fprintf(stderr, "gemms: %s\n", err.text);
  }
  come_home(&visit);
  return taken;
}

#define GD_OP(name, ...)                                      \
  static void run_##name(const struct gd_kernel_args *args) { \
    run(GD_OP_##name, args);                                  \
  }
#include "ir/ops.def"
#undef GD_OP

void cuda_ops_fused(const struct gd_kernel_args *args) {
  run(GD_OP_fused, args);
}

static gd_kernel kernels[GD_OP_COUNT] = {
#define GD_OP(name, ...) [GD_OP_##name] = run_##name,
#include "ir/ops.def"
#undef GD_OP
};

static int64_t no_bytes(int threads, int64_t widest) {
  (void)threads;
  (void)widest;
  return 0;
}

static void fill_table(void) {
  for (int kind = 0; kind < GD_OP_COUNT; kind++)
    if (!gd_cuda_ops[kind] || kind == GD_OP_fused)
      kernels[kind] = NULL;
  cuda_ops.kernels = kernels;
  cuda_ops.workspace_bytes = no_bytes; /* then what gd_op_scratch_bytes wants is added */
}

void cuda_ops_limit(int shared_bytes, int64_t workspace_bytes) {
  bool less = shared_bytes > 0 && shared_bytes < all_shared_bytes;
  cuda->shared_bytes = less ? shared_bytes : all_shared_bytes;
  most_workspace_bytes = workspace_bytes > 0 ? workspace_bytes : INT64_MAX;
}

int64_t cuda_ops_launches(void) {
  return launches;
}

void cuda_ops_candidate(int n) {
  if (cuda == &pretended)
    return;
  gd_cuda_gemms_free(cuda); /* with what was chosen so far */
  gd_cuda_autotune_close(cuda);
  cuda->fixed_candidate = n;
}

int64_t cuda_ops_cudnn_slices(void) {
  return gd_cudnn_version() > 0 ? cuda->slices_by_cudnn : -1;
}

int64_t cuda_ops_short_attentions(void) {
  return cuda->short_attentions;
}

static int count_launch(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                        unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
                        CUstream stream, void **params, void **extra) {
  launches++;
  return driver->LaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z,
                              shared_bytes, stream, params, extra);
}

bool cuda_ops_open(struct gd_error *why) {
  fill_table();
  if (gd_backend_open("cuda", &(struct gd_backend_options){0}, &opened, why) != GD_OK ||
      opened->ops->reserve(opened, ARENA_BYTES, 0, why) != GD_OK)
    return false;
  cuda = (struct gd_cuda *)opened;
  all_shared_bytes = cuda->shared_bytes;
  launches = 0;
  driver = cuda->cu;
  counting = *driver;
  counting.LaunchKernel = count_launch;
  cuda->cu = &counting;
  return true;
}

bool cuda_ops_pretend(int sm, struct gd_error *why) {
  const struct gd_nvrtc *nvrtc;
  fill_table();
  if (gd_nvrtc_load(&nvrtc, why) != GD_OK)
    return false;
  cuda_ops.collects = true;
  pretended = (struct gd_cuda){.sm = sm,
                               .sm_count = 108,
                               .shared_bytes = sm == 80   ? 166912
                                               : sm == 86 ? 101376
                                                          : 232448,
                               .arena = 1 << 20};
  cuda = &pretended;
  all_shared_bytes = cuda->shared_bytes;
  return gd_cuda_modules_open(cuda, why) == GD_OK;
}

bool cuda_ops_build(struct gd_error *why) {
  return gd_cuda_modules_compile(cuda, &compiled, why) == GD_OK &&
         (cuda == &pretended || gd_cuda_modules_build(cuda, why) == GD_OK);
}

int cuda_ops_built_alone(void) {
  struct gd_error why = {0};
  int all = 0;
  return gd_cuda_modules_compile(cuda, &all, &why) == GD_OK ? all - compiled : 0;
}

void cuda_ops_keep(int every, int which) {
  gd_cuda_modules_keep(cuda, every, which);
}

int cuda_ops_compiled(void) {
  return compiled;
}

void cuda_ops_close(void) {
  if (cuda == &pretended)
    gd_cuda_modules_close(cuda);
  gd_backend_close(opened);
  opened = NULL;
  cuda = NULL;
}
