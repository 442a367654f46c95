/*
 * The identity of a recipe: two trials that share it train the same model for the same number of
 * steps, with the same sequence, global batch, precision and optimizer, so their days may be
 * compared.
 */
#ifndef GD_TRIAL_RECIPE_H
#define GD_TRIAL_RECIPE_H

#include "base/hash.h"
#include "model/model.h"

/*
 * precision NULL: the recipe's own; else the one that was asked for instead. What a method leaves
 * out (padding, a last position) and what a device puts in place of a precision do not change it,
 * nor do learning rate, schedule and the optimizer's other numbers, which change no work.
 * GD_ENVIRONMENT without memory; GD_INTERNAL when the model's graph cannot be built.
 */
enum gd_status gd_recipe_hash(const struct gd_model *model, const enum gd_precision *precision,
                              char hash[GD_HASH_TEXT], struct gd_error *err) GD_MUST_USE;
/* The same from the texts of its parts, as a trial's key has them. */
struct gd_recipe_texts {
  char family[64], graph[GD_HASH_TEXT], batch[24], seq[24], steps[24], precision[8], optimizer[16];
};
void gd_recipe_hash_texts(const struct gd_recipe_texts *of, char hash[GD_HASH_TEXT]);

/*
 * What a model is: the forward graph of one sequence, with the values that its leaves begin with,
 * whatever the configuration and the model are called. Errors as above.
 */
struct gd_model_identity {
  char graph[GD_HASH_TEXT];
  double flops; /* of a micro-step's GEMMs with one sequence, before a method leaves any out */
};
enum gd_status gd_model_identify(const struct gd_model *model, struct gd_model_identity *identity,
                                 struct gd_error *err) GD_MUST_USE;
enum gd_status gd_model_hash(const struct gd_model *model, char hash[GD_HASH_TEXT],
                             struct gd_error *err) GD_MUST_USE;
/* gd_recipe_hash of a model whose identity is known. */
void gd_recipe_hash_of(const struct gd_model *model, const struct gd_model_identity *identity,
                       const enum gd_precision *precision, char hash[GD_HASH_TEXT]);
/* The name of an op in identities, whatever it is called elsewhere; NULL: no model has it. */
const char *gd_recipe_op_name(enum gd_op_kind kind);

#endif
