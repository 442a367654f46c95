/*
 * The identity of a recipe: what two trials must share to answer the same question. It is a hash of
 * what the recipe says, and comes from the model, from the text of a key, or (for trials that have
 * neither) from the numbers of a preset's trial.
 */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "store/store_int.h"

/*
 * What two trials must share to answer the same question: the model (its graph), sequence, global
 * batch, steps, the precision that was asked for and the optimizer. Learning rate, schedule, betas,
 * epsilon, decay and clipping change what is learned, but not what is computed: the norm of the
 * gradients is taken in every step.
 */
struct recipe_values {
  char family[64], graph[GD_HASH_TEXT], batch[24], seq[24], steps[24], precision[8], optimizer[16];
};

static void hash_recipe(const struct recipe_values *of, char hash[GD_HASH_TEXT]) {
  char text[512];
  snprintf(text, sizeof text,
           "family=%s;graph=%s;batch=%s;seq=%s;steps=%s;precision=%s;optimizer=%s", of->family,
           of->graph, of->batch, of->seq, of->steps, of->precision, of->optimizer);
  gd_hash_hex(hash, text);
}

enum gd_status gd_recipe_hash(const struct gd_model *model, const enum gd_precision *precision,
                              char hash[GD_HASH_TEXT], struct gd_error *err) {
  const struct gd_recipe *recipe = &model->recipe;
  struct recipe_values of = {0};
  GD_TRY(gd_model_hash(model, of.graph, err));
  snprintf(of.family, sizeof of.family, "%s", model->family->model_type);
  snprintf(of.batch, sizeof of.batch, "%" PRId64, recipe->batch);
  snprintf(of.seq, sizeof of.seq, "%" PRId64, recipe->seq);
  snprintf(of.steps, sizeof of.steps, "%" PRId64, recipe->steps);
  snprintf(of.precision, sizeof of.precision, "%s",
           gd_precision_name(precision ? *precision : recipe->precision));
  snprintf(of.optimizer, sizeof of.optimizer, "%s", gd_optimizer_name(recipe->optimizer));
  hash_recipe(&of, hash);
  return GD_OK;
}

bool gd_recipe_of_key(const char *key_text, bool substituted, char hash[GD_HASH_TEXT]) {
  struct recipe_values of;
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
    hash_recipe(&of, hash);
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
