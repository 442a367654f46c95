/*
 * What binds a checkpoint to its run: hashes of what run.json says of the model, the recipe, the
 * data and the seed. A checkpoint of another run may lie in the folder, by copying or because
 * run.json was edited; training on from it would be a run that nobody asked for.
 *
 *   struct gd_binding binding;
 *   GD_TRY(gd_binding_read("run", &binding, err));
 *   if (gd_binding_differs(&binding, &facts.binding, what, sizeof what)) ...
 */
#ifndef GD_TRAIN_BINDING_H
#define GD_TRAIN_BINDING_H

#include <stdbool.h>

#include "base/hash.h"
#include "base/json.h"

enum gd_binding_part {
  GD_BINDING_MODEL,  /* config.json */
  GD_BINDING_RECIPE, /* precision, optimizer, schedule, steps */
  GD_BINDING_DATA,   /* what it is and how it is made into samples; not where it lies */
  GD_BINDING_START,  /* seed and initial weights */
  GD_BINDING_PARTS
};

struct gd_binding {
  bool known; /* false: of a run without run.json, or a checkpoint of a program before this one */
  char part[GD_BINDING_PARTS][GD_HASH_TEXT];
};

/* Of the run in a folder; without run.json it is not known, and GD_OK. */
enum gd_status gd_binding_read(const char *folder, struct gd_binding *binding,
                               struct gd_error *err) GD_MUST_USE;
/* Whether both are known and differ; what: "recipe and seed". */
bool gd_binding_differs(const struct gd_binding *a, const struct gd_binding *b, char *what,
                        size_t size);

/* As state.json has it; NULL without memory. And back: not known where there is no object. */
json_t *gd_binding_object(const struct gd_binding *binding);
void gd_binding_parse(const json_t *object, struct gd_binding *binding);

#endif
