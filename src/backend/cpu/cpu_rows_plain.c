/*
 * The loops of cpu_rows.inc for any CPU: vectors of four floats (SSE2 on x86-64, NEON on aarch64).
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"

#define GD_LANES    4
#define GD_CPU_ROWS gd_cpu_rows_plain
#include "backend/cpu/cpu_rows.inc"
