// Arguments of kernels/scan.cu and kernels/scan_grad.cu. T0: u, y and their gradients; T1: delta and
// its gradient; T2: b, c and theirs.
#ifndef GD_SCAN_ARGS_CUH
#define GD_SCAN_ARGS_CUH
#include "args.cuh"

struct gd_scan_args {
  GD_IN(T0) u;
  GD_IN(T1) delta;
  const float *a_log;
  GD_IN(T2) b;
  GD_IN(T2) c;
  const float *d;
  GD_OUT(T0) y;
  float *saved; // the state before each chunk: [B, chunks, C, S]
  int64_t steps, channels;
};
GD_ARGS_SIZE(struct gd_scan_args, 80);

// One slice of the backward scan: some sequences, chunks [begin, end) of each.
struct gd_scan_grad_args {
  GD_IN(T0) dy;
  GD_IN(T0) u;
  GD_IN(T1) delta;
  const float *a_log;
  GD_IN(T2) b;
  GD_IN(T2) c;
  const float *d;
  const float *saved; // as the forward scan left it
  GD_OUT(T0) du;
  GD_OUT(T1) ddelta;
  float *partial;   // shares of db and dc: [sequence, group, chunk, S, b | c, CHUNK]
  float *partial_a; // of dA_log: [sequence, C, S]
  float *partial_d; // of dd: [sequence, C]
  float *carry;     // dL/dh between parts and slices: [sequence, C, S]; NULL: not needed
  uint32_t *finished; // tickets: parts done by each CTA, then CTAs started
  int64_t first_batch;       // of the slice
  int64_t begin, end;
  int64_t steps, channels;
  int32_t from_carry; // whether the slice behind has left dL/dh
  int32_t parts;      // of the chunks, each with CTAs of its own
};
GD_ARGS_SIZE(struct gd_scan_grad_args, 168);

struct gd_scan_sums_args {
  const float *partial;
  GD_OUT(T2) db;
  GD_OUT(T2) dc;
  int64_t sequences, groups, chunks;
  int64_t first_batch, first, steps;
};
GD_ARGS_SIZE(struct gd_scan_sums_args, 72);

#endif
