// Cross-entropy over a vocabulary, its gradient, and what linear_xent does between its products.
// T0: dtype of the logits. A block owns a row at a time, a thread every blockDim-th group of WIDE
// columns: whatever the alignment of a row, so that where a tensor lies changes no bit. A group
// moves as one access where it can.

enum { THREADS = 512, WIDE = 16 / sizeof(T0), TOGETHER = 2 };

typedef gd_pack<T0, WIDE> group;

GD_DEVICE int64_t groups_of(int64_t columns) { return (columns + WIDE - 1) / WIDE; }

GD_DEVICE group load_group(const T0 *row, int64_t g, int64_t columns, bool aligned) {
  group x = {};
  row += g * WIDE;
  if (aligned && (g + 1) * WIDE <= columns)
    return *(const group *)row;
#pragma unroll
  for (int j = 0; j < WIDE; j++)
    if (g * WIDE + j < columns)
      x.at[j] = row[j];
  return x;
}

GD_DEVICE void store_group(T0 *row, int64_t g, int64_t columns, bool aligned, const group &x) {
  row += g * WIDE;
  if (aligned && (g + 1) * WIDE <= columns) {
    *(group *)row = x;
    return;
  }
#pragma unroll
  for (int j = 0; j < WIDE; j++)
    if (g * WIDE + j < columns)
      row[j] = x.at[j];
}

// The label that row r is scored against. positions: of a sequence, where labels are shifted; or 0.
GD_DEVICE int label_of(const int *labels, int64_t r, int64_t positions, int ignore) {
  if (positions == 0)
    return labels[r];
  return r % positions == positions - 1 ? ignore : labels[r + 1];
}

// The logit of the label; a label that is none must not read elsewhere, and shows in the loss.
GD_DEVICE float logit_of(const T0 *row, int64_t columns, int label) {
  return label >= 0 && label < columns ? gd_float(row[label]) : __int_as_float(0x7fffffff);
}

// A running maximum and the sum of exp(x - maximum).
struct running {
  float top, sum;
};

GD_DEVICE void take(running &run, const float (&x)[WIDE]) {
  float top = x[0];
#pragma unroll
  for (int j = 1; j < WIDE; j++)
    top = fmaxf(top, x[j]);
  if (top > run.top) {
    run.sum *= expf(run.top - top);
    run.top = top;
  }
  float base = run.top > -GD_INFINITY ? run.top : 0.0f;
#pragma unroll
  for (int j = 0; j < WIDE; j++)
    run.sum += expf(x[j] - base);
}

// Maximum and sum of a row, in every thread.
GD_DEVICE running measure(const T0 *row, int64_t columns, float *shared) {
  running run = {-GD_INFINITY, 0};
  bool aligned = gd_aligned(row, 16);
  int64_t groups = groups_of(columns), threads = blockDim.x;
  for (int64_t g = threadIdx.x; g < groups; g += TOGETHER * threads) {
    group loaded[TOGETHER];
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if (g + u * threads < groups)
        loaded[u] = load_group(row, g + u * threads, columns, aligned);
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if (g + u * threads < groups) {
        float x[WIDE];
#pragma unroll
        for (int j = 0; j < WIDE; j++)
          x[j] = (g + u * threads) * WIDE + j < columns ? gd_float(loaded[u].at[j]) : -GD_INFINITY;
        take(run, x);
      }
  }
  float top = gd_block<gd_greater>(run.top, shared);
  float mine = run.sum == 0.0f ? 0.0f : run.sum * expf(run.top - top);
  return running{top, gd_block<gd_add>(mine, shared)};
}

GD_DEVICE void clear(T0 *row, int64_t columns) {
  group zeros = {};
  bool aligned = gd_aligned(row, 16);
  int64_t groups = groups_of(columns);
  for (int64_t g = threadIdx.x; g < groups; g += blockDim.x)
    store_group(row, g, columns, aligned, zeros);
}

// to = exp(from - lse) scale, but (exp(x - lse) - 1) scale at the label; `to` may be `from`, and x,
// the logit of the label, has been read before. All threads of the block.
GD_DEVICE void turn(T0 *to, const T0 *from, int64_t columns, float lse, float scale, int label,
                    float x) {
  bool to_aligned = gd_aligned(to, 16), from_aligned = gd_aligned(from, 16);
  int64_t groups = groups_of(columns), threads = blockDim.x;
  __syncthreads();
  for (int64_t g = threadIdx.x; g < groups; g += TOGETHER * threads) {
    group loaded[TOGETHER];
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if (g + u * threads < groups)
        loaded[u] = load_group(from, g + u * threads, columns, from_aligned);
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if (g + u * threads < groups) {
#pragma unroll
        for (int j = 0; j < WIDE; j++)
          loaded[u].at[j] = gd_to<T0>(expf(gd_float(loaded[u].at[j]) - lse) * scale);
        store_group(to, g + u * threads, columns, to_aligned, loaded[u]);
      }
  }
  __syncthreads();
  if (threadIdx.x == 0 && label >= 0 && label < columns)
    to[label] = gd_to<T0>(expm1f(x - lse) * scale);
}

