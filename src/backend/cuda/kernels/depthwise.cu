// The filter over images with one K x K kernel a channel, x[B,H,W,C] in dtype T0, and its
// gradients; the formulas are those of ref_filter.c. TAPS: K where there is a fast loop for it; 0:
// any odd K.
//
// Fast: neighbouring lanes have neighbouring channels. A warp walks down a strip of ACROSS columns
// of outputs, image after image, and all that it needs again stays in registers: a row of inputs is
// loaded once a strip and meets all TAPS rows of outputs that it belongs to, 343 products for 13
// loads at K 7. The next row is loaded while this one is multiplied. 98 FLOPs an output meet 8
// bytes (fp32), so the floor is the larger of bytes / bandwidth and FLOPs / rate, on an H200 equal
// to within a quarter; nearly nine in ten instructions of the loop are products.

#define ACROSS 7 // images of 7, 14, 28, 56 are whole strips
#define WARPS 4  // of a block, one a scheduler; as in op_conv.c
#define BLOCKS 3 // at once on a multiprocessor: 168 registers a thread
#define ROUND 10 // sums of depthwise_dw that go through shared memory at a time

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
#define HALF (TAPS / 2)
#define WIDE (ACROSS + TAPS - 1)
#define ALL (TAPS * TAPS + 1)                  // the last one is the bias
#define STRIPS ((WIDTH + ACROSS - 1) / ACROSS) // beside each other
#define EVEN (WIDTH % ACROSS == 0)
#define TILES ((CHANNELS + 31) / 32)
#define PITCH ((int64_t)WIDTH * CHANNELS)

// What a warp walks down: rows [top, bottom) of outputs (depthwise_dw: of x) of `images` images.
// Several bands of an image and several images of a warp do not go together.
struct strip {
  int64_t corner; // element of the first image, the first column and the channel
  int images, column, top, bottom;

  GD_DEVICE strip(int64_t at, int channel, int64_t all, int height, int band, int each) {
    int bands = (height + band - 1) / band;
    column = (int)(at % STRIPS) * ACROSS;
    top = (int)(at / STRIPS % bands) * band;
    bottom = top + band < height ? top + band : height;
    int64_t image = at / STRIPS / bands * each;
    images = image + each < all ? each : (int)(all - image);
    corner = image * height * PITCH + (int64_t)column * CHANNELS + channel;
  }
  // Is column c of a row of inputs inside? Column q of a row of outputs?
  GD_DEVICE bool input(int c) const {
    return (c >= HALF || column > 0) && ((EVEN && c < ACROSS + HALF) || column + c - HALF < WIDTH);
  }
  GD_DEVICE bool output(int q) const { return EVEN || column + q < WIDTH; }
  // Those inside; the others stay as they are.
  GD_DEVICE void load_inputs(T0 (&values)[WIDE], const T0 *from) const {
#pragma unroll
    for (int c = 0; c < WIDE; c++)
      if (input(c))
        values[c] = from[(int64_t)(c - HALF) * CHANNELS];
  }
  GD_DEVICE void load_outputs(T0 (&values)[ACROSS], const T0 *from) const {
#pragma unroll
    for (int q = 0; q < ACROSS; q++)
      if (output(q))
        values[q] = from[(int64_t)q * CHANNELS];
  }
  GD_DEVICE void store(T0 *to, int q, float value) const {
    if (output(q))
      to[(int64_t)q * CHANNELS] = gd_to<T0>(value);
  }
};

template <int N> GD_DEVICE void clear(T0 (&values)[N]) {
#pragma unroll
  for (int i = 0; i < N; i++)
    values[i] = gd_to<T0>(0);
}

// Lanes past the last channel do what the last one does.
GD_DEVICE int lane_channel(int first) {
  int channel = first + (int)(threadIdx.x % 32);
  return channel < CHANNELS ? channel : CHANNELS - 1;
}

