/*
 * Mamba: what its configuration may say, what is refused and how, where the graph keeps fp32, how
 * the parameters start, and the presets by their parameters. Numbers of a whole model are in
 * tests/parity.
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
#include "pass/pass.h"
#include "plan/plan.h"
#include "support/tiny.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))
#define MAMBA                                                            \
  "\"model_type\": \"mamba\", \"vocab_size\": 67, \"hidden_size\": 24, " \
  "\"num_hidden_layers\": 2"

static void build(const char *text, enum gd_precision precision, struct gd_model *model,
                  struct gd_graph *graph) {
  struct gd_error err;
  if (tiny_parse(text, model, &err) != GD_OK)
    fail_msg("%s", err.text);
  model->recipe.seq = 9;
  struct gd_setup setup = {.model = model, .precision = precision, .micro_batch = 2};
  if (gd_pipeline_build(&setup, graph, &err) != GD_OK)
    fail_msg("%s", err.text);
}

static void test_accepted(void **state) {
  static const struct {
    const char *config;
    int64_t channels, rank;
  } cases[] = {
      {"{" MAMBA "}", 48, 2},
      {"{" MAMBA ", \"time_step_rank\": \"auto\", \"expand\": 3}", 72, 2},
      {"{" MAMBA ", \"time_step_rank\": 5, \"expand\": 1.55}", 37, 5},
      {"{" MAMBA ", \"expand\": 2, \"intermediate_size\": 30}", 30, 2},
      {"{" MAMBA ", \"hidden_act\": \"swish\", \"time_step_init_scheme\": \"constant\"}", 48, 2},
      {"{" MAMBA ", \"use_conv_bias\": false, \"residual_in_fp32\": false}", 48, 2},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(cases); i++) {
    struct gd_model model;
    struct gd_graph graph;
    build(cases[i].config, GD_PRECISION_BF16, &model, &graph);
    gd_tensor_id weight = tiny_parameter(&graph, "backbone.layers.1.mixer.dt_proj.weight");
    assert_int_not_equal(weight, GD_NONE);
    assert_int_equal(graph.tensors[weight].dims[0], cases[i].channels);
    assert_int_equal(graph.tensors[weight].dims[1], cases[i].rank);
    assert_int_equal(tiny_parameter(&graph, "lm_head.weight"),
                     GD_NONE); /* tied unless told otherwise */
    assert_int_equal(model.family->classes(&model), 67);
    gd_graph_deinit(&graph);
  }
}

static void test_refused(void **state) {
  static const struct tiny_refused cases[] = {
      {"{" MAMBA ", \"hidden_act\": \"gelu\"}", GD_UNSUPPORTED, "hidden_act is \"gelu\""},
      {"{" MAMBA ", \"hidden_act\": \"mish\"}", GD_UNSUPPORTED, "hidden_act is \"mish\""},
      {"{" MAMBA ", \"time_step_floor\": 0.01}", GD_UNSUPPORTED, "time_step_floor is 0.01"},
      {"{" MAMBA ", \"time_step_init_scheme\": \"ones\"}", GD_UNSUPPORTED,
       "time_step_init_scheme is \"ones\""},
      {"{" MAMBA ", \"time_step_max\": 0.0001}", GD_BAD_INPUT, "time_step_max is 0.0001"},
      {"{" MAMBA ", \"time_step_rank\": \"half\"}", GD_BAD_INPUT, "time_step_rank is \"half\""},
      {"{" MAMBA ", \"state_size\": 257}", GD_BAD_INPUT, "state_size is 257"},
      {"{" MAMBA ", \"conv_kernel\": 0}", GD_BAD_INPUT, "conv_kernel is 0"},
      {"{" MAMBA ", \"expand\": 0.01}", GD_BAD_INPUT, "expand is 0.01"},
      {"{\"model_type\": \"mamba\", \"vocab_size\": 7}", GD_BAD_INPUT, "hidden_size is missing"},
  };
  (void)state;
  tiny_expect_refused(cases, COUNT(cases));
}

/* In a 16-bit run: step sizes, states and, where the configuration says so, the residual stream. */
static void check_dtypes(const char *text, enum gd_dtype residual) {
  struct gd_model model;
  struct gd_graph graph;
  int scans = 0, norms = 0;
  build(text, GD_PRECISION_BF16, &model, &graph);
  for (gd_op_id id = 0; id < graph.n_ops; id++) {
    const struct gd_op *op = &graph.ops[id];
    if (op->kind == GD_OP_decay)
      assert_int_equal(graph.tensors[op->in[0]].dtype, GD_DTYPE_F32);
    if (op->kind == GD_OP_contract_states && op->phase == GD_PHASE_FORWARD) {
      assert_int_equal(graph.tensors[op->in[0]].dtype, GD_DTYPE_F32);
      assert_int_equal(graph.tensors[op->in[1]].dtype, GD_DTYPE_BF16);
      assert_int_equal(graph.tensors[op->out[0]].dtype, GD_DTYPE_F32);
      scans++;
    }
    if (op->kind == GD_OP_rmsnorm) {
      assert_int_equal(graph.tensors[op->in[0]].dtype, residual);
      norms++;
    }
  }
  assert_int_equal(scans, 2);
  assert_int_equal(norms, 3);
  gd_graph_deinit(&graph);
}

static void test_dtypes(void **state) {
  (void)state;
  check_dtypes("{" MAMBA "}", GD_DTYPE_F32);
  check_dtypes("{" MAMBA ", \"residual_in_fp32\": false}", GD_DTYPE_BF16);
}

