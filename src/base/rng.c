/*
 * Philox4x32 and what is drawn from it.
 */
#include "base/rng.h"

#include <math.h>

static void philox(uint64_t seed, uint64_t stream, uint64_t index, int rounds, uint32_t out[4]) {
  /* Multipliers and Weyl constants of the paper's Philox4x32. */
  const uint64_t multiply_0 = 0xD2511F53u, multiply_1 = 0xCD9E8D57u;
  uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32);
  uint32_t c2 = (uint32_t)stream, c3 = (uint32_t)(stream >> 32);
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
  for (int round = 0; round < rounds; round++) {
    uint64_t p0 = multiply_0 * c0, p1 = multiply_1 * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0;
  out[1] = c1;
  out[2] = c2;
  out[3] = c3;
}

void gd_rng_philox(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]) {
  philox(seed, stream, index, 10, out);
}

uint32_t gd_rng_dropout(uint64_t seed, uint64_t stream, uint64_t element) {
  uint32_t words[4];
  philox(seed, stream, element / 8, 7, words);
  return words[element % 8 / 2] >> element % 2 * 16 & 0xffff;
}

uint32_t gd_rng_dropout_threshold(double probability) {
  double threshold = floor(probability * 65536 + 0.5);
  return threshold > 65535 ? 65535 : threshold > 0 ? (uint32_t)threshold : 0;
}

double gd_rng_dropout_scale(double probability) {
  return 65536.0 / (65536.0 - (double)gd_rng_dropout_threshold(probability));
}

float gd_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index) {
  uint32_t words[4];
  gd_rng_philox(seed, stream, index, words);
  return (float)(words[0] >> 8) * 0x1p-24f;
}

int64_t gd_rng_below(uint64_t seed, uint64_t stream, uint64_t index, int64_t bound) {
  uint32_t words[4];
  gd_rng_philox(seed, stream, index, words);
  uint64_t wide = (uint64_t)words[0] << 32 | words[1];
  return (int64_t)(wide % (uint64_t)bound);
}

/* Fills elements first .. first + count, of which each counter makes four. */
static void fill_by_fours(uint64_t seed, uint64_t stream, int64_t first, float *out, int64_t count,
                          void (*make)(const uint32_t words[4], const double params[2],
                                       float values[4]),
                          const double params[2]) {
  int64_t groups = count > 0 ? (first + count - 1) / 4 - first / 4 + 1 : 0;
#pragma omp parallel for schedule(static)
  for (int64_t group = 0; group < groups; group++) {
    uint32_t words[4];
    float values[4];
    gd_rng_philox(seed, stream, (uint64_t)(first / 4 + group), words);
    make(words, params, values);
    for (int i = 0; i < 4; i++) {
      int64_t at = (first / 4 + group) * 4 + i - first;
      if (at >= 0 && at < count)
        out[at] = values[i];
    }
  }
}

/* Box-Muller: two pairs. */
static void make_normals(const uint32_t words[4], const double params[2], float values[4]) {
  for (int pair = 0; pair < 2; pair++) {
    double u = ((double)words[2 * pair] + 1.0) * 0x1p-32; /* (0, 1]: the logarithm is finite */
    double v = (double)words[2 * pair + 1] * 0x1p-32;
    double radius = sqrt(-2.0 * log(u)) * params[0];
    double angle = 6.283185307179586 * v;
    values[2 * pair] = (float)(radius * cos(angle));
    values[2 * pair + 1] = (float)(radius * sin(angle));
  }
}

static void make_uniforms(const uint32_t words[4], const double params[2], float values[4]) {
  for (int i = 0; i < 4; i++)
    values[i] = (float)(params[0] + (params[1] - params[0]) * (double)(words[i] >> 8) * 0x1p-24);
}

void gd_rng_normal(uint64_t seed, uint64_t stream, double deviation, int64_t first, float *out,
                   int64_t count) {
  fill_by_fours(seed, stream, first, out, count, make_normals, (double[]){deviation, 0});
}

void gd_rng_uniforms(uint64_t seed, uint64_t stream, double low, double high, int64_t first,
                     float *out, int64_t count) {
  fill_by_fours(seed, stream, first, out, count, make_uniforms, (double[]){low, high});
}

uint64_t gd_hash_string(const char *text) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (; *text; text++)
    hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
  return hash;
}
