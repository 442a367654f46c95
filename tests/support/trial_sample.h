/*
 * Made-up trials for tests of the store: every field set, every digit of it, from a seed.
 */
#ifndef GD_TESTS_SUPPORT_TRIAL_SAMPLE_H
#define GD_TESTS_SUPPORT_TRIAL_SAMPLE_H

#include "store/store.h"

/* A measured trial; status ok. The same seed gives the same. */
void trial_sample(struct gd_trial *trial, uint64_t seed);
/* What a trial of so many steps computes from its own numbers, after some of them were changed. */
void trial_sample_derive(struct gd_trial *trial, int64_t steps);
/* A key of its own for each seed. */
void trial_sample_key(struct gd_store_key *key, uint64_t seed);

#endif
