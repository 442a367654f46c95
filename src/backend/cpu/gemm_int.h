/*
 * What the driver of the GEMM (gemm.c) and its micro-kernels (gemm_kernels_*.c) share.
 *
 * Both operands are packed into 4-byte units: one fp32 (fp16 and bf16 are widened where nothing
 * multiplies them), or a pair of bf16 neighbours along k for the instructions that take pairs.
 * Hence one driver and one kind of layout serve every dtype, and "depth" below counts units, not
 * elements.
 *
 *   packed B   panels of nr columns; in a panel, unit u of column j is at [u * nr + j]
 *   packed A   panels of mr rows;    in a panel, unit u of row i is at [u * a_step + i]
 *              (AMX has 16 x 16 unit tiles in both, see gemm_kernels_amx.c)
 *   sums       fp32 tiles of mr x nr, row by row: a tile of C while k is being summed
 *
 * Panels are padded with zeros to full width and depth, so kernels never see an edge of A or B.
 */
#ifndef GD_BACKEND_CPU_GEMM_INT_H
#define GD_BACKEND_CPU_GEMM_INT_H

#include <stdbool.h>
#include <stdint.h>

#include "backend/cpu/isa.h"
#include "ir/dtype.h"

/* Full unrolling of a short constant loop over register arrays, which -O2 alone does not do. */
#if defined(__clang__)
#define GD_UNROLL _Pragma("clang loop unroll(full)")
#else
#define GD_UNROLL _Pragma("GCC unroll 32")
#endif

#define GD_INLINE static inline __attribute__((always_inline))

#define GD_TARGET_AVX2        __attribute__((target("avx2,fma,f16c")))
#define GD_AVX512             "avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"
#define GD_TARGET_AVX512      __attribute__((target(GD_AVX512)))
#define GD_TARGET_AVX512_BF16 __attribute__((target(GD_AVX512 ",avx512bf16")))
#define GD_TARGET_AMX         __attribute__((target(GD_AVX512 ",amx-tile,amx-bf16")))

/* 16-byte vectors of gcc and clang: SSE on x86-64, NEON on aarch64. */
typedef float gd_f32x4 __attribute__((vector_size(16)));

/* How source elements become units. */
enum gd_gemm_unit {
  GD_GEMM_UNIT_F32,      /* fp32 as it is */
  GD_GEMM_UNIT_BF16,     /* bf16 widened to fp32 */
  GD_GEMM_UNIT_F16,      /* fp16 widened to fp32 */
  GD_GEMM_UNIT_BF16_PAIR /* elements 2u and 2u + 1 of k, the first in the low half */
};

/* A piece of an operand to be packed: `width` rows of op(A) or columns of op(B), `k` deep. */
struct gd_gemm_piece {
  const void *data;       /* its first element */
  int64_t ld;             /* elements between rows as stored */
  bool k_contiguous;      /* rows as stored run along k (A as is, B transposed) */
  enum gd_gemm_unit unit; /* what to make of it */
  int64_t width;          /* > 0 */
  int64_t k;              /* elements */
  int64_t depth;          /* units to write: those of k, then zeros */
};

/* Where a tile finds its mr rows of A: in a packed panel, or in A itself if its units are the same.
 */
struct gd_gemm_rows {
  const void *data;   /* unit 0 of row 0 */
  int64_t row_bytes;  /* from row to row */
  int64_t unit_bytes; /* from unit to unit */
};

/* How sums become elements of C. */
struct gd_gemm_output {
  enum gd_dtype dtype;
  int64_t ld; /* elements between rows of C */
  float alpha;
  bool accumulate;
};

/* The micro-kernels of one instruction set for one kind of unit, and the blocking they like. */
struct gd_gemm_ops {
  int mr, nr;          /* tile of C */
  int a_step;          /* units between depths of packed A: at least mr */
  int unit_k;          /* elements of k in a unit */
  int depth_step;      /* packed depth is a multiple of this */
  int depth_max;       /* units of k in a round: mr x depth_max should stay in L1 */
  int width_max;       /* columns in a block: width_max x depth_max should stay in L2 */
  int sums_max;        /* elements of a block whose sums wait from round to round */
  int pack_penalty;    /* multiply-adds of one unit that take as long as packing one unit */
  bool in_place;       /* tiles can read A where it is */
  void (*begin)(void); /* before and after a thread's work; may be NULL */
  void (*end)(void);
  void (*pack_a)(const struct gd_gemm_piece *piece, void *packed);
  void (*pack_b)(const struct gd_gemm_piece *piece, void *packed);
  /* sums (+)= rows of A * B panel; rows and cols say how much of the tile will be used. */
  void (*tile)(int64_t depth, const struct gd_gemm_rows *a, const void *b, float *sums, bool add,
               int64_t rows, int64_t cols);
  /* Writes rows x cols of C from a tile's sums; bias (or NULL) points to the tile's first column.
   */
  void (*store)(const struct gd_gemm_output *out, const float *sums, int64_t rows, int64_t cols,
                const float *bias, void *c);
};

/* Capacities of one thread's workspace, for every instruction set: the largest of each. */
enum {
  GD_GEMM_A_UNITS = 192 * 384, /* packed A: some panels, depth_max deep */
  GD_GEMM_B_UNITS = 512 * 384, /* packed B: width_max x depth_max */
  GD_GEMM_SUMS = 1024 * 512,   /* sums_max */
  GD_GEMM_TILE_SUMS = 32 * 32, /* sums of one tile, when k takes one round */
  GD_GEMM_THREAD_BYTES = 4 * (GD_GEMM_A_UNITS + GD_GEMM_B_UNITS + GD_GEMM_SUMS + GD_GEMM_TILE_SUMS)
};

/* The kernels for operands of a dtype at this level, and what they take the elements as. */
const struct gd_gemm_ops *gd_gemm_choose(enum gd_dtype dtype, enum gd_isa isa,
                                         enum gd_gemm_unit *unit);

extern const struct gd_gemm_ops gd_gemm_ops_plain;
#if defined(__x86_64__)
extern const struct gd_gemm_ops gd_gemm_ops_avx2;
extern const struct gd_gemm_ops gd_gemm_ops_avx512;      /* fp32 units */
extern const struct gd_gemm_ops gd_gemm_ops_avx512_bf16; /* bf16 pairs */
extern const struct gd_gemm_ops gd_gemm_ops_amx;         /* bf16 pairs */

/* Parts of the AVX-512 kernels that AMX uses too (tiles 32 columns wide). */
void gd_gemm_avx512_pack_a_tiles(const struct gd_gemm_piece *piece, void *packed);
void gd_gemm_avx512_pack_b_tiles(const struct gd_gemm_piece *piece, void *packed);
void gd_gemm_avx512_store(const struct gd_gemm_output *out, const float *sums, int64_t rows,
                          int64_t cols, const float *bias, void *c);

/* Loads and drops this thread's tile configuration. */
void gd_gemm_amx_begin(void);
void gd_gemm_amx_end(void);
#endif

#endif
