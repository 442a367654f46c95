/*
 * Products by cuBLASLt: descriptors, the choice of an algorithm, and the small kernels around them
 * (kernels/matmul.cu). What is multiplied with what is product.c's to say.
 *
 * The library proposes algorithms; when a plan is bound, each is timed on the plan's own addresses,
 * filled with numbers (noise.c), and the fastest is kept, by everything that may matter to it:
 * shape, layout, dtypes, epilogue, alignment. Choices outlive the process in a text file by GPU and
 * library version, one line each, with the time and rate that were measured, for people to read; a
 * line that is damaged, or that the library no longer takes, counts for nothing. With
 * GPUDAYS_DETERMINISTIC=1 it is the library's first proposal, so that processes that know nothing
 * of each other choose alike.
 *
 * Products in TF32 whose operands do not have k contiguous have an alternative: copies of these,
 * turned, in the workspace, and the product that Hopper's tensor cores do best. Both are timed, the
 * copies included, and the faster one runs. For people who tune: with GPUDAYS_TURNED=0 there are no
 * turned products, with GPUDAYS_TURNED=1 there are wherever there is room, in full fp32 too.
 *
 * Another alternative for TF32 are halves (halves.h): operands rounded to as many bits in fp16,
 * which tensor cores multiply at twice the rate. Pieces as large as the workspace holds, and
 * smaller ones that may stay in the L2 cache, are timed with all that comes before them.
 * GPUDAYS_HALVES=0: never; 1: for every product in TF32 that has room; 2: likewise, in the smaller
 * pieces. Never where nothing may be chosen by its time.
 *
 * Products that together.c finds to share an operand are timed together too, against the sum of
 * their best times apart. GPUDAYS_TOGETHER=0: always apart. Those that can have a gelu, or its
 * slope, in their epilogue are activated.c's to find and to choose.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/choices.h"
#include "backend/cuda/halves.h"
#include "backend/cuda/product.h"

enum {
  HALF_BYTES = GD_CUDA_WORKSPACE_BYTES / 2,
  WORKSPACE_ALIGNMENT = 256,
  LIBRARY_BYTES = HALF_BYTES - WORKSPACE_ALIGNMENT,          /* most that an algorithm may want */
  ALL_BYTES = GD_CUDA_WORKSPACE_BYTES - WORKSPACE_ALIGNMENT, /* where our half is not in use */
  /* Of pointers, as told to the library: the planner puts every tensor at such a multiple. Views
     inside a tensor may have less, and may then get another algorithm. */
  MOST_ALIGNMENT = 256,
  CANDIDATES = 24,
  FINALISTS = 4, /* the fastest of them, timed again in turns */
  ROUNDS = 3,
  MOST_RUNS = 10, /* of a finalist in a round */
  /* Of the workspace where a product is one of halves: the library's, slots, the halves. */
  HALVES_LIBRARY_BYTES = 32 << 20,
  HALVES_SLOTS_AT = HALVES_LIBRARY_BYTES,
  HALVES_ROOM_AT = HALVES_SLOTS_AT + GD_CUDA_HALVES_SLOTS_BYTES,
  HALVES_ROOM_BYTES = ALL_BYTES - HALVES_ROOM_AT,
  HALVES_IN_CACHE_BYTES = 36 << 20, /* of the 50 MB that an H100 or H200 has */
  MOST_WAYS = 4,
};
static const double final_ms = 20; /* of one problem's finalists, about */
static const double least_tried_flops = 1e9;

struct products {
  const struct gd_cublaslt *lt;
  cublasLtHandle_t handle;
  CUevent begin, end;
  struct gd_cuda_choices choices;
};

/* One way to compute a product. */
struct way {
  struct gd_cuda_product product;
  struct gd_cuda_turn turns[2]; /* what is copied first: n_turns of them */
  struct gd_cuda_halves halves; /* no pieces: it is not cut */
  int64_t halves_bytes;         /* what its pieces may take */
  const struct way *beside;     /* a product that shares B: its pieces come after this one's */
  const float *factors;         /* alpha and beta on the device; NULL: those of the product */
  int64_t workspace_bytes;
  int n_turns;
  bool now;      /* runs in TUNE too */
  bool demanded; /* by people who tune: goes before those that are not */
};

/* A product as the library sees it. */
struct problem {
  const struct gd_cuda_product *product;
  const struct way *way;
  const void *bias; /* in the dtype of D, or NULL */
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, d;
  uint32_t alignment[4]; /* of a, b, d, bias */
  int64_t workspace_bytes;
  char key[GD_CUDA_KEY_BYTES];
};

/* --- state ---------------------------------------------------------------------------------- */

