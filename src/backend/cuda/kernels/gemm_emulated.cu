// Operands of fp32 as scaled fp16, for TF32 GEMMs: gemm_emulated.h says why that is as exact. A sample
// of both operands, then for each piece of the GEMM a cast by the sample's exponent, and a check that
// casts again where an element was larger than the sample promised.

#define SQUARE 64   // lines and columns of a tile that is transposed
#define TILE 1024 // units of a block: 4 of each thread
#define LIMIT 126 // of exponents: powers of two and their inverses are normal
#define WHOLE_TARGET 14

#include "gemm_emulated_args.cuh"

// x, and beyond `left` elements zeros. They are read once: the cache is for the fp16 copies.
template <bool ALIGNED> GD_DEVICE void load4(const float *from, int64_t left, float (&x)[4]) {
  if (ALIGNED && left >= 4) {
    float4 pack = __ldcs((const float4 *)from);
    x[0] = pack.x, x[1] = pack.y, x[2] = pack.z, x[3] = pack.w;
  } else {
#pragma unroll
    for (int i = 0; i < 4; i++)
      x[i] = i < left ? from[i] : 0.0f;
  }
}

GD_DEVICE uint32_t magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }
GD_DEVICE bool finite(uint32_t magnitude) { return magnitude < 0x7f800000u; }

// --- the sample ----------------------------------------------------------------------------------

// One of `every` segments, another one in each group: neighbouring lines must not show the same
// columns.
GD_DEVICE int64_t segment_of(int64_t group, const gd_cuda_sample &s) {
  int64_t first = group * s.every, left = s.segments - first;
  uint32_t which = ((uint32_t)group * 0x9E3779B1u) >> 16;
  return first + which % (uint32_t)(left < s.every ? left : s.every);
}

template <bool ALIGNED> GD_DEVICE float largest_of(const gd_cuda_sample &s, int64_t block) {
  float x[4][4], largest = 0;
#pragma unroll
  for (int i = 0; i < 4; i++) { // 16 threads a segment of 64, 16 segments at a time
    int64_t group = block * 64 + i * 16 + threadIdx.x / 16, left = 0;
    const float *from = s.from;
    if (group < s.groups) {
      int64_t segment = segment_of(group, s), line = 0;
      if (s.lines > 1) {
        line = segment / s.line_segments;
        segment -= line * s.line_segments;
      }
      int64_t column = segment * 64 + threadIdx.x % 16 * 4;
      left = s.length - column;
      from += line * s.pitch + column;
    }
    load4<ALIGNED>(from, left, x[i]);
  }
#pragma unroll
  for (int i = 0; i < 16; i++) {
    uint32_t bits = magnitude(x[i / 4][i % 4]);
    largest = fmaxf(largest, finite(bits) ? __uint_as_float(bits) : 0.0f);
  }
  return largest;
}

// The largest magnitudes of samples of all operands. Bytes: a sixteenth of large operands.
extern "C" __global__ void __launch_bounds__(256) emulated_sample(gd_cuda_slots *slots, const __grid_constant__ gd_cuda_samples samples) {
  __shared__ float shared[33];
  int which = 0;
  int64_t block = blockIdx.x;
  while (which < GD_CUDA_EMULATED_OPERANDS - 1 && block >= samples.at[which].blocks)
    block -= samples.at[which++].blocks;
  const gd_cuda_sample &s = samples.at[which];
  bool aligned = gd_aligned(s.from, 16) && (s.lines == 1 || s.pitch % 4 == 0);
  float largest = aligned ? largest_of<true>(s, block) : largest_of<false>(s, block);
  largest = gd_block<gd_greater>(largest, shared);
  if (threadIdx.x == 0)
    atomicMax(&slots->sampled[which], __float_as_uint(largest));
}

// --- exponents -----------------------------------------------------------------------------------

GD_DEVICE float power(int e) { return __uint_as_float((uint32_t)(127 + e) << 23); }

