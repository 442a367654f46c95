/*
 * The good trials of a model in the store, fastest first: what `best` shows and `export` exports.
 */
#ifndef GD_CLI_BEST_H
#define GD_CLI_BEST_H

#include "model/model.h"
#include "store/store.h"

struct gd_cli;

/*
 * Visits the trials that are ok, pass the filter and train the recipe that is asked for (whatever
 * the model was called), by days; of the filter's fields model, recipe, status and sort are set
 * here. With no such trial: GD_MISMATCH with the recipes that are stored, or the filter that leaves
 * all out, and the command that measures some.
 */
enum gd_status gd_best_query(const struct gd_cli *cli, struct gd_store *store,
                             const struct gd_model *model, const struct gd_store_filter *filter,
                             gd_store_visit visit, void *user, struct gd_error *err) GD_MUST_USE;

#endif
