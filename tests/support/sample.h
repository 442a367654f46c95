/*
 * Tests of many cases run a part of them in `make check` and all of them in `make check-all`, which
 * sets GD_TEST_ALL. Which part follows from GD_TEST_SEED, and without it from the day, so that days
 * together see all; it is printed, and the same seed gives the same part.
 */
#ifndef GD_TESTS_SUPPORT_SAMPLE_H
#define GD_TESTS_SUPPORT_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

/* Whether the case of that number is in this run's part, one of `parts` alike. */
bool sample_has(uint64_t number, uint64_t parts);

#endif
