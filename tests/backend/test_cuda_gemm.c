/*
 * How a matmul op becomes a column-major GEMM of the CUDA backend, without a GPU: GEMMs run
 * here by the library's rules, in plain C, and are held against ref like any backend's kernel.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backend/cuda/gemm/cuda_gemm.h"
#include "backend/cuda/gemm/gemm_emulated.h"
#include "backend/cuda/gemm/gemm_steps.h"
#include "support/op_harness.h"
#include "support/sample.h"

enum { STAGE = 96 }; /* elements: small GEMMs come in several pieces */

/* D = alpha op(A) op(B) + bias (+ D), column-major: element (i, j) of a matrix is at i + j ld. */
static void library(const struct gd_cuda_gemm *p) {
  assert_true(p->lda >= (p->trans_a ? p->k : p->m) && p->ldb >= (p->trans_b ? p->n : p->k));
  assert_true(p->ldd >= p->m && p->lda > 0 && p->ldb > 0);
  for (int64_t item = 0; item < p->batch; item++)
    for (int64_t j = 0; j < p->n; j++)
      for (int64_t i = 0; i < p->m; i++) {
        double sum = 0;
        for (int64_t l = 0; l < p->k; l++)
          sum += (double)gd_dtype_load(p->dtype, p->a,
                                       item * p->stride_a +
                                           (p->trans_a ? l + i * p->lda : i + l * p->lda)) *
                 (double)gd_dtype_load(p->dtype, p->b,
                                       item * p->stride_b +
                                           (p->trans_b ? j + l * p->ldb : l + j * p->ldb));
        int64_t at = item * p->stride_d + i + j * p->ldd;
        float value = (float)((double)p->alpha * sum + (p->bias ? (double)p->bias[i] : 0));
        gd_dtype_store(p->dtype_d, p->d, at,
                       p->adds ? gd_dtype_load(p->dtype_d, p->d, at) + value : value);
      }
}

/* As op_matmul.c does it: what the library has no dtypes for comes in pieces of fp32. */
static void staged(const struct gd_cuda_gemm *p) {
  float stage[STAGE];
  struct gd_cuda_gemm piece;
  int64_t d_at = 0, done = 0;
  for (int64_t at = 0; gd_cuda_gemm_piece(p, at, stage, STAGE, &piece, &d_at); at++) {
    int64_t count = piece.batch * piece.n * piece.m;
    assert_true(count > 0 && count <= STAGE && !piece.staged && !piece.bias && !piece.adds);
    library(&piece);
    for (int64_t i = 0; i < count; i++) {
      int64_t row = i / p->m, column = i % p->m, to = d_at + row * p->ldd + column;
      float value = stage[i] + (p->bias ? p->bias[column] : 0);
      gd_dtype_store(p->dtype_d, p->d, to,
                     p->adds ? gd_dtype_load(p->dtype_d, p->d, to) + value : value);
    }
    done += count;
  }
  assert_int_equal(done, p->m * p->n * p->batch);
}

/* As op_matmul.c and matmul_transpose do it: every fp32 GEMM, with transposed operands. */
static void transposed(const struct gd_cuda_gemm *p) {
  static float room[8192];
  struct gd_cuda_gemm q;
  struct gd_cuda_transpose copies[2];
  int n = gd_cuda_gemm_transposed(p, room, sizeof room, &q, copies);
  assert_int_equal(n, p->batch == 1 ? !p->trans_a + p->trans_b : 0);
  for (int i = 0; i < n; i++)
    for (int64_t r = 0; r < copies[i].rows; r++)
      for (int64_t c = 0; c < copies[i].columns; c++)
        copies[i].to[c * copies[i].to_pitch + r] = copies[i].from[r * copies[i].from_pitch + c];
  if (n)
    assert_true(q.trans_a && !q.trans_b && q.m == p->m && q.n == p->n && q.d == p->d);
  library(&q);
}

/* As kernels/gemm_emulated.cu walks over it, without the scaling. Returns how many elements it
 * wrote. */
