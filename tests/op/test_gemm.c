/*
 * The CPU's GEMM against a loop in double precision: every instruction set this CPU has,
 * every dtype, transposes, odd sizes, batches, accumulation and bias; nothing outside C is written,
 * nothing outside A and B is read, and the number of threads does not change a bit of the result.
 */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "backend/cpu/gemm.h"

enum { THREADS_MAX = 3, GUARD_BYTES = 64, GUARD = 0xa5 };

static const enum gd_dtype dtypes[] = {GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16};

/* Memory that ends where an unreadable page begins: one element too far is a crash, not a guess. */
struct fenced {
  char *map;
  size_t map_bytes;
  void *data;
};

static struct fenced fenced_new(int64_t bytes) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  size_t room = ((size_t)bytes + page - 1) / page * page;
  struct fenced fenced = {.map_bytes = room + page};
  fenced.map =
      mmap(NULL, fenced.map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(fenced.map != MAP_FAILED);
  assert_int_equal(mprotect(fenced.map + room, page, PROT_NONE), 0);
  fenced.data = fenced.map + room - (size_t)bytes;
  return fenced;
}

static void fenced_free(struct fenced *fenced) {
  munmap(fenced->map, fenced->map_bytes);
}

/* The workspace starts as NaNs: what is not packed must not matter. */
static void *new_workspace(void) {
  size_t bytes = (size_t)gd_gemm_workspace_bytes(THREADS_MAX);
  void *workspace = aligned_alloc(64, bytes);
  assert_non_null(workspace);
  memset(workspace, 0xff, bytes);
  return workspace;
}

static uint32_t random_state = 1;

static float random_value(void) { /* in [-1, 1) */
  random_state = random_state * 1664525u + 1013904223u;
  return (float)((int32_t)(random_state >> 8) - (1 << 23)) * 0x1p-23f;
}

/* rows x cols of random values, and NaN in the columns up to ld: reading those must not happen. */
static void fill_matrix(enum gd_dtype dtype, void *data, int64_t items, int64_t rows, int64_t cols,
                        int64_t ld) {
  for (int64_t i = 0; i < items * rows; i++)
    for (int64_t j = 0; j < ld; j++)
      gd_dtype_store(dtype, data, i * ld + j, j < cols ? random_value() : NAN);
}

/* One GEMM with its exact answer. */
struct example {
  struct gd_gemm g;
  struct fenced a, b, bias;
  double *sums;       /* [batch][m][n], before alpha */
  double *magnitudes; /* sum of |a * b|, which the rounding error scales with */
};

static struct example example_new(int64_t m, int64_t n, int64_t k, int64_t batch, bool trans_a,
                                  bool trans_b, enum gd_dtype dtype, int64_t pad) {
  struct example e = {.g = {.m = m,
                            .n = n,
                            .k = k,
                            .batch = batch,
                            .trans_a = trans_a,
                            .trans_b = trans_b,
                            .lda = (trans_a ? m : k) + pad,
                            .ldb = (trans_b ? k : n) + pad,
                            .ldc = n + pad,
                            .dtype_a = dtype,
                            .dtype_b = dtype,
                            .alpha = 1}};
  int64_t rows_a = trans_a ? k : m, rows_b = trans_b ? n : k, bytes = gd_dtype_bytes(dtype);
  e.g.stride_a = rows_a * e.g.lda;
  e.g.stride_b = rows_b * e.g.ldb;
  e.g.stride_c = m * e.g.ldc;
  e.a = fenced_new(batch * e.g.stride_a * bytes);
  e.b = fenced_new(batch * e.g.stride_b * bytes);
  e.bias = fenced_new(n * 4);
  fill_matrix(dtype, e.a.data, batch, rows_a, e.g.lda - pad, e.g.lda);
  fill_matrix(dtype, e.b.data, batch, rows_b, e.g.ldb - pad, e.g.ldb);
  for (int64_t j = 0; j < n; j++)
    ((float *)e.bias.data)[j] = random_value();

  size_t count = (size_t)(batch * m * n);
  e.sums = calloc(count + 1, sizeof *e.sums);
  e.magnitudes = calloc(count + 1, sizeof *e.magnitudes);
  double *column = calloc((size_t)k + 1, sizeof *column);
  assert_true(e.sums && e.magnitudes && column);
  double *row = calloc((size_t)(m * k) + 1, sizeof *row);
  assert_non_null(row);
  for (int64_t item = 0; item < batch; item++) {
    for (int64_t i = 0; i < m; i++)
      for (int64_t p = 0; p < k; p++)
        row[i * k + p] = (double)gd_dtype_load(
            dtype, e.a.data, item * e.g.stride_a + (trans_a ? p * e.g.lda + i : i * e.g.lda + p));
    for (int64_t j = 0; j < n; j++) {
      for (int64_t p = 0; p < k; p++)
        column[p] = (double)gd_dtype_load(
            dtype, e.b.data, item * e.g.stride_b + (trans_b ? j * e.g.ldb + p : p * e.g.ldb + j));
      for (int64_t i = 0; i < m; i++) {
        double sum = 0, magnitude = 0;
        for (int64_t p = 0; p < k; p++) {
          sum += row[i * k + p] * column[p];
          magnitude += fabs(row[i * k + p] * column[p]);
        }
        e.sums[(item * m + i) * n + j] = sum;
        e.magnitudes[(item * m + i) * n + j] = magnitude;
      }
    }
  }
  free(row);
  free(column);
  return e;
}

