/*
 * What the files of the CUDA backend share. One op of a plan is one call of a gd_cuda_op, a host
 * function that puts kernels and library calls on a stream; cuda_bind.c captures these calls into
 * CUDA graphs. Kernels are CUDA C files in kernels/, embedded in the binary, built by NVRTC for the
 * exact architecture when they are first wanted, and cached on disk (module.c).
 *
 * Contract of every gd_cuda_op: views hold device addresses and are as struct gd_kernel_args
 * describes them (dense, row-major, any dim may be zero or odd, a view may be aligned to its
 * element alone, output 0 may be an input's memory where ops.def permits it, outputs in `adds` are
 * added to); the same inputs give the same bits (no floating-point atomics; but cuDNN's, which
 * GPUDAYS_DETERMINISTIC leaves out); nothing is allocated; scratch is args->workspace
 * (GD_CUDA_WORKSPACE_BYTES, then gd_op_scratch_bytes).
 */
#ifndef GD_BACKEND_CUDA_RUNTIME_CUDA_INT_H
#define GD_BACKEND_CUDA_RUNTIME_CUDA_INT_H

#include "backend/backend.h"
#include "backend/cuda/runtime/driver.h"
#include "backend/kernel.h"
#include "hw/hw.h"

/* Shared by all ops; also the most that a library's algorithm may want. */
enum { GD_CUDA_WORKSPACE_BYTES = GD_GPU_WORKSPACE_BYTES };

struct gd_cublaslt; /* cublaslt.h */
struct gd_cudnn;    /* cudnn.h */
struct gd_nccl;     /* nccl.h */
struct gd_nvml;     /* nvml.h */
struct gd_cuda_modules;
struct gd_cuda_toggles; /* graph_toggle.h */
struct gd_cuda_nccl;
struct gd_cuda_nvml;
struct gd_cuda_gemms;
struct gd_cuda_cudnn;
struct gd_cuda_autotune;

struct gd_cuda {
  struct gd_backend base;
  const struct gd_cu *cu;
  int threads; /* of work on the host */
  CUdevice device;
  CUcontext context;
  CUstream stream, comm_stream; /* the computation; copies and collectives */
  int sm;                       /* compute capability: 80, 86, 90 */
  int sm_count;
  int shared_bytes; /* most dynamic shared memory of a block */
  struct gd_cuda_modules *modules;
  struct gd_cuda_autotune *autotune; /* autotune.h; NULL until something is timed or launched */
  struct gd_cuda_gemms *gemms;       /* op_matmul.c: the library; NULL until the first GEMM */
  struct gd_cuda_cudnn *cudnn;       /* attention_cudnn.c: likewise */

  CUdeviceptr arena;
  int64_t arena_bytes;
  int64_t measured_bytes; /* what the driver counted for it; -1: not known */
  void *host;             /* pinned */
  int64_t host_bytes;
  struct gd_comm *comm;      /* borrowed; NULL: one rank */
  int sharing;               /* ranks that have one GPU, where most do; 0: there is no job */
  struct gd_cuda_nccl *nccl; /* nccl.c; NULL: ranks exchange through host memory */
  bool nccl_decided;         /* all ranks know whether they use it */
  struct gd_cuda_nvml *nvml; /* nvml.c; NULL: the clocks are not watched */
  uint64_t writes;           /* counts what may have changed inputs of programs from outside */
  bool trace;
  bool deterministic;         /* GPUDAYS_DETERMINISTIC: nothing whose sums have no fixed order; */
  bool untimed;               /* and where it is 1, nothing is chosen by its time */
  const char *choices;        /* folder where choices are kept; NULL: none */
  int fixed_candidate;        /* GPUDAYS_AUTOTUNE: which candidate runs, from 1 on; 0: by time */
  int epilogues;              /* GEMMs launched with gelu in their epilogue, for tests */
  int64_t slices_by_cudnn;    /* of attention, launched; likewise */
  int64_t short_attentions;   /* launches of attention_short.cu; likewise */
  bool broken;                /* when it is closed: libraries may no longer be asked for anything */
  bool stuck;                 /* kernels that nothing ends: neither may the driver */
  struct gd_error host_error; /* the first failure of work that ran on the host inside a graph */
};

