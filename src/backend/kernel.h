/*
 * What a host kernel sees: one op with its tensors as plain memory. The ref and the cpu backend
 * are each a table of these, one row an op; both are driven by backend/host.c.
 *
 * Contract of every kernel: inputs and outputs are dense, row-major, aligned to
 * gd_caps.alignment_bytes at the start of their storage (views into a storage may be less aligned);
 * any dim may be zero or odd; output 0 may be the same memory as an input that ops.def permits; an
 * output whose bit in `adds` is set is added to what its memory holds; no allocation, no I/O, no
 * failure.
 */
#ifndef GD_BACKEND_KERNEL_H
#define GD_BACKEND_KERNEL_H

#include "comm/comm.h"
#include "ir/graph.h"

struct gd_view {
  void *data; /* NULL for an absent optional input */
  enum gd_dtype dtype;
  uint32_t rank;
  const int64_t *dims;
  int64_t elements; /* product of dims */
};

/* A view as rows of its last dim. */
static inline int64_t gd_view_columns(const struct gd_view *view) {
  return view->rank ? view->dims[view->rank - 1] : 1;
}

static inline int64_t gd_view_rows(const struct gd_view *view) {
  int64_t rows = 1;
  for (uint32_t i = 0; i + 1 < view->rank; i++)
    rows *= view->dims[i];
  return rows;
}

/* Products of the dims before and after `dim`. */
static inline void gd_view_around(const struct gd_view *view, uint32_t dim, int64_t *outer,
                                  int64_t *inner) {
  *outer = *inner = 1;
  for (uint32_t i = 0; i < view->rank; i++)
    *(i < dim ? outer : inner) *= i == dim ? 1 : view->dims[i];
}

struct gd_fused_kernel; /* codegen/codegen.h */
struct gd_cuda_fused;

struct gd_kernel_args {
  const union gd_attr *attr;
  const struct gd_fused_kernel *fused;      /* of a fused op: what was built for it */
  const struct gd_cuda_fused *device_fused; /* likewise, for a GPU: backend/cuda/runtime/fused.h */
  uint32_t n_in, n_out;
  uint32_t adds; /* bit i: output i, fp32, is added to its memory; only bits that ops.def permits */
  const struct gd_view *in;
  const struct gd_view *out;
  void *workspace; /* 64-byte aligned; contents do not survive the call. What the backend's
                      gd_caps promises, then gd_op_scratch_bytes */
  int64_t workspace_bytes;
  int threads;
  bool *left_to_ref; /* set when a cpu kernel leaves the op to ref; NULL: nobody asks */

  /* Of collectives alone, which run on the communication thread. */
  struct gd_comm *comm; /* NULL: one rank */
  void *comm_scratch;
  int64_t comm_scratch_bytes;
  struct gd_error *err; /* a collective can fail: another rank may have died */
};

static inline bool gd_kernel_adds(const struct gd_kernel_args *args, uint32_t output) {
  return args->adds >> output & 1u;
}

typedef void (*gd_kernel)(const struct gd_kernel_args *args);

/* The two tables, indexed by enum gd_op_kind; NULL where ops.def says `none`. */
extern const gd_kernel gd_ref_kernels[GD_OP_COUNT];
extern const gd_kernel gd_cpu_kernels[GD_OP_COUNT];

/* gd_cpu_<op> of every row of ops.def, and gd_host_<op> where it says `host`: copies and
   collectives, the same for cpu and ref (host_ranks.c). */
#define CPU_none(name)
#define CPU_own(name)        void gd_cpu_##name(const struct gd_kernel_args *args);
#define CPU_own_or_ref(name) void gd_cpu_##name(const struct gd_kernel_args *args);
#define CPU_host(name)       void gd_host_##name(const struct gd_kernel_args *args);
#define GD_OP(name, min, max, attr, doc, shape, grad, cost, flops, lower, ref, cpu, ...) \
  CPU_##cpu(name)
#include "ir/ops.def"
#undef GD_OP
#undef CPU_none
#undef CPU_own
#undef CPU_own_or_ref
#undef CPU_host

/* Scratch the cpu kernels need on this many threads, whatever the shapes up to `widest` columns. */
int64_t gd_cpu_workspace_bytes(int threads, int64_t widest);

#endif
