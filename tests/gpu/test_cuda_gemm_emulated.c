/*
 * TF32 GEMMs emulated with scaled fp16, on the GPU: exact where the data are, element by element
 * within what TF32 permits elsewhere, whatever the range: elements that the sample does not show,
 * zeros, infinities, subnormals. The last test prints the errors of both ways against fp64.
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "support/cuda_ops.h"

enum { GUARD = 128 }; /* as support/cuda_ops.c copies it */

static const char *const ways[] = {"0", "1", "2"}; /* direct, large pieces, small pieces */

/* --- exact data against ref ------------------------------------------------------------------ */

static void check_exact(int64_t m, int64_t n, int64_t k, int layout, bool bias) {
  struct op_case c = {.kind = GD_OP_matmul,
                      .n_in = bias ? 3 : 2,
                      .attr.matmul = {.trans_a = layout & 1,
                                      .trans_b = layout & 2,
                                      .alpha = 0.5f,
                                      .out_dtype = GD_DTYPE_COUNT,
                                      .tf32 = true}};
  c.in[0] = (struct op_input){
      .rank = 2, .dims = {layout & 1 ? k : m, layout & 1 ? m : k}, .fill = OP_FILL_EIGHTHS};
  c.in[1] = (struct op_input){
      .rank = 2, .dims = {layout & 2 ? n : k, layout & 2 ? k : n}, .fill = OP_FILL_EIGHTHS};
  c.in[2] = (struct op_input){.rank = 1, .dims = {n}, .fill = OP_FILL_EIGHTHS};
  const char *wrong = op_check(&c, &cuda_ops);
  if (wrong)
    fail_msg("GPUDAYS_TF32_EMULATED=%s: %s", getenv("GPUDAYS_TF32_EMULATED"), wrong);
}

static void test_small(void **state) {
  static const int64_t sizes[][3] = {{1, 1, 1},    {3, 5, 7},    {17, 19, 33},    {129, 33, 65},
                                     {65, 129, 8}, {64, 64, 64}, {131, 67, 1031}, {512, 256, 128}};
  (void)state;
  setenv("GPUDAYS_TF32_EMULATED", "1", 1);
  for (int s = 0; s < 8; s++)
    for (int i = 0; i < 8; i++)
      check_exact(sizes[s][0], sizes[s][1], sizes[s][2], i % 4, i / 4);
}

/* Operands past the room of small pieces: cut along every dim. */
static void test_pieces(void **state) {
  static const int64_t sizes[][3] = {{160000, 2, 128}, {2, 160000, 128}, {120, 2, 160001}};
  (void)state;
  setenv("GPUDAYS_TF32_EMULATED", "2", 1);
  for (int s = 0; s < 3; s++)
    for (int layout = 0; layout < 4; layout++)
      check_exact(sizes[s][0], sizes[s][1], sizes[s][2], layout, layout % 2);
}

/* --- other data against fp64 ----------------------------------------------------------------- */

struct matrix {
  char *block;
  float *at;
  int64_t rows, columns;
};

static struct matrix make(int64_t rows, int64_t columns) {
  struct matrix x = {.rows = rows, .columns = columns};
  x.block = gd_mem_alloc((size_t)(rows * columns) * sizeof(float) + 2 * GUARD + 64, 1);
  assert_non_null(x.block);
  char *data = x.block + GUARD;
  x.at = (float *)(data + (64 - (uintptr_t)data % 64) % 64);
  return x;
}

static float normal(uint64_t stream, int64_t i) {
  double u = ((double)gd_rng_uniform(7, stream, (uint64_t)(2 * i)) + 1e-8) / (1 + 1e-8);
  double v = (double)gd_rng_uniform(7, stream, (uint64_t)(2 * i + 1));
  return (float)(sqrt(-2 * log(u)) * cos(6.283185307179586 * v));
}

/* scale exp(N(0, spread)) with a random sign, or scale N(0, 1). */
static void fill(struct matrix *x, uint64_t stream, double scale, double spread) {
  for (int64_t i = 0; i < x->rows * x->columns; i++) {
    double z = (double)normal(stream, i);
    bool negative = gd_rng_uniform(8, stream, (uint64_t)i) < 0.5f;
    x->at[i] = (float)(spread > 0 ? scale * (negative ? -1 : 1) * exp(spread * z) : scale * z);
  }
}

