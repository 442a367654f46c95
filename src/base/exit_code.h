/*
 * Exit codes: one table, from a status to the code that the program ends with and back. main, the
 * processes of trials, ranks and cluster jobs end by it, whoever waits for them reads it, and
 * --help and the manual page print it.
 */
#ifndef GD_BASE_EXIT_CODE_H
#define GD_BASE_EXIT_CODE_H

#include "base/status.h"

enum gd_exit {
  GD_EXIT_FINE,
  GD_EXIT_NO, /* also: a trial was refused its memory */
  GD_EXIT_USAGE,
  GD_EXIT_ENVIRONMENT,
  GD_EXIT_INTERNAL,
  GD_EXIT_COUNT
};

struct gd_exit_row {
  const char *word;      /* "usage" */
  const char *meaning;   /* "an unknown command, option or model, ..." */
  enum gd_status status; /* what a process stands for that ends with it */
};
extern const struct gd_exit_row gd_exits[GD_EXIT_COUNT];

enum gd_exit gd_exit_of(enum gd_status status);
/* A code that no gpudays ends with is GD_INTERNAL. */
enum gd_status gd_exit_status(int code);

#endif
