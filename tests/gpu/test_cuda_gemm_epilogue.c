/*
 * GEMMs with GELU or dGELU in their epilogue (backend/cuda/gemm/gemm_epilogue.c): the two GEMMs of
 * a layer with what follows them, in one captured program, separate, fused and as they were timed,
 * each against fp64 by element. The backend counts those that ran fused; a second one, which reads
 * the autotune results of the first, must choose alike and have nothing left to time.
 *
 *   test_cuda_gemm_epilogue [BACKEND]     cpu: the test itself, on a machine without a GPU
 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend/cuda/gemm/cuda_gemm.h"
#include "backend/cuda/runtime/autotune.h"
#include "base/rng.h"
#include "ir/fusion.h"

static const char *tested = "cuda";

struct shape {
  int64_t rows, k, n;
  enum gd_dtype dtype;
  bool bias;
  bool fused;    /* the gradient and its sum are one op; else two */
  bool in_place; /* nobody reads what gelu is taken of: no gradient then */
};

enum { ANY = -1 };
enum leaf { X, W, BIAS, DY, W2, LEAVES };

/* y = x w + bias, z = gelu(y), dh = dy w2', dx = dh gelu'(y), sums = its sum over the rows. */
struct setting {
  struct shape shape;
  struct gd_graph graph;
  struct gd_plan plan;
  struct gd_backend *backend;
  struct gd_bound *bound;
  struct gd_error err;
  gd_tensor_id leaves[LEAVES], y, z, dx, sums;
  float *data[LEAVES]; /* as the device has them, rounded */
};

static void expect(enum gd_status status, const struct setting *s) {
  if (status != GD_OK)
    fail_msg("%s", s->err.text);
}

/* --- the program ------------------------------------------------------------------------------ */

static gd_tensor_id fused_gradient(struct setting *s, gd_tensor_id x, gd_tensor_id dy) {
  const union gd_attr gelu = {.activate = {GD_ACTIVATION_GELU_TANH}}, rows = {.rows = {1}};
  const int64_t dims[] = {s->shape.rows, s->shape.n};
  struct gd_fusion fusion = {
      .n_in = 2, .n_out = 2, .rows = dims[0], .columns = dims[1], .inplace = 3};
  struct gd_graph *g = &fusion.body;
  gd_graph_init(g);
  gd_tensor_id in[] = {gd_graph_leaf(g, GD_ROLE_INPUT, "x", s->shape.dtype, 2, dims),
                       gd_graph_leaf(g, GD_ROLE_INPUT, "dy", s->shape.dtype, 2, dims)};
  fusion.out[0] = gd_graph_op(g, GD_OP_activate_grad, &gelu, 2, in);
  fusion.out[1] = gd_graph_op(g, GD_OP_sum_rows, &rows, 1, &fusion.out[0]);
  const union gd_attr attr = {.fused = {gd_graph_fusion(&s->graph, &fusion)}};
  return gd_graph_op(&s->graph, GD_OP_fused, &attr, 2, (gd_tensor_id[]){x, dy});
}

