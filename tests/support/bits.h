/*
 * A float and its bits, for tests that compare or count to the last of them.
 */
#ifndef GD_TESTS_SUPPORT_BITS_H
#define GD_TESTS_SUPPORT_BITS_H

#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static inline float float_of(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

#endif
