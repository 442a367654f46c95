// Kernels that treat every element alone: conversions, add, mul, dropout, activations. Arithmetic
// is fp32, whatever the dtypes. A grid covers the elements once; a block's elements lie behind each
// other, and a thread has several vectors in flight, each of at most 16 bytes. The output may be an
// input's memory: a thread writes only what it has read itself.
//
// T0: x or a, and y; T1: b, or what is converted to. With ACTIVATION and DERIVATIVE defined the module
// holds the two kernels of that function, else all others.
//
// All are bound by their bytes: each tensor once.

enum { THREADS = 256 };

// load(u, i) for each vector of V elements from i on that the thread has, then store(u, i): the
// loads do not wait for each other. op_pointwise.c makes the grid.
template <int V, int UNROLL, typename Load, typename Store>
GD_DEVICE void in_vectors(int64_t count, Load load, Store store) {
  int64_t vectors = count / V, first = (int64_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
    if (first + u * THREADS < vectors)
      load(u, (first + u * THREADS) * V);
#pragma unroll
  for (int u = 0; u < UNROLL; u++)
    if (first + u * THREADS < vectors)
      store(u, (first + u * THREADS) * V);
}

// A vector on its way, as words: the compiler gives a 16-bit value that waits a register of its
// own.
template <typename T, int V> struct words {
  gd_pack<uint32_t, V * sizeof(T) / 4> at;
  GD_DEVICE void take(const T *p) {
    at = *(const gd_pack<uint32_t, V * sizeof(T) / 4> *)p;
  }
  GD_DEVICE float operator[](int j) const {
    return gd_float(T{(uint16_t)(at.at[j / 2] >> (j % 2 * 16))});
  }
};
template <int V> struct words<gd_f32, V> {
  gd_pack<gd_f32, V> at;
  GD_DEVICE void take(const gd_f32 *p) {
    at = *(const gd_pack<gd_f32, V> *)p;
  }
  GD_DEVICE float operator[](int j) const {
    return at.at[j];
  }
};
template <typename T> struct words<T, 1> {
  T at;
  GD_DEVICE void take(const T *p) {
    at = *p;
  }
  GD_DEVICE float operator[](int) const {
    return gd_float(at);
  }
};
template <> struct words<gd_f32, 1> {
  gd_f32 at;
  GD_DEVICE void take(const gd_f32 *p) {
    at = *p;
  }
  GD_DEVICE float operator[](int) const {
    return at;
  }
};

// The element behind the last vector that this thread has to do alone, or -1: fewer than V threads
// of the last block have one.
template <int V> GD_DEVICE int64_t left_over(int64_t count) {
  return blockIdx.x == gridDim.x - 1 && threadIdx.x < count % V ? count - count % V + threadIdx.x
                                                                : -1;
}

#ifdef ACTIVATION

// 16 elements a thread: the functions are long. FLOPs: some 12 to 60 instructions an element.
template <int V> GD_DEVICE void activate(T0 *y, const T0 *x, int64_t count) {
  words<T0, V> xs[16 / V];
  in_vectors<V, 16 / V>(
      count, [&](int u, int64_t i) { xs[u].take(x + i); },
      [&](int u, int64_t i) {
        float values[V];
#pragma unroll
        for (int j = 0; j < V; j++)
          values[j] = ACTIVATION(xs[u][j]);
        gd_store(y + i, values);
      });
  int64_t i = left_over<V>(count);
  if (i >= 0)
    y[i] = gd_to<T0>(ACTIVATION(gd_float(x[i])));
}

template <int V> GD_DEVICE void activate_grad(T0 *dx, const T0 *x, const T0 *dy, int64_t count) {
  words<T0, V> xs[16 / V], dys[16 / V];
  in_vectors<V, 16 / V>(
      count,
      [&](int u, int64_t i) {
        xs[u].take(x + i);
        dys[u].take(dy + i);
      },
      [&](int u, int64_t i) {
        float values[V];
#pragma unroll
        for (int j = 0; j < V; j++)
          values[j] = DERIVATIVE(xs[u][j]) * dys[u][j];
        gd_store(dx + i, values);
      });
  int64_t i = left_over<V>(count);
  if (i >= 0)
    dx[i] = gd_to<T0>(DERIVATIVE(gd_float(x[i])) * gd_float(dy[i]));
}

#define BY_WIDTH(NAME, V)                                                      \
  extern "C" __global__ void __launch_bounds__(THREADS)                        \
      activate_##NAME(T0 *y, const T0 *x, int64_t count) {                     \
    activate<V>(y, x, count);                                                  \
  }                                                                            \
  extern "C" __global__ void __launch_bounds__(THREADS)                        \
      activate_grad_##NAME(T0 *dx, const T0 *x, const T0 *dy, int64_t count) { \
    activate_grad<V>(dx, x, dy, count);                                        \
  }
