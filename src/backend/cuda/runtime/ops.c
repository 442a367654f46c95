/*
 * The table of the CUDA backend: one host function per row of ops.def. Views run nothing; copies
 * between memories, collectives and waits are done by cuda_launch.c. A row that names a function
 * nobody wrote does not link.
 */
#include "backend/cuda/runtime/cuda_int.h"

const gd_cuda_op gd_cuda_ops[GD_OP_COUNT] = {
#define OP_none(name)    NULL
#define OP_runtime(name) NULL
#define OP_own(name)     gd_cuda_op_##name
#define OP_combine(name) gd_cuda_op_##name
#define GD_OP(name, min, max, attr, doc, shape, grad, cost, flops, lower, ref, cpu, cuda, ...) \
  [GD_OP_##name] = OP_##cuda(name),
#include "ir/ops.def"
#undef GD_OP
};
