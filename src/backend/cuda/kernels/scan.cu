// The selective scan of Mamba; the formulas are those of ref_scan.c. Its gradient: scan_grad.cu.
// T0: u and y; T1: delta; T2: b and c. Letters: T steps, C channels, S states.
//
// LANES neighbouring threads share a channel, each with SP of its (padded) states, in registers;
// the recurrence over T is walked step by step. Tiles of steps and channels pass through shared
// memory, so that global accesses run along channels; what lies outside is zero there, and zeros
// do nothing: delta 0 keeps a state, and states past S have b and c 0.
//
// exp(delta A) is 2^(delta a) with a = A log2(e), one instruction of the special function units:
// these bound the forward pass (1 of 16 a clock and multiprocessor per state and step: 47 us for
// T 2048, C 5120, S 16 on 132 multiprocessors, where the bytes take 22 us).

#define LOG2_E 1.4426950408889634f
#define LN_2 0.6931471805599453f
#define PADDED (LANES * SP) // states
#define CHUNK 64            // GD_SCAN_CHUNK

GD_DEVICE float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Sums each of COUNT values over W lanes (both powers of two), STRIDE apart. Where lanes are left
// to share them, the sums are shared out: a lane ends with x[0 .. COUNT / W), those of the values
// from the returned index on. With more lanes than values, W / COUNT neighbours have the same one.
template <int COUNT, int W, int STRIDE, int N> GD_DEVICE int share_sums(float (&x)[N]) {
  if constexpr (W == 1) {
    return 0;
  } else if constexpr (COUNT == 1) {
    x[0] += __shfl_xor_sync(0xffffffff, x[0], W / 2 * STRIDE);
    return share_sums<1, W / 2, STRIDE>(x);
  } else {
    bool upper = threadIdx.x & (W / 2 * STRIDE);
#pragma unroll
    for (int v = 0; v < COUNT / 2; v++) {
      float sent = upper ? x[v] : x[v + COUNT / 2], kept = upper ? x[v + COUNT / 2] : x[v];
      x[v] = kept + __shfl_xor_sync(0xffffffff, sent, W / 2 * STRIDE);
    }
    return (upper ? COUNT / 2 : 0) + share_sums<COUNT / 2, W / 2, STRIDE>(x);
  }
}

// --- tiles ---------------------------------------------------------------------------------------

// STEPS x WIDTH elements of x[T, C], VEC at a time, between global and shared memory; `first` is
// the element of x that the tile begins with. Rows in shared memory lie PITCH apart: a channel's
// lanes write different steps, which must not meet in one bank.
#define PITCH(channels) ((channels) + 4)
template <typename T, int STEPS, int WIDTH> struct tile {
  static constexpr int ACROSS = WIDTH / VEC, UNITS = (STEPS * ACROSS + THREADS - 1) / THREADS;
  gd_pack<T, VEC> at[UNITS];

  GD_DEVICE void fetch(const T *x, int64_t first, int64_t stride, int64_t steps, int64_t channels) {
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
      int unit = threadIdx.x + i * THREADS, t = unit / ACROSS, c = unit % ACROSS * VEC;
      if (t < STEPS && t < steps && c < channels)
        at[i] = *(const gd_pack<T, VEC> *)(x + first + t * stride + c);
      else
#pragma unroll
        for (int v = 0; v < VEC; v++)
          at[i].at[v] = gd_to<T>(0);
    }
  }
  GD_DEVICE void put(float *shared) const {
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
      int unit = threadIdx.x + i * THREADS, t = unit / ACROSS, c = unit % ACROSS * VEC;
      float values[VEC];
#pragma unroll
      for (int v = 0; v < VEC; v++)
        values[v] = gd_float(at[i].at[v]);
      if (t < STEPS)
        gd_store(shared + t * PITCH(WIDTH) + c, values);
    }
  }
  // A thread takes the units that it put.
  static GD_DEVICE void store(T *x, const float *shared, int64_t first, int64_t stride,
                              int64_t steps, int64_t channels) {
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
      int unit = threadIdx.x + i * THREADS, t = unit / ACROSS, c = unit % ACROSS * VEC;
      if (t < STEPS && t < steps && c < channels) {
        float values[VEC];
        gd_load(shared + t * PITCH(WIDTH) + c, values);
        gd_store(x + first + t * stride + c, values);
      }
    }
  }
};

// STEPS rows of b or c, padded: in shared memory, or where there are many states read in place.
#if STATES <= 32
template <int STEPS> struct selected {
  static constexpr int UNITS = (STEPS * PADDED + THREADS - 1) / THREADS;
  T2 at[UNITS];

  GD_DEVICE void fetch(const T2 *x, int64_t steps) {
#pragma unroll
    for (int i = 0; i < UNITS; i++) {
      int unit = threadIdx.x + i * THREADS, t = unit / PADDED, s = unit % PADDED;
      at[i] = t < STEPS && t < steps && s < STATES ? x[(int64_t)t * STATES + s] : gd_to<T2>(0);
    }
  }
  GD_DEVICE void put(float *shared) const {
#pragma unroll
    for (int i = 0; i < UNITS; i++)
      if (threadIdx.x + i * THREADS < STEPS * PADDED)
        shared[threadIdx.x + i * THREADS] = gd_float(at[i]);
  }
};
GD_DEVICE void get_selected(float (&x)[SP], const float *shared, const T2 *, int64_t, int t,
                            int state) {
  gd_load(shared + t * PADDED + state, x);
}
#else
template <int STEPS> struct selected {
  GD_DEVICE void fetch(const T2 *, int64_t) {}
  GD_DEVICE void put(float *) const {}
};
GD_DEVICE void get_selected(float (&x)[SP], const float *, const T2 *from, int64_t steps, int t,
                            int state) {
#pragma unroll
  for (int i = 0; i < SP; i++)
    x[i] = t < steps && state + i < STATES ? gd_float(from[(int64_t)t * STATES + state + i]) : 0.0f;
}
#endif

