// The parts of an unfused selective scan, whose fp32 tensors [B,T,C,S] hold one state per step and
// channel; the formulas are those of ref_states.c. A row is one of the B T steps, a position one of
// the C S states of a row. T0 and T1: dtypes of the tensors without states. VEC states of a channel
// move as one. All are bound by the bytes of the tensors of states, each read or written once.

// A thread has VEC positions, of which it knows what does not change by row, and every gridDim.y-th
// row.
#define POSITIONS                                                           \
  int64_t width = channels * states;                                        \
  int64_t position = ((int64_t)blockIdx.x * 256 + threadIdx.x) * VEC;       \
  if (position >= width)                                                    \
    return;                                                                 \
  int64_t channel = position / states

// Writes 4 bytes a state.
extern "C" __global__ void __launch_bounds__(256)
    decay(const T0 *delta, const float *a_log, float *a, int64_t rows, int64_t channels,
          int64_t states) {
  POSITIONS;
  float rate[VEC], value[VEC];
  gd_load(a_log + position, rate);
#pragma unroll
  for (int v = 0; v < VEC; v++)
    rate[v] = expf(rate[v]);
#pragma unroll 4
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float step = gd_float(delta[row * channels + channel]);
#pragma unroll
    for (int v = 0; v < VEC; v++)
      value[v] = expf(-step * rate[v]);
    gd_store(a + row * width + position, value);
  }
}

extern "C" __global__ void __launch_bounds__(256)
    outer(const T0 *x, const T1 *b, float *y, int64_t rows, int64_t channels, int64_t states) {
  POSITIONS;
  int64_t state = position - channel * states;
#pragma unroll 4
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    float value[VEC], factor = gd_float(x[row * channels + channel]);
    gd_load(b + row * states + state, value);
#pragma unroll
    for (int v = 0; v < VEC; v++)
      value[v] *= factor;
    gd_store(y + row * width + position, value);
  }
}

// dA_log, first stage: row blockIdx.y of partial has the sums over rows [y per, (y + 1) per).
// Reads 8 bytes a state.
extern "C" __global__ void __launch_bounds__(256)
    decay_grad_rates(const float *da, const float *a, const T0 *delta, const float *a_log,
                     float *partial, int64_t rows, int64_t per, int64_t channels, int64_t states) {
  POSITIONS;
  int64_t first = blockIdx.y * per, end = first + per < rows ? first + per : rows;
  float sum[VEC] = {}, rate[VEC];
#pragma unroll 4
  for (int64_t row = first; row < end; row++) {
    float gradient[VEC], value[VEC], step = gd_float(delta[row * channels + channel]);
    gd_load(da + row * width + position, gradient);
    gd_load(a + row * width + position, value);
#pragma unroll
    for (int v = 0; v < VEC; v++)
      sum[v] -= gradient[v] * value[v] * step;
  }
  gd_load(a_log + position, rate);
#pragma unroll
  for (int v = 0; v < VEC; v++)
    partial[blockIdx.y * width + position + v] = sum[v] * expf(rate[v]);
}

// `lanes` threads (a power of two up to 32) have one channel of a row and sum over its states.
#define ITEMS                                                                              \
  int64_t item = (int64_t)blockIdx.x * (256 / lanes) + threadIdx.x / lanes;                \
  bool live = item < rows * channels;                                                      \
  int64_t row = rows * channels >> 32 ? item / channels : (uint32_t)item / (uint32_t)channels; \
  float sum = 0

// ddelta. Reads 8 bytes a state.
extern "C" __global__ void __launch_bounds__(256)
    decay_grad_steps(const float *da, const float *a, const float *a_log, T0 *ddelta, int64_t rows,
                     int64_t channels, int64_t states, int lanes) {
  ITEMS;
  int64_t channel = item - row * channels;
  if (live)
    for (int64_t s = threadIdx.x % lanes * VEC; s < states; s += lanes * VEC) {
      float gradient[VEC], value[VEC], rate[VEC];
      gd_load(da + item * states + s, gradient);
      gd_load(a + item * states + s, value);
      gd_load(a_log + channel * states + s, rate);
#pragma unroll
      for (int v = 0; v < VEC; v++)
        sum -= gradient[v] * value[v] * expf(rate[v]);
    }
  sum = gd_warp<gd_add>(sum, lanes);
  if (live && threadIdx.x % lanes == 0)
    ddelta[item] = gd_to<T0>(sum);
}

