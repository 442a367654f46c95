/*
 * The matmul op: which path computes a GEMM (gemm_path.h), its launches, and the small kernels
 * around it (kernels/matmul.cu). Which matrices are multiplied is cuda_gemm.c's to say.
 *
 * Every path that a GEMM has is timed when a plan is bound, copies and casts included, and the
 * fastest runs. Switches demand or rule out a path:
 *
 *   GPUDAYS_GEMM_TRANSPOSED=0   never; 1: wherever there is room, in full fp32 too
 *   GPUDAYS_TF32_EMULATED=0     never; 1: every GEMM in TF32 that has room; 2: likewise, in pieces
 *                               that may stay in the L2 cache
 *   GPUDAYS_GEMM_GROUP=0        never; 1: wherever GEMMs share B and there is room
 *   GPUDAYS_GEMM_EPILOGUE=0     never; 1: wherever cuBLASLt can (gemm_epilogue.c)
 *   GPUDAYS_GEMM_STAGED=1       always in pieces of fp32; else where cuBLASLt has no algorithm
 *
 * Emulation and grouping are never chosen where nothing is timed.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "backend/cuda/gemm/gemm_path.h"

enum {
  /* The workspace of an emulated GEMM: the library's, slots, fp16 operands. */
  EMULATED_LIBRARY_BYTES = 32 << 20,
  EMULATED_SLOTS_AT = EMULATED_LIBRARY_BYTES,
  EMULATED_ROOM_AT = EMULATED_SLOTS_AT + GD_CUDA_EMULATED_SLOTS_BYTES,
  EMULATED_ROOM_BYTES = GD_GEMM_ALL_BYTES - EMULATED_ROOM_AT,
  EMULATED_IN_CACHE_BYTES = 36 << 20, /* of the 50 MB of L2 that an H100 or H200 has */
  MOST_PATHS = 4,
};
static const double least_tried_flops = 1e9;

static enum gd_status open_library(struct gd_cuda_gemms *gemms, struct gd_error *err) {
  static const int parts[] = {CUBLASLT_MAJOR_VERSION, CUBLASLT_MINOR_VERSION, CUBLASLT_PATCH_LEVEL};
  GD_TRY(gd_cublaslt_load(&gemms->lt, err));
  int failure = gemms->lt->Create(&gemms->handle);
  for (int i = 0; i < 3 && failure == CUBLAS_STATUS_SUCCESS; i++)
    failure = gemms->lt->GetProperty(parts[i], &gemms->version[i]);
  if (failure != CUBLAS_STATUS_SUCCESS)
    return gd_fail(err, GD_ENVIRONMENT,
                   "cuBLASLt cannot be started (status %d); is its version right for the driver?",
                   failure);
  return GD_OK;
}

static enum gd_status open_gemms(struct gd_cuda *cuda, struct gd_error *err) {
  if (cuda->gemms)
    return GD_OK;
  GD_TRY(gd_cuda_autotune_open(cuda, err));
  cuda->gemms = gd_mem_alloc(1, sizeof *cuda->gemms);
  if (!cuda->gemms)
    return gd_nomem(err, "while opening cuBLASLt");
  enum gd_status status = open_library(cuda->gemms, err);
  if (status != GD_OK)
    gd_cuda_gemms_free(cuda);
  return status;
}

void gd_cuda_gemms_free(struct gd_cuda *cuda) {
  struct gd_cuda_gemms *gemms = cuda->gemms;
  if (!gemms)
    return;
  if (gemms->handle && !cuda->broken)
    gemms->lt->Destroy(gemms->handle);
  gd_mem_free(gemms);
  cuda->gemms = NULL;
}

/* --- one path -------------------------------------------------------------------------------- */

static struct gd_cuda_grid grid_of(const struct gd_cuda *cuda, int64_t items) {
  return (struct gd_cuda_grid){.x = gd_cuda_blocks(cuda, items, 256, 16), .threads = 256};
}