BY_WIDTH(wide, 16 / sizeof(T0))
BY_WIDTH(narrow, 1)

#else

#ifndef T1
#define T1 T0
#endif

enum { UNROLL = 4, WIDE = 16 / (sizeof(T0) > sizeof(T1) ? sizeof(T0) : sizeof(T1)) };

// --- conversions --------------------------------------------------------------------------------

template <int V> GD_DEVICE void convert(T1 *y, const T0 *x, int64_t count) {
  words<T0, V> xs[UNROLL];
  in_vectors<V, UNROLL>(
      count, [&](int u, int64_t i) { xs[u].take(x + i); },
      [&](int u, int64_t i) {
        float values[V];
#pragma unroll
        for (int j = 0; j < V; j++)
          values[j] = xs[u][j];
        gd_store(y + i, values);
      });
  int64_t i = left_over<V>(count);
  if (i >= 0)
    y[i] = gd_to<T1>(gd_float(x[i]));
}

// --- add and mul --------------------------------------------------------------------------------

struct times {
  static GD_DEVICE float of(float a, float b) {
    return a * b;
  }
};

// b has as many elements as a.
template <typename Op, int V>
GD_DEVICE void combine(T0 *y, const T0 *a, const T1 *b, int64_t count) {
  words<T0, V> as[UNROLL];
  words<T1, V> bs[UNROLL];
  in_vectors<V, UNROLL>(
      count,
      [&](int u, int64_t i) {
        as[u].take(a + i);
        bs[u].take(b + i);
      },
      [&](int u, int64_t i) {
        float values[V];
#pragma unroll
        for (int j = 0; j < V; j++)
          values[j] = Op::of(as[u][j], bs[u][j]);
        gd_store(y + i, values);
      });
  int64_t i = left_over<V>(count);
  if (i >= 0)
    y[i] = gd_to<T0>(Op::of(gd_float(a[i]), gd_float(b[i])));
}

// b repeats after `period` vectors, of which a has a multiple, fewer than 2^31.
template <typename Op, int V>
GD_DEVICE void repeat(T0 *y, const T0 *a, const T1 *b, int64_t count, const gd_divider &period) {
  words<T0, V> as[UNROLL];
  words<T1, V> bs[UNROLL];
  in_vectors<V, UNROLL>(
      count,
      [&](int u, int64_t i) {
        uint32_t vector = (uint32_t)(i / V);
        uint32_t within = vector - gd_quotient(vector, period) * period.divisor;
        as[u].take(a + i);
        bs[u].take(b + (int64_t)within * V);
      },
      [&](int u, int64_t i) {
        float values[V];
#pragma unroll
        for (int j = 0; j < V; j++)
          values[j] = Op::of(as[u][j], bs[u][j]);
        gd_store(y + i, values);
      });
}

#define COMBINE(NAME, OP, WIDTH, V)                                                                \
  extern "C" __global__ void __launch_bounds__(THREADS)                                            \
      NAME##_##WIDTH(T0 *y, const T0 *a, const T1 *b, int64_t count) {                             \
    combine<OP, V>(y, a, b, count);                                                                \
  }                                                                                                \
  extern "C" __global__ void __launch_bounds__(THREADS) NAME##_repeated_##WIDTH(                   \
      T0 *y, const T0 *a, const T1 *b, int64_t count, const __grid_constant__ gd_divider period) { \
    repeat<OP, V>(y, a, b, count, period);                                                         \
  }
#define BY_WIDTH(NAME, V)                                 \
  extern "C" __global__ void __launch_bounds__(THREADS)   \
      convert_##NAME(T1 *y, const T0 *x, int64_t count) { \
    convert<V>(y, x, count);                              \
  }                                                       \
  COMBINE(add, gd_add, NAME, V)                           \
  COMBINE(mul, times, NAME, V)