static void build(struct setting *s) {
  const struct shape *h = &s->shape;
  struct gd_graph *g = &s->graph;
  const int64_t dims[LEAVES][2] = {
      {h->rows, h->k}, {h->k, h->n}, {h->n, 0}, {h->rows, h->k}, {h->n, h->k}};
  const union gd_attr gelu = {.activate = {GD_ACTIVATION_GELU_TANH}}, rows = {.rows = {1}};
  struct gd_attr_matmul gemm = {.alpha = 1, .out_dtype = GD_DTYPE_COUNT};
  gd_graph_init(g);
  for (int i = 0; i < LEAVES; i++)
    s->leaves[i] = gd_graph_leaf(g, GD_ROLE_INPUT, "leaf", i == BIAS ? GD_DTYPE_F32 : h->dtype,
                                 i == BIAS ? 1 : 2, dims[i]);
  s->y = gd_matmul(g, s->leaves[X], s->leaves[W], h->bias ? s->leaves[BIAS] : GD_NONE, gemm);
  s->z = gd_activate(g, s->y, GD_ACTIVATION_GELU_TANH);
  if (h->in_place) {
    gd_concat(g, 1, &s->z);
    return;
  }
  gemm.trans_b = true;
  gd_tensor_id dh = gd_matmul(g, s->leaves[DY], s->leaves[W2], GD_NONE, gemm);
  s->dx = h->fused ? fused_gradient(s, s->y, dh)
                   : gd_graph_op(g, GD_OP_activate_grad, &gelu, 2, (gd_tensor_id[]){s->y, dh});
  s->sums = h->fused ? s->dx + 1 : gd_graph_op(g, GD_OP_sum_rows, &rows, 1, &s->dx);
  gd_tensor_id kept = gd_graph_leaf(g, GD_ROLE_GRAD, "sums", GD_DTYPE_F32, 1, &h->n);
  gd_graph_op(g, GD_OP_accumulate, NULL, 2, (gd_tensor_id[]){kept, s->sums});
  s->sums = kept;                                       /* binding clears it */
  gd_concat(g, 3, (gd_tensor_id[]){s->y, s->z, s->dx}); /* all are there at the end */
}

static void start(struct setting *s, const struct shape *shape) {
  struct gd_caps caps;
  *s = (struct setting){.shape = *shape};
  build(s);
  expect(gd_graph_check(&s->graph, &s->err), s);
  expect(gd_backend_open(tested, &(struct gd_backend_options){0}, &s->backend, &s->err), s);
  s->backend->ops->caps(&(struct gd_backend_options){0}, &caps);
  expect(gd_plan_make(&s->graph, &caps, &s->plan, &s->err), s);
  expect(s->backend->ops->reserve(s->backend, s->plan.device_bytes, s->plan.host_bytes, &s->err),
         s);
  expect(s->backend->ops->bind(s->backend, &s->plan, &s->bound, &s->err), s);
}

static void stop(struct setting *s) {
  s->backend->ops->unbind(s->backend, s->bound);
  gd_backend_close(s->backend);
  gd_plan_deinit(&s->plan);
  gd_graph_deinit(&s->graph);
  for (int i = 0; i < LEAVES; i++)
    gd_mem_free(s->data[i]);
}

/* y has a standard deviation of about 1.5; the bias is exact in 16 bits. */
static void write_leaves(struct setting *s) {
  for (int i = 0; i < LEAVES; i++) {
    enum gd_dtype dtype = s->graph.tensors[s->leaves[i]].dtype;
    int64_t count = gd_tensor_elements(&s->graph, s->leaves[i]);
    double scale = i == W || i == W2 ? 1.5 / sqrt((double)s->shape.k) : 1;
    char *bytes = gd_mem_alloc((size_t)count, (size_t)gd_dtype_bytes(dtype));
    float *numbers = gd_mem_alloc((size_t)count, sizeof *numbers);
    assert_true(bytes && numbers);
    gd_rng_normal(11, (uint64_t)i, scale, 0, numbers, count);
    for (int64_t j = 0; j < count; j++) {
      gd_dtype_store(dtype, bytes, j, i == BIAS ? rintf(4 * numbers[j]) / 4 : numbers[j]);
      numbers[j] = gd_dtype_load(dtype, bytes, j);
    }
    expect(s->backend->ops->write(s->backend, GD_SPACE_DEVICE, s->plan.offset_bytes[s->leaves[i]],
                                  bytes, count * gd_dtype_bytes(dtype), &s->err),
           s);
    gd_mem_free(bytes);
    s->data[i] = numbers;
  }
}

