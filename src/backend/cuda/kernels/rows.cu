// Norms and softmax over the last dim, with their gradients: x[rows, columns] in dtype T0.
// LANES threads have a row (a power of two up to 32, or whole warps), each ITEMS vectors of VEC
// elements of it in registers: vector i of lane l is vector i LANES + l of the row. A block of
// THREADS threads has ROWS rows at a time. Every thread goes through every reduction, those whose
// row or columns do not exist with zeros.
// All are bound by memory: each tensor is read or written once, at about 1 FLOP a byte.

#define ROWS (THREADS / LANES)

// Larger rows than registers hold are looped over in local memory: right, if slow.
#if ITEMS * VEC <= 128
#define EACH_ITEM(i) _Pragma("unroll") for (int i = 0; i < ITEMS; i++)
#else
#define EACH_ITEM(i) _Pragma("unroll 1") for (int i = 0; i < ITEMS; i++)
#endif
#define EACH(v) _Pragma("unroll") for (int v = 0; v < VEC; v++)

GD_DEVICE int lane_of_row(void) { return threadIdx.x % LANES; }
GD_DEVICE constexpr int power_from(int n) { return n <= 1 ? 1 : 2 * power_from((n + 1) / 2); }
GD_DEVICE int column_of(int i) { return (i * LANES + lane_of_row()) * VEC; } // registers hold it

// Each of N values over the threads of a row; every thread gets the result, the same bits. Warps
// meet in two sets of slots by turns: who writes to a set again has waited once for the other set,
// after all had read this one. So threads wait once a call; a kernel's calls share one `turn`.
template <typename Op, int N> GD_DEVICE void over_row(float (&x)[N], int &turn) {
#pragma unroll
  for (int n = 0; n < N; n++)
    x[n] = gd_warp<Op>(x[n], LANES < 32 ? LANES : 32);
#if LANES > 32
  constexpr int WARPS = LANES / 32, WIDTH = power_from(WARPS);
  __shared__ float parts[2][N][THREADS / 32];
  int lane = threadIdx.x % 32, first = threadIdx.x / LANES * WARPS;
#pragma unroll
  for (int n = 0; n < N; n++)
    if (lane == 0)
      parts[turn][n][threadIdx.x / 32] = x[n];
  __syncthreads();
#pragma unroll
  for (int n = 0; n < N; n++)
    x[n] = gd_warp<Op>(lane % WIDTH < WARPS ? parts[turn][n][first + lane % WIDTH] : Op::none(),
                       WIDTH);
  turn ^= 1;
#endif
}

// The elements of a row that lie before `end`; `fill` for the others.
GD_DEVICE void load_row(float (&x)[ITEMS][VEC], const T0 *row, int64_t end, float fill) {
  EACH_ITEM(i) {
    if (column_of(i) < end)
      gd_load(row + column_of(i), x[i]);
    else
      EACH(v) x[i][v] = fill;
  }
}

// --- norms ---------------------------------------------------------------------------------------

// A row as it lies in memory: words, not elements, which the compiler would unpack at once, and so wait
// for, as soon as they are asked for.
#if VEC > 1
typedef gd_pack<uint32_t, VEC * sizeof(T0) / 4> packed;
#else
typedef T0 packed;
#endif
struct packed_row {
  packed at[ITEMS];
};
GD_DEVICE void fetch_row(packed_row &row, const T0 *from, int end) {
  EACH_ITEM(i) {
    if (column_of(i) < end)
      row.at[i] = *(const packed *)(from + column_of(i));
  }
}

GD_DEVICE float element(gd_f32, const uint32_t *words, int v) { return __uint_as_float(words[v]); }
GD_DEVICE float element(gd_bf16, const uint32_t *words, int v) {
  return __uint_as_float(v % 2 ? words[v / 2] & 0xffff0000u : words[v / 2] << 16);
}
GD_DEVICE float element(gd_f16, const uint32_t *words, int v) {
  return gd_float(gd_f16{(uint16_t)(v % 2 ? words[v / 2] >> 16 : words[v / 2])});
}
GD_DEVICE float held(const packed &x, int v) {
#if VEC > 1
  return element(T0(), x.at, v);
#else
  return gd_float(x);
#endif
}

