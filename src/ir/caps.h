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
  const char *backend;        /* "ref", "cpu", "cuda" */
  int64_t alignment_bytes;    /* of every tensor in an arena */
  int64_t workspace_bytes;    /* scratch reserved once, shared by all ops of a program */
  int64_t column_bytes;       /* ... and at least this much per column of the widest row */
  int64_t comm_bytes;         /* scratch of collectives, where there are several ranks */
  int64_t loss_chunk_bytes;   /* logits that linear_xent should hold at a time; 0: as for a CPU */
  bool compile;               /* runs fused ops: the compile pass may make them */
  bool needs_cc;              /* ... and builds their kernels with the system's C compiler */
  bool tf32;                  /* has faster fp32 GEMMs of lower precision */
  double enough_flops;        /* a micro-step of more model FLOPs gains nothing; 0: no bound */
  bool keeps;                 /* memory that is left over is worth keeping activations in */
  bool dtype[GD_DTYPE_COUNT]; /* computes in this dtype at a useful speed */
  bool dtypes_alone;          /* ... and cannot compute in the others */
};

#endif