// sums[o]: of output row h - HALF + o, after input row h. That they move up by one a row costs
// nothing: the first product of a row goes to another register than what it is added to. Columns
// of inputs are the outer loop, so that products that follow each other are of different sums.
GD_DEVICE void add_row(float (&sums)[TAPS][ACROSS], const T0 (&values)[WIDE],
                       const float (&weights)[TAPS * TAPS], float start) {
#pragma unroll
  for (int c = 0; c < WIDE; c++) {
    float value = gd_float(values[c]);
#pragma unroll
    for (int o = 0; o < TAPS; o++)
#pragma unroll
      for (int j = TAPS - 1; j >= 0; j--) {
        int q = c - j;
        if (q < 0 || q >= ACROSS)
          continue;
        float before = j ? sums[o][q] : o < TAPS - 1 ? sums[(o + 1) % TAPS][q] : start;
        sums[o][q] = fmaf(value, weights[(TAPS - 1 - o) * TAPS + j], before);
      }
  }
}

// Item `at` of `count` is warp at % WARPS of a block; see strip.
template <bool FLIP>
GD_DEVICE void filter(const T0 *x, const float *w, const float *bias, T0 *y, int64_t images,
                      int64_t count, int height, int band, int each) {
  __shared__ float filters[32 * TAPS * TAPS];
  int first_channel = blockIdx.x % TILES * 32, channel = lane_channel(first_channel);
  int64_t at = (int64_t)(blockIdx.x / TILES) * WARPS + threadIdx.x / 32;
  strip s(at < count ? at : count - 1, channel, images, height, band, each);
  int first = s.top > HALF ? s.top - HALF : 0; // row of inputs
  int last = (s.bottom + HALF < height ? s.bottom + HALF : height) - 1;
  const T0 *from = x + s.corner + first * PITCH;
  T0 *to = y + s.corner + (first - HALF) * PITCH;
  T0 values[WIDE], others[WIDE]; // of this row and the next, in turn
  clear(values);
  clear(others);
  s.load_inputs(values, from);
  for (int i = threadIdx.x; i < 32 * TAPS * TAPS; i += 32 * WARPS)
    if (first_channel * TAPS * TAPS + i < CHANNELS * TAPS * TAPS)
      filters[i] = w[first_channel * TAPS * TAPS + i];
  __syncthreads();
  if (at >= count)
    return;
  float weights[TAPS * TAPS], start = bias ? bias[channel] : 0, sums[TAPS][ACROSS];
#pragma unroll
  for (int i = 0; i < TAPS * TAPS; i++)
    weights[i] =
        filters[(channel - first_channel) * TAPS * TAPS + (FLIP ? TAPS * TAPS - 1 - i : i)];
#pragma unroll
  for (int i = 0; i < TAPS * ACROSS; i++)
    sums[i / ACROSS][i % ACROSS] = start;

  int h = first, left = s.images * (last - first + 1);
  auto step = [&](const T0(&row)[WIDE], T0(&next)[WIDE]) {
    if (left > 1)
      from += PITCH;
    s.load_inputs(next, from);
    add_row(sums, row, weights, start);
    if (h - HALF >= s.top)
#pragma unroll
      for (int q = 0; q < ACROSS; q++)
        s.store(to, q, sums[0][q]);
    if (h == last) { // outputs that want no more; the next image begins
#pragma unroll
      for (int i = ACROSS; i < TAPS * ACROSS; i++) {
        int o = i / ACROSS, q = i % ACROSS, row_at = h - HALF + o;
        if (o > HALF)
          sums[o][q] = start;
        else if (row_at >= s.top && row_at < s.bottom)
          s.store(to + o * PITCH, q, sums[o][q]);
      }
      h = first - 1;
    }
    h++;
    to += PITCH;
    left--;
  };
#pragma unroll 1
  while (true) {
    step(values, others);
    if (left == 0)
      return;
    step(others, values);
    if (left == 0)
      return;
  }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    depthwise(const T0 *x, const float *w, const float *bias, T0 *y, int64_t images, int64_t count,
              int height, int band, int each) {
  filter<false>(x, w, bias, y, images, count, height, band, each);
}
extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    depthwise_dx(const T0 *dy, const float *w, const float *bias, T0 *dx, int64_t images,
                 int64_t count, int height, int band, int each) {
  filter<true>(dy, w, bias, dx, images, count, height, band, each);
}

// Here the sums stand still and the rows of dy around a row of x move: slopes[(u + o) % TAPS] is
// row h - HALF + o in round u of TAPS unrolled ones, so none is copied. Rows of dy outside the
// image are 0.
struct slopes_walk {
  float slopes[TAPS][ACROSS];
  T0 coming[ACROSS]; // row h + HALF, which is on its way
  const T0 *from;

  // dy: of row `top` and the strip.
  GD_DEVICE void begin(const strip &s, const T0 *dy, int height) {
    from = dy - HALF * PITCH;
#pragma unroll
    for (int o = 0; o < TAPS; o++) {
      int row = s.top - HALF + o;
      clear(coming);
      if (row >= 0 && row < height)
        s.load_outputs(coming, from + o * PITCH);
      if (o < TAPS - 1)
#pragma unroll
        for (int q = 0; q < ACROSS; q++)
          slopes[o][q] = gd_float(coming[q]);
    }
    // Where there is no next row the last one is loaded again and not used.
    int ahead = height - 1 - s.top;
    from += (HALF + (ahead < HALF ? ahead : HALF)) * PITCH;
  }
  GD_DEVICE void arrive(const strip &s, int u, int h, int height) {
#pragma unroll
    for (int q = 0; q < ACROSS; q++)
      slopes[(u + TAPS - 1) % TAPS][q] = h + HALF < height ? gd_float(coming[q]) : 0;
    if (h + 1 + HALF < height)
      from += PITCH;
    s.load_outputs(coming, from);
  }
};

// A block has 32 channels and items [y WARPS, (y + 1) WARPS) of count; it leaves row y of
// partial[groups, ALL, C].
extern "C" __global__ void __launch_bounds__(32 * WARPS, BLOCKS)
    depthwise_dw(const T0 *dy, const T0 *x, float *partial, int64_t images, int64_t count,
                 int height, int band, int each) {
  __shared__ float shared[WARPS][ROUND][32];
  int tx = threadIdx.x % 32, ty = threadIdx.x / 32, first_channel = blockIdx.x * 32;
  int64_t at = (int64_t)blockIdx.y * WARPS + ty;
  float sums[(ALL + ROUND - 1) / ROUND * ROUND] = {};
  if (at < count) {
    strip s(at, lane_channel(first_channel), images, height, band, each);
    T0 values[2][WIDE]; // of this row and the next, in turn
    clear(values[0]);
    clear(values[1]);
    slopes_walk walk;
#pragma unroll 1
    for (int n = 0; n < s.images; n++) {
      int64_t row = s.corner + ((int64_t)n * height + s.top) * PITCH;
      const T0 *from = x + row;
      s.load_inputs(values[0], from);
      walk.begin(s, dy + row, height);
      int h = s.top;
#pragma unroll 1
      while (true) {
#pragma unroll
        for (int u = 0; u < TAPS; u++) {
          walk.arrive(s, u, h, height);
          h++;
          if (h < s.bottom)
            from += PITCH;
          s.load_inputs(values[(u + 1) % 2], from);
#pragma unroll
          for (int c = 0; c < WIDE; c++) {
            float value = gd_float(values[u % 2][c]);
#pragma unroll
            for (int o = 0; o < TAPS; o++)
#pragma unroll
              for (int j = TAPS - 1; j >= 0; j--) {
                int q = c - j, tap = (TAPS - 1 - o) * TAPS + j;
                if (q >= 0 && q < ACROSS)
                  sums[tap] = fmaf(walk.slopes[(u + o) % TAPS][q], value, sums[tap]);
              }
          }
#pragma unroll
          for (int q = 0; q < ACROSS; q++)
            sums[ALL - 1] += walk.slopes[(u + HALF) % TAPS][q];
          if (h == s.bottom)
            break;
        }
        if (h == s.bottom)
          break;
#pragma unroll
        for (int c = 0; c < WIDE; c++) // TAPS is odd
          values[0][c] = values[1][c];
      }
    }
  }
#pragma unroll
  for (int from = 0; from < ALL; from += ROUND) {
#pragma unroll
    for (int i = 0; i < ROUND; i++)
      shared[ty][i][tx] = sums[from + i];
    __syncthreads();
    for (int i = threadIdx.x; i < ROUND * 32; i += 32 * WARPS) {
      float sum = 0;
      for (int k = 0; k < WARPS; k++)
        sum += shared[k][i / 32][i % 32];
      int tap = from + i / 32, c = first_channel + i % 32;
      if (tap < ALL && c < CHANNELS)
        partial[((int64_t)blockIdx.y * ALL + tap) * CHANNELS + c] = sum;
    }
    __syncthreads();
  }
}
#endif
