// The filter over images with one K x K kernel a channel, x[B,H,W,C] in dtype T0, and its
// gradients; the formulas are those of ref_filter.c. TAPS: K where there is a fast loop for it; 0:
// any odd K.
//
// Fast: neighbouring lanes have neighbouring channels. A warp walks down a strip of ACROSS columns
// of outputs, image after image, and all that it needs again stays in registers: a row of inputs
// meets all TAPS rows of outputs that it belongs to, 343 multiply-adds for 13 numbers at K 7. Rows come
// through a ring in shared memory, the warp's own: RING - 1 of them are on their way at no cost in
// registers, and the registers decide how many warps there are to fill each other's waits. 98 FLOPs
// an output meet 8 bytes (fp32), so the floor is the larger of bytes / bandwidth and FLOPs / rate,
// on an H200 equal to within a quarter; in bf16 it is the FLOPs.

#define ACROSS 7    // images of 7, 14, 28, 56 are whole strips
#define WARPS 4     // of a block, one a scheduler; ACROSS to DW_BLOCKS: as in op_conv.c
#define BLOCKS 4    // at once on a multiprocessor: 128 registers a thread
#define DW_BLOCKS 3 // of depthwise_dw, which has more to keep: 168
#define RING 4      // rows
#define AHEAD 4     // numbers of a row that are read before the first is used
#define ROUND 10    // sums of depthwise_dw that go through shared memory at a time

#if TAPS == 0
// One output a thread. flip: the filter is reversed, which makes it the gradient to x.
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
      float gradient = gd_float(dy[at]);
      sum += bias ? gradient : gradient * gd_float(x[at + (h * width + v) * channels]);
    }
  }
  partial[(group * (k * k + 1) + tap) * channels + channel] = sum;
}

#else

// CHANNELS and WIDTH are known: what is copied of a row differs by constants. WIDE_COPIES: 16 bytes
// at a time and asynchronously, so x, dy and rows of channels begin on 16; 0: by element, at once.
#define HALF (TAPS / 2)
#define WIDE (ACROSS + TAPS - 1)
#define ALL (TAPS * TAPS + 1)                  // the last one is the bias
#define STRIPS ((WIDTH + ACROSS - 1) / ACROSS) // in a row
#define ONE (STRIPS == 1)
#define EVEN (ONE || WIDTH % ACROSS == 0)
#define GIVES (ONE ? WIDTH : ACROSS) // columns of a strip
#define TAKES (ONE ? WIDTH : WIDE)   // columns of inputs, SIDE of them left of the strip
#define SIDE (ONE ? 0 : HALF)
#define TILES ((CHANNELS + 31) / 32)
#define PITCH ((int64_t)WIDTH * CHANNELS)
#define ELEMENT ((int)sizeof(T0))
#define COPY (WIDE_COPIES ? 16 / ELEMENT : 1) // elements of a lane, so columns of a warp

// What a warp walks down: rows [top, bottom) of outputs (depthwise_dw: of x) of `images` images.
// A warp has several bands of an image, or several images, never both.
struct strip {
  int64_t corner; // element of the first image, column and channel
  int images, column, top, bottom;

  GD_DEVICE strip(int64_t at, int64_t all, int height, int band, int each) {
    int bands = (height + band - 1) / band;
    column = (int)(at % STRIPS) * ACROSS;
    top = (int)(at / STRIPS % bands) * band;
    bottom = top + band < height ? top + band : height;
    int64_t image = at / STRIPS / bands * each;
    images = image + each < all ? each : (int)(all - image);
    corner = image * height * PITCH + (int64_t)column * CHANNELS;
  }
};

// Addresses in shared memory are numbers of bytes: 32 bits, with constants added for nothing.
// Volatile: reads and copies stay in the order in which they are written here.
// x, which is then kept and not computed again in a loop.
GD_DEVICE uint32_t held(uint32_t x) { return __shfl_sync(0xffffffff, x, threadIdx.x % 32); }
// The warp of the block; the compiler sees that all lanes have the same.
GD_DEVICE int this_warp() { return __shfl_sync(0xffffffff, (int)threadIdx.x / 32, 0); }
GD_DEVICE float read_shared(uint32_t at) {
  T0 x;
  if constexpr (ELEMENT == 4)
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(*(float *)&x) : "r"(at));
  else
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(*(uint16_t *)&x) : "r"(at));
  return gd_float(x);
}
GD_DEVICE void write_shared(uint32_t to, T0 x) {
  if constexpr (ELEMENT == 4)
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(*(float *)&x) : "memory");
  else
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(to), "h"(*(uint16_t *)&x) : "memory");
}
// All but the newest LEFT groups of copies have arrived, for all lanes.
template <int LEFT> GD_DEVICE void copies_wait() {
  gd_copies_wait<LEFT>();
  __syncwarp();
}

