/*
 * Division by a number that is known at launch: kernels that compute coordinates from an index
 * would spend more on dividing than on moving. gd_quotient of common.cuh divides.
 */
#ifndef GD_BACKEND_CUDA_RUNTIME_DIVIDE_H
#define GD_BACKEND_CUDA_RUNTIME_DIVIDE_H

#include <stdint.h>

#include "backend/cuda/kernels/args.cuh"
#include "base/status.h"

/* What is divided is less than this. */
#define GD_CUDA_DIVIDEND_LIMIT (INT64_C(1) << 31)

/*
 * With 2^(shift - 1) < d <= 2^shift, n / d = (n (2^32 + factor)) >> (32 + shift) for all n < 2^32
 * (Granlund, Montgomery, "Division by invariant integers using multiplication", PLDI 1994, theorem
 * 4.2); n < 2^31 keeps the sum in the kernel within 32 bits.
 */
static inline struct gd_divider gd_divider_of(int64_t divisor) {
  GD_ASSERT(divisor > 0 && divisor < GD_CUDA_DIVIDEND_LIMIT);
  uint64_t d = (uint64_t)divisor, power = 1;
  uint32_t shift = 0;
  for (; power < d; power *= 2)
    shift++;
  return (struct gd_divider){(uint32_t)d, (uint32_t)(((power - d) << 32) / d + 1), shift};
}

#endif
