/*
 * The graph: sticky building, the verifier (each rule broken once), counts against closed forms,
 * and the printed text.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/autodiff.h"
#include "pass/pass.h"
#include "support/graphs.h"

/* loss = xent(layernorm(x) W): small, with a norm, a GEMM and both kinds of leaves. */
static void tiny_graph(struct gd_graph *graph) {
  graph_begin(graph);
  gd_tensor_id table = gd_graph_param(graph, "table", 2, (int64_t[]){7, 4}, GD_INIT_NORMAL, 1);
  gd_tensor_id scale = gd_graph_param(graph, "scale", 1, (int64_t[]){4}, GD_INIT_ONES, 0);
  gd_tensor_id x = gd_embed(graph, table, graph->ids);
  x = gd_layernorm(graph, x, scale, GD_NONE, 1e-5f);
  gd_tensor_id logits = gd_linear(graph, x, table, GD_NONE);
  graph->loss = gd_xent(graph, logits, graph->labels, graph->loss_weight,
                        (struct gd_attr_xent){.ignore = -100, .shift = true});
}

static void whole_graph(struct gd_graph *graph) {
  struct gd_error err = {0};
  tiny_graph(graph);
  assert_int_equal(gd_autodiff(graph, &err), GD_OK);
  assert_int_equal(gd_append_update(graph, &(struct gd_update){0}, &err), GD_OK);
  assert_int_equal(gd_graph_verify(graph, &err), GD_OK);
}

static void test_print(void **state) {
  struct gd_graph graph;
  struct gd_strbuf text = {0};
  (void)state;
  tiny_graph(&graph);
  gd_graph_print(&graph, &text);
  assert_string_equal(text.text,
                      "ids : i32[2,3]\n"
                      "labels : i32[2,3]\n"
                      "loss_weight : f32[1]\n"
                      "table : f32[7,4]\n"
                      "scale : f32[4]\n"
                      "-    fwd  %5 = embed(table, ids) : f32[2,3,4]\n"
                      "-    fwd  %6, %7, %8 = layernorm(%5, scale) eps=1e-05 : f32[2,3,4], "
                      "f32[2,3], f32[2,3]\n"
                      "-    fwd  %9 = matmul(%6, table) tb : f32[2,3,7]\n"
                      "-    fwd  %10, %11 = xent(%9, labels, loss_weight) ignore=-100 shift : "
                      "f32[1], f32[2,3]\n");
  gd_strbuf_deinit(&text);
  gd_graph_deinit(&graph);
}

/* Each contribution goes to the leaf at once: none waits for the others in memory of its own. */
static void test_contributions_accumulate(void **state) {
  struct gd_graph graph;
  int accumulated = 0;
  (void)state;
  whole_graph(&graph);
  for (gd_op_id id = 0; id < graph.n_ops; id++)
    if (graph.ops[id].kind == GD_OP_accumulate &&
        graph.tensors[gd_tensor_root(&graph, graph.ops[id].in[0], NULL)].role == GD_ROLE_GRAD)
      accumulated++;
  assert_int_equal(accumulated, 3); /* table, used twice, and scale */
  for (gd_op_id id = 0; id < graph.n_ops; id++)
    assert_true(graph.ops[id].kind != GD_OP_add);
  gd_graph_deinit(&graph);
}

static void test_building_is_sticky(void **state) {
  struct gd_graph graph;
  struct gd_error err = {0};
  (void)state;
  gd_graph_init(&graph);
  gd_tensor_id a = gd_graph_param(&graph, "a", 2, (int64_t[]){2, 3}, GD_INIT_ZEROS, 0);
  gd_tensor_id b = gd_graph_param(&graph, "b", 2, (int64_t[]){5, 4}, GD_INIT_ZEROS, 0);
  gd_tensor_id bad = gd_linear(&graph, a, b, GD_NONE);
  assert_int_equal(bad, GD_NONE);
  assert_int_equal(gd_activate(&graph, bad, GD_ACTIVATION_GELU), GD_NONE);
  assert_int_equal(gd_transpose(&graph, bad, (uint8_t[]){1, 0}), GD_NONE);
  assert_int_equal(gd_graph_check(&graph, &err), GD_INTERNAL);
  assert_non_null(strstr(err.text, "matmul of (f32[2,3], f32[5,4]): the contracted dims differ"));
  assert_int_equal(graph.n_ops, 0);
  gd_graph_deinit(&graph);
}

static void test_sizes_overflow(void **state) {
  struct gd_graph graph;
  struct gd_error err = {0};
  int64_t huge = (int64_t)1 << 40;
  (void)state;
  gd_graph_init(&graph);
  assert_int_equal(gd_graph_param(&graph, "w", 2, (int64_t[]){huge, huge}, GD_INIT_ZEROS, 0),
                   GD_NONE);
  assert_int_equal(gd_graph_check(&graph, &err), GD_BAD_INPUT);
  assert_non_null(strstr(err.text, "overflows"));
  gd_graph_deinit(&graph);
}

