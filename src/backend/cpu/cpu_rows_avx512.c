/*
 * The loops of cpu_rows.inc for AVX-512 F, BW, DQ and VL: vectors of sixteen floats.
 *
 * The pragmas compile everything between them for that instruction set; headers come before, so
 * that their inline functions stay usable on any CPU.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"

#if defined(__x86_64__)

#include <immintrin.h>

#if defined(__clang__)
#pragma clang attribute push(                                                    \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")
#endif

#define GD_LANES    16
#define GD_HAS_BF16 0
#define GD_CPU_ROWS gd_cpu_rows_avx512
#include "backend/cpu/cpu_rows.inc"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
