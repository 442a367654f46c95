/*
 * Generated kernels on the GPU: what a bound plan holds of them. See op_fused.c.
 */
#ifndef GD_BACKEND_CUDA_FUSED_H
#define GD_BACKEND_CUDA_FUSED_H

#include "backend/cuda/cuda_int.h"

struct gd_cuda_fusions;
struct gd_cuda_fused;
enum gd_status gd_cuda_fusions_build(struct gd_cuda *cuda, const struct gd_graph *graph,
                                     struct gd_cuda_fusions **fusions,
                                     struct gd_error *err) GD_MUST_USE;
const struct gd_cuda_fused *gd_cuda_fusion(const struct gd_cuda_fusions *fusions, uint32_t fusion);
void gd_cuda_fusions_free(struct gd_cuda_fusions *fusions); /* NULL is fine */

#endif
