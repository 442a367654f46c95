// What comes before every generated kernel (src/codegen/dialect_cuda.c), after common.cuh. The text
// of a kernel is formulas over gd_val, a few neighbouring columns of a row as fp32; here is what
// these mean, how rows come from memory and go there, and how threads of a row add up.
//
// A block holds ROWS teams of TEAM threads; a team has one row at a time and strides over the grid.
// Thread `lane` of a team has columns first + k * STEP .. + LANES - 1 of it, k < PER, so the 32
// lanes of a warp read what lies behind each other. GD_ALIGNED 0: some tensor is aligned to its
// elements alone; then these move one by one.
#ifndef GD_ALIGNED
#define GD_ALIGNED 1
#endif

#include "fused_args.cuh"

template <int LANES_, int TEAM_, int PER_, int BLOCK_, int64_t COLUMNS_, int REDUCTIONS_, int SUMS_,
          int BLOCKS_, int DEPTH_, int FULL_BYTES>
struct gd_layout {
  static constexpr int LANES = LANES_, TEAM = TEAM_, PER = PER_, BLOCK = BLOCK_;
  static constexpr int REDUCTIONS = REDUCTIONS_, SUMS = SUMS_;
  static constexpr int64_t COLUMNS = COLUMNS_;
  static constexpr int ROWS = BLOCK / TEAM, STEP = TEAM * LANES;
  static constexpr int WARPS = TEAM / 32; // of a team of several
  static constexpr int BLOCKS = BLOCKS_; // of a multiprocessor
  // Rows in shared memory, the one at work included; FULL_BYTES: of a column, of all full inputs.
  static constexpr int DEPTH = DEPTH_, STAGE_BYTES = FULL_BYTES * LANES * PER * BLOCK;
  static constexpr int RING = DEPTH > 1 ? DEPTH * STAGE_BYTES / 16 : 1;
  static constexpr int UNROLL = PER <= 16 ? PER : 1;
  static constexpr bool EXACT = COLUMNS % (STEP * PER) == 0;
  static constexpr int EXCHANGE = TEAM > 32 ? 2 * REDUCTIONS * 32 : 0;
  static constexpr int COMBINE = SUMS > 0 && ROWS > 1 ? BLOCK * LANES : 0;
  static constexpr int SHARED_FLOATS = EXCHANGE + COMBINE > 0 ? EXCHANGE + COMBINE : 1;
  static_assert(TEAM <= 32 || TEAM % 32 == 0, "a team is part of a warp, or whole warps");

  static GD_DEVICE int first(int lane) { return blockIdx.y * (STEP * PER) + lane * LANES; }
  static GD_DEVICE bool on(int column, bool live) { return live && (EXACT || column < COLUMNS); }
  static GD_DEVICE bool leads(int lane) { return lane == 0 && blockIdx.y == 0; }
};

// --- values --------------------------------------------------------------------------------------

template <int N> struct gd_lanes {
  float at[N];
};
template <int N> struct gd_lane_words {
  uint32_t at[N];
};

#define GD_LIFT_OPERATOR(op)                                                               \
  template <int N> GD_DEVICE gd_lanes<N> operator op(const gd_lanes<N> &a, const gd_lanes<N> &b) { \
    gd_lanes<N> y;                                                                         \
    _Pragma("unroll") for (int i = 0; i < N; i++) y.at[i] = a.at[i] op b.at[i];            \
    return y;                                                                              \
  }                                                                                        \
  template <int N> GD_DEVICE gd_lanes<N> operator op(const gd_lanes<N> &a, float b) {      \
    gd_lanes<N> y;                                                                         \
    _Pragma("unroll") for (int i = 0; i < N; i++) y.at[i] = a.at[i] op b;                  \
    return y;                                                                              \
  }                                                                                        \
  template <int N> GD_DEVICE gd_lanes<N> operator op(float a, const gd_lanes<N> &b) {      \
    gd_lanes<N> y;                                                                         \
    _Pragma("unroll") for (int i = 0; i < N; i++) y.at[i] = a op b.at[i];                  \
    return y;                                                                              \
  }
GD_LIFT_OPERATOR(+)
GD_LIFT_OPERATOR(-)
GD_LIFT_OPERATOR(*)
GD_LIFT_OPERATOR(/)

GD_DEVICE float gd_exp_small(float x) { return expf(x); }
GD_DEVICE float gd_sqrt(float x) { return sqrtf(x); }

