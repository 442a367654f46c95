/*
 * Reverse-mode differentiation: appends the backward pass to a forward graph, and the update
 * program to the result.
 */
#ifndef GD_IR_AUTODIFF_H
#define GD_IR_AUTODIFF_H

#include "ir/graph.h"

/*
 * Appends the gradients of graph->loss. Each parameter gets a GRAD leaf that the micro-step adds
 * every contribution to as soon as it is known. Gradients of parameters are fp32; those of
 * activations have the activation's dtype. Fails where an op on the way has no gradient rule.
 */
enum gd_status gd_autodiff(struct gd_graph *graph, struct gd_error *err) GD_MUST_USE;

struct gd_update {
  struct gd_attr_adam adam; /* weight_decay: of parameters without no_decay */
  bool decay_all;           /* of those with it, too */
  struct gd_attr_control control;
};
/*
 * Appends the update program (global norm, clipping, loss scale, Adam, zeroed gradients) and the
 * init program (16-bit copies). Needs gd_autodiff first.
 */
enum gd_status gd_append_update(struct gd_graph *graph, const struct gd_update *update,
                                struct gd_error *err) GD_MUST_USE;

#endif
