// Dropout of attention's weights: which elements a warp's tiles keep, the same ones in every pass.
#ifndef GD_ATTENTION_DROPOUT_CUH
#define GD_ATTENTION_DROPOUT_CUH

#include "attention_tiles.cuh"

// Element [head, query, key] of the weights has number (head T + query) T + key, plus where the
// rank's samples start; eight numbers share a counter of the generator.
struct gd_dropout {
  uint32_t key, step, stream;
  uint32_t threshold; // 16 bits below it drop their element
  uint64_t start;
};
GD_DEVICE gd_dropout dropout_of(const gd_attention &p, const int *seed, int64_t head) {
  if (!DROPOUT)
    return {};
  return {(uint32_t)seed[0], (uint32_t)seed[1], p.stream, p.threshold,
          (uint64_t)((p.first_head + head) * p.steps * p.steps) +
              (uint64_t)(int64_t)seed[2] * (uint64_t)p.weights};
}
GD_DEVICE gd_words words_at(const gd_dropout &d, uint64_t number) {
  return gd_philox(d.key, d.step, d.stream, number >> 3);
}
GD_DEVICE bool kept_at(const gd_dropout &d, uint64_t number) {
  return gd_drawn(words_at(d, number), number & 7) >= d.threshold << 16;
}

// Which of a lane's weights are kept, a bit each: with k = (2 i + e / 2) TILES + j, element e of
// tile [i][j] is bit 16 (e % 2) + k % 16 of word k / 16, so that two neighbours, which are packed
// into one operand, are 16 bits apart and a byte's sign, replicated, masks one.
constexpr int SLOTS = ROW_TILES * 2 * TILES, DRAWS = SLOTS / 4, WORDS = (SLOTS + 15) / 16;

template <int SELECTOR> GD_DEVICE uint32_t byte_signs(uint32_t x) {
  uint32_t y;
  asm("prmt.b32 %0, %1, %1, %2;" : "=r"(y) : "r"(x), "n"(SELECTOR));
  return y;
}

struct gd_kept {
  uint32_t bits[WORDS];

  static GD_DEVICE int slot(int i, int half, int j) { return (2 * i + half) * TILES + j; }
  // The bit of an element, and 7 others, as the signs of bytes.
  GD_DEVICE uint32_t signs(int k) const { return bits[k / 16] << (7 - k % 8); }
  // Of elements 2 half and 2 half + 1 of a tile, as 16 bits each.
  GD_DEVICE uint32_t pair(uint32_t x, int i, int half, int j) const {
    int k = slot(i, half, j);
    return x & (k % 16 < 8 ? byte_signs<0xAA88>(signs(k)) : byte_signs<0xBB99>(signs(k)));
  }
  GD_DEVICE bool has(int i, int j, int e) const {
    int k = slot(i, e / 2, j);
    return bits[k / 16] >> (16 * (e % 2) + k % 16) & 1;
  }
  GD_DEVICE float one(float x, int i, int j, int e) const {
    int k = slot(i, e / 2, j), byte = k % 16 / 8 + e % 2 * 2;
    uint32_t mask = byte == 0   ? byte_signs<0x8888>(signs(k))
                    : byte == 1 ? byte_signs<0x9999>(signs(k))
                    : byte == 2 ? byte_signs<0xAAAA>(signs(k))
                                : byte_signs<0xBBBB>(signs(k));
    return __uint_as_float(__float_as_uint(x) & mask);
  }
};

// A counter's eight elements, to bits 16 (i % 2) + at + i / 2 of `bits`. A half of a word is at
// least the threshold where its lower 15 bits are, borrowing from the 16th, and what the 16th bits
// of both say; the majority of three says it in one instruction.
GD_DEVICE void draw_eight(uint32_t &bits, int at, const gd_dropout &d, uint64_t number) {
  gd_words words = words_at(d, number);
  uint32_t low = (d.threshold & 0x7fffu) * 0x10001u, any = d.threshold & 0x8000u ? 0 : 0xffffffffu;
#pragma unroll
  for (int i = 0; i < 4; i++) {
    uint32_t x = words.at[i], y = (x | 0x80008000u) - low;
    uint32_t kept = (x & y) | (any & (x | y));
    bits |= kept >> (15 - at - i) & 0x00010001u << (at + i);
  }
}

// Bits of lanes that share counters are exchanged as a matrix is transposed: a step swaps, between
// two lanes, the bits of the lower that are not in `low` for those of the upper that are.
GD_DEVICE void swap_bits(uint32_t (&bits)[WORDS], int apart, int shift, uint32_t low) {
  bool upper = threadIdx.x & apart;
  uint32_t own = upper ? ~low : low;
#pragma unroll
  for (int i = 0; i < WORDS; i++) {
    uint32_t other = __shfl_xor_sync(0xffffffff, bits[i], apart, 32);
    bits[i] = (bits[i] & own) | ((upper ? other >> shift : other << shift) & ~own);
  }
}

// What is kept of the warp's rows. `first`: the number of the weight at the warp's first row and
// first column. Rows are queries and columns keys, or, TRANSPOSED, the other way round.
template <bool TRANSPOSED = false>
GD_DEVICE void draw(gd_kept &kept, const gd_dropout &d, uint64_t first, int64_t steps) {
  int lane = threadIdx.x % 32;
  auto number = [&](int row, int column) {
    return TRANSPOSED ? first + row + column * steps : first + row * steps + column;
  };
#pragma unroll
  for (int i = 0; i < WORDS; i++)
    kept.bits[i] = 0;
  if (DROPOUT == 1) {
    each_sum<TILES>([&](int i, int j, int e) {
      int k = gd_kept::slot(i, e / 2, j);
      bool keeps = kept_at(d, number(row_of(i, e), column_of(j, e)));
      kept.bits[k / 16] |= (uint32_t)keeps << (16 * (e % 2) + k % 16);
    });
    return;
  }
  // A row of a tile is a counter, which four lanes share, each with two weights: of four such rows,
  // each draws one. Transposed, half a column is, which eight lanes share, each with one weight: of
  // eight such columns, two neighbours in four places, each draws one.
#pragma unroll
  for (int draw = 0; draw < DRAWS; draw++) {
    int at = draw * 4 + (TRANSPOSED ? lane / 8 : lane % 4);
    int row = at / TILES * 8 + (TRANSPOSED ? 0 : lane / 4);
    int column = at % TILES * 8 + (TRANSPOSED ? lane % 4 * 2 + lane / 4 % 2 : 0);
    draw_eight(kept.bits[draw / 4], draw % 4 * 4, d, number(row, column));
  }
  if (TRANSPOSED)
    swap_bits(kept.bits, 4, 16, 0x0000ffffu);
  swap_bits(kept.bits, TRANSPOSED ? 8 : 1, 1, 0x55555555u);
  swap_bits(kept.bits, TRANSPOSED ? 16 : 2, 2, 0x33333333u);
}

#endif
