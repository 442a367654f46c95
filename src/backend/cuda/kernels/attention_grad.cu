#include "attention_dropout.cuh"

// The whole gradient of one head in one kernel: dq, dk and dv as attention_grad_queries.cu and
// attention_grad_keys.cu compute them, with five GEMMs instead of their seven, and the dropout mask
// drawn once. For sm_90a, 16-bit heads of 49 to 64 that share no keys, rows aligned to 16 bytes, and
// where a head's dq fits into shared memory. MMAs are wgmma, by warpgroups of four warps, which read
// shared memory once for 64 rows where mma.sync reads it for 16: there that was the bound.
//
// A CTA owns a head. Each of its two warpgroups owns 64 of ROWS = 128 keys at a time, visits COLUMNS
// = 64 queries at a time, transposed as in attention_grad_keys, and owns 32 columns of dq. dk and dv
// accumulate in registers. The dscores of a visit also go to shared memory, where they are the left
// operand of dq in the next visit, behind its barrier. dq accumulates in shared memory as fp32, each
// lane's numbers contiguous, over all keys, and the last visit writes it out. So every sum has one
// order.
//
// All matrices in shared memory have rows of 128 bytes with the hardware's 128-byte swizzle (the
// 16-byte pieces of a row are permuted by XOR with its lowest three bits), so one copy serves as
// operand and as its transpose.
//
// At T 512, in cycles of a multiprocessor: MMAs 41,000; instructions issued, with dropout, about 900
// a warp and visit, 58,000: the bound. MMAs overlap with random numbers, and with the other
// warpgroup's arithmetic.
static_assert(BYTES == 2 && HEAD == 64 && WARPS == 8 && ROW_TILES == 1 && COLUMNS == 64 && ALIGNED,
              "see above");
constexpr int LINE = 128, TILE_BYTES = COLUMNS * LINE;
constexpr int AT_K = 0, AT_V = ROWS * LINE, AT_STAGE = 2 * ROWS * LINE;
constexpr int DOUT = TILE_BYTES, STAGE = 2 * TILE_BYTES;
constexpr int AT_DSCORES = AT_STAGE + 2 * STAGE, DSCORES = ROWS * LINE;
constexpr int AT_VALUES = AT_DSCORES + 2 * DSCORES, VALUES = 2 * COLUMNS * 4; // lse and delta, twice
constexpr int AT_DQ = AT_VALUES + 2 * VALUES;

// --- instructions of warpgroups ------------------------------------------------------------------

GD_DEVICE void group_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
GD_DEVICE void group_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int N> GD_DEVICE void group_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
// Makes what this thread wrote to shared memory visible to MMAs of others behind the next barrier.
GD_DEVICE void group_publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

#define GD_SUMS_16(x)                                                                              \
  "+f"(x[0][0]), "+f"(x[0][1]), "+f"(x[0][2]), "+f"(x[0][3]), "+f"(x[1][0]), "+f"(x[1][1]),        \
      "+f"(x[1][2]), "+f"(x[1][3]), "+f"(x[2][0]), "+f"(x[2][1]), "+f"(x[2][2]), "+f"(x[2][3]),    \
      "+f"(x[3][0]), "+f"(x[3][1]), "+f"(x[3][2]), "+f"(x[3][3])
#define GD_SUMS_32(x)                                                                              \
  GD_SUMS_16(x), "+f"(x[4][0]), "+f"(x[4][1]), "+f"(x[4][2]), "+f"(x[4][3]), "+f"(x[5][0]),        \
      "+f"(x[5][1]), "+f"(x[5][2]), "+f"(x[5][3]), "+f"(x[6][0]), "+f"(x[6][1]), "+f"(x[6][2]),    \
      "+f"(x[6][3]), "+f"(x[7][0]), "+f"(x[7][1]), "+f"(x[7][2]), "+f"(x[7][3])
