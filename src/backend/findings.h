/*
 * What the backends find on this machine, as plain data: for `gpudays doctor` and others that show
 * it. Nothing here runs a plan.
 */
#ifndef GD_BACKEND_FINDINGS_H
#define GD_BACKEND_FINDINGS_H

#include "backend/backend.h"

enum { GD_FINDINGS_LIBRARIES = 8 };

/* One library of NVIDIA's. The texts belong to the loader and stay. */
struct gd_finding_library {
  const char *name;
  const char *path; /* where it was found; NULL: it was not */
  char version[32];
  const char *missing; /* the sentence, where it was not found */
  const char *without; /* what is done where there is none; NULL: nothing runs */
};

struct gd_findings {
  struct {
    struct gd_device_info info;
    const char *isa;               /* "avx2" */
    bool multiplies_bf16;          /* by an instruction */
    double fp32_flops, bf16_flops; /* measured peaks */
  } cpu;
  struct {
    bool found;
    struct gd_device_info info;
    double bf16_flops, tf32_flops; /* peaks; NaN where there is none */
    char missing[1024];            /* why there is none */
  } gpu;
  struct gd_finding_library libraries[GD_FINDINGS_LIBRARIES];
  int n_libraries;
};

/* Opens the cpu and cuda backends and looks; takes some tenths of a second. threads 0: as many as
 * the process may use. That there is no GPU is a finding, no failure. */
enum gd_status gd_findings_look(int threads, struct gd_findings *findings,
                                struct gd_error *err) GD_MUST_USE;

#endif
