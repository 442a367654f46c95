/*
 * A GEMM as cuBLASLt takes it: descriptors, layouts, the key of the autotune cache, and the call.
 * See gemm_path.h.
 */
#include <inttypes.h>
#include <stdio.h>

#include "backend/cuda/gemm/gemm_path.h"

/* Of pointers, as told to the library: the planner puts every tensor at such a multiple. Views
   inside a tensor may have less, and may then get another algorithm. */
enum { MOST_ALIGNMENT = 256 };

static int data_type(enum gd_dtype dtype) {
  GD_ASSERT(dtype == GD_DTYPE_F32 || dtype == GD_DTYPE_BF16 || dtype == GD_DTYPE_F16);
  return dtype == GD_DTYPE_F32 ? CUDA_R_32F : dtype == GD_DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_16F;
}

static uint32_t alignment_of(const void *at) {
  uint32_t alignment = MOST_ALIGNMENT;
  while ((uintptr_t)at % alignment != 0)
    alignment /= 2;
  return alignment;
}

void *gd_gemm_workspace(const struct gd_cuda_call *call, int half) {
  uintptr_t at = (uintptr_t)call->args->workspace + (uintptr_t)half * GD_GEMM_HALF_BYTES;
  at = (at + GD_GEMM_ALIGNMENT - 1) / GD_GEMM_ALIGNMENT * GD_GEMM_ALIGNMENT;
  return (void *)at;
}

static int make_layout(const struct gd_cublaslt *lt, cublasLtMatrixLayout_t *layout,
                       enum gd_dtype dtype, int64_t rows, int64_t columns, int64_t ld,
                       int64_t batch, int64_t stride) {
  int failure =
      lt->MatrixLayoutCreate(layout, data_type(dtype), (uint64_t)rows, (uint64_t)columns, ld);
  int32_t count = (int32_t)batch;
  if (!failure && batch > 1)
    failure = lt->MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                           sizeof count);
  if (!failure && batch > 1)
    failure = lt->MatrixLayoutSetAttribute(*layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                           &stride, sizeof stride);
  return failure;
}

/* 0: none. */
static uint32_t epilogue_of(const struct gd_gemm_problem *problem) {
  const struct gd_cuda_gemm *p = problem->gemm;
  uint32_t epilogue = problem->bias ? CUBLASLT_EPILOGUE_BIAS : 0;
  if (p->epilogue == GD_CUDA_EPILOGUE_GELU)
    epilogue |= p->aux ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
  else if (p->epilogue == GD_CUDA_EPILOGUE_DGELU)
    epilogue |= CUBLASLT_EPILOGUE_DGELU;
  return epilogue;
}

static int make_desc(const struct gd_cublaslt *lt, struct gd_gemm_problem *problem) {
  const struct gd_cuda_gemm *p = problem->gemm;
  int32_t trans_a = p->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  int32_t trans_b = p->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  uint32_t epilogue = epilogue_of(problem);
  int32_t pointers = CUBLASLT_POINTER_MODE_DEVICE;
  bool tf32 = p->tf32 && p->dtype == GD_DTYPE_F32;
  const struct {
    bool wanted;
    int attribute;
    const void *value;
    size_t bytes;
  } settings[] = {
      {true, CUBLASLT_MATMUL_DESC_TRANSA, &trans_a, sizeof trans_a},
      {true, CUBLASLT_MATMUL_DESC_TRANSB, &trans_b, sizeof trans_b},
      {problem->path->scales != NULL, CUBLASLT_MATMUL_DESC_POINTER_MODE, &pointers,
       sizeof pointers},
      {epilogue != 0, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue},
      {problem->bias != NULL, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &problem->bias,
       sizeof problem->bias},
      {p->aux != NULL, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &p->aux, sizeof p->aux},
      {p->aux != NULL, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &p->ldd, sizeof p->ldd},
  };
  int failure = lt->MatmulDescCreate(
      &problem->desc, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F, CUDA_R_32F);
  for (size_t i = 0; i < sizeof settings / sizeof *settings && !failure; i++)
    if (settings[i].wanted)
      failure = lt->MatmulDescSetAttribute(problem->desc, settings[i].attribute, settings[i].value,
                                           settings[i].bytes);
  return failure;
}

