/*
 * What `cost` says of options: rows of a table, objects for programs, sentences. What an option is
 * and which one is taken is src/money's.
 */
#ifndef GD_CLI_SHOW_COST_H
#define GD_CLI_SHOW_COST_H

#include "cli/show.h"
#include "money/money.h"

/* "$21,073"; "$0.22" below ten; "-" where it is not known. */
const char *gd_show_usd(char *text, size_t size, double usd);

/* "30", "8.73", "1,250". */
const char *gd_show_days(char *text, size_t size, double days);

enum { GD_SHOW_WAY = 96 };
/* "4 x 4090" for what is rented, wherever it is named; else the machine's name. */
const char *gd_show_thing(char text[GD_SHOW_WAY], const struct gd_money_option *option,
                          bool rented);
/* "rent 4 x 4090", "buy server-4x-4090". */
const char *gd_show_way(char text[GD_SHOW_WAY], const struct gd_money_option *option, bool rented);
/* "rent 8 x h100 for $120, 3.4 days" */
const char *gd_show_whole_way(char text[2 * GD_SHOW_WAY], const struct gd_money_way *way);
/* "$5,000", "30 days", "$5,000 and 30 days". */
const char *gd_show_limits(char text[GD_SHOW_WAY], const struct gd_money_limits *limits);

/* Whose rent an option has, or "--rent"; empty: it is not for rent. */
const char *gd_show_provider(const struct gd_money_table *table,
                             const struct gd_money_option *option);

/* One option as an object; NULL is null there. */
void gd_show_option(struct gd_show_object *to, const struct gd_money_table *table,
                    const struct gd_money_option *option, double limit_days);
void gd_show_set_option(struct gd_show_object *to, const char *key,
                        const struct gd_money_table *table, const struct gd_money_option *option,
                        double limit_days);
/* {"pue": {"value": 1.56, "source": "..."}, ...} */
void gd_show_set_terms(struct gd_show_object *to, const char *key,
                       const struct gd_money_terms *terms);

/* The table of machines by price; those that the source of days says nothing of are left out. */
enum gd_status gd_show_options(struct gd_cli *cli, const struct gd_money_table *table,
                               double limit_days, struct gd_error *err) GD_MUST_USE;
/* Where days come from, then doubts. */
void gd_show_time_lines(struct gd_cli *cli, const struct gd_time *time);
/* Two or three lines about one option: the run, renting, the whole life; then doubts. */
void gd_show_option_lines(struct gd_cli *cli, const struct gd_money_table *table,
                          const struct gd_money_option *option);
/* The terms with their sources, a line each. */
void gd_show_terms(struct gd_cli *cli, const struct gd_money_table *table);

#endif
