/*
 * The compile method: every family's loss and gradients are those of the graph as it was, clusters
 * are what the method promises, they respect blocks and phases, and nothing depends on threads.
 */
#define _GNU_SOURCE
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/run.h"
#include "ir/fusion.h"
#include "pass/pass.h"
#include "support/fault.h"
#include "support/ok.h"
#include "support/scratch.h"
#include "support/tiny.h"

static struct gd_error err;

/* --- models -------------------------------------------------------------------------------- */

/* One of each family, and what differs inside one. */
static const char *const folders[] = {
    "neox-parallel", "neox-serial", "neox-nobias", "gpt2-a", "llama-a", "mistral", "qwen2",
    "qwen3",         "olmo",        "roberta-a",   "bert",   "mamba-a", "vit-a",   "convnext-a",
};
enum { N_FOLDERS = sizeof folders / sizeof *folders };

static void load_model(const char *folder, struct gd_model *model) {
  tiny_load_reference(folder, 17, model); /* short enough for all of them */
}

enum { MICRO_BATCH = 3 };

static void build(const struct gd_model *model, enum gd_precision precision, bool compiled,
                  struct gd_graph *graph) {
  struct gd_setup setup = {.model = model, .precision = precision, .micro_batch = MICRO_BATCH};
  struct gd_pass_ctx ctx = {&setup, &err};
  OK(gd_pipeline_build(&setup, graph, &err));
  if (!compiled)
    return;
  OK(gd_pass_recompute(&ctx, graph));
  OK(gd_graph_verify(graph, &err));
  OK(gd_pass_compile(&ctx, graph));
  OK(gd_graph_verify(graph, &err));
}

/* --- numerics ------------------------------------------------------------------------------ */

struct result {
  double loss;
  float *grads; /* of all parameters, in the order of leaves, which no pass changes */
  int64_t *sizes;
  uint32_t n_params;
  int64_t n_grads, activation_bytes;
};

static void train(const struct gd_model *model, enum gd_precision precision, bool compiled,
                  int threads, struct result *result) {
  struct gd_graph graph = {0};
  struct gd_plan plan = {0};
  struct gd_run run = {0};
  struct gd_backend *backend;
  struct gd_backend_options options = {.threads = threads};
  struct gd_caps caps;
  build(model, precision, compiled, &graph);
  OK(gd_backend_open("cpu", &options, &backend, &err));
  backend->ops->caps(&options, &caps);
  assert_true(caps.compile);
  OK(gd_plan_make(&graph, &caps, &plan, &err));
  OK(gd_run_open(&run, backend, &plan, NULL, &err));
  OK(gd_run_init(&run, 5, &err));
  OK(gd_run_random_batch(&run, GD_RUN_FULL, model->family->classes(model), 7, &err));
  if (graph.dropout_seed != GD_NONE)
    OK(gd_run_seed(&run, GD_RUN_FULL, 9, 1, 4, &err));
  OK(gd_run_micro_step(&run, GD_RUN_FULL, &err));
  OK(gd_run_micro_step(&run, GD_RUN_FULL, &err)); /* twice: gradients add up */
  OK(gd_run_take_loss(&run, &result->loss, &err));
  result->activation_bytes = plan.bytes[GD_CATEGORY_ACTIVATIONS];
  result->n_grads = gd_graph_parameters(&graph);
  result->grads = gd_mem_alloc((size_t)result->n_grads, sizeof *result->grads);
  result->sizes = gd_mem_alloc(graph.n_tensors, sizeof *result->sizes);
  assert_non_null(result->grads);
  assert_non_null(result->sizes);
  float *at = result->grads;
  result->n_params = 0;
  for (gd_tensor_id id = 0; id < graph.n_tensors; id++)
    if (graph.tensors[id].role == GD_ROLE_GRAD) {
      OK(gd_run_read(&run, id, at, &err));
      result->sizes[result->n_params++] = gd_tensor_elements(&graph, id);
      at += gd_tensor_elements(&graph, id);
    }
  gd_run_close(&run);
  gd_backend_close(backend);
  gd_plan_deinit(&plan);
  gd_graph_deinit(&graph);
}

static void result_free(struct result *result) {
  gd_mem_free(result->grads);
  gd_mem_free(result->sizes);
}

static double norm(const float *x, const float *y, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    double d = (double)x[i] - (y ? (double)y[i] : 0);
    sum += d * d;
  }
  return sqrt(sum);
}

