// Cross-entropy over a vocabulary, its gradient, and what linear_xent does between its GEMMs.
// T0: dtype of the logits. A block owns a row at a time, a thread every blockDim-th group of WIDE
// columns: whatever the alignment of a row, so that where a tensor lies changes no bit. A group
// moves as one access where it can.

enum { THREADS = 512, WIDE = 16 / sizeof(T0) };
// How a row is walked: by groups that may be partial or not aligned; by whole ones alone; by whole
// ones that shared memory keeps from the first walk to the second.
enum { LOOSE, WHOLE, KEPT };

typedef gd_pack<T0, WIDE> group;

GD_DEVICE bool walks_whole(const T0 *row, int64_t width) {
  return gd_aligned(row, 16) && width % WIDE == 0;
}
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

// Logits in 16 bits have at most 11 significant ones: two of expf an element would take as long as the memory.
GD_DEVICE float exp_of(float x) { return sizeof(T0) == 4 ? expf(x) : gd_exp_fast(x); }

// A running maximum and the sum of exp(x - maximum).
struct running {
  float top, sum;
};

// Of a group of which `left` are logits, the rest becomes what adds nothing.
GD_DEVICE void mask(float (&x)[WIDE], int64_t left) {
  if (left >= WIDE)
    return;
#pragma unroll
  for (int j = 0; j < WIDE; j++)
    if (j >= left)
      x[j] = -GD_INFINITY;
}

GD_DEVICE void take(running &run, const float (&x)[WIDE]) {
  float top = x[0];
#pragma unroll
  for (int j = 1; j < WIDE; j++)
    top = fmaxf(top, x[j]);
  if (top > run.top) {
    run.sum *= exp_of(run.top - top);
    run.top = top;
  }
  float base = run.top > -GD_INFINITY ? run.top : 0.0f;
#pragma unroll
  for (int j = 0; j < WIDE; j++)
    run.sum += exp_of(x[j] - base);
}

// Maximum and sum of a row, in every thread. `width` elements can be read, of which `columns` are
// logits. kept: where every thread puts what it loads, for to_gradient.
template <int HOW>
GD_DEVICE running measure(const T0 *row, int64_t columns, int64_t width, group *kept,
                          float *shared) {
  const int TOGETHER = HOW == LOOSE ? 2 : 4;
  running run = {-GD_INFINITY, 0};
  bool aligned = gd_aligned(row, 16);
  int64_t groups = groups_of(columns), threads = blockDim.x;
  for (int64_t g = threadIdx.x; g < groups; g += TOGETHER * threads) {
    group loaded[TOGETHER];
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if (g + u * threads < groups)
        loaded[u] = HOW == LOOSE ? load_group(row, g + u * threads, width, aligned)
                                 : ((const group *)row)[g + u * threads];
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if (g + u * threads < groups) {
        float x[WIDE];
        if (HOW == KEPT)
          kept[g + u * threads] = loaded[u];
#pragma unroll
        for (int j = 0; j < WIDE; j++)
          x[j] = gd_float(loaded[u].at[j]);
        mask(x, columns - (g + u * threads) * WIDE);
        take(run, x);
      }
  }
  float top = gd_block<gd_greater>(run.top, shared);
  float mine = run.sum == 0.0f ? 0.0f : run.sum * exp_of(run.top - top);
  return running{top, gd_block<gd_add>(mine, shared)};
}

GD_DEVICE void clear(T0 *row, int64_t columns) {
  group zeros = {};
  bool aligned = gd_aligned(row, 16);
  int64_t groups = groups_of(columns);
  for (int64_t g = threadIdx.x; g < groups; g += blockDim.x)
    store_group(row, g, columns, aligned, zeros);
}

