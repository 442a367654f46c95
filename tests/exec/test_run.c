/*
 * Runs: what must hold whatever the kernels do. Accumulation does not change the mathematics, the
 * number of threads does not change a bit, an overflow skips the step, training lowers the loss,
 * and nothing allocates between the first pass and the last.
 */
#define _GNU_SOURCE
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "exec/run.h"
#include "pass/pass.h"
#include "support/graphs.h"

/* Every allocation of the process is counted, those of libraries included. */
extern void *__libc_malloc(size_t bytes);
static _Atomic long allocations;
void *malloc(size_t bytes) {
  atomic_fetch_add(&allocations, 1);
  return __libc_malloc(bytes);
}

static const char config[] =
    "{\"model_type\": \"gpt_neox\", \"vocab_size\": 67, \"hidden_size\": 24,"
    " \"num_hidden_layers\": 2, \"num_attention_heads\": 3, \"intermediate_size\": 50,"
    " \"rotary_pct\": 0.5, \"max_position_embeddings\": 11}";

enum { SEQ = 11, BATCH = 4, VOCAB = 67 };

/* One model with up to two plans on one backend. */
struct fixture {
  struct gd_model model;
  struct gd_graph graph[GD_RUN_PARTS];
  struct gd_plan plan[GD_RUN_PARTS];
  struct gd_backend *backend;
  struct gd_run run;
  struct gd_error err;
};

