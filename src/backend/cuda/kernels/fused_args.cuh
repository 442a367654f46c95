// Arguments of generated kernels (kernels/fused.cu) and of kernels/fused_sums.cu.
#ifndef GD_FUSED_ARGS_CUH
#define GD_FUSED_ARGS_CUH
#include "args.cuh"

enum { GD_FUSED_INPUTS = 64, GD_FUSED_OUTPUTS = 16, GD_FUSED_STREAMS = 8 };

struct gd_fused_args {
  const void *in[GD_FUSED_INPUTS];
  void *out[GD_FUSED_OUTPUTS];
  int64_t rows;
  float *partials; // [gridDim.x][sums][columns]
  uint32_t streams[GD_FUSED_STREAMS];
};
GD_ARGS_SIZE(struct gd_fused_args, 688);

struct gd_fused_sums_args {
  const float *partials;
  int64_t stride, columns; // floats from a block's sums to the next one's; columns of a sum
  int32_t blocks;
  uint32_t adds;
  float *out[GD_FUSED_OUTPUTS];
  int32_t sum[GD_FUSED_OUTPUTS]; // by out: which it is of the sums
};
GD_ARGS_SIZE(struct gd_fused_sums_args, 224);

#endif
