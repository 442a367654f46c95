// Arguments of kernels/update.cu. T0: the dtype of the squares, or of the 16-bit copy.
#ifndef GD_UPDATE_ARGS_CUH
#define GD_UPDATE_ARGS_CUH
#include "args.cuh"

enum { GD_SQUARES_ENTRIES = 96, GD_CONTROL_SUMS = 224, GD_ADAM_ENTRIES = 60 };

struct gd_squares_entry {
  GD_IN(T0) x;
  float *y;
  int64_t count;
  int64_t each; // elements of a piece
  uint32_t end; // number of pieces up to the end of this tensor
  int32_t wide; // whether its address allows 16 bytes at a time
};
struct gd_squares_table {
  struct gd_squares_entry at[GD_SQUARES_ENTRIES];
  int32_t count;
};
GD_ARGS_SIZE(struct gd_squares_table, 3848);

struct gd_control_sums {
  const float *from[GD_CONTROL_SUMS];
  int64_t end[GD_CONTROL_SUMS]; // of the tensor among all elements
  int32_t count;
  int32_t first, last; // whether it is the first, the last of the launches of this op
};
GD_ARGS_SIZE(struct gd_control_sums, 3600);

struct gd_control_rules {
  float max_norm, growth_interval;
  int32_t dynamic_scale;
};
GD_ARGS_SIZE(struct gd_control_rules, 12);

struct gd_adam_rule {
  float beta1, beta2, rest1, rest2; // rest: 1 - beta
  float log_beta1, log_beta2;       // natural logarithms
  float eps;
  int32_t decoupled;
};
GD_ARGS_SIZE(struct gd_adam_rule, 32);

struct gd_adam_entry {
  float *param;
  float *m;
  float *v;
  float *grad;
  GD_OUT(T0) copy; // of the parameter in 16 bits; NULL: none
  int64_t count;
  uint32_t end; // number of blocks up to the end of this tensor
  float decay;
  int32_t wide;  // whether all addresses allow four elements at a time
  int32_t clear; // whether the gradient is zeroed once it is used
};
struct gd_adam_table {
  struct gd_adam_entry at[GD_ADAM_ENTRIES];
  int32_t count;
};
GD_ARGS_SIZE(struct gd_adam_table, 3848);

#endif