/* Where the library reads the bias: one that is rounded first lies in our half of the workspace. */
static const void *bias_of(const struct gd_cuda_call *call, struct gd_gemm_path *path) {
  if (path->gemm.bias_mode != GD_CUDA_BIAS_ROUNDED)
    return path->gemm.bias;
  path->workspace_bytes = GD_GEMM_LIBRARY_BYTES;
  return gd_gemm_workspace(call, 1);
}

/* By one call of the library; *done is false where it has no algorithm. */
static enum gd_status run_library(const struct gd_cuda_call *call, struct gd_gemm_path *path,
                                  bool *done) {
  const struct gd_cuda_gemms *gemms = call->cuda->gemms;
  const struct gd_cuda_gemm *p = &path->gemm;
  struct gd_gemm_problem problem;
  struct gd_cuda_tuned *tuned;
  const void *bias = bias_of(call, path);
  *done = false;
  if (p->bias_mode == GD_CUDA_BIAS_ROUNDED) {
    struct gd_cuda_kernel kernel = gd_gemm_kernel("matmul_round", p);
    int64_t count = p->m;
    if (p->m * gd_dtype_bytes(p->dtype_d) > GD_GEMM_LIBRARY_BYTES)
      return GD_OK;
    GD_TRY(GD_CUDA_LAUNCH(call, &kernel, grid_of(call->cuda, count), &bias,
                          &(const float *){p->bias}, &count));
  }
  GD_TRY(gd_gemm_problem_init(gemms, &problem, path, bias, call->err));
  enum gd_status status = gd_gemm_algorithm(call, &problem, &tuned);
  *done = status == GD_OK && tuned->state != GD_CUDA_TUNED_UNSUPPORTED;
  if (*done && (call->stage == GD_CUDA_LAUNCH || path->now || !tuned->ran)) {
    cublasLtMatmulAlgo_t algo;
    memcpy(&algo, tuned->choice, sizeof algo);
    int failure = gd_gemm_problem_run(call, &problem, &algo);
    tuned->ran = true;
    if (failure)
      status = gd_gemm_problem_failed("failed at", failure, &problem, call->err);
  }
  gd_gemm_problem_deinit(gemms, &problem);
  return status;
}

static void *emulated_slots(const struct gd_cuda_call *call) {
  return (char *)gd_gemm_workspace(call, 0) + EMULATED_SLOTS_AT;
}

static enum gd_status run_piece(const struct gd_cuda_call *call, const struct gd_gemm_path *path,
                                int64_t at, bool now, bool *done) {
  void *slots = emulated_slots(call);
  struct gd_gemm_path piece = {.workspace_bytes = EMULATED_LIBRARY_BYTES,
                               .scales = gd_cuda_emulated_factors(slots),
                               .now = now};
  struct gd_cuda_casts casts;
  gd_cuda_emulated_piece(&path->gemm, &path->emulated, at, &piece.gemm, &casts);
  GD_TRY(gd_cuda_emulated_cast(call, &piece.gemm, &casts, slots));
  return run_library(call, &piece, done);
}

/* All launches; *done is false where the library has no algorithm, and nothing has run. */
static enum gd_status run_pieces(const struct gd_cuda_call *call, const struct gd_gemm_path *path,
                                 bool now, bool *done) {
  struct gd_cuda_gemm gemms[GD_CUDA_EMULATED_SHARING];
  int n = 0;
  for (const struct gd_gemm_path *at = path; at; at = at->next)
    gemms[n++] = at->gemm;
  GD_TRY(gd_cuda_emulated_sample(call, gemms, n, emulated_slots(call)));
  for (int64_t piece = 0; piece < path->emulated.pieces; piece++)
    for (const struct gd_gemm_path *at = path; at; at = at->next) {
      GD_TRY(run_piece(call, at, piece, now, done));
      if (!*done)
        return (piece == 0 && at == path) || call->stage == GD_CUDA_TUNE
                   ? GD_OK
                   : gd_fail(call->err, GD_ENVIRONMENT,
                             "cuBLASLt has an algorithm for one piece of an emulated GEMM and not "
                             "for the next; set GPUDAYS_TF32_EMULATED=0");
    }
  return GD_OK;
}

