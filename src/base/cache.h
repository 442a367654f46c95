/*
 * Things that took time to make, kept on disk under what determines them: compiled kernels,
 * autotune results. Files are renamed into place, so processes may share the folder, and carry a
 * key and a checksum, so a damaged or foreign one reads as absent. A cache that cannot be written
 * costs time, never an error.
 *
 * Kernels are code that this process runs, so a cache is used only where nobody else can write:
 * the folder is the user's own and closed to others, no folder above it lets others put another in
 * its place, and a file is a regular one of the user's own. Anywhere else a private folder serves
 * until the process ends, and gd_cache_problem says why. The checksum detects damage, and includes
 * the key, so that a file under a wrong name is not taken. It is not signed: a program that could
 * write to the folder could also read a secret kept there.
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
#include <stdio.h>

uint64_t gd_cache_hash(uint64_t hash, const void *bytes, size_t count);
uint64_t gd_cache_hash_text(uint64_t hash, const char *text);
/* What tells one build of a program or library from the next: path, size and time of the file. */
uint64_t gd_cache_hash_file(uint64_t hash, const char *path);

/* $XDG_CACHE_HOME/gpudays/<folder>, else ~/.cache/gpudays/<folder>, made if it is not there; a
   private one where that cannot be trusted or written. False, with *path empty: not even that. */
bool gd_cache_folder(const char *folder, char *path, size_t size);
/* Why the folder is a private one, with the remedy; NULL: it is not. */
const char *gd_cache_problem(const char *folder, char *text, size_t size);

/* Which files of the lasting folder are not read, as others wrote them or can write to them: how
   many, and the first; NULL: none. To be asked before they are made anew. */
const char *gd_cache_untrusted(const char *folder, char *text, size_t size);

/* What was kept under that key, from gd_mem_alloc; NULL where there is nothing whole. */
char *gd_cache_read(const char *folder, uint64_t key, size_t *count);
void gd_cache_write(const char *folder, uint64_t key, const void *bytes, size_t count);

/* The same for files that must have a name, such as shared objects: whether the one at path is
   whole, and putting a copy of another there (false: errno says why). */
bool gd_cache_is_whole(const char *path, uint64_t key);
bool gd_cache_adopt(const char *from, const char *path, uint64_t key);

/* A file of any content in a folder of the cache, read only where it is a regular one of the user's
   own (NULL: it is not), and written whole or not at all. */
FILE *gd_cache_open(const char *path);
bool gd_cache_put(const char *path, const void *bytes, size_t count);

#endif
