// What the tiled kernels of fused attention share: instructions, fragments of matrices, tiles in
// shared memory. out = softmax(scale q k') v and its gradient are computed without a score matrix
// in memory, one kernel a file (attention_forward.cu, attention_grad_queries.cu,
// attention_grad_keys.cu; attention_grad.cu does what the two do); op_attention.c sets these macros:
//   T0         gd_bf16, gd_f16 (m16n8k16) or gd_f32 (tf32 m16n8k8)
//   HEAD       D, rounded up to a multiple of 16; the padding is zeros in shared memory
//   WARPS, ROW_TILES  a block owns WARPS x ROW_TILES x 16 rows, a warp ROW_TILES x 16 of them
//   COLUMNS    what it visits at a time, a multiple of 16
//   STAGES     tiles that are in shared memory at a time, 1 or 2; of the gradients' up to 3
//   PARTS      of attention_grad_keys: bit 0 dv, bit 1 dk; both at once where the registers suffice
//   DROPOUT    0 none, 1 any T, 2 where T is a multiple of 8
//   ALIGNED    rows start on 16 bytes: cp.async; else element by element
//   MMAS       gd_f32: 1 is TF32; 3 TF32 MMAs for one have the accuracy of fp32, see left_of
//   BLOCKS     blocks that must fit on a multiprocessor
//   KEEP       how many of the block's own operands (forward: q; queries: q, dout; keys: k, v) lie
//              in registers instead of being read again for every visit
//
// FLOPs: 4 T^2 D a head forward, 14 T^2 D backward (7 GEMMs, of which 2 are repeated: the price of
// sums in a fixed order without atomics; 10 T^2 D where a block has a whole head's sums:
// attention_grad.cu), half of it where causal. Bytes: q, k, v, out once if a head's keys stay in L2;
// so the MMAs are the bound.
//
// Rows and columns are those of the scores, or of their transpose in attention_grad_keys and
// attention_grad, where a block owns keys and visits queries.
#ifndef GD_ATTENTION_TILES_CUH
#define GD_ATTENTION_TILES_CUH

#include "attention_args.cuh"
#include "tensor_cores.cuh"

constexpr int BYTES = sizeof(T0);
constexpr int STRIDE = HEAD * BYTES + 16; // of a row in shared memory: an odd number of 16-byte
                                          // pieces, so that 8 rows in a column meet all banks
constexpr int STEPS = HEAD * BYTES / 32;  // MMAs along the head; one takes 32 bytes of a row
constexpr int THREADS = WARPS * 32;
constexpr int WARP_ROWS = ROW_TILES * 16;
constexpr int ROWS = WARPS * WARP_ROWS;
constexpr int TILES = COLUMNS / 8;
constexpr int HEAD_TILES = HEAD / 8;
constexpr int RUN = BYTES == 2 ? 1 : HEAD % 32 == 0 ? 4 : 2; // see head_column
static_assert(!KEEP || MMAS == 1, "the parts of operands take too many registers");

// --- instructions ----------------------------------------------------------------------------------

// 2 or 4 neighbouring words.
template <int N> GD_DEVICE void load_words(uint32_t (&x)[N], uint32_t address) {
  if constexpr (N == 4)
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
                 : "r"(address)
                 : "memory");
  if constexpr (N == 2)
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];"
                 : "=r"(x[0]), "=r"(x[1])
                 : "r"(address)
                 : "memory");
}

// --- fragments -------------------------------------------------------------------------------------

// Operand a. fp32 in three TF32 MMAs: x = at + rest, both rounded to TF32, hold 22 bits of x, and
// at at + at rest + rest at is short of the exact value by 2^-22 of it.
struct gd_left {
  uint32_t at[4];
  uint32_t rest[4];
};

// To nearest; the tensor cores alone would truncate. What a CTA visits is rounded at every use, by
// two instructions: in shared memory that would be a quarter more reads and writes, which bound the
// kernel as MMAs do. What it owns is rounded there, once: see round_rows.
GD_DEVICE uint32_t tf32(uint32_t x) {
  // The NaN of fp32 instructions has all bits but the sign's: a carry would make it -0.
  int y = (int)x < 0x7fffefff ? (int)x : 0x7fffefff;
  return MMAS == 1 ? (uint32_t)y + 0x1000u : ((uint32_t)y + 0x1000u) & 0xffffe000u;
}
// Of an infinity the rest is such a NaN, and 0 is what it must become.
GD_DEVICE uint32_t tf32_rest(uint32_t x, uint32_t at) {
  uint32_t rest = __float_as_uint(__uint_as_float(x) - __uint_as_float(at));
  return (rest + 0x1000u) & 0xffffe000u;
}

