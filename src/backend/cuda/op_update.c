/*
 * The update program on the CUDA backend: sum_squares, control, adam. The kernels, and what they
 * promise of their numbers, are in kernels/update.cu.
 */
#include <math.h>

#include "backend/cuda/cuda_int.h"

static bool is_aligned(const void *data, int64_t bytes) {
  return (uintptr_t)data % (uintptr_t)bytes == 0;
}

static struct gd_cuda_kernel kernel_of(const char *name, enum gd_dtype type) {
  return (struct gd_cuda_kernel){.file = "update", .name = name, .n_types = 1, .types = {type}};
}

/* --- sum of squares -------------------------------------------------------------------------- */

enum {
  WHOLE_THREADS = 1024,
  WHOLE_ELEMENTS = 64 * WHOLE_THREADS, /* up to here one launch is quicker than two */
  PIECE_THREADS = 256,
  PIECE_ELEMENTS = 64 * PIECE_THREADS,
  MAX_PIECES = 8192,
};

enum gd_status gd_cuda_op_sum_squares(const struct gd_cuda_call *call) {
  const struct gd_view *x = &call->args->in[0];
  bool wide = is_aligned(x->data, 16);
  int64_t count = x->elements;
  void *y = call->args->out[0].data, *from = x->data, *partials = call->args->workspace;
  if (count <= WHOLE_ELEMENTS) {
    struct gd_cuda_kernel kernel =
        kernel_of(wide ? "squares_whole_wide" : "squares_whole_narrow", x->dtype);
    struct gd_cuda_grid grid = {.x = 1, .threads = WHOLE_THREADS};
    return GD_CUDA_LAUNCH(call, &kernel, grid, &y, &from, &count);
  }
  int64_t rounds =
      (count + (int64_t)PIECE_ELEMENTS * MAX_PIECES - 1) / ((int64_t)PIECE_ELEMENTS * MAX_PIECES);
  int64_t each = rounds * PIECE_ELEMENTS;
  int32_t pieces = (int32_t)((count + each - 1) / each);
  GD_ASSERT(call->args->workspace_bytes >= pieces * (int64_t)sizeof(double));
  struct gd_cuda_kernel kernel =
      kernel_of(wide ? "squares_pieces_wide" : "squares_pieces_narrow", x->dtype);
  struct gd_cuda_grid grid = {.x = pieces, .threads = PIECE_THREADS};
  GD_TRY(GD_CUDA_LAUNCH(call, &kernel, grid, &partials, &from, &count, &each));
  struct gd_cuda_kernel adding = kernel_of("squares_total", x->dtype);
  struct gd_cuda_grid one = {.x = 1, .threads = WHOLE_THREADS};
  return GD_CUDA_LAUNCH(call, &adding, one, &y, &partials, &pieces);
}

/* --- control --------------------------------------------------------------------------------- */

enum { CONTROL_THREADS = 256, MAX_SUMS = 224 };
struct sums {
  const void *from[MAX_SUMS];
  int64_t end[MAX_SUMS];
  int32_t count;
  int32_t first, last;
};
struct rules {
  float max_norm, growth_interval;
  int32_t dynamic_scale;
};

enum gd_status gd_cuda_op_control(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  const struct gd_attr_control *attr = &args->attr->control;
  struct rules rules = {attr->max_norm, attr->growth_interval, attr->dynamic_scale};
  struct gd_cuda_kernel kernel = kernel_of("control", GD_DTYPE_F32);
  struct gd_cuda_grid grid = {.x = 1, .threads = CONTROL_THREADS};
  void *step = args->out[0].data, *scale = args->out[1].data;
  void *norm = args->out[2].data, *factor = args->out[3].data, *carry = args->workspace;
  uint32_t next = 2;
  do {
    uint32_t left = args->n_in - next, taken = left < MAX_SUMS ? left : MAX_SUMS;
    struct sums sums = {
        .count = (int32_t)taken, .first = next == 2, .last = next + taken == args->n_in};
    int64_t end = 0;
    for (uint32_t i = 0; i < taken; i++) {
      sums.from[i] = args->in[next + i].data;
      sums.end[i] = end += args->in[next + i].elements;
    }
    GD_TRY(
        GD_CUDA_LAUNCH(call, &kernel, grid, &step, &scale, &norm, &factor, &carry, &sums, &rules));
    next += taken;
  } while (next < args->n_in);
  return GD_OK;
}

/* --- Adam ------------------------------------------------------------------------------------ */

enum { ADAM_THREADS = 256 };
struct adam_rule {
  float beta1, beta2, rest1, rest2;
  float log_beta1, log_beta2;
  float eps, decay;
  int32_t decoupled;
};
struct adam_tensors {
  void *param, *m, *v;
  const void *grad;
  void *half;
};

static struct adam_rule rule_of(const struct gd_attr_adam *attr) {
  double beta1 = (double)attr->beta1, beta2 = (double)attr->beta2;
  return (struct adam_rule){.beta1 = attr->beta1,
                            .beta2 = attr->beta2,
                            .rest1 = (float)(1 - beta1),
                            .rest2 = (float)(1 - beta2),
                            .log_beta1 = (float)log(beta1),
                            .log_beta2 = (float)log(beta2),
                            .eps = attr->eps,
                            .decay = attr->weight_decay,
                            .decoupled = attr->decoupled};
}

enum gd_status gd_cuda_op_adam(const struct gd_cuda_call *call) {
  const struct gd_kernel_args *args = call->args;
  struct adam_rule rule = rule_of(&args->attr->adam);
  bool has_half = args->n_out > 3;
  enum gd_dtype half = has_half ? args->out[3].dtype : GD_DTYPE_F32;
  struct adam_tensors tensors = {.param = args->out[0].data,
                                 .m = args->out[1].data,
                                 .v = args->out[2].data,
                                 .grad = args->in[1].data,
                                 .half = has_half ? args->out[3].data : NULL};
  bool wide = is_aligned(tensors.param, 16) && is_aligned(tensors.m, 16) &&
              is_aligned(tensors.v, 16) && is_aligned(tensors.grad, 16) &&
              is_aligned(tensors.half, 4 * gd_dtype_bytes(half));
  int64_t count = args->out[0].elements, each = ADAM_THREADS * (wide ? 4 : 1);
  void *factor = args->in[4].data, *lr = args->in[5].data, *step = args->in[6].data;
  struct gd_cuda_kernel kernel = kernel_of(wide ? "adam_wide" : "adam_narrow", half);
  struct gd_cuda_grid grid = {.x = (count + each - 1) / each, .threads = ADAM_THREADS};
  return GD_CUDA_LAUNCH(call, &kernel, grid, &tensors, &count, &rule, &factor, &lr, &step);
}
