/*
 * The cache on disk; see cache.h. A file is its content and a trailer of magic, key and checksum.
 */
#define _GNU_SOURCE
#include "base/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"

struct trailer {
  char magic[8];
  uint64_t key, checksum; /* of the bytes before it */
};
static const char magic[8] = {'g', 'd', 'c', 'a', 'c', 'h', 'e', '1'};

uint64_t gd_cache_hash(uint64_t hash, const void *bytes, size_t count) {
  const unsigned char *at = bytes;
  hash ^= 0xcbf29ce484222325u;
  for (size_t i = 0; i < count; i++)
    hash = (hash ^ at[i]) * 0x100000001b3u;
  return hash ^ hash >> 29; /* FNV-1a alone mixes upwards only */
}

static bool make_folders(char *path) {
  for (char *at = path + 1;; at++) {
    char here = *at;
    if (here != '/' && here != '\0')
      continue;
    *at = '\0';
    bool there = mkdir(path, 0777) == 0 || errno == EEXIST;
    *at = here;
    if (!there)
      return false;
    if (here == '\0')
      return access(path, W_OK | X_OK) == 0;
  }
}

bool gd_cache_folder(const char *folder, char *path, size_t size) {
  const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
  int length = -1;
  if (cache && cache[0] == '/')
    length = snprintf(path, size, "%s/gpudays/%s", cache, folder);
  else if (home && home[0] == '/')
    length = snprintf(path, size, "%s/.cache/gpudays/%s", home, folder);
  return length > 0 && (size_t)length < size && make_folders(path);
}

static bool path_of(const char *folder, uint64_t key, char *path, size_t size) {
  char parent[1024];
  return gd_cache_folder(folder, parent, sizeof parent) &&
         snprintf(path, size, "%s/%016" PRIx64, parent, key) < (int)size;
}

char *gd_cache_read(const char *folder, uint64_t key, size_t *count) {
  char path[1100];
  struct stat info;
  struct trailer trailer;
  char *bytes = NULL;
  FILE *file = path_of(folder, key, path, sizeof path) ? fopen(path, "rbe") : NULL;
  if (!file)
    return NULL;
  if (fstat(fileno(file), &info) == 0 && info.st_size >= (off_t)sizeof trailer &&
      info.st_size < 1 << 28)
    bytes = gd_mem_alloc((size_t)info.st_size + 1, 1);
  bool whole = bytes && fread(bytes, 1, (size_t)info.st_size, file) == (size_t)info.st_size;
  fclose(file);
  if (whole) {
    *count = (size_t)info.st_size - sizeof trailer;
    memcpy(&trailer, bytes + *count, sizeof trailer);
    whole = memcmp(trailer.magic, magic, sizeof magic) == 0 && trailer.key == key &&
            trailer.checksum == gd_cache_hash(key, bytes, *count);
    bytes[*count] = '\0';
  }
  if (whole)
    return bytes;
  gd_mem_free(bytes);
  return NULL;
}

void gd_cache_write(const char *folder, uint64_t key, const void *bytes, size_t count) {
  char path[1100], temporary[1140];
  struct trailer trailer = {.key = key, .checksum = gd_cache_hash(key, bytes, count)};
  memcpy(trailer.magic, magic, sizeof magic);
  if (!path_of(folder, key, path, sizeof path))
    return;
  snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
  int fd = mkostemp(temporary, O_CLOEXEC);
  FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
  if (!file) {
    if (fd >= 0)
      close(fd);
    return;
  }
  bool written = fwrite(bytes, 1, count, file) == count &&
                 fwrite(&trailer, 1, sizeof trailer, file) == sizeof trailer;
  written = fclose(file) == 0 && written;
  if (!written || rename(temporary, path) != 0)
    unlink(temporary);
}