static enum gd_status open_products(struct gd_cuda *cuda, struct gd_error *err) {
  if (cuda->products)
    return GD_OK;
  struct products *products = gd_mem_alloc(1, sizeof *products);
  if (!products)
    return gd_fail(err, GD_ENVIRONMENT, "out of memory while opening cuBLASLt");
  cuda->products = products;
  enum gd_status status = gd_cublaslt_load(&products->lt, err);
  if (status == GD_OK) {
    int failure = products->lt->Create(&products->handle);
    if (failure != CUBLAS_STATUS_SUCCESS)
      status = gd_fail(
          err, GD_ENVIRONMENT,
          "cuBLASLt cannot be started (status %d); is its version right for the driver?", failure);
  }
  if (status == GD_OK)
    status = gd_cuda_check(cuda, cuda->cu->EventCreate(&products->begin, CU_EVENT_DEFAULT),
                           "making an event", err);
  if (status == GD_OK)
    status = gd_cuda_check(cuda, cuda->cu->EventCreate(&products->end, CU_EVENT_DEFAULT),
                           "making an event", err);
  if (status != GD_OK) {
    gd_cuda_products_free(cuda);
    return status;
  }
  gd_cuda_choices_open(cuda, products->lt, &products->choices);
  return GD_OK;
}

void gd_cuda_products_free(struct gd_cuda *cuda) {
  struct products *products = cuda->products;
  if (!products)
    return;
  gd_cuda_choices_close(&products->choices);
  if (products->begin)
    cuda->cu->EventDestroy(products->begin);
  if (products->end)
    cuda->cu->EventDestroy(products->end);
  if (products->handle && !cuda->broken)
    products->lt->Destroy(products->handle);
  gd_mem_free(products);
  cuda->products = NULL;
}

/* --- one problem ---------------------------------------------------------------------------- */

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

