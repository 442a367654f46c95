#include "attention_dropout.cuh"

// All of the gradient of one head at once: dq, dk and dv as attention_grad_queries.cu and
// attention_grad_keys.cu have them, with five products in place of their seven and one drawing of
// what is kept. Only where no heads share keys, and a head's dq fits into shared memory.
//
// A block owns a head. For every ROWS keys it visits all queries, COLUMNS at a time, transposed as
// attention_grad_keys does: dk and dv are sums in registers, from operands that never leave them.
// The slopes of a visit also go to shared memory, where in the next visit, behind its barrier, they
// are the left operand of dq: each warp owns 16 columns of the head, of all queries or of every
// second 16, whose keys it keeps in registers as well. What dq has so far lies in shared memory as
// fp32, each lane's own numbers beside each other, from the first keys until the last, which write
// it out. So every sum has one order.
//
// Of a head of 64 and T 512, in cycles of a multiprocessor: 40,960 products at about 1.6 make
// 66,000; reads of shared memory, one of 512 bytes for two products, 82,000, and dq, slopes and
// copies 16,000; instructions issued, with dropout about 550 a warp and visit, 70,000. So shared
// memory is the floor: 98,000 cycles. (With two row tiles a warp there are fewer reads for the
// first four products, but no registers to keep operands in, which costs as many.)
constexpr int QUERY_TILES = COLUMNS / 16;
constexpr int PARTS_OF_HEAD = HEAD / 16;           // of dq: a warp has one
constexpr int WARP_SHARES = WARPS / PARTS_OF_HEAD; // warps that have the same one
constexpr int SHARE = (QUERY_TILES + WARP_SHARES - 1) / WARP_SHARES; // query tiles of a warp
constexpr int CHAINS = SHARE == 1 ? 2 : 1; // of sums: a product that needs the one before waits
constexpr int KEY_STEPS = ROWS / 16;
constexpr int PITCH = COLUMNS * 2 + 16; // of a row of slopes, which are transposed: a key's
static_assert(BYTES == 2 && STAGES == 2 && KEEP == 2 && WARPS >= PARTS_OF_HEAD, "see above");

constexpr int AT_V = ROWS * STRIDE, AT_STAGE = 2 * AT_V;
constexpr int DOUT = COLUMNS * STRIDE, LSE = 2 * DOUT, DELTA_AT = LSE + COLUMNS * 4;
constexpr int STAGE = DELTA_AT + COLUMNS * 4;
constexpr int AT_SLOPES = AT_STAGE + 2 * STAGE, SLOPES = ROWS * PITCH;
constexpr int AT_ZEROS = AT_SLOPES + 2 * SLOPES, AT_DQ = AT_ZEROS + 16;

// As load_rows of two matrices, the second `apart` bytes behind the first, with one reckoning of
// addresses.
template <int COUNT>
GD_DEVICE void load_pairs(int to, int apart, const T0 *one, const T0 *two, int first, int steps,
                          int size) {
  constexpr int PIECES = HEAD * BYTES / 16, N = 16 / BYTES, EACH = THREADS / PIECES;
  if constexpr (ALIGNED && THREADS % PIECES == 0 && COUNT % EACH == 0) {
    unsigned thread = threadIdx.x;
    asm volatile("" : "+r"(thread)); // as there
    int row = thread / PIECES, column = thread % PIECES * N;
    int left = column < size ? steps - first - row : 0, at = (first + row) * size + column;
    uint32_t base = shared_address(shared) + to + row * STRIDE + column * BYTES;
#pragma unroll
    for (int n = 0; n < COUNT; n += EACH) {
      copy16(base + n * STRIDE, one + (at + n * size), n < left);
      copy16(base + apart + n * STRIDE, two + (at + n * size), n < left);
    }
  } else {
    load_rows<COUNT>(to, one, first, steps, size);
    load_rows<COUNT>(to + apart, two, first, steps, size);
  }
}

