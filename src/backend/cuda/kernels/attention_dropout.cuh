// Dropout of attention's weights: which elements a warp's tiles lose, the same ones in every pass.
#ifndef GD_ATTENTION_DROPOUT_CUH
#define GD_ATTENTION_DROPOUT_CUH

#include "attention_tiles.cuh"

// Element [head, query, key] of the weights has number (head T + query) T + key, plus where the
// rank's samples start; eight numbers share a counter of the generator.
struct gd_dropout {
  uint32_t key, step, stream;
  uint32_t limit; // what gd_drawn makes for dropped ones is below it
  uint64_t start;
};
GD_DEVICE gd_dropout dropout_of(const gd_attention &p, const int *seed, int64_t head) {
  if (!DROPOUT)
    return {};
  return {(uint32_t)seed[0], (uint32_t)seed[1], p.stream, p.threshold << 16,
          (uint64_t)((p.first_head + head) * p.steps * p.steps) +
              (uint64_t)(int64_t)seed[2] * (uint64_t)p.weights};
}
GD_DEVICE gd_words words_at(const gd_dropout &d, uint64_t number) {
  return gd_philox(d.key, d.step, d.stream, number >> 3);
}
// Bit i: element number + i is dropped. `number` is a multiple of 8.
GD_DEVICE uint32_t eight_bits(const gd_dropout &d, uint64_t number) {
  gd_words words = words_at(d, number);
  uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < 8; i++)
    bits |= gd_drawn(words, i) < d.limit ? 1u << i : 0u;
  return bits;
}

// A bit for each weight of a lane, in the order of mark_by_bits. Of the lanes that share counters,
// each draws some, a byte of bits a counter; then they exchange bits as a matrix is transposed. A
// step swaps, between two lanes, the bits of the lower that are not in `low` for those of the upper
// that are.
constexpr int DRAWS = ROW_TILES * TILES / 2, DRAWN = (DRAWS + 3) / 4;
GD_DEVICE void swap_bits(uint32_t (&bits)[DRAWN], int apart, int shift, uint32_t low) {
  bool upper = threadIdx.x & apart;
  uint32_t own = upper ? ~low : low;
#pragma unroll
  for (int i = 0; i < DRAWN; i++) {
    uint32_t other = __shfl_xor_sync(0xffffffff, bits[i], apart, 32);
    bits[i] = (bits[i] & own) | ((upper ? other >> shift : other << shift) & ~own);
  }
}
// Marks the dropped ones by a sign; the weights are not negative.
GD_DEVICE void mark_by_bits(float (&w)[ROW_TILES][TILES][4], const uint32_t (&bits)[DRAWN]) {
  each_sum<TILES>([&](int i, int j, int e) {
    int bit = ((i * 2 + e / 2) * TILES + j) * 2 + e % 2;
    w[i][j][e] = __int_as_float(__float_as_int(w[i][j][e]) |
                                (int)(bits[bit / 32] << (31 - bit % 32) & 0x80000000u));
  });
}

// Marks the dropped ones among the weights of the warp's rows. `first`: the number of the weight at
// the warp's first row and first column. Rows are queries and columns keys.
GD_DEVICE void mark(float (&w)[ROW_TILES][TILES][4], const gd_dropout &d, uint64_t first,
                    int64_t steps) {
  int lane = threadIdx.x % 32;
  if (DROPOUT == 1) {
#pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
#pragma unroll
      for (int j = 0; j < TILES; j++)
#pragma unroll
        for (int e = 0; e < 4; e += 2) { // two neighbours: one counter, or one and the next
          uint64_t number = first + row_of(i, e) * steps + column_of(j, e);
          gd_words words = words_at(d, number);
          uint32_t one = gd_drawn(words, number & 7), two = gd_drawn(words, (number & 7) + 1);
          if ((number & 7) == 7)
            two = gd_drawn(words_at(d, number + 1), 0);
          w[i][j][e] = one < d.limit ? -w[i][j][e] : w[i][j][e];
          w[i][j][e + 1] = two < d.limit ? -w[i][j][e + 1] : w[i][j][e + 1];
        }
    return;
  }
  // A row of a tile is a counter, which four lanes share, each with two weights: of four such rows,
  // each draws one.
  uint32_t bits[DRAWN] = {};
#pragma unroll
  for (int draw = 0; draw < DRAWS; draw++) {
    int at = draw * 4 + lane % 4, row = at / TILES * 8 + lane / 4, tile = at % TILES;
    bits[draw / 4] |= eight_bits(d, first + row * steps + tile * 8) << draw % 4 * 8;
  }
  swap_bits(bits, 1, 2, 0x33333333u);
  swap_bits(bits, 2, 4, 0x0f0f0f0fu);
  mark_by_bits(w, bits);
}

// The same where rows are keys and columns queries.
GD_DEVICE void mark_transposed(float (&w)[ROW_TILES][TILES][4], const gd_dropout &d,
                               uint64_t first, int64_t steps) {
  int lane = threadIdx.x % 32;
  if (DROPOUT == 1) {
    each_sum<TILES>([&](int i, int j, int e) {
      uint64_t number = first + row_of(i, e) + column_of(j, e) * steps;
      if (gd_drawn(words_at(d, number), number & 7) < d.limit)
        w[i][j][e] = -w[i][j][e];
    });
    return;
  }
  // Half a column of a tile is a counter, which eight lanes share, each with one weight: of eight
  // such columns, each draws one.
  uint32_t bits[DRAWN] = {};
#pragma unroll
  for (int draw = 0; draw < DRAWS; draw++) {
    int at = draw * 8 + lane / 4, row = at / (2 * TILES) * 8;
    int column = at / 2 % TILES * 8 + lane % 4 * 2 + at % 2;
    bits[draw / 4] |= eight_bits(d, first + row + column * steps) << draw % 4 * 8;
  }
  swap_bits(bits, 4, 1, 0x55555555u);
  swap_bits(bits, 8, 2, 0x33333333u);
  swap_bits(bits, 16, 4, 0x0f0f0f0fu);
  mark_by_bits(w, bits);
}
GD_DEVICE bool dropped(float marked) { return __float_as_int(marked) < 0; }

#endif