/* The worst parameter's ||g - r|| / max(||r||, floor ||all||). */
static double worst_error(const struct result *got, const struct result *want, double floor) {
  double all = norm(want->grads, NULL, want->n_grads), worst = 0;
  const float *g = got->grads, *r = want->grads;
  for (uint32_t i = 0; i < want->n_params; i++) {
    int64_t n = want->sizes[i];
    double size = norm(r, NULL, n), error = norm(g, r, n) / fmax(size, floor * all);
    worst = error > worst ? error : worst;
    g += n;
    r += n;
  }
  return worst;
}

static int compare(const char *folder, enum gd_precision precision, double loss_bound,
                   double gradient_bound, double floor) {
  struct gd_model model;
  struct result plain, compiled;
  load_model(folder, &model);
  train(&model, precision, false, 2, &plain);
  train(&model, precision, true, 2, &compiled);
  assert_int_equal(plain.n_grads, compiled.n_grads);
  double loss_error = fabs(compiled.loss - plain.loss) / fabs(plain.loss);
  double error = worst_error(&compiled, &plain, floor);
  bool ok = loss_error <= loss_bound && error <= gradient_bound && isfinite(plain.loss);
  print_message("%-14s loss %.7f, off by %.1e; gradients by %.1e; activations %lld -> %lld\n",
                folder, compiled.loss, loss_error, error, (long long)plain.activation_bytes,
                (long long)compiled.activation_bytes);
  ok &= compiled.activation_bytes <= plain.activation_bytes;
  result_free(&plain);
  result_free(&compiled);
  return !ok;
}

static void test_families_fp32(void **state) {
  int wrong = 0;
  (void)state;
  for (int i = 0; i < N_FOLDERS; i++)
    wrong += compare(folders[i], GD_PRECISION_FP32, 1e-5, 1e-5, 1e-4);
  assert_int_equal(wrong, 0);
}

/* bf16 has 8 bits: what the clusters do not round, the ops by themselves do. */
static void test_families_bf16(void **state) {
  int wrong = 0;
  (void)state;
  for (int i = 0; i < N_FOLDERS; i++)
    wrong += compare(folders[i], GD_PRECISION_BF16, 1e-2, 1e-2, 1);
  assert_int_equal(wrong, 0);
}

static void test_threads(void **state) {
  struct gd_model model;
  struct result first, other;
  (void)state;
  load_model("roberta-a", &model);
  train(&model, GD_PRECISION_BF16, true, 1, &first);
  for (int threads = 2; threads <= 3; threads++) {
    train(&model, GD_PRECISION_BF16, true, threads, &other);
    assert_memory_equal(other.grads, first.grads, (size_t)first.n_grads * sizeof *first.grads);
    assert_true(other.loss == first.loss);
    result_free(&other);
  }
  result_free(&first);
}

/* --- structure ----------------------------------------------------------------------------- */

/* The kinds in a fusion, in order, reshapes left out: "add layernorm". */
static void kinds_of(const struct gd_fusion *fusion, char *text, size_t size) {
  text[0] = '\0';
  for (gd_op_id id = 0; id < fusion->body.n_ops; id++) {
    enum gd_op_kind kind = fusion->body.ops[id].kind;
    if (kind == GD_OP_reshape)
      continue;
    size_t length = strlen(text);
    snprintf(text + length, size - length, "%s%s", length ? " " : "", gd_op_info(kind)->name);
  }
}

/* How often a cluster of just these ops is there in this phase, in some block. */
static int count_clusters(const struct gd_graph *graph, enum gd_phase phase, const char *kinds) {
  char text[512];
  int count = 0;
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    const struct gd_op *op = &graph->ops[id];
    if (op->kind != GD_OP_fused || op->phase != phase)
      continue;
    kinds_of(&graph->fusions[op->attr.fused.fusion], text, sizeof text);
    count += strcmp(text, kinds) == 0;
  }
  return count;
}

static void expect(const struct gd_graph *graph, enum gd_phase phase, const char *kinds,
                   int at_least) {
  char text[512];
  if (count_clusters(graph, phase, kinds) >= at_least)
    return;
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    if (graph->ops[id].kind == GD_OP_fused && graph->ops[id].phase == phase) {
      kinds_of(&graph->fusions[graph->ops[id].attr.fused.fusion], text, sizeof text);
      print_error("there is: %s\n", text);
    }
  fail_msg("not %d clusters of: %s", at_least, kinds);
}

