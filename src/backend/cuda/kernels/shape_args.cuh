// Arguments of kernels/shape.cu.
#ifndef GD_SHAPE_ARGS_CUH
#define GD_SHAPE_ARGS_CUH
#include "args.cuh"

enum { GD_SHAPE_PARTS = 224, GD_SHAPE_DIMS = 8 };

struct gd_shape_parts {
  const void *from[GD_SHAPE_PARTS];
  int64_t end[GD_SHAPE_PARTS]; // of the part in the output, in units
  int32_t count;
};
GD_ARGS_SIZE(struct gd_shape_parts, 3592);

struct gd_shape_strided {
  struct gd_divider dims[GD_SHAPE_DIMS]; // of the output, outermost first
  int64_t strides[GD_SHAPE_DIMS];        // of the input, in units
  uint32_t total;                        // units of the output: below 2^31
  int32_t rank;                          // at least 1
};
GD_ARGS_SIZE(struct gd_shape_strided, 168);

// Rows of `row` units of the output: `lead` zeros, `run` units of x, zeros.
struct gd_shape_window {
  struct gd_divider row;
  uint32_t lead, run;
  uint32_t total; // units of the output: below 2^31
};
GD_ARGS_SIZE(struct gd_shape_window, 24);

// Rows are the dim that is last in the output, columns the one that is last in the input. All in
// elements. Tiles follow each other along the rows, then the columns, then the other dims.
struct gd_shape_tiles {
  struct gd_divider row_tiles, column_tiles;
  struct gd_divider dims[GD_SHAPE_DIMS]; // the others, outermost first
  int64_t in_strides[GD_SHAPE_DIMS], out_strides[GD_SHAPE_DIMS];
  int64_t rows, columns;
  int64_t row_in;     // from row to row of the input
  int64_t column_out; // from column to column of the output
  int32_t rank;       // of dims
  // Whether 16 bytes can be read, written at a time: rows, columns are then a multiple of these,
  // since some other dim steps over just one of them.
  int32_t wide_in, wide_out;
};
GD_ARGS_SIZE(struct gd_shape_tiles, 296);

#endif
