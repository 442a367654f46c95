/*
 * The parts of `gpudays cost`: the answer for one model (cost_model.c, its JSON in cost_json.c),
 * and the list of presets within limits (cost_presets.c). Inside of src/cli alone.
 */
#ifndef GD_CLI_COST_H
#define GD_CLI_COST_H

#include "cli/cli.h"
#include "cli/show_cost.h"
#include "money/answer.h"

struct gd_money_limits gd_cost_limits(const struct gd_cli *cli);
const char *gd_cost_plural(double count); /* "", "s" */
/* Begins the line of progress: "pythia-1b", or one of several: "pythia-1b (3 of 40)". */
void gd_cost_label_progress(void *user, const char *name, int number, int count);

enum gd_status gd_cost_model(struct gd_cli *cli, struct gd_money_asked *asked,
                             struct gd_money_table *table, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_cost_model_json(struct gd_cli *cli, const struct gd_money_asked *asked,
                                  struct gd_money_table *table,
                                  const struct gd_money_answer *answer,
                                  struct gd_error *err) GD_MUST_USE;
/* null where it was not given. */
void gd_cost_set_number(struct gd_show_object *to, const char *key,
                        const struct gd_cli_number *number);
/* A row for each machine. */
void gd_cost_rows(struct gd_show_object *rows, const struct gd_money_table *table,
                  double limit_days);
enum gd_status gd_cost_presets(struct gd_cli *cli, const struct gd_money_asked *asked,
                               struct gd_error *err) GD_MUST_USE;

#endif
