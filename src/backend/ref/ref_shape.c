/*
 * ref kernels of slicing, padding, casting, dropout, root-mean-square norm and pooling. The rules
 * of ref.c hold: the formula in the comment, in double, without tricks.
 */
#include <math.h>

#include "backend/ref/ref_int.h"
#include "base/rng.h"

/* y[o, i, :] = x[o, start + i, :] for i < length. */
void gd_ref_slice(const struct gd_kernel_args *args) {
  const struct gd_attr_slice *a = &args->attr->slice;
  const struct gd_view *x = &args->in[0], *y = &args->out[0];
  int64_t outer, inner, n = x->dims[a->dim];
  gd_view_around(x, a->dim, &outer, &inner);
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < a->length; i++)
      move(y, (o * a->length + i) * inner, x, (o * n + a->start + i) * inner, inner);
}

/* y[o, start + i, :] = x[o, i, :]; 0 elsewhere. */
void gd_ref_pad(const struct gd_kernel_args *args) {
  const struct gd_attr_slice *a = &args->attr->slice;
  const struct gd_view *x = &args->in[0], *y = &args->out[0];
  int64_t outer, inner, n = x->dims[a->dim];
  gd_view_around(x, a->dim, &outer, &inner);
  if (y->elements)
    memset(y->data, 0, (size_t)(y->elements * gd_dtype_bytes(y->dtype)));
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < n; i++)
      move(y, (o * a->length + a->start + i) * inner, x, (o * n + i) * inner, inner);
}

/* y[i] = x[i] in the dtype of y. */
void gd_ref_cast(const struct gd_kernel_args *args) {
  for (int64_t i = 0; i < args->out[0].elements; i++)
    put(&args->out[0], i, get(&args->in[0], i));
}

/* y[b,t] = pad where ids[b,t] = pad, else pad + number of ids[b,0..t] that are not pad. */
void gd_ref_positions(const struct gd_kernel_args *args) {
  const struct gd_view *ids = &args->in[0];
  int32_t *y = args->out[0].data, pad = args->attr->positions.pad;
  for (int64_t b = 0; b < ids->dims[0]; b++) {
    int32_t count = 0;
    for (int64_t t = 0; t < ids->dims[1]; t++) {
      bool real = get_index(ids, b * ids->dims[1] + t) != pad;
      count += real;
      y[b * ids->dims[1] + t] = real ? pad + count : pad;
    }
  }
}

/* y[i] = a[i] * b[i mod elements(b)]: b has the trailing dims of a. */
void gd_ref_mul(const struct gd_kernel_args *args) {
  const struct gd_view *a = &args->in[0], *b = &args->in[1];
  for (int64_t i = 0; i < a->elements; i++)
    put(&args->out[0], i, get(a, i) * get(b, i % b->elements));
}

/*
 * y[i] = x[i] / (1 - p) where gd_rng_dropout(seed[0], stream << 32 | seed[1], g) is at least
 * p 2^16, else 0; p rounded to 2^-16. g = i + seed[2] * elements per sample (dim 0), so that a
 * sample draws the same numbers whatever micro-batch it is in. per_sample: g = the number of the
 * sample + seed[2], for all of its elements.
 */
void gd_ref_dropout(const struct gd_kernel_args *args) {
  const struct gd_view *x = &args->in[0];
  const int32_t *seed = args->in[1].data;
  const struct gd_attr_dropout *a = &args->attr->dropout;
  uint64_t stream = (uint64_t)a->stream << 32 | (uint32_t)seed[1];
  uint32_t threshold = gd_rng_dropout_threshold((double)a->probability);
  double scale = gd_rng_dropout_scale((double)a->probability);
  int64_t sample = x->dims[0] ? x->elements / x->dims[0] : 0;
  for (int64_t i = 0; i < x->elements; i++) {
    uint64_t g = a->per_sample && sample ? (uint64_t)(i / sample) + (uint64_t)seed[2]
                                         : (uint64_t)i + (uint64_t)seed[2] * (uint64_t)sample;
    bool kept = gd_rng_dropout((uint32_t)seed[0], stream, g) >= threshold;
    put(&args->out[0], i, kept ? get(x, i) * scale : 0);
  }
}

/* r = 1 / sqrt(mean(x^2) + eps); y = x r w. */
void gd_ref_rmsnorm(const struct gd_kernel_args *args) {
  const struct gd_view *x = &args->in[0], *w = &args->in[1];
  int64_t columns = gd_view_columns(x);
  for (int64_t r = 0; r < gd_view_rows(x); r++) {
    double squares = 0;
    for (int64_t c = 0; c < columns; c++)
      squares += get(x, r * columns + c) * get(x, r * columns + c);
    double scale = 1 / sqrt(squares / (double)columns + (double)args->attr->norm.eps);
    for (int64_t c = 0; c < columns; c++)
      put(&args->out[0], r * columns + c, get(x, r * columns + c) * scale * get(w, c));
    put(&args->out[1], r, scale);
  }
}

/* g = dy w; dx = r (g - x r^2 mean(g x)); dw = sum over rows of dy x r. */
void gd_ref_rmsnorm_grad(const struct gd_kernel_args *args) {
  const struct gd_view *dy = &args->in[0], *x = &args->in[1], *w = &args->in[2];
  int64_t rows = gd_view_rows(x), columns = gd_view_columns(x);
  for (int64_t c = 0; c < columns; c++) { /* first: dx may overwrite dy */
    double dw = 0;
    for (int64_t r = 0; r < rows; r++)
      dw += get(dy, r * columns + c) * get(x, r * columns + c) * get(&args->in[3], r);
    put_out(args, 1, c, dw);
  }
  for (int64_t r = 0; r < rows; r++) {
    double scale = get(&args->in[3], r), projection = 0;
    for (int64_t c = 0; c < columns; c++)
      projection += get(dy, r * columns + c) * get(w, c) * get(x, r * columns + c);
    projection *= scale * scale / (double)columns;
    for (int64_t c = 0; c < columns; c++)
      put(&args->out[0], r * columns + c,
          scale * (get(dy, r * columns + c) * get(w, c) - get(x, r * columns + c) * projection));
  }
}

/* y[b,c] = mean over s of x[b,s,c]. */
void gd_ref_pool(const struct gd_kernel_args *args) {
  const struct gd_view *x = &args->in[0];
  int64_t positions = x->dims[1], columns = x->dims[2];
  for (int64_t b = 0; b < x->dims[0]; b++)
    for (int64_t c = 0; c < columns; c++) {
      double sum = 0;
      for (int64_t s = 0; s < positions; s++)
        sum += get(x, (b * positions + s) * columns + c);
      put(&args->out[0], b * columns + c, sum / (double)positions);
    }
}

/* dx[b,s,c] = dy[b,c] / S. */
void gd_ref_pool_grad(const struct gd_kernel_args *args) {
  const struct gd_view *dx = &args->out[0];
  int64_t positions = dx->dims[1], columns = dx->dims[2];
  for (int64_t i = 0; i < dx->elements; i++)
    put(dx, i,
        get(&args->in[0], i / (positions * columns) * columns + i % columns) / (double)positions);
}
