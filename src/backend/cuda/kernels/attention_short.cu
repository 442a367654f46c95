// Attention over short sequences of fp32 in TF32, a block a head: all of q, k, v (and dout) lie in
// shared memory at once, so a score is computed once, the gradient has five GEMMs, and memory is
// read and written once. op_attention_short.c sets
//   HEAD    D: 16, 32 or 64
//   TILES   T in tiles of 16; as many warps, each with 16 rows
//   BLOCKS  blocks of the gradient that must fit on a multiprocessor; forward it is two
//   ALIGNED matrices start on 16 bytes
//
// TF32 has 11 significant bits, and so has fp16, with twice the rate and half the bytes; what it
// lacks is range. A head's q, k, v and dout are each multiplied by the power of two that puts their
// largest element below 2^15, which is exact and undone in the sums, which are fp32. Elements down
// to 2^-29 of the largest keep all their bits; what is lost below is 2^-40 of the largest of the
// head, less than accumulating all its rows in fp32 loses. Weights are at most 1 and take 2^14. dscores
// are bounded by 2 D max|dout| max|v| and take what makes that bound 2^14: a row of dq whose dout is
// 2^-14 of the head's largest is off twice as far as in TF32, and one below 2^-25 is lost.
//
// Bytes: 4 (forward) and 8 (gradient) times 4 T D a head: for T 197 and D 64 as many microseconds
// of an H200's multiprocessor as 6 and 13. MMAs take 3 and 6, reads of shared memory for them 4
// and 10, so loading and computing must overlap. Forward two blocks share a multiprocessor: with 13
// warps each that leaves a thread 72 registers, so matrices are loaded one by one and keys are
// visited 32 at a time. The gradient's shared memory has room for one block, which while it
// computes has the L2 cache fetch what the block after it will load.
#include "attention_args.cuh"
#include "tensor_cores.cuh"

constexpr int ROWS = TILES * 16;
constexpr int THREADS = TILES * 32;
constexpr int STRIDE = HEAD * 2 + 16;       // bytes; an odd number of 16-byte pieces, so that 8 rows
constexpr int DSCORE_STRIDE = ROWS * 2 + 16; // in a column meet all banks
constexpr int MATRIX = ROWS * STRIDE;
constexpr int EACH = HEAD / 8; // quadruples of a matrix that a thread loads
constexpr int STEPS = HEAD / 16;
constexpr int WEIGHT_EXPONENT = 14, DSCORE_EXPONENT = 23;
typedef gd_unit<gd_f16> gd_half_unit;

// --- powers of two ---------------------------------------------------------------------------------

// The exponent that puts the largest finite magnitude into [2^14, 2^15), given as its bits with an
// exponent one higher, which makes infinity and NaN the least of all. The limit keeps what the
// exponents of three matrices add up to within three factors.
GD_DEVICE int exponent_for(uint32_t largest) {
  int e = 14 + 128 - (int)(largest >> 23);
  return e > 100 ? 100 : e;
}
GD_DEVICE float power(int e) { return __int_as_float((e + 127) << 23); }
// x 2^e for |e| up to 370: in three steps, each of which fp32 can say.
GD_DEVICE float times_power(float x, int e) {
  int third = e / 3;
  return x * power(third) * power(third) * power(e - 2 * third);
}

// --- from memory to shared memory ------------------------------------------------------------------

GD_DEVICE float4 load_four(const float *from, int i, int elements) {
  if (i >= elements)
    return {0, 0, 0, 0};
  if (ALIGNED)
    return __ldcs((const float4 *)(from + i)); // once: what others fetched ahead stays in L2
  return {from[i], from[i + 1], from[i + 2], from[i + 3]};
}