#define GD_NAMES_16 "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15}"
#define GD_NAMES_32                                                                                \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "    \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}"
// both:    c = a b', c += a b': 64 rows of a, 64 of b, both with 16 columns, in shared memory.
// kept:    c += a b: a in registers, laid out as for mma.sync; b 16 rows of 64 in shared memory.
// transposed:  c = a' b, c += a' b: a 16 rows of 64, b 16 rows of which 32 columns count.
#define GD_GROUP_MMAS(kind)                                                                    \
  static GD_DEVICE void both(float (&c)[8][4], uint64_t a, uint64_t b, int adds) {                 \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %34, 0; "                                         \
                 "wgmma.mma_async.sync.aligned.m64n64k16.f32." kind " " GD_NAMES_32                \
                 ", %32, %33, p, 1, 1, 0, 0; }"                                                    \
                 : GD_SUMS_32(c)                                                                   \
                 : "l"(a), "l"(b), "r"(adds));                                                     \
  }                                                                                                \
  static GD_DEVICE void kept(float (&c)[8][4], const uint32_t (&a)[4], uint64_t b) {               \
    asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." kind " " GD_NAMES_32                \
                 ", {%32, %33, %34, %35}, %36, 1, 1, 1, 1;"                                        \
                 : GD_SUMS_32(c)                                                                   \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                            \
  }                                                                                                \
  static GD_DEVICE void transposed(float (&c)[4][4], uint64_t a, uint64_t b, int adds) {               \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, %18, 0; "                                         \
                 "wgmma.mma_async.sync.aligned.m64n32k16.f32." kind " " GD_NAMES_16                \
                 ", %16, %17, p, 1, 1, 1, 1; }"                                                    \
                 : GD_SUMS_16(c)                                                                   \
                 : "l"(a), "l"(b), "r"(adds));                                                     \
  }
template <typename T> struct gd_group_unit;
template <> struct gd_group_unit<gd_bf16> { GD_GROUP_MMAS("bf16.bf16") };
template <> struct gd_group_unit<gd_f16> { GD_GROUP_MMAS("f16.f16") };

// --- end of instructions -------------------------------------------------------------------------

// The descriptor of a matrix: its address, a multiple of 1,024 plus the bytes stepped over; the
// distance from 8 rows to the next 8, which is 1,024 bytes where a row is 128; the swizzle. In two
// steps: what differs between matrices, then the offset in bytes.
constexpr uint32_t APART = 1024 >> 4;
GD_DEVICE uint32_t name_of(uint32_t address) { return (address & 0x3ffff) >> 4 | APART << 16; }
GD_DEVICE uint64_t named(uint32_t name, int bytes) {
  return (uint64_t)(1u << 30 | APART) << 32 | (name + (uint32_t)bytes / 16);
}

template <int COUNT>
GD_DEVICE void load_lines(uint32_t to, const T0 *from, int first, int steps, int size) {
  unsigned thread = threadIdx.x;
  asm volatile("" : "+r"(thread)); // as load_rows
  int row = thread / 8, piece = thread % 8, column = piece * 8;
  int left = column < size ? steps - first - row : 0, at = (first + row) * size + column;
  to += row * LINE + (piece ^ row % 8) * 16;
#pragma unroll
  for (int n = 0; n < COUNT; n += THREADS / 8)
    gd_copy<16>(to + n * LINE, from + (at + n * size), n < left);
}

struct gd_grad {
  using unit = gd_group_unit<T0>;
  const T0 *q, *dout; // of the head, as all else
  const float *lse, *delta;
  T0 *dq;
  const gd_attention &p;
  gd_dropout dropout;
  uint32_t base;
  int skipped;               // bytes of shared memory, to a multiple of 1,024
  int warp;                  // by a shuffle: so the compiler knows that all lanes agree
  int row;                   // of the block's keys, the first
  int slot;                  // of this visit: which of two stages, and of two places for dscores
  int next_row, next_column; // loaded next: queries, to be visited with keys from next_row on
  float sums_k[1][8][4], sums_v[1][8][4];

  GD_DEVICE gd_grad(const gd_attention &p, const int *seed)
      : p(p), dropout(dropout_of(p, seed, blockIdx.x)),
        warp(__shfl_sync(0xffffffff, (int)threadIdx.x / 32, 0, 32)), row(0), slot(0), next_row(0),
        next_column(0) {
    uint32_t start = shared_address(shared);
    base = (start + 1023) & ~1023u;
    skipped = (int)(base - start);
  }
  GD_DEVICE int group() const { return warp / 4; }
  GD_DEVICE int start_of(int first) const { return p.causal ? first / COLUMNS * COLUMNS : 0; }
  GD_DEVICE unsigned char *at(int offset) const { return shared + skipped + offset; }

  GD_DEVICE void load_keys(const T0 *k, const T0 *v) const {
    load_lines<ROWS>(base + AT_K, k, row, p.steps, p.size);
    load_lines<ROWS>(base + AT_V, v, row, p.steps, p.size);
  }
  GD_DEVICE void load(int to) {
    if (next_row < p.steps) {
      uint32_t stage = base + AT_STAGE + to * STAGE;
      load_lines<COLUMNS>(stage, q, next_column, p.steps, p.size);
      load_lines<COLUMNS>(stage + DOUT, dout, next_column, p.steps, p.size);
      load_values<COLUMNS>(skipped + AT_VALUES + to * VALUES, lse, next_column, p.steps);
      load_values<COLUMNS, 64>(skipped + AT_VALUES + to * VALUES + COLUMNS * 4, delta, next_column,
                               p.steps);
    }
    gd_copies_commit();
    next_column += COLUMNS;
    if (next_column >= p.steps) {
      next_row += ROWS;
      next_column = start_of(next_row);
    }
  }