// What brings a magnitude into [2^target, 2^(target + 1)).
GD_DEVICE int exponent_of(uint32_t bits, int target) {
  int e = target - ((int)(bits >> 23) - 127);
  return e > LIMIT ? LIMIT : e < -LIMIT ? -LIMIT : e;
}

// By the samples. Together at most LIMIT, or alpha would underflow where results do not; A gives
// way, as other GEMMs may share B. A sample of zeros says nothing of B: what else it has is seen
// while it is cast.
GD_DEVICE void by_sample(const gd_cuda_slots *slots, const gd_cuda_casts &casts, int (&e)[2]) {
  e[0] = exponent_of(slots->sampled[casts.operand[0]], casts.target[0]);
  e[1] = exponent_of(slots->sampled[casts.operand[1]], casts.target[1]);
  if (slots->sampled[casts.operand[1]] && e[0] + e[1] > LIMIT)
    e[0] = LIMIT - e[1];
}

// --- the cast ------------------------------------------------------------------------------------

// Returns the bits of the largest finite magnitude of the tile that exceeds what fp16 holds.
template <bool ALIGNED> GD_DEVICE uint32_t cast_tile(const gd_cuda_cast &c, int64_t tile, int e) {
  float x[4][4];
  gd_f16 *to[4];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    int64_t unit = tile * TILE + i * 256 + threadIdx.x, line = 0, left = 0;
    const float *from = c.from;
    to[i] = 0;
    if (unit < c.units) {
      if (c.lines > 1) {
        line = gd_quotient((uint32_t)unit, c.divider);
        unit -= line * c.line_units;
      }
      left = c.length - 4 * unit;
      from += line * c.from_pitch + 4 * unit;
      to[i] = c.to + line * c.to_pitch + 4 * unit;
    }
    load4<ALIGNED>(from, left, x[i]);
  }
  uint32_t largest = 0, limit = __float_as_uint(65504.0f * power(-e)), seen = 0;
#pragma unroll
  for (int i = 0; i < 16; i++) {
    uint32_t bits = magnitude(x[i / 4][i % 4]);
    largest = largest > bits ? largest : bits;
  }
  if (largest > limit) // few tiles, if any
#pragma unroll
    for (int i = 0; i < 16; i++) {
      uint32_t bits = magnitude(x[i / 4][i % 4]);
      seen = finite(bits) && bits > limit && bits > seen ? bits : seen;
    }
#pragma unroll
  for (int i = 0; i < 4; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++)
      x[i][j] *= power(e);
    if (to[i])
      gd_store(to[i], x[i]);
  }
  return seen;
}

// A square of 64 lines and 64 columns, transposed: read by lines, written by columns. For operands of a
// few MB.
GD_DEVICE uint32_t cast_square(const gd_cuda_cast &c, int64_t tile, int e) {
  __shared__ gd_f16 square[SQUARE][SQUARE + 2];
  int64_t line = tile / c.line_units * SQUARE, column = tile % c.line_units * SQUARE;
  uint32_t limit = __float_as_uint(65504.0f * power(-e)), seen = 0;
  int own = threadIdx.x % SQUARE;
  __syncthreads(); // a square before this one
  for (int i = threadIdx.x / SQUARE; i < SQUARE; i += 256 / SQUARE)
    if (line + i < c.lines && column + own < c.length) {
      float x = c.from[(line + i) * c.from_pitch + column + own];
      uint32_t bits = magnitude(x);
      seen = finite(bits) && bits > limit && bits > seen ? bits : seen;
      square[i][own] = gd_to<gd_f16>(x * power(e));
    }
  __syncthreads();
  for (int i = threadIdx.x / SQUARE; i < SQUARE; i += 256 / SQUARE)
    if (line + own < c.lines && column + i < c.length)
      c.to[(column + i) * c.to_pitch + line + own] = square[own][i];
  return seen;
}

