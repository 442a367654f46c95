#include "attention_dropout.cuh"

// A block owns ROWS queries of a head. While it multiplies by keys, the values of the same columns
// arrive; while by values, the next keys.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_forward(const T0 *q, const T0 *k, const T0 *v, T0 *out, float *lse, const int *seed,
                      gd_attention p) {
  constexpr int KEYS = ROWS * STRIDE, VALUES = KEYS + COLUMNS * STRIDE;
  gd_place place = place_of(p, true);
  int64_t matrix = (int64_t)p.steps * p.size, key_head = place.head / p.group;
  q += place.head * matrix;
  k += key_head * matrix;
  v += key_head * matrix;
  int warp_row = threadIdx.x / 32 * WARP_ROWS, first = place.row + warp_row;
  int visible = p.causal && place.row + ROWS < p.steps ? place.row + ROWS : p.steps;
  gd_dropout dropout = dropout_of(p, seed, place.head);
  uint32_t base = shared_address(shared);
  float exponent = fabsf(p.exponent);
  float slack = 8 / exponent;

  float sums[ROW_TILES][HEAD_TILES][4], w[ROW_TILES][TILES][4];
  float most[ROW_TILES][2], total[ROW_TILES][2]; // of a row: what exponents are relative to, and
                                                 // this lane's share of the sum
#pragma unroll
  for (int i = 0; i < ROW_TILES; i++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      most[i][half] = -GD_INFINITY;
      total[i][half] = 0;
    }
  }
  each_sum<HEAD_TILES>([&](int i, int j, int e) { sums[i][j][e] = 0; });

  gd_own<KEEP >= 1> own(base + warp_row * STRIDE);
  load_rows<ROWS>(0, q, place.row, p.steps, p.size);
  load_rows<COLUMNS>(KEYS, k, 0, p.steps, p.size);
  copies_commit();
  copies_wait<0>();
  round_rows<ROWS>(0);
  if (KEEP >= 1) {
    __syncthreads();
    own.keep();
  }
  for (int column = 0; column < visible; column += COLUMNS) {
    // Columns past all of the warp's rows, or rows past T: nothing to do but keep step.
    bool sees = first < p.steps && (!p.causal || column < first + WARP_ROWS);
    copies_wait<0>();
    __syncthreads(); // the keys are there, and nobody needs the former values
    load_rows<COLUMNS>(VALUES, v, column, p.steps, p.size);
    copies_commit();
    if (sees)
      scores(w, own, base + KEYS);
    copies_wait<0>();
    __syncthreads(); // the values are there, and nobody needs these keys
    if (column + COLUMNS < visible)
      load_rows<COLUMNS>(KEYS, k, column + COLUMNS, p.steps, p.size);
    copies_commit();
    if (!sees)
      continue;

    if (p.exponent < 0)
      each_sum<TILES>([&](int i, int j, int e) { w[i][j][e] = -w[i][j][e]; });
    hide(w, p, first, column, -GD_INFINITY);

    // Any reference near the greatest score will do; it moves, and the sums with it, only when a
    // score exceeds it by 2^8.
    bool moves = false;
    float factor[ROW_TILES][2];
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float greatest = -GD_INFINITY;
#pragma unroll
        for (int j = 0; j < TILES; j++)
          greatest = fmaxf(greatest, fmaxf(w[i][j][2 * half], w[i][j][2 * half + 1]));
        greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffff, greatest, 1, 32));
        greatest = fmaxf(greatest, __shfl_xor_sync(0xffffffff, greatest, 2, 32));
        factor[i][half] = 1;
        if (greatest > most[i][half] + slack) {
          factor[i][half] = gd_exp2((most[i][half] - greatest) * exponent);
          most[i][half] = greatest;
          moves = true;
        }
      }
    if (__any_sync(0xffffffff, moves)) {
#pragma unroll
      for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
        for (int half = 0; half < 2; half++) {
          total[i][half] *= factor[i][half];
#pragma unroll
          for (int j = 0; j < HEAD_TILES; j++) {
            sums[i][j][2 * half] *= factor[i][half];
            sums[i][j][2 * half + 1] *= factor[i][half];
          }
        }
    }
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        float reference = most[i][half] * exponent;
#pragma unroll
        for (int j = 0; j < TILES; j++)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; e++) {
            w[i][j][e] = gd_exp2(fmaf(w[i][j][e], exponent, -reference));
            total[i][half] += w[i][j][e];
          }
      }
    if (DROPOUT) {
      mark(w, dropout, dropout.start + (uint64_t)((int64_t)first * p.steps + column), p.steps);
      each_sum<TILES>([&](int i, int j, int e) {
        w[i][j][e] = dropped(w[i][j][e]) ? 0 : w[i][j][e];
      });
    }
    accumulate(sums, w, base + VALUES);
  }

  float factor[ROW_TILES][2];
#pragma unroll
  for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = total[i][half];
      sum += __shfl_xor_sync(0xffffffff, sum, 1, 32);
      sum += __shfl_xor_sync(0xffffffff, sum, 2, 32);
      factor[i][half] = (DROPOUT ? p.kept_scale : 1) / sum;
      int row = first + row_of(i, 2 * half);
      if (row < p.steps && threadIdx.x % 4 == 0)
        lse[place.head * p.steps + row] =
            0.69314718055994531f * fmaf(most[i][half], exponent, log2f(sum));
    }
  store_rows(out + place.head * matrix, sums, factor, first, p.steps, p.size);
}
