/*
 * Parts of many cases; see sample.h.
 */
#define _POSIX_C_SOURCE 200809L
#include "support/sample.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t seed_of_run(void) {
  static bool known;
  static uint64_t seed;
  const char *given = getenv("GD_TEST_SEED");
  if (known)
    return seed;
  known = true;
  seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) / 86400;
  fprintf(stderr, "a part of the cases: GD_TEST_SEED=%llu gives it again, GD_TEST_ALL=1 all\n",
          (unsigned long long)seed);
  return seed;
}

bool sample_has(uint64_t number, uint64_t parts) {
  return getenv("GD_TEST_ALL") || number % parts == seed_of_run() % parts;
}
