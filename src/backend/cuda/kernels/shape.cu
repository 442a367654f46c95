// Kernels that move elements without looking at them: concat, slice, pad, transpose, embed, fill,
// and positions, which counts. Elements move as units of 16, 8, 4 or 2 bytes, the largest that
// every address of a call is a multiple of (op_shape.c); one module serves all dtypes. No FLOPs:
// the floor is the bytes named at each kernel over the memory's bandwidth.
//
// A thread has four units in flight, a block's units lie behind each other, and a grid covers the
// output once.

enum { THREADS = 256, UNROLL = 4 };

typedef gd_pack<uint32_t, 4> unit_16;
typedef gd_pack<uint32_t, 2> unit_8;
typedef uint32_t unit_4;
typedef uint16_t unit_2;

#include "shape_args.cuh"

// --- concat -------------------------------------------------------------------------------------

// Number of parts that end at or before i: the part that i is in.
GD_DEVICE int part_at(const gd_shape_parts &p, int64_t i) {
  int part = 0;
  for (int step = 128; step > 0; step /= 2)
    if (part + step < p.count && p.end[part + step - 1] <= i)
      part += step;
  return part;
}

// Bytes: the parts read and the output written once.
template <typename Unit> GD_DEVICE void concat(Unit *y, const gd_shape_parts &p) {
  int64_t first = (int64_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
  int64_t total = p.end[p.count - 1];
  Unit units[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    int64_t i = first + u * THREADS;
    if (i >= total)
      continue;
    int part = part_at(p, i);
    units[u] = ((const Unit *)p.from[part])[part ? i - p.end[part - 1] : i];
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
    if (first + u * THREADS < total)
      y[first + u * THREADS] = units[u];
}

// --- slice, and transposes that keep the last dim -----------------------------------------------

GD_DEVICE int64_t strided_at(const gd_shape_strided &s, uint32_t i) {
  int64_t from = 0;
  for (int d = s.rank - 1; d > 0; d--) {
    uint32_t rest = gd_quotient(i, s.dims[d]);
    from += (int64_t)(i - rest * s.dims[d].divisor) * s.strides[d];
    i = rest;
  }
  return from + (int64_t)i * s.strides[0];
}

// Bytes: the output twice, if the innermost runs are whole sectors of 32 bytes.
template <typename Unit> GD_DEVICE void strided_copy(Unit *y, const Unit *x, const gd_shape_strided &s) {
  uint32_t first = blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
  Unit units[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
    if (first + u * THREADS < s.total)
      units[u] = x[strided_at(s, first + u * THREADS)];
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
    if (first + u * THREADS < s.total)
      y[first + u * THREADS] = units[u];
}

// --- pad ----------------------------------------------------------------------------------------

// Bytes: the input and the output once each.
template <typename Unit> GD_DEVICE void pad(Unit *y, const Unit *x, const gd_shape_window &w) {
  uint32_t first = blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
  Unit units[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    uint32_t i = first + u * THREADS;
    units[u] = Unit{};
    uint32_t row = gd_quotient(i, w.row), in = i - row * w.row.divisor - w.lead;
    if (i < w.total && in < w.run)
      units[u] = x[(int64_t)row * w.run + in];
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
    if (first + u * THREADS < w.total)
      y[first + u * THREADS] = units[u];
}

// --- embed --------------------------------------------------------------------------------------

// Bytes: ids once, the output twice (rows of the table that come again are in L2).
template <typename Unit>
GD_DEVICE void embed(Unit *y, const Unit *table, const int32_t *ids, const gd_divider &row,
                     uint32_t total) {
  uint32_t first = blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
  Unit units[UNROLL];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    uint32_t i = first + u * THREADS;
    if (i >= total)
      continue;
    uint32_t r = gd_quotient(i, row), in = i - r * row.divisor;
    units[u] = table[(int64_t)ids[r] * row.divisor + in];
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
    if (first + u * THREADS < total)
      y[first + u * THREADS] = units[u];
}

#define BY_UNIT(BYTES)                                                             \
  extern "C" __global__ void __launch_bounds__(THREADS)                            \
      concat_##BYTES(void *y, const __grid_constant__ gd_shape_parts p) {                   \
    concat((unit_##BYTES *)y, p);                                                  \
  }                                                                                \
  extern "C" __global__ void __launch_bounds__(THREADS)                            \
      strided_##BYTES(void *y, const void *x, const __grid_constant__ gd_shape_strided s) { \
    strided_copy((unit_##BYTES *)y, (const unit_##BYTES *)x, s);                   \
  }                                                                                \
  extern "C" __global__ void __launch_bounds__(THREADS)                            \
      pad_##BYTES(void *y, const void *x, const __grid_constant__ gd_shape_window w) {      \
    pad((unit_##BYTES *)y, (const unit_##BYTES *)x, w);                            \
  }                                                                                \
  extern "C" __global__ void __launch_bounds__(THREADS)                            \
      embed_##BYTES(void *y, const void *table, const int32_t *ids,                \
                    const __grid_constant__ gd_divider row, uint32_t total) {      \
    embed((unit_##BYTES *)y, (const unit_##BYTES *)table, ids, row, total);        \
  }
BY_UNIT(16)
BY_UNIT(8)
BY_UNIT(4)
BY_UNIT(2)

// --- transposes that bring another dim last -----------------------------------------------------

// A tile in shared memory, in the input's order, 128 bytes a row. Two layouts, each without bank
// conflicts where it is used. To be written 16 bytes at a time: eight lanes gather from rows that
// are V apart, so the 16-byte slots of V rows behind each other are exchanged by XOR. To be written
// element by element: 32 lanes read a column, so rows are one word longer.
template <typename E> struct tile_shape {
  static const int V = 16 / sizeof(E), SIDE = 8 * V, PADDED = SIDE + 4 / sizeof(E);
};
template <typename E> GD_DEVICE int tile_at(bool wide_out, int r, int c) {
  typedef tile_shape<E> S;
  return wide_out ? r * S::SIDE + (c / S::V ^ r / S::V) * S::V + c % S::V : r * S::PADDED + c;
}

// One block owns a tile of 64 x 64 elements of 2 bytes, or 32 x 32 of 4. Bytes: x and y once each,
// in runs of 128.
template <typename E> GD_DEVICE void transpose(E *y, const E *x, const gd_shape_tiles &t) {
  typedef tile_shape<E> S;
  alignas(16) __shared__ E tile[S::SIDE * S::PADDED];
  bool wide_out = t.wide_out;
  uint32_t q = gd_quotient(blockIdx.x, t.row_tiles);
  int64_t r0 = (int64_t)(blockIdx.x - q * t.row_tiles.divisor) * S::SIDE;
  uint32_t rest = gd_quotient(q, t.column_tiles);
  int64_t c0 = (int64_t)(q - rest * t.column_tiles.divisor) * S::SIDE;
  x += r0 * t.row_in + c0;
  y += c0 * t.column_out + r0;
  for (int d = t.rank - 1; d >= 0; d--) {
    uint32_t outer = gd_quotient(rest, t.dims[d]);
    int64_t index = rest - outer * t.dims[d].divisor;
    x += index * t.in_strides[d];
    y += index * t.out_strides[d];
    rest = outer;
  }
  int rows = t.rows - r0 < S::SIDE ? (int)(t.rows - r0) : S::SIDE;
  int columns = t.columns - c0 < S::SIDE ? (int)(t.columns - c0) : S::SIDE;

  if (t.wide_in) {
    const int N = S::SIDE * 8 / THREADS;
    unit_16 units[N];
#pragma unroll
    for (int i = 0; i < N; i++) {
      int at = i * THREADS + threadIdx.x, r = at / 8, c = at % 8 * S::V;
      if (r < rows && c < columns)
        units[i] = *(const unit_16 *)(x + r * t.row_in + c);
    }
#pragma unroll
    for (int i = 0; i < N; i++) {
      int at = i * THREADS + threadIdx.x, r = at / 8, c = at % 8 * S::V;
      if (r >= rows || c >= columns)
        continue;
      E *to = &tile[tile_at<E>(wide_out, r, c)];
      if (wide_out) {
        *(unit_16 *)to = units[i];
      } else { // rows are a multiple of 4 bytes alone
#pragma unroll
        for (int j = 0; j < 4; j++)
          ((uint32_t *)to)[j] = units[i].at[j];
      }
    }
  } else {
    for (int at = threadIdx.x; at < S::SIDE * S::SIDE; at += THREADS) {
      int r = at / S::SIDE, c = at % S::SIDE;
      if (r < rows && c < columns)
        tile[tile_at<E>(wide_out, r, c)] = x[r * t.row_in + c];
    }
  }
  __syncthreads();
  if (wide_out) {
#pragma unroll
    for (int i = 0; i < S::SIDE * 8 / THREADS; i++) {
      int at = i * THREADS + threadIdx.x, c = at / 8, r = at % 8 * S::V;
      if (r >= rows || c >= columns)
        continue;
      gd_pack<E, S::V> pack;
#pragma unroll
      for (int j = 0; j < S::V; j++)
        pack.at[j] = tile[tile_at<E>(true, r + j, c)];
      *(gd_pack<E, S::V> *)(y + c * t.column_out + r) = pack;
    }
  } else {
    for (int at = threadIdx.x; at < S::SIDE * S::SIDE; at += THREADS) {
      int c = at / S::SIDE, r = at % S::SIDE;
      if (r < rows && c < columns)
        y[c * t.column_out + r] = tile[tile_at<E>(false, r, c)];
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    transpose_2(void *y, const void *x, const __grid_constant__ gd_shape_tiles t) {
  transpose((uint16_t *)y, (const uint16_t *)x, t);
}
extern "C" __global__ void __launch_bounds__(THREADS)
    transpose_4(void *y, const void *x, const __grid_constant__ gd_shape_tiles t) {
  transpose((uint32_t *)y, (const uint32_t *)x, t);
}

// --- fill ---------------------------------------------------------------------------------------

// pattern: the value once, or twice if it has 2 bytes, so that it does not matter where a unit
// begins. The first and the last block also write what is not a whole unit. Bytes: y once.
extern "C" __global__ void __launch_bounds__(THREADS)
    fill(void *y, int64_t bytes, uint32_t pattern) {
  int64_t head = (16 - (int64_t)((uint64_t)y % 16)) % 16;
  head = head < bytes ? head : bytes;
  int64_t units = (bytes - head) / 16, tail = bytes - head - units * 16;
  int64_t first = (int64_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
  unit_16 unit = {{pattern, pattern, pattern, pattern}};
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
    if (first + u * THREADS < units)
      ((unit_16 *)((char *)y + head))[first + u * THREADS] = unit;
  if (blockIdx.x == 0) { // every element has 2 or 4 bytes
    if (2 * threadIdx.x < head)
      ((uint16_t *)y)[threadIdx.x] = (uint16_t)(threadIdx.x % 2 ? pattern >> 16 : pattern);
    if (2 * threadIdx.x < tail)
      ((uint16_t *)((char *)y + bytes - tail))[threadIdx.x] =
          (uint16_t)(threadIdx.x % 2 ? pattern >> 16 : pattern);
  }
}

// --- positions ----------------------------------------------------------------------------------

enum { POSITION_THREADS = 1024 };

// One block owns a sequence and counts through it, 1,024 ids at a time. Bytes: ids and y once each.
extern "C" __global__ void __launch_bounds__(POSITION_THREADS)
    positions(int32_t *y, const int32_t *ids, int64_t steps, int32_t pad) {
  __shared__ int counts[POSITION_THREADS / 32];
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int count = 0; // of ids before this round
  y += blockIdx.x * steps;
  ids += blockIdx.x * steps;
  for (int64_t begin = 0; begin < steps; begin += POSITION_THREADS) {
    int64_t at = begin + threadIdx.x;
    bool real = at < steps && ids[at] != pad;
    uint32_t all = __ballot_sync(0xffffffff, real);
    if (lane == 0)
      counts[warp] = __popc(all);
    __syncthreads();
    int before = 0, total = 0;
    for (int w = 0; w < POSITION_THREADS / 32; w++) {
      before += w < warp ? counts[w] : 0;
      total += counts[w];
    }
    if (at < steps)
      y[at] = real ? pad + count + before + __popc(all & (0xffffffffu >> (31 - lane))) : pad;
    count += total;
    __syncthreads();
  }
}