static void example_free(struct example *e) {
  fenced_free(&e->a);
  fenced_free(&e->b);
  fenced_free(&e->bias);
  free(e->sums);
  free(e->magnitudes);
}

/* C with guard bytes on both sides and in the padding of its rows; `first` is its first element. */
struct guarded {
  unsigned char *block, *before; /* as it is, and as it was */
  size_t bytes;
  void *first;
};

static struct guarded guarded_new(const struct gd_gemm *g) {
  int64_t elements = g->batch * g->stride_c, bytes = gd_dtype_bytes(g->dtype_c);
  struct guarded c = {.bytes = (size_t)(elements * bytes) + 2 * GUARD_BYTES};
  c.block = malloc(c.bytes);
  c.before = malloc(c.bytes);
  assert_true(c.block && c.before);
  memset(c.block, GUARD, c.bytes);
  c.first = c.block + GUARD_BYTES;
  for (int64_t i = 0; i < g->batch * g->m; i++)
    for (int64_t j = 0; j < g->n; j++)
      gd_dtype_store(g->dtype_c, c.first, i * g->ldc + j, random_value());
  memcpy(c.before, c.block, c.bytes);
  return c;
}

static void guarded_free(struct guarded *c) {
  free(c->block);
  free(c->before);
}

static void check_result(const struct example *e, const float *bias, const struct guarded *c,
                         enum gd_isa isa) {
  const struct gd_gemm *g = &e->g;
  const double rounding = g->dtype_c == GD_DTYPE_F32    ? 0x1p-24
                          : g->dtype_c == GD_DTYPE_BF16 ? 0x1p-8
                                                        : 0x1p-11;
  const double sum_rounding = 0x1p-24 * (8 + 2 * sqrt((double)g->k));
  const void *before = c->before + GUARD_BYTES;
  for (int64_t i = 0; i < g->batch * g->m; i++)
    for (int64_t j = 0; j < g->n; j++) {
      double old = g->accumulate ? (double)gd_dtype_load(g->dtype_c, before, i * g->ldc + j) : 0;
      double shift = bias ? (double)bias[j] : 0;
      double expected = (double)g->alpha * e->sums[i * g->n + j] + shift + old;
      double scale = fabs((double)g->alpha) * e->magnitudes[i * g->n + j] + fabs(shift) + fabs(old);
      double value = (double)gd_dtype_load(g->dtype_c, c->first, i * g->ldc + j);
      double bound = rounding * fabs(expected) + sum_rounding * scale + 0x1p-24;
      if (!(fabs(value - expected) <= bound))
        fail_msg("%s %s -> %s, %lld x %lld x %lld x %lld, trans %d %d, alpha %g, accumulate %d, "
                 "bias %d: row %lld column %lld is %.9g, should be %.9g +- %.2g",
                 gd_isa_name(isa), gd_dtype_name(g->dtype_a), gd_dtype_name(g->dtype_c),
                 (long long)g->batch, (long long)g->m, (long long)g->n, (long long)g->k, g->trans_a,
                 g->trans_b, (double)g->alpha, g->accumulate, bias != NULL, (long long)i,
                 (long long)j, value, expected, bound);
    }
  /* Everything else is as it was. */
  int64_t bytes = gd_dtype_bytes(g->dtype_c);
  assert_memory_equal(c->block, c->before, GUARD_BYTES);
  for (int64_t i = 0; i < g->batch * g->m; i++) {
    size_t at = GUARD_BYTES + (size_t)((i * g->ldc + g->n) * bytes);
    assert_memory_equal(c->block + at, c->before + at, (size_t)((g->ldc - g->n) * bytes));
  }
  assert_memory_equal(c->block + c->bytes - GUARD_BYTES, c->before + c->bytes - GUARD_BYTES,
                      GUARD_BYTES);
}

