/*
 * GEMM kernels for AVX2 + FMA + F16C, fp32 units.
 *
 * One tile owns 6 x 16 sums: 12 of the 16 registers, and two of B and two broadcasts of A. Per
 * unit of k that is 8 loads for 12 multiply-adds on two ports. Packing moves 8 x 8 elements at a
 * time; what is not whole (edges, and the last columns of a 6-row panel) goes through a small
 * zeroed square.
 */
#include "backend/cpu/gemm_int.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

enum { MR = 6, NR = 16, LANES = 8 };

static float load_element(enum gd_gemm_unit unit, const void *data, int64_t i) {
  switch (unit) {
  case GD_GEMM_UNIT_F32: return ((const float *)data)[i];
  case GD_GEMM_UNIT_F16: return gd_f16_to_f32(((const uint16_t *)data)[i]);
  case GD_GEMM_UNIT_BF16:
  case GD_GEMM_UNIT_BF16_PAIR: break;
  }
  return gd_bf16_to_f32(((const uint16_t *)data)[i]);
}

/* Eight neighbours in memory, or the `lanes` of them that exist and zeros. */
GD_INLINE GD_TARGET_AVX2 __m256 load_wide(enum gd_gemm_unit unit, const void *data, int64_t at,
                                          int64_t lanes) {
  if (lanes < LANES) {
    float part[LANES] = {0};
    for (int64_t i = 0; i < lanes; i++)
      part[i] = load_element(unit, data, at + i);
    return _mm256_loadu_ps(part);
  }
  if (unit == GD_GEMM_UNIT_F32)
    return _mm256_loadu_ps((const float *)data + at);
  __m128i words = _mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)data + at));
  if (unit == GD_GEMM_UNIT_F16)
    return _mm256_cvtph_ps(words);
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16));
}

