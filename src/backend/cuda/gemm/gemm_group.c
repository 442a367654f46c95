/*
 * GEMMs of a program that share an operand, and so its cast to fp16 (gemm_emulated.h): queries,
 * keys and values of the same rows; both gradients of a linear layer, of which dW comes first, then
 * mostly the bias, then dX. op_matmul.c runs a group and says whether that is faster.
 *
 * The GEMMs of a group are computed piece by piece in turns, and ops between them run first. The
 * result must be as if all had run in their order: no two of them may touch the same memory unless
 * both read. One exception is common: dX lies where the rows were that dW reads. There a piece is
 * written after it has been read.
 */
#include "backend/cuda/gemm/gemm_emulated.h"
#include "backend/cuda/gemm/gemm_steps.h"

enum { AHEAD = 4 }; /* ops that are looked at */
_Static_assert(GD_CUDA_EMULATED_SHARING ==
                   sizeof(((struct gd_cuda_group *)0)->at) / sizeof(uint32_t),
               "a group is what the emulation can share");

bool gd_cuda_views_touch(const struct gd_view *a, const struct gd_view *b) {
  const char *x = a->data, *y = b->data;
  return x && y && x < y + b->elements * gd_dtype_bytes(b->dtype) &&
         y < x + a->elements * gd_dtype_bytes(a->dtype);
}

static bool any_touches(const struct gd_view *views, uint32_t n, const struct gd_view *others,
                        uint32_t n_others) {
  for (uint32_t i = 0; i < n; i++)
    for (uint32_t j = 0; j < n_others; j++)
      if (gd_cuda_views_touch(&views[i], &others[j]))
        return true;
  return false;
}

/* Whether an op may run before one that it follows. */
static bool can_go_before(const struct gd_kernel_args *op, const struct gd_kernel_args *earlier) {
  return !any_touches(op->in, op->n_in, earlier->out, earlier->n_out) &&
         !any_touches(op->out, op->n_out, earlier->out, earlier->n_out) &&
         !any_touches(op->out, op->n_out, earlier->in, earlier->n_in);
}

/* Row by row, the later GEMM writes what the earlier one has cast by then. */
static bool replaces(const struct gd_kernel_args *op, const struct gd_kernel_args *earlier) {
  struct gd_cuda_gemm later, first;
  gd_cuda_gemm_of(op, &later);
  gd_cuda_gemm_of(earlier, &first);
  return later.d == first.a && !later.trans_b && first.trans_b && !first.trans_a &&
         later.ldd == first.lda && later.m == first.m && later.n == first.k &&
         !gd_cuda_views_touch(op->out, &earlier->in[0]); /* which is B */
}

static bool can_join(const struct gd_kernel_args *op, const struct gd_kernel_args *earlier) {
  if (any_touches(op->in, op->n_in, earlier->out, earlier->n_out) ||
      any_touches(op->out, op->n_out, earlier->out, earlier->n_out))
    return false;
  return !any_touches(op->out, op->n_out, earlier->in, earlier->n_in) || replaces(op, earlier);
}

static bool is_tf32(const struct gd_cuda_step *step) {
  return step->kind == GD_OP_matmul && step->args->attr->matmul.tf32;
}

static bool shares(const struct gd_cuda_step *step, const struct gd_cuda_step *first) {
  struct gd_cuda_gemm p, q;
  if (!is_tf32(step))
    return false;
  gd_cuda_gemm_of(step->args, &p);
  gd_cuda_gemm_of(first->args, &q);
  return gd_cuda_emulated_share(&p, &q);
}

void gd_cuda_group_find(const struct gd_cuda_step *steps, uint32_t n_steps,
                        struct gd_cuda_group *group) {
  *group = (struct gd_cuda_group){.n = 0};
  for (uint32_t i = 0; i < n_steps && i < AHEAD && group->n < GD_CUDA_EMULATED_SHARING; i++) {
    bool joins = i > 0 ? shares(&steps[i], &steps[0]) : is_tf32(&steps[0]);
    if (i == 0 && !joins)
      return;
    for (int j = 0; j < group->n; j++) {
      const struct gd_kernel_args *earlier = steps[group->at[j]].args;
      if (!(joins ? can_join : can_go_before)(steps[i].args, earlier))
        return;
    }
    if (joins)
      group->at[group->n++] = i;
  }
}

enum gd_status gd_cuda_step_run(const struct gd_cuda_call *call, const struct gd_cuda_step *step) {
  struct gd_cuda_call alone = *call;
  alone.args = step->args;
  return gd_cuda_ops[step->kind](&alone);
}

enum gd_status gd_cuda_multi_gemm(const struct gd_cuda_call *call, const struct gd_cuda_step *steps,
                                  uint32_t n_steps, uint32_t *taken) {
  struct gd_cuda_gemm gemms[GD_CUDA_EMULATED_SHARING];
  struct gd_cuda_group group;
  struct gd_cuda_call first = *call;
  bool wanted;
  *taken = 0;
  gd_cuda_group_find(steps, n_steps, &group);
  if (call->stage == GD_CUDA_COLLECT || group.n < 2)
    return GD_OK;
  for (int i = 0; i < group.n; i++)
    gd_cuda_gemm_of(steps[group.at[i]].args, &gemms[i]);
  first.args = steps[0].args; /* for the workspace: all have the same */
  GD_TRY(gd_cuda_gemms_wanted(&first, gemms, group.n, &wanted));
  if (!wanted)
    return GD_OK;
  *taken = group.at[group.n - 1] + 1;
  for (uint32_t i = 0, member = 0; i < *taken; i++) {
    bool inside = i == group.at[member];
    member += inside && (int)member + 1 < group.n;
    if (!inside || call->stage == GD_CUDA_TUNE) /* there, each is timed alone too */
      GD_TRY(gd_cuda_step_run(call, &steps[i]));
  }
  return gd_cuda_gemms_run(&first, gemms, group.n);
}
