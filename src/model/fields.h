/*
 * What became of every field of a config.json: used, ignored for a reason that is known, not
 * supported with that value, or not known. Which ones are used is what the loader asked for while
 * it read (gd_json_log), so that this list cannot say otherwise.
 *
 *   struct gd_fields fields;
 *   GD_TRY(gd_fields_read("path/to/config.json", &fields, err));
 *   ... fields.list[i].name, .use, .why ...
 *   gd_fields_deinit(&fields);
 */
#ifndef GD_MODEL_FIELDS_H
#define GD_MODEL_FIELDS_H

#include "base/json.h"
#include "base/mem.h"

enum gd_field_use {
  GD_FIELD_USED,
  GD_FIELD_IGNORED,     /* it changes no number of a training run, or is said elsewhere */
  GD_FIELD_UNSUPPORTED, /* it changes the model, and this version has no such */
  GD_FIELD_UNKNOWN,     /* nothing here reads it: whether it matters is not known */
  GD_FIELD_USE_COUNT
};
const char *gd_field_use_name(enum gd_field_use use); /* "used" */

struct gd_field {
  const char *name;  /* "rope_scaling.factor" */
  const char *value; /* a few words of it */
  enum gd_field_use use;
  const char *why; /* NULL where it is used or not known */
};
struct gd_fields {
  struct gd_arena arena;
  struct gd_field *list; /* in the order of the file */
  int count;
  int of[GD_FIELD_USE_COUNT];
  const char *model_type;
  const char *family;  /* its title; NULL: this version has none of that model_type */
  const char *problem; /* a sentence: what else keeps it from being trained; NULL: nothing */
};
/* Of a file, a folder that holds one, or a preset. GD_BAD_INPUT where it is no configuration. */
enum gd_status gd_fields_read(const char *name_or_path, struct gd_fields *fields,
                              struct gd_error *err) GD_MUST_USE;
void gd_fields_deinit(struct gd_fields *fields); /* safe on a zeroed one */

/* "foo, bar": those of a configuration that nothing asked for and that are not known; "" for none.
 */
void gd_fields_unknown(json_t *config, const struct gd_json_log *log, char *text, size_t size);

#endif
