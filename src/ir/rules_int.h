/*
 * What the rules of ops.def share. A shape rule checks its inputs and describes its outputs; it
 * never touches the graph. A gradient rule appends ops that turn the gradient of an op's outputs
 * into contributions to its inputs. The rules are in rules_<family>.c, both of an op in one file;
 * shape.c and autodiff.c run them.
 */
#ifndef GD_IR_RULES_INT_H
#define GD_IR_RULES_INT_H

#include "ir/autodiff.h"
#include "ir/shape.h"

/* --- shapes -------------------------------------------------------------------------------- */

struct gd_rule {
  const struct gd_graph *graph;
  enum gd_op_kind kind;
  const union gd_attr *attr;
  uint32_t n_in;
  const gd_tensor_id *in;
  struct gd_shape *outs;
  uint32_t *n_out;
  struct gd_error *err;
};

static inline const struct gd_tensor *input(const struct gd_rule *r, uint32_t i) {
  return &r->graph->tensors[r->in[i]];
}

static inline struct gd_shape *output(const struct gd_rule *r, enum gd_dtype dtype, uint32_t rank,
                                      const int64_t *dims) {
  GD_ASSERT(*r->n_out < GD_MAX_OUTPUTS && rank <= GD_MAX_RANK);
  struct gd_shape *out = &r->outs[(*r->n_out)++];
  *out = (struct gd_shape){.dtype = dtype, .rank = rank, .alias_of = GD_NONE};
  for (uint32_t i = 0; i < rank; i++)
    out->dims[i] = dims[i];
  return out;
}

static inline struct gd_shape *output_like(const struct gd_rule *r, uint32_t i) {
  return output(r, input(r, i)->dtype, input(r, i)->rank, input(r, i)->dims);
}

/* An output that is input i, overwritten. */
static inline void output_overwrites(const struct gd_rule *r, uint32_t i) {
  output_like(r, i)->alias_of = r->in[i];
}

static inline int64_t elements(const struct gd_tensor *t) {
  int64_t count = 1;
  for (uint32_t i = 0; i < t->rank; i++)
    count *= t->dims[i];
  return count;
}

static inline bool same_dims(const struct gd_tensor *a, const struct gd_tensor *b) {
  if (a->rank != b->rank)
    return false;
  for (uint32_t i = 0; i < a->rank; i++)
    if (a->dims[i] != b->dims[i])
      return false;
  return true;
}

static inline bool is_float(const struct gd_tensor *t) {
  return t->dtype != GD_DTYPE_I32;
}

static inline bool is_vector(const struct gd_tensor *t, int64_t length) {
  return t->rank == 1 && t->dims[0] == length && t->dtype == GD_DTYPE_F32;
}

static inline int64_t last_dim(const struct gd_tensor *t) {
  return t->dims[t->rank - 1];
}

/* Fails: what is wrong with the inputs, whose dims and dtypes the message shows. */
enum gd_status gd_rule_wrong(const struct gd_rule *r, const char *what);

/* --- gradients ----------------------------------------------------------------------------- */

struct gd_diff {
  struct gd_graph *graph;
  uint32_t n_forward;     /* tensors before the backward pass: the length of the arrays */
  gd_tensor_id *grad;     /* by forward tensor that is no parameter */
  gd_tensor_id *grad_sum; /* by parameter: its GRAD leaf, as the last accumulate left it */
  bool *wanted;           /* depends on a parameter */
};

/* The tensor under whose id gradients are kept: a half copy stands for its master. */
static inline gd_tensor_id key_of(const struct gd_diff *d, gd_tensor_id id) {
  return d->graph->tensors[id].role == GD_ROLE_PARAM_COMPUTE ? d->graph->tensors[id].owner : id;
}

static inline bool is_param(const struct gd_diff *d, gd_tensor_id id) {
  return d->graph->tensors[key_of(d, id)].role == GD_ROLE_PARAM;
}

/* A parameter or a view of one: its gradient is made in fp32. */
static inline bool is_weight(const struct gd_diff *d, gd_tensor_id id) {
  return is_param(d, gd_tensor_root(d->graph, id, NULL));
}

static inline bool wants(const struct gd_diff *d, gd_tensor_id id) {
  return id != GD_NONE && d->wanted[key_of(d, id)];
}

static inline gd_tensor_id grad_of_output(const struct gd_diff *d, const struct gd_op *op,
                                          uint32_t i) {
  return d->grad[op->out[i]];
}

static inline enum gd_status unsupported(const struct gd_op *op, const char *why,
                                         struct gd_error *err) {
  return gd_fail(err, GD_INTERNAL, "no gradient of %s: %s", gd_op_info(op->kind)->name, why);
}

/* Adds to the gradient of an input; nothing happens where it wants none. */
void gd_diff_contribute(struct gd_diff *d, gd_tensor_id to, gd_tensor_id grad);

/* --- the rules ----------------------------------------------------------------------------- */

/* gd_shape_<rule> and gd_grad_<rule> of every row of ops.def; one that nobody wrote does not link.
   Several rows may name the same rule. */
#define GD_OP(name, min, max, attr, doc, shape, grad, ...)  \
  enum gd_status gd_shape_##shape(const struct gd_rule *r); \
  enum gd_status gd_grad_##grad(struct gd_diff *d, const struct gd_op *op, struct gd_error *err);
#include "ir/ops.def"
#undef GD_OP

#endif