static int64_t cast_units(const struct gd_cuda_cast *cast) {
  int64_t written = 0;
  if (cast->transposed) {
    int64_t squares = (cast->lines + 63) / 64 * ((cast->length + 63) / 64);
    assert_int_equal(cast->tiles, squares);
    for (int64_t tile = 0; tile < cast->tiles; tile++) {
      int64_t line = tile / cast->line_units * 64, column = tile % cast->line_units * 64;
      for (int64_t i = line; i < line + 64 && i < cast->lines; i++)
        for (int64_t j = column; j < column + 64 && j < cast->length; j++, written++)
          gd_dtype_store(GD_DTYPE_F16, cast->to, j * cast->to_pitch + i,
                         cast->from[i * cast->from_pitch + j]);
    }
    return written;
  }
  assert_true(cast->tiles == (cast->units + 1023) / 1024 && cast->units > 0);
  assert_true(cast->to_pitch % 8 == 0 || cast->lines == 1);
  for (int64_t unit = 0; unit < cast->units; unit++) {
    int64_t line = cast->lines > 1 ? unit / cast->line_units : 0, at = unit % cast->line_units;
    for (int64_t i = 4 * at; i < 4 * at + 4 && i < cast->length; i++, written++)
      gd_dtype_store(GD_DTYPE_F16, cast->to, line * cast->to_pitch + i,
                     cast->from[line * cast->from_pitch + i]);
  }
  return written;
}

/*
 * As op_matmul.c does it: an emulated GEMM in pieces. Every element of an operand is cast once,
 * or, of one that is not cut, in the first piece. Returns the pieces; 0: there is no room.
 */
static int64_t emulated_in(const struct gd_cuda_gemm *p, int64_t room_bytes) {
  static _Alignas(256) uint16_t room[1 << 18];
  struct gd_cuda_emulated emulated;
  int64_t cast[2] = {0}, results = 0, summands = 0;
  memset(room, 0x7e, sizeof room); /* NaN */
  if (!gd_cuda_emulated_plan(p, room, room_bytes, &emulated))
    return 0;
  assert_true(room_bytes <= (int64_t)sizeof room);
  for (int64_t at = 0; at < emulated.pieces; at++) {
    struct gd_cuda_gemm piece;
    struct gd_cuda_casts casts;
    gd_cuda_emulated_piece(p, &emulated, at, &piece, &casts);
    assert_true(piece.dtype == GD_DTYPE_F16 && !piece.tf32 && piece.lda % 8 == 0);
    assert_true(piece.ldb % 8 == 0 && (uintptr_t)piece.a % 256 == 0 && piece.b != p->b);
    for (int i = 0; i < 2; i++) {
      assert_true(casts.slot[i] >= 0 && casts.slot[i] < GD_CUDA_EMULATED_PIECES);
      assert_int_equal(casts.operand[i], i);
      if (casts.at[i].tiles)
        cast[i] += cast_units(&casts.at[i]);
    }
    assert_true(at == emulated.pieces - 1 ||
                (piece.m == p->m) + (piece.n == p->n) + (piece.k == p->k) == 2);
    assert_false(piece.trans_a && emulated.cut == GD_CUDA_CUT_N);
    library(&piece);
    results += piece.m * piece.n;
    summands += piece.m * piece.n * piece.k;
  }
  int64_t beyond = 0;
  for (int64_t i = room_bytes / 2; i < (int64_t)(sizeof room / 2) && i < room_bytes / 2 + 4096; i++)
    beyond += room[i] != 0x7e7e;
  assert_int_equal(beyond, 0);
  assert_int_equal(cast[0], p->m * p->k);
  assert_int_equal(cast[1], p->k * p->n);
  assert_int_equal(summands, p->m * p->n * p->k);
  assert_int_equal(results, p->m * p->n * (emulated.cut == GD_CUDA_CUT_K ? emulated.pieces : 1));
  return emulated.pieces;
}

static bool always_staged, always_transposed, always_emulated;
static int64_t emulated_room_bytes, most_pieces;

