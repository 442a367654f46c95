// Cross-entropy over a vocabulary, its gradient, and what linear_xent does between its products.
// T0: dtype of the logits. A block owns a row at a time. Rows may start anywhere: elements before
// the first and behind the last multiple of 16 bytes go one by one.

enum { THREADS = 512, WIDE = 16 / sizeof(T0), TOGETHER = 2 };

struct row_cut {
  int64_t head, vectors, tail; // elements, vectors of WIDE behind them, where single ones go on
};

GD_DEVICE row_cut cut(const T0 *row, int64_t columns) {
  int64_t past = (uint64_t)row % 16 / sizeof(T0);
  row_cut c;
  c.head = past ? WIDE - past : 0;
  c.head = c.head < columns ? c.head : columns;
  c.vectors = (columns - c.head) / WIDE;
  c.tail = c.head + c.vectors * WIDE;
  return c;
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

template <int N> GD_DEVICE void take(running &run, const float (&x)[N]) {
  float top = x[0];
#pragma unroll
  for (int j = 1; j < N; j++)
    top = fmaxf(top, x[j]);
  if (top > run.top) {
    run.sum *= expf(run.top - top);
    run.top = top;
  }
  float base = run.top > -GD_INFINITY ? run.top : 0.0f;
#pragma unroll
  for (int j = 0; j < N; j++)
    run.sum += expf(x[j] - base);
}

// Maximum and sum of a row, in every thread.
GD_DEVICE running measure(const T0 *row, int64_t columns, float *shared) {
  running run = {-GD_INFINITY, 0};
  row_cut c = cut(row, columns);
  int64_t t = threadIdx.x, threads = blockDim.x;
  float one[1], x[WIDE];
  if (t < c.head) {
    one[0] = gd_float(row[t]);
    take(run, one);
  }
  const T0 *body = row + c.head;
  for (int64_t v = t; v < c.vectors; v += TOGETHER * threads) {
    gd_pack<T0, WIDE> packs[TOGETHER];
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if (v + u * threads < c.vectors)
        packs[u] = *(const gd_pack<T0, WIDE> *)(body + (v + u * threads) * WIDE);
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if (v + u * threads < c.vectors) {
#pragma unroll
        for (int j = 0; j < WIDE; j++)
          x[j] = gd_float(packs[u].at[j]);
        take(run, x);
      }
  }
  if (c.tail + t < columns) {
    one[0] = gd_float(row[c.tail + t]);
    take(run, one);
  }
  float top = gd_block<gd_greater>(run.top, shared);
  float mine = run.sum == 0.0f ? 0.0f : run.sum * expf(run.top - top);
  return running{top, gd_block<gd_add>(mine, shared)};
}

GD_DEVICE void clear(T0 *row, int64_t columns) {
  row_cut c = cut(row, columns);
  const float zeros[WIDE] = {};
  int64_t t = threadIdx.x;
  if (t < c.head)
    row[t] = gd_to<T0>(0.0f);
  for (int64_t v = t; v < c.vectors; v += blockDim.x)
    gd_store(row + c.head + v * WIDE, zeros);
  if (c.tail + t < columns)
    row[c.tail + t] = gd_to<T0>(0.0f);
}

// to = exp(from - lse) scale, but (exp(x - lse) - 1) scale at the label; `to` may be `from`, and x,
// the logit of the label, has been read before. All threads of the block.
GD_DEVICE void turn(T0 *to, const T0 *from, int64_t columns, float lse, float scale, int label,
                    float x) {
  int64_t t = threadIdx.x, threads = blockDim.x;
  __syncthreads();
  if (((uint64_t)to ^ (uint64_t)from) % 16 != 0) {
    for (int64_t i = t; i < columns; i += threads)
      to[i] = gd_to<T0>(expf(gd_float(from[i]) - lse) * scale);
  } else {
    row_cut c = cut(to, columns);
    if (t < c.head)
      to[t] = gd_to<T0>(expf(gd_float(from[t]) - lse) * scale);
    for (int64_t v = t; v < c.vectors; v += TOGETHER * threads) {
      gd_pack<T0, WIDE> packs[TOGETHER];
#pragma unroll
      for (int u = 0; u < TOGETHER; u++)
        if (v + u * threads < c.vectors)
          packs[u] = *(const gd_pack<T0, WIDE> *)(from + c.head + (v + u * threads) * WIDE);
#pragma unroll
      for (int u = 0; u < TOGETHER; u++)
        if (v + u * threads < c.vectors) {
#pragma unroll
          for (int j = 0; j < WIDE; j++)
            packs[u].at[j] = gd_to<T0>(expf(gd_float(packs[u].at[j]) - lse) * scale);
          *(gd_pack<T0, WIDE> *)(to + c.head + (v + u * threads) * WIDE) = packs[u];
        }
    }
    if (c.tail + t < columns)
      to[c.tail + t] = gd_to<T0>(expf(gd_float(from[c.tail + t]) - lse) * scale);
  }
  __syncthreads();
  if (t == 0 && label >= 0 && label < columns)
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
