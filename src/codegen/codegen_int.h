/*
 * What the files of this folder share.
 */
#ifndef GD_CODEGEN_CODEGEN_INT_H
#define GD_CODEGEN_CODEGEN_INT_H

#include "codegen/codegen.h"

/* The prelude of the C dialect in pieces, NULL at the end. */
extern const char *const gd_prelude_c[];

/*
 * Names in the text: v<n> values, a<n> accumulators, i<n> inputs, o<n> outputs, b<n> row buffers,
 * w<n> random words, x<n> the row of an input, n<n> a row's value of the next row, s<n> sums over
 * rows, r the row, at the element where it starts, j the column, n how many columns from there on
 * one value stands for. In a snippet, $0 $1 ... are the numbers that its comment lists, and ~ is
 * the name of a dtype. A snippet that a dialect has no use for is "".
 */
struct gd_dialect {
  const char *const *prelude;
  int64_t chains;          /* accumulators that a sum is spread over, so that additions overlap */
  const char *kernel_open; /* emit.c closes it: lanes, team, per, block, columns, reductions, sums,
                              resident, depth, full_bytes */
  const char *input, *output;       /* declarations: number */
  const char *buffer;               /* declaration: number, floats before it */
  const char *sum_open, *sum_close; /* around all rows: sum, sums */
  const char *row_open, *row_close; /* columns */
  const char *load_row;             /* all of this row of a full input: input */
  /* Instead of load_row and row_load, where rows are loaded ahead (struct gd_teams.depth); a
     dialect that does not has none of these. Before all rows: a row that is the same for all
     (input), the first of one value a row (value, input), and how a row is asked for (columns;
     input, bytes a column of the inputs before it). In a row: what was asked for, and the next
     (likewise). */
  const char *keep_row, *keep_value, *ahead_open, *ahead_row, *ahead_close;
  const char *take_open, *take_row, *take_close, *take_value;
  const char *words;          /* dropout, floats before, seed, elements of a sample, columns */
  const char *sample_words;   /* likewise, of one that draws once a sample */
  const char *reduce_open[2]; /* sum and max: value, chains */
  const char *sweep_open;     /* emit.c closes it: columns, chains */
  const char *chain_open, *chain_close;           /* columns, chains, chain */
  const char *load, *load_repeated, *load_buffer; /* value, input or buffer */
  const char *load_word;                          /* value, dropout */
  const char *element;                            /* declares a value: value */
  const char *store, *store_buffer;               /* output or buffer, value */
  const char *reduce_step[2];                     /* value, argument, chain */
  const char *reduce_join[2];                     /* after the sweep: value, chain; not for 0 */
  const char *reduce_share[2];                    /* value, reductions before it in the kernel */
  const char *reduce_wait;                        /* once a sweep, when all are shared */
  const char *reduce_close[2];                    /* value, reductions before it in the kernel */
  const char *column_sum;                         /* sum, columns, value */
  const char *row_load, *row_store;               /* value, input; output, value */
};

#endif
