/*
 * How a run looks: a row of `runs`, the lines and the curve of `watch`, the object of either's
 * --json.
 */
#ifndef GD_CLI_SHOW_RUN_H
#define GD_CLI_SHOW_RUN_H

#include "cli/show.h"
#include "train/run_view.h"

/* "2026-11-18 09:40", local time. */
const char *gd_show_date(char *text, size_t size, int64_t seconds);
/* Everything but the curves. */
void gd_show_set_run(struct gd_show_object *to, const char *folder, const struct gd_run_view *view);
/* What it is, how far, and its curve of losses, in so many columns. */
void gd_show_run(struct gd_cli *cli, const struct gd_run_view *view, const char *folder,
                 int columns);
/* "step 12 of 40, loss 4.4388, ..." of one point, and of an evaluation; with the line's end. */
void gd_show_run_point(struct gd_strbuf *out, const struct gd_run_view *view,
                       const struct gd_run_point *point);
void gd_show_run_eval(struct gd_strbuf *out, const struct gd_run_view *view,
                      const struct gd_run_eval *eval);
/* What to know about its log, as a line of notes; or nothing. */
void gd_show_run_damage(struct gd_strbuf *notes, const struct gd_run_view *view,
                        const char *folder);

#endif
