// The gradient of embed: row v of the table is the sum of dy over the positions whose id is v, in
// the order of the positions, whatever the grid. T0: dy.
//
// Positions are sorted by id: a stable radix sort of least significant digits first, integers alone
// (sort_count, sort_scan, sort_scatter, once a digit). Then a warp owns 128 columns of a row of the
// table and adds up its positions (row_sums). An id that is everywhere would leave one warp alone
// with all of them, so pieces of the sorted order that lie at multiples of a fixed length and
// within one id are added up beforehand (piece_sums), and the row takes these sums.
//
// Bytes: dy read once, the table written once (added to: the rows in the batch read and written),
// ids some ten times; a FLOP an element of dy. The floor is the bytes of dy and the table.

#include "embed_args.cuh"

enum { THREADS = 256, WARPS = THREADS / 32 };

// --- sorting ------------------------------------------------------------------------------------

enum { MAX_BINS = 512, ROUNDS = 4, CHUNK = THREADS * ROUNDS };

GD_DEVICE int digit_of(const gd_embed_digit &d, int32_t key) {
  return (int)((uint32_t)key >> d.shift) & (d.bins - 1);
}

// A block counts the digits of its chunk: counts[bin][chunk].
extern "C" __global__ void __launch_bounds__(THREADS)
    sort_count(int32_t *counts, const int32_t *keys, int32_t n, gd_embed_digit d) {
  __shared__ int bins[MAX_BINS];
  for (int bin = threadIdx.x; bin < d.bins; bin += THREADS)
    bins[bin] = 0;
  __syncthreads();
  int first = blockIdx.x * CHUNK + threadIdx.x;
  for (int r = 0; r < ROUNDS; r++)
    if (first + r * THREADS < n)
      atomicAdd(&bins[digit_of(d, keys[first + r * THREADS])], 1);
  __syncthreads();
  for (int bin = threadIdx.x; bin < d.bins; bin += THREADS)
    counts[bin * gridDim.x + blockIdx.x] = bins[bin];
}

// Sum of the values of the threads before this one, and of all of them. shared: WARPS integers.
GD_DEVICE int sum_before(int value, int *total, int *shared) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, sum = value;
  for (int step = 1; step < 32; step *= 2) {
    int other = __shfl_up_sync(0xffffffff, sum, step);
    sum += lane >= step ? other : 0;
  }
  if (lane == 31)
    shared[warp] = sum;
  __syncthreads();
  int before = 0, all = 0;
  for (int w = 0; w < WARPS; w++) {
    before += w < warp ? shared[w] : 0;
    all += shared[w];
  }
  __syncthreads();
  *total = all;
  return before + sum - value;
}

// A block owns a bin: its counts become those of the chunks before; totals[bin] has them all.
extern "C" __global__ void __launch_bounds__(THREADS)
    sort_scan(int32_t *counts, int32_t *totals, int32_t chunks) {
  __shared__ int shared[WARPS];
  int32_t *row = counts + blockIdx.x * chunks;
  int carry = 0, total;
  for (int begin = 0; begin < chunks; begin += THREADS) {
    int at = begin + threadIdx.x, count = at < chunks ? row[at] : 0;
    int before = sum_before(count, &total, shared);
    if (at < chunks)
      row[at] = carry + before;
    carry += total;
  }
  if (threadIdx.x == 0)
    totals[blockIdx.x] = carry;
}

// A block puts its chunk where it belongs. A warp has 128 keys behind each other, 32 a round; keys
// of one digit get their places in the order of lanes, rounds, warps, chunks: of positions.
// order NULL: the positions are the indices.
extern "C" __global__ void __launch_bounds__(THREADS)
    sort_scatter(int32_t *keys_out, int32_t *order_out, const int32_t *keys, const int32_t *order,
                 const int32_t *counts, const int32_t *totals, int32_t n, gd_embed_digit d) {
  __shared__ int places[WARPS][MAX_BINS];
  __shared__ int shared[WARPS];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = threadIdx.x; i < WARPS * MAX_BINS; i += THREADS)
    places[i / MAX_BINS][i % MAX_BINS] = 0;
  __syncthreads();

  int key[ROUNDS], rank[ROUNDS];
  int first = blockIdx.x * CHUNK + warp * (CHUNK / WARPS) + lane;
