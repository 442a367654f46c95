// The causal filter with one kernel a channel, over x[B,T,C] in dtype T0, and its gradients; the
// formulas are those of ref_filter.c. TAPS: K where it is small, whose window then lies in
// registers; 0: K is known at run time only, and inputs are read once per tap. VEC channels move
// together. Letters: j counts steps back from the output, so that tap i is K - 1 - j.

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
    float slope = gd_float(dy[row * channels + channel]);
    if (tap == k)
      sum += slope;
    else if (row % steps >= back)
      sum += slope * gd_float(x[(row - back) * channels + channel]);
  }
  partial[(group * (k + 1) + tap) * channels + channel] = sum;
}

#else

#define AHEAD 4 // rows loaded before the first is used

// The steps of one run of one sequence, in the order that the window moves.
template <int SIGN> struct run {
  const T0 *x;
  int64_t steps, channels, first; // first step of the run
  int length;

  GD_DEVICE int64_t step(int r) const { return SIGN < 0 ? first + r : first + length - 1 - r; }
  GD_DEVICE void load(float (&values)[VEC], int64_t t) const {
    if (t >= 0 && t < steps)
      gd_load(x + t * channels, values);
    else
#pragma unroll
      for (int v = 0; v < VEC; v++)
        values[v] = 0;
  }
};

// A thread has VEC channels and a run of steps: inputs are read once, but for the TAPS - 1 before
// the run. Reads and writes 1 element each an output: floor 2 (bytes of x) / bandwidth.
template <int SIGN>
GD_DEVICE void filter(const T0 *x, const float *w, const float *bias, T0 *y, int64_t batches,
                      int64_t steps, int64_t channels, int length) {
  int64_t across = channels / VEC, runs = (steps + length - 1) / length;
  int64_t item = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (item >= across * runs * batches)
    return;
  int64_t channel = item % across * VEC, batch = item / across / runs;
  int64_t corner = batch * steps * channels + channel;
  run<SIGN> in = {x + corner, steps, channels, item / across % runs * length, length};
  float weights[TAPS][VEC], window[TAPS][VEC], start[VEC] = {}; // window[j]: j steps back
#pragma unroll
  for (int v = 0; v < VEC; v++)
#pragma unroll
    for (int j = 0; j < TAPS; j++)
      weights[j][v] = w[(channel + v) * TAPS + TAPS - 1 - j];
  if (bias)
    gd_load(bias + channel, start);
#pragma unroll
  for (int j = 1; j < TAPS; j++)
    in.load(window[j - 1], in.step(0) + SIGN * j); // moves on before its first use
  for (int r = 0; r < length; r += AHEAD) {
    float next[AHEAD][VEC];
#pragma unroll
    for (int n = 0; n < AHEAD; n++)
      in.load(next[n], in.step(r + n));
#pragma unroll
    for (int n = 0; n < AHEAD; n++) {
      float sum[VEC];
#pragma unroll
      for (int v = 0; v < VEC; v++) {
#pragma unroll
        for (int j = TAPS - 1; j > 0; j--)
          window[j][v] = window[j - 1][v];
        window[0][v] = next[n][v];
        sum[v] = start[v];
#pragma unroll
        for (int j = 0; j < TAPS; j++)
          sum[v] += window[j][v] * weights[j][v];
      }
      int64_t t = in.step(r + n);
      if (t >= 0 && t < steps)
        gd_store(y + corner + t * channels, sum);
    }
  }
}

extern "C" __global__ void __launch_bounds__(256)
    conv1d(const T0 *x, const float *w, const float *bias, T0 *y, int64_t batches, int64_t steps,
           int64_t channels, int length) {
  filter<-1>(x, w, bias, y, batches, steps, channels, length);
}
extern "C" __global__ void __launch_bounds__(256)
    conv1d_dx(const T0 *dy, const float *w, const float *bias, T0 *dx, int64_t batches,
              int64_t steps, int64_t channels, int length) {
  filter<1>(dy, w, bias, dx, batches, steps, channels, length);
}

// A block has 32 VEC channels and runs [y per, (y + 1) per) of steps, eight at a time; it leaves
// row y of partial[groups, TAPS + 1, C], the last of which is the bias. Reads dy and x once.
extern "C" __global__ void __launch_bounds__(256)
    conv1d_dw(const T0 *dy, const T0 *x, float *partial, int64_t batches, int64_t per,
              int64_t steps, int64_t channels, int length) {
  alignas(16) __shared__ float shared[8][32 * VEC];
  int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  int64_t channel = ((int64_t)blockIdx.x * 32 + tx) * VEC, runs = (steps + length - 1) / length;
  int64_t first = blockIdx.y * per, count = batches * runs;
  int64_t end = first + per < count ? first + per : count;
  float sums[TAPS + 1][VEC] = {}; // by steps back; the last one is the bias
  if (channel < channels)
    for (int64_t at = first + ty; at < end; at += 8) {
      int64_t corner = at / runs * steps * channels + channel, begin = at % runs * length;
      run<-1> in = {x + corner, steps, channels, begin, length};
      run<-1> out = {dy + corner, steps, channels, begin, length};
      float window[TAPS][VEC];
#pragma unroll
      for (int j = 1; j < TAPS; j++)
        in.load(window[j - 1], begin - j);
      for (int r = 0; r < length; r += AHEAD) {
        float next[AHEAD][VEC], slope[AHEAD][VEC];
#pragma unroll
        for (int n = 0; n < AHEAD; n++) {
          in.load(next[n], begin + r + n);
          out.load(slope[n], begin + r + n);
        }
#pragma unroll
        for (int n = 0; n < AHEAD; n++)
#pragma unroll
          for (int v = 0; v < VEC; v++) {
#pragma unroll
            for (int j = TAPS - 1; j > 0; j--)
              window[j][v] = window[j - 1][v];
            window[0][v] = next[n][v];
#pragma unroll
            for (int j = 0; j < TAPS; j++)
              sums[j][v] += slope[n][v] * window[j][v];
            sums[TAPS][v] += slope[n][v];
          }
      }
    }
#pragma unroll
  for (int j = 0; j <= TAPS; j++) {
    gd_store(&shared[ty][tx * VEC], sums[j]);
    __syncthreads();
    for (int i = threadIdx.x; i < 32 * VEC; i += 256) {
      float sum = 0;
      for (int k = 0; k < 8; k++)
        sum += shared[k][i];
      int64_t tap = j == TAPS ? TAPS : TAPS - 1 - j, c = (int64_t)blockIdx.x * 32 * VEC + i;
      if (c < channels)
        partial[(blockIdx.y * (TAPS + 1) + tap) * channels + c] = sum;
    }
    __syncthreads();
  }
}
#endif