/* The addresses behind args->workspace: the library's half and ours, from a multiple of 256 on. */
static void *workspace_half(const struct gd_cuda_call *call, int half) {
  uintptr_t at = (uintptr_t)call->args->workspace + (uintptr_t)half * HALF_BYTES;
  at = (at + WORKSPACE_ALIGNMENT - 1) / WORKSPACE_ALIGNMENT * WORKSPACE_ALIGNMENT;
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
static uint32_t epilogue_of(const struct problem *problem) {
  const struct gd_cuda_product *p = problem->product;
  uint32_t epilogue = problem->bias ? CUBLASLT_EPILOGUE_BIAS : 0;
  if (p->epilogue == GD_CUDA_EPILOGUE_GELU)
    epilogue |= p->aux ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
  else if (p->epilogue == GD_CUDA_EPILOGUE_DGELU)
    epilogue |= CUBLASLT_EPILOGUE_DGELU;
  return epilogue;
}

static int make_desc(const struct gd_cublaslt *lt, struct problem *problem) {
  const struct gd_cuda_product *p = problem->product;
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
      {problem->way->factors != NULL, CUBLASLT_MATMUL_DESC_POINTER_MODE, &pointers,
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

static void write_pieces(const struct way *way, char *how, size_t bytes) {
  int at = snprintf(how, bytes, " in halves of %lld MiB", (long long)(way->halves_bytes >> 20));
  for (way = way->beside; way; way = way->beside) {
    const struct gd_cuda_product *p = &way->product;
    at += snprintf(
        how + at, bytes - (size_t)at, ", %c%c %" PRId64 "x%" PRId64 "x%" PRId64 "%s%s align %u,%u",
        p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->m, p->n, p->k, p->bias ? " bias" : "",
        p->adds ? " adds" : "", alignment_of(p->d), alignment_of(p->bias));
    GD_ASSERT(at < (int)bytes);
  }
}

static void write_key(struct problem *problem) {
  const struct gd_cuda_product *p = problem->product;
  const struct way *way = problem->way;
  char how[224] = "";
  if (way->halves.pieces)
    write_pieces(way, how, sizeof how);
  else if (p->epilogue)
    snprintf(how, sizeof how, " %s aux %u", p->epilogue == GD_CUDA_EPILOGUE_GELU ? "gelu" : "dgelu",
             p->aux ? alignment_of(p->aux) : 0);
  else if (way->n_turns || way->factors)
    snprintf(how, sizeof how, "%s%s", way->n_turns ? " turned" : "", way->factors ? " scaled" : "");
  snprintf(problem->key, sizeof problem->key,
           "%c%c %" PRId64 "x%" PRId64 "x%" PRId64 " batch %" PRId64 " ld %" PRId64 ",%" PRId64
           ",%" PRId64 " stride %" PRId64 ",%" PRId64 ",%" PRId64
           " %s->%s%s%s%s align %u,%u,%u,%u in %lld MiB%s",
           p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', p->m, p->n, p->k, p->batch, p->lda,
           p->ldb, p->ldd, p->stride_a, p->stride_b, p->stride_d, gd_dtype_name(p->dtype),
           gd_dtype_name(p->dtype_d), p->tf32 && p->dtype == GD_DTYPE_F32 ? " tf32" : "",
           problem->bias ? " bias" : "", p->adds ? " adds" : "", problem->alignment[0],
           problem->alignment[1], problem->alignment[2], problem->alignment[3],
           (long long)((problem->workspace_bytes + (1 << 20) - 1) >> 20), how);
}

static void problem_deinit(const struct gd_cublaslt *lt, struct problem *problem) {
  if (problem->desc)
    lt->MatmulDescDestroy(problem->desc);
  if (problem->a)
    lt->MatrixLayoutDestroy(problem->a);
  if (problem->b)
    lt->MatrixLayoutDestroy(problem->b);
  if (problem->d)
    lt->MatrixLayoutDestroy(problem->d);
}

static enum gd_status failed(const char *what, int failure, const struct problem *problem,
                             struct gd_error *err) {
  return gd_fail(err, GD_ENVIRONMENT, "cuBLASLt %s the product %s (status %d)", what, problem->key,
                 failure);
}

static enum gd_status problem_init(const struct gd_cublaslt *lt, struct problem *problem,
                                   const struct way *way, const void *bias, struct gd_error *err) {
  const struct gd_cuda_product *p = &way->product;
  *problem = (struct problem){
      .product = p,
      .way = way,
      .bias = bias,
      .workspace_bytes = way->workspace_bytes,
      .alignment = {alignment_of(p->a), alignment_of(p->b), alignment_of(p->d), alignment_of(bias)},
  };
  write_key(problem);
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
  problem_deinit(lt, problem);
  return failed("cannot describe", failure, problem, err);
}

static struct gd_cuda_kernel kernel_of(const char *name, const struct gd_cuda_product *p) {
  return (struct gd_cuda_kernel){
      .file = "matmul", .name = name, .n_types = 1, .types = {p->dtype_d}};
}

static enum gd_status turn(const struct gd_cuda_call *call, const struct problem *problem) {
  struct gd_cuda_kernel kernel = kernel_of("matmul_turn", problem->product);
  for (int i = 0; i < problem->way->n_turns; i++) {
    struct gd_cuda_turn t = problem->way->turns[i];
    struct gd_cuda_grid grid = {.x = (t.rows + 31) / 32 * ((t.columns + 31) / 32), .threads = 256};
    GD_TRY(gd_cuda_launch_now(
        call, &kernel, grid,
        (void *[]){&t.to, &t.from, &t.rows, &t.columns, &t.from_pitch, &t.to_pitch}));
  }
  return GD_OK;
}

/* Returns the library's status. */
static int multiply(const struct gd_cuda_call *call, const struct products *products,
                    const struct problem *problem, const cublasLtMatmulAlgo_t *algo) {
  const struct gd_cuda_product *p = problem->product;
  const float own[2] = {p->alpha, p->adds ? 1 : 0};
  const float *factors = problem->way->factors ? problem->way->factors : own;
  if (turn(call, problem) != GD_OK)
    return CUBLAS_STATUS_NOT_SUPPORTED;
  return products->lt->Matmul(products->handle, problem->desc, &factors[0], p->a, problem->a, p->b,
                              problem->b, &factors[1], p->d, problem->d, p->d, problem->d, algo,
                              workspace_half(call, 0), (size_t)problem->workspace_bytes,
                              call->stream);
}

/* --- choosing ------------------------------------------------------------------------------- */

/* At most CANDIDATES algorithms, what the library holds for the best first; 0: it has none. */
static int propose(const struct products *products, const struct problem *problem,
                   cublasLtMatmulAlgo_t *algos) {
  const struct gd_cublaslt *lt = products->lt;
  const uint64_t most_bytes = (uint64_t)problem->workspace_bytes;
  const uint32_t scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  const struct {
    int attribute;
    const void *value;
    size_t bytes;
  } settings[] = {
      {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most_bytes, sizeof most_bytes},
      {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &scheme, sizeof scheme},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &problem->alignment[0], sizeof(uint32_t)},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &problem->alignment[1], sizeof(uint32_t)},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &problem->alignment[2], sizeof(uint32_t)},
      {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &problem->alignment[2], sizeof(uint32_t)},
  };
  cublasLtMatmulHeuristicResult_t results[CANDIDATES];
  cublasLtMatmulPreference_t preference = NULL;
  int found = 0, taken = 0;
  int failure = lt->MatmulPreferenceCreate(&preference);
  for (size_t i = 0; i < sizeof settings / sizeof *settings && !failure; i++)
    failure = lt->MatmulPreferenceSetAttribute(preference, settings[i].attribute, settings[i].value,
                                               settings[i].bytes);
  if (!failure)
    failure =
        lt->MatmulAlgoGetHeuristic(products->handle, problem->desc, problem->a, problem->b,
                                   problem->d, problem->d, preference, CANDIDATES, results, &found);
  if (preference)
    lt->MatmulPreferenceDestroy(preference);
  for (int i = 0; i < found && !failure; i++)
    if (results[i].state == CUBLAS_STATUS_SUCCESS && results[i].workspaceSize <= most_bytes)
      algos[taken++] = results[i].algo;
  return taken;
}

