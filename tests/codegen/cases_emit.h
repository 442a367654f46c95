/*
 * Bodies of fusions, for tests of generated kernels: every op that can be part of one, alone and in
 * the clusters that models make of them. Each backend's test runs its kernels on them and compares
 * with ref, which runs the ops one by one.
 */
#ifndef GD_TESTS_CODEGEN_CASES_EMIT_H
#define GD_TESTS_CODEGEN_CASES_EMIT_H

#include "support/op_harness.h"

enum { EMIT_CASES = 21, EMIT_LEAVES = 12 };

struct emit_shape {
  enum gd_dtype dtype;
  int64_t dims[3];
};

struct emit_outputs {
  uint32_t n;
  gd_tensor_id id[GD_MAX_OUTPUTS];
};

struct emit_context;
struct emit_case {
  const char *name;
  void (*build)(struct emit_context *c, struct emit_outputs *o);
  bool exact; /* one rounding, like ref */
};

/* One case at one shape: the results of its body, op by op. */
struct emit_problem {
  const struct emit_case *c;
  struct emit_outputs outputs;
  struct op_program ref;
  uint32_t n_in;
};

/* The cases at these shapes, in one graph, with the results of ref; returns how many: EMIT_CASES *
   n_shapes. Their kernels are built together. Fails the running test where one cannot be lowered.
 */
int emit_make_problems(const struct emit_shape *list, int n_shapes, struct gd_graph *graph,
                       struct emit_problem *problems);
/* 1, after a message, where an output is not ref's within the rounding of its dtypes; else 0. */
int emit_compare(const struct emit_problem *p, uint32_t output, const void *got, const char *how);

#endif