  // dq of what was visited before.
  GD_DEVICE void multiply_queries(float (&sums)[4][4]) const {
    uint32_t from = name_of(base + AT_DSCORES + (1 - slot) * DSCORES);
    uint32_t keys = name_of(base + AT_K + group() * 64);
#pragma unroll
    for (int step = 0; step < ROWS / 16; step++)
      unit::transposed(sums, named(from, step * 16 * LINE), named(keys, step * 16 * LINE), step > 0);
    group_commit();
  }
  GD_DEVICE void put_queries(float (&sums)[4][4], int column) const {
    int lane = threadIdx.x % 32;
    int end = p.causal && column + COLUMNS < p.steps ? column + COLUMNS : p.steps;
    bool last = row + ROWS >= end;
    int mine = AT_DQ + ((column / COLUMNS * WARPS + warp) * 4 * 32 + lane) * 16;
    if (row > 0)
#pragma unroll
      for (int j = 0; j < 4; j++) {
        float before[4];
        gd_load((const float *)at(mine + j * 512), before);
#pragma unroll
        for (int e = 0; e < 4; e++)
          sums[j][e] += before[e];
      }
#pragma unroll
    for (int j = 0; j < 4 && !last; j++)
      gd_store((float *)at(mine + j * 512), sums[j]);
    float factor = DROPOUT ? p.scale * p.kept_scale : p.scale;
    int query = column + warp % 4 * 16 + lane / 4, first = group() * 32 + lane % 4 * 2;
    if (last)
#pragma unroll
      for (int n = 0; n < 8; n++) {
        const float(&x)[4] = sums[n / 2];
        float pair[2] = {x[n % 2 * 2] * factor, x[n % 2 * 2 + 1] * factor};
        int to = query + n % 2 * 8, d = first + n / 2 * 8;
        if (to < p.steps && d < p.size)
          gd_store(dq + (to * p.size + d), pair);
      }
  }
  GD_DEVICE void put_dscores(int half, int j, uint32_t x) const {
    int key = warp * 16 + row_of(0, 2 * half);
    int to = AT_DSCORES + slot * DSCORES + key * LINE + (j ^ key % 8) * 16 + threadIdx.x % 4 * 4;
    *(uint32_t *)at(to) = x;
  }

