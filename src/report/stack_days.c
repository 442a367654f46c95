/*
 * From plans of a stack to days of machines; see stack_days.h.
 */
#include "report/stack_days.h"

#include <stdio.h>

/* The model's shortest run that fits; NULL: none does. */
static const struct gd_stack_row *best_of(const struct gd_stack_plan *plan,
                                          const struct gd_model *model) {
  const struct gd_stack_row *best = NULL;
  for (int i = 0; i < plan->count; i++) {
    const struct gd_stack_row *row = &plan->rows[i];
    if (row->model == model && row->fits && (!best || row->days < best->days))
      best = row;
  }
  return best;
}

void gd_stack_days_of(const struct gd_stack_plan *plan, const struct gd_model *model,
                      struct gd_time *time) {
  const struct gd_stack_row *best = best_of(plan, model);
  char name[GD_METHOD_NAME];
  time->state = best ? GD_TIME_KNOWN : GD_TIME_INFEASIBLE;
  if (!best)
    return;
  time->days = best->days;
  time->days_low = best->days_low;
  time->days_high = best->days_high;
  time->gpu_power_w = best->step.watts;
  snprintf(time->method, sizeof time->method, "%s", gd_method_name(&best->method, name));
  int length = snprintf(time->source, sizeof time->source, "%.*s", (int)sizeof time->source - 48,
                        plan->basis);
  if (best->substituted)
    snprintf(time->source + length, sizeof time->source - (size_t)length, "; %s runs as %s",
             gd_precision_name(best->model->recipe.precision), gd_precision_name(best->precision));
}

static enum gd_status predict(void *user, const struct gd_model *model,
                              const struct gd_target *target, struct gd_time *time,
                              struct gd_error *err) {
  struct gd_stack_plan *plan = user;
  struct gd_method methods[GD_METHODS_MOST];
  const struct gd_stack_asked asked = {.models = model,
                                       .n_models = 1,
                                       .methods = methods,
                                       .n_methods =
                                           gd_stack_plan_methods(plan, target->count > 1, methods),
                                       .target = target};
  GD_TRY(gd_stack_plan_fill(plan, &asked, err));
  gd_stack_days_of(plan, model, time);
  return GD_OK;
}

enum gd_status gd_stack_days_open(const char *stack, struct gd_stack_days *days,
                                  struct gd_error *err) {
  *days = (struct gd_stack_days){0};
  GD_TRY(gd_stack_plan_open(stack, &days->plan, err));
  days->stack = (struct gd_money_stack){
      .name = days->plan.facts->name, .predict = predict, .user = &days->plan};
  return GD_OK;
}

void gd_stack_days_close(struct gd_stack_days *days) {
  gd_stack_plan_deinit(&days->plan);
  *days = (struct gd_stack_days){0};
}