// A block goes through rows gridDim.x ROWS apart. Weights stay in a thread's registers where there
// is room: they are fp32, and fetched again for every 16-bit row they would be twice the bytes of the row
// itself moves, through a cache that the rows pass through too. A row's loads are under way while
// the sums of the one before are waited for, so that RESIDENT blocks a multiprocessor keep 20 KiB
// or more in flight all the time. y may be x: a row is loaded whole before it is written, and by
// who writes it. Floor: x and y once / bandwidth; about 8 FLOPs an element.
#define KEEPS (ITEMS * VEC <= 32 && THREADS <= 512)

GD_DEVICE void load_weights(float (&w)[VEC], const float *weight, int i, int columns) {
  if (weight && column_of(i) < columns)
    gd_load(weight + column_of(i), w);
  else
    EACH(v) w[v] = 0;
}

template <bool CENTRED>
GD_DEVICE void norm(const T0 *x, const float *weight, const float *bias, T0 *y, float *means,
                    float *scales, int64_t rows, int64_t columns, float eps) {
  int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / LANES, step = (int64_t)gridDim.x * ROWS;
  int width = (int)columns, turn = 0;
  packed_row next;
  fetch_row(next, x + row * columns, row < rows ? width : 0);
#if KEEPS
  float weights[ITEMS][VEC], biases[ITEMS][VEC];
  EACH_ITEM(i) {
    load_weights(weights[i], weight, i, width);
    load_weights(biases[i], bias, i, width);
  }
#endif
  for (; row - threadIdx.x / LANES < rows; row += step) {
    int end = row < rows ? width : 0;
    float values[ITEMS][VEC], sum[1] = {0}, squares[1] = {0}, mean = 0;
    EACH_ITEM(i) EACH(v) values[i][v] = column_of(i) < end ? held(next.at[i], v) : 0.0f;
    fetch_row(next, x + (row + step) * columns, row + step < rows ? width : 0);
    if (CENTRED) {
      EACH_ITEM(i) EACH(v) sum[0] += values[i][v];
      over_row<gd_add>(sum, turn);
      mean = sum[0] / (float)columns;
    }
    EACH_ITEM(i) {
      if (column_of(i) < end)
        EACH(v) {
          values[i][v] -= mean;
          squares[0] += values[i][v] * values[i][v];
        }
    }
    over_row<gd_add>(squares, turn);
    float scale = 1.0f / sqrtf(squares[0] / (float)columns + eps);
    EACH_ITEM(i) {
#if KEEPS
      float(&w)[VEC] = weights[i], (&b)[VEC] = biases[i];
#else
      float w[VEC], b[VEC];
      load_weights(w, weight, i, end);
      load_weights(b, bias, i, end);
#endif
      EACH(v) {
        float scaled = values[i][v] * scale * w[v];
        values[i][v] = CENTRED ? scaled + b[v] : scaled;
      }
      if (column_of(i) < end)
        gd_store(y + row * columns + column_of(i), values[i]);
    }
    if (row < rows && lane_of_row() == 0) {
      scales[row] = scale;
      if (CENTRED)
        means[row] = mean;
    }
  }
}

#ifndef RESIDENT
#define RESIDENT 1
#endif

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    layernorm(const T0 *x, const float *weight, const float *bias, T0 *y, float *means,
              float *scales, int64_t rows, int64_t columns, float eps) {
  norm<true>(x, weight, bias, y, means, scales, rows, columns, eps);
}
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
    rmsnorm(const T0 *x, const float *weight, T0 *y, float *scales, int64_t rows, int64_t columns,
            float eps) {
  norm<false>(x, weight, nullptr, y, nullptr, scales, rows, columns, eps);
}

