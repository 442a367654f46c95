/*
 * Lowering: from a fusion to the values of one row and the sweeps over its columns. Between the
 * compile pass, which asks whether a cluster can be a kernel, and emit.c, which writes it down.
 *
 * A kernel takes rows one at a time. A value is either one per element of the row or one per row.
 * Sums and maxima over the columns turn the first into the second; what depends on one waits for
 * the next sweep over the row. An element's value that a later sweep needs is recomputed
 * where that is cheap and kept in a buffer of one row otherwise, so each input comes from memory
 * once and each output goes there once.
 *
 * What a tensor is in the [rows, columns] picture:
 *   full      rows * columns elements: read or written at the element
 *   repeated  [n * columns]: row r reads row r mod n (weights and biases: n = 1)
 *   per row   [rows]: statistics of norms
 *   sum       [columns], written only: sums over all rows, made of partial sums by the caller
 *   seed      [3]: what dropout draws from
 */
#ifndef GD_CODEGEN_LOWER_H
#define GD_CODEGEN_LOWER_H

#include "ir/fusion.h"

enum {
  GD_LOWER_MAX_VALUES = 320,
  GD_LOWER_MAX_TENSORS = 256, /* of a fusion's body */
  GD_LOWER_MAX_ARGS = 5,
  GD_LOWER_MAX_DROPOUTS = 8,
  GD_LOWER_SUM_FLOATS = 1 << 16,    /* most columns, times the sums over rows of a kernel */
  GD_LOWER_BUFFER_FLOATS = 1 << 16, /* most that a kernel may want for its row buffers */
  GD_LOWER_FREE_COLUMNS = 1 << 14,  /* most columns where nothing says how long a row is */
};

enum gd_value_kind {
  GD_VALUE_LOAD,     /* element: of input `input` */
  GD_VALUE_WORD,     /* element: 16 random bits of dropout `input` */
  GD_VALUE_EXPR,     /* element: text over args */
  GD_VALUE_ROW_LOAD, /* row: of input `input` */
  GD_VALUE_ROW_EXPR, /* row: text over args */
  GD_VALUE_SUM,      /* row: of arg 0 over the columns */
  GD_VALUE_MAX,      /* row: likewise */
};

struct gd_value {
  enum gd_value_kind kind;
  const char *text; /* $0 .. $4: args; @0, @1: numbers as floats; #0: number 0 as an integer */
  uint32_t n_args, arg[GD_LOWER_MAX_ARGS];
  double number[2];
  uint32_t input;
  int64_t repeat_rows; /* LOAD: 0 full, else the rows that repeat */
  int cost;            /* EXPR: instructions, about */
  /* Filled in by the schedule. */
  bool used;
  uint32_t sweep; /* element: the first sweep that can compute it; row: the first that can use it */
  uint32_t buffer; /* row buffer that keeps it; GD_NONE */
};

enum gd_result_kind { GD_RESULT_FULL, GD_RESULT_ROW, GD_RESULT_SUM };

struct gd_result {
  enum gd_result_kind kind;
  uint32_t value;
  uint32_t sum; /* SUM: which of the kernel's sums */
};

struct gd_lowered_dropout {
  uint32_t seed_input;
  uint32_t stream;         /* attribute of the op: an argument of the kernel, so layers share it */
  int64_t sample_elements; /* elements of one sample */
  bool per_sample;         /* one draw for all of them */
};

struct gd_lowered {
  const struct gd_fusion *fusion;
  uint32_t n_values;
  struct gd_result results[GD_MAX_OUTPUTS]; /* by output of the fusion */
  struct gd_lowered_dropout dropouts[GD_LOWER_MAX_DROPOUTS];
  uint32_t n_dropouts;
  uint32_t n_sums;
  uint32_t n_sweeps, n_buffers;
  uint32_t last_load[64]; /* by input: last sweep that loads it + 1; 0: none does */
  struct gd_value values[GD_LOWER_MAX_VALUES]; /* from here on only what is used is written */
  /* Of the lowering itself, by tensor of the body. */
  uint32_t of_tensor[GD_LOWER_MAX_TENSORS];  /* its value, or what is summed for a sum */
  int64_t repeat_rows[GD_LOWER_MAX_TENSORS]; /* how an input is read; -1: not yet */
};

/*
 * The rows and columns of an op that may be part of a fusion: *columns is 0 where any length of row
 * will do. False: kernels are not generated for this op, or not for these shapes.
 */
bool gd_lower_shape(const struct gd_graph *graph, gd_op_id id, int64_t *elements, int64_t *columns);
/* How long a row is best made of so many elements with such a last dim, where nothing fixes it. */
int64_t gd_lower_free_columns(uint32_t rank, const int64_t *dims);

/* Fills out (about 40 KiB); asks for no memory. False: too large, or a tensor would have to be two
 * things at once. */
bool gd_lower(const struct gd_fusion *fusion, struct gd_lowered *out);
/* What a sweep computes, loads or takes from a buffer: wanted[GD_LOWER_MAX_VALUES]. */
void gd_lower_wanted(struct gd_lowered *lowered, uint32_t sweep, bool *wanted);
/* Sizes in floats: of one row buffer, of the random words of one dropout, and of all that a thread
   needs. */
int64_t gd_lower_row_floats(const struct gd_lowered *lowered);
int64_t gd_lower_words_floats(const struct gd_lowered *lowered);
int64_t gd_lower_buffer_floats(const struct gd_lowered *lowered);
/* Inputs whose memory this output may take. */
uint64_t gd_lower_inplace(const struct gd_lowered *lowered, uint32_t output);

#endif
