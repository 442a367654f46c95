/*
 * The user's own folders, by the XDG base directory specification.
 */
#ifndef GD_BASE_PATHS_H
#define GD_BASE_PATHS_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Writes $XDG_CONFIG_HOME/gpudays/NAME, else ~/.config/gpudays/NAME; data: $XDG_DATA_HOME, else
 * ~/.local/share; cache: $XDG_CACHE_HOME, else ~/.cache. Nothing is made or looked at. False where
 * neither variable names a folder: path is then empty. False also where size is too small: path is
 * then cut.
 */
bool gd_path_config(const char *name, char *path, size_t size);
bool gd_path_data(const char *name, char *path, size_t size);
bool gd_path_cache(const char *name, char *path, size_t size);

#endif
