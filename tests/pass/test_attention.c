/*
 * The attention rewrite on a small model of every family that attends: what it finds, what it
 * leaves alone, and that loss and gradients stay those of the graph as the model builds it, on both
 * host backends, with dropout drawing the same numbers.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "exec/run.h"
#include "ir/autodiff.h"
#include "pass/kernels.h"
#include "pass/pass.h"
#include "support/graphs.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* clang-format off */
#define SIZES                                                           \
  "\"vocab_size\": 67, \"hidden_size\": 32, \"num_hidden_layers\": 2, " \
  "\"intermediate_size\": 48, \"max_position_embeddings\": 140, "
#define HEADS(n)     "\"num_attention_heads\": " #n
#define KEY_HEADS(m) ", \"num_key_value_heads\": " #m
#define NEOX         "{\"model_type\": \"gpt_neox\", " SIZES "\"rotary_pct\": 0.5, "
#define BERT_DROPOUT ", \"attention_probs_dropout_prob\": 0.2, \"hidden_dropout_prob\": 0.1"

static const struct {
  const char *config;
  int64_t seq; /* 0: images */
  bool dropout;
} models[] = {
    {NEOX HEADS(4) "}", 37, false},
    {NEOX HEADS(2) "}", 131, false},
    {"{\"model_type\": \"gpt2\", \"vocab_size\": 67, \"n_embd\": 33, \"n_layer\": 2, "
     "\"n_head\": 3, \"n_positions\": 40, \"attn_pdrop\": 0.3, \"embd_pdrop\": 0.1, "
     "\"resid_pdrop\": 0.1}", 29, true},
    {"{\"model_type\": \"llama\", " SIZES HEADS(4) KEY_HEADS(2) ", \"attention_dropout\": 0.25}",
     33, true},
    {"{\"model_type\": \"mistral\", " SIZES HEADS(4) KEY_HEADS(1) ", \"sliding_window\": null}",
     21, false},
    {"{\"model_type\": \"qwen2\", " SIZES HEADS(4) KEY_HEADS(2) "}", 16, false},
    {"{\"model_type\": \"olmo\", " SIZES HEADS(4) "}", 130, false},
    {"{\"model_type\": \"roberta\", " SIZES HEADS(4) BERT_DROPOUT "}", 31, true},
    {"{\"model_type\": \"bert\", " SIZES HEADS(2) BERT_DROPOUT "}", 120, true},
    {"{\"model_type\": \"vit\", \"hidden_size\": 24, \"num_hidden_layers\": 2, " HEADS(3) ", "
     "\"intermediate_size\": 40, \"image_size\": 20, \"patch_size\": 4, \"num_channels\": 3, "
     "\"num_labels\": 7" BERT_DROPOUT "}", 0, true},
};
/* clang-format on */

enum { BATCH = 2, MOST_GRADIENTS = 60000 };
static float naive[MOST_GRADIENTS], fused[MOST_GRADIENTS];

