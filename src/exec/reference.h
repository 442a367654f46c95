/*
 * Numerics against a reference that transformers made: `gpudays verify DIR`. The format is in
 * docs/reference-format.md.
 */
#ifndef GD_EXEC_REFERENCE_H
#define GD_EXEC_REFERENCE_H

#include "base/status.h"
#include "model/model.h"
#include "pass/method.h"

struct gd_verify_options {
  const char *backend;         /* "cpu", "ref" */
  int threads;                 /* 0: all */
  struct gd_method method;     /* one device: naive, free-lunch, ckpt */
  enum gd_precision precision; /* fp32 checks every parameter; 16-bit all gradients together */
};

struct gd_verify_result {
  bool ok;
  double loss_error;       /* relative */
  double gradient_error;   /* what is judged: worst parameter (fp32) or all together (16-bit) */
  double worst_error;      /* worst parameter: ||g - r|| / max(||r||, 1e-4 ||all||) */
  double together_error;   /* all gradients as one vector: ||g - r|| / ||r|| */
  double trajectory_error; /* worst relative error of the losses; -1: no recipe */
  double loss_bound, gradient_bound, trajectory_bound; /* what ok compares with */
  double loss, loss_reference;
  int parameters;            /* tensors compared */
  char worst_parameter[160]; /* its name */
};

/* Bad files, and a method of several devices, are errors; a numeric miss is GD_OK with result->ok
 * false. */
enum gd_status gd_verify(const char *folder, const struct gd_verify_options *options,
                         struct gd_verify_result *result, struct gd_error *err) GD_MUST_USE;

#endif
