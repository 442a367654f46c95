/*
 * The identity of a recipe (trial/recipe.h) of what was stored without it: from the text of a key,
 * or (for trials that have none) from the numbers of a preset's trial.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "store/store_int.h"

bool gd_recipe_of_key(const char *key_text, bool substituted, char hash[GD_HASH_TEXT]) {
  struct gd_recipe_texts of;
  /* A precision other than the recipe's was asked for, unless the device put it there. */
  bool known = gd_key_value(key_text, "family", of.family, sizeof of.family) &&
               gd_key_value(key_text, "graph", of.graph, sizeof of.graph) &&
               gd_key_value(key_text, "batch", of.batch, sizeof of.batch) &&
               gd_key_value(key_text, "seq", of.seq, sizeof of.seq) &&
               gd_key_value(key_text, "steps", of.steps, sizeof of.steps) &&
               gd_key_value(key_text, substituted ? "recipe_precision" : "precision", of.precision,
                            sizeof of.precision) &&
               gd_key_value(key_text, "optimizer", of.optimizer, sizeof of.optimizer);
  if (known)
    gd_recipe_hash_texts(&of, hash);
  return known;
}

/* A whole number that a quotient is but for rounding; 0: it is none. */
static int64_t whole(double quotient) {
  double nearest = nearbyint(quotient);
  bool is = isfinite(quotient) && nearest >= 1 && nearest <= 1e15 &&
            fabs(quotient - nearest) <= 1e-6 * nearest;
  return is ? (int64_t)nearest : 0;
}

/*
 * Batch, steps and sequence are quotients of what the trial says of itself. One that was not run
 * has no sequence, and claims no time either: it is taken for the preset's.
 */
bool gd_recipe_sizes(const struct gd_trial *trial, struct gd_recipe *recipe) {
  const int64_t most = INT64_MAX / 4;
  int64_t rest = trial->remainder ? trial->remainder : trial->micro_batch;
  if (trial->micro_batch < 1 || trial->accumulation < 1 || trial->ranks < 1 || rest < 1 ||
      trial->micro_batch > most / trial->accumulation / trial->ranks)
    return false;
  recipe->batch = ((trial->accumulation - 1) * trial->micro_batch + rest) * trial->ranks;
  recipe->steps = whole(trial->train_flops / trial->model_flops_per_step);
  if (trial->samples_per_s > 0)
    recipe->seq = whole(trial->tokens_per_s / trial->samples_per_s);
  if (!trial->precision_substituted)
    recipe->precision = trial->precision;
  return recipe->steps > 0;
}

enum gd_status gd_recipe_of_trial(const struct gd_trial *trial, struct gd_model *model,
                                  char hash[GD_HASH_TEXT], struct gd_error *err) {
  struct gd_graph graph;
  hash[0] = '\0';
  if (strchr(trial->model, '/') || gd_model_load(trial->model, model, NULL) != GD_OK)
    return GD_OK;
  int64_t seq = model->recipe.seq;
  if (!gd_recipe_sizes(trial, &model->recipe) || model->recipe.seq < 1 ||
      (model->family->images && model->recipe.seq != seq))
    return GD_OK;
  gd_graph_init(&graph);
  model->family->build(model, 1, &graph);
  enum gd_status status = gd_graph_check(&graph, err);
  bool same = status == GD_OK && gd_graph_parameters(&graph) == trial->parameters;
  gd_graph_deinit(&graph);
  return same ? gd_recipe_hash(model, NULL, hash, err) : status == GD_ENVIRONMENT ? status : GD_OK;
}
