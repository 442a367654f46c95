/*
 * CPU detection and the peak probe. Kernels that use the answers are in gemm_kernels_*.c.
 *
 * Sources for bits and numbers: Intel 64 and IA-32 Software Developer's Manual, CPUID leaf 1 and
 * leaf 7, and XCR0 (vol. 1, 13.3); Linux Documentation/arch/x86/xstate.rst for ARCH_REQ_XCOMP_PERM.
 */
#define _GNU_SOURCE /* syscall */
#include "backend/cpu/isa.h"

#include <omp.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "backend/cpu/gemm_int.h"
#include "base/switches.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

const char *gd_isa_name(enum gd_isa isa) {
  static const char *const names[GD_ISA_COUNT] = {
      [GD_ISA_PLAIN] = "plain",   [GD_ISA_AVX2] = "avx2",
      [GD_ISA_AVX512] = "avx512", [GD_ISA_AVX512_BF16] = "avx512_bf16",
      [GD_ISA_AMX] = "amx",
  };
  GD_ASSERT(isa < GD_ISA_COUNT);
  return names[isa];
}

#if defined(__x86_64__)

/* XCR0: the register state the operating system saves and restores on a context switch. */
static uint64_t saved_states(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (uint64_t)high << 32 | low;
}

/* Linux hands out the 8 KiB tile state on request only; without it the first tile load is SIGILL.
 */
static bool tile_permission(void) {
  enum { ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18 };
  return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
}

static enum gd_isa detect(void) {
  enum {
    LEAF1_ECX_NEED = 1 << 12 | 1 << 27 | 1 << 28 | 1 << 29, /* FMA, OSXSAVE, AVX, F16C */
    LEAF7_EBX_AVX2 = 1 << 5,
    LEAF7_EBX_AVX512 = 1 << 16 | 1 << 17 | 1 << 30, /* F, DQ, BW; VL is the sign bit */
    LEAF7_EDX_AMX = 1 << 22 | 1 << 24,              /* AMX-BF16, AMX-TILE */
    LEAF7_1_EAX_BF16 = 1 << 5,
    XCR0_AVX = 0x6,       /* SSE, AVX */
    XCR0_AVX512 = 0xe0,   /* mask registers, upper halves, registers 16-31 */
    XCR0_TILES = 3 << 17, /* tile configuration, tile data */
  };
  uint32_t eax, ebx, ecx, edx;
  if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx) || (ecx & LEAF1_ECX_NEED) != LEAF1_ECX_NEED)
    return GD_ISA_PLAIN;
  uint64_t saved = saved_states();
  if ((saved & XCR0_AVX) != XCR0_AVX || !__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) ||
      !(ebx & LEAF7_EBX_AVX2))
    return GD_ISA_PLAIN;
  bool avx512 = (ebx & LEAF7_EBX_AVX512) == LEAF7_EBX_AVX512 && (ebx >> 31) != 0;
  bool amx = (edx & LEAF7_EDX_AMX) == LEAF7_EDX_AMX;
  if (!avx512 || (saved & XCR0_AVX512) != XCR0_AVX512)
    return GD_ISA_AVX2;
  if (eax < 1 || !__get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) || !(eax & LEAF7_1_EAX_BF16))
    return GD_ISA_AVX512;
  if (!amx || (saved & XCR0_TILES) != XCR0_TILES || !tile_permission())
    return GD_ISA_AVX512_BF16;
  return GD_ISA_AMX;
}

#else

static enum gd_isa detect(void) {
  return GD_ISA_PLAIN;
}

#endif

/* GD_ISA_COUNT: none is. */
static enum gd_isa demanded(void) {
  const char *name = gd_env("GPUDAYS_ISA");
  int isa = GD_ISA_PLAIN;
  while (isa < GD_ISA_COUNT && !(name && strcmp(name, gd_isa_name((enum gd_isa)isa)) == 0))
    isa++;
  return (enum gd_isa)isa;
}

