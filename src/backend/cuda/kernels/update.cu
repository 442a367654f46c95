// The update program: sum of squares, control, Adam. T0: what is squared, or the 16-bit copy that Adam writes.
// A model has hundreds of tensors, most of them small: kernels take a table of them by value, in
// the 4 KB that arguments may have.

#include "update_args.cuh"

// --- sum of squares -----------------------------------------------------------------------------

// The total is a double that is cut into two floats. A thread adds fp32 squares of up to 64
// elements and keeps what each addition rounds away (Knuth's two-sum); such sums are added in
// double. The error is some 2^-46 of the total, so that neither the cut into shards nor the tree
// shows in the norm, and cards with few units for double keep up. Who adds what follows from the
// shape alone.
//
// Bytes: x once. FLOPs: 8 an element; 2 additions in double for each 16 (16-bit dtypes: 8) of them.

enum { ELEMENTS = 64, SQUARE_THREADS = 256, WHOLE_THREADS = 1024, DEEP = 4 };

// The intrinsics are never contracted to fused operations, which would break the two-sum.
GD_DEVICE void add_square(float x, float &sum, float &rest) {
  float square = __fmul_rn(x, x), next = __fadd_rn(sum, square), added = __fsub_rn(next, sum);
  float lost = __fsub_rn(sum, __fsub_rn(next, added));
  rest = __fadd_rn(rest, __fadd_rn(lost, __fsub_rn(square, added)));
  sum = next;
}

// Infinities must not become NaN: of an infinite sum the rest has no meaning.
GD_DEVICE double as_double(float sum, float rest) {
  return isfinite(sum) ? (double)sum + (double)rest : (double)sum;
}

// Over the block; thread 0 gets the result. shared: 32 doubles.
GD_DEVICE double block_sum(double x, double *shared) {
  int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = blockDim.x / 32;
  for (int step = 16; step > 0; step /= 2)
    x += __shfl_xor_sync(0xffffffff, x, step);
  if (lane == 0)
    shared[warp] = x;
  __syncthreads();
  if (warp == 0) {
    x = lane < warps ? shared[lane] : 0.0;
    for (int step = 16; step > 0; step /= 2)
      x += __shfl_xor_sync(0xffffffff, x, step);
  }
  return x;
}

// The thread's share of elements begin .. end of x; x + begin allows vectors of V.
template <int V, int THREADS> GD_DEVICE double squares_of(const T0 *x, int64_t begin, int64_t end) {
  double total = 0;
  int64_t vectors = (end - begin) / V;
  x += begin;
  for (int64_t first = 0; first < vectors; first += (int64_t)THREADS * (ELEMENTS / V)) {
    float sum[V] = {}, rest[V] = {};
#pragma unroll 1
    for (int k = 0; k < ELEMENTS / V; k += DEEP) {
      float values[DEEP][V] = {};
#pragma unroll
      for (int u = 0; u < DEEP; u++) {
        int64_t at = first + (k + u) * THREADS + threadIdx.x;
        if (at < vectors)
          gd_load(x + at * V, values[u]);
      }
#pragma unroll
      for (int u = 0; u < DEEP; u++)
#pragma unroll
        for (int j = 0; j < V; j++)
          add_square(values[u][j], sum[j], rest[j]);
    }
#pragma unroll
    for (int j = 0; j < V; j++)
      total += as_double(sum[j], rest[j]);
  }
  if (threadIdx.x < (end - begin) % V) {
    float sum = 0, rest = 0;
    add_square(gd_float(x[vectors * V + threadIdx.x]), sum, rest);
    total += as_double(sum, rest);
  }
  return total;
}

GD_DEVICE void store_pair(float *y, double total) {
  y[0] = (float)total;
  y[1] = isfinite(y[0]) ? (float)(total - (double)y[0]) : 0.0f;
}