/* Runs the example with one choice of output; `variant` walks through dtypes, alpha, C and bias. */
static void run_variant(struct example *e, int variant, enum gd_isa isa, int threads,
                        void *workspace) {
  e->g.dtype_c = dtypes[variant % 3];
  e->g.alpha = variant / 3 % 2 ? -0.625f : 1.0f;
  e->g.accumulate = variant / 6 % 2;
  const float *bias = variant / 12 % 2 ? e->bias.data : NULL;
  struct guarded c = guarded_new(&e->g);
  gd_gemm_run_isa(&e->g, e->a.data, e->b.data, bias, c.first, workspace, threads, isa);
  check_result(e, bias, &c, isa);
  guarded_free(&c);
}

static void test_every_isa(void **state) {
  (void)state;
  /* Around every tile and vector width, several rounds of k (over 256 units), and some batches. */
  static const int64_t shapes[][4] = {
      {1, 1, 1, 1},     {1, 2, 3, 5},     {1, 3, 1, 17},   {2, 1, 63, 2},    {1, 15, 16, 31},
      {1, 16, 15, 32},  {1, 17, 33, 33},  {3, 31, 17, 1},  {1, 33, 31, 127}, {1, 63, 65, 64},
      {1, 65, 63, 16},  {1, 14, 32, 15},  {1, 13, 129, 3}, {2, 28, 47, 65},  {1, 127, 48, 63},
      {1, 129, 2, 129}, {1, 2, 127, 300}, {5, 7, 9, 11},   {1, 29, 33, 257}, {1, 33, 49, 513},
      {1, 45, 17, 770}, {1, 15, 34, 1601}};
  void *workspace = new_workspace();
  int variant = 0;
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (int trans = 0; trans < 4; trans++)
      for (size_t d = 0; d < 3; d++) {
        const int64_t *shape = shapes[s];
        struct example e = example_new(shape[1], shape[2], shape[3], shape[0], trans & 1, trans & 2,
                                       dtypes[d], (int64_t)(s + d) % 3);
        for (enum gd_isa isa = GD_ISA_PLAIN; isa <= gd_isa_detect(); isa++)
          for (int i = 0; i < 5; i++, variant++)
            run_variant(&e, variant, isa, variant % 7 == 0 ? 2 : 1, workspace);
        example_free(&e);
      }
  free(workspace);
}

/* Large enough for several blocks of C in both directions and several runs of rows in a block. */
static void test_several_blocks(void **state) {
  (void)state;
  static const int64_t shapes[][4] = {{1, 530, 577, 65}, {1, 1100, 33, 300}, {2, 35, 1100, 270}};
  void *workspace = new_workspace();
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (int trans = 0; trans < 4; trans++) {
      enum gd_dtype dtype = dtypes[(s + (size_t)trans) % 3];
      const int64_t *shape = shapes[s];
      struct example e =
          example_new(shape[1], shape[2], shape[3], shape[0], trans & 1, trans & 2, dtype, 1);
      for (enum gd_isa isa = GD_ISA_PLAIN; isa <= gd_isa_detect(); isa++)
        run_variant(&e, 7 * trans, isa, 2, workspace);
      example_free(&e);
    }
  free(workspace);
}

