/*
 * Rewriting: a pattern of two ops becomes one, at every stage of a graph; what the graph names
 * follows; mistakes are told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ir/autodiff.h"
#include "support/graphs.h"

/* loss = xent(table silu(relu(embed(ids))) + the same reshaped twice): two patterns of two ops. */
static void make_graph(struct gd_graph *graph) {
  graph_begin(graph);
  gd_tensor_id table = gd_graph_param(graph, "table", 2, (int64_t[]){7, 4}, GD_INIT_NORMAL, 1);
  gd_tensor_id x = gd_embed(graph, table, graph->ids);
  for (int i = 0; i < 2; i++) {
    graph->block = i;
    x = gd_activate(graph, gd_activate(graph, x, GD_ACTIVATION_RELU), GD_ACTIVATION_SILU);
    x = gd_reshape(graph, x, 3, (int64_t[]){i == 0 ? 3 : 2, i == 0 ? 2 : 3, 4});
  }
  graph->block = -1;
  gd_tensor_id logits = gd_linear(graph, x, table, GD_NONE);
  graph->loss = gd_xent(graph, logits, graph->labels, graph->loss_weight,
                        (struct gd_attr_xent){.ignore = -100, .shift = true});
}

static bool is_activation(const struct gd_op *op, enum gd_activation function) {
  return op->kind == GD_OP_activate && op->attr.activate.function == function;
}

/* silu(relu(x)) -> tanh(x), where nobody else reads relu(x). */
static enum gd_status fuse(struct gd_graph *graph, struct gd_error *err) {
  struct gd_graph_rewrite r;
  GD_TRY(gd_graph_rewrite_begin(&r, graph, err));
  for (gd_op_id id = 0; id < r.n_ops; id++) {
    const struct gd_op *last = &r.ops[id];
    gd_tensor_id between = last->in[0];
    gd_op_id first = graph->tensors[between].producer;
    if (!is_activation(last, GD_ACTIVATION_SILU) || r.n_readers[between] != 1 ||
        !is_activation(&r.ops[first], GD_ACTIVATION_RELU)) {
      gd_graph_rewrite_keep(&r, id);
      continue;
    }
    assert_int_equal(r.reader[between], id);
    gd_graph_rewrite_drop(&r, first);
    gd_graph_rewrite_enter(&r, id);
    gd_tensor_id x = gd_graph_rewrite_now(&r, r.ops[first].in[0]);
    gd_graph_rewrite_replace(&r, last->out[0], gd_activate(graph, x, GD_ACTIVATION_TANH));
  }
  return gd_graph_rewrite_end(&r, err);
}

static void test_pattern(void **state) {
  struct gd_graph graph;
  struct gd_error err = {0};
  struct gd_strbuf text = {0};
  (void)state;
  make_graph(&graph);
  assert_int_equal(fuse(&graph, &err), GD_OK);
  assert_int_equal(gd_graph_verify(&graph, &err), GD_OK);
  gd_graph_print(&graph, &text);
  assert_string_equal(text.text,
                      "ids : i32[2,3]\n"
                      "labels : i32[2,3]\n"
                      "loss_weight : f32[1]\n"
                      "table : f32[7,4]\n"
                      "-    fwd  %4 = embed(table, ids) : f32[2,3,4]\n"
                      "b0   fwd  %5 = activate(%4) tanh : f32[2,3,4]\n"
                      "b0   fwd  %6 = reshape(%5) : f32[3,2,4]\n"
                      "b1   fwd  %7 = activate(%6) tanh : f32[3,2,4]\n"
                      "b1   fwd  %8 = reshape(%7) : f32[2,3,4]\n"
                      "-    fwd  %9 = matmul(%8, table) tb : f32[2,3,7]\n"
                      "-    fwd  %10, %11 = xent(%9, labels, loss_weight) ignore=-100 shift : "
                      "f32[1], f32[2,3]\n");
  assert_int_equal(graph.loss, 10);
  assert_int_equal(graph.n_tensors, 12);
  assert_int_equal(graph.block, -1);
  /* What it leaves is a graph like any other. */
  assert_int_equal(gd_autodiff(&graph, &err), GD_OK);
  assert_int_equal(gd_append_update(&graph, &(struct gd_update){0}, &err), GD_OK);
  assert_int_equal(gd_graph_verify(&graph, &err), GD_OK);
  gd_strbuf_deinit(&text);
  gd_graph_deinit(&graph);
}

