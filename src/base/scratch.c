/*
 * Folders with locks; see scratch.h. What is locked is a file in the folder: NFS has exclusive
 * locks for files that are open for writing alone. flock is used, not fcntl: it belongs to the open
 * file, and a child process that execs does not inherit it (O_CLOEXEC).
 */
#define _GNU_SOURCE
#include "base/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/switches.h"

enum lock { LOCK_TAKEN, LOCK_HELD, LOCK_GONE, LOCK_NONE };

#define LOCK_NAME "lock"

/* Locks the folder at path. After locking, the lock file is compared with the one in the folder:
 * the process that held it may have removed the folder in between. */
static enum lock lock_folder(const char *path, int *fd) {
  char file[GD_SCRATCH_PATH + sizeof LOCK_NAME];
  struct stat locked, there;
  snprintf(file, sizeof file, "%s/" LOCK_NAME, path);
  *fd = open(file, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (*fd < 0)
    return errno == ENOENT ? LOCK_GONE : LOCK_NONE;
  enum lock lock = LOCK_TAKEN;
  if (flock(*fd, LOCK_EX | LOCK_NB) != 0)
    lock = errno == EWOULDBLOCK ? LOCK_HELD : LOCK_NONE;
  else if (fstat(*fd, &locked) != 0 || lstat(file, &there) != 0 || locked.st_ino != there.st_ino ||
           locked.st_dev != there.st_dev)
    lock = LOCK_GONE;
  if (lock == LOCK_HELD || lock == LOCK_GONE) {
    close(*fd);
    *fd = -1;
  }
  return lock;
}

static enum gd_status fail_to_make(const char *path, int number, struct gd_error *err) {
  char clean[512];
  return gd_fail(err, GD_ENVIRONMENT, "cannot make the folder %s: %s",
                 gd_json_excerpt(clean, sizeof clean, path), strerror(number));
}

static bool join(char path[GD_SCRATCH_PATH], const char *parent, const char *name,
                 const char *end) {
  int length = snprintf(path, GD_SCRATCH_PATH, "%s/%s%s", parent, name, end);
  return length > 0 && length < GD_SCRATCH_PATH;
}

enum gd_status gd_scratch_make(struct gd_scratch *scratch, const char *parent, const char *prefix,
                               struct gd_error *err) {
  struct gd_scratch made = GD_SCRATCH_NONE;
  *scratch = GD_SCRATCH_NONE;
  for (int tries = 0; tries < 100; tries++) {
    if (!join(made.path, parent, prefix, "XXXXXX"))
      return fail_to_make(parent, ENAMETOOLONG, err);
    if (!mkdtemp(made.path))
      return fail_to_make(made.path, errno, err);
    enum lock lock = lock_folder(made.path, &made.lock);
    if (lock == LOCK_TAKEN || lock == LOCK_NONE) {
      *scratch = made;
      return GD_OK;
    }
    /* A sweep of another process came between the two. */
  }
  return fail_to_make(parent, EAGAIN, err);
}

enum gd_status gd_scratch_take(struct gd_scratch *scratch, const char *parent, const char *name,
                               bool *taken, struct gd_error *err) {
  struct gd_scratch made = GD_SCRATCH_NONE;
  *scratch = GD_SCRATCH_NONE;
  *taken = false;
  if (!join(made.path, parent, name, ""))
    return fail_to_make(parent, ENAMETOOLONG, err);
  for (int tries = 0; tries < 100; tries++) {
    int failure = mkdir(made.path, 0777) == 0 ? 0 : errno;
    if (failure == ENOENT) /* whoever used parent last removed it */
      GD_TRY(gd_file_make_folder(made.path, err));
    else if (failure && failure != EEXIST)
      return fail_to_make(made.path, failure, err);
    enum lock lock = lock_folder(made.path, &made.lock);
    if (lock == LOCK_NONE && made.lock < 0)
      return fail_to_make(made.path, errno, err);
    if (lock == LOCK_GONE)
      continue;
    *taken = lock != LOCK_HELD;
    if (*taken)
      *scratch = made;
    return GD_OK;
  }
  return fail_to_make(made.path, EAGAIN, err);
}

/* Listing the folder makes a network file system look again, and remembers no absence. */
static bool has_file(const char *path, const char *name) {
  struct dirent *entry;
  bool found = false;
  DIR *folder = opendir(path);
  while (folder && !found && (entry = readdir(folder)))
    found = strcmp(entry->d_name, name) == 0;
  if (folder)
    closedir(folder);
  return found;
}

bool gd_scratch_has(const struct gd_scratch *scratch, const char *name) {
  return scratch->path[0] && has_file(scratch->path, name);
}

/* Removes everything but the lock, which must go last: a process that finds a folder without a lock
   makes one and takes the folder. */
static int remove_entry(const char *path, const struct stat *info, int type, struct FTW *where) {
  (void)info;
  (void)type;
  if (where->level != 1 || strcmp(path + where->base, LOCK_NAME) != 0)
    remove(path);
  return 0;
}

void gd_scratch_remove_tree(const char *path) {
  char file[GD_SCRATCH_PATH + sizeof LOCK_NAME];
  nftw(path, remove_entry, 8, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
  snprintf(file, sizeof file, "%s/" LOCK_NAME, path);
  unlink(file);
  rmdir(path);
}

void gd_scratch_leave(struct gd_scratch *scratch) {
  if (scratch->path[0] && scratch->lock >= 0)
    close(scratch->lock);
  *scratch = GD_SCRATCH_NONE;
}

void gd_scratch_remove(struct gd_scratch *scratch) {
  struct gd_scratch gone = *scratch;
  if (scratch->path[0])
    gd_scratch_remove_tree(scratch->path);
  gd_scratch_leave(scratch);
  if (gone.path[0])
    rmdir(gone.path); /* NFS keeps a file that is open under another name, until it is closed */
}

void gd_scratch_sweep(const char *parent, const char *prefix, const char *keep, int days) {
  struct dirent *entry;
  DIR *list = opendir(parent);
  while (list && (entry = readdir(list))) {
    char path[GD_SCRATCH_PATH];
    struct stat info;
    int fd;
    if (entry->d_name[0] == '.' || strncmp(entry->d_name, prefix, strlen(prefix)) != 0 ||
        !join(path, parent, entry->d_name, ""))
      continue;
    /* Others may write to parent too: what they leave there, or let point elsewhere, stays. */
    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid())
      continue;
    enum lock lock = lock_folder(path, &fd);
    bool kept = keep && has_file(path, keep) && time(NULL) - info.st_mtime < days * 86400L;
    if (lock == LOCK_TAKEN && !kept)
      gd_scratch_remove_tree(path);
    if (fd >= 0)
      close(fd);
    if (lock == LOCK_TAKEN && !kept)
      rmdir(path);
  }
  if (list)
    closedir(list);
}

enum gd_status gd_scratch_open(struct gd_scratch *scratch, const char *parent, const char *prefix,
                               struct gd_error *err) {
  const char *temporary = gd_env("TMPDIR");
  struct gd_error why = {0};
  bool chosen = parent != NULL;
  if (!chosen)
    parent = temporary && temporary[0] ? temporary : "/tmp";
  gd_scratch_sweep(parent, prefix, NULL, 0);
  if (gd_scratch_make(scratch, parent, prefix, &why) == GD_OK)
    return GD_OK;
  return gd_fail(err, GD_ENVIRONMENT, "%s%s", why.text,
                 chosen ? "" : "; set TMPDIR to a folder that works");
}