// lse of every row; losses[block]: what the block's rows that count add to the loss. Bytes: the
// logits once. FLOPs: one exp and four others an element.
extern "C" __global__ void __launch_bounds__(THREADS)
    xent_rows(const T0 *logits, const int *labels, float *lse, double *losses, int64_t rows,
              int64_t columns, int64_t positions, int ignore) {
  __shared__ float shared[33];
  double sum = 0;
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const T0 *row = logits + r * columns;
    running run = measure(row, columns, shared);
    if (threadIdx.x == 0) {
      int label = label_of(labels, r, positions, ignore);
      double rest = log((double)run.sum);
      lse[r] = (float)((double)run.top + rest);
      if (label != ignore)
        sum += (double)run.top - (double)logit_of(row, columns, label) + rest;
    }
  }
  if (threadIdx.x == 0)
    losses[blockIdx.x] = sum;
}

// Bytes: logits and dlogits once each. FLOPs: one exp and three others an element.
extern "C" __global__ void __launch_bounds__(THREADS)
    xent_grad(T0 *dlogits, const T0 *logits, const float *lse, const int *labels,
              const float *weight, const float *loss_scale, int64_t columns, int64_t positions,
              int ignore) {
  int64_t r = blockIdx.x;
  const T0 *row = logits + r * columns;
  int label = label_of(labels, r, positions, ignore);
  if (label == ignore) {
    clear(dlogits + r * columns, columns);
    return;
  }
  turn(dlogits + r * columns, row, columns, lse[r], weight[0] * loss_scale[0], label,
       logit_of(row, columns, label));
}

// A chunk of linear_xent's logits becomes their gradient in place; row i of it is row first + i.
// Two blocks a multiprocessor keep the rows at work in L2, so device memory sees them read once
// and written once: those bytes are the floor. FLOPs: two exp and six others an element.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    linear_xent_turn(T0 *logits, const int *labels, const float *weight, const float *loss_scale,
                     float *lse, double *losses, int64_t first, int64_t columns, int64_t pitch,
                     int64_t positions, int ignore) {
  __shared__ float shared[33];
  __shared__ float row_lse;
  T0 *row = logits + (int64_t)blockIdx.x * pitch;
  int64_t r = first + blockIdx.x;
  int label = label_of(labels, r, positions, ignore);
  if (label == ignore) {
    clear(row, columns);
    if (threadIdx.x == 0) {
      lse[r] = 0;
      losses[blockIdx.x] = 0;
    }
    return;
  }
  float x = logit_of(row, columns, label);
  running run = measure(row, columns, shared);
  if (threadIdx.x == 0) {
    double rest = log((double)run.sum);
    row_lse = (float)((double)run.top + rest);
    lse[r] = row_lse;
    losses[blockIdx.x] = (double)run.top - (double)x + rest;
  }
  __syncthreads();
  turn(row, row, columns, row_lse, weight[0] * loss_scale[0], label, x);
}

// total = sum of losses (+ total); loss = weight total. One block, one order.
extern "C" __global__ void __launch_bounds__(256)
    loss_sum(const double *losses, int64_t count, double *total, int adds, const float *weight,
             float *loss) {
  __shared__ double sums[256];
  double sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += 256)
    sum += losses[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  for (int step = 128; step > 0; step /= 2) {
    if (threadIdx.x < step)
      sums[threadIdx.x] += sums[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) {
    sum = sums[0] + (adds ? *total : 0.0);
    *total = sum;
    *loss = (float)((double)weight[0] * sum);
  }
}

// dbias[v] (+)= sum over rows of dlogits[r,v]. A lane owns N columns next to each other, the 16
// warps of a block share the rows. Bytes: the chunk once.
template <int N>
GD_DEVICE void sum_columns(float *dbias, const T0 *dlogits, int64_t rows, int64_t columns,
                           int64_t pitch, int adds, float *shared) {
  const int warps = THREADS / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int64_t block = (int64_t)blockIdx.x * 32 * N, at = block + lane * N;
  float sum[N] = {};
  if (at < columns) {
#pragma unroll 4
    for (int64_t r = warp; r < rows; r += warps) {
      float x[N];
      gd_load(dlogits + r * pitch + at, x); // may read the padding of a row
#pragma unroll
      for (int j = 0; j < N; j++)
        sum[j] += x[j];
    }
  }
#pragma unroll
  for (int j = 0; j < N; j++)
    shared[warp * 32 * N + lane * N + j] = sum[j];
  __syncthreads();
  int64_t column = block + threadIdx.x;
  if (threadIdx.x < 32 * N && column < columns) {
    float total = 0;
    for (int w = 0; w < warps; w++)
      total += shared[w * 32 * N + threadIdx.x];
    dbias[column] = adds ? dbias[column] + total : total;
  }
}

// By WIDE columns a lane where by_wide (then rows start at multiples of 16 bytes), else by one.
extern "C" __global__ void __launch_bounds__(THREADS)
    linear_xent_columns(float *dbias, const T0 *dlogits, int64_t rows, int64_t columns,
                        int64_t pitch, int adds, int by_wide) {
  __shared__ float shared[THREADS * WIDE];
  if (by_wide)
    sum_columns<WIDE>(dbias, dlogits, rows, columns, pitch, adds, shared);
  else
    sum_columns<1>(dbias, dlogits, rows, columns, pitch, adds, shared);
}
