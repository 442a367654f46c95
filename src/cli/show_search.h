/*
 * What came of a search, for people as a table with the winner and why the others lost, and for
 * programs as JSON or CSV.
 */
#ifndef GD_CLI_SHOW_SEARCH_H
#define GD_CLI_SHOW_SEARCH_H

#include "cli/predicting.h"
#include "search/search.h"

enum gd_status gd_search_table(struct gd_cli *cli, const struct gd_predicting *p,
                               const struct gd_search *search, struct gd_error *err) GD_MUST_USE;
enum gd_status gd_search_objects(struct gd_cli *cli, const struct gd_search *search,
                                 struct gd_error *err) GD_MUST_USE;

#endif
