/*
 * Gradients added in place: the accumulates go, the plan shrinks, and what the leaves hold after
 * two passes is what they held before the pass was there; bit for bit where the order of the
 * additions is the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/autodiff.h"
#include "support/graphs.h"
#include "support/small_run.h"

static gd_tensor_id leaf(struct gd_graph *graph, const char *name) {
  for (gd_tensor_id id = 0; id < graph->n_tensors; id++)
    if (graph->tensors[id].producer == GD_NONE && strcmp(graph->tensors[id].name, name) == 0)
      return id;
  fail_msg("no leaf %s", name);
  return GD_NONE;
}

/* loss = xent(layernorm(embed) table' + bias): tied, with a norm and a bias. */
static void tiny_graph(struct gd_graph *graph) {
  struct gd_error err = {0};
  graph_begin(graph);
  gd_tensor_id table = gd_graph_param(graph, "table", 2, (int64_t[]){7, 4}, GD_INIT_NORMAL, 1);
  gd_tensor_id scale = gd_graph_param(graph, "scale", 1, (int64_t[]){4}, GD_INIT_ONES, 0);
  gd_tensor_id bias = gd_graph_param(graph, "bias", 1, (int64_t[]){7}, GD_INIT_ZEROS, 0);
  gd_tensor_id x = gd_layernorm(graph, gd_embed(graph, table, graph->ids), scale, GD_NONE, 1e-5f);
  graph->loss = gd_xent(graph, gd_linear(graph, x, table, bias), graph->labels, graph->loss_weight,
                        (struct gd_attr_xent){.ignore = -100, .shift = true});
  assert_int_equal(gd_autodiff(graph, &err), GD_OK);
}

static void fold(struct gd_graph *graph) {
  struct gd_error err = {0};
  struct gd_setup setup = {.method = {.compile = true}};
  struct gd_pass_ctx ctx = {&setup, &err};
  if (gd_pass_accumulate(&ctx, graph) != GD_OK || gd_graph_verify(graph, &err) != GD_OK)
    fail_msg("%s", err.text);
}

static void test_text(void **state) {
  struct gd_graph graph;
  struct gd_strbuf text = {0};
  (void)state;
  tiny_graph(&graph);
  assert_int_equal(graph_count_ops(&graph, GD_OP_accumulate), 5); /* 4 gradients and the loss */
  fold(&graph);
  assert_int_equal(graph_count_ops(&graph, GD_OP_accumulate), 1);
  for (gd_op_id id = 0; id < graph.n_ops; id++)
    if (graph.ops[id].phase == GD_PHASE_BACKWARD)
      gd_op_print(&graph, id, &text);
  assert_string_equal(
      text.text,
      "-    bwd  %18 = xent_grad(%15, %17, labels, loss_weight, loss_scale) ignore=-100 shift : "
      "f32[2,3,7]\n"
      "-    bwd  %19 = reshape(%12) : f32[6,4]\n"
      "-    bwd  %20 = reshape(%18) : f32[6,7]\n"
      "-    bwd  grad.table += %21 = matmul(%20, %19) ta : f32[7,4]\n"
      "-    bwd  grad.bias += %22 = sum_rows(%18) rows=1 : f32[7]\n"
      "-    bwd  %23 = matmul(%18, table) : f32[2,3,4]\n"
      "-    bwd  %24, grad.scale += %25 = layernorm_grad(%23, %11, scale, %13, %14) : f32[2,3,4], "
      "f32[4]\n"
      "-    bwd  grad.table += %26 = embed_grad(%24, ids) rows=7 : f32[7,4]\n"
      "-    bwd  %27 = accumulate(loss_sum, %16) : f32[1]\n");
  gd_strbuf_deinit(&text);
  gd_graph_deinit(&graph);
}

/* A second run finds nothing, and a rewrite later leaves the aliases as they are. */
static void test_again(void **state) {
  struct gd_graph graph;
  struct gd_strbuf once = {0}, twice = {0};
  (void)state;
  tiny_graph(&graph);
  fold(&graph);
  gd_graph_print(&graph, &once);
  fold(&graph);
  gd_graph_print(&graph, &twice);
  assert_string_equal(once.text, twice.text);
  gd_strbuf_deinit(&once);
  gd_strbuf_deinit(&twice);
  gd_graph_deinit(&graph);
}