  // PENDING: the dscores of the visit before still wait for their MMA.
  template <bool PENDING> GD_DEVICE void take(int column) {
    int first = row + warp * 16, group_first = row + group() * 64;
    float queries[4][4];
    if (group_first >= p.steps || (p.causal && column + COLUMNS <= group_first)) { // nothing to see
#pragma unroll
      for (int n = 0; n < 16; n++)
        put_dscores(n % 2, n / 2, 0);
      if (PENDING) {
        group_fence();
        multiply_queries(queries);
        group_wait<0>();
        put_queries(queries, column - COLUMNS);
      }
      return;
    }
    uint32_t stage = name_of(base + AT_STAGE + slot * STAGE);
    uint32_t own = name_of(base + group() * 64 * LINE);
    float w[1][8][4], dscores[1][8][4];
    group_fence();
#pragma unroll
    for (int step = 0; step < 4; step++)
      unit::both(w[0], named(own, AT_K + step * 32), named(stage, step * 32), step > 0);
    group_commit();
#pragma unroll
    for (int step = 0; step < 4; step++)
      unit::both(dscores[0], named(own, AT_V + step * 32), named(stage, DOUT + step * 32),
                 step > 0);
    group_commit();
    if (PENDING)
      multiply_queries(queries);
    gd_kept kept;
    if (DROPOUT)
      draw<true>(kept, dropout, dropout.start + (uint64_t)((int64_t)column * p.steps + first),
                 p.steps);
    group_wait<PENDING ? 2 : 1>();
    float hidden = p.exponent < 0 ? GD_INFINITY : -GD_INFINITY;
    if (first + WARP_ROWS > p.steps || (p.causal && column < first + WARP_ROWS - 1))
      each_sum<TILES>([&](int i, int j, int e) {
        int key = first + row_of(i, e);
        if (key >= p.steps || (p.causal && column + column_of(j, e) < key))
          w[i][j][e] = hidden;
      });
    // Past T, queries, dout, lse and delta are zeros: those weights are finite and meet zeros.
    const float *values = (const float *)at(AT_VALUES + slot * VALUES) + column_of(0, 0);
#pragma unroll
    for (int j = 0; j < 8; j++) {
      float reference[2] = {values[j * 8] * 1.4426950408889634f,
                            values[j * 8 + 1] * 1.4426950408889634f};
#pragma unroll
      for (int e = 0; e < 4; e++)
        w[0][j][e] = gd_exp2(fmaf(w[0][j][e], p.exponent, -reference[e % 2]));
    }
    group_wait<PENDING ? 1 : 0>();
    // The dscores, but for kept_scale, are kept p dout . v - p (delta / kept_scale).
    float gain = DROPOUT ? 1 / p.kept_scale : 1;
    uint32_t left[4][4], left_dscores[4][4]; // operands, as accumulate has them
#pragma unroll
    for (int j = 0; j < 8; j++) {
      float mean[2] = {values[COLUMNS + j * 8] * gain, values[COLUMNS + j * 8 + 1] * gain};
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float x[2], y[2];
#pragma unroll
        for (int e = 0; e < 2; e++) {
          float whole = w[0][j][2 * half + e];
          x[e] = !DROPOUT || kept.has(0, j, 2 * half + e) ? whole : 0;
          y[e] = fmaf(x[e], dscores[0][j][2 * half + e], -(whole * mean[e]));
        }
        left[j / 2][j % 2 * 2 + half] = gd_unit<T0>::pack(x[0], x[1]);
        left_dscores[j / 2][j % 2 * 2 + half] = gd_unit<T0>::pack(y[0], y[1]);
        put_dscores(half, j, left_dscores[j / 2][j % 2 * 2 + half]);
      }
    }
    group_fence();
#pragma unroll
    for (int step = 0; step < 4; step++)
      unit::kept(sums_v[0], left[step], named(stage, DOUT + step * 16 * LINE));
#pragma unroll
    for (int step = 0; step < 4; step++)
      unit::kept(sums_k[0], left_dscores[step], named(stage, step * 16 * LINE));
    group_commit();
    if (PENDING) {
      group_wait<1>();
      put_queries(queries, column - COLUMNS);
    }
    group_wait<0>();
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 1)
    attention_grad(const T0 *dout, const T0 *q, const T0 *k, const T0 *v, const float *lse,
                   const float *delta, const int *seed, T0 *dq, T0 *dk, T0 *dv, gd_attention p) {
  int64_t head = blockIdx.x, matrix = (int64_t)p.steps * p.size;
  k += head * matrix;
  v += head * matrix;
  gd_grad grad(p, seed);
  grad.q = q + head * matrix;
  grad.dout = dout + head * matrix;
  grad.dq = dq + head * matrix;
  grad.lse = lse + head * p.steps;
  grad.delta = delta + head * p.steps;
  auto arrive = [&] { // what all threads copied and wrote is there
    gd_copies_wait<0>();
    group_publish();
    __syncthreads();
  };

  grad.load(0);
  for (; grad.row < p.steps; grad.row += ROWS) {
    each_sum<8>([&](int i, int j, int e) { grad.sums_k[i][j][e] = grad.sums_v[i][j][e] = 0; });
    grad.load_keys(k, v);
    gd_copies_commit();
    int column = grad.start_of(grad.row);
    arrive();
    grad.load(1 - grad.slot);
    grad.take<false>(column);
    grad.slot = 1 - grad.slot;
    for (column += COLUMNS; column < p.steps; column += COLUMNS) {
      arrive(); // this stage and the former dscores; and nobody needs the others
      grad.load(1 - grad.slot);
      grad.take<true>(column);
      grad.slot = 1 - grad.slot;
    }
    arrive(); // the last dscores
    float queries[4][4];
    group_fence();
    grad.multiply_queries(queries);
    group_wait<0>();
    grad.put_queries(queries, column - COLUMNS);
    __syncthreads(); // nobody needs the keys

    int first = grad.row + grad.warp * 16;
    float factor[1][2] = {{DROPOUT ? p.kept_scale : 1, DROPOUT ? p.kept_scale : 1}};
    store_rows(dv + head * matrix, grad.sums_v, factor, first, p.steps, p.size);
    factor[0][0] = factor[0][1] = p.scale * (DROPOUT ? p.kept_scale : 1);
    store_rows(dk + head * matrix, grad.sums_k, factor, first, p.steps, p.size);
  }
}