static gd_op_id find_op(const struct gd_graph *graph, enum gd_op_kind kind) {
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    if (graph->ops[id].kind == kind)
      return id;
  fail();
  return 0;
}

static void test_verifier(void **state) {
  struct gd_graph graph;
  (void)state;
  whole_graph(&graph); /* rule 1: order */
  struct gd_op first = graph.ops[0];
  graph.ops[0] = graph.ops[1];
  graph.ops[1] = first;
  graph_expect_broken(&graph, "produced later");

  whole_graph(&graph); /* rule 1: programs */
  graph.ops[find_op(&graph, GD_OP_sum_squares)].phase = GD_PHASE_INIT;
  graph_expect_broken(&graph, "another program");

  whole_graph(&graph); /* rule 2: producer */
  graph.tensors[graph.loss].producer = 0;
  graph_expect_broken(&graph, "does not name it as producer");

  whole_graph(&graph); /* rule 2: dtype */
  graph.tensors[graph.ops[find_op(&graph, GD_OP_embed_grad)].out[0]].dtype = GD_DTYPE_F16;
  graph_expect_broken(&graph, "");

  whole_graph(&graph); /* rule 3: owners */
  for (gd_tensor_id id = 0; id < graph.n_tensors; id++)
    if (graph.tensors[id].role == GD_ROLE_GRAD)
      graph.tensors[id].owner = graph.ids;
  graph_expect_broken(&graph, "does not match its parameter");

  whole_graph(&graph); /* rule 4: fill(grad) before adam reads it */
  gd_op_id adam = find_op(&graph, GD_OP_adam), fill = find_op(&graph, GD_OP_fill);
  assert_int_equal(fill, adam + 1);
  struct gd_op swapped = graph.ops[adam];
  graph.ops[adam] = graph.ops[fill];
  graph.ops[fill] = swapped;
  for (gd_op_id id = adam; id <= fill; id++)
    for (uint32_t i = 0; i < graph.ops[id].n_out; i++)
      graph.tensors[graph.ops[id].out[i]].producer = id;
  graph_expect_broken(&graph, "overwritten before");
}

/* An op that was never differentiable, on the way to a parameter. */
static void test_no_gradient_rule(void **state) {
  struct gd_graph graph;
  struct gd_error err = {0};
  (void)state;
  tiny_graph(&graph);
  gd_op_id embed = find_op(&graph, GD_OP_embed);
  graph.ops[embed].kind = GD_OP_embed_grad; /* has no rule; shapes do not matter here */
  assert_int_equal(gd_autodiff(&graph, &err), GD_INTERNAL);
  assert_non_null(strstr(err.text, "no gradient of embed_grad"));
  gd_graph_deinit(&graph);
}

/* FLOPs of a decoder in closed form: 6 (12 l c^2 + c V) tokens + 12 l T c tokens (full attention),
   counting weights that multiply: qkv 3c^2, dense c^2, mlp 2 c f. */
static void test_flops_closed_form(void **state) {
  static const char *const names[] = {"pythia-14m", "pythia-160m", "pythia-1b", "pythia-12b"};
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    struct gd_model model;
    struct gd_graph graph = {0};
    struct gd_error err = {0};
    struct gd_cost cost;
    assert_int_equal(gd_model_load(names[i], &model, &err), GD_OK);
    struct gd_setup setup = {.model = &model, .precision = GD_PRECISION_BF16, .micro_batch = 3};
    assert_int_equal(gd_pipeline_build(&setup, &graph, &err), GD_OK);
    const struct gd_neox *c = &model.config.neox;
    double width = (double)c->width, layers = (double)c->layers, seq = (double)model.recipe.seq;
    double weights =
        layers * (4 * width * width + 2 * width * (double)c->inner) + width * (double)c->vocab;
    double expected = 3 * seq * (6 * weights + 12 * layers * seq * width);
    assert_true(graph.model_flops > expected * (1 - 1e-12));
    assert_true(graph.model_flops < expected * (1 + 1e-12));
    gd_graph_cost(&graph, &cost);
    assert_true(cost.gemm_flops == graph.model_flops);
    assert_true(cost.other_flops > 0 && cost.other_flops < cost.gemm_flops);
    /* Each GEMM moves at least its operands once; no op moves less than its outputs. */
    assert_true(cost.read_bytes > cost.write_bytes * 0.5);
    gd_graph_deinit(&graph);
  }
}

