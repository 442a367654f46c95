/*
 * The attention rewrite on a small model of every family that attends: what it finds, what it
 * leaves alone, and that loss and gradients stay those of the graph as the model builds it, on both
 * host backends, with dropout drawing the same numbers.
 */
#include <math.h>

#include "pass/kernels.h"
#include "support/attending.h"
#include "support/graphs.h"
#include "support/ok.h"

static float naive[ATTENDING_GRADIENTS], fused[ATTENDING_GRADIENTS];

static void forward(const struct gd_model *model, enum gd_precision precision, bool rewrite,
                    struct gd_graph *graph) {
  const attending_rewrite rewrites[] = {rewrite ? gd_kernels_attention : NULL, NULL};
  attending_forward(model, precision, rewrites, graph);
}

static int64_t train(const struct gd_model *model, const char *backend, int threads,
                     enum gd_precision precision, bool rewrite, double *loss, double *model_flops,
                     float *gradients) {
  struct gd_graph graph;
  forward(model, precision, rewrite, &graph);
  assert_int_equal(graph_count_ops(&graph, GD_OP_attention), rewrite ? ATTENDING_LAYERS : 0);
  assert_int_equal(graph_count_ops(&graph, GD_OP_softmax), rewrite ? 0 : ATTENDING_LAYERS);
  int64_t count = attending_train(model, &graph, backend, threads, loss, gradients);
  *model_flops = graph.model_flops;
  gd_graph_deinit(&graph);
  return count;
}

static void compare(const char *backend, enum gd_precision precision, double bound) {
  for (size_t i = 0; i < ATTENDING_COUNT; i++) {
    struct gd_model model;
    double loss[2], flops[2];
    attending_load(&attending[i], &model);
    int64_t count = train(&model, backend, 2, precision, false, &loss[0], &flops[0], naive);
    assert_int_equal(train(&model, backend, 2, precision, true, &loss[1], &flops[1], fused), count);
    assert_true(isfinite(loss[0]) && isfinite(loss[1]));
    assert_true(fabs(flops[0] - flops[1]) <= 1e-12 * flops[0]);
    double off = gradient_distance(fused, naive, count);
    if (!(fabs(loss[1] - loss[0]) <= bound * fabs(loss[0])) || !(off <= bound))
      fail_msg("%s: loss %.9g, naive %.9g; gradients differ by %.3g", attending[i].config, loss[1],
               loss[0], off);
  }
}

static void test_ref_fp32(void **state) {
  (void)state;
  compare("ref", GD_PRECISION_FP32, 1e-5);
}

static void test_cpu_fp32(void **state) {
  (void)state;
  compare("cpu", GD_PRECISION_FP32, 1e-5);
}

static void test_cpu_bf16(void **state) {
  (void)state;
  compare("cpu", GD_PRECISION_BF16, 1e-2);
}

/* The op draws where the weights did, and has the seed to draw from. */
static void test_dropout_kept(void **state) {
  (void)state;
  for (size_t i = 0; i < ATTENDING_COUNT; i++) {
    struct gd_model model;
    struct gd_graph graph;
    attending_load(&attending[i], &model);
    forward(&model, GD_PRECISION_FP32, true, &graph);
    int attentions = 0;
    for (gd_op_id id = 0; id < graph.n_ops; id++)
      if (graph.ops[id].kind == GD_OP_attention) {
        assert_true((graph.ops[id].attr.attention.probability > 0) == attending[i].dropout);
        assert_int_equal(graph.ops[id].n_in, attending[i].dropout ? 4 : 3);
        attentions++;
      }
    assert_int_equal(attentions, ATTENDING_LAYERS);
    gd_graph_deinit(&graph);
  }
}

