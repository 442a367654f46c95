// The selective scan of Mamba; the formulas are those of ref_scan.c. Its gradient: scan_grad.cu.
// T0: u and y; T1: delta; T2: b and c. Letters: T steps, C channels, S states.
//
// LANES threads of a warp share a channel, each with SP of its (padded) states, in registers;
// the recurrence over T is walked step by step. Tiles of steps and channels pass through shared
// memory, so that global accesses run along channels. Elements outside of the tensors are zeros
// there, which change nothing: delta 0 keeps a state, and states past S have b and c 0.
//
// exp(delta A) is 2^(delta a) with a = A log2(e), one instruction of the special function units:
// these bound the forward pass (1 of 16 a clock and multiprocessor per state and step: 47 us for
// T 2048, C 5120, S 16 on 132 multiprocessors, where the bytes take 22 us).

#include "scan_args.cuh"

#define LOG2_E 1.4426950408889634f
#define PADDED (LANES * SP) // states
#define CHUNK 64            // GD_SCAN_CHUNK

#define CHANNELS (THREADS / LANES)
#define PAIRS (CHANNELS / 2)
#define TILE 32    // steps
#define TOGETHER 4 // steps whose sums a thread writes at once
#define UNROLL (FEW ? 2 : 1)
#define GROUPS (TILE / TOGETHER)
#define UNITS (PAIRS * GROUPS) // of a pair of channels and TOGETHER steps
#define OWN ((UNITS + THREADS - 1) / THREADS)
#define SHARE (CHANNELS + 2) // sums that a part has in a row: 2 more, against conflicts
#define FEW (STATES <= 32)   // b and c pass through shared memory, else they are read in place
#define SELECTED (FEW ? TILE * PADDED : 0) // floats of b in a tile
// Shared memory: delta and delta u, parts of y, b, c.
#define PARTS (TILE * CHANNELS * 2)
#define TILE_B (PARTS + GROUPS * LANES * SHARE * TOGETHER)

// Two neighbouring elements as they are in memory; they are unpacked where they are used.
template <typename T> struct two {
  uint32_t bits;
  GD_DEVICE void set(T a, T b) { bits = a.bits | (uint32_t)b.bits << 16; }
  GD_DEVICE float get(int v) const {
    T x;
    x.bits = (uint16_t)(v ? bits >> 16 : bits);
    return gd_float(x);
  }
};
template <> GD_DEVICE float two<gd_bf16>::get(int v) const {
  return __uint_as_float(v ? bits & 0xffff0000 : bits << 16);
}
template <> struct two<gd_f32> {
  float at[2];
  GD_DEVICE void set(float a, float b) { at[0] = a, at[1] = b; }
  GD_DEVICE float get(int v) const { return at[v]; }
};
template <typename T> struct alignas(2 * sizeof(T)) gd_pair {
  two<T> at;
};

// The elements of x[T, C] that a thread stages: OWN units, `jump` elements apart, each of a pair of
// channels and TOGETHER steps. The tensor has `rows` more steps and `columns` more channels from
// the first of them on; the rest is zero.
template <typename T> struct staged {
  two<T> at[OWN][TOGETHER];

  GD_DEVICE void fetch(const T *x, int64_t stride, int64_t jump, int rows, int columns) {
#pragma unroll
    for (int i = 0; i < OWN; i++, x += jump) {
      const T *from = x;
#pragma unroll
      for (int k = 0; k < TOGETHER; k++, from += stride) {
        int left = i * (THREADS / PAIRS * TOGETHER) + k < rows ? columns : 0;
        at[i][k].set(gd_to<T>(0), gd_to<T>(0));
        if (VEC == 1 && left > 0)
          at[i][k].set(from[0], left > 1 ? from[1] : gd_to<T>(0));
        if (VEC == 2 && left > 0)
          at[i][k] = ((const gd_pair<T> *)from)->at;
      }
    }
  }
};

// TILE rows of b or c, padded.
#define BY (VEC == 2 && STATES % 4 == 0 ? 4 : 2)
template <typename T> struct alignas(4 * sizeof(T)) gd_four {
  two<T> at[2];
};
struct staged_states {
  static constexpr int COUNT = FEW ? TILE * PADDED / BY : 0;
  two<T2> at[(COUNT + THREADS - 1) / THREADS + !FEW][BY / 2];