#define GD_LIFT(name)                                                       \
  template <int N> GD_DEVICE gd_lanes<N> name(const gd_lanes<N> &x) {       \
    gd_lanes<N> y;                                                          \
    _Pragma("unroll") for (int i = 0; i < N; i++) y.at[i] = name(x.at[i]); \
    return y;                                                               \
  }
GD_LIFT(gd_exp_small)
GD_LIFT(gd_gelu)
GD_LIFT(gd_gelu_derivative)
GD_LIFT(gd_gelu_tanh)
GD_LIFT(gd_gelu_tanh_derivative)
GD_LIFT(gd_relu)
GD_LIFT(gd_relu_derivative)
GD_LIFT(gd_silu)
GD_LIFT(gd_silu_derivative)
GD_LIFT(gd_softplus)
GD_LIFT(gd_logistic)
GD_LIFT(gd_logistic_derivative)
GD_LIFT(gd_quick_gelu)
GD_LIFT(gd_quick_gelu_derivative)
GD_LIFT(gd_tanh)
GD_LIFT(gd_tanh_derivative)

// --- memory --------------------------------------------------------------------------------------

// Elements as they lie in memory, packed into words; a single 16-bit element is a word's low half.
template <int BYTES> struct gd_raw {
  uint32_t at[(BYTES + 3) / 4];
};

template <int BYTES> GD_DEVICE gd_raw<BYTES> gd_fetch(const void *p) {
  gd_raw<BYTES> x;
  if constexpr (BYTES == 2) {
    x.at[0] = *(const uint16_t *)p;
  } else if constexpr (BYTES == 4) {
    x.at[0] = *(const uint32_t *)p;
  } else if constexpr (BYTES == 8) {
    uint2 a = *(const uint2 *)p;
    x.at[0] = a.x, x.at[1] = a.y;
  } else {
#pragma unroll
    for (int i = 0; i < BYTES / 16; i++) {
      uint4 a = ((const uint4 *)p)[i];
      x.at[4 * i] = a.x, x.at[4 * i + 1] = a.y, x.at[4 * i + 2] = a.z, x.at[4 * i + 3] = a.w;
    }
  }
  return x;
}
template <int BYTES> GD_DEVICE void gd_put(void *p, const gd_raw<BYTES> &x) {
  if constexpr (BYTES == 2) {
    *(uint16_t *)p = (uint16_t)x.at[0];
  } else if constexpr (BYTES == 4) {
    *(uint32_t *)p = x.at[0];
  } else if constexpr (BYTES == 8) {
    *(uint2 *)p = make_uint2(x.at[0], x.at[1]);
  } else {
#pragma unroll
    for (int i = 0; i < BYTES / 16; i++)
      ((uint4 *)p)[i] =
          make_uint4(x.at[4 * i], x.at[4 * i + 1], x.at[4 * i + 2], x.at[4 * i + 3]);
  }
}

// N elements from p on; zeros where !on, which reads nothing.
template <int N, typename T> GD_DEVICE gd_raw<N * sizeof(T)> gd_read(const T *p, bool on) {
  constexpr int BYTES = N * sizeof(T);
  gd_raw<BYTES> x;
#pragma unroll
  for (int i = 0; i < (BYTES + 3) / 4; i++)
    x.at[i] = 0;
  if (on) {
    if constexpr (GD_ALIGNED) {
      x = gd_fetch<BYTES>(p);
    } else if constexpr (sizeof(T) == 4) {
#pragma unroll
      for (int i = 0; i < N; i++)
        x.at[i] = ((const uint32_t *)p)[i];
    } else {
#pragma unroll
      for (int i = 0; i < N; i++)
        x.at[i / 2] |= (uint32_t)((const uint16_t *)p)[i] << i % 2 * 16;
    }
  }
  return x;
}

// All that a thread has of a row, before anything is computed: as many loads in flight as can be.
template <typename L, typename T>
GD_DEVICE void gd_read_row(gd_raw<L::LANES * sizeof(T)> (&x)[L::PER], const T *row, int first,
                           bool live) {
#pragma unroll L::UNROLL
  for (int k = 0; k < L::PER; k++) {
    int j = first + k * L::STEP;
    x[k] = gd_read<L::LANES>(row + j, L::on(j, live));
  }
}

// --- rows ahead ----------------------------------------------------------------------------------