GD_DEVICE bool aligned(const gd_cuda_cast &c) {
  return gd_aligned(c.from, 16) && (c.lines == 1 || c.from_pitch % 4 == 0);
}

// All threads of a block with the same tile.
GD_DEVICE uint32_t cast_any(const gd_cuda_cast &c, int64_t tile, int e) {
  return c.transposed     ? cast_square(c, tile, e)
         : aligned(c) ? cast_tile<true>(c, tile, e)
                      : cast_tile<false>(c, tile, e);
}

// What one piece of the GEMM needs: a tile of 4096 elements a CTA, first those of A. Bytes: 6 an
// element, read once and written once.
extern "C" __global__ void __launch_bounds__(256) emulated_cast(gd_cuda_slots *slots, const __grid_constant__ gd_cuda_casts casts) {
  int which = blockIdx.x >= casts.at[0].tiles, e[2];
  const gd_cuda_cast &c = casts.at[which];
  int64_t tile = blockIdx.x - (which ? casts.at[0].tiles : 0);
  by_sample(slots, casts, e);
  int own = which ? e[1] : e[0];
  uint32_t seen = cast_any(c, tile, own);
  if (seen)
    atomicMax(&slots->seen[casts.operand[which]][casts.slot[which]], seen);
}

// --- what no alpha undoes ------------------------------------------------------------------------

// D = beta D + alpha A B in fp32, an element a thread: slow, and for data that no training survives.
GD_DEVICE void multiply(const gd_cuda_direct &p, float alpha, float beta) {
  int64_t all = p.m * p.n, step = (int64_t)gridDim.x * blockDim.x;
  for (int64_t at = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; at < all; at += step) {
    int64_t j = at / p.m, i = at - j * p.m;
    const float *a = p.a + i * p.a_m, *b = p.b + j * p.b_n;
    float *d = p.d + j * p.ldd + i, sum = 0;
#pragma unroll 1
    for (int64_t l = 0; l < p.k; l++)
      sum += a[l * p.a_k] * b[l * p.b_k];
    *d = beta != 0 ? beta * *d + alpha * sum : alpha * sum; // what is overwritten may be NaN
  }
}

// Casts again, by their true maxima, operands of which an element did not fit, and leaves alpha and
// beta of the GEMM. What is in the slots was complete before; nothing here changes it. Where alpha
// would exceed fp32, the piece is computed here, and the fp16 GEMM adds zero to it, and a bias.
extern "C" __global__ void __launch_bounds__(256)
    emulated_check(gd_cuda_slots *slots, const __grid_constant__ gd_cuda_casts casts, float alpha, float beta) {
  int e[2];
  bool again[2];
  by_sample(slots, casts, e);
#pragma unroll
  for (int which = 0; which < 2; which++) {
    uint32_t seen = slots->seen[casts.operand[which]][casts.slot[which]];
    again[which] = seen != 0;
    if (seen)
      e[which] = exponent_of(seen, WHOLE_TARGET);
  }
  // B had a sample of zeros and is zero, or next to it: A gives way. Where it stays, for pieces in
  // which B is not, alpha may vanish, and with it results below 2^-94 k: fp16 operands are below 2^16.
  if (e[0] + e[1] > LIMIT && !casts.stays) {
    e[0] = LIMIT - e[1];
    again[0] = true;
  }
#pragma unroll
  for (int which = 0; which < 2; which++) {
    const gd_cuda_cast &c = casts.at[which];
    for (int64_t tile = blockIdx.x; again[which] && tile < c.tiles; tile += gridDim.x)
      cast_any(c, tile, e[which]);
  }
  int undone = -(e[0] + e[1]);
  bool beyond = undone > 127;
  if (beyond)
    multiply(casts.direct, alpha, beta);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    // In two steps: no one power is below 2^-126.
    slots->alpha = beyond ? 0.0f : alpha * power(undone / 2) * power(undone - undone / 2);
    slots->beta = beyond ? 1.0f : beta;
  }
}