static void test_threads_change_nothing(void **state) {
  (void)state;
  static const int64_t shapes[][4] = {{1, 257, 191, 131}, {7, 65, 67, 129}, {1, 1030, 31, 520}};
  void *workspace = new_workspace();
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (size_t d = 0; d < 3; d++)
      for (int trans = 0; trans < 4; trans++) {
        const int64_t *shape = shapes[s];
        struct example e = example_new(shape[1], shape[2], 0, shape[0], false, false, dtypes[d], 0);
        example_free(&e); /* only the description is wanted: no exact answer is needed here */
        struct gd_gemm g = e.g;
        g.k = shape[3];
        g.trans_a = trans & 1;
        g.trans_b = trans & 2;
        g.lda = g.trans_a ? g.m : g.k;
        g.ldb = g.trans_b ? g.k : g.n;
        g.stride_a = g.m * g.k;
        g.stride_b = g.k * g.n;
        g.dtype_c = dtypes[d];
        struct fenced a = fenced_new(g.batch * g.stride_a * gd_dtype_bytes(dtypes[d]));
        struct fenced b = fenced_new(g.batch * g.stride_b * gd_dtype_bytes(dtypes[d]));
        fill_matrix(dtypes[d], a.data, g.batch, 1, g.stride_a, g.stride_a);
        fill_matrix(dtypes[d], b.data, g.batch, 1, g.stride_b, g.stride_b);
        struct guarded one = guarded_new(&g), more = guarded_new(&g);
        for (enum gd_isa isa = GD_ISA_PLAIN; isa <= gd_isa_detect(); isa++) {
          gd_gemm_run_isa(&g, a.data, b.data, NULL, one.first, workspace, 1, isa);
          for (int threads = 2; threads <= THREADS_MAX; threads++) {
            memset(more.block, 0, more.bytes);
            gd_gemm_run_isa(&g, a.data, b.data, NULL, more.first, workspace, threads, isa);
            assert_memory_equal(one.first, more.first, one.bytes - 2 * GUARD_BYTES);
          }
        }
        guarded_free(&one);
        guarded_free(&more);
        fenced_free(&a);
        fenced_free(&b);
      }
  free(workspace);
}

static void test_empty(void **state) {
  (void)state;
  static const int64_t shapes[][4] = {{0, 3, 4, 5}, {1, 0, 4, 5}, {1, 3, 0, 5}, {2, 20, 40, 0}};
  void *workspace = new_workspace();
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
    const int64_t *shape = shapes[s];
    struct example e =
        example_new(shape[1], shape[2], shape[3], shape[0], false, true, GD_DTYPE_F32, 2);
    for (enum gd_isa isa = GD_ISA_PLAIN; isa <= gd_isa_detect(); isa++)
      for (int variant = 0; variant < 24; variant++)
        run_variant(&e, variant, isa, 2, workspace);
    example_free(&e);
  }
  free(workspace);
}

/* One B for the whole batch: a stride of zero. */
static void test_shared_operand(void **state) {
  (void)state;
  void *workspace = new_workspace();
  struct example e = example_new(20, 37, 70, 4, false, false, GD_DTYPE_BF16, 0);
  int64_t b_bytes = e.g.stride_b * 2;
  for (int item = 1; item < 4; item++)
    memcpy((char *)e.b.data + item * b_bytes, e.b.data, (size_t)b_bytes);
  struct gd_gemm shared = e.g;
  shared.stride_b = 0;
  struct guarded c = guarded_new(&e.g), d = guarded_new(&e.g);
  for (enum gd_isa isa = GD_ISA_PLAIN; isa <= gd_isa_detect(); isa++) {
    gd_gemm_run_isa(&e.g, e.a.data, e.b.data, NULL, c.first, workspace, 2, isa);
    gd_gemm_run_isa(&shared, e.a.data, e.b.data, NULL, d.first, workspace, 2, isa);
    assert_memory_equal(c.first, d.first, c.bytes - 2 * GUARD_BYTES);
  }
  guarded_free(&c);
  guarded_free(&d);
  example_free(&e);
  free(workspace);
}