  GD_DEVICE void fetch(const T2 *x, int rows) {
#pragma unroll
    for (int i = 0; i * THREADS < COUNT; i++) {
      int unit = threadIdx.x + i * THREADS, t = unit * BY / PADDED, s = unit * BY % PADDED;
      const T2 *from = x + t * STATES + s;
#pragma unroll
      for (int v = 0; v < BY / 2; v++)
        at[i][v].set(gd_to<T2>(0), gd_to<T2>(0));
      if (t < rows && s < STATES) { // rows are at most TILE
        if constexpr (BY == 4) {
          gd_four<T2> four = *(const gd_four<T2> *)from;
          at[i][0] = four.at[0], at[i][1] = four.at[1];
        } else {
          at[i][0].set(from[0], s + 1 < STATES ? from[1] : gd_to<T2>(0));
        }
      }
    }
  }
  GD_DEVICE void put(float *shared) const {
#pragma unroll
    for (int i = 0; i * THREADS < COUNT; i++) {
      float values[BY];
#pragma unroll
      for (int v = 0; v < BY; v++)
        values[v] = at[i][v / 2].get(v % 2);
      if (COUNT % THREADS == 0 || threadIdx.x + i * THREADS < COUNT)
        gd_store(shared + (threadIdx.x + i * THREADS) * BY, values);
    }
  }
};
// SP states of row t, of `rows`; `shared` stands at the first of them.
GD_DEVICE void get_states(float (&x)[SP], const float *shared, const T2 *from, int t, int rows,
                          int state) {
  if (FEW)
    gd_load(shared + t * PADDED, x);
  else
#pragma unroll
    for (int i = 0; i < SP; i++)
      x[i] = t < rows && state + i < STATES ? gd_float(from[(int64_t)t * STATES + state + i]) : 0;
}

// Makes the compiler keep x in a register instead of computing it again.
GD_DEVICE int keep(int x) {
  asm volatile("" : "+r"(x));
  return x;
}

