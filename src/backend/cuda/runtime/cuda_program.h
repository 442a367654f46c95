/*
 * What the files of the CUDA runtime share about bound programs: cuda_bind.c makes the launches,
 * cuda_launch.c puts them on streams, cuda.c runs the captured graphs, cuda_device.c and
 * cuda_memory.c are the device and its arenas below them.
 */
#ifndef GD_BACKEND_CUDA_RUNTIME_CUDA_PROGRAM_H
#define GD_BACKEND_CUDA_RUNTIME_CUDA_PROGRAM_H

#include "backend/bind.h"
#include "backend/cuda/runtime/cuda_int.h"

/* In functions with `cuda` and `err`: relays a failure of the driver. */
#define GD_CUDA_TRY(call, what) GD_TRY(gd_cuda_check(cuda, (call), (what), err))

/* A context with its kernels and libraries takes half a GiB to one; more is another program's. */
#define GD_CUDA_OWN_BYTES (INT64_C(3) << 30)

/* Work of the host inside a graph. */
struct gd_cuda_job {
  gd_kernel kernel;
  struct gd_kernel_args args;
};

struct gd_cuda_launch {
  struct gd_launch *op;            /* tensors, and what it waits for */
  gd_cuda_op function;             /* NULL: a copy, a collective, or the host's work */
  struct gd_cuda_job *job;         /* what the host does, if anything */
  bool by_nccl;                    /* a collective that NCCL carries */
  CUevent done;                    /* of an asynchronous launch */
  struct gd_cuda_toggles *toggles; /* NULL: its integer inputs are computed; all of it runs */
};

struct gd_bound {
  struct gd_arena arena;
  struct gd_cuda_fusions *fusions;
  struct gd_cuda_launch *launches[GD_PROGRAM_COUNT];
  uint32_t n_launches[GD_PROGRAM_COUNT];
  CUgraphExec graphs[GD_PROGRAM_COUNT]; /* NULL with trace, and for empty programs */
  struct gd_cuda_toggles *toggles[GD_PROGRAM_COUNT];
  struct gd_event *events[GD_PROGRAM_COUNT]; /* with trace */
  CUevent *marks;                            /* with trace: before and after each op */
  uint32_t n_marks;
  CUevent fork;   /* what the communication stream waits for */
  void **staging; /* pinned, one for each collective between ranks */
  uint32_t n_staging;
};

static inline struct gd_cuda *gd_cuda_of(struct gd_backend *backend) {
  return (struct gd_cuda *)backend;
}

/* --- the device: cuda_device.c --------------------------------------------------------------- */

enum gd_status gd_cuda_device_find(struct gd_cuda *cuda, int local_rank,
                                   struct gd_error *err) GD_MUST_USE;
/* Sets cuda->sharing: how many ranks have one GPU. All ranks call it. */
enum gd_status gd_cuda_device_sharing(struct gd_cuda *cuda, struct gd_error *err) GD_MUST_USE;
/* Makes the context current, with its streams and modules; they are made on the first call. */
enum gd_status gd_cuda_context(struct gd_cuda *cuda, struct gd_error *err) GD_MUST_USE;
/* How much of the GPU is free, for the end of a sentence. */
const char *gd_cuda_say_free(const struct gd_cuda *cuda, char *text, size_t size);
/* Rows of gd_backend_ops. */
void gd_cuda_caps(const struct gd_backend_options *options, struct gd_caps *caps);
void gd_cuda_describe(struct gd_backend *backend, struct gd_device_info *info);
double gd_cuda_peak_flops(struct gd_backend *backend, enum gd_dtype dtype, bool tf32);

/* --- memory: cuda_memory.c ------------------------------------------------------------------- */

enum gd_status gd_cuda_arenas_make(struct gd_cuda *cuda, int64_t device_bytes, int64_t host_bytes,
                                   struct gd_error *err) GD_MUST_USE;
void gd_cuda_arenas_free(struct gd_cuda *cuda);
/* Puts a copy on the stream, between any two memories. */
enum gd_status gd_cuda_copy(struct gd_cuda *cuda, void *to, const void *from, int64_t bytes,
                            CUstream stream, struct gd_error *err) GD_MUST_USE;
/* Waits for a stream. Where NCCL's kernels are on it, other ranks may never come: with a limit. */
enum gd_status gd_cuda_wait(struct gd_cuda *cuda, CUstream stream, const char *what,
                            struct gd_error *err) GD_MUST_USE;
/* Rows of gd_backend_ops. */
void *gd_cuda_host_memory(struct gd_backend *backend);
void gd_cuda_usage(struct gd_backend *backend, int64_t *plan_bytes, int64_t *runtime_bytes);
enum gd_status gd_cuda_write(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                             const void *from, int64_t bytes, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_cuda_clear(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                             int64_t bytes, struct gd_error *err) GD_MUST_USE;
void *gd_cuda_pin(struct gd_backend *backend, int64_t bytes);
void gd_cuda_unpin(struct gd_backend *backend, void *at, int64_t bytes);
enum gd_status gd_cuda_read(struct gd_backend *backend, enum gd_space space, int64_t offset_bytes,
                            void *to, int64_t bytes, struct gd_error *err) GD_MUST_USE;

/* --- launches: cuda_launch.c ----------------------------------------------------------------- */

static inline bool gd_cuda_is_collective(enum gd_op_kind kind) {
  return gd_op_info(kind)->exchange != GD_EXCHANGE_NONE;
}
/* Whether a collective reads the flat tensor of all ranks' slices and leaves one slice of it. */
static inline bool gd_cuda_scatters(enum gd_op_kind kind) {
  return gd_op_info(kind)->exchange == GD_EXCHANGE_SUM;
}
/* What a collective works on: the flat tensor of all ranks' slices. */
const struct gd_view *gd_cuda_whole_of(const struct gd_launch *launch);
enum gd_status gd_cuda_launch_collective(struct gd_cuda *cuda, const struct gd_cuda_launch *launch,
                                         CUstream stream, struct gd_error *err) GD_MUST_USE;
/* Every op of every program at a stage before the capture. */
enum gd_status gd_cuda_launch_stage(struct gd_cuda *cuda, struct gd_bound *bound,
                                    enum gd_cuda_stage stage, struct gd_error *err) GD_MUST_USE;
/* A program on both streams; the communication stream starts and ends inside. */
enum gd_status gd_cuda_launch_program(struct gd_cuda *cuda, struct gd_bound *bound,
                                      enum gd_program program, struct gd_error *err) GD_MUST_USE;

/* --- binding: cuda_bind.c -------------------------------------------------------------------- */

/*
 * A rank that fails alone would begin the next trial while the others wait for it in this one, and
 * messages of one would be taken for those of the other. So all fail with it, for its reason.
 */
enum gd_status gd_cuda_agree(struct gd_cuda *cuda, enum gd_status status,
                             struct gd_error *err) GD_MUST_USE;
/* Waits for everything that was launched; with NCCL up to a limit, past which cuda->stuck is set.
   Returns the driver's status. */
int gd_cuda_drain(struct gd_cuda *cuda);
/* Rows of gd_backend_ops. */
enum gd_status gd_cuda_bind(struct gd_backend *backend, const struct gd_plan *plan,
                            struct gd_bound **bound, struct gd_error *err) GD_MUST_USE;
void gd_cuda_unbind(struct gd_backend *backend, struct gd_bound *bound);

#endif
