/*
 * Files that appear whole or not at all, and the folders they are in.
 *
 *   GD_TRY(gd_file_make_folder("out", err));
 *   GD_TRY(gd_file_write("out/page.html", text.text, text.length, err));
 */
#ifndef GD_BASE_FILE_H
#define GD_BASE_FILE_H

#include <stddef.h>

#include "base/status.h"
#include "base/strbuf.h"

/* Makes the folder and those above it; one that is there is fine. GD_ENVIRONMENT says which part
   could not be made, and why. */
enum gd_status gd_file_make_folder(const char *path, struct gd_error *err) GD_MUST_USE;
/* Writes under another name beside it, and renames: what was there stays until all is written.
   GD_ENVIRONMENT (no such folder, no permission, full disk) leaves nothing behind. */
enum gd_status gd_file_write(const char *path, const char *bytes, size_t length,
                             struct gd_error *err) GD_MUST_USE;
/* Appends the whole file; GD_ENVIRONMENT where it cannot be read or has more than most bytes. */
enum gd_status gd_file_read(const char *path, size_t most, struct gd_strbuf *to,
                            struct gd_error *err) GD_MUST_USE;

#endif
