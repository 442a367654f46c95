/*
 * What the op and gradient tests share: one op run on a kernel table with made-up inputs and
 * compared with ref, and a small interpreter that runs a whole graph, op by op, on its own memory.
 * Nothing here plans memory or times anything.
 *
 *   struct op_case c = {.kind = GD_OP_softmax, .n_in = 1,
 *                       .in = {{.dtype = GD_DTYPE_BF16, .rank = 2, .dims = {3, 17}, .high = 4}}};
 *   const char *wrong = op_check(&c, &backend);   // NULL: passed
 */
#ifndef GD_TESTS_SUPPORT_OP_HARNESS_H
#define GD_TESTS_SUPPORT_OP_HARNESS_H

#include "backend/kernel.h"
#include "ir/shape.h"

enum { OP_MAX_IN = 20 };

/* Where the values of an input come from. All are functions of the case alone. */
enum op_fill {
  OP_FILL_UNIFORM,  /* in [low, high); both 0: in [-1, 1); only high given: in [-high, high) */
  OP_FILL_VALUES,   /* values[0..elements) */
  OP_FILL_INDEX,    /* integers in [0, high) */
  OP_FILL_LABEL,    /* integers in [0, high), about every fifth is -100 */
  OP_FILL_NAN,      /* uniform, but for one NaN as GPUs make it: all bits but the sign's */
  OP_FILL_EIGHTHS,  /* uniform multiples of 1/8: multiplied and added, exact in fp32 */
  OP_FILL_CAUSAL,   /* uniform; NaN in the columns past the row: these must not be read */
  OP_FILL_SOFTMAX,  /* rows that sum to 1 */
  OP_FILL_CAUSAL_P, /* both: rows that sum to 1 up to the diagonal, NaN past it */
  OP_FILL_ANGLES,   /* rotary table: cosines, then sines */
  OP_FILL_MEAN,     /* mean of the rows of input `of` */
  OP_FILL_RSTD,     /* 1 / sqrt(variance + 1e-5) of the rows of input `of` */
  OP_FILL_LSE,      /* logsumexp of the rows of input `of` */
};

struct op_input {
  enum gd_dtype dtype;
  uint32_t rank;
  int64_t dims[GD_MAX_RANK];
  enum op_fill fill;
  double low, high;
  const double *values;
  uint32_t of; /* an input before this one */
};

struct op_case {
  enum gd_op_kind kind;
  union gd_attr attr;
  uint32_t n_in;
  struct op_input in[OP_MAX_IN];
  uint64_t seed;
  double noise; /* absolute error that fp32 arithmetic makes on these inputs: cancellation */
};

struct op_backend {
  const char *name;
  const gd_kernel *kernels;
  int64_t (*workspace_bytes)(int threads, int64_t widest); /* NULL: needs none */
  bool on_gpu;   /* kernels are those of the cuda column of ops.def; memory stays between cases */
  bool collects; /* kernels only note what they would run: nothing to compare */
  bool threads_alike; /* there is no such thing as threads: run on one */
  bool varies;        /* two runs may differ in the last bits: each is compared with ref */
  bool library_sums;  /* GEMMs add to memory in their own way, and what is between two GEMMs of
                         one op is rounded to the dtype: see op_slack */
};
extern const struct op_backend op_backend_ref;

/*
 * Runs the case on the backend and on ref, and compares every output: not a NaN that ref does not
 * have, each element within the rounding of its dtype, normalised mean squared error below the
 * dtype's bound. The backend runs on 1, 2 and 3 threads, on memory shifted by one element, and
 * in place wherever ops.def permits it: threads and place must not change a bit. Outputs that
 * ops.def lets be added to memory are, in every combination, on ref too: what is there plus what
 * the plain run gave, bit for bit unless the kernel adds in pieces. Guard bytes on both sides of
 * every buffer, and every input that is not overwritten, must stay as they were. NULL: all as it
 * should be; else a sentence that stays valid until the next call. GD_TEST_BRIEF=N in the
 * environment: for every Nth case, and of its runs only those that have kernels of their own.
 */
const char *op_check(const struct op_case *c, const struct op_backend *backend);

/* What ran in the last op_check. A case that a cpu kernel leaves to ref compares ref with itself.
 */
enum op_ran { OP_RAN_NOTHING, OP_RAN_KERNEL, OP_RAN_REF };
enum op_ran op_check_ran(void);

/*
 * Runs the case once, on one thread, and compares output `output` with expected[0..count), element
 * by element, within the tolerance relative to 1 + |expected|. Same result as op_check.
 */
const char *op_check_values(const struct op_case *c, const struct op_backend *backend,
                            uint32_t output, int64_t count, const double *expected,
                            double tolerance);

/* A graph with memory: every root tensor has its own, nothing is reused. */
struct op_program {
  const struct gd_graph *graph;
  char **storage; /* by tensor id; NULL where the tensor is a view of another */
};

/* Leaves start as zeros, everything else as NaN. False when memory is out. */
bool op_program_init(struct op_program *program, const struct gd_graph *graph);
void op_program_deinit(struct op_program *program);
void *op_program_data(const struct op_program *program, gd_tensor_id id);
/* Runs the ops of one phase in the order of the graph, on one thread and without workspace: ref. */
void op_program_run(const struct op_program *program, const gd_kernel *kernels,
                    enum gd_phase phase);

#endif
