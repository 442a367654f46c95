/*
 * Several ops that run together. Those of the update program are one launch. A model has hundreds
 * of parameters, most of them small, and a launch costs as much as reading ten megabytes. The
 * update program has all sum_squares behind each other, then adam and fill of each parameter in
 * turn.
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
#ifndef GD_BACKEND_CUDA_MULTI_H
#define GD_BACKEND_CUDA_MULTI_H

#include "backend/cuda/product.h"

struct gd_cuda_step {
  enum gd_op_kind kind;
  const struct gd_kernel_args *args; /* tensors on the device */
};

/*
 * Runs as many steps, from the first one on, as belong together: adam ops that differ in their
 * tensors and their decay alone, and fill ops that zero the gradient of one of them, which must not
 * be in anybody else's use. *taken: how many, 0 where the first step is no adam. call->args is not
 * read. The bits are those of the single ops.
 */
enum gd_status gd_cuda_multi_adam(const struct gd_cuda_call *call, const struct gd_cuda_step *steps,
                                  uint32_t n_steps, uint32_t *taken) GD_MUST_USE;
/*
 * The same for sum_squares ops of one dtype. A total may differ from the single op's in its last
 * bit as a double, which the pair of floats does not show but for its smallest digits.
 */
enum gd_status gd_cuda_multi_squares(const struct gd_cuda_call *call,
                                     const struct gd_cuda_step *steps, uint32_t n_steps,
                                     uint32_t *taken) GD_MUST_USE;
/*
 * The same for products in TF32 that share an operand, where that is faster, and ops between them,
 * which then run before: together.c.
 */
enum gd_status gd_cuda_multi_products(const struct gd_cuda_call *call,
                                      const struct gd_cuda_step *steps, uint32_t n_steps,
                                      uint32_t *taken) GD_MUST_USE;

/* Which of the steps, from the first one on, are such products; n < 2: there are none. */
struct gd_cuda_group {
  int n;
  uint32_t at[3];
};
void gd_cuda_group_find(const struct gd_cuda_step *steps, uint32_t n_steps,
                        struct gd_cuda_group *group);

/*
 * The same for a product of 16 bits and the gelu behind it, or the gradient of one, where the
 * library does both at once and that is faster: activated.c.
 */
enum gd_status gd_cuda_multi_activated(const struct gd_cuda_call *call,
                                       const struct gd_cuda_step *steps, uint32_t n_steps,
                                       uint32_t *taken) GD_MUST_USE;

/* The first two steps as one product. */
struct gd_cuda_activated {
  struct gd_cuda_product apart;    /* the first alone */
  struct gd_cuda_product together; /* with the second in its epilogue */
  /* Of the second: what is left to do, the sum over the rows of D, columns of the library; data is
     NULL where there is no such output. */
  struct gd_view sums;
  bool sums_add;
};
/* False: they are no such steps, or the result lies over what the product reads. */
bool gd_cuda_activated_find(const struct gd_cuda_step *steps, uint32_t n_steps,
                            struct gd_cuda_activated *found);

/* Do they share memory? */
bool gd_cuda_views_touch(const struct gd_view *a, const struct gd_view *b);
/* One step, as if it stood alone. */
enum gd_status gd_cuda_step_run(const struct gd_cuda_call *call,
                                const struct gd_cuda_step *step) GD_MUST_USE;

#endif