/*
 * What a call is for. Binding a plan calls every op in the first two, before memory holds anything
 * worth keeping, then in the third.
 */
enum gd_cuda_stage {
  GD_CUDA_COLLECT, /* modules are noted, to be built in parallel; nothing runs */
  GD_CUDA_TUNE,    /* algorithms may be timed on the real addresses, whose contents are void;
                      the arena is cleared behind it */
  GD_CUDA_LAUNCH,  /* put it on the stream, which may be capturing: no synchronising, no timing */
};

struct gd_cuda_call {
  struct gd_cuda *cuda;
  const struct gd_kernel_args *args;
  CUstream stream;
  enum gd_cuda_stage stage;
  struct gd_error *err;
  struct gd_cuda_toggles *toggles; /* of the program; NULL: all of the op always runs */
};

typedef enum gd_status (*gd_cuda_op)(const struct gd_cuda_call *call);
/* Indexed by enum gd_op_kind; views have NULL rows. */
extern const gd_cuda_op gd_cuda_ops[GD_OP_COUNT];

/* --- kernels: module.c ---------------------------------------------------------------------- */

enum { GD_CUDA_TYPES = 4 };

/* A __global__ function of kernels/<file>.cu. */
struct gd_cuda_kernel {
  const char *file;
  const char *name;
  const char *defines; /* "HEAD=64 CAUSAL=1": one -D each; NULL: none */
  int n_types;
  enum gd_dtype types[GD_CUDA_TYPES]; /* the macros T0, T1, ...: gd_f32, gd_bf16, gd_f16, gd_i32 */
};

struct gd_cuda_grid {
  int64_t x, y, z; /* blocks; 0 in x: nothing is launched; 0 in y or z stand for 1 */
  int threads;     /* of a block */
  int shared_bytes;
};

/* COLLECT: notes the module. TUNE: nothing. LAUNCH: launches. params: addresses of arguments. */
enum gd_status gd_cuda_launch(const struct gd_cuda_call *call, const struct gd_cuda_kernel *kernel,
                              struct gd_cuda_grid grid, void **params) GD_MUST_USE;
/* Launches at any stage but COLLECT: for timing one's own kernel against a library's. */
enum gd_status gd_cuda_launch_now(const struct gd_cuda_call *call,
                                  const struct gd_cuda_kernel *kernel, struct gd_cuda_grid grid,
                                  void **params) GD_MUST_USE;
/* GD_CUDA_LAUNCH(call, &kernel, grid, &pointer, &count): arguments by address, in order. */
#define GD_CUDA_LAUNCH(call, kernel, grid, ...) \
  gd_cuda_launch(call, kernel, grid, (void *[]){__VA_ARGS__})

/* GD_OK, or the driver's error as a sentence: GD_NOMEM_DEVICE for memory, else GD_ENVIRONMENT. */
enum gd_status gd_cuda_check(const struct gd_cuda *cuda, int result, const char *what,
                             struct gd_error *err) GD_MUST_USE;
/* Likewise for pinning so many bytes of the host: its memory is meant, so GD_NOMEM_HOST. */
enum gd_status gd_cuda_check_pinned(const struct gd_cuda *cuda, int result, int64_t bytes,
                                    struct gd_error *err) GD_MUST_USE;

/* Blocks for `items` at `each` a block, at most `waves` times what the device holds at once
   with one block a multiprocessor; for kernels that stride over the grid. */
static inline int64_t gd_cuda_blocks(const struct gd_cuda *cuda, int64_t items, int64_t each,
                                     int64_t waves) {
  int64_t blocks = (items + each - 1) / each, most = waves * cuda->sm_count;
  return blocks < most ? blocks : most;
}

/* --- libraries: load.c ---------------------------------------------------------------------- */

