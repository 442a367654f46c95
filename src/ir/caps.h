/*
 * What a device supports and needs, as plain data: the planner reads it and never asks a device,
 * so a hardware record can stand in for hardware one does not own.
 */
#ifndef GD_IR_CAPS_H
#define GD_IR_CAPS_H

#include <stdbool.h>
#include <stdint.h>

#include "ir/dtype.h"

struct gd_caps {
  const char *backend;        /* "ref", "cpu" */
  int64_t alignment_bytes;    /* of every tensor in an arena */
  int64_t workspace_bytes;    /* scratch reserved once, shared by all ops of a program */
  int64_t column_bytes;       /* ... and at least this much per column of the widest row */
  int64_t comm_bytes;         /* scratch of collectives, where there are several ranks */
  bool compile;               /* runs fused ops: the compile pass may make them */
  double enough_flops;        /* a pass of more model FLOPs gains nothing; 0: no bound */
  bool dtype[GD_DTYPE_COUNT]; /* computes in this dtype at a useful speed */
};

#endif
