// Arguments of kernels/embed.cu.
#ifndef GD_EMBED_ARGS_CUH
#define GD_EMBED_ARGS_CUH
#include "args.cuh"

// Some bits of an id, by which a pass of the radix sort orders.
struct gd_embed_digit {
  int32_t shift, bins; // bins: a power of two
};
GD_ARGS_SIZE(struct gd_embed_digit, 8);

struct gd_embed_sums {
  struct gd_divider chunks; // of 128 columns in a row
  int64_t columns;
  int32_t rows;       // of the table
  int32_t piece_log2; // length of a piece
  int32_t skipped;    // id of the padding, or -1
  int32_t adds;       // whether the sums are added to what the table holds
};
GD_ARGS_SIZE(struct gd_embed_sums, 40);

#endif