/* A gradient that something else reads, or a leaf that something reads meanwhile, stays apart. */
static void test_kept_apart(void **state) {
  struct gd_graph graph;
  (void)state;
  tiny_graph(&graph);
  for (gd_op_id id = 0; id < graph.n_ops; id++)
    if (graph.ops[id].kind == GD_OP_embed_grad)
      gd_graph_op(&graph, GD_OP_sum_squares, NULL, 1, &graph.ops[id].out[0]);
  fold(&graph);
  assert_int_equal(graph_count_ops(&graph, GD_OP_accumulate), 2); /* that of embed_grad, the loss */
  gd_graph_deinit(&graph);

  gd_graph_init(&graph); /* sum_rows, a read of its leaf, accumulate */
  struct gd_error err = {0};
  gd_tensor_id w = gd_graph_param(&graph, "w", 1, (int64_t[]){4}, GD_INIT_ZEROS, 0);
  gd_tensor_id g = gd_graph_leaf(&graph, GD_ROLE_GRAD, "g", GD_DTYPE_F32, 1, (int64_t[]){4});
  gd_tensor_id x = gd_graph_leaf(&graph, GD_ROLE_INPUT, "x", GD_DTYPE_F32, 2, (int64_t[]){3, 4});
  graph.tensors[g].owner = w;
  graph.phase = GD_PHASE_BACKWARD;
  gd_tensor_id sum = gd_graph_op(&graph, GD_OP_sum_rows, &(union gd_attr){.rows = {1}}, 1, &x);
  gd_graph_op(&graph, GD_OP_sum_squares, NULL, 1, &g);
  gd_graph_op(&graph, GD_OP_accumulate, NULL, 2, (gd_tensor_id[]){g, sum});
  assert_int_equal(gd_graph_verify(&graph, &err), GD_OK);
  fold(&graph);
  assert_int_equal(graph_count_ops(&graph, GD_OP_accumulate), 1);
  gd_graph_deinit(&graph);
}

static struct gd_op *adding_op(struct gd_graph *graph) {
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    if (graph->ops[id].adds)
      return &graph->ops[id];
  fail();
  return NULL;
}

static void test_verifier(void **state) {
  struct gd_graph graph;
  struct gd_error err = {0};
  (void)state;
  tiny_graph(&graph); /* an op that cannot add */
  fold(&graph);
  graph.ops[0].adds = 1;
  graph_expect_broken(&graph, "cannot add");

  tiny_graph(&graph); /* an output that is not there */
  fold(&graph);
  adding_op(&graph)->adds |= 2;
  graph_expect_broken(&graph, "cannot add");

  tiny_graph(&graph); /* memory of its own */
  fold(&graph);
  graph.tensors[adding_op(&graph)->out[0]].alias_of = GD_NONE;
  graph_expect_broken(&graph, "no fp32 leaf");

  tiny_graph(&graph); /* a leaf of another size */
  fold(&graph);
  graph.tensors[adding_op(&graph)->out[0]].alias_of = leaf(&graph, "grad.scale");
  graph_expect_broken(&graph, "no fp32 leaf");

  tiny_graph(&graph); /* the value before: read after it was added to */
  fold(&graph);
  gd_op_id first = (gd_op_id)(adding_op(&graph) - graph.ops);
  graph.phase = GD_PHASE_BACKWARD;
  gd_graph_op(&graph, GD_OP_sum_squares, NULL, 1, (gd_tensor_id[]){graph.ops[first].out[0]});
  graph_expect_broken(&graph, "overwritten before"); /* embed_grad adds to it too */

  tiny_graph(&graph); /* aliases survive inference */
  fold(&graph);
  assert_int_equal(gd_graph_infer(&graph, &err), GD_OK);
  assert_int_equal(gd_graph_verify(&graph, &err), GD_OK);
  gd_graph_deinit(&graph);
}

static void test_costs(void **state) {
  struct gd_graph graph;
  struct gd_cost cost;
  (void)state;
  tiny_graph(&graph);
  fold(&graph);
  for (gd_op_id id = 0; id < graph.n_ops; id++) {
    gd_op_cost(&graph, id, &cost);
    if (graph.ops[id].kind == GD_OP_embed_grad) /* six rows of four and their ids */
      assert_true(cost.read_bytes == 4.0 * (24 + 6 + 24) && cost.write_bytes == 4.0 * 24);
    if (graph.ops[id].kind == GD_OP_sum_rows)
      assert_true(cost.read_bytes == 4.0 * (42 + 7) && cost.write_bytes == 4.0 * 7);
  }
  gd_graph_deinit(&graph);
}

/* --- whole models -------------------------------------------------------------------------- */

static int count_readers(const struct gd_graph *graph, gd_tensor_id tensor) {
  int count = 0;
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    for (uint32_t i = 0; i < graph->ops[id].n_in; i++)
      count += graph->ops[id].in[i] == tensor;
  return count;
}

/* An accumulate stays only where its gradient comes out of an op that cannot add, or is read by
   others too: the positions of a ViT, which its class token shares. */
