// What surrounds the library's GEMMs. T0: dtype of the result.

// The bias as the library wants it. Bytes: 4 + sizeof(T0) an element; the launch is what it costs.
extern "C" __global__ void __launch_bounds__(256)
    matmul_round(T0 *to, const float *from, int64_t count) {
  for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < count; i += (int64_t)gridDim.x * 256)
    to[i] = gd_to<T0>(from[i]);
}

template <int N>
GD_DEVICE void finish(T0 *to, const float *from, const float *bias, uint32_t i, uint32_t columns,
                      int64_t pitch, int adds) {
  uint32_t row = i / columns, column = i - row * columns;
  float x[N], b[N];
  gd_load(from + i, x);
  if (bias) {
    gd_load(bias + column, b);
#pragma unroll
    for (int j = 0; j < N; j++)
      x[j] += b[j];
  }
  to += row * pitch + column;
  if (adds) {
    gd_load(to, b);
#pragma unroll
    for (int j = 0; j < N; j++)
      x[j] += b[j];
  }
  gd_store(to, x);
}

// to[r,c] = from[r,c] + bias[c] (+ to): a piece of a GEMM that was computed in fp32. `from` has
// no gaps, rows of `to` are `pitch` apart. A thread owns 4 columns of a row, or one where an
// address or a row is no multiple of 4. Bytes: 4 (from L2) + sizeof(T0) an element.
extern "C" __global__ void __launch_bounds__(256)
    matmul_finish(T0 *to, const float *from, const float *bias, uint32_t count, uint32_t columns,
                  int64_t pitch, int adds) {
  bool by_four = columns % 4 == 0 && pitch % 4 == 0 && gd_aligned(to, 4 * sizeof(T0)) &&
                 gd_aligned(from, 16) && gd_aligned(bias, 16);
  uint32_t first = blockIdx.x * 256 + threadIdx.x, step = gridDim.x * 256;
  if (by_four)
    for (uint32_t i = first; i < count / 4; i += step)
      finish<4>(to, from, bias, 4 * i, columns, pitch, adds);
  else
    for (uint32_t i = first; i < count; i += step)
      finish<1>(to, from, bias, i, columns, pitch, adds);
}

// The same where nothing is multiplied (k = 0): to = bias (+ to), or 0. Columns of `batch` items of
// `rows` rows.
extern "C" __global__ void __launch_bounds__(256)
    matmul_empty(T0 *to, const float *bias, int64_t columns, int64_t rows, int64_t batch,
                 int64_t pitch, int64_t stride, int adds) {
  int64_t count = columns * rows * batch;
  for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < count;
       i += (int64_t)gridDim.x * 256) {
    int64_t row = i / columns, column = i - row * columns;
    T0 *at = to + row / rows * stride + row % rows * pitch + column;
    *at = gd_to<T0>((bias ? bias[column] : 0.0f) + (adds ? gd_float(*at) : 0.0f));
  }
}

// to[c][r] = from[r][c] of fp32 matrices, rows `pitch` elements apart; a block has 32 x 32 elements.
// Reads and writes each once. CTAs: ceil(columns / 32) in a row, times the rows of tiles.
extern "C" __global__ void __launch_bounds__(256)
    matmul_transpose(float *to, const float *from, int64_t rows, int64_t columns, int64_t from_pitch,
                int64_t to_pitch) {
  __shared__ float tile[32][33];
  int64_t across = (columns + 31) / 32;
  int64_t row = blockIdx.x / across * 32, column = blockIdx.x % across * 32;
  int x = threadIdx.x % 32, y = threadIdx.x / 32;
#pragma unroll
  for (int i = y; i < 32; i += 8)
    if (row + i < rows && column + x < columns)
      tile[i][x] = from[(row + i) * from_pitch + column + x];
  __syncthreads();
#pragma unroll
  for (int i = y; i < 32; i += 8)
    if (column + i < columns && row + x < rows)
      to[(column + i) * to_pitch + row + x] = tile[x][i];
}
