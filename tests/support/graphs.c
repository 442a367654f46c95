/*
 * Graphs in tests; see graphs.h.
 */
#include "support/graphs.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

void graph_begin(struct gd_graph *graph) {
  static const int64_t dims[] = {2, 3}, one[] = {1};
  gd_graph_init(graph);
  graph->ids = gd_graph_leaf(graph, GD_ROLE_INPUT, "ids", GD_DTYPE_I32, 2, dims);
  graph->labels = gd_graph_leaf(graph, GD_ROLE_INPUT, "labels", GD_DTYPE_I32, 2, dims);
  graph->loss_weight = gd_graph_leaf(graph, GD_ROLE_INPUT, "loss_weight", GD_DTYPE_F32, 1, one);
}

int graph_count_ops(const struct gd_graph *graph, enum gd_op_kind kind) {
  int count = 0;
  for (gd_op_id id = 0; id < graph->n_ops; id++)
    count += graph->ops[id].kind == kind;
  return count;
}

void graph_expect_broken(struct gd_graph *graph, const char *part) {
  struct gd_error err = {0};
  assert_int_equal(gd_graph_verify(graph, &err), GD_INTERNAL);
  if (!strstr(err.text, part))
    fail_msg("\"%s\" lacks \"%s\"", err.text, part);
  gd_graph_deinit(graph);
}

double gradient_distance(const float *a, const float *b, int64_t count) {
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < count; i++) {
    difference += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    norm += (double)b[i] * (double)b[i];
  }
  assert_true(norm > 0);
  return sqrt(difference / norm);
}