static void multiply(const char *way, struct matrix *a, struct matrix *b, struct matrix *y) {
  union gd_attr attr = {.matmul = {.alpha = 1, .out_dtype = GD_DTYPE_COUNT, .tf32 = true}};
  struct matrix *all[] = {a, b, y};
  struct gd_view views[3];
  int64_t dims[3][2];
  for (int i = 0; i < 3; i++) {
    dims[i][0] = all[i]->rows;
    dims[i][1] = all[i]->columns;
    views[i] = (struct gd_view){
        .data = all[i]->at, .rank = 2, .dims = dims[i], .elements = all[i]->rows * all[i]->columns};
  }
  struct gd_kernel_args args = {
      .attr = &attr, .n_in = 2, .n_out = 1, .in = views, .out = views + 2};
  setenv("GPUDAYS_TF32_EMULATED", way, 1);
  for (int64_t i = 0; i < y->rows * y->columns; i++)
    y->at[i] = NAN;
  cuda_ops.kernels[GD_OP_matmul](&args);
}

struct errors {
  double worst;       /* of an element, over the sum of the magnitudes that it sums */
  double mean;        /* root of the mean square of errors, over that of the results */
  double beyond;      /* most that an element is off beyond what gemm_emulated.h says; 0 is well */
  int64_t wrong_kind; /* infinite or NaN where fp64 is not, or the other way round */
};

static double largest_of(const struct matrix *x) {
  double largest = 0;
  for (int64_t i = 0; i < x->rows * x->columns; i++)
    if (isfinite(x->at[i]))
      largest = fmax(largest, fabs((double)x->at[i]));
  return largest;
}

/* Two roundings to 11 bits, and the sums'. */
static const double rounding = 0x1p-10 + 0x1p-17;
/* Of an element that is too small for that many bits, relative to the largest of its matrix. */
static const double least = 0x1p-32;

static struct errors errors_of(const struct matrix *a, const struct matrix *b,
                               const struct matrix *y) {
  struct errors e = {0};
  double squares = 0, results = 0, most_a = largest_of(a), most_b = largest_of(b);
  for (int64_t i = 0; i < y->rows; i++)
    for (int64_t j = 0; j < y->columns; j++) {
      double sum = 0, magnitudes = 0, lost = 0;
      for (int64_t l = 0; l < a->columns; l++) {
        double x = (double)a->at[i * a->columns + l], z = (double)b->at[l * b->columns + j];
        sum += x * z;
        magnitudes += fabs(x * z);
        lost += least * (most_a * fabs(z) + most_b * fabs(x));
      }
      double got = (double)y->at[i * y->columns + j], off = fabs(got - sum);
      if (!isfinite(sum) || !isfinite(got)) {
        e.wrong_kind += isnan(sum) != isnan(got) || (!isnan(sum) && sum != got);
        continue;
      }
      /* Exponents end, as do those of results: 2^-126 is the least normal number. */
      double allowed = rounding * magnitudes + lost + 0x1p-126;
      e.beyond = fmax(e.beyond, off - allowed);
      e.worst = fmax(e.worst, magnitudes > 0 ? off / magnitudes : off);
      squares += off * off;
      results += sum * sum;
    }
  e.mean = results > 0 ? sqrt(squares / results) : sqrt(squares);
  return e;
}

struct odd {
  const char *name;
  int64_t m, n, k;
  double scale_a, scale_b;
  void (*change)(struct matrix *a, struct matrix *b);
};

static void nothing(struct matrix *a, struct matrix *b) {
  (void)a;
  (void)b;
}
/* Segment 0 of an operand is in the sample, segment 1 is not: kernels/gemm_emulated.cu. */
static void outlier(struct matrix *a, struct matrix *b) {
  (void)b;
  a->at[100] = 1e6f;
}
static void outliers(struct matrix *a, struct matrix *b) {
  a->at[100] = -3e9f;
  a->at[a->rows * a->columns - 1] = 70000;
  b->at[b->rows * b->columns - 1] = 1e12f;
}
static void all_zero(struct matrix *a, struct matrix *b) {
  (void)b;
  memset(a->at, 0, (size_t)(a->rows * a->columns) * sizeof(float));
}
static void zero_sample(struct matrix *a, struct matrix *b) {
  all_zero(a, b);
  a->at[100] = 3;
  a->at[101] = 1e-6f;
}
/* Of B: what A may be scaled by is not known then. */
static void zero_sample_b(struct matrix *a, struct matrix *b) {
  float scale = b->at[0] < 0 ? -b->at[0] : b->at[0];
  (void)a;
  memset(b->at, 0, (size_t)(b->rows * b->columns) * sizeof(float));
  for (int64_t i = 64; i < 128; i++)
    b->at[i] = scale * (1 + (float)i / 64);
}
/* The same, and zeros in the first piece of several: numbers come in the second and third, in
   segments of 64 that the sample leaves out. */