static void run_matmul(const struct gd_kernel_args *args) {
  struct gd_cuda_gemm p;
  gd_cuda_gemm_of(args, &p);
  assert_true(p.staged == (p.dtype_d != GD_DTYPE_F32 &&
                           (p.dtype_d != p.dtype || (args->n_in > 2 && p.m % 8 != 0))));
  assert_int_equal(p.bias_mode == GD_CUDA_BIAS_NONE, args->n_in < 3);
  if (args->in[1].rank == 2)
    assert_int_equal(p.batch, 1); /* rows of all items as one GEMM */
  if (p.m == 0 || p.n == 0 || p.batch == 0)
    return;
  if ((p.staged || always_staged) && p.m <= STAGE && p.k > 0)
    staged(&p);
  else if (p.k > 0 && always_emulated) {
    int64_t pieces = emulated_in(&p, emulated_room_bytes);
    most_pieces = pieces > most_pieces ? pieces : most_pieces;
    if (pieces == 0) {
      assert_true(p.batch > 1 || p.dtype != GD_DTYPE_F32 || p.dtype_d != GD_DTYPE_F32);
      library(&p);
    }
  } else if (p.k > 0 && always_transposed && p.dtype == GD_DTYPE_F32 && p.dtype_d == GD_DTYPE_F32)
    transposed(&p);
  else if (p.k > 0)
    library(&p);
  else
    for (int64_t i = 0; i < args->out[0].elements; i++) { /* matmul_empty */
      float value = p.bias ? p.bias[i % p.m] : 0;
      gd_dtype_store(p.dtype_d, p.d, i, p.adds ? gd_dtype_load(p.dtype_d, p.d, i) + value : value);
    }
}

static gd_kernel kernels[GD_OP_COUNT];
static int checked;

static void check(const struct op_case *c) {
  const struct op_backend backend = {
      .name = "column-major", .kernels = kernels, .library_sums = always_emulated};
  const char *wrong = op_check(c, &backend);
  if (wrong)
    fail_msg("%s", wrong);
  checked++;
}

static void check_shape(enum gd_dtype in, struct gd_attr_matmul attr, uint32_t leading,
                        const int64_t *batch, bool flat_b, int64_t m, int64_t n, int64_t k,
                        bool bias) {
  struct op_case c = {.kind = GD_OP_matmul, .n_in = bias ? 3 : 2, .attr = {.matmul = attr}};
  uint32_t leading_b = flat_b ? 0 : leading;
  c.in[0] = (struct op_input){.dtype = in, .rank = leading + 2};
  c.in[1] = (struct op_input){.dtype = in, .rank = leading_b + 2};
  for (uint32_t i = 0; i < leading; i++)
    c.in[0].dims[i] = c.in[1].dims[i] = batch[i];
  c.in[0].dims[leading] = attr.trans_a ? k : m;
  c.in[0].dims[leading + 1] = attr.trans_a ? m : k;
  c.in[1].dims[leading_b] = attr.trans_b ? n : k;
  c.in[1].dims[leading_b + 1] = attr.trans_b ? k : n;
  c.in[2] = (struct op_input){.dtype = GD_DTYPE_F32, .rank = 1, .dims = {n}};
  if (always_emulated)
    c.in[0].fill = c.in[1].fill = OP_FILL_EIGHTHS; /* exact in any format */
  check(&c);
}

