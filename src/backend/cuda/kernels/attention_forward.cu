#include "attention_dropout.cuh"

// A block owns ROWS queries of a head. With one stage, the values of the same columns arrive while
// it multiplies by keys, and the next keys while by values. With two, the next scores are computed
// amid the arithmetic on these, which takes as long as all MMAs, with one barrier a visit.
struct gd_softmax {
  float sums[ROW_TILES][HEAD_TILES][4];
  float most[ROW_TILES][2], total[ROW_TILES][2]; // of a row: what exponents are relative to, and
                                                 // this lane's share of the sum
  float exponent, slack;

  GD_DEVICE explicit gd_softmax(const gd_attention &p)
      : exponent(fabsf(p.exponent)), slack(8 / fabsf(p.exponent)) {
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        most[i][half] = -GD_INFINITY;
        total[i][half] = 0;
      }
    each_sum<HEAD_TILES>([&](int i, int j, int e) { sums[i][j][e] = 0; });
  }

  // Any reference near the greatest score will do; it moves, and the sums with it, only when a
  // score exceeds it by 2^8.
  GD_DEVICE void refer(const float (&w)[ROW_TILES][TILES][4]) {
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
    if (!__any_sync(0xffffffff, moves))
      return;
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
      for (int half = 0; half < 2; half++)
        total[i][half] *= factor[i][half];
    each_sum<HEAD_TILES>([&](int i, int j, int e) { sums[i][j][e] *= factor[i][e / 2]; });
  }

  // From scores to weights, but for what all of a row share.
  GD_DEVICE void weigh(float (&w)[ROW_TILES][TILES][4]) {
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
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
    attention_forward(const T0 *q, const T0 *k, const T0 *v, T0 *out, float *lse, const int *seed,
                      gd_attention p) {
  constexpr int PIECE = COLUMNS * STRIDE, KEYS = ROWS * STRIDE, VALUES = KEYS + STAGES * PIECE;
  gd_place place = place_of(p, true);
  int64_t matrix = (int64_t)p.steps * p.size, key_head = place.head / p.group;
  q += place.head * matrix;
  k += key_head * matrix;
  v += key_head * matrix;
  int warp_row = threadIdx.x / 32 * WARP_ROWS, first = place.row + warp_row;
  int visible = p.causal && place.row + ROWS < p.steps ? place.row + ROWS : p.steps;
  gd_dropout dropout = dropout_of(p, seed, place.head);
  uint32_t base = shared_address(shared);
  gd_softmax softmax(p);

  // Columns past all of the warp's rows, or rows past T: nothing to do but keep step.
  auto sees = [&](int column) {
    return first < p.steps && (!p.causal || column < first + WARP_ROWS);
  };
  auto load_keys = [&](int column, int slot) {
    if (column < visible)
      load_rows<COLUMNS>(KEYS + slot * PIECE, k, column, p.steps, p.size);
  };
  auto load_values = [&](int column, int slot) {
    if (column < visible)
      load_rows<COLUMNS>(VALUES + slot * PIECE, v, column, p.steps, p.size);
  };
  gd_own<KEEP >= 1> own(base + warp_row * STRIDE);
  // Softmax and weighted values of the scores w, interleaved with computing the next scores. The
  // last time these are of what is left in shared memory, and not used.
  auto take = [&](float(&w)[ROW_TILES][TILES][4], float(&next)[ROW_TILES][TILES][4], int column,
                  int slot) {
    if (p.exponent < 0)
      each_sum<TILES>([&](int i, int j, int e) { w[i][j][e] = -w[i][j][e]; });
    hide(w, p, first, column, -GD_INFINITY);
    if constexpr (STAGES == 2)
      scores(next, own, base + KEYS + (1 - slot) * PIECE);
    gd_kept kept;
    if (DROPOUT)
      draw(kept, dropout, dropout.start + (uint64_t)((int64_t)first * p.steps + column), p.steps);
    softmax.refer(w);
    softmax.weigh(w);
    if constexpr (DROPOUT != 0)
      accumulate(softmax.sums, w, base + VALUES + slot * PIECE, kept);
    else
      accumulate(softmax.sums, w, base + VALUES + slot * PIECE, gd_all());
  };

  load_rows<ROWS>(0, q, place.row, p.steps, p.size);
  load_keys(0, 0);
  gd_copies_commit();
  if (STAGES == 2) {
    load_keys(COLUMNS, 1);
    load_values(0, 0);
    gd_copies_commit();
  }
  gd_copies_wait<STAGES - 1>();
  round_rows<ROWS>(0);
  if (KEEP >= 1 || STAGES == 2) {
    __syncthreads();
    own.keep();
  }
  float w[ROW_TILES][TILES][4];
  if constexpr (STAGES == 2) {
    float other[ROW_TILES][TILES][4];
    scores(w, own, base + KEYS);
    auto visit = [&](float(&now)[ROW_TILES][TILES][4], float(&next)[ROW_TILES][TILES][4],
                     int column, int slot) {
      gd_copies_wait<0>();
      __syncthreads(); // the next keys and these values are there; nobody needs those before
      load_keys(column + 2 * COLUMNS, slot);
      load_values(column + COLUMNS, 1 - slot);
      gd_copies_commit();
      if (sees(column))
        take(now, next, column, slot);
    };
    for (int column = 0; column < visible; column += 2 * COLUMNS) {
      visit(w, other, column, 0);
      if (column + COLUMNS < visible)
        visit(other, w, column + COLUMNS, 1);
    }
  } else {
    for (int column = 0; column < visible; column += COLUMNS) {
      gd_copies_wait<0>();
      __syncthreads(); // the keys are there, and nobody needs the former values
      load_values(column, 0);
      gd_copies_commit();
      if (sees(column))
        scores(w, own, base + KEYS);
      gd_copies_wait<0>();
      __syncthreads(); // the values are there, and nobody needs these keys
      load_keys(column + COLUMNS, 0);
      gd_copies_commit();
      if (sees(column))
        take(w, w, column, 0);
    }
  }

  float factor[ROW_TILES][2];
#pragma unroll
  for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float sum = softmax.total[i][half];
      sum += __shfl_xor_sync(0xffffffff, sum, 1, 32);
      sum += __shfl_xor_sync(0xffffffff, sum, 2, 32);
      factor[i][half] = (DROPOUT ? p.kept_scale : 1) / sum;
      int row = first + row_of(i, 2 * half);
      if (row < p.steps && threadIdx.x % 4 == 0)
        lse[place.head * p.steps + row] =
            0.69314718055994531f * fmaf(softmax.most[i][half], softmax.exponent, log2f(sum));
    }
  store_rows(out + place.head * matrix, softmax.sums, factor, first, p.steps, p.size);
}
