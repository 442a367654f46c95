/*
 * Things that took time to make, kept on disk under what determines them: compiled kernels, chosen
 * algorithms. Files are renamed into place, so processes may share the folder, and carry a key and
 * a checksum, so a damaged or foreign one reads as absent. A cache that cannot be written costs
 * time, never an error.
 *
 *   uint64_t key = gd_cache_hash(gd_cache_hash(0, source, length), options, n);
 *   char *bytes = gd_cache_read("cuda", key, &count);     // NULL: make it, then
 *   gd_cache_write("cuda", key, made, count);
 */
#ifndef GD_BASE_CACHE_H
#define GD_BASE_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

uint64_t gd_cache_hash(uint64_t hash, const void *bytes, size_t count);

/* $XDG_CACHE_HOME/gpudays/<folder>, else ~/.cache/gpudays/<folder>, made if it is not there; false
   where there is none that can be written. */
bool gd_cache_folder(const char *folder, char *path, size_t size);

/* What was kept under that key, from gd_mem_alloc; NULL where there is nothing whole. */
char *gd_cache_read(const char *folder, uint64_t key, size_t *count);
void gd_cache_write(const char *folder, uint64_t key, const void *bytes, size_t count);

#endif
