/*
 * A short name for a long text: 128 bits as 32 hexadecimal digits. Made for telling texts apart,
 * not for secrets.
 */
#ifndef GD_BASE_HASH_H
#define GD_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { GD_HASH_TEXT = 33 }; /* the digits, and the end */
/* A checksum of many bytes, several GB a second: for noticing damage. Start with 0 as hash. */
uint64_t gd_hash_bytes(uint64_t hash, const void *bytes, size_t count);
void gd_hash_hex(char hex[GD_HASH_TEXT], const char *text);

#endif
