#include "attention_dropout.cuh"

// dq_i = scale sum_j ds_ij k_j with ds_ij = p_ij (kept_ij dout_i . v_j - delta_i). A block owns
// ROWS queries of a head and visits keys with their values. With three stages, the next scores
// are computed amid the arithmetic on these, as in attention_forward.cu.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_grad_queries(const T0 *dout, const T0 *q, const T0 *k, const T0 *v, const float *lse,
                           const float *delta, const int *seed, T0 *dq, gd_attention p) {
  constexpr int DOUT = ROWS * STRIDE, KEYS = 2 * DOUT, VALUES = COLUMNS * STRIDE;
  constexpr int STAGE = 2 * COLUMNS * STRIDE;
  gd_place place = place_of(p, true);
  int64_t matrix = (int64_t)p.steps * p.size, key_head = place.head / p.group;
  q += place.head * matrix;
  dout += place.head * matrix;
  k += key_head * matrix;
  v += key_head * matrix;
  lse += place.head * p.steps;
  delta += place.head * p.steps;
  int warp_row = threadIdx.x / 32 * WARP_ROWS, first = place.row + warp_row;
  int visible = p.causal && place.row + ROWS < p.steps ? place.row + ROWS : p.steps;
  gd_dropout dropout = dropout_of(p, seed, place.head);
  uint32_t base = shared_address(shared);
  float hidden = p.exponent < 0 ? GD_INFINITY : -GD_INFINITY;

  float sums[ROW_TILES][HEAD_TILES][4], w[ROW_TILES][TILES][4], dscores[ROW_TILES][TILES][4];
  float reference[ROW_TILES][2], mean[ROW_TILES][2], factor[ROW_TILES][2];
#pragma unroll
  for (int i = 0; i < ROW_TILES; i++) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      int row = first + row_of(i, 2 * half);
      reference[i][half] = row < p.steps ? lse[row] * 1.4426950408889634f : 0;
      mean[i][half] = row < p.steps ? delta[row] : 0;
      factor[i][half] = p.scale;
    }
  }
  each_sum<HEAD_TILES>([&](int i, int j, int e) { sums[i][j][e] = 0; });

  gd_own<KEEP >= 1> own(base + warp_row * STRIDE);
  gd_own<KEEP >= 2> own_dout(base + DOUT + warp_row * STRIDE);
  auto load = [&](int column, int to) {
    if (column < visible) {
      load_rows<COLUMNS>(to, k, column, p.steps, p.size);
      load_rows<COLUMNS>(to + VALUES, v, column, p.steps, p.size);
    }
    gd_copies_commit();
  };
  // One visit. `now` are its scores, or become them.
  auto take = [&](float(&now)[ROW_TILES][TILES][4], float(&next)[ROW_TILES][TILES][4], int column,
                  int stage, int after) {
    if (first >= p.steps || (p.causal && column >= first + WARP_ROWS))
      return;
    if constexpr (STAGES < 3)
      scores(now, own, base + stage);
    hide(now, p, first, column, hidden);
    // No branch from here on: MMAs overlap with the arithmetic on the scores.
    if constexpr (STAGES == 3)
      scores(next, own, base + after);
    scores(dscores, own_dout, base + stage + VALUES);
    each_sum<TILES>([&](int i, int j, int e) {
      now[i][j][e] = gd_exp2(fmaf(now[i][j][e], p.exponent, -reference[i][e / 2]));
    });
    gd_kept kept;
    if (DROPOUT)
      draw(kept, dropout, dropout.start + (uint64_t)((int64_t)first * p.steps + column), p.steps);
    each_sum<TILES>([&](int i, int j, int e) {
      float dscore = dscores[i][j][e] - mean[i][e / 2];
      if (DROPOUT)
        dscore = fmaf(kept.one(dscores[i][j][e], i, j, e), p.kept_scale, -mean[i][e / 2]);
      dscores[i][j][e] = now[i][j][e] * dscore;
    });
    accumulate(sums, dscores, base + stage, gd_all());
  };

  load_rows<ROWS>(0, q, place.row, p.steps, p.size);
  load_rows<ROWS>(DOUT, dout, place.row, p.steps, p.size);
  if (STAGES > 1)
    load(0, KEYS);
  else
    gd_copies_commit();
  if (STAGES == 3)
    load(COLUMNS, KEYS + STAGE);
  gd_copies_wait<STAGES == 3 ? 1 : 0>();
  round_rows<ROWS>(0);
  round_rows<ROWS>(DOUT);
  if (KEEP || STAGES == 3) {
    __syncthreads();
    own.keep();
    own_dout.keep();
  }
  int stage = KEYS, after = STAGES > 1 ? KEYS + STAGE : KEYS;
  if constexpr (STAGES == 3) {
    float other[ROW_TILES][TILES][4];
    int unused = KEYS + 2 * STAGE;
    scores(w, own, base + stage);
    auto visit = [&](float(&now)[ROW_TILES][TILES][4], float(&next)[ROW_TILES][TILES][4],
                     int column) {
      gd_copies_wait<0>();
      __syncthreads(); // the next stage is there too, and nobody needs the one before
      load(column + 2 * COLUMNS, unused);
      take(now, next, column, stage, after);
      int used = stage;
      stage = after;
      after = unused;
      unused = used;
    };
    for (int column = 0; column < visible; column += 2 * COLUMNS) {
      visit(w, other, column);
      if (column + COLUMNS < visible)
        visit(other, w, column + COLUMNS);
    }
  } else {
    for (int column = 0; column < visible; column += COLUMNS) {
      if (STAGES == 2) {
        gd_copies_wait<0>();
        __syncthreads(); // this stage is there, and nobody needs the other
        load(column + COLUMNS, after);
      } else {
        __syncthreads(); // nobody needs the stage
        load(column, stage);
        gd_copies_wait<0>();
        __syncthreads();
      }
      take(w, w, column, stage, after);
      int used = stage;
      stage = after;
      after = used;
    }
  }
  store_rows(dq + place.head * matrix, sums, factor, first, p.steps, p.size);
}
