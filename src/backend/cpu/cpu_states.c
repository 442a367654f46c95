/*
 * The selective scan in parts, as a graph without fused kernels has it: everything per step,
 * channel and state is written out in fp32. Letters: B sequences, T steps, C channels, S states;
 * a row is one of the B T steps.
 *
 * Threads share out rows where a step stands alone, and channels where steps are summed over or
 * depend on each other, so no sum is ever split: results do not depend on the number of threads.
 *
 * Bound: bytes, all but decay's, whose exponential takes about as long as writing its result.
 */
#include <omp.h>

#include "backend/cpu/cpu_int.h"

_Static_assert(sizeof(struct gd_cpu_states_scratch) <= sizeof(struct gd_cpu_scan_scratch),
               "the scratch of scan, which gd_cpu_workspace_bytes counts, serves");

/* Sizes out of [B,T,C,S]. */
static struct gd_cpu_states describe(const struct gd_view *states) {
  return (struct gd_cpu_states){
      .steps = states->dims[1], .channels = states->dims[2], .states = states->dims[3]};
}

/* Whether the scratch has room; no model has more, but that is no error. By the shape alone. */
static bool fits(const struct gd_cpu_states *p) {
  return p->states <= GD_CPU_STATES_MOST;
}

static struct gd_cpu_states_scratch *scratch_of(const struct gd_kernel_args *args, int thread) {
  return (struct gd_cpu_states_scratch *)args->workspace + thread;
}

typedef void row_loop(const struct gd_cpu_states *p, int64_t begin, int64_t end,
                      struct gd_cpu_states_scratch *own);

static void share_rows(const struct gd_kernel_args *args, const struct gd_view *states,
                       const struct gd_cpu_states *p, row_loop *loop) {
  int threads = gd_cpu_threads(args, states->elements * 4);
  int64_t rows = states->dims[0] * states->dims[1];
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(rows, 1, part, threads);
    loop(p, range.begin, range.end, scratch_of(args, part));
  }
}

void gd_cpu_decay(const struct gd_kernel_args *args) {
  struct gd_cpu_states p = describe(&args->out[0]);
  if (!fits(&p)) {
    gd_cpu_leave_to_ref(GD_OP_decay, args);
    return;
  }
  p.dtype_c = args->in[0].dtype;
  p.along_c = args->in[0].data;
  p.a_log = args->in[1].data;
  p.out = args->out[0].data;
  share_rows(args, &args->out[0], &p, gd_cpu_rows()->decay);
}

void gd_cpu_outer(const struct gd_kernel_args *args) {
  struct gd_cpu_states p = describe(&args->out[0]);
  if (!fits(&p)) {
    gd_cpu_leave_to_ref(GD_OP_outer, args);
    return;
  }
  p.dtype_c = args->in[0].dtype;
  p.along_c = args->in[0].data;
  p.dtype_s = args->in[1].dtype;
  p.along_s = args->in[1].data;
  p.out = args->out[0].data;
  share_rows(args, &args->out[0], &p, gd_cpu_rows()->outer);
}

void gd_cpu_contract_states(const struct gd_kernel_args *args) {
  struct gd_cpu_states p = describe(&args->in[0]);
  if (!fits(&p)) {
    gd_cpu_leave_to_ref(GD_OP_contract_states, args);
    return;
  }
  p.x = args->in[0].data;
  p.dtype_s = args->in[1].dtype;
  p.along_s = args->in[1].data;
  p.dtype_c = args->out[0].dtype;
  p.out_c = args->out[0].data;
  share_rows(args, &args->in[0], &p, gd_cpu_rows()->contract_states);
}

void gd_cpu_contract_channels(const struct gd_kernel_args *args) {
  struct gd_cpu_states p = describe(&args->in[0]);
  if (!fits(&p)) {
    gd_cpu_leave_to_ref(GD_OP_contract_channels, args);
    return;
  }
  p.x = args->in[0].data;
  p.dtype_c = args->in[1].dtype;
  p.along_c = args->in[1].data;
  p.dtype_s = args->out[0].dtype;
  p.out_s = args->out[0].data;
  share_rows(args, &args->in[0], &p, gd_cpu_rows()->contract_channels);
}

void gd_cpu_decay_grad(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *da = &args->in[0];
  struct gd_cpu_states p = describe(da);
  if (!fits(&p)) {
    gd_cpu_leave_to_ref(GD_OP_decay_grad, args);
    return;
  }
  p.grad = da->data;
  p.a = args->in[1].data;
  p.dtype_c = args->in[2].dtype;
  p.along_c = args->in[2].data;
  p.a_log = args->in[3].data;
  p.out_c = args->out[0].data;
  p.out_a_log = args->out[1].data;
  int threads = gd_cpu_threads(args, 2 * da->elements * 4);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int part = 0; part < threads; part++) {
    /* Whole groups of channels: which sum is taken how depends on the shape alone. */
    struct gd_cpu_range range = gd_cpu_share(p.channels, 16, part, threads);
    rows->decay_grad(&p, da->dims[0] * da->dims[1], range.begin, range.end, scratch_of(args, part));
  }
}

typedef void step_loop(const struct gd_cpu_states *p, int64_t batch, int64_t begin, int64_t end);

static void share_elements(const struct gd_kernel_args *args, const struct gd_cpu_states *p,
                           step_loop *loop) {
  const struct gd_view *states = &args->in[0];
  int threads = gd_cpu_threads(args, 3 * states->elements * 4);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range =
        gd_cpu_share(p->channels * p->states, GD_CPU_LINE_ELEMENTS, part, threads);
    for (int64_t batch = 0; batch < states->dims[0]; batch++)
      loop(p, batch, range.begin, range.end);
  }
}

void gd_cpu_recur(const struct gd_kernel_args *args) {
  struct gd_cpu_states p = describe(&args->in[0]);
  p.a = args->in[0].data;
  p.x = args->in[1].data;
  p.out = args->out[0].data;
  share_elements(args, &p, gd_cpu_rows()->recur);
}

void gd_cpu_recur_grad(const struct gd_kernel_args *args) {
  struct gd_cpu_states p = describe(&args->in[0]);
  p.grad = args->in[0].data;
  p.a = args->in[1].data;
  p.x = args->in[2].data;
  p.out = args->out[0].data;
  p.out_a = args->out[1].data;
  share_elements(args, &p, gd_cpu_rows()->recur_grad);
}