/* Largest and smallest of a parameter as a run starts it. */
static void extremes(struct gd_run *run, const char *name, double *low, double *high) {
  float values[4096];
  struct gd_error err = {0};
  const struct gd_graph *graph = run->plan[GD_RUN_FULL]->graph;
  gd_tensor_id id = tiny_parameter(graph, name);
  assert_int_not_equal(id, GD_NONE);
  int64_t count = gd_tensor_elements(graph, id);
  assert_true(count <= (int64_t)COUNT(values));
  assert_int_equal(gd_run_read(run, id, values, &err), GD_OK);
  *low = *high = (double)values[0];
  for (int64_t i = 1; i < count; i++) {
    *low = fmin(*low, (double)values[i]);
    *high = fmax(*high, (double)values[i]);
  }
}

static void test_start(void **state) {
  static const struct {
    const char *name;
    double low, high; /* bounds; a drawn parameter comes within a tenth of both */
  } wanted[] = {
      {"backbone.layers.0.mixer.A_log", 0, 2.7725887}, /* log 1 to log 16 */
      {"backbone.layers.0.mixer.D", 1, 1},
      {"backbone.layers.0.norm.weight", 1, 1},
      {"backbone.layers.0.mixer.dt_proj.bias", -6.9072553, -2.2521685},    /* log(e^step - 1) */
      {"backbone.layers.0.mixer.dt_proj.weight", -0.70710678, 0.70710678}, /* 1 / sqrt(rank) */
      {"backbone.layers.0.mixer.conv1d.weight", -0.5, 0.5},
      {"backbone.layers.0.mixer.conv1d.bias", -0.5, 0.5},
      {"backbone.layers.0.mixer.in_proj.weight", -0.20412415, 0.20412415},
      {"backbone.layers.0.mixer.out_proj.weight", -0.10206207, 0.10206207}, /* and / sqrt(2) */
  };
  struct gd_model model;
  struct gd_graph graph;
  struct gd_plan plan;
  struct gd_backend *backend;
  struct gd_run run;
  struct gd_caps caps;
  struct gd_error err = {0};
  struct gd_backend_options options = {.threads = 1};
  (void)state;
  build("{" MAMBA ", \"rescale_prenorm_residual\": true}", GD_PRECISION_FP32, &model, &graph);
  assert_int_equal(gd_backend_open("ref", &options, &backend, &err), GD_OK);
  backend->ops->caps(&options, &caps);
  assert_int_equal(gd_plan_make(&graph, &caps, &plan, &err), GD_OK);
  assert_int_equal(gd_run_open(&run, backend, &plan, NULL, &err), GD_OK);
  assert_int_equal(gd_run_init(&run, 3, &err), GD_OK);
  for (size_t i = 0; i < COUNT(wanted); i++) {
    double low, high, slack = 0.1 * (wanted[i].high - wanted[i].low);
    extremes(&run, wanted[i].name, &low, &high);
    if (!(low >= wanted[i].low - 1e-6 && low <= wanted[i].low + slack + 1e-6 &&
          high <= wanted[i].high + 1e-6 && high >= wanted[i].high - slack - 1e-6))
      fail_msg("%s starts in [%g, %g]", wanted[i].name, low, high);
  }
  gd_run_close(&run);
  gd_plan_deinit(&plan);
  gd_backend_close(backend);
  gd_graph_deinit(&graph);
}

/* Which parameters a graph's optimizer decays: A_log and D by the authors' word do not. */
static void check_decay(bool decay_all) {
  struct gd_model model;
  struct gd_graph graph;
  struct gd_error err;
  int exempt = 0, decayed = 0;
  assert_int_equal(tiny_parse("{" MAMBA "}", &model, &err), GD_OK);
  model.recipe.seq = 9;
  model.recipe.weight_decay = 0.25;
  model.recipe.decay_all = decay_all;
  struct gd_setup setup = {.model = &model, .precision = GD_PRECISION_BF16, .micro_batch = 2};
  assert_int_equal(gd_pipeline_build(&setup, &graph, &err), GD_OK);
  for (gd_op_id id = 0; id < graph.n_ops; id++) {
    const struct gd_op *op = &graph.ops[id];
    if (op->kind != GD_OP_adam)
      continue;
    const char *name = graph.tensors[op->in[0]].name, *last = strrchr(name, '.') + 1;
    bool left_out = !decay_all && (strcmp(last, "A_log") == 0 || strcmp(last, "D") == 0);
    if (op->attr.adam.weight_decay != (left_out ? 0 : 0.25f))
      fail_msg("%s has weight decay %g", name, (double)op->attr.adam.weight_decay);
    *(left_out ? &exempt : &decayed) += 1;
  }
  assert_int_equal(exempt, decay_all ? 0 : 2 * 2);
  assert_true(decayed > 2 * 2);
  gd_graph_deinit(&graph);
}

static void test_decay(void **state) {
  (void)state;
  check_decay(false);
  check_decay(true);
}

/* As transformers counts them on the meta device. */
static void test_presets(void **state) {
  static const struct {
    const char *name;
    int64_t parameters;
  } presets[] = {
      {"mamba-130m", 129135360},  {"mamba-370m", 371516416}, {"mamba-790m", 793204224},
      {"mamba-1.4b", 1372178432}, {"mamba", 2768345600},
  };
  (void)state;
  for (size_t i = 0; i < COUNT(presets); i++) {
    struct gd_model model;
    struct gd_error err = {0};
    tiny_expect_preset(presets[i].name, presets[i].parameters, 0);
    assert_int_equal(gd_model_load(presets[i].name, &model, &err), GD_OK);
    assert_int_equal(model.recipe.batch * model.recipe.seq * model.recipe.steps, 299892736000);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_accepted), cmocka_unit_test(test_refused),
      cmocka_unit_test(test_dtypes),   cmocka_unit_test(test_start),
      cmocka_unit_test(test_decay),    cmocka_unit_test(test_presets),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