/* fp32 sums are rounded into C exactly as dtype.h does it: ties, subnormals, overflow, NaN. */
static void test_rounding(void **state) {
  (void)state;
  static const float values[] = {
      1.0f,          -1.0f,          0x1.01p0f,    0x1.03p0f,  0x1.010002p0f, 0x1.ffp0f,
      0x1.ffffp0f,   0x1p-126f,      0x1.8p-130f,  0x1p-149f,  0x1.fffep127f, -0x1.ffp127f,
      65504.0f,      65519.9f,       65520.0f,     -65536.0f,  0x1.004p0f,    0x1.00cp0f,
      0x1.004002p0f, 0x1p-14f,       0x1.ffcp-15f, 0x1.8p-25f, 0x1p-25f,      0x1.01p-25f,
      0x1p-24f,      0x1.5p-20f,     INFINITY,     -INFINITY,  0.0f,          0x1.234568p3f,
      3.14159274f,   0x1.fffffep10f, NAN};
  enum { COUNT = sizeof values / sizeof *values };
  void *workspace = new_workspace();
  const float one = 1.0f;
  struct gd_gemm g = {
      .m = 1, .n = COUNT, .k = 1, .batch = 1, .lda = 1, .ldb = COUNT, .ldc = COUNT, .alpha = 1};
  for (enum gd_isa isa = GD_ISA_PLAIN; isa <= gd_isa_detect(); isa++)
    for (size_t d = 1; d < 3; d++) {
      uint16_t c[COUNT];
      g.dtype_c = dtypes[d];
      gd_gemm_run_isa(&g, &one, values, NULL, c, workspace, 1, isa);
      for (int i = 0; i < COUNT; i++) {
        uint16_t expected =
            g.dtype_c == GD_DTYPE_BF16 ? gd_f32_to_bf16(values[i]) : gd_f32_to_f16(values[i]);
        if (c[i] != expected)
          fail_msg("%s: %a as %s is %04x, should be %04x", gd_isa_name(isa), (double)values[i],
                   gd_dtype_name(g.dtype_c), c[i], expected);
      }
    }
  free(workspace);
}

static void test_isa(void **state) {
  (void)state;
  assert_true(gd_isa_detect() < GD_ISA_COUNT);
  assert_int_equal(gd_isa_detect(), gd_isa_detect());
  for (enum gd_isa isa = GD_ISA_PLAIN; isa < GD_ISA_COUNT; isa++)
    assert_true(strlen(gd_isa_name(isa)) > 0);
  assert_int_equal(gd_gemm_workspace_bytes(7), 7 * gd_gemm_workspace_bytes(1));
  double fp32 = gd_isa_peak_flops(GD_DTYPE_F32, 1, gd_isa_detect());
  double bf16 = gd_isa_peak_flops(GD_DTYPE_BF16, 1, gd_isa_detect());
  printf("%s: register peak of one thread %.1f GFLOP/s fp32, %.1f bf16\n",
         gd_isa_name(gd_isa_detect()), 1e-9 * fp32, 1e-9 * bf16);
  /* No CPU of this century is below 0.1 GFLOP/s, none has 100 TFLOP/s in a thread. */
  assert_true(fp32 > 1e8 && fp32 < 1e14);
  assert_true(bf16 > 1e8 && bf16 < 1e14);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_every_isa),
      cmocka_unit_test(test_several_blocks),
      cmocka_unit_test(test_threads_change_nothing),
      cmocka_unit_test(test_empty),
      cmocka_unit_test(test_shared_operand),
      cmocka_unit_test(test_rounding),
      cmocka_unit_test(test_isa),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
