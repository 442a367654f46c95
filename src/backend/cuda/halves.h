/*
 * A product of fp32 tensors that may round its operands to TF32, computed from scaled halves: both
 * operands are multiplied by powers of two, rounded to fp16 in the workspace, multiplied there with
 * sums and results in fp32, and the powers are undone in alpha. op_matmul.c times it against the
 * product as it stands.
 *
 * Why that is no less exact. TF32 and fp16 both have 11 bits of significand; fp16 lacks range
 * alone. A power of two moves exponents and nothing else, so with the largest element put into
 * [2^7, 2^8) every element down to 2^-21 of it (2^-14, the least normal half) keeps its 11 bits,
 * rounded to nearest. One below that is off by at most 2^-25, which is 2^-32 of the largest: less
 * than fp32 sums lose beside a product of the largest. Where the largest element is known and not
 * guessed from a sample it is put into [2^14, 2^15), which gives seven bits of range more.
 *
 * The exponents are functions of the operands alone: nothing is remembered between calls, and the
 * same operands give the same bits. A sample of each operand says how large its elements are; an
 * element 2^8 times larger than all of the sample is noticed while casting, and then the piece that
 * holds it is cast again by its true maximum. Infinities and NaNs are not counted and stay what
 * they are. Exponents are bounded so that neither a power nor alpha leaves the range of fp32; what
 * that loses is below 2^-135 a summand. Where the largest elements are so large that alpha would
 * have to be above 2^127 (max|A| max|B| from 2^142 on, or 2^156 where both are known), the piece is
 * computed from the fp32 operands by halves_check, slowly, and the library's product adds nothing
 * (unless an operand holds an infinity, which may then come out as NaN).
 *
 * The workspace is smaller than large operands, so the product is cut along one of m, n, k into
 * pieces of equal size; an operand that does not have this dim is cast once. A that is not cut and
 * has k contiguous is turned meanwhile: mostly a weight, and tensor cores like it better so.
 *
 * Products that have B in common share its cast (together.c): they are cut alike, along the lines
 * in which B is stored, and of each piece of B all products are computed before the next one. The
 * exponent of B is therefore its own affair.
 */
#ifndef GD_BACKEND_CUDA_HALVES_H
#define GD_BACKEND_CUDA_HALVES_H

#include "backend/cuda/divide.h"
#include "backend/cuda/product.h"

enum {
  GD_CUDA_HALVES_PIECES = 64,       /* at most */
  GD_CUDA_HALVES_SHARING = 3,       /* products of one B */
  GD_CUDA_HALVES_SLOTS_BYTES = 2048 /* struct slots of kernels/halves.cu, and room to grow */
};

enum gd_cuda_cut { GD_CUDA_CUT_M, GD_CUDA_CUT_N, GD_CUDA_CUT_K };

/* How a product is cut. */
struct gd_cuda_halves {
  int64_t pieces; /* 0: not at all, there is no room */
  enum gd_cuda_cut cut;
  int64_t size; /* of a piece along the dim that is cut; the last may be smaller */
  char *room;   /* halves of A and B, at so many bytes */
  int64_t a_at, b_at;
  bool turns_a;
  int32_t number; /* among products that share B: the first casts it */
};

/* `lines` lines of `length` elements behind each other, fp32 to scaled fp16; turned: `length` lines
   of `lines` elements are left. Kernels have the same struct. */
struct gd_cuda_cast {
  const float *from;
  void *to;
  int64_t length, lines, from_pitch, to_pitch; /* elements */
  int64_t units, line_units;                   /* of four elements: all, of a line */
  struct gd_divider divider;                   /* by line_units; 0: there is one line */
  int32_t turned;
  int64_t tiles; /* blocks that do it; 0: nothing to do */
};

/* A piece as it stands, for data that halves cannot hold. Kernels have the same struct. */
struct gd_cuda_direct {
  const float *a, *b;
  float *d;
  int64_t m, n, k;
  int64_t a_m, a_k, b_k, b_n, ldd; /* elements from one to the next in that dim */
};

struct gd_cuda_casts {
  struct gd_cuda_cast at[2];
  int32_t operand[2]; /* which of all A and B is in the slots: B is 1 */
  int32_t slot[2];    /* of the maxima that were noticed while casting A and B */
  int32_t target[2];  /* exponent to which the largest element of a sample is brought */
  int32_t stays;      /* the cast of A serves the pieces behind, too: nothing may change it */
  struct gd_cuda_direct as_it_is;
};

/* room: at a multiple of 256. False where there is nothing to do or no way to fit. */
bool gd_cuda_halves_plan(const struct gd_cuda_product *product, void *room, int64_t room_bytes,
                         struct gd_cuda_halves *halves);
/* The same for n products that share B, one plan each. */
bool gd_cuda_halves_share(const struct gd_cuda_product *a, const struct gd_cuda_product *b);
bool gd_cuda_halves_plan_all(const struct gd_cuda_product *products, int n, void *room,
                             int64_t room_bytes, struct gd_cuda_halves *halves);
/* Piece `at` as a product of halves, and what must be cast for it, the pieces before done. */
void gd_cuda_halves_piece(const struct gd_cuda_product *product,
                          const struct gd_cuda_halves *halves, int64_t at,
                          struct gd_cuda_product *piece, struct gd_cuda_casts *casts);

/* In COLLECT: notes the kernels. */
enum gd_status gd_cuda_halves_collect(const struct gd_cuda_call *call) GD_MUST_USE;
/* Clears the slots and samples the operands of a product, or of all that share B, at any stage but
   COLLECT, as the next one. */
enum gd_status gd_cuda_halves_sample(const struct gd_cuda_call *call,
                                     const struct gd_cuda_product *products, int n,
                                     void *slots) GD_MUST_USE;
/* Casts, and leaves alpha and beta of the piece for the product. */
enum gd_status gd_cuda_halves_cast(const struct gd_cuda_call *call,
                                   const struct gd_cuda_product *piece,
                                   const struct gd_cuda_casts *casts, void *slots) GD_MUST_USE;
/* Where these are, on the device: two floats. */
const float *gd_cuda_halves_factors(const void *slots);

#endif