/* With the backward pass there, relu(x) has another reader: nothing matches, nothing changes. */
static void test_whole_graph_unchanged(void **state) {
  struct gd_graph graph;
  struct gd_error err = {0};
  struct gd_strbuf before = {0}, after = {0};
  (void)state;
  make_graph(&graph);
  assert_int_equal(gd_autodiff(&graph, &err), GD_OK);
  assert_int_equal(gd_append_update(&graph, &(struct gd_update){0}, &err), GD_OK);
  assert_int_equal(fuse(&graph, &err), GD_OK); /* numbers leaves first, so the text changes once */
  assert_int_equal(gd_graph_verify(&graph, &err), GD_OK);
  gd_graph_print(&graph, &before);
  gd_tensor_id norm = graph.norm, loss_sum = graph.loss_sum;
  assert_int_equal(fuse(&graph, &err), GD_OK);
  gd_graph_print(&graph, &after);
  assert_string_equal(before.text, after.text);
  assert_int_equal(norm, graph.norm);
  assert_int_equal(loss_sum, graph.loss_sum);
  assert_string_equal(graph.tensors[graph.loss_sum].name, "loss_sum");
  assert_int_equal(graph.ops[graph.tensors[graph.norm].producer].kind, GD_OP_control);
  gd_strbuf_deinit(&before);
  gd_strbuf_deinit(&after);
  gd_graph_deinit(&graph);
}

/* The loss itself may be replaced, by something that reads it: the graph's name for it follows. */
static void test_named_tensor(void **state) {
  struct gd_graph graph;
  struct gd_graph_rewrite r;
  struct gd_error err = {0};
  (void)state;
  make_graph(&graph);
  assert_int_equal(gd_graph_rewrite_begin(&r, &graph, &err), GD_OK);
  assert_int_equal(r.n_readers[graph.loss], 1);
  for (gd_op_id id = 0; id < r.n_ops; id++)
    gd_graph_rewrite_keep(&r, id);
  gd_graph_rewrite_replace(&r, graph.loss, gd_activate(&graph, graph.loss, GD_ACTIVATION_TANH));
  assert_int_equal(gd_graph_rewrite_end(&r, &err), GD_OK);
  assert_int_equal(gd_graph_verify(&graph, &err), GD_OK);
  const struct gd_op *last = &graph.ops[graph.n_ops - 1];
  assert_int_equal(last->kind, GD_OP_activate);
  assert_int_equal(graph.loss, last->out[0]);
  assert_int_equal(graph.ops[graph.tensors[last->in[0]].producer].kind, GD_OP_xent);
  gd_graph_deinit(&graph);
}

static void test_dropped_but_read(void **state) {
  struct gd_graph graph;
  struct gd_graph_rewrite r;
  struct gd_error err = {0};
  (void)state;
  make_graph(&graph);
  assert_int_equal(gd_graph_rewrite_begin(&r, &graph, &err), GD_OK);
  for (gd_op_id id = 1; id < r.n_ops; id++) /* without the embedding */
    gd_graph_rewrite_keep(&r, id);
  assert_int_equal(gd_graph_rewrite_end(&r, &err), GD_INTERNAL);
  assert_non_null(strstr(err.text, "still read"));
  gd_graph_deinit(&graph);
}

/* Every request for memory fails once; nothing leaks, and the reason is told. */
static void test_out_of_memory(void **state) {
  int64_t before = gd_mem_live_blocks();
  enum gd_status status = GD_ENVIRONMENT;
  (void)state;
  for (int64_t nth = 1; status != GD_OK; nth++) {
    struct gd_graph graph;
    struct gd_error err = {0};
    make_graph(&graph);
    assert_int_equal(gd_graph_check(&graph, &err), GD_OK);
    gd_mem_fail_after(nth);
    status = fuse(&graph, &err);
    gd_mem_fail_after(0);
    assert_true(status == GD_OK || status == GD_ENVIRONMENT);
    assert_int_equal(status, err.status);
    gd_graph_deinit(&graph);
    assert_int_equal(gd_mem_live_blocks(), before);
    assert_true(nth < 1000);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_pattern),       cmocka_unit_test(test_whole_graph_unchanged),
      cmocka_unit_test(test_named_tensor),  cmocka_unit_test(test_dropped_but_read),
      cmocka_unit_test(test_out_of_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
