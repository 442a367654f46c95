/*
 * The good trials of a model, fastest first; see best.h.
 */
#include "cli/best.h"

#include <stdio.h>
#include <string.h>

struct choosing {
  gd_store_visit visit;
  void *user;
  int64_t same_recipe, other_recipes, unknown_recipes;
};

static enum gd_status choose(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct choosing *choosing = user;
  choosing->same_recipe++;
  return choosing->visit(choosing->user, row, err);
}

static enum gd_status count_others(void *user, const struct gd_store_row *row,
                                   struct gd_error *err) {
  struct choosing *choosing = user;
  (void)err;
  if (row->trial.recipe[0])
    choosing->other_recipes++;
  else
    choosing->unknown_recipes++;
  return GD_OK;
}

/* Why there is none, and what to do. */
static enum gd_status fail_none(const struct gd_model *model, const struct choosing *choosing,
                                const struct gd_store_filter *filter, struct gd_error *err) {
  const char *methods = filter->method ? filter->method : "all";
  char ranks[24] = "", others[160] = "", unknown[96] = "";
  if (filter->ranks > 1)
    snprintf(ranks, sizeof ranks, " --ranks %d", filter->ranks);
  if (choosing->other_recipes > 0)
    snprintf(others, sizeof others,
             ", %lld with others (--batch, --seq, --steps, --tokens, --precision, --optimizer ask "
             "for those)",
             (long long)choosing->other_recipes);
  if (choosing->unknown_recipes > 0)
    snprintf(unknown, sizeof unknown, ", %lld of an unknown recipe ('gpudays results' lists them)",
             (long long)choosing->unknown_recipes);
  return gd_fail(err, GD_MISMATCH,
                 "no good trial of %s%s is stored%s%s; gpudays bench %s --methods %s%s",
                 model->name, others[0] || unknown[0] ? " with this recipe" : "", others, unknown,
                 model->name, methods, ranks);
}

enum gd_status gd_best_query(struct gd_store *store, const struct gd_model *model,
                             const enum gd_precision *precision,
                             const struct gd_store_filter *filter, gd_store_visit visit, void *user,
                             struct gd_error *err) {
  static const enum gd_trial_status ok = GD_TRIAL_OK;
  struct choosing choosing = {.visit = visit, .user = user};
  struct gd_store_filter all = *filter;
  char recipe[GD_HASH_TEXT];
  GD_TRY(gd_recipe_hash(model, precision, recipe, err));
  all.model = NULL;
  all.recipe = recipe;
  all.status = &ok;
  all.sort = GD_STORE_SORT_DAYS;
  GD_TRY(gd_store_query(store, &all, choose, &choosing, err));
  if (choosing.same_recipe > 0)
    return GD_OK;
  all.recipe = NULL;
  all.model_name = model->name;
  all.brief = true;
  GD_TRY(gd_store_query(store, &all, count_others, &choosing, err));
  return fail_none(model, &choosing, filter, err);
}
