/*
 * The loops of cpu_rows.inc for AVX-512 with the instruction that rounds to bf16.
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
#pragma clang attribute push(                                                               \
    __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16"))), \
    apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")
#endif

#define GD_LANES    16
#define GD_HAS_BF16 1
#define GD_CPU_ROWS gd_cpu_rows_avx512_bf16
#include "backend/cpu/cpu_rows.inc"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