// to = exp(from - lse) scale, but (exp(x - lse) - 1) scale at the label, and zeros from `columns` to
// `width` (where a scale or lse that is not finite may leave a NaN, as it does elsewhere). `to` may be `from`, and x, the logit of the label, has been read before. kept: the row as
// measure left it. All threads of the block.
template <int HOW>
GD_DEVICE void to_gradient(T0 *to, const T0 *from, int64_t columns, int64_t width, const group *kept,
                    float lse, float scale, int label, float x) {
  const int TOGETHER = HOW == LOOSE ? 2 : 4;
  bool to_aligned = gd_aligned(to, 16), from_aligned = gd_aligned(from, 16);
  int64_t groups = groups_of(width), threads = blockDim.x;
  __syncthreads();
  for (int64_t g = threadIdx.x; g < groups; g += TOGETHER * threads) {
    group loaded[TOGETHER];
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if ((g + u * threads) * WIDE < columns)
        loaded[u] = HOW == KEPT    ? kept[g + u * threads]
                    : HOW == WHOLE ? ((const group *)from)[g + u * threads]
                                   : load_group(from, g + u * threads, width, from_aligned);
#pragma unroll
    for (int u = 0; u < TOGETHER; u++)
      if (g + u * threads < groups) {
        float y[WIDE];
#pragma unroll
        for (int j = 0; j < WIDE; j++)
          y[j] = gd_float(loaded[u].at[j]);
        mask(y, columns - (g + u * threads) * WIDE);
#pragma unroll
        for (int j = 0; j < WIDE; j++)
          loaded[u].at[j] = gd_to<T0>(exp_of(y[j] - lse) * scale);
        if (HOW == LOOSE)
          store_group(to, g + u * threads, width, to_aligned, loaded[u]);
        else
          ((group *)to)[g + u * threads] = loaded[u];
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
    running run = walks_whole(row, columns)
                      ? measure<WHOLE>(row, columns, columns, (group *)0, shared)
                      : measure<LOOSE>(row, columns, columns, (group *)0, shared);
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
  float x = logit_of(row, columns, label), scale = weight[0] * loss_scale[0];
  T0 *to = dlogits + r * columns;
  if (walks_whole(row, columns) && gd_aligned(to, 16))
    to_gradient<WHOLE>(to, row, columns, columns, (const group *)0, lse[r], scale, label, x);
  else
    to_gradient<LOOSE>(to, row, columns, columns, (const group *)0, lse[r], scale, label, x);
}

// The place of the first of the largest values, where this thread found `value` at `place`; 2^24
// places are told apart.
GD_DEVICE float first_of_largest(float value, int64_t place, float *shared) {
  float top = gd_block<gd_greater>(value, shared);
  return -gd_block<gd_greater>(value == top ? -(float)place : -GD_INFINITY, shared);
}

// xent_rows with targets of all classes; hits[block]: rows of the block whose class was found.
// Bytes: the logits twice (the second time out of a cache), the targets once.
extern "C" __global__ void __launch_bounds__(THREADS)
    soft_xent_rows(const T0 *logits, const float *targets, float *lse, double *losses, double *hits,
                   int64_t rows, int64_t columns) {
  __shared__ float shared[33];
  double loss = 0, found = 0;
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const T0 *row = logits + r * columns;
    const float *target = targets + r * columns;
    running run = walks_whole(row, columns)
                      ? measure<WHOLE>(row, columns, columns, (group *)0, shared)
                      : measure<LOOSE>(row, columns, columns, (group *)0, shared);
    float rest = logf(run.sum), sum = 0;
    float best = -GD_INFINITY, most = -GD_INFINITY;
    int64_t guess = columns, right = columns;
    for (int64_t j = threadIdx.x; j < columns; j += blockDim.x) {
      float x = gd_float(row[j]), t = target[j];
      sum += t * (run.top - x + rest);
      if (x > best) {
        best = x;
        guess = j;
      }
      if (t > most) {
        most = t;
        right = j;
      }
    }
    sum = gd_block<gd_add>(sum, shared);
    float guessed = first_of_largest(best, guess, shared);
    float wanted = first_of_largest(most, right, shared);
    most = gd_block<gd_greater>(most, shared);
    if (threadIdx.x == 0) {
      lse[r] = (float)((double)run.top + log((double)run.sum));
      loss += (double)sum;
      found += guessed == wanted && most > 0.0f && lse[r] == lse[r];
    }
  }
  if (threadIdx.x == 0) {
    losses[blockIdx.x] = loss;
    hits[blockIdx.x] = found;
  }
}

// Bytes: logits and dlogits once each, the targets twice (the second time out of a cache).
extern "C" __global__ void __launch_bounds__(THREADS)
    soft_xent_grad(T0 *dlogits, const T0 *logits, const float *lse, const float *targets,
                   const float *weight, const float *loss_scale, int64_t columns) {
  __shared__ float shared[33];
  int64_t r = blockIdx.x;
  const T0 *row = logits + r * columns;
  const float *target = targets + r * columns;
  float sum = 0, scale = weight[0] * loss_scale[0];
  for (int64_t j = threadIdx.x; j < columns; j += blockDim.x)
    sum += target[j];
  sum = gd_block<gd_add>(sum, shared);
  for (int64_t j = threadIdx.x; j < columns; j += blockDim.x)
    dlogits[r * columns + j] =
        gd_to<T0>((exp_of(gd_float(row[j]) - lse[r]) * sum - target[j]) * scale);
}

template <int HOW>
GD_DEVICE void turn_logits(T0 *row, int64_t columns, int64_t width, group *kept, float scale,
                           int label, float *lse, double *loss, float *shared) {
  __shared__ float row_lse;
  float x = logit_of(row, columns, label);
  running run = measure<HOW>(row, columns, width, kept, shared);
  if (threadIdx.x == 0) {
    double rest = log((double)run.sum);
    row_lse = (float)((double)run.top + rest);
    *lse = row_lse;
    *loss = (double)run.top - (double)x + rest;
  }
  __syncthreads();
  to_gradient<HOW>(row, row, columns, width, kept, row_lse, scale, label, x);
}

// count: rows whose label counts; list: which they are, in order, unless it is NULL. One block of
// whole warps, each of which owns a piece of the rows and walks it twice. Bytes: the labels twice,
// half a megabyte of a large batch: one block is as fast as a chunk's smallest kernel.
extern "C" __global__ void __launch_bounds__(1024)
    loss_rows(const int *labels, int *list, int *count, int64_t rows, int ignore) {
  __shared__ int before[32];
  const int warps = blockDim.x / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  int64_t each = (rows + warps * 32 - 1) / (warps * 32) * 32, begin = warp * each;
  int64_t end = begin + each < rows ? begin + each : rows;
  int found = 0;
#pragma unroll 8
  for (int64_t at = begin; at < end; at += 32)
    found += __popc(__ballot_sync(0xffffffff, at + lane < end && labels[at + lane] != ignore));
  if (lane == 0)
    before[warp] = found;
  __syncthreads();
  if (threadIdx.x == 0) {
    int sum = 0;
    for (int w = 0; w < warps; w++) {
      int one = before[w];
      before[w] = sum;
      sum += one;
    }
    *count = sum;
  }
  __syncthreads();
  if (!list)
    return;
  int to = before[warp];
#pragma unroll 8
  for (int64_t at = begin; at < end; at += 32) {
    bool counts = at + lane < end && labels[at + lane] != ignore;
    uint32_t votes = __ballot_sync(0xffffffff, counts);
    if (counts)
      list[to + __popc(votes & ((1u << lane) - 1))] = (int)(at + lane);
    to += __popc(votes);
  }
}

// Rows between a tensor and a chunk of those that count, of which block i has number first + i: from
// the tensor (gathers; zeros behind the last), or to it. Bytes: the chunk twice.
extern "C" __global__ void __launch_bounds__(THREADS)
    linear_xent_move(T0 *tensor, T0 *chunk, const int *list, const int *count, int64_t first,
                     int64_t columns, int gathers) {
  int64_t at = first + blockIdx.x, groups = groups_of(columns);
  T0 *here = chunk + (int64_t)blockIdx.x * columns;
  if (at >= *count) {
    if (gathers)
      clear(here, columns);
    return;
  }
  T0 *there = tensor + (int64_t)list[at] * columns;
  const T0 *from = gathers ? there : here;
  T0 *to = gathers ? here : there;
  bool from_aligned = gd_aligned(from, 16), to_aligned = gd_aligned(to, 16);
  for (int64_t g = threadIdx.x; g < groups; g += blockDim.x)
    store_group(to, g, columns, to_aligned, load_group(from, g, columns, from_aligned));
}

// A row of logits, of row r of the tensors, becomes its gradient; all of its `width` elements, which
// GEMMs read, are written.
GD_DEVICE void turn_row(T0 *row, const float *weight, const float *loss_scale, float *lse,
                        double *loss, int64_t columns, int64_t width, int label, int keeps,
                        group *kept, float *shared) {
  float scale = weight[0] * loss_scale[0];
  if (!walks_whole(row, width))
    turn_logits<LOOSE>(row, columns, width, kept, scale, label, lse, loss, shared);
  else if (keeps)
    turn_logits<KEPT>(row, columns, width, kept, scale, label, lse, loss, shared);
  else
    turn_logits<WHOLE>(row, columns, width, kept, scale, label, lse, loss, shared);
}

// A chunk of linear_xent's logits becomes their gradient in place; row i of it is row first + i.
// keeps: a row fits in shared memory, so device memory sees it read once and written once: those
// bytes are the floor. Else it is read twice, of which L2 serves a part. FLOPs: two exp and six
// others an element.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    linear_xent_walk(T0 *logits, const int *labels, const float *weight, const float *loss_scale,
                     float *lse, double *losses, int64_t first, int64_t columns, int64_t width,
                     int64_t pitch, int64_t positions, int ignore, int keeps) {
  extern __shared__ __align__(16) unsigned char kept_row[];
  __shared__ float shared[33];
  T0 *row = logits + (int64_t)blockIdx.x * pitch;
  int64_t r = first + blockIdx.x;
  int label = label_of(labels, r, positions, ignore);
  if (label == ignore) {
    clear(row, width);
    if (threadIdx.x == 0) {
      lse[r] = 0;
      losses[blockIdx.x] = 0;
    }
    return;
  }
  turn_row(row, weight, loss_scale, lse + r, losses + blockIdx.x, columns, width, label, keeps,
           (group *)kept_row, shared);
}

// The same of rows that count: row i of the chunk is row list[first + i], and none from `count` on.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
    linear_xent_walk_listed(T0 *logits, const int *labels, const float *weight,
                            const float *loss_scale, float *lse, double *losses, int64_t first,
                            int64_t columns, int64_t width, int64_t pitch, int keeps,
                            const int *list, const int *count) {
  extern __shared__ __align__(16) unsigned char kept_row[];
  __shared__ float shared[33];
  T0 *row = logits + (int64_t)blockIdx.x * pitch;
  int64_t at = first + blockIdx.x;
  if (at >= *count) {
    clear(row, width);
    if (threadIdx.x == 0)
      losses[blockIdx.x] = 0;
    return;
  }
  int64_t r = list[at];
  turn_row(row, weight, loss_scale, lse + r, losses + blockIdx.x, columns, width, labels[r], keeps,
           (group *)kept_row, shared);
}

// total = sum of losses (+ total); loss = weight total, or total without a weight. One block, one order.
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
    *loss = (float)((weight ? (double)weight[0] : 1.0) * sum);
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