static bool still_taken(const struct products *products, const struct problem *problem,
                        const cublasLtMatmulAlgo_t *algo) {
  cublasLtMatmulHeuristicResult_t result = {0};
  return products->lt->MatmulAlgoCheck(products->handle, problem->desc, problem->a, problem->b,
                                       problem->d, problem->d, algo,
                                       &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= (size_t)problem->workspace_bytes;
}

/* Milliseconds of one of `runs` products; negative: the library refuses. */
static enum gd_status time_runs(const struct gd_cuda_call *call, const struct products *products,
                                const struct problem *problem, const cublasLtMatmulAlgo_t *algo,
                                int runs, double *ms) {
  const struct gd_cu *cu = call->cuda->cu;
  float all = 0;
  int failure = CUBLAS_STATUS_SUCCESS;
  GD_TRY(gd_cuda_check(call->cuda, cu->EventRecord(products->begin, call->stream),
                       "timing a product", call->err));
  for (int i = 0; i < runs && !failure; i++)
    failure = multiply(call, products, problem, algo);
  GD_TRY(gd_cuda_check(call->cuda, cu->EventRecord(products->end, call->stream), "timing a product",
                       call->err));
  GD_TRY(gd_cuda_check(call->cuda, cu->EventSynchronize(products->end), "timing a product",
                       call->err));
  GD_TRY(gd_cuda_check(call->cuda, cu->EventElapsedTime(&all, products->begin, products->end),
                       "timing a product", call->err));
  *ms = failure ? -1 : (double)all / runs;
  return GD_OK;
}

struct candidate {
  int at; /* in the order of the library */
  double ms;
};

/* The first run of each loads its kernel and is not timed. The fastest first; returns how many run.
 */
static enum gd_status time_each(const struct gd_cuda_call *call, const struct products *products,
                                const struct problem *problem, const cublasLtMatmulAlgo_t *algos,
                                int count, struct candidate *candidates, int *taken) {
  *taken = 0;
  for (int i = 0; i < count; i++) {
    double ms;
    GD_TRY(time_runs(call, products, problem, &algos[i], 1, &ms));
    if (ms >= 0)
      GD_TRY(time_runs(call, products, problem, &algos[i], 1, &ms));
    if (ms < 0)
      continue;
    int to = (*taken)++;
    for (; to > 0 && candidates[to - 1].ms > ms; to--)
      candidates[to] = candidates[to - 1];
    candidates[to] = (struct candidate){i, ms};
  }
  return GD_OK;
}

/* From the first element of a stored matrix to behind the last, over the batch. */
static int64_t extent(int64_t rows, int64_t columns, int64_t ld, int64_t batch, int64_t stride) {
  return (batch - 1) * stride + (columns - 1) * ld + rows;
}

static enum gd_status fill_operands(const struct gd_cuda_call *call,
                                    const struct problem *problem) {
  const struct gd_cuda_product *p = problem->product;
  int64_t a =
      extent(p->trans_a ? p->k : p->m, p->trans_a ? p->m : p->k, p->lda, p->batch, p->stride_a);
  int64_t b =
      extent(p->trans_b ? p->n : p->k, p->trans_b ? p->k : p->n, p->ldb, p->batch, p->stride_b);
  for (int i = 0; i < problem->way->n_turns; i++) {
    const struct gd_cuda_turn *t = &problem->way->turns[i];
    int64_t elements = extent(t->columns, t->rows, t->from_pitch, 1, 0);
    GD_TRY(gd_cuda_noise(call, t->from, elements, p->dtype));
  }
  if (p->epilogue == GD_CUDA_EPILOGUE_DGELU)
    GD_TRY(gd_cuda_noise(call, p->aux, extent(p->m, p->n, p->ldd, 1, 0), p->dtype_d));
  GD_TRY(gd_cuda_noise(call, p->a, a, p->dtype));
  return gd_cuda_noise(call, p->b, b, p->dtype);
}

/* Keeps the fastest: every proposal once, then the best few in turns, so that a clock that falls
   meanwhile falls for all of them, and by the least of their times. */
static enum gd_status tune(const struct gd_cuda_call *call, struct products *products,
                           const struct problem *problem, const cublasLtMatmulAlgo_t *algos,
                           int count, struct gd_cuda_choice *choice) {
  const struct gd_cuda_product *p = problem->product;
  struct candidate candidates[CANDIDATES];
  int taken, best = 0;
  GD_TRY(fill_operands(call, problem));
  GD_TRY(time_each(call, products, problem, algos, count, candidates, &taken));
  if (taken == 0 && (p->epilogue || problem->way->n_turns || problem->way->factors)) {
    /* There is another way: the product apart, as it is. */
    choice->state = GD_CUDA_CHOICE_UNSUPPORTED;
    return GD_OK;
  }
  if (taken == 0)
    return failed("runs no algorithm it proposes for", CUBLAS_STATUS_NOT_SUPPORTED, problem,
                  call->err);
  int finalists = taken < FINALISTS ? taken : FINALISTS;
  double once_ms = candidates[0].ms > 1e-3 ? candidates[0].ms : 1e-3;
  double fit = final_ms / (ROUNDS * finalists * once_ms);
  int runs = fit > MOST_RUNS ? MOST_RUNS : fit < 1 ? 1 : (int)fit;
  for (int round = 0; round < ROUNDS && taken > 1; round++)
    for (int i = 0; i < finalists; i++) {
      double ms;
      GD_TRY(time_runs(call, products, problem, &algos[candidates[i].at], runs, &ms));
      if (ms >= 0 && (round == 0 || ms < candidates[i].ms))
        candidates[i].ms = ms; /* the single run before says less */
    }
  for (int i = 1; i < finalists; i++)
    if (candidates[i].ms < candidates[best].ms)
      best = i;
  double ms = candidates[best].ms > 1e-6 ? candidates[best].ms : 1e-6;
  double flops = 2.0 * (double)p->m * (double)p->n * (double)p->k * (double)p->batch;
  snprintf(choice->note, sizeof choice->note, "%.1f us, %.1f TFLOP/s, number %d of %d", ms * 1e3,
           flops / ms * 1e-9, candidates[best].at + 1, count);
  choice->algo = algos[candidates[best].at];
  choice->state = GD_CUDA_CHOICE_TIMED;
  choice->ran = products->choices.changed = true;
  return GD_OK;
}

/* The algorithm for a problem: its state may be GD_CUDA_CHOICE_UNSUPPORTED. */
static enum gd_status choose(const struct gd_cuda_call *call, struct products *products,
                             const struct problem *problem, struct gd_cuda_choice **chosen) {
  cublasLtMatmulAlgo_t algos[CANDIDATES];
  int count = 0;
  struct gd_cuda_choice *choice = gd_cuda_choice_find(&products->choices, problem->key);
  bool tuning = call->stage == GD_CUDA_TUNE && !call->cuda->deterministic;
  if (!choice) {
    choice = gd_cuda_choice_add(&products->choices, problem->key);
    if (!choice)
      return gd_fail(call->err, GD_ENVIRONMENT, "out of memory while choosing how to multiply");
    choice->state = GD_CUDA_CHOICE_UNSUPPORTED;
    count = propose(products, problem, algos);
  } else if (choice->state == GD_CUDA_CHOICE_STORED &&
             still_taken(products, problem, &choice->algo)) {
    choice->state = GD_CUDA_CHOICE_TIMED;
  } else if (choice->state == GD_CUDA_CHOICE_STORED ||
             (choice->state == GD_CUDA_CHOICE_PROPOSED && tuning)) {
    count = propose(products, problem, algos);
    choice->state = GD_CUDA_CHOICE_UNSUPPORTED;
  }
  if (count > 0) {
    choice->state = GD_CUDA_CHOICE_PROPOSED;
    choice->algo = algos[0];
    if (tuning)
      GD_TRY(tune(call, products, problem, algos, count, choice));
  }
  *chosen = choice;
  return GD_OK;
}

/* --- running -------------------------------------------------------------------------------- */

static struct gd_cuda_grid grid_of(const struct gd_cuda *cuda, int64_t items) {
  return (struct gd_cuda_grid){.x = gd_cuda_blocks(cuda, items, 256, 16), .threads = 256};
}

/* Where the library reads the bias: one that is rounded first lies in our half of the workspace. */
static const void *bias_of(const struct gd_cuda_call *call, struct way *way) {
  if (way->product.bias_way != GD_CUDA_BIAS_ROUNDED)
    return way->product.bias;
  way->workspace_bytes = LIBRARY_BYTES;
  return workspace_half(call, 1);
}

/* By the library alone; *done is false where it has no algorithm. */
static enum gd_status run_uncut(const struct gd_cuda_call *call, struct way *way, bool *done) {
  struct products *products = call->cuda->products;
  const struct gd_cuda_product *p = &way->product;
  struct problem problem;
  struct gd_cuda_choice *choice;
  const void *bias = bias_of(call, way);
  *done = false;
  if (p->bias_way == GD_CUDA_BIAS_ROUNDED) {
    struct gd_cuda_kernel kernel = kernel_of("matmul_round", p);
    int64_t count = p->m;
    if (p->m * gd_dtype_bytes(p->dtype_d) > LIBRARY_BYTES)
      return GD_OK;
    GD_TRY(GD_CUDA_LAUNCH(call, &kernel, grid_of(call->cuda, count), &bias,
                          &(const float *){p->bias}, &count));
  }
  GD_TRY(problem_init(products->lt, &problem, way, bias, call->err));
  enum gd_status status = choose(call, products, &problem, &choice);
  *done = status == GD_OK && choice->state != GD_CUDA_CHOICE_UNSUPPORTED;
  if (*done && (call->stage == GD_CUDA_LAUNCH || way->now || !choice->ran)) {
    int failure = multiply(call, products, &problem, &choice->algo);
    choice->ran = true;
    if (failure)
      status = failed("failed at", failure, &problem, call->err);
  }
  problem_deinit(products->lt, &problem);
  return status;
}

/* --- in pieces of halves --------------------------------------------------------------------- */

static void *halves_slots(const struct gd_cuda_call *call) {
  return (char *)workspace_half(call, 0) + HALVES_SLOTS_AT;
}

static enum gd_status run_piece(const struct gd_cuda_call *call, const struct way *way, int64_t at,
                                bool now, bool *done) {
  void *slots = halves_slots(call);
  struct way piece = {.workspace_bytes = HALVES_LIBRARY_BYTES,
                      .factors = gd_cuda_halves_factors(slots),
                      .now = now};
  struct gd_cuda_casts casts;
  gd_cuda_halves_piece(&way->product, &way->halves, at, &piece.product, &casts);
  GD_TRY(gd_cuda_halves_cast(call, &piece.product, &casts, slots));
  return run_uncut(call, &piece, done);
}

/* All launches; *done is false where the library has no algorithm, and nothing has run. */
static enum gd_status run_pieces(const struct gd_cuda_call *call, const struct way *way, bool now,
                                 bool *done) {
  struct gd_cuda_product products[GD_CUDA_HALVES_SHARING];
  int n = 0;
  for (const struct way *w = way; w; w = w->beside)
    products[n++] = w->product;
  GD_TRY(gd_cuda_halves_sample(call, products, n, halves_slots(call)));
  for (int64_t at = 0; at < way->halves.pieces; at++)
    for (const struct way *w = way; w; w = w->beside) {
      GD_TRY(run_piece(call, w, at, now, done));
      if (!*done)
        return (at == 0 && w == way) || call->stage == GD_CUDA_TUNE
                   ? GD_OK
                   : gd_fail(call->err, GD_ENVIRONMENT,
                             "cuBLASLt multiplies one piece of a product and not the next; set "
                             "GPUDAYS_HALVES=0");
    }
  return GD_OK;
}

struct timed {
  const struct gd_cuda_call *call;
  const struct way *way;
};

static enum gd_status run_timed(const void *user) {
  const struct timed *timed = user;
  bool done;
  return run_pieces(timed->call, timed->way, true, &done);
}

/* The note of the whole, as if it were an algorithm: time_of reads it. */
static void time_pieces(const struct gd_cuda_call *call, const struct way *way, const char *key) {
  struct products *products = call->cuda->products;
  struct gd_cuda_call quiet = *call;
  quiet.err = NULL; /* a failure is no error: the way is not taken */
  double us = gd_cuda_time_us(&quiet, run_timed, &(struct timed){&quiet, way}), flops = 0;
  for (const struct way *w = way; w; w = w->beside)
    flops += 2.0 * (double)w->product.m * (double)w->product.n * (double)w->product.k;
  struct gd_cuda_choice *choice =
      us < HUGE_VAL ? gd_cuda_choice_add(&products->choices, key) : NULL;
  if (!choice)
    return; /* it has no time and is not taken */
  us = fmax(us, 1e-3);
  snprintf(choice->note, sizeof choice->note, "%.1f us, %.1f TFLOP/s, %lld pieces", us,
           flops / us * 1e-6, (long long)way->halves.pieces);
  choice->state = GD_CUDA_CHOICE_TIMED;
  choice->ran = products->choices.changed = true;
}

static enum gd_status run_halves(const struct gd_cuda_call *call, const struct way *way,
                                 bool *done) {
  struct products *products = call->cuda->products;
  struct problem whole;
  struct gd_cuda_choice *choice;
  if (call->stage != GD_CUDA_TUNE)
    return run_pieces(call, way, false, done);
  GD_TRY(problem_init(products->lt, &whole, way, way->product.bias, call->err));
  problem_deinit(products->lt, &whole); /* operands and key are what is wanted */
  choice = gd_cuda_choice_find(&products->choices, whole.key);
  *done = choice && choice->ran;
  if (*done)
    return GD_OK;
  for (const struct way *w = way; w; w = w->beside)
    GD_TRY(fill_operands(call, &(struct problem){.product = &w->product, .way = w}));
  GD_TRY(run_pieces(call, way, false, done));
  choice = gd_cuda_choice_find(&products->choices, whole.key); /* they may have moved */
  if (choice) {
    choice->ran = *done;
    choice->state = *done ? choice->state : GD_CUDA_CHOICE_UNSUPPORTED;
  } else if (*done)
    time_pieces(call, way, whole.key);
  return GD_OK;
}

/* --- which way ------------------------------------------------------------------------------- */

static enum gd_status run_way(const struct gd_cuda_call *call, struct way *way, bool *done) {
  return way->halves.pieces ? run_halves(call, way, done) : run_uncut(call, way, done);
}

/* What a way takes, by its note; infinite where it was not timed. */
static enum gd_status time_of(const struct gd_cuda_call *call, const struct way *way, double *us) {
  struct products *products = call->cuda->products;
  struct problem problem;
  struct way same = *way;
  const void *bias = bias_of(call, &same);
  GD_TRY(problem_init(products->lt, &problem, &same, bias, call->err));
  const struct gd_cuda_choice *choice = gd_cuda_choice_find(&products->choices, problem.key);
  bool timed = choice &&
               (choice->state == GD_CUDA_CHOICE_TIMED || choice->state == GD_CUDA_CHOICE_STORED) &&
               choice->note[0] &&
               (choice->ran || !way->halves.pieces); /* else it may need what is not loaded */
  *us = timed ? strtod(choice->note, NULL) : HUGE_VAL;
  problem_deinit(products->lt, &problem);
  return GD_OK;
}

char gd_cuda_said(const char *variable) {
  const char *value = getenv(variable);
  return value ? value[0] : '\0';
}

static bool worth_trying(const struct gd_cuda_product *p) {
  return p->tf32 && 2.0 * (double)p->m * (double)p->n * (double)p->k >= least_tried_flops;
}

/* Its operands turned, if that is worth trying. */
static int turned_way(const struct gd_cuda_call *call, const struct gd_cuda_product *p,
                      struct way *way) {
  char how = gd_cuda_said("GPUDAYS_TURNED");
  if (how == '0' || (how != '1' && !worth_trying(p)))
    return 0;
  *way = (struct way){.workspace_bytes = LIBRARY_BYTES, .demanded = how == '1'};
  way->n_turns =
      gd_cuda_product_turned(p, workspace_half(call, 1), LIBRARY_BYTES, &way->product, way->turns);
  return way->n_turns > 0;
}

/* Its operands as halves: in all of the room, and in less if that makes more pieces. */
static int halves_ways(const struct gd_cuda_call *call, const struct gd_cuda_product *p,
                       struct way *ways) {
  static const int64_t rooms[] = {HALVES_ROOM_BYTES, HALVES_IN_CACHE_BYTES};
  char how = gd_cuda_said("GPUDAYS_HALVES"),
       *room = (char *)workspace_half(call, 0) + HALVES_ROOM_AT;
  bool demanded = how == '1' || how == '2';
  int n = 0;
  if (how == '0' || !p->tf32 || (!demanded && !worth_trying(p)) || call->cuda->deterministic)
    return 0;
  for (int i = 0; i < 2; i++) {
    ways[n] = (struct way){.product = *p,
                           .halves_bytes = rooms[i],
                           .workspace_bytes = HALVES_LIBRARY_BYTES,
                           .demanded = demanded};
    if (demanded && how != '1' + i)
      continue;
    if (gd_cuda_halves_plan(p, room, rooms[i], &ways[n].halves) &&
        (n == 0 || ways[n].halves.pieces > ways[0].halves.pieces))
      n++;
  }
  return n;
}

/* The fastest of those demanded, or of all; the first where none was timed. */
static enum gd_status fastest(const struct gd_cuda_call *call, const struct way *ways, int n,
                              int *best, double *best_us) {
  bool demanded = false;
  *best_us = HUGE_VAL;
  *best = -1;
  for (int i = 0; i < n; i++)
    demanded = demanded || ways[i].demanded;
  for (int i = 0; i < n; i++) {
    double us;
    if (demanded && !ways[i].demanded)
      continue;
    GD_TRY(time_of(call, &ways[i], &us));
    if (*best >= 0 && us >= *best_us)
      continue;
    *best_us = us;
    *best = i;
  }
  return GD_OK;
}

/* As it is or, where all of the workspace is there for it, turned or halved. */
static int ways_of(const struct gd_cuda_call *call, const struct gd_cuda_product *p,
                   int64_t workspace_bytes, struct way *ways) {
  int n = 1;
  ways[0] = (struct way){.product = *p, .workspace_bytes = workspace_bytes};
  if (workspace_bytes == ALL_BYTES) {
    n += turned_way(call, p, &ways[n]);
    n += halves_ways(call, p, &ways[n]);
  }
  return n;
}

static enum gd_status run_library(const struct gd_cuda_call *call, const struct gd_cuda_product *p,
                                  int64_t workspace_bytes, bool *done) {
  struct way ways[MOST_WAYS];
  int n = ways_of(call, p, workspace_bytes, ways), best;
  double us;
  if (call->stage == GD_CUDA_TUNE) {
    for (int i = 1; i < n; i++)
      GD_TRY(run_way(call, &ways[i], done)); /* where it cannot be done, it gets no time */
    return run_way(call, &ways[0], done);
  }
  GD_TRY(fastest(call, ways, n, &best, &us));
  *done = false;
  if (best > 0)
    GD_TRY(run_way(call, &ways[best], done));
  return *done ? GD_OK : run_way(call, &ways[0], done);
}

/* --- products that share B ------------------------------------------------------------------- */

/* One way for all, in ways[0]; false where they had better stay apart. */
static bool common_way(const struct gd_cuda_call *call, const struct gd_cuda_product *products,
                       int n, struct way *ways) {
  struct gd_cuda_halves halves[GD_CUDA_HALVES_SHARING];
  char how = gd_cuda_said("GPUDAYS_HALVES"),
       *room = (char *)workspace_half(call, 0) + HALVES_ROOM_AT;
  int64_t bytes = how == '2' ? HALVES_IN_CACHE_BYTES : HALVES_ROOM_BYTES;
  bool demanded = how == '1' || how == '2';
  if (how == '0' || gd_cuda_said("GPUDAYS_TOGETHER") == '0' || call->cuda->deterministic)
    return false;
  for (int i = 0; i < n; i++)
    if (!products[i].tf32 || (!demanded && !worth_trying(&products[i])))
      return false;
  if (!gd_cuda_halves_plan_all(products, n, room, bytes, halves))
    return false;
  for (int i = 0; i < n; i++)
    ways[i] = (struct way){.product = products[i],
                           .halves = halves[i],
                           .halves_bytes = bytes,
                           .beside = i + 1 < n ? &ways[i + 1] : NULL,
                           .workspace_bytes = HALVES_LIBRARY_BYTES,
                           .demanded = demanded};
  return true;
}

enum gd_status gd_cuda_products_wanted(const struct gd_cuda_call *call,
                                       const struct gd_cuda_product *products, int n,
                                       bool *wanted) {
  struct way common[GD_CUDA_HALVES_SHARING], ways[MOST_WAYS];
  double together_us, us, apart_us = 0;
  int best;
  *wanted = false;
  GD_TRY(open_products(call->cuda, call->err));
  if (!common_way(call, products, n, common))
    return GD_OK;
  GD_TRY(time_of(call, &common[0], &together_us));
  for (int i = 0; i < n; i++) {
    int n_ways = ways_of(call, &products[i], ALL_BYTES, ways);
    GD_TRY(fastest(call, ways, n_ways, &best, &us));
    apart_us += us;
  }
  *wanted = call->stage == GD_CUDA_TUNE || common[0].demanded || together_us < apart_us;
  return GD_OK;
}

enum gd_status gd_cuda_products_run(const struct gd_cuda_call *call,
                                    const struct gd_cuda_product *products, int n) {
  struct way common[GD_CUDA_HALVES_SHARING];
  bool done = false;
  if (common_way(call, products, n, common))
    GD_TRY(run_halves(call, &common[0], &done));
  for (int i = 0; i < n && !done && call->stage == GD_CUDA_LAUNCH; i++)
    GD_TRY(gd_cuda_product_run(call, &products[i]));
  return GD_OK;
}

/* --- a product ------------------------------------------------------------------------------- */

enum gd_status gd_cuda_products_choices(const struct gd_cuda_call *call,
                                        struct gd_cuda_choices **choices) {
  GD_TRY(open_products(call->cuda, call->err));
  *choices = &((struct products *)call->cuda->products)->choices;
  return GD_OK;
}

enum gd_status gd_cuda_product_us(const struct gd_cuda_call *call, const struct gd_cuda_product *p,
                                  double *us) {
  struct way ways[MOST_WAYS];
  int best;
  GD_TRY(open_products(call->cuda, call->err));
  return fastest(call, ways, ways_of(call, p, ALL_BYTES, ways), &best, us);
}

enum gd_status gd_cuda_product_activated(const struct gd_cuda_call *call,
                                         const struct gd_cuda_product *p, bool *done) {
  struct way way = {.product = *p, .workspace_bytes = ALL_BYTES};
  *done = false;
  if (call->stage == GD_CUDA_COLLECT) /* nothing that it does not need apart */
    return GD_OK;
  GD_TRY(open_products(call->cuda, call->err));
  return run_uncut(call, &way, done);
}

/* Pieces in fp32 that stay in the cache, each followed by its bias and its rounding. */
static enum gd_status run_staged(const struct gd_cuda_call *call, const struct gd_cuda_product *p) {
  struct gd_cuda_product piece;
  struct gd_cuda_kernel kernel = kernel_of("matmul_finish", p);
  float *stage = workspace_half(call, 1);
  int64_t at = 0, d_at = 0;
  for (; gd_cuda_product_piece(p, at, stage, LIBRARY_BYTES / 4, &piece, &d_at); at++) {
    bool done;
    uint32_t count = (uint32_t)(piece.batch * piece.n * piece.m), columns = (uint32_t)p->m;
    char *to = (char *)p->d + d_at * gd_dtype_bytes(p->dtype_d);
    const float *bias = p->bias;
    int64_t pitch = p->ldd;
    int adds = p->adds;
    GD_TRY(run_library(call, &piece, LIBRARY_BYTES, &done));
    if (!done)
      return gd_fail(call->err, GD_ENVIRONMENT,
                     "cuBLASLt has no algorithm for a product of %lld x %lld x %lld in %s",
                     (long long)p->n, (long long)p->m, (long long)p->k, gd_dtype_name(p->dtype));
    GD_TRY(GD_CUDA_LAUNCH(call, &kernel, grid_of(call->cuda, count / 4 + 1), &to, &stage, &bias,
                          &count, &columns, &pitch, &adds));
  }
  if (at == 0)
    return gd_fail(call->err, GD_UNSUPPORTED,
                   "a product with %lld columns to %s is wider than the workspace; use fp32",
                   (long long)p->m, gd_dtype_name(p->dtype_d));
  return GD_OK;
}

/* Nothing is multiplied: the bias, or zeros. */
static enum gd_status run_empty(const struct gd_cuda_call *call, const struct gd_cuda_product *p) {
  struct gd_cuda_kernel kernel = kernel_of("matmul_empty", p);
  struct gd_cuda_product q = *p;
  int adds = p->adds;
  return GD_CUDA_LAUNCH(call, &kernel, grid_of(call->cuda, p->m * p->n * p->batch), &q.d, &q.bias,
                        &q.m, &q.n, &q.batch, &q.ldd, &q.stride_d, &adds);
}

enum gd_status gd_cuda_product_run(const struct gd_cuda_call *call,
                                   const struct gd_cuda_product *p) {
  bool done = false;
  if (p->m == 0 || p->n == 0 || p->batch == 0)
    return GD_OK;
  if (p->k == 0)
    return run_empty(call, p);
  if (call->stage == GD_CUDA_COLLECT) { /* the same module holds all of kernels/matmul.cu */
    GD_TRY(gd_cuda_noise(call, NULL, 0, p->dtype));
    if (p->tf32) {
      GD_TRY(gd_cuda_noise(call, NULL, 0, GD_DTYPE_F16));
      GD_TRY(gd_cuda_halves_collect(call));
    }
    return p->bias || p->staged || p->tf32 ? run_empty(call, p) : GD_OK;
  }
  GD_TRY(open_products(call->cuda, call->err));
  if (!p->staged)
    GD_TRY(run_library(call, p, ALL_BYTES, &done));
  return done ? GD_OK : run_staged(call, p);
}

enum gd_status gd_cuda_op_matmul(const struct gd_cuda_call *call) {
  struct gd_cuda_product product;
  gd_cuda_product_of(call->args, &product);
  return gd_cuda_product_run(call, &product);
}