static void write_pieces(const struct gd_gemm_path *path, char *how, size_t bytes) {
  int at = snprintf(how, bytes, " emulated in %lld MiB", (long long)(path->emulated_bytes >> 20));
  for (path = path->next; path; path = path->next) {
    const struct gd_cuda_gemm *p = &path->gemm;
    at += snprintf(
        how + at, bytes - (size_t)at, ", %c%c %" PRId64 "x%" PRId64 "x%" PRId64 "%s%s align %u,%u",
        p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->m, p->n, p->k, p->bias ? " bias" : "",
        p->adds ? " adds" : "", alignment_of(p->d), alignment_of(p->bias));
    GD_ASSERT(at < (int)bytes);
  }
}

static void write_key(const struct gd_cuda_gemms *gemms, struct gd_gemm_problem *problem) {
  const struct gd_cuda_gemm *p = problem->gemm;
  const struct gd_gemm_path *path = problem->path;
  char how[224] = "";
  if (path->emulated.pieces)
    write_pieces(path, how, sizeof how);
  else if (p->epilogue)
    snprintf(how, sizeof how, " %s aux %u", p->epilogue == GD_CUDA_EPILOGUE_GELU ? "gelu" : "dgelu",
             p->aux ? alignment_of(p->aux) : 0);
  else if (path->n_transposes || path->scales)
    snprintf(how, sizeof how, "%s%s", path->n_transposes ? " transposed" : "",
             path->scales ? " scaled" : "");
  snprintf(problem->key, sizeof problem->key,
           "cublaslt %d.%d.%d %c%c %" PRId64 "x%" PRId64 "x%" PRId64 " batch %" PRId64
           " ld %" PRId64 ",%" PRId64 ",%" PRId64 " stride %" PRId64 ",%" PRId64 ",%" PRId64
           " %s->%s%s%s%s align %u,%u,%u,%u in %lld MiB%s",
           gemms->version[0], gemms->version[1], gemms->version[2], p->trans_a ? 'T' : 'N',
           p->trans_b ? 'T' : 'N', p->m, p->n, p->k, p->batch, p->lda, p->ldb, p->ldd, p->stride_a,
           p->stride_b, p->stride_d, gd_dtype_name(p->dtype), gd_dtype_name(p->dtype_d),
           p->tf32 && p->dtype == GD_DTYPE_F32 ? " tf32" : "", problem->bias ? " bias" : "",
           p->adds ? " adds" : "", problem->alignment[0], problem->alignment[1],
           problem->alignment[2], problem->alignment[3],
           (long long)((problem->workspace_bytes + (1 << 20) - 1) >> 20), how);
}

void gd_gemm_problem_deinit(const struct gd_cuda_gemms *gemms, struct gd_gemm_problem *problem) {
  const struct gd_cublaslt *lt = gemms->lt;
  if (problem->desc)
    lt->MatmulDescDestroy(problem->desc);
  if (problem->a)
    lt->MatrixLayoutDestroy(problem->a);
  if (problem->b)
    lt->MatrixLayoutDestroy(problem->b);
  if (problem->d)
    lt->MatrixLayoutDestroy(problem->d);
}

enum gd_status gd_gemm_problem_failed(const char *what, int failure,
                                      const struct gd_gemm_problem *problem, struct gd_error *err) {
  return gd_fail(err, GD_ENVIRONMENT, "cuBLASLt %s the GEMM %s (status %d)", what, problem->key,
                 failure);
}

