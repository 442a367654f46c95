/*
 * The autotuner: candidates are timed on the GPU when a plan is bound, and the fastest is kept. One
 * for the algorithms and paths of GEMMs, the tilings of attention, cuDNN against own kernels, and
 * the ops that an epilogue could replace.
 *
 * A result belongs to a key: one line of text with everything that may matter to the time (library
 * and version, or a hash of the kernel's text; shape, layout, dtypes, alignment, workspace).
 * Results outlive the process in a text file per GPU, one line each, with the time and rate that
 * were measured for people to read. A damaged line is ignored.
 *
 *   GPUDAYS_AUTOTUNE=off        nothing is timed and no file is read: the first candidate runs
 *   GPUDAYS_AUTOTUNE=N          likewise, candidate N (from 1 on, modulo their number)
 *   GPUDAYS_AUTOTUNE_LOG=FILE   appends a line for every candidate timed and every one chosen
 *
 * GPUDAYS_DETERMINISTIC=1 implies off. With a folder for choices (struct gd_backend_options) those
 * that are used are also kept there, a file a rank, once a plan is bound; they come before the
 * file's, so that the next process has them again. Each path that a timing could choose also has a
 * switch that demands it or rules it out: GPUDAYS_GEMM_TRANSPOSED, _GEMM_GROUP, _GEMM_EPILOGUE,
 * _TF32_EMULATED, _CUDNN, _ATTENTION_TILE (docs/modules/backend.md has a table of all choices).
 *
 *   struct gd_cuda_contest contest = {.key = key, .n = 3, .run = run, .user = &problem};
 *   struct gd_cuda_tuned *tuned = gd_cuda_tuned_find(cuda, key);
 *   if (!tuned)
 *     GD_TRY(gd_cuda_autotune(call, &contest, &best, &us));
 */
#ifndef GD_BACKEND_CUDA_RUNTIME_AUTOTUNE_H
#define GD_BACKEND_CUDA_RUNTIME_AUTOTUNE_H

#include "backend/cuda/runtime/cuda_int.h"
#include "base/file.h"

enum { GD_CUDA_NOTE_BYTES = 96, GD_CUDA_KEY_BYTES = 512, GD_CUDA_CHOICE_WORDS = 8 };

enum gd_cuda_tuned_state {
  GD_CUDA_TUNED_STORED,      /* read from the file and not yet checked */
  GD_CUDA_TUNED_PROPOSED,    /* the library's first proposal, not timed */
  GD_CUDA_TUNED_TIMED,       /* the fastest */
  GD_CUDA_TUNED_UNSUPPORTED, /* no candidate runs */
};

/* The result for a key. */
struct gd_cuda_tuned {
  char *key;
  uint64_t choice[GD_CUDA_CHOICE_WORDS]; /* an algorithm of cuBLASLt, a tiling, ...: the caller's */
  enum gd_cuda_tuned_state state;
  bool used; /* it was asked for */
  bool ran;  /* what it needs is loaded: nothing can be while a graph is captured */
  double us; /* infinite: not known */
  char note[GD_CUDA_NOTE_BYTES]; /* "812.5 us, 701.3 TFLOP/s, number 3 of 17"; may be empty */
};

struct gd_cuda_autotune {
  struct gd_cuda_tuned *at;
  uint32_t count, capacity;
  char path[1200];              /* of the file; empty: there is none */
  bool changed;                 /* since it was read */
  char kept_path[GD_FILE_PATH]; /* of what is used; empty: it is not kept */
  uint32_t kept;                /* so many are in it */
};

/* Sets cuda->autotune and reads the file; once, then it does nothing. */
enum gd_status gd_cuda_autotune_open(struct gd_cuda *cuda, struct gd_error *err) GD_MUST_USE;
/* Puts what is used into the folder for choices, where there is one. */
enum gd_status gd_cuda_autotune_keep(struct gd_cuda *cuda, struct gd_error *err) GD_MUST_USE;
/* Writes what changed, and frees all; safe where it was never opened. */
void gd_cuda_autotune_close(struct gd_cuda *cuda);
/* Reads GPUDAYS_AUTOTUNE: 0 is by time, N the candidate that runs. */
int gd_cuda_autotune_fixed(void);
/* Whether anything is timed in this process. */
static inline bool gd_cuda_autotunes(const struct gd_cuda *cuda) {
  return !cuda->untimed && cuda->fixed_candidate == 0;
}
/* Which of n candidates runs where nothing is timed. */
static inline int gd_cuda_first_candidate(const struct gd_cuda *cuda, int n) {
  return cuda->fixed_candidate > 0 ? (cuda->fixed_candidate - 1) % n : 0;
}

/* NULL: there is none. Valid until the next is added. */
struct gd_cuda_tuned *gd_cuda_tuned_find(const struct gd_cuda *cuda, const char *key);
/* NULL: no memory. */
struct gd_cuda_tuned *gd_cuda_tuned_add(struct gd_cuda *cuda, const char *key);
/* Marks it as timed, to be written to the file. flops 0: no rate is noted; what: for the note. */
void gd_cuda_tuned_set(struct gd_cuda *cuda, struct gd_cuda_tuned *tuned, double us, double flops,
                       const char *what);

/* Candidates that compute the same. */
struct gd_cuda_contest {
  const char *key;
  int n;
  /* Puts candidate `at` on the stream of the call; a failure leaves it out of the contest. */
  enum gd_status (*run)(const void *user, int at);
  const void *user;
  double flops;                                                    /* 0: not known */
  void (*name)(const void *user, int at, char *text, size_t size); /* for the log; NULL: number */
};
enum { GD_CUDA_MOST_CANDIDATES = 24 };

/*
 * In stage TUNE. *best is -1 and *us infinite where no candidate runs. Every candidate is run twice
 * and timed once (the first run loads its kernels); then the fastest few are timed in turns, so
 * that a clock that falls meanwhile falls for all of them, and the least time of each counts.
 */
enum gd_status gd_cuda_autotune(const struct gd_cuda_call *call,
                                const struct gd_cuda_contest *contest, int *best,
                                double *us) GD_MUST_USE;

/* Data to time on, in stage TUNE: memory, or all inputs of a call that are no integers, filled with
   random numbers. In COLLECT the kernel is noted. */
enum gd_status gd_cuda_random_fill(const struct gd_cuda_call *call, const void *at,
                                   int64_t elements, enum gd_dtype dtype) GD_MUST_USE;
enum gd_status gd_cuda_random_inputs(const struct gd_cuda_call *call) GD_MUST_USE;

/* The first character of a switch, '\0' where it is not set: mostly '0' never, '1' always, else by
   time. */
char gd_cuda_switch(const char *variable);

#endif
