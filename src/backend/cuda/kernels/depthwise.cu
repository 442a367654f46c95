// The filter over images with one K x K kernel a channel, x[B,H,W,C] in dtype T0, and its
// gradients; the formulas are those of ref_filter.c. TAPS: K where there is a fast loop for it; 0:
// any odd K.
//
// Fast: neighbouring lanes have neighbouring channels, a thread has one channel and a patch of
// DOWN x ACROSS outputs. The filter is in registers; a row of inputs is loaded once a patch and
// meets every row of outputs it belongs to: at K 7, 686 products for 104 loads. 98 FLOPs an output
// meet 8 bytes (fp32), so the floor is the larger of bytes / bandwidth and FLOPs / rate, on an H200
// equal to within a quarter.

#define DOWN 2
#define ACROSS 7 // images of 7, 14, 28, 56 are whole patches

#if TAPS == 0
// One output a thread. flip: the filter is turned, which makes it the gradient to x.
extern "C" __global__ void __launch_bounds__(256)
    depthwise(const T0 *x, const float *w, const float *bias, T0 *y, int64_t images, int64_t height,
              int64_t width, int64_t channels, int64_t k, int flip) {
  int64_t item = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (item >= images * height * width * channels)
    return;
  int64_t channel = item % channels, column = item / channels % width;
  int64_t row = item / channels / width % height;
  float sum = bias ? bias[channel] : 0;
  for (int64_t i = 0; i < k; i++)
    for (int64_t j = 0; j < k; j++) {
      int64_t h = i - k / 2, v = j - k / 2;
      if (row + h < 0 || row + h >= height || column + v < 0 || column + v >= width)
        continue;
      int64_t tap = flip ? k * k - 1 - (i * k + j) : i * k + j;
      sum += gd_float(x[item + (h * width + v) * channels]) * w[channel * k * k + tap];
    }
  y[item] = gd_to<T0>(sum);
}

// partial[group, K K + 1, C]: a thread has a channel and a tap (the last one is the bias), and rows
// of images [z per, (z + 1) per).
extern "C" __global__ void __launch_bounds__(256)
    depthwise_dw(const T0 *dy, const T0 *x, float *partial, int64_t images, int64_t per,
                 int64_t height, int64_t width, int64_t channels, int64_t k) {
  int64_t channel = (int64_t)blockIdx.x * 256 + threadIdx.x, tap = blockIdx.y, group = blockIdx.z;
  if (channel >= channels)
    return;
  bool bias = tap == k * k;
  int64_t h = bias ? 0 : tap / k - k / 2, v = bias ? 0 : tap % k - k / 2, rows = images * height;
  int64_t end = (group + 1) * per < rows ? (group + 1) * per : rows;
  float sum = 0;
  for (int64_t row = group * per; row < end; row++) {
    if (row % height + h < 0 || row % height + h >= height)
      continue;
    for (int64_t column = v < 0 ? -v : 0; column < width && column + v < width; column++) {
      int64_t at = (row * width + column) * channels + channel;
      float slope = gd_float(dy[at]);
      sum += bias ? slope : slope * gd_float(x[at + (h * width + v) * channels]);
    }
  }
  partial[(group * (k * k + 1) + tap) * channels + channel] = sum;
}

#else

// CHANNELS and WIDTH are known: the loads of a row differ by constants.
#define WIDE (ACROSS + TAPS - 1)
#define PATCHES ((WIDTH + ACROSS - 1) / ACROSS) // beside each other
#define TILES ((CHANNELS + 31) / 32)

// Patches below each other follow each other, so that the rows they share are still in the cache.
struct patch {
  int64_t corner, row;      // element of the image's first channel; outputs begin in this row
  int column;               // and here
  uint32_t inputs, outputs; // which of the columns of a row of either exist

  GD_DEVICE patch(int64_t at, int64_t height) {
    int64_t down = (height + DOWN - 1) / DOWN;
    row = at % down * DOWN;
    column = (int)(at / down % PATCHES) * ACROSS;
    corner = at / down / PATCHES * height * WIDTH * CHANNELS;
    inputs = outputs = 0;
#pragma unroll
    for (int q = 0; q < WIDE; q++)
      if (column + q >= TAPS / 2 && column + q < WIDTH + TAPS / 2)
        inputs |= 1u << q;
#pragma unroll
    for (int q = 0; q < ACROSS; q++)
      if (column + q < WIDTH)
        outputs |= 1u << q;
  }
};

// N columns from w on of row h, of one channel; those not in `columns` and rows outside are 0.
template <int N>
GD_DEVICE void load_row(float (&values)[N], const T0 *x, int64_t h, int w, int64_t height,
                        uint32_t columns) {
  const T0 *from = x + (h * WIDTH + w) * CHANNELS;
  if (h < 0 || h >= height)
    columns = 0;
  if (columns == (1u << N) - 1) {
#pragma unroll
    for (int q = 0; q < N; q++)
      values[q] = gd_float(from[q * CHANNELS]);
  } else {
#pragma unroll
    for (int q = 0; q < N; q++)
      values[q] = columns >> q & 1 ? gd_float(from[q * CHANNELS]) : 0.0f;
  }
}