struct gd_grad {
  const T0 *q, *dout; // of the head, as all else
  const float *lse, *delta;
  T0 *dq;
  const gd_attention &p;
  gd_dropout dropout;
  uint32_t base;
  int warp;                 // by a shuffle: so the compiler knows that all lanes agree
  int row;                  // of the block's keys, the first
  int stage, other;         // of this visit, of the next
  int slopes_at, former_at; // of this visit, of the one before
  int next_row, next_column; // loaded next: queries, to be visited with keys from next_row on
  gd_own<true> own, own_v;
  uint32_t keys[KEY_STEPS][4]; // this warp's columns of all the block's, as right operands
  float sums_k[ROW_TILES][HEAD_TILES][4], sums_v[ROW_TILES][HEAD_TILES][4];

  GD_DEVICE int warp_row() const { return warp * WARP_ROWS; }
  GD_DEVICE int part() const { return warp % PARTS_OF_HEAD; }
  GD_DEVICE int start_of(int first) const { return p.causal ? first / COLUMNS * COLUMNS : 0; }

  GD_DEVICE gd_grad(const gd_attention &p, const int *seed)
      : p(p), dropout(dropout_of(p, seed, blockIdx.x)), base(shared_address(shared)),
        warp(__shfl_sync(0xffffffff, (int)threadIdx.x / 32, 0, 32)), row(0),
        stage(AT_STAGE), other(AT_STAGE + STAGE), slopes_at(AT_SLOPES),
        former_at(AT_SLOPES + SLOPES), next_row(0), next_column(0),
        own(base + warp_row() * STRIDE), own_v(base + AT_V + warp_row() * STRIDE) {}

  GD_DEVICE void load(int to) {
    if (next_row < p.steps) {
      load_pairs<COLUMNS>(to, DOUT, q, dout, next_column, p.steps, p.size);
      load_values<COLUMNS>(to + LSE, lse, next_column, p.steps);
      load_values<COLUMNS, 32>(to + DELTA_AT, delta, next_column, p.steps);
    }
    copies_commit();
    next_column += COLUMNS;
    if (next_column >= p.steps) {
      next_row += ROWS;
      next_column = start_of(next_row);
    }
  }

  // The keys and values, once they are there, to registers.
  GD_DEVICE void keep() {
    int lane = threadIdx.x % 32;
    own.keep();
    own_v.keep();
#pragma unroll
    for (int step = 0; step < KEY_STEPS; step++)
      load_transposed(keys[step], base + (step * 16 + lane % 16) * STRIDE + lane / 16 * 16 +
                                      part() * 32);
    each_sum<HEAD_TILES>([&](int i, int j, int e) { sums_k[i][j][e] = sums_v[i][j][e] = 0; });
  }

  // Two neighbours of dq.
  GD_DEVICE void put(int query, int column, float first, float second) const {
    if (query >= p.steps)
      return;
    float factor = DROPOUT ? p.scale * p.kept_scale : p.scale;
    float x[2] = {first * factor, second * factor};
    T0 *to = dq + (query * p.size + column);
    if (ALIGNED) {
      if (column < p.size)
        gd_store(to, x);
    } else {
      if (column < p.size)
        to[0] = gd_to<T0>(x[0]);
      if (column + 1 < p.size)
        to[1] = gd_to<T0>(x[1]);
    }
  }

