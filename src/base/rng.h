/*
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a
 * counter-based generator. Value i of stream s depends on (seed, s, i) alone, so initialisation,
 * recomputation and resharding draw the same numbers whatever the order or the thread.
 */
#ifndef GD_BASE_RNG_H
#define GD_BASE_RNG_H

#include <stdint.h>

/* Four 32-bit words for counter `index` of (seed, stream). */
void gd_rng_philox(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4]);
/* Uniform in [0, 1): 24 bits. */
float gd_rng_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/* Uniform integer in [0, bound). */
int64_t gd_rng_below(uint64_t seed, uint64_t stream, uint64_t index, int64_t bound);
/* Normal values with mean 0: elements first .. first + count of the sequence (seed, stream), each a
   function of its index alone. */
void gd_rng_normal(uint64_t seed, uint64_t stream, double deviation, int64_t first, float *out,
                   int64_t count);
/* Uniform values in [low, high), in the same manner. */
void gd_rng_uniforms(uint64_t seed, uint64_t stream, double low, double high, int64_t first,
                     float *out, int64_t count);
/* A stable 64-bit hash of a string (FNV-1a), for naming streams. */
uint64_t gd_hash_string(const char *text);

#endif
