/*
 * Folders that a process works in: locked as long as it uses them, and removed with all that is in
 * them. The kernel drops the lock of a process that is killed, so whoever comes next can tell a
 * folder in use from one that was left behind. A lock is also a claim: one process at a time.
 *
 *   struct gd_scratch scratch = GD_SCRATCH_NONE;
 *   GD_TRY(gd_scratch_open(&scratch, NULL, "gpudays-plot-", err));
 *   ... files in scratch.path ...
 *   gd_scratch_remove(&scratch);
 *
 * On a file system without locks every folder counts as free, and none is swept.
 */
#ifndef GD_BASE_SCRATCH_H
#define GD_BASE_SCRATCH_H

#include <stdbool.h>

#include "base/status.h"

enum { GD_SCRATCH_PATH = 4096 - 64 };

struct gd_scratch {
  char path[GD_SCRATCH_PATH]; /* empty: none is held */
  int lock;                   /* descriptor of the file "lock" in it; -1: none */
};
#define GD_SCRATCH_NONE ((struct gd_scratch){.lock = -1})

/* gd_scratch_sweep, then gd_scratch_make, in parent; NULL: $TMPDIR, else /tmp. */
enum gd_status gd_scratch_open(struct gd_scratch *scratch, const char *parent, const char *prefix,
                               struct gd_error *err) GD_MUST_USE;
/* A new folder, for this user alone, whose name begins with prefix. GD_ENVIRONMENT where it cannot
   be made; then nothing is held. */
enum gd_status gd_scratch_make(struct gd_scratch *scratch, const char *parent, const char *prefix,
                               struct gd_error *err) GD_MUST_USE;
/* The folder of that name with what it holds, made where there is none. *taken false: another
   process holds it. */
enum gd_status gd_scratch_take(struct gd_scratch *scratch, const char *parent, const char *name,
                               bool *taken, struct gd_error *err) GD_MUST_USE;
/* Whether it has a file of that name, looked up anew also on a network file system. */
bool gd_scratch_has(const struct gd_scratch *scratch, const char *name);
/* Both do nothing where none is held, also on a zeroed one. */
void gd_scratch_remove(struct gd_scratch *scratch);
void gd_scratch_leave(struct gd_scratch *scratch); /* for the next process that takes it */

/*
 * Removes the folders of this user in parent whose names begin with prefix and that nobody holds.
 * One with a file named keep (NULL: none) stays until it is that many days old.
 */
void gd_scratch_sweep(const char *parent, const char *prefix, const char *keep, int days);

/* Removes a folder and what is inside; links are removed, never followed. */
void gd_scratch_remove_tree(const char *path);

#endif
