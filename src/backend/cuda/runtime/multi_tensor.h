/*
 * Ops that are launched as one. Multi-tensor apply: the ops of the update program are one launch,
 * since a model has hundreds of parameters, most of them small, and a launch costs as much as
 * reading ten megabytes. The update program has all sum_squares behind each other, then adam and
 * fill of each parameter in turn. Likewise grouped GEMMs, and a GEMM with its activation.
 *
 *   struct gd_cuda_step steps[] = {{GD_OP_adam, &args0}, {GD_OP_fill, &args1}, ...};
 *   for (uint32_t i = 0, taken; i < n; i += taken) {
 *     GD_TRY(gd_cuda_multi_adam(&call, steps + i, n - i, &taken));
 *     if (taken == 0) {       // steps[i] is no adam: run it alone
 *       ...
 *       taken = 1;
 *     }
 *   }
 */
#ifndef GD_BACKEND_CUDA_RUNTIME_MULTI_TENSOR_H
#define GD_BACKEND_CUDA_RUNTIME_MULTI_TENSOR_H

#include "backend/cuda/runtime/cuda_int.h"

struct gd_cuda_step {
  enum gd_op_kind kind;
  const struct gd_kernel_args *args; /* tensors on the device */
};

/*
 * Runs as many steps, from the first one on, as one launch takes: adam ops that differ in their
 * tensors and their decay alone, and fill ops that zero the gradient of one of them, which must not
 * be in anybody else's use. *taken: how many, 0 where the first step is no adam. call->args is not
 * read. The bits are those of the single ops.
 */
enum gd_status gd_cuda_multi_adam(const struct gd_cuda_call *call, const struct gd_cuda_step *steps,
                                  uint32_t n_steps, uint32_t *taken) GD_MUST_USE;
/*
 * The same for sum_squares ops of one dtype. A total is summed in double and may differ from that
 * of the single op in its last bit; of the pair of floats that holds it, only the lowest bits can
 * then differ.
 */
enum gd_status gd_cuda_multi_squares(const struct gd_cuda_call *call,
                                     const struct gd_cuda_step *steps, uint32_t n_steps,
                                     uint32_t *taken) GD_MUST_USE;
/*
 * The same for GEMMs in TF32 that share an operand, where that is faster, and ops between them,
 * which then run first: gemm_group.c.
 */
enum gd_status gd_cuda_multi_gemm(const struct gd_cuda_call *call, const struct gd_cuda_step *steps,
                                  uint32_t n_steps, uint32_t *taken) GD_MUST_USE;

/*
 * The same for a GEMM in 16 bits and the GELU or dGELU behind it, where the library has it as an
 * epilogue and that is faster: gemm_epilogue.c.
 */
enum gd_status gd_cuda_multi_epilogue(const struct gd_cuda_call *call,
                                      const struct gd_cuda_step *steps, uint32_t n_steps,
                                      uint32_t *taken) GD_MUST_USE;

/* Whether they share memory. */
bool gd_cuda_views_touch(const struct gd_view *a, const struct gd_view *b);
/* One step, as if it stood alone. */
enum gd_status gd_cuda_step_run(const struct gd_cuda_call *call,
                                const struct gd_cuda_step *step) GD_MUST_USE;

#endif
