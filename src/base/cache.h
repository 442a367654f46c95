/*
 * Where what can be made again is kept between runs: $XDG_CACHE_HOME/gpudays, or
 * ~/.cache/gpudays. Nothing there is needed; files are replaced by renaming, as processes share it.
 */
#ifndef GD_BASE_CACHE_H
#define GD_BASE_CACHE_H

#include <stdbool.h>
#include <stddef.h>

/* Path of the folder `name` in the cache, made where it is missing. False, with *path empty, where
   there is no cache that can be written. */
bool gd_cache_folder(const char *name, char *path, size_t size);

#endif