// Block g has rows [g per, (g + 1) per): dx of each, and row g of partial[groups, PARTS, columns],
// its share of dweight and, as the second part, of dbias. The next rows are loaded before this
// one's sums are waited for. dx may be dy: a row is loaded whole before it is written.
template <bool CENTRED, int PARTS>
GD_DEVICE void norm_grad(const T0 *dy, const T0 *x, const float *weight, const float *means,
                         const float *scales, T0 *dx, float *partial, int64_t rows, int64_t per,
                         int64_t columns) {
  float sums[PARTS][ITEMS][VEC] = {}, weights[ITEMS][VEC];
  EACH_ITEM(i) {
    if (column_of(i) < columns)
      gd_load(weight + column_of(i), weights[i]);
    else
      EACH(v) weights[i][v] = 0;
  }
  int64_t first = (int64_t)blockIdx.x * per, last = first + per < rows ? first + per : rows;
  int64_t row = first + threadIdx.x / LANES;
  int turn = 0;
  packed_row next_dy, next_x;
  float next_mean = 0, next_scale = 0;
  if (row < last) {
    fetch_row(next_dy, dy + row * columns, (int)columns);
    fetch_row(next_x, x + row * columns, (int)columns);
    next_mean = CENTRED ? means[row] : 0;
    next_scale = scales[row];
  }
  for (int64_t step = first; step < last; step += ROWS, row += ROWS) {
    int64_t end = row < last ? columns : 0;
    float g[ITEMS][VEC], h[ITEMS][VEC], scale = next_scale, over[2] = {0, 0};
    EACH_ITEM(i) {
      bool inside = column_of(i) < end;
      EACH(v) {
        float gradient = inside ? held(next_dy.at[i], v) : 0.0f;
        h[i][v] = inside ? (held(next_x.at[i], v) - next_mean) * scale : 0.0f;
        g[i][v] = gradient * weights[i][v];
        sums[0][i][v] += gradient * h[i][v];
        if (PARTS > 1)
          sums[PARTS - 1][i][v] += gradient;
        over[0] += g[i][v] * h[i][v];
        over[1] += CENTRED ? g[i][v] : 0.0f;
      }
    }
    if (row + ROWS < last) {
      fetch_row(next_dy, dy + (row + ROWS) * columns, (int)columns);
      fetch_row(next_x, x + (row + ROWS) * columns, (int)columns);
      next_mean = CENTRED ? means[row + ROWS] : 0;
      next_scale = scales[row + ROWS];
    }
    if (CENTRED) {
      over_row<gd_add>(over, turn);
    } else {
      float one[1] = {over[0]};
      over_row<gd_add>(one, turn);
      over[0] = one[0];
    }
    float mean_gh = over[0] / (float)columns, mean_g = over[1] / (float)columns;
    EACH_ITEM(i) {
      EACH(v) g[i][v] = scale * (g[i][v] - mean_g - h[i][v] * mean_gh);
      if (column_of(i) < end)
        gd_store(dx + row * columns + column_of(i), g[i]);
    }
  }
#if THREADS / LANES > 1
  // The rows that ran in parallel, in order.
  __shared__ float shared[PARTS][LANES * ITEMS * VEC];
  int mine = threadIdx.x / LANES;
  for (int other = 1; other < ROWS; other++) {
    if (mine == other)
      for (int p = 0; p < PARTS; p++)
        EACH_ITEM(i) EACH(v) shared[p][column_of(i) + v] = sums[p][i][v];
    __syncthreads();
    if (mine == 0)
      for (int p = 0; p < PARTS; p++)
        EACH_ITEM(i) EACH(v) sums[p][i][v] += shared[p][column_of(i) + v];
    __syncthreads();
  }
  if (mine > 0)
    return;
#endif
  for (int p = 0; p < PARTS; p++)
    EACH_ITEM(i) {
      if (column_of(i) < columns)
        EACH(v) partial[((int64_t)blockIdx.x * PARTS + p) * columns + column_of(i) + v] =
            sums[p][i][v];
    }
}