static void test_clusters(void **state) {
  struct gd_model model;
  struct gd_graph graph = {0};
  (void)state;
  load_model("neox-parallel", &model);
  build(&model, GD_PRECISION_BF16, true, &graph);
  expect(&graph, GD_PHASE_FORWARD, "add add", 2);
  expect(&graph, GD_PHASE_BACKWARD, "activate_grad sum_rows", 2);
  expect(&graph, GD_PHASE_BACKWARD, "layernorm_grad add", 2);
  gd_graph_deinit(&graph);

  load_model("llama-a", &model);
  build(&model, GD_PRECISION_BF16, true, &graph);
  expect(&graph, GD_PHASE_FORWARD, "add rmsnorm", 2);
  expect(&graph, GD_PHASE_FORWARD, "activate mul", 2);
  expect(&graph, GD_PHASE_BACKWARD, "activate mul", 2); /* recomputed for the weight's gradient */
  expect(&graph, GD_PHASE_BACKWARD, "activate mul mul activate_grad", 2);
  expect(&graph, GD_PHASE_BACKWARD, "add rmsnorm_grad add", 2);
  gd_graph_deinit(&graph);

  load_model("roberta-a", &model); /* with dropout */
  build(&model, GD_PRECISION_BF16, true, &graph);
  expect(&graph, GD_PHASE_FORWARD, "dropout add layernorm", 4);
  expect(&graph, GD_PHASE_FORWARD, "softmax dropout", 2);
  expect(&graph, GD_PHASE_BACKWARD, "add layernorm_grad dropout sum_rows", 2);
  expect(&graph, GD_PHASE_BACKWARD, "dropout softmax_grad", 2);
  gd_graph_deinit(&graph);

  load_model("convnext-a", &model);
  build(&model, GD_PRECISION_FP32, true, &graph);
  expect(&graph, GD_PHASE_FORWARD, "mul add", 1); /* layer scale and residual */
  expect(&graph, GD_PHASE_FORWARD, "mul dropout add",
         4); /* with stochastic depth, from block 1 on */
  gd_graph_deinit(&graph);
}

/* Ops of the forward pass by block and kind, those inside fused ops included. */
static void count_forward(const struct gd_graph *graph, int counts[][GD_OP_COUNT]) {
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    const struct gd_op *op = &graph->ops[id];
    if (op->phase != GD_PHASE_FORWARD)
      continue;
    counts[op->block + 1][op->kind]++;
    if (op->kind != GD_OP_fused)
      continue;
    const struct gd_graph *body = &graph->fusions[op->attr.fused.fusion].body;
    for (gd_op_id m = 0; m < body->n_ops; m++)
      counts[op->block + 1][body->ops[m].kind]++;
  }
}

/* No cluster mixes blocks, column sums of gradients left out; phases follow each other. */
static void test_blocks(void **state) {
  (void)state;
  for (int i = 0; i < N_FOLDERS; i++) {
    struct gd_model model;
    struct gd_graph plain = {0}, graph = {0};
    load_model(folders[i], &model);
    build(&model, GD_PRECISION_FP32, false, &plain);
    build(&model, GD_PRECISION_FP32, true, &graph);
    bool backward = false;
    for (gd_op_id id = 0; id < graph.n_ops; id++) {
      const struct gd_op *op = &graph.ops[id];
      backward |= op->phase == GD_PHASE_BACKWARD;
      assert_true(op->phase != GD_PHASE_FORWARD || !backward);
      for (uint32_t k = 0; op->phase == GD_PHASE_FORWARD && k < op->n_in; k++) {
        gd_op_id producer = graph.tensors[op->in[k]].producer;
        if (producer != GD_NONE && op->block >= 0 && graph.ops[producer].block > op->block)
          fail_msg("%s: op %u of block %d reads block %d", folders[i], id, op->block,
                   graph.ops[producer].block);
      }
    }
    /* The forward pass of each block does the same work: every op is somewhere, once. */
    enum { MOST_BLOCKS = 32 };
    static int counts[2][MOST_BLOCKS][GD_OP_COUNT];
    memset(counts, 0, sizeof counts);
    count_forward(&plain, counts[0]);
    count_forward(&graph, counts[1]);
    int fused = 0;
    for (int block = 0; block < MOST_BLOCKS; block++)
      for (int kind = 0; kind < GD_OP_COUNT; kind++) {
        if (kind == GD_OP_fused)
          fused += counts[1][block][kind];
        else if (kind != GD_OP_reshape)
          assert_int_equal(counts[0][block][kind], counts[1][block][kind]);
      }
    assert_true(fused > 0);
    gd_graph_deinit(&plain);
    gd_graph_deinit(&graph);
  }
}