// A block owns a piece of a tensor. Many tensors share a launch.
extern "C" __global__ void __launch_bounds__(SQUARE_THREADS)
    squares_pieces(double *partials, const __grid_constant__ gd_squares_table table) {
  __shared__ double shared[32];
  int at = 0; // number of tensors that end before this block
  for (int width = 64; width > 0; width /= 2)
    if (at + width < table.count && table.at[at + width - 1].end <= blockIdx.x)
      at += width;
  const gd_squares_entry &t = table.at[at];
  int64_t begin = (blockIdx.x - (at ? table.at[at - 1].end : 0)) * t.each;
  int64_t end = t.count - begin < t.each ? t.count : begin + t.each;
  double total = t.wide ? squares_of<16 / sizeof(T0), SQUARE_THREADS>(t.x, begin, end)
                        : squares_of<1, SQUARE_THREADS>(t.x, begin, end);
  total = block_sum(total, shared);
  if (threadIdx.x == 0)
    partials[blockIdx.x] = total;
}

// A block owns a tensor.
extern "C" __global__ void __launch_bounds__(SQUARE_THREADS)
    squares_totals(const double *partials, const __grid_constant__ gd_squares_table table) {
  __shared__ double shared[32];
  uint32_t begin = blockIdx.x ? table.at[blockIdx.x - 1].end : 0, end = table.at[blockIdx.x].end;
  double total = 0;
  for (uint32_t i = begin + threadIdx.x; i < end; i += SQUARE_THREADS)
    total += partials[i];
  total = block_sum(total, shared);
  if (threadIdx.x == 0)
    store_pair(table.at[blockIdx.x].y, total);
}

// One block for all of a small tensor: one launch where there is but one tensor.
template <int V> GD_DEVICE void squares_whole(float *y, const T0 *x, int64_t count) {
  __shared__ double shared[32];
  double total = block_sum(squares_of<V, WHOLE_THREADS>(x, 0, count), shared);
  if (threadIdx.x == 0)
    store_pair(y, total);
}
extern "C" __global__ void __launch_bounds__(WHOLE_THREADS)
    squares_whole_wide(float *y, const T0 *x, int64_t count) {
  squares_whole<16 / sizeof(T0)>(y, x, count);
}
extern "C" __global__ void __launch_bounds__(WHOLE_THREADS)
    squares_whole_narrow(float *y, const T0 *x, int64_t count) {
  squares_whole<1>(y, x, count);
}

// --- control ------------------------------------------------------------------------------------

enum { CONTROL_THREADS = 256 };

// One block; the rule is that of ref_control. carry: the total so far, where there are more sums
// than fit one launch.
extern "C" __global__ void __launch_bounds__(CONTROL_THREADS)
    control(float *step, float *scale, float *norm_out, float *factor_out, double *carry,
            const __grid_constant__ gd_control_sums s, const __grid_constant__ gd_control_rules rule) {
  __shared__ double shared[32];
  int64_t elements = s.count ? s.end[s.count - 1] : 0;
  double total = 0;
  for (int64_t i = threadIdx.x; i < elements; i += CONTROL_THREADS) {
    int tensor = 0; // number of tensors that end at or before i
    for (int width = 128; width > 0; width /= 2)
      if (tensor + width < s.count && s.end[tensor + width - 1] <= i)
        tensor += width;
    total += (double)s.from[tensor][tensor ? i - s.end[tensor - 1] : i];
  }
  total = block_sum(total, shared);
  if (threadIdx.x != 0)
    return;
  if (!s.first)
    total += *carry;
  if (!s.last) {
    *carry = total;
    return;
  }
  double old_scale = (double)scale[0], norm = sqrt(total) / old_scale, factor = 0;
  bool spike = step[1] > 0 && (float)norm > step[1];
  if (isfinite(norm) && !spike) {
    double clip = rule.max_norm > 0 ? (double)rule.max_norm / (norm + 1e-6) : 1.0;
    factor = (clip < 1 ? clip : 1.0) / old_scale;
    step[0] += 1;
    if (rule.dynamic_scale) {
      float good = scale[1] + 1;
      bool grows = good >= rule.growth_interval;
      scale[0] = grows ? scale[0] * 2 : scale[0];
      scale[1] = grows ? 0.0f : good;
    }
  } else if (rule.dynamic_scale && !isfinite(norm)) {
    scale[0] = scale[0] / 2 > 1 ? scale[0] / 2 : 1.0f;
    scale[1] = 0;
  }
  *norm_out = (float)norm;
  *factor_out = (float)factor;
}