static float *read_tensor(struct setting *s, gd_tensor_id id) {
  enum gd_dtype dtype = s->graph.tensors[id].dtype;
  int64_t count = gd_tensor_elements(&s->graph, id);
  char *bytes = gd_mem_alloc((size_t)count, (size_t)gd_dtype_bytes(dtype));
  float *numbers = gd_mem_alloc((size_t)count, sizeof *numbers);
  assert_true(bytes && numbers);
  expect(s->backend->ops->read(s->backend, GD_SPACE_DEVICE, s->plan.offset_bytes[id], bytes,
                               count * gd_dtype_bytes(dtype), &s->err),
         s);
  for (int64_t i = 0; i < count; i++)
    numbers[i] = gd_dtype_load(dtype, bytes, i);
  gd_mem_free(bytes);
  return numbers;
}

/* --- against fp64 ----------------------------------------------------------------------------- */

static double gelu_inner(double x) {
  return tanh(0.7978845608028654 * (x + 0.044715 * x * x * x));
}

static double gelu(double x) {
  return 0.5 * x * (1 + gelu_inner(x));
}

static double gelu_derivative(double x) {
  double t = gelu_inner(x);
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
}

struct off {
  double squares, truth; /* sums */
  double worst;          /* over what is allowed */
};

static void add_off(struct off *off, double got, double truth, double allowed) {
  double by = fabs(got - truth);
  off->squares += by * by;
  off->truth += truth * truth;
  if (!(by / allowed <= off->worst)) /* NaN too */
    off->worst = isnan(by) ? HUGE_VAL : by / allowed;
}

/*
 * Allowed are: a rounding of the result; apart, one of what gelu is taken of, or of dh; sums in
 * fp32; and 2^-10 of the tanh, which the library may take from the special-function unit.
 */
static void compare_row(const struct setting *s, int64_t row, const float *y, const float *z,
                        const float *dx, struct off off[3]) {
  const struct shape *h = &s->shape;
  double last = h->dtype == GD_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
  for (int64_t j = 0; j < h->n; j++) {
    double sum = h->bias ? (double)s->data[BIAS][j] : 0, dh = 0, most = fabs(sum), most_dh = 0;
    int64_t at = row * h->n + j;
    for (int64_t l = 0; l < h->k; l++) {
      double a = (double)s->data[X][row * h->k + l] * (double)s->data[W][l * h->n + j];
      double b = (double)s->data[DY][row * h->k + l] * (double)s->data[W2][j * h->k + l];
      sum += a;
      dh += b;
      most += fabs(a);
      most_dh += fabs(b);
    }
    double sums = 1e-5 * most + 1e-7;
    if (y)
      add_off(&off[0], (double)y[at], sum, last * fabs(sum) + sums);
    add_off(&off[1], (double)z[at], gelu(sum),
            last * fabs(gelu(sum)) + last * fabs(sum * gelu_derivative(sum)) + 0x1p-10 * fabs(sum) +
                2 * sums);
    if (!dx)
      continue;
    double x = (double)y[at], derivative = gelu_derivative(x);
    add_off(&off[2], (double)dx[at], dh * derivative,
            2 * last * fabs(dh * derivative) + 0x1p-10 * (1 + x * x) * fabs(dh) +
                2 * (1e-5 * most_dh + 1e-7));
  }
}

/* The sum over the rows of what the device has. */
static double compare_sums(const struct shape *h, const float *dx, const float *sums) {
  double worst = 0;
  for (int64_t j = 0; j < h->n; j++) {
    double sum = 0, most = 1e-6;
    for (int64_t i = 0; i < h->rows; i++) {
      sum += (double)dx[i * h->n + j];
      most += fabs((double)dx[i * h->n + j]);
    }
    double by = fabs((double)sums[j] - sum) / most;
    worst = by <= worst ? worst : by;
  }
  return worst;
}