/* The backward pass reads no output of gelu and of norms inside blocks any more. */
static void test_recompute(void **state) {
  struct gd_model model;
  struct gd_graph graph = {0};
  (void)state;
  load_model("neox-serial", &model);
  build(&model, GD_PRECISION_BF16, true, &graph);
  for (gd_op_id id = 0; id < graph.n_ops; id++)
    for (uint32_t i = 0; graph.ops[id].phase == GD_PHASE_BACKWARD && i < graph.ops[id].n_in; i++) {
      gd_tensor_id root = gd_tensor_root(&graph, graph.ops[id].in[i], NULL);
      gd_op_id producer = graph.tensors[root].producer;
      if (producer == GD_NONE || graph.ops[producer].phase != GD_PHASE_FORWARD)
        continue;
      assert_int_not_equal(graph.ops[producer].kind, GD_OP_activate);
      if (graph.ops[producer].kind == GD_OP_layernorm)
        assert_true(root != graph.ops[producer].out[0]);
    }
  gd_graph_deinit(&graph);
}

/* Costs: bytes at the edges only, operations of all that is inside. */
static void test_cost(void **state) {
  struct gd_model model;
  struct gd_graph plain = {0}, graph = {0};
  struct gd_cost before, after;
  (void)state;
  load_model("roberta-a", &model);
  build(&model, GD_PRECISION_BF16, false, &plain);
  build(&model, GD_PRECISION_BF16, true, &graph);
  gd_graph_cost(&plain, &before);
  gd_graph_cost(&graph, &after);
  assert_true(after.gemm_flops == before.gemm_flops);
  assert_true(after.other_flops >= before.other_flops);
  assert_true(after.read_bytes + after.write_bytes < before.read_bytes + before.write_bytes);
  assert_true(graph.model_flops == plain.model_flops);
  gd_graph_deinit(&plain);
  gd_graph_deinit(&graph);
}

/* Text of a fused op: its own line, and what is inside, indented. */
static void test_print(void **state) {
  struct gd_model model;
  struct gd_graph graph = {0};
  struct gd_strbuf text = {0};
  (void)state;
  load_model("llama-a", &model);
  build(&model, GD_PRECISION_BF16, true, &graph);
  gd_graph_print(&graph, &text);
  assert_non_null(strstr(text.text, "= fused("));
  assert_non_null(strstr(text.text, "| -    fwd  %3 = mul(%2, i1)"));
  gd_strbuf_deinit(&text);
  gd_graph_deinit(&graph);
}

static void test_ref_refuses(void **state) {
  struct gd_model model;
  struct gd_graph graph = {0};
  struct gd_plan plan = {0};
  struct gd_run run = {0};
  struct gd_backend *backend;
  struct gd_backend_options options = {0};
  struct gd_caps caps;
  struct gd_error why = {0};
  (void)state;
  load_model("llama-a", &model);
  build(&model, GD_PRECISION_FP32, true, &graph);
  OK(gd_backend_open("ref", &options, &backend, &err));
  backend->ops->caps(&options, &caps);
  assert_false(caps.compile);
  OK(gd_plan_make(&graph, &caps, &plan, &err));
  assert_int_equal(gd_run_open(&run, backend, &plan, NULL, &why), GD_UNSUPPORTED);
  gd_run_close(&run);
  gd_backend_close(backend);
  gd_plan_deinit(&plan);
  gd_graph_deinit(&graph);
}

static enum gd_status attempt(void *context, struct gd_error *why) {
  struct gd_graph graph = {0};
  struct gd_setup setup = {.model = context, .precision = GD_PRECISION_BF16, .micro_batch = 1};
  struct gd_pass_ctx ctx = {&setup, why};
  enum gd_status status = gd_pipeline_build(&setup, &graph, why);
  if (status == GD_OK)
    status = gd_pass_recompute(&ctx, &graph);
  if (status == GD_OK)
    status = gd_pass_compile(&ctx, &graph);
  gd_graph_deinit(&graph);
  return status;
}

static void test_out_of_memory(void **state) {
  struct gd_model model;
  (void)state;
  load_model("llama-a", &model);
  assert_int_equal(fault_sweep(attempt, &model), GD_OK);
}

static void test_nothing_left(void **state) {
  (void)state;
  assert_int_equal(gd_mem_live_blocks(), 0);
}

static int setup(void **state) {
  int made = scratch_setup(state);
  if (!getenv("GD_TEST_COMPILED")) /* otherwise kernels of several tests are kept together */
    setenv("XDG_CACHE_HOME", scratch_path("cache"), 1);
  return made;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_clusters),      cmocka_unit_test(test_blocks),
      cmocka_unit_test(test_recompute),     cmocka_unit_test(test_cost),
      cmocka_unit_test(test_print),         cmocka_unit_test(test_ref_refuses),
      cmocka_unit_test(test_families_fp32), cmocka_unit_test(test_families_bf16),
      cmocka_unit_test(test_threads),       cmocka_unit_test(test_out_of_memory),
      cmocka_unit_test(test_nothing_left),
  };
  return cmocka_run_group_tests(tests, setup, scratch_teardown);
}
