/*
 * The user's folders; see paths.h.
 */
#include "base/paths.h"

#include <stdio.h>

#include "base/switches.h"

static bool find(const char *variable, const char *otherwise, const char *name, char *path,
                 size_t size) {
  const char *base = gd_env(variable), *home = gd_env("HOME");
  int length = -1;
  path[0] = '\0';
  if (base && base[0] == '/') /* the specification ignores relative ones */
    length = snprintf(path, size, "%s/gpudays/%s", base, name);
  else if (home && home[0])
    length = snprintf(path, size, "%s/%s/gpudays/%s", home, otherwise, name);
  return length >= 0 && (size_t)length < size;
}

bool gd_path_config(const char *name, char *path, size_t size) {
  return find("XDG_CONFIG_HOME", ".config", name, path, size);
}

bool gd_path_data(const char *name, char *path, size_t size) {
  return find("XDG_DATA_HOME", ".local/share", name, path, size);
}

bool gd_path_cache(const char *name, char *path, size_t size) {
  return find("XDG_CACHE_HOME", ".cache", name, path, size);
}