enum gd_status gd_isa_check(struct gd_error *err) {
  enum gd_isa isa = gd_isa_detect(), wanted = demanded();
  if (wanted == GD_ISA_COUNT || wanted == isa)
    return GD_OK;
  return gd_fail(err, GD_ENVIRONMENT, "GPUDAYS_ISA=%s cannot be had: this CPU has %s at most",
                 gd_isa_name(wanted), gd_isa_name(isa));
}

enum gd_isa gd_isa_detect(void) {
  /* A fact of the machine, asked once: CPUID leaves a virtual machine, far slower than a small
   * GEMM.
   */
  static _Atomic int known = -1;
  int isa = atomic_load_explicit(&known, memory_order_relaxed);
  if (isa < 0) {
    isa = (int)detect();
    if ((int)demanded() < isa)
      isa = (int)demanded();
    atomic_store_explicit(&known, isa, memory_order_relaxed);
  }
  return (enum gd_isa)isa;
}

/*
 * One probe runs `rounds` rounds of independent multiply-adds and returns the FLOPs of one round.
 * acc = acc * 1/2 + 1/2 tends to one: nothing overflows, turns subnormal, or can be hoisted out of
 * the loop. The chains are enough to hide the latency, and start differently, or the compiler would
 * see that they are one; *sink keeps the results alive.
 */

static double probe_plain(int64_t rounds, float *sink) {
  enum { CHAINS = 12 };
  gd_f32x4 acc[CHAINS];
  for (int i = 0; i < CHAINS; i++)
    acc[i] = (gd_f32x4){(float)i};
  const gd_f32x4 half = {0.5f, 0.5f, 0.5f, 0.5f};
  for (int64_t r = 0; r < rounds; r++) {
    GD_UNROLL
    for (int i = 0; i < CHAINS; i++)
      acc[i] = acc[i] * half + half;
  }
  for (int i = 0; i < CHAINS; i++)
    *sink += acc[i][0];
  return CHAINS * 4 * 2.0;
}

#if defined(__x86_64__)

GD_TARGET_AVX2 static double probe_avx2(int64_t rounds, float *sink) {
  enum { CHAINS = 12 };
  __m256 acc[CHAINS];
  const __m256 half = _mm256_set1_ps(0.5f);
  GD_UNROLL
  for (int i = 0; i < CHAINS; i++)
    acc[i] = _mm256_set1_ps((float)i);
  for (int64_t r = 0; r < rounds; r++) {
    GD_UNROLL
    for (int i = 0; i < CHAINS; i++)
      acc[i] = _mm256_fmadd_ps(acc[i], half, half);
  }
  GD_UNROLL
  for (int i = 0; i < CHAINS; i++)
    *sink += _mm256_cvtss_f32(acc[i]);
  return CHAINS * 8 * 2.0;
}

GD_TARGET_AVX512 static double probe_avx512(int64_t rounds, float *sink) {
  enum { CHAINS = 24 };
  __m512 acc[CHAINS];
  const __m512 half = _mm512_set1_ps(0.5f);
  GD_UNROLL
  for (int i = 0; i < CHAINS; i++)
    acc[i] = _mm512_set1_ps((float)i);
  for (int64_t r = 0; r < rounds; r++) {
    GD_UNROLL
    for (int i = 0; i < CHAINS; i++)
      acc[i] = _mm512_fmadd_ps(acc[i], half, half);
  }
  GD_UNROLL
  for (int i = 0; i < CHAINS; i++)
    *sink += _mm512_cvtss_f32(acc[i]);
  return CHAINS * 16 * 2.0;
}

GD_TARGET_AVX512_BF16 static double probe_avx512_bf16(int64_t rounds, float *sink) {
  enum { CHAINS = 24 };
  __m512 acc[CHAINS];
  const __m512bh small = (__m512bh)_mm512_set1_epi16(0x3a80); /* 2^-10 */
  GD_UNROLL
  for (int i = 0; i < CHAINS; i++)
    acc[i] = _mm512_set1_ps((float)i);
  for (int64_t r = 0; r < rounds; r++) {
    GD_UNROLL
    for (int i = 0; i < CHAINS; i++)
      acc[i] = _mm512_dpbf16_ps(acc[i], small, small);
  }
  GD_UNROLL
  for (int i = 0; i < CHAINS; i++)
    *sink += _mm512_cvtss_f32(acc[i]);
  return CHAINS * 32 * 2.0;
}

