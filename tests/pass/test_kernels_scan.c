/*
 * The fused selective scan in place of the one that writes every step out: same loss, same
 * gradients, same counted FLOPs, much less memory; and what is no such scan is left alone.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "backend/backend.h"
#include "exec/run.h"
#include "ir/autodiff.h"
#include "pass/kernels.h"
#include "pass/pass.h"
#include "plan/plan.h"

enum { SEQ = 70, BATCH = 2, LAYERS = 2, MOST_GRADIENTS = 40000 };

static const char config[] = "{\"model_type\": \"mamba\", \"vocab_size\": 67, \"hidden_size\": 24,"
                             " \"num_hidden_layers\": 2, \"state_size\": 16, \"expand\": 2}";

#define OK(expr)                           \
  do {                                     \
    struct gd_error err = {0};             \
    if ((expr) != GD_OK)                   \
      fail_msg("%s: %s", #expr, err.text); \
  } while (0)

static void parse(struct gd_model *model) {
  struct gd_json json = {0};
  OK(gd_json_parse(&json, "test", config, (int64_t)strlen(config), &err));
  OK(gd_model_parse(&json, model, &err));
  gd_json_deinit(&json);
  model->recipe.seq = SEQ;
}

/* The pipeline as it stands, with or without the rewrite. */
static void build(const struct gd_model *model, int64_t micro_batch, enum gd_precision precision,
                  bool fused, struct gd_graph *graph) {
  struct gd_setup setup = {.model = model, .precision = precision, .micro_batch = micro_batch};
  struct gd_error pass_err = {0};
  struct gd_pass_ctx ctx = {.setup = &setup, .err = &pass_err};
  gd_graph_init(graph);
  model->family->build(model, micro_batch, graph);
  OK(gd_graph_check(graph, &err));
  OK(gd_pass_precision(&ctx, graph));
  if (fused)
    OK(gd_kernels_scan(graph, &err));
  OK(gd_graph_verify(graph, &err));
  OK(gd_autodiff(graph, &err));
  OK(gd_append_update(graph, &(struct gd_update){.adam = {.beta1 = 0.9f, .beta2 = 0.95f}}, &err));
  OK(gd_graph_verify(graph, &err));
}

static int count(const struct gd_graph *graph, enum gd_op_kind kind) {
  int found = 0;
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    found += graph->ops[id].kind == kind;
  return found;
}

/* --- numbers -------------------------------------------------------------------------------- */

static float naive[MOST_GRADIENTS], fused[MOST_GRADIENTS];

/* One pass from the same start; the gradients of all parameters one after the other. */
static int64_t gradients(const struct gd_graph *graph, const char *name, double *loss, float *out) {
  struct gd_backend *backend;
  struct gd_backend_options options = {.threads = 2};
  struct gd_caps caps;
  struct gd_plan plan = {0};
  struct gd_run run = {0};
  int64_t total = 0;
  OK(gd_backend_open(name, &options, &backend, &err));
  backend->ops->caps(&options, &caps);
  OK(gd_plan_make(graph, &caps, &plan, &err));
  OK(gd_run_open(&run, backend, &plan, NULL, &err));
  OK(gd_run_init(&run, 5, &err));
  OK(gd_run_random_batch(&run, GD_RUN_FULL, 67, 7, &err));
  OK(gd_run_micro_step(&run, GD_RUN_FULL, &err));
  OK(gd_run_take_loss(&run, loss, &err));
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    if (graph->tensors[id].role == GD_ROLE_GRAD) {
      assert_true(total + gd_tensor_elements(graph, id) <= MOST_GRADIENTS);
      OK(gd_run_read(&run, id, out + total, &err));
      total += gd_tensor_elements(graph, id);
    }
  gd_run_close(&run);
  gd_plan_deinit(&plan);
  gd_backend_close(backend);
  return total;
}

/* Every parameter's gradient, relative to its size (or a hundredth of the largest one's). */
static double worst_error(const struct gd_graph *graph, const float *got, const float *want) {
  double worst = 0, largest = 0;
  for (int sweep = 0; sweep < 2; sweep++) {
    int64_t at = 0;
    for (gd_tensor_id id = 0; id < graph->n_tensors; id++) {
      double size = 0, off = 0;
      if (graph->tensors[id].role != GD_ROLE_GRAD)
        continue;
      for (int64_t end = at + gd_tensor_elements(graph, id); at < end; at++) {
        size += (double)want[at] * (double)want[at];
        off += ((double)got[at] - (double)want[at]) * ((double)got[at] - (double)want[at]);
      }
      if (sweep == 0)
        largest = fmax(largest, sqrt(size));
      else
        worst = fmax(worst, sqrt(off) / fmax(sqrt(size), 1e-2 * largest));
    }
  }
  return worst;
}

static void compare(const char *backend, enum gd_precision precision, double bound) {
  struct gd_model model;
  struct gd_graph graph[2];
  double loss[2];
  parse(&model);
  for (int i = 0; i < 2; i++)
    build(&model, BATCH, precision, i == 1, &graph[i]);
  assert_int_equal(count(&graph[0], GD_OP_recur), LAYERS);
  assert_int_equal(count(&graph[0], GD_OP_scan), 0);
  assert_int_equal(count(&graph[1], GD_OP_scan), LAYERS);
  assert_int_equal(count(&graph[1], GD_OP_scan_grad), LAYERS);
  static const enum gd_op_kind gone[] = {GD_OP_decay,      GD_OP_outer,           GD_OP_recur,
                                         GD_OP_recur_grad, GD_OP_contract_states, GD_OP_decay_grad};
  for (size_t i = 0; i < sizeof gone / sizeof *gone; i++)
    assert_int_equal(count(&graph[1], gone[i]), 0);
  assert_true(graph[0].model_flops == graph[1].model_flops && graph[0].model_flops > 0);

  int64_t n = gradients(&graph[0], backend, &loss[0], naive);
  assert_int_equal(gradients(&graph[1], backend, &loss[1], fused), n);
  double error = worst_error(&graph[0], fused, naive);
  print_message("%s %s: loss %.1e, gradients %.1e\n", backend, gd_precision_name(precision),
                fabs(loss[1] / loss[0] - 1), error);
  assert_true(fabs(loss[1] - loss[0]) <= bound * loss[0]);
  assert_true(error <= bound && error > 0); /* 0: the same graph was run twice */
  for (int i = 0; i < 2; i++)
    gd_graph_deinit(&graph[i]);
}

