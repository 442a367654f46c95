// The causal filter with one kernel a channel, over x[B,T,C] in dtype T0, and its gradients; the
// formulas are those of ref_filter.c. TAPS: K where it is small, whose window then lies in
// registers; 0: K is known at run time only, and inputs are read once per tap. VEC channels move
// together.

// One output a thread of the general kernels; `sign` -1: the filter, 1: its gradient to x.
#if TAPS == 0
extern "C" __global__ void __launch_bounds__(256)
    conv1d(const T0 *x, const float *w, const float *bias, T0 *y, int64_t rows, int64_t steps,
           int64_t channels, int64_t k, int sign) {
  int64_t item = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (item >= rows * channels)
    return;
  int64_t channel = item % channels, t = item / channels % steps;
  float sum = bias ? bias[channel] : 0;
  for (int64_t j = 0; j < k; j++)
    if (t + sign * j >= 0 && t + sign * j < steps)
      sum += gd_float(x[item + sign * j * channels]) * w[channel * k + k - 1 - j];
  y[item] = gd_to<T0>(sum);
}

// partial[group, K + 1, C]: a thread has a channel and a tap (the last one is the bias) and rows
// [z per, (z + 1) per).
extern "C" __global__ void __launch_bounds__(256)
    conv1d_dw(const T0 *dy, const T0 *x, float *partial, int64_t rows, int64_t per, int64_t steps,
              int64_t channels, int64_t k) {
  int64_t channel = (int64_t)blockIdx.x * 256 + threadIdx.x, tap = blockIdx.y, group = blockIdx.z;
  if (channel >= channels)
    return;
  int64_t end = (group + 1) * per < rows ? (group + 1) * per : rows, back = k - 1 - tap;
  float sum = 0;
  for (int64_t row = group * per; row < end; row++) {
    float gradient = gd_float(dy[row * channels + channel]);
    if (tap == k)
      sum += gradient;
    else if (row % steps >= back)
      sum += gradient * gd_float(x[(row - back) * channels + channel]);
  }
  partial[(group * (k + 1) + tap) * channels + channel] = sum;
}

#else

// Rows on their way to a thread; multiples of TAPS, so that a row's slot in registers is known.
#define SOME (TAPS == 3 ? 3 : 4)
#define AHEAD (2 * SOME)
#define AHEAD_DW SOME
#define THREADS 128 // SEQUENCE_THREADS
#define RESIDENT (VEC == 1 ? 1 : sizeof(T0) == 2 ? 6 : 4) // blocks of a multiprocessor

// VEC channels of a row as they are in memory, unpacked only where they are used; zero outside.
#define BYTES (VEC * (int)sizeof(T0))
struct held {
  uint32_t words[BYTES > 4 ? BYTES / 4 : 1];

  GD_DEVICE void load(const T0 *from, bool inside) {
#pragma unroll
    for (int i = 0; i < (BYTES > 4 ? BYTES / 4 : 1); i++)
      words[i] = 0;
    if (inside) {
      if constexpr (BYTES == 16) {
        uint4 x = *(const uint4 *)from;
        words[0] = x.x, words[1] = x.y, words[2] = x.z, words[3] = x.w;
      } else if constexpr (BYTES == 8) {
        uint2 x = *(const uint2 *)from;
        words[0] = x.x, words[1] = x.y;
      } else if constexpr (BYTES == 4) {
        words[0] = *(const uint32_t *)from;
      } else {
        words[0] = *(const uint16_t *)from;
      }
    }
  }
  GD_DEVICE void get(float (&x)[VEC]) const {
#pragma unroll
    for (int v = 0; v < VEC; v++)
      x[v] = element(T0{}, v);
  }
  GD_DEVICE float element(gd_f32, int v) const { return __uint_as_float(words[v]); }
  GD_DEVICE float element(gd_bf16, int v) const {
    return __uint_as_float(v % 2 ? words[v / 2] & 0xffff0000 : words[v / 2] << 16);
  }
  GD_DEVICE float element(gd_f16, int v) const {
    gd_f16 x;
    x.bits = (uint16_t)(v % 2 ? words[v / 2] >> 16 : words[v / 2]);
    return gd_float(x);
  }
};

// The next row, by one addition: addresses of all rows ahead would fill the registers.
template <typename T> GD_DEVICE void advance(T *&at, int64_t channels) {
  asm volatile("" : "+l"(channels)); // any number, as far as the compiler knows
  at += channels;
}

// A run of steps of VEC channels. Its rows are counted from TAPS - 1 before (`back`) or from the
// first step on; those in [low, high) lie in the sequence.
struct run {
  int64_t corner; // element of row 0
  int low, high, count;

  // `at` counts runs: `length` steps each, the last of a sequence may be shorter.
  GD_DEVICE run(int64_t at, int64_t runs, int64_t steps, int64_t channels, int length, int back) {
    int64_t first = at % runs * length, left = steps - first;
    corner = (at / runs * steps + first - back) * channels;
    low = first < back ? back - (int)first : 0;
    count = left < length ? (int)left : length;
    high = left + back < count + TAPS - 1 ? (int)left + back : count + TAPS - 1;
  }
};

