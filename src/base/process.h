/*
 * Processes that this one has started, and what these have started in turn: found in /proc, and
 * ended. With PR_SET_CHILD_SUBREAPER orphans become children of this process, so that none is
 * missed, whatever process group or session it has moved to.
 */
#ifndef GD_BASE_PROCESS_H
#define GD_BASE_PROCESS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"

/* Kills what descends from this process, but not spare (0: nobody); says how many there were. */
int gd_process_kill_descendants(pid_t spare);
/* Kills and buries until nothing is left; a second at most. */
void gd_process_sweep(void);
/* The path of the program that runs; GD_ENVIRONMENT without /proc. */
enum gd_status gd_process_self(char *path, size_t size, struct gd_error *err) GD_MUST_USE;
/* Resident set of this process in bytes, or -1. */
int64_t gd_process_resident_bytes(void);

#endif
