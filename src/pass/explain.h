/*
 * What the pipeline does to a graph, as text for people: `plan --explain passes` and
 * `plan --explain PASS`.
 */
#ifndef GD_PASS_EXPLAIN_H
#define GD_PASS_EXPLAIN_H

#include "pass/pass.h"

/*
 * Builds the graph of a setup. which is "passes": one line a step of the pipeline, with ops,
 * tensors and time. Or the name of a pass: the leaves and ops that it removes (-) and adds (+), by
 * phase and block; blocks that change alike are shown once.
 */
enum gd_status gd_pipeline_explain(const struct gd_setup *setup, const char *which,
                                   struct gd_strbuf *out, struct gd_error *err) GD_MUST_USE;

#endif