// A thread has VEC channels and a run of steps: inputs are read once, but for the TAPS - 1 next
// to the run. Row i waits in slot i % TAPS; as one is unpacked, the load of the one AHEAD of it is
// issued.
// Reads and writes 1 element each an output: floor 2 (bytes of x) / bandwidth; about 9 instructions
// an output of a warp, a third of that time in bf16.
template <bool FORWARD>
GD_DEVICE void filter(const T0 *x, const float *w, const float *bias, T0 *y, int64_t batches,
                      int64_t steps, int64_t channels, int length) {
  int64_t across = channels / VEC, runs = (steps + length - 1) / length;
  int64_t item = (int64_t)blockIdx.x * THREADS + threadIdx.x;
  if (item >= across * runs * batches)
    return;
  int64_t channel = item % across * VEC;
  run in(item / across, runs, steps, channels, length, FORWARD ? TAPS - 1 : 0);
  x += in.corner + channel;
  y += in.corner + channel + (FORWARD ? (TAPS - 1) * channels : 0);
  held edge[TAPS - 1], ahead[AHEAD];
#pragma unroll
  for (int i = 0; i < TAPS - 1; i++, advance(x, channels))
    edge[i].load(x, i >= in.low && i < in.high);
#pragma unroll
  for (int n = 0; n < AHEAD; n++, advance(x, channels))
    ahead[n].load(x, n + TAPS - 1 < in.high);
  float weights[VEC * TAPS], window[TAPS][VEC], start[VEC] = {};
  if constexpr (VEC > 1)
    gd_load(w + channel * TAPS, weights);
  else
#pragma unroll
    for (int i = 0; i < TAPS; i++)
      weights[i] = w[channel * TAPS + i];
  if (bias)
    gd_load(bias + channel, start);
#pragma unroll
  for (int i = 0; i < TAPS - 1; i++)
    edge[i].get(window[i]);
  for (int r = 0; r < in.count; r += AHEAD) {
#pragma unroll
    for (int n = 0; n < AHEAD; n++, advance(x, channels), advance(y, channels)) {
      ahead[n].get(window[(n + TAPS - 1) % TAPS]);
      ahead[n].load(x, r + n + AHEAD + TAPS - 1 < in.high);
      float sum[VEC];
#pragma unroll
      for (int v = 0; v < VEC; v++) {
        sum[v] = start[v];
#pragma unroll
        for (int j = 0; j < TAPS; j++)
          sum[v] += window[(n + j) % TAPS][v] * weights[v * TAPS + (FORWARD ? j : TAPS - 1 - j)];
      }
      if (r + n < in.count)
        gd_store(y, sum);
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    conv1d(const T0 *x, const float *w, const float *bias, T0 *y, int64_t batches, int64_t steps,
           int64_t channels, int length) {
  filter<true>(x, w, bias, y, batches, steps, channels, length);
}
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    conv1d_dx(const T0 *dy, const float *w, const float *bias, T0 *dx, int64_t batches,
              int64_t steps, int64_t channels, int length) {
  filter<false>(dy, w, bias, dx, batches, steps, channels, length);
}

// A block has 32 VEC channels and runs [y per, (y + 1) per) of steps, one a warp at a time; it
// leaves row y of partial[groups, TAPS + 1, C], the last of which is the bias. Reads dy and x once,
// in the manner of the filter.
#define WARPS (THREADS / 32)
extern "C" __global__ void __launch_bounds__(THREADS, VEC > 1 ? 5 : 1)
    conv1d_dw(const T0 *dy, const T0 *x, float *partial, int64_t batches, int64_t per,
              int64_t steps, int64_t channels, int length) {
  alignas(16) __shared__ float shared[WARPS * 32 * VEC];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int64_t first_channel = (int64_t)blockIdx.x * 32 * VEC, channel = first_channel + lane * VEC;
  int64_t runs = (steps + length - 1) / length, count = batches * runs, first = blockIdx.y * per;
  int64_t end = first + per < count ? first + per : count;
  float sums[TAPS + 1][VEC] = {}; // the last one is the bias
  if (channel < channels)
    for (int64_t at = first + warp; at < end; at += WARPS) {
      run in(at, runs, steps, channels, length, TAPS - 1);
      const T0 *from = x + in.corner + channel, *gradients = dy + in.corner + channel;
      held edge[TAPS - 1], ahead[AHEAD_DW], ahead_dy[AHEAD_DW];
      float window[TAPS][VEC];
#pragma unroll
      for (int i = 0; i < TAPS - 1; i++, advance(from, channels), advance(gradients, channels))
        edge[i].load(from, i >= in.low && i < in.high);
#pragma unroll
      for (int n = 0; n < AHEAD_DW; n++, advance(from, channels), advance(gradients, channels)) {
        ahead[n].load(from, n < in.count);
        ahead_dy[n].load(gradients, n < in.count);
      }
#pragma unroll
      for (int i = 0; i < TAPS - 1; i++)
        edge[i].get(window[i]);
      for (int r = 0; r < in.count; r += AHEAD_DW) {
#pragma unroll
        for (int n = 0; n < AHEAD_DW; n++, advance(from, channels), advance(gradients, channels)) {
          float gradient[VEC];
          ahead[n].get(window[(n + TAPS - 1) % TAPS]);
          ahead_dy[n].get(gradient); // zero past the run
          ahead[n].load(from, r + n + AHEAD_DW < in.count);
          ahead_dy[n].load(gradients, r + n + AHEAD_DW < in.count);
#pragma unroll
          for (int v = 0; v < VEC; v++) {
#pragma unroll
            for (int j = 0; j < TAPS; j++)
              sums[j][v] += gradient[v] * window[(n + j) % TAPS][v];
            sums[TAPS][v] += gradient[v];
          }
        }
      }
    }
#pragma unroll
  for (int j = 0; j <= TAPS; j++) {
    gd_store(shared + (warp * 32 + lane) * VEC, sums[j]);
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * VEC; i += THREADS) {
      float sum = 0;
      for (int k = 0; k < WARPS; k++)
        sum += shared[k * 32 * VEC + i];
      if (first_channel + i < channels)
        partial[(blockIdx.y * (TAPS + 1) + j) * channels + first_channel + i] = sum;
    }
    __syncthreads();
  }
}
#endif