static void zero_sample_and_piece(struct matrix *a, struct matrix *b) {
  static const int64_t first[] = {19999360, 33331904};
  (void)b;
  memset(a->at, 0, (size_t)(a->rows * a->columns) * sizeof(float));
  for (int s = 0; s < 2; s++)
    for (int64_t i = 0; i < 64; i++)
      a->at[first[s] + i] = 1 + (float)i / 64;
}
static void infinite(struct matrix *a, struct matrix *b) {
  (void)b;
  a->at[0] = INFINITY; /* in the sample */
  a->at[100 + a->columns] = -INFINITY;
}
static void not_numbers(struct matrix *a, struct matrix *b) {
  (void)b;
  a->at[0] = NAN;
  a->at[100 + a->columns] = NAN;
  a->at[2 * a->columns] = 5e8f;
}

/* The largest, 2^21 of the others, meet zeros alone: what is left is within fp32, and no power of
   two within it undoes the scaling. */
static void apart(struct matrix *a, struct matrix *b) {
  for (int64_t i = 0; i < a->rows; i++)
    a->at[i * a->columns + 7] = 0;
  for (int64_t i = 0; i < b->columns; i++)
    b->at[5 * b->columns + i] = 0;
  a->at[5] = 0x1p79f;
  b->at[7 * b->columns + 3] = -0x1p79f;
}

static void test_odd_data(void **state) {
  static const struct odd cases[] = {
      {"normal", 9000, 8, 1000, 1, 1, nothing},
      {"an element outside the sample", 9000, 8, 1000, 1, 1, outlier},
      {"several", 9000, 8, 1000, 1, 1, outliers},
      {"zeros", 9000, 8, 1000, 1, 1, all_zero},
      {"zeros in the sample", 9000, 8, 1000, 1, 1, zero_sample},
      {"zeros in the sample of B", 8, 9000, 1000, 1e-9, 1, zero_sample_b},
      {"tiny by that", 8, 9000, 1000, 1e-30, 1, zero_sample_b},
      {"one by that, tiny", 8, 9000, 1000, 1, 0x1p-116, zero_sample_b},
      {"small by that, tiny", 8, 9000, 1000, 1e-3, 0x1p-110, zero_sample_b},
      {"zeros in the sample and the first piece", 40000, 8, 1000, 1, 1, zero_sample_and_piece},
      {"infinities", 9000, 8, 1000, 1, 1, infinite},
      {"no numbers", 9000, 8, 1000, 1, 1, not_numbers},
      {"zeros, small", 33, 17, 65, 1, 1, all_zero},
      {"infinities, small", 33, 17, 165, 1, 1, infinite},
      {"tiny by one", 257, 65, 511, 1e-9, 0.02, nothing},
      {"subnormal by large", 257, 65, 511, 1e-39, 1e6, nothing},
      {"tiny by tiny", 257, 65, 511, 1e-20, 1e-17, nothing},
      {"huge by tiny", 257, 65, 511, 1e35, 1e-30, nothing},
      {"huge by huge", 257, 65, 511, 1e17, 1e18, nothing},
      {"beyond all powers", 257, 65, 511, 0x1p58, 0x1p58, apart},
      {"beyond them, sampled", 9000, 8, 1000, 0x1p58, 0x1p58, apart},
  };
  (void)state;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const struct odd *c = &cases[i];
    struct matrix a = make(c->m, c->k), b = make(c->k, c->n), y = make(c->m, c->n);
    fill(&a, 1, c->scale_a, 0);
    fill(&b, 2, c->scale_b, 0);
    c->change(&a, &b);
    for (int way = 1; way < 3; way++) {
      multiply(ways[way], &a, &b, &y);
      struct errors e = errors_of(&a, &b, &y);
      if (e.wrong_kind || !(e.beyond <= 0))
        fail_msg("%s: %g too far off, %lld infinite or not", c->name, e.beyond,
                 (long long)e.wrong_kind);
    }
    gd_mem_free(a.block);
    gd_mem_free(b.block);
    gd_mem_free(y.block);
  }
}

