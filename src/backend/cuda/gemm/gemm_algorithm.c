/*
 * Which of cuBLASLt's algorithms computes a GEMM. The library proposes some; when a plan is bound
 * they are timed on the plan's own addresses (autotune.h), and the fastest is kept for the key. One
 * that was read from the cache is checked by the library before it runs. Where nothing is timed it
 * is the library's first proposal, so that independent processes choose alike.
 */
#include <stdio.h>
#include <string.h>

#include "backend/cuda/gemm/gemm_path.h"

_Static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(uint64_t[GD_CUDA_CHOICE_WORDS]),
               "a cached choice holds an algorithm");

/* At most GD_CUDA_MOST_CANDIDATES, by the library's own heuristic; 0: it has none. */
static int propose(const struct gd_cuda_gemms *gemms, const struct gd_gemm_problem *problem,
                   cublasLtMatmulAlgo_t *algos) {
  const struct gd_cublaslt *lt = gemms->lt;
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
  cublasLtMatmulHeuristicResult_t results[GD_CUDA_MOST_CANDIDATES];
  cublasLtMatmulPreference_t preference = NULL;
  int found = 0, taken = 0;
  int failure = lt->MatmulPreferenceCreate(&preference);
  for (size_t i = 0; i < sizeof settings / sizeof *settings && !failure; i++)
    failure = lt->MatmulPreferenceSetAttribute(preference, settings[i].attribute, settings[i].value,
                                               settings[i].bytes);
  if (!failure)
    failure = lt->MatmulAlgoGetHeuristic(gemms->handle, problem->desc, problem->a, problem->b,
                                         problem->d, problem->d, preference,
                                         GD_CUDA_MOST_CANDIDATES, results, &found);
  if (preference)
    lt->MatmulPreferenceDestroy(preference);
  for (int i = 0; i < found && !failure; i++)
    if (results[i].state == CUBLAS_STATUS_SUCCESS && results[i].workspaceSize <= most_bytes)
      algos[taken++] = results[i].algo;
  return taken;
}

static bool still_supported(const struct gd_cuda_gemms *gemms,
                            const struct gd_gemm_problem *problem,
                            const struct gd_cuda_tuned *tuned) {
  cublasLtMatmulHeuristicResult_t result = {0};
  cublasLtMatmulAlgo_t algo;
  memcpy(&algo, tuned->choice, sizeof algo);
  return gemms->lt->MatmulAlgoCheck(gemms->handle, problem->desc, problem->a, problem->b,
                                    problem->d, problem->d, &algo,
                                    &result) == CUBLAS_STATUS_SUCCESS &&
         result.workspaceSize <= (size_t)problem->workspace_bytes;
}

struct contest {
  const struct gd_cuda_call *call;
  const struct gd_gemm_problem *problem;
  const cublasLtMatmulAlgo_t *algos;
};

static enum gd_status run_candidate(const void *user, int at) {
  const struct contest *c = user;
  int failure = gd_gemm_problem_run(c->call, c->problem, &c->algos[at]);
  return failure ? GD_UNSUPPORTED : GD_OK;
}

static enum gd_status tune(const struct gd_cuda_call *call, const struct gd_gemm_problem *problem,
                           const cublasLtMatmulAlgo_t *algos, int count,
                           struct gd_cuda_tuned *tuned) {
  struct contest user = {call, problem, algos};
  struct gd_cuda_contest contest = {.key = problem->key,
                                    .n = count,
                                    .run = run_candidate,
                                    .user = &user,
                                    .flops = gd_gemm_flops(problem->gemm)};
  const struct gd_gemm_path *path = problem->path;
  char what[32];
  int best;
  double us;
  GD_TRY(gd_gemm_random_operands(call, path));
  GD_TRY(gd_cuda_autotune(call, &contest, &best, &us));
  if (best < 0 && (problem->gemm->epilogue || path->n_transposes || path->scales)) {
    tuned->state = GD_CUDA_TUNED_UNSUPPORTED; /* the direct path is left */
    return GD_OK;
  }
  if (best < 0)
    return gd_gemm_problem_failed("runs no algorithm it proposes for", CUBLAS_STATUS_NOT_SUPPORTED,
                                  problem, call->err);
  memcpy(tuned->choice, &algos[best], sizeof tuned->choice);
  snprintf(what, sizeof what, "number %d of %d", best + 1, count);
  gd_cuda_tuned_set(call->cuda, tuned, us, contest.flops, what);
  return GD_OK;
}

enum gd_status gd_gemm_algorithm(const struct gd_cuda_call *call,
                                 const struct gd_gemm_problem *problem,
                                 struct gd_cuda_tuned **result) {
  const struct gd_cuda_gemms *gemms = call->cuda->gemms;
  cublasLtMatmulAlgo_t algos[GD_CUDA_MOST_CANDIDATES];
  int count = 0;
  struct gd_cuda_tuned *tuned = gd_cuda_tuned_find(call->cuda, problem->key);
  bool tunes = call->stage == GD_CUDA_TUNE && gd_cuda_autotunes(call->cuda);
  if (!tuned) {
    tuned = gd_cuda_tuned_add(call->cuda, problem->key);
    if (!tuned)
      return gd_nomem(call->err, "while autotuning a GEMM");
    tuned->state = GD_CUDA_TUNED_UNSUPPORTED;
    count = propose(gemms, problem, algos);
  } else if (tuned->state == GD_CUDA_TUNED_STORED && still_supported(gemms, problem, tuned)) {
    tuned->state = GD_CUDA_TUNED_TIMED;
  } else if (tuned->state == GD_CUDA_TUNED_STORED ||
             (tuned->state == GD_CUDA_TUNED_PROPOSED && tunes)) {
    count = propose(gemms, problem, algos);
    tuned->state = GD_CUDA_TUNED_UNSUPPORTED;
  }
  if (count > 0) {
    int first = gd_cuda_first_candidate(call->cuda, count);
    tuned->state = GD_CUDA_TUNED_PROPOSED;
    memcpy(tuned->choice, &algos[first], sizeof tuned->choice);
    if (tunes)
      GD_TRY(tune(call, problem, algos, count, tuned));
  }
  *result = tuned;
  return GD_OK;
}
