/*
 * ref kernels of the two filters that have one kernel a channel: depthwise over images and the
 * causal conv1d over sequences, channels last, with their gradients.
 */
#include "backend/ref/ref_int.h"

/* One walk serves all of depthwise: calls visit for each tap that lies inside the image. */
struct tap {
  int64_t at;     /* element of y (and dy) */
  int64_t from;   /* element of x that it meets */
  int64_t weight; /* element of w */
  int64_t channel;
};

typedef void (*visitor)(const struct gd_kernel_args *args, const struct tap *tap, double *sum);

/* For each element of an image tensor: sum over its taps. mirrored: x and y change places. */
static void walk(const struct gd_kernel_args *args, const struct gd_view *image, int64_t k,
                 bool mirrored, const struct gd_view *bias, visitor visit) {
  int64_t height = image->dims[1], width = image->dims[2], channels = image->dims[3];
  for (int64_t at = 0; at < image->elements; at++) {
    int64_t c = at % channels, w = at / channels % width, h = at / channels / width % height;
    int64_t b = at / channels / width / height;
    double sum = bias ? get(bias, c) : 0;
    for (int64_t i = 0; i < k; i++)
      for (int64_t j = 0; j < k; j++) {
        int64_t row = mirrored ? h - i + k / 2 : h + i - k / 2;
        int64_t column = mirrored ? w - j + k / 2 : w + j - k / 2;
        if (row < 0 || row >= height || column < 0 || column >= width)
          continue;
        visit(args,
              &(struct tap){at, ((b * height + row) * width + column) * channels + c,
                            (c * k + i) * k + j, c},
              &sum);
      }
    if (args->n_out == 1)
      put(&args->out[0], at, sum);
  }
}

static void multiply(const struct gd_kernel_args *args, const struct tap *tap, double *sum) {
  *sum += get(&args->in[0], tap->from) * get(&args->in[1], tap->weight);
}

/* y[b,h,w,c] = bias[c] + sum_ij x[b, h+i-K/2, w+j-K/2, c] w[c,0,i,j]; outside is 0. */
void gd_ref_depthwise(const struct gd_kernel_args *args) {
  walk(args, &args->out[0], args->in[1].dims[2], false, &args->in[2], multiply);
}

/* dx[b,h,w,c] = sum_ij dy[b, h-i+K/2, w-j+K/2, c] w[c,0,i,j]. */
void gd_ref_depthwise_dx(const struct gd_kernel_args *args) {
  walk(args, &args->out[0], args->in[1].dims[2], true, NULL, multiply);
}

/* dw[c,0,i,j] = sum_bhw dy[b,h,w,c] x[b, h+i-K/2, w+j-K/2, c]; dbias[c] = sum_bhw dy[b,h,w,c]. */
void gd_ref_depthwise_dw(const struct gd_kernel_args *args) {
  const struct gd_view *dy = &args->in[0], *x = &args->in[1];
  int64_t k = args->attr->rows.rows, height = dy->dims[1], width = dy->dims[2];
  int64_t channels = dy->dims[3], images = dy->dims[0];
  for (int64_t c = 0; c < channels; c++) {
    for (int64_t i = 0; i < k; i++)
      for (int64_t j = 0; j < k; j++) {
        double sum = 0;
        for (int64_t b = 0; b < images; b++)
          for (int64_t h = 0; h < height; h++)
            for (int64_t w = 0; w < width; w++) {
              int64_t row = h + i - k / 2, column = w + j - k / 2;
              if (row >= 0 && row < height && column >= 0 && column < width)
                sum += get(dy, ((b * height + h) * width + w) * channels + c) *
                       get(x, ((b * height + row) * width + column) * channels + c);
            }
        put_out(args, 0, (c * k + i) * k + j, sum);
      }
    double sum = 0;
    for (int64_t r = 0; r < images * height * width; r++)
      sum += get(dy, r * channels + c);
    put_out(args, 1, c, sum);
  }
}

/* y[b,t,c] = bias[c] + sum_i x[b, t-K+1+i, c] w[c,0,i]; before the start is 0. */
void gd_ref_conv1d(const struct gd_kernel_args *args) {
  const struct gd_view *x = &args->in[0], *w = &args->in[1];
  int64_t k = w->dims[2], steps = x->dims[1], channels = x->dims[2];
  for (int64_t at = 0; at < x->elements; at++) {
    int64_t c = at % channels, t = at / channels % steps;
    double sum = get(&args->in[2], c);
    for (int64_t i = 0; i < k; i++)
      if (t - k + 1 + i >= 0)
        sum += get(x, at + (i - k + 1) * channels) * get(w, c * k + i);
    put(&args->out[0], at, sum);
  }
}

/* dx[b,t,c] = sum_i dy[b, t+K-1-i, c] w[c,0,i]. */
void gd_ref_conv1d_dx(const struct gd_kernel_args *args) {
  const struct gd_view *dy = &args->in[0], *w = &args->in[1];
  int64_t k = w->dims[2], steps = dy->dims[1], channels = dy->dims[2];
  for (int64_t at = 0; at < dy->elements; at++) {
    int64_t c = at % channels, t = at / channels % steps;
    double sum = 0;
    for (int64_t i = 0; i < k; i++)
      if (t + k - 1 - i < steps)
        sum += get(dy, at + (k - 1 - i) * channels) * get(w, c * k + i);
    put(&args->out[0], at, sum);
  }
}

/* dw[c,0,i] = sum_bt dy[b,t,c] x[b, t-K+1+i, c]; dbias[c] = sum_bt dy[b,t,c]. */
void gd_ref_conv1d_dw(const struct gd_kernel_args *args) {
  const struct gd_view *dy = &args->in[0], *x = &args->in[1];
  int64_t k = args->attr->rows.rows, steps = dy->dims[1], channels = dy->dims[2];
  for (int64_t c = 0; c < channels; c++)
    for (int64_t i = 0; i <= k; i++) { /* i = k: the bias */
      double sum = 0;
      for (int64_t at = c; at < dy->elements; at += channels) {
        int64_t back = k - 1 - i;
        if (i == k)
          sum += get(dy, at);
        else if (at / channels % steps >= back)
          sum += get(dy, at) * get(x, at - back * channels);
      }
      put_out(args, i == k, i == k ? c : c * k + i, sum);
    }
}
