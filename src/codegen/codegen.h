/*
 * Code generation: fusions become source text, source text becomes functions in memory. Between
 * the compile pass, which makes fusions, and the backends, which call the functions.
 *
 *   struct gd_codegen *code = NULL;
 *   GD_TRY(gd_codegen_build(&graph, &code, err));          // compiles what the cache lacks
 *   const struct gd_fused_kernel *kernel = gd_codegen_kernel(code, op->attr.fused.fusion);
 *   kernel->rows(in, out, kernel->streams, begin, end, buffer, sums);
 *   gd_codegen_free(code);
 */
#ifndef GD_CODEGEN_CODEGEN_H
#define GD_CODEGEN_CODEGEN_H

#include "codegen/lower.h"
#include "ir/caps.h"

/*
 * Rows begin .. end - 1 of a fusion, on one thread. buffer: gd_fused_kernel.buffer_floats floats,
 * 64-byte aligned. sums: [n_sums][columns], to which these rows are added.
 */
typedef void gd_fused_rows(const void *const *in, void *const *out, const uint32_t *streams,
                           int64_t begin, int64_t end, float *buffer, float *sums);

struct gd_fused_kernel {
  gd_fused_rows *function;
  int64_t row_count, columns;
  int64_t row_bytes; /* what a row reads and writes in memory */
  int64_t buffer_floats;
  uint32_t n_sums;
  uint32_t sum_of[GD_MAX_OUTPUTS]; /* by output of the op: which sum it is; GD_NONE: none */
  uint32_t streams[GD_LOWER_MAX_DROPOUTS];
};

/* All of it but the function: what whoever runs the kernel has to know. */
void gd_fused_describe(const struct gd_lowered *lowered, struct gd_fused_kernel *kernel);

/* How the kernels came about. */
struct gd_codegen_stats {
  uint32_t n_fusions, n_kernels; /* layers share kernels */
  uint32_t n_compiled;           /* not found in the cache */
  int64_t build_ns;
};

/* --- text ----------------------------------------------------------------------------------- */

/* A language that kernels are written in. */
struct gd_dialect;
extern const struct gd_dialect gd_dialect_c;    /* C with vector types; exports gd_rows */
extern const struct gd_dialect gd_dialect_cuda; /* CUDA C++: a __global__ gd_rows */

/* The kernel's text, without the prelude. Fusions that differ in their leaves' names, in the number
   of rows or in the streams of their dropouts have the same text. */
void gd_emit(const struct gd_dialect *dialect, struct gd_lowered *lowered, struct gd_strbuf *out);
/* What comes before every kernel: conversions, mathematics, random numbers. Of the CUDA dialect it
   is a file of the backend, backend/cuda/kernels/fused.cu. */
void gd_emit_prelude(const struct gd_dialect *dialect, struct gd_strbuf *out);

/*
 * How the CUDA dialect shares rows out: a team of threads has a row, a thread `per` times `lanes`
 * neighbouring columns of it. A team is a power of two of lanes of one warp, or whole warps; a
 * block is one team or several. Depends on columns, dtypes and formulas, not on the rows.
 */
struct gd_teams {
  int lanes;        /* 8, 4, 2 or 1; divides the columns */
  int team, per;    /* team * per * parts * lanes >= columns */
  int block;        /* threads of a block, a multiple of team */
  int parts;        /* blocks a row: more than 1 only where nothing is reduced over columns */
  int n_reductions; /* over the columns */
  int resident;     /* blocks a multiprocessor, as far as registers go */
  int depth;        /* rows in shared memory; below 2: rows are loaded when their turn comes */
  int full_bytes;   /* of a column, of all inputs that are full tensors */
};
void gd_emit_teams(const struct gd_lowered *lowered, struct gd_teams *teams);

/* --- functions ------------------------------------------------------------------------------ */

/*
 * Whether kernels can be built on this machine: a C compiler that works ($CC, cc, gcc or clang).
 * If not, *why says so in one sentence (GD_UNSUPPORTED). Compiles a line of C the first time.
 */
bool gd_codegen_available(struct gd_error *why);
/* The same for a backend: it may have no generated kernels, or a compiler of its own. */
bool gd_codegen_works(const struct gd_caps *caps, struct gd_error *why);

/*
 * Builds the kernel of every fusion of a graph. Compiled kernels are kept in
 * $XDG_CACHE_HOME/gpudays/kernels (~/.cache/gpudays/kernels), by content: source, compiler, flags
 * and CPU. GD_UNSUPPORTED: there is no compiler; GD_ENVIRONMENT: it failed.
 */
struct gd_codegen;
enum gd_status gd_codegen_build(const struct gd_graph *graph, struct gd_codegen **code,
                                struct gd_error *err) GD_MUST_USE;
const struct gd_fused_kernel *gd_codegen_kernel(const struct gd_codegen *code, uint32_t fusion);
void gd_codegen_stats(const struct gd_codegen *code, struct gd_codegen_stats *stats);
void gd_codegen_free(struct gd_codegen *code); /* NULL is fine; unloads the functions */

#endif
