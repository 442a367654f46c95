/*
 * Files that appear whole or not at all, and the folders they are in. Every command writes its
 * files through here, by one rule for what stands at the path already:
 *
 *   nothing              a new file: a temporary file in the same folder, fsync, rename
 *   a regular file       the same; permissions and owner stay. One that may not be written is
 *                        refused, although a rename would replace it
 *   a symbolic link      followed: the file that it points to is replaced and the link stays. A
 *                        link to nothing is refused
 *   stdout, a device     written directly, as is a FIFO or a file that is already open as stdout or
 *                        stderr (/dev/stdout, /dev/fd/1): never renamed over
 *   a folder, a disk     refused with a sentence
 *   what is protected    refused with a sentence, by whatever name or link it is reached
 *
 *   GD_TRY(gd_file_make_folder("out", err));
 *   GD_TRY(gd_file_write("out/page.html", text.text, text.length, err));
 */
#ifndef GD_BASE_FILE_H
#define GD_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/status.h"
#include "base/strbuf.h"

enum { GD_FILE_PATH = 4096 }; /* bytes of the longest path */

/*
 * Files that this process must not write to, as it reads them or they are its database: from here
 * on gd_file_begin and gd_file_write refuse them (GD_BAD_INPUT). One that is not there is known by
 * its name in its folder. The list is the caller's and must live as long; it replaces the one
 * before, and count 0 is none.
 */
struct gd_file_protected {
  const char *path;
  const char *what; /* "the store of results": what it is, for the sentence */
};
void gd_file_protect(const struct gd_file_protected *list, int count);

/* Makes the folder and those above it; one that is there is fine. GD_ENVIRONMENT says which part
   could not be made, and why. */
enum gd_status gd_file_make_folder(const char *path, struct gd_error *err) GD_MUST_USE;
/* GD_ENVIRONMENT (no such folder, no permission, full disk) and GD_BAD_INPUT (a folder) leave what
   was there, and nothing behind. */
enum gd_status gd_file_write(const char *path, const char *bytes, size_t length,
                             struct gd_error *err) GD_MUST_USE;
/* Whether nothing is there. What may not be looked at counts as there: opening it says why. */
bool gd_file_is_missing(const char *path);
/* Appends the whole file; GD_ENVIRONMENT where it cannot be read, is no regular file or has more
   than most bytes. */
enum gd_status gd_file_read(const char *path, size_t most, struct gd_strbuf *to,
                            struct gd_error *err) GD_MUST_USE;

/* The same, but "-" is standard input, and a FIFO (such as the shell's <(command)) is waited for
   and read to its end. GD_BAD_INPUT for "-" on a terminal. */
enum gd_status gd_file_read_stream(const char *path, size_t most, struct gd_strbuf *to,
                                   struct gd_error *err) GD_MUST_USE;

/* fopen of a regular file in the mode "r" or "a+": NULL with errno where it cannot be opened, and
   ENOTSUP where it is something else: a FIFO would wait for its other end. */
FILE *gd_file_open(const char *path, const char *mode);

/*
 * The same for what is written piece by piece:
 *
 *   struct gd_file_out out;
 *   GD_TRY(gd_file_begin(&out, path, err));
 *   enum gd_status status = ... fprintf(out.stream, ...) ...;
 *   return gd_file_end(&out, status, err);
 */
struct gd_file_out {
  FILE *stream;                 /* to write to; a failure waits for the end */
  int fd, failure;              /* beneath it, and the number of its first error */
  const char *name;             /* the path as it was given, for messages; the caller's */
  char path[GD_FILE_PATH];      /* what the rename replaces; empty: written directly */
  char temporary[GD_FILE_PATH]; /* until then */
};
/* The name must live until the end. What fails here needs no end. */
enum gd_status gd_file_begin(struct gd_file_out *out, const char *path,
                             struct gd_error *err) GD_MUST_USE;
/* Puts the file in its place where status is GD_OK and all was written, and removes the temporary
   file where not; returns status, or why the file could not be written. */
enum gd_status gd_file_end(struct gd_file_out *out, enum gd_status status,
                           struct gd_error *err) GD_MUST_USE;

#endif
