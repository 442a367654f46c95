// Arguments of kernels/heads.cu. T0: the dtype of x and of the parts.
#ifndef GD_HEADS_ARGS_CUH
#define GD_HEADS_ARGS_CUH
#include "args.cuh"

struct gd_heads_args {
  GD_OUT(T0) x;
  GD_OUT(T0) part[3];
  const float *table;
  int64_t rows, tokens;           // P N for each of whole groups of tokens; B T
  int64_t columns, rotary;        // D, R
  int64_t heads;                  // N
  struct gd_divider by_group;     // P N TOKENS
  struct gd_divider by_positions; // T
  struct gd_divider by_inner;     // the faster of the two in a token: P if interleaved, else N
  uint32_t rotated;
  int32_t interleaved;
  int32_t lanes;
  int32_t items;                // vectors of a row
  int32_t second;               // columns of a rotated row that the second walk has: whole vectors
  struct gd_divider by_pieces;  // PAIRs of a rotated row in the second walk
  float sign;
};
GD_ARGS_SIZE(struct gd_heads_args, 152);

#endif
