/*
 * Names of parameters in checkpoints, which differ between versions of transformers, between a
 * model with its head and without, and between transformers and the authors' own files.
 */
#ifndef GD_MODEL_ALIASES_H
#define GD_MODEL_ALIASES_H

#include "model/model.h"
#include "model/safetensors.h"

/*
 * A parameter's tensor in a file, or NULL: under its own name, which is the one that the family's
 * builder gives it, or under any other that the table in aliases.c knows. `prefix` comes before the
 * name: "grad." of a reference, "" of a checkpoint.
 */
const struct gd_safetensor *gd_find_parameter(const struct gd_family *family,
                                              const struct gd_safetensors *file, const char *prefix,
                                              const char *name);

#endif