#pragma unroll
  for (int r = 0; r < ROUNDS; r++) {
    int at = first + r * 32;
    key[r] = at < n ? keys[at] : 0;
    int bin = at < n ? digit_of(d, key[r]) : MAX_BINS;
    uint32_t peers = __match_any_sync(0xffffffff, bin);
    int before = __popc(peers & ((1u << lane) - 1));
    int placed = at < n ? places[warp][bin] : 0;
    __syncwarp();
    if (at < n && before == 0)
      places[warp][bin] = placed + __popc(peers);
    __syncwarp();
    rank[r] = placed + before;
  }
  __syncthreads();

  // Two bins a thread: where the bin begins, then what earlier chunks and warps put there.
  int own[2], total;
#pragma unroll
  for (int i = 0; i < 2; i++)
    own[i] = 2 * threadIdx.x + i < d.bins ? totals[2 * threadIdx.x + i] : 0;
  int begin = sum_before(own[0] + own[1], &total, shared);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    int bin = 2 * threadIdx.x + i;
    if (bin >= d.bins)
      continue;
    int place = begin + (i ? own[0] : 0) + counts[bin * gridDim.x + blockIdx.x];
    for (int w = 0; w < WARPS; w++) {
      int count = places[w][bin];
      places[w][bin] = place;
      place += count;
    }
  }
  __syncthreads();
#pragma unroll
  for (int r = 0; r < ROUNDS; r++) {
    int at = first + r * 32;
    if (at >= n)
      continue;
    int to = places[warp][digit_of(d, key[r])] + rank[r];
    keys_out[to] = key[r];
    order_out[to] = order ? order[at] : at;
  }
}

// offsets[v]: number of keys below v, for v up to and including rows.
extern "C" __global__ void __launch_bounds__(THREADS)
    row_offsets(int32_t *offsets, const int32_t *keys, int32_t n, int32_t rows) {
  int v = blockIdx.x * THREADS + threadIdx.x, low = 0, high = n;
  if (v > rows)
    return;
  while (low < high) {
    int middle = (low + high) / 2;
    if (keys[middle] < v)
      low = middle + 1;
    else
      high = middle;
  }
  offsets[v] = low;
}

// --- summing ------------------------------------------------------------------------------------

enum { WIDTH = 4, COLUMNS = 32 * WIDTH, DEEP = 8 };

// The four columns of a lane: neighbours where they can be read at once, else 32 apart.
template <bool WIDE> GD_DEVICE int64_t column_of(int64_t first, int j) {
  int lane = threadIdx.x % 32;
  return WIDE ? first + lane * WIDTH + j : first + j * 32 + lane;
}

template <bool WIDE, typename T>
GD_DEVICE void load_columns(const T *row, int64_t first, int64_t columns, float (&x)[WIDTH]) {
  if (WIDE) {
    if (column_of<WIDE>(first, 0) < columns)
      gd_load(row + column_of<WIDE>(first, 0), x);
  } else {
#pragma unroll
    for (int j = 0; j < WIDTH; j++)
      if (column_of<WIDE>(first, j) < columns)
        x[j] = gd_float(row[column_of<WIDE>(first, j)]);
  }
}

template <bool WIDE>
GD_DEVICE void store_columns(float *row, int64_t first, int64_t columns, const float (&x)[WIDTH]) {
  if (WIDE) {
    if (column_of<WIDE>(first, 0) < columns)
      gd_store(row + column_of<WIDE>(first, 0), x);
  } else {
#pragma unroll
    for (int j = 0; j < WIDTH; j++)
      if (column_of<WIDE>(first, j) < columns)
        row[column_of<WIDE>(first, j)] = x[j];
  }
}

