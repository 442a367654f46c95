/*
 * What this CPU can multiply with, found out at run time, and how fast it can at the very best.
 *
 * The build has no -march flag: every fast path is compiled for its instruction set by a function
 * attribute and is chosen here. The levels are ordered, each one includes those before it, so
 * "at most AVX2" is a comparison. On anything but x86-64 the answer is GD_ISA_PLAIN.
 */
#ifndef GD_BACKEND_CPU_ISA_H
#define GD_BACKEND_CPU_ISA_H

#include "base/status.h"
#include "ir/dtype.h"

enum gd_isa {
  GD_ISA_PLAIN,       /* C with 16-byte vectors: any CPU */
  GD_ISA_AVX2,        /* AVX2 + FMA + F16C */
  GD_ISA_AVX512,      /* AVX-512 F, BW, DQ, VL */
  GD_ISA_AVX512_BF16, /* + VDPBF16PS */
  GD_ISA_AMX,         /* + AMX tiles with bf16, and the kernel's permission to use them */
  GD_ISA_COUNT
};

/*
 * The best level of this CPU that its operating system also supports, or the one below it that
 * GPUDAYS_ISA demands. The first call asks Linux for the AMX tile state (once per process, for all
 * its threads); the answer never changes after that.
 */
enum gd_isa gd_isa_detect(void);

/* GD_ENVIRONMENT where GPUDAYS_ISA demands a level that this CPU lacks. */
enum gd_status gd_isa_check(struct gd_error *err) GD_MUST_USE;

const char *gd_isa_name(enum gd_isa isa); /* "plain", "avx2", "avx512", "avx512_bf16", "amx" */

/*
 * Attainable FLOP/s of GEMMs over this dtype with this level on so many threads: a loop
 * of the best multiply-add the kernels of gemm.h would use, in registers only, on all threads at
 * once. The best of three runs of about 30 ms, and in a run each thread's best millisecond, so that
 * what else the machine does meanwhile costs little. Threads beyond the processors add nothing. f16
 * (and bf16 where no instruction multiplies it) is computed in fp32 and has the fp32 peak. isa must
 * not be above gd_isa_detect(). Takes about 0.1 s.
 */
double gd_isa_peak_flops(enum gd_dtype dtype, int threads, enum gd_isa isa);

#endif