/* Root mean squares of errors over those of results: y, z, dx. */
static void check(struct setting *s, const char *how, bool fused, double errors[3]) {
  const struct shape *h = &s->shape;
  static const char *const names[] = {"y", "z", "dx"};
  struct off off[3] = {{0}};
  write_leaves(s);
  expect(s->backend->ops->run(s->backend, s->bound, GD_PROGRAM_MICRO_STEP, &s->err), s);
  expect(s->backend->ops->sync(s->backend, &s->err), s);
  float *y = h->in_place ? NULL : read_tensor(s, s->y), *z = read_tensor(s, s->z);
  float *dx = h->in_place ? NULL : read_tensor(s, s->dx);
  int64_t step = h->rows > 200 ? h->rows / 37 : 1;
  for (int64_t row = 0; row < h->rows; row += step)
    compare_row(s, row, y, z, dx, off);
  compare_row(s, h->rows - 1, y, z, dx, off);
  for (int i = 0; i < 3; i++) {
    errors[i] = sqrt(off[i].squares / (off[i].truth + 1e-30));
    if (off[i].worst > 1)
      fail_msg("%s, %lld x %lld x %lld %s: %s is off by %g of what is allowed", how,
               (long long)h->rows, (long long)h->n, (long long)h->k, gd_dtype_name(h->dtype),
               names[i], off[i].worst);
  }
  if (!h->in_place) {
    float *sums = read_tensor(s, s->sums);
    double worst = compare_sums(h, dx, sums);
    /* A cluster may add what it has not rounded yet. */
    double allowed = fused ? 1e-5 : h->dtype == GD_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
    if (!(worst <= allowed))
      fail_msg("%s, %lld x %lld: sums are off by %g", how, (long long)h->rows, (long long)h->n,
               worst);
    gd_mem_free(sums);
  }
  gd_mem_free(y);
  gd_mem_free(z);
  gd_mem_free(dx);
}

/* --- what ran ----------------------------------------------------------------------------------
 */

static const struct gd_cuda_autotune *tuned_of(struct setting *s) {
  return ((struct gd_cuda *)s->backend)->autotune;
}

/* GEMMs that this backend launched with an epilogue. */
static int epilogues(struct setting *s, bool print) {
  if (strcmp(tested, "cuda") != 0)
    return -1;
  const struct gd_cuda_autotune *tuned = tuned_of(s);
  for (uint32_t i = 0; i < tuned->count && print; i++)
    printf("  %s: %s\n", tuned->at[i].key, tuned->at[i].note);
  return ((struct gd_cuda *)s->backend)->epilogues;
}

static void check_shape(const struct shape *shape, const char *how, int wanted, double errors[3]) {
  struct setting s;
  setenv("GPUDAYS_GEMM_EPILOGUE", how, 1);
  start(&s, shape);
  check(&s, how, wanted > 0 && strcmp(tested, "cuda") == 0, errors);
  int ran = epilogues(&s, false);
  /* Counted in every program that is captured. */
  if (ran >= 0 && wanted != ANY && (wanted ? ran == 0 || ran % wanted : ran) != 0)
    fail_msg("GPUDAYS_GEMM_EPILOGUE=%s, %lld x %lld x %lld %s: %d launches with an epilogue, of %d",
             how, (long long)shape->rows, (long long)shape->n, (long long)shape->k,
             gd_dtype_name(shape->dtype), ran, wanted);
  stop(&s);
}

/* --- tests -------------------------------------------------------------------------------------
 */