// Adds rows begin .. end of the sorted order, or of x itself if order is NULL, one after the other;
// eight are on their way at a time.
template <bool WIDE, typename T>
GD_DEVICE void add_rows(float (&sum)[WIDTH], const T *x, const int32_t *order, int begin, int end,
                        int64_t first, int64_t columns) {
  int lane = threadIdx.x % 32;
  for (int base = begin; base < end; base += 32) {
    int mine = base + lane;
    if (order && mine < end)
      mine = order[mine];
    int count = end - base < 32 ? end - base : 32;
    for (int k = 0; k < count; k += DEEP) {
      float values[DEEP][WIDTH] = {};
#pragma unroll
      for (int u = 0; u < DEEP; u++) {
        int row = __shfl_sync(0xffffffff, mine, (k + u) % 32);
        if (k + u < count)
          load_columns<WIDE>(x + row * columns, first, columns, values[u]);
      }
#pragma unroll
      for (int u = 0; u < DEEP; u++)
#pragma unroll
        for (int j = 0; j < WIDTH; j++)
          sum[j] += values[u][j];
    }
  }
}

// A warp owns 128 columns of a piece, if all of that has one id.
template <bool WIDE>
GD_DEVICE void piece_sum(float *partials, const T0 *dy, const int32_t *keys, const int32_t *order,
                         const gd_embed_sums &s, uint32_t pieces) {
  uint32_t item = blockIdx.x * WARPS + threadIdx.x / 32;
  uint32_t piece = gd_quotient(item, s.chunks);
  if (piece >= pieces)
    return;
  int64_t first = (int64_t)(item - piece * s.chunks.divisor) * COLUMNS;
  int begin = (int)(piece << s.piece_log2), end = (int)((piece + 1) << s.piece_log2);
  int key = keys[begin];
  if (key != keys[end - 1] || key == s.skipped)
    return;
  float sum[WIDTH] = {};
  add_rows<WIDE>(sum, dy, order, begin, end, first, s.columns);
  store_columns<WIDE>(partials + piece * s.columns, first, s.columns, sum);
}

// A warp owns 128 columns of a row of the table.
template <bool WIDE>
GD_DEVICE void row_sum(float *table, const T0 *dy, const int32_t *order, const int32_t *offsets,
                       const float *partials, const gd_embed_sums &s) {
  uint32_t item = blockIdx.x * WARPS + threadIdx.x / 32;
  uint32_t row = gd_quotient(item, s.chunks);
  if (row >= (uint32_t)s.rows)
    return;
  int64_t first = (int64_t)(item - row * s.chunks.divisor) * COLUMNS;
  int begin = offsets[row], end = offsets[row + 1];
  bool none = begin >= end || (int)row == s.skipped;
  if (none && s.adds)
    return;
  table += row * s.columns;
  float sum[WIDTH] = {};
  if (!none) {
    int from = (begin + (1 << s.piece_log2) - 1) >> s.piece_log2, to = end >> s.piece_log2;
    bool whole = from < to;
    add_rows<WIDE>(sum, dy, order, begin, whole ? from << s.piece_log2 : end, first, s.columns);
    if (whole) {
      add_rows<WIDE>(sum, partials, (const int32_t *)0, from, to, first, s.columns);
      add_rows<WIDE>(sum, dy, order, to << s.piece_log2, end, first, s.columns);
    }
  }
  if (s.adds) {
    float old[WIDTH] = {};
    load_columns<WIDE>(table, first, s.columns, old);
#pragma unroll
    for (int j = 0; j < WIDTH; j++)
      sum[j] += old[j];
  }
  store_columns<WIDE>(table, first, s.columns, sum);
}

#define BY_WIDTH(NAME, WIDE)                                                                      \
  extern "C" __global__ void __launch_bounds__(THREADS)                                           \
      piece_sums_##NAME(float *partials, const T0 *dy, const int32_t *keys, const int32_t *order, \
                        const __grid_constant__ gd_embed_sums s, uint32_t pieces) {                        \
    piece_sum<WIDE>(partials, dy, keys, order, s, pieces);                                        \
  }                                                                                               \
  extern "C" __global__ void __launch_bounds__(THREADS)                                           \
      row_sums_##NAME(float *table, const T0 *dy, const int32_t *order, const int32_t *offsets,   \
                      const float *partials, const __grid_constant__ gd_embed_sums s) {                    \
    row_sum<WIDE>(table, dy, order, offsets, partials, s);                                        \
  }
BY_WIDTH(wide, true)
BY_WIDTH(narrow, false)
