/*
 * What the paper's own software would take on given GPUs, by the model that is fitted to its tables
 * (predict/stack_paper.h), with an interval from what that model missed on GPUs that a fit has not
 * seen (accuracy.h).
 *
 *   struct gd_stack_plan plan = {0};
 *   GD_TRY(gd_stack_plan_make(&asked, &plan, err));
 *   ... plan.rows[i].days, plan.error, plan.basis ...
 *   gd_stack_plan_deinit(&plan);
 */
#ifndef GD_REPORT_STACK_PLAN_H
#define GD_REPORT_STACK_PLAN_H

#include "report/accuracy.h"

struct gd_stack_asked {
  const struct gd_model *models; /* with their recipes */
  int n_models;
  const struct gd_method *methods;
  int n_methods;
  const char *gpu, *machine, *network; /* of the catalogue; the last two may be NULL */
  int count, nodes;                    /* nodes 0: as few as hold the GPUs */
};

struct gd_stack_row {
  const struct gd_stack_model *model;
  struct gd_stack_point point;
  bool fits;
  double step_s, days;         /* where it fits */
  int number;                  /* its place in the order of asking */
  enum gd_precision precision; /* that the GPU runs the recipe in */
  bool substituted;            /* which is not the recipe's */
};

struct gd_stack_plan {
  struct gd_arena arena;
  struct gd_accuracy accuracy;
  struct gd_target target;
  double error;   /* half width of intervals, relative */
  bool validated; /* the paper's tables hold these models on this GPU */
  char basis[512];
  struct gd_stack_row
      *rows; /* models as asked for; of each the shortest first, last what does not fit */
  int count;
};
/* GD_UNSUPPORTED for a method that the paper's software does not have. Deinitialise it also after a
   failure. */
enum gd_status gd_stack_plan_make(const struct gd_stack_asked *asked, struct gd_stack_plan *plan,
                                  struct gd_error *err) GD_MUST_USE;
void gd_stack_plan_deinit(struct gd_stack_plan *plan); /* safe on a zeroed one */

/* Which memory a row lacks: bytes that micro-batch 1 needs, and that there are. */
struct gd_stack_miss {
  bool host;
  double need_bytes, have_bytes;
};
struct gd_stack_miss gd_stack_plan_miss(const struct gd_stack_plan *plan,
                                        const struct gd_stack_row *row);

#endif
