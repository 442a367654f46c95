/*
 * GEMM kernel for Intel AMX over bf16 pairs.
 *
 * One tile of C owns 32 x 32 sums: 2 x 2 AMX tiles of 16 x 16 fp32 (tmm0-3), and two tiles of A
 * (tmm4, 5: 16 rows x 16 units) and two of B (tmm6, 7: 16 units x 16 columns). Per 16 units of k:
 * four loads of 1 KiB for four TDPBF16PS of 16 cycles. The A panel mostly stays in L1 and B comes
 * from L2, at 32 bytes a cycle. Expected bound: packing and L2, not the multiplier.
 *
 * In memory every tile is 1 KiB in one piece. A panel of A: per 16 units, the tile of rows 0-15,
 * then that of rows 16-31. A panel of B: the tiles of columns 0-15 down the whole depth, then those
 * of columns 16-31. This layout and depth_max were the best of a few tried on a virtual machine
 * whose own peak varied twofold between runs, so they are choices, not optima.
 *
 * The tile configuration belongs to a thread: see begin and end.
 */
#include "backend/cpu/gemm_int.h"

#if defined(__x86_64__)

#include <immintrin.h>

enum { MR = 32, NR = 32, TILE = 16, SUMS_BYTES = NR * 4 };

/* Palette 1: eight tiles of 16 rows x 64 bytes (Intel SDM, LDTILECFG). */
struct tile_config {
  uint8_t palette;
  uint8_t start_row;
  uint8_t reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};
_Static_assert(sizeof(struct tile_config) == 64, "LDTILECFG reads 64 bytes");

GD_TARGET_AMX void gd_gemm_amx_begin(void) {
  _Alignas(64) struct tile_config config = {.palette = 1};
  for (int i = 0; i < 8; i++) {
    config.row_bytes[i] = 64;
    config.rows[i] = TILE;
  }
  __asm__ volatile("" : "+m"(config)); /* written before it is read, whatever the intrinsic says */
  _tile_loadconfig(&config);
}

GD_TARGET_AMX void gd_gemm_amx_end(void) {
  _tile_release();
}

/*
 * two_rows and two_cols are constants where this is inlined: a tile of C of which half is used
 * costs half. gcc's tile loads do not say that they read memory; its tile stores do say that they
 * write it, so one barrier at the start orders everything.
 */
GD_INLINE GD_TARGET_AMX void multiply(int64_t depth, const uint32_t *a, const uint32_t *b,
                                      float *sums, bool add, bool two_rows, bool two_cols) {
  float *sums_right = sums + TILE, *sums_below = sums + TILE * NR;
  float *sums_corner = sums_below + TILE;
  __asm__ volatile("" ::: "memory");
  if (add) {
    _tile_loadd(0, sums, SUMS_BYTES);
    if (two_cols)
      _tile_loadd(1, sums_right, SUMS_BYTES);
    if (two_rows)
      _tile_loadd(2, sums_below, SUMS_BYTES);
    if (two_rows && two_cols)
      _tile_loadd(3, sums_corner, SUMS_BYTES);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  for (int64_t u = 0; u < depth; u += TILE) {
    _tile_loadd(6, b, 64);
    _tile_loadd(4, a, 64);
    _tile_dpbf16ps(0, 4, 6);
    if (two_cols) {
      _tile_loadd(7, b + TILE * depth, 64);
      _tile_dpbf16ps(1, 4, 7);
    }
    if (two_rows) {
      _tile_loadd(5, a + TILE * TILE, 64);
      _tile_dpbf16ps(2, 5, 6);
    }
    if (two_rows && two_cols)
      _tile_dpbf16ps(3, 5, 7);
    a += MR * TILE;
    b += TILE * TILE;
  }
  _tile_stored(0, sums, SUMS_BYTES);
  if (two_cols)
    _tile_stored(1, sums_right, SUMS_BYTES);
  if (two_rows)
    _tile_stored(2, sums_below, SUMS_BYTES);
  if (two_rows && two_cols)
    _tile_stored(3, sums_corner, SUMS_BYTES);
}

GD_TARGET_AMX static void tile(int64_t depth, const struct gd_gemm_rows *a, const void *b,
                               float *sums, bool add, int64_t rows, int64_t cols) {
  if (rows > TILE && cols > TILE)
    multiply(depth, a->data, b, sums, add, true, true);
  else if (rows > TILE)
    multiply(depth, a->data, b, sums, add, true, false);
  else if (cols > TILE)
    multiply(depth, a->data, b, sums, add, false, true);
  else
    multiply(depth, a->data, b, sums, add, false, false);
}

const struct gd_gemm_ops gd_gemm_ops_amx = {
    .mr = MR,
    .nr = NR,
    .a_step = MR,
    .unit_k = 2,
    .depth_step = TILE,
    .depth_max = 256,
    .width_max = 512,
    .sums_max = 512 * 512,
    .pack_penalty = 128,
    .begin = gd_gemm_amx_begin,
    .end = gd_gemm_amx_end,
    .pack_a = gd_gemm_avx512_pack_a_tiles,
    .pack_b = gd_gemm_avx512_pack_b_tiles,
    .tile = tile,
    .store = gd_gemm_avx512_store,
};

#endif
