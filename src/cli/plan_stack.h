/*
 * `gpudays plan --stack paper`: what the paper's own software would take on given GPUs, by the
 * model that is fitted to its tables. The same questions and the same names as plan has.
 */
#ifndef GD_CLI_PLAN_STACK_H
#define GD_CLI_PLAN_STACK_H

#include "base/status.h"

struct gd_cli;

enum gd_status gd_plan_stack(struct gd_cli *cli, struct gd_error *err) GD_MUST_USE;

#endif