struct gd_loaded {
  float4 at[EACH];
  GD_DEVICE void load(const float *from, int elements) {
#pragma unroll
    for (int j = 0; j < EACH; j++)
      at[j] = load_four(from, (threadIdx.x + j * THREADS) * 4, elements);
  }
  GD_DEVICE uint32_t largest() const {
    uint32_t most = 0;
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      const float x[4] = {at[j].x, at[j].y, at[j].z, at[j].w};
#pragma unroll
      for (int i = 0; i < 4; i++) {
        uint32_t bits = (__float_as_uint(x[i]) + 0x00800000u) & 0x7fffffffu;
        most = bits > most ? bits : most;
      }
    }
    return most;
  }
  GD_DEVICE void store(int matrix, int exponent) const {
    float by = power(exponent);
#pragma unroll
    for (int j = 0; j < EACH; j++) {
      int i = (threadIdx.x + j * THREADS) * 4;
      uint2 x = {gd_half_unit::pack(at[j].x * by, at[j].y * by),
                 gd_half_unit::pack(at[j].z * by, at[j].w * by)};
      *(uint2 *)(shared + matrix + i / HEAD * STRIDE + i % HEAD * 2) = x;
    }
  }
};

// The block's largest, of N values a thread. `slots` in shared memory were zeroed before a barrier.
template <int N> GD_DEVICE void block_largest(uint32_t (&x)[N], uint32_t *slots) {
#pragma unroll
  for (int i = 0; i < N; i++) {
    uint32_t most = __reduce_max_sync(0xffffffff, x[i]);
    if (threadIdx.x % 32 == 0)
      atomicMax(&slots[i], most);
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < N; i++)
    x[i] = slots[i];
}

// --- tiles -----------------------------------------------------------------------------------------

// Addresses of what a lane names, in a matrix of 16-bit rows: 16 rows as operand a, or their
// transpose's; 16 rows as two operands b; 16 rows whose columns are two operands b.
GD_DEVICE uint32_t left_rows(uint32_t at, int stride) {
  return at + threadIdx.x % 16 * stride + threadIdx.x % 32 / 16 * 16;
}
GD_DEVICE uint32_t left_columns(uint32_t at, int stride) {
  int lane = threadIdx.x % 32;
  return at + (lane % 8 + lane / 16 * 8) * stride + lane / 8 % 2 * 16;
}
GD_DEVICE uint32_t right_rows(uint32_t at) { return left_columns(at, STRIDE); }
GD_DEVICE uint32_t right_columns(uint32_t at) { return left_rows(at, STRIDE); }

// c += a b' for one MMA step along the head: two tiles, from 16 rows of b at `address` (right_rows).
GD_DEVICE void scores(float (&c)[2][4], const uint32_t (&a)[4], uint32_t address) {
  uint32_t x[4];
  load_matrices(x, address);
  gd_half_unit::mma(c[0], a, x[0], x[1]);
  gd_half_unit::mma(c[1], a, x[2], x[3]);
}

// sums += a b, b the 16 rows at `address` (right_columns).
GD_DEVICE void accumulate(float (&sums)[HEAD / 8][4], const uint32_t (&a)[4], uint32_t address) {
#pragma unroll
  for (int j = 0; j < HEAD / 8; j += 2) {
    uint32_t x[4];
    load_transposed(x, address + j * 16);
    gd_half_unit::mma(sums[j], a, x[0], x[1]);
    gd_half_unit::mma(sums[j + 1], a, x[2], x[3]);
  }
}

// Two neighbouring tiles of sums as operand a.
GD_DEVICE void as_left(uint32_t (&a)[4], const float (&first)[4], const float (&second)[4]) {
  a[0] = gd_half_unit::pack(first[0], first[1]);
  a[1] = gd_half_unit::pack(first[2], first[3]);
  a[2] = gd_half_unit::pack(second[0], second[1]);
  a[3] = gd_half_unit::pack(second[2], second[3]);
}

// 16 rows of sums, from `first` on, those below T, times a power of two and a factor for each half.
GD_DEVICE void store_rows(float *to, const float (&sums)[HEAD / 8][4], int first, int steps,
                          int exponent, const float (&factor)[2]) {
  int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    int row = first + lane / 4 + half * 8;
    if (row >= steps)
      continue;
#pragma unroll
    for (int j = 0; j < HEAD / 8; j++) {
      float x = times_power(sums[j][2 * half] * factor[half], exponent);
      float y = times_power(sums[j][2 * half + 1] * factor[half], exponent);
      float *at = to + row * HEAD + j * 8 + lane % 4 * 2;
      if (ALIGNED) {
        __stcs((float2 *)at, float2{x, y});
      } else {
        at[0] = x;
        at[1] = y;
      }
    }
  }
}