// The next DEPTH - 1 rows of a team are on their way into shared memory while one is at work: what
// is in flight takes no registers. A thread copies and takes its own pieces alone, so none waits
// for another, and the slot that it copies into is the one that it took a row ago.
template <int BYTES> GD_DEVICE void gd_copy_ahead(void *to, const void *from, bool on) {
  static_assert(BYTES == 16 || BYTES == 8 || BYTES == 4, "what cp.async moves");
  uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
  if constexpr (BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
                 "r"(on ? 16 : 0)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;" ::"r"(at), "l"(from),
                 "r"(on ? BYTES : 0), "n"(BYTES)
                 : "memory");
}
GD_DEVICE void gd_commit_ahead() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most N of the rows that this thread asked for are still under way.
template <int N> GD_DEVICE void gd_wait_ahead() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Where this thread's piece k of an input's row lies; `before`: bytes a column of inputs before it.
template <typename L, typename T>
GD_DEVICE char *gd_piece(uint4 *ring, int stage, int before, int k) {
  constexpr int BYTES = L::LANES * sizeof(T);
  return (char *)ring + stage * L::STAGE_BYTES + before * (L::LANES * L::PER * L::BLOCK) +
         (k * L::BLOCK + (int)threadIdx.x) * BYTES;
}
template <typename L, typename T>
GD_DEVICE void gd_read_ahead(uint4 *ring, int stage, int before, const T *x, int64_t at, int first,
                             bool live) {
  constexpr int BYTES = L::LANES * sizeof(T);
#pragma unroll L::UNROLL
  for (int k = 0; k < L::PER; k++) {
    int j = first + k * L::STEP;
    bool on = L::on(j, live);
    char *to = gd_piece<L, T>(ring, stage, before, k);
    if constexpr (GD_ALIGNED)
      gd_copy_ahead<BYTES>(to, on ? x + at + j : x, on);
    else
      gd_put(to, gd_read<L::LANES>(x + at + j, on));
  }
}
template <typename L, typename T>
GD_DEVICE void gd_take_row(gd_raw<L::LANES * sizeof(T)> (&x)[L::PER], uint4 *ring, int stage,
                           int before) {
#pragma unroll L::UNROLL
  for (int k = 0; k < L::PER; k++)
    x[k] = gd_fetch<L::LANES * sizeof(T)>(gd_piece<L, T>(ring, stage, before, k));
}
template <typename T> GD_DEVICE float gd_of_row(const T *x, int64_t row, int64_t rows) {
  return row < rows ? gd_float(x[row]) : 0.0f;
}

// --- elements ------------------------------------------------------------------------------------

GD_DEVICE float gd_element(gd_f32, uint32_t word, int) { return __uint_as_float(word); }
GD_DEVICE float gd_element(gd_bf16, uint32_t word, int half) {
  return __uint_as_float(half ? word & 0xffff0000u : word << 16);
}
GD_DEVICE float gd_element(gd_f16, uint32_t word, int half) {
  return gd_float(gd_f16{(uint16_t)(half ? word >> 16 : word)});
}
template <typename T, int N> GD_DEVICE gd_lanes<N> gd_values(const gd_raw<N * sizeof(T)> &x) {
  constexpr int EACH = 4 / sizeof(T);
  gd_lanes<N> y;
#pragma unroll
  for (int i = 0; i < N; i++)
    y.at[i] = gd_element(T(), x.at[i / EACH], i % EACH);
  return y;
}

// Two to a word, to nearest even; `high` in the upper half.
GD_DEVICE uint32_t gd_pair(gd_bf16, float low, float high) {
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}
GD_DEVICE uint32_t gd_pair(gd_f16, float low, float high) {
  uint32_t y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
}

template <int N, typename T> GD_DEVICE void gd_write(T *p, const gd_lanes<N> &x, bool on) {
  gd_raw<N * sizeof(T)> y;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < N; i++)
      y.at[i] = __float_as_uint(x.at[i]);
  } else if constexpr (N == 1) {
    y.at[0] = gd_pair(T(), x.at[0], 0.0f) & 0xffffu;
  } else {
#pragma unroll
    for (int i = 0; i < N / 2; i++)
      y.at[i] = gd_pair(T(), x.at[2 * i], x.at[2 * i + 1]);
  }
  if (!on)
    return;
  if constexpr (GD_ALIGNED) {
    gd_put(p, y);
  } else if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < N; i++)
      ((uint32_t *)p)[i] = y.at[i];
  } else {
#pragma unroll
    for (int i = 0; i < N; i++)
      ((uint16_t *)p)[i] = (uint16_t)(y.at[i / 2] >> i % 2 * 16);
  }
}

