/*
 * Folders for the work of one process: made with a random name and for its user alone (0700), held
 * by a lock, and removed with all that is inside. One whose process was killed is removed by the
 * next process that makes one of the same name in the same place.
 *
 *   struct gd_scratch scratch;
 *   GD_TRY(gd_scratch_open(&scratch, NULL, "gpudays-plot-", err));
 *   ... files in scratch.path ...
 *   gd_scratch_close(&scratch);
 */
#ifndef GD_BASE_SCRATCH_H
#define GD_BASE_SCRATCH_H

#include <limits.h>

#include "base/status.h"

struct gd_scratch {
  char path[PATH_MAX]; /* empty: not open */
  int lock;            /* descriptor of the folder; -1: the file system has no locks */
};

/* In parent (NULL: $TMPDIR, else /tmp), as <prefix> and six random characters. GD_ENVIRONMENT says
   why there is none. */
enum gd_status gd_scratch_open(struct gd_scratch *scratch, const char *parent, const char *prefix,
                               struct gd_error *err) GD_MUST_USE;
void gd_scratch_close(struct gd_scratch *scratch); /* safe on a zeroed one, and twice */
/* Removes a folder and what is inside; links are removed, not followed. */
void gd_scratch_remove(const char *path);

#endif
