/*
 * Folders for the work of one process; see scratch.h.
 */
#define _GNU_SOURCE
#include "base/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { DEEPEST = 4, STALE_AFTER_S = 60 };

/* What is in the folder, and what is in the folders inside of it; links are not followed. */
static void empty_folder(int fd, int depth) {
  struct dirent *entry;
  int own = fd >= 0 ? openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  DIR *list = own >= 0 ? fdopendir(own) : NULL;
  if (!list && own >= 0)
    close(own);
  while (list && (entry = readdir(list))) {
    const char *name = entry->d_name;
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
      continue;
    if (unlinkat(fd, name, 0) == 0 || depth == 0)
      continue;
    int inside = openat(fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (inside >= 0) {
      empty_folder(inside, depth - 1);
      close(inside);
      unlinkat(fd, name, AT_REMOVEDIR);
    }
  }
  if (list)
    closedir(list);
}

static bool lock_folder(struct gd_scratch *scratch) {
  scratch->lock = open(scratch->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  return scratch->lock >= 0 && flock(scratch->lock, LOCK_EX | LOCK_NB) == 0;
}

/* What processes that were killed have left: nobody holds it. A new one has a minute to lock it. */
static void remove_stale(const char *parent, const char *prefix) {
  struct dirent *entry;
  DIR *list = opendir(parent);
  while (list && (entry = readdir(list))) {
    struct gd_scratch old = {.lock = -1};
    struct stat about;
    if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
      continue;
    if (snprintf(old.path, sizeof old.path, "%s/%s", parent, entry->d_name) >= (int)sizeof old.path)
      continue;
    /* Others may write to that folder too: what they leave there, or let point elsewhere, stays. */
    if (lstat(old.path, &about) != 0 || !S_ISDIR(about.st_mode) || about.st_uid != geteuid() ||
        time(NULL) - about.st_mtime < STALE_AFTER_S)
      continue;
    if (lock_folder(&old))
      gd_scratch_close(&old);
    else if (old.lock >= 0)
      close(old.lock);
  }
  if (list)
    closedir(list);
}

enum gd_status gd_scratch_open(struct gd_scratch *scratch, const char *parent, const char *prefix,
                               struct gd_error *err) {
  const char *tmp = getenv("TMPDIR");
  if (!parent)
    parent = tmp && tmp[0] ? tmp : "/tmp";
  remove_stale(parent, prefix);
  *scratch = (struct gd_scratch){.lock = -1};
  int length = snprintf(scratch->path, sizeof scratch->path, "%s/%sXXXXXX", parent, prefix);
  if (length < 0 || (size_t)length >= sizeof scratch->path || !mkdtemp(scratch->path)) {
    int number = (size_t)length >= sizeof scratch->path ? ENAMETOOLONG : errno;
    scratch->path[0] = '\0';
    return gd_fail(err, GD_ENVIRONMENT,
                   "cannot make a folder for temporary files in %.256s: %s; set TMPDIR to one that "
                   "works",
                   parent, strerror(number));
  }
  if (!lock_folder(scratch) && scratch->lock >= 0) {
    close(scratch->lock); /* a file system without locks has a stale folder now and then */
    scratch->lock = -1;
  }
  return GD_OK;
}

void gd_scratch_remove(const char *path) {
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0)
    return;
  empty_folder(fd, DEEPEST);
  close(fd);
  rmdir(path);
}

void gd_scratch_close(struct gd_scratch *scratch) {
  if (!scratch->path[0])
    return;
  gd_scratch_remove(scratch->path);
  if (scratch->lock >= 0)
    close(scratch->lock);
  *scratch = (struct gd_scratch){.lock = -1};
}
