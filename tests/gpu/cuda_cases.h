/*
 * Cases of ops that only the CUDA backend has a path for; see op/op_cases.h.
 */
#ifndef GD_TESTS_GPU_CUDA_CASES_H
#define GD_TESTS_GPU_CUDA_CASES_H

#include "op/op_cases.h"
#include "support/cuda_ops.h"

void cases_attention_tiles(void);
void cases_attention_cudnn(void);
void cases_attention_short(void);
void cases_scan_limits(void);

#endif
