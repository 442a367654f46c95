/*
 * Element types. Storage only: every kernel computes in fp32 (ref: double) and converts at the
 * edges, so a dtype is a size and two conversions.
 */
#ifndef GD_IR_DTYPE_H
#define GD_IR_DTYPE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

enum gd_dtype { GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16, GD_DTYPE_I32, GD_DTYPE_COUNT };

int64_t gd_dtype_bytes(enum gd_dtype dtype);
const char *gd_dtype_name(enum gd_dtype dtype); /* "f32", "bf16", "f16", "i32" */
/* Accepts f32, fp32, float32, bf16, bfloat16, f16, fp16, float16, i32, int32. */
bool gd_dtype_parse(const char *text, enum gd_dtype *dtype);

static inline float gd_bf16_to_f32(uint16_t bf16) {
  uint32_t bits = (uint32_t)bf16 << 16;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

/* Round to nearest even; NaN stays NaN (quiet), infinity stays infinity. */
static inline uint16_t gd_f32_to_bf16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return (uint16_t)((bits >> 16) | 0x40u);
  return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

/* IEEE fp16, subnormals included, round to nearest even. */
float gd_f16_to_f32(uint16_t fp16);
uint16_t gd_f32_to_f16(float value);

/* Element i of a floating-point array of any dtype (I32 included, exact up to 2^24 as float). */
float gd_dtype_load(enum gd_dtype dtype, const void *data, int64_t i);
void gd_dtype_store(enum gd_dtype dtype, void *data, int64_t i, float value);

#endif
