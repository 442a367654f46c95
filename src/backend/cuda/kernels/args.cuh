// Arguments of kernels: what host and kernels must lay out alike. This file and the *_args.cuh files
// are C and CUDA C at once. A kernel file includes the one of its family by name (NVRTC has no
// include path: module.c puts the text in its place), the host file by its path.
//
// GD_IN(T) and GD_OUT(T) are pointers that kernels know the type of and the host does not.
// GD_ARGS_SIZE checks on both sides that a struct has the size that was written down.
#ifndef GD_ARGS_CUH
#define GD_ARGS_CUH

#ifdef __CUDACC_RTC__
#define GD_IN(T) const T *
#define GD_OUT(T) T *
#define GD_ARGS_SIZE(type, bytes) static_assert(sizeof(type) == (bytes), "host and kernels agree")
#else
#include <stdint.h>
#define GD_IN(T) const void *
#define GD_OUT(T) void *
#define GD_ARGS_SIZE(type, bytes) _Static_assert(sizeof(type) == (bytes), "host and kernels agree")
#endif

// Division of numbers below 2^31 by one that the host knows: divide.h makes it and says why it is
// right.
struct gd_divider {
  uint32_t divisor, factor, shift;
};
GD_ARGS_SIZE(struct gd_divider, 12);

#endif