// --- forward -------------------------------------------------------------------------------------

#ifdef FORWARD
#define CHANNELS (THREADS / LANES)
#define ROW PITCH(CHANNELS)
#define TILE 32    // steps
#define TOGETHER 4 // steps whose sums over states are shared out

// A block has CHANNELS channels of a sequence. The next tile is on its way while one is worked on.
extern "C" __global__ void __launch_bounds__(THREADS)
    scan(const T0 *u, const T1 *delta, const float *a_log, const T2 *b, const T2 *c, const float *d,
         T0 *y, float *kept, int64_t steps, int64_t channels) {
  alignas(16) __shared__ float tile_u[TILE * ROW], tile_delta[TILE * ROW];
  alignas(16) __shared__ float tile_b[STATES <= 32 ? TILE * PADDED : 1];
  alignas(16) __shared__ float tile_c[STATES <= 32 ? TILE * PADDED : 1];
  int64_t groups = (channels + CHANNELS - 1) / CHANNELS, batch = blockIdx.x / groups;
  int64_t first_channel = blockIdx.x % groups * CHANNELS, left = channels - first_channel;
  int lane = threadIdx.x % LANES, local = threadIdx.x / LANES, state = lane * SP;
  int64_t channel = first_channel + local, chunks = (steps + CHUNK - 1) / CHUNK;
  bool live = channel < channels;
  float a[SP], h[SP], skip = live ? d[channel] : 0;
#pragma unroll
  for (int i = 0; i < SP; i++) {
    a[i] = live && state + i < STATES ? -expf(a_log[channel * STATES + state + i]) * LOG2_E : 0;
    h[i] = 0;
  }
  tile<T0, TILE, CHANNELS> next_u;
  tile<T1, TILE, CHANNELS> next_delta;
  selected<TILE> next_b, next_c;
  next_u.fetch(u, batch * steps * channels + first_channel, channels, steps, left);
  next_delta.fetch(delta, batch * steps * channels + first_channel, channels, steps, left);
  next_b.fetch(b + batch * steps * STATES, steps);
  next_c.fetch(c + batch * steps * STATES, steps);
  for (int64_t first = 0; first < steps; first += TILE) {
    int64_t row = batch * steps + first, ahead = row + TILE, more = steps - first - TILE;
    next_u.put(tile_u);
    next_delta.put(tile_delta);
    next_b.put(tile_b);
    next_c.put(tile_c);
    __syncthreads();
    if (more > 0) {
      next_u.fetch(u, ahead * channels + first_channel, channels, more, left);
      next_delta.fetch(delta, ahead * channels + first_channel, channels, more, left);
      next_b.fetch(b + ahead * STATES, more);
      next_c.fetch(c + ahead * STATES, more);
    }
    if (first % CHUNK == 0 && live) {
      float *to = kept + ((batch * chunks + first / CHUNK) * channels + channel) * STATES + state;
      if (STATES % SP == 0 && gd_aligned(kept, SP < 4 ? 4 * SP : 16)) {
        if (state < STATES)
          gd_store(to, h);
      } else {
#pragma unroll
        for (int i = 0; i < SP; i++)
          if (state + i < STATES)
            to[i] = h[i];
      }
    }
    for (int t = 0; t < TILE; t += TOGETHER) {
      float sums[TOGETHER];
#pragma unroll
      for (int k = 0; k < TOGETHER; k++) {
        float step = tile_delta[(t + k) * ROW + local];
        float x = step * tile_u[(t + k) * ROW + local], bs[SP], cs[SP];
        get_selected(bs, tile_b, b + row * STATES, steps - first, t + k, state);
        get_selected(cs, tile_c, c + row * STATES, steps - first, t + k, state);
        sums[k] = 0;
#pragma unroll
        for (int i = 0; i < SP; i++) {
          h[i] = power_of_2(step * a[i]) * h[i] + x * bs[i];
          sums[k] += cs[i] * h[i];
        }
      }
      int mine = share_sums<TOGETHER, LANES, 1>(sums);
      constexpr int OWN = TOGETHER > LANES ? TOGETHER / LANES : 1;
      constexpr int SAME = LANES > TOGETHER ? LANES / TOGETHER : 1; // lanes with the same sum
      __syncwarp(); // y takes the place of u
      if (lane % SAME == 0)
#pragma unroll
        for (int k = 0; k < OWN; k++) {
          float *at = tile_u + (t + mine + k) * ROW + local;
          *at = sums[k] + skip * *at;
        }
    }
    __syncthreads();
    tile<T0, TILE, CHANNELS>::store(y, tile_u, row * channels + first_channel, channels,
                                    steps - first, left);
  }
}
#endif
