/*
 * Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011): a
 * counter-based generator. Value i of stream s depends on (seed, s, i) alone, so initialisation,
 * recomputation and resharding draw the same numbers whatever the order or the thread.
 *
 * Dropout, which draws a number for every weight of attention, has cheaper ones: 7 rounds, the
 * fewest that pass TestU01's BigCrush in that paper, and 16 bits an element.
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
/*
 * The 16 bits that decide about an element of a dropout: of the four words of counter element / 8
 * after 7 rounds, word element mod 8 / 2, its low half for even elements, the high one for odd. The
 * element is kept, times the scale, where they are at least the threshold. That is the probability
 * in units of 2^-16, to the nearest (at most 65535; 0 keeps all), so the share that is dropped is
 * off by up to 2^-17; the scale is 1 / (1 - that share), so the expectation is exact.
 */
uint32_t gd_rng_dropout(uint64_t seed, uint64_t stream, uint64_t element);
uint32_t gd_rng_dropout_threshold(double probability);
double gd_rng_dropout_scale(double probability);
/* A stable 64-bit hash of a string (FNV-1a), for naming streams. */
uint64_t gd_hash_string(const char *text);

#endif
