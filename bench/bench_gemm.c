/*
 * Speed and self-check of the CPU's GEMM (src/backend/cpu/gemm.h), stand-alone.
 *
 *   bench_gemm [--isa NAME] [--dtype f32|bf16|f16] [--threads N] [--filter TEXT] [--batch LIST]
 *              [--seconds S]    (LIST: sequences of 2,049 tokens, such as 1,2,4; S: per GEMM)
 *   bench_gemm --check     compares every level this CPU has with a loop in double precision
 *
 * The table: shape, dtype, level, GFLOP/s (median of several timed runs after a warm-up) and the
 * share of the peak of the same instruction in registers. Every timed GEMM is spot-checked
 * against a sum in double precision, and the row says "WRONG" where it differs.
 */
#define _POSIX_C_SOURCE 200809L
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/gemm.h"

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *allocate(int64_t bytes) {
  void *block = aligned_alloc(64, ((size_t)bytes + 127) / 64 * 64);
  if (!block) {
    fprintf(stderr, "bench_gemm: %lld bytes do not fit in memory\n", (long long)bytes);
    exit(3);
  }
  return block;
}

/* Values in [-1, 1) that fp32 holds exactly; the same for the same seed. */
static void fill(enum gd_dtype dtype, void *data, int64_t count, uint32_t seed) {
#pragma omp parallel for if (count > 100000)
  for (int64_t i = 0; i < count; i++) {
    uint32_t x = (uint32_t)i * 2654435761u + seed * 40503u + 12345u;
    x ^= x >> 15;
    x *= 2246822519u;
    x ^= x >> 13;
    gd_dtype_store(dtype, data, i, (float)((int32_t)(x >> 8) - (1 << 23)) * 0x1p-23f);
  }
}

/* One element of op(A) * op(B) in double, and the sum of magnitudes that its error scales with. */
static double exact(const struct gd_gemm *g, const void *a, const void *b, int64_t item, int64_t i,
                    int64_t j, double *magnitude) {
  double sum = 0;
  *magnitude = 0;
  for (int64_t k = 0; k < g->k; k++) {
    int64_t at_a = item * g->stride_a + (g->trans_a ? k * g->lda + i : i * g->lda + k);
    int64_t at_b = item * g->stride_b + (g->trans_b ? j * g->ldb + k : k * g->ldb + j);
    double term =
        (double)gd_dtype_load(g->dtype_a, a, at_a) * (double)gd_dtype_load(g->dtype_b, b, at_b);
    sum += term;
    *magnitude += fabs(term);
  }
  return sum;
}

/* Largest share of the output's rounding plus the sum's: fp32 sums of k terms, then one rounding.
 */
static bool close_enough(enum gd_dtype dtype, double value, double expected, double magnitude,
                         int64_t k) {
  double rounding = dtype == GD_DTYPE_F32 ? 0x1p-23 : dtype == GD_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
  double bound = rounding * fabs(expected) + 0x1p-23 * (4 + sqrt((double)k)) * magnitude + 1e-7;
  return isfinite(value) && fabs(value - expected) <= bound;
}

struct shape {
  const char *name;
  int64_t m, n, k, batch;
  bool trans_a, trans_b;
};

/* The GEMMs of pythia-160m (hidden 768, 12 heads of 64, vocabulary 50,304) on `items` sequences
 * of 2,049 tokens: y = x W^T, dx = dy W, dW = dy^T x, and the attention's. */
static int pythia_shapes(struct shape *shapes, int64_t items) {
  int64_t rows = 2049 * items, heads = 12 * items, count = 0;
  static const struct {
    const char *forward, *backward, *weight;
    int64_t out, in;
  } layers[] = {
      {"qkv", "qkv dx", "qkv dW", 2304, 768},        {"proj", "proj dx", "proj dW", 768, 768},
      {"mlp up", "up dx", "up dW", 3072, 768},       {"mlp down", "down dx", "down dW", 768, 3072},
      {"lm head", "head dx", "head dW", 50304, 768},
  };
  for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
    int64_t out = layers[i].out, in = layers[i].in;
    shapes[count++] = (struct shape){layers[i].forward, rows, out, in, 1, false, true};
    shapes[count++] = (struct shape){layers[i].backward, rows, in, out, 1, false, false};
    shapes[count++] = (struct shape){layers[i].weight, out, in, rows, 1, true, false};
  }
  shapes[count++] = (struct shape){"q k^T", 2049, 2049, 64, heads, false, true};
  shapes[count++] = (struct shape){"p v", 2049, 64, 2049, heads, false, false};
  shapes[count++] = (struct shape){"p^T dy", 2049, 64, 2049, heads, true, false};
  return (int)count;
}