// f(o, q, tap, value) for every product of output [o][q] of a patch. x: of the patch's corner.
template <typename F>
GD_DEVICE void each_product(const patch &p, const T0 *x, int64_t height, F f) {
#pragma unroll
  for (int r = 0; r < DOWN + TAPS - 1; r++) {
    float values[WIDE];
    load_row(values, x, p.row + r - TAPS / 2, p.column - TAPS / 2, height, p.inputs);
#pragma unroll
    for (int o = 0; o < DOWN; o++)
      if (r - o >= 0 && r - o < TAPS)
#pragma unroll
        for (int j = 0; j < TAPS; j++)
#pragma unroll
          for (int q = 0; q < ACROSS; q++)
            f(o, q, (r - o) * TAPS + j, values[q + j]);
  }
}

template <bool FLIP>
GD_DEVICE void filter(const T0 *x, const float *w, const float *bias, T0 *y, int64_t height,
                      int64_t count, int64_t each) {
  __shared__ float filters[32 * TAPS * TAPS];
  int first_channel = blockIdx.x % TILES * 32, channel = first_channel + threadIdx.x % 32;
  int64_t block = blockIdx.x / TILES;
  for (int i = threadIdx.x; i < 32 * TAPS * TAPS; i += 256)
    if (first_channel * TAPS * TAPS + i < CHANNELS * TAPS * TAPS)
      filters[i] = w[first_channel * TAPS * TAPS + i];
  __syncthreads();
  if (channel >= CHANNELS)
    return;
  float weights[TAPS * TAPS], start = bias ? bias[channel] : 0;
#pragma unroll
  for (int i = 0; i < TAPS * TAPS; i++)
    weights[i] = filters[threadIdx.x % 32 * TAPS * TAPS + (FLIP ? TAPS * TAPS - 1 - i : i)];
  for (int64_t n = 0; n < each; n++) {
    int64_t at = (block * each + n) * 8 + threadIdx.x / 32;
    if (at >= count)
      return;
    patch p(at, height);
    float sums[DOWN][ACROSS];
#pragma unroll
    for (int o = 0; o < DOWN; o++)
#pragma unroll
      for (int q = 0; q < ACROSS; q++)
        sums[o][q] = start;
    each_product(p, x + p.corner + channel, height, [&](int o, int q, int tap, float value) {
      sums[o][q] += value * weights[tap];
    });
#pragma unroll
    for (int o = 0; o < DOWN; o++)
#pragma unroll
      for (int q = 0; q < ACROSS; q++)
        if (p.row + o < height && p.outputs >> q & 1)
          y[p.corner + ((p.row + o) * WIDTH + p.column + q) * CHANNELS + channel] =
              gd_to<T0>(sums[o][q]);
  }
}

extern "C" __global__ void __launch_bounds__(256, 2)
    depthwise(const T0 *x, const float *w, const float *bias, T0 *y, int64_t height, int64_t count,
              int64_t each) {
  filter<false>(x, w, bias, y, height, count, each);
}
extern "C" __global__ void __launch_bounds__(256, 2)
    depthwise_dx(const T0 *dy, const float *w, const float *bias, T0 *dx, int64_t height,
                 int64_t count, int64_t each) {
  filter<true>(dy, w, bias, dx, height, count, each);
}

// A block has 32 channels and patches [y per, (y + 1) per), eight at a time; it leaves row y of
// partial[groups, TAPS TAPS + 1, C], the last of which is the bias.
extern "C" __global__ void __launch_bounds__(256, 2)
    depthwise_dw(const T0 *dy, const T0 *x, float *partial, int64_t height, int64_t count,
                 int64_t per) {
  constexpr int ALL = TAPS * TAPS + 1, ROUND = 10; // sums that go through shared memory at a time
  __shared__ float shared[8][ROUND][32];
  int tx = threadIdx.x % 32, ty = threadIdx.x / 32;
  int first_channel = blockIdx.x * 32, channel = first_channel + tx;
  int64_t first = blockIdx.y * per, end = first + per < count ? first + per : count;
  float sums[(ALL + ROUND - 1) / ROUND * ROUND] = {};
  if (channel < CHANNELS)
    for (int64_t at = first + ty; at < end; at += 8) {
      patch p(at, height);
      float slopes[DOWN][ACROSS];
#pragma unroll
      for (int o = 0; o < DOWN; o++) {
        load_row(slopes[o], dy + p.corner + channel, p.row + o, p.column, height, p.outputs);
#pragma unroll
        for (int q = 0; q < ACROSS; q++)
          sums[ALL - 1] += slopes[o][q];
      }
      each_product(p, x + p.corner + channel, height, [&](int o, int q, int tap, float value) {
        sums[tap] += slopes[o][q] * value;
      });
    }
#pragma unroll
  for (int from = 0; from < ALL; from += ROUND) {
#pragma unroll
    for (int i = 0; i < ROUND; i++)
      shared[ty][i][tx] = sums[from + i];
    __syncthreads();
    for (int i = threadIdx.x; i < ROUND * 32; i += 256) {
      float sum = 0;
      for (int k = 0; k < 8; k++)
        sum += shared[k][i / 32][i % 32];
      int tap = from + i / 32, c = first_channel + i % 32;
      if (tap < ALL && c < CHANNELS)
        partial[((int64_t)blockIdx.y * ALL + tap) * CHANNELS + c] = sum;
    }
    __syncthreads();
  }
}
#endif