// --- the kernels -----------------------------------------------------------------------------------

// From scores of the scaled matrices to exponents of two; never 0, as 0 times a hidden
// score's infinity is NaN.
GD_DEVICE float score_factor(const gd_attention &p, int exponents) {
  return fmaxf(times_power(p.exponent, -exponents), 1e-30f);
}

// One matrix from memory to shared memory; its exponent. `slot` was zeroed before a barrier.
GD_DEVICE int take_matrix(int to, const float *from, int elements, uint32_t *slot) {
  gd_loaded x;
  x.load(from, elements);
  uint32_t largest[1] = {x.largest()};
  block_largest(largest, slot);
  int exponent = exponent_for(largest[0]);
  x.store(to, exponent);
  return exponent;
}

// 16 queries of a warp, and what they have of the keys visited so far: sums of weights and of
// weighted values. Weights are exp2(factor score + reference); a reference is an integer that makes
// the largest weight of its row 2^13 to 2^14, so that a new one is exact to apply to the sums.
struct gd_visitor {
  float sums[HEAD / 8][4], total[2], most[2], reference[2];
  float factor;
  uint32_t own, base;
  int first, steps, causal;

  template <int COUNT> GD_DEVICE void visit(int key) {
    constexpr int KEYS = MATRIX, VALUES = 2 * MATRIX;
    int lane = threadIdx.x % 32;
    float w[COUNT][2][4] = {};
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
      uint32_t a[4];
      load_matrices(a, own + step * 32);
#pragma unroll
      for (int tile = 0; tile < COUNT; tile++)
        scores(w[tile], a, right_rows(base + KEYS + (key + tile * 16) * STRIDE) + step * 32);
    }
    if (causal || key + COUNT * 16 > steps)
#pragma unroll
      for (int i = 0; i < COUNT * 8; i++) {
        int row = first + lane / 4 + i % 4 / 2 * 8;
        int column = key + i / 8 * 16 + i % 8 / 4 * 8 + lane % 4 * 2 + i % 2;
        if (column >= steps || (causal && column > row))
          w[i / 8][i % 8 / 4][i % 4] = -GD_INFINITY;
      }
    float now[2] = {most[0], most[1]};
#pragma unroll
    for (int i = 0; i < COUNT * 8; i++)
      now[i % 4 / 2] = fmaxf(now[i % 4 / 2], w[i / 8][i % 8 / 4][i % 4]);
#pragma unroll
    for (int half = 0; half < 2; half++) {
      now[half] = fmaxf(now[half], __shfl_xor_sync(0xffffffff, now[half], 1, 32));
      now[half] = fmaxf(now[half], __shfl_xor_sync(0xffffffff, now[half], 2, 32));
      float refers = WEIGHT_EXPONENT - ceilf(now[half] * factor);
      float change = gd_exp2(refers - reference[half]); // of nothing, at first: 0
      most[half] = now[half];
      reference[half] = refers;
      total[half] *= change;
#pragma unroll
      for (int j = 0; j < HEAD / 8; j++) {
        sums[j][2 * half] *= change;
        sums[j][2 * half + 1] *= change;
      }
    }
#pragma unroll
    for (int tile = 0; tile < COUNT; tile++) {
#pragma unroll
      for (int i = 0; i < 8; i++) {
        float &at = w[tile][i / 4][i % 4];
        at = gd_exp2(fmaf(at, factor, reference[i % 4 / 2]));
        total[i % 4 / 2] += at;
      }
      uint32_t weights[4];
      as_left(weights, w[tile][0], w[tile][1]);
      accumulate(sums, weights, right_columns(base + VALUES + (key + tile * 16) * STRIDE));
    }
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 2)
    attention_short(const float *q, const float *k, const float *v, float *out, float *lse,
                    gd_attention p) {
  __shared__ uint32_t slots[3];
  int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16, elements = p.steps * HEAD;
  int64_t matrix = (int64_t)blockIdx.x * elements;
  if (threadIdx.x < 3)
    slots[threadIdx.x] = 0;
  __syncthreads();
  int e_q = take_matrix(0, q + matrix, elements, slots);
  int e_k = take_matrix(MATRIX, k + matrix, elements, slots + 1);
  int e_v = take_matrix(2 * MATRIX, v + matrix, elements, slots + 2);
  __syncthreads();

  gd_visitor rows = {};
  rows.base = shared_address(shared);
  rows.own = left_rows(rows.base + first * STRIDE, STRIDE);
  rows.factor = score_factor(p, e_q + e_k);
  rows.first = first;
  rows.steps = p.steps;
  rows.causal = p.causal;
  rows.most[0] = rows.most[1] = -GD_INFINITY;
  rows.reference[0] = rows.reference[1] = GD_INFINITY;
  int tiles = p.causal ? first / 16 + 1 : TILES, tile = 0;
#pragma unroll 1
  for (; tile + 1 < tiles; tile += 2)
    rows.visit<2>(tile * 16);
  if (tile < tiles)
    rows.visit<1>(tile * 16);

  float share[2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float sum = rows.total[half];
    sum += __shfl_xor_sync(0xffffffff, sum, 1, 32);
    sum += __shfl_xor_sync(0xffffffff, sum, 2, 32);
    share[half] = 1 / sum;
    int row = first + lane / 4 + half * 8;
    if (row < p.steps && lane % 4 == 0)
      lse[(int64_t)blockIdx.x * p.steps + row] =
          0.69314718055994531f * (log2f(sum) - rows.reference[half]);
  }
  store_rows(out + matrix, rows.sums, first, p.steps, -e_v, share);
}

