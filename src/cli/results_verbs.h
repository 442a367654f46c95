/*
 * `gpudays results VERB`: save, load and remove. The list of results is cmd_results.c's.
 */
#ifndef GD_CLI_RESULTS_VERBS_H
#define GD_CLI_RESULTS_VERBS_H

#include "cli/cli.h"
#include "store/store.h"

/* GD_BAD_INPUT for a verb that there is not, or arguments and filters that it does not take. */
enum gd_status gd_results_check_verb(const struct gd_cli *cli, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_results_run_verb(struct gd_cli *cli, struct gd_store *store,
                                   const struct gd_store_filter *filter,
                                   struct gd_error *err) GD_MUST_USE;

/* The table of the rows that a filter finds; of cmd_results.c. */
enum gd_status gd_results_list(struct gd_cli *cli, struct gd_store *store,
                               const struct gd_store_filter *filter,
                               struct gd_error *err) GD_MUST_USE;

#endif
