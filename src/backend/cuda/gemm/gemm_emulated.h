/*
 * A TF32 GEMM emulated with scaled fp16: both operands are multiplied by powers of two and rounded
 * to fp16 in the workspace, the GEMM reads these, accumulates and stores in fp32, and alpha undoes
 * the powers. Tensor cores multiply fp16 at twice the rate of TF32. op_matmul.c times it against
 * the direct path.
 *
 * Why that is no less exact. TF32 and fp16 both have 11 bits of significand; fp16 lacks range
 * alone. A power of two moves exponents and nothing else, so with the largest element put into
 * [2^7, 2^8) every element down to 2^-21 of it (2^-14, the least normal fp16) keeps its 11 bits,
 * rounded to nearest. One below that is off by at most 2^-25, which is 2^-32 of the largest: less
 * than accumulating in fp32 loses when the largest elements take part. Where the largest element is
 * known and not guessed from a sample it is put into [2^14, 2^15), which gives seven bits of range
 * more.
 *
 * The exponents are functions of the operands alone: nothing is remembered between calls, and the
 * same operands give the same bits. A sample of each operand says how large its elements are; an
 * element 2^8 times larger than all of the sample is noticed while casting, and then the piece that
 * holds it is cast again by its true maximum. Infinities and NaNs are not counted and stay what
 * they are. Exponents are bounded so that neither a power nor alpha leaves the range of fp32; what
 * that loses is below 2^-135 a summand. Where the largest elements are so large that alpha would
 * have to be above 2^127 (max|A| max|B| from 2^142 on, or 2^156 where both are known), the piece is
 * computed from the fp32 operands by emulated_check, slowly, and the library's GEMM adds zero
 * (unless an operand holds an infinity, which may then come out as NaN).
 *
 * The workspace is smaller than large operands, so the GEMM is cut along one of m, n, k into pieces
 * of equal size; an operand that does not have this dim is cast once. An A that is not cut and has
 * k contiguous is transposed by its cast: mostly a weight, and tensor cores are faster then.
 *
 * GEMMs that have B in common share its cast (gemm_group.c): they are cut alike, along the lines in
 * which B is stored, and all of them use a piece of B before the next piece is cast. So the
 * exponent of B depends on B alone.
 */
#ifndef GD_BACKEND_CUDA_GEMM_GEMM_EMULATED_H
#define GD_BACKEND_CUDA_GEMM_GEMM_EMULATED_H

#include "backend/cuda/gemm/cuda_gemm.h"
#include "backend/cuda/kernels/gemm_emulated_args.cuh"
#include "backend/cuda/runtime/divide.h"

enum {
  GD_CUDA_EMULATED_SLOTS_BYTES =
      2048 /* struct slots of kernels/gemm_emulated.cu, and room to grow */
};

enum gd_cuda_cut { GD_CUDA_CUT_M, GD_CUDA_CUT_N, GD_CUDA_CUT_K };

/* How a GEMM is cut. */
struct gd_cuda_emulated {
  int64_t pieces; /* 0: not at all, there is no room */
  enum gd_cuda_cut cut;
  int64_t size; /* of a piece along the dim that is cut; the last may be smaller */
  char *room;   /* fp16 copies of A and B, at so many bytes */
  int64_t a_at, b_at;
  bool transposes_a;
  int32_t number; /* in a group: the first casts B */
};

/* room: at a multiple of 256. False where there is nothing to do or it does not fit. */
bool gd_cuda_emulated_plan(const struct gd_cuda_gemm *gemm, void *room, int64_t room_bytes,
                           struct gd_cuda_emulated *emulated);
/* The same for n GEMMs that share B, one plan each. */
bool gd_cuda_emulated_share(const struct gd_cuda_gemm *a, const struct gd_cuda_gemm *b);
bool gd_cuda_emulated_plan_all(const struct gd_cuda_gemm *gemms, int n, void *room,
                               int64_t room_bytes, struct gd_cuda_emulated *emulated);
/* Piece `at` as an fp16 GEMM, and what must be cast for it once the pieces before are done. */
void gd_cuda_emulated_piece(const struct gd_cuda_gemm *gemm,
                            const struct gd_cuda_emulated *emulated, int64_t at,
                            struct gd_cuda_gemm *piece, struct gd_cuda_casts *casts);

/* In COLLECT: notes the kernels. */
enum gd_status gd_cuda_emulated_collect(const struct gd_cuda_call *call) GD_MUST_USE;
/* Clears the slots and samples the operands of a GEMM, or of a group, at any stage but COLLECT; so
   does the next one. */
enum gd_status gd_cuda_emulated_sample(const struct gd_cuda_call *call,
                                       const struct gd_cuda_gemm *gemms, int n,
                                       void *slots) GD_MUST_USE;
/* Casts, and leaves alpha and beta for the GEMM of the piece. */
enum gd_status gd_cuda_emulated_cast(const struct gd_cuda_call *call,
                                     const struct gd_cuda_gemm *piece,
                                     const struct gd_cuda_casts *casts, void *slots) GD_MUST_USE;
/* Where these are, on the device: two floats. */
const float *gd_cuda_emulated_factors(const void *slots);

#endif
