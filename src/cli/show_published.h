/*
 * Published rates and what predicts them, for programs: `gpudays accuracy --json`, and of `accuracy
 * add`.
 */
#ifndef GD_CLI_SHOW_PUBLISHED_H
#define GD_CLI_SHOW_PUBLISHED_H

#include "cli/show.h"
#include "predict/published_errors.h"

/* Begins an object with what a row says, up to its published rate. */
void gd_show_published_row(struct gd_show_object *to, const struct gd_published_row *row);
/* Sets "published": the scores of fits that left something out, and every row with its folds. */
void gd_show_published(struct gd_show_object *to, const struct gd_published_errors *errors);

#endif
