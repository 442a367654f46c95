/*
 * ref kernels of the unfused selective scan, whose steps are all written out. Letters: B sequences,
 * T steps, C channels, S states; a row is one of the B T steps.
 *
 *   a = decay(delta, A_log) = exp(-delta exp(A_log))     x = outer(delta u, b)
 *   h = recur(a, x), h_t = a_t h_{t-1} + x_t             y = contract_states(h, c) + d u
 *
 * together are what ref_scan.c does without storing a, x and h.
 */
#include <math.h>

#include "backend/ref/ref_int.h"

/* Sizes of [B,T,C,S]. */
struct sizes {
  int64_t batch, steps, rows, channels, states;
};

static struct sizes sizes_of(const struct gd_view *view) {
  return (struct sizes){view->dims[0], view->dims[1], view->dims[0] * view->dims[1], view->dims[2],
                        view->dims[3]};
}

void gd_ref_decay(const struct gd_kernel_args *args) {
  struct sizes n = sizes_of(&args->out[0]);
  for (int64_t i = 0; i < args->out[0].elements; i++) {
    int64_t row_channel = i / n.states, in_row = i % (n.channels * n.states);
    put(&args->out[0], i, exp(-get(&args->in[0], row_channel) * exp(get(&args->in[1], in_row))));
  }
}

/* With A = exp(A_log): ddelta = -sum_s da a A, dA_log = -sum over rows of da a delta A. */
void gd_ref_decay_grad(const struct gd_kernel_args *args) {
  const struct gd_view *da = &args->in[0], *a = &args->in[1], *delta = &args->in[2];
  struct sizes n = sizes_of(da);
  for (int64_t i = 0; i < delta->elements; i++) {
    double sum = 0;
    for (int64_t s = 0; s < n.states; s++)
      sum -= get(da, i * n.states + s) * get(a, i * n.states + s) *
             exp(get(&args->in[3], i % n.channels * n.states + s));
    put(&args->out[0], i, sum);
  }
  for (int64_t i = 0; i < n.channels * n.states; i++) {
    double sum = 0;
    for (int64_t row = 0; row < n.rows; row++) {
      int64_t at = row * n.channels * n.states + i;
      sum -= get(da, at) * get(a, at) * get(delta, at / n.states);
    }
    put(&args->out[1], i, sum * exp(get(&args->in[3], i)));
  }
}

void gd_ref_outer(const struct gd_kernel_args *args) {
  struct sizes n = sizes_of(&args->out[0]);
  for (int64_t i = 0; i < args->out[0].elements; i++) {
    int64_t row = i / (n.channels * n.states), s = i % n.states;
    put(&args->out[0], i, get(&args->in[0], i / n.states) * get(&args->in[1], row * n.states + s));
  }
}

void gd_ref_recur(const struct gd_kernel_args *args) {
  struct sizes n = sizes_of(&args->out[0]);
  int64_t row = n.channels * n.states;
  for (int64_t batch = 0; batch < n.batch; batch++)
    for (int64_t i = 0; i < row; i++) {
      double h = 0;
      for (int64_t t = 0; t < n.steps; t++) {
        int64_t at = (batch * n.steps + t) * row + i;
        h = get(&args->in[0], at) * h + get(&args->in[1], at);
        put(&args->out[0], at, h);
      }
    }
}

/* dx_t = dh_t + a_{t+1} dx_{t+1}, da_t = dx_t h_{t-1}. */
void gd_ref_recur_grad(const struct gd_kernel_args *args) {
  struct sizes n = sizes_of(&args->in[0]);
  int64_t row = n.channels * n.states;
  for (int64_t batch = 0; batch < n.batch; batch++)
    for (int64_t i = 0; i < row; i++) {
      double carried = 0;
      for (int64_t t = n.steps - 1; t >= 0; t--) {
        int64_t at = (batch * n.steps + t) * row + i;
        double dx = get(&args->in[0], at) + carried;
        carried = get(&args->in[1], at) * dx;
        put(&args->out[0], at, dx);
        put(&args->out[1], at, t > 0 ? dx * get(&args->in[2], at - row) : 0);
      }
    }
}

void gd_ref_contract_states(const struct gd_kernel_args *args) {
  struct sizes n = sizes_of(&args->in[0]);
  for (int64_t i = 0; i < args->out[0].elements; i++) {
    double sum = 0;
    for (int64_t s = 0; s < n.states; s++)
      sum += get(&args->in[0], i * n.states + s) * get(&args->in[1], i / n.channels * n.states + s);
    put(&args->out[0], i, sum);
  }
}

void gd_ref_contract_channels(const struct gd_kernel_args *args) {
  struct sizes n = sizes_of(&args->in[0]);
  for (int64_t i = 0; i < args->out[0].elements; i++) {
    int64_t row = i / n.states, s = i % n.states;
    double sum = 0;
    for (int64_t c = 0; c < n.channels; c++)
      sum += get(&args->in[0], (row * n.channels + c) * n.states + s) *
             get(&args->in[1], row * n.channels + c);
    put(&args->out[0], i, sum);
  }
}