static int compare_doubles(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static struct gd_gemm describe(const struct shape *s, enum gd_dtype dtype) {
  return (struct gd_gemm){.m = s->m,
                          .n = s->n,
                          .k = s->k,
                          .batch = s->batch,
                          .trans_a = s->trans_a,
                          .trans_b = s->trans_b,
                          .lda = s->trans_a ? s->m : s->k,
                          .ldb = s->trans_b ? s->k : s->n,
                          .ldc = s->n,
                          .stride_a = s->m * s->k,
                          .stride_b = s->k * s->n,
                          .stride_c = s->m * s->n,
                          .dtype_a = dtype,
                          .dtype_b = dtype,
                          .dtype_c = dtype,
                          .alpha = 1};
}

static void bench_shape(const struct shape *s, enum gd_dtype dtype, enum gd_isa isa, int threads,
                        double peak_flops, double enough_s, void *workspace) {
  enum { SAMPLES_MIN = 3, SAMPLES_MAX = 9 };
  struct gd_gemm g = describe(s, dtype);
  int64_t bytes = gd_dtype_bytes(dtype);
  void *a = allocate(s->batch * g.stride_a * bytes), *b = allocate(s->batch * g.stride_b * bytes);
  void *c = allocate(s->batch * g.stride_c * bytes);
  fill(dtype, a, s->batch * g.stride_a, 1);
  fill(dtype, b, s->batch * g.stride_b, 2);

  double samples_s[SAMPLES_MAX], total_s = 0;
  int samples = 0;
  gd_gemm_run_isa(&g, a, b, NULL, c, workspace, threads, isa);
  while (samples < SAMPLES_MIN || (samples < SAMPLES_MAX && total_s < enough_s)) {
    double begin_s = now_s();
    gd_gemm_run_isa(&g, a, b, NULL, c, workspace, threads, isa);
    samples_s[samples] = now_s() - begin_s;
    total_s += samples_s[samples++];
  }
  qsort(samples_s, (size_t)samples, sizeof *samples_s, compare_doubles);
  double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k * (double)s->batch;
  double median = flops / samples_s[samples / 2], best = flops / samples_s[0];

  bool right = true;
  for (int probe = 0; probe < 16; probe++) {
    int64_t item = probe % s->batch;
    int64_t i = probe % 4 == 0 ? s->m - 1 : probe * 7919 % s->m;
    int64_t j = probe % 3 == 0 ? s->n - 1 : probe * 104729 % s->n;
    double magnitude, expected = exact(&g, a, b, item, i, j, &magnitude);
    double value = (double)gd_dtype_load(dtype, c, item * g.stride_c + i * g.ldc + j);
    right = right && close_enough(dtype, value, expected, magnitude, s->k);
  }
  printf("%-9s %5lld x %5lld x %5lld x%3lld %c%c  %-4s %-11s %8.1f %8.1f %6.1f %%%s\n", s->name,
         (long long)s->m, (long long)s->n, (long long)s->k, (long long)s->batch,
         s->trans_a ? 'T' : 'N', s->trans_b ? 'T' : 'N', gd_dtype_name(dtype), gd_isa_name(isa),
         1e-9 * median, 1e-9 * best, 100 * median / peak_flops, right ? "" : "  WRONG");
  fflush(stdout);
  free(a);
  free(b);
  free(c);
}

/* The whole of op(A) * op(B) in double, into sums and magnitudes of [batch][m][n]. */
static void exact_all(const struct gd_gemm *g, const void *a, const void *b, double *sums,
                      double *magnitudes) {
#pragma omp parallel for
  for (int64_t i = 0; i < g->batch * g->m; i++)
    for (int64_t j = 0; j < g->n; j++)
      sums[i * g->n + j] = exact(g, a, b, i / g->m, i % g->m, j, &magnitudes[i * g->n + j]);
}

/* One GEMM against its exact sums, every element, and what lies between rows; true if it agrees.
 */
static bool check_one(const struct gd_gemm *g, const void *a, const void *b, const float *bias,
                      const double *sums, const double *magnitudes, enum gd_isa isa, int threads,
                      void *workspace) {
  int64_t bytes = g->batch * g->stride_c * gd_dtype_bytes(g->dtype_c);
  void *c = allocate(bytes), *old = allocate(bytes);
  fill(g->dtype_c, old, g->batch * g->stride_c, 5);
  memcpy(c, old, (size_t)bytes);
  gd_gemm_run_isa(g, a, b, bias, c, workspace, threads, isa);
  bool right = true;
  for (int64_t i = 0; i < g->batch * g->m; i++)
    for (int64_t j = 0; j < g->ldc; j++) {
      double before = (double)gd_dtype_load(g->dtype_c, old, i * g->ldc + j);
      double value = (double)gd_dtype_load(g->dtype_c, c, i * g->ldc + j);
      if (j >= g->n) {
        right = right && value == before;
        continue;
      }
      double expected = (double)g->alpha * sums[i * g->n + j] + (bias ? (double)bias[j] : 0.0) +
                        (g->accumulate ? before : 0.0);
      right =
          right && close_enough(g->dtype_c, value, expected, magnitudes[i * g->n + j] + 2, g->k);
    }
  free(c);
  free(old);
  return right;
}

/* Every level, dtype, transpose, output dtype, accumulation and bias over odd shapes. */
static int check(int threads, void *workspace) {
  static const int64_t shapes[][3] = {
      {1, 1, 1},    {1, 17, 33},   {2, 3, 5},      {15, 16, 31},  {16, 15, 32},   {17, 33, 2},
      {31, 65, 64}, {33, 31, 127}, {63, 129, 100}, {65, 1, 300},  {129, 63, 17},  {5, 200, 0},
      {40, 48, 70}, {70, 47, 513}, {97, 577, 65},  {600, 70, 50}, {150, 70, 1100}};
  static const enum gd_dtype dtypes[] = {GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16};
  int wrong[GD_ISA_COUNT] = {0}, done[GD_ISA_COUNT] = {0};
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    for (int bits = 0; bits < 12; bits++) {
      enum gd_dtype dtype = dtypes[bits / 4];
      struct shape shape = {"",       shapes[s][0], shapes[s][1], shapes[s][2], s % 4 == 1 ? 3 : 1,
                            bits & 1, bits & 2};
      struct gd_gemm g = describe(&shape, dtype);
      g.lda += (int64_t)s % 3;
      g.ldb += (int64_t)s % 2;
      g.ldc += 3;
      g.stride_a = (g.trans_a ? g.k : g.m) * g.lda;
      g.stride_b = (g.trans_b ? g.n : g.k) * g.ldb;
      g.stride_c = g.m * g.ldc;
      int64_t bytes = gd_dtype_bytes(dtype), count = g.batch * g.m * g.n;
      void *a = allocate(g.batch * g.stride_a * bytes), *b = allocate(g.batch * g.stride_b * bytes);
      float *bias = allocate(g.n * 4);
      double *sums = allocate(count * 8), *magnitudes = allocate(count * 8);
      fill(dtype, a, g.batch * g.stride_a, 3);
      fill(dtype, b, g.batch * g.stride_b, 4);
      fill(GD_DTYPE_F32, bias, g.n, 6);
      exact_all(&g, a, b, sums, magnitudes);
      for (enum gd_isa isa = GD_ISA_PLAIN; isa <= gd_isa_detect(); isa++)
        for (int output = 0; output < 12; output++) {
          g.dtype_c = dtypes[output / 4];
          g.accumulate = output & 1;
          g.alpha = g.accumulate ? 0.5f : 1.0f;
          bool with_bias = output & 2;
          done[isa]++;
          if (check_one(&g, a, b, with_bias ? bias : NULL, sums, magnitudes, isa, threads,
                        workspace))
            continue;
          if (++wrong[isa] <= 5)
            printf("WRONG: %s %s -> %s, %lld x %lld x %lld, trans %d %d, accumulate %d, bias %d\n",
                   gd_isa_name(isa), gd_dtype_name(dtype), gd_dtype_name(g.dtype_c), (long long)g.m,
                   (long long)g.n, (long long)g.k, g.trans_a, g.trans_b, g.accumulate, with_bias);
        }
      free(a);
      free(b);
      free(bias);
      free(sums);
      free(magnitudes);
    }
  int all_wrong = 0;
  for (enum gd_isa isa = GD_ISA_PLAIN; isa <= gd_isa_detect(); isa++) {
    printf("check %-11s %d threads: %d GEMMs, %d wrong\n", gd_isa_name(isa), threads, done[isa],
           wrong[isa]);
    all_wrong += wrong[isa];
  }
  return all_wrong ? 1 : 0;
}

int main(int argc, char **argv) {
  int threads = omp_get_max_threads();
  bool only_check = false;
  double seconds = 1;
  const char *filter = "", *isa_name = NULL, *dtype_name = NULL, *items = "1";
  for (int i = 1; i < argc; i++) {
    bool more = i + 1 < argc;
    if (strcmp(argv[i], "--check") == 0)
      only_check = true;
    else if (strcmp(argv[i], "--threads") == 0 && more)
      threads = (int)strtol(argv[++i], NULL, 10);
    else if (strcmp(argv[i], "--filter") == 0 && more)
      filter = argv[++i];
    else if (strcmp(argv[i], "--isa") == 0 && more)
      isa_name = argv[++i];
    else if (strcmp(argv[i], "--dtype") == 0 && more)
      dtype_name = argv[++i];
    else if (strcmp(argv[i], "--batch") == 0 && more)
      items = argv[++i];
    else if (strcmp(argv[i], "--seconds") == 0 && more)
      seconds = strtod(argv[++i], NULL);
    else {
      fprintf(stderr, "bench_gemm: unknown option '%s'; see the top of bench_gemm.c\n", argv[i]);
      return 2;
    }
  }
  if (threads < 1)
    threads = 1;
  void *workspace = allocate(gd_gemm_workspace_bytes(threads));
  if (only_check)
    return check(threads, workspace);

  printf("best level: %s; %d threads\n", gd_isa_name(gd_isa_detect()), threads);
  printf("%-38s %-4s %-11s %8s %8s %8s\n", "GEMM        m       n       k  batch", "type", "level",
         "GFLOP/s", "best", "of peak");
  static const enum gd_dtype dtypes[] = {GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16};
  for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
    if (dtype_name ? strcmp(dtype_name, gd_dtype_name(dtypes[d])) != 0 : dtypes[d] == GD_DTYPE_F16)
      continue;
    for (enum gd_isa isa = GD_ISA_PLAIN; isa <= gd_isa_detect(); isa++) {
      if (isa_name ? strcmp(isa_name, gd_isa_name(isa)) != 0 : isa != gd_isa_detect())
        continue;
      double peak_flops = gd_isa_peak_flops(dtypes[d], threads, isa);
      printf("register peak %s %s: %.1f GFLOP/s\n", gd_dtype_name(dtypes[d]), gd_isa_name(isa),
             1e-9 * peak_flops);
      struct shape shapes[32] = {{"square", 4096, 4096, 4096, 1, false, false},
                                 {"square", 4096, 4096, 4096, 1, false, true},
                                 {"square", 4096, 4096, 4096, 1, true, false}};
      for (int i = 0; i < 3; i++)
        if (strstr(shapes[i].name, filter))
          bench_shape(&shapes[i], dtypes[d], isa, threads, peak_flops, seconds, workspace);
      for (const char *at = items; *at; at += strcspn(at, "0123456789")) {
        char *end;
        int count = pythia_shapes(shapes, strtol(at, &end, 10));
        at = end;
        for (int i = 0; i < count; i++)
          if (strstr(shapes[i].name, filter))
            bench_shape(&shapes[i], dtypes[d], isa, threads, peak_flops, seconds, workspace);
      }
    }
  }
  free(workspace);
  return 0;
}