static void test_layouts(void **state) {
  static const int64_t sizes[][3] = {{1, 1, 1}, {3, 5, 7}, {17, 1, 4}, {1, 19, 3},
                                     {4, 6, 0}, {0, 3, 2}, {5, 0, 2},  {17, 19, 3}};
  static const struct {
    uint32_t leading;
    int64_t batch[2];
    bool flat_b;
  } batches[] = {{0, {0}, false},   {1, {3}, false}, {2, {2, 3}, false}, {1, {1}, false},
                 {2, {2, 3}, true}, {1, {4}, true},  {1, {0}, false},    {2, {2, 0}, true}};
  static const enum gd_dtype dtypes[] = {GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16, GD_DTYPE_COUNT};
  (void)state;
  kernels[GD_OP_matmul] = run_matmul;
  for (int s = 0; s < 8; s++)
    for (int b = 0; b < 8; b++)
      for (int i = 0; i < 96; i++) {
        if (!sample_has((uint64_t)(96 * (8 * s + b) + i), 5)) /* 5 divides none of the counts */
          continue;
        struct gd_attr_matmul attr = {.trans_a = i & 1,
                                      .trans_b = i & 2,
                                      .alpha = i & 4 ? 0.5f : 1,
                                      .out_dtype = dtypes[i / 8 % 4]};
        if (batches[b].flat_b && attr.trans_a)
          continue; /* not a matmul op: a transposed a is batched, and a flat b is not */
        always_staged = i / 8 % 2;
        always_transposed = (i + s) % 2;
        check_shape(dtypes[i / 32], attr, batches[b].leading, batches[b].batch, batches[b].flat_b,
                    sizes[s][0], sizes[s][1], sizes[s][2], (s + b + i / 4) % 2);
      }
  assert_true(checked > (getenv("GD_TEST_ALL") ? 4000 : 700));
}

/* Pieces of emulated GEMMs along every dim, of odd and even sizes, in little room. */
static void test_emulated(void **state) {
  static const struct {
    int64_t m, n, k, room_bytes, least_pieces;
  } sizes[] = {{1, 1, 1, 512, 1},        {3, 5, 7, 1024, 1},           {17, 19, 3, 4096, 1},
               {300, 9, 10, 6 << 10, 2}, {9, 300, 10, 6 << 10, 2},     {10, 9, 300, 12 << 10, 1},
               {640, 4, 16, 6 << 10, 5}, {4, 640, 16, 6 << 10, 5},     {8, 16, 640, 7 << 10, 5},
               {900, 3, 8, 9 << 10, 2},  {129, 230, 131, 80 << 10, 2}, {1, 1, 1025, 5 << 10, 1}};
  (void)state;
  kernels[GD_OP_matmul] = run_matmul;
  always_staged = always_transposed = false;
  always_emulated = true;
  for (int s = 0; s < 12; s++)
    for (int i = 0; i < 16; i++) {
      if (!sample_has((uint64_t)(16 * s + i), 3))
        continue;
      struct gd_attr_matmul attr = {.trans_a = i & 1,
                                    .trans_b = i & 2,
                                    .alpha = i & 4 ? 0.5f : 1,
                                    .out_dtype = GD_DTYPE_COUNT,
                                    .tf32 = true};
      int64_t m = sizes[s].m, n = sizes[s].n, k = sizes[s].k;
      most_pieces = 0;
      emulated_room_bytes = 1 << 18;
      check_shape(GD_DTYPE_F32, attr, 0, NULL, false, m, n, k, i & 8);
      assert_int_equal(most_pieces, 1);
      most_pieces = 0;
      emulated_room_bytes = sizes[s].room_bytes;
      check_shape(GD_DTYPE_F32, attr, 0, NULL, false, m, n, k, i & 8);
      if (most_pieces < sizes[s].least_pieces)
        fail_msg("size %d, layout %d: %d pieces", s, i, (int)most_pieces);
    }
  always_emulated = false;
}

