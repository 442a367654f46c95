/*
 * The CUDA backend as a table of kernels, for the op tests: each call takes its tensors, with the
 * guard bytes around them, to the GPU and back. Also without a GPU, where calls only note which
 * kernels they would run, so that all of them can be compiled for every architecture.
 *
 *   if (!cuda_ops_open(why))
 *     skip(why);
 *   op_check(&c, &cuda_ops);
 *   cuda_ops_close();
 *
 * GD_TEST_APART=1 in the environment: tensors are allocations of their own, for compute-sanitizer.
 */
#ifndef GD_TESTS_SUPPORT_CUDA_OPS_H
#define GD_TESTS_SUPPORT_CUDA_OPS_H

#include "support/op_harness.h"

extern struct op_backend cuda_ops;

/* A fused op; its kernel is args->device_fused. Tensors as the op tests lay them out: with 128
   bytes before and behind them that are copied too. */
void cuda_ops_fused(const struct gd_kernel_args *args);

/* Matmul ops as a program has them behind each other; returns how many ran as a group: 0 or n. They
   may share tensors, which are laid out likewise. */
uint32_t cuda_ops_gemms(const struct gd_kernel_args *args, uint32_t n);

/* False without a GPU or a library, with the reason. */
bool cuda_ops_open(struct gd_error *why);
/* After every case was run with cuda_ops.collects: builds what they need, side by side. */
bool cuda_ops_build(struct gd_error *why);
/* Modules that were not noted before cuda_ops_build, so that each was built alone. */
int cuda_ops_built_alone(void);
void cuda_ops_close(void);

/*
 * Ops that follow see a smaller device: at most so much shared memory a block, and so much
 * workspace, behind whose end nothing may be written (op_check then says so). 0: all there is.
 */
void cuda_ops_limit(int shared_bytes, int64_t workspace_bytes);
/* Kernels launched since cuda_ops_open, but for those of libraries. */
int64_t cuda_ops_launches(void);
/* GEMMs that follow run by candidate n of the autotuner (GPUDAYS_AUTOTUNE); 0: as without. */
void cuda_ops_candidate(int n);
/* Slices of attention that cuDNN has done since then; -1: there is no cuDNN. */
int64_t cuda_ops_cudnn_slices(void);

/* Launches of the kernels for short sequences since then. */
int64_t cuda_ops_short_attentions(void);

/* For sm_<sm>, without a GPU: collects only. cuda_ops_build then compiles; returns the count. */
bool cuda_ops_pretend(int sm, struct gd_error *why);
/* Only number `which` of every `every` modules is compiled. */
void cuda_ops_keep(int every, int which);
int cuda_ops_compiled(void);

#endif
