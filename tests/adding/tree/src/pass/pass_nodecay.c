/*
 * A part of a method for tests/adding: no parameter is decayed.
 */
#include "pass/pass.h"

enum gd_status gd_pass_nodecay(struct gd_pass_ctx *ctx, struct gd_graph *graph) {
  (void)ctx;
  for (gd_tensor_id i = 0; i < graph->n_tensors; i++)
    graph->tensors[i].no_decay = true;
  return GD_OK;
}
