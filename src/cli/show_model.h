/*
 * What is said of a model besides its answer: what was assumed of its recipe, and the fields of its
 * configuration that nothing here knows.
 */
#ifndef GD_CLI_SHOW_MODEL_H
#define GD_CLI_SHOW_MODEL_H

#include "cli/show.h"
#include "model/model.h"

/* "assumed: 2.0e9 tokens (20 a parameter), ..."; nothing where all is given. */
void gd_show_assumed(struct gd_cli *cli, const struct gd_model *model);
/* "assumed": a list of field, value and from; "unknown_fields": a list of names. Both may be empty.
 */
void gd_show_set_assumed(struct gd_show_object *to, struct gd_cli *cli,
                         const struct gd_model *model);

/* `gpudays models --check FILE`. */
enum gd_status gd_show_fields(struct gd_cli *cli, const char *path, struct gd_error *err);
/* "a, b" as the array unknown_fields. */
void gd_show_set_unknown(struct gd_show_object *to, const char *names);

#endif
