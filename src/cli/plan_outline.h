/*
 * `plan` for a model of which only the size is known: --params, or a config.json of an architecture
 * that is not built here. The answer is 6 N D FLOPs at the rates predicted for presets of its size.
 */
#ifndef GD_CLI_PLAN_OUTLINE_H
#define GD_CLI_PLAN_OUTLINE_H

#include "cli/cli.h"
#include "cli/show.h"
#include "model/outline.h"
#include "search/stand_in.h"

/* What the command line asks: of --params, or of the config.json that argument is. */
enum gd_status gd_cli_outline(struct gd_cli *cli, const char *argument, struct gd_outline *outline,
                              struct gd_error *err) GD_MUST_USE;
enum gd_status gd_plan_outline(struct gd_cli *cli, const struct gd_outline *outline,
                               struct gd_error *err) GD_MUST_USE;

/* Lines, and fields of an object, that plan, estimate and cost share: what is lacking, what is
   assumed. */
void gd_show_outline_notes(struct gd_cli *cli, const struct gd_outline *outline);
void gd_show_set_outline(struct gd_show_object *to, struct gd_cli *cli,
                         const struct gd_outline *outline);
void gd_show_set_assumed_of_outline(struct gd_show_object *to, const struct gd_outline *outline);
void gd_show_set_stand_ins(struct gd_show_object *to, const struct gd_stand_ins *in); /* names */
/* "7.8e20 = 6 N D of 1.3e9 parameters and 1.0e11 tokens" */
const char *gd_show_outline_flops(struct gd_cli *cli, const struct gd_outline *outline);

#endif
