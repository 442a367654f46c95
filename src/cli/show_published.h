/*
 * Published rates and what predicts them, for programs: `gpudays accuracy --json`.
 */
#ifndef GD_CLI_SHOW_PUBLISHED_H
#define GD_CLI_SHOW_PUBLISHED_H

#include "cli/show.h"
#include "predict/published_errors.h"

/* Sets "published": the scores of fits that left something out, and every row with its folds. */
void gd_show_published(struct gd_show_object *to, const struct gd_published_errors *errors);

#endif