// How a lane copies rows of N columns, column `first` of the strip the first of them, to shared
// memory as [N][32], N rounded up. REVERSES: a strip that is reversed has its columns in reverse.
template <int N, bool REVERSES = false> struct copier {
  static constexpr int TIMES = (N + COPY - 1) / COPY, BYTES = TIMES * COPY * 32 * ELEMENT;
  int64_t offset; // of its elements from those of the strip's corner
  int64_t step;   // from one of its pieces to the next
  uint32_t mask;  // which of its columns are inside

  GD_DEVICE copier(int column, int first, int first_channel, bool reversed = false) {
    int lane = threadIdx.x % 32, part = lane % (32 / COPY) * COPY, c = lane / (32 / COPY);
    int start = REVERSES && reversed ? ACROSS - 1 - first - c : first + c;
    offset = (int64_t)start * CHANNELS + first_channel + part;
    step = (REVERSES && reversed ? -COPY : COPY) * (int64_t)CHANNELS;
    mask = 0;
#pragma unroll
    for (int i = 0; i < TIMES; i++) {
      int q = c + i * COPY, v = column + start + (REVERSES && reversed ? -i : i) * COPY;
      if (q < N && v >= 0 && v < WIDTH && first_channel + part < CHANNELS)
        mask |= 1u << i;
    }
  }
  // to: of the row and the lane; from: of the lane; where a row does not exist, zeros.
  GD_DEVICE void copy(uint32_t to, const T0 *from, bool exists) const {
#pragma unroll
    for (int i = 0; i < TIMES; i++) {
      bool there = exists && mask >> i & 1;
      const T0 *piece = from + i * (REVERSES ? step : (int64_t)COPY * CHANNELS);
      if constexpr (WIDE_COPIES)
        gd_copy<16>(to + i * 512, piece, there);
      else
        write_shared(to + i * 32 * ELEMENT, there ? *piece : gd_to<T0>(0));
    }
  }
};
#define ROW (copier<TAKES>::BYTES)

// sums[o]: of output row h - HALF + o, after input row h. That they move up by one a row costs
// nothing: the first multiply-add of a row writes another register than the one it adds to. Columns
// of inputs are the outer loop, so that consecutive multiply-adds are of different sums.
// copy: what is to be done while the first numbers are on their way.
template <typename Copy>
GD_DEVICE void add_row(float (&sums)[TAPS][GIVES], uint32_t row,
                       const float (&weights)[TAPS * TAPS], float start, const Copy &copy) {
  float values[TAKES];
#pragma unroll
  for (int c = 0; c < AHEAD && c < TAKES; c++)
    values[c] = read_shared(row + c * 32 * ELEMENT);
  copy();
#pragma unroll
  for (int c = 0; c < TAKES; c++) {
    if (c + AHEAD < TAKES)
      values[c + AHEAD] = read_shared(row + (c + AHEAD) * 32 * ELEMENT);
#pragma unroll
    for (int o = 0; o < TAPS; o++)
#pragma unroll
      for (int j = TAPS - 1; j >= 0; j--) {
        int q = c - SIDE + HALF - j;
        if (q < 0 || q >= GIVES)
          continue;
        bool first = c == 0 || j == 0;
        float before = !first ? sums[o][q] : o < TAPS - 1 ? sums[(o + 1) % TAPS][q] : start;
        sums[o][q] = fmaf(values[c], weights[(TAPS - 1 - o) * TAPS + j], before);
      }
  }
}

