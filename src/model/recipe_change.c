/*
 * A recipe with values that were asked for in place of its own.
 */
#include <math.h>
#include <stdio.h>

#include "base/strbuf.h"
#include "model/model.h"

/* The warm-up of the recipe that a bare configuration has: 2,000 steps of 100,000. A short run has
   the same share of its steps. */
enum { MOST_WARMUP = 2000, WARMUP_PART = 50 };

void gd_model_assume_warmup(struct gd_model *model) {
  struct gd_recipe *recipe = &model->recipe;
  int64_t warmup = (recipe->steps + WARMUP_PART - 1) / WARMUP_PART;
  recipe->warmup_steps = warmup < MOST_WARMUP ? warmup : MOST_WARMUP;
}

enum gd_status gd_model_assume_steps(struct gd_model *model, struct gd_error *err) {
  struct gd_recipe *recipe = &model->recipe;
  struct gd_graph graph;
  if (!(model->assumed & GD_ASSUMED_STEPS) || model->family->images)
    return GD_OK;
  gd_graph_init(&graph);
  model->family->build(model, 1, &graph);
  struct gd_error refused = {0}; /* of a graph that cannot be built: not an error of this */
  enum gd_status status = gd_graph_check(&graph, &refused);
  double tokens = GD_CHINCHILLA_TOKENS * (double)gd_graph_parameters(&graph);
  gd_graph_deinit(&graph);
  if (status == GD_ENVIRONMENT) {
    *err = refused;
    return status;
  }
  if (status != GD_OK)
    return GD_OK;
  double steps = ceil(tokens / ((double)recipe->batch * (double)recipe->seq));
  recipe->steps = steps < 1 ? 1 : steps < 1e9 ? (int64_t)steps : 1000000000; /* as in a file */
  gd_model_assume_warmup(model);
  return GD_OK;
}

/* As many whole steps as have the tokens. */
static enum gd_status set_tokens(struct gd_model *model, int64_t tokens, struct gd_error *err) {
  struct gd_recipe *recipe = &model->recipe;
  int64_t per_step = recipe->batch * recipe->seq;
  char step[48], billions[48] = "";
  if (tokens < 10000)
    snprintf(billions, sizeof billions, "; did you mean %lldB?", (long long)tokens);
  if (tokens < per_step)
    return gd_fail(err, GD_BAD_INPUT, "--tokens is %lld, less than the %s of one step of %s%s",
                   (long long)tokens, gd_format_count(step, sizeof step, per_step), model->name,
                   billions[0] ? billions : "; give --steps, or more tokens");
  recipe->steps = (tokens + per_step - 1) / per_step;
  return GD_OK;
}

static enum gd_status set_drop_path(struct gd_model *model, double drop_path,
                                    struct gd_error *err) {
  if ((float)drop_path >= 1)
    return gd_fail(err, GD_BAD_INPUT,
                   "--drop-path is %g; expected a number from 0 to below 1: the share of images "
                   "that the last block leaves out",
                   drop_path);
  model->recipe.drop_path = drop_path;
  return GD_OK;
}

enum gd_status gd_model_change_recipe(struct gd_model *model, const struct gd_recipe_change *change,
                                      struct gd_error *err) {
  struct gd_recipe *recipe = &model->recipe;
  if (model->family->images && (change->seq || change->tokens))
    return gd_fail(err, GD_BAD_INPUT, "%s is trained on images; %s does not apply to it",
                   model->name, change->seq ? "--seq" : "--tokens");
  if (change->seq)
    recipe->seq = change->seq;
  if (change->batch)
    recipe->batch = change->batch;
  if (change->steps && change->tokens)
    return gd_fail(err, GD_BAD_INPUT, "--steps and --tokens say the same thing twice; give one");
  if (change->steps)
    recipe->steps = change->steps;
  if (change->tokens)
    GD_TRY(set_tokens(model, change->tokens, err));
  if ((change->steps || change->tokens) && model->assumed & GD_ASSUMED_STEPS) {
    model->assumed &= ~(unsigned)GD_ASSUMED_STEPS;
    if (!model->family->images)
      gd_model_assume_warmup(model);
  }
  model->assumed &= ~(change->seq ? (unsigned)GD_ASSUMED_SEQ : 0u);
  model->assumed &= ~(change->batch ? (unsigned)GD_ASSUMED_BATCH : 0u);
  GD_TRY(gd_model_assume_steps(model, err));
  if (recipe->warmup_steps > recipe->steps)
    recipe->warmup_steps = recipe->steps;
  if (change->optimizer) {
    recipe->optimizer = *change->optimizer;
    recipe->decoupled_decay = false;
  }
  if (change->drop_path)
    GD_TRY(set_drop_path(model, *change->drop_path, err));
  return gd_model_check_drop_path(model, err);
}
