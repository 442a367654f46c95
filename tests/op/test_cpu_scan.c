/*
 * The loops under scan, whole and in parts, and conv1d at every level this CPU has, in fp32,
 * against the ref kernels: test_cpu_ops.c covers the cpu kernels in every dtype, at the best level
 * only.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backend/cpu/cpu_int.h"
#include "backend/ref/ref_int.h"
#include "base/mem.h"
#include "base/rng.h"

enum { MOST_DIMS = 4, MOST_VIEWS = 16 };

/* Tensors of one case: made up, or to be written. */
struct tensors {
  struct gd_view views[MOST_VIEWS];
  int64_t dims[MOST_VIEWS][MOST_DIMS];
  uint32_t count;
};

static struct gd_view *add(struct tensors *t, double low, double high, uint32_t rank,
                           const int64_t *dims) {
  struct gd_view *view = &t->views[t->count];
  *view = (struct gd_view){.dtype = GD_DTYPE_F32, .rank = rank, .elements = 1};
  for (uint32_t i = 0; i < rank; i++)
    view->elements *= t->dims[t->count][i] = dims[i];
  view->dims = t->dims[t->count];
  view->data = gd_mem_alloc((size_t)view->elements + 1, sizeof(float));
  assert_non_null(view->data);
  for (int64_t i = 0; i < view->elements; i++)
    ((float *)view->data)[i] =
        (float)(low + (high - low) * (double)gd_rng_uniform(1, t->count, (uint64_t)i));
  t->count++;
  return view;
}
#define ADD(t, low, high, ...) \
  add(t, low, high, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static void release(struct tensors *t) {
  for (uint32_t i = 0; i < t->count; i++)
    gd_mem_free(t->views[i].data);
}

/* Relative to the root mean square of what ref wrote. */
static void compare(const char *what, const char *level, const struct gd_view *got,
                    const struct gd_view *want) {
  const float *g = got->data, *w = want->data;
  double squares = 0, worst = 0;
  for (int64_t i = 0; i < want->elements; i++) {
    squares += (double)w[i] * (double)w[i];
    worst = fmax(worst, fabs((double)g[i] - (double)w[i]));
    assert_true(isfinite(g[i]));
  }
  double rms = sqrt(squares / (double)want->elements);
  if (!(worst <= 2e-5 * rms))
    fail_msg("%s, %s: off by %g of %g", what, level, worst, rms);
}

/* --- scan ----------------------------------------------------------------------------------- */

struct scan_case {
  struct tensors t;
  struct gd_kernel_args forward, backward;      /* for ref */
  const struct gd_view *y, *kept, *grads[6];    /* what ref wrote */
  struct gd_view *own_y, *own_kept, *own_grads; /* what the loops write */
  float *carried, *partials;
};

static const char *const grad_names[] = {"du", "ddelta", "dA_log", "db", "dc", "dd"};

/* dy, u, delta, A_log, b, c, d, states; y; the six gradients. The last seven and states twice. */
static void scan_init(struct scan_case *s, struct tensors *own, int64_t b, int64_t t, int64_t c,
                      int64_t n) {
  int64_t chunks = (t + GD_SCAN_CHUNK - 1) / GD_SCAN_CHUNK;
  int64_t groups = (c + GD_CPU_SCAN_CHANNELS - 1) / GD_CPU_SCAN_CHANNELS;
  *s = (struct scan_case){.y = NULL};
  *own = (struct tensors){.count = 0};
  struct gd_view *dy = ADD(&s->t, -1, 1, b, t, c), *u = ADD(&s->t, -1, 1, b, t, c);
  ADD(&s->t, 1e-3, 0.5, b, t, c);
  ADD(&s->t, -1, 2, c, n);
  ADD(&s->t, -1, 1, b, t, n);
  ADD(&s->t, -1, 1, b, t, n);
  ADD(&s->t, -1, 1, c);
  struct gd_view *kept = ADD(&s->t, 0, 0, b, chunks, c, n);
  struct gd_view *y = ADD(&s->t, 0, 0, b, t, c);
  struct gd_view *outs = &s->t.views[s->t.count];
  for (int i = 0; i < 6; i++) {
    const struct gd_view *like = &s->t.views[1 + i];
    s->grads[i] = add(&s->t, 0, 0, like->rank, like->dims);
    add(own, 9, 9, like->rank, like->dims);
  }
  s->own_grads = own->views;
  s->own_y = ADD(own, 9, 9, b, t, c);
  s->own_kept = ADD(own, 9, 9, b, chunks, c, n);
  s->y = y;
  s->kept = kept;
  s->carried = ADD(own, 9, 9, groups * GD_CPU_SCAN_CHANNELS, n)->data;
  s->partials = ADD(own, 9, 9, groups, 2, GD_SCAN_CHUNK, n)->data;
  static struct gd_view forward_out[2];
  forward_out[0] = *y;
  forward_out[1] = *kept;
  s->forward = (struct gd_kernel_args){.n_in = 6, .n_out = 2, .in = u, .out = forward_out};
  s->backward = (struct gd_kernel_args){.n_in = 8, .n_out = 6, .in = dy, .out = outs};
}

static void check_scan(const struct gd_cpu_rows *rows, const char *level, int64_t b, int64_t t,
                       int64_t c, int64_t n) {
  static struct gd_cpu_scan_scratch scratch;
  struct scan_case s;
  struct tensors own;
  scan_init(&s, &own, b, t, c, n);
  const struct gd_view *in = s.t.views;
  int64_t chunks = s.kept->dims[1], stride = 2 * GD_SCAN_CHUNK * n;
  int64_t groups = (c + GD_CPU_SCAN_CHANNELS - 1) / GD_CPU_SCAN_CHANNELS;
  gd_ref_scan(&s.forward);
  gd_ref_scan_grad(&s.backward);
  struct gd_cpu_scan scan = {.dtype = GD_DTYPE_F32,
                             .dtype_delta = GD_DTYPE_F32,
                             .dtype_b = GD_DTYPE_F32,
                             .dtype_dy = GD_DTYPE_F32,
                             .steps = t,
                             .channels = c,
                             .states = n,
                             .chunks = chunks,
                             .dy = in[0].data,
                             .u = in[1].data,
                             .delta = in[2].data,
                             .a_log = in[3].data,
                             .b = in[4].data,
                             .c = in[5].data,
                             .d = in[6].data,
                             .saved = s.own_kept->data,
                             .y = s.own_y->data,
                             .du = s.own_grads[0].data,
                             .ddelta = s.own_grads[1].data,
                             .da_log = s.own_grads[2].data,
                             .dd = s.own_grads[5].data,
                             .carried = s.carried,
                             .partials = s.partials};
  for (int64_t task = 0; task < b * groups; task++)
    rows->scan(&scan, task / groups, task % groups, &scratch);
  float *db = s.own_grads[3].data, *dc = s.own_grads[4].data;
  for (int64_t batch = 0; batch < b; batch++)
    for (int64_t chunk = chunks - 1; chunk >= 0; chunk--) {
      int64_t first = chunk * GD_SCAN_CHUNK;
      int64_t count = (t - first < GD_SCAN_CHUNK ? t - first : GD_SCAN_CHUNK) * n;
      for (int64_t group = 0; group < groups; group++)
        rows->scan_grad(&scan, batch, chunk, group, &scratch);
      for (int64_t i = 0; i < count; i++) {
        int64_t at = (batch * t + first) * n + i;
        db[at] = dc[at] = 0;
        for (int64_t group = 0; group < groups; group++) {
          db[at] += s.partials[group * stride + i];
          dc[at] += s.partials[group * stride + GD_SCAN_CHUNK * n + i];
        }
      }
    }
  compare("y", level, s.own_y, s.y);
  if (t > GD_SCAN_CHUNK)
    compare("states", level, s.own_kept, s.kept);
  for (int i = 0; i < 6; i++)
    compare(grad_names[i], level, &s.own_grads[i], s.grads[i]);
  release(&s.t);
  release(&own);
}

static void test_scan(void **state) {
  static const int64_t shapes[][4] = {/* sequences, steps, channels, states */
                                      {1, 5, 3, 2},    {2, 66, 65, 16}, {1, 130, 17, 5},
                                      {1, 64, 33, 18}, {2, 7, 130, 1},  {1, 200, 8, 16}};
  (void)state;
  for (int isa = 0; isa <= (int)gd_isa_detect(); isa++)
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
      check_scan(gd_cpu_rows_for((enum gd_isa)isa), gd_isa_name((enum gd_isa)isa), shapes[i][0],
                 shapes[i][1], shapes[i][2], shapes[i][3]);
}

/* A step of 1000 leaves nothing of the state, a step of 0 all of it: no factor overflows. */
static void test_extreme_steps(void **state) {
  static struct gd_cpu_scan_scratch scratch;
  float u[4] = {1, 1, 1, 1}, delta[4] = {1, 1000, 0, 1e30f}, a_log[1] = {1}, one[4] = {1, 1, 1, 1};
  float y[4], kept[1], none[1] = {0};
  struct gd_cpu_scan scan = {.dtype = GD_DTYPE_F32,
                             .dtype_delta = GD_DTYPE_F32,
                             .dtype_b = GD_DTYPE_F32,
                             .steps = 4,
                             .channels = 1,
                             .states = 1,
                             .chunks = 1,
                             .u = u,
                             .delta = delta,
                             .a_log = a_log,
                             .b = one,
                             .c = one,
                             .d = none,
                             .saved = kept,
                             .y = y};
  (void)state;
  for (int isa = 0; isa <= (int)gd_isa_detect(); isa++) {
    gd_cpu_rows_for((enum gd_isa)isa)->scan(&scan, 0, 0, &scratch);
    assert_true(y[0] == 1 && y[1] == 1000 && y[2] == 1000 && y[3] == 1e30f);
  }
}

/* --- scan in parts -------------------------------------------------------------------------- */

/* Each loop on two pieces of its work, against ref. */
static void check_states(const struct gd_cpu_rows *rows, const char *level, int64_t b, int64_t t,
                         int64_t c, int64_t n) {
  static struct gd_cpu_states_scratch scratch;
  const union gd_attr to_f32 = {.contract = {GD_DTYPE_F32}};
  struct tensors ref = {.count = 0}, own = {.count = 0};
  struct gd_view *g = ADD(&ref, -1, 1, b, t, c, n), *a = ADD(&ref, 0.3, 1, b, t, c, n);
  struct gd_view *h = ADD(&ref, -1, 1, b, t, c, n), *delta = ADD(&ref, 1e-3, 0.5, b, t, c);
  struct gd_view *along = ADD(&ref, -1, 1, b, t, n), *a_log = ADD(&ref, -1, 2, c, n);
  struct gd_view *out = ADD(&ref, 0, 0, b, t, c, n), *out_a = ADD(&ref, 0, 0, b, t, c, n);
  struct gd_view *out_c = ADD(&ref, 0, 0, b, t, c), *out_log = ADD(&ref, 0, 0, c, n);
  struct gd_view *out_s = ADD(&ref, 0, 0, b, t, n);
  struct gd_view *own_out = ADD(&own, 9, 9, b, t, c, n), *own_a = ADD(&own, 9, 9, b, t, c, n);
  struct gd_view *own_c = ADD(&own, 9, 9, b, t, c), *own_log = ADD(&own, 9, 9, c, n);
  struct gd_view *own_s = ADD(&own, 9, 9, b, t, n);
  struct gd_cpu_states p = {.dtype_c = GD_DTYPE_F32,
                            .dtype_s = GD_DTYPE_F32,
                            .steps = t,
                            .channels = c,
                            .states = n,
                            .along_c = delta->data,
                            .along_s = along->data,
                            .a_log = a_log->data,
                            .a = a->data,
                            .x = h->data,
                            .grad = g->data,
                            .out = own_out->data,
                            .out_a = own_a->data,
                            .out_a_log = own_log->data,
                            .out_c = own_c->data,
                            .out_s = own_s->data};
#define REF(kernel, n_inputs, output, ...)                               \
  kernel(&(struct gd_kernel_args){.attr = &to_f32,                       \
                                  .n_in = (n_inputs),                    \
                                  .n_out = 1,                            \
                                  .in = (struct gd_view[]){__VA_ARGS__}, \
                                  .out = (output)})
  struct gd_view two[2] = {*out, *out_a}, sums[2] = {*out_c, *out_log};
  int64_t all = b * t, half = all / 2, row = c * n, cut = row / 2;

  rows->decay(&p, 0, half, &scratch);
  rows->decay(&p, half, all, &scratch);
  REF(gd_ref_decay, 2, out, *delta, *a_log);
  compare("decay", level, own_out, out);

  rows->outer(&p, 0, half, &scratch);
  rows->outer(&p, half, all, &scratch);
  REF(gd_ref_outer, 2, out, *delta, *along);
  compare("outer", level, own_out, out);

  rows->contract_states(&p, 0, half, &scratch);
  rows->contract_states(&p, half, all, &scratch);
  REF(gd_ref_contract_states, 2, out_c, *h, *along);
  compare("contract_states", level, own_c, out_c);

  rows->contract_channels(&p, 0, half, &scratch);
  rows->contract_channels(&p, half, all, &scratch);
  REF(gd_ref_contract_channels, 2, out_s, *h, *delta);
  compare("contract_channels", level, own_s, out_s);

  for (int64_t batch = 0; batch < b; batch++) {
    rows->recur(&p, batch, 0, cut);
    rows->recur(&p, batch, cut, row);
  }
  REF(gd_ref_recur, 2, out, *a, *h);
  compare("recur", level, own_out, out);

  for (int64_t batch = 0; batch < b; batch++) {
    rows->recur_grad(&p, batch, 0, cut);
    rows->recur_grad(&p, batch, cut, row);
  }
  REF(gd_ref_recur_grad, 3, two, *g, *a, *h);
  compare("dx of recur", level, own_out, out);
  compare("da of recur", level, own_a, out_a);

  rows->decay_grad(&p, all, 0, c / 2, &scratch);
  rows->decay_grad(&p, all, c / 2, c, &scratch);
  REF(gd_ref_decay_grad, 4, sums, *g, *a, *delta, *a_log);
  compare("ddelta", level, own_c, out_c);
  compare("dA_log", level, own_log, out_log);
#undef REF
  release(&ref);
  release(&own);
}

static void test_states(void **state) {
  static const int64_t shapes[][4] = {/* sequences, steps, channels, states */
                                      {1, 5, 3, 2},   {2, 9, 65, 16},  {1, 33, 17, 5},
                                      {1, 7, 33, 18}, {2, 3, 300, 16}, {1, 4, 20, 256}};
  (void)state;
  for (int isa = 0; isa <= (int)gd_isa_detect(); isa++)
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
      check_states(gd_cpu_rows_for((enum gd_isa)isa), gd_isa_name((enum gd_isa)isa), shapes[i][0],
                   shapes[i][1], shapes[i][2], shapes[i][3]);
}

/*
 * exp(-delta) by the exponential under scan: delta log2(e) is rounded, which is delta
 * last bits of the result; and one bit more or so. Small steps, whose factors are multiplied a
 * thousand times, must not be biased: the mean error is a small part of the last bit.
 */
static void test_decay_accuracy(void **state) {
  enum { POINTS = 1 << 14 };
  static struct gd_cpu_states_scratch scratch;
  static float delta[POINTS], out[POINTS];
  const double last_bit = 0x1p-23;
  float a_log[1] = {0};
  struct gd_cpu_states p = {.dtype_c = GD_DTYPE_F32,
                            .steps = POINTS,
                            .channels = 1,
                            .states = 1,
                            .along_c = delta,
                            .a_log = a_log,
                            .out = out};
  (void)state;
  for (int isa = 0; isa <= (int)gd_isa_detect(); isa++)
    for (double range = 0.01; range < 100; range *= 20) {
      double bias = 0;
      for (int i = 0; i < POINTS; i++)
        delta[i] = (float)(range * i / POINTS);
      gd_cpu_rows_for((enum gd_isa)isa)->decay(&p, 0, POINTS, &scratch);
      assert_true(out[0] == 1);
      for (int i = 0; i < POINTS; i++) {
        double want = exp(-(double)delta[i]), error = (double)out[i] / want - 1;
        bias += error / POINTS;
        if (!(fabs(error) <= (1 + (double)delta[i]) * last_bit))
          fail_msg("%s: exp(-%g) is off by %g", gd_isa_name((enum gd_isa)isa), (double)delta[i],
                   error);
      }
      if (!(fabs(bias) <= 0.1 * last_bit * (1 + range)))
        fail_msg("%s: up to %g the mean error is %g", gd_isa_name((enum gd_isa)isa), range, bias);
    }
}

/* --- conv1d --------------------------------------------------------------------------------- */

static void check_conv1d(const struct gd_cpu_rows *rows, const char *level, int64_t b, int64_t t,
                         int64_t c, int64_t k) {
  struct tensors ref = {.count = 0}, own = {.count = 0};
  struct gd_view *x = ADD(&ref, -1, 1, b, t, c), *w = ADD(&ref, -1, 1, c, 1, k);
  struct gd_view *bias = ADD(&ref, -1, 1, c), *y = ADD(&ref, 0, 0, b, t, c);
  struct gd_view *dw = ADD(&ref, 0, 0, c, 1, k), *dbias = ADD(&ref, 0, 0, c);
  struct gd_view *own_y = ADD(&own, 9, 9, b, t, c), *sums = ADD(&own, 0, 0, k + 1, c);
  struct gd_view *own_dw = ADD(&own, 9, 9, c, 1, k), *transposed = ADD(&own, 0, 0, k, c);
  const union gd_attr attr = {.rows = {k}};
  struct gd_view twice[] = {*x, *x}, filter[] = {*x, *w, *bias};
  struct gd_cpu_conv1d conv = {.dtype = GD_DTYPE_F32,
                               .steps = t,
                               .channels = c,
                               .taps = k,
                               .end = c,
                               .x = x->data,
                               .dy = x->data,
                               .w = transposed->data,
                               .bias = bias->data,
                               .y = own_y->data};
  for (int64_t i = 0; i < c * k; i++)
    ((float *)transposed->data)[(k - 1 - i % k) * c + i / k] = ((float *)w->data)[i];
  for (int64_t batch = 0; batch < b; batch++) {
    rows->conv1d(&conv, batch, 0, t / 3);
    rows->conv1d(&conv, batch, t / 3, t);
    rows->conv1d_dw(&conv, batch, 0, t / 2, sums->data);
    rows->conv1d_dw(&conv, batch, t / 2, t, sums->data);
  }
  gd_ref_conv1d(&(struct gd_kernel_args){.n_in = 3, .n_out = 1, .in = filter, .out = y});
  compare("conv1d", level, own_y, y);
  gd_ref_conv1d_dw(
      &(struct gd_kernel_args){.attr = &attr, .n_in = 2, .n_out = 2, .in = twice, .out = dw});
  for (int64_t i = 0; i < c * k; i++)
    ((float *)own_dw->data)[i] = ((float *)sums->data)[(k - 1 - i % k) * c + i / k];
  compare("conv1d_dw", level, own_dw, dw);
  for (int64_t i = 0; i < c; i++)
    assert_true(fabs((double)((float *)sums->data)[k * c + i] - (double)((float *)dbias->data)[i]) <
                1e-5 * (double)(b * t));

  conv.ahead = true;
  conv.bias = NULL;
  for (int64_t batch = 0; batch < b; batch++)
    rows->conv1d(&conv, batch, 0, t);
  gd_ref_conv1d_dx(&(struct gd_kernel_args){.n_in = 2, .n_out = 1, .in = filter, .out = y});
  compare("conv1d_dx", level, own_y, y);
  release(&ref);
  release(&own);
}

static void test_conv1d(void **state) {
  static const int64_t shapes[][4] = {/* sequences, steps, channels, taps */
                                      {2, 2, 5, 4},   {1, 70, 33, 4}, {2, 37, 64, 4},
                                      {1, 19, 17, 3}, {1, 9, 40, 6},  {1, 4, 1, 4}};
  (void)state;
  for (int isa = 0; isa <= (int)gd_isa_detect(); isa++)
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
      check_conv1d(gd_cpu_rows_for((enum gd_isa)isa), gd_isa_name((enum gd_isa)isa), shapes[i][0],
                   shapes[i][1], shapes[i][2], shapes[i][3]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_scan),   cmocka_unit_test(test_extreme_steps),
      cmocka_unit_test(test_states), cmocka_unit_test(test_decay_accuracy),
      cmocka_unit_test(test_conv1d),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
