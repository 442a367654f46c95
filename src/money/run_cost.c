/*
 * The cost of a run on given GPUs; see run_cost.h.
 */
#include "money/run_cost.h"

#include <string.h>

/* The smallest machine for sale that holds a node's share of the GPUs; of equals the cheapest. */
static const struct gd_machine *find_machine(const struct gd_hw *hw, const struct gd_target *target,
                                             int each) {
  const struct gd_machine *best = NULL;
  for (int i = 0; i < hw->n_machines; i++) {
    const struct gd_machine *machine = &hw->machines[i];
    if (strcmp(machine->gpu, target->gpu->name) != 0 || machine->usd <= 0 || machine->count < each)
      continue;
    if (!best || machine->count < best->count ||
        (machine->count == best->count && machine->usd < best->usd))
      best = machine;
  }
  return best;
}

enum gd_status gd_run_cost_find(struct gd_hw *hw, const struct gd_target *target, double days,
                                double gpu_power_w, struct gd_run_cost *cost,
                                struct gd_error *err) {
  int nodes = target->nodes > 0 ? target->nodes : 1;
  *cost = (struct gd_run_cost){.machines = nodes};
  GD_TRY(gd_money_terms_default(hw, NULL, &cost->terms, err));
  cost->bought = find_machine(hw, target, (target->count + nodes - 1) / nodes);
  const struct gd_machine *like = cost->bought ? cost->bought : target->machine;
  cost->machine = (struct gd_machine){.name = target->gpu->name,
                                      .gpu = target->gpu->name,
                                      .count = target->count,
                                      .usd = cost->bought ? nodes * cost->bought->usd : 0,
                                      .power_w = like ? nodes * like->power_w : 0};
  cost->option = (struct gd_money_option){.machine = &cost->machine,
                                          .gpu = target->gpu,
                                          .rent = gd_hw_cheapest_rent(hw, target->gpu->name, NULL),
                                          .time = {.state = GD_TIME_KNOWN,
                                                   .times = GD_TIMES_PREDICTED,
                                                   .days = days,
                                                   .gpu_power_w = gpu_power_w}};
  gd_money_price(&cost->terms, &cost->option);
  return GD_OK;
}
