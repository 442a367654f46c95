/*
 * GPUs as people write them: "3090", "4x3090", "3090:4", and lists of these by commas. Which of the
 * catalogue's a name is, gd_hw_gpu says; a name may be the path of a file.
 *
 *   struct gd_gpu_spec *specs;
 *   int count;
 *   GD_TRY(gd_gpu_specs_parse("4x3090,8xa100", &arena, &specs, &count, err));
 */
#ifndef GD_HW_GPU_SPEC_H
#define GD_HW_GPU_SPEC_H

#include "base/mem.h"
#include "base/status.h"

struct gd_gpu_spec {
  const char *name; /* "3090" */
  int count;        /* 4; 0: not said */
};

enum { GD_GPU_SPEC_MOST = 1000000 }; /* GPUs in one spec */

/* GD_BAD_INPUT, without a name or with a count out of 1 to GD_GPU_SPEC_MOST, quotes the part. */
enum gd_status gd_gpu_specs_parse(const char *text, struct gd_arena *arena,
                                  struct gd_gpu_spec **specs, int *count,
                                  struct gd_error *err) GD_MUST_USE;

#endif
