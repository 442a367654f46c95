/*
 * The days of other software for the table of money (money/money.h): the fastest method of the
 * stack that fits on a machine's GPUs, with its interval and what that rests on.
 *
 *   struct gd_stack_days days = {0};
 *   GD_TRY(gd_stack_days_open("pytorch", &days, err));
 *   asked.stack = &days.stack;
 *   ...
 *   gd_stack_days_close(&days);
 */
#ifndef GD_REPORT_STACK_DAYS_H
#define GD_REPORT_STACK_DAYS_H

#include "money/money.h"
#include "report/stack_plan.h"

struct gd_stack_days {
  struct gd_stack_plan plan;
  struct gd_money_stack stack; /* which points to all of this */
};
/* Deinitialise it also after a failure. */
enum gd_status gd_stack_days_open(const char *stack, struct gd_stack_days *days,
                                  struct gd_error *err) GD_MUST_USE;
/* Of a plan that is filled, the shortest run of one of its models. */
void gd_stack_days_of(const struct gd_stack_plan *plan, const struct gd_model *model,
                      struct gd_time *time);
void gd_stack_days_close(struct gd_stack_days *days); /* safe on a zeroed one */

#endif
