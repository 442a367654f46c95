/*
 * Recipes that go without saying, so that a list of trials says only what it must: a trial of a
 * preset has the preset's recipe, and one of another model that of the model's first trial.
 *
 *   struct gd_usual_recipes usual = {0};
 *   for each trial: GD_TRY(gd_usual_compare(&usual, &trial, &compared, err));
 *   gd_usual_deinit(&usual);
 */
#ifndef GD_STORE_STORE_USUAL_H
#define GD_STORE_STORE_USUAL_H

#include "store/store.h"

struct gd_usual_recipe;
struct gd_usual_recipes { /* of the models that were seen; zeroed before, in gd_mem */
  struct gd_usual_recipe *list;
  uint32_t count, capacity;
};

struct gd_usual_compared {
  bool differs;            /* the trial has another recipe than the usual one of its model */
  bool known;              /* its numbers tell its recipe: what follows holds */
  bool images;             /* the model is trained on images, which have no sequence */
  bool precision_differs;  /* from the preset's; false where there is no preset */
  struct gd_recipe recipe; /* batch, seq, steps and precision alone; seq 0: not told */
};
/* GD_ENVIRONMENT without memory; GD_INTERNAL where the preset's graph cannot be built. */
enum gd_status gd_usual_compare(struct gd_usual_recipes *usual, const struct gd_trial *trial,
                                struct gd_usual_compared *compared,
                                struct gd_error *err) GD_MUST_USE;
void gd_usual_deinit(struct gd_usual_recipes *usual); /* safe on a zeroed one */

#endif