// Two blocks of 256 threads a multiprocessor: left alone, the compiler takes registers for one.
#define GRAD_BOUNDS __launch_bounds__(THREADS, THREADS <= 512 ? 512 / THREADS : 1)

extern "C" __global__ void GRAD_BOUNDS
    layernorm_grad(const T0 *dy, const T0 *x, const float *weight, const float *means,
                   const float *scales, T0 *dx, float *partial, int64_t rows, int64_t per,
                   int64_t columns) {
  norm_grad<true, 1>(dy, x, weight, means, scales, dx, partial, rows, per, columns);
}
extern "C" __global__ void GRAD_BOUNDS
    layernorm_bias_grad(const T0 *dy, const T0 *x, const float *weight, const float *means,
                        const float *scales, T0 *dx, float *partial, int64_t rows, int64_t per,
                        int64_t columns) {
  norm_grad<true, 2>(dy, x, weight, means, scales, dx, partial, rows, per, columns);
}
extern "C" __global__ void GRAD_BOUNDS
    rmsnorm_grad(const T0 *dy, const T0 *x, const float *weight, const float *scales, T0 *dx,
                 float *partial, int64_t rows, int64_t per, int64_t columns) {
  norm_grad<false, 1>(dy, x, weight, nullptr, scales, dx, partial, rows, per, columns);
}

// --- softmax -------------------------------------------------------------------------------------

// Columns of a row that count. positions 0: all; else rows are so many positions, and row r sees
// the columns up to r mod positions.
GD_DEVICE int64_t columns_seen(int64_t row, int64_t positions, int64_t columns) {
  int64_t seen = columns;
  if (positions) // 64-bit remainders are slow and rarely needed
    seen = 1 + ((row | positions) >> 32 ? row % positions : (uint32_t)row % (uint32_t)positions);
  return seen < columns ? seen : columns;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax(const T0 *x, T0 *y, int64_t rows, int64_t positions, int64_t columns) {
  int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / LANES;
  int64_t end = row < rows ? columns : 0;
  int turn = 0;
  int64_t seen = row < rows ? columns_seen(row, positions, columns) : 0;
  float values[ITEMS][VEC], most[1] = {-GD_INFINITY}, sum[1] = {0};
  load_row(values, x + row * columns, seen, 0); // past the row's own there may be anything
  EACH_ITEM(i) EACH(v) {
    if (column_of(i) + v < seen)
      most[0] = fmaxf(most[0], values[i][v]);
  }
  over_row<gd_greater>(most, turn);
  EACH_ITEM(i) EACH(v) {
    values[i][v] = column_of(i) + v < seen ? expf(values[i][v] - most[0]) : 0.0f;
    sum[0] += values[i][v];
  }
  over_row<gd_add>(sum, turn);
  float factor = 1.0f / sum[0];
  EACH_ITEM(i) {
    EACH(v) values[i][v] = column_of(i) + v < seen ? values[i][v] * factor : 0.0f;
    if (column_of(i) < end)
      gd_store(y + row * columns + column_of(i), values[i]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    softmax_grad(const T0 *y, const T0 *dy, T0 *dx, int64_t rows, int64_t positions,
                 int64_t columns) {
  int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / LANES;
  int64_t end = row < rows ? columns : 0;
  int turn = 0;
  int64_t seen = row < rows ? columns_seen(row, positions, columns) : 0;
  float values[ITEMS][VEC], gradients[ITEMS][VEC], dot[1] = {0};
  load_row(values, y + row * columns, seen, 0);
  load_row(gradients, dy + row * columns, seen, 0);
  EACH_ITEM(i) EACH(v) {
    if (column_of(i) + v < seen)
      dot[0] += values[i][v] * gradients[i][v];
  }
  over_row<gd_add>(dot, turn);
  EACH_ITEM(i) {
    EACH(v) values[i][v] =
        column_of(i) + v < seen ? values[i][v] * (gradients[i][v] - dot[0]) : 0.0f;
    if (column_of(i) < end)
      gd_store(dx + row * columns + column_of(i), values[i]);
  }
}