static void test_numbers(void **state) {
  (void)state;
  compare("ref", GD_PRECISION_FP32, 1e-5);
  compare("cpu", GD_PRECISION_FP32, 1e-5);
  compare("ref", GD_PRECISION_BF16, 1e-2);
  compare("cpu", GD_PRECISION_BF16, 1e-2);
  compare("ref", GD_PRECISION_FP16, 1e-3);
  compare("cpu", GD_PRECISION_FP16, 1e-3);
}

/* --- memory --------------------------------------------------------------------------------- */

static void test_memory(void **state) {
  struct gd_model model;
  struct gd_caps caps;
  struct gd_backend *backend;
  struct gd_backend_options options = {.threads = 1};
  int64_t activations[2];
  (void)state;
  OK(gd_model_load("mamba-130m", &model, &err));
  OK(gd_backend_open("cpu", &options, &backend, &err));
  backend->ops->caps(&options, &caps);
  gd_backend_close(backend);
  for (int i = 0; i < 2; i++) {
    struct gd_graph graph;
    struct gd_plan plan = {0};
    build(&model, 1, GD_PRECISION_BF16, i == 1, &graph);
    OK(gd_plan_make(&graph, &caps, &plan, &err));
    activations[i] = plan.bytes[GD_CATEGORY_ACTIVATIONS];
    gd_plan_deinit(&plan);
    gd_graph_deinit(&graph);
  }
  print_message("mamba-130m, micro-batch 1: activations %.3f GiB in parts, %.3f GiB fused\n",
                (double)activations[0] / 0x1p30, (double)activations[1] / 0x1p30);
  /* 24 layers keep the decay and the state of every step, 1536 channels of 16 states in fp32. */
  assert_true(activations[0] - activations[1] > 24 * 2 * model.recipe.seq * 1536 * 16 * 4);
  assert_true(activations[1] * 3 < activations[0]);
}

/* --- what is no such scan ------------------------------------------------------------------- */

enum variant { PLAIN, STATE_READ, INPUT_READ, OTHER_STEPS, NOT_ROUNDED, OTHER_DTYPE, VARIANTS };

/* The pattern with one thing about it changed. */
static void build_variant(struct gd_graph *g, enum variant variant) {
  static const int64_t channels[] = {1, 3, 2}, states[] = {1, 3, 4}, table[] = {2, 4}, d[] = {2};
  gd_graph_init(g);
  gd_tensor_id u = gd_graph_leaf(g, GD_ROLE_INPUT, "u", GD_DTYPE_BF16, 3, channels);
  gd_tensor_id delta = gd_graph_leaf(g, GD_ROLE_INPUT, "delta", GD_DTYPE_F32, 3, channels);
  gd_tensor_id other = gd_graph_leaf(g, GD_ROLE_INPUT, "other", GD_DTYPE_F32, 3, channels);
  gd_tensor_id b = gd_graph_leaf(g, GD_ROLE_INPUT, "b", GD_DTYPE_BF16, 3, states);
  gd_tensor_id c = gd_graph_leaf(g, GD_ROLE_INPUT, "c",
                                 variant == OTHER_DTYPE ? GD_DTYPE_F32 : GD_DTYPE_BF16, 3, states);
  gd_tensor_id a_log = gd_graph_param(g, "a_log", 2, table, GD_INIT_ONES, 0);
  gd_tensor_id skip = gd_graph_param(g, "d", 1, d, GD_INIT_ONES, 0);
  gd_tensor_id u32 = gd_cast(g, u, GD_DTYPE_F32);
  gd_tensor_id x = gd_outer(g, gd_mul(g, variant == OTHER_STEPS ? other : delta, u32), b);
  gd_tensor_id h = gd_recur(g, gd_decay(g, delta, a_log), x);
  gd_tensor_id sum = gd_add(g, gd_contract_states(g, h, c, GD_DTYPE_F32), gd_mul(g, u32, skip));
  gd_cast(g, sum, variant == NOT_ROUNDED ? GD_DTYPE_F32 : GD_DTYPE_BF16);
  if (variant == STATE_READ)
    gd_activate(g, h, GD_ACTIVATION_TANH);
  if (variant == INPUT_READ)
    gd_activate(g, u32, GD_ACTIVATION_TANH);
}

static void test_left_alone(void **state) {
  (void)state;
  for (int variant = 0; variant < VARIANTS; variant++) {
    struct gd_graph graph;
    build_variant(&graph, (enum variant)variant);
    OK(gd_graph_check(&graph, &err));
    uint32_t n_ops = graph.n_ops;
    OK(gd_kernels_scan(&graph, &err));
    OK(gd_graph_verify(&graph, &err));
    assert_int_equal(count(&graph, GD_OP_scan), variant == PLAIN ? 1 : 0);
    assert_int_equal(graph.n_ops, variant == PLAIN ? 1 : n_ops);
    gd_graph_deinit(&graph);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_numbers),
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_left_alone),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
