/*
 * Parts of a program that a launch leaves out (backend/cuda/runtime/graph_toggle.h), on the loss of
 * a masked model: one bound plan, captured and op by op, launched with one set of labels after the
 * other, against ref each time. Left out is seen in the scratch: a chunk that runs without a row
 * clears the logits of the chunk before.
 *
 *   test_cuda_graph_toggle [BACKEND]     cpu: the test itself, on a machine without a GPU
 */
#define _POSIX_C_SOURCE 200809L
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
#include "backend/cuda/runtime/cuda_int.h"
#include "base/rng.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

enum {
  ROWS = 2100,
  WIDTH = 8,
  CLASSES = 128,
  CHUNK = 384, /* what gd_loss_gathered_rows makes of it: six chunks */
  IGNORED = -100,
  INPUTS = 6,
  LABELS = 2, /* the input */
  OUTPUTS = 5,
};

static const char *tested = "cuda";

/* A program of one op. */
struct setting {
  struct gd_graph graph;
  struct gd_plan plan;
  struct gd_backend *backend;
  struct gd_bound *bound;
  struct gd_error err;
};

/* Rows that count: the first so many, so many of a hundred, the last. */
struct labels {
  int64_t first;
  int percent;
  bool last;
  bool again; /* as they are: nothing is written before the launch */
};
static const struct labels sets[] = {
    {.percent = 15},
    {.again = true},
    {0},
    {.percent = 100},
    {.first = 1},
    {.last = true},
    {.first = CHUNK},
    {.first = CHUNK + 1},
    {.percent = 100},
    {.first = 2 * CHUNK, .last = true},
    {.percent = 15},
    {.percent = 16},
};

static void expect(enum gd_status status, const struct setting *s) {
  if (status != GD_OK)
    fail_msg("%s", s->err.text);
}

static void build(struct gd_graph *g, bool cuda) {
  const union gd_attr attr = {
      .xent = {.ignore = IGNORED, .masked = cuda, .chunk_bytes = cuda ? 1 << 20 : 0}};
  const struct {
    enum gd_dtype dtype;
    uint32_t rank;
    int64_t dims[2];
  } leaves[INPUTS] = {
      {GD_DTYPE_F32, 2, {ROWS, WIDTH}}, {GD_DTYPE_F32, 2, {CLASSES, WIDTH}},
      {GD_DTYPE_I32, 1, {ROWS}},        {GD_DTYPE_F32, 1, {1}},
      {GD_DTYPE_F32, 1, {2}},           {GD_DTYPE_F32, 1, {CLASSES}},
  };
  gd_tensor_id in[INPUTS];
  gd_graph_init(g);
  for (int i = 0; i < INPUTS; i++)
    in[i] =
        gd_graph_leaf(g, GD_ROLE_INPUT, "input", leaves[i].dtype, leaves[i].rank, leaves[i].dims);
  assert_int_not_equal(gd_graph_op(g, GD_OP_linear_xent, &attr, INPUTS, in), GD_NONE);
  if (cuda)
    assert_int_equal(gd_loss_gathered_rows(&attr.xent, ROWS, CLASSES, GD_DTYPE_F32), CHUNK);
}

static void write_input(struct setting *s, int i, const void *from) {
  gd_tensor_id id = s->graph.ops[0].in[i];
  expect(s->backend->ops->write(s->backend, GD_SPACE_DEVICE, s->plan.offset_bytes[id], from,
                                gd_tensor_bytes(&s->graph, id), &s->err),
         s);
}

/* Binding clears all memory. */
static void bind(struct setting *s) {
  static float numbers[ROWS * WIDTH];
  expect(s->backend->ops->bind(s->backend, &s->plan, &s->bound, &s->err), s);
  for (int i = 0; i < INPUTS; i++) {
    int64_t count = gd_tensor_elements(&s->graph, s->graph.ops[0].in[i]);
    if (i == LABELS)
      continue;
    gd_rng_normal(5, (uint64_t)i, 1, 0, numbers, count);
    write_input(s, i, numbers);
  }
}

static void start(struct setting *s, const char *backend, bool trace) {
  struct gd_backend_options options = {.trace = trace};
  struct gd_caps caps;
  *s = (struct setting){0};
  build(&s->graph, strcmp(backend, "cuda") == 0);
  expect(gd_backend_open(backend, &options, &s->backend, &s->err), s);
  s->backend->ops->caps(&options, &caps);
  expect(gd_plan_make(&s->graph, &caps, &s->plan, &s->err), s);
  expect(s->backend->ops->reserve(s->backend, s->plan.device_bytes, s->plan.host_bytes, &s->err),
         s);
  bind(s);
}

static void stop(struct setting *s) {
  s->backend->ops->unbind(s->backend, s->bound);
  gd_backend_close(s->backend);
  gd_plan_deinit(&s->plan);
  gd_graph_deinit(&s->graph);
}

