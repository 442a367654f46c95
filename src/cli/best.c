/*
 * The good trials of a model, fastest first; see best.h.
 */
#include "cli/best.h"

#include <math.h>
#include <stdio.h>

#include "pass/pass.h"

struct choosing {
  gd_store_visit visit;
  void *user;
  double flops_per_step, train_flops; /* of the recipe asked for */
  int64_t same_recipe, other_recipes;
};

static bool equal(double a, double b) {
  return fabs(a - b) <= 1e-6 * fabs(b);
}

static enum gd_status choose(void *user, const struct gd_store_row *row, struct gd_error *err) {
  struct choosing *choosing = user;
  const struct gd_trial *trial = &row->trial;
  if (!equal(trial->model_flops_per_step, choosing->flops_per_step) ||
      !equal(trial->train_flops, choosing->train_flops)) {
    choosing->other_recipes++;
    return GD_OK;
  }
  choosing->same_recipe++;
  return choosing->visit(choosing->user, row, err);
}

/* What the recipe asked for costs: trials of another batch or length are no answer to it. */
static enum gd_status count_flops(const struct gd_model *model, struct choosing *choosing,
                                  struct gd_error *err) {
  struct gd_graph graph = {0};
  struct gd_setup setup = {.model = model, .precision = model->recipe.precision, .micro_batch = 1};
  enum gd_status status = gd_pipeline_build(&setup, &graph, err);
  choosing->flops_per_step = graph.model_flops * (double)model->recipe.batch;
  choosing->train_flops = choosing->flops_per_step * (double)model->recipe.steps;
  gd_graph_deinit(&graph);
  return status;
}

enum gd_status gd_best_query(struct gd_store *store, const struct gd_model *model,
                             const struct gd_store_filter *filter, gd_store_visit visit, void *user,
                             struct gd_error *err) {
  static const enum gd_trial_status ok = GD_TRIAL_OK;
  struct choosing choosing = {.visit = visit, .user = user};
  struct gd_store_filter all = *filter;
  const char *methods = filter->method ? filter->method : "all";
  char ranks[24] = "";
  all.model = model->name;
  all.status = &ok;
  all.sort = GD_STORE_SORT_DAYS;
  GD_TRY(count_flops(model, &choosing, err));
  GD_TRY(gd_store_query(store, &all, choose, &choosing, err));
  if (choosing.same_recipe > 0)
    return GD_OK;
  if (filter->ranks > 1)
    snprintf(ranks, sizeof ranks, " --ranks %d", filter->ranks);
  if (choosing.other_recipes > 0)
    return gd_fail(err, GD_MISMATCH,
                   "no good trial of %s with this recipe is stored, %lld with others (--batch, "
                   "--seq, --steps, --tokens ask for those); gpudays bench %s --methods %s%s",
                   model->name, (long long)choosing.other_recipes, model->name, methods, ranks);
  return gd_fail(err, GD_MISMATCH, "no good trial of %s is stored; gpudays bench %s --methods %s%s",
                 model->name, model->name, methods, ranks);
}
