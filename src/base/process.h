/*
 * Processes that this one starts, and what these start in turn: found in /proc, and ended. With
 * PR_SET_CHILD_SUBREAPER orphans become children of this process, so that none is missed, whatever
 * process group or session it has moved to.
 *
 *   struct gd_process process;
 *   GD_TRY(gd_process_start(&order, &process, err));
 *   while (waitpid(process.pid, &status, WNOHANG) == 0)
 *     ... poll process.errors and process.signals.fd ...
 *   gd_process_sweep();
 *   gd_process_close(&process);
 */
#ifndef GD_BASE_PROCESS_H
#define GD_BASE_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "base/strbuf.h"

/*
 * SIGCHLD; SIGINT, SIGTERM, SIGHUP and SIGUSR1 (a batch system's warning), which ask this process
 * to end; and SIGTSTP (Ctrl-Z), which asks it to stop: blocked, and read from fd, which does not
 * block. Those that are ignored, as nohup has it, stay ignored.
 */
struct gd_signals {
  int fd;               /* signalfd */
  unsigned blocked;     /* which of them are blocked by us: a bit each, in that order */
  int64_t suspended_ns; /* how long Ctrl-Z has stopped this process so far */
};
/* False where there is no descriptor to be had, errno says why; then nothing is blocked. */
bool gd_signals_open(struct gd_signals *signals) GD_MUST_USE;
/*
 * The first signal since the last call that asks this process to end; 0: none. After a Ctrl-Z it
 * stops everything that descends from this process, then the process itself; SIGCONT to it resumes
 * both, and the call returns.
 */
int gd_signals_asked(struct gd_signals *signals);
/* Takes signals again; those that wait come now. */
void gd_signals_close(struct gd_signals *signals);

struct gd_process_order {
  const char *name;             /* what it is, for the error: "a trial" */
  const char *const *arguments; /* the first is the program's path; NULL after the last */
  int death_signal;             /* that it gets when this process ends, whatever ends it */
  bool own_group;               /* it leads a process group */
  bool silent;                  /* what it writes to stdout goes nowhere */
  bool expendable;              /* where memory runs out, the kernel is to end it before others */
};

/* A process that runs. */
struct gd_process {
  pid_t pid;
  int errors; /* its stderr, to read from; does not block */
  struct gd_signals signals;
};

/* Starts it with nothing to read on stdin, and becomes the reaper of its orphans. GD_ENVIRONMENT,
   with nothing to close, where that fails; a program that cannot be run ends with code 127. */
enum gd_status gd_process_start(const struct gd_process_order *order, struct gd_process *process,
                                struct gd_error *err) GD_MUST_USE;
/* Closes what was open for it, signals included. */
void gd_process_close(struct gd_process *process);

/* Whether the signal means that a user, the system or a limit ended the process; false: it is a
   fault of the process itself, such as SIGSEGV. */
bool gd_process_was_stopped_by(int signal);

/* Kills all descendants of this process but `spare` (0: none is spared). Returns how many. */
int gd_process_kill_descendants(pid_t spare);
/* Kills and reaps descendants until none is left, for a second at most. */
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
