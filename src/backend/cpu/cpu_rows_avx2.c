/*
 * The loops of cpu_rows.inc for AVX2 + FMA + F16C: vectors of eight floats.
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
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma,f16c")
#endif

#define GD_LANES    8
#define GD_CPU_ROWS gd_cpu_rows_avx2
#include "backend/cpu/cpu_rows.inc"

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

#endif