/* The sizes of a vision transformer: few pieces, all alike, in the room that there is. */
static void test_emulated_vit(void **state) {
  const int64_t room_bytes = (256 - 33) << 20, rows = 100864;
  static const struct {
    int64_t m, n, k;
    bool trans_a, trans_b;
    int64_t pieces;
  } gemms[] = {
      {3072, 100864, 1024, true, false, 1}, {4096, 100864, 1024, true, false, 1},
      {1024, 100864, 4096, true, false, 4}, {1024, 100864, 3072, false, false, 3},
      {1024, 1024, 100864, false, true, 2}, {1024, 3072, 100864, false, true, 4},
      {1024, 4096, 100864, false, true, 5}, {4096, 1024, 100864, false, true, 5},
  };
  (void)state;
  for (size_t i = 0; i < sizeof gemms / sizeof *gemms; i++) {
    struct gd_cuda_gemm p = {.m = gemms[i].m,
                             .n = gemms[i].n,
                             .k = gemms[i].k,
                             .trans_a = gemms[i].trans_a,
                             .trans_b = gemms[i].trans_b,
                             .batch = 1,
                             .dtype = GD_DTYPE_F32,
                             .dtype_d = GD_DTYPE_F32};
    struct gd_cuda_emulated emulated;
    p.lda = p.trans_a ? p.k : p.m;
    p.ldb = p.trans_b ? p.n : p.k;
    p.ldd = p.m;
    assert_true(gd_cuda_emulated_plan(&p, NULL, room_bytes, &emulated));
    assert_int_equal(emulated.pieces, gemms[i].pieces);
    assert_int_equal(emulated.cut, p.k == rows ? GD_CUDA_CUT_K : GD_CUDA_CUT_N);
    assert_true(emulated.pieces == 1 || emulated.size % 128 == 0);
    assert_true(emulated.size * emulated.pieces - rows < 128 * emulated.pieces);
    p.batch = 2;
    assert_false(gd_cuda_emulated_plan(&p, NULL, room_bytes, &emulated));
  }
}

/* A linear layer of `rows` rows, as the ops of a program see it. Small whole numbers: exact. */
enum { MOST_ROWS = 700, MOST_WIDTH = 24 };
struct layer {
  int64_t rows, in, out;
  int64_t x_dims[2], y_dims[2], w_dims[2], b_dims[1];
  float x[MOST_ROWS * MOST_WIDTH], dy[MOST_ROWS * MOST_WIDTH], dx[MOST_ROWS * MOST_WIDTH];
  float w[MOST_WIDTH * MOST_WIDTH], dw[MOST_WIDTH * MOST_WIDTH], db[MOST_WIDTH];
  struct gd_view to_w[3], to_b[2], to_x[3];
  struct gd_kernel_args args[3];
  struct gd_cuda_step steps[3];
};

static struct gd_view view(float *data, uint32_t rank, const int64_t *dims) {
  return (struct gd_view){
      .data = data, .rank = rank, .dims = dims, .elements = dims[0] * (rank > 1 ? dims[1] : 1)};
}

static void fill(float *x, int64_t n, int64_t by) {
  for (int64_t i = 0; i < n; i++)
    x[i] = (float)(i * by % 7 - 3);
}

/* The gradients to the weight, added to it, to the bias, and to the rows: into dx, or over x. */
static void make_layer(struct layer *l, int64_t rows, int64_t in, int64_t out, bool over_x) {
  static const union gd_attr to_w = {
      .matmul = {.trans_a = true, .alpha = 1, .out_dtype = GD_DTYPE_COUNT, .tf32 = true}};
  static const union gd_attr to_x = {
      .matmul = {.alpha = 1, .out_dtype = GD_DTYPE_COUNT, .tf32 = true}};
  static const union gd_attr none;
  *l = (struct layer){.rows = rows,
                      .in = in,
                      .out = out,
                      .x_dims = {rows, in},
                      .y_dims = {rows, out},
                      .w_dims = {out, in},
                      .b_dims = {out}};
  fill(l->x, rows * in, 5);
  fill(l->dy, rows * out, 11);
  fill(l->w, out * in, 3);
  fill(l->dw, out * in, 2);
  struct gd_view dy = view(l->dy, 2, l->y_dims);
  struct gd_view ops[3][3] = {
      {dy, view(l->x, 2, l->x_dims), view(l->dw, 2, l->w_dims)},
      {dy, view(l->db, 1, l->b_dims), {0}},
      {dy, view(l->w, 2, l->w_dims), view(over_x ? l->x : l->dx, 2, l->x_dims)}};
  memcpy(l->to_w, ops[0], sizeof l->to_w);
  memcpy(l->to_b, ops[1], sizeof l->to_b);
  memcpy(l->to_x, ops[2], sizeof l->to_x);
  l->args[0] = (struct gd_kernel_args){
      .attr = &to_w, .n_in = 2, .n_out = 1, .adds = 1, .in = l->to_w, .out = &l->to_w[2]};
  l->args[1] = (struct gd_kernel_args){
      .attr = &none, .n_in = 1, .n_out = 1, .in = l->to_b, .out = &l->to_b[1]};
  l->args[2] = (struct gd_kernel_args){
      .attr = &to_x, .n_in = 2, .n_out = 1, .in = l->to_x, .out = &l->to_x[2]};
  for (int i = 0; i < 3; i++)
    l->steps[i] = (struct gd_cuda_step){i == 1 ? GD_OP_sum_rows : GD_OP_matmul, &l->args[i]};
}

