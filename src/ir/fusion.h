/*
 * Fusions: what a fused op consists of. The compile pass turns clusters of small ops over the same
 * rows into one op each; code generation makes a kernel of it.
 *
 * A fusion is a graph of its own, in local numbering: leaves are its inputs, by position, so that
 * the op can be duplicated with other tensors (checkpointing) and layers can share one fusion.
 * Everything it computes on is seen as [rows, columns]; what a tensor is in that picture follows
 * from the ops that use it (codegen/lower.h). A fusion does not know how it is executed.
 */
#ifndef GD_IR_FUSION_H
#define GD_IR_FUSION_H

#include "ir/graph.h"
#include "ir/shape.h"

struct gd_fusion {
  struct gd_graph body; /* PURE ops and reshapes; tensors 0 .. n_in - 1 are its leaves */
  uint32_t n_in, n_out; /* of the fused op */
  gd_tensor_id out[GD_MAX_OUTPUTS]; /* tensors of body that the op writes */
  int64_t rows, columns;
  uint64_t inplace; /* bit i: output 0 may take the memory of input i */
};

/*
 * Adds a fusion to a graph and returns its index for attr.fused, or GD_NONE when memory is out
 * (the reason is then in graph->error). Takes over the body in either case.
 */
uint32_t gd_graph_fusion(struct gd_graph *graph, struct gd_fusion *fusion);
/* Frees them all: part of gd_graph_deinit. */
void gd_fusions_free(struct gd_graph *graph);

/* What a fused op consists of; NULL: it is no fused op. */
const struct gd_fusion *gd_op_fusion(const struct gd_graph *graph, const struct gd_op *op);
/* Inputs that output 0 of any op may overwrite, as in ops.def. */
uint64_t gd_op_inplace(const struct gd_graph *graph, const struct gd_op *op);

enum gd_status gd_fusion_verify(const struct gd_fusion *fusion, struct gd_error *err) GD_MUST_USE;
double gd_fusion_flops(const struct gd_fusion *fusion);
/* One indented line an op. */
void gd_fusion_print(const struct gd_fusion *fusion, struct gd_strbuf *out);

#endif
