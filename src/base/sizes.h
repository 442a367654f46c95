/*
 * Arithmetic of sizes: int64_t, not negative.
 */
#ifndef GD_BASE_SIZES_H
#define GD_BASE_SIZES_H

#include <stdint.h>

static inline int64_t gd_least(int64_t a, int64_t b) {
  return a < b ? a : b;
}

static inline int64_t gd_most(int64_t a, int64_t b) {
  return a > b ? a : b;
}

/* a / b, rounded up. */
static inline int64_t gd_div_up(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

/* The least multiple of b that is not below a. */
static inline int64_t gd_round_up(int64_t a, int64_t b) {
  return gd_div_up(a, b) * b;
}

#endif
