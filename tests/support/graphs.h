/*
 * What the tests of graphs share: the leaves that a loss needs, counts, and the verifier's verdict.
 *
 *   graph_begin(&graph);
 *   ... break it ...
 *   graph_expect_broken(&graph, "produced later");
 */
#ifndef GD_TESTS_SUPPORT_GRAPHS_H
#define GD_TESTS_SUPPORT_GRAPHS_H

#include "ir/graph.h"

/* An empty graph with ids and labels of two sequences of three tokens, and the loss's weight. */
void graph_begin(struct gd_graph *graph);

int graph_count_ops(const struct gd_graph *graph, enum gd_op_kind kind);

/* gd_graph_verify refuses it with a sentence that holds that part. Ends with gd_graph_deinit. */
void graph_expect_broken(struct gd_graph *graph, const char *part);

/* ||a - b|| / ||b||, of gradients. Fails where b is zero. */
double gradient_distance(const float *a, const float *b, int64_t count);

#endif