#define OK(expr)                              \
  do {                                        \
    if ((expr) != GD_OK)                      \
      fail_msg("%s: %s", #expr, f->err.text); \
  } while (0)

static void start(struct fixture *f, const char *backend, int threads, enum gd_precision precision,
                  int64_t micro_batch, int64_t remainder) {
  struct gd_json json = {0};
  struct gd_caps caps;
  struct gd_backend_options options = {.threads = threads};
  *f = (struct fixture){0};
  OK(gd_json_parse(&json, "test", config, (int64_t)strlen(config), &f->err));
  OK(gd_model_parse(&json, &f->model, &f->err));
  gd_json_deinit(&json);
  f->model.recipe.seq = SEQ;
  f->model.recipe.batch = BATCH;
  f->model.recipe.optimizer = GD_OPTIMIZER_ADAMW;
  OK(gd_backend_open(backend, &options, &f->backend, &f->err));
  f->backend->ops->caps(&options, &caps);
  int64_t sizes[GD_RUN_PARTS] = {micro_batch, remainder};
  for (int part = 0; part < GD_RUN_PARTS && sizes[part] > 0; part++) {
    struct gd_setup setup = {
        .model = &f->model, .precision = precision, .micro_batch = sizes[part]};
    OK(gd_pipeline_build(&setup, &f->graph[part], &f->err));
    OK(gd_plan_make(&f->graph[part], &caps, &f->plan[part], &f->err));
  }
  OK(gd_run_open(&f->run, f->backend, &f->plan[0], remainder ? &f->plan[1] : NULL, &f->err));
  OK(gd_run_init(&f->run, 5, &f->err));
}

static void stop(struct fixture *f) {
  gd_run_close(&f->run);
  gd_backend_close(f->backend);
  for (int part = 0; part < GD_RUN_PARTS; part++) {
    gd_plan_deinit(&f->plan[part]);
    gd_graph_deinit(&f->graph[part]);
  }
}

/* A fixed batch of BATCH sequences with some labels ignored. */
static void make_batch(int32_t *ids, int32_t *labels, double *weight) {
  int64_t valid = 0;
  for (int i = 0; i < BATCH * SEQ; i++) {
    ids[i] = (i * 37 + 11) % VOCAB;
    labels[i] = i % 5 == 3 ? -100 : ids[i];
    valid += i % SEQ != 0 && labels[i] != -100;
  }
  *weight = 1.0 / (double)valid;
}

/* Passes over the whole batch in pieces; gradients of all parameters into out. */
static int64_t gradients(struct fixture *f, int64_t micro_batch, double *loss, float *out) {
  int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
  double weight;
  make_batch(ids, labels, &weight);
  for (int64_t done = 0; done < BATCH; done += micro_batch) {
    enum gd_run_part part = BATCH - done < micro_batch ? GD_RUN_REMAINDER : GD_RUN_FULL;
    struct gd_batch piece = {
        .ids = ids + done * SEQ, .labels = labels + done * SEQ, .weight = weight};
    OK(gd_run_batch(&f->run, part, &piece, &f->err));
    OK(gd_run_micro_step(&f->run, part, &f->err));
  }
  OK(gd_run_take_loss(&f->run, loss, &f->err));
  int64_t count = 0;
  for (gd_tensor_id id = 0; id < f->graph[0].n_tensors; id++)
    if (f->graph[0].tensors[id].role == GD_ROLE_GRAD) {
      OK(gd_run_read(&f->run, id, out + count, &f->err));
      count += gd_tensor_elements(&f->graph[0], id);
    }
  return count;
}

enum { MOST_GRADIENTS = 50000 };
static float reference[MOST_GRADIENTS], other[MOST_GRADIENTS];

static void test_accumulation(void **state) {
  static const int64_t sizes[][2] = {{1, 0}, {2, 0}, {3, 1}};
  struct fixture fixture, *f = &fixture;
  double loss, whole_loss;
  (void)state;
  start(f, "cpu", 0, GD_PRECISION_FP32, BATCH, 0);
  int64_t count = gradients(f, BATCH, &whole_loss, reference);
  assert_true(count < MOST_GRADIENTS);
  stop(f);
  for (int i = 0; i < 3; i++) {
    start(f, "cpu", 0, GD_PRECISION_FP32, sizes[i][0], sizes[i][1]);
    gradients(f, sizes[i][0], &loss, other);
    assert_true(fabs(loss - whole_loss) < 1e-6 * whole_loss);
    assert_true(gradient_distance(other, reference, count) < 1e-5);
    stop(f);
  }
}

static void test_threads_change_nothing(void **state) {
  struct fixture fixture, *f = &fixture;
  double loss, other_loss;
  (void)state;
  for (int precision = GD_PRECISION_FP32; precision <= GD_PRECISION_BF16; precision++) {
    start(f, "cpu", 1, (enum gd_precision)precision, BATCH, 0);
    int64_t count = gradients(f, BATCH, &loss, reference);
    stop(f);
    for (int threads = 2; threads <= 5; threads++) {
      start(f, "cpu", threads, (enum gd_precision)precision, BATCH, 0);
      gradients(f, BATCH, &other_loss, other);
      stop(f);
      assert_true(loss == other_loss);
      assert_memory_equal(reference, other, (size_t)count * sizeof *other);
    }
  }
}

static void test_training_lowers_the_loss(void **state) {
  struct fixture fixture, *f = &fixture;
  int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
  double weight, first = 0, loss = 0, norm;
  (void)state;
  make_batch(ids, labels, &weight);
  for (int precision = GD_PRECISION_FP32; precision <= GD_PRECISION_BF16; precision++) {
    start(f, "cpu", 0, (enum gd_precision)precision, BATCH, 0);
    OK(gd_run_batch(&f->run, GD_RUN_FULL,
                    &(struct gd_batch){.ids = ids, .labels = labels, .weight = weight}, &f->err));
    for (int step = 0; step < 30; step++) {
      OK(gd_run_micro_step(&f->run, GD_RUN_FULL, &f->err));
      OK(gd_run_take_loss(&f->run, &loss, &f->err));
      OK(gd_run_update(&f->run, 1e-2, &f->err));
      OK(gd_run_norm(&f->run, &norm, &f->err));
      assert_true(isfinite(norm) && norm > 0);
      if (step == 0)
        first = loss;
    }
    assert_true(first > 3.5 && first < 5); /* about ln 67 = 4.2 at random start */
    assert_true(loss < 0.5 * first);
    stop(f);
  }
}

static void write_leaf(struct fixture *f, gd_tensor_id id, const float *values) {
  OK(f->backend->ops->write(f->backend, GD_SPACE_DEVICE, f->plan[0].offset_bytes[id], values,
                            gd_tensor_bytes(&f->graph[0], id), &f->err));
}

/* A loss scale that overflows fp16: the step is skipped, the scale halved, training goes on. */
static void test_overflow_skips_the_step(void **state) {
  struct fixture fixture, *f = &fixture;
  int32_t ids[BATCH * SEQ], labels[BATCH * SEQ];
  float scale[2] = {0x1p127f, 3}, before[VOCAB * 24], after[sizeof before / sizeof *before], step;
  double weight, loss, norm;
  (void)state;
  make_batch(ids, labels, &weight);
  start(f, "cpu", 0, GD_PRECISION_FP16, BATCH, 0);
  const struct gd_graph *graph = &f->graph[0];
  gd_tensor_id table = GD_NONE;
  for (gd_tensor_id id = 0; id < graph->n_tensors && table == GD_NONE; id++)
    if (graph->tensors[id].role == GD_ROLE_PARAM)
      table = id;
  OK(gd_run_read(&f->run, graph->loss_scale, before, &f->err));
  assert_true(before[0] == 65536);
  OK(gd_run_read(&f->run, table, before, &f->err));
  write_leaf(f, graph->loss_scale, scale);
  OK(gd_run_batch(&f->run, GD_RUN_FULL,
                  &(struct gd_batch){.ids = ids, .labels = labels, .weight = weight}, &f->err));
  OK(gd_run_micro_step(&f->run, GD_RUN_FULL, &f->err));
  OK(gd_run_take_loss(&f->run, &loss, &f->err));
  assert_true(isfinite(loss)); /* the loss itself is not scaled */
  OK(gd_run_update(&f->run, 1e-2, &f->err));
  OK(gd_run_norm(&f->run, &norm, &f->err));
  assert_true(!isfinite(norm));
  OK(gd_run_read(&f->run, table, after, &f->err));
  assert_memory_equal(before, after, sizeof before);
  OK(gd_run_read(&f->run, graph->step, &step, &f->err));
  assert_true(step == 0);
  OK(gd_run_read(&f->run, graph->loss_scale, scale, &f->err));
  assert_true(scale[0] == 0x1p126f && scale[1] == 0);

  scale[0] = 1024; /* a sane scale: the same gradients as without one, to fp16 rounding */
  write_leaf(f, graph->loss_scale, scale);
  OK(gd_run_micro_step(&f->run, GD_RUN_FULL, &f->err));
  OK(gd_run_update(&f->run, 1e-2, &f->err));
  OK(gd_run_norm(&f->run, &norm, &f->err));
  assert_true(isfinite(norm) && norm > 0.01 && norm < 100);
  OK(gd_run_read(&f->run, graph->step, &step, &f->err));
  assert_true(step == 1);
  stop(f);
}

static void test_initialisation(void **state) {
  struct fixture fixture, *f = &fixture;
  (void)state;
  start(f, "ref", 0, GD_PRECISION_FP32, 1, 0);
  for (gd_tensor_id id = 0; id < f->graph[0].n_tensors; id++) {
    const struct gd_tensor *t = &f->graph[0].tensors[id];
    if (t->role != GD_ROLE_PARAM)
      continue;
    int64_t count = gd_tensor_elements(&f->graph[0], id);
    double mean = 0, squares = 0;
    OK(gd_run_read(&f->run, id, other, &f->err));
    for (int64_t i = 0; i < count; i++) {
      mean += (double)other[i] / (double)count;
      squares += (double)other[i] * (double)other[i] / (double)count;
    }
    if (strstr(t->name, "layernorm.weight") || strstr(t->name, "layer_norm.weight"))
      assert_true(fabs(mean - 1) < 1e-12 && fabs(squares - 1) < 1e-12);
    else if (strstr(t->name, ".bias"))
      assert_true(squares == 0);
    else /* normal with deviation 0.02: within five standard errors */
      assert_true(fabs(mean) < 5 * 0.02 / sqrt((double)count) &&
                  fabs(sqrt(squares) / 0.02 - 1) < 5 / sqrt(2.0 * (double)count));
  }
  stop(f);
}

static void test_no_allocation_while_running(void **state) {
  struct fixture fixture, *f = &fixture;
  (void)state;
  for (int precision = GD_PRECISION_FP32; precision <= GD_PRECISION_BF16; precision++) {
    start(f, "cpu", 2, (enum gd_precision)precision, BATCH, 0);
    OK(gd_run_random_batch(&f->run, GD_RUN_FULL, VOCAB, 1, &f->err));
    OK(gd_run_micro_step(&f->run, GD_RUN_FULL, &f->err)); /* the first starts the threads */
    OK(gd_run_update(&f->run, 0, &f->err));
    long before = atomic_load(&allocations);
    assert_true(before > 0); /* the counter counts */
    for (int i = 0; i < 3; i++) {
      OK(gd_run_micro_step(&f->run, GD_RUN_FULL, &f->err));
      OK(gd_run_update(&f->run, 0, &f->err));
    }
    assert_int_equal(atomic_load(&allocations), before);
    stop(f);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_accumulation),
      cmocka_unit_test(test_threads_change_nothing),
      cmocka_unit_test(test_training_lowers_the_loss),
      cmocka_unit_test(test_overflow_skips_the_step),
      cmocka_unit_test(test_initialisation),
      cmocka_unit_test(test_no_allocation_while_running),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
