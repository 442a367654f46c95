/*
 * The choices of algorithms for products, and the text file that they outlive a process in: one
 * line each, with the time and rate that were measured, for people to read; a line that is damaged
 * counts for nothing. op_matmul.c makes them.
 *
 *   gd_cuda_choices_open(cuda, lt, &choices);
 *   const struct gd_cuda_choice *choice = gd_cuda_choice_find(&choices, key);
 *   gd_cuda_choices_close(&choices);
 */
#ifndef GD_BACKEND_CUDA_CHOICES_H
#define GD_BACKEND_CUDA_CHOICES_H

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cuda_int.h"

enum { GD_CUDA_NOTE_BYTES = 64, GD_CUDA_KEY_BYTES = 448 };

enum gd_cuda_choice_state {
  GD_CUDA_CHOICE_STORED,      /* read from the file; the library has not seen it yet */
  GD_CUDA_CHOICE_PROPOSED,    /* the library's first proposal */
  GD_CUDA_CHOICE_TIMED,       /* the fastest */
  GD_CUDA_CHOICE_UNSUPPORTED, /* the library has no algorithm for it */
};

struct gd_cuda_choice {
  char *key;
  cublasLtMatmulAlgo_t algo;
  enum gd_cuda_choice_state state;
  bool ran; /* what it needs is loaded: nothing is, while a graph is captured */
  char note[GD_CUDA_NOTE_BYTES]; /* "812.5 us, 701.3 TFLOP/s, number 3 of 17": for people; may be
                                    empty */
};

struct gd_cuda_choices {
  struct gd_cuda_choice *at;
  uint32_t count, capacity;
  char path[1200]; /* of the file; empty: there is none */
  bool changed;    /* since it was read */
};

/* By GPU and library version. In a deterministic process there is no file. */
void gd_cuda_choices_open(const struct gd_cuda *cuda, const struct gd_cublaslt *lt,
                          struct gd_cuda_choices *choices);
/* Writes what changed, and lets go of all; safe on zeroed ones. */
void gd_cuda_choices_close(struct gd_cuda_choices *choices);

/* NULL: there is none. Valid until the next is added. */
struct gd_cuda_choice *gd_cuda_choice_find(const struct gd_cuda_choices *choices, const char *key);
/* NULL: no memory. */
struct gd_cuda_choice *gd_cuda_choice_add(struct gd_cuda_choices *choices, const char *key);

#endif
