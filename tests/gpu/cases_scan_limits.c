/*
 * Cases for test_cuda_ops.c and test_cuda_kernels.c: the scan's gradient on a device with less
 * shared memory, and with less workspace, than there is. What is said of sizes here is what
 * op_scan.c does with them: where it changes, so may the path that a case takes.
 */
#include "gpu/cuda_cases.h"

static void check_scan_grad(const struct scan_shape *shape, enum gd_dtype dtype) {
  check_scan_of(GD_OP_scan_grad, shape, 0, dtype, GD_DTYPE_F32);
}

/* Launches of all runs of a case; 0 where it only notes its kernels or is left out. */
static int64_t launches_with(int64_t workspace_bytes, const struct scan_shape *shape,
                             enum gd_dtype dtype) {
  int64_t before = cuda_ops_launches();
  cuda_ops_limit(0, workspace_bytes);
  check_scan_grad(shape, dtype);
  cuda_ops_limit(0, 0);
  return cuda_ops_launches() - before;
}

/*
 * Channels that could be read as vectors, and so many states that with b and c staged not even the
 * smallest block fits, whatever their dtype: they are read in place then. Of 64 KiB the staged
 * block lacks 10 KiB at least, and the other leaves 15 for what may be added.
 */
static void cases_scan_unstaged(void) {
  static const struct scan_shape shapes[] = {{2, 70, 8, 112}, {1, 129, 36, 112}};
  for (int64_t s = 0; s < COUNT(shapes); s++)
    for (int64_t d = 0; d < COUNT(floats); d++) {
      cuda_ops_limit(64 << 10, 0);
      check_scan_grad(&shapes[s], floats[d]);
      cuda_ops_limit(0, 0);
    }
}

/*
 * Slices: each workspace makes fewer of them than the one before, and so fewer launches. Of three
 * sequences of six chunks, with blocks of 32 channels: one chunk of one sequence, 18 slices; three
 * chunks of two sequences or of the last, 4 slices; all chunks of these, 2; all at once. With
 * blocks of 16 channels: 18, 6, 4 and 1. Then slices of which each has more blocks than run at
 * once (264), so that it has parts too: half of the chunks of all sequences, and all chunks of half
 * of the sequences.
 */
static void cases_scan_slices(void) {
  static const struct {
    struct scan_shape shape;
    int64_t workspace_bytes[4]; /* the last: 0, all */
  } sliced[] = {
      {{3, 330, 40, 16}, {32 << 10, 150000, 210000, 0}},
      {{280, 330, 3, 2}, {1400000, 0}},
      {{540, 66, 3, 2}, {600000, 0}},
  };
  for (int64_t s = 0; s < COUNT(sliced); s++)
    for (int64_t d = 0; d < 2; d++) {
      int64_t before = 0;
      for (int64_t i = 0; i == 0 || sliced[s].workspace_bytes[i - 1] > 0; i++) {
        int64_t bytes = sliced[s].workspace_bytes[i];
        int64_t launches = launches_with(bytes, &sliced[s].shape, floats[d]);
        op_cases.checked++;
        if (before && launches >= before) {
          print_error("a workspace of %lld bytes (0: all) makes no fewer slices than %lld\n",
                      (long long)bytes, (long long)sliced[s].workspace_bytes[i - 1]);
          op_cases.failed++;
        }
        before = launches;
      }
    }
}

void cases_scan_limits(void) {
  cases_scan_unstaged();
  cases_scan_slices();
}