/* As op_matmul.c does it: piece by piece in copies. Returns the elements of B that were cast. */
static int64_t emulated_group(const struct gd_cuda_gemm *gemms, int n, int64_t room_bytes,
                              int64_t *pieces) {
  static _Alignas(256) uint16_t room[1 << 16];
  struct gd_cuda_emulated emulated[GD_CUDA_EMULATED_SHARING];
  int64_t of_b = 0;
  memset(room, 0x7e, sizeof room);
  assert_true(room_bytes <= (int64_t)sizeof room);
  assert_true(gd_cuda_emulated_plan_all(gemms, n, room, room_bytes, emulated));
  *pieces = emulated[0].pieces;
  for (int64_t at = 0; at < *pieces; at++)
    for (int i = 0; i < n; i++) {
      struct gd_cuda_gemm piece;
      struct gd_cuda_casts casts;
      gd_cuda_emulated_piece(&gemms[i], &emulated[i], at, &piece, &casts);
      assert_int_equal(casts.operand[0], i == 0 ? 0 : i + 1);
      assert_true(casts.operand[1] == 1 && casts.slot[1] == at);
      if (casts.at[0].tiles)
        cast_units(&casts.at[0]);
      of_b += casts.at[1].tiles ? cast_units(&casts.at[1]) : 0;
      library(&piece);
    }
  for (size_t i = (size_t)room_bytes / 2; i < sizeof room / 2; i++)
    assert_int_equal(room[i], 0x7e7e);
  return of_b;
}

static void test_together(void **state) {
  static struct layer want, got;
  static const struct {
    int64_t rows, in, out, room_bytes, least_pieces;
  } sizes[] = {{5, 3, 4, 4096, 1}, {700, 24, 16, 20 << 10, 3}, {523, 7, 9, 10 << 10, 2}};
  (void)state;
  for (int i = 0; i < 6; i++) {
    int64_t rows = sizes[i / 2].rows, pieces;
    struct gd_cuda_group group;
    struct gd_cuda_gemm p[2];
    make_layer(&want, rows, sizes[i / 2].in, sizes[i / 2].out, false);
    make_layer(&got, rows, sizes[i / 2].in, sizes[i / 2].out, i % 2);
    gd_cuda_group_find(got.steps, 3, &group);
    assert_true(group.n == 2 && group.at[0] == 0 && group.at[1] == 2);
    for (int j = 0; j < 2; j++) {
      gd_cuda_gemm_of(&want.args[2 * j], &p[j]);
      library(&p[j]);
      gd_cuda_gemm_of(&got.args[2 * j], &p[j]);
    }
    assert_int_equal(emulated_group(p, 2, sizes[i / 2].room_bytes, &pieces), rows * got.out);
    assert_true(pieces >= sizes[i / 2].least_pieces);
    assert_memory_equal(got.dw, want.dw, sizeof got.dw);
    assert_memory_equal(i % 2 ? got.x : got.dx, want.dx, sizeof got.dx);
  }
}

