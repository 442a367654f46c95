/*
 * Writing files by rename, and making folders; see file.h.
 */
#define _GNU_SOURCE
#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"

static enum gd_status fail_on(const char *what, const char *path, int number,
                              struct gd_error *err) {
  char clean[512];
  return gd_fail(err, GD_ENVIRONMENT, "cannot %s %s: %s", what,
                 gd_json_excerpt(clean, sizeof clean, path), strerror(number));
}

enum gd_status gd_file_make_folder(const char *path, struct gd_error *err) {
  char part[PATH_MAX];
  struct stat info;
  size_t length = strlen(path);
  if (length == 0 || length >= sizeof part)
    return fail_on("make the folder", path, length ? ENAMETOOLONG : ENOENT, err);
  for (size_t i = 1; i <= length; i++)
    if (path[i] == '/' || path[i] == '\0') {
      snprintf(part, sizeof part, "%.*s", (int)i, path);
      if (mkdir(part, 0777) != 0 && errno != EEXIST && stat(part, &info) != 0)
        return fail_on("make the folder", part, errno, err);
    }
  if (stat(path, &info) != 0)
    return fail_on("make the folder", path, errno, err);
  return S_ISDIR(info.st_mode) ? GD_OK : fail_on("make the folder", path, ENOTDIR, err);
}

/* The number of the error, 0: none. */
static int write_whole(int fd, const char *bytes, size_t length) {
  int failure = 0;
  while (length > 0 && !failure) {
    ssize_t count = write(fd, bytes, length);
    if (count < 0 && errno != EINTR)
      failure = errno;
    if (count > 0) {
      bytes += count;
      length -= (size_t)count;
    }
  }
  if (!failure && fsync(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
    failure = errno;
  if (close(fd) != 0 && !failure)
    failure = errno;
  return failure;
}

enum gd_status gd_file_write(const char *path, const char *bytes, size_t length,
                             struct gd_error *err) {
  char temporary[PATH_MAX];
  int needed = snprintf(temporary, sizeof temporary, "%s.XXXXXX", path);
  if (needed < 0 || (size_t)needed >= sizeof temporary)
    return fail_on("write", path, ENAMETOOLONG, err);
  int fd = mkostemp(temporary, O_CLOEXEC);
  if (fd < 0)
    return fail_on("write", path, errno, err);
  mode_t mask = umask(0); /* as any new file, not as a secret one */
  umask(mask);
  fchmod(fd, 0666 & ~mask);
  int failure = write_whole(fd, bytes, length);
  if (!failure && rename(temporary, path) != 0)
    failure = errno;
  if (!failure)
    return GD_OK;
  unlink(temporary);
  return fail_on("write", path, failure, err);
}

enum gd_status gd_file_read(const char *path, size_t most, struct gd_strbuf *to,
                            struct gd_error *err) {
  char piece[1 << 14];
  size_t got, total = 0;
  FILE *file = fopen(path, "rbe");
  if (!file)
    return fail_on("read", path, errno, err);
  while ((got = fread(piece, 1, sizeof piece, file)) > 0 && (total += got) <= most)
    gd_strbuf_append_bytes(to, piece, got);
  int failure = ferror(file) ? EIO : total > most ? EFBIG : to->failed ? ENOMEM : 0;
  fclose(file);
  return failure ? fail_on("read", path, failure, err) : GD_OK;
}
