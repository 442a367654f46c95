/*
 * GEMM kernels in C for any CPU: 16-byte vectors of gcc and clang, fp32 units.
 *
 * One tile owns MR x 8 sums in vector registers: 4 rows on x86-64 (16 registers), 8 on CPUs
 * with 32. Bound: the multiply and add rate of 16-byte vectors. Every other instruction set must
 * agree with this file, which is written to be read first.
 */
#include "backend/cpu/gemm_int.h"

enum { NR = 8 };
#if defined(__x86_64__)
enum { MR = 4 };
#else
enum { MR = 8 };
#endif

static float load_element(enum gd_gemm_unit unit, const void *data, int64_t i) {
  switch (unit) {
  case GD_GEMM_UNIT_F32: return ((const float *)data)[i];
  case GD_GEMM_UNIT_F16: return gd_f16_to_f32(((const uint16_t *)data)[i]);
  case GD_GEMM_UNIT_BF16:
  case GD_GEMM_UNIT_BF16_PAIR: break;
  }
  return gd_bf16_to_f32(((const uint16_t *)data)[i]);
}

static void pack(const struct gd_gemm_piece *piece, float *packed, int64_t panel) {
  int64_t step_w = piece->k_contiguous ? piece->ld : 1;
  int64_t step_k = piece->k_contiguous ? 1 : piece->ld;
  for (int64_t w_at = 0; w_at < piece->width; w_at += panel)
    for (int64_t u = 0; u < piece->depth; u++)
      for (int64_t w = w_at; w < w_at + panel; w++) {
        bool inside = u < piece->k && w < piece->width;
        *packed++ = inside ? load_element(piece->unit, piece->data, w * step_w + u * step_k) : 0;
      }
}

static void pack_a(const struct gd_gemm_piece *piece, void *packed) {
  pack(piece, packed, MR);
}

static void pack_b(const struct gd_gemm_piece *piece, void *packed) {
  pack(piece, packed, NR);
}

static void tile(int64_t depth, const struct gd_gemm_rows *a_panel, const void *b_panel,
                 float *sums, bool add, int64_t rows, int64_t cols) {
  (void)rows, (void)cols;
  const float *a = a_panel->data;
  const gd_f32x4 *b = b_panel;
  gd_f32x4 *out = (gd_f32x4 *)(void *)sums;
  gd_f32x4 sum[MR][2];
  GD_UNROLL
  for (int i = 0; i < MR; i++) {
    sum[i][0] = add ? out[2 * i] : (gd_f32x4){0};
    sum[i][1] = add ? out[2 * i + 1] : (gd_f32x4){0};
  }
  for (int64_t u = 0; u < depth; u++, a += MR, b += 2) {
    GD_UNROLL
    for (int i = 0; i < MR; i++) {
      sum[i][0] += a[i] * b[0];
      sum[i][1] += a[i] * b[1];
    }
  }
  GD_UNROLL
  for (int i = 0; i < MR; i++) {
    out[2 * i] = sum[i][0];
    out[2 * i + 1] = sum[i][1];
  }
}

static void store(const struct gd_gemm_output *out, const float *sums, int64_t rows, int64_t cols,
                  const float *bias, void *c) {
  for (int64_t i = 0; i < rows; i++)
    for (int64_t j = 0; j < cols; j++) {
      float value = out->alpha * sums[i * NR + j] + (bias ? bias[j] : 0.0f);
      if (out->accumulate)
        value += gd_dtype_load(out->dtype, c, i * out->ld + j);
      gd_dtype_store(out->dtype, c, i * out->ld + j, value);
    }
}

const struct gd_gemm_ops gd_gemm_ops_plain = {
    .mr = MR,
    .nr = NR,
    .a_step = MR,
    .unit_k = 1,
    .depth_step = 1,
    .depth_max = 256,
    .width_max = 256,
    .sums_max = 512 * 512,
    .pack_penalty = 8,
    .pack_a = pack_a,
    .pack_b = pack_b,
    .tile = tile,
    .store = store,
};