// Reads 4 bytes a state.
extern "C" __global__ void __launch_bounds__(256)
    contract_states(const float *h, const T0 *c, T1 *y, int64_t rows, int64_t channels,
                    int64_t states, int lanes) {
  ITEMS;
  if (live)
    for (int64_t s = threadIdx.x % lanes * VEC; s < states; s += lanes * VEC) {
      float value[VEC], factor[VEC];
      gd_load(h + item * states + s, value);
      gd_load(c + row * states + s, factor);
#pragma unroll
      for (int v = 0; v < VEC; v++)
        sum += value[v] * factor[v];
    }
  sum = gd_warp<gd_add>(sum, lanes);
  if (live && threadIdx.x % lanes == 0)
    y[item] = gd_to<T1>(sum);
}

// A block has a row; `across` threads (a power of two up to 256) lie along states, the others along
// channels. Reads 4 bytes a state.
extern "C" __global__ void __launch_bounds__(256)
    contract_channels(const float *h, const T0 *y, T1 *out, int64_t channels, int64_t states,
                      int across) {
  __shared__ float sums[256];
  int64_t row = blockIdx.x;
  int down = 256 / across;
  for (int64_t first = 0; first < states; first += across) {
    int64_t s = first + threadIdx.x % across;
    float sum = 0;
    if (s < states)
#pragma unroll 8
      for (int64_t c = threadIdx.x / across; c < channels; c += down)
        sum += h[(row * channels + c) * states + s] * gd_float(y[row * channels + c]);
    sums[threadIdx.x] = sum;
    for (int half = down / 2; half > 0; half /= 2) {
      __syncthreads();
      if (threadIdx.x < half * across)
        sums[threadIdx.x] += sums[threadIdx.x + half * across];
    }
    if (threadIdx.x < across && s < states) // it has written what it reads
      out[row * states + s] = gd_to<T1>(sums[threadIdx.x]);
    __syncthreads();
  }
}

// A thread has one position of a sequence and walks its steps, several of them loaded ahead. h may
// be x. 12 bytes a state.
extern "C" __global__ void __launch_bounds__(256)
    recur(const float *a, const float *x, float *h, int64_t batches, int64_t steps, int64_t width) {
  int64_t item = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (item >= batches * width)
    return;
  int64_t at = item / width * steps * width + item % width;
  float state = 0;
  int64_t t = 0;
  for (; t + 8 <= steps; t += 8, at += 8 * width) {
    float factor[8], added[8];
#pragma unroll
    for (int k = 0; k < 8; k++) {
      factor[k] = a[at + k * width];
      added[k] = x[at + k * width];
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
      state = factor[k] * state + added[k];
      h[at + k * width] = state;
    }
  }
  for (; t < steps; t++, at += width) {
    state = a[at] * state + x[at];
    h[at] = state;
  }
}

// Backward. dx may be dh. 20 bytes a state.
extern "C" __global__ void __launch_bounds__(256)
    recur_grad(const float *dh, const float *a, const float *h, float *dx, float *da,
               int64_t batches, int64_t steps, int64_t width) {
  int64_t item = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (item >= batches * width)
    return;
  int64_t begin = item / width * steps * width + item % width;
  float carried = 0;
  int64_t t = steps;
  for (; t >= 8; t -= 8) { // steps t - 1 down to t - 8
    float gradient[8], factor[8], before[8];
#pragma unroll
    for (int k = 0; k < 8; k++) {
      int64_t at = begin + (t - 1 - k) * width;
      gradient[k] = dh[at];
      factor[k] = a[at];
      before[k] = t - 1 - k > 0 ? h[at - width] : 0;
    }
#pragma unroll
    for (int k = 0; k < 8; k++) {
      int64_t at = begin + (t - 1 - k) * width;
      float g = gradient[k] + carried;
      carried = factor[k] * g;
      dx[at] = g;
      da[at] = g * before[k];
    }
  }
  for (t--; t >= 0; t--) {
    int64_t at = begin + t * width;
    float g = dh[at] + carried;
    carried = a[at] * g;
    dx[at] = g;
    da[at] = t > 0 ? g * h[at - width] : 0;
  }
}
