// What both passes of the gradient need first.
// delta[row] = dout[row] . out[row]. Eight lanes a row. Reads 2 x rows x D elements: bytes alone.
extern "C" __global__ void __launch_bounds__(256)
    attention_delta(const T0 *dout, const T0 *out, float *delta, int64_t rows, int size) {
  constexpr int N = 16 / sizeof(T0);
  int64_t row = (int64_t)blockIdx.x * 32 + threadIdx.x / 8;
  int lane = threadIdx.x % 8;
  float sum = 0;
  if (row < rows) {
    dout += row * size;
    out += row * size;
    if (ALIGNED) {
      for (int at = lane * N; at < size; at += 8 * N) {
        float x[N], y[N];
        gd_load(dout + at, x);
        gd_load(out + at, y);
#pragma unroll
        for (int i = 0; i < N; i++)
          sum = fmaf(x[i], y[i], sum);
      }
    } else {
      for (int at = lane; at < size; at += 8)
        sum = fmaf(gd_float(dout[at]), gd_float(out[at]), sum);
    }
  }
  sum = gd_warp<gd_add>(sum, 8);
  if (row < rows && lane == 0)
    delta[row] = sum;
}