// A matrix into the L2 cache.
GD_DEVICE void fetch_ahead(const float *from, int elements) {
  for (int i = threadIdx.x * 32; i < elements; i += THREADS * 32)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + i));
}

// dout . out of every row, to shared memory: HEAD / 4 neighbouring lanes have a row's elements.
GD_DEVICE void dot_rows(float *delta, const gd_loaded &dout, const float *out, int elements) {
#pragma unroll
  for (int j = 0; j < EACH; j++) {
    int i = (threadIdx.x + j * THREADS) * 4;
    float4 y = load_four(out, i, elements), x = dout.at[j];
    float sum = x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
    sum = gd_warp<gd_add>(sum, HEAD / 4);
    if (threadIdx.x % (HEAD / 4) == 0)
      delta[i / HEAD] = sum;
  }
}

// First a warp owns keys and visits queries: weights and dscores are transposed, dk and dv stay in
// its registers, the dscores go to shared memory. Then it owns queries, and dq = dscores k.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_short_grad(const float *dout, const float *q, const float *k, const float *v,
                         const float *out, const float *lse, float *dq, float *dk, float *dv,
                         gd_attention p) {
  constexpr int KEYS = MATRIX, VALUES = 2 * MATRIX, DOUT = 3 * MATRIX, DSCORES = 4 * MATRIX;
  __shared__ uint32_t slots[4];
  __shared__ __align__(8) float reference[ROWS], delta[ROWS]; // by query
  int lane = threadIdx.x % 32, first = threadIdx.x / 32 * 16, elements = p.steps * HEAD;
  int64_t matrix = (int64_t)blockIdx.x * elements;
  uint32_t base = shared_address(shared);
  if (threadIdx.x < 4)
    slots[threadIdx.x] = 0;
  if (threadIdx.x < ROWS)
    reference[threadIdx.x] =
        (int)threadIdx.x < p.steps
            ? WEIGHT_EXPONENT -
                  1.4426950408889634f * lse[(int64_t)blockIdx.x * p.steps + threadIdx.x]
            : -GD_INFINITY;
  __syncthreads();
  gd_loaded x[2], y[2]; // all four at once would not fit in the registers
  x[0].load(q + matrix, elements);
  x[1].load(k + matrix, elements);
  uint32_t largest[2] = {x[0].largest(), x[1].largest()};
  block_largest(largest, slots);
  int e_q = exponent_for(largest[0]), e_k = exponent_for(largest[1]);
  y[1].load(dout + matrix, elements);
  x[0].store(0, e_q);
  x[1].store(KEYS, e_k);
  y[0].load(v + matrix, elements);
  dot_rows(delta, y[1], out + matrix, elements);
  largest[0] = y[0].largest();
  largest[1] = y[1].largest();
  block_largest(largest, slots + 2);
  int e_v = exponent_for(largest[0]), e_d = exponent_for(largest[1]);
  y[0].store(VALUES, e_v);
  y[1].store(DOUT, e_d);
  if (threadIdx.x < ROWS)
    delta[threadIdx.x] = times_power(delta[threadIdx.x], e_d + e_v);
  int64_t later = matrix + (int64_t)p.chunk * elements;
  if (blockIdx.x + (int64_t)p.chunk < p.heads) { // that many blocks run at once
    fetch_ahead(q + later, elements);
    fetch_ahead(k + later, elements);
    fetch_ahead(dout + later, elements);
    fetch_ahead(v + later, elements);
  }
  __syncthreads();

  uint32_t keys[STEPS][4], values = left_rows(base + VALUES + first * STRIDE, STRIDE);
#pragma unroll
  for (int step = 0; step < STEPS; step++)
    load_matrices(keys[step], left_rows(base + KEYS + first * STRIDE, STRIDE) + step * 32);
  float dk_sums[HEAD / 8][4] = {}, dv_sums[HEAD / 8][4] = {}, factor = score_factor(p, e_q + e_k);
  unsigned char *dscores = shared + DSCORES + (first + lane / 4) * DSCORE_STRIDE + lane % 4 * 4;
#pragma unroll 1
  for (int row = p.causal ? first : 0; row < ROWS; row += 16) {
    float w[2][4] = {}, dscore[2][4] = {};
    uint32_t weights[4], packed[4];
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
      uint32_t own[4]; // keys stay in registers, which values do not fit in too
      load_matrices(own, values + step * 32);
      scores(w, keys[step], right_rows(base + row * STRIDE) + step * 32);
      scores(dscore, own, right_rows(base + DOUT + row * STRIDE) + step * 32);
    }
#pragma unroll
    for (int tile = 0; tile < 2; tile++) {
      int query = row + tile * 8 + lane % 4 * 2;
      float2 refer = *(const float2 *)(reference + query), less = *(const float2 *)(delta + query);
#pragma unroll
      for (int e = 0; e < 4; e++) {
        int key = first + lane / 4 + e / 2 * 8;
        float at = gd_exp2(fmaf(w[tile][e], factor, e % 2 ? refer.y : refer.x));
        if (key >= p.steps || (p.causal && key > query + e % 2))
          at = 0;
        w[tile][e] = at;
        dscore[tile][e] = at * ((dscore[tile][e] - (e % 2 ? less.y : less.x)) *
                               power(-WEIGHT_EXPONENT - DSCORE_EXPONENT));
      }
    }
    as_left(weights, w[0], w[1]);
    as_left(packed, dscore[0], dscore[1]);
#pragma unroll
    for (int i = 0; i < 4; i++)
      *(uint32_t *)(dscores + i % 2 * 8 * DSCORE_STRIDE + row * 2 + i / 2 * 16) = packed[i];
    accumulate(dv_sums, weights, right_columns(base + DOUT + row * STRIDE));
    accumulate(dk_sums, packed, right_columns(base + row * STRIDE));
  }
  const float one[2] = {1, 1}, scale[2] = {p.scale, p.scale};
  store_rows(dv + matrix, dv_sums, first, p.steps, -WEIGHT_EXPONENT - e_d, one);
  store_rows(dk + matrix, dk_sums, first, p.steps, DSCORE_EXPONENT - e_d - e_v - e_q, scale);
  __syncthreads();

  float dq_sums[HEAD / 8][4] = {};
  int end = p.causal ? first + 16 : ROWS;
#pragma unroll 1
  for (int key = 0; key < end; key += 16) {
    uint32_t a[4];
    load_transposed(a, left_columns(base + DSCORES + key * DSCORE_STRIDE + first * 2, DSCORE_STRIDE));
    accumulate(dq_sums, a, right_columns(base + KEYS + key * STRIDE));
  }
  store_rows(dq + matrix, dq_sums, first, p.steps, DSCORE_EXPONENT - e_d - e_v - e_k, scale);
}
