/*
 * Hashes as text; see hash.h. What is stored has these names: they stay as they are.
 */
#include "base/hash.h"

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The finaliser of MurmurHash3 (Appleby, public domain): every bit changes every other. */
static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
  x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
  return x ^ x >> 33;
}

void gd_hash_hex(char hex[GD_HASH_TEXT], const char *text) {
  uint64_t a = 0xcbf29ce484222325u, b = 0x9e3779b97f4a7c15u;
  for (; *text; text++) {
    a = (a ^ (unsigned char)*text) * 0x100000001b3u;
    b = mix(b + (unsigned char)*text);
  }
  snprintf(hex, GD_HASH_TEXT, "%016" PRIx64 "%016" PRIx64, mix(a ^ b), mix(a + 3 * b));
}

/* Four lanes, so that multiplications overlap; then the rest of the bytes, and the length. */
uint64_t gd_hash_bytes(uint64_t hash, const void *bytes, size_t count) {
  const unsigned char *at = bytes;
  const uint64_t factor = 0x9e3779b97f4a7c15u;
  uint64_t lanes[4] = {hash ^ 1, hash ^ 2, hash ^ 3, hash ^ 4};
  size_t left = count;
  for (; left >= sizeof lanes; left -= sizeof lanes, at += sizeof lanes)
    for (int i = 0; i < 4; i++) {
      uint64_t word;
      memcpy(&word, at + 8 * i, sizeof word);
      lanes[i] = (lanes[i] ^ word) * factor;
      lanes[i] ^= lanes[i] >> 32;
    }
  for (; left > 0; left--, at++)
    lanes[0] = mix(lanes[0] ^ *at);
  return mix(mix(lanes[0] + 3 * lanes[1]) ^ mix(lanes[2] + 5 * lanes[3]) ^ (uint64_t)count);
}