/* Queries, keys and values: three of one B, with weights that are transposed. */
static void test_three_together(void **state) {
  static float x[300 * 20], w[3][16 * 20], y[3][300 * 16], want[300 * 16];
  int64_t x_dims[2] = {300, 20}, w_dims[2] = {16, 20}, y_dims[2] = {300, 16}, pieces;
  union gd_attr attr = {
      .matmul = {.trans_b = true, .alpha = 1, .out_dtype = GD_DTYPE_COUNT, .tf32 = true}};
  struct gd_kernel_args args[4];
  struct gd_view views[4][3];
  struct gd_cuda_step steps[4];
  struct gd_cuda_gemm p[3];
  struct gd_cuda_group group;
  (void)state;
  fill(x, 300 * 20, 5);
  for (int i = 0; i < 4; i++) {
    fill(w[i % 3], 16 * 20, i + 2);
    views[i][0] = view(x, 2, x_dims);
    views[i][1] = view(w[i % 3], 2, w_dims);
    views[i][2] = view(y[i % 3], 2, y_dims);
    args[i] = (struct gd_kernel_args){
        .attr = &attr, .n_in = 2, .n_out = 1, .in = views[i], .out = &views[i][2]};
    steps[i] = (struct gd_cuda_step){GD_OP_matmul, &args[i]};
  }
  gd_cuda_group_find(steps, 4, &group);
  assert_true(group.n == 3 && group.at[2] == 2);
  for (int i = 0; i < 3; i++)
    gd_cuda_gemm_of(&args[i], &p[i]);
  assert_int_equal(emulated_group(p, 3, 9 << 10, &pieces), 300 * 20);
  assert_true(pieces > 1);
  for (int i = 0; i < 3; i++) {
    p[i].d = want;
    library(&p[i]);
    assert_memory_equal(y[i], want, sizeof want);
  }
  attr.matmul.tf32 = false;
  gd_cuda_group_find(steps, 4, &group);
  assert_int_equal(group.n, 0);
}

/* Whatever would be seen in another order stays apart. */
static void test_not_grouped(void **state) {
  static struct layer l;
  struct gd_cuda_group group;
  (void)state;
#define APART(change)                     \
  make_layer(&l, 100, 8, 8, true);        \
  change;                                 \
  gd_cuda_group_find(l.steps, 3, &group); \
  assert_true(group.n < 2)
  APART(l.to_x[2].data = l.x + 1);   /* over x, but not row by row */
  APART(l.to_x[2].data = l.dy);      /* over what both read */
  APART(l.to_x[2].data = l.dw);      /* over the other result */
  APART(l.to_x[1].data = l.dw);      /* reads the other result */
  APART(l.to_x[0].data = l.dx);      /* another B */
  APART(l.to_b[0].data = l.dw);      /* the op between reads the first result */
  APART(l.to_b[1].data = l.x + 3);   /* or writes what the first reads */
  APART(l.to_b[1].data = l.dw + 63); /* or has written */
  APART(l.to_b[1].data = l.dy);      /* or the shared operand */
#undef APART
  make_layer(&l, 100, 8, 8, true);
  l.to_b[0] = l.to_x[1]; /* reading is free */
  gd_cuda_group_find(l.steps, 3, &group);
  assert_int_equal(group.n, 2);
  gd_cuda_group_find(l.steps, 2, &group);
  assert_true(group.n < 2);
}

/* Leading distances beyond the row, as the loss has them, map the same way. */
static void test_pitch(void **state) {
  const float a[] = {1, 2, -1, 3, 4, -1}, b[] = {1, 2, -9, 3, 4, -9}; /* [2][2], 3 apart */
  float c[8] = {0, 0, -5, -5, 0, 0, -5, -5};                          /* [2][2], 4 apart */
  struct gd_cuda_gemm p;
  (void)state;
  gd_cuda_gemm_rows(&(struct gd_gemm){.m = 2,
                                      .n = 2,
                                      .k = 2,
                                      .batch = 1,
                                      .trans_b = true,
                                      .lda = 3,
                                      .ldb = 3,
                                      .ldc = 4,
                                      .alpha = 1},
                    a, b, NULL, c, &p);
  library(&p);
  const float want[8] = {5, 11, -5, -5, 11, 25, -5, -5};
  assert_memory_equal(c, want, sizeof c);
}

