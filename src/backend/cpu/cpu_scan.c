/*
 * The selective scan and its gradient. Letters: B sequences, T steps, C channels, S states.
 *
 * Forward, a task is a group of channels of one sequence, walked from its first step to its last
 * with the state in the thread's scratch. Backward, all groups take one chunk of GD_SCAN_CHUNK
 * steps of one sequence at a time, from the last chunk to the first: a group recomputes the states
 * within the chunk from the one stored before it, and leaves its part of db and dc, which are sums
 * over channels; these parts are then added in the order of the groups. What a group carries from
 * chunk to chunk is dL/dh. Results do not depend on the number of threads.
 *
 * Bound: arithmetic, on AVX-512 8 multiplications a state, channel and step forward, 5 of them in
 * the exponential; backward 15, and what recompute writes and walk_back reads, which is in L2.
 */
#include <omp.h>
#include <string.h>

#include "backend/cpu/cpu_int.h"

/* u, delta, A_log, b, c, d from input `first` on. */
static struct gd_cpu_scan describe(const struct gd_kernel_args *args, uint32_t first) {
  const struct gd_view *u = &args->in[first];
  return (struct gd_cpu_scan){
      .dtype = u->dtype,
      .dtype_delta = args->in[first + 1].dtype,
      .dtype_b = args->in[first + 3].dtype,
      .steps = u->dims[1],
      .channels = u->dims[2],
      .states = args->in[first + 2].dims[1],
      .chunks = (u->dims[1] + GD_SCAN_CHUNK - 1) / GD_SCAN_CHUNK,
      .u = u->data,
      .delta = args->in[first + 1].data,
      .a_log = args->in[first + 2].data,
      .b = args->in[first + 3].data,
      .c = args->in[first + 4].data,
      .d = args->in[first + 5].data,
  };
}

static int64_t groups_of(const struct gd_cpu_scan *scan) {
  return (scan->channels + GD_CPU_SCAN_CHANNELS - 1) / GD_CPU_SCAN_CHANNELS;
}

/* Whether the scratch has room; no model has more, but that is no error. By the shape alone. */
static bool fits(const struct gd_cpu_scan *scan) {
  return scan->states <= GD_CPU_SCAN_MOST_STATES &&
         groups_of(scan) * GD_CPU_SCAN_CHANNELS * scan->states <= GD_CPU_SCAN_CARRIED;
}

/* Each thread's scratch comes first, then what all share. */
static struct gd_cpu_scan_scratch *scratch_of(const struct gd_kernel_args *args, int thread) {
  return (struct gd_cpu_scan_scratch *)args->workspace + thread;
}

void gd_cpu_scan(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  struct gd_cpu_scan scan = describe(args, 0);
  if (!fits(&scan)) {
    gd_cpu_leave_to_ref(GD_OP_scan, args);
    return;
  }
  scan.y = args->out[0].data;
  scan.saved = args->out[1].data;
  int64_t groups = groups_of(&scan), tasks = args->in[0].dims[0] * groups;
  int threads = gd_cpu_threads(args, args->in[0].elements * (scan.states + 1) * 4);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t task = 0; task < tasks; task++)
    rows->scan(&scan, task / groups, task % groups, scratch_of(args, omp_get_thread_num()));
}

/* db and dc of one chunk, elements begin .. end - 1 of its [steps][S]: the sums over the groups. */
static void add_groups(const struct gd_cpu_rows *rows, const struct gd_cpu_scan *scan,
                       const struct gd_view *out, int64_t at, const float *partials, int64_t begin,
                       int64_t end) {
  enum { COLUMNS = 512 };
  int64_t stride = 2 * GD_SCAN_CHUNK * scan->states;
  for (int64_t i = begin; i < end; i += COLUMNS) {
    float sums[COLUMNS] = {0};
    int64_t count = end - i < COLUMNS ? end - i : COLUMNS;
    rows->sum_rows(GD_DTYPE_F32, sums, partials + i, groups_of(scan), stride, count);
    rows->convert(out->dtype, gd_cpu_at(out, at + i), GD_DTYPE_F32, sums, count);
  }
}

void gd_cpu_scan_grad(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *dy = &args->in[0], *db = &args->out[3], *dc = &args->out[4];
  struct gd_cpu_scan scan = describe(args, 1);
  if (!fits(&scan)) {
    gd_cpu_leave_to_ref(GD_OP_scan_grad, args);
    return;
  }
  int threads = gd_cpu_threads(args, dy->elements * (scan.states + 1) * 8);
  int64_t groups = groups_of(&scan);
  scan.dtype_dy = dy->dtype;
  scan.dy = dy->data;
  scan.saved = args->in[7].data;
  scan.du = args->out[0].data;
  scan.ddelta = args->out[1].data;
  scan.da_log = args->out[2].data;
  scan.dd = args->out[5].data;
  scan.carried = (float *)scratch_of(args, threads);
  scan.partials = scan.carried + groups * GD_CPU_SCAN_CHANNELS * scan.states;
  const float *partials_c = scan.partials + GD_SCAN_CHUNK * scan.states;
  scan.adds_a_log = gd_kernel_adds(args, 2);
  scan.adds_d = gd_kernel_adds(args, 5);
  if (dy->dims[0] * scan.steps == 0) { /* nothing to sum */
    if (!scan.adds_a_log)
      memset(scan.da_log, 0, (size_t)args->out[2].elements * sizeof *scan.da_log);
    if (!scan.adds_d)
      memset(scan.dd, 0, (size_t)args->out[5].elements * sizeof *scan.dd);
  }
#pragma omp parallel num_threads(threads)
  for (int64_t batch = 0; batch < dy->dims[0]; batch++)
    for (int64_t chunk = scan.chunks - 1; chunk >= 0; chunk--) {
#pragma omp for schedule(static)
      for (int64_t group = 0; group < groups; group++)
        rows->scan_grad(&scan, batch, chunk, group, scratch_of(args, omp_get_thread_num()));
      int64_t first = chunk * GD_SCAN_CHUNK, left = scan.steps - first;
      int64_t sums = (left < GD_SCAN_CHUNK ? left : GD_SCAN_CHUNK) * scan.states;
      int64_t at = (batch * scan.steps + first) * scan.states;
#pragma omp for schedule(static)
      for (int part = 0; part < threads; part++) {
        struct gd_cpu_range range = gd_cpu_share(sums, GD_CPU_LINE_ELEMENTS, part, threads);
        add_groups(rows, &scan, db, at, scan.partials, range.begin, range.end);
        add_groups(rows, &scan, dc, at, partials_c, range.begin, range.end);
      }
    }
}
