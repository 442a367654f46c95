/*
 * GEMM kernels for AVX-512, over fp32 units (FMA) and over bf16 pairs (VDPBF16PS), and
 * the packing and storing that the AMX kernel shares.
 *
 * One tile owns 14 x 32 sums: 28 registers, and two of B and one broadcast of A. Per unit of k
 * that is 16 loads for 28 multiply-adds, so the bound is the multiply-add rate on one port (Zen 4)
 * and on two (Intel servers). Packing moves 16 x 16 units at a time and transposes them in
 * registers where the source runs along k. Edges are masks; nothing is read or written outside the
 * operands.
 */
#include "backend/cpu/gemm_int.h"

#if defined(__x86_64__)

#include <immintrin.h>

enum { MR = 14, NR = 32, LANES = 16, A_STEP = 16 };

/* A unit of A read in place: two bf16, or an fp32, at any address. */
typedef int32_t any_unit __attribute__((aligned(1), may_alias));

static int64_t clamp_lanes(int64_t n, int64_t most) {
  return n < 0 ? 0 : n < most ? n : most;
}

static uint32_t low_bits(int64_t n) {
  return n >= 32 ? 0xffffffffu : (1u << n) - 1u;
}

/* The neighbours that the mask names, widened to fp32 (bf16 of pairs: to 32 bits); the rest zero.
 */
GD_INLINE GD_TARGET_AVX512 __m512i load_wide(enum gd_gemm_unit unit, const void *data, int64_t at,
                                             __mmask16 mask) {
  if (unit == GD_GEMM_UNIT_F32)
    return _mm512_maskz_loadu_epi32(mask, (const float *)data + at);
  __m256i words = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)data + at);
  if (unit == GD_GEMM_UNIT_F16)
    return _mm512_castps_si512(_mm512_cvtph_ps(words));
  __m512i wide = _mm512_cvtepu16_epi32(words);
  return unit == GD_GEMM_UNIT_BF16 ? _mm512_slli_epi32(wide, 16) : wide;
}

/* 16 units of one row that runs along k; the mask names elements. */
GD_INLINE GD_TARGET_AVX512 __m512i load_along_k(enum gd_gemm_unit unit, const void *data,
                                                int64_t at, uint32_t mask) {
  if (unit == GD_GEMM_UNIT_BF16_PAIR)
    return _mm512_maskz_loadu_epi16((__mmask32)mask, (const uint16_t *)data + at);
  return load_wide(unit, data, at, (__mmask16)mask);
}

/* One unit of k for 16 neighbours of the width; `left` is how many elements of k are left there. */
GD_INLINE GD_TARGET_AVX512 __m512i load_across_k(enum gd_gemm_unit unit, const void *data,
                                                 int64_t at, int64_t ld, __mmask16 mask,
                                                 int64_t left) {
  if (left <= 0)
    return _mm512_setzero_si512();
  __m512i low = load_wide(unit, data, at, mask);
  if (unit != GD_GEMM_UNIT_BF16_PAIR || left == 1)
    return low;
  return _mm512_or_si512(low, _mm512_slli_epi32(load_wide(unit, data, at + ld, mask), 16));
}

