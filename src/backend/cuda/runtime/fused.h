/*
 * Fused ops on a GPU: the generated kernels of a graph as texts, which op_fused.c has built and
 * launches. cuda_bind.c makes them when it binds a plan and puts each into
 * gd_kernel_args.device_fused.
 */
#ifndef GD_BACKEND_CUDA_RUNTIME_FUSED_H
#define GD_BACKEND_CUDA_RUNTIME_FUSED_H

#include "backend/cuda/runtime/cuda_int.h"
#include "codegen/codegen.h"

/* The text of a module; fusions that differ in names, rows and streams share one. */
struct gd_cuda_fused_text {
  char *source[2];        /* NVRTC's; [1]: for tensors aligned to their elements alone; NULL: not
                             wanted yet */
  CUfunction function[2]; /* of the context that was open when it was launched first */
  char *kernel;           /* gd_emit's part */
};

/* Whether a fusion is the gradient of gelu_tanh, perhaps with its sum over the rows, and nothing
   else; if so, the numbers of its inputs and outputs. */
struct gd_cuda_gelu_grad {
  bool is_one;
  bool has_sums;
  uint8_t x, dy;    /* inputs */
  uint8_t dx, sums; /* outputs */
};

struct gd_cuda_fused {
  struct gd_fused_kernel about; /* its function is not for GPUs */
  struct gd_teams teams;
  uint64_t in_vectors;  /* bit i: input i moves as vectors, so its alignment matters */
  uint32_t out_vectors; /* likewise */
  struct gd_cuda_fused_text *text;
  struct gd_cuda_gelu_grad gelu_grad;
};

struct gd_cuda_fusions;
/* Lowers and emits every fusion of a graph. Nothing is compiled: the call of the op at
   GD_CUDA_COLLECT notes its module. Needs no GPU; cuda may be NULL. */
enum gd_status gd_cuda_fusions_build(struct gd_cuda *cuda, const struct gd_graph *graph,
                                     struct gd_cuda_fusions **out,
                                     struct gd_error *err) GD_MUST_USE;
const struct gd_cuda_fused *gd_cuda_fusion(const struct gd_cuda_fusions *fusions, uint32_t fusion);
void gd_cuda_fusions_free(struct gd_cuda_fusions *fusions); /* NULL is fine */

/* What NVRTC gets: common.cuh, fused.cu, the kernel. */
enum gd_status gd_cuda_fused_source(const char *kernel, bool aligned, struct gd_strbuf *source,
                                    struct gd_error *err) GD_MUST_USE;

#endif