struct timed {
  struct gd_cuda_call call; /* a failure is no error: the path is not taken */
  const struct gd_gemm_path *path;
};

static enum gd_status run_timed(const void *user, int at) {
  const struct timed *timed = user;
  bool done;
  (void)at;
  return run_pieces(&timed->call, timed->path, true, &done);
}

/* Times a path of several launches as a whole: time_of finds the result. */
static enum gd_status time_pieces(const struct gd_cuda_call *call, const struct gd_gemm_path *path,
                                  const char *key) {
  struct timed timed = {*call, path};
  struct gd_cuda_contest contest = {.key = key, .n = 1, .run = run_timed, .user = &timed};
  char what[32];
  int best;
  double us;
  timed.call.err = NULL;
  for (const struct gd_gemm_path *at = path; at; at = at->next)
    contest.flops += gd_gemm_flops(&at->gemm);
  GD_TRY(gd_cuda_autotune(call, &contest, &best, &us));
  struct gd_cuda_tuned *tuned = best == 0 ? gd_cuda_tuned_add(call->cuda, key) : NULL;
  if (!tuned)
    return GD_OK; /* it has no time and is not taken */
  snprintf(what, sizeof what, "%lld pieces", (long long)path->emulated.pieces);
  gd_cuda_tuned_set(call->cuda, tuned, us, contest.flops, what);
  return GD_OK;
}

static enum gd_status run_emulated(const struct gd_cuda_call *call, const struct gd_gemm_path *path,
                                   bool *done) {
  const struct gd_cuda_gemms *gemms = call->cuda->gemms;
  struct gd_gemm_problem whole;
  struct gd_cuda_tuned *tuned;
  if (call->stage != GD_CUDA_TUNE)
    return run_pieces(call, path, false, done);
  GD_TRY(gd_gemm_problem_init(gemms, &whole, path, path->gemm.bias, call->err));
  gd_gemm_problem_deinit(gemms, &whole); /* the key is what is wanted */
  tuned = gd_cuda_tuned_find(call->cuda, whole.key);
  *done = tuned && tuned->ran;
  if (*done)
    return GD_OK;
  for (const struct gd_gemm_path *at = path; at; at = at->next)
    GD_TRY(gd_gemm_random_operands(call, at));
  GD_TRY(run_pieces(call, path, false, done));
  tuned = gd_cuda_tuned_find(call->cuda, whole.key); /* adding others may have moved it */
  if (tuned) {
    tuned->ran = *done;
    tuned->state = *done ? tuned->state : GD_CUDA_TUNED_UNSUPPORTED;
  } else if (*done && gd_cuda_autotunes(call->cuda)) {
    GD_TRY(time_pieces(call, path, whole.key));
  }
  return GD_OK;
}

static enum gd_status run_path(const struct gd_cuda_call *call, struct gd_gemm_path *path,
                               bool *done) {
  return path->emulated.pieces ? run_emulated(call, path, done) : run_library(call, path, done);
}

/* --- the fastest path ------------------------------------------------------------------------ */

/* Microseconds of a path; infinite where it was not timed. */
static enum gd_status time_of(const struct gd_cuda_call *call, const struct gd_gemm_path *path,
                              double *us) {
  const struct gd_cuda_gemms *gemms = call->cuda->gemms;
  struct gd_gemm_problem problem;
  struct gd_gemm_path same = *path;
  const void *bias = bias_of(call, &same);
  GD_TRY(gd_gemm_problem_init(gemms, &problem, &same, bias, call->err));
  const struct gd_cuda_tuned *tuned = gd_cuda_tuned_find(call->cuda, problem.key);
  bool timed = tuned &&
               (tuned->state == GD_CUDA_TUNED_TIMED || tuned->state == GD_CUDA_TUNED_STORED) &&
               (tuned->ran || !path->emulated.pieces); /* else it may need what is not loaded */
  *us = timed ? tuned->us : HUGE_VAL;
  gd_gemm_problem_deinit(gemms, &problem);
  return GD_OK;
}

