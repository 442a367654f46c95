// Sums over rows, second part: the partial sums that the blocks of a generated kernel left
// ([blocks][sums][columns], fused.cu) are added up in a fixed order, whatever the device.
//
// A block has 32 columns of one output; warp w adds rows w, w + 8, ... of the partial sums, and the
// 8 results are added in order. Bytes: 4 * blocks * columns an output, mostly from L2.

#include "fused_args.cuh"

extern "C" __global__ void __launch_bounds__(256) gd_fused_sums(const gd_fused_sums_args args) {
  __shared__ float of_warps[8][32];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t column = (int64_t)blockIdx.x * 32 + lane;
  float *out = 0;
  int sum = 0;
#pragma unroll
  for (int i = 0; i < 16; i++) // an index known at compile time keeps the arguments where they are
    if (i == (int)blockIdx.y) {
      out = args.out[i];
      sum = args.sum[i];
    }
  float total = 0;
  if (column < args.columns) {
    const float *from = args.partials + sum * args.columns + column;
#pragma unroll 8
    for (int block = warp; block < args.blocks; block += 8)
      total += from[block * args.stride];
  }
  of_warps[warp][lane] = total;
  __syncthreads();
  if (warp != 0 || column >= args.columns)
    return;
#pragma unroll
  for (int i = 1; i < 8; i++)
    total += of_warps[i][lane];
  out[column] = args.adds >> blockIdx.y & 1 ? out[column] + total : total;
}