/* r[i] lane j becomes r[j] lane i. */
GD_INLINE GD_TARGET_AVX2 void transpose(__m256 r[LANES]) {
  __m256 t[LANES];
  GD_UNROLL
  for (int i = 0; i < LANES; i += 2) {
    t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
  GD_UNROLL
  for (int i = 0; i < LANES; i += 4) {
    r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
  }
  GD_UNROLL
  for (int i = 0; i < 4; i++) {
    t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
    t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
  }
  GD_UNROLL
  for (int i = 0; i < LANES; i++)
    r[i] = t[i];
}

/* The first `block` (6 or 8) lanes. */
GD_INLINE GD_TARGET_AVX2 void store_block(float *out, __m256 value, int64_t block) {
  if (block == LANES) {
    _mm256_storeu_ps(out, value);
  } else {
    _mm_storeu_ps(out, _mm256_castps256_ps128(value));
    _mm_storel_pi((__m64 *)(void *)(out + 4), _mm256_extractf128_ps(value, 1));
  }
}

static int64_t clamp_lanes(int64_t n, int64_t most) {
  return n < 0 ? 0 : n < most ? n : most;
}

/* Panels of `panel` (6 or 16), [unit][panel]; see pack_panels in gemm_kernels_avx512.c. */
GD_INLINE GD_TARGET_AVX2 void pack_panels(const struct gd_gemm_piece *piece, float *packed,
                                          int64_t panel, enum gd_gemm_unit unit) {
  enum { DEEP = 32 };
  const int64_t block = panel < LANES ? panel : LANES;
  if (piece->k_contiguous) {
    for (int64_t w_at = 0; w_at < piece->width; w_at += panel, packed += panel * piece->depth)
      for (int64_t part = 0; part < panel; part += block)
        for (int64_t u_at = 0; u_at < piece->depth; u_at += LANES) {
          __m256 r[LANES];
          const int64_t rows = clamp_lanes(piece->width - w_at - part, block);
          const int64_t lanes = clamp_lanes(piece->k - u_at, LANES);
          GD_UNROLL
          for (int i = 0; i < LANES; i++)
            r[i] = i < rows
                       ? load_wide(unit, piece->data, (w_at + part + i) * piece->ld + u_at, lanes)
                       : _mm256_setzero_ps();
          transpose(r);
          const int64_t units = clamp_lanes(piece->depth - u_at, LANES);
          float *out = packed + u_at * panel + part;
          GD_UNROLL
          for (int i = 0; i < LANES; i++)
            if (i < units)
              store_block(out + i * panel, r[i], block);
        }
    return;
  }
  for (int64_t deep = 0; deep < piece->depth; deep += DEEP) {
    const int64_t end = deep + clamp_lanes(piece->depth - deep, DEEP);
    for (int64_t w_at = 0; w_at < piece->width; w_at += panel)
      for (int64_t u = deep; u < end; u++)
        for (int64_t part = 0; part < panel; part += block) {
          const int64_t w = w_at + part, lanes = clamp_lanes(piece->width - w, block);
          store_block(packed + w_at * piece->depth + u * panel + part,
                      load_wide(unit, piece->data, u * piece->ld + w, lanes), block);
        }
  }
}

GD_INLINE GD_TARGET_AVX2 void pack_any(const struct gd_gemm_piece *piece, float *packed,
                                       int64_t panel) {
  switch (piece->unit) {
  case GD_GEMM_UNIT_F32: pack_panels(piece, packed, panel, GD_GEMM_UNIT_F32); break;
  case GD_GEMM_UNIT_F16: pack_panels(piece, packed, panel, GD_GEMM_UNIT_F16); break;
  case GD_GEMM_UNIT_BF16:
  case GD_GEMM_UNIT_BF16_PAIR: pack_panels(piece, packed, panel, GD_GEMM_UNIT_BF16); break;
  }
}

GD_TARGET_AVX2 static void pack_a(const struct gd_gemm_piece *piece, void *packed) {
  pack_any(piece, packed, MR);
}

GD_TARGET_AVX2 static void pack_b(const struct gd_gemm_piece *piece, void *packed) {
  pack_any(piece, packed, NR);
}

GD_TARGET_AVX2 static void tile(int64_t depth, const struct gd_gemm_rows *a_panel,
                                const void *b_panel, float *sums, bool add, int64_t rows,
                                int64_t cols) {
  (void)rows, (void)cols;
  const float *a = a_panel->data, *b = b_panel;
  __m256 sum[MR][2];
  GD_UNROLL
  for (int i = 0; i < MR; i++)
    sum[i][0] = sum[i][1] = _mm256_setzero_ps();
  for (int64_t u = 0; u < depth; u++, a += MR, b += NR) {
    const __m256 y0 = _mm256_load_ps(b), y1 = _mm256_load_ps(b + LANES);
    GD_UNROLL
    for (int i = 0; i < MR; i++) {
      const __m256 x = _mm256_broadcast_ss(a + i);
      sum[i][0] = _mm256_fmadd_ps(x, y0, sum[i][0]);
      sum[i][1] = _mm256_fmadd_ps(x, y1, sum[i][1]);
    }
  }
  GD_UNROLL
  for (int i = 0; i < MR; i++) {
    GD_UNROLL
    for (int j = 0; j < 2; j++) {
      float *out = sums + i * NR + j * LANES;
      _mm256_store_ps(out, add ? _mm256_add_ps(_mm256_load_ps(out), sum[i][j]) : sum[i][j]);
    }
  }
}

/* fp32 to bf16 as gd_f32_to_bf16 does it. */
GD_INLINE GD_TARGET_AVX2 __m128i to_bf16(__m256 value) {
  __m256i bits = _mm256_castps_si256(value);
  __m256i top = _mm256_srli_epi32(bits, 16);
  __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
  __m256i rounded = _mm256_srli_epi32(
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
  __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  rounded = _mm256_blendv_epi8(rounded, _mm256_or_si256(top, _mm256_set1_epi32(0x40)), nan);
  return _mm_packus_epi32(_mm256_castsi256_si128(rounded), _mm256_extracti128_si256(rounded, 1));
}

/* Eight elements of C. */
GD_INLINE GD_TARGET_AVX2 void store_lanes(const struct gd_gemm_output *out, __m256 value, void *c) {
  if (out->dtype == GD_DTYPE_F32) {
    if (out->accumulate)
      value = _mm256_add_ps(value, _mm256_loadu_ps(c));
    _mm256_storeu_ps(c, value);
    return;
  }
  if (out->accumulate) {
    __m128i old = _mm_loadu_si128(c);
    value = _mm256_add_ps(value, out->dtype == GD_DTYPE_F16 ? _mm256_cvtph_ps(old)
                                                            : _mm256_castsi256_ps(_mm256_slli_epi32(
                                                                  _mm256_cvtepu16_epi32(old), 16)));
  }
  _mm_storeu_si128(c, out->dtype == GD_DTYPE_F16 ? _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT)
                                                 : to_bf16(value));
}

GD_TARGET_AVX2 static void store(const struct gd_gemm_output *out, const float *sums, int64_t rows,
                                 int64_t cols, const float *bias, void *c) {
  const int64_t bytes = out->dtype == GD_DTYPE_F32 ? 4 : 2;
  const __m256 alpha = _mm256_set1_ps(out->alpha);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j += LANES) {
      const int64_t lanes = clamp_lanes(cols - j, LANES);
      char *at = (char *)c + (i * out->ld + j) * bytes;
      const __m256 shift = bias ? load_wide(GD_GEMM_UNIT_F32, bias, j, lanes) : _mm256_setzero_ps();
      const __m256 value = _mm256_fmadd_ps(alpha, _mm256_load_ps(sums + i * NR + j), shift);
      if (lanes == LANES) {
        store_lanes(out, value, at);
      } else { /* an edge: the same on a copy of what exists */
        char edge[LANES * 4] = {0};
        memcpy(edge, at, (size_t)(lanes * bytes));
        store_lanes(out, value, edge);
        memcpy(at, edge, (size_t)(lanes * bytes));
      }
    }
}

const struct gd_gemm_ops gd_gemm_ops_avx2 = {
    .mr = MR,
    .nr = NR,
    .a_step = MR,
    .unit_k = 1,
    .depth_step = 1,
    .depth_max = 256,
    .width_max = 512,
    .sums_max = 512 * 512,
    .pack_penalty = 12,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .tile = tile,
    .store = store,
};

#endif