/* What rounds no worse may be used in TF32's place: the figures of docs/decisions.md. */
static void test_errors(void **state) {
  static const struct {
    const char *name;
    double scale_a, spread_a, scale_b, spread_b;
  } cases[] = {
      {"N(0,1) by N(0,1)", 1, 0, 1, 0},
      {"N(0,1) by N(0,0.02)", 1, 0, 0.02, 0},
      {"exp(N(0,4)) by N(0,1)", 1, 4, 1, 0},
      {"exp(N(0,4)) by exp(N(0,4))", 1, 4, 1, 4},
      {"1e-9 N(0,1) by N(0,0.02)", 1e-9, 0, 0.02, 0},
      {"1e-9 exp(N(0,4)) by N(0,1)", 1e-9, 4, 1, 0},
  };
  (void)state;
  printf("error against fp64, 384 x 256 x 2048: root mean square, worst over sum of magnitudes\n");
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct matrix a = make(384, 2048), b = make(2048, 256), y = make(384, 256);
    struct errors e[2];
    fill(&a, 3, cases[i].scale_a, cases[i].spread_a);
    fill(&b, 4, cases[i].scale_b, cases[i].spread_b);
    for (int way = 0; way < 2; way++) {
      multiply(ways[way], &a, &b, &y);
      e[way] = errors_of(&a, &b, &y);
    }
    printf("  %-28s TF32 %.2e %.2e   emulated %.2e %.2e\n", cases[i].name, e[0].mean, e[0].worst,
           e[1].mean, e[1].worst);
    assert_true(!(e[1].beyond > 0) && e[1].worst < rounding && e[1].wrong_kind == 0);
    assert_true(e[1].mean < 1.1 * e[0].mean);
    gd_mem_free(a.block);
    gd_mem_free(b.block);
    gd_mem_free(y.block);
  }
}

/* --- gemms that share an operand ----------------------------------------------------------- */

static void fill_eighths(struct matrix *x, int64_t by) {
  for (int64_t i = 0; i < x->rows * x->columns; i++)
    x->at[i] = (float)(i * by % 7 - 3) / 8;
}

/* y (+)= op(a) op(b), exact for such numbers in any order. */
static void expect(const struct matrix *a, bool trans_a, const struct matrix *b, bool trans_b,
                   const float *before, const struct matrix *y) {
  int64_t k = trans_a ? a->rows : a->columns;
  for (int64_t i = 0; i < y->rows; i++)
    for (int64_t j = 0; j < y->columns; j++) {
      double sum = before ? (double)before[i * y->columns + j] : 0;
      for (int64_t l = 0; l < k; l++)
        sum += (double)a->at[trans_a ? l * a->columns + i : i * a->columns + l] *
               (double)b->at[trans_b ? j * b->columns + l : l * b->columns + j];
      if ((double)y->at[i * y->columns + j] != sum)
        fail_msg("GPUDAYS_TF32_EMULATED=%s: %lld, %lld of %lld x %lld is %g, not %g",
                 getenv("GPUDAYS_TF32_EMULATED"), (long long)i, (long long)j, (long long)y->rows,
                 (long long)y->columns, (double)y->at[i * y->columns + j], sum);
    }
}

struct call {
  union gd_attr attr;
  struct gd_view views[3];
  int64_t dims[3][2];
};

static struct gd_kernel_args call_of(struct call *c, const struct matrix *a, bool trans_a,
                                     const struct matrix *b, bool trans_b, const struct matrix *y,
                                     bool adds) {
  const struct matrix *all[] = {a, b, y};
  *c = (struct call){.attr.matmul = {.trans_a = trans_a,
                                     .trans_b = trans_b,
                                     .alpha = 1,
                                     .out_dtype = GD_DTYPE_COUNT,
                                     .tf32 = true}};
  for (int i = 0; i < 3; i++) {
    c->dims[i][0] = all[i]->rows;
    c->dims[i][1] = all[i]->columns;
    c->views[i] = (struct gd_view){.data = all[i]->at,
                                   .rank = 2,
                                   .dims = c->dims[i],
                                   .elements = all[i]->rows * all[i]->columns};
  }
  return (struct gd_kernel_args){
      .attr = &c->attr, .n_in = 2, .n_out = 1, .adds = adds, .in = c->views, .out = c->views + 2};
}

static struct matrix copy_of(const struct matrix *x) {
  struct matrix y = make(x->rows, x->columns);
  memcpy(y.at, x->at, (size_t)(x->rows * x->columns) * sizeof(float));
  return y;
}