// --- over the columns ----------------------------------------------------------------------------

template <typename Op, int N> GD_DEVICE float gd_fold(const gd_lanes<N> &x) {
  float y[N];
#pragma unroll
  for (int i = 0; i < N; i++)
    y[i] = x.at[i];
#pragma unroll
  for (int step = N / 2; step > 0; step /= 2)
#pragma unroll
    for (int i = 0; i < step; i++)
      y[i] = Op::of(y[i], y[i + step]);
  return y[0];
}
template <int N> GD_DEVICE float gd_sum(const gd_lanes<N> &x) { return gd_fold<gd_add>(x); }
template <int N> GD_DEVICE float gd_largest(const gd_lanes<N> &x) { return gd_fold<gd_greater>(x); }

// One slot a reduction, a float a warp, in two sets by turns of rows: who is a row ahead writes to
// the other set, and cannot be two ahead, since the whole block waits once a row.
template <typename L> GD_DEVICE float *gd_slot(float *shared, int parity, int reduction) {
  return shared + (parity * L::REDUCTIONS + reduction) * 32;
}
template <typename L, typename Op>
GD_DEVICE void gd_share(float x, float *shared, int parity, int reduction) {
  if constexpr (L::TEAM > 32) {
    x = gd_warp<Op>(x);
    if (threadIdx.x % 32 == 0)
      gd_slot<L>(shared, parity, reduction)[threadIdx.x / 32] = x;
  }
}
template <typename L> GD_DEVICE void gd_wait() {
  if constexpr (L::TEAM > 32)
    __syncthreads();
}
GD_DEVICE constexpr int gd_power_from(int n) { return n <= 1 ? 1 : 2 * gd_power_from((n + 1) / 2); }
// The same bits in every thread of the team: both sides of an exchange add the same two numbers.
template <typename L, typename Op>
GD_DEVICE float gd_total(float x, float *shared, int parity, int reduction) {
  if constexpr (L::TEAM > 32) {
    constexpr int WIDTH = gd_power_from(L::WARPS);
    int warp = threadIdx.x % WIDTH, before = threadIdx.x / L::TEAM * L::WARPS;
    x = warp < L::WARPS ? gd_slot<L>(shared, parity, reduction)[before + warp] : Op::none();
    return gd_warp<Op>(x, WIDTH);
  } else {
    return gd_warp<Op>(x, L::TEAM);
  }
}

// --- over the rows -------------------------------------------------------------------------------

template <int N, int PER> GD_DEVICE void gd_clear(gd_lanes<N> (&s)[PER]) {
#pragma unroll
  for (int k = 0; k < PER; k++)
#pragma unroll
    for (int i = 0; i < N; i++)
      s[k].at[i] = 0;
}
template <int N> GD_DEVICE void gd_accumulate(gd_lanes<N> &s, const gd_lanes<N> &x, bool on) {
#pragma unroll
  for (int i = 0; i < N; i++)
    s.at[i] += on ? x.at[i] : 0.0f;
}
// The teams of a block in order, then to this block's row of the partial sums; fused_sums.cu adds
// these up.
template <typename L>
GD_DEVICE void gd_write_sums(float *partials, int sum, const gd_lanes<L::LANES> (&s)[L::PER],
                             int first, float *shared) {
  float *row = partials + ((int64_t)blockIdx.x * L::SUMS + sum) * L::COLUMNS;
#pragma unroll L::UNROLL
  for (int k = 0; k < L::PER; k++) {
    int j = first + k * L::STEP;
    if constexpr (L::ROWS == 1) {
      if (L::on(j, true))
#pragma unroll
        for (int i = 0; i < L::LANES; i++)
          row[j + i] = s[k].at[i];
    } else {
      float *of_teams = shared + L::EXCHANGE; // [team][lane of a value][thread of a team]
#pragma unroll
      for (int i = 0; i < L::LANES; i++)
        of_teams[(threadIdx.x / L::TEAM * L::LANES + i) * L::TEAM + threadIdx.x % L::TEAM] =
            s[k].at[i];
      __syncthreads();
      for (int c = threadIdx.x; c < L::STEP; c += L::BLOCK) {
        int column = L::first(c % L::TEAM) + k * L::STEP + c / L::TEAM;
        float total = 0;
        for (int team = 0; team < L::ROWS; team++)
          total += of_teams[team * L::STEP + c];
        if (column < L::COLUMNS)
          row[column] = total;
      }
      __syncthreads();
    }
  }
}