GD_DEVICE void left_of(gd_left &a, const uint32_t (&x)[4]) {
#pragma unroll
  for (int i = 0; i < 4; i++) {
    a.at[i] = BYTES == 4 ? tf32(x[i]) : x[i];
    if (MMAS == 3)
      a.rest[i] = tf32_rest(x[i], a.at[i]);
  }
}

// c += a b. The tensor cores truncate what they accumulate; where the accuracy of fp32 is wanted,
// they add 8 terms only, and fp32 instructions add these.
GD_DEVICE void multiply(float (&c)[4], const gd_left &a, uint32_t b0, uint32_t b1) {
  if (BYTES == 2) {
    gd_unit<T0>::mma(c, a.at, b0, b1);
    return;
  }
  uint32_t at0 = tf32(b0), at1 = tf32(b1);
  if (MMAS == 1) {
    gd_unit<T0>::mma(c, a.at, at0, at1);
    return;
  }
  float sum[4] = {};
  gd_unit<T0>::mma(sum, a.rest, at0, at1);
  gd_unit<T0>::mma(sum, a.at, tf32_rest(b0, at0), tf32_rest(b1, at1));
  gd_unit<T0>::mma(sum, a.at, at0, at1);
#pragma unroll
  for (int e = 0; e < 4; e++)
    c[e] += sum[e];
}

// The warp's rows of a tile as operand a: from shared memory each time or, KEPT, from registers,
// where keep put them once the tile was there.
template <bool KEPT> struct gd_own {
  uint32_t address; // of what this lane names
  gd_left at[KEPT ? STEPS : 1][ROW_TILES];

  GD_DEVICE explicit gd_own(uint32_t rows)
      : address(rows + threadIdx.x % 16 * STRIDE + threadIdx.x % 32 / 16 * 16) {}
  GD_DEVICE void load(gd_left (&left)[ROW_TILES], int step) const {
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++) {
      if (MMAS == 1) {
        load_matrices(left[i].at, address + i * 16 * STRIDE + step * 32);
        continue;
      }
      uint32_t x[4];
      load_matrices(x, address + i * 16 * STRIDE + step * 32);
      left_of(left[i], x);
    }
  }
  GD_DEVICE void keep() {
    if constexpr (KEPT) {
#pragma unroll
      for (int step = 0; step < STEPS; step++)
        load(at[step], step);
    }
  }
};

