/*
 * A keyed permutation of 0 .. count-1 that is computed, not stored: the order of an epoch. The
 * place of an element depends on key, count and index alone, so that a run resumes anywhere.
 */
#ifndef GD_DATA_PERMUTE_H
#define GD_DATA_PERMUTE_H

#include <stdint.h>

/* index is below count. Every value below count comes out for exactly one index. */
uint64_t gd_permute(uint64_t key, uint64_t count, uint64_t index);

#endif