// --- dropout -------------------------------------------------------------------------------------

// The random bits of a row; the rule is that of gd_ref_dropout. WHOLE: what the elements of a sample
// are a multiple of, 8 (whole counters), 4 or 1.
GD_DEVICE constexpr int gd_whole(int64_t sample) {
  return sample % 8 == 0 ? 8 : sample % 4 == 0 ? 4 : 1;
}
template <int WHOLE> struct gd_draws {
  uint32_t key, step, stream;
  uint64_t from; // element of column 0
  GD_DEVICE gd_draws(const gd_i32 *seed, uint32_t stream_, int64_t sample, int64_t at)
      : key((uint32_t)seed[0]), step((uint32_t)seed[1]), stream(stream_),
        from((uint64_t)(int64_t)seed[2] * (uint64_t)sample + (uint64_t)at) {}
};

// Rows, and so columns of vectors, begin at multiples of N elements.
template <int N, int WHOLE>
GD_DEVICE gd_lane_words<N> gd_draw(const gd_draws<WHOLE> &draws, int column) {
  gd_lane_words<N> y;
  uint64_t from = draws.from + (uint32_t)column;
  gd_words w = gd_philox(draws.key, draws.step, draws.stream, from / 8);
  if constexpr (N >= 4 && N <= WHOLE) { // one counter, or the first or second half of one
    if (N == 4 && from % 8 != 0) {
      w.at[0] = w.at[2];
      w.at[1] = w.at[3];
    }
#pragma unroll
    for (int i = 0; i < N; i++)
      y.at[i] = gd_drawn(w, i);
  } else {
#pragma unroll
    for (int i = 0; i < N; i++) {
      uint32_t at = (uint32_t)(from + i) % 8;
      if (i > 0 && at == 0)
        w = gd_philox(draws.key, draws.step, draws.stream, (from + i) / 8);
      y.at[i] = gd_drawn(w, at);
    }
  }
  return y;
}

// The same of a dropout with one draw for each sample of SAMPLE elements.
template <int64_t SAMPLE> struct gd_sample_draws {
  uint32_t key, step, stream;
  uint64_t first; // sample of the batch that sample 0 is
  int64_t at;     // element of column 0
  GD_DEVICE gd_sample_draws(const gd_i32 *seed, uint32_t stream_, int64_t at_)
      : key((uint32_t)seed[0]), step((uint32_t)seed[1]), stream(stream_),
        first((uint64_t)(int64_t)seed[2]), at(at_) {}
};

template <int64_t SAMPLE>
GD_DEVICE uint32_t gd_draw_sample(const gd_sample_draws<SAMPLE> &draws, int64_t sample) {
  uint64_t number = draws.first + (uint64_t)sample;
  return gd_drawn(gd_philox(draws.key, draws.step, draws.stream, number / 8), (uint32_t)(number % 8));
}

template <int N, int64_t SAMPLE>
GD_DEVICE gd_lane_words<N> gd_draw(const gd_sample_draws<SAMPLE> &draws, int column) {
  gd_lane_words<N> y;
  int64_t from = draws.at + column, sample = from / SAMPLE;
  uint32_t word = gd_draw_sample(draws, sample);
#pragma unroll
  for (int i = 0; i < N; i++) {
    if (SAMPLE % N != 0 && i > 0 && (from + i) / SAMPLE != sample) {
      sample = (from + i) / SAMPLE;
      word = gd_draw_sample(draws, sample);
    }
    y.at[i] = word;
  }
  return y;
}

// x * scale where the word, as gd_drawn makes it, reaches the threshold, 0 elsewhere.
template <int N>
GD_DEVICE gd_lanes<N> gd_drop(const gd_lanes<N> &x, const gd_lane_words<N> &word,
                              uint32_t threshold, float scale) {
  gd_lanes<N> y;
#pragma unroll
  for (int i = 0; i < N; i++)
    y.at[i] = word.at[i] >= threshold << 16 ? x.at[i] * scale : 0.0f;
  return y;
}