/* r[i] lane j becomes r[j] lane i: 2 x 2 exchanges at distances 1, 2, 4 and 8. */
GD_INLINE GD_TARGET_AVX512 void transpose(__m512i r[LANES]) {
  __m512i t[LANES];
  GD_UNROLL
  for (int i = 0; i < LANES; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  GD_UNROLL
  for (int i = 0; i < LANES; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  /* Now r[4q + s] holds, in its 128-bit part p, column 4p + s of rows 4q .. 4q + 3. */
  GD_UNROLL
  for (int s = 0; s < 4; s++) {
    __m512i low01 = _mm512_shuffle_i32x4(r[s], r[4 + s], 0x88);
    __m512i high01 = _mm512_shuffle_i32x4(r[s], r[4 + s], 0xdd);
    __m512i low23 = _mm512_shuffle_i32x4(r[8 + s], r[12 + s], 0x88);
    __m512i high23 = _mm512_shuffle_i32x4(r[8 + s], r[12 + s], 0xdd);
    t[s] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    t[4 + s] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    t[8 + s] = _mm512_shuffle_i32x4(low01, low23, 0xdd);
    t[12 + s] = _mm512_shuffle_i32x4(high01, high23, 0xdd);
  }
  GD_UNROLL
  for (int i = 0; i < LANES; i++)
    r[i] = t[i];
}

/*
 * Asks L2 for the lines at element `at` of so many rows, which the next panel, or the next 16 units
 * of this one, will read: the rows of a square are too short for the hardware to see where they
 * lead. An address outside the operand does no harm.
 */
GD_INLINE void fetch_lines(const struct gd_gemm_piece *piece, enum gd_gemm_unit unit, int64_t at,
                           int64_t ld, int64_t rows) {
  const int64_t bytes = unit == GD_GEMM_UNIT_F32 ? 4 : 2;
  const uintptr_t first = (uintptr_t)piece->data + (uintptr_t)(at * bytes);
  GD_UNROLL
  for (int i = 0; i < 2 * LANES; i++)
    if (i < rows)
      __builtin_prefetch((const void *)(first + (uintptr_t)(i * ld * bytes)), 0, 2);
}

/*
 * A square of 16 units x 16 of the width, from u_at and w_at on, `most` (14 or 16) of which belong
 * to a panel (of 14, 16 or 32): along_k gives r[width] over units, across_k gives r[unit] over the
 * width. A square wholly inside the piece is the usual case, and is compiled apart, without masks.
 */
GD_INLINE GD_TARGET_AVX512 void square_along_k(const struct gd_gemm_piece *piece,
                                               enum gd_gemm_unit unit, int64_t w_at, int64_t panel,
                                               int64_t u_at, bool fetch, __m512i r[LANES]) {
  const int64_t most = panel < LANES ? panel : LANES;
  const int64_t unit_k = unit == GD_GEMM_UNIT_BF16_PAIR ? 2 : 1;
  const int64_t at = w_at * piece->ld + u_at * unit_k;
  const int64_t rows = piece->width - w_at, left = piece->k - u_at * unit_k;
  if (rows >= most && left >= LANES * unit_k) {
    if (fetch)
      fetch_lines(piece, unit, at + panel * piece->ld, piece->ld, most);
    GD_UNROLL
    for (int i = 0; i < LANES; i++)
      r[i] = i < most ? load_along_k(unit, piece->data, at + i * piece->ld, 0xffffffffu)
                      : _mm512_setzero_si512();
  } else {
    const uint32_t mask = low_bits(clamp_lanes(left, LANES * unit_k));
    GD_UNROLL
    for (int i = 0; i < LANES; i++)
      r[i] = i < most && i < rows ? load_along_k(unit, piece->data, at + i * piece->ld, mask)
                                  : _mm512_setzero_si512();
  }
}

GD_INLINE GD_TARGET_AVX512 void square_across_k(const struct gd_gemm_piece *piece,
                                                enum gd_gemm_unit unit, int64_t w_at, int64_t panel,
                                                int64_t u_at, bool fetch, __m512i r[LANES]) {
  const int64_t most = panel < LANES ? panel : LANES;
  const int64_t unit_k = unit == GD_GEMM_UNIT_BF16_PAIR ? 2 : 1;
  const int64_t at = u_at * unit_k * piece->ld + w_at;
  const int64_t cols = piece->width - w_at, left = piece->k - u_at * unit_k;
  if (cols >= most && left >= LANES * unit_k) {
    if (fetch)
      fetch_lines(piece, unit, at + LANES * unit_k * piece->ld, piece->ld, LANES * unit_k);
    GD_UNROLL
    for (int i = 0; i < LANES; i++)
      r[i] = load_across_k(unit, piece->data, at + i * unit_k * piece->ld, piece->ld,
                           (__mmask16)low_bits(most), 2);
  } else {
    const __mmask16 mask = (__mmask16)low_bits(clamp_lanes(cols, most));
    GD_UNROLL
    for (int i = 0; i < LANES; i++)
      r[i] = load_across_k(unit, piece->data, at + i * unit_k * piece->ld, piece->ld, mask,
                           left - i * unit_k);
  }
}

/* Up to 16 rows of a square. */
GD_INLINE GD_TARGET_AVX512 void square_store(uint32_t *out, int64_t step, int64_t rows,
                                             const __m512i r[LANES]) {
  if (rows >= LANES) {
    GD_UNROLL
    for (int i = 0; i < LANES; i++)
      _mm512_store_si512(out + i * step, r[i]);
  } else {
    GD_UNROLL
    for (int i = 0; i < LANES; i++)
      if (i < rows)
        _mm512_store_si512(out + i * step, r[i]);
  }
}

/*
 * Panels of `panel` (14, 16 or 32) for the FMA layout, [unit][step]. A source that runs across k is
 * taken 16 units deep over all panels, so that its rows are used whole while they are in cache.
 */
GD_INLINE GD_TARGET_AVX512 void pack_panels(const struct gd_gemm_piece *piece, uint32_t *packed,
                                            int64_t panel, int64_t step, enum gd_gemm_unit unit,
                                            bool fetch) {
  __m512i r[LANES];
  if (piece->k_contiguous) {
    for (int64_t w_at = 0; w_at < piece->width; w_at += panel, packed += step * piece->depth)
      for (int64_t u_at = 0; u_at < piece->depth; u_at += LANES)
        for (int64_t part = 0; part < panel; part += LANES) {
          square_along_k(piece, unit, w_at + part, panel, u_at, fetch, r);
          transpose(r);
          square_store(packed + u_at * step + part, step, piece->depth - u_at, r);
        }
    return;
  }
  for (int64_t u_at = 0; u_at < piece->depth; u_at += LANES) {
    uint32_t *out = packed + u_at * step;
    for (int64_t w_at = 0; w_at < piece->width; w_at += panel, out += step * piece->depth)
      for (int64_t part = 0; part < panel; part += LANES) {
        square_across_k(piece, unit, w_at + part, panel, u_at, fetch, r);
        square_store(out + part, step, piece->depth - u_at, r);
      }
  }
}

/*
 * Panels of 32 rows for AMX: per 16 units of depth two tiles, each 16 rows of 16 units. It is the
 * other way round than the FMA layout: a source that runs across k is the one to transpose.
 * Prefetching is left to the hardware here: asking for lines did not help where it was tried.
 */
GD_TARGET_AVX512 void gd_gemm_avx512_pack_a_tiles(const struct gd_gemm_piece *piece, void *packed) {
  const enum gd_gemm_unit unit = GD_GEMM_UNIT_BF16_PAIR;
  enum { PANEL = 32, TILE = LANES * LANES };
  uint32_t *out = packed;
  __m512i r[LANES];
  if (piece->k_contiguous) {
    for (int64_t w_at = 0; w_at < piece->width; w_at += PANEL)
      for (int64_t u_at = 0; u_at < piece->depth; u_at += LANES)
        for (int64_t part = 0; part < PANEL; part += LANES, out += TILE) {
          square_along_k(piece, unit, w_at + part, PANEL, u_at, false, r);
          square_store(out, LANES, LANES, r);
        }
    return;
  }
  for (int64_t u_at = 0; u_at < piece->depth; u_at += LANES) {
    out = (uint32_t *)packed + u_at * PANEL;
    for (int64_t w_at = 0; w_at < piece->width; w_at += PANEL, out += PANEL * piece->depth)
      for (int64_t part = 0; part < PANEL; part += LANES) {
        square_across_k(piece, unit, w_at + part, PANEL, u_at, false, r);
        transpose(r);
        square_store(out + part * LANES, LANES, LANES, r);
      }
  }
}

/* A copy of pack_panels for each kind of unit, so that the kind is a constant inside it. */
GD_INLINE GD_TARGET_AVX512 void pack_any(const struct gd_gemm_piece *piece, uint32_t *packed,
                                         int64_t panel, int64_t step) {
  switch (piece->unit) {
  case GD_GEMM_UNIT_F32: pack_panels(piece, packed, panel, step, GD_GEMM_UNIT_F32, true); break;
  case GD_GEMM_UNIT_BF16: pack_panels(piece, packed, panel, step, GD_GEMM_UNIT_BF16, true); break;
  case GD_GEMM_UNIT_F16: pack_panels(piece, packed, panel, step, GD_GEMM_UNIT_F16, true); break;
  case GD_GEMM_UNIT_BF16_PAIR:
    pack_panels(piece, packed, panel, step, GD_GEMM_UNIT_BF16_PAIR, true);
    break;
  }
}

GD_TARGET_AVX512 static void pack_a(const struct gd_gemm_piece *piece, void *packed) {
  pack_any(piece, packed, MR, A_STEP);
}

GD_TARGET_AVX512 static void pack_b(const struct gd_gemm_piece *piece, void *packed) {
  pack_any(piece, packed, NR, NR);
}

/* For AMX: its panels of 32 columns are two of 16, one after the other, so that tiles are whole. */
GD_TARGET_AVX512 void gd_gemm_avx512_pack_b_tiles(const struct gd_gemm_piece *piece, void *packed) {
  pack_panels(piece, packed, LANES, LANES, GD_GEMM_UNIT_BF16_PAIR, false);
}

#define FMA(sum, x, y)  _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y), sum)
#define PAIR(sum, x, y) _mm512_dpbf16_ps(sum, (__m512bh)(x), (__m512bh)(y))

/*
 * The micro-kernel, for tiles 32 or 16 columns wide. A macro because the two multiply-adds need
 * different target attributes, and a function cannot be a parameter of that.
 */
#define DEFINE_TILE(name, target, MULTIPLY_ADD, columns)                                           \
  target static void name(int64_t depth, const struct gd_gemm_rows *rows, const void *b_panel,     \
                          float *sums, bool add) {                                                 \
    enum { VECTORS = (columns) / LANES };                                                          \
    const int64_t row = rows->row_bytes;                                                           \
    const char *a = rows->data, *a5 = a + 5 * row, *a10 = a5 + 5 * row;                            \
    const int32_t *b = b_panel;                                                                    \
    __m512 sum[MR][VECTORS];                                                                       \
    GD_UNROLL                                                                                      \
    for (int i = 0; i < MR; i++) {                                                                 \
      GD_UNROLL                                                                                    \
      for (int j = 0; j < VECTORS; j++)                                                            \
        sum[i][j] = _mm512_setzero_ps();                                                           \
    }                                                                                              \
    for (int64_t u = 0; u < depth; u++, b += NR) {                                                 \
      __m512i y[VECTORS];                                                                          \
      GD_UNROLL                                                                                    \
      for (int j = 0; j < VECTORS; j++)                                                            \
        y[j] = _mm512_load_si512(b + j * LANES);                                                   \
      GD_UNROLL                                                                                    \
      for (int i = 0; i < MR; i++) {                                                               \
        const char *at = i < 5 ? a + i * row : i < 10 ? a5 + (i - 5) * row : a10 + (i - 10) * row; \
        __m512i x = _mm512_set1_epi32(*(const any_unit *)at);                                      \
        GD_UNROLL                                                                                  \
        for (int j = 0; j < VECTORS; j++)                                                          \
          sum[i][j] = MULTIPLY_ADD(sum[i][j], x, y[j]);                                            \
      }                                                                                            \
      a += rows->unit_bytes;                                                                       \
      a5 += rows->unit_bytes;                                                                      \
      a10 += rows->unit_bytes;                                                                     \
    }                                                                                              \
    GD_UNROLL                                                                                      \
    for (int i = 0; i < MR; i++) {                                                                 \
      GD_UNROLL                                                                                    \
      for (int j = 0; j < VECTORS; j++) {                                                          \
        float *out = sums + i * NR + j * LANES;                                                    \
        _mm512_store_ps(out, add ? _mm512_add_ps(_mm512_load_ps(out), sum[i][j]) : sum[i][j]);     \
      }                                                                                            \
    }                                                                                              \
  }

DEFINE_TILE(tile_f32_32, GD_TARGET_AVX512, FMA, 32)
DEFINE_TILE(tile_f32_16, GD_TARGET_AVX512, FMA, 16)
DEFINE_TILE(tile_pair_32, GD_TARGET_AVX512_BF16, PAIR, 32)
DEFINE_TILE(tile_pair_16, GD_TARGET_AVX512_BF16, PAIR, 16)

static void tile_f32(int64_t depth, const struct gd_gemm_rows *a, const void *b, float *sums,
                     bool add, int64_t rows, int64_t cols) {
  (void)rows;
  if (cols > LANES)
    tile_f32_32(depth, a, b, sums, add);
  else
    tile_f32_16(depth, a, b, sums, add);
}

static void tile_pair(int64_t depth, const struct gd_gemm_rows *a, const void *b, float *sums,
                      bool add, int64_t rows, int64_t cols) {
  (void)rows;
  if (cols > LANES)
    tile_pair_32(depth, a, b, sums, add);
  else
    tile_pair_16(depth, a, b, sums, add);
}

/*
 * fp32 to bf16 as gd_f32_to_bf16 does it, subnormals included (VCVTNEPS2BF16 flushes those): add
 * half of the last place, less one unless the last place kept is odd, and cut; NaNs keep their top
 * half.
 */
GD_INLINE GD_TARGET_AVX512 __m256i to_bf16(__m512 value) {
  __m512i bits = _mm512_castps_si512(value);
  __m512i top = _mm512_srli_epi32(bits, 16);
  __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
  __m512i rounded = _mm512_srli_epi32(
      _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
  __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, top, _mm512_set1_epi32(0x40));
  return _mm512_cvtepi32_epi16(rounded);
}

/* Up to 16 elements of C; inlined once per dtype. */
GD_INLINE GD_TARGET_AVX512 void store_lanes(const struct gd_gemm_output *out, enum gd_dtype dtype,
                                            __m512 value, __mmask16 mask, void *c) {
  if (dtype == GD_DTYPE_F32) {
    if (out->accumulate)
      value = _mm512_add_ps(value, _mm512_maskz_loadu_ps(mask, c));
    _mm512_mask_storeu_ps(c, mask, value);
    return;
  }
  if (out->accumulate) {
    __m256i old = _mm256_maskz_loadu_epi16(mask, c);
    value = _mm512_add_ps(value, dtype == GD_DTYPE_F16 ? _mm512_cvtph_ps(old)
                                                       : _mm512_castsi512_ps(_mm512_slli_epi32(
                                                             _mm512_cvtepu16_epi32(old), 16)));
  }
  _mm256_mask_storeu_epi16(c, mask,
                           dtype == GD_DTYPE_F16 ? _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT)
                                                 : to_bf16(value));
}

GD_INLINE GD_TARGET_AVX512 void store_tile(const struct gd_gemm_output *out, enum gd_dtype dtype,
                                           const float *sums, int64_t rows, int64_t cols,
                                           const float *bias, char *c) {
  const int64_t bytes = dtype == GD_DTYPE_F32 ? 4 : 2;
  const __m512 alpha = _mm512_set1_ps(out->alpha);
  for (int64_t j = 0; j < cols; j += LANES) {
    const __mmask16 mask = (__mmask16)low_bits(clamp_lanes(cols - j, LANES));
    const __m512 shift = bias ? _mm512_maskz_loadu_ps(mask, bias + j) : _mm512_setzero_ps();
    for (int64_t i = 0; i < rows; i++)
      store_lanes(out, dtype, _mm512_fmadd_ps(alpha, _mm512_load_ps(sums + i * NR + j), shift),
                  mask, c + (i * out->ld + j) * bytes);
  }
}

GD_TARGET_AVX512 void gd_gemm_avx512_store(const struct gd_gemm_output *out, const float *sums,
                                           int64_t rows, int64_t cols, const float *bias, void *c) {
  switch (out->dtype) {
  case GD_DTYPE_BF16: store_tile(out, GD_DTYPE_BF16, sums, rows, cols, bias, c); break;
  case GD_DTYPE_F16: store_tile(out, GD_DTYPE_F16, sums, rows, cols, bias, c); break;
  default: store_tile(out, GD_DTYPE_F32, sums, rows, cols, bias, c); break;
  }
}

const struct gd_gemm_ops gd_gemm_ops_avx512 = {
    .mr = MR,
    .nr = NR,
    .a_step = A_STEP,
    .unit_k = 1,
    .depth_step = 1,
    .depth_max = 256,
    .width_max = 512,
    .sums_max = 1024 * 512,
    .pack_penalty = 16,
    .in_place = true,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .tile = tile_f32,
    .store = gd_gemm_avx512_store,
};

const struct gd_gemm_ops gd_gemm_ops_avx512_bf16 = {
    .mr = MR,
    .nr = NR,
    .a_step = A_STEP,
    .unit_k = 2,
    .depth_step = 1,
    .depth_max = 256,
    .width_max = 512,
    .sums_max = 1024 * 512,
    .pack_penalty = 16,
    .in_place = true,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .tile = tile_pair,
    .store = gd_gemm_avx512_store,
};

#endif