static void check_left(const struct gd_graph *graph, int before, const char *reference) {
  int left = graph_count_ops(graph, GD_OP_accumulate);
  for (gd_op_id id = 0; id < graph->n_ops; id++) {
    if (graph->ops[id].kind != GD_OP_accumulate)
      continue;
    gd_tensor_id added = gd_tensor_root(graph, graph->ops[id].in[1], NULL);
    const struct gd_op_info *maker = gd_op_info(graph->ops[graph->tensors[added].producer].kind);
    if (maker->adds && count_readers(graph, added) == 1)
      fail_msg("%s: what %s makes is still accumulated", reference, maker->name);
  }
  if (left > before / 4)
    fail_msg("%s: %d of %d accumulates are left", reference, left, before);
}

static void compare(const char *reference, const char *backend, enum gd_precision precision) {
  struct small_setup setup = {.reference = reference, .backend = backend, .precision = precision};
  struct small_run plain, folded;
  const char *name = "";
  small_start(&plain, &setup);
  setup.after = gd_pass_accumulate;
  small_start(&folded, &setup);
  check_left(&folded.graph, graph_count_ops(&plain.graph, GD_OP_accumulate), reference);
  assert_true(plain.graph.model_flops == folded.graph.model_flops);
  assert_true(folded.plan.live_bytes <= plain.plan.live_bytes);
  assert_true(folded.plan.n_buffers < plain.plan.n_buffers);
  for (int pass = 0; pass < 2; pass++)
    assert_true(small_pass(&plain) == small_pass(&folded));
  double worst = small_worst_gradient(&folded, &plain, &name);
  /* Only embed_grad and scan_grad add in another order. */
  bool pieces = graph_count_ops(&plain.graph, GD_OP_embed_grad) +
                graph_count_ops(&plain.graph, GD_OP_scan_grad);
  if (worst > (pieces ? 1e-6 : 0))
    fail_msg("%s on %s: %s differs by %g", reference, backend, name, worst);
  small_stop(&plain);
  small_stop(&folded);
}

static void test_models_cpu(void **state) {
  (void)state;
  for (int i = 0; small_references[i]; i++) {
    compare(small_references[i], "cpu", GD_PRECISION_FP32);
    compare(small_references[i], "cpu", GD_PRECISION_BF16);
  }
}

static void test_models_ref(void **state) {
  (void)state;
  for (int i = 0; small_references[i]; i++)
    compare(small_references[i], "ref", GD_PRECISION_FP16);
}

/* The gradient of an embedding is as large as the table: the plan must lose it. */
static void test_plan_shrinks(void **state) {
  struct gd_caps caps;
  struct gd_plan plans[2];
  struct gd_graph graphs[2];
  struct gd_error err = {0};
  struct gd_model model;
  (void)state;
  gd_backend_cpu.caps(&(struct gd_backend_options){.threads = 1}, &caps);
  assert_int_equal(gd_model_load("pythia-70m", &model, &err), GD_OK);
  model.recipe.seq = 64;
  struct gd_setup setup = {.model = &model,
                           .precision = GD_PRECISION_BF16,
                           .micro_batch = 1,
                           .method = {.compile = true}};
  struct gd_pass_ctx ctx = {&setup, &err};
  for (int i = 0; i < 2; i++) {
    gd_graph_init(&graphs[i]);
    model.family->build(&model, 1, &graphs[i]);
    assert_int_equal(gd_pass_precision(&ctx, &graphs[i]), GD_OK);
    assert_int_equal(gd_autodiff(&graphs[i], &err), GD_OK);
    if (i == 1)
      assert_int_equal(gd_pass_accumulate(&ctx, &graphs[i]), GD_OK);
    assert_int_equal(gd_plan_make(&graphs[i], &caps, &plans[i], &err), GD_OK);
  }
  int64_t table_bytes = 50304 * 512 * 4; /* the gradient of either embedding matrix */
  assert_true(plans[0].bytes[GD_CATEGORY_ACTIVATIONS] > table_bytes);
  assert_true(plans[1].bytes[GD_CATEGORY_ACTIVATIONS] <
              plans[0].bytes[GD_CATEGORY_ACTIVATIONS] - table_bytes / 2);
  for (int i = 0; i < 2; i++) {
    gd_plan_deinit(&plans[i]);
    gd_graph_deinit(&graphs[i]);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_text),       cmocka_unit_test(test_again),
      cmocka_unit_test(test_kept_apart), cmocka_unit_test(test_verifier),
      cmocka_unit_test(test_costs),      cmocka_unit_test(test_models_cpu),
      cmocka_unit_test(test_models_ref), cmocka_unit_test(test_plan_shrinks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
