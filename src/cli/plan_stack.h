/*
 * `gpudays plan --stack paper`: what the paper's own software would take on given GPUs, by the
 * model that is fitted to its tables. The same questions and the same names as plan has.
 */
#ifndef GD_CLI_PLAN_STACK_H
#define GD_CLI_PLAN_STACK_H

#include "base/status.h"

#include "report/stack_plan.h"

struct gd_cli;

/* What the command line asks of a stack, but for the methods and which of the GPUs. */
struct gd_stack_asked gd_plan_stack_asked(const struct gd_cli *cli, const char *stack,
                                          const struct gd_model *models, int n_models);
enum gd_status gd_plan_stack(struct gd_cli *cli, struct gd_error *err) GD_MUST_USE;

#endif