  // dq of what was visited before, column.., in two steps: the products, then what comes of them.
  GD_DEVICE bool has(int tile) const {
    return (WARP_SHARES * PARTS_OF_HEAD == WARPS && SHARE * WARP_SHARES == QUERY_TILES) ||
           (warp < WARP_SHARES * PARTS_OF_HEAD && tile < QUERY_TILES);
  }
  GD_DEVICE int so_far(int column, int tile, int j) const {
    int at = ((column / 16 + tile) * PARTS_OF_HEAD + part()) * 2 + j;
    return AT_DQ + (at * 32 + threadIdx.x % 32) * 16;
  }
  GD_DEVICE void multiply_queries(float (&sums)[SHARE][CHAINS][2][4], int column) const {
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int n = 0; n < SHARE; n++) {
      int tile = warp / PARTS_OF_HEAD + n * WARP_SHARES;
      if (!has(tile))
        continue;
      uint32_t from = base + former_at + tile * 32 + (lane % 8 + lane / 16 * 8) * PITCH +
                      lane / 8 % 2 * 16;
#pragma unroll
      for (int j = 0; j < 2; j++) {
#pragma unroll
        for (int e = 0; e < 4; e++)
          sums[n][CHAINS - 1][j][e] = 0;
        int at = row > 0 ? so_far(column, tile, j) : AT_ZEROS;
        gd_load((const float *)(shared + at), sums[n][0][j]);
      }
#pragma unroll
      for (int step = 0; step < KEY_STEPS; step++) {
        gd_left left;
        load_transposed(left.at, from + step * 16 * PITCH);
        multiply(sums[n][step % CHAINS][0], left, keys[step][0], keys[step][1]);
        multiply(sums[n][step % CHAINS][1], left, keys[step][2], keys[step][3]);
      }
    }
  }
  GD_DEVICE void join_chains(float (&sums)[SHARE][CHAINS][2][4]) const {
#pragma unroll
    for (int n = 0; n < SHARE; n++)
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int e = 0; e < 4 && CHAINS > 1; e++)
          sums[n][0][j][e] += sums[n][CHAINS - 1][j][e];
  }
  GD_DEVICE void put_queries(float (&sums)[SHARE][CHAINS][2][4], int column) const {
    int lane = threadIdx.x % 32;
    int end = p.causal && column + COLUMNS < p.steps ? column + COLUMNS : p.steps;
    bool last = row + ROWS >= end;
#pragma unroll
    for (int n = 0; n < SHARE; n++) {
      int tile = warp / PARTS_OF_HEAD + n * WARP_SHARES;
      if (!has(tile))
        continue;
#pragma unroll
      for (int j = 0; j < 2 && !last; j++)
        gd_store((float *)(shared + so_far(column, tile, j)), sums[n][0][j]);
      if (last)
#pragma unroll
        for (int at = 0; at < 4; at++) {
          const float(&x)[4] = sums[n][0][at / 2];
          put(column + tile * 16 + at % 2 * 8 + lane / 4, part() * 16 + at / 2 * 8 + lane % 4 * 2,
              x[at % 2 * 2], x[at % 2 * 2 + 1]);
        }
    }
  }
  GD_DEVICE void add_queries(int column) const {
    float sums[SHARE][CHAINS][2][4];
    multiply_queries(sums, column);
    join_chains(sums);
    put_queries(sums, column);
  }

  // Two neighbours in a row: 2 half and 2 half + 1 of a tile.
  GD_DEVICE void put_slopes(int i, int half, int j, uint32_t x) const {
    int at = (warp_row() + row_of(i, 2 * half)) * PITCH + column_of(j, 0) * 2;
    *(uint32_t *)(shared + slopes_at + at) = x;
  }

  // PENDING: the slopes of the visit before wait for their product.
  template <bool PENDING> GD_DEVICE void take(int column) {
    int first = row + warp_row();
    if (first >= p.steps || (p.causal && column + COLUMNS <= first)) { // nothing to see
      each_sum<TILES>([&](int i, int j, int e) {
        if (e % 2 == 0)
          put_slopes(i, e / 2, j, 0);
      });
      if (PENDING)
        add_queries(column - COLUMNS);
      return;
    }
    // Random numbers amid the first three products.
    gd_kept kept;
    if (DROPOUT)
      draw<true>(kept, dropout, dropout.start + (uint64_t)((int64_t)column * p.steps + first),
                      p.steps);
    float w[ROW_TILES][TILES][4], slopes[ROW_TILES][TILES][4], queries[SHARE][CHAINS][2][4];
    scores(w, own, base + stage);
    scores(slopes, own_v, base + stage + DOUT);
    if (PENDING)
      multiply_queries(queries, column - COLUMNS);
    if (PENDING && SHARE > 1)
      put_queries(queries, column - COLUMNS);
    float hidden = p.exponent < 0 ? GD_INFINITY : -GD_INFINITY;
    if (first + WARP_ROWS > p.steps || (p.causal && column < first + WARP_ROWS - 1))
      each_sum<TILES>([&](int i, int j, int e) {
        int key = first + row_of(i, e);
        if (key >= p.steps || (p.causal && column + column_of(j, e) < key))
          w[i][j][e] = hidden;
      });
    // Past T, queries, dout, lse and delta are zeros: those weights are finite and meet zeros.
#pragma unroll
    for (int j = 0; j < TILES; j++) {
      const float *values = (const float *)(shared + stage + LSE) + column_of(j, 0);
      float reference[2] = {values[0] * 1.4426950408889634f, values[1] * 1.4426950408889634f};
#pragma unroll
      for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          w[i][j][e] = gd_exp2(fmaf(w[i][j][e], p.exponent, -reference[e % 2]));
    }
    // The slopes, but for kept_scale, are kept p dout . v - p (delta / kept_scale).
    float gain = DROPOUT ? 1 / p.kept_scale : 1;
#pragma unroll
    for (int j = 0; j < TILES; j++) {
      const float *values = (const float *)(shared + stage + DELTA_AT) + column_of(j, 0);
      float mean[2] = {values[0] * gain, values[1] * gain};
#pragma unroll
      for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          float whole = w[i][j][e];
          if (DROPOUT)
            w[i][j][e] = kept.has(i, j, e) ? whole : 0;
          slopes[i][j][e] = fmaf(w[i][j][e], slopes[i][j][e], -(whole * mean[e % 2]));
        }
    }
    accumulate(sums_v, w, base + stage + DOUT, gd_all());
    if (PENDING)
      join_chains(queries);
