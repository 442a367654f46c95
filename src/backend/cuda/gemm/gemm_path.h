/*
 * The paths by which a GEMM can be computed, for the files of this folder:
 *
 *   direct       cuBLASLt on the operands as they are
 *   transposed   fp32 in TF32: operands copied into the workspace so that both have k contiguous
 *   emulated     fp32 in TF32: operands cast to scaled fp16 in the workspace (gemm_emulated.h)
 *   grouped      emulated GEMMs that share B and its cast (gemm_group.c)
 *
 * gemm_problem.c describes a path to cuBLASLt and runs it, gemm_algorithm.c chooses the library's
 * algorithm, op_matmul.c lists the paths and takes the fastest.
 */
#ifndef GD_BACKEND_CUDA_GEMM_GEMM_PATH_H
#define GD_BACKEND_CUDA_GEMM_GEMM_PATH_H

#include "backend/cuda/gemm/cuda_gemm.h"
#include "backend/cuda/gemm/gemm_emulated.h"
#include "backend/cuda/lib/cublaslt.h"
#include "backend/cuda/runtime/autotune.h"

enum {
  GD_GEMM_HALF_BYTES = GD_CUDA_WORKSPACE_BYTES / 2,
  GD_GEMM_ALIGNMENT = 256,
  /* Most workspace that an algorithm may use: with our half in use, and without. */
  GD_GEMM_LIBRARY_BYTES = GD_GEMM_HALF_BYTES - GD_GEMM_ALIGNMENT,
  GD_GEMM_ALL_BYTES = GD_CUDA_WORKSPACE_BYTES - GD_GEMM_ALIGNMENT,
};

/* cuda->gemms: the library, opened at the first GEMM. */
struct gd_cuda_gemms {
  const struct gd_cublaslt *lt;
  cublasLtHandle_t handle;
  int version[3]; /* part of every key */
};

struct gd_gemm_path {
  struct gd_cuda_gemm gemm;
  struct gd_cuda_transpose transposes[2]; /* copies that come first: n_transposes of them */
  struct gd_cuda_emulated emulated;       /* no pieces: not emulated */
  int64_t emulated_bytes;                 /* what its pieces may take */
  const struct gd_gemm_path *next; /* of a group, which shares B: its piece comes after this one */
  const float *scales;             /* alpha and beta on the device; NULL: those of the GEMM */
  int64_t workspace_bytes;
  int n_transposes;
  bool now;    /* runs in TUNE too */
  bool forced; /* by a switch: goes before paths that are not */
};

/* A path as cuBLASLt sees it. */
struct gd_gemm_problem {
  const struct gd_cuda_gemm *gemm;
  const struct gd_gemm_path *path;
  const void *bias; /* in the dtype of D, or NULL */
  cublasLtMatmulDesc_t desc;
  cublasLtMatrixLayout_t a, b, d;
  uint32_t alignment[4]; /* of a, b, d, bias */
  int64_t workspace_bytes;
  char key[GD_CUDA_KEY_BYTES];
};

/* The workspace in two halves, the library's (0) and ours (1), each at a multiple of 256. */
void *gd_gemm_workspace(const struct gd_cuda_call *call, int half);
/* A kernel of kernels/matmul.cu. */
struct gd_cuda_kernel gd_gemm_kernel(const char *name, const struct gd_cuda_gemm *gemm);

enum gd_status gd_gemm_problem_init(const struct gd_cuda_gemms *gemms,
                                    struct gd_gemm_problem *problem,
                                    const struct gd_gemm_path *path, const void *bias,
                                    struct gd_error *err) GD_MUST_USE;
void gd_gemm_problem_deinit(const struct gd_cuda_gemms *gemms, struct gd_gemm_problem *problem);
/* "cuBLASLt WHAT the GEMM ... (status ...)" */
enum gd_status gd_gemm_problem_failed(const char *what, int failure,
                                      const struct gd_gemm_problem *problem,
                                      struct gd_error *err) GD_MUST_USE;
/* Puts the copies and the GEMM on the stream, at any stage; returns the library's status. */
int gd_gemm_problem_run(const struct gd_cuda_call *call, const struct gd_gemm_problem *problem,
                        const cublasLtMatmulAlgo_t *algo);
/* Random operands, before timing. */
enum gd_status gd_gemm_random_operands(const struct gd_cuda_call *call,
                                       const struct gd_gemm_path *path) GD_MUST_USE;
double gd_gemm_flops(const struct gd_cuda_gemm *gemm);

/* The algorithm for a problem, timed in TUNE: tuned->choice, whose state may be
   GD_CUDA_TUNED_UNSUPPORTED. */
enum gd_status gd_gemm_algorithm(const struct gd_cuda_call *call,
                                 const struct gd_gemm_problem *problem,
                                 struct gd_cuda_tuned **tuned) GD_MUST_USE;

#endif
