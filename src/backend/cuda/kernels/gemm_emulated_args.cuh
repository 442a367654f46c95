// Arguments of kernels/gemm_emulated.cu.
#ifndef GD_GEMM_EMULATED_ARGS_CUH
#define GD_GEMM_EMULATED_ARGS_CUH
#include "args.cuh"

enum {
  GD_CUDA_EMULATED_PIECES = 64, // at most
  GD_CUDA_EMULATED_SHARING = 3, // GEMMs of one B
  GD_CUDA_EMULATED_OPERANDS = 1 + GD_CUDA_EMULATED_SHARING,
};

// In the workspace: written by one kernel, read by the next.
struct gd_cuda_slots {
  float alpha, beta;
  uint32_t sampled[GD_CUDA_EMULATED_OPERANDS]; // bits of the largest finite magnitude
  // Likewise, of pieces in which an element is too large; else 0.
  uint32_t seen[GD_CUDA_EMULATED_OPERANDS][GD_CUDA_EMULATED_PIECES];
};
GD_ARGS_SIZE(struct gd_cuda_slots, 1048);

// `lines` lines of `length` elements behind each other, fp32 to scaled fp16; transposed: the result
// is `length` lines of `lines` elements.
struct gd_cuda_cast {
  const float *from;
  GD_OUT(gd_f16) to;
  int64_t length, lines, from_pitch, to_pitch; // elements
  int64_t units, line_units;                   // of four elements: all, of a line
  struct gd_divider divider;                   // by line_units; 0: there is one line
  int32_t transposed;
  int64_t tiles; // CTAs that do it; 0: nothing to do
};
GD_ARGS_SIZE(struct gd_cuda_cast, 88);

// A piece in fp32, for data that scaled fp16 cannot hold: D[m,n] by columns, A[m,k] and B[k,n] with
// a distance in each dim.
struct gd_cuda_direct {
  const float *a;
  const float *b;
  float *d;
  int64_t m, n, k;
  int64_t a_m, a_k, b_k, b_n, ldd; // elements from one to the next in that dim
};
GD_ARGS_SIZE(struct gd_cuda_direct, 88);

struct gd_cuda_casts {
  struct gd_cuda_cast at[2];
  int32_t operand[2]; // which of all A and B is in the slots: B is 1
  int32_t slot[2];    // of the maxima that were noticed while casting A and B
  int32_t target[2];  // exponent to which the largest element of a sample is brought
  int32_t stays;      // the cast of A serves the pieces behind, too: nothing may change it
  struct gd_cuda_direct direct;
};
GD_ARGS_SIZE(struct gd_cuda_casts, 296);

struct gd_cuda_sample {
  const float *from;
  int64_t length, lines, pitch;
  int64_t segments, line_segments; // all, of a line
  int64_t groups;                  // of `every` segments: one is looked at
  int64_t blocks;
  int32_t every;
};
struct gd_cuda_samples {
  struct gd_cuda_sample at[GD_CUDA_EMULATED_OPERANDS];
};
GD_ARGS_SIZE(struct gd_cuda_samples, 288);

#endif
