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
#include "base/strbuf.h"

/* Kills what descends from this process, but not spare (0: nobody); says how many there were. */
int gd_process_kill_descendants(pid_t spare);
/* Kills and buries until nothing is left; a second at most. */
void gd_process_sweep(void);
/* The path of the program that runs; GD_ENVIRONMENT without /proc. */
enum gd_status gd_process_self(char *path, size_t size, struct gd_error *err) GD_MUST_USE;

/* What a command wrote, and how it ended; free with gd_process_output_deinit. */
struct gd_process_output {
  struct gd_strbuf out, errors;
  int code; /* exit code; 128 + signal where one ended it */
};
/*
 * Runs a command of the system (arguments[0] is looked for in PATH, NULL ends them) to its end, out
 * of reach of a Ctrl-C at the terminal, with no input. GD_UNSUPPORTED where there is no such
 * command, GD_ENVIRONMENT when it cannot be run or takes longer than timeout_s, when it is killed.
 * A code other than 0 is the caller's business.
 */
enum gd_status gd_process_run(const char *const *arguments, double timeout_s,
                              struct gd_process_output *output, struct gd_error *err) GD_MUST_USE;
void gd_process_output_deinit(struct gd_process_output *output);

/* Resident set of this process in bytes, or -1. */
int64_t gd_process_resident_bytes(void);

#endif