static void test_op_cost(void **state) {
  struct gd_graph graph;
  struct gd_cost cost;
  (void)state;
  tiny_graph(&graph);
  gd_op_cost(&graph, find_op(&graph, GD_OP_matmul), &cost);
  assert_true(cost.gemm_flops == 2.0 * 6 * 7 * 4);
  assert_true(cost.read_bytes == 4.0 * (24 + 28) && cost.write_bytes == 4.0 * 42);
  gd_op_cost(&graph, find_op(&graph, GD_OP_embed), &cost);
  assert_true(cost.gemm_flops == 0 && cost.read_bytes == 4.0 * (24 + 6));
  gd_graph_deinit(&graph);
}

/* What the paper counts is full attention; what runs leaves out the mask, and has one GEMM
   more in the backward pass. */
static void test_attention_cost(void **state) {
  (void)state;
  for (int causal = 0; causal < 2; causal++) {
    struct gd_graph graph;
    struct gd_cost cost;
    int64_t q_dims[] = {2, 6, 10, 8}, k_dims[] = {2, 3, 10, 8};
    union gd_attr attr = {.attention = {.causal = causal, .scale = 1}};
    double scores = 2.0 * 6 * (causal ? 10 * 11 / 2 : 10 * 10), all = 2.0 * 6 * 100;
    gd_graph_init(&graph);
    gd_tensor_id q = gd_graph_param(&graph, "q", 4, q_dims, GD_INIT_NORMAL, 1);
    gd_tensor_id k = gd_graph_param(&graph, "k", 4, k_dims, GD_INIT_NORMAL, 1);
    gd_tensor_id v = gd_graph_param(&graph, "v", 4, k_dims, GD_INIT_NORMAL, 1);
    gd_tensor_id out = gd_attention(&graph, q, k, v, GD_NONE, attr.attention);
    gd_graph_op(&graph, GD_OP_attention_grad, &attr, 6,
                (gd_tensor_id[]){out, q, k, v, out, out + 1});
    gd_op_cost(&graph, 0, &cost);
    assert_true(cost.gemm_flops == 4 * 8 * all);
    assert_true(cost.executed_flops == 4 * 8 * scores);
    assert_true(cost.write_bytes == 4.0 * (960 + 120));
    gd_op_cost(&graph, 1, &cost);
    assert_true(cost.gemm_flops == 8 * 8 * all);
    assert_true(cost.executed_flops == 10 * 8 * scores);
    gd_graph_deinit(&graph);
  }
}

/* What attention refuses, in words. */
static void test_attention_shapes(void **state) {
  static const struct {
    int64_t q[4], k[4];
    float probability;
    bool seed;
  } wrong[] = {
      {{2, 3, 5, 4}, {2, 2, 5, 4}, 0, false}, /* heads do not divide */
      {{2, 2, 5, 4}, {2, 2, 6, 4}, 0, false}, /* another length */
      {{2, 2, 5, 4}, {1, 2, 5, 4}, 0, false}, /* another batch */
      {{2, 2, 5, 4}, {2, 2, 5, 3}, 0, false}, /* another size */
      {{2, 2, 5, 4}, {2, 2, 5, 4}, 0.5f, false}, {{2, 2, 5, 4}, {2, 2, 5, 4}, 0, true},
      {{2, 2, 5, 4}, {2, 2, 5, 4}, 1, true},
  };
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    struct gd_graph graph;
    struct gd_error err = {0};
    gd_graph_init(&graph);
    gd_tensor_id q = gd_graph_param(&graph, "q", 4, wrong[i].q, GD_INIT_NORMAL, 1);
    gd_tensor_id k = gd_graph_param(&graph, "k", 4, wrong[i].k, GD_INIT_NORMAL, 1);
    gd_tensor_id seed =
        gd_graph_leaf(&graph, GD_ROLE_INPUT, "seed", GD_DTYPE_I32, 1, (int64_t[]){3});
    struct gd_attr_attention attr = {.scale = 1, .probability = wrong[i].probability};
    gd_attention(&graph, q, k, k, wrong[i].seed ? seed : GD_NONE, attr);
    assert_int_equal(gd_graph_check(&graph, &err), GD_INTERNAL);
    assert_non_null(strstr(err.text, "attention of ("));
    gd_graph_deinit(&graph);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_print),
      cmocka_unit_test(test_contributions_accumulate),
      cmocka_unit_test(test_building_is_sticky),
      cmocka_unit_test(test_sizes_overflow),
      cmocka_unit_test(test_verifier),
      cmocka_unit_test(test_no_gradient_rule),
      cmocka_unit_test(test_flops_closed_form),
      cmocka_unit_test(test_op_cost),
      cmocka_unit_test(test_attention_cost),
      cmocka_unit_test(test_attention_shapes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
