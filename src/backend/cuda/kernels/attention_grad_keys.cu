#include "attention_dropout.cuh"

// dv_j = sum_i kept_ij p_ij dout_i, dk_j = scale sum_i ds_ij q_i, over the queries of all heads
// that share the key head, one head after another. A block owns ROWS keys, so everything is
// transposed: rows are keys, columns queries. With three stages, the next scores are computed amid
// the arithmetic on these, as in attention_forward.cu.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_grad_keys(const T0 *dout, const T0 *q, const T0 *k, const T0 *v, const float *lse,
                        const float *delta, const int *seed, T0 *dk, T0 *dv, gd_attention p) {
  constexpr bool VALUES = PARTS & 1, KEYS = PARTS & 2;
  constexpr int AT_V = ROWS * STRIDE, AT_STAGE = AT_V + (KEYS ? ROWS * STRIDE : 0);
  constexpr int DOUT = COLUMNS * STRIDE, LSE = 2 * DOUT, DELTA_AT = LSE + COLUMNS * 4;
  constexpr int STAGE = DELTA_AT + COLUMNS * 4;
  gd_place place = place_of(p, false);
  int64_t matrix = (int64_t)p.steps * p.size;
  k += place.head * matrix;
  v += place.head * matrix;
  int warp_row = threadIdx.x / 32 * WARP_ROWS, first = place.row + warp_row;
  int start = p.causal ? place.row / COLUMNS * COLUMNS : 0;
  // Which query head, and its columns from where, comes next; and of which to load them.
  int64_t head = place.head * p.group, end = head + p.group, next_head = head;
  int at = start, next_column = start;
  uint32_t base = shared_address(shared);
  gd_dropout dropout = dropout_of(p, seed, head);
  float hidden = p.exponent < 0 ? GD_INFINITY : -GD_INFINITY;

  float sums_k[ROW_TILES][HEAD_TILES][4], sums_v[ROW_TILES][HEAD_TILES][4];
  float w[ROW_TILES][TILES][4], dscores[ROW_TILES][TILES][4];
  each_sum<HEAD_TILES>([&](int i, int j, int e) { sums_k[i][j][e] = sums_v[i][j][e] = 0; });

  auto load = [&](int to) {
    load_rows<COLUMNS>(to, q + next_head * matrix, next_column, p.steps, p.size);
    load_rows<COLUMNS>(to + DOUT, dout + next_head * matrix, next_column, p.steps, p.size);
    load_values<COLUMNS>(to + LSE, lse + next_head * p.steps, next_column, p.steps);
    load_values<COLUMNS, 32>(to + DELTA_AT, delta + next_head * p.steps, next_column, p.steps);
    gd_copies_commit();
    next_column += COLUMNS;
    if (next_column >= p.steps) {
      next_column = start;
      next_head++;
    }
  };
  load_rows<ROWS>(0, k, place.row, p.steps, p.size);
  if (KEYS)
    load_rows<ROWS>(AT_V, v, place.row, p.steps, p.size);
  gd_own<KEEP >= 1> own(base + warp_row * STRIDE);
  gd_own<KEEP >= 2> own_v(base + AT_V + warp_row * STRIDE);
  // One visit. `now` are its scores, or become them.
  auto take = [&](float(&now)[ROW_TILES][TILES][4], float(&next)[ROW_TILES][TILES][4], int stage,
                  int after) {
    int64_t from = head;
    int column = at;
    at += COLUMNS;
    if (at >= p.steps) {
      at = start;
      head++;
    }
    if (first >= p.steps)
      return;
    if (p.causal && column + COLUMNS <= first) {
      if constexpr (STAGES == 3)
        scores(next, own, base + after);
      return;
    }
    if constexpr (STAGES < 3)
      scores(now, own, base + stage);
    if (p.causal && column < first + WARP_ROWS - 1)
      each_sum<TILES>([&](int i, int j, int e) {
        if (column + column_of(j, e) < first + row_of(i, e))
          now[i][j][e] = hidden;
      });
    // No branch from here on: MMAs overlap with the arithmetic on the scores.
    if constexpr (STAGES == 3)
      scores(next, own, base + after);
    if (KEYS)
      scores(dscores, own_v, base + stage + DOUT);
    // Past T, queries, dout, lse and delta are zeros: those weights are finite and meet zeros.
#pragma unroll
    for (int j = 0; j < TILES; j++) {
      const float *values = (const float *)(shared + stage + LSE) + column_of(j, 0);
      float reference[2] = {values[0] * 1.4426950408889634f, values[1] * 1.4426950408889634f};
#pragma unroll
      for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          now[i][j][e] = gd_exp2(fmaf(now[i][j][e], p.exponent, -reference[e % 2]));
    }
    gd_kept kept;
    if (DROPOUT) {
      int64_t row = (from - place.head * p.group) * p.steps + column; // of the first head's weights
      draw<true>(kept, dropout, dropout.start + (uint64_t)(row * p.steps + first), p.steps);
    }
    if (VALUES && DROPOUT)
      accumulate(sums_v, now, base + stage + DOUT, kept);
    else if (VALUES)
      accumulate(sums_v, now, base + stage + DOUT, gd_all());
    if (!KEYS)
      return;
#pragma unroll
    for (int j = 0; j < TILES; j++) {
      const float *values = (const float *)(shared + stage + DELTA_AT) + column_of(j, 0);
      float mean[2] = {values[0], values[1]};
#pragma unroll
      for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
        for (int e = 0; e < 4; e++) {
          float dscore = dscores[i][j][e] - mean[e % 2];
          if (DROPOUT)
            dscore = fmaf(kept.one(dscores[i][j][e], i, j, e), p.kept_scale, -mean[e % 2]);
          dscores[i][j][e] = now[i][j][e] * dscore;
        }
    }
    accumulate(sums_k, dscores, base + stage, gd_all());
  };

  int stage = AT_STAGE, after = STAGES > 1 ? AT_STAGE + STAGE : AT_STAGE;
  if (STAGES > 1 && head < end)
    load(stage);
  else
    gd_copies_commit();
  if (STAGES == 3 && next_head < end)
    load(after);
  else if (STAGES == 3)
    gd_copies_commit();
  gd_copies_wait<STAGES == 3 ? 1 : 0>();
  round_rows<ROWS>(0);
  if (KEYS)
    round_rows<ROWS>(AT_V);
  if (KEEP || STAGES == 3) {
    __syncthreads();
    own.keep();
    if (KEYS)
      own_v.keep();
  }
  if constexpr (STAGES == 3) {
    float other[ROW_TILES][TILES][4];
    int unused = AT_STAGE + 2 * STAGE;
    scores(w, own, base + stage);
    auto visit = [&](float(&now)[ROW_TILES][TILES][4], float(&next)[ROW_TILES][TILES][4]) {
      gd_copies_wait<0>();
      __syncthreads(); // the next stage is there too, and nobody needs the one before
      if (next_head < end)
        load(unused);
      take(now, next, stage, after);
      int used = stage;
      stage = after;
      after = unused;
      unused = used;
    };
    while (head < end) {
      visit(w, other);
      if (head < end)
        visit(other, w);
    }
  } else {
    while (head < end) {
      if (STAGES == 2) {
        gd_copies_wait<0>();
        __syncthreads(); // this stage is there, and nobody needs the other
        if (next_head < end)
          load(after);
      } else {
        __syncthreads(); // nobody needs the stage
        load(stage);
        gd_copies_wait<0>();
        __syncthreads();
      }
      take(w, w, stage, after);
      int used = stage;
      stage = after;
      after = used;
    }
  }

  float factor[ROW_TILES][2];
#pragma unroll
  for (int i = 0; i < ROW_TILES; i++)
    factor[i][0] = factor[i][1] = DROPOUT ? p.kept_scale : 1;
  if (VALUES)
    store_rows(dv + place.head * matrix, sums_v, factor, first, p.steps, p.size);
#pragma unroll
  for (int i = 0; i < ROW_TILES; i++)
    factor[i][0] = factor[i][1] = p.scale;
  if (KEYS)
    store_rows(dk + place.head * matrix, sums_k, factor, first, p.steps, p.size);
}