// f(i, j, e) for every sum of a warp's ROW_TILES x N tiles: element e of tile [i][j].
template <int N, typename F> GD_DEVICE void each_sum(F f) {
#pragma unroll
  for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
    for (int j = 0; j < N; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        f(i, j, e);
}

// c = a b' over the head: rows of a by rows of b, which is an address of shared memory.
template <bool KEPT>
GD_DEVICE void scores(float (&c)[ROW_TILES][TILES][4], const gd_own<KEPT> &a, uint32_t b) {
  int lane = threadIdx.x % 32;
  b += (lane % 8 + lane / 16 * 8) * STRIDE + lane / 8 % 2 * 16;
  each_sum<TILES>([&](int i, int j, int e) { c[i][j][e] = 0; });
#pragma unroll(MMAS == 3 ? 2 : STEPS) // fp32 needs its registers for the parts of operands
  for (int step = 0; step < STEPS; step++) {
    gd_left read[ROW_TILES];
    if constexpr (!KEPT)
      a.load(read, step);
#pragma unroll
    for (int j = 0; j < TILES; j += 2) { // 16 rows of b: b[0], b[1] of tile j, then of j + 1
      uint32_t x[4];
      load_matrices(x, b + j * 8 * STRIDE + step * 32);
#pragma unroll
      for (int i = 0; i < ROW_TILES; i++) {
        const gd_left &left = KEPT ? a.at[KEPT ? step : 0][i] : read[i];
        multiply(c[i][j], left, x[0], x[1]);
        multiply(c[i][j + 1], left, x[2], x[3]);
      }
    }
  }
}

// Which weights count: all of them here; gd_kept of attention_dropout.cuh has the other answer.
struct gd_all {
  GD_DEVICE uint32_t pair(uint32_t x, int, int, int) const { return x; }
  GD_DEVICE float one(float x, int, int, int) const { return x; }
};

// sums += w b: w the weights (or dscores) that this warp holds as accumulators, those not
// dropped, rounded to T0; b the rows of shared memory that belong to w's columns.
template <typename K>
GD_DEVICE void accumulate(float (&sums)[ROW_TILES][HEAD_TILES][4],
                          const float (&w)[ROW_TILES][TILES][4], uint32_t b, const K &kept) {
  int lane = threadIdx.x % 32;
  if constexpr (BYTES == 2) {
    b += lane % 16 * STRIDE + lane / 16 * 16;
#pragma unroll
    for (int step = 0; step < COLUMNS / 16; step++) {
      gd_left left[ROW_TILES];
#pragma unroll
      for (int i = 0; i < ROW_TILES; i++) // columns of two tiles are one operand's 16 columns
#pragma unroll
        for (int e = 0; e < 4; e++) {
          const float(&tile)[4] = w[i][2 * step + e / 2];
          uint32_t x = gd_unit<T0>::pack(tile[e % 2 * 2], tile[e % 2 * 2 + 1]);
          left[i].at[e] = kept.pair(x, i, e % 2, 2 * step + e / 2);
        }
#pragma unroll
      for (int j = 0; j < HEAD_TILES; j += 2) { // 16 columns of b
        uint32_t x[4];
        load_transposed(x, b + step * 16 * STRIDE + j * 16);
#pragma unroll
        for (int i = 0; i < ROW_TILES; i++) {
          multiply(sums[i][j], left[i], x[0], x[1]);
          multiply(sums[i][j + 1], left[i], x[2], x[3]);
        }
      }
    }
  } else {
    // The order of the 8 terms of an MMA is free: column `pair` of a stands for the weights'
    // column 2 pair, column pair + 4 for 2 pair + 1, as this lane holds them; b follows. Nor does
    // it matter which columns of the head a tile has: RUN tiles share 8 RUN columns such that a
    // lane's are contiguous. 16 bytes of lanes 8i..8i+7 meet all banks.
    b += lane % 4 * 2 * STRIDE + lane / 4 * RUN * 4;
#pragma unroll
    for (int step = 0; step < TILES; step++) {
      gd_left left[ROW_TILES];
#pragma unroll
      for (int i = 0; i < ROW_TILES; i++) {
        uint32_t x[4]; // as tile[0], [2], [1], [3]
#pragma unroll
        for (int e = 0; e < 4; e++)
          x[e / 2 + e % 2 * 2] = __float_as_uint(kept.one(w[i][step][e], i, step, e));
        left_of(left[i], x);
      }
#pragma unroll
      for (int j = 0; j < HEAD_TILES; j += RUN) {
        uint32_t b0[RUN], b1[RUN];
        load_words(b0, b + step * 8 * STRIDE + j * 32);
        load_words(b1, b + (step * 8 + 1) * STRIDE + j * 32);
#pragma unroll
        for (int k = 0; k < RUN; k++)
#pragma unroll
          for (int i = 0; i < ROW_TILES; i++)
            multiply(sums[i][j + k], left[i], b0[k], b1[k]);
      }
    }
  }
}

// Row and column, within the warp's tiles, of element e of tile [i][j].
GD_DEVICE int row_of(int i, int e) { return i * 16 + e / 2 * 8 + threadIdx.x % 32 / 4; }
GD_DEVICE int column_of(int j, int e) { return j * 8 + threadIdx.x % 4 * 2 + e % 2; }
// Scores that a row must not see, past T or past the row itself, become what has weight 0.
GD_DEVICE void hide(float (&w)[ROW_TILES][TILES][4], const gd_attention &p, int first, int column,
                    float hidden) {
  if (column + COLUMNS > p.steps || (p.causal && column + COLUMNS > first + 1))
    each_sum<TILES>([&](int i, int j, int e) {
      int key = column + column_of(j, e);
      if (key >= p.steps || (p.causal && key > first + row_of(i, e)))
        w[i][j][e] = hidden;
    });
}
// The column of the head that sums[i][j][e] are of: as column_of, but for accumulate of fp32.
GD_DEVICE int head_column(int j, int e) {
  return j / RUN * 8 * RUN + (threadIdx.x % 4 * 2 + e % 2) * RUN + j % RUN;
}

// --- tiles -----------------------------------------------------------------------------------------

template <typename T> GD_DEVICE T rounded(T x) { return x; }
GD_DEVICE float rounded(float x) { // TF32; twice changes nothing
  return MMAS == 1 ? __uint_as_float(tf32(__float_as_uint(x)) & 0xffffe000u) : x;
}

// Rows first.. of a head's matrix[T][D], of less than 2^31 elements, to shared memory, zeros past T
// and past D.
template <int COUNT>
GD_DEVICE void load_rows(int to, const T0 *from, int first, int steps, int size) {
  if (ALIGNED) {
    constexpr int PIECES = HEAD * BYTES / 16, N = 16 / BYTES;
    uint32_t base = shared_address(shared) + to;
    unsigned thread = threadIdx.x;
    asm volatile("" : "+r"(thread)); // addresses are worked out each time, not kept in registers
    if constexpr (THREADS % PIECES == 0) { // a thread stays in its column
      constexpr int APART = THREADS / PIECES;
      int row = thread / PIECES, column = thread % PIECES * N;
      int left = column < size ? steps - first - row : 0; // rows of this thread that exist
      const T0 *source = from + ((int64_t)(first + row) * size + column);
      base += row * STRIDE + column * BYTES;
#pragma unroll
      for (int at = 0; at < COUNT; at += APART) {
        if (COUNT % APART == 0 || at + row < COUNT)
          gd_copy<16>(base + at * STRIDE, source, at < left);
        source += APART * size;
      }
    } else {
#pragma unroll
      for (int start = 0; start < COUNT * PIECES; start += THREADS) {
        int at = start + thread, row = at / PIECES, column = at % PIECES * N;
        bool valid = first + row < steps && column < size;
        const T0 *source = from + (valid ? (first + row) * size + column : 0);
        if (COUNT * PIECES % THREADS == 0 || at < COUNT * PIECES)
          gd_copy<16>(base + row * STRIDE + column * BYTES, source, valid);
      }
    }
  } else {
    for (int at = threadIdx.x; at < COUNT * HEAD; at += THREADS) {
      int row = at / HEAD, column = at % HEAD;
      T0 x = gd_to<T0>(0.0f);
      if (first + row < steps && column < size)
        x = from[(first + row) * size + column];
      *(T0 *)(shared + to + row * STRIDE + column * BYTES) = rounded(x);
    }
  }
}

// TF32: rounds what this thread copied by load_rows and waited for. (Where rows are not aligned,
// load_rows did.)
template <int COUNT> GD_DEVICE void round_rows(int to) {
  if constexpr (BYTES == 4 && MMAS == 1 && ALIGNED) {
    constexpr int PIECES = HEAD * BYTES / 16;
    for (int at = threadIdx.x; at < COUNT * PIECES; at += THREADS) {
      float *x = (float *)(shared + to + at / PIECES * STRIDE + at % PIECES * 16), y[4];
      gd_load(x, y);
#pragma unroll
      for (int i = 0; i < 4; i++)
        y[i] = rounded(y[i]);
      gd_store(x, y);
    }
  }
}

// fp32 values first.. of a head, zeros past T; by the threads from FROM on, where there are as many,
// so that it is not the first warp that has all such work while the others wait.
template <int COUNT, int FROM = 0>
GD_DEVICE void load_values(int to, const float *from, int first, int steps) {
  uint32_t base = shared_address(shared) + to;
  constexpr bool ONCE = FROM + COUNT <= THREADS;
  int at = ONCE ? (int)threadIdx.x - FROM : (int)threadIdx.x;
  if (ONCE && (at < 0 || at >= COUNT))
    return;
#pragma unroll
  for (int n = 0; n < (ONCE ? 1 : (COUNT + THREADS - 1) / THREADS); n++, at += THREADS) {
    bool valid = first + at < steps;
    if (ONCE || at < COUNT)
      gd_copy<4>(base + at * 4, from + (valid ? first + at : 0), valid);
  }
}

// The rows of this warp, times a factor a row, to a head's matrix[T][D].
GD_DEVICE void store_rows(T0 *to, const float (&sums)[ROW_TILES][HEAD_TILES][4],
                          const float (&factor)[ROW_TILES][2], int first, int steps, int size) {
#pragma unroll
  for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int row = first + row_of(i, 2 * half);
      if (row >= steps)
        continue;
      T0 *line = to + row * size;
      constexpr int N = RUN == 1 ? 2 : RUN; // contiguous; D is a multiple where ALIGNED
#pragma unroll
      for (int at = 0; at < HEAD_TILES * 2; at += N) {
        int j = RUN == 1 ? at / 2 : at / (2 * RUN) * RUN, e = RUN == 1 ? 0 : at / RUN % 2;
        int column = head_column(j, e);
        float x[N];
#pragma unroll
        for (int n = 0; n < N; n++)
          x[n] = (RUN == 1 ? sums[i][j][2 * half + n] : sums[i][j + n % RUN][2 * half + e]) *
                 factor[i][half];
        if (ALIGNED) {
          if (column < size)
            gd_store(line + column, x);
        } else {
#pragma unroll
          for (int n = 0; n < N; n++)
            if (column + n < size)
              line[column + n] = gd_to<T0>(x[n]);
        }
      }
    }
}

// Which head and rows this CTA has. Heads go in chunks whose keys and values (or
// queries) stay in L2 while all their blocks run; within a chunk, the longest rows of all heads
// come first, so that the last to run are short.
struct gd_place {
  int64_t head;
  int row; // the first
};
GD_DEVICE gd_place place_of(const gd_attention &p, bool last_is_longest) {
  int blocks = (p.steps + ROWS - 1) / ROWS;
  int64_t each = (int64_t)p.chunk * blocks, chunk = blockIdx.x / each, first = chunk * p.chunk;
  int here = (int)(p.heads - first < p.chunk ? p.heads - first : p.chunk);
  int at = (int)(blockIdx.x - chunk * each), block = at / here;
  return {first + at % here, (last_is_longest ? blocks - 1 - block : block) * ROWS};
}

#endif