static void launch(struct setting *s, const struct labels *set) {
  int32_t labels[ROWS];
  for (int64_t i = 0; i < ROWS; i++) {
    bool counts = i < set->first || (set->last && i == ROWS - 1) ||
                  gd_rng_below(9, (uint64_t)set->percent, (uint64_t)i, 100) < set->percent;
    labels[i] = counts ? (int32_t)(i * 31 % CLASSES) : IGNORED;
  }
  if (!set->again)
    write_input(s, LABELS, labels);
  expect(s->backend->ops->run(s->backend, s->bound, GD_PROGRAM_MICRO_STEP, &s->err), s);
  expect(s->backend->ops->sync(s->backend, &s->err), s);
}

static float *read_at(struct setting *s, int64_t offset_bytes, int64_t count) {
  float *to = gd_mem_alloc((size_t)count + 1, sizeof *to);
  assert_non_null(to);
  expect(s->backend->ops->read(s->backend, GD_SPACE_DEVICE, offset_bytes, to,
                               count * (int64_t)sizeof *to, &s->err),
         s);
  return to;
}

static void compare(struct setting *s, struct setting *ref, int set) {
  for (int i = 0; i < OUTPUTS; i++) {
    gd_tensor_id id = s->graph.ops[0].out[i];
    int64_t count = gd_tensor_elements(&s->graph, id);
    float *got = read_at(s, s->plan.offset_bytes[id], count);
    float *want = read_at(ref, ref->plan.offset_bytes[id], count);
    double largest = 0, worst = 0;
    for (int64_t j = 0; j < count; j++) {
      double off = fabs((double)got[j] - (double)want[j]);
      largest = fmax(largest, fabs((double)want[j]));
      worst = off > worst || isnan(off) ? off : worst;
    }
    gd_mem_free(got);
    gd_mem_free(want);
    if (!(worst <= 1e-5 * largest))
      fail_msg("label set %d, output %d: off by %g of %g", set, i, worst, largest);
  }
}

/* Whether the logits, now their gradient, of the last chunk that ran have anything in them. */
static bool has_gradient(struct setting *s) {
  int64_t at = s->plan.workspace_at + GD_CUDA_WORKSPACE_BYTES;
  float *logits = read_at(s, (at + 255) / 256 * 256, CHUNK * CLASSES);
  bool any = false;
  for (int64_t i = 0; i < CHUNK * CLASSES; i++)
    any |= logits[i] != 0;
  gd_mem_free(logits);
  return any;
}

static void check(bool trace) {
  const struct gd_cu_nodes *nodes;
  struct setting gpu, ref;
  bool can_switch = trace || gd_cu_nodes_load(&nodes, NULL) == GD_OK;
  if (!can_switch)
    print_message("the driver switches no nodes: all chunks run\n");
  start(&ref, "ref", false);
  start(&gpu, tested, trace);
  for (int i = 0; i < COUNT(sets); i++) {
    launch(&ref, &sets[i]);
    launch(&gpu, &sets[i]);
    compare(&gpu, &ref, i);
    bool none = !sets[i].again && !sets[i].first && !sets[i].last && !sets[i].percent;
    if (strcmp(tested, "cuda") == 0 && can_switch && has_gradient(&gpu) == none)
      fail_msg("label set %d: chunks without a row run, or one with rows does not", i);
  }
  stop(&gpu);
  stop(&ref);
}

static void test_captured(void **state) {
  (void)state;
  check(false);
}

static void test_op_by_op(void **state) {
  (void)state;
  check(true);
}

/* GPUDAYS_GRAPH_TOGGLE=0: chunks without a row run, and the result is the same. */
static void test_without_toggles(void **state) {
  struct setting gpu, ref;
  (void)state;
  setenv("GPUDAYS_GRAPH_TOGGLE", "0", 1);
  start(&ref, "ref", false);
  start(&gpu, tested, false);
  for (int i = 0; i < COUNT(sets); i += 4) {
    launch(&ref, &sets[i]);
    launch(&gpu, &sets[i]);
    compare(&gpu, &ref, i);
  }
  launch(&gpu, &sets[0]); /* 15 %: the last chunk has no row, and clears the logits */
  if (strcmp(tested, "cuda") == 0 && has_gradient(&gpu))
    fail_msg("GPUDAYS_GRAPH_TOGGLE=0: a chunk without a row does not run");
  stop(&gpu);
  stop(&ref);
  unsetenv("GPUDAYS_GRAPH_TOGGLE");
}

/* A plan bound for the second time, in the same memory, with other labels: counted anew. */
static void test_bound_again(void **state) {
  struct setting gpu, ref;
  (void)state;
  start(&ref, "ref", false);
  start(&gpu, tested, false);
  for (int i = 0; i < COUNT(sets); i += 3) {
    launch(&ref, &sets[i]);
    launch(&gpu, &sets[i]);
    compare(&gpu, &ref, i);
    gpu.backend->ops->unbind(gpu.backend, gpu.bound);
    bind(&gpu);
  }
  stop(&gpu);
  stop(&ref);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_captured), cmocka_unit_test(test_op_by_op),
      cmocka_unit_test(test_without_toggles), cmocka_unit_test(test_bound_again)};
  struct gd_backend *backend = NULL;
  struct gd_error why = {0};
  tested = argc > 1 ? argv[1] : tested;
  if (gd_backend_open(tested, &(struct gd_backend_options){0}, &backend, &why) != GD_OK) {
    printf("skipped: %s\n", why.text);
    return 77;
  }
  gd_backend_close(backend);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
