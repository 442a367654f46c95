/*
 * The part of cuBLASLt that gpudays uses, declared here and loaded at run time (load.c): see
 * driver.h. Names and values are those of the library's own interface, the same in versions 12 and
 * 13.
 */
#ifndef GD_BACKEND_CUDA_LIB_CUBLASLT_H
#define GD_BACKEND_CUDA_LIB_CUBLASLT_H

#include <stddef.h>
#include <stdint.h>

#include "backend/cuda/runtime/driver.h"

typedef struct cublasLtContext *cublasLtHandle_t;
typedef struct cublasLtMatmulDescOpaque *cublasLtMatmulDesc_t;
typedef struct cublasLtMatrixLayoutOpaque *cublasLtMatrixLayout_t;
typedef struct cublasLtMatmulPreferenceOpaque *cublasLtMatmulPreference_t;

enum {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,

  CUDA_R_32F = 0, /* cudaDataType */
  CUDA_R_16F = 2,
  CUDA_R_16BF = 14,

  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77,

  CUBLAS_OP_N = 0,
  CUBLAS_OP_T = 1,

  CUBLASLT_MAJOR_VERSION = 0, /* libraryPropertyType */
  CUBLASLT_MINOR_VERSION = 1,
  CUBLASLT_PATCH_LEVEL = 2,

  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,          /* int32_t */
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6, /* int64_t, elements */

  CUBLASLT_MATMUL_DESC_POINTER_MODE = 2,          /* int32_t */
  CUBLASLT_MATMUL_DESC_TRANSA = 3,                /* int32_t */
  CUBLASLT_MATMUL_DESC_TRANSB = 4,                /* int32_t */
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,              /* uint32_t */
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,          /* const void *, of D's type, one a row of D */
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER = 11, /* void *, of D's type and size */
  CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD = 12,      /* int64_t, elements; a multiple of 8 */

  CUBLASLT_POINTER_MODE_DEVICE = 1, /* alpha and beta are there */

  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_GELU = 32,      /* by tanh; after the bias, if it has that bit too */
  CUBLASLT_EPILOGUE_GELU_AUX = 160, /* likewise; what gelu is taken of goes to aux */
  CUBLASLT_EPILOGUE_DGELU = 192,    /* times the derivative of tanh GELU at aux */

  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,   /* uint64_t */
  CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK = 3, /* uint32_t */
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5, /* uint32_t, likewise B, C, D */
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,

  CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE = 2, /* parts of a sum stay in fp32 */
};

typedef struct {
  uint64_t data[8];
} cublasLtMatmulAlgo_t;

typedef struct {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  int state; /* CUBLAS_STATUS_SUCCESS, or the rest is void */
  float wavesCount;
  int reserved[4];
} cublasLtMatmulHeuristicResult_t;

/* Field, symbol, parameters; each returns CUBLAS_STATUS_SUCCESS or an error. */
#define GD_CUBLASLT_FUNCTIONS(X)                                                                  \
  X(Create, cublasLtCreate, (cublasLtHandle_t * handle))                                          \
  X(Destroy, cublasLtDestroy, (cublasLtHandle_t handle))                                          \
  X(GetProperty, cublasLtGetProperty, (int type, int *value))                                     \
  X(MatmulDescCreate, cublasLtMatmulDescCreate,                                                   \
    (cublasLtMatmulDesc_t * desc, int compute_type, int scale_type))                              \
  X(MatmulDescDestroy, cublasLtMatmulDescDestroy, (cublasLtMatmulDesc_t desc))                    \
  X(MatmulDescSetAttribute, cublasLtMatmulDescSetAttribute,                                       \
    (cublasLtMatmulDesc_t desc, int attribute, const void *value, size_t bytes))                  \
  X(MatrixLayoutCreate, cublasLtMatrixLayoutCreate,                                               \
    (cublasLtMatrixLayout_t * layout, int type, uint64_t rows, uint64_t columns, int64_t ld))     \
  X(MatrixLayoutDestroy, cublasLtMatrixLayoutDestroy, (cublasLtMatrixLayout_t layout))            \
  X(MatrixLayoutSetAttribute, cublasLtMatrixLayoutSetAttribute,                                   \
    (cublasLtMatrixLayout_t layout, int attribute, const void *value, size_t bytes))              \
  X(MatmulPreferenceCreate, cublasLtMatmulPreferenceCreate,                                       \
    (cublasLtMatmulPreference_t * preference))                                                    \
  X(MatmulPreferenceDestroy, cublasLtMatmulPreferenceDestroy,                                     \
    (cublasLtMatmulPreference_t preference))                                                      \
  X(MatmulPreferenceSetAttribute, cublasLtMatmulPreferenceSetAttribute,                           \
    (cublasLtMatmulPreference_t preference, int attribute, const void *value, size_t bytes))      \
  X(MatmulAlgoGetHeuristic, cublasLtMatmulAlgoGetHeuristic,                                       \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,                \
     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,                \
     cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t *results, \
     int *found))                                                                                 \
  X(MatmulAlgoCheck, cublasLtMatmulAlgoCheck,                                                     \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,                \
     cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,                \
     const cublasLtMatmulAlgo_t *algo, cublasLtMatmulHeuristicResult_t *result))                  \
  X(Matmul, cublasLtMatmul,                                                                       \
    (cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,        \
     cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,             \
     const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,                   \
     cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace,          \
     size_t workspace_bytes, CUstream stream))

/* A declarator cannot be put in parentheses. NOLINTBEGIN(bugprone-macro-parentheses) */
#define GD_CUBLASLT_FIELD(field, symbol, parameters) int(*field) parameters;
struct gd_cublaslt {
  GD_CUBLASLT_FUNCTIONS(GD_CUBLASLT_FIELD)
};
/* NOLINTEND(bugprone-macro-parentheses) */

#endif
