/*
 * Timing of candidates, and data to time them on: see autotune.h. On zeros a GPU draws less power
 * and holds a higher clock: GEMMs run a sixth faster than on random numbers, and the fastest
 * algorithm need not be the same.
 */
#define _POSIX_C_SOURCE 200809L
#include "backend/cuda/runtime/autotune.h"
#include "base/switches.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  BLOCK = 256,
  WAVES = 64,
  FINALISTS = 4, /* the fastest candidates, timed again in turns */
  ROUNDS = 3,
  MOST_RUNS = 10, /* of a finalist in a round */
};
static const double final_ms = 20; /* of all finalists of a contest, about */

char gd_cuda_switch(const char *variable) {
  const char *value = gd_env(variable);
  return value ? value[0] : '\0';
}

int gd_cuda_autotune_fixed(void) {
  const char *value = gd_env("GPUDAYS_AUTOTUNE");
  if (!value)
    return 0;
  return strcmp(value, "off") == 0 ? 1 : (int)strtol(value, NULL, 10);
}

/* --- data to time on ------------------------------------------------------------------------- */

enum gd_status gd_cuda_random_fill(const struct gd_cuda_call *call, const void *at,
                                   int64_t elements, enum gd_dtype dtype) {
  struct gd_cuda_kernel kernel = {
      .file = "random_fill", .name = "random_fill", .n_types = 1, .types = {dtype}};
  struct gd_cuda_grid grid = {.x = gd_cuda_blocks(call->cuda, elements, BLOCK, WAVES),
                              .threads = BLOCK};
  return gd_cuda_launch_now(call, &kernel, grid, (void *[]){&at, &elements});
}

enum gd_status gd_cuda_random_inputs(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  for (uint32_t i = 0; i < args->n_in; i++) {
    const struct gd_view *in = &args->in[i];
    if (in->dtype == GD_DTYPE_F32 || in->dtype == GD_DTYPE_BF16 || in->dtype == GD_DTYPE_F16)
      GD_TRY(gd_cuda_random_fill(call, in->data, in->elements, in->dtype));
  }
  return GD_OK;
}

/* --- timing ---------------------------------------------------------------------------------- */

struct timer {
  const struct gd_cuda_call *call;
  const struct gd_cuda_contest *contest;
  CUevent begin, end;
};

struct candidate {
  int at; /* in the caller's order */
  double ms;
};

/* Milliseconds of one of `runs` runs; negative: it fails. */
static enum gd_status time_runs(const struct timer *timer, int at, int runs, double *ms) {
  const struct gd_cuda_call *call = timer->call;
  const struct gd_cu *cu = call->cuda->cu;
  enum gd_status ran = GD_OK;
  float all = 0;
  int result = cu->EventRecord(timer->begin, call->stream);
  for (int i = 0; i < runs && ran == GD_OK && result == CUDA_SUCCESS; i++)
    ran = timer->contest->run(timer->contest->user, at);
  if (result == CUDA_SUCCESS)
    result = cu->EventRecord(timer->end, call->stream);
  if (result == CUDA_SUCCESS)
    result = cu->EventSynchronize(timer->end);
  if (result == CUDA_SUCCESS)
    result = cu->EventElapsedTime(&all, timer->begin, timer->end);
  *ms = ran != GD_OK ? -1 : (double)all / runs;
  return gd_cuda_check(call->cuda, result, "autotuning", call->err);
}

/* Each candidate once, after a run that loads its kernels; the fastest first. */
static enum gd_status time_each(const struct timer *timer, struct candidate *candidates, int *n) {
  *n = 0;
  for (int i = 0; i < timer->contest->n; i++) {
    double ms;
    GD_TRY(time_runs(timer, i, 1, &ms));
    if (ms >= 0)
      GD_TRY(time_runs(timer, i, 1, &ms));
    if (ms < 0)
      continue;
    int to = (*n)++;
    for (; to > 0 && candidates[to - 1].ms > ms; to--)
      candidates[to] = candidates[to - 1];
    candidates[to] = (struct candidate){i, ms};
  }
  return GD_OK;
}

static enum gd_status time_finalists(const struct timer *timer, struct candidate *candidates,
                                     int n) {
  double once_ms = fmax(candidates[0].ms, 1e-3), fit = final_ms / (ROUNDS * n * once_ms);
  int runs = fit > MOST_RUNS ? MOST_RUNS : fit < 1 ? 1 : (int)fit;
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < n; i++) {
      double ms;
      GD_TRY(time_runs(timer, candidates[i].at, runs, &ms));
      if (ms >= 0 && (round == 0 || ms < candidates[i].ms))
        candidates[i].ms = ms; /* the single run before is less exact */
    }
  return GD_OK;
}

static void log_candidate(FILE *file, const struct gd_cuda_contest *contest,
                          const struct candidate *candidate, bool best) {
  char name[128];
  snprintf(name, sizeof name, "candidate %d of %d", candidate->at + 1, contest->n);
  if (contest->name)
    contest->name(contest->user, candidate->at, name, sizeof name);
  fprintf(file, "%s: %s: %.1f us", contest->key, name, 1e3 * candidate->ms);
  if (contest->flops > 0)
    fprintf(file, ", %.1f TFLOP/s", contest->flops / fmax(candidate->ms, 1e-6) * 1e-9);
  fprintf(file, "%s\n", best ? ", chosen" : "");
}

static enum gd_status run_contest(const struct timer *timer, int *best, double *us) {
  struct candidate candidates[GD_CUDA_MOST_CANDIDATES];
  const char *path = gd_env("GPUDAYS_AUTOTUNE_LOG");
  int n, first = 0;
  GD_TRY(time_each(timer, candidates, &n));
  if (n == 0)
    return GD_OK;
  int finalists = n < FINALISTS ? n : FINALISTS;
  GD_TRY(time_finalists(timer, candidates, finalists));
  for (int i = 1; i < finalists; i++)
    if (candidates[i].ms < candidates[first].ms)
      first = i;
  *best = candidates[first].at;
  *us = 1e3 * fmax(candidates[first].ms, 1e-6);
  FILE *file = path && path[0] ? fopen(path, "a") : NULL;
  for (int i = 0; file && i < n; i++)
    log_candidate(file, timer->contest, &candidates[i], i == first);
  if (file)
    fclose(file);
  return GD_OK;
}

enum gd_status gd_cuda_autotune(const struct gd_cuda_call *call,
                                const struct gd_cuda_contest *contest, int *best, double *us) {
  const struct gd_cu *cu = call->cuda->cu;
  struct timer timer = {.call = call, .contest = contest};
  GD_ASSERT(contest->n <= GD_CUDA_MOST_CANDIDATES && call->stage == GD_CUDA_TUNE);
  *best = -1;
  *us = HUGE_VAL;
  GD_TRY(gd_cuda_check(call->cuda, cu->EventCreate(&timer.begin, CU_EVENT_DEFAULT),
                       "making an event", call->err));
  enum gd_status status = gd_cuda_check(call->cuda, cu->EventCreate(&timer.end, CU_EVENT_DEFAULT),
                                        "making an event", call->err);
  if (status == GD_OK) {
    status = run_contest(&timer, best, us);
    cu->EventDestroy(timer.end);
  }
  cu->EventDestroy(timer.begin);
  return status;
}