/* Loaded once, to the end of the process. GD_ENVIRONMENT with what was looked for. */
enum gd_status gd_cu_load(const struct gd_cu **cu, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_cu_nodes_load(const struct gd_cu_nodes **nodes, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_nvrtc_load(const struct gd_nvrtc **nvrtc, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_cublaslt_load(const struct gd_cublaslt **lt, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_cudnn_load(const struct gd_cudnn **dnn, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_nccl_load(const struct gd_nccl **nccl, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_nvml_load(const struct gd_nvml **nvml, struct gd_error *err) GD_MUST_USE;

size_t gd_cudnn_version(void); /* 91900 for 9.19.0; 0: not loaded */

/* A cubin of one module's source text for sm_<sm>; *cubin is freed with gd_mem_free. Needs no GPU.
 */
enum gd_status gd_cuda_compile(const char *name, const char *source, int sm, char **cubin,
                               size_t *bytes, struct gd_error *err) GD_MUST_USE;
/* The text that NVRTC gets for a kernel's module: defines, common.cuh, the file. */
enum gd_status gd_cuda_source(const struct gd_cuda_kernel *kernel, struct gd_strbuf *source,
                              struct gd_error *err) GD_MUST_USE;
/* A function of a module whose text is given (generated kernels): by content, built at once. */
enum gd_status gd_cuda_text_function(struct gd_cuda *cuda, const char *source, const char *name,
                                     CUfunction *function, struct gd_error *err) GD_MUST_USE;

/* --- state of parts, released by close ------------------------------------------------------ */

void gd_cuda_gemms_free(struct gd_cuda *cuda); /* op_matmul.c */
void gd_cuda_cudnn_free(struct gd_cuda *cuda); /* attention_cudnn.c */

/* --- collectives between GPUs: nccl.c --------------------------------------------------------- */

/*
 * Decides, with all other ranks, whether NCCL carries the collectives, and then joins its
 * communicator: cuda->nccl is set. Called by every rank before a plan with collectives is bound.
 */
enum gd_status gd_cuda_nccl_open(struct gd_cuda *cuda, struct gd_error *err) GD_MUST_USE;
void gd_cuda_nccl_free(struct gd_cuda *cuda);
/* The collective in place on the whole of all ranks' slices; what a gather reads is in its slice.
 */
enum gd_status gd_cuda_nccl_put(struct gd_cuda *cuda, enum gd_op_kind kind, void *whole,
                                int64_t elements, enum gd_dtype dtype, CUstream stream,
                                struct gd_error *err) GD_MUST_USE;
/* Waits for the stream, but not for ever for ranks that do not come: then the communicator is
   aborted. */
enum gd_status gd_cuda_nccl_sync(struct gd_cuda *cuda, CUstream stream,
                                 struct gd_error *err) GD_MUST_USE;
/* Waits for both streams in the same way, whatever has failed before; cuda->stuck is set where
   kernels of an aborted communicator do not end. */
void gd_cuda_nccl_drain(struct gd_cuda *cuda);

/* --- clocks: nvml.c --------------------------------------------------------------------------- */

/* Sets cuda->nvml, where there is an NVML that tells about this GPU; fails only where GPUDAYS_NVML
   wants one. */
enum gd_status gd_cuda_nvml_open(struct gd_cuda *cuda, struct gd_error *err) GD_MUST_USE;
void gd_cuda_nvml_free(struct gd_cuda *cuda);
bool gd_cuda_clocks(struct gd_backend *backend, struct gd_clocks *now); /* gd_backend_ops.clocks */

/* --- ops ------------------------------------------------------------------------------------ */

/* gd_cuda_op_<op> of every row of ops.def whose cuda column names one. Those whose tensors lie in
   host memory (offload) are run by the cpu kernels instead: cuda_bind.c. */
#define CUDA_none(name)
#define CUDA_runtime(name)
#define CUDA_own(name)     enum gd_status gd_cuda_op_##name(const struct gd_cuda_call *call);
#define CUDA_combine(name) CUDA_own(name)
#define GD_OP(name, min, max, attr, doc, shape, grad, cost, flops, lower, ref, cpu, cuda, ...) \
  CUDA_##cuda(name)
#include "ir/ops.def"
#undef GD_OP
#undef CUDA_none
#undef CUDA_runtime
#undef CUDA_own
#undef CUDA_combine

#endif
