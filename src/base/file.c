/*
 * Writing files by rename or directly, reading them, and making folders; see file.h for the rule.
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

static enum gd_status fail_write(const char *path, int number, struct gd_error *err) {
  char clean[512];
  return gd_fail(err, GD_ENVIRONMENT, "cannot write %s: %s; name a file elsewhere",
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
      int number = mkdir(part, 0777) == 0 ? 0 : errno; /* before stat puts its own there */
      if (number && number != EEXIST && stat(part, &info) != 0)
        return fail_on("make the folder", part, number, err);
    }
  if (stat(path, &info) != 0)
    return fail_on("make the folder", path, errno, err);
  return S_ISDIR(info.st_mode) ? GD_OK : fail_on("make the folder", path, ENOTDIR, err);
}

/* --- writing ------------------------------------------------------------------------------- */

static bool is_same_file(const struct stat *a, const struct stat *b) {
  return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/*
 * Another descriptor of stdout, stderr or /dev/fd/N where one of these is what stands at the path;
 * -1: none is. Opening such a path again would begin at the start of a file that is being written,
 * and replacing it would leave the other writer with a file that has no name.
 */
static int open_already(const char *path, const struct stat *at_path) {
  static const char *const folders[] = {"/dev/fd/", "/proc/self/fd/"};
  int64_t candidates[] = {STDOUT_FILENO, STDERR_FILENO, -1};
  for (size_t i = 0; i < sizeof folders / sizeof *folders; i++)
    if (strncmp(path, folders[i], strlen(folders[i])) == 0 &&
        !gd_parse_int(path + strlen(folders[i]), 0, INT_MAX, &candidates[2]))
      candidates[2] = -1;
  for (size_t i = 0; i < sizeof candidates / sizeof *candidates; i++) {
    struct stat info;
    int fd = (int)candidates[i], flags = fd < 0 ? -1 : fcntl(fd, F_GETFL);
    if (flags >= 0 && (flags & O_ACCMODE) != O_RDONLY && fstat(fd, &info) == 0 &&
        is_same_file(&info, at_path))
      return fcntl(fd, F_DUPFD_CLOEXEC, 3);
  }
  return -1;
}

/* A temporary file next to out->path, with the permissions and the owner of the one that it will
   replace, or those of any new file (replaces: NULL). -1: errno says why. */
static int open_temporary(struct gd_file_out *out, const struct stat *replaces) {
  int needed = snprintf(out->temporary, sizeof out->temporary, "%s.XXXXXX", out->path);
  if (needed < 0 || (size_t)needed >= sizeof out->temporary) {
    errno = ENAMETOOLONG;
    return -1;
  }
  int fd = mkostemp(out->temporary, O_CLOEXEC); /* O_EXCL, and a random name */
  if (fd < 0)
    return -1;
  mode_t mask = umask(0);
  umask(mask);
  if (replaces && (replaces->st_uid != geteuid() || replaces->st_gid != getegid()) &&
      fchown(fd, replaces->st_uid, replaces->st_gid) != 0)
    errno = 0; /* only root gives files away: for others the new file is their own */
  fchmod(fd, replaces ? replaces->st_mode & 0777 : 0666 & ~mask);
  return fd;
}

static const struct gd_file_protected *protected_files;
static int n_protected;

void gd_file_protect(const struct gd_file_protected *list, int count) {
  protected_files = list;
  n_protected = count;
}

/* The last part of a path, and the folder that it is in. */
static const char *split(const char *path, struct stat *folder, bool *there) {
  char text[PATH_MAX];
  const char *slash = strrchr(path, '/');
  snprintf(text, sizeof text, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
  *there = stat(text, folder) == 0;
  return slash ? slash + 1 : path;
}

/* By device and inode, or by the name that it will have. */
static bool is_one_file(const char *a, const char *b) {
  struct stat a_info, b_info;
  bool a_there = stat(a, &a_info) == 0, b_there = stat(b, &b_info) == 0;
  if (a_there || b_there)
    return a_there && b_there && is_same_file(&a_info, &b_info);
  const char *a_name = split(a, &a_info, &a_there), *b_name = split(b, &b_info, &b_there);
  return a_there && b_there && is_same_file(&a_info, &b_info) && strcmp(a_name, b_name) == 0;
}

static enum gd_status check_protected(const char *path, struct gd_error *err) {
  char clean[512];
  for (int i = 0; i < n_protected; i++)
    if (is_one_file(path, protected_files[i].path))
      return gd_fail(err, GD_BAD_INPUT, "%s is %s, and is not written over; name another file",
                     gd_json_excerpt(clean, sizeof clean, path), protected_files[i].what);
  return GD_OK;
}

/* Opens what is at the path, or says why it is refused. */
static enum gd_status open_out(struct gd_file_out *out, struct gd_error *err) {
  struct stat info;
  char clean[512];
  GD_TRY(check_protected(out->name, err));
  gd_json_excerpt(clean, sizeof clean, out->name);
  bool there = stat(out->name, &info) == 0;
  if (!there && errno != ENOENT)
    return fail_write(out->name, errno, err);
  if (!there && lstat(out->name, &info) == 0)
    return gd_fail(err, GD_ENVIRONMENT,
                   "%s is a symbolic link to a file that is not there; remove it, or name a file "
                   "elsewhere",
                   clean);
  if (there && (S_ISDIR(info.st_mode) || S_ISBLK(info.st_mode)))
    return gd_fail(err, GD_BAD_INPUT, "%s is a %s; name a file", clean,
                   S_ISDIR(info.st_mode) ? "folder" : "disk");
  out->fd = there ? open_already(out->name, &info) : -1;
  if (out->fd >= 0)
    return GD_OK;
  if (there && !S_ISREG(info.st_mode)) {
    out->fd = open(out->name, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    return out->fd >= 0 ? GD_OK : fail_write(out->name, errno, err);
  }
  if (there &&
      (!realpath(out->name, out->path) || faccessat(AT_FDCWD, out->path, W_OK, AT_EACCESS) != 0))
    return fail_write(out->name, errno, err);
  if (!there && snprintf(out->path, sizeof out->path, "%s", out->name) >= (int)sizeof out->path)
    return fail_write(out->name, ENAMETOOLONG, err);
  out->fd = open_temporary(out, there ? &info : NULL);
  return out->fd >= 0 ? GD_OK : fail_write(out->name, errno, err);
}

/* Beneath the stream, which keeps that it failed but not why. */
static ssize_t write_through(void *cookie, const char *bytes, size_t length) {
  struct gd_file_out *out = cookie;
  size_t done = 0;
  while (done < length && !out->failure) {
    ssize_t count = write(out->fd, bytes + done, length - done);
    if (count < 0 && errno != EINTR)
      out->failure = errno;
    done += count > 0 ? (size_t)count : 0;
  }
  return out->failure ? 0 : (ssize_t)length; /* 0 is how a cookie says that it failed */
}

enum gd_status gd_file_begin(struct gd_file_out *out, const char *path, struct gd_error *err) {
  *out = (struct gd_file_out){.name = path, .fd = -1};
  GD_TRY(open_out(out, err));
  out->stream = fopencookie(out, "w", (cookie_io_functions_t){.write = write_through});
  if (out->stream)
    return GD_OK;
  close(out->fd);
  if (out->path[0])
    unlink(out->temporary);
  return fail_write(path, ENOMEM, err);
}

/* Makes the rename itself last. Some file systems cannot; the data is safe all the same. */
static void sync_folder(const char *path) {
  char folder[PATH_MAX];
  const char *slash = strrchr(path, '/');
  snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return;
  (void)fsync(fd);
  close(fd);
}

enum gd_status gd_file_end(struct gd_file_out *out, enum gd_status status, struct gd_error *err) {
  bool renamed = out->path[0] != '\0';
  if (fclose(out->stream) != 0 && !out->failure)
    out->failure = EIO;
  out->stream = NULL;
  if (renamed && !out->failure && status == GD_OK && fsync(out->fd) != 0 && errno != EINVAL &&
      errno != ENOTSUP)
    out->failure = errno;
  if (close(out->fd) != 0 && !out->failure) /* some file systems say here that the disk is full */
    out->failure = errno;
  if (renamed && !out->failure && status == GD_OK && rename(out->temporary, out->path) != 0)
    out->failure = errno;
  if (renamed && (out->failure || status != GD_OK))
    unlink(out->temporary);
  else if (renamed)
    sync_folder(out->path);
  if (status == GD_OK && out->failure)
    return fail_write(out->name, out->failure, err);
  return status;
}

enum gd_status gd_file_write(const char *path, const char *bytes, size_t length,
                             struct gd_error *err) {
  struct gd_file_out out;
  GD_TRY(gd_file_begin(&out, path, err));
  if (length > 0)
    fwrite(bytes, 1, length, out.stream);
  return gd_file_end(&out, GD_OK, err);
}

/* --- reading ------------------------------------------------------------------------------- */

bool gd_file_is_missing(const char *path) {
  return access(path, F_OK) != 0 && (errno == ENOENT || errno == ENOTDIR);
}

FILE *gd_file_open(const char *path, const char *mode) {
  struct stat about;
  int how = mode[0] == 'a' ? O_RDWR | O_APPEND | O_CREAT : O_RDONLY;
  int fd = open(path, how | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (fd < 0)
    return NULL;
  FILE *file = NULL;
  errno = ENOTSUP;
  if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode))
    file = fdopen(fd, mode);
  if (!file) {
    int why = errno;
    close(fd);
    errno = why;
  }
  return file;
}

/* To the end of the file, or of what comes; 0, or the number of an error. */
static int read_all(int fd, size_t most, struct gd_strbuf *to) {
  char piece[1 << 14];
  size_t total = 0;
  int failure = 0;
  while (!failure) {
    ssize_t got = read(fd, piece, sizeof piece);
    if (got == 0)
      break;
    if (got < 0) {
      failure = errno == EINTR ? 0 : errno;
      continue;
    }
    total += (size_t)got;
    gd_strbuf_append_bytes(to, piece, (size_t)got);
    failure = total > most ? EFBIG : to->failed ? ENOMEM : 0;
  }
  return failure;
}

enum gd_status gd_file_read(const char *path, size_t most, struct gd_strbuf *to,
                            struct gd_error *err) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for a writer */
  if (fd < 0)
    return fail_on("read", path, errno, err);
  int failure = fstat(fd, &info) != 0    ? errno
                : S_ISDIR(info.st_mode)  ? EISDIR
                : !S_ISREG(info.st_mode) ? EINVAL
                                         : read_all(fd, most, to);
  close(fd);
  return failure ? fail_on("read", path, failure, err) : GD_OK;
}

enum gd_status gd_file_read_stream(const char *path, size_t most, struct gd_strbuf *to,
                                   struct gd_error *err) {
  struct stat info;
  const bool input = strcmp(path, "-") == 0;
  if (input && isatty(STDIN_FILENO))
    return gd_fail(err, GD_BAD_INPUT,
                   "- is standard input, and that is a terminal; give it a file with '<', or name "
                   "the file");
  if (!input && stat(path, &info) == 0 && !S_ISFIFO(info.st_mode))
    return gd_file_read(path, most, to, err);
  int fd = input ? dup(STDIN_FILENO) : open(path, O_RDONLY | O_CLOEXEC);
  int failure = fd < 0 ? errno : read_all(fd, most, to);
  if (fd >= 0)
    close(fd);
  return failure ? fail_on("read", input ? "standard input" : path, failure, err) : GD_OK;
}