// Item `at` of `count` is warp at % WARPS of a block; see strip.
template <bool FLIP>
GD_DEVICE void filter(const T0 *x, const float *w, const float *bias, T0 *y, int64_t images,
                      int64_t count, int height, int band, int each) {
  __shared__ float filters[32 * TAPS * TAPS];
  __shared__ __align__(16) unsigned char rings[WARPS][RING * ROW];
  int lane = threadIdx.x % 32, warp = this_warp(), first_channel = blockIdx.x % TILES * 32;
  int channel = first_channel + lane;
  bool stores = CHANNELS % 32 == 0 || channel < CHANNELS;
  int64_t at = (int64_t)(blockIdx.x / TILES) * WARPS + warp;
  strip s(at < count ? at : count - 1, images, height, band, each);
  int first = s.top > HALF ? s.top - HALF : 0; // row of inputs
  int last = (s.bottom + HALF < height ? s.bottom + HALF : height) - 1;
  int left = s.images * (last - first + 1);
  copier<TAKES> inputs(s.column, -SIDE, first_channel);
  // Where the lane copies to, and where it reads.
  uint32_t ring = held(gd_shared(rings[warp] + lane * COPY * ELEMENT));
  int back = lane * (COPY - 1) * ELEMENT;
  uint32_t to_row = ring + (RING - 1) * ROW, row = ring - back, row_end = row + RING * ROW;
  const T0 *from = x + s.corner + inputs.offset + first * PITCH;
  T0 *to = y + s.corner + (first - HALF) * PITCH + channel;
#pragma unroll
  for (int r = 0; r < RING - 1; r++) {
    if (r < left)
      inputs.copy(ring + r * ROW, from + r * PITCH, true);
    gd_copies_commit();
  }
  for (int i = threadIdx.x; i < 32 * TAPS * TAPS; i += 32 * WARPS) {
    int64_t item = (int64_t)first_channel * TAPS * TAPS + i;
    filters[i] = item < (int64_t)CHANNELS * TAPS * TAPS ? w[item] : 0;
  }
  __syncthreads();
  if (at >= count)
    return;
  float weights[TAPS * TAPS], start = bias && stores ? bias[channel] : 0, sums[TAPS][GIVES];
#pragma unroll
  for (int i = 0; i < TAPS * TAPS; i++)
    weights[i] = filters[lane * TAPS * TAPS + (FLIP ? TAPS * TAPS - 1 - i : i)];
#pragma unroll
  for (int i = 0; i < TAPS * GIVES; i++)
    sums[i / GIVES][i % GIVES] = start;

  from += (left >= RING ? RING - 1 : 0) * PITCH; // where all have come: a row that is, for nobody
#pragma unroll 1
  for (int h = first; left > 0; left--) {
    copies_wait<RING - 2>();
    add_row(sums, row, weights, start, [&] {
      inputs.copy(to_row, from, true);
      gd_copies_commit();
    });
    if (left > RING)
      from += PITCH;
    to_row = row + back;
    row = row + ROW == row_end ? row_end - RING * ROW : row + ROW;
    if (h - HALF >= s.top)
#pragma unroll
      for (int q = 0; q < GIVES; q++)
        if (stores && (EVEN || s.column + q < WIDTH))
          to[(int64_t)q * CHANNELS] = gd_to<T0>(sums[0][q]);
    if (h == last) { // outputs that want no more; the next image begins
#pragma unroll
      for (int i = GIVES; i < TAPS * GIVES; i++) {
        int o = i / GIVES, q = i % GIVES, at_row = h - HALF + o;
        if (o > HALF)
          sums[o][q] = start;
        else if (at_row >= s.top && at_row < s.bottom && stores && (EVEN || s.column + q < WIDTH))
          to[o * PITCH + (int64_t)q * CHANNELS] = gd_to<T0>(sums[o][q]);
      }
      h = first - 1;
    }
    h++;
    to += PITCH;
  }
  copies_wait<0>(); // rows for nobody
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

// The walk of depthwise_dw: the sums stand still and the rows of dy around a row of x move. A step
// brings row h of x and, HALF rows ahead of it over the ends of images, one of dy. What is outside
// of an image costs nothing: at 7 x 7, 37 x 37 of 49 x 49 multiply-adds are inside. Rows of dy outside
// are passed over; columns of x are known not to be there where a strip is a whole row, and where
// two are: the right one has its columns in reverse (TWO), so that both want more on one side.
#define TWO (STRIPS == 2)
#define DW_TAKES (ONE ? WIDTH : TWO ? ACROSS + HALF : WIDE)
#define DW_SIDE (ONE || TWO ? 0 : HALF)
// Steps that are written out, an even number; then rows of dy move on. Shorter loops are 4 to 10 %
// faster in 16 bits and with two strips, and 3 to 4 % slower else (H200, 256 images).
#define SHORT (ELEMENT == 2 || TWO)
#define TURN (SHORT ? 2 : RING)

struct steps {
  static constexpr int X_BYTES = copier<DW_TAKES, TWO>::BYTES;
  static constexpr int BYTES = X_BYTES + copier<GIVES, TWO>::BYTES; // of a step: x, then dy
  copier<DW_TAKES, TWO> inputs;
  copier<GIVES, TWO> outputs;
  const T0 *x, *dy; // of the next copy
  int left, least;  // rows of x to be copied; where left is not above least, there is none of dy

  GD_DEVICE steps(const strip &s, const T0 *all_x, const T0 *all_dy, int height, int first_channel)
      : inputs(s.column, -DW_SIDE, first_channel, s.column > 0),
        outputs(s.column, 0, first_channel, s.column > 0) {
    int below = s.bottom + HALF < height ? s.bottom + HALF : height;
    left = s.images * (s.bottom - s.top);
    least = s.bottom + HALF - below;
    x = all_x + s.corner + inputs.offset + s.top * PITCH;
    dy = all_dy + s.corner + outputs.offset + (s.top + HALF) * PITCH;
    inputs.mask = held(inputs.mask);
    outputs.mask = held(outputs.mask);
  }
  // The next step, to where the lane copies to; nothing of what there is not.
  GD_DEVICE void copy(uint32_t to) {
    if (left > least)
      outputs.copy(to + X_BYTES, dy, true);
    if (left > 0)
      inputs.copy(to, x, true);
    gd_copies_commit();
    left--;
    dy += PITCH;
    x += PITCH;
  }
};

// Adds a row of x times row O of the TAPS rows of dy, by columns of x or, in short turns, of
// dy, as that is faster.
template <int O>
GD_DEVICE void add_taps(float *sums, const float (*gradients)[GIVES], const float *values) {
#pragma unroll
  for (int i = 0; i < (SHORT ? GIVES : DW_TAKES); i++)
#pragma unroll
    for (int k = 0; k < TAPS; k++) {
      int j = SHORT ? k : TAPS - 1 - k, tap = (TAPS - 1 - O) * TAPS + j;
      int q = SHORT ? i : i - DW_SIDE + HALF - j, c = q + DW_SIDE - HALF + j;
      if (q >= 0 && q < GIVES && c >= 0 && c < DW_TAKES)
        sums[tap] = fmaf(gradients[O][q], values[c], sums[tap]);
    }
}
// Rows of dy above that of x, the first `outside` left out; and those below, the last left out.
template <int O = 0>
GD_DEVICE void add_above(float *sums, const float (*gradients)[GIVES], const float *values,
                         int outside) {
  if constexpr (O < HALF) {
    if (O >= outside)
      add_taps<O>(sums, gradients, values);
    add_above<O + 1>(sums, gradients, values, outside);
  }
}
template <int O = TAPS - 1>
GD_DEVICE void add_below(float *sums, const float (*gradients)[GIVES], const float *values,
                         int outside) {
  if constexpr (O > HALF) {
    if (TAPS - 1 - O >= outside)
      add_taps<O>(sums, gradients, values);
    add_below<O - 1>(sums, gradients, values, outside);
  }
}

// In two parts: a sum waits for the one before.
GD_DEVICE float row_sum(const float *x) {
  float even = x[0], odd = x[GIVES > 1];
#pragma unroll
  for (int q = 2; q < GIVES; q++)
    (q % 2 ? odd : even) += x[q];
  return GIVES > 1 ? even + odd : even;
}

// sums of a warp; ring: where the lane copies to. gradients[u + o] is row h - HALF + o of dy in step u
// of a turn: rows move from register to register once a turn, not once a step. Numbers
// of the next step are read in the middle of a step; what a step has read makes room for a copy.
GD_DEVICE void add_strip(float *sums, const strip &s, steps walk, const T0 *all_dy, uint32_t ring,
                         int height, int channel) {
  uint32_t row = held(ring - threadIdx.x % 32 * (COPY - 1) * ELEMENT);
  int h = s.top;
  float gradients[TAPS + TURN][GIVES], values[2][DW_TAKES];
#pragma unroll
  for (int r = 0; r < RING; r++)
    walk.copy(ring + r * steps::BYTES);
#pragma unroll
  for (int o = 0; o < TAPS - 1; o++)
#pragma unroll
    for (int q = 0; q < GIVES; q++) {
      int at = s.top - HALF + o;
      int v = TWO && s.column ? ACROSS - 1 - q : q;
      bool there = at >= 0 && at < height * s.images && (EVEN || s.column + v < WIDTH) &&
                   (CHANNELS % 32 == 0 || channel < CHANNELS);
      int64_t item = s.corner + at * PITCH + (int64_t)v * CHANNELS + channel;
      gradients[o][q] = there ? gd_float(all_dy[item]) : 0;
    }
  copies_wait<RING - 1>();
#pragma unroll
  for (int q = 0; q < GIVES; q++)
    gradients[TAPS - 1][q] = read_shared(row + steps::X_BYTES + q * 32 * ELEMENT);
#pragma unroll
  for (int c = 0; c < DW_TAKES; c++)
    values[0][c] = read_shared(row + c * 32 * ELEMENT);
  uint32_t turn = 0; // bytes from the ring's begin
#pragma unroll 1
  while (true) {
#pragma unroll
    for (int u = 0; u < TURN; u++) {
      float *x = values[u % 2], *next = values[(u + 1) % 2];
      float(*dy)[GIVES] = gradients + u;
      int above = HALF - h, below = h + HALF + 1 - height;
      add_above(sums, dy, x, above);
      copies_wait<RING - 2>();
      uint32_t to = ring + turn + u * steps::BYTES;
      if (u == TURN - 1)
        turn = turn + TURN * steps::BYTES == RING * steps::BYTES ? 0 : turn + TURN * steps::BYTES;
      uint32_t at = row + turn + (u + 1) % TURN * steps::BYTES;
#pragma unroll
      for (int q = 0; q < GIVES; q++)
        dy[TAPS][q] = read_shared(at + steps::X_BYTES + q * 32 * ELEMENT);
#pragma unroll
      for (int c = 0; c < DW_TAKES; c++)
        next[c] = read_shared(at + c * 32 * ELEMENT);
      walk.copy(to);
      add_taps<HALF>(sums, dy, x);
      sums[ALL - 1] += row_sum(dy[HALF]);
      add_below(sums, dy, x, below);
      h = h + 1 == height ? 0 : h + 1;
      if (walk.left == -RING)
        return;
    }
#pragma unroll
    for (int i = 0; i < TAPS * GIVES; i++)
      gradients[i / GIVES][i % GIVES] = gradients[i / GIVES + TURN][i % GIVES];
  }
}

// A block has 32 channels and items [y WARPS, (y + 1) WARPS) of count; it leaves row y of
// partial[groups, ALL, C].
extern "C" __global__ void __launch_bounds__(32 * WARPS, DW_BLOCKS)
    depthwise_dw(const T0 *dy, const T0 *x, float *partial, int64_t images, int64_t count,
                 int height, int band, int each) {
  __shared__ __align__(16) union {
    unsigned char rings[WARPS][RING * steps::BYTES];
    float sums[WARPS][ROUND][32];
  } shared;
  int tx = threadIdx.x % 32, ty = this_warp(), first_channel = blockIdx.x * 32;
  int64_t at = (int64_t)blockIdx.y * WARPS + ty;
  float sums[(ALL + ROUND - 1) / ROUND * ROUND] = {};
  if (at < count) {
    strip s(at, images, height, band, each);
    add_strip(sums, s, steps(s, x, dy, height, first_channel), dy,
              held(gd_shared(shared.rings[ty] + tx * COPY * ELEMENT)), height,
              first_channel + tx);
    copies_wait<0>();
    if (TWO && s.column)
#pragma unroll
      for (int i = 0; i < TAPS * HALF; i++) {
        int left = i / HALF * TAPS + i % HALF, right = i / HALF * TAPS + TAPS - 1 - i % HALF;
        float sum = sums[left];
        sums[left] = sums[right];
        sums[right] = sum;
      }
  }
  __syncthreads(); // rings end here
#pragma unroll
  for (int from = 0; from < ALL; from += ROUND) {
#pragma unroll
    for (int i = 0; i < ROUND; i++)
      shared.sums[ty][i][tx] = sums[from + i];
    __syncthreads();
    for (int i = threadIdx.x; i < ROUND * 32; i += 32 * WARPS) {
      float sum = 0;
      for (int k = 0; k < WARPS; k++)
        sum += shared.sums[k][i / 32][i % 32];
      int tap = from + i / 32, c = first_channel + i % 32;
      if (tap < ALL && c < CHANNELS)
        partial[((int64_t)blockIdx.y * ALL + tap) * CHANNELS + c] = sum;
    }
    __syncthreads();
  }
}
#endif