static bool worth_trying(const struct gd_cuda_gemm *p) {
  return p->tf32 && gd_gemm_flops(p) >= least_tried_flops;
}

static int transposed_path(const struct gd_cuda_call *call, const struct gd_cuda_gemm *p,
                           struct gd_gemm_path *path) {
  char how = gd_cuda_switch("GPUDAYS_GEMM_TRANSPOSED");
  if (how == '0' || (how != '1' && !worth_trying(p)))
    return 0;
  *path = (struct gd_gemm_path){.workspace_bytes = GD_GEMM_LIBRARY_BYTES, .forced = how == '1'};
  path->n_transposes = gd_cuda_gemm_transposed(p, gd_gemm_workspace(call, 1), GD_GEMM_LIBRARY_BYTES,
                                               &path->gemm, path->transposes);
  return path->n_transposes > 0;
}

/* In all of the workspace, and in less of it if that makes more pieces. */
static int emulated_paths(const struct gd_cuda_call *call, const struct gd_cuda_gemm *p,
                          struct gd_gemm_path *paths) {
  static const int64_t rooms[] = {EMULATED_ROOM_BYTES, EMULATED_IN_CACHE_BYTES};
  char how = gd_cuda_switch("GPUDAYS_TF32_EMULATED"),
       *room = (char *)gd_gemm_workspace(call, 0) + EMULATED_ROOM_AT;
  bool forced = how == '1' || how == '2';
  int n = 0;
  if (how == '0' || !p->tf32 || call->cuda->untimed ||
      (!forced && !(worth_trying(p) && gd_cuda_autotunes(call->cuda))))
    return 0;
  for (int i = 0; i < 2; i++) {
    paths[n] = (struct gd_gemm_path){.gemm = *p,
                                     .emulated_bytes = rooms[i],
                                     .workspace_bytes = EMULATED_LIBRARY_BYTES,
                                     .forced = forced};
    if (forced && how != '1' + i)
      continue;
    if (gd_cuda_emulated_plan(p, room, rooms[i], &paths[n].emulated) &&
        (n == 0 || paths[n].emulated.pieces > paths[0].emulated.pieces))
      n++;
  }
  return n;
}

/* The fastest of those forced, or of all; the first where none was timed. */
static enum gd_status fastest(const struct gd_cuda_call *call, const struct gd_gemm_path *paths,
                              int n, int *best, double *best_us) {
  bool forced = false;
  *best_us = HUGE_VAL;
  *best = -1;
  for (int i = 0; i < n; i++)
    forced = forced || paths[i].forced;
  for (int i = 0; i < n; i++) {
    double us;
    if (forced && !paths[i].forced)
      continue;
    GD_TRY(time_of(call, &paths[i], &us));
    if (*best >= 0 && us >= *best_us)
      continue;
    *best_us = us;
    *best = i;
  }
  return GD_OK;
}

/* Direct and, where all of the workspace is free, transposed and emulated. */
static int paths_of(const struct gd_cuda_call *call, const struct gd_cuda_gemm *p,
                    int64_t workspace_bytes, struct gd_gemm_path *paths) {
  int n = 1;
  paths[0] = (struct gd_gemm_path){.gemm = *p, .workspace_bytes = workspace_bytes};
  if (workspace_bytes == GD_GEMM_ALL_BYTES) {
    n += transposed_path(call, p, &paths[n]);
    n += emulated_paths(call, p, &paths[n]);
  }
  return n;
}

static enum gd_status run_fastest(const struct gd_cuda_call *call, const struct gd_cuda_gemm *p,
                                  int64_t workspace_bytes, bool *done) {
  struct gd_gemm_path paths[MOST_PATHS];
  int n = paths_of(call, p, workspace_bytes, paths), best;
  double us;
  if (call->stage == GD_CUDA_TUNE) {
    for (int i = 1; i < n; i++)
      GD_TRY(run_path(call, &paths[i], done)); /* where it cannot be done, it gets no time */
    return run_path(call, &paths[0], done);
  }
  GD_TRY(fastest(call, paths, n, &best, &us));
  *done = false;
  if (best > 0)
    GD_TRY(run_path(call, &paths[best], done));
  return *done ? GD_OK : run_path(call, &paths[0], done);
}

