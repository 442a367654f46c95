/*
 * The update program's kernels: sum of squares, control, Adam. accumulate is in cpu_pointwise.c,
 * fill and copy are in cpu_move.c.
 */
#include <math.h>

#include "backend/cpu/cpu_int.h"

/* Chunks of a fixed number of elements each have one double; bytes: x once. */
void gd_cpu_sum_squares(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_view *x = &args->in[0];
  float *y = args->out[0].data;
  int64_t chunks = x->elements / 4096 + 1;
  chunks = chunks < GD_CPU_LOSS_CHUNKS ? chunks : GD_CPU_LOSS_CHUNKS;
  double *partials = args->workspace;
  int threads = gd_cpu_threads(args, 4 * x->elements);
#pragma omp parallel for num_threads(threads) schedule(static)
  for (int64_t c = 0; c < chunks; c++) {
    struct gd_cpu_range range = gd_cpu_share(x->elements, GD_CPU_LINE_ELEMENTS, c, chunks);
    partials[c] = rows->sum_squares(x->dtype, gd_cpu_at(x, range.begin), range.end - range.begin);
  }
  double total = 0;
  for (int64_t c = 0; c < chunks; c++)
    total += partials[c];
  y[0] = (float)total;
  y[1] = isfinite(y[0]) ? (float)(total - (double)y[0]) : 0;
}

/*
 * norm of the unscaled gradient; when it is not finite the step is skipped (factor 0) and a dynamic
 * loss scale is divided by two; above step[1] (0: any) it is skipped; else the factor unscales and
 * clips. A few scalars: no threads.
 */
void gd_cpu_control(const struct gd_kernel_args *args) {
  const struct gd_attr_control *attr = &args->attr->control;
  float *step = args->out[0].data, *scale = args->out[1].data;
  float *norm_out = args->out[2].data, *factor_out = args->out[3].data;
  double total = 0, old_scale = (double)scale[0];
  for (uint32_t i = 2; i < args->n_in; i++)
    for (int64_t j = 0; j < args->in[i].elements; j++)
      total += (double)((const float *)args->in[i].data)[j];
  double norm = sqrt(total) / old_scale, factor = 0;
  bool spike = step[1] > 0 && (float)norm > step[1];
  if (isfinite(norm) && !spike) {
    double clip = attr->max_norm > 0 ? (double)attr->max_norm / (norm + 1e-6) : 1;
    factor = (clip < 1 ? clip : 1) / old_scale;
    step[0] += 1;
    if (attr->dynamic_scale && ++scale[1] >= attr->growth_interval) {
      scale[0] *= 2;
      scale[1] = 0;
    }
  } else if (attr->dynamic_scale && !isfinite(norm)) {
    scale[0] = scale[0] / 2 > 1 ? scale[0] / 2 : 1;
    scale[1] = 0;
  }
  norm_out[0] = (float)norm;
  factor_out[0] = (float)factor;
}

/*
 * Adam (Kingma, Ba, arXiv:1412.6980, algorithm 1), decay coupled into the gradient or decoupled
 * from it (Loshchilov, Hutter, arXiv:1711.05101, algorithm 2). One thread owns a range of elements.
 * Bytes: 28 an element, and 2 for the 16-bit copy.
 */
void gd_cpu_adam(const struct gd_kernel_args *args) {
  const struct gd_cpu_rows *rows = gd_cpu_rows();
  const struct gd_attr_adam *attr = &args->attr->adam;
  float factor = *(const float *)args->in[4].data;
  double lr = (double)*(const float *)args->in[5].data;
  double step = (double)*(const float *)args->in[6].data;
  double beta1 = (double)attr->beta1, beta2 = (double)attr->beta2;
  bool has_copy = args->n_out > 3;
  if (factor == 0) { /* nothing changes, but a copy in another memory may have nothing in it yet */
    if (has_copy)
      rows->convert(args->out[3].dtype, args->out[3].data, GD_DTYPE_F32, args->out[0].data,
                    args->out[0].elements);
    return;
  }
  struct gd_cpu_adam adam = {
      .param = args->out[0].data,
      .grad = args->in[1].data,
      .m = args->out[1].data,
      .v = args->out[2].data,
      .compute = has_copy ? args->out[3].data : NULL,
      .half_dtype = has_copy ? args->out[3].dtype : GD_DTYPE_F32,
      .factor = factor,
      .keep = attr->decoupled ? (float)(1 - lr * (double)attr->weight_decay) : 1,
      .decay = attr->decoupled ? 0 : attr->weight_decay,
      .beta1 = attr->beta1,
      .beta2 = attr->beta2,
      .rest1 = (float)(1 - beta1),
      .rest2 = (float)(1 - beta2),
      .rate = (float)(lr / (1 - pow(beta1, step))),
      .root = (float)(1 / sqrt(1 - pow(beta2, step))),
      .eps = attr->eps,
  };
  int64_t elements = args->out[0].elements;
  int threads = gd_cpu_threads(args, 28 * elements);
#pragma omp parallel for num_threads(threads)
  for (int part = 0; part < threads; part++) {
    struct gd_cpu_range range = gd_cpu_share(elements, GD_CPU_LINE_ELEMENTS, part, threads);
    rows->adam(&adam, range.begin, range.end);
  }
}