/* The 2 x 2 tiles of C of the AMX kernel, the operand tiles loaded once. */
GD_TARGET_AMX static double probe_amx(int64_t rounds, float *sink) {
  _Alignas(64) uint16_t small[16 * 32];
  _Alignas(64) float out[16 * 16];
  for (int i = 0; i < 16 * 32; i++)
    small[i] = 0x3a80; /* 2^-10 */
  gd_gemm_amx_begin();
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  __asm__ volatile("" ::: "memory"); /* gcc's tile loads do not say that they read memory */
  _tile_loadd(4, small, 64);
  _tile_loadd(5, small, 64);
  _tile_loadd(6, small, 64);
  _tile_loadd(7, small, 64);
  for (int64_t r = 0; r < rounds; r++) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, out, 64);
  *sink += out[0];
  gd_gemm_amx_end();
  return 4 * 16 * 16 * 32 * 2.0;
}

#endif

static double probe(enum gd_dtype dtype, enum gd_isa isa, int64_t rounds, float *sink) {
#if defined(__x86_64__)
  if (dtype == GD_DTYPE_BF16 && isa == GD_ISA_AMX)
    return probe_amx(rounds, sink);
  if (dtype == GD_DTYPE_BF16 && isa == GD_ISA_AVX512_BF16)
    return probe_avx512_bf16(rounds, sink);
  if (isa >= GD_ISA_AVX512)
    return probe_avx512(rounds, sink);
  if (isa == GD_ISA_AVX2)
    return probe_avx2(rounds, sink);
#endif
  (void)dtype, (void)isa;
  return probe_plain(rounds, sink);
}

static double now_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* How many rounds take a thread about this long. Found by doubling, which also raises the clock. */
static int64_t calibrate_rounds(enum gd_dtype dtype, enum gd_isa isa, double slice_s, float *sink) {
  int64_t rounds = 1000;
  for (;;) {
    double begin_s = now_s();
    probe(dtype, isa, rounds, sink);
    double elapsed_s = now_s() - begin_s;
    if (elapsed_s >= slice_s / 2)
      return (int64_t)((double)rounds * slice_s / elapsed_s) + 1;
    rounds *= 2;
  }
}

double gd_isa_peak_flops(enum gd_dtype dtype, int threads, enum gd_isa isa) {
  GD_ASSERT(isa <= gd_isa_detect() && threads > 0);
  enum { RUNS = 3 };
  const double run_s = 0.030, slice_s = 0.001;
  double best_flops_per_s = 0;
  for (int run = 0; run < RUNS; run++) {
    double flops_per_s = 0; /* sum of the threads' best slices */
#pragma omp parallel num_threads(threads) reduction(+ : flops_per_s)
    {
      float sink = 0;
      int64_t rounds = calibrate_rounds(dtype, isa, slice_s, &sink);
      double thread_best = 0;
#pragma omp barrier
      double begin_s = now_s(), end_s = begin_s;
      while (end_s - begin_s < run_s) {
        double slice_begin_s = now_s();
        double flops = (double)rounds * probe(dtype, isa, rounds, &sink);
        end_s = now_s();
        if (flops > thread_best * (end_s - slice_begin_s))
          thread_best = flops / (end_s - slice_begin_s);
      }
      flops_per_s += thread_best;
      __asm__ volatile("" : : "m"(sink)); /* the results are used */
    }
    int processors = omp_get_num_procs();
    if (threads > processors)
      flops_per_s *= (double)processors / threads;
    if (flops_per_s > best_flops_per_s)
      best_flops_per_s = flops_per_s;
  }
  return best_flops_per_s;
}