static void test_fused(void **state) {
  static const struct {
    int64_t rows, n, k;
    int fused; /* gemms of two; ANY: the library may have none for a single row */
  } sizes[] = {{64, 64, 64, 2},    {1, 8, 8, ANY},  {131, 72, 40, 2}, {777, 512, 128, 2},
               {33, 3072, 768, 2}, {65, 68, 64, 0}, {64, 64, 20, 0},  {40, 33, 17, 0}};
  (void)state;
  printf("error against fp64, root mean square: apart y z dx, fused\n");
  for (int i = 0; i < 32; i++) {
    int wanted = sizes[i / 4].fused;
    struct shape shape = {.rows = sizes[i / 4].rows,
                          .n = sizes[i / 4].n,
                          .k = sizes[i / 4].k,
                          .dtype = i & 1 ? GD_DTYPE_F16 : GD_DTYPE_BF16,
                          .bias = i & 2,
                          .fused = i % 4 == 1 || i % 4 == 2};
    double apart[3], fused[3];
    check_shape(&shape, "0", 0, apart);
    check_shape(&shape, "1", wanted, fused);
    printf("  %4lld x %4lld x %3lld %s%s%s: %.1e %.1e %.1e, %.1e %.1e %.1e\n",
           (long long)shape.rows, (long long)shape.n, (long long)shape.k,
           gd_dtype_name(shape.dtype), shape.bias ? " bias" : "", shape.fused ? " fused" : "",
           apart[0], apart[1], apart[2], fused[0], fused[1], fused[2]);
    /* It leaves out a rounding; its tanh may have fewer bits, which those of f16 show. */
    for (int j = 0; j < 3 && wanted == 2; j++)
      assert_true(fused[j] <= (shape.dtype == GD_DTYPE_BF16 ? 1.25 : 4) * apart[j]);
    /* The same bits were computed in the same way. */
    if (strcmp(tested, "cuda") == 0 && wanted == 2)
      assert_true(fused[1] != apart[1] && fused[2] != apart[2]);
  }
}

static void test_in_place(void **state) {
  (void)state;
  for (int i = 0; i < 4; i++) {
    struct shape shape = {.rows = 131,
                          .n = 72,
                          .k = 40,
                          .dtype = i & 1 ? GD_DTYPE_F16 : GD_DTYPE_BF16,
                          .bias = i & 2,
                          .in_place = true};
    double errors[3];
    check_shape(&shape, "0", 0, errors);
    check_shape(&shape, "1", 1, errors);
  }
}

static void test_deterministic(void **state) {
  struct shape shape = {.rows = 64, .n = 64, .k = 64, .dtype = GD_DTYPE_BF16, .fused = true};
  double errors[3];
  (void)state;
  setenv("GPUDAYS_DETERMINISTIC", "1", 1);
  check_shape(&shape, "1", 0, errors);
  unsetenv("GPUDAYS_DETERMINISTIC");
}

/* By time: whatever is chosen is right, and a second process would time nothing. */
static void test_timed(void **state) {
  static const struct shape shapes[] = {{16384, 768, 3072, GD_DTYPE_BF16, true, true, false},
                                        {16384, 1024, 4096, GD_DTYPE_BF16, true, true, false},
                                        {8192, 1600, 6400, GD_DTYPE_F16, true, false, false}};
  (void)state;
  unsetenv("GPUDAYS_GEMM_EPILOGUE");
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    struct setting s;
    double errors[3];
    bool small = strcmp(tested, "cuda") != 0;
    struct shape shape = shapes[i];
    shape.rows = small ? 128 : shape.rows;
    start(&s, &shape);
    check(&s, "timed", false, errors);
    if (!small)
      printf("%lld x %lld x %lld %s:\n", (long long)shape.rows, (long long)shape.n,
             (long long)shape.k, gd_dtype_name(shape.dtype));
    int ran = epilogues(&s, true);
    bool has_file = small || tuned_of(&s)->path[0];
    stop(&s);
    start(&s, &shape);
    check(&s, "timed", false, errors);
    assert_int_equal(epilogues(&s, false), ran);
    if (!small && has_file)
      assert_false(tuned_of(&s)->changed);
    stop(&s);
  }
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_fused),
      cmocka_unit_test(test_in_place),
      cmocka_unit_test(test_deterministic),
      cmocka_unit_test(test_timed),
  };
  struct gd_backend *backend = NULL;
  struct gd_error why = {0};
  tested = argc > 1 ? argv[1] : tested;
  if (gd_backend_open(tested, &(struct gd_backend_options){0}, &backend, &why) != GD_OK) {
    printf("skipped: %s\n", why.text);
    return 77;
  }
  gd_backend_close(backend);
  if (argc > 2)
    cmocka_set_test_filter(argv[2]);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
