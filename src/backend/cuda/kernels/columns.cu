// Sums over rows of a matrix, and means, which are sums divided; and the gradient of a mean, which
// is a row repeated. T0: what is read, T1: what is written. VEC elements of a row move as one;
// a block is TX times VEC columns wide and takes TY rows at once. Which rows a thread adds, and in
// which order blocks' sums are added, depends on the shape alone.

// Adds rows first, first + TY ... before end, `stride` elements apart, of VEC columns, in order; four
// of them are on their way at once.
template <typename T>
GD_DEVICE void add_rows(float (&sum)[VEC], const T *x, int64_t first, int64_t end, int64_t stride) {
  int64_t r = first;
  for (; r + 3 * TY < end; r += 4 * TY) {
    float part[4][VEC];
#pragma unroll
    for (int k = 0; k < 4; k++)
      gd_load(x + (r + k * TY) * stride, part[k]);
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
      for (int v = 0; v < VEC; v++)
        sum[v] += part[k][v];
  }
  for (; r < end; r += TY) {
    float part[VEC];
    gd_load(x + r * stride, part);
#pragma unroll
    for (int v = 0; v < VEC; v++)
      sum[v] += part[v];
  }
}

// Group g of the grid sums rows [g per, (g + 1) per) of x, divides, and writes row g of out, or
// adds to it. Rows of x are `stride` elements apart.
// Reads each element once, writes 1 / per as many: floor (bytes of x) / bandwidth.
extern "C" __global__ void __launch_bounds__(TX *TY)
    column_sums(const T0 *x, T1 *out, int64_t rows, int64_t per, int64_t columns, int64_t stride,
                float divisor, int adds) {
  __shared__ float sums[TY][TX * VEC];
  int64_t tiles = (columns + TX * VEC - 1) / (TX * VEC);
  int64_t group = blockIdx.x / tiles, tile = blockIdx.x % tiles;
  int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
  int64_t column = (tile * TX + tx) * VEC;
  int64_t end = (group + 1) * per < rows ? (group + 1) * per : rows;
  float sum[VEC] = {};
  if (column < columns)
    add_rows(sum, x + column, group * per + ty, end, stride);
#pragma unroll
  for (int v = 0; v < VEC; v++)
    sums[ty][tx * VEC + v] = sum[v];
  for (int half = TY / 2; half > 0; half /= 2) {
    __syncthreads();
    if (ty < half)
#pragma unroll
      for (int v = 0; v < VEC; v++)
        sums[ty][tx * VEC + v] += sums[ty + half][tx * VEC + v];
  }
  if (ty > 0 || column >= columns) // ty 0 has written what it reads
    return;
#pragma unroll
  for (int v = 0; v < VEC; v++) {
    T1 *at = out + group * columns + column + v;
    float value = sums[0][tx * VEC + v] / divisor;
    *at = gd_to<T1>(adds ? gd_float(*at) + value : value);
  }
}

// dw[channels, taps] and dbias[channels] out of x[groups, taps + 1, channels], fp32: added, or put
// there. A block has TX times VEC columns, of which there are (taps + 1) channels. Two launches for
// it cost 4 us more on an H200, where the gradient of small images takes 60.
extern "C" __global__ void __launch_bounds__(TX *TY)
    filter_sums(const float *x, float *dw, float *dbias, int64_t groups, int64_t taps,
                int64_t channels, int adds_w, int adds_bias) {
  __shared__ float sums[TY][TX * VEC];
  int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
  int64_t columns = (taps + 1) * channels, first = (int64_t)blockIdx.x * TX * VEC;
  int64_t column = first + tx * VEC;
  float sum[VEC] = {};
  if (column < columns)
    add_rows(sum, x + column, ty, groups, columns);
#pragma unroll
  for (int v = 0; v < VEC; v++)
    sums[ty][tx * VEC + v] = sum[v];
  __syncthreads();
  int64_t at = first + threadIdx.x, tap = at / channels, channel = at % channels;
  if (threadIdx.x >= TX * VEC || at >= columns)
    return;
  float total = 0;
#pragma unroll
  for (int k = 0; k < TY; k++)
    total += sums[k][threadIdx.x];
  float *to = tap < taps ? dw + channel * taps + tap : dbias + channel;
  *to = (tap < taps ? adds_w : adds_bias) ? *to + total : total;
}

// dx[b,s,:] = dy[b,:] / positions. A block has one b, a tile of columns and TY * each positions.
// Writes dx, reads 1 / positions as much: floor (bytes of dx) / bandwidth.
extern "C" __global__ void __launch_bounds__(TX *TY)
    repeat_rows(const T0 *dy, T0 *dx, int64_t positions, int64_t columns, int64_t each) {
  int64_t tiles = (columns + TX * VEC - 1) / (TX * VEC);
  int64_t parts = (positions + TY * each - 1) / (TY * each);
  int64_t tile = blockIdx.x % tiles, part = blockIdx.x / tiles % parts;
  int64_t batch = blockIdx.x / tiles / parts;
  int64_t column = (tile * TX + threadIdx.x % TX) * VEC;
  if (column >= columns)
    return;
  float value[VEC];
  gd_load(dy + batch * columns + column, value);
#pragma unroll
  for (int v = 0; v < VEC; v++)
    value[v] /= (float)positions;
  for (int64_t i = 0; i < each; i++) {
    int64_t s = (part * each + i) * TY + threadIdx.x / TX;
    if (s < positions)
      gd_store(dx + (batch * positions + s) * columns + column, value);
  }
}
