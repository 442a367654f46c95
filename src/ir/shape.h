/*
 * Shape rules: from an op and its inputs to the dtype, dims and aliasing of its outputs.
 */
#ifndef GD_IR_SHAPE_H
#define GD_IR_SHAPE_H

#include "ir/graph.h"

enum { GD_MAX_OUTPUTS = 16 };

struct gd_shape {
  enum gd_dtype dtype;
  uint32_t rank;
  int64_t dims[GD_MAX_RANK];
  gd_tensor_id alias_of;  /* GD_NONE: new memory */
  enum gd_space space;    /* that of alias_of where there is one */
  int64_t alias_elements; /* offset in alias_of */
};

/* Fills outs[0..*n_out). Fails with a sentence that names the op and the dims that do not fit. */
enum gd_status gd_shape_infer(const struct gd_graph *graph, enum gd_op_kind kind,
                              const union gd_attr *attr, uint32_t n_in, const gd_tensor_id *in,
                              struct gd_shape *outs, uint32_t *n_out,
                              struct gd_error *err) GD_MUST_USE;

#endif