/* --- GEMMs that share B ---------------------------------------------------------------------- */

/* The path of a group, paths[0] and those linked to it; false: there is none. */
static bool group_path(const struct gd_cuda_call *call, const struct gd_cuda_gemm *gemms, int n,
                       struct gd_gemm_path *paths) {
  struct gd_cuda_emulated emulated[GD_CUDA_EMULATED_SHARING];
  char how = gd_cuda_switch("GPUDAYS_TF32_EMULATED"),
       *room = (char *)gd_gemm_workspace(call, 0) + EMULATED_ROOM_AT;
  int64_t bytes = how == '2' ? EMULATED_IN_CACHE_BYTES : EMULATED_ROOM_BYTES;
  char group = gd_cuda_switch("GPUDAYS_GEMM_GROUP");
  bool forced = how == '1' || how == '2' || group == '1';
  if (how == '0' || group == '0' || call->cuda->untimed ||
      (!forced && !gd_cuda_autotunes(call->cuda)))
    return false;
  for (int i = 0; i < n; i++)
    if (!gemms[i].tf32 || (!forced && !worth_trying(&gemms[i])))
      return false;
  if (!gd_cuda_emulated_plan_all(gemms, n, room, bytes, emulated))
    return false;
  for (int i = 0; i < n; i++)
    paths[i] = (struct gd_gemm_path){.gemm = gemms[i],
                                     .emulated = emulated[i],
                                     .emulated_bytes = bytes,
                                     .next = i + 1 < n ? &paths[i + 1] : NULL,
                                     .workspace_bytes = EMULATED_LIBRARY_BYTES,
                                     .forced = forced};
  return true;
}

enum gd_status gd_cuda_gemms_wanted(const struct gd_cuda_call *call,
                                    const struct gd_cuda_gemm *gemms, int n, bool *wanted) {
  struct gd_gemm_path common[GD_CUDA_EMULATED_SHARING], paths[MOST_PATHS];
  double group_us, us, single_us = 0;
  int best;
  *wanted = false;
  GD_TRY(open_gemms(call->cuda, call->err));
  if (!group_path(call, gemms, n, common))
    return GD_OK;
  GD_TRY(time_of(call, &common[0], &group_us));
  for (int i = 0; i < n; i++) {
    int n_paths = paths_of(call, &gemms[i], GD_GEMM_ALL_BYTES, paths);
    GD_TRY(fastest(call, paths, n_paths, &best, &us));
    single_us += us;
  }
  *wanted = call->stage == GD_CUDA_TUNE || common[0].forced || group_us < single_us;
  return GD_OK;
}

enum gd_status gd_cuda_gemms_run(const struct gd_cuda_call *call, const struct gd_cuda_gemm *gemms,
                                 int n) {
  struct gd_gemm_path common[GD_CUDA_EMULATED_SHARING];
  bool done = false;
  if (group_path(call, gemms, n, common))
    GD_TRY(run_emulated(call, &common[0], &done));
  for (int i = 0; i < n && !done && call->stage == GD_CUDA_LAUNCH; i++)
    GD_TRY(gd_cuda_gemm_run(call, &gemms[i]));
  return GD_OK;
}

enum gd_status gd_cuda_gemm_us(const struct gd_cuda_call *call, const struct gd_cuda_gemm *p,
                               double *us) {
  struct gd_gemm_path paths[MOST_PATHS];
  int best;
  GD_TRY(open_gemms(call->cuda, call->err));
  return fastest(call, paths, paths_of(call, p, GD_GEMM_ALL_BYTES, paths), &best, us);
}

enum gd_status gd_cuda_gemm_epilogue(const struct gd_cuda_call *call, const struct gd_cuda_gemm *p,
                                     bool *done) {
  struct gd_gemm_path path = {.gemm = *p, .workspace_bytes = GD_GEMM_ALL_BYTES};
  *done = false;
  if (call->stage == GD_CUDA_COLLECT) /* it needs no kernel of ours that the two ops alone do not */
    return GD_OK;
  GD_TRY(open_gemms(call->cuda, call->err));
  return run_library(call, &path, done);
}