enum gd_status gd_gemm_problem_init(const struct gd_cuda_gemms *gemms,
                                    struct gd_gemm_problem *problem,
                                    const struct gd_gemm_path *path, const void *bias,
                                    struct gd_error *err) {
  const struct gd_cublaslt *lt = gemms->lt;
  const struct gd_cuda_gemm *p = &path->gemm;
  *problem = (struct gd_gemm_problem){
      .gemm = p,
      .path = path,
      .bias = bias,
      .workspace_bytes = path->workspace_bytes,
      .alignment = {alignment_of(p->a), alignment_of(p->b), alignment_of(p->d), alignment_of(bias)},
  };
  write_key(gemms, problem);
  GD_ASSERT(p->batch <= INT32_MAX);
  int failure = make_desc(lt, problem);
  if (!failure)
    failure = make_layout(lt, &problem->a, p->dtype, p->trans_a ? p->k : p->m,
                          p->trans_a ? p->m : p->k, p->lda, p->batch, p->stride_a);
  if (!failure)
    failure = make_layout(lt, &problem->b, p->dtype, p->trans_b ? p->n : p->k,
                          p->trans_b ? p->k : p->n, p->ldb, p->batch, p->stride_b);
  if (!failure)
    failure = make_layout(lt, &problem->d, p->dtype_d, p->m, p->n, p->ldd, p->batch, p->stride_d);
  if (!failure)
    return GD_OK;
  gd_gemm_problem_deinit(gemms, problem);
  return gd_gemm_problem_failed("cannot describe", failure, problem, err);
}

struct gd_cuda_kernel gd_gemm_kernel(const char *name, const struct gd_cuda_gemm *p) {
  return (struct gd_cuda_kernel){
      .file = "matmul", .name = name, .n_types = 1, .types = {p->dtype_d}};
}

static enum gd_status transpose(const struct gd_cuda_call *call,
                                const struct gd_gemm_problem *problem) {
  struct gd_cuda_kernel kernel = gd_gemm_kernel("matmul_transpose", problem->gemm);
  for (int i = 0; i < problem->path->n_transposes; i++) {
    struct gd_cuda_transpose t = problem->path->transposes[i];
    struct gd_cuda_grid grid = {.x = (t.rows + 31) / 32 * ((t.columns + 31) / 32), .threads = 256};
    GD_TRY(gd_cuda_launch_now(
        call, &kernel, grid,
        (void *[]){&t.to, &t.from, &t.rows, &t.columns, &t.from_pitch, &t.to_pitch}));
  }
  return GD_OK;
}

int gd_gemm_problem_run(const struct gd_cuda_call *call, const struct gd_gemm_problem *problem,
                        const cublasLtMatmulAlgo_t *algo) {
  const struct gd_cuda_gemm *p = problem->gemm;
  const float own[2] = {p->alpha, p->adds ? 1 : 0};
  const float *scales = problem->path->scales ? problem->path->scales : own;
  const struct gd_cuda_gemms *gemms = call->cuda->gemms;
  if (transpose(call, problem) != GD_OK)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return gemms->lt->Matmul(gemms->handle, problem->desc, &scales[0], p->a, problem->a, p->b,
                           problem->b, &scales[1], p->d, problem->d, p->d, problem->d, algo,
                           gd_gemm_workspace(call, 0), (size_t)problem->workspace_bytes,
                           call->stream);
}

/* From the first element of a stored matrix to behind the last, over the batch. */
static int64_t extent(int64_t rows, int64_t columns, int64_t ld, int64_t batch, int64_t stride) {
  return (batch - 1) * stride + (columns - 1) * ld + rows;
}

enum gd_status gd_gemm_random_operands(const struct gd_cuda_call *call,
                                       const struct gd_gemm_path *path) {
  const struct gd_cuda_gemm *p = &path->gemm;
  int64_t a =
      extent(p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->lda, p->batch, p->stride_a);
  int64_t b =
      extent(p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->ldb, p->batch, p->stride_b);
  for (int i = 0; i < path->n_transposes; i++) {
    const struct gd_cuda_transpose *t = &path->transposes[i];
    int64_t elements = extent(t->columns, t->rows, t->from_pitch, 1, 0);
    GD_TRY(gd_cuda_random_fill(call, t->from, elements, p->dtype));
  }
  if (p->epilogue == GD_CUDA_EPILOGUE_DGELU)
    GD_TRY(gd_cuda_random_fill(call, p->aux, extent(p->m, p->n, p->ldd, 1, 0), p->dtype_d));
  GD_TRY(gd_cuda_random_fill(call, p->a, a, p->dtype));
  return gd_cuda_random_fill(call, p->b, b, p->dtype);
}

double gd_gemm_flops(const struct gd_cuda_gemm *p) {
  return 2.0 * (double)p->m * (double)p->n * (double)p->k * (double)p->batch;
}
