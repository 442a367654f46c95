/*
 * Element types: names, sizes and the exact 16-bit conversions every backend is tested against.
 */
#include "ir/dtype.h"

#include "base/status.h"

static const struct {
  const char *name;
  int64_t bytes;
} dtypes[GD_DTYPE_COUNT] = {
    [GD_DTYPE_F32] = {"f32", 4},
    [GD_DTYPE_BF16] = {"bf16", 2},
    [GD_DTYPE_F16] = {"f16", 2},
    [GD_DTYPE_I32] = {"i32", 4},
};

int64_t gd_dtype_bytes(enum gd_dtype dtype) {
  GD_ASSERT(dtype < GD_DTYPE_COUNT);
  return dtypes[dtype].bytes;
}

const char *gd_dtype_name(enum gd_dtype dtype) {
  GD_ASSERT(dtype < GD_DTYPE_COUNT);
  return dtypes[dtype].name;
}

bool gd_dtype_parse(const char *text, enum gd_dtype *dtype) {
  static const struct {
    const char *text;
    enum gd_dtype dtype;
  } spellings[] = {
      {"f32", GD_DTYPE_F32},   {"fp32", GD_DTYPE_F32},      {"float32", GD_DTYPE_F32},
      {"bf16", GD_DTYPE_BF16}, {"bfloat16", GD_DTYPE_BF16}, {"f16", GD_DTYPE_F16},
      {"fp16", GD_DTYPE_F16},  {"float16", GD_DTYPE_F16},   {"i32", GD_DTYPE_I32},
      {"int32", GD_DTYPE_I32},
  };
  for (size_t i = 0; i < sizeof spellings / sizeof *spellings; i++)
    if (strcmp(text, spellings[i].text) == 0) {
      *dtype = spellings[i].dtype;
      return true;
    }
  return false;
}

float gd_f16_to_f32(uint16_t fp16) {
  uint32_t sign = (uint32_t)(fp16 & 0x8000u) << 16;
  uint32_t exponent = (fp16 >> 10) & 0x1fu;
  uint32_t mantissa = fp16 & 0x3ffu;
  float value;
  if (exponent == 0) { /* zero or subnormal: mantissa * 2^-24, exact in fp32 */
    value = (float)mantissa * 0x1p-24f;
    return sign ? -value : value;
  }
  uint32_t bits = exponent == 31 ? sign | 0x7f800000u | mantissa << 13
                                 : sign | (exponent + 112) << 23 | mantissa << 13;
  memcpy(&value, &bits, sizeof value);
  return value;
}

uint16_t gd_f32_to_f16(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  uint32_t sign = (bits >> 16) & 0x8000u;
  uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u)
    return (uint16_t)(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  if (magnitude >= 0x477ff000u) /* 65520 and above round to infinity */
    return (uint16_t)(sign | 0x7c00u);
  if (magnitude < 0x38800000u) { /* below 2^-14: subnormal, in units of 2^-24 */
    uint32_t shift = 126u - (magnitude >> 23);
    if (shift > 24)
      return (uint16_t)sign;
    uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
    uint32_t units = mantissa >> shift;
    uint32_t rest = mantissa & ((1u << shift) - 1u);
    uint32_t middle = 1u << (shift - 1);
    if (rest > middle || (rest == middle && (units & 1u)))
      units++;
    return (uint16_t)(sign | units);
  }
  uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
  return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

float gd_dtype_load(enum gd_dtype dtype, const void *data, int64_t i) {
  switch (dtype) {
  case GD_DTYPE_F32: return ((const float *)data)[i];
  case GD_DTYPE_BF16: return gd_bf16_to_f32(((const uint16_t *)data)[i]);
  case GD_DTYPE_F16: return gd_f16_to_f32(((const uint16_t *)data)[i]);
  case GD_DTYPE_I32: return (float)((const int32_t *)data)[i];
  case GD_DTYPE_COUNT: break;
  }
  GD_ASSERT(!"dtype");
  return 0;
}

void gd_dtype_store(enum gd_dtype dtype, void *data, int64_t i, float value) {
  switch (dtype) {
  case GD_DTYPE_F32: ((float *)data)[i] = value; return;
  case GD_DTYPE_BF16: ((uint16_t *)data)[i] = gd_f32_to_bf16(value); return;
  case GD_DTYPE_F16: ((uint16_t *)data)[i] = gd_f32_to_f16(value); return;
  case GD_DTYPE_I32: ((int32_t *)data)[i] = (int32_t)value; return;
  case GD_DTYPE_COUNT: break;
  }
  GD_ASSERT(!"dtype");
}