/* Both gradients of a linear layer: into memory of its own, and over the rows. */
static void check_layer(const char *way, int64_t rows, int64_t in, int64_t out, bool over_x) {
  struct matrix x = make(rows, in), dy = make(rows, out), w = make(out, in), dw = make(out, in);
  struct call calls[2];
  fill_eighths(&x, 5);
  fill_eighths(&dy, 11);
  fill_eighths(&w, 3);
  fill_eighths(&dw, 2);
  if (rows * in > 100) /* where no sample looks, if the operand is a large one */
    x.at[100] = 1024;
  if (rows * out > 100)
    dy.at[100] = -2048;
  struct matrix old_x = copy_of(&x), old_dw = copy_of(&dw), dx = over_x ? x : make(rows, in);
  struct gd_kernel_args args[] = {call_of(&calls[0], &dy, true, &x, false, &dw, true),
                                  call_of(&calls[1], &dy, false, &w, false, &dx, false)};
  setenv("GPUDAYS_TF32_EMULATED", way, 1);
  assert_int_equal(cuda_ops_gemms(args, 2), 2);
  expect(&dy, true, &old_x, false, old_dw.at, &dw);
  expect(&dy, false, &w, false, NULL, &dx);
  struct matrix *all[] = {&x, &dy, &w, &dw, &old_x, &old_dw};
  for (int i = 0; i < 6; i++)
    gd_mem_free(all[i]->block);
  if (!over_x)
    gd_mem_free(dx.block);
}

static void test_gradients_together(void **state) {
  static const int64_t sizes[][3] = {
      {1, 1, 1}, {131, 67, 35}, {1000, 8, 24}, {40000, 512, 4}, {40000, 4, 512}};
  (void)state;
  for (int i = 0; i < 20; i++)
    check_layer(ways[1 + i % 2], sizes[i / 4][0], sizes[i / 4][1], sizes[i / 4][2], i / 2 % 2);
}

/* Queries, keys and values. */
static void test_three_together(void **state) {
  static const int64_t sizes[][3] = {{3, 5, 7}, {257, 130, 65}, {20000, 1024, 2}};
  (void)state;
  for (int s = 0; s < 6; s++) {
    int64_t rows = sizes[s / 2][0], in = sizes[s / 2][1], out = sizes[s / 2][2];
    struct matrix x = make(rows, in), w[3], y[3];
    struct gd_kernel_args args[3];
    struct call calls[3];
    fill_eighths(&x, 5);
    for (int i = 0; i < 3; i++) {
      w[i] = make(out, in);
      y[i] = make(rows, out);
      fill_eighths(&w[i], 2 + i);
      args[i] = call_of(&calls[i], &x, false, &w[i], true, &y[i], false);
    }
    setenv("GPUDAYS_TF32_EMULATED", ways[1 + s % 2], 1);
    assert_int_equal(cuda_ops_gemms(args, 3), 3);
    for (int i = 0; i < 3; i++) {
      expect(&x, false, &w[i], true, NULL, &y[i]);
      gd_mem_free(w[i].block);
      gd_mem_free(y[i].block);
    }
    gd_mem_free(x.block);
  }
}

/* GPUDAYS_GEMM_GROUP by itself: 1 groups GEMMs of any size, 0 none, whatever the other switch. */
static void test_group_switch(void **state) {
  static const struct {
    const char *group, *emulated;
    uint32_t grouped;
  } cases[] = {{"1", "", 3}, {"0", "1", 0}, {"1", "2", 3}};
  (void)state;
  for (int s = 0; s < 3; s++) {
    struct matrix x = make(257, 130), w[3], y[3];
    struct gd_kernel_args args[3];
    struct call calls[3];
    fill_eighths(&x, 5);
    for (int i = 0; i < 3; i++) {
      w[i] = make(65, 130);
      y[i] = make(257, 65);
      fill_eighths(&w[i], 2 + i);
      args[i] = call_of(&calls[i], &x, false, &w[i], true, &y[i], false);
    }
    setenv("GPUDAYS_GEMM_GROUP", cases[s].group, 1);
    setenv("GPUDAYS_TF32_EMULATED", cases[s].emulated, 1);
    assert_int_equal(cuda_ops_gemms(args, 3), cases[s].grouped);
    for (int i = 0; i < 3; i++) {
      if (cases[s].grouped)
        expect(&x, false, &w[i], true, NULL, &y[i]);
      gd_mem_free(w[i].block);
      gd_mem_free(y[i].block);
    }
    gd_mem_free(x.block);
  }
  unsetenv("GPUDAYS_GEMM_GROUP");
  unsetenv("GPUDAYS_TF32_EMULATED");
}

int main(int argc, char **argv) {
  struct gd_error why = {0};
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_small),
      cmocka_unit_test(test_pieces),
      cmocka_unit_test(test_gradients_together),
      cmocka_unit_test(test_three_together),
      cmocka_unit_test(test_group_switch),
      cmocka_unit_test(test_odd_data),
      cmocka_unit_test(test_errors),
  };
  if (!cuda_ops_open(&why)) {
    printf("skipped: %s\n", why.text);
    return 77;
  }
  if (argc > 1)
    cmocka_set_test_filter(argv[1]);
  int result = cmocka_run_group_tests(tests, NULL, NULL);
  cuda_ops_close();
  return result;
}
