/*
 * OpenMPI's mpirun as a child process: found, started, listened to, and ended with all of its ranks
 * whatever happens. Its reports on stderr become one sentence.
 */
#ifndef GD_CLI_MPIRUN_H
#define GD_CLI_MPIRUN_H

#include <stddef.h>

#include "base/status.h"

/* The path of mpirun; GD_ENVIRONMENT with the remedy where there is none. */
enum gd_status gd_mpirun_find(char *path, size_t size, struct gd_error *err) GD_MUST_USE;

/*
 * Runs arguments[0] with those arguments (NULL at the end) until it and all its descendants are
 * gone. *code is the exit code of ranks that ended in order or said themselves why not. A rank or
 * mpirun that died is GD_ENVIRONMENT. SIGINT, SIGTERM and SIGHUP end the ranks within a second,
 * then this process.
 */
enum gd_status gd_mpirun_run(const char *const *arguments, int *code,
                             struct gd_error *err) GD_MUST_USE;

#endif