/* In pieces of fp32 that stay in the L2 cache, each followed by its bias and its rounding. */
static enum gd_status run_staged(const struct gd_cuda_call *call, const struct gd_cuda_gemm *p) {
  struct gd_cuda_gemm piece;
  struct gd_cuda_kernel kernel = gd_gemm_kernel("matmul_finish", p);
  float *stage = gd_gemm_workspace(call, 1);
  int64_t at = 0, d_at = 0;
  for (; gd_cuda_gemm_piece(p, at, stage, GD_GEMM_LIBRARY_BYTES / 4, &piece, &d_at); at++) {
    bool done;
    uint32_t count = (uint32_t)(piece.batch * piece.n * piece.m), columns = (uint32_t)p->m;
    char *to = (char *)p->d + d_at * gd_dtype_bytes(p->dtype_d);
    const float *bias = p->bias;
    int64_t pitch = p->ldd;
    int adds = p->adds;
    GD_TRY(run_fastest(call, &piece, GD_GEMM_LIBRARY_BYTES, &done));
    if (!done)
      return gd_fail(call->err, GD_ENVIRONMENT,
                     "cuBLASLt has no algorithm for a GEMM of %lld x %lld x %lld in %s",
                     (long long)p->n, (long long)p->m, (long long)p->k, gd_dtype_name(p->dtype));
    GD_TRY(GD_CUDA_LAUNCH(call, &kernel, grid_of(call->cuda, count / 4 + 1), &to, &stage, &bias,
                          &count, &columns, &pitch, &adds));
  }
  if (at == 0)
    return gd_fail(call->err, GD_UNSUPPORTED,
                   "a GEMM with %lld columns to %s is wider than the workspace; use fp32",
                   (long long)p->m, gd_dtype_name(p->dtype_d));
  return GD_OK;
}

/* k is 0: the result is the bias, or zeros. */
static enum gd_status run_empty(const struct gd_cuda_call *call, const struct gd_cuda_gemm *p) {
  struct gd_cuda_kernel kernel = gd_gemm_kernel("matmul_empty", p);
  struct gd_cuda_gemm q = *p;
  int adds = p->adds;
  return GD_CUDA_LAUNCH(call, &kernel, grid_of(call->cuda, p->m * p->n * p->batch), &q.d, &q.bias,
                        &q.m, &q.n, &q.batch, &q.ldd, &q.stride_d, &adds);
}

enum gd_status gd_cuda_gemm_run(const struct gd_cuda_call *call, const struct gd_cuda_gemm *p) {
  bool done = false;
  if (p->m == 0 || p->n == 0 || p->batch == 0)
    return GD_OK;
  if (p->k == 0)
    return run_empty(call, p);
  bool staged = p->staged || gd_cuda_switch("GPUDAYS_GEMM_STAGED") == '1';
  if (call->stage == GD_CUDA_COLLECT) { /* all kernels of kernels/matmul.cu are in one module: one
                                           of them names it */
    GD_TRY(gd_cuda_random_fill(call, NULL, 0, p->dtype));
    if (p->tf32) {
      GD_TRY(gd_cuda_random_fill(call, NULL, 0, GD_DTYPE_F16));
      GD_TRY(gd_cuda_emulated_collect(call));
    }
    return p->bias || staged || p->tf32 ? run_empty(call, p) : GD_OK;
  }
  GD_TRY(open_gemms(call->cuda, call->err));
  if (!staged)
    GD_TRY(run_fastest(call, p, GD_GEMM_ALL_BYTES, &done));
  return done ? GD_OK : run_staged(call, p);
}

enum gd_status gd_cuda_op_matmul(const struct gd_cuda_call *call) {
  struct gd_cuda_gemm gemm;
  gd_cuda_gemm_of(call->args, &gemm);
  return gd_cuda_gemm_run(call, &gemm);
}