/* Results do not depend on the number of threads. */
static void test_threads(void **state) {
  double loss[2], flops;
  (void)state;
  for (size_t i = 0; i < ATTENDING_COUNT; i++) {
    struct gd_model model;
    attending_load(&attending[i], &model);
    int64_t count = train(&model, "cpu", 1, GD_PRECISION_BF16, true, &loss[0], &flops, naive);
    train(&model, "cpu", 5, GD_PRECISION_BF16, true, &loss[1], &flops, fused);
    assert_true(loss[0] == loss[1]);
    assert_memory_equal(naive, fused, (size_t)count * sizeof *naive);
  }
}

/* --- what is left alone --------------------------------------------------------------------- */

struct parts {
  gd_tensor_id q, k, v, scores, weights, out;
};

static struct parts attention_by_hand(struct gd_graph *graph, bool trans_a) {
  struct parts p;
  gd_graph_init(graph);
  p.q = gd_graph_param(graph, "q", 4, (int64_t[]){2, 3, 5, 5}, GD_INIT_NORMAL, 1);
  p.k = gd_graph_param(graph, "k", 4, (int64_t[]){2, 3, 5, 5}, GD_INIT_NORMAL, 1);
  p.v = gd_graph_param(graph, "v", 4, (int64_t[]){2, 3, 5, 5}, GD_INIT_NORMAL, 1);
  p.scores = gd_matmul(graph, p.q, p.k, GD_NONE,
                       (struct gd_attr_matmul){trans_a, true, 0.25f, GD_DTYPE_COUNT, false});
  p.weights = gd_softmax(graph, p.scores, true);
  p.out = gd_matmul(graph, p.weights, p.v, GD_NONE,
                    (struct gd_attr_matmul){false, false, 1, GD_DTYPE_COUNT, false});
  return p;
}

static void expect_attentions(struct gd_graph *graph, int expected) {
  struct gd_error err = {0};
  OK(gd_kernels_attention(graph, &err));
  OK(gd_graph_verify(graph, &err));
  assert_int_equal(graph_count_ops(graph, GD_OP_attention), expected);
  assert_int_equal(graph_count_ops(graph, GD_OP_softmax), 1 - expected);
  gd_graph_deinit(graph);
}

static void test_other_graphs(void **state) {
  struct gd_graph graph;
  (void)state;
  attention_by_hand(&graph, false);
  expect_attentions(&graph, 1);

  attention_by_hand(&graph, true); /* another GEMM */
  expect_attentions(&graph, 0);

  struct parts p = attention_by_hand(&graph, false); /* the scores are read elsewhere */
  gd_activate(&graph, p.scores, GD_ACTIVATION_TANH);
  expect_attentions(&graph, 0);

  p = attention_by_hand(&graph, false); /* the weights are */
  gd_activate(&graph, p.weights, GD_ACTIVATION_TANH);
  expect_attentions(&graph, 0);

  p = attention_by_hand(&graph, false); /* or are what the graph is after */
  graph.loss = p.weights;
  expect_attentions(&graph, 0);
}

static void test_text(void **state) {
  struct gd_graph graph;
  struct gd_error err = {0};
  struct gd_strbuf text = {0};
  (void)state;
  struct parts p = attention_by_hand(&graph, false);
  gd_activate(&graph, p.out, GD_ACTIVATION_TANH);
  OK(gd_kernels_attention(&graph, &err));
  gd_graph_print(&graph, &text);
  assert_string_equal(text.text,
                      "q : f32[2,3,5,5]\n"
                      "k : f32[2,3,5,5]\n"
                      "v : f32[2,3,5,5]\n"
                      "-    fwd  %3, %4 = attention(q, k, v) causal scale=0.25 : f32[2,3,5,5], "
                      "f32[2,3,5]\n"
                      "-    fwd  %5 = activate(%3) tanh : f32[2,3,5,5]\n");
  gd_strbuf_deinit(&text);
  gd_graph_deinit(&graph);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_text),         cmocka_unit_test(test_other_graphs),
      cmocka_unit_test(test_dropout_kept), cmocka_unit_test(test_ref_fp32),
      cmocka_unit_test(test_cpu_fp32),     cmocka_unit_test(test_cpu_bf16),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
