/*
 * The files of a tar archive in memory, one after the other: ustar, with the long names and sizes
 * of GNU tar and pax. Links, folders and devices are passed over.
 *
 *   struct gd_tar tar = {.bytes = map, .size = size, .path = "shard.tar"};
 *   while (gd_tar_next(&tar, &member, &status, err)) ...
 */
#ifndef GD_DATA_TAR_H
#define GD_DATA_TAR_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

enum { GD_TAR_NAME = 1024 };

struct gd_tar {
  const uint8_t *bytes;
  int64_t size;
  const char *path; /* for sentences */
  int64_t at;       /* where the next header is */
};

struct gd_tar_member {
  char name[GD_TAR_NAME];
  int64_t first, bytes; /* its content in the archive */
};

/* False at the end, or with *status GD_BAD_INPUT: no archive, a damaged header, a cut file. */
bool gd_tar_next(struct gd_tar *tar, struct gd_tar_member *member, enum gd_status *status,
                 struct gd_error *err);

#endif
