/*
 * Recipes that go without saying; see store_usual.h.
 */
#include "store/store_usual.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

struct gd_usual_recipe {
  char model[sizeof((struct gd_trial *)0)->model];
  char hash[GD_HASH_TEXT];
  struct gd_recipe recipe; /* zero: no preset */
  bool images;
};

/* The preset's, else that of the trial, which is the first of its model. */
static enum gd_status add(struct gd_usual_recipes *usual, const struct gd_trial *trial,
                          struct gd_error *err) {
  struct gd_model model;
  if (!gd_vec_reserve((void **)&usual->list, &usual->capacity, usual->count + 1,
                      sizeof *usual->list))
    return gd_nomem(err, "while listing results");
  struct gd_usual_recipe *added = &usual->list[usual->count++];
  *added = (struct gd_usual_recipe){0};
  snprintf(added->model, sizeof added->model, "%s", trial->model);
  snprintf(added->hash, sizeof added->hash, "%s", trial->recipe);
  bool preset = !strchr(trial->model, '/') && gd_model_load(trial->model, &model, NULL) == GD_OK;
  if (!preset)
    return GD_OK;
  added->recipe = model.recipe;
  added->images = model.family->images;
  return gd_recipe_hash(&model, NULL, added->hash, err);
}

static enum gd_status find(struct gd_usual_recipes *usual, const struct gd_trial *trial,
                           const struct gd_usual_recipe **found, struct gd_error *err) {
  uint32_t at = 0;
  while (at < usual->count && strcmp(usual->list[at].model, trial->model) != 0)
    at++;
  if (at == usual->count)
    GD_TRY(add(usual, trial, err));
  *found = &usual->list[at];
  return GD_OK;
}

enum gd_status gd_usual_compare(struct gd_usual_recipes *usual, const struct gd_trial *trial,
                                struct gd_usual_compared *compared, struct gd_error *err) {
  const struct gd_usual_recipe *of;
  GD_TRY(find(usual, trial, &of, err));
  bool same = strcmp(of->hash, trial->recipe) == 0;
  *compared = (struct gd_usual_compared){.differs = !same && trial->recipe[0],
                                         .images = of->images,
                                         .recipe = {.precision = of->recipe.precision}};
  if (same)
    compared->recipe.seq = of->recipe.seq; /* what was not run does not tell its own */
  compared->known = gd_recipe_sizes(trial, &compared->recipe);
  compared->precision_differs =
      of->recipe.steps > 0 && compared->recipe.precision != of->recipe.precision;
  return GD_OK;
}

void gd_usual_deinit(struct gd_usual_recipes *usual) {
  gd_mem_free(usual->list);
  *usual = (struct gd_usual_recipes){0};
}
