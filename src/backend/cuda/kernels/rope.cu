// Rotary positions: x[..., T, D] in dtype T0, VEC elements at a time. `lanes` threads (a power of
// two) have one row; a thread takes a vector of the first half of the rotary part with its partner
// in the second, or copies a vector behind it. y may be x: then nothing is copied.
// Reads and writes every element once, and the table from L2: floor 2 (bytes of x) / bandwidth.
extern "C" __global__ void __launch_bounds__(256)
    rope(const T0 *x, const float *table, T0 *y, int64_t rows, int64_t positions, int64_t columns,
         int64_t rotary, float sign, int lanes) {
  int64_t row = (int64_t)blockIdx.x * (256 / lanes) + threadIdx.x / lanes;
  if (row >= rows)
    return;
  int64_t half = rotary / 2, pairs = half / VEC;
  int64_t items = pairs + (x == y ? 0 : (columns - rotary) / VEC);
  // Rows are seldom 2^32, and a 64-bit remainder costs as much as all the rest.
  int64_t position = rows >> 32 ? row % positions : (uint32_t)row % (uint32_t)positions;
  const float *angles = table + position * rotary;
  for (int64_t item = threadIdx.x % lanes; item < items; item += lanes) {
    if (item < pairs) {
      int64_t at = row * columns + item * VEC;
      float a[VEC], b[VEC], cosine[VEC], sine[VEC];
      gd_load(x + at, a);
      gd_load(x + at + half, b);
      gd_load(angles + item * VEC, cosine);
      gd_load(angles + item * VEC + half, sine);
#pragma unroll
      for (int v = 0; v < VEC; v++) {
        float rotated[2];
        gd_rotate(a[v], b[v], cosine[v], sign * sine[v], rotated);
        a[v] = rotated[0];
        b[v] = rotated[1];
      }
      gd_store(y + at, a);
      gd_store(y + at + half, b);
    } else {
      int64_t at = row * columns + rotary + (item - pairs) * VEC;
      float a[VEC];
      gd_load(x + at, a);
      gd_store(y + at, a);
    }
  }
}