/* Nothing is transposed that need not be, may not be, or does not fit. */
static void test_transposed(void **state) {
  static float memory[4096];
  struct gd_cuda_gemm p = {.m = 3,
                           .n = 5,
                           .k = 70,
                           .batch = 1,
                           .lda = 3,
                           .ldb = 70,
                           .ldd = 3,
                           .dtype = GD_DTYPE_F32,
                           .dtype_d = GD_DTYPE_F32,
                           .a = memory,
                           .b = memory,
                           .d = memory};
  struct gd_cuda_gemm q;
  struct gd_cuda_transpose copies[2];
  (void)state;
  assert_int_equal(gd_cuda_gemm_transposed(&p, memory, 3 * 128 * 4, &q, copies), 1);
  assert_int_equal(q.lda, 128); /* 70 floats, to a multiple of 256 bytes */
  assert_int_equal(gd_cuda_gemm_transposed(&p, memory, 3 * 128 * 4 - 1, &q, copies), 0);
  p.trans_b = true;
  assert_int_equal(gd_cuda_gemm_transposed(&p, memory, 3 * 128 * 4, &q, copies), 0);
  assert_int_equal(gd_cuda_gemm_transposed(&p, memory, 8 * 128 * 4, &q, copies), 2);
  assert_ptr_equal(q.b, memory + 3 * 128);
  p.batch = 2;
  assert_int_equal(gd_cuda_gemm_transposed(&p, memory, sizeof memory, &q, copies), 0);
  p.batch = 1;
  p.dtype_d = GD_DTYPE_BF16;
  assert_int_equal(gd_cuda_gemm_transposed(&p, memory, sizeof memory, &q, copies), 0);
}

/* What decides how a bias comes in, and that a stage too small for a column is refused. */
static void test_decisions(void **state) {
  static float memory[64];
  struct gd_cuda_gemm p, piece;
  struct gd_gemm rows = {.m = 4,
                         .n = 8,
                         .k = 2,
                         .batch = 1,
                         .trans_b = true,
                         .lda = 2,
                         .ldb = 2,
                         .ldc = 8,
                         .dtype_a = GD_DTYPE_BF16,
                         .dtype_b = GD_DTYPE_BF16,
                         .dtype_c = GD_DTYPE_F32,
                         .alpha = 1};
  int64_t d_at;
  (void)state;
  gd_cuda_gemm_rows(&rows, memory, memory, memory, memory, &p);
  assert_int_equal(p.bias_mode, GD_CUDA_BIAS_EPILOGUE);
  assert_true(!p.staged && !p.adds && !p.tf32);
  rows.dtype_c = GD_DTYPE_BF16;
  gd_cuda_gemm_rows(&rows, memory, memory, memory, memory, &p);
  assert_int_equal(p.bias_mode, GD_CUDA_BIAS_ROUNDED);
  assert_false(p.staged);
  rows.n = 12; /* the library would round twice */
  gd_cuda_gemm_rows(&rows, memory, memory, memory, memory, &p);
  assert_true(p.staged && p.bias_mode == GD_CUDA_BIAS_FINISH);
  gd_cuda_gemm_rows(&rows, memory, memory, NULL, memory, &p);
  assert_false(p.staged);
  rows.n = 8;
  rows.dtype_c = GD_DTYPE_F16;
  gd_cuda_gemm_rows(&rows, memory, memory, NULL, memory, &p);
  assert_true(p.staged && p.bias_mode == GD_CUDA_BIAS_NONE);
  assert_false(gd_cuda_gemm_piece(&p, 0, memory, 7, &piece, &d_at));
  assert_true(gd_cuda_gemm_piece(&p, 3, memory, 8, &piece, &d_at));
  assert_int_equal(d_at, 24);
  assert_false(gd_cuda_gemm_piece(&p, 4, memory, 8, &piece, &d_at));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layouts),     cmocka_unit_test(test_pitch),
      cmocka_unit_test(test_emulated),    cmocka_unit_test(test_emulated_vit),
      cmocka_unit_test(test_together),    cmocka_unit_test(test_three_together),
      cmocka_unit_test(test_not_grouped), cmocka_unit_test(test_transposed),
      cmocka_unit_test(test_decisions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