// --- Adam ---------------------------------------------------------------------------------------

enum { ADAM_THREADS = 256 };
// The inputs that change from step to step.
struct adam_now {
  float factor, rate, root, keep, decay;
};

// 1 - beta^t as -expm1(t log beta): beta^t alone would round away what is left for beta near 1.
GD_DEVICE adam_now adam_of(const gd_adam_rule &r, float decay, float factor, float lr, float step) {
  adam_now now;
  now.factor = factor;
  now.rate = lr / -expm1f(step * r.log_beta1);
  now.root = 1.0f / sqrtf(-expm1f(step * r.log_beta2));
  now.keep = r.decoupled ? fmaf(-lr, decay, 1.0f) : 1.0f;
  now.decay = r.decoupled ? 0.0f : decay;
  return now;
}

// V elements from i on. Kingma, Ba, arXiv:1412.6980, algorithm 1; decay coupled or decoupled
// (Loshchilov, Hutter, arXiv:1711.05101). Bytes: 28 an element, 2 for the 16-bit copy, 4 to clear.
template <int V>
GD_DEVICE void adam_step(const gd_adam_entry &t, int64_t i, const gd_adam_rule &r, const float *factor,
                         const float *lr, const float *step) {
  float p[V], g[V], m[V], v[V];
  gd_load((const float *)t.param + i, p);
  gd_load((const float *)t.grad + i, g);
  gd_load((const float *)t.m + i, m);
  gd_load((const float *)t.v + i, v);
  adam_now now = adam_of(r, t.decay, *factor, *lr, *step);
  if (now.factor != 0.0f) {
#pragma unroll
    for (int j = 0; j < V; j++) {
      float gradient = fmaf(p[j], now.decay, g[j] * now.factor);
      m[j] = fmaf(m[j], r.beta1, gradient * r.rest1);
      v[j] = fmaf(v[j], r.beta2, gradient * gradient * r.rest2);
      p[j] = p[j] * now.keep - m[j] * now.rate / fmaf(sqrtf(v[j]), now.root, r.eps);
    }
    gd_store(t.param + i, p);
    gd_store(t.m + i, m);
    gd_store(t.v + i, v);
  }
  if (t.copy) // skipped or not: a copy in another memory may have nothing in it yet
    gd_store(t.copy + i, p);
  if (t.clear) {
    float zeros[V] = {};
    gd_store(t.grad + i, zeros);
  }
}

// A block owns 1,024 elements of a tensor, a thread four of them: its four loads are enough in
// flight. Many tensors share a launch, which costs as much as 10 MB of them.
extern "C" __global__ void __launch_bounds__(ADAM_THREADS)
    adam(const __grid_constant__ gd_adam_table table, const __grid_constant__ gd_adam_rule r,
         const float *factor, const float *lr, const float *step) {
  int at = 0; // number of tensors that end before this block
  for (int width = 32; width > 0; width /= 2)
    if (at + width < table.count && table.at[at + width - 1].end <= blockIdx.x)
      at += width;
  const gd_adam_entry &t = table.at[at];
  int64_t first = (int64_t)(blockIdx.x - (at ? table.at[at - 1].end : 0)) * (4 * ADAM_THREADS);
  if (t.wide && first + 4 * threadIdx.x + 4 <= t.count)
    adam_step<4>(t, first + 4 * threadIdx.x, r, factor, lr, step);
  else
    for (int k = 0; k < 4; k++) {
      int64_t i = first + (t.wide ? 4 * threadIdx.x + k : k * ADAM_THREADS + threadIdx.x);
      if (i < t.count)
        adam_step<1>(t, i, r, factor, lr, step);
    }
}