#define OK(expr)                           \
  do {                                     \
    if ((expr) != GD_OK)                   \
      fail_msg("%s: %s", #expr, err.text); \
  } while (0)

static void load(const char *config, int64_t seq, struct gd_model *model) {
  struct gd_json json = {0};
  struct gd_error err = {0};
  OK(gd_json_parse(&json, "test", config, (int64_t)strlen(config), &err));
  OK(gd_model_parse(&json, model, &err));
  gd_json_deinit(&json);
  if (seq)
    model->recipe.seq = seq;
}

static void forward(const struct gd_model *model, enum gd_precision precision, bool rewrite,
                    struct gd_graph *graph) {
  struct gd_error err = {0};
  struct gd_setup setup = {.model = model, .precision = precision, .micro_batch = BATCH};
  struct gd_pass_ctx ctx = {.setup = &setup, .err = &err};
  gd_graph_init(graph);
  model->family->build(model, BATCH, graph);
  OK(gd_graph_check(graph, &err));
  OK(gd_pass_precision(&ctx, graph));
  OK(gd_graph_verify(graph, &err));
  if (!rewrite)
    return;
  OK(gd_kernels_attention(graph, &err));
  OK(gd_graph_verify(graph, &err));
}

/* One pass: loss and all gradients. */
static int64_t train(const struct gd_model *model, const char *backend_name, int threads,
                     enum gd_precision precision, bool rewrite, double *loss, double *model_flops,
                     float *out) {
  struct gd_error err = {0};
  struct gd_graph graph;
  struct gd_plan plan = {0};
  struct gd_run run = {0};
  struct gd_backend *backend;
  struct gd_caps caps;
  struct gd_backend_options options = {.threads = threads};
  forward(model, precision, rewrite, &graph);
  assert_int_equal(graph_count_ops(&graph, GD_OP_attention), rewrite ? 2 : 0);
  assert_int_equal(graph_count_ops(&graph, GD_OP_softmax), rewrite ? 0 : 2);
  OK(gd_autodiff(&graph, &err));
  OK(gd_append_update(&graph, &(struct gd_update){0}, &err));
  OK(gd_graph_verify(&graph, &err));
  OK(gd_backend_open(backend_name, &options, &backend, &err));
  backend->ops->caps(&options, &caps);
  OK(gd_plan_make(&graph, &caps, &plan, &err));
  OK(gd_run_open(&run, backend, &plan, NULL, &err));
  OK(gd_run_init(&run, 5, &err));
  OK(gd_run_random_batch(&run, GD_RUN_FULL, model->family->classes(model), 3, &err));
  OK(gd_run_seed(&run, GD_RUN_FULL, 11, 4, 6, &err));
  OK(gd_run_pass(&run, GD_RUN_FULL, &err));
  OK(gd_run_take_loss(&run, loss, &err));
  int64_t count = 0;
  for (gd_tensor_id id = 0; id < graph.n_tensors; id++)
    if (graph.tensors[id].role == GD_ROLE_GRAD) {
      int64_t elements = gd_tensor_elements(&graph, id);
      assert_true(count + elements <= MOST_GRADIENTS);
      OK(gd_run_read(&run, id, out + count, &err));
      count += elements;
    }
  *model_flops = graph.model_flops;
  gd_run_close(&run);
  gd_backend_close(backend);
  gd_plan_deinit(&plan);
  gd_graph_deinit(&graph);
  return count;
}

static double distance(const float *a, const float *b, int64_t count) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < count; i++) {
    difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    norm += (double)b[i] * (double)b[i];
  }
  assert_true(norm > 0);
  return sqrt(difference / norm);
}

static void compare(const char *backend, enum gd_precision precision, double bound) {
  for (size_t i = 0; i < COUNT(models); i++) {
    struct gd_model model;
    double loss[2], flops[2];
    load(models[i].config, models[i].seq, &model);
    int64_t count = train(&model, backend, 2, precision, false, &loss[0], &flops[0], naive);
    assert_int_equal(train(&model, backend, 2, precision, true, &loss[1], &flops[1], fused), count);
    assert_true(isfinite(loss[0]) && isfinite(loss[1]));
    assert_true(fabs(flops[0] - flops[1]) <= 1e-12 * flops[0]);
    double off = distance(fused, naive, count);
    if (!(fabs(loss[1] - loss[0]) <= bound * fabs(loss[0])) || !(off <= bound))
      fail_msg("%s: loss %.9g, naive %.9g; gradients differ by %.3g", models[i].config, loss[1],
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

/* Dropout matters: with another stream the loss is another one. */
static void test_dropout_draws(void **state) {
  (void)state;
  for (size_t i = 0; i < COUNT(models); i++) {
    struct gd_model model;
    struct gd_graph graph;
    load(models[i].config, models[i].seq, &model);
    forward(&model, GD_PRECISION_FP32, true, &graph);
    int attentions = 0;
    for (gd_op_id id = 0; id < graph.n_ops; id++)
      if (graph.ops[id].kind == GD_OP_attention) {
        assert_true((graph.ops[id].attr.attention.probability > 0) == models[i].dropout);
        assert_int_equal(graph.ops[id].n_in, models[i].dropout ? 4 : 3);
        attentions++;
      }
    assert_int_equal(attentions, 2);
    gd_graph_deinit(&graph);
  }
}

/* Results do not depend on the number of threads. */
static void test_threads(void **state) {
  double loss[2], flops;
  (void)state;
  for (size_t i = 0; i < COUNT(models); i++) {
    struct gd_model model;
    load(models[i].config, models[i].seq, &model);
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

  attention_by_hand(&graph, true); /* another product */
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
      cmocka_unit_test(test_text),          cmocka_unit_test(test_other_graphs),
      cmocka_unit_test(test_dropout_draws), cmocka_unit_test(test_ref_fp32),
      cmocka_unit_test(test_cpu_fp32),      cmocka_unit_test(test_cpu_bf16),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
