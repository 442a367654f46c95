// Attention with heads of more than 256, which no model of note has: right, not fast. One warp owns
// one row, scores are computed again for every 256 columns of the result, all in fp32. The passes
// are those of attention_tiles.cuh; delta comes from attention_delta.cu.

#include "attention_args.cuh"

constexpr int EACH = 8; // columns of the result that a lane sums

GD_DEVICE float dot(const T0 *x, const T0 *y, int size) {
  float sum = 0;
  for (int i = threadIdx.x % 32; i < size; i += 32)
    sum = fmaf(gd_float(x[i]), gd_float(y[i]), sum);
  return gd_warp<gd_add>(sum);
}

GD_DEVICE float kept(const gd_attention &p, const int *seed, int64_t head, int query, int key) {
  if (!DROPOUT)
    return 1;
  uint64_t number = (uint64_t)(((p.first_head + head) * p.steps + query) * p.steps + key) +
                    (uint64_t)(int64_t)seed[2] * (uint64_t)p.weights;
  gd_words words = gd_philox((uint32_t)seed[0], (uint32_t)seed[1], p.stream, number >> 3);
  return gd_drawn(words, number & 7) >= p.threshold << 16 ? p.kept_scale : 0;
}

// sums += weight x row, for the EACH columns from `first` on that this lane has.
GD_DEVICE void add_row(float (&sums)[EACH], float weight, const T0 *row, int first, int size) {
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    int column = first + i * 32 + threadIdx.x % 32;
    if (column < size)
      sums[i] = fmaf(weight, gd_float(row[column]), sums[i]);
  }
}
GD_DEVICE void put_row(T0 *row, const float (&sums)[EACH], float factor, int first, int size) {
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    int column = first + i * 32 + threadIdx.x % 32;
    if (column < size)
      row[column] = gd_to<T0>(sums[i] * factor);
  }
}

extern "C" __global__ void __launch_bounds__(128)
    attention_wide(const T0 *q, const T0 *k, const T0 *v, T0 *out, float *lse, const int *seed,
                   gd_attention p) {
  int64_t row = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= p.heads * p.steps)
    return;
  int64_t head = row / p.steps, matrix = (int64_t)p.steps * p.size;
  int query = (int)(row % p.steps), visible = p.causal ? query + 1 : p.steps;
  q += row * p.size;
  k += head / p.group * matrix;
  v += head / p.group * matrix;
  float most = -GD_INFINITY, total = 0;
  for (int key = 0; key < visible; key++) {
    float score = p.scale * dot(q, k + (int64_t)key * p.size, p.size);
    float greatest = fmaxf(most, score);
    total = total * expf(most - greatest) + expf(score - greatest);
    most = greatest;
  }
  float sum = most + logf(total);
  if (threadIdx.x % 32 == 0)
    lse[row] = sum;
  for (int first = 0; first < p.size; first += 32 * EACH) {
    float sums[EACH] = {};
    for (int key = 0; key < visible; key++) {
      float weight = expf(p.scale * dot(q, k + (int64_t)key * p.size, p.size) - sum);
      add_row(sums, weight * kept(p, seed, head, query, key), v + (int64_t)key * p.size, first,
              p.size);
    }
    put_row(out + row * p.size, sums, 1, first, p.size);
  }
}

extern "C" __global__ void __launch_bounds__(128)
    attention_wide_queries(const T0 *dout, const T0 *q, const T0 *k, const T0 *v, const float *lse,
                           const float *delta, const int *seed, T0 *dq, gd_attention p) {
  int64_t row = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= p.heads * p.steps)
    return;
  int64_t head = row / p.steps, matrix = (int64_t)p.steps * p.size;
  int query = (int)(row % p.steps), visible = p.causal ? query + 1 : p.steps;
  q += row * p.size;
  dout += row * p.size;
  k += head / p.group * matrix;
  v += head / p.group * matrix;
  for (int first = 0; first < p.size; first += 32 * EACH) {
    float sums[EACH] = {};
    for (int key = 0; key < visible; key++) {
      int64_t at = (int64_t)key * p.size;
      float weight = expf(p.scale * dot(q, k + at, p.size) - lse[row]);
      float dscore = kept(p, seed, head, query, key) * dot(dout, v + at, p.size) - delta[row];
      add_row(sums, weight * dscore, k + at, first, p.size);
    }
    put_row(dq + row * p.size, sums, p.scale, first, p.size);
  }
}

extern "C" __global__ void __launch_bounds__(128)
    attention_wide_keys(const T0 *dout, const T0 *q, const T0 *k, const T0 *v, const float *lse,
                        const float *delta, const int *seed, T0 *dk, T0 *dv, gd_attention p) {
  int64_t row = (int64_t)blockIdx.x * 4 + threadIdx.x / 32;
  if (row >= p.heads * p.steps)
    return;
  int64_t key_head = row / p.steps;
  int key = (int)(row % p.steps);
  k += row * p.size;
  v += row * p.size;
  for (int first = 0; first < p.size; first += 32 * EACH) {
    float sums_k[EACH] = {}, sums_v[EACH] = {};
    for (int64_t head = key_head * p.group; head < (key_head + 1) * p.group; head++)
      for (int query = p.causal ? key : 0; query < p.steps; query++) {
        int64_t from = head * p.steps + query, at = from * p.size;
        float weight = expf(p.scale * dot(q + at, k, p.size) - lse[from]);
        float keep = kept(p, seed, head, query, key);
        float dscore = keep * dot(dout + at, v, p.size) - delta[from];
        add_row(sums_k, weight * dscore, q + at, first, p.size);
        add_row(sums_v, weight * keep, dout + at, first, p.size);
      }
    put_row(dk + row * p.size, sums_k, p.scale, first, p.size);
    put_row(dv + row * p.size, sums_v, 1, first, p.size);
  }
}
