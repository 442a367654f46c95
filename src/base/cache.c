/*
 * The cache on disk; see cache.h. A file is its content and a trailer of magic, key and checksum.
 */
#define _GNU_SOURCE
#include "base/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/paths.h"
#include "base/scratch.h"
#include "base/switches.h"

#define TEMPORARY ".tmp-" /* begins the name of a file that is being written */
enum { MOST_BYTES = 1 << 28, STALE_AFTER_S = 600, MOST_NAMES = 4, PATH_BYTES = 1024 };

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

uint64_t gd_cache_hash_text(uint64_t hash, const char *text) {
  return gd_cache_hash(hash, text, strlen(text) + 1);
}

uint64_t gd_cache_hash_file(uint64_t hash, const char *path) {
  struct stat info;
  char facts[96] = "not there";
  if (stat(path, &info) == 0)
    snprintf(facts, sizeof facts, "%" PRId64 " %" PRId64 ".%09ld", (int64_t)info.st_size,
             (int64_t)info.st_mtim.tv_sec, info.st_mtim.tv_nsec);
  return gd_cache_hash_text(gd_cache_hash_text(hash, path), facts);
}

/* --- the owner of a folder --------------------------------------------------------------- */

static bool refuse(char *why, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static bool refuse(char *why, size_t size, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(why, size, format, args);
  va_end(args);
  return false;
}

/*
 * One folder of a path without links. Others must not be able to write in it, or could put what
 * they like in the place of the next one; in a sticky folder, as /tmp is, they could not. Root can
 * do anything anyway. The last one holds the files, and is to be the user's own.
 */
static bool is_safe_folder(const char *path, bool last, char *why, size_t size) {
  struct stat info;
  if (lstat(path, &info) != 0)
    return refuse(why, size, "%s cannot be looked at: %s", path, strerror(errno));
  if (!S_ISDIR(info.st_mode))
    return refuse(why, size, "%s is no folder", path);
  if (info.st_uid != geteuid() && (last || info.st_uid != 0))
    return refuse(why, size, "%s belongs to user %u, and this is user %u", path,
                  (unsigned)info.st_uid, (unsigned)geteuid());
  if ((info.st_mode & 022) != 0 && (last || !(info.st_mode & S_ISVTX)))
    return refuse(why, size, "others may write in %s (mode %04o; 'chmod go-w' closes it)", path,
                  (unsigned)info.st_mode & 07777);
  return true;
}

/* A path without links, with all folders above it. own: it must be the user's alone. */
static bool is_safe_path(const char *path, bool own, char *why, size_t size) {
  char part[PATH_MAX];
  size_t length = strlen(path);
  if (!is_safe_folder("/", false, why, size))
    return false;
  for (size_t i = 1; i <= length && length > 1; i++)
    if (path[i] == '/' || path[i] == '\0') {
      snprintf(part, sizeof part, "%.*s", (int)i, path);
      if (!is_safe_folder(part, own && i == length, why, size))
        return false;
    }
  return true;
}

/* --- the folder ----------------------------------------------------------------------------- */

/* Creates the folder and those above it, for the user alone. */
static bool make_folders(const char *path, char *why, size_t size) {
  char part[PATH_BYTES];
  for (size_t i = 1, length = strlen(path); i <= length; i++)
    if (path[i] == '/' || path[i] == '\0') {
      snprintf(part, sizeof part, "%.*s", (int)i, path);
      if (mkdir(part, 0700) != 0 && errno != EEXIST && errno != EACCES && errno != EROFS)
        return refuse(why, size, "%s cannot be made: %s", part, strerror(errno));
    }
  return true;
}

/* A file that only its author will look at; -1: errno says why not. */
static int open_temporary(const char *folder, char *path, size_t size) {
  if (snprintf(path, size, "%s/" TEMPORARY "XXXXXX", folder) >= (int)size) {
    errno = ENAMETOOLONG;
    return -1;
  }
  return mkostemp(path, O_CLOEXEC); /* O_EXCL, and a random name */
}

/* access() lets root write anywhere, read-only file systems included: try it. */
static bool can_write(const char *folder, char *why, size_t size) {
  char probe[PATH_MAX];
  int fd = open_temporary(folder, probe, sizeof probe);
  if (fd < 0)
    return refuse(why, size, "%s cannot be written: %s", folder, strerror(errno));
  close(fd);
  unlink(probe);
  return true;
}

/* Whether that is a file that somebody was writing. Older versions appended a suffix to the final
   name, which begins with a key of 16 digits. */
static bool is_temporary(const char *name) {
  if (strncmp(name, TEMPORARY, strlen(TEMPORARY)) == 0 || strncmp(name, ".probe.", 7) == 0)
    return true;
  return strspn(name, "0123456789abcdef") == 16 && name[16] == '.' && strcmp(name + 16, ".so") != 0;
}

/* What processes that were killed were writing. A file takes milliseconds: minutes are enough. */
static void sweep(const char *folder) {
  struct dirent *entry;
  struct stat info;
  DIR *list = opendir(folder);
  while (list && (entry = readdir(list)))
    if (is_temporary(entry->d_name) &&
        fstatat(dirfd(list), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        !S_ISDIR(info.st_mode) && time(NULL) - info.st_mtime >= STALE_AFTER_S)
      unlinkat(dirfd(list), entry->d_name, 0);
  if (list)
    closedir(list);
}

/* What this process knows of its folders, by path: the environment may name another one between two
   calls. */
static struct {
  pthread_mutex_t mutex;
  struct gd_scratch private_folder;     /* in the place of one that cannot be used */
  pid_t owner;                          /* of it: children of this process leave it alone */
  char written[MOST_NAMES][PATH_BYTES]; /* folders that it could write in */
  int next;                             /* of these to be forgotten */
} known = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static bool was_written(const char *path) {
  for (int i = 0; i < MOST_NAMES; i++)
    if (strcmp(known.written[i], path) == 0)
      return true;
  return false;
}

/* The folder that files outlive this process in. *path has no links. */
static bool find_lasting(const char *name, char path[PATH_MAX], char *why, size_t size) {
  char wanted[PATH_BYTES];
  bool fits = gd_path_cache(name, wanted, sizeof wanted);
  if (wanted[0] != '/')
    return refuse(why, size, "neither XDG_CACHE_HOME nor HOME names a folder");
  if (!fits)
    return refuse(why, size, "the path of the cache is too long");
  if (!make_folders(wanted, why, size))
    return false;
  if (!realpath(wanted, path))
    return refuse(why, size, "%s cannot be made: %s", wanted, strerror(errno));
  if (strlen(path) >= PATH_BYTES)
    return refuse(why, size, "the path of the cache is too long");
  if (!is_safe_path(path, true, why, size))
    return false;
  if (was_written(path))
    return true;
  if (!can_write(path, why, size))
    return false;
  sweep(path);
  snprintf(known.written[known.next++ % MOST_NAMES], PATH_BYTES, "%s", path);
  return true;
}

static void remove_private(void) {
  if (known.owner == getpid())
    gd_scratch_remove(&known.private_folder);
}

/* Where others could swap the folder of temporary files itself, /tmp is the one that they cannot.
 */
static bool find_private(const char *name, char path[PATH_MAX]) {
  const char *parents[] = {gd_env("TMPDIR"), "/tmp"};
  char parent[PATH_MAX], why[64];
  if (known.private_folder.path[0] && access(known.private_folder.path, F_OK) != 0)
    gd_scratch_remove(&known.private_folder); /* somebody tidied up */
  for (size_t i = 0; i < 2 && !known.private_folder.path[0]; i++)
    if (parents[i] && parents[i][0] == '/' && realpath(parents[i], parent) &&
        is_safe_path(parent, false, why, sizeof why) &&
        gd_scratch_open(&known.private_folder, parent, "gpudays-cache-", NULL) == GD_OK) {
      if (known.owner != getpid())
        atexit(remove_private);
      known.owner = getpid();
    }
  if (!known.private_folder.path[0])
    return false;
  int length = snprintf(path, PATH_MAX, "%s/%s", known.private_folder.path, name);
  return length < PATH_BYTES && (mkdir(path, 0700) == 0 || errno == EEXIST);
}

static bool find_folder(const char *name, char path[PATH_MAX], char *why, size_t size) {
  pthread_mutex_lock(&known.mutex);
  why[0] = '\0';
  bool found = find_lasting(name, path, why, size) || find_private(name, path);
  pthread_mutex_unlock(&known.mutex);
  return found;
}

bool gd_cache_folder(const char *name, char *path, size_t size) {
  char found[PATH_MAX], why[512];
  path[0] = '\0';
  if (!find_folder(name, found, why, sizeof why) || strlen(found) >= size)
    return false;
  snprintf(path, size, "%s", found);
  return true;
}

const char *gd_cache_problem(const char *name, char *text, size_t size) {
  char found[PATH_MAX], why[512];
  bool any = find_folder(name, found, why, sizeof why);
  if (!why[0])
    return NULL;
  snprintf(text, size,
           "compiled kernels are kept %s, because %s; set XDG_CACHE_HOME to a folder that only you "
           "can write",
           any ? "for this process alone" : "nowhere", why);
  return text;
}

/* --- files ---------------------------------------------------------------------------------- */

/* Nobody else wrote it, or can. */
static bool is_own(const struct stat *info) {
  return info->st_uid == geteuid() && (info->st_mode & 022) == 0;
}

/* A regular file; own: of this user alone. A FIFO does not wait for its writer. */
static FILE *open_file(const char *path, bool own, struct stat *info) {
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (fd < 0)
    return NULL;
  bool fine = fstat(fd, info) == 0 && S_ISREG(info->st_mode) && (!own || is_own(info));
  FILE *file = fine ? fdopen(fd, "rb") : NULL;
  if (!file)
    close(fd);
  return file;
}

const char *gd_cache_untrusted(const char *name, char *text, size_t size) {
  char folder[PATH_MAX], why[512], first[NAME_MAX + 1] = "";
  struct dirent *entry;
  struct stat info, of_first = {0};
  int count = 0;
  if (!find_folder(name, folder, why, sizeof why) || why[0])
    return NULL;
  DIR *list = opendir(folder);
  while (list && (entry = readdir(list)))
    if (!is_temporary(entry->d_name) &&
        fstatat(dirfd(list), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISREG(info.st_mode) && !is_own(&info)) {
      count++;
      if (!first[0] || strcmp(entry->d_name, first) < 0) {
        snprintf(first, sizeof first, "%s", entry->d_name);
        of_first = info;
      }
    }
  if (list)
    closedir(list);
  if (count == 0)
    return NULL;
  if (of_first.st_uid != geteuid())
    snprintf(why, sizeof why, "belongs to user %u, and this is user %u", (unsigned)of_first.st_uid,
             (unsigned)geteuid());
  else
    snprintf(why, sizeof why, "can be written by others (mode %04o)",
             (unsigned)of_first.st_mode & 07777);
  snprintf(
      text, size,
      "%d of the compiled kernels in %s %s not used, and made anew where needed: %s %s; remove "
      "what you did not put there",
      count, folder, count == 1 ? "is" : "are", first, why);
  return text;
}

FILE *gd_cache_open(const char *path) {
  struct stat info;
  return open_file(path, true, &info);
}

/* The whole file with a NUL behind it and room for a trailer, from gd_mem_alloc. */
static char *read_file(const char *path, bool own, size_t *count) {
  struct stat info;
  FILE *file = open_file(path, own, &info);
  char *bytes = NULL;
  if (!file)
    return NULL;
  if (info.st_size > 0 && info.st_size < MOST_BYTES)
    bytes = gd_mem_alloc((size_t)info.st_size + sizeof(struct trailer) + 1, 1);
  *count = (size_t)info.st_size;
  if (bytes && fread(bytes, 1, *count, file) != *count) {
    gd_mem_free(bytes);
    bytes = NULL;
  }
  fclose(file);
  return bytes;
}

/* The content without its trailer; NULL where it is not whole or is not that key's. */
static char *read_whole(const char *path, uint64_t key, size_t *count) {
  struct trailer trailer;
  char *bytes = read_file(path, true, count);
  bool whole = bytes && *count >= sizeof trailer;
  if (whole) {
    *count -= sizeof trailer;
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

/* Two pieces under a temporary name in the same folder, then a rename. */
static bool put(const char *path, const void *bytes, size_t count, const struct trailer *trailer) {
  char folder[PATH_MAX], temporary[PATH_MAX];
  const char *slash = strrchr(path, '/');
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
  int fd = open_temporary(folder, temporary, sizeof temporary);
  FILE *file = fd >= 0 ? fdopen(fd, "wb") : NULL;
  if (!file) {
    if (fd >= 0)
      close(fd);
    return false;
  }
  bool written = fwrite(bytes, 1, count, file) == count &&
                 (!trailer || fwrite(trailer, 1, sizeof *trailer, file) == sizeof *trailer);
  written = fclose(file) == 0 && written;
  /* A folder under the name of the file is nobody's work of today: it is in the way. */
  if (written && rename(temporary, path) != 0)
    written = errno == EISDIR && rmdir(path) == 0 && rename(temporary, path) == 0;
  int number = errno;
  if (!written)
    unlink(temporary);
  errno = number;
  return written;
}

static bool put_sealed(const char *path, uint64_t key, const void *bytes, size_t count) {
  struct trailer trailer = {.key = key, .checksum = gd_cache_hash(key, bytes, count)};
  memcpy(trailer.magic, magic, sizeof magic);
  return put(path, bytes, count, &trailer);
}

bool gd_cache_put(const char *path, const void *bytes, size_t count) {
  return put(path, bytes, count, NULL);
}

bool gd_cache_is_whole(const char *path, uint64_t key) {
  size_t count;
  char *bytes = read_whole(path, key, &count);
  gd_mem_free(bytes);
  return bytes != NULL;
}

bool gd_cache_adopt(const char *from, const char *path, uint64_t key) {
  size_t count = 0;
  char *bytes = read_file(from, false, &count);
  bool done = bytes && put_sealed(path, key, bytes, count);
  gd_mem_free(bytes);
  return done;
}

/* --- by key --------------------------------------------------------------------------------- */

static bool path_of(const char *folder, uint64_t key, char *path, size_t size) {
  char parent[PATH_BYTES];
  return gd_cache_folder(folder, parent, sizeof parent) &&
         snprintf(path, size, "%s/%016" PRIx64, parent, key) < (int)size;
}

char *gd_cache_read(const char *folder, uint64_t key, size_t *count) {
  char path[PATH_BYTES + 32];
  return path_of(folder, key, path, sizeof path) ? read_whole(path, key, count) : NULL;
}

void gd_cache_write(const char *folder, uint64_t key, const void *bytes, size_t count) {
  char path[PATH_BYTES + 32];
  if (path_of(folder, key, path, sizeof path))
    (void)put_sealed(path, key, bytes, count);
}