// A block has CHANNELS channels of a sequence. It loads the next tile of TILE steps while it works
// on the current one. A tile in shared memory has delta and delta u, two steps interleaved. Each
// thread writes its part of y, for TOGETHER steps, to shared memory; the threads that staged u add
// the parts.
//
// A warp's step takes the special function units 32 clocks at 4 states a thread, and about 31
// instructions: 20 on states, 3 loads and stores, 8 for staging and adding up.
//
// Every access to shared memory is 16 bytes a lane. A warp needs 2 wavefronts for it where lanes
// that differ in bit 0 alone, or in bit 1 alone, read the same address, else 4. Therefore bit 0 of
// the lane selects the channel and the bits above it the state. Channels are ordered in shared
// memory so that neighbouring threads stage neighbouring channels.
extern "C" __global__ void __launch_bounds__(THREADS, MIN_BLOCKS)
    scan(const __grid_constant__ gd_scan_args args) {
  const T0 *u = args.u;
  const T1 *delta = args.delta;
  const T2 *b = args.b, *c = args.c;
  const float *a_log = args.a_log, *d = args.d;
  T0 *y = args.y;
  float *saved = args.saved;
  int64_t steps = args.steps, channels = args.channels;
  alignas(16) __shared__ float shared[TILE_B + 2 * SELECTED];
  int64_t groups = (channels + CHANNELS - 1) / CHANNELS, batch = blockIdx.x / groups;
  int64_t first_channel = blockIdx.x % groups * CHANNELS;
  int width = channels - first_channel < CHANNELS ? channels - first_channel : CHANNELS;
  int lane = threadIdx.x % 32, part = LANES < 32 ? lane / 2 % LANES : lane, state = part * SP;
  int slot = threadIdx.x / 32 * (32 / LANES) + (LANES < 32 ? lane / 2 / LANES * 2 + lane % 2 : 0);
  int local = slot % PAIRS * 2 + slot / PAIRS;
  int64_t chunks = (steps + CHUNK - 1) / CHUNK;
  bool live = local < width, whole = STATES % SP == 0 && gd_aligned(saved, SP < 4 ? 4 * SP : 16);
  float a[SP], h[SP], skip[2];
  saved += (batch * chunks * channels + first_channel + local) * STATES + state;
#pragma unroll
  for (int i = 0; i < SP; i++) {
    int64_t at = (first_channel + local) * STATES + state + i;
    a[i] = live && state + i < STATES ? -expf(a_log[at]) * LOG2_E : 0;
    h[i] = 0;
  }
  // What this thread stages and writes.
  int pair = threadIdx.x % PAIRS, columns = width - 2 * pair;
  int early = threadIdx.x / PAIRS * TOGETHER; // first step
  int64_t corner = (batch * steps + early) * channels + first_channel + 2 * pair;
  int64_t jump = THREADS / PAIRS * TOGETHER * channels; // between its units
  u += corner;
  delta += corner;
  y += corner;
#pragma unroll
  for (int v = 0; v < 2; v++)
    skip[v] = v < columns ? d[first_channel + 2 * pair + v] : 0;
  if (UNITS < THREADS && early >= TILE)
    columns = 0;
  b += batch * steps * STATES;
  c += batch * steps * STATES;
  int to = keep((early * PAIRS + pair) * 4), from_x = keep(slot * 4);
  int from_states = keep(TILE_B + state);
  int to_sum = keep(PARTS + (part * SHARE + slot) * TOGETHER);
  int from_sums = keep(PARTS + (early * LANES * SHARE + pair * TOGETHER));
  int64_t stride = channels;
  asm volatile("" : "+l"(stride));
  staged<T0> next_u;
  staged<T1> next_delta;
  staged_states next_b, next_c;
  int rows = steps < TILE ? steps : TILE;
  next_u.fetch(u, stride, jump, rows - early, columns);
  next_delta.fetch(delta, stride, jump, rows - early, columns);
  next_b.fetch(b, rows);
  next_c.fetch(c, rows);
  for (int64_t left = steps; left > 0; left -= TILE) {
    staged<T0> this_u = next_u;
    if (UNITS >= THREADS || early < TILE)
#pragma unroll
      for (int i = 0; i < OWN; i++)
#pragma unroll
        for (int v = 0; v < 2; v++)
#pragma unroll
          for (int k = 0; k < TOGETHER; k += 2) {
            float x[4];
            x[0] = next_delta.at[i][k].get(v);
            x[1] = x[0] * next_u.at[i][k].get(v);
            x[2] = next_delta.at[i][k + 1].get(v);
            x[3] = x[2] * next_u.at[i][k + 1].get(v);
            gd_store(shared + to + (i * THREADS * TOGETHER + (k + v) * PAIRS) * 4, x);
          }
    next_b.put(shared + TILE_B);
    next_c.put(shared + TILE_B + SELECTED);
    __syncthreads();
    const T2 *this_b = b, *this_c = c;
    int this_rows = rows;
    rows = left - TILE < TILE ? left - TILE : TILE;
    u += TILE * channels;
    delta += TILE * channels;
    b += TILE * STATES;
    c += TILE * STATES;
    if (rows > 0) {
      next_u.fetch(u, stride, jump, rows - early, columns);
      next_delta.fetch(delta, stride, jump, rows - early, columns);
      next_b.fetch(b, rows);
      next_c.fetch(c, rows);
    }
    if ((steps - left) % CHUNK == 0) {
      if (live && whole && state < STATES)
        gd_store(saved, h);
      if (live && !whole)
#pragma unroll
        for (int i = 0; i < SP; i++)
          if (state + i < STATES)
            saved[i] = h[i];
      saved += channels * STATES;
    }
    const float *from = shared + from_x, *from_b = shared + from_states;
    float *sum = shared + to_sum;
#pragma unroll 1
    for (int t = 0; t < this_rows; t += UNROLL * TOGETHER) { // rows past the last one are zeros
#pragma unroll
      for (int j = 0; j < UNROLL; j++) {
        float sums[TOGETHER];
#pragma unroll
        for (int k = 0; k < TOGETHER; k += 2) {
          float x[4];
          gd_load(from + (j * TOGETHER + k) * CHANNELS * 2, x);
#pragma unroll
          for (int n = 0; n < 2; n++) {
            float bs[SP], cs[SP];
            int row = j * TOGETHER + k + n, left_rows = this_rows - t;
            get_states(bs, from_b, this_b + (int64_t)t * STATES, row, left_rows, state);
            get_states(cs, from_b + SELECTED, this_c + (int64_t)t * STATES, row, left_rows, state);
            sums[k + n] = 0;
#pragma unroll
            for (int i = 0; i < SP; i++) {
              h[i] = gd_exp2(x[2 * n] * a[i]) * h[i] + x[2 * n + 1] * bs[i];
              sums[k + n] += cs[i] * h[i];
            }
          }
        }
        gd_store(sum + j * LANES * SHARE * TOGETHER, sums);
      }
      from += UNROLL * TOGETHER * CHANNELS * 2;
      from_b += UNROLL * TOGETHER * PADDED;
      sum += UNROLL * LANES * SHARE * TOGETHER;
    }
    __syncthreads();
    if (columns > 0)
#pragma unroll
      for (int i = 0; i < OWN; i++) {
        float sums[2][TOGETHER];
        int first = early + i * (THREADS / PAIRS * TOGETHER);
#pragma unroll
        for (int v = 0; v < 2; v++) {
#pragma unroll
          for (int k = 0; k < TOGETHER; k++)
            sums[v][k] = skip[v] * this_u.at[i][k].get(v);
#pragma unroll
          for (int p = 0; p < LANES; p++) {
            float more[TOGETHER];
            gd_load(shared + from_sums +
                        ((i * (THREADS / PAIRS) * LANES + p) * SHARE + v * PAIRS) * TOGETHER,
                    more);
#pragma unroll
            for (int k = 0; k < TOGETHER; k++)
              sums[v][k] += more[k];
          }
        }
        T0 *at = y + i * jump;
#pragma unroll
        for (int k = 0; k < TOGETHER; k++, at += stride) {
          float both[2] = {sums[0][k], sums[1][k]};
          if (VEC == 2 && first + k < this_rows)
            gd_store(at, both);
          if (VEC == 1 && first + k < this_rows) {
            at[0] = gd_to<T0>(both[0]);
            if (columns > 1)
              at[1] = gd_to<T0>(both[1]);
          }
        }
      }
    y += TILE * channels;
  }
}
