/*
 * A balanced Feistel network over the least even number of bits that hold count, walked until the
 * value is below count (cycle walking: Black and Rogaway, "Ciphers with arbitrary finite domains",
 * CT-RSA 2002). The domain is at most four times count, so a walk is short.
 */
#include "data/permute.h"

enum { ROUNDS = 8 };

/* The finaliser of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): any bit changes half of the rest.
 */
static uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
  return x ^ (x >> 31);
}

uint64_t gd_permute(uint64_t key, uint64_t count, uint64_t index) {
  int half = 1; /* bits of each half */
  while (half < 32 && (UINT64_C(1) << (2 * half)) < count)
    half++;
  uint64_t mask = (UINT64_C(1) << half) - 1;
  do {
    uint64_t left = index >> half, right = index & mask;
    for (uint64_t round = 0; round < ROUNDS; round++) {
      uint64_t next = left ^ (mix(mix(key + round) + right) & mask);
      left = right;
      right = next;
    }
    index = left << half | right;
  } while (index >= count);
  return index;
}
