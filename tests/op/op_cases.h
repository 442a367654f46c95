/*
 * The cases of every op: cases_<op>() checks dtypes, odd and empty shapes and every attribute of
 * one op on `op_cases.backend` against ref (support/op_harness.h). They are in cases_*.c of this
 * folder. An op without a function here does not link. One whose cases never run the backend's own
 * kernel fails, unless ops.def says that there is none.
 *
 *   op_cases = (struct op_cases){.backend = &backend, .parts = 1};
 *   op_cases_run_op(GD_OP_matmul, cases_matmul);
 */
#ifndef GD_TESTS_OP_OP_CASES_H
#define GD_TESTS_OP_OP_CASES_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/op_harness.h"

struct op_cases {
  const struct op_backend *backend;
  uint64_t parts; /* of the cases past the first, a run takes one in so many: support/sample.h */
  int checked, failed; /* cases of this op so far; checked counts those that a sample leaves out */
  int64_t kernel_runs[GD_OP_COUNT]; /* cases that the backend's own kernel ran, not ref for it */
};
extern struct op_cases op_cases;

#define GD_OP(name, ...) void cases_##name(void);
#include "ir/ops.def"
#undef GD_OP

/* Fails the running test where a case fails, or where there is none. */
void op_cases_run(void (*cases)(void));
/* The same for all cases of an op, and fails where none of them ran the kernel. A fused op's
   kernels are generated: tests/codegen/test_cpu_fused.c, tests/gpu/test_cuda_fused.c. */
void op_cases_run_op(enum gd_op_kind kind, void (*cases)(void));

/* --- for writing cases --------------------------------------------------------------------- */

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof *(array)))
/* An input of these dims; designated initialisers may follow inside a second pair of braces. */
#define DIMS(...) .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dims = {__VA_ARGS__}
#define F32_VECTOR(n) \
  { .dtype = GD_DTYPE_F32, DIMS(n) }

/* The last bit of an fp32 number near 1: what cancellation leaves is a few of these. */
static const double last_bit = 0x1p-23;
static const enum gd_dtype floats[] = {GD_DTYPE_F32, GD_DTYPE_BF16, GD_DTYPE_F16};

void check(const struct op_case *c);
/* Views run nothing: their outputs must lie in the memory of the input. */
void check_view(enum gd_op_kind kind, const union gd_attr *attr, enum gd_dtype dtype, uint32_t rank,
                const int64_t *dims);
/* add and mul: every pair of dtypes, b with all dims of a or fewer. */
void broadcast_cases(enum gd_op_kind kind);

enum { FLAT_SHAPES_COUNT = 12, LABEL_SHAPES_COUNT = 10, ROW_SHAPES_COUNT = 17 };
extern const struct op_input flat_shapes[FLAT_SHAPES_COUNT], label_shapes[LABEL_SHAPES_COUNT];

/* Rows and columns for ops over the last dim; the leading dims come as one or two. */
struct row_shape {
  struct op_input x;
  int64_t columns;
};
extern const struct row_shape row_shapes[ROW_SHAPES_COUNT];
/* The last one: more rows than blocks that a GPU of 132 multiprocessors has for norms at a time, so
   that each goes on to a second. Not in every combination, since it takes its time. */
bool has_many_rows(int64_t shape);

struct attention_shape {
  int64_t batch, heads, key_heads, steps, size;
};
/* mode: as check_attention_with in cases_attention.c says. */
void check_attention_of(enum gd_op_kind kind, const struct attention_shape *shape,
                        uint64_t random_seed, enum gd_dtype dtype, int mode);

struct scan_shape {
  int64_t batch, steps, channels, states;
};
void check_scan_of(enum gd_op_kind kind, const struct scan_shape *shape, uint64_t seed,
                   enum gd_dtype dtype, enum gd_dtype dtype_delta);

#endif
