/*
 * What one run costs on given GPUs: rented, and on a machine of the catalogue that is bought for
 * them, with its energy. The arithmetic is money.h's.
 *
 *   struct gd_run_cost cost;
 *   GD_TRY(gd_run_cost_find(&hw, &target, days, watts, &cost, err));
 *   ... cost.option.rent_usd, .experiment_usd, .energy_kwh: NaN where it is not known ...
 */
#ifndef GD_MONEY_RUN_COST_H
#define GD_MONEY_RUN_COST_H

#include "money/money.h"

struct gd_run_cost {
  struct gd_money_terms terms;
  struct gd_machine machine;       /* all nodes as one */
  const struct gd_machine *bought; /* one of them; NULL: none of the catalogue holds the GPUs */
  int machines;                    /* how many of it */
  struct gd_money_option option;   /* option.machine is the above: do not copy the struct */
};
/* gpu_power_w: of a board, mean over the run; 0: not known. */
enum gd_status gd_run_cost_find(struct gd_hw *hw, const struct gd_target *target, double days,
                                double gpu_power_w, struct gd_run_cost *cost,
                                struct gd_error *err) GD_MUST_USE;

#endif
