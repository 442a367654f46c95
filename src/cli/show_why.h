/*
 * What `gpudays why` found, as lines and as JSON.
 */
#ifndef GD_CLI_SHOW_WHY_H
#define GD_CLI_SHOW_WHY_H

#include "cli/cli.h"
#include "cli/predicting.h"
#include "predict/diagnosis.h"

struct why {
  struct gd_cli *cli;
  struct gd_stack_log log; /* format NULL: there is none */
  struct gd_model model;
  struct gd_stacks stacks;
  struct gd_hw hw;
  struct gd_target target; /* gpu NULL: not known */
  struct gd_fitted fitted;
  struct gd_published published;
  const struct gd_published_row *near; /* the published rate that is most like it; or NULL */
  struct gd_method method;
  struct gd_diagnosis_question question;
  struct gd_diagnosis diagnosis;
  int64_t micro_batch;  /* of the run; 0: not known */
  double per_s, step_s; /* measured: tokens or images, of all GPUs */
  double peak;          /* FLOP/s of all GPUs */
  double step_flops, parameters;
  double gap;   /* measured over predicted time of a step */
  double own_s; /* a step of gpudays itself; 0: not predicted */
  bool good;
};

enum gd_status gd_show_why(struct why *why, struct gd_error *err) GD_MUST_USE;

#endif