BY_WIDTH(wide, WIDE)
BY_WIDTH(narrow, 1)

// --- dropout ------------------------------------------------------------------------------------

// Element i has the bits of element g mod 8 of counter g / 8, g = i + seed[2] * sample. A thread has
// UNROLL times the V elements of one 16-byte access: a counter, or half of one in fp32, which is
// then drawn twice; the draw takes about as many instructions as moving its 32 bytes leaves time for.
// Where g and i are both multiples of V, and x and y allow it (wide), it is one access.
extern "C" __global__ void __launch_bounds__(THREADS)
    dropout(T0 *y, const T0 *x, const int32_t *seed, int64_t count, int64_t sample, uint32_t stream,
            uint32_t threshold, float scale, int32_t wide) {
  uint64_t before = (uint64_t)(int64_t)seed[2] * (uint64_t)sample;
  uint32_t key = (uint32_t)seed[0], step = (uint32_t)seed[1];
  constexpr int V = 16 / sizeof(T0);
  int phase = (int)(before % V);
  bool whole = wide && phase == 0;
  int64_t first = (int64_t)blockIdx.x * (THREADS * UNROLL) + threadIdx.x;
  float values[UNROLL][V];
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    int64_t i = V * (first + u * THREADS) - phase;
    if (whole && i + V <= count) {
      gd_load(x + i, values[u]);
    } else {
#pragma unroll
      for (int j = 0; j < V; j++)
        values[u][j] = i + j >= 0 && i + j < count ? gd_float(x[i + j]) : 0.0f;
    }
  }
#pragma unroll
  for (int u = 0; u < UNROLL; u++) {
    int64_t i = V * (first + u * THREADS) - phase;
    if (i >= count)
      continue;
    uint64_t element = before + (uint64_t)i;
    gd_words words = gd_philox(key, step, stream, element / 8);
    if (V == 4 && element % 8 != 0) {
      words.at[0] = words.at[2];
      words.at[1] = words.at[3];
    }
#pragma unroll
    for (int j = 0; j < V; j++)
      values[u][j] = gd_drawn(words, j) >= threshold << 16 ? values[u][j] * scale : 0.0f;
    if (whole && i + V <= count) {
      gd_store(y + i, values[u]);
    } else {
#pragma unroll
      for (int j = 0; j < V; j++)
        if (i + j >= 0 && i + j < count)
          y[i + j] = gd_to<T0>(values[u][j]);
    }
  }
}

// The same with one draw for all elements of a sample: sample n of x has the bits of element
// n + seed[2]. Bytes: x and y once each. A thread has V elements, drawn for once unless a sample
// ends among them; one access where x and y allow it (wide).
extern "C" __global__ void __launch_bounds__(THREADS)
    drop_samples(T0 *y, const T0 *x, const int32_t *seed, int64_t count, int64_t sample,
                 uint32_t stream, uint32_t threshold, float scale, int32_t wide) {
  uint32_t key = (uint32_t)seed[0], step = (uint32_t)seed[1];
  constexpr int V = 16 / sizeof(T0);
  int64_t first = V * ((int64_t)blockIdx.x * THREADS + threadIdx.x), drawn = -1;
  if (first >= count)
    return;
  bool whole = wide && first + V <= count;
  float values[V];
  bool kept = false;
  if (whole)
    gd_load(x + first, values);
#pragma unroll
  for (int j = 0; j < V; j++) {
    int64_t i = first + j;
    if (i >= count)
      continue;
    if (drawn < 0 || i >= (drawn + 1) * sample) {
      drawn = i / sample;
      uint64_t number = (uint64_t)(int64_t)seed[2] + (uint64_t)drawn;
      gd_words words = gd_philox(key, step, stream, number / 8);
      kept = gd_drawn(words, (uint32_t)(number % 8)) >= threshold << 16;
    }
    values[j] = kept ? (whole ? values[j] : gd_float(x[i])) * scale : 0.0f;
    if (!whole)
      y[i] = gd_to<T0>(values[j]);
  }
  if (whole)
    gd_store(y + first, values);
}

#endif