#pragma unroll
    for (int j = 0; j < TILES; j++)
#pragma unroll
      for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
        for (int half = 0; half < 2; half++)
          put_slopes(i, half, j,
                     gd_unit<T0>::pack(slopes[i][j][2 * half], slopes[i][j][2 * half + 1]));
    accumulate(sums_k, slopes, base + stage, gd_all());
    if (PENDING && SHARE == 1) // they had time; more of them would take too many registers
      put_queries(queries, column - COLUMNS);
  }

  GD_DEVICE void turn() {
    int used = stage;
    stage = other;
    other = used;
    used = slopes_at;
    slopes_at = former_at;
    former_at = used;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
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

  load_rows<ROWS>(0, k, 0, p.steps, p.size);
  load_rows<ROWS>(AT_V, v, 0, p.steps, p.size);
  grad.load(grad.stage);
  if (threadIdx.x < 4)
    *((float *)(shared + AT_ZEROS) + threadIdx.x) = 0;
  for (; grad.row < p.steps; grad.row += ROWS) {
    copies_wait<0>();
    __syncthreads(); // the keys and values are there
    grad.keep();
    int column = grad.start_of(grad.row), next = grad.row + ROWS;
    copies_wait<0>();
    __syncthreads(); // nobody needs them there, nor the other stage
    if (next < p.steps) {
      load_rows<ROWS>(0, k, next, p.steps, p.size);
      load_rows<ROWS>(AT_V, v, next, p.steps, p.size);
    }
    grad.load(grad.other);
    grad.take<false>(column);
    grad.turn();
    for (column += COLUMNS; column < p.steps; column += COLUMNS) {
      copies_wait<0>();
      __syncthreads(); // this stage and the former slopes are there, and nobody needs the other
      grad.load(grad.other);
      grad.take<true>(column);
      grad.turn();
    }
    copies_wait<0>();
    __syncthreads(); // the last slopes are there
    grad.add_queries(column - COLUMNS);

    float factor[ROW_TILES][2];
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
      factor[i][0] = factor[i][1] = DROPOUT ? p.kept_scale : 1;
    int first = grad.row + grad.warp_row();
    store_rows(dv + head * matrix, grad.sums_v, factor, first, p.steps, p.size);
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
      factor[i][0] = factor[i][1] = DROPOUT ? p.scale * p.kept_scale : p.scale;
    store_rows(dk + head * matrix, grad.sums_k, factor, first, p.steps, p.size);
  }
}
