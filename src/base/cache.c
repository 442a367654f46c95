/*
 * The cache folder of the user: found by the XDG rules, and made.
 */
#define _GNU_SOURCE
#include "base/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Creates the folder and those above it; only the last must be writable. */
static bool make_folders(const char *path) {
  char part[1024];
  size_t length = strlen(path);
  if (length >= sizeof part)
    return false;
  for (size_t i = 1; i <= length; i++)
    if (path[i] == '/' || path[i] == '\0') {
      snprintf(part, sizeof part, "%.*s", (int)i, path);
      if (mkdir(part, 0700) != 0 && errno != EEXIST && errno != EACCES && errno != EROFS)
        return false;
    }
  /* access() lets root write anywhere, read-only file systems included: try it. */
  char probe[1100];
  snprintf(probe, sizeof probe, "%s/.probe.%ld", path, (long)getpid());
  int file = open(probe, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0)
    return false;
  close(file);
  unlink(probe);
  return true;
}

bool gd_cache_folder(const char *name, char *path, size_t size) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int length = -1;
  if (cache && cache[0] == '/')
    length = snprintf(path, size, "%s/gpudays/%s", cache, name);
  else if (home && home[0] == '/')
    length = snprintf(path, size, "%s/.cache/gpudays/%s", home, name);
  if (length >= 0 && (size_t)length < size && make_folders(path))
    return true;
  path[0] = '\0';
  return false;
}
